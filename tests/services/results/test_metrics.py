"""Results other than speed: from a journal through a result file to the output."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any  # JSON

import pytest
from journals import RUN_ID, journal_lines, make_case, write_lines
from rich.cells import cell_len

import gputui
from gputui.cli import main
from gputui.model.absent import Missing
from gputui.model.journal import CaseEnd, Figure, Line
from gputui.model.units import format_metric
from gputui.services.results.metrics import metrics_of
from gputui.store.journal_reader import read_journal
from gputui.store.reading import open_result
from gputui.store.writing import store_run
from gputui.worker import FIGURE_SUFFIXES
from gputui.worker.workloads import WORKLOADS

P99 = Figure(0, 0, "p99_s", "p99 latency", "s", "less", "median", 0.0123, 500)
ERRORS = Figure(0, 0, "errors_count", "bit errors", "count", "less", "sum", 0.0, 40)
PEAK = Figure(0, 0, "peak_bytes", "peak memory", "B", "less", "max", Missing("not told here"), 0)
CASE = make_case("gemm")


def with_figures(*figures: Figure, launches: int = 1) -> list[Line]:
    """The lines of a run of one case, with the metrics before the end of their launch."""
    lines: list[Line] = []
    for line in journal_lines(cases=(CASE,), skipped=(), launches=launches):
        if isinstance(line, CaseEnd):
            lines += [f for f in figures if f.launch_id == line.launch_id]
        lines.append(line)
    return lines


def stored(tmp_path: Path, lines: list[Line], name: str = "a.db") -> Path:
    db = tmp_path / name
    store_run(db, read_journal(write_lines(tmp_path / f"{name}-run", lines)), ())
    return db


def figures_in(db: Path) -> tuple[Figure, ...]:
    with open_result(db) as file:
        return tuple(f for case in file.run(RUN_ID).cases for m in case.measurements for f in m.figures)


def test_figures_come_back_from_a_file_as_they_were_unless_their_case_did_not_end(tmp_path: Path) -> None:
    figures = (P99, PEAK, ERRORS)
    db = stored(tmp_path, with_figures(*figures))
    assert figures_in(db) == figures, "in the order they were reported"
    cut: list[Line] = [line for line in with_figures(P99) if not isinstance(line, CaseEnd)]
    assert figures_in(stored(tmp_path, cut, "cut.db")) == ()
    frame = gputui.load(db).figures
    assert list(frame["key"]) == ["p99_s", "peak_bytes", "errors_count"]
    assert frame["value"].tolist()[0] == 0.0123
    assert frame["value"].isna().tolist() == [False, True, False]
    assert frame["reason"].tolist()[1] == "not told here"


def test_launches_are_combined_as_the_figure_says_without_those_that_have_no_value(tmp_path: Path) -> None:
    combined = {"median": 2.0, "sum": 13.0, "max": 10.0, "min": 1.0}
    values: tuple[float | Missing, ...] = (10.0, 1.0, 2.0, Missing("too few requests"))
    figures = [
        replace(P99, launch_id=launch, key=f"{combine}_s", combine=combine, value=value, observations=n)
        for launch, (value, n) in enumerate(zip(values, (500, 500, 500, 0), strict=True))
        for combine in combined
    ]
    with open_result(stored(tmp_path, with_figures(*figures, launches=4))) as file:
        found = metrics_of(file.run(RUN_ID).cases[0])
    assert {figure.key: figure.value for figure in found} == {f"{key}_s": v for key, v in combined.items()}
    ends = {(figure.low, figure.high, figure.observations, figure.launches) for figure in found}
    assert ends == {(1.0, 10.0, 1500, 3)}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (P99, "Figure left out: said a second time"),
        (replace(P99, launch_id=7, key="x_s"), "Figure left out: case 0 does not belong to launch 7"),
        (replace(P99, case_id=9), "Figure left out: case 9 was never planned"),
        (replace(P99, key="y_s", value=-1.0), "Figure: value is -1.0"),
        (replace(P99, key="y_s", better="prettier"), "Figure: better is 'prettier'"),
        (replace(P99, key="y_s", combine="guess"), "Figure: combine is 'guess'"),
    ],
)
def test_a_figure_that_cannot_be_is_left_out_of_the_journal_and_named(
    tmp_path: Path, line: Figure, why: str
) -> None:
    contents = read_journal(write_lines(tmp_path / "run", [*with_figures(P99), line]))
    assert contents.of(Figure) == (P99,)
    assert any(why in damage for damage in contents.damage)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `a.db` has three metrics in two launches, `b.db` one in one."""
    made = tmp_path_factory.mktemp("metrics")
    second = tuple(replace(f, launch_id=1) for f in (P99, PEAK, replace(ERRORS, value=2.0)))
    stored(made, with_figures(P99, PEAK, ERRORS, *second, launches=2))
    stored(made, with_figures(replace(P99, value=0.05)), "b.db")
    return made


