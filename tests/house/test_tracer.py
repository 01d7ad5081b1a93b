"""The tracer of the walks takes no short cut."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from walks import TRACER

_MEASURES = """
def measure():
    return 417_300

def end(value):
    pass
"""
_BINDS = """
from functools import partial

def shown(value):
    return f"{value / 1000:.1f} W"

def call(work):
    return work()

def hand_on(work):
    return call(work)

def begin():
    end(hand_on(partial(shown, measure())))

begin()
"""
_ASKS_TWICE = """
def speed():
    return measure()

def share():
    return measure()

def cell():
    shown = speed()
    share()
    return shown

def begin():
    end(cell())

begin()
"""
_REMOVES_A_PIPE = """
import os
from pathlib import Path

def send(descriptor, value):
    os.write(descriptor, str(value).encode())

def listen(descriptor):
    end(int(os.read(descriptor, 100)))

def make():
    Path("a.db").write_bytes(bytes(8) + b"DUCK")

def rows():
    Path("a.db").read_bytes()
    end(417_300)

def begin():
    send(descriptor, measure())

os.mkfifo("pipe")
descriptor = os.open("pipe", os.O_RDWR)
begin()
listen(descriptor)
os.close(descriptor)
os.unlink("pipe")
make()
rows()
"""


def _ways_to_end(place: Path, program: str) -> set[str]:
    """The functions, files and pipes on each way of the value to `end`."""
    (place / "gputui").mkdir()
    (place / "gputui" / "program.py").write_text(_MEASURES + program)
    (place / "files").mkdir()
    told = {
        "forms": {"number": [417_300, "417300"], "text": ["417.3"]},
        "begins": {"number": "gputui/program.py measure"},
        "ends": ["end"],
    }
    (place / "forms.json").write_text(json.dumps(told))
    subprocess.run(
        [sys.executable, place / "gputui" / "program.py"],
        cwd=place / "files",
        env={**os.environ, "GPUTUI_WALK": str(place), "PYTHONPATH": str(TRACER)},
        check=True,
        timeout=60,
    )
    lines = (place / "left.jsonl").read_text().splitlines()
    ways = [[hop.removeprefix("gputui/program.py ") for hop in json.loads(line)["way"]] for line in lines]
    return {" > ".join(way) for way in ways if way[-1] == "end"}


def test_a_value_bound_in_a_partial_passes_every_function_that_the_partial_passes(tmp_path: Path) -> None:
    assert _ways_to_end(tmp_path, _BINDS) == {"measure > begin > hand_on > call > shown > end"}


def test_a_file_with_the_inode_of_a_removed_pipe_does_not_continue_the_way_through_it(tmp_path: Path) -> None:
    assert _ways_to_end(tmp_path, _REMOVES_A_PIPE) == {"measure > begin > send > pipe pipe > listen > end"}


def test_of_two_calls_that_return_the_same_number_the_first_is_on_the_way(tmp_path: Path) -> None:
    assert _ways_to_end(tmp_path, _ASKS_TWICE) == {"measure > speed > cell > begin > end"}
