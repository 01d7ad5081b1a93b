"""The GPUs as the NVIDIA driver describes them."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar  # Any: pynvml has no types

from gputui.machine.identity import APPLICATION_KEY, hashed_id
from gputui.model.absent import Missing
from gputui.model.machine import Gpu
from gputui.model.nvml_codes import nvml_reason

T = TypeVar("T")

_SILENCE_S = 3.0
"""If no GPU answers for this long, the rest are described without: a call may hang forever."""
_SLOWDOWN, _BEYOND = 1, 194
"""NVML_TEMPERATURE_THRESHOLD_SLOWDOWN and NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT of nvml.h."""
_HOTTEST_C = 200
_SILENT = Missing(f"the driver has not answered for {_SILENCE_S:.0f} s")


@dataclass(frozen=True, slots=True)
class GpuAddress:
    """The names of one GPU, which join torch's devices to telemetry. Never stored."""

    index: int
    """The driver's number, as in `Gpu.index` and in telemetry."""
    uuid: str
    """`GPU-…`; empty if the driver does not report it."""
    pci_address: str
    """`0000:3b:00.0`, as `normal_pci_address` spells it; empty if unknown."""
    mig_uuids: tuple[str, ...]
    """`MIG-…` of its instances."""


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """Everything read from the NVIDIA library at once."""

    gpus: tuple[Gpu, ...]
    uuids: tuple[str, ...]
    """Of the GPUs that reported one; never stored."""
    absent: str
    """Why there are no GPUs; empty if there are some."""
    driver_version: str | Missing
    cuda_driver_version: str | Missing


class _Library:
    """pynvml, initialized; each query fails separately."""

    def __init__(self, pynvml: Any) -> None:
        self._pynvml = pynvml

    def ask(self, name: str, *arguments: Any, **options: Any) -> Any | Missing:
        """The result of one NVML function, or the reason there is none."""
        function = getattr(self._pynvml, name, None)
        if function is None:
            return Missing("this pynvml is too old to ask")
        try:
            return function(*arguments, **options)
        except self._pynvml.NVMLError as error:
            return Missing(nvml_reason(error.value))
        except (UnicodeDecodeError, TypeError):  # a faulty GPU's name; an argument this pynvml lacks
            return Missing("the NVIDIA driver's answer cannot be understood")

    def first(self, *questions: tuple[str, Any]) -> Any | Missing:
        """The first query that succeeds; else the reason of the last one."""
        answer: Any | Missing = Missing("not asked")
        for name, argument in questions:
            answer = self.ask(name, argument)
            if not isinstance(answer, Missing):
                break
        return answer

    def memory_bytes(self, handle: Any) -> int | Missing:
        version = getattr(self._pynvml, "nvmlMemory_v2", None)
        answer = (
            Missing("") if version is None else self.ask("nvmlDeviceGetMemoryInfo", handle, version=version)
        )
        if isinstance(answer, Missing):
            answer = self.ask("nvmlDeviceGetMemoryInfo", handle)
        return _convert(answer, lambda memory: int(memory.total))


def _open() -> _Library | Missing:
    # The library stays open until the process ends: without persistence mode each opening takes seconds.
    try:
        import pynvml
    except ImportError:
        return Missing("this Python has no pynvml: `pip install nvidia-ml-py` shows NVIDIA GPUs")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Missing(nvml_reason(error.value))
    return _Library(pynvml)


def describe_gpus() -> DriverFacts:
    """Every GPU the driver counts, in its order; a lost GPU keeps its place."""
    library = _open()
    if isinstance(library, Missing):
        return DriverFacts((), (), library.reason, library, library)
    count = library.ask("nvmlDeviceGetCount")
    if isinstance(count, Missing):
        absent, count = count.reason, 0
    else:
        absent = "" if count else "the NVIDIA driver sees no GPU"
    gpus: list[Gpu] = []
    uuids: list[str] = []
    for index, found in enumerate(_each(count, lambda index: _described(library, index))):
        gpu, uuid = (_lost(index, _SILENT), _SILENT) if found is None else found
        gpus.append(gpu)
        if not isinstance(uuid, Missing):
            uuids.append(uuid)
    cuda = library.ask("nvmlSystemGetCudaDriverVersion_v2")
    return DriverFacts(
        tuple(gpus),
        tuple(uuids),
        absent,
        _text(library.ask("nvmlSystemGetDriverVersion")),
        _convert(cuda, lambda version: f"{version // 1000}.{version % 1000 // 10}"),
    )


