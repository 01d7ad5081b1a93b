"""Finds a run by a short id, a label or `latest`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from gputui.errors import GputuiError, beginning
from gputui.model.result import RunSummary

_QUOTED = 24
"""How much of a wrong label an error repeats, so that its own text stays visible."""
MAX_LABEL = 80
_LISTED = 8


def find_run(summaries: Sequence[RunSummary], selector: str, *, guesses: bool = True) -> RunSummary:
    """The run that a selector names, among summaries sorted newest first.

    A selector is `latest`, `latest~N`, the last 8 hex digits of the id or a unique prefix of them, the whole
    id, or a label. Raises GputuiError if none or several match; with `guesses`, it names runs that may be
    meant.
    """
    if not summaries:
        raise GputuiError(f"there is no run {selector!r}: no run is stored yet", "measure one: gputui run")
    latest = re.fullmatch(r"latest(?:~(\d{1,6}))?", selector)
    if latest:
        back = int(latest.group(1) or 0)
        if back >= len(summaries):
            stored = f"{len(summaries)} {'is' if len(summaries) == 1 else 'are'} stored"
            raise GputuiError(f"there is no run {selector!r}: {stored}", "gputui runs F lists them")
        return summaries[back]
    found = _matching(summaries, selector)
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(_called(s) for s in found[:_LISTED])
        more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        raise GputuiError(
            f"{selector!r} means {len(found)} runs: {listed}{more}", "name one by the 8 digits of its id"
        )
    names = [name for s in summaries for name in (s.short_id, s.label) if name]
    near = difflib.get_close_matches(selector, dict.fromkeys(names), n=3)
    hint = f"did you mean {', '.join(near)}?" if near else f"the newest is {_called(summaries[0])}"
    hint = hint if guesses else "gputui runs F lists them"
    hint = (
        "one file at a time; gputui compare sets several beside each other"
        if selector.endswith(".db")
        else hint
    )
    raise GputuiError(f"there is no run {selector!r}", hint)


def find_runs(summaries: Sequence[RunSummary], selector: str) -> tuple[RunSummary, ...]:
    """All runs that a selector names: those with one label, or the one that `find_run` finds."""
    found = _matching(summaries, selector)
    if found and all(summary.label == selector for summary in found):
        return tuple(found)
    return (find_run(summaries, selector),)


def check_label(text: str) -> str:
    """The label, if it is valid; empty means none.

    Raises GputuiError for one that is too long, cannot be printed, or would be mistaken for a short id or for
    `latest`.
    """
    if len(text) > MAX_LABEL or not text.isprintable():
        raise GputuiError(
            f"{beginning(text, _QUOTED)!r} is not a label",
            f"a label has up to {MAX_LABEL} printable characters",
        )
    if re.fullmatch(r"latest(~.*)?|[0-9a-f]{8}|[0-9a-f-]{36}", text.lower()):
        raise GputuiError(f"{text!r} is not a label: it reads as a run's id", "add a word to it")
    return text


def _matching(summaries: Sequence[RunSummary], selector: str) -> list[RunSummary]:
    """Runs with this id, else with this label, else whose short id starts like this."""
    wanted = selector.lower()
    ways = (
        [s for s in summaries if wanted in (s.short_id, s.run_id)],
        [s for s in summaries if selector and s.label == selector],
        [s for s in summaries if wanted and s.short_id.startswith(wanted)],
    )
    return next((matches for matches in ways if matches), [])


def _called(summary: RunSummary) -> str:
    return f"{summary.short_id} ({summary.label})" if summary.label else summary.short_id
