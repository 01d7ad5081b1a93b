"""Messages of foreign code stay in the logs of this machine: they are in no result file and no export."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest
from command_line import gputui, gputui_here, printed, printed_json
from leaky_steps import FAILURES, LOG, STEP, TOKEN

from gputui.services.support.paths import run_directories

PROFILE = f"""schema = 1
version = 1
title = "program"
question = "How fast?"
budget_s = 60
replicates = 1

[[command]]
name = "program"
version = 1
argv = ["sh", "-c", "echo 401 for {TOKEN}; exit 3"]

[[command]]
name = "well"
version = 1
argv = ["true"]
"""


def texts_in(db: Path) -> str:
    """All text of a result file, however DuckDB compressed it, and its bytes."""
    output = [db.read_bytes().decode("latin-1")]
    with duckdb.connect(str(db), read_only=True) as connection:
        for (table,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            output += map(str, connection.execute(f"SELECT * FROM {table}").fetchall())
    return "\n".join(output)


def printed_about(db: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """All that the commands print about a result file of one run."""
    made = []
    for words in (
        ("show", "latest", db),
        ("show", "latest", db, "--verbose"),
        ("show", "latest", db, "--json"),
        *(("compare", db, db, "--format", form) for form in ("text", "json", "html", "markdown", "csv")),
    ):
        _, out, err = printed(capsys, *words)
        assert out, err
        made += [out, err]
    return "\n".join(made)


@dataclass(frozen=True, slots=True)
class Measured:
    db: Path
    stderr: str
    logs: Path


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, state: Path) -> Measured:
    """A step that fails in every way, each in a launch by itself, and once goes well."""
    place = tmp_path_factory.mktemp("steps")
    text = STEP.replace("TOKEN", TOKEN).replace("HOW", repr((*FAILURES, "well")))
    (place / "my_step.py").write_text(text)
    words = ("run", place / "my_step.py", "--db", place / "a.db", "--blocks", "5", "--launches", "1")
    ran = gputui(*words, env={"GPUTUI_STATE": str(state)})
    assert ran.returncode == 1, ran.stderr
    (run_dir,) = (state / "runs").iterdir()
    return Measured(place / "a.db", ran.stderr, run_dir / "logs")


@pytest.mark.slow
def test_the_messages_of_a_step_are_in_the_logs_and_in_no_file(
    measured: Measured, capsys: pytest.CaptureFixture[str]
) -> None:
    logged = "\n".join(log.read_text() for log in measured.logs.iterdir()) + measured.stderr
    for how in FAILURES:
        assert f"{TOKEN}-{how}" in logged, "the log keeps the message, or the terminal that of a trial"
    assert TOKEN not in texts_in(measured.db)
    assert TOKEN not in printed_about(measured.db, capsys)


@pytest.mark.slow
def test_a_failure_is_reported_with_its_line_and_kind_and_its_message_only_where_it_is_measured(
    measured: Measured, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = printed_json(capsys, "show", "latest", measured.db)["cases"]
    ending = f"; {LOG}"  # of those that were launched; a trial that failed has no log
    reasons = {case["size"]: case["reason"].removesuffix(ending) for case in cases}
    assert reasons == {**{size: reason.removesuffix(ending) for size, reason in FAILURES.items()}, "well": ""}
    verbose = " ".join(printed(capsys, "show", "latest", measured.db, "--verbose")[1].split())
    for case in cases:
        assert case["outcome"] == "oom" or reasons[case["size"]] in verbose
        if case["outcome"] == "failed":
            assert f"{TOKEN}-{case['size']}" in measured.stderr, (
                "the terminal of who measures shows the message"
            )


def test_the_last_line_of_a_program_is_in_the_log_and_in_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "program.toml").write_text(PROFILE)
    db = tmp_path / "a.db"
    ran = gputui_here("run", tmp_path / "program.toml", "--db", db, "--blocks", "5", "--launches", "1")
    assert ran.returncode == 1, ran.stderr
    (run_dir,) = run_directories().iterdir()
    assert any(TOKEN in log.read_text() for log in (run_dir / "logs").iterdir()), "the log keeps the message"
    assert TOKEN not in texts_in(db)
    shown = printed_about(db, capsys)
    assert TOKEN not in shown
    assert "exited with status 3" in shown


@pytest.mark.slow
def test_show_says_where_the_messages_are_only_where_they_are(
    measured: Measured, state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUTUI_STATE", str(state))
    there = "".join(printed(capsys, "show", "latest", measured.db)[1].split())
    assert f"logsofitsworkers,withthemessages:{measured.logs}" in there
    monkeypatch.setenv("GPUTUI_STATE", str(state / "other"))
    _, elsewhere, _ = printed(capsys, "show", "latest", measured.db, "--verbose")
    assert "logs of its workers" not in elsewhere
    assert "failed (my_step.py line 10: RuntimeError): " in " ".join(elsewhere.split())
