"""The schemas in docs/schemas are those of what the commands print."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from json_schemas import PLACE, schema_texts
from json_schemas import printed as printed_by_commands

OF_THE_BOX = ("check", "doctor", "snapshot")
"""What they list depends on where they run."""

pytestmark = pytest.mark.slow


def test_what_is_printed_has_the_shape_of_the_schemas_and_no_other(tmp_path: Path) -> None:
    printed = list(printed_by_commands(tmp_path))
    kept = {path.stem: path.read_text(encoding="utf-8") for path in PLACE.glob("*.json")}
    assert {name for name, _ in printed} == set(kept)
    for name, value in printed:
        jsonschema.validate(value, json.loads(kept[name]))
    changed = [
        name for name, text in schema_texts(printed).items() if name not in OF_THE_BOX and text != kept[name]
    ]
    assert changed == [], (
        "keys were added: python tests/makers/goldens.py, and docs/json.md; removed or renamed: keep them,"
        " or raise `schema`"
    )


def test_a_key_that_is_gone_or_of_another_type_is_refused() -> None:
    schema = json.loads((PLACE / "paths.json").read_text(encoding="utf-8"))
    place = {"what": "result file", "path": "/a.db", "exists": True, "bytes": 1, "note": ""}
    jsonschema.validate({"schema": 1, "places": [place]}, schema)
    for wrong in ({**place, "bytes": "1"}, {"what": "result file"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"schema": 1, "places": [wrong]}, schema)
