"""`compare`: the baseline, columns, references, checks for CI, and energy."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hand_made import make_case, make_run, measured, steady, three, unmeasured
from journals import GPU_MACHINE, STARTED_US, make_journal
from journals import make_case as journal_case
from scipy import stats
from stored_runs import store

from gputui.analysis.cost import Energy, PoweredLaunch, energy_per_unit
from gputui.cli import main
from gputui.errors import (
    EXIT_CASE_FAILED,
    EXIT_DONE,
    EXIT_NOT_STORED,
    EXIT_UNDECIDED,
    EXIT_USAGE,
    NotStored,
)
from gputui.model.absent import Missing
from gputui.model.result import CaseResult, Run
from gputui.model.telemetry import LaunchPower
from gputui.model.units import format_energy
from gputui.services.compare.columns import BLOCKS, PEAK
from gputui.services.compare.formats import comparison_text
from gputui.services.compare.pairing import Comparison, compare_sides, side_of_runs
from gputui.services.compare.session import ask
from gputui.services.compare.suggestions import CANNOT_TELL, FAIL, PASS, GateResult, check_gate, gate_lines
from gputui.services.compare.tables import Naming, performance_lines, remarks, row_table
from gputui.services.results.conditions import Evidence
from gputui.services.results.selectors import Selection
from gputui.services.results.throughput import energy_of
from gputui.services.support.output_files import write_output
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import store_run

GEMM = make_case()
CONV = make_case("conv_train", workload_class="training")
GPU_GEMM = make_case(device_class="gpu", precision="amp")


def compared(*a: CaseResult, b: tuple[CaseResult, ...]) -> Comparison:
    return compare_sides(side_of_runs("a.db", [make_run(*a)]), side_of_runs("b.db", [make_run(*b)]))


# Checks


def slower_by(factor: float, spread: float = 1e-3) -> Comparison:
    return compared(
        measured(GPU_GEMM, *three(0.1, spread)), b=(measured(GPU_GEMM, *three(0.1 * factor, spread)),)
    )


def gate(*comparisons: Comparison, limit: float | None = 5) -> GateResult:
    return check_gate(comparisons, "", limit, evidence_of(*comparisons))


def evidence_of(*comparisons: Comparison) -> Evidence:
    runs = {s.run.run_id: Run(s.run, ()) for one in comparisons for s in (one.a, one.b)}
    return Evidence([Selection("a.db", Path("a.db"), tuple(runs.values()), (), {})])


def test_a_row_whose_whole_interval_lies_beyond_the_limit_fails_the_gate() -> None:
    found = gate(slower_by(1.2), limit=10)

    assert found.end == FAIL
    (line,) = found.slower
    assert re.fullmatch(r"matmul mini gpu amp: -17 % \(-\d+ to -1\d\)", line)
    assert found.undecided == ()


@pytest.mark.parametrize(
    ("factor", "limit", "end"),
    [(1.5, 25, FAIL), (1.5, 42, PASS), (1.0, 10, PASS), (1.05, 10, PASS), (0.5, 10, PASS), (9.0, None, PASS)],
)
def test_the_limit_is_a_change_of_rate_and_not_of_time(factor: float, limit: float | None, end: str) -> None:
    """1.5 times as long is a rate 33.3 % lower; without a limit every row has to be decided."""
    found = gate(slower_by(factor), limit=limit)
    assert (found.end, found.rows, found.undecided) == (end, 1, ())
    assert gate(slower_by(1.012, spread=0.01), limit=None).end == CANNOT_TELL


def test_a_limit_inside_the_interval_is_inconclusive_and_names_what_would_have_shown() -> None:
    found = gate(compared(measured(GEMM, steady(0.1)), b=(measured(GEMM, steady(0.11)),)), limit=30)

    assert found.end == CANNOT_TELL
    (line,) = found.undecided
    assert re.search(r": -9 % \(-\d\d to \+\d\d\), would have shown -\d\d %$", line), line
    assert [step.partition(" gputui")[0] for step in found.steps] == ["on the box of a:", "on the box of b:"]
    assert all(re.search(r" --launches \d+$", step) for step in found.steps)
    assert list(gate_lines(found, 30, ["b.db"], "a.db")) == [
        "gate: cannot tell: b.db vs a.db: 1 of 1 row undecided at 30 %:",
        f"  {line}",
        "what would settle it:",
        *(f"  {step}" for step in found.steps),
    ]
    equal = compared(measured(GEMM, *three(0.1)), b=(measured(GEMM, *three(0.1)),))
    (pool,) = gate(equal, limit=12).steps
    assert pool.endswith("of each box, then compare with --pool: runs of one box differ by more than that")
    assert "measuring again will hardly help" in gate(equal, limit=1).steps[0]


def test_the_gate_passes_rows_that_only_b_has_and_none_that_b_lacks_or_could_not_measure() -> None:
    other = make_case("membw")
    a = measured(GEMM, *three(0.1)), measured(other, *three(0.1))
    good = measured(GEMM, *three(0.1))

    for of_a in (a, a[:1], (a[0], unmeasured(other, "oom"))):
        assert gate(compared(*of_a, b=(good, a[1])), limit=50).end == PASS
    assert gate(compared(*a, b=(good,)), limit=50).undecided == (
        "memory copy mini cpu fp32 all: b does not have this case",
    )
    for empty in (5, None):
        assert gate(compared(unmeasured(other, "oom"), b=a[1:]), limit=empty).end == CANNOT_TELL
    for outcome in ("oom", "failed", "skipped", "unsupported", "interrupted"):
        found = gate(compared(*a, b=(good, unmeasured(other, outcome))), limit=50)
        assert (found.end, len(found.undecided)) == (CANNOT_TELL, 1), outcome


def test_blocks_four_times_as_long_never_pass_whatever_others_held_of_the_cpus() -> None:
    for share in (0.0, 0.3, 0.7, 0.95):
        b = measured(GEMM, steady(0.4), waited_share=share)
        found = gate(compared(measured(GEMM, steady(0.1)), b=(b,)))
        assert found.end == (FAIL if share < 0.5 else CANNOT_TELL), share


def test_a_side_that_waited_for_most_of_the_time_never_passes_however_fast_it_looks() -> None:
    b = measured(GEMM, steady(0.1), waited_share=0.95)
    found = gate(compared(measured(GEMM, steady(0.1)), b=(b,)))
    (reason,) = found.undecided
    assert reason == (
        "matmul mini cpu fp32 all: b: its threads waited 95 % of the time for CPUs that others had,"
        " and its rate is the clock's"
    )
    assert [step.partition(":")[0] for step in found.steps[1:]] == ["on the box of b"]


def test_a_baseline_whose_cpus_others_held_passes_by_its_speed_without_the_waiting() -> None:
    held = measured(GEMM, *three(0.1), waited_share=0.2)

    assert gate(compared(held, b=(measured(GEMM, *three(0.05)),))).end == PASS
    assert gate(compared(held, b=(measured(GEMM, *three(0.1)),))).end != PASS


def test_one_run_on_both_sides_is_repeated_by_one_command() -> None:
    held = make_run(measured(CONV, *three(0.1), waited_share=0.4))
    sides = side_of_runs("a.db", [held]), side_of_runs("b.db", [held])

    idle, *again = gate(compare_sides(*sides)).steps
    assert idle.startswith("other programs used the CPUs")
    assert [step.partition(" gputui")[0] for step in again] == ["on the box of a:"]


def test_one_row_in_many_fails_the_gate_only_if_it_is_sure_enough_for_all_of_them() -> None:
    """One launch at twice the time is significant by itself, and not among twelve (Holm)."""
    cases = [make_case(size=f"mini-{place}") for place in range(12)]
    alone = compared(measured(cases[0], steady(0.1)), b=(measured(cases[0], steady(0.2)),))
    among = compared(
        *(measured(case, steady(0.1)) for case in cases),
        b=tuple(measured(case, steady(0.2 if case is cases[0] else 0.1)) for case in cases),
    )

    assert gate(alone).end == FAIL
    assert gate(among).end == CANNOT_TELL


def test_rows_that_are_all_a_little_slower_fail_by_their_mean_before_any_of_them_does() -> None:
    cases = [make_case(size=f"mini-{place}", device_class="gpu") for place in range(6)]
    a = [measured(case, *three(0.1, 0.06)) for case in cases]
    for percent in range(8, 40):
        b = tuple(measured(case, *three(0.1 * (1 + percent / 100), 0.06)) for case in cases)
        found = gate(compared(*a, b=b))
        if found.slower:
            break
    assert found.end == FAIL
    assert [line.partition(":")[0] for line in found.slower] == ["average of 6 peak tests"]


# The command


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`a.db`, `slow.db` (twice the time) and one launch of the same, `one.db`."""
    made = tmp_path_factory.mktemp("options")
    for number, (name, scale, launches) in enumerate((("a", 1.0, 5), ("slow", 2.0, 5), ("one", 1.0, 1))):
        run_id = f"0194b5a0-0000-7000-8000-0000000000c{number}"
        run_dir = made / f"run-{name}"
        make_journal(run_dir, run_id=run_id, scale=scale, launches=launches, seed=number)
        store_run(made / f"{name}.db", read_journal(run_dir), read_telemetry(run_dir))
    return made


