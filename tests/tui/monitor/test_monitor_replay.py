"""A stored run in the Monitor: its position, its keys, and its charts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

import pytest
from journals import GPU_MACHINE, STARTED_NS, STARTED_US, make_journal, write_telemetry
from key_lists import list_of
from monitor_samples import text_of

from gputui.model.telemetry import HOST, Reading
from gputui.services.playback.replay import Playback, open_replay
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import store_run
from gputui.tui.monitor.actions import ACTIONS, REPLAY_ACTIONS
from gputui.tui.monitor.model import MonitorModel
from gputui.tui.monitor.settings import MonitorSettings
from gputui.tui.shell.registry import APP_ACTIONS

SECONDS = 600
WEEKS_NS = 5_000_000 * 10**9
"""Of the machine's clock, far from any position of a recording."""


class Replayed:
    """The monitor with a recording and a manual clock."""

    def __init__(self, db: Path) -> None:
        self.now_ns = WEEKS_NS
        self.playback = Playback(open_replay("latest", db), clock=lambda: self.now_ns)
        self.model = MonitorModel(MonitorSettings(), title="replay of mine", recording=self.playback)
        self.width, self.height = 80, 24

    def pass_s(self, seconds: float) -> None:
        """As the thread of the playback does after each interval."""
        self.now_ns += round(seconds * 1e9)
        self.playback.set_speed(self.playback.speed)

    def press(self, *actions: str) -> None:
        for action in actions:
            assert self.model.press(action) is None

    @property
    def text(self) -> str:
        self.model.add(self.playback.latest())
        return text_of(self.model.lines(self.width, self.height, self.now_ns))

    @property
    def header(self) -> str:
        return self.text.splitlines()[0]


Make = Callable[..., Replayed]


@pytest.fixture
def replayed(tmp_path: Path) -> Make:
    def made(apart_s: float = 1.0, seconds: int = SECONDS, gpu_1_until_s: float = 1e9) -> Replayed:
        readings = []
        for tick in range(round(seconds / apart_s) + 1):
            at_s = tick * apart_s
            t_ns = STARTED_NS + round(at_s * 1e9)
            values = {
                "sm_busy_pct": 100.0 if at_s >= seconds / 2 else 0.0,
                "energy_mj": round(500_000 * at_s),
            }
            readings.append(Reading(HOST, t_ns, {"cpu_busy_pct": 150.0}))
            readings.append(Reading(0, t_ns, values))
            if at_s <= gpu_1_until_s:
                readings.append(Reading(1, t_ns, values))
        run_dir = make_journal(tmp_path / "run", machine=GPU_MACHINE)
        write_telemetry(run_dir, readings)
        db = tmp_path / "a.db"
        store_run(db, read_journal(run_dir), read_telemetry(run_dir))
        return Replayed(db)

    return made


def test_nothing_is_stale_while_readings_follow_one_another(replayed: Make) -> None:
    shown = replayed()
    for seconds in (0, 1, 7, 100):
        shown.pass_s(seconds)
        assert "STALE" not in shown.text
    shown.press("details")
    assert "read" in shown.text
    assert "0 s ago" in shown.text


def test_a_gpu_that_was_read_no_longer_is_stale_by_the_recordings_own_time(replayed: Make) -> None:
    shown = replayed(gpu_1_until_s=60)
    shown.pass_s(62)
    assert "STALE" not in shown.text
    shown.press("play-faster", "play-faster", "play-faster")  # ten times
    shown.pass_s(2)
    rows = [line for line in shown.text.splitlines() if line[:5].strip() in ("0", "1")]
    assert "STALE" not in rows[0]
    assert "STALE 22 s" in rows[1]
    shown.press("pause")
    shown.pass_s(3600)
    assert "STALE 22 s" in shown.text
    shown.press("seek-back", "seek-back")
    assert "STALE" not in shown.text


def test_readings_that_were_meant_to_be_far_apart_are_not_stale(replayed: Make) -> None:
    shown = replayed(apart_s=10.0)
    shown.pass_s(29.5)
    assert "STALE" not in shown.text


def test_the_header_shows_position_speed_and_whether_it_plays(replayed: Make) -> None:
    shown = replayed()
    shown.pass_s(83)
    assert "playing 1:23 of 10:00 · 1x · charts 5 min" in shown.header
    shown.press("pause")
    shown.pass_s(50)
    assert "PAUSED 1:23 of 10:00 · 1x" in shown.header
    shown.press("play-faster", "pause")
    shown.pass_s(1)
    assert "playing 1:25 of 10:00 · 2x" in shown.header
    shown.press("play-slower", "play-slower")
    shown.pass_s(2)
    assert "playing 1:26 of 10:00 · 0.5x" in shown.header
    shown.width = 120
    assert STARTED_US == 1_795_000_000_000_000
    assert "playing 1:26 of 10:00 · 2026-11-18 11:08:06 UTC · 0.5x" in shown.header


