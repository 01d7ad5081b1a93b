"""Every metric that is stored or shown comes from a source."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gputui.metrics import METRICS, STORED
from gputui.sources import nvml_calls

OF_RUNS = ("base.py", "host.py", "nvml_calls.py")


@pytest.mark.parametrize(
    ("keys", "files"),
    [
        pytest.param([metric.stored.key for metric in STORED], OF_RUNS, id="of runs"),
        pytest.param([metric.key for metric in METRICS if metric.id], (), id="of the monitor"),
    ],
)
def test_a_source_gives_every_metric_by_its_key(
    keys: list[str], files: tuple[str, ...], repository: Path
) -> None:
    sources = (repository / "gputui" / "sources").rglob("*.py")
    trees = [ast.parse(path.read_text("utf-8")) for path in sources if not files or path.name in files]
    named = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    named |= {key for question in nvml_calls.OF_RUNS for key in question.keys}
    missing = [key for key in keys if key not in named]
    assert missing == [], f"no source in gputui/sources ({', '.join(files) or 'any file'}) gives these"
