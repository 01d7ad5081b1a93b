"""What gputui writes, runs and removes on a host where a directory is somebody else's."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from adversary import SHELL, evil_archive, files_in, foreign_directories, host_at, is_accepted, swaps
from builders import make_plan, make_spec
from command_line import WORDS, gputui_here
from pty_harness import Terminal
from sshd import may_unshare

from gputui.model.journal import SPEC_NAME
from gputui.recording.own_directory import own_name
from gputui.recording.run_directory import read_holder
from gputui.services.hosts.box import describe
from gputui.services.hosts.link import Link
from gputui.services.runs.process import new_run_id

needs_root = pytest.mark.skipif(
    os.getuid() != 0 or not may_unshare(), reason="only root has mounts and gives files to another account"
)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that other accounts can enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@needs_root
@pytest.mark.slow
def test_no_file_of_ten_foreign_directories_is_lost_and_only_safe_ones_are_used(place: Path) -> None:
    with foreign_directories(place) as directories:
        before = files_in(place)
        for kind, foreign in directories.items():
            clean = ("bakeoff", "--via", SHELL, "--dir", foreign.stated, "--clean", "--yes")
            done = gputui_here(*clean)
            assert "removed" not in done.stdout, kind
            assert is_accepted(foreign.stated) == (foreign.home is not None), kind
            if foreign.home is not None:
                assert foreign.home.is_dir(), kind
            done = gputui_here(*clean)
            assert ("is removed" in done.stdout) == (foreign.home is not None), kind
            assert foreign.home is None or not foreign.home.exists(), kind
        after = files_in(place)
    after.pop("not")  # the parent that was missing
    assert after == before


@needs_root
@pytest.mark.slow
def test_another_account_that_swaps_archives_and_directories_never_has_its_code_run(place: Path) -> None:
    counts = swaps(place, 10)
    assert counts == {"started": 1, "refused": 9, "executed": 0}


@pytest.mark.slow
def test_a_run_starts_from_the_archive_that_was_verified_though_another_has_its_name(tmp_path: Path) -> None:
    evidence, run_id = tmp_path / "evidence", new_run_id()
    spec = make_spec(make_plan([0], most_blocks=10_000), run_id=run_id)
    with Link(host_at(tmp_path / "home")) as link:
        (archive,) = (tmp_path / "home").glob("gputui-*.zip")
        (tmp_path / "evil").write_bytes(evil_archive(evidence))
        (tmp_path / "evil").replace(archive)
        assert link.ask("start", run_id=run_id, spec=spec.to_plain(), step="") == {"started": True}
        holder = read_holder(tmp_path / "home" / "runs" / run_id)
        assert holder is not None
        with Link(host_at(tmp_path / "other")) as other:
            assert f"PID {holder.pid} of " in str(describe(other, bytes(32)).others), "it is seen to measure"
        link.ask("stop", run_id=run_id)
        *_, last = link.pieces("follow", 300.0, run_id=run_id, offset=0)
        assert isinstance(last, dict)
        assert last["ended"]
    assert not evidence.exists()
    assert is_accepted(tmp_path / "home"), "it is sent again"
    assert not evidence.exists()


@pytest.mark.slow
def test_clean_lists_what_it_would_remove_and_asks(tmp_path: Path) -> None:
    stated = tmp_path / "work"
    stated.mkdir()
    (stated / "thesis.tex").write_text("thesis")
    words = ("bakeoff", "--via", SHELL, "--dir", str(stated), "--clean")
    done = gputui_here(*words)
    assert (done.returncode, done.stdout) == (0, f"{SHELL}: nothing of gputui's is there\n")
    assert is_accepted(stated)
    home = stated / own_name()
    (home / "runs" / "0194b5a0").mkdir(parents=True)
    (home / "runs" / "0194b5a0" / SPEC_NAME).write_text("{}")
    done = gputui_here(*words)
    assert done.returncode == 2
    assert f'{SHELL}: in "{home}": gputui-' in done.stdout
    assert "runs, tmp (" in done.stdout
    assert "  run 0194b5a0: not brought home\n" in done.stdout
    assert "nothing is removed without confirmation" in done.stderr
    with Terminal([*WORDS, *words], 200, 24) as terminal:
        terminal.wait_for("Remove that? [y/N]")
        terminal.type(b"n\r")
        terminal.wait_for("nothing was removed")
        assert terminal.ended() == 0
    assert (home / "runs" / "0194b5a0" / SPEC_NAME).exists()
    with Terminal([*WORDS, *words], 200, 24) as terminal:
        terminal.wait_for("Remove that? [y/N]")
        terminal.type(b"y\r")
        terminal.wait_for("is removed")
        assert terminal.ended() == 0
    assert [entry.name for entry in stated.iterdir()] == ["thesis.tex"]
