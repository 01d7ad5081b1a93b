"""A bakeoff of many ssh servers on loopback, and their live view: seconds, CPU, memory, bytes.

`python tests/benchmarks/hosts.py [HOSTS [GPUS]]`; 50 hosts without a number. With GPUS each has so many, of
the stand-in for the driver's library, and is only watched. They share this machine, so the rates that they
measure mean nothing.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
import venv
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "makers"))

from command_line import WORDS, write_spin_profile
from nvml.standin import moving_gpus, standin_environment
from sshd import Servers

from gputui.services.hosts.host import hosts_from
from gputui.services.hosts.live import watch_hosts

WATCHED_S = 30.0


def first_blocks_s(bakeoffs: Path, begun: float, found: dict[str, float], ends: threading.Event) -> None:
    """When the first block of each host came home, in seconds since `begun`."""
    while not ends.wait(0.1):
        for path in bakeoffs.glob("*/*/journal.jsonl"):
            if path.parent.name not in found and b'"Block"' in path.read_bytes():
                found[path.parent.name] = time.time() - begun


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    gpus = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        venv.create(place / "lean", symlinks=True)
        servers = Servers(place / "servers")
        try:
            names = [f"box-{n:02}" for n in range(count)]
            for name in names:
                servers.start(name, environ=standin_environment(moving_gpus(gpus, 40)) if gpus else None)
            if not gpus:
                measure(place, servers, names)
            watch(servers, names)
        finally:
            servers.end()


def measure(place: Path, servers: Servers, names: list[str]) -> None:
    profile = write_spin_profile(place / "spin.toml")
    lean = str(place / "lean" / "bin" / "python")
    hosts = [word for name in names for word in ("--host", name)]
    words = [*WORDS, "bakeoff", str(profile), *hosts, "--python", lean, "--db", str(place / "a.db"), "--yes"]
    begun, found, ends = time.time(), dict[str, float](), threading.Event()
    bakeoffs = Path(servers.environment["GPUTUI_STATE"]) / "bakeoffs"
    watcher = threading.Thread(target=first_blocks_s, args=(bakeoffs, begun, found, ends))
    watcher.start()
    done = subprocess.run(
        [*words, "--same-box-parallel"],
        env={**os.environ, **servers.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    took_s = time.time() - begun
    ends.set()
    watcher.join()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    first = sorted(found.values())
    print(
        f"{len(names)} hosts, exit {done.returncode}, {took_s:.1f} s in all; blocks of {len(first)} came home"
    )
    print(
        f"first block: first {first[0]:.1f} s, median {first[len(first) // 2]:.1f} s, last {first[-1]:.1f} s"
    )
    cpu_s = usage.ru_utime + usage.ru_stime
    print(f"here, gputui and all its ssh: {cpu_s:.1f} s of CPU, {usage.ru_maxrss >> 10} MiB")
    if done.returncode:
        print(done.stderr[-3000:])


def watch(servers: Servers, names: list[str]) -> None:
    os.environ.update(servers.environment)
    feeds = watch_hosts(hosts_from(names, (), with_local=False), 1.0)
    deadline_s = time.monotonic() + 120
    while not all(feed.seen().sample for feed in feeds) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    before = [feed.seen().received_bytes for feed in feeds]
    cpu_s = time.process_time()
    time.sleep(WATCHED_S)
    cpu_s = time.process_time() - cpu_s
    received = [feed.seen().received_bytes - start for feed, start in zip(feeds, before, strict=True)]
    for feed in feeds:
        feed.close()
    heard = sum(feed.seen().sample is not None for feed in feeds)
    rate = sum(received) / WATCHED_S / len(feeds)
    core_pct = 100 * cpu_s / WATCHED_S
    print(
        f"live: {heard} of {len(feeds)} heard, {rate:.0f} bytes a second and host, {core_pct:.1f} % of a core"
    )


if __name__ == "__main__":
    main()
