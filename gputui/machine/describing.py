"""Everything known about this machine, in one value."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gputui.machine import versions
from gputui.machine.cpu import describe_cpu
from gputui.machine.gpus import describe_gpus
from gputui.machine.identity import identities_of
from gputui.machine.layers import find_layers, instance_type, region
from gputui.machine.memory import describe_memory
from gputui.machine.tree import Tree
from gputui.model.absent import Missing
from gputui.model.machine import Machine


def describe_machine(
    *,
    name: str = "",
    hash_key: bytes = b"",
    root: Path = Path("/"),
    environ: Mapping[str, str] | None = None,
    affinity: frozenset[int] | None = None,
) -> Machine:
    """Everything known about this machine without network or root, in well under a second.

    `name`: what the user calls it, instead of what it is known by. `hash_key`: random bytes of this user,
    for boxes that nothing else tells apart. `root`, `environ` and `affinity` (logical CPUs) replace the
    system's. GPUs always come from the driver, whose library stays open.
    """
    tree = Tree(root, os.environ if environ is None else environ)
    driver = describe_gpus()
    layers = find_layers(tree)
    driver_version = driver.driver_version
    if isinstance(driver_version, Missing):
        driver_version = versions.driver_version(tree)
    identities = identities_of(tree, layers, driver.uuids, name, hash_key)
    return Machine(
        machine_id=identities[0].id,
        cpu=describe_cpu(tree, affinity),
        memory=describe_memory(tree),
        gpus=driver.gpus,
        gpus_absent=driver.absent,
        layers=layers,
        instance_type=instance_type(tree, layers),
        region=region(tree, layers),
        os_name=versions.os_name(tree),
        kernel=versions.kernel(tree),
        libc=versions.libc(tree),
        driver_version=driver_version,
        cuda_driver_version=driver.cuda_driver_version,
        identities=identities,
    )
