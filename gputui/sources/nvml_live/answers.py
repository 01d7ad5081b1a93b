"""Queries the NVML library, remembers what is not supported, and rejects impossible values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any  # pynvml has no types

from gputui.model import nvml_codes
from gputui.model.absent import Missing
from gputui.model.live import Value
from gputui.model.ranges import sane
from gputui.sources import nvml_calls

Values = dict[str, Value]
Way = Callable[[Any, Any], Mapping[str, "float | int | str"]]
"""Queries (pynvml, handle) for the values of some metrics."""

LOST = Missing(nvml_codes.nvml_reason(nvml_codes.GPU_IS_LOST))
UNREPORTED = Missing(nvml_codes.nvml_reason(nvml_codes.NOT_SUPPORTED))
DRIVER = "the driver"
_TOO_MUCH_USED = Missing(f"{DRIVER} answered more than there is")

_DRIVER_GONE = frozenset({nvml_codes.UNINITIALIZED, nvml_codes.DRIVER_NOT_LOADED, nvml_codes.VERSIONS_DIFFER})


class DriverGone(Exception):
    """The driver was unloaded or replaced: the library must be opened again."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class GpuLost(Exception):
    """The GPU no longer responds."""


def check_alive(code: int) -> None:
    """Raise DriverGone or GpuLost for a code that means one of them."""
    if code in _DRIVER_GONE:
        raise DriverGone(code)
    if code == nvml_codes.GPU_IS_LOST:
        raise GpuLost


def sane_memory(values: Values) -> None:
    """Drop shares of an impossible total, and use that exceeds the total."""
    total, used = values["memory_total_bytes"], values["memory_used_bytes"]
    if isinstance(total, Missing):
        values["memory_used_bytes"] = values["memory_reserved_bytes"] = total
    elif not isinstance(used, (Missing, str)) and not isinstance(total, str) and used > total:
        values["memory_used_bytes"] = _TOO_MUCH_USED


@dataclass(frozen=True, slots=True)
class Question:
    """A query and its alternatives in order of preference."""

    keys: tuple[str, ...]
    ways: tuple[Way, ...]
    otherwise: Missing = UNREPORTED
    """Why a key is absent from an answer."""


@dataclass(slots=True, eq=False)
class Asker:
    """Queries one handle, and remembers what need not be queried again."""

    nvml: Any
    handle: Any
    _open: dict[tuple[str, ...], list[Way]] = field(default_factory=dict)
    """By the keys of a query: the alternatives that are not ruled out."""
    _refused: dict[tuple[str, ...], Missing] = field(default_factory=dict)
    """By the keys of a query without any alternative left: the reason."""

    def values(self, questions: Sequence[Question]) -> Values:
        """The checked results; raises DriverGone or GpuLost."""
        values: Values = {}
        for question in questions:
            answer = self._answer(question)
            if isinstance(answer, Missing):
                values.update(dict.fromkeys(question.keys, answer))
            else:
                for key in question.keys:
                    values[key] = sane(key, answer[key], DRIVER) if key in answer else question.otherwise
        return values

    def _answer(self, question: Question) -> Mapping[str, float | int | str] | Missing:
        refused = self._refused.get(question.keys)
        if refused is not None:
            return refused
        ways = self._open.setdefault(question.keys, list(question.ways))
        answer = nvml_calls.ask(self.nvml, self.handle, ways)
        if not isinstance(answer, int):
            return answer
        check_alive(answer)
        reason = Missing(nvml_codes.nvml_reason(answer))
        if not ways:
            self._refused[question.keys] = reason
        return reason

    def forget(self) -> None:
        """Query everything again: the GPU now works in another mode."""
        self._open.clear()
        self._refused.clear()
