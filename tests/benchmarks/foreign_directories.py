"""Ten directories that are not gputui's, and archives that another account swaps: as root, `--tries 100`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "makers"))

from adversary import SHELL, files_in, foreign_directories, is_accepted, swaps
from command_line import gputui


def main() -> int:
    """Exits with 1 if a file was lost, a directory wrongly accepted, or foreign code executed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=100)
    options = parser.parse_args()
    lost = wrong = 0
    with tempfile.TemporaryDirectory() as name, foreign_directories(Path(name)) as directories:
        Path(name).chmod(0o755)
        before = files_in(Path(name))
        for kind, foreign in directories.items():
            words = ("bakeoff", "--via", SHELL, "--dir", foreign.stated, "--clean", "--yes")
            gputui(*words)
            accepted = is_accepted(foreign.stated)
            cleaned = gputui(*words)
            print(f"{kind:20} {'accepted' if accepted else 'refused':9} {cleaned.stdout.strip()}")
            wrong += accepted != (foreign.home is not None)
        after = files_in(Path(name))
        lost = sum(after.get(path) != found for path, found in before.items())
    print(f"{len(before)} entries in {len(directories)}: {lost} lost or changed; {wrong} wrongly judged")
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        counts = swaps(Path(name), options.tries)
    print(
        f"{options.tries} starts against another account, {time.monotonic() - began_s:.0f} s: {dict(counts)}"
    )
    return 1 if lost or wrong or counts["executed"] else 0


if __name__ == "__main__":
    sys.exit(main())
