"""What a live view costs and how quick it is, in a real pty; of any program, so of peers too.

For example:

    python tests/benchmarks/live_view.py --gpus 8 --processes 40 -- gputui monitor
    python tests/benchmarks/live_view.py --gpus 8 --processes 40 -- nvitop -m full
    python tests/benchmarks/live_view.py --gpus 8 --no-keys -- gpustat -i 1

CPU is of all threads of the one process, as % of one core. Over the slow link the pty is drained at once, as
by an SSH server, and the terminal sees it later. The first start is not counted, and may write bytecode
(PYTHONDONTWRITEBYTECODE is taken away): what is compiled anew at every start is not what users wait for.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import statistics
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "makers"))

from nvml.standin import standin_environment
from pty_harness import Terminal

WARM_UP_S = 3.0
SLOW_LINK = 10_000


@dataclass
class Options:
    """Options of a measurement."""

    command: list[str]
    starts: int
    seconds: float
    slow_seconds: float
    key: bytes
    quit: bytes
    has_keys: bool
    pause: bytes
    """The key that stops the picture; empty if there is none."""
    environment: dict[str, str]


class MovingGpus:
    """The stand-in's readings, changed every half second."""

    def __init__(self, gpus: int, scenario: str) -> None:
        self._gpus = gpus
        self._fixed = scenario
        self.environment = standin_environment(self._text())
        self._path = Path(self.environment["GPUTUI_NVML_SCENARIO"])
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._move, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ends.set()
        self._thread.join()

    def _text(self) -> str:
        lines = [f"driver gpus {self._gpus}", self._fixed]
        for gpu in range(self._gpus):
            lines += [
                f"{gpu} power_mw {random.randint(90, 700) * 1000}",
                f"{gpu} temperature_c {random.randint(30, 80)}",
                f"{gpu} sm_busy_pct {random.randint(0, 100)}",
                f"{gpu} memory_busy_pct {random.randint(0, 100)}",
                f"{gpu} memory_used_mib {random.randint(1, 140) * 1024}",
                f"{gpu} sm_clock_mhz {random.randint(345, 1980)}",
            ]
        return "\n".join(lines) + "\n"

    def _move(self) -> None:
        while not self._ends.wait(0.5):
            moved = self._path.with_suffix(".new")
            moved.write_text(self._text())
            moved.rename(self._path)


def pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def first_ms(terminal: Terminal, holds: int) -> float:
    """Time from the start until this many lines of the screen are not empty; infinite after 5 s."""
    try:
        terminal.wait_for(lambda: sum(bool(line.strip()) for line in terminal.screen.display) >= holds, 5.0)
    except AssertionError:
        return math.inf
    return (terminal.seen_s[-1][1] - terminal.started_s) * 1000


