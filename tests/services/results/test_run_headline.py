"""The first sentences of a run: how fast is its main case, what AMP brings, is the box normal."""

from __future__ import annotations

import io
import re
from dataclasses import replace

from builders import make_interpreter, make_machine
from hand_made import make_run, measured, recording, steady, unmeasured
from journals import GPU_MACHINE, make_case
from test_expected import H200, at_rate, copy, gemm, shipped_case

from gputui.cli.output import step_lines
from gputui.document.page import console_on
from gputui.document.spans import Span
from gputui.model.journal import Price
from gputui.model.plan import program_case
from gputui.model.result import CaseResult
from gputui.services.profiles.loader import find_profile
from gputui.services.profiles.planner import resolve_plan
from gputui.services.results.headline import headline_sentences, run_headline
from gputui.services.results.run_forms import NextStep
from gputui.services.run_page import missing_lines, run_page

LINKS = [at_rate(55.4e9, "xfer", "256m-h2d"), at_rate(55.0e9, "xfer", "256m-d2h")]
TRAINING = [at_rate(31.2e3, "gpt_train", "base", "fp32"), at_rate(215e3, "gpt_train", "base", "amp")]


def headline(*cases: CaseResult) -> str:
    return run_headline(make_run(*cases, machine=GPU_MACHINE))


def without_ends(headline: str) -> str:
    """The ends of its interval are those of `speed_ratio`."""
    return re.sub(r"\([\d.]+ to [\d.]+\)", "(ends)", headline)


def test_what_is_low_is_the_first_thing_to_read_then_the_main_case_and_what_amp_brings() -> None:
    told = headline(gemm(780), copy(2.0), *LINKS, *TRAINING)
    assert without_ends(told) == (
        "BELOW NORMAL: memory runs at 47 % of the one public figure for an H200. "
        "GPT training: 215k tok/s with amp, 6.89x as fast as fp32 (ends)."
    )
    assert headline(gemm(780), copy(4.28)) == (
        "Matmul: 780 TFLOP/s. Memory runs at 100 % and matmul with amp at 101 % of the lowest public figure "
        "for an H200, too few to judge by."
    )
    name = "NVIDIA GeForce RTX 4090"
    assert headline(gemm(165, device_name=name)).endswith(
        " This GeForce RTX 4090 is normal in its one peak test."
    )
    for cases, begins in (
        (
            [gemm(300), copy(2.0)],
            "BELOW NORMAL: matmul with amp runs at 39 % and memory at 47 % of the lowest public figure",
        ),
        (
            [gemm(100, device_name=name)],
            "BELOW NORMAL: matmul with amp runs at 63 % of what a GeForce RTX 4090 does elsewhere.",
        ),
        (
            [gemm(2000), copy(4.28)],
            "ABOVE THE LIMIT: matmul amp 2.00 PFLOP/s, more than an H200 can do: a measurement error. ",
        ),
    ):
        assert headline(*cases).startswith(begins)
    for name, article in ((H200, "an H200"), ("NVIDIA B200", "a B200"), ("NVIDIA A100-SXM4-80GB", "an A100")):
        assert f" for {article}" in headline(gemm(30, device_name=name))


def test_without_published_figures_the_main_case_answers_and_nothing_is_said_of_normal() -> None:
    product = at_rate(1.5e12, "gemm", "mini", device_class="cpu", device_name="Xeon 8481C")
    slower = [
        at_rate(rate, "gpt_train", "mini", precision, device_class="cpu")
        for rate, precision in ((2000.0, "fp32"), (1000.0, "amp"))
    ]
    assert without_ends(run_headline(make_run(product, *slower))) == (
        "GPT training: 1.00k tok/s with amp, 50 % slower than fp32 (ends)."
    )
    assert headline(gemm(300, "mini")) == "Matmul: 300 TFLOP/s."


def test_what_failed_is_said_and_what_kept_everything_from_being_measured() -> None:
    failed = unmeasured(shipped_case("decode", "base", "amp"), "failed", "ValueError")
    assert headline(gemm(780), failed).endswith(" 1 case failed.")
    lost = unmeasured(shipped_case("decode", "base", "amp"), "skipped", "no GPU")
    assert headline(lost) == "Nothing was measured: 1 case did not run: no GPU."
    late = unmeasured(make_case("decode"), "skipped", "the budget of 15 s is spent")
    assert (
        headline(lost, lost, late) == "Nothing was measured: 1 case did not run: the budget of 15 s is spent."
    )
    assert run_headline(make_run(lost, status="interrupted")).startswith("The run was interrupted")
    stopped = unmeasured(shipped_case("decode", "base", "amp"), "interrupted", "the run ended first")
    for cases in ((stopped,), (lost, lost, stopped)):
        assert run_headline(make_run(*cases, status="interrupted")).endswith("; nothing was measured.")


