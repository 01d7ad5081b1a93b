"""Profiles of requests: how long prompts and answers are, and which limits fit such work.

One TOML file each in `profiles/serving`, or a file of the user's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from gputui.errors import GputuiError
from gputui.model.plan import Case
from gputui.model.units import format_seconds
from gputui.services.profiles.loader import ProfileReader, profile_directory

_PART = re.compile(r"(ttft|tpot|e2e)\s*(?:=|<=?|≤)\s*(\d+(?:\.\d+)?)\s*(ms|s)?")
_HINT = "such as ttft=500ms,tpot=50ms, or e2e=10s; all that are named must be met"
MOST_S = 3600.0
DEFAULT_ATTAINED_SHARE = 0.9


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
            f"{name.upper()} {_format_limit(limit)}" for name, limit in self.parts if limit is not None
        )

    @property
    def option(self) -> str:
        """`ttft=500ms,tpot=50ms`, which `limits_from` reads; `none` for none."""
        known = [(name, limit) for name, limit in self.parts if limit is not None]
        return ",".join(f"{name}={1e3 * limit:.10g}ms" for name, limit in known) or "none"

    def imply(self, others: Limits) -> bool:
        """Whether whoever meets these limits meets the others."""
        return all(
            other is None or (limit is not None and limit <= other * (1 + 1e-9))
            for (_, other), (_, limit) in zip(others.parts, self.parts, strict=True)
        )


def _format_limit(seconds: float) -> str:
    """A limit with the digits it was stated with: `500 ms`, `1.5 s`."""
    if seconds < 1:
        return f"{1e3 * seconds:.6g} ms"
    return f"{seconds:.6g} s" if seconds < 60 else format_seconds(seconds)


def parameter_of(case: Case, name: str) -> int | float | str | None:
    return dict(case.work.parameters).get(name)


def limits_of(case: Case) -> Limits:
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


SCHEMA = 1
MOST_TOKENS = 1_000_000
_KEYS = ("schema", "version", "title", "prompt_tokens", "output_tokens", "shared_prefix_tokens", "slo")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")
RANDOM_WORDS = "random words"
"""That no two prompts share, in lengths that vary."""


@dataclass(frozen=True, slots=True)
class RequestProfile:
    name: str
    version: int
    title: str
    prompt_tokens: int
    """Aimed at; what the server counts is stored with each request."""
    output_tokens: int
    shared_tokens: int
    """At the start of every prompt; 0: no two prompts begin alike, so no cache helps."""
    limits: Limits
    prompts: str = RANDOM_WORDS
    """What prompts are of: a file has its hash here."""
    body: str = "{}"
    """What is merged into requests; a JSON object."""


def shipped_request_profiles() -> tuple[RequestProfile, ...]:
    """Those that come with gputui, by name."""
    files = [
        entry for entry in profile_directory().joinpath("serving").iterdir() if entry.name.endswith(".toml")
    ]
    found = [
        read_request_profile(f.read_text(encoding="utf-8"), f.name[: -len(".toml")], f.name) for f in files
    ]
    return tuple(sorted(found, key=lambda profile: profile.name))


def find_request_profile(name: str) -> RequestProfile:
    """A shipped profile by name, or a .toml file. Raises GputuiError with what there is."""
    if name.endswith(".toml"):
        path = Path(name)
        try:
            return read_request_profile(path.read_text(encoding="utf-8"), path.stem, name)
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8"
            raise GputuiError(f"--profile {name}: cannot be read: {why}", "see docs/serving.md") from error
    shipped = {profile.name: profile for profile in shipped_request_profiles()}
    if name not in shipped:
        raise GputuiError(
            f"--profile {name[:40]}: unknown request profile",
            f"{', '.join(shipped)}, or a .toml file",
        )
    return shipped[name]


def read_request_profile(text: str, name: str, source: str) -> RequestProfile:
    """Read one profile. Raises GputuiError that names the key and what is allowed."""
    reader = ProfileReader(source, "docs/serving.md")
    table = {"title": name, "slo": "none", **reader.table_in(text, _KEYS, SCHEMA)}
    if not _NAME.fullmatch(name):
        raise GputuiError(f"profile {source}: its name may contain only a-z, 0-9, _ and -", "rename the file")
    profile = RequestProfile(
        name,
        reader.whole(table, "version", "", 1, 10**6),
        reader.text(table, "title"),
        reader.whole(table, "prompt_tokens", "", 8, MOST_TOKENS),
        reader.whole(table, "output_tokens", "", 2, MOST_TOKENS),
        reader.whole(table, "shared_prefix_tokens", "", 0, MOST_TOKENS, 0),
        limits_from(reader.text(table, "slo"), f"profile {source}: slo"),
    )
    if profile.shared_tokens >= profile.prompt_tokens:
        raise GputuiError(
            f"profile {source}: shared_prefix_tokens {profile.shared_tokens} is not below prompt_tokens"
            f" {profile.prompt_tokens}",
            "identical prompts would measure only the cache",
        )
    return profile
