"""The forms of a ranking: text, Markdown, CSV, JSON and HTML."""

from __future__ import annotations

import json

from gputui.model.absent import Missing
from gputui.services.compare.fleet import Fleet, fleet_as_json
from gputui.services.compare.fleet_text import fleet_as_markdown, fleet_as_text
from gputui.services.support.csv_cells import Value, csv_text


def fleet_text(fleet: Fleet, form: str) -> str:
    """What `gputui compare --format FORM` prints of many sides, with all boxes."""
    if form == "html":
        from gputui.services.compare.fleet_html import fleet_as_page  # with the parts of the page of two

        return fleet_as_page(fleet)
    if form == "json":
        return json.dumps(fleet_as_json(fleet), indent=1) + "\n"
    return {"text": fleet_as_text, "markdown": fleet_as_markdown, "csv": fleet_as_csv}[form](fleet)


def fleet_as_csv(fleet: Fleet) -> str:
    """A row for each box by rank and then for those without the main case, as `csv_text` writes them."""
    rows = [_row(fleet, rank) for rank in range(len(fleet.boxes))]
    rows += [dict.fromkeys(rows[0]) | {"name": name} for name in fleet.unmeasured]
    return csv_text((rows[0], *(row.values() for row in rows)))


def _row(fleet: Fleet, place: int) -> dict[str, Value]:
    box = fleet.boxes[place]
    gpu = box.side.gpu
    apart = (None, None) if isinstance(box.apart, Missing) else box.apart
    usd = box.usd_per_million
    return {
        "rank": place + 1,
        "name": box.name,
        "kind": box.kind,
        "machine": box.side.run.machine.machine_id,
        "device_index": None if gpu is None else gpu.index,
        "run": box.side.run.short_id,
        **fleet.case.identity(),
        "units_per_s": box.speed.units_per_s,
        "units_per_s_low": box.speed.low,
        "units_per_s_high": box.speed.high,
        "of_kind": box.of_kind,
        "overall": box.overall,
        "overall_low": apart[0],
        "overall_high": apart[1],
        "cases": box.cases,
        "stands_out": box.stands_out,
        "where": "; ".join(f"{name} {ratio:.4f}" for name, ratio in box.where),
        "why": fleet.why.get(box.name, ""),
        "usd_per_million": None if isinstance(usd, Missing) else usd,
    }
