from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.analysis.job import MOST, UNITS, VERBS, Batch, parse_job
from gputui.errors import EXIT_USAGE, GputuiError


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("50M tokens train", Batch(50e6, "tok", "train", None)),
        ("1M img train", Batch(1e6, "img", "train", None)),
        ("  2.5e9   TOK  Write ", Batch(2.5e9, "tok", "write", None)),
        ("100k texts train in 8h", Batch(1e5, "seq", "train", 28800.0)),
        ("3B requests answer in 2 d", Batch(3e9, "req", "answer", 172800.0)),
        ("50 M tok training", Batch(50e6, "tok", "train", None)),
        ("1000000 tokens generate", Batch(1e6, "tok", "write", None)),
        ("5e7 tokens", Batch(5e7, "tok", "train", None, is_verb_assumed=True)),
        ("5e7 tokens IN 8h", Batch(5e7, "tok", "train", 28800.0, is_verb_assumed=True)),
        ("1M img", Batch(1e6, "img", "train", None)),
        ("2e9 tokens/month", Batch(2e9, "tok", "train", None, "month", is_verb_assumed=True)),
        ("2e9 tokens per month write", Batch(2e9, "tok", "write", None, "month")),
        ("1M requests / day", Batch(1e6, "req", "answer", None, "day")),
    ],
)
def test_a_job_is_read_as_people_write_it(text: str, job: Batch) -> None:
    assert parse_job(text) == job


@pytest.mark.parametrize(
    ("text", "word", "allowed"),
    [
        *(
            (text, "is not understood", "tokens|img|seq train")
            for text in (
                *("", "p99 < 50 ms", "50,00 tokens train", "1,5 rps", "train tokens 50M", "50M", "٣ rps"),
                *("many tokens train", "50M kittens train", "1M img train soon", "1M img train in"),
                *("200 rps p99<50ms", "7 rps"),
            )
        ),
        ("-5M tokens train", "-5M is out of range", "more than 0"),
        ("0 tokens train", "0 is out of range", "more than 0"),
        ("1e400 tokens train", "1e400 is out of range", "at most 1e+18"),
        ("50M tokens fly", "fly is nothing to do with tokens", "train or write"),
        ("1M img write", "write is nothing to do with img", "train"),
        ("1M img train in 8x", "8x is not a time", "50ms"),
        ("1M img in 0ms", "0ms is out of range", "more than 0"),
    ],
)
def test_what_is_no_job_is_refused_with_the_word_and_what_may_stand_there(
    text: str, word: str, allowed: str
) -> None:
    with pytest.raises(GputuiError) as caught:
        parse_job(text)
    assert word in caught.value.message
    assert allowed in caught.value.hint
    assert caught.value.exit_code == EXIT_USAGE


AMOUNTS = st.floats(min_value=0, max_value=MOST, exclude_min=True, allow_subnormal=False)
PERIODS = st.sampled_from(["", "day", "month"])
BATCHES = st.sampled_from([(unit, verb) for unit, verbs in VERBS.items() for verb in verbs]).flatmap(
    lambda kind: st.builds(Batch, AMOUNTS, st.just(kind[0]), st.just(kind[1]), st.none() | AMOUNTS, PERIODS)
)


@settings(deadline=None)
@given(BATCHES)
def test_a_job_that_is_written_out_is_read_back_the_same(job: Batch) -> None:
    assert parse_job(job.text) == job
    for text in ("50M tok train", "1500 img train", "2T tok train in 28800s", "0.5 tok train"):
        assert parse_job(text).text == text


PIECES = (
    *("50M", "1e9", "200", "rps", "p99<50ms", "p99", "<", "50", "ms", "train", "write", "answer"),
    *("in", "8h", "M", "million", "200rps", "1,000", "training", "hours"),
)
WORDS = st.sampled_from([*PIECES, *UNITS])


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=40) | st.lists(WORDS, max_size=6).map(" ".join))
def test_any_text_is_a_job_or_an_error_of_usage_with_a_hint(text: str) -> None:
    found: Batch | GputuiError
    try:
        found = parse_job(text)
    except GputuiError as error:
        found = error
    if isinstance(found, GputuiError):
        assert found.exit_code == EXIT_USAGE
        assert found.hint
    else:
        assert parse_job(found.text) == replace(found, is_verb_assumed=False)
