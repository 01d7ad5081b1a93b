"""Measures workloads on the device of `async_device.py`, and prints what that showed as JSON lines.

    python async_launches.py JSON

JSON has the parameters of each workload that replace those of its size for CPUs.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any
from unittest import mock

import async_device
from async_device import NAME, device

SIZES = {"infer_lat": "mini-text"}
"""Of workloads that have no size `mini`."""
STEPS = 30
"""A case has the time of so many."""


class Heard:
    """Replaces the channel and keeps what was sent."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def send(self, kind: str, **message: Any) -> None:
        self.messages.append({"kind": kind, **message})

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.messages if message["kind"] == kind]


def resized(name: str, small: dict[str, Any]) -> Any:
    """The workload with these parameters at its size for CPUs."""
    from gputui.worker.workloads import workload_named

    workload = workload_named(name)
    size = SIZES.get(name, "mini")
    known = workload.sizes[size].parameters
    parameters = known | {key: value for key, value in small.items() if key in known}
    return replace(workload, sizes={size: replace(workload.sizes[size], parameters=parameters)})


def built(workload: Any, where: str, precision: str) -> Any:
    from gputui.worker.contract import Request
    from gputui.worker.steps import resolve

    (size,) = workload.sizes.values()
    chosen = resolve(precision, where)
    chosen.apply()
    return workload.build(Request(size.parameters, where, chosen, 1, 1, 60.0))


def launched(*workloads: Any, precision: str = "fp32", profiled: bool = False, share_s: float = 0.0) -> Heard:
    """What a launch of these says, each of which has so much time, or that of some of its steps."""
    from gputui.worker.launch import Launch

    heard = Heard()
    share_s = share_s or max(STEPS * step_of(one, precision)["step_ns"] / 1e9 for one in workloads)
    described = {
        "device": NAME,
        "threads": 1,
        "seed": 1,
        "allowance_s": share_s * len(workloads),
        "limit_s": 1000,
        "most_blocks": 5,
        "profiled": list(range(len(workloads))) if profiled else [],
        "profiled_s": 1000,
        "cases": [
            {"case_id": number, "workload": one.name, "size": next(iter(one.sizes)), "precision": precision}
            for number, one in enumerate(workloads)
        ],
    }
    named = {one.name: one for one in workloads}
    with contextlib.redirect_stdout(sys.stderr):
        Launch(described, heard, time.monotonic_ns(), workload_named=named.__getitem__).run()  # type: ignore[arg-type]
    return heard


def output_of(step: Any) -> float:
    """After three steps: its loss, its result, or the size of the numbers that it returns."""
    returned = [step.run() for _ in range(3)]
    summary = step.loss or step.result
    return float(summary() if summary else returned[-1].float().abs().mean())


def figures_of(heard: Heard) -> dict[str, Any]:
    return {one["key"]: one["value"] for one in heard.of("figure")}


def step_of(workload: Any, precision: str) -> dict[str, Any]:
    """What a warm step is to the device."""
    step = built(workload, NAME, precision)
    step.run()
    device.wait("before a step")
    device.waits.clear()
    before_ns, before = device.busy_ns, device.launched
    step.run()
    return {
        "step_ns": device.busy_ns - before_ns,
        "kernels": device.launched - before,
        "waits": list(device.waits),
    }


def case(workload: Any, precision: str, profiled: bool) -> dict[str, Any]:
    """One workload: its launch, a step of it, and its output and memory beside a CPU's."""
    from gputui.worker.profiling.allocations import AllocationsUnavailable, points_of_a_step

    heard = launched(workload, precision=precision, profiled=profiled)
    on_cpu = built(workload, "cpu", precision)
    output_on_cpu, memory_on_cpu = output_of(on_cpu), {}
    with contextlib.suppress(AllocationsUnavailable):  # a step in the same memory as before
        memory_on_cpu = points_of_a_step("cpu", on_cpu.run)
    return step_of(workload, precision) | {
        "case": f"{workload.name} {precision}",
        "end": heard.of("case_end")[0],
        "blocks": heard.of("block"),
        "figures": figures_of(heard),
        "profiled": heard.of("profiled"),
        "output": output_of(built(workload, NAME, precision)),
        "output_on_cpu": output_on_cpu,
        "memory_on_cpu": memory_on_cpu,
    }


_DEEP = 5
"""So many functions may stand between one that waits and the device."""


