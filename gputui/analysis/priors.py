"""How much launches and machines vary where that was not measured: standard deviations of log times.

Origin of the GPU values: variance components computed from the public logs of
lambdal/deeplearning-benchmark, 38 H100 SXM results of one provider with 3 launches each, 12 series (July
to October 2024). Launch sd: convolution nets 0.03–0.06 %, BERT 0.14–1.59 %, GNMT 0.14–0.32 %, Tacotron2
(bound by kernel launches) 1.36–2.59 %. Instance sd: convolution nets 0.06–0.37 %, BERT 0.40–1.84 %, GNMT
0.58–1.13 %, Tacotron2 3.61–3.76 %. A class holds work of all these kinds, so it takes the worst series
that fits it: a prior that is too small calls one machine different from itself.
"""

from __future__ import annotations

import math

UNKNOWN_LAUNCH_SD = 0.15
"""For a pair of classes that is not in the table: as bad as the worst in it."""

LAUNCH_SD: dict[tuple[str, str], float] = {
    # Nine launches of one GEMM on a 2-core box spread by 9–10 %; kept for all CPU work until measured.
    ("cpu", "ceiling"): 0.10,
    # 36 runs on a shared 2-core VM: launches 15.0 %, runs 14 %.
    ("cpu", "copy"): 0.15,
    ("cpu", "training"): 0.10,
    # Twelve runs of a decoder on a shared 2-core VM: 11 to 15 % between launches and between runs.
    ("cpu", "inference"): 0.15,
    ("cpu", "host"): 0.10,
    # The rate at a limit, on llama.cpp on a 2-core VM, 6 runs: by 27 % with a free CPU, else by 32 %.
    ("host", "inference"): 0.32,
    # One 8192^3 bf16 GEMM on one H200: 769–798 TFLOP/s, a range of 3.7 %, as 8 launches of sd 1.3 % give.
    # That range includes warm-up too, which a stable launch has behind it.
    ("gpu", "ceiling"): 0.010,
    ("gpu", "copy"): 0.010,
    # The largest series of BERT, which is not bound by kernel launches.
    ("gpu", "training"): 0.016,
    ("gpu", "inference"): 0.016,
    # As Tacotron2: the largest of the 12 series.
    ("gpu", "launch-bound"): 0.026,
    # Copies and loaders depend on the host's memory and cores.
    ("gpu", "host"): 0.10,
}
"""Between launches of one case on one machine, by device class and kind of work."""

_COPIES = ("membw",)
_LAUNCH_BOUND = ("decode", "infer_lat", "lstm_train", "style_fps")
_SMALL = "mini"

LOAD_SD = 0.15
"""Likewise of tokens per second and times of a given load: by 4 to 10 % in those runs with a free CPU, and
more on a box that is not quite free."""

LATE_LOAD_SD = 0.95
"""Likewise of loads on a server while others had the CPUs of client and server. 12 runs of llama.cpp on a
2-core VM at loads of 5 to 14, the client late by 1 to 170 ms (p99): tokens per second by 16 to 57 %, TTFT by
25 to 55, E2E by 17 to 78, TPOT by 22 to 95."""

LATE_RUN_SD = 0.14
"""Between those runs, beyond what their launches explain."""

PAIRED_SD: dict[tuple[str, str], float] = {
    # 11 launches of a 2048^3 product in fp32 and bf16, within an hour on a 2-core box with loads of 3 to 14:
    # the ratio spread by sd 6 %; in 7 of them at one load single cases by 28 and 32 %, their ratio by 4.8 %.
    ("cpu", "ceiling"): 0.06,
    # 4 launches of a small GPT's training in fp32 and bf16 in the same hour: 5 %.
    ("cpu", "training"): 0.06,
    # 11 launches of a decoder in fp32 and bf16, in 9 runs within four hours: 11 %, within a run 4 %.
    ("cpu", "inference"): 0.11,
}
"""Of the log ratio of two cases between launches in which both were interleaved."""

PAIRED_LOAD_SD = 0.03
"""Of the log ratio of two servers between launches of a load with the same arrivals, at least. 15 pairs of
runs on a 2-core VM at loads of 5 to 15: at 8 medians by 0.1 to 2.5 %, p95 of TTFT by 2 to 11 %."""
LATE_PART = 0.2
"""Of the client's lag (p99), what it may add to all TTFT of a run: 0.17 to 0.24 in those 15 pairs, whose TPOT
differed by less than launches do."""
SURPRISING = 4.0
"""Three launches show so many times the variance that is expected in 2 of 100 cases."""
PAIRED_RUN_SHARE = 0.25
"""Of the variance between such launches, what runs differ by beyond them."""

UNKNOWN_RUN_SD = 0.04

RUN_SD: dict[str, float] = {
    # 84 runs in four and a half hours on a shared 2-core VM: 0 to 7 % by work, docs/measuring.md.
    "cpu": 0.04,
    # Assumed: not measured. Between machines of one name the convolution nets of the logs above differ by up
    # to 0.37 %, BERT by 0.4 to 1.8 %, which holds what differs between runs.
    "gpu": 0.01,
}
"""Between runs on one machine, by device class; common to the rows of a run."""

UNKNOWN_INSTANCE_SD = 0.10

INSTANCE_SD: dict[tuple[str, str], float] = {
    ("cpu", "ceiling"): 0.10,
    ("cpu", "training"): 0.10,
    ("cpu", "inference"): 0.10,
    ("cpu", "host"): 0.10,
    # ml-engineering: a spread of 5 % and more within one node of 8, as of an sd of 1.8 %.
    ("gpu", "ceiling"): 0.018,
    # BERT-large FP32, the largest of the models that are not bound by kernel launches.
    ("gpu", "training"): 0.018,
    ("gpu", "inference"): 0.038,
    ("gpu", "host"): 0.10,
}
"""Between machines of the same name, by device class and workload class."""


def kind_of_work(device_class: str, workload_class: str, workload: str = "", size: str = "") -> str:
    """`copy`, `launch-bound` where a GPU waits for the host to launch small kernels, or the class."""
    if workload in _COPIES:
        return "copy"
    of_models = workload_class in ("training", "inference")
    if device_class == "gpu" and of_models and (workload in _LAUNCH_BOUND or size == _SMALL):
        return "launch-bound"
    return workload_class


def launch_prior_sd(device_class: str, kind: str) -> float:
    """The standard deviation of the log time between launches of one case on one machine."""
    return LAUNCH_SD.get((device_class, kind), UNKNOWN_LAUNCH_SD)


def paired_prior_sd(device_class: str, kind: str) -> float:
    """The standard deviation of the log ratio of two interleaved cases between launches on one machine.

    If it was not measured, that of single cases: nothing is then known to cancel out.
    """
    known = PAIRED_SD.get((device_class, kind))
    return launch_prior_sd(device_class, kind) if known is None else known


def run_prior_sd(device_class: str) -> float:
    """The standard deviation of the log time between runs on one machine, apart from that of launches."""
    return RUN_SD.get(device_class, UNKNOWN_RUN_SD)


def instance_prior_sd(device_class: str, workload_class: str) -> float:
    """The standard deviation of the log time between machines of the same name."""
    return INSTANCE_SD.get((device_class, workload_class), UNKNOWN_INSTANCE_SD)


def band_between_models(band: float, instance_sd: float) -> float:
    """The equivalence band for a claim about two models of GPU rather than two machines.

    The given band and the 95 % range of the ratio of two machines of one name (1.96 x sqrt 2 x sd, that is
    2.8 x sd), in quadrature; as a fraction.
    """
    return math.hypot(band, 1.96 * math.sqrt(2) * instance_sd)
