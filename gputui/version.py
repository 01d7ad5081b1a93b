"""The version, for whoever writes it into a file."""

from __future__ import annotations

__version__ = "0.1.0"


def commit() -> str:
    """Short hash of the commit that this clone has checked out; empty if it is no clone or git is absent."""
    import subprocess
    from pathlib import Path

    git_dir = Path(__file__).parents[1] / ".git"
    if not git_dir.exists():
        return ""
    asked = ("git", f"--git-dir={git_dir}", "rev-parse", "--short", "HEAD")
    try:
        return subprocess.run(asked, capture_output=True, text=True, timeout=2, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
