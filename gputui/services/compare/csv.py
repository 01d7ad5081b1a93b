"""A comparison as CSV; columns are documented in docs/compare.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputui.analysis.attribution import Attribution
from gputui.analysis.judgement import Judgement
from gputui.analysis.verdict import RatioEstimate
from gputui.model.absent import Missing
from gputui.services.compare.columns import COLUMNS
from gputui.services.compare.json import judgement_as_json
from gputui.services.compare.pairing import Cell, Comparison, FigureRow, Row, Side
from gputui.services.compare.why import Why, sentence
from gputui.services.support.csv_cells import Value, csv_text


def comparisons_as_csv(pairs: Sequence[tuple[Comparison, Sequence[Why]]], ignore: str) -> str:
    """The records below their names, as `csv_text` writes them."""
    rows = comparison_records(pairs, ignore)
    return csv_text((*rows[:1], *(row.values() for row in rows)))


def comparison_records(
    pairs: Sequence[tuple[Comparison, Sequence[Why]]], ignore: str
) -> list[dict[str, Value]]:
    """In base units: a row for each case and pair of sides, below it one for each figure."""
    return [
        values
        for comparison, whys in pairs
        for row in (*comparison.rows, *comparison.one_sided)
        for values in _rows(row, comparison, {id(why.row): why for why in whys}.get(id(row)), ignore)
    ]


_OF_FIGURE = (
    *("figure", "figure_unit", "a_figure", "b_figure", "a_figure_launches", "b_figure_launches"),
    *("figure_change", "figure_change_low", "figure_change_high", "figure_verdict", "figure_reason"),
)


def _rows(row: Row, comparison: Comparison, why: Why | None, ignore: str) -> Iterator[dict[str, Value]]:
    """The case, then each of its figures: the same columns, with what identifies the case and the sides."""
    of_case = _row(row, comparison, why, ignore)
    yield of_case | dict.fromkeys(_OF_FIGURE)
    identity = {
        name: value
        for name, value in of_case.items()
        if name in row.case.identity() or name in ("by", "a_side", "a_run", "b_side", "b_run")
    }
    for figure in row.figures:
        yield dict.fromkeys(of_case) | identity | dict(zip(_OF_FIGURE, _figure(figure), strict=True))


def _figure(figure: FigureRow) -> tuple[Value, ...]:
    metrics = [None if isinstance(side, Missing) else side for side in (figure.a, figure.b)]
    values = [None if m is None or isinstance(m.value, Missing) else m.value for m in metrics]
    launches = [None if m is None else m.launches for m in metrics]
    judged = judgement_as_json(figure.judgement)
    told = ("change", "change_low", "change_high", "verdict", "reason")
    return figure.key, figure.unit, *values, *launches, *map(judged.__getitem__, told)


def _row(row: Row, comparison: Comparison, why: Why | None, ignore: str) -> dict[str, Value]:
    case, estimate = row.case, row.estimate
    known = estimate if isinstance(estimate, RatioEstimate) else None
    found = why.attribution if why is not None else None
    return {
        **case.identity(),
        "by": ignore,
        **_side("a", comparison.a, row.a),
        **_side("b", comparison.b, row.b),
        "b_against_a": known.ratio if known else None,
        "ratio_low": known.low if known else None,
        "ratio_high": known.high if known else None,
        "resolvable": known.resolvable if known else None,
        "method": known.method if known else None,
        "verdict": row.rate.word,
        "reason": row.rate.reason,
        **_judged(row.cost),
        **_judged(row.energy),
        "note": row.note,
        "flags": "; ".join(f"{flag.side} {flag.word} {flag.share:.3f}" for flag in row.flags),
        "why": sentence(row, found) if isinstance(found, Attribution) else None,
    }


def _judged(judgement: Judgement) -> dict[str, Value]:
    """The change of a cost or an energy per unit of work, from A to B, and its verdict."""
    told, names = judgement_as_json(judgement), ("change", "change_low", "change_high", "verdict")
    return {f"{judgement.respect}_{name}": told[name] for name in names}


def _side(letter: str, side: Side, cell: Cell) -> dict[str, Value]:
    values: dict[str, Value] = {
        "side": side.name,
        "run": (cell.run or side.run).short_id,
        "device_name": "" if cell.result is None else cell.result.device_name,
        "outcome": "absent" if cell.result is None else cell.result.outcome,
        "precision_used": cell.precision_used,
    }
    for column in COLUMNS:
        values |= column.csv(cell)
    return {f"{letter}_{name}": value for name, value in values.items()}
