"""How much launches and runs of one box vary: the table of priors, what was measured on the box, and what
waiting for CPUs does to times.

Nothing is ever taken as known. The table of priors counts as measurements do: of one row it is worth
1 / (1 / BOX_DF + 1 / ROW_DF) = 5 degrees of freedom, and what launches show is pooled with it. Other rows of
the box tell how its launches vary compared with the table; how alike rows are bounds what they tell of one
row. That is a moderated variance (Smyth 2004, https://doi.org/10.2202/1544-6115.1027) with fixed weights:
with the 4 to 15 rows that a box has, how alike they are cannot be told from their variances.

Variances are of log times. Those of different kinds of work are put on one scale by the table: it says how
kinds relate, the box how much it varies.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gputui.analysis.statistics import mean, sample_variance
from gputui.model.result import Spread

BOX_DF = 10.0
"""Of the table, for how much a box varies."""
ROW_DF = 10.0
"""Of what is known of a box, for one of its rows."""
RUN_DF = 4.0
"""Of the table, for how much runs of a box differ."""
_TABLE = "table"
"""The source of errors: boxes unlike those of the table are so on both sides, in launches and in runs."""
ROW_CORRELATION = 0.5
"""Assumed between rows of one run: they share the box's clocks, heat and neighbors."""


@dataclass(frozen=True, slots=True)
class BoxSpread:
    """What is known of the variance between launches of any row on a box."""

    factor: float
    """Variance of its launches over that of the table of priors."""
    df: float
    """Of the factor."""
    rows: int = 0
    launches: int = 0

    def of_row(self, own: Spread | None, table_sd: float) -> Spread:
        """The variance between launches of one row; `own` is what its own launches show, if anything."""
        df = 1 / (1 / self.df + 1 / ROW_DF)
        expected = Spread(self.factor * table_sd**2, df, _TABLE)
        if own is None:
            return expected
        variance = (df * expected.variance + own.df * own.variance) / (df + own.df)
        return Spread(variance, df + own.df, _TABLE)


ASSUMED = BoxSpread(1.0, BOX_DF)
"""Of a box of which nothing was measured."""
ASSUMED_DF = ASSUMED.of_row(None, 1.0).df
"""Of one row of it."""


def learn_launches(runs: Sequence[Mapping[Hashable, Spread]], launches: int = 0) -> BoxSpread:
    """How a box's launches vary, from the scatter of its rows in each run, over the table's variance.

    Rows that were interleaved in the same launches are one row here. Rows of one run are taken to be
    correlated, so that a table of many rows never has as many degrees of freedom as they would have apart.
    `launches` is only passed on.
    """
    found = [scatter for run in runs for scatter in run.values()]
    if not found:
        return ASSUMED
    # Sample variances of values correlated by r are correlated by r squared.
    alike = ROW_CORRELATION**2
    df = math.fsum(sum(row.df for row in run.values()) / (1 + (len(run) - 1) * alike) for run in runs)
    factor = (BOX_DF + df * pooled(found).variance) / (BOX_DF + df)
    return BoxSpread(factor, BOX_DF + df, len({row for run in runs for row in run}), launches)


def learn_runs(cases: Sequence[Sequence[tuple[float, float]]], *, rows: int, table_sd: float) -> Spread:
    """The variance between runs of a box, common to their rows: the table's, moderated by the box's runs.

    `cases` holds the runs of each case, as the mean log time of its launches and the variance of that mean
    because launches vary; `rows` how many of them were measured in launches apart. A
    case whose launches vary much says little of runs, and all cases of a few runs no more than the runs.
    """
    table = table_sd**2
    seen = [
        (
            len(runs) - 1,
            sample_variance([log_time for log_time, _ in runs]),
            mean([error for _, error in runs]),
        )
        for runs in cases
        if len(runs) > 1
    ]
    if not seen:
        return assumed_runs(table_sd)
    weight = sum(df for df, _, _ in seen)
    found = math.fsum(df * (variance - error) for df, variance, error in seen) / weight
    error = math.fsum(df * error for df, _, error in seen) / weight
    df = max(df for df, _, _ in seen) / (1 + error / table / math.sqrt(rows)) ** 2
    variance = (RUN_DF * table + df * max(found, 0.0)) / (RUN_DF + df)
    return Spread(variance, RUN_DF + df, _TABLE)


def assumed_runs(table_sd: float) -> Spread:
    """The variance between runs of a box of which nothing was measured."""
    return Spread(table_sd**2, RUN_DF, _TABLE)


def pooled(scatters: Sequence[Spread]) -> Spread:
    """The scatter of several groups, each around its own mean."""
    df = math.fsum(one.df for one in scatters)
    return Spread(math.fsum(one.df * one.variance for one in scatters) / df, df)


def together(parts: Sequence[Spread]) -> Spread:
    """The variance of a sum of independent values, with degrees of freedom by Welch–Satterthwaite.

    Where parts have one source, so have the errors of their variances: they add up rather than average out.
    """
    total = math.fsum(part.variance for part in parts)
    if total == 0:
        return Spread(0.0, min((part.df for part in parts), default=math.inf))
    errors: dict[str | int, float] = {}
    for place, part in enumerate(parts):
        if part.variance and not math.isinf(part.df):
            key = part.source or place
            errors[key] = errors.get(key, 0.0) + part.variance / total / math.sqrt(part.df)
    lost = math.fsum(error**2 for error in errors.values())
    (source,) = errors if len(errors) == 1 else ("",)
    return Spread(total, 1 / lost if lost else math.inf, source if isinstance(source, str) else "")


