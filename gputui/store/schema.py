"""The tables of a result file, their version, and the migrations of older files.

Schema 1 is frozen: `tests/store/schema_1.txt` lists its tables and columns, which keep their names, types and
meaning. What is added later needs no new version: a new column, or a new table with `is_late`, is NULL or
empty in an older file, which gets it when something is written to it. A new version with a `Migration` is
needed only if rows must be filled in, or if an older gputui would take the file for something else: then
MIN_READER_SCHEMA is raised too, and that gputui refuses the file.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Container
from dataclasses import dataclass

from gputui.metrics import STORED

SCHEMA_VERSION = 1
MIN_READER_SCHEMA = 0
"""Oldest reader that understands what this version writes."""
FORMAT_NAME = "gputui result file"
"""Value of `meta.format`, which distinguishes our files from other DuckDB databases."""
STORAGE_VERSION = "v1.4.0"  # the oldest release of DuckDB that reads our files
BLOCK_BYTES = 65536  # with DuckDB's 256 KiB, a file of small runs would be four times as large

_SQL_TYPES = {"f": "FLOAT", "Q": "UBIGINT"}


@dataclass(frozen=True, slots=True)
class Column:
    """One column, with its unit in its name."""

    name: str
    sql_type: str
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """One table; NULL always means that the value was not measured or is unavailable."""

    name: str
    meaning: str
    columns: tuple[Column, ...]
    primary_key: str = ""
    is_late: bool = False
    """Added after the first files were made: a file may lack it, and gets it when it is written to."""

    @property
    def column_names(self) -> tuple[str, ...]:
        """In order."""
        return tuple(column.name for column in self.columns)

    def cells_sql(self, there: Container[tuple[str, str]], names: Collection[str] | None = None) -> str:
        """Its columns, or these of them, for a SELECT from a file that has only those that are `there`.

        NULL stands for those that it lacks.
        """
        return ", ".join(
            column.name if (self.name, column.name) in there else f"NULL::{column.sql_type} AS {column.name}"
            for column in self.columns
            if names is None or column.name in names
        )

    def create_sql(self, catalog: str) -> str:
        """The statement that creates this table in an attached database."""
        parts = [f"{c.name} {c.sql_type}" for c in self.columns]
        if self.primary_key:
            parts.append(f"PRIMARY KEY ({self.primary_key})")
        return f"CREATE TABLE {catalog}.main.{self.name} ({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class Migration:
    """One step from a schema version to the next; tables and columns that it adds come by themselves."""

    version: int
    """Schema version after it."""
    note: str
    statements: tuple[str, ...]
    """SQL with `{catalog}` as placeholder of the database's name, such as to fill in a new column."""


def _columns(*lines: str) -> tuple[Column, ...]:
    """Columns from lines of `name TYPE meaning`."""
    columns = []
    for line in lines:
        name, sql_type, *meaning = line.split(" ", 2)
        columns.append(Column(name, sql_type, meaning[0] if meaning else ""))
    return tuple(columns)


def _telemetry_columns(scope: str) -> tuple[Column, ...]:
    return tuple(Column(m.stored.key, _SQL_TYPES[m.code], m.title) for m in STORED if m.scope == scope)


_RUN_ID = "run_id UUID UUIDv7 of the run"
_ABSENT = "absent_json VARCHAR reasons of NULLs in this row, by column"

META = Table(
    "meta",
    "What this file is.",
    _columns(
        "key VARCHAR format, schema_version, min_reader_schema, created_by",
        "value VARCHAR",
    ),
    primary_key="key",
)

