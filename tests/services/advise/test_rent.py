"""Jobs on boxes with chosen speeds, so that every result can be worked out on paper."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hand_made import NO_PRICE, make_run, measured, steady, unmeasured
from priced_boxes import box, case_named, price, quick, training_boxes

from gputui.analysis.job import parse_job
from gputui.analysis.statistics import Estimated
from gputui.errors import EXIT_USAGE, GputuiError
from gputui.model.absent import Missing
from gputui.services.advise.rent import (
    Advice,
    Offer,
    Pick,
    PricedSide,
    advise,
    headline_of,
    weigh,
)
from gputui.services.compare.pairing import compare_sides, side_of_runs
from gputui.services.profiles.loader import find_profile
from gputui.store.reading import CaseConditions


def offer_of(advice: Advice, name: str) -> Offer:
    (found,) = [offer for offer in advice.offers if f"{offer.box} {offer.device_class}" == name]
    return found


def test_time_is_work_by_speed_with_its_start_and_cost_is_that_time_at_the_price() -> None:
    advice = advise(parse_job("36M tok train"), training_boxes(1e3, 1e4), start_s=600)

    gpu = offer_of(advice, "gpu.db gpu")
    assert isinstance(gpu.time_s, Estimated)
    assert isinstance(gpu.usd, Estimated)
    assert gpu.time_s.value == pytest.approx(3600 + 600, rel=1e-3)
    assert gpu.usd.value == pytest.approx(4200 * 3.60 / 3600, rel=1e-3)
    assert gpu.time_s.low < gpu.time_s.value < gpu.time_s.high
    assert gpu.usd.low == pytest.approx(gpu.time_s.low * 0.001)
    assert gpu.usd.high == pytest.approx(gpu.time_s.high * 0.001)


def named(pick: Pick | Missing) -> tuple[str, tuple[str, ...]]:
    """A pick, and what it cannot be told from."""
    assert isinstance(pick, Pick), pick
    return f"{pick.offer.box} {pick.offer.device_class}", pick.ties


def test_tokens_without_a_verb_are_what_the_boxes_measured_and_training_is_assumed_of_both() -> None:
    trains, writes = (
        box(f"{name}.db", quick(case_named(name), 1e4), usd=1.0) for name in ("gpt_train", "decode")
    )
    job = parse_job("36M tokens")

    assert headline_of(advise(job, [writes])) == "decode.db cpu, the only one measured: 1 h 10 min for $1.17."
    assert headline_of(advise(job, [trains])).startswith("gpt_train.db cpu, the only one measured")
    both = advise(job, [trains, writes])
    assert both.work.workload == "gpt_train"
    assert "Taken as training; for text generation: `36M tok write`." in headline_of(both)
    assert "Taken" not in headline_of(advise(job, [trains, writes], workload="decode"))


@pytest.mark.parametrize(("hours", "boxes"), [(730.0, 2), (100.0, 11)])
def test_work_that_returns_before_one_box_has_done_it_takes_several(hours: float, boxes: int) -> None:
    job = parse_job("3.6B tokens train a month")
    found = headline_of(advise(job, [training_boxes(1e3, 1e4)[0]], hours_per_month=hours))

    assert "1000 h 10 min for $360.06 a month." in found
    assert f"cpu.db cpu: one box has {hours:g} h a month: it takes {boxes} boxes." in found


def test_boxes_that_compare_refuses_to_tell_apart_are_not_distinguished() -> None:
    """One waited for so long that what is left without that, seven times as long, is too small a part."""
    case = case_named("gpt_train")
    boxes = [
        box("a.db", measured(case, steady(1.0), waited_share=0.85), usd=1),
        box("b.db", measured(case, steady(0.02)), usd=1),
    ]
    (row,) = compare_sides(boxes[0].side, boxes[1].side).rows
    assert row.verdict.word == "inconclusive"

    advice = advise(parse_job("36M tok train"), boxes)

    assert named(advice.cheapest) == named(advice.fastest) == ("b.db cpu", ("a.db cpu",))


def test_a_price_ten_times_lower_is_reported_if_the_speeds_are_the_same() -> None:
    case = quick(case_named("gpt_train"), 1e3)
    advice = advise(parse_job("36M tok train"), [box("dear.db", case, usd=10), box("cheap.db", case, usd=1)])

    assert named(advice.cheapest) == ("cheap.db cpu", ())
    assert len(named(advice.fastest)[1]) == 1


def test_a_figure_above_the_physical_peak_advises_nobody() -> None:
    wrong = replace(case_named("gpt_train", "gpu"), flops_per_step=10**16)
    boxes = [
        box("cpu.db", quick(case_named("gpt_train"), 1e3), usd=1.0),
        box("gpu.db", quick(wrong, 1e6), usd=0.1, gpus=1),
    ]

    advice = advise(parse_job("360M tok train"), boxes)

    assert advice.fastest == Missing("only cpu.db cpu meets the job")
    assert advice.left_out == (
        ("gpu.db gpu", "gpt_train mini: above the physical peak: a measurement error"),
    )


def test_a_deadline_that_only_the_gpu_keeps_leaves_the_cpu_out_of_the_choice() -> None:
    advice = advise(parse_job("360M tok train in 11h"), training_boxes(5e3, 1e4))

    assert advice.cheapest == advice.fastest == Missing("only gpu.db gpu meets the job")
    assert not offer_of(advice, "cpu.db cpu").meets
    assert advice.gpu == "a GPU is needed: no CPU meets the target"


def test_without_a_price_there_is_time_and_no_cost() -> None:
    advice = advise(parse_job("1M tok train"), [box("a.db", quick(case_named("gpt_train"), 1e3))])

    (offer,) = advice.offers
    assert isinstance(offer.time_s, Estimated)
    assert isinstance(offer.usd, Missing)
    assert advice.cheapest == Missing("no offer has a price")
    assert advice.fastest == Missing("only a.db cpu meets the job")
    assert "(layers 4, context 128, batch 8): a ranking of boxes, not your time" in advice.stands_for


def test_the_cpu_of_a_gpu_box_costs_what_a_cpu_box_is_stated_to() -> None:
    both = [quick(case_named("gpt_train", device), speed) for device, speed in (("cpu", 1e3), ("gpu", 1e5))]
    unpriced = advise(parse_job("36M tok train"), [box("a.db", *both, usd=3.6, gpus=1)])
    priced = advise(parse_job("36M tok train"), [box("a.db", *both, usd=3.6, gpus=1, cpu=0.36)])

    assert isinstance(offer_of(unpriced, "a.db cpu").usd, Missing)
    assert isinstance(offer_of(unpriced, "a.db gpu").usd, Estimated)
    cpu = offer_of(priced, "a.db cpu").usd
    assert isinstance(cpu, Estimated)
    assert cpu.value == pytest.approx((36_000 + 600) * 0.0001, rel=1e-3)


def test_one_gpu_of_eight_carries_an_eighth_of_the_price_which_is_reported() -> None:
    gpu = quick(case_named("gpt_train", "gpu"), 1e4)
    whole, eighth = (
        advise(parse_job("36M tok train"), [box("a.db", gpu, usd=8, gpus=gpus)]) for gpus in (1, 8)
    )

    costs = [advice.offers[0].usd for advice in (whole, eighth)]
    assert isinstance(costs[0], Estimated)
    assert isinstance(costs[1], Estimated)
    assert costs[0].value == pytest.approx(8 * costs[1].value)
    assert any("share" in assumed for assumed in eighth.assumptions)


def test_the_size_that_most_boxes_measured_answers_and_the_largest_of_those() -> None:
    mini, base = (quick(case_named("gpt_train", size=size), 1e3) for size in ("mini", "base"))

    assert advise(parse_job("1M tok train"), [box("a.db", mini, base), box("b.db", mini)]).work.size == "mini"
    assert advise(parse_job("1M tok train"), [box("a.db", mini, base), box("b.db", base)]).work.size == "base"
    chosen = advise(parse_job("1M tok train"), [box("a.db", mini, base)], workload="gpt_train", size="mini")
    assert chosen.work.size == "mini"


def test_a_box_that_has_not_measured_it_is_named_with_the_reason() -> None:
    case = case_named("gpt_train")
    other = unmeasured(case, "oom", "8 GiB were not enough")
    advice = advise(
        parse_job("1M tok train"),
        [box("a.db", quick(case, 1e3)), box("b.db", other), box("c.db", quick(case_named("bert_ft"), 1e3))],
    )

    assert [offer.box for offer in advice.offers] == ["a.db"]
    assert ("b.db cpu", "gpt_train mini: oom: 8 GiB were not enough") in advice.left_out
    assert ("c.db", "has no gpt_train mini") in advice.left_out
    amp = box("d.db", quick(case_named("gpt_train", precision="amp"), 1e3))
    asked = advise(parse_job("1M tok train"), [box("a.db", quick(case, 1e3)), amp], precision="amp")
    assert asked.left_out == (("a.db", "has no gpt_train mini amp"),)


def test_tokens_are_counted_in_texts_where_texts_were_measured() -> None:
    boxes = [box("a.db", quick(case_named("bert_ft", context=128), 10))]

    by_text = advise(parse_job("1000 texts train"), boxes).offers[0].time_s
    by_token = advise(parse_job("128k tokens train"), boxes, workload="bert_ft").offers[0].time_s

    assert by_text == by_token


def test_the_fastest_precision_answers_unless_one_is_asked_for() -> None:
    amp = quick(case_named("gpt_train", precision="amp"), 2e3)
    boxes = [box("a.db", quick(case_named("gpt_train"), 1e3), amp)]

    assert advise(parse_job("1M tok train"), boxes).offers[0].case.variant.precision == "amp"
    asked = advise(parse_job("1M tok train"), boxes, precision="fp32")
    assert asked.offers[0].case.variant.precision == "fp32"


def test_a_gpu_that_was_throttled_while_it_was_timed_is_a_doubt() -> None:
    def seen(run_id: str, case_id: int) -> CaseConditions:
        absent = Missing("not seen")
        return CaseConditions(case_id, 90, absent, absent, 0.3, 0.01, absent, absent)

    boxes = training_boxes(1e3, 1e4)
    advice = advise(parse_job("1M tok train"), boxes, conditions=seen)

    assert offer_of(advice, "gpu.db gpu").doubts == ("slowed by heat or a power brake 30 % of the time",)
    assert offer_of(advice, "cpu.db cpu").doubts == ()


@pytest.mark.parametrize(
    ("job", "choice", "expected"),
    [
        ("1M img train", {}, "no box has measured conv_train"),
        ("1M tok train", {"workload": "gpt_train", "size": "xl"}, "no box has measured gpt_train xl"),
        (
            "50M tok train",
            {"size": "xl"},
            "no box has measured gpt_train or lstm_train or bert_ft xl, which would answer '50M tok train'",
        ),
        ("1M tok train", {"workload": "decode"}, "--workload decode: does not answer"),
        ("9 requests", {}, "no box has measured infer_rps or infer_best"),
    ],
)
def test_a_job_that_no_row_answers_is_refused(job: str, choice: dict[str, str], expected: str) -> None:
    with pytest.raises(GputuiError) as caught:
        advise(parse_job(job), training_boxes(1e3, 1e4), **choice)  # type: ignore[arg-type]
    assert expected in caught.value.message
    assert caught.value.exit_code == EXIT_USAGE
    profile, _, option = caught.value.hint.removeprefix("measure it: gputui run ").partition(" ")
    if "no box has measured" in expected:
        workload = option.removeprefix("--only ")
        assert workload in {entry.workload for entry in find_profile(profile).cases}


def test_few_launches_crowds_and_broken_runs_are_doubts_of_the_row() -> None:
    case = case_named("gpt_train")
    crowded = measured(case, steady(1.0), waited_share=0.4)
    side = side_of_runs("a.db", [make_run(crowded, status="interrupted")])

    advice = advise(parse_job("1M tok train"), [PricedSide(side, NO_PRICE, NO_PRICE)])

    doubts = " ".join(advice.offers[0].doubts)
    assert "CPU contention from other processes 40 % of the time" in doubts
    assert "interrupted" in doubts
    assert "1 launch: the interval is mostly assumed" in doubts
    assert "a.db cpu: CPU contention from other processes 40 % of the time." in headline_of(advice)


@pytest.mark.parametrize(
    ("own_usd", "hours", "months"),
    [(5000.0, 730.0, 53.3), (5000.0, 365.0, 160.0), (5000.0, 146.0, None)],
    ids=["always at work", "half of the time", "too seldom"],
)
def test_a_box_is_earned_back_by_what_it_saves_a_month(
    own_usd: float, hours: float, months: float | None
) -> None:
    gpu = [PricedSide(training_boxes(1e3, 1e4)[1].side, price(20_000 / 730, 1), NO_PRICE)]

    (buying,) = weigh(advise(parse_job("36M tok train"), gpu), {"gpu.db": 800_000}, own_usd, hours)

    assert buying.rent_usd_per_month == pytest.approx(20_000 * hours / 730)
    found = buying.months
    assert isinstance(found, Missing) if months is None else found == pytest.approx(months, abs=0.05)


@pytest.mark.parametrize(
    ("job", "cpu", "gpu", "usd", "said"),
    [
        ("1B tok train", 1e3, 1e6, 3.6, "a GPU is worth it: it costs less"),
        ("360M tok train", 1e3, 1e3, 0.036, "a GPU is worth it: it costs less, though we can't tell that"),
        ("360M tok train", 5e3, 1e4, 3.6, "a GPU is faster than the CPU, but costs more"),
        ("36M tok train in 3h", 5e3, 1e4, 3.6, "GPU not worth it: a CPU meets the target, for less"),
        ("360M tok train", 1e3, 1e3, 3.6, "GPU not worth it: a CPU costs less"),
        ("360M tok train", 1e3, 1e4, None, "a GPU is faster than the CPU, and which costs less is unknown"),
        ("36M tok train in 1s", 1e3, 1e4, 3.6, "neither CPU nor GPU meets the target"),
    ],
)
def test_whether_a_gpu_pays_is_said_by_what_is_surely_cheaper_and_faster(
    job: str, cpu: float, gpu: float, usd: float | None, said: str
) -> None:
    boxes = [
        box("cpu.db", quick(case_named("gpt_train"), cpu), usd=0.36),
        box("gpu.db", quick(case_named("gpt_train", "gpu"), gpu), usd=usd, gpus=1),
    ]

    advice = advise(parse_job(job), boxes)
    assert advice.gpu.startswith(said)
    nothing = headline_of(advice).startswith("Nothing that was measured is known to meet the job.")
    assert nothing == said.startswith("neither")


def test_the_headline_names_the_cheapest_and_the_fastest_with_what_they_take() -> None:
    boxes = [
        box(f"{name}.db", quick(case_named("gpt_train"), speed), usd=usd)
        for name, speed, usd in (("a", 1e3, 1.0), ("b", 1e4, 20.0), ("c", 3e3, 6.0), ("d", 1e5, 1.0))
    ]

    assert headline_of(advise(parse_job("36M tok train"), boxes[:3])) == (
        "Cheapest: a.db cpu, 10 h 10 min for $10.17. Fastest: b.db cpu, 1 h 10 min for $23.33."
    )
    assert headline_of(advise(parse_job("36M tok train"), boxes)) == (
        "Cheapest and fastest: d.db cpu, 16 min for $0.27."
    )


def test_a_deadline_within_the_interval_is_perhaps_not_met() -> None:
    boxes = [box("a.db", quick(case_named("gpt_train"), 1e3), usd=1.0)]
    time_s = advise(parse_job("36M tok train"), boxes).offers[0].time_s
    never, perhaps, surely = (False, True), (False, False), (True, True)

    for within_s, expected in ((time_s.low / 2, never), (time_s.value, perhaps), (1e9, surely)):
        (offer,) = advise(parse_job(f"36M tok train in {within_s!r}s"), boxes).offers
        assert (offer.meets, offer.is_told) == expected


def test_the_start_is_paid_for_too_so_that_short_jobs_cost_the_same() -> None:
    boxes = [
        box(f"{name}.db", quick(case_named("gpt_train"), tok_per_s), usd=1.0)
        for name, tok_per_s in (("a", 1e4), ("b", 5e3))
    ]
    short, none = (advise(parse_job("600k tok train"), boxes, start_s=start_s) for start_s in (6e4, 0.0))

    assert named(none.cheapest) == named(none.fastest) == named(short.fastest) == ("a.db cpu", ())
    assert named(short.cheapest) == ("a.db cpu", ("b.db cpu",))
