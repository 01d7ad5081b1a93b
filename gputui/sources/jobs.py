"""The batch job, pod or container that a process runs in, from its control group and its environment."""

from __future__ import annotations

import os
import re
from pathlib import Path

from gputui.model.absent import Missing
from gputui.model.live import NO_JOB
from gputui.sources.small_files import read_file

_LONGEST_ENVIRONMENT = 256 * 1024
_SLURM = re.compile(r"/(?:slurm[^/]*/.*)?job_(\d+)(?:/|$)")
_POD = re.compile(r"/(?:kubepods[^/]*-)?pod([0-9a-f]{8}[-_][0-9a-f_-]{27})(?:\.slice)?(?:/|$)")
_CONTAINERS = (
    # cgroupfs and systemd name a container by its 64 digits, and each engine writes the name differently.
    ("docker", re.compile(r"/(?:docker[-/])([0-9a-f]{64})(?:\.scope)?(?:/|$)")),
    ("podman", re.compile(r"/libpod-(?:payload-)?([0-9a-f]{64})(?:\.scope)?(?:/|$)")),
    ("container", re.compile(r"/(?:cri-containerd-|crio-)?([0-9a-f]{64})(?:\.scope)?(?:/|$)")),
    ("lxc", re.compile(r"/lxc(?:\.payload)?[./]([^/]+)")),
)
_ID_SHOWN = 12
"""Digits of a container's id, as Docker shows them."""


def job_of(pid: int, proc: str = "/proc") -> str | Missing:
    """`slurm 4711`, `pod train-0`, `docker 3f9c2a17b0de`, in this order where a process is in several.

    The environment is read only of processes of this user: it holds secrets of others. Inside a container the
    control group may name nothing, and the environment is all there is.
    """
    try:
        group = read_file(f"{proc}/{pid}/cgroup").decode(errors="replace")
    except OSError:
        group = ""
    own = _environment(pid, proc)
    slurm = _SLURM.search(group)
    number = slurm[1] if slurm else own.get("SLURM_JOB_ID", "")
    if number:
        return f"slurm {number}"
    pod = _POD.search(group)
    if pod or "KUBERNETES_SERVICE_HOST" in own:
        name = own.get("POD_NAME") or own.get("HOSTNAME", "")
        if name or pod:
            return f"pod {name or (pod[1][:8] if pod else '')}"
    for engine, pattern in _CONTAINERS:
        found = pattern.search(group)
        if found:
            return f"{engine} {found[1][:_ID_SHOWN]}"
    return NO_JOB


def _environment(pid: int, proc: str) -> dict[str, str]:
    """Of a process of this user; empty of others."""
    try:
        if Path(proc, str(pid)).stat().st_uid != os.getuid():
            return {}
        with Path(proc, str(pid), "environ").open("rb") as file:
            raw = file.read(_LONGEST_ENVIRONMENT)
    except OSError:
        return {}
    pairs = (part.partition("=") for part in raw.decode("utf-8", "replace").split("\0"))
    return {name: value for name, _, value in pairs if name}
