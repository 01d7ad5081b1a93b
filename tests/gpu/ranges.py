"""Every figure of result files against its plausible range.

Peak tests against what such GPUs reach elsewhere (facts/plausible.csv); each workload's FLOP/s and B/s
against the data sheet and the peak tests measured beside it; power and heat against their limits.
Ends with 1 if anything is out of range.

    python tests/gpu/ranges.py bakeoff.db llm.db
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from gputui.analysis.peak_tests import ABOVE_LIMIT, BELOW_NORMAL
from gputui.analysis.verdict import SpeedEstimate
from gputui.model.absent import Missing
from gputui.model.machine import Gpu
from gputui.model.result import Run
from gputui.model.units import format_percent, format_rate
from gputui.services.results.expected import performance_checks, uses_of
from gputui.services.results.throughput import speed_of
from gputui.store.reading import DeviceTelemetry, open_result

OVER_MEASURED = 1.15
"""Times a peak test of the same run: a workload that does more was counted or timed wrongly."""
OVER_LIMIT = 1.1
"""Times the power limit: the driver averages."""
HOT_C = 95.0


def main() -> int:
    faults: list[str] = []
    for db in map(Path, sys.argv[1:]):
        with open_result(db) as result:
            for summary in result.summaries():
                run = result.run(summary.run_id)
                print(f"{db.name} {summary.short_id} {summary.profile}")
                telemetry = result.telemetry_summary(summary.run_id).devices
                faults += [*_peak_tests(run), *_uses(run), *_outcomes(run), *_devices(run, telemetry)]
    print(f"\n{len(faults)} out of range" if faults else "\nnothing is out of range")
    for fault in faults:
        print(f"  {fault}")
    return 1 if faults else 0


def _peak_tests(run: Run) -> Iterator[str]:
    for check in performance_checks(run):
        for test in check.peak_tests:
            expected = test.expectation
            known = "no figure is known"
            if expected is not None:
                high = expected.measured_high or expected.measured_low
                limit = format_rate(expected.suspicious_above, test.unit)
                known = (
                    f"elsewhere {format_rate(expected.measured_low, test.unit)} to"
                    f" {format_rate(high, test.unit)}, limit {limit}"
                )
            line = f"{test.label}: {format_rate(test.units_per_s, test.unit)}, {known}: {test.word}"
            print(f"  {line}")
            if test.word in (ABOVE_LIMIT, BELOW_NORMAL):
                yield line


def _uses(run: Run) -> Iterator[str]:
    for case in run.cases:
        speed = speed_of(case)
        if not isinstance(speed, SpeedEstimate):
            continue
        parts = []
        for use in uses_of(case, run.cases, run.summary.machine):
            sheet, measured = use.of_sheet, use.of_measured
            shares = [
                f"{format_percent(share)} of {what}"
                for share, what in ((sheet, "the data sheet"), (measured, "the peak test"))
                if not isinstance(share, Missing)
            ]
            parts.append(f"{format_rate(use.per_s, use.unit)} ({', '.join(shares) or 'no peak known'})")
            if use.is_impossible or (not isinstance(measured, Missing) and measured > OVER_MEASURED):
                yield f"{case.case.name}: {parts[-1]}"
        rate = format_rate(speed.units_per_s, case.case.unit)
        interval = f"{speed.low / speed.units_per_s - 1:+.1%} to {speed.high / speed.units_per_s - 1:+.1%}"
        print(f"  {case.case.name}: {rate}, {interval}; {'; '.join(parts)}")


def _outcomes(run: Run) -> Iterator[str]:
    for case in run.cases:
        if case.outcome in ("failed", "crashed", "hung"):
            yield f"{case.case.name}: {case.outcome}: {case.reason}"
        elif case.outcome != "ok":
            print(f"  {case.case.name}: {case.outcome}: {case.reason}")


def _devices(run: Run, telemetry: tuple[DeviceTelemetry, ...]) -> Iterator[str]:
    gpus = {gpu.index: gpu for gpu in run.summary.machine.gpus}
    for device in telemetry:
        gpu = gpus.get(device.device_index)
        print(
            f"  GPU {device.device_index}: {device.samples} samples, power {device.power_median_w} W median,"
            f" {device.power_max_w} W at most; at most {device.temperature_max_c} °C; clock"
            f" {device.sm_clock_median_mhz} MHz; slowed {device.slowed_share} of the time, capped"
            f" {device.power_capped_share}"
        )
        if gpu is not None:
            yield from _limits(gpu, device)


def _limits(gpu: Gpu, device: DeviceTelemetry) -> Iterator[str]:
    limit, most, warmest = gpu.power_limit_w, device.power_max_w, device.temperature_max_c
    if not isinstance(limit, Missing) and not isinstance(most, Missing) and most > OVER_LIMIT * limit:
        yield f"GPU {gpu.index}: drew {most:.0f} W, its limit is {limit:.0f} W"
    if not isinstance(warmest, Missing) and warmest > HOT_C:
        yield f"GPU {gpu.index}: {warmest:.0f} °C"


if __name__ == "__main__":
    sys.exit(main())
