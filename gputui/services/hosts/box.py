"""What a host is, and whether two names mean one machine."""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # Any: JSON of another machine

from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.machine import Interpreter, Machine
from gputui.model.units import format_bytes, format_seconds
from gputui.recording.probing import PROBE_TIMEOUT_S, ChosenInterpreter
from gputui.services.hosts.host import LOCAL, Host, quoted, text_from
from gputui.services.hosts.link import HostFailed, Link
from gputui.services.profiles.loader import Profile
from gputui.services.profiles.user_workload import profile_as_described
from gputui.store.strict import LARGEST, LATEST_US, strict
from gputui.store.text import clean_text
from gputui.worker.foreign_json import number, whole

CLOCK_MAY_BE_OFF_S = 60.0
BUSY_LOAD_PER_CORE = 0.5
LITTLE_SPACE_BYTES = 2**30
_MOST_TEXTS = 64
_NAME = re.compile(r"[\w.-]+")
_MOST_LOAD = 10**6


def key_for_hosts(key: bytes) -> bytes:
    """The key that other machines get to hash with: it tells nothing about the user's own."""
    return hmac.digest(key, b"gputui hosts", "sha256")


@dataclass(frozen=True, slots=True)
class Box:
    """A host that answered."""

    host: Host
    machine: Machine
    chosen: ChosenInterpreter
    host_id: str
    """Keyed hash of its name and machine-id."""
    boot_id: str
    clock_ahead_s: float
    free_bytes: int
    load: float
    in_progress: tuple[str, ...]
    """Ids of runs that were started there from elsewhere."""
    others: tuple[str, ...]
    """Other runs of gputui on it, as `PID 123 of ann`."""

    @property
    def runtime(self) -> str:
        torch = self.chosen.interpreter.runtime.torch_version
        return f"no torch ({torch.reason})" if isinstance(torch, Missing) else f"torch {torch}"

    @property
    def clock_wrong_by_s(self) -> float:
        """How far its clock is ahead; 0 if that may be the time that the answer took."""
        return self.clock_ahead_s if abs(self.clock_ahead_s) > CLOCK_MAY_BE_OFF_S else 0.0

    def cautions(self) -> tuple[str, ...]:
        """What would disturb a measurement there, or confuse its reader; each with what to do."""
        found = []
        if self.clock_wrong_by_s:
            off = format_seconds(round(abs(self.clock_wrong_by_s)))
            way = "ahead" if self.clock_wrong_by_s > 0 else "behind"
            found.append(
                f"its clock is {off} {way}: the times of its run are corrected; sudo timedatectl set-ntp true"
            )
        if self.others:
            found.append(
                f"gputui measures there already ({', '.join(self.others[:3])}): wait until it has ended"
            )
        elif self.load > BUSY_LOAD_PER_CORE * self.machine.cpu.usable_threads:
            look = "look with top" if self.host.name == LOCAL else "look with top there"
            found.append(f"it is busy (load {self.load:.1f}): {look}")
        if self.free_bytes < LITTLE_SPACE_BYTES:
            found.append(f"{format_bytes(self.free_bytes)} are free for its journal: make space, or --dir")
        return tuple(found)


def describe(link: Link, key: bytes) -> Box:
    """Ask what a host is. Blocks while torch is imported there, up to minutes. Raises HostFailed."""
    host = link.host
    asked_s = time.time()
    answer = link.ask(
        "describe", 2 * PROBE_TIMEOUT_S, key=key_for_hosts(key).hex(), python=host.python or None
    )
    return box_from(host, answer, asked_s)


