"""A device of torch without hardware, `queued`: its kernels are queued, and finish later.

Its memory is host memory that holds NaN (all bits set) until a kernel has written it, and kernels run only
once the host waits for them, or asks an event after their time: a read that forgets to wait finds the wrong
numbers. Its clock is virtual: each kernel takes the time of its FLOPs or of its bytes, whichever is longer,
after the kernel before it and after the host has launched it. Python's clocks follow it in this process, so
that times of a test do not depend on the machine.

`install` changes torch and `time` for the rest of the process: only call it in a process of its own.
"""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils import backend_registration
from torch.utils.flop_counter import flop_registry

NAME = "queued"
KEY = "PrivateUse1"
aten = torch.ops.aten

_EXTENSION = 12
"""kDLExtDev of DLDeviceType in dlpack.h, which is PrivateUse1 to torch."""
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

_FIRST_OF_KIND = 20
"""c10::Device of index 0, whose kind is in the lower byte: DeviceType.h."""
_report = ctypes.CDLL(
    str(Path(torch.__file__).parent / "lib" / "libc10.so")
)._ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
"""How allocators tell torch's profiler what they do; it has no name in Python."""
_report.restype = None
_report.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint16]


class Device:
    """The queue, its clock and its memory."""

    def __init__(self) -> None:
        self.flops_per_s, self.bytes_per_s = 1e9, 1e9
        self.least_kernel_ns, self.launch_ns = 1000, 100
        """The shortest kernel; what launching one costs the host."""
        self.total_bytes = 8 * 2**30
        self.host_ns, self.cpu_ns = 10**12, 0
        self.live_bytes = self.peak_bytes = 0
        self.launched = 0
        self.busy_ns = 0
        """Of all kernels so far."""
        self.waits: list[str] = []
        """What made the host wait."""
        self.captures: list[tuple[Callable[[], object], int]] | None = None
        """The kernels of the graph that is being captured, which are not queued."""
        self._queue: deque[tuple[int, Callable[[], object]]] = deque()
        self._free_ns = 0
        self._lock = threading.RLock()
        self._worker = ThreadPoolExecutor(1)
        self.generator = torch.Generator()

    @property
    def pending(self) -> int:
        """Kernels that did not run yet."""
        return len(self._queue)

    @property
    def end_ns(self) -> int:
        """When all that was launched is done, on the host's clock."""
        return max(self._free_ns, self.host_ns)

    def spend(self, host_ns: int) -> None:
        """The host works for so long."""
        with self._lock:
            self.host_ns += host_ns
            self.cpu_ns += host_ns

    def launch(self, work: Callable[[], object], work_ns: int) -> None:
        """Queue a kernel."""
        with self._lock:
            self.spend(self.launch_ns)
            if self.captures is None:
                self.follow(work, work_ns)
            else:
                self.captures.append((work, work_ns))

    def follow(self, work: Callable[[], object], work_ns: int) -> None:
        """Queue a kernel that the host need not launch."""
        self._free_ns = self.end_ns + work_ns
        self.busy_ns += work_ns
        self.launched += 1
        self._queue.append((self._free_ns, work))

    def wait(self, why: str) -> None:
        """The host waits until the queue is empty. Raises RuntimeError while a graph is captured."""
        if self.captures is not None:
            raise RuntimeError("nothing can wait while a graph is captured")
        with self._lock:
            self.waits.append(why)
            self.wait_until(self._free_ns)

    def wait_until(self, at_ns: int) -> None:
        """The host waits until then."""
        with self._lock:
            self.host_ns = max(self.host_ns, at_ns)
            self.catch_up()

    def catch_up(self) -> None:
        """Run the kernels that are over by the host's clock."""
        with self._lock:
            over = []
            while self._queue and self._queue[0][0] <= self.host_ns:
                over.append(self._queue.popleft()[1])
            if over:
                self._worker.submit(_run, over).result()

    def work_ns(self, flops: int, moved_bytes: int) -> int:
        """How long a kernel takes."""
        needed_s = max(flops / self.flops_per_s, moved_bytes / self.bytes_per_s)
        return max(round(needed_s * 1e9), self.least_kernel_ns)


