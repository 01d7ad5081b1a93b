"""Each form of a comparison, word for word; `tests/makers/comparison_forms.py` makes them anew."""

from __future__ import annotations

from contextlib import chdir

import pytest
from comparison_forms import FOLDER, forms, store_sides


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    with chdir(tmp_path_factory.mktemp("forms")):
        store_sides()
        return forms()


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.iterdir()))
def test_a_form_of_a_comparison_is_as_it_was_reviewed(made: dict[str, str], name: str) -> None:
    assert made[name] == (FOLDER / name).read_bytes().decode(), (
        f"{name}: python tests/makers/goldens.py makes it anew; look at it"
    )


def test_every_form_was_reviewed(made: dict[str, str]) -> None:
    assert set(made) == {path.name for path in FOLDER.iterdir()}, "python tests/makers/goldens.py makes them"
