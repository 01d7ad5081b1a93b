"""Where the time of a step goes and what would make it shorter: one answer for every command that gives it.

The step is the program's own where that is known and its profiled pass explains it, else the profiled one;
which of the two it is stands in the sentence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gputui.analysis.attribution import ProfiledSide, doubtful
from gputui.analysis.findings import (
    IDLE_TO_BE_LAUNCH_BOUND,
    WORTH_A_LINE,
    Finding,
    StepFacts,
    at_best_without,
    findings_of,
)
from gputui.analysis.spread import CONTENTION
from gputui.analysis.verdict import SpeedEstimate
from gputui.analysis.work import PRODUCTS, product_types
from gputui.errors import GputuiError
from gputui.model.absent import Missing
from gputui.model.journal import ProfiledPass
from gputui.model.plan import Case
from gputui.model.result import CaseResult, Run
from gputui.model.units import format_percent, format_seconds, format_size_of_change
from gputui.services.results.conditions import Evidence, seen_step, step_findings
from gputui.services.results.headline import case_subject, main_case
from gputui.services.results.step_breakdown import (
    CATEGORY_WORDS,
    StepBreakdown,
    breakdown_of,
    is_believed,
    main_step,
    reached_peak,
    step_parts,
)
from gputui.services.results.throughput import speed_of, speeds_of

MOST_CAUSES = 3
WINDOW = "the window"
"""What is explained of a trace without marks of steps."""
NOT_MARKED = "steps are not marked"
"""How a note of a trace without marks begins."""
LOADS_ALONE = "the DataLoader has no workers"
OPTIMIZER = "its optimizer is "
"""How notes of a trace begin that tell what the program lacks."""
RECORDED = "the whole program is recorded in "
PROFILED = "profiled: "
"""How the note begins that says where a trace was made, of a program that `why` ran."""
COMPILED = "compiled in these steps: "
"""How the note begins that says whether torch.compile compiled them for the first time."""
BACKWARD = "calls of backward() in a step: "
BY_HAND = "a step ends with backward(): no optimizer of torch makes any"
DDP = "DistributedDataParallel averages its gradients"
ALLOCATES = "its calls of the driver mostly allocate and free memory"
"""Notes of what the ranges and calls of a trace tell."""
FOR_PROGRAMS = (OPTIMIZER, PROFILED, COMPILED, BACKWARD, DDP, ALLOCATES)
"""Notes of what else is known; nobody has to read them to believe an answer."""
_TELLS_NOTHING = 10.0
"""Times as long, or as short, as the program's own: a profiled step that tells nothing of it."""
_SAME_LENGTH = 0.05
"""Of a step: a profiled one that differs by less is not told apart."""
_SAME_SHARE = 0.02
"""A part whose share differs by less from that of a cause is what the cause is about."""
_MOSTLY = 0.5
_PRODUCTS = {CATEGORY_WORDS.get(category, category) for category in PRODUCTS}
_BUSY = 0.8
"""Of a step: a device that is busy for so long is limited by what it does."""


@dataclass(frozen=True, slots=True)
class StepAnswer:
    """One step: what it is of, where its time goes, what holds it up."""

    subject: str
    """`a step`, `the window`, `a step of GPT training amp`."""
    device: str
    """The name of the GPU; empty for a CPU."""
    found: ProfiledPass
    breakdown: StepBreakdown
    step_ns: int
    """That the findings are of."""
    where: str = ""
    """Of which device, which steps, of what."""
    own_ns: int = 0
    """Without the profiler; 0 if unknown."""
    findings: tuple[Finding, ...] = ()
    """Largest gain first."""
    notes: tuple[str, ...] = ()
    """What a reader must know before believing it."""
    reached: str = ""
    """What it reaches of a peak that was measured beside it; empty if unknown."""

    @property
    def is_on_gpu(self) -> bool:
        return bool(self.device)

    @property
    def is_explained(self) -> bool:
        """Whether the profiled step took about as long as the program's own, if that is known."""
        return self.own_ns in (0, self.step_ns)

    @property
    def profiled_ns(self) -> int:
        return round(self.found.window_ns / self.found.steps)

    @property
    def causes(self) -> tuple[Finding, ...]:
        """The findings that are shown with what they would bring; what only limits a step is no cause."""
        return tuple(one for one in self.findings if not one.is_bound)[:MOST_CAUSES]

    @property
    def texts(self) -> list[str]:
        """The findings in a sentence each."""
        whole = "the step" if self.subject != WINDOW else WINDOW
        return [one.text.replace("the step", whole) for one in self.findings]

    @property
    def at_best_ns(self) -> int:
        """What the step takes at best without all of its causes."""
        return at_best_without(self.causes) if self.causes else self.step_ns


