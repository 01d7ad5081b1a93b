"""`gputui reference`: what boxes of one model reach, made of results, listed and shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any  # Any: JSON

import click

from gputui.cli.options import json_option, trust_option
from gputui.cli.output import print_json, printed
from gputui.document.page import Page
from gputui.document.table import table_of
from gputui.errors import GputuiError
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
from gputui.store.reading import open_result


@click.group(no_args_is_help=False)
def command() -> None:
    """What boxes of one model reach: `run` and `show` say where a box stands among them."""


@command.command()
@click.argument("selectors", nargs=-1, required=True, metavar="F[@RUN]...")
@click.option("--name", default="", help="Name of the reference.  [the model]")
@click.option("--note", default="", help="A sentence to keep in the file, readable by anyone who gets it.")
@trust_option
@json_option
def add(selectors: tuple[str, ...], name: str, note: str, trust: bool, as_json: bool) -> None:
    """Make a reference out of results, or extend it; of a file without @RUN, the newest run of each box.

    It holds aggregates only: no ids, labels, paths or prices.
    """
    add_results(selectors, name=name, note=note, trust=trust, as_json=as_json)


def add_results(selectors: Sequence[str], *, name: str, note: str, trust: bool, as_json: bool) -> None:
    """Add these results to a reference, and print what became of each. Raises GputuiError."""
    if not selectors:
        raise GputuiError("no results are named", "gputui gpu --add a.db")
    if len(note) > MOST_NOTE:
        raise GputuiError(f"--note: {len(note)} letters", f"at most {MOST_NOTE}")
    if name and not all(letter.isalnum() or letter in "-_." for letter in name):
        raise GputuiError(f"--name {name}: not a name", "letters, digits, - and _")
    candidates = [one for text in selectors for one in _candidates(text, trust)]
    added = add_to_reference(candidates, name=name, note=note)
    made, problems = added.reference, problems_of_reference(added.reference)
    if as_json:
        plain = {
            "file": str(added.path),
            "added": added.boxes,
            "left_out": added.left_out,
            "problems": problems,
        }
        print_json({**_plain(made, with_cases=False), **plain})
        return
    cases, boxes = counted(len(made.cases), "case"), counted(added.boxes, "box")
    lines = [
        f"{made.name}: {made.model.counted(made.boxes)}, {cases} of {made.profile}; {boxes} added",
        *(f"left out: {line}" for line in added.left_out),
        f"written to {added.path}",
    ]
    unfit = [f"not fit to send: {problem}" for problem in problems]
    with printed() as page:
        page.part((*lines, *(unfit or ["it may be sent as it is: gputui help references.md says how"])))


def _candidates(text: str, trust: bool) -> list[Candidate]:
    from gputui.services.results.selectors import judged_runs, split_selector
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
@json_option
def list_all(as_json: bool) -> None:
    """List the references that are known here: those that ship, and yours."""
    found = known_references()
    if as_json:
        print_json({"references": [_plain(one, with_cases=False) for one in found]})
        return
    headings = ("name", "boxes", "model", "profile", "measured", "torch")
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
    with printed() as page:
        if found:
            page.table(table_of(headings, rows, right=(1,)))
        else:
            page.line("there is no reference yet: gputui gpu --add F@RUN makes one")
        for path in reference_paths():
            try:
                read_reference(path)
            except GputuiError as error:
                page.line(error.message)


@command.command()
@click.argument("name", metavar="NAME|FILE")
@json_option
def show(name: str, as_json: bool) -> None:
    """Show one reference: its boxes, what each case reaches, and whether it is fit to be sent."""
    is_file = name.endswith(".json")
    found = read_reference(Path(name)) if is_file else reference_named(name.removeprefix(PREFIX))
    problems = problems_of_reference(found)
    if as_json:
        print_json({**_plain(found, with_cases=True), "problems": problems})
        return
    with printed() as page:
        _write(page, found, problems)
        page.line(f"file {Path(name) if is_file else reference_path(found.name)}")


def _write(page: Page, found: Reference, problems: Sequence[str]) -> None:
    """Its boxes, the versions they had, what each case reaches, and what is wrong with it."""
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


def _plain(found: Reference, *, with_cases: bool) -> dict[str, Any]:
    plain: dict[str, Any] = {**asdict(found), "boxes": found.boxes}
    cases = plain.pop("cases")
    return {**plain, "cases": cases} if with_cases else {**plain, "case_count": len(cases)}
