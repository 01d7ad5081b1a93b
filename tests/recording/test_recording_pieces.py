"""Parts of a supervisor: journal lines, specs, a worker's environment, texts without paths."""

from __future__ import annotations

import json
import os
import stat
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from builders import CPU_PLANNED, make_plan, make_spec
from hypothesis import given
from hypothesis import strategies as st

from gputui.errors import GputuiError
from gputui.model.journal import JOURNAL_NAME, SPEC_NAME, Event, Price, check_line, encode_line
from gputui.model.plan import PlannedDevice
from gputui.recording.run_directory import JournalWriter, Spec
from gputui.recording.worker_process import described_launch, without_paths, worker_environment

EVENTS = st.builds(Event, st.text(), st.text(), st.integers(0, 2**63))


@given(st.integers(0, 2**40), EVENTS)
def test_a_line_survives_its_check_and_comes_back(sequence: int, event: Event) -> None:
    line = encode_line(sequence, event)
    assert (line.count(b"\n"), line[-1:]) == (1, b"\n")
    body = json.loads(check_line(line[:-1]) or b"")
    assert body == {
        "n": sequence,
        "kind": "Event",
        "level": event.level,
        "message": event.message,
        "t_ns": event.t_ns,
    }


@given(EVENTS, st.data())
def test_a_line_with_a_changed_or_missing_byte_does_not_pass(event: Event, data: st.DataObject) -> None:
    line = encode_line(0, event)[:-1]
    at = data.draw(st.integers(line.index(b"{"), len(line) - 1))
    changed = bytes([data.draw(st.integers(0, 255).filter(lambda b: b != line[at]))])
    assert check_line(line[:at] + changed + line[at + 1 :]) is None
    assert check_line(line[:at] + line[at + 1 :]) is None
    assert check_line(line[:at]) is None


