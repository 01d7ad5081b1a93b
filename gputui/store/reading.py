"""Reads runs from a result file, also from a stranger's."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.profiled import ProfiledPass
from gputui.model.result import CaseResult, Run, RunSummary
from gputui.model.telemetry import HOST, METRICS, Metric
from gputui.store.opening import CATALOG, Checked, expanded, open_read_only, rows_of
from gputui.store.rebuilding import RunRows, case_from, profiled_from, summary_from
from gputui.store.rows import PROFILED_PARTS, Cell, Row
from gputui.store.schema import TABLE_BY_NAME
from gputui.store.selecting import find_run as find_run
from gputui.store.strict import LATEST_US, NotValid, strict
from gputui.store.text import clean_text

SLOWED_BITS = 0x8 | 0x20 | 0x40 | 0x80
"""NVML clocks-event reasons: hardware slowdown, thermal (software, hardware), power brake."""
POWER_CAP_BIT = 0x4
"""NVML clocks-event reason: software power cap."""

_MEAN_SQL = "avg(CASE WHEN isfinite({0}) THEN {0} END)"
_LAST_SQL = "arg_max({0}, t_us)"
_PIECE_SQL = {"throttle_bits": "bit_or({0})"}
"""What stands for a piece of time; by metric key where the kind of value does not decide it."""
_SHORTEST_PIECE_US = 100_000
_MOST_DEVICES = 256
_LONGEST_LOG = 8192
"""Letters of the end of a log; ours are at most half as long."""


@dataclass(frozen=True, slots=True)
class DeviceTelemetry:
    """What one GPU did over a whole run."""

    device_index: int
    samples: int
    power_median_w: float | Missing
    power_max_w: float | Missing
    temperature_median_c: float | Missing
    temperature_max_c: float | Missing
    sm_clock_min_mhz: float | Missing
    sm_clock_median_mhz: float | Missing
    slowed_share: float | Missing
    """Share of the samples with a reason of SLOWED_BITS, among those that have reasons; 0 to 1."""
    power_capped_share: float | Missing


@dataclass(frozen=True, slots=True)
class HostTelemetry:
    """What the host did over a whole run."""

    samples: int
    cpu_steal_mean_pct: float | Missing
    """100 per logical CPU."""
    cpu_busy_mean_pct: float | Missing


@dataclass(frozen=True, slots=True)
class TelemetrySummary:
    """What the box did over a whole run."""

    devices: tuple[DeviceTelemetry, ...]
    """In the order of their indexes; those without samples are not among them."""
    host: HostTelemetry | Missing


@dataclass(frozen=True, slots=True)
class TelemetrySeries:
    """What one device did, in equal pieces of time; those without a reading are left out."""

    device_index: int
    """HOST for the host."""
    first_us: int
    """Its first reading; times are UTC epoch microseconds."""
    t_us: array[int]
    """The last reading of each piece, ascending."""
    columns: Mapping[str, array[float]]
    """By metric key, one value for each piece: means; of counters the last; of bits all that were set. NaN
    where nothing was measured."""


@dataclass(frozen=True, slots=True)
class CaseConditions:
    """What its device did while a case was timed; samples between its blocks do not count."""

    case_id: int
    samples: int
    clock_median_mhz: float | Missing
    """Of a GPU its SM clock, of a CPU case the mean of the host's logical CPUs."""
    clock_most_mhz: float | Missing
    """The highest of the same device in the whole run."""
    slowed_share: float | Missing
    """As in DeviceTelemetry; Missing for a CPU, as are the next two."""
    power_capped_share: float | Missing
    cold_share: float | Missing
    """Share of the samples more than COLD_C below the warmest of them: the device was still warming up."""


@dataclass(frozen=True, slots=True)
class LaunchPower:
    """What the GPU of a case drew during its blocks in one launch."""

    case_id: int
    launch_id: int
    samples: int
    mean_w: float


