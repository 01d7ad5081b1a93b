"""Checks workloads against the contract: ours when they are imported, a user's when its file is read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from .contract import Figure, Size, Workload

CLASSES = ("ceiling", "training", "inference", "host")
UNITS = ("flop", "B", "img", "tok", "seq", "frame", "req", "step", "run")
PRECISIONS = ("fp32", "tf32", "amp")
DEVICES = ("cpu", "gpu")
MODES = ("eager", "compile")
FORMS = ("same", "best")
SUFFIXES = {
    "s": "_s",
    "B": "_bytes",
    "B/s": "_bytes_per_s",
    "1/s": "_per_s",
    "share": "_share",
    "ratio": "_ratio",
    "count": "_count",
}
"""Units of figures, and the suffixes of their keys."""
BETTER = ("less", "more", "neither")
COMBINES = ("median", "sum", "max", "min")
_LARGEST = 2**63 - 1
_TITLE_LETTERS = 40
_VALUE_LETTERS = 60
_NAME = re.compile(r"[a-z0-9_-]{1,40}")
_KEY = re.compile(r"[a-z][a-z0-9_]{0,39}")
_PARAMETER = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,39}")
_NAME_RULE = "1 to 40 of a-z, 0-9, _ and -"


class NotInContract(Exception):
    """What is wrong with a workload: its file, the line if known, and what was expected."""


@dataclass(frozen=True)
class Mistake:
    """The first violation found."""

    field: str
    """Name of the `Workload` field."""
    message: str
    """The value, and what was expected."""


def mistake_in(workload: Workload) -> Mistake | None:
    """The first violation of the contract by any workload; None if it conforms."""
    return next(iter(_mistakes(workload)), None)


def check_all(workloads: Sequence[Workload]) -> None:
    """Raise NotInContract for the first of our workloads that violates the contract, naming its file."""
    names: set[str] = set()
    for workload in workloads:
        wrong = mistake_in(workload)
        if wrong is None and workload.name in names:
            wrong = Mistake("name", f"{workload.name!r} is that of another workload")
        if wrong is not None:
            file = f"{getattr(workload.build, '__module__', '?').rpartition('.')[2]}.py"
            raise NotInContract(f"{file}: {wrong.field}: {wrong.message}")
        names.add(workload.name)


def _mistakes(workload: Workload) -> Iterator[Mistake]:
    """The violations. After one, those that follow mean nothing: their checks rely on those before."""
    yield from _unfit(
        workload,
        ("name", _is_name(workload.name), _NAME_RULE),
        ("version", _is_whole(workload.version, 1), "a whole number from 1"),
        ("title", _is_line(workload.title), "one line of text"),
        ("question", _is_line(workload.question), "one line of text"),
        ("workload_class", _is_one(workload.workload_class, CLASSES), _one_of(CLASSES)),
        ("unit", _is_one(workload.unit, UNITS), _one_of(UNITS)),
        ("precisions", _are(workload.precisions, PRECISIONS), _some_of(PRECISIONS)),
        ("device_classes", _are(workload.device_classes, DEVICES), _some_of(DEVICES)),
        ("modes", _are(workload.modes, MODES), _some_of(MODES)),
        ("form", _is_one(workload.form, FORMS), _one_of(FORMS)),
        ("figures_s", _is_number(workload.figures_s, 0, 1e9), "seconds from 0"),
        *(
            (name, isinstance(getattr(workload, name), bool), "True or False")
            for name in ("needs_torch", "is_alone", "is_sustained", "is_traceable")
        ),
        ("build", callable(workload.build), "a function of a Request that gives a Step"),
    )
    yield from _in_figures(workload.figures)
    yield from _in_sizes(workload.sizes)


def _in_figures(figures: object) -> Iterator[Mistake]:
    if not isinstance(figures, tuple) or not all(isinstance(figure, Figure) for figure in figures):
        yield _wrong("figures", figures, "a tuple of Figure(key, title, unit, better, combine)")
        return
    seen: set[str] = set()
    title = f"one line of at most {_TITLE_LETTERS} letters"
    key = "1 to 40 of a-z, 0-9 and _, a letter first"
    for number, figure in enumerate(figures, 1):
        unfit = partial(_unfit, figure, of="figures", where=f"figure {number}: ")
        yield from unfit(
            ("unit", _is_one(figure.unit, SUFFIXES), _one_of(SUFFIXES)),
            ("better", _is_one(figure.better, BETTER), _one_of(BETTER)),
            ("combine", _is_one(figure.combine, COMBINES), _one_of(COMBINES)),
            ("title", _is_line(figure.title) and len(figure.title) <= _TITLE_LETTERS, title),
            ("key", isinstance(figure.key, str) and _KEY.fullmatch(figure.key) is not None, key),
        )
        suffix = SUFFIXES[figure.unit]
        yield from unfit(
            ("key", figure.key not in seen, "another key for each"),
            ("key", figure.key.endswith(suffix), f"a key that ends in its unit, {suffix}"),
        )
        seen.add(figure.key)


def _in_sizes(sizes: object) -> Iterator[Mistake]:
    if not isinstance(sizes, dict) or not sizes:
        yield _wrong("sizes", sizes, "a dictionary of names with a Size each")
        return
    for name, size in sizes.items():
        if not _is_name(name):
            yield _wrong("sizes", name, _NAME_RULE, "name ")
        elif not isinstance(size, Size):
            yield _wrong("sizes", size, "Size(parameters, units_per_step, ...)", f"{name} ")
        else:
            yield from _in_size(name, size)


def _in_size(name: str, size: Size) -> Iterator[Mistake]:
    whole = f"a whole number from 0 to {_LARGEST}"
    yield from _unfit(
        size,
        ("units_per_step", _is_number(size.units_per_step, 1e-60, 1e60), "a number from 1e-60 to 1e60"),
        *(
            (count, getattr(size, count) is None or _is_whole(getattr(size, count), 0), f"{whole}, or None")
            for count in ("flops_per_step", "bytes_per_step", "amp_bytes_per_step")
        ),
        ("memory_bytes", _is_whole(size.memory_bytes, 0), whole),
        ("gpus", _is_whole(size.gpus, 1), "a whole number from 1"),
        ("hosts", _is_whole(size.hosts, 1), "a whole number from 1"),
        ("parameters", isinstance(size.parameters, dict), "a dictionary"),
        of="sizes",
        where=f"{name}: ",
    )
    for key, value in size.parameters.items():
        if not isinstance(key, str) or not _PARAMETER.fullmatch(key):
            expected = "1 to 40 letters, digits, _, . and -, a letter first"
            yield _wrong("sizes", key, expected, f"{name}: the name of a parameter ")
        elif not _is_parameter(value):
            expected = "a finite number, whole ones of 64 bits, one line of text, True or False"
            yield _wrong("sizes", value, expected, f"{name}: parameter {key} ")


def _unfit(owner: object, *checks: tuple[str, bool, str], of: str = "", where: str = "") -> Iterator[Mistake]:
    """The fields of a workload, or of a part in its field `of`, that do not fit, with what was expected."""
    for field, fits, expected in checks:
        if not fits:
            yield _wrong(of or field, getattr(owner, field), expected, f"{where}{field} " if of else "")


def _wrong(field: str, value: object, expected: str, where: str = "") -> Mistake:
    try:
        shown = repr(value)
    except Exception:  # the user's class may raise anything
        shown = type(value).__name__
    shown = shown if len(shown) <= _VALUE_LETTERS else f"{shown[:_VALUE_LETTERS]}…"
    return Mistake(field, f"{where}{'is ' if where else ''}{shown}; expected {expected}")


def _is_name(value: object) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _is_line(value: object) -> bool:
    return isinstance(value, str) and value != "" and value.isprintable()


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _LARGEST


def _is_number(value: object, least: float, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def _is_parameter(value: object) -> bool:
    if isinstance(value, str):
        return value.isprintable()
    return (
        isinstance(value, int | float)
        and math.isfinite(value)
        and (isinstance(value, float) or -_LARGEST <= value <= _LARGEST)
    )


def _is_one(value: object, allowed: Iterable[str]) -> bool:
    return isinstance(value, str) and value in allowed


def _are(values: object, allowed: tuple[str, ...]) -> bool:
    return (
        isinstance(values, tuple | list)
        and len(values) > 0
        and all(_is_one(value, allowed) for value in values)
    )


def _one_of(allowed: Iterable[str]) -> str:
    return f"one of {', '.join(allowed)}"


def _some_of(allowed: Iterable[str]) -> str:
    return f"some of {', '.join(allowed)}"