TABLES: tuple[Table, ...] = (
    META,
    Table(
        "migrations",
        "Each schema version this file has had.",
        _columns(
            "version BIGINT",
            "applied_us BIGINT UTC epoch microseconds",
            "gputui_version VARCHAR",
            "duckdb_version VARCHAR",
            "note VARCHAR",
        ),
    ),
    Table(
        "runs",
        "One execution of a profile on one machine in one runtime.",
        _columns(
            _RUN_ID,
            "started_us BIGINT UTC epoch microseconds",
            "ended_us BIGINT NULL if the run was cut short",
            "started_ns BIGINT monotonic clock of the box at started_us",
            "utc_offset_min BIGINT local time of the box, for display",
            "status VARCHAR finished, interrupted, or failed (also if nothing was measured)",
            "status_reason VARCHAR",
            "profile VARCHAR",
            "profile_version BIGINT",
            "seed UBIGINT",
            "replicates BIGINT launches planned per case",
            "budget_s DOUBLE",
            "label VARCHAR the user's own word",
            "gputui_version VARCHAR",
            "imported_from VARCHAR name of the place the journal came from; empty for this box",
            "stored_us BIGINT when it was written to this file",
            "python_version VARCHAR",
            "python_implementation VARCHAR",
            "torch_version VARCHAR",
            "cuda_version VARCHAR CUDA that torch was built with",
            "hip_version VARCHAR",
            "cudnn_version VARCHAR",
            "nccl_version VARCHAR",
            "triton_version VARCHAR",
            "arch_list VARCHAR GPU architectures of this torch, joined by spaces",
            "cpu_capability VARCHAR",
            "blas VARCHAR",
            "platform_layer VARCHAR such as runpod or colab",
            "scheduler_layer VARCHAR",
            "container_layer VARCHAR",
            "vm_layer VARCHAR",
            "os_layer VARCHAR",
            "layers_json VARCHAR the layers with the names of their signals",
            _ABSENT,
            "variables VARCHAR environment variables that change arithmetic or launching, as set",
        ),
        primary_key="run_id",
    ),
    Table(
        "machines",
        "The box of a run.",
        _columns(
            _RUN_ID,
            "machine_id VARCHAR keyed hash, 12 hex digits",
            "cpu_model VARCHAR",
            "cpu_sockets BIGINT",
            "cpu_host_cores BIGINT",
            "cpu_host_threads BIGINT",
            "cpu_usable_threads DOUBLE",
            "cpu_usable_cores BIGINT",
            "cpu_limited_by VARCHAR",
            "cpu_last_level_cache_bytes BIGINT",
            "cpu_features VARCHAR joined by spaces",
            "memory_host_bytes BIGINT",
            "memory_usable_bytes BIGINT",
            "memory_limited_by VARCHAR",
            "memory_shm_bytes BIGINT",
            "gpus_absent VARCHAR why there are no GPUs",
            "instance_type VARCHAR",
            "region VARCHAR",
            "os_name VARCHAR",
            "kernel VARCHAR",
            "libc VARCHAR",
            "driver_version VARCHAR",
            "cuda_driver_version VARCHAR",
            _ABSENT,
            "box_id VARCHAR one id for all runs of this box in the file, set when it is written",
        ),
    ),
    Table(
        "identities",
        "What the box of a run is known by, the surest first. Boxes that share an id are one.",
        _columns(
            _RUN_ID,
            "kind VARCHAR stated, product-uuid, machine-id, gpus, account, boot or run",
            "id VARCHAR keyed hash, 12 hex digits; of account under the user's key",
        ),
        is_late=True,
    ),
    Table(
        "devices",
        "The GPUs of the box of a run.",
        _columns(
            _RUN_ID,
            "device_index BIGINT in the driver's order",
            "gpu_id VARCHAR keyed hash of the UUID, 12 hex digits",
            "device_name VARCHAR",
            "vendor VARCHAR",
            "memory_bytes BIGINT",
            "power_limit_w DOUBLE",
            "power_default_limit_w DOUBLE",
            "compute_capability VARCHAR",
            "pcie_generation_max BIGINT",
            "pcie_width_max BIGINT",
            "pcie_width BIGINT",
            "ecc_enabled BOOLEAN",
            "mig_enabled BOOLEAN",
            "temperature_limit_c DOUBLE where the driver begins to slow it",
            _ABSENT,
        ),
    ),
    Table(
        "prices",
        "What the box of a run costs; no row if that is not known.",
        _columns(
            _RUN_ID,
            "usd_per_hour DOUBLE",
            "gpu_count DOUBLE",
            "kind VARCHAR",
            "provider VARCHAR",
            "instance_type VARCHAR",
            "region VARCHAR",
            "list_date VARCHAR",
        ),
    ),
    Table(
        "cases",
        "What was to be measured, and how it ended.",
        _columns(
            _RUN_ID,
            "case_id BIGINT number within the run",
            "work_key VARCHAR equal if and only if the work is",
            "workload VARCHAR",
            "workload_version BIGINT",
            "size VARCHAR",
            "form VARCHAR",
            "parameters_json VARCHAR list of name and value",
            "device_class VARCHAR cpu or gpu; host for a recording",
            "device_index BIGINT",
            "device_name VARCHAR",
            "precision VARCHAR as requested; own for a program",
            "mode VARCHAR",
            "threads VARCHAR as requested",
            "workload_class VARCHAR",
            "unit VARCHAR",
            "units_per_step DOUBLE",
            "flops_per_step BIGINT",
            "bytes_per_step BIGINT",
            "outcome VARCHAR ok, oom, unsupported, skipped, failed or interrupted",
            "reason VARCHAR",
        ),
    ),
    Table(
        "launches",
        "Worker processes.",
        _columns(
            _RUN_ID,
            "launch_id BIGINT",
            "replicate BIGINT",
            "threads_planned BIGINT",
            "threads_used BIGINT",
            "allowance_s DOUBLE",
            "startup_ns BIGINT",
            "started_us BIGINT",
            "ended_us BIGINT",
            "outcome VARCHAR",
            "reason VARCHAR",
            "exit_status BIGINT negative for a signal",
            "is_fork BOOLEAN whether it was forked from a process that had imported torch",
        ),
    ),
    Table(
        "measurements",
        "One case in one launch.",
        _columns(
            _RUN_ID,
            "case_id BIGINT",
            "launch_id BIGINT",
            "replicate BIGINT",
            "outcome VARCHAR",
            "reason VARCHAR",
            "precision_used VARCHAR NULL if it never became warm",
            "build_ns BIGINT",
            "first_step_ns BIGINT",
            "warmup_ns BIGINT",
            "warmup_blocks BIGINT",
            "stable BOOLEAN",
            "steps_per_block BIGINT",
            "layout VARCHAR of its images, nhwc or nchw, if a trial found that faster; else empty",
        ),
    ),
    Table(
        "blocks",
        "Timed groups of steps.",
        _columns(
            _RUN_ID,
            "case_id BIGINT",
            "launch_id BIGINT",
            "block_index BIGINT",
            "steps BIGINT",
            "t_us BIGINT start, UTC epoch microseconds",
            "start_ns BIGINT start, monotonic clock of the box",
            "wall_ns BIGINT",
            "device_ns BIGINT between two events of the device; NULL on a CPU",
            "cpu_ns BIGINT CPU time of the worker, or of a program and its children; NULL between matches",
            "waited_ns BIGINT time its threads were ready to run but waited for a CPU",
        ),
    ),
    Table(
        "figures",
        "Results of a case in one launch that are not a speed.",
        _columns(
            _RUN_ID,
            "case_id BIGINT",
            "launch_id BIGINT",
            "figure_index BIGINT its place among those of its case",
            "key VARCHAR ends in its unit",
            "title VARCHAR",
            "unit VARCHAR s, B, B/s, 1/s, share (0 to 1), ratio or count",
            "better VARCHAR less, more or neither",
            "combine VARCHAR how several launches become one: median, sum, max or min",
            "value DOUBLE",
            "reason VARCHAR why there is no value; NULL if there is one",
            "observations BIGINT how many it is made of",
        ),
        is_late=True,
    ),
    Table(
        "profiled_passes",
        "What was traced of a case under torch.profiler, by the worker that had just timed it.",
        _columns(
            _RUN_ID,
            "case_id BIGINT",
            "launch_id BIGINT",
            "is_valid BOOLEAN false: the trace is not believed and has no operators",
            "reason VARCHAR why it is not",
            "steps BIGINT of the window",
            "window_ns BIGINT",
            "events BIGINT lines of the trace",
            "event_cost_ns BIGINT host time that one event adds",
            "unmatched_ns BIGINT device time without an operator",
            "memory_reason VARCHAR why there is no split of the memory",
            "trace_bytes BIGINT of the Chrome trace that was kept; 0 for none",
            "before_ns BIGINT median step of the process before the window, not profiled; 0 if unknown",
            "waited_share DOUBLE of the threads' time in the window, for CPUs that other programs had",
            "others_cores DOUBLE that other programs used meanwhile",
        ),
        is_late=True,
    ),
    Table(
        "operators",
        "The window's time by operator; sums to the breakdown without idle time.",
        _columns(
            _RUN_ID,
            "case_id BIGINT",
            "launch_id BIGINT",
            "phase VARCHAR data, forward, backward or optimizer",
            "category VARCHAR",
            "operator VARCHAR the outermost one; others for what was too short for a row",
            "shapes VARCHAR of its inputs",
            "dtypes VARCHAR of its inputs",
            "calls BIGINT in the whole window",
            "events BIGINT lines of the trace",
            "time_ns BIGINT of the window, this row's alone",
            "cpu_ns BIGINT of the host",
            "kernels BIGINT kernels and copies it launched",
            "kernel_ns BIGINT sum of their durations; empty in older files",
        ),
        is_late=True,
    ),
    Table(
        "breakdown",
        "The exact partition of the window; its sum by phase is the time of the phase.",
        _columns(
            _RUN_ID,
            "case_id BIGINT",
            "launch_id BIGINT",
            "phase VARCHAR",
            "time_class VARCHAR compute, communication, copy_h2d, copy_d2h, copy_d2d, memset or idle",
            "cause VARCHAR of idle time, what the host did meanwhile; empty otherwise",
            "time_ns BIGINT",
        ),
        is_late=True,
    ),
    Table(
        "kernels",
        "Kernels of the device, and its copies.",
        _columns(
            _RUN_ID,
            "case_id BIGINT",
            "launch_id BIGINT",
            "name VARCHAR",
            "time_class VARCHAR",
            "operator VARCHAR that launched most of them",
            "calls BIGINT",
            "time_ns BIGINT sum of their durations",
            "longest_ns BIGINT",
        ),
        is_late=True,
    ),
    Table(
        "memory_points",
        "Who held the device's memory at points of a step.",
        _columns(
            _RUN_ID,
            "case_id BIGINT",
            "launch_id BIGINT",
            "point VARCHAR start, after_forward, after_backward, after_optimizer or peak",
            "weights_bytes BIGINT",
            "gradients_bytes BIGINT",
            "optimizer_bytes BIGINT",
            "activations_bytes BIGINT",
            "inputs_bytes BIGINT whatever lives from step to step and is none of the others",
            "other_bytes BIGINT",
            "reserved_bytes BIGINT held by the allocator; NULL where there is none",
        ),
        is_late=True,
    ),
    Table(
        "step_lines",
        "Lines of the program at which the largest parts of the window were spent, if recorded.",
        _columns(
            _RUN_ID,
            "case_id BIGINT",
            "launch_id BIGINT",
            "phase VARCHAR",
            "operator VARCHAR empty for idle time",
            "cause VARCHAR of idle time; empty otherwise",
            "doing VARCHAR what held it up: garbage collection, another thread (whose line it is), or empty",
            "path VARCHAR of the file; empty for the rest of a part, whose lines are not known",
            "line BIGINT 0 if only the function is known",
            "function VARCHAR",
            "is_definition BOOLEAN whether the line is where the function begins, not the one that ran",
            "called VARCHAR function of a library that the line called; empty for none",
            "time_ns BIGINT of the window",
        ),
        is_late=True,
    ),
    Table(
        "servers",
        "What an LLM server under load says about itself.",
        _columns(
            _RUN_ID,
            "case_id BIGINT",
            "launch_id BIGINT",
            "engine VARCHAR vLLM, SGLang, llama.cpp, Ollama, TGI; empty if none was recognized",
            "version VARCHAR empty if it does not say",
            "context_tokens BIGINT",
            "slots BIGINT requests it decodes at once",
            "is_here BOOLEAN whether its address is one of the box",
            "t_ns BIGINT monotonic clock of the box",
        ),
        is_late=True,
    ),
    Table(
        "load_steps",
        "Loads that were offered to a server: a number of users, or a rate.",
        _columns(
            _RUN_ID,
            "case_id BIGINT",
            "launch_id BIGINT",
            "step_index BIGINT",
            "load VARCHAR closed: users with one request at a time each; open: Poisson arrivals",
            "users BIGINT",
            "rate_per_s DOUBLE requests offered",
            "window_start_ns BIGINT monotonic clock of the box; requests before it do not count",
            "window_end_ns BIGINT",
            "is_overloaded BOOLEAN the queue grew until the end",
            "good_share DOUBLE requests within every limit, of those that count, 0 to 1",
            "requests BIGINT",
            "requests_counted BIGINT",
            "output_tokens DOUBLE within the window",
            "in_flight_max BIGINT",
            "client_lag_p50_s DOUBLE how late the event loop of the client was",
            "client_lag_p99_s DOUBLE",
            "client_lag_max_s DOUBLE",
            "client_cpu_share DOUBLE of one CPU",
            "client VARCHAR its event loop",
            "connections_late BIGINT requests that waited for a connection",
            "resent BIGINT requests whose connection the server had closed before it answered",
            "server_running DOUBLE requests the server worked on when the window ended, by its /metrics",
            "server_waiting DOUBLE requests in its queue then",
            "kv_cache_share DOUBLE of its key-value cache in use then, 0 to 1",
            "prefix_hit_share DOUBLE prompt tokens found in its prefix cache, 0 to 1",
            "preemptions DOUBLE requests evicted from its full cache, to compute anew",
        ),
        is_late=True,
    ),
    Table(
        "requests",
        "Requests to an LLM server: lengths and hashes, no text.",
        _columns(
            _RUN_ID,
            "case_id BIGINT",
            "launch_id BIGINT",
            "step_index BIGINT",
            "request_index BIGINT",
            "counts BOOLEAN whether it belongs to the window",
            "due_ns BIGINT monotonic clock of the box; of a user, when it was sent",
            "sent_ns BIGINT",
            "first_ns BIGINT first event that carries output",
            "last_ns BIGINT last such event",
            "ended_ns BIGINT",
            "in_flight BIGINT others when it was sent",
            "outcome VARCHAR ok, refused, rejected, failed, cut, empty, unfinished or unreachable",
            "reason VARCHAR",
            "http_status BIGINT",
            "retry_after VARCHAR",
            "prompt_tokens BIGINT as the server counts, like the next three",
            "cached_tokens BIGINT",
            "output_tokens BIGINT reasoning included",
            "reasoning_tokens BIGINT",
            "output_events BIGINT",
            "longest_gap_ns BIGINT between two events",
            "finish_reason VARCHAR",
            "prompt_bytes BIGINT",
            "prompt_hash VARCHAR",
            "answer_bytes BIGINT",
            "answer_hash VARCHAR",
        ),
        is_late=True,
    ),
    Table(
        "telemetry",
        "What the GPUs did while the run went on.",
        (
            *_columns(_RUN_ID, "device_index SMALLINT", "t_us BIGINT UTC epoch microseconds"),
            *_telemetry_columns("gpu"),
        ),
    ),
    Table(
        "host_telemetry",
        "What the host did while the run went on.",
        (*_columns(_RUN_ID, "t_us BIGINT UTC epoch microseconds"), *_telemetry_columns("host")),
    ),
    Table(
        "events",
        "What a user should know, and what of the journal was left out.",
        _columns(
            _RUN_ID,
            "t_us BIGINT NULL if it belongs to no instant",
            "level VARCHAR info, warning or error",
            "message VARCHAR",
        ),
    ),
)

