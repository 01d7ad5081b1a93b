"""The answer of a comparison in one or two sentences: who, for what, by how much, at what cost, how sure.

Most people read nothing else, so it may say no more than the rows below it do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from gputui.analysis.attribution import Attribution
from gputui.analysis.judgement import TIME, Judgement
from gputui.analysis.statistics import mean
from gputui.analysis.verdict import BAND, Estimate, RatioEstimate, SpeedEstimate, nearest_edge, only_runs_help
from gputui.model.absent import Missing
from gputui.model.plan import Case
from gputui.model.units import RATES, counted, format_percent, format_rate, format_size_of_change, listed
from gputui.services.compare.pairing import CROWDED, SHARED, SLOWED, Cell, Comparison, Row, Side, main_row
from gputui.services.compare.ranking import by_cost, by_speed
from gputui.services.compare.row_text import (
    OF_COSTS,
    OF_RATES,
    OF_REQUESTS,
    against_text,
    called,
    change_words,
    judgement_text,
    letter_of,
    open_words,
    side_names,
    than,
    verdict_parts,
)
from gputui.services.compare.suggestions import SettlingStep, load_terms, settling_steps, steps_to_pair
from gputui.services.compare.why import part_name
from gputui.services.results.conditions import Evidence
from gputui.services.results.headline import as_sentence, case_order, case_subject, title_of
from gputui.services.results.metrics import is_limit, time_of
from gputui.services.results.throughput import GAVE, HOST_BOUND, LIFTS, is_by_clock, run_spread_of
from gputui.services.serving.profiles import limits_of

_WITH: dict[str, Callable[[str], str]] = {
    "precision": "with {}".format,
    "device": lambda value: f"on the {value.upper()}",
    "threads": lambda value: {"1": "on one thread", "all": "on all cores"}.get(value, f"on {value} threads"),
    "mode": lambda value: {"eager": "in eager mode", "compile": "with torch.compile"}.get(
        value, f"in {value} mode"
    ),
    "machine": "on {}".format,
    "runtime": "in {}".format,
    "label": "in {}".format,
    "gpu": "on {}".format,
}
_WAITED_FOR = {
    "ttft": ("to the first token", "gives the first token"),
    "tpot": ("per output token", ""),
    "e2e": ("to the last token", "gives the last token"),
}
"""Of each time: what it leads to, and what is sooner or later by it."""
_LEAST_SHARE = 0.2
"""Of a difference: a part that holds less of it is not why."""
_LEAST_GAP = math.log(1.1)
"""Between two cases: closer ones change nobody's choice."""


_NOTHING = "Nothing to compare: {} and {} measured no case in common."
_SAME_PROFILE = "Run the same profile on both boxes."


@dataclass(frozen=True, slots=True)
class Headline:
    """What a comparison says before anything else."""

    sentences: tuple[str, ...]
    steps: tuple[SettlingStep, ...] = ()
    """What would settle the main case if it is undecided: one for each box that has to measure again."""
    purpose: str = "to tell"
    """Of the steps."""
    is_empty: bool = False
    """No case was measured on two sides, and none tells them apart by its failure."""

    @property
    def text(self) -> str:
        return " ".join(self.sentences)


def headline_of(comparisons: Sequence[Comparison], ignore: str, evidence: Evidence) -> Headline:
    """For two sides, for the values of one dimension within them, or a ranking of three sides and more."""
    if len(comparisons) > 1:
        return _of_several_values(comparisons, ignore, evidence) if ignore else _ranking(comparisons)
    (comparison,) = comparisons
    main = main_row(comparison.rows)
    if main is None:
        failed, said = _failure(comparison, None)
        steps = steps_to_pair(comparison, evidence) if ignore in ("", "machine") else ()
        if failed:
            return Headline((said,), steps, "to compare")
        nothing = _NOTHING.format(*names_of(comparison))
        if terms := load_terms(comparison):
            return Headline((nothing, as_sentence(terms)), is_empty=True)
        hint = () if steps or ignore not in ("", "machine") else (_SAME_PROFILE,)
        return Headline((nothing, *hint), steps, "to compare", is_empty=True)
    if ignore:
        return _of_values(comparison, main, ignore, evidence)
    return _of_boxes(comparison, main, evidence)


