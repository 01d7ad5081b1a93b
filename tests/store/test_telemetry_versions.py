"""Telemetry written by another version of gputui, with a metric more or fewer."""

from __future__ import annotations

import json
import math
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import duckdb
import pytest
from command_line import printed
from journals import GPU_MACHINE, RUN_ID, STARTED_NS, make_journal, make_telemetry, write_telemetry

import gputui
from gputui.metrics import CURRENT
from gputui.model.absent import Missing
from gputui.model.journal import LOCK_NAME, TELEMETRY_NAME
from gputui.model.telemetry import HOST, Column, Reading, TelemetryFormat
from gputui.recording.run_directory import Holder
from gputui.services.results.selectors import locate_run
from gputui.services.runs.device_history import HistoryReader
from gputui.services.runs.process import import_journal, recover_orphans
from gputui.services.support.paths import run_directories
from gputui.store.journal_reader import TelemetryTail, read_telemetry
from gputui.store.reading import open_result

UNKNOWN = Column("unknown_pct", "f", "gpu")
OLDER = TelemetryFormat([m for m in CURRENT.columns if m.key != "power_w"])
NEWER = TelemetryFormat([*CURRENT.columns[:3], UNKNOWN, *CURRENT.columns[3:]])
READINGS = [
    Reading(r.device, r.t_ns, {**r.values, "unknown_pct": 40.0} if r.device != HOST else r.values)
    for r in make_telemetry(gpus=1)
]
GPU_ROWS = sum(reading.device == 0 for reading in READINGS)
UNKNOWN_LEFT_OUT = "telemetry: this gputui does not know 1 metric: unknown_pct"


def stored_of_gpu(db: Path, run: str) -> Mapping[str, Sequence[float]]:
    """What is stored of the GPU during a run."""
    path, summary = locate_run(run, db)
    with open_result(path) as opened:
        series = opened.telemetry_series(summary.run_id, 400)
    return next(one.columns for one in series if one.device_index == 0)


def journal_by(form: TelemetryFormat, run_dir: Path) -> Path:
    make_journal(run_dir, machine=GPU_MACHINE)
    write_telemetry(run_dir, READINGS, form)
    return run_dir


def gpu_columns(db: Path, *columns: str) -> list[tuple[object, ...]]:
    """Counts of the rows and of the values in these columns, then the sums of the values."""
    cells = [f"count({c})" for c in columns] + [f"sum({c})" for c in columns]
    with duckdb.connect(str(db), read_only=True) as connection:
        rows: list[tuple[object, ...]] = connection.execute(
            f"SELECT count(*), {', '.join(cells)} FROM telemetry"
        ).fetchall()
    return rows


def summed(key: str) -> float:
    return sum(r.values[key] for r in READINGS if r.device == 0)


def rows_in(db: Path) -> int:
    """Of telemetry."""
    with open_result(db) as file:
        found = file.telemetry_summary(file.summaries()[0].run_id)
    return found.host_samples + sum(device.samples for device in found.devices)


def events_of(db: Path) -> list[tuple[str, str]]:
    with open_result(db) as result:
        return [(e.level, e.message) for e in result.events(RUN_ID) if e.level != "info"]


@dataclass(frozen=True)
class Version:
    form: TelemetryFormat
    has_power: bool
    left_out: tuple[str, ...]


VERSIONS = {
    "a metric fewer": Version(OLDER, False, ()),
    "the same": Version(CURRENT, True, ()),
    "a metric more": Version(NEWER, True, (UNKNOWN_LEFT_OUT,)),
}


@pytest.mark.parametrize("version", VERSIONS.values(), ids=list(VERSIONS))
def test_a_journal_of_another_version_keeps_every_row_and_is_shown_with_what_could_not_be_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], version: Version
) -> None:
    db = tmp_path / "a.db"
    stored = import_journal(journal_by(version.form, tmp_path / "run"), db)

    assert rows_in(db) == len(READINGS)
    assert stored.left_out == version.left_out
    power, clock = summed("power_w"), summed("sm_clock_mhz")
    found = gpu_columns(db, "power_w", "sm_clock_mhz")
    if version.has_power:
        assert found == [(GPU_ROWS, GPU_ROWS, GPU_ROWS, pytest.approx(power), pytest.approx(clock))]
    else:
        assert found == [(GPU_ROWS, 0, GPU_ROWS, None, pytest.approx(clock))]
    assert events_of(db) == [("warning", f"left out of the journal: {what}") for what in version.left_out]

    status, out, _ = printed(capsys, "show", "latest", db, "--verbose")
    assert status == 0
    assert f"({GPU_ROWS} samples)" in out
    assert ("GPU 0: power 60" in out) == version.has_power
    for what in version.left_out:
        assert f"warning: left out of the journal: {what}" in " ".join(out.split())
    columns = stored_of_gpu(db, "latest")
    assert max(columns["sm_clock_mhz"]) == 1900
    assert any(map(math.isfinite, columns.get("power_w", ()))) == version.has_power


