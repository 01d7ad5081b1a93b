"""Users' workloads: measured, compared and stored like built-in ones; mistakes are reported with their
line."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from builders import make_interpreter, make_machine
from command_line import gputui_here, printed
from own_steps import STEP

from gputui.errors import EXIT_CASE_FAILED
from gputui.model.plan import Plan
from gputui.services.profiles.planner import resolve_plan
from gputui.services.profiles.user_workload import after_trial, profile_of_step


@pytest.fixture
def step(tmp_path: Path) -> Path:
    """A workload of the standard library, with a second module in its directory."""
    (tmp_path / "beside.py").write_text("def pieces_of(request):\n    return request.integer('pieces')\n")
    path = tmp_path / "my_step.py"
    path.write_text(STEP)
    return path


@pytest.mark.slow
def test_a_step_is_measured_stored_and_compared_like_ours(step: Path, tmp_path: Path) -> None:
    for name, version in (("a", 1), ("b", 2)):
        step.write_text(STEP.replace("version=1", f"version={version}"))
        done = gputui_here("run", step, "--db", tmp_path / f"{name}.db", "--launches", "1", "--blocks", "5")
        assert done.returncode == 0, done.stderr
        assert "step:hashing " in done.stdout
    (case,) = json.loads(gputui_here("show", "latest", tmp_path / "a.db", "--json").stdout)["cases"]
    assert case["speed"]["units_per_s"] > 0
    compared = gputui_here("compare", tmp_path / "a.db", tmp_path / "a.db", "--format", "json")
    (row,) = json.loads(compared.stdout)["comparisons"][0]["rows"]
    assert row["verdict"] in ("inconclusive", "same")
    apart = gputui_here("compare", tmp_path / "a.db", tmp_path / "b.db", "--format", "json")
    rows = json.loads(apart.stdout)["comparisons"][0]["rows"]
    assert [row["verdict"] for row in rows] == ["not comparable"] * 2, "another version is other work"


def plan_of(step: Path) -> Plan:
    plan = resolve_plan(profile_of_step(step, sys.executable), make_interpreter(cuda=None), make_machine())
    return replace(plan, interpreter=(sys.executable,))


def test_the_budget_of_a_slow_step_alone_comes_from_its_first_steps_and_is_said(step: Path) -> None:
    quick = plan_of(step)
    assert after_trial(quick) == (quick, [])
    step.write_text(
        STEP.replace("import hashlib", "import hashlib, time").replace(
            "lambda: ", "lambda: time.sleep(1.6) or "
        )
    )
    plan = plan_of(step)
    longer, (said,) = after_trial(plan)
    assert said.startswith(("a step takes 1.6", "a step takes 1.7"))
    assert plan.budget_s == 30.0
    assert 3 * 6 * 1.6 < longer.budget_s < 90
    assert f"the run gets {longer.budget_s} s" in said


def test_a_step_that_fails_when_it_is_tried_is_named_once_with_its_error_and_no_launch_begins(
    step: Path, tmp_path: Path
) -> None:
    step.write_text(STEP.replace("lambda: ", "lambda: 1 / 0 or "))
    done = gputui_here("run", step, "--db", tmp_path / "a.db", "--yes")
    assert done.returncode == EXIT_CASE_FAILED
    said = "step:hashing mini cpu fp32 all cores failed when it was tried"
    why = "my_step.py line 8: ZeroDivisionError: division by zero"
    assert f"{said}: {why}" in " ".join(done.stderr.split())
    assert done.stderr.count("division by zero") == 1
    assert "launch 1" not in done.stderr
    (case,) = json.loads(gputui_here("show", "latest", tmp_path / "a.db", "--json").stdout)["cases"]
    assert (case["outcome"], case["speed"]["units_per_s"]) == ("failed", None)


def test_of_two_sizes_the_one_that_fails_when_it_is_tried_is_not_launched_and_the_other_is(
    step: Path,
) -> None:
    mini = 'sizes={"mini": Size({"pieces": 8}, 8 * 2.0**18, None, 8 * 2**18, 2**18)'
    base = mini.replace("sizes={", "").replace("mini", "base").replace('"pieces": 8', '"pieces": 9')
    fails = "lambda: 1 / (9 - request.integer('pieces')) and "
    step.write_text(STEP.replace(mini, f"{mini}, {base}").replace("lambda: ", fails))
    kept, said = after_trial(plan_of(step))
    by_size = {case.case.work.size: case for case in kept.cases}
    assert by_size["mini"].outcome is None
    assert by_size["base"].outcome == "failed"
    assert by_size["base"].reason == "my_step.py line 8: ZeroDivisionError"
    assert [one.partition(" failed when it was tried: ")[0] for one in said] == [by_size["base"].case.name]
    assert [launch.case_ids for launch in kept.launches] == [(by_size["mini"].case_id,)] * 3


def test_profiles_shows_what_of_a_step_would_run_here(step: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = printed(capsys, "profiles", step)
    assert status == 0
    assert "would run here (1):\n  step:hashing mini cpu fp32 all cores" in out


@pytest.mark.slow
def test_the_template_runs_at_once(tmp_path: Path) -> None:
    made = gputui_here("new-workload", tmp_path / "mine.py")
    assert made.returncode == 0
    brief = ("--budget", "600", "--blocks", "5", "--launches", "1")
    done = gputui_here("run", tmp_path / "mine.py", "--db", tmp_path / "a.db", *brief)
    assert done.returncode == 0, done.stderr
    cases = json.loads(gputui_here("show", "latest", tmp_path / "a.db", "--json").stdout)["cases"]
    assert {case["precision"] for case in cases if case["outcome"] == "ok"} == {"fp32", "amp"}


def test_a_template_is_never_written_over_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.py"
    assert printed(capsys, "new-workload", path)[0] == 0
    path.write_text("# mine\n")
    status, out, err = printed(capsys, "new-workload", path)
    assert (status, out) == (2, "")
    assert "already exists" in err
    assert path.read_text() == "# mine\n"
    assert printed(capsys, "new-workload", tmp_path / "mine.txt")[0] == 2
    status, _, err = printed(capsys, "run", tmp_path / "gone.py", "--db", tmp_path / "a.db")
    assert (status, "new-workload" in err) == (2, True)


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("def build(request):", "def build(request:", "my_step.py line 5:"),
        ("from beside import", "from beyond import", "my_step.py line 3: ModuleNotFoundError"),
        ("WORKLOAD = Work", "raise SystemExit(3)\nWORKLOAD = Work", "my_step.py line 10: SystemExit: 3"),
        ("WORKLOAD = ", "WORK = ", "no WORKLOAD; expected WORKLOAD = Workload"),
        (STEP[STEP.index("Workload(\n") :], "7\n", "my_step.py line 10: WORKLOAD is of type int"),
        ('name="hashing"', 'name="My Step"', "my_step.py line 11: name: 'My Step'; expected 1 to 40"),
        ("version=1", "version=0", "my_step.py line 12: version: 0; expected a whole number"),
        ('unit="B"', 'unit="sample"', "my_step.py line 16: unit: 'sample'; expected one of flop, B, img"),
        (
            'workload_class="host"',
            'workload_class="mine"',
            "line 15: workload_class: 'mine'; expected one of",
        ),
        ('("fp32",)', '("fp33",)', "line 18: precisions: ('fp33',); expected some of fp32"),
        ("8 * 2.0**18, None", "float('nan'), None", "line 17: sizes: mini: units_per_step is nan; expected"),
        ('{"pieces": 8}', '{"pieces": float("inf")}', "line 17: sizes: mini: parameter pieces is inf;"),
        ('{"pieces": 8}', '{"pieces": 2**70}', "expected a finite number, whole ones of 64 bits"),
        ('{"pieces": 8}', "{8: 8}", "line 17: sizes: mini: the name of a parameter is 8;"),
        ("2.0**18, None", "2.0**18, 2**70", "line 17: sizes: mini: flops_per_step is 1180591620717411303424"),
        (
            '{"mini": Size',
            '{"mini": list(), "x": Size',
            "line 17: sizes: mini is []; expected Size(parameters",
        ),
        (
            "build=build",
            "build=build,\n    figures=('p99_s',)",
            "line 22: figures: ('p99_s',); expected a tuple of Figure",
        ),
        ("build=build", "build=None", "line 21: build: None; expected a function"),
    ],
)
def test_a_mistake_in_a_step_is_reported_with_file_line_and_what_was_expected(
    step: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, wanted: str
) -> None:
    assert old in STEP
    step.write_text(STEP.replace(old, new))
    status, out, err = printed(capsys, "run", step, "--db", tmp_path / "a.db")
    assert (status, out) == (2, "")
    assert wanted in err, err
    assert "Traceback" not in err
    assert not (tmp_path / "a.db").exists()


@pytest.mark.slow
def test_an_error_in_mid_run_fails_the_case_with_its_line(step: Path, tmp_path: Path) -> None:
    step.write_text(STEP.replace("    return Step(lambda:", "    return (lambda:"))
    done = gputui_here("run", step, "--db", tmp_path / "a.db")
    assert done.returncode == 1, done.stderr
    (case,) = json.loads(gputui_here("show", "latest", tmp_path / "a.db", "--json").stdout)["cases"]
    assert case["outcome"] == "failed"
    assert case["reason"].startswith("my_step.py line 5: build gave function; expected Step")
