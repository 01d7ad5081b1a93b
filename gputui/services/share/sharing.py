"""Shares runs: one file without labels, paths, ids and prices, and a list of what is in it."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from gputui.document.markup import escaped, html_of, markdown_of, page_of, part, safe, with_units
from gputui.errors import GputuiError, NotStored
from gputui.model.absent import known
from gputui.model.result import Run, RunSummary
from gputui.model.units import counted, listed
from gputui.services.compare.formats import comparison_text
from gputui.services.compare.pairing import Side
from gputui.services.compare.session import Answer, Asked, ask
from gputui.services.results.run_forms import copy_whole
from gputui.services.results.selectors import judged_runs, readable, split_selector
from gputui.services.serving.curve import serving_of
from gputui.services.share.copying import DETAIL, Replacements, shared_copy
from gputui.services.share.report import REPEAT, Report, SharedSide, below_normal, card_of, report_on
from gputui.services.support.output_files import write, write_output
from gputui.store.opening import expanded
from gputui.store.reading import ResultFile, check_runs, open_result
from gputui.store.selecting import find_run

Comparison = Callable[[str], str]
"""Boxes side by side, in a form of `gputui compare`."""


def as_markdown(report: Report, compared: Comparison | None) -> str:
    """Headings, lists and tables; names from files cannot become markup."""
    lines = [f"# {escaped(report.title)}\n", f"{escaped(report.lead)}\n" if report.lead else ""]
    for section in report.sections:
        if compared and section.title == REPEAT:
            _, _, rows = compared("markdown").partition("\n\n")  # the title is its headline
            lines += ["## Side by side\n", rows]
        lines.append(f"## {section.title}\n")
        lines += [markdown_of(one) for one in section.parts if one]
    return "\n".join(filter(None, lines)).rstrip() + "\n"


def as_page(report: Report, compared: Comparison | None) -> str:
    """The page that `compare` writes if there is something to compare, with the report below; it fetches and
    runs nothing."""
    if compared:
        body = "".join(_sections(report))
        return compared("html").replace("<footer>", f"{body}<footer>", 1)
    lead = f'<p class="lead">{safe(report.lead)}</p>' if report.lead else ""
    head = f"<h1>{with_units(safe(report.title))}</h1>{lead}"
    return page_of(safe(report.title), head + "".join(_sections(report)))


def _sections(report: Report) -> Iterator[str]:
    for section in report.sections:
        yield part(section.title, "".join(html_of(one) for one in section.parts if one))


CARDS = (".png", ".svg", ".txt")
"""Endings of a card: the answer, the rates and a step of one box, to post."""
FORMS = (".html", ".md", *CARDS, ".db")
_MOST_BOXES = 8


Picked = dict[Path, list[RunSummary]]


class Shared(NamedTuple):
    """What a shared file holds."""

    held: tuple[str, ...]
    left_out: tuple[str, ...]
    unread: tuple[str, ...]
    """Files of a directory that could not be read, and why."""


def share(texts: Sequence[str], out: Path, keep: Collection[str] = (), *, trust: bool = False) -> Shared:
    """Write the runs that each `F` or `F@RUN` names to one file, in the form of its ending.

    Every text that is not in gputui's vocabulary is replaced or left out, but for what `keep` asks for:
    `label`, `price`, `ids`, `names`, `messages`. A report or page is made of the copies that `.db` consists
    of, so no form holds more than another. Raises GputuiError if a file cannot be read or a run is unknown,
    NotStored if `out` cannot be written or is a database already.
    """
    form, target = out.suffix.lower(), expanded(out)
    if form not in FORMS:
        raise GputuiError(
            f"{out.name}: its ending does not say what to write",
            f"end it in {', '.join(FORMS[:-1])} or {FORMS[-1]}",
        )
    if form == ".db" and target.exists():
        raise NotStored(
            f"{out} already exists and will not be overwritten", "choose another name, or remove that file"
        )
    unread: list[str] = []
    picked = partial(_picked, trust=trust)
    boxes = readable(texts, picked, lambda file: picked([file]), unread.extend)
    if form == ".db":
        every = Picked()
        for box in boxes:
            for path, runs in box.items():
                every.setdefault(path, []).extend(runs)
        boxes = [every]
    if len(boxes) > _MOST_BOXES:
        raise GputuiError(
            f"{len(boxes)} results in one report: up to {_MOST_BOXES} are shown side by side",
            "name those that are in question, or share all as a .db file",
        )
    if form in CARDS and len(boxes) > 1:
        ((path, (run, *_)),) = boxes[-1].items()
        raise GputuiError(
            f"{len(boxes)} results on one card: it shows one",
            f"name one, such as {path.name}@{run.short_id}; or compare them on a page: -o x.html",
        )
    names, rows, copies = Replacements(keep), Counter[str](), list[Path]()
    with tempfile.TemporaryDirectory(prefix="gputui-share-") as place:
        for letter, box in zip(_letters(len(boxes)), boxes, strict=True):
            copies.append(Path(place) / f"{letter or 'box'}.db")
            rows += shared_copy(box, copies[-1], names)
        shared = Shared(_held(copies, rows), _left_out(names), tuple(unread))
        if form == ".db":
            write(out, lambda: copy_whole(copies[0], target))
        elif form in CARDS:
            write_output(out, card_of(_boxes(copies, ())[0], form))
        else:
            write_output(out, _text(form, copies, shared))
    return shared


def _picked(texts: Sequence[str], *, trust: bool) -> list[Picked]:
    """The runs of each argument and box, in the first file that holds them: a copy of a file is no more.

    All of them are read, so that nothing invalid is shared.
    """
    boxes: dict[tuple[int, str], Picked] = {}
    seen = set[str]()
    for number, text in enumerate(texts):
        path, selector = split_selector(text)
        with open_result(path, trust) as file:
            summaries = file.summaries()
            if not summaries:
                raise GputuiError(f"{text}: holds no run", "gputui runs lists those of a file")
            chosen = (find_run(summaries, selector),) if selector else summaries
            check_runs([file], [chosen])
        for run in chosen:
            if run.run_id not in seen:
                box = boxes.setdefault((number, run.machine.machine_id), {})
                box.setdefault(expanded(path).resolve(), []).append(run)
        seen.update(run.run_id for run in chosen)
    return list(boxes.values())


def _letters(count: int) -> list[str]:
    return [""] if count == 1 else [chr(ord("a") + place) for place in range(count)]


def _text(form: str, copies: Sequence[Path], shared: Shared) -> str:
    compared = _compared(copies) if len(copies) > 1 else None
    contents = [f"In it: {line}." for line in shared.held]
    contents += [f"Left out: {line}." for line in shared.left_out]
    boxes, side_by_side = _boxes(copies, compared[0].sides if compared else ()), None
    if compared:
        asked, answer = compared
        sentences = (*below_normal(boxes), *answer.headline.sentences)
        compared = asked, replace(answer, headline=replace(answer.headline, sentences=sentences))
        side_by_side = partial(comparison_text, *compared)
    report = report_on(boxes, compared[1].headline.text if compared else "", contents)
    return (as_markdown if form == ".md" else as_page)(report, side_by_side)


def _boxes(copies: Sequence[Path], sides: Sequence[Side]) -> list[SharedSide]:
    """The newest run of each copy that measured something; of a side, the cases that are compared."""
    boxes = []
    for place, copy in enumerate(copies):
        letter = copy.stem if len(copies) > 1 else ""
        with open_result(copy) as file:
            run, count = _newest(file), len(file.summaries())
            if sides:
                run = Run(sides[place].run, tuple(case.result for case in sides[place].cases))
            run_id = run.summary.run_id
            loads = serving_of(run, file.serving(run_id))
            telemetry, events = file.telemetry_summary(run_id), file.events(run_id)
            passes = file.profiled(run_id)
            boxes.append(SharedSide(letter, run, telemetry, events, loads, count, passes))
    return boxes


def _newest(file: ResultFile) -> Run:
    """That measured something; of a file without one, the newest of all."""
    every = judged_runs(file, file.summaries())
    measured = (run for run in every if any(case.outcome == "ok" for case in run.cases))
    return next(measured, None) or next(judged_runs(file, file.summaries()))


def _compared(copies: Sequence[Path]) -> tuple[Asked, Answer]:
    """The copies side by side, called by their letters, without advice that only the owner could follow."""
    asked = ask([str(copy) for copy in copies])
    sides = tuple(
        replace(side, name=f"box {copy.stem}", chosen_of=1)
        for side, copy in zip(asked.sides, copies, strict=True)
    )
    asked = replace(asked, sides=sides)
    answer = asked.compared(with_energy=True)
    return asked, replace(answer, headline=replace(answer.headline, steps=(), purpose=""))


def _held(copies: Sequence[Path], rows: Mapping[str, int]) -> tuple[str, ...]:
    """What the copies consist of, in a few lines; `rows` counts those of each kind."""
    models, others = dict[str, None](), set[str]()
    for copy in copies:
        with open_result(copy) as file:
            for run in file.summaries():
                models.update(
                    dict.fromkeys(
                        (*(gpu.name for gpu in run.machine.gpus), known(run.machine.cpu.model) or "")
                    )
                )
                others.update(_others(run))
    models.pop("", None)
    cases, blocks = (counted(rows[name], name) for name in ("measured case", "timed block"))
    more = {"request": " to a server, when and how long", "sample": " of the GPUs", "row": " of operators"}
    kinds = [f"{counted(rows[name], name)}{more.get(name, '')}" for name in (*more, "event") if rows[name]]
    return (
        f"{counted(rows['run'], 'run')}: {listed([f'{cases} with {blocks}', *kinds])}",
        f"the model{'s' * (len(models) > 1)} {listed(list(models))}" if models else "no model of a device",
        "memory, limits, instruction sets, and the day and minute of each measurement",
        *([f"versions and platform: {listed(sorted(others))}"] if others else []),
    )


def _others(run: RunSummary) -> Iterator[str]:
    named = {
        "torch ": run.runtime.torch_version,
        "CUDA ": run.runtime.torch_cuda,
        "driver ": run.machine.driver_version,
        "kernel ": run.machine.kernel,
        "": run.machine.os_name,
    }
    yield from (f"{name}{value}" for name, value in named.items() if isinstance(value, str))
    yield from (layer.name for layer in run.machine.layers)


_LEFT = {
    "label": "label{s} (--with-label)",
    "price": "price{s} (--with-price)",
    "messages": "message{s} of programs and libraries (--with-messages)",
    "names": "name{s} of a program, model, parameter, operator or kernel (--with-names)",
    DETAIL: "detail{s} of the box that gputui does not know",
}


def _left_out(names: Replacements) -> tuple[str, ...]:
    """What was replaced or left out, and the options that keep it."""
    ids = "ids of runs, boxes and GPUs: new ones stand for them (--with-ids)"
    counts = {what: len(names.replaced[what]) for what in _LEFT}
    return (
        *([ids] if names.replaced["ids"] else []),
        *(f"{n} {_LEFT[what].format(s='' if n == 1 else 's')}" for what, n in counts.items() if n),
        "paths, command lines, logs, host and user names: result files hold none, and none is shared",
    )
