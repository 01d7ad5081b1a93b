"""Cells, history, charts, layout and settings of the Monitor screen."""

from __future__ import annotations

import itertools
import os
import random
import sys
from copy import deepcopy
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from monitor_samples import START, sample
from rich.cells import cell_len

from gputui.document.drawings import gauge, level_of
from gputui.document.spans import Line, Span, cut, line_width, width_of
from gputui.errors import GputuiError
from gputui.metrics import memory_of, round_ceiling, with_unit
from gputui.services.support.paths import monitor_file
from gputui.tui.monitor.history import RINGS, Chart, History, LoadLevel, Series, SteadyLoads
from gputui.tui.monitor.layout import NOWHERE, Rect, laid_out
from gputui.tui.monitor.model import MonitorModel
from gputui.tui.monitor.settings import OF_GPUS, MonitorSettings, load_settings, save_settings
from gputui.tui.widgets.cells import (
    _fitted,
    clean,
    ends_of,
    fitted,
    in_ascii,
    left,
    right,
    ruled,
    text_in_ascii,
    wrapped,
)
from gputui.tui.widgets.charts import (
    area,
)

SECOND = 1_000_000_000
MINUTE = 60 * SECOND


# Cells


@given(st.text(max_size=60))
def test_cleaned_text_has_nothing_that_a_terminal_obeys(text: str) -> None:
    cleaned = clean(text)
    assert all(one.isprintable() or one == " " for one in cleaned)
    assert all(cell_len(one) in (1, 2) for one in cleaned)
    assert cell_len(cleaned) == sum(cell_len(one) for one in cleaned)


@given(st.text(max_size=40), st.integers(0, 50))
def test_cut_and_filled_text_has_exactly_its_width(text: str, width: int) -> None:
    cleaned = clean(text)
    assert width_of(cut(cleaned, width)) <= width
    assert width_of(left(cleaned, width)) == width
    assert width_of(right(cleaned, width)) == width


@given(
    st.lists(st.tuples(st.text(max_size=20), st.sampled_from(["", "dim", "warn"])), max_size=6),
    st.integers(0, 60),
)
def test_lines_have_the_requested_width_and_adjacent_spans_of_one_style_are_merged(
    parts: list[tuple[str, str]], width: int
) -> None:
    spans = [Span(clean(text), style) for text, style in parts]
    line = fitted(spans, width)
    assert line_width(line) == width
    assert all(one.style != other.style for one, other in itertools.pairwise(line))
    assert line_width(ruled(spans, width)) == width


def test_a_number_stays_with_its_unit_where_a_sentence_is_broken() -> None:
    assert wrapped("about 3 min · $24.00/h", 9, 4) == ["about", "3 min ·", "$24.00/h"]
    assert wrapped("busy for 98 % of it", 12, 4) == ["busy for", "98 % of it"]
    assert wrapped("3 hosts 5 minutes", 8, 4) == ["3 hosts", "5", "minutes"]


def test_what_is_cut_off_is_marked() -> None:
    assert cut("python train.py", 8) == "python …"
    assert cut("漢字漢字", 6) == "漢字…"
    assert left("漢字漢字", 4) == "漢… "
    assert ends_of("v100_resnet50_loader0", 14) == "v100_re…oader0"
    assert ends_of("short", 14) == "short"
    for width in range(24):
        assert width_of(ends_of("日本語_resnet50_日本0", width)) <= width


# History


def test_rings_stay_as_large_as_they_were_made() -> None:
    series = Series()
    size = sum(sys.getsizeof(getattr(ring, name)) for ring in series.rings for name in ("_mean", "_numbers"))
    for second in range(20_000):
        series.add(second * SECOND, float(second % 100), 3 * SECOND)
    assert size == sum(
        sys.getsizeof(getattr(ring, name)) for ring in series.rings for name in ("_mean", "_numbers")
    )
    assert [ring.kept for ring in series.rings] == [kept for _, kept in RINGS]


def test_an_hour_is_reached_by_the_coarsest_ring() -> None:
    series = Series()
    for second in range(5000):
        series.add(second * SECOND, 10.0 if second < 2500 else 90.0, 3 * SECOND)
    for minutes in (1, 5, 30, 60):
        ring = series.ring_for(minutes * MINUTE)
        assert ring.length_ns * ring.kept >= minutes * MINUTE
    old = series.ring_for(60 * MINUTE).over(1500 * SECOND, 1600 * SECOND)
    new = series.ring_for(MINUTE).over(4900 * SECOND, 4990 * SECOND)
    assert old is not None
    assert new is not None
    assert (old[0], new[0]) == (10.0, 90.0)


