"""The sampler: what it writes, the effect of a call that hangs, and of a file that is too large."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from supervised import PATIENCE_S

from gputui.metrics import CURRENT
from gputui.model.absent import Missing
from gputui.model.telemetry import HOST, DeviceSample, GpuUse
from gputui.recording.sampler import CAP_BYTES, Sampler
from gputui.store.journal_reader import read_telemetry


class _Box:
    """A host and GPUs that number their readings: each says how many it has given before.

    The calls of GPU 1 hang from a given reading on.
    """

    NAME: ClassVar[str] = "box"

    def __init__(self, gpus: int = 1, *, hangs_from: int = 10**9) -> None:
        self._numbers = range(gpus)
        self._hangs_from = hangs_from
        self._news = threading.Condition()
        self._read = Counter[int]()
        self.answers = threading.Event()
        self.hung = threading.Event()

    def open(self) -> tuple[_Gpu, ...]:
        return tuple(_Gpu(self, number) for number in self._numbers)

    def read(self, device: int = HOST) -> dict[str, float | int]:
        values = {"load_1min" if device == HOST else "power_w": float(self._read[device])}
        if device == 1 and self._read[device] >= self._hangs_from and not self.answers.is_set():
            self.hung.set()
            assert self.answers.wait(PATIENCE_S)
        with self._news:
            self._read[device] += 1
            self._news.notify_all()
        return values

    def wait_for(self, readings: int, *devices: int) -> None:
        """Wait until each of them was read so many times more, and all but the last are written."""
        with self._news:
            enough = {device: self._read[device] + readings for device in devices}
            assert self._news.wait_for(lambda: all(self._read[d] >= n for d, n in enough.items()), PATIENCE_S)


@dataclass(frozen=True)
class _Gpu:
    box: _Box
    number: int

    def read(self, *, full: bool) -> dict[str, float | int]:
        return self.box.read(self.number)

    def sample(self) -> tuple[DeviceSample, ...]:
        raise NotImplementedError

    def processes(self) -> tuple[GpuUse, ...]:
        raise NotImplementedError


def numbers(directory: Path, device: int) -> list[float]:
    """Of the stored readings of a device."""
    stored = [one.values for one in read_telemetry(directory) if one.device == device]
    return [values["load_1min" if device == HOST else "power_w"] for values in stored]


def sampling(
    tmp_path: Path,
    *boxes: _Box,
    on_problem: Callable[[str], None] = lambda _: None,
    cap_bytes: int = CAP_BYTES,
    period_s: float = 1.0,
    silence_s: float = 5.0,
) -> Sampler:
    return Sampler(
        tmp_path / "telemetry.bin",
        boxes,
        boxes[-1].read,
        on_problem,
        cap_bytes=cap_bytes,
        period_s=period_s,
        silence_s=silence_s,
    )


class _Problems(list[str]):
    """Events of a sampler; can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.came = threading.Event()

    def __call__(self, problem: str) -> None:
        self.append(problem)
        self.came.set()


def test_a_file_that_reaches_its_cap_is_thinned_which_is_reported(tmp_path: Path) -> None:
    box, problems = _Box(), list[str]()
    cap_bytes = len(CURRENT.header()) + 16 * CURRENT.row_bytes
    with sampling(tmp_path, box, on_problem=problems.append, cap_bytes=cap_bytes) as sampler:
        sampler.focus((0,))
        box.wait_for(18, 0)
    assert len(list(read_telemetry(tmp_path))) <= 16 + 2
    for device in (HOST, 0):
        found = numbers(tmp_path, device)
        assert found[0] == 0
        assert found == sorted(found)
    assert problems[0].endswith("every second reading was dropped, and it is read every 2 s from now on")
    assert not list(tmp_path.glob("*.thinned"))


def test_a_file_below_its_cap_keeps_every_reading_of_the_gpu_in_use_ten_times_as_often(
    tmp_path: Path,
) -> None:
    box, problems = _Box(gpus=2), list[str]()
    with sampling(tmp_path, box, on_problem=problems.append) as sampler:
        sampler.focus((0,))
        box.wait_for(11, 0)
    for device in (HOST, 0, 1):
        found = numbers(tmp_path, device)
        assert found == list(range(len(found)))
    assert len(numbers(tmp_path, 0)) > 10
    assert len(numbers(tmp_path, 1)) <= 4
    assert problems == []


SILENCE_S = 0.5
SILENT = "box device 1: the driver has not answered for 0.5 s"


