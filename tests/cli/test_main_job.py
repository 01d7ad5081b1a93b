"""The main use of the command line: real processes, real files, `spin` as the work."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import gputui_here, write_failing_profile, write_program_profile, write_spin_profile

BOTH = ("1", "all")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile, and a result file of this box."""
    place = tmp_path_factory.mktemp("job")
    write_spin_profile(place / "spin.toml", threads=BOTH)
    state = {"GPUTUI_STATE": str(place / "state"), "XDG_CONFIG_HOME": str(place / "config")}
    ssh = {"SSH_CONNECTION": "203.0.113.9 50000 2001:db8::7 2222", "USER": "ana"}
    done = gputui_here("run", place / "spin.toml", "--db", place / "a.db", env={**state, **ssh})
    assert done.returncode == 0, done.stderr
    (place / "a.txt").write_text(done.stdout)
    (place / "a.err").write_text(done.stderr)
    return place


def test_a_run_ends_with_results_the_word_on_the_box_and_what_to_type_next(place: Path) -> None:
    output = (place / "a.txt").read_text()
    assert re.match(
        r"\nHashing on all cores: [\d.]+ [MG]B/s\.\n(Other programs had the CPU (?:.|\n)*?\.\n)?"
        r"\ncase \(mini cpu fp32\) +rate +95 % range( +the box gave)?\n",
        output,
    )
    assert re.search(r"^hashing 1t +[\d.]+ [MG]B/s", output, re.MULTILINE)
    assert f"stored as {output.split('stored as ')[1][:8]}" in output
    assert re.search(r"gputui (compare|run --like) \S*a\.db", output)
    assert f"scp -P 2222 ana@[2001:db8::7]:{place / 'a.db'} ." in output


def test_without_a_terminal_progress_is_one_plain_line_per_event(place: Path) -> None:
    output = (place / "a.err").read_text()
    assert "\r" not in output
    assert "\x1b" not in output
    assert len(re.findall(r"^\d:\d\d launch 1 of hashing", output, re.MULTILINE)) == 2
    assert len(re.findall(r"^\d:\d\d hashing.*: launch 1 of 1 ok, ", output, re.MULTILINE)) == 2


@pytest.mark.slow
def test_a_planted_slowdown_is_called_slower_unless_others_held_the_cpus(place: Path) -> None:
    # four times: with one launch a side, a factor of 1.5 is significant in most pairs only
    gputui_here("run", place / "spin.toml", "--db", place / "b.db", env={"GPUTUI_SPIN_WORK": "4"})
    done = gputui_here("compare", place / "a.db", place / "b.db", "--format", "json")
    rows = json.loads(done.stdout)["comparisons"][0]["rows"]
    assert [row["threads"] for row in rows] == ["1", "all"]
    for row in rows:
        if row["flags"] or "CPU contention" in row["reason"]:
            assert row["verdict"] in ("slower", "inconclusive")
        else:
            assert row["verdict"] == "slower"
            assert row["ratio"]["b_against_a"] < 0.85


def test_every_key_of_the_json_output_is_documented(place: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "json.md").read_text()
    compared = json.loads(gputui_here("compare", place / "a.db", place / "a.db", "--format", "json").stdout)
    shown = json.loads(gputui_here("show", "latest", place / "a.db", "--json").stdout)
    comparison = compared["comparisons"][0]
    keys = {*compared, *comparison, *comparison["rows"][0], *comparison["rows"][0]["ratio"]}
    keys |= {
        *comparison["groups"][0],
        *(comparison["groups"][0]["mean"] or ()),
    }  # none where nothing is decided
    keys |= {*shown["cases"][0], *shown["cases"][0]["speed"]}
    undocumented = {key for key in keys if f"`{key}`" not in page} - {"schema"}
    assert undocumented - {"device_name"} == set()


def test_the_variants_of_one_file_are_compared_with_each_other(place: Path) -> None:
    done = gputui_here("compare", place / "a.db", "--by", "threads")
    assert done.returncode == 0
    assert "threads 1" in done.stdout
    assert "threads all" in done.stdout


def test_storing_a_run_directory_again_adds_nothing(place: Path) -> None:
    (run_dir,) = (place / "state" / "runs").iterdir()
    before = gputui_here("runs", place / "a.db", "--json").stdout
    done = gputui_here("import", run_dir, "--db", place / "a.db")
    assert done.returncode == 0
    assert "already there" in done.stdout
    assert gputui_here("runs", place / "a.db", "--json").stdout == before


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_stopped_run_keeps_what_is_finished(tmp_path: Path, number: signal.Signals) -> None:
    profile = write_spin_profile(tmp_path / "spin.toml", threads=BOTH)
    with subprocess.Popen(
        [sys.executable, "-m", "gputui", "run", str(profile), "--db", str(tmp_path / "a.db")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stderr is not None
        begun = (line for line in run.stderr if " launch 1 of " in line)
        assert next(begun) != next(begun)  # the second case
        run.send_signal(number)
        run.communicate(timeout=300)
        assert run.returncode == 128 + number
    stored = json.loads(gputui_here("runs", tmp_path / "a.db", "--json").stdout)["runs"]
    assert [s["status"] for s in stored] == ["interrupted"]
    cases = json.loads(gputui_here("show", "latest", tmp_path / "a.db", "--json").stdout)["cases"]
    assert sorted(case["outcome"] for case in cases) == ["interrupted", "ok"]


@pytest.mark.slow
def test_a_run_exits_with_1_and_says_why_if_one_launch_of_a_case_failed(tmp_path: Path) -> None:
    program = f"mkdir {tmp_path}/first && exit 3; exit 0"
    profile = write_program_profile(tmp_path / "once.toml", program, replicates=3)
    done = gputui_here("run", profile, "--db", tmp_path / "a.db")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 of 3 launches" in done.stdout
    assert "exited with status 3" in done.stdout


def test_a_run_that_measured_nothing_leads_to_its_reasons_not_to_a_comparison_or_its_removal(
    tmp_path: Path,
) -> None:
    db = str(tmp_path / "a.db")
    done = gputui_here("run", write_failing_profile(tmp_path / "bad.toml"), "--db", db)
    assert done.returncode == 1
    assert "gputui compare" not in done.stdout
    assert "gputui rm" not in done.stdout
    (show,) = re.findall(r"gputui (show) (\w{8}) (\S+)", done.stdout.split("next: ")[1])
    assert "the disk is gone" in done.stderr  # the program's output, which stays out of the file
    shown = gputui_here(*show).stdout
    assert "the disk is gone" not in shown
    assert "-v  # why nothing was measured" in shown
    assert "gputui compare" not in shown
    logs = Path(re.sub(r"\s", "", shown.partition("with the messages:")[2].partition("/logs")[0]) + "/logs")
    assert any("the disk is gone" in log.read_text() for log in logs.iterdir())
