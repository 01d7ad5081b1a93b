"""The input of a supervisor: one file in a run directory, readable only by its owner."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # Any: JSON that is not yet checked

from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.journal import JOURNAL_SCHEMA, SPEC_NAME, Price, RunStart, to_plain
from gputui.model.machine import Runtime
from gputui.model.plan import Plan
from gputui.version import __version__
from gputui.worker.foreign_json import read_json_file


@dataclass(frozen=True, slots=True)
class Spec:
    """One run to execute."""

    run_id: str
    plan: Plan
    runtime: Runtime
    label: str = ""
    price: Price | None = None
    machine_name: str = ""
    """What the user calls the box that measures; empty to know it by what it is."""
    hash_key: bytes = b""
    """Key of this user's own ids of boxes; empty if there is none. Never leaves the user's machines."""
    target: str = ""
    """Path of the result file; for recovery, and for the message when storing fails."""
    on_end: tuple[str, ...] = ()
    """Command that stores the run when it has ended; empty if the journal is fetched instead."""
    on_look: tuple[str, ...] = ()
    """Command that finds the cases that need no more launches, to which run directory and number of launches
    per case are added; empty if the plan has no looks."""

    def start_now(self) -> RunStart:
        """The first line of its journal; reads both clocks once."""
        return RunStart(
            schema=JOURNAL_SCHEMA,
            run_id=self.run_id,
            started_utc_us=time.time_ns() // 1000,
            started_ns=time.monotonic_ns(),
            utc_offset_min=time.localtime().tm_gmtoff // 60,
            gputui_version=__version__,
            profile=self.plan.profile,
            profile_version=self.plan.profile_version,
            seed=self.plan.seed,
            replicates=self.plan.replicates,
            budget_s=self.plan.budget_s,
            label=self.label,
            price=self.price,
        )

    def to_plain(self) -> dict[str, Any]:
        """The JSON form, which `read` understands."""
        return {
            "run_id": self.run_id,
            "plan": self.plan.to_plain(),
            "runtime": to_plain(self.runtime),
            "label": self.label,
            "price": None if self.price is None else to_plain(self.price),
            "machine_name": self.machine_name,
            "hash_key": self.hash_key.hex(),
            "target": self.target,
            "on_end": list(self.on_end),
            "on_look": list(self.on_look),
        }

    def write(self, run_dir: Path) -> None:
        """Write the file."""
        write_spec(run_dir, self.to_plain())

    @staticmethod
    def read(run_dir: Path) -> Spec:
        """Read what `write` wrote. Raises GputuiError if it is missing or damaged."""
        path = run_dir / SPEC_NAME
        try:
            plain: dict[str, Any] = read_json_file(path)
            return Spec(
                run_id=plain["run_id"],
                plan=Plan.from_plain(plain["plan"]),
                runtime=_runtime(plain["runtime"]),
                label=plain["label"],
                price=None if plain["price"] is None else Price(**plain["price"]),
                machine_name=plain["machine_name"],
                hash_key=bytes.fromhex(plain["hash_key"]),
                target=plain["target"],
                on_end=tuple(plain["on_end"]),
                on_look=tuple(plain.get("on_look", ())),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise GputuiError(f"{path}: no spec of a run ({error})", "give a run directory") from error


def write_spec(run_dir: Path, plain: dict[str, Any]) -> None:
    """Write the file with mode 0600: it holds the key and the target's path."""
    descriptor = os.open(run_dir / SPEC_NAME, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(plain, file, indent=1)


def _runtime(plain: dict[str, Any]) -> Runtime:
    values: dict[str, Any] = {
        name: Missing(value["missing"]) if isinstance(value, dict) else value for name, value in plain.items()
    }
    values["arch_list"] = tuple(values["arch_list"])
    return Runtime(**values)