def test_a_recording_without_a_rate_says_how_long_it_took_and_how_it_ended() -> None:
    told = {
        (): "Recorded 60.0 s.",
        ("interrupted", "stopped by SIGTERM"): "Recorded 60.0 s until it was stopped by SIGTERM.",
        ("failed", "exited with status 3"): "Its program failed: exited with status 3.",
    }
    for end, headline in told.items():
        run = recording(*end)
        assert (run_headline(run), missing_lines(run)) == (headline, [])
    run = recording("interrupted", "its process ended without saying why")
    lost = replace(run, summary=replace(run.summary, ended_utc_us=None))
    assert run_headline(lost) == "Recorded until it was interrupted: its process ended without saying why."


def test_a_whole_program_is_answered_in_time_and_one_that_counts_its_own_units_in_these() -> None:
    def told(unit: str, units: float) -> str:
        case = program_case("command:train", 1, is_whole=True, device_class="cpu", unit=unit, units=units)
        return run_headline(make_run(measured(case, steady(0.1))))

    assert re.fullmatch(r"Your program train: [0-9.]+ m?s a run\.", told("run", 1))
    assert re.fullmatch(r"Your program train: [0-9.]+k? img/s\.", told("img", 1000))


def test_contention_is_named_beside_the_speed_it_makes_doubtful() -> None:
    busy = measured(make_case("gpt_train"), steady(0.1), waited_share=0.4)
    less, quiet = (measured(make_case("gpt_train"), steady(0.1), waited_share=share) for share in (0.1, 0.01))
    answer, said = headline_sentences(make_run(busy))
    assert answer.startswith("GPT training: ")
    assert said == "Other programs had the CPU 40 % of the time: the box gave 21.5 GFLOP/s."
    _, said = headline_sentences(make_run(less))
    assert said == "Other programs had the CPU 10 % of the time; rates are without it."
    assert "programs" not in run_headline(make_run(quiet))


def test_of_a_box_that_others_had_for_most_of_the_time_no_precision_is_called_faster() -> None:
    single, mixed = (
        measured(make_case("gemm", precision=precision), *[steady(seconds)] * 3, waited_share=0.8)
        for precision, seconds in (("fp32", 0.3), ("amp", 0.1))
    )
    said = run_headline(make_run(single, replace(mixed, case_id=1)))
    whose = "rates without an interval are what the box gave"
    assert said.startswith("Matmul: 21.5 GFLOP/s with amp, ")
    assert said.endswith(f"Other programs had the CPU 80 % of the time; {whose}.")
    assert "with amp, can't tell if faster than fp32: the box was too busy." in said


def on_terminal(rows: int, cases: list[CaseResult], *, shows_all: bool = False) -> list[str]:
    """What a terminal of so many rows at 80 columns shows of a run, its footer included."""
    page = io.StringIO()
    out = console_on(page, 80, is_terminal=True)
    out.height = rows
    footer = [(Span("stored as 1 in a.db"),), (Span("next: "), Span("compare"))]
    price = Price(3.5, 2, "stated", "", "", "", "")
    run = make_run(*cases, machine=GPU_MACHINE, price=price)
    run_page(out, run, ["run 1"], footer, shows_all=shows_all).show()
    return re.sub(r"\x1b\[[\d;]*m", "", page.getvalue()).splitlines()


def test_a_terminal_of_24_lines_holds_the_answer_and_the_next_command_whatever_the_run_has() -> None:
    small = [at_rate(1e12, "gemm", "mini", device_class="cpu", device_name="X") for _ in range(20)]
    cases = [*small, gemm(780), copy(2.0), *LINKS, *TRAINING]
    lines = on_terminal(24, cases)
    assert len(lines) <= 23
    assert max(map(len, lines)) <= 80
    assert "BELOW NORMAL" in lines[0]
    assert "next: compare" in lines[-1]
    shown = "\n".join(lines)
    assert "GPT training base amp" in shown
    assert "memory copy base" in shown
    assert "more cases: --all" in shown
    assert len(on_terminal(24, cases, shows_all=True)) > 30