def test_a_gap_is_not_bridged_and_a_slow_interval_is() -> None:
    series = Series()
    series.add(0, 1.0, 25 * SECOND)
    series.add(10 * SECOND, 2.0, 25 * SECOND)
    bridged = series.ring_for(MINUTE).over(4 * SECOND, 5 * SECOND)
    assert bridged is not None
    assert bridged[0] == 2.0
    series.gap()
    series.add(20 * SECOND, 3.0, 25 * SECOND)
    assert series.ring_for(MINUTE).over(14 * SECOND, 15 * SECOND) is None


def test_a_bucket_keeps_mean_and_greatest() -> None:
    series = Series()
    for tenth, value in enumerate((10.0, 90.0, 20.0)):
        series.add(5 * SECOND + tenth * SECOND // 10, value, 0)
    bucket = series.ring_for(MINUTE).over(5 * SECOND, 6 * SECOND)
    assert bucket == (40.0, 90.0)


def test_a_copy_does_not_change_with_the_original() -> None:
    history = History()
    history.add(0, SECOND, {"busy": 50.0}, 0)
    twin = deepcopy(history)
    history.add(0, 2 * SECOND, {"busy": 99.0}, 0)
    series = twin.series(0, "busy")
    assert series is not None
    assert series.last_ns == SECOND
    assert series.ring_for(MINUTE).over(2 * SECOND, 3 * SECOND) is None


def test_no_number_is_a_gap() -> None:
    history = History()
    history.add(0, SECOND, {"busy": float("nan")}, 0)
    assert history.series(0, "busy") is None
    history.add(0, 2 * SECOND, {"busy": 1.0}, 0)
    history.add(0, 3 * SECOND, {"busy": None}, 0)
    series = history.series(0, "busy")
    assert series is not None
    assert series.last_ns is None


# Charts


def test_levels_fill_from_below_and_zero_has_a_dot() -> None:
    assert [level_of(value, 100, 4) for value in (0, 0.9, 1, 50, 100, 250)] == [1, 1, 2, 2, 4, 4]
    assert level_of(5, 0, 4) == 1


@settings(max_examples=60)
@given(
    st.integers(1, 100),
    st.integers(1, 4),
    st.sampled_from([1, 2, 5, 10, 30, 60]),
    st.lists(st.floats(0, 200), min_size=1, max_size=60),
    st.integers(0, 5 * SECOND),
)
@example(width=96, rows=1, minutes=1, values=[0.0, 0.0], late_ns=624_999_999)  # a cell ends a nanosecond late
def test_charts_have_their_size_and_a_cached_one_is_what_a_fresh_one_is(
    width: int, rows: int, minutes: int, values: list[float], late_ns: int
) -> None:
    series = Series()
    kept = Chart(width, rows, minutes * MINUTE, late_ns)
    for number, value in enumerate(values):
        now = 10_000 * SECOND + number * SECOND
        series.add(now, value, 3 * SECOND)
        drawn = kept.draw(series, now, 100.0)
        assert [cell_len(row) for row in drawn] == [width] * rows
        assert drawn == Chart(width, rows, minutes * MINUTE, late_ns).draw(series, now, 100.0)
        assert kept.draw(series, now, 100.0) is drawn


def test_a_short_chart_moves_often_but_not_as_a_row_of_a_table() -> None:
    moved = {}
    for rows in (1, 2):
        series, chart, pictures = Series(), Chart(10, rows, 20 * SECOND), []
        for second in range(10_000, 10_020):
            series.add(second * SECOND, float(second % 7 * 10), 3 * SECOND)
            if second >= 10_010:
                pictures.append(chart.draw(series, second * SECOND, 100.0))
        moved[rows] = sum(one != other for one, other in itertools.pairwise(pictures))
    assert moved[1] < 4 <= moved[2]


def test_gauges_stay_in_their_room() -> None:
    assert gauge(50, 100, 10) == ("━━━━━", "─────")
    assert gauge(45, 100, 10) == ("━━━━╸", "─────")
    assert gauge(250, 100, 10) == ("━" * 10, "")
    assert gauge(5, 0, 10) == ("", "┄" * 10)
    assert gauge(None, 100, 4) == ("", "┄┄┄┄")
    assert text_in_ascii("".join(gauge(45, 100, 10))) == "=====-----"


def test_an_area_rises_from_below_and_leaves_an_eighth_free_at_its_top() -> None:
    assert area((0, 50, 100, 250, None), 100) == ("▁▄▇▇ ",)
    assert area((0, 50, 100), 100, rows=2) == ("  ▇", "▁██")
    assert area((0, 0.4, 2, 12), 100) == ("▁▁▂▂",), "something looks like more than nothing"
    assert text_in_ascii("▁▂▃▄▅▆▇█") == ".,:;+x*#"


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("107 GFLOP/s   ±0.1 %  20 ms", "107 GFLOP/s  +-0.1 %  20 ms"),
        ("too near to ±1 % to tell  │", "too near to +-1 % to tell |"),
        ("too near to ±1 % to tell│  ", "too near to +-1% to tell|  "),
        ("a ±1 %, b ±2 %", "a +-1%, b +-2%"),
        ("took 1 ±2 s", "took 1+-2 s"),
        ("64 °C slows at 71 °C, a ±2", "64 C  slows at 71  C, a+-2"),
        ("±2", "~2"),
    ],
)
def test_an_interval_takes_a_blank_for_its_sign_in_ascii(text: str, plain: str) -> None:
    assert text_in_ascii(text) == plain
    at = text.index("±")
    line = in_ascii((Span(text[:at], "dim"), Span(text[at:], "")))
    assert "".join(span.text for span in line) == plain


