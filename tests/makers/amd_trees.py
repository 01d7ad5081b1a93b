"""What the amdgpu driver shows of an Instinct MI300X and of a Radeon RX 7900 XTX, from what users published.

No file of these trees was read from a device here. Sources:

- the layouts of `gpu_metrics`: the kernel's drivers/gpu/drm/amd/include/kgd_pp_interface.h, and for 1.9 the
  amd-gfx patch "Add definition for gpu_metrics v1.9" of 9 September 2025;
- MI300X: names, limits and clocks from ROCm/legacy-rocm-build#5231 and #4414; numbers of the compute driver
  and its list of processes from #4411 and ROCm/ROC-smi#60; cards of partitions from
  ROCm/k8s-device-plugin#157 and #184; tables of version 1.6 and 1.9, idle and under load, from the README of
  "amdgpu gpu_metrics fixtures" in a public Julia package, captured in September 2026;
- RX 7900 XTX: its table from Umio-Yasuno/libdrm-amdgpu-sys-rs#7, what its hot spot reports also from
  flightlessmango/MangoHud#1690 and ROCm/rocm-systems#11781.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any  # Any: ctypes makes its types as it runs

_TYPES: Mapping[str, Any] = {"u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64}
_HEAD = """
u16 structure_size | u16 revisions
"""
_RADEON = (
    _HEAD
    + """
u16 temperature_edge | u16 temperature_hotspot | u16 temperature_mem | u16 temperature_vrgfx
u16 temperature_vrsoc | u16 temperature_vrmem
u16 average_gfx_activity | u16 average_umc_activity | u16 average_mm_activity
u16 average_socket_power | u64 energy_accumulator | u64 system_clock_counter
u16 average_clocks 7 | u16 current_gfxclk | u16 current_socclk | u16 current_uclk | u16 current_video 4
u32 throttle_status | u16 current_fan_speed | u16 pcie_link_width | u16 pcie_link_speed | u16 padding
u32 gfx_activity_acc | u32 mem_activity_acc | u16 temperature_hbm 4
"""
)
_INSTINCT = (
    _HEAD
    + """
