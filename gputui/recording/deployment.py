"""The worker's code as sent to another interpreter, and the measuring half as one zip."""

from __future__ import annotations

import importlib.resources
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gputui.errors import EXIT_MACHINE_LACKS
from gputui.version import version
from gputui.worker.start import NEEDED_PYTHON, OLDEST_PYTHON

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

WORKER_PACKAGE = "gputui_worker"
MEASURING_HALF = ("model", "sources", "machine", "worker", "recording")
_CODE = (".py", ".csv")
_MAIN = f"""import sys
if sys.version_info < {OLDEST_PYTHON}:
    version = ".".join(map(str, sys.version_info[:3]))
    sys.stderr.write(sys.executable + " is Python " + version + "; {NEEDED_PYTHON}\\n")
    sys.exit({EXIT_MACHINE_LACKS})
from gputui.recording.__main__ import main
sys.exit(main())
"""
"""Valid in every Python, so that one that is too old can say so."""


def copy_worker(target: Path) -> Path:
    """Copy the worker under its own package name into `target`; returns the path of its first file."""
    for name, data in _files(importlib.resources.files("gputui.worker"), ""):
        path = target / ("start.py" if name == "start.py" else f"{WORKER_PACKAGE}/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return target / "start.py"


def measuring_half() -> bytes:
    """A zip that any Python >= 3.10 runs: `python3 FILE.zip RUNDIR`. Includes pynvml if it
    is installed.

    The same code makes the same bytes, so that a host needs it only once.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in sorted(_measuring_files()):
            entry = zipfile.ZipInfo(name)  # of 1980, whenever it is made
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return buffer.getvalue()


def _measuring_files() -> Iterator[tuple[str, bytes]]:
    yield "__main__.py", _MAIN.encode()
    yield "gputui/built_version.py", f"VERSION = {version()!r}\n".encode()
    package = importlib.resources.files("gputui")
    for name in ("__init__.py", "errors.py", "metrics.py", "version.py"):
        yield f"gputui/{name}", package.joinpath(name).read_bytes()
    for room in MEASURING_HALF:
        for name, data in _files(package.joinpath(room), ""):
            yield f"gputui/{room}/{name}", data
    yield from _pynvml()


def _files(directory: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in directory.iterdir():
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _files(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(_CODE):
            yield prefix + entry.name, entry.read_bytes()


def _pynvml() -> Iterator[tuple[str, bytes]]:
    """The single module of nvidia-ml-py, or nothing."""
    try:
        import pynvml
    except ImportError:
        return
    if pynvml.__file__:
        yield "pynvml.py", Path(pynvml.__file__).read_bytes()