def test_a_load_changes_its_step_when_it_lasts_or_is_clear() -> None:
    loads = SteadyLoads()

    def steps(*values: float, start: int) -> list[LoadLevel]:
        return [
            loads.at("memory", value, (start + second) * SECOND, limit_from=90.0)
            for second, value in enumerate(values)
        ]

    assert steps(80, 89, 91, 89, 91, 91, 91, start=0) == [LoadLevel.WORKING] * 7
    assert steps(91, start=7) == [LoadLevel.NEAR_LIMIT]  # for three seconds
    assert steps(89, 87, start=8) == [LoadLevel.NEAR_LIMIT, LoadLevel.WORKING]  # clearly below
    assert steps(93, start=10) == [LoadLevel.NEAR_LIMIT]
    assert steps(4.5, start=11) == [LoadLevel.NEAR_LIMIT]
    assert steps(2.5, start=12) == [LoadLevel.IDLE]
    assert [LoadLevel(step).style("memory") for step in range(4)] == ["dim", "memory", "warn", "alarm"]


def test_a_gauge_follows_its_figure_by_whole_cells_and_shows_half_cells_once_it_is_calm() -> None:
    loads = SteadyLoads()

    def shown(figure: float | None, second: float) -> str:
        return "".join(loads.gauge("memory", figure, 100.0, 10, int(second * SECOND)))

    assert shown(45.0, 0) == "━━━━╸─────"
    assert shown(85.0, 1) == "━━━━━━━━──"
    assert shown(20.0, 2) == "━━────────"
    assert shown(15.0, 3) == shown(15.0, 6.9) == "━━────────"  # half a cell off
    assert shown(15.0, 7) == "━╸────────"
    assert shown(20.0, 8) == "━╸────────"
    assert shown(100.0, 9) == "━" * 10
    assert shown(0.0, 10) == "─" * 10
    assert shown(None, 11) == "┄" * 10
    assert shown(45.0, 12) == "━━━━╸─────"
    assert shown(60.0, 2) == "━━━━━━────"  # a replay that went back
    assert "".join(loads.gauge("memory", 55.0, 100.0, 20, 13 * SECOND)) == "━" * 11 + "─" * 9


def test_a_gauge_of_a_narrow_screen_follows_a_jumping_figure_every_two_seconds_or_at_once_if_far_off() -> (
    None
):
    loads = SteadyLoads()
    loads.gauges_rest = True
    figures = [20.0, 20.0, 60.0, 20.0, 60.0, 20.0, 80.0, 10.0, 40.0, 40.0]
    shown = [len(loads.gauge("busy", one, 100.0, 10, n * SECOND)[0]) for n, one in enumerate(figures)]
    assert shown == [2, 2, 6, 6, 6, 2, 8, 1, 1, 4]


@pytest.mark.parametrize("width", [6, 10, 16])
def test_a_gauge_is_never_more_than_half_a_cell_off(width: int) -> None:
    loads, chance = SteadyLoads(), random.Random(width)
    for second in range(300):
        figure = chance.uniform(0, 100) if chance.random() < 0.5 else 50 + second % 7
        filled_part, rest = loads.gauge("busy", figure, 100.0, width, second * SECOND)
        exactly, _ = gauge(figure, 100.0, width)
        assert abs(_halves(filled_part) - _halves(exactly)) <= 1
        assert len(filled_part + rest) == width


def _halves(filled_part: str) -> int:
    return 2 * len(filled_part) - filled_part.count("╸")


