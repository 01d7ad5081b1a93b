"""Where the program was while it was traced: from the stacks of a trace, or from the samples of `why --`."""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any  # JSON

from gputui.worker.foreign_json import whole
from gputui.worker.profiling.rows import GC, OTHER_THREAD, Place

MEMBER = "gputuiLines"
"""Of a trace's document: samples that `why --` adds to it."""
MARK = "gputui clock"
"""A range whose begin the samples know on their own clock."""
COLLECTS = ("<built-in function collect>", "Python GC")
"""Of Python's garbage collector, as stacks and torch name it."""
LEAST_NS = 50_000
"""A shorter call in a recorded stack counts toward its caller."""
_ANY_THREAD = 0
"""Of samples: they are of the stepping thread, whatever its number."""
_LATEST_NS = 2**62
_LONGEST = 300
_FRAME = re.compile(r"(.+)\((\d{1,9})\): (.+)", re.DOTALL)
_INSTALLED = re.compile(r"(site|dist)-packages/|^<|/lib/python\d|/torchinductor_")
_LIBRARIES = frozenset(
    (
        *("torch", "torchvision", "torchaudio", "torchdata", "torchtitan", "torchao", "triton", "functorch"),
        *("numpy", "scipy", "pandas", "sklearn", "PIL", "cv2", "tqdm", "einops", "transformers"),
        *("accelerate", "datasets", "tokenizers", "peft", "trl", "diffusers", "timm", "lightning"),
        *("pytorch_lightning", "lightning_fabric", "torchmetrics", "ignite", "deepspeed", "megatron"),
        *("transformer_engine", "flash_attn", "xformers", "bitsandbytes", "vllm", "sglang", "ray"),
        *("wandb", "tensorboard", "mlflow", "hydra", "click", "IPython", "ipykernel"),
    )
)
"""Packages that stacks name without the folder they are installed in."""


@dataclass
class Frames:
    """Stretches in which a thread was at one place, in columns; a later one within another is deeper."""

    thread: array[int] = field(default_factory=lambda: array("i"))
    start_ns: array[int] = field(default_factory=lambda: array("q"))
    end_ns: array[int] = field(default_factory=lambda: array("q"))
    place: array[int] = field(default_factory=lambda: array("i"))
    """Index into `places`."""
    places: list[Place] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.place)

    def add(self, thread: int, start_ns: int, end_ns: int, place: int) -> None:
        self.thread.append(thread)
        self.start_ns.append(start_ns)
        self.end_ns.append(end_ns)
        self.place.append(place)

    def add_samples(self, member: Any, mark_ns: int) -> None:
        """What the program's half noted; `mark_ns` is when the mark began on the trace's clock.

        Raises ValueError, TypeError or LookupError if it is malformed.
        """
        before_ns, after_ns = (whole(edge, 0, _LATEST_NS) for edge in member["mark_ns"])
        offset_ns = mark_ns - (before_ns + after_ns) // 2
        first = len(self.places)
        for doing, path, line, function, called in member["places"]:
            if doing not in ("", GC, OTHER_THREAD):
                raise ValueError(f"{doing!r:.40} is not known")
            names = (str(name)[:_LONGEST].encode("utf-8", "replace").decode() for name in (path, function))
            path, function = names
            self.places.append(Place(doing, path, whole(line, 0, 2**31), function, False, str(called)[:80]))
        for number, start_ns, end_ns in member["spans"]:
            place = first + whole(number, 0, len(self.places) - first - 1)
            start_ns, end_ns = (whole(edge, 0, _LATEST_NS) + offset_ns for edge in (start_ns, end_ns))
            self.add(_ANY_THREAD, start_ns, end_ns, place)

    def pieces(self, thread: int, start_ns: int, end_ns: int) -> Iterator[tuple[int, int, Place]]:
        """Start, end and innermost place of a thread, ordered by time, without overlaps.

        In a recorded stack the number of a line is that of the function's definition, but of a call that
        began before the recording it is any: of those that are older than the window, only the function
        counts.
        """
        mine = (
            i
            for i in range(len(self))
            if self.thread[i] in (thread, _ANY_THREAD)
            and self.end_ns[i] > start_ns
            and self.start_ns[i] < end_ns
        )
        open_until: list[tuple[int, Place]] = []
        at_ns = start_ns
        for i in sorted(mine, key=lambda i: (self.start_ns[i], -self.end_ns[i])):
            begin_ns = max(self.start_ns[i], start_ns)
            yield from _closed(open_until, at_ns, begin_ns)
            at_ns = begin_ns
            place = self.places[self.place[i]]
            if place.doing == GC and open_until and not place.path:
                place = replace(open_until[-1][1], doing=GC)
            if place.is_definition and self.start_ns[i] < start_ns:
                place = replace(place, line=0)
            last_ns = min(self.end_ns[i], end_ns)
            open_until.append((min(last_ns, open_until[-1][0]) if open_until else last_ns, place))
        yield from _closed(open_until, at_ns, end_ns)


def _closed(
    open_until: list[tuple[int, Place]], at_ns: int, until_ns: int
) -> Iterator[tuple[int, int, Place]]:
    """The stretches between two instants, and the frames that end there taken off."""
    while open_until and at_ns < until_ns:
        last_ns, place = open_until[-1]
        if last_ns > at_ns:
            yield at_ns, min(last_ns, until_ns), place
            at_ns = min(last_ns, until_ns)
        if last_ns <= until_ns:
            open_until.pop()


def place_of_frame(name: str) -> Place | None:
    """The place of `train.py(63): step`; None if it is no code of the user's.

    That of a call of the garbage collector is where it was called.
    """
    if name in COLLECTS:
        return Place(GC, "", 0, "", False, "")
    found = _FRAME.fullmatch(name)
    if found is None:
        return None
    path, line, function = found[1].replace("\\", "/"), int(found[2]), found[3]
    top = path.partition("/")[0].removesuffix(".py")
    if _INSTALLED.search(path) or top in _LIBRARIES or top in sys.stdlib_module_names:
        return None
    return Place("", path[:_LONGEST], line, function[:_LONGEST], True, "")
