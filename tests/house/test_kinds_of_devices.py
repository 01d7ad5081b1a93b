"""Kinds of accelerators are named in one module of the worker: what a new kind takes is read there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

KIND = re.compile(r"\b(cuda|mps|xpu)\b|_VISIBLE_DEVICES|ZE_AFFINITY_MASK")


def words_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Names and texts of a module by line, without docstrings, which may name a kind as an example."""
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.alias):
            yield node.lineno, node.name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            yield node.lineno, node.value


def kinds_in(text: str) -> list[int]:
    return sorted(line for line, word in words_of(ast.parse(text)) if KIND.search(word))


def test_no_module_of_the_worker_but_one_names_a_kind_of_accelerator(repository: Path) -> None:
    worker = repository / "gputui" / "worker"
    files = [*worker.rglob("*.py"), repository / "gputui" / "recording" / "worker_process.py"]
    naming = {file.name: kinds_in(file.read_text("utf-8")) for file in files}
    assert [name for name, lines in naming.items() if lines] == ["accelerator.py"], naming


def test_a_kind_is_found_in_names_calls_and_texts_and_not_where_a_word_only_holds_it() -> None:
    code = 'import torch.cuda\ntorch.xpu.synchronize()\nf"{x} mps"\nif d == "cuda": pass'
    assert kinds_in(code) == [1, 2, 3, 4]
    assert kinds_in('"""On `cuda` it waits."""\nname = "torch_cuda", "mps_"\n# cuda') == []
