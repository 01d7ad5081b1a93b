"""Processes behind the PIDs of a driver: real children, and trees like /proc."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.telemetry import AT_SECOND_READING, ENDED, FOREIGN, HIDDEN, GpuUse, ProcessSample
from gputui.sources import processes
from gputui.sources.processes import ProcessTable, end_process, read_stat

WAITS = "import sys; print('here', flush=True); sys.stdin.read()"
INIT_NAMESPACE = "pid:[4026531836]"


def use(pid: int, device: int = 0) -> GpuUse:
    return GpuUse(device, pid, "C", 2**30, 50.0)


@contextmanager
def child(*words: str | bytes) -> Iterator[subprocess.Popen[bytes]]:
    """A running process, which ends when its input is closed."""
    running = subprocess.Popen(
        [sys.executable, "-c", WAITS, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert running.stdout is not None
    assert running.stdout.readline() == b"here\n"
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def end_unseen(running: subprocess.Popen[bytes]) -> None:
    """Kill a child and wait until it is a zombie."""
    running.kill()
    os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT)


def one(table: ProcessTable, pid: int) -> ProcessSample:
    (sample,) = table.look_up((use(pid),))
    return sample


@pytest.fixture
def table() -> ProcessTable:
    return ProcessTable(is_inside=False)


# Real processes


def test_a_process_is_reported_with_its_owner_command_memory_age_and_parent(table: ProcessTable) -> None:
    with child("--steps", "100") as running:
        sample = one(table, running.pid)
    assert sample.user == getpass.getuser()
    assert isinstance(sample.command, str)
    assert sample.command.startswith(sys.executable)
    assert sample.command.endswith(" --steps 100")
    assert isinstance(sample.memory_bytes, int)
    assert 2**20 < sample.memory_bytes < 2**32
    assert isinstance(sample.elapsed_s, float)
    assert 0 <= sample.elapsed_s < 600
    assert sample.parent_pid == os.getpid()
    assert sample.cpu_pct == AT_SECOND_READING


def test_the_share_of_a_cpu_is_known_after_the_second_look(table: ProcessTable) -> None:
    with child() as running:
        one(table, running.pid)
        share = one(table, running.pid).cpu_pct
    assert isinstance(share, float)
    assert share >= 0


def test_a_command_is_kept_raw_but_for_bytes_that_are_no_text(table: ProcessTable) -> None:
    with child(b"\x1b[31m", b"a\nb", b"\xff\xfe") as running:
        command = one(table, running.pid).command
    assert isinstance(command, str)
    assert command.endswith(" \x1b[31m a\nb \ufffd\ufffd")


def test_a_very_long_command_is_cut(table: ProcessTable) -> None:
    with child("x" * 30_000) as running:
        command = one(table, running.pid).command
    assert isinstance(command, str)
    assert len(command) <= 4096


def test_all_processes_of_the_host_are_listed_without_threads_of_the_kernel(table: ProcessTable) -> None:
    with child("--steps", "7") as running:
        found = {sample.pid: sample for sample in table.look_up_all()}
    assert isinstance(found[running.pid].command, str)
    assert found[running.pid].uses == ()
    assert os.getpid() in found
    assert 2 not in found or found[2].command != "[kthreadd]"


def test_a_zombie_is_called_so_and_keeps_what_the_kernel_still_knows(table: ProcessTable) -> None:
    with child() as running:
        end_unseen(running)
        sample = one(table, running.pid)
    assert sample.command == sample.memory_bytes == sample.cpu_pct == processes.ZOMBIE
    assert sample.parent_pid == os.getpid()
    assert sample.user == getpass.getuser()


def test_a_process_that_ended_has_ended(table: ProcessTable) -> None:
    with child() as running:
        one(table, running.pid)
    gone = one(table, running.pid)
    assert gone.user == gone.command == gone.cpu_pct == gone.start_ticks == ENDED
    assert gone.uses == (use(running.pid),)


def test_a_process_on_two_gpus_is_one_process(table: ProcessTable) -> None:
    with child() as running:
        samples = table.look_up((use(running.pid, 1), use(1), use(running.pid, 0)))
    assert [sample.pid for sample in samples] == [running.pid, 1]
    assert [u.device for u in samples[0].uses] == [1, 0]


def test_nothing_is_kept_of_processes_that_are_no_longer_looked_up(table: ProcessTable) -> None:
    with child() as running:
        one(table, running.pid)
        table.look_up(())
        assert one(table, running.pid).cpu_pct == AT_SECOND_READING


def test_threads_of_the_kernel_are_shown_in_brackets(tmp_path: Path) -> None:
    write_process(tmp_path, 2, name="kthreadd")
    assert one(ProcessTable(tmp_path), 2).command == "[kthreadd]"


# Trees like /proc


class Clock:
    def __init__(self) -> None:
        self.now_ns = 10**12

    def __call__(self) -> int:
        return self.now_ns


def write_process(
    root: Path,
    pid: int,
    *,
    name: str = "python3",
    cpu_ticks: int = 0,
    start_ticks: int = 100,
    command: bytes = b"",
    state: str = "S",
) -> None:
    fields = [state, "1", *"0" * 9, str(cpu_ticks), *"0" * 7, str(start_ticks), "0", "25", *"0" * 28]
    directory = root / "proc" / str(pid)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")
    (directory / "cmdline").write_bytes(command)
    write_self(root)


def write_self(root: Path, namespace: str = INIT_NAMESPACE, mounts: str = "") -> None:
    (root / "proc" / "self" / "ns").mkdir(parents=True, exist_ok=True)
    link = root / "proc" / "self" / "ns" / "pid"
    if not link.is_symlink():
        link.symlink_to(namespace)
        (root / "proc" / "self" / "mounts").write_text(mounts)


def hold(root: Path, pid: int, *files: str) -> None:
    directory = root / "proc" / str(pid) / "fd"
    directory.mkdir(parents=True)
    for number, target in enumerate(files):
        (directory / str(number)).symlink_to(target)


def test_names_may_hold_brackets_and_blanks(tmp_path: Path) -> None:
    write_process(tmp_path, 7, name="a) S 1 (b", start_ticks=55)
    stat = read_stat(7, str(tmp_path / "proc"))
    assert (stat.name, stat.state, stat.start_ticks, stat.resident_pages) == ("a) S 1 (b", "S", 55, 25)


def test_the_share_is_of_the_time_between_two_looks(tmp_path: Path) -> None:
    clock, ticks_per_s = Clock(), os.sysconf("SC_CLK_TCK")
    write_process(tmp_path, 7)
    table = ProcessTable(tmp_path, clock)
    one(table, 7)
    clock.now_ns += 2 * 10**9
    write_process(tmp_path, 7, cpu_ticks=3 * ticks_per_s)
    assert one(table, 7).cpu_pct == pytest.approx(150)


def test_a_pid_that_is_used_again_is_another_process(tmp_path: Path) -> None:
    clock = Clock()
    write_process(tmp_path, 7, command=b"old\0", cpu_ticks=500)
    table = ProcessTable(tmp_path, clock)
    assert one(table, 7).command == "old"
    clock.now_ns += 10**9
    write_process(tmp_path, 7, command=b"new\0", start_ticks=9000)
    sample = one(table, 7)
    assert (sample.command, sample.cpu_pct, sample.start_ticks) == ("new", AT_SECOND_READING, 9000)


def test_a_program_that_replaced_another_shows_its_own_command(tmp_path: Path) -> None:
    clock = Clock()
    write_process(tmp_path, 7, name="sh", command=b"sh\0-c\0x")
    table = ProcessTable(tmp_path, clock)
    one(table, 7)
    write_process(tmp_path, 7, name="python3", command=b"python3\0train.py")
    assert one(table, 7).command == "python3 train.py"
    write_process(tmp_path, 7, name="python3", command=b"python3\0eval.py")
    clock.now_ns += 11 * 10**9
    assert one(table, 7).command == "python3 eval.py"


def test_inside_a_container_a_pid_of_the_host_is_labelled_so(tmp_path: Path) -> None:
    write_self(tmp_path, "pid:[4026532761]")
    sample = one(ProcessTable(tmp_path), 31337)
    assert sample.user == sample.start_ticks == processes.NOT_OF_HERE


def test_inside_a_container_a_pid_is_believed_only_of_a_process_that_holds_a_gpu(tmp_path: Path) -> None:
    write_self(tmp_path, "pid:[4026532761]")
    write_process(tmp_path, 57, command=b"bash\0")
    hold(tmp_path, 57, "/dev/pts/0", "/home/nvidia")
    write_process(tmp_path, 58, command=b"train\0")
    hold(tmp_path, 58, "/dev/null", "/dev/nvidiactl")
    table = ProcessTable(tmp_path)
    assert one(table, 57).command == processes.ANOTHER_HERE
    assert one(table, 57).start_ticks == processes.ANOTHER_HERE
    assert one(table, 58).command == "train"


def test_a_proc_that_hides_other_users_is_reported(tmp_path: Path) -> None:
    write_self(tmp_path, mounts="proc /proc proc rw,nosuid,hidepid=2 0 0\n")
    assert one(ProcessTable(tmp_path), 31337).user == HIDDEN


def test_a_process_that_may_not_be_looked_at_is_another_users() -> None:
    # Root can read everything, so another user tries.
    code = f"""
