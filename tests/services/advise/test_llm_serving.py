"""Jobs of an LLM server, answered by runs of loads."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import printed, printed_json
from stored_loads import Server, store_loads

from gputui.errors import GputuiError
from gputui.services.advise.llm_serving import is_llm_job, parse_llm_job
from gputui.services.serving.profiles import Limits

_JOB = "2M requests/day 512 in 200 out ttft<500ms tpot<50ms"


@pytest.mark.parametrize(
    ("text", "per_s"),
    [
        (_JOB, 2e6 / 86400),
        ("512 in 200 out 30 rps ttft<0.5s, tpot<=50ms", 30.0),
        ("1.5k requests/min 512 in, 200 out ttft=500ms tpot=50ms", 25.0),
    ],
)
def test_a_job_has_a_rate_lengths_and_limits_in_any_order(text: str, per_s: float) -> None:
    job = parse_llm_job(text)

    assert job.per_s == pytest.approx(per_s)
    assert (job.prompt_tokens, job.output_tokens, job.limits) == (512, 200, Limits(0.5, 0.05))


def test_an_incomplete_job_is_explained_and_other_jobs_are_not_taken_for_those_of_an_llm() -> None:
    for text in ("512 in 200 out ttft<1s", "2 rps 512 in 200 out", "2 rps 512 in 200 out x<1s"):
        assert is_llm_job(text)
        with pytest.raises(GputuiError):
            parse_llm_job(text)
    assert not any(map(is_llm_job, ("50M tokens train in 8h", "200 rps p99<50ms")))


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Limits of about 1.6 and 6.2 requests a second."""
    place = tmp_path_factory.mktemp("boxes")
    a, b = place / "a.db", place / "b.db"
    store_loads(a, Server(slots=4), number=1, requests=40)
    store_loads(b, Server(slots=16), number=2, requests=40)
    return a, b


def test_the_cheapest_box_is_named_with_how_many_it_takes(
    boxes: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(boxes[0].parent)  # a long path would be broken
    names = [box.name for box in boxes]
    prices = ("--price", "a.db=2", "--price", "b.db=3")
    status, out, _ = printed(capsys, "advise", *names, "--job", _JOB, *prices)
    assert status == 0
    assert " ".join(out.split()).startswith(
        f"{_JOB}. Cheapest: {names[1]}, 4 boxes, $8760.00 a month; next a.db, "
    )

    plain = printed_json(capsys, "advise", *names, "--job", _JOB, *prices)["llm_answers"][0]
    assert [offer["boxes"]["value"] for offer in plain["offers"]] == [4, 15]


def test_other_lengths_and_looser_limits_answer_nothing(
    boxes: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = printed(capsys, "advise", *boxes, "--job", _JOB.replace("512", "4000"))
    assert status == 2
    assert "measured 512 in 200 out" in err
    assert "gputui serve-bench URL --slo ttft=500ms,tpot=50ms --profile FILE.toml" in err

    status, _, err = printed(capsys, "advise", *boxes, "--job", _JOB.replace("ttft<500ms", "ttft<100ms"))
    assert status == 2
    assert "measured other limits: TTFT 500 ms, TPOT 50 ms" in err
