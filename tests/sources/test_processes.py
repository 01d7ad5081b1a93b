"""Processes behind the PIDs of a driver: real children, and trees like /proc."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
import sys
import tempfile
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
        share = one(table, running.pid).cpu_pct
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
    assert isinstance(share, float)
    assert share >= 0
    gone = one(table, running.pid)
    assert gone.user == gone.command == gone.cpu_pct == gone.start_ticks == ENDED
    assert gone.uses == (use(running.pid),)


def test_a_command_is_kept_raw_but_for_bytes_that_are_no_text_and_cut_where_it_is_very_long(
    tmp_path: Path,
) -> None:
    write_process(tmp_path, 7, command=b"train\0\x1b[31m\0a\nb\0\xff\xfe\0")
    write_process(tmp_path, 8, command=b"x" * 30_000)
    write_process(tmp_path, 2, name="kthreadd")
    table = ProcessTable(tmp_path)
    assert one(table, 7).command == "train \x1b[31m a\nb \ufffd\ufffd"
    assert one(table, 8).command == "x" * 4096
    assert one(table, 2).command == "[kthreadd]", "a thread of the kernel has none"


def test_all_processes_of_the_host_are_listed_without_threads_of_the_kernel(table: ProcessTable) -> None:
    with child("--steps", "7") as running:
        found = {sample.pid: sample for sample in table.look_up_all()}
    assert isinstance(found[running.pid].command, str)
    assert found[running.pid].uses == ()
    assert os.getpid() in found
    assert 2 not in found or found[2].command != "[kthreadd]"


def test_a_zombie_is_called_so_and_keeps_what_the_kernel_still_knows(table: ProcessTable) -> None:
    with child() as running:
        running.kill()
        os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT)
        sample = one(table, running.pid)
    assert sample.command == sample.memory_bytes == sample.cpu_pct == processes.ZOMBIE
    assert sample.parent_pid == os.getpid()
    assert sample.user == getpass.getuser()


def test_a_process_on_two_gpus_is_one_and_nothing_is_kept_of_those_not_looked_up(tmp_path: Path) -> None:
    now_ns = iter(range(10**12, 10**13, 10**9))
    for pid in (7, 8):
        write_process(tmp_path, pid)
    table = ProcessTable(tmp_path, lambda: next(now_ns))
    samples = table.look_up((use(7, 1), use(8), use(7, 0)))
    assert [(s.pid, [u.device for u in s.uses]) for s in samples] == [(7, [1, 0]), (8, [0])]
    table.look_up((use(8),))
    assert one(table, 7).cpu_pct == AT_SECOND_READING


# Trees like /proc


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


def test_names_may_hold_brackets_and_blanks(tmp_path: Path) -> None:
    write_process(tmp_path, 7, name="a) S 1 (b", start_ticks=55)
    stat = read_stat(7, str(tmp_path / "proc"))
    assert (stat.name, stat.state, stat.start_ticks, stat.resident_pages) == ("a) S 1 (b", "S", 55, 25)


def test_the_share_is_of_the_time_between_two_looks_and_a_pid_used_again_is_another_process(
    tmp_path: Path,
) -> None:
    now_ns, ticks_per_s = iter(range(10**12, 10**13, 2 * 10**9)), os.sysconf("SC_CLK_TCK")
    write_process(tmp_path, 7, command=b"old\0")
    table = ProcessTable(tmp_path, lambda: next(now_ns))
    assert one(table, 7).command == "old"
    write_process(tmp_path, 7, command=b"old\0", cpu_ticks=3 * ticks_per_s)
    assert one(table, 7).cpu_pct == pytest.approx(150)
    write_process(tmp_path, 7, command=b"new\0", start_ticks=9000)
    sample = one(table, 7)
    assert (sample.command, sample.cpu_pct, sample.start_ticks) == ("new", AT_SECOND_READING, 9000)


def test_a_program_that_replaced_another_shows_its_own_command(tmp_path: Path) -> None:
    now_ns = [10**12]
    write_process(tmp_path, 7, name="sh", command=b"sh\0-c\0x")
    table = ProcessTable(tmp_path, lambda: now_ns[0])
    one(table, 7)
    write_process(tmp_path, 7, name="python3", command=b"python3\0train.py")
    assert one(table, 7).command == "python3 train.py"
    write_process(tmp_path, 7, name="python3", command=b"python3\0eval.py")
    now_ns[0] += 11 * 10**9
    assert one(table, 7).command == "python3 eval.py"


def test_inside_a_container_a_pid_is_believed_only_of_a_process_that_holds_a_gpu(tmp_path: Path) -> None:
    write_self(tmp_path, "pid:[4026532761]")
    held = {57: ("/dev/pts/0", "/home/nvidia"), 58: ("/dev/null", "/dev/nvidiactl")}
    for pid, files in held.items():
        write_process(tmp_path, pid, command=b"train\0")
        (tmp_path / "proc" / str(pid) / "fd").mkdir()
        for number, target in enumerate(files):
            (tmp_path / "proc" / str(pid) / "fd" / str(number)).symlink_to(target)
    table = ProcessTable(tmp_path)
    assert one(table, 57).command == processes.ANOTHER_HERE
    assert one(table, 57).start_ticks == processes.ANOTHER_HERE
    assert one(table, 58).command == "train"
    assert one(table, 31337).user == one(table, 31337).start_ticks == processes.NOT_OF_HERE


def test_a_process_that_may_not_be_looked_at_is_another_users() -> None:
    # Root can read everything, so another user tries.
    code = f"""
