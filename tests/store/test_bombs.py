"""Files that would take gigabytes or minutes if they were read whole: refused soon and with little memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from bomb_files import Bomb, bombs, make_bomb, outcome, sound_file

from gputui.errors import EXIT_DONE, EXIT_USAGE, GputuiError
from gputui.services.results.frames import load
from gputui.store.merging import merge_files


@pytest.mark.slow
@pytest.mark.parametrize("bomb", list(bombs()), ids=lambda bomb: bomb.name)
def test_a_bomb_is_refused_in_forty_seconds_and_half_a_gibibyte(bomb: Bomb, tmp_path: Path) -> None:
    sound = sound_file(tmp_path)
    db = make_bomb(bomb, sound, tmp_path / "a.db")
    for words in (["runs", str(db)], ["show", "latest", str(db)], ["compare", str(db), str(sound)]):
        ended = outcome(words, tmp_path)
        print(f"{bomb.name:50} {words[0]:8} {ended.status} {ended.seconds:5.1f} s {ended.peak_mib:4} MiB")
        assert ended.status in ((EXIT_USAGE,) if words[0] in bomb.refused_by else (EXIT_DONE, EXIT_USAGE))
        assert ended.seconds <= 40
        assert ended.peak_mib <= 512


def test_the_table_the_column_the_size_and_the_limit_are_named(tmp_path: Path) -> None:
    label = next(bomb for bomb in bombs() if bomb.name == "a label of 200 kB")
    sound = sound_file(tmp_path)
    db = make_bomb(label, sound, tmp_path / "a.db")
    for read in (lambda: load(db), lambda: merge_files([db], tmp_path / "m.db")):
        with pytest.raises(GputuiError, match=r"a\.db holds a text of 200,000 bytes in runs\.l") as caught:
            read()
        assert "at most 65,536" in caught.value.message
        assert caught.value.exit_code == EXIT_USAGE
    assert not (tmp_path / "m.db").exists()
