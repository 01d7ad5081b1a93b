"""Pictures of the Run screen, kept as text in tests/tui/golden and reviewed when they change.

    python tests/makers/run_screen_golden.py

regenerates them.
"""

from __future__ import annotations

import functools
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from builders import H200, make_interpreter, make_machine, make_torchless_interpreter
from journals import CPU_MACHINE, GPU_MACHINE
from palettes import INDEXED
from stored_runs import store

from gputui.analysis.fleet import rates_of_both, rates_of_one
from gputui.analysis.health import Slowed
from gputui.analysis.peak_tests import Expectation, PeakTest, PerformanceCheck, Standing, check_performance
from gputui.document.spans import Line as Drawing
from gputui.document.spans import Span
from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.journal import (
    JOURNAL_SCHEMA,
    Block,
    CaseEnd,
    CasePlanned,
    CaseWarm,
    Event,
    LaunchEnd,
    LaunchStart,
    Line,
    MachineFound,
    RunStart,
)
from gputui.model.machine import Interpreter
from gputui.model.plan import Plan
from gputui.model.telemetry import HOST
from gputui.services.profiles.loader import read_profile
from gputui.services.profiles.planner import resolve_plan
from gputui.services.results.run_forms import NextStep
from gputui.services.runs.device_history import DeviceHistory
from gputui.services.runs.process import LiveRun
from gputui.services.runs.progress import LogTail, ProgressSnapshot, ProgressTracker
from gputui.services.runs.start import CheckedDraft
from gputui.store.reading import open_result
from gputui.tui.screens.run_form import RunForm, cases_lines
from gputui.tui.screens.run_pages import Ended, ended_lines, logs_lines, published_lines, watching_lines
from gputui.tui.widgets.scrolled import MARKER

FOLDER = Path(__file__).parents[1] / "tui" / "golden"
SIZES = ((80, 24), (120, 40), (200, 50))
GPU_PROFILE = read_profile(
    """
schema = 1
version = 1
title = "quick"
question = "Is this box normal? How fast does it train and infer?"
budget_s = 900
replicates = 3
[[case]]
workload = "gemm"
sizes = ["large"]
devices = ["gpu"]
precisions = ["fp32", "tf32", "amp"]
[[case]]
workload = "membw"
sizes = ["base"]
devices = ["gpu"]
precisions = ["fp32"]
[[case]]
workload = "gpt_train"
sizes = ["mini", "base"]
devices = ["gpu"]
precisions = ["fp32", "tf32", "amp"]
[[case]]
workload = "decode"
sizes = ["base"]
devices = ["gpu"]
precisions = ["amp"]
[[case]]
workload = "gemm"
sizes = ["mini"]
devices = ["cpu"]
precisions = ["fp32"]
threads = ["all"]
""",
    "quick",
    "quick.toml",
)
SECOND = 10**9
HOSTILE = "x\x1b]0;gone\x07\x1b[31m温度\u202ereversed"
RUN_ID = "0194b5a0-0000-7000-8000-00001a2b3c4d"
_TOML = """
schema = 1
version = 1
title = "{name}"
question = "{question}"
budget_s = {budget_s}
replicates = 3
[[case]]
workload = "gemm"
sizes = ["mini"]
devices = ["cpu", "gpu"]
precisions = ["fp32", "tf32", "amp"]
threads = ["1", "all"]
[[case]]
workload = "membw"
sizes = ["mini"]
devices = ["cpu"]
precisions = ["fp32"]
threads = ["1", "all"]
"""
PROFILES = tuple(
    read_profile(_TOML.format(name=name, question=question, budget_s=budget_s), name, f"{name}.toml")
    for name, question, budget_s in (
        ("quick", "Is this box normal? How fast does it train and infer?", 140),
        ("bakeoff", "Which box is faster, for training and for inference?", 300),
        ("llm", "How fast does a language model train and write here?", 480),
        ("pipeline", "Does the loader keep up with the model?", 90),
        ("scaling", "How much faster are several GPUs than one?", 600),
    )
)


def chosen(interpreter: Interpreter | None = None) -> RunForm:
    """The form as it is first seen, on a box without a GPU."""
    form = RunForm()
    form.profiles, form.default_file = PROFILES, "/home/ana/.local/share/gputui/results.db"
    python = interpreter or make_interpreter(cuda=None)
    machine, profile = make_machine(), PROFILES[0]
    made, found = resolve_plan(profile, python, machine), replace(python, found_as="this Python")
    form.checked = CheckedDraft(form.draft, {}, (made,), profile, (found,), machine)
    return form


