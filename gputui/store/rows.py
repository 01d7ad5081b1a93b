"""Converts a run to rows of the result file's tables, and rows to model values."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

from gputui.errors import beginning, clean_text
from gputui.model.absent import Missing, known
from gputui.model.journal import (
    Block,
    CaseEnd,
    CasePlanned,
    CaseWarm,
    Event,
    Figure,
    LaunchEnd,
    LaunchesLeftOut,
    LaunchStart,
    MachineFound,
    Price,
    ProfiledPass,
    RunStart,
    RuntimeFound,
    WorkerReady,
)
from gputui.model.machine import Cpu, Gpu, Identity, Layer, Machine, Memory, Runtime
from gputui.model.plan import PROFILED, Case, Variant, Work
from gputui.model.result import CaseResult, Measurement, RunFacts, RunSummary
from gputui.model.serving import LoadStep, Requests, ServerFound
from gputui.model.telemetry import HOST, Reading
from gputui.store.journal_reader import JournalContents
from gputui.store.schema import TABLE_BY_NAME
from gputui.store.strict import LARGEST, NotValid, converted, decoded, strict

Cell = str | int | float | bool | None
Row = dict[str, Cell]
"""By column name, which is checked against the table when it is written."""

LAYERS = ("platform", "scheduler", "container", "vm", "os")
_COLUMN_OF: Mapping[type, Mapping[str, str]] = {
    RunFacts: {"started_utc_us": "started_us", "ended_utc_us": "ended_us"},
    RunStart: {"started_utc_us": "started_us"},
    LaunchStart: {"threads": "threads_planned"},
    Runtime: {"torch_cuda": "cuda_version", "torch_hip": "hip_version"},
    Cpu: {field.name: f"cpu_{field.name}" for field in fields(Cpu)},
    Memory: {field.name: f"memory_{field.name}" for field in fields(Memory)},
    Gpu: {"index": "device_index", "name": "device_name"},
    Price: {"date": "list_date"},
    Work: {"version": "workload_version", "parameters": "parameters_json"},
    Block: {"index": "block_index"},
}
"""Fields whose column has another name."""
_REASON_MOST = 500
"""Letters of why a value is absent: the reasons of a row are stored as one text."""
End = tuple[str, str]
"""An outcome, and the reason if it is not `ok`."""


def run_rows(contents: JournalContents, imported_from: str, stored_us: int) -> dict[str, list[Row]]:
    """All rows of a run but its telemetry, by table.

    A case, launch or run without its last line is `interrupted`; blocks of a case that did not end are left
    out. Raises nothing for a result of `read_journal`.
    """
    measurements, blocks = _measurement_rows(contents)
    machine = next((line.machine for line in contents.of(MachineFound)), None)
    price = contents.start.price
    return {
        "runs": [_run_row(contents, machine, imported_from, stored_us)],
        "machines": [_machine_row(machine)] if machine else [],
        "identities": [_cells(one) for one in machine.identities] if machine else [],
        "devices": [_with_absent(_cells(gpu)) for gpu in machine.gpus] if machine else [],
        "prices": [_cells(price)] if price else [],
        "cases": [_case_row(contents, planned, measurements) for planned in contents.of(CasePlanned)],
        "launches": _launch_rows(contents),
        "measurements": measurements,
        "blocks": blocks,
        "figures": _figure_rows(contents),
        **_profiled_rows(contents),
        "servers": [_cells(server) for server in contents.of(ServerFound)],
        "load_steps": [_cells(step) for step in contents.of(LoadStep)],
        "requests": [
            {**_cells(some, "rows"), **_cells(one)} for some in contents.of(Requests) for one in some.rows
        ],
        "events": _event_rows(contents),
    }


@functools.cache
def _columns_of(kind: type, *but_for: str) -> dict[str, str]:
    """The column of each field of a dataclass."""
    other = _COLUMN_OF.get(kind, {})
    return {
        field.name: other.get(field.name, field.name) for field in fields(kind) if field.name not in but_for
    }


def _cells(value: Any, *but_for: str) -> dict[str, Any]:  # Any: any dataclass, and its fields
    """The fields of a value by their columns."""
    return {column: getattr(value, field) for field, column in _columns_of(value.__class__, *but_for).items()}


def _plain(row: Row, kind: type, *but_for: str) -> dict[str, Cell]:
    """The fields of a value from their columns."""
    return {field: row[column] for field, column in _columns_of(kind, *but_for).items()}


def telemetry_tuples(
    contents: JournalContents, readings: Iterable[Reading]
) -> Iterator[tuple[str, tuple[Cell, ...]]]:
    """Table name and row of each reading, in that table's column order without `run_id`."""
    gpu_keys = TABLE_BY_NAME["telemetry"].column_names[3:]
    host_keys = TABLE_BY_NAME["host_telemetry"].column_names[2:]
    for reading in readings:
        if reading.t_ns > LARGEST:
            continue
        t_us = contents.utc_us(reading.t_ns)
        values = reading.values
        if reading.device == HOST:
            yield "host_telemetry", (t_us, *(_finite(values.get(key)) for key in host_keys))
        else:
            cells = (_finite(values.get(key)) for key in gpu_keys)
            yield "telemetry", (reading.device, t_us, *cells)


