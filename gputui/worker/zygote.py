"""A process that imports torch once and forks each worker, because the import is most of a worker's start.

A fork keeps only the thread that called it, and no GPU that was opened. So no thread runs here, no parallel
region begins, no device is opened, and nothing of the user's is imported.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import math
import os
import random
import re
import signal
import socket
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from .accelerator import is_any_open
from .ranks import Lines, RankLost

_IMPORTS = ("torch", "torch._dynamo", "torch.optim", ".launch")
"""The first optimizer of a process imports dynamo, which takes as long as torch itself."""
_PR_SET_PDEATHSIG = 1
_OPENBLAS_THREADS = "OPENBLAS_NUM_THREADS"
_SETTERS = [f"{name}openblas_set_num_threads{bits}" for name in ("", "scipy_") for bits in ("", "64_")]


def next_worker() -> list[str]:
    """Fork a worker for each request on standard input, a socket; returns its words in the worker.

    Returns none here once the socket has closed, or if a library has started threads or opened a GPU, which a
    fork would lose.
    """
    _end_with_parent()
    environment = dict(os.environ)
    os.environ[_OPENBLAS_THREADS] = "1"  # it starts its threads when numpy is imported
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # so that asking for a GPU does not open it
    for name in _IMPORTS:
        importlib.import_module(name.replace("..", "."), __package__)
    gc.freeze()  # a collection in a worker would otherwise copy every page of what was imported
    lines, ours = Lines(socket.socket(fileno=os.dup(0))), os.getpid()
    with suppress(EOFError, RankLost, BrokenPipeError):
        while len(os.listdir("/proc/self/task")) == 1 and not is_any_open():  # noqa: PTH208
            lines.send({"ready": True})
            request = lines.take(math.inf)
            pid = os.fork()
            if not pid:
                _become_worker(lines, request["log"], environment, ours)
                return list(request["words"])
            lines.send({"status": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])})
    return []


def _become_worker(lines: Lines, log: str, environment: dict[str, str], parent: int) -> None:
    """Make this fork what a separate process would be: group, descriptors, environment, random numbers."""
    os.setsid()
    _end_with_parent()
    if os.getppid() != parent:
        sys.exit("the process that forks workers is gone")
    lines.send({"pid": os.getpid()})
    lines.socket.close()
    for target, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    ):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, target)
        os.close(opened)
    os.dup2(1, 2)
    with suppress(OSError):  # a worker that fills the memory ends before others do, where that can be asked
        Path("/proc/self/oom_score_adj").write_text("1000")
    os.environ.clear()  # torch has added to it, too
    os.environ.update(environment)
    for path in set(re.findall(r"/.*openblas.*", Path("/proc/self/maps").read_text(errors="replace"))):
        library = ctypes.CDLL(path)  # which has read its variable already
        for setter in filter(partial(hasattr, library), _SETTERS):
            getattr(library, setter)(int(environment.get(_OPENBLAS_THREADS, "1")))
    random.seed()
    sys.modules["torch"].default_generator.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def _end_with_parent() -> None:
    """Let the kernel kill this process when its parent ends, however that ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