def box_from(host: Host, answer: Mapping[str, Any], asked_s: float) -> Box:
    """A box from what it says of itself, which was asked for at `asked_s`. Raises HostFailed."""
    answered_s = time.time()
    try:
        ahead_s = number(answer["utc_us"], 0, LATEST_US) / 1e6 - answered_s
        if 0 >= ahead_s >= asked_s - answered_s:
            ahead_s = 0.0
        return Box(
            host=host,
            machine=strict(answer["machine"], Machine),
            chosen=ChosenInterpreter(
                strict(answer["interpreter"], Interpreter),
                text_from(answer["found_as"]),
                _texts(answer["passed_over"]),
            ),
            host_id=text_from(answer["host_id"]),
            boot_id=text_from(answer["boot_id"]),
            clock_ahead_s=ahead_s,
            free_bytes=whole(answer["free_bytes"], 0, LARGEST),
            load=number(answer["load"], 0, _MOST_LOAD),
            in_progress=_texts(answer["in_progress"]),
            others=_texts(answer["others"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise HostFailed(
            f"what it says of itself makes no sense ({clean_text(str(error))[:80]})",
            "is something else than gputui answering there?",
        ) from error
    except GputuiError as error:
        raise HostFailed(error.message, error.hint, error.exit_code) from error


@dataclass(frozen=True, slots=True)
class Left:
    """What gputui has left on a host."""

    path: str
    """Quoted."""
    entries: tuple[str, ...]
    """Names of what it made in that directory."""
    size_bytes: int
    runs: tuple[str, ...]
    """Each with its state."""


def left_on(host: Host) -> Left:
    """What gputui has left on a host, where it makes nothing new. Raises HostFailed, and NothingThere."""
    with Link(host, makes=False) as link:
        return _left(link)


def cleaned(host: Host) -> str:
    """Remove what gputui made on a host; returns what became of its directory. Raises HostFailed."""
    with Link(host, makes=False) as link:
        answer = link.ask("clean")
    path, others = quoted(str(answer.get("path", "")), 200), answer.get("others")
    return f"what gputui made in {path} is removed; something else stays" if others else f"{path} is removed"


def _left(link: Link) -> Left:
    answer = link.ask("left")
    try:
        runs = tuple(
            f"run {text_from(run['run_id'])[-8:]}:"
            f" {'in progress' if run['in_progress'] else 'not brought home'}"
            for run in answer["runs"][:_MOST_TEXTS]
        )
        entries = _texts(answer["entries"])
        if not all(_NAME.fullmatch(name) for name in entries):
            raise ValueError("its names are not gputui's")
        return Left(quoted(text_from(answer["path"])), entries, whole(answer["size"], 0, LARGEST), runs)
    except (KeyError, TypeError, ValueError) as error:
        raise HostFailed("what it says of itself makes no sense", "is another gputui there?") from error


def step_profile(link: Link, box: Box, path: Path, step: str) -> Profile:
    """The profile of a user's workload, as the interpreter of that box reads it. Raises HostFailed."""
    answer = link.ask(
        "describe_step", 2 * PROBE_TIMEOUT_S, python=box.chosen.interpreter.executable, step=step
    )
    try:
        return profile_as_described(dict(answer["step"]), path)
    except GputuiError as error:
        raise HostFailed(clean_text(error.message)[:400], error.hint) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise HostFailed("what it says of the workload makes no sense", "is another gputui there?") from error


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise TypeError(f"{values!r:.40} is not a list")
    return tuple(text_from(value) for value in values[:_MOST_TEXTS])


def same_boxes(boxes: Sequence[Box]) -> tuple[tuple[int, ...], ...]:
    """Indices of the boxes, grouped by machine: by machine-id and name, or by the boot of the kernel, which
    containers share."""
    groups: list[list[int]] = []
    for index, box in enumerate(boxes):
        same = [
            group
            for group in groups
            if any(
                boxes[other].host_id == box.host_id or (box.boot_id and boxes[other].boot_id == box.boot_id)
                for other in group
            )
        ]
        merged = [i for group in same for i in group]
        groups = [group for group in groups if group not in same]
        groups.append([*merged, index])
    return tuple(tuple(sorted(group)) for group in sorted(groups, key=min))
