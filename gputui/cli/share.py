"""`gputui share`: results for the provider of a box, or for anybody, without what they need not know."""

from __future__ import annotations

from pathlib import Path

import click

from gputui.cli.options import json_option, trust_option
from gputui.cli.output import print_json
from gputui.errors import GputuiError


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
    help="FILE.html, .md: a report; FILE.png, .svg, .txt: a card; FILE.db: a result file.",
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
    shared = share(files, out, Keep(**kept), trust=trust)
    click.echo(f"wrote {out}", err=True)
    if as_json:
        print_json({"file": str(out), "in_it": shared.held, "not_in_it": shared.left_out})
        return
    for heading, lines in (("in it:", shared.held), ("left out:", shared.left_out)):
        click.echo(heading)
        for line in lines:
            click.echo(f"  {line}")
