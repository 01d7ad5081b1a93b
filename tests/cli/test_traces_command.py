"""Traces on the command line: stored, shown, compared, and refused."""

from __future__ import annotations

import html
import json
from pathlib import Path

import pytest
from chrome_traces import write_training
from command_line import gputui_here

from gputui.errors import EXIT_DONE, EXIT_USAGE


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return (
        write_training(tmp_path / "before.json.gz", steps=4, gemm_us=100, wait_us=40),
        write_training(tmp_path / "after.json", steps=4, gemm_us=100),
    )


def test_two_traces_are_compared_as_they_are_and_stored_shown_and_compared_from_a_result_file(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    done = gputui_here("compare", *pair)
    assert done.returncode == EXIT_DONE, done.stderr
    assert done.stdout.startswith(
        "b's steps take 40.0 µs less than a's (160 vs 200 µs, 4 and 4 steps): in a the\nGPU waits for data"
    )
    assert "a  before: NVIDIA A100, 4 steps, 200 µs each, busy 60 %" in done.stdout
    db = tmp_path / "t.db"
    stored = gputui_here("import", *pair, "--db", db)
    assert stored.returncode == EXIT_DONE, stored.stderr
    assert "before: NVIDIA A100, 4 steps, 200 µs each" in stored.stdout
    shown = " ".join(gputui_here("show", "before", db).stdout.split())
    assert shown.startswith("A step takes 200 µs: 50 % is matmul, and for 20 % the GPU waits for data. ")
    assert "The GPU waits for data: 40.0 µs, 20 %" in shown
    assert "waits for data" not in gputui_here("show", "after", db).stdout
    assert json.loads(gputui_here("show", "before", db, "--json").stdout)["profile"] == "trace"
    compared = gputui_here("compare", f"{db}@before", f"{db}@after", "--format", "json")
    plain = json.loads(compared.stdout)
    assert (plain["step_a_ns"], plain["step_b_ns"]) == (200_000, 160_000)


def test_a_difference_is_written_as_a_page_and_as_markdown(pair: tuple[Path, Path], tmp_path: Path) -> None:
    names = [tmp_path / "<b>a.json.gz", tmp_path / "b|c.json"]
    for path, name in zip(pair, names, strict=True):
        path.rename(name)
    answer = "b's steps take 40.0 µs less than a's (160 vs 200 µs, 4 and 4 steps)"
    for ending in ("html", "md"):
        report = tmp_path / f"r.{ending}"
        assert gputui_here("compare", *names, "-o", report).returncode == EXIT_DONE
        text = html.unescape(report.read_text(encoding="utf-8")).replace("\xa0", " ")  # before units
        assert answer in text
        assert "ampere_sgemm_128x64_tn" in text
        assert text.count("waiting for the loader") >= 2
    page = (tmp_path / "r.html").read_text()
    assert "<b>a<" not in page
    assert "default-src 'none'" in page
    assert page.count('<svg class="bars"') >= 1
    printed = gputui_here("compare", *names, "--format", "markdown").stdout
    assert printed == (tmp_path / "r.md").read_text(encoding="utf-8")
    assert r"b\|c" in printed


def test_several_traces_a_side_follow_the_letter_of_their_side(tmp_path: Path) -> None:
    a = [write_training(tmp_path / f"a{k}.json", gemm_us=100.0 + k) for k in range(3)]
    b = [write_training(tmp_path / f"b{k}.json", gemm_us=200.0 + k) for k in range(3)]
    done = gputui_here("compare", "--a", *a, "--b", *b)
    assert done.returncode == EXIT_DONE, done.stderr
    assert "Over 3 and 3 traces: b does -" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("compare", "before.json.gz"), "1 trace: two are compared"),
        (("compare", "before.json.gz", "none.json"), "none.json cannot be read: No such file"),
        (("compare", "before.json.gz", "after.json", "--by", "precision"), "traces: go with"),
        (("compare", "before.json.gz", "after.json", "--format", "csv"), "traces have no rates to list"),
        (("compare", "--a", "before.json.gz"), "--b: no trace is named for this side"),
        (("compare", "before.json.gz", "--b", "after.json"), "is it side a or side b"),
        (("import", "before.json.gz", "--window", "9:8", "--db", "t.db"), "holds nothing of this trace"),
        (("import", "before.json.gz", "--step", "nope", "--db", "t.db"), "no range of that name"),
        (("import", "nothing.json", "--db", "t.db"), "cannot be read"),
    ],
)
def test_wrong_traces_and_options_are_refused_in_one_line(
    pair: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = gputui_here(*words)
    assert done.returncode == EXIT_USAGE
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2
    assert not (tmp_path / "t.db").exists()