def test_a_run_whose_supervisor_died_before_an_upgrade_keeps_its_telemetry(tmp_path: Path) -> None:
    run_dir = journal_by(NEWER, run_directories() / RUN_ID)
    db = tmp_path / "a.db"
    gone = Holder.this_process(str(db), [run_dir])
    (run_dir / LOCK_NAME).write_text(json.dumps(asdict(gone)))

    (said,) = recover_orphans()

    assert rows_in(db) == len(READINGS)
    assert gpu_columns(db, "sm_clock_mhz")[0][:2] == (GPU_ROWS, GPU_ROWS)
    assert said.endswith(f"; left out: {UNKNOWN_LEFT_OUT}")


@pytest.mark.parametrize("version", VERSIONS.values(), ids=list(VERSIONS))
def test_a_run_in_progress_of_another_version_is_shown_live(tmp_path: Path, version: Version) -> None:
    journal_by(version.form, tmp_path)
    shown = HistoryReader(TelemetryTail(tmp_path).poll).poll(READINGS[-1].t_ns)
    assert not isinstance(shown, Missing)
    assert shown[-1].device == 0
    assert shown[-1].now["sm_busy_pct"] == 98
    assert ("power_w" in shown[-1].now) == version.has_power


def test_a_metric_whose_type_or_device_changed_is_left_out_and_named(tmp_path: Path) -> None:
    changed = [Column("power_w", "Q", "gpu"), Column("load_1min", "f", "gpu")]
    form = TelemetryFormat([*changed, *(m for m in CURRENT.columns if m.key not in ("power_w", "load_1min"))])
    run_dir = make_journal(tmp_path / "run", machine=GPU_MACHINE)
    readings = [Reading(0, STARTED_NS + n, {"power_w": 600, "temperature_c": 60.0}) for n in range(5)]
    write_telemetry(run_dir, readings, form)

    stored = import_journal(run_dir, tmp_path / "a.db")

    assert gpu_columns(tmp_path / "a.db", "power_w", "temperature_c") == [(5, 0, 5, None, 300)]
    assert stored.left_out == ("telemetry: this gputui does not know 2 metrics: power_w, load_1min",)


def test_many_unknown_metrics_are_counted_and_their_names_are_safe_to_print(tmp_path: Path) -> None:
    names = ["\x1b[2Jred", *(f"m{n}" for n in range(20))]
    form = TelemetryFormat([*CURRENT.columns, *(Column(name, "Q", "gpu") for name in names)])

    (left_out,) = import_journal(journal_by(form, tmp_path / "run"), tmp_path / "a.db").left_out

    assert left_out.isprintable()
    assert left_out.endswith("m0, m1, m2, m3 and 16 more")
    assert "21 metrics" in left_out


HEAD = CURRENT.header()
UNREADABLE = {
    "damaged": (HEAD.replace(b'"columns"', b'"columns', 1), "its header is damaged"),
    "random bytes": (bytes(range(1, 256)), "its header is damaged"),
    "cut off": (HEAD[:40], "its header is cut off"),
    "endless": (b"[" * 200_000, "its header is cut off"),
    "deep": (b"[" * 60_000 + b"\n", "its header is damaged"),
    "empty": (b"", "it is empty"),
    "other magic": (b'{"trace": 1}\n', "its first line is not a telemetry header"),
    "a list": (b"[1, 2]\n", "its first line is not a telemetry header"),
    "newer format": (
        HEAD.replace(b'"telemetry": 1', b'"telemetry": 2'),
        "it has format 2, this gputui reads format 1",
    ),
    "unknown type": (
        HEAD.replace(b'"f"', b'"e"', 1),
        "its header describes columns that this gputui cannot read",
    ),
    "no columns": (b'{"telemetry": 1}\n', "its header describes columns that this gputui cannot read"),
    "a column twice": (
        HEAD.replace(b"memory_busy_pct", b"sm_busy_pct"),
        "its header names a column twice",
    ),
}


