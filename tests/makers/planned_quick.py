"""Stored runs of the profile `quick` as it is planned for a box."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from builders import H200, make_interpreter
from journals import RUNTIME, journal_lines, write_lines

from gputui.model.journal import Price
from gputui.model.machine import Machine
from gputui.services.profiles.loader import find_profile
from gputui.services.profiles.planner import resolve_plan
from gputui.store.journal_reader import read_journal
from gputui.store.writing import store_run


def store_planned(
    db: Path, number: int, launches: int, machine: Machine, price: Price, label: str, torch_version: str
) -> None:
    """Each run is slower than the one of the number before."""
    interpreter = make_interpreter(H200) if machine.gpus else make_interpreter(cuda=None)
    planned = resolve_plan(find_profile("quick"), interpreter, machine).cases
    lines = journal_lines(
        run_id=f"0194b5a0-0000-7000-8000-00000000000{number}",
        cases=[case.case for case in planned if case.outcome is None],
        skipped=[case.case for case in planned if case.outcome is not None],
        machine=machine,
        runtime=replace(RUNTIME, torch_version=torch_version),
        price=price,
        launches=launches,
        scale=1 + 0.1 * number,
        label=label,
        seed=number,
    )
    store_run(db, read_journal(write_lines(db.parent / f"run-{number}", lines)), ())
