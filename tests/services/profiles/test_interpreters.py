"""Choosing the Python that measures: the named one, else the first with torch; each is probed once."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import pytest
from builders import write_program
from supervised import living_members
from torch_environments import OLD_TORCH, TORCH, Environment

from gputui.errors import EXIT_USAGE, GputuiError, MachineLacks
from gputui.model.absent import Missing
from gputui.services.profiles.interpreters import choose_interpreter


@pytest.fixture(autouse=True)
def _nothing_is_probed_yet(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def with_torch(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "with")


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """An environment without torch that gputui believes to run in; no other is available."""
    environment = Environment(tmp_path / "bare", None)
    monkeypatch.setattr(sys, "executable", environment.python)
    monkeypatch.setattr("gputui.recording.probing._USUAL_PLACES", ())
    monkeypatch.setenv("PATH", "/nowhere")
    return environment


def refused(stated: str) -> GputuiError:
    with pytest.raises(GputuiError) as caught:
        choose_interpreter(stated, timeout_s=20)
    assert caught.value.message.startswith(f"--python {stated}: ")
    assert (caught.value.exit_code, caught.value.hint != "") == (EXIT_USAGE, True)
    return caught.value


def test_what_is_not_there_or_may_not_be_executed_is_refused(with_torch: Environment, tmp_path: Path) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\n")
    nothing = ("/nowhere/python", "no-such-python", "~no-such-user/bin/python", "", str(tmp_path / "python"))
    for stated in nothing:
        assert "is not an executable file" in refused(stated).message
    assert f"such as {with_torch.python}" in refused(str(with_torch.place)).hint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#!/bin/sh\necho first >&2; echo I am no Python >&2; exit 7\n", "exit 7: I am no Python"),
        ("#!/bin/sh\nexit 0\n", "(exit 0: no message)"),
        (
            "#!/bin/sh\necho shim: python2 is missing >&2; echo a note >&2; exit 127\n",
            "(exit 127: shim: python2 is missing)",
        ),
        ("#!/bin/sh\necho '{\"python_version\": ' > $3\n", "is not a Python that can measure"),
        ("#!/bin/sh\nkill -9 $$\n", "exit -9"),
        ("#!/nowhere/sh\n", "cannot be started (No such file or directory)"),
        ("no program at all", "cannot be started (Exec format error)"),
    ],
)
def test_a_program_that_is_not_a_python_is_reported_with_its_output(
    tmp_path: Path, text: str, expected: str
) -> None:
    error = refused(str(write_program(tmp_path / "python", text)))
    assert expected in error.message
    assert error.hint == "give the path of a Python 3.10 or newer"


@pytest.mark.parametrize("version", ["2.7.18", "3.6.15", "3.9.18"])
def test_a_python_that_is_too_old_is_refused_with_its_version(tmp_path: Path, version: str) -> None:
    old = Environment(tmp_path / "old", python_version=version)
    with pytest.raises(MachineLacks) as caught:
        choose_interpreter(old.python)
    assert (
        caught.value.message == f"{old.python} is Python {version}; gputui measures with Python 3.10 or newer"
    )
    assert "--python" in caught.value.hint
    assert old.imports() == 0


@pytest.mark.parametrize("version", ["1.13.1+cu117", "2.1.0", "2.3.0a0+40ec155e58.nv24.3"])
def test_a_torch_that_is_too_old_is_refused_with_its_version(tmp_path: Path, version: str) -> None:
    old = Environment(tmp_path / "old", OLD_TORCH.format(version=version))
    for _ in range(2):
        with pytest.raises(MachineLacks) as caught:
            choose_interpreter(old.python)
        assert (
            caught.value.message
            == f"{old.python} has torch {version}; gputui measures with torch 2.4 or newer"
        )
        assert f"{old.python} -m pip install -U torch" in caught.value.hint
    assert old.imports() == 1


@pytest.mark.parametrize("version", ["2.4.0", "2.4.0a0+07cecf4168.nv24.05", "2.13.0+cpu", "2.10.0.dev2026"])
def test_a_torch_that_is_new_enough_is_taken_whatever_kind_of_build_it_is(
    tmp_path: Path, version: str
) -> None:
    found = Environment(tmp_path / "new", TORCH.replace("2.99.0+cpu", version))
    assert choose_interpreter(found.python).runtime.torch_version == version


def test_what_is_too_old_or_broken_is_passed_over_for_the_next_with_the_reason(
    bare: Environment, with_torch: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Environment(tmp_path / "old", OLD_TORCH.format(version="2.1.0"))
    broken = Environment(tmp_path / "broken", "import not_here_at_all")
    older = Environment(tmp_path / "older", python_version="3.9.18")
    monkeypatch.setenv("PATH", str(older.place / "bin"))
    places = (older.python, with_torch.python)
    monkeypatch.setattr("gputui.recording.probing._USUAL_PLACES", places)
    chosen = choose_interpreter(None, {"VIRTUAL_ENV": str(old.place), "CONDA_PREFIX": str(broken.place)})
    assert chosen.executable == with_torch.python
    assert chosen.passed_over == (
        f"{old.python} has torch 2.1.0; gputui measures with torch 2.4 or newer",
        f"{broken.python}: torch needs module not_here_at_all",
        f"{older.python}3 is Python 3.9.18; gputui measures with Python 3.10 or newer",
        f"{older.python} is Python 3.9.18; gputui measures with Python 3.10 or newer",
    )


def test_where_every_torch_is_too_old_this_python_is_taken_for_what_needs_none(
    bare: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Environment(tmp_path / "old", OLD_TORCH.format(version="2.1.0"))
    monkeypatch.setattr(sys, "executable", old.python)
    chosen = choose_interpreter(None, {"VIRTUAL_ENV": str(old.place)})
    assert (chosen.found_as, chosen.passed_over) == ("this Python", ())
    assert chosen.runtime.torch_version == Missing(
        "torch 2.1.0 is too old: gputui measures with torch 2.4 or newer"
    )


def test_gputuis_own_python_that_dies_when_probed_is_reported_if_there_is_no_other(
    bare: Environment, with_torch: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = Environment(tmp_path / "dying", "import os; os.abort()")
    monkeypatch.setattr(sys, "executable", dying.python)
    with pytest.raises(GputuiError, match="is not a Python that can measure"):
        choose_interpreter(None, {})
    chosen = choose_interpreter(None, {"VIRTUAL_ENV": str(with_torch.place)})
    assert chosen.executable == with_torch.python
    assert "is not a Python that can measure" in chosen.passed_over[0]


def test_a_python_that_hangs_is_given_up_and_leaves_nothing_running(tmp_path: Path) -> None:
    hanging = write_program(tmp_path / "python", f"#!/bin/sh\necho $$ > {tmp_path}/pid\nsleep 600\n")
    begun_s = time.monotonic()
    with pytest.raises(GputuiError, match="no answer within 1 s") as caught:
        choose_interpreter(str(hanging), timeout_s=1.0)
    assert time.monotonic() - begun_s < 300  # not for the ten minutes of `sleep`
    assert f"{hanging} -c 'import torch'" in caught.value.hint
    assert living_members(int((tmp_path / "pid").read_text())) == []


@pytest.mark.parametrize(
    ("torch", "expected"),
    [
        ("import not_here_at_all", "torch needs module not_here_at_all"),
        (
            "raise OSError('libcudart.so.13: cannot open')",
            "torch cannot be imported (OSError, libcudart.so.13)",
        ),
    ],
)
def test_a_torch_that_cannot_be_imported_is_reported_with_the_reason(
    tmp_path: Path, torch: str, expected: str
) -> None:
    broken = Environment(tmp_path / "broken", torch)
    version = choose_interpreter(broken.python).runtime.torch_version
    assert isinstance(version, Missing)
    assert expected in version.reason


def test_a_stated_python_is_taken_by_the_path_that_was_stated(
    with_torch: Environment, bare: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(with_torch.place / "bin")
    monkeypatch.setenv("HOME", str(with_torch.place))
    for stated in (with_torch.python, "./python", "~/bin/python"):
        found = choose_interpreter(stated)
        assert (found.found_as, found.executable) == ("--python", with_torch.python)
        assert found.runtime.torch_version == "2.99.0+cpu"
    without = choose_interpreter(bare.python)
    assert (without.found_as, without.devices) == ("--python", ())
    assert without.runtime.torch_version == Missing("torch not installed")


def test_the_first_that_has_torch_is_taken_an_active_environment_before_the_path(
    bare: Environment, with_torch: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = choose_interpreter(None, {"VIRTUAL_ENV": "/nowhere", "CONDA_PREFIX": str(bare.place)})
    assert (nothing.found_as, nothing.devices) == ("this Python", ())
    other = Environment(tmp_path / "other")
    monkeypatch.setenv("PATH", str(other.place / "bin"))
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        chosen = choose_interpreter(None, {variable: str(with_torch.place)})
        assert (chosen.found_as, chosen.executable) == (f"${variable}", with_torch.python)
    assert choose_interpreter(None, {}).found_as == "python3 on the path"
    monkeypatch.setattr(sys, "executable", with_torch.python)
    assert choose_interpreter(None, {}).found_as == "this Python"


def test_a_directory_called_torch_beside_the_user_is_not_torch(
    bare: Environment, with_torch: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work" / "torch").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    chosen = choose_interpreter(None, {"VIRTUAL_ENV": str(with_torch.place)})
    assert chosen.found_as == "$VIRTUAL_ENV"


def test_an_answer_is_remembered_until_torch_or_the_visible_devices_change(
    with_torch: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = choose_interpreter(with_torch.python)
    assert choose_interpreter(with_torch.python) == first
    assert with_torch.imports() == 1
    with_torch.torch_file.write_text(TORCH.replace("2.99.0", "2.100.0"))
    os.utime(with_torch.torch_file, ns=(0, with_torch.torch_file.stat().st_mtime_ns + 1_000_000_000))
    assert choose_interpreter(with_torch.python).runtime.torch_version == "2.100.0+cpu"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    choose_interpreter(with_torch.python)
    assert with_torch.imports() == 3
    shutil.rmtree(with_torch.torch_file.parent)
    assert choose_interpreter(with_torch.python).runtime.torch_version == Missing("torch not installed")


def test_a_damaged_memory_or_no_place_for_one_only_costs_the_time_to_ask_again(
    with_torch: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = choose_interpreter(with_torch.python)
    (remembered,) = Path(os.environ["XDG_CACHE_HOME"]).rglob("*.json")
    damages = [b"", b"{", b"[]", b"{}", b"null", b'{"state": 1}', b"\xff"]
    for damage in damages:
        remembered.write_bytes(damage)
        assert choose_interpreter(with_torch.python) == wanted
    asked = 1 + len(damages)
    assert with_torch.imports() == asked
    (tmp_path / "file").write_text("")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    for _ in range(2):
        assert choose_interpreter(with_torch.python) == wanted
    assert with_torch.imports() == asked + 1
    assert list((tmp_path / "temporary").rglob("*.json"))
    nowhere = tmp_path / "file" / "probes"
    monkeypatch.setattr("gputui.services.profiles.interpreters.probe_cache", lambda: nowhere)
    for _ in range(2):
        assert choose_interpreter(with_torch.python) == wanted
    assert with_torch.imports() == asked + 3