def test_each_line_is_one_write_whichever_thread_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []
    write = os.write

    def watched(descriptor: int, data: bytes) -> int:
        written.append(data)
        return write(descriptor, data)

    monkeypatch.setattr("gputui.recording.run_directory.os.write", watched)
    writer = JournalWriter(tmp_path)
    barrier = threading.Barrier(4)

    def append(thread: int) -> None:
        barrier.wait()
        for number in range(50):
            writer.append(Event("info", f"{thread} " + "x" * 5000, number))

    threads = [threading.Thread(target=append, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    raw = (tmp_path / JOURNAL_NAME).read_bytes()
    assert raw == b"".join(written)
    assert [data.count(b"\n") for data in written] == [1] * 200
    bodies = [json.loads(check_line(line) or b"") for line in raw.split(b"\n")[:-1]]
    assert [body["n"] for body in bodies] == list(range(200))


def test_a_line_that_cannot_be_written_leaves_no_gap_in_the_numbers(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path)
    price = Price(float("nan"), 1, "stated", "", "", "", "")
    with pytest.raises(ValueError, match="JSON"):
        writer.append(price)  # type: ignore[arg-type]  # any dataclass with a number
    writer.append(Event("info", "after", 1))
    writer.close()
    body = check_line((tmp_path / JOURNAL_NAME).read_bytes()[:-1])
    assert json.loads(body or b"")["n"] == 0


def test_a_journal_is_never_begun_twice(tmp_path: Path) -> None:
    JournalWriter(tmp_path).close()
    with pytest.raises(FileExistsError):
        JournalWriter(tmp_path)


PRICES = st.none() | st.builds(Price, st.floats(0, 100), st.floats(0, 8), *[st.text(max_size=5)] * 5)


@given(st.text(), PRICES, st.binary(min_size=32, max_size=32))
def test_a_spec_comes_back_as_it_was_written(label: str, price: Price | None, key: bytes) -> None:
    spec = replace(make_spec(make_plan([0])), label=label, price=price, hash_key=key)
    with tempfile.TemporaryDirectory() as run_dir:
        spec.write(Path(run_dir))
        assert Spec.read(Path(run_dir)) == spec


def test_a_spec_is_its_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_spec(make_plan([0])).write(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / SPEC_NAME).stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", '{"run_id": 1}'])
def test_a_damaged_spec_is_refused_in_words(tmp_path: Path, text: str) -> None:
    (tmp_path / SPEC_NAME).write_text(text)
    with pytest.raises(GputuiError, match="no spec of a run"):
        Spec.read(tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("nothing to hide", "nothing to hide"),
        ("3 / 4 and 5/6 and and/or", "3 / 4 and 5/6 and and/or"),
        ("cannot open /home/alice/models/gpt.bin", "cannot open gpt.bin"),
        ("cannot open '/home/alice/models/gpt.bin': no", "cannot open 'gpt.bin': no"),
        ('File "/opt/x/lib/torch/nn.py", line 3', 'File "nn.py", line 3'),
        ("a=/srv/alice/b.py:12", "a=b.py:12"),
        ("/home/alice/a.py:/home/bob/b.py", "a.py:b.py"),
        ("//home//alice//a.py", "a.py"),
        ("file:///home/alice/a.py", "file:a.py"),
        ("in /home/alice", "in ~"),
        ("in /home/alice/", "in ~"),
        ("in '/Users/alice'.", "in '~'."),
        ("/home/alice/x", "x"),
        ("see https://pytorch.org/docs", "see https:docs"),
    ],
)
def test_a_path_is_cut_to_its_last_part(text: str, expected: str) -> None:
    assert without_paths(text) == expected


NAMES = st.text("abcxyz-_.0123456789é", min_size=1, max_size=10).map(lambda name: f"u{name}q")


@given(NAMES, st.lists(NAMES, max_size=4), st.sampled_from(["{}", "in {}, line 3", "'{}'", "x={}", "({})"]))
def test_no_users_name_stays_in_a_text(user: str, parts: list[str], frame: str) -> None:
    path = "/".join(("/home", user, *parts))
    message = without_paths(frame.format(path))
    assert message.startswith(frame.format(parts[-1] if parts else "~").rstrip(")"))
    assert f"/{user}" not in message


GPU = PlannedDevice("gpu", "cuda", "NVIDIA H200", "GPU-abc", "")


@pytest.mark.parametrize(
    ("variable", "allowed", "visible", "seen"),
    [
        ("CUDA_VISIBLE_DEVICES", None, "GPU-abc", "GPU-abc"),
        ("CUDA_VISIBLE_DEVICES", "3,5", "GPU-abc", "GPU-abc"),
        ("CUDA_VISIBLE_DEVICES", None, "1", "1"),
        ("CUDA_VISIBLE_DEVICES", "", "1", "1"),
        ("CUDA_VISIBLE_DEVICES", "3,5", "0", "3"),
        ("CUDA_VISIBLE_DEVICES", "3, 5", "1", "5"),
        ("CUDA_VISIBLE_DEVICES", "GPU-x,GPU-y", "1", "GPU-y"),
        ("CUDA_VISIBLE_DEVICES", "3", "1", "1"),
        ("HIP_VISIBLE_DEVICES", "4,6", "1", "6"),  # on ROCm, where torch prefers it
    ],
)
def test_a_worker_sees_one_gpu_of_those_the_user_allowed(
    monkeypatch: pytest.MonkeyPatch, variable: str, allowed: str | None, visible: str, seen: str
) -> None:
    if allowed is not None:
        monkeypatch.setenv(variable, allowed)
    launch = replace(make_plan([0]).launches[0], device=replace(GPU, visible=visible))
    assert worker_environment(launch, {})[variable] == seen


def test_a_cpu_worker_sees_no_gpu_and_its_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "CUDA_VISIBLE_DEVICES": "3",
        "OMP_NUM_THREADS": "99",
        "HIP_VISIBLE_DEVICES": "4",
    }.items():
        monkeypatch.setenv(name, value)
    environment = worker_environment(replace(make_plan([0]).launches[0], device=CPU_PLANNED, threads=2), {})
    assert (environment["CUDA_VISIBLE_DEVICES"], environment["OMP_NUM_THREADS"]) == ("", "2")
    assert environment["HIP_VISIBLE_DEVICES"] == "-1"
    assert environment["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize(
    ("allowed", "visible", "seen"),
    [(None, "0", None), ("2,3", "0", "2,3"), (None, "1", "1"), ("2,3", "1", "3")],
)
def test_of_several_intel_gpus_a_worker_sees_first_the_one_it_measures(
    monkeypatch: pytest.MonkeyPatch, allowed: str | None, visible: str, seen: str | None
) -> None:
    monkeypatch.delenv("ZE_AFFINITY_MASK", raising=False)
    if allowed is not None:
        monkeypatch.setenv("ZE_AFFINITY_MASK", allowed)
    arc = PlannedDevice("gpu", "xpu", "Intel Arc B580", visible, "")
    launch = replace(make_plan([0]).launches[0], device=arc)
    assert worker_environment(launch, {}).get("ZE_AFFINITY_MASK") == seen
    described = described_launch(make_plan([0]), launch, Path("run"), 1.0, 1.0)
    assert described["device_name"] == "Intel Arc B580"  # which the worker compares with what it sees
