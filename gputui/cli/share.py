"""`gputui share`: results for the provider of a box, or for anybody, without what they need not know."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gputui.errors import EXIT_DONE

if TYPE_CHECKING:
    from gputui.model.result import Run

_CARD_CELLS = 80
_SVG = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>.{unique_id}-matrix {{ font: {char_height}px 'DejaVu Sans Mono', Menlo, Consolas, monospace }}
{styles}</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
<rect width="100%" height="100%" rx="8" fill="#14171c"/>
<g transform="translate({terminal_x}, 8)">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
"""As `rich.console.CONSOLE_SVG_FORMAT`, but it loads no font and draws no window."""


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="F[@RUN]...")
@click.option(
    "-o",
    "--output",
    "--card",
    "out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="FILE.html, FILE.md: a report; FILE.svg, FILE.txt: a card; FILE.json: data; FILE.db: a result file.",
)
@click.option("--with-label", is_flag=True, help="Keep the labels of runs.")
@click.option("--with-price", is_flag=True, help="Keep the price of the box.")
@click.option("--with-ids", is_flag=True, help="Keep the ids of runs, boxes and GPUs.")
@click.option("--with-names", is_flag=True, help="Keep the names of your programs, parameters and kernels.")
@click.option("--with-messages", is_flag=True, help="Keep events and reasons in other programs' words.")
@click.option("--trust", is_flag=True, help="Read files with macros or triggers too.")
def command(
    files: tuple[str, ...],
    out: Path,
    with_label: bool,
    with_price: bool,
    with_ids: bool,
    with_names: bool,
    with_messages: bool,
    trust: bool,
) -> int:
    """Write the runs of F, or F@RUN alone, to one file to hand on, and list what is in it.

    Labels, paths, ids, prices and texts that gputui does not know are left out or replaced.
    """
    from gputui.services.share.rules import Keep
    from gputui.services.share.sharing import share

    keep = Keep(price=with_price, label=with_label, ids=with_ids, names=with_names, messages=with_messages)
    shared = share(files, out, keep, draw_card=card_of, trust=trust)
    click.echo(f"wrote {out}", err=True)
    for heading, lines in (("in it:", shared.held), ("left out:", shared.left_out)):
        click.echo(heading)
        for line in lines:
            click.echo(f"  {line}")
    return EXIT_DONE


def card_of(run: Run, form: str) -> str:
    """The answer and the rates of a run, as `show` prints them, to post as a picture or as text."""
    from gputui.cli.results import print_run
    from gputui.document.page import Console
    from gputui.document.spans import Span
    from gputui.document.theme import Depth, Palette
    from gputui.services.results.labels import run_heading_in_one

    is_picture = form == ".svg"
    text, palette = StringIO(), Palette(Depth.TRUE if is_picture else Depth.NONE)
    out = Console(text, _CARD_CELLS, 0, is_terminal=is_picture, has_styles=is_picture, palette=palette)
    made_with = (Span("made with gputui", "dim"),)
    heading = run_heading_in_one(run)[0].partition(": ")[2]  # without its id
    print_run(out, run, [heading], [made_with], shows_all=True, is_card=True)
    if not is_picture:
        return text.getvalue()
    from rich.console import Console as Recorder
    from rich.text import Text

    recorder = Recorder(
        record=True, width=_CARD_CELLS, file=StringIO(), force_terminal=True, color_system="truecolor"
    )
    recorder.print(Text.from_ansi(text.getvalue().rstrip()))
    return recorder.export_svg(title="", code_format=_SVG, unique_id="card")
