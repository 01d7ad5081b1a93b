"""Traces of any age are read exactly, and what is broken is named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from chrome_traces import document, event, kernel, op, training_step, write_trace

from gputui.errors import GputuiError
from gputui.services.traces.chrome_trace import KINDS, read_trace

STEP = training_step(1000.0, 1)


def test_a_time_since_1970_keeps_its_nanoseconds(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    text = json.dumps(document([op("aten::a", 0, 1)])).replace(
        '"ts": 0, "dur": 1', '"ts": 1712195495740538.803, "dur": 52.001'
    )
    path.write_text(text)
    trace = read_trace(path)
    assert trace.base_ns == 1_712_195_495_740_538_803
    assert trace.end_ns[0] == 52_001


def test_names_of_torch_1_8_are_read_like_those_of_today(tmp_path: Path) -> None:
    old = [
        event("Operator", "aten::conv2d", 0, 10, **{"External id": 4}),
        event("Operator", "ProfilerStep#5", 0, 20),
        event("Runtime", "cudaLaunchKernel", 2, 4, correlation=9, **{"external id": 4}),
        {**event("Kernel", "gemm", 4, 9, correlation=9, stream=7, **{"external id": 4}), "tid": "stream 7"},
        {**event("Memcpy", "Memcpy HtoD", 9, 12, correlation=8), "tid": "stream 7"},
    ]
    trace = read_trace(write_trace(tmp_path / "t.json", old))
    assert [KINDS[kind] for kind in trace.kind] == ["op", "range", "runtime", "kernel", "copy"]
    launched, work = trace.event(2), trace.event(3)
    assert (launched.correlation, work.correlation, launched.operator, work.operator) == (9, 9, 4, 4)
    copy = {**event("gpu_user_annotation", "ProfilerStep#1", 0, 100), "pid": 0, "tid": 7}
    trace = read_trace(write_trace(tmp_path / "u.json", [*STEP[:2], copy]))
    assert "kernel" not in [KINDS[kind] for kind in trace.kind], "a range is no work"
    work_on_2 = [op("aten::a", 0, 1, 4), kernel("k", 3, 9, 5, 4, device=2)]
    assert read_trace(write_trace(tmp_path / "v.json", work_on_2)).device[1] == 2


def test_what_stands_behind_the_events_is_read_and_a_bare_list_of_them(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    whole = document(STEP)
    described = whole.pop("deviceProperties")
    behind = {"deviceProperties": described, "distributedInfo": {"rank": 3, "world_size": 8}}
    path.write_text(json.dumps({**whole, **behind}))
    trace = read_trace(path)
    assert trace.devices == {0: "NVIDIA A100"}
    assert (trace.rank, trace.ranks) == (3, 8)
    path.write_text(json.dumps(STEP))
    assert len(read_trace(path)) == len(STEP)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_trace_cut_in_the_middle_is_read_as_far_as_it_is_whole(
    tmp_path: Path, share: float, compressed: bool
) -> None:
    whole = [e for number in range(200) for e in training_step(1000.0 + 200 * number, number)]
    path = write_trace(tmp_path / ("t.json.gz" if compressed else "t.json"), whole)
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * share)])
    trace = read_trace(path)
    assert 0 < len(trace) < len(whole)
    (damage,) = trace.damage
    assert damage.endswith("what follows is missing")
    assert f"after {len(trace):,} entries" in damage


def test_events_with_impossible_values_are_left_out_and_counted(tmp_path: Path) -> None:
    broken = [
        {**op("aten::a", 0, 1), "dur": -5},
        {**op("aten::b", 0, 1), "ts": "soon"},
        {**op("aten::c", 0, 1), "name": 7},
        "not an event",
        {**op("aten::d", 0, 1), "ts": 10**40},
        {**kernel("k", 0, 5, 1), "args": {"device": 10**30, "stream": "x", "correlation": None}},
    ]
    trace = read_trace(write_trace(tmp_path / "t.json", [*broken, *STEP]))
    assert len(trace) == len(STEP) + 1
    assert sum(int(line.split()[0]) for line in trace.damage) == 5
    assert "1 event left out: it has a negative duration" in trace.damage


def test_names_with_escapes_and_of_any_length_are_read(tmp_path: Path) -> None:
    long = "k" * 200_000
    odd = 'a "b" \\ \u001b[31m \U0001f600 \ud83d'
    trace = read_trace(write_trace(tmp_path / "t.json", [op(odd, 0, 1), op(long, 1, 2)]))
    assert trace.names[0].startswith('a "b"')
    trace.names[0].encode()  # half of a surrogate pair could not be stored
    assert len(trace.names[1]) == 2000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"   \n", "is not JSON"),
        (b"hello", "is not JSON: it begins with 'hello'"),
        (b'{"a": 1}', "has no traceEvents"),
        (b'{"traceEvents": []}', "holds no events"),
        (b'{"traceEvents": [{"ph": "M", "name": "process_name"}]}', "none of its events is of torch"),
        (b'{"deviceProperties": [', "has no traceEvents"),
        (gzip.compress(b"\0" * 1000, mtime=0), "is not JSON"),
        (b"\x1f\x8bnot really gzip", "cannot be read"),
    ],
    ids=("empty", "spaces", "a word", "no events", "empty list", "others", "cut head", "zeros", "no gzip"),
)
def test_what_is_no_trace_is_refused_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(GputuiError) as caught:
        read_trace(path)
    assert message in str(caught.value)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("limit", "content", "message"),
    [
        ("MOST_BYTES", b" " * 2**22, "GiB when decompressed"),
        ("_MOST_SPACES", b" " * 2**24, "MiB of blanks"),
        ("_BOMB_BYTES", b"{}," * 2**22, "300 times its size"),
    ],
)
def test_a_file_that_holds_next_to_nothing_is_refused_before_it_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, content: bytes, message: str
) -> None:
    monkeypatch.setattr(f"gputui.services.traces.chrome_trace.{limit}", 2**20)
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + content + b"{}]}"))
    with pytest.raises(GputuiError, match=message):
        read_trace(path)


def test_an_event_that_is_not_json_is_not_called_a_cut_file(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", STEP)
    path.write_text(path.read_text().replace('"cat": "kernel",', '"cat" "kernel",', 1))
    trace = read_trace(path)
    assert trace.damage == ("the next event is not JSON, after 3 entries: what follows is missing",)
    assert len(trace) == 3
