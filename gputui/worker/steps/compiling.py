"""torch.compile: whether this machine can, and how long it takes."""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import sysconfig
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any  # Any: torch's types

from ..contract import Figure, Request, Unsupported

COMPILE = "compile"
COMPILE_FIGURE = Figure("compile_s", "compiling, before the first step", "s", "less", "median")


def compiled(work: Any, request: Request) -> Any:
    """A module or function in the request's mode: unchanged, or through torch.compile.

    It is compiled on the first call, with inductor's defaults, for the shapes of that call, and without
    caches of earlier processes. Raises Unsupported if this machine lacks what the compiler needs.
    """
    if request.mode != COMPILE:
        return work
    lacking = what_is_lacking(request.device)
    if lacking:
        raise Unsupported(lacking)
    _forget_earlier_work()
    import torch
    import torch._inductor.config

    torch._inductor.config.force_disable_caches = True
    return torch.compile(work, dynamic=False)


def what_is_lacking(device: str, which: Callable[[str], str | None] = shutil.which) -> str:
    """What inductor needs and this machine lacks; empty if nothing is missing."""
    if device == "cuda":
        if importlib.util.find_spec("triton") is None:
            return "torch.compile needs triton on a GPU, and this interpreter has none"
        return "" if _compiler("CC", ("cc", "gcc", "clang"), which) else "torch.compile needs a C compiler"
    if not _compiler("CXX", ("c++", "g++", "clang++"), which):
        return "torch.compile needs a C++ compiler on a CPU, and there is none on the path"
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        return "torch.compile needs Python.h of this interpreter, and it is not installed"
    return ""


def _compiler(variable: str, names: tuple[str, ...], which: Callable[[str], str | None]) -> bool:
    chosen = os.environ.get(variable)
    return any(which(name) for name in ((chosen.split()[0],) if chosen and chosen.split() else names))


@cache
def _forget_earlier_work() -> None:
    """Compile from scratch, into a directory that is deleted with this process."""
    place = tempfile.mkdtemp(prefix="gputui-compile-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = place
    os.environ["TRITON_CACHE_DIR"] = str(Path(place) / "triton")
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
