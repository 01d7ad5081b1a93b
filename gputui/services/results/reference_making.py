"""References from runs: which runs will do, how boxes are counted, what a reference needs to be sent."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from gputui.analysis.fleet import rates_of_both, rates_of_one
from gputui.analysis.peak_tests import ABOVE_LIMIT
from gputui.errors import GputuiError
from gputui.model.absent import Missing, to_plain
from gputui.model.machine import Gpu, Identity
from gputui.model.result import CaseResult, Run
from gputui.model.units import counted, format_percent, listed
from gputui.services.profiles.loader import shipped_profiles
from gputui.services.results.expected import CAPPED_W, performance_checks, power_cap_of
from gputui.services.results.labels import some_of
from gputui.services.results.references import (
    MOST_BYTES,
    Reference,
    ReferenceCase,
    is_shipped,
    key_of,
    known_references,
    model_of,
    read_reference,
    reference_text,
    version_of,
    version_order,
)
from gputui.services.results.throughput import contention_of, is_host_bound, launches_of, speed_of
from gputui.services.support.output_files import write_output
from gputui.services.support.paths import make_directory, references_directory
from gputui.store.reading import CaseConditions
from gputui.store.selecting import are_one_box, known_by
from gputui.store.strict import strict
from gputui.worker.foreign_json import read_json_file

MOST_NOTE = 200
_SLOWED_SHARE = 0.05
_TIMES = "times"
_Box = tuple[Identity, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One run and what its telemetry says of each case."""

    text: str
    """As the user named it."""
    run: Run
    conditions: dict[int, CaseConditions]


@dataclass(frozen=True, slots=True)
class Added:
    """A reference after some boxes were added."""

    reference: Reference
    path: Path
    boxes: int
    """How many were added."""
    left_out: tuple[str, ...]
    """Runs that were not, by reason; of many with one reason only the newest are named."""


def add_to_reference(candidates: Sequence[Candidate], *, name: str = "", note: str = "") -> Added:
    """Make or extend the user's reference of the model that these runs are of.

    A box counts once: of several runs of it the newest that will do, and none if it was counted before. A
    copy of a run under other ids is that run. A reference of that name that ships is copied first. Which
    boxes were counted is kept in a file beside the reference, which is not to be sent.

    Raises GputuiError if no run will do, or they are of several models or profiles, and NotStored.
    """
    left_out: dict[str, list[str]] = {}
    taken: list[tuple[Candidate, Reference]] = []
    for one in sorted(candidates, key=lambda c: -c.run.summary.started_utc_us):
        problems = "; ".join(problems_of_run(one))
        if problems:
            left_out.setdefault(problems, []).append(one.text)
        else:
            taken.append((one, reference_of(one.run)))
    if not taken:
        raise GputuiError(
            f"no run qualifies: {'; '.join(_by_reason(left_out))}",
            "gputui help references.md lists the requirements",
        )
    kinds = {(made.model, made.profile): made for _, made in taken}
    if len(kinds) > 1:
        words = sorted(f"{model.words} ({profile})" for model, profile in kinds)
        raise GputuiError(f"these runs cover {listed(words)}", "a reference covers one model and one profile")
    ((model, profile),) = kinds
    name = name or model.slug + ("" if profile == "quick" else f"-{profile}")
    known = next((one for one in known_references() if one.name == name), None)
    path = references_directory() / f"{name}.json"
    if known is not None:
        _check_alike(known, taken[0][1])
    boxes, parts = _read_boxes(path), list[Reference]()
    for one, made in taken:
        box = _box_of(one.run)
        if any(_are_one_box(box, other) for other in boxes):
            left_out.setdefault("its box is counted already", []).append(one.text)
        else:
            boxes.append(box)
            parts.append(made)
    if not parts:
        raise GputuiError(
            f"nothing to add to {name}: {'; '.join(_by_reason(left_out))}", "name other results"
        )
    merged = functools.reduce(_both, parts if known is None else [known, *parts])
    merged = replace(merged, name=name, note=note or merged.note)
    text = reference_text(merged)
    if len(text.encode()) > MOST_BYTES:
        raise GputuiError(f"{name}: {len(text)} bytes are too large for a reference", f"at most {MOST_BYTES}")
    make_directory(path.parent)
    write_output(path, text)
    write_output(_boxes_file(path), json.dumps(to_plain(boxes)))
    return Added(read_reference(path), path, len(parts), tuple(_by_reason(left_out)))


