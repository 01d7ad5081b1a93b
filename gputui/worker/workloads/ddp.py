"""Data-parallel training of a GPT: one process per rank, started by torchrun, gradients summed over all.

The worker asks, and each rank answers: it runs `serve` of this module.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from statistics import median
from typing import Any  # Any: torch's types, and JSON

from ..accelerator import COLLECTIVES, module_of, require_ranks
from ..contract import Figure, Request, Size, Step, Unsupported, Value, Workload
from ..failures import is_out_of_memory
from ..flops import TextShape
from ..ranks import RankGroup, RankLink, address_of, call_hosts, rank_environment, torchrun
from ..steps import next_token_loss, resolve, training_step
from ..timing import BlockTime, Stopwatch, steps_for, stopwatch_for
from .text_training import BASE, MINI, described, made

XL = TextShape(layers=32, heads=32, width=4096, context=1024, vocabulary=50304)
"""GPT-3 6.7B: 107 GB of weights, gradients and AdamW state in fp32, more than a GPU of 80 GB has."""
ALL_REDUCE, ALL_GATHER, SENDRECV = "all_reduce", "all_gather", "sendrecv"
COLLECTIVE_TITLES = {ALL_REDUCE: "all-reduce", ALL_GATHER: "all-gather", SENDRECV: "send/receive"}
ALONE_BLOCKS = 5
ALONE_BLOCK_S = 0.2
LOOP_S, MOST_TIMES = 0.3, 20
"""A row of operations is about so long, and no longer than that of nccl-tests."""
_SUFFIXES = {"": 0, "_1m": 2**20}
"""Of figures, by the bytes of an operation; 0: what the size says."""
_VALUES = 1000
"""Numbers are below this, plus the rank: sums over many ranks are exact in fp32."""
_WARM_OPERATIONS = 2


def _size(
    shape: TextShape,
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
        waited_ns = [block.waited_ns for block in blocks if block.waited_ns is not None]
        return replace(
            max(blocks, key=lambda block: block.block_ns),
            cpu_ns=sum(block.cpu_ns for block in blocks),
            waited_ns=sum(waited_ns) if len(waited_ns) == ranks else None,
        )

    def figures(step_ns: Sequence[float]) -> dict[str, Value]:
        together_ns = median(step_ns)
        steps = steps_for(ALONE_BLOCK_S, together_ns)
        try:
            alone = [BlockTime(**group.ask(0, do="alone", steps=steps)) for _ in range(ALONE_BLOCKS)]
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            efficiency = alone_s = Value(None, 0, "the model does not fit one device")
        else:
            alone_ns = median(block.block_ns / steps for block in alone)
            efficiency = Value(alone_ns / together_ns, len(step_ns))
            alone_s = Value(alone_ns / 1e9, ALONE_BLOCKS * steps)
        return {
            "efficiency_share": efficiency,
            "alone_step_s": alone_s,
            **{
                _key(kind, suffix): _bandwidth(
                    group, kind, _SUFFIXES[suffix] or request.integer("reduce_bytes"), ranks
                )
                for kind, suffix in product(COLLECTIVE_TITLES, _SUFFIXES)
            },
        }

    def fault() -> str:
        answers = group.ask_all(do="digest")
        if not all(math.isfinite(float(answer["loss"])) for answer in answers):
            return f"the loss became {answers[0]['loss']}"
        odd = [r for r, answer in enumerate(answers) if answer["digest"] != answers[0]["digest"]]
        return f"the weights of rank {odd[0]} are not those of rank 0" if odd else ""

    return Step(partial(timed, 1), timed=timed, figures=figures, fault=fault, close=group.close)


def start_ranks(request: Request) -> RankGroup:
    """The ranks, built and ready: equally many on each host, the first ones on this.

    Raises RankLost, or Unsupported if this machine cannot run that many.
    """
    ranks, hosts = request.integer("ranks"), int(request.parameters.get("hosts", 1))
    per_host = ranks // hosts
    require_ranks(request.device, per_host)
    threads = max(request.threads // per_host, 1)
    module, rendezvous = "workloads.ddp", request.rendezvous
    if hosts == 1:
        environment = rank_environment(threads, "127.0.0.1")
        group = RankGroup(module, ranks, launcher=torchrun(ranks), environment=environment)
    elif not rendezvous:
        raise Unsupported(f"{hosts} hosts are needed, and no address was given where they join")
    else:
        listener, guests = call_hosts(rendezvous, hosts, module, per_host, threads, request.time_s / 2)
        group = RankGroup(
            module,
            ranks,
            launcher=torchrun(per_host, rendezvous, hosts),
            environment=rank_environment(threads, address_of(rendezvous)[0]),
            rendezvous=rendezvous,
            listener=listener,
            guests=guests,
        )
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


def _bandwidth(group: RankGroup, kind: str, size_bytes: int, ranks: int) -> Value:
    """Bus bandwidth by the slowest rank, of as many operations as fit into LOOP_S."""
    asked = {"do": "collective", "kind": kind, "size_bytes": size_bytes}
    first_s = max(float(answer["seconds"]) for answer in group.ask_all(**asked, times=1))
    times = min(max(round(LOOP_S / max(first_s, 1e-9)), 2), MOST_TIMES)
    answers = group.ask_all(**asked, times=times)
    if not all(answer["is_right"] for answer in answers):
        return Value(None, times, "the numbers came out wrong")
    seconds = max(float(answer["seconds"]) for answer in answers)
    return Value(bus_bytes_per_s(kind, size_bytes, seconds, ranks), times)


def bus_bytes_per_s(kind: str, size_bytes: int, seconds: float, ranks: int) -> float:
    """Bytes per second on each link: independent of the number of ranks where the links are the limit.

    `size_bytes`: of an all-reduce, the numbers of a rank; of an all-gather, those of all; of send/receive,
    what a rank sends. Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md.
    """
    share = {ALL_REDUCE: 2 * (ranks - 1) / ranks, ALL_GATHER: (ranks - 1) / ranks, SENDRECV: 1.0}[kind]
    return size_bytes / seconds * share


def _key(kind: str, suffix: str) -> str:
    return f"{kind}{suffix}_bus_bytes_per_s"


def serve(link: RankLink) -> None:
    """Build on the first question, then answer questions until the worker is gone."""
    rank = _Rank()
    link.serve(
        {
            "build": rank.build,
            "time": rank.time,
            "alone": rank.alone,
            "collective": rank.collective,
            "digest": rank.digest,
            "held": rank.held,
        }
    )


class _Rank:
    def build(
        self, parameters: dict[str, Any], device: str, precision: str, threads: int, seed: int
    ) -> Mapping[str, object]:
        import torch
        from torch import distributed

        torch.set_num_threads(threads)
        require_ranks(device, int(os.environ["LOCAL_WORLD_SIZE"]))
        module_of(device).set_device(int(os.environ["LOCAL_RANK"]))
        resolved = resolve(precision, device)
        resolved.apply()
        distributed.init_process_group(COLLECTIVES[device])
        self._request = Request(parameters, device, resolved, threads, seed)
        self._stopwatch = stopwatch_for(device)
        self._model, self._step = built(self._request, seed + int(os.environ["RANK"]), is_parallel=True)
        self._single: Step | None = None
        return {}

    def time(self, steps: int) -> Mapping[str, object]:
        """Time a block on all ranks together: each waits for all others before it begins."""
        from torch import distributed

        distributed.barrier()
        return asdict(self._stopwatch(self._step.run, steps))

    def alone(self, steps: int) -> Mapping[str, object]:
        """Time a block of this rank only, with the same model and batch."""
        if self._single is None:
            _, self._single = built(self._request, self._request.seed, is_parallel=False)
            self._stopwatch(self._single.run, 2)
        return asdict(self._stopwatch(self._single.run, steps))

    def collective(self, kind: str, size_bytes: int, times: int) -> Mapping[str, object]:
        """Seconds of one operation in a row, and whether all numbers came out right."""
        seconds, is_right = time_in_a_row(kind, size_bytes, times, self._request.device, self._stopwatch)
        return {"seconds": seconds, "is_right": is_right}

    def digest(self) -> Mapping[str, object]:
        """The loss of the last step, and a hash of all weights: equal on all ranks if they train together."""
        hashed = hashlib.sha256()
        for weight in self._model.parameters():
            whole = weight.full_tensor() if hasattr(weight, "full_tensor") else weight
            hashed.update(whole.detach().cpu().contiguous().numpy().tobytes())
        loss = self._step.loss() if self._step.loss else 0.0
        return {"digest": hashed.hexdigest(), "loss": str(loss)}  # JSON has no NaN

    def held(self) -> Mapping[str, object]:
        """How many parameters are in this rank's memory."""
        local = (w.to_local() if hasattr(w, "to_local") else w for w in self._model.parameters())
        return {"numbers": sum(weight.numel() for weight in local)}