@pytest.mark.parametrize("hangs_from", [0, 2])
def test_a_call_that_hangs_costs_the_rows_of_its_own_device_until_it_returns(
    tmp_path: Path, hangs_from: int
) -> None:
    box, problems = _Box(gpus=2, hangs_from=hangs_from), _Problems()
    with sampling(tmp_path, box, on_problem=problems, period_s=0.05, silence_s=SILENCE_S) as sampler:
        if not hangs_from:
            assert problems == [SILENT], "before anything else begins"
        sampler.focus((0, 1))
        assert problems.came.wait(PATIENCE_S)
        box.wait_for(2, HOST, 0)
        assert box.hung.is_set()
        while_it_hung = numbers(tmp_path, 1)
        box.answers.set()
        box.wait_for(3, HOST, 0, 1)
    assert problems == [SILENT]
    assert while_it_hung == list(range(hangs_from))
    for device in (HOST, 0):
        found = numbers(tmp_path, device)
        assert found == list(range(len(found)))
    found = numbers(tmp_path, 1)
    assert found[hangs_from] == hangs_from + 1  # the reading that hung has values of different times
    assert found == sorted(found)


def test_a_sampler_stops_while_a_call_hangs_and_its_file_stays_as_it_is(tmp_path: Path) -> None:
    box = _Box(gpus=2, hangs_from=1)
    with sampling(tmp_path, box, period_s=0.05):
        box.wait_for(4, HOST, 0)
    stored = (tmp_path / "telemetry.bin").read_bytes()
    assert box.hung.is_set()
    box.answers.set()
    for thread in threading.enumerate():
        if thread.name == "read box":
            thread.join(PATIENCE_S)
    assert (tmp_path / "telemetry.bin").read_bytes() == stored
    assert {reading.device for reading in read_telemetry(tmp_path)} == {HOST, 0, 1}


def test_a_source_that_hangs_while_it_opens_holds_up_no_other_and_is_read_once_it_is_open(
    tmp_path: Path,
) -> None:
    class Stuck(_Box):
        NAME: ClassVar[str] = "stuck"

        def open(self) -> tuple[_Gpu, ...]:
            assert self.answers.wait(PATIENCE_S)
            return (_Gpu(self, 1),)

    stuck, box, problems = Stuck(), _Box(), _Problems()
    with sampling(tmp_path, stuck, box, on_problem=problems, period_s=0.05, silence_s=SILENCE_S):
        box.wait_for(3, HOST, 0)
        stuck.answers.set()
        stuck.wait_for(2, 1)
    assert problems == ["stuck: the driver has not answered for 0.5 s"]
    assert 1 in {reading.device for reading in read_telemetry(tmp_path)}


def test_a_source_that_cannot_be_opened_is_a_problem_once_and_one_without_gpus_is_none(
    tmp_path: Path,
) -> None:
    class Broken(_Box):
        NAME: ClassVar[str] = "broken"

        def open(self) -> tuple[_Gpu, ...]:
            raise RuntimeError("no such thing")

    class Without(_Box):
        NAME: ClassVar[str] = "without"

        def open(self) -> Missing:  # type: ignore[override]
            return Missing("its driver is not loaded")

    box, problems = _Box(), _Problems()
    with sampling(tmp_path, Broken(), Without(), box, on_problem=problems, period_s=0.05):
        assert problems.came.wait(PATIENCE_S)
        box.wait_for(3, HOST, 0)
    assert problems == ["broken: this is a bug in gputui: RuntimeError: no such thing"]
    assert {reading.device for reading in read_telemetry(tmp_path)} == {HOST, 0}


def test_what_cannot_be_read_is_a_problem_once_and_has_rows_without_values(tmp_path: Path) -> None:
    class Lost(_Box):
        def read(self, device: int = HOST) -> dict[str, float | int]:
            values = super().read(device)
            if device == 0:
                raise RuntimeError("no such thing")
            return values

    box, problems = Lost(), list[str]()
    with sampling(tmp_path, box, on_problem=problems.append, period_s=0.05):
        box.wait_for(3, HOST, 0)
    assert problems == ["box device 0: this is a bug in gputui: RuntimeError: no such thing"]
    assert [dict(one.values) for one in read_telemetry(tmp_path) if one.device == 0][:2] == [{}, {}]


def test_a_file_that_cannot_be_written_is_reported_and_stops_nothing(tmp_path: Path) -> None:
    problems = _Problems()
    with sampling(tmp_path / "nowhere", _Box(), on_problem=problems):
        pass
    assert problems == ["telemetry stops here: No such file or directory"]
