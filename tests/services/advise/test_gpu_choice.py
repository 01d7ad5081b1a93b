"""Which GPUs are asked about, what each holds, and the sentence that answers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import pytest

from gputui.analysis.fit import GIB, Fit
from gputui.analysis.inference_fit import (
    WEIGHT_FORMATS,
    ServedModel,
    fit_inference,
    needed_for_inference,
)
from gputui.analysis.statistics import Estimated
from gputui.errors import EXIT_USAGE, GputuiError
from gputui.facts.tables import gpu_rows, memory_of
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.services.advise.gpu_choice import (
    GpuPick,
    Wish,
    headline,
    inference_report,
    picks_of,
    report,
    rows_asked,
)
from gputui.services.advise.published_models import model_named
from gputui.services.prices import is_on_demand

EIGHT = model_named("Llama 3.1 8B")
SERVING = ServedModel(EIGHT.parameters, WEIGHT_FORMATS["bf16"], "bf16", EIGHT, 1, 8192)


def served(memory_bytes: int) -> Fit:
    return fit_inference(SERVING, memory_bytes)


@cache
def everywhere() -> tuple[GpuPick, ...]:
    return picks_of(served, lambda fit, row: Estimated(100.0, 50.0, 200.0))


def test_a_gpu_has_one_size_in_the_table_and_by_its_name() -> None:
    in_table = {pick.row.name: (pick.memory_bytes, pick.row.nvml_memory_mib is None) for pick in everywhere()}
    for row in gpu_rows():
        size, name = memory_of(row), row.name
        if isinstance(size, Missing):
            assert name not in in_table
            with pytest.raises(GputuiError) as caught:
                rows_asked(name)
            assert caught.value.exit_code == EXIT_USAGE
            continue
        assert row in rows_asked(name)
        assert in_table[name] == (size, row.nvml_memory_mib is None)


def test_what_holds_it_comes_first_and_of_that_recent_prices_on_demand_by_their_cost_per_token() -> None:
    picks = everywhere()
    holds = [pick.holds for pick in picks]
    assert holds == sorted(holds, reverse=True)
    offered = [(pick, pick.price) for pick in picks if pick.holds and isinstance(pick.price, Price)]
    recent = [pick for pick, price in offered if is_on_demand(price.kind) and not pick.age]
    assert picks[: len(recent)] == tuple(recent)
    costs = [pick.usd_per_million for pick in recent]
    values = [cost.value for cost in costs if isinstance(cost, Estimated)]
    assert len(values) == len(costs) > 10
    assert values == sorted(values)


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("H200", {"H200 NVL", "H200 SXM"}),
        ("h200 sxm", {"H200 SXM"}),
        ("RTX 3090", {"RTX 3090"}),
        ("NVIDIA A100-SXM4-80GB", {"A100-SXM4-80GB"}),
        ("NVIDIA GeForce RTX 4090", {"RTX 4090"}),
        ("NVIDIA H20", {"H20", "H20-3e 141GB"}),
        ("NVIDIA H100 80GB HBM3", {"H100 SXM 80GB"}),
    ],
)
def test_a_gpu_is_found_by_its_name_a_part_of_it_or_its_drivers(asked: str, names: set[str]) -> None:
    assert {row.name for row in rows_asked(asked)} == names


def test_the_price_is_that_of_an_instance_with_enough_gpus_and_a_token_costs_the_share_of_those_in_use() -> (
    None
):
    large = model_named("Llama 3.1 70B")
    serving = ServedModel(large.parameters, WEIGHT_FORMATS["bf16"], "bf16", large, 1, 8192)
    picks = picks_of(partial(fit_inference, serving), lambda fit, row: Estimated(100.0, 50.0, 200.0))
    several = 0
    for pick in picks:
        if isinstance(pick.price, Missing):
            assert isinstance(pick.usd_per_million, Missing)
            continue
        assert pick.fit.word != "does not fit"
        assert pick.price.gpu_count >= pick.fit.gpus
        several += pick.fit.gpus > 1
        per_s = pick.price.usd_per_hour / 3600 * pick.fit.gpus / pick.price.gpu_count
        cost = pick.usd_per_million
        assert isinstance(cost, Estimated)
        assert cost.value == pytest.approx(1e6 * per_s / 100)
        assert (cost.low, cost.high) == pytest.approx((cost.value / 2, cost.value * 2))
    assert several > 5


def sentence(**wish: str) -> str:
    return inference_report(replace(Wish(), **wish)).headline


def test_the_headline_says_on_what_it_fits_what_it_costs_and_how_fast_it_should_be() -> None:
    found = inference_report(Wish(params="8B", context="32768", batch="8", gpu="H100 SXM 80GB"))
    (one,) = found.picks
    assert isinstance(one.price, Price)
    assert isinstance(one.speed, Estimated)
    needs = one.fit.needed_bytes[1] / GIB
    offered = ", ".join(filter(None, (one.price.provider, one.age)))
    of = "" if one.price.gpu_count == 1 else f" for {one.price.gpu_count:g} of them"
    assert found.headline.startswith(
        f"Fits: 8B in bf16 with 32768 tokens x 8 on an H100 SXM 80GB, {needs:.1f} of 79.6 GiB,"
        f" from ${one.price.usd_per_hour:.2f}/h{of} ({offered}). Expected: {one.speed.value:.0f} tok/s ("
    )
    assert found.headline.endswith(" per 1M tokens.")


def test_a_headline_says_how_it_is_spread_what_is_cheapest_or_what_would_hold_it() -> None:
    said = sentence(params="70B", gpu="H100 SXM 80GB")
    assert said.startswith(
        "Fits: 70B in bf16 with 8192 tokens x 1 on 2 x H100 SXM 80GB with tensor parallelism, "
    )
    assert " GiB each, from $" in said
    assert re.match(
        r"Cheapest: 8B in bf16 with 8192 tokens x 1 on an? .*, [\d.]+ of [\d.]+ GiB, from \$[\d.]+/h",
        sentence(params="8B"),
    )
    huge = sentence(params="1e14")
    assert huge.startswith("Does not fit: ")
    assert huge.endswith("Take a smaller model, batch or context, or fewer bits per weight.")
    said = sentence(params="671B", gpu="GTX 1080")
    assert said.startswith("Does not fit: 671B in bf16 with 8192 tokens x 1 needs ")
    assert re.search(r"a GeForce GTX 1080 has [\d.]+ GiB\. The cheapest that holds it: ", said)


def test_what_is_tight_gives_both_ends_of_what_it_needs_and_is_not_what_holds_it() -> None:
    tight = fit_inference(SERVING, sum(needed_for_inference(SERVING)) // 2)
    assert (tight.word, tight.needed_bytes) == ("tight", needed_for_inference(SERVING))
    said = sentence(params="8030261248", context="100", gpu="RTX 5080")
    assert re.match(
        r"Tight: 8\.03B in bf16 with 100 tokens x 1 needs 15\.\d GiB to 1\d\.\d GiB, an RTX 5080 has", said
    )
    assert "The cheapest that holds it: " in said
    picks = picks_of(lambda size: tight, lambda fit, row: Missing("not asked"))
    assert not any(pick.holds for pick in picks)
    assert "Tight: it needs " in headline("it", picks, picks, tight.needed_bytes)


@pytest.mark.parametrize(
    ("asked", "change", "message", "hint"),
    [
        (report, {"gpu": "H210"}, "--gpu: unknown GPU 'H210'", "H200"),
        (report, {"gpu": ""}, "--gpu: unknown GPU ''", "--all"),
        (report, {"gpu": "Apple M2"}, "--gpu: Apple M2", "--all"),
        (report, {"optimizer": "adamwx"}, "--optimizer: unknown optimizer 'adamwx'", "did you mean adamw?"),
        (report, {"precision": "fp7"}, "--precision: unknown precision 'fp7'", "--infer also fp16"),
        (report, {"batch": "0"}, "--batch: 0 is out of range", "from 1"),
        (report, {"context": "1.5"}, "--context: must be a whole number, got '1.5'", "2048"),
        (report, {"params": None}, "the size of the model is missing", "--params"),
        (inference_report, {"params": "many"}, "--params: must be a whole number, got 'many'", "7e9"),
        (inference_report, {"precision": "amp"}, "--precision: unknown precision 'amp'", "--train also amp"),
        (inference_report, {"cache_precision": "int4"}, "--kv-precision: unknown", "one of fp32"),
        (inference_report, {"gpus": "3"}, "--gpus 3: 32 attention heads do not split", "one of 1, 2, 4, 8,"),
        (inference_report, {"gpus": "0"}, "--gpus: 0 is out of range", "from 1"),
        (inference_report, {"context": "-1"}, "--context: -1 is out of range", "from 1"),
    ],
)
def test_each_bad_value_is_an_error_that_names_it(
    asked: Callable[[Wish], object], change: dict[str, str | None], message: str, hint: str
) -> None:
    with pytest.raises(GputuiError) as caught:
        asked(replace(Wish(params="8B"), **change))  # type: ignore[arg-type]
    assert caught.value.exit_code == EXIT_USAGE
    assert caught.value.message.startswith(message)
    assert hint in caught.value.hint
