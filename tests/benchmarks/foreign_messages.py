"""Mutated messages of agents, LLM servers and their metrics: how many ended in an error that nobody foresaw.

`python tests/benchmarks/foreign_messages.py [--count 2000] [--seed 1]`. Each agent's message reaches the view
of two hosts over a real link, and the other host's line must stay as it was. Each message of a server comes
over a real connection. Ends with 1 if anything was not refused in words.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import socket
import sys
import tempfile
import threading
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any  # JSON

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "makers"))
sys.path.insert(0, str(Path(__file__).parents[1] / "services" / "hosts"))

from monitor_samples import sample
from mutations import mutated
from probed_hosts import probed

from gputui.machine.describing import describe_machine
from gputui.model.absent import to_plain
from gputui.recording.collector import plain_sample
from gputui.services.hosts.box import Box
from gputui.services.hosts.host import Host
from gputui.services.hosts.link import HostFailed
from gputui.services.hosts.live import HostFeed, HostSample
from gputui.services.results.labels import machine_words
from gputui.tui.hosts import HostsModel
from gputui.tui.monitor.model import MonitorModel
from gputui.tui.monitor.settings import MonitorSettings
from gputui.worker.serving import PlannedLoad
from gputui.worker.serving.request import address_of
from gputui.worker.serving.server import (
    ServerError,
    accepted_load,
    during,
    find_server,
    metrics_in,
    read_metrics,
    share_of,
)

STRANGER = """
for last; do :; done
nonce=${last##*gputui }
nonce=${nonce%% *}
printf 'gputui %s {"state": "ready"}\\n' "$nonce"
read -r request
cat "$1"
"""
"""A host that answers its first request with the bytes of a file, and leaves."""


class Faults:
    """What was not refused in words."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()

    def during(self, what: str, number: int, do: Callable[[], object]) -> None:
        try:
            do()
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            kind = f"{what}: {type(error).__name__} in {Path(last.filename).name}:{last.lineno}"
            if kind not in self.kinds:
                print(f"  message {number}: {kind}: {str(error)[:100]}", file=sys.stderr)
            self.kinds[kind] += 1

    @property
    def count(self) -> int:
        return sum(self.kinds.values())


def stranger(place: Path, data: bytes) -> Host:
    (place / "stranger.sh").write_text(STRANGER)
    (place / "answer").write_bytes(data)
    return Host("evil", ("sh", str(place / "stranger.sh"), str(place / "answer")))


def agents(count: int, seed: int, place: Path, faults: Faults) -> str:
    """Live samples, one of which is changed: what the live view shows of two hosts."""
    chance = random.Random(seed)
    samples = [sample(gpus=8, second=float(second)) for second in range(3)]
    good = HostSample(Host("good", ()), samples[0], "", samples[0].t_ns, "", "", 0)
    seen: Counter[str] = Counter()
    slowest_s = 0.0
    for number in range(count):
        messages = [plain_sample(one, "gemm") for one in samples]
        at = chance.choice((0, 0, 1, 2))
        whole = [json.dumps(one).encode() for one in messages[:at]] + [mutated(messages[at], chance)]
        packer = zlib.compressobj(1)
        packed = packer.compress(b"\n".join(whole) + b"\n") + packer.flush(zlib.Z_SYNC_FLUSH)
        feed = HostFeed(stranger(place, b'{"bytes": %d}\n' % len(packed) + packed), 1.0)
        begun_s = time.monotonic()

        def show(feed: HostFeed = feed) -> None:
            now_ns = time.monotonic_ns()
            hosts = HostsModel()
            hosts.take([feed.seen(), good])
            lines = ["".join(span.text for span in line) for line in hosts.lines(120, 20, now_ns)]
            assert any(line.lstrip("▸ ").startswith("good") and "GPU" in line for line in lines), lines
            hosts.press("sort")
            hosts.lines(80, 24, now_ns)
            for height in (24, 60):
                model = MonitorModel(MonitorSettings(), title="evil", user="ann")
                model.add(feed.latest())
                model.lines(120, height, now_ns)

        feed.on_sample = partial(faults.during, "screen", number, show)

        def hear(feed: HostFeed = feed) -> None:
            try:
                feed._hear()
            except HostFailed as error:
                feed._fail(error.message, error.hint)

        faults.during("link", number, hear)
        slowest_s = max(slowest_s, time.monotonic() - begun_s)
        seen[feed.seen().problem.split("(")[0].strip() or "shown"] += 1
    return f"slowest {slowest_s:.1f} s; {dict(seen.most_common(6))}"


def boxes(count: int, seed: int, place: Path, faults: Faults) -> str:
    """What a host says of itself before a bakeoff."""
    from strangers import described

    chance = random.Random(seed)
    machine = to_plain(describe_machine(hash_key=bytes(32)))
    seen: Counter[str] = Counter()
    for number in range(count):
        data = mutated(described(machine=machine), chance).replace(b"\n", b" ") + b"\n"

        def ask(data: bytes = data) -> None:
            (found,) = probed([stranger(place, data)])
            if isinstance(found, Box):
                "".join((*found.cautions(), machine_words(found.machine), found.runtime)).encode()
            else:
                assert "bug" not in found.message, found.__context__
            seen["taken" if isinstance(found, Box) else found.message.split("(")[0]] += 1

        faults.during("box", number, ask)
    return str(dict(seen.most_common(4)))


@contextlib.contextmanager
def answering(answer: Callable[[bytes], bytes]) -> Iterator[str]:
    """A server that answers each connection with bytes and closes it; its URL."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = listener.accept()[0]
                with connection, contextlib.suppress(OSError):
                    connection.sendall(answer(connection.recv(1 << 16)))
                    connection.shutdown(socket.SHUT_WR)
                    connection.settimeout(1.0)
                    while connection.recv(1 << 16):
                        pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


MODELS = {"object": "list", "data": [{"id": "m", "owned_by": "vllm", "max_model_len": 4096}]}
VERSION = {"version": "0.11.0"}
PROPERTIES = {"total_slots": 4, "default_generation_settings": {"n_ctx": 4096}, "build_info": "b1"}
EVENTS: list[dict[str, Any]] = [
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "to "}}]},
    {"choices": [{"delta": {"tool_calls": [{"function": {"name": "x"}}]}, "finish_reason": "length"}]},
    {
        "choices": [],
        "usage": {
            "prompt_tokens": 4,
            "completion_tokens": 2,
            "prompt_tokens_details": {"cached_tokens": 1},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
        "timings": {"prompt_n": 4, "cache_n": 0, "predicted_n": 2},
    },
]
METRICS = """# HELP vllm:num_requests_running Number.
vllm:num_requests_running{model_name="m"} 2.0
vllm:num_requests_waiting{model_name="m"} 1.0
vllm:kv_cache_usage_perc{model_name="m"} 0.25
vllm:prefix_cache_hits_total{model_name="m"} 1200.0
vllm:prefix_cache_queries_total{model_name="m"} 2400.0
vllm:num_preemptions_total{model_name="m"} 0.0
"""
_HEADS = (
    b"HTTP/1.1 200 OK\r\nContent-Length: -5",
    b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000,
    "HTTP/1.1 200 OK\r\nContent-Length: ²³".encode("latin-1"),
    "HTTP/1.1 ²00 OK".encode("latin-1"),
    b"HTTP/1.1 -1 OK",
    b"HTTP/9.9 200 OK",
    b"HTTP/1.1 103 Early Hints",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked",
    b"HTTP/1.1 204 No Content",
    b"\x16\x03\x01\x02\x00",
    b"",
)
_SIZES = (b"-5", b"+5", b"0x5", b"ffffffffffffffff", b"5_0", b"g", b"", b"7fffffff", b"5 ;x=" + b"y" * 5000)


def http(body: bytes, kind: bytes, chance: random.Random) -> bytes:
    """An answer, framed in one of the ways in which servers do, or wrongly."""
    head = b"HTTP/1.1 %d OK\r\nContent-Type: %b\r\n" % (
        chance.choice((200, 200, 200, 200, 400, 429, 500)),
        kind,
    )
    how = chance.random()
    if how < 0.1:
        return chance.choice(_HEADS) + b"\r\nContent-Type: " + kind + b"\r\n\r\n" + body
    if how < 0.4:
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    if how < 0.6:
        return head + b"\r\n" + body
    size = b"%x" % len(body) if how < 0.9 else chance.choice(_SIZES)
    framed = size + b"\r\n" + body + b"\r\n0\r\n\r\n"
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + framed


def servers(count: int, seed: int, place: Path, faults: Faults) -> str:
    """What an LLM server says of itself, and how it answers."""
    chance = random.Random(seed)
    seen: Counter[str] = Counter()
    which = [""]

    def answer(request: bytes) -> bytes:
        path = request.partition(b" ")[2].partition(b" ")[0]
        plain: Any = {b"/version": VERSION, b"/props": PROPERTIES, b"/v1/models": MODELS}.get(path, {})
        body = json.dumps(plain).encode()
        kind = b"application/json"
        if path.endswith(b"completions"):
            whole = chance.randrange(len(EVENTS)) if which[0] == "answer" else -1
            events = [
                mutated(one, chance) if number == whole else json.dumps(one).encode()
                for number, one in enumerate(EVENTS)
            ]
            body = b"".join(b"data: " + one + b"\n\n" for one in (*events, b"[DONE]"))
            kind = b"text/event-stream"
        elif which[0] == "identity":
            body = mutated(plain, chance)
        if which[0] == "frames":
            return http(body, kind, chance)
        return b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (kind, len(body)) + body

    slowest_s = 0.0
    with answering(answer) as url:
        address = address_of(url)
        for number in range(count):
            which[0] = ("identity", "answer", "frames")[number % 3]
            begun_s = time.monotonic()

            def ask() -> None:
                try:
                    find_server(address, "", time.monotonic() + 20)
                    accepted_load(PlannedLoad(url, "chat", "m", 2), "", b"hello", time.monotonic() + 20)
                except ServerError as error:
                    seen[error.message.replace(url, "")[:30]] += 1
                else:
                    seen["measurable"] += 1

            faults.during("server", number, ask)
            slowest_s = max(slowest_s, time.monotonic() - begun_s)
    return f"slowest {slowest_s:.1f} s; {dict(seen.most_common(4))}"


def metrics(count: int, seed: int, place: Path, faults: Faults) -> str:
    """The text of /metrics."""
    chance = random.Random(seed)
    before = metrics_in(METRICS)
    seen: Counter[str] = Counter()
    body = [b""]
    with answering(lambda request: http(body[0], b"text/plain", chance)) as url:
        address = address_of(url)
        for number in range(count):
            body[0] = mutated(METRICS.split("\n"), chance).replace(b'", "', b"\n").replace(b'\\"', b'"')
            if chance.random() < 0.5:
                lines = METRICS.split("\n")
                at = chance.randrange(1, 7)
                lines[at] = f"{lines[at].rpartition(' ')[0]} {mutated([1.0], chance).decode('latin-1')[1:-1]}"
                body[0] = "\n".join(lines).encode("latin-1", "replace")

            def read() -> None:
                found = read_metrics(address, "")
                seen["numbers" if found else "nothing"] += 1
                gained = during(before, found)
                json.dumps(gained, allow_nan=False)
                share = share_of(gained, "prefix_hit_tokens", "prefix_tokens")
                assert share is None or 0 <= share <= 1

            faults.during("metrics", number, read)
    return str(dict(seen))


SUBJECTS = {"agents": agents, "boxes": boxes, "servers": servers, "metrics": metrics}


def tried(subject: str, count: int, seed: int, place: Path) -> tuple[Faults, str]:
    """So many mutated messages of one subject."""
    faults = Faults()
    said = SUBJECTS[subject](count, seed, place, faults)
    return faults, said


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=SUBJECTS)
    words = parser.parse_args()
    worst = 0
    for subject in SUBJECTS if words.only is None else (words.only,):
        with tempfile.TemporaryDirectory() as place:
            begun_s = time.monotonic()
            faults, said = tried(subject, words.count, words.seed, Path(place))
            took_s = time.monotonic() - begun_s
            print(f"{subject}: {words.count} messages in {took_s:.0f} s, {faults.count} not refused; {said}")
            worst = max(worst, faults.count)
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