import os, sys
from pathlib import Path
from gputui.model.telemetry import GpuUse
from gputui.sources.processes import ProcessTable
table = ProcessTable(Path(sys.argv[1]))
if os.getuid() == 0:
    os.setuid(65534)
print(table.look_up((GpuUse(0, 7, "C", 0, 0.0),))[0].user == {FOREIGN!r})
"""
    code = "from gputui.model.absent import Missing\n" + code
    with closed_tree() as root:
        assert subprocess.check_output([sys.executable, "-c", code, str(root)], text=True) == "True\n"


@contextmanager
def closed_tree() -> Iterator[Path]:
    """A /proc that every user may enter, with a process whose files nobody may read."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_process(root, 7)
        root.chmod(0o755)
        stat = root / "proc" / "7" / "stat"
        stat.chmod(0)
        yield root


def test_without_proc_nothing_is_known(tmp_path: Path) -> None:
    assert one(ProcessTable(tmp_path), 7).user == processes.NO_PROC


@pytest.mark.parametrize("text", ["", "7 (x", "7 (x) S 1 2", "7 (x) S one" + " 0" * 30])
def test_a_stat_file_that_makes_no_sense_is_nobody(tmp_path: Path, text: str) -> None:
    write_process(tmp_path, 7)
    (tmp_path / "proc" / "7" / "stat").write_text(text)
    assert isinstance(one(ProcessTable(tmp_path), 7).user, Missing)