def test_what_failed_is_named_and_one_line_adds_up_what_was_not_measured() -> None:
    oom = unmeasured(shipped_case("gpt_train", "xl", "amp"), "oom", "OutOfMemoryError; see the log")
    crash = unmeasured(
        shipped_case("decode", "base", "amp"), "failed", "RuntimeError; its message is in the worker's log"
    )
    no_gpu = unmeasured(shipped_case("conv_train", "base", "amp"), "skipped", "no GPU: no driver is loaded")
    no_mode = unmeasured(shipped_case("conv_train", "base", "tf32"), "unsupported", "TF32 is a mode of GPUs")
    too_old = "Tesla T4 has no TF32: compute capability 8.0 is needed"
    turing = unmeasured(shipped_case("conv_train", "base", "tf32"), "unsupported", too_old)
    slow = unmeasured(shipped_case("decode", "base", "amp"), "skipped", "too slow: raise --budget")
    alone = unmeasured(shipped_case("ddp", "base", "amp"), "unsupported", "2 GPUs are needed, torch sees 1")

    (said,) = missing_lines(make_run(gemm(780), no_gpu, no_gpu, no_gpu, no_mode, no_mode, turing, slow))
    assert said == (
        "7 of 8 cases not measured: 3 need a GPU, 2 on the CPU, which has no TF32,"
        " 1 on a GPU without TF32, 1 had too little time"
    )
    assert missing_lines(make_run(gemm(780), alone)) == [
        "1 of 2 cases not measured: 1 cannot run: 2 GPUs are needed, torch sees 1"
    ]
    assert missing_lines(make_run(gemm(780), copy(4.0))) == []
    shown = on_terminal(24, [gemm(780), oom, crash, no_gpu])
    assert "GPT training xl gpu amp ran out of memory" in shown
    assert "text generation base gpu amp failed: RuntimeError" in shown
    assert "3 of 4 cases not measured: 1 ran out of memory, 1 failed, 1 needs a GPU" in shown


def test_cases_that_an_interrupted_run_did_not_finish_are_one_kind() -> None:
    cut = [
        unmeasured(shipped_case(name, "base", "amp"), "interrupted", why)
        for name, why in (("gpt_train", "stopped by SIGINT"), ("decode", "the run ended first"))
    ]
    skipped = unmeasured(shipped_case("conv_train", "base", "amp"), "skipped", "no GPU: no driver")
    assert missing_lines(make_run(*cut, skipped, status="interrupted")) == [
        "3 of 3 cases not measured: 2 did not finish, 1 needs a GPU"
    ]


def test_bad_news_is_amber_and_bold_other_answers_bold_and_commands_are_cyan() -> None:
    command = tuple(step_lines([NextStep("gputui doctor", "why")], console_on(io.StringIO())))
    for cases, style in (([gemm(300)], r"1;[\d;]+"), ([gemm(780)], "1")):
        page = io.StringIO()
        out = console_on(page, 80, is_terminal=True)
        run_page(out, make_run(*cases, machine=GPU_MACHINE), footer=command).show()
        first, *_, last = page.getvalue().splitlines()
        assert re.match(rf"\x1b\[{style}m", first)
        assert re.search(r"\x1b\[\d[\d;]+mgputui doctor\x1b\[0m", last)


def test_of_quick_on_a_busy_cpu_every_case_and_the_whole_end_fit_24_lines() -> None:
    plan = resolve_plan(find_profile("quick"), make_interpreter(cuda=None), make_machine())
    cases = tuple(
        replace(measured(one.case, steady(0.1), waited_share=0.4), case_id=one.case_id)
        if one.outcome is None
        else unmeasured(one.case, one.outcome, one.reason)
        for one in plan.cases
    )
    footer = [(Span(line),) for line in ("stored as 1 in a.db", "next: a command", "      another")]
    page = io.StringIO()
    out = console_on(page, 80, height=24, is_terminal=True)
    run_page(out, make_run(*cases), footer=footer).show()
    lines = re.sub(r"\x1b\[[\d;]*m", "", page.getvalue()).splitlines()
    assert len(lines) <= 23  # and the prompt
    assert (
        sum(
            re.match("(matmul|memory copy|CNN training|GPT training|text generation) ", line) is not None
            for line in lines
        )
        == 12
    )
    assert "15 of 27 cases not measured: 12 need a GPU, 3 on the CPU, which has no TF32" in lines
