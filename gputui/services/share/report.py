"""A report on runs for the provider of a box: what was measured, what is expected, and the evidence."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from io import StringIO
from typing import NamedTuple

from gputui.analysis.peak_tests import BELOW_NORMAL, NO_REFERENCE, Expectation, PeakTest, PerformanceCheck
from gputui.analysis.verdict import SpeedEstimate
from gputui.document.drawings import stacked_bar
from gputui.document.page import Console, Page
from gputui.document.table import Code, Column, Links, Part, Section, Table, table_of
from gputui.document.theme import Depth, Palette
from gputui.errors import GputuiError
from gputui.facts.tables import (
    DistributionRow,
    PlausibleRow,
    distribution_rows,
    find_gpu,
    memory_gib_of,
    plausible_rows,
    source_rows,
)
from gputui.model.absent import Missing, known
from gputui.model.journal import ProfiledPass
from gputui.model.result import CaseResult, Run, RunSummary
from gputui.model.units import format_hourly, format_percent, format_rate
from gputui.services.compare.rerun import REPEATED
from gputui.services.results.expected import performance_checks
from gputui.services.results.headline import main_first, run_headline
from gputui.services.results.labels import (
    box_lines,
    case_name,
    day,
    device_words,
    not_measured_lines,
    run_notes,
    some_of,
    torch_words,
)
from gputui.services.results.run_forms import brief_table, metric_rows, metric_table, rates_table
from gputui.services.results.step_breakdown import step_of
from gputui.services.results.throughput import speeds_of
from gputui.services.run_page import missing_lines, serving_page, with_gains, write_answer
from gputui.services.serving.curve import ServingRun
from gputui.services.serving.text import (
    commands_of,
    curve_table,
    energy_line,
    engine_words,
    headline_of,
    measured_levels,
    server_line,
    serving_notes,
    unmeasured_lines,
)
from gputui.services.share import vocabulary
from gputui.store.reading import DeviceTelemetry, StoredEvent, TelemetrySummary


@dataclass(frozen=True, slots=True)
class SharedSide:
    """One side of a report: a run, and what the box did meanwhile."""

    letter: str
    """`a`, `b`, ...; empty if there is one side."""
    run: Run
    telemetry: TelemetrySummary
    events: tuple[StoredEvent, ...]
    serving: ServingRun | Missing
    runs: int
    """How many runs of it are shared; each case is of one of them."""
    passes: Mapping[int, ProfiledPass]
    """Profiled ones of the run, by case."""


class Report(NamedTuple):
    """The answer in a line, more of it, and the sections."""

    title: str
    lead: str
    sections: tuple[Section, ...]


REPEAT = "How to repeat it"


def report_on(boxes: Sequence[SharedSide], answer: str, contents: Sequence[str]) -> Report:
    """The report on one box, or on several side by side.

    `answer` is the headline of their comparison, empty for one box; `contents` says what is in the report.
    """
    first = boxes[0]
    title, _, lead = (answer or headline_of(first.run, first.serving, first.passes)).partition(". ")
    notes = tuple(f"{_of(box)}{note}" for box in boxes for note in run_notes(box.run, is_brief=True))
    sections = (
        Section("What was measured", (_about(boxes), *([notes] if notes else []))),
        Section("What is expected", tuple(_expected(boxes))),
        Section("Evidence", tuple(_evidence(boxes))),
        Section(REPEAT, tuple(_repeat(boxes))),
        Section("What is in this page, and what was left out", (tuple(contents),)),
    )
    return Report(title.removesuffix("."), lead, tuple(one for one in sections if any(one.parts)))


def _about(boxes: Sequence[SharedSide]) -> Table:
    lines: dict[str, list[str]] = {}
    for place, box in enumerate(boxes):
        more = [] if isinstance(box.serving, Missing) else [("server", server_line(box.serving))]
        more += [("runs", f"{box.runs}; of each case the newest")] if box.runs > 1 else []
        for name, text in (*_lines_about(box.run.summary), *more):
            lines.setdefault(name, [""] * len(boxes))[place] = text
    headings = ("", *(f"box {box.letter}" if box.letter else "box" for box in boxes))
    return table_of(headings, tuple((name, *texts) for name, texts in lines.items()), ())


def _lines_about(run: RunSummary) -> Iterator[tuple[str, str]]:
    yield from box_lines(run)
    started = datetime.fromtimestamp(run.started_utc_us / 1e6, timezone.utc)
    ended = run.ended_utc_us and datetime.fromtimestamp(run.ended_utc_us / 1e6, timezone.utc)
    until = f" to {ended:%H:%M}" if ended else ""
    yield "measured", f"{started:%Y-%m-%d %H:%M}{until} UTC, {run.status}"
    yield "with", f"gputui {run.gputui_version}, profile {run.profile} (version {run.profile_version})"
    if run.label:
        yield "label", run.label
    if not isinstance(run.price, Missing):
        yield "price", format_hourly(run.price.usd_per_hour)


def _of(box: SharedSide) -> str:
    return f"box {box.letter}: " if box.letter else ""


def _expected(boxes: Sequence[SharedSide]) -> Iterator[Part]:
    """The judgement of each device, a line for each peak test, and who published the figures."""
    checks = [(box, check) for box in boxes for check in performance_checks(box.run)]
    if not checks:
        if all(isinstance(box.serving, Missing) for box in boxes):
            yield "No peak test was measured, so nothing published compares with this run."
        return
    yield tuple(
        f"{_of(box)}{check.text if check.word == NO_REFERENCE else f'{_device(check)}: {check.text}'}"
        for box, check in checks
    )
    tests = [(box, check, test) for box, check in checks for test in check.peak_tests]
    if all(test.word == NO_REFERENCE for _, _, test in tests):
        return
    headings = ("device", "test", "here", "elsewhere", "of the lowest there", "called low below", "verdict")
    rows = [
        (box.letter, _device(check), test.label, *_beside_published(test, test.expectation, test.share))
        for box, check, test in tests
        if test.word != NO_REFERENCE and test.expectation is not None and test.share is not None
    ]
    yield _table_of_boxes(headings, rows, right=(2, 3, 4, 5))
    if sources := tuple(_sources(checks)):
        yield "Figures from elsewhere are those of:"
        yield Links(sources)
    standings = [check.standing for _, check in checks if check.standing is not None]
    if standings:
        yield "Boxes of the same model that were measured with gputui:"
        yield tuple(dict.fromkeys(f"{one.model} ({one.source})" for one in standings))


def _beside_published(test: PeakTest, published: Expectation, share: float) -> tuple[str, ...]:
    low, high = format_rate(published.measured_low, test.unit), published.measured_high
    span = f"at least {low}" if high is None else _ends(low, format_rate(high, test.unit))
    here, called_low = (format_rate(rate, test.unit) for rate in (test.units_per_s, published.warn_below))
    return here, span, format_percent(share), called_low, test.word.lower()


def _table_of_boxes(
    headings: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()
) -> Table:
    """A table whose rows begin with the letter of their box, where there are several."""
    if not any(letter for letter, *_ in rows):
        return table_of(headings, [cells for _, *cells in rows], right)
    return table_of(("box", *headings), rows, [place + 1 for place in right])


def _ends(low: str, high: str) -> str:
    """`784 to 821 TFLOP/s`; both with their unit if these differ."""
    number, _, unit = low.partition(" ")
    return f"{number if high.endswith(f' {unit}') else low} to {high}"


def _device(check: PerformanceCheck) -> str:
    return (
        check.device_name if check.device_index is None else f"GPU {check.device_index}, {check.device_name}"
    )


def _sources(checks: Iterable[tuple[SharedSide, PerformanceCheck]]) -> Iterator[tuple[str, str]]:
    """Who published the figures, and where."""
    keys: dict[str, None] = {}
    for box, check in checks:
        expectations = {one.measure: one.expectation for one in check.peak_tests}
        measures = {name for name, one in expectations.items() if one and not one.is_of_reference}
        found = find_gpu(check.device_name, memory_gib_of(box.run.summary.machine, check.device_index))
        if not isinstance(found, Missing):
            rows: list[PlausibleRow | DistributionRow] = [*plausible_rows(), *distribution_rows()]
            told = [row.source for row in rows if row.gpu == found.name and row.measure in measures]
            keys.update(dict.fromkeys(itertools.chain.from_iterable(told)))
    for key in keys:
        source = source_rows()[key]
        yield ", ".join(filter(None, (source.title, source.version_or_date))), source.link


def _evidence(boxes: Sequence[SharedSide]) -> Iterator[Part]:
    gpus = [(box, device) for box in boxes for device in box.telemetry.devices]
    if gpus:
        yield "What the GPUs did during the run:"
        yield _gpu_table(gpus)
    for lines_of in (_links, _stolen, _events):
        if lines := tuple(f"{_of(box)}{line}" for box in boxes for line in lines_of(box)):
            yield lines
    if len(boxes) > 1:
        return  # the comparison has the rest
    (box,) = boxes
    if not isinstance(box.serving, Missing):
        yield from _loads(box.serving)
        return
    yield "Rates with their 95 % interval:"
    yield _rates(box.run)
    if metrics := metric_rows(box.run):
        yield "Other results:"
        yield metric_table(metrics)
    if absent := tuple(not_measured_lines(box.run)):
        yield "Not measured:"
        yield absent


def _gpu_table(gpus: Sequence[tuple[SharedSide, DeviceTelemetry]]) -> Table:
    headings = (
        *("GPU", "power median/most", "limit/default", "clock least/median", "temperature median/most"),
        *("power-capped", "slowed by heat or brake"),
    )
    rows = []
    for box, read in gpus:
        gpu = box.run.summary.machine.gpu(read.device_index)
        limits = "unknown" if gpu is None else _pair(gpu.power_limit_w, gpu.power_default_limit_w, "W")
        rows.append(
            (
                *(box.letter, str(read.device_index)),
                *(_pair(read.power_median_w, read.power_max_w, "W"), limits),
                _pair(read.sm_clock_min_mhz, read.sm_clock_median_mhz, "MHz"),
                _pair(read.temperature_median_c, read.temperature_max_c, "°C"),
                *(_share(read.power_capped_share), _share(read.slowed_share)),
            )
        )
    return _table_of_boxes(headings, rows)


def _pair(one: float | Missing, other: float | Missing, unit: str) -> str:
    """`690 / 702 W`; a dash for what is not known."""
    numbers = ("—" if isinstance(value, Missing) else f"{value:.0f}" for value in (one, other))
    return f"{' / '.join(numbers)} {unit}"


def _share(value: float | Missing) -> str:
    return "—" if isinstance(value, Missing) else f"{format_percent(value)} of the time"


def _links(box: SharedSide) -> Iterator[str]:
    for gpu in box.run.summary.machine.gpus:
        width, most = known(gpu.pcie_width), known(gpu.pcie_width_max)
        if width and most and width < most:
            yield f"GPU {gpu.index}: its PCIe link is x{width}, and could be x{most}"


def _stolen(box: SharedSide) -> Iterator[str]:
    steal_pct = known(box.telemetry.cpu_steal_mean_pct)
    if steal_pct is not None and steal_pct >= 1:
        yield f"the hypervisor took {steal_pct:.0f} % of one CPU from the box during the run"


def _events(box: SharedSide) -> Iterator[str]:
    yield from (event.message for event in box.events if event.level != "info")


def _rates(run: Run) -> Table:
    """Every case with its rate, its share of a peak and how often it was launched."""
    measured = speeds_of(run)
    table = rates_table(run, measured, [case_name(case) for case, _ in measured])
    launches = Column("launches", [str(speed.launches) for _, speed in measured], True)
    return replace(table, columns=(*table.columns, launches))


def _loads(serving: ServingRun) -> Iterator[Part]:
    yield "The loads, with output tokens per second, and n requests that count:"
    yield curve_table(measured_levels(serving))
    lines = (energy_line(serving), *unmeasured_lines(serving), *serving_notes(serving))
    yield tuple(filter(None, lines))


def _repeat(boxes: Sequence[SharedSide]) -> Iterator[Part]:
    """Commands that measure the same again on the provider's own machine of this kind."""
    box = next(filter(_is_low, boxes), boxes[-1])  # the one in question, if one is below normal
    run, version = box.run.summary, f"gputui {box.run.summary.gputui_version}"
    to_share = (
        f"the result{box.letter and f' of box {box.letter}'} as a file (gputui share F@RUN -o shared.db)"
    )
    compare = "gputui compare shared.db again.db"
    if isinstance(box.serving, Missing):
        same = torch_words(run) or "PyTorch"
        tried = [case.case for case in box.run.cases if case.outcome in REPEATED]
        own = [case.name for case in tried if vocabulary.word("workload", case.work.workload) is None]
        if len(own) < len(tried):
            yield f"With {version} and {same}, as here, nothing else running on the box, and {to_share}:"
            yield Code(("gputui run --like shared.db --db again.db", compare))
        if own:
            yield f"Not without its owner: {some_of(own)}."
        return
    server = box.serving.server
    engine = (
        "an unknown engine" if isinstance(server, Missing) else engine_words(server.engine, server.version)
    )
    same_model = f"the same model ({box.serving.model} stands for its name) served by {engine} at its address"
    yield f"With {version}, {same_model}, and {to_share}:"
    yield Code((*commands_of(box.serving, run, "again.db"), compare))


