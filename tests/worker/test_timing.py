"""Timing one block, the stopping rule, and one launch on a manual clock."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any  # a worker's JSON

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gputui.model.plan import MOST_BLOCKS
from gputui.worker import MIN_BLOCKS
from gputui.worker.channel import Channel
from gputui.worker.contract import Figure, Request, Size, Step, Unsupported, Value, Workload
from gputui.worker.launch import (
    ENOUGH_HALF_WIDTH,
    MAX_VOID_BLOCKS,
    MIN_BLOCK_S,
    WANTED_BLOCKS,
    Launch,
)
from gputui.worker.timing import (
    NO_TIME_APART,
    BlockTime,
    NotApart,
    TimesApart,
    cpu_stopwatch,
    has_trend,
    median_half_width,
    steps_for,
    still_falls,
)

SECOND = 1_000_000_000
NOISY = random.Random(3).choices([0.2, 0.25, 0.3, 0.35], k=1000)
TOO_LONG = "its first step took 41 s, and the launch had 10 s"


@pytest.mark.parametrize(
    ("step_ns", "steps"),
    [
        (200_000_000, 1),
        (199_999_999, 2),
        (100_000_000, 2),
        (99_000_000, 3),
        (41 * SECOND, 1),
        (1, 200_000_000),
    ],
)
def test_a_block_is_filled_by_the_fewest_steps_that_reach_its_length(step_ns: int, steps: int) -> None:
    assert steps_for(0.2, step_ns) == steps


def test_a_step_too_short_for_the_clock_does_not_divide_by_zero() -> None:
    assert steps_for(0.2, 0.0) == 200_000_000


@pytest.mark.parametrize(
    ("block_ns", "expected"),
    [
        ([], False),
        ([500, 400, 300, 200], False),  # one of 24 orders, and one of 12 for both directions
        ([500, 400, 300, 200, 100], True),
        ([100, 200, 300, 400, 500], True),
        ([1004, 1003, 1002, 1001, 1000], False),  # steady, but less than matters
        ([500, 400, 450, 300, 350, 200, 250, 100], True),
        ([100, 103, 99, 102, 98, 101, 100, 103], False),
    ],
)
def test_blocks_have_a_trend_if_they_change_steadily_and_by_much(block_ns: list[int], expected: bool) -> None:
    assert has_trend(block_ns) is expected


def test_five_of_a_hundred_orders_of_equal_blocks_look_like_a_trend() -> None:
    chance = random.Random(5)
    found = sum(has_trend([chance.gauss(100, 5) for _ in range(12)]) for _ in range(2000))
    assert 0.03 < found / 2000 < 0.06


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=40))
def test_the_trend_of_blocks_is_that_of_scipys_rank_correlation(block_ns: list[int]) -> None:
    if has_trend(block_ns):
        assert abs(stats.kendalltau(range(len(block_ns)), block_ns).statistic) > 0.2


@pytest.mark.parametrize(
    ("block_ns", "expected"),
    [
        ([], True),
        ([100], True),
        ([100, 98], True),
        ([100, 99.9], False),
        ([100, 101], False),
        ([100, 90, 95], False),
    ],
)
def test_a_case_warms_up_while_its_last_block_is_the_fastest(block_ns: list[float], expected: bool) -> None:
    assert still_falls(block_ns) is expected


@pytest.mark.parametrize(
    ("count", "low", "high"),  # ranks counted from 1: tables of Le Boudec 2010, appendix A
    [(6, 1, 6), (8, 1, 8), (9, 2, 8), (10, 2, 9), (20, 6, 15), (30, 10, 21), (50, 18, 33), (60, 22, 39)],
)
def test_the_median_is_held_by_the_ranks_of_the_tables(count: int, low: int, high: int) -> None:
    squares = [1000 + rank * rank for rank in range(1, count + 1)]  # every pair has a width of its own
    middle = (squares[(count - 1) // 2] + squares[count // 2]) / 2
    expected = (squares[high - 1] - squares[low - 1]) / 2 / middle
    assert median_half_width(squares) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("count", range(6, MOST_BLOCKS + 1))
def test_the_interval_of_the_median_is_the_narrowest_that_covers_95_percent(count: int) -> None:
    squares = [1000 + rank * rank for rank in range(count)]
    middle = (squares[(count - 1) // 2] + squares[count // 2]) / 2
    covering = [
        (squares[count - left_out] - squares[left_out - 1]) / 2 / middle
        for left_out in range(1, count // 2 + 1)
        if 1 - 2 * stats.binom.cdf(left_out - 1, count, 0.5) >= 0.95
    ]
    assert median_half_width(squares) == pytest.approx(min(covering), rel=1e-12)


@pytest.mark.parametrize("count", range(6))
def test_fewer_than_six_blocks_say_nothing_of_their_median(count: int) -> None:
    assert median_half_width([100] * count) == math.inf


@given(st.lists(st.integers(1, 10**12), min_size=6, max_size=MOST_BLOCKS), st.randoms(use_true_random=False))
def test_the_order_of_blocks_does_not_change_the_interval_of_their_median(
    block_ns: list[int], rng: Any
) -> None:
    shuffled = list(block_ns)
    rng.shuffle(shuffled)
    assert median_half_width(shuffled) == median_half_width(block_ns)


def test_the_cpu_stopwatch_times_exactly_the_requested_steps() -> None:
    calls: list[int] = []
    timed = cpu_stopwatch(lambda: calls.append(sum(range(2000))), 7)
    assert len(calls) == 7
    assert timed.device_ns is None
    assert timed.block_ns == timed.wall_ns > 0
    assert timed.cpu_ns > 0


def test_a_block_takes_what_the_device_says_where_there_is_one() -> None:
    assert BlockTime(0, 300, 200, 100).block_ns == 200
    assert BlockTime(0, 300, None, 100).block_ns == 300


@dataclass
class Clock:
    """Time passes only when a step takes some."""

    now_ns: int = 5 * SECOND

    def __call__(self) -> int:
        return self.now_ns

    def time(self, run: Callable[[], object], steps: int) -> BlockTime:
        """A stopwatch on this clock."""
        start_ns = self.now_ns
        for _ in range(steps):
            run()
        return BlockTime(start_ns, self.now_ns - start_ns, None, 0)


class Bench:
    """A launch of simulated workloads, received through a real channel."""

    def __init__(
        self, folder: Path, allowance_s: float, most_blocks: int = MOST_BLOCKS, limit_s: float | None = None
    ) -> None:
        self.clock, self.device = Clock(), "cpu"
        self.device_name = ""
        self.times_apart: TimesApart | None = None
        self._path = folder / "channel"
        self._path.touch()
        self._seconds = {"allowance_s": allowance_s, **({} if limit_s is None else {"limit_s": limit_s})}
        self._most_blocks = most_blocks
        self._workloads: dict[str, Workload] = {}
        self._cases: list[dict[str, Any]] = []

    def add(self, name: str, build: Callable[[Request], Step], precision: str = "fp32", **more: Any) -> None:
        """Add a case; its id is its index. `more` is what its workload declares besides."""
        self._workloads[name] = Workload(
            name=name,
            version=1,
            title=name,
            question="How long does it pretend to take?",
            workload_class="host",
            unit="step",
            sizes={"mini": Size({}, 1.0, None, None, 0)},
            precisions=("fp32",),
            device_classes=("cpu",),
            needs_torch=False,
            build=build,
            **more,
        )
        self._cases.append(
            {"case_id": len(self._cases), "workload": name, "size": "mini", "precision": precision}
        )

    def step(
        self, *seconds: float, last: float | None = None, each: Callable[[], None] | None = None
    ) -> Step:
        """A step that takes these times in turn, and `last` (or the last of them) from then on."""
        left = [round(s * SECOND) for s in seconds]
        rest = left[-1] if last is None else round(last * SECOND)

        def run() -> None:
            self.clock.now_ns += left.pop(0) if left else rest
            if each:
                each()

        return Step(run)

    def add_step(self, name: str, *seconds: float, last: float | None = None) -> None:
        """A case whose steps take these times."""
        self.add(name, lambda _: self.step(*seconds, last=last))

    def measure(self) -> Heard:
        """Run the launch to its end."""
        described = {
            "device": self.device,
            "device_name": self.device_name,
            "threads": 1,
            "seed": 1,
            **self._seconds,
            "most_blocks": self._most_blocks,
            "cases": self._cases,
        }
        Launch(
            described,
            Channel(self._path),
            self.clock.now_ns,
            workload_named=self._workloads.__getitem__,
            stopwatch=self.clock.time,
            times_apart=self.times_apart,
            clock=self.clock,
        ).run()
        return Heard([json.loads(line) for line in self._path.read_text().splitlines()])


@dataclass
class Heard:
    """What a supervisor would have read."""

    messages: list[dict[str, Any]]

    def of(self, kind: str, case_id: int | None = None) -> list[dict[str, Any]]:
        """The messages of one kind, of one case or of all."""
        return [m for m in self.messages if m["kind"] == kind and case_id in (None, m["case_id"])]

    def end(self, case_id: int) -> dict[str, Any]:
        """How a case ended: reported once, with the number of blocks."""
        (end,) = self.of("case_end", case_id)
        assert end["blocks"] == len(self.of("block", case_id))
        return end


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Twenty simulated seconds."""
    return Bench(tmp_path, 20.0)


