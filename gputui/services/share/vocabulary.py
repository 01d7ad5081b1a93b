"""The words of gputui: a text may be shared as far as they are all that it consists of.

Each function takes a text as it was stored, and returns what may be shared of it; None if nothing may.
"""

from __future__ import annotations

import re
import signal
from collections import defaultdict
from collections.abc import Iterator, Mapping
from importlib import resources

from gputui.facts.tables import instance_rows
from gputui.machine.describing import FEATURES
from gputui.machine.layers import signals
from gputui.model.plan import DEMO_PROFILE
from gputui.model.serving import REQUEST_OUTCOMES, SERVE_PROFILE
from gputui.model.units import RATES
from gputui.services.profiles.loader import shipped_profiles
from gputui.services.serving.profiles import RANDOM_WORDS, shipped_request_profiles
from gputui.sources.nvml_calls import nvml_reason
from gputui.store.strict import WORDS as READABLE
from gputui.worker import FIGURE_SUFFIXES, MODES, PRECISIONS, WORKLOAD_CLASSES
from gputui.worker.failures import IN_LOG
from gputui.worker.layouts import NCHW, NHWC
from gputui.worker.profiling.rows import GC, OTHER_THREAD
from gputui.worker.steps import COMPILE_FIGURE, STEP_TIMES
from gputui.worker.variables import VARIABLES, warnings_of
from gputui.worker.workloads import WORKLOADS

ELLIPSIS = "…"
"""Stands for a word that is none of ours, so that no table has what is left of a name."""


