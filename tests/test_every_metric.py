"""Every screen and report says the same of a metric: its name, its unit, what fills its chart, its limit."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hand_made import make_run
from journals import GPU_MACHINE, H200
from monitor_samples import SECOND, START, sample

from gputui.document.spans import Line
from gputui.metrics import METRICS, STORED, Metric, charted, limits_of, live_values
from gputui.model.absent import Missing
from gputui.model.machine import Memory
from gputui.model.result import TimeSeries
from gputui.model.serving import ServingRecords
from gputui.model.telemetry import HOST, Value
from gputui.services.compare.evidence import SideCurves, curve_table_of
from gputui.services.results.browser import RunDetail
from gputui.services.runs.device_history import DeviceHistory
from gputui.services.runs.progress import ProgressTracker
from gputui.store.reading import TelemetrySeries
from gputui.tui.monitor.model import MonitorModel
from gputui.tui.monitor.settings import MonitorSettings
from gputui.tui.screens.run_panes import device_charts
from gputui.tui.screens.timeline import TimeWindow, timeline

GIB = 2**30
CONTAINER = replace(
    GPU_MACHINE,
    cpu=replace(GPU_MACHINE.cpu, host_threads=64, usable_threads=4.0),
    memory=Memory(512 * GIB, 16 * GIB, "cgroup", 64 * 2**20),
    gpus=(replace(H200, memory_bytes=80 * GIB, power_limit_w=500.0, power_default_limit_w=700.0),),
)
"""16 of 512 GiB, 4 of 64 threads, a GPU capped at 500 of 700 W that slows at 87 °C."""
LIVE: Mapping[int, Mapping[str, Value]] = {
    0: {
        "power_limit_w": 500.0,
        "power_limit_default_w": 700.0,
        "memory_total_bytes": 80 * GIB,
        "temperature_limit_c": 87.0,
    },
    HOST: {"cpu_limit_cores": 4.0, "memory_total_bytes": 16 * GIB},
}
"""What a live reading of it says of its limits."""
VALUES: Mapping[str, float] = {
    "power_w": 300.0,
    "sm_clock_mhz": 1980.0,
    "temperature_c": 60.0,
    "sm_busy_pct": 90.0,
    "cpu_busy_pct": 350.0,
    "cpu_clock_mhz": 2900.0,
    "load_1min": 3.0,
}
MEMORY = {0: 61.0 * GIB, HOST: 15.9 * GIB}
TOPS = {
    (0, "power"): ("700 W", "300 W"),
    (0, "clock"): ("1.98 GHz", "1.98 GHz"),
    (0, "temperature"): ("87 °C", "60 °C"),
    (0, "memory"): ("80 GiB", "61.0 GiB"),
    (0, "busy"): ("100 %", "90 %"),
    (HOST, "CPU"): ("4 cores", "3.5 cores"),
    (HOST, "clock"): ("2.90 GHz", "2.90 GHz"),
    (HOST, "memory"): ("16 GiB", "15.9 GiB"),
    (HOST, "load"): ("5.00", "3.00"),
}
"""What fills its chart, and its value, with units."""
MARKED = {(0, "power")}
OF_RUNS = [
    pytest.param(device, metric, id=f"{metric.scope} {metric.name}")
    for device in (0, HOST)
    for metric in charted(device)
]


def values_of(device: int) -> dict[str, float]:
    values = {**VALUES, "memory_used_bytes": MEMORY[device]}
    return {metric.key: values[metric.key] for metric in charted(device)}


def texts(lines: Iterable[Line]) -> list[str]:
    return ["".join(span.text for span in line) for line in lines]


def drawn_by_the_monitor(device: int) -> list[str]:
    settings = MonitorSettings(metrics=tuple(one.id for one in charted(0) if one.id), show_processes=False)
    made = MonitorModel(settings)
    for second in range(30):
        now = {**LIVE[device], **values_of(device), "sm_clock_max_mhz": Missing("not told")}
        taken = sample(1 if device == 0 else 0, second, processes=0)
        made.add(
            replace(
                taken,
                host=replace(taken.host, values=now) if device == HOST else taken.host,
                gpus=tuple(replace(gpu, values=now) for gpu in taken.gpus),
            )
        )
    return texts(made.lines(60, 80, START + 29 * SECOND))


def drawn_by_run(device: int) -> list[str]:
    empty, lines = ProgressTracker([]).picture(), []
    for key, value in values_of(device).items():
        history = DeviceHistory(device, values_of(device), 1.0, {key: (value,) * 30})
        progress = replace(empty, machine=CONTAINER, devices=(history,), under_test=device)
        lines += texts(device_charts(progress, 249, 8))
    return lines


def drawn_by_results(device: int) -> list[str]:
    series = (series_of(device),)
    run, loads = make_run(machine=CONTAINER), ServingRecords((), (), ())
    detail = RunDetail(Path("a.db"), run, {}, {}, (), (), series, (), None, (), loads)
    lines = timeline(detail, series, TimeWindow.over_all(series).at(0.9), 60)
    return [line.replace("┃", " ").rstrip() for line in texts(lines)]


def series_of(device: int) -> TelemetrySeries:
    columns = {key: array("d", [value] * 30) for key, value in values_of(device).items()}
    return TelemetrySeries(device, 0, array("q", range(0, 30_000_000, 1_000_000)), columns)


SCREENS: Mapping[str, Callable[[int], list[str]]] = {
    "Monitor": drawn_by_the_monitor,
    "Run": drawn_by_run,
    "Results": drawn_by_results,
}


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize(("device", "metric"), OF_RUNS)
def test_a_chart_has_the_same_name_unit_full_scale_and_limit_on_every_screen(
    screen: str, device: int, metric: Metric
) -> None:
    if screen == "Monitor" and not metric.id:
        assert metric.name in ("clock", "load")  # of the host: they have no chart there
        return
    top, value = TOPS[device, metric.name]
    lines = SCREENS[screen](device)
    place = next(n for n, line in enumerate(lines) if re.match(rf" +{metric.name}  {value}(  |$)", line))
    assert lines[place + 1].lstrip().startswith(f"{top} ")
    rows = lines[place + 1 :]
    end = next(n for n, row in enumerate(rows) if row.lstrip().startswith("0 "))
    assert any("┄" in row for row in rows[: end + 1]) == ((device, metric.name) in MARKED)


@pytest.mark.parametrize(("device", "metric"), OF_RUNS)
def test_a_machine_and_a_live_reading_of_it_give_one_full_scale_and_one_limit(
    device: int, metric: Metric
) -> None:
    of_machine = limits_of(CONTAINER, device)
    assert metric.full_scale(of_machine) == metric.full_scale(LIVE[device])
    assert metric.mark_at(of_machine) == metric.mark_at(LIVE[device])
    assert (metric.mark_at(of_machine) is not None) == ((device, metric.name) in MARKED)


@pytest.mark.parametrize("device", [0, HOST])
def test_compare_calls_a_metric_as_the_screens_do_in_their_units(device: int) -> None:
    shown = charted(device)[:3]
    series = series_of(device)
    curves = {metric.key: series.of(metric.key) for metric in shown}
    side = SideCurves(29.0, (0.0,), device, curves)
    rows = {cells[0]: cells for cells in curve_table_of([("a", side), ("b", side)]).rows}
    for metric in shown:
        value = VALUES.get(metric.key, MEMORY[device])
        assert metric.between(value, value) in rows[metric.name]


def test_every_metric_has_a_unit_a_hue_and_a_line_of_its_own() -> None:
    assert len({(metric.scope, metric.key) for metric in METRICS}) == len(METRICS)
    assert len({metric.id for metric in METRICS if metric.id}) == sum(bool(metric.id) for metric in METRICS)
    for metric in METRICS:
        assert metric.text(1.0)
        assert bool(metric.hue) or not (metric.rank or metric.id)
        assert metric.combine in ("mean", "last", "any")


def test_what_a_file_holds_in_other_units_is_read_in_those_of_a_live_value() -> None:
    assert live_values({"memory_used_mib": 2.0, "power_w": 3.0}) == {
        "memory_used_bytes": 2 * 2**20,
        "power_w": 3.0,
    }
    assert [one.stored.key for one in STORED if one.column] == ["memory_used_mib"]


def test_values_far_beyond_a_limit_are_drawn_to_their_own_scale() -> None:
    cpu = next(metric for metric in METRICS if metric.key == "cpu_busy_pct")
    limits = limits_of(CONTAINER, HOST)
    assert cpu.top(limits, 390.0) == 400.0
    assert cpu.top(limits, 5200.0) == 10_000.0


def test_a_cell_without_a_reading_repeats_the_one_before_only_for_a_while() -> None:
    series = TimeSeries((0.0, 1.0, 2.0, 3.0, 4.0, 9.0), (1.0, 2.0, math.nan, 4.0, 5.0, 6.0))
    assert series.known == [1.0, 2.0, 4.0, 5.0, 6.0]
    assert series.cells(1.0, 10) == [1.0, 2.0, 2.0, 4.0, 5.0, 5.0, 5.0, 5.0, None, 6.0]
    assert series.cells(2.0, 5) == [1.5, 4.0, 5.0, 5.0, 6.0]
    assert series.cells(4.5, 2, max) == [5.0, 6.0]