def test_a_launch_that_sees_another_device_than_planned_times_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = SimpleNamespace(name="Intel UHD 770")
    cpu = pytest.importorskip("torch").cpu
    monkeypatch.setattr(cpu, "get_device_properties", lambda index: seen, raising=False)
    bench.device_name = "Intel Arc B580"
    bench.add_step("other", 0.01)
    end = bench.measure().end(0)
    assert (end["outcome"], end["blocks"]) == ("unsupported", 0)
    assert end["reason"] == "torch sees another device than the one to measure"


def test_a_quiet_case_stops_as_soon_as_its_median_is_known(bench: Bench) -> None:
    bench.add_step("quiet", 0.01)
    heard = bench.measure()
    assert heard.end(0)["outcome"] == "ok"
    assert [block["index"] for block in heard.of("block")] == [0, 1, 2, 3, 4, 5]
    (warm,) = heard.of("warm")
    assert warm["stable"] is True
    assert {block["steps"] for block in heard.of("block")} == {warm["steps_per_block"]}
    assert all(block["wall_ns"] >= 0.2 * SECOND for block in heard.of("block"))


def test_a_noisy_case_goes_on_until_its_time_is_spent_and_not_beyond(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 15.0)
    times = [0.2, 0.3, 0.25, 0.35] * 100
    bench.add_step("noisy", *times)
    begun_ns = bench.clock.now_ns
    heard = bench.measure()
    walls = [block["wall_ns"] for block in heard.of("block")]
    assert heard.end(0)["outcome"] == "ok"
    assert median_half_width(walls) > ENOUGH_HALF_WIDTH
    assert 14.4 * SECOND < bench.clock.now_ns - begun_ns <= 15 * SECOND
    assert heard.of("warm")[0]["stable"] is True


