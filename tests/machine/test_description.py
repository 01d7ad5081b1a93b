"""The whole description of a box: what it contains, and what it must never contain."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from amd_trees import radeon_7900xtx

from gputui.machine.describing import describe_machine
from gputui.machine.gpus import GpuAddress, join_gpu, normal_pci_address
from gputui.machine.identity import hashed_id
from gputui.machine.tree import Tree
from gputui.model.absent import Missing, to_plain

KEY = bytes(range(32))


def write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def test_versions_are_reported_without_a_builders_suffix(tmp_path: Path) -> None:
    driver = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"
    os_release = 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n'
    write(tmp_path, {"/etc/os-release": os_release, "/proc/driver/nvidia/version": driver})
    for release, expected in {
        "6.8.0-1018-sentinelcorp\n": "6.8.0-1018",
        "5.15.167.4-microsoft-standard-WSL2": "5.15.167.4",
        "5.14.0-427.13.1.el9_4.x86_64": "5.14.0",
        "6.1.0-mycompany7": "6.1.0",
        "6.12.3": "6.12.3",
    }.items():
        write(tmp_path, {"/proc/sys/kernel/osrelease": release})
        machine = describe_machine(hash_key=KEY, root=tmp_path, environ={})
        assert isinstance(machine.kernel, str)
        assert machine.kernel.startswith(expected)
        assert not set(machine.kernel) - set("0123456789.-")
    assert machine.os_name == "Ubuntu 24.04.3 LTS"
    if not machine.gpus:
        assert machine.driver_version == "580.95.05"


def test_a_hash_is_twelve_hex_digits_of_the_keyed_hash() -> None:
    assert hashed_id(KEY, "GPU-1") == hashed_id(KEY, "GPU-1") != hashed_id(bytes(32), "GPU-1")
    assert int(hashed_id(KEY, "GPU-1"), 16) < 16**12


def test_no_private_value_of_the_box_is_in_its_description(tmp_path: Path) -> None:
    secret = "sentinel"
    write(
        tmp_path,
        {
            "/.dockerenv": "",
            "/etc/machine-id": f"{secret}machine\n",
            "/proc/sys/kernel/hostname": f"{secret}-host\n",
            "/proc/sys/kernel/osrelease": f"6.8.0-{secret}\n",
            "/etc/hosts": f"10.0.0.1 {secret}\n",
            "/etc/environment": f"VAST_CONTAINERLABEL={secret}\nHOME=/home/{secret}\n",
            "/proc/1/environ": f"KUBERNETES_SERVICE_HOST={secret}\0USER={secret}\0",
            "/proc/self/cgroup": f"0::/user.slice/{secret}\n",
            "/proc/self/mountinfo": f"1 0 0:1 / /home/{secret} rw - overlay {secret} rw\n",
            "/sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
            "/sys/class/dmi/id/product_name": "p5.48xlarge\n",
            "/sys/class/dmi/id/board_asset_tag": f"i-0{secret}\n",
            "/sys/class/dmi/id/product_serial": f"{secret}\n",
            "/var/run/secrets/kubernetes.io/serviceaccount/token": secret,
        },
    )
    private_names = (
        "RUNPOD_POD_ID", "RUNPOD_API_KEY", "RUNPOD_PUBLIC_IP", "RUNPOD_POD_HOSTNAME", "VAST_CONTAINERLABEL",
        "SLURM_JOB_ID", "SLURM_JOB_USER", "SLURM_JOB_PARTITION", "SLURM_SUBMIT_DIR", "SPACE_ID",
        "SPACE_AUTHOR_NAME", "KAGGLE_USER_SECRETS_TOKEN", "HF_TOKEN", "USER", "HOME", "HOSTNAME",
        "APPTAINER_CONTAINER", "PAPERSPACE_FQDN", "JUPYTER_TOKEN", "MODAL_TASK_ID", "COLAB_JUPYTER_TOKEN",
    )  # fmt: skip
    environ = {name: f"/home/{secret}/{name}" for name in private_names}
    machine = describe_machine(hash_key=KEY, root=tmp_path, environ=environ)
    text = json.dumps(to_plain(machine))
    assert secret not in text
    assert str(tmp_path) not in text
    assert machine.layers


def test_a_box_that_reports_nothing_gives_a_reason_for_each_gap(tmp_path: Path) -> None:
    for path in ("proc/cpuinfo", "proc/meminfo", "etc/os-release", "etc/machine-id"):
        (tmp_path / path).mkdir(parents=True)  # as good as missing
    machine = describe_machine(hash_key=KEY, root=tmp_path, environ={}, affinity=frozenset({0}))
    assert machine.layers == ()
    for value in (machine.instance_type, machine.region, machine.cpu.last_level_cache_bytes):
        assert isinstance(value, Missing)
        assert value.reason
    assert machine.gpus or machine.gpus_absent
    assert machine.memory.host_bytes >= 0


def test_this_box_is_described() -> None:
    machine = describe_machine(hash_key=KEY)
    assert machine.memory.usable_bytes > 0
    assert 1 <= machine.cpu.usable_cores <= machine.cpu.host_threads
    if sys.platform == "linux":  # which refuses to read very much at once of a file in /proc/sys
        assert Tree(Path("/"), {}).text("/proc/sys/kernel/ostype") == "Linux"


def test_an_amd_card_is_a_gpu_of_the_box_and_the_graphics_unit_of_its_processor_is_not(
    tmp_path: Path,
) -> None:
    box = radeon_7900xtx(tmp_path)
    unit = {"vendor": "0x1002", "device": "0x164e", "mem_info_vram_total": str(512 * 2**20)}
    box.card(1, "pci0000:00/0000:00:08.1/0000:0c:00.0", unit)
    machine = describe_machine(hash_key=KEY, root=tmp_path, environ={})
    (gpu,) = (gpu for gpu in machine.gpus if gpu.vendor == "amd")
    assert (gpu.name, gpu.memory_bytes, gpu.power_limit_w) == ("AMD Radeon RX 7900 XTX", 25753026560, 303.0)
    assert (gpu.pcie_generation_max, gpu.pcie_width, gpu.temperature_limit_c) == (4, 16, 100.0)
    assert gpu.ecc_enabled == Missing("only NVIDIA's driver has it")
    assert len(gpu.gpu_id) == 12
    assert "8af705259683161c" not in json.dumps(to_plain(machine))
    if len(machine.gpus) == 1:
        assert machine.driver_version == "6.16.13"


ADDRESSES = (
    GpuAddress(0, "GPU-aaaa", "0000:1b:00.0", ()),
    GpuAddress(1, "", "0000:3b:00.0", ()),
    GpuAddress(2, "GPU-cccc", "0000:5e:00.0", ("MIG-1111", "MIG-2222")),
)


@pytest.mark.parametrize(
    ("uuid", "pci_address", "index"),
    [
        ("GPU-aaaa", "", 0),
        ("cccc", "", 2),
        ("MIG-2222", "", 2),
        ("", "00000000:3B:00.0", 1),
        ("GPU-unknown", "3b:00", 1),
        ("GPU-aaaa", "0000:3b:00.0", 0),
        ("", "", None),
        ("GPU-zzzz", "0000:ff:00.0", None),
    ],
)
def test_a_device_is_joined_by_uuid_and_then_by_pci_address(
    uuid: str, pci_address: str, index: int | None
) -> None:
    found = join_gpu(ADDRESSES, uuid, pci_address)
    assert isinstance(found, Missing) if index is None else found == index


@pytest.mark.parametrize("text", ["", "x", "12", "1:2:3:4", "0000:1b:00.9"])
def test_what_is_no_pci_address_has_no_normal_form(text: str) -> None:
    assert normal_pci_address(text) == ""