def answer_of_trace(found: ProfiledPass, device: str, where: str, notes: Sequence[str]) -> StepAnswer:
    """Of a program that torch.profiler recorded; there are no peaks and no telemetry of it.

    Raises GputuiError if its pass is not valid.
    """
    is_on_gpu = bool(device)
    breakdown = breakdown_of(found, is_on_gpu=is_on_gpu)
    if isinstance(breakdown, Missing):
        raise GputuiError(f"it tells nothing: {breakdown.reason}")
    own = ProfiledSide(found, found.before_ns, is_on_gpu)
    is_explained = found.before_ns > 0 and not doubtful(own)
    profiled_ns = round(found.window_ns / found.steps)
    side = own if is_explained else ProfiledSide(found, profiled_ns, is_on_gpu)
    compiled = _noted(notes, COMPILED)
    facts = StepFacts(
        side,
        "",
        None,
        None,
        loads_alone=any(note.startswith(LOADS_ALONE) for note in notes),
        optimizer=_noted(notes, OPTIMIZER),
        has_optimizer=BY_HAND not in notes,
        has_ddp=DDP in notes,
        allocates=ALLOCATES in notes,
        backward_calls=int(_noted(notes, BACKWARD) or 0),
        compiled_again=not compiled.endswith(" 0 again") if compiled else None,
    )
    known = [note for note in notes if not note.startswith(FOR_PROGRAMS)]
    is_far = tells_nothing(found)
    is_marked = not any(note.startswith(NOT_MARKED) for note in notes)
    rough = "the profiled steps took another time than the others, so shares are rough"
    return StepAnswer(
        subject="a step" if is_marked else WINDOW,
        device=device,
        found=found,
        breakdown=breakdown,
        step_ns=side.step_ns,
        where=_noted(notes, PROFILED) or where,
        own_ns=found.before_ns,
        findings=() if is_far else findings_of(facts),
        notes=(*known, *([rough] if found.before_ns and not is_explained and not is_far else [])),
    )


def tells_nothing(found: ProfiledPass) -> bool:
    """Whether the profiled steps are so far from the program's own that their parts are not its parts."""
    ratio = found.window_ns / found.steps / (found.before_ns or math.inf)
    return found.before_ns > 0 and not 1 / _TELLS_NOTHING < ratio < _TELLS_NOTHING


def _noted(notes: Sequence[str], begin: str) -> str:
    """The rest of the note that begins so; empty without one."""
    return next((note.removeprefix(begin) for note in notes if note.startswith(begin)), "")


def answer_of_case(
    case: CaseResult, run: Run, found: ProfiledPass, evidence: Evidence, where: str
) -> StepAnswer | Missing:
    """Of a case that gputui measured and profiled; Missing with the reason if its pass tells nothing.

    Raises GputuiError if the file can no longer be read.
    """
    breakdown = breakdown_of(found, case)
    if isinstance(breakdown, Missing):
        return breakdown
    answer = _of_case(case, run, found, breakdown, case_subject(case.case, _cases_of(run)))
    seen = seen_step(case, run.summary, evidence)
    if isinstance(seen, Missing):
        return replace(answer, where=where)
    fault = doubtful(ProfiledSide(found, seen.step_ns, is_on_gpu(case)))
    return replace(
        answer,
        where=where,
        step_ns=answer.step_ns if fault else seen.step_ns,
        own_ns=seen.step_ns,
        findings=step_findings(seen, evidence),
        notes=(fault,) if fault else (),
    )


