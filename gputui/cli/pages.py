"""The pages of the documentation, for `gputui help TOPIC`."""

from __future__ import annotations

from gputui.errors import GputuiError
from gputui.services.support.documentation import text_of, topics


def page_of(topic: str) -> str:
    """The text of a page, with links as the names of topics. Raises GputuiError if there is none.

    A topic may end in `.md`, which tells the page of a command from its help.
    """
    topic, found = topic.removesuffix(".md"), topics()
    if topic not in found:
        import difflib

        close = difflib.get_close_matches(topic, found, n=1)
        hint = f"did you mean `gputui help {close[0]}`?" if close else f"topics: {', '.join(found)}"
        raise GputuiError(f"no command or help topic '{topic}'", hint)
    return text_of(found[topic])
