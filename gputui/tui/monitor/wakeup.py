"""How a sampling thread notifies a screen of new samples, even before the screen exists."""

from __future__ import annotations

from collections.abc import Callable


class Bell:
    """Rung by any thread; calls at most one listener."""

    def __init__(self) -> None:
        self.listener: Callable[[], None] | None = None
        """Called in the thread that rings: it must be quick."""

    def ring(self) -> None:
        listener = self.listener
        if listener is not None:
            listener()
