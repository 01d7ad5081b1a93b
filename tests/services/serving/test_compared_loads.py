"""Two runs of loads beside each other: who waits less, what pairs, and what chance does."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import stored_loads
from command_line import printed
from simulated_loads import Box, comparison_of, comparisons, drawn, template
from stored_loads import Server, load_cases, store_loads
from stored_runs import store

from gputui.errors import EXIT_DONE, EXIT_NO_RESULT
from gputui.model.result import CaseResult, Measurement, Run
from gputui.services.compare.pairing import Comparison, Row
from gputui.services.results.metrics import LAG, time_of
from gputui.services.serving.plan import serving_case
from gputui.services.serving.text import load_options

_QUIET = Box()


def _row(comparison: Comparison, words: str) -> Row:
    (found,) = (row for row in comparison.rows if row.case.work.workload == f"serve:chat {words}")
    return found


def _compared(capsys: pytest.CaptureFixture[str], *words: str | Path, expected: int = EXIT_DONE) -> str:
    status, out, err = printed(capsys, "compare", *words)
    assert status == expected, err
    return out


def test_eight_users_wait_less_for_two_slots_than_for_one() -> None:
    (found,) = comparisons(Server(slots=1), Server(slots=2), _QUIET, (8,), 3, 1)

    users, first = _row(found, "8 users"), _row(found, "8 users TTFT p50")
    assert (users.rate.word, first.rate.word) == ("faster", "faster")
    (of_users, *_), (of_first, *_) = users.rate.ratio or (0.0,), first.rate.ratio or (0.0,)
    assert of_users == pytest.approx(2, rel=0.1)
    assert of_first == pytest.approx((0.05 + 3 * 2.04) / (0.05 + 7 * 2.04), rel=0.1)
    assert _row(found, "8 users TPOT p50").rate.word in ("same", "inconclusive")


def test_a_time_is_better_when_it_is_less_in_every_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store_loads(tmp_path / "a.db", Server(slots=1), users=(8,), requests=30)
    store_loads(tmp_path / "b.db", Server(slots=4), users=(8,), number=2, requests=30)

    plain = json.loads(_compared(capsys, "a.db", "b.db", "--format", "json"))["comparisons"][0]
    (row,) = (one for one in plain["rows"] if one["case"] == "serve:chat 8 users TTFT p50")
    judged = row["judgements"]["time"]
    assert (row["unit"], row["verdict"], judged["verdict"]) == ("s", "faster", "faster")
    assert judged["change"] == pytest.approx(-0.85, abs=0.02)
    assert 1 / row["a"]["speed"]["units_per_s"] == pytest.approx(14.3, rel=0.05)
    assert row["ratio"]["b_against_a"] == pytest.approx(1 / (1 + judged["change"]))

    (line,) = (
        one
        for one in csv.DictReader(io.StringIO(_compared(capsys, "a.db", "b.db", "--format", "csv")))
        if one["case"] == row["case"] and not one["figure"]
    )
    assert (line["verdict"], line["unit"]) == ("faster", "s")
    text = _compared(capsys, "a.db", "b.db", "--verbose")
    page = _compared(capsys, "a.db", "b.db", "--format", "html")
    assert (page.count("vLLM 0.11.0, made-up-1b"), page.count("Time per step")) == (2, 0)
    for said in (text, page):
        assert "b gives the first token 85 % sooner" in " ".join(said.split())
        assert "-85 %" in said
    assert "TTFT median" not in text.partition("serve:chat limit")[0].partition("figure")[2]


def test_a_gate_fails_by_a_first_token_that_comes_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = tmp_path / "a.db", tmp_path / "b.db"
    store_loads(a, users=(1,), requests=30)
    store_loads(b, Server(prefill_s=0.2), users=(1,), number=2, requests=30)

    status, _, err = printed(capsys, "compare", a, b, "--fail-if-slower", "20")

    assert status == 1
    slower = err.partition("undecided")[0]
    assert "serve:chat 1 user TTFT p50: 4.0" in slower
    assert "serve:chat 1 user: " not in slower


def test_loads_are_in_the_order_of_their_users() -> None:
    (found,) = comparisons(Server(), Server(), _QUIET, (16, 1, 4), 3, 1)
    loads = [row.case.work.workload for row in found.rows if not row.case.is_time]
    assert loads == [f"serve:chat {load}" for load in ("1 user", "4 users", "16 users", "limit")]
    of_four = [row.case.work.workload for row in found.rows if " 4 users" in row.case.work.workload]
    times = ["TTFT p50", "TTFT p95", "TPOT p50", "TPOT p95", "E2E p50", "E2E p95"]
    assert [name.partition(" 4 users ")[2] for name in of_four if "p99" not in name] == ["", *times]


def _factors(run: Run, factors: Sequence[float], seed: int, key: str = "") -> Run:
    """The run with times of its launches (those that begin so) by so many times as long, and this seed."""

    def longer(m: Measurement) -> Measurement:
        figures = (
            replace(f, value=f.value * factors[m.replicate])
            if f.unit == "s" and isinstance(f.value, float) and f.key != LAG and f.key.startswith(key)
            else f
            for f in m.figures
        )
        return replace(m, figures=tuple(figures))

    cases = (replace(c, measurements=tuple(map(longer, c.measurements))) for c in run.cases)
    return Run(replace(run.summary, run_id=f"{seed + 7:032x}", seed=seed), tuple(cases))


def test_launches_that_got_the_same_arrivals_are_compared_in_pairs() -> None:
    seed = template((8,), 3).summary.seed
    a = _factors(template((8,), 3), (0.5, 1.0, 2.0), seed)
    b = replace(a, summary=replace(a.summary, run_id="b" * 32))
    slower = _factors(b, (1.1, 1.1, 1.1), seed)

    paired = _row(comparison_of(a, slower), "8 users TPOT p50")
    assert (paired.rate.word, paired.a.speed.launches) == ("slower", 3)  # type: ignore[union-attr]
    assert paired.rate.ratio is not None
    assert paired.rate.ratio[0] == pytest.approx(1.1, abs=0.001)
    assert 1.03 < paired.rate.ratio[1] < paired.rate.ratio[2] < 1.17
    assert not any(row.rate.differs for row in comparison_of(a, b).rows)

    for other in (_factors(b, (1.1,) * 3, seed + 1), replace(slower, cases=_two_launches(slower))):
        alone = _row(comparison_of(a, other), "8 users TPOT p50")
        assert alone.rate.word == "inconclusive"
        assert not alone.estimate.paired  # type: ignore[union-attr]


def _two_launches(run: Run) -> tuple[CaseResult, ...]:
    return tuple(replace(case, measurements=case.measurements[:2]) for case in run.cases)


def test_pairs_that_differ_much_are_judged_by_themselves_alone() -> None:
    a = template((8,), 3)
    b = _factors(a, (1.1, 1.4, 1.9), a.summary.seed, "tpot_p50")
    (found,) = (row for row in comparison_of(a, b).rows if row.case.work.workload.endswith("TPOT p50"))
    assert (found.rate.word, found.estimate.df) == ("inconclusive", pytest.approx(2))  # type: ignore[union-attr]


def test_a_rate_that_both_keep_up_with_is_what_was_offered_in_every_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    offered = serving_case(
        stored_loads.PROFILE, "4 req/s", "tok", "made-up-1b", "chat", [("load", "open"), ("rate_per_s", 4.0)]
    )
    monkeypatch.setattr(stored_loads, "load_cases", lambda users: (offered, load_cases(users)[-1]))
    store_loads(Path("a.db"), users=(4,), requests=30)
    store_loads(Path("b.db"), Server(decode_s=0.02), users=(4,), number=2, requests=30)

    for form in ("text", "html"):
        assert "as offered" in _compared(capsys, "a.db", "b.db", "--format", form), form
    plain = json.loads(_compared(capsys, "a.db", "b.db", "--format", "json"))["comparisons"][0]
    (row,) = (one for one in plain["rows"] if one["case"] == "serve:chat 4 req/s")
    assert (row["verdict"], row["reason"], row["ratio"]) == ("not comparable", "as offered", None)
    assert row["judgements"]["cost"]["verdict"] == "not comparable"
    assert not plain["groups"]
    _, _, err = printed(capsys, "compare", "a.db", "b.db", "--fail-if-slower", "20")
    assert "4 req/s TPOT p50" in err
    assert "4 req/s: " not in err


def test_a_time_that_only_one_side_has_is_no_row() -> None:
    a, b = (drawn(template((4,), 3), Server(), _QUIET, random.Random(seed), seed) for seed in (1, 2))

    def without_p95(case: CaseResult) -> CaseResult:
        def few_of(m: Measurement) -> Measurement:
            return replace(m, figures=tuple(f for f in m.figures if "p95" not in f.key))

        return replace(case, measurements=tuple(map(few_of, case.measurements)))

    few = replace(b, cases=tuple(map(without_p95, b.cases)))
    names = [time_of(row.case) for row in comparison_of(a, few).rows]
    assert "ttft_p50_s" in names
    assert "ttft_p95_s" not in names


@pytest.mark.parametrize(
    "box", [Box(has_tails=True), Box(0.25, 0.12, 0.14, True, lag_s=0.015)], ids=["quiet", "busy"]
)
def test_one_server_is_called_different_from_itself_in_five_of_a_hundred_comparisons_at_most(
    box: Box,
) -> None:
    found = list(comparisons(Server(), Server(), box, (1, 8), 3, 20))
    assert sum(any(row.rate.differs for row in one.rows) for one in found) <= 2


def test_a_client_that_woke_up_late_is_named_and_makes_a_single_launch_tell_little() -> None:
    (busy,) = comparisons(Server(slots=1), Server(slots=2), replace(_QUIET, lag_s=0.02), (8,), 1, 1)
    (quiet,) = comparisons(Server(slots=1), Server(slots=2), _QUIET, (8,), 1, 1)

    assert _row(quiet, "8 users").rate.ratio is not None
    assert _row(busy, "8 users").rate.word == "inconclusive"
    assert {flag.word for flag in _row(busy, "8 users").flags} == {"CPU contention from other processes"}
    assert not _row(quiet, "8 users").flags
    wide, narrow = (_row(one, "8 users TTFT p50").estimate for one in (busy, quiet))
    assert wide.high / wide.low > 4 * narrow.high / narrow.low  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("differs", "said"),
    [
        ("model", "The loads differ in model (made-up-1b in a, other-7b in b): offer both the same"),
        ("tokens", "The loads differ in tokens out (200 in a, 100 in b): offer both the same --profile,"),
        ("users", "No load was offered to both: name the same --concurrency or --rate, and the same --slo."),
        ("work", "Only a offered loads to an LLM server (gputui serve-bench), and their rates say nothing"),
    ],
)
def test_loads_that_do_not_pair_say_why(
    differs: str,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a, b = tmp_path / "a.db", tmp_path / "b.db"
    store_loads(a, users=(1, 4), launches=2, requests=5)
    if differs == "model":
        monkeypatch.setattr(stored_loads, "load_cases", lambda users: load_cases(users, "other-7b"))
    elif differs == "tokens":
        monkeypatch.setattr(stored_loads, "PROFILE", replace(stored_loads.PROFILE, output_tokens=100))
    if differs == "work":
        store(b, 2)
    else:
        store_loads(b, users=(2, 8) if differs == "users" else (1, 4), number=2, launches=2, requests=5)

    expected = EXIT_DONE if differs == "users" else EXIT_NO_RESULT
    first = " ".join(_compared(capsys, a, b, expected=expected).split("\n\n")[0].split())

    assert said in first
    assert ("Nothing to compare" in first) == (differs != "users")


def test_a_command_that_would_tell_offers_the_load_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, number in (("a.db", 1), ("b.db", 2)):
        store_loads(tmp_path / name, users=(4,), launches=1, number=number, requests=30)
    out = " ".join(_compared(capsys, "a.db", "b.db").split())
    assert "a$ gputui serve-bench URL --profile chat --concurrency none --slo ttft=500ms,tpot=50ms" in out
    assert "--db b.db --launches 3" in out


def test_a_load_is_offered_again_by_its_options() -> None:
    closed, limit = load_cases((4,))
    of_search = (("load", "search"), ("attained_share", 0.95), ("limit_ttft_s", 0.5))
    strict = serving_case(stored_loads.PROFILE, "limit", "req", "m", "chat", of_search)
    mine = replace(stored_loads.PROFILE, name="mine", shared_tokens=64, prompts="file 1234", body='{"a": 1}')
    rate = serving_case(mine, "4 req/s", "tok", "m", "chat", (("load", "open"), ("rate_per_s", 4.0)))

    assert load_options(closed) == "--profile chat --concurrency 4 --slo none"
    assert load_options(limit) == "--profile chat --concurrency none --slo ttft=500ms,tpot=50ms"
    assert load_options(strict) == "--profile chat --concurrency none --slo ttft=500ms --attain 0.95"
    offered = "--profile mine.toml --prompts FILE --body JSON --concurrency none --rate 4 --slo none"
    assert load_options(rate) == f"{offered} --shared-prefix 64"