def wrong_form() -> RunForm:
    """A form with what cannot be."""
    form = chosen()
    form.default_file = f"/home/ana/{'a-long-way-down/' * 5}results.db"
    form.texts |= {"device": "gpu", "launches": "0", "label": HOSTILE, "price": "cheap"}
    return form


def plan() -> Plan:
    """Of a run without a GPU."""
    return resolve_plan(PROFILES[0], make_interpreter(cuda=None), make_machine())


def lines_of(made: Plan, *, launches: int = 4) -> list[Line]:
    """The journal of a run in progress; its last launch has not ended."""
    lines: list[Line] = [
        RunStart(JOURNAL_SCHEMA, RUN_ID, 0, 0, 60, "0.1", made.profile, 1, 7, 3, 140.0, "night", None)
    ]
    now_ns = SECOND
    for launch in made.launches[:launches]:
        case_ids, last = launch.case_ids, launch is made.launches[launches - 1]
        number = launch.launch_id
        lines.append(LaunchStart(number, launch.replicate, case_ids, 1, 20.0, now_ns))
        lines += [CaseWarm(number, case, "fp32", 1, 2, 3, 3, True, 10, now_ns) for case in case_ids]
        for index in range(30):
            for case in case_ids:
                wall_ns = SECOND // 5 + (index * 7919 % 13) * 1_500_000 + case * 1000
                lines.append(Block(number, case, index, 10, now_ns, wall_ns, None, None))
            now_ns += SECOND // 10
        if not last:
            lines += [CaseEnd(number, case, "ok", "", 30, now_ns) for case in case_ids]
            lines.append(LaunchEnd(number, "ok", "", 0, "", now_ns))
    lines.append(Event("warning", f"somebody else wants this CPU: {HOSTILE}", now_ns))
    return lines


def watching() -> ProgressSnapshot:
    """A run in progress."""
    made = plan()
    tracker = ProgressTracker([made], is_of_this_clock=True)
    for line in lines_of(made):
        tracker.hear(0, line)
    seen = tracker.picture()
    return replace(
        seen, begun_ns=0, left_s=68.0, share_done=42 / 110, machine=CPU_MACHINE, devices=(_host(42),)
    )


def watching_gpu(*, begun: int = 10, is_throttled: bool = True) -> ProgressSnapshot:
    """A run on the first of two GPUs, whose launch number `begun` is going on."""
    made = resolve_plan(GPU_PROFILE, make_interpreter(H200), make_machine("NVIDIA H200", "NVIDIA H200"))
    tracker = ProgressTracker([made], is_of_this_clock=True)
    for line in (MachineFound(GPU_MACHINE), *gpu_lines(made, begun)):
        tracker.hear(0, line)
    devices = (_host(492), _gpu(0, 492, is_throttled=is_throttled), _gpu(1, 492, is_busy=False))
    seen = tracker.picture()
    return replace(seen, begun_ns=-450 * SECOND, left_s=220.0, share_done=492 / 712, devices=devices)


def gpu_lines(made: Plan, begun: int) -> Iterator[Line]:
    """A journal in which every launch before this one has ended, and this one is in its 41st block."""
    yield RunStart(JOURNAL_SCHEMA, RUN_ID, 0, 0, 60, "0.1", made.profile, 1, 7, 3, 900.0, "night", None)
    for planned in made.cases:
        on_gpu = planned.case.variant.device_class == "gpu"
        yield CasePlanned(planned, 0 if on_gpu else None, "NVIDIA H200" if on_gpu else "Test CPU")
    now_ns = SECOND
    for number, launch in enumerate(made.launches[: begun + 1]):
        yield LaunchStart(number, launch.replicate, launch.case_ids, 1, 60.0, now_ns)
        for case_id in launch.case_ids:
            precision = made.cases[case_id].case.variant.precision
            used = "amp-bf16" if precision == "amp" else precision
            yield CaseWarm(number, case_id, used, 1, 2, 3, 3, True, 10, now_ns)
        for index in range(41 if number == begun else 60):
            for case_id in launch.case_ids:
                case = made.cases[case_id].case
                names = (
                    case.work.workload,
                    case.variant.device_class,
                    case.work.size,
                    case.variant.precision,
                )
                rate = next(rate for name, rate in RATES if set(name.split()) <= set(names))
                step_s = case.units_per_step / rate
                steps = max(round(0.2 / step_s), 1)
                wander = 1 + ((index * 7919 + number) % 13) * 0.001 + number * 0.0007
                if index % 29 == 17:
                    wander += 0.03
                wall_ns = round(steps * step_s * wander * SECOND)
                yield Block(number, case_id, index, steps, now_ns, wall_ns, None, None)
            now_ns += SECOND // 4
        if number < begun:
            for case_id in launch.case_ids:
                yield CaseEnd(number, case_id, "ok", "", 60, now_ns)
            yield LaunchEnd(number, "ok", "", 0, "", now_ns)
        if number == begun - 2:
            yield Event("warning", "GPU 0: its clock fell to 1740 MHz for 2 s", now_ns)


