"""Entry of a worker: `probe OUT` or `run LAUNCH CHANNEL`."""

from __future__ import annotations

import faulthandler
import json
import sys
import time
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Run one command; an error that belongs to no case leaves with its traceback in the log."""
    started_ns = time.monotonic_ns()
    faulthandler.enable()
    if len(arguments) == 2 and arguments[0] == "probe":
        from .probe import probe

        Path(arguments[1]).write_text(json.dumps(probe()))
        return 0
    if len(arguments) != 3 or arguments[0] != "run":
        print("usage: probe OUT | run LAUNCH CHANNEL", file=sys.stderr)
        return 2

    from .channel import Channel

    described = json.loads(Path(arguments[1]).read_text())
    channel = Channel(Path(arguments[2]))
    threads = int(described["threads"])
    if "command" in described["cases"][0]:
        from .command import CommandLaunch

        program = CommandLaunch(described, channel, started_ns)
        channel.send("ready", threads_used=threads, t_ns=time.monotonic_ns())
        program.run()
        channel.send("end", t_ns=time.monotonic_ns())
        return 0

    from .measure import Launch
    from .workloads import workload_named

    if any(workload_named(case["workload"]).needs_torch for case in described["cases"]):
        import torch

        torch.set_num_threads(threads)
        threads = torch.get_num_threads()
    launch = Launch(described, channel, started_ns)
    now_ns = time.monotonic_ns()
    channel.send("ready", threads_used=threads, t_ns=now_ns)
    launch.run()
    channel.send("end", t_ns=time.monotonic_ns())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
