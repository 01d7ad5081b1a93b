"""Prints what `gputui snapshot` costs with 8 GPUs and 40 processes on the stand-in NVML library, and what
`gputui monitor --openmetrics` does that is asked every 15 s."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nvml.standin import moving_gpus, standin_environment

TIMES = 15
GPUS, PROCESSES = 8, 40
SCRAPES, EVERY_S = 6, 15.0


def main() -> None:
    """Median CPU and wall time of a bare interpreter, of `--help` and of `snapshot`."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()][:PROCESSES]
    env = {**os.environ, **standin_environment(moving_gpus(GPUS, PROCESSES, pids))}
    for title, words in (
        ("bare interpreter", ("-c", "pass")),
        ("gputui --help", ("-m", "gputui", "--help")),
        ("gputui snapshot", ("-m", "gputui", "snapshot")),
        ("gputui snapshot --processes", ("-m", "gputui", "snapshot", "--processes")),
    ):
        costs = [cost(words, env) for _ in range(TIMES)]
        cpu_s, wall_s = (median(part) for part in zip(*costs, strict=True))
        print(f"{title:30} CPU {cpu_s * 1e3:6.1f} ms   wall {wall_s * 1e3:6.0f} ms")
    share, text = exporting(env)
    print(f"gputui monitor --openmetrics   {share:.3%} of a core, {text.count(chr(10))} lines a scrape")


def exporting(env: dict[str, str]) -> tuple[float, str]:
    """Share of a core that an exporter uses once it is up, and what it answers."""
    words = [sys.executable, "-m", "gputui", "monitor", "--openmetrics", ":0"]
    with subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address, text = process.stderr.readline().strip(), ""
        for scrape in range(1 + SCRAPES):
            if scrape == 1:
                before_s, begun_s = used_s(process.pid), time.monotonic()
            if scrape:
                time.sleep(EVERY_S)
            with urlopen(address, timeout=30) as answer:
                text = answer.read().decode()
        share = (used_s(process.pid) - before_s) / (time.monotonic() - begun_s)
        process.terminate()
    return share, text


def used_s(pid: int) -> float:
    """CPU seconds of a process and its threads."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def cost(words: tuple[str, ...], env: dict[str, str]) -> tuple[float, float]:
    """CPU and wall seconds of one process."""
    before, begun_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([sys.executable, *words], env=env, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu_s, time.monotonic() - begun_s


if __name__ == "__main__":
    main()
