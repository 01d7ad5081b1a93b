"""What becomes of each text of a result file when it is shared: a rule for every text column."""

from __future__ import annotations

import json
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from gputui.model.case import MODES, OUTCOMES, OWN, WHOLE_BOX, WORKLOAD_CLASSES
from gputui.model.journal import FIGURE_BETTER, FIGURE_COMBINES
from gputui.model.profiled import CATEGORIES, IDLE_CAUSES, MEMORY_POINTS, PHASES, TIME_CLASSES
from gputui.model.serving import LOADS, REQUEST_OUTCOMES
from gputui.model.units import FIGURE_SUFFIXES, RATES
from gputui.services.share import vocabulary as known
from gputui.services.share.vocabulary import Rule, matching, one_of
from gputui.store.rows import LAYERS
from gputui.store.schema import TABLE_BY_NAME
from gputui.worker.foreign_json import read_json
from gputui.worker.profiling.line_times import GC, OTHER_THREAD

GONE = "not shared"
"""Stands where a message was."""


@dataclass(frozen=True, slots=True)
class Keep:
    """What the user asked to share besides what is harmless."""

    price: bool = False
    label: bool = False
    ids: bool = False
    """Of runs, boxes and GPUs, so that two shared files can be joined."""
    names: bool = False
    """Of programs, profiles, parameters, operators and kernels of the user's."""
    messages: bool = False
    """Events and reasons in the words of programs and libraries."""


