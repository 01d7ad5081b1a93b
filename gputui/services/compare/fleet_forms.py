"""The ranking of many boxes as text, Markdown, CSV, JSON, and as a self-contained page: who stands out, then
every box on one axis for its kind."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gputui.analysis.fleet import FEWEST, spread_of
from gputui.document.drawings import PAGE_CELLS, Interval, axis_of, intervals
from gputui.document.markup import (
    bullets,
    escaped,
    folded,
    html_of,
    markdown_of,
    page_of,
    part,
    safe,
    with_units,
)
from gputui.document.page import Console, Page, console_on
from gputui.document.spans import Span
from gputui.document.table import Column, Drawing, Part, Table
from gputui.model.absent import Missing, fields_of, known, to_plain
from gputui.model.units import cost_unit, counted, format_change, format_rate, format_usd, listed
from gputui.services.compare.fleet import Fleet, RankedBox, gpu_of
from gputui.services.compare.row_text import OF_RATES, change_words, style_of_word, than
from gputui.services.results.headline import as_sentence
from gputui.services.support.output_files import Value, csv_text, json_text

ROWS = 20
"""Boxes that are shown where there is no room for all."""
_REASONS = 5
"""Boxes whose reasons are."""
_NAMED = 5
"""Boxes that a sentence names."""
_NAMED_WITH_REASON = 3
"""The same with a reason each, if their reasons differ."""
_AT_ONCE = 40
"""Boxes that are shown on a page without a click, besides those that stand out."""
_HOW_TO_READ = (
    (
        "Each dot is a {0}: its rates against the medians of its kind, of the same devices, as the"
        " geometric mean over all cases on the main case's device. The band is the middle 90 % of the kind."
    ),
    "Rates and ranks are of the main case: {1}.",
    (
        "A {0} stands out if it does not belong to one distribution with the rest of its kind, over all"
        " cases or in one. 5 % of healthy fleets have one. Less than 3 % never stands out. Where a fifth of a"
        " kind or more is slower, it is named as two groups."
    ),
    "A line is the 95 % interval of its distance from the others, by how far these lie apart.",
)


def fleet_sentences(fleet: Fleet) -> tuple[str, ...]:
    """Who stands out and why, and how the kinds rank; of one kind the outliers first."""
    ranking, outliers = _ranking(fleet), [*_groups(fleet), *_outliers(fleet)]
    return (*outliers, ranking) if len(fleet.kinds) == 1 else (ranking, *outliers)


def _ranking(fleet: Fleet) -> str:
    unit = fleet.case.unit
    about = f"{as_sentence(fleet.subject)} on {_all_boxes(fleet)}"
    if len(fleet.kinds) == 1:
        kind = fleet.kinds[0]
        rates = (kind.low_per_s, kind.median_per_s, kind.high_per_s)
        low, median, high = (format_rate(rate, unit) for rate in rates)
        which = "90 % of them" if kind.boxes >= 20 else "from"
        return f"{about} of one kind: {median} is the median, {which} {low} to {high}."
    ranked = ", then ".join(
        f"{listed([kind.name for kind in tier])}{' (a tie)' if len(tier) > 1 else ''}"
        f" at {format_rate(tier[0].median_per_s, unit)}"
        for tier in fleet.tiers
    )
    return f"{about}, fastest kind first: {ranked}."


def _all_boxes(fleet: Fleet) -> str:
    return counted(len(fleet.boxes), fleet.noun)


def _outliers(fleet: Fleet) -> Iterator[str]:
    """A sentence of those that are slower, of those that are faster, and of those that are so in some cases;
    if there is none, that there is none."""
    for word in ("slower", "faster"):
        found = [box for box in fleet.boxes if box.stands_out == word]
        found.sort(key=lambda box: -abs(math.log(box.overall)))
        if found:
            yield _only_outlier(fleet, *found) if len(found) == 1 else _several_outliers(fleet, word, found)
    uneven = [box for box in fleet.boxes if box.stands_out == "uneven"]
    if uneven:
        some = [f"{box.name} ({box.where[0][0]} {format_change(box.where[0][1])})" for box in uneven[:_NAMED]]
        yield f"Only some cases stand out on {_with_more(some, len(uneven))}."
    if not (fleet.splits or any(box.stands_out for box in fleet.boxes)):
        if all(kind.boxes < FEWEST for kind in fleet.kinds):
            yield f"Too few of a kind to say which stands out: {counted(FEWEST, fleet.noun)} are needed."
        else:
            yield f"No {fleet.noun} stands out from its kind."


def _with_more(named: Sequence[str], count: int) -> str:
    """Those that a sentence names, and how many it does not."""
    return listed([*named, f"{count - len(named)} more"] if count > len(named) else [*named])


def _groups(fleet: Fleet) -> Iterator[str]:
    for split in fleet.splits:
        of_kind = "" if len(fleet.kinds) == 1 else f" of {split.kind}"
        which = f" in {split.subject}" if split.subject else ""
        slow, fast = (format_rate(rate, split.unit) for rate in (split.slower_per_s, split.faster_per_s))
        named = f" ({listed(split.slower)})" if len(split.slower) <= _NAMED else ""
        yield (
            f"Two groups{of_kind}{which}: {len(split.faster)} at {fast} and"
            f" {len(split.slower)} at {slow}{named} ({format_change(split.ratio)})"
            + (f": {split.why}." if split.why else ".")
        )


def _only_outlier(fleet: Fleet, box: RankedBox) -> str:
    others = sum(other.kind == box.kind for other in fleet.boxes) - 1
    of_kind = "" if len(fleet.kinds) == 1 else f" {box.kind}"
    ends = (box.overall,) * 2 if isinstance(box.apart, Missing) else box.apart
    words, interval = change_words((box.overall, *ends), OF_RATES)
    told = "" if isinstance(box.apart, Missing) else f" ({interval})"
    why = f": {box.why}" if box.why else ""
    return f"{box.name} is {words} {than(words)} the other {others}{of_kind}{told}{why}."


def _several_outliers(fleet: Fleet, word: str, found: Sequence[RankedBox]) -> str:
    reasons = {box.why for box in found}
    common = next(iter(reasons)) if len(reasons) == 1 else ""
    named = []
    for box in found[:_NAMED]:
        likeliest = box.why.partition("; ")[0]
        is_told = likeliest and not common and len(found) <= _NAMED_WITH_REASON
        reason = f" ({likeliest})" if is_told else ""
        named.append(f"{box.name} by {format_change(box.overall).lstrip('+-')}{reason}")
    why = f"; of each, {common}" if common else ""
    told = _with_more(named, len(found))
    return f"{len(found)} of {_all_boxes(fleet)} are {word} than their kind: {told}{why}."


def kind_table(fleet: Fleet) -> Table:
    """A line for each kind of box."""
    unit, many = fleet.case.unit, counted(2, fleet.noun).removeprefix("2 ")
    costs = [price_text(kind.usd_per_million, unit) for kind in fleet.kinds]
    middles = [
        f"{format_rate(one.low_per_s, unit)} to {format_rate(one.high_per_s, unit)}" for one in fleet.kinds
    ]
    return Table(
        (
            Column("kind", [kind.name for kind in fleet.kinds], breaks=True),
            Column(many, [str(one.boxes) for one in fleet.kinds], True),
            Column("median", [format_rate(one.median_per_s, unit) for one in fleet.kinds], True),
            Column("middle 90 %", middles, True, 2),
            *([Column("cost", costs, priority=1)] if set(costs) != {"—"} else []),
        )
    )


def price_text(usd_per_million: float | Missing, unit: str) -> str:
    """For as much work as costs cents to dollars; a dash without a price."""
    if isinstance(usd_per_million, Missing):
        return "—"
    factor, amount = cost_unit(usd_per_million, unit)
    return f"{format_usd(usd_per_million * factor)} per {amount}"


def shown_boxes(fleet: Fleet, room: int | None) -> Sequence[RankedBox]:
    """All by rank; with less room those that stand out, slow ones first, then the fastest."""
    if room is None or len(fleet.boxes) <= room:
        return fleet.boxes
    order = {"slower": 0, "uneven": 1, "faster": 2}
    out = [box for box in fleet.boxes if box.stands_out]
    out.sort(key=lambda box: (order[box.stands_out], -abs(math.log(box.overall))))
    return [*out, *(box for box in fleet.boxes if not box.stands_out)][:room]


def box_table(fleet: Fleet, boxes: Sequence[RankedBox]) -> Table:
    """A line for each of these boxes, with its distance from its kind on an axis that all tables share."""
    ranks = {box.name: rank for rank, box in enumerate(fleet.boxes, 1)}
    drawing = _drawing(fleet, [[box] for box in boxes])
    of_each = [
        ("rank", [str(ranks[box.name]) for box in boxes], True),
        (fleet.noun, [box.name for box in boxes], False),
        ("rate", [format_rate(box.speed.units_per_s, fleet.case.unit) for box in boxes], True),
        ("vs its kind", [format_change(box.of_kind) for box in boxes], True),
        ("all cases", [format_change(box.overall) for box in boxes], True),
    ]
    columns = [
        Column(heading, texts, is_right, priority=heading == "vs its kind", breaks=not is_right)
        for heading, texts, is_right in of_each
    ]
    out = [Span(where_of(fleet, box), style_of_box(box)) for box in boxes]
    return Table((*columns, drawing, Column("stands out", out)))


def _drawing(fleet: Fleet, rows: Sequence[Sequence[RankedBox]]) -> Drawing:
    """Boxes of one kind in a row, over the middle 90 % of their kind; a box alone with its interval."""
    kinds = [spread_of([box.overall for box in fleet.boxes if box.kind == row[0].kind]) for row in rows]
    drawn = intervals(
        [[_interval(box, is_alone=len(row) == 1) for box in row] for row in rows],
        bands=[(kind.low, kind.high) for kind in kinds],
        axis=axis_of((_interval(box, is_alone=True) for box in fleet.boxes), PAGE_CELLS),
    )
    return replace(drawn, priority=2)


def _interval(box: RankedBox, *, is_alone: bool) -> Interval:
    low = high = box.overall
    if is_alone and not isinstance(box.apart, Missing):
        low, high = box.apart
    return Interval(box.overall, low, high, "●", style_of_box(box) or "dim")


def style_of_box(box: RankedBox) -> str:
    """As a verdict of that word has it."""
    return {"uneven": "accent", "": ""}.get(box.stands_out, style_of_word(box.stands_out))


def where_of(fleet: Fleet, box: RankedBox) -> str:
    """Whether it is slower or faster than its kind, or the case in which it is; empty for most."""
    if not box.stands_out and any(box.name in split.slower for split in fleet.splits if not split.subject):
        return "slower group"
    if box.stands_out != "uneven":
        return box.stands_out
    name, ratio = box.where[0]
    return f"{name} {format_change(ratio)}"


def _parts(fleet: Fleet, boxes: Sequence[RankedBox], reasons: int | None = None) -> list[Part]:
    """The kinds if there are several, these boxes, why some stand out, and which were not measured."""
    kinds: list[Part] = [kind_table(fleet)] if len(fleet.kinds) > 1 else []
    whys = [f"{box.name}: {box.why}" for box in _explained(fleet)][:reasons]
    unmeasured = [f"not measured there: {listed(fleet.unmeasured)}"] if fleet.unmeasured else []
    return [*kinds, box_table(fleet, boxes), (*whys, *unmeasured)]


def _explained(fleet: Fleet) -> list[RankedBox]:
    """Boxes with a reason, those first that stand out most."""
    return sorted((box for box in fleet.boxes if box.why), key=lambda box: -abs(math.log(box.overall)))


def write_fleet(out: Console, fleet: Fleet, shows_all: bool) -> None:
    """Headline, kinds, then as many boxes as there is room for: ROWS, or all where that is asked for."""
    page = Page(out)
    page.line(" ".join(fleet_sentences(fleet)), "title")
    room = ROWS
    if out.is_terminal:
        kinds = len(fleet.kinds) + 2 if len(fleet.kinds) > 1 else 0
        below = min(len(_explained(fleet)), _REASONS) + bool(fleet.unmeasured)
        room = max(min(ROWS, out.height - page.height - kinds - below - 4), 5)
    boxes = shown_boxes(fleet, None if shows_all else room)
    for one in _parts(fleet, boxes, None if shows_all else _REASONS):
        page.part(one)
    left = len(fleet.boxes) - len(boxes)
    more = [f"{counted(left, f'more {fleet.noun}')}: --all"] if left else []
    page.line(" · ".join((*more, "side by side: --matrix", "as JSON: --format json")), "dim")
    page.show()


def fleet_as_markdown(fleet: Fleet) -> str:
    """Headline, kinds if there are several, and all boxes."""
    made = (markdown_of(one) for one in _parts(fleet, fleet.boxes) if one)
    return "\n".join((f"**{escaped(' '.join(fleet_sentences(fleet)))}**\n", *made))


def fleet_as_text(fleet: Fleet) -> str:
    """All boxes, as they are written to a file."""
    page = io.StringIO()
    write_fleet(console_on(page, 120), fleet, shows_all=True)
    return page.getvalue()


def fleet_as_page(fleet: Fleet) -> str:
    """A page that fetches and runs nothing; names from files cannot become markup."""
    first, *rest = fleet_sentences(fleet)
    *_, every, notes = map(html_of, _parts(fleet, fleet.boxes))
    out = [box for box in fleet.boxes if box.stands_out]
    shown = folded if len(fleet.boxes) > _AT_ONCE else part
    how_to_read = (line.format(fleet.noun, fleet.subject) for line in _HOW_TO_READ)
    title = f"{counted(len(fleet.boxes), fleet.noun)}, ranked"
    body = "".join(
        (
            f'<p class="dim">{safe(title)}: {safe(fleet.subject)}</p><h1>{with_units(safe(first))}</h1>',
            f'<p class="lead">{safe(" ".join(rest))}</p>' if rest else "",
            part("Stands out", html_of(box_table(fleet, out)) if out else ""),
            part("Kinds, the fastest first", _kinds(fleet)),
            shown(f"Every {fleet.noun}, the fastest first", every),
            notes,
            folded("How to read this page", bullets(how_to_read)),
        )
    )
    return page_of(safe(title), body)


def _kinds(fleet: Fleet) -> str:
    """A row for each kind, with all of its boxes as dots."""
    of_kinds = [[box for box in fleet.boxes if box.kind == kind.name] for kind in fleet.kinds]
    ties = [
        ", ".join(other.name for other in tier if other is not kind) for tier in fleet.tiers for kind in tier
    ]
    columns = [*kind_table(fleet).columns, _drawing(fleet, of_kinds)]
    columns += [Column("ties with", ties)] if any(ties) else []
    return html_of(Table(tuple(columns)))


def fleet_as_csv(fleet: Fleet) -> str:
    """A row for each box by rank and then for those without the main case, as `csv_text` writes them."""
    rows: list[dict[str, Value]] = [
        {
            "rank": rank,
            **{name: plain[name] for name in ("name", "kind", "machine", "device_index", "run")},
            **fleet.case.identity(),
            "units_per_s": plain["per_s"],
            "units_per_s_low": plain["low_per_s"],
            "units_per_s_high": plain["high_per_s"],
            **{name: plain[name] for name in ("of_kind", "overall", "overall_low", "overall_high", "cases")},
            "stands_out": box.stands_out,
            "where": "; ".join(f"{name} {ratio:.4f}" for name, ratio in box.where),
            "why": box.why,
            "usd_per_million": plain["usd_per_million"],
        }
        for rank, box in enumerate(fleet.boxes, 1)
        for plain in (_plain(box),)
    ]
    rows += [dict.fromkeys(rows[0]) | {"name": name} for name in fleet.unmeasured]
    return csv_text((rows[0], *(row.values() for row in rows)))


def _plain(box: RankedBox) -> dict[str, Value]:
    """A box for programs, without the cases in which it stands out."""
    gpu, (low, high) = gpu_of(box.side), known(box.apart) or (None, None)
    return {
        **fields_of(box, "name", "kind"),
        "machine": box.side.run.machine.machine_id,
        "device_index": None if gpu is None else gpu.index,
        "run": box.side.run.short_id,
        "per_s": box.speed.units_per_s,
        "low_per_s": box.speed.low,
        "high_per_s": box.speed.high,
        **fields_of(box, "of_kind", "overall"),
        "overall_low": low,
        "overall_high": high,
        **fields_of(box, "cases", "stands_out", "why"),
        "usd_per_million": known(box.usd_per_million),
    }


def fleet_as_json(fleet: Fleet) -> str:
    """What `gputui compare --json` prints of many sides: rates in units per second, and shares of the median
    of the kind."""
    plain = {
        "by": fleet.by,
        "headline": " ".join(fleet_sentences(fleet)),
        "case": fleet.subject,
        "unit": fleet.case.unit,
        "kinds": [
            {**to_plain(kind), "usd_per_million": known(kind.usd_per_million), "tier": number}
            for number, tier in enumerate(fleet.tiers, 1)
            for kind in tier
        ],
        "boxes": [
            {**_plain(box), "where": [{"case": name, "of_kind": ratio} for name, ratio in box.where]}
            for box in fleet.boxes
        ],
        "groups": [
            {
                "kind": split.kind,
                "case": split.subject or None,
                **fields_of(split, "slower", "faster", "slower_per_s", "faster_per_s", "ratio", "why"),
            }
            for split in fleet.splits
        ],
        "unmeasured": fleet.unmeasured,
    }
    return json_text(plain)