RUN_TABLES: tuple[Table, ...] = tuple(table for table in TABLES if "run_id" in table.column_names)
"""Those with rows of runs; `run_id` is their first column."""
TABLE_BY_NAME: dict[str, Table] = {table.name: table for table in TABLES}

MIGRATIONS: tuple[Migration, ...] = (Migration(1, "frozen", ()),)
"""Ordered by version; the last one leads to SCHEMA_VERSION."""


def as_markdown() -> str:
    """The tables and columns, as in `docs/result-file.md`, which says above them what many columns share."""
    return "\n".join(f"### `{table.name}`\n\n{table.meaning}\n\n{_items_of(table)}" for table in TABLES)


_SAID_ABOVE = re.compile("(, )?UTC epoch microseconds|^reasons of NULLs in this row, by column")


def _items_of(table: Table) -> str:
    """Neighbours of one meaning share an item."""
    return "".join(
        "- "
        + "; ".join(
            ", ".join(f"`{column.name}`" for column in same) + f" {sql_type}".removesuffix(" BIGINT")
            for sql_type, same in itertools.groupby(columns, lambda column: column.sql_type)
        )
        + f"{meaning and f': {meaning}'}\n"
        for meaning, columns in itertools.groupby(
            (column for column in table.columns if column.name != "run_id"),
            lambda column: _SAID_ABOVE.sub("", column.meaning),
        )
    )
