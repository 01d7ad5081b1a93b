"""`gputui advise`: what my job takes and costs on each box that was measured."""

from __future__ import annotations

import datetime
import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar  # Any: JSON

import click

from gputui.analysis.job import Batch, parse_job
from gputui.analysis.statistics import Estimated
from gputui.cli.options import json_option, trust_option
from gputui.cli.output import print_json, printed, warn
from gputui.document.page import Page
from gputui.document.table import table_of
from gputui.errors import EXIT_DONE, GputuiError
from gputui.model.absent import Missing, to_plain
from gputui.model.journal import Price
from gputui.model.result import RunSummary
from gputui.model.units import (
    counted,
    format_hourly,
    format_percent,
    format_rate,
    format_seconds,
    format_spread,
    format_usd,
    number_from,
)
from gputui.services.advise.llm_serving import (
    LLM_HEADINGS,
    LlmAdvice,
    advise_llm,
    is_llm_job,
    llm_assumptions,
    llm_headline,
    llm_rows,
    parse_llm_job,
)
from gputui.services.advise.rent import (
    Advice,
    Buying,
    Offer,
    Pick,
    PricedSide,
    advise,
    example_job,
    headline_of,
    weigh,
)
from gputui.services.compare.pairing import side_of_runs
from gputui.services.prices import price_of, price_of_run, price_source
from gputui.services.results.conditions import Evidence
from gputui.services.results.labels import case_words, device_words
from gputui.services.results.run_forms import case_identity
from gputui.services.results.selectors import Selection, select_all, split_selector
from gputui.worker import PRECISIONS

J = TypeVar("J")
A = TypeVar("A")

_EXAMPLE = "50M tokens train"
COMMON = ("--job", "--price", "--instance", "--buy", "--precision", "--workload", "--verbose", "--json")


@click.command()
@click.argument("files", nargs=-1, metavar="F[@RUN]...")
@click.option(
    "--job",
    "jobs",
    multiple=True,
    metavar="TEXT",
    help="'2e9 tokens a month', '1M img train in 8h', '2M requests/day 800 in 200 out"
    " ttft<500ms tpot<50ms'; repeatable.",
)
@click.option("--workload", metavar="NAME[:SIZE]", default="", help="Answer with this workload.")
@click.option("--precision", type=click.Choice(PRECISIONS), help="Only rows of this precision.")
@click.option("--price", "prices", multiple=True, metavar="[F=]USD", help="What a whole box costs per hour.")
@click.option(
    "--instance",
    "instances",
    multiple=True,
    metavar="[F=]TYPE",
    help="Use the list price of this instance type.",
)
@click.option(
    "--cpu-price",
    "cpu_prices",
    multiple=True,
    metavar="[F=]USD",
    help="Hourly price of a box with F's CPU and no GPU.",
)
@click.option(
    "--start",
    type=number_from("--start", float, "minutes, such as 10", (0, 1440)),
    default="10",
    metavar="MIN",
    help="Minutes of setup billed on top of the work.  [10]",
)
@click.option(
    "--hours-per-month",
    type=number_from("--hours-per-month", float, "hours, such as 160", (0.1, 744)),
    default="730",
    metavar="H",
    help="Hours a month that boxes are rented or used.  [730]",
)
@click.option("--buy", multiple=True, metavar="[F=]USD", help="What buying such a box costs.")
@click.option(
    "--own",
    "own_usd_per_month",
    type=number_from("--own", float, "USD a month, such as 500", (0, 1e9)),
    default="0",
    metavar="USD",
    help="What power, cooling and staff of a bought box cost a month.",
)
@click.option("--pool", is_flag=True, help="Pool the launches of all runs in a file.")
@trust_option
@click.option("-v", "--verbose", is_flag=True, help="Add notes, what was left out and what was assumed.")
@json_option
def command(
    files: tuple[str, ...],
    jobs: tuple[str, ...],
    workload: str,
    hours_per_month: float,
    pool: bool,
    trust: bool,
    verbose: bool,
    as_json: bool,
    **stated: Any,
) -> int:
    """Time and cost of a job on each box: cheapest, fastest, and whether a GPU is worth it."""
    if not files:
        job = jobs[0] if jobs else _EXAMPLE
        raise GputuiError("advise: no result file is named", f"gputui advise a.db b.db --job {job!r}")
    selections = select_all(files, trust=trust, pool=pool)
    boxes = list(_boxes(selections, files, pool, stated))
    if not jobs:
        jobs = (example_job(boxes) or _EXAMPLE,)
        yours = f"gputui advise {shlex.join(files)} --job '...'"
        warn([f"no job is stated; answered for '{jobs[0]}' as an example. Yours: {yours}"])
    llm_jobs = tuple(text for text in jobs if is_llm_job(text))
    if llm_jobs and len(llm_jobs) < len(jobs):
        raise GputuiError(
            f"--job {llm_jobs[0]!r}: jobs of an LLM server and others are answered by different runs",
            "ask for them in two commands",
        )
    name, _, size = workload.partition(":")
    if workload and not name:
        raise GputuiError(
            f"--workload {workload}: no workload is named", "NAME or NAME:SIZE, as gpt_train:base"
        )
    warn(warning for selection in selections for warning in selection.warnings)
    if llm_jobs:
        return _answer_llm(llm_jobs, boxes, hours_per_month, as_json=as_json, is_verbose=verbose)
    bought = _amounts("--buy", stated["buy"], files)
    conditions = Evidence(selections, trust=trust).conditions

    def answer(job: Batch) -> tuple[Advice, Sequence[Buying]]:
        advice = advise(
            job,
            boxes,
            workload=name,
            size=size,
            precision=stated["precision"] or "",
            start_s=stated["start"] * 60,
            hours_per_month=hours_per_month,
            conditions=conditions,
        )
        return advice, weigh(advice, bought, stated["own_usd_per_month"], hours_per_month)

    answers, refusals = _answered([(text, parse_job(text)) for text in jobs], answer)
    if as_json:
        print_json({"answers": [advice_as_json(*one) for _, one in answers]})
        return _report(refusals)
    runs = {case.run.run_id: case.run for box in boxes for case in box.side.cases}
    write = partial(_write, runs=runs, is_verbose=verbose)
    _print_each(answers, lambda one: headline_of(one[0]), lambda page, one: write(page, *one))
    return _report(refusals)


