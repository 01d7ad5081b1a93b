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


def test_the_monitor_loads_no_other_screen_nothing_that_reads_files_and_no_openssl() -> None:
    code = (
        "import sys\nfrom gputui.tui.terminal.splash import load_asyncio\nload_asyncio()\n"
        "import gputui.tui.app, gputui.tui.monitor.model\n"
        "import gputui.recording.collector, gputui.services.runs.process\n"
        "from gputui.tui.shell.registry import screens_line\nscreens_line('monitor')\n"
        "print(*sys.modules)\n"
        "import gputui.tui.screens.run\nprint({'torch', 'duckdb', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, of_run_screen = done.stdout.splitlines()
    loaded = set(names.split())
    assert of_run_screen == "set()"
    heavy = {"_ssl", "_hashlib", "msgspec", "duckdb", "numpy", "pandas", "torch"}
    assert not loaded & {*heavy, "textual.widgets._data_table"}
    assert "gputui.tui.monitor.screen" in loaded
    assert not any(name.startswith("gputui.tui.screens") for name in loaded)
