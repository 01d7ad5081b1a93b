"""Pictures of the Monitor screen as text, and properties of all of them."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from monitor_golden import FOLDER, faulty, model, pictures
from monitor_samples import HOST, SECOND, START, process, sample, text_of, with_instances
from rich.cells import cell_len
from rich.text import Text

from gputui.document.spans import Line, line_width
from gputui.document.theme import STYLES
from gputui.model.absent import Missing
from gputui.model.telemetry import Value
from gputui.tui.monitor.model import MonitorModel
from gputui.tui.monitor.settings import MonitorSettings
from gputui.tui.monitor.status import ACTIONS


@cache
def drawn() -> dict[str, str]:
    return dict(pictures())


def names() -> list[str]:
    return sorted(path.name for path in FOLDER.glob("monitor_*.txt"))


@pytest.mark.parametrize("name", names())
def test_pictures_are_those_that_were_looked_at(name: str) -> None:
    assert drawn()[name] == (FOLDER / name).read_text(encoding="utf-8"), (
        "python tests/makers/goldens.py makes it anew; look at it"
    )


def test_every_picture_was_looked_at() -> None:
    assert sorted(drawn()) == names()


def test_pictures_have_their_size_in_every_line() -> None:
    for name, text in drawn().items():
        width, height = map(int, name.removesuffix(".txt").rpartition("_")[2].split("x"))
        lines = text.splitlines()
        assert len(lines) == height, name
        assert {cell_len(line) for line in lines} == {width}, name


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_all_gpus_are_visible_at_80_by_24_and_hidden_processes_counted(count: int) -> None:
    text = drawn().get(f"monitor_{count}gpus_80x24.txt") or text_of(
        model(lambda second: sample(count, second, processes=40), seconds=2).lines(80, 24, START)
    )
    lines = text.splitlines()
    assert f"{count}x H200 SXM" in lines[1]
    for device in range(count if count > 1 else 0):
        assert any(line.startswith(f"  {device} ") for line in lines)
    below = int(lines[-1].partition(" more ▼")[0].rpartition(" ")[2])
    rows = [line for line in lines if (line[:7].strip().isdigit() and " ana " in line) or " bela " in line]
    assert below + len(rows) == (12 if count < 3 else 40)


def exact(lines: tuple[Line, ...], width: int, height: int) -> None:
    assert len(lines) == height
    for line in lines:
        assert line_width(line) == max(width, 0)
        whole = "".join(span.text for span in line)
        assert cell_len(whole) == max(width, 0)
        assert Text(whole).cell_len == max(width, 0)
        assert {span.style for span in line} <= set(STYLES)
        assert all(character.isprintable() or character == " " for character in whole)


HOSTILE = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "\x1b[2J\x1b]0;owned\x07",
            "[bold red]not markup[/]",
            "line\nbreak\r\ttab",
            "\u202eevil\u202c\u2066x",
            "漢字の名前" * 30,
            "👩‍🚀🇩🇪👍🏽❤️",
            "e\u0301" * 10,
            "\udcff\udcfe bad utf-8",
            "\u0000\u0085\u2028\ufeff\U000e0041",
            "각\u1100\u1161ﷺ",
            "x" * 3000,
            "",
        ]
    ),
)
KEYS = st.sampled_from([action.id for action in ACTIONS])


@settings(max_examples=40, deadline=None)
@given(
    width=st.integers(0, 260),
    height=st.integers(0, 70),
    count=st.integers(0, 40),
    processes=st.integers(0, 30),
    name=HOSTILE,
    keys=st.lists(KEYS, max_size=8),
    ascii_only=st.booleans(),
    instances=st.integers(0, 7),
)
def test_every_line_has_exactly_the_requested_width(
    width: int,
    height: int,
    count: int,
    processes: int,
    name: str,
    keys: list[str],
    ascii_only: bool,
    instances: int,
) -> None:
    made = MonitorModel(
        MonitorSettings(), usd_per_hour=3.0, ascii_only=ascii_only, title=name, now=lambda: START
    )
    changes = {device: {"name": name, "uuid": name} for device in (*range(count), HOST)}
    for second in range(2):
        one = sample(count, float(second), processes=0, changes=changes)
        if count and instances:
            one = with_instances(one, count - 1, instances)
        members = [process(number, max(count, 1)) for number in range(processes)]
        renamed = tuple(
            type(member)(
                member.pid,
                member.uses,
                member.parent_pid,
                name,
                name,
                member.cpu_pct,
                member.memory_bytes,
                member.elapsed_s,
                member.start_ticks,
            )
            for member in members
        )
        made.add(type(one)(one.number, one.t_ns, one.host, one.gpus, renamed, one.absent))
    exact(made.lines(width, height, START + SECOND), width, height)
    for key in keys:
        made.press(key)
        made.type(name)
        made.click(width // 2, height // 2)
        lines = made.lines(width, height, START + SECOND)
        exact(lines, width, height)
        if ascii_only:
            assert all(span.text.isascii() for line in lines for span in line)


@pytest.mark.parametrize("gpus", [2, 4, 8, 72])
def test_the_summary_counts_the_gpus_to_check_at_every_width(gpus: int) -> None:
    made = model(lambda second: sample(gpus, second), seconds=20)
    for width in (60, 80, 100, 140):
        summary = text_of(made.lines(width, 24, START + 20 * SECOND)[1:2])
        assert " problem" in summary
        assert "…" not in summary


def test_below_40_by_10_there_is_one_sentence() -> None:
    made = model(lambda second: sample(8, second), seconds=1)
    for width, height in ((39, 24), (80, 9), (12, 12)):
        text = " ".join(text_of(made.lines(width, height, START)).split())
        assert "gputui needs 40x10 cells" in text
    assert made.lines(0, 0, START) == ()
    assert "H200" in text_of(made.lines(80, 24, START))


def test_before_the_first_sample_the_screen_says_that_it_waits() -> None:
    made = MonitorModel(MonitorSettings(), title="here")
    assert "waiting for the first reading" in text_of(made.lines(80, 24, START))


def test_in_ascii_no_character_is_beyond_it() -> None:
    made = model(faulty, ascii_only=True)
    for width, height in ((40, 10), (80, 24), (120, 40), (200, 50)):
        for key in ("next-gpu", "details", "details", "metrics", "metrics", "down", "end", "back"):
            made.press(key)
            assert text_of(made.lines(width, height, START + 90 * SECOND)).isascii()


def test_unchanged_lines_are_the_same_objects() -> None:
    made = model(lambda second: sample(8, second, processes=40))
    first = made.lines(120, 40, START + 90 * SECOND)
    assert made.lines(120, 40, START + 90 * SECOND) is first
    still = sample(8, 90.0, processes=40, number=99)
    made.add(still)
    second = made.lines(120, 40, START + 90 * SECOND)
    assert all(one is other for one, other in zip(first, second, strict=True))
    made.press("down")
    third = made.lines(120, 40, START + 90 * SECOND)
    changed = [row for row, (one, other) in enumerate(zip(first, third, strict=True)) if one is not other]
    assert len(changed) == 1


def test_time_alone_changes_nothing_while_samples_are_fresh() -> None:
    made = model(lambda second: sample(8, second, processes=40))
    first = made.lines(80, 24, START + 90 * SECOND)
    later = made.lines(80, 24, START + 90 * SECOND + 400_000_000)
    assert sum(one is not other for one, other in zip(first, later, strict=True)) == 0


def test_a_paused_picture_keeps_its_content_while_samples_go_on() -> None:
    clock = [START + 90 * SECOND]
    made = MonitorModel(MonitorSettings(zoom_min=5), usd_per_hour=2.0, now=lambda: clock[0])
    for second in range(91):
        made.add(sample(4, float(second)))
    before = text_of(made.lines(120, 40, clock[0]))
    made.press("pause")
    paused = text_of(made.lines(120, 40, clock[0]))
    assert "PAUSED" in paused
    assert paused.splitlines()[1:] == before.splitlines()[1:]
    for second in range(91, 800):
        made.add(sample(4, float(second)))
    clock[0] = START + 800 * SECOND
    assert text_of(made.lines(120, 40, clock[0])) == paused
    made.press("pause")
    after = text_of(made.lines(120, 40, clock[0]))
    assert "PAUSED" not in after
    assert "13 min" in after


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
def test_without_colours_every_state_still_has_its_word(size: tuple[int, int]) -> None:
    text = text_of(model(faulty).lines(*size, START + 90 * SECOND))
    for word in ("THERMAL", "LOST", "STALE 7 s", "SHARED", "1 LOST", "1 SILENT", "unused"):
        assert word in text
    lines = model(lambda second: sample(8, second)).lines(*size, START + 90 * SECOND)
    words = ("POWER-CAPPED", "PCIe x4 of x16", "ECC", "SHARED", "unused", "problem", "1 ", "W")
    for line in lines:
        hot = [span.text.strip() for span in line if span.style in ("warn", "alarm") and span.text.strip()]
        if hot:
            assert any(word in text_of((line,)) for word in words)


def test_a_full_memory_is_marked_by_more_than_its_colour() -> None:
    full = {"memory_used_bytes": (139 * 2**30)}
    made = model(lambda second: sample(2, second, changes={0: full}), seconds=10)
    row = next(line for line in text_of(made.lines(80, 24, START)).splitlines() if line.startswith("  0 "))
    assert "139 " in row
    assert "of 140 GiB" in text_of(made.lines(80, 24, START))


def test_rows_of_neighbouring_charts_do_not_touch() -> None:
    busy = {"sm_busy_pct": 100, "power_w": 700.0}
    made = model(lambda second: sample(8, second, changes=dict.fromkeys(range(8), busy)))
    assert "█" not in text_of(made.lines(80, 24, START + 90 * SECOND))  # an eighth of each row stays free
    for width, height in ((120, 40), (200, 50)):
        lines = text_of(made.lines(width, height, START + 90 * SECOND)).splitlines()
        titles = [line for line in lines if "power  700 W" in line]
        assert titles
        assert not any(set("▁▂▃▄▅▆▇█") & set(line) for line in titles)


def test_numbers_beside_charts_are_never_cut() -> None:
    plain: dict[str, Value] = {
        "gpm_sm_active_pct": Missing("no"),
        "gpm_tensor_pct": Missing("no"),
        "memory_busy_pct": 37,
    }
    made = model(lambda second: sample(1, second, changes={0: plain}), seconds=5)
    for width in range(40, 140):
        text = text_of(made.lines(width, 40, START + 5 * SECOND))
        assert "memory traffic 37 %" in text or "memory traffic" not in text


def test_the_colour_of_a_figure_changes_when_its_state_does_and_not_before() -> None:
    made = MonitorModel(MonitorSettings())
    styles = []
    for second in range(40):
        share = 0.91 if second % 2 else 0.89
        used = int(140.4 * 2**30 * share)
        made.add(sample(2, float(second), changes={0: {"memory_used_bytes": used}}))
        lines = made.lines(80, 24, START + second * SECOND)
        row = next(line for line in lines if line[1].text.strip() == "0")
        styles.append([span.style for span in row if span.text.startswith("━")][-1])
    assert set(styles) == {"memory"}


@pytest.mark.parametrize(
    ("gpus", "width", "height", "gauges"), [(8, 80, 24, 17), (8, 200, 50, 17), (1, 120, 40, 7)]
)
def test_the_first_frame_has_a_gauge_for_what_has_no_history_yet(
    gpus: int, width: int, height: int, gauges: int
) -> None:
    """Busy and memory of each GPU, one of which is idle, or the charts of the only one, and the host's."""
    made = model(lambda second: sample(gpus, second), seconds=1)
    lines = made.lines(width, height, START + SECOND)
    assert sum("━" in span.text or "╸" in span.text for line in lines for span in line) >= gauges