def print_starts(options: Options, columns: int, lines: int) -> None:
    """First frames of several starts, and the CPU time they took."""
    found: list[tuple[float, float, float]] = []
    for _ in range(options.starts + 1):
        with Terminal(options.command, columns, lines, environment=options.environment) as terminal:
            found.append((first_ms(terminal, 1), first_ms(terminal, lines // 2), terminal.cpu_s() * 1000))
            terminal.type(options.quit)
            with contextlib.suppress(subprocess.TimeoutExpired):
                terminal.process.wait(5)
    names = ("something on the screen", "half of the screen filled", "... CPU until then")
    for what, times in zip(names, zip(*found[1:], strict=True), strict=True):
        print(f"  {what:28s} {min(times):8.0f} ms at least, {statistics.median(times):.0f} ms median")


def fast_terminal(options: Options, columns: int, lines: int) -> None:
    print_starts(options, columns, lines)
    with Terminal(options.command, columns, lines, environment=options.environment) as terminal:
        pause(max(0.0, 1.5 - (monotonic() - terminal.started_s)))
        if terminal.process.poll() is not None:
            print(f"  it ended with status {terminal.process.returncode}:\n{terminal.text.strip()}")
            return
        print(f"  {'bytes in the first 1.5 s':28s} {len(terminal.raw):8d}")
        print(f"  {'CPU until then':28s} {terminal.cpu_s():8.2f} s")
        pause(WARM_UP_S)
        cpu_s, written, begin_s = terminal.cpu_s(), len(terminal.raw), monotonic()
        woken, threads = wake_ups(terminal)
        pause(options.seconds)
        took_s = monotonic() - begin_s
        woken_later, threads_later = wake_ups(terminal)
        print(f"  {'CPU of one core':28s} {(terminal.cpu_s() - cpu_s) / took_s * 100:8.2f} %")
        print(f"  {'to the terminal':28s} {(len(terminal.raw) - written) / took_s / 1000:8.2f} kB/s")
        print(f"  {'wake-ups':28s} {(woken_later - woken) / took_s:8.1f} a second")
        print(f"  {'threads':28s} {max(threads, threads_later):8d}")
        peak = peak_mib(terminal)
        print(f"  {'memory, now / at most':28s} {terminal.rss_bytes() / 2**20:8.1f} / {peak:.1f} MiB")
        if options.has_keys:
            keys_to_paint(options, terminal)
        if options.pause:
            bytes_while_paused(options, terminal)
        print_quit(options, terminal)


def bytes_while_paused(options: Options, terminal: Terminal) -> None:
    """What is written while nothing on the screen changes."""
    terminal.type(options.pause)
    pause(2.0)
    written = len(terminal.raw)
    pause(options.seconds)
    count = len(terminal.raw) - written
    print(f"  {'while nothing changes':28s} {count:8d} bytes in {options.seconds:g} s")
    terminal.type(options.pause)


def keys_to_paint(options: Options, terminal: Terminal, presses: int = 30) -> None:
    times_ms = []
    for _ in range(presses):
        pause(random.uniform(0.15, 0.35))
        written, begin_s = len(terminal.raw), monotonic()
        terminal.type(options.key)
        try:
            terminal.wait_for(lambda: len(terminal.raw) > written, 3.0)  # noqa: B023
        except AssertionError:
            print(f"  {'key to paint':28s} {'nothing':>8s} within 3 s")
            return
        times_ms.append((terminal.seen_s[-1][1] - begin_s) * 1000)
    ninth = statistics.quantiles(times_ms, n=10)[8]
    median = statistics.median(times_ms)
    print(
        f"  {'key to paint':28s} {median:8.1f} ms median, {ninth:.1f} ms p90, {max(times_ms):.1f} ms at most"
    )


def print_quit(options: Options, terminal: Terminal) -> None:
    begin_s = monotonic()
    terminal.type(options.quit)
    try:
        status = terminal.process.wait(10)
        print(f"  {'quit':28s} {(monotonic() - begin_s) * 1000:8.0f} ms, status {status}")
    except Exception:
        print(f"  {'quit':28s} {'not':>8s} within 10 s")


def slow_link(options: Options, columns: int, lines: int) -> None:
    with Terminal(
        options.command, columns, lines, environment=options.environment, bytes_per_s=SLOW_LINK
    ) as terminal:
        pause(options.slow_seconds)
        if terminal.process.poll() is not None:
            return
        lag_s, longest_s = terminal.lag_s, terminal.longest_lag_s
        link = f"{SLOW_LINK / 1000:g} kB/s link, picture is old"
        print(f"  {link:28s} {lag_s:8.2f} s, {longest_s:.2f} s at most")
        print_quit(options, terminal)


def wake_ups(terminal: Terminal) -> tuple[int, int]:
    """How often its threads have waited for something and gone on, and how many threads there are."""
    count = threads = 0
    for task in Path(f"/proc/{terminal.process.pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            status = (task / "status").read_text()
            count += int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
            threads += 1
    return count, threads


def peak_mib(terminal: Terminal) -> float:
    status = Path(f"/proc/{terminal.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def size_of(text: str) -> tuple[int, int]:
    columns, _, lines = text.partition("x")
    return int(columns), int(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", nargs="+")
    parser.add_argument("--size", type=size_of, action="append", help="80x24 and 200x50 if none is given")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long CPU and bytes are counted")
    parser.add_argument("--slow-seconds", type=float, default=20.0, help="how long the slow link is watched")
    parser.add_argument("--gpus", type=int, default=0, help="moving GPUs of the stand-in library")
    parser.add_argument("--processes", type=int, default=0, help="real processes, spread over those GPUs")
    parser.add_argument("--starts", type=int, default=5, help="how many starts are timed")
    parser.add_argument("--scenario", type=Path, help="more lines for the stand-in, as for processes")
    parser.add_argument("--key", default=r"\x1b[B", help="a key that changes the picture; default: down")
    parser.add_argument("--quit", default="q", help="the key that ends it; \\x03 is Ctrl-C")
    parser.add_argument("--pause", default="", help="the key that stops the picture: bytes are counted then")
    parser.add_argument("--no-keys", action="store_true", help="keys do nothing but end it")
    words = parser.parse_args()
    environment: dict[str, str] = {"COLORTERM": "truecolor"}
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sleepers = [subprocess.Popen(["sleep", "infinity"]) for _ in range(words.processes if words.gpus else 0)]
    moving = None
    if words.gpus:
        scenario = [words.scenario.read_text()] if words.scenario else []
        scenario += [
            f"{n % words.gpus} process {sleeper.pid} C {2048 + 512 * (n % 7)} {5 + 11 * n % 60}"
            for n, sleeper in enumerate(sleepers)
        ]
        moving = MovingGpus(words.gpus, "\n".join(scenario))
        environment |= moving.environment
    options = Options(
        command=words.command,
        starts=words.starts,
        seconds=words.seconds,
        slow_seconds=words.slow_seconds,
        key=words.key.encode().decode("unicode_escape").encode("latin-1"),
        quit=words.quit.encode().decode("unicode_escape").encode("latin-1"),
        has_keys=not words.no_keys,
        pause=words.pause.encode(),
        environment=environment,
    )
    try:
        for columns, lines in words.size or [(80, 24), (200, 50)]:
            print(f"{' '.join(words.command)} at {columns}x{lines}")
            fast_terminal(options, columns, lines)
            slow_link(options, columns, lines)
    finally:
        if moving is not None:
            moving.close()
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


if __name__ == "__main__":
    main()
