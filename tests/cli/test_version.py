"""`gputui --version`: a clone names its tag or commit, an installed gputui what it was built from."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import gputui_here

from gputui.version import RELEASED


def git(place: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    done = subprocess.run(["git", *identity, *words], cwd=place, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def version_said(place: Path, **environment: str) -> str:
    """The version of the gputui in a directory, started elsewhere."""
    done = subprocess.run(
        [sys.executable, "-c", "from gputui.version import version; print(version())"],
        cwd=place.parent,
        env={**os.environ, "PYTHONPATH": str(place), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.fixture
def copied(tmp_path: Path, repository: Path) -> Path:
    """Of this gputui what tells its version, in a directory that is not a clone."""
    (tmp_path / "here" / "gputui").mkdir(parents=True)
    for name in ("__init__.py", "version.py"):
        shutil.copy(repository / "gputui" / name, tmp_path / "here" / "gputui")
    (tmp_path / "here" / ".gitignore").write_text("__pycache__/\n")
    return tmp_path / "here"


def following(release: str) -> str:
    major, minor, patch = release.split(".")
    return f"{major}.{minor}.{int(patch) + 1}.dev"


def test_a_tag_is_the_version_and_each_commit_after_it_has_one_of_its_own(
    copied: Path, tmp_path: Path
) -> None:
    git(copied, "init", "-q")
    git(copied, "add", ".")
    git(copied, "commit", "-q", "-m", "first")
    untagged = f"{following(RELEASED)}1+g{git(copied, 'rev-parse', '--short=8', 'HEAD')}"
    assert version_said(copied) == untagged, "commits count from the last release"
    git(copied, "tag", "v7.2.9")
    clone, worktree = tmp_path / "clone", tmp_path / "worktree"
    git(tmp_path, "clone", "-q", str(copied), str(clone))
    git(clone, "commit", "-q", "--allow-empty", "-m", "second")
    git(clone, "worktree", "add", "-q", str(worktree), "HEAD~1")
    second = git(clone, "rev-parse", "--short=8", "HEAD")
    assert version_said(worktree) == version_said(copied) == "7.2.9"
    assert version_said(clone) == f"7.2.10.dev1+g{second}"
    of_hook = {"GIT_DIR": str(copied / ".git")}  # as git sets it for its hooks
    assert version_said(clone, **of_hook) == f"7.2.10.dev1+g{second}"
    (worktree / "gputui" / "version.py").open("a").write("\n")
    assert re.fullmatch(r"7\.2\.10\.dev0\+g[0-9a-f]{8}\.dirty", version_said(worktree))


@pytest.mark.parametrize("lacks", ["a clone", "a commit", "git"])
def test_without_a_clone_a_commit_or_git_it_is_some_development_version(lacks: str, copied: Path) -> None:
    if lacks != "a clone":
        git(copied, "init", "-q")
    path = "" if lacks == "git" else os.environ["PATH"]
    assert version_said(copied, PATH=path) == f"{following(RELEASED)}0"


def test_capital_v_is_short_for_it() -> None:
    said = gputui_here("-V").stdout
    assert said == gputui_here("--version").stdout
    assert said.startswith("gputui, version ")
