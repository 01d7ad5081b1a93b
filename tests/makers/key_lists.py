"""Keys of a screen as docs/ lists them."""

from __future__ import annotations

from collections.abc import Iterable

from gputui.tui.shell.registry import Action, shown_keys


def list_of(actions: Iterable[Action]) -> str:
    """Keys as a Markdown list."""
    return "".join(
        f"- {', '.join(f'`{key}`' for key in shown_keys(action))} {action.title}: {action.tooltip}\n"
        for action in actions
    )
