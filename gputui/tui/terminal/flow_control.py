"""When the next frame may be written: never faster than the terminal at the far end shows them."""

from __future__ import annotations

SILENCE_S = 2.0
"""A terminal that has not answered anything for this long after the start is assumed never to answer."""
SLOW_LINK_S = 0.25
"""After two consecutive round trips longer than this, the link rests as long as it was busy; a single one is
a hiccup."""
LONGEST_REST_S = 5.0
QUERY_AGAIN_S = 60.0
"""After this long an answer counts as lost, as when a detached session is attached to another terminal."""


class FrameGate:
    """One frame in flight, acknowledged by the terminal; times are monotonic seconds.

    A frame ends with a cursor position query; its answer means that the terminal has parsed the frame. What
    the pty accepts means nothing: an SSH server buffers half a minute of output.
    """

    def __init__(self, now_s: float) -> None:
        self._opened_s = now_s
        self._sent_s: float | None = None
        self._rest_until_s = now_s
        self._unanswered = 0
        self.has_answered = False
        self.round_trip_s = 0.0
        """Of the last frame that was answered, transit included."""

    def is_deaf(self, now_s: float) -> bool:
        """Whether the terminal is assumed not to answer; then the writer's backlog decides."""
        return not self.has_answered and now_s - self._opened_s > SILENCE_S

    def may_write(self, now_s: float, is_backlogged: bool) -> bool:
        if self.is_deaf(now_s):
            return not is_backlogged
        return self._sent_s is None and now_s >= self._rest_until_s

    def sent(self, now_s: float) -> None:
        """A frame was sent, or only its query."""
        self._sent_s = now_s
        self._unanswered += 1

    def query_again(self, now_s: float) -> bool:
        """Whether the answer is so late that the query should be sent again, alone."""
        if self.is_deaf(now_s) or self._sent_s is None or now_s - self._sent_s < QUERY_AGAIN_S:
            return False
        self._unanswered = 0
        return True

    def answered(self, now_s: float) -> None:
        self.has_answered = True
        self._unanswered = max(0, self._unanswered - 1)
        if self._sent_s is None or self._unanswered:
            return
        before_s, self.round_trip_s = self.round_trip_s, now_s - self._sent_s
        self._sent_s = None
        busy_s = min(before_s, self.round_trip_s)
        if busy_s > SLOW_LINK_S:
            self._rest_until_s = now_s + min(busy_s, LONGEST_REST_S)

    def retry_in_s(self, now_s: float) -> float:
        """Seconds until it is worth calling `may_write` again, if no answer arrives before."""
        if self.is_deaf(now_s):
            return 0.25
        if self._sent_s is None:
            return max(0.0, self._rest_until_s - now_s)
        if not self.has_answered:
            return max(0.0, self._opened_s + SILENCE_S - now_s) + 0.01
        return max(0.0, self._sent_s + QUERY_AGAIN_S - now_s) + 0.01

    def in_flight_s(self, now_s: float) -> float:
        """How long the current frame has been in flight; 0 if there is none."""
        return 0.0 if self._sent_s is None else now_s - self._sent_s

    def reopen(self, now_s: float) -> None:
        """Nothing is in flight: this is another terminal, or this one after other programs used it."""
        self._sent_s = None
        self._unanswered = 0
        self._rest_until_s = now_s