# Ending a process


def test_the_process_that_was_chosen_gets_the_signal() -> None:
    with child() as running:
        end_process(running.pid, read_stat(running.pid).start_ticks, signal.SIGTERM)
        assert running.wait() == -signal.SIGTERM


def test_without_handles_of_processes_it_is_ended_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    with child() as running:
        end_process(running.pid, read_stat(running.pid).start_ticks, signal.SIGINT)
        running.wait()


def test_another_process_with_the_same_pid_is_left_alone() -> None:
    with child() as running:
        with pytest.raises(GputuiError, match=rf"process {running.pid} has ended, and '.+' has its number"):
            end_process(running.pid, read_stat(running.pid).start_ticks - 1, signal.SIGKILL)
        assert running.poll() is None


@pytest.mark.parametrize("has_handles", [True, False])
def test_a_process_that_is_gone_cannot_be_ended(has_handles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_handles:
        monkeypatch.delattr(os, "pidfd_open")
    with child() as running:
        start_ticks = read_stat(running.pid).start_ticks
    with pytest.raises(GputuiError, match=f"process {running.pid} has ended"):
        end_process(running.pid, start_ticks, signal.SIGTERM)


def test_a_zombie_cannot_be_ended() -> None:
    with child() as running:
        start_ticks = read_stat(running.pid).start_ticks
        end_unseen(running)
        with pytest.raises(GputuiError, match=f"waits for its parent {os.getpid()}"):
            end_process(running.pid, start_ticks, signal.SIGTERM)


def test_another_users_process_cannot_be_ended() -> None:
    code = """
import os, sys
from gputui.errors import GputuiError
from gputui.sources.processes import end_process, read_stat
pid = os.getppid() if os.getuid() == 0 else 1
start_ticks = read_stat(pid).start_ticks
if os.getuid() == 0:
    os.setuid(65534)
try:
    end_process(pid, start_ticks, 0)
except GputuiError as error:
    print(error.message)
"""
    reported = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert "belongs to another user: nothing was sent" in reported