def test_a_noisy_case_with_much_time_ends_at_the_most_blocks(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 1000.0)
    bench.add_step("noisy", *NOISY)
    assert bench.measure().end(0)["blocks"] == MOST_BLOCKS


def test_a_launch_that_is_to_have_few_blocks_warms_up_and_times_no_more(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 1000.0, most_blocks=MIN_BLOCKS)
    bench.add_step("falling", *[0.3 * 0.9**i for i in range(200)])
    heard = bench.measure()
    assert (heard.end(0)["outcome"], heard.end(0)["blocks"]) == ("ok", MIN_BLOCKS)
    assert heard.of("warm")[0]["warmup_blocks"] == MIN_BLOCKS


def test_the_first_step_is_recorded_apart_from_the_warm_up(bench: Bench) -> None:
    bench.add_step("compiled", 3.0, last=0.1)
    (warm,) = bench.measure().of("warm")
    assert warm["first_step_ns"] == 3 * SECOND
    assert warm["warmup_ns"] < 3 * SECOND
    assert warm["stable"] is True


def test_a_case_that_becomes_faster_until_its_warm_up_must_end_is_not_stable(bench: Bench) -> None:
    bench.add_step("settling", *[0.4 * 0.97**i for i in range(60)], last=0.06)
    heard = bench.measure()
    (warm,) = heard.of("warm")
    walls = [block["wall_ns"] / block["steps"] for block in heard.of("block")]
    assert warm["stable"] is False
    assert 4.8 * SECOND <= warm["warmup_ns"] < 5.2 * SECOND  # a quarter of what the first step left
    assert walls[0] < 0.4 * SECOND


