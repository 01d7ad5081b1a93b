"""The page of one run of loads on a server, as `serve-bench` ends with it and `show` prints it."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.document.page import Console, Page
from gputui.document.spans import Line
from gputui.document.table import table_of
from gputui.model.absent import Missing
from gputui.model.journal import NOTHING_MEASURED, Price
from gputui.model.result import Run
from gputui.services.serving.curve import ServingRun
from gputui.services.serving.text import (
    SERVER_HEADINGS,
    break_even_line,
    curve_table,
    detail_rows,
    energy_line,
    measured_levels,
    server_line,
    server_rows,
    serving_headline,
    serving_notes,
    unmeasured_lines,
)


def print_serving(
    out: Console,
    run: Run,
    serving: ServingRun,
    heading: Sequence[str] = (),
    footer: Sequence[Line] = (),
    *,
    is_verbose: bool = False,
    api_price: tuple[float, float] | None = None,
) -> None:
    """The headline, the server, the curve, what limits its meaning, and `footer`."""
    page = Page(out)
    price: Price | Missing = run.summary.price
    page.line(serving_headline(serving, price), "title")
    if run.summary.status != "finished" and run.summary.status_reason != NOTHING_MEASURED:
        why = f" ({run.summary.status_reason})" if run.summary.status_reason else ""
        page.line(f"The run was {run.summary.status}{why}.")
    page.part((*heading, server_line(serving)))
    page.line()
    levels = measured_levels(serving)
    if levels:
        page.table(curve_table(levels))
        page.line()
    details = detail_rows(serving) if is_verbose else []
    if details:
        headings = ("load", "time", "median", "95 %", "p99", "95 %", "n")
        page.table(table_of(headings, details, right=(2, 4, 6)))
        page.line()
    servers = server_rows(serving) if is_verbose else []
    if servers:
        page.line("By the server's own metrics, when each load ended:")
        page.table(table_of(SERVER_HEADINGS, servers, right=(1, 2, 3, 4)))
        page.line()
    energy = energy_line(serving)
    if energy:
        page.line(energy)
    hosted = [] if api_price is None else [break_even_line(serving, price, api_price)]
    page.part((*hosted, *unmeasured_lines(serving), *serving_notes(serving)))
    for one in footer:
        page.spans(one)  # the terminal breaks it, so that a command can be copied whole
    page.show()