def _finite(value: float | int | None) -> float | int | None:
    return value if value is None or math.isfinite(value) else None


def _with_absent(values: Mapping[str, Any]) -> Row:  # Any: fields of several dataclasses
    """Missing values as NULL, with their reasons in `absent_json`."""
    absent = {
        name: beginning(value.reason, _REASON_MOST)
        for name, value in values.items()
        if isinstance(value, Missing)
    }
    row: Row = {name: known(value) for name, value in values.items()}
    return {**row, "absent_json": json.dumps(absent) if absent else None}


def _run_row(contents: JournalContents, machine: Machine | None, imported_from: str, stored_us: int) -> Row:
    end = contents.end
    layers = machine.layers if machine else ()
    runtime = next((line.runtime for line in contents.of(RuntimeFound)), None)
    return _with_absent(
        {
            **_cells(contents.start, "schema", "run_id", "price"),
            "ended_us": end.ended_utc_us if end else None,
            "status": end.status if end else "interrupted",
            "status_reason": end.reason if end else "its process ended without saying why",
            "imported_from": imported_from,
            "stored_us": stored_us,
            **(
                {**_cells(runtime), "arch_list": " ".join(runtime.arch_list)}
                if runtime
                else dict.fromkeys(_columns_of(Runtime).values())
            ),
            **{f"{kind}_layer": _layer_names(layers, kind) for kind in LAYERS},
            "layers_json": json.dumps([[x.layer, x.name, list(x.signals)] for x in layers]),
        }
    )


def _layer_names(layers: Iterable[Layer], kind: str) -> str | None:
    return "+".join(layer.name for layer in layers if layer.layer == kind) or None


def _machine_row(machine: Machine) -> Row:
    flat = {**_cells(machine, *_MACHINE_PARTS), **_cells(machine.cpu), **_cells(machine.memory)}
    flat["cpu_features"] = " ".join(machine.cpu.features)
    return {**_with_absent(flat), "box_id": None}  # depends on the other runs of the file


def _case_row(contents: JournalContents, line: CasePlanned, measurements: list[Row]) -> Row:
    case, planned = line.planned.case, line.planned
    outcome, reason = _case_ended(contents, line, measurements)
    return {
        **_cells(case, *_CASE_PARTS),
        **_cells(case.work),
        **_cells(case.variant),
        "case_id": planned.case_id,
        "work_key": case.work.key,
        "parameters_json": json.dumps([list(parameter) for parameter in case.work.parameters]),
        **_cells(line, "planned"),
        "outcome": outcome,
        "reason": reason,
    }


def _case_ended(contents: JournalContents, line: CasePlanned, measurements: list[Row]) -> End:
    """`ok` if any launch measured it; else the last thing said of it."""
    mine = [row for row in measurements if row["case_id"] == line.planned.case_id]
    if any(row["outcome"] == "ok" for row in mine):
        return "ok", ""
    said = [end for end in contents.of(CaseEnd) if end.case_id == line.planned.case_id]
    if said and said[-1].outcome != "ok":
        return said[-1].outcome, said[-1].reason
    if mine:
        return str(mine[-1]["outcome"]), str(mine[-1]["reason"])
    if line.planned.outcome is not None:
        return line.planned.outcome, line.planned.reason
    return "interrupted", "the run ended first"


def _launch_rows(contents: JournalContents) -> list[Row]:
    ready = {line.launch_id: line for line in contents.of(WorkerReady)}
    ended = {line.launch_id: line for line in contents.of(LaunchEnd)}
    rows: list[Row] = []
    for line in contents.of(LaunchStart):
        worker, end = ready.get(line.launch_id), ended.get(line.launch_id)
        rows.append(
            {
                **_cells(line, "case_ids", "t_ns", "purpose"),
                "threads_used": worker.threads_used if worker else None,
                "startup_ns": worker.startup_ns if worker else None,
                "started_us": contents.utc_us(line.t_ns),
                "ended_us": contents.utc_us(end.t_ns) if end else None,
                "outcome": end.outcome if end else "interrupted",
                "reason": end.reason if end else "the run ended before this launch did",
                "exit_status": end.exit_status if end else None,
            }
        )
    return rows