def _of_boxes(comparison: Comparison, main: Row, evidence: Evidence) -> Headline:
    if main.a.run is not None and main.b.run is not None and main.a.run.run_id == main.b.run.run_id:
        return Headline(
            (f"Both sides are the same run, {main.a.run.short_id}: name another for one of them.",)
        )
    failed, said = _failure(comparison, main)
    sentences = [said]
    where = _where(main, comparison, failed)
    if is_limit(main.case):
        sentences.append(_of_limits(main, comparison))
    else:
        told = claim if main.rate.is_decided else _undecided
        sentences += [f"{told(main, comparison, where)}.", _because(main, comparison)]
    sentences += [
        _limit(main, comparison),
        _busy(main, comparison),
        _what_changes_the_choice(main, comparison),
        as_sentence(load_terms(comparison)),
    ]
    steps = () if main.rate.is_decided else settling_steps(main, evidence)
    return Headline(tuple(filter(None, sentences)), steps)


def _undecided(main: Row, comparison: Comparison, where: str) -> str:
    """`Can't tell a.db and b.db apart in GPT training: b.db is between 25 % slower and 6 % faster`."""
    a, b = names_of(comparison)
    certainty, ends = _certainty(main.rate), open_words(main.rate, OF_RATES)
    said = f"Can't tell {a} and {b} apart{certainty}{where}{f': {b} is {ends}' if ends else ''}"
    return f"{said}; {' '.join(_cheaper(main, b, a))}" if main.cost.differs else said


def _certainty(rate: Judgement) -> str:
    """How sure a sentence has to be about an undecided row whose 95 % interval lies on one side of 0."""
    found = rate.estimate
    is_likely = isinstance(found, RatioEstimate) and not found.doubt and found.is_beyond(BAND)
    return " with 99 % certainty" if is_likely else ""


def _limit(main: Row, comparison: Comparison) -> str:
    """Why no launch of today can decide the main case, and what can; empty where launches help."""
    e = main.estimate
    if isinstance(e, Missing) or main.rate.is_decided:
        return ""
    if e.doubt and not _busy(main, comparison):
        return as_sentence(f"{e.doubt}.")
    is_out_of_reach = only_runs_help(e, nearest_edge(e), main.rate.verdict.error_rate)
    if main.is_hidden_by_waiting or not is_out_of_reach:
        return ""
    run_sd = math.sqrt(mean([run_spread_of(result).variance for _, result in main.results]))
    return (
        f"Boxes like these differ from themselves by {format_percent(run_sd)} between runs:"
        " measure again in 20 minutes, then compare --pool."
    )


def _of_limits(main: Row, comparison: Comparison) -> str:
    """`Chat: H200 answers 31 % more requests within TTFT 500 ms than L4 (95 %: 24 to 38 %), and a million
    output tokens cost 12 % less.`"""
    profile = main.case.work.workload.removeprefix("serve:").partition(" ")[0]
    within = f"requests within {limits_of(main.case).text}"
    row, who, other = facing(main, comparison)
    rate, cost = row.rate, ""
    if row.cost.is_decided:
        cost = f", and a million output tokens cost {_cost_words(row)}"
    if rate.differs and rate.ratio is not None:
        more, ends = change_words(rate.ratio, OF_REQUESTS)
        unit = "x" if than(more) == "as" else " %"
        said = f"{who} answers {more} {within} {than(more)} {other} (95 %: {ends}{unit})"
    elif rate.word == "same":
        said = f"{who} answers as many {within} as {other} ({verdict_parts(rate)[1]})"
    else:
        ends = open_words(rate, OF_REQUESTS)
        answers = f": {who} answers {ends} {within}" if ends else ""
        said = f"can't tell {other} and {who} apart{_certainty(rate)}{answers}"
    return f"{as_sentence(profile)}: {said}{cost}."


