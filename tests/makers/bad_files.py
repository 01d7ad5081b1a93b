"""Things that have the name of a result file and are none."""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Callable
from pathlib import Path

import duckdb


def _not_duckdb(path: Path, whole: Path) -> None:
    path.write_text("my notes\n" * 3000)


def _empty(path: Path, whole: Path) -> None:
    path.write_bytes(b"")


def _sqlite(path: Path, whole: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (x)")
    connection.commit()
    connection.close()


def _truncated(path: Path, whole: Path) -> None:
    path.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])


def _only_a_heading(path: Path, whole: Path) -> None:
    path.write_bytes(whole.read_bytes()[:4096])


def _of_a_newer_schema(path: Path, whole: Path) -> None:
    path.write_bytes(whole.read_bytes())
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "UPDATE meta SET value = '99' WHERE key IN ('schema_version', 'min_reader_schema')"
        )


def _somebody_elses(path: Path, whole: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE sales (x INTEGER)")


def _directory(path: Path, whole: Path) -> None:
    path.mkdir()


def _fifo(path: Path, whole: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path, whole: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = Path.cwd()
        os.chdir(path.parent)  # the name of a socket is short
        try:
            made.bind(path.name)
        finally:
            os.chdir(here)


def _link_to_itself(path: Path, whole: Path) -> None:
    path.symlink_to(path)


BAD_FILES: tuple[Callable[[Path, Path], None], ...] = (
    _not_duckdb,
    _empty,
    _sqlite,
    _truncated,
    _only_a_heading,
    _of_a_newer_schema,
    _somebody_elses,
    _directory,
    _fifo,
    _socket,
    _link_to_itself,
)
FOR_ALL = (_not_duckdb, _of_a_newer_schema, _fifo)
