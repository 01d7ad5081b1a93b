"""What is queried from a GPU with one call each: often, less often, seldom, and once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any  # Any: pynvml has no types

from gputui.model.absent import Missing
from gputui.sources import nvml_calls
from gputui.sources.nvml_live.answers import Question, Way

SLOWDOWN_MARGIN = 194
"""Field: where throttling begins, in degrees relative to the limit that the margin refers to; negative
beyond."""
_OLD_DRIVER = Missing("this NVIDIA driver counts it as used")


def _text(ask: Callable[[], str | bytes]) -> str:
    """The driver's answer, whatever its bytes are."""
    try:
        text = ask()
    except UnicodeDecodeError as error:  # pynvml decodes strictly
        text = error.object
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def _name(nvml: Any, handle: Any) -> dict[str, str]:
    return {"name": _text(lambda: nvml.nvmlDeviceGetName(handle))}


def _uuid(nvml: Any, handle: Any) -> dict[str, str]:
    return {"uuid": _text(lambda: nvml.nvmlDeviceGetUUID(handle))}


def _driver(nvml: Any, handle: Any) -> dict[str, str]:
    return {"driver": _text(nvml.nvmlSystemGetDriverVersion)}


def _pci_address(nvml: Any, handle: Any) -> dict[str, str]:
    place = nvml.nvmlDeviceGetPciInfo(handle)
    return {"pci_address": f"{place.domain:04x}:{place.bus:02x}:{place.device:02x}.0"}


def _number(function: str, key: str) -> Way:
    return lambda nvml, handle: {key: int(getattr(nvml, function)(handle))}


def _watts(function: str, key: str) -> Way:
    return lambda nvml, handle: {key: getattr(nvml, function)(handle) / 1000}


def _share(function: str, key: str) -> Way:
    return lambda nvml, handle: {key: float(getattr(nvml, function)(handle)[0])}


def _clock_max(which: str, key: str) -> Way:
    return lambda nvml, handle: {key: float(nvml.nvmlDeviceGetMaxClockInfo(handle, getattr(nvml, which)))}


def _fan(nvml: Any, handle: Any) -> dict[str, float]:
    return {"fan_pct": float(nvml.nvmlDeviceGetFanSpeed(handle))}