COLD_C = 5.0
"""A cold GPU clocks higher for a while; sensors tell whole degrees, and steady work moves them by 1 or 2."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """Something a person should know about a run."""

    t_us: int | None
    """UTC epoch microseconds; None for what belongs to no instant."""
    level: str
    message: str


@dataclass(frozen=True, slots=True)
class LastWords:
    """What a worker had written when its launch ended badly, or when it did not leave as it should."""

    launch_id: int
    outcome: str
    reason: str
    case_ids: tuple[int, ...]
    lines: tuple[str, ...]
    """The last ones of its log."""


class ResultFile:
    """An open result file. For one thread; what it gives outlives it."""

    def __init__(self, opened: Checked, db: Path, warnings: tuple[str, ...]) -> None:
        self._connection = opened.connection
        self._columns = opened.columns
        self.db = db
        self.warnings = warnings
        """What the user should know of this file, one sentence each."""

    def interrupt(self) -> None:
        """End the query that another thread waits for, if there is one; it raises there."""
        self._connection.interrupt()

    def summaries(self) -> tuple[RunSummary, ...]:
        """All runs, newest first. Raises GputuiError if a row holds what cannot be."""
        return self._summaries(None)

    def run(self, run_id: str) -> Run:
        """One run with all its cases and blocks. Raises GputuiError if the file has it not."""
        found = self._summaries(run_id)
        if not found:
            raise GputuiError(f"{self.db} has no run {clean_text(run_id)[:60]}", f"gputui runs {self.db}")
        launches = {row["launch_id"]: row for row in self._fetch("launches", run_id)}
        measurements: dict[Cell, list[Row]] = {}
        for row in self._fetch("measurements", run_id, "launch_id"):
            launch = launches.get(row["launch_id"])
            row["threads_used"] = launch["threads_used"] if launch else None
            measurements.setdefault(row["case_id"], []).append(row)
        blocks: dict[Cell, list[Row]] = {}
        for row in self._fetch("blocks", run_id, "start_ns"):
            blocks.setdefault(row["case_id"], []).append(row)
        figures: dict[Cell, list[Row]] = {}
        for row in self._fetch("figures", run_id, "figure_index"):
            figures.setdefault(row["case_id"], []).append(row)
        cases: list[CaseResult] = []
        for row in self._fetch("cases", run_id, "case_id"):
            case_id = row["case_id"]
            with self._valid(f"case {case_id} of run {run_id}"):
                mine = (part.get(case_id, []) for part in (measurements, blocks, figures))
                cases.append(case_from(row, *mine))
        return Run(found[0], tuple(cases))

    def profiled(self, run_id: str) -> dict[int, ProfiledPass]:
        """The profiled passes of a run by case, also those that came to nothing."""
        listed = self._fetch("profiled_passes", run_id, "launch_id")
        parts: dict[str, dict[tuple[Cell, Cell], list[Row]]] = {}
        for table in PROFILED_PARTS if listed else ():
            found = parts.setdefault(table, {})
            for row in self._fetch(table, run_id):
                found.setdefault((row["case_id"], row["launch_id"]), []).append(row)
        passes: dict[int, ProfiledPass] = {}
        for row in listed:
            with self._valid(f"the profiled pass of case {row['case_id']} of run {run_id}"):
                key = row["case_id"], row["launch_id"]
                one = profiled_from(row, {name: rows.get(key, []) for name, rows in parts.items()})
                passes[one.case_id] = one
        return passes

    def events(self, run_id: str) -> tuple[StoredEvent, ...]:
        """What a person should know about a run, oldest first."""
        found: list[StoredEvent] = []
        for row in self._fetch("events", run_id, "t_us"):
            with self._valid(f"events of run {run_id}"):
                found.append(strict(row, StoredEvent))
        return tuple(found)

    def last_words(self, run_id: str) -> tuple[LastWords, ...]:
        """Of the workers that left some, in the order of their launches."""
        cases: dict[Cell, list[Cell]] = {}
        for row in self._fetch("measurements", run_id, "case_id"):
            cases.setdefault(row["launch_id"], []).append(row["case_id"])
        found: list[LastWords] = []
        for row in self._fetch("launches", run_id, "launch_id"):
            if row["log_tail"]:
                said = {
                    **{key: row[key] for key in ("launch_id", "outcome", "reason")},
                    "case_ids": cases.get(row["launch_id"], []),
                    "lines": self._lines_of_log(run_id, row["launch_id"]),
                }
                with self._valid(f"launches of run {run_id}"):
                    found.append(strict(said, LastWords))
        return tuple(found)

    def _lines_of_log(self, run_id: str, launch_id: Cell) -> list[str]:
        """Line breaks are kept here; all else is cleaned as everywhere."""
        sql = (
            f"SELECT log_tail FROM {CATALOG}.main.launches"
            " WHERE run_id = TRY_CAST(? AS UUID) AND launch_id = TRY_CAST(? AS BIGINT)"
        )
        rows = rows_of(self._connection, self.db, sql, (run_id, launch_id))
        return [clean_text(line) for row in rows[:1] for line in str(row[0])[:_LONGEST_LOG].splitlines()]

    def telemetry_summary(self, run_id: str) -> TelemetrySummary:
        """What the box did over a whole run; one pass over its telemetry."""
        gpu_sql = f"""
            SELECT device_index, count(*), median(power_w), max(power_w),
                median(temperature_c), max(temperature_c), min(sm_clock_mhz), median(sm_clock_mhz),
                avg(CASE WHEN throttle_bits IS NULL THEN NULL
                    WHEN throttle_bits & {SLOWED_BITS} <> 0 THEN 1 ELSE 0 END),
                avg(CASE WHEN throttle_bits IS NULL THEN NULL
                    WHEN throttle_bits & {POWER_CAP_BIT} <> 0 THEN 1 ELSE 0 END)
            FROM {CATALOG}.main.telemetry WHERE run_id = TRY_CAST(? AS UUID)
            GROUP BY device_index ORDER BY device_index"""
        host_sql = f"""
            SELECT count(*), avg(cpu_steal_pct), avg(cpu_busy_pct)
            FROM {CATALOG}.main.host_telemetry WHERE run_id = TRY_CAST(? AS UUID)"""
        device_names = DeviceTelemetry.__dataclass_fields__
        host_names = HostTelemetry.__dataclass_fields__
        with self._valid(f"telemetry of run {run_id}"):
            devices = tuple(
                strict(dict(zip(device_names, map(_or_missing, row), strict=True)), DeviceTelemetry)
                for row in rows_of(self._connection, self.db, gpu_sql, (run_id,))
            )
            host_row = rows_of(self._connection, self.db, host_sql, (run_id,))[0]
            host = strict(dict(zip(host_names, map(_or_missing, host_row), strict=True)), HostTelemetry)
        return TelemetrySummary(devices, host if host.samples else Missing("the host was not sampled"))

    def telemetry_series(self, run_id: str, pieces: int) -> tuple[TelemetrySeries, ...]:
        """What the box did, the host first, cut into at most so many pieces; a tenth of a second at least.

        However long the run, no more than that is held. Raises GputuiError for times that cannot be.
        """
        found: list[tuple[int, list[tuple[object, ...]], tuple[Metric, ...]]] = []
        span = self._telemetry_span(run_id)
        if span is None:
            return ()
        first_us, last_us = span
        piece_us = max(_SHORTEST_PIECE_US, -(-(last_us - first_us + 1) // pieces))
        for scope, table, device in (
            ("host", "host_telemetry", str(HOST)),
            ("gpu", "telemetry", "device_index"),
        ):
            metrics = tuple(m for m in METRICS if m.scope == scope and (table, m.key) in self._columns)
            chosen = ", ".join(
                _PIECE_SQL.get(m.key, _MEAN_SQL if m.code == "f" else _LAST_SQL).format(m.key)
                for m in metrics
            )
            sql = f"""
                SELECT {device} AS device, min(t_us), max(t_us), {chosen}
                FROM {CATALOG}.main.{table}
                WHERE run_id = TRY_CAST(? AS UUID) AND t_us BETWEEN ? AND ?
                GROUP BY device, (t_us - ?) // ? ORDER BY device, 3"""
            parameters = (run_id, first_us, last_us, first_us, piece_us)
            rows = rows_of(self._connection, self.db, sql, parameters, most=pieces * _MOST_DEVICES)
            for number, of_device in groupby(rows, key=lambda row: row[0]):
                if isinstance(number, int):
                    found.append((number, list(of_device), metrics))
        return tuple(_series(*part) for part in found)

    def _telemetry_span(self, run_id: str) -> tuple[int, int] | None:
        """First and last instant with a reading, in microseconds; those that cannot be are left out."""
        sql = f"""
            SELECT min(t_us), max(t_us) FROM (
                SELECT run_id, t_us FROM {CATALOG}.main.telemetry
                UNION ALL SELECT run_id, t_us FROM {CATALOG}.main.host_telemetry)
            WHERE run_id = TRY_CAST(? AS UUID) AND t_us BETWEEN 0 AND {LATEST_US}"""
        ((first, last),) = rows_of(self._connection, self.db, sql, (run_id,))
        return (first, last) if isinstance(first, int) and isinstance(last, int) else None

    def conditions(self, run_id: str) -> dict[int, CaseConditions]:
        """What the box did while each case was timed; without those in whose blocks nothing was sampled."""
        if ("blocks", "t_us") not in self._columns:
            return {}
        gpu_sql = f"""
            WITH one AS (SELECT * FROM {CATALOG}.main.telemetry WHERE run_id = TRY_CAST(? AS UUID)),
                most AS (SELECT device_index, max(sm_clock_mhz) AS mhz FROM one GROUP BY device_index),
                seen AS (
                    SELECT c.case_id, one.*, max(temperature_c) OVER (PARTITION BY c.case_id) AS warmest_c
                    FROM {CATALOG}.main.blocks b
                    JOIN {CATALOG}.main.cases c ON c.run_id = b.run_id AND c.case_id = b.case_id
                    JOIN one ON one.device_index = c.device_index
                        AND one.t_us BETWEEN b.t_us AND b.t_us + b.wall_ns // 1000
                    WHERE b.run_id = TRY_CAST(? AS UUID))
            SELECT case_id, count(*), median(sm_clock_mhz), any_value(most.mhz),
                avg(CASE WHEN throttle_bits IS NULL THEN NULL
                    WHEN throttle_bits & {SLOWED_BITS} <> 0 THEN 1 ELSE 0 END),
                avg(CASE WHEN throttle_bits IS NULL THEN NULL
                    WHEN throttle_bits & {POWER_CAP_BIT} <> 0 THEN 1 ELSE 0 END),
                avg(CASE WHEN temperature_c IS NULL THEN NULL
                    WHEN temperature_c < warmest_c - {COLD_C} THEN 1 ELSE 0 END)
            FROM seen JOIN most USING (device_index) GROUP BY case_id"""
        host_sql = f"""
            WITH one AS (SELECT * FROM {CATALOG}.main.host_telemetry WHERE run_id = TRY_CAST(? AS UUID))
            SELECT c.case_id, count(*), median(cpu_clock_mhz), (SELECT max(cpu_clock_mhz) FROM one),
                NULL, NULL, NULL
            FROM {CATALOG}.main.blocks b
            JOIN {CATALOG}.main.cases c ON c.run_id = b.run_id AND c.case_id = b.case_id
            JOIN one ON one.t_us BETWEEN b.t_us AND b.t_us + b.wall_ns // 1000
            WHERE b.run_id = TRY_CAST(? AS UUID) AND c.device_index IS NULL GROUP BY c.case_id"""
        names = CaseConditions.__dataclass_fields__
        found: dict[int, CaseConditions] = {}
        with self._valid(f"telemetry of run {run_id}"):
            for sql in (gpu_sql, host_sql):
                for row in rows_of(self._connection, self.db, sql, (run_id, run_id)):
                    plain = dict(zip(names, map(_or_missing, row), strict=True))
                    one = strict(plain, CaseConditions)
                    found[one.case_id] = one
        return found

    def powers(self, run_id: str) -> dict[int, tuple[LaunchPower, ...]]:
        """By case, what its GPU drew in each launch; without those in whose blocks no power was sampled."""
        if ("blocks", "t_us") not in self._columns or ("telemetry", "power_w") not in self._columns:
            return {}
        sql = f"""
            SELECT b.case_id, b.launch_id, count(*), avg(t.power_w)
            FROM {CATALOG}.main.blocks b
            JOIN {CATALOG}.main.cases c ON c.run_id = b.run_id AND c.case_id = b.case_id
            JOIN {CATALOG}.main.telemetry t ON t.run_id = b.run_id AND t.device_index = c.device_index
                AND t.t_us BETWEEN b.t_us AND b.t_us + b.wall_ns // 1000
            WHERE b.run_id = TRY_CAST(? AS UUID) AND isfinite(t.power_w) AND t.power_w >= 0
            GROUP BY b.case_id, b.launch_id ORDER BY b.case_id, b.launch_id"""
        names = LaunchPower.__dataclass_fields__
        found: dict[int, list[LaunchPower]] = {}
        with self._valid(f"telemetry of run {run_id}"):
            for row in rows_of(self._connection, self.db, sql, (run_id,)):
                one = strict(dict(zip(names, row, strict=True)), LaunchPower)
                found.setdefault(one.case_id, []).append(one)
        return {case_id: tuple(powers) for case_id, powers in found.items()}

    def _summaries(self, run_id: str | None) -> tuple[RunSummary, ...]:
        machines = {row["run_id"]: row for row in self._fetch("machines", run_id)}
        prices = {row["run_id"]: row for row in self._fetch("prices", run_id)}
        gpus: dict[Cell, list[Row]] = {}
        for row in self._fetch("devices", run_id, "device_index"):
            gpus.setdefault(row["run_id"], []).append(row)
        found: list[RunSummary] = []
        for row in self._fetch("runs", run_id, "started_us DESC, run_id DESC"):
            key = row["run_id"]
            with self._valid(f"run {key}"):
                found.append(
                    summary_from(RunRows(row, machines.get(key), gpus.get(key, []), prices.get(key)))
                )
        return tuple(found)

    def _fetch(self, name: str, run_id: str | None = None, order: str = "") -> list[Row]:
        """Rows of one table by column name; a column that the file lacks is None, strings are cleaned."""
        names = TABLE_BY_NAME[name].column_names
        present = [column for column in names if (name, column) in self._columns]
        if "run_id" not in present:
            return []
        sql = f"SELECT {', '.join(present)} FROM {CATALOG}.main.{name}"
        sql += " WHERE run_id = TRY_CAST(? AS UUID)" if run_id is not None else ""
        sql += f" ORDER BY {order}" if order else ""
        parameters = () if run_id is None else (run_id,)
        absent: Row = dict.fromkeys(names)
        return [
            {**absent, **dict(zip(present, map(_cell, row), strict=True))}
            for row in rows_of(self._connection, self.db, sql, parameters)
        ]

    @contextmanager
    def _valid(self, what: str) -> Iterator[None]:
        try:
            yield
        except NotValid as error:
            raise GputuiError(
                f"{self.db} holds what cannot be ({what}): {clean_text(str(error))[:200]}",
                "it is damaged or was not written by gputui; use a copy made before",
            ) from error