u16 temperature_hotspot | u16 temperature_mem | u16 temperature_vrsoc | u16 average_socket_power
u16 average_gfx_activity | u16 average_umc_activity
"""
)
_ENERGY = "u64 energy_accumulator | u64 system_clock_counter\n"
_RESIDENCIES = """
u32 accumulation_counter | u32 prochot_residency_acc | u32 ppt_residency_acc
u32 socket_thm_residency_acc | u32 vr_thm_residency_acc | u32 hbm_thm_residency_acc
"""
_LINKS = """
u32 gfxclk_lock_status | u16 pcie_link_width | u16 pcie_link_speed | u16 xgmi_link_width | u16 xgmi_link_speed
u32 gfx_activity_acc | u32 mem_activity_acc
u64 pcie_bandwidth_acc | u64 pcie_bandwidth_inst | u64 pcie_l0_to_recov_count_acc
u64 pcie_replay_count_acc | u64 pcie_replay_rover_count_acc
"""
_NAKS = "u32 pcie_nak_sent_count_acc | u32 pcie_nak_rcvd_count_acc\n"
_XGMI = "u64 xgmi_read_data_acc 8 | u64 xgmi_write_data_acc 8\n"
_CLOCKS = """
u64 firmware_timestamp | u16 current_gfxclk 8 | u16 current_socclk 4 | u16 current_vclk0 4
u16 current_dclk0 4 | u16 current_uclk | u16 num_partition
"""
_END = "u32 pcie_lc_perf_other_end_recovery\n"
DECLARED: Mapping[tuple[int, int, int], str] = {
    (1, 1, 96): _RADEON,
    (1, 2, 104): _RADEON + "u64 firmware_timestamp\n",
    (1, 3, 120): _RADEON
    + "u64 firmware_timestamp | u16 voltages 3 | u16 padding1 | u64 indep_throttle_status\n",
    (1, 4, 288): _INSTINCT
    + "u16 vcn_activity 4\n"
    + _ENERGY
    + "u32 throttle_status\n"
    + _LINKS
    + _XGMI
    + _CLOCKS,
    (1, 5, 360): _INSTINCT
    + "u16 vcn_activity 4 | u16 jpeg_activity 32\n"
    + _ENERGY
    + "u32 throttle_status\n"
    + _LINKS
    + _NAKS
    + _XGMI
    + _CLOCKS,
    (1, 6, 384): _INSTINCT
    + "u16 vcn_activity 4 | u16 jpeg_activity 32\n"
    + _ENERGY
    + _RESIDENCIES
    + "u32 throttle_status\n"
    + _LINKS
    + _NAKS
    + _XGMI
    + _CLOCKS,
    (1, 6, 1664): _INSTINCT
    + _ENERGY
    + _RESIDENCIES
    + _LINKS
    + _NAKS
    + _XGMI
    + _CLOCKS
    + "u64 xcp_stats 168\n"
    + _END,
    (1, 7, 2208): _INSTINCT
    + "u64 mem_max_bandwidth\n"
    + _ENERGY
    + _RESIDENCIES
    + _LINKS
    + _NAKS
    + _XGMI
    + "u16 xgmi_link_status 8 | u16 padding\n"
    + _CLOCKS
    + "u64 xcp_stats 232\n"
    + _END,
    (1, 8, 3872): _INSTINCT
    + "u64 mem_max_bandwidth\n"
    + _ENERGY
    + _RESIDENCIES
    + _LINKS
    + _NAKS
    + _XGMI
    + "u16 xgmi_link_status 8 | u16 padding\n"
    + _CLOCKS
    + "u64 xcp_stats 440\n"
    + _END,
}
"""The kernel's structures by version and size, field by field in its order; a number behind a name is of an
array. Names that differ between versions are those of the oldest."""
NUMBERS: Mapping[str, int] = {
    "temperature_hotspot": 0,
    "temperature_mem": 1,
    "average_socket_power": 3,
    "average_gfx_activity": 4,
    "energy_accumulator": 7,
    "accumulation_counter": 9,
    "prochot_residency_acc": 10,
    "ppt_residency_acc": 11,
    "socket_thm_residency_acc": 12,
    "vr_thm_residency_acc": 13,
    "hbm_thm_residency_acc": 14,
    "gfxclk_lock_status": 15,
    "current_gfxclk": 33,
    "current_uclk": 37,
    "gfx_busy_acc": 43,
}
"""`amdgpu_metrics_attr_id` of version 1.9."""
_KINDS = {"B": 0, "H": 2, "I": 4, "Q": 6}


def table(version: tuple[int, int, int], values: Mapping[str, int | Sequence[int]]) -> bytes:
    """A table as the kernel lays it out; what has no value is all ones, as its driver leaves it."""
    fields = []
    for declared in DECLARED[version].replace("\n", "|").split("|"):
        if words := declared.split():
            kind = _TYPES[words[0]]
            fields.append((words[1], kind * int(words[2]) if len(words) > 2 else kind))
    laid_out: Any = type("Laid", (ctypes.LittleEndianStructure,), {"_fields_": fields})
    size = ctypes.sizeof(laid_out)
    assert size == version[2], (version, size)
    made = laid_out.from_buffer_copy(b"\xff" * size)
    for name, value in {**values, "structure_size": size, "revisions": version[0] | version[1] << 8}.items():
        if isinstance(value, int):
            setattr(made, name, value)
        else:
            getattr(made, name)[: len(value)] = value
    return bytes(made)


def table_of_attributes(values: Mapping[str, tuple[str, Sequence[int]]]) -> bytes:
    """A table of version 1.9, which describes itself: values by name, with the letter of their type."""
    parts = []
    for name, (code, many) in values.items():
        encoding = _KINDS[code] << 20 | NUMBERS[name] << 10 | len(many)
        parts.append(struct.pack(f"<Q{len(many)}{code}", encoding, *many))
    body = b"".join(parts)
    return struct.pack("<HBBi", 8 + len(body), 1, 9, len(parts)) + body


def mi300x_load(
    *, counter: int, throttled: int, hot_c: int, power_w: int, clocks_mhz: Sequence[int]
) -> bytes:
    """What an MI300X reports in version 1.9; `throttled` counts like `counter`, while power is the limit."""
    return table_of_attributes(
        {
            "temperature_hotspot": ("H", [hot_c]),
            "temperature_mem": ("H", [40]),
            "average_socket_power": ("H", [power_w]),
            "average_gfx_activity": ("H", [100]),
            "energy_accumulator": ("Q", [power_w * counter * 65]),
            "accumulation_counter": ("I", [counter]),
            "prochot_residency_acc": ("I", [0]),
            "ppt_residency_acc": ("I", [throttled]),
            "socket_thm_residency_acc": ("I", [0]),
            "vr_thm_residency_acc": ("I", [0]),
            "hbm_thm_residency_acc": ("I", [0]),
            "gfxclk_lock_status": ("I", [0]),
            "current_gfxclk": ("H", clocks_mhz),
            "current_uclk": ("H", [1300]),
            "gfx_busy_acc": ("Q", [7] * 8),
        }
    )


MI300X_IDLE = mi300x_load(
    counter=54536484, throttled=633093, hot_c=42, power_w=194, clocks_mhz=(2098, 2100, 2103, 2105) * 2
)
MI300X_LOADED = (
    mi300x_load(
        counter=55257356, throttled=749905, hot_c=59, power_w=705, clocks_mhz=(1262, 1280, 1300, 1317) * 2
    ),
    mi300x_load(
        counter=55262364, throttled=754247, hot_c=68, power_w=707, clocks_mhz=(1262, 1280, 1300, 1317) * 2
    ),
)
"""Two readings 5 s apart, with the limit at 750 W: 86.7 % of that time slowed by power."""
RADEON_IDLE = table(
    (1, 3, 120),
    {
        "temperature_edge": 38,
        "temperature_hotspot": 41,
        "temperature_mem": 57,
        "average_gfx_activity": 0,
        "average_socket_power": 10,
        "energy_accumulator": 0,
        "current_gfxclk": 5,
        "current_uclk": 29,
        "throttle_status": 2,
        "indep_throttle_status": 1 << 36,
    },
)


class Box:
    """A root directory whose AMD GPUs a test adds."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("sys/module/amdgpu", {"version": "6.16.13"})
        self.write(
            "usr/share/libdrm",
            {"amdgpu.ids": "1.0.0\n744C,\tC8,\tAMD Radeon RX 7900 XTX\n74A1,\t00,\tAMD Instinct MI300X"},
        )

    def write(self, directory: str, files: Mapping[str, str | bytes]) -> Path:
        place = self.root / directory
        for name, content in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            raw = content if isinstance(content, bytes) else f"{content}\n".encode()
            (place / name).write_bytes(raw)
        return place

    def card(self, card: int, place: str, files: Mapping[str, str | bytes], driver: str = "amdgpu") -> Path:
        """A card of /sys/class/drm whose device is at `place` below /sys/devices."""
        device = self.write(f"sys/devices/{place}", files)
        drivers = self.root / "sys/bus/pci/drivers" / driver
        drivers.mkdir(parents=True, exist_ok=True)
        (device / "driver").symlink_to(drivers)
        by_address = self.root / "sys/bus/pci/devices"
        by_address.mkdir(parents=True, exist_ok=True)
        (by_address / device.name).symlink_to(device)
        drm = device / "drm" / f"card{card}"
        drm.mkdir(parents=True)
        (drm / "device").symlink_to(device)
        listed = self.root / "sys/class/drm"
        listed.mkdir(parents=True, exist_ok=True)
        (listed / f"card{card}").symlink_to(drm)
        return device

    def node(self, number: int, gpu_id: int, bus: int, partition: int = 0) -> None:
        """A node of the kernel's compute driver; one without `gpu_id` is a CPU."""
        self.write(
            f"sys/class/kfd/kfd/topology/nodes/{number}",
            {
                "gpu_id": str(gpu_id),
                "properties": f"cpu_cores_count 0\nsimd_count 1216\nlocation_id {bus << 8 | partition << 28}"
                f"\ndomain 0\nunique_id 13321655985203289421\nnum_xcc 8",
            },
        )

    def compute_process(self, pid: int, memory_bytes: Mapping[int, int], queues: Sequence[int] = ()) -> None:
        """One that has opened /dev/kfd: its memory by number of the GPU, and the GPUs of its queues."""
        files = {f"vram_{gpu}": str(held) for gpu, held in memory_bytes.items()}
        files |= {f"queues/{at}/gpuid": str(gpu) for at, gpu in enumerate(queues)}
        self.write(f"sys/class/kfd/kfd/proc/{pid}", {"pasid": "32784", **files})


