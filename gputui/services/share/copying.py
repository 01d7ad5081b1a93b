"""Copies runs into a new result file: of each column what `Column.sharing` says, else nothing."""

from __future__ import annotations

import json
import re
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputui.model.absent import Missing
from gputui.model.plan import Work
from gputui.model.result import RunSummary
from gputui.services.runs.process import uuid7
from gputui.services.share import vocabulary
from gputui.store.opening import CATALOG, rows_of
from gputui.store.rows import LAYERS
from gputui.store.schema import RUN_TABLES, Column, Table
from gputui.store.writing import explaining, opened_for_writing
from gputui.worker.foreign_json import read_json

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

GONE = "not shared"
DETAIL = "detail"
KNOWN: Mapping[str, Callable[[str], str | None]] = {
    "word": partial(vocabulary.word, "word"),
    "words": vocabulary.words,
    "phrase": vocabulary.phrase,
    "release": vocabulary.release,
    "device": vocabulary.device,
    "workload": partial(vocabulary.word, "workload"),
    "shapes": vocabulary.shapes,
    "operator": vocabulary.operator,
    "kernel": vocabulary.kernel,
    "message": vocabulary.message,
    "event": vocabulary.message,
}
"""What may be shared of a text. Of those that are not listed nothing may, but for JSON."""
KEPT_BY = {
    "label": "label",
    "price": "price",
    "id": "ids",
    **dict.fromkeys(("message", "event", "absent"), "messages"),
    **dict.fromkeys(("name", "workload", "parameters", "shapes", "operator", "kernel", "line"), "names"),
}
"""The option of `gputui share` that keeps all of a text."""
CELLS = {
    "kept": "s.{0}",
    "clock": "if(s.{0} IS NULL, NULL, greatest(s.{0} - r.started_ns, 0))",
    "counter": "s.{0} - min(s.{0}) OVER (PARTITION BY s.run_id, s.device_index)",
    "zero": "0",
    "now": "epoch_us(get_current_timestamp())",
    "empty": "''",
    "": "NULL",
}
"""SQL of what needs no vocabulary. A copy that kept clocks and counters would say how long the box was up."""


class Replacements:
    """New ids and names, each the same wherever the old one stood; and what was replaced."""

    def __init__(self, keep: Collection[str] = ()) -> None:
        self.keep = keep
        """Options of KEPT_BY: what is shared besides what is harmless."""
        self.replaced: defaultdict[str, set[str]] = defaultdict(set)
        """Texts by the option that would have kept them, or DETAIL."""
        self._new: dict[tuple[str, str], str] = {}
        self._numbers: Counter[str] = Counter()

    def shared(self, column: Column, text: str) -> str | None:
        """What a copy has for a text of this column; None for NULL. Empty texts stay."""
        option, known = KEPT_BY.get(column.sharing, DETAIL), KNOWN.get(column.sharing)
        if not text or option in self.keep:
            return text
        match column.sharing:
            case "layers":
                return _layers(text)
            case "parameters":
                return self._parameters(text)
            case "absent":
                found: str | None = _absent(text)
            case "name":
                found = vocabulary.word(column.name, text) or self._numbered(column.name, text)
            case _:
                found = known(text) if known is not None else None
                if found is None:
                    found = self._instead(column, text)
                elif column.sharing in ("operator", "kernel"):
                    found = self._told_apart(found, text)
        if found != text:
            self.replaced[option].add(text)
        return found

    def _instead(self, column: Column, text: str) -> str | None:
        """What stands for a text of which nothing may be shared."""
        match column.sharing:
            case "message":
                return GONE
            case "event":
                return None
            case "label" | "line":
                return ""
            case "id":
                return self._new.setdefault(("id", text), secrets.token_hex(6))
            case "workload":
                return self._program(text)
            case "device" | "operator" | "kernel" as kind:
                return self._numbered(kind, text)
        return self._numbered(column.name, text)

    def _numbered(self, kind: str, text: str) -> str:
        """`kernel-3`."""
        if (kind, text) not in self._new:
            self._numbers[kind] += 1
            self._new[kind, text] = f"{kind}-{self._numbers[kind]}"
        return self._new[kind, text]

    def _told_apart(self, known: str, text: str) -> str:
        """A name, or what is known of it; different ones of which the same is known get numbers."""
        found = known if known == text else self._numbered(known, text)
        return known if found == f"{known}-1" else found

    def _program(self, text: str) -> str:
        """`step:program-1`, `serve:profile-1 8 users`: loads of one profile still belong together."""
        kind, colon, name = text.partition(":")
        if kind == "serve" and (load := re.fullmatch(r"(.*?) ?(\d[\d.e+-]* (?:users?|req/s)|limit)", name)):
            return f"serve:{self._numbered('profile', load[1])} {load[2]}"
        if colon and kind in ("command", "record", "step", "trace", "serve"):
            return f"{kind}:{self._numbered('program', name)}"
        return self._numbered("workload", text)

    def _parameters(self, text: str) -> str:
        """Numbers, and names and texts of gputui's own works."""
        pairs = []
        for name, value in _json(text):
            if isinstance(value, str) and vocabulary.word("value", value) is None:
                self.replaced["names"].add(value)
                value = self._numbered("model" if name == "model" else "value", value)
            if vocabulary.word("parameter", name) is None:
                self.replaced["names"].add(name)
                name = self._numbered("parameter", name)
            pairs.append([name, value])
        return json.dumps(sorted(pairs, key=lambda pair: pair[0]))


