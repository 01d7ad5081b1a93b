"""Health findings of GPUs, as text."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gputui.analysis.health import GHOST, Cause, GpuFinding, Slowed, Throttling, health, is_foreign
from gputui.model.absent import Missing
from gputui.model.telemetry import (
    ENDED,
    FOREIGN,
    HIDDEN,
    HW_SLOWDOWN,
    LOST,
    DeviceSample,
    GpuUse,
    ProcessSample,
    Value,
)
from gputui.sources.nvml_calls import GPU_IS_LOST, nvml_reason

NOW_NS = 1000 * 10**9
SECOND_NS = 10**9
NOT_KNOWN = Slowed()
NO_COUNTER = Missing("this GPU does not report it")


def gpu(
    values: Mapping[str, Value] | None = None,
    /,
    *,
    age_s: float = 0.0,
    problem: Missing | None = None,
    **more: Value,
) -> DeviceSample:
    t_ns = NOW_NS - round(age_s * SECOND_NS)
    return DeviceSample(0, "nvml", t_ns, {**(values or {}), **more}, problem=problem)


def found(sample: DeviceSample, slowed: Slowed = NOT_KNOWN, foreign: int = 0) -> list[GpuFinding]:
    return list(health(NOW_NS, sample, slowed, [process(pid, "you") for pid in range(foreign)], "me"))


def words(sample: DeviceSample, slowed: Slowed = NOT_KNOWN, foreign: int = 0) -> list[str]:
    return [finding.word for finding in found(sample, slowed, foreign)]


HEALTHY: dict[str, Value] = {
    "throttle_bits": 0,
    "sm_busy_pct": 99.0,
    "temperature_c": 60.0,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "pcie_generation": 5,
    "pcie_generation_max": 5,
    "ecc_uncorrected_count": 0,
}


LEFT_OVER: dict[str, Value] = {
    "sm_busy_pct": 100.0,
    "memory_used_bytes": 0,
    "power_w": 98.0,
    "power_limit_w": 600.0,
}
NAN = float("nan")


@pytest.mark.parametrize(
    ("sample", "wanted"),
    [
        (gpu(HEALTHY), []),
        (gpu(dict.fromkeys(HEALTHY, NO_COUNTER)), []),
        (gpu(), []),
        *((gpu(throttle_bits=bits), []) for bits in (0x0, 0x1, 0x2, 0x10 | 0x100)),  # idle, or asked for
        (gpu(throttle_bits=0x8 | 0x40), ["THERMAL"]),
        (gpu(throttle_bits=0x8 | 0x80), ["POWER BRAKE"]),
        (gpu(throttle_bits=0x8), ["HW SLOWDOWN"]),
        (gpu(throttle_bits=NAN, ecc_uncorrected_count=NAN, pcie_width=NAN, pcie_width_max=16), []),
        (gpu({**HEALTHY, "pcie_width": 4, "sm_busy_pct": 0.0}), ["PCIe x4 of x16"]),
        (gpu({**HEALTHY, "pcie_generation": 1}), ["PCIe gen1 of 5"]),
        (gpu({**HEALTHY, "pcie_generation": 1, "sm_busy_pct": 0.0}), []),
        (gpu({**HEALTHY, "pcie_generation": 1, "sm_busy_pct": NO_COUNTER}), []),
        (gpu(ecc_uncorrected_count=3), ["ECC errors 3"]),
        (gpu(remapped_rows_failed=1), ["ROW REMAP FAILED"]),
        (gpu(remapped_rows_failed=0), []),
        *(
            (gpu(HEALTHY, temperature_c=celsius, temperature_limit_c=90.0), ["HOT"] * is_hot)
            for celsius, is_hot in ((84.9, False), (85.0, True), (90.0, True))
        ),
        (gpu(age_s=2.9), []),
        (gpu(age_s=3.0), ["STALE 3 s"]),
        (gpu(age_s=600.0), ["STALE 10 min"]),
        (gpu(LEFT_OVER), [GHOST]),
        (gpu(LEFT_OVER, sm_busy_pct=98.0), []),
        (gpu(LEFT_OVER, memory_used_bytes=300 * 2**20), []),
        (gpu(LEFT_OVER, power_w=200.0), []),
        *((gpu({**LEFT_OVER, key: NO_COUNTER}), []) for key in LEFT_OVER),
    ],
)
def test_what_a_gpu_reports_has_these_words(sample: DeviceSample, wanted: list[str]) -> None:
    assert words(sample) == wanted


HANGS = Missing("the driver has not answered for 12 s")
REFUSED = Missing("no permission to ask the NVIDIA driver")
GONE = (nvml_reason(GPU_IS_LOST), f"{LOST}: the kernel lists it no more")
CAPPED = "the power limit holds the clocks down"
HALVED = "the hardware has halved the clocks or worse: heat, or the power supply"


@pytest.mark.parametrize(
    ("sample", "slowed", "foreign", "wanted"),
    [
        (
            gpu(throttle_bits=0x4, power_limit_w=300.0, power_limit_default_w=450.0),
            Slowed(300.0, {"power": 0.34}),
            0,
            GpuFinding(
                "POWER-CAPPED at 300 W, 34 % of 5 min",
                "warn",
                f"{CAPPED}: 300 W (factory 450 W)",
                "POWER-CAPPED at 300 W",
            ),
        ),
        (
            gpu(throttle_bits=0x4),
            Slowed(300.0, {"power": None}),
            0,
            GpuFinding("POWER-CAPPED", "warn", CAPPED),
        ),
        *(
            (
                gpu(age_s=60, problem=Missing(reason), throttle_bits=0x4, pcie_width=4),
                NOT_KNOWN,
                0,
                GpuFinding("LOST", "alarm", reason),
            )
            for reason in GONE
        ),
        (gpu(age_s=12, problem=HANGS), NOT_KNOWN, 0, GpuFinding("STALE 12 s", "alarm", HANGS.reason)),
        (gpu(problem=REFUSED), NOT_KNOWN, 0, GpuFinding("NO READING", "alarm", REFUSED.reason)),
        (gpu(throttle_bits=HW_SLOWDOWN), NOT_KNOWN, 0, GpuFinding("HW SLOWDOWN", "warn", HALVED)),
        (gpu(age_s=99.6), NOT_KNOWN, 0, GpuFinding("STALE 2 min", "warn", "the last reading is 2 min old")),
    ],
)
def test_a_finding_has_its_word_its_weight_and_its_reason(
    sample: DeviceSample, slowed: Slowed, foreign: int, wanted: GpuFinding
) -> None:
    assert found(sample, slowed, foreign) == [wanted]


def test_processes_of_others_are_counted_in_words() -> None:
    for count, words in ((1, "1 process"), (2, "2 processes")):
        assert [f.why for f in found(gpu(), foreign=count)] == [f"{words} of other users on this GPU"]


def test_what_limited_the_clocks_a_moment_ago_is_still_reported() -> None:
    now = gpu(throttle_bits=0, temperature_c=71.0, temperature_limit_c=87.0)
    (finding,) = found(now, Slowed(200.0, {"thermal": 0.2}, {"thermal": 44.0}))
    assert finding.word == "was slowed by heat 20 % of 3 min, 40 s ago"
    assert finding.brief == "was slowed by heat 20 %, 40 s ago"
    assert (finding.severity, finding.style) == ("note", "dim")
    assert finding.why == "heat held the clocks down in that time, but not now"
    assert words(now, Slowed(300.0, {"thermal": 0.004}, {"thermal": 44.0})) == []


def test_a_power_cap_is_a_caution_only_within_3_percent_of_the_cap() -> None:
    seen = Slowed(300.0, {"power": 0.3}, {"power": 0.0})
    severities = [
        found(gpu(throttle_bits=bits, power_limit_w=600.0, power_w=power_w), seen)[0].severity
        for bits in (0x4, 0)
        for power_w in (600.0, 583.0, 581.0, 90.0)
    ]
    assert severities == 2 * ["warn", "warn", "note", "note"]


def test_what_slows_a_gpu_is_an_alarm_once_it_took_5_percent_of_a_minute_and_at_its_limit_at_once() -> None:
    named = {0x20: "THERMAL", 0x40: "THERMAL", 0x80: "POWER BRAKE", 0x8: "HW SLOWDOWN"}
    for bits, word in named.items():
        cause: Cause = "thermal" if word == "THERMAL" else "other"
        cool = gpu(throttle_bits=bits, temperature_c=60.0, temperature_limit_c=90.0)
        for seconds, severity in ((0.0, "warn"), (2.9, "warn"), (3.0, "alarm")):
            (finding,) = found(cool, Slowed(60.0, {}, {cause: 0.0}, {cause: seconds}))
            assert (finding.word, finding.severity) == (word, severity)
    for celsius, bits, word, severity in (
        (84.0, 0x20, "THERMAL", "warn"),
        (85.0, 0x0, "HOT", "warn"),
        (88.0, 0x20, "THERMAL", "alarm"),
        (90.0, 0x0, "HOT", "alarm"),
    ):
        (finding,) = found(gpu(throttle_bits=bits, temperature_c=celsius, temperature_limit_c=90.0))
        assert (finding.word, finding.severity) == (word, severity)


def test_with_a_longer_interval_a_value_may_be_older() -> None:
    assert health(NOW_NS, gpu(age_s=15), stale_after_s=25.0) == ()


def test_the_worst_comes_first() -> None:
    ill = gpu(throttle_bits=0x4, ecc_uncorrected_count=1, pcie_width=8, pcie_width_max=16)
    assert found(ill)[0].why.startswith("1 memory error ")
    assert words(ill, foreign=2) == ["ECC errors 1", "POWER-CAPPED", "PCIe x8 of x16", "SHARED"]


def process(pid: int, user: str | Missing, device: int = 0) -> ProcessSample:
    none = Missing("not here")
    use = GpuUse(device, pid, "C", 0, 0.0)
    return ProcessSample(pid, (use,), none, user, none, none, none, none, none)


def test_a_gpu_is_shared_with_processes_of_other_users_and_not_with_those_that_nobody_can_look_at() -> None:
    crowd = [process(1, "me"), process(2, "you"), process(3, FOREIGN), process(4, HIDDEN)]
    assert [is_foreign(one, "me") for one in crowd] == [False, True, True, True]
    assert [is_foreign(one, "") for one in crowd] == [False, False, True, True]
    assert [f.word for f in health(NOW_NS, gpu(), processes=crowd, user="me")] == ["SHARED"]
    unknown = [process(1, ENDED), process(2, Missing("a process of the host"))]
    for others in ([process(1, "you", device=1)], Missing("not asked for"), unknown):
        assert health(NOW_NS, gpu(), processes=others, user="me") == ()


def test_utilization_that_a_killed_process_left_behind_is_called_by_its_name() -> None:
    (left,) = found(gpu(LEFT_OVER))
    assert (left.word, left.brief, left.severity) == (GHOST, "GHOST", "warn")
    assert left.why.startswith("100 % busy, no process, idle power (98 W): left over from a killed process")
    for known, word in (
        (Missing("not asked for"), [GHOST]),
        ([process(1, "me", device=1)], [GHOST]),
        ([process(1, "me")], []),
    ):
        assert [f.word for f in health(NOW_NS, gpu(LEFT_OVER), processes=known, user="me")] == word


SECOND = 10**9


def after(seconds: int, *, thermal_share: float, bits: int = 0) -> Throttling:
    """Readings once a second of a counter that grows by this share of the time."""
    seen = Throttling()
    for second in range(seconds + 1):
        counted = int(thermal_share * second * SECOND)
        seen.add(second * SECOND, {"throttle_bits": bits, "throttled_thermal_ns": counted})
    return seen


def test_a_counter_that_creeps_is_never_seen() -> None:
    assert after(300, thermal_share=0.01).slowed.since_s == {}
    assert after(300, thermal_share=0.06).slowed.since_s == {"thermal": 0.0}


def test_the_last_minute_is_counted_apart_from_the_last_five() -> None:
    seen = after(240, thermal_share=0.5)
    assert seen.slowed.last_minute_s == {"thermal": 30.0}
    for second in range(241, 246):
        seen.add(second * SECOND, {"throttled_thermal_ns": 120 * SECOND})
    assert seen.slowed.last_minute_s == {"thermal": 27.5}
    assert seen.slowed.since_s == {"thermal": 5.0}
    for second in range(246, 300):
        seen.add(second * SECOND, {"throttled_thermal_ns": 120 * SECOND})
    assert seen.slowed.last_minute_s == {}
    assert seen.slowed.shares["thermal"] == pytest.approx(120 / 299)


def test_a_reason_that_the_driver_does_not_count_is_added_up() -> None:
    assert after(30, thermal_share=0.0, bits=0x20).slowed.last_minute_s == {"thermal": 30.0}


def test_a_reading_that_comes_twice_counts_once_and_a_clock_that_went_back_begins_anew() -> None:
    seen = Throttling()
    for second in (100, 101, 101):
        seen.add(second * SECOND, {"throttle_bits": 0x20})
    assert seen.slowed.last_minute_s == {"thermal": 1.0}
    seen.add(5 * SECOND, {"throttle_bits": 0})
    assert seen.span_s == 0.0