def mi300x(root: Path, metrics: bytes = MI300X_IDLE, partitions: int = 1) -> Box:
    """A box with one MI300X, whole or in partitions."""
    box = Box(root)
    box.card(
        1,
        "pci0000:00/0000:00:01.1/0000:01:00.0",
        {
            "vendor": "0x1002",
            "device": "0x74a1",
            "revision": "0x00",
            "class": "0x120000",
            "unique_id": "b8e0 a8f2 1a2b 3c4d".replace(" ", ""),
            "gpu_metrics": metrics,
            "gpu_busy_percent": "100",
            "mem_busy_percent": "31",
            "mem_info_vram_total": str(206141652992),
            "mem_info_vram_used": str(177386942464),
            "pp_dpm_mclk": "0: 900Mhz *\n1: 1100Mhz\n2: 1200Mhz\n3: 1300Mhz",
            "current_link_speed": "32.0 GT/s PCIe",
            "current_link_width": "16",
            "max_link_speed": "32.0 GT/s PCIe",
            "max_link_width": "16",
            "power/runtime_status": "active",
            "hwmon/hwmon3/temp2_label": "junction",
            "hwmon/hwmon3/temp2_input": "42000",
            "hwmon/hwmon3/temp2_crit": "100000",
            "hwmon/hwmon3/temp3_label": "mem",
            "hwmon/hwmon3/temp3_input": "40000",
            "hwmon/hwmon3/power1_cap": "750000000",
            "hwmon/hwmon3/power1_cap_default": "750000000",
        },
    )
    box.node(0, 0, 0)
    box.node(1, 0, 0)
    for partition in range(partitions):
        box.node(2 + partition, 19794 + partition, 1, partition)
        if partition:
            xcp = box.root / f"sys/devices/platform/amdgpu_xcp.{partition}/drm/card{1 + partition}"
            xcp.mkdir(parents=True)
            (xcp / "device").symlink_to(xcp.parent.parent)
            (box.root / f"sys/class/drm/card{1 + partition}").symlink_to(xcp)
    return box


