"""Prints by simulation how often runs end with a limit, on servers of several capacities."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "makers"))

from model_server import Behaviour
from offered_loads import capacity_per_s, service_s
from simulated_search import chat_load, limit_in_theory, searches_of_a_run

from gputui.services.serving.plan import (
    DEFAULT_BUDGET_S,
    DEFAULT_LAUNCHES,
    DEFAULT_USERS,
    SEARCH_WEIGHT,
)
from gputui.worker.serving.load_launch import SearchStart

SLOTS = (1, 4, 16, 64)
DECODE_S = (0.002, 0.005, 0.015)
"""With 200 tokens, slower servers are refused in the default budget."""
USERS_SHARE, USERS_FACTOR = 0.8, 1.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--budget", type=float, default=DEFAULT_BUDGET_S)
    arguments = parser.parse_args()
    share = SEARCH_WEIGHT / (DEFAULT_LAUNCHES * (SEARCH_WEIGHT + len(DEFAULT_USERS)))
    allowance_s = arguments.budget * share
    print(f"--budget {arguments.budget:g}: {allowance_s:.0f} s for each of {DEFAULT_LAUNCHES} searches; chat")
    print("                                       no start              after the users")
    print("slots  a token  capacity  true limit   with a limit  error   with a limit  error   trials  s")
    ends = {False: 0, True: 0}
    total = 0
    for slots in SLOTS:
        for decode_s in DECODE_S:
            does = Behaviour(slots=slots, prefill_s=0.1, decode_s=decode_s)
            capacity = capacity_per_s(does, chat_load().output_tokens)
            true = limit_in_theory(does, chat_load())
            cells = []
            for knows in (False, True):
                start = SearchStart(USERS_SHARE * min(capacity, 32 / _alone_s(does)), USERS_FACTOR)
                found = [
                    searches_of_a_run(does, allowance_s, seed, start if knows else None)
                    for seed in range(arguments.seeds)
                ]
                limits = [one.limit_per_s for one in found if one.limit_per_s is not None]
                ends[knows] += len(limits)
                errors = [abs(math.log(limit / true)) for limit in limits]
                error = f"{100 * (math.exp(median(errors)) - 1):4.0f} %" if errors else "     —"
                cells.append(f"{len(limits):7} of {len(found):2}  {error}")
            total += arguments.seeds
            trials, taken = median(one.trials for one in found), median(one.taken_s for one in found)
            server = f"{slots:5}  {1e3 * decode_s:4.0f} ms  {capacity:6.2f}/s  {true:8.2f}/s"
            print(f"{server}  {cells[0]}  {cells[1]}  {trials:6.0f}  {taken:3.0f}")
    shares = [100 * ends[knows] / total for knows in (False, True)]
    print(f"all: {shares[0]:.0f} % with a limit, {shares[1]:.0f} % after the users")


def _alone_s(does: Behaviour) -> float:
    return service_s(does, chat_load().output_tokens)


if __name__ == "__main__":
    main()
