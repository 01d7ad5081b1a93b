"""Builds the stand-in NVML library and says how a process is made to load it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

_SOURCE = Path(__file__).with_name("nvml_standin.c")
_LIBRARY = "libnvidia-ml.so.1"


@cache
def _workspace() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="gputui-nvml-")  # goes with this process


def c_compiler() -> str | None:
    """$CC, else `cc` or `gcc`; None where there is none."""
    return shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")


@cache
def standin_library() -> Path:
    """Compile the stand-in once per test process; raises FileNotFoundError without a C compiler."""
    library = Path(_workspace().name) / _LIBRARY
    compiler = c_compiler()
    if compiler is None:
        raise FileNotFoundError("no C compiler: set CC, or install gcc")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-pthread", "-O1", "-Wall", "-Werror", "-o", str(library), str(_SOURCE)],
        check=True,
    )
    return library


def standin_environment(scenario: str) -> dict[str, str]:
    """Variables to add to a subprocess's environment, so that the real pynvml finds these GPUs.

    `scenario` is in the language described at the top of nvml_standin.c. The file it is written to is
    the value of GPUTUI_NVML_SCENARIO: write to it to change the GPUs while the process runs.
    """
    library = standin_library()
    handle, name = tempfile.mkstemp(suffix=".txt", dir=library.parent)
    os.close(handle)
    Path(name).write_text(scenario)
    search = [str(library.parent), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {"LD_LIBRARY_PATH": os.pathsep.join(search), "GPUTUI_NVML_SCENARIO": name}
