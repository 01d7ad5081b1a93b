"""The schemas in docs/schemas are those of what the commands print."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import jsonschema
import pytest
from json_schemas import OF_THE_BOX, PLACE, is_described, schema_texts
from json_schemas import printed as printed_by_commands

from gputui.cli import gputui as group
from gputui.cli.verbs import COMMANDS
from gputui.model.absent import Missing, to_plain

WITHOUT_RESULT = {"monitor", "demo", "results", "join", "new-workload", "completion"}
"""Screens, and commands that write a text for a person or a shell."""


def _commands() -> Iterator[tuple[str, bool]]:
    """Each command, those below another too, and whether it has --json."""
    context = click.Context(group)
    for one in COMMANDS:
        found = group.get_command(context, one.name)
        assert found is not None
        below = found.commands if isinstance(found, click.Group) else {"": found}
        for name, command in below.items():
            yield f"{one.name} {name}".strip(), any("--json" in each.opts for each in command.params)


def test_every_command_that_prints_a_result_has_json() -> None:
    assert {name for name, has_json in _commands() if not has_json} == WITHOUT_RESULT


def test_json_says_why_a_part_is_absent_however_deep_it_is() -> None:
    device = {"power_w": Missing("not read"), "limits": (Missing("an old driver"), 3)}
    assert to_plain(device) == {
        "power_w": {"missing": "not read"},
        "limits": [{"missing": "an old driver"}, 3],
    }


@pytest.mark.slow
def test_what_is_printed_has_the_shape_of_the_schemas_and_no_other(tmp_path: Path) -> None:
    printed = list(printed_by_commands(tmp_path))
    kept = {path.stem: path.read_text(encoding="utf-8") for path in PLACE.glob("*.json")}
    assert {name for name, _, _ in printed} == set(kept)
    assert {command for _, command, _ in printed} == {name for name, has_json in _commands() if has_json}
    for name, _, value in printed:
        jsonschema.validate(value, json.loads(kept[name]))
    texts = schema_texts((name, value) for name, _, value in printed)
    changed = [name for name, text in texts.items() if name not in OF_THE_BOX and text != kept[name]]
    assert changed == [], (
        "keys were added: python tests/makers/goldens.py, and docs/json.md; removed or renamed: keep them,"
        " or raise `schema`"
    )


def test_a_key_that_is_gone_or_of_another_type_is_refused() -> None:
    schema = json.loads((PLACE / "paths.json").read_text(encoding="utf-8"))
    place = {"what": "result file", "path": "/a.db", "exists": True, "bytes": 1}
    assert is_described({"schema": 1, "places": [place]}, schema)
    noted = {"schema": 1, "places": [{**place, "note": ""}]}
    jsonschema.validate(noted, schema)
    assert not is_described(noted, schema), "goldens.py writes the new key"
    for wrong in ({**place, "bytes": "1"}, {"what": "result file"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"schema": 1, "places": [wrong]}, schema)
