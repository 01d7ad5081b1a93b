"""A process that forks workers: what it refuses to fork from."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import json, os, socket, threading
ours, theirs = socket.socketpair()
os.dup2(theirs.fileno(), 0)
theirs.close()

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as where torch is imported by the function itself
import torch
from gputui.worker.zygote import next_worker

torch.cuda.is_initialized = lambda: {is_initialized}
if {has_thread}:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
ours.shutdown(socket.SHUT_WR)
words = next_worker()
os.close(0)
print(json.dumps([words, ours.recv(99).decode(), os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"]]), flush=True)
os._exit(0)
"""


def told(**facts: bool) -> str:
    program = PROGRAM.format(**facts)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_workers_are_forked_only_from_one_thread_without_a_gpu() -> None:
    assert told(is_initialized=False, has_thread=False) == '[[], "{\\"ready\\": true}\\n", "1"]'
    assert told(is_initialized=True, has_thread=False) == '[[], "", "1"]'
    assert told(is_initialized=False, has_thread=True) == '[[], "", "1"]'
