"""serve-bench on a real engine, llama.cpp's own server with random weights."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any  # Any: fields of a load
from urllib.request import urlopen

import pytest
from command_line import gputui, gputui_here
from llama_server import llama_serving, needs_llama, write_model
from offered_loads import Offered, offer

pytestmark = [pytest.mark.slow, needs_llama]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "random.gguf"
    write_model(path)
    return path


def _answered(url: str, seconds: float, **load: Any) -> Offered:
    """A load that got answers within its window: on a busy box, one that lasts longer."""
    for attempt in range(4):
        offered = offer(url, seconds * (1 + attempt), **load)
        if len(_counted(offered)) >= 4:
            break
    return offered


def _counted(offered: Offered) -> list[dict[str, Any]]:
    return [row for row in offered.rows if row["counts"] and row["outcome"] == "ok"]


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_counts_of_tokens_are_those_of_the_server(model: Path, api: str) -> None:
    with llama_serving(model, slots=2) as url:
        load: Any = {"api": api, "model": "random-3m", "prompt_tokens": 60, "output_tokens": 15}
        offered = _answered(url, 4.0, kind="closed", users=2, **load)
        metrics = urlopen(f"{url}/metrics", timeout=10).read().decode()
    answered = [row for row in offered.rows if row["outcome"] == "ok"]
    assert answered
    assert {row["output_tokens"] for row in answered} == {15}
    assert {row["finish_reason"] for row in answered} == {"length"}
    predicted = next(
        line for line in metrics.splitlines() if line.startswith("llamacpp:tokens_predicted_total ")
    )
    assert float(predicted.split()[1]) >= 15 * (len(answered) + 2)


def test_more_users_than_slots_wait_for_each_other(model: Path) -> None:
    """One slot and four users: three wait, so a first token takes about four answers."""
    load: Any = {"model": "random-3m", "prompt_tokens": 60, "output_tokens": 60}
    with llama_serving(model, slots=1) as url:
        alone = _answered(url, 4.0, kind="closed", users=1, **load)
        four = _answered(url, 6.0, kind="closed", users=4, **load)
    rows = [_counted(one) for one in (alone, four)]
    firsts = [sorted(row["first_ns"] - row["due_ns"] for row in some)[len(some) // 2] for some in rows]
    assert firsts[1] > 2.5 * firsts[0]


def test_from_the_url_of_a_server_to_its_loads_of_which_two_slots_start_two_users_sooner_and_finish_later(
    model: Path, tmp_path: Path
) -> None:
    """One thread serves both slots, so two users share its tokens per second."""
    profile = tmp_path / "short.toml"
    profile.write_text("schema = 1\nversion = 1\nprompt_tokens = 60\noutput_tokens = 60\n")
    for slots, name in ((1, "one.db"), (2, "two.db")):
        with llama_serving(model, slots=slots, log=tmp_path / "log") as url:
            done = gputui(
                *("serve-bench", url, "--profile", profile, "--concurrency", "2", "--slo", "none"),
                *("--budget", "12", "--db", tmp_path / name, "--json"),
            )
        if done.returncode != 0:  # without a free CPU that is all it says
            assert re.search("bottleneck|is too short", done.stdout + done.stderr)
            return
        (run,) = json.loads(done.stdout)["serving"]
        assert (run["engine"], run["model"], run["api"]) == ("llama.cpp", "random-3m", "chat")
        assert run["server_is_here"]
        (load,) = (load for load in run["loads"] if load["outcome"] == "ok")
        assert load["output_tokens_per_s"] > 0
        assert load["ttft"]["p50_s"] > 0
        assert load["other_lengths"] == 0  # it honours ignore_eos
        assert load["cached_share"] < 0.2
    compared = gputui_here("compare", tmp_path / "one.db", tmp_path / "two.db", "--format", "json")
    rows = json.loads(compared.stdout)["comparisons"][0]["rows"]
    found = {row["case"].partition("2 users")[2].strip(): row for row in rows}
    # On a busy box neither can be told, but the opposite is never said.
    assert found["TTFT p50"]["verdict"] in ("faster", "inconclusive")
    assert found["TPOT p50"]["verdict"] in ("slower", "inconclusive")
    assert found["TTFT p50"]["ratio"]["b_against_a"] > 1.3