@pytest.mark.parametrize(("value", "top"), [(0, 1), (3, 5), (5, 5), (5.1, 10), (1e9, 1e9), (1.1e9, 2e9)])
def test_charts_without_a_limit_end_at_a_round_number(value: float, top: float) -> None:
    assert round_ceiling(value) == pytest.approx(top)


def test_amounts_are_short_and_have_their_unit() -> None:
    assert with_unit(120 * 2**30, "B") == "120.0 GiB"
    assert with_unit(None, "B") == "–"
    assert memory_of(2**30, 4 * 2**30) == "1.0 of 4.0 GiB"
    assert memory_of(922 * 2**20, 140.4 * 2**30) == "0.9 of 140.4 GiB"
    assert memory_of(2**20, 4 * 2**30) == "<0.1 of 4.0 GiB"
    assert memory_of(0, 4 * 2**30) == "0.0 of 4.0 GiB"
    assert memory_of(230 * 2**30, 2**40) == "230.0 GiB of 1.00 TiB"
    assert memory_of(2**20, 2**29) == "1 of 512 MiB"
    assert (with_unit(1980, "MHz"), with_unit(345, "MHz")) == ("1.98 GHz", "345 MHz")
    assert with_unit(100, "°C") == "100 °C"


# Layout


def overlap(one: Rect, other: Rect) -> bool:
    return one.x < other.right and other.x < one.right and one.y < other.bottom and other.y < one.bottom


@settings(max_examples=300)
@given(
    st.integers(40, 300),
    st.integers(8, 100),
    st.lists(st.integers(0, 7), max_size=100),
    st.booleans(),
    st.none() | st.integers(0, 60),
)
def test_boxes_lie_inside_and_do_not_overlap(
    width: int, height: int, instances: list[int], with_lower: bool, processes: int | None
) -> None:
    layout = laid_out(width, height, tuple(instances), with_lower=with_lower, processes=processes)
    boxes = [*layout.gpus, layout.list, layout.host, layout.detail, layout.lower]
    boxes = [box for box in boxes if box != NOWHERE]
    for place, box in enumerate(boxes):
        assert box.x >= 0
        assert box.y >= 0
        assert box.width > 0
        assert box.height > 0
        assert box.right <= width
        assert box.bottom <= height
        assert not any(overlap(box, other) for other in boxes[place + 1 :])
    if layout.form in ("single", "cards"):
        assert len(layout.gpus) == len(instances)
        assert not any(instances)
        assert len({(box.width, box.height) for box in layout.gpus}) == 1
    if not with_lower:
        assert layout.lower == NOWHERE


@pytest.mark.parametrize(
    ("count", "size", "form"),
    [
        (0, (80, 22), "none"),
        (1, (80, 21), "single"),
        (4, (80, 21), "rows"),
        (8, (80, 21), "rows"),
        (2, (109, 37), "rows"),
        (2, (110, 37), "cards"),
        (3, (120, 37), "cards"),
        (4, (120, 37), "cards"),
        (5, (120, 37), "rows"),
        (8, (120, 37), "rows"),
        (8, (200, 47), "cards"),
        (16, (200, 47), "rows"),
        (72, (200, 47), "rows"),
        (1, (40, 7), "single"),
    ],
)
def test_the_form_follows_from_count_and_size(count: int, size: tuple[int, int], form: str) -> None:
    assert laid_out(*size, (0,) * count).form == form


@pytest.mark.parametrize("size", [(120, 36), (200, 46)])
@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_rows_that_few_processes_do_not_need_go_to_the_charts(count: int, size: tuple[int, int]) -> None:
    many, few = (laid_out(*size, (0,) * count, processes=processes) for processes in (40, 2))
    assert few.form == many.form
    assert 5 <= few.lower.height <= 8 < many.lower.height
    for one, other in ((few.gpus, many.gpus), ((few.detail,), (many.detail,))):
        assert all(tall.height >= low.height for tall, low in zip(one, other, strict=True))
    assert laid_out(*size, (0,) * count, processes=3) == few
    small, crowded = (laid_out(80, 22, (0,) * count, processes=number) for number in (2, 40))
    assert small.lower.height <= crowded.lower.height
    assert small.form == "single" or (small.detail.height >= 7) == (count < 8)


# Settings


