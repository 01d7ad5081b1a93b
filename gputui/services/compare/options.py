"""The options of a comparison that the command and the Compare screen share, and what reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any  # click's parameters

import click

from gputui.errors import GputuiError
from gputui.services.compare.columns import ComparisonColumn, columns_of
from gputui.services.compare.pairing import DIMENSIONS
from gputui.services.compare.session import ComparisonRequest


def _columns(context: object, parameter: object, text: str | None) -> tuple[ComparisonColumn, ...]:
    return () if text is None else columns_of(text)


OPTIONS: dict[str, dict[str, Any]] = {
    "by": {"type": click.Choice(list(DIMENSIONS)), "metavar": "WHAT"},
    "baseline": {"metavar": "X"},
    "columns": {"callback": _columns, "metavar": "C,..."},
    "pool": {"is_flag": True},
    "trust": {"is_flag": True},
}
"""Those of the command that the Compare screen takes too, as click has them; the command adds its help."""


def request_of(words: Sequence[str]) -> ComparisonRequest:
    """Parse the words after `gputui compare`; a leading `gputui compare` is skipped.

    Raises GputuiError for an option that a Request lacks, for a value that is missing or unknown,
    and where no file is named.
    """
    options = [click.Option([f"--{name}"], **taken) for name, taken in OPTIONS.items()]
    command = click.Command("compare", params=[click.Argument(["files"], nargs=-1), *options])
    left = list(words[2:] if tuple(words[:2]) == ("gputui", "compare") else words)
    try:
        given = command.make_context("compare", left).params
    except click.UsageError as error:
        hint = "the screen takes --by WHAT, --baseline X, --columns C,..., --pool and --trust"
        raise GputuiError(error.format_message().rstrip("."), hint) from None
    if not given["files"]:
        raise GputuiError(
            "no file is named", "name two, such as a.db b.db; one alone: its precisions, devices or threads"
        )
    return ComparisonRequest(**{name: value for name, value in given.items() if value is not None})