def why_sentence(run: Run, passes: Mapping[int, ProfiledPass]) -> str:
    """`A step takes 412 ms: 41 % is matmul, and for 35 % the GPU waits, most of it launch gaps.`

    `passes` are the profiled ones of the run, by case. Empty if none can be trusted.
    """
    main = main_step(run, passes)
    if isinstance(main, Missing) or not is_believed(main[1]):
        return ""
    case, breakdown = main
    speed, step_ns = speed_of(case), breakdown.step_ns
    if isinstance(speed, SpeedEstimate):
        step_ns = case.case.units_per_step / speed.units_per_s * 1e9
    name = "" if main_case(run) is case else case_subject(case.case, _cases_of(run))
    answer = replace(_of_case(case, run, passes[case.case_id], breakdown, name), step_ns=round(step_ns))
    return f"{sentence(answer)} It {answer.reached}." if answer.reached else sentence(answer)


def _of_case(
    case: CaseResult, run: Run, found: ProfiledPass, breakdown: StepBreakdown, name: str
) -> StepAnswer:
    """Of the profiled step alone."""
    return StepAnswer(
        subject=f"a step of {name}" if name else "a step",
        device=case.device_name if is_on_gpu(case) else "",
        found=found,
        breakdown=breakdown,
        step_ns=round(found.window_ns / found.steps),
        reached=reached_peak(case, run),
    )


def _cases_of(run: Run) -> list[Case]:
    return [one.case for one, _ in speeds_of(run)]


def is_on_gpu(case: CaseResult) -> bool:
    return case.case.variant.device_class == "gpu"


def sentence(answer: StepAnswer) -> str:
    """`A step takes 412 ms: 41 % is matmul, and for 35 % the GPU waits for data.`"""
    took = format_seconds(answer.step_ns * 1e-9)
    of_these = ""
    if answer.own_ns:
        profiled = f"{format_seconds(answer.profiled_ns * 1e-9)} while profiled"
        if answer.step_ns != answer.own_ns:
            took = f"{format_seconds(answer.own_ns * 1e-9)}, but {profiled}"
            of_these = "of these, "
        elif abs(answer.profiled_ns / answer.own_ns - 1) >= _SAME_LENGTH:
            took = f"{took} ({profiled})"
    head = f"{answer.subject[:1].upper()}{answer.subject[1:]} takes {took}"
    if tells_nothing(answer.found):
        return f"{head}, which does not tell where the time of such a step goes."
    return f"{head}: {of_these}{', and '.join(_clauses(answer))}."


def _clauses(answer: StepAnswer) -> list[str]:
    """What holds it up most and what most of it computes, or the largest parts; the larger share first."""
    in_fp32 = " in fp32" if _is_fp32(answer.found) else ""
    busy = [
        (share, f"{format_percent(share)} is {name}{in_fp32 if name in _PRODUCTS else ''}")
        for name, share in busy_parts(answer.breakdown)
    ]
    waits = _waits(answer.breakdown, is_on_gpu=answer.is_on_gpu)
    if answer.causes:
        # Other programs inflate everything: what the step itself does is named beside them.
        named = answer.causes[: 2 if answer.causes[0].kind == CONTENTION else 1]
        waits = [(one.gain_ns / one.step_ns, within(one.title)) for one in named]
        if named[-1].kind != CONTENTION:
            busy = [one for one in busy if abs(one[0] - waits[-1][0]) > _SAME_SHARE]
        waits = [(share, f"for {format_percent(share)} {title}") for share, title in waits]
    if waits:  # what it computes meanwhile, or what the cause is about, is said once
        busy = [one for one in busy[:1] if one[0] + waits[0][0] <= 1]
    shown = [*waits, *busy][:2]
    if not (answer.causes and answer.causes[0].kind == CONTENTION):
        shown.sort(key=lambda one: -one[0])
    elif len(waits) > 1:  # what it waits for cores in, too
        shown[1] = (shown[1][0], f"{shown[1][1]}, that waiting included")
    return [text for place, (share, text) in enumerate(shown) if share >= WORTH_A_LINE or not place]


