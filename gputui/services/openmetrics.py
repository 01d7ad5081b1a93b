"""Live values for Prometheus: at an address that it asks, or in a file of node_exporter.

In: readings of this box. Out: OpenMetrics of gauges alone, which older readers of text know too.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from gputui.errors import GputuiError
from gputui.metrics import METRICS, number
from gputui.model.telemetry import HOST, DeviceSample, LiveSample
from gputui.services.snapshot import readings
from gputui.services.support.output_files import write_output
from gputui.store.text import clean_text

EVERY_S = 15.0
"""Between two writings of a file: as often as Prometheus asks."""
_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_TITLES = {f"gputui_{metric.scope}_{metric.key}": metric.title for metric in METRICS}


def exposition(sample: LiveSample) -> str:
    """Every number of a reading under its key in JSON, texts as labels of `_info`; processes are left out.

    A device that cannot be read has `_up` 0 and nothing else.
    """
    families: dict[str, list[str]] = {}
    for device in (sample.host, *sample.gpus):
        for name, line in _samples(device):
            families.setdefault(name, []).append(line)
    lines = []
    for name, of_name in families.items():
        lines += [f"# HELP {name} {_TITLES[name]}"] if name in _TITLES else []
        lines += [f"# TYPE {name} gauge", *of_name]
    return "\n".join((*lines, "# EOF\n"))


def _samples(device: DeviceSample) -> Iterator[tuple[str, str]]:
    """Names of families, each with a line of it."""
    scope = "host" if device.device == HOST else "gpu"
    labels = {} if device.device == HOST else {"gpu": device.label, "source": device.source}
    values = {} if device.problem else device.values
    # A label must not be another with each reading.
    texts = {key: text for key, text in values.items() if isinstance(text, str) and key != "cpu_core_pct"}
    found: list[tuple[str, dict[str, str], float]] = [("up", labels, not device.problem)]
    found += [("info", {**labels, **texts}, 1)] if texts else []
    found += [(key, labels, value) for key in values if (value := number(values, key)) is not None]
    for key, own, value in found:
        name = f"gputui_{scope}_{key}"
        # JSON escapes quotes and backslashes as the format does
        quoted = {label: json.dumps(clean_text(text), ensure_ascii=False) for label, text in own.items()}
        written = ",".join(map("=".join, quoted.items()))
        yield name, f"{name}{{{written}}} {value + 0}"


def export(address: tuple[str, int] | None, file: Path | None, say: Callable[[str], None]) -> None:
    """Answer at an address, write a file every EVERY_S, or both; Ctrl-C or SIGTERM ends it and the file.

    Raises GputuiError if the port is taken, NotStored if the file cannot be written.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with readings(processes=False) as read:
            text = partial(_text, read, threading.Lock())
            if address is not None:
                server = _server_at(address, text)
                threading.Thread(target=server.serve_forever, daemon=True).start()
                say("http://{}:{}/metrics".format(*server.server_address))
            while True:
                if file is not None:
                    write_output(file, text())
                time.sleep(EVERY_S)
    except KeyboardInterrupt:
        return
    finally:
        if file is not None:
            with suppress(OSError):
                file.unlink()


def _text(read: Callable[[], LiveSample], lock: threading.Lock) -> str:
    """One new reading for each request, one after the other."""
    with lock:
        return exposition(read())


def _server_at(address: tuple[str, int], text: Callable[[], str]) -> ThreadingHTTPServer:
    class Scrape(BaseHTTPRequestHandler):
        timeout = 10.0

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404, "metrics are at /metrics")
                return
            self.send_response(200)
            self.send_header("Content-Type", _TYPE)
            self.end_headers()
            self.wfile.write(text().encode())

        def log_message(self, format: str, *words: object) -> None:
            """Not a line for each time that it is asked."""

    try:
        return ThreadingHTTPServer(address, Scrape)
    except OSError as error:
        raise GputuiError(
            f"--openmetrics: cannot listen at {address[0]} port {address[1]} ({error.strerror})",
            "name another port, or an address of this box",
        ) from error
