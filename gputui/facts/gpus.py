"""What is known of a GPU by the name its driver reports, and what healthy ones reach elsewhere."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace

from gputui.facts.tables import GpuRow, PlausibleRow, gpu_rows, plausible_rows
from gputui.model.absent import Missing
from gputui.model.machine import Machine

_WORD = re.compile(r"[a-z0-9]+")
_LEAST_SHARED = 3
_MIG_SUFFIX = re.compile(r"\s+MIG\s+(\S+)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """The data sheet of one device."""

    row: GpuRow
    """Of the whole GPU, even if the device is a slice of it."""
    mig_profile: str
    """Such as `1g.10gb`; empty for a whole GPU."""

    @property
    def name(self) -> str:
        """The key that other tables use, such as `H200 SXM`."""
        return self.row.name


KEPT_BY_THE_DRIVER = 0.08
"""Of the sales figure, at most, as seen in `gpus.csv` where both figures are known."""


def memory_of(row: GpuRow) -> int | Missing:
    """Bytes that a driver reports of a GPU; where that is not known, the sales figure less what one keeps.

    The only size of a GPU that anything calculates with.
    """
    if row.nvml_memory_mib is not None:
        return round(row.nvml_memory_mib * 2**20)
    if row.memory_gib is not None:
        return round(row.memory_gib * (1 - KEPT_BY_THE_DRIVER) * 2**30)
    return Missing(f"{row.name} is sold with different memory")


def rows_named(text: str) -> tuple[GpuRow, ...]:
    """The rows that a person means by a name, or that a driver does; empty if there is none.

    Tries the name itself, then its words in any order among names whose memory is known (`H200` is both
    of its kinds), then what the driver calls it, of which parts that only differ in memory are all meant.
    """
    wanted = text.strip().lower()
    exact = [row for row in gpu_rows() if row.name.lower() == wanted]
    words = set(_WORD.findall(wanted))
    sized = [row for row in gpu_rows() if not isinstance(memory_of(row), Missing)]
    worded = [row for row in sized if words <= _words_for(row.name.lower())]
    if exact or (words and worded):
        return tuple(exact or worded)
    driven = []
    for row in gpu_rows():
        if row.pattern.search(text):
            driven.append(row)
            if row.mem_min_gib is None and row.mem_max_gib is None:
                break
    return tuple(driven)


def _words_for(name: str) -> set[str]:
    """What people call the parts of a name: also `80` for `80gb`, `sxm` for `sxm4`, and `rtx4090`."""
    words = _WORD.findall(name)
    joined = {first + second for first, second in itertools.pairwise(words)}
    return {*words, *joined, *(re.sub(r"(?<=\d)gb$|(?<=sxm)\d$", "", word) for word in words)}


def closest_gpus(text: str, count: int = 5) -> tuple[str, ...]:
    """Names of known memory that a person may have meant, likeliest first.

    Names with a word that begins as the text does, for as many letters as possible and at least three: `H100`
    is closer to `H100x` than `H20` is. Else those with similar spelling.
    """
    from difflib import get_close_matches  # only needed for a mistyped name

    wanted = "".join(_WORD.findall(text.lower()))
    names = [row.name for row in gpu_rows() if not isinstance(memory_of(row), Missing)]
    shared = {name: _shared(wanted, name.lower()) for name in sorted(names, key=len)}
    most = max(shared.values())
    if most >= _LEAST_SHARED:
        return tuple(name for name, letters in shared.items() if letters == most)[:count]
    known = {name.lower(): name for name in names}
    return tuple(known[name] for name in get_close_matches(text.lower(), known, n=count, cutoff=0.5))


def _shared(wanted: str, name: str) -> int:
    """How many letters the text shares with the name, from the beginning of one of its words on."""
    words = _WORD.findall(name)
    tails = ["".join(words[start:]) for start in range(len(words))]
    lengths = range(len(wanted), 0, -1)
    return next((length for length in lengths if any(t.startswith(wanted[:length]) for t in tails)), 0)


def with_article(name: str) -> str:
    """`an H200`, `a B200`, `a GeForce`: a name of capitals is spelled."""
    vowels = "AEFHILMNORSX8" if name[:2].upper() == name[:2] else "AEIO"
    return f"{'an' if name[:1].upper() in vowels else 'a'} {name}"


def memory_gib_of(machine: Machine, index: int | None) -> float | None:
    """The memory of a GPU, which tells it from others of its name; None where it is not known."""
    gpu = machine.gpu(index)
    return None if gpu is None or isinstance(gpu.memory_bytes, Missing) else gpu.memory_bytes / 2**30


def find_gpu(device_name: str, memory_gib: float | None) -> GpuFacts | Missing:
    """The data sheet of a device by the name that its driver or torch reports.

    The first matching row wins, ignoring case and a MIG suffix. Parts that share a name are distinguished by
    memory; without it they are Missing, because a wrong peak is worse than none.
    """
    mig = _MIG_SUFFIX.search(device_name)
    bare_name = device_name[: mig.start()] if mig else device_name.strip()
    for row in gpu_rows():
        if not row.pattern.search(bare_name):
            continue
        if row.mem_min_gib is not None or row.mem_max_gib is not None:
            if mig or memory_gib is None:
                return Missing(f"{bare_name} is sold with different memory, and that is unknown here")
            if row.mem_min_gib is not None and memory_gib < row.mem_min_gib:
                continue
            if row.mem_max_gib is not None and memory_gib > row.mem_max_gib:
                continue
        return GpuFacts(row, mig.group(1) if mig else "")
    return Missing(f"{bare_name or 'a device without a name'} is not in the table of GPUs")


def peak_for(gpu: GpuFacts, precision_used: str) -> float | Missing:
    """The dense peak in FLOP/s for the precision actually used: `fp32`, `tf32`, `amp-bf16`, `amp-fp16`.

    Tensor units with FP32 accumulation; FP16 falls back to the vector rate of parts without tensor units.
    Missing for a slice of a GPU, whose share of the peak is not known here.
    """
    if gpu.mig_profile:
        return Missing(f"the MIG slice {gpu.mig_profile} has only a part of the {gpu.name}'s peak")
    row = gpu.row
    peaks_tflops = {
        "fp32": row.fp32_tflops,
        "tf32": row.tf32_tensor_tflops,
        "bf16": row.bf16_tensor_tflops,
        "fp16": row.fp16_vector_tflops if row.fp16_tensor_tflops is None else row.fp16_tensor_tflops,
        "fp8": row.fp8_tensor_tflops,
    }
    dtype = precision_used.removeprefix("amp-")
    if dtype not in peaks_tflops:
        return Missing(f"no peak is kept for {precision_used or 'an unknown precision'}")
    peak_tflops = peaks_tflops[dtype]
    if peak_tflops is None:
        return Missing(f"no {dtype} peak known for {gpu.name}")
    return peak_tflops * 1e12


def peak_bandwidth(gpu: GpuFacts) -> float | Missing:
    """The data sheet's memory bandwidth in B/s; Missing for a slice of a GPU."""
    if gpu.mig_profile:
        return Missing(f"the MIG slice {gpu.mig_profile} has only a part of the {gpu.name}'s bandwidth")
    if gpu.row.memory_bandwidth_gbs is None:
        return Missing(f"no memory bandwidth known for {gpu.name}")
    return gpu.row.memory_bandwidth_gbs * 1e9