def _busy(main: Row, comparison: Comparison) -> str:
    """The doubt about the main case, if something else used a side's CPUs or GPU, or its GPU was slowed."""
    names = dict(zip("ab", names_of(comparison), strict=True))
    shares: dict[str, list[str]] = {}
    for flag in main.flags:
        shares.setdefault(flag.word, []).append(f"{format_percent(flag.share)} of {names[flag.side]}'s")
    said = [f"{word} for {listed(shares[word])} time" for word in (CROWDED, SHARED) if word in shares]
    is_known = CROWDED in shares and not isinstance(main.estimate, Missing) and not main.estimate.doubt
    without = "; rates are without it" if is_known else ""
    if clock := [names[letter] for letter, found in main.results if is_by_clock(found)]:
        without = f"; in {subject(main, comparison.rows)} the rate of {listed(clock)} is what {GAVE}"
    sentences = [f"Measured on a busy box: {listed(said)}{without}."] if said else []
    if HOST_BOUND in shares:
        waits = f"the GPU waits for its host {listed(shares[HOST_BOUND])} time"
        sentences.append(f"{as_sentence(HOST_BOUND)}, {waits}: this compares hosts. {LIFTS}.")
    if SLOWED in shares:
        sentences.append(f"The GPU was {SLOWED} for {listed(shares[SLOWED])} time.")
    return " ".join(sentences)


def subject(row: Row, rows: Sequence[Row], named: Row | None = None) -> str:
    """What was measured, with as many words as tell it from other rows, comparable or `named`."""
    others = [r.case for r in rows if r is named or not isinstance(r.estimate, Missing)]
    return case_subject(row.case, others, with_id=True)


def _where(row: Row, comparison: Comparison, named: Row | None = None) -> str:
    """` in GPT training with amp`: on the GPU goes without saying where sides are called by their GPUs."""
    of_gpu = [one for one in comparison.rows if one.case.variant.device_class == "gpu"]
    rows = of_gpu if row in of_gpu and _is_hardware(comparison) else comparison.rows
    return f" in {subject(row, rows, named)}"


def names_of(comparison: Comparison) -> list[str]:
    """What sentences call a and b: `side_names` for the main case."""
    main = main_row(comparison.rows)
    device_class = "gpu" if main is None else main.case.variant.device_class
    return side_names((comparison.a, comparison.b), device_class)


def _is_hardware(comparison: Comparison) -> bool:
    """Whether the sides are called by their hardware."""
    return names_of(comparison) != [called(comparison.a), called(comparison.b)]


def facing(row: Row, comparison: Comparison) -> tuple[Row, str, str]:
    """The row with the side that a sentence is about as its b, and the names of that side and of the other.

    Of different hardware a sentence is about the faster side, as people ask which one to take. Of one
    hardware a comparison is of a change, from a to b: a sentence is about b, faster or slower.
    """
    a, b = names_of(comparison)
    if _is_hardware(comparison) and row.rate.verdict.word == "slower":
        return replace(row, a=row.b, b=row.a, rate=row.rate.turned, cost=row.cost.turned), a, b
    return row, b, a


def claim(row: Row, comparison: Comparison, where: str = "") -> str:
    """What is decided of a row: `H200 is 1.56x as fast as H100 PCIe (1.49 to 1.64) in GPT training; H100 PCIe
    costs 11 % less per token`."""
    row, who, other = facing(row, comparison)
    cheaper, cost = _cheaper(row, who, other)
    if not row.rate.is_decided:
        return f"{cheaper} {cost}{where} (can't tell which is faster)"
    if row.rate.respect == TIME:
        return f"{who} {_time_words(row.rate, row.case, other)}{where}"
    said = f"{who} is {against_text(row.rate, other)}{where}"
    if not row.cost.is_decided:
        return said
    return f"{said} and {cost}" if cheaper == who else f"{said}; {cheaper} {cost}"