def _measurement_rows(contents: JournalContents) -> tuple[list[Row], list[Row]]:
    """Rows of `measurements` and of `blocks`; only blocks of cases that ended."""
    warm = {(line.launch_id, line.case_id): line for line in contents.of(CaseWarm)}
    ends = {(line.launch_id, line.case_id): line for line in contents.of(CaseEnd)}
    blocks: dict[tuple[int, int], list[Block]] = {}
    for block in contents.of(Block):
        blocks.setdefault((block.launch_id, block.case_id), []).append(block)
    planned = {line.planned.case_id for line in contents.of(CasePlanned)}
    measurement_rows: list[Row] = []
    block_rows: list[Row] = []
    for launch in contents.of(LaunchStart):
        for case_id in launch.case_ids:
            if case_id not in planned or launch.purpose == PROFILED:
                continue
            pair = (launch.launch_id, case_id)
            end = ends.get(pair)
            mine = blocks.get(pair, []) if end else []
            outcome, reason = _measurement_ended(end, bool(mine))
            measurement_rows.append(
                {
                    "case_id": case_id,
                    "launch_id": launch.launch_id,
                    "replicate": launch.replicate,
                    "outcome": outcome,
                    "reason": reason,
                    **{name: getattr(warm.get(pair), name, None) for name in _OF_WARM},
                }
            )
            block_rows += [{**_cells(block), "t_us": contents.utc_us(block.start_ns)} for block in mine]
    return measurement_rows, block_rows


def _measurement_ended(end: CaseEnd | None, has_blocks: bool) -> End:
    if end is None:
        return "interrupted", "its launch ended before it did"
    if end.outcome == "ok" and not has_blocks:
        return "interrupted", "its blocks are missing in the journal"
    return end.outcome, end.reason


_OF_WARM = tuple(_columns_of(CaseWarm, "launch_id", "case_id", "t_ns"))
"""Columns of `measurements` that are empty if it never became warm."""


def _figure_rows(contents: JournalContents) -> list[Row]:
    """The figures of cases that ended, like their blocks."""
    ended = {(line.launch_id, line.case_id) for line in contents.of(CaseEnd)}
    return [
        {
            **_cells(figure),
            "figure_index": index,
            "value": known(figure.value),
            "reason": figure.value.reason if isinstance(figure.value, Missing) else None,
        }
        for index, figure in enumerate(contents.of(Figure))
        if (figure.launch_id, figure.case_id) in ended
    ]


PROFILED_PARTS = {
    "operators": "operators",
    "breakdown": "slices",
    "kernels": "kernels",
    "memory_points": "memory",
    "step_lines": "lines",
}
"""Tables of the rows of a profiled pass, and the fields they come from."""


def _profiled_rows(contents: JournalContents) -> dict[str, list[Row]]:
    passes = contents.of(ProfiledPass)
    parts = {
        table: [
            {
                "case_id": one.case_id,
                "launch_id": one.launch_id,
                **{column: known(cell) for column, cell in _cells(part).items()},
            }
            for one in passes
            for part in getattr(one, field)
        ]
        for table, field in PROFILED_PARTS.items()
    }
    return {"profiled_passes": [_cells(one, *PROFILED_PARTS.values()) for one in passes], **parts}


def _event_rows(contents: JournalContents) -> list[Row]:
    rows: list[Row] = [
        {
            "t_us": contents.utc_us(line.t_ns),
            "level": line.level if isinstance(line, Event) else "info",
            "message": line.message,
        }
        for line in contents.lines
        if isinstance(line, Event | LaunchesLeftOut)
    ]
    return rows + damage_rows(contents.damage)


def damage_rows(left_out: Iterable[str], level: str = "warning") -> list[Row]:
    """Events that describe what could not be read of a journal."""
    return [
        {"t_us": None, "level": level, "message": f"left out of the journal: {what}"} for what in left_out
    ]


_NO_REASON = "not stored"
_NEVER_KNOWN = "the run ended before it was known"


