"""Which torch a driver and a GPU run, and why the installed one uses no GPU: the same answer everywhere."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import venv
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from builders import H200, T4, make_interpreter, make_machine, make_torchless_interpreter

from gputui.errors import EXIT_MACHINE_LACKS, MachineLacks
from gputui.model.absent import Missing
from gputui.model.machine import Interpreter, Machine, TorchDevice
from gputui.services.profiles.interpreters import BUILDS, ROCM, build_for, check_gpu_is_used, unused_gpu
from gputui.services.profiles.loader import find_profile
from gputui.services.profiles.planner import Choices, resolve_plan
from gputui.worker.probe import missing_kernels

QUICK = find_profile("quick")
CU13 = make_interpreter()
NVIDIA_LEAST = {"11": 450, "12": 525, "13": 580}
"""docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html, table 1."""
KERNELS = {
    "2.13.0+cu130": "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120",
    "2.13.0+cu126": "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90",
    "2.11.0+cu128": "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120",
    "2.7.1+cu118": "sm_37 sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90",
}
"""torch.cuda.get_arch_list() on x86: pytorch#182250, #190385 and AutoForge#59; #95648 for CUDA 11.8."""


def box(driver: str, cuda: str, capability: str = "8.0", name: str = "NVIDIA A100-SXM4-80GB") -> Machine:
    machine = make_machine(name)
    gpus = tuple(replace(gpu, compute_capability=capability) for gpu in machine.gpus)
    return replace(machine, gpus=gpus, driver_version=driver, cuda_driver_version=cuda)


def of_amd(machine: Machine) -> Machine:
    return replace(machine, gpus=tuple(replace(gpu, vendor="amd") for gpu in machine.gpus))


def wheel_of(command: str) -> str:
    found = re.search(r"torch==(\S+) ", command)
    assert found is not None, command
    return found[1]


def test_every_driver_and_gpu_gets_a_build_that_both_run() -> None:
    drivers = (450, 470, 510, 525, 535, 550, 565, 570, 575, 580, 590)
    capabilities = ((5, 2), (6, 1), (7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0))
    for driver, capability in itertools.product(drivers, capabilities):
        build = build_for(driver, capability)
        assert build is not None, (driver, capability)
        assert NVIDIA_LEAST[build.cuda.partition(".")[0]] <= driver, capability
        assert not missing_kernels(capability, KERNELS[wheel_of(build.words)].split()), driver
        assert wheel_of(build.words).endswith("+cu" + build.cuda.replace(".", ""))


@pytest.mark.parametrize(
    ("driver", "capability", "wheel"),
    [
        (570, (12, 0), "2.11.0+cu128"),
        (570, (10, 0), "2.11.0+cu128"),
        (580, (12, 1), "2.13.0+cu130"),
        (580, (7, 0), "2.13.0+cu126"),
        (570, (9, 0), "2.13.0+cu126"),
        (580, None, "2.13.0+cu130"),
        (None, (7, 0), "2.13.0+cu126"),
    ],
)
def test_what_is_newer_or_older_than_a_build_gets_another_one(
    driver: int | None, capability: tuple[int, int] | None, wheel: str
) -> None:
    build = build_for(driver, capability)
    assert build is not None
    assert wheel_of(build.words) == wheel
    if capability is not None:
        assert not missing_kernels(capability, KERNELS[wheel].split())


def test_the_pages_have_the_lines_that_run_prints(repository: Path) -> None:
    assert f"torch=={BUILDS[0].torch}\n" in (repository / "constraints.txt").read_text()
    page = (repository / "docs" / "installing.md").read_text()
    assert [words for words in (*(build.words for build in BUILDS), ROCM) if words not in page] == []
    rows = re.findall(r"^\| (\d{3}) (?:and|to) .*? \| (.*?) \| `(.*?)`", page, re.MULTILINE)
    for driver, gpus, words in rows:
        build = build_for(int(driver), (10, 0) if gpus == "Blackwell" else (8, 0))
        assert build is not None
        assert build.words == words
    assert len(rows) == len(BUILDS)


