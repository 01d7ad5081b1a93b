"""Lines of styled text: panes build them with pure functions, one widget shows them."""

from __future__ import annotations

import re

from gputui.document.spans import Line as Line
from gputui.document.spans import Span as Span

_MARKED = ("warn", "alarm")
"""Styles that are an underline or reverse video where there are no colours."""


_NOT_WORDS = re.compile("(^ +| +$|  +|[─-◿]+)")
"""Blanks around words and between the columns of a row; lines, bars and points."""


def without_marked_blanks(line: Line) -> Line:
    """The same line, in which words of warning are marked, without the blanks and the bars beside them.

    An underline would double a bar.
    """
    if not any(span.style in _MARKED and _NOT_WORDS.search(span.text) for span in line):
        return line
    return tuple(part for span in line for part in _parts(span))


def _parts(span: Span) -> Line:
    if span.style not in _MARKED:
        return (span,)
    texts = _NOT_WORDS.split(span.text)
    return tuple(Span(text, "" if _NOT_WORDS.fullmatch(text) else span.style) for text in texts if text)
