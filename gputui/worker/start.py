"""First file of a deployed worker: puts its own directory on the path, and nothing else.

Any Python understands it, even 2.7: one that is too old says which it is.
"""

import json
import os
import runpy
import sys

OLDEST_PYTHON = (3, 10)
NEEDED_PYTHON = "gputui measures with Python 3.10 or newer"
EXIT_TOO_OLD = 3

if __name__ == "__main__":
    if sys.version_info >= OLDEST_PYTHON:
        sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120
        runpy.run_module("gputui_worker", run_name="__main__", alter_sys=False)
    else:
        version = ".".join(map(str, sys.version_info[:3]))
        if sys.argv[1:2] in (["probe"], ["describe"]):
            with open(sys.argv[-1], "w") as answer:  # noqa: PTH123
                json.dump({"old_python_version": version}, answer)
        sys.stderr.write(sys.executable + " is Python " + version + "; " + NEEDED_PYTHON + "\n")
        sys.exit(EXIT_TOO_OLD)
