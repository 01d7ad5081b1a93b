"""Copies runs into a new result file in which only known texts are left: a rule for every text column."""

from __future__ import annotations

import json
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gputui.model.journal import CATEGORIES, IDLE_CAUSES, MEMORY_POINTS, PHASES, TIME_CLASSES
from gputui.model.plan import OUTCOMES, OWN, WHOLE_BOX, Work
from gputui.model.result import RunSummary
from gputui.model.serving import LOADS, REQUEST_OUTCOMES
from gputui.model.units import RATES
from gputui.services.runs.process import uuid7
from gputui.services.share import vocabulary as known
from gputui.services.share.vocabulary import Rule, matching, one_of
from gputui.store.opening import CATALOG, rows_of
from gputui.store.rows import LAYERS
from gputui.store.schema import TABLE_BY_NAME, Table
from gputui.store.writing import explaining, opened_for_writing
from gputui.worker import FIGURE_BETTER, FIGURE_COMBINES, FIGURE_SUFFIXES, MODES, WORKLOAD_CLASSES
from gputui.worker.foreign_json import read_json
from gputui.worker.layouts import NCHW, NHWC
from gputui.worker.profiling.rows import GC, OTHER_THREAD

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

GONE = "not shared"


@dataclass(frozen=True, slots=True)
class Keep:
    """What the user asked to share besides what is harmless."""

    price: bool = False
    label: bool = False
    ids: bool = False
    """Of runs, boxes and GPUs, so that two shared files can be joined."""
    names: bool = False
    """Of programs, profiles, parameters, operators and kernels of the user's."""
    messages: bool = False
    """Events and reasons in the words of programs and libraries."""