def _json(text: str) -> Any:  # Any: what the columns hold was checked when they were read
    """The JSON of a column; what is none is empty."""
    try:
        return read_json(text)
    except ValueError:
        return ()


def _layers(text: str) -> str:
    """Known layers; the names of their signals tell of files and variables, and are left out."""
    found = ((layer, name) for layer, name, _ in _json(text) if layer in LAYERS)
    return json.dumps([[layer, name, []] for layer, name in found if vocabulary.phrase(name) == name])


_COLUMNS = frozenset(column.name for table in RUN_TABLES for column in table.columns)


def _absent(text: str) -> str:
    """Reasons in gputui's words, by column."""
    found = dict(_json(text))
    return json.dumps({name: vocabulary.message(found[name]) or GONE for name in found if name in _COLUMNS})


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


def shared_copy(picked: Mapping[Path, Sequence[RunSummary]], out: Path, names: Replacements) -> Counter[str]:
    """Copy runs of files into `out`, which is new; returns how many rows of each kind of COUNTED are in it.

    The caller has read these runs, so that what they hold is valid. Raises NotStored.
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
                counts = (f"(SELECT count(*) FROM {CATALOG}.main.{rows})" for rows in COUNTED.values())
                (row,) = connection.execute(f"SELECT {', '.join(counts)}").fetchall()
            connection.execute("COMMIT")
    return Counter(dict(zip(COUNTED, row, strict=True)))


def _copy_runs(
    connection: DuckDBPyConnection,
    catalog: str,
    path: Path,
    picked: Sequence[RunSummary],
    names: Replacements,
) -> None:
    """Those of one file, table by table."""
    sql = f"SELECT run_id::VARCHAR, started_ns FROM {catalog}.main.runs"
    clocks = {str(run_id): started_ns for run_id, started_ns in rows_of(connection, path, sql)}
    connection.execute("DELETE FROM new_runs")
    for run in picked:
        new = run.run_id
        if "ids" not in names.keep:
            new = uuid7(run.started_utc_us // 1000, secrets.randbits(_ID_BITS))
            names.replaced["ids"].add(run.run_id)
        if "price" not in names.keep and not isinstance(run.price, Missing):
            names.replaced["price"].add(run.run_id)
        connection.execute(
            "INSERT INTO new_runs VALUES (?::UUID, ?::UUID, ?)",
            [run.run_id, new, clocks.get(run.run_id) or 0],
        )
    sql = f"SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = '{catalog}'"
    there = {(str(table), str(column)) for table, column in rows_of(connection, path, sql)}
    for table in RUN_TABLES:
        if (table.name, "run_id") in there and (table.name != "prices" or "price" in names.keep):
            columns = [column for column in table.columns if (table.name, column.name) in there]
            _copy(connection, catalog, path, table, columns, names)


def _copy(
    connection: DuckDBPyConnection,
    catalog: str,
    path: Path,
    table: Table,
    there: Sequence[Column],
    names: Replacements,
) -> None:
    """The columns of one table that the file has, after noting what becomes of each of their texts."""
    source, cells = f"{catalog}.main.{table.name}", {"run_id": "r.new_id"}
    connection.execute("DELETE FROM new_texts")
    for column in there[1:]:
        name = column.name
        if column.sharing in CELLS:
            cells[name] = CELLS[column.sharing].format(name)
            continue
        sql = (
            f"SELECT DISTINCT {name} FROM {source} SEMI JOIN new_runs ON run_id = old_id"
            f" WHERE {name} IS NOT NULL ORDER BY {name}"
        )
        old = [str(text) for (text,) in rows_of(connection, path, sql, what=source)]
        connection.execute(
            "INSERT INTO new_texts SELECT ?, unnest(?::VARCHAR[]), unnest(?::VARCHAR[])",
            [name, old, [names.shared(column, text) for text in old]],
        )
        cells[name] = f"(SELECT new FROM new_texts WHERE place = '{name}' AND old = s.{name})"
    connection.execute(
        f"INSERT INTO {CATALOG}.main.{table.name} ({', '.join(cells)}) SELECT {', '.join(cells.values())}"
        f" FROM {source} AS s JOIN new_runs AS r ON s.run_id = r.old_id ORDER BY s.rowid"
    )


def rekey(connection: DuckDBPyConnection, out: Path) -> None:
    """Work keys of what the works are called now, so that they are equal if and only if the work is."""
    columns = ("workload", "workload_version", "size", "form", "parameters_json")
    sql = f"SELECT DISTINCT {', '.join(columns)} FROM {CATALOG}.main.cases"
    for name, version, size, form, parameters in rows_of(connection, out, sql):
        pairs = tuple((name, value) for name, value in read_json(str(parameters)))
        connection.execute(
            f"UPDATE {CATALOG}.main.cases SET work_key = ? WHERE ({', '.join(columns)}) = (?, ?, ?, ?, ?)",
            [Work(name, version, size, form, pairs).key, name, version, size, form, parameters],
        )
