"""Profiles: TOML files that name workloads, variants and a time budget. Read strictly.

The schema is documented in docs/profiles.md; `SCHEMA` is its version.
"""

from __future__ import annotations

import difflib
import functools
import importlib.resources
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any  # Any: TOML that is not yet checked

from gputui.errors import GputuiError, beginning
from gputui.model.plan import MOST_BLOCKS, THREAD_REQUESTS, Case, program_case
from gputui.model.serving import SERVE_PROFILE
from gputui.model.units import RATES
from gputui.worker import DEVICE_CLASSES, MIN_BLOCKS, MODES, PRECISIONS, WORKLOAD_CLASSES, declared_as
from gputui.worker.contract import Workload
from gputui.worker.workloads import WORKLOADS, workload_named

SCHEMA = 1
MAX_BUDGET_S = 24 * 3600
MAX_REPLICATES = 100
MAX_BLOCKS = 10_000
SHOWN_LETTERS = 80
_PROFILE_KEYS = [
    "schema",
    "version",
    "title",
    "question",
    "budget_s",
    "replicates",
    "blocks",
    "case",
    "command",
]
_CASE_KEYS = [
    "workload",
    "sizes",
    "ladder",
    "devices",
    "precisions",
    "threads",
    "modes",
    "weight",
    "profiled",
]
_COMMAND_KEYS = ["name", "version", "argv", "pattern", "unit", "units", "devices", "class", "weight"]
_NAME = re.compile(r"[a-z0-9_-]{1,40}")
_PATTERN_LETTERS = 1000


@dataclass(frozen=True, slots=True)
class ProfileCase:
    """One `[[case]]` table; its cases are the product of the lists."""

    workload: str
    sizes: tuple[str, ...]
    devices: tuple[str, ...]
    precisions: tuple[str, ...]
    threads: tuple[str, ...]
    """For CPUs; a GPU case always uses the whole host."""
    weight: float
    """Share of the budget of each of its launches, relative to the others."""
    modes: tuple[str, ...] = ("eager",)
    is_profiled: bool = False
    """Whether each of its cases gets a profiled pass, by the worker that has just timed it."""
    is_ladder: bool = False
    """Whether only one of its sizes is measured, on CPU and GPU alike: without a GPU the first, else the
    first of the others at which the host keeps up with the GPU, and the last if none is known to be that."""


@dataclass(frozen=True, slots=True)
class ProfileCommand:
    """One `[[command]]` table: a user's program."""

    name: str
    """Its cases are paired by this and the version, whatever the command line is."""
    version: int
    argv: tuple[str, ...]
    pattern: str
    """Empty if it is timed from start to end."""
    unit: str
    units: float
    """Units of work per match, or per run without a pattern."""
    device: str
    workload_class: str
    weight: float

    @property
    def workload(self) -> str:
        """Its name as a workload."""
        return f"command:{self.name}"

    @property
    def case(self) -> Case:
        """Its case, on any machine."""
        return program_case(
            self.workload,
            self.version,
            is_whole=not self.pattern,
            device_class=self.device,
            unit=self.unit,
            units=self.units,
            workload_class=self.workload_class,
        )


@dataclass(frozen=True, slots=True)
class Profile:
    """A named list of workloads and variants with a time budget."""

    name: str
    version: int
    title: str
    question: str
    budget_s: float
    replicates: int
    cases: tuple[ProfileCase, ...]
    commands: tuple[ProfileCommand, ...] = ()
    own: Workload | None = None
    """The user's, as it declares itself; only a worker can build it."""
    own_file: str = ""
    most_blocks: int = MOST_BLOCKS
    """A case with this many blocks in a launch is done, whatever is left of the budget."""
    repeats: str = ""
    """Short id of the run that it repeats; empty for none."""

    def budget_of(self, replicates: int) -> float:
        """Seconds for so many launches per case: in proportion, but at least a third, for slow boxes."""
        return self.budget_s * max(replicates / self.replicates, 1 / 3)

    @property
    def called(self) -> str:
        """As messages name it: `profile quick`, `run 8e2aad19`."""
        return f"run {self.repeats}" if self.repeats else f"profile {self.name}"

    def workload_named(self, name: str) -> Workload:
        """A workload of one of its cases. Raises KeyError if there is none of that name."""
        if self.own is not None and self.own.name == name:
            return self.own
        return workload_named(name)