@pytest.mark.parametrize(
    ("interpreter", "machine", "why", "wheel"),
    [
        (
            CU13,
            box("535.54.03", "12.2"),
            (
                "torch 2.13.0+cu130 cannot use NVIDIA A100-SXM4-80GB: it was built for CUDA 13.0,"
                " driver 535.54.03 goes up to 12.2"
            ),
            "2.13.0+cu126",
        ),
        (
            make_interpreter(cuda=None),
            box("580.95.05", "13.0"),
            "torch 2.13.0+cpu cannot use NVIDIA A100-SXM4-80GB: it is a build without CUDA",
            "2.13.0+cu130",
        ),
        (
            make_interpreter(cuda=None, hip="7.2"),
            box("580.95.05", "13.0"),
            "torch 2.13.0+rocm7.2 cannot use NVIDIA A100-SXM4-80GB: it is a build for ROCm",
            "2.13.0+cu130",
        ),
        (
            make_torchless_interpreter("/usr/bin/python3"),
            box("550.54.15", "12.4"),
            "NVIDIA A100-SXM4-80GB is idle: torch not installed",
            "2.13.0+cu126",
        ),
        (
            replace(make_interpreter(), amd_gpus=2),
            make_machine(),
            "torch 2.13.0+cu130 cannot use an AMD GPU: it is a build for CUDA",
            "2.13.0+rocm7.2",
        ),
        (
            replace(make_interpreter(cuda=None), amd_gpus=1),
            make_machine(),
            "torch 2.13.0+cpu cannot use an AMD GPU: it is a build without ROCm",
            "2.13.0+rocm7.2",
        ),
        (
            replace(make_interpreter(), amd_gpus=1),
            of_amd(make_machine("AMD Instinct MI300X")),
            "torch 2.13.0+cu130 cannot use an AMD GPU: it is a build for CUDA",
            "2.13.0+rocm7.2",
        ),
    ],
)
def test_a_gpu_that_torch_cannot_use_is_named_with_the_reason_and_the_wheel(
    interpreter: Interpreter, machine: Machine, why: str, wheel: str
) -> None:
    unused = unused_gpu(interpreter, machine)
    assert unused is not None
    assert unused.reason == why
    assert unused.command.startswith(f"{interpreter.executable} -m pip install torch==")
    assert wheel_of(unused.command) == wheel
    assert unused.hint.endswith(f": {unused.command}")
    assert "--device cpu" in unused.hint


def test_a_torch_that_fits_and_sees_nothing_gets_no_line_but_where_to_look() -> None:
    for interpreter, machine, where in (
        (CU13, box("580.95.05", "13.0"), "CUDA_VISIBLE_DEVICES, or the container, may hide it"),
        (
            replace(make_interpreter(cuda=None, hip="7.2"), amd_gpus=1),
            make_machine(),
            "groups render and video",
        ),
    ):
        unused = unused_gpu(interpreter, machine)
        assert unused is not None
        assert where in unused.why
        assert unused.command == ""
        assert unused.look == f"{interpreter.executable} -c 'import torch; torch.cuda.init()'"
        assert unused.hint.endswith(f": {unused.look}")


def no_kernels(name: str, capability: str) -> TorchDevice:
    major, minor = map(int, capability.split("."))
    why = missing_kernels((major, minor), KERNELS["2.13.0+cu130"].split())
    return replace(T4, name=name, compute_capability=capability, runs_here=False, why_not=why)


def test_a_gpu_that_torch_sees_without_kernels_for_it_is_as_unusable_as_one_it_does_not_see() -> None:
    machine = box("580.95.05", "13.0", "7.0", "Tesla V100-SXM2-16GB")
    interpreter = make_interpreter(no_kernels("Tesla V100-SXM2-16GB", "7.0"))
    plan = resolve_plan(QUICK, interpreter, machine)
    with pytest.raises(MachineLacks, match=r"compute capability 7\.0 \(") as raised:
        check_gpu_is_used(plan, interpreter, machine)
    assert wheel_of(raised.value.hint) == "2.13.0+cu126"


def test_of_two_gpus_the_one_is_taken_for_which_torch_has_kernels_unless_the_other_is_named() -> None:
    interpreter = make_interpreter(no_kernels("Quadro P400", "6.1"), replace(H200, index=1))
    machine = make_machine("Quadro P400", "NVIDIA H200")
    plan = resolve_plan(QUICK, interpreter, machine)
    names = {launch.device.name for launch in plan.launches if launch.device.device_class == "gpu"}
    assert names == {"NVIDIA H200"}
    check_gpu_is_used(plan, interpreter, machine)
    named = resolve_plan(QUICK, interpreter, machine, Choices(device="gpu:0"))
    assert named.launches == ()


@pytest.mark.parametrize(
    ("interpreter", "machine"),
    [
        (make_interpreter(H200), make_machine("NVIDIA H200")),
        (make_interpreter(cuda=None), make_machine()),
        (make_torchless_interpreter(), make_machine()),
        (replace(make_interpreter(T4), amd_gpus=1), make_machine("Tesla T4")),
        (make_interpreter(cuda=None), of_amd(make_machine("AMD Radeon RX 7900 XTX"))),
    ],
    ids=["it works", "no GPU", "neither", "an AMD GPU beside one that works", "AMD without its driver"],
)
def test_a_gpu_that_works_and_a_box_without_one_get_no_complaint(
    interpreter: Interpreter, machine: Machine
) -> None:
    assert unused_gpu(interpreter, machine) is None
    check_gpu_is_used(resolve_plan(QUICK, interpreter, machine), interpreter, machine)