def _run(kernels: list[Callable[[], object]]) -> None:
    with torch.inference_mode():  # where tensors of either mode may be written
        for kernel in kernels:
            kernel()


device = Device()

_memory: dict[int, bytearray] = {}
"""Of each allocation, by address. A kernel keeps what it uses, also when the program has released it."""


def _allocated(size: int) -> Any:
    """Memory of so many bytes, whose end is its release."""
    if device.live_bytes + size > device.total_bytes:
        raise torch.OutOfMemoryError(f"{NAME} out of memory: tried to allocate {size} bytes")
    memory = bytearray(b"\xff") * size
    block = (ctypes.c_ubyte * size).from_buffer(memory)
    address = ctypes.addressof(block)
    _memory[address] = memory
    _changed(address, size)
    weakref.finalize(block, _released, address, size)
    return block


def _released(address: int, size: int) -> None:
    del _memory[address]
    _changed(address, -size)


def _changed(address: int, size: int) -> None:
    device.live_bytes += size
    device.peak_bytes = max(device.peak_bytes, device.live_bytes)
    _report(address, size, device.live_bytes, device.live_bytes, _FIRST_OF_KIND)


def _empty(size: Any, stride: Any, dtype: Any) -> Any:
    """A tensor of the device. DLPack moves it there: memory of the host, with another kind of device."""
    count = 0 if 0 in size else 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    flat = torch.frombuffer(_allocated(count * dtype.itemsize), dtype=dtype) if count else torch.empty(0)
    capsule = torch._C._to_dlpack(flat.to(dtype))
    ctypes.c_int32.from_address(_pointer_of(capsule, b"dltensor") + 8).value = _EXTENSION  # after its data
    return aten.as_strided_.default(torch._C._from_dlpack(capsule), size, stride, 0)


