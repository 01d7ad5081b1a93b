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
    sharing: str = ""
    """What `gputui share` copies of it, a word of `services/share/copying.py`; empty for nothing."""


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
    """Columns from lines of `name TYPE:SHARING meaning`; without `:SHARING` nobody else gets it."""
    columns = []
    for line in lines:
        name, kind, *meaning = line.split(" ", 2)
        sql_type, _, sharing = kind.partition(":")
        columns.append(Column(name, sql_type, meaning[0] if meaning else "", sharing))
    return tuple(columns)


def _telemetry_columns(scope: str) -> tuple[Column, ...]:
    return tuple(
        Column(metric.stored.key, _SQL_TYPES[metric.code], metric.title, metric.sharing)
        for metric in STORED
        if metric.scope == scope
    )


_RUN_ID = "run_id UUID UUIDv7 of the run"
_ABSENT = "absent_json VARCHAR:absent reasons of NULLs in this row, by column"

META = Table(
    "meta",
    "What this file is.",
    _columns("key VARCHAR format, schema_version, min_reader_schema, created_by", "value VARCHAR"),
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
            "started_us BIGINT:kept UTC epoch microseconds",
            "ended_us BIGINT:kept NULL if the run was cut short",
            "started_ns BIGINT:clock monotonic clock of the box at started_us",
            "utc_offset_min BIGINT:zero local time of the box, for display",
            "status VARCHAR:word finished, interrupted, or failed (also if nothing was measured)",
            "status_reason VARCHAR:message",
            "profile VARCHAR:name",
            "profile_version BIGINT:kept",
            "seed UBIGINT:kept",
            "replicates BIGINT:kept launches planned per case",
            "budget_s DOUBLE:kept",
            "label VARCHAR:label the user's own word",
            "gputui_version VARCHAR:release",
            "imported_from VARCHAR:empty name of the place the journal came from; empty for this box",
            "stored_us BIGINT:now when it was written to this file",
            "python_version VARCHAR:release",
            "python_implementation VARCHAR:phrase",
            "torch_version VARCHAR:release",
            "cuda_version VARCHAR:release CUDA that torch was built with",
            "hip_version VARCHAR:release",
            "cudnn_version VARCHAR:release",
            "nccl_version VARCHAR:release",
            "triton_version VARCHAR:release",
            "arch_list VARCHAR:words GPU architectures of this torch, joined by spaces",
            "cpu_capability VARCHAR:phrase",
            "blas VARCHAR:phrase",
            "platform_layer VARCHAR:phrase such as runpod or colab",
            "scheduler_layer VARCHAR:phrase",
            "container_layer VARCHAR:phrase",
            "vm_layer VARCHAR:phrase",
            "os_layer VARCHAR:phrase",
            "layers_json VARCHAR:layers the layers with the names of their signals",
            _ABSENT,
            "variables VARCHAR:words environment variables that change arithmetic or launching, as set",
        ),
        primary_key="run_id",
    ),
    Table(
        "machines",
        "The box of a run.",
        _columns(
            _RUN_ID,
            "machine_id VARCHAR:id keyed hash, 12 hex digits",
            "cpu_model VARCHAR:device",
            "cpu_sockets BIGINT:kept",
            "cpu_host_cores BIGINT:kept",
            "cpu_host_threads BIGINT:kept",
            "cpu_usable_threads DOUBLE:kept",
            "cpu_usable_cores BIGINT:kept",
            "cpu_limited_by VARCHAR:word",
            "cpu_last_level_cache_bytes BIGINT:kept",
            "cpu_features VARCHAR:words joined by spaces",
            "memory_host_bytes BIGINT:kept",
            "memory_usable_bytes BIGINT:kept",
            "memory_limited_by VARCHAR:word",
            "memory_shm_bytes BIGINT:kept",
            "gpus_absent VARCHAR:message why there are no GPUs",
            "instance_type VARCHAR:word",
            "region VARCHAR:word",
            "os_name VARCHAR:phrase",
            "kernel VARCHAR:release",
            "libc VARCHAR:phrase",
            "driver_version VARCHAR:release",
            "cuda_driver_version VARCHAR:release",
            _ABSENT,
            "box_id VARCHAR one id for all runs of this box in the file, set when it is written",
        ),
    ),
    Table(
        "identities",
        "What the box of a run is known by, the surest first. Boxes that share an id are one.",
        _columns(
            _RUN_ID,
            "kind VARCHAR:word stated, product-uuid, machine-id, gpus, account, boot or run",
            "id VARCHAR:id keyed hash, 12 hex digits; of account under the user's key",
        ),
        is_late=True,
    ),
    Table(
        "devices",
        "The GPUs of the box of a run.",
        _columns(
            _RUN_ID,
            "device_index BIGINT:kept in the driver's order",
            "gpu_id VARCHAR:id keyed hash of the UUID, 12 hex digits",
            "device_name VARCHAR:device",
            "vendor VARCHAR:word",
            "memory_bytes BIGINT:kept",
            "power_limit_w DOUBLE:kept",
            "power_default_limit_w DOUBLE:kept",
            "compute_capability VARCHAR:release",
            "pcie_generation_max BIGINT:kept",
            "pcie_width_max BIGINT:kept",
            "pcie_width BIGINT:kept",
            "ecc_enabled BOOLEAN:kept",
            "mig_enabled BOOLEAN:kept",
            "temperature_limit_c DOUBLE:kept where the driver begins to slow it",
            _ABSENT,
        ),
    ),
    Table(
        "prices",
        "What the box of a run costs; no row if that is not known.",
        _columns(
            _RUN_ID,
            "usd_per_hour DOUBLE:kept",
            "gpu_count DOUBLE:kept",
            "kind VARCHAR:price",
            "provider VARCHAR:price",
            "instance_type VARCHAR:price",
            "region VARCHAR:price",
            "list_date VARCHAR:price",
        ),
    ),
    Table(
        "cases",
        "What was to be measured, and how it ended.",
        _columns(
            _RUN_ID,
            "case_id BIGINT:kept number within the run",
            "work_key VARCHAR equal if and only if the work is",
            "workload VARCHAR:workload",
            "workload_version BIGINT:kept",
            "size VARCHAR:name",
            "form VARCHAR:word",
            "parameters_json VARCHAR:parameters list of name and value",
            "device_class VARCHAR:word cpu or gpu; host for a recording",
            "device_index BIGINT:kept",
            "device_name VARCHAR:device",
            "precision VARCHAR:name as requested; own for a program",
            "mode VARCHAR:name",
            "threads VARCHAR:phrase as requested",
            "workload_class VARCHAR:word",
            "unit VARCHAR:name",
            "units_per_step DOUBLE:kept",
            "flops_per_step BIGINT:kept",
            "bytes_per_step BIGINT:kept",
            "outcome VARCHAR:word ok, oom, unsupported, skipped, failed or interrupted",
            "reason VARCHAR:message",
        ),
    ),
    Table(
        "launches",
        "Worker processes.",
        _columns(
            _RUN_ID,
            "launch_id BIGINT:kept",
            "replicate BIGINT:kept",
            "threads_planned BIGINT:kept",
            "threads_used BIGINT:kept",
            "allowance_s DOUBLE:kept",
            "startup_ns BIGINT:kept",
            "started_us BIGINT:kept",
            "ended_us BIGINT:kept",
            "outcome VARCHAR:word",
            "reason VARCHAR:message",
            "exit_status BIGINT:kept negative for a signal",
            "is_fork BOOLEAN:kept whether it was forked from a process that had imported torch",
        ),
    ),
    Table(
        "measurements",
        "One case in one launch.",
        _columns(
            _RUN_ID,
            "case_id BIGINT:kept",
            "launch_id BIGINT:kept",
            "replicate BIGINT:kept",
            "outcome VARCHAR:word",
            "reason VARCHAR:message",
            "precision_used VARCHAR:name NULL if it never became warm",
            "build_ns BIGINT:kept",
            "first_step_ns BIGINT:kept",
            "warmup_ns BIGINT:kept",
            "warmup_blocks BIGINT:kept",
            "stable BOOLEAN:kept",
            "steps_per_block BIGINT:kept",
            "layout VARCHAR:word of its images, nhwc or nchw, if a trial found that faster; else empty",
        ),
    ),
    Table(
        "blocks",
        "Timed groups of steps.",
        _columns(
            _RUN_ID,
            "case_id BIGINT:kept",
            "launch_id BIGINT:kept",
            "block_index BIGINT:kept",
            "steps BIGINT:kept",
            "t_us BIGINT:kept start, UTC epoch microseconds",
            "start_ns BIGINT:clock start, monotonic clock of the box",
            "wall_ns BIGINT:kept",
            "device_ns BIGINT:kept between two events of the device; NULL on a CPU",
            "cpu_ns BIGINT:kept CPU time of the worker, or a program and its children; NULL between matches",
            "waited_ns BIGINT:kept time its threads were ready to run but waited for a CPU",
        ),
    ),
    Table(
        "figures",
        "Results of a case in one launch that are not a speed.",
        _columns(
            _RUN_ID,
            "case_id BIGINT:kept",
            "launch_id BIGINT:kept",
            "figure_index BIGINT:kept its place among those of its case",
            "key VARCHAR:name ends in its unit",
            "title VARCHAR:name",
            "unit VARCHAR:word s, B, B/s, 1/s, share (0 to 1), ratio or count",
            "better VARCHAR:word less, more or neither",
            "combine VARCHAR:word how several launches become one: median, sum, max or min",
            "value DOUBLE:kept",
            "reason VARCHAR:message why there is no value; NULL if there is one",
            "observations BIGINT:kept how many it is made of",
        ),
        is_late=True,
    ),
    Table(
        "profiled_passes",
        "What was traced of a case under torch.profiler, by the worker that had just timed it.",
        _columns(
            _RUN_ID,
            "case_id BIGINT:kept",
            "launch_id BIGINT:kept",
            "is_valid BOOLEAN:kept false: the trace is not believed and has no operators",
            "reason VARCHAR:message why it is not",
            "steps BIGINT:kept of the window",
            "window_ns BIGINT:kept",
            "events BIGINT:kept lines of the trace",
            "event_cost_ns BIGINT:kept host time that one event adds",
            "unmatched_ns BIGINT:kept device time without an operator",
            "memory_reason VARCHAR:message why there is no split of the memory",
            "trace_bytes BIGINT:kept of the Chrome trace that was kept; 0 for none",
            "before_ns BIGINT:kept median step of the process before the window, not profiled; 0 if unknown",
            "waited_share DOUBLE:kept of the threads' time in the window, for CPUs that other programs had",
            "others_cores DOUBLE:kept that other programs used meanwhile",
        ),
        is_late=True,
    ),
    Table(
        "operators",
        "The window's time by operator; sums to the breakdown without idle time.",
        _columns(
            _RUN_ID,
            "case_id BIGINT:kept",
            "launch_id BIGINT:kept",
            "phase VARCHAR:word data, forward, backward or optimizer",
            "category VARCHAR:word",
            "operator VARCHAR:operator the outermost one; others for what was too short for a row",
            "shapes VARCHAR:shapes of its inputs",
            "dtypes VARCHAR:phrase of its inputs",
            "calls BIGINT:kept in the whole window",
            "events BIGINT:kept lines of the trace",
            "time_ns BIGINT:kept of the window, this row's alone",
            "cpu_ns BIGINT:kept of the host",
            "kernels BIGINT:kept kernels and copies it launched",
            "kernel_ns BIGINT:kept sum of their durations; empty in older files",
        ),
        is_late=True,
    ),
    Table(
        "breakdown",
        "The exact partition of the window; its sum by phase is the time of the phase.",
        _columns(
            _RUN_ID,
            "case_id BIGINT:kept",
            "launch_id BIGINT:kept",
            "phase VARCHAR:word",
            "time_class VARCHAR:word compute, communication, copy_h2d, copy_d2h, copy_d2d, memset or idle",
            "cause VARCHAR:word of idle time, what the host did meanwhile; empty otherwise",
            "time_ns BIGINT:kept",
        ),
        is_late=True,
    ),
    Table(
        "kernels",
        "Kernels of the device, and its copies.",
        _columns(
            _RUN_ID,
            "case_id BIGINT:kept",
            "launch_id BIGINT:kept",
            "name VARCHAR:kernel",
            "time_class VARCHAR:word",
            "operator VARCHAR:operator that launched most of them",
            "calls BIGINT:kept",
            "time_ns BIGINT:kept sum of their durations",
            "longest_ns BIGINT:kept",
        ),
        is_late=True,
    ),
    Table(
        "memory_points",
        "Who held the device's memory at points of a step.",
        _columns(
            _RUN_ID,
            "case_id BIGINT:kept",
            "launch_id BIGINT:kept",
            "point VARCHAR:word start, after_forward, after_backward, after_optimizer or peak",
            "weights_bytes BIGINT:kept",
            "gradients_bytes BIGINT:kept",
            "optimizer_bytes BIGINT:kept",
            "activations_bytes BIGINT:kept",
            "inputs_bytes BIGINT:kept whatever lives from step to step and is none of the others",
            "other_bytes BIGINT:kept",
            "reserved_bytes BIGINT:kept held by the allocator; NULL where there is none",
        ),
        is_late=True,
    ),
    Table(
        "step_lines",
        "Lines of the program at which the largest parts of the window were spent, if recorded.",
        _columns(
            _RUN_ID,
            "case_id BIGINT:kept",
            "launch_id BIGINT:kept",
            "phase VARCHAR:word",
            "operator VARCHAR:operator empty for idle time",
            "cause VARCHAR:word of idle time; empty otherwise",
            "doing VARCHAR:word held up by garbage collection, another thread (whose line it is), or empty",
            "path VARCHAR:line of the file; empty for the rest of a part, whose lines are not known",
            "line BIGINT:kept 0 if only the function is known",
            "function VARCHAR:line",
            "is_definition BOOLEAN:kept whether the line is where the function begins, not the one that ran",
            "called VARCHAR:line function of a library that the line called; empty for none",
            "time_ns BIGINT:kept of the window",
        ),
        is_late=True,
    ),
    Table(
        "servers",
        "What an LLM server under load says about itself.",
        _columns(
            _RUN_ID,
            "case_id BIGINT:kept",
            "launch_id BIGINT:kept",
            "engine VARCHAR:word vLLM, SGLang, llama.cpp, Ollama, TGI; empty if none was recognized",
            "version VARCHAR:release empty if it does not say",
            "context_tokens BIGINT:kept",
            "slots BIGINT:kept requests it decodes at once",
            "is_here BOOLEAN:kept whether its address is one of the box",
            "t_ns BIGINT:clock monotonic clock of the box",
        ),
        is_late=True,
    ),
    Table(
        "load_steps",
        "Loads that were offered to a server: a number of users, or a rate.",
        _columns(
            _RUN_ID,
            "case_id BIGINT:kept",
            "launch_id BIGINT:kept",
            "step_index BIGINT:kept",
            "load VARCHAR:word closed: users with one request at a time each; open: Poisson arrivals",
            "users BIGINT:kept",
            "rate_per_s DOUBLE:kept requests offered",
            "window_start_ns BIGINT:clock monotonic clock of the box; requests before it do not count",
            "window_end_ns BIGINT:clock",
            "is_overloaded BOOLEAN:kept the queue grew until the end",
            "good_share DOUBLE:kept requests within every limit, of those that count, 0 to 1",
            "requests BIGINT:kept",
            "requests_counted BIGINT:kept",
            "output_tokens DOUBLE:kept within the window",
            "in_flight_max BIGINT:kept",
            "client_lag_p50_s DOUBLE:kept how late the event loop of the client was",
            "client_lag_p99_s DOUBLE:kept",
            "client_lag_max_s DOUBLE:kept",
            "client_cpu_share DOUBLE:kept of one CPU",
            "client VARCHAR:empty its event loop",
            "connections_late BIGINT:kept requests that waited for a connection",
            "resent BIGINT:kept requests whose connection the server had closed before it answered",
            "server_running DOUBLE:kept requests the server worked on when the window ended, by its /metrics",
            "server_waiting DOUBLE:kept requests in its queue then",
            "kv_cache_share DOUBLE:kept of its key-value cache in use then, 0 to 1",
            "prefix_hit_share DOUBLE:kept prompt tokens found in its prefix cache, 0 to 1",
            "preemptions DOUBLE:kept requests evicted from its full cache, to compute anew",
        ),
        is_late=True,
    ),
    Table(
        "requests",
        "Requests to an LLM server: lengths and hashes, no text.",
        _columns(
            _RUN_ID,
            "case_id BIGINT:kept",
            "launch_id BIGINT:kept",
            "step_index BIGINT:kept",
            "request_index BIGINT:kept",
            "counts BOOLEAN:kept whether it belongs to the window",
            "due_ns BIGINT:clock monotonic clock of the box; of a user, when it was sent",
            "sent_ns BIGINT:clock",
            "first_ns BIGINT:clock first event that carries output",
            "last_ns BIGINT:clock last such event",
            "ended_ns BIGINT:clock",
            "in_flight BIGINT:kept others when it was sent",
            "outcome VARCHAR:word ok, refused, rejected, failed, cut, empty, unfinished or unreachable",
            "reason VARCHAR:message",
            "http_status BIGINT:kept",
            "retry_after VARCHAR:phrase",
            "prompt_tokens BIGINT:kept as the server counts, like the next three",
            "cached_tokens BIGINT:kept",
            "output_tokens BIGINT:kept reasoning included",
            "reasoning_tokens BIGINT:kept",
            "output_events BIGINT:kept",
            "longest_gap_ns BIGINT:kept between two events",
            "finish_reason VARCHAR:word",
            "prompt_bytes BIGINT:kept",
            "prompt_hash VARCHAR:empty",
            "answer_bytes BIGINT:kept",
            "answer_hash VARCHAR:empty",
        ),
        is_late=True,
    ),
    Table(
        "telemetry",
        "What the GPUs did while the run went on.",
        (
            *_columns(_RUN_ID, "device_index SMALLINT:kept", "t_us BIGINT:kept UTC epoch microseconds"),
            *_telemetry_columns("gpu"),
        ),
    ),
    Table(
        "host_telemetry",
        "What the host did while the run went on.",
        (*_columns(_RUN_ID, "t_us BIGINT:kept UTC epoch microseconds"), *_telemetry_columns("host")),
    ),
    Table(
        "events",
        "What a user should know, and what of the journal was left out.",
        _columns(
            _RUN_ID,
            "t_us BIGINT:kept NULL if it belongs to no instant",
            "level VARCHAR:word info, warning or error",
            "message VARCHAR:event",
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
