"""Makes and saves a comparison, or a ranking, in any of its forms; here those for programs: JSON, CSV, and
what a comparison in Python says."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any  # JSON

from gputui.analysis.attribution import Attribution
from gputui.analysis.findings import Finding
from gputui.analysis.judgement import Judgement
from gputui.analysis.verdict import RatioEstimate
from gputui.document.markup import html_of, safe
from gputui.document.page import console_on
from gputui.errors import GputuiError, NoResult
from gputui.model.absent import Missing, fields_of, known, to_plain
from gputui.services.compare.columns import COLUMNS, ENERGY, ComparisonColumn
from gputui.services.compare.fleet import Fleet
from gputui.services.compare.pairing import (
    DIMENSIONS,
    Cell,
    Comparison,
    FigureRow,
    Row,
    Side,
    Why,
    performance_checks_of_side,
)
from gputui.services.compare.reports import (
    comparison_pages,
    comparisons_as_markdown,
    comparisons_as_page,
    spread_as_json,
)
from gputui.services.compare.session import Answer, Asked, ask
from gputui.services.compare.tables import pair_parts
from gputui.services.compare.why import sentence
from gputui.services.results.metrics import metrics_of
from gputui.services.results.run_forms import (
    case_identity,
    cost_as_json,
    estimate_as_json,
    performance_as_json,
    summary_as_json,
)
from gputui.services.results.throughput import rate_of
from gputui.services.support.output_files import Value, csv_text, json_text, write_output

if TYPE_CHECKING:
    from pandas import DataFrame

WITH_ENERGY = ("csv", "json", "html")
"""Forms that also tell what the GPUs drew."""
FORM_OF_ENDING = {".md": "markdown", ".csv": "csv", ".json": "json", ".html": "html"}


def form_of(path: Path) -> str:
    """The form for a file's extension. Raises GputuiError for an unknown one."""
    form = FORM_OF_ENDING.get(path.suffix.lower())
    if form is None:
        raise GputuiError(f"{path.name}: unknown file type", f"end it in {', '.join(FORM_OF_ENDING)}")
    return form


def save_comparison(path: Path, asked: Asked, baseline: int, columns: Sequence[ComparisonColumn] = ()) -> str:
    """Write a comparison in the form of the file's extension; returns a message that says so.

    `columns` apply to Markdown, empty for its defaults; other forms have all of them.
    Raises GputuiError for another extension, if a file can no longer be read, or this one not be written.
    """
    form = form_of(path)
    answer = asked.compared(baseline, with_energy=form in WITH_ENERGY or ENERGY in columns)
    text = comparison_text(asked, answer, form, columns)
    write_output(path, text)
    return f"saved the comparison in {path}"


def comparison_plain(asked: Asked, answer: Answer) -> dict[str, object]:
    """What `gputui compare --json` prints."""
    return {
        "by": asked.ignore,
        "headline": fields_of(answer.headline, "text", "sentences", "steps"),
        "comparisons": [*map(comparison_as_json, answer.comparisons)],
    }


def comparison_text(
    asked: Asked,
    answer: Answer,
    form: str,
    columns: Sequence[ComparisonColumn] = (),
    width: int | None = None,
    is_verbose: bool = False,
) -> str:
    """What `gputui compare --format FORM` prints, without escape sequences; `columns` apply to text and
    markdown, the rest to text, which is as wide as the terminal without a width."""
    if form == "json":
        return json_text(comparison_plain(asked, answer))
    if form == "csv":
        return comparisons_as_csv(answer.comparisons, asked.ignore)
    if form == "markdown":
        return comparisons_as_markdown(answer, asked.ignore, columns)
    if form == "text":
        made = StringIO()
        out = console_on(made, width, is_terminal=False)
        for page in comparison_pages(asked, answer, columns, out, is_verbose):
            page.show()
        return made.getvalue()
    return comparisons_as_page(asked, answer)


def ranking_text(fleet: Fleet, form: str) -> str:
    """What `gputui compare --format FORM` prints of many sides, with all boxes."""
    from gputui.services.compare import fleet_forms

    made = {
        "text": fleet_forms.fleet_as_text,
        "markdown": fleet_forms.fleet_as_markdown,
        "csv": fleet_forms.fleet_as_csv,
        "json": fleet_forms.fleet_as_json,
        "html": fleet_forms.fleet_as_page,
    }
    return made[form](fleet)