def seen_by_the_host(tensor: Any) -> Any:
    """What is in its memory now, as a program would see it that read there without waiting."""
    if not tensor.numel():
        return torch.empty(tensor.size(), dtype=tensor.dtype)
    memory = _memory[tensor.untyped_storage().data_ptr()]
    flat = torch.frombuffer(memory, dtype=tensor.dtype, count=len(memory) // tensor.element_size())
    return flat.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def _is_ours(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == NAME


def _on_meta(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("meta")
    if isinstance(value, torch.Generator):
        return None
    if not _is_ours(value):
        return value
    return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if _is_ours(value):
        return seen_by_the_host(value)
    return value.clone() if isinstance(value, torch.Tensor) else value


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """A value with this function applied to all that its tuples, lists and dictionaries hold."""
    if isinstance(value, dict):
        return {name: _mapped(function, one) for name, one in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)([_mapped(function, one) for one in value])
    return function(value)


def _bytes_of(*values: Any) -> int:
    """Of the tensors among them, each read or written once."""
    sizes: list[int] = []
    _mapped(lambda one: sizes.append(one.nbytes if _is_ours(one) else 0), values)
    return sum(sizes)


def _is_written(slot: Any) -> bool:
    return slot.alias_info is not None and slot.alias_info.is_write


def _any_operator(op: Any, *args: Any, **kwargs: Any) -> Any:
    """The kernel of every operator that no other function here does."""
    slots = {slot.name: slot for slot in op._schema.arguments}
    given = dict(zip(slots, args, strict=False)) | kwargs
    if "generator" in slots and given.get("generator") is None:
        given["generator"] = device.generator
    returns = op._schema.returns
    if any(str(slot.type) != "Tensor" for slot in returns) or torch.Tag.dynamic_output_shape in op.tags:
        return _answer_now(op, given)
    shapes = op(**_mapped(_on_meta, given))
    shapes = shapes if isinstance(shapes, tuple) else (shapes,)
    if any(slot.alias_info is not None and not slot.alias_info.is_write for slot in returns):
        (shape,) = shapes
        viewed = given["self"]
        return _as_strided(
            viewed, shape.size(), shape.stride(), viewed.storage_offset() + shape.storage_offset()
        )
    written: Iterator[Any] = (given[name] for name, slot in slots.items() if _is_written(slot))
    outs = []
    for slot, shape in zip(returns, shapes, strict=False):
        out = next(written) if _is_written(slot) else None if shape is None else _empty_as(shape)
        if out is not None and out.size() != shape.size():  # torch leaves the size of an output to its kernel
            out.data = _empty_as(shape)
        outs.append(out)
    if not op.name().startswith("aten::empty"):
        _launch(op, args, kwargs, given, [out for out, slot in zip(outs, returns, strict=True)])
    return None if not returns else outs[0] if len(outs) == 1 else tuple(outs)


def _empty_as(shape: Any) -> Any:
    return _empty(shape.size(), shape.stride(), shape.dtype)


def _launch(op: Any, args: Any, kwargs: Any, given: dict[str, Any], outs: list[Any]) -> None:
    count = flop_registry.get(op._overloadpacket)
    flops = count(*args, **kwargs, out_val=outs[0] if len(outs) == 1 else outs) if count else 0
    values, targets = _mapped(_on_cpu, given), _mapped(_on_cpu, outs)

    def work() -> None:
        found = op(**values)
        for target, one in zip(targets, found if isinstance(found, tuple) else (found,), strict=False):
            if isinstance(target, torch.Tensor) and target.data_ptr() != one.data_ptr():
                target.copy_(one)

    device.launch(work, device.work_ns(flops, _bytes_of(given, outs)))


def _answer_now(op: Any, given: dict[str, Any]) -> Any:
    """An operator whose answer, or the size of it, the host needs."""
    device.wait(op.name())
    return _mapped(_on_device, op(**_mapped(_on_cpu, given)))


def _on_device(value: Any) -> Any:
    return _copy(value, _empty_as(value)) if isinstance(value, torch.Tensor) else value


def _as_strided(tensor: Any, size: Any, stride: Any, storage_offset: int | None = None) -> Any:
    offset = tensor.storage_offset() if storage_offset is None else storage_offset
    return aten.as_strided_.default(aten.alias.default(tensor), size, stride, offset)


def _copy(source: Any, target: Any, non_blocking: bool = False) -> Any:
    """Between host and device, and on it. Memory of the host is pageable: a copy from it reads at once, and
    one to it waits."""
    read, write = _on_cpu(source), seen_by_the_host(target) if _is_ours(target) else target
    device.launch(lambda: write.copy_(read), device.work_ns(0, _bytes_of(source, target)))
    if not _is_ours(target):
        device.wait("copy to the host")
    return target


def _convolution(*args: Any) -> Any:
    return _any_operator(aten.convolution.default, *args)


def _convolution_backward(gradient: Any, images: Any, weight: Any, *args: Any) -> Any:
    wanted = (gradient, images, weight, [weight.size(0)], *args)
    return _any_operator(aten.convolution_backward.default, *wanted)


def _in_dtype(op: Any, dtype_of: Callable[[], Any]) -> Callable[..., Any]:
    """An operator under autocast, whose tensors of floats it converts."""

    def cast(value: Any) -> Any:
        return value.to(dtype_of()) if _is_ours(value) and value.is_floating_point() else value

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._DisableAutocast():
            return op(*_mapped(cast, args), **_mapped(cast, kwargs))

    return run


_LOWER = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "conv2d", "scaled_dot_product_attention")
_FP32 = ("layer_norm", "softmax.int", "log_softmax.int", "nll_loss", "cross_entropy_loss")


class Event:
    """A place in the queue. It has a time once the device was there."""

    def __init__(self, enable_timing: bool = False) -> None:
        self._has_time, self._at_ns = enable_timing, -1

    def record(self) -> None:
        """Behind all that was launched."""
        device.spend(device.launch_ns)
        self._at_ns = device.end_ns

    def query(self) -> bool:
        """Whether the device was there."""
        device.spend(device.launch_ns)
        device.catch_up()
        return self._at_ns <= device.host_ns

    def synchronize(self) -> None:
        """Wait until the device was there."""
        device.wait_until(self._at_ns)

    def elapsed_time(self, later: Event) -> float:
        """Milliseconds from this to a later one. Raises RuntimeError if the device was not there."""
        if not self._has_time or not later._has_time or min(self._at_ns, later._at_ns) < 0:
            raise RuntimeError("an event has no time")
        if max(self._at_ns, later._at_ns) > device.host_ns:
            raise RuntimeError("device not ready")
        return (later._at_ns - self._at_ns) / 1e6


class _Stream:
    """There is one queue, and its order is that of the launches."""

    def wait_stream(self, other: _Stream) -> None:
        """All that was launched before comes first."""


class _Graph:
    """Kernels that one launch repeats, in the same memory."""

    def __init__(self) -> None:
        self.kernels: list[tuple[Callable[[], object], int]] = []

    def replay(self) -> None:
        """Queue all of them."""
        device.spend(device.launch_ns)
        for work, work_ns in self.kernels:
            device.follow(work, work_ns)


class Module:
    """What `torch.queued` is."""

    Event, Stream, CUDAGraph = Event, _Stream, _Graph

    def current_stream(self) -> _Stream:
        return _Stream()

    def stream(self, chosen: _Stream) -> AbstractContextManager[None]:
        return nullcontext()

    @contextmanager
    def graph(self, graph: _Graph, stream: _Stream) -> Iterator[None]:
        """What is launched meanwhile is captured, and not done."""
        device.captures = graph.kernels
        try:
            yield
        finally:
            device.captures = None

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def set_device(self, index: object) -> None:
        if index not in (0, f"{NAME}:0", torch.device(NAME, 0)):
            raise RuntimeError(f"there is no {index} of {NAME}")

    def get_device_properties(self, index: object = 0) -> Any:
        return SimpleNamespace(name="a queue without hardware", total_memory=device.total_bytes)

    def synchronize(self, index: object = None) -> None:
        device.wait("synchronize")

    def manual_seed_all(self, seed: int) -> None:
        device.launch(lambda: device.generator.manual_seed(seed), 0)

    def get_amp_supported_dtype(self) -> list[Any]:
        return [torch.bfloat16, torch.float16]

    def empty_cache(self) -> None:
        """It keeps none."""

    def memory_allocated(self, index: object = None) -> int:
        return device.live_bytes

    memory_reserved = memory_allocated

    def max_memory_allocated(self, index: object = None) -> int:
        return device.peak_bytes

    def reset_peak_memory_stats(self, index: object = None) -> None:
        device.peak_bytes = device.live_bytes

    def mem_get_info(self, index: object = None) -> tuple[int, int]:
        return device.total_bytes - device.live_bytes, device.total_bytes


module = Module()
_libraries: list[Any] = []
"""Their registrations end with them."""


def install() -> None:
    """Make torch know the device, and Python's clocks follow it. Once in a process."""
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=module)
    kernels, others = torch.library.Library("aten", "IMPL"), torch.library.Library("_", "IMPL")
    others.fallback(_any_operator, KEY)
    others.fallback(torch.library.fallthrough_kernel, f"Autocast{KEY}")
    kernels.impl("as_strided", _as_strided, KEY)
    kernels.impl("_copy_from", _copy, KEY)
    kernels.impl("convolution_overrideable", _convolution, KEY)
    kernels.impl("convolution_backward_overrideable", _convolution_backward, KEY)
    for names, dtype_of in ((_LOWER, lambda: torch.get_autocast_dtype(NAME)), (_FP32, lambda: torch.float32)):
        for name in names:
            packet, _, overload = name.partition(".")
            op = getattr(getattr(aten, packet), overload or "default")
            kernels.impl(name, _in_dtype(op, dtype_of), f"Autocast{KEY}")
    _libraries.extend((kernels, others))
    for name in ("monotonic", "perf_counter", "time"):
        setattr(time, name, lambda: device.host_ns / 1e9)
        setattr(time, f"{name}_ns", lambda: device.host_ns)
    time.process_time_ns = lambda: device.cpu_ns
    time.sleep = _sleep


def _sleep(seconds: Any, /) -> None:
    device.wait_until(device.host_ns + round(seconds * 1e9))
