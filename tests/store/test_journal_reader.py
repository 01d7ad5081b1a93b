from __future__ import annotations

import json
import subprocess
import sys
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import (
    CASES,
    GPU_MACHINE,
    RUN_ID,
    journal_lines,
    make_case,
    make_telemetry,
    write_lines,
    write_telemetry,
)
from stored_loads import Server, load_lines

from gputui.errors import GputuiError
from gputui.metrics import CURRENT
from gputui.model.absent import Missing
from gputui.model.journal import (
    JOURNAL_NAME,
    TELEMETRY_NAME,
    Block,
    CaseEnd,
    CasePlanned,
    CaseWarm,
    Figure,
    LaunchEnd,
    LaunchStart,
    Line,
    MachineFound,
    RunEnd,
    RunStart,
    RuntimeFound,
    WorkerReady,
    encode_line,
)
from gputui.model.machine import Identity
from gputui.model.serving import LoadStep, Requests, ServerFound
from gputui.store import journal_reader
from gputui.store.journal_reader import JournalTail, TelemetryTail, read_journal, read_telemetry

LINES = journal_lines(machine=GPU_MACHINE, cases=(*CASES, make_case(device_class="gpu")))
ENCODED = [encode_line(number, line) for number, line in enumerate(LINES)]
WHOLE = b"".join(ENCODED)


def journal_of(run_dir: Path, raw: bytes) -> Path:
    (run_dir / JOURNAL_NAME).write_bytes(raw)
    return run_dir


def line_of(plain: dict[str, object]) -> bytes:
    """A line with valid length and checksum, whatever its content."""
    body = json.dumps(plain).encode()
    return b"%d %08x %s\n" % (len(body), zlib.crc32(body), body)


def plain_of(number: int) -> dict[str, object]:
    plain = json.loads(ENCODED[number].split(b" ", 2)[2])
    assert isinstance(plain, dict)
    return plain


def number_of(kind: type[Line]) -> int:
    return next(i for i, line in enumerate(LINES) if isinstance(line, kind))


def test_a_whole_journal_comes_back_as_it_was_written(tmp_path: Path) -> None:
    contents = read_journal(journal_of(tmp_path, WHOLE))

    assert list(contents.lines) == LINES
    assert contents.damage == ()
    assert (contents.start, contents.end) == (LINES[0], LINES[-1])
    assert contents.of(MachineFound) == (MachineFound(GPU_MACHINE),)
    start = contents.start
    assert contents.utc_us(start.started_ns + 2_500_000_999) == start.started_utc_us + 2_500_000


BLOCK, END = number_of(Block), number_of(CaseEnd)


@pytest.mark.parametrize(
    ("raw", "damage"),
    [
        pytest.param(WHOLE[:-1], (), id="only the last end of a line is missing"),
        pytest.param(
            WHOLE + encode_line(BLOCK, LINES[BLOCK + 1]),
            (f"sequence number {BLOCK}: used twice, the first is taken",),
            id="a number for two lines",
        ),
        pytest.param(
            WHOLE + encode_line(len(LINES), LINES[BLOCK]),
            ("Block left out: said a second time",),
            id="a block twice",
        ),
        pytest.param(
            WHOLE + line_of({"n": len(LINES), "kind": "Phase\x1b[2J", "name": "forward"}),
            (rf"line {len(LINES) + 1}: kind 'Phase\\x1b[2J' is not known to this gputui",),
            id="a newer kind",
        ),
        pytest.param(
            WHOLE.replace(ENCODED[BLOCK], line_of({**plain_of(BLOCK), "phase": "forward"})),
            (),
            id="a newer field",
        ),
        pytest.param(
            b"".join([*ENCODED[:5], *reversed(ENCODED[5:]), ENCODED[7], ENCODED[0]]),
            (
                "sequence number 7: repeated, taken once",
                "sequence number 0: repeated, taken once",
                "lines out of order, put in order of their sequence numbers",
            ),
            id="reordered and repeated",
        ),
        pytest.param(
            WHOLE + b"nonsense\n" * 60,
            (
                *(f"line {len(LINES) + n}: length or checksum does not hold" for n in range(1, 51)),
                "and 10 more",
            ),
            id="of much damage the first fifty are listed",
        ),
    ],
)
def test_what_is_more_than_a_journal_is_left_out_and_named(
    tmp_path: Path, raw: bytes, damage: tuple[str, ...]
) -> None:
    contents = read_journal(journal_of(tmp_path, raw))
    assert list(contents.lines) == LINES
    assert contents.damage == damage


