"""gputui: profile GPUs and CPUs, compare runs across machines and runtimes.

In Python: `load` gives DataFrames, `compare` a judgement, `run` measures.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gputui.errors import GputuiError as GputuiError
    from gputui.errors import NoResult as NoResult
    from gputui.services.compare.formats import compare as compare
    from gputui.services.results.frames import load as load
    from gputui.services.runs.options import run as run

    __version__: str

__all__ = ["GputuiError", "NoResult", "__version__", "compare", "load", "run"]

_HOMES = {
    "GputuiError": "gputui.errors",
    "NoResult": "gputui.errors",
    "compare": "gputui.services.compare.formats",
    "load": "gputui.services.results.frames",
    "run": "gputui.services.runs.options",
}


def __getattr__(name: str) -> Any:  # Any: what a module attribute may be
    """What belongs to the Python interface, imported on first use: they need duckdb, pandas or git."""
    if name == "__version__":
        from gputui.version import version

        return version()
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