def test_a_recording_of_hours_shows_hours(replayed: Make) -> None:
    shown = replayed(apart_s=10.0, seconds=7205)
    shown.pass_s(61)
    assert "playing 0:01:01 of 2:00:00" in shown.header


def test_speeds_end_at_their_bounds(replayed: Make) -> None:
    shown = replayed()
    shown.press(*["play-faster"] * 20)
    assert "· 1000x ·" in shown.header
    shown.press(*["play-slower"] * 20)
    assert "· 0.1x ·" in shown.header


def test_keys_move_it_within_its_bounds(replayed: Make) -> None:
    shown = replayed()
    for action, place in (
        ("seek-forward", "0:10"),
        ("leap-forward", "1:10"),
        ("leap-forward", "2:10"),
        ("leap-back", "1:10"),
        ("seek-back", "1:00"),
        ("seek-start", "0:00"),
        ("seek-back", "0:00"),
        ("seek-end", "10:00"),
        ("seek-forward", "10:00"),
        ("leap-back", "9:00"),
    ):
        shown.press(action)
        assert f" {place} of 10:00" in shown.header, action


def test_its_end_is_marked_and_space_plays_it_again(replayed: Make) -> None:
    shown = replayed()
    shown.press("seek-end")
    assert "ENDED 10:00 of 10:00" in shown.header
    picture = shown.text
    shown.pass_s(500)
    assert shown.text == picture
    assert "STALE" not in picture
    shown.press("pause")
    assert "playing 0:00 of 10:00" in shown.header
    shown.pass_s(3)
    assert "playing 0:03 of 10:00" in shown.header


@pytest.mark.parametrize("keys", [(), ("zoom-out",) * 5], ids=["5 min", "60 min"])
def test_a_jump_shows_what_playing_shows(replayed: Make, keys: tuple[str, ...]) -> None:
    """Charts, energy and idle time are the same whether it was played, jumped to, or gone back to."""
    played = replayed()
    played.press(*keys)
    for _ in range(310):
        played.pass_s(1)
        played.model.add(played.playback.latest())
    jumped = replayed()
    jumped.press(*keys)
    jumped.playback.seek(310)
    back = replayed()
    back.press(*keys)
    back.playback.seek(590)
    assert back.text
    back.playback.seek(310)
    assert "busy  100 %" in played.text
    assert "all GPUs 5 min · 310 kJ" in played.text
    assert jumped.text == played.text
    assert back.text == played.text


def test_a_jump_back_leaves_no_chart_of_what_is_to_come(replayed: Make) -> None:
    shown = replayed()
    shown.playback.seek(330)
    row = next(line for line in shown.text.splitlines() if line[:5].strip() == "0")
    assert "▁▇" in row
    shown.playback.seek(200)
    assert "busy  0 %" in shown.text
    row = next(line for line in shown.text.splitlines() if line[:5].strip() == "0")
    assert "▇" not in row


def test_what_belongs_to_live_boxes_is_not_offered(replayed: Make) -> None:
    shown = replayed()
    hints = shown.text.splitlines()[-1]
    assert hints.startswith("? Help  q Quit  space Pause  left Back 10 s  right Forward 10 s  + Faster")
    assert "processes" not in shown.text
    shown.press("down", "page-up")
    assert "hidden" not in shown.text
    assert shown.model.actions == REPLAY_ACTIONS


def test_each_key_of_a_replay_does_one_thing() -> None:
    keys = [key for action in (*REPLAY_ACTIONS, *APP_ACTIONS) for key in action.key.split(",")]
    assert len(keys) == len(set(keys))
    ids = [action.id for action in REPLAY_ACTIONS]
    assert len(ids) == len(set(ids))
    assert {"sort", "end", "processes", "faster"}.isdisjoint(ids)
    assert {action.id for action in ACTIONS} >= {"sort", "end", "processes", "faster"}


def test_keys_of_live_boxes_do_nothing(replayed: Make) -> None:
    shown = replayed()
    before = shown.text
    shown.press(*({action.id for action in ACTIONS} - {action.id for action in REPLAY_ACTIONS}))
    assert shown.text == before


def test_the_docs_hold_the_keys_that_a_replay_has_and_a_live_box_has_not(repository: Path) -> None:
    own = tuple(takewhile(lambda action: action not in ACTIONS, REPLAY_ACTIONS))
    assert len(own) > 5
    assert list_of(own) in (repository / "docs" / "monitor.md").read_text(encoding="utf-8")
