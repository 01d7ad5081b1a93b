"""What each host is and would run, before anything is started there; and whether two names mean one box."""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any  # Any: JSON of another machine

from gputui.errors import GputuiError, clean_text
from gputui.model.absent import Missing
from gputui.model.machine import Interpreter, Machine
from gputui.model.plan import Plan
from gputui.model.units import counted, format_bytes, format_hourly, format_seconds, format_whole_seconds
from gputui.recording.probing import PROBE_TIMEOUT_S
from gputui.recording.run_directory import Spec
from gputui.services.hosts.bakeoff import GIVES_UP_AFTER_S, Bakeoff
from gputui.services.hosts.host import LOCAL, Host, quoted, text_from
from gputui.services.hosts.link import HostFailed, Link, on_all
from gputui.services.prices import price_of
from gputui.services.profiles.loader import Profile, find_profile
from gputui.services.profiles.planner import Choices, resolve_plan
from gputui.services.profiles.user_workload import is_step_file, profile_as_described
from gputui.services.results.labels import machine_words
from gputui.services.runs.process import new_run_id
from gputui.services.runs.progress import expected_s
from gputui.services.runs.start import cautions, check_something_runs
from gputui.store.strict import LARGEST, LATEST_US, strict
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
    chosen: Interpreter
    host_id: str
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
        torch = self.chosen.runtime.torch_version
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
            chosen=replace(
                strict(answer["interpreter"], Interpreter),
                found_as=text_from(answer["found_as"]),
                passed_over=_texts(answer["passed_over"]),
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
    size_bytes: int
    runs: tuple[str, ...]


def left_on(host: Host) -> Left:
    """What gputui has left on a host, where it makes nothing new. Raises HostFailed, and NothingThere."""
    with Link(host, makes=False) as link:
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


def cleaned(host: Host) -> str:
    """Remove what gputui made on a host; returns what became of its directory. Raises HostFailed."""
    with Link(host, makes=False) as link:
        answer = link.ask("clean")
    path, others = quoted(str(answer.get("path", "")), 200), answer.get("others")
    return f"what gputui made in {path} is removed; something else stays" if others else f"{path} is removed"


def step_profile(link: Link, box: Box, path: Path, step: str) -> Profile:
    """The profile of a user's workload, as the interpreter of that box reads it. Raises HostFailed."""
    answer = link.ask("describe_step", 2 * PROBE_TIMEOUT_S, python=box.chosen.executable, step=step)
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


@dataclass(frozen=True, slots=True)
class PlannedHost:
    """A host that answered, and what it would measure."""

    box: Box
    plan: Plan

    @property
    def about_s(self) -> float:
        """Seconds that its run will take, about."""
        return sum(expected_s(self.plan, launch) for launch in self.plan.launches)

    def lines(self) -> Iterator[str]:
        """What it is and would do, then what would disturb that."""
        price = self.box.host.usd_per_hour
        to_run = sum(case.outcome is None for case in self.plan.cases)
        left_out = len(self.plan.cases) - to_run
        parts = [
            machine_words(self.box.machine),
            self.box.runtime,
            counted(to_run, "case") + (f", {left_out} cannot run there" if left_out else ""),
            f"about {format_whole_seconds(self.about_s)}",
            *([] if price is None else [format_hourly(price)]),
        ]
        yield " · ".join(parts)
        yield from cautions(self.plan, self.box.chosen, self.box.machine)
        yield from self.box.cautions()


@dataclass(frozen=True, slots=True)
class PreparedHosts:
    """All hosts of a bakeoff before its start."""

    planned: tuple[PlannedHost, ...]
    refused: tuple[str, ...]
    """Names of hosts that cannot be measured, each with why, and what to do."""
    groups: tuple[tuple[int, ...], ...]
    """Indices of `planned`: hosts of one group are measured one after the other."""

    def same(self) -> Iterator[str]:
        """Which hosts are one box, a line each."""
        for group in (group for group in self.groups if len(group) > 1):
            names = " and ".join(self.planned[index].box.host.name for index in group)
            yield f"{names} are one box: measured one after the other, since they would disturb each other"

    def summary(self) -> str:
        """Profile, hosts, time and cost of all together; the empty text without any host."""
        if not self.planned:
            return ""
        usd = sum((one.box.host.usd_per_hour or 0.0) * one.about_s / 3600 for one in self.planned)
        longest_s = max(sum(self.planned[index].about_s for index in group) for group in self.groups)
        count = len(self.planned)
        hosts = counted(count, "host") + (f" of {count + len(self.refused)}" if self.refused else "")
        cost = f", about ${usd:.2f} in all" if usd else ""
        return f"{self.planned[0].plan.profile} on {hosts}, about {format_whole_seconds(longest_s)}{cost}"


def prepare(
    hosts: Sequence[Host],
    profile: Profile | None,
    choices: Choices,
    key: bytes,
    *,
    step_file: Path | None = None,
    step: str = "",
    in_parallel: bool = False,
) -> PreparedHosts:
    """Ask all hosts what they are and plan for each; blocks while torch is imported there.

    `profile` is None for the workload of `step_file`, whose text is `step`. With `in_parallel` names of one
    box are not measured in turn. Never raises for a single host.
    """

    def asked(host: Host) -> tuple[Box, Profile]:
        with Link(host) as link:
            box = describe(link, key)
            return box, profile or step_profile(link, box, step_file or Path(), step)

    planned, refused = [], []
    for host, found in zip(hosts, on_all(hosts, asked), strict=True):
        try:
            if isinstance(found, GputuiError):
                raise found
            planned.append(_planned(*found, choices))
        except GputuiError as error:
            refused.append(": ".join(filter(None, (host.name, error.message, error.hint))))
    alone = tuple((index,) for index in range(len(planned)))
    groups = alone if in_parallel else same_boxes([one.box for one in planned])
    return PreparedHosts(tuple(planned), tuple(refused), groups)


def _planned(box: Box, profile: Profile, choices: Choices) -> PlannedHost:
    if box.in_progress:
        raise GputuiError(
            f"run {box.in_progress[0][-8:]} of another bakeoff is in progress there",
            "gputui bakeoff --resume waits for it",
        )
    plan = resolve_plan(profile, box.chosen, box.machine, choices)
    check_something_runs(profile, plan, box.chosen, box.machine)
    return PlannedHost(box, replace(plan, step_file=Path(plan.step_file).name))  # no path of this box


def new_bakeoff(
    prepared: PreparedHosts,
    target: Path,
    key: bytes,
    *,
    step: str = "",
    gives_up_after_s: float = GIVES_UP_AFTER_S,
) -> Bakeoff:
    """The bakeoff of hosts that were prepared; written down, not started.

    Raises NotStored, and GputuiError for a price.
    """
    parts: list[tuple[Host, Spec]] = []
    for one in prepared.planned:
        host = replace(one.box.host, clock_ahead_s=one.box.clock_wrong_by_s)
        spec = Spec(
            run_id=new_run_id(),
            plan=one.plan,
            runtime=one.box.chosen.runtime,
            price=price_of(host.usd_per_hour, None, one.box.machine),
            hash_key=key_for_hosts(key),
            target=str(target),
        )
        parts.append((host, spec))
    name = time.strftime("%Y%m%d-%H%M%S")
    return Bakeoff.create(name, parts, prepared.groups, step, gives_up_after_s)


def profile_for_hosts(name: str) -> tuple[Profile | None, Path | None, str]:
    """The profile of that name, or for a workload of the user's its file and text. Raises GputuiError."""
    if is_step_file(name):
        path = Path(name)
        try:
            return None, path, path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            hint = f"gputui new-workload {path} writes one that runs"
            raise GputuiError(f"{path}: cannot be read ({error})", hint) from error
    profile = find_profile(name or "quick")
    if profile.commands:
        raise GputuiError(
            f"profile {profile.name}: names programs, which other hosts may not have",
            "gputui run on each box",
        )
    return profile, None, ""
