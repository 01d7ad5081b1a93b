"""Where the Monitor screen keeps its settings. Separate from `paths`, whose imports would slow its start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def monitor_file(environ: Mapping[str, str] = os.environ) -> Path:
    """`gputui/monitor.toml` in $XDG_CONFIG_HOME, else in `~/.config`."""
    stated = environ.get("XDG_CONFIG_HOME", "")
    base = Path(stated) if stated.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".config"
    return base / "gputui" / "monitor.toml"