def _callers() -> list[str]:
    """The functions that called for a wait, the nearest first."""
    found, frame = list[str](), sys._getframe(2)
    while frame is not None and len(found) < _DEEP:
        found.append(frame.f_code.co_qualname)
        frame = frame.f_back  # type: ignore[assignment]
    return found


@contextlib.contextmanager
def without_wait(place: str, which: int = 0, of: int = 1) -> Iterator[None]:
    """Nothing waits for the device in this function: of each `of` waits there, the one numbered `which`."""
    sound, count = type(device).wait, 0

    def wait(self: Any, why: str) -> None:
        nonlocal count
        if place in _callers():
            count += 1
            if (count - 1) % of == which:
                return
        sound(self, why)

    type(device).wait = wait  # type: ignore[method-assign]
    try:
        yield
    finally:
        type(device).wait = sound  # type: ignore[method-assign]
        device.wait("after a missing wait")
        assert count, f"{place} was never asked to wait"


def is_timed_from_an_idle_device_to_an_idle_device() -> bool:
    """A product right after the numbers of its operands were made: its first step is like the others."""
    heard = launched(resized("gemm", {"m": 96, "n": 64, "k": 80}))
    blocks = heard.of("block")
    if heard.of("case_end")[0]["outcome"] != "ok" or not blocks:
        return False
    step_ns = blocks[-1]["wall_ns"] / blocks[-1]["steps"]
    first_ns = heard.of("warm")[0]["first_step_ns"]
    return bool(first_ns < 1.01 * step_ns and all(b["wall_ns"] >= b["device_ns"] for b in blocks))


def answers_are_waited_for(small: dict[str, Any]) -> bool:
    """No request is answered faster than the device can."""
    workload = resized("infer_lat", small)
    heard = launched(workload)
    return bool(figures_of(heard)["p50_s"] * 1e9 >= step_of(workload, "fp32")["step_ns"])


def passes_begin_on_an_idle_device() -> bool:
    """Also that of the second case, which is built and warmed for it."""
    from gputui.worker import launch
    from gputui.worker.profiling import profiled_pass

    pending = list[int]()

    def noted(*args: Any, **kwargs: Any) -> dict[str, Any]:
        pending.append(device.pending)
        return profiled_pass.without_result("only its beginning was wanted")

    first = resized("gemm", {"m": 96, "n": 64, "k": 80})
    with mock.patch.object(launch, "profiled_pass", noted):
        launched(first, replace(first, name="again"), profiled=True)
    return pending == [0, 0]


def memory_is_divided_from_an_idle_device_on(small: dict[str, Any]) -> bool:
    """Nothing of the step before the observed one is left to do."""
    from gputui.worker.profiling.allocations import points_of_a_step

    step, pending = built(resized("gpt_train", small), NAME, "fp32"), list[int]()

    def run() -> None:
        pending.append(device.pending)
        step.run()

    points_of_a_step(NAME, run)
    return pending[-1] == 0


