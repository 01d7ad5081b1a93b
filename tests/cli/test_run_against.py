"""Launches added until rows are told from those of a stored run: real runs of `spin`, real checks."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Terminal, gputui, gputui_here, only_run_dir, wait_until
from journals import journal_lines, make_case, write_lines

from gputui.model.journal import JOURNAL_NAME, Event, LaunchesLeftOut
from gputui.model.plan import Variant
from gputui.services.compare.resolve import LOOKS_NAME, Looks
from gputui.services.profiles.planner import case_of
from gputui.store.journal_reader import read_journal
from gputui.store.reading import open_result
from gputui.store.writing import store_run
from gputui.worker.workloads import workload_named

SPIN = case_of(workload_named("spin"), "mini", Variant("cpu", "fp32", "eager", "1"))
"""Done by another box, in the file below, in 0.3 s a step: far slower than any CPU hashes 8 MiB."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three launches of `spin` on another box."""
    place = tmp_path_factory.mktemp("base")
    lines = journal_lines(
        label="base", cases=[SPIN], skipped=(), launches=3, scale=20, profile="spin", seed=7
    )
    store_run(place / "base.db", read_journal(write_lines(place / "run", lines)), ())
    return place / "base.db"


@pytest.mark.slow
@pytest.mark.alone
def test_a_large_difference_is_decided_at_the_first_look_and_ends_the_run(base: Path, tmp_path: Path) -> None:
    done = gputui("run", "--against", base, "--resolve", "20", "--db", tmp_path / "mine.db", "--blocks", "5")

    assert done.returncode == 0, done.stderr
    progress = done.stderr.splitlines()
    before = next(line for line in progress if line.startswith("1 row to ±20 %"))
    assert before == (
        "1 row to ±20 %: at most 3 checks, after 3, 6 and 12 launches per case, with 99 % intervals"
    )
    assert progress.index(before) < next(n for n, line in enumerate(progress) if " launch 1 " in line)
    assert any(line.endswith("check 1 of 3, after 3 launches: 1 of 1 row decided") for line in progress), (
        done.stderr
    )
    assert not any(" pass 4 of " in line for line in progress)

    answer = done.stdout.strip().splitlines()
    assert answer[0].startswith("Against ")
    assert "to ±20 %: 1 of 1 row decided in 1 of 3 checks." in " ".join(answer[:2])
    (row,) = [line for line in answer if line.startswith("spin mini cpu fp32 1 thread")]
    assert "slower" in row or "faster" in row or "as fast" in row
    assert row.endswith(", 3 launches")
    (command,) = re.findall(r"^(?:next: |      )gputui (compare .*)$", done.stdout, re.MULTILINE)
    compared = gputui(*shlex.split(command, comments=True))
    assert compared.returncode == 0, compared.stderr
    with open_result(tmp_path / "mine.db") as file:
        (summary,) = file.summaries()
        (case,) = file.run(summary.run_id).cases
        messages = [event.message for event in file.events(summary.run_id)]
    assert len(case.measurements) == 3
    assert "check 1 of 3, after 3 launches: 1 of 1 row decided" in messages


@pytest.mark.slow
@pytest.mark.alone
def test_the_looks_are_in_the_json_of_the_run(base: Path, tmp_path: Path) -> None:
    words = ("--resolve", "20", "--launches", "3", "--blocks", "5", "--json")
    done = gputui("run", "--against", base, *words, "--db", tmp_path / "mine.db")

    assert done.returncode == 0, done.stderr
    (looks,) = json.loads(done.stdout)["looks"]
    assert (looks["percent"], looks["looks"], looks["made"]) == (20.0, [3], 1)
    assert [(row["launches"], row["look"]) for row in looks["rows"]] == [(3, 1)]


@pytest.mark.slow
def test_a_run_that_is_stopped_keeps_its_launches_and_names_the_comparison(
    base: Path, tmp_path: Path
) -> None:
    run = Terminal(
        "run", "--against", base, "--resolve", "20", "--db", tmp_path / "mine.db", "--blocks", "5", "--yes"
    )
    wait_until(lambda: _launches_ended() >= 1, "no launch ends")
    run.type(b"\x03")

    assert run.end() == 130
    assert b"keeping what is finished" in run.seen
    assert b"gputui compare" in run.seen
    with open_result(tmp_path / "mine.db") as file:
        (case,) = file.run(file.summaries()[0].run_id).cases
    assert case.outcome == "ok"


def _launches_ended() -> int:
    try:
        return (only_run_dir() / JOURNAL_NAME).read_text().count('"LaunchEnd"')
    except (OSError, ValueError):
        return 0


@pytest.mark.slow
def test_a_look_that_fails_is_reported_and_the_run_goes_on_to_its_end(base: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    copy.write_bytes(base.read_bytes())
    run = Terminal(
        "run", "--against", copy, "--resolve", "20", "--launches", "4", "--blocks", "5", "--yes",
        "--db", tmp_path / "mine.db",
    )  # fmt: skip
    wait_until(lambda: _launches_ended() >= 1, "no launch ends")
    copy.unlink()

    assert run.end() == 0
    contents = read_journal(only_run_dir())
    warnings = [event.message for event in contents.of(Event) if event.level == "warning"]
    assert len(warnings) == 1
    assert warnings[0].startswith("check after 4 launches failed, every case goes on: ")
    assert contents.of(LaunchesLeftOut) == ()
    assert Looks.read(only_run_dir()) is None
    assert not (only_run_dir() / LOOKS_NAME).exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--resolve", "0"), "--resolve: '0' is not a number from 0.1 to 50"),
        (("--resolve", "nan"), "--resolve: 'nan' is not a number from 0.1 to 50"),
        (("--resolve", "abc"), "--resolve: 'abc' is not a number"),
        ((), "how small a difference should it find?"),
        (("--resolve", "5", "--like", "x.db"), "--like x.db with --against"),
        (("quick", "--resolve", "5"), "profile quick with --against"),
        (("--resolve", "5", "--only", "gemm"), "--only gemm: not in run 0000c0de"),
    ],
)
def test_what_does_not_fit_is_one_error_before_anything_is_measured(
    base: Path, tmp_path: Path, words: tuple[str, ...], expected: str
) -> None:
    done = gputui_here("run", *words, "--against", base, "--db", tmp_path / "mine.db")

    assert done.returncode == 2
    assert expected in done.stderr
    assert [line.startswith("gputui: ") for line in done.stderr.splitlines()].count(True) == 1
    assert not (tmp_path / "mine.db").exists()


def test_a_missing_base_or_none_is_an_error(tmp_path: Path) -> None:
    missing = gputui_here("run", "--against", tmp_path / "no.db", "--resolve", "5")
    assert missing.returncode == 2
    assert "no.db" in missing.stderr
    nothing = gputui_here("run", "--resolve", "5")
    assert nothing.returncode == 2
    assert "--resolve 5: no run to measure against" in nothing.stderr


def test_a_base_without_a_case_that_can_run_here_is_an_error(tmp_path: Path) -> None:
    on_gpu = make_case("membw", device_class="gpu")
    lines = journal_lines(cases=[replace(on_gpu, unit="B")], skipped=(), launches=3)
    store_run(tmp_path / "gpu.db", read_journal(write_lines(tmp_path / "run", lines)), ())

    done = gputui_here(
        "run", "--against", tmp_path / "gpu.db", "--resolve", "5", "--db", tmp_path / "mine.db"
    )

    assert done.returncode in (2, 3)
    assert done.stderr.count("gputui: ") == 1
    assert not (tmp_path / "mine.db").exists()
