"""Pages of comparisons of many rows, of four boxes, and of boxes that lack something."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from hand_made import make_case, make_run, measured, steady, unmeasured
from journals import GPU_MACHINE, H200

from gputui.analysis.attribution import Attribution, Part, Split
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.model.plan import Case
from gputui.model.result import Run
from gputui.services.compare.headline import headline_of
from gputui.services.compare.pairing import Comparison, Why, compare_sides, side_of_runs
from gputui.services.compare.reports import comparisons_as_page
from gputui.services.compare.session import Answer, Asked
from gputui.services.results.conditions import Evidence
from gputui.store.reading import LaunchSeries

LONG = "a workload with a name that is longer than the column of any table on a phone"
WORKLOADS = ("gemm", "membw", "xfer", "conv_train", "gpt_train", "lstm_train", "decode", LONG)
PRECISIONS = ("fp32", "tf32", "amp", "fp16")
CLASSES = {"gemm": "ceiling", "membw": "ceiling", "xfer": "ceiling", "decode": "inference"}
GPT = "gpt_train"


class WithoutTelemetry(Evidence):
    """Runs without telemetry, in a file that does not exist."""

    def launches(
        self, run_id: str, case_id: int, launch_ids: Collection[int], pieces: int
    ) -> tuple[LaunchSeries, ...]:
        return ()

    def file(self, run_id: str) -> Path:
        return Path("a directory/with a name that is rather long/h100.db")


def case_of(workload: str, precision: str) -> Case:
    case = make_case(
        workload,
        workload_class=CLASSES.get(workload, "training"),
        device_class="gpu",
        precision=precision,
        size="base",
    )
    return replace(case, unit="tok", units_per_step=4096.0)


CASES = [case_of(workload, precision) for workload in WORKLOADS for precision in PRECISIONS]


def run_of(factor: float, cases: Sequence[Case] = CASES, usd: float | None = 3.5, launches: int = 3) -> Run:
    """Steps of 10 ms on a box that is slower by a factor, and by 5 % more with each case."""
    results = [
        measured(
            case,
            *(
                steady(0.01 * factor * (1 + 0.05 * place * (factor - 1)) * (1 + 2e-3 * n))
                for n in range(launches)
            ),
        )
        for place, case in enumerate(cases)
    ]
    price = Missing("no price") if usd is None else Price(usd, 1.0, "stated", "", "", "", "")
    return make_run(*results, machine=replace(GPU_MACHINE, gpus=(H200,)), price=price)


def page_of(runs: Sequence[Run], ignore: str = "") -> str:
    sides = [side_of_runs(f"box-{number}.db", [run]) for number, run in enumerate(runs)]
    comparisons = [explained(compare_sides(sides[0], side)) for side in sides[1:]]
    evidence = WithoutTelemetry((), trust=False)
    headline = headline_of(comparisons, ignore, evidence)
    asked = Asked(tuple(sides), ignore, evidence, ())
    return comparisons_as_page(asked, Answer(tuple(comparisons), headline))


def explained(comparison: Comparison) -> Comparison:
    """With reasons of every row that differs: one part is longer on b, one shorter, one hardly moves."""
    times = {
        "gemm": (5_000_000, 9_000_000),
        "casts and copies": (3_000_000, 1_000_000),
        "softmax_loss": (7, 8),
    }
    unknown = Missing("")
    parts = tuple(
        Part(name, a, b, Split(0, b - a, 0), unknown, unknown, (("forward", b - a),), 0, 0, b - a)
        for name, (a, b) in times.items()
    )
    step_a, step_b = (sum(times_ns) for times_ns in zip(*times.values(), strict=True))
    why = Why(Attribution(step_a, step_b, parts, (), 0.9, 1.1, 1.1, "fair", ("a doubt",)))
    rows = (replace(row, why=why) if row.rate.differs else row for row in comparison.rows)
    return replace(comparison, rows=tuple(rows))


def without_memory() -> Run:
    run = run_of(1.6)
    reason = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.15 GiB"
    cases = [
        replace(unmeasured(one.case, "oom", reason), case_id=one.case_id)
        if one.case.work.workload == GPT and one.case.variant.precision == "amp"
        else one
        for one in run.cases
    ]
    return replace(run, cases=tuple(cases))


FEW = [case_of(GPT, "amp"), case_of("decode", "amp"), case_of("gemm", "amp")]
PAGES = {
    "32 rows": lambda: page_of([run_of(1.0), run_of(1.6, usd=1.75)]),
    "four boxes": lambda: page_of(
        [run_of(1.0), run_of(1.6), run_of(0.7, usd=9.0), run_of(1.001, launches=1)]
    ),
    "nothing in common": lambda: page_of([run_of(1.0, FEW[:1]), run_of(1.0, FEW[1:])]),
    "out of memory": lambda: page_of([run_of(1.0), without_memory()]),
    "no price": lambda: page_of([run_of(1.0, FEW), run_of(1.3, FEW, usd=None)]),
    "undecided": lambda: page_of([run_of(1.0, FEW, launches=1), run_of(1.08, FEW, launches=1)]),
    "far apart": lambda: page_of([run_of(500.0, FEW), run_of(1.0, FEW)]),
    "one row": lambda: page_of([run_of(1.0, FEW[:1]), run_of(1.001, FEW[:1])]),
}
