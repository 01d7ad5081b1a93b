"""Ways to import the code of the screens faster. Standard library only."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collecting() -> Iterator[None]:
    """Disable garbage collection in the block, then freeze all live objects until `thaw`.

    Imports create hardly any garbage and what they create lives until exit: collecting would cost 5 % of the
    import time, and scanning it all again while the screen is live would be wasted.
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
    """Import asyncio as on a Python without TLS, which no screen needs: saves 5 MiB and 8 ms.

    Must be called while there is one thread. `ssl` can be imported afterwards as usual.
    """
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    sys.modules["ssl"] = None  # type: ignore[assignment] # documented: makes importing it fail
    try:
        import asyncio  # noqa: F401
    finally:
        del sys.modules["ssl"]


def thaw() -> None:
    """Let Python collect everything again at exit, which takes 15 ms.

    DuckDB's types form reference cycles, and its bindings report on stderr as leaked what Python does not
    free.
    """
    if "duckdb" in sys.modules:
        gc.unfreeze()