@pytest.mark.parametrize("interval_s", [1, 5])
def test_charts_fill_within_seconds_and_their_axis_grows_with_the_history(interval_s: int) -> None:
    made = MonitorModel(MonitorSettings(interval_s=float(interval_s)), now=lambda: START)
    spans: list[str] = []
    for second in range(0, 330 if interval_s == 5 else 70, interval_s):
        made.add(sample(2, float(second), processes=40))
        lines = made.lines(80, 24, START + second * SECOND)
        span = text_of(lines[:1]).rpartition("charts ")[2].strip()
        assert f"BUSY %, {span} " in text_of(lines[2:3])
        row = next(line for line in lines if line[1].text.strip() == "0")
        cells = next(one.text for one in row if one.style == "compute 1")
        if second >= 5:
            assert len(cells.strip()) >= len(cells) // 3
        if not spans or spans[-1] != span:
            spans.append(span)
    assert spans == ["10 s", "20 s", "30 s", "1 min", "2 min", "5 min"][: 6 if interval_s == 5 else 5]


def test_a_reading_lasts_until_the_next_and_nothing_is_drawn_where_none_was() -> None:
    """Of an interval of 5 s; the GPU is silent from the second reading on."""
    made = MonitorModel(MonitorSettings(interval_s=5.0), now=lambda: START)
    for second, busy in ((0.0, 0), (5.0, 100)):
        made.add(sample(1, second, changes={0: {"sm_busy_pct": busy}}))

    def chart(second: float) -> str:
        lines = made.lines(120, 40, START + round(second * SECOND))
        top = next(line for line in lines if line[0].text.strip() == "100 %")
        return top[1].text

    reading = chart(5.0)
    assert reading.endswith(" " + "▇" * (4 * len(reading) // 10))
    assert chart(9.5) == reading
    assert chart(20.0) != reading
    assert chart(20.0).endswith("     ")


def test_the_room_of_processes_grows_and_is_not_taken_away_again() -> None:
    def rule(made: MonitorModel) -> int:
        lines = text_of(made.lines(120, 40, START + SECOND)).splitlines()
        return next(row for row, line in enumerate(lines) if " process" in line)

    made = MonitorModel(MonitorSettings(), now=lambda: START)
    rows = []
    for second, processes in enumerate((2, 3, 7, 2)):
        made.add(sample(2, float(second), processes=processes))
        rows.append(rule(made))
    assert rows[0] == rows[1] > rows[2] == rows[3]


@pytest.mark.parametrize(("processes", "titles"), [(40, 2), (8, 3), (2, 4)])
def test_tall_cards_chart_the_memory_and_more_of_each_gpu(processes: int, titles: int) -> None:
    made = model(lambda second: sample(2, second, processes=processes))
    text = text_of(made.lines(120, 40, START + 90 * SECOND))
    rows = [line for line in text.splitlines() if line.startswith(("busy ", "power ", "memory ", "clock "))]
    gauges = [line for line in rows if line.startswith("memory") and "━" in line]
    assert len(rows) == titles + len(gauges)
    assert len(gauges) == (titles == 2)
    assert all(line.count(line.split()[0]) == 2 for line in rows)


def test_a_chart_that_is_half_full_has_no_gauge() -> None:
    made = model(lambda second: sample(1, second), seconds=160)
    lines = made.lines(120, 40, START + 160 * SECOND)
    charted = [line for line in lines if line[0].text.strip() in ("100 %", "140 GiB")]
    assert len(charted) == 2
    assert not any("━" in span.text for line in charted for span in line)