def comparison_as_json(comparison: Comparison) -> dict[str, Any]:
    """One comparison: sides, differences, rows with their reasons, and group means."""
    return {
        "a": _side(comparison.a),
        "b": _side(comparison.b),
        "differs": [{"what": what, "a": on_a, "b": on_b} for what, on_a, on_b in comparison.differs],
        "rows": [
            {
                **_cells(row),
                "ratio": _ratio(row.estimate),
                "verdict": row.rate.word,
                "reason": row.rate.reason,
                "judgements": {j.respect: judgement_as_json(j) for j in (row.rate, row.cost, row.energy)},
                "figures": [
                    {**fields_of(one, "key", "title", "unit"), **judgement_as_json(one.judgement)}
                    for one in row.figures
                ],
                "note": row.note,
                "flags": to_plain(row.flags),
                "holds_between_models": known(row.holds_between_models),
                **_why(row),
            }
            for row in comparison.rows
        ],
        "one_sided": [_cells(row) for row in comparison.one_sided],
        "groups": [
            {
                **fields_of(group, "group", "device_class"),
                "common_rows": group.common,
                "rows": group.rows,
                "mean": None
                if isinstance(group.mean, Missing)
                else fields_of(group.mean, "ratio", "low", "high"),
                "verdict": group.rate.word,
                "reason": group.rate.reason,
                "judgement": judgement_as_json(group.rate),
            }
            for group in comparison.groups
        ],
        "unmeasured": [{"reason": reason, "cases": len(names)} for reason, names in comparison.unmeasured],
    }


def judgement_as_json(judgement: Judgement) -> dict[str, Any]:
    """Verdict, change from A to B with its interval, and how many blocks, launches or rows it rests on."""
    change, low, high = [None] * 3 if judgement.ratio is None else [ratio - 1 for ratio in judgement.ratio]
    n_a, n_b = judgement.n or (None, None)
    return {
        "verdict": judgement.word,
        "reason": judgement.reason,
        "change": change,
        "change_low": low,
        "change_high": high,
        "n_a": n_a,
        "n_b": n_b,
    }


OPERATORS_TOLD = 20


def _finding(found: Finding) -> dict[str, Any]:
    """Without what only sums of findings need; `at_best_ns` is null where it is not known."""
    plain: dict[str, Any] = to_plain(found)
    del plain["gone_ns"], plain["has_at_best"]
    return {**plain, "at_best_ns": found.at_best_ns if found.has_at_best else None, "text": found.text}


def _why(row: Row) -> dict[str, Any]:
    why = row.why or Why(Missing(f"the verdict is {row.verdict.word}: there is no difference to explain"))
    found, findings = why.attribution, (("a", why.findings_a), ("b", why.findings_b))
    told: dict[str, Any] = to_plain(found)
    if isinstance(found, Attribution):
        for plain in (*told["parts"], *told["operators"]):
            plain["difference_ns"] = plain["time_b_ns"] - plain["time_a_ns"]
        told["operators"] = told["operators"][:OPERATORS_TOLD]
        told = {"sentence": sentence(row, found), "difference_ns": found.difference_ns, **told}
    return {"why": told, "findings": {letter: [*map(_finding, some)] for letter, some in findings}}


def _side(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "run": summary_as_json(side.run),
        "chosen_of": side.chosen_of,
        "normality": [performance_as_json(check) for check in performance_checks_of_side(side)],
        "spread": spread_as_json(side),
    }


def _cells(row: Row) -> dict[str, Any]:
    """The case, and what each side has of it."""
    unit = row.case.unit
    return {**case_identity(row.case), "a": _cell(row.a, unit), "b": _cell(row.b, unit)}


def _cell(cell: Cell, unit: str) -> dict[str, Any]:
    return {
        **fields_of(cell, "outcome", "precision_used"),
        "speed": estimate_as_json(cell.speed, "units_per_s"),
        "clock_units_per_s": None if cell.result is None else known(rate_of(cell.result, by_clock=True)),
        "cost": cost_as_json(cell.cost, unit),
        "energy": estimate_as_json(cell.energy, "joules_per_unit"),
        "figures": [] if cell.result is None else to_plain(metrics_of(cell.result)),
        "uses": to_plain(cell.uses),
    }


def _ratio(estimate: RatioEstimate | Missing) -> dict[str, Any] | None:
    if isinstance(estimate, Missing):
        return None
    return {
        "b_against_a": estimate.ratio,
        **fields_of(estimate, "low", "high", "blocks_a", "blocks_b"),
        **fields_of(estimate, "independent_blocks_a", "independent_blocks_b", "launches_a", "launches_b"),
        **fields_of(estimate, "method", "resolvable", "autocorrelation"),
        "df": None if math.isinf(estimate.df) else estimate.df,
        **fields_of(estimate, "run_share", "paired"),
    }


def comparisons_as_csv(comparisons: Sequence[Comparison], ignore: str) -> str:
    """The records below their names, as `csv_text` writes them."""
    rows = comparison_records(comparisons, ignore)
    return csv_text((*rows[:1], *(row.values() for row in rows)))


def comparison_records(comparisons: Sequence[Comparison], ignore: str) -> list[dict[str, Value]]:
    """In base units: a row for each case and pair of sides, below it one for each figure."""
    return [
        values
        for comparison in comparisons
        for row in (*comparison.rows, *comparison.one_sided)
        for values in _records_of(row, comparison, ignore)
    ]


_OF_FIGURE = (
    *("figure", "figure_unit", "a_figure", "b_figure", "a_figure_launches", "b_figure_launches"),
    *("figure_change", "figure_change_low", "figure_change_high", "figure_verdict", "figure_reason"),
)