def _listed(name: str) -> list[str]:
    lines = resources.files("gputui.services.share").joinpath(name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


def _gathered() -> dict[str, set[str]]:
    """By what they name, what workloads, profiles, tables and screens call things; N stands for a number."""
    found = defaultdict[str, set[str]](set)
    for line in _listed("words.txt"):
        kind, _, words = line.partition(": ")
        found[kind].update([words] if kind == "title" else words.split(" "))
    for workload in WORKLOADS:
        found["workload"].add(workload.name)
        found["size"].update(workload.sizes)
        for size in workload.sizes.values():
            found["parameter"].update(size.parameters)
            found["value"].update(text for text in size.parameters.values() if isinstance(text, str))
    for figure in (COMPILE_FIGURE, *STEP_TIMES, *(one for workload in WORKLOADS for one in workload.figures)):
        found["key"].add(figure.key)
        found["title"].add(figure.title)
    for requests in shipped_request_profiles():
        found["workload"].update(f"serve:{requests.name} {load}" for load in _LOADS)
    found["profile"].update((DEMO_PROFILE, SERVE_PROFILE, *(profile.name for profile in shipped_profiles())))
    found["value"].add(RANDOM_WORDS)
    found["operator"].add("scheduled collective")
    found["unit"].update(RATES)
    found["precision"].update(PRECISIONS)
    found["precision_used"] = found["precision"]
    found["mode"].update(MODES)
    found["part"].update((*FEATURES, *VARIABLES))
    found["part"].update(part for one in signals() for part in (one.name, *one.name.split("-")))
    found["word"].update(word for row in instance_rows() for word in (row.instance_type, row.region))
    found["word"].update(word for fields in READABLE.values() for _, words in fields for word in words)
    found["word"].update((*WORKLOAD_CLASSES, *FIGURE_SUFFIXES, NHWC, NCHW, GC, OTHER_THREAD))
    return found


_LOADS = ("N user", "N users", "N req/s", "limit")
WORDS: Mapping[str, set[str]] = _gathered()

# Sentences, whose numbers and amounts say nothing of anybody

_AMOUNT = re.compile(r"(?<![\w.])\d[\d.]*(?:e[+-]?\d+)?(?: (?:m?s|[KMGT]?i?B|bytes))?(?!\w)")
_CLAUSE = re.compile(r": |; | \(|\)+")


def _plain(text: str) -> str:
    return _AMOUNT.sub("N", text)


def _clauses(text: str) -> list[str]:
    return [clause for clause in _CLAUSE.split(_plain(text)) if clause]


def _own_messages() -> Iterator[str]:
    """What gputui says of a case, an event or an absent value."""
    yield from _listed("messages.txt")
    yield from (nvml_reason(code) for code in range(30))
    yield from (f"stopped by {one.name}" for one in signal.Signals)
    for outcome in REQUEST_OUTCOMES:
        yield from (f"{outcome}, {why}" for why in ("no connection", "no word for N", "HTTP N"))
        yield f"{outcome}, the load was over"
    for value in ("1", ELLIPSIS, "True", "STRICT", "BF16", "TF32", "ANY"):
        for is_cleared in (True, False):
            yield from warnings_of(dict.fromkeys(VARIABLES, value), is_cleared=is_cleared)


_SAID = frozenset(clause for message in _own_messages() for clause in _clauses(message))


def word(kind: str, text: str) -> str | None:
    """A word of gputui's for things of this kind, such as a `workload` or the `title` of a result."""
    return text if WORDS[kind] & {text, _plain(text)} else None


def message(text: str) -> str | None:
    """A reason in gputui's words, or the type of an error; what programs and libraries said is left out."""
    said = text.removesuffix(IN_LOG)
    if said != text:
        said = re.sub(r"^[\w.-]+(?: line \d+)?: ", "", said)  # the place in a program of the user's
    return said if _SAID.issuperset(_clauses(said) or [said]) else None


# Names that are made of several words

_WORD = re.compile(r"[^ ,+/()\[\]@:;=<>-]+")
_NUMBER = r"\d{1,6}(?:\.\d{1,6}){0,4}(?:\.?(?:a|b|rc|dev|post)\d{0,8})?"
_NUMBERED = r"(?:sm_|compute_|gfx|cu|rocm|el|fc|amzn|deb)\d[\d._]{0,6}[a-fu]?\d{0,2}"
_RELEASE = re.compile(f"{_NUMBER}|{_NUMBERED}")
_MODEL = re.compile(
    rf"[A-Z]{{0,3}}\d{{1,5}}[A-Z]{{0,4}}|\d{{3,5}}[A-Z]{{1,2}}\d|\d\.\d+GHz|\d{{1,2}}g\.\d{{1,3}}gb|{_NUMBER}"
)


def _made_of(text: str, numbers: re.Pattern[str]) -> str | None:
    """The text with an ellipsis for what is neither a word nor such a number; None if that is all of it."""
    words = _WORD.findall(text)
    known = {word for word in words if word in WORDS["part"] or numbers.fullmatch(word)}
    if not known or (known.isdisjoint(WORDS["part"]) and not known.issuperset(words)):
        return None
    return _WORD.sub(lambda found: found[0] if found[0] in known else ELLIPSIS, text)


def phrase(text: str) -> str | None:
    """Words and releases: the name of a distribution, a list of layers, types or variables."""
    return _made_of(text, _RELEASE)


def release(text: str) -> str | None:
    """A release such as `2.11.0+cu128`, up to a word that is of no platform."""
    end = next((found.start() for found in _WORD.finditer(text) if phrase(found[0]) is None), None)
    return text[:end].rstrip("+-. ") if _RELEASE.match(text) else None


def words(text: str) -> str | None:
    """A list of words; those that are not known are left out."""
    return " ".join(one for one in text.split(" ") if phrase(one) == one)


def device(text: str) -> str | None:
    """The model of a GPU or CPU."""
    return _made_of(text, _MODEL)


# What torch.profiler sees

_SHAPES = re.compile(r"[\d x,\[\]()>-]*( causal| full)?")
_OPERATOR = re.compile(
    r"(?:aten|prims|c10d|_c10d_functional|quantized|torchvision|inductor|nccl|gloo|mkldnn|cudnn)"
    r"::?_?[a-z0-9_]{1,60}|(?:cuda|hip)[A-Z][A-Za-z]{2,40}"
)
_LIBRARIES = re.compile(
    r"(?:at|c10|cub|thrust|cutlass|cudnn|cask_cudnn|cublas|cublasLt|cusparse|flash|pytorch_flash|std"
    r"|rocprim|ck|nvshmem|internal)::"
    r"|(?:ampere|volta|turing|maxwell|hopper|blackwell|sm\d{2,3}|nvjet|nccl|ncclDevKernel|ncclKernel|Cijk"
    r"|gemv|gemmSN|gemmk1|splitKreduce|fmha|flash_fwd|flash_bwd|cunn|cask|implicit|explicit|dgrad|wgrad"
    r"|winograd|xmma|s\w{0,2}gemm|[hdib]gemm)(?:_|$)"
)
_TRITON = re.compile(r"triton_(?:poi|red|per|tem|mm|for)(?:_|$)")


def shapes(text: str) -> str | None:
    """Sizes of inputs."""
    return text if _SHAPES.fullmatch(text) else None


def operator(text: str) -> str | None:
    """An operator of torch or of what it calls; the user's own ranges and operators are not."""
    return text if text in WORDS["operator"] or _OPERATOR.fullmatch(text) else kernel(text)


def kernel(text: str) -> str | None:
    """A kernel's name without template and arguments, if it is torch's, or of NVIDIA's or AMD's libraries."""
    plain = text.removeprefix("void ").replace("(anonymous namespace)::", "")
    head = re.split(r"[<(]", plain, maxsplit=1)[0].strip()
    if found := _TRITON.match(head):
        return f"{found[0].rstrip('_')} kernel"
    if re.fullmatch(r"[A-Za-z0-9_:]{1,250}", head) and _LIBRARIES.match(head):
        return head
    return text if phrase(text) == text else None
