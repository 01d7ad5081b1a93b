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
from gputui.worker.workloads import WORKLOADS

MAY_BE_THERE = {"pynvml", "psutil", "_psutil_linux", "_psutil_posix", "gputui"}
"""Allowed besides the standard library in the half that measures."""
HEAVY = {"torch", "textual", "pandas"}

AFTER_IMPORTS = """
import importlib, json, sys
before = {name.partition(".")[0] for name in sys.modules}
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules} - before)))
"""
AFTER_COMMAND = """
import json, sys
from gputui.cli import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    status = ended.code
sys.stdout.flush()
print(json.dumps([status, sorted({name.partition(".")[0] for name in sys.modules})]), file=sys.stderr)
"""


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


NEED_TORCH = ("gputui.worker.models",)
"""Imported by a workload when it is built."""


@pytest.mark.parametrize("room", [*MEASURING_HALF, "errors", "metrics"])
def test_the_half_that_measures_imports_the_standard_library_alone(room: str, repository: Path) -> None:
    found = modules_of(room, repository) or [f"gputui.{room}"]
    names = [name for name in found if not name.startswith(NEED_TORCH)]
    imported = set(json.loads(python(AFTER_IMPORTS, "gputui.errors", *names).stdout))
    assert imported - set(sys.stdlib_module_names) <= MAY_BE_THERE
    assert "gputui" in imported


def test_the_workloads_are_listed_without_torch() -> None:
    code = """
import sys
from gputui.worker.workloads import WORKLOADS
print(*(workload.name for workload in WORKLOADS), "torch" in sys.modules)
"""
    *names, has_torch = python(code).stdout.split()
    assert (names, has_torch) == ([workload.name for workload in WORKLOADS], "False")


def test_analysis_and_facts_need_no_database_and_no_terminal() -> None:
    imported = set(json.loads(python(AFTER_IMPORTS, "gputui.analysis.verdict", "gputui.facts.tables").stdout))
    assert imported & {*HEAVY, "duckdb", "rich", "click", "scipy", "psutil", "pynvml"} == set()


def after_command(*words: str, cwd: Path | None = None) -> tuple[str, int | None, set[str]]:
    done = python(AFTER_COMMAND, *words, cwd=cwd)
    status, modules = json.loads(done.stderr.splitlines()[-1])
    return done.stdout, status, set(modules)


AFTER_EACH_HELP = """
import json, os, sys
from gputui.cli import main
for name in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        try:
            status = main([name, "--help"])
        except SystemExit as ended:
            status = ended.code
        imported = sorted({name.partition(".")[0] for name in sys.modules})
        print(json.dumps([name, status, imported]), file=sys.stderr)
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_help_of_a_command_imports_nothing_heavy() -> None:
    names = [command.name for command in COMMANDS]
    done = python(AFTER_EACH_HELP, *names)
    found = [json.loads(line) for line in done.stderr.splitlines()]
    assert [name for name, *_ in found] == names
    assert done.stdout.count("Usage: ") >= len(names)
    assert [name for name, status, _ in found if status not in (0, None)] == []
    assert {name: heavy for name, _, modules in found if (heavy := HEAVY.intersection(modules))} == {}


@pytest.mark.parametrize("words", [("--help",), ("db", "--help"), ("self",)], ids=" ".join)
def test_help_of_many_commands_imports_none_of_them(words: tuple[str, ...]) -> None:
    message, status, modules = after_command(*words)
    assert status in (0, None)
    assert "completion" in message or "merge" in message
    assert modules & {*HEAVY, "duckdb", "numpy", "msgspec", "rich", "psutil", "pynvml"} == set()


def test_listing_the_profiles_imports_neither_torch_nor_a_database(tmp_path: Path) -> None:
    message, status, modules = after_command("profiles", cwd=tmp_path)
    assert status in (0, None)
    for profile in shipped_profiles():
        assert profile.name in message
    assert modules & {*HEAVY, "duckdb"} == set()


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


def test_the_profiles_are_found_from_any_directory(tmp_path: Path, repository: Path) -> None:
    where, names = json.loads(python(LIST, cwd=tmp_path).stdout)
    assert Path(where).is_relative_to(repository)
    assert names == [profile.name for profile in shipped_profiles()]


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
