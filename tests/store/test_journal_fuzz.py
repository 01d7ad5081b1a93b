"""Damage of every kind to a run's files: the intact part is read and stored, the rest is reported."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import CASES, GPU_MACHINE, RUN_ID, journal_lines, make_case, make_telemetry, write_telemetry

from gputui.errors import GputuiError
from gputui.metrics import CURRENT
from gputui.model.journal import (
    JOURNAL_NAME,
    TELEMETRY_NAME,
    Block,
    CaseEnd,
    LaunchEnd,
    RunStart,
    encode_line,
)
from gputui.store.journal_reader import JournalContents, JournalTail, read_journal, read_telemetry
from gputui.store.reading import open_result
from gputui.store.writing import store_run

LINES = journal_lines(machine=GPU_MACHINE, cases=(*CASES, make_case(device_class="gpu")), launches=2)
ENCODED = [encode_line(number, line) for number, line in enumerate(LINES)]
READINGS = make_telemetry(seconds=1.0, gpus=2)

GARBAGE = st.one_of(
    st.binary(max_size=200),
    st.sampled_from([b"\n\n\n", b"\0" * 4096, b"9" * 5000, b"[" * 9000, b"7 00000000 {}", b"\xff" * 30]),
    st.builds(lambda body: b"%d 00000000 %s" % (len(body), body), st.binary(max_size=50)),
)
DAMAGE = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), st.integers(0, 2**20), st.integers(0, 7)),
        st.tuples(st.just("insert"), st.integers(0, 2**20), GARBAGE),
        st.tuples(st.just("drop"), st.integers(0, 2**20), st.integers(1, 400)),
        st.tuples(st.just("repeat"), st.integers(0, len(LINES) - 1), st.integers(0, len(LINES))),
        st.tuples(st.just("cut"), st.integers(0, 2**20), st.none()),
    ),
    min_size=1,
    max_size=6,
)


def damaged(whole: bytes, damage: list[tuple[str, int, object]]) -> bytes:
    raw = bytearray(whole)
    for kind, number, detail in damage:
        place = number % (len(raw) + 1)
        if kind == "flip" and raw:
            raw[place % len(raw)] ^= 1 << int(str(detail))
        elif kind == "insert" and isinstance(detail, bytes):
            raw[place:place] = detail
        elif kind == "drop":
            del raw[place : place + int(str(detail))]
        elif kind == "repeat":
            end = raw.find(b"\n", place) + 1
            raw[end:end] = ENCODED[number]
        else:
            del raw[place:]
    return bytes(raw)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """The contents of an intact journal and intact telemetry."""
    run_dir = run_dir_of(tmp_path_factory, b"".join(ENCODED))
    write_telemetry(run_dir, READINGS)
    contents = read_journal(run_dir)
    assert contents.damage == ()
    return Counter(map(repr, [*contents.lines, *read_telemetry(run_dir)]))


def run_dir_of(factory: pytest.TempPathFactory, journal: bytes) -> Path:
    run_dir = factory.mktemp("run")
    (run_dir / JOURNAL_NAME).write_bytes(journal)
    return run_dir


def left_of(factory: pytest.TempPathFactory, damage: list[tuple[str, int, object]]) -> JournalContents | None:
    """What is read of a damaged journal; None if its first line is lost."""
    run_dir = run_dir_of(factory, damaged(b"".join(ENCODED), damage))
    try:
        return read_journal(run_dir)
    except GputuiError:
        assert not any(isinstance(line, RunStart) for line in JournalTail(run_dir).poll())
        return None


@settings(max_examples=60, deadline=None, derandomize=True)
@given(damage=DAMAGE)
def test_every_line_that_comes_out_of_a_damaged_journal_went_in_and_what_is_missing_is_named(
    tmp_path_factory: pytest.TempPathFactory, known: Counter[str], damage: list[tuple[str, int, object]]
) -> None:
    contents = left_of(tmp_path_factory, damage)
    if contents is not None:
        assert Counter(map(repr, contents.lines)) <= known
        assert (
            len(contents.lines) == len(LINES)
            or contents.damage
            or contents.lines == tuple(LINES[: len(contents.lines)])
        ), "nobody can see that lines are missing at the end"


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True)
@given(damage=DAMAGE)
def test_what_is_left_of_a_damaged_journal_is_stored_with_no_wrong_number(
    tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[str, int, object]]
) -> None:
    contents = left_of(tmp_path_factory, damage)
    if contents is None:
        return
    db = tmp_path_factory.mktemp("stored") / "a.db"
    assert store_run(db, contents, READINGS).left_out == contents.damage
    with open_result(db) as file:
        run = file.run(RUN_ID)
    ended = {(end.launch_id, end.case_id) for end in contents.of(CaseEnd)}
    expected = [b for b in contents.of(Block) if (b.launch_id, b.case_id) in ended]
    found = [b for case in run.cases for m in case.measurements for b in m.blocks]
    started = {m.launch_id for case in run.cases for m in case.measurements}
    assert Counter(found) == Counter(b for b in expected if b.launch_id in started)
    assert (run.summary.status == "finished") == (contents.end is not None)
    shutil.rmtree(db.parent)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(damage=DAMAGE)
def test_telemetry_that_was_damaged_gives_only_readings_that_went_in(
    tmp_path_factory: pytest.TempPathFactory, known: Counter[str], damage: list[tuple[str, int, object]]
) -> None:
    run_dir = tmp_path_factory.mktemp("run")
    write_telemetry(run_dir, READINGS)
    path = run_dir / TELEMETRY_NAME
    whole = path.read_bytes()
    head = len(CURRENT.header())
    path.write_bytes(whole[:head] + damaged(whole[head:], damage))
    assert all(repr(reading) in known for reading in read_telemetry(run_dir))
    path.write_bytes(damaged(whole, damage))
    assert all(repr(reading) in known for reading in read_telemetry(run_dir))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(damage=DAMAGE, cuts=st.lists(st.integers(0, 2**20), max_size=12))
def test_a_tail_that_is_read_in_any_pieces_gives_the_same_lines(
    tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[str, int, object]], cuts: list[int]
) -> None:
    raw = damaged(b"".join(ENCODED), damage)
    run_dir = run_dir_of(tmp_path_factory, raw)
    at_once = JournalTail(run_dir).poll()
    (run_dir / JOURNAL_NAME).write_bytes(b"")
    tail, in_pieces, last = JournalTail(run_dir), [], 0
    for cut in [*sorted(c % (len(raw) + 1) for c in cuts), len(raw)]:
        with (run_dir / JOURNAL_NAME).open("ab") as file:
            file.write(raw[last:cut])
        in_pieces += tail.poll()
        last = cut
    assert in_pieces == at_once
    assert {type(line) for line in at_once} <= {type(line) for line in LINES}
    assert sum(isinstance(line, LaunchEnd) for line in at_once) <= 6 * 2 + len(damage)