Ran = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ran(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ran:
    monkeypatch.chdir(place)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(["compare", *words])
        captured = capsys.readouterr()
        return int(left.value.code or 0), captured.out, captured.err

    return run


def test_the_gate_exits_1_for_what_is_surely_slower_and_5_or_as_requested_for_the_unsure(ran: Ran) -> None:
    status, out, err = ran("a.db", "slow.db", "--fail-if-slower", "20")
    assert (status, "slower" in out) == (EXIT_CASE_FAILED, True)
    assert "gate: fail:" in err
    assert "matmul mini cpu fp32 all: -50 % (" in err

    status, _, err = ran("a.db", "slow.db", "--fail-if-slower", "90%", "--baseline", "slow")
    assert status == EXIT_DONE
    assert err.startswith("gate: pass: a.db vs slow.db: no rate more than 90 % lower, in ")

    limit = ("a.db", "one.db", "--fail-if-slower", "20")
    status, _, err = ran(*limit)
    assert status == EXIT_UNDECIDED
    assert "gate: cannot tell" in err
    assert "matmul mini cpu fp32 all: " in err
    assert "gputui run --like " in err
    assert ran(*limit, "--unsure", "fail")[0] == EXIT_CASE_FAILED
    assert ran(*limit, "--unsure", "pass")[0] == EXIT_DONE
    assert ran("a.db", "slow.db", *limit[2:], "--unsure", "pass")[0] == EXIT_CASE_FAILED
    assert ran("a.db", "one.db", "--fail-if-unsure")[0] == EXIT_CASE_FAILED


def test_chosen_columns_are_shown_and_no_others_and_one_that_nothing_fills_says_why(ran: Ran) -> None:
    _, out, _ = ran("a.db", "slow.db", "--columns", "ratio,cost,energy,peak")

    heading = next(line for line in out.splitlines() if line.startswith("case"))
    assert heading.split("b vs a verdict")[1].strip() == "cost a, b"
    assert "/s" not in next(line for line in out.splitlines() if line.startswith("matmul"))
    assert "no energy: power is read from GPUs only" in out
    assert "no share of the peak: no peak is known for a CPU" in out


def test_a_gpu_whose_peak_is_unknown_is_not_taken_for_a_cpu() -> None:
    case = make_case("gemm", device_class="gpu")
    run = make_run(measured(case, steady(0.1), device_name="GPU of another maker"), machine=GPU_MACHINE)
    (row,) = compare_sides(side_of_runs("a", [run]), side_of_runs("b", [run])).rows
    share = PEAK.on_side(row.a)
    assert isinstance(share, Missing)
    assert "CPU" not in share.reason


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--columns", "rate", "--format", "csv"), "--columns"),
        (("--columns", "rate,speed"), "--columns"),
        (("--baseline", "b"), "--baseline"),
        (("--fail-if-slower", "nan"), "--fail-if-slower"),
        (("--fail-if-slower", "inf"), "inf is not in the range 0 to 99.9"),
        (("--unsure", "pass"), "--unsure"),
        (("--fail-if-slower", "20", "--unsure", "pass", "--fail-if-unsure"), "--fail-if-unsure"),
        (("-o", "a.pdf"), "a.pdf: unknown file type"),
        (("-o", "slow.db", "--format", "text"), "slow.db is a database and will not be overwritten"),
        (("-o", "slow.db", "--format", "html"), "slow.db is a database and will not be overwritten"),
        (("-o", "nowhere/out.txt"), "there is no directory nowhere"),
    ],
)
def test_what_would_silently_mean_nothing_or_replace_results_is_refused(
    ran: Ran, place: Path, words: tuple[str, ...], said: str
) -> None:
    before = (place / "slow.db").read_bytes()
    status, out, err = ran("a.db", "slow.db", *words)

    assert (status, out) == (EXIT_NOT_STORED if "nowhere/out.txt" in words else EXIT_USAGE, "")
    assert said in err
    assert (place / "slow.db").read_bytes() == before
    assert not (place / "a.pdf").exists()


