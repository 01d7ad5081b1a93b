"""Result files of a few MB that would take gigabytes of memory, or minutes, if they were read whole."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
from journals import GPU_MACHINE, RUN_ID, make_journal

from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.schema import TABLE_BY_NAME
from gputui.store.writing import store_run


@dataclass(frozen=True, slots=True)
class Bomb:
    """What is done to a sound file."""

    name: str
    statements: tuple[str, ...]
    refused_by: tuple[str, ...] = ("show", "compare")
    """Commands that read what is too large; the others may also refuse the file."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended that was given such a file."""

    status: int
    seconds: float
    peak_mib: int
    message: str


def _copies(table: str, count: int, cells: Mapping[str, str], where: str = "true") -> str:
    """SQL that inserts so many copies of the first row of a table, with these columns replaced by `i`."""
    names = TABLE_BY_NAME[table].column_names
    chosen = ", ".join(f"{cells[name]} AS {name}" if name in cells else f'"{name}"' for name in names)
    listed = ", ".join(f'"{name}"' for name in names)
    return (
        f"INSERT INTO {table} ({listed}) SELECT {chosen}"
        f" FROM (SELECT * FROM {table} WHERE {where} LIMIT 1), range({count}) AS numbers(i)"
    )


def _rows(table: str, count: int, cells: Mapping[str, str]) -> str:
    """SQL that inserts so many rows into a table that may be empty; columns without a cell are NULL."""
    named = {"run_id": f"'{RUN_ID}'::UUID", **cells}
    return (
        f"INSERT INTO {table} ({', '.join(named)}) SELECT {', '.join(named.values())}"
        f" FROM range({count}) AS numbers(i)"
    )


_NEW_ID = "('0194b5a1-0000-7000-8000-' || lpad(to_hex(i + 4096), 12, '0'))::UUID"
_BLOCKS = {"block_index": "i", "start_ns": "start_ns + i * 1000000"}
_PASS = (
    f"INSERT INTO profiled_passes VALUES ('{RUN_ID}', 0, 0, true, '', 1, 3000000, 3000000, 0, 0, '', 0,"
    " 0, NULL, NULL)"
)
_ALL = ("runs", "compare")
"""`show` begins with the list of runs, as `runs` does."""