def _time_words(rate: Judgement, case: Case, other: str) -> str:
    """`gives the first token 31 % sooner than L4 (24 to 38)`, `takes 12 % less time than L4 (10 to 14) per
    output token`."""
    noun, verb = _WAITED_FOR[time_of(case).partition("_")[0]]
    if rate.ratio is None or not rate.differs:
        return f"takes {judgement_text(rate)} {noun}"
    size, ends = format_size_of_change(*rate.ratio)
    if size.endswith("x") or not verb:
        return f"takes {against_text(rate, other)} {noun}"
    return f"{verb} {size} {'sooner' if rate.word == 'faster' else 'later'} than {other} ({ends})"


def _cheaper(row: Row, b: str, a: str) -> tuple[str, str]:
    """Of the two sides the cheaper one, and `costs 11 % less per token`."""
    if row.cost.word == "dearer":
        row, b = replace(row, cost=row.cost.turned), a
    return b, f"costs {_cost_words(row)} per {RATES[row.case.unit].noun}"


def _cost_words(row: Row) -> str:
    """`22 % less`, `1.60x as much`, `the same`."""
    ratio = row.cost.ratio
    return "the same" if ratio is None or not row.cost.differs else change_words(ratio, OF_COSTS)[0]


def _because(main: Row, comparison: Comparison) -> str:
    """The part of the step that holds most of the difference, where the case was profiled on both sides."""
    found = main.why and main.why.attribution
    if not isinstance(found, Attribution) or not found.difference_ns:
        return ""
    part = max(found.parts, key=lambda part: part.difference_ns / found.difference_ns)
    share = part.difference_ns / found.difference_ns
    if share < _LEAST_SHARE:
        return ""
    row, who, _ = facing(main, comparison)
    saves = "saves" if row.rate.word == "faster" else "loses"
    percent = format_percent(min(share, 1.0))
    return f"Of the time that {who} {saves} in a step, {percent} is {part_name(part)}."


def _what_changes_the_choice(main: Row, comparison: Comparison) -> str:
    found, is_against = changing_row(main, comparison.rows)
    if found is None:
        return ""
    better = names_of(comparison)[_told_by(main, found).verdict.word == "faster"]
    take = f": take {better} for that" if is_against else ""
    return f"{claim(found, comparison, _where(found, comparison))}{take}."


def changing_row(main: Row, rows: Sequence[Row]) -> tuple[Row | None, bool]:
    """The case that speaks most against what the main case says, else the one that differs most.

    Only of those that are sure enough for a sentence and compare GPUs where they are on one.

    Of loads on a server, if none speaks against it, the wait for the first token with the most users. The
    second value says whether it speaks against it.
    """
    others = [row for row in rows if row is not main and not row.is_host_bound]
    sure = [row for row in others if _told_by(main, row).is_sure]
    decided = [row for row in sure if row.case.workload_class != "ceiling"] or sure
    if not decided:
        return None, False
    mine = _told_by(main, main)
    against = [
        row for row in decided if mine.is_decided and _told_by(main, row).verdict.word != mine.verdict.word
    ]
    waits = [row for row in decided if time_of(row.case) == "ttft_p50_s"]
    if waits and not against:
        return min(waits, key=lambda row: case_order(row.case)), False
    from_main = _log(mine) if mine.is_decided else 0.0
    found = max(against or decided, key=lambda row: abs(_log(_told_by(main, row)) - from_main))
    if not against and mine.is_decided and abs(_log(_told_by(main, found)) - from_main) < _LEAST_GAP:
        return None, False
    return found, bool(against)


def _told_by(main: Row, row: Row) -> Judgement:
    """Of the cost where the main case decides it and the row has one, else of the rate or time."""
    return row.cost if main.cost.is_decided and row.rate.respect != TIME else row.rate


