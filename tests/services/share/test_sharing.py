"""What a shared file holds: planted texts in every column come out in none of its forms."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import duckdb
import numpy as np
import pytest
import resvg_py
from journals import GPU_MACHINE
from quick_runs import box
from stored_loads import Server, store_loads
from stored_runs import run_id_of, store

from gputui.cli import main
from gputui.cli.serve_bench import command as serve_bench
from gputui.errors import GputuiError, NotStored
from gputui.model.machine import Identity
from gputui.model.result import Run, RunSummary
from gputui.services.results.selectors import select_all
from gputui.services.serving.profiles import limits_of
from gputui.services.share import copying, report, vocabulary
from gputui.services.share.copying import CELLS, KNOWN, Replacements, shared_copy
from gputui.services.share.sharing import CARDS, FORMS, share
from gputui.store import schema
from gputui.store.reading import open_result
from gputui.store.schema import RUN_TABLES
from gputui.worker.serving.load import NEEDED
from gputui.worker.workloads import burn

PLANTED = (
    "acme-llama-secret",
    "/home/bob/acme/train.py",
    "gpu17.acme.internal",
    "hf_aBcDeFgHiJkLmNoP",
    "bob@acme.example",
    "NVIDIA H100 acmeword",
    "2.11.0+acmebuild",
    "aten::mm acmeword",
    "step:acme_train",
    "C:\\Users\\bob\\acme",
)
WORDS = ("acme", "bob", "hf_aBc", "gpu17")
COLUMNS = [(t, c) for t in RUN_TABLES for c in t.columns]
TEXTS = [(t, c) for t, c in COLUMNS if c.sql_type == "VARCHAR"]
FREE = (
    *("runs.label", "runs.status_reason", "runs.profile", "runs.imported_from", "runs.torch_version"),
    *("machines.cpu_model", "machines.os_name", "machines.kernel", "machines.instance_type"),
    *("machines.region", "machines.machine_id", "machines.gpus_absent", "machines.driver_version"),
    *("devices.device_name", "cases.device_name", "cases.reason", "launches.reason", "measurements.reason"),
    *("operators.operator", "operators.shapes", "operators.dtypes", "kernels.name", "kernels.operator"),
    *("events.message", "prices.provider", "prices.instance_type", "devices.gpu_id", "runs.blas"),
    *("servers.engine", "servers.version", "load_steps.client", "requests.reason", "requests.retry_after"),
    *("requests.finish_reason", "requests.prompt_hash", "requests.answer_hash", "figures.reason"),
    *("step_lines.path", "step_lines.function", "step_lines.called", "runs.cpu_capability"),
    *("runs.gputui_version", "cases.workload", "cases.size", "runs.platform_layer"),
    "profiled_passes.memory_reason",
)
"""Columns in which a file may hold any text and can still be read."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with two runs of a GPU box: rates, a profiled pass, telemetry, prices, labels."""
    db = tmp_path_factory.mktemp("made") / "acme-cluster.db"
    machine = replace(GPU_MACHINE, identities=(Identity("machine-id", GPU_MACHINE.machine_id),))
    store(db, 1, label="acme fast", machine=machine, on_gpu=True)
    store(db, 2, label="acme slow", machine=machine, on_gpu=True, gpt_ms=130.0)
    return db


@pytest.fixture
def stored(made: Path, tmp_path: Path) -> Path:
    """A copy that the test may change."""
    return Path(shutil.copy(made, tmp_path))


