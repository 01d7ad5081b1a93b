"""What an interpreter reports: versions, devices, and whether torch has kernels for them."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from pathlib import Path

import pytest

from gputui.model.absent import Missing
from gputui.recording.probing import interpreter_from_plain, probe_interpreter
from gputui.worker.probe import (
    _cudnn_text,
    amd_gpus,
    is_too_old,
    missing_kernels,
)


def test_amd_gpus_are_counted_by_their_memory_and_only_where_their_compute_driver_is(tmp_path: Path) -> None:
    def card(number: int, vram: str) -> None:
        device = tmp_path / f"sys/devices/pci/0000:{number:02x}:00.0"
        device.mkdir(parents=True)
        (device / "mem_info_vram_total").write_text(vram)
        for name in (f"card{number}", f"card{number}-DP-1"):
            (tmp_path / "sys/class/drm" / name).mkdir(parents=True)
            (tmp_path / "sys/class/drm" / name / "device").symlink_to(device)

    card(0, f"{512 << 20}\n")  # the graphics unit of a processor
    card(1, f"{206141652992}\n")
    card(2, f"{4278190080}\n")  # a card of 4 GiB
    card(3, "\n")
    assert amd_gpus(tmp_path) == 0
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    assert amd_gpus(tmp_path) == 2


CU128 = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]
"""Like those of torch for CUDA 12.8: Pascal and older are left out."""


@pytest.mark.parametrize(
    ("capability", "arch_list"),
    [
        ((9, 0), ["sm_80", "sm_90"]),
        ((8, 6), ["sm_80"]),
        ((8, 9), ["sm_80", "sm_86", "sm_90"]),
        ((10, 3), ["sm_100"]),
        ((12, 1), ["sm_120"]),
        ((9, 0), ["sm_90a"]),
        ((10, 3), ["sm_100f"]),
        ((9, 0), ["sm_70", "compute_70"]),
        ((12, 0), ["sm_90", "compute_90"]),
        ((12, 0), ["sm_90", "compute_120"]),
        ((7, 5), CU128),
    ],
)
def test_torch_runs_where_it_has_kernels_of_the_same_major_or_older_intermediate_code(
    capability: tuple[int, int], arch_list: list[str]
) -> None:
    assert missing_kernels(capability, arch_list) == ""


@pytest.mark.parametrize(
    ("capability", "arch_list"),
    [
        ((8, 0), ["sm_86"]),  # a higher minor version
        ((9, 0), ["sm_80", "sm_86"]),  # another major version
        ((10, 3), ["sm_100a"]),  # `a` runs on exactly its own
        ((12, 0), ["sm_90a", "compute_90a"]),  # also as intermediate code
        ((9, 0), ["sm_80", "compute_100"]),  # newer intermediate code
        ((12, 0), ["sm_100f"]),  # a family ends with its major version
        ((9, 0), ["gfx90a", "nonsense", "sm_"]),  # unknown names promise nothing
    ],
)
def test_torch_does_not_run_on_other_hardware_and_the_reason_names_it(
    capability: tuple[int, int], arch_list: list[str]
) -> None:
    reason = missing_kernels(capability, arch_list)
    assert ".".join(map(str, capability)) in reason
    assert " ".join(arch_list) in reason


def test_a_p100_is_told_that_a_torch_of_today_left_it_behind() -> None:
    assert missing_kernels((6, 0), CU128) == (
        "this torch has no kernels for compute capability 6.0 (it has sm_75 sm_80 sm_86 sm_90 sm_100 sm_120)"
    )


def test_a_torch_for_cpus_only_says_that_it_has_no_kernels_at_all() -> None:
    assert missing_kernels((9, 0), []) == "this torch has no GPU kernels"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (91002, "9.10.2"),
        (90100, "9.1.0"),
        (92000, "9.20.0"),
        (8902, "8.9.2"),
        (8500, "8.5.0"),
        (7605, "7.6.5"),
        (None, None),
    ],
)
def test_cudnn_version_numbers_are_read_in_their_old_and_their_new_form(
    number: int | None, text: str | None
) -> None:
    assert _cudnn_text(number) == text


BARE = [sys.executable, "-S"]
"""This Python without installed packages."""


def broken_torch(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str | None) -> None:
    """A torch that runs `code` when it is imported; None leaves the empty folder of an old one."""
    (folder / "torch").mkdir()
    if code is not None:
        (folder / "torch" / "__init__.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(folder))


@pytest.mark.parametrize(
    ("version", "too_old"),
    [
        ("1.13.1+cu117", True),
        ("2.1.0", True),
        ("2.3.1", True),
        ("2.3.0a0+40ec155e58.nv24.3", True),
        ("2.4.0a0+git123", False),
        ("2.4.0a0+07cecf4168.nv24.05", False),
        ("2.4.0", False),
        ("2.10.0.dev2026", False),
        ("2.13.0+cpu", False),
        ("3.0", False),
        ("unknown", False),
    ],
)
def test_a_torch_is_too_old_by_its_first_two_numbers(version: str, too_old: bool) -> None:
    assert is_too_old(version) is too_old


def test_an_interpreter_without_torch_says_that_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    found = probe_interpreter(BARE)
    assert found["torch_missing"] == "not installed"
    assert found["devices"] == []
    assert found["python_version"] == platform.python_version()
    assert isinstance(interpreter_from_plain(found).runtime.torch_version, Missing)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import a_module_nobody_has", "needs module a_module_nobody_has"),
        ("import hf_SECRET_é", "needs another module"),
        (
            "raise OSError('/home/me/lib/libcudart.so.12: cannot open for hf_SECRET')",
            "cannot be imported (OSError, libcudart.so.12): python -c 'import torch' shows why",
        ),
        (
            "raise RuntimeError('built for another numpy, hf_SECRET')",
            "cannot be imported (RuntimeError): python -c 'import torch' shows why",
        ),
        (None, "cannot be imported (AttributeError): python -c 'import torch' shows why"),
    ],
)
def test_a_torch_that_cannot_be_imported_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str | None, reason: str
) -> None:
    broken_torch(tmp_path, monkeypatch, code)
    assert probe_interpreter(BARE)["torch_missing"] == reason


def test_this_interpreter_reports_all_that_a_run_records() -> None:
    torch_version = metadata.version("torch")
    found = probe_interpreter([sys.executable])
    interpreter = interpreter_from_plain(found)
    assert found["torch_missing"] == ""
    assert found["torch_version"].split("+")[0] == torch_version.split("+")[0]
    assert interpreter.runtime.python_version == platform.python_version()
    assert interpreter.runtime.python_implementation == platform.python_implementation()
    for text in (interpreter.runtime.cpu_capability, interpreter.runtime.blas):
        assert isinstance(text, str)
        assert text
    assert Path(found["torch_file"]).is_file()
    cpu = interpreter.devices[0]
    assert (cpu.torch_device, cpu.index, cpu.runs_here, cpu.why_not) == ("cpu", 0, True, "")
    assert cpu.name
