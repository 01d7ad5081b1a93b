"""Short words for long or useless values."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hand_made import make_run, measured, steady
from journals import GPU_MACHINE, make_case

from gputui.analysis.verdict import SpeedEstimate
from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.services.results.labels import box_lines, case_name, interval_words
from gputui.store.selecting import check_label

SPEED = SpeedEstimate(units_per_s=100.0, low=80.0, high=125.0, blocks=9, independent=9, launches=1, method="")


def test_an_uninformative_interval_is_shown_as_such_and_takes_little_room() -> None:
    assert interval_words(SPEED) == "-20 to +25 %"
    assert interval_words(replace(SPEED, low=1e-4, high=1e8)) == "unknown"
    assert interval_words(replace(SPEED, low=1e-300, high=1e300)) == "unknown"


def test_of_a_label_that_is_too_long_the_beginning_is_repeated_and_the_reason_follows() -> None:
    with pytest.raises(GputuiError) as refused:
        check_label("x" * 300)
    assert str(refused.value.message) == f"'{'x' * 24}…' is not a label"
    assert "80" in refused.value.hint


def test_the_driver_of_an_nvidia_gpu_says_how_far_cuda_goes_and_that_of_an_amd_gpu_does_not() -> None:
    summary = make_run(measured(make_case("gemm", device_class="gpu"), steady(0.1))).summary
    gpu = replace(GPU_MACHINE.gpus[0], vendor="nvidia")
    for vendor, version, words in (
        ("nvidia", "580.95.05", "580.95.05, CUDA up to 13.0"),
        ("amd", "6.16.13", "6.16.13"),
    ):
        machine = replace(
            GPU_MACHINE,
            gpus=(replace(gpu, vendor=vendor),),
            driver_version=version,
            cuda_driver_version="13.0" if vendor == "nvidia" else Missing("no NVIDIA driver"),
        )
        assert dict(box_lines(replace(summary, machine=machine)))["driver"] == words


@pytest.mark.parametrize(
    ("asked", "used", "name"),
    [("amp", "amp-bf16", "amp(bf16)"), ("amp-bf16", "amp-bf16", "amp-bf16"), ("fp32", "fp32", "fp32")],
)
def test_the_name_of_a_case_has_the_type_that_amp_chose_but_not_twice(
    asked: str, used: str, name: str
) -> None:
    case = measured(make_case("gemm", precision=asked, device_class="gpu"), steady(0.1), precision_used=used)
    assert case_name(case) == f"matmul mini gpu {name}"
