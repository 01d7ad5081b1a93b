"""What stands beside and below the list of runs: the selected run, and its main case on every box."""

from __future__ import annotations

from collections.abc import Sequence

from gputui.analysis.cost import Cost
from gputui.analysis.peak_tests import ABOVE_LIMIT, BELOW_NORMAL
from gputui.document.bars import bars
from gputui.document.table import Column, Table, table_of
from gputui.model.absent import Missing
from gputui.model.result import CaseResult, Run, RunSummary
from gputui.model.units import (
    cost_unit,
    counted,
    format_hourly,
    format_percent,
    format_rate,
    format_seconds,
    format_usd,
)
from gputui.services.results.boxes import main_case, on_boxes
from gputui.services.results.browser import RunDetail
from gputui.services.results.headline import case_subject, run_headline
from gputui.services.results.labels import (
    NOT_RUN,
    day,
    device_words,
    shared_case_words,
    short_result_name,
    torch_words,
)
from gputui.services.results.roofline import uses_of
from gputui.services.results.step_breakdown import breakdown_of
from gputui.services.results.throughput import speeds_of
from gputui.services.serving.text import server_line
from gputui.store.machines import runs_with_common_ids
from gputui.store.text import clean_text
from gputui.tui.screens.results.load_lines import headline, load_lines, loads_of
from gputui.tui.screens.results.overview import main_series, step_lines, telemetry_lines
from gputui.tui.screens.results.tables import CASE_HEADINGS, case_rows
from gputui.tui.terminal.lines import Line, Span
from gputui.tui.widgets.cells import cut, fitted
from gputui.tui.widgets.paragraphs import paragraph
from gputui.tui.widgets.sections import section, stacked
from gputui.tui.widgets.table_lines import table_lines

_LABEL = 10
_MOST_CASES = 9
_AROUND_CHARTS, _CHART_LINES = 2, 4
"""Lines of heading and axis of telemetry, and of each of its charts."""


def preview_lines(detail: RunDetail, width: int, height: int) -> list[Line]:
    """A run: verdict, box, shares of the peak, the step of its main case, telemetry, as far as they fit."""
    run, summary = detail.run, detail.run.summary
    title = f"{summary.short_id}  "
    about = clean_text(f"{summary.profile}  {day(summary)}")
    lines: list[Line] = [(Span(title, "title"), Span(cut(about, width - len(title)), "dim"))]
    if summary.label:
        lines.append((Span(cut(clean_text(summary.label), width)),))
    blocks = (
        verdict_lines(detail, width),
        _facts(detail, width),
        _loads(detail, width),
        _peaks(run, width),
        _step(detail, width),
    )
    lines += stacked(blocks, height - len(lines))
    if charts := _telemetry(detail, width, height - len(lines) - 1):
        lines += [(), *charts]
    return [fitted(line, width) for line in lines]


def verdict_lines(detail: RunDetail, width: int) -> list[Line]:
    """What the run says, a line for each sentence."""
    loads = loads_of(detail)
    text = run_headline(detail.run) if loads is None else headline(detail, loads)
    style = "warn" if text.startswith(BELOW_NORMAL) else "alarm" if text.startswith(ABOVE_LIMIT) else ""
    lines: list[Line] = []
    for number, sentence in enumerate(text.replace(". ", ".\n").splitlines()):
        lines += paragraph(clean_text(sentence), width + 1, style if number == 0 else "")
    return lines


def _facts(detail: RunDetail, width: int) -> list[Line]:
    summary = detail.run.summary
    machine = summary.machine
    launches = {speed.launches for _, speed in speeds_of(detail.run)}
    took = []
    if summary.ended_utc_us is not None:
        seconds = (summary.ended_utc_us - summary.started_utc_us) / 1e6
        took.append(format_seconds(seconds))
        if not isinstance(summary.price, Missing):
            took += [
                format_usd(summary.price.usd_per_hour * seconds / 3600),
                format_hourly(summary.price.usd_per_hour),
            ]
    driver = "" if isinstance(machine.driver_version, Missing) else machine.driver_version
    loads = loads_of(detail)
    facts = (
        ("box", device_words(summary)),
        ("software", torch_words(summary)) if loads is None else ("server", server_line(loads)),
        ("driver", driver if machine.gpus else ""),
        ("platform", "" if not machine.layers else " ".join(layer.name for layer in machine.layers)),
        ("launches", "" if not launches else counted(max(launches), "launch") + " a case"),
        ("took", ", ".join(took)),
        ("status", "" if summary.status == "finished" else f"{summary.status} {summary.status_reason}"),
    )
    return [
        (Span(f"{name:{_LABEL}}", "dim"), Span(clean_text(text), "warn" if name == "status" else ""))
        for name, text in facts
        if text
    ]


def _loads(detail: RunDetail, width: int) -> list[Line]:
    loads = loads_of(detail)
    return [] if loads is None else list(load_lines(loads, width, _MOST_CASES))


def _peaks(run: Run, width: int) -> list[Line]:
    """Cases with their share of the data sheet's peak as bars; empty where no peak is known."""
    shares = [(case, share) for case in run.cases if (share := _of_sheet(case, run)) is not None]
    if not shares:
        return []
    common = shared_case_words(case.case for case, _ in shares)
    names = [short_result_name(case, common, is_short=True) for case, _ in shares]
    said = f" ({' '.join(common)})" if common else ""
    lines: list[Line] = [(Span(f"of the data sheet's peak{said}", "dim"),)]
    known = [share for _, share in shares[:_MOST_CASES]]
    columns = (
        Column("", names[:_MOST_CASES], breaks=True),
        bars(known, 1.0, "compute"),
        Column("", [*map(format_percent, known)], True),
    )
    lines += table_lines(Table(columns), width, margin=0, has_headings=False)
    if len(shares) > _MOST_CASES:
        lines.append((Span(f"{len(shares) - _MOST_CASES} more: enter", "dim"),))
    return lines


def _of_sheet(case: CaseResult, run: Run) -> float | None:
    uses = uses_of(case, run.cases, run.summary.machine)
    return next((use.of_sheet for use in uses if not isinstance(use.of_sheet, Missing)), None)


def _step(detail: RunDetail, width: int) -> list[Line]:
    """The step of the main case as one bar."""
    main = main_case(detail.run)
    found = None if main is None else detail.passes.get(main.case_id)
    if main is None or found is None:
        return []
    breakdown = breakdown_of(found, main)
    return [] if isinstance(breakdown, Missing) else list(step_lines(main, breakdown, width))


def _telemetry(detail: RunDetail, width: int, height: int) -> list[Line]:
    """Metrics over the time of the run, as many as fit."""
    series = main_series(detail)
    most = (height - _AROUND_CHARTS) // _CHART_LINES
    return (
        [] if series is None or most < 1 else list(telemetry_lines(detail.run, series, width, min(most, 4)))
    )


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
