"""Programs in profiles: parsed strictly, planned without torch, and the same work on every machine."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from builders import H200, make_interpreter, make_machine, make_torchless_interpreter
from hypothesis import given
from hypothesis import strategies as st

from gputui.analysis.spread import ASSUMED, together
from gputui.analysis.statistics import t_quantile
from gputui.analysis.verdict import RatioEstimate, SpeedEstimate, compare_launches, estimate_speed, judge
from gputui.cli.record import recorded_case
from gputui.errors import EXIT_USAGE, GputuiError, MachineLacks
from gputui.model.absent import Missing
from gputui.model.plan import Plan, PlannedCommand
from gputui.services.profiles.loader import Profile, read_profile
from gputui.services.profiles.planner import Choices, resolve_plan

HEAD = """
schema = 1
version = 1
title = "Mine"
question = "How fast are my programs?"
budget_s = 60
replicates = 3
"""
COMMAND = f"""
[[command]]
name = "train"
version = 2
argv = ["{sys.executable}", "train.py", "--batch", "64"]
pattern = '^step \\d+'
unit = "img"
units = 64
devices = ["gpu"]
class = "training"
weight = 2
"""
WHOLE = '[[command]]\nname = "sort"\nversion = 1\nargv = ["sh", "-c", "sort words"]\n'
CASE = '[[case]]\nworkload = "gemm"\nsizes = ["mini"]\ndevices = ["cpu"]\nprecisions = ["fp32"]\n'


def read(*parts: str) -> Profile:
    return read_profile(HEAD + "\n".join(parts), "mine", "mine.toml")


def refused(*parts: str) -> GputuiError:
    with pytest.raises(GputuiError) as caught:
        read(*parts)
    assert caught.value.exit_code == EXIT_USAGE
    assert caught.value.message.startswith("profile mine.toml: ")
    return caught.value


def test_a_command_is_read_with_all_its_keys_and_one_with_the_least_has_plain_ones() -> None:
    train, sort = read(COMMAND, WHOLE).commands
    assert train.argv == (sys.executable, "train.py", "--batch", "64")
    assert (train.name, train.version, train.pattern) == ("train", 2, r"^step \d+")
    assert (train.unit, train.units, train.device) == ("img", 64.0, "gpu")
    assert (train.workload_class, train.weight) == ("training", 2.0)
    assert (sort.unit, sort.units, sort.device, sort.workload_class) == ("run", 1.0, "cpu", "host")
    assert (sort.pattern, sort.weight) == ("", 1.0)
    assert read(COMMAND.replace('unit = "img"\n', "")).commands[0].unit == "step"
    assert "command 2: sort: is already in command 1" in refused(WHOLE, WHOLE).message


@pytest.mark.parametrize(
    ("right", "wrong", "place", "expected"),
    [
        ('name = "train"', 'name = "Train it"', "command 1: name", "a-z, 0-9"),
        ('name = "train"', "", "command 1: name: missing", "1 to 40"),
        ("version = 2", "version = 0", "command 1: train: version", "from 1"),
        ("argv = [", "argv = [] #", "train: argv", "the program first"),
        ("argv = [", 'argv = "python train.py" #', "train: argv", "a list of words"),
        ("argv = [", 'argv = ["a\\u0000b"] #', "train: argv", "a list of words"),
        ("argv = [", 'argv = ["a", 3] #', "train: argv", "a list of words"),
        (r"^step \d+", "step (", "train: pattern", "unterminated subpattern"),
        (r"^step \d+", "", "train: pattern", "a regular expression"),
        ('unit = "img"', 'unit = "image"', "train: unit", "did you mean img?"),
        ("units = 64", "units = 0", "train: units", "from 1e-06"),
        ('["gpu"]', '["cpu", "gpu"]', "train: devices", "one device"),
        ('class = "training"', 'class = "train"', "train: class", "did you mean training?"),
        ("weight = 2", "weight = inf", "train: weight", "from 0.01"),
        ("units = 64", "unts = 64", "unknown key 'unts'", "allowed: name, version, argv"),
        ("pattern", "patern", "unknown key 'patern'", "did you mean pattern?"),
    ],
)
def test_what_is_wrong_with_a_command_is_named_with_what_is_allowed(
    right: str, wrong: str, place: str, expected: str
) -> None:
    assert COMMAND.count(right) == 1
    error = refused(COMMAND.replace(right, wrong))
    assert place in error.message
    assert expected in error.hint


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_pattern_is_read_or_refused_in_one_line(pattern: str) -> None:
    literal = "".join(f"\\U{ord(c):08x}" for c in pattern)
    reported = ""
    try:
        reported = read(WHOLE + f'pattern = "{literal}"\n').commands[0].pattern
    except GputuiError as error:
        reported = error.message
    assert reported == pattern or "command 1: sort: pattern: " in reported


def test_a_plan_of_commands_alone_needs_no_torch_and_keeps_words_and_directory(tmp_path: Path) -> None:
    plan = resolve_plan(read(WHOLE), make_torchless_interpreter(), make_machine(), Choices())
    assert not any(launch.needs_torch for launch in plan.launches)
    assert [launch.replicate for launch in plan.launches] == [0, 1, 2]
    assert plan.commands == (PlannedCommand(0, ("sh", "-c", "sort words"), "", str(Path.cwd())),)
    assert Plan.from_plain(json.loads(json.dumps(plan.to_plain()))) == plan
    assert plan.command_of(1) is None


def test_workloads_and_commands_stand_in_one_plan() -> None:
    plan = resolve_plan(read(WHOLE, CASE), make_interpreter(), make_machine(), Choices())
    assert sum(launch.needs_torch for launch in plan.launches) == 3
    assert [c.case.name for c in plan.cases] == ["command:sort cpu", "gemm mini cpu fp32 all cores"]
    assert len(plan.launches) == 6
    for name in ("command:sort", "sort"):
        only = Choices(only=(name,))
        alone = resolve_plan(read(WHOLE, CASE), make_interpreter(), make_machine(), only)
        assert [c.case.name for c in alone.cases] == ["command:sort cpu"]
    computed = resolve_plan(
        read(WHOLE, CASE), make_interpreter(), make_machine(), Choices(precisions=("fp32",))
    )
    assert [c.case.name for c in computed.cases] == ["gemm mini cpu fp32 all cores"]
    with pytest.raises(GputuiError, match="--precision fp32: not in profile"):
        resolve_plan(read(WHOLE), make_interpreter(), make_machine(), Choices(precisions=("fp32",)))


@pytest.mark.parametrize("program", ["no-such-program-here", "./no/such/program"])
def test_a_program_that_is_not_found_is_unsupported_before_anything_is_launched(program: str) -> None:
    profile = read(WHOLE.replace('"sh"', f'"{program}"'))
    plan = resolve_plan(profile, make_torchless_interpreter(), make_machine(), Choices())
    assert (plan.launches, plan.commands) == ((), ())
    assert plan.cases[0].outcome == "unsupported"
    assert plan.cases[0].reason.startswith(f"{Path(program).name}: is ")


def test_a_command_of_a_gpu_needs_the_gpu_and_not_the_torch_that_sees_it() -> None:
    profile = read(COMMAND)
    with_torch = resolve_plan(profile, make_interpreter(H200), make_machine(H200.name), Choices())
    assert with_torch.launches[0].device.visible == H200.uuid
    without = resolve_plan(profile, make_torchless_interpreter(), make_machine(H200.name), Choices())
    assert (without.launches[0].device.device_class, without.launches[0].device.name) == ("gpu", H200.name)
    too_new = replace(H200, runs_here=False, why_not="no kernel image")
    foreign = resolve_plan(profile, make_interpreter(too_new), make_machine(H200.name), Choices())
    assert foreign.launches[0].device.visible == H200.uuid
    asked = Choices(device="gpu:1")
    second = resolve_plan(profile, make_torchless_interpreter(), make_machine("T4", "T4"), asked)
    assert second.launches[0].device.visible == "1"
    with pytest.raises(MachineLacks, match="no such GPU"):
        resolve_plan(profile, make_torchless_interpreter(), make_machine("T4"), asked)
    nowhere = resolve_plan(profile, make_torchless_interpreter(), make_machine(), Choices())
    assert (nowhere.launches, nowhere.cases[0].outcome) == ((), "skipped")


def test_the_work_of_a_command_is_its_name_version_and_units_and_not_its_words() -> None:
    def key(text: str) -> str:
        plan = resolve_plan(read(text), make_interpreter(H200), make_machine(H200.name), Choices())
        return plan.cases[0].case.work.key

    assert key(COMMAND) == key(COMMAND.replace("train.py", "/srv/ada/train.py"))
    changes = [('"train"', '"retrain"'), ("version = 2", "version = 3"), ("units = 64", "units = 32")]
    changes += [('"img"', '"tok"'), ("pattern = '^step \\d+'\n", "")]
    others = {key(COMMAND.replace(right, other)) for right, other in changes}
    assert len(others) == len(changes)
    assert key(COMMAND) not in others


def test_recordings_of_one_label_are_one_work_and_those_without_are_each_their_own() -> None:
    assert recorded_case("sweep", "one").work.key == recorded_case("sweep", "two").work.key
    assert recorded_case("sweep", "one").work.key != recorded_case("swept", "one").work.key
    assert recorded_case("", "one").work.key != recorded_case("", "two").work.key


def test_single_blocks_of_whole_programs_are_judged_by_the_spread_between_launches_alone() -> None:
    prior = 0.05
    twice, near = (
        compare_launches([[t]], [[1.0]], prior_sd_a=prior, prior_sd_b=prior, launch_is_block=True)
        for t in (2.0, 1.1)
    )
    assert isinstance(twice, RatioEstimate)
    assert abs(twice.ratio - 2.0) < 1e-9
    spread = ASSUMED.of_row(None, prior)
    total = together((spread, spread))
    assert abs(twice.half_width - t_quantile(0.975, total.df) * math.sqrt(total.variance)) < 1e-9
    assert judge([twice])[0].word == "faster"
    assert judge([near])[0].word == "inconclusive"
    assert "launches a side" in judge([near])[0].reason
    assert isinstance(compare_launches([[2.0]], [[1.0]], prior_sd_a=prior, prior_sd_b=prior), Missing)
    assert isinstance(estimate_speed([[2.0]], prior_sd=prior), SpeedEstimate)
