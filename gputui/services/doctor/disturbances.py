"""What would disturb a measurement now, in the words that `doctor` and the start of `run` share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from statistics import mean
from typing import Literal

from gputui.analysis.health import BUSY_PCT, GHOST, GpuFinding, health
from gputui.document.spans import Line, Span, wrapped
from gputui.errors import clean_text
from gputui.machine.gpus import gpu_addresses, join_gpu
from gputui.metrics import number, word
from gputui.model.absent import Missing
from gputui.model.journal import LOCK_NAME
from gputui.model.machine import Machine
from gputui.model.plan import PlannedLaunch
from gputui.model.telemetry import DeviceSample, LiveSample
from gputui.model.units import format_percent
from gputui.services.runs.process import held_runs
from gputui.services.snapshot import current_user, take_snapshot

State = Literal["ok", "note", "problem", "unknown"]
WORDS = {"ok": "ok", "note": "caution", "problem": "FAULT", "unknown": "unknown"}
"""What people read for the states."""
STYLES = {"ok": "good", "note": "warn", "problem": "alarm", "unknown": "dim"}

STATE, TOPIC = 9, 16
_NARROW = 60
"""Below this width findings begin on a new line."""

NOTED = ("POWER-CAPPED", "SHARED", "STALE")
"""Prefixes of findings that a healthy GPU may have too; any other finding is a problem, and so is any
alarm."""
_OPENS_A_CONTEXT = "python3 -c 'import torch; torch.zeros(1).cuda()'"
SLOWING = ("PCIe", "THERMAL", "POWER BRAKE", "HW SLOWDOWN")
"""Prefixes of findings that make a GPU slower, and break nothing."""
DISTURBING = ("SHARED",)
"""Of those that make a measurement say nothing about the GPU."""
MOST_USED = 0.9
"""Of a GPU's memory: more that is taken leaves no room for what is measured."""
TELL = "no setting of yours: tell the provider, or take another box"
_RESETS = "end what runs on it and reset it; if it comes back, tell the provider"
_STEPS = (
    (("LOST", "NO READING", "STALE", "Xid 79", "Xid 119", "Xid 120"), "restart the box, or take another"),
    (
        ("ROW REMAP FAILED", "Xid 64", "Xid 92"),
        "its memory is failing: have the GPU replaced, or take another box",
    ),
    (("ROW REMAP PENDING", "ECC", "Xid 48", "Xid 63", "Xid 94", "Xid 95", "Xid 74"), _RESETS),
    (("THERMAL",), "see that its fans turn and its air is cool, or tell the provider"),
)
"""What to do about a finding, by how it begins; about others `TELL`."""
OTHERS_SHARE = 0.25
"""Share of all CPUs that other programs may use before results on this CPU suffer visibly."""


@dataclass(frozen=True, slots=True)
class Check:
    topic: str
    """`driver`, `GPU 3 link`, `torch`: short."""
    state: State
    """`problem`: the machine does not do what it should; `note`: worth knowing; `unknown`: could not be
    checked."""
    found: str
    next_step: str = ""
    """What to do about it; empty if nothing needs to be done."""
    command: str = ""
    """What to type for that, whole; empty if it is not a command."""


def check_lines(check: Check, width: int, *, breaks: bool = True) -> list[Line]:
    """State, topic, finding, and the next step below, in lines of at most `width` cells.

    What is to be typed is never broken; neither are long words, such as paths, unless one `breaks`.
    """
    margin = STATE + TOPIC if width >= _NARROW else 2
    room = max(width - margin - 1, 12)
    found = wrapped(clean_text(check.found), room, breaks=breaks)
    state = Span(f"{WORDS[check.state]:{STATE}}", STYLES[check.state])
    topic = Span(f"{clean_text(check.topic)[: TOPIC - 1]:{TOPIC}}", "" if check.state == "ok" else "title")
    first = found.pop(0) if width >= _NARROW else ""
    lines: list[Line] = [(state, topic, Span(first)), *((Span(" " * margin + line),) for line in found)]
    steps = wrapped(clean_text(check.next_step), room - 3, breaks=breaks) if check.next_step else []
    for place, line in enumerate(steps):
        lines.append((Span(" " * margin + ("   " if place else "-> ") + line, "dim"),))
    if check.command:
        lines.append((Span(" " * margin + "$ ", "dim"), Span(clean_text(check.command), "accent")))
    return lines


def disturbances(
    machine: Machine, gpus: Collection[int], snapshot: Callable[[], LiveSample] | None = None
) -> tuple[Check, ...]:
    """What is not well of the host and of these GPUs just now; takes half a second."""
    sample = take_snapshot(processes=True) if snapshot is None else snapshot()
    checks = [*other_runs(), *load_checks(machine, sample)]
    checks += gpu_checks([gpu for gpu in sample.gpus if gpu.device in gpus], sample, current_user())
    checks += power_limit_checks(machine, gpus)
    return tuple(check for check in checks if check.state in ("note", "problem"))


def in_the_way(checks: Iterable[Check], *, of_cpu: bool) -> Check | None:
    """What keeps this box from being measured now: another run, or of its CPU other programs."""
    topics = ("another run", "other programs") if of_cpu else ("another run",)
    found = {check.topic: check for check in checks if check.state == "note"}
    return next((found[topic] for topic in topics if topic in found), None)


