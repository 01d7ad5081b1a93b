"""The profiled pass from the worker's messages to the file, the screen and a notebook; and its failures."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import make_interpreter, make_machine
from journals import RUN_ID, write_lines
from profiled_passes import LINEAR, MESSAGE, MM, PASS, scripted, stored, with_pass
from rich.cells import cell_len
from supervised import Supervised

import gputui
from gputui.cli import main
from gputui.model.absent import Missing
from gputui.model.journal import (
    CaseEnd,
    CaseWarm,
    Event,
    LaunchEnd,
    LaunchStart,
    ProfiledPass,
    RunEnd,
    TimeSlice,
    without_result,
)
from gputui.model.plan import TIMED, Plan
from gputui.services.profiles.loader import find_profile, read_profile
from gputui.services.profiles.planner import Choices, resolve_plan
from gputui.services.results.run_forms import keep_traces, traces_of
from gputui.services.results.step_breakdown import breakdown_of
from gputui.store.journal_reader import read_journal
from gputui.store.reading import open_result

KILLED = "the worker died of SIGKILL, as it does when memory runs out"


def test_a_pass_comes_back_from_a_file_as_it_was_and_a_notebook_has_it_as_tables(tmp_path: Path) -> None:
    db = stored(tmp_path, with_pass(PASS))
    with open_result(db) as file:
        assert file.profiled(RUN_ID) == {0: PASS}
        run = file.run(RUN_ID)
    assert [m.launch_id for m in run.cases[0].measurements] == [0], "its launch measures nothing"
    frames = gputui.load(db)
    assert list(frames.operators["time_ns"]) == [500, 250]
    assert frames.breakdown["time_ns"].sum() == frames.profiled_passes["window_ns"].sum() == 1000
    assert list(frames.memory_points["point"]) == ["start", "peak"]
    assert list(frames.kernels["name"]) == ["sm90_gemm"]


@pytest.mark.parametrize("is_begun", [True, False])
def test_a_pass_that_came_to_nothing_comes_back_with_its_reason(tmp_path: Path, is_begun: bool) -> None:
    lost = without_result(7, 0, "the budget of 50 s is spent")
    lines = [
        line
        for line in with_pass(lost)
        if is_begun or not isinstance(line, LaunchStart | LaunchEnd) or line.launch_id != 7
    ]
    with open_result(stored(tmp_path, lines)) as file:
        assert file.profiled(RUN_ID) == {0: lost}
        found = breakdown_of(lost, file.run(RUN_ID).cases[0])
    assert found == Missing("the budget of 50 s is spent")


def test_a_pass_whose_sums_or_words_do_not_hold_is_left_out_of_the_journal_and_named(tmp_path: Path) -> None:
    late = (TimeSlice("forward", "compute", "", 750), TimeSlice("late", "idle", "python", 250))
    for number, wrong in enumerate(
        (
            replace(PASS, window_ns=1001),
            replace(PASS, operators=(LINEAR,)),
            replace(PASS, operators=(replace(LINEAR, category="magic"), MM)),
            replace(PASS, slices=late),
            replace(PASS, is_valid=False),
            replace(PASS, case_id=1),
            replace(PASS, steps=-1),
        )
    ):
        contents = read_journal(write_lines(tmp_path / f"run-{number}", with_pass(wrong)))
        assert contents.of(ProfiledPass) == ()
        assert any("ProfiledPass" in what for what in contents.damage)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `a.db` has a profiled pass, and `two.db` one of each measured case."""
    place = tmp_path_factory.mktemp("profiled")
    stored(place, with_pass(PASS, replace(PASS, case_id=1), of=(0, 1))).rename(place / "two.db")
    return stored(place, with_pass(PASS)).parent