def built(request: Request, data_seed: int, *, is_parallel: bool) -> tuple[Any, Step]:
    """A GPT with the weights of `request.seed`, and a step on tokens of `data_seed`.

    In parallel each rank holds the whole model, or with `sharding` a part, gathering each layer when needed.
    """
    from torch.nn.parallel import DistributedDataParallel

    is_sharded = is_parallel and request.parameters.get("sharding") == "full"
    model, tokens, optimizer = made(request, data_seed, _shard if is_sharded else None)
    trained = DistributedDataParallel(model) if is_parallel and not is_sharded else model
    return model, training_step([lambda: next_token_loss(trained, tokens)], optimizer, request)


def _shard(model: Any, device: str) -> None:
    """Shard each layer, and then the rest, over all ranks; weights are drawn where they are stored."""
    from torch.distributed.fsdp import fully_shard

    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    model.to_empty(device=device)
    model.draw_weights()


def time_in_a_row(
    kind: str, size_bytes: int, times: int, device: str, stopwatch: Stopwatch
) -> tuple[float, bool]:
    """Seconds of an operation in a row of so many, as nccl-tests times it, and whether its numbers are right.

    All ranks must call it. They are checked in a separate operation: in a row, sums would grow.
    """
    import torch
    from torch import distributed

    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    count = size_bytes // 4 // (ranks if kind == ALL_GATHER else 1)
    given = got = numbers_of(rank, count, device)
    if kind != ALL_REDUCE:
        got = torch.zeros(count * (ranks if kind == ALL_GATHER else 1), device=device)
    operation = _operation(kind, rank, ranks, given, got)
    operation()
    is_right = bool((got == expected(kind, count, rank, ranks, device)).all())
    if kind == ALL_REDUCE:
        got.zero_()
    for _ in range(_WARM_OPERATIONS):
        operation()
    distributed.barrier()
    return stopwatch(operation, times).block_ns / 1e9 / times, is_right


