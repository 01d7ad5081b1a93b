"""Which GPUs are asked about, what each holds, and the sentence that answers."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest

from gputui.analysis.fit import GIB, Fit
from gputui.analysis.inference_fit import (
    WEIGHT_FORMATS,
    ServedModel,
    fit_inference,
    needed_for_inference,
)
from gputui.errors import EXIT_USAGE, GputuiError
from gputui.facts.tables import gpu_rows, memory_of
from gputui.model.absent import Missing
from gputui.services.advise.gpu_choice import (
    GpuClass,
    Wish,
    cheapest,
    classes_of,
    only,
    rows_asked,
    shown_first,
)
from gputui.services.advise.memory_fit import inference_report, report
from gputui.services.advise.published_models import model_named

EIGHT = model_named("Llama 3.1 8B")
SERVING = ServedModel(EIGHT.parameters, WEIGHT_FORMATS["bf16"], "bf16", EIGHT, 1, 8192)
TRAINING = Wish(params="7e9")


def served(memory_bytes: int) -> Fit:
    return fit_inference(SERVING, memory_bytes)


@cache
def everywhere() -> tuple[GpuClass, ...]:
    return classes_of(rows_asked(None), served)


def sizes_of(classes: tuple[GpuClass, ...]) -> dict[str, tuple[int, bool]]:
    return {name: (one.memory_bytes, one.is_estimated) for one in classes for name in one.names}


def test_a_gpu_has_one_size_in_the_table_and_by_its_name() -> None:
    in_table = sizes_of(everywhere())
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


def test_training_and_inference_give_a_gpu_the_size_it_has_in_the_table() -> None:
    for name, size in (("H20", 97871 * 2**20), ("H200 SXM", 143771 * 2**20)):
        (trained,) = report(replace(TRAINING, gpu=name)).classes
        (inferred,) = inference_report(Wish(params="8e9", gpu=name)).classes
        assert trained.memory_bytes == inferred.memory_bytes == size


def test_classes_grow_and_the_gpus_of_one_have_the_same_memory() -> None:
    sizes = [one.memory_bytes for one in everywhere()]
    assert sizes == sorted(sizes)
    rows = {row.name: row for row in gpu_rows()}
    for one in everywhere():
        assert {memory_of(rows[name]) for name in one.names} == {one.memory_bytes}


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


def test_of_many_gpus_the_ten_rented_first_are_shown_and_of_few_all() -> None:
    first = shown_first(sizes_of(everywhere()))
    assert len(first) == 10
    assert {"H100 SXM 80GB", "A100-SXM4-80GB", "T4", "L4", "H200 SXM"} <= first
    few = only(everywhere(), rows_asked("H200"))
    assert shown_first(sizes_of(few)) == {"H200 NVL", "H200 SXM"}


def test_the_price_is_that_of_an_instance_with_as_many_gpus_as_are_needed() -> None:
    large = model_named("Llama 3.1 70B")
    serving = ServedModel(large.parameters, WEIGHT_FORMATS["bf16"], "bf16", large, 1, 8192)
    classes = classes_of(rows_asked(None), lambda size: fit_inference(serving, size))
    for one in classes:
        for offer in one.offers:
            assert one.fit.word != "does not fit"
            assert offer.instance.gpu_count >= one.fit.gpus
            assert offer.instance.gpu == offer.name in one.names
    found = cheapest(classes, "fits", "several GPUs")
    assert found is not None
    assert found[1].order == min(o.order for one in classes if one.fit.word != "tight" for o in one.offers)


def sentence(**wish: str) -> str:
    return inference_report(replace(Wish(), **wish)).headline.text  # type: ignore[arg-type]


def test_the_headline_says_on_what_it_fits_how_much_it_takes_and_what_it_costs() -> None:
    found = inference_report(Wish(params="8B", context="32768", batch="8", gpu="H100 SXM 80GB"))
    (one,) = found.classes
    needs = one.fit.needed_bytes[1] / GIB
    offered = ", ".join(filter(None, (one.offers[0].instance.provider, one.offers[0].age)))
    assert found.headline.text == (
        f"Fits: 8B in bf16 with 32768 tokens x 8 on an H100 SXM 80GB, {needs:.1f} of 79.6 GiB,"
        f" from ${one.offers[0].usd_per_hour:.2f}/h ({offered})."
    )


def test_the_headline_of_what_does_not_fit_says_what_it_needs_and_the_cheapest_that_holds_it() -> None:
    said = sentence(params="70B", gpu="H100 SXM 80GB")
    assert said.startswith("Does not fit: 70B in bf16 with 8192 tokens x 1 needs 136 GiB, an H100 SXM 80GB")
    assert "It fits on 2 with tensor parallelism, from $" in said
    assert re.search(
        r"The cheapest that holds it: an? \S.* at \$[\d.]+/h \(\w[^)]*\), 136 of \d+ GiB\.$", said
    )


def test_without_a_gpu_the_headline_names_the_cheapest_that_holds_it() -> None:
    assert re.match(
        r"Fits: 8B in bf16 with 8192 tokens x 1\. The cheapest that holds it: an? .* at \$[\d.]+/h",
        sentence(params="8B"),
    )
    assert sentence(params="405B").startswith("Does not fit on one GPU: 405B in bf16")
    huge = sentence(params="1e14")
    assert huge.endswith("Take a smaller model, batch or context, or fewer bits per weight.")


def test_what_is_tight_gives_both_ends_of_what_it_needs() -> None:
    tight = fit_inference(SERVING, sum(needed_for_inference(SERVING)) // 2)
    assert (tight.word, tight.needed_bytes) == ("tight", needed_for_inference(SERVING))
    said = sentence(params="8030261248", context="100", gpu="RTX 5080")
    assert re.match(
        r"Tight: 8\.03B in bf16 with 100 tokens x 1 needs 15\.\d GiB to 1\d\.\d GiB, an RTX", said
    )


def test_what_is_tight_is_not_the_cheapest_that_holds_it() -> None:
    tight = classes_of(rows_asked("L4"), lambda size: replace(served(size), word="tight"))
    assert tight[0].offers
    assert cheapest(tight, "tight", "fits") is None
