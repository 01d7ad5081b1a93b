"""What was written to be registered is registered: a forgotten name in a tuple is an error that names it."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
import tomllib

from gputui.cli.verbs import COMMANDS
from gputui.recording.sampler import gpu_sources
from gputui.services.compare import columns
from gputui.services.compare.pairing import Cell
from gputui.tui.shell.registry import SCREENS
from gputui.worker.contract import Workload
from gputui.worker.workloads import WORKLOADS


def defined_in(path: Path) -> dict[str, ast.stmt]:
    """The functions, classes and assignments of a module's top level, by name."""
    found: dict[str, ast.stmt] = {}
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id: node for target in targets if isinstance(target, ast.Name)}
    return found


def unlisted_workloads(package: Path) -> Iterator[str]:
    for path in (package / "worker" / "workloads").glob("*.py"):
        module = importlib.import_module(f"gputui.worker.workloads.{path.stem}")
        declared = [one for one in vars(module).values() if isinstance(one, Workload)]
        yield from (f"{one.name} of {path.name}" for one in declared if one not in WORKLOADS)


def screens_in(package: Path) -> set[str]:
    modules = (package / "tui" / "screens").glob("*.py")
    return {path.stem for path in modules if "\nSCREEN = " in path.read_text("utf-8")}


def unlisted_screens(package: Path) -> Iterator[str]:
    yield from screens_in(package) - {entry.id for entry in SCREENS}


def unlisted_commands(package: Path) -> Iterator[str]:
    listed = {command.module for command in COMMANDS}
    for path in (package / "cli").glob("[!_]*.py"):
        for name, node in defined_in(path).items():
            decorators = map(ast.unparse, getattr(node, "decorator_list", ()))
            place = path.stem if name == "command" else f"{path.stem}:{name}"
            if place not in listed and any(
                one.startswith(("click.command", "click.group")) for one in decorators
            ):
                yield place


def unlisted_checks(package: Path) -> Iterator[str]:
    path = package / "services" / "doctor" / "checks.py"
    used = {node.id for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Name)}
    for name, node in defined_in(path).items():
        returned = node.returns if isinstance(node, ast.FunctionDef) else None
        if returned and ast.unparse(returned) == "Iterator[Check]" and name not in used:
            yield name


def unlisted_columns(package: Path) -> Iterator[str]:
    for name, value in vars(columns).items():
        if isinstance(value, columns.ComparisonColumn) and value not in columns.COLUMNS:
            yield name


def unlisted_sources(package: Path) -> Iterator[str]:
    protocols = defined_in(package / "sources" / "base.py")
    of_a_source = methods_of(protocols["Source"])
    listed = gpu_sources.__code__.co_names
    for path in (package / "sources").rglob("*.py"):
        for name, node in defined_in(path).items():
            if name not in {*listed, *protocols} and methods_of(node) >= of_a_source:
                yield name


def methods_of(node: ast.stmt) -> set[str]:
    if not isinstance(node, ast.ClassDef):
        return set()
    return {part.name for part in node.body if isinstance(part, ast.FunctionDef)}


@pytest.mark.parametrize(
    ("unlisted", "registry"),
    [
        (unlisted_workloads, "WORKLOADS in gputui/worker/workloads/__init__.py"),
        (unlisted_screens, "SCREENS in gputui/tui/shell/registry.py"),
        (unlisted_commands, "a group of GROUPS in gputui/cli/verbs.py"),
        (unlisted_checks, "CHECKS in gputui/services/doctor/checks.py"),
        (unlisted_columns, "COLUMNS in gputui/services/compare/columns.py"),
        (unlisted_sources, "gpu_sources in gputui/recording/sampler.py"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_nothing_is_written_and_then_not_registered(
    unlisted: Callable[[Path], Iterable[str]], registry: str, repository: Path
) -> None:
    missing = sorted(unlisted(repository / "gputui"))
    assert missing == [], f"add {', '.join(missing)} to {registry}"


def test_the_contract_that_keeps_screens_apart_names_every_screen(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (kept_apart,) = [contract["modules"] for contract in contracts if contract["type"] == "independence"]
    made = {f"gputui.tui.screens.{name}" for name in screens_in(repository / "gputui")}
    missing = sorted(made - set(kept_apart))
    assert missing == [], f'add {", ".join(missing)} to "Screens do not know each other" in pyproject.toml'


def test_no_two_columns_of_compare_share_a_csv_column() -> None:
    names = [name for column in columns.COLUMNS for name in column.csv(Cell())]
    twice = sorted({name for name in names if names.count(name) > 1})
    assert twice == [], f"{', '.join(twice)}: two columns of gputui/services/compare/columns.py write it"
