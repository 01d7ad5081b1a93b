"""Builds the stand-in NVML library and makes processes load it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

_SOURCE = Path(__file__).with_name("nvml_standin.c")
_LIBRARY = "libnvidia-ml.so.1"


@cache
def _workspace() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="gputui-nvml-")  # removed when this process ends


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
        [
            compiler,
            "-shared",
            "-fPIC",
            "-pthread",
            "-O1",
            "-Wall",
            "-Werror",
            "-o",
            str(library),
            str(_SOURCE),
        ],
        check=True,
    )
    return library


def standin_environment(scenario: str) -> dict[str, str]:
    """Variables to add to a subprocess's environment, so that the real pynvml finds these GPUs.

    `scenario` is in the language described at the top of nvml_standin.c. It is written to a file, the value
    of GPUTUI_NVML_SCENARIO: write to it to change the GPUs while the process runs.
    """
    library = standin_library()
    handle, name = tempfile.mkstemp(suffix=".txt", dir=library.parent)
    os.close(handle)
    Path(name).write_text(scenario)
    search = [str(library.parent), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {"LD_LIBRARY_PATH": os.pathsep.join(search), "GPUTUI_NVML_SCENARIO": name}


def moving_gpus(gpus: int, processes: int, pids: Sequence[int] = ()) -> str:
    """A scenario of busy H200s whose metrics change, each at a different pace, with processes spread over
    them.

    `pids` are those of the first processes, for tests that need real ones; the others are invented. The
    second GPU, if there is one, is limited by its power cap.
    """
    lines = [f"driver gpus {gpus}", *_MOVING]
    for gpu in range(gpus):
        period = 7 + 2 * gpu
        lines += [f"{gpu} {key} ~ {low} {high} {period} {gpu}" for key, low, high in _PACED]
    if gpus > 1:
        lines += [
            "1 event_reasons 0x4",
            "1 field 186 ~ 684000 699000 7",
            "1 field 74 + 0 400000000",
            "1 sm_clock_mhz ~ 1400 1600 9",
        ]
    used = [900] * gpus
    for n in range(processes):
        gpu, pid = n % gpus, pids[n] if n < len(pids) else 900_000 + n
        memory = 2048 + 512 * (n % 7)
        used[gpu] += memory
        lines.append(f"{gpu} process {pid} C {memory} {5 + 11 * n % 60}")
    lines += [f"{gpu} memory_used_mib ~ {used[gpu]} {used[gpu] + 400} 11" for gpu in range(gpus)]
    return "\n".join(lines) + "\n"


_MOVING = (
    "* field 186 ~ 240000 690000 7",
    "* energy_mj + 1000000 450000",
    "* field 138 + 1000 40000000",
    "* field 139 + 1000 39000000",
    "* field 197 + 5e12 1200000000",
    "* field 198 + 9e12 5400000000",
    "* field 74 0",
    "* field 75 0",
    "* field 76 0",
    "* field 77 0",
    "* field 79 0",
    "* field 269 0",
    "* field 270 0",
    "* field 271 0",
    "* gpm 2 ~ 60 96 7",
    "* gpm 3 ~ 20 45 7",
    "* gpm 5 ~ 10 70 9",
    "* gpm 10 ~ 15 60 5",
    "* gpm 11 0",
    "* gpm 12 ~ 5 30 9 4.5",
    "* gpm 13 ~ 1 8 9",
    "* gpm 20 1200",
    "* gpm 21 5400",
    "* gpm 60 39000",
    "* gpm 61 40000",
)
"""For every GPU: the field values and GPM metrics that an H200 should report."""
_PACED = (
    ("sm_busy_pct", 20, 98),
    ("memory_busy_pct", 10, 60),
    ("temperature_c", 44, 71),
    ("sm_clock_mhz", 1700, 1980),
)
