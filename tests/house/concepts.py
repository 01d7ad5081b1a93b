"""How much there is of what should exist once: statements, dataclasses, concepts written several times, and
functions that are too long.

`python tests/house/concepts.py` prints the counts beside the records of concepts.json, with `-v` also places.
With `--lower` it lowers the records to the counts. None can be raised by it: a change that needs more takes
something else away.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from gputui.metrics import METRICS

REPOSITORY = Path(__file__).parents[2]
RECORDS = Path(__file__).with_name("concepts.json")

Trees = Mapping[str, ast.Module]
"""By path below the repository."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_VERDICTS = frozenset({"faster", "slower", "same", "inconclusive"})
_STYLES = frozenset({"good", "bad", "warn", "alarm", "open", "dim", "green", "yellow", "red"})
_WIDTHS = re.compile(r"width|room|fits", re.IGNORECASE)
_COLUMNS = re.compile(r"column|heading|form|table|parts|left_out", re.IGNORECASE)
_NO_COLUMNS = frozenset(
    {
        ("gputui/document/spans.py", "command_lines"),
        ("gputui/tui/screens/run_panes.py", "host_lines"),
        ("gputui/tui/widgets/cells.py", "ruled"),
        ("gputui/tui/shell/registry.py", "_screens_line"),
        ("gputui/services/advise/llm_serving.py", "_implies"),
    }
)
"""What they try are lines of text."""
_MOST_LINES, _MOST_PARAMETERS = 60, 10
_DRAWING = frozenset({"area", "Chart", "line_chart"})


def trees_of(package: Path = REPOSITORY / "gputui") -> Trees:
    return {
        path.relative_to(package.parent).as_posix(): ast.parse(path.read_text("utf-8"))
        for path in sorted(package.rglob("*.py"))
        if path.name != "built_version.py"  # which a build leaves in a clone
    }


def statements(trees: Trees) -> Iterator[str]:
    """Every statement, docstrings and fields among them."""
    for path, tree in trees.items():
        yield from (path for node in ast.walk(tree) if isinstance(node, ast.stmt))


def dataclasses(trees: Trees) -> Iterator[str]:
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and any(
                "dataclass" in ast.unparse(d) for d in node.decorator_list
            ):
                yield f"{path}: {node.name}"


def registries_of_metrics(trees: Trees) -> Iterator[str]:
    """Tables at the top level of a module that name at least three keys; what a source reads is its own."""
    keys = {key for metric in METRICS for key in (metric.key, metric.stored.key)}
    for path, tree in trees.items():
        for node in () if path.startswith("gputui/sources/") else tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                named = {part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)}
                if len(named & keys) >= 3:
                    yield f"{path}: {ast.unparse(node).partition('=')[0].partition(':')[0].strip()}"


def maps_from_verdict_to_style(trees: Trees) -> Iterator[str]:
    """Dictionaries with at least two verdicts as keys and styles as values."""
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Dict):
                keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
                words = {part.value for part in node.values if isinstance(part, ast.Constant)}
                if len(keys & _VERDICTS) >= 2 and words & _STYLES:
                    yield f"{path}:{node.lineno}"


def functions_that_choose_columns(trees: Trees) -> Iterator[str]:
    """Functions that try columns, headings, forms or tables one after the other until a width is kept."""
    for path, function in _functions(trees):
        place = path, function.name
        loops = [n for n in ast.walk(function) if isinstance(n, ast.For | ast.While | ast.GeneratorExp)]
        if place not in _NO_COLUMNS and any(map(_tries_columns, loops)):
            yield f"{path}: {function.name}"


def drawings_of_a_metric_over_time(trees: Trees) -> Iterator[str]:
    """Functions that call what makes a chart of characters or of SVG."""
    for path, function in _functions(trees):
        called = {
            node.func.id
            for node in ast.walk(function)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        if called & _DRAWING:
            yield f"{path}: {function.name}"


def _functions(trees: Trees) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, _FUNCTIONS):
                yield path, node


def _tries_columns(loop: ast.For | ast.While | ast.GeneratorExp) -> bool:
    tried = loop.test if isinstance(loop, ast.While) else loop.iter if isinstance(loop, ast.For) else loop
    return bool(_COLUMNS.search(ast.unparse(tried))) and any(map(_asks_for_width, ast.walk(loop)))


def _asks_for_width(node: ast.AST) -> bool:
    is_order = isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)
    is_asked = isinstance(node, ast.Call) and "fits" in ast.unparse(node.func)
    return is_asked or (is_order and bool(_WIDTHS.search(ast.unparse(node))))


def functions_that_are_too_long(trees: Trees) -> Iterator[str]:
    """Functions of more than 60 lines, docstrings and signatures included, or of more than 10 parameters."""
    for path, function in _functions(trees):
        given = function.args
        parameters = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > _MOST_LINES or parameters > _MOST_PARAMETERS:
            yield f"{path}: {function.name}, {lines} lines, {parameters} parameters"


CONCEPTS: Mapping[str, Callable[[Trees], Iterator[str]]] = {
    "statements": statements,
    "dataclasses": dataclasses,
    "registries of metrics": registries_of_metrics,
    "maps from verdict to style": maps_from_verdict_to_style,
    "functions that choose columns": functions_that_choose_columns,
    "functions that are too long": functions_that_are_too_long,
    "drawings of a metric over time": drawings_of_a_metric_over_time,
}


def records() -> dict[str, int]:
    found: dict[str, int] = json.loads(RECORDS.read_text("utf-8"))
    return found


def main(words: list[str]) -> None:
    trees, kept = trees_of(), records()
    for concept, find in CONCEPTS.items():
        found = list(find(trees))
        print(f"{concept}: {len(found)}, at most {kept[concept]}")
        if concept != "statements" and "-v" in words:
            print("\n".join(f"  {one}" for one in found))
        kept[concept] = min(kept[concept], len(found))
    if "--lower" in words:
        RECORDS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
