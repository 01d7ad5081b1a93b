"""A user's workload: a file that declares a `WORKLOAD` under the same contract as ours."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any  # Any: whatever the user wrote

from .contract import Mistake, NotInContract, Request, Step, Workload, check
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
    except NotInContract:
        raise
    except (Exception, SystemExit) as error:  # the user's code may raise anything; only for the terminal
        message = str(error).strip().split("\n")[0]
        raise NotInContract(f"{place_in(error, path)}{type(error).__name__}: {message}") from error
    lines = declared_lines(tree)
    workload = getattr(module, "WORKLOAD", None)
    if not isinstance(workload, Workload):
        what = "no WORKLOAD" if workload is None else f"WORKLOAD is of type {type(workload).__name__}"
        line = f" line {lines['WORKLOAD']}" if "WORKLOAD" in lines else ""
        raise NotInContract(f"{path.name}{line}: {what}; expected WORKLOAD = Workload(name=..., ...)")
    try:
        check(workload)
    except Mistake as mistake:
        at = lines.get(mistake.field, lines.get("WORKLOAD", 1))
        raise NotInContract(f"{path.name} line {at}: {mistake}") from mistake
    return replace(workload, name=PREFIX + workload.name, build=_checked(workload.build, path))


def described(path: Path) -> dict[str, Any]:
    """What the file declares, as JSON: its fields and their lines; or `error`."""
    try:
        workload = load(path)
    except NotInContract as error:
        return {"error": str(error)}
    fields = ("name", "version", "title", "question", "workload_class", "unit", "needs_torch", "is_alone")
    return {
        **{field: getattr(workload, field) for field in (*fields, "precisions", "device_classes")},
        "sizes": {name: asdict(size) for name, size in workload.sizes.items()},
    }


def declared_lines(tree: ast.Module) -> dict[str, int]:
    """Lines of `WORKLOAD = Workload(...)` and of each of its keywords."""
    lines: dict[str, int] = {}
    for node in (node for node in tree.body if isinstance(node, ast.Assign)):
        if any(isinstance(target, ast.Name) and target.id == "WORKLOAD" for target in node.targets):
            lines["WORKLOAD"] = node.lineno
            keywords = node.value.keywords if isinstance(node.value, ast.Call) else []
            lines |= {keyword.arg: keyword.value.lineno for keyword in keywords if keyword.arg}
    return lines


def _checked(build: Callable[[Request], Step], path: Path) -> Callable[[Request], Step]:
    def checked(request: Request) -> Step:
        step: object = build(request)
        if isinstance(step, Step):
            return step
        at = build.__code__.co_firstlineno if hasattr(build, "__code__") else 1
        raise NotInContract(f"{path.name} line {at}: build gave {type(step).__name__}; expected Step(run)")

    return checked
