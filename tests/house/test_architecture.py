"""Imports as real processes make them; and where the profiles are found."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from gputui.cli.verbs import COMMANDS
from gputui.recording.probing import MEASURING_HALF
from gputui.services.profiles.loader import shipped_profiles

MAY_BE_THERE = {"pynvml", "psutil", "_psutil_linux", "_psutil_posix", "gputui"}
"""Allowed besides the standard library in the half that measures."""
HEAVY = {"torch", "textual", "pandas"}

AFTER_IMPORTS = """
import importlib, json, sys
brought = {}
for name in sys.argv[1:]:
    before = set(sys.modules)
    importlib.import_module(name)
    for new in set(sys.modules) - before:
        brought.setdefault(new.partition(".")[0], name)
print(json.dumps(brought))
"""
"""Prints which packages were imported, with who was the first to."""
AFTER_COMMANDS = """
import json, sys
from gputui.cli import main
for words in json.loads(sys.argv[1]):
    try:
        status = main(words)
    except SystemExit as ended:
        status = ended.code
    print()
    print(json.dumps([status, sorted({name.partition(".")[0] for name in sys.modules})]), flush=True)
"""
"""One after the other in one process: what the first do not import is not there by then."""


def python(code: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run code in a separate Python, without imports by coverage or site hooks."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done


def modules_of(room: str, repository: Path) -> list[str]:
    files = (repository / "gputui" / room).rglob("*.py")
    return [
        ".".join(file.relative_to(repository).with_suffix("").parts).removesuffix(".__init__")
        for file in sorted(files)
        if file.name not in ("__main__.py", "start.py")
    ]


def test_the_half_that_measures_imports_the_standard_library_alone(repository: Path) -> None:
    rooms = *MEASURING_HALF, "errors", "metrics"
    names = [name for room in rooms for name in modules_of(room, repository) or [f"gputui.{room}"]]
    # Which a workload imports when it is built:
    needs_torch = "gputui.worker.models"
    imported = imported_by("gputui.errors", *(name for name in names if not name.startswith(needs_torch)))
    ours = sys.stdlib_module_names | MAY_BE_THERE
    assert {name: by for name, by in imported.items() if name not in ours} == {}
    assert "gputui" in imported


def imported_by(*names: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(python(AFTER_IMPORTS, *names).stdout)
    return found


def test_analysis_and_facts_need_no_database_and_no_terminal() -> None:
    imported = imported_by("gputui.analysis.verdict", "gputui.facts.tables")
    assert imported.keys() & {*HEAVY, "duckdb", "rich", "click", "scipy", "psutil", "pynvml"} == set()


def test_help_of_a_command_and_the_list_of_profiles_import_nothing_heavy(tmp_path: Path) -> None:
    of_many = [["--help"], ["db", "--help"], ["self"]]
    all_words = [*of_many, ["profiles"], *([command.name, "--help"] for command in COMMANDS)]
    lines = python(AFTER_COMMANDS, json.dumps(all_words), cwd=tmp_path).stdout.splitlines()
    found = [json.loads(line) for line in lines if line.startswith("[")]
    assert [status for status, _ in found if status not in (0, None)] == []
    modules = dict(zip(map(" ".join, all_words), (set(imported) for _, imported in found), strict=True))
    for words in map(" ".join, of_many):
        unneeded = {*HEAVY, "duckdb", "numpy", "msgspec", "rich", "psutil", "pynvml"}
        assert modules[words] & unneeded == set(), words
    assert "duckdb" not in modules["profiles"]
    assert {words: heavy for words, all_of in modules.items() if (heavy := HEAVY & all_of)} == {}
    page = "\n".join(lines)
    assert page.count("Usage: ") >= len(COMMANDS)
    assert all(word in page for word in ("completion", "merge", *(p.name for p in shipped_profiles())))


READERS = {"gputui/worker/foreign_json.py", "gputui/store/strict.py"}
"""The reader of JSON, and the one of the lines of journals, which are many."""


def test_all_json_is_read_by_the_one_reader_that_trusts_nobody(repository: Path) -> None:
    """Whose JSON it is changes with time, so that none is read without limits."""
    readers = re.compile(
        r"\bjson\.(loads?|decode|Decoder)\(|\bJSONDecoder\b|\braw_decode\b|^\s*from json import .*\bload",
        re.MULTILINE,
    )
    texts = {file: file.read_text(encoding="utf-8") for file in (repository / "gputui").rglob("*.py")}
    found = {
        str(file.relative_to(repository))
        for file, text in texts.items()
        if "json" in text and readers.search(text)
    }
    assert found == READERS, "read it with read_json or read_json_file of worker/foreign_json.py"


LIST = """
import json, gputui
from gputui.services.profiles.loader import shipped_profiles
print(json.dumps([gputui.__file__, [p.name for p in shipped_profiles()]]))
"""


def test_the_profiles_are_found_in_a_checkout_that_is_not_installed(tmp_path: Path, repository: Path) -> None:
    for name in ("gputui", "profiles"):
        (tmp_path / name).symlink_to(repository / name)
    done = subprocess.run(
        [sys.executable, "-c", LIST],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)[1] == [profile.name for profile in shipped_profiles()]


BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """The wheel of this checkout, built offline."""
    target = tmp_path_factory.mktemp("wheel")
    return target / python(BUILD, str(target), cwd=repository).stdout.splitlines()[-1]


def test_a_wheel_carries_the_profiles_the_facts_and_no_tests(wheel: Path, tmp_path: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"gputui/profiles/{profile.name}.toml" for profile in shipped_profiles()} <= names
    assert {"gputui/facts/gpus.csv", "gputui/machine/signals.csv"} <= names
    outside = {n.partition("/")[0] for n in names if not n.startswith("gputui/")}
    assert [name.rpartition(".")[2] for name in outside] == ["dist-info"]


def test_an_installed_wheel_finds_its_profiles_and_sends_its_measuring_half(
    wheel: Path, tmp_path: Path
) -> None:
    venv.create(tmp_path / "env", system_site_packages=False, symlinks=True)
    site = next((tmp_path / "env").glob("lib/python*/site-packages"))
    zipfile.ZipFile(wheel).extractall(site)
    # gputui's dependencies are taken from here, after the wheel; this checkout's .pth is not followed.
    (site / "needs.pth").write_text("\n".join(p for p in sys.path if p.endswith("site-packages")))
    send = "from gputui.recording.probing import measuring_half; print(len(measuring_half()))"
    done = subprocess.run(
        [str(tmp_path / "env" / "bin" / "python"), "-c", LIST + send],
        cwd=tmp_path,
        env={name: text for name, text in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (where, names), sent_bytes = map(json.loads, done.stdout.splitlines())
    assert Path(where).is_relative_to(site)
    assert names == [profile.name for profile in shipped_profiles()]
    assert sent_bytes > 10_000
