"""A workload of the user's: a file that declares a `WORKLOAD` in the contract of the workloads here."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any  # whatever the user wrote

from .contract import Figure, Request, Size, Step, Workload

PREFIX = "step:"
"""Before the name of a user's workload, so that it is never taken for one of ours."""
CLASSES = ("ceiling", "training", "inference", "host")
PRECISIONS = ("fp32", "tf32", "amp")
DEVICES = ("cpu", "gpu")
UNITS_OF_FIGURES = ("s", "B", "B/s", "1/s", "share", "ratio", "count")
_NAME = re.compile(r"[a-z0-9_-]{1,40}")


class NotInContract(Exception):
    """What is wrong with the file: its name, the line, and what was expected."""


def load(path: Path) -> Workload:
    """The workload a file declares, its name behind PREFIX.

    The file's directory can be imported from, after all others. Raises NotInContract.
    """
    try:
        tree = ast.parse(path.read_bytes(), path.name)
    except (OSError, SyntaxError, ValueError) as error:
        line = f" line {error.lineno}" if isinstance(error, SyntaxError) else ""
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        raise NotInContract(f"{path.name}{line}: {said}") from error
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location("gputui_own_step", path)
    assert spec is not None and spec.loader is not None  # noqa: PT018 — a path that ends in .py has both
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the user's own code may raise anything
        raise NotInContract(located(error, path)) from error
    lines = declared_lines(tree)
    workload = getattr(module, "WORKLOAD", None)
    if not isinstance(workload, Workload):
        what = "no WORKLOAD" if workload is None else f"WORKLOAD is of type {type(workload).__name__}"
        line = f" line {lines['WORKLOAD']}" if "WORKLOAD" in lines else ""
        raise NotInContract(f"{path.name}{line}: {what}; expected WORKLOAD = Workload(name=..., ...)")
    wrong = _first_mistake(workload)
    if wrong:
        key, expected = wrong
        at = lines.get(key, lines.get("WORKLOAD", 1))
        raise NotInContract(f"{path.name} line {at}: {key}: expected {expected}")
    return replace(workload, name=PREFIX + workload.name, build=_checked(workload.build, path))


def described(path: Path) -> dict[str, Any]:
    """What the file declares, as JSON: its fields and their lines; or `error`."""
    try:
        workload = load(path)
    except NotInContract as error:
        return {"error": str(error)}
    sizes = {name: asdict(size) for name, size in workload.sizes.items()}
    plain = {
        name: getattr(workload, name)
        for name in (
            "name",
            "version",
            "title",
            "question",
            "workload_class",
            "unit",
            "needs_torch",
            "is_alone",
        )
    }
    lines = declared_lines(ast.parse(path.read_bytes()))
    return {
        **plain,
        "sizes": sizes,
        "precisions": list(workload.precisions),
        "device_classes": list(workload.device_classes),
        "unit_line": lines.get("unit", lines.get("WORKLOAD", 1)),
    }


def located(error: BaseException, path: Path) -> str:
    """An error with the line of the user's file that led to it."""
    if isinstance(error, NotInContract):
        return str(error)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == path]
    line = f" line {frames[-1].lineno}" if frames else ""
    said = str(error).strip().split("\n")[0]
    return f"{path.name}{line}: {type(error).__name__}: {said}"


def declared_lines(tree: ast.Module) -> dict[str, int]:
    """Lines of `WORKLOAD = Workload(...)` and of each of its keywords."""
    lines: dict[str, int] = {}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == "WORKLOAD" for target in targets):
            lines["WORKLOAD"] = node.lineno
            call = getattr(node, "value", None)
            for keyword in call.keywords if isinstance(call, ast.Call) else ():
                if keyword.arg:
                    lines[keyword.arg] = keyword.value.lineno
    return lines


def _first_mistake(workload: Workload) -> tuple[str, str] | None:
    """The field that is wrong, and what was expected of it."""
    texts = all(
        isinstance(text, str) and text and text.isprintable() for text in (workload.title, workload.question)
    )
    checks = (
        (
            "name",
            isinstance(workload.name, str) and _NAME.fullmatch(workload.name),
            "1 to 40 of a-z, 0-9, _ and -",
        ),
        ("version", _is_whole(workload.version, 1), "a whole number from 1"),
        ("title", texts, "title and question: one line of text each"),
        ("workload_class", workload.workload_class in CLASSES, f"one of {', '.join(CLASSES)}"),
        ("unit", isinstance(workload.unit, str), "what is counted, such as img or tok"),
        ("precisions", _are(workload.precisions, PRECISIONS), f"some of {', '.join(PRECISIONS)}"),
        ("device_classes", _are(workload.device_classes, DEVICES), f"some of {', '.join(DEVICES)}"),
        ("needs_torch", isinstance(workload.needs_torch, bool), "True or False"),
        ("build", callable(workload.build), "a function of a Request that gives a Step"),
        (
            "figures",
            _are_figures(workload.figures),
            "a tuple of Figure: key, title, unit, better, combine, each one of those in the contract",
        ),
        (
            "sizes",
            _are_sizes(workload.sizes),
            "names with a Size each: units_per_step from 1e-60 to 1e60, plain parameters",
        ),
    )
    return next(((key, expected) for key, fits, expected in checks if not fits), None)


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _are(values: object, allowed: tuple[str, ...]) -> bool:
    return isinstance(values, tuple | list) and len(values) > 0 and all(value in allowed for value in values)


def _are_figures(figures: object) -> bool:
    return isinstance(figures, tuple) and all(
        isinstance(figure, Figure)
        and all(isinstance(text, str) and text.isprintable() for text in (figure.key, figure.title))
        and figure.unit in UNITS_OF_FIGURES
        and figure.better in ("less", "more", "neither")
        and figure.combine in ("median", "sum", "max", "min")
        for figure in figures
    )


def _are_sizes(sizes: object) -> bool:
    return (
        isinstance(sizes, dict)
        and len(sizes) > 0
        and all(isinstance(name, str) and _NAME.fullmatch(name) for name in sizes)
        and all(isinstance(size, Size) and _is_size(size) for size in sizes.values())
    )


def _is_size(size: Size) -> bool:
    counts = (size.flops_per_step, size.bytes_per_step, size.amp_bytes_per_step)
    return (
        isinstance(size.parameters, dict)
        and all(isinstance(value, bool | int | float | str) for value in size.parameters.values())
        and isinstance(size.units_per_step, int | float)
        and 1e-60 <= size.units_per_step <= 1e60
        and all(count is None or _is_whole(count, 0) for count in counts)
        and _is_whole(size.memory_bytes, 0)
    )


def _checked(build: Callable[[Request], Step], path: Path) -> Callable[[Request], Step]:
    def checked(request: Request) -> Step:
        step: object = build(request)
        if not isinstance(step, Step):
            at = build.__code__.co_firstlineno if hasattr(build, "__code__") else 1
            raise NotInContract(
                f"{path.name} line {at}: build gave {type(step).__name__}; expected Step(run)"
            )
        return step

    return checked
