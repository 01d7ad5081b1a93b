"""Disturbances while a case was timed: interleaved blocks, clocks, caps, cold devices, neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hand_made import make_case, make_run, measured, steady
from journals import GPU_MACHINE, H200, STARTED_NS, journal_lines, write_lines, write_telemetry

from gputui.analysis.cost import Cost
from gputui.analysis.spread import launch_prior_sd, paired_prior_sd
from gputui.analysis.verdict import (
    RatioEstimate,
    SpeedEstimate,
    Verdict,
    compare_pairs,
)
from gputui.model.absent import Missing
from gputui.model.journal import Block, Price
from gputui.model.plan import OWN
from gputui.model.result import CaseResult
from gputui.model.telemetry import Reading
from gputui.services.compare.pairing import (
    CAPPED,
    COLD,
    CROWDED,
    SHARED,
    SLOWED,
    Comparison,
    Flag,
    compare_sides,
    side_of_runs,
    sides_by,
    with_telemetry,
)
from gputui.services.results.throughput import cost_of, paired_blocks, speed_of
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.reading import CaseConditions, MeasuredSpan, open_result
from gputui.store.writing import store_run

FP32, AMP = make_case(), make_case(precision="amp")
ONE_THREAD = make_case(threads="1")
"""Waits for no other thread, so that what waiting does to it is nearly known."""


def alternating(a: CaseResult, b: CaseResult, gap_ns: int = 1000) -> tuple[CaseResult, CaseResult]:
    """The same blocks, a's and b's in turn within each launch."""
    sides: tuple[list[object], list[object]] = ([], [])
    for mine, theirs in zip(a.measurements, b.measurements, strict=True):
        at_ns = 0
        placed: tuple[list[Block], list[Block]] = ([], [])
        for blocks in zip(mine.blocks, theirs.blocks, strict=True):
            for side, block in enumerate(blocks):
                placed[side].append(replace(block, start_ns=at_ns))
                at_ns += block.wall_ns + gap_ns
        for side, measurement in enumerate((mine, theirs)):
            sides[side].append(replace(measurement, blocks=tuple(placed[side])))
    return replace(a, measurements=tuple(sides[0])), replace(b, measurements=tuple(sides[1]))  # type: ignore[arg-type]


def swinging(step_s: float, levels: Sequence[float]) -> tuple[float, ...]:
    """Blocks of a launch with varying load from other processes."""
    return tuple(level * time_s for level, time_s in zip(levels, steady(step_s, len(levels)), strict=True))


BUSY = (1.0, 1.4, 1.1, 1.9, 1.3, 1.0, 1.6, 1.2)


def compared(*cases: CaseResult) -> Comparison:
    a, b = sides_by("precision", [make_run(*cases)])
    return compare_sides(a, b, ignore="precision")


# Pairs


@pytest.mark.parametrize(("a_waited", "b_waited"), [(None, None), (0.5, 0.5), (0.2, 0.5)])
def test_interleaved_cases_are_compared_block_by_block_without_what_others_did_meanwhile(
    a_waited: float | None, b_waited: float | None
) -> None:
    amp = make_case(precision="amp", threads="1")
    (row,) = compared(
        *alternating(
            measured(ONE_THREAD, swinging(0.4, BUSY), waited_share=a_waited),
            measured(amp, swinging(0.1, BUSY), waited_share=b_waited),
        )
    ).rows

    assert row.verdict.word == "faster"
    assert isinstance(row.estimate, RatioEstimate)
    assert row.estimate.paired
    ratio = 4 * (1 - (a_waited or 0)) / (1 - (b_waited or 0))
    assert row.estimate.ratio == pytest.approx(ratio, rel=0.005)
    assert (row.estimate.blocks_a, row.estimate.launches_a) == (8, 1)
    assert row.estimate.method.endswith("of ratios of paired blocks")
    assert isinstance(compare_pairs([[(1.0, 2.0)]], prior_sd=0.1), Missing), "one pair says nothing"


def test_cases_of_launches_of_their_own_are_no_pairs() -> None:
    a, b = measured(FP32, steady(0.2)), measured(AMP, steady(0.1))
    apart = replace(b, measurements=tuple(replace(m, launch_id=7) for m in b.measurements))
    late = replace(
        b,
        measurements=tuple(
            replace(m, blocks=tuple(replace(x, start_ns=x.start_ns + 10**12) for x in m.blocks))
            for m in b.measurements
        ),
    )

    assert paired_blocks(a, apart) == Missing("they were not measured in the same launches")
    assert paired_blocks(a, late) == Missing("their blocks did not alternate")
    (row,) = compared(a, apart).rows
    assert isinstance(row.estimate, RatioEstimate)
    assert not row.estimate.paired


def test_a_prior_of_pairs_is_never_wider_than_that_of_launches() -> None:
    for device in ("cpu", "gpu"):
        for workload_class in ("ceiling", "training", "inference", "host"):
            assert 0 < paired_prior_sd(device, workload_class) <= launch_prior_sd(device, workload_class)


# Neighbours


def judged(b: CaseResult) -> tuple[RatioEstimate, Verdict]:
    """Against a quiet case of 0.1 s a step, in another run."""
    quiet = make_run(measured(b.case, *[steady(0.1)] * 3))
    (row,) = compare_sides(side_of_runs("a", [quiet]), side_of_runs("b", [make_run(b)])).rows
    assert isinstance(row.estimate, RatioEstimate)
    return row.estimate, row.verdict


def test_what_is_judged_is_the_speed_without_the_waiting_and_the_doubt_about_it_widens_every_interval() -> (
    None
):
    quiet = measured(ONE_THREAD, *[steady(0.1)] * 3)
    held, apart = (measured(ONE_THREAD, *[steady(t)] * 3, waited_share=0.5) for t in (0.2, 0.9))
    (same, _), (slower, verdict) = judged(held), judged(apart)
    assert same.ratio == pytest.approx(1.0, rel=1e-3)
    assert slower.ratio == pytest.approx(0.1 / 0.45, rel=1e-3)
    assert verdict.word == "slower"
    assert same.half_width > judged(quiet)[0].half_width

    before, after = speed_of(quiet), speed_of(held)
    assert isinstance(before, SpeedEstimate)
    assert isinstance(after, SpeedEstimate)
    assert after.units_per_s == pytest.approx(before.units_per_s, rel=1e-3)
    assert after.low < before.low < after.units_per_s < before.high < after.high
    cost, doubtful = (cost_of(case, Price(3.6, 0.0, "stated", "", "", "", "")) for case in (quiet, held))
    assert isinstance(cost, Cost)
    assert isinstance(doubtful, Cost)
    assert doubtful.low < cost.low < cost.high < doubtful.high


def test_where_waiting_leaves_too_little_nothing_is_decided_and_every_form_says_why() -> None:
    for share, is_doubted in ((0.65, False), (0.69, True)):
        found, verdict = judged(measured(FP32, *[steady(50.0)] * 3, waited_share=share))
        assert bool(found.doubt) is is_doubted
        assert verdict.word == ("inconclusive" if is_doubted else "slower")
        assert verdict.reason == found.doubt
        assert not is_doubted or found.doubt.startswith("b: its threads waited ")


# Clocks


def conditions(**known: float) -> CaseConditions:
    absent = Missing("not measured")
    names = [field.name for field in fields(CaseConditions)][2:]
    return CaseConditions(0, 100, *(known.get(name, absent) for name in names))


def on_gpus(a_s: float, b_s: float, a: CaseConditions, b: CaseConditions, name_b: str = "") -> Comparison:
    case = make_case(device_class="gpu")
    runs = [
        make_run(measured(case, *[steady(a_s)] * 3)),
        make_run(measured(case, *[steady(b_s)] * 3, device_name=name_b)),
    ]
    seen = {runs[0].summary.run_id: a, runs[1].summary.run_id: b}
    comparison = compare_sides(side_of_runs("a", runs[:1]), side_of_runs("b", runs[1:]))
    return with_telemetry(comparison, conditions=lambda run, _: seen[run])


def test_a_faster_row_says_that_it_is_the_clock_but_not_of_two_kinds_of_chip() -> None:
    slow, fast = conditions(clock_median_mhz=1500), conditions(clock_median_mhz=1800)
    said = "explained by clock: 1.80 GHz on b, 1.50 GHz on a"
    for name, note in (("", said), ("NVIDIA A10G", "")):
        (row,) = on_gpus(0.12, 0.1, slow, fast, name_b=name).rows
        assert (row.verdict.word, row.note) == ("faster", note)


# Flags


def test_a_row_carries_what_disturbed_each_side_with_its_share_of_time() -> None:
    (row,) = on_gpus(
        0.1,
        0.1,
        conditions(slowed_share=0.0, power_capped_share=0.34, cold_share=0.1, shared_share=1.0),
        conditions(slowed_share=0.2, power_capped_share=0.01, cold_share=0.5, shared_share=0.0),
    ).rows

    assert row.flags == (
        Flag("a", CAPPED, 0.34),
        Flag("a", SHARED, 1.0),
        Flag("b", SLOWED, 0.2),
        Flag("b", COLD, 0.5),
    )


def test_a_program_may_be_several_processes_itself() -> None:
    case = make_case(device_class="gpu", precision=OWN)
    side = side_of_runs("a", [make_run(measured(case, *[steady(0.1)] * 3))])
    assert case.is_program
    seen = conditions(shared_share=1.0)
    assert with_telemetry(compare_sides(side, side), conditions=lambda *_: seen).rows[0].flags == ()


def test_a_cpu_row_whose_cpus_others_held_is_flagged() -> None:
    a, b = (
        side_of_runs(name, [make_run(measured(FP32, steady(0.1), waited_share=share))])
        for name, share in (("a", None), ("b", 0.3))
    )
    ((flag,),) = (row.flags for row in compare_sides(a, b).rows)
    assert (flag.side, flag.word) == ("b", CROWDED)
    assert flag.share == pytest.approx(0.3, abs=0.01)


def test_only_what_was_sampled_within_the_blocks_of_a_case_counts_for_it(tmp_path: Path) -> None:
    """Two cases on one GPU: capped and cold while the first runs, slowed and warm while the second does."""
    cases = make_case("gemm", device_class="gpu"), make_case("conv_train", device_class="gpu")
    lines = journal_lines(cases=cases, skipped=(), machine=replace(GPU_MACHINE, gpus=(H200,)))
    first, second = ([b for b in lines if isinstance(b, Block) and b.case_id == n] for n in (0, 1))
    readings = [
        Reading(
            0,
            block.start_ns + offset_ns,
            {
                "sm_clock_mhz": 1500.0 if block.case_id == 0 else 1800.0,
                "throttle_bits": 0x4 if block.case_id == 0 else 0x40,
                "temperature_c": 40.0 + 5 * block.index if block.case_id == 0 else 70.0,
                **({"compute_process_count": 1.0 + block.index % 2} if block.case_id == 0 else {}),
            },
        )
        for block in (*first, *second)
        for offset_ns in (1_000_000, 100_000_000)
    ]
    between = Reading(0, STARTED_NS + 1000, {"sm_clock_mhz": 1980.0, "throttle_bits": 0x20})
    run_dir = write_lines(tmp_path / "run", lines)
    write_telemetry(run_dir, [between, *readings])
    contents = read_journal(run_dir)
    store_run(tmp_path / "a.db", contents, read_telemetry(run_dir))

    with open_result(tmp_path / "a.db") as file:
        found = file.conditions(file.summaries()[0].run_id)

    assert found[0] == CaseConditions(0, 12, 1500.0, 1980.0, 0.0, 1.0, pytest.approx(4 / 6), 0.5)  # type: ignore[arg-type]
    assert found[1] == CaseConditions(1, 12, 1800.0, 1980.0, 1.0, 0.0, 0.0, Missing("not measured"))


def test_a_span_is_from_the_first_block_of_a_launch_to_the_end_of_its_last(tmp_path: Path) -> None:
    case = make_case("gemm", device_class="gpu")
    lines = journal_lines(cases=(case,), skipped=(), launches=2, machine=replace(GPU_MACHINE, gpus=(H200,)))
    blocks = [line for line in lines if isinstance(line, Block)]
    contents = read_journal(write_lines(tmp_path / "run", lines))
    store_run(tmp_path / "a.db", contents, ())

    with open_result(tmp_path / "a.db") as file:
        (summary,) = file.summaries()
        spans = file.measured_spans(summary.run_id)

    def utc_us(t_ns: int) -> int:
        return summary.started_utc_us + (t_ns - STARTED_NS) // 1000

    for span, mine in zip(spans, (blocks[:6], blocks[6:]), strict=True):
        ended_us = utc_us(mine[-1].start_ns) + mine[-1].wall_ns // 1000
        assert span == MeasuredSpan(0, mine[0].launch_id, utc_us(mine[0].start_ns), ended_us)
