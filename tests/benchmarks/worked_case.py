"""The worked case of attribution, by whole runs: where AMP wins and where it loses within a training step.

Five runs of `gpt_train mini` in fp32 and amp, interleaved, with a profiled pass; each is compared with itself
by precision. On a CPU with AMX or AVX512-BF16 products are faster in bfloat16 while the backward of attention
is slower; the sign of both must be the same in every run.

    python tests/benchmarks/worked_case.py [--runs 5] [--keep DIRECTORY]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from gputui.analysis.attribution import Attribution
from gputui.services.compare.session import ask
from gputui.services.compare.why import part_name, signed

PROFILE = """schema = 1
version = 1
title = "The worked case"
question = "Where does AMP win?"
budget_s = {budget_s:g}
replicates = 1
[[case]]
workload = "gpt_train"
sizes = ["mini"]
devices = ["cpu"]
precisions = ["fp32", "amp"]
profiled = true
"""


def main() -> None:
    """Run, compare, print a line of parts for each run and the signs over all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--budget-s", type=float, default=45.0)
    parser.add_argument(
        "--keep", type=Path, help="leave the result files here, and take those that are there"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        kept = options.keep or Path(place)
        kept.mkdir(parents=True, exist_ok=True)
        profile = kept / "worked.toml"
        profile.write_text(PROFILE.format(budget_s=options.budget_s))
        signs: dict[str, list[int]] = {"gemm": [], "attention backward": []}
        for number in range(options.runs):
            db = kept / f"{number}.db"
            if not db.exists():
                words = [sys.executable, "-m", "gputui", "run", str(profile), "--db", str(db)]
                subprocess.run(words, check=True, capture_output=True)
            found = attributed(db)
            if found is None:
                continue
            parts = {part.category: part for part in found.parts}
            signs["gemm"].append(parts["gemm"].difference_ns)
            signs["attention backward"].append(dict(parts["attention"].phases).get("backward", 0))
    for name, values in signs.items():
        negative = sum(ns < 0 for ns in values)
        print(f"{name}: {negative} of {len(values)} shorter with amp, {len(values) - negative} longer")


def attributed(db: Path) -> Attribution | None:
    """The attribution of fp32 against amp, printed; None, with the reason printed, if there is none."""
    answer = ask([str(db)], by="precision").compared()
    for comparison in answer.comparisons:
        for why in (row.why for row in comparison.rows if row.why is not None):
            if isinstance(why.attribution, Attribution):
                parts = ", ".join(
                    f"{part_name(p)} {signed(p.difference_ns)}" for p in why.attribution.parts[:6]
                )
                print(f"{db.name}: {signed(why.attribution.difference_ns)}: {parts}", flush=True)
                return why.attribution
            print(f"{db.name}: {why.attribution.reason}", flush=True)
        for row in comparison.rows:
            print(f"{db.name}: {row.case.name}: {row.verdict.word} {row.verdict.reason}", flush=True)
    return None


if __name__ == "__main__":
    main()