def bombs(share: float = 1.0) -> Iterator[Bomb]:
    """More than twenty, of different kinds; `share` of the rows, where these are what is too much."""

    def some(rows: int, least: int = 0) -> int:
        return max(int(share * rows), least)

    long = "repeat('A', 20000)"
    yield Bomb(
        "50 k events of 20 kB",
        (_rows("events", some(50_000), {"level": "'info'", "message": long}),),
        ("show",),
    )
    yield Bomb(
        "6 M short events",
        (_rows("events", some(6_000_000), {"level": "'info'", "message": "i"}),),
        ("show",),
    )
    yield Bomb("a label of 200 MB", ("UPDATE runs SET label = repeat('A', 200000000)",), _ALL)
    yield Bomb("a label of 200 kB", ("UPDATE runs SET label = repeat('A', 200000)",), _ALL)
    yield Bomb("a reason of 30 MB in a case", ("UPDATE cases SET reason = repeat('A', 30000000)",))
    yield Bomb(
        "10 k runs with reasons of 60 kB",
        (_copies("runs", some(10_000), {"run_id": _NEW_ID, "status_reason": "repeat('A', 60000)"}),),
        _ALL,
    )
    yield Bomb("4.5 M blocks in a launch", (_copies("blocks", some(4_500_000), _BLOCKS),))
    yield Bomb(
        "4.5 M blocks in a thousand runs",
        (
            *(
                _copies(t, 1000, {"run_id": _NEW_ID})
                for t in ("runs", "machines", "cases", "launches", "measurements")
            ),
            _copies(
                "blocks",
                some(4_500_000, 1_350_000),
                {**_BLOCKS, "run_id": _NEW_ID.replace("(i +", "(i % 1000 +")},
            ),
        ),
        ("compare",),
    )
    yield Bomb("2 M runs", (_copies("runs", some(2_000_000), {"run_id": _NEW_ID}),), _ALL)
    yield Bomb("1 M cases", (_copies("cases", some(1_000_000, 700_000), {"case_id": "i + 10"}),))
    yield Bomb("3 M launches", (_copies("launches", some(3_000_000, 2_000_000), {"launch_id": "i + 10"}),))
    yield Bomb("3 M measurements", (_copies("measurements", some(3_000_000), {"launch_id": "i + 10"}),))
    yield Bomb(
        "3 M figures",
        (
            _rows(
                "figures",
                some(3_000_000),
                {
                    "launch_id": "0",
                    "case_id": "0",
                    "figure_index": "i",
                    "key": "'k'",
                    "title": "'t'",
                    "unit": "'s'",
                    "better": "'less'",
                    "combine": "'median'",
                    "value": "1.0",
                    "observations": "1",
                },
            ),
        ),
    )
    yield Bomb(
        "15 k operators with shapes of 50 kB",
        (
            _PASS,
            _rows(
                "operators",
                some(15_000),
                {
                    "case_id": "0",
                    "launch_id": "0",
                    "phase": "'forward'",
                    "category": "'gemm'",
                    "operator": "'o' || i",
                    "shapes": "repeat('B', 50000)",
                    "dtypes": "'f'",
                    "calls": "1",
                    "events": "1",
                    "time_ns": "1",
                    "cpu_ns": "1",
                    "kernels": "1",
                },
            ),
        ),
    )
    yield Bomb(
        "3 M kernels",
        (
            _PASS,
            _rows(
                "kernels",
                some(3_000_000),
                {
                    "case_id": "0",
                    "launch_id": "0",
                    "name": "'k' || i",
                    "time_class": "'compute'",
                    "operator": "'o'",
                    "calls": "1",
                    "time_ns": "1",
                    "longest_ns": "1",
                },
            ),
        ),
    )
    yield Bomb(
        "3 M pieces of a breakdown",
        (
            _PASS,
            _rows(
                "breakdown",
                some(3_000_000),
                {
                    "case_id": "0",
                    "launch_id": "0",
                    "phase": "'forward'",
                    "time_class": "'compute'",
                    "cause": "''",
                    "time_ns": "1",
                },
            ),
        ),
    )
    yield Bomb(
        "2 M devices", (_copies("devices", some(2_000_000), {"device_index": "(i % 30000)::SMALLINT"}),), _ALL
    )
    yield Bomb(
        "5 M identities",
        (_rows("identities", some(5_000_000, 1_500_000), {"kind": "'boot'", "id": "i"}),),
        _ALL,
    )
    yield Bomb(
        "3 M prices",
        (
            _rows(
                "prices",
                some(3_000_000),
                {
                    "usd_per_hour": "1.0",
                    "gpu_count": "1.0",
                    "kind": "'stated'",
                    "provider": "''",
                    "instance_type": "''",
                    "region": "''",
                    "list_date": "''",
                },
            ),
        ),
        _ALL,
    )
    yield Bomb("2 M machines", (_copies("machines", some(2_000_000), {}),), _ALL)
    yield Bomb(
        "12 M rows of telemetry",
        (
            _copies(
                "telemetry", some(12_000_000, 12_000_000), {"t_us": "t_us + i * 1000", "power_w": "random()"}
            ),
        ),
        ("show",),
    )
    yield Bomb(
        "telemetry of 5 M devices and instants",
        (
            _copies(
                "telemetry",
                some(5_000_000),
                {"device_index": "(i % 30000)::SMALLINT", "t_us": "t_us + i * 1000"},
            ),
        ),
        (),
    )
    yield Bomb(
        "3 M requests",
        (
            _rows(
                "load_steps",
                1,
                {
                    "case_id": "0",
                    "launch_id": "0",
                    "step_index": "0",
                    "load": "'closed'",
                    "users": "1",
                    "window_start_ns": "0",
                    "window_end_ns": "1000000",
                    "is_overloaded": "false",
                    "requests": "1",
                    "requests_counted": "1",
                    "output_tokens": "1.0",
                    "in_flight_max": "1",
                    "client_cpu_share": "0.1",
                    "client": "''",
                    "connections_late": "0",
                    "resent": "0",
                },
            ),
            _rows(
                "requests",
                some(3_000_000),
                {
                    "case_id": "0",
                    "launch_id": "0",
                    "step_index": "0",
                    "request_index": "i",
                    "counts": "true",
                    "due_ns": "i",
                    "in_flight": "0",
                    "outcome": "'ok'",
                    "reason": "''",
                    "retry_after": "''",
                    "output_events": "1",
                    "finish_reason": "'stop'",
                    "prompt_bytes": "1",
                    "prompt_hash": "'h'",
                    "answer_bytes": "1",
                    "answer_hash": "'h'",
                },
            ),
        ),
        ("show",),
    )
    yield Bomb(
        "2 M rows of meta",
        (f"INSERT INTO meta SELECT 'k' || i, 'v' FROM range({some(2_000_000)}) AS numbers(i)",),
        _ALL,
    )
    yield Bomb(
        "layers of 20 MB of JSON",
        ('UPDATE runs SET layers_json = \'[\' || repeat(\'["a","b",[]],\', 1500000) || \'["a","b",[]]]\'',),
        _ALL,
    )
    yield Bomb(
        "parameters that nest 30,000 deep",
        ("UPDATE cases SET parameters_json = repeat('[', 30000) || repeat(']', 30000)",),
    )
    yield Bomb(
        "views that nest 60 deep, each of two of the next",
        (
            "CREATE VIEW v0 AS SELECT 1 AS x",
            *(
                f"CREATE VIEW v{n} AS SELECT * FROM v{n - 1} UNION ALL SELECT * FROM v{n - 1}"
                for n in range(1, 14)
            ),
            *(f"CREATE OR REPLACE VIEW w{n} AS SELECT 1 AS x" for n in range(60)),
            *(f"CREATE OR REPLACE VIEW w{n} AS SELECT a.x FROM w{n - 1} a, w{n - 1} b" for n in range(1, 12)),
        ),
        (),
    )
    yield Bomb(
        "a view in place of the blocks",
        ("DROP TABLE blocks", "CREATE VIEW blocks AS SELECT * FROM range(100000000000) AS t(run_id)"),
        _ALL,
    )
    yield Bomb(
        "a macro in place of a function",
        ("CREATE MACRO strlen(x) AS (SELECT count(*) FROM range(1000000000000))",),
        _ALL,
    )
    yield Bomb(
        "a table of 60,000 columns",
        ("CREATE TABLE wide (" + ", ".join(f"c{n} INT" for n in range(60_000)) + ")",),
        _ALL,
    )
    yield Bomb("20,000 tables", tuple(f"CREATE TABLE t{n} (x INT)" for n in range(some(20_000))), _ALL)
    yield Bomb("a default of 30 MB", ("CREATE TABLE d (x VARCHAR DEFAULT '" + "A" * 30_000_000 + "')",), _ALL)
    yield Bomb("a table whose name has 10 MB", (f'CREATE TABLE "{"A" * 10_000_000}" (x INT)',), _ALL)


