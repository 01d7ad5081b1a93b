"""The heap of a profiled pass: pages stay allocated once they have been touched."""

from __future__ import annotations

import subprocess
import sys

GROWING = """
import resource, sys
from gputui.worker.profiling.profiled_pass import keep_heap
kept = keep_heap(200_000_000) if sys.argv[1] == "kept" else False
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    held = [bytearray(8_000_000) for _ in range(10)]
    del held
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(word: str) -> tuple[str, int]:
    done = subprocess.run([sys.executable, "-c", GROWING, word], capture_output=True, text=True, check=True)
    kept, count = done.stdout.split()
    return kept, int(count)


def test_large_pieces_come_from_memory_that_was_touched_before() -> None:
    kept, few = faults("kept")
    assert kept == "True"
    without, many = faults("not")
    assert without == "False"
    assert few < 1000 < many