def _answer_llm(
    jobs: Sequence[str],
    boxes: Sequence[PricedSide],
    hours_per_month: float,
    *,
    as_json: bool,
    is_verbose: bool,
) -> int:
    """Print the answers to jobs of an LLM server; returns the exit code."""
    wanted = [(text, parse_llm_job(text)) for text in jobs]
    found, refusals = _answered(wanted, lambda job: advise_llm(job, boxes, hours_per_month))
    if as_json:
        plain = [{"headline": llm_headline(one), "text": text, **to_plain(one)} for text, one in found]
        print_json({"llm_answers": plain})
        return _report(refusals)

    def write(page: Page, advice: LlmAdvice) -> None:
        page.table(table_of(LLM_HEADINGS, llm_rows(advice), right=range(1, len(LLM_HEADINGS))))
        left_out = [f"{name}: {reason}" for name, reason in advice.left_out]
        page.part((*left_out, *(llm_assumptions(advice) if is_verbose else ())))

    _print_each(found, llm_headline, write)
    return _report(refusals)


def _answered(
    jobs: Sequence[tuple[str, J]], answer: Callable[[J], A]
) -> tuple[list[tuple[str, A]], list[GputuiError]]:
    """The answers by the texts of their jobs, and why others have none. Raises the first of these if all
    have none."""
    found, refusals = [], []
    for text, job in jobs:
        try:
            found.append((text, answer(job)))
        except GputuiError as error:  # the other jobs are answered regardless
            refusals.append(error)
    if not found:
        raise refusals[0]
    return found, refusals


def _print_each(
    found: Sequence[tuple[str, A]], headline: Callable[[A], str], write: Callable[[Page, A], None]
) -> None:
    with printed() as page:
        for number, (text, advice) in enumerate(found):
            if number:
                page.line()
            page.line(f"{text}. {headline(advice)}", "title")
            page.line()
            write(page, advice)


