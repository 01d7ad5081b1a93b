"""Which texts of a result file say nothing of whoever measured: only those that these patterns know.

Each function takes a text as it was stored, and returns what may be shared of it; None if nothing may.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from importlib import resources

from gputui.facts.tables import instance_rows
from gputui.machine.layers import signals
from gputui.model.serving import SERVE_PROFILE
from gputui.services.profiles.loader import shipped_profiles
from gputui.services.serving.profiles import RANDOM_WORDS, shipped_request_profiles
from gputui.sources.nvml_calls import nvml_reason
from gputui.worker.steps import COMPILE_FIGURE, STEP_TIMES
from gputui.worker.variables import VARIABLES, warnings_of
from gputui.worker.workloads import WORKLOADS

Rule = Callable[[str], str | None]


def one_of(*words: str) -> Rule:
    """These words, and nothing else."""
    known = frozenset(words)
    return lambda text: text if text in known else None


def matching(pattern: str) -> Rule:
    """What a pattern matches from start to end."""
    found = re.compile(pattern)
    return lambda text: text if found.fullmatch(text) else None


def either(*rules: Rule) -> Rule:
    """What the first of these rules that knows the text makes of it."""
    return lambda text: next((kept for rule in rules if (kept := rule(text)) is not None), None)


def each(rule: Rule, separator: str) -> Rule:
    """A list of words, without those that the rule does not know."""
    return lambda text: separator.join(
        kept for word in text.split(separator) if (kept := rule(word)) is not None
    )


def version(text: str) -> str | None:
    """A release such as `2.11.0+cu128`; builds whose name is not that of a platform lose it."""
    found = re.match(
        r"\d{1,6}(?:\.\d{1,6}){0,4}(?:\.?(?:a|b|rc|dev|post)\d{0,8})?"
        r"(?:\+(?:cpu|xpu|cu\d{2,3}|rocm\d[\d.]*|g(?:it)?[0-9a-f]{4,10}(?:\.dirty)?)\b)?",
        text,
    )
    return found[0] if found else None


_KERNEL_WORDS = (
    "generic|aws|gcp|gke|azure|oracle|ibm|cloud|cos|lowlatency|linuxkit|microsoft|standard|WSL2|tegra|virtual"
    "|amd64|arm64|x86_64|aarch64|fc|Ubuntu|pve|rt|PREEMPT|default|kvm|nvidia|64k|el\\d+(?:_\\d+)?|fc\\d+"
    "|amzn\\d+|deb\\d+u\\d+"
)


def kernel_release(text: str) -> str | None:
    """A kernel's release with the suffixes that distributions give it."""
    found = re.match(rf"\d+(?:\.\d+){{1,3}}(?:[-.+_](?:\d{{1,6}}|{_KERNEL_WORDS})(?![A-Za-z0-9]))*", text)
    return found[0] if found else None


_SYSTEM = matching(
    r"(?:Debian|GNU/Linux|Ubuntu|LTS|Fedora|Linux|CentOS|Stream|Red|Hat|Enterprise|Rocky|AlmaLinux|Alpine"
    r"|Arch"
    r"|openSUSE|SUSE|Leap|Tumbleweed|Server|Amazon|Oracle|Flatcar|Container|Container-Optimized|OS|from"
    r"|Google"
    r"|NixOS|Gentoo|macOS|Windows|Azure|Photon|Talos|Pop!_OS|Mint|Kali|WSL|v?\d{1,4}(?:\.\d{1,4}){0,3}"
    r"|\((?:bullseye|bookworm|trixie|forky|sid|Core|Plow|Ootpa|Blue|Green|Sapphire|Teal|Purple|Lime|Onyx"
    r"|\w+_?\w*\sEdition|Twenty|Forty)\)?|Jammy|Jellyfish\)?)"
)


def system_name(text: str) -> str | None:
    """A distribution's name and release, without words that none is known to use."""
    return " ".join(word for word in text.split(" ") if _SYSTEM(word)) or None


libc = matching(r"(?:glibc|musl|libc|Darwin) ?\d+(?:\.\d+){0,3}")

