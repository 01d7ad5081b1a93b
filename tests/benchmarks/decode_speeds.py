"""Prints what is predicted for public results of text generation beside what was seen."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "makers"))

from decode_results import results


def main() -> None:
    found = results()
    for one in sorted(found, key=lambda one: one.ratio):
        row = one.row
        words = (row["model"], f"{row['gpus']} x {row['gpu']}", row["precision"], f"batch {row['batch']}")
        mark = " " if one.is_close else "!"
        print(
            f"{mark} {one.ratio:5.2f} x seen: {one.predicted.value:7.1f} of {one.seen:7.1f} tok/s"
            f"  {'aside' if one.is_aside else 'used '}  {', '.join(words)}, {row['engine']}"
        )
    for name, part in (
        ("used to choose the constants", [one for one in found if not one.is_aside]),
        ("kept aside", [one for one in found if one.is_aside]),
    ):
        close = sum(one.is_close for one in part)
        inside = sum(one.predicted.low <= one.seen <= one.predicted.high for one in part)
        print(f"{name}: {close} of {len(part)} within 20 %, {inside} within the range")


if __name__ == "__main__":
    main()
