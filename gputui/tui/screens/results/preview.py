"""What stands below the list of runs: the main case of the selected one on every box, its cases, marks."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.analysis.cost import Cost
from gputui.document.bars import bars
from gputui.document.table import Column, Table, table_of
from gputui.model.result import Run, RunSummary
from gputui.model.units import (
    cost_unit,
    format_rate,
    format_usd,
)
from gputui.services.results.browser import RunDetail
from gputui.services.results.headline import case_subject, main_case
from gputui.services.results.labels import (
    NOT_RUN,
    device_words,
)
from gputui.services.results.run_lists import on_boxes
from gputui.store.machines import runs_with_common_ids
from gputui.store.text import clean_text
from gputui.tui.screens.results.tables import CASE_HEADINGS, case_rows
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import fitted
from gputui.tui.widgets.sections import section, table_lines


def boxes_lines(detail: RunDetail, boxes: Sequence[Run], width: int, height: int) -> list[Line]:
    """The main case of a run on every box that measured it, the fastest first; empty if there is no other."""
    main = main_case(detail.run)
    if main is None or height < 4:
        return []
    this, *rest = runs_with_common_ids([detail.run, *boxes])
    mine = this.summary.machine.machine_id
    others = [run for run in rest if run.summary.machine.machine_id != mine]
    found = on_boxes(main.case, [detail.run, *others])
    if len(found) < 2:
        return []
    name = case_subject(main.case, [case.case for case in detail.run.cases if case.outcome == "ok"])
    lines: list[Line] = [
        section(
            (Span(f"{clean_text(name)} on every box", "title"),), width, (Span("newest run of each", "dim"),)
        )
    ]
    costs = [
        one.cost.usd_per_million for one in found if isinstance(one.cost, Cost) and one.cost.usd_per_million
    ]
    millions, unit = cost_unit(min(costs), main.case.unit) if costs else (1.0, "")
    shown = found[: height - 2]
    boxes_of = [device_words(one.run) for one in shown]
    names = [
        clean_text(box if boxes_of.count(box) == 1 else f"{box}  {one.run.label or one.run.short_id}")
        for box, one in zip(boxes_of, shown, strict=True)
    ]
    here = [one.run.run_id == detail.run.summary.run_id for one in shown]
    rates = [one.speed.units_per_s for one in shown]
    prices = [
        format_usd(one.cost.usd_per_million * millions) if isinstance(one.cost, Cost) else "–"
        for one in shown
    ]
    columns = (
        Column(
            "",
            [Span(name, "title" * is_here) for name, is_here in zip(names, here, strict=True)],
            breaks=True,
        ),
        Column("", [format_rate(rate, main.case.unit) for rate in rates], True),
        bars(rates, rates[0], "compute"),
        *((Column(f"$ per {unit}", prices, True, 2),) if costs else ()),
    )
    return [*lines, *table_lines(Table(columns), width, marks=here)]


def cases_lines(run: Run, width: int, height: int) -> list[Line]:
    """The cases with their rates, as many as fit."""
    rows = [row.cells for row in case_rows(run) if row.case.outcome not in NOT_RUN]
    if not rows or height < 4:
        return []
    shown = rows[: height - 2] if len(rows) > height - 1 else rows
    lines: list[Line] = [section((Span("cases", "title"),), width, (Span("enter: all of it", "dim"),))]
    cells: list[tuple[str | Span, ...]] = [(*row[:4], Span(row[4], "dim")) for row in shown]
    lines += table_lines(table_of(CASE_HEADINGS, cells, (1, 2, 3), (0, 4), priorities={3: 1, 4: 2}), width)
    if len(shown) < len(rows):
        lines[-1] = (Span(f"  {len(rows) - len(shown) + 1} more", "dim"),)
    return lines


def marked_lines(marked: Sequence[RunSummary], count: int, width: int) -> list[Line]:
    """The marked runs by the letters that a comparison would give them."""
    if not count:
        return []
    spans: list[Span] = [Span("  ")]
    for place, run in enumerate(marked):
        name = clean_text(run.label or device_words(run))
        spans += [
            Span(f"{chr(ord('a') + place)} ", "title"),
            Span(f"{name} "),
            Span(f"{run.short_id}   ", "dim"),
        ]
    if count > len(marked):
        spans.append(Span(f"and {count - len(marked)} of other files   ", "dim"))
    spans.append(Span("c compares them" if count > 1 else "mark another with space", "dim"))
    return [section((Span("marked to compare", "title"),), width), fitted(spans, width)]