import os, sys
from pathlib import Path
from gputui.model.absent import Missing
from gputui.model.telemetry import GpuUse
from gputui.sources.processes import ProcessTable
table = ProcessTable(Path(sys.argv[1]))
if os.getuid() == 0:
    os.setuid(65534)
print(table.look_up((GpuUse(0, 7, "C", 0, 0.0),))[0].user == {FOREIGN!r})
"""
    with tempfile.TemporaryDirectory() as name:  # which every user may enter
        root = Path(name)
        write_process(root, 7)
        root.chmod(0o755)
        (root / "proc" / "7" / "stat").chmod(0)
        assert subprocess.check_output([sys.executable, "-c", code, name], text=True) == "True\n"


def test_without_proc_nothing_is_known_and_one_that_hides_other_users_is_reported(tmp_path: Path) -> None:
    assert one(ProcessTable(tmp_path), 7).user == processes.NO_PROC
    write_self(tmp_path, mounts="proc /proc proc rw,nosuid,hidepid=2 0 0\n")
    assert one(ProcessTable(tmp_path), 31337).user == HIDDEN


def test_a_stat_file_that_makes_no_sense_is_nobody(tmp_path: Path) -> None:
    write_process(tmp_path, 7)
    for text in ("", "7 (x", "7 (x) S 1 2", "7 (x) S one" + " 0" * 30):
        (tmp_path / "proc" / "7" / "stat").write_text(text)
        assert isinstance(one(ProcessTable(tmp_path), 7).user, Missing), text


# Ending a process


@pytest.mark.parametrize("has_handles", [True, False])
def test_the_process_that_was_chosen_gets_the_signal_and_none_that_is_another_or_gone(
    has_handles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_handles:
        monkeypatch.delattr(os, "pidfd_open")
    with child() as running:
        start_ticks = read_stat(running.pid).start_ticks
        with pytest.raises(GputuiError, match=rf"process {running.pid} has ended, and '.+' has its number"):
            end_process(running.pid, start_ticks - 1, signal.SIGKILL)
        assert running.poll() is None
        end_process(running.pid, start_ticks, signal.SIGTERM)
        os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(GputuiError, match=f"waits for its parent {os.getpid()}"):
            end_process(running.pid, start_ticks, signal.SIGTERM)
        assert running.wait() == -signal.SIGTERM
    with pytest.raises(GputuiError, match=f"process {running.pid} has ended"):
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
