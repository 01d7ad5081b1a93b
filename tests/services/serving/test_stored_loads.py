"""Stored loads: read back as they were, shown, compared, merged, and with a price."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import printed, printed_json
from jsonschema import validate
from stored_loads import USERS, Server, load_lines, store_loads

from gputui.analysis.cost import Energy
from gputui.model.absent import Missing
from gputui.model.journal import Price
from gputui.model.result import Run
from gputui.model.serving import LoadStep, Requests, ServerFound, ServingRecords
from gputui.model.telemetry import LaunchPower
from gputui.services.results.selectors import run_in
from gputui.services.serving.curve import ServingRun, serving_of
from gputui.services.serving.text import break_even_line, energy_line, serving_headline, serving_notes
from gputui.store.opening import CATALOG
from gputui.store.reading import open_result
from gputui.store.writing import opened_for_writing

SCHEMA = Path(__file__).parents[3] / "docs" / "schemas" / "show.json"


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Loads on a server of eight slots; nothing is written to it."""
    db = tmp_path_factory.mktemp("loads") / "a.db"
    store_loads(db, requests=130)
    return db


def _run(db: Path) -> tuple[Run, ServingRecords]:
    with open_result(db) as file:
        (summary,) = file.summaries()
        return run_in(file, summary.run_id), file.serving(summary.run_id)


def _serving(run: Run, records: ServingRecords) -> ServingRun:
    found = serving_of(run, records)
    assert isinstance(found, ServingRun)
    return found


def test_servers_steps_and_requests_are_read_back_as_they_were_reported(db: Path) -> None:
    _, records = _run(db)
    lines = load_lines(Server(), requests=130)
    assert set(records.servers) == {line for line in lines if isinstance(line, ServerFound)}
    assert set(records.steps) == {line for line in lines if isinstance(line, LoadStep)}
    assert set(records.requests) == {line for line in lines if isinstance(line, Requests)}


def test_the_curve_has_users_in_order_and_then_the_limit(db: Path) -> None:
    server = Server(slots=8, prefill_s=0.05, decode_s=0.01)
    found = _serving(*_run(db))

    assert [level.users for level in found.levels] == [*USERS, None]
    one, *_, limit = found.levels
    assert not isinstance(one.speed, str)
    assert one.tokens_per_s_and_user == pytest.approx(200 / server.service_s, rel=0.03)
    assert limit.speed.units_per_s == pytest.approx(0.8 * server.capacity_per_s, rel=0.03)  # type: ignore[union-attr]
    assert one.ttft.n == 390
    assert one.ttft.p99_s.value == pytest.approx(0.0525, rel=0.05)  # type: ignore[union-attr]


def test_the_headline_is_the_limit_with_its_interval_and_cost(db: Path) -> None:
    found = _serving(*_run(db))

    price = Price(3.6, 1.0, "stated", "", "", "", "")
    text = serving_headline(found, price)
    assert text.startswith("Chat: 3.1")
    assert "requests/s within TTFT 500 ms, TPOT 50 ms for 90 % of them (95 %: " in text
    assert "; a million output tokens cost $1.5" in text  # 3.6 USD/h over 630 tok/s
    line = break_even_line(found, price, (0.0, 10.0))
    assert line.startswith("against $0.00 in and $10.00 out per million tokens the box pays from 0.5 req")


def test_what_limits_the_meaning_and_what_the_server_says_of_queue_and_caches_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store_loads(tmp_path / "a.db", Server(cached_tokens=256, failures=2, preemptions=2.0), requests=100)
    notes = "\n".join(serving_notes(_serving(*_run(tmp_path / "a.db"))))
    assert "\n50 % of the prompt tokens came from a cache\n" in notes
    assert "1 user: of 300 requests 6 refused" in notes
    assert "p99 needs 368 requests, each load has at most 294" in notes

    _, out, _ = printed(capsys, "show", "latest", tmp_path / "a.db", "-v")

    rows = [line.split() for line in out.splitlines()]
    assert ["16", "users", "8", "100", "%", "1", "%", "6"] in rows
    assert ["1", "user", "0", "12", "%", "1", "%", "0"] in rows
    note = "16 users: 6 preemptions, as the server's KV cache was too small, 100 % full at the end"
    assert note in " ".join(out.split())
    plain = printed_json(capsys, "show", "latest", tmp_path / "a.db")["serving"]
    assert plain["loads"][2]["server"] == {
        "waiting": 8.0,
        "kv_cache_share": 1.0,
        "prefix_hit_share": 0.01,
        "preemptions": 6.0,
    }


