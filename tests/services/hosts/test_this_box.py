"""`bakeoff --local` takes the Python that `run` takes, also if another one comes first on the path."""

from __future__ import annotations

import os
import platform
import venv
from pathlib import Path

import pytest
from command_line import gputui, write_spin_profile

from gputui.services.hosts.host import LOCAL, Host, ssh_host
from gputui.services.hosts.link import find_python
from gputui.store.reading import open_result


@pytest.mark.slow
def test_this_box_is_measured_with_the_python_that_gputui_runs_in_if_that_has_torch(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    without_activating = {"PATH": f"{tmp_path / 'bare' / 'bin'}:{os.defpath}"}
    profile = write_spin_profile(tmp_path / "spin.toml")
    words = ("bakeoff", profile, "--local", "--db", tmp_path / "a.db", "--yes")
    done = gputui(*words, env=without_activating)
    assert done.returncode == 0, done.stderr
    done = gputui("run", profile, "--db", tmp_path / "a.db", "--yes", env=without_activating)
    assert done.returncode == 0, done.stderr
    with open_result(tmp_path / "a.db") as file:
        of_bakeoff, of_run = (run.runtime for run in file.summaries())
    assert of_bakeoff == of_run
    assert of_bakeoff.python_version == platform.python_version()
    assert isinstance(of_bakeoff.torch_version, str)


def test_a_path_with_a_blank_is_one_word_of_the_script_and_other_hosts_never_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.executable", "/home/a b/bin/python")
    assert "for p in '/home/a b/bin/python' python3 " in find_python(Host(LOCAL, ()), "run", "none")
    for host in (ssh_host("ann@gpu-a"), Host("box", ("docker", "exec", "-i", "box"))):
        assert "/home/a b" not in find_python(host, "run", "none")
