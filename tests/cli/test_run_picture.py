"""The picture of a run that a terminal keeps at its end while a shell follows the run."""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, monotonic_ns
from types import SimpleNamespace

import pytest
from builders import make_plan
from command_line import WORDS, write_spin_profile
from hand_made import make_case, measured
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from journals import CPU_MACHINE, GPU_MACHINE
from pty_harness import Terminal, with_job_control
from run_pictures import SECOND, Emulated, journal_of, pictured, planned
from run_screen_golden import RUN_ID

from gputui.cli import progress as progress_of_cli
from gputui.cli.progress import MOST_COLUMNS, Progress, Redrawn, picture_lines
from gputui.document.spans import Line, line_width
from gputui.model.journal import (
    JOURNAL_SCHEMA,
    Block,
    CaseEnd,
    Event,
    LaunchEnd,
    LaunchesLeftOut,
    LaunchStart,
    RunStart,
)
from gputui.model.journal import Line as JournalLine
from gputui.model.machine import Machine
from gputui.services.results.labels import plain_name
from gputui.services.runs import progress as progress_of_runs
from gputui.services.runs.device_history import HistoryReader

TEXTS = st.text("ab━ ", min_size=1, max_size=20).map(str.rstrip)


def text_of(lines: Sequence[Line]) -> str:
    return "\n".join("".join(span.text for span in line).rstrip() for line in lines)


# Rewriting in place

FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@FEW
@given(
    above=st.lists(TEXTS.filter(bool), max_size=12),
    pictures=st.lists(st.lists(TEXTS, min_size=1, max_size=9), min_size=1, max_size=6),
    said=st.lists(st.none() | TEXTS.filter(bool), min_size=6, max_size=6),
)
def test_whatever_the_lines_become_all_that_was_said_stands_above_them_once_and_in_order(
    above: list[str], pictures: list[list[str]], said: list[str | None]
) -> None:
    terminal, rows = Emulated(20, 9), Redrawn()
    terminal.feed("".join(f"{line}\r\n" for line in above))
    kept = list(above)
    for lines, word in zip(pictures, said, strict=False):
        if word is not None:
            terminal.feed(f"{rows.erasing((20, 9))}{word}\r\n")
            kept.append(word)
        terminal.feed(rows.drawing(lines, (20, 9), 9))
        wanted = [*kept, *lines]
        while wanted and not wanted[-1]:
            wanted.pop()
        assert terminal.lines == wanted
    terminal.feed(rows.erasing((20, 9)))
    assert terminal.lines == kept


def test_only_lines_that_differ_are_written() -> None:
    rows = Redrawn()
    rows.drawing(["first", "second", "third"], (80, 24), 24)
    written = rows.drawing(["first", "other", "third"], (80, 24), 24)
    assert "other" in written
    assert "first" not in written
    assert "third" not in written
    assert rows.drawing(["first", "other", "third"], (80, 24), 24).strip("\r\n") == "\x1b[2A"


def test_what_a_key_has_done_to_the_lines_is_gone_half_a_minute_later() -> None:
    terminal, rows = Emulated(20, 9), Redrawn()
    terminal.feed(rows.drawing(["first", "second"], (20, 9), 9))
    terminal.feed("x\n")  # somebody types
    for number in range(30):
        terminal.feed(rows.drawing(["first", f"now {number}"], (20, 9), 9))
    assert terminal.lines[-2:] == ["first", "now 29"]


@FEW
@given(
    above=st.integers(0, 6),
    sizes=st.lists(st.tuples(st.integers(8, 16), st.integers(2, 9), st.integers(0, 4)), max_size=6),
)
def test_however_often_its_size_changes_one_picture_is_left_and_what_was_above_it(
    above: int, sizes: list[tuple[int, int, int]]
) -> None:
    terminal, rows = Emulated(12, 6), Redrawn()
    kept = [f"said {number}" for number in range(above)]
    terminal.feed("".join(f"{line}\n" for line in kept))
    for number, (columns, height, unused) in enumerate([(12, 6, 0), *sizes, (16, 50, 0)]):
        if rows.size not in ((0, 0), (columns, height)):
            terminal.resize(columns, height, min(unused, height - 2))
        lines = [f"{number}.{line} ".ljust(columns, "=") for line in range(min(height, 6))]
        terminal.feed(rows.drawing(lines, (columns, height), terminal.screen.cursor.y + 1))
        assert terminal.lines[-len(lines) :] == lines
    assert terminal.lines == [*kept, *lines]


