"""Data-parallel training of a GPT: one process per rank, started by torchrun, gradients summed over all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from statistics import median
from typing import TYPE_CHECKING

from ..accelerator import require_ranks
from ..collectives import KINDS, Kind, bus_bytes_per_s
from ..contract import Figure, Request, Size, Step, Unsupported, Value, Workload
from ..failures import is_out_of_memory
from ..flops import GptShape
from ..timing import BlockTime, steps_for
from .gpt_train import BASE, MINI, described

XL = GptShape(layers=32, heads=32, width=4096, context=1024, vocabulary=50304)
"""GPT-3 6.7B: 107 GB of weights, gradients and AdamW state in fp32, more than a GPU of 80 GB has."""

if TYPE_CHECKING:
    from ..procs.ranks import RankGroup

ALONE_BLOCKS = 5
ALONE_BLOCK_S = 0.2
LOOP_S, MOST_TIMES = 0.3, 20
"""A row of operations is about so long, and no longer than that of nccl-tests."""
_SUFFIXES = {"": 0, "_1m": 2**20}
"""Of figures, by the bytes of an operation; 0: what the size says."""


def _size(
    shape: GptShape,
    ranks: int,
    batch: int,
    reduce_mib: int,
    memory_mib: int,
    *,
    is_sharded: bool = False,
    hosts: int = 1,
) -> Size:
    return Size(
        parameters={
            **({"sharding": "full"} if is_sharded else {}),
            **({"hosts": hosts} if hosts > 1 else {}),
            **described(shape),
            "ranks": ranks,
            "batch": batch,
            "reduce_bytes": reduce_mib * 2**20,
        },
        units_per_step=float(ranks * batch * shape.context),
        flops_per_step=None,
        bytes_per_step=None,
        memory_bytes=memory_mib * 2**20,
        gpus=ranks // hosts,
        hosts=hosts,
    )


def build(request: Request) -> Step:
    """Start the ranks, each with its share of the threads; a step is one step of all of them together.

    The batch is per rank, so more ranks do more work per step (weak scaling).
    """

    ranks = request.integer("ranks")
    group = start_ranks(request)

    def timed(steps: int) -> BlockTime:
        blocks = [BlockTime(**answer) for answer in group.ask_all(do="time", steps=steps)]
        slowest = max(blocks, key=lambda block: block.block_ns)
        waited_ns = [block.waited_ns for block in blocks if block.waited_ns is not None]
        return replace(
            slowest,
            cpu_ns=sum(block.cpu_ns for block in blocks),
            waited_ns=sum(waited_ns) if len(waited_ns) == ranks else None,
        )

    def figures(step_ns: Sequence[float]) -> dict[str, Value]:
        together_ns = median(step_ns)
        steps = steps_for(ALONE_BLOCK_S, together_ns)
        found = dict[str, Value]()
        try:
            alone = [BlockTime(**group.ask(0, do="alone", steps=steps)) for _ in range(ALONE_BLOCKS)]
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            none = Value(None, 0, "the model does not fit one device")
            found |= {"efficiency_share": none, "alone_step_s": none}
        else:
            alone_ns = median(block.block_ns / steps for block in alone)
            found["efficiency_share"] = Value(alone_ns / together_ns, len(step_ns))
            found["alone_step_s"] = Value(alone_ns / 1e9, ALONE_BLOCKS * steps)
        for kind, suffix in product(KINDS.values(), _SUFFIXES):
            size_bytes = _SUFFIXES[suffix] or request.integer("reduce_bytes")
            found[_key(kind, suffix)] = _measured(group, kind, size_bytes, ranks)
        return found

    def fault() -> str:
        answers = group.ask_all(do="digest")
        if not all(math.isfinite(float(answer["loss"])) for answer in answers):
            return f"the loss became {answers[0]['loss']}"
        odd = [r for r, answer in enumerate(answers) if answer["digest"] != answers[0]["digest"]]
        return f"the weights of rank {odd[0]} are not those of rank 0" if odd else ""

    return Step(
        run=lambda: timed(1),
        timed=timed,
        figures=figures,
        fault=fault,
        close=group.close,
    )


def start_ranks(request: Request) -> RankGroup:
    """The ranks, built and ready. Raises RankLost, or Unsupported if this machine cannot run that many."""
    ranks, hosts = request.integer("ranks"), int(request.parameters.get("hosts", 1))
    per_host = ranks // hosts
    require_ranks(request.device, per_host)
    threads = max(request.threads // per_host, 1)
    group = _started(request, hosts, per_host, threads)
    try:
        group.ask_all(
            do="build",
            parameters=request.parameters,
            device=request.device,
            precision=request.precision.requested,
            threads=threads,
            seed=request.seed,
        )
    except BaseException:
        group.close()
        raise
    return group


def _started(request: Request, hosts: int, per_host: int, threads: int) -> RankGroup:
    """Equally many ranks on each host; the first ones are on this host."""
    from ..procs.multihost import Hosts, address_of, rank_environment, torchrun
    from ..procs.ranks import RankGroup

    module, rendezvous = "workloads.ddp_rank", request.rendezvous
    if hosts == 1:
        environment = rank_environment(threads, "127.0.0.1")
        return RankGroup(module, per_host, launcher=torchrun(per_host), environment=environment)
    if not rendezvous:
        raise Unsupported(f"{hosts} hosts are needed, and no address was given where they join")
    joining = Hosts(rendezvous, hosts)
    try:
        joining.call(module, per_host, threads, request.time_s / 2)
        return RankGroup(
            module,
            hosts * per_host,
            launcher=torchrun(per_host, rendezvous, hosts),
            environment=rank_environment(threads, address_of(rendezvous)[0]),
            rendezvous=rendezvous,
            listener=joining.listener,
            guests=joining.guests,
        )
    except BaseException:
        joining.close()
        raise


def _measured(group: RankGroup, kind: Kind, size_bytes: int, ranks: int) -> Value:
    """Bus bandwidth by the slowest rank, of as many operations as fit into LOOP_S."""
    asked = {"do": "collective", "kind": kind.name, "size_bytes": size_bytes}
    first_s = max(float(answer["seconds"]) for answer in group.ask_all(**asked, times=1))
    times = min(max(round(LOOP_S / max(first_s, 1e-9)), 2), MOST_TIMES)
    answers = group.ask_all(**asked, times=times)
    if not all(answer["is_right"] for answer in answers):
        return Value(None, times, "the numbers came out wrong")
    seconds = max(float(answer["seconds"]) for answer in answers)
    return Value(bus_bytes_per_s(kind, size_bytes, seconds, ranks), times)


def _key(kind: Kind, suffix: str) -> str:
    return f"{kind.name}{suffix}_bus_bytes_per_s"


WORKLOAD = Workload(
    name="ddp",
    version=1,
    title="data parallel",
    question="How much of each further device is left when they train together?",
    workload_class="training",
    unit="tok",
    sizes={
        "mini": _size(MINI, 2, 2, 16, 300),
        "mini-4": _size(MINI, 4, 2, 16, 300),
        "mini-fsdp": _size(MINI, 2, 2, 16, 300, is_sharded=True),
        "base": _size(BASE, 2, 8, 256, 14000),
        "base-4": _size(BASE, 4, 8, 256, 14000),
        "base-8": _size(BASE, 8, 8, 256, 14000),
        "base-8-fsdp": _size(BASE, 8, 8, 256, 12000, is_sharded=True),
        "xl-2-fsdp": _size(XL, 2, 1, 256, 70000, is_sharded=True),
        "xl-8-fsdp": _size(XL, 8, 1, 256, 30000, is_sharded=True),
        "mini-2x1": _size(MINI, 2, 2, 16, 300, hosts=2),
        "base-2x1": _size(BASE, 2, 8, 256, 14000, hosts=2),
        "base-2x8": _size(BASE, 16, 8, 256, 14000, hosts=2),
        "base-4x8": _size(BASE, 32, 8, 256, 14000, hosts=4),
        "xl-2x8-fsdp": _size(XL, 16, 1, 256, 20000, is_sharded=True, hosts=2),
    },
    precisions=("fp32", "tf32", "amp"),
    device_classes=("cpu", "gpu"),
    needs_torch=True,
    build=build,
    figures=(
        Figure("efficiency_share", "scaling efficiency", "share", "more", "median"),
        Figure("alone_step_s", "the same step of one rank alone", "s", "less", "median"),
        *(
            Figure(_key(kind, suffix), f"{kind.title} bus bandwidth{size}", "B/s", "more", "median")
            for kind, (suffix, size) in product(KINDS.values(), (("", ""), ("_1m", ", 1 MiB")))
        ),
    ),
    figures_s=5.0,
    is_alone=True,
    is_traceable=False,
)
