"""Traces of a directory, each read in its own process: exact or not, what is unmatched, time, memory.

The busy time is checked against the union of the raw intervals, communication and what of it is exposed
against a sweep, the length of a step against the ends of the work that the host launched in each (`off`), and
`cut` is work launched by a counted step that its window lacks. Below each stands what is left out. With
`--big MB` the largest trace is repeated, shifted in time, until it has that size, and read too. `early` is
the part of `unmatched` that was launched before the first call in the file, by its correlation id: the file
holds nothing to link it to.

    python tests/benchmarks/traces.py DIRECTORY [--big 1000]
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gputui.services.traces.chrome_trace import KINDS, Trace, read_trace
from gputui.services.traces.imported import read_run, stem
from gputui.services.traces.window import Window, device_name, device_of, partition_of, window_of
from gputui.worker.profiling.step_breakdown import class_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "makers"))
from sweeps import busy_ns, communication_ns, launched_ends_ns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--big", type=int, default=0, metavar="MB")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(_one(options.directory)))
        return
    print(
        f"{'trace':26}{'device':20}{'steps':>6}{'step ms':>9}{'off':>7}{'cut ns':>7} {'exact':6}{'busy':>6}"
        f"{'comm ms':>9}{'exposed':>9} {'sweep':6}{'unmatched':>10}{'early':>7}"
        f"{'stand-in':>9}{'other':>7}{'MB':>7}{'CPU s':>7}{'ms/MB':>7}{'peak MiB':>9}"
    )
    for path in sorted(p for p in options.directory.iterdir() if p.name.endswith((".json", ".json.gz"))):
        _print(path)
    if options.big:
        largest = max(options.directory.glob("*.json.gz"), key=lambda p: p.stat().st_size)
        with tempfile.TemporaryDirectory() as place:
            _print(_repeated(largest, Path(place) / "repeated.json", options.big * 1_000_000))


def _print(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, __file__, "--one", str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"{path.name[:25]:26}{' '.join(done.stderr.strip().splitlines()[-2:])}")
        return
    r = json.loads(done.stdout)
    off = "" if r["off"] is None else f"{r['off']:+.1%}"
    print(
        f"{r['name'][:25]:26}{r['device'][:19]:20}{r['steps']:6}{r['step_ns'] / 1e6:9.2f}"
        f"{off:>7}{r['cut_ns']:7} {r['exact']!s:6}{r['busy']:6.1%}"
        f"{r['communication'][0] / 1e6:9.3f}{r['communication'][1] / 1e6:9.3f} {r['is_swept']!s:6}"
        f"{r['unmatched']:10.1%}{r['early']:7.1%}{r['stand_in']:9.1%}{r['other']:7.1%}"
        f"{r['bytes'] / 1e6:7.1f}{r['cpu_s']:7.2f}"
        f"{r['cpu_s'] * 1e9 / r['bytes']:7.0f}{r['peak_mib']:9.0f}"
    )
    for note in r["left_out"]:
        print(f"    {note}")


def _one(path: Path) -> dict[str, object]:
    begun = time.process_time()
    run = read_run(path)
    cpu_s = time.process_time() - begun
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    trace, window = read_trace(path), run.window
    device = device_of(trace)
    found = partition_of(trace, window, device)
    sums = sum(s.time_ns for s in found.slices), sum(r.time_ns for r in found.rows)
    union_ns = busy_ns(trace, window.start_ns, window.end_ns, device) if device is not None else sums[1]
    exposed = sum(s.time_ns for s in found.slices if s.time_class == "communication")
    events = [trace.event(i) for i in range(len(trace)) if trace.device[i] == device]
    kernels = [(e.start_ns, e.end_ns, class_of(e) == "communication") for e in events if e.kind == "kernel"]
    swept = communication_ns(kernels, window.start_ns, window.end_ns)
    alone = sum(c.exposed_ns for c in run.collectives)
    busy = max(sums[1], 1)
    off, cut_ns = _launched(trace, window, device)
    return {
        "name": stem(path),
        "device": device_name(trace, device) or "CPU",
        "steps": len(window.steps_ns),
        "step_ns": found.window_ns / len(window.steps_ns),
        "off": off,
        "cut_ns": cut_ns,
        "exact": sums == (found.window_ns, union_ns),
        "busy": sums[1] / found.window_ns,
        "communication": (found.communication_ns, exposed),
        "is_swept": device is None or ((found.communication_ns, exposed) == swept and alone == exposed),
        "unmatched": found.unmatched_ns / busy,
        "early": _early_ns(trace, window, device) / busy,
        "stand_in": found.stand_in_ns / busy,
        "other": sum(row.time_ns for row in found.rows if row.category == "other") / busy,
        "bytes": trace.read_bytes,
        "cpu_s": cpu_s,
        "peak_mib": peak_mib,
        "left_out": [note for note in run.notes if "left out" in note or "known" in note],
    }


def _launched(trace: Trace, window: Window, device: int | None) -> tuple[float | None, int]:
    """How far the mean step is from the ends of what the host launched in each, and how much of what it
    launched in the counted steps lies outside of the window."""
    if device is None or not window.has_steps:
        return None, 0
    host = window_of(trace).steps_ns
    ends = launched_ends_ns(trace, host, device)
    counted = window.host_steps_ns or host
    launched = [
        trace.correlation[i]
        for i in range(len(trace))
        if KINDS[trace.kind[i]] == "runtime" and counted[0][0] <= trace.start_ns[i] < counted[-1][1]
    ]
    calls = set(launched) - {0}
    cut_ns = sum(
        max(0, trace.end_ns[i] - window.end_ns) + max(0, window.start_ns - trace.start_ns[i])
        for i in range(len(trace))
        if trace.device[i] == device and trace.correlation[i] in calls
    )
    if len(ends) < 2 or not all(ends):
        return None, cut_ns
    mean_ns = (ends[-1] - ends[0]) / (len(ends) - 1)
    return (window.end_ns - window.start_ns) / len(window.steps_ns) / mean_ns - 1, cut_ns


def _early_ns(trace: Trace, window: Window, device: int | None) -> int:
    """Nanoseconds in which only work launched before the first call of the trace ran: ids of calls rise."""
    calls = [trace.correlation[i] for i in range(len(trace)) if KINDS[trace.kind[i]] == "runtime"]
    first = min((number for number in calls if number), default=0)
    whole = busy_ns(trace, window.start_ns, window.end_ns, device)
    for i in range(len(trace)):
        if trace.device[i] == device and 0 < trace.correlation[i] < first:
            trace.end_ns[i] = trace.start_ns[i]
    return whole - busy_ns(trace, window.start_ns, window.end_ns, device)


def _repeated(path: Path, target: Path, size: int) -> Path:
    """A trace repeated one after the other: times, correlations and external ids shifted."""
    with gzip.open(path) as file:
        whole = json.load(file)
    events = whole.pop("traceEvents")
    timed = [e for e in events if e.get("ph") == "X"]
    length_us = (
        max(float(e["ts"]) + float(e["dur"]) for e in timed) - min(float(e["ts"]) for e in timed) + 1000
    )
    written, copy = 0, 0
    with target.open("w", encoding="utf-8") as out:
        written += out.write(json.dumps(whole)[:-1] + ', "traceEvents": [')
        while written < size:
            for event in timed:
                shifted = {**event, "ts": float(event["ts"]) + copy * length_us}
                arguments = dict(event.get("args") or {})
                for key in ("correlation", "External id", "external id"):
                    if isinstance(arguments.get(key), int) and arguments[key]:
                        arguments[key] += copy * 10_000_000
                written += out.write(
                    ("," if copy or event is not timed[0] else "")
                    + f"\n{json.dumps({**shifted, 'args': arguments})}"
                )
            copy += 1
        out.write("]}\n")
    return target


if __name__ == "__main__":
    main()
