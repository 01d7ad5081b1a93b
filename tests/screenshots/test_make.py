"""The makers of pictures: those of simulated GPUs say so, the others show measurements."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import make
import pytest
from command_line import write_spin_profile
from measured_pictures import NAMES, SIZES
from terminal_svg import BACKGROUND, FOREGROUND, Colours, Frame, moving_svg
from tour import NAME as TOUR
from tour import SCENES

from gputui.tui.shell.registry import SCREENS

SHOWN = {entry.id: entry for entry in SCREENS}
MAKE = Path(__file__).parents[2] / "screenshots" / "make.py"
MEASURED = {f"{name}-{width}x{height}.svg" for name in NAMES for width, height in SIZES}
PROFILED = {name for name in MEASURED if name.startswith("results-step")}
"""Of runs with a profiled pass alone."""
MOST_BYTES = 400_000
"""Of the moving picture, which a page loads before anybody asks for it."""


@pytest.fixture(scope="module")
def shots(of_all_processes: Path) -> Path:
    """A directory `made` with every picture, and what making them left at home; one process makes them."""
    place = of_all_processes / "shots"
    place.mkdir(exist_ok=True)
    with (place / "said").open("a+") as said:
        fcntl.flock(said, fcntl.LOCK_EX)
        if not said.seek(0, os.SEEK_END):
            spin = write_spin_profile(place / "spin.toml", blocks=14)
            done = subprocess.run(
                [sys.executable, MAKE, "-o", place / "made", "--tour", "--measure", spin],
                env={
                    **os.environ,
                    "GPUTUI_DB": str(place / "home/a.db"),
                    "GPUTUI_STATE": str(place / "home"),
                },
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            said.write(done.stdout)
    return place


@pytest.mark.slow
def test_pictures_are_the_committed_ones_and_all_say_demo_data(shots: Path, repository: Path) -> None:
    made = {path.name: path for path in sorted((shots / "made").iterdir())}
    assert sorted(map(Path, (shots / "said").read_text().split())) == list(made.values())
    kept = {path.name for path in (repository / "screenshots").glob("*.svg")}
    of_demo = kept - MEASURED - {TOUR}
    assert of_demo == made.keys() - MEASURED - {TOUR}
    for name in of_demo:
        assert made[name].read_bytes() == (repository / "screenshots" / name).read_bytes(), (
            f"{name}: python tests/makers/goldens.py makes it anew; look at it"
        )
        assert "DEMO DATA" in "".join(text_of(made[name]).itertext())
        assert "href" not in made[name].read_text()
        assert made[name].stat().st_size < 200_000


@pytest.mark.slow
def test_pictures_of_the_other_screens_show_what_was_measured_and_leave_nothing_behind(shots: Path) -> None:
    made = {path.name: path for path in (shots / "made").iterdir()}
    assert made.keys() >= MEASURED - PROFILED
    texts = {name: "\n".join(text_of(made[name]).itertext()) for name in sorted(MEASURED - PROFILED)}
    for name, text in texts.items():
        assert "href" not in made[name].read_text()
        assert "DEMO DATA" not in text
        entry = SHOWN[name.partition("-")[0]]
        assert f"[{entry.key} {entry.short if '80x24' in name else entry.title}]" in text
        assert text_of(made[name]).get("width") == str(int(name.split("-")[-1].split("x")[0]) * 8 + 20)
    for size in ("80x24", "120x40"):
        assert "hashing mini cpu fp32 1 thread" in texts[f"run-progress-{size}.svg"]
        assert ", fin" in texts[f"run-ended-{size}.svg"]  # the title is cut at 80 columns
        assert "all cores" in texts[f"results-runs-{size}.svg"]
        assert "one core" in texts[f"results-runs-{size}.svg"]
        assert ", launch " in texts[f"results-timeline-{size}.svg"]
        assert "a step" in texts[f"compare-evidence-{size}.svg"]
    assert not (shots / "home").exists()


@pytest.mark.slow
def test_the_moving_picture_is_of_the_demo_and_leaves_no_question_open(shots: Path) -> None:
    for shot in (shots / "made" / TOUR, MAKE.with_name(TOUR)):
        text = "\n".join(text_of(shot).itertext())
        assert all(caption in text for caption, _ in SCENES.values())
        assert "DEMO DATA" in text
        assert "less per token" in text
        assert not re.search("unknown|not profiled|no profiled pass", text)
        assert shot.stat().st_size < MOST_BYTES


def test_the_gallery_shows_every_picture_that_there_is(repository: Path) -> None:
    gallery = (repository / "screenshots" / "README.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\(([\w.-]+\.svg)\)", gallery))
    kept = {path.name for path in (repository / "screenshots").glob("*.svg")}
    assert shown == kept
    assert kept >= MEASURED | {TOUR}
    assert not {name for name in kept - MEASURED - {TOUR} if not name.startswith("monitor-")}


def test_the_readme_is_short_and_shows_the_moving_picture_which_needs_nothing_from_elsewhere(
    repository: Path,
) -> None:
    readme = (repository / "README.md").read_bytes()
    assert len(readme) <= 9_000
    assert b"](screenshots/%s)" % TOUR.encode() in readme
    picture = (repository / "screenshots" / TOUR).read_text(encoding="utf-8")
    assert len(picture.encode()) < MOST_BYTES
    assert "@keyframes" in picture
    assert not re.search(r"<script|href|url\(|@import|@font-face", picture)


def test_a_moving_picture_shows_each_frame_in_its_time_and_the_last_if_still() -> None:
    plain, tinted = Colours(FOREGROUND, "", False, False), Colours(FOREGROUND, BACKGROUND, False, False)
    frames = [
        Frame([[("title", plain)], [("first", plain)]], 1.0),
        Frame([[("title", plain)], [("second", tinted)]], 3.0),
        Frame([[("title", plain)], [("first", plain), (" last", plain)]], 1.0),
    ]
    picture = moving_svg(frames, 12, "three frames")
    ElementTree.fromstring(picture)
    texts: dict[str, set[str]] = {}
    for name, drawn in re.findall(r'<g class="(\w+)">(.*?)</g>', picture):
        texts.setdefault(name, set()).update(re.findall(r">([^<>]+)</text>", drawn))

    def shown(percent: float) -> set[str]:
        return {text for name in texts if is_visible(picture, name, percent) for text in texts[name]}

    assert shown(10) == {"title", "first"}
    assert shown(50) == {"title", "second"}
    assert shown(90) == {"title", "first", "last"}
    hidden = set(re.findall(r"\.(\w+)\{visibility:hidden", picture))
    still = {text for name in texts.keys() - hidden for text in texts[name]}
    assert still == {"title", "first", "last"}


def is_visible(picture: str, name: str, percent: float) -> bool:
    """Whether a group is shown then, by the rules of its name, each of which holds until the next."""
    found = re.search(rf"@keyframes {name}\{{(.*?\}})\}}", picture)
    steps = re.findall(r"([\d.]+)%\{visibility:(\w+)\}", found.group(1)) if found else [("0", "visible")]
    return [word for begin, word in steps if float(begin) <= percent][-1] == "visible"


@pytest.mark.slow
def test_where_nothing_can_be_measured_no_picture_is_made_and_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.toml").write_text("schema = 9")
    words = ["-o", str(tmp_path / "shots"), "--measure", str(tmp_path / "broken.toml")]
    monkeypatch.setattr(sys, "argv", [str(MAKE), *words])
    not_started = "^pictures: the run was not started: gputui profiles says what can run here$"
    with pytest.raises(SystemExit, match=not_started):  # a text, so its status is 1
        make.main()
    assert not (tmp_path / "shots").exists()


def text_of(picture: Path) -> ElementTree.Element:
    return ElementTree.fromstring(picture.read_bytes())


def test_every_letter_stands_in_its_own_column(repository: Path) -> None:
    text = (repository / "screenshots" / "monitor-8gpu-80x24.svg").read_text()
    (width,) = re.findall(r'viewBox="0 0 ([\d.]+) ', text)
    places = [float(x) for xs in re.findall(r'<text[^>]* x="([^"]+)"', text) for x in xs.split()]
    assert places
    assert max(places) < float(width)
