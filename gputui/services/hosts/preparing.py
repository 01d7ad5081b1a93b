"""What each host would run, before anything is started there."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gputui.errors import GputuiError
from gputui.model.plan import Plan
from gputui.model.units import counted, format_hourly, format_whole_seconds
from gputui.recording.run_directory import Spec
from gputui.services.hosts.bakeoff import (
    GIVES_UP_AFTER_S,
    Bakeoff,
    on_all,
    spec_of,
)
from gputui.services.hosts.box import Box, describe, key_for_hosts, same_boxes, step_profile
from gputui.services.hosts.host import Host
from gputui.services.hosts.link import Link
from gputui.services.profiles.loader import Profile, find_profile
from gputui.services.profiles.planner import Choices, resolve_plan
from gputui.services.profiles.user_workload import is_step_file
from gputui.services.results.labels import machine_words
from gputui.services.runs.process import new_run_id
from gputui.services.runs.progress import expected_s
from gputui.services.runs.start import cautions, check_something_runs


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
        yield from cautions(self.plan, self.box.chosen.interpreter, self.box.machine)
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
    plan = resolve_plan(profile, box.chosen.interpreter, box.machine, choices)
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
        parts.append((host, spec_of(one.box, one.plan, new_run_id(), target, key_for_hosts(key))))
    return Bakeoff.create(new_name(), target, parts, prepared.groups, step, gives_up_after_s)


def new_name() -> str:
    """Of a bakeoff that begins now."""
    return time.strftime("%Y%m%d-%H%M%S")


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
