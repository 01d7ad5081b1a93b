"""Entry of a worker: `probe OUT`, `describe FILE OUT`, `join ADDRESS:PORT`, `run LAUNCH CHANNEL` or `zygote`,
which forks workers."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn  # Any: the JSON of a launch

from .contract import Workload
from .foreign_json import read_json_file

EXIT_TOO_OLD = 3
"""As that of start.py."""


def main(arguments: list[str]) -> int:
    """Run one command. An error that belongs to no case ends the process, with its traceback in the log."""
    faulthandler.enable()
    if arguments == ["zygote"]:
        from .zygote import next_worker

        arguments = next_worker()
        if not arguments:
            return 0
    started_ns = time.monotonic_ns()
    match arguments:
        case ["probe", out]:
            from .probe import probe

            Path(out).write_text(json.dumps(probe()))
            return 0
        case ["describe", file, out]:
            from .user_workload import described as described_step

            Path(out).write_text(json.dumps(described_step(Path(file))))
            return 0
        case ["join", address]:
            return _join(address)
        case ["run", launch, channel]:
            return _run(Path(launch), Path(channel), started_ns)
    usage = "usage: probe OUT | describe FILE OUT | join ADDRESS:PORT | run LAUNCH CHANNEL | zygote"
    print(usage, file=sys.stderr)
    return 2


def _join(address: str) -> int:
    from .ranks import Refused, join

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the ranks are ended too
    threading.Thread(target=_end_with_who_started_it, daemon=True).start()
    try:
        join(address, partial(print, flush=True))
    except KeyboardInterrupt:
        return 130
    except Refused as error:
        print(error, file=sys.stderr)
    return 1


def _run(path: Path, channel_path: Path, started_ns: int) -> int:
    from .channel import Channel

    described = read_json_file(path)
    channel = Channel(channel_path)
    threads = int(described["threads"])
    if "command" in described["cases"][0]:
        from .command import CommandLaunch

        run = CommandLaunch(described, channel, started_ns).run
    elif "load" in described["cases"][0]:
        from .serving.load_launch import LoadLaunch

        run = LoadLaunch(described, channel, started_ns, path.parent).run
    else:
        workload_named = _workloads(described["cases"])
        if any(workload_named(case["workload"]).needs_torch for case in described["cases"]):
            import torch

            from .probe import NEEDED_TORCH, is_too_old

            if is_too_old(torch.__version__):
                print(f"{sys.executable} has torch {torch.__version__}; {NEEDED_TORCH}", file=sys.stderr)
                return EXIT_TOO_OLD
            torch.set_num_threads(threads)
            threads = torch.get_num_threads()
        from .launch import Launch

        run = Launch(described, channel, started_ns, workload_named=workload_named).run
    channel.send("ready", threads_used=threads, t_ns=time.monotonic_ns())
    run()
    channel.send("end", t_ns=time.monotonic_ns())
    return 0


def _end_with_who_started_it() -> None:
    """Exit when standard input closes, which it does however the parent process dies."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _workloads(cases: list[dict[str, Any]]) -> Callable[[str], Workload]:
    """Return a lookup of workloads by name: ours, or the one that the case's file declares."""
    from .workloads import workload_named

    path = str(cases[0].get("step_file") or "")
    if not path:
        return workload_named
    from .user_workload import load

    own = load(Path(path))
    return lambda name: own if name == own.name else workload_named(name)


def leave(status: int) -> NoReturn:
    """Exit without tearing torch down, which takes 0.1 to 0.3 s and frees nothing that matters."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
