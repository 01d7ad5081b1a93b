"""The checks of `doctor`: pure functions of what was gathered."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import H200, make_interpreter, make_machine, make_torchless_interpreter
from monitor_samples import sample
from sound_boxes import GIB, QUIET, limited, make_box
from stored_runs import run_id_of, store

from gputui.analysis.health import BUSY_PCT, GpuFinding
from gputui.errors import GputuiError
from gputui.machine.gpus import GpuAddress
from gputui.machine.tree import Tree
from gputui.model.absent import Missing
from gputui.model.machine import Identity, Layer
from gputui.model.plan import PlannedDevice, PlannedLaunch
from gputui.model.telemetry import FOREIGN, HOST, Value, mig_device
from gputui.recording.run_directory import Holder, take_lock
from gputui.services.doctor.checks import (
    SystemState,
    clock_checks,
    file_checks,
    gathered,
    group_of,
    identity_checks,
    judged,
    readiness,
    variable_checks,
    worst_first,
)
from gputui.services.doctor.disturbances import (
    Check,
    State,
    _of_finding,
    check_lines,
    disturbances,
    gpus_of,
)
from gputui.services.snapshot import current_user
from gputui.services.support.paths import _key_path, run_directories

BUSY = "busy with other work for 7.3 threads, and this box has 16"
RUNS = Check(
    "another run",
    "note",
    "another gputui run is going: pid 7, since 04:48",
    "each takes CPUs from the other; to watch it until it ends:",
    "gputui attach 0000abcd",
)
DB, STATE = Path("/data/results.db"), Path("/state/runs")


def states(box: SystemState) -> dict[str, str]:
    return {check.topic: check.state for check in judged(box)}


def the(box: SystemState, topic: str) -> Check:
    (check,) = [check for check in judged(box) if check.topic == topic]
    return check


def test_a_sound_box_has_nothing_but_ok_and_one_without_a_gpu_is_no_broken_one() -> None:
    box = make_box(8)
    assert set(states(box).values()) == {"ok"}
    assert readiness(judged(box), range(8)) == "Ready to measure on all 8 GPUs. Nothing is wrong."
    assert the(box, "driver").found.endswith(": 8x NVIDIA H200")
    mixed = make_box(2, machine=make_machine("NVIDIA H200", "NVIDIA L4"))
    assert the(mixed, "driver").found.endswith(": 1x NVIDIA H200, 1x NVIDIA L4")
    assert the(make_box(), "torch cuda:0").found == "NVIDIA H200, compute capability 9.0, bf16"
    without = make_box(0, interpreter=make_interpreter())
    assert the(without, "driver").state == "note"
    assert "no GPU found" in the(without, "driver").found
    assert "problem" not in states(without).values()


@pytest.mark.parametrize(
    ("interpreter", "shown"),
    [
        (make_interpreter(cuda=None), "sees no GPU: it is a build without CUDA"),
        (make_interpreter(cuda=None, hip="6.4"), "sees no GPU: it is a build for ROCm"),
        (make_interpreter(cuda="14.0"), "it was built for CUDA 14.0, the driver goes up to 13.0"),
        (make_interpreter(), "CUDA_VISIBLE_DEVICES, or the container, may hide it"),
        (make_torchless_interpreter(), "torch"),
        (GputuiError("python3 did not answer", "name another"), "python3 did not answer"),
    ],
)
def test_a_torch_that_cannot_use_the_gpu_is_a_problem_with_a_way_out(interpreter: object, shown: str) -> None:
    machine = replace(make_machine("NVIDIA H200"), cuda_driver_version="13.0")
    check = the(make_box(1, interpreter=interpreter, machine=machine), "torch")
    assert check.state == "problem"
    assert shown in check.found
    assert check.next_step
    installs = check.command.startswith("/opt/torch/bin/python -m pip")
    assert check.next_step.endswith("install one:") == installs


def test_a_gpu_that_torch_does_not_see_has_a_command_in_one_line_and_one_that_the_user_hid_a_variable() -> (
    None
):
    interpreter = replace(make_interpreter(), executable="/a/long/way/to/an/environment/bin/python3")
    check = the(make_box(1, interpreter=interpreter), "torch")
    command = "/a/long/way/to/an/environment/bin/python3 -c 'import torch; torch.cuda.init()'"
    assert (check.next_step, check.command) == ("this shows why:", command)
    assert "".join(span.text for span in check_lines(check, 80)[-1]).lstrip() == f"$ {command}"

    box = make_box(1, interpreter=replace(make_interpreter(), hidden_by="CUDA_VISIBLE_DEVICES"))
    check = the(box, "torch")
    assert (check.state, check.command) == ("note", "")
    assert check.found.endswith("sees no GPU: CUDA_VISIBLE_DEVICES hides it")
    assert check.next_step == "to measure it: unset CUDA_VISIBLE_DEVICES"
    assert readiness(judged(box), [0]).startswith("Ready to measure on the CPU; the GPU is hidden.")


@pytest.mark.parametrize(
    ("changes", "state", "word"),
    [
        ({"pcie_width": 4}, "problem", "PCIe x4 of x16"),
        ({"ecc_uncorrected_count": 2}, "problem", "ECC errors 2"),
        ({"throttle_bits": 0x40}, "problem", "THERMAL"),
        ({"throttle_bits": 0x4}, "note", "POWER-CAPPED"),
    ],
)
def test_findings_of_a_gpu_have_the_same_words_as_in_the_panes(
    changes: Mapping[str, Value], state: str, word: str
) -> None:
    seen = sample(1, processes=0, changes={0: {**QUIET, **changes}, HOST: {"load_1min": 0.1}})
    check = the(make_box(sample=seen), "GPU 0")
    assert check.state == state
    assert check.found.startswith(word)


@pytest.mark.parametrize(("busy_pct", "is_noted"), [(BUSY_PCT - 0.1, False), (BUSY_PCT, True), (97, True)])
def test_a_gpu_that_is_busy_before_anything_is_measured_has_a_neighbour(
    busy_pct: float, is_noted: bool
) -> None:
    seen = sample(1, processes=1, changes={0: {**QUIET, "sm_busy_pct": busy_pct}})
    stranger = replace(seen.processes[0], user=FOREIGN)  # type: ignore[index]
    box = make_box(sample=replace(seen, processes=(stranger,)))
    assert ("GPU 0 use" in states(box)) == is_noted
    assert the(box, "GPU 0").found.startswith("SHARED")
    if busy_pct == 97:
        busy = the(box, "GPU 0 use")
        assert (busy.found, busy.command) == ("busy with other work (97 %)", "gputui snapshot --processes")


def test_a_gpu_is_hot_before_a_run_whatever_the_gpu_before_it_reports() -> None:
    hot = {**QUIET, "temperature_c": 84, "temperature_limit_c": 87}
    silent = {**QUIET, "temperature_limit_c": Missing("not supported")}
    box = make_box(2, sample=sample(2, processes=0, changes={0: silent, 1: hot, HOST: {"load_1min": 0.1}}))
    assert the(box, "GPU 1 heat").state == "note"
    before = disturbances(box.machine, (0, 1), lambda: box.sample)
    assert [check.topic for check in before] == ["GPU 1 heat"]


def test_limits_of_a_container_are_shown_with_what_set_them() -> None:
    machine = make_machine()
    limited = replace(
        machine,
        cpu=replace(machine.cpu, usable_threads=3.5, limited_by="cgroup"),
        memory=replace(machine.memory, usable_bytes=8 * GIB, limited_by="cgroup"),
    )
    box = make_box(0, machine=limited, interpreter=make_interpreter())
    assert the(box, "CPU").found.startswith("3.50 of 16 threads, set by cgroup")
    assert the(box, "CPU").state == the(box, "memory").state == the(box, "/dev/shm").state == "note"
    assert the(box, "memory").found == "8.00 GiB of 64.0 GiB, set by cgroup"
    assert the(box, "/dev/shm").next_step == "start the container with --shm-size=8g (or --ipc=host)"


def test_a_power_limit_more_than_rounding_below_the_default_is_noted_with_the_command_that_lifts_it() -> None:
    for limit_w, is_noted in ((400.0, 1), (699.4, 1), (699.5, 0), (699.9, 0), (700.0, 0), (700.4, 0)):
        assert ("GPU 0 power" in states(limited(power_limit_w=limit_w))) == is_noted
    unknown = Missing("not supported")
    for known in ({"power_limit_w": unknown}, {"power_limit_w": 400.0, "power_default_limit_w": unknown}):
        silent = limited(**known, ecc_enabled=unknown, mig_enabled=unknown)
        assert not {"GPU 0 power", "GPU 0 memory", "GPU 0 MIG"} & set(states(silent))
    assert the(limited(power_limit_w=600.0), "GPU 0 power").command == "sudo nvidia-smi -i 0 -pl 700"
    of_amd = the(limited("amd", power_limit_w=600.0), "GPU 0 power")
    assert of_amd.command == "sudo rocm-smi -d 0 --setpoweroverdrive 700"


def test_what_is_wrong_with_all_gpus_stands_there_once_with_one_command() -> None:
    machine = make_box(3).machine
    gpus = [
        replace(gpu, power_limit_w=limit, power_default_limit_w=700.0)
        for gpu, limit in zip(machine.gpus, (400.0, 400.0, 500.0), strict=True)
    ]
    checks = judged(make_box(3, machine=replace(machine, gpus=tuple(gpus))))
    both, other = [check for check in worst_first(checks) if check.state == "note"]
    assert (both.topic, both.command) == ("GPUs 0-1 power", "sudo nvidia-smi -i 0,1 -pl 700")
    assert (other.topic, other.command) == ("GPU 2 power", "sudo nvidia-smi -i 2 -pl 700")
    assert readiness(checks, range(3)) == "Ready to measure on all 3 GPUs. 2 cautions."


def test_a_ghost_is_called_so_with_what_clears_it_and_not_taken_for_use() -> None:
    left = {"sm_busy_pct": 100.0, "memory_used_bytes": 0, "power_w": 98.0, "power_limit_w": 600.0}
    quiet = {HOST: {"load_1min": 0.1}}
    box = make_box(sample=sample(1, processes=0, changes={0: {**QUIET, **left}, **quiet}))
    (use,) = (check for check in judged(box) if check.topic == "GPU 0 use")
    assert (use.state, use.next_step) == ("note", "to do that:")
    assert use.found.startswith("GHOST UTILIZATION: 100 % busy, no process, idle power (98 W)")
    assert "CUDA_VISIBLE_DEVICES=0 python3 -c" in use.command
    assert disturbances(box.machine, (0,), lambda: box.sample) == (use,), "a run says so at its start"


@pytest.mark.parametrize(
    ("load", "shm_bytes", "wanted"),
    [
        (4.0, GIB, {"other programs": "ok", "/dev/shm": "ok"}),
        (4.01, GIB - 1, {"other programs": "note", "/dev/shm": "note"}),
        (Missing("not there"), Missing("not mounted"), {"/dev/shm": "unknown"}),
    ],
)
def test_others_may_use_a_quarter_of_the_threads_and_a_gibibyte_of_shared_memory_is_enough(
    load: float | Missing, shm_bytes: int | Missing, wanted: dict[str, str]
) -> None:
    machine = make_machine()
    machine = replace(machine, memory=replace(machine.memory, shm_bytes=shm_bytes))
    found = states(make_box(0, machine=machine, sample=sample(0, changes={HOST: {"load_1min": load}})))
    assert {topic: found[topic] for topic in ("other programs", "/dev/shm") if topic in found} == wanted


def test_a_gibibyte_on_the_disk_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for free_bytes, found in ((GIB - 1, ["note"]), (GIB, [])):
        usage = {tmp_path: free_bytes, tmp_path.parent: 100 * GIB}
        monkeypatch.setattr(
            shutil, "disk_usage", lambda place, usage=usage: SimpleNamespace(free=usage[place])
        )
        checks = file_checks(tmp_path / "a.db", tmp_path.parent, (), "")
        assert [check.state for check in checks if check.topic == "disk"] == found


def test_a_slow_clock_is_told_and_one_that_nobody_reports_is_unknown(tmp_path: Path) -> None:
    system = tmp_path / "sys/devices/system"
    clock, governor = system / "clocksource/clocksource0", system / "cpu/cpu0/cpufreq"
    for place in (clock, governor):
        place.mkdir(parents=True)

    def said() -> list[str]:
        return [f"{one.state} {one.topic} {one.found}" for one in clock_checks(Tree(tmp_path, {}))]

    (governor / "scaling_governor").write_text("performance\n")
    (unknown,) = said()
    assert unknown.startswith("unknown clock")
    (clock / "current_clocksource").write_text("tsc\n")
    assert said() == ["ok clock tsc"]
    (clock / "current_clocksource").write_text("hpet\n")
    (governor / "scaling_governor").write_text("powersave\n")
    assert said() == [
        "note clock hpet needs a system call to read: very short steps look longer",
        "note CPU clock governor powersave: the clock rises late, so speeds of the CPU vary",
    ]
    *_, last = clock_checks(Tree(tmp_path, {}))
    assert "cpupower" in last.command


@pytest.mark.parametrize(
    ("found", "gpus", "shown"),
    [
        ({"GPU 7": "problem", "GPU 0 power": "note"}, 8, "on 7 of 8 GPUs. 1 fault, 1 caution."),
        ({"GPU 1": "problem", "torch cuda:1": "problem"}, 10, "on 9 of 10 GPUs. 2 faults."),
        ({"GPU 0": "problem"}, 1, "on the CPU only. 1 fault."),
        ({"disk": "note", "clock": "unknown"}, 1, "on the GPU. 1 caution."),
        ({}, 0, "on the CPU; no GPU found. Nothing is wrong."),
    ],
)
def test_the_first_line_says_on_what_the_box_can_measure(
    found: dict[str, State], gpus: int, shown: str
) -> None:
    checks = [Check(topic, state, "found") for topic, state in found.items()]
    assert readiness(checks, range(gpus)) == f"Ready to measure {shown}"


def test_what_keeps_every_run_from_being_measured_is_the_first_thing_to_read() -> None:
    broken = GputuiError("python3 did not answer", "name another")
    for changes, why in (
        ({"interpreter": make_interpreter()}, "torch sees no GPU"),
        ({"interpreter": broken}, "no usable torch"),
        ({"elsewhere": (Check("result file", "problem", "no permission"),)}, "results cannot be stored"),
    ):
        said = readiness(judged(make_box(**changes)), [0])
        assert said.startswith(f"Not ready to measure: {why}. 1 fault")


def test_before_a_run_only_its_own_gpus_and_the_load_are_named_in_the_words_of_doctor() -> None:
    machine = make_box(2).machine
    capped = replace(machine.gpus[0], power_limit_w=600.0, power_default_limit_w=700.0)
    machine = replace(machine, gpus=(capped, machine.gpus[1]))
    hot = {**QUIET, "temperature_c": 84, "temperature_limit_c": 87}
    busy = {**QUIET, "sm_busy_pct": 97}
    seen = sample(2, processes=0, changes={0: hot, 1: busy, HOST: {"load_1min": 7.3}})
    box = make_box(2, machine=machine, sample=seen)

    def found(*gpus: int) -> dict[str, str]:
        return {check.topic: check.found for check in disturbances(machine, gpus, lambda: seen)}

    assert found() == {"other programs": BUSY}
    assert found(0).keys() == {"other programs", "GPU 0 heat", "GPU 0 power"}
    assert found(1).keys() == {"other programs", "GPU 1 use"}
    by_doctor = {check.topic: check.found for check in judged(box)}
    assert found(0, 1).items() <= by_doctor.items()
    assert found(0)["GPU 0 heat"] == "84 °C: it slows itself from 87 °C on"
    assert the(box, "GPU 0 heat").next_step == "let it cool down, or check its fans"


def test_before_a_run_another_run_of_gputui_is_named_with_its_process_and_its_beginning() -> None:
    run_dir = run_directories() / run_id_of(1)
    run_dir.mkdir(parents=True)
    descriptor = take_lock(run_dir, Holder.this_process("a.db", [run_dir]))
    seen = sample(0, processes=0, changes={HOST: {"load_1min": 0.1}})
    try:
        found, *_ = disturbances(make_box(0).machine, (), lambda: seen)
    finally:
        os.close(descriptor)
    assert re.fullmatch(rf"another gputui run is going: pid {os.getpid()}, since \d\d:\d\d", found.found)
    assert found.command == f"gputui attach {run_id_of(1)[-8:]}"
    assert disturbances(make_box(0).machine, (), lambda: seen) == ()


def test_the_gpus_of_a_run_are_known_by_their_uuids_and_all_count_where_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    addresses = [GpuAddress(index, f"GPU-ab{index}", "", ()) for index in range(3)]
    monkeypatch.setattr("gputui.services.doctor.disturbances.gpu_addresses", lambda: addresses)
    machine = make_box(3).machine

    def launch(visible: str, device_class: str = "gpu") -> PlannedLaunch:
        return PlannedLaunch(0, 0, (0,), PlannedDevice(device_class, "cuda", "H200", visible, ""), 1, 1.0)

    assert gpus_of([launch("GPU-ab1"), launch("", "cpu")], machine) == {1}
    assert gpus_of([launch("GPU-ab2,GPU-ab0")], machine) == {0, 2}
    assert gpus_of([launch("1")], machine) == {0, 1, 2}
    assert gpus_of([launch("", "cpu")], machine) == set()


def test_a_run_of_gputui_in_progress_disturbs_like_any_other_program_and_is_named() -> None:
    busy = sample(0, changes={HOST: {"load_1min": 7.3}})
    box = make_box(2, sample=sample(2, processes=0), elsewhere=(RUNS,))
    assert the(box, "another run") == RUNS
    assert the(make_box(0, sample=busy, elsewhere=(RUNS,)), "other programs").found == BUSY
    assert readiness(judged(box), (0, 1)).startswith("Not now: another gputui run is going. ")
    assert readiness(judged(replace(box, elsewhere=())), (0, 1)).startswith("Ready to measure")


def test_a_healthy_gpu_is_described_by_what_it_reports() -> None:
    virtual: Mapping[str, Value] = {"temperature_c": Missing("no sensor"), "pcie_width": Missing("virtual")}
    for values, shown in (
        ({**QUIET, "temperature_c": 41.4}, "41 °C, PCIe x16, not slowed, no memory errors"),
        (QUIET, "PCIe x16, not slowed, no memory errors"),
        ({"sm_busy_pct": 0, "throttle_bits": 0, **virtual}, "not slowed"),
    ):
        seen = make_box().sample
        gpu = replace(seen.gpus[0], values=values)
        assert the(make_box(sample=replace(seen, gpus=(gpu,))), "GPU 0").found == shown


def test_a_gpu_that_is_divided_names_its_own_instances_alone() -> None:
    machine = make_machine("NVIDIA H200")
    divided = replace(machine, gpus=(replace(machine.gpus[0], mig_enabled=True),))
    seen = sample(2, processes=0)
    whose = [replace(gpu, device=mig_device(n, 1), parent=n) for n, gpu in enumerate(seen.gpus)]
    box = make_box(machine=divided, sample=replace(seen, gpus=(*make_box().sample.gpus, *whose)))
    own, other = whose[0].label, whose[1].label
    found = the(box, "GPU 0 MIG").found
    assert own in found
    assert other not in found


def test_an_amd_gpu_has_no_cuda_and_says_what_its_partitions_share() -> None:
    machine = make_machine("AMD Instinct MI300X")
    machine = replace(machine, gpus=(replace(machine.gpus[0], vendor="amd"),), driver_version="6.16.13")
    (gpu,) = make_box(1).sample.gpus
    divided = replace(gpu, values={**gpu.values, "partition_count": 8})
    box = make_box(1, machine=machine, sample=replace(make_box(1).sample, gpus=(divided,)))
    assert the(box, "driver").found == "amdgpu 6.16.13: 1x AMD Instinct MI300X"
    assert the(box, "GPU 0 partitions").found == (
        "divided into 8 partitions, which share what is read of power, clock and heat"
    )


def test_every_topic_has_a_group_whatever_it_is_called() -> None:
    topics = {
        "GPU 3 link": "GPUs",
        "torch cuda:1": "GPUs",
        "torch": "software",
        "disk": "results",
        "new": "host",
    }
    assert {topic: group_of(topic) for topic in topics} == topics


def test_the_findings_of_a_poor_box_in_their_words() -> None:
    machine = make_machine("NVIDIA H200", "NVIDIA H200")
    limited = replace(
        machine.gpus[0], power_limit_w=400.0, power_default_limit_w=700.0, ecc_enabled=False, mig_enabled=True
    )
    machine = replace(
        machine,
        gpus=(limited, machine.gpus[1]),
        memory=replace(machine.memory, shm_bytes=Missing("not mounted")),
        layers=(Layer("container", "docker", ("cgroup",)), Layer("cloud", "aws", ("dmi",))),
    )
    unfit = replace(H200, index=1, runs_here=False, why_not="built for sm_70, this is sm_90")
    box = make_box(
        2,
        machine=machine,
        interpreter=make_interpreter(replace(H200, bf16=False), unfit),
        passed_over=("/usr/bin/python3: torch 1.4",),
        elsewhere=(RUNS,),
    )
    sound = "PCIe x16, not slowed, no memory errors"
    found = [(check.state, check.topic, check.found, check.next_step) for check in judged(box)]
    other_python = "to measure that one, update it; or name another: --python EXE"
    assert found == [
        ("ok", "driver", "unknown, CUDA up to unknown: 2x NVIDIA H200", ""),
        ("ok", "GPU 0", f"66 °C, {sound}", ""),
        ("ok", "GPU 1", f"62 °C, {sound}", ""),
        (
            "note", "GPU 0 power", "limited to 400 W (factory 700 W)",
            "it is slower than others of its model; to lift the limit:",
        ),
        ("note", "GPU 0 memory", "memory is not checked for errors (ECC is off)", ""),
        (
            "note", "GPU 0 MIG",
            "NVIDIA H200: MIG is on, but no instance is visible: nothing can run on it",
            "make instances, or end MIG:",
        ),
        ("ok", "torch", "2.13.0+cu130, Python 3.12.3 (this Python)", ""),
        ("ok", "torch cuda:0", "NVIDIA H200, compute capability 9.0, no native bf16: amp becomes fp16", ""),
        (
            "problem", "torch cuda:1", "NVIDIA H200: built for sm_70, this is sm_90",
            "name a Python with a torch built for this box (--python EXE), or install one:",
        ),
        ("note", "torch", "passed over: /usr/bin/python3: torch 1.4", other_python),
        ("ok", "CPU", "8 cores, 16 threads, no limit", ""),
        ("ok", "other programs", "quiet: load 0.1 on 16 threads", ""),
        ("ok", "memory", "64.0 GiB", ""),
        ("unknown", "/dev/shm", "not mounted", ""),
        (
            "note", "another run", "another gputui run is going: pid 7, since 04:48",
            "each takes CPUs from the other; to watch it until it ends:",
        ),
    ]  # fmt: skip
    assert [check.state for check in worst_first(judged(box))] == sorted(
        (check.state for check in judged(box)), key=("problem", "note", "unknown", "ok").index
    )


def test_variables_that_falsify_a_measurement_are_cautions() -> None:
    assert list(variable_checks({"CUDA_LAUNCH_BLOCKING": "1", "NCCL_ALGO": "Ring"})) == [
        Check(
            "variable",
            "note",
            "CUDA_LAUNCH_BLOCKING=1: the host waits for each kernel",
            "gputui's own workloads run without it, your steps and programs with it",
            "unset CUDA_LAUNCH_BLOCKING",
        ),
        Check("variable", "ok", "NCCL_ALGO=Ring: which algorithms NCCL uses"),
    ]


def test_a_box_is_known_by_the_surest_of_its_lasting_identities() -> None:
    lost = "no fixed id: after a reboot, or in another container or account, it is seen as a new box"
    for kinds, state, shown in (
        (("stated", "product-uuid"), "ok", "recognized by the name you gave it"),
        (("account", "product-uuid", "machine-id"), "ok", "recognized by the UUID of its firmware"),
        (("gpus",), "ok", "recognized by its GPUs"),
        (("account", "boot"), "note", lost),
    ):
        identities = tuple(Identity(kind, "0" * 12) for kind in kinds)
        (check,) = identity_checks(replace(make_machine("NVIDIA H200"), identities=identities))
        assert (check.topic, check.state, check.found) == ("identity", state, shown)
        assert ("--machine NAME" in check.next_step) == (state == "note")


def test_a_user_id_without_a_name_is_no_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 1_234_567)
    assert current_user() == ""


def test_what_a_gpu_suffered_from_earlier_is_no_problem() -> None:
    was = GpuFinding("was slowed by heat 1.0 % of 5 min, 2 min ago", "note", "for 3 s")
    (gpu,) = make_box(1).sample.gpus
    assert _of_finding(gpu, was).state == "note"


def test_looking_at_this_machine_names_its_steps_and_what_it_found(tmp_path: Path) -> None:
    steps: list[str] = []
    db = tmp_path / "new" / "a.db"
    box = gathered(db=db, on_step=steps.append)
    assert steps == ["the driver and the host", "Python and torch", "files"]
    assert the(box, "result file") == Check("result file", "ok", str(db))
    assert box.machine.cpu.host_threads > 0
    assert box.sample.host.values
    assert isinstance(box.sample.processes, tuple), "who else uses a GPU is asked"
    assert list(tmp_path.iterdir()) == []
    assert not _key_path().exists()
    assert the(gathered(asks_torch=False), "result file").found == os.environ["GPUTUI_DB"]


def test_a_result_file_is_ok_and_a_file_that_is_none_is_a_fault(tmp_path: Path) -> None:
    store(tmp_path / "a.db", 1)
    assert [check.state for check in file_checks(tmp_path / "a.db", tmp_path, (), "")] == ["ok"]
    (tmp_path / "notes.db").write_text("shopping\n")
    check, *_ = file_checks(tmp_path / "notes.db", tmp_path, (), "")
    assert (check.topic, check.state) == ("result file", "problem")
    assert "notes.db" in check.found


def test_places_that_cannot_be_written_or_even_looked_at_are_findings_beside_the_others(
    tmp_path: Path,
) -> None:
    home = "HOME is not set: state lies in /tmp"
    found = {check.topic: check for check in file_checks(Path("/proc/new/a.db"), Path("/proc"), (), home)}
    assert found["result file"].found.startswith("/proc/new/a.db: cannot create a file in /proc: ")
    assert found["run directories"].found.startswith("/proc: cannot create a file in /proc: ")
    assert found["run directories"].found.endswith(": no run can start")
    assert found["home"] == Check("home", "note", home)
    too_long = tmp_path / ("x" * 300) / "a.db"
    assert list(file_checks(too_long, tmp_path, (), "")) == [
        Check("result file", "problem", f"{too_long}: File name too long", "choose another with --db")
    ]
