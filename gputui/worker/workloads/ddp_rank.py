"""One rank of data-parallel training: started by torchrun, controlled by the worker."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any  # Any: torch's types, and JSON

from ..accelerator import COLLECTIVES, module_of, require_ranks
from ..collectives import KINDS, time_in_a_row
from ..contract import Request, Step
from ..procs.ranks import RankLink
from ..timing import stopwatch_for, with_waiting


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
    def __init__(self) -> None:
        self._rank, self._local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])

    def build(
        self, parameters: dict[str, Any], device: str, precision: str, threads: int, seed: int
    ) -> Mapping[str, object]:
        import torch
        from torch import distributed

        from ..steps import resolve

        torch.set_num_threads(threads)
        require_ranks(device, int(os.environ["LOCAL_WORLD_SIZE"]))
        module_of(device).set_device(self._local)
        resolved = resolve(precision, device)
        resolved.apply()
        distributed.init_process_group(COLLECTIVES[device])
        self._request = Request(parameters, device, resolved, threads, seed)
        self._stopwatch = stopwatch_for(device)
        self._model, self._step = built(self._request, seed + self._rank, is_parallel=True)
        self._single: Step | None = None
        return {}

    def time(self, steps: int) -> Mapping[str, object]:
        """Time a block on all ranks together: each waits for all others before it begins."""
        from torch import distributed

        distributed.barrier()
        return self._timed(self._step, steps)

    def alone(self, steps: int) -> Mapping[str, object]:
        """Time a block of this rank only, with the same model and batch."""
        if self._single is None:
            _, self._single = built(self._request, self._request.seed, is_parallel=False)
            self._stopwatch(self._single.run, 2)
        return self._timed(self._single, steps)

    def _timed(self, step: Step, steps: int) -> Mapping[str, object]:
        return asdict(with_waiting(self._stopwatch, step.run, steps))

    def collective(self, kind: str, size_bytes: int, times: int) -> Mapping[str, object]:
        """Seconds of one operation in a row, and whether all numbers came out right."""
        device = self._request.device
        seconds, is_right = time_in_a_row(KINDS[kind], size_bytes, times, device, self._stopwatch)
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
        return {"numbers": sum(_local(weight).numel() for weight in self._model.parameters())}


def _local(weight: Any) -> Any:
    return weight.to_local() if hasattr(weight, "to_local") else weight


def built(request: Request, data_seed: int, *, is_parallel: bool) -> tuple[Any, Step]:
    """A GPT with the weights of `request.seed`, and a step on tokens of `data_seed`.

    In parallel each rank holds the whole model, or with `sharding` a part, gathering each layer when needed.
    """
    from torch.nn.parallel import DistributedDataParallel

    from ..steps import next_token_loss, training_step
    from .gpt_train import made

    is_sharded = is_parallel and request.parameters.get("sharding") == "full"
    model, tokens, optimizer = made(request, data_seed, _shard if is_sharded else None)
    trained = DistributedDataParallel(model) if is_parallel and not is_sharded else model
    return model, training_step(lambda: next_token_loss(trained, tokens), optimizer, request)


def _shard(model: Any, device: str) -> None:
    """Shard each layer, and then the rest, over all ranks; weights are drawn where they are stored."""
    from torch.distributed.fsdp import fully_shard

    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    model.to_empty(device=device)
    model.draw_weights()