@dataclass(slots=True)
class Names:
    """New ids and names, each the same wherever the old one stood; and how much was replaced."""

    keep: Keep
    _new: dict[tuple[str, str], str] = field(default_factory=dict)
    _numbers: Counter[str] = field(default_factory=Counter)
    replaced: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Texts by what they are: `label`, `id`, `message`, ..."""

    def identifier(self, old: str) -> str:
        """12 random hex digits."""
        return self._new.setdefault(("id", old), secrets.token_hex(6))

    def numbered(self, kind: str, old: str) -> str:
        """`kernel-3`."""
        key = (kind, old)
        if key not in self._new:
            self._numbers[kind] += 1
            self._new[key] = f"{kind}-{self._numbers[kind]}"
        return self._new[key]


@dataclass(frozen=True, slots=True)
class TextRule:
    """The rule of one column. Empty texts and NULL stay."""

    known: Rule
    """What may be shared of a text; None if nothing."""
    otherwise: Callable[[str], str | None]
    """What stands there instead, given the old text; None for NULL."""
    what: str
    """What was replaced, for the list: `label`, `message`, `name`, ...; empty if it is not worth a line."""
    is_kept: bool = False

    def shared(self, names: Names, text: str) -> str | None:
        """The text as it is shared."""
        if not text or self.is_kept:
            return text
        found = self.known(text)
        if found is None:
            found = self.otherwise(text)
        if found != text and self.what:
            names.replaced[self.what].add(text)
        return found


def rules_of(names: Names) -> dict[str, dict[str, TextRule]]:
    """By table and column. A text column that has no rule is left out of a table that is shared."""
    keep = names.keep

    def own(kind: str, rule: Rule) -> TextRule:
        return TextRule(rule, lambda old: names.numbered(kind, old), "name", keep.names)

    def program(old: str) -> str:
        kind, colon, name = old.partition(":")
        if kind == "serve" and (load := known.load_words(name)):
            return f"serve:{names.numbered('profile', name.removesuffix(load).rstrip())} {load}"
        if colon and kind in ("command", "record", "step", "trace", "serve"):
            return f"{kind}:{names.numbered('program', name)}"
        return names.numbered("workload", old)

    def parameters(text: str) -> str | None:
        found = _json(text)
        if not isinstance(found, list) or any(not isinstance(p, list) or len(p) != 2 for p in found):
            names.replaced["name"].add(text)
            return None
        pairs = []
        for name, value in found:
            name = str(name)
            kept = value if not isinstance(value, str) else known.parameter_text(value)
            if kept is None:
                names.replaced["name"].add(str(value))
                value = names.numbered("model" if name == "model" else "value", str(value))
            if known.parameter_name(name) is None:
                names.replaced["name"].add(name)
            pairs.append((known.parameter_name(name) or names.numbered("parameter", name), value))
        return json.dumps([list(pair) for pair in sorted(pairs)])

    def shortened(rule: Rule) -> Rule:
        def kept(text: str) -> str | None:
            found = rule(text)
            return found if found in (None, text) else _apart(names, str(found), text)

        return kept

    nothing: Rule = lambda text: None  # noqa: E731  # a rule like the others
    null: Callable[[str], str | None] = lambda old: None  # noqa: E731
    empty: Callable[[str], str | None] = lambda old: ""  # noqa: E731
    message = TextRule(known.message, lambda old: GONE, "message", keep.messages)
    identifier = TextRule(nothing, names.identifier, "id", keep.ids)
    absent = TextRule(_absent, null, "message", keep.messages)
    detail = "detail of the box"

    def fact(rule: Rule) -> TextRule:
        return TextRule(rule, null, detail)

    device = TextRule(known.device_name, lambda old: names.numbered("device", old), detail)
    outcome = TextRule(one_of(*OUTCOMES), lambda old: "failed", detail)
    ending = {"outcome": outcome, "reason": message}
    phase = TextRule(one_of(*PHASES), lambda old: PHASES[0], detail)
    time_class = TextRule(one_of(*TIME_CLASSES), lambda old: TIME_CLASSES[0], detail)
    operator = own("operator", shortened(known.operator))
    price = TextRule(nothing, null, "price", keep.price)
    version = fact(known.version)
    layers = fact(known.each(known.layer_name, "+"))
    return {
        "runs": {
            "status": TextRule(one_of("finished", "interrupted", "failed"), lambda old: "failed", detail),
            "status_reason": message,
            "profile": own("profile", known.profile),
            "label": TextRule(nothing, lambda old: "", "label", keep.label),
            "gputui_version": TextRule(known.version, lambda old: "0", detail),
            "imported_from": TextRule(nothing, lambda old: "", "path"),
            "python_version": version,
            "python_implementation": fact(one_of("CPython", "PyPy", "GraalPy")),
            "torch_version": version,
            "cuda_version": version,
            "hip_version": version,
            "cudnn_version": version,
            "nccl_version": version,
            "triton_version": version,
            "arch_list": fact(known.each(matching(r"(?:sm|compute)_\d{2,3}[af]?|gfx\d{3,4}[a-f]?"), " ")),
            "cpu_capability": fact(
                one_of("DEFAULT", "NO AVX", "AVX2", "AVX512", "SVE", "SVE128", "SVE256", "VSX", "ZVECTOR")
            ),
            "blas": fact(one_of("mkl", "openblas", "other")),
            "variables": fact(known.each(known.variable, " ")),
            **{f"{layer}_layer": layers for layer in LAYERS},
            "layers_json": TextRule(_layers, lambda old: "[]", ""),
            "absent_json": absent,
        },
        "machines": {
            "machine_id": identifier,
            "box_id": identifier,
            "cpu_model": device,
            "cpu_limited_by": TextRule(_LIMITS, lambda old: "host", detail),
            "cpu_features": fact(known.each(matching(_CPU_FEATURES), " ")),
            "memory_limited_by": TextRule(_LIMITS, lambda old: "host", detail),
            "gpus_absent": message,
            "instance_type": fact(known.instance_type),
            "region": fact(known.region),
            "os_name": fact(known.system_name),
            "kernel": fact(known.kernel_release),
            "libc": fact(known.libc),
            "driver_version": version,
            "cuda_driver_version": version,
            "absent_json": absent,
        },
        "identities": {
            "kind": TextRule(
                one_of("stated", "product-uuid", "machine-id", "gpus", "account", "boot", "run"),
                lambda old: "account",
                detail,
            ),
            "id": identifier,
        },
        "devices": {
            "gpu_id": identifier,
            "device_name": device,
            "vendor": fact(one_of("nvidia", "amd", "intel", "apple")),
            "compute_capability": fact(matching(r"\d{1,2}\.\d|gfx\d{3,4}[a-f]?")),
            "absent_json": absent,
        },
        "prices": dict.fromkeys(("kind", "provider", "instance_type", "region", "list_date"), price),
        "cases": {
            "work_key": TextRule(matching("[0-9a-f]{16}"), null, detail),  # calculated anew
            "workload": TextRule(known.workload, program, "name", keep.names),
            "size": own("size", known.size),
            "form": TextRule(one_of("same", "best"), lambda old: "same", detail),
            "parameters_json": TextRule(parameters, lambda old: "[]", "", keep.names),  # counted above
            "device_class": TextRule(one_of("cpu", "gpu", WHOLE_BOX), lambda old: WHOLE_BOX, detail),
            "device_name": device,
            "precision": own("precision", known.precision),
            "mode": own("mode", one_of(*MODES, OWN)),
            "threads": own("threads", matching(r"all|host|\d{1,4}")),
            "workload_class": TextRule(one_of(*WORKLOAD_CLASSES), lambda old: "host", detail),
            "unit": own("unit", one_of(*RATES)),
            **ending,
        },
        "launches": ending,
        "measurements": {
            **ending,
            "precision_used": own("precision", known.precision),
            "layout": fact(one_of("", NHWC, NCHW)),
        },
        "figures": {
            "key": own("result", known.figure_key),
            "title": own("result", known.figure_title),
            "unit": TextRule(one_of(*FIGURE_SUFFIXES), lambda old: "count", detail),
            "better": TextRule(one_of(*FIGURE_BETTER), lambda old: "neither", detail),
            "combine": TextRule(one_of(*FIGURE_COMBINES), lambda old: "median", detail),
            "reason": message,
        },
        "profiled_passes": {"reason": message, "memory_reason": message},
        "operators": {
            "phase": phase,
            "category": TextRule(one_of(*CATEGORIES), lambda old: "other", detail),
            "operator": operator,
            "shapes": TextRule(known.shapes, lambda old: "", "name", keep.names),
            "dtypes": TextRule(known.dtypes, lambda old: "", "name", keep.names),
        },
        "breakdown": {
            "phase": phase,
            "time_class": time_class,
            "cause": TextRule(one_of(*IDLE_CAUSES), lambda old: "", detail),
        },
        "kernels": {
            "name": own("kernel", shortened(known.kernel_name)),
            "time_class": time_class,
            "operator": operator,
        },
        "step_lines": {
            "phase": phase,
            "operator": operator,
            "cause": TextRule(one_of(*IDLE_CAUSES), lambda old: "", detail),
            "doing": TextRule(one_of(GC, OTHER_THREAD), lambda old: "", detail),
            **dict.fromkeys(("path", "function", "called"), TextRule(nothing, empty, "path", keep.names)),
        },
        "memory_points": {"point": TextRule(one_of(*MEMORY_POINTS), lambda old: "peak", detail)},
        "blocks": {},
        "servers": {
            "engine": own("engine", one_of("vLLM", "SGLang", "llama.cpp", "Ollama", "TGI")),
            "version": TextRule(known.version, lambda old: "", detail),
        },
        "load_steps": {
            "load": TextRule(one_of(*LOADS), lambda old: LOADS[0], detail),
            "client": TextRule(one_of("asyncio", "uvloop"), lambda old: "", detail),
        },
        "requests": {
            "outcome": TextRule(one_of(*REQUEST_OUTCOMES), lambda old: "failed", detail),
            "reason": message,
            "retry_after": TextRule(matching(r"\d{1,6}"), empty, "message", keep.messages),
            "finish_reason": TextRule(_FINISHES, empty, "message", keep.messages),
            "prompt_hash": TextRule(nothing, lambda old: "", "id", keep.ids),
            "answer_hash": TextRule(nothing, lambda old: "", "id", keep.ids),
        },
        "telemetry": {},
        "host_telemetry": {},
        "events": {
            "level": TextRule(one_of("info", "warning", "error"), lambda old: "info", detail),
            "message": TextRule(known.message, null, "message", keep.messages),
        },
    }


_FINISHES = one_of("stop", "length", "tool_calls", "content_filter", "eos", "abort", "load")
_LIMITS = one_of(
    *("host", "affinity", "cgroup", "cpuset", "RUNPOD_CPU_COUNT", "CPU_CORES", "SLURM_CPUS_PER_TASK"),
    *("SLURM_CPUS_ON_NODE", "MEMORY", "SLURM_MEM_PER_NODE", "RUNPOD_MEM_GB"),
)
_CPU_FEATURES = r"(?:avx|amx|sse|sve|sme|neon|asimd|f16c|fma|bf16|i8mm|vnni|fp16|dotprod|vsx)[a-z0-9_]{0,16}"


def _json(text: str) -> object:
    try:
        found: object = read_json(text)
    except ValueError:
        return None
    return found


def _layers(text: str) -> str | None:
    """Known layers; the names of their signals tell of files and variables, and are left out."""
    found = _json(text)
    if not isinstance(found, list) or any(not isinstance(one, list) or len(one) != 3 for one in found):
        return None
    kept = [[layer, name, []] for layer, name, _ in found if layer in LAYERS and known.layer_name(name)]
    return json.dumps(kept)


_COLUMNS = frozenset(name for table in TABLE_BY_NAME.values() for name in table.column_names)


def _absent(text: str) -> str | None:
    found = _json(text)
    if not isinstance(found, dict):
        return None
    reasons = {column: known.message(str(reason)) or GONE for column, reason in found.items()}
    return json.dumps({column: reason for column, reason in reasons.items() if column in _COLUMNS})


def _apart(names: Names, short: str, text: str) -> str:
    """A shortened name; different ones that were shortened to the same get numbers."""
    found = names.numbered(short, text)
    return short if found == f"{short}-1" else found


_ID_BITS = 80
_AT_ONCE = 5
"""Files that are open at the same time: 20 take 40 MiB more, and hardly less time."""
COUNTED = {
    "run": "runs",
    "measured case": "cases WHERE outcome = 'ok'",
    "timed block": "blocks",
    "request": "requests",
    "sample": "telemetry",
    "row": "operators",
    "event": "events",
}
"""What is counted of a copy, and the rows that are that."""


def shared_copy(picked: Mapping[Path, Sequence[RunSummary]], out: Path, names: Names) -> Counter[str]:
    """Copy runs of files into `out`, which is new; returns how many rows of each kind of COUNTED are in it.

    The caller has read these runs, so that what they hold is valid. Every text goes through its rule. Clocks
    and counters of the box begin at 0, and its time zone is UTC: they would tell its uptime and place.
    Raises NotStored.
    """
    paths, row = list(picked), tuple[int, ...]()
    for start in range(0, len(paths), _AT_ONCE):
        catalogs = {f"d{number}": path for number, path in enumerate(paths[start : start + _AT_ONCE], 1)}
        with opened_for_writing(out, catalogs) as connection, explaining(out):
            connection.execute("CREATE TEMP TABLE new_runs (old_id UUID, new_id UUID, started_ns BIGINT)")
            connection.execute("CREATE TEMP TABLE new_texts (place VARCHAR, old VARCHAR, new VARCHAR)")
            connection.execute("BEGIN")
            for catalog, path in catalogs.items():
                _copy_runs(connection, catalog, path, picked[path], names)
            if start + _AT_ONCE >= len(paths):
                rekey(connection, out)
                connection.execute(f"DELETE FROM {CATALOG}.main.events WHERE message IS NULL")
                counts = ", ".join(
                    f"(SELECT count(*) FROM {CATALOG}.main.{rows})" for rows in COUNTED.values()
                )
                (row,) = connection.execute(f"SELECT {counts}").fetchall()
            connection.execute("COMMIT")
    return Counter(dict(zip(COUNTED, row, strict=True)))


def _copy_runs(
    connection: DuckDBPyConnection, catalog: str, path: Path, picked: Sequence[RunSummary], names: Names
) -> None:
    """Those of one file, table by table."""
    sql = f"SELECT run_id::VARCHAR, started_ns FROM {catalog}.main.runs"
    clocks = {str(run_id): started_ns for run_id, started_ns in rows_of(connection, path, sql)}
    connection.execute("DELETE FROM new_runs")
    for run in picked:
        new = run.run_id
        if not names.keep.ids:
            new = uuid7(run.started_utc_us // 1000, secrets.randbits(_ID_BITS))
            names.replaced["id"].add(run.run_id)
        connection.execute(
            "INSERT INTO new_runs VALUES (?::UUID, ?::UUID, ?)",
            [run.run_id, new, clocks.get(run.run_id) or 0],
        )
    sql = f"SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = '{catalog}'"
    there = frozenset((str(table), str(column)) for table, column in rows_of(connection, path, sql))
    for table, rules in rules_of(names).items():
        if table == "prices" and not names.keep.price:
            sql = f"SELECT run_id::VARCHAR FROM {catalog}.main.prices SEMI JOIN new_runs ON run_id = old_id"
            names.replaced["price"].update(str(run) for (run,) in rows_of(connection, path, sql))
        elif (table, "run_id") in there:
            _copy(connection, catalog, path, TABLE_BY_NAME[table], there, rules, names)


def _copy(
    connection: DuckDBPyConnection,
    catalog: str,
    path: Path,
    table: Table,
    there: frozenset[tuple[str, str]],
    rules: Mapping[str, TextRule],
    names: Names,
) -> None:
    """Copy one table; a text column without a rule, and one that the file lacks, is NULL."""
    source = f"{catalog}.main.{table.name}"
    texts = [c.name for c in table.columns if c.name in rules and (table.name, c.name) in there]
    _note_texts(connection, path, source, texts, rules, names)
    cells, joins = [], []
    for column in table.columns:
        name = column.name
        if name == "run_id":
            cells.append("r.new_id")
        elif name in texts:
            joins.append(
                f"LEFT JOIN new_texts AS t_{name} ON t_{name}.place = '{name}' AND t_{name}.old = s.{name}"
            )
            cells.append(f"t_{name}.new")
        elif column.sql_type == "VARCHAR" or (table.name, name) not in there:
            cells.append(f"NULL::{column.sql_type}")
        else:
            cells.append(SHIFTED.get((table.name, name), "s.{0}").format(name))
    if ("telemetry", "energy_mj") in there and table.name == "telemetry":
        least = f"SELECT run_id, device_index, min(energy_mj) AS energy_mj FROM {source} GROUP BY ALL"
        joins.append(
            f"LEFT JOIN ({least}) AS least ON least.run_id = s.run_id AND least.device_index = s.device_index"
        )
    in_order = " ORDER BY s.rowid" if joins and texts else ""
    connection.execute(
        f"INSERT INTO {CATALOG}.main.{table.name} ({', '.join(table.column_names)}) SELECT {', '.join(cells)}"
        f" FROM {source} AS s JOIN new_runs AS r ON s.run_id = r.old_id {' '.join(joins)}{in_order}"
    )


def _note_texts(
    connection: DuckDBPyConnection,
    path: Path,
    source: str,
    columns: Sequence[str],
    rules: Mapping[str, TextRule],
    names: Names,
) -> None:
    """Note what becomes of every text of these columns of a table."""
    connection.execute("DELETE FROM new_texts")
    if not columns:
        return
    each = " UNION ALL ".join(
        f"SELECT '{name}' AS place, {name} AS old FROM {source} SEMI JOIN new_runs ON run_id = old_id"
        for name in columns
    )
    sql = f"SELECT DISTINCT place, old FROM ({each}) WHERE old IS NOT NULL ORDER BY place, old"
    found = [(str(place), str(old)) for place, old in rows_of(connection, path, sql, what=source)]
    new = [rules[place].shared(names, old) for place, old in found]
    connection.execute(
        "INSERT INTO new_texts SELECT unnest(?::VARCHAR[]), unnest(?::VARCHAR[]), unnest(?::VARCHAR[])",
        [[place for place, _ in found], [old for _, old in found], new],
    )


SHIFTED = {
    ("runs", "started_ns"): "0",
    ("runs", "utc_offset_min"): "0",
    ("runs", "stored_us"): "epoch_us(get_current_timestamp())",
    **{
        (table, column): f"if(s.{column} IS NULL, NULL, greatest(s.{column} - r.started_ns, 0))"
        for table, columns in (
            ("blocks", ("start_ns",)),
            ("servers", ("t_ns",)),
            ("load_steps", ("window_start_ns", "window_end_ns")),
            ("requests", ("due_ns", "sent_ns", "first_ns", "last_ns", "ended_ns")),
        )
        for column in columns
    },
    ("telemetry", "energy_mj"): "s.energy_mj - least.energy_mj",
}
"""Numbers that would tell how long the box was up, or where it stands."""


def rekey(connection: DuckDBPyConnection, out: Path) -> None:
    """Work keys of what the works are called now, so that they are equal if and only if the work is."""
    sql = (
        "SELECT DISTINCT workload, workload_version, size, form, parameters_json"
        f" FROM {CATALOG}.main.cases WHERE workload IS NOT NULL"
    )
    for workload, version, size, form, parameters in rows_of(connection, out, sql):
        pairs = tuple((name, value) for name, value in read_json(str(parameters)))
        key = Work(str(workload), int(str(version)), str(size), str(form), pairs).key
        connection.execute(
            f"UPDATE {CATALOG}.main.cases SET work_key = ? WHERE workload = ? AND workload_version = ?"
            " AND size = ? AND form = ? AND parameters_json = ?",
            [key, workload, version, size, form, parameters],
        )
