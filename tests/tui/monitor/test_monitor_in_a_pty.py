"""The command in a real pty, with GPUs that fail in every way the stand-in library supports."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from itertools import dropwhile, takewhile
from pathlib import Path

import pytest
import tomllib
from nvml.standin import c_compiler, moving_gpus, standin_environment
from pty_harness import DEADLINE_S, Terminal

pytestmark = pytest.mark.skipif(c_compiler() is None, reason="no C compiler to build the stand-in with")

REPOSITORY = Path(__file__).parents[3]
NOBODY = 65534


class Box:
    """A machine whose GPUs follow a scenario; later lines override earlier ones."""

    def __init__(self, *lines: str, gpus: int = 3) -> None:
        self.environment = standin_environment("\n".join([moving_gpus(gpus, 0), *lines, ""]))
        self.scenario = Path(self.environment["GPUTUI_NVML_SCENARIO"])

    def now(self, *lines: str) -> None:
        """Add lines to the scenario, atomically, so that it is never read in part."""
        whole = self.scenario.with_suffix(".new")
        whole.write_text("\n".join([self.scenario.read_text(), *lines, ""]))
        whole.replace(self.scenario)

    def monitor(
        self, *words: str, columns: int = 108, lines: int = 40, command: str = "monitor", **changes: str
    ) -> Terminal:
        """So wide that several GPUs are a table still."""
        environment = {**self.environment, "PYTHONPATH": str(REPOSITORY), **changes}
        called = [sys.executable, "-m", "gputui", *filter(None, [command]), *words]
        return Terminal(called, columns, lines, environment=environment)


def rows(terminal: Terminal) -> list[str]:
    return terminal.text.splitlines()


def pane(terminal: Terminal, gpu: int) -> str:
    """What is shown of a GPU: its row, those of its slices, and its charts if it is the one below the table.

    Of the only GPU: the second line and its charts.
    """
    shown = rows(terminal)
    heading = next((n for n, row in enumerate(shown) if row.startswith("GPU ")), None)
    if heading is None:
        return "\n".join(takewhile(_is_of_gpus, shown[1:]))
    table = list(takewhile(_is_of_gpus, shown[heading + 1 :]))
    others = dropwhile(lambda row: not re.match(rf"[▸ ]*{gpu} ", row), table)
    found = [next(others, ""), *takewhile(lambda row: row.lstrip("▸ ").startswith(("├", "└")), others)]
    charts = dropwhile(lambda row: not row.startswith(f"─ GPU {gpu} ──"), shown)
    return "\n".join([*found, next(charts, ""), *takewhile(_is_of_gpus, charts)])


def _is_of_gpus(row: str) -> bool:
    return not row.startswith(("host ", "─"))


def busy(terminal: Terminal, gpu: int) -> int | None:
    """The percentage in the row of a GPU, or beside the chart of the only one."""
    found = re.search(r"\A[▸ ]*\d+ +(?:whole +)?(\d+) |^ +busy +(\d+) %", pane(terminal, gpu), re.MULTILINE)
    return int(found[1] or found[2]) if found else None


def wait_for_load(terminal: Terminal, gpu: int) -> None:
    """Wait until a GPU is shown with how busy it is."""
    terminal.wait_for(lambda: busy(terminal, gpu) is not None)


def select(terminal: Terminal, gpu: int) -> None:
    """Select one of several GPUs: its charts, and why it is not well, are then below the table."""

    def selected() -> str:
        found = re.search(r"^▸ *(\d+) ", terminal.text, re.MULTILINE)
        return found[1] if found else ""

    while (before := selected()) != str(gpu):
        terminal.type(b"\t")
        terminal.wait_for(lambda old=before: selected() != old)  # type: ignore[misc]
    terminal.wait_for(f"─ GPU {gpu} ──")


def wait_for_pane(terminal: Terminal, gpu: int, *wanted: str) -> None:
    """Wait until the pane of a GPU contains all of these."""
    terminal.wait_for(lambda: all(text in pane(terminal, gpu) for text in wanted))


def leave(terminal: Terminal) -> None:
    terminal.type(b"q")
    assert terminal.ended() == 0
    terminal.wait_for(lambda: not terminal.is_alternate and terminal.is_cursor_shown)


def box_without_library() -> Box:
    """Even if the machine has the real library: an invalid file hides it."""
    box = Box()
    place = box.scenario.with_suffix(".empty")
    place.mkdir()
    (place / "libnvidia-ml.so.1").touch()
    box.environment["LD_LIBRARY_PATH"] = str(place)
    return box


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    begun: list[subprocess.Popen[bytes]] = []
    yield begun
    for child in begun:
        child.kill()
        child.communicate()


def begin(
    children: list[subprocess.Popen[bytes]], *words: str | bytes, user: int | None = None
) -> subprocess.Popen[bytes]:
    """A process that runs until it is ended, and is running when this returns."""
    command: Sequence[str | bytes] = ["/bin/sh", "-c", "echo; read x", *words]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=user, group=user, cwd="/"
    )
    children.append(child)
    assert child.stdout is not None
    assert child.stdout.readline()
    return child


# Nothing readable at the start


def test_without_a_driver_the_host_is_shown_with_the_cause_and_the_cure() -> None:
    box, cause, cure = box_without_library(), "libnvidia-ml.so.1 was not found", "--gpus all"
    Path("a.db").touch()
    with box.monitor() as terminal:
        terminal.wait_for(cause)
        assert cure in terminal.text
        assert "no GPU" in rows(terminal)[1]
        assert "You can still: 2 choose a profile" in terminal.text
        assert "5 see whether this box can measure" in " ".join(terminal.text.split())
        assert "Ring when a run ends" not in terminal.text
        terminal.wait_for(lambda: any(re.match(r" +CPU +[\d.]+ cores", row) for row in rows(terminal)))
        leave(terminal)
    done = subprocess.run(
        [sys.executable, "-m", "gputui", "snapshot", "--require-gpu"],
        env={**os.environ, **box.environment, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S * 2,
    )
    assert done.returncode == 3
    assert cause in done.stderr
    assert cure in done.stderr


# GPUs that fail


@pytest.mark.slow
def test_a_gpu_that_is_lost_while_it_is_watched_heals_when_its_driver_does() -> None:
    box = Box()
    with box.monitor() as terminal:
        wait_for_load(terminal, 1)
        box.now("1 error * 15")
        wait_for_pane(terminal, 1, "LOST")
        select(terminal, 1)
        wait_for_pane(terminal, 1, "─ GPU 1 ── LOST: ", "it fell off the bus", "busy  –")
        assert "LOST" not in pane(terminal, 0) + pane(terminal, 2)
        box.now("1 error * 0")
        terminal.wait_for(lambda: "LOST" not in pane(terminal, 1) and busy(terminal, 1) is not None)
        leave(terminal)


def test_a_call_that_hangs_stops_neither_keys_nor_the_other_gpus_nor_the_end() -> None:
    box = Box("1 delay_ms nvmlDeviceGetUtilizationRates 5000")
    with box.monitor() as terminal:
        for gpu in (0, 2):
            wait_for_load(terminal, gpu)
        select(terminal, 1)
        wait_for_pane(terminal, 1, "STALE", "the driver has not answered for ")
        aged = pane(terminal, 1)
        terminal.wait_for(lambda: pane(terminal, 1) != aged)
        assert "STALE" not in pane(terminal, 0) + pane(terminal, 2)
        box.now("1 delay_ms nvmlDeviceGetUtilizationRates 0")
        terminal.wait_for(lambda: "STALE" not in pane(terminal, 1) and busy(terminal, 1) is not None)
        box.now("1 delay_ms nvmlDeviceGetUtilizationRates 900000")
        wait_for_pane(terminal, 1, "the driver has not answered for ")
        moving = pane(terminal, 2)
        terminal.wait_for(lambda: pane(terminal, 2) != moving)
        terminal.type(b"?")
        terminal.wait_for("─ Keys of this screen ──")
        terminal.wait_for("Choose a profile and watch it")
        terminal.type(b"?")
        wait_for_pane(terminal, 1, "the driver has not answered for ")
        leave(terminal)


# Processes


HOSTILE = (
    b"\x1b]0;pwned\x07",
    b"\x1b[2J\x1b[31mred",
    b"[bold red]markup[/]",
    b"two\nlines\r\x08\x08",
    "\u202etfel ot thgir\u2066".encode(),
    b"\xff\xfe\x80 bad",
    "\x9b5m\x85".encode(),
    b"L" * 3000,
)


def test_nothing_raw_of_a_name_reaches_the_terminal(children: list[subprocess.Popen[bytes]]) -> None:
    """Of a process, of a GPU; while it is shown, in its question, and at the end."""
    child = begin(children, *HOSTILE)
    name = r"0 name \x1b]0;pwned\x07\x1b[2J[red]\n\xe2\x80\xae\xff\xc2\x9b5m"
    with Box(name, f"0 process {child.pid} C 2048 55", gpus=1).monitor() as terminal:
        terminal.wait_for(lambda: any(str(child.pid) in row and "pwned" in row for row in rows(terminal)))
        wait_for_pane(terminal, 0, "pwned", "[red]")
        terminal.type(b"\x1b[B")
        terminal.type(b"x")
        terminal.wait_for(f"End {child.pid} ")
        terminal.type(b"\x1b")
        terminal.wait_for(lambda: f"End {child.pid} " not in terminal.text)
        terminal.type(b"i")
        terminal.wait_for("details")
        leave(terminal)
        raw = bytes(terminal.raw).replace(b"\x1b]22;default\x07", b"")  # the shape of the pointer
        raw = raw.replace(b"\x1b]11;?\x1b\\", b"")  # the question for the background
    for piece in (b"\x1b]0;", b"\x07", b"\r\x08", b"\xff", b"\xfe", b"\x80\xae", b"\x81\xa6", b"L" * 200):
        assert piece not in raw, piece
    left = re.sub(rb"\x1b(\[[0-9;?<>=$]*[ -/]*[@-~]|[78=>()][B0]?|P[^\x1b]*\x1b\\|[DM])|\x08+", b"", raw)
    assert not re.search(rb"[\x00-\x09\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]", left)
    assert b"\x1b[31m" not in raw
    assert b"pwned" in raw


def test_processes_that_ended_are_zombies_or_belong_to_others_are_distinguished(
    children: list[subprocess.Popen[bytes]],
) -> None:
    zombie = begin(children)
    zombie.kill()
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    vanished = begin([])
    vanished.kill()
    vanished.communicate()
    foreign = begin(children, user=NOBODY).pid if os.getuid() == 0 else 1
    pids = (zombie.pid, vanished.pid, foreign)
    box = Box(*[f"0 process {pid} C 1024 {10 + n}" for n, pid in enumerate(pids)], gpus=1)
    with box.monitor() as terminal:
        terminal.wait_for(lambda: all(row_of(terminal, pid) for pid in pids))
        assert "a zombie" in row_of(terminal, zombie.pid)
        assert row_of(terminal, vanished.pid).endswith("[it has ended]")
        wait_for_pane(terminal, 0, "SHARED")
        box.now(f"0 process {foreign} -")
        terminal.wait_for(lambda: "SHARED" not in pane(terminal, 0))
        leave(terminal)


def row_of(terminal: Terminal, pid: int) -> str:
    return next((row for row in rows(terminal) if re.match(rf" *{pid} ", row)), "")


def test_a_process_is_ended_after_a_question(children: list[subprocess.Popen[bytes]]) -> None:
    child = begin(children)
    with Box(f"0 process {child.pid} C 2048 55", gpus=1).monitor() as terminal:
        terminal.wait_for(lambda: bool(row_of(terminal, child.pid)))
        terminal.type(b"j")
        terminal.type(b"x")
        terminal.wait_for(f"End {child.pid} ")
        terminal.type(b"\x1b")
        terminal.wait_for(lambda: f"End {child.pid} " not in terminal.text)
        assert child.poll() is None
        terminal.type(b"x")
        terminal.wait_for("with SIGTERM (asks it to end)?")
        terminal.type(b"\r")
        assert child.wait(DEADLINE_S) == -signal.SIGTERM
        terminal.wait_for(f"SIGTERM was sent to process {child.pid}")
        leave(terminal)


# Settings, and limited terminals


def test_settings_are_remembered_and_the_demo_neither_takes_nor_changes_them(tmp_path: Path) -> None:
    box = Box(gpus=1)
    box.environment["XDG_CONFIG_HOME"] = str(tmp_path)
    with box.monitor() as terminal:
        wait_for_load(terminal, 0)
        terminal.type(b"]-sS")
        terminal.wait_for("every 2 s · charts ")
        leave(terminal)
    kept = (tmp_path / "gputui" / "monitor.toml").read_text()
    settings = tomllib.loads(kept)
    assert (settings["zoom_min"], settings["interval_s"], settings["descending"]) == (10, 2.0, False)
    with box.monitor(command="demo") as terminal:
        terminal.wait_for("GPU-MEM▼")
        terminal.type(b"s")
        terminal.wait_for(lambda: "GPU-MEM▼" not in "\n".join(terminal.screen.display))
        leave(terminal)
    assert (tmp_path / "gputui" / "monitor.toml").read_text() == kept


def test_a_dumb_terminal_and_a_pipe_get_plain_text_and_a_word_on_stderr() -> None:
    box = Box(gpus=1)
    with box.monitor(TERM="dumb") as terminal:
        assert terminal.ended() == 0
        terminal.wait_for(lambda: b"GPU 0  NVIDIA H200" in terminal.raw)
        assert b"no terminal to draw on" in terminal.raw
        assert b"\x1b" not in terminal.raw
    done = subprocess.run(
        [sys.executable, "-m", "gputui"],
        env={**os.environ, **box.environment, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S * 2,
    )
    assert done.returncode == 0
    assert "GPU 0  NVIDIA H200" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    assert "no terminal to draw on" in done.stderr


def test_a_small_terminal_without_unicode_and_mouse_is_served_too() -> None:
    with Box("0 error * 15", gpus=2).monitor("--ascii", "--no-mouse", columns=40, lines=10) as terminal:
        terminal.wait_for("LOST")
        terminal.type(b"?")
        terminal.wait_for(" more v")
        terminal.type(b"?")
        terminal.resize(30, 8)
        terminal.wait_for("gputui needs 40x10 cells here;")
        terminal.resize(80, 24)
        terminal.wait_for("host  cpu ")
        leave(terminal)
        raw = bytes(terminal.raw)
    assert raw.isascii()
    assert b"?1000h" not in raw


def test_a_terminal_that_is_not_utf_8_gets_ascii_also_of_hostile_names(
    children: list[subprocess.Popen[bytes]],
) -> None:
    child = begin(children, *HOSTILE)
    name = r"0 name caf\xc3\xa9\x1b[31m\xff\xe2\x80\xae"
    box = Box(name, f"0 process {child.pid} C 2048 55", gpus=1)
    box.environment |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    with box.monitor() as terminal:
        terminal.wait_for(r"cafe\x1b[31m")
        terminal.wait_for(lambda: "pwned" in row_of(terminal, child.pid))
        terminal.type(b"3")
        terminal.wait_for("[3 Results]")
        terminal.type(b"1")
        terminal.wait_for(lambda: "pwned" in row_of(terminal, child.pid))
        leave(terminal)
        raw = bytes(terminal.raw).replace(b"\x1b]22;default\x07", b"")
    assert raw.isascii()


def test_the_monitor_alone_loads_nothing_heavy_and_its_first_frame_is_not_sent_twice(tmp_path: Path) -> None:
    """An exit handler in its process writes the list of loaded modules."""
    listing = tmp_path / "modules"
    code = (
        "import atexit, pathlib, sys;"
        f"atexit.register(lambda: pathlib.Path({str(listing)!r}).write_text(' '.join(sys.modules)));"
        "sys.argv = ['gputui', 'monitor'];"
        "from gputui.cli import main; sys.exit(main())"
    )
    environment = {**Box(gpus=3).environment, "PYTHONPATH": str(REPOSITORY)}
    with Terminal([sys.executable, "-c", code], 80, 24, environment=environment) as terminal:
        wait_for_load(terminal, 2)
        leave(terminal)
    loaded = set(listing.read_text().split())
    assert "gputui.tui.app" in loaded
    assert not loaded & {"duckdb", "numpy", "pandas", "torch"}
    assert bytes(terminal.raw).count(b"BUSY %, 10 s") == 1
    assert bytes(terminal.raw).count(b"\x1b[2J") <= 2  # the splash screen, then the first frame


# Long-running ones


@pytest.mark.slow
def test_a_reader_that_stops_for_20_s_misses_no_sample_and_gets_one_frame() -> None:
    """The GPU was busy while the terminal was frozen and no longer is: the chart shows both."""
    box = Box("0 sm_busy_pct 0", gpus=1)
    with box.monitor() as terminal:
        wait_for_pane(terminal, 0, "busy  0 %")
        terminal.type(b"[[")
        terminal.wait_for("up to 1 min")
        terminal.wait_for(lambda: "▁" in chart(terminal)[-1])
        assert "▇" not in chart(terminal)[0]
        threading.Event().wait(3)  # frames are more frequent at the beginning
        terminal.freeze()
        seen = len(terminal.raw)
        box.now("0 sm_busy_pct 100")
        threading.Event().wait(10)
        box.now("0 sm_busy_pct 0")
        threading.Event().wait(10)
        terminal.thaw()
        terminal.wait_for(lambda: "▇▇▇▇" in chart(terminal)[0])
        wait_for_pane(terminal, 0, "busy  0 %")
        assert bytes(terminal.raw[seen:]).count(b"\x1b[6n") <= 3  # on its way, behind, of that second
        leave(terminal)


def chart(terminal: Terminal) -> list[str]:
    """The rows of the load chart of the only GPU, without its axis and the chart beside it."""
    below = dropwhile(lambda row: not row.startswith("   100 %"), pane(terminal, 0).splitlines())
    return [row[9:58] for row in takewhile(bool, below)][:6]


@pytest.mark.slow
def test_memory_does_not_grow_with_600_pictures_of_the_panes() -> None:
    """Every key draws a frame; with what the history takes, a third of this is usual."""
    with Box(gpus=8).monitor("--interval", "0.2", columns=120, lines=40) as terminal:
        terminal.wait_for("8x H200   8 busy")
        grown = []
        for pictures in range(1, 601):
            terminal.type(b" ")
            paused = pictures % 2 == 1
            terminal.wait_for(lambda p=paused: ("PAUSED" in terminal.screen.display[0]) == p)  # type: ignore[misc]
            if pictures in (200, 600):
                grown.append(terminal.rss_bytes())
        assert grown[1] - grown[0] < 2**20
        leave(terminal)
