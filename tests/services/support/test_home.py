"""Where files go if there is no home directory, or it cannot be written."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from command_line import gputui, write_spin_profile

from gputui.errors import NotStored
from gputui.services.support.paths import (
    hash_key,
    is_writable,
    make_directory,
    make_directory_for,
    missing_home,
    new_run_directory,
    runs_of_others,
    temporary_home,
    user_directory,
)


@pytest.fixture
def homeless(tmp_path: Path) -> dict[str, str]:
    """A home that nobody can write, root included, and a temporary directory."""
    (tmp_path / "home").write_text("a file")
    (tmp_path / "tmp").mkdir()
    return {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp")}


def test_directories_are_those_of_xdg_and_then_of_the_home(tmp_path: Path) -> None:
    home, data = tmp_path / "home", tmp_path / "data"
    home.mkdir()
    assert user_directory("config", {"HOME": str(home)}) == home / ".config/gputui"
    assert user_directory("data", {"HOME": str(home), "XDG_DATA_HOME": str(data)}) == data / "gputui"
    assert user_directory("data", {"HOME": str(home), "XDG_DATA_HOME": "relative"}).parts[-4:] == (
        "home", ".local", "share", "gputui",
    )  # fmt: skip
    assert missing_home({"HOME": str(home)}) == ""


def test_without_a_home_a_private_directory_takes_its_place(homeless: dict[str, str]) -> None:
    instead = Path(homeless["TMPDIR"]) / f"gputui-{os.getuid()}"
    assert user_directory("state", homeless) == instead / "state"
    make_directory(instead / "state" / "runs")
    assert {stat.S_IMODE(place.stat().st_mode) for place in (instead, instead / "state")} == {0o700}
    assert str(instead) in missing_home(homeless)
    assert missing_home({**homeless, "GPUTUI_DB": "/x.db", "GPUTUI_STATE": "/x"}) == ""


def test_a_directory_that_others_may_write_or_replace_or_that_is_a_link_is_not_used(
    homeless: dict[str, str], tmp_path: Path
) -> None:
    instead = Path(homeless["TMPDIR"]) / f"gputui-{os.getuid()}"
    instead.mkdir()
    instead.chmod(0o777)
    assert temporary_home(homeless) != instead
    instead.rmdir()
    instead.symlink_to(tmp_path)
    assert temporary_home(homeless) != instead
    instead.unlink()
    assert temporary_home(homeless) == instead
    instead.parent.chmod(0o777)
    assert temporary_home(homeless) != instead
    instead.mkdir(mode=0o700)
    assert temporary_home(homeless) != instead
    instead.parent.chmod(0o1777)
    assert temporary_home(homeless) == instead


def test_what_lies_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert is_writable(tmp_path / "not" / "there" / "yet")
    assert not is_writable(tmp_path / "file" / "below")


def test_where_the_default_result_file_can_have_no_directory_another_file_is_asked_for(
    homeless: dict[str, str],
) -> None:
    with pytest.raises(NotStored) as raised:
        make_directory_for(Path(homeless["HOME"]) / "gputui" / "results.db")
    assert f"{homeless['HOME']}/gputui cannot be created (Not a directory)" in raised.value.message
    assert "--db FILE" in raised.value.hint


def test_a_key_that_cannot_be_kept_is_no_key(
    homeless: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(hash_key()) == 32
    assert hash_key(makes=False) == hash_key()
    monkeypatch.setenv("XDG_CONFIG_HOME", homeless["HOME"] + "/below")
    monkeypatch.setenv("TMPDIR", homeless["TMPDIR"])
    assert hash_key(makes=False) == b""
    assert len(hash_key()) == 32


def test_a_shared_state_directory_lets_others_have_runs_there_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setenv("GPUTUI_STATE", str(shared))
    run_dir = new_run_directory("one")
    assert stat.S_IMODE(run_dir.parent.stat().st_mode) == 0o1777
    assert stat.S_IMODE(run_dir.stat().st_mode) == 0o700
    assert runs_of_others() == ""
    monkeypatch.setenv("GPUTUI_STATE", str(tmp_path / "own"))
    assert stat.S_IMODE(new_run_directory("one").parent.stat().st_mode) == 0o700


@pytest.mark.slow
def test_everything_works_without_a_home_and_says_once_where_files_go(
    homeless: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("XDG_", "GPUTUI_"))]:
        monkeypatch.delenv(name)
    for name, value in homeless.items():
        monkeypatch.setenv(name, value)
    done = gputui("run", write_spin_profile(tmp_path / "spin.toml"), "--yes")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("is not writable: files go to") == 1
    assert "spin" in gputui("runs").stdout
    assert "is not writable" in gputui("paths").stderr
    assert "home" in gputui("doctor", "--all").stdout