def _each(count: int, ask: Callable[[int], T]) -> list[T | None]:
    """Call `ask` for each index, in threads; None for those that hang."""
    found: dict[int, T] = {}
    news = threading.Condition()

    def answer(index: int) -> None:
        one = ask(index)
        with news:
            found[index] = one
            news.notify()

    for index in range(count):
        threading.Thread(target=answer, args=(index,), name=f"describe GPU {index}", daemon=True).start()
    with news:
        while len(found) < count and news.wait(_SILENCE_S):
            pass  # each answer extends the deadline of the others
        return [found.get(index) for index in range(count)]


def _described(library: _Library, index: int) -> tuple[Gpu, str | Missing]:
    """A GPU and its UUID."""
    handle = library.ask("nvmlDeviceGetHandleByIndex", index)
    if isinstance(handle, Missing):
        return _lost(index, handle), handle
    uuid = _text(library.ask("nvmlDeviceGetUUID", handle))
    return _gpu(
        library, index, handle, "" if isinstance(uuid, Missing) else hashed_id(APPLICATION_KEY, uuid)
    ), uuid


def _gpu(library: _Library, index: int, handle: Any, gpu_id: str) -> Gpu:
    name = _text(library.ask("nvmlDeviceGetName", handle))
    power_limit = library.first(
        ("nvmlDeviceGetEnforcedPowerLimit", handle), ("nvmlDeviceGetPowerManagementLimit", handle)
    )
    default_limit = library.ask("nvmlDeviceGetPowerManagementDefaultLimit", handle)
    capability = library.ask("nvmlDeviceGetCudaComputeCapability", handle)
    return Gpu(
        index=index,
        gpu_id=gpu_id,
        name="unnamed GPU" if isinstance(name, Missing) else name,
        vendor="nvidia",
        memory_bytes=library.memory_bytes(handle),
        power_limit_w=_convert(power_limit, lambda milliwatt: milliwatt / 1000),
        power_default_limit_w=_convert(default_limit, lambda milliwatt: milliwatt / 1000),
        compute_capability=_convert(capability, lambda pair: f"{pair[0]}.{pair[1]}"),
        pcie_generation_max=_convert(library.ask("nvmlDeviceGetMaxPcieLinkGeneration", handle), int),
        pcie_width_max=_convert(library.ask("nvmlDeviceGetMaxPcieLinkWidth", handle), int),
        pcie_width=_convert(library.ask("nvmlDeviceGetCurrPcieLinkWidth", handle), int),
        ecc_enabled=_convert(library.ask("nvmlDeviceGetEccMode", handle), lambda modes: modes[0] == 1),
        mig_enabled=_convert(library.ask("nvmlDeviceGetMigMode", handle), lambda modes: modes[0] == 1),
        temperature_limit_c=_temperature_limit_c(library, handle),
    )


def _temperature_limit_c(library: _Library, handle: Any) -> float | Missing:
    """Where the clocks begin to fall; newer GPUs report how far away that is instead."""
    limit = library.ask("nvmlDeviceGetTemperatureThreshold", handle, _SLOWDOWN)
    if isinstance(limit, Missing):
        now = library.ask("nvmlDeviceGetTemperature", handle, 0)
        margin = library.ask("nvmlDeviceGetMarginTemperature", handle)
        if isinstance(now, Missing) or isinstance(margin, Missing):
            return limit
        limit = now + margin - _celsius(library.ask("nvmlDeviceGetFieldValues", handle, [(_BEYOND, 0)]))
    return float(limit) if 0 < limit <= _HOTTEST_C else Missing(f"the driver reports {limit} °C")


