"""Limits of a good request, as a user writes them: `ttft=500ms,tpot=50ms`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gputui.errors import GputuiError
from gputui.model.case import Case
from gputui.model.units import format_seconds

_PART = re.compile(r"(ttft|tpot|e2e)\s*(?:=|<=?|≤)\s*(\d+(?:\.\d+)?)\s*(ms|s)?")
_HINT = "such as ttft=500ms,tpot=50ms, or e2e=10s; all that are named must be met"
MOST_S = 3600.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request must not exceed, in seconds; None for no limit."""

    ttft_s: float | None = None
    """To the first output."""
    tpot_s: float | None = None
    """Per output token after the first."""
    e2e_s: float | None = None
    """To the last output."""

    def __bool__(self) -> bool:
        return any(limit is not None for _, limit in self.parts)

    @property
    def parts(self) -> tuple[tuple[str, float | None], ...]:
        return (("ttft", self.ttft_s), ("tpot", self.tpot_s), ("e2e", self.e2e_s))

    @property
    def text(self) -> str:
        """`TTFT 500 ms, TPOT 50 ms`."""
        return ", ".join(
            f"{name.upper()} {format_limit(limit)}" for name, limit in self.parts if limit is not None
        )

    @property
    def option(self) -> str:
        """`ttft=500ms,tpot=50ms`, which `limits_from` reads; `none` for none."""
        known = [(name, limit) for name, limit in self.parts if limit is not None]
        return ",".join(f"{name}={1e3 * limit:.10g}ms" for name, limit in known) or "none"


def format_limit(seconds: float) -> str:
    """A limit with the digits it was stated with: `500 ms`, `1.5 s`."""
    if seconds < 1:
        return f"{1e3 * seconds:.6g} ms"
    return f"{seconds:.6g} s" if seconds < 60 else format_seconds(seconds)


def parameter_of(case: Case, name: str) -> int | float | str | None:
    """A parameter of a case; None if it has none of that name."""
    return dict(case.work.parameters).get(name)


def limits_of(case: Case) -> Limits:
    """The limits of a search."""
    found = [parameter_of(case, f"limit_{name}_s") for name in ("ttft", "tpot", "e2e")]
    return Limits(*(float(value) if isinstance(value, int | float) else None for value in found))


def limits_from(text: str, option: str = "--slo") -> Limits:
    """Parse limits; `none` for none. Raises GputuiError for anything else than known names with a time."""
    if text.strip() == "none":
        return Limits()
    found: dict[str, float] = {}
    for part in re.split(r"[,\s]+", text.strip()):
        match = _PART.fullmatch(part)
        if match is None:
            raise GputuiError(f"{option}: {part[:40]!r} is not a limit", _HINT)
        name, number, unit = match.groups()
        seconds = float(number) * (1.0 if unit == "s" else 1e-3)
        if unit is None:
            raise GputuiError(
                f"{option}: {part!r} has no unit", f"write {name}={number}ms or {name}={number}s"
            )
        if not 0 < seconds <= MOST_S:
            raise GputuiError(f"{option}: {part!r} is not in the range 0 to {MOST_S:.0f} s", _HINT)
        if name in found:
            raise GputuiError(f"{option}: {name} is there twice", _HINT)
        found[name] = seconds
    return Limits(found.get("ttft"), found.get("tpot"), found.get("e2e"))
