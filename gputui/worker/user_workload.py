"""A user's workload: a file that declares a `WORKLOAD` under the same contract as ours."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any  # Any: whatever the user wrote

from .contract import NotInContract, Request, Step, Workload, mistake_in
from .failures import place_in

PREFIX = "step:"
"""Prefix of the name of a user's workload, so that it never collides with one of ours."""


def load(path: Path) -> Workload:
    """The workload that a file declares, its name prefixed with PREFIX.

    The file's directory is added to the end of the import path. Raises NotInContract.
    """
    try:
        tree = ast.parse(path.read_bytes(), path.name)
    except (OSError, SyntaxError, ValueError) as error:
        line = f" line {error.lineno}" if isinstance(error, SyntaxError) else ""
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        raise NotInContract(f"{path.name}{line}: {message}") from error
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location("gputui_own_step", path)
    assert spec is not None and spec.loader is not None  # noqa: PT018 — a path that ends in .py has both
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise NotInContract(_located(error, path)) from error
    lines = declared_lines(tree)
    workload = getattr(module, "WORKLOAD", None)
    if not isinstance(workload, Workload):
        what = "no WORKLOAD" if workload is None else f"WORKLOAD is of type {type(workload).__name__}"
        line = f" line {lines['WORKLOAD']}" if "WORKLOAD" in lines else ""
        raise NotInContract(f"{path.name}{line}: {what}; expected WORKLOAD = Workload(name=..., ...)")
    wrong = mistake_in(workload)
    if wrong is not None:
        at = lines.get(wrong.field, lines.get("WORKLOAD", 1))
        raise NotInContract(f"{path.name} line {at}: {wrong.field}: {wrong.message}")
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
    return {
        **plain,
        "sizes": sizes,
        "precisions": list(workload.precisions),
        "device_classes": list(workload.device_classes),
    }


def _located(error: BaseException, path: Path) -> str:
    """An error with its message and the line of the user's file that led to it: only for the terminal."""
    if isinstance(error, NotInContract):
        return str(error)
    message = str(error).strip().split("\n")[0]
    return f"{place_in(error, path)}{type(error).__name__}: {message}"


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
