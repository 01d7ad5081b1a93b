"""Which directory is this account's alone, and what of it is gputui's."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from gputui.recording.own_directory import (
    MARKER,
    NotOurs,
    clean,
    entries,
    find_home,
    open_verified,
    own_name,
    verified_name,
    why_not_private,
    why_open_to_others,
)

ARCHIVE = "gputui-0123456789abcdef.zip"
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may give a file to another account")


def made(place: Path, mode: int = 0o755) -> Path:
    place.mkdir()
    place.chmod(mode)
    return place


def older_home(place: Path) -> Path:
    """As a gputui that set no marker left it."""
    made(place, 0o700)
    (place / ARCHIVE).write_text("a zip")
    (place / "tmp").mkdir()
    (place / "runs").mkdir()
    return place


def test_a_missing_directory_is_made_for_this_account_alone_and_known_again(tmp_path: Path) -> None:
    stated = tmp_path / "a" / "b"
    assert find_home(stated, makes=False) is None
    assert not stated.parent.exists()
    assert find_home(stated, makes=True) == stated
    assert stat.S_IMODE(stated.stat().st_mode) == stat.S_IMODE(stated.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in stated.iterdir()] == [MARKER]
    assert find_home(stated, makes=False) == find_home(stated, makes=True) == stated
    assert [entry.name for entry in stated.parent.iterdir()] == ["b"]


def test_a_directory_that_gputui_did_not_make_gets_a_child_even_an_empty_one(tmp_path: Path) -> None:
    stated = made(tmp_path / "empty", 0o700)
    assert find_home(stated, makes=False) is None
    assert find_home(stated, makes=True) == stated / own_name()
    assert find_home(stated, makes=False) == stated / own_name()
    assert [entry.name for entry in stated.iterdir()] == [own_name()]


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o775, 0o757])
def test_a_directory_that_others_may_write_is_refused_on_every_step_down(tmp_path: Path, mode: int) -> None:
    opened = made(tmp_path / "open", mode)
    own = made(opened / "own", 0o700)
    for stated in (opened, opened / "missing", own):
        with pytest.raises(NotOurs, match=f"others may write to {opened} "):
            find_home(stated, makes=True)
    assert [entry.name for entry in opened.iterdir()] == ["own"]
    opened.chmod(mode | stat.S_ISVTX)
    assert find_home(opened, makes=True) == opened / own_name()
    assert why_not_private(opened).startswith("others may read or write")


@needs_root
@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1777])
def test_what_belongs_to_another_account_is_refused_on_every_step_down(tmp_path: Path, mode: int) -> None:
    other = made(tmp_path / "other", mode)
    own = made(other / "own", 0o700)
    (other / MARKER).write_bytes(b"home of gputui, user %d\n" % os.getuid())
    os.chown(other, 65534, 65534)
    for stated in (other, other / "missing", own):
        with pytest.raises(NotOurs, match=f"{other} belongs to user 65534"):
            find_home(stated, makes=True)


@needs_root
def test_a_link_of_another_account_is_refused_wherever_it_leads(tmp_path: Path) -> None:
    link, hop = tmp_path / "link", tmp_path / "hop"
    link.symlink_to(older_home(tmp_path / "own"))
    hop.symlink_to("link")
    assert why_open_to_others(hop / "missing") == ""
    os.chown(link, 65534, 65534, follow_symlinks=False)
    for path in (link, hop, hop / "missing"):
        assert why_open_to_others(path) == f"{link} belongs to user 65534"


def test_links_dots_and_circles_are_followed_as_the_system_does(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real/../opened")
    made(tmp_path / "real")
    opened = made(tmp_path / "opened", 0o777)
    assert why_open_to_others(tmp_path / "link").startswith(f"others may write to {opened} ")
    assert why_open_to_others(tmp_path / "opened" / ".." / "real") != ""
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        why_open_to_others(tmp_path / "round")
    (tmp_path / "nowhere").symlink_to("missing")
    with pytest.raises(NotADirectoryError):
        find_home(tmp_path / "nowhere", makes=True)


def test_a_marker_counts_only_in_a_private_directory_and_for_its_account(tmp_path: Path) -> None:
    home = find_home(tmp_path / "home", makes=True)
    assert home is not None
    home.chmod(0o755)
    with pytest.raises(NotOurs, match="others may read or write"):
        find_home(home, makes=True)
    home.chmod(0o700)
    (home / MARKER).write_text("home of gputui, user 4000000\n")
    with pytest.raises(NotOurs, match="gputui did not make"):
        entries(home)
    assert find_home(home, makes=True) == home / own_name()
    (home / MARKER).unlink()
    (home / MARKER).symlink_to(home / own_name() / MARKER)
    assert find_home(home, makes=True) == home / own_name()


def test_an_older_home_is_adopted_if_it_is_private_and_holds_nothing_else(tmp_path: Path) -> None:
    home = older_home(tmp_path / "older")
    assert find_home(home, makes=False) == home
    assert (home / MARKER).exists()
    usual = made(tmp_path / ".gputui", 0o700)
    assert find_home(usual, makes=True) == usual
    mixed = older_home(tmp_path / "mixed")
    (mixed / "thesis.tex").write_text("thesis")
    linked = older_home(tmp_path / "linked")
    (linked / "cache").symlink_to(mixed)
    shared = older_home(tmp_path / "shared")
    shared.chmod(0o755)
    named_alike = made(tmp_path / "named", 0o700)
    (named_alike / "runs").mkdir()
    for place in (mixed, linked, shared, named_alike):
        assert find_home(place, makes=True) == place / own_name(), place
        assert not (place / MARKER).exists()


def test_clean_removes_what_gputui_made_by_name_and_never_through_a_link(tmp_path: Path) -> None:
    home = older_home(tmp_path / "home")
    precious = made(tmp_path / "precious")
    (precious / "thesis.tex").write_text("thesis")
    with pytest.raises(NotOurs, match="gputui did not make"):
        clean(home)
    assert find_home(home, makes=False) == home
    (home / "cache").symlink_to(precious)
    (home / "runs" / "link").symlink_to(precious)
    (home / "gputui-notes").write_text("the user's")
    assert [entry.name for entry in entries(home)] == [ARCHIVE, "runs", "tmp"]
    assert clean(home) == ["cache", "gputui-notes"]
    assert sorted(entry.name for entry in home.iterdir()) == [MARKER, "cache", "gputui-notes"]
    for name in ("cache", "gputui-notes"):
        (home / name).unlink()
    (tmp_path / "link").symlink_to(home)
    with pytest.raises(NotOurs, match="is a link"):
        clean(tmp_path / "link")
    assert clean(home) == []
    assert not home.exists()
    assert [entry.name for entry in precious.iterdir()] == ["thesis.tex"]


def test_processes_that_begin_together_make_one_home(tmp_path: Path) -> None:
    for number in range(20):
        stated = tmp_path / str(number)
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(partial(find_home, makes=True), [stated] * 4))
        assert set(found) == {stated}
    assert len(list(tmp_path.iterdir())) == 20


def test_an_open_archive_stays_what_was_verified_whatever_takes_its_name(tmp_path: Path) -> None:
    archive, digest = tmp_path / ARCHIVE, hashlib.sha256(b"sent").hexdigest()
    archive.write_bytes(b"sent")
    archive.chmod(0o600)
    descriptor = open_verified(archive, digest)
    (tmp_path / "swapped").write_bytes(b"evil")
    (tmp_path / "swapped").replace(archive)
    assert Path(verified_name(descriptor, archive, digest)).read_bytes() == b"sent"
    with pytest.raises(NotOurs, match="is not what was sent"):
        open_verified(archive, digest)
    os.close(descriptor)
    archive.write_bytes(b"sent")
    archive.chmod(0o664)
    with pytest.raises(NotOurs, match="others may write"):
        open_verified(archive, digest)
    (tmp_path / "link").symlink_to(archive)
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        open_verified(tmp_path / "link", digest)
