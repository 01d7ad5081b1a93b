"""The Timeline of a run: true axes, what was timed when, and the values at its cursor."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from journals import GPU_MACHINE
from stored_runs import run_id_of, store

from gputui.document.drawings import BLOCKS
from gputui.metrics import charted
from gputui.model.telemetry import HOST
from gputui.services.results.browser import RunDetail, read_detail
from gputui.services.support.background import Job
from gputui.store.reading import TelemetrySeries
from gputui.tui.screens.timeline import LEAST_US, TimeWindow, timeline
from gputui.tui.widgets.charts import axis_cells

SIZES = ((80, 24), (120, 40), (200, 50))


def detail_of(db: Path) -> RunDetail:
    return read_detail(db, run_id_of(5), Job(lambda job: None, lambda job, outcome: None))


@pytest.fixture(scope="module")
def on_gpu(tmp_path_factory: pytest.TempPathFactory) -> RunDetail:
    db = tmp_path_factory.mktemp("timeline") / "a.db"
    store(db, 5, machine=GPU_MACHINE, on_gpu=True, seconds=26.0)
    return detail_of(db)


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> RunDetail:
    db = tmp_path_factory.mktemp("timeline") / "a.db"
    store(db, 5, seconds=26.0)
    return detail_of(db)


def sampled(detail: RunDetail, seconds: int, key: str, value_at: Callable[[float], float]) -> RunDetail:
    """The same run, sampled for so long in 400 pieces on GPU 0, where only one metric is known."""
    first_us = detail.run.summary.started_utc_us
    times_s = [place * seconds / 400 for place in range(401)]
    columns = {key: array("d", [value_at(time_s) for time_s in times_s])}
    series = TelemetrySeries(0, first_us, array("q", [first_us + round(s * 1e6) for s in times_s]), columns)
    return replace(detail, series=(series,))


def drawn(detail: RunDetail, window: TimeWindow, size: tuple[int, int]) -> list[str]:
    lines = timeline(detail, detail.series, window, size[0])
    return ["".join(span.text for span in line) for line in lines]


def heights(rows: Sequence[str], name: str, size: tuple[int, int]) -> tuple[list[int], int]:
    """How many eighths of a row each cell of a chart fills, but the cursor's; and how many the chart has."""
    title = next(place for place, row in enumerate(rows) if row.split()[:1] == [name])
    cells = [row[axis_cells(size[0]) :] for row in rows[title + 1 : title + 3]]
    columns = [column for column in zip(*cells, strict=True) if "┃" not in column]
    return [sum(map(BLOCKS.index, column)) for column in columns], 8 * len(cells)


def test_each_lane_has_both_ends_of_its_axis(on_cpu: RunDetail, on_gpu: RunDetail) -> None:
    for detail, device, size in ((on_cpu, HOST, SIZES[0]), (on_gpu, 0, SIZES[0]), (on_gpu, 0, SIZES[2])):
        rows = drawn(detail, TimeWindow.over_all(detail.series, detail.spans), size)
        series = next(one for one in detail.series if one.device_index == device)
        known = [metric.name for metric in charted(device) if series.of(metric.key).known]
        assert len(known) >= 3
        for name in ("speed", *known):
            title = next(place for place, row in enumerate(rows) if row.split()[:1] == [name])
            assert re.match(r" *[\d.]+( \S+)? ", rows[title + 1]), rows[title + 1]
            assert rows[title + 2].split()[:1] == ["0"]


