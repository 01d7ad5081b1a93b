"""Which runs count as of one box."""

from __future__ import annotations

from dataclasses import replace

from hand_made import make_run
from journals import CPU_MACHINE, GPU_MACHINE, H200

from gputui.model.machine import Identity, Machine
from gputui.store.selecting import with_common_ids


def machine(*identities: tuple[str, str], gpus: tuple[str, ...] = (), name: str = "") -> Machine:
    known = tuple(Identity(kind, id) for kind, id in identities)
    base = GPU_MACHINE if gpus else CPU_MACHINE
    return replace(
        base,
        machine_id=name or known[0].id,
        identities=known,
        gpus=tuple(replace(H200, index=index, gpu_id=id) for index, id in enumerate(gpus)),
    )


def ids(*machines: Machine, pool: bool = False) -> list[str]:
    groups = [[make_run(machine=one).summary] for one in machines]
    return [summary.machine.machine_id for (summary,) in with_common_ids(groups, pool=pool)]


def test_runs_that_share_an_id_get_the_surest_of_their_ids() -> None:
    root = machine(("product-uuid", "p1"), ("account", "k1"), ("boot", "b1"))
    user = machine(("account", "k2"), ("boot", "b1"))
    after_restart = machine(("account", "k2"), ("boot", "b2"))
    assert ids(after_restart, user, root) == ["p1", "p1", "p1"]
    assert ids(after_restart, root) == ["k2", "p1"]


def test_runs_that_share_a_gpu_are_of_one_box() -> None:
    whole = machine(("gpus", "g12"), gpus=("g1", "g2"))
    last = machine(("gpus", "g2"), gpus=("g2",))
    assert ids(last, whole) == ["g12", "g12"]
    assert ids(machine(("gpus", "g1"), gpus=("g1",)), last) == ["g1", "g2"]
    assert ids(machine(("gpus", "g1"), gpus=("g1",)), last, whole) == ["g1", "g1", "g1"]


def test_two_firmwares_are_two_boxes_whatever_else_they_share() -> None:
    one = machine(("product-uuid", "p1"), ("machine-id", "m"), gpus=("g1",))
    other = machine(("product-uuid", "p2"), ("machine-id", "m"), gpus=("g1",))
    assert ids(one, other) == ["p1", "p2"]


def test_a_stated_name_joins_boxes_and_separates_them() -> None:
    assert ids(machine(("stated", "s")), machine(("stated", "s"))) == ["s", "s"]
    assert ids(machine(("stated", "s"), gpus=("g",)), machine(("gpus", "g"), gpus=("g",))) == ["s", "g"]


def test_a_run_of_an_earlier_version_is_of_the_box_that_knows_its_id() -> None:
    earlier = replace(CPU_MACHINE, machine_id="k1", identities=())
    assert ids(earlier, machine(("product-uuid", "p1"), ("account", "k1"))) == ["p1", "p1"]
    assert ids(earlier, machine(("product-uuid", "p1"), ("account", "k2"))) == ["k1", "p1"]


def test_boxes_that_nothing_sure_is_known_of_are_one_only_on_request() -> None:
    first, second = machine(("account", "k1"), ("boot", "b1")), machine(("account", "k2"), ("boot", "b2"))
    sure = machine(("product-uuid", "p"))
    assert ids(first, second, sure) == ["k1", "k2", "p"]
    assert ids(first, second, sure, pool=True) == ["k1", "k1", "p"]
