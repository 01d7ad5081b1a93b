"""Prints the page that describes the result file: `python -m gputui.store.describe`."""

from __future__ import annotations

from gputui.store.schema import BLOCK_BYTES, MIN_READER_SCHEMA, SCHEMA_VERSION, STORAGE_VERSION, as_markdown
from gputui.store.views import VIEWS

_PAGE = """# The result file: tables and columns

One result file holds any number of runs. It is a DuckDB database of storage version {storage} with {block}
KiB blocks, which DuckDB 1.4 and later read: `duckdb -readonly results.db`, if you made it; [twelve answers in
SQL](sql.md). Its schema is version {version}, which is frozen: tables and columns keep their names, types and
meaning. Readers of schema {reader} and later read it.

- NULL means *not measured* or *could not be had*, never 0. `absent_json` has reasons, by column.
- Instants end in `_us` and are UTC in microseconds since 1970. Durations end in `_ns`. Other units are in the
  names, too.
- Views of your own may stay in a result file: gputui reads tables alone. [Macros and
  triggers](housekeeping.md#a-file-from-somebody-else) may not.
- A run is written in one transaction, then the file is checkpointed and closed: a copy of the file alone is
  whole. `FILE.wal` beside it means that a writer was killed: copy both, or open the file once with gputui.
- `FILE.lock` is held while something is written. You may remove it when nothing writes.
- Later versions only add tables and columns, which are NULL for older files. Reading never changes a file:
  what is new comes when a run is stored in it or merged into it. A newer file is read as far as this gputui
  knows it, and refused if its `meta.min_reader_schema` is above {version}.
- In Python, open a stranger's file with `gputui.store.reading.open_result`, several with `open_results`,
  never with `duckdb.connect`.

## Views

{views}
## Tables

Every table but `meta` and `migrations` begins with `run_id` (UUID), the UUIDv7 of the run. A column without a
type is BIGINT.

{tables}"""


def page() -> str:
    """The whole page, as in `docs/result-file.md`."""
    return _PAGE.format(
        storage=STORAGE_VERSION,
        block=BLOCK_BYTES // 1024,
        version=SCHEMA_VERSION,
        reader=MIN_READER_SCHEMA,
        tables=as_markdown(),
        views="".join(f"- `{view.name}`: {view.meaning}\n" for view in VIEWS),
    )


if __name__ == "__main__":
    print(page(), end="")