def _slowdown(nvml: Any, handle: Any) -> dict[str, float]:
    slowdown = nvml.nvmlDeviceGetTemperatureThreshold(handle, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
    return {"temperature_limit_c": float(slowdown)}


def _slowdown_by_margin(nvml: Any, handle: Any) -> dict[str, float]:
    """On newer GPUs: the margin to the limit, and how far beyond the limit throttling begins."""
    margin = nvml.nvmlDeviceGetMarginTemperature(handle)
    limit = nvml.nvmlDeviceGetFieldValues(handle, [(SLOWDOWN_MARGIN, 0)])[0]
    beyond = nvml_calls.field_number(nvml, limit)
    now = nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
    return {"temperature_limit_c": float(now + margin - beyond)}


def _ecc(nvml: Any, handle: Any) -> dict[str, int]:
    uncorrected = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    return {
        "ecc_uncorrected_count": nvml.nvmlDeviceGetTotalEccErrors(handle, uncorrected, nvml.NVML_VOLATILE_ECC)
    }


def _remapped(nvml: Any, handle: Any) -> dict[str, int]:
    """Rows of memory that spare ones replace, and whether that has failed or waits for a reset."""
    corrected, uncorrected, is_pending, has_failed = nvml.nvmlDeviceGetRemappedRows(handle)
    return {
        "remapped_rows_count": corrected + uncorrected,
        "remapped_rows_pending": int(bool(is_pending)),
        "remapped_rows_failed": int(bool(has_failed)),
    }


def _mig_mode(nvml: Any, handle: Any) -> dict[str, int]:
    return {"mig_mode": int(nvml.nvmlDeviceGetMigMode(handle)[0])}


def _violation(key: str, *policies: str) -> Way:
    """Accumulated time by the call that field values replace: it is removed with CUDA 14."""

    def way(nvml: Any, handle: Any) -> dict[str, int]:
        return {
            key: sum(
                nvml.nvmlDeviceGetViolationStatus(handle, getattr(nvml, policy)).violationTime
                for policy in policies
            )
        }

    return way


MEMORY = Question(
    ("memory_used_bytes", "memory_reserved_bytes", "memory_total_bytes"),
    (nvml_calls.memory_2, nvml_calls.memory_1),
    _OLD_DRIVER,
)
POWER = Question(("power_w",), (nvml_calls.power,))
ENERGY = Question(("energy_mj",), (nvml_calls.energy,))

OFTEN: tuple[Question, ...] = (
    Question(("sm_busy_pct", "memory_busy_pct"), (nvml_calls.busy,)),
    MEMORY,
    Question(("temperature_c",), (nvml_calls.temperature_v, nvml_calls.temperature)),
    Question(("sm_clock_mhz",), (nvml_calls.sm_clock,)),
    Question(("throttle_bits",), (nvml_calls.event_reasons, nvml_calls.throttle_reasons)),
)

LESS_OFTEN: tuple[Question, ...] = (
    Question(("memory_clock_mhz",), (nvml_calls.memory_clock,)),
    Question(("pstate",), (_number("nvmlDeviceGetPerformanceState", "pstate"),)),
    Question(("encoder_pct",), (_share("nvmlDeviceGetEncoderUtilization", "encoder_pct"),)),
    Question(("decoder_pct",), (_share("nvmlDeviceGetDecoderUtilization", "decoder_pct"),)),
)

SELDOM: tuple[Question, ...] = (
    Question(
        ("power_limit_w",),
        (
            _watts("nvmlDeviceGetEnforcedPowerLimit", "power_limit_w"),
            _watts("nvmlDeviceGetPowerManagementLimit", "power_limit_w"),
        ),
    ),
    Question(
        ("power_limit_default_w",),
        (_watts("nvmlDeviceGetPowerManagementDefaultLimit", "power_limit_default_w"),),
    ),
    Question(("temperature_limit_c",), (_slowdown, _slowdown_by_margin)),
    Question(("sm_clock_max_mhz",), (_clock_max("NVML_CLOCK_SM", "sm_clock_max_mhz"),)),
    Question(("memory_clock_max_mhz",), (_clock_max("NVML_CLOCK_MEM", "memory_clock_max_mhz"),)),
    Question(("fan_pct",), (_fan,)),
    Question(("pcie_generation",), (_number("nvmlDeviceGetCurrPcieLinkGeneration", "pcie_generation"),)),
    Question(
        ("pcie_generation_max",), (_number("nvmlDeviceGetMaxPcieLinkGeneration", "pcie_generation_max"),)
    ),
    Question(("pcie_width",), (_number("nvmlDeviceGetCurrPcieLinkWidth", "pcie_width"),)),
    Question(("pcie_width_max",), (_number("nvmlDeviceGetMaxPcieLinkWidth", "pcie_width_max"),)),
    Question(("ecc_uncorrected_count",), (_ecc,)),
    Question(("remapped_rows_count", "remapped_rows_pending", "remapped_rows_failed"), (_remapped,)),
    Question(("mig_mode",), (_mig_mode,)),
)

ONCE: tuple[Question, ...] = tuple(
    Question((key,), (way,))
    for key, way in (("name", _name), ("uuid", _uuid), ("driver", _driver), ("pci_address", _pci_address))
)

OF_INSTANCES: tuple[Question, ...] = (
    Question(("gpu_instance_id",), (_number("nvmlDeviceGetGpuInstanceId", "gpu_instance_id"),)),
    Question(("compute_instance_id",), (_number("nvmlDeviceGetComputeInstanceId", "compute_instance_id"),)),
)
"""Of MIG instances, once."""

VIOLATIONS: dict[str, Question] = {
    question.keys[0]: question
    for question in (
        Question(("throttled_power_ns",), (_violation("throttled_power_ns", "NVML_PERF_POLICY_POWER"),)),
        Question(
            ("throttled_thermal_ns",), (_violation("throttled_thermal_ns", "NVML_PERF_POLICY_THERMAL"),)
        ),
        Question(
            ("throttled_other_ns",),
            (
                _violation(
                    "throttled_other_ns", "NVML_PERF_POLICY_BOARD_LIMIT", "NVML_PERF_POLICY_RELIABILITY"
                ),
            ),
        ),
    )
}