def below_normal(boxes: Sequence[SharedSide]) -> tuple[str, ...]:
    """A sentence for each box that is: what its owner complains of."""
    return tuple(
        f"Box {box.letter} is {run_headline(box.run).split('. ')[0]}." for box in boxes if _is_low(box)
    )


def _is_low(box: SharedSide) -> bool:
    return any(check.word == BELOW_NORMAL for check in performance_checks(box.run))


_CELLS, _BAR, _CELL_PX = 80, 16, 8
"""The width of a card and of its bars; of a cell in PNG: whole pixels make letters alike, and few bytes."""
_FONTS = "'DejaVu Sans Mono', 'Liberation Mono', 'Noto Sans Mono', Menlo, Consolas, 'Courier New', monospace"
_SVG = (
    """<svg viewBox="0 0 1000.4 HEIGHT" xmlns="http://www.w3.org/2000/svg">
<style>.{unique_id}-matrix {{ font: {char_height}px """
    + _FONTS
    + """ }}
{styles}</style>
<rect width="100%" height="100%" rx="8" fill="#14171c"/>
<g transform="translate(12.2, 12.2)">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
)
"""As `rich.console.CONSOLE_SVG_FORMAT`, without a font to load or a window; its cells are 12.2 wide."""
_PROBE = """<svg viewBox="{begin} 0 20 20" xmlns="http://www.w3.org/2000/svg">
<text y="15" style="font: 10px {fonts}">iiiiiiii</text></svg>"""
"""Eight narrow letters, seen from a place that they reach only in a font in which all are as wide."""


def card_of(box: SharedSide, form: str) -> str | bytes:
    """The answer, the main rates and a step of a run, or the curve of a server, as .png, .svg or .txt.

    Raises GputuiError if a picture cannot be made here.
    """
    text = StringIO()
    if form == ".txt":
        _page(Console(text, _CELLS, 0, False, False, Palette(Depth.NONE)), box).show()
        return text.getvalue()
    _page(Console(text, _CELLS, 0, True, True, Palette(Depth.TRUE)), box).show()
    picture = _drawn(text.getvalue().rstrip())
    return picture if form == ".svg" else _rasterized(picture)


def _page(out: Console, box: SharedSide) -> Page:
    run, summary = box.run, box.run.summary
    about = (summary.profile, device_words(summary), torch_words(summary), day(summary))
    heading = [", ".join(filter(None, about))]
    if not isinstance(box.serving, Missing):
        page = serving_page(out, run, box.serving, heading)
    else:
        page, (step, parts) = Page(out), step_of(run, box.passes)
        write_answer(page, run, heading, box.passes)
        if rows := _main_cases(run):
            page.table(with_gains(brief_table(run, rows, _BAR), run, rows))
            page.line()
            page.line(step, "dim")
        if parts:
            page.table(Table((stacked_bar(parts),)))
        page.line()
        for line in missing_lines(run):
            page.line(line, "dim")
    page.line("made with gputui", "dim")
    return page


def _main_cases(run: Run) -> list[tuple[CaseResult, SpeedEstimate]]:
    """Of each workload the case that people come for, of peak tests in each precision; in their order."""
    measured, chosen = speeds_of(run), dict[tuple[str, str], int]()
    for case, _ in sorted(measured, key=lambda pair: main_first(pair[0])):
        precision = case.case.variant.precision if case.case.workload_class == "ceiling" else ""
        chosen.setdefault((case.case.work.workload, precision), case.case_id)
    return [pair for pair in measured if pair[0].case_id in chosen.values()]


def _drawn(lines: str) -> str:
    """Lines with escape sequences as SVG."""
    from rich.console import Console as Recorder  # which takes long to import, and pictures alone need
    from rich.text import Text

    recorder = Recorder(
        record=True, width=_CELLS, file=StringIO(), force_terminal=True, color_system="truecolor"
    )
    recorder.print(Text.from_ansi(lines))
    template = _SVG.replace("HEIGHT", f"{(lines.count(chr(10)) + 2) * 24.4:.1f}")
    drawn = recorder.export_svg(title="", code_format=template, unique_id="card")
    return re.sub(r' clip-path="[^"]*"', "", drawn)  # nothing is wider than its line


def _rasterized(picture: str) -> bytes:
    """A card as a PNG file. Raises GputuiError without what draws it, or without a font to draw it in."""
    try:
        from resvg_py import svg_to_bytes
    except ImportError as error:
        raise GputuiError(
            "a card in PNG needs resvg_py, which is not installed",
            "pip install resvg-py, or end its name in .svg",
        ) from error
    seen, unseen = (svg_to_bytes(svg_string=_PROBE.format(begin=x, fonts=_FONTS)) for x in (35, 350))
    if seen == unseen:
        raise GputuiError(
            "no monospaced font is installed, so a card in PNG would have no text",
            "install one, such as the package fonts-dejavu-core, or end its name in .svg",
        )
    return bytes(
        svg_to_bytes(
            svg_string=picture,
            width=(_CELLS + 2) * _CELL_PX,
            text_rendering="optimize_speed",  # without shades it has 13 colours, and a fifth of the bytes
            shape_rendering="crisp_edges",
        )
    )