# What is in it


@pytest.mark.parametrize("machine", [CPU_MACHINE, GPU_MACHINE], ids=["cpu", "gpu"])
@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40), (40, 24), (80, 10), (80, 3), (60, 1)])
def test_it_is_never_larger_than_the_terminal_or_24_rows_and_ends_with_the_keys(
    machine: Machine, columns: int, rows: int
) -> None:
    plan = planned(machine)
    count = len(list(journal_of(plan, machine)))
    for until in (0, 3, count // 3, count):
        lines = picture_lines(
            pictured(plan, machine, until=until), [plan], "a.db", "Ctrl-C ends it", columns, rows
        )
        assert len(lines) <= min(rows, 24)
        assert {line_width(line) for line in lines if line} <= {min(columns, MOST_COLUMNS)}
        assert text_of(lines[-1:]).strip() == "Ctrl-C ends it"


def test_of_quick_on_a_cpu_every_case_is_in_sight_at_80x24_with_rate_interval_bar_and_passes() -> None:
    plan = planned(CPU_MACHINE)
    journal = list(journal_of(plan, CPU_MACHINE))
    at = next(n for n, one in enumerate(journal) if isinstance(one, LaunchStart) and one.replicate == 2)
    text = text_of(picture_lines(pictured(plan, CPU_MACHINE, until=at + 4), [plan], "a.db", "Ctrl-C", 80, 24))
    assert re.search(r"^ quick on Xeon 8481C, 1 core   torch 2.11.0\+cpu +a\.db$", text, re.MULTILINE)
    assert re.search(r"^ ━+╸?─* +\d+ %  about \d:\d\d left, ends \d\d:\d\d  pass 3 of 8$", text, re.MULTILINE)
    row = r"^( ▸)? +%s +[23]/8 +[\d.]+k? +\S+/s +\S+.* %%  ━[━╸─]+  (ok|running|starting)$"
    for planned_case in plan.cases:
        case = planned_case.case
        if planned_case.outcome is None:
            threads = " 1t" if case.variant.threads == "1" else ""
            name = rf"{plain_name(case.work.workload)} {case.variant.precision}{threads}"
            assert re.search(row % name, text, re.MULTILINE), (name, text)
    assert "15 of 27 cases not measured: 12 need a GPU, 3 on the CPU, which has no TF32" in text
    assert re.search(r"── host  Xeon 8481C  other programs 0 % ──", text)
    assert "CPU    2.0 cores" in text


def test_on_a_gpu_the_bars_are_shares_of_the_data_sheets_peak_and_cases_without_room_are_counted() -> None:
    plan = planned(GPU_MACHINE)
    journal = list(journal_of(plan, GPU_MACHINE))
    text = text_of(
        picture_lines(pictured(plan, GPU_MACHINE, until=len(journal) // 3), [plan], "a.db", "Ctrl-C", 80, 24)
    )
    assert re.search(r"^   CASE +RATE +95 % RANGE +% OF SPEC$", text, re.MULTILINE), text
    assert re.search(r"^   GPT training common fp32 .* ±3 %  ━[━╸─]{5,} +\d+ %$", text, re.MULTILINE), text
    assert re.search(
        r"^   \d+ above: ok · \d+ below: ok · 3 of 27 cases not measured: 3 on the CPU, which …$",
        text,
        re.MULTILINE,
    )
    assert len(text.split("\n")) == 24


# On a terminal


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Advances by its `now_s`."""
    clock = SimpleNamespace(now_s=100.0)
    clock.monotonic = lambda: clock.now_s
    clock.monotonic_ns = lambda: round(clock.now_s * 1e9)
    monkeypatch.setattr(progress_of_cli, "time", clock)
    monkeypatch.setattr(progress_of_runs, "time", clock)
    return clock


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of one of 80x24."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setenv("TERM", "xterm-256color")


def test_it_is_drawn_at_most_once_a_second_in_less_than_a_kilobyte_a_second(
    clock: SimpleNamespace, terminal: None, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = planned(CPU_MACHINE)
    begun_s, drawn = clock.now_s, [""]
    with Progress([plan], live=True) as progress:
        for line in journal_of(plan, CPU_MACHINE):
            progress.hear(0, line)
            if isinstance(line, Block):
                clock.now_s += 0.2
                progress.tick()
                drawn.append(capsys.readouterr().err)
    taken_s = clock.now_s - begun_s
    assert taken_s / 2 < sum(map(bool, drawn)) <= taken_s + 1
    assert len("".join(drawn).encode()) / taken_s < 1000


def test_what_goes_wrong_scrolls_up_once_and_the_picture_goes_on_below_it(
    clock: SimpleNamespace, terminal: None, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = make_plan([0], [0], cases=[make_case()])
    (measurement,) = measured(make_case(), (0.1,) * 6).measurements
    said: list[JournalLine] = [
        CaseEnd(0, 0, "failed", "it broke", 1, SECOND),
        LaunchEnd(0, "failed", "it died", -11, "Traceback:\n  in build", SECOND),
        Event("warning", "the clock fell", SECOND),
        LaunchesLeftOut((1,), "time was up after 1 of 2 launches of each case", SECOND),
    ]
    screen = Emulated(80, 24)
    with Progress([plan], live=True) as progress:
        progress.hear(0, LaunchStart(0, 0, (0,), 1, 9.0, SECOND))
        for line in (*measurement.blocks, *said):
            progress.hear(0, line)
            progress.tick()
            clock.now_s += 1.0
        screen.feed(capsys.readouterr().err)
        above, _, picture = "\n".join(screen.lines).partition("\n test")
        assert [re.sub(r"^\d:\d\d ", "", line) for line in above.split("\n")] == [
            "matmul mini cpu fp32 all cores failed: it broke",
            "launch 1 of matmul mini cpu fp32 all cores failed: it died; its log ends:",
            "    Traceback:",
            "      in build",
            "warning: the clock fell",
            "time was up after 1 of 2 launches of each case",
        ]
        assert "pass 1 of 2" in picture
    screen.feed(capsys.readouterr().err)
    assert "\n".join(screen.lines) == above


def test_who_attaches_late_sees_the_clock_of_the_run_in_the_first_picture(
    terminal: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    plan, began_ns = make_plan([0]), monotonic_ns() - 95 * SECOND
    began = RunStart(JOURNAL_SCHEMA, RUN_ID, 0, began_ns, 0, "0", "quick", 1, 1, 1, 600.0, "", None)
    with Progress([plan], live=True, histories=[HistoryReader(list)]) as progress:
        progress.hear(0, began)
        progress.hear(0, LaunchStart(0, 0, (0,), 1, 9.0, began_ns + SECOND))  # the last line, long ago
        progress.tick()
        assert re.search(r"1:3[56] gone", capsys.readouterr().err)


@pytest.mark.parametrize(("name", "has_colours"), [("", True), ("NO_COLOR", False), ("GPUTUI_ASCII", True)])
def test_no_color_takes_the_colours_and_ascii_the_glyphs_and_nothing_else(
    clock: SimpleNamespace,
    terminal: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    has_colours: bool,
) -> None:
    if name:
        monkeypatch.setenv(name, "1")
    plan = planned(CPU_MACHINE)
    with Progress([plan], live=True) as progress:
        for line in list(journal_of(plan, CPU_MACHINE))[:60]:
            progress.hear(0, line)
        progress.tick()
    drawn = capsys.readouterr().err
    codes = set(re.findall(r"\x1b\[([\d;]+)m", drawn))
    assert "1" in codes
    assert any(len(code) > 1 for code in codes) == has_colours
    assert ("━" in drawn) != drawn.isascii() == (name == "GPUTUI_ASCII")
    assert max(map(len, re.sub(r"\x1b\[[\d;]*[A-Za-z]|\r", "", drawn).split("\n"))) <= 80


def test_in_a_real_terminal_the_picture_follows_its_size_hides_what_is_typed_and_the_end_has_its_place(
    tmp_path: Path,
) -> None:
    profile = write_spin_profile(tmp_path / "spin.toml", replicates=2, blocks=10)
    words = [*WORDS, "run", str(profile), "--yes", "--db", str(tmp_path / "a.db")]
    with Terminal(words, 80, 24) as terminal:
        heading = re.compile(r"^ spin on .*, \d+ cores? .*a\.db$", re.MULTILINE)
        terminal.wait_for(lambda: heading.search(terminal.text) is not None)
        begun, begun_s = len(terminal.raw), monotonic()
        terminal.resize(60, 12)
        narrow = re.compile(r"^ [━╸─]+ +\d+ %  .*ends \d\d:\d\d$", re.MULTILINE)  # without the pass
        terminal.wait_for(lambda: narrow.search(terminal.text) is not None)
        terminal.resize(80, 24)
        terminal.type(b"rm -r .\n")
        terminal.wait_for("pass 2 of 2")
        assert "rm -r" not in terminal.text
        assert terminal.ended() == 0
        assert terminal.attributes_now == terminal.attributes_before
        assert terminal.unread() == b""
        written = len(terminal.raw) - begun
        assert "stored as " in terminal.text
        assert "Ctrl-C" not in terminal.text
        assert " left" not in terminal.text
    assert written < 1000 * (monotonic() - begun_s) + 4000  # and what the run ends with


def test_control_z_gives_the_terminal_to_the_shell_and_after_fg_all_is_drawn_and_typing_hidden(
    tmp_path: Path,
) -> None:
    profile = write_spin_profile(tmp_path / "spin.toml", replicates=2, blocks=10)
    words = [*WORDS, "run", str(profile), "--yes", "--db", str(tmp_path / "a.db")]
    with Terminal(with_job_control(words), 80, 24) as terminal:
        terminal.wait_for("Ctrl-C ends it")
        terminal.type(b"\x1a")
        terminal.wait_for("put aside")
        assert "Ctrl-C ends it" not in terminal.text
        assert "the run goes on; to see it again: fg" in terminal.text
        assert terminal.attributes_now == terminal.attributes_before
        terminal.type(b"\n")
        terminal.wait_for("Ctrl-C ends it")
        assert re.search(r"^ spin\b.*a\.db$", terminal.text, re.MULTILINE)
        assert re.search(r"^ +CASE\b.*RATE", terminal.text, re.MULTILINE)
        terminal.type(b"rm -r .\n")
        assert terminal.ended() == 0
        assert "rm -r" not in terminal.text
        assert terminal.attributes_now == terminal.attributes_before
        assert terminal.unread() == b""


@pytest.mark.slow
def test_a_terminal_that_never_answers_shows_nothing_typed_and_is_as_before_at_the_end(
    tmp_path: Path,
) -> None:
    profile = write_spin_profile(tmp_path / "spin.toml", replicates=2)
    words = [*WORDS, "run", str(profile), "--yes", "--db", str(tmp_path / "a.db")]
    with Terminal(words, 80, 24, answers=False) as terminal:
        terminal.wait_for("pass 1 of 2")
        terminal.type(b"rm -r .\n")
        terminal.wait_for("pass 2 of 2")
        assert "rm -r" not in terminal.text
        assert terminal.ended() == 0
        assert terminal.attributes_now == terminal.attributes_before
        assert terminal.unread() == b""


def test_a_terminal_whose_viewer_was_killed_echoes_again(tmp_path: Path) -> None:
    profile = write_spin_profile(tmp_path / "spin.toml", blocks=10)
    run = shlex.join([*WORDS, "run", str(profile), "--yes", "--db", str(tmp_path / "a.db")])
    shell = f"sh -c {shlex.quote(f'echo viewer $$; exec {run}')}; cat"
    with Terminal(["sh", "-c", shell], 80, 24) as terminal:
        terminal.wait_for("Ctrl-C ends it")
        assert terminal.attributes_now != terminal.attributes_before
        found = re.search(rb"viewer (\d+)", terminal.raw)
        assert found is not None
        os.kill(int(found[1]), signal.SIGKILL)
        terminal.wait_for(lambda: terminal.attributes_now == terminal.attributes_before)
        terminal.type(b"seen\x04\x04")
        terminal.wait_for("seen")
        assert terminal.ended() == 0
