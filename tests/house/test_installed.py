"""What an installation gives with its interpreter and versions: every module, and every screen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pty_harness import Terminal

from gputui.tui.shell.registry import SCREENS

pytestmark = pytest.mark.slow

IMPORTING = """
import importlib, sys
from pathlib import Path
import gputui

sys.modules["torch"] = None  # as where there is none, and its own warnings are not ours
root = Path(gputui.__file__).parent
imported, without_torch = 0, 0
for path in sorted(root.rglob("*.py")):
    compile(path.read_text("utf-8"), str(path), "exec")  # what is compiled already warns no more
    if path.stem == "__main__":
        continue
    words = path.relative_to(root.parent).with_suffix("").parts
    name = ".".join(words[:-1] if words[-1] == "__init__" else words)
    try:
        importlib.import_module(name)
        imported += 1
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        without_torch += 1
print(imported, without_torch)
"""


def test_every_module_is_imported_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", IMPORTING]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    imported, without_torch = map(int, done.stdout.split())
    assert imported > 250
    assert without_torch < 20


def test_the_live_view_and_every_screen_open() -> None:
    with Terminal([str(Path(sys.executable).parent / "gputui")], 80, 24) as terminal:
        terminal.wait_for("[1 Mon]")
        for screen in (*SCREENS[1:], SCREENS[0]):
            terminal.type(screen.key.encode())
            terminal.wait_for(f"[{screen.key} {screen.short}]")
        terminal.type(b"q")
        assert terminal.ended() == 0
