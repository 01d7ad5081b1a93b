"""Four writers and two readers on one file: what was stored, read and lost. `--seconds 60`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "makers"))

from many import READERS, WRITERS, crowd


def main() -> int:
    """Exits with 1 if there was an error, or anything is missing or duplicated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    with tempfile.TemporaryDirectory() as place:
        found = crowd(Path(place), parser.parse_args().seconds)
    print(f"{WRITERS} writers stored {found.runs_stored} runs, in the file {found.runs_in_file}")
    print(f"the run that all of them store is there {found.shared_run_there} time(s)")
    print(f"{READERS} readers read {found.reads} times")
    print(f"slowest store {found.slowest_store_s:.2f} s, slowest read {found.slowest_read_s:.2f} s")
    print(f"errors: {len(found.errors)}")
    for error in found.errors[:20]:
        print("  ", error)
    whole = found.runs_stored == found.runs_in_file and found.shared_run_there == 1
    return 0 if whole and not found.errors else 1


if __name__ == "__main__":
    sys.exit(main())
