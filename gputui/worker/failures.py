"""What an error means for a case, in our own words.

People share result files, and the message of foreign code (a user's step, a library, torch) may hold
anything: paths, tokens, names. So it goes to the worker's log. The file gets the type of the error, the kind
of failure if it is known, and figures of memory.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import traceback
from pathlib import Path

from .contract import Unsupported

_PACKAGE = __name__.rpartition(".")[0]
_HERE = Path(__file__).resolve().parent
_TYPE_LETTERS = 60
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "ALLOC_FAILED", "bad_alloc")
_COMPILERS = ("torch._dynamo", "torch._inductor")
MORE_SHM = "start the container with --shm-size=8g (or --ipc=host)"
"""What helps against a /dev/shm that is too small, which Docker makes 64 MiB."""
_NO_SHM = ("out of shared memory", "unable to allocate shared memory", "shared memory segment /dev/shm")
"""Of a data loader whose worker died of a bus error, of torch's own files there, and of NCCL's."""
_KNOWN = (
    ("no kernel image", "torch was built without code for this GPU"),
    ("illegal memory access", "an illegal memory access on the GPU"),
    ("device-side assert", "an assertion failed on the GPU"),
    ("unspecified launch failure", "a kernel failed on the GPU"),
    ("no NVIDIA driver", "torch found no NVIDIA driver"),
    ("Torch not compiled with CUDA", "this torch was built without CUDA"),
    ("Could not run 'aten::", "torch has no such operator for this device"),
    ("not implemented for '", "torch has no such operator for this type"),
    ("CUBLAS_STATUS_", "cuBLAS failed"),
    ("cuDNN error", "cuDNN failed"),
    ("CUDNN_STATUS_", "cuDNN failed"),
    ("NCCL error", "NCCL failed"),
)
"""Text that torch and its libraries use, and ours for it. The original text is never copied."""
_AMOUNT = r"(\d+(?:\.\d+)?) ?(bytes|[KMGT]i?B)"
_AMOUNTS = (
    ("tried to allocate {}", re.compile(rf"tried to allocate {_AMOUNT}", re.IGNORECASE)),
    ("{} free", re.compile(rf"of which {_AMOUNT} is free")),
    ("{} in all", re.compile(rf"total capacity of {_AMOUNT}")),
)
"""What a message of torch's allocators says of memory."""
IN_LOG = "; its message is in the worker's log"
"""Ends the reason of an error whose message is foreign."""


class Failed(Exception):
    """The result is wrong; the message is ours."""


class OutOfMemory(MemoryError):
    """There is not enough memory; the message is ours."""


class RemoteError(RuntimeError):
    """Raised in another process of this worker or on another host; its text may come from foreign code."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def is_ours(error: BaseException) -> bool:
    """Whether it is an exception of this package, so that the message is ours."""
    module = type(error).__module__
    if isinstance(error, RemoteError) or not (module == _PACKAGE or module.startswith(f"{_PACKAGE}.")):
        return False
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and Path(frames[-1].filename).resolve().is_relative_to(_HERE)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether it is an out-of-memory error, by type or by the text of an allocator or library."""
    is_memory = isinstance(error, MemoryError) or _type_of(error) in ("OutOfMemoryError", "MemoryError")
    return is_memory or any(words in str(error) for words in _OUT_OF_MEMORY)


def outcome_of(error: BaseException) -> str:
    """The outcome of a case that raised this error: `unsupported`, `oom` or `failed`."""
    if isinstance(error, Unsupported) or _type_of(error) == "Unsupported":
        return "unsupported"
    if is_out_of_memory(error):
        return "oom"
    gave_up = type(error).__module__.startswith(_COMPILERS)  # eager mode may still work
    is_lacking = isinstance(error, NotImplementedError) or "no kernel image" in str(error)
    return "unsupported" if gave_up or is_lacking else "failed"


def reason_of(error: BaseException, step_file: Path | None = None) -> str:
    """Why a case has no result, for the result file. Writes the whole error to the log."""
    log(error)
    if is_ours(error):
        return str(error)
    place, what = place_in(error, step_file) if step_file else "", _kind_of_failure(error)
    return f"{place}{_type_of(error)}{f' ({what})' if what else ''}{IN_LOG}"


def text_for_file(text: str, what: str, step_file: Path | None) -> str:
    """The text for the result file: ours unchanged; of a user's step only `what`, with the text itself in the
    log."""
    if not step_file or not text:
        return text
    with contextlib.suppress(OSError):
        print(f"{step_file.name}: {what}: {text}", file=sys.stderr, flush=True)
    return f"{what}: see the worker's log"


def place_in(error: BaseException, path: Path) -> str:
    """The line of the user's file that led to an error, as `my_step.py line 7: `."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == path]
    line = f" line {frames[-1].lineno}" if frames else ""
    return f"{path.name}{line}: "


def log(error: BaseException) -> None:
    with contextlib.suppress(OSError):  # a full disk must not fail the case
        traceback.print_exception(error, file=sys.stderr)
        sys.stderr.flush()


def _type_of(error: BaseException) -> str:
    name = error.kind if isinstance(error, RemoteError) else type(error).__name__
    return name if name.isidentifier() and len(name) <= _TYPE_LETTERS else "an error"


def _kind_of_failure(error: BaseException) -> str:
    text = str(error)
    if is_out_of_memory(error):
        amounts = ((ours, theirs.search(text)) for ours, theirs in _AMOUNTS)
        return ", ".join(ours.format(f"{found[1]} {found[2]}") for ours, found in amounts if found)
    if type(error).__module__.startswith(_COMPILERS):
        return "torch.compile gave up"
    if any(words in text for words in _NO_SHM):
        size = ""
        with contextlib.suppress(OSError):
            found = os.statvfs("/dev/shm")
            size = f", {found.f_blocks * found.f_frsize / 2**20:.4g} MiB"
        return f"the shared memory is too small{size}: {MORE_SHM}"
    return next((ours for theirs, ours in _KNOWN if theirs in text), "")