def test_a_search_that_ended_early_says_between_which_rates_the_limit_lies(db: Path) -> None:
    run, records = _run(db)
    *cases, search = run.cases
    why = "its 91 s ended before these were close enough: raise --budget"
    ended = replace(search, outcome="skipped", reason=why, measurements=())
    held = next(step for step in records.steps if step.rate_per_s is not None)
    steps = (replace(held, rate_per_s=12.0), replace(held, rate_per_s=24.0, good_share=0.4))
    found = _serving(replace(run, cases=(*cases, ended)), replace(records, steps=steps))

    text = serving_headline(found, Missing("no price"))
    assert text.endswith(
        "12.0 requests/s stay within TTFT 500 ms, TPOT 50 ms for 90 % of them, 24.0 do not; the limit is not"
        f" known: {why}."
    )
    broken = [replace(one, launch_id=held.launch_id, outcome="failed") for one in search.measurements[:1]]
    gone = replace(ended, outcome="failed", measurements=tuple(broken))
    away = replace(held, rate_per_s=20.0, good_share=0.0, step_index=1)
    last = _serving(replace(run, cases=(*cases, gone)), replace(records, steps=(*steps, away)))
    assert last.limit is not None
    assert (last.limit.held_requests_per_s, last.limit.failed_requests_per_s) == (
        12.0,
        24.0,
    )  # at 20 the server went away


def test_show_prints_the_curve_and_its_json_has_the_same(
    db: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = printed(capsys, "show", "latest", db)
    assert status == 0
    assert "vLLM 0.11.0, made-up-1b, chat: 512 tokens in, 200 out, random words" in out
    assert "16 users" in out

    whole = printed_json(capsys, "show", "latest", db)
    validate(whole, json.loads(SCHEMA.read_text()))
    plain = whole["serving"]
    assert [load["load"] for load in plain["loads"]] == ["closed", "closed", "closed", "search"]
    assert [load["users"] for load in plain["loads"]] == [*USERS, None]
    assert plain["loads"][0]["outcomes"] == {"ok": 390}
    assert plain["loads"][0]["ttft"]["p99_s"] is not None
    assert plain["loads"][0]["limit_requests_per_s"] is None


def test_two_servers_are_compared_by_the_requests_they_answer_within_the_limits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And one is not called different from itself."""
    for number, (name, slots) in enumerate((("a", 8), ("b", 24), ("c", 8)), 1):
        store_loads(tmp_path / f"{name}.db", Server(slots=slots), number=number, requests=40)

    _, out, _ = printed(capsys, "compare", tmp_path / "a.db", tmp_path / "b.db")
    first = " ".join(out.split("\n\n")[0].split())
    within = "requests within TTFT 500 ms, TPOT 50 ms"
    more = r"(2\.9|3\.0)\dx as many"
    assert re.match(
        rf"Chat: b\.db answers {more} {within} as a\.db \(95 %: \d\.\d\d to \d\.\d\dx\), and a", first
    )
    assert "and a million output tokens cost 66 % less. b.db gives" in first
    sooner = r"b\.db gives the first token 97\.\d % sooner than a\.db \(9\d\.\d to 9\d\.\d\)"
    assert re.search(rf"{sooner} in chat serving, TTFT p50 with 16 users\.$", first)

    _, out, _ = printed(capsys, "compare", tmp_path / "a.db", tmp_path / "c.db")
    apart = "Chat: can't tell a.db and c.db apart"
    assert out.startswith((apart, "Chat: c.db answers as many requests within"))


def test_merged_and_removed_runs_keep_and_lose_their_requests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = tmp_path / "a.db", tmp_path / "b.db"
    first, second = (store_loads(db, number=n, launches=1, requests=5) for n, db in ((1, a), (2, b)))
    merged = tmp_path / "both.db"
    assert printed(capsys, "merge", a, b, "-o", merged)[0] == 0
    with open_result(merged) as file, open_result(b) as alone:
        assert file.serving(second) == alone.serving(second)

    assert printed(capsys, "rm", first[-8:], merged, "--yes")[0] == 0
    with open_result(merged) as file:
        assert file.serving(first).requests == ()
        assert len(file.serving(second).requests) == 4


def test_energy_per_token_is_that_of_all_gpus_over_the_output(db: Path) -> None:
    run, records = _run(db)
    powers = tuple(
        LaunchPower(case.case_id, m.launch_id, 50, 400.0) for case in run.cases for m in case.measurements
    )
    found = _serving(run, replace(records, powers=powers))

    for level in found.levels:
        assert isinstance(level.energy, Energy)
        assert not isinstance(level.output_tokens_per_s, Missing)
        assert level.energy.joules_per_unit == pytest.approx(400.0 / level.output_tokens_per_s, rel=0.02)
    assert energy_line(found).startswith("energy of the GPUs: ")
    elsewhere = tuple(replace(server, is_here=False) for server in records.servers)
    apart = _serving(run, replace(records, powers=powers, servers=elsewhere))
    assert {level.energy for level in apart.levels} == {Missing("the server is elsewhere")}


def test_power_is_summed_over_the_gpus_that_were_sampled_in_the_window(tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    run_id = store_loads(db, launches=1, requests=30)
    with open_result(db) as file:
        span = file.measured_spans(run_id)[0]
    rows = [
        (run_id, device, span.first_utc_us + 100_000 * n, watts)
        for device, watts in ((0, 300.0), (1, 100.0))
        for n in range(20)
    ]
    with opened_for_writing(db) as connection:
        connection.executemany(
            f"INSERT INTO {CATALOG}.main.telemetry (run_id, device_index, t_us, power_w) VALUES (?, ?, ?, ?)",
            rows,
        )
    with open_result(db) as file:
        powers = file.serving(run_id).powers
    assert LaunchPower(span.case_id, span.launch_id, 20, 400.0) in powers
