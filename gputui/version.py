"""The version, for whoever writes it into a file."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

RELEASED = "0.1.0"
"""The newest release in CHANGELOG.md, from which commits count where git knows no tag."""


@cache
def version() -> str:
    """`0.2.0` of the commit with the tag v0.2.0; three commits later `0.2.1.dev3+g1a2b3c4d`.

    It ends in `.dirty` if files differ from the commit's. An installed gputui says what it was built from.
    """
    from importlib import import_module
    from pathlib import Path

    clone = Path(__file__).parents[1]
    if (clone / ".git").exists():
        return _of_commit(clone / ".git")
    try:
        return str(import_module("gputui.built_version").VERSION)
    except ModuleNotFoundError:
        return _after(RELEASED, "dev0")


def _of_commit(git_dir: Path) -> str:
    said = _git(git_dir, "describe", "--tags", "--long", "--always", "--dirty", "--abbrev=8", "--match=v*")
    found = re.fullmatch(r"(?:v(\d+\.\d+\.\d+)-(\d+)-g)?([0-9a-f]+)(-dirty)?", said)
    if found is None:  # no git, no commit, or a tag of another form
        return _after(RELEASED, "dev0")
    release, distance, commit, dirty = found.groups()
    if distance == "0" and not dirty:
        return str(release)
    distance = distance or _git(git_dir, "rev-list", "--count", "HEAD")
    return _after(release or RELEASED, f"dev{distance}+g{commit}{'.dirty' if dirty else ''}")


def _after(release: str, development: str) -> str:
    series, patch = release.rsplit(".", 1)
    return f"{series}.{int(patch) + 1}.{development}"


def _git(git_dir: Path, *words: str) -> str:
    """What git says of a clone, wherever GIT_DIR points; nothing if it refuses."""
    import subprocess

    asked = ("git", "--no-optional-locks", f"--git-dir={git_dir}", f"--work-tree={git_dir.parent}", *words)
    try:
        return subprocess.run(asked, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
