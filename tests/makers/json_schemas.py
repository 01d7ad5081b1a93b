"""Writes the schemas in docs/schemas anew, from what the commands print."""

from __future__ import annotations

import gc
import json
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE
from typing import Any  # JSON

import jsonschema
import pytest
from chrome_traces import write_training
from command_line import WORDS, gputui, gputui_here, write_long_profile, write_spin_profile
from journals import GPU_MACHINE
from model_server import Behaviour, serving_process
from quick_runs import box, store_quick
from stored_loads import Server, store_loads
from stored_runs import run_id_of, store

from gputui.cli.doctor import json_of_check
from gputui.services.check import Measured, checked
from gputui.services.compare.fleet import FLEET_FROM
from gputui.services.results.selectors import run_in
from gputui.store.reading import open_result

PLACE = Path(__file__).parents[2] / "docs" / "schemas"
_ABSENT = {
    "description": "null, or why there is no value",
    "anyOf": [
        {"type": "null"},
        {
            "type": "object",
            "properties": {"missing": {"type": "string"}},
            "required": ["missing"],
            "additionalProperties": False,
        },
    ],
}
_LEAVES = {bool: "boolean", str: "string", int: "number", float: "number"}
_DEFS = {
    "absent": _ABSENT,
    **{leaf: {"anyOf": [{"type": leaf}, {"$ref": "#/$defs/absent"}]} for leaf in sorted({*_LEAVES.values()})},
}
_TITLES = {
    "pick-train": "gputui pick --train --json",
    "compare-ranking": f"gputui compare --json, from {FLEET_FROM} sides on",
    "compare-traces": "gputui compare TRACE TRACE --json",
    "profiles-plan": "gputui profiles NAME --json",
    "run": "gputui run --json, and attach, stop and serve-bench --json",
    "run-detach": "gputui run --detach --json",
    "gpu-add": "gputui gpu --add --json",
}
_LOADS = """schema = 1
version = 1
prompt_tokens = 40
output_tokens = 10
slo = "ttft=100ms"
"""
_STARTING = {"run", "attach", "stop", "serve-bench", "bakeoff", "record"}
"""Commands that start processes or handle signals, which are run as people run them."""
_BY_NAME = frozenset({"hosts", "values", "absent", "outcomes", "parameters", "judgements"})
"""Objects whose keys are data."""
OF_THE_BOX = ("bakeoff", "check", "doctor", "profiles-plan", "record", "run", "snapshot")
"""What they list depends on where they run, and on how fast that is."""


