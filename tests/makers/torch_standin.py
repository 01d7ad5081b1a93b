"""Boxes whose torch is a package that sees a GPU as CUDA 13 does, from driver 580."""

from __future__ import annotations

import os
from pathlib import Path

from nvml.standin import standin_environment

TORCH = """
import os
from types import SimpleNamespace as _Space
_driver = 0
with open(os.environ.get("GPUTUI_NVML_SCENARIO", os.devnull)) as _file:
    for _line in _file:
        if _line.startswith("driver version"):
            _driver = int(_line.split()[2].split(".")[0])
_named = os.environ.get("CUDA_VISIBLE_DEVICES")
with open(os.path.join(os.path.dirname(__file__), "named"), "a") as _file:
    _file.write(f"{_named}\\n")
_is_seen = BUILD == "cu130" and _driver >= 580 and _named in NAMES
__version__ = "2.13.0+" + BUILD
version = _Space(cuda="13.0" if BUILD == "cu130" else None, hip=None)
_a100 = _Space(name="NVIDIA A100-SXM4-80GB", major=8, minor=0, total_memory=80 << 30, uuid="")
_a100.__dict__.update(MORE)
cuda = _Space(
    is_available=lambda: _is_seen,
    get_arch_list=lambda: ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"],
    device_count=lambda: int(_is_seen),
    get_device_properties=lambda index: _a100,
    set_device=lambda index: None,
    mem_get_info=lambda index: (79 << 30, 80 << 30),
    is_bf16_supported=lambda including_emulation: True,
    nccl=_Space(version=lambda: (2, 29, 7)),
)
_C = _Space(_get_privateuse1_backend_name=lambda: "privateuseone")
backends = _Space(
    cudnn=_Space(is_available=lambda: False),
    mps=_Space(is_available=lambda: False),
    mkl=_Space(is_available=lambda: False),
    cpu=_Space(get_cpu_capability=lambda: "AVX2"),
)
"""
"""As much of torch as a probe uses; cases on its GPU fail where they are tried, since there is none.

It sees the GPU if CUDA_VISIBLE_DEVICES is one of NAMES, and writes down what it was.
"""
DRIVERS = {"535.54.03": 12020, "580.95.05": 13000}
"""The newest CUDA of each, as NVML tells it."""


def write_torch(place: Path, build: str, names: tuple[str | None, ...] = (None, "0"), **more: object) -> Path:
    """Such a torch, importable from there; returns the file in which it writes down names."""
    text = TORCH.replace("BUILD", repr(build)).replace("NAMES", repr(names)).replace("MORE", repr(more))
    (place / "torch").mkdir(parents=True)
    (place / "torch" / "__init__.py").write_text(text)
    return place / "torch" / "named"


def first_on_the_path(place: Path) -> str:
    """PYTHONPATH with this place before what it has."""
    return os.pathsep.join(filter(None, (str(place), os.environ.get("PYTHONPATH"))))


def stand_in(place: Path, driver: str, build: str = "cu130") -> dict[str, str]:
    """The environment of a box with an A100, this driver, and this torch in the Python of the tests."""
    write_torch(place, build)
    cuda = DRIVERS[driver]
    scenario = f"driver gpus 1\ndriver version {driver}\ndriver cuda {cuda}\n* name NVIDIA A100-SXM4-80GB\n"
    return {**standin_environment(scenario), "PYTHONPATH": first_on_the_path(place)}
