"""What a machine is and what runs on it. Nothing here names a person, a host or a path."""

from __future__ import annotations

from dataclasses import dataclass

from gputui.model.absent import Missing


@dataclass(frozen=True, slots=True)
class Cpu:
    """The processor, and the part of it this process may use."""

    model: str | Missing
    sockets: int | Missing
    host_cores: int | Missing
    """Physical cores of the host, as far as visible."""
    host_threads: int
    usable_threads: float
    """Logical CPUs this process may use: the least of affinity, cgroup quota and hints; may be 3.5."""
    usable_cores: int
    """Physical cores among them, at least 1: the threads of an `all` case."""
    limited_by: str
    """What set `usable_threads`: `host`, `affinity`, `cgroup`, `cpuset` or a hint's name."""
    last_level_cache_bytes: int | Missing
    features: tuple[str, ...]
    """Instruction sets that matter for this work, such as `avx512f`, `amx_bf16`."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Host memory, and the part of it this process may use."""

    host_bytes: int
    usable_bytes: int
    limited_by: str
    shm_bytes: int | Missing
    """Size of /dev/shm, which data loaders depend on."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as the driver describes it, in the driver's order."""

    index: int
    gpu_id: str
    """Keyed hash of the UUID, 12 hex digits; empty if the driver does not tell it."""
    name: str
    vendor: str
    memory_bytes: int | Missing
    power_limit_w: float | Missing
    """The limit in force."""
    power_default_limit_w: float | Missing
    compute_capability: str | Missing
    pcie_generation_max: int | Missing
    pcie_width_max: int | Missing
    pcie_width: int | Missing
    """The trained width now; a link that should be x16 and is x4 is a defect."""
    ecc_enabled: bool | Missing
    mig_enabled: bool | Missing
    temperature_limit_c: float | Missing = Missing("not recorded")  # noqa: RUF009 - frozen
    """Where the driver begins to slow it; runs of older versions did not ask."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of the platform, and the signals for it."""

    layer: str
    """`platform`, `scheduler`, `container`, `vm` or `os`."""
    name: str
    """Such as `runpod`, `slurm`, `docker`, `aws`, `wsl2`."""
    signals: tuple[str, ...]
    """Names of what was found, never values."""


SURE_KINDS = ("stated", "product-uuid", "machine-id", "gpus")
"""Kinds of identities that last, whoever measures."""


@dataclass(frozen=True, slots=True)
class Identity:
    """One thing that a box is known by."""

    kind: str
    """`stated` (by the user), `product-uuid` (of the firmware), `machine-id`, `gpus` (their UUIDs), `account`
    (host name and machine-id under a key of this user), `boot` (until the next one), or `run`: nothing is
    known."""
    id: str
    """Keyed hash, 12 hex digits."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine, which is what people rent."""

    machine_id: str
    """The surest of its identities; empty if the run ended before that was known. Runs that were read
    together have the same one if they are of one box."""
    cpu: Cpu
    memory: Memory
    gpus: tuple[Gpu, ...]
    gpus_absent: str
    """Why there are no GPUs; empty if there are some."""
    layers: tuple[Layer, ...]
    instance_type: str | Missing
    region: str | Missing
    os_name: str | Missing
    kernel: str | Missing
    libc: str | Missing
    driver_version: str | Missing
    cuda_driver_version: str | Missing
    """Highest CUDA version that the driver supports, such as `13.0`."""
    identities: tuple[Identity, ...] = ()
    """Everything that the box is known by, the surest first; empty in runs of earlier versions."""

    @staticmethod
    def unknown(absent: Missing, *, machine_id: str = "", gpu: str = "", no_gpus: str = "") -> Machine:
        """A machine of which nothing but this is known, for this reason; `gpu` names its only one."""
        one = Gpu(0, "", gpu, "", *[absent] * 9)
        cpu, memory = Cpu(absent, absent, absent, 0, 0.0, 0, "", absent, ()), Memory(0, 0, "", absent)
        gpus = (one,) if gpu else ()
        return Machine(
            machine_id, cpu, memory, gpus, no_gpus, (), absent, absent, absent, absent, absent, absent, absent
        )

    def gpu(self, index: int | None) -> Gpu | None:
        """The GPU of this index; None if there is none."""
        return next((gpu for gpu in self.gpus if gpu.index == index), None)

    @property
    def is_sure(self) -> bool:
        """Whether any account and container on it would know it again; earlier versions did not tell."""
        return not self.identities or any(one.kind in SURE_KINDS for one in self.identities)