def numbers_of(rank: int, count: int, device: str) -> Any:
    """What a rank gives: neighbours differ, and so do ranks."""
    import torch

    return torch.arange(count, device=device) % _VALUES + float(rank)


def expected(kind: str, count: int, rank: int, ranks: int, device: str) -> Any:
    """What this rank must get of ranks that give `count` numbers each."""
    import torch

    if kind == ALL_REDUCE:
        return ranks * numbers_of(0, count, device) + ranks * (ranks - 1) / 2
    if kind == SENDRECV:
        return numbers_of((rank - 1) % ranks, count, device)
    return torch.cat([numbers_of(one, count, device) for one in range(ranks)])


def _operation(kind: str, rank: int, ranks: int, given: Any, got: Any) -> Callable[[], object]:
    from torch import distributed

    if kind == ALL_REDUCE:
        return partial(distributed.all_reduce, given)
    if kind == ALL_GATHER:
        return partial(distributed.all_gather_into_tensor, got, given)

    def around() -> None:
        """To the next rank, from the one before."""
        both = [
            distributed.P2POp(distributed.isend, given, (rank + 1) % ranks),
            distributed.P2POp(distributed.irecv, got, (rank - 1) % ranks),
        ]
        for work in distributed.batch_isend_irecv(both):
            work.wait()

    return around


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
            Figure(_key(kind, suffix), f"{title} bus bandwidth{size}", "B/s", "more", "median")
            for kind, title in COLLECTIVE_TITLES.items()
            for suffix, size in (("", ""), ("_1m", ", 1 MiB"))
        ),
    ),
    figures_s=5.0,
    is_alone=True,
    is_traceable=False,
)
