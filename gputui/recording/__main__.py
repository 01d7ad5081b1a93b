"""Entry of a supervisor: `python -m gputui.recording RUNDIR...`, also as a zip on another machine."""

from __future__ import annotations

import sys
from pathlib import Path

from gputui.errors import GputuiError
from gputui.recording.supervisor import Supervisor


def main(arguments: list[str] | None = None) -> int:
    """Execute the runs in these directories; errors go to stderr."""
    run_dirs = [Path(a) for a in (sys.argv[1:] if arguments is None else arguments)]
    if not run_dirs:
        print("usage: RUNDIR...", file=sys.stderr)
        return 2
    try:
        return Supervisor(run_dirs).run()
    except GputuiError as error:
        print(f"{error.message}\n{error.hint}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