@pytest.fixture
def output_of(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    monkeypatch.chdir(place)
    monkeypatch.setenv("COLUMNS", "80")

    def command(*words: str) -> str:
        with pytest.raises(SystemExit) as left:
            main(words)
        assert left.value.code == 0
        return capsys.readouterr().out

    return command


def test_show_prints_breakdown_operators_and_memory_and_as_many_operators_as_were_asked_for(
    output_of: Callable[..., str],
) -> None:
    printed = output_of("show", "latest", "a.db", "--verbose")
    assert max(map(cell_len, printed.split("\n"))) <= 80
    rows = [" ".join(line.split()) for line in printed.split("a step of ")[1].split("\n")]
    assert "compute 75 %: forward 50 %, backward 25 %" in rows
    assert "idle: python 25 % (backward)" in rows
    assert "linear 250 ns 50 % 2 forward matmul 8x64,64x64" in rows
    assert "at peak 100 B 50 B 200 B 300 B 10 B 5 B 665 B" in rows
    assert " mm " in printed
    assert " mm " not in output_of("show", "latest", "a.db", "--top", "1")


def test_the_main_step_is_shown_in_full_and_each_other_in_a_line_with_the_command_that_shows_it(
    output_of: Callable[..., str],
) -> None:
    printed = output_of("show", "latest", "two.db", "-v")
    assert re.findall(r"^a step of (\w+) ", printed, re.MULTILINE) == ["matmul", "each"]
    rows = [" ".join(line.split()) for line in printed.split("\n")]
    assert "a step of each other profiled case per step busy idle largest part" in rows
    assert "CNN training mini cpu fp32 1 thread 500 ns 75 % 25 % matmul 75 % (rough)" in rows
    (command,) = re.findall(r"^in full: gputui (.+)$", printed, re.MULTILINE)
    again = output_of(*shlex.split(command))
    assert re.findall(r"^a step of (\w+) ", again, re.MULTILINE) == ["CNN"]
    assert "in full" not in again
    assert "\na step of CNN training" in output_of("show", "latest", "two.db", "--case", "conv_train:mini")
    both = output_of("show", "latest", "two.db", "--case", "mini fp32")
    assert len(re.findall(r"^  linear ", both, re.MULTILINE)) == 2


def test_why_explains_of_a_run_the_step_of_its_main_case_alone(output_of: Callable[..., str]) -> None:
    why = output_of("why", "two.db")
    first = " ".join(why.partition("\n\n")[0].split())
    assert re.match(r"A step of matmul takes \S+ \S+, but 500 ns while profiled: of these, 75 % is ", first)
    assert "No cause is named: the profiled step took 0.00x as long as the timed one" in why
    assert not any(words in why for words in ("linear", "CNN training", "next:"))
    assert "\nlinear " in output_of("why", "two.db", "--top", "2")


def test_words_that_no_profiled_case_has_are_answered_with_those_that_were_profiled(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(("show", "latest", str(place / "two.db"), "--case", "decode"))
    out, err = capsys.readouterr()
    assert (left.value.code, out) == (2, "")
    assert "--case decode: this run profiled no case of that name" in err
    assert "matmul mini cpu fp32 all cores, CNN training mini cpu fp32 1 thread" in " ".join(err.split())


def test_json_has_the_whole_pass_and_the_timed_step_beside_it(output_of: Callable[..., str]) -> None:
    cases: list[dict[str, Any]] = json.loads(output_of("show", "latest", "a.db", "--json"))["cases"]
    profiled = cases[0]["profiled"]
    assert profiled["operators"][0]["time_ns"] == 500
    assert profiled["memory"][1]["reserved_bytes"] == {"missing": "there is no caching allocator"}
    assert profiled["timed_step_ns"] > 0
    assert cases[1]["profiled"] is None
    page = (Path(__file__).parents[3] / "docs" / "json.md").read_text()
    (message,) = re.findall(r"^- `profiled`: .*$", page, re.MULTILINE)
    keys = {*profiled, *profiled["operators"][0], *profiled["slices"][0], *profiled["memory"][0]}
    assert keys | set(profiled["kernels"][0]) <= set(re.findall(r"`(\w+)`", message))


def run_of(tmp_path: Path, behaviour: str) -> Supervised:
    run = Supervised(tmp_path / "runs", scripted(tmp_path, behaviour))
    assert (run.end(), run.output()) == (0, "")
    assert [(end.status, end.reason) for end in run.lines(RunEnd)] == [("finished", "")]
    assert [(end.launch_id, end.outcome) for end in run.lines(CaseEnd)] == [(0, "ok")]
    return run


def test_what_a_worker_found_is_written_down_and_the_case_is_as_it_was(tmp_path: Path) -> None:
    run = run_of(tmp_path, f"say('profiled', {MESSAGE}); end()")
    (found,) = run.lines(ProfiledPass)
    assert (found.launch_id, found.case_id, found.is_valid, found.fault()) == (0, 0, True, "")
    assert found.memory[0].reserved_bytes == Missing("there is no caching allocator")
    assert [start.purpose for start in run.lines(LaunchStart)] == [TIMED]


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("sys.exit(3)", "the worker left early with status 3"),
        (
            (
                f"say('profiled', {MESSAGE.replace('window_ns=10', 'window_ns=11')})\n"
                f"say('profiled', {MESSAGE.replace('case_id=0', 'case_id=5')})\nend()"
            ),
            "its worker sent none",
        ),
        ("say('profiled', case_id=0, operators='many'); die()", KILLED),
    ],
)
def test_a_worker_that_dies_or_lies_costs_the_pass_and_nothing_else(
    tmp_path: Path, behaviour: str, reason: str
) -> None:
    run = run_of(tmp_path, behaviour)
    (found,) = run.lines(ProfiledPass)
    assert (found.is_valid, found.reason) == (False, reason)
    said = [event.message.rpartition(": ")[2] for event in run.lines(Event)]
    assert said == ["a line of the worker made no sense"] * behaviour.count("say")