def test_a_torn_tail_is_cut_and_named(tmp_path: Path) -> None:
    contents = read_journal(journal_of(tmp_path, WHOLE[:-9]))

    assert list(contents.lines) == LINES[:-1]
    assert contents.damage == (f"line {len(LINES)}: cut off while it was written",)
    assert contents.end is None


def nested(pair: str) -> object:
    deep: object = 0
    for _ in range(100):
        deep = [deep] if pair == "[]" else {"in": deep}
    return deep


TOO_DEEP = "Block: nested too deeply"


@pytest.mark.parametrize(
    ("number", "field", "value", "why"),
    [
        *((BLOCK, "wall_ns", value, "") for value in (-1, 0, "200000000", 2.5, True, None, 2**63, 10**40)),
        *((BLOCK, "wall_ns", value, "") for value in ({"missing": "lost"}, float("nan"), float("inf"))),
        (BLOCK, "device_ns", -5, "Block: device_ns is -5"),
        (BLOCK, "cpu_ns", -5, ""),
        (BLOCK, "steps", 0, ""),
        (BLOCK, "launch_id", 99, ""),
        (BLOCK, "case_id", 99, ""),
        (BLOCK, "newer", nested("[]"), TOO_DEEP),
        (BLOCK, "newer", nested("{}"), TOO_DEEP),
        (END, "outcome", "great", "CaseEnd: outcome is 'great'"),
    ],
)
def test_a_line_that_cannot_be_is_left_out_alone(
    tmp_path: Path, number: int, field: str, value: object, why: str
) -> None:
    wrong = line_of({**plain_of(number), field: value})
    contents = read_journal(journal_of(tmp_path, WHOLE.replace(ENCODED[number], wrong)))

    assert list(contents.lines) == LINES[:number] + LINES[number + 1 :]
    assert contents.damage
    assert not why or contents.damage[0] == f"line {number + 1}: {why}"


def test_a_flipped_bit_costs_its_line_alone_and_the_line_is_named(tmp_path: Path) -> None:
    broken = ENCODED[BLOCK].replace(b"wall_ns", b"wall_nt")
    contents = read_journal(journal_of(tmp_path, WHOLE.replace(ENCODED[BLOCK], broken)))

    assert list(contents.lines) == LINES[:BLOCK] + LINES[BLOCK + 1 :]
    assert contents.damage[0] == f"line {BLOCK + 1}: length or checksum does not hold"
    assert f"sequence numbers {BLOCK} are missing" in contents.damage
    assert any("5 of 6 blocks are there" in sentence for sentence in contents.damage)


@pytest.mark.parametrize(("seed", "is_kept"), [(0, True), (2**64 - 1, True), (2**64, False), (-1, False)])
def test_a_seed_has_64_bits_and_no_sign(tmp_path: Path, seed: int, is_kept: bool) -> None:
    journal_of(tmp_path, line_of({**plain_of(0), "seed": seed}) + WHOLE[len(ENCODED[0]) :])
    if is_kept:
        assert read_journal(tmp_path).start.seed == seed
    else:
        with pytest.raises(GputuiError, match="no readable first line"):
            read_journal(tmp_path)


def test_a_parameter_of_a_workload_may_be_negative(tmp_path: Path) -> None:
    work = replace(CASES[0].work, parameters=(("shift", -3), ("scale", -0.5)))
    lines = journal_lines(cases=(replace(CASES[0], work=work),), skipped=())
    contents = read_journal(write_lines(tmp_path, lines))

    assert list(contents.lines) == lines
    assert contents.damage == ()


