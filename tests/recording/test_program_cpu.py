"""A program's threads are counted with those of what it starts, and what others took beside them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gputui.recording.recorder import CpuUse, ProgramCpu

S = 10**9
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Box:
    """A /proc with processes of one thread or several."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.busy(0)

    def busy(self, seconds: int) -> None:
        """How long the one CPU was busy since boot."""
        line = f"{seconds * TICKS_PER_S} 0 0 50 0 0 0 0 0 0"
        self._write("stat", f"cpu  {line}\ncpu0 {line}\n")

    def process(self, pid: int, parent: int, *threads: tuple[int, int]) -> None:
        """With how many seconds each of its threads ran and waited."""
        self._write(f"{pid}/stat", f"{pid} (a (b) c) S {parent} " + "0 " * 40)
        for number, (ran_s, waited_s) in enumerate(threads):
            self._write(f"{pid}/task/{pid + 100 * number}/schedstat", f"{ran_s * S} {waited_s * S} 7\n")

    def _write(self, name: str, text: str) -> None:
        path = self.root / "proc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def box(tmp_path: Path) -> Box:
    box = Box(tmp_path)
    box.process(5, 1, (100, 100))
    box.process(10, 5, (0, 0))
    return box


def used(cpu: ProgramCpu) -> tuple[int, int, int, int]:
    use = cpu.use()
    assert isinstance(use, CpuUse)
    return use.cpu_ns // S, use.waited_ns // S, use.box_ns // S, use.waited_for_others_ns // S


def test_what_a_program_starts_counts_as_its_own_and_other_processes_do_not(box: Box) -> None:
    cpu = ProgramCpu(box.root)
    cpu.begin(10)
    box.process(10, 5, (3, 2), (1, 0))
    box.process(11, 10, (2, 1))
    box.process(12, 11, (1, 1))
    box.process(13, 5, (50, 50))
    box.busy(20)
    cpu.end()
    assert used(cpu) == (7, 4, 20, 4)


def test_threads_that_waited_for_each_other_did_not_wait_for_other_programs(box: Box) -> None:
    cpu = ProgramCpu(box.root)
    cpu.begin(10)
    box.process(10, 5, (5, 5), (5, 5))
    box.busy(12)
    cpu.end()
    assert used(cpu) == (10, 10, 12, 2)


def test_a_thread_that_has_ended_still_counts(box: Box) -> None:
    cpu = ProgramCpu(box.root)
    box.process(11, 10, (4, 4))
    cpu.begin(10)
    box.process(11, 10, (6, 5))
    cpu.read()
    (box.root / "proc/11/stat").unlink()
    (box.root / "proc/11/task/11/schedstat").unlink()
    box.busy(9)
    cpu.end()
    assert used(cpu) == (2, 1, 9, 1)


def test_without_counters_and_outside_of_its_readings_nothing_is_claimed(box: Box, tmp_path: Path) -> None:
    without, cpu = ProgramCpu(tmp_path / "nowhere"), ProgramCpu(box.root)
    without.begin(10)
    cpu.begin(10)
    box.process(10, 5, (3, 2))
    without.end()
    cpu.end()
    assert without.use() is cpu.use(2**62, 2**63) is None


def test_a_program_that_seems_to_use_more_than_the_box_leaves_nothing_for_others() -> None:
    use = CpuUse(wall_ns=S, cpu_ns=2 * S, waited_ns=S, box_ns=2 * S - 1)
    assert (use.others_ns, use.waited_for_others_ns) == (0, 0)