@pytest.fixture
def output_of(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """What a command prints on 80 columns."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("COLUMNS", "80")

    def command(*words: str) -> str:
        with pytest.raises(SystemExit) as left:
            main(words)
        assert left.value.code == 0
        printed = capsys.readouterr().out
        assert max(map(cell_len, printed.split("\n"))) <= 80 or "{" in printed
        return printed

    return command


def test_show_lists_the_figures_below_the_rates(output_of: Callable[..., str]) -> None:
    table = output_of("show", "latest", "a.db").partition("range of launches")[2]
    rows = [" ".join(line.split()) for line in table.strip().split("\n")[:4]]
    assert rows == [
        "matmul mini cpu fp32 all cores",
        "p99 latency 12.3 ms 12.3 ms, n 1000 in 2 launches",
        "peak memory — not told here",
        "bit errors 2 0 to 2, n 80 in 2 launches",
    ]


def test_json_holds_the_figures_of_a_case_and_why_one_is_absent(output_of: Callable[..., str]) -> None:
    figures: list[dict[str, Any]] = json.loads(output_of("show", "latest", "a.db", "--json"))["cases"][0][
        "figures"
    ]
    assert [f["key"] for f in figures] == ["p99_s", "peak_bytes", "errors_count"]
    assert figures[1]["value"] == {"missing": "not told here"}
    assert figures[2] == {
        "key": "errors_count", "title": "bit errors", "unit": "count", "better": "less", "combine": "sum",
        "value": 2.0, "low": 0.0, "high": 2.0, "observations": 80, "launches": 2,
    }  # fmt: skip
    page = (Path(__file__).parents[3] / "docs" / "json.md").read_text()
    (message,) = re.findall(r"^- `figures`: .*$", page, re.MULTILINE)
    assert set(figures[0]) <= set(re.findall(r"`(\w+)`", message))


def test_compare_lists_figures_side_by_side_with_the_reason_where_none_is_judged(
    output_of: Callable[..., str],
) -> None:
    table = output_of("compare", "--verbose", "a.db", "b.db").partition("\nfigure ")[2]
    assert re.search(r"^ +p99 latency +12.3 ms +50.0 ms +— needs 3 launches$", table, re.MULTILINE)
    assert re.search(r"^ +bit errors +2 +— +— not on b$", table, re.MULTILINE)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0123, "s", "12.3 ms"),
        (3 * 2**30, "B", "3.00 GiB"),
        (12.5e9, "B/s", "12.5 GB/s"),
        (1234.0, "1/s", "1.23k/s"),
        (0.125, "share", "12 %"),
        (0.981, "ratio", "0.98x"),
        (0.0, "count", "0"),
        (12.5, "count", "12.5"),
    ],
)
def test_a_figure_is_written_in_its_unit(value: float, unit: str, text: str) -> None:
    assert format_metric(value, unit) == text


@pytest.mark.parametrize("workload", [w for w in WORKLOADS if w.figures], ids=lambda w: w.name)
def test_a_workload_declares_each_figure_once_and_its_unit_in_the_key(workload: Any) -> None:
    keys = [figure.key for figure in workload.figures]
    assert len(keys) == len(set(keys))
    for figure in workload.figures:
        assert figure.key.endswith(FIGURE_SUFFIXES[figure.unit])
        assert len(figure.title) <= 40
        assert figure.better in {"less", "more", "neither"}
        assert figure.combine in {"median", "sum", "max", "min"}
