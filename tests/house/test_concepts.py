"""What should exist once does not get more: counted by script, against records that only fall."""

from __future__ import annotations

import ast

import pytest
from concepts import CONCEPTS, HOW_TO_LOWER, Trees, records, trees_of


@pytest.fixture(scope="module")
def trees() -> Trees:
    return trees_of()


@pytest.mark.parametrize("concept", list(CONCEPTS))
def test_there_is_no_more_of_a_concept_than_there_was(concept: str, trees: Trees) -> None:
    found, most = list(CONCEPTS[concept](trees)), records()[concept]
    named = "" if concept == "statements" else ": " + "; ".join(found)
    assert len(found) <= most, f"{len(found)} {concept}, and there were {most}: take some away{named}"
    if len(found) < most:
        print(f"{concept}: {len(found)}, the record is {most}; to lower it: {HOW_TO_LOWER}")


SECOND_ONES = {
    "dataclasses": "@dataclass(frozen=True)\nclass A: ...",
    "registries of metrics": "CHARTS = (('power_w', 'W'), ('sm_clock_mhz', 'MHz'), ('temperature_c', 'C'))",
    "maps from verdict to style": "KINDS = {'faster': 'good', 'slower': 'bad'}",
    "functions that choose columns": """
def fitted(columns, width):
    while sum(columns) > width:
        columns.pop()
""",
    "drawings of a metric over time": "def chart(values): return area(values, 1.0)",
}


@pytest.mark.parametrize("concept", SECOND_ONES)
def test_a_new_one_is_found(concept: str) -> None:
    trees = {"gputui/new.py": ast.parse(SECOND_ONES[concept])}
    assert len(list(CONCEPTS[concept](trees))) == 1
