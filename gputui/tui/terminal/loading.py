"""How the code of the screens is loaded quickly. Standard library alone."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collecting() -> Iterator[None]:
    """No garbage collection while the block lasts, and none of what is there at its end until `thaw`.

    Loading code makes hardly any garbage, and what it makes stays until the end: both the 5 % of its time
    and looking through all of it again while the screen is live would be for nothing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_enabled:
            gc.enable()


def load_asyncio() -> None:
    """Import asyncio as on a Python without TLS, which no screen needs: 5 MiB and 8 ms less.

    Must be called while there is one thread. `ssl` can be imported afterwards as ever.
    """
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    sys.modules["ssl"] = None  # type: ignore[assignment] # as documented: an import of it fails now
    try:
        import asyncio  # noqa: F401
    finally:
        del sys.modules["ssl"]


def thaw() -> None:
    """Have Python find everything again when it ends; takes it 15 ms then.

    DuckDB's types lie in cycles. Those that Python does not free, its bindings report on stderr as leaked.
    """
    if "duckdb" in sys.modules:
        gc.unfreeze()
