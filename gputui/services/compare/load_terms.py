"""Loads on the servers of two sides, and in what they differ, so that their rows do not pair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputui.model.absent import Missing
from gputui.model.plan import Case
from gputui.model.units import format_percent, listed
from gputui.services.compare.pairing import Comparison, Side
from gputui.services.results.conditions import Evidence
from gputui.services.results.metrics import is_limit
from gputui.services.serving.curve import ServingRun, serving_of
from gputui.services.serving.profiles import limits_of, parameter_of

_TERMS = (
    ("model", "model", "if it is one model under two names, give both the same --name"),
    ("api", "API", "name one for both: --api chat"),
    ("prompt_tokens", "tokens in", "measure both with one --profile"),
    ("shared_tokens", "tokens that all prompts begin with", "measure both with one --shared-prefix"),
    ("output_tokens", "tokens out", "measure both with one --profile"),
)


def serving_of_side(side: Side, evidence: Evidence) -> ServingRun | Missing:
    """All that its newest run offered to a server. Raises GputuiError if that can no longer be read."""
    if not _loads(side):
        return Missing("it offered no load to a server")
    return serving_of(evidence.run(side.run.run_id), evidence.loads(side.run.run_id))


def load_terms(comparison: Comparison) -> str:
    """Why loads do not pair, in a sentence or two; empty if they do, or if neither side has any."""
    a, b = _loads(comparison.a), _loads(comparison.b)
    if not a and not b:
        return ""
    if not a or not b:
        return (
            f"only {'a' if a else 'b'} offered loads to an LLM server (gputui serve-bench),"
            " and their rates say nothing of other work."
        )
    found = [
        (f"{words} ({on_a} in a, {on_b} in b)", hint)
        for name, words, hint in _TERMS
        if (on_a := _values(a, name)) and (on_b := _values(b, name)) and on_a != on_b
    ]
    profiles = [
        listed(sorted({case.work.workload.removeprefix("serve:").split(" ")[0] for case in side}))
        for side in (a, b)
    ]
    if profiles[0] != profiles[1] and not found:
        found.append((f"profile ({profiles[0]} in a, {profiles[1]} in b)", "measure both with one --profile"))
    if found:
        hints = dict.fromkeys(hint for _, hint in found)
        return f"The loads differ in {listed([words for words, _ in found])}: {'; '.join(hints)}."
    return " ".join(_of_limits_and_numbers(a, b))


def _of_limits_and_numbers(a: Sequence[Case], b: Sequence[Case]) -> Iterator[str]:
    limits = [sorted({_limit_words(case) for case in side if is_limit(case)}) for side in (a, b)]
    if all(limits) and not set(limits[0]) & set(limits[1]):
        on_a, on_b = map(listed, limits)
        yield (
            f"The limits do not compare, as they are of other terms: {on_a} in a, {on_b} in b;"
            " --slo and --attain set them."
        )
    numbers = [{case.work.key for case in side if not is_limit(case)} for side in (a, b)]
    if all(numbers) and not numbers[0] & numbers[1]:
        yield "No number of users or rate was offered to both: name the same with --concurrency or --rate."


def _loads(side: Side) -> list[Case]:
    return [one.result.case for one in side.cases if one.result.case.is_load]


def _values(cases: Sequence[Case], name: str) -> str:
    values = {parameter_of(case, name) for case in cases} - {None}
    return listed([f"{value}" for value in sorted(values, key=str)]) if values else ""


def _limit_words(case: Case) -> str:
    share = parameter_of(case, "attained_share")
    of = f" for {format_percent(float(share))}" if isinstance(share, int | float) else ""
    return f"{limits_of(case).text}{of}"
