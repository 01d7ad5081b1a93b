"""The one reader of JSON: what it takes is JSON of bounded depth, with numbers and texts that can be kept."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from mutations import mutated

from gputui.worker.foreign_json import DEEPEST, number, read_json, read_json_file, scan_json, whole


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"[" * 100_000, "nested more than 64 deep"),
        (b"[" * 65 + b"]" * 65, "nested more than 64 deep"),
        (b'{"a":' * 200 + b"1" + b"}" * 200, "nested more than 64 deep"),
        (b"NaN", "JSON has no NaN"),
        (b"[-Infinity]", "JSON has no -Infinity"),
        (b'{"x": 1e400}', "a number that is too large"),
        (b'{"x": [-1E+999]}', "a number that is too large"),
        (b"9" * 400 + b".5", "a number that is too large"),
        (b"18446744073709551616", "a number of more than 64 bits"),
        (b"-" + b"9" * 4000, "a number of more than 64 bits"),
        (b"9" * 5000, "Exceeds the limit"),
        (rb'{"x": "\ud800"}', "surrogates not allowed"),
        (rb'{"\uDFFF": 1}', "surrogates not allowed"),
        (b'"\xff"', "invalid start byte"),
        (b"", "Expecting value"),
        (b"{} {}", "Extra data"),
        (b'{"a": 1', "Expecting"),
        (b'"' + b"x" * 100 + b'"', "more than 100 bytes"),
    ],
    ids=lambda value: value[:20] if isinstance(value, bytes) else None,
)
def test_what_could_end_a_program_later_is_refused_at_once(text: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        read_json(text, 100 if "100 bytes" in why else 2**20)


def test_what_gputui_and_its_peers_write_is_read_as_it_was_written() -> None:
    values = [
        0,
        -1,
        2**64 - 1,
        1.5,
        1e300,
        5e-324,
        "ü🙂\x1b",
        True,
        None,
        {"a": [{}, [[]], {"missing": "x"}]},
    ]
    assert read_json(json.dumps(values)) == values
    assert read_json(json.dumps(values, ensure_ascii=False).encode()) == values
    deepest: object = 1
    for _ in range(DEEPEST):
        deepest = [deepest]
    assert read_json(json.dumps(deepest)) == deepest
    assert read_json(json.dumps([[1]] * 1000)) == [[1]] * 1000
    assert read_json(r'"\ud83d\ude42"') == "🙂"


def test_a_large_file_is_refused_before_all_of_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    with file.open("wb") as sparse:
        sparse.truncate(2**40)
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        read_json_file(file, 1000)
    file.write_text('{"a": 1}')
    assert read_json_file(file, 1000) == {"a": 1}


def test_a_part_of_a_longer_text_has_the_same_limit_of_depth() -> None:
    assert scan_json('[1, {"ts": 1.25}], ', 4) == ({"ts": "1.25"}, 16)
    with pytest.raises(ValueError, match="nested"):
        scan_json("[" * 70 + "]" * 70, 0)
    with pytest.raises(ValueError, match="nested"):
        scan_json("[" * 100_000, 0)


@pytest.mark.parametrize("plain", [True, "1", None, [], -1, 11, 1e308])
def test_a_number_out_of_its_range_or_of_another_type_is_named(plain: object) -> None:
    with pytest.raises(ValueError, match="from 0 to 10"):
        number(plain, 0, 10)
    with pytest.raises(ValueError, match="from 0 to 10"):
        whole(plain, 0, 10)
    with pytest.raises(ValueError, match="not a whole number"):
        whole(1.0, 0, 10)
    assert (number(3, 0, 10), whole(3, 0, 10)) == (3.0, 3)


def test_a_mutated_text_is_read_or_refused_and_what_is_read_can_be_written() -> None:
    chance = random.Random(7)
    value = {"devices": {"nvml 0": {"values": {"power_w": 690.5, "name": "H200"}}}, "order": ["nvml 0"]}
    read = 0
    for _ in range(300):
        try:
            found = read_json(mutated(value, chance))
        except ValueError:
            continue
        read += 1
        json.dumps(found, allow_nan=False, ensure_ascii=False).encode("utf-8")
    assert 50 < read < 290
