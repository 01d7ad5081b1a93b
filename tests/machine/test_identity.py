"""What a box is known by: in containers, under other accounts, and where an image is all there is."""

from __future__ import annotations

import os
from pathlib import Path

from gputui.machine.identity import identities_of
from gputui.machine.tree import Tree
from gputui.model.machine import Identity, Layer

PRODUCT = "4c4c4544-0042-3510-8054-b7c04f575931"
MACHINE_ID = "3d1219c7c4c5404aaa1f6d2a48adfda4"
DOCKER = (Layer("container", "docker", ("/.dockerenv",)),)
RENTED = (Layer("vm", "aws", ("dmi sys_vendor",)),)
KEY, OTHER_KEY = bytes(range(32)), bytes(32)


def box(root: Path, **files: str) -> Tree:
    """A tree with a product UUID, a machine-id, a boot id and a host name, each only if it is named."""
    places = {
        "product": "/sys/class/dmi/id/product_uuid",
        "machine": "/etc/machine-id",
        "boot": "/proc/sys/kernel/random/boot_id",
        "host": "/proc/sys/kernel/hostname",
        "mounts": "/proc/self/mountinfo",
    }
    for name, text in files.items():
        path = root / places[name].lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return Tree(root, {})


def with_systemd(tree: Tree, *, id_made_s: float, packages_made_s: float) -> Tree:
    (tree.root / "run/systemd/system").mkdir(parents=True)
    packages = tree.root / "var/lib/dpkg/info/base-passwd.list"
    packages.parent.mkdir(parents=True)
    packages.write_text("/etc/passwd\n")
    os.utime(packages, (packages_made_s, packages_made_s))
    os.utime(tree.root / "etc/machine-id", (id_made_s, id_made_s))
    return tree


def kinds(identities: tuple[Identity, ...]) -> list[str]:
    return [one.kind for one in identities]


def test_two_accounts_and_a_container_of_one_box_share_an_id(tmp_path: Path) -> None:
    boot = "e2b3-boot"
    root = identities_of(box(tmp_path / "root", product=PRODUCT, boot=boot, host="a"), (), (), "", KEY)
    user = identities_of(box(tmp_path / "user", boot=boot, host="a"), (), (), "", OTHER_KEY)
    container = identities_of(
        box(tmp_path / "c", product=PRODUCT.upper(), machine=MACHINE_ID, host="b"), DOCKER, (), "", b""
    )
    assert kinds(root) == ["product-uuid", "account", "boot"]
    assert set(root) & set(user) == {root[2]}
    assert set(root) & set(container) == {root[0]}
    assert not {one.id for one in root} & {MACHINE_ID[:12], PRODUCT[:12]}


def test_product_uuids_that_boards_share_are_not_used(tmp_path: Path) -> None:
    for number, uuid in enumerate(
        ("03000200-0400-0500-0006-000700080009", "ffffffff-ffff-ffff-ffff-ffffffffffff", "Not Specified")
    ):
        tree = box(tmp_path / str(number), product=uuid)
        assert kinds(identities_of(tree, (), (), "", KEY)) == ["account"]


def test_a_machine_id_is_used_where_an_init_system_made_it_at_the_first_boot(tmp_path: Path) -> None:
    installed, day = 1.7e9, 86400.0
    own = with_systemd(
        box(tmp_path / "own", machine=MACHINE_ID), id_made_s=installed + day, packages_made_s=installed
    )
    assert kinds(identities_of(own, RENTED, ())) == ["machine-id"]
    baked = with_systemd(
        box(tmp_path / "baked", machine=MACHINE_ID), id_made_s=installed + 60, packages_made_s=installed
    )
    assert kinds(identities_of(baked, RENTED, ())) == ["run"]
    # A server that was installed from a medium got both within minutes, and it is not one of many.
    assert kinds(identities_of(baked, (), ())) == ["machine-id"]


def test_a_machine_id_that_came_with_a_container_image_is_not_used(tmp_path: Path) -> None:
    assert kinds(identities_of(box(tmp_path / "1", machine=MACHINE_ID), DOCKER, ())) == ["run"]
    assert kinds(identities_of(box(tmp_path / "2", machine=MACHINE_ID), (), ())) == ["run"]
    of_host = "31 22 8:1 /etc/machine-id /etc/machine-id ro,relatime - ext4 /dev/sda1 rw"
    mounted = box(tmp_path / "3", machine=MACHINE_ID, mounts=of_host)
    assert kinds(identities_of(mounted, DOCKER, ())) == ["machine-id"]


def test_a_name_that_the_user_gave_stands_alone(tmp_path: Path) -> None:
    tree = box(tmp_path, product=PRODUCT, boot="b")
    (named,) = identities_of(tree, (), ("GPU-1",), "lab", KEY)
    assert named.kind == "stated"
    assert (named,) == identities_of(box(tmp_path / "other"), DOCKER, (), "lab", OTHER_KEY)


def test_the_id_that_earlier_versions_made_is_among_the_others(tmp_path: Path) -> None:
    tree = box(tmp_path, product=PRODUCT, machine="4b1d", host="box")
    # HMAC-SHA256 under KEY of "host 4b1d box", and of "gpus GPU-a GPU-b", first 12 hex digits
    found = identities_of(tree, (), ("GPU-b", "GPU-a"), "", KEY)
    assert [one.id for one in found if one.kind == "account"] == ["53c10e5c10c4", "9bab341a2c6f"]


def test_a_box_that_nothing_is_known_of_is_another_in_every_run(tmp_path: Path) -> None:
    assert identities_of(Tree(tmp_path, {}), (), ()) != identities_of(Tree(tmp_path, {}), (), ())
