"""Whatever is killed at whatever time: finished work is in the file exactly once, and the file is intact.

A few kills, of every process; `tests/benchmarks/kills_at_random.py` does hundreds.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from command_line import gputui, write_spin_profile
from kills import VICTIMS, Trial, kill_at_random

AT_ONCE = 4


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    profile = write_spin_profile(tmp_path / "base.toml")
    done = gputui("run", profile, "--db", tmp_path / "base.db")
    assert done.returncode == 0, done.stderr
    return tmp_path / "base.db"


def trials_of(place: Path, profile: Path, baseline: Path, within_s: float, seeds: range) -> list[Trial]:
    def trial(seed: int) -> Trial:
        return kill_at_random(place / f"trial-{seed}", profile, baseline, within_s, seed)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(trial, seeds))


def assert_nothing_lost(trials: list[Trial]) -> None:
    assert [(t.victim, t.after_s, t.wrong) for t in trials if t.wrong] == []
    assert sum(t.begun for t in trials) >= len(trials) / 2


@pytest.mark.slow
def test_of_many_kills_none_loses_a_finished_launch_or_stores_one_twice(
    tmp_path: Path, baseline: Path
) -> None:
    profile = write_spin_profile(tmp_path / "spin.toml", replicates=3, blocks=8)
    trials = trials_of(tmp_path, profile, baseline, within_s=9, seeds=range(111, 117))
    assert_nothing_lost(trials)
    assert {t.victim for t in trials} == set(VICTIMS)


@pytest.mark.slow
def test_no_kill_of_a_run_with_torch_loses_a_finished_launch(tmp_path: Path, baseline: Path) -> None:
    profile = write_spin_profile(tmp_path / "gemm.toml", replicates=2, blocks=20, workload="gemm")
    assert_nothing_lost(trials_of(tmp_path, profile, baseline, within_s=18, seeds=range(208, 210)))