def test_a_temperature_that_hardly_moves_looks_flat_and_a_clock_that_dips_for_two_seconds_of_140_is_seen(
    on_gpu: RunDetail,
) -> None:
    size = SIZES[0]
    detail = sampled(on_gpu, 140, "temperature_c", lambda time_s: 60.0 + time_s // 5 % 4)
    found, whole = heights(drawn(detail, TimeWindow.over_all(detail.series), size), "temperature", size)
    assert max(found) - min(found) <= 0.1 * whole
    assert min(found) > whole / 2, "60 of 87 °C"
    detail = sampled(on_gpu, 140, "sm_clock_mhz", lambda time_s: 1670.0 if 100 <= time_s < 102 else 1980.0)
    found, _ = heights(drawn(detail, TimeWindow.over_all(detail.series), size), "clock", size)
    low = [place for place, height in enumerate(found) if height < max(found)]
    assert 1 <= len(low) <= 2
    assert low[0] / len(found) == pytest.approx(100 / 140, abs=0.03)


def test_a_reading_far_from_the_cursor_is_not_its_value(on_gpu: RunDetail) -> None:
    detail = sampled(on_gpu, 60, "power_w", lambda time_s: 500.0 if time_s >= 30 else float("nan"))
    window = TimeWindow.over_all(detail.series)
    for share, value in ((0.2, "–"), (0.7, "500 W")):
        (row,) = (row for row in drawn(detail, window.at(share), SIZES[0]) if row.split()[:1] == ["power"])
        assert row.split("┃")[0].split()[1:] == value.split()


def test_the_cursor_begins_where_something_was_timed_and_says_what(on_gpu: RunDetail) -> None:
    rows = drawn(on_gpu, TimeWindow.over_all(on_gpu.series, on_gpu.spans), SIZES[1])
    words = r"(matmul|GPT training) [cg]pu fp32, launch \d, block \d of 6: (20\.0|100) ms a step *$"
    assert re.match(rf"cursor [\d.:s ]+   {words}", rows[0])
    assert all("┃" in row for row in rows[4:6])


def test_a_run_that_was_not_sampled_has_a_timeline_of_its_blocks_without_what_held_its_clocks(
    tmp_path: Path,
) -> None:
    store(tmp_path / "a.db", 5, machine=GPU_MACHINE, on_gpu=True, seconds=0.0)
    detail = detail_of(tmp_path / "a.db")
    assert detail.series == ()
    rows = drawn(detail, TimeWindow.over_all((), detail.spans), SIZES[1])
    assert not any(row.startswith("slowed") for row in rows)
    assert any(row.split()[:1] == ["speed"] for row in rows)
    assert "nothing was sampled during this run" in "\n".join(rows)


def test_when_clocks_were_held_back_is_a_line(on_gpu: RunDetail) -> None:
    detail = sampled(on_gpu, 20, "throttle_bits", lambda time_s: {5: 4.0, 12: 0x44}.get(int(time_s), 0.0))
    rows = drawn(detail, TimeWindow.over_all(detail.series), SIZES[0])
    (row,) = (row for row in rows if row.startswith("slowed"))
    assert 6 <= row.count("━") <= 9, "2 s of 20 in 71 cells"


def test_what_was_timed_stands_by_name_or_by_hue_and_what_is_at_the_cursor_stands_out(
    on_gpu: RunDetail,
) -> None:
    window = TimeWindow.over_all(on_gpu.series, on_gpu.spans)
    many = timeline(on_gpu, on_gpu.series, window, 80)[2]
    assert {span.style for span in many[1:] if span.text.strip()} == {
        *("compute 4", "memory 4", "accent selected")
    }
    alone = timeline(on_gpu, on_gpu.series, window.over(on_gpu.spans[0]), 80)[2]
    assert "".join(span.text for span in alone).split() == ["case", "matmul"]
    assert {span.style for span in alone[1:] if span.text.strip()} == {"accent selected"}


def test_what_was_timed_before_the_part_that_is_shown_is_not_drawn_at_its_edge(on_gpu: RunDetail) -> None:
    window = TimeWindow.over_all(on_gpu.series, on_gpu.spans)
    pause_us = on_gpu.spans[0].last_utc_us + 200_000
    between = replace(window, from_us=pause_us, to_us=pause_us + LEAST_US, cursor_us=pause_us)
    lines = timeline(on_gpu, on_gpu.series, between, 120)
    assert "".join(span.text for span in lines[2][1:]).strip() == ""
