"""What healthy GPUs reach elsewhere."""

from __future__ import annotations

from dataclasses import replace

from gputui.facts.gpus import GpuFacts
from gputui.facts.tables import PlausibleRow, plausible_rows
from gputui.model.absent import Missing

PlausibleRange = PlausibleRow


def expected(gpu: GpuFacts | str, measure: str, dtype: str) -> PlausibleRange | Missing:
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
