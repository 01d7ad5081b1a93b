"""The bytes that a terminal gets when something happened, and which events are worth it."""

from __future__ import annotations

import pytest
from run_screen_golden import HOSTILE, plan

from gputui.model.journal import CaseEnd, RunEnd
from gputui.services.runs.alerts import LEAST_APART_S, LONGEST, Alerts, notification

OSC_9 = b"\x1b]9;gputui: run 1a2b finished\x07"
OSC_777 = b"\x1b]777;notify;gputui;run 1a2b finished\x07"


@pytest.mark.parametrize(
    ("environment", "sent"),
    [
        ({"TERM": "xterm-256color"}, b"\x07" + OSC_9 + OSC_777),
        ({"TERM": "xterm-kitty"}, b"\x07" + OSC_777),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, b"\x07" + OSC_777),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, b"\x07" + OSC_9),
        (
            {"TERM": "tmux-256color", "TMUX": "/tmp/tmux-0/default,1,0", "TERM_PROGRAM": "tmux"},
            b"\x07\x1bPtmux;\x1b" + OSC_9 + b"\x1b\\\x1bPtmux;\x1b" + OSC_777 + b"\x1b\\",
        ),
        (
            {"TERM": "tmux-256color"},
            b"\x07\x1bPtmux;\x1b" + OSC_9 + b"\x1b\\\x1bPtmux;\x1b" + OSC_777 + b"\x1b\\",
        ),
        (
            {"TERM": "screen-256color", "STY": "1.pts-0.box"},
            b"\x07\x1bP" + OSC_9 + b"\x1b\\\x1bP" + OSC_777 + b"\x1b\\",
        ),
        ({"TERM": "linux"}, b"\x07"),
        ({"TERM": "dumb"}, b"\x07"),
        ({}, b"\x07"),
    ],
    ids=lambda value: " ".join(value.values()) if isinstance(value, dict) else "",
)
def test_each_terminal_gets_the_bell_and_what_it_can_show(environment: dict[str, str], sent: bytes) -> None:
    assert notification("run 1a2b finished", environment) == sent


def test_nothing_of_a_text_can_end_a_sequence_or_begin_one() -> None:
    sent = notification(f"{HOSTILE};\x9c\x1b\\\n" + "x" * 999, {"TERM": "xterm"})
    assert sent.count(b"\x1b") == 2
    assert sent.count(b"\x07") == 3
    assert sent.count(b";") == 1 + 3
    assert "\x9c" not in sent.decode()
    assert len(sent.decode().split("\x07")[1]) == len("\x1b]9;gputui: ") + LONGEST


def ended(case_id: int, outcome: str = "failed") -> CaseEnd:
    return CaseEnd(0, case_id, outcome, "for a reason", 0, 1)


def test_a_failure_and_a_lack_of_memory_are_reported_once_per_case_and_success_is_not() -> None:
    now_s = [0.0]
    alerts = Alerts([plan()], "1a2b", clock_s=lambda: now_s[0])
    alerts.hear(0, ended(0, "ok"))
    alerts.hear(0, ended(1, "unsupported"))
    assert alerts.tick() == ""
    alerts.hear(0, ended(0))
    assert alerts.tick() == "run 1a2b: matmul mini cpu fp32 1 thread failed"
    now_s[0] += LEAST_APART_S
    alerts.hear(0, ended(0))
    assert alerts.tick() == ""
    alerts.hear(0, ended(0, "oom"))
    assert alerts.tick() == "run 1a2b: matmul mini cpu fp32 1 thread ran out of memory"


def test_fifty_failures_are_two_notices_and_the_end() -> None:
    now_s = [0.0]
    alerts = Alerts([plan()], "1a2b", clock_s=lambda: now_s[0])
    pending = []
    for number in range(50):
        now_s[0] = number * 0.3
        alerts.hear(0, ended(number))
        pending.append(alerts.tick())
    alerts.hear(0, RunEnd("finished", "", 1, 1))
    _, second, last = filter(None, [*pending, alerts.end()])
    assert second.endswith(", and 33 more")
    assert last == "run 1a2b finished; case 35 failed, and 14 more"


def test_a_late_viewer_is_told_what_happens_from_then_on() -> None:
    alerts = Alerts([plan()], "1a2b (mine)", is_late=True)
    alerts.hear(0, ended(0))
    assert alerts.tick() == ""
    alerts.hear(0, ended(0))
    assert alerts.tick() == ""
    alerts.hear(0, ended(1))
    assert alerts.tick() != ""
    alerts.hear(0, RunEnd("interrupted", "stopped by SIGTERM", 1, 1))
    assert alerts.end() == "run 1a2b (mine) interrupted: stopped by SIGTERM"


def test_of_several_runs_each_is_named_and_one_that_left_no_word_was_killed() -> None:
    alerts = Alerts([plan(), plan()], "1a2b and 3c4d")
    alerts.hear(1, ended(0, "oom"))
    assert "[2] matmul mini cpu fp32" in alerts.tick()
    alerts.hear(0, RunEnd("finished", "", 1, 1))
    assert alerts.end() == "run 1a2b and 3c4d finished, its supervisor was killed"