@pytest.fixture
def with_fonts(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has pictures drawn in these fonts of matplotlib alone, whatever the box has installed."""
    import matplotlib  # every process that collects tests would spend a fifth of a second on it

    def install(*names: str) -> None:
        files = [str(Path(matplotlib.get_data_path(), "fonts", "ttf", f"{name}.ttf")) for name in names]
        drawn = partial(resvg_py.svg_to_bytes, skip_system_fonts=True, font_files=files)
        monkeypatch.setattr(resvg_py, "svg_to_bytes", drawn)

    return install


@pytest.fixture(scope="module")
def made_with_loads(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the loads on a server, which were before."""
    db = Path(shutil.copy(made, tmp_path_factory.mktemp("loads")))
    store_loads(db, Server(failures=3), number=0, label="acme loads", users=(1, 8), launches=1, requests=40)
    with duckdb.connect(str(db)) as connection:
        renamed = "replace(parameters_json, 'made-up-1b', '/home/bob/acme-llama.gguf')"
        connection.execute(f"UPDATE cases SET parameters_json = {renamed}")
    return db


@pytest.fixture
def stored_with_loads(made_with_loads: Path, tmp_path: Path) -> Path:
    """A copy that the test may change."""
    return Path(shutil.copy(made_with_loads, tmp_path))


def plant(db: Path, columns: Iterator[tuple[str, str]]) -> None:
    with duckdb.connect(str(db)) as connection:
        for number, (table, column) in enumerate(columns):
            connection.execute(f"UPDATE {table} SET {column} = ?", [PLANTED[number % len(PLANTED)]])


def texts_of(db: Path) -> str:
    """Every cell of every table, as one text."""
    with duckdb.connect(str(db), read_only=True) as connection:
        return "\n".join(str(connection.execute(f"FROM {t.name}").fetchall()) for t in RUN_TABLES)


def summaries(db: Path) -> tuple[RunSummary, ...]:
    with open_result(db) as file:
        return file.summaries()


def test_of_a_column_that_nobody_listed_nothing_is_shared(
    stored_with_loads: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {column.sharing for column in schema._columns("new VARCHAR of anything", "other BIGINT")} == {""}
    born = tuple(
        replace(table, columns=tuple(replace(column, sharing="") for column in table.columns))
        for table in RUN_TABLES
    )
    monkeypatch.setattr(copying, "RUN_TABLES", born)
    monkeypatch.setattr(copying, "rekey", lambda connection, out: None)
    shared_copy({stored_with_loads: summaries(stored_with_loads)}, tmp_path / "b.db", Replacements(["price"]))

    with duckdb.connect(str(tmp_path / "b.db"), read_only=True) as connection:
        for table in RUN_TABLES:
            rows = connection.execute(f"SELECT * EXCLUDE (run_id) FROM {table.name}").fetchall()
            assert table.name == "events" or rows
            assert {cell for row in rows for cell in row} <= {None, *box_ids(tmp_path / "b.db")}


def box_ids(db: Path) -> set[str]:
    """Which the copy is given when it is closed."""
    with duckdb.connect(str(db), read_only=True) as connection:
        return {box_id for (box_id,) in connection.execute("SELECT box_id FROM machines").fetchall()}


def test_every_column_says_how_it_is_shared_in_a_known_word() -> None:
    replaced = {"name", "absent", "layers", "parameters", "id", "label", "price", "line"}
    assert {column.sharing for _, column in COLUMNS} == {*CELLS, *KNOWN, *replaced}
    numbers = {column.name for _, column in COLUMNS if column.sharing in ("kept", "clock", "counter")}
    assert numbers.isdisjoint(column.name for _, column in TEXTS), "a text is never copied as it is"


def test_every_instant_of_the_boxs_clock_begins_at_zero() -> None:
    for table, column in COLUMNS:
        if "monotonic clock" in column.meaning:
            assert column.sharing == "clock", f"{table.name}.{column.name}"
        if "counter since" in column.meaning:
            assert column.sharing == "counter", f"{table.name}.{column.name}"


def test_no_column_lets_a_planted_text_pass() -> None:
    names = Replacements()
    for table, column in TEXTS:
        for text in PLANTED if column.sharing not in ("", "empty", "price") else ():
            found = names.shared(column, text) or ""
            assert not [word for word in WORDS if word in found], (table.name, column.name, text)


def test_no_text_planted_inside_the_json_of_a_column_passes() -> None:
    for planted in PLANTED:
        inside: dict[str, object] = {
            "layers": [["platform", planted, [planted]], [planted, "docker", ["dmi"]]],
            "parameters": [["batch", planted], [planted, 8], [planted, "chat"], ["model", planted]],
            "absent": {planted: "not asked", "region": planted, "kernel": f"not asked: {planted}"},
        }
        for _, column in TEXTS:
            if column.sharing in inside:
                found = Replacements().shared(column, json.dumps(inside[column.sharing])) or ""
                assert found.startswith(("[", "{"))
                assert not [word for word in (*WORDS, "docker", "dmi") if word in found], (column, planted)


def test_no_planted_text_of_any_column_is_copied(stored_with_loads: Path, tmp_path: Path) -> None:
    runs = summaries(stored_with_loads)
    with duckdb.connect(str(stored_with_loads), read_only=True) as connection:
        for table, _ in TEXTS:
            assert connection.execute(f"FROM {table.name} LIMIT 1").fetchall(), table.name
    plant(stored_with_loads, iter((table.name, column.name) for table, column in TEXTS))
    assert all(word in texts_of(stored_with_loads) for word in WORDS)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gputui.services.share.copying.rekey", lambda connection, out: None)
        shared_copy({stored_with_loads: runs}, tmp_path / "shared.db", Replacements())

    found = texts_of(tmp_path / "shared.db")
    assert not [word for word in WORDS if word in found.replace("gputui", "")]


@pytest.mark.slow
def test_no_form_holds_a_planted_text_an_old_id_or_a_path(stored_with_loads: Path, tmp_path: Path) -> None:
    plant(stored_with_loads, (tuple(place.split(".", 1)) for place in FREE))  # type: ignore[misc]
    old = [run_id_of(1), run_id_of(1)[-8:], GPU_MACHINE.machine_id, GPU_MACHINE.gpus[0].gpu_id]
    both = [f"{stored_with_loads}@latest", f"{stored_with_loads}@latest~1"]
    for form, names in (
        *((form, both[:1] if form in CARDS else both) for form in FORMS if form != ".png"),  # drawn of .svg
        (".md", both[:1]),
    ):
        out = tmp_path / f"out{len(names)}{form}"
        shared = share(names, out)
        text = texts_of(out) if form == ".db" else out.read_text(encoding="utf-8", errors="replace")
        assert ("Side by side" in text) == (form == ".md" and len(names) == 2)
        text += "".join(shared.held + shared.left_out)
        assert not [word for word in (*WORDS, *old, str(tmp_path), "0.42") if word in text], (form, names)


def test_a_card_is_a_small_picture_with_the_answer_the_rates_and_nothing_of_whose_they_are(
    stored: Path, tmp_path: Path
) -> None:
    for form in (".svg", ".txt"):
        share([f"{stored}@latest"], tmp_path / f"card{form}", ("label", "ids"))
    picture = (tmp_path / "card.svg").read_text()
    root = ElementTree.fromstring(picture)
    said = "\n".join("".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text"))
    text = (tmp_path / "card.txt").read_text()
    assert len(picture) < 20_000
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")
    words = ("GPT training", "tok/s", "H200", "matmul", "a step of GPT training, 130 ms", "■ attention 10 %")
    for word in words:
        assert word in " ".join(said.split())
        assert word.replace("■", "▓") in text, "without colours it is told by its pattern"
    assert not [word for word in (run_id_of(2)[-8:], "acme", "--verbose") if word in said + text]
    assert not [word for word in ("gemm", "gpt_train") if word in said + text]


def test_a_png_card_is_small_and_text_fills_it(
    stored: Path, tmp_path: Path, with_fonts: Callable[..., None]
) -> None:
    from matplotlib.image import imread

    with_fonts("DejaVuSansMono", "DejaVuSansMono-Bold")
    share([f"{stored}@latest"], tmp_path / "card.png")
    picture = (tmp_path / "card.png").read_bytes()
    pixels = imread(BytesIO(picture))
    assert len(picture) < 20_000
    assert pixels.shape[1] >= 600
    is_light = pixels[:, :, :3].max(axis=2) > 0.5
    assert np.mean(is_light.any(axis=1)) > 0.4, "lines of text"


def test_without_a_monospaced_font_or_the_extra_no_png_is_written(
    stored: Path, tmp_path: Path, with_fonts: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_fonts("DejaVuSans")
    with pytest.raises(GputuiError, match="no monospaced font") as failed:
        share([f"{stored}@latest"], tmp_path / "card.png")
    assert "fonts-dejavu" in failed.value.hint
    with_fonts()
    with pytest.raises(GputuiError, match="no monospaced font"):
        report._rasterized("<svg/>")
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(GputuiError, match="needs resvg_py") as failed:
        report._rasterized("<svg/>")
    assert "pip install resvg-py" in failed.value.hint
    assert not (tmp_path / "card.png").exists()


def test_two_files_at_once_are_refused_and_neither_is_written(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outs = tmp_path / "c.svg", tmp_path / "r.html"
    with pytest.raises(SystemExit) as left:
        main(("share", str(stored), "--card", str(outs[0]), "-o", str(outs[1])))
    assert left.value.code == 2
    assert f"{outs[0]} and {outs[1]}: one file is written" in capsys.readouterr().err
    assert not any(out.exists() for out in outs)


def test_a_card_shows_one_result_or_why_its_step_is_missing_and_a_copy_of_a_file_is_no_other(
    tmp_path: Path,
) -> None:
    (folder := tmp_path / "folder").mkdir()
    store(folder / "a.db", 1, profiled=False)
    shutil.copy(folder / "a.db", folder / "b.db")
    share([str(folder)], tmp_path / "card.txt")
    why = "where the time of a step goes is not known: no step was profiled"
    assert why in (tmp_path / "card.txt").read_text()
    alone = share([str(folder / "a.db")], tmp_path / "alone.md")
    (folder / "broken.db").write_bytes(b"not a database" * 999)
    shared = share([str(folder)], tmp_path / "folder.md")
    assert (shared.held, shared.left_out) == (alone.held, alone.left_out)
    (why,) = shared.unread
    assert why.startswith(f"left out: {folder / 'broken.db'} is not a gputui result file")
    store(folder / "c.db", 2, profiled=False)
    with pytest.raises(GputuiError, match="2 results on one card") as failed:
        share([str(folder)], tmp_path / "card.svg")
    assert "name one, such as c.db@" in failed.value.hint


def test_a_card_and_a_report_on_loads_have_their_curve_and_no_planted_text(
    stored_with_loads: Path, tmp_path: Path
) -> None:
    of_loads = ("servers", "load_steps", "requests")
    places = [place.split(".", 1) for place in FREE if place.startswith(of_loads)]
    plant(stored_with_loads, iter([(table, column) for table, column in places]))
    for form in (".txt", ".md", ".html"):
        share([f"{stored_with_loads}@latest~2"], tmp_path / f"out{form}")
        text = (tmp_path / f"out{form}").read_text(encoding="utf-8")
        assert "model-1" in text
        assert "8 users" in text
        assert not [word for word in (*WORDS, str(tmp_path)) if word in text], form


def test_a_shared_file_opens_like_any_other_and_says_the_same(stored: Path, tmp_path: Path) -> None:
    without = share([str(stored)], tmp_path / "b.db")
    assert "2 labels (--with-label)" in without.left_out
    assert "2 prices (--with-price)" in without.left_out

    (mine,), (theirs,) = select_all([str(stored)]), select_all([str(tmp_path / "b.db")])

    def rates(runs: Sequence[Run]) -> list[object]:
        return [
            (case.case, case.outcome, [(b.wall_ns, b.device_ns, b.steps) for b in measurement.blocks])
            for run in runs
            for case in run.cases
            for measurement in case.measurements
        ]

    assert rates(mine.runs) == rates(theirs.runs)
    assert [run.summary.machine.gpus[0].name for run in theirs.runs] == ["NVIDIA H200"] * 2
    assert len({run.summary.machine.machine_id for run in theirs.runs}) == 1
    assert all(run.summary.label == "" for run in theirs.runs)
    with open_result(tmp_path / "b.db") as file:
        passes = file.profiled(theirs.runs[0].summary.run_id)
        assert {operator.operator for one in passes.values() for operator in one.operators} >= {"aten::mm"}
        assert file.telemetry_summary(theirs.runs[0].summary.run_id).devices
    with duckdb.connect(str(tmp_path / "b.db"), read_only=True) as connection:
        clocks = (
            "SELECT max(started_ns), max(utc_offset_min), (SELECT min(energy_mj) FROM telemetry) FROM runs"
        )
        assert connection.execute(clocks).fetchall() == [(0, 0, 0)], "they begin at zero"


def test_what_is_asked_for_is_kept(stored: Path, tmp_path: Path) -> None:
    share([str(stored)], tmp_path / "c.db", ("price", "label", "ids"))
    found = summaries(tmp_path / "c.db")
    assert {run.label for run in found} == {"acme fast", "acme slow"}
    assert {run.run_id for run in found} == {run_id_of(1), run_id_of(2)}
    assert "europe-west4" in texts_of(tmp_path / "c.db")


def test_a_file_of_two_boxes_is_a_report_of_both_and_more_than_fit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputui.services.share.sharing._MOST_BOXES", 2)
    db = tmp_path / "a.db"
    for number in range(1, 4):
        store(db, number, gpt_ms=100.0 + 60 * number, machine=box(number, GPU_MACHINE), profiled=False)
    with pytest.raises(GputuiError, match="3 results in one report: up to 2 are shown"):
        share([str(db)], tmp_path / "three.md")
    two = [f"{db}@{run_id_of(number)[-8:]}" for number in (1, 2)]
    share(two, tmp_path / "two.md")
    report = (tmp_path / "two.md").read_text(encoding="utf-8")
    assert "| box a | box b |" in report
    assert "## Side by side" in report


def test_a_report_is_on_the_newest_run_that_measured_something_and_how_to_repeat_it(
    stored: Path, tmp_path: Path
) -> None:
    share([str(stored)], tmp_path / "both.md")
    with duckdb.connect(str(stored)) as connection:
        failed = "UPDATE cases SET outcome = 'failed' WHERE run_id = ?::UUID"
        connection.execute(failed, [run_id_of(2)])
    share([str(stored)], tmp_path / "older.md")
    share([f"{stored}@latest~1"], tmp_path / "first.md")
    both, older, first = ((tmp_path / f"{name}.md").read_text() for name in ("both", "older", "first"))
    assert older.split("\n")[0] == first.split("\n")[0] != both.split("\n")[0]
    for line in (
        *("# ", "## What was measured", "| GPUs | 2x NVIDIA H200", "## What is expected", "## Evidence"),
        *("| GPT training mini cpu fp32 all cores |", "## How to repeat it", "gputui run --like shared.db"),
        "Left out: 1 label",
    ):
        assert line in first


@pytest.mark.parametrize(("tried", "said"), [("own", "Not without its owner: workload-1 "), ("skipped", "")])
def test_a_report_names_what_only_its_owner_can_repeat_and_offers_no_command_for_it(
    stored: Path, tmp_path: Path, tried: str, said: str
) -> None:
    with duckdb.connect(str(stored)) as connection:
        if tried == "own":
            connection.execute("UPDATE cases SET workload = 'my_secret_step'")
        else:
            connection.execute("UPDATE cases SET outcome = 'skipped'")
    share([str(stored)], tmp_path / "a.md")
    page = (tmp_path / "a.md").read_text()
    assert "run --like" not in page
    assert said in page
    assert ("## How to repeat it" in page) == bool(said)


def test_an_existing_database_and_an_unknown_ending_are_refused(stored: Path, tmp_path: Path) -> None:
    with pytest.raises(NotStored, match="will not be overwritten"):
        share([str(stored)], stored)
    with pytest.raises(GputuiError, match="ending"):
        share([str(stored)], tmp_path / "a.pdf")


def test_the_names_of_all_gpus_that_drivers_report_are_known() -> None:
    with (Path(__file__).parents[2] / "facts" / "driver_names.csv").open(encoding="utf-8") as file:
        names = [row["driver_name"] for row in csv.DictReader(file)]
    assert len(names) > 50
    assert [name for name in names if vocabulary.device(name) != name] == []


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        ("AMD EPYC 7763 64-Core Processor", "AMD EPYC 7763 64-Core Processor"),
        ("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz"),
        ("NVIDIA H100 acme", "NVIDIA H100 …"),
        ("AMD Instinct MI300X partition 1/8", "AMD Instinct MI300X partition 1/8"),
        ("acme", None),
    ],
)
def test_a_device_keeps_the_words_that_name_a_model(text: str, shared: str | None) -> None:
    assert vocabulary.device(text) == shared


def test_what_burn_finds_is_said_in_words_that_may_be_shared() -> None:
    for text in (
        "2 numbers in 40 products differ from the first, and not by the order of sums: a fault of the device",
        "products in torch.bfloat16 are not finite, and right in float32: a fault of the library",
        burn.ANY_ORDER,
    ):
        assert vocabulary.message(text) == text


def test_an_error_keeps_its_type_alone() -> None:
    text = "acme.py line 7: RuntimeError (tried to allocate 2.00 GiB); its message is in the worker's log"
    assert vocabulary.message(text) == "RuntimeError (tried to allocate 2.00 GiB)"
    assert vocabulary.message("RuntimeError: /home/bob is gone") is None
    assert vocabulary.message("too slow for its 2.12 s share (5 blocks of 0.216 s): raise --budget")
    load = "the first rate to try takes 5 s, more than was left"
    assert vocabulary.message(f"too slow for its 11.2 s share ({load}): raise --budget")


def test_the_report_on_loads_has_their_curve_and_the_command_that_offers_them_again(
    stored_with_loads: Path, tmp_path: Path
) -> None:
    share([f"{stored_with_loads}@latest~2"], tmp_path / "report.md")
    share([f"{stored_with_loads}@latest~2"], tmp_path / "shared.db")
    report = (tmp_path / "report.md").read_text(encoding="utf-8")

    (typed,) = [line.split() for line in report.splitlines() if "gputui serve-bench" in line]
    given = serve_bench.make_context("serve-bench", typed[2:]).params
    ((run,), *_) = [side.runs for side in select_all([str(tmp_path / "shared.db")])]
    loads = [dict(result.case.work.parameters) for result in run.cases]
    assert {one["model"] for one in loads} == {given["name"]}
    assert {one["api"] for one in loads} == {given["api"]}
    assert {one["users"] for one in loads if "users" in one} == set(given["users"])
    (limit,) = [result.case for result in run.cases if dict(result.case.work.parameters)["load"] == "search"]
    assert (given["limits"], given["shared_tokens"]) == (limits_of(limit), None)
    assert "| 8 users |" in report
    assert "requests to a server" in report


def test_requests_of_a_profile_of_ones_own_can_be_offered_again_and_pair() -> None:
    names, (workload,) = Replacements(), [c for t, c in TEXTS if c.sharing == "workload"]

    shared = [names.shared(workload, f"serve:acme-mails {load}") for load in ("1 user", "2.5 req/s", "limit")]

    assert shared == ["serve:profile-1 1 user", "serve:profile-1 2.5 req/s", "serve:profile-1 limit"]


def test_every_percentile_of_a_load_is_shared_under_its_name() -> None:
    for time in ("ttft", "tpot", "e2e"):
        for percentile in ("p50", *NEEDED):
            key, title = f"{time}_{percentile}_s", f"{time.upper()} {percentile}".replace("p50", "median")
            assert vocabulary.word("key", key) == key
            assert vocabulary.word("title", title) == title