def _records_of(row: Row, comparison: Comparison, ignore: str) -> Iterator[dict[str, Value]]:
    """The case, then each of its figures: the same columns, with what identifies the case and the sides."""
    of_case = _record(row, comparison, ignore)
    yield of_case | dict.fromkeys(_OF_FIGURE)
    identity = {
        name: value
        for name, value in of_case.items()
        if name in row.case.identity() or name in ("by", "a_side", "a_run", "b_side", "b_run")
    }
    for figure in row.figures:
        yield dict.fromkeys(of_case) | identity | dict(zip(_OF_FIGURE, _figure(figure), strict=True))


def _figure(figure: FigureRow) -> tuple[Value, ...]:
    metrics = (known(figure.a), known(figure.b))
    values = [m and known(m.value) for m in metrics]
    launches = [m and m.launches for m in metrics]
    judged = judgement_as_json(figure.judgement)
    told = ("change", "change_low", "change_high", "verdict", "reason")
    return figure.key, figure.unit, *values, *launches, *map(judged.__getitem__, told)


def _record(row: Row, comparison: Comparison, ignore: str) -> dict[str, Value]:
    ratio, why = _ratio(row.estimate) or {}, row.why and row.why.attribution
    return {
        **row.case.identity(),
        "by": ignore,
        **_side_values("a", comparison.a, row.a),
        **_side_values("b", comparison.b, row.b),
        "b_against_a": ratio.get("b_against_a"),
        "ratio_low": ratio.get("low"),
        "ratio_high": ratio.get("high"),
        "resolvable": ratio.get("resolvable"),
        "method": ratio.get("method"),
        "verdict": row.rate.word,
        "reason": row.rate.reason,
        **_judged(row.cost),
        **_judged(row.energy),
        "note": row.note,
        "flags": "; ".join(f"{flag.side} {flag.word} {flag.share:.3f}" for flag in row.flags),
        "why": sentence(row, why) if isinstance(why, Attribution) else None,
    }


def _judged(judgement: Judgement) -> dict[str, Value]:
    """The change of a cost or an energy per unit of work, from A to B, and its verdict."""
    told, names = judgement_as_json(judgement), ("change", "change_low", "change_high", "verdict")
    return {f"{judgement.respect}_{name}": told[name] for name in names}


def _side_values(letter: str, side: Side, cell: Cell) -> dict[str, Value]:
    values: dict[str, Value] = {
        "side": side.name,
        "run": (cell.run or side.run).short_id,
        "device_name": "" if cell.result is None else cell.result.device_name,
        "outcome": cell.outcome,
        "precision_used": cell.precision_used,
    }
    for column in COLUMNS:
        values |= column.csv(cell)
    return {f"{letter}_{name}": value for name, value in values.items()}


_WIDTH = 80


@dataclass(frozen=True, slots=True, repr=False)
class ComparisonResult:
    """Every other side against the baseline. Printed, it is what `gputui compare` prints."""

    asked: Asked
    answer: Answer
    baseline: int

    @property
    def headline(self) -> str:
        """The answer in a sentence or two."""
        return self.answer.headline.text

    def to_frame(self) -> DataFrame:
        """One row per case and pair of sides, and one per figure, with the columns of the CSV."""
        import pandas as pd

        return pd.DataFrame(comparison_records(self.answer.comparisons, self.asked.ignore))

    def save(self, path: str | Path) -> None:
        """Write it as .html, .md, .csv or .json. Raises GputuiError for another extension, or a full disk."""
        save_comparison(Path(path), self.asked, self.baseline)

    def __repr__(self) -> str:
        return comparison_text(self.asked, self.answer, "text", width=_WIDTH).rstrip()

    def _repr_html_(self) -> str:
        steps = "".join(f"<pre>{safe(step.command)}</pre>" for step in self.answer.headline.steps)
        parts = [
            one for pair in self.answer.comparisons for one in pair_parts(pair, self.asked.ignore) if one
        ]
        told = f"<p><b>{safe(self.headline)}</b></p>{''.join(map(html_of, parts))}"
        return told + (f"<p>To tell:</p>{steps}" if steps else "")


def compare(
    *files: str | Path, by: str | None = None, baseline: str = "", pool: bool = False, trust: bool = False
) -> ComparisonResult:
    """Compare result files, the first as the baseline; of one file, its variants. As `gputui compare`.

    Each is a file or `F@RUN`. `by`: one of device, precision, threads, mode, machine, runtime. Raises
    NoResult if nothing can be compared, GputuiError if a file cannot be read.
    """
    if by is not None and by not in DIMENSIONS:
        raise GputuiError(f"by={by!r}: is not a dimension", f"one of {', '.join(DIMENSIONS)}")
    if not files:
        raise GputuiError("no file is named", "name two, such as 'a.db', 'b.db'; one alone: its variants")
    asked = ask([str(file) for file in files], by=by, pool=pool, trust=trust)
    first = asked.baseline(baseline) if baseline else 0
    answer = asked.compared(first, with_energy=True)
    if answer.headline.is_empty:
        message, *rest = answer.headline.sentences
        raise NoResult(message, "; ".join((*rest, *(step.command for step in answer.headline.steps))))
    return ComparisonResult(asked, answer, first)
