"""The file of a workload of a user, which needs no torch; with and without a module beside it."""

from __future__ import annotations

STEP = """
from gputui_worker.contract import Request, Size, Step, Workload
from beside import pieces_of

def build(request):
    import hashlib
    data = bytes(2**18)
    return Step(lambda: [hashlib.sha256(data).digest() for _ in range(pieces_of(request))])

WORKLOAD = Workload(
    name="hashing",
    version=1,
    title="hashing",
    question="How fast?",
    workload_class="host",
    unit="B",
    sizes={"mini": Size({"pieces": 8}, 8 * 2.0**18, None, 8 * 2**18, 2**18)},
    precisions=("fp32",),
    device_classes=("cpu",),
    needs_torch=False,
    build=build,
)
"""
ALONE = STEP.replace("from beside import pieces_of\n", "").replace("pieces_of(request)", "8")