def _by_reason(left_out: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The runs that were left out for each reason; of many, some."""
    for reason, runs in left_out.items():
        yield f"{some_of(runs)}: {reason}"


def _check_alike(known: Reference, made: Reference) -> None:
    """Raises GputuiError if the second may not be added to the first."""
    of_known, of_made = (
        f"{one.model.words} ({one.profile}, version {one.profile_version})" for one in (known, made)
    )
    if (known.model, of_known) != (made.model, of_made):
        raise GputuiError(
            f"{known.name} is a reference of {of_known}, these runs are of {of_made}",
            "give another --name, or remove the old file: gputui paths",
        )


def problems_of_run(candidate: Candidate) -> Iterator[str]:
    """Why a run is no evidence of what such a box reaches; nothing if it is."""
    run = candidate.run
    summary = run.summary
    versions = {profile.name: profile.version for profile in shipped_profiles()}
    if summary.profile not in versions:
        yield f"'{summary.profile}' is not a built-in profile"
        return
    if summary.profile_version != versions[summary.profile]:
        now = versions[summary.profile]
        yield f"{summary.profile} is at version {now}, this was {summary.profile_version}"
    if summary.status != "finished":
        yield f"the run was {summary.status}"
    cases = _cases(run)
    if not cases:
        yield "nothing was measured"
        return
    first = cases[0]
    device_class = first.case.variant.device_class
    if model_of(summary.machine, device_class, first.device_index, first.device_name) is None:
        yield "a slice of a GPU, or a CPU without a name"
    lost = [
        case.case.name
        for case in run.cases
        if case.case.variant.device_class == device_class and case.outcome not in ("ok", "unsupported", "oom")
    ]
    if lost:
        yield f"{some_of(lost)} {'was' if len(lost) == 1 else 'were'} not measured"
    yield from (check.text for check in performance_checks(run) if check.word == ABOVE_LIMIT)
    gpu = _gpu_of(run, first)
    if gpu is not None and (cap := power_cap_of(gpu)):
        yield cap
    if gpu is not None and gpu.mig_enabled is True:
        yield "MIG is on"
    crowded = [case.case.name for case in cases if contention_of(case)]
    if crowded:
        yield f"other processes had the CPUs in {some_of(crowded)}"
    seen = [candidate.conditions[c.case_id] for c in cases if c.case_id in candidate.conditions]
    for word, shares in (
        ("slowed by heat or a power brake", [one.slowed_share for one in seen]),
        ("shared with another process", [one.shared_share for one in seen]),
    ):
        most = max((share for share in shares if not isinstance(share, Missing)), default=0.0)
        if device_class == "gpu" and most >= _SLOWED_SHARE:
            yield f"the GPU was {word} for {format_percent(most)} of the time"


def _cases(run: Run) -> list[CaseResult]:
    """Measured shipped cases of the first GPU, without one those of the CPU: one device stands for a box.

    Without those that are host-bound.
    """
    shipped = [case for case in run.cases if case.outcome == "ok" and is_shipped(case.case)]
    measured = [case for case in shipped if not is_host_bound(case)]
    on_gpu = [case for case in measured if case.case.variant.device_class == "gpu"]
    if not on_gpu:
        return [case for case in measured if case.case.variant.device_class == "cpu"]
    first = min(case.device_index or 0 for case in on_gpu)
    return [case for case in on_gpu if (case.device_index or 0) == first]


def reference_of(run: Run) -> Reference:
    """The reference of one box, which has no name yet. The run must be without `problems_of_run`."""
    summary, cases = run.summary, _cases(run)
    first = cases[0]
    model = model_of(summary.machine, first.case.variant.device_class, first.device_index, first.device_name)
    if model is None:
        raise ValueError(f"no model for {first.device_name}")
    gpu = _gpu_of(run, first)
    month = datetime.fromtimestamp(summary.started_utc_us / 1e6, timezone.utc).strftime("%Y-%m")
    launches = [len(launches_of(case)) for case in cases]
    versions = {
        "gputui": summary.gputui_version,
        "python": summary.runtime.python_version,
        "torch": summary.runtime.torch_version,
        "cuda": summary.runtime.torch_cuda,
        "driver": summary.machine.driver_version,
    }
    known = {key: version_of(text) for key, text in versions.items() if not isinstance(text, Missing)}
    return Reference(
        name="",
        model=model,
        profile=summary.profile,
        profile_version=summary.profile_version,
        first_month=month,
        last_month=month,
        note="",
        versions={key: (version, version) for key, version in known.items() if version},
        launches=(min(launches), max(launches)),
        power_limit_w=None if gpu is None else _same(gpu.power_limit_w),
        power_default_limit_w=None if gpu is None else _same(gpu.power_default_limit_w),
        cases=tuple(_described(case) for case in cases),
    )


def _described(result: CaseResult) -> ReferenceCase:
    speed, case = speed_of(result), result.case
    if isinstance(speed, Missing):
        raise ValueError(f"{case.name} has no speed")
    return ReferenceCase(
        workload=case.work.workload,
        version=case.work.version,
        size=case.work.size,
        work_key=case.work.key,
        precision=case.variant.precision,
        mode=case.variant.mode,
        threads=case.variant.threads,
        unit=case.unit,
        rates=rates_of_one(speed.units_per_s, speed.low, speed.high),
    )


def _same(value: float | Missing) -> tuple[float, float] | None:
    return None if isinstance(value, Missing) else (value, value)


def _both(a: Reference, b: Reference) -> Reference:
    """Of the boxes of both, which are different ones of one model and profile."""
    cases = {_identity(case): case for case in a.cases}
    for case in b.cases:
        known = cases.get(_identity(case))
        rates = case.rates if known is None else rates_of_both(known.rates, case.rates)
        cases[_identity(case)] = replace(case, rates=rates)
    versions = {}
    for key in dict.fromkeys((*a.versions, *b.versions)):
        ends = sorted((*a.versions.get(key, ()), *b.versions.get(key, ())), key=version_order)
        versions[key] = (ends[0], ends[-1])
    return replace(
        a,
        first_month=min(a.first_month, b.first_month),
        last_month=max(a.last_month, b.last_month),
        versions=versions,
        launches=(min(a.launches[0], b.launches[0]), max(a.launches[1], b.launches[1])),
        power_limit_w=_wider(a.power_limit_w, b.power_limit_w),
        power_default_limit_w=_wider(a.power_default_limit_w, b.power_default_limit_w),
        cases=tuple(cases.values()),
    )


def _identity(case: ReferenceCase) -> tuple[str, str, str, str]:
    return case.work_key, case.precision, case.mode, case.threads


def _wider(a: tuple[float, float] | None, b: tuple[float, float] | None) -> tuple[float, float] | None:
    return a or b if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


def _gpu_of(run: Run, case: CaseResult) -> Gpu | None:
    return (
        run.summary.machine.gpu(case.device_index or 0) if case.case.variant.device_class == "gpu" else None
    )


# Which boxes were counted


def _box_of(run: Run) -> _Box:
    """What the box is known by, and the block times of each case.

    A copy that was shared or renamed has other ids, and the same times to the nanosecond.
    """
    return (*known_by(run.summary.machine), *(_times_of(case) for case in _cases(run)))


def _times_of(result: CaseResult) -> Identity:
    launches = sorted([block.wall_ns for block in measurement.blocks] for measurement in result.measurements)
    text = json.dumps([key_of(result.case), launches])
    return Identity(_TIMES, hashlib.sha256(text.encode()).hexdigest()[:16])


def _are_one_box(a: _Box, b: _Box) -> bool:
    has_same_times = any(one.kind == _TIMES for one in set(a) & set(b))
    return has_same_times or are_one_box(a, b)


def _boxes_file(path: Path) -> Path:
    return path.with_suffix(".boxes")


def _read_boxes(path: Path) -> list[_Box]:
    """The ids of the boxes that the user's reference counts. Raises GputuiError if they cannot be read."""
    file = _boxes_file(path)
    if not path.exists() or not file.exists():
        return []
    try:
        plain = read_json_file(file)
        return [tuple(strict(one, Identity) for one in box) for box in plain]
    except (OSError, ValueError, TypeError) as error:
        raise GputuiError(
            f"{file}: cannot be read, so boxes might count twice", f"remove it and {path} to begin again"
        ) from error


# What a reviewer asks


def problems_of_reference(reference: Reference) -> list[str]:
    """What keeps a reference from being sent: it is old, capped, or says too much or too little."""
    problems = []
    profile = next((one for one in shipped_profiles() if one.name == reference.profile), None)
    if profile is None or profile.version != reference.profile_version:
        now = "which gputui no longer includes" if profile is None else f"now at version {profile.version}"
        problems.append(f"measured with version {reference.profile_version} of {reference.profile}, {now}")
    foreign = len(reference.cases) - len(reference.known_cases())
    if foreign:
        problems.append(f"{counted(foreign, 'case')} of another version of the workload")
    limits, defaults = reference.power_limit_w, reference.power_default_limit_w
    if limits is not None and defaults is not None and limits[0] < defaults[0] - CAPPED_W:
        problems.append(f"power-capped: a limit of {limits[0]:.0f} W, {defaults[0]:.0f} W is the default")
    if not reference.versions.get("torch"):
        problems.append("the version of torch is not known")
    if len(reference.note) > MOST_NOTE:
        problems.append(f"the note is longer than {MOST_NOTE} letters")
    return problems