@pytest.mark.parametrize(
    ("units_per_step", "version"),
    [*((value, 1) for value in (float("inf"), float("nan"), -1.0, "1", None)), (1.0, -1)],
)
def test_a_case_that_cannot_be_is_left_out_with_its_blocks(
    tmp_path: Path, units_per_step: object, version: int
) -> None:
    plain = plain_of(3)
    planned = plain["planned"]
    assert isinstance(planned, dict)
    planned["case"]["units_per_step"] = units_per_step
    planned["case"]["work"]["version"] = version
    contents = read_journal(journal_of(tmp_path, WHOLE.replace(ENCODED[3], line_of(plain))))

    assert LINES[3] not in contents.lines
    assert contents.damage[0].startswith("line 4: ")
    assert not any(block.case_id == 0 for block in contents.of(Block))


def test_a_machine_keeps_what_identifies_it(tmp_path: Path) -> None:
    machine = replace(
        GPU_MACHINE, identities=(Identity("gpus", "0f1e2d3c4b5a"), Identity("host", "69788796a5b4"))
    )
    contents = read_journal(write_lines(tmp_path, [LINES[0], MachineFound(machine)]))

    assert contents.damage == ()
    assert contents.of(MachineFound) == (MachineFound(machine),)


def test_without_a_journal_the_error_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(GputuiError, match=r"no journal can be read in .*: No such file") as caught:
        read_journal(tmp_path)
    assert JOURNAL_NAME in caught.value.hint


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        *(
            (raw, "no readable first line")
            for raw in (b"", b"\n", b"hello\n", WHOLE[len(ENCODED[0]) :], b"\xff" * 4096)
        ),
        (line_of({**plain_of(0), "schema": 2}), "has schema 2, this gputui reads 1"),
        (line_of({**plain_of(0), "run_id": "../../etc/passwd"}), "is no UUID"),
    ],
)
def test_a_journal_of_no_run_or_of_a_newer_schema_is_refused(tmp_path: Path, raw: bytes, why: str) -> None:
    with pytest.raises(GputuiError, match=why):
        read_journal(journal_of(tmp_path, raw))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(number=st.integers(1, len(LINES) - 1), data=st.data())
def test_any_value_in_the_place_of_another_is_either_possible_or_left_out(
    tmp_path_factory: pytest.TempPathFactory, number: int, data: st.DataObject
) -> None:
    plain = plain_of(number)
    plain[data.draw(st.sampled_from(sorted(plain)))] = data.draw(JSON_VALUES)
    run_dir = tmp_path_factory.mktemp("values")
    lines = [*ENCODED[:number], line_of(plain), *ENCODED[number + 1 :]]

    contents = read_journal(journal_of(run_dir, b"".join(lines)))

    for block in contents.of(Block):
        assert block.wall_ns > 0
        assert block.steps > 0
        assert block.cpu_ns is None or block.cpu_ns >= 0


def test_the_tail_gives_each_line_once_and_waits_for_the_rest_of_a_torn_one(tmp_path: Path) -> None:
    tail = JournalTail(tmp_path)
    assert tail.poll() == []
    seen: list[Line] = []
    with (tmp_path / JOURNAL_NAME).open("wb", buffering=0) as journal:
        for start in range(0, len(WHOLE), 97):
            journal.write(WHOLE[start : start + 97])
            seen += tail.poll()
    assert seen == LINES
    assert tail.poll() == []


def test_the_tail_passes_over_a_damaged_line(tmp_path: Path) -> None:
    journal_of(tmp_path, ENCODED[0] + b"17 deadbeef nonsense\n" + ENCODED[1])

    assert JournalTail(tmp_path).poll() == LINES[:2]