def test_a_gpu_that_the_user_hid_is_left_out_with_a_remark_and_only_asking_for_it_is_an_error() -> None:
    machine = box("535.54.03", "12.2")
    interpreter = replace(CU13, hidden_by="CUDA_VISIBLE_DEVICES")
    plan = resolve_plan(QUICK, interpreter, machine)
    assert {launch.device.device_class for launch in plan.launches} == {"cpu"}
    check_gpu_is_used(plan, interpreter, machine)
    with pytest.raises(MachineLacks) as raised:
        resolve_plan(QUICK, interpreter, machine, Choices(device="gpu"))
    assert raised.value.message == (
        "--device gpu: CUDA_VISIBLE_DEVICES hides NVIDIA A100-SXM4-80GB from torch"
    )
    assert "unset CUDA_VISIBLE_DEVICES" in raised.value.hint
    of_amd = replace(CU13, hidden_by="HIP_VISIBLE_DEVICES")
    unused = unused_gpu(of_amd, machine)
    assert unused is not None, "a variable for AMD GPUs hides none of NVIDIA's"
    assert not unused.is_wanted


def test_the_cpu_is_measured_if_it_is_asked_for_and_so_is_a_plan_without_gpu_cases() -> None:
    machine = box("535.54.03", "12.2")
    for choices in (Choices(device="cpu"), Choices(only=("gemm",), device="cpu")):
        check_gpu_is_used(resolve_plan(QUICK, CU13, machine, choices), CU13, machine)
    for choices in (Choices(), Choices(only=("gemm",))):
        with pytest.raises(MachineLacks) as raised:
            check_gpu_is_used(resolve_plan(QUICK, CU13, machine, choices), CU13, machine)
        assert raised.value.exit_code == EXIT_MACHINE_LACKS
    for device in ("gpu", "gpu:0", "all"):
        with pytest.raises(MachineLacks) as raised:
            resolve_plan(QUICK, CU13, machine, Choices(device=device))
        assert wheel_of(raised.value.hint) == "2.13.0+cu126"


def test_what_the_driver_does_not_tell_is_concluded_from_its_newest_cuda() -> None:
    interpreter = replace(make_interpreter(cuda=None), executable="/home/a b/bin/python")
    for cuda, wheel in (("11.4", "2.7.1+cu118"), ("12.2", "2.13.0+cu126"), ("14.0", "2.13.0+cu130")):
        machine = replace(box("", cuda), driver_version=Missing("not told"))
        unused = unused_gpu(interpreter, machine)
        assert unused is not None
        assert wheel_of(unused.command) == wheel
        assert unused.command.startswith("'/home/a b/bin/python' -m pip install "), "one word"


def test_where_no_build_runs_on_the_driver_the_gpu_or_the_python_there_is_advice_and_no_command() -> None:
    newer = replace(CU13, runtime=replace(CU13.runtime, python_version="3.14.2"))
    none = (
        "no torch that can be measured runs with driver {} on compute capability {}: install a newer driver"
    )
    for interpreter, driver, cuda, capability, step in (
        (CU13, "418.226.00", "10.1", "7.0", none.format("418.226.00", "7.0")),
        (CU13, "470.256.02", "11.4", "3.7", none.format("470.256.02", "3.7")),
        (newer, "470.256.02", "11.4", "8.0", "Python 3.13 or older"),
    ):
        unused = unused_gpu(interpreter, box(driver, cuda, capability))
        assert unused is not None
        assert unused.command == ""
        assert step in unused.step


@pytest.mark.slow
def test_pip_replaces_the_build_of_pypi_by_the_one_of_the_line(tmp_path: Path) -> None:
    """The version alone would be satisfied already; what is behind `+` is what pip goes by."""
    for version in ("2.13.0", "2.13.0+cu126"):
        with zipfile.ZipFile(tmp_path / f"torch-{version}-py3-none-any.whl", "w") as wheel:
            info = f"torch-{version}.dist-info"
            wheel.writestr("torch/__init__.py", f"__version__ = {version!r}\n")
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
    venv.create(tmp_path / "env", symlinks=True)
    python = str(tmp_path / "env" / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "install", "-q"]

    def installed_by(requirement: str) -> str:
        local = ["--no-index", "--find-links", str(tmp_path)]
        subprocess.run([*pip, *local, requirement], check=True)
        shows = [python, "-c", "import torch; print(torch.__version__)"]
        return subprocess.run(shows, capture_output=True, text=True, check=True).stdout.strip()

    subprocess.run([*pip, "--no-deps", tmp_path / "torch-2.13.0-py3-none-any.whl"], check=True)
    assert installed_by("torch==2.13.0") == "2.13.0"
    build = build_for(535, (8, 0))
    assert build is not None
    assert installed_by(build.words.split()[0]) == "2.13.0+cu126"
    assert installed_by("torch==2.13.0") == "2.13.0+cu126", "and the README's command keeps it"
