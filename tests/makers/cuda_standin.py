"""Made-up GPUs for torch: as much of a torch as the profile `check` asks for, whose clock is made up too.

The GPUs are those of the stand-in for NVML, and its file says how fast they are: `3 torch_amp 6e14`. A
kernel takes the time of its FLOPs or bytes on the device's own clock, which runs ahead of the real one: a
launch ends as soon as its blocks agree.
"""

from __future__ import annotations

import os
from pathlib import Path

from nvml.standin import standin_environment

RATES = {"amp": 7.8e14, "fp32": 5e13, "copy": 4.3e12, "h2d": 5.5e10, "d2h": 5.4e10}
"""FLOP/s and bytes per second of a made-up H200 that is well."""
TORCH = """
import math as _math
import os
import random as _random
import sys as _sys
import time as _time
from types import ModuleType as _Module, SimpleNamespace as _Space

_RATES = RATES_HERE
_lines = [line.split() for line in open(os.environ["GPUTUI_NVML_SCENARIO"]) if line.split()]
_count = next(int(words[2]) for words in _lines if words[:2] == ["driver", "gpus"])
_uuids = ["GPU-00000000-0000-0000-0000-%012d" % index for index in range(_count)]
_named = os.environ.get("CUDA_VISIBLE_DEVICES")
_lost = [int(words[0]) for words in _lines if words[1:3] == ["error", "*"]]
_there = [i for i in range(_count) if i not in _lost]
_seen = [i for i in _there if _named is None or _uuids[i] in _named or str(i) in _named.split(",")]
_free_s = 0.0

def _work(what, amount):
    global _free_s
    index, rate = cuda._index(), _RATES[what]
    for scope, key, *value in _lines:
        if key == "torch_" + what and scope in ("*", str(index)):
            rate = float(value[0])
    _free_s += amount / rate * _random.uniform(0.9995, 1.0005)

class device(str):
    pass

class Tensor:
    def __init__(self, shape, dtype="float32", device="cpu"):
        self.shape, self.dtype, self.device = tuple(shape), dtype, str(device)
    def numel(self):
        return _math.prod(self.shape)
    def bytes(self):
        return self.numel() * {"bfloat16": 2, "float16": 2, "uint8": 1}.get(self.dtype, 4)
    def to(self, device=None, dtype=None):
        return Tensor(self.shape, dtype or self.dtype, device or self.device)
    def repeat(self, times):
        return Tensor((self.numel() * times,), self.dtype, self.device)
    def __getitem__(self, part):
        start, stop, _ = part.indices(self.numel())
        return Tensor((max(stop - start, 0),), self.dtype, self.device)
    def __setitem__(self, part, value):
        pass
    def view(self, shape):
        return Tensor(shape, self.dtype, self.device)
    def zero_(self):
        return self
    def copy_(self, other, non_blocking=False):
        ways = {("cuda", "cpu"): "h2d", ("cpu", "cuda"): "d2h", ("cuda", "cuda"): "copy"}
        way = ways.get((self.device, other.device))
        if way:
            _work(way, self.bytes() * (2 if way == "copy" else 1))
        return self
    def __matmul__(self, other):
        return mm(self, other)

class Generator:
    def manual_seed(self, seed):
        return self
    def seed(self):
        return 0

class Event:
    def __init__(self, enable_timing=True):
        self.at_s = 0.0
    def record(self):
        self.at_s = _free_s
    def elapsed_time(self, other):
        return (other.at_s - self.at_s) * 1e3
    def query(self):
        return False

def mm(a, b, out=None):
    _work("fp32" if a.dtype == "float32" else "amp", 2 * a.shape[0] * a.shape[1] * b.shape[1])
    return Tensor((a.shape[0], b.shape[1]), a.dtype, a.device)

def empty(*shape, dtype="float32", device="cpu", pin_memory=False):
    return Tensor(shape[0] if isinstance(shape[0], tuple) else shape, dtype, device)

ones = empty
def randn(count, generator=None):
    return Tensor((count,))
def randint(high, shape, dtype="uint8", generator=None):
    return Tensor(shape, dtype)
def zeros_like(one):
    return one.to()

class OutOfMemoryError(RuntimeError):
    pass

uint8, float32, bfloat16, float16 = "uint8", "float32", "bfloat16", "float16"
default_generator = Generator()
set_num_threads = set_float32_matmul_precision = lambda one: None
get_num_threads = lambda: 1
__version__ = "2.13.0+cu130"
version = _Space(cuda="13.0", hip=None)

def _properties(index):
    return _Space(
        name=next(" ".join(words[2:]) for words in _lines if words[1] == "name"), major=9, minor=0,
        total_memory=141 << 30, uuid=_uuids[_seen[index]], pci_domain_id=0, pci_bus_id=0x1B + _seen[index],
        pci_device_id=0,
    )

cuda = _Space(
    _index=lambda: _seen[0],
    is_available=lambda: bool(_seen),
    is_initialized=lambda: False,
    device_count=lambda: len(_seen),
    get_device_properties=_properties,
    get_device_capability=lambda *_: (9, 0),
    get_arch_list=lambda: ["sm_90"],
    set_device=lambda index: None,
    mem_get_info=lambda index: (140 << 30, 141 << 30),
    is_bf16_supported=lambda including_emulation: True,
    synchronize=lambda *_: None,
    Event=Event,
    empty_cache=lambda: None,
    max_memory_allocated=lambda: 0,
    nccl=_Space(version=lambda: (2, 29, 7)),
)
_flags = dict(matmul=_Space(), conv=_Space(), rnn=_Space(), is_available=lambda: False)
backends = _Space(
    cudnn=_Space(**_flags), mkldnn=_Space(**_flags), mps=_Space(**_flags), mkl=_Space(**_flags),
    cpu=_Space(get_cpu_capability=lambda: "AVX2"),
)
_C = _Space(_get_privateuse1_backend_name=lambda: "privateuseone")
for _name in ("_dynamo", "optim"):
    _sys.modules["torch." + _name] = _Module("torch." + _name)
"""


def made_up_gpus(place: Path, scenario: str) -> dict[str, str]:
    """Variables with which NVML and torch see the GPUs of a scenario; writes the torch below `place`."""
    if not (place / "torch").exists():
        (place / "torch").mkdir(parents=True)
        (place / "torch" / "__init__.py").write_text(TORCH.replace("RATES_HERE", repr(RATES)))
    before = filter(None, (str(place), os.environ.get("PYTHONPATH")))
    return {**standin_environment(scenario), "PYTHONPATH": os.pathsep.join(before)}