RATES = (
    ("gemm cpu", 8.4e11),
    ("gemm fp32", 5.12e13),
    ("gemm tf32", 3.92e14),
    ("gemm amp", 7.21e14),
    ("membw", 4.31e12),
    ("gpt_train mini fp32", 1.84e5),
    ("gpt_train mini", 9.12e5),
    ("gpt_train base fp32", 3.12e4),
    ("gpt_train base tf32", 1.18e5),
    ("gpt_train base amp", 2.15e5),
    ("decode", 2.08e3),
)
"""Units per second by words of a case; the first that fits counts."""


def _gpu(index: int, seconds: int, *, is_busy: bool = True, is_throttled: bool = False) -> DeviceHistory:
    """A GPU that warmed up; one that is busy has worked since the tenth second."""
    ramp = [min(max(place - 3, 0) / 6, 1.0) if is_busy else 0.0 for place in range(seconds // 4)]
    bins = {
        "sm_clock_mhz": tuple(345 + 1635 * share - 5 * (place % 3) for place, share in enumerate(ramp)),
        "power_w": tuple(78 + 618 * share + place % 5 for place, share in enumerate(ramp)),
        "temperature_c": tuple(
            33 + 31 * share * min(1, 0.5 + place / 90) for place, share in enumerate(ramp)
        ),
        "memory_used_bytes": tuple((900 + 61_000 * share) * 2**20 for share in ramp),
        "sm_busy_pct": tuple(99 * share for share in ramp),
    }
    now = {key: values[-1] for key, values in bins.items()}
    slowed = Slowed(300.0, {"power": 0.34 if is_throttled else 0.0}, {"power": 0.0} if is_throttled else {})
    return DeviceHistory(index, {**now, "throttle_bits": 4 if is_throttled else 0}, 4.0, bins, slowed)


def _host(seconds: int) -> DeviceHistory:
    bins = {
        "cpu_busy_pct": tuple(100.0 + 7 * (place % 4) for place in range(seconds // 4)),
        "cpu_clock_mhz": tuple(2900.0 + 20 * (place % 3) for place in range(seconds // 4)),
        "memory_used_bytes": tuple(3.1 * 2**30 for _ in range(seconds // 4)),
        "load_1min": tuple(min(1.0 + place / 20, 1.6) for place in range(seconds // 4)),
    }
    now = {key: values[-1] for key, values in bins.items()}
    return DeviceHistory(HOST, {**now, "cpu_steal_pct": 7.0}, 4.0, bins)


LIVE = LiveRun(RUN_ID, Path("/state/runs/1"), Path("/home/ana/results.db"), None)


def ended() -> Ended:
    """A run on a GPU that was stored."""
    with tempfile.TemporaryDirectory() as place:
        db = Path(place) / "a.db"
        store(db, 5, label="night", machine=GPU_MACHINE, on_gpu=True, seconds=8.0)
        with open_result(db) as file:
            (summary,) = file.summaries()
            result, passes = file.run(summary.run_id), file.profiled(summary.run_id)
    steps = (
        NextStep("gputui doctor", "what is wrong with the box"),
        NextStep("gputui compare results.db OTHER.db", "once another box has run the same"),
    )
    no_load = Missing("it is no load on a server")
    return Ended((LIVE,), "finished", (result,), (no_load,), tuple(passes.items()), steps, ("trace: a.json",))


def not_stored() -> Ended:
    """A run that was measured, and not stored."""
    failed = "run 1a2b3c4d was measured but not stored: no space left on device"
    error = GputuiError(failed, "its journal is kept: gputui import /state/run --db FILE", 4)
    return Ended((LIVE,), "finished", wrong=error)


def beside_boxes() -> PerformanceCheck:
    """A GPU that is slower in one case than the boxes of a reference."""
    tests = []
    for number, case in enumerate(
        ("matmul fp32", "matmul tf32", "matmul amp", "memory copy", "text generation", "GPT training", "lstm")
    ):
        typical = (1 + number) * 1e13
        boxes = [rates_of_one(typical * (1 + place / 200), typical, typical) for place in range(18)]
        rates = functools.reduce(rates_of_both, boxes)
        expectation = Expectation(*rates.usual_range, rates.lowest_normal(0.05), math.inf, rates=rates)
        here = typical * (0.8 if case == "matmul amp" else 1.01 + number / 100)
        tests.append(PeakTest(case, "", here, "flop", expectation, low_per_s=0.99 * here, high_per_s=here))
    standing = Standing(
        reference="h200-sxm",
        model="18 H200 SXM",
        boxes=18,
        months="2026-11",
        cases=7,
        share_slower=0.31,
        ratio=0.97,
        lowest="matmul amp 24.0 of 30.0–32.6 TFLOP/s",
        remarks=("power-capped at 500 of 700 W",),
        judges=True,
    )
    return check_performance("NVIDIA H200", tests, 0, standing)


def beside_figures() -> PerformanceCheck:
    """A GPU that copies too slowly, beside published figures."""
    tests = (
        PeakTest("matmul fp32", "matmul", 5.12e13, "flop", Expectation(4.98e13, 5.32e13, 2.5e13, 6.7e13)),
        PeakTest("matmul amp", "matmul", 7.21e14, "flop", Expectation(6.7e14, None, 3.3e14, 9.9e14)),
        PeakTest("memory copy", "copy", 2.0e12, "B", Expectation(4.17e12, 4.39e12, 2.1e12, 4.8e12)),
    )
    return check_performance("NVIDIA H200", tests, 0)


def failing() -> tuple[LogTail, ...]:
    """The end of the log of a failed worker."""
    reason = f"its worker was ended by SIGSEGV {HOSTILE}"
    rows = ("Traceback (most recent call last):", "  File gemm.py, line 9, in build", f"OSError: {HOSTILE}")
    return (LogTail(0, 2, 31.5, "launch 3, gemm mini cpu amp 1 thread", "failed", reason, rows),)


def form_lines(form: RunForm, width: int, key: int = 0) -> Iterator[Drawing]:
    """The form as its list shows it, one entry selected."""
    for entry in form.entries(width):
        for line in entry.lines:
            mark = () if entry.key < 0 else (Span(MARKER if entry.key == key else "  ", "accent"),)
            yield (*mark, *line)


def watching_of(progress: ProgressSnapshot, width: int, height: int) -> list[Drawing]:
    """42 seconds into the run."""
    into = "into /home/ana/results.db with Python 3.12.3"
    return watching_lines(progress, into, width, height, 42 * SECOND, "14:31")


Drawn = Callable[[int, int], Iterable[Drawing]]
"""Of a width and a height."""


def states() -> Iterator[tuple[str, Drawn]]:
    """All that the screen draws, by name."""
    torchless = make_torchless_interpreter("/usr/bin/python3")
    for name, form in (("first_sight", chosen()), ("no_torch", chosen(torchless)), ("wrong", wrong_form())):
        yield name, lambda width, height, form=form: form_lines(form, width)  # type: ignore[misc]
    checked = chosen().checked
    assert checked is not None
    yield "details", lambda width, height: cases_lines(checked, width)
    for name, seen in (("watching", watching()), ("watching_gpu", watching_gpu())):
        yield name, lambda width, height, seen=seen: watching_of(seen, width, height)  # type: ignore[misc]
    yield "logs", lambda width, height: logs_lines(failing(), ["/home/ana/runs/0194b5a0-1/logs"], width)
    stored, lost = ended(), not_stored()
    yield "ended", lambda width, height: ended_lines(stored, None, INDEXED, width)
    yield "not_stored", lambda width, height: ended_lines(lost, watching(), INDEXED, width)
    for name, check in (("boxes", beside_boxes()), ("figures", beside_figures())):
        yield name, lambda width, height, check=check: published_lines([check], width)  # type: ignore[misc]


def text_of(lines: Iterable[Drawing]) -> str:
    return "\n".join("".join(span.text for span in line).rstrip() for line in lines) + "\n"


def pictures() -> Iterator[tuple[str, str]]:
    """File names and contents; the last two lines of a terminal are the screen's message and its keys."""
    for name, drawn in states():
        for width, height in SIZES:
            yield f"run_{name}_{width}x{height}.txt", text_of(drawn(width, height - 3))


def main() -> None:
    for name, text in pictures():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
