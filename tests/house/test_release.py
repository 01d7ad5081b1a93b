"""What would be uploaded: its metadata, and what a stranger gets who installs it by name."""

from __future__ import annotations

import email.message
import email.parser
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import write_spin_profile
from environments import make_environment
from pty_harness import Terminal
from readme_renderer.markdown import render

from gputui.version import RELEASED, version

pytestmark = pytest.mark.slow

BUILD = """
import sys
from hatchling.build import build_sdist, build_wheel
print(build_wheel(sys.argv[1]), build_sdist(sys.argv[1]))
"""


@dataclass(frozen=True)
class Release:
    wheel: Path
    sdist: Path

    @property
    def metadata(self) -> email.message.Message:
        with zipfile.ZipFile(self.wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            return email.parser.BytesParser().parsebytes(archive.read(name))


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Release:
    place = tmp_path_factory.mktemp("dist")
    built = said(repository, sys.executable, "-c", BUILD, str(place)).splitlines()[-1]
    wheel, sdist = (place / name for name in built.split())
    return Release(wheel, sdist)


@pytest.fixture(scope="module")
def installed(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment without torch, pandas and numpy that got gputui by its name."""
    place = tmp_path_factory.mktemp("installed")
    index = place / "simple" / "gputui"
    index.mkdir(parents=True)
    links = "".join(f'<a href="{file.as_uri()}">{file.name}</a>' for file in (release.wheel, release.sdist))
    (index / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
    python = make_environment(place / "env", ("torch", "pandas", "numpy", "scipy"))
    pip = (sys.executable, "-m", "pip", "--isolated", "--python", str(python), "install", "--no-deps")
    said(place, *pip, "--index-url", (place / "simple").as_uri(), f"gputui=={version()}")
    return python


def said(where: Path, *words: str) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(words, cwd=where, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_description_renders_and_its_links_are_absolute(release: Release) -> None:
    text = str(release.metadata.get_payload())
    page = render(text)
    assert page is not None
    assert page.startswith('<h1 id="user-content-gputui">gputui')
    assert "&lt;!--" not in page
    targets = re.findall(r'(?:href|src)="([^"]*)"', page)
    assert [target for target in targets if not target.startswith(("https://", "#user-content-"))] == []
    assert not re.search(r"\]\(", text)
    assert "clone" not in text


def test_the_description_names_no_topic_that_help_does_not_have(release: Release, repository: Path) -> None:
    named = set(re.findall(r"`gputui help ([\w-]+)\.md`", str(release.metadata.get_payload())))
    assert len(named) > 15
    assert {name for name in named if not (repository / "docs" / f"{name}.md").exists()} == set()


def test_version_licence_and_changelog_agree(release: Release, repository: Path) -> None:
    assert release.metadata["Version"] == version()
    assert release.metadata["License-Expression"] == "MIT"
    assert f"## [{RELEASED}] - " in (repository / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\nversion: {RELEASED}\n" in (repository / "CITATION.cff").read_text(encoding="utf-8")
    root = f"gputui-{version()}"
    with zipfile.ZipFile(release.wheel) as wheel, tarfile.open(release.sdist) as sdist:
        assert f"{root}.dist-info/licenses/LICENSE" in wheel.namelist()
        needed = (
            "LICENSE",
            "README.md",
            "CHANGELOG.md",
            "constraints.txt",
            "tests/conftest.py",
            "docs/sql.md",
        )
        assert {f"{root}/{name}" for name in needed} <= set(sdist.getnames())


def test_the_source_distribution_makes_the_same_wheel(release: Release, tmp_path: Path) -> None:
    with tarfile.open(release.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (root,) = tmp_path.iterdir()
    again = tmp_path / said(root, sys.executable, "-c", BUILD, str(tmp_path)).splitlines()[-1].split()[0]
    with zipfile.ZipFile(again) as new, zipfile.ZipFile(release.wheel) as old:
        assert {(i.filename, i.CRC) for i in new.infolist()} == {(i.filename, i.CRC) for i in old.infolist()}


def test_installed_by_name_every_command_works_without_torch_pandas_and_numpy(
    installed: Path, tmp_path: Path
) -> None:
    for name in ("torch", "pandas", "numpy"):
        asked = subprocess.run([installed, "-c", f"import {name}"], capture_output=True, check=False)
        assert asked.returncode == 1
    gputui = str(installed.parent / "gputui")
    assert said(tmp_path, gputui, "--version") == f"gputui, version {version()}\n"
    profile = str(write_spin_profile(tmp_path / "spin.toml"))
    for name in ("a", "b"):
        assert "Hashing on one thread" in said(
            tmp_path, gputui, "run", profile, "--db", f"{name}.db", "--yes"
        )
    record = ("record", "--db", "a.db", "--", sys.executable, "-c", "pass")
    commands: Sequence[tuple[str, ...]] = (
        ("compare", "a.db", "b.db"),
        *(("compare", "a.db", "b.db", "-o", f"report.{form}") for form in ("html", "md", "csv", "json")),
        ("runs", "a.db"),
        ("show", "latest", "a.db", "--json"),
        ("merge", "-o", "all.db", "a.db", "b.db"),
        ("label", "latest", "mine", "a.db"),
        ("rm", "latest", "b.db", "--yes"),
        ("snapshot", "--json"),
        ("doctor", "--json"),
        ("profiles",),
        ("profiles", "quick"),
        ("paths",),
        ("fit", "--params", "7e9"),
        ("new-workload", "mine.py"),
        ("help", "sql"),
        record,
    )
    for words in commands:
        done = subprocess.run([gputui, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode in ((0, 1) if words[0] == "doctor" else (0,)), (words, done.stderr)
        assert "Traceback" not in done.stderr
    wanted = "import gputui; gputui.load('a.db')"
    done = subprocess.run(
        [installed, "-c", wanted], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "pandas is not installed" in done.stderr


def test_installed_by_name_the_live_view_opens(installed: Path, tmp_path: Path) -> None:
    with Terminal([str(installed.parent / "gputui"), "demo"], 80, 24) as terminal:
        terminal.wait_for("8x H200")
        terminal.type(b"q")
        assert terminal.ended() == 0
