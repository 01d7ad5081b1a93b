"""A single reading of everything on this machine, within half a second, and such readings for Prometheus.

In: sources. Out: a frozen sample; or OpenMetrics of gauges alone, which older readers of text know too, at an
address or in a file of node_exporter.
"""

from __future__ import annotations

import getpass
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gputui.errors import GputuiError, clean_text
from gputui.metrics import METRICS, number
from gputui.model.telemetry import HOST, DeviceSample, LiveSample
from gputui.recording.collector import FIRST_READING, OPENING, Collector, live_collector
from gputui.services.support.output_files import write_output

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer

_NO_ROUNDS_S = 1e6
"""An interval so long that only one round is read."""
_ROUND_S = 1.0
"""Less than the age from which a reading is reported as old."""
_APART_S = 0.2
"""Between the two readings that rates need; NVIDIA asks for at least 100 ms."""
_OPENS_WITHIN_S = 20.0
"""Without persistence mode the driver wakes its GPUs one by one, a second each."""
_READS_WITHIN_S = 5.0


def take_snapshot(*, processes: bool) -> LiveSample:
    """Everything, read twice within half a second: rates need two readings.

    What takes too long is left out with the reason: 20 s to open a driver, 5 s to read a device.
    """
    # While one device hangs the others are read repeatedly: none should look as old as the wait.
    with readings(processes=processes, repeats_s=_ROUND_S) as read:
        return read()


@contextmanager
def readings(*, processes: bool, repeats_s: float = _NO_ROUNDS_S) -> Iterator[Callable[[], LiveSample]]:
    """Open everything, and read it anew with each call; rates are those since the last one.

    A call waits up to 5 s for a device that hangs, and meanwhile repeats the others every `repeats_s`.
    """
    said = threading.Event()
    collector = live_collector(_NO_ROUNDS_S, said.set)
    collector.want_processes(processes)
    collector.start()
    try:
        _wait(collector, said, _OPENS_WITHIN_S, _is_read)

        def read() -> LiveSample:
            time.sleep(_APART_S)
            begun = {_key(device): device.t_ns for device in _devices(collector.latest())}
            collector.set_interval(repeats_s)

            def is_read_again(sample: LiveSample) -> bool:
                return all(
                    device.problem is not None or device.t_ns > begun.get(_key(device), 0)
                    for device in _devices(sample)
                )

            return _wait(collector, said, _READS_WITHIN_S, is_read_again)

        yield read
    finally:
        collector.close()


def _wait(
    collector: Collector, said: threading.Event, longest_s: float, is_enough: Callable[[LiveSample], bool]
) -> LiveSample:
    deadline_s = time.monotonic() + longest_s
    while not is_enough(sample := collector.latest()):
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            break
        said.clear()
        # A device whose call hangs sends nothing; that it hangs shows after a while.
        said.wait(min(left_s, 1.0))
    return sample


def _is_read(sample: LiveSample) -> bool:
    is_opening = any(why.reason.startswith(OPENING.reason) for why in sample.absent.values())
    return not is_opening and not any(device.problem == FIRST_READING for device in _devices(sample))


def _devices(sample: LiveSample) -> tuple[DeviceSample, ...]:
    return (sample.host, *sample.gpus)


def _key(device: DeviceSample) -> tuple[str, int]:
    return device.source, device.device


def current_user() -> str:
    """Empty for a user id without a name, as in containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


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
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer  # a reading alone does without

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
