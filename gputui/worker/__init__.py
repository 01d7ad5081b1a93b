"""The process that does the work: runs in any Python >= 3.10, imports the standard library, torch and itself.

It is copied into the run directory under the name `gputui_worker`, so every import here is relative. The
words below are those of workloads, plans and result files alike.
"""

from __future__ import annotations

WORKLOAD_CLASSES = ("ceiling", "training", "inference", "host")
DEVICE_CLASSES = ("cpu", "gpu")
PRECISIONS = ("fp32", "tf32", "amp", "amp-bf16", "amp-fp16")
"""As requested: `amp` is bf16 or fp16, whichever suits the device."""
MODES = ("eager", "compile", "graph")
FIGURE_SUFFIXES = {
    "s": "_s",
    "B": "_bytes",
    "B/s": "_bytes_per_s",
    "1/s": "_per_s",
    "share": "_share",
    "ratio": "_ratio",
    "count": "_count",
}
"""Units of figures, and how their keys end."""
FIGURE_BETTER = ("less", "more", "neither")
FIGURE_COMBINES = ("median", "sum", "max", "min")
MIN_BLOCKS = 5
"""A launch with fewer is not a measurement."""


def declared_as(precision: str) -> str:
    """The precision that a workload declares where this one may be requested: `amp` for `amp-bf16`."""
    return "amp" if precision.startswith("amp-") else precision
