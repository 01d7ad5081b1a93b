from __future__ import annotations

import itertools
import re

import pytest

from gputui.facts.tables import (
    GpuFacts,
    GpuRow,
    InstanceRow,
    PlausibleRow,
    distribution_rows,
    expected,
    find_gpu,
    gpu_rows,
    instance_rows,
    model_configs,
    plausible_rows,
    source_rows,
)
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.services.prices import (
    find_instance,
    is_on_demand,
    list_price,
    most_rented,
)


def test_every_published_distribution_has_a_source_a_date_and_rates_or_a_spread() -> None:
    gpus = {row.name for row in gpu_rows()}
    for row in distribution_rows():
        assert row.gpu in gpus, row
        assert set(row.source) <= source_rows().keys(), row
        assert row.date, row
        assert bool(row.rates) != (row.spread_pct is not None), row
        assert row.shape, row
        assert not row.rates or row.boxes == len(row.rates) or row.boxes == 1, row
        assert row.same_work is None or 0.9 < row.same_work <= 1, row


def all_rows() -> tuple[GpuRow | PlausibleRow | InstanceRow, ...]:
    return (*gpu_rows(), *plausible_rows(), *instance_rows())


def test_every_source_named_in_a_table_is_explained() -> None:
    named = set(itertools.chain.from_iterable(row.source for row in all_rows()))
    named |= set(itertools.chain.from_iterable(row.spot_source for row in instance_rows()))
    named |= set(itertools.chain.from_iterable(str(c["source"]).split(";") for c in model_configs().values()))

    assert named
    assert named <= source_rows().keys()


def test_every_row_has_a_source_and_a_confidence_no_peak_is_zero_and_ranges_lie_within_their_limits() -> None:
    for row in all_rows():
        assert row.source, row
        assert row.confidence in ("high", "medium", "low"), row
    for gpu in gpu_rows():
        figures = (gpu.fp32_tflops, gpu.tf32_tensor_tflops, gpu.fp16_tensor_tflops, gpu.bf16_tensor_tflops)
        assert all(figure is None or figure > 0 for figure in figures), gpu
    for known in plausible_rows():
        assert known.measured_min <= (known.measured_max or known.measured_min), known
        assert (known.measured_max or known.measured_min) <= known.suspicious_above, known


def test_names_of_gpus_are_unique_and_other_tables_use_them() -> None:
    names = [row.name for row in gpu_rows()]

    assert len(names) == len(set(names)) > 150
    assert {row.gpu for row in plausible_rows() if not row.gpu.startswith("any:")} <= set(names)
    assert {row.gpu for row in instance_rows()} <= set(names)


def range_of(gpu: GpuFacts | str, measure: str, dtype: str) -> PlausibleRow:
    row = expected(gpu, measure, dtype)
    assert isinstance(row, PlausibleRow), row
    return row


def test_the_expected_range_is_in_base_units_and_takes_a_precision_as_used() -> None:
    row = range_of("H200 SXM", "matmul", "amp-bf16")

    assert row.unit == "flop"
    assert row.measured_min == pytest.approx(769e12)
    assert row.measured_max == pytest.approx(798e12)


def test_what_stands_for_a_range_that_was_not_measured() -> None:
    simulated = range_of("L40S", "copy", "")
    assert (simulated.measure, simulated.measured_max) == ("lbm", None), "a minimum"
    assert range_of("H200 SXM", "h2d_pinned", "").measured_max == pytest.approx(55.5e9), "no pass threshold"
    assert expected("T4G", "matmul", "amp-fp16") == Missing("no fp16 matmul figures known for T4G")
    slice_of_h100 = find_gpu("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None)
    assert isinstance(slice_of_h100, GpuFacts)
    assert isinstance(expected(slice_of_h100, "matmul", "bf16"), Missing)


def test_an_instance_is_found_by_type_and_by_provider_and_type() -> None:
    [row] = find_instance("aws/g5.xlarge")

    assert (row.provider, row.gpu, row.gpu_count) == ("aws", "A10G", 1.0)
    assert row.usd_per_hour == pytest.approx(1.006)
    assert find_instance(" G5.XLARGE ") == (row,)
    assert find_instance("gcp/g5.xlarge") == ()
    assert find_instance("") == ()


def test_a_list_price_carries_kind_region_and_date() -> None:
    [row] = find_instance("aws/p4d.24xlarge")
    price = list_price(row)

    assert isinstance(price, Price)
    assert price.gpu_count == 8
    assert (price.kind, price.region, price.date) == ("on-demand Linux", "us-east-1", "2026-07-20")


def test_an_instance_without_a_known_price_is_missing_and_never_free() -> None:
    unpriced = [row for row in instance_rows() if row.usd_per_hour is None]

    assert unpriced
    assert all(isinstance(list_price(row), Missing) for row in unpriced)


def test_gpus_of_more_providers_are_rented_before_those_of_fewer() -> None:
    ranked = most_rented()
    assert len(ranked) == len(set(ranked))
    providers = {
        gpu: {
            row.provider
            for row in instance_rows()
            if row.gpu == gpu
            and row.gpu_count >= 1
            and isinstance(row.usd_per_hour, float)
            and row.usd_per_hour > 0
        }
        for gpu in ranked
    }
    counts = [len(providers[gpu]) for gpu in ranked]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] > 0


OTHER_PRICE = re.compile(r"\b[Ss]pot: .*")
"""What a note says of the price in another column, or of one that is not listed."""
NOT_ON_DEMAND = re.compile(r"commit|reserv|contract|interrupt|preempt|communit|marketplace|spot|flex", re.I)


def test_what_a_note_calls_a_commitment_spot_or_a_community_price_is_not_listed_as_on_demand() -> None:
    found = 0
    for row in instance_rows():
        told = f"{row.instance_type} {OTHER_PRICE.sub('', row.notes)}"
        if NOT_ON_DEMAND.search(told) and row.usd_per_hour is not None:
            found += 1
            assert not is_on_demand(row.price_kind), (row.provider, row.instance_type, row.price_kind)
            assert not row.price_kind.startswith("on-demand")
    assert found > 20


@pytest.mark.parametrize(
    ("kinds", "is_by_the_hour"),
    [
        ("on-demand, on-demand Linux, OnDemand, on-demand secure cloud, list", True),
        ("commitment, 3-year Committed Use, Reserved, spot, Interruptible, monthly, flex-start", False),
        ("preemptible per second, community, marketplace lowest, on-demand community cloud", False),
    ],
)
def test_a_price_by_the_hour_is_on_demand_and_one_with_a_condition_is_not(
    kinds: str, is_by_the_hour: bool
) -> None:
    for kind in kinds.split(", "):
        assert is_on_demand(kind) == is_by_the_hour, kind