_GPU_WORD = re.compile(
    r"NVIDIA|AMD|Intel|Intel\(R\)|Arc\(TM\)|CMP|RX|VF|/|Active|\(Pascal\)|v2|H20-3e|Apple|Tesla|Quadro"
    r"|GeForce|RTX|GTX|GT|TITAN|Titan|Radeon|Instinct|Arc|Data|Center"
    r"|GPU|Max|Flex"
    r"|Ti|SUPER|Super|XT|XTX|GRE|Pro|PRO|Ultra|Ada|Generation|Blackwell|Hopper|Ampere|Laptop|Mobile|with"
    r"|Max-Q|Design"
    r"|Server|Workstation|Edition|PCIe|NVL|SFF|OAM|AC|Graphics|Series|Embedded|Jetson|Orin|Thor|Nano|AGX"
    r"|Drive"
    r"|Grace|DGX|Spark|D|V|X|Xp|Iris|Xe|UHD|partition|1/\d{1,2}"
    r"|MIG|\d{1,2}g\.\d{1,3}gb(?:\+me)?|GRID|SXM\d?|HBM\d?e?|GDDR\d"
    r"|\d{1,3}GB"
    r"|[A-Z]{0,3}\d{1,5}[A-Z]{0,4}(?:-(?:SXM\d?|PCIe|PCIE|NVL|\d{1,3}GB|\d{1,3}(?:-\d{1,2})?[QCAB]"
    r"|\d{1,2}-\d{1,3}[QCAB]|PG\d{3}-\d{3}|FHHL|LS|DGXS))*"
    r"|M\d|\d{1,2}-core|Vega|Vega20|gfx\d{3,4}[a-f]?"
)
_CPU_WORD = re.compile(
    r"AMD|Intel|Intel\(R\)|Apple|ARM|Arm|Ampere|Ampere\(R\)|AWS|Neoverse(?:-[NVE]\d)?|Cortex-[AXR]\d+"
    r"|Graviton\d?|Xeon"
    r"|Xeon\(R\)|Core|Core\(TM\)|Atom\(TM\)|Celeron\(R\)|Pentium\(R\)|EPYC|Ryzen|Threadripper|Opteron"
    r"|Altra|Altra\(R\)"
    r"|AmpereOne\(R\)|Platinum|Gold|Silver|Bronze|Max|Ultra|Pro|PRO|CPU|Processor|\d{1,3}-Core|w\d|i\d|[579]"
    r"|[im]\d-\d{3,5}[A-Z]{0,2}\d?|[A-Z]{0,2}\d{3,5}[A-Z+]{0,3}|[EDW]-?\d{4,5}[A-Z]{0,2}|M\d|v\d|@"
    r"|\d\.\d+GHz|QEMU|Virtual"
    r"|version|\d\.\d\+?|KVM|Common|processor|\(Skylake,|\(Cascadelake\)|\(Icelake\)|IBRS\)|with|Radeon"
    r"|Graphics|AI|HX"
    r"|Family|Model|Stepping|GenuineIntel|AuthenticAMD|x86_64|i?386|arm64?|aarch64|Grace|NVIDIA|POWER\d+"
    r"|Kunpeng|Hygon"
)


@functools.lru_cache(maxsize=256)
def device_name(text: str) -> str | None:
    """The model of a GPU or CPU; a word that is part of none becomes an ellipsis, so that no table has it."""
    words = text.split()
    marked = [
        " ".join(word if known.fullmatch(word) else "…" for word in words) for known in (_GPU_WORD, _CPU_WORD)
    ]
    best = min(marked, key=lambda kept: kept.count("…"))
    return best if best.replace("…", "").strip() else None


layer_name = one_of(*(signal.name for signal in signals()), "bare-metal")
"""Platforms, schedulers, containers and hypervisors that gputui knows."""
instance_type = one_of(*(row.instance_type for row in instance_rows()))
region = either(
    matching(
        r"(?:us|eu|ap|ca|sa|me|af|il|mx|cn|europe|asia|northamerica|southamerica|australia|africa)"
        r"(?:-gov)?-(?:central|north|south|east|west|northeast|northwest|southeast"
        r"|southwest){1,2}-?\d{0,2}(?:-?[a-f])?"
    ),
    one_of(*(row.region for row in instance_rows())),
)
profile = one_of(
    *(profile.name for profile in shipped_profiles()),
    *("record", "trace", "demo (made up)", "step", SERVE_PROFILE),
)
"""Profiles that come with gputui, and what stands in place of one."""

_SIZES = [size for workload in WORKLOADS for size in workload.sizes.values()]
_FIGURES = [*(figure for workload in WORKLOADS for figure in workload.figures), COMPILE_FIGURE, *STEP_TIMES]
_LOAD_WORDS = r"(?:\d+ users?|[\d.]+(?:e[+-]?\d+)? req/s|limit)"
_LOAD_PROFILES = "|".join(profile.name for profile in shipped_request_profiles())

