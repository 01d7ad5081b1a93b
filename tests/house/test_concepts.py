"""What should exist once does not get more: counted by script, against records that only fall."""

from __future__ import annotations

import ast

import pytest
from concepts import CONCEPTS, records, trees_of


def test_there_is_no_more_of_any_concept_than_there_was() -> None:
    trees, too_many = trees_of(), []  # parsed once: this takes as long as all the rest
    for concept, most in records().items():
        found = list(CONCEPTS[concept](trees))
        if len(found) > most:
            named = "" if concept == "statements" else ": " + "; ".join(found)
            too_many.append(f"{len(found)} {concept}, and there were {most}: take some away{named}")
    assert not too_many, "\n".join([*too_many, "or raise it in concepts.json, for a new capability alone"])
    assert set(CONCEPTS) == set(records())


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
