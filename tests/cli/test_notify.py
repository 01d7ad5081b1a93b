"""`--notify` on a real terminal, inside a simulated tmux, and without a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import (
    Terminal,
    first_seed,
    gputui,
    gputui_here,
    only_run_dir,
    wait_until,
    write_failing_profile,
)

from gputui.model.journal import LaunchEnd
from gputui.store.journal_reader import read_journal


@pytest.fixture
def fails(tmp_path: Path) -> Path:
    """A profile of one program, which fails at once."""
    return write_failing_profile(tmp_path / "bad.toml")


@pytest.mark.parametrize("has_tmux", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["", "tmux"])
def test_a_failure_and_the_end_ring_on_a_terminal(
    fails: Path, monkeypatch: pytest.MonkeyPatch, has_tmux: bool
) -> None:
    monkeypatch.setenv("TERM", "tmux-256color" if has_tmux else "xterm-256color")
    if has_tmux:
        monkeypatch.setenv("TMUX", "/tmp/nowhere,1,0")
    terminal = Terminal("run", "--yes", fails, "--notify", "--db", fails.with_name("a.db"))
    assert terminal.end() == 1
    name = only_run_dir().name[-8:].encode()
    failed, ended = b"run %s: command:bad cpu failed" % name, b"run %s failed: nothing was measured" % name
    begins, ends = (b"\x1bPtmux;\x1b\x1b]", b"\x07\x1b\\") if has_tmux else (b"\x1b]", b"\x07")
    is_one = (
        begins + b"9;gputui: " + failed + ends not in terminal.seen
    )  # what is heard at once is told in one
    sent = (ended + b", command:bad cpu failed",) if is_one else (failed, ended)
    for text in sent:
        assert terminal.seen.count(begins + b"9;gputui: " + text + ends) == 1, terminal.seen
        assert terminal.seen.count(begins + b"777;notify;gputui;" + text + ends) == 1
    assert terminal.seen.count(b"\x07") == 3 * len(sent)


@pytest.mark.slow
def test_where_is_no_terminal_nothing_is_sent_and_without_the_option_neither(
    fails: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    done = gputui("run", fails, "--notify", "--db", fails.with_name("a.db"))
    assert done.returncode == 1
    terminal = Terminal("run", "--yes", fails, "--db", fails.with_name("a.db"))
    assert terminal.end() == 1
    for output in (done.stdout.encode(), done.stderr.encode(), terminal.seen):
        assert b"\x07" not in output
        assert b"\x1b]9;" not in output
        assert b"\x1b]777;" not in output


def test_nobody_rings_for_a_run_that_is_left_to_itself(fails: Path) -> None:
    done = gputui_here("run", fails, "--notify", "--detach")
    assert done.returncode == 2
    assert "gputui attach --notify" in done.stderr


@pytest.mark.slow
def test_a_user_who_attaches_later_is_told_what_happens_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    goes_on = tmp_path / "goes-on"
    profile = write_failing_profile(tmp_path / "bad.toml", waits_for=goes_on)
    begun = gputui("run", profile, "--detach", "--db", tmp_path / "a.db", "--seed", str(first_seed()))
    assert begun.returncode == 0, begun.stderr
    run_dir = only_run_dir()
    wait_until(lambda: bool(read_journal(run_dir).of(LaunchEnd)), "the first program does not fail")
    terminal = Terminal("attach", "--notify")
    terminal.wait_for(b"waits")
    goes_on.touch()
    assert terminal.end() == 1
    assert b"command:bad cpu failed" in terminal.seen
    assert terminal.seen.count(b"\x1b]9;gputui: ") == 1
    assert b"\x1b]9;gputui: run %s finished\x07" % run_dir.name[-8:].encode() in terminal.seen