def test_a_file_of_a_directory_that_cannot_be_read_is_named_and_the_others_are_compared(
    ran: Ran, place: Path, tmp_path: Path
) -> None:
    for name in ("a.db", "slow.db"):
        shutil.copy(place / name, tmp_path)
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"not a database" * 999)

    for words in ((), ("--json",), ("--by", "machine")):
        status, out, err = ran(str(tmp_path), *words)
        whole = ran(*(str(tmp_path / name) for name in ("a.db", "slow.db")), *words)
        assert (status, out) == whole[:2], words
        assert f"left out: {broken} is not a gputui result file" in err
    assert ran(str(tmp_path), str(broken))[0] == EXIT_USAGE
    (tmp_path / "slow.db").unlink()
    assert ran(str(tmp_path))[:2] == ran(str(tmp_path / "a.db"))[:2]
    (tmp_path / "a.db").unlink()
    assert ran(str(tmp_path))[0] == EXIT_USAGE


def test_the_ending_of_the_file_says_how_it_is_written_where_no_format_is_named(
    ran: Ran, place: Path
) -> None:
    for name, words in (("a.html", ()), ("a.txt", ()), ("b.csv", ("--format", "html"))):
        assert ran("a.db", "slow.db", *words, "-o", name) == (EXIT_DONE, "", f"wrote {name}\n")
    begins = {name: (place / name).read_text()[:15] for name in ("a.html", "a.txt", "b.csv")}
    assert begins["a.html"] == begins["b.csv"] == "<!DOCTYPE html>"
    assert begins["a.txt"] == "slow.db is 50 %"