def expected(gpu: GpuFacts | str, measure: str, dtype: str) -> PlausibleRow | Missing:
    """The range measured elsewhere for one GPU, in FLOP/s or B/s.

    `gpu` is a result of `find_gpu` or its name; `measure` is `matmul`, `copy`, `h2d_pinned`, ...; `dtype` may
    be a precision as used (`amp-bf16`), and is ignored for bandwidths. A measured range takes precedence over
    a mere minimum. Where no copy was measured, a fluid simulation's traffic (`lbm`) serves as a minimum: a
    plain copy is at least as fast.
    """
    if isinstance(gpu, GpuFacts) and gpu.mig_profile:
        return Missing(f"no figures for the MIG slice {gpu.mig_profile} of {gpu.name}")
    name = gpu.name if isinstance(gpu, GpuFacts) else gpu
    wanted_dtype = dtype.removeprefix("amp-") if measure == "matmul" else ""
    found = [r for r in plausible_rows() if (r.gpu, r.measure, r.dtype) == (name, measure, wanted_dtype)]
    found.sort(key=lambda row: row.measured_max is None)
    if found:
        return found[0]
    if measure == "copy":
        simulated = expected(name, "lbm", "")
        if isinstance(simulated, PlausibleRow):
            return replace(simulated, measured_max=None)
    return Missing(f"no {f'{wanted_dtype} ' if wanted_dtype else ''}{measure} figures known for {name}")
