"""What is done and said before anything is measured."""

from __future__ import annotations

from gputui.cli.output import warn
from gputui.services.runs.recovery import recover_orphans
from gputui.services.support.home import missing_home


def report_recovered() -> None:
    """Store runs whose supervisors died; reports each in one line on stderr."""
    warn(found.message for found in recover_orphans() if found.message)


def report_missing_home() -> None:
    """Report on stderr that files go to the temporary directory, if they do."""
    warn(filter(None, [missing_home()]))
