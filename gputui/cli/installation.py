"""This installation of gputui: where its files are, and the completion of its commands in a shell."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

from gputui.cli.options import COMPLETES, json_option
from gputui.cli.output import print_json
from gputui.errors import EXIT_DONE, GputuiError
from gputui.model.units import format_bytes


@click.command()
@json_option
def paths(as_json: bool) -> None:
    """Show where result file, run directories, probes, settings and key lie, and how to remove them."""
    from gputui.services.support.paths import (
        missing_home,  # what completes a word does without
        places,
    )

    found = places()
    if as_json:
        plain = [
            {"what": p.what, "path": str(p.path), "exists": p.exists, "bytes": p.total_bytes} for p in found
        ]
        print_json({"places": plain})
        return
    if without_home := missing_home():
        click.echo(without_home, err=True)
    for place in found:
        size = format_bytes(place.total_bytes) if place.exists else "(not there)"
        click.echo(f"{place.what + ':':19}{place.path}  {size}")
        if place.note:
            click.echo(f"{'':19}{place.note}")
    there = [shlex.quote(str(place.path)) for place in found if place.exists]
    if there:
        click.echo(f"to remove all of it, your results too:\n  rm -r {' '.join(there)}")


SHELLS = ("bash", "zsh", "fish")
_MOST_RUNS = 50
_PLAIN = re.compile(r"[\w.+@%/-]+", re.ASCII)
_LOADS_COMPDEF = "(( $+functions[compdef] )) || { autoload -Uz compinit; compinit -i }"
"""For a .zshrc that has not loaded zsh's completion by then."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS), required=False)
def completion(shell: str | None) -> int:
    """Print the script that completes commands, profiles, runs, labels, workloads and GPUs.

    bash and zsh: `eval "$(gputui completion bash)"` (or zsh) in ~/.bashrc or ~/.zshrc; fish: `gputui
    completion fish | source` in config.fish. Without a name, for the shell of $SHELL.
    """
    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise GputuiError(f"completion: {name or 'no shell'} is not known", f"name one: {', '.join(SHELLS)}")
    found = get_completion_class(name)
    assert found is not None
    source = found(click.Group("gputui"), {}, "gputui", COMPLETES).source()
    click.echo(source.replace("    compdef ", f"    {_LOADS_COMPDEF}\n    compdef "))
    return EXIT_DONE


def add_completions(found: click.Command, name: str) -> None:
    """Let the parameters of a command be completed."""
    for parameter in found.params:
        complete = _COMPLETED.get((name, parameter.name or ""))
        if complete is not None:
            # click looks here first, and only for the parameter that is being typed
            setattr(parameter, "shell_complete", _method(complete))  # noqa: B010


def _method(
    complete: Callable[[str], Iterator[CompletionItem]],
) -> Callable[[click.Context, str], list[CompletionItem]]:
    def shell_complete(context: click.Context, incomplete: str) -> list[CompletionItem]:
        try:
            found = [item for item in complete(incomplete) if str(item.value).startswith(incomplete)]
        except (GputuiError, OSError):  # nothing to offer, and a message would be in the line being typed
            found = []
        return found or [CompletionItem(incomplete, type="file")]

    return shell_complete


def _profiles(incomplete: str) -> Iterator[CompletionItem]:
    from gputui.services.profiles.loader import shipped_profiles

    for profile in shipped_profiles():
        yield CompletionItem(profile.name, help=profile.question)


def _workloads(incomplete: str) -> Iterator[CompletionItem]:
    from gputui.worker.workloads import WORKLOADS

    for workload in WORKLOADS:
        yield CompletionItem(workload.name, help=workload.title)
        yield from (CompletionItem(f"{workload.name}:{size}") for size in workload.sizes if ":" in incomplete)


def _runs(incomplete: str) -> Iterator[CompletionItem]:
    """Short ids and labels of the default file, or `F@RUN` of the file before the `@`."""
    from gputui.services.support.paths import default_result_file
    from gputui.store.opening import expanded
    from gputui.store.reading import open_result

    file, at, _ = incomplete.rpartition("@")
    if not at and Path(incomplete or "-").exists():
        return
    with open_result(expanded(Path(file)) if at else default_result_file()) as opened:
        summaries = opened.summaries()[:_MOST_RUNS]
    yield CompletionItem(f"{file}{at}latest", help="the newest run")
    for run in summaries:
        labels = [run.label] if _PLAIN.fullmatch(run.label) else []
        for name in (run.short_id, *labels):
            yield CompletionItem(f"{file}{at}{name}", help=f"{run.profile}, {run.status}")


def _files_and_runs(incomplete: str) -> Iterator[CompletionItem]:
    return _runs(incomplete) if "@" in incomplete else iter(())


def _in_progress(incomplete: str) -> Iterator[CompletionItem]:
    from gputui.services.runs.process import called, runs_in_progress

    for runs in runs_in_progress():
        yield from (CompletionItem(run.short_id, help=called(run)) for run in runs)


def _gpus(incomplete: str) -> Iterator[CompletionItem]:
    from gputui.facts.tables import gpu_rows

    words = {word for row in gpu_rows() for word in row.name.split()}
    yield from (CompletionItem(word) for word in sorted(words) if re.fullmatch(r"[A-Z]+\d\w*|\d{4}", word))


_COMPLETED: dict[tuple[str, str], Callable[[str], Iterator[CompletionItem]]] = {
    ("run", "profile"): _profiles,
    ("run", "only"): _workloads,
    ("run", "like"): _runs,
    ("run", "attach"): _in_progress,
    ("run", "stop"): _in_progress,
    ("run", "list"): _profiles,
    ("profiles", "name"): _profiles,
    ("attach", "run"): _in_progress,
    ("stop", "run"): _in_progress,
    ("show", "run"): _runs,
    ("label", "run"): _runs,
    ("rm", "run"): _runs,
    ("compare", "files"): _files_and_runs,
    ("advise", "files"): _files_and_runs,
    ("results", "file"): _files_and_runs,
    ("gpu", "words"): _gpus,
    ("pick", "gpu"): _gpus,
}
"""Command and parameter: what completes it; files where nothing fits."""


class _Bash(BashComplete):
    """As click's, but words keep their `:`, `@` and `=`, at which bash would split them."""

    source_template = r"""%(complete_func)s() {
    local IFS=$'\n' line="${COMP_LINE:0:$COMP_POINT}" typed breaks="" begun="" each type value
    typed="${line##*[[:space:]]}"
    for each in : @ =; do
        [[ $COMP_WORDBREAKS == *"$each"* ]] && breaks+=$each
    done
    [[ -n $breaks && $typed == *[$breaks]* ]] && begun="${typed%%"${typed##*[$breaks]}"}"
    COMPREPLY=()
    for each in $(env COMP_WORDS="$line" COMP_CWORD=0 %(complete_var)s=bash_complete $1); do
        IFS=',' read -r type value <<< "$each"
        if [[ $type == file || $type == dir ]]; then
            compopt -o default 2> /dev/null
        else
            COMPREPLY+=("${value#"$begun"}")
        fi
    done
    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_WORDS"]
        words = split_arg_string(line)
        typed = words.pop() if words and not line[-1].isspace() else ""
        return words[1:], typed


add_completion_class(_Bash)
