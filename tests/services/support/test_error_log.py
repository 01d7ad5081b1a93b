"""The log of errors that screens have shown."""

from __future__ import annotations

import re
from pathlib import Path

from gputui.services.support.paths import LONGEST_FILE, error_log, keep_error, kept_errors, places


def test_each_error_is_a_line_with_time_and_screen_and_the_newest_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "state" / "errors.log"
    keep_error(path, "results", "a.db: is damaged: take a copy")
    keep_error(path, "run", "Traceback:\n  in f\nValueError: \x1b[31m温度\u202e")
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    assert re.fullmatch(
        f"{time} results: a.db: is damaged: take a copy\n"
        f"{time} run: Traceback:\n      in f\n    ValueError: \\\\x1b\\[31m温度\\\\u202e\n",
        path.read_text(encoding="utf-8"),
    )
    assert [row.partition("Z ")[2] or row for row in kept_errors(path)] == [
        "run: Traceback:",
        "      in f",
        r"    ValueError: \x1b[31m温度\u202e",
        "results: a.db: is damaged: take a copy",
    ]


def test_a_file_that_is_too_long_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "errors.log"
    path.write_bytes(b"an error\n" * (LONGEST_FILE // 9 + 1))
    assert set(kept_errors(path)) == {"an error"}
    keep_error(path, "run", "number 2")
    assert path.stat().st_size < 100
    assert [row.endswith("run: number 2") for row in kept_errors(path)] == [True]


def test_a_place_that_cannot_be_written_is_no_second_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    keep_error(tmp_path / "file" / "errors.log", "run", "text")
    assert kept_errors(tmp_path / "file" / "errors.log") == ()


def test_the_file_is_among_the_places() -> None:
    keep_error(error_log(), "run", "text")
    (place,) = (place for place in places() if place.path == error_log().parent)
    assert place.exists
    assert place.what == "errors"
