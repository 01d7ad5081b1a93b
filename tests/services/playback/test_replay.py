"""Stored telemetry played as if it were live, from real files."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import duckdb
import pytest
from journals import GPU_MACHINE, STARTED_NS, make_journal, make_telemetry, write_telemetry

from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.telemetry import HOST, LiveSample, Reading
from gputui.services.playback.replay import PIECES, Playback, Replay, open_replay
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.reading import open_result
from gputui.store.writing import store_run

Store = Callable[[Sequence[Reading]], Path]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    def stored(readings: Sequence[Reading]) -> Path:
        run_dir = make_journal(tmp_path / "run", machine=GPU_MACHINE)
        write_telemetry(run_dir, readings)
        db = tmp_path / "a.db"
        store_run(db, read_journal(run_dir), read_telemetry(run_dir))
        return db

    return stored


def play(db: Path) -> Replay:
    return open_replay("latest", db)


def values_at(replay: Replay, position_s: float, device: int = 0) -> dict[str, object]:
    sample = replay.at(position_s)
    found = sample.host if device == HOST else sample.gpus[device]
    return dict(found.values)


def test_a_run_is_played_as_samples_of_its_gpus_and_its_host(store: Store) -> None:
    replay = play(store(make_telemetry(seconds=4, gpus=2)))
    assert replay.duration_s == pytest.approx(3.9, abs=0.01)
    sample = replay.at(2.0)
    assert [gpu.device for gpu in sample.gpus] == [0, 1]
    assert sample.gpus[0].values["name"] == "NVIDIA H200"
    assert sample.gpus[0].values["sm_busy_pct"] == pytest.approx(98.0)
    assert sample.gpus[0].values["memory_used_bytes"] == Missing("not measured")
    assert isinstance(sample.gpus[0].values["memory_total_bytes"], int)
    assert sample.host.values["cpu_busy_pct"] == pytest.approx(150.0)
    assert sample.absent == {}
    assert isinstance(sample.processes, Missing)


def test_a_value_is_the_last_before_its_time_with_its_own_age(store: Store) -> None:
    readings = [
        Reading(0, STARTED_NS + round(second * 1e9), {"power_w": 100.0 + second}) for second in (0, 1, 5)
    ]
    replay = play(store(readings))
    assert values_at(replay, 0.5)["power_w"] == pytest.approx(100)
    assert values_at(replay, 1.0)["power_w"] == pytest.approx(101)
    late = replay.at(4.5)
    assert late.gpus[0].values["power_w"] == pytest.approx(101)
    assert late.t_ns - late.gpus[0].t_ns == pytest.approx(3.5e9)


def test_positions_outside_are_the_ends(store: Store) -> None:
    replay = play(store([Reading(0, STARTED_NS + n * 10**9, {"power_w": float(n)}) for n in range(5)]))
    assert values_at(replay, -5)["power_w"] == 0
    assert values_at(replay, math.inf)["power_w"] == 4
    assert replay.at(1e9).t_ns == 4 * 10**9


def test_a_gpu_that_was_sampled_later_is_not_there_yet(store: Store) -> None:
    early = [Reading(0, STARTED_NS + n * 10**9, {"power_w": 1.0}) for n in range(5)]
    late = [Reading(1, STARTED_NS + n * 10**9, {"power_w": 2.0}) for n in (3, 4)]
    first = play(store(early + late)).at(0)
    assert first.gpus[0].problem is None
    assert first.gpus[1].problem == Missing("not sampled yet at this time")


def test_a_long_recording_is_held_in_pieces_with_means_last_counts_and_all_bits(store: Store) -> None:
    readings = [
        Reading(
            0,
            STARTED_NS + second * 10**9,
            {
                "power_w": 300.0 + 100 * (second % 2),
                "energy_mj": 1000 * second,
                "throttle_bits": 0x4 if second % 2 else 0x20,
            },
        )
        for second in range(3 * PIECES)
    ]
    db = store(readings)
    with open_result(db) as opened:
        (run,) = opened.summaries()
        (series,) = opened.telemetry_series(run.run_id, PIECES)
    assert len(series.t_us) == PIECES
    replay = play(db)
    values = values_at(replay, 3000.5)
    energy = values["energy_mj"]
    assert isinstance(energy, int)
    assert 2997 <= energy / 1000 <= 3000
    assert values["power_w"] in (pytest.approx(1000 / 3), pytest.approx(1100 / 3))
    assert values["throttle_bits"] == 0x24
    assert replay.at(0).gpus[0].problem is None


def test_what_leads_to_a_position_begins_at_the_last_one_or_at_the_start(store: Store) -> None:
    replay = play(store([Reading(0, STARTED_NS + n * 10**9, {"power_w": float(n)}) for n in range(60)]))
    samples = list(replay.leading_to(10.0, 15.0))
    assert [sample.gpus[0].values["power_w"] for sample in samples] == [11, 12, 13, 14, 15]
    numbers = [sample.number for sample in samples]
    assert numbers == list(range(numbers[0], numbers[0] + 5))
    assert [sample.t_ns for sample in replay.leading_to(None, 2.5)] == [0, 5 * 10**8, 15 * 10**8, 25 * 10**8]
    assert [sample.t_ns for sample in replay.leading_to(None, 0.0)] == [0]


def test_what_leads_to_a_late_position_is_coarser_the_longer_ago_it_is(store: Store) -> None:
    readings = [Reading(0, STARTED_NS + n * 10 * 10**9, {"power_w": 1.0}) for n in range(8 * 360)]
    times_s = [sample.t_ns / 1e9 for sample in play(store(readings)).leading_to(None, 8 * 3600.0 - 10)]
    steps = [later - earlier for earlier, later in itertools.pairwise(times_s)]
    assert times_s[0] == 0
    assert times_s[-1] == 8 * 3600 - 10
    assert steps[1:] == sorted(steps[1:], reverse=True)
    assert steps[1] == 25
    assert steps[-1] == pytest.approx(10, abs=0.01)  # no finer than the readings


def test_what_is_read_once_a_second_stands_among_readings_of_ten_a_second(store: Store) -> None:
    readings = [
        Reading(
            0, STARTED_NS + n * 10**8, {"power_w": 1.0 * n} | ({"sm_busy_pct": 80.0} if n % 10 == 0 else {})
        )
        for n in range(20)
    ]
    readings += [Reading(0, STARTED_NS + n * 10**8, {"power_w": 1.0 * n}) for n in range(20, 60)]
    replay = play(store(readings))
    assert values_at(replay, 0.55) == values_at(replay, 0.5)
    assert values_at(replay, 0.95)["sm_busy_pct"] == 80
    assert values_at(replay, 1.95)["sm_busy_pct"] == 80
    assert values_at(replay, 5.9)["sm_busy_pct"] == Missing("not measured")


def test_time_slowed_is_counted_over_all_readings(store: Store) -> None:
    bits = (0x4, 0x24, 0, 0x20)
    readings = [Reading(0, STARTED_NS + n * 10**8, {"throttle_bits": bits[n % 4]}) for n in range(41)]
    values = values_at(play(store(readings)), 4.0)
    assert values["throttled_power_ns"] == pytest.approx(2.0e9)
    assert values["throttled_thermal_ns"] == pytest.approx(2.0e9)
    assert values["throttled_other_ns"] == 0


@pytest.mark.parametrize(("apart_s", "seconds"), [(0.1, 5), (1.0, 30), (10.0, 300)])
def test_the_interval_of_a_recording_is_that_of_its_readings(
    store: Store, apart_s: float, seconds: int
) -> None:
    count = round(seconds / apart_s)
    readings = [Reading(0, STARTED_NS + round(n * apart_s * 1e9), {"power_w": 1.0}) for n in range(count)]
    assert play(store(readings)).interval_s == pytest.approx(apart_s, rel=0.01)


def test_without_gpus_the_host_is_played_alone(store: Store) -> None:
    sample: LiveSample = play(store(make_telemetry(seconds=2))).at(1)
    assert sample.gpus == ()
    assert sample.absent == {"replay": Missing("no GPU was sampled in this run")}
    assert sample.host.values["name"]


def test_a_run_without_telemetry_cannot_be_played(store: Store) -> None:
    with pytest.raises(GputuiError, match="holds no telemetry"):
        play(store([]))


def test_values_and_times_that_cannot_be_are_left_out(store: Store) -> None:
    db = store(make_telemetry(seconds=2, gpus=1))
    with duckdb.connect(str(db)) as connection:
        connection.execute("UPDATE telemetry SET power_w = 'nan'::FLOAT, temperature_c = 'inf'::FLOAT")
        connection.execute(
            "INSERT INTO telemetry (run_id, device_index, t_us) SELECT run_id, 0, -5 FROM runs"
        )
        connection.execute(
            f"INSERT INTO telemetry (run_id, device_index, t_us) SELECT run_id, 0, {2**62} FROM runs"
        )
    replay = play(db)
    assert replay.duration_s < 3
    values = values_at(replay, 1)
    assert values["power_w"] == values["temperature_c"] == Missing("not measured")


# Time


class Clock:
    def __init__(self) -> None:
        self.now_ns = 10**12

    def __call__(self) -> int:
        return self.now_ns

    def pass_s(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


# In the panes


class Shown:
    """A playback, and a way to wait for its samples."""

    def __init__(self, db: Path) -> None:
        self.clock = Clock()
        self._called = threading.Semaphore(0)
        self.playback = Playback(play(db), 0.005, on_sample=self._called.release, clock=self.clock)

    def power_w(self) -> object:
        return self.playback.latest().gpus[0].values["power_w"]

    def until(self, power_w: float) -> None:
        deadline = time.monotonic() + 300
        while self.power_w() != power_w:
            self._called.acquire(timeout=1.0)
            assert time.monotonic() < deadline, self.power_w()


@pytest.fixture
def shown(store: Store) -> Iterator[Shown]:
    db = store([Reading(0, STARTED_NS + n * 10**9, {"power_w": float(n)}) for n in range(60)])
    found = Shown(db)
    found.playback.start()
    yield found
    found.playback.close()


def test_a_recording_plays_in_the_panes_like_a_live_box(shown: Shown) -> None:
    assert shown.power_w() == 0
    shown.clock.pass_s(3.5)
    shown.until(3)
    shown.playback.want_processes(True)
    assert isinstance(shown.playback.latest().processes, Missing)
    shown.playback.set_speed(10)
    shown.clock.pass_s(1)
    shown.until(13)
    assert shown.playback.speed == 10
    assert not shown.playback.has_ended
    shown.clock.pass_s(100)
    shown.until(59)
    assert shown.playback.has_ended
    shown.playback.pause_or_go_on()
    assert shown.power_w() == 0


def test_speeds_have_bounds(shown: Shown) -> None:
    shown.playback.set_speed(1e9)
    assert shown.playback.speed == 1000
    shown.playback.set_speed(0)
    assert shown.playback.speed == 0.1


def test_a_jump_shows_at_once_also_while_it_stands_still(shown: Shown) -> None:
    shown.playback.set_interval(1000.0)
    shown.playback.pause_or_go_on()
    shown.playback.seek(40)
    before = shown.playback.latest()
    assert shown.power_w() == 40
    shown.clock.pass_s(5)
    assert shown.playback.is_paused
    assert shown.playback.position_s == 40
    assert shown.playback.latest() is before
    shown.playback.pause_or_go_on()
    shown.clock.pass_s(2)
    shown.playback.set_interval(0.005)
    shown.until(42)