def sound_file(place: Path) -> Path:
    """A file that bombs are made of."""
    db = place / "sound.db"
    run_dir = make_journal(place / "journal", machine=GPU_MACHINE)
    store_run(db, read_journal(run_dir), read_telemetry(run_dir))
    return db


def make_bomb(bomb: Bomb, sound: Path, db: Path) -> Path:
    """Write a bomb to `db`."""
    db.write_bytes(sound.read_bytes())
    with duckdb.connect(str(db), config={"threads": 2, "memory_limit": "2GB"}) as connection:
        connection.execute("BEGIN")
        for statement in bomb.statements:
            connection.execute(statement)
        connection.execute("COMMIT")
    return db


_MEASURED = """
import json, os, sys, time
import duckdb
import gputui.cli.compare, gputui.cli.show, gputui.services.results.run_forms
from gputui.cli import main

for line in sys.stdin:
    place, words = json.loads(line)
    begun = time.monotonic()
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(place + "/message", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        sys.exit(main(words))
    _, status, used = os.wait4(child, 0)
    message = open(place + "/message").read().strip()
    ended = os.waitstatus_to_exitcode(status), time.monotonic() - begun, used.ru_maxrss // 1024, message
    print(json.dumps(ended), flush=True)
"""
"""A small process, of which each command is a fork: its peak memory begins with what all import."""


class Commands:
    """Runs `gputui` with words, again and again, and measures each; to be used as a context."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _MEASURED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Commands:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def outcomes(self, commands: Sequence[Sequence[str]], place: Path) -> list[Outcome]:
        """Of each of these, one after the other."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        found = []
        for words in commands:
            print(json.dumps((str(place), words)), file=self._process.stdin, flush=True)
            found.append(Outcome(*json.loads(self._process.stdout.readline())))
        return found
