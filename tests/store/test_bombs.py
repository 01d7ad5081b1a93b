"""Files that would take gigabytes or minutes if they were read whole: refused soon and with little memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from bomb_files import Bomb, Commands, bombs, make_bomb, sound_file

from gputui.cli import main
from gputui.errors import EXIT_DONE, EXIT_USAGE, GputuiError
from gputui.services.results.frames import load
from gputui.store import opening
from gputui.store.merging import merge_files
from gputui.store.opening import Deadline, TooLarge, one_deadline, open_read_only, rows_of


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sound_file(tmp_path_factory.mktemp("sound"))


@pytest.fixture(scope="module")
def measured() -> Iterator[Commands]:
    with Commands() as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("bomb", list(bombs(share=0.15)), ids=lambda bomb: bomb.name)
def test_a_bomb_is_refused_in_forty_seconds_and_half_a_gibibyte(
    bomb: Bomb, sound: Path, measured: Commands, tmp_path: Path
) -> None:
    """By commands that read it. `tests/benchmarks/bombs.py` runs all, on files of more rows."""
    db = make_bomb(bomb, sound, tmp_path / "a.db")
    words = {"runs": (str(db),), "show": ("latest", str(db)), "compare": (str(db), str(sound))}
    tried = bomb.refused_by or tuple(words)
    commands = [(name, *words[name]) for name in tried]
    for name, ended in zip(tried, measured.outcomes(commands, tmp_path), strict=True):
        print(f"{bomb.name:50} {name:8} {ended.status} {ended.seconds:5.1f} s {ended.peak_mib:4} MiB")
        assert ended.status in ((EXIT_USAGE,) if bomb.refused_by else (EXIT_DONE, EXIT_USAGE))
        assert ended.seconds <= 40
        assert ended.peak_mib <= 512


def test_the_table_the_column_the_size_and_the_limit_are_named(sound: Path, tmp_path: Path) -> None:
    label = next(bomb for bomb in bombs() if bomb.name == "a label of 200 kB")
    db = make_bomb(label, sound, tmp_path / "a.db")
    for read in (lambda: load(db), lambda: merge_files([db], tmp_path / "m.db")):
        with pytest.raises(GputuiError, match=r"a\.db holds a text of 200,000 bytes in runs\.l") as caught:
            read()
        assert "at most 65,536" in caught.value.message
        assert caught.value.exit_code == EXIT_USAGE
    assert not (tmp_path / "m.db").exists()


def test_a_query_that_is_refused_names_the_tables_that_it_reads(sound: Path) -> None:
    opened = open_read_only(sound)
    sql = f"SELECT 1 FROM {opened.catalog}.main.cases, {opened.catalog}.main.blocks"
    with closing(opened.connection), pytest.raises(GputuiError, match="1 rows in cases and blocks"):
        rows_of(opened.connection, opened.deadline, sql, most=1)


def test_a_command_that_opens_files_again_has_one_deadline_for_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(opening, "time", SimpleNamespace(monotonic=lambda: now))
    a, b = tmp_path / "a.db", tmp_path / "b.db"
    with one_deadline():
        first = Deadline([a])
        now += 20
        assert first.left_s() == 10
        now += 3600  # the command does something else
        second = Deadline([a, b])
        now += 10
        assert second.left_s() == 1
        now += 1
        with pytest.raises(TooLarge, match=r"a\.db and 1 other file read with it took longer than 31 s"):
            second.left_s()
        with pytest.raises(TooLarge):
            Deadline([b]).left_s()
    assert Deadline([b]).left_s() == 30


@pytest.mark.parametrize(
    "words",
    [("runs", "{a}"), ("show", "latest", "{a}"), ("compare", "{a}", "{b}")],
    ids=lambda words: words[0],
)
def test_what_a_command_opens_is_read_by_its_deadline(
    words: tuple[str, ...], sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"a": sound, "b": shutil.copy(sound, tmp_path / "b.db")}
    made: list[Deadline] = []
    made_by = Deadline.__init__

    def kept(self: Deadline, files: Iterable[Path]) -> None:
        made_by(self, files)
        made.append(self)

    monkeypatch.setattr(Deadline, "__init__", kept)
    with pytest.raises(SystemExit):
        main([word.format(**files) for word in words])
    assert {id(one.spent_s) for one in made} == {id(made[0].spent_s)}


def test_the_compare_screen_reads_without_the_deadline_of_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[float] = []

    def shown(*words: str) -> int:
        Deadline([tmp_path]).spent_s[tmp_path] = 29
        left.append(Deadline([tmp_path]).left_s())
        return EXIT_DONE

    monkeypatch.setattr("gputui.cli.screens.show_app", shown)
    monkeypatch.setattr("gputui.cli.compare.no_terminal", lambda: "")
    with pytest.raises(SystemExit):
        main(["compare", "--tui", "a.db", "b.db"])
    assert left[0] > 29
