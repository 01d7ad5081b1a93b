"""Python environments made of what is installed here, without some of it; nothing is downloaded."""

from __future__ import annotations

import sys
import venv
from collections.abc import Collection
from pathlib import Path


def make_environment(place: Path, without: Collection[str]) -> Path:
    """An environment with links to all packages of this one but these and gputui; returns its interpreter."""
    venv.create(place, with_pip=False, symlinks=True)
    (site,) = place.glob("lib/python*/site-packages")
    for packages in [Path(path) for path in sys.path if path.endswith("site-packages")]:
        for entry in packages.iterdir():
            name = entry.name.partition("-")[0].partition(".")[0].lower()
            is_other = entry.suffix == ".pth" or name in {"gputui", "_editable_impl_gputui", *without}
            if not is_other and not (site / entry.name).exists():
                (site / entry.name).symlink_to(entry)
    return place / "bin" / "python"
