"""No input may do harm: one clear error, the right exit status, nothing changed on the disk."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from bad_files import BAD_FILES, FOR_ALL
from command_line import WORDS, printed, without_roots_privilege, write_spin_profile
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import make_journal

from gputui.cli import gputui as group
from gputui.cli import main
from gputui.cli.verbs import COMMANDS, ELSEWHERE, SPELT
from gputui.errors import EXIT_BUG, GputuiError
from gputui.services.runs.options import blocks_from, budget_from, launches_from, price_from
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.writing import store_run


def assert_clear(err: str) -> None:
    """A message and at most one hint; no traceback, no control characters."""
    lines = err.rstrip("\n").split("\n")
    assert "Traceback" not in err
    assert 1 <= len(lines) <= 3, err
    assert lines[0].startswith("gputui: ")
    assert all(char.isprintable() for line in lines for char in line), err


def snapshot(place: Path) -> dict[str, bytes | str]:
    """Every entry below a directory, with its bytes or its type."""
    found: dict[str, bytes | str] = {}
    for entry in sorted(place.rglob("*")):
        name = str(entry.relative_to(place))
        found[name] = entry.read_bytes() if entry.is_file() and not entry.is_symlink() else "other"
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A valid result file."""
    place = tmp_path_factory.mktemp("whole")
    run_dir = make_journal(place / "run")
    store_run(place / "a.db", read_journal(run_dir), read_telemetry(run_dir))
    return place / "a.db"


@pytest.mark.parametrize("make", BAD_FILES, ids=lambda make: make.__name__.strip("_"))
def test_what_is_no_result_file_is_refused_by_every_command_and_left_as_it_was(
    tmp_path: Path, whole: Path, capsys: pytest.CaptureFixture[str], make: Callable[[Path, Path], None]
) -> None:
    """By one command of each kind, and for three of these files by all: they open a file by the same way."""
    place = tmp_path / "files"
    place.mkdir()
    bad = place / "bad.db"
    make(bad, whole)
    profile = write_spin_profile(tmp_path / "spin.toml")
    before = snapshot(place)
    is_for_all = make in FOR_ALL
    every: tuple[tuple[int, tuple[str | Path, ...]], ...] = (
        (2, ("runs", bad)),
        (4, ("import", whole.parent / "run", "--db", bad)),
        (2, ("compare", whole, bad)),
        (2, ("show", "latest", bad)),
        (2, ("rm", f"{bad}@latest", "--yes")),
        (2, ("label", f"{bad}@latest", "new")),
        (2, ("merge", bad, "-o", tmp_path / "out.db")),
        (4, ("merge", whole, "-o", bad)),
        (4, ("run", profile, "--db", bad)),
    )
    for status, words in every if is_for_all else every[:2]:
        left, out, err = printed(capsys, *words)
        assert (left, out) == (status, ""), (words, err)
        assert_clear(err)
        assert "bad.db" in err
        kept = {name: value for name, value in snapshot(place).items() if name != "bad.db.lock"}
        assert kept == before, words
    assert not (tmp_path / "out.db").exists()


