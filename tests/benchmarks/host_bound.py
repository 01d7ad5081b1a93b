"""Device time against host time of a step, of every GPU case of every shipped profile on nine GPUs.

    python tests/benchmarks/host_bound.py [PROFILE...]

Device time is predicted at 60 % of the data sheet: FLOPs over the peak of the precision, or bytes over the
bandwidth, whichever takes longer. Host time is measured here: the same operators on tiny tensors, one thread,
CPU seconds, the least of 25; then with a launch of 4 µs, which is assumed, for every second operator. A graph
is taken to cost 30 µs. No GPU is needed, and none was asked.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "makers"))

import torch
from builders import NINE_GPUS, make_interpreter, make_machine
from tiny_steps import host_s_of, operators_of, tiny_step

from gputui.facts.tables import find_gpu
from gputui.model.absent import Missing
from gputui.services.profiles.loader import find_profile, shipped_profiles
from gputui.services.profiles.planner import GRAPH_S, LEAST_RATIO, device_s, resolve_plan
from gputui.worker.workloads import workload_named

LAUNCH_S = 4e-6 / 2
"""Assumed, for each operator: every second one launches a kernel."""
NOT_HERE = ("xfer", "bs_sweep", "infer_best", "ddp", "loader", "memory_tricks")
"""Copies to a GPU; batches that are searched for; more processes."""


def measured(
    key: tuple[str, str, str, str], known: dict[tuple[str, str, str], tuple[float, int]]
) -> tuple[float, float] | Missing:
    """Host seconds of a step without and with the assumed launches."""
    workload, size, precision, mode = key
    if mode == "graph":
        return GRAPH_S, GRAPH_S
    if mode == "compile" or workload in NOT_HERE:
        return Missing("not measured")
    used = "amp" if precision == "amp" else "fp32"
    if (workload, size, used) not in known:
        step = tiny_step(workload_named(workload), size, used)
        known[workload, size, used] = host_s_of(step), operators_of(step)
    host_s, operators = known[workload, size, used]
    return host_s, host_s + LAUNCH_S * operators


def cases(profile: str) -> Iterator[tuple[tuple[str, str, str, str], dict[str, bool]]]:
    """Each GPU case of a profile on any of the GPUs, with those that it is planned on."""
    found: dict[tuple[str, str, str, str], dict[str, bool]] = {}
    for short, device in NINE_GPUS.items():
        plan = resolve_plan(find_profile(profile), make_interpreter(device), make_machine(device.name))
        for planned in plan.cases:
            variant, work = planned.case.variant, planned.case.work
            if variant.device_class == "gpu" and planned.outcome is None:
                key = (work.workload, work.size, variant.precision, variant.mode)
                found.setdefault(key, {})[short] = "host-bound" in planned.note
    yield from found.items()


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    known: dict[tuple[str, str, str], tuple[float, int]] = {}
    header = "device ms, and its ratio to host ms; ! where the plan names it"
    print(f"{'':36} {'GiB':>5} {'host ms':>8} {'+launch':>8}  {header}")
    wrong = []
    for profile in names or [one.name for one in shipped_profiles()]:
        print(f"\n{profile:36} {'':5} {'':8} {'':8}  {''.join(f'{short:>15}' for short in NINE_GPUS)}")
        for key, where in cases(profile):
            workload, size, precision, _ = key
            declared = workload_named(workload).sizes[size]
            host = measured(key, known)
            cells = []
            for short, device in NINE_GPUS.items():
                if short not in where:
                    cells.append("")
                    continue
                facts = find_gpu(device.name, None)
                used = precision if precision != "amp" else "amp-bf16" if device.bf16 else "amp-fp16"
                of_device = facts if isinstance(facts, Missing) else device_s(declared, used, facts)
                if isinstance(of_device, Missing) or isinstance(host, Missing):
                    cells.append("-" if isinstance(of_device, Missing) else f"{of_device * 1e3:.3g}")
                    continue
                ratio = of_device / host[0]
                cells.append(f"{of_device * 1e3:.3g} {ratio:.2g}x{'!' if where[short] else ''}")
                if ratio < LEAST_RATIO and not where[short]:
                    wrong.append(f"{' '.join(key)} on {short}: {ratio:.2g}x, not named")
            times = ["-", "-"] if isinstance(host, Missing) else [f"{one * 1e3:.3g}" for one in host]
            gib = declared.memory_bytes / 2**30
            name = " ".join(key).replace(" eager", "")
            of_gpus = "".join(f"{cell:>15}" for cell in cells)
            print(f"{name:36} {gib:5.1f} {times[0]:>8} {times[1]:>8}  {of_gpus}")
    print(f"\nbelow {LEAST_RATIO:g}x and not named beforehand: {'; '.join(wrong) or 'none'}")


if __name__ == "__main__":
    main(sys.argv[1:])
