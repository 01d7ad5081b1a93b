"""Converts rows of a result file to model values; `rows` is the opposite direction."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from operator import attrgetter

from gputui.model.absent import Missing
from gputui.model.case import Case
from gputui.model.journal import Block, Price
from gputui.model.machine import Cpu, Gpu, Machine, Memory, Runtime
from gputui.model.profiled import ProfiledPass
from gputui.model.result import CaseResult, Measurement, RunFacts, RunSummary
from gputui.store.rows import GPU_RENAMED, PROFILED_PARTS, RENAMED, Cell, Row
from gputui.store.strict import NotValid, converted, decoded, strict
from gputui.store.text import clean_text

_NO_REASON = "not stored"
_NEVER_KNOWN = "the run ended before it was known"


_FACTS_RENAMED = {"started_utc_us": "started_us", "ended_utc_us": "ended_us"}
RUN_COLUMNS = (
    *(_FACTS_RENAMED.get(f.name, f.name) for f in fields(RunFacts)),
    *(RENAMED.get(f.name, f.name) for f in fields(Runtime)),
    "layers_json",
    "absent_json",
)
"""Columns of `runs` that a summary needs."""
_BLOCK_FIELDS = tuple(f.name for f in fields(Block))
BLOCK_COLUMNS = tuple("block_index" if name == "index" else name for name in _BLOCK_FIELDS)


def summary_from(
    run: Row, machine: Row | None, gpus: Sequence[Row], identities: Sequence[Row], price_row: Row | None
) -> RunSummary:
    """One run without its measurements. There is no machine if it ended before the box was known.

    Raises NotValid if a value cannot be.
    """
    facts = strict(
        {f.name: run[_FACTS_RENAMED.get(f.name, f.name)] for f in fields(RunFacts)},
        RunFacts,
    )
    price: Price | Missing = Missing("no price was stated or known")
    if price_row is not None:
        columns = {f.name: "list_date" if f.name == "date" else f.name for f in fields(Price)}
        price = strict({field: price_row[column] for field, column in columns.items()}, Price)
    return RunSummary(
        **{f.name: getattr(facts, f.name) for f in fields(RunFacts)},
        machine=_machine(run, machine, gpus, identities),
        runtime=_runtime(run),
        price=price,
    )


def case_from(
    case: Row,
    measurements: Sequence[Row],
    blocks: Mapping[Cell, Sequence[Block]],
    figures: Sequence[Row] = (),
) -> CaseResult:
    """One case with its launches; `measurements` joined with the threads of their launch, `blocks` by launch.

    Raises NotValid for an impossible value.
    """
    figures_by_launch: dict[Cell, list[dict[str, object]]] = {}
    for figure in figures:
        figures_by_launch.setdefault(figure["launch_id"], []).append(_plain_figure(figure))
    launches = []
    for measurement in measurements:
        launch_id = measurement["launch_id"]
        plain = {
            **measurement,
            "precision_used": measurement["precision_used"] or "",
            "blocks": (),
            "figures": figures_by_launch.get(launch_id, []),
        }
        launches.append(replace(strict(plain, Measurement), blocks=_checked(blocks.get(launch_id, ()))))
    names = ("case_id", "device_index", "device_name", "outcome", "reason")
    plain_case = {name: case[name] for name in names}
    work = _case(*(case[name] for name in _CASE_COLUMNS))
    found = strict({**plain_case, "case": work, "measurements": ()}, CaseResult)
    return replace(found, measurements=tuple(launches))


def _checked(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """In the order of time. There may be a million: all values of a field are checked together."""
    for name in _BLOCK_FIELDS:
        column = list(map(attrgetter(name), blocks))
        known = [cell for cell in column if cell is not None]
        least = 1 if name in ("steps", "wall_ns", "device_ns") else 0
        if len(known) < len(column) and name not in ("device_ns", "cpu_ns", "waited_ns"):
            raise NotValid(f"{name} of a block is not known")
        if known and min(known) < least:
            raise NotValid(f"{name} is {min(known)}")
    return tuple(sorted(blocks, key=attrgetter("start_ns")))


def profiled_from(row: Row, parts: Mapping[str, Sequence[Row]]) -> ProfiledPass:
    """The profiled pass of one case; `parts` are its rows by table. Raises NotValid for an impossible
    value."""
    absent = {"missing": "there is no caching allocator"}
    memory = [
        {**point, "reserved_bytes": absent if point["reserved_bytes"] is None else point["reserved_bytes"]}
        for point in parts["memory_points"]
    ]
    fields_of = {field: parts[table] for table, field in PROFILED_PARTS.items()}
    return strict({**row, **fields_of, "memory": memory}, ProfiledPass)


def _plain_figure(row: Row) -> dict[str, object]:
    absent = {"missing": row["reason"] or _NO_REASON}
    return {**row, "value": absent if row["value"] is None else row["value"]}


_CASE_COLUMNS = (
    *("workload_class", "unit", "units_per_step", "flops_per_step", "bytes_per_step"),
    *("workload", "workload_version", "size", "form", "parameters_json"),
    *("device_class", "precision", "mode", "threads"),
)
"""Columns of `cases` that tell what was measured."""


@functools.lru_cache(maxsize=256)  # most files, and all runs of a file, contain the same work
def _case(*values: Cell) -> Case:
    case = dict(zip(_CASE_COLUMNS, values, strict=True))
    plain = {
        **{name: case[name] for name in ("workload_class", "unit", "units_per_step")},
        "flops_per_step": case["flops_per_step"],
        "bytes_per_step": case["bytes_per_step"],
        "work": {
            "workload": case["workload"],
            "version": case["workload_version"],
            "size": case["size"],
            "form": case["form"],
            "parameters": _decoded(case["parameters_json"]),
        },
        "variant": {name: case[name] for name in ("device_class", "precision", "mode", "threads")},
    }
    return strict(plain, Case)


def _runtime(run: Row) -> Runtime:
    if run["python_version"] is None:
        return Runtime.without_torch(Missing(_NEVER_KNOWN))
    plain = _restored(run, {f.name: RENAMED.get(f.name, f.name) for f in fields(Runtime)})
    plain["arch_list"] = str(run["arch_list"] or "").split()
    return strict(plain, Runtime)


def _machine(run: Row, machine: Row | None, gpus: Sequence[Row], identities: Sequence[Row]) -> Machine:
    if machine is None:
        return Machine.unknown(Missing(_NEVER_KNOWN), no_gpus=_NEVER_KNOWN)  # it has no measurements either
    plain = _restored(
        machine, {f.name: f.name for f in fields(Machine) if f.name in machine and f.name != "memory"}
    )
    cpu = _restored(machine, {f.name: f"cpu_{f.name}" for f in fields(Cpu)})
    cpu["features"] = str(machine["cpu_features"] or "").split()
    layers = converted(_decoded(run["layers_json"]), tuple[tuple[str, str, tuple[str, ...]], ...])
    plain["cpu"] = cpu
    plain["memory"] = _restored(machine, {f.name: f"memory_{f.name}" for f in fields(Memory)})
    plain["layers"] = [{"layer": a, "name": b, "signals": list(c)} for a, b, c in layers]
    plain["identities"] = [{"kind": one["kind"], "id": one["id"]} for one in identities]
    gpu_columns = {f.name: GPU_RENAMED.get(f.name, f.name) for f in fields(Gpu)}
    plain["gpus"] = [_restored(gpu, gpu_columns) for gpu in gpus]
    return strict(plain, Machine)


def _restored(row: Row, columns: Mapping[str, str]) -> dict[str, object]:
    """Plain fields from columns, each NULL as a Missing with the row's reason for it."""
    absent = row.get("absent_json")
    reasons = converted(_decoded(absent), dict[str, str]) if absent is not None else {}
    return {
        field: {"missing": clean_text(reasons.get(column, _NO_REASON))}
        if row[column] is None
        else row[column]
        for field, column in columns.items()
    }


def _decoded(text: Cell) -> object:
    """The JSON of a column, its strings cleaned: escapes may hide control characters."""
    if not isinstance(text, str):
        raise NotValid("a JSON column is empty")
    try:
        return _cleaned(decoded(text))
    except NotValid as error:
        raise NotValid(f"a JSON column cannot be read: {error}") from error


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_cleaned(part) for part in value]
    if isinstance(value, dict):
        return {key: _cleaned(part) for key, part in value.items()}
    return value
