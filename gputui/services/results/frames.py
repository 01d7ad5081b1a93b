"""Result files as pandas DataFrames, for notebooks."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from gputui.errors import GputuiError, clean_text
from gputui.model.absent import Missing, fields_of, known
from gputui.model.result import Run, RunSummary
from gputui.model.units import counted, format_rate
from gputui.services.results.labels import device_words
from gputui.services.results.selectors import is_there, judged_runs, split_selector
from gputui.services.results.throughput import cost_of, speed_of
from gputui.services.support.paths import default_result_file
from gputui.store.locking import Locked
from gputui.store.opening import expanded, limited, too_large, whole_texts
from gputui.store.reading import ResultFile, open_result, open_results
from gputui.store.schema import TABLE_BY_NAME
from gputui.store.selecting import find_runs, with_common_ids

if TYPE_CHECKING:
    from pandas import DataFrame, Series

_MOST_ROWS = 20_000_000
"""Of a table: telemetry of two days, ten times a second, with 8 GPUs."""
_AT_ONCE = 25
"""Files on one connection, which takes as long to make as to open ten files."""


@dataclass(frozen=True, slots=True, repr=False)
class Frames:
    """Runs of one or more files. All frames but `rates` have the columns that docs/result-file.md lists.

    An instant such as `started_us` is a column `started` in UTC, and `t_us` is `time`. Absent values are NaN,
    NaT or None. `run_id` joins the frames.
    """

    rates: DataFrame
    """One row per case that was measured: its rate with the 95 % interval, in units of work per second."""
    runs: DataFrame
    """One row per run, with the columns of its machine and its price after its own."""
    identities: DataFrame
    """What the box of each run is known by."""
    devices: DataFrame
    cases: DataFrame
    launches: DataFrame
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
    servers: DataFrame
    """What LLM servers under load told of themselves, one row per launch."""
    load_steps: DataFrame
    """Loads that were offered to them."""
    requests: DataFrame
    """One row per request."""
    telemetry: DataFrame
    """One row per GPU and instant."""
    host_telemetry: DataFrame
    events: DataFrame

    def __repr__(self) -> str:
        head, more = self._about()
        table = self._shown().to_string(index=False, max_rows=20)
        return f"{head}\n\n.rates, {counted(len(self.rates), 'row')}\n{table}\n\n{more}"

    def _repr_html_(self) -> str:
        head, more = self._about()
        table = self._shown().to_html(index=False, max_rows=20)
        return f"<p>{head}</p><p><code>.rates</code></p>{table}<p>{more}</p>"

    def _about(self) -> tuple[str, str]:
        """What was read, and how many rows the other frames have."""
        files, machines = (self.runs[column].nunique() for column in ("file", "machine_id"))
        head = f"{counted(len(self.runs), 'run')} of {counted(machines, 'machine')}"
        rows = {f.name: len(getattr(self, f.name)) for f in fields(self) if f.name != "rates"}
        more = ", ".join(f".{name} {count}" for name, count in rows.items() if count)
        return f"{head} in {counted(files, 'file')}", f"rows of the others: {more}"

    def _shown(self) -> DataFrame:
        """The rates with their units, as tables show them."""
        shown = self.rates[["run", "machine", "case"]].copy()
        units = [unit.removesuffix("/s") for unit in self.rates["unit"]]
        for column in ("rate", "low", "high"):
            texts = map(format_rate, self.rates[column], units)
            shown[column] = list(texts)
        return shown


def load(*files: str | Path, trust: bool = False) -> Frames:
    """Read result files, whoever wrote them; without any, the file that `gputui run` writes by default.

    Each is a file, `F@RUN` as in `gputui show`, a pattern such as `results/*.db`, a directory of `gputui
    export`, or another one, of which all `*.db` are read. A run that several files hold is read once. In
    patterns and directories, what is not a result file is left out with a warning. Files are opened
    read-only. Raises GputuiError if a file that is named cannot be read, or a pattern or directory has none.
    """
    return _loaded(_named(files or (default_result_file(),)), trust)


def load_runs(file: Path, run_ids: Collection[str]) -> Frames:
    """Some runs of one file. Raises GputuiError if it cannot be read."""
    return _loaded([(file, "", True)], False, run_ids)


def _named(files: Iterable[str | Path]) -> Iterator[tuple[Path, str, bool]]:
    """File, run, and whether exactly this file was asked for."""
    for file in files:
        path, selector = split_selector(str(file))  # of an export it is a file
        if is_there(path) and path.is_dir():
            found = sorted(path.glob("*.db"))
        elif not is_there(path) and not set("*?[").isdisjoint(str(file)):
            pattern = expanded(Path(file))
            root = Path(pattern.anchor)
            found = sorted(root.glob(str(pattern.relative_to(root))))
        else:
            yield path, selector, True
            continue
        if not found:
            raise GputuiError(f"{file}: no result file there", "name a file, a directory or a pattern: *.db")
        yield from ((each, "", False) for each in found)


def _loaded(
    named: Iterable[tuple[Path, str, bool]], trust: bool, run_ids: Collection[str] | None = None
) -> Frames:
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise GputuiError("pandas is not installed, and frames are pandas'", "pip install pandas") from error

    parts: dict[str, list[DataFrame]] = {}
    rates: list[dict[str, object]] = []
    seen: dict[str, RunSummary] = {}
    with closing(_opened(list(named), trust)) as files:
        for file, path, selector in files:
            summaries = file.summaries()
            if selector:
                summaries = find_runs(summaries, selector)
            if run_ids is not None:
                summaries = tuple(s for s in summaries if s.run_id in run_ids)
            summaries = tuple(s for s in summaries if s.run_id not in seen)
            seen.update((summary.run_id, summary) for summary in summaries)
            for name, frame in _tables(file, path, summaries, parts).items():
                parts.setdefault(name, []).append(frame)
            for run in judged_runs(file, summaries):
                rates.extend(_rates(run, path))
    if not parts:
        raise GputuiError("none of the files is a result file", "name one made by gputui")
    whole = {
        name: pd.concat([f for f in some if len(f)] or some[:1], ignore_index=True)
        for name, some in parts.items()
    }
    made = pd.DataFrame(rates, columns=list(_RATES))
    made["started"] = _instants(made["started"])
    (common,) = with_common_ids([tuple(seen.values())])
    ids = {summary.run_id: summary.machine.machine_id or None for summary in common}
    for frame in (made, whole["runs"]):
        frame["machine_id"] = frame["run_id"].map(ids)
    whole["runs"]["box_id"] = whole["runs"]["machine_id"]
    return Frames(rates=made, **whole)


def _opened(named: Sequence[tuple[Path, str, bool]], trust: bool) -> Generator[tuple[ResultFile, Path, str]]:
    """Each file and its run; it is open until the next one is taken.

    Several are opened on one connection, and one by one if one of them cannot be opened.
    """
    for start in range(0, len(named), _AT_ONCE):
        some = named[start : start + _AT_ONCE]
        with suppress(GputuiError, Locked), open_results([path for path, _, _ in some], trust) as files:
            for file, (path, selector, _) in zip(files, some, strict=True):
                yield file, path, selector
            continue
        for path, selector, is_asked in some:
            try:
                with open_result(path, trust) as file:
                    yield file, path, selector
            except GputuiError as error:
                if is_asked:
                    raise
                warnings.warn(f"left out: {error.message}", stacklevel=4)  # the caller of `load`


_RATES = (
    *("file", "run", "run_id", "label", "started", "profile", "machine", "machine_id", "torch"),
    *("case", "workload", "size", "device", "device_name", "precision", "mode", "threads", "work_key"),
    *("rate", "low", "high", "unit", "seconds", "launches", "blocks"),
    *("usd_per_hour", "usd_per_million"),
)


def _rates(run: Run, path: Path) -> Iterator[dict[str, object]]:
    """The cases of a run that were measured, by the names of _RATES."""
    summary = run.summary
    price = known(summary.price)
    of_run = {
        "file": str(path),
        "run": summary.short_id,
        **fields_of(summary, "run_id", "label", "profile"),
        "started": summary.started_utc_us,
        "machine": device_words(summary),
        "machine_id": summary.machine.machine_id,
        "torch": known(summary.runtime.torch_version),
        "usd_per_hour": price and price.usd_per_hour,
    }
    for result in run.cases:
        speed, cost = speed_of(result), known(cost_of(result, summary.price))
        if isinstance(speed, Missing):
            continue
        identity = {name: value for name, value in result.case.identity().items() if name in _RATES}
        yield {
            **of_run,
            **identity,
            "device_name": result.device_name,
            "rate": speed.units_per_s,
            "unit": f"{result.case.unit}/s",
            "seconds": result.case.units_per_step / speed.units_per_s,
            **fields_of(speed, "low", "high", "launches", "blocks"),
            "usd_per_million": cost and cost.usd_per_million,
        }


def _tables(
    file: ResultFile, path: Path, summaries: Sequence[RunSummary], known: Collection[str]
) -> dict[str, DataFrame]:
    """The stored tables of these runs by name, `runs` with machine and price.

    Tables without rows are left out if they are `known` from another file.
    """
    stored = [f.name for f in fields(Frames) if f.name in TABLE_BY_NAME]
    ids = [summary.run_id for summary in summaries]
    needless = file.opened.empty.intersection(known) - {"runs"}
    names = [name for name in (*stored, "machines", "prices") if name not in needless]
    read = {name: _table(file, name, ids) for name in names}
    runs = read.pop("runs").merge(read.pop("machines"), on="run_id", how="left", suffixes=("", "_machine"))
    prices = read.pop("prices").rename(columns={"kind": "price_kind"})
    columns = ["run_id", "usd_per_hour", "gpu_count", "price_kind"]
    runs = runs.merge(prices[columns], on="run_id", how="left")
    words = {summary.run_id: summary for summary in summaries}
    runs.insert(0, "machine", [device_words(words[run_id]) for run_id in runs["run_id"]])
    runs.insert(0, "run", [words[run_id].short_id for run_id in runs["run_id"]])
    runs.insert(0, "file", str(path))
    return {**read, "runs": runs}


def _table(file: ResultFile, name: str, run_ids: Sequence[str]) -> DataFrame:
    """One base table; identifiers as text, strings without control characters, instants as such."""
    import pandas as pd

    opened, columns = file.opened, TABLE_BY_NAME[name].columns
    rows = opened.sizes.get(name, 0)
    if rows > _MOST_ROWS:
        raise too_large(file.db, name, f"{rows:,} rows", f"{_MOST_ROWS:,}")
    is_there = (name, "run_id") in opened.columns  # a table may be newer than the file
    where = (
        f"FROM {opened.catalog}.main.{name} WHERE run_id = ANY(?::UUID[])" if is_there else "WHERE len(?) < 0"
    )
    cells = f"SELECT {TABLE_BY_NAME[name].cells_sql(opened.columns)} {where}"
    sql = f"SELECT * REPLACE (run_id::VARCHAR AS run_id) FROM ({cells})"
    texts = [column.name for column in columns if column.sql_type == "VARCHAR"]
    file.check_texts(name, texts)
    with limited(opened.connection, opened.deadline, name):
        frame = opened.connection.execute(whole_texts(sql, name, texts), [list(run_ids)]).df()
    for column, dtype in frame.dtypes.items():
        if pd.api.types.is_string_dtype(dtype):
            frame[column] = frame[column].map(clean_text, na_action="ignore")
    instants = [column.name for column in columns if column.name.endswith("_us")]
    for column in instants:
        frame[column] = _instants(frame[column])
    return frame.rename(
        columns={column: "time" if column == "t_us" else column.removesuffix("_us") for column in instants}
    )


def _instants(microseconds: Series) -> Series:
    """Datetimes in UTC, to the microsecond."""
    import pandas as pd

    # of plain integers, pandas 2 makes nanoseconds
    return pd.to_datetime(microseconds.astype("Int64"), unit="us", utc=True, errors="coerce")