def test_a_short_share_has_short_blocks_and_ten_of_them(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 1.25)
    bench.add_step("quick", 0.1, *random.Random(2).choices([0.008, 0.012], k=1000))
    begun_ns = bench.clock.now_ns
    heard = bench.measure()
    assert heard.end(0)["blocks"] >= WANTED_BLOCKS - 1
    assert all(MIN_BLOCK_S * SECOND <= block["wall_ns"] < 0.1 * SECOND for block in heard.of("block"))
    assert bench.clock.now_ns - begun_ns <= 1.25 * SECOND


def test_the_second_step_of_a_slow_case_is_its_first_block(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 1.25, limit_s=10.0)
    bench.add_step("slow", 0.3, last=0.2)
    heard = bench.measure()
    (warm,), blocks = heard.of("warm"), heard.of("block")
    assert (warm["warmup_blocks"], warm["warmup_ns"], warm["stable"]) == (0, 0, True)
    assert blocks[0]["start_ns"] == warm["t_ns"]
    assert {block["steps"] for block in blocks} == {1}
    assert heard.end(0) == {**heard.end(0), "outcome": "ok", "blocks": MIN_BLOCKS}


def test_a_case_too_slow_for_its_share_has_five_blocks_of_one_step(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 2.5, limit_s=20.0)
    bench.add_step("own", 2.8, last=1.8)
    bench.add_step("beside", 0.3, last=0.2)
    heard = bench.measure()
    for case_id in (0, 1):
        assert heard.end(case_id)["outcome"] == "ok"
        assert [block["steps"] for block in heard.of("block", case_id)] == [1] * MIN_BLOCKS


def test_a_first_step_that_was_slow_by_chance_does_not_end_a_case(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 2.0, limit_s=10.0)
    bench.add_step("delayed", 3.0, 2.0, last=0.1)
    assert bench.measure().end(0)["outcome"] == "ok"


def test_a_first_step_longer_than_the_budget_is_skipped_and_the_reason_names_both(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 10.0)
    bench.add_step("endless", 41.0)
    end = bench.measure().end(0)
    assert (end["outcome"], end["reason"]) == ("skipped", TOO_LONG)


def test_a_step_too_long_for_five_blocks_is_skipped_and_the_reason_names_both(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 1.0, limit_s=10.0)
    bench.add_step("long", 3.0)
    end = bench.measure().end(0)
    assert (end["outcome"], end["reason"]) == (
        "skipped",
        "5 steps of 3 s do not fit into the 7 s left",
    )


def test_a_case_whose_turn_comes_when_all_time_is_spent_is_skipped_without_being_built(bench: Bench) -> None:
    built: list[str] = []

    def build(_: Request) -> Step:
        built.append("late")
        return bench.step(0.1)

    bench.add_step("endless", 41.0)
    bench.add("late", build)
    heard = bench.measure()
    assert heard.end(0)["reason"] == "its first step took 41 s, and the launch had 20 s"
    assert heard.end(1)["reason"] == "no time was left of the launch's 20 s"
    assert built == []


def test_what_a_warm_case_has_left_is_not_spent_on_warming_the_next(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 40.0)
    for name in ("first", "second", "third", "fourth"):
        bench.add_step(name, *[0.5 * 0.98**i for i in range(1000)])
    heard = bench.measure()
    assert [warm["case_id"] for warm in heard.of("warm")] == [0, 1, 2, 3]
    assert all(2.3 * SECOND <= warm["warmup_ns"] < 2.9 * SECOND for warm in heard.of("warm"))


def test_the_share_of_a_case_that_cannot_run_goes_to_the_others(tmp_path: Path) -> None:
    def refuse(_: Request) -> Step:
        raise Unsupported("not here")

    bench = Bench(tmp_path, 40.0)
    bench.add("refused", refuse)
    bench.add_step("falling", *[0.5 * 0.98**i for i in range(1000)])
    (warm,) = bench.measure().of("warm")
    assert 9.5 * SECOND <= warm["warmup_ns"] < 10.5 * SECOND


