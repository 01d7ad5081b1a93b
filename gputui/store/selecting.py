"""Which run a short id, a label or `latest` means, and which runs are of one box, by what it is known by."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gputui.errors import GputuiError, beginning
from gputui.model.machine import Identity, Machine
from gputui.model.result import Run, RunSummary

_QUOTED = 24
"""How much of a wrong label an error repeats, so that its own text stays visible."""
MAX_LABEL = 80
_LISTED = 8


def find_run(summaries: Sequence[RunSummary], selector: str, *, guesses: bool = True) -> RunSummary:
    """The run that a selector names, among summaries sorted newest first.

    A selector is `latest`, `latest~N`, the last 8 hex digits of the id or a unique prefix of them, the whole
    id, or a label. Raises GputuiError if none or several match; with `guesses`, it names runs that may be
    meant.
    """
    if not summaries:
        raise GputuiError(f"there is no run {selector!r}: no run is stored yet", "measure one: gputui run")
    latest = re.fullmatch(r"latest(?:~(\d{1,6}))?", selector)
    if latest:
        back = int(latest.group(1) or 0)
        if back >= len(summaries):
            stored = f"{len(summaries)} {'is' if len(summaries) == 1 else 'are'} stored"
            raise GputuiError(f"there is no run {selector!r}: {stored}", "gputui runs F lists them")
        return summaries[back]
    found = _matching(summaries, selector)
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(_called(s) for s in found[:_LISTED])
        more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        raise GputuiError(
            f"{selector!r} means {len(found)} runs: {listed}{more}", "name one by the 8 digits of its id"
        )
    names = [name for s in summaries for name in (s.short_id, s.label) if name]
    near = difflib.get_close_matches(selector, dict.fromkeys(names), n=3)
    hint = f"did you mean {', '.join(near)}?" if near else f"the newest is {_called(summaries[0])}"
    hint = hint if guesses else "gputui runs F lists them"
    hint = (
        "one file at a time; gputui compare sets several beside each other"
        if selector.endswith(".db")
        else hint
    )
    raise GputuiError(f"there is no run {selector!r}", hint)


def find_runs(summaries: Sequence[RunSummary], selector: str) -> tuple[RunSummary, ...]:
    """All runs that a selector names: those with one label, or the one that `find_run` finds."""
    found = _matching(summaries, selector)
    if found and all(summary.label == selector for summary in found):
        return tuple(found)
    return (find_run(summaries, selector),)


def check_label(text: str) -> str:
    """The label, if it is valid; empty means none.

    Raises GputuiError for one that is too long, cannot be printed, or would be mistaken for a short id or for
    `latest`.
    """
    if len(text) > MAX_LABEL or not text.isprintable():
        raise GputuiError(
            f"{beginning(text, _QUOTED)!r} is not a label",
            f"a label has up to {MAX_LABEL} printable characters",
        )
    if re.fullmatch(r"latest(~.*)?|[0-9a-f]{8}|[0-9a-f-]{36}", text.lower()):
        raise GputuiError(f"{text!r} is not a label: it reads as a run's id", "add a word to it")
    return text


def _matching(summaries: Sequence[RunSummary], selector: str) -> list[RunSummary]:
    """Runs with this id, else with this label, else whose short id starts like this."""
    wanted = selector.lower()
    ways = (
        [s for s in summaries if wanted in (s.short_id, s.run_id)],
        [s for s in summaries if selector and s.label == selector],
        [s for s in summaries if wanted and s.short_id.startswith(wanted)],
    )
    return next((matches for matches in ways if matches), [])


def _called(summary: RunSummary) -> str:
    return f"{summary.short_id} ({summary.label})" if summary.label else summary.short_id


_EXCLUSIVE = ("stated", "product-uuid")
"""A box has one of each of these kinds: two that differ are two boxes, whatever else they share."""
_KINDS = (*_EXCLUSIVE, "machine-id", "gpus", "GPU", "account", "boot", "run", "looks")
"""The surest first."""
Known = tuple[Identity, ...]
"""What the box of a run is known by."""


def with_common_ids(
    groups: Sequence[Sequence[RunSummary]], *, pool: bool = False
) -> list[tuple[RunSummary, ...]]:
    """The same summaries, whose `machine_id` is equal for all runs of one box.

    Boxes are one if they share an id, or a GPU, unless their firmware or their user says that they are two.
    With `pool`, so are those that look the same if nothing sure is known of them.
    """
    ids = common_ids(
        {known_by(s.machine, pool=pool): s.machine.machine_id for group in groups for s in group}
    )
    return [tuple(_renamed(summary, ids, pool) for summary in group) for group in groups]


def runs_with_common_ids(groups: Sequence[Sequence[Run]], *, pool: bool = False) -> list[tuple[Run, ...]]:
    """As `with_common_ids` for whole runs."""
    summaries = with_common_ids([[run.summary for run in runs] for runs in groups], pool=pool)
    return [
        tuple(replace(run, summary=summary) for run, summary in zip(runs, of_runs, strict=True))
        for runs, of_runs in zip(groups, summaries, strict=True)
    ]


def known_by(machine: Machine, *, pool: bool = False) -> Known:
    """What the box is known by, its GPUs included; with `pool` as in `with_common_ids`."""
    found = known_by_ids(machine.machine_id, machine.identities, (gpu.gpu_id for gpu in machine.gpus))
    is_open = pool and not machine.is_sure and machine.identities and found[0].kind != "stated"
    return (*found, _looks(machine)) if is_open else found


def known_by_ids(machine_id: str, identities: Known, gpu_ids: Iterable[str]) -> Known:
    """As `known_by`, from the ids alone; those of GPUs may be empty."""
    if not identities:  # earlier versions stored one id, under the user's key
        return (Identity("account", machine_id),)
    if identities[0].kind == "stated":
        return identities
    return (*identities, *(Identity("GPU", gpu_id) for gpu_id in gpu_ids if gpu_id))


def are_one_box(a: Iterable[Identity], b: Iterable[Identity]) -> bool:
    """Whether what two boxes are known by makes them one, as in `with_common_ids`."""
    one, other = _Box(a), _Box(b)
    return bool(one.known & other.known) and not one.is_not(other)


def common_ids(names: Mapping[Known, str]) -> dict[Known, Identity]:
    """The id of the box of each set of identities: the surest that any of its runs has.

    `names` are the ids that they were stored with, which a box keeps, without a kind, that nothing was added
    to.
    """
    box_of = {known: _Box(known) for known in names}
    for known, box in box_of.items():
        box.members.append(known)
    for kind in _KINDS:
        first: dict[str, Known] = {}
        for known in names:
            for one in known:
                if one.kind != kind:
                    continue
                box, mine = box_of[first.setdefault(one.id, known)], box_of[known]
                if box is mine or box.is_not(mine):
                    continue
                if len(box.members) < len(mine.members):
                    box, mine = mine, box
                box.add(mine)
                box_of.update(dict.fromkeys(mine.members, box))
    return {
        known: Identity("", names[known])
        if len(box.known) == len(known)
        else min(
            (one for one in box.known if one.kind not in ("GPU", "looks")),
            key=lambda one: (_KINDS.index(one.kind) if one.kind in _KINDS else 99, one.id),
        )
        for known, box in box_of.items()
    }


def _renamed(summary: RunSummary, ids: Mapping[Known, Identity], pool: bool) -> RunSummary:
    machine = summary.machine
    common = ids[known_by(machine, pool=pool)]
    if machine.machine_id in ("", common.id):
        return summary
    identities = machine.identities or (common, *known_by(machine))  # its own id is not lost
    return replace(summary, machine=replace(machine, machine_id=common.id, identities=identities))


def _looks(machine: Machine) -> Identity:
    names = [gpu.name for gpu in machine.gpus]
    memory_gib = round(machine.memory.host_bytes / 2**30)
    return Identity("looks", f"{machine.cpu.model} {machine.cpu.host_threads} {memory_gib} {names}")


class _Box:
    """What is known of one box, from one run or more."""

    def __init__(self, known: Iterable[Identity]) -> None:
        self.known = set(known)
        self.members: list[Known] = []
        self._exclusive = {one.kind: one.id for one in self.known if one.kind in _EXCLUSIVE}

    def is_not(self, other: _Box) -> bool:
        """Whether both have an id that a box has one of, and they differ."""
        return any(other._exclusive.get(kind, id) != id for kind, id in self._exclusive.items())

    def add(self, other: _Box) -> None:
        """Add what another run of the box tells."""
        self.known |= other.known
        self.members += other.members
        self._exclusive |= other._exclusive
