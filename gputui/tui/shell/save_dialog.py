"""Asks where to save what a screen shows, and saves it in the background."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gputui.store.opening import expanded
from gputui.tui.shell.shell_screen import ShellScreen
from gputui.tui.widgets.dialogs import AskText, Confirm


def ask_and_save(screen: ShellScreen, question: str, name: str, save: Callable[[Path], str]) -> None:
    """Ask for a path, defaulting to `name` in the working directory; confirm before replacing a file.

    `save` writes the file in a thread and returns a message; the screen shows the errors it raises.
    """

    def write(path: Path) -> None:
        screen.begin(lambda job: save(path), lambda message: screen.say(message, "good"))

    def named(text: str | None) -> None:
        if text is None or not text.strip():
            return
        path = expanded(Path(text.strip())).absolute()
        if path.is_file():

            def answered(is_yes: bool | None) -> None:
                if is_yes:
                    write(path)

            screen.app.push_screen(Confirm(f"{path} is already there. Replace it?"), answered)
        else:
            write(path)

    screen.app.push_screen(AskText(question, name), named)
