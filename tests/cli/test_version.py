"""`gputui --version`: a clone names its commit, an installed gputui does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import gputui

from gputui.version import __version__


def git(place: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    done = subprocess.run(["git", *identity, *words], cwd=place, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def version_said(place: Path, **environment: str) -> str:
    """The version that the gputui in a directory prints, started elsewhere."""
    done = subprocess.run(
        [sys.executable, "-m", "gputui", "--version"],
        cwd=place.parent,
        env={**os.environ, "PYTHONPATH": str(place), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.fixture
def copied(tmp_path: Path, repository: Path) -> Path:
    """This gputui in a directory that is not a clone."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(repository / "gputui", tmp_path / "here" / "gputui", ignore=ignore)
    return tmp_path / "here"


def test_a_clone_and_a_worktree_of_it_name_the_commit_they_have_checked_out(
    copied: Path, tmp_path: Path
) -> None:
    git(copied, "init", "-q")
    git(copied, "add", ".")
    git(copied, "commit", "-q", "-m", "first")
    clone, worktree = tmp_path / "clone", tmp_path / "worktree"
    git(tmp_path, "clone", "-q", str(copied), str(clone))
    git(clone, "commit", "-q", "--allow-empty", "-m", "second")
    git(clone, "worktree", "add", "-q", str(worktree), "HEAD~1")
    first, second = git(copied, "rev-parse", "--short", "HEAD"), git(clone, "rev-parse", "--short", "HEAD")
    assert first != second
    assert version_said(clone) == f"gputui, version {__version__} ({second})\n"
    assert version_said(worktree) == f"gputui, version {__version__} ({first})\n"
    of_hook = {"GIT_DIR": str(copied / ".git")}  # as git sets it for its hooks
    assert version_said(clone, **of_hook) == f"gputui, version {__version__} ({second})\n"


@pytest.mark.parametrize("lacks", ["a clone", "a commit", "git"])
def test_without_a_clone_a_commit_or_git_the_version_stands_alone(lacks: str, copied: Path) -> None:
    if lacks != "a clone":
        git(copied, "init", "-q")
    path = "" if lacks == "git" else os.environ["PATH"]
    assert version_said(copied, PATH=path) == f"gputui, version {__version__}\n"


def test_capital_v_is_short_for_it() -> None:
    assert gputui("-V").stdout == gputui("--version").stdout != ""
