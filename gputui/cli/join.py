"""`gputui join`: lend ranks to a run on another box."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from gputui.errors import EXIT_INTERRUPTED, EXIT_USAGE, GputuiError, MachineLacks
from gputui.model.absent import Missing
from gputui.recording.deployment import copy_worker
from gputui.services.profiles.interpreters import choose_interpreter
from gputui.worker.procs.multihost import address_of


@click.command()
@click.argument("rendezvous", metavar="ADDRESS:PORT")
@click.option("--python", metavar="EXE", help="Interpreter with the same torch version as the other box.")
def command(rendezvous: str, python: str | None) -> int:
    """Lend this box to a run of several hosts that another box measures, until Ctrl-C.

    ADDRESS:PORT is what that run is given: `gputui run hosts --rendezvous ADDRESS:PORT`. Its results are
    there; nothing is stored here.
    """
    try:
        socket.getaddrinfo(*address_of(rendezvous))
    except (ValueError, OSError) as error:
        why = f"no such host ({error})" if isinstance(error, OSError) else "is not ADDRESS:PORT"
        hint = "the one of `gputui run --rendezvous` on the other box, such as 10.0.0.1:29400"
        raise GputuiError(f"{rendezvous}: {why}", hint) from None
    chosen = choose_interpreter(python)
    for found in chosen.passed_over:
        click.echo(f"passed over: {found}", err=True)
    version = chosen.interpreter.runtime.torch_version
    if isinstance(version, Missing):
        raise MachineLacks(
            f"{chosen.interpreter.executable}: {version.reason}",
            "name an interpreter that has torch: --python EXE",
        )
    with tempfile.TemporaryDirectory(prefix="gputui-") as folder:
        start = copy_worker(Path(folder))
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: sys.exit(128 + number))
        process = subprocess.Popen(
            [chosen.interpreter.executable, str(start), "join", rendezvous], stdin=subprocess.PIPE
        )
        try:
            status = process.wait()
        except KeyboardInterrupt:  # the terminal sends it to the process too
            process.wait()
            return EXIT_INTERRUPTED
        finally:
            process.terminate()
            process.wait()
    return EXIT_USAGE if status == 1 else status
