"""What the Results screen shows if nothing was ever measured."""

from __future__ import annotations

from pathlib import Path

from gputui.services.support.paths import default_result_file
from gputui.tui.shell.registry import SCREENS
from gputui.tui.terminal.lines import Line
from gputui.tui.widgets.paragraphs import paragraph


def first_steps(width: int, runs_in_progress: int) -> tuple[Line, ...]:
    """How to measure this box."""
    can_run = any(entry.id == "run" for entry in SCREENS)
    under_way = "A run is in progress and will appear here when it ends. Press 2 to watch it."
    return (
        *paragraph("No runs yet.", width, "title"),
        (),
        *((*paragraph(under_way, width, "warn"), ()) if runs_in_progress else ()),
        *paragraph(f"Measure this box: {'press 2, or in a shell' if can_run else 'in a shell'}", width),
        *paragraph("  gputui run quick", width, "accent"),
        (),
        *paragraph(
            f"Looked in {default_result_file().parent} and {Path.cwd()}. A file elsewhere: press o.",
            width,
            "dim",
        ),
    )
