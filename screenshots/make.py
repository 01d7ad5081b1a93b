"""Make the pictures of the screens: `python screenshots/make.py [-o DIR] [--tour] [--measure [PROFILE]]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from demo_pictures import pictures
from measured_pictures import QUICK, Subject, measured_pictures, tour
from tour import NAME as TOUR

from gputui.errors import GputuiError


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the pictures (SVG) of the screens.")
    parser.add_argument(
        "-o", dest="folder", type=Path, default=Path(__file__).parent, metavar="DIR", help="where [here]"
    )
    parser.add_argument(
        "--measure",
        nargs="?",
        const="",
        metavar="PROFILE",
        help="measure twice, and make pictures of the other screens too [gemm and gpt_train of quick]",
    )
    parser.add_argument("--tour", action="store_true", help="make the moving picture too")
    chosen = parser.parse_args()
    made: dict[str, str] = {}
    if chosen.measure is not None:
        subject = Subject(chosen.measure) if chosen.measure else QUICK
        try:
            made |= measured_pictures(subject, lambda line: print(line, file=sys.stderr))
        except GputuiError as error:
            sys.exit(f"{error.message}: {error.hint}")
    if chosen.tour:
        made[TOUR] = tour()
    made |= pictures()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    for name, svg in made.items():
        path = chosen.folder / name
        path.write_text(svg, encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