workload = either(
    one_of(*(workload.name for workload in WORKLOADS)), matching(rf"serve:(?:{_LOAD_PROFILES}) {_LOAD_WORDS}")
)
"""Workloads that come with gputui, and loads of its profiles of requests."""


def load_words(text: str) -> str:
    """The load at the end of a name, such as `8 users`; empty if there is none."""
    found = re.search(rf" ({_LOAD_WORDS})$", text)
    return found[1] if found else ""


size = one_of(*(name for workload in WORKLOADS for name in workload.sizes), "whole", "steps")
parameter_name = one_of(
    *(name for size in _SIZES for name in size.parameters),
    *("unit", "units", "model", "api", "prompt_tokens", "shared_tokens", "output_tokens", "load", "users"),
    *("rate_per_s", "attained_share", "limit_ttft_s", "limit_tpot_s", "limit_e2e_s", "prompts", "body"),
)
parameter_text = one_of(
    *(value for size in _SIZES for value in size.parameters.values() if isinstance(value, str)),
    *("closed", "open", "search", "chat", "completions", "completion", "run", "step", "img", "tok", "seq"),
    *("frame", "req", "flop", "B", RANDOM_WORDS, "none"),
)
_OF_LOADS = matching(
    r"(?:ttft|tpot|e2e)_p(?:50|95|99)_s|requests_per_s|(?:total|output)_tokens_per_s|cached_share"
    r"|other_length_share|failed_share|good_share|client_lag_p99_s|answer_p50_s|draft_accepted_share"
    r"|first token of the answer|drafted tokens accepted"
    r"|requests without an answer|requests within the limits"
    r"|lag of the client, p99|output tokens at the limit"
    r"|(?:TTFT|TPOT|E2E) (?:median|p95|p99)|requests answered|input and output tokens"
    r"|prompt tokens from a cache"
    r"|answers not of \d{1,7} tokens|peak memory"
)


figure_key = either(one_of(*(figure.key for figure in _FIGURES)), _OF_LOADS)
figure_title = either(one_of(*(figure.title for figure in _FIGURES)), _OF_LOADS)
"""Of results of workloads and loads of gputui's."""
precision = matching(r"(?:amp-)?(?:fp|bf|tf|int)\d{1,2}(?:_e\dm\d)?|amp|own|(?:mx|nv)fp\d{1,2}")
_SETTING = (
    r"\d{1,6}|True|False|expandable_segments|max_split_size_mb|garbage_collection_threshold|backend|native"
    r"|cudaMallocAsync|roundup_power2_divisions|AVX2|AVX512|DEFAULT|default|STRICT|BF16|TF32|ANY|Ring|Tree|LL|LL128"
    r"|Simple|NVLS|NORMAL|FAST|HYBRID"
)
_VALUE = rf"(?:…|:?(?:{_SETTING})(?:[:,;.](?:{_SETTING}))*)"
_NO_USUAL_VALUE = "="
variable = matching(rf"(?:{'|'.join(VARIABLES)})={_VALUE}|\(cleared\)")
"""An environment variable with a value that says nothing of its user."""
shapes = matching(r"[\d x,\[\]()>-]*( causal| full)?")
dtypes = each(
    matching(r"(?:unsigned )?(?:float|double|half|int|long|short|char|bool|byte)(?: int)?\d{0,2}"
             r"|[a-z]{0,2}float\d+"
             r"(?:_e\dm\d(?:fn|fnuz)?)?|u?int\d+|BFloat16|Half|Float8_e\dm\d\w{0,4}|complex\d*"
             r"|c10::\w{4,16}|TensorList|Scalar|ScalarList|"),
    ",",
)  # fmt: skip

