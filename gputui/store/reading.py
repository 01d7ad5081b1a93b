"""Reads runs from a result file, even a foreign one."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from itertools import groupby, islice
from operator import attrgetter, itemgetter
from pathlib import Path
from sys import getsizeof
from typing import (
    TYPE_CHECKING,
    Any,
    TypeVar,
)  # Any: cells whose types were checked with the file, and keys of rows

from gputui.errors import GputuiError, clean_text
from gputui.metrics import STORED
from gputui.model.absent import Missing
from gputui.model.journal import Block, ProfiledPass
from gputui.model.result import CaseResult, Run, RunSummary, TimeSeries
from gputui.model.serving import LoadStep, RequestRow, Requests, ServerFound, ServingRecords
from gputui.model.telemetry import (
    HOST,
    HW_POWER_BRAKE,
    HW_SLOWDOWN,
    HW_THERMAL,
    POWER_CAP,
    SW_THERMAL,
    LaunchPower,
)
from gputui.store.locking import Locked
from gputui.store.opening import (
    CELL_BYTES,
    MOST_BYTES,
    NUMBERS_AT_A_TIME,
    TEXT_MOST_BYTES,
    TEXTS_AT_A_TIME,
    Checked,
    TooLarge,
    attach_to_read,
    check_are_ours,
    connect_for,
    expanded,
    is_generated,
    limited,
    open_read_only,
    open_together,
    rows_of,
    too_large,
    whole_texts,
)
from gputui.store.rows import (
    BLOCK_COLUMNS,
    PROFILED_PARTS,
    RUN_COLUMNS,
    Cell,
    Row,
    case_from,
    profiled_from,
    summary_from,
)
from gputui.store.schema import TABLE_BY_NAME
from gputui.store.selecting import with_common_ids
from gputui.store.strict import LATEST_US, NotValid, converted, strict

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SLOWED_BITS = HW_SLOWDOWN | SW_THERMAL | HW_THERMAL | HW_POWER_BRAKE

COLD_C = 5.0
"""A cold GPU clocks higher for a while; sensors report whole degrees, and steady work moves them by 1 or
2."""

_COMBINED_SQL = {
    "mean": "avg(CASE WHEN isfinite({0}) THEN {0} END)",
    "last": "arg_max({0}, t_us)",
    "any": "bit_or({0})",
}
"""A piece of time, by how its metric combines."""
_SEEN_SQL = f"""
    WITH g AS ({{samples}}), b AS ({{blocks}}), c AS ({{cases}}),
        timed AS (
            SELECT b.place, b.run_id, b.case_id, b.launch_id, coalesce(c.device_index, {HOST}) AS device,
                b.t_us AS from_us, b.t_us + b.wall_ns // 1000 AS to_us
            FROM b JOIN c USING (place, run_id, case_id)),
        t AS (SELECT * FROM g SEMI JOIN timed USING (place, run_id, device)),
        seen AS (
            SELECT t.*, timed.case_id, timed.launch_id
            FROM t ASOF JOIN timed ON t.place = timed.place AND t.run_id = timed.run_id
                AND t.device = timed.device AND t.t_us >= timed.from_us
            WHERE t.t_us <= timed.to_us)"""
"""Samples of the devices of some cases, and those `seen` while the case was timed. On a device blocks follow
one another, so a sample belongs to the last that had begun, which is found in one pass; comparing all pairs
takes seconds for ten thousand blocks."""
_Sampled = tuple[tuple[str, tuple[str, ...], str], ...]
"""Tables of samples, their columns, and what is selected of these."""
_CLOCKS: _Sampled = (
    (
        "telemetry",
        ("device_index", "t_us", "sm_clock_mhz", "temperature_c", "throttle_bits", "compute_process_count"),
        """device_index AS device, t_us, sm_clock_mhz AS clock_mhz, temperature_c, throttle_bits,
        compute_process_count""",
    ),
    (
        "host_telemetry",
        ("t_us", "cpu_clock_mhz"),
        f"""{HOST} AS device, t_us, cpu_clock_mhz AS clock_mhz, NULL AS temperature_c, NULL AS throttle_bits,
        NULL AS compute_process_count""",
    ),
)
_CONDITIONS_SQL = f""",
        most AS (SELECT place, run_id, device, max(clock_mhz) AS mhz FROM t GROUP BY ALL),
        warm AS (
            SELECT *, max(temperature_c) OVER (PARTITION BY place, run_id, case_id) AS warmest_c FROM seen)
    SELECT place, run_id::VARCHAR, case_id, count(*), median(clock_mhz), any_value(most.mhz),
        avg((throttle_bits & {SLOWED_BITS} <> 0)::INT), avg((throttle_bits & {POWER_CAP} <> 0)::INT),
        avg((temperature_c < warmest_c - {COLD_C})::INT), avg((compute_process_count > 1)::INT)
    FROM warm JOIN most USING (place, run_id, device)
    GROUP BY place, run_id, case_id ORDER BY case_id"""
_WATTS: _Sampled = (
    ("telemetry", ("device_index", "t_us", "power_w"), "device_index AS device, t_us, power_w"),
)
_POWERS_SQL = """
    SELECT place, run_id::VARCHAR, case_id, launch_id, count(*), avg(power_w)
    FROM seen WHERE isfinite(power_w) AND power_w >= 0
    GROUP BY place, run_id, case_id, launch_id ORDER BY case_id, launch_id"""
_SHORTEST_PIECE_US = 100_000
_MOST_HELD_BYTES = 3 * MOST_BYTES
"""Of what is read of one file and not dropped."""
_RUNS_AT_A_TIME = 100
"""Whose rows are held before they are made into values, which are a fifth as large."""
_BLOCKS_AT_A_TIME = 50_000
_ROWS_CONVERTED = 2000
"""At a time, where there are many: as values they take a third of the memory."""
_MOST_DEVICES = 256


@dataclass(frozen=True, slots=True)
class DeviceTelemetry:
    """One GPU over a whole run."""

    device_index: int
    samples: int
    power_median_w: float | Missing
    power_max_w: float | Missing
    temperature_median_c: float | Missing
    temperature_max_c: float | Missing
    sm_clock_min_mhz: float | Missing
    sm_clock_median_mhz: float | Missing
    slowed_share: float | Missing
    """Share of the samples with a reason of SLOWED_BITS, among those with reasons; 0 to 1."""
    power_capped_share: float | Missing
    busy_mean_pct: float | Missing


@dataclass(frozen=True, slots=True)
class TelemetrySummary:
    """The machine over a whole run."""

    devices: tuple[DeviceTelemetry, ...]
    """In order of their indexes, without those that have no samples."""
    host_samples: int
    cpu_steal_mean_pct: float | Missing
    """100 per logical CPU."""
    cpu_busy_mean_pct: float | Missing


@dataclass(frozen=True, slots=True)
class TelemetrySeries:
    """One device in equal pieces of time; pieces without a reading are left out."""

    device_index: int
    """HOST for the host."""
    first_us: int
    """Its first reading; times are UTC epoch microseconds."""
    t_us: array[int]
    """The last reading of each piece, ascending."""
    columns: Mapping[str, array[float]]
    """By metric key, one value per piece, combined as the metric says. NaN if not measured."""

    def of(self, key: str, since_us: int | None = None) -> TimeSeries:
        """One metric, in seconds since its first reading or since an instant."""
        since_us = self.first_us if since_us is None else since_us
        return TimeSeries(
            [(t_us - since_us) * 1e-6 for t_us in self.t_us],
            self.columns.get(key) or [math.nan] * len(self.t_us),
        )


@dataclass(frozen=True, slots=True)
class CaseConditions:
    """What its device did while a case was timed; samples between its blocks do not count."""

    case_id: int
    samples: int
    clock_median_mhz: float | Missing
    """For a GPU its SM clock, for a CPU case the mean of the host's logical CPUs."""
    clock_most_mhz: float | Missing
    """The highest of the same device in the whole run."""
    slowed_share: float | Missing
    """As in DeviceTelemetry; Missing for a CPU, like the next three."""
    power_capped_share: float | Missing
    cold_share: float | Missing
    """Share of the samples more than COLD_C below the warmest of them: the device was still warming up."""
    shared_share: float | Missing
    """Share of the samples with more than one compute process, among those that counted processes."""