def within(title: str) -> str:
    """A title within a sentence: `the GPU waits for data`."""
    first = title.partition(" ")[0]
    return title if first in ("Python", "") else title[0].lower() + title[1:]


def busy_parts(breakdown: StepBreakdown) -> list[tuple[str, float]]:
    """What a step computes, by kind, the largest first."""
    return [(name, share) for name, share, _ in step_parts(breakdown) if name not in ("idle", "others")]


def _waits(breakdown: StepBreakdown, *, is_on_gpu: bool) -> list[tuple[float, str]]:
    idle, whole = breakdown.idle, sum(breakdown.idle.values())
    if whole < (WORTH_A_LINE if is_on_gpu else IDLE_TO_BE_LAUNCH_BOUND):
        return []
    largest = max(idle, key=idle.__getitem__)
    words = CATEGORY_WORDS.get(largest, largest)
    if not is_on_gpu:
        return [(idle[largest], f"{format_percent(idle[largest])} is {words}")]
    most = f", most of it {words}" if idle[largest] > _MOSTLY * whole else ""
    return [(whole, f"for {format_percent(whole)} the GPU waits{most}")]


def limit(answer: StepAnswer) -> str:
    """What there is to say of a step that nothing in particular holds up; empty of others."""
    for bound in answer.findings:
        if bound.is_bound:
            return f"{bound.title}: {bound.evidence}. Try {bound.change}."
    if answer.causes:
        return ""
    if tells_nothing(answer.found):
        return "No cause is named. Try other steps (--after N), or an idle box."
    if not answer.is_explained and answer.notes:
        return f"No cause is named: {answer.notes[-1]}."
    kinds, busy = busy_parts(answer.breakdown), 1 - sum(answer.breakdown.idle.values())
    if not kinds or busy < _BUSY:
        return "No cause that a profile can tell stands out."
    device, (name, share) = "GPU" if answer.is_on_gpu else "CPU", kinds[0]
    advice = f" It {answer.reached}." if answer.reached else ""
    if name in _PRODUCTS and not answer.reached:
        advice = f" Try {'amp or ' if _is_fp32(answer.found) else ''}a faster {device}."
    head = f"No single cause stands out: the {device} is busy for {format_percent(busy)} of it"
    return f"{head}, {format_percent(share)} with {name}.{advice}"


def _is_fp32(found: ProfiledPass) -> bool:
    """Whether all products of the backward pass are in fp32; of a forward pass autocast hides it."""
    return set(product_types(found)) == {"float"}


def from_to(a_ns: float, b_ns: float) -> str:
    """`412 to 314 ms`."""
    a, b = (format_seconds(ns * 1e-9) for ns in (a_ns, b_ns))
    unit = b.partition(" ")[2]
    return f"{a.removesuffix(unit).strip() if a.endswith(f' {unit}') else a} to {b}"


def gain_text(before_ns: float, after_ns: float) -> str:
    """`31 % faster`, `2.40x as fast`, `12 % slower`; of the rate."""
    if after_ns <= 0 or before_ns <= 0:
        return ""
    ratio = before_ns / after_ns
    size = format_size_of_change(ratio, ratio, ratio)[0]
    return f"{size} {'as fast' if size.endswith('x') else 'faster' if ratio >= 1 else 'slower'}"


def all_of_them(answer: StepAnswer) -> str:
    """`All three: at best 412 to 111 ms.`; empty for fewer than two causes, or if it is not known."""
    are_known = all(cause.has_at_best and cause.kind != CONTENTION for cause in answer.causes)
    is_little = answer.at_best_ns < WORTH_A_LINE * answer.step_ns  # they are about the same time
    if len(answer.causes) < 2 or is_little or not (answer.is_explained and are_known):
        return ""
    which = "Both" if len(answer.causes) == 2 else "All three"
    return f"{which}: at best {from_to(answer.step_ns, answer.at_best_ns)}."
