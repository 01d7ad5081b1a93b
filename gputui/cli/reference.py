"""`gputui reference`: what boxes of one model reach, made of results, listed and shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any  # Any: JSON

import click

from gputui.cli.output import console
from gputui.document.page import Page
from gputui.document.table import table_of
from gputui.errors import EXIT_DONE, GputuiError
from gputui.model.units import counted, format_percent, format_rate
from gputui.services.results.reference_making import (
    MOST_NOTE,
    Candidate,
    add_to_reference,
    problems_of_reference,
)
from gputui.services.results.references import (
    PREFIX,
    Reference,
    known_references,
    read_reference,
    reference_named,
    reference_path,
    reference_paths,
)


@click.group(no_args_is_help=False)
def command() -> None:
    """What boxes of one model reach: `run` and `show` say where a box stands among them."""


@command.command()
@click.argument("selectors", nargs=-1, required=True, metavar="F[@RUN]...")
@click.option("--name", default="", help="Name of the reference.  [the model]")
@click.option("--note", default="", help="A sentence to keep in the file, readable by anyone who gets it.")
@click.option("--trust", is_flag=True, help="Read files with macros or triggers too.")
def add(selectors: tuple[str, ...], name: str, note: str, trust: bool) -> int:
    """Make a reference out of results, or extend it; of a file without @RUN, the newest run of each box.

    It holds aggregates only: no ids, labels, paths or prices.
    """

    if len(note) > MOST_NOTE:
        raise GputuiError(f"--note: {len(note)} letters", f"at most {MOST_NOTE}")
    if name and not all(letter.isalnum() or letter in "-_." for letter in name):
        raise GputuiError(f"--name {name}: not a name", "letters, digits, - and _")
    candidates = [one for text in selectors for one in _candidates(text, trust)]
    added = add_to_reference(candidates, name=name, note=note)
    page = Page(console())
    made = added.reference
    page.line(
        f"{made.name}: {made.model.counted(made.boxes)}, {counted(len(made.cases), 'case')}"
        f" of {made.profile}; {counted(added.boxes, 'box')} added"
    )
    for line in added.left_out:
        page.line(f"left out: {line}")
    page.line(f"written to {added.path}")
    problems = problems_of_reference(made)
    for problem in problems:
        page.line(f"not fit to send: {problem}")
    if not problems:
        page.line("it may be sent as it is: gputui help references.md says how")
    page.show()
    return EXIT_DONE


def _candidates(text: str, trust: bool) -> list[Candidate]:
    from gputui.services.results.selectors import judged_runs, split_selector
    from gputui.store.reading import open_result
    from gputui.store.selecting import find_run

    path, selector = split_selector(text)
    with open_result(path, trust) as file:
        summaries = file.summaries()
        chosen = [find_run(summaries, selector)] if selector else summaries
        return [
            Candidate(
                text if selector else f"{text}@{run.summary.short_id}",
                run,
                file.conditions(run.summary.run_id),
            )
            for run in judged_runs(file, chosen)
        ]


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def list_all(as_json: bool) -> int:
    """List the references that are known here: those that ship, and yours."""

    found = known_references()
    if as_json:
        click.echo(
            json.dumps(
                {"schema": 1, "references": [_plain(one, with_cases=False) for one in found]}, indent=1
            )
        )
        return EXIT_DONE
    page = Page(console())
    if found:
        rows = [
            (
                one.name,
                str(one.boxes),
                one.model.words,
                one.profile,
                one.months,
                one.range_of("torch"),
            )
            for one in found
        ]
        page.table(table_of(("name", "boxes", "model", "profile", "measured", "torch"), rows, right=(1,)))
    else:
        page.line("there is no reference yet: gputui reference add F@RUN makes one")
    for path in reference_paths():
        try:
            read_reference(path)
        except GputuiError as error:
            page.line(error.message)
    page.show()
    return EXIT_DONE


@command.command()
@click.argument("name", metavar="NAME|FILE")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def show(name: str, as_json: bool) -> int:
    """Show one reference: its boxes, what each case reaches, and whether it is fit to be sent."""

    is_file = name.endswith(".json")
    found = read_reference(Path(name)) if is_file else reference_named(name.removeprefix(PREFIX))
    problems = problems_of_reference(found)
    if as_json:
        click.echo(
            json.dumps({"schema": 1, **_plain(found, with_cases=True), "problems": problems}, indent=1)
        )
        return EXIT_DONE
    page = Page(console())
    about = [
        found.model.counted(found.boxes),
        f"{found.profile}, version {found.profile_version}",
        found.months,
    ]
    page.line(f"{found.name}: {'; '.join(about)}")
    if found.note:
        page.line(f"note: {found.note}")
    versions = ", ".join(f"{key} {found.range_of(key)}" for key in found.versions)
    fewest, most = found.launches
    launches = counted(most, "launch") if fewest == most else f"{fewest} to {most} launches"
    page.line(f"measured with {versions or 'unknown versions'}; {launches} of a case")
    if found.power_limit_w is not None:
        low, high = found.power_limit_w
        page.line(f"power limit {low:.0f} W" + (f" to {high:.0f} W" if high > low else ""))
    known = found.known_cases()
    rows = []
    for case, rates in known.values():
        spread = "—" if rates.boxes < 2 else format_percent(rates.log_sd)
        ends = (rates.typical_per_s, rates.quantiles_per_s[0], rates.quantiles_per_s[-1])
        rows.append((case.name, str(rates.boxes), *(format_rate(rate, case.unit) for rate in ends), spread))
    page.line()
    headings = ("case", "boxes", "typical", "slowest", "fastest", "spread")
    page.table(table_of(headings, rows, right=(1, 2, 3, 4, 5)))
    unknown = len(found.cases) - len(known)
    if unknown:
        page.line(f"{counted(unknown, 'case')} of another version of gputui left out")
    page.line()
    if found.boxes < 5:
        page.line("below five boxes it calls no box BELOW NORMAL")
    for problem in problems:
        page.line(f"not fit to send: {problem}")
    page.line(f"file {Path(name) if is_file else reference_path(found.name)}")
    page.show()
    return EXIT_DONE


def _plain(found: Reference, *, with_cases: bool) -> dict[str, Any]:
    from dataclasses import asdict

    plain: dict[str, Any] = {**asdict(found), "boxes": found.boxes}
    cases = plain.pop("cases")
    return {**plain, "cases": cases} if with_cases else {**plain, "case_count": len(cases)}
