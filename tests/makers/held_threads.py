"""Runs a command whose daemon threads end only when they are joined: `python held_threads.py runs a.db`.

On a busy box a thread may end long after its work. If nobody joins it and it holds what DuckDB handed out,
DuckDB's bindings report a leak on stderr when Python exits.
"""

from __future__ import annotations

import threading

from gputui.cli import main


def _start(thread: threading.Thread) -> None:
    if thread.daemon:
        run, join, joined = thread.run, thread.join, threading.Event()

        def run_and_wait() -> None:
            run()
            joined.wait()

        def let_end(timeout: float | None = None) -> None:
            joined.set()
            join(timeout)

        thread.run, thread.join = run_and_wait, let_end  # type: ignore[method-assign]
    _start_at_once(thread)


_start_at_once = threading.Thread.start
threading.Thread.start = _start  # type: ignore[method-assign, assignment]

if __name__ == "__main__":
    main()