@dataclass(frozen=True, slots=True)
class TorchDevice:
    """One device as torch in the measured interpreter sees it."""

    torch_device: str
    """`cpu`, `cuda`, `mps` or `xpu`."""
    index: int
    name: str
    uuid: str
    """As the driver spells it, `GPU-…` or `MIG-…`; never stored. Empty if unknown."""
    pci_address: str
    memory_bytes: int | None
    free_bytes: int | None
    compute_capability: str
    """Such as `9.0`; empty if the device has none."""
    bf16: bool
    """Native bf16, not emulated."""
    runs_here: bool
    """Whether this torch has kernels for this device."""
    why_not: str


@dataclass(frozen=True, slots=True)
class Runtime:
    """The software a run was measured with: a dimension of comparisons, stored with the run."""

    python_version: str
    python_implementation: str
    torch_version: str | Missing
    torch_cuda: str | Missing
    """CUDA version that torch was built with."""
    torch_hip: str | Missing
    cudnn_version: str | Missing
    nccl_version: str | Missing
    triton_version: str | Missing
    arch_list: tuple[str, ...]
    """GPU architectures this torch has kernels for."""
    cpu_capability: str | Missing
    """The CPU capability that torch reports, such as `AVX512`."""
    blas: str | Missing
    variables: str | Missing = Missing("not recorded")  # noqa: RUF009 - frozen
    """Environment variables that change arithmetic or launching: `NAME=VALUE` joined by spaces, `(cleared)`
    behind those that gputui's own workloads did not get. Empty if none was set; earlier versions did not ask.
    """

    @staticmethod
    def without_torch(absent: Missing, python_version: str = "", python_implementation: str = "") -> Runtime:
        """A runtime without torch, of which nothing else is known or knowable for this reason."""
        return Runtime(
            python_version=python_version,
            python_implementation=python_implementation,
            torch_version=absent,
            torch_cuda=absent,
            torch_hip=absent,
            cudnn_version=absent,
            nccl_version=absent,
            triton_version=absent,
            arch_list=(),
            cpu_capability=absent,
            blas=absent,
        )


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that may run workloads: the result of a worker's probe."""

    executable: str
    """Path; never stored."""
    runtime: Runtime
    devices: tuple[TorchDevice, ...]
    """The CPU first; empty without torch."""
    hidden_by: str = ""
    """The variable with which the user hides every GPU from it, `CUDA_VISIBLE_DEVICES`; empty for none."""
    amd_gpus: int = 0
    """AMD GPUs of the box, of which NVIDIA's driver knows nothing."""
    first_gpu: int | None = None
    """The number that CUDA_VISIBLE_DEVICES begins with; None if it begins with none."""
    found_as: str = ""
    """`--python`, `this Python`, `$VIRTUAL_ENV`, ..."""
    passed_over: tuple[str, ...] = ()
    """Candidates before it with torch, each with what it lacks."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """Limits of this process's control groups. Paths are below the root they were read from."""

    cpu_limit_cores: float | None = None
    """CPUs' worth of time per second; None without a quota."""
    cpu_usage_file: str = ""
    """Of the group with that quota: `cpu.stat` (version 2) or `cpuacct.usage` (1); empty if missing."""
    cpus: frozenset[int] = frozenset()
    """Logical CPUs of the cpuset; empty if none is set."""
    memory_limit_bytes: int | None = None
    memory_directory: str = ""
    """Of the group with that limit."""
    version: int = 2
    """Of the hierarchy of that directory."""


FREE = Confinement()
"""No limit but the host's."""
