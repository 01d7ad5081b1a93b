"""What result files hold besides speeds, read on demand: what limits a step by it, what a recording used."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gputui.analysis.attribution import ProfiledSide, doubtful
from gputui.analysis.findings import Finding, StepFacts, findings_of
from gputui.analysis.verdict import SpeedEstimate
from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.journal import ProfiledPass
from gputui.model.result import CaseResult, Run, RunSummary
from gputui.model.serving import ServingRecords
from gputui.model.telemetry import LaunchPower
from gputui.model.units import counted, format_percent, format_seconds
from gputui.services.results.expected import measured_peak
from gputui.services.results.labels import is_recording
from gputui.services.results.selectors import Selection
from gputui.services.results.throughput import busy_share, speed_of, waited_share
from gputui.store.reading import (
    CaseConditions,
    LaunchSeries,
    ResultFile,
    TelemetrySummary,
    conditions_of,
    open_result,
    passes_of,
    powers_of,
    read_each,
)

_Found = TypeVar("_Found")
NOT_PROFILED = "it has no profiled pass"
_TOGETHER = 50
"""Files that are open at the same time: some 0.7 MiB and a descriptor each."""


class Evidence:
    """Profiled passes, conditions and cases of the runs of some selections, by run."""

    def __init__(
        self,
        selections: Sequence[Selection],
        *,
        trust: bool = False,
        conditions: Mapping[str, Mapping[int, CaseConditions]] | None = None,
    ) -> None:
        """`conditions` are those that were already read, by run and case."""
        self._passes: dict[str, Mapping[int, ProfiledPass]] = {}
        self._runs: dict[str, Run] = {}
        self._files: dict[str, Path] = {}
        for selection in selections:
            for run in selection.runs:
                self._runs.setdefault(run.summary.run_id, run)
                self._files.setdefault(run.summary.run_id, selection.path)
            self._passes.update(selection.passes)
        self._trust = trust
        self._conditions: dict[str, Mapping[int, CaseConditions]] = dict(conditions or {})
        self._powers: dict[str, Mapping[int, tuple[LaunchPower, ...]]] = {}

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs, in the order they were selected."""
        return tuple(self._runs.values())

    def run(self, run_id: str) -> Run:
        return self._runs[run_id]

    def file(self, run_id: str) -> Path:
        """Where a run was read from."""
        return self._files[run_id]

    def profiled(self, run_id: str, case_id: int) -> ProfiledPass | Missing:
        """The profiled pass of a case. Raises GputuiError if the file can no longer be read."""
        self._read([run_id], self._passes, lambda files, ids: passes_of(files, ids)[0])
        return self._passes[run_id].get(case_id, Missing(NOT_PROFILED))

    def conditions(self, run_id: str, case_id: int) -> CaseConditions | Missing:
        """Telemetry of a timed case, summarised. Raises GputuiError if the file can no longer be read."""
        self._read([run_id], self._conditions, conditions_of)
        return self._conditions[run_id].get(case_id, Missing("there is no telemetry of its blocks"))

    def powers(self, run_id: str, case_id: int) -> tuple[LaunchPower, ...] | Missing:
        """What the GPU of a case drew in each launch. Raises GputuiError as `conditions` does."""
        self._read([run_id], self._powers, powers_of)
        return self._powers[run_id].get(case_id, Missing("no power was sampled in its blocks"))

    def read_conditions(self, run_ids: Iterable[str]) -> None:
        """Read the conditions of these runs ahead, many at once; an error is reported on demand."""
        with suppress(GputuiError):
            self._read(run_ids, self._conditions, conditions_of)

    def read_powers(self, run_ids: Iterable[str]) -> None:
        """Likewise their powers."""
        with suppress(GputuiError):
            self._read(run_ids, self._powers, powers_of)

    def _read(
        self,
        run_ids: Iterable[str],
        known: dict[str, Mapping[int, _Found]],
        read: Callable[[Sequence[ResultFile], Sequence[Sequence[str]]], Mapping[str, Mapping[int, _Found]]],
    ) -> None:
        """Add by run and case what `read` gives of these runs and is not known yet."""
        by_file: dict[Path, list[str]] = {}
        for run_id in dict.fromkeys(run_ids):
            if run_id not in known:
                by_file.setdefault(self._files[run_id].resolve(), []).append(run_id)

        def add(files: Sequence[ResultFile]) -> None:
            ids = [by_file[file.db] for file in files]
            found = read(files, ids)
            known.update((run_id, found.get(run_id, {})) for of_file in ids for run_id in of_file)

        read_each(list(by_file), add, trust=self._trust, at_a_time=_TOGETHER)

    def loads(self, run_id: str) -> ServingRecords:
        """What a run offered to a server. Raises GputuiError if that can no longer be read."""
        with open_result(self._files[run_id], self._trust) as file:
            return file.serving(run_id)

    def launches(
        self, run_id: str, case_id: int, launch_ids: Collection[int], pieces: int
    ) -> tuple[LaunchSeries, ...]:
        """Telemetry while a case was timed in these launches.

        Raises GputuiError if it can no longer be read.
        """
        with open_result(self._files[run_id], self._trust) as file:
            return file.launch_series(run_id, case_id, launch_ids, pieces)


