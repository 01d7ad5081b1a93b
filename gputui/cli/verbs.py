"""The commands, in the groups in which `gputui --help` shows them.

A command's module is imported when it is called; with all of them a start would take half a second longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Command:
    """A command; to add one, add its file and a line in a group of GROUPS.

    `module`, below `gputui.cli`, defines a click command called `command`, or as what stands behind a colon;
    if not all of its options fit its help, COMMON there are those that come first. `option` is what does the
    same, as `run --attach [RUN]`: in the help of that command, and not on the first screen. `may_be_meant`
    says whether the command may be the answer to a misspelt word: not if it ends or removes something.
    """

    name: str
    module: str
    summary: str
    option: str = ""
    may_be_meant: bool = True


class Group(NamedTuple):
    """Commands that answer one question, or stand below a noun: `gputui db merge` is `gputui merge`."""

    title: str
    question: str
    commands: tuple[Command, ...]
    noun: str = ""


GROUPS: tuple[Group, ...] = (
    Group(
        "LOOK",
        "What are the GPUs doing? Is this box all right?",
        (
            Command(
                "monitor",
                "screens:monitor",
                "live GPUs, processes, health; --host: other boxes; --demo: made up",
            ),
            Command("snapshot", "snapshot", "print one reading of every GPU and the host", "monitor --once"),
            Command("demo", "screens:demo", "show the monitor with made-up GPUs", "monitor --demo"),
            Command("check", "doctor:check", "is this box as it should be? one word, in a minute"),
        ),
    ),
    Group(
        "MEASURE",
        "How fast is it?",
        (
            Command("run", "run", "a profile: quick (2 min 20 s), cpu-vs-gpu, fp32-vs-amp, ..."),
            Command("attach", "watching:attach", "watch a run in progress", "run --attach [RUN]"),
            Command(
                "stop",
                "watching:stop",
                "end a run in progress and keep what is finished",
                "run --stop [RUN]",
                may_be_meant=False,
            ),
            Command("profiles", "run:profiles", "list the profiles, or show one", "run --list [NAME]"),
            Command(
                "new-workload",
                "run:new_workload",
                "write a template for a workload of your own",
                "run --template FILE",
            ),
            Command("join", "run:join", "lend this box to a run across several hosts", "run --join A:PORT"),
            Command("bakeoff", "bakeoff", "the same on several boxes at once, over your own ssh"),
            Command(
                "serve-bench", "serve_bench", "an LLM server under load: first token, tokens/s, its limit"
            ),
            Command("record", "record", "your own command: its time, and power, clocks, memory meanwhile"),
        ),
    ),
    Group(
        "EXPLAIN",
        "Why is it fast or slow?",
        (
            Command("why", "why", "where a step's time goes: of a.db, a trace, or -- python train.py"),
            Command("show", "show", "one run in full; --tui: browse files and runs"),
            Command("results", "screens:results", "browse result files and runs on the screen", "show --tui"),
            Command("compare", "compare", "who is faster, by how much, at what cost: a.db b.db"),
        ),
    ),
    Group(
        "DECIDE",
        "What should I rent?",
        (
            Command("pick", "pick", "a model or a job: on which GPUs or boxes, how fast, what it costs"),
            Command(
                "advise", "advise", "what a job takes and costs on each box; rent or buy", "pick --job TEXT"
            ),
            Command("gpu", "gpu", "a GPU's peaks, what others measured, prices; --free"),
            Command("share", "files:share", "a report or file to send, without names, ids and paths"),
        ),
    ),
    Group(
        "FILES",
        "Result files: what is in them, and what goes in and out.",
        (
            Command("runs", "files:runs", "list the runs of a result file"),
            Command("merge", "files:merge", "merge result files into one"),
            Command("export", "files:export", "export runs to Parquet for Spark, polars, DuckDB and others"),
            Command("import", "files:import_", "import torch.profiler traces, or a run directory"),
            Command("label", "files:label", "rename a run"),
            Command("rm", "files:rm", "remove a run from a result file", may_be_meant=False),
        ),
        "db",
    ),
    Group(
        "SETUP",
        "This installation of gputui.",
        (
            Command("completion", "installation:completion", "print a shell completion script"),
            Command("paths", "installation:paths", "show where files are kept, and how to remove them"),
        ),
        "self",
    ),
    Group(
        "",
        "",
        (Command("doctor", "doctor:doctor", "is this box ready to measure? every finding"),),
    ),
)
"""In the order of the first screen; what has no title is not on it."""

COMMANDS: tuple[Command, ...] = tuple(command for group in GROUPS for command in group.commands)
NOUNS = {group.noun: group for group in GROUPS if group.noun}
SPELT = {
    one.name: " ".join(one.option.split(" ")[:2]) or f"{group.noun} {one.name}".strip()
    for group in GROUPS
    for one in group.commands
}
"""Each command as its help teaches it: `db merge`, `run --attach`."""
INSTEAD = {SPELT[one.name]: one.name for one in COMMANDS if one.option}

ELSEWHERE = {
    **dict.fromkeys(("top", "htop", "nvtop", "btop", "nvitop", "watch", "status", "live", "gpus"), "monitor"),
    **dict.fromkeys(("health", "test", "preflight"), "check"),
    **dict.fromkeys(("bench", "benchmark", "measure"), "run"),
    **dict.fromkeys(("list", "ls"), "runs"),
    **dict.fromkeys(("price", "cost", "specs"), "gpu"),
    "diff": "compare",
    "trace": "import",
    "replay": "results",
}
"""What people call these commands, by the names that other tools have."""


_EARLIER = {
    "fit": ("pick", "--train"),
    "facts": ("gpu",),
    "prices": ("gpu",),
    "reference": ("gpu",),
}
"""Earlier names of commands, and what they are now."""
_REFERENCES = {"add": ["--add"], "list": [], "show": []}
"""What stood behind `reference`."""


def understood(words: list[str]) -> list[str]:
    """The words of gputui, with one way to say a thing.

    `run --attach RUN` becomes `attach RUN`, `help run` becomes `run --help`, `db` becomes `db --help`, and
    `--help --all` becomes `--help --help`, since a command's own `--all` means another thing.
    """
    if words and words[0] in _EARLIER:  # `prices --import F` is now `gpu --prices F`
        earlier, *rest = words
        if earlier == "prices":
            rest = ["--prices" if word == "--import" else word for word in rest]
        elif earlier == "reference" and rest:
            rest = [*_REFERENCES.get(rest[0], rest[:1]), *rest[1:]]
        words = [*_EARLIER[earlier], *rest]
    for place, word in enumerate(words):
        option, *value = word.split("=", 1)
        if name := INSTEAD.get(f"{words[0]} {option}"):
            kept = [word] if option == "--job" else value  # an option of `advise`, too
            words = [name, *words[1:place], *kept, *words[place + 1 :]]
            break
    is_of_command = words[:1] == ["help"] and {*words[1:]} <= {*SPELT, *NOUNS, "-h", "--help", "--all"}
    if is_of_command or (len(words) == 1 and words[0] in NOUNS):
        words = [*(word for word in words if word not in ("help", "-h", "--help")), "--help"]
    return ["--help" if word == "--all" and {"-h", "--help"} & {*words} else word for word in words]
