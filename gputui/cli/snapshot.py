"""`gputui snapshot`: every GPU and the host, once, in plain lines."""

from __future__ import annotations

import gc
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import click

from gputui.analysis.health import GpuFinding, health
from gputui.cli.output import print_json, wrapped
from gputui.errors import MachineLacks, clean_text
from gputui.metrics import ABSENT, Metric, Values, charted, metric_named, number, with_unit, word
from gputui.model.absent import Missing, fields_of, to_plain
from gputui.model.telemetry import HOST, DeviceSample, LiveSample, ProcessSample, device_order
from gputui.model.units import counted, format_bytes, format_seconds
from gputui.services.snapshot import current_user, take_snapshot

_LONGEST_COMMAND = 200

Findings = Mapping[tuple[str, int], Sequence[GpuFinding]]


@click.command()
@click.option("--processes", is_flag=True, help="Also list the processes on the GPUs.")
@click.option("--require-gpu", is_flag=True, help="Exit 3 with the reason if no GPU can be read.")
@click.option("--json", "in_json", is_flag=True, help="Print as JSON.")
def command(processes: bool, require_gpu: bool, in_json: bool) -> None:
    """Print one reading of every GPU and of the host.

    It takes half a second: rates need two readings.
    """
    print_snapshot(processes=processes, require_gpu=require_gpu, in_json=in_json)


def print_snapshot(*, processes: bool, require_gpu: bool, in_json: bool) -> None:
    """One reading of this box. Raises MachineLacks if it has no GPU and must have one."""
    sample, user = take_snapshot(processes=processes), current_user()
    findings = {
        (gpu.source, gpu.device): health(sample.t_ns, gpu, processes=sample.processes, user=user)
        for gpu in sample.gpus
    }
    if in_json:
        print_json(_plain(sample, findings))
    else:
        for line in map(clean_text, _lines(sample, findings, processes)):
            click.echo(wrapped(line, sys.stdout))
    problems = [f"GPU {gpu.label}: {gpu.problem.reason}" for gpu in sample.gpus if gpu.problem]
    if require_gpu and len(problems) == len(sample.gpus):
        absent = [f"{name}: {why.reason}" for name, why in sample.absent.items()]
        raise MachineLacks(
            "no GPU can be read here: " + "; ".join(problems or absent or ["none was found"]),
            "take another box, or restart this one"
            if problems
            else "leave --require-gpu out to read only the host",
        )
    gc.freeze()  # else Python collects garbage among all its objects at exit: 15 ms


# Lines


def _lines(sample: LiveSample, findings: Findings, with_processes: bool) -> list[str]:
    lines = [_host_line(sample.host)]
    instances = Counter(gpu.parent for gpu in sample.gpus if gpu.parent is not None)
    for gpu in sample.gpus:
        lines.append(_gpu_line(gpu, findings[gpu.source, gpu.device], instances[gpu.device]))
    if not sample.gpus:
        lines += [f"no GPU: {why.reason}" for why in sample.absent.values()]
    if with_processes and sample.gpus and isinstance(sample.processes, Missing):
        lines.append(f"processes: {sample.processes}")
    elif with_processes and sample.gpus and not isinstance(sample.processes, Missing):
        room = shutil.get_terminal_size().columns - 2 if sys.stdout.isatty() else sys.maxsize
        listed = [clean_text(_process_line(process)) for process in sample.processes if process.uses]
        lines += [line[: room - 1] + "…" * (len(line) >= room) for line in listed] or [
            "no process uses a GPU"
        ]
    return lines


def _host_line(host: DeviceSample) -> str:
    if host.problem is not None:
        return f"host  {host.problem.reason}"
    values = host.values
    return "  ".join(
        (
            "host",
            word(values, "name"),
            *_known(charted(HOST), values),
            f"network in {_rate(values, 'network_rx')} out {_rate(values, 'network_tx')}",
            f"disk read {_rate(values, 'disk_read')} written {_rate(values, 'disk_write')}",
        )
    )