def test_those_that_are_warm_are_measured_though_another_took_the_time_of_all(bench: Bench) -> None:
    bench.add_step("first", 0.4)
    bench.add_step("second", 0.4)
    bench.add_step("greedy", 41.0)
    heard = bench.measure()
    assert [heard.end(case_id)["outcome"] for case_id in range(3)] == ["ok", "ok", "skipped"]
    assert [heard.end(case_id)["blocks"] for case_id in range(3)] == [MIN_BLOCKS, MIN_BLOCKS, 0]


def test_cases_are_timed_in_turn_block_by_block(bench: Bench) -> None:
    for name in ("a", "b", "c"):
        bench.add_step(name, 0.05)
    order = [block["case_id"] for block in bench.measure().of("block")]
    assert order == [0, 1, 2] * 6


def test_every_case_has_five_blocks_even_if_they_outlast_the_budget(bench: Bench) -> None:
    for name in ("a", "b"):
        # Fast while warming up, four times slower when timed.
        bench.add_step(name, *[0.3] * 9, last=1.7)
    heard = bench.measure()
    for case_id in (0, 1):
        assert heard.end(case_id)["outcome"] == "ok"
        assert heard.end(case_id)["blocks"] >= MIN_BLOCKS


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (MemoryError(), "oom"),
        (RuntimeError("first line\nsecond line"), "failed"),
        (Unsupported("no such mode"), "unsupported"),
    ],
    ids=["oom", "failed", "unsupported"],
)
def test_whatever_a_case_raises_becomes_its_outcome_in_one_line_and_the_others_go_on(
    bench: Bench, error: Exception, outcome: str
) -> None:
    def build(_: Request) -> Step:
        raise error

    bench.add("broken", build)
    bench.add_step("sound", 0.1)
    heard = bench.measure()
    end = heard.end(0)
    assert end["outcome"] == outcome
    assert "\n" not in end["reason"]
    assert "second line" not in end["reason"]
    assert heard.end(1)["outcome"] == "ok"


def test_an_unknown_precision_is_unsupported_and_named(bench: Bench) -> None:
    bench.add("exotic", lambda _: bench.step(0.1), precision="fp4")
    end = bench.measure().end(0)
    assert end["outcome"] == "unsupported"
    assert "fp4" in end["reason"]


def test_a_case_that_breaks_while_it_is_timed_keeps_the_count_of_its_blocks(bench: Bench) -> None:
    def break_late() -> None:
        if bench.clock.now_ns > 11 * SECOND:
            raise RuntimeError("device-side assert")

    bench.add("late", lambda _: bench.step(*[0.2, 0.3, 0.25, 0.35] * 100, each=break_late))
    end = bench.measure().end(0)
    assert end["outcome"] == "failed"
    assert end["blocks"] > 0


def test_a_loss_that_is_no_number_fails_the_case(bench: Bench) -> None:
    bench.add("diverging", lambda _: replace(bench.step(0.1), loss=lambda: math.nan))
    bench.add("converging", lambda _: replace(bench.step(0.1), loss=lambda: 0.5))
    heard = bench.measure()
    assert (heard.end(0)["outcome"], heard.end(0)["reason"]) == ("failed", "the loss became nan")
    assert heard.end(1)["outcome"] == "ok"


def test_a_loss_that_cannot_be_read_fails_its_case_only(bench: Bench) -> None:
    def unreadable() -> float:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    bench.add("broken", lambda _: replace(bench.step(0.1), loss=unreadable))
    bench.add_step("sound", 0.1, last=0.1)
    heard = bench.measure()
    assert heard.end(0)["outcome"] == "failed"
    assert heard.end(0)["blocks"] >= MIN_BLOCKS
    assert heard.end(1)["outcome"] == "ok"


def test_a_block_with_a_skipped_optimizer_step_is_void_and_another_takes_its_place(bench: Bench) -> None:
    scales = iter([1024.0, 1024.0, 1024.0, 512.0])  # read before and after each block

    bench.add("fp16", lambda _: replace(bench.step(0.1), loss_scale=lambda: next(scales, 512.0)))
    heard = bench.measure()
    assert [m["kind"] for m in heard.messages] == ["warm", "block", "void", *["block"] * 5, "case_end"]
    assert [block["index"] for block in heard.of("block")] == [0, 1, 2, 3, 4, 5]
    assert heard.end(0)["outcome"] == "ok"


