"""Every metric that is stored or shown comes from a source."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gputui.model import telemetry
from gputui.tui.monitor import metrics


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param([metric.key for metric in telemetry.METRICS], id="of runs"),
        pytest.param(
            [metric.key for metric in (*metrics.METRICS, *metrics.HOST_METRICS)], id="of the monitor"
        ),
    ],
)
def test_a_source_gives_every_metric_by_its_key(keys: list[str], repository: Path) -> None:
    files = (repository / "gputui" / "sources").rglob("*.py")
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    named = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert [key for key in keys if key not in named] == [], "no file of gputui/sources names these keys"
