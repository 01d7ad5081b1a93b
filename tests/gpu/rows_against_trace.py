"""The profiled passes of a result file against the Chrome traces that were kept of the same windows.

Both are divided by the same rules, but one is read from torch's events in the process and the other from the
file. Busy time is also compared with an independent union of the file's intervals. Ends with 1 if anything
differs by more than rounding, or if a pass was refused.

    python tests/gpu/rows_against_trace.py bakeoff.db
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "makers"))

from sweeps import busy_ns

from gputui.model.journal import IDLE, ProfiledPass, trace_name
from gputui.services.results.run_forms import traces_of
from gputui.services.traces.chrome_trace import read_trace
from gputui.services.traces.imported import read_run
from gputui.services.traces.window import device_of
from gputui.store.reading import open_result

ROUNDING_SHARE = 0.002
"""Of the window: the file's times are rounded."""


def main() -> int:
    db = Path(sys.argv[1])
    faults = 0
    print(
        f"{'case':38}{'steps':>6}{'window ms':>10}{'file ms':>9}{'busy':>6}{'sweep':>6}{'rows':>7}{'idle':>7}"
        f"{'no op':>6}{'other':>6}  verdict"
    )
    with open_result(db) as result:
        for summary in result.summaries():
            run, passes = result.run(summary.run_id), result.profiled(summary.run_id)
            traces = {path.name.partition("-")[2]: path for path in traces_of(summary.run_id, db)}
            for case in run.cases:
                found = passes.get(case.case_id)
                if found is None:
                    continue
                fault = _compared(case.case.name, found, traces.get(trace_name(case.case.name)))
                faults += bool(fault)
    print("all agree" if not faults else f"{faults} differ or were refused")
    return 1 if faults else 0


def _compared(name: str, found: ProfiledPass, trace: Path | None) -> str:
    """Prints a line; returns what is wrong."""
    if not found.is_valid or trace is None:
        fault = found.reason if not found.is_valid else "no trace was kept"
        print(f"{name[:37]:38}{found.steps:>6}  {fault}")
        return fault
    read = read_run(trace)
    whole = read_trace(trace)
    there, window_ns = read.found, found.window_ns
    device = device_of(whole)
    swept_ns = busy_ns(whole, read.window.start_ns, read.window.end_ns, device) if device is not None else 0
    busy = _busy(found)
    faults = []
    rows = _farthest(_operators(found), _operators(there)) / window_ns
    idle = _farthest(_idle(found), _idle(there)) / window_ns
    if found.steps != there.steps:
        faults.append(f"{there.steps} steps in the file")
    if abs(there.window_ns - window_ns) > ROUNDING_SHARE * window_ns:
        faults.append("the window")
    if rows > ROUNDING_SHARE:
        faults.append("operators")
    if idle > ROUNDING_SHARE:
        faults.append("idle time")
    if device is not None and abs(swept_ns - busy) > ROUNDING_SHARE * window_ns:
        faults.append("busy time")
    other = sum(o.time_ns for o in found.operators if o.category == "other") / max(busy, 1)
    print(
        f"{name[:37]:38}{found.steps:>6}{window_ns / 1e6:>10.2f}{there.window_ns / 1e6:>9.2f}"
        f"{busy / window_ns:>6.1%}{swept_ns / window_ns:>6.1%}{rows:>7.2%}{idle:>7.2%}"
        f"{found.unmatched_ns / max(busy, 1):>6.1%}{other:>6.1%}  {', '.join(faults) or 'agrees'}"
    )
    return ", ".join(faults)


def _busy(found: ProfiledPass) -> int:
    return sum(part.time_ns for part in found.slices if part.time_class != IDLE)


def _operators(found: ProfiledPass) -> Counter[tuple[str, str]]:
    times: Counter[tuple[str, str]] = Counter()
    for row in found.operators:
        times[row.phase, row.operator] += row.time_ns
    return times


def _idle(found: ProfiledPass) -> Counter[tuple[str, str]]:
    times: Counter[tuple[str, str]] = Counter()
    for part in found.slices:
        if part.time_class == IDLE:
            times["idle", part.cause] += part.time_ns
    return times


def _farthest(here: Counter[tuple[str, str]], there: Counter[tuple[str, str]]) -> int:
    """The largest difference of one row, in nanoseconds."""
    return max((abs(here[key] - there[key]) for key in {*here, *there}), default=0)


if __name__ == "__main__":
    sys.exit(main())
