"""Prints the page that describes the result file: `python -m gputui.store.describe`."""

from __future__ import annotations

from gputui.store.schema import BLOCK_BYTES, MIN_READER_SCHEMA, SCHEMA_VERSION, STORAGE_VERSION, as_markdown
from gputui.store.views import VIEWS

_PAGE = """# The result file

One file holds any number of runs. It is a DuckDB database of storage version {storage} with {block} KiB
blocks, so DuckDB 1.4 and later read it. Its schema is version {version}, which is frozen: tables and columns
keep their names, types and meaning. Readers of schema {reader} and later read it.

- NULL means *not measured* or *could not be had*, never 0. `absent_json` gives the reasons where there are
  some.
- Instants end in `_us` and are UTC in microseconds since 1970. Durations end in `_ns`. Other units are in the
  names too.
- Tables and columns have comments, and two views, `rates` and `latest_cases`, are there to [query](sql.md). A
  file of an older version gets them when something is written to it.
- Views of your own may stay in the file: gputui reads tables alone. It writes no macro, trigger or generated
  column: a file that has one is refused, and `--trust` reads its tables all the same.
- A run is written in one transaction, then the file is checkpointed and closed: a copy of the file alone is
  whole. If `FILE.wal` lies beside it, a writer was killed: copy both, or open the file once with gputui.
- `FILE.lock` is held while something is written. It may be removed when nothing writes.
- Later versions only add tables and columns. An older file is read as it is, with NULL for what it lacks, and
  reading never changes a file: it gets what is new when a run is stored in it or merged into it, which
  `migrations` notes. A newer file is read as far as this gputui knows it, unless `meta.min_reader_schema` is
  above the schema of this gputui; then it is refused.
- A stranger's file is opened only by `gputui.store.reading.open_result`, several by `open_results`, never by
  `duckdb.connect`.

To look at it with DuckDB itself, if you made it: `duckdb -readonly results.db`; [twelve answers in
SQL](sql.md).

## Views

{views}
## Tables

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
