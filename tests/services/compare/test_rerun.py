"""Which cases of a stored run can be repeated, and why others cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hand_made import make_run, measured, steady, unmeasured
from journals import CPU_MACHINE, GPU_MACHINE, RUNTIME

from gputui.errors import EXIT_USAGE, GputuiError
from gputui.model.plan import Case, Variant, program_case
from gputui.model.result import CaseResult
from gputui.services.compare.rerun import (
    RepeatedRun,
    Repetition,
    differences_here,
    launches_per_case,
    repetition_of,
)
from gputui.services.profiles.loader import Profile, ProfileCase, ProfileCommand
from gputui.services.profiles.planner import case_of
from gputui.version import version
from gputui.worker.workloads import workload_named


def real(workload: str, precision: str = "fp32", threads: str = "1", mode: str = "eager") -> Case:
    """The case of a workload in its current version, on a CPU."""
    return case_of(workload_named(workload), "mini", Variant("cpu", precision, mode, threads))


def done(case: Case) -> CaseResult:
    return measured(case, steady(0.1))


def model_of(*cases: CaseResult, profiled: frozenset[int] = frozenset()) -> RepeatedRun:
    return RepeatedRun("a.db@x", make_run(*cases), profiled, "a.db@00000001")


def refused(*cases: CaseResult, given: Profile | None = None) -> str:
    with pytest.raises(GputuiError) as caught:
        repetition_of(model_of(*cases), given)
    assert caught.value.exit_code == EXIT_USAGE
    assert caught.value.hint
    return caught.value.message


def repeated(repetition: Repetition) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    return [(case.workload, case.precisions, case.threads) for case in repetition.profile.cases]


def test_a_case_that_had_too_little_time_or_memory_is_repeated_and_one_that_cannot_run_is_not() -> None:
    short = unmeasured(real("gemm"), "skipped", "the budget of 15 s is spent")
    full = unmeasured(real("conv_train"), "oom", "8 GiB")
    unable = unmeasured(real("membw"), "skipped", "no GPU")
    found = repetition_of(model_of(done(real("spin")), short, full, unable))
    assert [case.workload for case in found.profile.cases] == ["spin", "gemm", "conv_train"]
    assert found.left_out == 1


def test_cases_that_differ_in_precision_share_launches_again_and_others_do_not() -> None:
    found = repetition_of(
        model_of(
            done(real("gemm")),
            done(real("gemm", "amp")),
            done(real("gemm", "amp-fp16")),
            done(real("gemm", threads="all")),
            done(real("spin")),
        )
    )

    assert repeated(found) == [
        ("gemm", ("fp32", "amp", "amp-fp16"), ("1",)),
        ("gemm", ("fp32",), ("all",)),
        ("spin", ("fp32",), ("1",)),
    ]
    assert found.refused == ()


@pytest.mark.parametrize(("status", "launches"), [("interrupted", 3), ("finished", 1)])
def test_launches_are_those_that_the_other_run_made_or_if_it_was_cut_short_planned(
    status: str, launches: int
) -> None:
    model = model_of(done(real("spin")))
    summary = replace(model.run.summary, status=status, replicates=3, budget_s=77.0, profile_version=9)

    profile = repetition_of(replace(model, run=replace(model.run, summary=summary))).profile

    assert (profile.replicates, profile.budget_s) == (launches, 77.0)
    assert (profile.name, profile.version) == ("quick", 9)


def test_a_compiled_case_is_compiled_and_a_profiled_one_profiled_again() -> None:
    compiled = real("gpt_train", "fp32", "all", "compile")

    found = repetition_of(
        model_of(done(real("gpt_train", "fp32", "all")), done(compiled), profiled=frozenset({0}))
    )

    assert [(case.modes, case.is_profiled) for case in found.profile.cases] == [
        (("eager",), True),
        (("compile",), False),
    ]


def changed(case: Case, **parts: object) -> CaseResult:
    return done(replace(case, work=replace(case.work, **parts)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (changed(real("spin"), version=99), "is version 99 there and 1 here: different work"),
        (changed(real("spin"), size="huge"), "there is no size huge here, only mini, base"),
        (
            changed(
                real("spin"), parameters=(("algorithm", "sha256"), ("piece_bytes", 262144), ("pieces", 31))
            ),
            "its size mini is different work here: pieces 31 there, 32 here",
        ),
        (changed(real("spin"), workload="of_ana"), "name the .py file that defines it as well"),
        (done(replace(real("spin"), variant=Variant("cpu", "fp64", "eager", "1"))), "precision fp64 here"),
        (done(replace(real("spin"), variant=Variant("gpu", "fp32", "eager", "host"))), "device gpu here"),
        (done(replace(real("spin"), variant=Variant("cpu", "fp32", "compile", "1"))), "mode compile here"),
    ],
)
def test_what_this_version_cannot_repeat_is_reported_with_the_reason(case: CaseResult, reason: str) -> None:
    assert reason in refused(case)

    found = repetition_of(model_of(done(real("gemm")), case))
    assert [why for _, why in found.refused if reason in why]
    assert [entry.workload for entry in found.profile.cases] == ["gemm"]


def test_a_workload_of_somebodys_own_is_repeated_from_its_file() -> None:
    own = replace(workload_named("spin"), name="hashing", version=4)
    case = case_of(own, "mini", Variant("cpu", "fp32", "eager", "all"))
    given = Profile("step", 4, "own", "?", 10, 1, (), own=own, own_file="/somewhere/step.py")

    assert "name the .py file that defines it as well" in refused(done(case))
    profile = repetition_of(model_of(done(case)), given).profile
    assert profile.own == given.own
    assert [entry.workload for entry in profile.cases] == ["hashing"]
    changed_since = replace(given, own=replace(own, version=5))
    assert "is version 4 there and 5 here" in refused(done(case), given=changed_since)


def program(workload: str, units: float = 1.0) -> CaseResult:
    return done(
        program_case(
            workload, 1, is_whole=True, device_class="cpu", unit="run", units=units, workload_class="host"
        )
    )


def profile_with(command: ProfileCommand) -> Profile:
    return Profile("own", 1, "own", "?", 10, 1, (), (command,))


SLEEP = ProfileCommand("nap", 1, ("sleep", "0.01"), "", "run", 1.0, "cpu", "host", 1.0)


def test_a_program_is_repeated_from_the_profile_that_declares_it_and_only_from_one() -> None:
    assert "give its profile.toml" in refused(program("command:nap"))
    found = repetition_of(model_of(program("command:nap")), profile_with(SLEEP))
    assert found.profile.commands == (SLEEP,)
    assert "gputui record" in refused(program("record:train"))
    assert "differs in the given profile" in refused(program("command:nap", 5.0), given=profile_with(SLEEP))


def test_cases_of_the_given_profile_that_the_other_run_did_not_have_are_not_added() -> None:
    spin = ProfileCase("gemm", ("mini",), ("cpu",), ("fp32",), ("1",), 1.0)
    given = replace(profile_with(SLEEP), cases=(spin,))

    assert repeated(repetition_of(model_of(done(real("spin"))), given)) == [("spin", ("fp32",), ("1",))]


def test_differences_are_reported_as_there_and_here_and_there_is_none_in_the_same_place() -> None:
    model = model_of(done(real("spin")))
    older, same = (
        replace(model, run=replace(model.run, summary=replace(model.run.summary, gputui_version=one)))
        for one in ("0.0.9", version())
    )

    other = replace(RUNTIME, torch_version="9.9.9")
    differences = {what: (on_a, on_b) for what, on_a, on_b in differences_here(older, GPU_MACHINE, other)}

    assert differences["torch"] == (str(RUNTIME.torch_version), "9.9.9")
    assert differences["gputui"] == ("0.0.9", version())
    assert differences["GPU"][0] == "none"
    assert differences_here(same, CPU_MACHINE, RUNTIME) == ()


def test_a_case_that_was_too_slow_for_more_than_one_launch_takes_none_from_the_others() -> None:
    thrice = measured(real("gemm"), steady(0.1), steady(0.1), steady(0.1))
    run = make_run(done(real("membw")), thrice)
    finished = replace(run, summary=replace(run.summary, status="finished", replicates=5))
    assert launches_per_case(finished) == 3
    assert launches_per_case(replace(run, summary=replace(finished.summary, status="cancelled"))) == 5