def test_a_file_that_newer_runs_of_another_replace_is_named(tmp_path: Path) -> None:
    both = (journal_case(), journal_case(precision="amp"))
    for number, name in enumerate(("old", "new")):
        run_dir = tmp_path / name
        run_id = f"0194b5a0-0000-7000-8000-0000000000d{number}"
        make_journal(run_dir, run_id=run_id, cases=both, started_utc_us=STARTED_US + number * 10**9)
        store_run(tmp_path / f"{name}.db", read_journal(run_dir), ())
    files = [str(tmp_path / "new.db"), str(tmp_path / "old.db")]

    (warning,) = ask(files, by="precision").warnings

    assert warning.startswith(f"{files[1]} is not in it")
    assert f"gputui compare {files[1]} --by precision" in warning
    assert ask(files, by="precision", pool=True).warnings == ()
    assert ask(files[1:], by="precision").warnings == ask(files).warnings == ()


# Writing


def test_a_file_is_replaced_whole_and_keeps_its_mode_and_links(tmp_path: Path) -> None:
    target, link = tmp_path / "a.html", tmp_path / "link.html"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)

    write_output(link, "new\r\n")

    assert target.read_bytes() == b"new\r\n"
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o640
    assert len(list(tmp_path.iterdir())) == 2


def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")

    with pytest.raises(UnicodeEncodeError):
        write_output(target, "new \ud800")

    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    with pytest.raises(NotStored, match="is a directory"):
        write_output(tmp_path, "new")


# Energy


def test_energy_is_power_times_time_with_the_interval_of_the_launches() -> None:
    launches = [PoweredLaunch(w, 40, s, 4.0) for w, s in ((600.0, 0.001), (610.0, 0.00101), (590.0, 0.00102))]

    found = energy_per_unit(launches)

    assert isinstance(found, Energy)
    joules = [0.6, 610 * 0.00101, 590 * 0.00102]
    assert found.joules_per_unit == pytest.approx(stats.gmean(joules), rel=1e-12)
    logs = [math.log(j) for j in joules]
    ends = stats.t.interval(0.95, 2, loc=sum(logs) / 3, scale=stats.sem(logs))
    assert found.low == pytest.approx(math.exp(ends[0]), rel=1e-6)
    assert found.high == pytest.approx(math.exp(ends[1]), rel=1e-6)
    assert found.mean_power_w == pytest.approx(600.0)
    assert (found.launches, found.samples) == (3, 120)


def test_energy_takes_five_samples_in_a_launch_five_seconds_and_for_its_interval_three_launches() -> None:
    found = energy_per_unit([PoweredLaunch(500.0, 5, 0.002, 2.5)] * 2)
    assert isinstance(found, Energy)
    assert found.joules_per_unit == pytest.approx(1.0)
    assert (found.low, found.high) == (None, None)

    uncounted, short = PoweredLaunch(500.0, 4, 0.002, 60.0), [PoweredLaunch(500.0, 12, 0.002, 1.2)] * 4
    for launches, reason in (
        ([], "no power was sampled in its blocks"),
        ([uncounted], "at most 4 samples of power in a launch, 5 are needed"),
        (short, "power was sampled for 4.8 s of its blocks, 5 s are needed"),
        ([*short, uncounted], "power was sampled for 4.8 s of its blocks, 5 s are needed"),
    ):
        assert energy_per_unit(launches) == Missing(reason)
    assert isinstance(energy_per_unit([*short, short[0]]), Energy)


