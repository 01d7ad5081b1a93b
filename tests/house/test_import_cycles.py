"""No module and no room of gputui imports itself indirectly, not even lazily or only for types."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

Graph = dict[str, set[str]]


def module_name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def imports_of(repository: Path) -> Graph:
    """Every module with its imports, at any place in the file."""
    files = {module_name(p.relative_to(repository)): p for p in (repository / "gputui").rglob("*.py")}
    found: Graph = {}
    for name, path in files.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        imported: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                source = ".".join([*base, *filter(None, [node.module])])
                imported |= {
                    inner if (inner := f"{source}.{alias.name}") in files else source for alias in node.names
                }
        found[name] = {other for other in imported if other in files and other != name}
    return found


def room_of(module: str) -> str:
    """The room of a module; a module directly on a floor is its own room."""
    parts = module.split(".")
    is_screen, is_on_floor = (
        parts[1:3] == ["tui", "screens"],
        parts[1:2] in (["services"], ["tui"], ["worker"]),
    )
    return ".".join(parts[: 4 if is_screen else 3 if is_on_floor else 2])


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """What remains after repeatedly removing everything that imports nothing, or that nothing imports."""
    left = {name: set(others) for name, others in graph.items()}
    while True:
        imported = set().union(*left.values()) if left else set()
        ends = {name for name, others in left.items() if not others or name not in imported}
        if not ends:
            return [sorted(left)] if left else []
        left = {name: others - ends for name, others in left.items() if name not in ends}


def test_no_module_and_no_room_imports_itself_by_a_detour(repository: Path) -> None:
    imports = imports_of(repository)
    assert len(imports) > 200
    assert circles(imports) == []
    rooms: Graph = {}
    for module, others in imports.items():
        mine = rooms.setdefault(room_of(module), set())
        mine |= {room_of(other) for other in others} - {room_of(module)}
    known = {"gputui.services.compare", "gputui.tui.screens.run_pages", "gputui.worker.workloads"}
    assert known <= rooms.keys()
    assert circles(rooms) == []


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]
