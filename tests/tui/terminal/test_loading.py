"""Loading the screens leaves the interpreter in the state other code expects."""

from __future__ import annotations

import subprocess
import sys

_LOADED_AND_USED = """
import gc, sys
from gputui.tui.terminal.splash import load_asyncio, without_collecting
load_asyncio()
print("_ssl" in sys.modules, "ssl" in sys.modules)
with without_collecting():
    print(gc.isenabled())
    import gputui.tui.app
print(gc.isenabled(), gc.get_freeze_count() > 10_000, "_ssl" in sys.modules)
import asyncio, ssl
print(ssl.create_default_context().verify_mode is ssl.CERT_REQUIRED)
async def echo(reader, writer):
    writer.write(await reader.readline())
    writer.close()
async def done():
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"hello\\n")
    print(await reader.read())
    server.close()
asyncio.run(done())
"""


def test_asyncio_without_tls_works_and_tls_itself_can_still_be_imported() -> None:
    done = subprocess.run([sys.executable, "-c", _LOADED_AND_USED], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "False False",
        "False",
        "True True False",
        "True",
        "b'hello\\n'",
    ], done.stderr


def test_an_asyncio_that_is_loaded_already_stays_as_it_is() -> None:
    code = (
        "import asyncio, sys\nfrom gputui.tui.terminal.splash import load_asyncio\n"
        "before = sys.modules['ssl']\n"
        "load_asyncio()\nprint(sys.modules['ssl'] is before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


def test_the_monitor_and_its_look_for_runs_load_neither_openssl_nor_what_reads_files() -> None:
    code = (
        "import sys\nfrom gputui.tui.terminal.splash import load_asyncio\nload_asyncio()\n"
        "import gputui.tui.app, gputui.tui.monitor.model\n"
        "import gputui.recording.collector, gputui.services.runs.process\n"
        "print({'_ssl', '_hashlib', 'msgspec', 'duckdb', 'numpy', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr
