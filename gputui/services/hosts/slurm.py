"""Partitions of a Slurm cluster as hosts: one batch job for each kind of node."""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import dataclass, replace

from gputui.errors import GputuiError
from gputui.recording.supervisor import HARD_STOP
from gputui.services.hosts.host import LOCAL, Host, ssh_host
from gputui.services.hosts.link import HostFailed, Link, find_python, half, run_text
from gputui.store.text import clean_text

START_S = 900.0
"""Besides the budget: a node that boots, torch from a cold disk, and one launch that ends late."""
UNKNOWN_BUDGET_S = 1800.0
"""Of a workload of the user's, which only the node describes."""
_STOPS_BEFORE_S = 60
_NOT_UP = re.compile(r"\*|down|drain|fail|unk|maint|power|inval|future|no_respond", re.IGNORECASE)
_PART_OF_A_NODE = (
    "--gres",
    "--gpus",
    "--cpus-per",
    "--mem",
    "--exclusive",
    "--oversubscribe",
    "-c",
    "-G",
    "-s",
)
"""Options by which the user asks for less than the whole node."""
_RUN_JOB = """
import sys
from pathlib import Path
from gputui.recording.own_directory import NotOurs, open_verified, verified_name, why_not_private
archive, run_dir, digest = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
try:
    if why := why_not_private(archive.parent):
        raise NotOurs(why)
    sys.path.insert(0, verified_name(open_verified(archive, digest), archive, digest))
except (NotOurs, OSError) as error:
    sys.exit(str(error))
from gputui.services.hosts.batch_job import main
sys.exit(main(run_dir))
"""


@dataclass(frozen=True, slots=True)
class SlurmPartition:
    """A partition as the user named it."""

    login: Host
    """Where jobs are submitted."""
    name: str
    named_nodes: str
    """The nodes to choose from, as `gpu[1-4]`; empty for all."""
    options: tuple[str, ...]
    """For sbatch, as the user gave them."""


@dataclass(frozen=True, slots=True)
class NodeType:
    """Nodes of a partition with the same CPUs and the same GRES, as GPUs are called there."""

    partition: SlurmPartition
    cpus: str
    gres: str
    """As `gpu:a100:8`; empty for none."""
    count: int
    """That are up and may be chosen."""
    excluded: tuple[str, ...]
    """All other nodes of the partition."""

    @property
    def host(self) -> Host:
        """The place that submits, under the name of this kind of node."""
        return replace(self.partition.login, name=f"{self.partition.name}/{self.gres or f'{self.cpus}cpu'}")

    def options(self, budget_s: float | None) -> list[str]:
        """For sbatch: one whole node of this kind for as long as the budget may take; the user's are last."""
        stated = self.partition.options
        seconds = START_S + HARD_STOP * (UNKNOWN_BUDGET_S if budget_s is None else budget_s)
        words = [
            f"--partition={self.partition.name}",
            "--job-name=gputui",
            "--nodes=1",
            "--ntasks=1",
            "--no-requeue",
            f"--time={math.ceil(seconds / 60)}",
            f"--signal=B:TERM@{_STOPS_BEFORE_S}",
        ]
        if self.excluded:
            words.append(f"--exclude={','.join(self.excluded)}")
        if not any(word.startswith(_PART_OF_A_NODE) for word in stated):
            words += ["--exclusive", "--mem=0", *([f"--gres={self.gres}"] if self.gres else [])]
        return [*words, *stated]


def partition_from(text: str, directory: str = "") -> SlurmPartition:
    """A partition from `[LOGIN:]PARTITION [SBATCH OPTION ...]`. Raises GputuiError."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise GputuiError(f"--slurm {text}: {error}", "close the quote") from error
    address, separator, name = words[0].rpartition(":") if words else ("", "", "")
    if not re.fullmatch(r"[\w.+-]+", name) or name.startswith("-") or (separator and not address):
        raise GputuiError(
            f"--slurm {text!r}: names no partition",
            "such as --slurm gpu or --slurm 'LOGIN:gpu --account=NAME'",
        )
    login = replace(ssh_host(address) if address else Host(LOCAL, ()), directory=directory)
    named, options = "", []
    rest = iter(words[1:])
    for word in rest:
        if word in ("-w", "--nodelist"):
            named = next(rest, "")
        elif word.startswith("--nodelist="):
            named = word.partition("=")[2]
        else:
            options.append(word)
    return SlurmPartition(login, name, named, tuple(options))


def node_types(partition: SlurmPartition) -> tuple[NodeType, ...]:
    """The kinds of node of a partition that have one which is up. Raises GputuiError."""
    with Link(partition.login) as link:
        answer = link.ask("slurm_nodes", 90.0, partition=partition.name, named=partition.named_nodes)
    everywhere, wanted = _nodes(answer.get("nodes")), _nodes(answer.get("wanted"))
    up = [node for node in wanted if not _NOT_UP.search(node[3])]
    if not up:
        what = f"{len(wanted)} nodes, none of them is up" if wanted else "no such nodes"
        raise GputuiError(f"--slurm {partition.name}: {what}", "sinfo lists partitions and their nodes")
    found = []
    for cpus, gres in dict.fromkeys((node[1], node[2]) for node in up):
        kind = {node[0] for node in wanted if (node[1], node[2]) == (cpus, gres)}
        others = dict.fromkeys(node[0] for node in everywhere if node[0] not in kind)
        count = sum(node[0] in kind for node in up)
        found.append(NodeType(partition, cpus, gres, count, tuple(others)))
    return tuple(found)


def _nodes(rows: object) -> list[tuple[str, str, str, str]]:
    """Name, CPUs, GRES without what says where it is plugged, and state."""
    found = []
    for row in rows if isinstance(rows, list) else ():
        if not (isinstance(row, list) and len(row) == 4 and all(isinstance(field, str) for field in row)):
            raise HostFailed("what sinfo says there makes no sense", "sinfo --Node --format='%N|%c|%G|%T'")
        name, cpus, gres, state = (clean_text(field)[:200] for field in row)
        plain = re.sub(r"\([^)]*\)", "", gres)
        if not re.fullmatch(r"[\w.-]+", name) or not cpus.isdigit() or not re.fullmatch(r"[\w:,./-]*", plain):
            raise HostFailed(f"sinfo names a node {name[:40]!r} there", "sinfo --Node --format='%N|%c|%G|%T'")
        found.append((name, cpus, plain, state))
    return found


def job_script(host: Host) -> str:
    """The batch script: finds a Python on the node, and has it measure. Its words are zip and directory."""
    none = 'echo "this node has no Python 3.10 or newer:$o" >&2; exit 3'
    run = run_text(_RUN_JOB, f'"$1" "$2" {half()[1]}')
    return f"#!/bin/sh\n{find_python(host, run, none)}\n"
