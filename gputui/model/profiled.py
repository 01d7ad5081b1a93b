"""The profiled pass of a case: where the time of its steps went, and what held its memory.

All times are integer nanoseconds of one window of steps, so that sums are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

from gputui.model.absent import Missing
from gputui.model.case import OfCase
from gputui.worker.profiling.rows import Kernel as Kernel
from gputui.worker.profiling.rows import LineTime as LineTime
from gputui.worker.profiling.rows import Operator as Operator
from gputui.worker.profiling.rows import TimeSlice as TimeSlice

TIME_CLASSES = ("compute", "communication", "copy_h2d", "copy_d2h", "copy_d2d", "memset", "idle")
"""What the device did. If several apply at an instant, the first of them counts."""
IDLE = "idle"
IDLE_CAUSES = (
    "data_wait",
    "launch",
    "runtime_api",
    "dispatch",
    "sync",
    "python",
    "kernel_gap",
    "queue",
    "profiler",
)
"""What the host did while the device was idle: on a CPU, what it did outside of operators. `kernel_gap` and
`queue` are the device's own: work had been launched, and waited for the device, another stream or a peer."""
PHASES = ("data", "forward", "backward", "optimizer", "between")
"""`between`: idle time in which the host was in none of the others."""
CATEGORIES = (
    "gemm",
    "conv",
    "attention",
    "rnn",
    "norm",
    "softmax_loss",
    "elementwise",
    "reduction",
    "cast_copy",
    "view_alloc",
    "embedding_index",
    "optimizer",
    "communication",
    "fused",
    "other",
)
MEMORY_PARTS = ("weights", "gradients", "optimizer", "activations", "inputs", "other")
MEMORY_POINTS = ("start", "after_forward", "after_backward", "after_optimizer", "peak")


@dataclass(frozen=True, slots=True)
class MemoryPoint:
    """Who held the device's memory at one point of a step, as far as torch allocated it."""

    point: str
    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    inputs_bytes: int
    """Inputs, buffers and caches: whatever lives from step to step and is none of the others."""
    other_bytes: int
    reserved_bytes: int | Missing
    """What the allocator holds, used or not; Missing if there is no such allocator."""

    @property
    def allocated_bytes(self) -> int:
        return (
            self.weights_bytes
            + self.gradients_bytes
            + self.optimizer_bytes
            + self.activations_bytes
            + self.inputs_bytes
            + self.other_bytes
        )


@dataclass(frozen=True, slots=True)
class ProfiledPass(OfCase):
    """The profiled pass of one case, in a separate worker after all timing."""

    is_valid: bool
    """Whether the trace can be trusted; if not, `reason` says why, and there are no operators."""
    reason: str
    steps: int
    window_ns: int
    """From the start of the first step to the end of the last, including the device's work."""
    events: int
    """Number of events in the trace."""
    event_cost_ns: int
    """What tracing one event costs, measured in the same process on tiny operators."""
    unmatched_ns: int
    """Device time for which no operator was found."""
    operators: tuple[Operator, ...]
    slices: tuple[TimeSlice, ...]
    """They sum to the window; those that are not idle sum to the operators."""
    kernels: tuple[Kernel, ...]
    memory: tuple[MemoryPoint, ...]
    memory_reason: str
    """Why `memory` is empty, if it is."""
    trace_bytes: int
    """Size of the Chrome trace that was kept; 0 for none."""
    lines: tuple[LineTime, ...] = ()
    """Where the program was in the largest parts; empty if that was not recorded."""

    def fault(self) -> str:
        """Which of its numbers contradict each other; empty if all sums hold."""
        if not self.is_valid:
            return "" if self.reason else "it is not believed, without a reason"
        if sum(s.time_ns for s in self.slices) != self.window_ns:
            return "its slices do not sum to the window"
        busy_ns = sum(s.time_ns for s in self.slices if s.time_class != IDLE)
        if sum(o.time_ns for o in self.operators) != busy_ns:
            return "its operators do not sum to the time the device was busy"
        return ""


def without_result(launch_id: int, case_id: int, reason: str) -> ProfiledPass:
    """The line of a pass without a result."""
    return ProfiledPass(launch_id, case_id, False, reason, 0, 0, 0, 0, 0, (), (), (), (), reason, 0)
