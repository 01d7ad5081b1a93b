"""From result files to what is ranked: boxes, runtimes, labels or GPUs, each with its newest cases."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gputui.model.machine import Gpu
from gputui.model.result import Run
from gputui.services.compare.pairing import Side, check_one_box, joined, runs_by
from gputui.services.results.labels import device_words
from gputui.services.results.selectors import Selection

RANKED_BY = ("machine", "runtime", "label", "gpu")
"""Dimensions with so many values that they are ranked."""
NOUNS = {"": "box", "machine": "box", "runtime": "runtime", "label": "label", "gpu": "GPU"}


def kind_of(side: Side, by: str) -> str:
    """Its devices: sides of one kind should be equally fast."""
    if by == "gpu":
        return side.cases[0].result.device_name.removeprefix("NVIDIA ")
    return device_words(side.run)


def gpu_of(side: Side) -> Gpu | None:
    """The GPU, if all cases are of one."""
    indexes = {case.result.device_index for case in side.cases}
    return side.run.machine.gpu(*indexes) if len(indexes) == 1 else None


def fleet_sides(selections: Sequence[Selection], by: str = "", *, pool: bool = False) -> list[Side]:
    """One side for each selector, or for each value of a dimension of RANKED_BY.

    With `pool`, cases hold the launches of all runs. Raises GputuiError if a selector without a dimension
    names runs of several machines or runtimes.
    """
    if by:
        return _by(by, selections, pool)
    found = []
    names = _short_names([selection.text for selection in selections])
    for name, selection in zip(names, selections, strict=True):
        check_one_box(selection.text, [run.summary for run in selection.runs])
        found.append(joined(name, selection.runs, pool, {}))
    return found


def _by(dimension: str, selections: Sequence[Selection], pool: bool) -> list[Side]:
    held: dict[str, dict[str, _Held]] = {}
    for selection in selections:
        for value, found in runs_by(dimension, selection.runs).items():
            held.setdefault(value, {}).update((run.summary.run_id, (run, selection.path)) for run in found)
    names = _names(dimension, held)
    return [joined(names[value], [run for run, _ in runs.values()], pool, {}) for value, runs in held.items()]


_Held = tuple[Run, Path]
"""A run with the cases of one value, and its file."""


def _names(dimension: str, held: dict[str, dict[str, _Held]]) -> dict[str, str]:
    """What a person calls each value: a machine by its label or its file, if that is of no other."""
    if dimension not in ("machine", "gpu"):
        return {value: value for value in held}
    machines: dict[str, tuple[set[str], set[str]]] = {}
    machine_of = {}
    for value, runs in held.items():
        for run, path in runs.values():
            machine_of[value] = run.summary.machine.machine_id
            labels, files = machines.setdefault(machine_of[value], (set(), set()))
            labels.add(run.summary.label)
            files.add(path.stem)
    called = {}
    for machine, (labels, files) in machines.items():
        known = [
            next(iter(words))
            for which, words in enumerate((labels, files))
            if len(words) == 1
            and "" not in words
            and not any(words & both[which] for other, both in machines.items() if other != machine)
        ]
        called[machine] = known[0] if known else f"machine {machine}"
    if dimension == "machine":
        return {value: called[machine_of[value]] for value in held}
    if len(machines) == 1:
        return {value: value.partition(" of ")[0] for value in held}
    return {value: f"{value.partition(' of ')[0]} of {called[machine_of[value]]}" for value in held}


def _short_names(names: Sequence[str]) -> list[str]:
    """Names without directories, and without `.db` if all end in it; as typed if two would be equal."""
    short = [name.rpartition("/")[2] for name in names]
    if len(set(short)) < len(short):
        return list(names)
    ending = ".db" if all(name.endswith(".db") for name in short) else ""
    return [name.removesuffix(ending) for name in short]
