"""Virtual environments with a stand-in for torch of a chosen version, or without any."""

from __future__ import annotations

import venv
from pathlib import Path

TORCH = """
import os
from types import SimpleNamespace as _Space
with open(os.path.join(os.path.dirname(__file__), "imported"), "a") as file:
    file.write("x")
no = lambda: False
__version__ = "2.99.0+cpu"
version = _Space(cuda=None, hip=None)
cuda = _Space(is_available=no, get_arch_list=lambda: [])
backends = _Space(
    cudnn=_Space(is_available=no), mps=_Space(is_available=no), mkl=_Space(is_available=no),
    cpu=_Space(get_cpu_capability=lambda: "AVX2"),
)
"""
"""As much of torch as a probe uses; counts its imports in a file."""

OLD_TORCH = """
import os
with open(os.path.join(os.path.dirname(__file__), "imported"), "a") as file:
    file.write("x")
__version__ = "{version}"
"""
"""One that lacks what newer versions have."""


class Environment:
    """A virtual environment without packages, or with a stand-in for torch."""

    def __init__(self, place: Path, torch: str | None = TORCH, python_version: str = "") -> None:
        """If `python_version` differs from ours, all that runs in it finds that one in sys.version_info."""
        venv.create(place, symlinks=True)
        self.place = place
        self.python = str(place / "bin" / "python")
        self.torch_file = next(place.glob("lib/python*/site-packages")) / "torch" / "__init__.py"
        if torch is not None:
            self.torch_file.parent.mkdir()
            self.torch_file.write_text(torch)
        if python_version:
            numbers = ", ".join(python_version.split("."))
            reports = f"import sys; sys.version_info = ({numbers}, 'final', 0)\n"
            (self.torch_file.parents[1] / "version.pth").write_text(reports)

    def imports(self) -> int:
        """How often its torch was imported."""
        counter = self.torch_file.with_name("imported")
        return len(counter.read_text()) if counter.exists() else 0