@pytest.mark.parametrize(
    "name",
    ["no/such/mount/a.db", "x" * 300 + ".db", "a\nb\x1b[31m/c.db"],
    ids=ascii,
)
def test_an_impossible_path_is_reported_before_anything_is_measured(
    tmp_path: Path, whole: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    profile = write_spin_profile(tmp_path / "spin.toml")
    before = snapshot(tmp_path)
    for words in (
        ("run", profile, "--db", tmp_path / name),
        ("import", whole.parent / "run", "--db", tmp_path / name),
        ("runs", tmp_path / name),
        ("compare", tmp_path / name, whole),
    ):
        status, out, err = printed(capsys, *words)
        assert (status in (2, 4), out) == (True, ""), err
        assert_clear(err)
    assert snapshot(tmp_path) == before


def test_every_file_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = printed(capsys, "compare", tmp_path / "a.db", tmp_path / "b.db")
    assert (status, out) == (2, "")
    said = " ".join(err.split())
    assert f"there are no result files {tmp_path / 'a.db'} and {tmp_path / 'b.db'}" in said


def test_the_runs_of_a_directory_are_listed_without_a_file_that_cannot_be_read(
    tmp_path: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.db").write_bytes(whole.read_bytes())
    _, alone, _ = printed(capsys, "runs", tmp_path, "--json")
    (tmp_path / "b.db").write_bytes(b"not a database" * 999)

    status, out, err = printed(capsys, "runs", tmp_path, "--json")
    assert (status, out) == (0, alone)
    assert f"left out: {tmp_path / 'b.db'} is not a gputui result file" in err
    (tmp_path / "a.db").unlink()
    assert printed(capsys, "runs", tmp_path, "--json")[:2] == (2, "")


@pytest.mark.parametrize("what", ["unreadable", "in a directory that may not be written"])
def test_missing_permissions_are_reported(tmp_path: Path, whole: Path, what: str) -> None:
    place = tmp_path / "files"
    place.mkdir()
    db = place / "a.db"
    db.write_bytes(whole.read_bytes())
    profile = write_spin_profile(tmp_path / "spin.toml")
    if what == "unreadable":
        db.chmod(0)
        commands: list[tuple[int, tuple[str, ...]]] = [(2, ("runs", str(db)))]
    else:
        place.chmod(0o500)
        commands = [(4, ("run", str(profile), "--db", str(place / name))) for name in ("a.db", "new.db")]
    for status, words in commands:
        done = subprocess.run(
            [*WORDS, *words], preexec_fn=without_roots_privilege, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (status, ""), done.stderr
        assert_clear(done.stderr)
        assert str(place) in done.stderr
    place.chmod(0o700)
    assert [entry.name for entry in place.iterdir()] == ["a.db"]


# Profiles


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('title = "spin"', 'title = "spin', "line 3"),
        ("[[case]]", "[case]", "case"),
        ("schema", "\x00\xff\xfe" * 50, "bad.toml"),
    ],
)
def test_a_profile_with_a_mistake_is_reported_with_file_key_and_what_is_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, expected: str
) -> None:
    path = write_spin_profile(tmp_path / "bad.toml")
    path.write_bytes(path.read_text().replace(old, new, 1).encode("latin-1"))
    before = snapshot(tmp_path)
    for words in (("run", path, "--db", tmp_path / "a.db"), ("profiles", path)):
        status, out, err = printed(capsys, *words)
        assert (status, out) == (2, "")
        assert_clear(err)
        assert "bad.toml" in err
        assert expected in err
    assert snapshot(tmp_path) == before


# Interpreters


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "my-python"),
        ("echo '{]'; exit 0", "my-python"),
        ("echo 'no such device' >&2; exit 3", "no such device"),
    ],
)
def test_an_invalid_interpreter_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, expected: str
) -> None:
    path = tmp_path / "my-python"
    if text is not None:
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    profile = write_spin_profile(tmp_path / "spin.toml")
    status, out, err = printed(capsys, "run", profile, "--db", tmp_path / "a.db", "--python", path)
    assert (status in (2, 3), out) == (True, "")
    assert "Traceback" not in err
    assert expected in err
    assert not (tmp_path / "a.db").exists()


# Commands, options, numbers


def misspelt() -> list[str]:
    """Every command with a letter left out, doubled or exchanged, and with its neighbours exchanged."""
    words = []
    for name in (command.name for command in COMMANDS):
        for at in range(len(name)):
            words += [
                name[:at] + name[at + 1 :],
                name[:at] + name[at] + name[at:],
                f"{name[:at]}p{name[at + 1 :]}",
            ]
            words.append(name[:at] + name[at : at + 2][::-1] + name[at + 2 :])
    return words


def test_no_near_miss_is_answered_with_a_command_that_ends_or_removes_something() -> None:
    names = {command.name for command in COMMANDS}
    suggested = set()
    for word in {*misspelt(), *ELSEWHERE} - names - {"", "-"}:
        with pytest.raises(GputuiError) as caught:
            group.resolve_command(click.Context(group), [word])
        if found := re.search(r"`; you may mean `gputui ([a-z -]+)`$", caught.value.message):
            suggested.add(found[1])
    assert suggested == {SPELT[name] for name in names - {"stop", "rm"}}


