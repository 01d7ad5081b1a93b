"""`gputui share`: results for the provider of a box, or for anybody, without what they need not know."""

from __future__ import annotations

from pathlib import Path

import click

from gputui.errors import EXIT_DONE


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="F[@RUN]...")
@click.option(
    "-o",
    "--output",
    "out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="FILE.html and FILE.md are reports, FILE.json is data, FILE.db a result file.",
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
    shared = share(files, out, keep, trust=trust)
    click.echo(f"wrote {out}", err=True)
    for heading, lines in (("in it:", shared.held), ("not in it:", shared.left_out)):
        click.echo(heading)
        for line in lines:
            click.echo(f"  {line}")
    return EXIT_DONE
