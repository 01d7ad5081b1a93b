"""The ends of the logs of failed launches, for the page of findings."""

from __future__ import annotations

from gputui.document.spans import wrapped
from gputui.model.units import listed
from gputui.services.results.browser import RunDetail
from gputui.services.results.labels import case_name, launch_number
from gputui.tui.terminal.lines import Line, Span

_MARGIN = 4


def last_words(detail: RunDetail, width: int) -> tuple[Line, ...]:
    """A heading, and for each failed launch its cases, the reason, and the end of its log."""
    if not detail.last_words:
        return ()
    cases = {case.case_id: case for case in detail.run.cases}
    lines: list[Line] = [(), (Span("last words of workers", "title"),)]
    for failed, log_end in detail.last_words:
        of = [cases[case_id] for case_id in failed.case_ids if case_id in cases]
        number = launch_number(of[0], failed.launch_id) if of else 1
        launch = f"launch {number} of {listed([*map(case_name, of)] or ['a case'])}"
        why = f"{failed.outcome}: {failed.reason}" if failed.reason else failed.outcome
        about = wrapped(f"{launch}: {why}", max(width - 1, 20), 2)
        lines += [(Span(row, "warn"),) for row in about]
        for row in log_end:
            margin = " " * (_MARGIN + min(len(row) - len(row.lstrip()), 8))
            lines += [
                (Span(margin + part),) for part in wrapped(row.strip(), max(width - len(margin) - 1, 20))
            ]
    where = "logs stay on the machine that measured" if detail.logs is None else f"whole logs: {detail.logs}"
    lines += [(Span(row, "dim"),) for row in wrapped(where, max(width - 1, 20))]
    return tuple(lines)
