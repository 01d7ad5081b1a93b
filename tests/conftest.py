"""Fixtures for all tests: each has a separate home, state directory and terminal."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_DIRECTORIES = {
    "HOME": "home",
    "XDG_CACHE_HOME": "home/.cache",
    "XDG_CONFIG_HOME": "home/.config",
    "XDG_DATA_HOME": "home/.local/share",
    "XDG_STATE_HOME": "home/.local/state",
    "GPUTUI_REFERENCES": "references",
    "GPUTUI_STATE": "state",
}
_NAMES = frozenset(
    {
        "CLICOLOR",
        "CLICOLOR_FORCE",
        "COLORTERM",
        "COLUMNS",
        "BITBUCKET_BUILD_NUMBER",
        "BUILDKITE",
        "CI",
        "CIRCLECI",
        "CODEBUILD_BUILD_ID",
        "CONDA_PREFIX",
        "CUDA_VISIBLE_DEVICES",
        "DRONE",
        "FORCE_COLOR",
        "GITHUB_ACTIONS",
        "GITLAB_CI",
        "HIP_VISIBLE_DEVICES",
        "JENKINS_URL",
        "LINES",
        "NO_COLOR",
        "PYTHONSAFEPATH",
        "ROCR_VISIBLE_DEVICES",
        "STY",
        "TEAMCITY_VERSION",
        "TF_BUILD",
        "TMUX",
        "VIRTUAL_ENV",
        "ZE_AFFINITY_MASK",
    }
)
_PREFIXES = ("COLAB_", "GPUTUI_", "JPY_", "KAGGLE_", "SLURM_", "SSH_", "TEXTUAL_")

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else all processes of all tests compile everything anew
sys.dont_write_bytecode = False


def _surroundings() -> list[str]:
    """The variables that tell what the tests run in: a CI job, a notebook, somebody's terminal."""
    return [name for name in os.environ if name in _NAMES or name.startswith(_PREFIXES)]


def pytest_configure() -> None:
    """Make children start as from a terminal, those of fixtures that many tests share too.

    Without CI's variables, and with the default action of signals that nohup or a background job ignores.
    """
    for name in _surroundings():
        del os.environ[name]
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    gc.disable()  # importing all tests makes no garbage, and looking for it takes a quarter of the time


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file without a slow test where only these are wanted, which is most of what collecting takes.

    The mark is always written in the file of its test.
    """
    if re.match(r"slow|alone", config.option.markexpr) and collection_path.match("test_*.py"):
        return not re.search(r"\b(slow|alone)\b", collection_path.read_text(encoding="utf-8")) or None
    return None


def pytest_collection_finish() -> None:
    """Spare collections what all tests have imported: a launch collects garbage after each case.

    Between these, a screen makes so much that lives on that looking for garbage takes a tenth of a test.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_unconfigure() -> None:
    """Free DuckDB's types, which its bindings would report as leaked.

    A command that ran in this process has exempted them from garbage collection.
    """
    gc.unfreeze()


def _isolate(place: Path, probes: Path, patch: pytest.MonkeyPatch) -> None:
    """Nothing of the user's is read or written: `place` has a home, and an empty working directory.

    The one that pytest was started in may hold result files. What only a home has is created on demand.
    """
    for name in _surroundings():
        patch.delenv(name)
    for name, directory in _DIRECTORIES.items():
        patch.setenv(name, str(place / directory))
    cache = place / _DIRECTORIES["XDG_CACHE_HOME"] / "gputui"
    cache.mkdir(parents=True)
    (cache / "probes").symlink_to(probes)
    patch.setenv("GPUTUI_DB", str(place / "results.db"))
    (place / "here").mkdir()
    patch.chdir(place / "here")


@pytest.fixture(scope="session")
def _users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("users")


@pytest.fixture(scope="session")
def of_all_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that the processes of one pytest share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def _probes(of_all_processes: Path) -> Path:
    """What probing an interpreter found, for all tests: to import torch takes seconds."""
    probes = of_all_processes / "probes"
    probes.mkdir(exist_ok=True)
    return probes


@pytest.fixture(scope="session", autouse=True)
def _isolated_session(_users: Path, _probes: Path) -> Iterator[None]:
    """The surroundings of fixtures that many tests share."""
    with pytest.MonkeyPatch.context() as patch:
        _isolate(Path(tempfile.mkdtemp(dir=_users)), _probes, patch)
        yield


@pytest.fixture(autouse=True)
def _isolated_environment(monkeypatch: pytest.MonkeyPatch, _users: Path, _probes: Path) -> None:
    """The surroundings of one test, outside of its `tmp_path`, which stays empty."""
    _isolate(Path(tempfile.mkdtemp(dir=_users)), _probes, monkeypatch)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout under test."""
    return Path(__file__).resolve().parents[1]
