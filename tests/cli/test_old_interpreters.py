"""A Python or a torch that is too old is refused by name and version, with the same message everywhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import gputui, gputui_here, write_spin_profile

from gputui.errors import EXIT_CASE_FAILED, EXIT_DONE, EXIT_MACHINE_LACKS

NEEDED = "gputui measures with torch 2.4 or newer"
NEEDS_PYTHON = "gputui measures with Python 3.10 or newer"


def environment(place: Path, torch: str = "", python: str = "") -> Path:
    """The Python of a new environment that has only a torch of this version; reports `python` as its own."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    packages = next(place.glob("lib/python*/site-packages"))
    if torch:
        (packages / "torch").mkdir()
        (packages / "torch" / "__init__.py").write_text(f"__version__ = {torch!r}\n")
    if python:
        numbers = ", ".join(python.split("."))
        (packages / "version.pth").write_text(f"import sys; sys.version_info = ({numbers}, 'final', 0)\n")
    return place / "bin" / "python"


@pytest.fixture(scope="module")
def old_torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("torch") / "env", torch="2.1.0")


@pytest.fixture(scope="module")
def old_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("python") / "env", torch="1.13.1", python="3.9.18")


@pytest.mark.parametrize(
    "words", [("run", "quick"), ("profiles", "quick"), ("doctor",), ("join", "127.0.0.1:1")]
)
def test_a_named_interpreter_that_is_too_old_is_refused(
    words: tuple[str, ...], old_torch: Path, old_python: Path
) -> None:
    install = f"{old_torch} -m pip install -U torch; or "
    for python, expected in (
        (old_torch, f"gputui: {old_torch} has torch 2.1.0; {NEEDED}\n  {install}"),
        (old_python, f"gputui: {old_python} is Python 3.9.18; {NEEDS_PYTHON}\n  name "),
    ):
        done = gputui_here(*words, "--python", python)
        assert (done.returncode, done.stdout) == (EXIT_MACHINE_LACKS, "")
        assert expected in done.stderr


@pytest.mark.slow
def test_one_that_is_passed_over_is_reported_if_another_is_taken(
    tmp_path: Path, old_torch: Path, old_python: Path
) -> None:
    """gputui runs in a Python whose torch is too old; so are all others that it finds."""
    output = f"passed over: {old_python} is Python 3.9.18; {NEEDS_PYTHON}"
    hidden = tmp_path / "hidden"
    (hidden / "torch").mkdir(parents=True)
    (hidden / "torch" / "__init__.py").write_text("__version__ = '2.1.0'\n")
    env = {"CONDA_PREFIX": str(old_python.parents[1]), "PYTHONPATH": str(hidden)}
    profile = write_spin_profile(tmp_path / "spin.toml")
    done = gputui("run", profile, "--db", tmp_path / "a.db", env=env)
    assert (done.returncode, output in done.stderr) == (EXIT_DONE, True)
    done = gputui("run", "quick", "--db", tmp_path / "a.db", env=env)
    assert done.returncode == EXIT_MACHINE_LACKS
    assert (
        f"torch 2.1.0 is too old: {NEEDED} in {sys.executable}; {old_python} is Python 3.9.18" in done.stderr
    )
    done = gputui("doctor", env=env)
    assert done.returncode == EXIT_CASE_FAILED
    words = " ".join(done.stdout.split())
    assert f"torch 2.1.0 is too old: {NEEDED}" in words
    assert f"is Python 3.9.18; {NEEDS_PYTHON}" in words