@dataclass(slots=True)
class Names:
    """New ids and names, each the same wherever the old one stood; and how much was replaced."""

    keep: Keep
    _new: dict[tuple[str, str], str] = field(default_factory=dict)
    _numbers: Counter[str] = field(default_factory=Counter)
    replaced: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Texts by what they are: `label`, `id`, `message`, ..."""

    def identifier(self, old: str) -> str:
        """12 random hex digits."""
        return self._new.setdefault(("id", old), secrets.token_hex(6))

    def numbered(self, kind: str, old: str) -> str:
        """`kernel-3`."""
        key = (kind, old)
        if key not in self._new:
            self._numbers[kind] += 1
            self._new[key] = f"{kind}-{self._numbers[kind]}"
        return self._new[key]


@dataclass(frozen=True, slots=True)
class TextRule:
    """The rule of one column. Empty texts and NULL stay."""

    known: Rule
    """What may be shared of a text; None if nothing."""
    otherwise: Callable[[str], str | None]
    """What stands there instead, given the old text; None for NULL."""
    what: str
    """What was replaced, for the list: `label`, `message`, `name`, ...; empty if it is not worth a line."""
    is_kept: bool = False
    """The user asked for it."""

    def shared(self, names: Names, text: str) -> str | None:
        """The text as it is shared."""
        if not text or self.is_kept:
            return text
        found = self.known(text)
        if found is None:
            found = self.otherwise(text)
        if found != text and self.what:
            names.replaced[self.what].add(text)
        return found


def rules_of(names: Names) -> dict[str, dict[str, TextRule]]:
    """By table and column. A text column that has no rule is left out of a table that is shared."""
    keep = names.keep

    def own(kind: str, rule: Rule) -> TextRule:
        return TextRule(rule, lambda old: names.numbered(kind, old), "name", keep.names)

    def program(old: str) -> str:
        kind, colon, name = old.partition(":")
        if kind == "serve" and (load := known.load_words(name)):
            return f"serve:{names.numbered('profile', name.removesuffix(load).rstrip())} {load}"
        if colon and kind in ("command", "record", "step", "trace", "serve"):
            return f"{kind}:{names.numbered('program', name)}"
        return names.numbered("workload", old)

    def parameters(text: str) -> str | None:
        found = _json(text)
        if not isinstance(found, list) or any(not isinstance(p, list) or len(p) != 2 for p in found):
            names.replaced["name"].add(text)
            return None
        pairs = []
        for name, value in found:
            name = str(name)
            kept = value if not isinstance(value, str) else known.parameter_text(value)
            if kept is None:
                names.replaced["name"].add(str(value))
                value = names.numbered("model" if name == "model" else "value", str(value))
            if known.parameter_name(name) is None:
                names.replaced["name"].add(name)
            pairs.append((known.parameter_name(name) or names.numbered("parameter", name), value))
        return json.dumps([list(pair) for pair in sorted(pairs)])

    def shortened(rule: Rule) -> Rule:
        def kept(text: str) -> str | None:
            found = rule(text)
            return found if found in (None, text) else _apart(names, str(found), text)

        return kept

    nothing: Rule = lambda text: None  # noqa: E731  # a rule like the others
    null: Callable[[str], str | None] = lambda old: None  # noqa: E731
    empty: Callable[[str], str | None] = lambda old: ""  # noqa: E731
    message = TextRule(known.message, lambda old: GONE, "message", keep.messages)
    identifier = TextRule(nothing, names.identifier, "id", keep.ids)
    absent = TextRule(_absent, null, "message", keep.messages)
    detail = "detail of the box"

    def fact(rule: Rule) -> TextRule:
        return TextRule(rule, null, detail)

    device = TextRule(known.device_name, lambda old: names.numbered("device", old), detail)
    outcome = TextRule(one_of(*OUTCOMES), lambda old: "failed", detail)
    ending = {"outcome": outcome, "reason": message}
    phase = TextRule(one_of(*PHASES), lambda old: PHASES[0], detail)
    time_class = TextRule(one_of(*TIME_CLASSES), lambda old: TIME_CLASSES[0], detail)
    operator = own("operator", shortened(known.operator))
    price = TextRule(nothing, null, "price", keep.price)
    version = fact(known.version)
    layers = fact(known.each(known.layer_name, "+"))
    return {
        "runs": {
            "status": TextRule(one_of("finished", "interrupted", "failed"), lambda old: "failed", detail),
            "status_reason": message,
            "profile": own("profile", known.profile),
            "label": TextRule(nothing, lambda old: "", "label", keep.label),
            "gputui_version": TextRule(known.version, lambda old: "0", detail),
            "imported_from": TextRule(nothing, lambda old: "", "path"),
            "python_version": version,
            "python_implementation": fact(one_of("CPython", "PyPy", "GraalPy")),
            "torch_version": version,
            "cuda_version": version,
            "hip_version": version,
            "cudnn_version": version,
            "nccl_version": version,
            "triton_version": version,
            "arch_list": fact(known.each(matching(r"(?:sm|compute)_\d{2,3}[af]?|gfx\d{3,4}[a-f]?"), " ")),
            "cpu_capability": fact(
                one_of("DEFAULT", "NO AVX", "AVX2", "AVX512", "SVE", "SVE128", "SVE256", "VSX", "ZVECTOR")
            ),
            "blas": fact(one_of("mkl", "openblas", "other")),
            **{f"{layer}_layer": layers for layer in LAYERS},
            "layers_json": TextRule(_layers, lambda old: "[]", ""),
            "absent_json": absent,
        },
        "machines": {
            "machine_id": identifier,
            "box_id": identifier,
            "cpu_model": device,
            "cpu_limited_by": TextRule(_LIMITS, lambda old: "host", detail),
            "cpu_features": fact(known.each(matching(_CPU_FEATURES), " ")),
            "memory_limited_by": TextRule(_LIMITS, lambda old: "host", detail),
            "gpus_absent": message,
            "instance_type": fact(known.instance_type),
            "region": fact(known.region),
            "os_name": fact(known.system_name),
            "kernel": fact(known.kernel_release),
            "libc": fact(known.libc),
            "driver_version": version,
            "cuda_driver_version": version,
            "absent_json": absent,
        },
        "identities": {
            "kind": TextRule(
                one_of("stated", "product-uuid", "machine-id", "gpus", "account", "boot", "run"),
                lambda old: "account",
                detail,
            ),
            "id": identifier,
        },
        "devices": {
            "gpu_id": identifier,
            "device_name": device,
            "vendor": fact(one_of("nvidia", "amd", "intel", "apple")),
            "compute_capability": fact(matching(r"\d{1,2}\.\d|gfx\d{3,4}[a-f]?")),
            "absent_json": absent,
        },
        "prices": dict.fromkeys(("kind", "provider", "instance_type", "region", "list_date"), price),
        "cases": {
            "work_key": TextRule(matching("[0-9a-f]{16}"), null, detail),  # calculated anew
            "workload": TextRule(known.workload, program, "name", keep.names),
            "size": own("size", known.size),
            "form": TextRule(one_of("same", "best"), lambda old: "same", detail),
            "parameters_json": TextRule(parameters, lambda old: "[]", "", keep.names),  # counted above
            "device_class": TextRule(one_of("cpu", "gpu", WHOLE_BOX), lambda old: WHOLE_BOX, detail),
            "device_name": device,
            "precision": own("precision", known.precision),
            "mode": own("mode", one_of(*MODES, OWN)),
            "threads": own("threads", matching(r"all|host|\d{1,4}")),
            "workload_class": TextRule(one_of(*WORKLOAD_CLASSES), lambda old: "host", detail),
            "unit": own("unit", one_of(*RATES)),
            **ending,
        },
        "launches": ending,
        "measurements": {**ending, "precision_used": own("precision", known.precision)},
        "figures": {
            "key": own("result", known.figure_key),
            "title": own("result", known.figure_title),
            "unit": TextRule(one_of(*FIGURE_SUFFIXES), lambda old: "count", detail),
            "better": TextRule(one_of(*FIGURE_BETTER), lambda old: "neither", detail),
            "combine": TextRule(one_of(*FIGURE_COMBINES), lambda old: "median", detail),
            "reason": message,
        },
        "profiled_passes": {"reason": message, "memory_reason": message},
        "operators": {
            "phase": phase,
            "category": TextRule(one_of(*CATEGORIES), lambda old: "other", detail),
            "operator": operator,
            "shapes": TextRule(known.shapes, lambda old: "", "name", keep.names),
            "dtypes": TextRule(known.dtypes, lambda old: "", "name", keep.names),
        },
        "breakdown": {
            "phase": phase,
            "time_class": time_class,
            "cause": TextRule(one_of(*IDLE_CAUSES), lambda old: "", detail),
        },
        "kernels": {
            "name": own("kernel", shortened(known.kernel_name)),
            "time_class": time_class,
            "operator": operator,
        },
        "step_lines": {
            "phase": phase,
            "operator": operator,
            "cause": TextRule(one_of(*IDLE_CAUSES), lambda old: "", detail),
            "doing": TextRule(one_of(GC, OTHER_THREAD), lambda old: "", detail),
            **dict.fromkeys(("path", "function", "called"), TextRule(nothing, empty, "path", keep.names)),
        },
        "memory_points": {"point": TextRule(one_of(*MEMORY_POINTS), lambda old: "peak", detail)},
        "blocks": {},
        "servers": {
            "engine": own("engine", one_of("vLLM", "SGLang", "llama.cpp", "Ollama", "TGI")),
            "version": TextRule(known.version, lambda old: "", detail),
        },
        "load_steps": {
            "load": TextRule(one_of(*LOADS), lambda old: LOADS[0], detail),
            "client": TextRule(one_of("asyncio", "uvloop"), lambda old: "", detail),
        },
        "requests": {
            "outcome": TextRule(one_of(*REQUEST_OUTCOMES), lambda old: "failed", detail),
            "reason": message,
            "retry_after": TextRule(matching(r"\d{1,6}"), empty, "message", keep.messages),
            "finish_reason": TextRule(_FINISHES, empty, "message", keep.messages),
            "prompt_hash": TextRule(nothing, lambda old: "", "id", keep.ids),
            "answer_hash": TextRule(nothing, lambda old: "", "id", keep.ids),
        },
        "telemetry": {},
        "host_telemetry": {},
        "events": {
            "level": TextRule(one_of("info", "warning", "error"), lambda old: "info", detail),
            "message": TextRule(known.message, null, "message", keep.messages),
        },
    }


_FINISHES = one_of("stop", "length", "tool_calls", "content_filter", "eos", "abort", "load")
_LIMITS = one_of(
    *("host", "affinity", "cgroup", "cpuset", "RUNPOD_CPU_COUNT", "CPU_CORES", "SLURM_CPUS_PER_TASK"),
    *("SLURM_CPUS_ON_NODE", "MEMORY", "SLURM_MEM_PER_NODE", "RUNPOD_MEM_GB"),
)
_CPU_FEATURES = r"(?:avx|amx|sse|sve|sme|neon|asimd|f16c|fma|bf16|i8mm|vnni|fp16|dotprod|vsx)[a-z0-9_]{0,16}"


def _json(text: str) -> object:
    try:
        found: object = read_json(text)
    except ValueError:
        return None
    return found


def _layers(text: str) -> str | None:
    """Known layers; the names of their signals tell of files and variables, and are left out."""
    found = _json(text)
    if not isinstance(found, list) or any(not isinstance(one, list) or len(one) != 3 for one in found):
        return None
    kept = [[layer, name, []] for layer, name, _ in found if layer in LAYERS and known.layer_name(name)]
    return json.dumps(kept)


_COLUMNS = frozenset(name for table in TABLE_BY_NAME.values() for name in table.column_names)


def _absent(text: str) -> str | None:
    found = _json(text)
    if not isinstance(found, dict):
        return None
    reasons = {column: known.message(str(reason)) or GONE for column, reason in found.items()}
    return json.dumps({column: reason for column, reason in reasons.items() if column in _COLUMNS})


def _apart(names: Names, short: str, text: str) -> str:
    """A shortened name; different ones that were shortened to the same get numbers."""
    found = names.numbered(short, text)
    return short if found == f"{short}-1" else found