def gpus_of(launches: Iterable[PlannedLaunch], machine: Machine) -> set[int]:
    """The driver's numbers of the GPUs that these launches use; all, where one of them is not known."""
    devices = {launch.device for launch in launches if launch.device.device_class == "gpu"}
    addresses = gpu_addresses() if devices else ()
    found: set[int] = set()
    for device in devices:
        for visible in device.visible.split(","):
            index = join_gpu(addresses, visible, device.pci_address)
            if isinstance(index, Missing):
                return {gpu.index for gpu in machine.gpus}
            found.add(index)
    return found


def other_runs() -> Iterator[Check]:
    for holder, (run_dir, *_) in held_runs():
        since = datetime.fromtimestamp((run_dir / LOCK_NAME).stat().st_mtime)
        yield Check(
            "another run",
            "note",
            f"another gputui run is going: pid {holder.pid}, since {since:%H:%M}",
            "each takes CPUs from the other; to watch it until it ends:",
            f"gputui attach {run_dir.name[-8:]}",
        )


def load_checks(machine: Machine, sample: LiveSample) -> Iterator[Check]:
    """Whether other programs have the CPUs: by the load of the last minute, unless they are idle again."""
    threads = machine.cpu.host_threads
    load = number(sample.host.values, "load_1min")
    if load is None:
        return
    between = [float(text) for text in word(sample.host.values, "cpu_core_pct").split(",") if text]
    is_idle_again = bool(between) and mean(between) <= 100 * OTHERS_SHARE  # in the time of two readings
    if load <= OTHERS_SHARE * threads or is_idle_again:
        yield Check("other programs", "ok", f"quiet: load {load:.1f} on {threads} threads")
    else:
        found = f"busy with other work for {load:.1f} threads, and this box has {threads}"
        step = "rates will be lower and vary: wait until they are done"
        yield Check("other programs", "note", found, step)


def gpu_checks(gpus: Iterable[DeviceSample], sample: LiveSample, user: str) -> Iterator[Check]:
    """What a GPU suffers from, and who else uses it."""
    lost = {gpu.device for gpu in sample.gpus if gpu.problem is not None}
    for gpu in gpus:
        if gpu.parent in lost:
            continue  # why its GPU cannot be read is reported once
        findings = health(sample.t_ns, gpu, processes=sample.processes, user=user)
        for finding in findings:
            yield _of_finding(gpu, finding)
        busy = number(gpu.values, "sm_busy_pct")
        is_ghost = any(finding.word == GHOST for finding in findings)
        if busy is not None and busy >= BUSY_PCT and not is_ghost:
            step = "whatever runs there lowers every rate; to see it:"
            found = f"busy with other work ({busy:.0f} %)"
            yield Check(f"GPU {gpu.device} use", "note", found, step, "gputui snapshot --processes")
        used, total = (number(gpu.values, f"memory_{one}_bytes") for one in ("used", "total"))
        if gpu.parent is None and used and total and used >= MOST_USED * total:
            found = f"{format_percent(used / total)} of its memory is taken"
            step = "what runs next runs out of memory; to see who has it:"
            yield Check(f"GPU {gpu.device} use", "note", found, step, "gputui snapshot --processes")


def _of_finding(gpu: DeviceSample, finding: GpuFinding) -> Check:
    is_noted = finding.severity == "note" or (finding.severity == "warn" and finding.word.startswith(NOTED))
    if finding.word == "HOT":
        state: State = "problem" if finding.severity == "alarm" else "note"
        return Check(f"GPU {gpu.label} heat", state, finding.why, "let it cool down, or check its fans")
    if finding.word == GHOST:
        command = f"CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={gpu.device} {_OPENS_A_CONTEXT}"
        return Check(f"GPU {gpu.label} use", "note", f"{GHOST}: {finding.why}", "to do that:", command)
    found = f"{finding.word}: {finding.why}"
    if is_noted:
        return Check(f"GPU {gpu.label}", "note", found)
    step = next((step for beginnings, step in _STEPS if finding.word.startswith(beginnings)), TELL)
    command = f"sudo nvidia-smi --gpu-reset -i {gpu.device}" if step == _RESETS else ""
    return Check(f"GPU {gpu.label}", "problem", found, step, command)


def power_limit_checks(machine: Machine, gpus: Collection[int]) -> Iterator[Check]:
    """GPUs that may draw less than they come with."""
    for gpu in machine.gpus:
        limit, default = gpu.power_limit_w, gpu.power_default_limit_w
        if gpu.index not in gpus or isinstance(limit, Missing) or isinstance(default, Missing):
            continue
        if limit < default - 0.5:
            found = f"limited to {limit:.0f} W (factory {default:.0f} W)"
            command = f"sudo nvidia-smi -i {gpu.index} -pl {default:.0f}"
            if gpu.vendor == "amd":
                command = f"sudo rocm-smi -d {gpu.index} --setpoweroverdrive {default:.0f}"
            step = "it is slower than others of its model; to lift the limit:"
            yield Check(f"GPU {gpu.index} power", "note", found, step, command)