def _log(judgement: Judgement) -> float:
    return math.log(judgement.estimate.ratio) if isinstance(judgement.estimate, Estimate) else 0.0


_FAILS = {"oom": "runs out of memory", "failed": "fails"}


def _failure(comparison: Comparison, main: Row | None) -> tuple[Row | None, str]:
    """A case that matters more than the main one, and that failed or ran out of memory on one side, with a
    sentence: `GPT training (xl): L4 runs out of memory, H200 does 5.10k tok/s.`"""
    a, b = names_of(comparison)
    for row in sorted(comparison.rows, key=lambda row: case_order(row.case)):
        if row is main:
            break
        for failed, other, who, better in ((row.a, row.b, a, b), (row.b, row.a, b, a)):
            if failed.outcome in _FAILS and isinstance(other.speed, SpeedEstimate):
                name, size = as_sentence(subject(row, comparison.rows, row)), f"({row.case.work.size})"
                named = name if size in name or row.case.is_program else f"{name} {size}"
                rate = format_rate(other.speed.units_per_s, row.case.unit)
                return row, f"{named}: {who} {_FAILS[failed.outcome]}, {better} does {rate}."
    return None, ""


def _of_values(comparison: Comparison, main: Row, ignore: str, evidence: Evidence) -> Headline:
    """`GPT training runs 72 % faster with amp than with fp32 (66 to 78): worth it for ... too, not for ...`.

    Only what is sure is named; the table has the rest.
    """
    a, b = (_value_words(ignore, side) for side in (comparison.a, comparison.b))
    variant = replace(main.case.variant, threads="all") if ignore == "threads" else main.case.variant
    asked = replace(main, case=replace(main.case, variant=variant))
    rate, runs = main.rate, f"{subject(asked, comparison.rows)} runs"
    if rate.differs and rate.ratio is not None:
        change, ends = change_words(rate.ratio, OF_RATES)
        first = f"{runs} {change} {b} {than(change)} {a} ({ends})"
    elif rate.word == "same":
        first = f"{runs} as fast {b} as {a} ({verdict_parts(rate)[1]})"
    else:
        first = f"can't tell{_certainty(rate)} whether {runs} faster {b} than {a} ({verdict_parts(rate)[1]})"
    too = " too" if rate.word == "faster" else ""
    worth, useless, unknown = list[str](), list[str](), list[str]()
    of_gpus = [row for row in comparison.rows if not row.is_host_bound]
    rows = [row for row in of_gpus if row.case.workload_class != "ceiling"] or of_gpus
    for workload in dict.fromkeys(row.case.work.workload for row in rows):
        rates = [row.rate for row in rows if row.case.work.workload == workload]
        words = {"unsure" if rate.differs and not rate.is_sure else rate.word for rate in rates}
        if workload == main.case.work.workload or words == {"not comparable"}:
            continue
        if words == {"faster"}:
            worth.append(title_of(workload))
        elif words & {"slower", "same"} and not words & {"faster", "unsure"}:
            useless.append(title_of(workload))
        elif words <= {"inconclusive", "not comparable"}:
            unknown.append(title_of(workload))
    said = ((worth, f"worth it for {{}}{too}"), (useless, "not for {}"), (unknown, "can't tell for {}"))
    rest = ", ".join(words.format(listed(works)) for works, words in said if works)
    sentences = (
        as_sentence(f"{first}{': ' if rest else ''}{rest}."),
        _limit(main, comparison),
        _busy(main, comparison),
    )
    steps = () if rate.is_decided else settling_steps(main, evidence)
    return Headline(tuple(filter(None, sentences)), steps)


def _value_words(dimension: str, side: Side) -> str:
    """`with amp`, `on the GPU (Tesla T4)`, `on the CPU (2 cores)`."""
    words = _WITH[dimension](side.name)
    if dimension != "device":
        return words
    if side.name == "cpu":
        return f"{words} ({counted(side.run.machine.cpu.usable_cores, 'core')})"
    name = next((case.result.device_name for case in side.cases if case.result.outcome == "ok"), "")
    return f"{words} ({name})" if name else words