def _report(refusals: Sequence[GputuiError]) -> int:
    """Report the jobs without an answer; returns the exit code."""
    warn(f"gputui: {error.message}\n  {error.hint}" for error in refusals)
    return refusals[0].exit_code if refusals else EXIT_DONE


def _by_file(option: str, values: Sequence[str], files: Sequence[str]) -> dict[str, str]:
    """The value for each file: `F=VALUE` for one, `VALUE` for all others.

    F is a file as it was given, without its run, or its name alone.
    """
    paths = {text: split_selector(text)[0] for text in files}
    found: dict[str, str] = {}
    for value in values:
        file, has_file, rest = value.rpartition("=")
        matching = [
            text for text, path in paths.items() if not has_file or file in (text, str(path), path.name)
        ]
        if not matching:
            raise GputuiError(f"{option} {value}: {file} is none of the files", f"one of {', '.join(files)}")
        found |= {text: rest for text in matching if has_file or text not in found}
    return found


def _amounts(option: str, values: Sequence[str], files: Sequence[str]) -> dict[str, float]:
    found = {}
    for file, text in _by_file(option, values, files).items():
        try:
            found[file] = float(text)
        except ValueError:
            found[file] = math.nan
        if not 0 <= found[file] <= 1e12:
            raise GputuiError(
                f"{option} {text}: is not an amount of money", f"USD, as {option} 3.50 or F=3.50"
            )
    return found


def _boxes(
    selections: Sequence[Selection], files: Sequence[str], pool: bool, stated: Mapping[str, Any]
) -> Iterator[PricedSide]:
    """The box of each file, with what it costs."""
    prices, cpus = (
        _amounts(option, stated[name], files)
        for option, name in (("--price", "prices"), ("--cpu-price", "cpu_prices"))
    )
    types = _by_file("--instance", stated["instances"], files)
    for one in selections:
        text, side = one.text, side_of_runs(one.text, one.runs, pool=pool, history=one.history)
        if side.run.is_made_up:
            raise GputuiError(f"{text}: DEMO DATA, nothing was measured", "measure a box: gputui run quick")
        price = price_of(prices.get(text), types.get(text), side.run.machine) or price_of_run(side.run)
        cpu = Price(cpus[text], 0.0, "stated", "", "", "", "") if text in cpus else Missing("not stated")
        yield PricedSide(side, price, cpu)


def _write(
    page: Page, advice: Advice, buyings: Sequence[Buying], *, runs: dict[str, RunSummary], is_verbose: bool
) -> None:
    """The table, what stands for the job, and each box with its price; notes and assumptions if verbose."""
    headings = ["box", "row", "rate", "time", f"cost a {advice.job.per}" if advice.job.per else "cost"]
    rows = [_cells(offer) for offer in advice.offers]
    styles = ["" if offer.meets else "dim" for offer in advice.offers]
    styles[:1] = [styles[0] or "title"]
    page.table(table_of(headings, rows, right=range(2, len(headings)), breaks=(0, 1), styles=styles))
    page.line()
    page.line(advice.stands_for, "dim")
    for name in dict.fromkeys(offer.box for offer in advice.offers):
        mine = [offer for offer in advice.offers if offer.box == name]
        prices = dict.fromkeys(_price(offer) for offer in mine)
        page.line(f"{device_words(runs[mine[0].run_id])}; {'; '.join(prices)}", lead=f"{name}: ")
    for assumed in advice.assumptions:
        page.line(f"assumed: {assumed}", "dim")
    notes = list(_notes(advice))
    if not is_verbose and notes:
        page.hint(counted(len(notes), "note"), "--verbose")
    page.part((*(notes if is_verbose else ()), *map(_buying, buyings)))


def _notes(advice: Advice) -> Iterator[str]:
    """Reasons to doubt an offer, and boxes that have none."""
    for offer in advice.offers:
        where = f"! {offer.box} {offer.device_class}"
        if not offer.meets:
            yield f"{where}: {'not' if offer.is_told else 'perhaps not'} done in time"
        if offer.doubts:
            yield f"{where}: {', '.join(offer.doubts)}"
    for what, why in advice.left_out:
        yield f"left out: {what}: {why}"


