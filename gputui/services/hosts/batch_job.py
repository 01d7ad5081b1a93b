"""What runs inside a batch job: describes the node, plans for it, and executes the plan.

A queued job may begin when nobody listens any more, so it plans for itself. Whoever brings the run home makes
the same plan from the same description. This module and what it imports travel with the measuring half, and
run on Python 3.10 with the standard library.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any  # Any: JSON

from gputui.errors import EXIT_CASE_FAILED, GputuiError
from gputui.model.machine import Interpreter, Machine
from gputui.model.plan import Plan, from_plain
from gputui.recording.agent import STEP_NAME, describe_here, write_only_below
from gputui.recording.own_directory import write_whole
from gputui.recording.probing import describe_step
from gputui.recording.run_directory import Spec
from gputui.recording.slurm import DESCRIBED_NAME, ENDED_NAME, REQUEST_NAME
from gputui.recording.supervisor import Supervisor
from gputui.services.profiles.loader import Profile
from gputui.services.profiles.planner import Choices, resolve_plan
from gputui.services.profiles.torch_builds import check_gpu_is_used
from gputui.services.profiles.user_workload import profile_as_described
from gputui.worker.foreign_json import read_json_file


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What a batch job is asked."""

    run_id: str
    profile: Profile | None
    """None for a user's workload, whose file lies in the directory of the run."""
    step_name: str
    """Name of that file where it came from; empty without one."""
    choices: Choices
    python: str
    """The interpreter to measure with; empty for the first that has torch."""
    key: str
    """Hexadecimal key of ids of boxes."""

    def plan(
        self, machine: Machine, interpreter: Interpreter, step: dict[str, Any] | None
    ) -> tuple[Profile, Plan]:
        """The same plan for the same machine, wherever it is made; `step` is what a workload declares.

        Raises GputuiError as `resolve_plan` does.
        """
        profile = self.profile
        if profile is None:
            profile = profile_as_described(step or {}, Path(self.step_name))
        return profile, resolve_plan(profile, interpreter, machine, self.choices)


def main(run_dir: Path) -> int:
    """Measure what the request in the directory asks for; leaves the exit status there and returns it."""
    status = EXIT_CASE_FAILED
    try:
        status = _measure(run_dir)
    except GputuiError as error:
        print(f"{error.message}: {error.hint}" if error.hint else error.message, file=sys.stderr)
        status = error.exit_code
    finally:
        (run_dir / ENDED_NAME).write_text(str(status), encoding="ascii")
    return status


def _measure(run_dir: Path) -> int:
    home = run_dir.parents[1]
    write_only_below(home)
    request: JobRequest = from_plain(JobRequest, read_json_file(run_dir / REQUEST_NAME))
    found = describe_here(home, request.key, request.python or None)
    interpreter = found.chosen.interpreter
    step = None
    if request.profile is None:
        step = describe_step((interpreter.executable,), run_dir / STEP_NAME)
    write_whole(run_dir / DESCRIBED_NAME, json.dumps({**found.plain, "step": step}).encode())
    _, plan = request.plan(found.machine, interpreter, step)
    check_gpu_is_used(plan, interpreter, found.machine)
    if not plan.launches:
        raise GputuiError("nothing can run on this node", "the line of this node says why")
    if step is not None:
        plan = replace(plan, step_file=str(run_dir / STEP_NAME))
    Spec(
        run_id=request.run_id,
        plan=plan,
        runtime=interpreter.runtime,
        hash_key=bytes.fromhex(request.key),
    ).write(run_dir)
    return Supervisor([run_dir]).run()
