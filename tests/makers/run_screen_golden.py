"""Pictures of the Run screen, kept as text in tests/tui/golden and reviewed when they change.

    python tests/makers/run_screen_golden.py

regenerates them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from builders import make_interpreter, make_machine, make_torchless_interpreter

from gputui.errors import GputuiError
from gputui.model.journal import (
    JOURNAL_SCHEMA,
    Block,
    CaseEnd,
    CaseWarm,
    Event,
    LaunchEnd,
    LaunchStart,
    Line,
    RunStart,
)
from gputui.model.machine import Interpreter
from gputui.model.plan import Plan
from gputui.services.profiles.interpreters import Chosen
from gputui.services.profiles.loader import read_profile
from gputui.services.profiles.planner import resolve_plan
from gputui.services.runs.progress import LogTail, ProgressTracker
from gputui.services.runs.start import CheckedDraft
from gputui.tui.screens.run.model import EndedRuns, InProgress, ResultRow, RunModel, WatchedRuns
from gputui.tui.screens.run.pictures import picture

FOLDER = Path(__file__).parents[1] / "tui" / "golden"
SIZES = ((80, 24), (120, 40))
SECOND = 10**9
HOSTILE = "x\x1b]0;gone\x07\x1b[31m温度\u202ereversed"
RUN = InProgress(("0194b5a0-0000-7000-8000-00001a2b3c4d",), "1a2b3c4d (night)")
BOX = ("GPU 0 · 98 % busy · 691 W · 1620 MHz · 71 °C · POWER-CAPPED", "GPU 1 · 3 % busy · 80 W")
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
        ("quick", "Is this box normal, and how fast does it train and infer?", 140),
        ("bakeoff", "Which box is faster, for training and for inference?", 300),
        ("llm", "How fast does a language model train and write here?", 480),
        ("pipeline", "Does the loader keep up with the model?", 90),
        ("scaling", "How much faster are several GPUs than one?", 600),
    )
)


def checked(model: RunModel, interpreter: Interpreter) -> CheckedDraft:
    """What the model's draft shows on a box without a GPU."""
    machine = make_machine()
    profile = next(p for p in PROFILES if p.name == model.profile_name)
    plan = resolve_plan(profile, interpreter, machine)
    return CheckedDraft(model.draft, {}, (plan,), profile, (Chosen(interpreter, "this Python"),), machine)


def choosing(interpreter: Interpreter | None = None) -> RunModel:
    """The initial screen."""
    model = RunModel()
    model.default_file = "/home/ana/.local/share/gputui/results.db"
    model.know_profiles(PROFILES)
    model.know_checked(checked(model, interpreter or make_interpreter(cuda=None)))
    return model


def plan() -> Plan:
    """Of a run without a GPU."""
    return resolve_plan(PROFILES[0], make_interpreter(cuda=None), make_machine())


def lines_of(made: Plan, *, launches: int = 4) -> list[Line]:
    """The journal of a run in progress; its last launch has not ended."""
    lines: list[Line] = [
        RunStart(JOURNAL_SCHEMA, RUN.run_ids[0], 0, 0, 60, "0.1", made.profile, 1, 7, 3, 140.0, "night", None)
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


def watching() -> RunModel:
    """A run in progress."""
    made = plan()
    progress = ProgressTracker([made], is_of_this_clock=True)
    for line in lines_of(made):
        progress.hear(0, line)
    seen = progress.picture()
    model = RunModel()
    model.know_profiles(PROFILES)
    model.know_in_progress((RUN,))
    model.know_watched(WatchedRuns(RUN, (made,), "/home/ana/results.db", "Python 3.12.3, torch 2.13.0+cpu"))
    stood = replace(seen, begun_ns=0, left_s=68.0, box=BOX)
    model.know_progress(RUN.run_ids[0], stood)
    return model


def ended(wrong: GputuiError | None = None) -> RunModel:
    """A run that has been stored, or not."""
    model = watching()
    rows = (
        ResultRow("gemm mini cpu fp32 1 thread", "41.2 GFLOP/s", "±1 %", 90, ""),
        ResultRow("gemm mini cpu amp 1 thread", "38.0 GFLOP/s", "±12 %", 90, ""),
        ResultRow("gemm mini gpu fp32", "", "", 0, "skipped: no GPU: no NVIDIA driver is loaded"),
    )
    traces = ("trace: results.traces/1a2b3c4d.json; open it in https://ui.perfetto.dev",)
    model.know_ended(
        EndedRuns(RUN, "/home/ana/results.db", "finished", rows if wrong is None else (), traces, wrong)
    )
    return model


def wrong_form() -> RunModel:
    """A form with invalid input."""
    model = choosing()
    model.default_file = f"/home/ana/{'a-long-way-down/' * 5}results.db"
    model.press("next")
    for name, text in (("launches", "0"), ("label", HOSTILE), ("price", "cheap")):
        model.form.texts[name].insert(text)
    model.form.selected = 3
    model.form.texts["device"].insert("gpu")
    refused = GputuiError("--device gpu: no GPU: no NVIDIA driver is loaded", "leave --device out", 3)
    known = checked(model, make_interpreter(cuda=None))
    model.know_checked(
        CheckedDraft(known.draft, {"device": refused}, (), known.profile, known.chosen, known.machine)
    )
    return model


def failing() -> RunModel:
    """A run with a failed worker and the end of its log."""
    model = watching()
    assert model.progress is not None
    log_tail = LogTail(
        0,
        2,
        31.5,
        "launch 3, gemm mini cpu amp 1 thread",
        "failed",
        f"its worker was ended by SIGSEGV {HOSTILE}",
        ("Traceback (most recent call last):", "  File gemm.py, line 9, in build", f"OSError: {HOSTILE}"),
    )
    model.know_progress(RUN.run_ids[0], replace(model.progress, last_words=(log_tail,)))
    assert model.watched is not None
    model.know_watched(
        replace(model.watched, run_dirs=("/home/ana/.local/state/gputui/runs/0194b5a0-1/logs",))
    )
    model.press("logs")
    return model


def asked(question: str) -> RunModel:
    """A run in progress, and a question."""
    model = watching()
    model.press(question)
    return model


def details() -> RunModel:
    """The cases of a profile."""
    model = choosing()
    model.press("cases")
    return model


def models() -> Iterator[tuple[str, RunModel]]:
    """All states of the screen."""
    yield "first_sight", choosing()
    yield "no_torch", choosing(make_torchless_interpreter("/usr/bin/python3"))
    yield "details", details()
    yield "wrong", wrong_form()
    yield "watching", watching()
    yield "stop", asked("stop")
    yield "leave", asked("leave")
    yield "logs", failing()
    yield "ended", ended()
    failed = "run 1a2b3c4d was measured but not stored: no space left on device"
    yield (
        "not_stored",
        ended(GputuiError(failed, "its journal is kept: gputui import /state/run --db FILE", 4)),
    )


def text_of(model: RunModel, width: int, height: int, *, ascii_only: bool = False) -> str:
    """A picture as text, 42 seconds into the run."""
    lines = picture(model, width, height, 42 * SECOND, ascii_only=ascii_only)
    return "\n".join("".join(span.text for span in line).rstrip() for line in lines) + "\n"


def pictures() -> Iterator[tuple[str, str]]:
    """File names and contents."""
    for name, model in models():
        for width, height in SIZES:
            yield f"run_{name}_{width}x{height}.txt", text_of(model, width, height)


def main() -> None:
    for name, text in pictures():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