def test_nor_is_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("--stp", "--stopp", "--top"):
        status, _, err = printed(capsys, "run", word)
        assert (status, f"run: no such option '{word}'" in err, "did you mean" in err) == (2, True, False)
    assert "did you mean --attach?" in printed(capsys, "run", "--atach")[2]
    _, _, err = printed(capsys, "monitor", "--once", "--interval", "1")
    assert "monitor --once: no such option '--interval'" in err
    assert "gputui monitor --once [OPTIONS]; gputui monitor --once --help explains the options" in err


def test_words_of_other_tools_and_misspelt_ones_lead_to_the_verb_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words, verb in (
        ("top htop nvtop watch status gpus", "monitor"),
        ("test health preflight", "check"),
        ("list ls", "db runs"),
        ("bench", "run"),
        ("diff", "compare"),
        ("price", "gpu"),
        ("trace", "db import"),
        ("quick", "run quick"),
        ("atach", "run --attach"),
        ("mrege", "db merge"),
    ):
        for word in words.split():
            expected = f"gputui: no command `{word}`; you may mean `gputui {verb}`\n"
            assert printed(capsys, word) == (2, "", expected)
    assert printed(capsys, "stpo")[2] == "gputui: no command `stpo`; gputui --help lists the commands\n"
    assert printed(capsys, "db", "shwo")[2] == "gputui: no command `db shwo`; you may mean `gputui show`\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("a.db",), "gputui show a.db"),
        (("step trace.json.gz",), "gputui import 'step trace.json.gz'"),
        (
            ("merge",),
            "merge: missing argument 'IN...'\n  gputui db merge [OPTIONS] IN...; gputui db merge --help",
        ),
        (("run", "--lable", "x"), "--label"),
        (("bakeoff", "--slurm"), "--via 'srun -w NODE'"),
        (("compare", "a.db", "reference:x"), "gputui show F judges its cases by the reference"),
        (("fit", "README.md"), "unknown model 'README.md'"),
        (("--price", "abc"), "--price: 'abc' is not a number\n  USD per hour, such as 2.49"),
        (("--price", "0"), "--price: 0 is not in the range 0.001 to 1000000"),
        (("--interval", "60"), "60 is not in the range 0.2 to 10"),
        (("--interval", "nan"), "--interval: nan is not in the range 0.2 to 10"),
        (("compare",), "no file is named"),
        (("run", "--device", "gpu:99"), "gpu:99"),
        (("run", "--device", "GPU-not-a-uuid"), "GPU-not-a-uuid"),
        (("run", "--device", "tpu"), "cpu, gpu, gpu:N"),
        *(
            ((*words, "nothing"), "no run is in progress")
            for words in (("attach",), ("stop",), ("run", "--attach"), ("run", "--stop"))
        ),
        *(
            ((*words, "--via", "false", "--dir", ""), "--dir '': names no directory")
            for words in (("bakeoff", "--clean", "--yes"), ("monitor",))
        ),
    ],
)
def test_unknown_arguments_are_reported_with_the_known_ones(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = printed(capsys, *words)
    assert (status in (2, 3), out) == (True, "")
    assert "Traceback" not in err
    assert expected in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("selector", ["latest~999999", "latest~", "ffffffff", "", "@", "no such label"])
def test_an_unknown_run_is_reported(whole: Path, capsys: pytest.CaptureFixture[str], selector: str) -> None:
    before = whole.read_bytes()
    for words in (("show", selector, whole), ("compare", f"{whole}@{selector or '?'}", whole)):
        status, out, err = printed(capsys, *words)
        assert (status, out) == (2, "")
        assert_clear(err)
    assert whole.read_bytes() == before


def _numeric_options() -> Iterator[tuple[str, click.Option]]:
    context = click.Context(group)
    for command in COMMANDS:
        found = group.get_command(context, command.name)
        assert found is not None
        for parameter in found.params:
            is_number = isinstance(
                parameter.type, click.IntRange | click.FloatRange | type(click.INT) | type(click.FLOAT)
            )
            is_number |= getattr(parameter.type, "func", None) in (
                launches_from,
                budget_from,
                blocks_from,
                price_from,
            )
            if isinstance(parameter, click.Option) and is_number and not parameter.count:
                yield command.name, parameter


NUMERIC = list(_numeric_options())
NUMBERS = st.one_of(
    st.sampled_from(
        ["nan", "-nan", "inf", "-inf", "-1", "-0.5", "1e999", "9" * 40, "", "x", "1,5", "٣", "0x1"]
    ),
    st.floats(max_value=-1e-9).map(repr),
    st.integers(min_value=10**12).map(str),
    st.text("abcäß٣½ ~@", min_size=1, max_size=5),
)


assert {option.opts[0] for name, option in NUMERIC if name == "run"} >= {
    *("--launches", "--budget", "--blocks", "--price", "--seed")
}


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_number_that_cannot_be_is_refused_by_every_option_before_anything_is_done(
    data: st.DataObject,
) -> None:
    """Outside the range of every option."""
    name, option = data.draw(st.sampled_from(NUMERIC))
    text = data.draw(NUMBERS)
    if _is_in_range(option, text):
        return
    with pytest.raises(SystemExit) as left:
        main([name, option.opts[0], text, *_needed(name)])
    assert left.value.code == (125 if name == "record" else 2), (name, option.opts[0], text)


def _is_in_range(option: click.Option, text: str) -> bool:
    try:
        option.type.convert(text, option, None)
    except (click.ClickException, GputuiError):
        return False
    return not re.search(r"nan|inf|-|e999|\d{13}", text.lower())


def _needed(name: str) -> list[str]:
    """Arguments that end the command at once if it accepts the number."""
    return {"run": ["no-such-profile"], "record": ["--", "/no/such/program"]}.get(name, ["/no/such/file"])


# How the process ends


def test_a_bug_is_reported_as_one_and_debug_shows_where(
    whole: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("of an example")

    monkeypatch.setattr("gputui.cli.files.list_runs", broken)
    status, out, err = printed(capsys, "runs", whole)
    assert (status, out) == (EXIT_BUG, "")
    assert_clear(err)
    assert "a bug in gputui: ZeroDivisionError: of an example" in err
    assert "--debug" in err
    with pytest.raises(ZeroDivisionError):
        main(["--debug", "runs", str(whole)])


def test_a_reader_that_has_enough_is_not_told_of_an_error(whole: Path) -> None:
    for shell in ("{} runs {} | head -0", "{} runs {} --json | head -1", "{} show latest {} | true"):
        line = f"{shell.format(f'{sys.executable} -m gputui', whole)}; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=300, check=False)
        assert done.stderr == ""
        assert done.stdout.splitlines()[-1] == "0"


@pytest.mark.parametrize("words", ["runs {}", "compare {} {}"])
def test_no_thread_that_ends_late_keeps_what_duckdb_handed_out(words: str, whole: Path) -> None:
    held = Path(__file__).parents[1] / "makers" / "held_threads.py"
    typed = [sys.executable, str(held), *words.format(whole, whole).split()]
    done = subprocess.run(typed, capture_output=True, text=True, timeout=300, check=False)
    assert "leaked" not in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_working_directory_a_whole_path_is_enough_and_a_name_alone_is_not(
    whole: Path, tmp_path: Path
) -> None:
    gone = f"mkdir {tmp_path}/gone && cd {tmp_path}/gone && rmdir {tmp_path}/gone && exec {sys.executable}"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    found, lost = (
        subprocess.run(
            ["bash", "-c", f"{gone} -m gputui runs {name}"],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        for name in (whole, "a.db")
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert "finished" in found.stdout
    assert lost.returncode == 2
    assert_clear(lost.stderr)
    assert "has been removed" in lost.stderr


def test_output_that_cannot_be_written_is_an_error(whole: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        typed = [*WORDS, "runs", str(whole), "--json"]
        done = subprocess.run(typed, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert_clear(done.stderr)
    assert "No space left on device" in done.stderr
