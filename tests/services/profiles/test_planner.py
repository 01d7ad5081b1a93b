"""Which cases of a profile run on a box and which do not, and why: decided without a GPU or torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from builders import (
    GIB,
    H200,
    NINE_GPUS,
    NO_DRIVER,
    T4,
    make_interpreter,
    make_machine,
    make_torchless_interpreter,
)
from hypothesis import given
from hypothesis import strategies as st

from gputui.cli.run import _cases
from gputui.errors import EXIT_MACHINE_LACKS, EXIT_USAGE, GputuiError, MachineLacks
from gputui.facts.tables import find_gpu
from gputui.model.absent import Missing
from gputui.model.machine import Interpreter, Machine
from gputui.model.plan import PLAN_SCHEMA, Case, Parameter, Plan, PlannedCase, Variant, Work
from gputui.services.profiles.loader import (
    Profile,
    ProfileCommand,
    find_profile,
    read_profile,
    shipped_profiles,
)
from gputui.services.profiles.planner import Choices, case_of, device_s, resolve_plan
from gputui.worker.workloads import WORKLOADS, workload_named

QUICK = replace(find_profile("quick"), replicates=1)
CPU_BOX = make_machine()
CPU_TORCH = make_interpreter(cuda=None)
GPU_BOX = make_machine("NVIDIA H200", memory_gib=256)


def cases_of(
    plan: Plan, workload: str = "", device_class: str = "", precision: str = ""
) -> list[PlannedCase]:
    return [
        planned
        for planned in plan.cases
        if workload in ("", planned.case.work.workload)
        and device_class in ("", planned.case.variant.device_class)
        and precision in ("", planned.case.variant.precision)
    ]


def one_case(workload: str, size: str, device: str, *precisions: str) -> Profile:
    """A profile of one workload in one size."""
    listed = ", ".join(f'"{precision}"' for precision in precisions)
    text = f"""schema = 1
