"""`gputui advise`: arguments and printed answers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import printed, printed_json
from journals import CPU_MACHINE, GPU_MACHINE, journal_lines, write_lines
from rich.cells import cell_len

from gputui.model.journal import Price
from gputui.model.plan import Case, Variant
from gputui.services.profiles.planner import case_of
from gputui.store.journal_reader import read_journal
from gputui.store.writing import store_run
from gputui.worker.workloads import workload_named

PAGE = Path(__file__).parents[2] / "docs" / "json.md"
TRAIN, SERVE = "50M tokens train", "1M requests"
CLOUD = Price(3.59, 2.0, "on-demand", "runpod", "2x H200", "EU-RO-1", "2026-07-01")


def real(workload: str, device: str, size: str) -> Case:
    threads = "all" if device == "cpu" else "host"
    return case_of(workload_named(workload), size, Variant(device, "fp32", "eager", threads))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CPU box without a price, and a GPU box with a list price; three launches of training and serving."""
    place = tmp_path_factory.mktemp("advise")
    for number, (name, device, machine, price, scale) in enumerate(
        (("cpu", "cpu", CPU_MACHINE, None, 10.0), ("gpu", "gpu", GPU_MACHINE, CLOUD, 0.1))
    ):
        cases = [real("gpt_train", device, "mini"), real("infer_rps", device, "mini-text")]
        run_id = f"0194b5a0-0000-7000-8000-0000bbbb000{number}"
        lines = journal_lines(
            run_id=run_id, cases=cases, skipped=(), machine=machine, price=price, scale=scale, launches=3
        )
        store_run(place / f"{name}.db", read_journal(write_lines(place / run_id, lines)), ())
    return place


@pytest.fixture
def there(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory is that of the files, so that names are short."""
    monkeypatch.chdir(place)
    return place


@pytest.mark.usefixtures("there")
def test_of_several_jobs_those_with_rows_are_answered_and_the_others_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, out, err = printed(capsys, "advise", "cpu.db", "--job", "1M img train", "--job", TRAIN)
    assert status == 2
    assert TRAIN in out
    assert out.startswith(f"{TRAIN}. cpu.db cpu, the only one measured: ")
    assert err.startswith("gputui: no box has measured conv_train")
    assert "measure it: gputui run" in err


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.usefixtures("there")
def test_every_line_fits_and_no_cell_is_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    bought = ("--buy", "gpu.db=60000", "--own", "200")
    status, out, _ = printed(
        capsys, "advise", "cpu.db", "gpu.db", "--job", TRAIN, "--job", SERVE, *bought, "-v"
    )

    assert status == 0
    assert "…" not in out
    assert max(map(cell_len, out.splitlines())) <= int(columns)


@pytest.mark.usefixtures("there")
def test_training_and_serving_are_answered_apart_with_what_was_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    status, out, err = printed(capsys, "advise", "cpu.db", "gpu.db", "--job", TRAIN, "--job", SERVE, "-v")

    assert (status, err) == (0, "")
    training, serving = out.split(SERVE)
    assert training.startswith(f"{TRAIN}. Fastest: gpu.db gpu, ")
    assert "gpt_train mini (layers 6, width 384, context 256, batch 2)" in training
    assert "a ranking of boxes, not your time" in training
    assert re.search(
        r"gpu \$3\.59/h \(list price of 2026-07-01, \d+ days old: runpod 2x H200 EU-RO-1 on-demand\)",
        " ".join(training.split()),
    )
    assert "cpu no price: --price cpu.db=USD_PER_H gives its cost" in training
    assert "assumed: time and cost include 10 min of setup on every box" in training
    assert "infer_rps mini-text" in serving


@pytest.mark.usefixtures("there")
def test_a_job_is_understood_as_people_type_it(capsys: pytest.CaptureFixture[str]) -> None:
    jobs = ("--job", "2e9 tokens", "--job", "2e9 tokens a month")
    once, monthly = printed_json(capsys, "advise", "cpu.db", "gpu.db", *jobs)["answers"]

    assert [one["job"]["text"] for one in (once, monthly)] == ["2B tok train", "2B tok train a month"]
    assert {offer["box"] for offer in once["offers"]} == {"cpu.db", "gpu.db"}
    assert [" a month" in one["headline"] for one in (once, monthly)] == [False, True]


@pytest.mark.usefixtures("there")
def test_files_without_a_job_are_answered_for_an_example_that_is_named_and_a_job_alone_is_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, _, err = printed(capsys, "advise", "--job", "2e9 tokens")
    assert (status, err.splitlines()[1]) == (2, "  gputui advise a.db b.db --job '2e9 tokens'")
    status, out, err = printed(capsys, "advise", "cpu.db", "gpu.db")

    assert status == 0
    assert err == (
        "no job is stated; answered for '50M tokens train' as an example."
        " Yours: gputui advise cpu.db gpu.db --job '...'\n"
    )
    assert out == printed(capsys, "advise", "cpu.db", "gpu.db", "--job", "50M tokens train")[1]


@pytest.mark.usefixtures("there")
def test_prices_are_of_the_file_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    prices = ("--price", "cpu.db=0.36", "--instance", "gpu.db=g4ad.8xlarge")
    words = ("cpu.db", "gpu.db", "--job", TRAIN, *prices)

    offers = {offer["box"]: offer for offer in printed_json(capsys, "advise", *words)["answers"][0]["offers"]}

    assert offers["cpu.db"]["price"]["usd_per_hour"] == 0.36
    assert offers["cpu.db"]["price"]["kind"] == "stated"
    listed = offers["gpu.db"]["price"]
    assert (listed["provider"], listed["region"], listed["kind"]) == ("aws", "us-east-1", "on-demand Linux")
    assert listed["date"]


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("gpu.db", "--job", "50M kittens train"), "is not understood"),
        (("gpu.db", "--job", TRAIN, "--price", "free"), "--price free: is not an amount of money"),
        (("gpu.db", "--job", TRAIN, "--price", "x.db=3"), "x.db is none of the files"),
        (("gpu.db", "--job", TRAIN, "--buy", "nan"), "--buy nan: is not an amount of money"),
        (("gpu.db", "--job", TRAIN, "--own", "nan"), "--own: nan is not in the range 0 to 1000000000"),
        (("gpu.db", "--job", TRAIN, "--instance", "g9.huge"), "no such instance type"),
        (("gpu.db", "--job", TRAIN, "--workload", ":base"), "no workload is named"),
        (("gpu.db", "--job", "1M img train"), "no box has measured conv_train"),
        (("gone.db", "--job", TRAIN), "gone.db"),
    ],
)
def test_wrong_input_is_reported_with_its_value(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    status, out, err = printed(capsys, "advise", *words)

    assert (status, out) == (2, "")
    assert message in err


def keys_of(value: object) -> set[str]:
    """All keys in a piece of JSON, except those of a workload's parameters."""
    if isinstance(value, dict):
        return set(value).union(*(keys_of(v) for k, v in value.items() if k != "parameters"))
    return set().union(*map(keys_of, value)) if isinstance(value, list) else set()


@pytest.mark.usefixtures("there")
def test_every_key_of_the_json_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("cpu.db", "gpu.db", "--job", TRAIN, "--job", SERVE, "--buy", "9000")

    found = printed_json(capsys, "advise", *words)

    assert found["schema"] == 1
    page = PAGE.read_text()
    assert {key for key in keys_of(found["answers"]) if f"`{key}`" not in page} == set()