def test_telemetry_comes_back_in_order_and_a_damaged_row_costs_itself_alone(tmp_path: Path) -> None:
    readings = make_telemetry(seconds=700, gpus=1)
    write_telemetry(tmp_path, readings)
    path = tmp_path / "telemetry.bin"
    raw = bytearray(path.read_bytes())
    raw[len(CURRENT.header()) + 5 * CURRENT.row_bytes + 3] ^= 0x40
    path.write_bytes(raw[:-7])

    telemetry = read_telemetry(tmp_path)
    found = [(r.device, r.t_ns) for r in telemetry]

    expected = [(r.device, r.t_ns) for r in readings]
    assert found == expected[:5] + expected[6:-1]
    assert telemetry.damage == (
        f"telemetry: 1 of {len(readings) - 1} rows damaged",
        "telemetry: the last row was cut off while it was written",
    )


def test_telemetry_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / TELEMETRY_NAME).mkdir()
    telemetry = read_telemetry(tmp_path)
    assert telemetry.is_readable
    assert list(telemetry) == []
    assert not telemetry.is_readable
    assert telemetry.damage == ("telemetry: cannot be read: Is a directory",)


def test_a_run_without_telemetry_has_none(tmp_path: Path) -> None:
    assert list(read_telemetry(tmp_path)) == []


def test_reading_a_journal_loads_neither_the_database_nor_numpy() -> None:
    code = (
        "import sys, gputui.store.journal_reader; print([m for m in ('duckdb', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_run_ids_are_taken_in_one_spelling(tmp_path: Path) -> None:
    start = LINES[0]
    assert isinstance(start, RunStart)
    write_lines(tmp_path, [replace(start, run_id=RUN_ID.upper().replace("-", "")), *LINES[1:]])

    assert read_journal(tmp_path).start.run_id == RUN_ID


def test_the_tail_of_telemetry_gives_each_reading_once_also_of_a_file_that_was_replaced(
    tmp_path: Path,
) -> None:
    readings = make_telemetry()
    assert TelemetryTail(tmp_path).poll() == ()
    write_telemetry(tmp_path, readings[:6])
    tail = TelemetryTail(tmp_path)

    def polled() -> list[int]:
        found = tail.poll()
        assert not isinstance(found, Missing)
        return [reading.t_ns for reading in found]

    times = [reading.t_ns for reading in readings]
    assert polled() == times[:6]
    assert polled() == []
    with (tmp_path / TELEMETRY_NAME).open("ab") as file:
        file.write(b"".join(CURRENT.encode(reading) for reading in readings[6:9]))
    assert polled() == times[6:9]

    other = tmp_path / "other"
    other.mkdir()
    write_telemetry(other, readings[2:])
    (other / TELEMETRY_NAME).replace(tmp_path / TELEMETRY_NAME)
    assert polled() == times[9:]
    assert polled() == []


def test_of_a_large_telemetry_file_the_tail_reads_the_end_and_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_reader, "_MOST_ROWS_AT_FIRST", 4)
    readings = make_telemetry()
    path = tmp_path / TELEMETRY_NAME
    path.write_bytes(b"")
    tail = TelemetryTail(tmp_path)
    assert tail.poll() == ()

    write_telemetry(tmp_path, readings[:-2])
    assert tail.poll() == tuple(readings[-6:-2])
    with path.open("ab") as file:
        file.write(b"".join(map(CURRENT.encode, readings[-2:])))
    assert tail.poll() == tuple(readings[-2:])


OF_LOADS = load_lines(Server(), users=(2,), launches=1, requests=1)


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        *((LINES, kind) for kind in (RunStart, MachineFound, RuntimeFound, CasePlanned, LaunchStart)),
        *((LINES, kind) for kind in (WorkerReady, CaseWarm, Block, CaseEnd, LaunchEnd, RunEnd)),
        *((OF_LOADS, kind) for kind in (ServerFound, LoadStep, Requests, Figure)),
    ],
)
def test_a_line_of_any_kind_that_is_said_twice_counts_once(
    tmp_path: Path, lines: Sequence[Line], kind: type[Line]
) -> None:
    again = next(line for line in lines if isinstance(line, kind))
    contents = read_journal(write_lines(tmp_path, [*lines, again]))
    assert contents.damage == (f"{kind.__name__} left out: said a second time",)
    assert list(contents.lines) == list(lines)
