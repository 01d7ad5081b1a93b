"""CPU time of the Monitor picture without a terminal: 8 GPUs, 40 processes, all values moving.

python tests/benchmarks/monitor_lines.py [refreshes]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "makers"))

from monitor_samples import START, sample

from gputui.tui.monitor.model import MonitorModel
from gputui.tui.monitor.settings import MonitorSettings

SECOND = 1_000_000_000


def measure(gpus: int, processes: int, width: int, height: int, refreshes: int) -> None:
    """Print the mean time of a refresh, and how much of the picture it changed."""
    model = MonitorModel(MonitorSettings(), usd_per_hour=4.59, title="runpod", user="ana")
    samples = [sample(gpus, float(second), processes=processes) for second in range(refreshes)]
    add_s = lines_s = still_s = 0.0
    changed = 0
    before: tuple[object, ...] = ()
    for second, one in enumerate(samples):
        started = time.process_time()
        model.add(one)
        added = time.process_time()
        lines = model.lines(width, height, START + second * SECOND)
        drawn = time.process_time()
        model.lines(width, height, START + second * SECOND)
        still_s += time.process_time() - drawn
        add_s += added - started
        lines_s += drawn - added
        changed += sum(1 for row, line in enumerate(lines) if row >= len(before) or before[row] is not line)
        before = lines
    print(
        f"{gpus:3} GPUs {processes:3} processes {width}x{height}: add {add_s / refreshes * 1e3:.2f} ms, "
        f"lines {lines_s / refreshes * 1e3:.2f} ms, unchanged {still_s / refreshes * 1e6:.1f} us, "
        f"{changed / refreshes:.1f} of {height} lines changed"
    )


if __name__ == "__main__":
    refreshes = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    for size in ((8, 40, 200, 50), (8, 40, 80, 24), (1, 40, 200, 50), (4, 40, 120, 40), (72, 40, 200, 50)):
        measure(*size, refreshes)
