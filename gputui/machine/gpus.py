"""The GPUs as the drivers of NVIDIA and AMD describe them."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar  # Any: pynvml has no types

from gputui.machine.identity import APPLICATION_KEY, hashed_id
from gputui.model.absent import Missing
from gputui.model.machine import Gpu
from gputui.model.telemetry import Value
from gputui.sources.amd import AmdGpus
from gputui.sources.nvml_calls import (
    INVALID_ARGUMENT,
    MEMORY,
    MIG_MODE,
    NOT_SUPPORTED,
    OF_DRIVER,
    ONCE,
    PCI_ADDRESS,
    SELDOM,
    UUID,
    Asker,
    DriverGone,
    GpuLost,
    Question,
    Values,
    answers,
    current_mode,
    mig_handles,
    opened,
    question,
)

T = TypeVar("T")
Asked = TypeVar("Asked")

_SILENCE_S = 3.0
"""If no GPU answers for this long, the rest are described without: a call may hang forever."""
_SILENT = Missing(f"the driver has not answered for {_SILENCE_S:.0f} s")
_OF_NVIDIA = Missing("only NVIDIA's driver has it")


def _cuda(nvml: Any, handle: Any) -> dict[str, str]:
    version = nvml.nvmlSystemGetCudaDriverVersion_v2()
    return {"cuda": f"{version // 1000}.{version % 1000 // 10}"}


_DESCRIBING = (
    *("power_limit_w", "power_limit_default_w", "temperature_limit_c", "pcie_generation_max"),
    *("pcie_width", "pcie_width_max", "mig_mode"),
)
_OF_GPU: tuple[Question, ...] = (
    *(ONCE[0], UUID, MEMORY),
    *(one for one in SELDOM if one.keys[0] in _DESCRIBING),
    question(
        "compute_capability",
        "nvmlDeviceGetCudaComputeCapability",
        convert=lambda pair: f"{pair[0]}.{pair[1]}",
    ),
    question("ecc_mode", "nvmlDeviceGetEccMode", convert=current_mode),
)
_PROHIBITED = 2
_SM = "NVML_CLOCK_SM"


def _links(nvml: Any, handle: Any) -> dict[str, int]:
    """NVLink connections that are up, and those that are not."""
    states = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            states.append(int(nvml.nvmlDeviceGetNvLinkState(handle, link)))
        except nvml.NVMLError as error:
            if error.value in (NOT_SUPPORTED, INVALID_ARGUMENT):
                break  # it has no more
            raise
    return {"nvlinks_up": sum(states), "nvlinks_down": states.count(0)}


SETTINGS: tuple[Question, ...] = (
    question("is_prohibited", "nvmlDeviceGetComputeMode", convert=lambda mode: int(mode == _PROHIBITED)),
    question("retired_pages_pending", "nvmlDeviceGetRetiredPagesPendingStatus"),
    question("sm_clock_set_mhz", "nvmlDeviceGetApplicationsClock", constant=_SM),
    question("sm_clock_default_mhz", "nvmlDeviceGetDefaultApplicationsClock", constant=_SM),
    Question(("nvlinks_up", "nvlinks_down"), (_links,)),
    PCI_ADDRESS,
)
"""What decides whether a GPU can be used in full, and where it sits: asked for when a box is checked."""
_OF_LIBRARY = (OF_DRIVER, Question(("cuda",), (_cuda,)))


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


def describe_gpus(root: Path = Path("/")) -> DriverFacts:
    """Every GPU that the drivers count, NVIDIA's first, then AMD's cards from the files below `root`."""
    nvidia, amd = _describe_nvidia(), AmdGpus(root).open()
    if isinstance(amd, Missing):
        return nvidia
    read = _each(amd, lambda gpu: dict(gpu.sample()[0].values))
    asked = dict.fromkeys([key for one in _OF_GPU for key in one.keys], _OF_NVIDIA)
    found = [asked | ({} if values is None else values) for values in read]
    uuids = (uuid for values in found if isinstance(uuid := _text(values["uuid"]), str))
    own = str(found[0].get("driver", "")).removeprefix("amdgpu").strip()
    version = nvidia.driver_version if nvidia.gpus else own or Missing("amdgpu is that of the kernel")
    cards = (_gpu(gpu.number, values, "amd") for gpu, values in zip(amd, found, strict=True))
    gpus = (*nvidia.gpus, *cards)
    return DriverFacts(gpus, (*nvidia.uuids, *uuids), "", version, nvidia.cuda_driver_version)


def _describe_nvidia() -> DriverFacts:
    """Every GPU its driver counts, in its order; a lost GPU keeps its place."""
    found = opened()
    if isinstance(found, Missing):
        return DriverFacts((), (), found.reason, found, found)
    nvml, count = found
    silent: Values = {key: _SILENT for asked in _OF_GPU for key in asked.keys}
    read = _each(range(count), lambda index: answers(nvml, _OF_GPU, index))
    of_gpus = [silent if values is None else values for values in read]
    driver = answers(nvml, _OF_LIBRARY)
    return DriverFacts(
        tuple(_gpu(index, values) for index, values in enumerate(of_gpus)),
        tuple(uuid for values in of_gpus if isinstance(uuid := _text(values["uuid"]), str)),
        "",
        _text(driver["driver"]),
        _text(driver["cuda"]),
    )


def _each(asked: Sequence[Asked], ask: Callable[[Asked], T]) -> list[T | None]:
    """Call `ask` for each, in threads; None for those that hang."""
    found: dict[int, T] = {}
    news = threading.Condition()

    def answer(place: int) -> None:
        one = ask(asked[place])
        with news:
            found[place] = one
            news.notify()

    for place in range(len(asked)):
        threading.Thread(target=answer, args=(place,), name=f"describe GPU {place}", daemon=True).start()
    with news:
        while len(found) < len(asked) and news.wait(_SILENCE_S):
            pass  # each answer extends the deadline of the others
        return [found.get(place) for place in range(len(asked))]


def gpu_settings(indexes: Sequence[int]) -> dict[int, Values]:
    """The values of SETTINGS of these NVIDIA GPUs; without those that do not answer."""
    driver = opened()
    if isinstance(driver, Missing):
        return {}
    found = _each(indexes, lambda index: answers(driver[0], SETTINGS, index))
    return {index: values for index, values in zip(indexes, found, strict=True) if values is not None}


def _gpu(index: int, values: Values, vendor: str = "nvidia") -> Gpu:
    name, uuid = _text(values["name"]), _text(values["uuid"])
    ecc, mig = values["ecc_mode"], values["mig_mode"]
    return Gpu(
        index=index,
        gpu_id="" if isinstance(uuid, Missing) else hashed_id(APPLICATION_KEY, uuid),
        name="unnamed GPU" if isinstance(name, Missing) else name,
        vendor=vendor,
        memory_bytes=_known(values["memory_total_bytes"], int),
        power_limit_w=_known(values["power_limit_w"], float),
        power_default_limit_w=_known(values["power_limit_default_w"], float),
        compute_capability=_text(values["compute_capability"]),
        pcie_generation_max=_known(values["pcie_generation_max"], int),
        pcie_width_max=_known(values["pcie_width_max"], int),
        pcie_width=_known(values["pcie_width"], int),
        ecc_enabled=ecc if isinstance(ecc, Missing) else ecc == 1,
        mig_enabled=mig if isinstance(mig, Missing) else mig == 1,
        temperature_limit_c=_known(values["temperature_limit_c"], float),
    )


def _known(value: Value, convert: Callable[[Any], T]) -> T | Missing:
    return value if isinstance(value, Missing) else convert(value)


def _text(value: Value) -> str | Missing:
    if isinstance(value, Missing):
        return value
    return "".join(letter for letter in str(value) if letter.isprintable()).strip()[:96]


def gpu_addresses() -> tuple[GpuAddress, ...]:
    """The names of each GPU, by its number in telemetry; of AMD's, which torch knows by no UUID, the PCI
    address."""
    amd = AmdGpus().open()
    cards = () if isinstance(amd, Missing) else amd
    return (*_nvml_addresses(), *(GpuAddress(gpu.number, "", gpu.address, ()) for gpu in cards))


def _nvml_addresses() -> tuple[GpuAddress, ...]:
    driver = opened()
    if isinstance(driver, Missing):
        return ()
    found = _each(range(driver[1]), lambda index: _address(driver[0], index))
    return tuple(each or GpuAddress(index, "", "", ()) for index, each in enumerate(found))


def _address(nvml: Any, index: int) -> GpuAddress:
    values = answers(nvml, (UUID, PCI_ADDRESS, MIG_MODE), index)
    uuid, place = (_text(values[key]) for key in ("uuid", "pci_address"))
    return GpuAddress(
        index,
        "" if isinstance(uuid, Missing) else uuid,
        "" if isinstance(place, Missing) else place,
        tuple(_mig_uuids(nvml, index)) if values["mig_mode"] == 1 else (),
    )


def _mig_uuids(nvml: Any, index: int) -> Iterator[str]:
    with suppress(nvml.NVMLError, DriverGone, GpuLost):
        for _, handle in mig_handles(nvml, nvml.nvmlDeviceGetHandleByIndex(index)):
            uuid = Asker(nvml, handle).values((UUID,))["uuid"]
            if isinstance(uuid, str):
                yield uuid


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
