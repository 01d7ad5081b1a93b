"""A result file as pandas DataFrames, for notebooks. Needs duckdb and pandas, nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gputui.store.opening import CATALOG, Checked, expanded, interrupted_after, open_read_only
from gputui.store.schema import TABLES
from gputui.store.text import clean_text

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, slots=True)
class Frames:
    """All runs of a file; columns as docs/result-file.md lists them, absent values as NaN or None."""

    runs: DataFrame
    """One row per run, with the columns of its machine after its own."""
    identities: DataFrame
    """What the box of each run is known by."""
    devices: DataFrame
    cases: DataFrame
    measurements: DataFrame
    blocks: DataFrame
    figures: DataFrame
    """Results other than speed."""
    profiled_passes: DataFrame
    operators: DataFrame
    """Time of the profiled window by operator, in nanoseconds."""
    breakdown: DataFrame
    """The exact partition of the profiled window."""
    kernels: DataFrame
    memory_points: DataFrame
    telemetry: DataFrame
    """One row per GPU and instant."""
    host_telemetry: DataFrame


def load(file: str | Path, *, trust: bool = False) -> Frames:
    """Read a result file, whoever wrote it; it is opened read-only and closed again.

    Raises GputuiError if it is not a readable result file.
    """
    opened = open_read_only(expanded(Path(file)).absolute(), trust)
    try:
        names = (
            "runs",
            "machines",
            "identities",
            "devices",
            "cases",
            "measurements",
            "blocks",
            "figures",
            "profiled_passes",
            "operators",
            "breakdown",
            "kernels",
            "memory_points",
            "telemetry",
            "host_telemetry",
        )
        read = {name: _frame(opened, name) for name in names}
    finally:
        opened.connection.close()
    machines = read.pop("machines")
    runs = read.pop("runs").merge(machines, on="run_id", how="left", suffixes=("", "_machine"))
    return Frames(runs=runs, **read)


def _frame(opened: Checked, name: str) -> DataFrame:
    """One base table; identifiers as text, strings without control characters."""
    table = next(t for t in TABLES if t.name == name)
    present = [c.name for c in table.columns if (name, c.name) in opened.columns]
    if present:
        columns = ", ".join(f"{c}::VARCHAR AS {c}" if c == "run_id" else c for c in present)
        sql = f"SELECT {columns} FROM {CATALOG}.main.{name}"
    else:  # a table newer than the file
        columns = ", ".join(f"NULL::{c.sql_type} AS {c.name}" for c in table.columns)
        sql = f"SELECT {columns} WHERE false"
    with interrupted_after(opened.connection):
        frame = opened.connection.execute(sql).df()
    for column in frame.select_dtypes(include=["object", "str"]).columns:
        frame[column] = frame[column].map(clean_text, na_action="ignore")
    return frame
