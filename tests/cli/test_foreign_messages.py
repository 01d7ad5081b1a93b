"""Messages of foreign code stay in the logs of this machine: they are in no result file and no export."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from command_line import gputui

from gputui.services.support.paths import run_directories

TOKEN = "hf_SECRETxQ7dkW"
LOG = "its message is in the worker's log"

STEP = """
from gputui_worker.contract import Figure, Request, Size, Step, Unsupported, Value, Workload

def build(request):
    import hashlib
    import os
    fails = request.parameters["fails"]
    if fails:
        BUILD
    def run():
        hashlib.sha256(bytes(2**18)).digest()
        if fails:
            RUN
    return Step(run, LAST) if fails else Step(run)

WORKLOAD = Workload(
    name="hashing",
    version=1,
    title="hashing",
    question="How fast?",
    workload_class="host",
    unit="B",
    sizes={
        "mini": Size({"fails": False}, 2.0**18, None, 2**18, 2**18),
        "wrong": Size({"fails": True}, 2.0**18, None, 2**18, 2**18),
    },
    precisions=("fp32",),
    device_classes=("cpu",),
    needs_torch=False,
    build=build,
    figures=(Figure("p99_s", "p99 latency", "s", "less", "median"),),
)
"""

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


def check_token_stays(place: Path, what: Path) -> str:
    """Run it: the token is in the logs and on the terminal, and nowhere else. Returns what `show` prints."""
    db = place / "a.db"
    ran = gputui("run", what, "--db", db, "--blocks", "5", "--launches", "1")
    assert ran.returncode in (0, 1), ran.stderr
    assert TOKEN not in texts_in(db)
    (run_dir,) = run_directories().iterdir()
    logs = run_dir / "logs"
    assert any(TOKEN in log.read_text() for log in logs.iterdir()), "the log keeps the message"
    shown = gputui("show", "latest", db)
    assert (shown.returncode, shown.stderr) == (0, "")
    made = [shown.stdout, gputui("show", "latest", db, "--json").stdout]
    for form in ("text", "json", "html", "markdown", "csv"):
        compared = gputui("compare", db, db, "--format", form)
        assert compared.stdout, compared.stderr
        made += [compared.stdout, compared.stderr]
    assert TOKEN not in "\n".join(made)
    if ran.returncode == 1:
        assert TOKEN in ran.stderr, "the terminal of who measures shows the message"
    return shown.stdout + ran.stderr


FAILURES = {
    "build raises": (
        {"BUILD": f"raise RuntimeError('401 for {TOKEN}')"},
        f"my_step.py line 9: RuntimeError; {LOG}",
    ),
    "an error of its own": (
        {"BUILD": f"class LoginError(Exception): pass\n        raise LoginError('{TOKEN}\\n{TOKEN}')"},
        f"my_step.py line 10: LoginError; {LOG}",
    ),
    "an error from an error": (
        {"BUILD": f"try: 1 / 0\n        except Exception as e: raise OSError('{TOKEN} /{TOKEN}') from e"},
        f"my_step.py line 10: OSError; {LOG}",
    ),
    "a step raises": (
        {"RUN": f"raise ValueError('{TOKEN}')"},
        f"my_step.py line 13: ValueError; {LOG}",
    ),
    "our error with their message": (
        {"BUILD": f"raise Unsupported('{TOKEN}')"},
        f"my_step.py line 9: Unsupported; {LOG}",
    ),
    "not implemented": (
        {"BUILD": f"raise NotImplementedError(\"Could not run 'aten::{TOKEN}'\")"},
        f"my_step.py line 9: NotImplementedError (torch has no such operator for this device); {LOG}",
    ),
    "out of memory": (
        {"RUN": f"raise RuntimeError('{TOKEN}: out of memory. Tried to allocate 2.50 GiB {TOKEN}')"},
        f"my_step.py line 13: RuntimeError (tried to allocate 2.50 GiB); {LOG}",
    ),
    "the loss is no number": (
        {"LAST": f"loss=lambda: '{TOKEN}'"},
        f"ValueError; {LOG}",
    ),
    "a fault": (
        {"LAST": f"fault=lambda: 'wrong for {TOKEN}'"},
        "the step found its work wrong: told in the worker's log",
    ),
    "a figure that is not there": (
        {"LAST": f"figures=lambda ns: {{'p99_s': Value(None, 0, 'no {TOKEN}')}}"},
        "",
    ),
    "a worker that dies": (
        {"BUILD": f"print('bye {TOKEN}', flush=True); os._exit(3)"},
        "the worker left early with status 3",
    ),
}


@pytest.mark.parametrize(("parts", "expected"), FAILURES.values(), ids=list(FAILURES))
def test_the_message_of_a_step_is_in_the_log_and_in_no_file(
    tmp_path: Path, parts: dict[str, str], expected: str
) -> None:
    text = STEP
    for name, default in (("BUILD", "pass"), ("RUN", "pass"), ("LAST", "")):
        text = text.replace(name, parts.get(name, default), 1)
    (tmp_path / "my_step.py").write_text(text)

    shown = check_token_stays(tmp_path, tmp_path / "my_step.py")

    assert expected in " ".join(shown.split())


def test_the_last_line_of_a_program_is_in_the_log_and_in_no_file(tmp_path: Path) -> None:
    (tmp_path / "program.toml").write_text(PROFILE)

    shown = check_token_stays(tmp_path, tmp_path / "program.toml")

    assert "exited with status 3" in shown


def test_show_says_where_the_messages_are_only_where_they_are(tmp_path: Path) -> None:
    text = STEP.replace("BUILD", f"raise RuntimeError('{TOKEN}')", 1)
    (tmp_path / "my_step.py").write_text(text.replace("RUN", "pass", 1).replace("LAST", "", 1))
    gputui("run", tmp_path / "my_step.py", "--db", tmp_path / "a.db", "--launches", "1")
    (run_dir,) = run_directories().iterdir()
    there = "".join(gputui("show", "latest", tmp_path / "a.db").stdout.split())
    assert f"logsofitsworkers,withthemessages:{run_dir / 'logs'}" in there
    shown = ("show", "latest", tmp_path / "a.db", "--verbose")
    elsewhere = gputui(*shown, env={"GPUTUI_STATE": str(tmp_path / "other")})
    assert "logs of its workers" not in elsewhere.stdout
    assert LOG in " ".join(elsewhere.stdout.split())