def planted(small: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each check as the code is, and with one wait of it taken away."""

    def answers() -> bool:
        return answers_are_waited_for(small["infer_lat"])

    def division() -> bool:
        return memory_is_divided_from_an_idle_device_on(small["gpt_train"])

    stopwatch = "gpu_stopwatch"
    for name, check, missing in (
        ("start of the stopwatch", is_timed_from_an_idle_device_to_an_idle_device, (stopwatch, 0, 2)),
        ("end of the stopwatch", is_timed_from_an_idle_device_to_an_idle_device, (stopwatch, 1, 2)),
        ("answer of a request", answers, ("request_step.<locals>.run",)),
        ("memory of a step", division, ("points_of_a_step.<locals>.two_steps", 0, 2)),
        ("warm-up of the profiled pass", passes_begin_on_an_idle_device, ("Launch._profiled_pass",)),
    ):
        sound = check()
        with without_wait(*missing):
            yield {"place": name, "sound": sound, "planted": check()}


def probed() -> Iterator[dict[str, Any]]:
    """What gputui knows of the device before it measures."""
    from gputui.worker import accelerator, probe

    yield {"fact": "kinds", "found": accelerator.kinds()}
    yield {"fact": "is open", "found": accelerator.is_any_open()}
    yield {"fact": "devices", "found": probe.probe()["devices"]}


def graphs() -> Iterator[dict[str, Any]]:
    """Kernels that are captured and repeated."""
    import torch

    from gputui.worker import accelerator

    total = torch.zeros(1, device=NAME)

    def add() -> None:
        total.add_(1).mul_(2)

    replay = accelerator.captured(NAME, add)
    total.zero_()
    before, before_ns = device.launched, device.cpu_ns
    for _ in range(3):
        replay()
    launches = (device.cpu_ns - before_ns) / device.launch_ns
    yield {"fact": "graph", "found": [float(total), device.launched - before, launches]}
    try:
        accelerator.captured(NAME, lambda: float(total))
    except RuntimeError as error:
        yield {"fact": "wait in a graph", "found": str(error)}


def apart(small: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Device and host time of a step, launched quickly and slowly."""
    from gputui.worker import timing

    usual_ns = device.launch_ns
    for name in ("gemm", "decode", "infer_lat"):
        workload = resized(name, small[name])
        step = step_of(workload, "fp32")
        for launch_ns in (usual_ns, 10 * device.least_kernel_ns):
            device.launch_ns = launch_ns
            with mock.patch.multiple(timing, _LEAST_SIDE=64, _MOST_SIDE=64):
                heard = launched(workload, share_s=1000.0)
            device.launch_ns = usual_ns
            (block, *_), found = heard.of("block"), figures_of(heard)
            yield {
                "apart": f"{name} {'quickly' if launch_ns == usual_ns else 'slowly'}",
                "device_s": found["device_step_s"],
                "host_s": found["host_step_s"],
                "step_s": block["device_ns"] / block["steps"] / 1e9,
                "work_s": step["step_ns"] / 1e9,
                "launches_s": step["kernels"] * launch_ns / 1e9,
            }


def graph_of(name: str, size: str, small: dict[str, Any]) -> dict[str, Any]:
    """What its operators say, launched one by one and as a graph; a text is decoded until it starts over."""
    from gputui.worker.contract import Request
    from gputui.worker.steps import resolve
    from gputui.worker.workloads import workload_named

    workload = workload_named(name)
    known = workload.sizes[size].parameters
    parameters = known | {key: value for key, value in small.items() if key in known}
    scores, launches = {}, {}
    for mode in ("eager", "graph"):
        step = workload.build(Request(parameters, NAME, resolve("fp32", NAME), 1, 1, 60.0, mode))
        scores[mode] = [step.run().cpu().tolist() for _ in range(30 if name == "decode" else 3)]  # type: ignore[attr-defined]
        before_ns = device.cpu_ns
        step.run()
        launches[mode] = (device.cpu_ns - before_ns) / device.launch_ns
    return {"fact": f"{name} {size}", "found": [scores["eager"] == scores["graph"], launches["graph"]]}


def crowded(small: dict[str, Any]) -> dict[str, Any]:
    """A launch of two cases, of which only the second fits."""
    too_large, fits = resized("membw", {"elements": 2**20}), resized("gpt_train", small)
    before_bytes, usual_bytes = device.live_bytes, device.total_bytes
    share_s = STEPS * step_of(fits, "fp32")["step_ns"] / 1e9
    device.total_bytes = device.live_bytes + 2**22
    heard = launched(too_large, fits, share_s=share_s)
    device.total_bytes = usual_bytes
    return {"fact": "crowded", "found": [end["outcome"] for end in heard.of("case_end")]} | {
        "left_bytes": device.live_bytes - before_bytes
    }


def main() -> None:
    async_device.install()
    asked = json.loads(sys.argv[1])
    device.flops_per_s = device.bytes_per_s = asked["per_s"]
    device.least_kernel_ns, device.launch_ns = 2_000_000, 100
    for fact in chain(probed(), graphs()):
        print(json.dumps(fact), flush=True)
    if asked["small"]:
        print(json.dumps(crowded(asked["small"]["gpt_train"])), flush=True)
        for name, size in asked["graphs"]:
            print(json.dumps(graph_of(name, size, asked["small"][name])), flush=True)
        for times in apart(asked["small"]):
            print(json.dumps(times), flush=True)
    for words in asked["cases"]:
        name, precision = words.split()
        workload = resized(name, asked["small"].get(name, {}))
        print(json.dumps(case(workload, precision, words in asked["profiled"])), flush=True)
    for found in planted(asked["small"]) if asked["small"] else ():
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
