"""`gputui share`: results for the provider of a box, or for anybody, without what they need not know."""

from __future__ import annotations

import re
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

import click

from gputui.cli.options import json_option, trust_option
from gputui.cli.output import print_json
from gputui.document.drawings import stacked_bar
from gputui.document.page import Console, Page
from gputui.document.table import Table
from gputui.document.theme import Depth, Palette
from gputui.errors import GputuiError
from gputui.model.journal import ProfiledPass
from gputui.model.result import Run

_CARD_CELLS, _BAR, _CELL_PX = 80, 16, 8
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


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="F[@RUN]...")
@click.option(
    "-o",
    "--output",
    "--card",
    "outs",
    required=True,
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="FILE.html, .md: a report; FILE.png, .svg, .txt: a card; FILE.json: data; FILE.db: a result file.",
)
@click.option("--with-label", "label", is_flag=True, help="Keep the labels of runs.")
@click.option("--with-price", "price", is_flag=True, help="Keep the price of the box.")
@click.option("--with-ids", "ids", is_flag=True, help="Keep the ids of runs, boxes and GPUs.")
@click.option(
    "--with-names", "names", is_flag=True, help="Keep the names of your programs, parameters and kernels."
)
@click.option(
    "--with-messages", "messages", is_flag=True, help="Keep events and reasons in other programs' words."
)
@trust_option
@json_option
def command(
    files: tuple[str, ...],
    outs: tuple[Path, ...],
    trust: bool,
    as_json: bool,
    **kept: bool,
) -> None:
    """Write the runs of F, or F@RUN alone, to one file to hand on, and list what is in it.

    Labels, paths, ids, prices and texts that gputui does not know are left out or replaced.
    """
    from gputui.services.share.copying import Keep
    from gputui.services.share.sharing import share

    if len(outs) > 1:
        raise GputuiError(f"{' and '.join(map(str, outs))}: one file is written", "call it once for each")
    (out,) = outs
    shared = share(files, out, Keep(**kept), draw_card=card_of, trust=trust)
    click.echo(f"wrote {out}", err=True)
    if as_json:
        print_json(
            {"file": str(out), "in_it": shared.held, "not_in_it": shared.left_out, "called": shared.called}
        )
        return
    called = [("called, for you alone:", shared.called)] if shared.called else []
    for heading, lines in (("in it:", shared.held), ("left out:", shared.left_out), *called):
        click.echo(heading)
        for line in lines:
            click.echo(f"  {line}")


def card_of(run: Run, passes: Mapping[int, ProfiledPass], form: str) -> str | bytes:
    """The answer, a few figures, the main rates and a step of a run, to post as a picture or as text.

    Raises GputuiError if a picture cannot be made here.
    """
    from gputui.services.results.case_table import brief_table
    from gputui.services.results.labels import run_heading_in_one
    from gputui.services.results.step_tables import step_of
    from gputui.services.run_page import missing_lines, with_gains, write_answer
    from gputui.services.share.report import key_figures, main_cases

    is_picture = form != ".txt"
    text, palette = StringIO(), Palette(Depth.TRUE if is_picture else Depth.NONE)
    out = Console(text, _CARD_CELLS, 0, is_terminal=is_picture, has_styles=is_picture, palette=palette)
    page, figures, (step, parts) = Page(out), key_figures(run), step_of(run, passes)
    heading = run_heading_in_one(run)[0].partition(": ")[2]  # without its id
    write_answer(page, run, [heading], passes)
    if figures is not None:
        page.table(figures, gap=2)
        page.line()
    if rows := main_cases(run):
        page.table(with_gains(brief_table(run, rows, _BAR), run, rows))
        page.line()
    if figures is not None:
        page.line(step, "dim")
    if parts:
        page.table(Table((stacked_bar(parts),)))
        page.line()
    for line in (*missing_lines(run), "made with gputui"):
        page.line(line, "dim")
    page.show()
    if not is_picture:
        return text.getvalue()
    from rich.console import Console as Recorder
    from rich.text import Text

    lines = text.getvalue().rstrip()
    recorder = Recorder(
        record=True, width=_CARD_CELLS, file=StringIO(), force_terminal=True, color_system="truecolor"
    )
    recorder.print(Text.from_ansi(lines))
    template = _SVG.replace("HEIGHT", f"{(lines.count(chr(10)) + 2) * 24.4:.1f}")
    drawn = recorder.export_svg(title="", code_format=template, unique_id="card")
    picture = re.sub(r' clip-path="[^"]*"', "", drawn)  # nothing is wider than its line
    return picture if form == ".svg" else _rasterized(picture)


_PROBE = """<svg viewBox="{begin} 0 20 20" xmlns="http://www.w3.org/2000/svg">
<text y="15" style="font: 10px {fonts}">iiiiiiii</text></svg>"""
"""Eight narrow letters, seen from a place that they reach only in a font in which all are as wide."""


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
            width=(_CARD_CELLS + 2) * _CELL_PX,
            text_rendering="optimize_speed",  # without shades it has 13 colours, and a fifth of the bytes
            shape_rendering="crisp_edges",
        )
    )