def test_a_loss_scale_that_never_settles_fails_the_case_instead_of_going_on_forever(bench: Bench) -> None:
    scales = (2.0**-power for power in range(10**6))
    bench.add("exploding", lambda _: replace(bench.step(0.1), loss_scale=lambda: next(scales)))
    heard = bench.measure()
    assert len(heard.of("void")) == MAX_VOID_BLOCKS
    assert heard.end(0)["outcome"] == "failed"
    assert "loss scale" in heard.end(0)["reason"]


def test_a_worker_whose_supervisor_is_gone_ends_instead_of_working_for_nobody(bench: Bench) -> None:
    def build(_: Request) -> Step:
        raise BrokenPipeError

    bench.add("unheard", build)
    with pytest.raises(BrokenPipeError):
        bench.measure()


P99 = Figure("p99_s", "p99 latency", "s", "less", "median")
ERRORS = Figure("errors_count", "errors", "count", "less", "sum")


def test_declared_figures_are_sent_once_each_after_the_last_block(bench: Bench) -> None:
    given: list[list[float]] = []

    def figures(step_ns: Sequence[float]) -> dict[str, Value]:
        given.append(list(step_ns))
        return {"p99_s": Value(0.25, 1000)}

    step = replace(bench.step(0.1), figures=figures)
    bench.add("served", lambda _: step, figures=(P99, ERRORS))
    heard = bench.measure()
    assert given == [[0.1 * SECOND] * len(heard.of("block"))]
    assert [m["kind"] for m in heard.messages[-3:]] == ["figure", "figure", "case_end"]
    p99, errors = heard.of("figure", 0)
    figure = {**asdict(P99), "value": 0.25, "observations": 1000, "reason": ""}
    assert p99 == {"kind": "figure", "case_id": 0, **figure}
    assert (errors["value"], errors["observations"], errors["reason"]) == (None, 0, "not measured")


def test_a_fault_fails_the_case_and_keeps_its_figures(bench: Bench) -> None:
    step = replace(
        bench.step(0.1), figures=lambda _: {"errors_count": Value(3.0, 50)}, fault=lambda: "3 bit errors"
    )
    bench.add("burnt", lambda _: step, figures=(ERRORS,))
    heard = bench.measure()
    assert (heard.end(0)["outcome"], heard.end(0)["reason"]) == ("failed", "3 bit errors")
    assert heard.of("figure", 0)[0]["value"] == 3.0


def test_what_was_noted_during_the_warm_up_can_be_forgotten(bench: Bench) -> None:
    calls: list[str] = []
    step = bench.step(0.1, each=lambda: calls.append("step"))
    bench.add("counting", lambda _: replace(step, settled=lambda: calls.append("settled")))
    heard = bench.measure()
    after = calls[calls.index("settled") + 1 :]
    assert calls.count("settled") == 1
    assert after == ["step"] * sum(block["steps"] for block in heard.of("block"))


def test_a_sustained_case_goes_on_until_its_time_is_spent(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 900.0)
    bench.add("burn", lambda _: bench.step(0.1), is_sustained=True)
    begun_ns = bench.clock.now_ns
    heard = bench.measure()
    assert 895 * SECOND < bench.clock.now_ns - begun_ns <= 900 * SECOND
    assert 250 < heard.end(0)["blocks"] <= 300


