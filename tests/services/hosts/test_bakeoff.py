"""Bakeoffs over real ssh servers on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import gputui, write_spin_profile
from sshd import Servers, may_unshare, needs_sshd

from gputui.model.journal import Price
from gputui.store.reading import open_result

pytestmark = [needs_sshd, pytest.mark.slow]
SAME_BOX = () if may_unshare() else ("--same-box-parallel",)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    made = Servers(tmp_path / "servers")
    yield made
    made.end()


def test_two_hosts_are_measured_at_once_and_compared_and_nothing_stays_there_but_the_zip(
    servers: Servers, tmp_path: Path
) -> None:
    hosts = [servers.start(name) for name in ("one", "two")]
    profile, db = write_spin_profile(tmp_path / "spin.toml"), tmp_path / "a.db"
    words = ("bakeoff", profile, "--host", "one", "--host", "two", "--db", db, "--yes", *SAME_BOX)
    done = gputui(*words, "--price", "one=2.5", env=servers.environment)
    assert done.returncode == 0, done.stderr
    with open_result(db) as file:
        stored = [file.run(summary.run_id) for summary in file.summaries()]
    assert [run.cases[0].outcome for run in stored] == ["ok", "ok"]
    assert sorted(
        run.summary.price.usd_per_hour for run in stored if isinstance(run.summary.price, Price)
    ) == [2.5]
    listed = [line.split() for line in done.stdout.splitlines()[:2]]
    assert [words[:2] for words in listed] == [["a", "one"], ["b", "two"]]
    assert {words[2] for words in listed} == {run.summary.short_id for run in stored}
    for host in hosts:
        left = {str(p.relative_to(host.home)) for p in host.home.rglob("*") if p.is_file()}
        assert {Path(name).parent.name for name in left} == {".gputui"}
        assert sum((host.home / name).stat().st_size for name in left) < 1_000_000
