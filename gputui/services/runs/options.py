"""The options of a run, each declared once: for the shell, the form of the Run screen, and command lines that
repeat it. A second list would take what the first refuses, or leave something out.

And `run` from Python, which takes them by name: the command as a child process, its progress line by line.
"""

from __future__ import annotations

import os
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack  # Any: values by the names of their fields; JSON

from gputui.errors import EXIT_NO_RESULT, GputuiError, NoResult
from gputui.model.units import number_from
from gputui.services.profiles.loader import MAX_BLOCKS, MAX_BUDGET_S, MAX_REPLICATES
from gputui.services.profiles.planner import Choices
from gputui.services.results.frames import Frames, load_runs
from gputui.services.support.paths import default_result_file
from gputui.store.selecting import check_label
from gputui.worker import MIN_BLOCKS
from gputui.worker.foreign_json import read_json
from gputui.worker.ranks import address_of

_SHOWN = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(Choices):
    """The options of `gputui run`, those by which the user narrows it among them."""

    profile: str = "quick"
    """A name, a .toml file, or a workload in a .py file; empty if another run defines what is measured."""
    db: Path | None = None
    pythons: tuple[str, ...] = ()
    """Interpreters, one run each; empty for the first that has torch."""
    label: str = ""
    machine: str = ""
    """What the user calls this box; empty to know it by what it is."""
    price: float | None = None
    instance: str | None = None


def options_of(profile: str, stated: Mapping[str, Any]) -> RunOptions:
    """The options with these values, by the fields of `RunOptions`; None for the usual."""
    return RunOptions(profile=profile, **{key: value for key, value in stated.items() if value is not None})


launches_from = number_from(
    "--launches", int, f"a whole number from 1 to {MAX_REPLICATES}", (1, MAX_REPLICATES)
)
blocks_from = number_from(
    "--blocks", int, f"a whole number from {MIN_BLOCKS} to {MAX_BLOCKS}", (MIN_BLOCKS, MAX_BLOCKS)
)
budget_from = number_from(
    "--budget", float, f"seconds from 1 to {MAX_BUDGET_S}, such as 300", (1, MAX_BUDGET_S)
)
price_from = number_from("--price", float, "USD per hour for the whole box, such as 2.49")
"""`price_of` checks whether it is plausible."""


def rendezvous_from(text: str) -> str:
    """Parse an address. Raises GputuiError unless it is `ADDRESS:PORT`."""
    try:
        address_of(text)
    except ValueError:
        raise GputuiError(
            f"--rendezvous: {text[:_SHOWN]!r} is not ADDRESS:PORT",
            "an address of this box that the other hosts can reach, and a free port: 10.0.0.1:29400",
        ) from None
    return text


