"""MFU and MBU against examples worked by hand from published figures."""

from __future__ import annotations

import io

import pytest
from hand_made import make_run, unmeasured
from journals import CPU_MACHINE, GPU_MACHINE
from test_expected import at_rate

from gputui.document.page import console_on
from gputui.model.absent import Missing
from gputui.services.results.expected import Use, share_of_sheet, share_text, uses_of
from gputui.services.run_page import run_page


def test_of_an_h200_training_gpt2_at_347k_tokens_per_second_uses_30_percent_and_writing_all_bandwidth() -> (
    None
):
    # 0.85 GFLOP a token (6N + 12LdT) x 347,000/s = 295 TFLOP/s, of 989.4 in the data sheet.
    case = at_rate(347_000, "gpt_train", "base", "amp")
    (use,) = uses_of(case, [case], GPU_MACHINE)
    assert use.per_s == pytest.approx(295e12, rel=0.02)
    assert use.of_sheet == pytest.approx(0.298, rel=0.02)
    assert not use.is_impossible
    # 13.2 GB of bf16 weights and the cache for each of 343 tokens; 4.8 TB/s.
    flops, traffic = uses_of(at_rate(343, "decode", "xl", "amp"), [], GPU_MACHINE)
    assert (flops.unit, traffic.unit) == ("flop", "B")
    assert traffic.of_sheet == pytest.approx(0.96, rel=0.03)
    assert flops.of_sheet == pytest.approx(343 * 2 * 6.6e9 / 989.4e12, rel=0.03)
    gemm = at_rate(780e12, "gemm", "large", "amp")
    (use,) = uses_of(gemm, [gemm], GPU_MACHINE)
    assert use.of_sheet == pytest.approx(780 / 989.4)
    assert use.of_measured == Missing("it is a peak test itself")


def test_the_measured_peak_is_that_of_the_same_type_on_the_same_device() -> None:
    peers = [
        at_rate(700e12, "gemm", "large", "amp"),
        at_rate(500e12, "gemm", "mini", "amp"),
        at_rate(50e12, "gemm", "large", "fp32"),
        at_rate(800e12, "gemm", "large", "amp", index=1),
        at_rate(4.2e12, "membw", "base"),
    ]
    (use,) = uses_of(at_rate(347_000, "gpt_train", "base", "amp"), peers, GPU_MACHINE)
    assert use.of_measured == pytest.approx(295 / 700, rel=0.02)
    (use,) = uses_of(at_rate(20_000, "gpt_train", "base", "fp32"), peers, GPU_MACHINE)
    assert use.of_measured == pytest.approx(20_000 * 0.85e9 / 50e12, rel=0.02)
    _, traffic = uses_of(at_rate(200, "decode", "xl", "amp"), peers, GPU_MACHINE)
    assert traffic.of_measured == pytest.approx(200 * 13.4e9 / 4.2e12, rel=0.03)


def test_an_unknown_gpu_and_a_cpu_get_only_the_measured_peak() -> None:
    gemm = at_rate(10e12, "gemm", "mini", device_name="Radeon Nonesuch")
    (use,) = uses_of(at_rate(1000, "gpt_train", "mini", device_name="Radeon Nonesuch"), [gemm], GPU_MACHINE)
    assert isinstance(use.of_sheet, Missing)
    assert "Radeon Nonesuch" in use.of_sheet.reason
    assert not isinstance(use.of_measured, Missing)
    on_cpu = at_rate(1000, "gpt_train", "mini", device_class="cpu", device_name="AMD EPYC")
    cpu_gemm = at_rate(1e11, "gemm", "mini", device_class="cpu", device_name="AMD EPYC")
    (use,) = uses_of(on_cpu, [cpu_gemm, gemm], CPU_MACHINE)
    assert use.of_sheet == Missing("gputui has no peak figures for CPUs")
    assert not isinstance(use.of_measured, Missing)


def test_more_than_the_physical_peak_is_an_error_unless_cards_of_its_kind_boost_beyond_their_sheet() -> None:
    assert Use("flop", 1.2e15, 1.21, Missing("x")).is_impossible
    assert not Use("flop", 1.0e15, 1.05, Missing("x")).is_impossible
    assert not Use("flop", 1.0e15, Missing("x"), 1.3).is_impossible
    # bf16 of an RTX 5090: 209.5 TFLOP/s in the data sheet, 222 to 254 seen on healthy cards.
    for tflops, is_impossible in ((250, False), (300, True)):
        gemm = at_rate(tflops * 1e12, "gemm", "large", "amp", device_name="NVIDIA GeForce RTX 5090")
        (use,) = uses_of(gemm, [gemm], GPU_MACHINE)
        assert use.of_sheet == pytest.approx(tflops / 209.5, abs=0.01)
        assert use.is_impossible == is_impossible
        assert is_impossible or share_text(share_of_sheet([use])) == "119 % (boost)"


def test_transfers_do_not_count_as_traffic_of_the_device_and_an_unmeasured_case_has_no_use() -> None:
    assert uses_of(at_rate(50e9, "xfer", "256m-h2d"), [], GPU_MACHINE) == ()
    assert uses_of(unmeasured(at_rate(1.0, "gemm", "mini").case, "oom"), [], GPU_MACHINE) == ()


def test_the_shares_are_printed_and_what_is_impossible_is_called_an_error() -> None:
    gemm = at_rate(1.2e15, "gemm", "large", "amp")
    run = make_run(gemm, at_rate(347_000, "gpt_train", "base", "amp"), machine=GPU_MACHINE)
    page = io.StringIO()
    run_page(console_on(page, 100), run, is_verbose=True).show()
    lines = page.getvalue().partition("efficiency")[2].splitlines()
    assert " ".join(lines[0].split()) == "achieved of this box's peak of the data sheet"
    assert lines[1].split()[-4:] == ["PFLOP/s", "—", "121", "%"]
    assert " ".join(lines[2].split()[-8:]) == "297 TFLOP/s 25 % of matmul 30 %"
    assert "above the physical peak: matmul large gpu amp(bf16) 121 %: a measurement error" in page.getvalue()
