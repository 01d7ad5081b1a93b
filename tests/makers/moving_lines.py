"""A monitor with a small model: its lines move as keys and samples say. Run by the tests in a pty.

Words: `still` (nothing ever changes), `every SECONDS` (samples), `hang` (closing the collector takes 0.1 s),
`splash` (show the splash screen), `wait` (and nothing after it), `nohup` (ignore hang-ups), `count FILE`
(write the number of the last sample there), `mouse`, `patient` (wait for answers as long as it takes).
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from time import monotonic_ns

from gputui.document.spans import Line, Span
from gputui.model.absent import Missing
from gputui.model.telemetry import DeviceSample, LiveSample
from gputui.tui.monitor.model import MonitorModel
from gputui.tui.monitor.settings import MonitorSettings
from gputui.tui.shell.registry import Action

KEYS = tuple(
    Action(name, key, name, name)
    for name, key in (
        ("more", "m,space"),
        ("big", "b"),
        ("next", "tab"),
        ("wide", "w"),
        ("reverse", "S"),
        ("down", "down"),
        ("fail", "f"),
        ("text", "slash"),
        ("enter", "enter"),
    )
)


class MovingLines(MonitorModel):
    """A heading, the count of samples and presses, and bars that move with them."""

    def __init__(self, *, is_still: bool = False, counted: Path | None = None) -> None:
        super().__init__(MonitorSettings())
        self.actions = KEYS
        self._counted = counted
        self.samples = 0
        self.presses = 0
        self.is_big = False
        self.is_wide = False
        self.is_still = is_still
        self.last = ""
        self.typed: str | None = None

    def add(self, sample: LiveSample) -> None:
        self.samples = sample.number
        if self._counted is not None:
            self._counted.write_text(str(sample.number))

    def press(self, action_id: str) -> None:
        if action_id == "fail":
            raise ValueError("a bug of the model")
        self.presses += 1
        self.last = action_id
        if action_id == "text":
            self.typed = ""
        if action_id == "enter" and self.typed is not None:
            self.last, self.typed = f"typed {self.typed}", None
        self.is_big ^= action_id == "big"
        self.is_wide ^= action_id == "wide"

    @property
    def is_typing(self) -> bool:
        return self.typed is not None

    def type(self, text: str) -> None:
        self.typed = (self.typed or "") + text

    def click(self, x: int, y: int) -> None:
        self.last = f"clicked {x} {y}"

    def lines(
        self, width: int, height: int, now_ns: int, newest: LiveSample | None = None
    ) -> tuple[Line, ...]:
        if newest is not None:
            self.add(newest)
        samples = 0 if self.is_still else self.samples
        name = "GPU 温度 β" if self.is_wide else "GPU0 degrees"
        lines: list[Line] = [
            (
                Span("moving", "title"),
                Span(f" {width}x{height} samples {samples} presses {self.presses} {self.last}"),
            ),
            (Span(name, "accent"), Span(" "), Span("█" * (samples % (width - 20)), "chart")),
        ]
        for y in range(2, height - 1):
            n = samples * y + self.presses
            style = ("", "dim", "good", "warn", "alarm", "selected")[(n // 7) % 6]
            text = f"{y:3d} {'x' * (n % 13)} {n % 101:3d}".ljust(width if y % 5 == 0 else 0)[:width]
            lines.append((Span(text, style),))
            if self.is_big:
                lines[-1] = (Span("".join(chr(0x2800 + (n + x) % 255) for x in range(width)), style),)
        lines.append((Span("the last line", "dim"),))
        return tuple(lines[:height])


class Ticking:
    """Samples that count up, from a thread."""

    def __init__(self, every_s: float | None, *, close_takes_s: float = 0.0) -> None:
        self.on_sample: Callable[[], None] = lambda: None
        self._every_s = every_s
        self._ends = threading.Event()
        self._close_takes_s = close_takes_s
        self._last = sample_number(0)
        if every_s is not None:
            threading.Thread(target=self._run, daemon=True).start()

    def start(self) -> None: ...

    def latest(self) -> LiveSample:
        return self._last

    def want_processes(self, wanted: bool) -> None: ...

    def set_interval(self, interval_s: float) -> None:
        self._every_s = interval_s

    def close(self) -> None:
        self._ends.set()
        threading.Event().wait(self._close_takes_s)

    def tick(self) -> None:
        """The next sample."""
        self._last = sample_number(self._last.number + 1)
        self.on_sample()

    def _run(self) -> None:
        while not self._ends.wait(self._every_s):
            self.tick()


def sample_number(number: int) -> LiveSample:
    host = DeviceSample(-1, "host", monotonic_ns(), {})
    return LiveSample(number, monotonic_ns(), host, (), Missing("not asked"), {})


def wait_for_answers() -> None:
    """On a busy machine the terminal's answer takes longer than a user would wait."""
    from gputui.tui.terminal import driver as quiet_input
    from gputui.tui.terminal import renderer as painting

    painting.LEAST_PATIENCE_S = quiet_input.LONGEST_PATIENCE_S = 60.0


def hang_ups_do_nothing() -> None:
    """Ignore hang-ups, as under nohup: only the terminal itself shows that it is gone."""
    from gputui.tui.terminal import splash

    splash.ENDING = (signal.SIGTERM,)  # type: ignore[assignment]
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def main(words: list[str]) -> int:
    from gputui.tui.terminal.splash import first_picture

    with first_picture(1, "moving") if "splash" in words else nullcontext():
        if "wait" in words:
            while True:  # with an end: a signal just before the wait does not interrupt it
                threading.Event().wait(0.1)
        from gputui.tui.app import MonitorApp

        if "patient" in words:
            wait_for_answers()
        if "nohup" in words:
            hang_ups_do_nothing()
        counted = Path(words[words.index("count") + 1]) if "count" in words else None
        every_s = float(words[words.index("every") + 1]) if "every" in words else None
        collector = Ticking(every_s, close_takes_s=0.1 if "hang" in words else 0.0)
        app = MonitorApp(MovingLines(is_still="still" in words, counted=counted), collector)
        return app.run_until_ended(mouse="mouse" in words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
