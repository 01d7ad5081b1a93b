"""Notebook cells and CI jobs, which have a pty and nobody at it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import gputui
from nvml.standin import standin_environment
from pty_harness import Terminal

from gputui.cli.output import CELL, CI, where

COLAB_CELL = {"COLAB_RELEASE_TAG": "release-colab_20261101", "COLAB_GPU": "1", "JPY_PARENT_PID": "78"}
KAGGLE_CELL = {"KAGGLE_KERNEL_RUN_TYPE": "Interactive", "KAGGLE_URL_BASE": "https://www.kaggle.com"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (COLAB_CELL, CELL),
        (KAGGLE_CELL, CELL),
        ({"JPY_PARENT_PID": "12", "TERM": "xterm-color"}, CELL),
        ({"JPY_PARENT_PID": "12", "TMUX": "x"}, CELL),
        ({"CI": "true", "GITHUB_ACTIONS": "true"}, CI),
        ({"GITLAB_CI": "true"}, CI),
        # Colab's terminal runs in tmux; tmate and ssh are how people look into a CI job.
        ({"COLAB_RELEASE_TAG": "r", "TMUX": "/tmp/tmux-0/default,1,0"}, ""),
        ({"CI": "true", "SSH_CONNECTION": "10.0.0.1 22 10.0.0.2 22"}, ""),
        # A terminal of JupyterLab has the server's variables only.
        ({"JUPYTER_SERVER_URL": "http://box:8888/", "JUPYTERHUB_API_TOKEN": "t"}, ""),
        ({"CI": "false", "TERM": "xterm"}, ""),
    ],
)
def test_cells_and_jobs_are_known_by_their_variables(environ: dict[str, str], expected: str) -> None:
    assert where(environ) == expected


def in_a_cell(*words: str) -> bytes:
    """What a command writes to the pty that a cell gives it, until it ends."""
    environment = {**os.environ, **COLAB_CELL, "TERM": "xterm-color"}
    with Terminal([sys.executable, "-m", "gputui", *words], 80, 24, environment=environment) as terminal:
        terminal.ended()
        return bytes(terminal.raw)


@pytest.mark.slow
def test_monitor_in_a_cell_is_one_reading_without_an_escape_sequence() -> None:
    written = in_a_cell("monitor")
    assert b"a notebook cell has no terminal to draw on, so this is one reading" in written
    assert b"CPU" in written
    assert b"\x1b" not in written


@pytest.mark.slow
def test_run_in_a_cell_writes_plain_lines(tmp_path: Path) -> None:
    from command_line import write_spin_profile

    written = in_a_cell(
        "run", str(write_spin_profile(tmp_path / "spin.toml")), "--db", str(tmp_path / "a.db")
    )
    assert b"stored as" in written
    assert b"\x1b" not in written
    assert not re.search(rb"\r(?!\n)", written)


def test_without_a_terminal_gputui_alone_is_short_names_gpus_and_what_to_type_next() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as running:
        scenario = f"driver gpus 2\n* name NVIDIA H200\n1 process {running.pid} C 2048 55\n"
        done = gputui(env=standin_environment(scenario))
        running.communicate(b"\n")
    assert done.returncode == 0
    assert "there is no terminal to draw on, so this is one reading" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    host, *gpus, process, doctor, run, commands = done.stdout.splitlines()
    assert host.startswith("host  ")
    assert [line.split("  ")[1] for line in gpus] == ["NVIDIA H200", "NVIDIA H200"]
    assert process.startswith(f"PID {running.pid}  GPU 1  ")
    assert doctor == "next: gputui doctor  # is this box healthy and ready to measure?"
    assert [line.split("  #")[0].strip() for line in (run, commands)] == ["gputui run quick", "gputui --help"]


def test_without_a_gpu_gputui_alone_says_why_and_lists_no_process_of_the_host() -> None:
    done = gputui(env=standin_environment("driver error nvmlInitWithFlags 9\n"))
    assert len(done.stdout.splitlines()) == 5
    assert done.stdout.splitlines()[1].startswith("no GPU: the NVIDIA driver is not loaded")
    assert "PID" not in done.stdout
