from __future__ import annotations

from dataclasses import replace

import pytest
from hand_made import make_case, make_run, measured, steady
from journals import CPU_MACHINE, GPU_MACHINE, H200

from gputui.errors import EXIT_USAGE, GputuiError
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.model.machine import Gpu, Layer, Machine
from gputui.services.prices import (
    MAX_USD_PER_HOUR,
    STATED,
    age_at_run,
    check_instance,
    listed_here,
    price_of,
    price_of_run,
    price_source,
)


def refused(usd_per_hour: float | None, instance: str | None) -> GputuiError:
    with pytest.raises(GputuiError) as caught:
        price_of(usd_per_hour, instance, GPU_MACHINE)
    assert caught.value.exit_code == EXIT_USAGE
    return caught.value


@pytest.mark.parametrize("usd", [3.5, 0.0, 1e-6, MAX_USD_PER_HOUR])
def test_a_stated_price_buys_all_gpus_of_the_box_and_wins_over_the_list(usd: float) -> None:
    assert price_of(usd, None, GPU_MACHINE) == Price(usd, 2.0, "stated", "", "", "", "")
    assert price_of(usd, None, CPU_MACHINE) == Price(usd, 0.0, "stated", "", "", "", "")
    of_type = price_of(usd, "g4ad.xlarge", GPU_MACHINE)
    assert of_type == Price(usd, 2.0, "stated", "", "g4ad.xlarge", "", "")


@pytest.mark.parametrize("usd", [float("nan"), float("inf"), -float("inf"), -0.01, 1e5 + 1, 1e300])
def test_what_is_no_amount_of_money_is_refused_with_the_range(usd: float) -> None:
    error = refused(usd, None)

    assert error.message.startswith("--price ")
    assert "from 0 to 100000" in error.hint


@pytest.mark.parametrize("name", ["g4ad.xlarge", "AWS/G4AD.xlarge"])
def test_an_instance_has_its_list_price_with_source(name: str) -> None:
    price = price_of(None, name, GPU_MACHINE)

    assert price is not None
    assert price.usd_per_hour > 0
    assert (price.gpu_count, price.provider, price.instance_type) == (1, "aws", "g4ad.xlarge")
    assert price.kind.startswith("on-demand")
    assert price.date


def test_a_mistyped_instance_is_answered_with_what_is_near_and_one_that_several_sell_with_all() -> None:
    mistyped = refused(None, "g4ad.xlarg")
    assert mistyped.message == "--instance g4ad.xlarg: no such instance type in the price list"
    assert "aws/g4ad.xlarge" in mistyped.hint
    assert "--price" in mistyped.hint

    several = refused(None, "H100")
    assert "prices are listed" in several.message
    assert several.message.count("/h") > 1
    assert "PROVIDER/TYPE" in several.hint


def test_a_run_has_its_own_price_else_the_list_price_of_its_instance_if_that_is_listed() -> None:
    here, elsewhere = (replace(GPU_MACHINE, instance_type=name) for name in ("g4ad.xlarge", "q9.gigantic"))
    listed = price_of_run(make_run(machine=here).summary)
    assert isinstance(listed, Price)
    assert price_source(listed).startswith("list price of 20")
    assert price_source(listed).endswith(": aws g4ad.xlarge us-east-1 on-demand Linux")

    stored = Price(1.25, 1, "stated", "", "", "", "")
    assert price_of_run(make_run(machine=here, price=stored).summary) == stored

    price = price_of_run(make_run(machine=elsewhere).summary)
    assert isinstance(price, Missing)
    assert "q9.gigantic" in price.reason
    assert isinstance(price_of_run(make_run(machine=CPU_MACHINE).summary), Missing)


H100 = replace(H200, name="NVIDIA H100 80GB HBM3", memory_bytes=85_520_809_984)


def rented(platform: str, *gpus: Gpu) -> Machine:
    return replace(
        CPU_MACHINE, gpus=gpus, layers=(Layer("platform", platform, ()), Layer("container", "docker", ()))
    )


def test_platform_gpu_and_count_have_a_list_price_which_a_stated_one_wins_over() -> None:
    one, four = (price_of(None, None, rented("runpod", *[H100] * count)) for count in (1, 4))
    assert one is not None
    assert four is not None
    assert (one.instance_type, one.kind) == ("H100 SXM (secure)", "on-demand secure cloud")
    assert price_source(one) == (
        f"list price of {one.date}: runpod H100 SXM (secure) any on-demand secure cloud"
    )
    assert (four.usd_per_hour, four.gpu_count) == (4 * one.usd_per_hour, 4)
    stated = price_of(2.5, None, rented("runpod", H100))
    assert stated is not None
    assert price_source(stated) == "stated"


def test_a_platform_with_several_prices_or_none_leaves_it_to_the_user() -> None:
    several = listed_here(rented("vast", H100))
    assert isinstance(several, Missing)
    assert several.reason.startswith("vast lists $")
    assert price_of(None, None, rented("runpod", H100, H200)) is None
    assert price_of(None, None, rented("runpod")) is None
    assert price_of(None, None, rented("lambda", H100, H100, H100)) is None


def test_a_commitment_is_not_taken_for_what_a_box_of_the_platform_costs() -> None:
    a100 = replace(H100, name="NVIDIA A100-SXM4-80GB", memory_bytes=85_899_345_920)
    found = listed_here(rented("paperspace", a100))
    assert isinstance(found, Missing)
    assert found.reason == "paperspace lists $1.15/h, which is not on demand (commitment): state yours"


def test_an_instance_type_with_other_gpus_is_refused() -> None:
    t4 = replace(H100, name="Tesla T4", memory_bytes=15_843_721_216)
    for machine, has in ((CPU_MACHINE, "no GPU"), (replace(CPU_MACHINE, gpus=(t4,)), "Tesla T4")):
        with pytest.raises(GputuiError, match=f"8x H100 SXM 80GB, and this box has {has}"):
            check_instance("p5.48xlarge", machine)
    check_instance("aws/p5.48xlarge:spot", replace(CPU_MACHINE, gpus=(H100,)))
    check_instance("no-such-type", CPU_MACHINE)
    virtual = replace(H100, name="NVIDIA L4-3Q")
    check_instance("p5.48xlarge", replace(CPU_MACHINE, gpus=(virtual,)))


def test_a_list_price_that_was_old_when_it_was_used_is_shown_with_its_age() -> None:
    listed = Price(3.59, 1.0, "on-demand", "aws", "p5.48xlarge", "us-east-1", "2026-07-20")
    run = make_run(measured(make_case("gpt_train"), steady(0.1))).summary  # of November

    assert age_at_run(replace(run, price=listed)) == "list price 121 days old"
    for price in (replace(listed, date="2026-11-01"), replace(listed, kind=STATED)):
        assert age_at_run(replace(run, price=price)) == ""