@pytest.mark.parametrize(("head", "why"), UNREADABLE.values(), ids=list(UNREADABLE))
def test_a_header_that_cannot_be_understood_is_reported_wherever_telemetry_is_read(
    tmp_path: Path, head: bytes, why: str
) -> None:
    rows = b"".join(map(CURRENT.encode, READINGS)) if head.endswith(b"\n") else b""
    (tmp_path / TELEMETRY_NAME).write_bytes(head + rows)

    telemetry = read_telemetry(tmp_path)
    assert list(telemetry) == []
    assert not telemetry.is_readable
    assert telemetry.damage == (f"telemetry: none of it can be read: {why}",)
    live = HistoryReader(TelemetryTail(tmp_path).poll).poll(STARTED_NS)
    assert live == (Missing(f"no telemetry: {why}") if head else ())


@pytest.mark.parametrize("how", ["none of it can be read: it is empty", "cannot be read: Is a directory"])
def test_a_run_whose_telemetry_cannot_be_read_is_stored_without_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    run_dir, db = journal_by(CURRENT, tmp_path / "run"), tmp_path / "a.db"
    (run_dir / TELEMETRY_NAME).unlink()
    if "directory" in how:
        (run_dir / TELEMETRY_NAME).mkdir()
    else:
        (run_dir / TELEMETRY_NAME).touch()

    assert printed(capsys, "import", run_dir, "--db", db)[::2] == (0, f"  left out: telemetry: {how}\n")
    assert events_of(db) == [("error", f"left out of the journal: telemetry: {how}")]
    with open_result(db) as result:
        assert sum(len(m.blocks) for c in result.run(RUN_ID).cases for m in c.measurements) > 0


def test_rows_that_do_not_fit_their_header_are_counted(tmp_path: Path) -> None:
    run_dir = journal_by(CURRENT, tmp_path / "run")
    path = run_dir / TELEMETRY_NAME
    path.write_bytes(path.read_bytes().replace(b'"power_w", "f"', b'"power_w", "Q"', 1))

    stored = import_journal(run_dir, tmp_path / "a.db")

    assert rows_in(tmp_path / "a.db") == 0
    damaged = struct.calcsize(f"<hQ{''.join(m.code for m in CURRENT.columns)}") + 4
    rows = len(READINGS) * damaged // (damaged + 4)
    assert f"telemetry: {rows} of {rows} rows damaged" in stored.left_out


def build_with(place: Path, metrics: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The environment of a copy of gputui with some metrics of its list replaced."""
    package = place / "gputui"
    shutil.copytree(Path(gputui.__file__).parent, package)  # with what is compiled, which saves seconds
    source = package / "metrics.py"
    text = source.read_text()
    for old, new in metrics:
        assert text.count(old) == 1
        text = text.replace(old, new)
    source.write_text(text)
    return {**os.environ, "PYTHONPATH": str(place)}


A_METRIC = """\
    Metric(
        "memory_busy_pct", "memory traffic", "%", "memory", "share of time with memory traffic",
        code="f", sharing="kept",
    ),
"""


@pytest.mark.slow
@pytest.mark.parametrize("has_more", [True, False], ids=["a metric more", "a metric fewer"])
def test_two_builds_store_in_one_file_and_read_what_the_other_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], has_more: bool
) -> None:
    fan = '    Metric("unknown_pct", "fan", "%", "link", "speed of the fan", code="f"),\n'
    environ = build_with(tmp_path / "other", [(A_METRIC, A_METRIC + fan if has_more else "")])
    db = tmp_path / "a.db"
    journal_by(NEWER if has_more else CURRENT, tmp_path / "theirs")
    ours = make_journal(tmp_path / "ours", machine=GPU_MACHINE, run_id=RUN_ID.replace("c0de", "beef"))
    write_telemetry(ours, READINGS)

    def other(*arguments: str) -> str:
        command = [sys.executable, "-m", "gputui", *arguments]
        done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    message = other("import", str(tmp_path / "theirs"), "--db", str(db))
    assert ("left out" in message) == (not has_more)
    import_journal(ours, db)
    assert gpu_columns(db, "sm_clock_mhz")[0][:2] == (2 * GPU_ROWS, 2 * GPU_ROWS)
    with duckdb.connect(str(db), read_only=True) as connection:
        found = [row[0] for row in connection.execute("DESCRIBE telemetry").fetchall()]
    assert ("unknown_pct" in found) == has_more
    for short_id in ("0000c0de", "0000beef"):
        assert f"({GPU_ROWS} samples)" in printed(capsys, "show", short_id, db, "--verbose")[1]
        assert f"({GPU_ROWS} samples)" in other("show", short_id, str(db), "--verbose")
        assert max(stored_of_gpu(db, short_id)["sm_clock_mhz"]) == 1900