def test_steps_that_are_done_elsewhere_are_timed_there(bench: Bench) -> None:
    def timed(steps: int) -> BlockTime:
        bench.clock.now_ns += steps * SECOND // 10
        return BlockTime(bench.clock.now_ns, steps * SECOND // 20, None, 7, waited_ns=9)

    bench.add("elsewhere", lambda _: replace(bench.step(9.0), timed=timed))
    heard = bench.measure()
    assert heard.end(0)["outcome"] == "ok"
    assert {block["wall_ns"] / block["steps"] for block in heard.of("block")} == {SECOND / 20}
    assert {(block["cpu_ns"], block["waited_ns"]) for block in heard.of("block")} == {(7, 9)}


@pytest.mark.parametrize("seconds", [(0.1,), (30.0,), (0.1, 5.0)], ids=["well", "first", "slow"])
def test_whatever_becomes_of_a_case_its_processes_are_ended_once(
    bench: Bench, seconds: tuple[float, ...]
) -> None:
    closed: list[str] = []
    for name in "ab":
        step = replace(bench.step(*seconds), close=partial(closed.append, name))
        bench.add(name, partial(_given, step))
    bench.measure()
    assert sorted(closed) == sorted(set(closed)) != []


def _given(step: Step, request: Request) -> Step:
    return step


def test_a_case_that_breaks_has_its_processes_ended(bench: Bench) -> None:
    def break_late() -> None:
        if bench.clock.now_ns > 11 * SECOND:
            raise RuntimeError("one rank died")

    closed: list[str] = []
    step = bench.step(*[0.2, 0.3, 0.25, 0.35] * 100, each=break_late)
    bench.add("breaking", lambda _: replace(step, close=lambda: closed.append("closed")))
    assert bench.measure().end(0)["outcome"] == "failed"
    assert closed == ["closed"]


def test_steps_are_requested_in_the_multiples_a_case_can_do(bench: Bench) -> None:
    asked: list[int] = []

    def timed(steps: int) -> BlockTime:
        asked.append(steps)
        bench.clock.now_ns += steps * SECOND // 1000
        return BlockTime(bench.clock.now_ns, steps * SECOND // 1000, None, 0)

    bench.add("swept", lambda _: replace(bench.step(9.0), timed=timed, multiple=48))
    heard = bench.measure()
    assert all(steps % 48 == 0 for steps in asked)
    assert {block["steps"] for block in heard.of("block")} == {240}  # 0.204 s and up to the next multiple


def test_time_for_figures_is_kept_free(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 100.0)
    times = [0.2, 0.3, 0.25, 0.35] * 1000
    bench.add("long", lambda _: bench.step(*times), is_sustained=True, figures_s=30.0)
    begun_ns = bench.clock.now_ns
    bench.measure()
    assert bench.clock.now_ns - begun_ns <= 70.5 * SECOND


@pytest.mark.parametrize("seconds", [0.0001, 0.003])
def test_a_case_on_a_gpu_tells_host_and_device_time_of_its_step(bench: Bench, seconds: float) -> None:
    asked: list[int] = []

    def apart(run: Callable[[], object], steps: int, limit_ns: float) -> tuple[int, int]:
        del run
        assert limit_ns == pytest.approx(SECOND)  # a twentieth of the case's share
        asked.append(steps)
        return 3000, 1000

    bench.device, bench.times_apart = "xpu", apart
    bench.add_step("work", seconds)
    heard = bench.measure()
    device, host = heard.of("figure")
    assert (device["key"], device["value"]) == ("device_step_s", 1e-6)
    assert (host["key"], host["value"]) == ("host_step_s", 3e-6)
    assert asked == [10 if seconds == 0.0001 else 1]
    assert heard.end(0)["outcome"] == "ok"


def test_a_gpu_without_these_times_says_why_and_a_cpu_has_none(tmp_path: Path) -> None:
    def apart(run: Callable[[], object], steps: int, limit_ns: float) -> tuple[int, int]:
        raise NotApart("it waits")

    reasons = {}
    for device in ("cpu", "xpu"):
        (tmp_path / device).mkdir()
        bench = Bench(tmp_path / device, 12.0)
        bench.device, bench.times_apart = device, apart
        bench.add_step("waits", 0.01)
        bench.add_step("long", 0.5)
        bench.add("alone", partial(_short, bench), is_alone=True)
        bench.add("elsewhere", partial(_elsewhere, bench))
        heard = bench.measure()
        assert {m["outcome"] for m in heard.of("case_end")} == {"ok"}
        assert {m["value"] for m in heard.of("figure")} <= {None}
        reasons[device] = [m["reason"] for m in heard.of("figure") if m["key"] == "device_step_s"]
    assert reasons["cpu"] == []
    assert sorted(reasons["xpu"]) == [
        NO_TIME_APART,
        "it waits",
        "it would take memory of the device, which this case has to itself",
        "its steps are timed in other processes",
    ]


def _short(bench: Bench, request: Request) -> Step:
    return bench.step(0.01)


def _elsewhere(bench: Bench, request: Request) -> Step:
    step = _short(bench, request)
    return replace(step, timed=lambda steps: bench.clock.time(step.run, steps))