@dataclass(frozen=True, slots=True)
class MeasuredSpan:
    """When one launch timed a case, from the first block to the end of the last."""

    case_id: int
    launch_id: int
    first_utc_us: int
    last_utc_us: int


LaunchSeries = tuple[MeasuredSpan, tuple[TelemetrySeries, ...]]
"""The machine from the first block of a case to its last in one launch: each device that was sampled then."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """Something the user should know about a run."""

    t_us: int | None
    """UTC epoch microseconds; None if it has no time."""
    level: str
    message: str


@dataclass(frozen=True, slots=True)
class FailedLaunch:
    """A launch that failed, in which a case failed, or whose worker did not exit cleanly."""

    launch_id: int
    outcome: str
    reason: str
    case_ids: tuple[int, ...]


_Kind = TypeVar("_Kind")
_Union = tuple[str, tuple[object, ...]]
"""SQL for the rows of a table of several files, empty if there are none, and its parameters."""


class ResultFile:
    """An open result file. For one thread; its results outlive it."""

    def __init__(self, opened: Checked, as_stored: bool = False) -> None:
        self.opened = opened
        self.db = opened.db
        self.warnings = warnings_of(opened.db)
        """What the user should know about this file, one sentence each."""
        self.held_bytes = 0
        """Of what was read, until the caller says that it keeps nothing of it."""
        self._clean = str if as_stored else clean_text
        self._summaries: tuple[RunSummary, ...] | None = None

    def interrupt(self) -> None:
        """Interrupt the query that another thread waits for, if any; it raises there."""
        self.opened.connection.interrupt()

    def summaries(self) -> tuple[RunSummary, ...]:
        """All runs, newest first; `machine_id` is equal for those of one box.

        Raises GputuiError if a row holds an impossible value.
        """
        if self._summaries is None:
            self._summaries = summaries_of([self])[0]
        return self._summaries

    def summary(self, run_id: str) -> RunSummary:
        """One run without its cases. Raises GputuiError if the file does not contain it."""
        found = next((summary for summary in self.summaries() if summary.run_id == run_id), None)
        if found is None:
            raise GputuiError(f"{self.db} has no run {clean_text(run_id)[:60]}", f"gputui runs {self.db}")
        return found

    def has_measured(self) -> dict[str, bool]:
        """By run, whether it measured any of the cases that it tried; without runs that tried none."""
        sql = f"SELECT run_id::VARCHAR, bool_or(outcome = 'ok') FROM {self._table('cases')} GROUP BY run_id"
        return {run_id: has_some is True for run_id, has_some in self._rows(sql)}

    def measured_summaries(self) -> tuple[RunSummary, ...]:
        """As `summaries`, but only runs that measured a case."""
        measured = self.has_measured()
        return tuple(summary for summary in self.summaries() if measured.get(summary.run_id))

    def origins(self) -> dict[str, str]:
        """The file or command that each run was stored from, the latest first; empty for this box."""
        rows = self._fetch("runs", None, columns=("run_id", "stored_us", "imported_from"))
        rows.sort(key=_key_of("stored_us", "run_id"), reverse=True)
        return {str(row["run_id"]): str(row["imported_from"] or "") for row in rows}

    def run(self, run_id: str) -> Run:
        """One run with all its cases and blocks. Raises GputuiError if the file does not contain it."""
        return runs_of([self], [[self.summary(run_id)]])[0][0]

    def profiled(self, run_id: str) -> dict[int, ProfiledPass]:
        """The profiled passes of a run by case, including those without a result."""
        return passes_of([self], [(run_id,)])[0].get(run_id, {})

    def serving(self, run_id: str) -> ServingRecords:
        """The loads that a run offered to a server, and every request; empty for other runs."""
        with self.valid(f"loads of run {run_id}"):
            servers = [strict(row, ServerFound) for row in self._fetch("servers", run_id, order="launch_id")]
            steps = [strict(row, LoadStep) for row in self._fetch("load_steps", run_id, order="launch_id")]
            found: dict[tuple[Any, ...], list[RequestRow]] = {}
            every = _each_row([self], "requests", [(run_id,)])
            while some := [row for _, row in islice(every, _ROWS_CONVERTED)]:
                self.opened.deadline.left_s()
                for row, one in zip(some, converted(some, tuple[RequestRow, ...]), strict=True):
                    found.setdefault((row["launch_id"], row["case_id"], row["step_index"]), []).append(one)
            requests = [
                strict(
                    {
                        "launch_id": launch,
                        "case_id": case,
                        "step_index": step,
                        "rows": sorted(rows, key=attrgetter("request_index")),
                    },
                    Requests,
                )
                for (launch, case, step), rows in found.items()
            ]
            powers = self._box_powers(run_id) if steps else ()
        return ServingRecords(tuple(servers), tuple(steps), tuple(requests), powers)

    def events(self, run_id: str) -> tuple[StoredEvent, ...]:
        """What the user should know about a run, oldest first."""
        with self.valid(f"events of run {run_id}"):
            return tuple(strict(row, StoredEvent) for row in self._fetch("events", run_id, order="t_us"))

    def failed_launches(self, run_id: str) -> tuple[FailedLaunch, ...]:
        """Those whose worker's log may say more, in order."""
        measured = _grouped([self], "measurements", [(run_id,)], "launch_id", order="case_id")
        found: list[FailedLaunch] = []
        for row in self._fetch("launches", run_id, order="launch_id"):
            cases = measured.get((0, row["launch_id"]), [])
            failed = [case for case in cases if case["outcome"] == "failed"]
            if failed and row["outcome"] == "ok":
                row |= {"outcome": "failed", "reason": failed[0]["reason"]}
            if row["outcome"] == "failed" or row["exit_status"]:
                with self.valid(f"launches of run {run_id}"):
                    found.append(
                        strict({**row, "case_ids": [case["case_id"] for case in cases]}, FailedLaunch)
                    )
        return tuple(found)

    def telemetry_summary(self, run_id: str) -> TelemetrySummary:
        """The machine over a whole run; one pass over its telemetry."""
        gpu_sql = f"""
            SELECT device_index, count(*), median(power_w), max(power_w),
                median(temperature_c), max(temperature_c), min(sm_clock_mhz), median(sm_clock_mhz),
                avg((throttle_bits & {SLOWED_BITS} <> 0)::INT),
                avg((throttle_bits & {POWER_CAP} <> 0)::INT), avg(sm_busy_pct)
            FROM {self._table("telemetry")} WHERE run_id = TRY_CAST(? AS UUID)
            GROUP BY device_index ORDER BY device_index"""
        host_sql = f"""
            SELECT count(*), avg(cpu_steal_pct), avg(cpu_busy_pct)
            FROM {self._table("host_telemetry")} WHERE run_id = TRY_CAST(? AS UUID)"""
        with self.valid(f"telemetry of run {run_id}"):
            devices = [_named(DeviceTelemetry, row) for row in self._rows(gpu_sql, (run_id,))]
            return _made(TelemetrySummary, (devices, *self._rows(host_sql, (run_id,))[0]))

    def telemetry_series(
        self, run_id: str, pieces: int, within_us: tuple[int, int] | None = None
    ) -> tuple[TelemetrySeries, ...]:
        """The devices, the host first, in at most this many pieces of at least a tenth of a second.

        `within_us`: only from one UTC epoch microsecond to another; devices without a reading there are left
        out. Memory only depends on the number of pieces. Raises GputuiError for impossible times.
        """
        span = self._telemetry_span(run_id) if within_us is None else within_us
        return () if span is None else self._series_between(run_id, span, pieces)

    def launch_series(
        self, run_id: str, case_id: int, launch_ids: Collection[int], pieces: int
    ) -> tuple[LaunchSeries, ...]:
        """The machine while a case was timed in these launches, in pieces as in `telemetry_series`."""
        return tuple(
            (span, self._series_between(run_id, (span.first_utc_us, span.last_utc_us), pieces))
            for span in sorted(self.measured_spans(run_id), key=attrgetter("launch_id"))
            if span.case_id == case_id and span.launch_id in launch_ids
        )

    def _series_between(self, run_id: str, span: tuple[int, int], pieces: int) -> tuple[TelemetrySeries, ...]:
        found: list[TelemetrySeries] = []
        first_us, last_us = span
        piece_us = max(_SHORTEST_PIECE_US, -(-(last_us - first_us + 1) // pieces))
        for scope, table, device in (
            ("host", "host_telemetry", str(HOST)),
            ("gpu", "telemetry", "device_index"),
        ):
            metrics = tuple(m for m in STORED if m.scope == scope)
            chosen = ", ".join(
                _COMBINED_SQL[m.combine].format(m.stored.key)
                if (table, m.stored.key) in self.opened.columns
                else "NULL"
                for m in metrics
            )
            sql = f"""
                SELECT {device} AS device, min(t_us), max(t_us), {chosen}
                FROM {self._table(table)}
                WHERE run_id = TRY_CAST(? AS UUID) AND t_us BETWEEN ? AND ?
                GROUP BY device, (t_us - ?) // ? ORDER BY device, 3"""
            parameters = (run_id, first_us, last_us, first_us, piece_us)
            rows = self._rows(sql, parameters, most=pieces * _MOST_DEVICES)
            for number, of_device in groupby(rows, key=itemgetter(0)):
                if number is None:
                    continue
                _, firsts, lasts, *columns = zip(*of_device, strict=True)
                values = {
                    metric.key: array("d", (_finite(cell) * metric.column_unit for cell in column))
                    for metric, column in zip(metrics, columns, strict=True)
                }
                found.append(TelemetrySeries(number, firsts[0], array("q", lasts), values))
        return tuple(found)

    def _telemetry_span(self, run_id: str) -> tuple[int, int] | None:
        """First and last instant with a reading, in microseconds; impossible ones are left out."""
        sql = f"""
            SELECT min(t_us), max(t_us) FROM (
                SELECT run_id, t_us FROM {self._table("telemetry")}
                UNION ALL SELECT run_id, t_us FROM {self._table("host_telemetry")})
            WHERE run_id = TRY_CAST(? AS UUID) AND t_us BETWEEN 0 AND {LATEST_US}"""
        ((first, last),) = self._rows(sql, (run_id,))
        return (first, last) if isinstance(first, int) and isinstance(last, int) else None

    def conditions(self, run_id: str) -> dict[int, CaseConditions]:
        """The machine while each case was timed; without cases whose blocks have no samples."""
        return conditions_of([self], [(run_id,)]).get(run_id, {})

    def _box_powers(self, run_id: str) -> tuple[LaunchPower, ...]:
        if not self.opened.columns.keys() >= {("blocks", "t_us"), ("telemetry", "power_w")}:
            return ()
        sql = f"""
            SELECT case_id, launch_id, min(samples), sum(mean_w) FROM (
                SELECT b.case_id, b.launch_id, t.device_index, count(*) AS samples, avg(t.power_w) AS mean_w
                FROM {self._table("blocks")} b JOIN {self._table("telemetry")} t
                    ON t.run_id = b.run_id AND t.t_us BETWEEN b.t_us AND b.t_us + b.wall_ns // 1000
                WHERE b.run_id = TRY_CAST(? AS UUID) AND isfinite(t.power_w) AND t.power_w >= 0
                GROUP BY b.case_id, b.launch_id, t.device_index)
            GROUP BY case_id, launch_id ORDER BY case_id, launch_id"""
        return tuple(_made(LaunchPower, row) for row in self._rows(sql, (run_id,)))

    def measured_spans(self, run_id: str) -> tuple[MeasuredSpan, ...]:
        """When each launch timed each case, ordered by time."""
        if ("blocks", "t_us") not in self.opened.columns:
            return ()
        sql = f"""
            SELECT case_id, launch_id, min(t_us) AS first_us, max(t_us + wall_ns // 1000)
            FROM {self._table("blocks")} WHERE run_id = TRY_CAST(? AS UUID)
            GROUP BY case_id, launch_id ORDER BY first_us, case_id, launch_id"""
        with self.valid(f"blocks of run {run_id}"):
            return tuple(_made(MeasuredSpan, row) for row in self._rows(sql, (run_id,)))

    def _table(self, name: str) -> str:
        return f"{self.opened.catalog}.main.{name}"

    def _fetch(
        self, name: str, run_id: str | None, *, order: str = "", columns: Sequence[str] | None = None
    ) -> list[Row]:
        """The rows of a run in a table, or of all runs."""
        ids = None if run_id is None else (run_id,)
        return _grouped([self], name, [ids], order=order, columns=columns).get((0,), [])

    def _rows(
        self, sql: str, parameters: tuple[object, ...] = (), most: int = MOST_BYTES // CELL_BYTES
    ) -> list[tuple[Any, ...]]:
        return rows_of(self.opened.connection, self.opened.deadline, sql, parameters, most=most)

    def check_texts(self, name: str, columns: Sequence[str], run_ids: Sequence[str] | None = None) -> None:
        """Raise TooLarge if these columns of a table hold more than MOST_BYTES, of these runs or of all.

        One column is measured after the other: DuckDB holds 2048 values of each that a query reads.
        """
        if self.opened.sizes.get(name, 0) * len(columns) * TEXT_MOST_BYTES <= MOST_BYTES:
            return
        where, size = "" if run_ids is None else f" WHERE {_of_runs(run_ids)}", 0
        for column in columns:
            if (name, column) in self.opened.columns:
                sum_sql = f'SELECT coalesce(sum(strlen("{column}")), 0)::BIGINT'
                ((of_column,),) = self._rows(
                    f"{sum_sql} FROM {self._table(name)}{where}", tuple(run_ids or ())
                )
                size += of_column
        if size > MOST_BYTES:
            raise too_large(self.db, name, f"at least {size:,} bytes of text", f"{MOST_BYTES // 2**20} MiB")

    @contextmanager
    def valid(self, what: str) -> Iterator[None]:
        """Values that cannot be, in the user's words; `what` is read meanwhile."""
        self.opened.deadline.left_s()
        try:
            yield
        except NotValid as error:
            raise GputuiError(
                f"{self.db} holds what cannot be ({what}): {clean_text(str(error))[:200]}",
                "it is damaged or was not written by gputui; use a copy made before",
            ) from error


@contextmanager
def open_result(db: Path, trust: bool = False, as_stored: bool = False) -> Iterator[ResultFile]:
    """Open a result file for reading, whoever wrote it; it is never written to.

    Close it soon: writers wait meanwhile. Views are ignored; `trust` reads a file with macros or triggers,
    without using them. `as_stored` leaves texts as they are in the file, for JSON, which escapes them itself;
    otherwise they are safe to show. Raises GputuiError if it is not a readable result file, with the reason.
    """
    opened = open_read_only(expanded(db).absolute(), trust)
    with closing(opened.connection):
        yield ResultFile(opened, as_stored)


@contextmanager
def open_results(files: Sequence[Path], trust: bool = False) -> Iterator[tuple[ResultFile, ...]]:
    """Open several different result files on one connection, which takes a tenth of the time per file.

    Raises Locked without waiting if one of them is being written, GputuiError as `open_result`.
    """
    opened = open_together([expanded(db).absolute() for db in files], trust)
    with closing(opened[0].connection):
        yield tuple(map(ResultFile, opened))


def read_each(
    files: Sequence[Path],
    read: Callable[[Sequence[ResultFile]], object],
    *,
    trust: bool = False,
    as_stored: bool = False,
    at_a_time: int = 16,
    threads: int = 1,
) -> None:
    """Have `read` read these files by absolute paths, some of them together, and keep it at its end.

    Where it fails, it is called again for one after the other: each is then waited for while it is written,
    and the first at fault is named. Raises GputuiError, TooLarge.
    """
    idle: list[DuckDBPyConnection] = []

    def read_some(some: Sequence[Path]) -> None:
        if len(some) == 1:
            with open_result(some[0], trust, as_stored) as file:
                read((file,))
            return
        connection = idle.pop() if idle else connect_for(files)
        try:
            attached = attach_to_read(connection, some)
            read([ResultFile(one, as_stored) for one in check_are_ours(connection, attached, trust)])
            for name in attached:
                connection.execute(f"DETACH {name}")
            idle.append(connection)
        except BaseException as error:  # after some of them the connection is of no use
            connection.close()
            if isinstance(error, TooLarge) or not isinstance(error, GputuiError | Locked):
                raise
            for one in some:
                read_some([one])

    parts = [files[start : start + at_a_time] for start in range(0, len(files), at_a_time)]
    with ThreadPoolExecutor(threads) as executor:
        each = executor.map if min(threads, len(parts)) > 1 else map
        try:
            list(each(read_some, parts))
        finally:
            executor.shutdown(cancel_futures=True)
            for connection in idle:
                connection.close()


def summaries_of(files: Sequence[ResultFile]) -> list[tuple[RunSummary, ...]]:
    """As `ResultFile.summaries` for files that were opened together."""
    every = [None] * len(files)
    parts = {
        name: _grouped(files, name, every, "run_id", order=order)
        for name, order in (("machines", ""), ("devices", "device_index"), ("identities", ""), ("prices", ""))
    }
    runs = _grouped(files, "runs", every, columns=RUN_COLUMNS)
    found: list[tuple[RunSummary, ...]] = []
    for place, file in enumerate(files):
        summaries = []
        for row in sorted(runs.get((place,), []), key=_key_of("started_us", "run_id"), reverse=True):
            mine = {name: rows.get((place, row["run_id"]), []) for name, rows in parts.items()}
            with file.valid(f"run {row['run_id']}"):
                summaries.append(summary_from(row, mine))
        found.append(tuple(summaries))
    return with_common_ids(found)


def runs_of(
    files: Sequence[ResultFile], chosen: Sequence[Sequence[RunSummary]], *, only_rates: bool = False
) -> list[tuple[Run, ...]]:
    """The runs of these summaries, by file, with all cases and blocks; for files opened together.

    `only_rates`: only cases that were measured, without their figures, in a part of the time. Raises
    GputuiError if a row holds an impossible value.
    """
    ids = [[summary.run_id for summary in of_file] for of_file in chosen]
    of_more: list[list[str]] = [[] for _ in files] if only_rates else ids
    where = "outcome = 'ok'" if only_rates else ""
    launches = _each_cells(files, "launches", of_more, ("launch_id", "is_fork"))
    forks = {(place, run_id, launch_id) for place, (run_id, launch_id, is_fork) in launches if is_fork}
    measurements = _grouped(files, "measurements", ids, "run_id", "case_id", order="launch_id", where=where)
    figures = _grouped(files, "figures", of_more, "run_id", "case_id", order="figure_index")
    blocks: dict[tuple[Any, ...], dict[Cell, list[Block]]] = {}
    """By file, run and case, by launch: as they are stored, not yet checked."""
    for place, (run_id, case_id, launch_id, *cells) in _each_cells(files, "blocks", ids, BLOCK_COLUMNS):
        of_case = blocks.setdefault((place, run_id, case_id), {})
        of_case.setdefault(launch_id, []).append(Block(launch_id, case_id, *cells))
    results: dict[tuple[Any, ...], list[CaseResult]] = {}
    for key, rows in _grouped(files, "cases", ids, "run_id", order="case_id", where=where).items():
        place, run_id = key
        for row in rows:
            one = (*key, row["case_id"])
            launched = measurements.get(one, [])
            for measurement in launched:
                measurement["is_fork"] = (*key, measurement["launch_id"]) in forks
            with files[place].valid(f"case {row['case_id']} of run {run_id}"):
                case = case_from(row, launched, blocks.pop(one, {}), figures.get(one, []))
            results.setdefault(key, []).append(case)
    return [
        tuple(Run(one, tuple(results.get((place, one.run_id), ()))) for one in of_file)
        for place, of_file in enumerate(chosen)
    ]


def check_runs(files: Sequence[ResultFile], chosen: Sequence[Sequence[RunSummary]]) -> None:
    """Read the runs of these summaries with all that belongs to them, some at a time, and keep nothing.

    Raises GputuiError for an impossible value, TooLarge for too many.
    """
    for some in in_parts(files, chosen):
        ids = [[summary.run_id for summary in of_file] for of_file in some]
        runs_of(files, some)
        passes_of(files, ids)
        for name in ("runs", "launches"):  # of which only some columns were read
            _grouped(files, name, ids)
        for file, of_file in zip(files, ids, strict=True):
            for run_id in of_file:
                file.serving(run_id)
                file.events(run_id)
                file.telemetry_summary(run_id)
            file.held_bytes = 0


def in_parts(
    files: Sequence[ResultFile], chosen: Sequence[Sequence[RunSummary]]
) -> Iterator[list[Sequence[RunSummary]]]:
    """These runs of each file, as many at a time as can be read together, by the blocks that runs have."""
    most = max(file.opened.sizes.get("blocks", 0) / (file.opened.sizes["runs"] or 1) for file in files)
    at_a_time = max(1, min(_RUNS_AT_A_TIME // len(files), int(_BLOCKS_AT_A_TIME / max(1, most))))
    for start in range(0, max(map(len, chosen)), at_a_time):
        yield [of_file[start : start + at_a_time] for of_file in chosen]


def passes_of(
    files: Sequence[ResultFile], run_ids: Sequence[Sequence[str]]
) -> list[dict[str, dict[int, ProfiledPass]]]:
    """The profiled passes of runs of each file, by run and case, including those without a result."""
    listed = _grouped(files, "profiled_passes", run_ids, order="launch_id")
    with_any = [ids if (place,) in listed else () for place, ids in enumerate(run_ids)]
    keys = ("run_id", "case_id", "launch_id")
    parts = {table: _grouped(files, table, with_any, *keys) for table in PROFILED_PARTS}
    found: list[dict[str, dict[int, ProfiledPass]]] = [{} for _ in files]
    for (place,), rows in listed.items():
        for row in rows:
            run_id, case_id, launch_id = (row[name] for name in keys)
            with files[place].valid(f"the profiled pass of case {case_id} of run {run_id}"):
                mine = {table: of.get((place, run_id, case_id, launch_id), []) for table, of in parts.items()}
                one = profiled_from(row, mine)
                found[place].setdefault(str(run_id), {})[one.case_id] = one
    return found


def conditions_of(
    files: Sequence[ResultFile], run_ids: Sequence[Sequence[str]]
) -> dict[str, dict[int, CaseConditions]]:
    """As `ResultFile.conditions` for runs of each file, by run; runs without any are left out."""
    found: dict[str, dict[int, CaseConditions]] = {}
    for run_id, one in _sampled(files, run_ids, _CLOCKS, _CONDITIONS_SQL, CaseConditions):
        found.setdefault(run_id, {})[one.case_id] = one
    return found


def powers_of(
    files: Sequence[ResultFile], run_ids: Sequence[Sequence[str]]
) -> dict[str, dict[int, tuple[LaunchPower, ...]]]:
    """By run and case, the GPU's power in each launch; without those whose blocks have no power samples."""
    found: dict[str, dict[int, tuple[LaunchPower, ...]]] = {}
    for run_id, one in _sampled(files, run_ids, _WATTS, _POWERS_SQL, LaunchPower):
        of_run = found.setdefault(run_id, {})
        of_run[one.case_id] = (*of_run.get(one.case_id, ()), one)
    return found


def _sampled(
    files: Sequence[ResultFile],
    run_ids: Sequence[Sequence[str]],
    sampled: _Sampled,
    sql: str,
    kind: type[_Kind],
) -> Iterator[tuple[str, _Kind]]:
    """Values from the samples of these tables, each with its run; `sql` goes on after _SEEN_SQL.

    Its columns are the index of the file, the run, and the fields of the value.
    """
    blocks = _union(files, "blocks", run_ids, ("case_id", "launch_id", "t_us", "wall_ns"))
    cases = _union(files, "cases", run_ids, ("case_id", "device_index"))
    unions = [(cells, _union(files, table, run_ids, columns)) for table, columns, cells in sampled]
    samples = [f"SELECT place, run_id, {cells} FROM ({union})" for cells, (union, _) in unions if union]
    if not (samples and blocks[0] and cases[0]):
        return
    seen = _SEEN_SQL.format(samples=" UNION ALL ".join(samples), blocks=blocks[0], cases=cases[0])
    parameters = (*(one for _, union in unions for one in union[1]), *blocks[1], *cases[1])
    first = files[0].opened
    for place, run_id, *cells in rows_of(
        first.connection, first.deadline, seen + sql, parameters, at_a_time=NUMBERS_AT_A_TIME
    ):
        with files[place].valid(f"telemetry of run {run_id}"):
            one = _made(kind, cells)
        yield run_id, one


def _union(
    files: Sequence[ResultFile], name: str, run_ids: Sequence[Sequence[str] | None], columns: Sequence[str]
) -> _Union:
    """Index of the file, run and these columns, NULL where a file lacks one; of these runs, or of all."""
    alike: dict[str, list[int]] = {}
    for place, (file, ids) in enumerate(zip(files, run_ids, strict=True)):
        is_there = (name, "run_id") in file.opened.columns and name not in file.opened.empty
        if is_there and (ids is None or ids):
            alike.setdefault(file.opened.statements[name], []).append(place)
    each, parameters = [], list[object]()
    for statement, places in alike.items():
        cells = TABLE_BY_NAME[name].cells_sql(files[places[0]].opened.columns, columns)
        # DuckDB takes as long to parse the columns of many files as to read them; generated ones may fail
        own = f"run_id, {cells}" if is_generated(statement) else "*"
        parts = []
        for place in places:
            part = f"SELECT {place} AS place, {own} FROM {files[place].opened.catalog}.main.{name}"
            if (ids := run_ids[place]) is not None:
                part += f" WHERE {_of_runs(ids)}"
                parameters += ids
            parts.append(part)
        together = " UNION ALL ".join(parts)
        each.append(f"SELECT place, run_id, {cells} FROM ({together})" if own == "*" else together)
    return " UNION ALL ".join(each), tuple(parameters)


def _of_runs(run_ids: Sequence[str]) -> str:
    """The condition in SQL, whose parameters are the runs."""
    return f"run_id IN ({', '.join(['TRY_CAST(? AS UUID)'] * len(run_ids))})"


def _grouped(
    files: Sequence[ResultFile],
    name: str,
    run_ids: Sequence[Sequence[str] | None],
    *keys: str,
    order: str = "",
    columns: Sequence[str] | None = None,
    where: str = "",
) -> dict[tuple[Any, ...], list[Row]]:
    """Rows of one table by the index of their file and these of their cells, in the order of one column.

    As `_each_row`.
    """
    found: dict[tuple[Any, ...], list[Row]] = {}
    for place, row in _each_row(files, name, run_ids, columns and (*keys, *columns), where):
        found.setdefault((place, *(row[key] for key in keys)), []).append(row)
    # DuckDB takes longer to plan sorting many small tables than to read them.
    for rows in found.values() if order else ():
        rows.sort(key=_key_of(order))
    return found


def _each_row(
    files: Sequence[ResultFile],
    name: str,
    run_ids: Sequence[Sequence[str] | None],
    columns: Sequence[str] | None = None,
    where: str = "",
) -> Iterator[tuple[int, Row]]:
    """As `_each_cells`, each row by column name."""
    names = _names_of(name, columns)
    for place, cells in _each_cells(files, name, run_ids, columns, where):
        yield place, dict(zip(names, cells, strict=True))


def _names_of(name: str, columns: Sequence[str] | None) -> list[str]:
    """These columns of a table in its order, or all of them; the run first."""
    known = TABLE_BY_NAME[name].column_names
    return [one for one in known if one == "run_id" or columns is None or one in columns]


def _each_cells(
    files: Sequence[ResultFile],
    name: str,
    run_ids: Sequence[Sequence[str] | None],
    columns: Sequence[str] | None = None,
    where: str = "",
) -> Iterator[tuple[int, list[Any]]]:
    """The cells of each row of a table in these files, of these runs, with the index of its file.

    `run_ids` are those of each file; None: of all. `where` is a condition in SQL. The run comes first, then
    these columns in their order, or all; one that a file lacks is None; texts are cleaned unless their file
    is read as stored. All files are queried at once, so rows are in no order.

    Raises TooLarge if one file has more than MOST_BYTES of them, or more than _MOST_HELD_BYTES of all that
    was read of it.
    """
    names = _names_of(name, columns)
    types = {column.name: column.sql_type for column in TABLE_BY_NAME[name].columns}
    texts = [place for place, column in enumerate(names) if types[column] == "VARCHAR"]
    union, parameters = _union(files, name, run_ids, names[1:])
    if not union:
        return
    of_text = [names[place] for place in texts]
    for file, ids in zip(files, run_ids, strict=True):
        if ids is None or ids:
            file.check_texts(name, of_text, ids)
    sql = f"SELECT * REPLACE (run_id::VARCHAR AS run_id) FROM ({whole_texts(union, name, of_text, 'place')})"
    row_bytes = CELL_BYTES * len(names)
    left = [min(MOST_BYTES, _MOST_HELD_BYTES - file.held_bytes) for file in files]
    most = len(files) * (MOST_BYTES // row_bytes) + 1  # one of the files is too large where there are so many
    first = files[0].opened
    with limited(first.connection, first.deadline, name):
        first.connection.execute(f"{sql} WHERE {where or 'true'} LIMIT {most}", list(parameters))
        while some := first.connection.fetchmany(TEXTS_AT_A_TIME):
            first.deadline.left_s()
            for place, *cells in some:
                size = row_bytes
                for column in texts:
                    if isinstance(cells[column], str):
                        cells[column] = files[place]._clean(cells[column])
                        size += getsizeof(cells[column])
                left[place] -= size
                files[place].held_bytes += size
                if left[place] < 0:
                    rows = f"{files[place].opened.sizes.get(name, 0):,} rows"
                    raise too_large(files[place].db, name, rows, f"{MOST_BYTES // 2**20} MiB")
                yield place, cells


def _key_of(*names: str) -> Callable[[Row], Any]:
    """A sort key; rows without a value come last."""
    return lambda row: [(row[name] is None, row[name]) for name in names]


def warnings_of(db: Path) -> tuple[str, ...]:
    """What the user should know about a result file, one sentence each."""
    wal = db.with_name(db.name + ".wal")
    if not wal.exists():
        return ()
    return (f"{wal} belongs to {db.name}: a copy needs both, or some runs are missing in it",)


def _finite(value: object) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else math.nan


def _made(kind: type[_Kind], cells: Sequence[object]) -> _Kind:
    """A value from the cells of its fields. Raises NotValid."""
    return strict(_named(kind, cells), kind)


def _named(kind: type, cells: Sequence[object]) -> dict[str, object]:
    """The cells of a value by its fields, NULL as Missing."""
    plain = ({"missing": "not measured"} if cell is None else cell for cell in cells)
    return {field.name: one for field, one in zip(fields(kind), plain, strict=True)}
