"""`gputui serve-bench` from the command line to the result file, with its supervisor and its worker."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from command_line import gputui, gputui_here, only_run_dir
from model_server import Behaviour, serving_process

from gputui.store.reading import open_result

_KEY = "sk-planted-0123456789abcdef"
_PROFILE = """
schema = 1
version = 1
prompt_tokens = 40
output_tokens = 10
slo = "ttft=100ms"
"""


@pytest.mark.slow
def test_a_run_of_loads_ends_with_its_limit_and_leaves_no_key_and_no_text_anywhere(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(_PROFILE)
    db = tmp_path / "a.db"
    does = Behaviour(slots=4, prefill_s=0.02, decode_s=0.001, api_key=_KEY)
    with serving_process(does) as url:
        done = gputui(
            *("serve-bench", url, "--profile", tmp_path / "tiny.toml", "--concurrency", "2"),
            *("--launches", "1", "--budget", "16", "--api-key-env", "LLM_KEY", "--db", db, "--verbose"),
            env={"LLM_KEY": _KEY},
        )
        asked = Request(f"{url}/served", headers={"Authorization": f"Bearer {_KEY}"})
        with urlopen(asked, timeout=10) as answer:
            prompts = {served["prompt"] for served in json.load(answer)["served"]}

    assert done.returncode == 0, done.stderr
    assert done.stdout.lstrip().startswith("Tiny: ")
    assert "within TTFT 100 ms for 90 % of them" in " ".join(done.stdout.split())
    assert "2 users" in done.stdout
    with open_result(db) as file:
        (summary,) = file.summaries()
        records = file.serving(summary.run_id)
    assert {server.engine for server in records.servers} == {"vLLM"}
    rows = [row for some in records.requests for row in some.rows]
    assert len(rows) == sum(step.requests for step in records.steps)
    assert all(row.output_tokens == 10 for row in rows if row.outcome == "ok")
    assert len(prompts) > len(rows) // 2  # every prompt is another

    left = [done.stdout.encode(), done.stderr.encode(), db.read_bytes()]
    directory = only_run_dir(Path(os.environ["GPUTUI_STATE"]))
    left += [path.read_bytes() for path in directory.rglob("*") if path.is_file()]
    somewhere = b"\n".join(left)
    assert _KEY.encode() not in somewhere
    some_prompt = next(iter(prompts))
    assert some_prompt[:40].encode() not in somewhere
    assert url.partition("//")[2].encode() not in db.read_bytes()


def test_what_is_wrong_with_a_server_is_said_before_a_run_begins(tmp_path: Path) -> None:
    done = gputui_here("serve-bench", "127.0.0.1:9", "--db", tmp_path / "a.db", "--json")

    assert done.returncode == 3
    assert done.stdout == ""
    assert "http://127.0.0.1:9: nothing listens there (connection refused)" in done.stderr
    assert not (tmp_path / "a.db").exists()


@pytest.mark.slow
def test_eight_slots_are_judged_better_for_eight_users_than_one(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(_PROFILE)
    for slots, name in ((1, "one.db"), (8, "eight.db")):
        with serving_process(Behaviour(slots=slots, prefill_s=0.02, decode_s=0.005)) as url:
            done = gputui(
                *("serve-bench", url, "--profile", tmp_path / "tiny.toml", "--concurrency", "8"),
                *("--slo", "none", "--budget", "9", "--db", tmp_path / name),
            )
            assert done.returncode == 0, done.stderr
    compared = gputui_here("compare", tmp_path / "one.db", tmp_path / "eight.db", "--format", "json")

    rate, *times = json.loads(compared.stdout)["comparisons"][0]["rows"]
    verdicts = {row["case"].partition("8 users")[2].strip(): row["verdict"] for row in times}
    is_held_back = rate["flags"] and rate["reason"] == "a main result takes 99 % certainty"  # late clients
    assert rate["verdict"] == ("inconclusive" if is_held_back else "faster")
    assert (verdicts["TTFT p50"], verdicts["E2E p50"]) == ("faster", "faster")
    assert verdicts["TPOT p50"] in ("same", "inconclusive")
