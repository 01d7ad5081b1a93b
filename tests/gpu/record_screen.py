"""Records a program on a terminal of its own: the bytes as an asciinema file, and the last picture as text.

python tests/gpu/record_screen.py monitor.cast --seconds 20 --keys d -- gputui monitor
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "makers"))

from pty_harness import Terminal

COLUMNS, LINES = 120, 40


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, usage="%(prog)s TARGET [--keys K] -- COMMAND")
    parser.add_argument("target", type=Path)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--keys", default="", help="pressed one after the other, in the second half")
    divider = sys.argv.index("--")  # argparse would also take one of the command's
    options = parser.parse_args(sys.argv[1:divider])
    environment = {"COLORTERM": "truecolor"}
    with Terminal(sys.argv[divider + 1 :], COLUMNS, LINES, environment=environment) as terminal:
        pause_s = options.seconds / 2 / (len(options.keys) + 1)
        wait(terminal, options.seconds / 2)
        print_picture(terminal, "after half of the time")
        for key in options.keys:
            terminal.type(key.encode())
            wait(terminal, pause_s)
            print_picture(terminal, f"after {key}")
        wait(terminal, pause_s)
        begun_cpu_s = terminal.cpu_s() if terminal.process.poll() is None else 0.0
        print(f"CPU of the whole time: {begun_cpu_s:.2f} s, {len(terminal.raw)} bytes written")
        if terminal.process.poll() is None:
            terminal.type(b"q")
        status = terminal.ended(20.0)
        write_cast(terminal, options.target)
    print(f"ended with status {status}; {options.target.name} plays with asciinema")
    return 0 if status == 0 else 1


def wait(terminal: Terminal, seconds: float) -> None:
    """Let it run, unless it ends."""
    threading.Event().wait(seconds)
    if terminal.process.poll() is not None:
        print(f"it ended with status {terminal.process.returncode}")


def print_picture(terminal: Terminal, what: str) -> None:
    print(f"--- {what}\n{terminal.text.rstrip()}\n---")


def write_cast(terminal: Terminal, target: Path) -> None:
    """Version 2 of asciinema's format: a header, then when and what was written."""
    head = {"version": 2, "width": COLUMNS, "height": LINES, "env": {"TERM": "xterm-256color"}}
    written, lines = 0, [json.dumps(head)]
    for reached, at_s in terminal.seen_s:
        text = bytes(terminal.raw[written:reached]).decode("utf-8", "replace")
        lines.append(json.dumps([round(at_s - terminal.started_s, 4), "o", text]))
        written = reached
    target.write_text("\n".join(lines) + os.linesep, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
