from __future__ import annotations

import csv
from pathlib import Path

import pytest

from gputui.facts.tables import (
    KEPT_BY_THE_DRIVER,
    GpuFacts,
    find_gpu,
    gpu_rows,
    is_slice,
    memory_of,
    peak_bandwidth,
    peak_for,
)
from gputui.model.absent import Missing


def found(device_name: str, memory_gib: float | None = None) -> GpuFacts:
    gpu = find_gpu(device_name, memory_gib)
    assert isinstance(gpu, GpuFacts), gpu
    return gpu


def test_every_driver_name_we_know_takes_the_row_of_that_card_and_of_no_other() -> None:
    with (Path(__file__).parent / "driver_names.csv").open(encoding="utf-8", newline="") as file:
        known = list(csv.DictReader(file))
    assert len(known) > 200
    for line in known:
        gpu = find_gpu(line["driver_name"], float(line["memory_gib"]))
        assert ("" if isinstance(gpu, Missing) else gpu.name) == line["row"], line
        if isinstance(gpu, Missing) or gpu.mig_profile or gpu.row.memory_gib is None:
            continue
        ratio = float(line["memory_gib"]) / gpu.row.memory_gib
        assert 0.85 <= ratio <= 1.02 or gpu.name in _SOLD_IN_TWO_SIZES, line


_SOLD_IN_TWO_SIZES = ("RTX 4060 Ti", "RTX 5060 Ti")
"""With equal rates; each size has the row of the other."""


def test_parts_with_one_name_are_distinguished_by_memory_and_missing_without_it() -> None:
    assert found("NVIDIA GeForce RTX 3080", 10.0).name == "RTX 3080"
    assert found("NVIDIA GeForce RTX 3080", 12.0).name == "RTX 3080 12GB"
    assert found("NVIDIA H20", 95.6).name == "H20"
    assert found("NVIDIA H20", 140.0).name == "H20-3e 141GB"
    assert isinstance(find_gpu("NVIDIA GeForce RTX 3080", None), Missing)
    assert found("nvidia a100-sxm4-40gb").name == "A100-SXM4-40GB", "whatever its case"


def test_a_mig_slice_is_recognised_and_has_no_peak_of_its_own() -> None:
    gpu = found("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9.5)

    assert (gpu.name, gpu.mig_profile) == ("H100 SXM 80GB", "1g.10gb")
    assert is_slice("NVIDIA H100 80GB HBM3 MIG 1g.10gb")
    assert not is_slice("NVIDIA H100 80GB HBM3")
    assert isinstance(peak_for(gpu, "amp-bf16"), Missing)
    assert isinstance(peak_bandwidth(gpu), Missing)


def test_a_partition_of_an_amd_gpu_has_no_figures_of_the_whole() -> None:
    assert found("AMD Instinct MI300X", 191.9).name == "Instinct MI300X"
    assert is_slice("AMD Instinct MI300X partition 1/8")
    assert not is_slice("AMD Instinct MI300X")
    part = found("AMD Instinct MI300X partition 1/8", 191.9)
    assert peak_for(part, "amp-bf16") == Missing(
        "the slice 1/8 has only a part of the Instinct MI300X's peak"
    )


@pytest.mark.parametrize(
    "device_name",
    [
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "Quadro RTX 5000 with Max-Q Design",
        "GRID T4-16C",
        "NVIDIA A10-4Q",
        "NVIDIA A100-SXM4-40GB-1-5C",
    ],
)
def test_laptop_parts_and_virtual_gpus_have_no_peak(device_name: str) -> None:
    gpu = found(device_name, 16.0)
    for precision_used in ("fp32", "tf32", "amp-bf16", "amp-fp16"):
        assert isinstance(peak_for(gpu, precision_used), Missing)
    assert isinstance(peak_bandwidth(gpu), Missing)


@pytest.mark.parametrize("device_name", ["NVIDIA Z9000", "", "llvmpipe", "NVIDIA L400"])
def test_an_unknown_name_is_missing_with_the_reason(device_name: str) -> None:
    gpu = find_gpu(device_name, 24.0)

    assert isinstance(gpu, Missing)
    assert "not in the table" in gpu.reason


@pytest.mark.parametrize(
    ("device_name", "precision_used", "tflops"),
    [
        ("NVIDIA H200", "amp-bf16", 989.4),
        ("NVIDIA H200", "tf32", 494.7),
        ("NVIDIA H200", "fp32", 66.9),
        ("NVIDIA A10G", "amp-bf16", 70),
        ("NVIDIA A10", "amp-bf16", 125),
        ("NVIDIA GeForce RTX 4090", "amp-bf16", 165.2),
        ("NVIDIA RTX A6000", "amp-bf16", 154.8),
        ("Tesla T4", "amp-fp16", 65),
        ("Tesla P100-PCIE-16GB", "amp-fp16", 18.7),  # the vector rate: it has no tensor units
        ("Tesla T4", "amp-bf16", None),
        ("Tesla T4", "tf32", None),
        ("Tesla T4", "", None),
    ],
)
def test_peaks_are_dense_and_of_the_precision_that_was_used_or_missing_and_never_zero(
    device_name: str, precision_used: str, tflops: float | None
) -> None:
    peak = peak_for(found(device_name), precision_used)
    assert isinstance(peak, Missing) if tflops is None else peak == pytest.approx(tflops * 1e12)


def test_the_bandwidth_is_in_bytes_a_second() -> None:
    assert peak_bandwidth(found("NVIDIA H200")) == pytest.approx(4.8e12)


def test_memory_is_the_drivers_figure_and_else_the_sales_figure_less_what_any_driver_keeps() -> None:
    for row in gpu_rows():
        size = memory_of(row)
        if row.nvml_memory_mib is not None:
            assert size == row.nvml_memory_mib * 2**20, row.name
            assert row.memory_gib is None or size >= row.memory_gib * (1 - KEPT_BY_THE_DRIVER) * 2**30
        elif row.memory_gib is not None:
            assert size == pytest.approx(row.memory_gib * (1 - KEPT_BY_THE_DRIVER) * 2**30), row.name
        else:
            assert isinstance(size, Missing), row.name
