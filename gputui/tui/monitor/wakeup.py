"""How a sampling thread tells a screen that there is something new, also before the screen is there."""

from __future__ import annotations

from collections.abc import Callable


class Bell:
    """Rung by any thread; heard by one listener, or by nobody."""

    def __init__(self) -> None:
        self.listener: Callable[[], None] | None = None
        """Called in the thread that rings: it must be quick."""

    def ring(self) -> None:
        """There is something new."""
        listener = self.listener
        if listener is not None:
            listener()