def can_be_profiled(workload: Workload) -> bool:
    """Whether a profiled pass of it could show anything."""
    return workload.needs_torch and workload.is_traceable


def find_profile(name_or_path: str) -> Profile:
    """A shipped profile by name, or a TOML file by path. Raises GputuiError if it is missing or invalid."""
    if name_or_path.endswith(".toml") or "/" in name_or_path:
        path = Path(name_or_path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise GputuiError(
                f"profile {path}: cannot be read ({why})", "give the path of a TOML file"
            ) from error
        return read_profile(text, path.stem, str(path))
    shipped = {profile.name: profile for profile in shipped_profiles()}
    if name_or_path in shipped:
        return shipped[name_or_path]
    message = f'unknown profile "{name_or_path}"'
    hint = f"{_meant(name_or_path, shipped)}one of {', '.join(shipped)}, or the path of a .toml file"
    if Path(name_or_path).is_file():
        message = f"{name_or_path} is a file, but not a profile"
        hint = "profiles end in .toml; gputui profiles lists the built-in ones"
    elif Path(f"{name_or_path}.toml").is_file():
        hint = f"to use the file of that name: {name_or_path}.toml"
    elif name_or_path == SERVE_PROFILE:
        message = "serve-bench is a command, not a profile: it measures one server, outside runs and bakeoffs"
        hint = (
            "on the box of each server: gputui serve-bench http://127.0.0.1:8000 --db BOX.db;"
            " then gputui compare A.db B.db"
        )
    raise GputuiError(message, hint)


@functools.cache
def shipped_profiles() -> tuple[Profile, ...]:
    """The profiles that come with gputui, `quick` first."""
    profiles = [
        read_profile(entry.read_text(encoding="utf-8"), entry.name.removesuffix(".toml"), entry.name)
        for entry in profile_directory().iterdir()
        if entry.name.endswith(".toml")
    ]
    return tuple(sorted(profiles, key=lambda p: (p.name != "quick", p.name)))


def shipped_with(workload: str) -> tuple[str, ...]:
    """Names of the shipped profiles that measure a workload, `quick` first."""
    return tuple(p.name for p in shipped_profiles() if any(entry.workload == workload for entry in p.cases))


def profile_directory() -> Any:
    """The directory of shipped profiles: inside the package in a wheel, next to it in a checkout."""
    inside = importlib.resources.files("gputui").joinpath("profiles")
    if inside.is_dir():
        return inside
    beside = Path(__file__).resolve().parents[3] / "profiles"
    if beside.is_dir():
        return beside
    raise GputuiError(f"{beside}: the shipped profiles are missing", "install gputui again")


def read_profile(text: str, name: str, source: str) -> Profile:
    """Read one profile. Raises GputuiError naming source, key, what is allowed, and the closest name."""
    reader = ProfileReader(source, "docs/profiles.md")
    return reader.profile(reader.table_in(text, _PROFILE_KEYS, SCHEMA), name)


class ProfileReader:
    """Checks one file key by key; every error names the place."""

    def __init__(self, source: str, page: str) -> None:
        """`page` describes what may be in it."""
        self._source, self._page = source, page

    def table_in(self, text: str, keys: Iterable[str], schema: int) -> dict[str, Any]:
        """The table of a TOML file with these keys, of this schema. Raises GputuiError."""
        import tomllib  # not in Python 3.10, where batch jobs plan from a profile that was read elsewhere

        try:
            table = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # also numbers and nesting beyond Python's limits
            raise GputuiError(
                f"profile {self._source}: is not valid TOML: {error}", f"see {self._page}"
            ) from error
        self._known(table, keys, "")
        if self.whole(table, "schema", "", 1, 10**6) != schema:
            raise self._wrong("schema", table["schema"], f"this gputui reads {schema}")
        return table

    def profile(self, table: Mapping[str, Any], name: str) -> Profile:
        """A profile of what is measured on a box."""
        if "case" not in table and "command" not in table:
            raise self._wrong("case", None, "at least one [[case]] table or [[command]] table")
        cases = tuple(self._case(entry, f"case {i}: ") for i, entry in self._tables(table, "case"))
        commands = tuple(
            self._command(entry, f"command {i}: ") for i, entry in self._tables(table, "command")
        )
        self._refuse_repeated(cases, commands)
        return Profile(
            name=name,
            version=self.whole(table, "version", "", 1, 10**6),
            title=self.text(table, "title"),
            question=self.text(table, "question"),
            budget_s=self._number(table, "budget_s", "", 1, MAX_BUDGET_S),
            replicates=self.whole(table, "replicates", "", 1, MAX_REPLICATES),
            cases=cases,
            commands=commands,
            most_blocks=self.whole(table, "blocks", "", MIN_BLOCKS, MAX_BLOCKS, MOST_BLOCKS),
        )

    def _tables(self, table: Mapping[str, Any], key: str) -> Iterable[tuple[int, Mapping[str, Any]]]:
        """The tables of one kind, numbered from 1."""
        entries = table.get(key, [])
        is_list = isinstance(entries, list) and all(isinstance(e, dict) for e in entries)
        if not is_list or (key in table and not entries):
            raise self._wrong(key, entries, f"at least one [[{key}]] table")
        return enumerate(entries, 1)

    def _command(self, table: Mapping[str, Any], place: str) -> ProfileCommand:
        self._known(table, _COMMAND_KEYS, place)
        name = table.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise self._wrong(f"{place}name", name, "1 to 40 of a-z, 0-9, _ and -")
        place = f"{place}{name}: "
        pattern = self._pattern(table, place)
        unit = table.get("unit", "step" if pattern else "run")
        if unit not in RATES:
            raise self._wrong(f"{place}unit", unit, RATES)
        devices = self._choices(table, "devices", place, DEVICE_CLASSES, DEVICE_CLASSES, ("cpu",))
        if len(devices) > 1:
            raise self._wrong(f"{place}devices", table["devices"], "one device: a program runs as it is")
        workload_class = table.get("class", "host")
        if workload_class not in WORKLOAD_CLASSES:
            raise self._wrong(f"{place}class", workload_class, WORKLOAD_CLASSES)
        return ProfileCommand(
            name=name,
            version=self.whole(table, "version", place, 1, 10**6),
            argv=self._argv(table, place),
            pattern=pattern,
            unit=unit,
            units=self._number(table, "units", place, 1e-6, 1e18, 1.0),
            device=devices[0],
            workload_class=workload_class,
            weight=self._number(table, "weight", place, 0.01, 100, 1.0),
        )

    def _argv(self, table: Mapping[str, Any], place: str) -> tuple[str, ...]:
        words = table.get("argv")
        is_list = isinstance(words, list) and all(isinstance(w, str) and "\0" not in w for w in words)
        if not is_list or not words or not words[0]:
            allowed = 'a list of words, the program first: ["python", "train.py"]'
            raise self._wrong(f"{place}argv", words, allowed)
        return tuple(words)

    def _pattern(self, table: Mapping[str, Any], place: str) -> str:
        pattern = table.get("pattern")
        if pattern is None:
            return ""
        if not isinstance(pattern, str) or not 0 < len(pattern) <= _PATTERN_LETTERS:
            raise self._wrong(
                f"{place}pattern", pattern, f"a regular expression of up to {_PATTERN_LETTERS} letters"
            )
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise self._wrong(
                f"{place}pattern", pattern, f"a regular expression of Python; this one: {error}"
            ) from error
        return pattern

    def _case(self, table: Mapping[str, Any], place: str) -> ProfileCase:
        self._known(table, _CASE_KEYS, place)
        name, names = table.get("workload"), [w.name for w in WORKLOADS]
        if name not in names:
            raise self._wrong(f"{place}workload", name, names)
        workload = workload_named(name)
        precisions = tuple(p for p in PRECISIONS if declared_as(p) in workload.precisions)
        place, sizes = f"{place}{name}: ", tuple(workload.sizes)
        devices = self._choices(table, "devices", place, DEVICE_CLASSES, workload.device_classes)
        if "threads" in table and "cpu" not in devices:
            raise self._wrong(f"{place}threads", table["threads"], 'only for devices = ["cpu"]')
        is_profiled = self._switch(table, "profiled", place)
        if is_profiled and not can_be_profiled(workload):
            raise self._wrong(f"{place}profiled", is_profiled, "false: the profiler cannot see its steps")
        return ProfileCase(
            workload=name,
            sizes=self._choices(table, "sizes", place, sizes, sizes),
            devices=devices,
            precisions=self._choices(table, "precisions", place, PRECISIONS, precisions),
            threads=self._choices(table, "threads", place, THREAD_REQUESTS, THREAD_REQUESTS, ("all",)),
            weight=self._number(table, "weight", place, 0.01, 100, 1.0),
            modes=self._choices(table, "modes", place, MODES, workload.modes, ("eager",)),
            is_profiled=is_profiled,
            is_ladder=self._switch(table, "ladder", place),
        )

    def _switch(self, table: Mapping[str, Any], key: str, place: str) -> bool:
        wanted = table.get(key, False)
        if not isinstance(wanted, bool):
            raise self._wrong(place + key, wanted, "true or false")
        return wanted

    def _refuse_repeated(self, cases: Iterable[ProfileCase], commands: Iterable[ProfileCommand]) -> None:
        for what, names, hint in (
            ("case", map(_names_of, cases), "replicates sets how often a case is measured"),
            ("command", ([one.name] for one in commands), "commands pair by name: give each a different one"),
        ):
            seen: dict[str, int] = {}
            for number, of_one in enumerate(names, 1):
                for name in of_one:
                    place = f"profile {self._source}: {what} {number}: {name}"
                    if name in seen:
                        raise GputuiError(f"{place}: is already in {what} {seen[name]}", hint)
                    seen[name] = number

    def _known(self, table: Mapping[str, Any], allowed: Iterable[str], place: str) -> None:
        for key in table:
            if key not in allowed:
                raise GputuiError(
                    f"profile {self._source}: {place}unknown key {key!r}",
                    f"{_meant(key, allowed)}allowed: {', '.join(allowed)}",
                )

    def _choices(
        self,
        table: Mapping[str, Any],
        key: str,
        place: str,
        words: tuple[str, ...],
        possible: tuple[str, ...],
        default: tuple[str, ...] = (),
    ) -> tuple[str, ...]:
        values = table.get(key, list(default) or None)
        if not isinstance(values, list) or not values:
            raise self._wrong(place + key, values, f"a list of {', '.join(possible)}")
        for value in values:
            if value not in possible:
                known = isinstance(value, str) and value in words
                expected = f"this workload has {', '.join(possible)}" if known else possible
                raise self._wrong(place + key, value, expected)
        return tuple(dict.fromkeys(values))

    def text(self, table: Mapping[str, Any], key: str) -> str:
        """One line. Raises GputuiError."""
        value = table.get(key)
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            raise self._wrong(key, value, "one line of printable text")
        return value

    def _number(
        self,
        table: Mapping[str, Any],
        key: str,
        place: str,
        low: float,
        high: float,
        default: float | None = None,
        *,
        kind: str = "a number",
    ) -> float:
        value = table.get(key, default)
        types = (int,) if kind == "a whole number" else (int, float)
        if type(value) not in types or not low <= value <= high:
            raise self._wrong(place + key, value, f"{kind} from {low:g} to {high:.15g}")
        return float(value)

    def whole(
        self, table: Mapping[str, Any], key: str, place: str, low: int, high: int, default: int | None = None
    ) -> int:
        """A whole number in this range. Raises GputuiError."""
        return int(self._number(table, key, place, low, high, default, kind="a whole number"))

    def _wrong(self, key: str, value: object, allowed: str | Iterable[str]) -> GputuiError:
        """What is allowed is described, or is one of some words."""
        shown = "missing" if value is None else f"{_shortened(value)} is not allowed"
        hint = (
            f"allowed: {allowed}"
            if isinstance(allowed, str)
            else f"{_meant(value, allowed)}allowed: {', '.join(allowed)}"
        )
        return GputuiError(f"profile {self._source}: {key}: {shown}", hint)


def _names_of(case: ProfileCase) -> Iterator[str]:
    """Of all that it measures, as results call them."""
    variants = product(case.devices, case.sizes, case.precisions, case.modes)
    for device, size, precision, mode in variants:
        spoken = "" if mode == "eager" else f" {mode}"
        for threads in (f" threads {t}" for t in case.threads) if device == "cpu" else ("",):
            yield f"{case.workload} {size} {device} {precision}{spoken}{threads}"


def _shortened(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # a whole number with more digits than Python prints
        return "such a number"
    return beginning(text, SHOWN_LETTERS)


def _meant(word: object, words: Iterable[str]) -> str:
    """The beginning of a hint, if one of the words is close to what was typed."""
    close = difflib.get_close_matches(word, list(words), n=1) if isinstance(word, str) else []
    return f"did you mean {close[0]}? " if close else ""
