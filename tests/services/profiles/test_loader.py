"""Profiles are parsed strictly: errors name the mistake, its position and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomllib
from hypothesis import given, settings
from hypothesis import strategies as st

from gputui.errors import EXIT_USAGE, GputuiError
from gputui.services.profiles.loader import find_profile, read_profile, shipped_profiles
from gputui.worker.workloads import workload_named

RIGHT = """
schema = 1
version = 2
title = "Mine"
question = "How fast is mine?"
budget_s = 60
replicates = 3

[[case]]
workload = "gemm"
sizes = ["mini", "base"]
devices = ["cpu", "gpu"]
precisions = ["fp32", "amp"]
threads = ["1", "all"]
weight = 1.5

[[case]]
workload = "spin"
sizes = ["mini"]
devices = ["cpu"]
precisions = ["fp32"]
"""


SPIN = RIGHT.rpartition("[[case]]")[2]
AGAIN = SPIN.replace("spin", "gemm").replace("mini", "base").replace("cpu", "gpu").replace("fp32", "amp")


def changed(old: str, new: str) -> str:
    assert RIGHT.count(old) >= 1, old
    return RIGHT.replace(old, new, 1)


def refused(text: str) -> GputuiError:
    with pytest.raises(GputuiError) as caught:
        read_profile(text, "mine", "mine.toml")
    assert caught.value.exit_code == EXIT_USAGE
    assert caught.value.message.startswith("profile mine.toml: ")
    return caught.value


NAMES = (
    "quick, bakeoff, burn-in, check, compile, cpu-vs-gpu, fp32-vs-amp, hosts, inference, llm, memory,"
    " pipeline, scaling"
)


def test_every_shipped_profile_reads_and_asks_its_question_and_quick_is_first_and_fits_three_minutes() -> (
    None
):
    profiles = shipped_profiles()
    assert ", ".join(profile.name for profile in profiles) == NAMES
    assert (profiles[0].replicates, profiles[0].budget_s * 1.2 <= 180) == (8, True)
    for profile in profiles:
        assert profile.question.endswith("?")
        for case in profile.cases:
            assert set(case.precisions) <= set(workload_named(case.workload).precisions)


def test_a_right_profile_is_read_as_it_is_written() -> None:
    profile = read_profile(RIGHT, "mine", "mine.toml")
    assert (profile.name, profile.version, profile.budget_s, profile.replicates) == ("mine", 2, 60.0, 3)
    gemm, spin = profile.cases
    assert (gemm.sizes, gemm.threads, gemm.weight) == (("mini", "base"), ("1", "all"), 1.5)
    assert (spin.threads, spin.weight) == (("all",), 1.0)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("budget_s = 60", "budget = 60", ["unknown key 'budget'", "did you mean budget_s?", "replicates"]),
        ("weight = 1.5", "wieght = 1.5", ["case 1: ", "'wieght'", "did you mean weight?", "precisions"]),
        ('"gemm"', '"gem"', ["case 1: workload: 'gem'", "did you mean gemm?", "conv_train"]),
        ('"spin"', '"resnet"', ["case 2: workload: 'resnet'", "gpt_train"]),
        ('"base"', '"bass"', ["case 1: gemm: sizes: 'bass'", "did you mean base?", "large"]),
        ('"gpu"', '"gpus"', ["case 1: gemm: devices: 'gpus'", "did you mean gpu?", "cpu"]),
        ('"amp"', '"fp16"', ["case 1: gemm: precisions: 'fp16'", "fp32, tf32, amp"]),
        ('"all"', '"4"', ["case 1: gemm: threads: '4'", "1, all"]),
        ('"mini", "base"', "", ["case 1: gemm: sizes: []", "a list of mini, base, large"]),
        ('["mini", "base"]', '"mini"', ["case 1: gemm: sizes: 'mini'", "a list of mini, base, large"]),
        ('["mini", "base"]', '[["mini"]]', ["case 1: gemm: sizes: ['mini']", "mini, base, large"]),
        ("budget_s = 60", "budget_s = 0", ["budget_s: 0", "a number from 1 to 86400"]),
        ("budget_s = 60", "budget_s = nan", ["budget_s: nan", "from 1 to 86400"]),
        ("budget_s = 60", "budget_s = 1e300", ["budget_s: 1e+300", "from 1 to 86400"]),
        ("budget_s = 60", f"budget_s = {10**400}", ["budget_s: 1000", "from 1 to 86400"]),
        ("budget_s = 60", f"budget_s = 0x{'f' * 6000}", ["budget_s: such a number", "from 1 to 86400"]),
        ("budget_s = 60", f"budget_s = {'9' * 6000}", ["is not valid TOML"]),
        ("budget_s = 60", 'budget_s = "60"', ["budget_s: '60'", "a number"]),
        ("replicates = 3", "replicates = 2.5", ["replicates: 2.5", "a whole number from 1 to 100"]),
        ("replicates = 3", "replicates = 101", ["replicates: 101", "a whole number from 1 to 100"]),
        ("version = 2", "version = true", ["version: True", "a whole number"]),
        ("weight = 1.5", "weight = -1", ["case 1: gemm: weight: -1", "from 0.01 to 100"]),
        ("schema = 1", "schema = 2", ["schema: 2", "this gputui reads 1"]),
        ('["cpu", "gpu"]', '["gpu"]', ["case 1: gemm: threads", 'devices = ["cpu"]']),
        (SPIN, SPIN.replace("fp32", "amp"), ["'amp'", "this workload has fp32"]),
        (SPIN, SPIN.replace("cpu", "gpu"), ["'gpu'", "this workload has cpu"]),
        (SPIN, AGAIN, ["case 2: gemm base gpu amp: is already in case 1"]),
        ("schema = 1", "", ["schema: missing", "a whole number"]),
        ("budget_s = 60", "budget_s = 60\nblocks = 4", ["blocks: 4", "a whole number from 5 to 10000"]),
        ("budget_s = 60", "budget_s = 60\nblocks = 7.5", ["blocks: 7.5", "a whole number"]),
        ('title = "Mine"', "", ["title: missing", "one line of printable text"]),
        ('title = "Mine"', 'title = " "', ["title: ' '"]),
        ('title = "Mine"', 'title = "\\u001b[31mred"', ["title: '\\x1b[31mred'", "printable"]),
        ('question = "How fast is mine?"', 'question = "a\\nb"', ["question: 'a\\nb'"]),
        ('workload = "gemm"', "", ["case 1: workload: missing"]),
        ('sizes = ["mini", "base"]', "", ["case 1: gemm: sizes: missing"]),
        ("schema = 1", "schema = ", ["is not valid TOML", "line 2"]),
        ("schema = 1", f"schema = {'[' * 5000}", ["is not valid TOML"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place_and_what_is_allowed(
    old: str, new: str, expected: list[str]
) -> None:
    error = refused(changed(old, new))
    for part in expected:
        assert part in f"{error.message}\n{error.hint}"
    assert len(error.message) < 300


@pytest.mark.parametrize("cases", ["", "case = []", "case = 3", 'case = ["gemm"]'])
def test_a_profile_without_cases_is_refused(cases: str) -> None:
    error = refused(f"{RIGHT.partition('[[case]]')[0]}\n{cases}")
    assert "case: " in error.message
    assert "at least one [[case]] table" in error.hint


@settings(max_examples=50)
@given(st.text(max_size=300) | st.text('[]{}="\n.#-_ \\abc123tn', max_size=300))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    assert refused(text).hint


TOML_VALUES = st.sampled_from(
    ["nan", "-inf", "1979-05-27", "07:32:00", "{}", "[[]]", '"\\u0000"', "true", "-0.0", "0b1", "[1, 'a']"]
)
KEYS = st.sampled_from(sorted({*tomllib.loads(RIGHT), *tomllib.loads(RIGHT)["case"][0]} - {"case"}))


@given(KEYS, TOML_VALUES)
def test_a_value_of_the_wrong_kind_is_reported_with_its_key(key: str, value: str) -> None:
    lines = [f"{key} = {value}" if line.startswith(f"{key} =") else line for line in RIGHT.split("\n")]
    if (key, value) in (("schema", "0b1"), ("version", "0b1"), ("replicates", "0b1"), ("budget_s", "0b1")):
        assert read_profile("\n".join(lines), "mine", "mine.toml").cases
    elif (key, value) == ("weight", "0b1"):
        assert read_profile("\n".join(lines), "mine", "mine.toml").cases[0].weight == 1.0
    else:
        assert f"{key}: " in refused("\n".join(lines)).message


@pytest.mark.parametrize(("typed", "meant"), [("quik", "quick"), ("cpu-vs-gpus", "cpu-vs-gpu")])
def test_an_unknown_name_suggests_the_closest(typed: str, meant: str) -> None:
    with pytest.raises(GputuiError) as caught:
        find_profile(typed)
    assert caught.value.hint.startswith(f"did you mean {meant}? one of quick")
    assert NAMES in caught.value.hint
    assert caught.value.exit_code == EXIT_USAGE


def test_a_file_is_a_profile_of_its_stem_and_what_is_none_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.md").touch()
    (tmp_path / "mine.toml").write_text(RIGHT)
    (tmp_path / "directory.toml").mkdir()
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    assert find_profile(str(tmp_path / "mine.toml")).name == "mine"
    for name, message, hint in (
        ("notes.md", "notes.md is a file, but not a profile", ""),
        ("mine", "mine", "to use the file of that name: mine.toml"),
        ("serve-bench", "serve-bench is a command, not a profile", "then gputui compare"),
        ("missing.toml", "missing.toml: cannot be read", ""),
        ("directory.toml", "directory.toml: cannot be read", ""),
        ("binary.toml", "binary.toml: cannot be read", ""),
    ):
        with pytest.raises(GputuiError) as caught:
            find_profile(name)
        assert message in caught.value.message
        assert hint in caught.value.hint
