"""How devices are numbered and named: GPUs as in the driver, the host below them, MIG instances above."""

from __future__ import annotations

HOST = -1

_FIRST_MIG = 1000
MIG_PER_GPU = 16
"""More than any GPU's instances; and no machine has so many GPUs that their numbers collide with
instances."""


def mig_device(gpu: int, index: int) -> int:
    """The number of a MIG instance, from its GPU and the driver's index on it."""
    return _FIRST_MIG + MIG_PER_GPU * gpu + index


def mig_place(device: int) -> tuple[int, int] | None:
    """GPU and index of a MIG instance; None for a whole GPU and the host."""
    return divmod(device - _FIRST_MIG, MIG_PER_GPU) if device >= _FIRST_MIG else None


def device_label(device: int) -> str:
    """`3` for a GPU; `0:1` for the MIG instance 1 of GPU 0, as `--gpus device=0:1` of Docker names it."""
    place = mig_place(device)
    return str(device) if place is None else f"{place[0]}:{place[1]}"


def device_order(device: int) -> tuple[int, int]:
    """Sort key that places each MIG instance after its GPU."""
    return mig_place(device) or (device, -1)