version = 1
title = "one"
question = "one?"
budget_s = 60
replicates = 1
[[case]]
workload = "{workload}"
sizes = ["{size}"]
devices = ["{device}"]
precisions = [{listed}]
"""
    return read_profile(text, "one", "one.toml")


def outcomes(planned: Sequence[PlannedCase]) -> set[tuple[str | None, str]]:
    return {(case.outcome, case.reason) for case in planned}


@pytest.mark.parametrize("profile", shipped_profiles(), ids=lambda profile: profile.name)
def test_on_a_cpu_box_the_gpu_rows_are_listed_as_skipped_with_the_reason(profile: Profile) -> None:
    plan = resolve_plan(profile, CPU_TORCH, CPU_BOX, Choices(rendezvous="10.0.0.1:29400"))
    assert outcomes(cases_of(plan, device_class="gpu")) == {("skipped", f"no GPU: {NO_DRIVER}")}
    runnable = cases_of(plan, device_class="cpu", precision="fp32")
    assert outcomes(runnable) == {(None, "")}
    launched = {case_id for launch in plan.launches for case_id in launch.case_ids}
    assert launched == {case.case_id for case in plan.cases if case.outcome is None}


NO_KERNELS = "this torch has no kernels for compute capability 10.0 (it has sm_80 sm_90)"
B200 = replace(H200, name="NVIDIA B200", compute_capability="10.0", runs_here=False, why_not=NO_KERNELS)


@pytest.mark.parametrize(
    ("interpreter", "gpu", "outcome", "reason"),
    [
        (
            CPU_TORCH,
            "NVIDIA H200",
            "skipped",
            "torch 2.13.0+cpu cannot use NVIDIA H200: it is a build without CUDA",
        ),
        (
            make_interpreter(),
            "NVIDIA H200",
            "skipped",
            "torch 2.13.0+cu130 cannot use NVIDIA H200: CUDA_VISIBLE_DEVICES, or the container, may hide it",
        ),
        (
            make_torchless_interpreter(),
            "NVIDIA H200",
            "skipped",
            "NVIDIA H200 is idle: torch not installed",
        ),
        (
            make_interpreter(B200),
            "NVIDIA B200",
            "unsupported",
            f"torch 2.13.0+cu130 cannot use NVIDIA B200: {NO_KERNELS}",
        ),
    ],
    ids=["built for the CPU", "hidden", "no torch", "no kernels"],
)
def test_why_torch_does_not_use_the_gpu_of_a_box_is_named_as_the_reason(
    interpreter: Interpreter, gpu: str, outcome: str, reason: str
) -> None:
    plan = resolve_plan(QUICK, interpreter, make_machine(gpu))
    assert outcomes(cases_of(plan, device_class="gpu")) == {(outcome, reason)}
    assert {launch.device.device_class for launch in plan.launches} <= {"cpu"}


def test_each_of_several_intel_gpus_is_measured_unless_their_numbers_are_not_torchs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arcs = [
        replace(H200, torch_device="xpu", index=n, name=name, uuid="", pci_address="", compute_capability="")
        for n, name in enumerate(("Intel Arc A380", "Intel Arc B580"))
    ]
    two, box = make_interpreter(*arcs, cuda=None), make_machine()
    for device in ("", "gpu", "gpu:0", "xpu:0"):
        plan = resolve_plan(QUICK, two, box, Choices(device=device))
        names = {launch.device.name for launch in plan.launches if launch.device.device_class == "gpu"}
        assert names == {"Intel Arc A380"}
    command = ProfileCommand("nap", 1, ("sleep", "0"), "", "run", 1.0, "gpu", "host", 1.0)
    program = Profile("naps", 1, "", "", 60, 1, (), commands=(command,))
    for profile in (QUICK, program):
        plan = resolve_plan(profile, two, box, Choices(device="gpu:1"))
        assert {(x.device.name, x.device.visible) for x in plan.launches} == {("Intel Arc B580", "1")}
        plan = resolve_plan(profile, two, box, Choices(device="all"))
        assert {x.device.visible for x in plan.launches} == {"0", "1"}
    for variable, value in (("ONEAPI_DEVICE_SELECTOR", "level_zero:0,2"), ("ZE_AFFINITY_MASK", "0.0,0.1")):
        with monkeypatch.context() as environment:
            environment.setenv(variable, value)
            for device in ("gpu:1", "xpu:1", "all"):
                for profile in (QUICK, program):
                    with pytest.raises(
                        MachineLacks, match="Intel Arc B580 is xpu device 1, and ONEAPI"
                    ) as raised:
                        resolve_plan(profile, two, box, Choices(device=device))
                    assert raised.value.hint == "show torch that one alone"
    alone = make_interpreter(replace(arcs[1], index=0), cuda=None)  # as torch sees it behind that variable
    plan = resolve_plan(QUICK, alone, box, Choices(device="all"))
    assert {launch.device.name for launch in plan.launches} == {"Intel Arc B580"}


def test_of_several_devices_of_a_kind_without_a_variable_another_than_the_first_is_refused() -> None:
    two = make_interpreter(
        *(replace(H200, torch_device="npu", index=n, name=f"NPU {n}", uuid="") for n in range(2)), cuda=None
    )
    plan = resolve_plan(QUICK, two, make_machine(), Choices(device="gpu:0"))
    assert {launch.device.name for launch in plan.launches} == {"NPU 0"}
    with pytest.raises(MachineLacks, match="NPU 1 is npu device 1, and of several only the first can be"):
        resolve_plan(QUICK, two, make_machine(), Choices(device="gpu:1"))


def test_a_t4_a_cpu_and_an_amd_gpu_have_no_tf32_and_still_run_the_rest() -> None:
    plan = resolve_plan(QUICK, make_interpreter(T4), make_machine("Tesla T4"))
    tf32 = cases_of(plan, device_class="gpu", precision="tf32")
    assert outcomes(tf32) == {("unsupported", "Tesla T4 has no TF32: compute capability 8.0 is needed")}
    for precision in ("fp32", "amp"):
        assert outcomes(cases_of(plan, device_class="gpu", precision=precision)) == {(None, "")}
    mi300 = replace(H200, name="AMD Instinct MI300X", compute_capability="9.4")
    plan = resolve_plan(QUICK, make_interpreter(mi300, cuda=None, hip="7.0"), GPU_BOX)
    assert outcomes(cases_of(plan, device_class="cpu", precision="tf32")) == {
        ("unsupported", "TF32 is a mode of NVIDIA GPUs")
    }
    assert {case.outcome for case in cases_of(plan, device_class="gpu", precision="tf32")} == {"unsupported"}


def test_on_an_h200_the_three_precisions_are_interleaved_in_one_launch() -> None:
    plan = resolve_plan(QUICK, make_interpreter(H200), GPU_BOX, Choices(device="gpu"))
    assert {case.outcome for case in plan.cases} == {None}
    by_launch = [[plan.cases[i].case for i in launch.case_ids] for launch in plan.launches]
    for cases in by_launch:
        workload = workload_named(cases[0].work.workload)
        wanted = ("fp32", "amp") if workload.name == "decode" else workload.precisions
        assert tuple(case.variant.precision for case in cases) == wanted
        assert len({case.work for case in cases}) == 1
    assert {launch.device.visible for launch in plan.launches} == {H200.uuid}


def test_variants_that_do_not_fit_memory_together_are_launched_apart_and_those_that_measure_it() -> None:
    full, roomy, silent = (
        resolve_plan(
            QUICK,
            make_interpreter(replace(H200, free_bytes=free, memory_bytes=free)),
            GPU_BOX,
            Choices(device="gpu", only=("gpt_train",)),
        )
        for free in (2 * GIB, 140 * GIB, None)
    )
    assert sorted(launch.case_ids for launch in full.launches) == [(c.case_id,) for c in full.cases]
    assert sum(launch.weight for launch in full.launches) == sum(launch.weight for launch in roomy.launches)
    assert silent.launches == roomy.launches, "what is not reported is assumed to be enough"
    profile = one_case("memory_tricks", "mini", "cpu", "fp32", "amp")
    plan = resolve_plan(profile, make_interpreter(), make_machine())
    assert sorted(launch.case_ids for launch in plan.launches) == [(0,), (1,)]


def test_an_interpreter_without_torch_skips_what_needs_it_and_runs_spin() -> None:
    gemm, spin = (one_case(workload, "mini", "cpu", "fp32") for workload in ("gemm", "spin"))
    profile = replace(gemm, cases=(*gemm.cases, *spin.cases))
    plan = resolve_plan(profile, make_torchless_interpreter(), CPU_BOX)
    assert outcomes(cases_of(plan, "gemm")) == {("skipped", "torch not installed")}
    assert outcomes(cases_of(plan, "spin")) == {(None, "")}
    assert [launch.needs_torch for launch in plan.launches] == [False]
    both = resolve_plan(profile, CPU_TORCH, CPU_BOX)
    assert {launch.needs_torch for launch in both.launches} == {False, True}


def test_one_thread_is_one_and_all_are_the_cores_this_process_may_use() -> None:
    plan = resolve_plan(QUICK, CPU_TORCH, make_machine(cores=6))
    by_request = {
        plan.cases[launch.case_ids[0]].case.variant.threads: launch.threads for launch in plan.launches
    }
    assert by_request == {"1": 1, "all": 6}


def plan_of_five(seed: int) -> Plan:
    return resolve_plan(QUICK, make_interpreter(H200), GPU_BOX, Choices(replicates=5, seed=seed))


def order_of(plan: Plan, replicate: int) -> list[tuple[int, ...]]:
    return [launch.case_ids for launch in plan.launches if launch.replicate == replicate]


def test_each_replicate_after_the_second_measures_the_same_launches_in_an_order_of_its_own() -> None:
    plan = plan_of_five(seed=1)
    orders = [order_of(plan, replicate) for replicate in range(5)]
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in orders}) == 4
    assert len({tuple(sorted(order)) for order in orders}) == 1
    replicates = [launch.replicate for launch in plan.launches]
    assert replicates == sorted(replicates)
    assert len({plan_of_five(seed).launches for seed in range(10)}) == 10


@given(st.integers(0, 2**63))
def test_the_order_is_the_seeds_and_launch_ids_follow_it(seed: int) -> None:
    plan = plan_of_five(seed)
    assert plan == plan_of_five(seed)
    assert [launch.launch_id for launch in plan.launches] == list(range(len(plan.launches)))
    assert plan.seed == seed


def test_the_first_two_passes_take_what_people_come_for_first_and_the_gpu_before_the_cpu() -> None:
    for seed in range(3):
        plan = resolve_plan(QUICK, CPU_TORCH, CPU_BOX, Choices(seed=seed, replicates=2))
        for replicate in range(2):
            names = [plan.cases[case_ids[0]].case.work.workload for case_ids in order_of(plan, replicate)]
            assert names[:3] == ["gpt_train", "decode", "conv_train"]
    both = resolve_plan(QUICK, make_interpreter(H200), GPU_BOX)
    devices = [launch.device.device_class for launch in both.launches]
    assert devices == sorted(devices, reverse=True)


def test_more_replicates_get_more_time() -> None:
    assert resolve_plan(QUICK, CPU_TORCH, CPU_BOX, Choices(replicates=3)).budget_s == 3 * QUICK.budget_s
    assert resolve_plan(QUICK, CPU_TORCH, CPU_BOX, Choices(most_blocks=5)).most_blocks == 5
    assert resolve_plan(QUICK, CPU_TORCH, CPU_BOX, Choices()).most_blocks == QUICK.most_blocks == 60
    chosen = Choices(replicates=3, budget_s=77.0)
    assert resolve_plan(QUICK, CPU_TORCH, CPU_BOX, chosen).budget_s == 77.0


@pytest.mark.parametrize("device", ["all", "gpu", "gpu:0", "cuda:1", "mps", H200.uuid])
def test_a_requested_gpu_that_does_not_exist_ends_with_exit_code_3(device: str) -> None:
    with pytest.raises(MachineLacks) as caught:
        resolve_plan(QUICK, CPU_TORCH, CPU_BOX, Choices(device=device))
    assert caught.value.message == f"--device {device}: no GPU: {NO_DRIVER}"
    assert (caught.value.exit_code, bool(caught.value.hint)) == (EXIT_MACHINE_LACKS, True)


@pytest.mark.parametrize("device", ["gpu:2", "mps", "xpu:0", "GPU-00000000-0000", "MIG-00000000-0000"])
def test_a_gpu_that_is_not_among_those_torch_sees_is_refused_with_their_number(device: str) -> None:
    both = make_interpreter(H200, replace(H200, index=1, uuid="GPU-second"))
    with pytest.raises(MachineLacks, match="torch sees 2 GPUs, not this one"):
        resolve_plan(QUICK, both, GPU_BOX, Choices(device=device))


@pytest.mark.parametrize(
    "device", ["gpus", "cpu:1", "gpu:-1", "gpu:x", "gpu:1000", "nvidia", " gpu", "GPU-", "GPU-a b", "-"]
)
def test_a_device_that_is_none_is_wrong_usage_and_says_what_is_one(device: str) -> None:
    with pytest.raises(GputuiError, match="not a device") as caught:
        resolve_plan(QUICK, CPU_TORCH, CPU_BOX, Choices(device=device))
    assert (caught.value.exit_code, caught.value.hint) == (
        EXIT_USAGE,
        "cpu, gpu, gpu:N, the UUID of a GPU, or all",
    )


def test_all_gpus_are_measured_alike_each_alone_and_what_none_can_run_is_listed_once() -> None:
    gpus = [replace(T4, uuid=f"GPU-{number}", index=number) for number in range(8)]
    one = resolve_plan(QUICK, make_interpreter(gpus[0]), GPU_BOX, Choices(device="gpu"))
    plan = resolve_plan(QUICK, make_interpreter(*gpus), GPU_BOX, Choices(device="all"))

    of_gpu = {gpu.uuid: [x for x in plan.launches if x.device.visible == gpu.uuid] for gpu in gpus}
    work = [
        sorted(
            (plan.cases[case_id].case.name, case_id in x.profiled) for x in launches for case_id in x.case_ids
        )
        for launches in of_gpu.values()
    ]
    assert all(each == work[0] for each in work)
    assert len(work[0]) == sum(len(launch.case_ids) for launch in one.launches)
    never = [case.case.name for case in plan.cases if case.outcome is not None]
    assert never == [case.case.name for case in one.cases if case.outcome is not None] != []
    assert [case.case_id for case in plan.cases] == list(range(len(plan.cases)))
    assert plan.budget_s == 8 * one.budget_s


@pytest.mark.parametrize("device", ["gpu:1", "cuda:1", "GPU-second"])
def test_a_gpu_is_chosen_by_number_or_by_uuid_and_the_worker_sees_it_alone(device: str) -> None:
    both = make_interpreter(H200, replace(H200, index=1, uuid="GPU-second"))
    plan = resolve_plan(QUICK, both, GPU_BOX, Choices(device=device))
    assert {launch.device.visible for launch in plan.launches} == {"GPU-second"}
    plan = resolve_plan(QUICK, both, GPU_BOX, Choices(device="cpu"))
    assert {case.case.variant.device_class for case in plan.cases} == {"cpu"}
    assert {launch.device.visible for launch in plan.launches} == {""}


@pytest.mark.parametrize(
    ("choices", "expected", "hint"),
    [
        (
            Choices(only=("gemm", "spin")),
            "spin: not in profile quick",
            "profile quick has conv_train, decode",
        ),
        (Choices(only=("gemm", "gem")), "gem: not a workload", "profile quick has conv_train, decode, gemm"),
        (Choices(only=("gemm", "")), ": not a workload", "profile quick has conv_train, decode, gemm, gpt_"),
        (Choices(only=("gpt_train:huge",)), "huge is not a size of gpt_train in profile quick", ""),
        (Choices(only=("gpt_train:mini:fp8",)), "fp8 is not a precision of gpt_train in profile quick", ""),
        (Choices(only=("gpt:mini",)), "--only gpt:mini: gpt is not a workload", ""),
        (Choices(only=("data parallel",)), "--only data parallel: not in profile quick", ""),
        (
            Choices(precisions=("fp32", "fp8")),
            "fp8: not a precision",
            "it has fp32, tf32, amp, amp-bf16, amp-fp16",
        ),
        (Choices(precisions=("fp32", "")), ": not a precision", "it has fp32, tf32, amp, amp-bf16, amp-fp16"),
        (
            Choices(only=("membw",), precisions=("amp",)),
            "has no case for --only membw --precision amp",
            "leave --only or --precision out, or choose another profile",
        ),
    ],
)
def test_only_what_the_profile_has_can_be_requested(choices: Choices, expected: str, hint: str) -> None:
    with pytest.raises(GputuiError, match=expected) as caught:
        resolve_plan(QUICK, CPU_TORCH, CPU_BOX, choices)
    assert caught.value.hint.startswith(hint)
    assert caught.value.exit_code == EXIT_USAGE
    with pytest.raises(GputuiError, match="profile one: has no case for --device gpu"):
        resolve_plan(
            one_case("spin", "mini", "cpu", "fp32"), make_interpreter(H200), GPU_BOX, Choices(device="gpu")
        )


def test_what_another_profile_has_is_refused_with_the_command_that_measures_it() -> None:
    with pytest.raises(GputuiError) as caught:
        resolve_plan(QUICK, CPU_TORCH, CPU_BOX, Choices(only=("infer_rps",)))
    command = caught.value.hint.rpartition("gputui run ")[2]
    profile, _, option = command.partition(" ")
    assert option == "--only infer_rps"
    assert any(entry.workload == "infer_rps" for entry in find_profile(profile).cases)


def test_precisions_are_narrowed_to_those_that_were_named_and_all_else_stays() -> None:
    whole = resolve_plan(QUICK, CPU_TORCH, CPU_BOX)
    plan = resolve_plan(QUICK, CPU_TORCH, CPU_BOX, Choices(precisions=("amp", "tf32")))
    kept = [c.case.name for c in whole.cases if c.case.variant.precision in ("amp", "tf32")]
    assert [c.case.name for c in plan.cases] == kept
    assert [c.case_id for c in plan.cases] == list(range(len(plan.cases)))
    assert {c for launch in plan.launches for c in launch.case_ids} == {
        c.case_id for c in plan.cases if c.outcome is None
    }


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        (Choices(precisions=("amp-fp16", "amp-bf16")), {"amp-bf16", "amp-fp16"}),
        (Choices(precisions=("fp32", "amp-fp16")), {"fp32", "amp-fp16"}),
        (Choices(only=("gpt_train:mini:amp-bf16",)), {"amp-bf16"}),
        (Choices(only=("gpt_train:mini:amp-bf16", "gpt_train:mini:amp")), {"amp", "amp-bf16"}),
        (Choices(only=("gpt_train",)), {"fp32", "tf32", "amp"}),
    ],
)
def test_a_type_of_amp_is_measured_where_amp_is_and_only_if_it_is_named(
    choices: Choices, expected: set[str]
) -> None:
    plan = resolve_plan(QUICK, CPU_TORCH, CPU_BOX, replace(choices, device="cpu"))
    mine = [c.case.variant.precision for c in plan.cases if c.case.work.workload == "gpt_train"]
    assert set(mine) == expected
    assert len(mine) == len(expected)


@pytest.mark.parametrize(
    ("interpreter", "machine"),
    [(CPU_TORCH, CPU_BOX), (make_interpreter(H200), GPU_BOX), (make_torchless_interpreter(), GPU_BOX)],
)
def test_a_plan_survives_its_json(interpreter: Interpreter, machine: Machine) -> None:
    plan = resolve_plan(QUICK, interpreter, machine, Choices(replicates=2))
    assert Plan.from_plain(json.loads(json.dumps(plan.to_plain()))) == plan


def test_a_plan_that_is_damaged_or_of_another_version_is_refused_in_words() -> None:
    plain = resolve_plan(QUICK, CPU_TORCH, CPU_BOX).to_plain()
    for schema in (PLAN_SCHEMA + 1, 0, None, "1"):
        with pytest.raises(GputuiError, match=f"schema {schema}, this gputui reads {PLAN_SCHEMA}"):
            Plan.from_plain({**plain, "schema": schema})
    damaged: tuple[Any, ...] = ([], {}, None, {"schema": 1}, {"schema": 1, "cases": 3})
    for one in damaged:
        with pytest.raises(GputuiError, match="plan cannot be read"):
            Plan.from_plain(one)
    with pytest.raises(GputuiError, match="extra"):
        Plan.from_plain({**plain, "extra": 1})


MACHINES = st.builds(
    lambda names, cores, memory: make_machine(*names, cores=cores, memory_gib=memory),
    st.lists(st.sampled_from(["NVIDIA H200", "Tesla T4"]), max_size=3),
    st.integers(1, 128),
    st.floats(1, 2048),
)
INTERPRETERS = st.one_of(
    st.just(make_torchless_interpreter()),
    st.just(CPU_TORCH),
    st.lists(st.sampled_from([H200, T4]), max_size=3).map(lambda gpus: make_interpreter(*gpus)),
)


ALIKE_EVERYWHERE = [p for p in shipped_profiles() if not any(entry.is_ladder for entry in p.cases)]


@given(MACHINES, INTERPRETERS, st.integers(0, 2**32), st.sampled_from(ALIKE_EVERYWHERE))
def test_work_keys_are_the_same_on_every_machine(
    machine: Machine, interpreter: Interpreter, seed: int, profile: Profile
) -> None:
    here = resolve_plan(profile, interpreter, machine, Choices(seed=seed))
    there = resolve_plan(profile, CPU_TORCH, CPU_BOX)
    assert [case.case for case in here.cases] == [case.case for case in there.cases]


def all_cases() -> list[Case]:
    return [
        case_of(workload, size, Variant(device, precision, "eager", "all"))
        for workload in WORKLOADS
        for size in workload.sizes
        for device in workload.device_classes
        for precision in workload.precisions
    ]


def test_a_work_key_stands_for_one_work_whatever_its_variant() -> None:
    works = {case.work for case in all_cases()}
    assert len({work.key for work in works}) == len(works) == sum(len(w.sizes) for w in WORKLOADS)
    plan = resolve_plan(one_case("bs_sweep", "mini", "cpu", "fp32"), make_interpreter(), make_machine())
    assert [case.case.work.form for case in plan.cases] == ["best"], "the batch is a result"


VALUES = st.one_of(
    st.booleans(), st.integers(), st.text(max_size=8), st.floats(allow_nan=False, allow_infinity=False)
)
WORKS = st.builds(
    Work,
    st.text(max_size=8),
    st.integers(1, 9),
    st.sampled_from(["mini", "base"]),
    st.sampled_from(["same", "best"]),
    st.dictionaries(st.text(max_size=6), VALUES, max_size=4).map(lambda d: tuple(sorted(d.items()))),
)


def told_apart(work: Work) -> str:
    """A description in which 1, 1.0 and True differ, as they do in what a workload computes."""
    return repr(work)


@given(WORKS, WORKS)
def test_two_works_have_one_key_only_if_they_are_one(a: Work, b: Work) -> None:
    assert (a.key == b.key) == (told_apart(a) == told_apart(b))


@given(WORKS, st.data())
def test_any_change_of_a_parameter_changes_the_key(work: Work, data: st.DataObject) -> None:
    def with_first_parameter(value: Parameter) -> Work:
        first = work.parameters[0][0] if work.parameters else "a"
        return replace(work, parameters=((first, value), *work.parameters[1:]))

    changed = data.draw(
        st.one_of(
            st.just(replace(work, version=work.version + 1)),
            st.just(replace(work, workload=f"{work.workload}2")),
            st.just(replace(work, size="large")),
            st.just(replace(work, form="best" if work.form == "same" else "same")),
            st.just(replace(work, parameters=(*work.parameters, ("zzzzzzz", 1)))),
            VALUES.map(with_first_parameter).filter(lambda other: told_apart(other) != told_apart(work)),
        )
    )
    assert changed.key != work.key
    assert len(changed.key) == 16


def test_ranks_get_a_gpu_each_the_chosen_one_first_or_are_unsupported() -> None:
    gpus = [replace(H200, index=index, uuid=f"GPU-{index}") for index in range(3)]
    profile = one_case("ddp", "base", "gpu", "amp")
    machine = make_machine("NVIDIA H200", "NVIDIA H200", "NVIDIA H200")
    plan = resolve_plan(profile, make_interpreter(*gpus), machine, Choices(device="gpu:1"))
    assert [launch.device.visible for launch in plan.launches] == ["GPU-1,GPU-0"]
    plan = resolve_plan(one_case("ddp", "base-4", "gpu", "amp"), make_interpreter(H200), machine)
    assert (plan.launches, outcomes(plan.cases)) == (
        (),
        {("unsupported", "4 GPUs are needed, torch sees 1")},
    )


def test_work_of_several_hosts_needs_an_address_where_they_join_and_gpus_of_each_alone() -> None:
    profile, box = one_case("ddp", "base-2x1", "gpu", "amp"), make_machine("NVIDIA H200")
    (alone,) = resolve_plan(profile, make_interpreter(H200), box).cases
    message = "2 hosts are needed: see --rendezvous and gputui join"
    assert (alone.outcome, alone.reason) == ("unsupported", message)
    plan = resolve_plan(profile, make_interpreter(H200), box, Choices(rendezvous="10.0.0.1:29400"))
    assert (plan.rendezvous, len(plan.launches)) == ("10.0.0.1:29400", 1)
    assert Plan.from_plain(json.loads(json.dumps(plan.to_plain()))) == plan


@pytest.mark.parametrize(
    ("only", "cases"),
    [
        (("gpt_train:common",), {("gpt_train", "common", p) for p in ("fp32", "tf32", "amp")}),
        (("gpt_train:common:amp",), {("gpt_train", "common", "amp")}),
        (("decode::amp",), {("decode", "base", "amp")}),
        (("membw",), {("membw", "base", "fp32")}),
        (
            ("gpt_train:common:amp", "gemm:large:fp32"),
            {("gpt_train", "common", "amp"), ("gemm", "large", "fp32")},
        ),
        (("memory copy", "matmul:large:fp32"), {("membw", "base", "fp32"), ("gemm", "large", "fp32")}),
        (("gemm:large:fp32", "gemm:large:amp"), {("gemm", "large", "fp32"), ("gemm", "large", "amp")}),
    ],
)
def test_only_names_a_workload_and_may_name_its_size_and_precision(
    only: tuple[str, ...], cases: set[tuple[str, str, str]]
) -> None:
    plan = resolve_plan(QUICK, make_interpreter(H200), GPU_BOX, Choices(device="gpu", only=only))
    found = {(c.case.work.workload, c.case.work.size, c.case.variant.precision) for c in plan.cases}
    assert found == cases


def planned_on(name: str, profile: str, cores: int = 8) -> Plan:
    gpu = NINE_GPUS[name]
    is_amd = name.startswith("MI")
    torch = make_interpreter(gpu, cuda=None if is_amd else "13.0", hip="7.0" if is_amd else None)
    return resolve_plan(find_profile(profile), torch, make_machine(gpu.name, cores=cores))


def test_an_l4_and_an_h100_do_the_same_work_for_every_workload_of_a_bakeoff() -> None:
    l4, h100 = (
        {(c.case.work.workload, c.case.work.key) for c in cases_of(planned_on(name, "bakeoff"))}
        for name in ("L4", "H100")
    )
    assert l4 == h100
    assert {workload for workload, _ in l4} == {entry.workload for entry in find_profile("bakeoff").cases}


@pytest.mark.parametrize("name", NINE_GPUS)
def test_cpu_and_gpu_do_the_same_training_and_the_same_decoding_at_which_the_host_keeps_up(name: str) -> None:
    plan = planned_on(name, "cpu-vs-gpu")
    for workload in ("conv_train", "gpt_train", "decode", "infer_lat", "infer_rps"):
        (cpu,), (gpu,) = (cases_of(plan, workload, device) for device in ("cpu", "gpu"))
        assert (cpu.outcome, gpu.outcome) == (None, None)
        assert cpu.case.work.key == gpu.case.work.key
        assert not cpu.case.work.size.startswith("mini")
        assert "host-bound" not in gpu.note


def test_a_ladder_is_climbed_only_as_far_as_the_gpu_needs() -> None:
    def size(workload: str, interpreter: Interpreter, *only: str) -> str:
        profile = find_profile("cpu-vs-gpu")
        plan = resolve_plan(profile, interpreter, make_machine("a GPU"), Choices(only=only))
        (found,) = {case.case.work.size for case in cases_of(plan, workload)}
        return found

    assert size("gpt_train", CPU_TORCH) == "mini"
    assert size("conv_train", make_interpreter(T4)) == "base"
    assert size("conv_train", make_interpreter(NINE_GPUS["B200"])) == "common"
    unheard = replace(H200, name="NVIDIA Z900")
    assert size("gpt_train", make_interpreter(unheard)) == "common"
    assert size("gpt_train", make_interpreter(T4), "gpt_train:common") == "common"


def test_what_no_cpu_of_so_many_cores_can_time_is_left_out_with_the_reason() -> None:
    (one_core,), (many,) = (
        cases_of(planned_on("B200", "cpu-vs-gpu", cores), "conv_train", "cpu") for cores in (1, 64)
    )
    assert many.outcome is None
    assert one_core.outcome == "skipped"
    assert one_core.reason == "5 steps of at least 31.1 s each on 1 core do not fit into the budget"


def test_a_case_that_the_host_may_hold_back_is_named_with_both_times_and_a_graph_as_unseen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    eager, graph = (
        case
        for case in cases_of(planned_on("H100", "compile"), "decode", "gpu")
        if case.case.variant.mode != "compile"
    )
    assert eager.note == "may be host-bound: GPU 1.24 ms, host 5.92 ms"
    assert graph.note == "a CUDA graph, never seen on hardware"
    assert {case.note for case in cases_of(planned_on("L4", "quick"), "gpt_train")} == {""}
    for kind in ("mps", "xpu"):
        gpu = replace(H200, torch_device=kind, name="a GPU", compute_capability="")
        plan = resolve_plan(find_profile("bakeoff"), make_interpreter(gpu, cuda=None), make_machine())
        graphs = [c for c in cases_of(plan, "decode", "gpu") if c.case.variant.mode == "graph"]
        assert outcomes(graphs) == {("unsupported", f"torch captures no graphs on {kind}")}
    _cases(planned_on("B200", "bakeoff"))
    latency = "    may be host-bound: GPU 58.5 µs, host 30.0 µs\n    a CUDA graph, never seen on hardware\n"
    assert f"  infer_lat large-text gpu amp graph\n{latency}" in capsys.readouterr().out


def test_what_all_gpus_share_fits_15_gib_and_a_t4_takes_seconds_at_most() -> None:
    row = find_gpu("Tesla T4", None)
    assert not isinstance(row, Missing)
    for profile in ("quick", "bakeoff", "fp32-vs-amp"):
        for planned in cases_of(planned_on("T4", profile), device_class="gpu"):
            work, precision = planned.case.work, planned.case.variant.precision
            size = workload_named(work.workload).sizes[work.size]
            assert size.memory_bytes <= 13 * GIB
            if precision != "tf32":
                taken_s = device_s(size, "amp-fp16" if precision == "amp" else precision, row)
                assert not isinstance(taken_s, Missing)
                assert taken_s <= (1.0 if precision == "amp" else 2.5)