def radeon_7900xtx(root: Path, metrics: bytes = RADEON_IDLE) -> Box:
    """A box with one RX 7900 XTX."""
    box = Box(root)
    box.card(
        0,
        "pci0000:00/0000:00:01.1/0000:03:00.0",
        {
            "vendor": "0x1002",
            "device": "0x744c",
            "revision": "0xc8",
            "class": "0x030000",
            "unique_id": "8af705259683161c",
            "gpu_metrics": metrics,
            "gpu_busy_percent": "0",
            "mem_busy_percent": "1",
            "mem_info_vram_total": str(25753026560),
            "mem_info_vram_used": str(2068 * 1024),
            "pp_dpm_sclk": "0: 500Mhz *\n1: 2371Mhz\n2: 2482Mhz",
            "pp_dpm_mclk": "0: 96Mhz *\n1: 456Mhz\n2: 772Mhz\n3: 1249Mhz",
            "current_link_speed": "16.0 GT/s PCIe",
            "current_link_width": "16",
            "max_link_speed": "16.0 GT/s PCIe",
            "max_link_width": "16",
            "power/runtime_status": "active",
            "hwmon/hwmon1/temp1_label": "edge",
            "hwmon/hwmon1/temp1_input": "38000",
            "hwmon/hwmon1/temp1_crit": "100000",
            "hwmon/hwmon1/temp2_label": "junction",
            "hwmon/hwmon1/temp2_input": "41000",
            "hwmon/hwmon1/temp2_crit": "110000",
            "hwmon/hwmon1/power1_average": "10000000",
            "hwmon/hwmon1/power1_cap": "303000000",
            "hwmon/hwmon1/power1_cap_default": "303000000",
            "hwmon/hwmon1/freq1_input": "5000000",
            "hwmon/hwmon1/freq2_input": "96000000",
            "hwmon/hwmon1/pwm1": "0",
            "hwmon/hwmon1/pwm1_max": "255",
        },
    )
    box.node(0, 0, 0)
    box.node(1, 49191, 3)
    return box
