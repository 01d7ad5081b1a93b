"""The workloads. To add one: a file here that declares a `WORKLOAD`, and its name below."""

from __future__ import annotations

from ..contract import Workload, check_all
from . import (
    bs_sweep,
    burn,
    ceilings,
    classifiers,
    conv_train,
    ddp,
    decode,
    loader,
    memory_tricks,
    spin,
    style_fps,
    text_training,
    xfer,
)

WORKLOADS: tuple[Workload, ...] = (
    ceilings.MATMUL,
    ceilings.MEMORY_COPY,
    xfer.WORKLOAD,
    conv_train.WORKLOAD,
    text_training.GPT_TRAINING,
    text_training.BERT_TUNING,
    text_training.LSTM_TRAINING,
    memory_tricks.WORKLOAD,
    bs_sweep.WORKLOAD,
    ddp.WORKLOAD,
    classifiers.LATENCY,
    classifiers.THROUGHPUT,
    classifiers.BEST_BATCH,
    decode.WORKLOAD,
    style_fps.WORKLOAD,
    loader.WORKLOAD,
    burn.WORKLOAD,
    spin.WORKLOAD,
)
check_all(WORKLOADS)


def workload_named(name: str) -> Workload:
    """The workload of that name. Raises KeyError if unknown."""
    return {w.name: w for w in WORKLOADS}[name]