def _celsius(fields: Any | Missing) -> int:
    """How far beyond the margin the clocks begin to fall; 0 if that is not reported."""
    if isinstance(fields, Missing) or fields[0].nvmlReturn != 0:
        return 0
    return int(fields[0].value.siVal)


def _lost(index: int, why: Missing) -> Gpu:
    return Gpu(index, "", "unnamed GPU", "nvidia", why, why, why, why, why, why, why, why, why, why)


def _convert(answer: Any | Missing, convert: Callable[[Any], T]) -> T | Missing:
    return answer if isinstance(answer, Missing) else convert(answer)


def _text(answer: Any | Missing) -> str | Missing:
    if isinstance(answer, Missing):
        return answer
    # before 11.5 pynvml returns bytes
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)
    return "".join(letter for letter in text if letter.isprintable()).strip()[:96]


def nvml_addresses() -> tuple[GpuAddress, ...]:
    """UUID and PCI address of each NVIDIA GPU, by the driver's number; empty without a driver."""
    library = _open()
    if isinstance(library, Missing):
        return ()
    count = library.ask("nvmlDeviceGetCount")
    found = _each(0 if isinstance(count, Missing) else count, lambda index: _address(library, index))
    return tuple(each or GpuAddress(index, "", "", ()) for index, each in enumerate(found))


def _address(library: _Library, index: int) -> GpuAddress:
    handle = library.ask("nvmlDeviceGetHandleByIndex", index)
    if isinstance(handle, Missing):
        return GpuAddress(index, "", "", ())
    uuid = _text(library.ask("nvmlDeviceGetUUID", handle))
    pci = _convert(library.ask("nvmlDeviceGetPciInfo", handle), lambda info: _text(info.busId))
    return GpuAddress(
        index,
        "" if isinstance(uuid, Missing) else uuid,
        "" if isinstance(pci, Missing) else normal_pci_address(pci),
        _mig_uuids(library, handle),
    )


def _mig_uuids(library: _Library, handle: Any) -> tuple[str, ...]:
    modes = library.ask("nvmlDeviceGetMigMode", handle)
    most = library.ask("nvmlDeviceGetMaxMigDeviceCount", handle)
    if isinstance(modes, Missing) or modes[0] != 1 or isinstance(most, Missing):
        return ()
    uuids: list[str] = []
    for place in range(most):
        slice_handle = library.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, place)
        if not isinstance(slice_handle, Missing):
            uuid = _text(library.ask("nvmlDeviceGetUUID", slice_handle))
            if not isinstance(uuid, Missing):
                uuids.append(uuid)
    return tuple(uuids)


def normal_pci_address(text: str) -> str:
    """One spelling for `00000000:3B:00.0`, `0000:3b:00.0` and `3b:0`: `0000:3b:00.0`; empty if malformed."""
    found = re.fullmatch(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?", text.lower())
    if not found:
        return ""
    domain, bus, device = (int(part or "0", 16) for part in found.groups()[:3])
    return f"{domain:04x}:{bus:02x}:{device:02x}.{found[4] or '0'}"


def join_gpu(addresses: Sequence[GpuAddress], uuid: str, pci_address: str) -> int | Missing:
    """The driver's number of the GPU that torch knows by this UUID or, failing that, PCI address."""
    wanted = _bare(uuid)
    for address in addresses:
        names = {_bare(name) for name in (address.uuid, *address.mig_uuids) if name}
        if wanted and wanted in names:
            return address.index
    place = normal_pci_address(pci_address)
    for address in addresses:
        if place and place == address.pci_address:
            return address.index
    return Missing("no GPU of the driver has this UUID or PCI address")


def _bare(uuid: str) -> str:
    """The UUID without the driver's prefix, as torch prints it."""
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")
