"""Result files that come with gputui to compare with: `reference:NAME`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gputui.errors import GputuiError

PREFIX = "reference:"


def reference_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """$GPUTUI_REFERENCES, else `profiles/reference`: inside the package in a wheel, else beside it."""
    stated = environ.get("GPUTUI_REFERENCES")
    if stated:
        return Path(stated)
    package = Path(__file__).resolve().parents[2]
    inside = package / "profiles" / "reference"
    return inside if inside.is_dir() else package.parent / "profiles" / "reference"


def reference_names(directory: Path) -> tuple[str, ...]:
    """Names without extension; empty if there is no directory."""
    try:
        return tuple(sorted(entry.stem for entry in directory.iterdir() if entry.suffix == ".db"))
    except OSError:
        return ()


def reference_file(name: str, directory: Path | None = None) -> Path:
    """The file of a reference. Raises GputuiError, with the list, if there is none of that name."""
    place = reference_directory() if directory is None else directory
    names = reference_names(place)
    if name not in names:
        listed = f"one of {', '.join(names)}" if names else f"there is none in {place}: see its README.md"
        raise GputuiError(f"{PREFIX}{name}: no reference of that name", listed)
    return place / f"{name}.db"