def test_a_case_that_was_not_measured_is_not_profiled(tmp_path: Path) -> None:
    plan = scripted(tmp_path, "end()")
    text = Path(plan.interpreter[-1]).read_text()
    Path(plan.interpreter[-1]).write_text(
        text.replace("ids: measure(case_id)", "ids: end_case(case_id, 'oom', 'x', 0)")
    )
    run = Supervised(tmp_path / "runs", plan)
    assert run.end() == 0
    assert [start.purpose for start in run.lines(LaunchStart)] == [TIMED]
    assert (run.lines(ProfiledPass), run.lines(CaseWarm)) == ((), ())


def _profiled_of(plan: Plan) -> list[tuple[int, str, str]]:
    """Replicate, workload and precision of each profiled pass, in order."""
    cases = [(one.replicate, plan.cases[case_id].case) for one in plan.launches for case_id in one.profiled]
    return [(replicate, case.work.workload, case.variant.precision) for replicate, case in cases]


def test_each_pass_profiles_one_case_of_a_group_and_traces_are_requested_of_all_that_can_be_traced() -> None:
    def planned(choices: Choices) -> Plan:
        return resolve_plan(find_profile("quick"), make_interpreter(), make_machine(), choices)

    assert _profiled_of(planned(Choices(replicates=3))) == [(0, "gpt_train", "amp"), (1, "gpt_train", "fp32")]
    assert _profiled_of(planned(Choices(replicates=1))) == [(0, "gpt_train", "amp"), (0, "gpt_train", "fp32")]
    traced = planned(Choices(only=("gemm", "conv_train"), keeps_traces=True))
    assert traced.keeps_traces
    assert {workload for _, workload, _ in _profiled_of(traced)} == {"gemm", "conv_train"}


def test_a_profile_cannot_ask_for_the_profile_of_what_no_profiler_sees() -> None:
    head = 'schema = 1\nversion = 1\ntitle = "t"\nquestion = "q"\nbudget_s = 10\nreplicates = 1\n'
    case = 'workload = "spin"\nsizes = ["mini"]\ndevices = ["cpu"]\nprecisions = ["fp32"]\nprofiled = true\n'
    with pytest.raises(gputui.errors.GputuiError, match="case 1: spin: profiled: True is not allowed"):
        read_profile(f"{head}[[case]]\n{case}", "t", "t.toml")


def test_traces_lie_beside_the_file_and_are_copied_once(tmp_path: Path) -> None:
    run_dir, db = tmp_path / "run", tmp_path / "sub" / "a.db"
    (run_dir / "traces").mkdir(parents=True)
    db.parent.mkdir()
    (run_dir / "traces" / "gpt.json.gz").write_bytes(b"first")
    (kept,) = keep_traces(run_dir, RUN_ID, db)
    (run_dir / "traces" / "gpt.json.gz").write_bytes(b"second")
    assert keep_traces(run_dir, RUN_ID, db) == traces_of(RUN_ID, db) == (kept,)
    assert kept == tmp_path / "sub" / "a-traces" / f"{RUN_ID[-8:]}-gpt.json.gz"
    assert kept.read_bytes() == b"first"
