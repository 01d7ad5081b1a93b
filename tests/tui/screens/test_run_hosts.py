"""Hosts in the Run screen: its form, what they say before the start, and their table."""

from __future__ import annotations

import shlex
import venv
from pathlib import Path
from typing import cast
from unittest.mock import Mock

import pytest
from command_line import write_spin_profile
from run_screen_app import RunScreenApp
from run_screen_golden import hosts_asked, hosts_measuring, run_model, text_of
from test_run_screen import choose_file, shown, until

from gputui.store.reading import open_result
from gputui.tui.screens.run.model import RunModel


def form(hosts: str, **texts: str) -> RunModel:
    model = run_model()
    model.profiles = ()
    model.path.insert("quick")
    for name, text in {"hosts": hosts, **texts}.items():
        model.form.texts[name].insert(text)
    return model


def test_a_form_with_hosts_is_a_bakeoff_and_names_what_hosts_cannot_have() -> None:
    model = form("gpu-a, ann@10.0.0.7:2222 local", price="2.5", only="gemm", db="a.db")
    model.profiles = None
    words = shlex.split(model.command)
    assert words[:2] == ["gputui", "bakeoff"]
    assert words[2:] == shlex.split(
        "quick --host gpu-a --host ann@10.0.0.7:2222 --local --db a.db --only gemm --price 2.5"
    )
    assert model.wrong() == {}
    assert [*form("gpu-a:x").wrong()] == ["hosts"]
    assert [*form("gpu-a", label="mine").wrong()] == ["hosts"]
    assert "label" in text_of(form("gpu-a", label="mine"), 80, 23)


def test_hosts_are_asked_then_the_user_then_they_start_and_can_be_stopped_and_compared() -> None:
    model = form("gpu-a gpu-b")
    tasks, open_screen = cast(Mock, model.tasks), cast(Mock, model.open_screen)
    model.press("start")
    tasks.ask_hosts.assert_called_once_with(model.draft)
    assert model.draft["hosts"] == "gpu-a gpu-b"
    plan = hosts_asked().hosts_plan
    assert plan is not None
    model.know_hosts_asked(plan)
    text = text_of(model, 80, 23)
    assert "gpu-a" in text
    assert "accepts none of your keys" in text
    assert "y Yes  n No" in text
    model.press("yes")
    tasks.start_hosts.assert_called_once_with()
    progress = hosts_measuring().hosts_progress
    assert progress is not None
    model.know_hosts(progress)
    model.press("stop")
    model.press("yes")
    tasks.stop_hosts.assert_called_once_with()
    model.press("back")
    assert "hosts measure: a watches them" in text_of(model, 80, 23)
    model.press("attach")
    assert model.view == "hosts"
    over = hosts_measuring(is_over=True).hosts_progress
    assert over is not None
    model.know_hosts(over)
    model.press("choose")
    open_screen.assert_called_once_with("compare", ("a.db@1", "a.db@2"))


@pytest.mark.parametrize(("width", "height"), [(80, 23), (120, 39), (42, 12)])
def test_the_line_of_each_host_fits_and_the_selected_one_says_everything(width: int, height: int) -> None:
    model = hosts_measuring()
    for _ in range(3):
        model.press("down")
    text = text_of(model, width, height)
    assert all(len(line) <= width for line in text.splitlines())
    assert text.count("its supervisor was killed") >= (1 if width > 42 else 0)
    assert "gpu-d" in text


@pytest.mark.slow
async def test_hosts_of_the_form_are_measured_and_brought_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    venv.create(tmp_path / "lean", symlinks=True)
    app = RunScreenApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await choose_file(pilot, write_spin_profile(tmp_path / "spin.toml"))
        model = app.run_screen.model
        lean = str(tmp_path / "lean" / "bin" / "python")
        for name, text in (("hosts", "local"), ("python", lean), ("db", str(tmp_path / "a.db"))):
            model.form.texts[name].insert(text)
        await pilot.press("enter")
        await until(pilot, lambda: model.question == "start hosts")
        assert "this box" in shown(pilot)
        await pilot.press("y")
        await until(pilot, lambda: model.hosts_progress is not None and model.hosts_progress.is_over)
        assert model.hosts_progress is not None
        assert len(model.hosts_progress.selectors) == 1
        assert "done" in shown(pilot)
    with open_result(tmp_path / "a.db") as file:
        (summary,) = file.summaries()
    assert summary.status == "finished"