_OPERATOR = re.compile(
    r"(?:aten|prims|c10d|quantized|torchvision|inductor|nccl|gloo|mkldnn|cudnn"
    r"|_c10d_functional)::?_?[a-z0-9_]{1,60}"
    r"|(?:record_param_comms|others|scheduled collective|DataParallel\.forward"
    r"|DistributedDataParallel\.forward)"
    r"|Optimizer\.(?:step|zero_grad)#(?:AdamW?|SGD|Adagrad|RMSprop|NAdam|RAdam|Adamax|LBFGS"
    r"|Adadelta)\.(?:step|zero_grad)"
    r"|(?:Addmm|Mm|Bmm|Conv(?:olution)?|Add|Mul|Sub|Div|T|View|Relu|Gelu|Silu|NativeLayerNorm"
    r"|NativeBatchNorm|Softmax"
    r"|LogSoftmax|NllLoss|Embedding|ScaledDotProduct\w{0,24}Attention|Mean|Sum|Slice|Cat|Expand"
    r"|Transpose)Backward\d"
    r"|cuda[A-Z][A-Za-z]{2,40}|hip[A-Z][A-Za-z]{2,40}|cuLaunchKernel(?:Ex)?"
)
_LIBRARIES = re.compile(
    r"(?:at|c10|cub|thrust|cutlass|cudnn|cask_cudnn|cublas|cublasLt|cusparse|flash|pytorch_flash|std"
    r"|rocprim|ck|nvshmem|internal)::"
    r"|(?:ampere|volta|turing|maxwell|hopper|blackwell|sm\d{2,3}|nvjet|nccl|ncclDevKernel|ncclKernel|Cijk"
    r"|gemv|gemmSN"
    r"|gemmk1|splitKreduce|fmha|flash_fwd|flash_bwd|cunn|cask|implicit|explicit|dgrad|wgrad|winograd|xmma"
    r"|s\w{0,2}gemm|hgemm"
    r"|dgemm|igemm|bgemm)(?:_|$)"
)
_TRITON = re.compile(r"triton_(?:poi|red|per|tem|mm|for)(?:_|$)")
_COPY = matching(
    r"(?:Memcpy|Memset|CopyHostToDevice|CopyDeviceToHost|memset)(?: ?[HDP]to[HDP])?"
    r"(?: \((?:Pageable|Pinned|Device|Unknown|Managed)(?: -> (?:Pageable|Pinned|Device|Managed))?\))?"
)


def operator(text: str) -> str | None:
    """An operator of torch or of what it calls; the user's own ranges and operators are not."""
    return text if _OPERATOR.fullmatch(text) else kernel_name(text)


def kernel_name(text: str) -> str | None:
    """A kernel's name without template and arguments, if it is torch's, or of NVIDIA's or AMD's libraries."""
    plain = text.removeprefix("void ").replace("(anonymous namespace)::", "")
    head = re.split(r"[<(]", plain, maxsplit=1)[0].strip()
    if found := _TRITON.match(head):
        return f"{found[0].rstrip('_')} kernel"
    if re.fullmatch(r"[A-Za-z0-9_:]{1,250}", head) and _LIBRARIES.match(head):
        return head
    return _COPY(text)


def _messages() -> str:
    """A pattern of what gputui itself says, in which nothing is the user's."""
    listed = resources.files("gputui.services.share").joinpath("messages.txt").read_text(encoding="utf-8")
    number = r"\d[\d.]*(?:e[+-]?\d+)?"
    patterns = [
        re.sub(r"\b[NS]\b", lambda found: number if found[0] == "N" else rf"{number} m?s", line)
        for line in listed.splitlines()
    ]
    drivers = "|".join(re.escape(nvml_reason(code)) for code in range(30))
    falsified = dict.fromkeys(VARIABLES, _NO_USUAL_VALUE)
    said = [one for is_cleared in (True, False) for one in warnings_of(falsified, is_cleared=is_cleared)]
    patterns += [re.escape(one).replace("…", _VALUE) for one in said]
    return "|".join((rf"(?:no GPU: )?(?:{drivers})", *patterns))


_REASON = re.compile(_messages())
_ERROR = re.compile(
    r"(?:[\w.-]{1,80}(?: line \d+)?: )?(RuntimeError|ValueError|TypeError|KeyError|IndexError|OSError"
    r"|ImportError"
    r"|ModuleNotFoundError|FileNotFoundError|PermissionError|AttributeError|NotImplementedError"
    r"|MemoryError|AssertionError"
    r"|OutOfMemoryError|AcceleratorError|ConnectionError|TimeoutError|ZeroDivisionError"
    r"|UnicodeDecodeError|DistBackendError)"
    r"(?: \((tried to allocate [\d.]+ [KMG]iB(?:, [\d.]+ [KMG]iB (?:free|in all)){0,2}"
    r"|torch\.compile gave up"
    r"|the shared memory is too small(?:, [\d.e+]+ MiB)?: start the container with --shm-size=8g"
    r" \(or --ipc=host\))\))?"
    r"; its message is in the worker's log"
)


def message(text: str) -> str | None:
    """A reason in gputui's words, or the type of an error; what programs and libraries said is left out."""
    if _REASON.fullmatch(text):
        return text
    if found := _ERROR.fullmatch(text):
        return f"{found[1]} ({found[2]})" if found[2] else found[1]
    return None
