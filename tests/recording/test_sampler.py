"""The sampling thread: what it writes, and what becomes of a file that grows too large."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from supervised import PATIENCE_S

from gputui.model.absent import Missing
from gputui.model.telemetry import CURRENT, HOST, Reading
from gputui.recording.sampler import Sampler
from gputui.store.journal_reader import read_telemetry


class _Counting:
    """A host and a GPU whose readings are numbered; wakes whoever waits after so many."""

    NAME: ClassVar[str] = "counting"

    def __init__(self, enough: int) -> None:
        self._numbers: Iterator[int] = itertools.count()
        self._left = enough
        self.has_enough = threading.Event()
        self.is_closed = False

    def probe(self) -> Missing | None:
        return None

    def devices(self) -> tuple[int, ...]:
        return (HOST, 0)

    def read(self, device: int, *, full: bool) -> Reading:
        self._left -= 1
        if self._left <= 0:
            self.has_enough.set()
        return Reading(device, next(self._numbers), {"load_1min" if device == HOST else "power_w": 1.0})

    def problems(self) -> Mapping[int, Missing]:
        return {}

    def close(self) -> None:
        self.is_closed = True


def test_a_file_that_reaches_its_cap_is_thinned_and_that_is_told(tmp_path: Path) -> None:
    source, told = _Counting(enough=20), list[str]()
    path = tmp_path / "telemetry.bin"
    cap_bytes = len(CURRENT.header()) + 16 * CURRENT.row_bytes
    with Sampler(path, [source], told.append, cap_bytes=cap_bytes) as sampler:
        sampler.focus((0,))
        assert source.has_enough.wait(PATIENCE_S)
    readings = list(read_telemetry(tmp_path))
    numbers = [reading.t_ns for reading in readings]
    assert len(readings) <= 16 + 2
    assert numbers == sorted(numbers)
    assert numbers[0] == 0
    assert {reading.device for reading in readings} == {HOST, 0}
    assert told[0].endswith("every second reading was dropped, and it is read every 2 s from now on")
    assert not list(tmp_path.glob("*.thinned"))
    assert source.is_closed


def test_a_file_below_its_cap_keeps_every_reading(tmp_path: Path) -> None:
    source, told = _Counting(enough=12), list[str]()
    path = tmp_path / "telemetry.bin"
    with Sampler(path, [source], told.append) as sampler:
        sampler.focus((0,))
        assert source.has_enough.wait(PATIENCE_S)
    numbers = [reading.t_ns for reading in read_telemetry(tmp_path)]
    assert numbers == list(range(len(numbers)))
    assert told == []