# Origin of the GPU values: variance components computed from the public logs of lambdal/deeplearning-
# benchmark, 38 H100 SXM results of one provider with 3 launches each, 12 series (July to October 2024).
# Launch sd: convolution nets 0.03–0.06 %, BERT 0.14–1.59 %, GNMT 0.14–0.32 %, Tacotron2 (bound by kernel
# launches) 1.36–2.59 %. Instance sd: convolution nets 0.06–0.37 %, BERT 0.40–1.84 %, GNMT 0.58–1.13 %,
# Tacotron2 3.61–3.76 %. A class holds work of all these kinds, so it takes the worst series that fits it: a
# prior that is too small calls one machine different from itself.

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


# A step of one thread that waits for a share w of the time takes 1/(1 - w) times as long. Threads that meet
# often wait for one another as well, and spin meanwhile: that takes CPU time and is no waiting. Their step
# takes that to a power, the larger the more often they meet. Where the scheduler lets them take turns, they
# meet once in a slice of its time, and the power is anything.

CONTENTION: Final = "CPU contention from other processes"
LEAST_OWN_SHARE = 1 / 9  # of a block with more threads than were measured: no less is taken to be own
_MOST_WAITED = 0.95  # more was never seen, and a share of 1 would leave a step no time at all
_DECIDABLE, _DECIDABLE_OF_MEETING = 2 / 3, 0.4
"""Shares waited up to which anything can be said; threads that meet often took turns from 0.5 on."""
_SD_OF_TURNS = 2.4
_LEAST_OF_TWO, _MOST_OF_TWO = 1.2, 2.2  # threads: a little is always done by one alone


@dataclass(frozen=True, slots=True)
class Waiting:
    """The power, and how badly it is known."""

    power: float
    sd: float
    sd_apart: float
    """Of how far the powers of two runs of one work lie apart, or of two precisions."""
    least_own_share: float = 0.0
    decidable_share: float = _DECIDABLE
    """Above this share waited, what is left without the waiting is not known."""

    def at(self, waited: float) -> Waiting:
        """Itself where so much waiting can be taken out; else what leaves times as the clock has them.

        Two standard deviations around those still hold what the work may take alone.
        """
        if waited <= self.decidable_share and self.own_share(waited) > self.least_own_share:
            return self
        sd = _SD_OF_TURNS + self.power / 2
        return Waiting(0.0, sd, math.hypot(sd, sd))

    @property
    def is_by_clock(self) -> bool:
        """Whether times are left as the clock has them, though they have waiting in them."""
        return self.power == 0.0 < self.sd

    @property
    def is_unknown(self) -> bool:
        """Likewise, since nobody knows what the waiting did."""
        return self.is_by_clock and self.sd >= _SD_OF_TURNS

    def own_share(self, waited: float) -> float:
        """Of its time, what a block would have taken without others; `waited` is a share from 0 to 1."""
        return max(math.exp(-self.power * _log_factor(waited)), self.least_own_share)

    def log_sd(self, waited: Sequence[float]) -> float:
        """The standard deviation of the log time of blocks that were corrected for these shares."""
        return self.sd * mean([_log_factor(share) for share in waited])

    def log_sd_of_ratio(self, waited_a: Sequence[float], waited_b: Sequence[float]) -> float:
        """Likewise of the log ratio of two runs of one case, or of two precisions."""
        a, b = (mean([_log_factor(share) for share in waited]) for waited in (waited_a, waited_b))
        return math.hypot(self.sd * (a - b), self.sd_apart * max(a, b))


UNDISTURBED = Waiting(0.0, 0.0, 0.0)
"""The blocks of a case that hardly waited are left as they are."""

OF_WHOLE_PROGRAM = Waiting(0.0, 0.5, 0.5)
"""Of a program from start to end it is not known how much of the waiting a GPU, a disk or another thread
worked through: two standard deviations hold all that one thread could have lost."""
_OF_ONE_THREAD = Waiting(1.0, 0.05, 0.04)
_OF_TWO = {
    "ceiling": Waiting(1.1, 0.06, 0.04),
    "training": Waiting(1.95, 0.2, 0.15, 0.0, _DECIDABLE_OF_MEETING),
    "inference": Waiting(1.9, 0.65, 0.8, 0.0, _DECIDABLE_OF_MEETING),
    "host": Waiting(1.0, 0.3, 0.3),
}
"""By class of work. Powers of launches on a 2-core VM that waited for 5 to 67 % of the time, beside quiet
runs of the same day: `gemm` and `membw` 0.9 to 1.25, with one thread 0.9 to 1.1, `gpt_train` and `conv_train`
1.6 to 2.6, `decode` 0.6 to 3.5, the shorter its step the more; `spin`, on another day, 0.9 to 1.1. The slopes
of blocks within these launches lay further off. Where loops in another session had half of each CPU, some
launches of `conv_train`, `gpt_train` and `decode` took turns: powers 3.7 to 6.4, 13 to 89 times as long."""


def effect_of_waiting(workload_class: str, threads: float) -> Waiting:
    """What waiting does to a step; `threads`: how many of it want a CPU at once, on average.

    Two whose every operation ends with a meeting go on only while both have a CPU, (1 - w)^2 of the time.
    More than two were not measured: the power lies between 1 and their number.
    """
    if threads < _LEAST_OF_TWO:
        return _OF_ONE_THREAD
    if threads < _MOST_OF_TWO:
        return _OF_TWO[workload_class]
    sd = (threads - 1) / 4
    return Waiting((threads + 1) / 2, sd, sd, LEAST_OWN_SHARE, _DECIDABLE_OF_MEETING)


def _log_factor(waited: float) -> float:
    return -math.log(1 - min(waited, _MOST_WAITED))
