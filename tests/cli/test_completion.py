"""What shells complete behind `gputui`, in the shells that are installed; bash always is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from pty_harness import Terminal
from stored_runs import store

from gputui.cli import gputui
from gputui.cli.installation import _COMPLETED, completion
from gputui.cli.verbs import GROUPS

SHELLS = [shell for shell in ("bash", "zsh", "fish") if shutil.which(shell)]


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, repository: Path) -> None:
    """A program `gputui` on the path, and a default file with two runs."""
    program = tmp_path / "bin" / "gputui"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m gputui "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(repository))
    monkeypatch.setenv("GPUTUI_DB", str(tmp_path / "a.db"))
    monkeypatch.chdir(tmp_path)
    store(tmp_path / "a.db", 1, label="before")
    store(tmp_path / "a.db", 2, label="two words; rm -r x")


def completed(shell: str, line: str) -> list[str]:
    """What the shell's own completion offers behind this line."""
    if shell == "fish":
        program = f'gputui completion fish | source; complete -C "{line}"'
    else:
        program = (
            'eval "$(gputui completion bash)"; COMP_LINE="$1" COMP_POINT=${#1}; _gputui_completion gputui;'
            r' printf "%s\n" "${COMPREPLY[@]}"'
        )
    done = subprocess.run(
        [shell, "-c", program, shell, line], capture_output=True, text=True, timeout=300, check=True
    )
    return [offer.partition("\t")[0] for offer in done.stdout.splitlines() if offer]


def test_what_is_completed_exists() -> None:
    context = gputui.make_context("gputui", [], resilient_parsing=True)
    for name, parameter in _COMPLETED:
        found = gputui.get_command(context, name)
        assert found is not None
        assert parameter in {one.name for one in found.params}, (name, parameter)


def test_the_script_is_that_of_the_users_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert "complete --no-files --command gputui" in CliRunner().invoke(completion, []).output
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    with pytest.raises(Exception, match="tcsh is not known"):
        CliRunner().invoke(completion, [], catch_exceptions=False)


@pytest.mark.slow
@pytest.mark.parametrize("shell", [shell for shell in SHELLS if shell != "zsh"])
@pytest.mark.usefixtures("stored")
def test_profiles_workloads_runs_labels_and_gpus_are_completed(shell: str) -> None:
    assert completed(shell, "gputui run q") == ["quick"]
    assert completed(shell, "gputui run --only ge") == ["gemm"]
    assert set(completed(shell, "gputui show ")) == {"latest", "cccc0001", "cccc0002", "before"}
    assert "H200" in completed(shell, "gputui gpu H20")
    offers = completed(shell, "gputui show a.db@b")
    assert offers == (["before"] if shell == "bash" else ["a.db@before"])
    on_screen = {
        one.name
        for group in GROUPS
        if group.title and not group.noun
        for one in group.commands
        if not one.option
    }
    assert {*on_screen, "db", "self"} == set(completed(shell, "gputui "))
    assert set(completed(shell, "gputui db ")) == {"runs", "merge", "export", "import", "label", "rm"}
    assert completed(shell, "gputui db label b") == completed(shell, "gputui label b") == ["before"]
    assert completed(shell, "gputui run --list q") == ["quick"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "options"), [(s, o) for s, o in (("bash", "--norc"), ("zsh", "-f")) if s in SHELLS]
)
@pytest.mark.usefixtures("stored")
def test_tab_completes_what_is_being_typed(shell: str, options: str) -> None:
    with Terminal([shell, options, "-i"], 80, 24, environment={"PS1": "$ "}) as terminal:
        terminal.type(f'eval "$(gputui completion {shell})"; echo re"ad"y\n'.encode())
        terminal.wait_for(lambda: any(row.startswith("ready") for row in terminal.screen.display))
        terminal.type(b"gputui run q\t")
        terminal.wait_for("gputui run quick")
        terminal.type(b"--only gemm:m\t")
        terminal.wait_for("gputui run quick --only gemm:mini")
