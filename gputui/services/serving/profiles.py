"""Profiles of requests: how long prompts and answers are, and which limits fit such work.

One TOML file each in `profiles/serving`, or a file of the user's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # Any: TOML that is not yet checked

import tomllib

from gputui.errors import GputuiError
from gputui.services.profiles.loader import profile_directory
from gputui.services.serving.limits import Limits, limits_from

SCHEMA = 1
MOST_TOKENS = 1_000_000
_KEYS = ("schema", "version", "title", "prompt_tokens", "output_tokens", "shared_prefix_tokens", "slo")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")


@dataclass(frozen=True, slots=True)
class RequestProfile:
    """Requests of one kind."""

    name: str
    version: int
    title: str
    prompt_tokens: int
    """Aimed at; what the server counts is stored with each request."""
    output_tokens: int
    shared_tokens: int
    """At the start of every prompt; 0: no two prompts begin alike, so no cache helps."""
    limits: Limits


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
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise GputuiError(f"profile {source}: is not valid TOML: {error}", "see docs/serving.md") from error
    for key in table:
        if key not in _KEYS:
            raise GputuiError(f"profile {source}: {key[:40]!r} is not known", f"allowed: {', '.join(_KEYS)}")
    if table.get("schema") != SCHEMA:
        raise GputuiError(
            f"profile {source}: schema: {table.get('schema')!r} is not {SCHEMA}", f"write schema = {SCHEMA}"
        )
    if not _NAME.fullmatch(name):
        raise GputuiError(f"profile {source}: its name may contain only a-z, 0-9, _ and -", "rename the file")
    title = table.get("title", name)
    if not isinstance(title, str):
        raise GputuiError(f"profile {source}: title is not a string", 'such as title = "My requests"')
    slo = table.get("slo", "none")
    if not isinstance(slo, str):
        raise GputuiError(f"profile {source}: slo is not a string", 'such as slo = "ttft=500ms,tpot=50ms"')
    profile = RequestProfile(
        name,
        _whole(table, "version", source, 1, 10**6),
        title,
        _whole(table, "prompt_tokens", source, 8, MOST_TOKENS),
        _whole(table, "output_tokens", source, 2, MOST_TOKENS),
        _whole(table, "shared_prefix_tokens", source, 0, MOST_TOKENS)
        if "shared_prefix_tokens" in table
        else 0,
        limits_from(slo, f"profile {source}: slo"),
    )
    if profile.shared_tokens >= profile.prompt_tokens:
        raise GputuiError(
            f"profile {source}: shared_prefix_tokens {profile.shared_tokens} is not below prompt_tokens"
            f" {profile.prompt_tokens}",
            "identical prompts would measure only the cache",
        )
    return profile


def _whole(table: Mapping[str, Any], key: str, source: str, least: int, most: int) -> int:
    value = table.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise GputuiError(
            f"profile {source}: {key}: {value!r} is not a whole number from {least} to {most}",
            "see docs/serving.md",
        )
    return value