@dataclass(frozen=True, slots=True)
class SeenStep:
    """A side of a row whose step was timed and profiled."""

    result: CaseResult
    run: RunSummary
    found: ProfiledPass
    step_ns: int


def seen_step(case: CaseResult, run: RunSummary, evidence: Evidence) -> SeenStep | Missing:
    """The timed step and profiled pass of a case; Missing with the reason if either is absent."""
    speed = speed_of(case)
    if not isinstance(speed, SpeedEstimate):
        return Missing("not measured")
    found = evidence.profiled(run.run_id, case.case_id)
    if isinstance(found, Missing):
        return found
    step_ns = round(case.case.units_per_step / speed.units_per_s * 1e9)
    return SeenStep(case, run, found, step_ns)


def profiled_side(seen: SeenStep, peak: float | Missing) -> ProfiledSide:
    """The side as `attribution` expects it."""
    return ProfiledSide(seen.found, seen.step_ns, seen.result.case.variant.device_class == "gpu", peak)


def own_peak(seen: SeenStep, evidence: Evidence, precision_used: str = "") -> float | Missing:
    """FLOP/s of the largest matrix product measured in the same run."""
    return measured_peak("flop", seen.result, evidence.run(seen.run.run_id).cases, precision_used)


def step_findings(seen: SeenStep, evidence: Evidence) -> tuple[Finding, ...]:
    """What limits the step; nothing if its pass is unreliable."""
    side = profiled_side(seen, own_peak(seen, evidence))
    if doubtful(side):
        return ()
    cases = evidence.run(seen.run.run_id).cases
    half = [own_peak(seen, evidence, used) for used in ("amp-bf16", "amp-fp16")]
    known = [peak for peak in half if not isinstance(peak, Missing)]
    conditions = evidence.conditions(seen.run.run_id, seen.result.case_id)
    facts = StepFacts(
        side=side,
        precision_used=seen.result.precision_used,
        flops_per_step=seen.result.case.flops_per_step,
        bytes_per_step=seen.result.case.bytes_per_step,
        single_peak=own_peak(seen, evidence, "fp32"),
        half_peak=max(known) if known else half[0],
        copy_bytes_per_s=measured_peak("B", seen.result, cases),
        capped_share=conditions if isinstance(conditions, Missing) else conditions.power_capped_share,
        clock_mhz=conditions if isinstance(conditions, Missing) else conditions.clock_median_mhz,
        clock_most_mhz=conditions if isinstance(conditions, Missing) else conditions.clock_most_mhz,
        busy_share=busy_share(seen.result),
    )
    return findings_of(facts)


@dataclass(frozen=True, slots=True)
class RecordedUse:
    """A program from its start to its end."""

    cpu_s: float
    """User and system, of all its threads and the processes that it started."""
    waited_share: float | Missing
    """Of the time of its threads, what they waited for a core that others had; 0 to 1."""
    others_cores: float | Missing
    """What all other programs used, on average."""
    cores: int
    gpu_busy_pct: Mapping[int, float | Missing]
    """Mean share of the time with a kernel running, whosever, by the GPU's number."""

    @property
    def text(self) -> str:
        """`15.0 s of CPU, waited 53 % of the time for a core, other programs took 1.6 of 2 cores`."""
        parts = [f"{format_seconds(self.cpu_s)} of CPU"]
        if not isinstance(self.waited_share, Missing):
            parts.append(f"waited {format_percent(self.waited_share)} of the time for a core")
        if not isinstance(self.others_cores, Missing):
            parts.append(f"other programs took {self.others_cores:.1f} of {counted(self.cores, 'core')}")
        known = {gpu: pct for gpu, pct in self.gpu_busy_pct.items() if not isinstance(pct, Missing)}
        return ", ".join((*parts, *(f"GPU {gpu} busy {pct:.0f} % of it" for gpu, pct in known.items())))


def recorded_use(run: Run, telemetry: TelemetrySummary) -> RecordedUse | Missing:
    """What the program of a recording got; Missing of any other run, and where no program ran to an end."""
    blocks = [block for case in run.cases for one in case.measurements for block in one.blocks]
    if not is_recording(run) or len(blocks) != 1 or blocks[0].cpu_ns is None:
        return Missing("it is no recording of a program")
    used_cores, busy_pct = blocks[0].cpu_ns / blocks[0].wall_ns, telemetry.cpu_busy_mean_pct
    return RecordedUse(
        cpu_s=blocks[0].cpu_ns * 1e-9,
        waited_share=waited_share(run.cases[0]),
        others_cores=busy_pct if isinstance(busy_pct, Missing) else max(busy_pct / 100 - used_cores, 0.0),
        cores=run.summary.machine.cpu.usable_cores,
        gpu_busy_pct={gpu.device_index: gpu.busy_mean_pct for gpu in telemetry.devices},
    )
