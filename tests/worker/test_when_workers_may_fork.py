"""A process that forks workers: what it refuses to fork from."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, os, socket, sys, threading
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as where torch is imported by the function itself
import torch
from gputui.worker import zygote

zygote._IMPORTS = ("torch",)  # the rest takes longer and starts nothing

def asked(is_initialized, has_thread):
    ours, theirs = socket.socketpair()
    os.dup2(theirs.fileno(), 0)
    theirs.close()
    torch.cuda.is_initialized = lambda: is_initialized
    if has_thread:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    ours.shutdown(socket.SHUT_WR)
    words = zygote.next_worker()
    os.close(0)
    check = os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"]
    print(json.dumps([words, ours.recv(99).decode(), check]), flush=True)

for facts in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        asked(**facts)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def told(*facts: dict[str, bool]) -> list[list[object]]:
    """What each of these is told and sent, in a process of its own that has imported torch."""
    words = [sys.executable, "-c", PROGRAM, json.dumps(facts)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_workers_are_forked_only_from_one_thread_without_a_gpu() -> None:
    free, on_a_gpu, threaded = told(
        {"is_initialized": False, "has_thread": False},
        {"is_initialized": True, "has_thread": False},
        {"is_initialized": False, "has_thread": True},
    )
    assert free == [[], '{"ready": true}\n', "1"]
    assert on_a_gpu == threaded == [[], "", "1"]
