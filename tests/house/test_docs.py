"""The pages agree with the code on commands, profiles and workloads."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click
import pytest

from gputui.cli import gputui
from gputui.cli.verbs import COMMANDS, GROUPS, NOUNS, Command
from gputui.services.profiles.loader import shipped_profiles
from gputui.tui.shell.registry import SCREENS
from gputui.worker.contract import UNITS
from gputui.worker.workloads import WORKLOADS

OF_THE_GROUP = {"--help", "--version", "--debug", "--ascii", "--notify"}
OF_SCRIPTS = {"--real", "--measure"}
"""Of tests/benchmarks and screenshots."""
OF_INSTALLERS = {"--index-url", "--extra-index-url", "--from", "--no-deps"}
"""Of uvx and pip."""

PLACEHOLDERS = {"NAME", "WHICH"}


def options_of(command: Command) -> list[tuple[str, ...]]:
    """Its options, each with all its names."""
    made = gputui.get_command(click.Context(gputui), command.name)
    assert made is not None
    all_of_it = (made, *made.commands.values()) if isinstance(made, click.Group) else (made,)
    return [
        (*parameter.opts, *parameter.secondary_opts)
        for one in all_of_it
        for parameter in one.params
        if isinstance(parameter, click.Option) and "--help" not in parameter.opts
    ]


def is_named(option: str, text: str) -> bool:
    return re.search(rf"(?<![\w-]){option}(?![\w-])", text) is not None


@pytest.fixture(scope="module")
def pages(repository: Path) -> dict[str, str]:
    found = [repository / "README.md", *(repository / "docs").glob("*.md")]
    return {page.name: page.read_text(encoding="utf-8") for page in found}


def test_the_layout_names_every_room_and_every_screen(repository: Path, pages: dict[str, str]) -> None:
    package = repository / "gputui"
    page = pages["architecture.md"]
    rooms = {
        path.parent
        for floor in (package, package / "services", package / "tui", package / "worker")
        for path in floor.glob("*/__init__.py")
    }
    missing = [str(room.relative_to(repository)) for room in rooms if f" {room.name}/" not in page]
    (line,) = [line for line in page.splitlines() if line.startswith("    screens/ ")]
    missing += [f"{entry.id} behind screens/" for entry in SCREENS[1:] if not is_named(entry.id, line)]
    assert missing == [], f"docs/architecture.md, the layout: it lacks {', '.join(sorted(missing))}"


def test_the_pages_name_every_command_each_of_its_options_and_no_other(pages: dict[str, str]) -> None:
    options = {command.name: options_of(command) for command in COMMANDS}
    for command, made in options.items():
        assert f"`gputui {command}" in pages["commands.md"], f"docs/commands.md lacks `gputui {command}`"
        of_it = "\n".join(text for text in pages.values() if f"gputui {command}" in text)
        assert [names for names in made if not any(is_named(name, of_it) for name in names)] == [], command
    known = OF_THE_GROUP | OF_SCRIPTS | OF_INSTALLERS
    known |= {name for made in options.values() for names in made for name in names}
    named = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
    unknown = {(page, name) for page, text in pages.items() for name in named.findall(text)}
    assert {(page, name) for page, name in unknown if name not in known} == set()


def test_the_readme_names_what_the_first_screen_has(pages: dict[str, str]) -> None:
    groups = [group for group in GROUPS if group.title and not group.noun]
    on_screen = [one.name for group in groups for one in group.commands if not one.option]
    missing = [name for name in (*on_screen, *NOUNS) if f"`gputui {name}`" not in pages["README.md"]]
    assert missing == []


def brackets_of(name: str, page: str) -> str:
    """What the brackets behind this name in a list of docs/profiles.md hold."""
    rows = re.findall(rf"^- `{name}` \((.*?)\): ", page, re.MULTILINE)
    assert len(rows) == 1, f"docs/profiles.md has {len(rows)} items that begin with - `{name}` (...): "
    return str(rows[0])


def test_a_page_that_lists_units_lists_all_of_them(pages: dict[str, str]) -> None:
    missing: list[str] = []
    for page in ("own-workloads.md", "profiles.md", "json.md"):
        lines = pages[page].splitlines()
        (listed,) = [line for line in lines if re.search(r"\bimg\b.*\btok\b.*\bframe\b", line)]
        missing += [f"{unit} in docs/{page}" for unit in UNITS if not re.search(rf"\b{unit}\b", listed)]
    assert missing == []


def test_the_page_of_profiles_states_the_budget_of_each_and_lists_each_workload(
    pages: dict[str, str],
) -> None:
    page = pages["profiles.md"]
    for profile in shipped_profiles():
        assert brackets_of(profile.name, page) == f"{round(profile.budget_s / 60, 1):g} min"
    assert "`fp32`, `tf32` or `amp`" in page
    compiled = page.partition("`modes = ")[2].partition("\n\n")[0]
    for workload in WORKLOADS:
        named = re.findall(r"\b(?:fp32|tf32|amp)\b", brackets_of(workload.name, page))
        item, paragraph = f"{workload.name}, its item", f"{workload.name}, the paragraph on `compile`"
        assert (named or ["fp32", "tf32", "amp"]) == list(workload.precisions), f"docs/profiles.md: {item}"
        assert (f"`{workload.name}`" in compiled) is ("compile" in workload.modes), (
            f"docs/profiles.md: {paragraph}"
        )


def test_the_page_of_doctor_names_the_topic_of_every_check(repository: Path, pages: dict[str, str]) -> None:
    tree = ast.parse((repository / "gputui/services/doctor/checks.py").read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    made = [call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Check"]
    topics = {re.sub(r"\{.*?\}", "n", ast.unparse(argument).strip("f'\"")) for argument in made}
    bold = ", ".join(re.findall(r"^- \*\*(.+?)\*\*", pages["doctor.md"], re.MULTILINE))
    of_one = re.compile(r"^(GPU n|torch n:n) ?")  # `GPU n power` is described as `power`
    described = {"", "topic", *(of_one.sub("", word) for word in bold.split(", "))}
    assert len(topics) > 10
    missing = sorted(topic for topic in topics if of_one.sub("", topic) not in described)
    assert missing == [], f"docs/doctor.md has no line that begins with - **{missing[0]}**"


def test_every_file_that_contributors_are_sent_to_is_there(repository: Path) -> None:
    both = (repository / name for name in ("CONTRIBUTING.md", "SECURITY.md"))
    page = "\n".join(path.read_text(encoding="utf-8") for path in both)
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]*(?:\.py)?)`", page))
    assert len(named) > 20
    roots = (repository, repository / "gputui", repository / "gputui" / "worker")
    assert sorted(name for name in named if not any((root / name).exists() for root in roots)) == []


def test_every_name_that_contributors_are_sent_to_is_defined(repository: Path) -> None:
    page = (repository / "CONTRIBUTING.md").read_text(encoding="utf-8")
    written = " ".join(re.findall(r"`([^`\n]+)`", page))
    named = set(re.findall(r"\b(?:[A-Z][a-z]+){1,4}\b|\b[A-Z][A-Z_]{3,}\b", written)) - PLACEHOLDERS
    assert len(named) > 20
    code = [path for room in ("gputui", "tests/contract") for path in (repository / room).rglob("*.py")]
    known = set(re.findall(r"\w+", "\n".join(path.read_text(encoding="utf-8") for path in code)))
    assert sorted(named - known) == []
