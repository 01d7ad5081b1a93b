"""The driver of the first hour with a GPU: each step is kept whatever the next one does."""

from __future__ import annotations

import math
import sys
import tarfile
import time
from pathlib import Path

import day
import pytest
from day import Day, Part, Step

NO_GPU = "torch sees no GPU"


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(day, "_why_no_gpu", lambda: NO_GPU)


def step(name: str, program: str, **options: object) -> Step:
    words = {"limit_s": 60, "needs_gpu": False, **options}
    return Step(name, (sys.executable, "-S", "-c", program), **words)  # type: ignore[arg-type]


def part(*steps: Step) -> Part:
    return Part("box", "", 0, steps)


def one_day(place: Path, deadline_s: float = math.inf) -> Day:
    return Day(place / "out", place / "work", is_rehearsal=False, deadline_s=deadline_s)


def statuses(found: Day) -> dict[str, object]:
    return {key.partition("/")[2]: one["status"] for key, one in found.steps.items()}


def test_a_step_that_fails_stops_nothing_and_is_done_again_next_time(tmp_path: Path) -> None:
    first = part(step("a", "print('found')"), step("b", "raise SystemExit(7)"), step("c", "print('c')"))
    one = one_day(tmp_path)
    one.do(first, again=False)
    assert statuses(one) == {"a": 0, "b": 7, "c": 0}
    later = one_day(tmp_path)
    later.do(part(step("a", "raise SystemExit(1)"), step("b", "print('b')")), again=False)
    assert statuses(later) == {"a": 0, "b": 0, "c": 0}
    report = (tmp_path / "out/report.txt").read_text()
    assert "box/a: done" in report
    assert "== box/a\nfound" in report


def test_a_step_that_takes_too_long_is_stopped_and_what_it_wrote_is_kept(tmp_path: Path) -> None:
    slow = step("slow", "import time; print('begun', flush=True); time.sleep(60)", limit_s=0.5)
    one = one_day(tmp_path)
    one.do(part(slow, step("next", "")), again=False)
    assert statuses(one) == {"slow": -15, "next": 0}
    report = (tmp_path / "out/report.txt").read_text()
    assert "box/slow: stopped after 0 s" in report
    assert "begun" in report


def test_steps_without_a_gpu_or_without_time_are_named_with_the_reason(tmp_path: Path) -> None:
    one = one_day(tmp_path, deadline_s=time.monotonic() + 1)
    one.do(part(step("gpu", "", needs_gpu=True), step("late", "")), again=False)
    assert statuses(one) == {"gpu": None, "late": None}
    report = (tmp_path / "out/report.txt").read_text()
    assert f"box/gpu: skipped: {NO_GPU}" in report
    assert "box/late: not begun: no time was left" in report


def test_a_run_gets_the_time_that_is_left(tmp_path: Path) -> None:
    run = step("run", "import sys; print(sys.argv[1:])", budget_s=390)
    one = one_day(tmp_path, deadline_s=time.monotonic() + day.STOPS_S + day.AFTER_A_RUN_S + 200.5)
    one.do(part(run), again=False)
    assert "['--budget', '200']" in (tmp_path / "out/report.txt").read_text()


def test_what_is_too_large_stays_behind_by_name_and_another_box_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = one_day(tmp_path)
    (one.work / "large.db").write_bytes(bytes(range(256)) * 4096)
    (one.work / "a-traces").mkdir()
    (one.work / "a-traces/one.json.gz").write_bytes(b"x")
    monkeypatch.setattr(day, "MOST_FOUND", 5000)
    one.do(part(step("a", "print('found')")), again=False)
    with tarfile.open(tmp_path / "out/found.tar.gz") as packed:
        assert sorted(packed.getnames()) == ["box/a.txt", "steps.json"]
    with tarfile.open(tmp_path / "out/traces-a.tar.gz") as packed:
        assert packed.getnames() == ["a-traces/one.json.gz"]
    assert "found.tar.gz lacks large.db: too large" in (tmp_path / "out/report.txt").read_text()
    elsewhere = Day(tmp_path / "out", tmp_path / "new", is_rehearsal=False, deadline_s=math.inf)
    assert statuses(elsewhere) == {"a": 0}


def test_every_command_names_a_program_that_is_there() -> None:
    for is_rehearsal in (False, True):
        for one in day.parts_of(Path("work"), is_rehearsal):
            for words in (step.command for step in one.steps):
                files = [word for word in words if word.startswith("tests/")]
                assert all((day.ROOT / file).is_file() for file in files), files