def printed(place: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Of each schema its name, a command and what that prints as JSON; several times where outputs differ."""
    a, b = str(place / "a.db"), str(place / "b.db")
    store(Path(a), 1, machine=GPU_MACHINE, on_gpu=True)
    store(Path(a), 2, machine=GPU_MACHINE, log_tail="it died")
    store(Path(b), 3, gpt_ms=50.0, machine=GPU_MACHINE, on_gpu=True)
    fleets = [place / f"fleet{slower}" for slower in (1, 3)]
    for slower, fleet in zip((1, 3), fleets, strict=True):
        fleet.mkdir()
        for number in range(FLEET_FROM):
            slow = 1.3 if number >= FLEET_FROM - slower else 1.0
            gpt_ms, gemm_ms = slow * (100.0 + number / 10), slow * (20.0 + number / 50)
            machine = box(number + 1, GPU_MACHINE)
            db = fleet / f"box{number}.db"
            store(
                db, 10 + number, gpt_ms=gpt_ms, gemm_ms=gemm_ms, machine=machine, on_gpu=True, profiled=False
            )
    of_gpu = str(place / "of_gpu.db")
    store_quick(Path(of_gpu), 1, on_gpu=True, scale=1.3)
    trace = str(write_training(place / "trace.json", wait_us=40))
    imported = str(place / "imported.db")
    gputui_here("import", trace, "--db", imported)
    served = str(place / "served.db")
    store_loads(Path(served), Server(failures=3, preemptions=1.0), launches=1, requests=100)
    other = str(write_training(place / "other.json", wait_us=80))
    spin = str(write_spin_profile(place / "spin.toml"))
    long = str(write_long_profile(place / "long.toml"))
    tiny = str(place / "tiny.toml")
    Path(tiny).write_text(_LOADS)
    m, report = str(place / "merged.db"), str(place / "shared.md")
    quick = str(place / "quick.db")
    store_quick(Path(quick), 20)
    into, brief = ("--db", str(place / "run.db")), ("--launches", "1", "--budget", "9")
    commands: Mapping[str, tuple[tuple[str, ...], ...]] = {
        "runs": (("runs", a),),
        "show": (("show", "latest", a), ("show", "latest~1", a), ("show", "latest", served)),
        "compare": (("compare", a, b), ("compare", a, "--by", "device")),
        "compare-ranking": (
            *(("compare", str(fleet)) for fleet in fleets),
            ("compare", str(fleets[0]), "--by", "gpu"),
        ),
        "compare-traces": (("compare", trace, other),),
        "why": (("why", trace), ("why", a), ("why", imported)),
        "advise": (("advise", a, b, "--job", "50M tokens train"),),
        "pick": (("pick", "--params", "7e9"), ("pick", "gpt-oss-120b")),
        "pick-train": (
            ("pick", "--train", "--params", "7e9"),
            ("pick", "--train", "mixtral-8x7b"),
        ),
        "paths": (("paths",),),
        "profiles": (("profiles",),),
        "check": (("check", "--quick"),),
        "gpu": (("gpu", "H200 SXM", of_gpu), ("gpu", "RTX 4090"), ("gpu", "B200")),
        "profiles-plan": (("profiles", "quick"),),
        "doctor": (("doctor",),),
        "snapshot": (("snapshot", "--processes"),),
        "merge": (("merge", a, b, "-o", m),),
        "label": (("label", "latest", "mine", m),),
        "export": (("export", m, "--parquet", str(place / "fleet")),),
        "share": (("share", m, "-o", report),),
        "rm": (("rm", "latest", m, "--yes"),),
        "import": (("import", trace, "--db", m),),
        "gpu-add": (("gpu", "--add", quick),),
        "run": (
            ("run", spin, *into, "--yes"),
            ("serve-bench", "URL", "--profile", tiny, "--concurrency", "2", *into, *brief),
        ),
        "record": (("record", *into, "--", "true"),),
        "bakeoff": (("bakeoff", spin, "--local", "--via", "env", *into, "--yes"),),
        "run-detach": (("run", long, *into, "--yes", "--detach"),),
    }
    with open_result(Path(a)) as file:
        stored = run_in(file, run_id_of(1))
        conditions = file.conditions(stored.summary.run_id)
    second = replace(stored, cases=tuple(replace(case, device_index=1) for case in stored.cases))
    machine = replace(GPU_MACHINE, gpus=(GPU_MACHINE.gpus[0], replace(GPU_MACHINE.gpus[0], index=1)))
    made_up = checked(machine, (), [Measured(stored, conditions), Measured(second, conditions)])
    yield "check", "check", json.loads(json.dumps({"schema": 1, **json_of_check(made_up, 1.0)}))
    with serving_process(Behaviour(slots=4, prefill_s=0.01, decode_s=0.001)) as url:
        for name, each in commands.items():
            for words in each:
                yield name, *_answer(*(url if word == "URL" else word for word in words))
    with subprocess.Popen([*WORDS, "attach", "--json"], stdout=PIPE, stderr=PIPE, text=True) as attached:
        assert attached.stderr is not None
        attached.stderr.readline()
        yield "run", *_answer("stop")
        yield "run", "attach", json.loads(attached.communicate()[0])


def _answer(*words: str) -> tuple[str, dict[str, Any]]:
    """The command, and what it prints."""
    name, *rest = words
    done = (gputui if name in _STARTING else gputui_here)(name, "--json", *rest)
    if not done.stdout:
        raise ValueError(f"{words}: {done.stderr}")
    return name, json.loads(done.stdout)


def schema_texts(outputs: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, str]:
    """The text of each schema by name."""
    found: dict[str, list[Any]] = {}
    for name, value in outputs:
        found.setdefault(name, []).append(value)
    return {
        name: json.dumps(
            {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "title": _TITLES.get(name, f"gputui {name} --json"),
                **_schema_of(values, ""),
                "$defs": _DEFS,
            },
            indent=1,
        )
        + "\n"
        for name, values in found.items()
    }


def _schema_of(values: list[Any], key: str) -> dict[str, Any]:
    """The schema of values in one place; keys that all have are required, and others may come."""
    there = [value for value in values if value is not None and not _is_missing(value)]
    kinds = []
    objects = [value for value in there if isinstance(value, dict)]
    if objects:
        names = list(dict.fromkeys(name for value in objects for name in value))
        parts = {name: [value[name] for value in objects if name in value] for name in names}
        if key in _BY_NAME:
            every = [part for name in names for part in parts[name]]
            kinds.append({"type": "object", "additionalProperties": _schema_of(every, "")})
        else:
            kinds.append(
                {
                    "type": "object",
                    "properties": {name: _schema_of(parts[name], name) for name in names},
                    "required": [name for name in names if len(parts[name]) == len(objects)],
                }
            )
    lists = [value for value in there if isinstance(value, list)]
    if lists:
        items = [item for value in lists for item in value]
        kinds.append({"type": "array", "items": _schema_of(items, "")} if items else {"type": "array"})
    leaves = {_LEAVES[type(value)] for value in there if not isinstance(value, dict | list)}
    if not kinds and len(leaves) == 1:
        return {"$ref": f"#/$defs/{leaves.pop()}"}
    kinds += [{"type": leaf} for leaf in sorted(leaves)]
    if not kinds:
        return {}
    is_always_there = not key and len(kinds) == 1 and len(there) == len(values)
    return kinds[0] if is_always_there else {"anyOf": [*kinds, {"$ref": "#/$defs/absent"}]}


def _is_missing(value: Any) -> bool:
    return isinstance(value, dict) and list(value) == ["missing"]


def is_described(value: dict[str, Any], schema: Any) -> bool:
    """Whether a schema knows all that was printed, and each of its keys."""
    return bool(jsonschema.Draft202012Validator(_closed(schema)).is_valid(value))


def _closed(schema: Any) -> Any:
    """The same where no key may come that it does not name."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(part) for name, part in schema.items()}
    return closed | {"additionalProperties": False} if "properties" in closed else closed


def main() -> None:
    """Write those that changed: what a box decides stays while it describes what this one prints."""
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUTUI_STATE", place)
        patch.setenv("HOME", place)
        outputs = [(name, value) for name, _, value in printed(Path(place))]
    for name, text in schema_texts(outputs).items():
        path = PLACE / f"{name}.json"
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else False
        if name not in OF_THE_BOX or not all(
            is_described(value, kept) for of, value in outputs if of == name
        ):
            path.write_text(text, encoding="utf-8")
    gc.unfreeze()  # a command froze DuckDB's types, which would be reported as leaked


if __name__ == "__main__":
    main()
