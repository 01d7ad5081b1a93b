"""From result files to a comparison, for the command and the Compare screen.

Both read through it, so that the same words select the same runs in a shell and on the screen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # click's parameters

from gputui.errors import GputuiError, NoResult
from gputui.model.absent import Missing
from gputui.model.telemetry import LaunchPower
from gputui.services.compare.columns import ComparisonColumn, columns_of
from gputui.services.compare.headline import Headline, headline_of
from gputui.services.compare.pairing import (
    DIMENSIONS,
    Comparison,
    Side,
    compare_sides,
    in_order,
    measured_values,
    runs_of_gpus,
    runs_with_conditions,
    side_of_runs,
    sides_by,
    telling_dimension,
    with_telemetry,
)
from gputui.services.compare.why import explained
from gputui.services.results.conditions import Evidence
from gputui.services.results.selectors import Selection, select_all, split_selector

NO_FILE = ("no file is named", "name two, such as a.db b.db; one alone: its precisions, devices or threads")


def _columns(context: object, parameter: object, text: str | None) -> tuple[ComparisonColumn, ...]:
    return () if text is None else columns_of(text)


def shared_options() -> dict[str, dict[str, Any]]:
    """Those of the command that the Compare screen takes too, as click has them; the command adds help."""
    import click  # which a notebook has no use for

    return {
        "by": {"type": click.Choice(list(DIMENSIONS)), "metavar": "WHAT"},
        "baseline": {"metavar": "X"},
        "columns": {"callback": _columns, "metavar": "C,..."},
        "pool": {"is_flag": True},
        "trust": {"is_flag": True},
    }


@dataclass(frozen=True, slots=True)
class ComparisonRequest:
    """The arguments of `gputui compare`."""

    files: tuple[str, ...]
    """Each `F` or `F@RUN`."""
    by: str = ""
    """A dimension; empty: files against each other, or the first dimension in which one file has several."""
    baseline: str = ""
    """A side; empty for the first."""
    pool: bool = False
    trust: bool = False
    columns: tuple[ComparisonColumn, ...] = ()
    """Empty for those that there is room for."""

    @property
    def words(self) -> tuple[str, ...]:
        """The words after `gputui compare` that parse to this."""
        columns = ",".join(column.name for column in self.columns)
        given = (("--by", self.by), ("--baseline", self.baseline), ("--columns", columns))
        options = [word for name, value in given if value for word in (name, value)]
        flags = [flag for flag, is_on in (("--pool", self.pool), ("--trust", self.trust)) if is_on]
        return (*self.files, *flags, *options)


def request_of(words: Sequence[str]) -> ComparisonRequest:
    """Parse the words after `gputui compare`; a leading `gputui compare` is skipped.

    Raises GputuiError for an option that a Request lacks, for a value that is missing or unknown,
    and where no file is named.
    """
    import click

    options = [click.Option([f"--{name}"], **taken) for name, taken in shared_options().items()]
    command = click.Command("compare", params=[click.Argument(["files"], nargs=-1), *options])
    left = list(words[2:] if tuple(words[:2]) == ("gputui", "compare") else words)
    try:
        given = command.make_context("compare", left).params
    except click.UsageError as error:
        hint = "the screen takes --by WHAT, --baseline X, --columns C,..., --pool and --trust"
        raise GputuiError(error.format_message().rstrip("."), hint) from None
    if not given["files"]:
        raise GputuiError(*NO_FILE)
    return ComparisonRequest(**{name: value for name, value in given.items() if value is not None})


@dataclass(frozen=True, slots=True)
class Answer:
    """Every other side against the baseline."""

    comparisons: tuple[Comparison, ...]
    headline: Headline


@dataclass(frozen=True, slots=True)
class Asked:
    """Sides that were read; any of them can be the baseline."""

    sides: tuple[Side, ...]
    ignore: str
    """The dimension that the sides differ in; empty if they are files or runs."""
    evidence: Evidence
    warnings: tuple[str, ...]
    pool: bool = False
    """Launches of several runs were taken together."""

    def dimensions(self) -> dict[str, list[str]]:
        """Every dimension that `--by` takes, with the values that were measured in these runs."""
        return {name: in_order(measured_values(name, self.evidence.runs)) for name in DIMENSIONS}

    def baseline(self, text: str) -> int:
        """The index of the side that a text names: as typed, else by file or run, with or without extension.

        Raises GputuiError, with the list, if that is not one.
        """
        names = [side.name for side in self.sides]
        split = [(Path(), "") if self.ignore else split_selector(name) for name in names]
        files, runs = [file for file, _ in split], [run for _, run in split]
        plain = [name.lower() if self.ignore else "" for name in names]  # `FP32` is fp32, a file is as it is
        ways = (names, [str(f) for f in files], [f.name for f in files], [f.stem for f in files], runs)
        for candidates, wanted in (*((way, text) for way in ways), (plain, text.lower())):
            if wanted and candidates.count(wanted) == 1:
                return candidates.index(wanted)
        raise GputuiError(
            f"--baseline {text}: is not one of the sides", f"one of {', '.join(dict.fromkeys(names))}"
        )

    def compared(self, baseline: int = 0, *, with_energy: bool = False) -> Answer:
        """Every other side against the baseline, in their order.

        `with_energy` also reads the power of GPUs. Pooled runs have no energy.
        Raises NoResult if nothing was measured on any side, GputuiError if a file can no longer be read.
        """
        first = self.sides[baseline]
        others = [side for place, side in enumerate(self.sides) if place != baseline]
        judged = [compare_sides(first, side, ignore=self.ignore) for side in others]
        self.evidence.read_conditions(run for one in judged for run in runs_with_conditions(one))
        if with_energy and not self.pool:
            self.evidence.read_powers(run for one in judged for run in runs_of_gpus(one))
        powers = self._powers if with_energy else None
        comparisons = tuple(
            explained(with_telemetry(one, conditions=self.evidence.conditions, powers=powers), self.evidence)
            for one in judged
        )
        if not any(comparison.rows for comparison in comparisons):
            raise NoResult(
                "nothing was measured on any side", "gputui show RUN FILE shows why each case was not run"
            )
        return Answer(comparisons, headline_of(comparisons, self.ignore, self.evidence))

    def _powers(self, run_id: str, case_id: int) -> Sequence[LaunchPower] | Missing:
        if self.pool:
            return Missing("launches of several runs were pooled")
        return self.evidence.powers(run_id, case_id)


def ask(files: Sequence[str], *, by: str | None = None, pool: bool = False, trust: bool = False) -> Asked:
    """Read several `F[@RUN]`, or the variants within one, with their profiled passes.

    Raises GputuiError if a file cannot be read or holds nothing to compare.
    """
    selections = select_all(files, trust=trust, pool=pool, with_passes=True)
    return asked_of(selections, by=by, pool=pool, trust=trust)


def asked_of(
    selections: Sequence[Selection], *, by: str | None = None, pool: bool = False, trust: bool = False
) -> Asked:
    """The sides that were read, each a selection, or one for each value of a dimension.

    Raises GputuiError if there is nothing to compare.
    """
    if by is None and len(selections) > 1:
        named = {run.summary.run_id for selection in selections for run in selection.runs}
        sides = [
            side_of_runs(
                selection.text,
                selection.runs,
                pool=pool,
                # what the other sides differ by is asked, and no evidence of how much a box varies
                history=[run for run in selection.history if run.summary.run_id not in named],
            )
            for selection in selections
        ]
        ignore = ""
    else:
        runs = [run for selection in selections for run in selection.runs]
        names = ", ".join(selection.text for selection in selections)
        if not measured_values("device", runs):
            raise NoResult(f"no case was measured in {names}", "gputui show RUN FILE shows why")
        ignore = by or telling_dimension(runs)
        if ignore in ("device", "precision", "threads", "mode"):
            side_of_runs(names, runs)  # several machines in one side would be mixed silently
        history = [run for selection in selections for run in selection.history]
        sides = list(sides_by(ignore, runs, pool=pool, history=history))
    warnings = tuple(warning for selection in selections for warning in selection.warnings)
    if ignore and not pool:
        warnings += tuple(_unused(selections, sides, ignore))
    return Asked(tuple(sides), ignore, Evidence(selections, trust=trust), warnings, pool)


def _unused(selections: Sequence[Selection], sides: Sequence[Side], ignore: str) -> Iterator[str]:
    """Warnings about named files that contribute nothing, since another has newer runs."""
    used = {case.run.run_id for side in sides for case in side.cases if case.result.outcome == "ok"}
    for selection in selections:
        has_measured = any(case.outcome == "ok" for run in selection.runs for case in run.cases)
        if has_measured and used.isdisjoint(run.summary.run_id for run in selection.runs):
            yield (
                f"{selection.text} is not in it: each case is from the newest run that measured it; "
                f"--pool uses all of them, gputui compare {selection.text} --by {ignore} shows it alone"
            )
