"""Programs in forks of one process that has imported what they need, with the stand-in library in its path.

A process that has called the library cannot take another scenario, and starting Python anew for each test
takes ten times as long as the test.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import subprocess
import sys
import traceback
from functools import cache
from pathlib import Path
from typing import Any  # JSON

from nvml.standin import standin_environment


def answer(program: str, environment: dict[str, str]) -> Any:
    """What a program prints, as JSON."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps([program, environment]) + "\n")
    server.stdin.flush()
    said, error = json.loads(server.stdout.readline())
    assert not error, error
    return json.loads(said)


@cache
def _server() -> subprocess.Popen[str]:
    makers, tests, repository, *_ = Path(__file__).parents
    server = subprocess.Popen(
        [sys.executable, __file__],
        env={
            **os.environ,
            **standin_environment(""),
            "PYTHONPATH": os.pathsep.join(map(str, (repository, tests, makers))),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(server.kill)
    return server


def _serve() -> None:
    import pynvml  # noqa: F401 - imported once for all forks, which open the library

    import gputui.machine.describing
    import gputui.model.journal
    import gputui.sources.nvml  # noqa: F401

    for line in sys.stdin:
        program, environment = json.loads(line)
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            if status:
                print(json.dumps(["", f"it ended with {status}"]), flush=True)
            continue
        os.environ.update(environment)
        said, error = io.StringIO(), ""
        with contextlib.redirect_stdout(said):
            try:
                exec(program, {"__name__": "__main__"})
            except BaseException:
                error = traceback.format_exc()
        print(json.dumps([said.getvalue(), error]), flush=True)
        os._exit(0)  # a thread may hang in the library


if __name__ == "__main__":
    _serve()