@contextmanager
def open_result(db: Path, trust: bool = False) -> Iterator[ResultFile]:
    """Open a result file for reading, whoever made it; it is never written to.

    Keep it open only for as long as it takes to read: writers wait meanwhile. `trust` reads a file that
    holds views, macros or triggers, without using them. Raises GputuiError for what is no readable result
    file, with the reason.
    """
    db = expanded(db).absolute()
    opened = open_read_only(db, trust)
    try:
        yield ResultFile(opened, db, _warnings(db))
    finally:
        opened.connection.close()


def _warnings(db: Path) -> tuple[str, ...]:
    wal = db.with_name(db.name + ".wal")
    if not wal.exists():
        return ()
    return (f"{wal} belongs to {db.name}: a copy needs both, or some runs are missing in it",)


def _series(device: int, rows: Sequence[tuple[object, ...]], metrics: Sequence[Metric]) -> TelemetrySeries:
    columns = {
        metric.key: array("d", (_finite(row[place]) for row in rows))
        for place, metric in enumerate(metrics, start=3)
    }
    firsts = [row[1] for row in rows if isinstance(row[1], int)]
    lasts = array("q", (row[2] for row in rows if isinstance(row[2], int)))
    return TelemetrySeries(device, firsts[0], lasts, columns)


def _finite(value: object) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else math.nan


def _cell(value: object) -> Cell:
    if isinstance(value, str):
        return clean_text(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value)  # a UUID


def _or_missing(value: object) -> object:
    return {"missing": "not measured"} if value is None else value
