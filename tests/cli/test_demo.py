"""`gputui demo`: pictures of a box that does not exist, which say so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_line import gputui

SVG = "{http://www.w3.org/2000/svg}"


def test_pictures_are_the_committed_ones_and_all_say_demo_data(tmp_path: Path, repository: Path) -> None:
    done = gputui("demo", "--screenshots", tmp_path / "shots")
    assert done.returncode == 0, done.stdout
    made = sorted((tmp_path / "shots").iterdir())
    assert [Path(line) for line in done.stdout.split()] != []
    assert {path.name for path in made} == {p.name for p in (repository / "screenshots").glob("*.svg")}
    for path in made:
        assert path.read_bytes() == (repository / "screenshots" / path.name).read_bytes(), (
            f"{path.name} has changed: gputui demo --screenshots screenshots, and look at it"
        )
        root = ElementTree.fromstring(path.read_bytes())
        assert "DEMO DATA" in "".join(root.itertext())
        assert "href" not in path.read_text()
        assert path.stat().st_size < 200_000


def test_every_letter_stands_in_its_own_column(repository: Path) -> None:
    text = (repository / "screenshots" / "monitor-8gpu-80x24.svg").read_text()
    (width,) = re.findall(r'viewBox="0 0 ([\d.]+) ', text)
    places = [float(x) for xs in re.findall(r'<text[^>]* x="([^"]+)"', text) for x in xs.split()]
    assert places
    assert max(places) < float(width)


def test_a_folder_that_cannot_be_written_and_numbers_out_of_range_are_told() -> None:
    refused = gputui("demo", "--screenshots", "/proc/nowhere")
    assert refused.returncode == 2
    assert "pictures cannot be written" in refused.stderr
    assert gputui("demo", "--gpus", "73").returncode == 2


def test_without_a_terminal_it_says_how_pictures_are_made() -> None:
    done = gputui("demo")
    assert done.returncode == 2
    assert "--screenshots DIR" in done.stderr


@pytest.mark.parametrize("gpus", ["1", "8"])
def test_made_up_gpus_need_nothing_heavy(gpus: str) -> None:
    code = (
        "import sys\n"
        "from gputui.services.demo import DemoBox, watched\n"
        f"samples = list(watched(DemoBox({gpus}), 3))\n"
        "print(len(samples[-1].gpus), {'duckdb', 'numpy', 'pandas', 'torch'} & set(sys.modules) or 'light')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [gpus, "light"]
