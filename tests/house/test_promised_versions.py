"""The versions that the metadata promises are those that .ci/run tests."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any  # TOML

import pytest
import tomllib


@pytest.fixture
def project(repository: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]
    return found


def test_the_pythons_and_systems_named_are_those_that_are_tested(
    project: dict[str, Any], repository: Path
) -> None:
    steps = (repository / ".ci" / "run").read_text("utf-8")
    loop = re.search(r"^ *for minor in ([\d ]+);", steps, re.MULTILINE)
    assert loop is not None
    assert "python3.11 -m venv --without-pip floors\n" in steps
    tested = ["11", *loop[1].split()]
    named = re.findall(r":: Python :: 3\.(\d+)", "\n".join(project["classifiers"]))
    assert named == tested[: len(named)]
    assert project["requires-python"] == ">=3.11"
    systems = [text for text in project["classifiers"] if text.startswith("Operating System")]
    assert systems == ["Operating System :: POSIX :: Linux"]


def test_the_lowest_versions_that_are_tested_are_the_floors_of_the_metadata(
    project: dict[str, Any], repository: Path
) -> None:
    script = repository / ".ci" / "floors.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    floors = [dependency.partition(",")[0].replace(">=", "==") for dependency in project["dependencies"]]
    printed = done.stdout.split()
    assert {*floors, "numpy<2"} <= set(printed)
    names = [re.split("[=<]", line)[0] for line in printed]
    assert len(set(names)) == len(names)
    assert "pytest" in names
