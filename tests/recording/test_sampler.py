"""The sampler: what it writes, the effect of a call that hangs, and of a file that is too large."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from supervised import PATIENCE_S

from gputui.metrics import CURRENT
from gputui.model.absent import Missing
from gputui.model.telemetry import HOST, Reading
from gputui.recording.sampler import Sampler
from gputui.store.journal_reader import read_telemetry


class _Counting:
    """A host and a GPU with numbered readings; notifies a waiter after a number of them."""

    NAME: ClassVar[str] = "counting"

    def __init__(self, enough: int) -> None:
        self._numbers: Iterator[int] = itertools.count()
        self._left = enough
        self.has_enough = threading.Event()

    def open(self) -> Missing | None:
        return None

    def devices(self) -> tuple[int, ...]:
        return (HOST, 0)

    def read(self, device: int, *, full: bool) -> Reading:
        self._left -= 1
        if self._left <= 0:
            self.has_enough.set()
        return Reading(device, next(self._numbers), {"load_1min" if device == HOST else "power_w": 1.0})

    def problem(self, device: int) -> Missing | None:
        return None


class _Hanging:
    """A host and two GPUs with numbered readings; from a given reading on, the calls of GPU 1 hang."""

    NAME: ClassVar[str] = "box"

    def __init__(self, from_reading: int) -> None:
        self._from_reading = from_reading
        self._news = threading.Condition()
        self._read = Counter[int]()
        self.answers = threading.Event()
        self.hung_reading: Reading | None = None

    def open(self) -> Missing | None:
        return None

    def devices(self) -> tuple[int, ...]:
        return (HOST, 0, 1)

    def read(self, device: int, *, full: bool) -> Reading:
        reading = Reading(device, self._read[device], {})
        hangs = device == 1 and self._read[device] >= self._from_reading and not self.answers.is_set()
        if hangs:
            self.hung_reading = reading
            assert self.answers.wait(PATIENCE_S)
        with self._news:
            self._read[device] += 1
            self._news.notify_all()
        return reading

    def problem(self, device: int) -> Missing | None:
        return None

    def wait_for_more(self, *devices: int) -> None:
        """Wait until each of them was read twice more: the first of the two is written then."""
        with self._news:
            enough = {device: self._read[device] + 2 for device in devices}
            assert self._news.wait_for(lambda: all(self._read[d] >= n for d, n in enough.items()), PATIENCE_S)


class _NeverOpen(_Hanging):
    """A source that hangs while it is opened."""

    NAME: ClassVar[str] = "stuck"

    def open(self) -> Missing | None:
        assert self.answers.wait(PATIENCE_S)
        return None


class _Problems(list[str]):
    """Events of a sampler; can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.came = threading.Event()

    def __call__(self, problem: str) -> None:
        self.append(problem)
        self.came.set()


def test_a_file_that_reaches_its_cap_is_thinned_which_is_reported(tmp_path: Path) -> None:
    source, problems = _Counting(enough=20), list[str]()
    path = tmp_path / "telemetry.bin"
    cap_bytes = len(CURRENT.header()) + 16 * CURRENT.row_bytes
    with Sampler(path, [source], problems.append, cap_bytes=cap_bytes) as sampler:
        sampler.focus((0,))
        assert source.has_enough.wait(PATIENCE_S)
    readings = list(read_telemetry(tmp_path))
    assert len(readings) <= 16 + 2
    assert min(reading.t_ns for reading in readings) == 0
    for device in (HOST, 0):
        numbers = [reading.t_ns for reading in readings if reading.device == device]
        assert numbers
        assert numbers == sorted(numbers)
    assert problems[0].endswith("every second reading was dropped, and it is read every 2 s from now on")
    assert not list(tmp_path.glob("*.thinned"))


def test_a_file_below_its_cap_keeps_every_reading(tmp_path: Path) -> None:
    source, problems = _Counting(enough=12), list[str]()
    path = tmp_path / "telemetry.bin"
    with Sampler(path, [source], problems.append) as sampler:
        sampler.focus((0,))
        assert source.has_enough.wait(PATIENCE_S)
    numbers = [reading.t_ns for reading in read_telemetry(tmp_path)]
    assert sorted(numbers) == list(range(len(numbers)))
    assert problems == []


def _wait_for_threads() -> None:
    for thread in threading.enumerate():
        if thread.name == "sampler":
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


SILENCE_S = 0.5
SILENT = "box device 1: the driver has not answered for 0.5 s"


@pytest.mark.parametrize("from_reading", [0, 2])
def test_a_call_that_hangs_costs_the_rows_of_its_own_device_until_it_returns(
    tmp_path: Path, from_reading: int
) -> None:
    source, problems = _Hanging(from_reading), _Problems()
    path = tmp_path / "telemetry.bin"
    with Sampler(path, [source], problems, period_s=0.05, silence_s=SILENCE_S) as sampler:
        sampler.focus((0, 1))
        assert problems.came.wait(PATIENCE_S)
        source.wait_for_more(HOST, 0)
        assert source.hung_reading is not None
        while_it_hung = [reading.t_ns for reading in read_telemetry(tmp_path) if reading.device == 1]
        source.answers.set()
        source.wait_for_more(HOST, 0, 1)
    assert problems == [SILENT]
    assert while_it_hung == list(range(from_reading))
    readings = list(read_telemetry(tmp_path))
    for device in (HOST, 0):
        numbers = [reading.t_ns for reading in readings if reading.device == device]
        assert numbers == list(range(len(numbers)))
    numbers = [reading.t_ns for reading in readings if reading.device == 1]
    assert numbers[from_reading] == from_reading + 1  # the reading that hung has values of different times
    assert numbers == sorted(numbers)


def test_a_first_call_that_hangs_is_reported_before_anything_else_begins(tmp_path: Path) -> None:
    source, problems = _Hanging(0), _Problems()
    with Sampler(tmp_path / "telemetry.bin", [source], problems, silence_s=SILENCE_S):
        at_begin = list(problems)
        source.answers.set()
    assert at_begin == [SILENT]


def test_a_sampler_stops_while_a_call_hangs_and_its_file_stays_as_it_is(tmp_path: Path) -> None:
    source = _Hanging(1)
    path = tmp_path / "telemetry.bin"
    with Sampler(path, [source], period_s=0.05):
        source.wait_for_more(HOST, 0)
        source.wait_for_more(HOST, 0)
    stored = path.read_bytes()
    assert source.hung_reading is not None
    source.answers.set()
    _wait_for_threads()
    assert path.read_bytes() == stored
    assert {reading.device for reading in read_telemetry(tmp_path)} == {HOST, 0, 1}


def test_a_source_that_hangs_while_it_opens_holds_up_no_other_and_is_read_once_it_is_open(
    tmp_path: Path,
) -> None:
    stuck, source, problems = _NeverOpen(99), _Counting(enough=6), _Problems()
    path = tmp_path / "telemetry.bin"
    with Sampler(path, [stuck, source], problems, period_s=0.05, silence_s=SILENCE_S):
        assert source.has_enough.wait(PATIENCE_S)
        stuck.answers.set()
        stuck.wait_for_more(1)
    assert problems == ["stuck: the driver has not answered for 0.5 s"]
    assert 1 in {reading.device for reading in read_telemetry(tmp_path)}


def test_a_file_that_cannot_be_written_is_reported_and_stops_nothing(tmp_path: Path) -> None:
    problems = _Problems()
    with Sampler(tmp_path / "nowhere" / "telemetry.bin", [_Counting(enough=1)], problems):
        pass
    assert problems == ["telemetry stops here: No such file or directory"]