def _of_several_values(comparisons: Sequence[Comparison], ignore: str, evidence: Evidence) -> Headline:
    """The sentence of the value that brings most, then what the others bring to the same work."""
    known = [(comparison, main) for comparison in comparisons if (main := main_row(comparison.rows))]
    if not known:
        return Headline((_NOTHING.format(*names_of(comparisons[0])),), is_empty=True)
    known.sort(key=lambda pair: -(pair[1].rate.ratio or (0.0,))[0])
    best, main = known[0]
    first = _of_values(best, main, ignore, evidence)
    others = []
    for comparison, other in known[1:]:
        rate, where = other.rate, _WITH[ignore](comparison.b.name)
        what = judgement_text(rate) if rate.differs else "as fast" if rate.word == "same" else "can't tell"
        others.append(as_sentence(f"{where}: {what}."))
    return Headline((*first.sentences, *others), first.steps)


def _ranking(comparisons: Sequence[Comparison]) -> Headline:
    """The main case on every side, the fastest first; sides whose intervals overlap tie."""
    first = next((one.rows for one in comparisons if main_row(one.rows) is not None), ())
    shared = [row for row in first if all(same_case(row, other) is not None for other in comparisons)]
    main = main_row(shared or first)
    if main is None:
        return Headline(
            ("Nothing to compare: no other side measured a case of the baseline.",), is_empty=True
        )
    rows = {
        letter_of(place): row
        for place, comparison in enumerate(comparisons)
        if (row := same_case(main, comparison)) is not None
    }
    sides = (comparisons[0].a, *(comparison.b for comparison in comparisons))
    letters = ("a", *map(letter_of, range(len(comparisons))))
    names = dict(zip(letters, side_names(sides, main.case.variant.device_class), strict=True))
    cells = {"a": main.a} | {letter: row.b for letter, row in rows.items()}
    speeds = by_speed(main.a, rows)
    rates = [_rates([cells[letter] for letter in tier], main) for tier in speeds]
    if len(speeds) == 1 and all(row.rate.word == "same" for row in rows.values()):
        said = f": {listed([names[letter] for letter in speeds[0]])} are equally fast, {rates[0]}"
    elif len(speeds) == 1:
        said = f": can't tell {listed([names[letter] for letter in speeds[0]])} apart, {rates[0]}"
    else:
        tiers = [f"{_tier(names, tier)} at {rate}" for tier, rate in zip(speeds, rates, strict=True)]
        said = f", fastest first: {', then '.join(tiers)}"
    sentences = [f"{as_sentence(subject(main, first))}{said}."]
    costs = by_cost(main.a, rows)
    if len(costs) > 1:
        cheapest = ", then ".join(_tier(names, tier) for tier in costs)
        sentences.append(f"Cheapest per {RATES[main.case.unit].noun} first: {cheapest}.")
    return Headline(tuple(sentences))


def same_case(row: Row, comparison: Comparison) -> Row | None:
    """The row of another comparison that both of its sides measured."""
    return next(
        (r for r in comparison.rows if r.case == row.case and not isinstance(r.estimate, Missing)), None
    )


def _tier(names: Mapping[str, str], tier: Sequence[str]) -> str:
    """`H200`, `a.db and b.db (a tie)`."""
    named = listed([names[letter] for letter in tier])
    return f"{named} (a tie)" if len(tier) > 1 else named


def _rates(tier: Sequence[Cell], main: Row) -> str:
    rates = [speed.units_per_s for cell in tier if isinstance(speed := cell.speed, SpeedEstimate)]
    ends = [format_rate(rate, main.case.unit) for rate in (min(rates), max(rates))]
    if ends[0] == ends[1]:
        return ends[0]
    (low, unit), high = ends[0].rsplit(" ", 1), ends[1]
    return f"{low if high.endswith(f' {unit}') else ends[0]} to {high}"