def _gpu_line(gpu: DeviceSample, findings: Sequence[GpuFinding], instances: int) -> str:
    name = gpu.mig_profile or word(gpu.values, "name")
    parts = [f"GPU {gpu.label}", name] if name else [f"GPU {gpu.label}"]
    if instances:
        parts.append(counted(instances, "MIG instance"))
    if gpu.problem is None:
        keys = ("gpm_sm_active_pct", "memory_used_bytes") if gpu.parent is not None else ()
        metrics = [metric_named(key, gpu.device) for key in keys] or charted(gpu.device)
        parts += _known(metrics, gpu.values)
    parts += [f"{finding.word}: {finding.why}" for finding in findings]
    return "  ".join(parts)


def _known(metrics: Iterable[Metric], values: Values) -> list[str]:
    """Those that apply to the device."""
    known = [metric for metric in metrics if metric.key in values]
    return [metric.in_words(values) or f"{metric.name} {ABSENT}" for metric in known]


def _process_line(process: ProcessSample) -> str:
    memory = sum(use.memory_bytes for use in process.uses if not isinstance(use.memory_bytes, Missing))
    is_known = any(not isinstance(use.memory_bytes, Missing) for use in process.uses)
    gpus = ",".join(f"{use.label} {use.mig_profile}".rstrip() for use in process.uses)
    kinds = "".join(sorted({kind for use in process.uses for kind in use.kind}))
    parts = [
        f"PID {process.pid}",
        f"GPU {gpus}",
        kinds,
        format_bytes(memory) if is_known else ABSENT,
    ]
    if isinstance(process.user, Missing) and isinstance(process.command, Missing):
        return "  ".join((*parts, process.user.reason))
    elapsed = process.elapsed_s
    return "  ".join(
        (
            *parts,
            ABSENT if isinstance(process.user, Missing) else process.user,
            ABSENT if isinstance(elapsed, Missing) else format_seconds(round(elapsed)),
            process.command.reason
            if isinstance(process.command, Missing)
            else process.command[:_LONGEST_COMMAND],
        )
    )


def _rate(values: Values, what: str) -> str:
    return with_unit(number(values, f"{what}_bytes_per_s"), "B/s")


# JSON


def _plain(sample: LiveSample, findings: Findings) -> dict[str, object]:
    return {
        "host": _plain_device(sample.host, sample.t_ns),
        "gpus": [
            {
                **_plain_device(gpu, sample.t_ns),
                **fields_of(gpu, "label", "parent", "mig_index"),
                "mig_profile": gpu.mig_profile or None,
                "health": [
                    fields_of(one, "word", "severity", "why") for one in findings[gpu.source, gpu.device]
                ],
            }
            for gpu in sample.gpus
        ],
        "processes": to_plain(sample.processes)
        if isinstance(sample.processes, Missing)
        else [_plain_process(process) for process in sample.processes],
        "absent": {name: why.reason for name, why in sample.absent.items()},
    }


def _plain_device(device: DeviceSample, now_ns: int) -> dict[str, object]:
    return {
        "device": device.device if device.parent is None else device.parent,
        "source": device.source,
        "age_s": round(max(0, now_ns - device.t_ns) / 1e9, 3),
        "problem": None if device.problem is None else device.problem.reason,
        "values": to_plain(device.values),
    }


def _plain_process(process: ProcessSample) -> dict[str, object]:
    return {
        "pid": process.pid,
        "uses": [
            {
                "device": device_order(use.device)[0],
                "label": use.label,
                "mig_profile": use.mig_profile or None,
                **fields_of(use, "kind", "memory_bytes", "sm_pct"),
            }
            for use in process.uses
        ],
        **fields_of(process, "parent_pid", "user", "command", "memory_bytes", "elapsed_s", "start_ticks"),
    }
