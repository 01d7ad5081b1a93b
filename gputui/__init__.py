"""gputui: profile GPUs and CPUs, compare runs across machines and runtimes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gputui.version import __version__ as __version__

if TYPE_CHECKING:
    from gputui.store.frames import load as load

__all__ = ["__version__", "load"]


def __getattr__(name: str) -> Any:  # Any: what a module attribute may be
    """`gputui.load`, imported on first use: it needs duckdb and pandas, and the rest of gputui does not."""
    if name == "load":
        return import_module("gputui.store.frames").load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
