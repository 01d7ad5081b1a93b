"""Whatever is killed at whatever time: finished work is in the file exactly once, and the file is intact.

A few kills, of every process; `tests/benchmarks/kills_at_random.py` does hundreds.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from command_line import gputui_here, write_spin_profile
from kills import VICTIMS, Killed, Trial, checked, kill_at_random
from stored_runs import store

AT_ONCE = 4


def trials_of(
    profile: Path, within_s: float, seeds: Iterable[int], victims: tuple[str, ...] = VICTIMS
) -> list[Trial]:
    """Of runs of a profile, compared with `base.db` beside it."""
    place = profile.parent

    def killed(seed: int) -> Killed:
        return kill_at_random(place / f"trial-{seed}", profile, within_s, seed, victims)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [checked(one, place / "base.db") for one in pool.map(killed, seeds)]


def assert_nothing_lost(trials: list[Trial]) -> None:
    assert [(t.victim, t.after_s, t.wrong) for t in trials if t.wrong] == []
    assert sum(t.begun for t in trials) >= len(trials) / 2


@pytest.mark.slow
def test_of_many_kills_none_loses_a_finished_launch_or_stores_one_twice(tmp_path: Path) -> None:
    base = gputui_here("run", write_spin_profile(tmp_path / "base.toml"), "--db", tmp_path / "base.db")
    assert base.returncode == 0, base.stderr
    profile = write_spin_profile(tmp_path / "spin.toml", replicates=3)
    trials = trials_of(profile, within_s=7, seeds=range(111, 117))
    assert_nothing_lost(trials)
    assert {t.victim for t in trials} == set(VICTIMS)


@pytest.mark.slow
def test_no_kill_of_a_run_with_torch_loses_a_finished_launch(tmp_path: Path) -> None:
    """Of the process that its workers are forks of."""
    store(tmp_path / "base.db", 1)
    profile = write_spin_profile(tmp_path / "gemm.toml", replicates=2, blocks=10, workload="gemm")
    assert_nothing_lost(trials_of(profile, within_s=15, seeds=(208,), victims=("zygote",)))