def _cells(offer: Offer) -> list[str]:
    time = _with_spread(offer.time_s, format_seconds)
    rate, words = format_rate(offer.speed.units_per_s, offer.case.unit), case_words(offer.case)
    variant = " ".join(filter(None, (words["precision"], words["mode"], words["threads"])))
    return [f"{offer.box} {offer.device_class}", variant, rate, time, _usd(offer)]


def _with_spread(span: Estimated, format_value: Callable[[float], str]) -> str:
    """An estimate and its interval, as `show` prints them: `41.0 s ±4 %`."""
    is_known = 0 < span.low < span.high
    spread = f" {format_spread(span.value, span.low, span.high)}" if is_known else ""
    return format_value(span.value) + spread


def _usd(offer: Offer) -> str:
    if isinstance(offer.usd, Missing):
        return "—"
    share = 1.0 if isinstance(offer.share, Missing) else offer.share
    part = f" (share {format_percent(share)})" if share < 1 else ""
    return _with_spread(offer.usd, format_usd) + part


def _price(offer: Offer) -> str:
    """The price used: `gpu $3.59/h (aws p5.48xlarge us-east-1 on-demand 2026-07-20)`."""
    where = offer.device_class
    if isinstance(offer.price, Missing):
        return f"{where} no price: --price {offer.box}=USD_PER_H gives its cost"
    if isinstance(offer.share, Missing):
        return f"{where} no price ({offer.share.reason}): --cpu-price {offer.box}=USD_PER_H gives its cost"
    source = price_source(offer.price, datetime.date.today())
    return f"{where} {format_hourly(offer.price.usd_per_hour)} ({source})"


def _buying(buying: Buying) -> str:
    """`rent or buy a.db: $800000.00 pays after 53.3 months: rent $20000.00 a month, owning $5000.00`."""
    months = buying.months
    if isinstance(buying.rent_usd_per_month, Missing):
        return f"rent or buy {buying.box}: {buying.rent_usd_per_month.reason}"
    pays = (
        f"never pays: {months.reason}" if isinstance(months, Missing) else f"pays after {months:.1f} months"
    )
    rent, own = format_usd(buying.rent_usd_per_month), format_usd(buying.own_usd_per_month)
    return (
        f"rent or buy {buying.box}: {format_usd(buying.buy_usd)} {pays}; rent {rent} a month, owning {own}"
        f" (--own), at {buying.hours:g} h of work; not counted: space, interest, repairs, resale"
    )


def advice_as_json(advice: Advice, buyings: Sequence[Buying] = ()) -> dict[str, Any]:
    """The answer to one job, with rent against buy if requested."""
    plain: dict[str, Any] = to_plain(advice)
    offers = [
        {**as_json, "case": case_identity(offer.case)}
        for as_json, offer in zip(plain["offers"], advice.offers, strict=True)
    ]
    return {
        "headline": headline_of(advice),
        **plain,
        "job": {"text": advice.job.text, **plain["job"]},
        "work": {**plain["work"], "parameters": dict(advice.work.parameters), "key": advice.work.key},
        "offers": offers,
        "cheapest": _plain_pick(advice.cheapest),
        "fastest": _plain_pick(advice.fastest),
        "left_out": [{"what": what, "reason": reason} for what, reason in advice.left_out],
        "rent_or_buy": [_plain_buying(buying) for buying in buyings],
    }


def _plain_buying(buying: Buying) -> dict[str, Any]:
    found: dict[str, Any] = to_plain(buying)
    named = {name: found.pop(name) for name in ("box", "device_class", "hours")}
    is_known = not isinstance(buying.rent_usd_per_month, Missing)
    return {**named, "found": found if is_known else found["rent_usd_per_month"]}


def _plain_pick(pick: Pick | Missing) -> Any:
    if isinstance(pick, Missing):
        return to_plain(pick)
    from gputui.services.compare.formats import judgement_as_json  # no other form needs it

    against = [{"what": what, **judgement_as_json(judgement)} for what, judgement in pick.against]
    return {
        "box": pick.offer.box,
        "device_class": pick.offer.device_class,
        "ties": list(pick.ties),
        "against": against,
    }
