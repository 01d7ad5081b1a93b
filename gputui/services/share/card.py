"""A card of one run: a small picture, or text, to post."""

from __future__ import annotations

import re
from io import StringIO

from gputui.analysis.verdict import SpeedEstimate
from gputui.document.drawings import stacked_bar
from gputui.document.page import Console, Page
from gputui.document.table import Table
from gputui.document.theme import Depth, Palette
from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.result import CaseResult, Run
from gputui.services.results.case_table import brief_table
from gputui.services.results.headline import main_first
from gputui.services.results.labels import day, device_words, torch_words
from gputui.services.results.step_tables import step_of
from gputui.services.results.throughput import speeds_of
from gputui.services.run_page import missing_lines, serving_page, with_gains, write_answer
from gputui.services.share.report import SharedSide

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