_MACHINE_PARTS = ("cpu", "memory", "gpus", "layers", "identities")
_CASE_PARTS = ("work", "variant")
RUN_COLUMNS = (*_columns_of(RunFacts).values(), *_columns_of(Runtime).values(), "layers_json", "absent_json")
"""Columns of `runs` that a summary needs."""
BLOCK_COLUMNS = tuple(_columns_of(Block).values())


def summary_from(run: Row, parts: Mapping[str, Sequence[Row]]) -> RunSummary:
    """One run without its measurements; `parts` are its rows by table.

    There is no machine if it ended before the box was known. Raises NotValid if a value cannot be.
    """
    facts = strict(_plain(run, RunFacts), RunFacts)
    price: Price | Missing = Missing("no price was stated or known")
    for row in parts["prices"]:
        price = strict(_plain(row, Price), Price)
    return RunSummary(
        **{field: getattr(facts, field) for field in _columns_of(RunFacts)},
        machine=_machine(run, parts),
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
    of_launch: dict[Cell, list[dict[str, object]]] = {}
    for figure in figures:
        absent = {"missing": figure["reason"] or _NO_REASON}
        value = absent if figure["value"] is None else figure["value"]
        of_launch.setdefault(figure["launch_id"], []).append({**figure, "value": value})
    launches = []
    for row in measurements:
        launch_id = row["launch_id"]
        plain = {
            **row,
            "precision_used": row["precision_used"] or "",
            "layout": row["layout"] or "",
            "blocks": (),
            "figures": of_launch.get(launch_id, []),
        }
        launches.append(replace(strict(plain, Measurement), blocks=_checked(blocks.get(launch_id, ()))))
    work = _case(*(case[name] for name in _CASE_COLUMNS))
    found = strict({**case, "case": work, "measurements": ()}, CaseResult)
    return replace(found, measurements=tuple(launches))


def _checked(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """In the order of time. There may be a million: all values of a field are checked together."""
    for name in _columns_of(Block):
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
    operators = [{**one, "kernel_ns": one["kernel_ns"] or 0} for one in parts["operators"]]
    late = {"operators": operators, "before_ns": row["before_ns"] or 0}  # older files lack these
    return strict({**row, **fields_of, **late, "memory": memory}, ProfiledPass)


_CASE_COLUMNS = tuple(
    column
    for columns in (_columns_of(Case, *_CASE_PARTS), _columns_of(Work), _columns_of(Variant))
    for column in columns.values()
)
"""Columns of `cases` that tell what was measured."""


@functools.lru_cache(maxsize=256)  # most files, and all runs of a file, contain the same work
def _case(*values: Cell) -> Case:
    row = dict(zip(_CASE_COLUMNS, values, strict=True))
    work = {**_plain(row, Work), "parameters": _decoded(row["parameters_json"])}
    plain = _plain(row, Case, *_CASE_PARTS)
    return strict({**plain, "work": work, "variant": _plain(row, Variant)}, Case)


def _runtime(run: Row) -> Runtime:
    if run["python_version"] is None:
        return Runtime.without_torch(Missing(_NEVER_KNOWN))
    return strict({**_restored(run, Runtime), "arch_list": str(run["arch_list"] or "").split()}, Runtime)


def _machine(run: Row, parts: Mapping[str, Sequence[Row]]) -> Machine:
    if not parts["machines"]:
        return Machine.unknown(Missing(_NEVER_KNOWN), no_gpus=_NEVER_KNOWN)  # it has no measurements either
    machine = parts["machines"][-1]
    layers = converted(_decoded(run["layers_json"]), tuple[tuple[str, str, tuple[str, ...]], ...])
    plain = {
        **_restored(machine, Machine, *_MACHINE_PARTS),
        "cpu": {**_restored(machine, Cpu), "features": str(machine["cpu_features"] or "").split()},
        "memory": _restored(machine, Memory),
        "gpus": [_restored(gpu, Gpu) for gpu in parts["devices"]],
        "layers": [{"layer": layer, "name": name, "signals": signals} for layer, name, signals in layers],
        "identities": [_plain(one, Identity) for one in parts["identities"]],
    }
    return strict(plain, Machine)


def _restored(row: Row, kind: type, *but_for: str) -> dict[str, object]:
    """As `_plain`, with each NULL as a Missing with the row's reason for it."""
    absent = row.get("absent_json")
    reasons = converted(_decoded(absent), dict[str, str]) if absent is not None else {}
    return {
        field: {"missing": clean_text(reasons.get(column, _NO_REASON))}
        if row[column] is None
        else row[column]
        for field, column in _columns_of(kind, *but_for).items()
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