def test_energy_of_a_case_is_of_the_blocks_of_each_launch() -> None:
    """10 steps of 0.1 s in each block at 300 W: 30 J a step."""
    case = measured(GPU_GEMM, steady(0.1), steady(0.1))
    powers = tuple(LaunchPower(0, launch, 60, 300.0) for launch in (0, 1))

    found = energy_of(case, powers)

    assert isinstance(found, Energy)
    mean = 0.1 * (1 + 1e-3 * 0.25 / 6)
    assert found.joules_per_unit * GPU_GEMM.units_per_step == pytest.approx(300 * mean, rel=1e-9)
    assert [format_energy(0.374, "img"), format_energy(9.2e-13, "flop")] == ["374 mJ/img", "0.92 pJ/flop"]


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (measured(GEMM, steady(0.1)), "power is read from GPUs only"),
        (measured(GPU_GEMM, steady(0.1), device_name="NVIDIA H200 MIG 1g.18gb"), "slice"),
        (measured(GPU_GEMM, steady(0.1), device_name="AMD Instinct MI300X partition 1/8"), "slice"),
        (
            measured(
                replace(GPU_GEMM, work=replace(GPU_GEMM.work, workload="ddp", parameters=(("ranks", 2),))),
                steady(0.1),
            ),
            "several GPUs",
        ),
    ],
    ids=["cpu", "mig", "partition", "ranks"],
)
def test_there_is_no_energy_where_the_power_is_not_that_of_the_case(case: CaseResult, reason: str) -> None:
    found = energy_of(case, (LaunchPower(0, 0, 60, 300.0),))

    assert isinstance(found, Missing)
    assert reason in found.reason


# Expected performance, and impossible results


def on_h200(per_s: float) -> CaseResult:
    case = replace(make_case("membw", size="base", device_class="gpu"), unit="B", bytes_per_step=2**31)
    case = replace(case, units_per_step=float(2**31), flops_per_step=None)
    return measured(case, steady(2**31 / per_s))


def test_each_side_says_what_share_of_its_kind_it_reaches_and_more_than_the_peak_decides_nothing() -> None:
    usual, half, impossible = (
        side_of_runs("x", [make_run(on_h200(per_s), machine=GPU_MACHINE)])
        for per_s in (4.28e12, 2.62e12, 9.6e12)
    )

    assert list(performance_lines(compare_sides(usual, half))) == [
        "a NO VERDICT: memory copy 4.28 TB/s, 100 % of the one public figure, 4.30",
        "b NO VERDICT: memory copy 2.62 TB/s, 61 % of the one public figure, 4.30",
    ]
    comparison = compare_sides(usual, impossible)
    lines = list(remarks(comparison, Naming(comparison, "")))
    error = "b memory copy: 200 % of the data sheet's peak is a measurement error"
    assert any(error in line for line in lines)
    assert "above the physical limit" in list(performance_lines(comparison))[1]
    (row,), (group,) = comparison.rows, comparison.groups
    assert row.verdict.word == "inconclusive"
    assert row.verdict.reason == "b is above the physical peak: a measurement error"
    assert (group.common, group.rows) == (0, 1)
    assert list(performance_lines(slower_by(1.2))) == [], "nothing is known of it"


def test_a_table_of_chosen_columns_keeps_name_and_verdict() -> None:
    comparison = slower_by(1.2)

    table = row_table(comparison, Naming(comparison, ""), [BLOCKS])

    assert table.headings == ("case (mini gpu amp)", "verdict", "n")
    assert table.rows == (("matmul", "slower", "18/18"),)


def test_a_table_of_three_boxes_names_the_fastest_and_has_the_costs_where_there_is_room(
    tmp_path: Path,
) -> None:
    files = [tmp_path / f"{name}.db" for name in "abc"]
    for number, (file, milliseconds) in enumerate(zip(files, (100.0, 160.0, 40.0), strict=True), 1):
        store(file, number, gpt_ms=milliseconds)
    last = []
    asked = ask([str(file) for file in files])
    answer = asked.compared()
    for width in (120, 70, 56):
        text = comparison_text(asked, answer, "text", width=width)
        last.append(
            [line.split() for line in text.splitlines() if line.startswith(("case ", "GPT training "))]
        )
    assert last[0][0][-5:] == ["fastest", "cost", "b", "cost", "c"]
    assert last[0][1][-4:] == ["c", "1.60x", "-60", "%"]
    assert last[1][0][-1] == "fastest"
    assert last[1][1][-1] == "c"
    assert "fastest" not in last[2][0]