def test_settings_come_back_as_they_were_kept(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "monitor.toml"
    kept = MonitorSettings(
        interval_s=0.2,
        zoom_min=30,
        metrics=("power", "busy"),
        show_processes=False,
        sort="cpu",
        descending=False,
        questions=False,
        palette=("5\tDoctor", '\trun 12345678 quick "a\\b" 温度'),
    )
    save_settings(path, kept)
    assert load_settings(path) == (kept, "")
    assert [file.name for file in path.parent.iterdir()] == ["monitor.toml"]


def test_settings_lie_in_the_users_config_directory() -> None:
    assert monitor_file({"XDG_CONFIG_HOME": "/x"}) == Path("/x/gputui/monitor.toml")
    assert monitor_file({"HOME": "/home/ana"}) == Path("/home/ana/.config/gputui/monitor.toml")
    assert monitor_file({"HOME": "/home/ana", "XDG_CONFIG_HOME": "relative"}).parts[1] == "home"


@pytest.mark.parametrize(
    "content", [b"interval_s = ", b"\xff\xfe\x00", b"\x00" * 100, b"[" * 100_000, b"=" * 90_000]
)
def test_a_damaged_file_means_defaults_and_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "monitor.toml"
    path.write_bytes(content)
    kept, message = load_settings(path)
    assert kept == MonitorSettings()
    assert "monitor.toml" in message
    assert "damaged" in message


def test_what_is_out_of_range_is_left_out_and_named_and_the_rest_is_used(tmp_path: Path) -> None:
    path = tmp_path / "monitor.toml"
    path.write_text(
        'interval_s = 99\nzoom_min = true\nsort = "cpu"\nmetrics = ["busy", "nonsense"]\n'
        'theme = "parsec"\nnotify = 1\ncolour = "red"\n',
        encoding="utf-8",
    )
    assert load_settings(tmp_path / "none.toml") == (MonitorSettings(), "")
    kept, message = load_settings(path)
    assert kept == MonitorSettings(sort="cpu")
    for name in ("interval_s", "zoom_min", "metrics", "theme", "notify", "colour"):
        assert name in message


def test_a_directory_that_cannot_be_written_is_reported_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(GputuiError) as raised:
        save_settings(tmp_path / "file" / "monitor.toml", MonitorSettings())
    assert "XDG_CONFIG_HOME" in str(raised.value.hint)


def test_a_failing_write_leaves_the_old_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "monitor.toml"
    save_settings(path, MonitorSettings(zoom_min=5))

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(GputuiError):
        save_settings(path, MonitorSettings(zoom_min=60))
    assert load_settings(path)[0].zoom_min == 5
    assert [file.name for file in tmp_path.iterdir()] == ["monitor.toml"]


def test_the_docs_name_every_setting_and_every_metric(repository: Path) -> None:
    text = (repository / "docs" / "monitor.md").read_text(encoding="utf-8")
    rows = [f"- `{field.name}`: " for field in fields(MonitorSettings)]
    rows += [f"- `{metric.id}`: {metric.title};" for metric in OF_GPUS]
    assert [row for row in rows if row not in text] == []


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
def test_new_samples_that_look_the_same_change_no_line_and_lay_out_none(size: tuple[int, int]) -> None:
    made = MonitorModel(MonitorSettings())
    still = sample(8)
    pictures, laid = [], []
    _fitted.cache_clear()
    for second in range(330):  # charts show five minutes
        t_ns = START + second * SECOND
        power_w = 300.1 + second / 1000
        gpus = tuple(replace(gpu, t_ns=t_ns, values={**gpu.values, "power_w": power_w}) for gpu in still.gpus)
        made.add(replace(still, t_ns=t_ns, gpus=gpus, host=replace(still.host, t_ns=t_ns)))
        if second >= 310:
            before = _fitted.cache_info().misses
            pictures.append(made.lines(*size, t_ns))
            laid.append(_fitted.cache_info().misses - before)
    changed = [sum(a is not b for a, b in zip(old, new, strict=True)) for old, new in pairwise(pictures)]
    assert changed == [0] * 19
    assert laid[0] > 15
    assert max(laid[1:]) == 0


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ((Span("825 GFLOP/s"), Span("    ±1 %")), "825 GFLOP/s   +-1 %"),
        ((Span("812 k seq/s ±1 %"), Span("  "), Span("busy  ", "warn")), "812 k seq/s +-1 % busy  "),
        ((Span("±0.1 % in this launch "),), "+-0.1 % in this launch"),
        ((Span("412 µs ±1 %"),), "412 us +-1%"),
        ((Span(" enough: ±1 % ", "dim"), Span("──", "track")), " enough: +-1% --"),
    ],
)
def test_in_ascii_plus_or_minus_takes_a_blank_beside_it(line: Line, shown: str) -> None:
    drawn = in_ascii(line)
    assert "".join(span.text for span in drawn) == shown
    assert [span.style for span in drawn] == [span.style for span in line]