def _several(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _pythons(text: str) -> list[str]:
    """Paths quoted as in a shell. Raises GputuiError for a quote that is not closed."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise GputuiError(f"--python {text}: {error}", "close the quote") from error


@dataclass(frozen=True, slots=True)
class Option:
    """What a run can be told: `--NAME`, and the field of `RunOptions` with this `key`.

    `metavar` and `help` are for the shell. On the form it has a `title`, and `unset` while nothing is typed.
    `read` raises GputuiError for what is wrong; `split` divides the form's text of one that may be repeated.
    """

    name: str
    key: str
    metavar: str = ""
    help: str = ""
    title: str = ""
    unset: str = ""
    read: Callable[[str], object] = str
    split: Callable[[str], Sequence[str]] | None = None

    def typed(self, text: str) -> object:
        """What the form's text means; None for nothing."""
        if self.split is not None:
            return tuple(self.split(text))
        return self.read(text.strip()) if text.strip() else None


OPTIONS: tuple[Option, ...] = (
    Option("db", "db", title="file", unset="where results are kept", read=Path),
    Option(
        "python",
        "pythons",
        "EXE",
        "Interpreter to measure; repeatable.",
        "Python",
        "the first that has torch; or the path of one",
        split=_pythons,
    ),
    Option(
        "device",
        "device",
        "D",
        "cpu, gpu, gpu:N, the UUID of a GPU, or all: each GPU.",
        "device",
        "all in the profile; or cpu, gpu, gpu:1",
    ),
    Option(
        "only",
        "only",
        "W[:SIZE[:PREC]]",
        "Only this workload, size or precision; repeatable.",
        "workloads",
        "all in the profile; or some, as gemm gpt_train",
        split=_several,
    ),
    Option(
        "precision",
        "precisions",
        "P",
        "fp32, tf32, amp, amp-bf16 or amp-fp16; repeatable.",
        "precision",
        "all in the profile; or fp32, tf32, amp, amp-bf16, amp-fp16",
        split=_several,
    ),
    Option(
        "launches",
        "replicates",
        "N",
        "Launches per case.  [the profile's]",
        "launches",
        "the profile's; each is a fresh process",
        launches_from,
    ),
    Option(
        "budget",
        "budget_s",
        "S",
        "Time limit in seconds.  [the profile's]",
        "budget",
        "the profile's; or seconds",
        budget_from,
    ),
    Option(
        "blocks",
        "most_blocks",
        "N",
        "End a case after N timed blocks.  [60; 5 for a quick try]",
        read=blocks_from,
    ),
    Option(
        "rendezvous",
        "rendezvous",
        "A:PORT",
        "Address of this box for other hosts to join; see `gputui join`.",
        read=rendezvous_from,
    ),
    Option(
        "label", "label", "TEXT", "A name for this run.", "label", "none; a name for this run", check_label
    ),
    Option(
        "price",
        "price",
        "USD_PER_H",
        "What the whole box costs per hour.",
        "price",
        "not known; USD per hour for the whole box",
        price_from,
    ),
    Option(
        "instance",
        "instance",
        "TYPE",
        "Use the list price of this instance type; TYPE:spot for its spot price.",
    ),
)
"""In the order of the help, and of a command line."""


def to_argv(options: RunOptions) -> list[str]:
    """The options as words of a command line."""
    stated = asdict(options)
    return list(words_of({one.name: stated[one.key] for one in OPTIONS}))


def words_of(options: Mapping[str, object]) -> Iterator[str]:
    """Options by name as words of a command line; None, False and empty texts are left out."""
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        for one in value if isinstance(value, Sequence) and not isinstance(value, str) else (value,):
            if one is True:
                yield option
            elif one is not None and one is not False and one != "":
                text = f"{one:.15g}" if isinstance(one, float) else str(one)
                yield from (f"{option}={text}",) if text.startswith("-") else (option, text)


Draft = dict[str, str]
"""What is typed in a form, by the name of the option; and the `profile`."""
Wrong = dict[str, GputuiError]


def read_draft(draft: Draft) -> tuple[RunOptions, Wrong]:
    """Parse a draft; returns the errors too. Fast: touches no device and no file."""
    stated: dict[str, object] = {"seed": secrets.randbelow(2**31)}
    wrong: Wrong = {}
    for option in OPTIONS:
        try:
            stated[option.key] = option.typed(draft.get(option.name, ""))
        except GputuiError as error:
            wrong[option.name] = error
    return options_of(draft.get("profile", "quick"), stated), wrong


_LAST_LINES = 8
"""Enough for an error and its hint, which the command prints at its end."""
_Words = str | Path | Sequence[str | Path]


class StatedOptions(TypedDict, total=False):
    """Options of `gputui run`, by their names there; without those of a terminal."""

    python: _Words
    device: str
    only: _Words
    precision: _Words
    launches: int
    budget: float
    blocks: int
    rendezvous: str
    label: str
    price: float
    instance: str
    machine: str
    seed: int
    trace: bool
    like: str
    yes: bool
    all: bool
    verbose: bool


def run(
    profile: str | Path = "quick", *, db: str | Path | None = None, **options: Unpack[StatedOptions]
) -> Frames:
    """Measure a profile, store the result, and return its frames. As `gputui run`.

    `options` are those of the command: `only="gemm"`, `launches=3`, `python=["/usr/bin/python3"]`,
    `trace=True`. Progress goes to stdout. Ctrl-C, or the notebook's stop button, ends the run and keeps what
    is finished. Raises NoResult if nothing was measured, and GputuiError for what keeps it from measuring.
    """
    target = default_result_file() if db is None else Path(db)
    words = [sys.executable, "-m", "gputui", "run", str(profile), "--db", str(target), "--json"]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as printed:
        status, said = _followed([*words, *words_of(options)], printed.fileno())
        printed.seek(0)
        text = printed.read()
    try:
        found: list[dict[str, Any]] = read_json(text)["runs"]
    except (ValueError, KeyError):
        raise _refused(status, said) from None
    for one in found:
        print(one["headline"])
    if status == EXIT_NO_RESULT:
        named = ", ".join(str(one["run_id"])[-8:] for one in found)
        raise NoResult(f"run {named} measured nothing", f"gputui show {named[-8:]} {target} -v says why")
    return load_runs(target, [one["run_id"] for one in found])


def _refused(status: int, said: Sequence[str]) -> GputuiError:
    """The error with which the command ended, as it printed it: its message, and its hint below."""
    at = max((n for n, line in enumerate(said) if line.startswith("gputui: ")), default=None)
    if at is None or status <= 0:
        return GputuiError(f"gputui run ended with status {status}", "its messages are above")
    hint = " ".join(line.strip() for line in said[at + 1 :])
    return GputuiError(said[at].removeprefix("gputui: ").strip(), hint, status)


def _followed(words: Sequence[str], stdout: int) -> tuple[int, Sequence[str]]:
    """Run a command, print the lines of its stderr as they come; returns its exit status, and the last."""
    here = str(Path(__file__).parents[3])
    paths = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH", ""))))
    with subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
        start_new_session=True,  # else a notebook's stop button interrupts the child as well, before us
    ) as child:
        assert child.stderr is not None
        is_stopped, said = False, deque[str](maxlen=_LAST_LINES)
        while True:
            try:
                for line in child.stderr:
                    print(line, end="", flush=True)
                    said.append(line)
                break
            except KeyboardInterrupt:
                is_stopped = True
                child.send_signal(signal.SIGINT)
    if is_stopped:
        raise KeyboardInterrupt
    return child.returncode, tuple(said)
