"""Runs a command while a device multiplies matrices, and ends with the command's exit code.

python tests/gpu/under_load.py --device cuda -- gputui snapshot
"""

from __future__ import annotations

import argparse
import subprocess
import sys

_LOAD = """
import sys, threading, torch
device = sys.argv[1]
torch.set_num_threads(1)
n, dtype = (8192, torch.bfloat16) if device == "cuda" else (512, torch.float32)
a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
product = a @ b
wait = torch.cuda.synchronize if device == "cuda" else lambda: None
wait()
print("ready", flush=True)
ends = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ends.set()), daemon=True).start()
while not ends.is_set():
    for _ in range(20):
        torch.mm(a, b, out=product)
    wait()
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, usage="%(prog)s [--device D] -- COMMAND")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    divider = sys.argv.index("--")  # argparse would also take the one of the command
    options = parser.parse_args(sys.argv[1:divider])
    command = sys.argv[divider + 1 :]
    with subprocess.Popen(
        [sys.executable, "-c", _LOAD, options.device], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as load:
        assert load.stdin is not None
        assert load.stdout is not None
        if not load.stdout.readline():
            print("the load did not begin: what follows is of an idle device", flush=True)
        try:
            return subprocess.run(command, check=False).returncode
        finally:
            load.stdin.close()


if __name__ == "__main__":
    sys.exit(main())
