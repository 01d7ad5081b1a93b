"""What the Monitor can chart and says of it, its settings, and their file."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from gputui.document.theme import THEMES
from gputui.errors import GputuiError
from gputui.metrics import METRICS, Metric, Values, number, with_unit
from gputui.services.support.paths import make_directory
from gputui.tui.monitor.processes import COLUMNS

OF_GPUS: tuple[Metric, ...] = tuple(one for one in METRICS if one.id and one.scope == "gpu")
BY_ID = {metric.id: metric for metric in OF_GPUS}
OF_THE_HOST: tuple[Metric, ...] = tuple(one for one in METRICS if one.id and one.scope == "host")
DEFAULT_METRICS: tuple[str, ...] = (
    "busy",
    "power",
    "memory",
    "clock",
    "pcie",
    "temperature",
    "tensor",
    "dram",
    "nvlink",
)
"""Charts from left to right, then downwards."""
ALWAYS = 4
"""This many of the chosen metrics keep their chart even if the device has no value for them."""


def note_of(metric: Metric, values: Values) -> str:
    """Its limit, and values that explain it; where space is short, parts after a comma are omitted."""
    parts = [metric.limit_text(values, metric.text(metric.amount(values)))]
    if metric.mark_at(values) is not None:
        parts.append(f"factory {metric.text(metric.full_scale(values))}")
    if metric.also and metric.amount(values) is not None:
        parts.append(f"in {with_unit(number(values, metric.key), metric.unit)}")
    more = _MORE.get(metric.id)
    return ", ".join(filter(None, (*parts, *(more(values) if more else ()))))


def _shares(values: Values, *keys: str) -> list[str]:
    """Those that are known, `sm 82` or `fp32 9`."""
    shares = {key: number(values, f"gpm_{key}_pct") for key in keys}
    return [
        f"{key.removesuffix('_active')} {share:.0f}" for key, share in shares.items() if share is not None
    ]


def _with_busy(values: Values) -> list[str]:
    traffic = number(values, "memory_busy_pct")
    shares = _shares(values, "sm_active", "tensor")
    return shares if shares or traffic is None else [f"memory traffic {with_unit(traffic, '%')}"]


def _with_memory(values: Values) -> list[str]:
    if number(values, "is_memory_shared"):
        return ["shared with host"]
    return [f"{share} %" for share in _shares(values, "dram")]


def _with_cpu(values: Values) -> list[str]:
    load = number(values, "load_1min")
    return [f"load {load:.1f}"] if load is not None else []


def _with_host_memory(values: Values) -> list[str]:
    swap = number(values, "swap_used_bytes")
    return [f"swap {with_unit(swap, 'B')}"] if swap else []


_MORE: dict[str, Callable[[Values], list[str]]] = {
    "busy": _with_busy,
    "memory": _with_memory,
    "sm": lambda values: [f"{share} %" for share in _shares(values, "occupancy")],
    "tensor": lambda values: _shares(values, "fp32", "fp16", "fp64"),
    "dram": lambda values: ["of bandwidth"],
    "video": lambda values: [f"decoder {with_unit(number(values, 'decoder_pct'), '%')}"],
    "host-cpu": _with_cpu,
    "host-memory": _with_host_memory,
}


INTERVALS_S: tuple[float, ...] = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
ZOOMS_MIN: tuple[int, ...] = (1, 2, 5, 10, 30, 60)
_LARGEST_FILE = 64 * 1024
_OF_BEFORE = frozenset({"memory_unit", "temperature_unit", "tree"})
"""Settings that older versions wrote."""
_N = TypeVar("_N", int, float)


def stepped(choices: Sequence[_N], now: _N, by: int) -> _N:
    """The next of ascending choices, above or below; the same where there is none."""
    beyond = [one for one in choices if (one > now if by > 0 else one < now)]
    return (beyond[0] if by > 0 else beyond[-1]) if beyond else now


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    interval_s: float = 1.0
    """0.2 to 10."""
    zoom_min: int = 5
    """One of ZOOMS_MIN."""
    metrics: tuple[str, ...] = DEFAULT_METRICS
    """Ids of OF_GPUS, most important first."""
    show_processes: bool = True
    sort: str = "gpu-mem"
    """Id of a column of the processes."""
    descending: bool = True
    notify: bool = False
    """Whether the terminal notifies of runs, on all screens."""
    theme: str = THEMES[0].id
    """Id of one of THEMES, for all screens."""
    questions: bool = True
    """Whether a newcomer's questions are shown while there is no result file."""
    palette: tuple[str, ...] = ()
    """What was chosen in the palette of all screens, the last first."""


def load_settings(path: Path) -> tuple[MonitorSettings, str]:
    """The settings in a file, and a message about those that could not be used, empty if there are none.

    A missing file means defaults and no message. Unknown keys and values out of range are ignored.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST_FILE).decode("utf-8")
        import tomllib  # only if there is a file: it takes 2 ms before the first frame

        table = tomllib.loads(text)
    except FileNotFoundError:
        return MonitorSettings(), ""
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is damaged"
        return MonitorSettings(), f"settings are the defaults: {path} cannot be read ({why})"
    values: dict[str, Any] = {
        key: _fitting(key, value) for key, value in table.items() if key not in _OF_BEFORE
    }
    refused = [key for key, value in values.items() if value is None]
    settings = MonitorSettings(**{key: value for key, value in values.items() if value is not None})
    return settings, f"{path}: not used: {', '.join(refused[:8])}" if refused else ""


def save_settings(path: Path, settings: MonitorSettings) -> None:
    """Write the file atomically. Raises GputuiError if that fails."""
    from gputui.recording.own_directory import write_whole  # not needed for the first frame

    text = "# Written by gputui when the monitor closes.\n" + "".join(
        f"{field.name} = {_toml(getattr(settings, field.name))}\n" for field in fields(settings)
    )
    try:
        make_directory(path.parent)
        write_whole(path, text.encode())
    except OSError as error:
        raise GputuiError(
            f"{path}: settings cannot be kept ({error.strerror})",
            "set XDG_CONFIG_HOME to a directory you can write to",
        ) from error


def _fitting(key: str, value: object) -> object | None:
    """A value as the settings take it; None if it is invalid."""
    match key, value:
        case (("show_processes" | "descending" | "notify" | "questions"), bool()):
            return value
        case _, bool():
            return None
        case "interval_s", (int() | float()) if INTERVALS_S[0] <= value <= INTERVALS_S[-1]:
            return float(value)
        case "metrics", [_, *_] if all(isinstance(name, str) and name in BY_ID for name in value):
            return tuple(dict.fromkeys(value))
        case "palette", list() if all(isinstance(name, str) for name in value):
            return tuple(value)
    allowed: dict[str, tuple[object, ...]] = {
        "zoom_min": ZOOMS_MIN,
        "sort": tuple(column.id for column in COLUMNS),
        "theme": tuple(theme.id for theme in THEMES),
    }
    return value if value in allowed.get(key, ()) else None


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
