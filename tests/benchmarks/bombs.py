"""What `gputui` takes to refuse result files that are bombs: exit code, seconds and peak memory.

Run from the repository root:

    python tests/benchmarks/bombs.py [--only WORD] [--commands runs,show,compare]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "makers"))

from bomb_files import Commands, bombs, make_bomb, sound_file


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--commands", default="runs,show,compare")
    parser.add_argument("--skip", type=int, default=0)
    options = parser.parse_args()
    print(f"{'bomb':48} {'MB':>5}  " + "".join(f"{c:>22}" for c in options.commands.split(",")))
    with tempfile.TemporaryDirectory() as name, Commands() as measured:
        place = Path(name)
        sound = sound_file(place)
        for bomb in list(bombs())[options.skip :]:
            if options.only not in bomb.name:
                continue
            db = make_bomb(bomb, sound, place / "a.db")
            words = {
                "show": ["show", "latest", str(db)],
                "compare": ["compare", str(db), str(sound)],
                "share": ["share", str(db), "-o", str(place / "shared.db")],
                "merge": ["merge", str(db), str(sound), "-o", str(place / "merged.db")],
                "export": ["export", str(db), "--parquet", str(place / "export")],
            }
            chosen = [words.get(one, [one, str(db)]) for one in options.commands.split(",")]
            found = measured.outcomes(chosen, place)
            cells = [f"{ended.status:>4} {ended.seconds:6.1f} s {ended.peak_mib:5} MiB" for ended in found]
            messages = {
                ended.message.replace(str(place), "").replace("\n", " ")[:180]: None for ended in found
            }
            print(f"{bomb.name:48} {db.stat().st_size / 1e6:5.1f}  {''.join(cells)}", flush=True)
            for message in messages:
                print(f"    {message}", flush=True)


if __name__ == "__main__":
    main()
