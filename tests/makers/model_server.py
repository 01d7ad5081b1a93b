"""An OpenAI-compatible server whose every answer is known beforehand, to the millisecond.

It has `slots`, serves first come first served, and answers T tokens in `prefill_s + (T - 1) * decode_s`.
Tokens leave at absolute times, so that being late once does not add up. The rest is what real servers do.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import ssl
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.request import urlopen

Message = dict[str, Any]  # JSON, as it comes
_WORDS = ("to ", "är ", "漢字", "🙂 ", "end. ")  # of one to four bytes a character
_MISSING_MODEL = "The model `{}` does not exist."


@dataclass(frozen=True)
class Behaviour:
    """What a server does; the defaults are those of a well-behaved vLLM."""

    slots: int = 8
    prefill_s: float = 0.0
    decode_s: float = 0.0
    engine: str = "vllm"
    """vllm, llama.cpp, sglang, ollama, tgi, or plain: which addresses beside /v1 it answers."""
    model: str = "made-up-1b"
    context_tokens: int = 32768

    role_chunk: str = "first_token"
    """When a chat stream sends its chunk that has only a role: first_token, accepted, or never."""
    usage: str = "no_choices"
    """no_choices, null_choices, absent_choices: after the last chunk; last_choice; every_chunk; missing."""
    reasoning_field: str = ""
    """reasoning_content or reasoning: where the first `reasoning_tokens` go. Without it they are not sent."""
    reasoning_tokens: int = 0
    tokens_per_event: int = 1
    natural_length: int | None = None
    """After how many tokens the model would end, unless it honours ignore_eos."""
    honours_ignore_eos: bool = True
    caches_prompts: bool = False
    """Whether words that an earlier prompt began with cost no prefill. `usage` has their number."""

    streams: bool = True
    newline: str = "\n"
    ping: bool = False
    """Whether a comment line goes before every event."""
    pieces_of: int = 0
    """Bytes per write: cuts characters and events. With 0, an event is one write."""
    events_per_write: int = 1
    framing: str = "chunked"
    """chunked, or until_close: the answer ends with the connection."""
    closing: str = "never"
    """never, announced (`Connection: close`), or silent: after a stream, although it said Keep-Alive."""
    idle_close_s: float | None = None

    fault: str = ""
    """error_event, error_data, cut, no_done, hangs; or a status: 400, 429, 500, 503."""
    fault_after: int = 0
    """How many answers are good before the first fault."""
    fault_every: int = 1
    retry_after_s: float | None = None
    refuses: tuple[str, ...] = ()
    """Fields of a request that it answers with 400."""
    api_key: str = ""
    takes_any_model: bool = False
    """Whether it answers to models that it does not list."""
    redirects_to: str = ""
    """Where every request is sent instead, with 308."""
    is_loading: bool = False
    """Whether it answers everything with 503."""


@dataclass
class Served:
    """One answer. Times are seconds of the monotonic clock, which all processes of a machine share."""

    arrived_s: float
    path: str
    prompt: str
    prompt_tokens: int
    cached_tokens: int
    tokens: int
    request: Message
    started_s: float | None = None
    sent_s: list[float] = field(default_factory=list)
    """When each event with output was written."""
    ended: str = ""
    """done, or how it went wrong."""


class _Queue:
    """Slots, and who waits for one. A service begins when the one before it was due to end."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._waiting: deque[Callable[[float], None]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def enter(self, now_s: float, begin: Callable[[float], None]) -> None:
        if self._free:
            self._free -= 1
            begin(now_s)
        else:
            self._waiting.append(begin)

    def abandon(self, begin: Callable[[float], None]) -> None:
        self._waiting.remove(begin)

    def leave(self, at_s: float) -> None:
        if self._waiting:
            self._waiting.popleft()(at_s)
        else:
            self._free += 1


class ModelServer:
    """The server, on a port that is free. It runs in a loop that others start; see `serving`."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.served: list[Served] = []
        self.open: set[asyncio.Transport] = set()
        self.connections = 0
        """How many there were, open or not."""
        self.running = 0
        self.queue = _Queue(behaviour.slots)
        self.port = 0

    async def listen(self, context: ssl.SSLContext | None = None) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: _Connection(self), "127.0.0.1", 0, ssl=context, backlog=1024
        )
        self.port = server.sockets[0].getsockname()[1]
        return server

    def cached_tokens(self, prompt: str) -> int:
        words = prompt.split()
        return max((_common(words, earlier.prompt.split()) for earlier in self.served), default=0)

    def metrics(self) -> str:
        """Counters since the start, under the names that this engine gives them."""
        prompts = sum(served.prompt_tokens for served in self.served)
        cached = sum(served.cached_tokens for served in self.served)
        written = sum(served.tokens for served in self.served if served.ended == "done")
        names = {
            "llama.cpp": {
                "llamacpp:prompt_tokens_total": prompts - cached,
                "llamacpp:prompt_tokens_cached_total": cached,
                "llamacpp:tokens_predicted_total": written,
                "llamacpp:requests_processing": self.running,
                "llamacpp:requests_deferred": self.queue.waiting,
            },
            "sglang": {
                "sglang:prompt_tokens_total": prompts,
                "sglang:cached_tokens_total": cached,
                "sglang:generation_tokens_total": written,
                "sglang:num_running_reqs": self.running,
                "sglang:num_queue_reqs": self.queue.waiting,
            },
        }.get(
            self.behaviour.engine,
            {
                "vllm:prefix_cache_queries_total": prompts,
                "vllm:prefix_cache_hits_total": cached,
                "vllm:generation_tokens_total": written,
                "vllm:num_requests_running": self.running,
                "vllm:num_requests_waiting": self.queue.waiting,
            },
        )
        label = f'{{model_name="{self.behaviour.model}"}}' if self.behaviour.engine != "llama.cpp" else ""
        return "".join(f"# TYPE {name} counter\n{name}{label} {value}.0\n" for name, value in names.items())


def _common(words: list[str], earlier: list[str]) -> int:
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(words, earlier, strict=False))
    return sum(1 for _ in same)


class _Connection(asyncio.Protocol):
    """One connection: requests come one after the other, and so do answers."""

    transport: asyncio.Transport

    def __init__(self, server: ModelServer) -> None:
        self.server = server
        self.does = server.behaviour
        self.loop = asyncio.get_running_loop()
        self._read = b""
        self._unsent: deque[bytes | None] = deque()  # None: close
        self._answer: _Answer | None = None
        self._idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.server.open.add(transport)
        self.server.connections += 1
        self.wait_for_a_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.open.discard(self.transport)
        if self._idle:
            self._idle.cancel()
        if self._answer:
            self._answer.give_up()

    def data_received(self, data: bytes) -> None:
        if self._idle:
            self._idle.cancel()
        self._read += data
        head, found, rest = self._read.partition(b"\r\n\r\n")
        if not found:
            return
        request_line, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", 0))
        if len(rest) < length:
            return
        self._read = rest[length:]
        method, target, _ = request_line.split(" ")
        self._route(method, target.partition("?")[0], headers, rest[:length])

    def _route(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        does = self.does
        if does.redirects_to:
            self.reply(308, {}, {"Location": does.redirects_to + path})
        elif does.is_loading:
            self.reply(503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}})
        elif does.api_key and headers.get("authorization") != f"Bearer {does.api_key}":
            message = "Incorrect API key provided."
            self.reply(401, {"error": {"message": message, "type": "invalid_request_error"}})
        elif path in ("/v1/chat/completions", "/v1/completions"):
            if method == "POST":
                self._generate(path, json.loads(body))
            else:
                self.reply(405, {"detail": "Method Not Allowed"})
        elif path == "/served":
            self.reply(200, {"served": [asdict(each) for each in self.server.served]})
        elif path == "/metrics" and does.engine in ("vllm", "llama.cpp", "sglang"):
            self.send_head(200, "text/plain", self.server.metrics().encode())
            self.wait_for_a_request()
        elif (found := _about(does).get(path)) is not None:
            self.reply(200, found)
        else:
            self.reply(404, {"error": {"message": "Not Found", "type": "not_found_error"}})

    def _generate(self, path: str, request: Message) -> None:
        does, server = self.does, self.server
        if request.get("model") not in (None, does.model) and not does.takes_any_model:
            missing = _MISSING_MODEL.format(request["model"])
            self.reply(404, {"error": {"message": missing, "type": "NotFoundError", "code": 404}})
            return
        for name in does.refuses:
            if name in request:
                message = f"Unrecognized request argument supplied: {name}"
                self.reply(400, {"error": {"message": message, "type": "invalid_request_error"}})
                return
        prompt = _prompt_of(request)
        asked = request.get("max_tokens") or request.get("max_completion_tokens") or 16
        prompt_tokens = len(prompt.split())
        tokens = asked
        if does.natural_length and not (does.honours_ignore_eos and request.get("ignore_eos")):
            tokens = min(asked, does.natural_length)
        cached = server.cached_tokens(prompt) if does.caches_prompts else 0
        served = Served(
            self.loop.time(), path, prompt, prompt_tokens, min(cached, prompt_tokens - 1), tokens, request
        )
        server.served.append(served)
        count = len(server.served) - does.fault_after
        fault = does.fault if count > 0 and count % does.fault_every == 0 else ""
        if prompt_tokens + asked > does.context_tokens:
            served.ended = "refused"
            self.reply(400, _too_long(prompt_tokens, does.context_tokens))
        elif fault.isdigit():
            served.ended = "refused"
            headers = {"Retry-After": f"{does.retry_after_s:g}"} if does.retry_after_s is not None else {}
            self.reply(int(fault), {"error": {"message": HTTPStatus(int(fault)).phrase}}, headers)
        else:
            self._answer = _Answer(self, served, fault)

    def reply(self, status: int, message: Message, headers: dict[str, str] | None = None) -> None:
        self.send_head(status, "application/json", json.dumps(message).encode(), headers)
        self.wait_for_a_request()

    def send_head(
        self, status: int, kind: str, body: bytes | None, more: dict[str, str] | None = None
    ) -> None:
        """Send what comes before an answer, and with `body` all of it."""
        headers = {"Content-Type": kind, **(more or {})}
        if body is not None:
            headers["Content-Length"] = str(len(body))
        elif self.does.framing == "chunked":
            headers["Transfer-Encoding"] = "chunked"
        if self.does.closing == "announced" or (body is None and self.does.framing == "until_close"):
            headers["Connection"] = "close"
        else:
            headers["Keep-Alive"] = "timeout=5, max=100"
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{k}: {v}" for k, v in headers.items())]
        self.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b""))

    def write(self, data: bytes) -> None:
        size = self.does.pieces_of or len(data)
        self._later(*(data[start : start + size] for start in range(0, len(data), size)))

    def close(self) -> None:
        self._later(None)

    def _later(self, *pieces: bytes | None) -> None:
        is_sending = bool(self._unsent)
        self._unsent += pieces
        if not is_sending:
            self._send_a_piece()

    def _send_a_piece(self) -> None:
        """Send what is first in line, and the next piece a moment later: the client reads them one by one."""
        while self._unsent:
            piece = self._unsent[0]
            if piece is None:
                self.transport.close()
            else:
                self.transport.write(piece)
            if self.does.pieces_of and len(self._unsent) > 1:
                self.loop.call_later(0.0005, self._next_piece)
                return
            self._unsent.popleft()

    def _next_piece(self) -> None:
        self._unsent.popleft()
        self._send_a_piece()

    def answered(self, streamed: bool) -> None:
        """The answer is whole: close, or wait for the next request."""
        self._answer = None
        closes = self.does.closing == "announced" or (
            streamed and (self.does.closing == "silent" or self.does.framing == "until_close")
        )
        if closes:
            self.close()
        else:
            self.wait_for_a_request()

    def wait_for_a_request(self) -> None:
        if self.does.idle_close_s is not None:
            self._idle = self.loop.call_later(self.does.idle_close_s, self.close)


class _Answer:
    """One answer, from the queue to its last byte."""

    def __init__(self, connection: _Connection, served: Served, fault: str) -> None:
        self.connection = connection
        self.does = connection.does
        self.served = served
        self.fault = fault
        self.chat = served.path.endswith("chat/completions")
        self.streamed = bool(served.request.get("stream")) and self.does.streams
        options = served.request.get("stream_options") or {}
        self._usage_asked = bool(options.get("include_usage"))
        self._usage_everywhere = self.does.usage == "every_chunk" and options.get("continuous_usage_stats")
        self._timer: asyncio.TimerHandle | None = None
        self._unwritten: list[bytes] = []
        self._is_open = False
        if self.streamed and self.chat and self.does.role_chunk == "accepted":
            self._open()
            self._event(self._chunk({"role": "assistant", "content": ""}))
            self._write()
        self._queue_begin = self._begin
        connection.server.queue.enter(served.arrived_s, self._queue_begin)

    # The schedule

    def _begin(self, at_s: float) -> None:
        self.served.started_s = at_s
        self.connection.server.running += 1
        if self.fault == "hangs":
            return
        new = self.served.prompt_tokens - self.served.cached_tokens
        share = new / self.served.prompt_tokens if self.served.prompt_tokens else 1.0
        self._first_s = at_s + self.does.prefill_s * share
        hidden = 0 if self.does.reasoning_field else self.does.reasoning_tokens
        counts = range(hidden + self.does.tokens_per_event, self.served.tokens, self.does.tokens_per_event)
        self._ends = [*counts, self.served.tokens]  # tokens so far, after each event
        self._next(0)

    def _next(self, event: int) -> None:
        due_s = self._first_s + (self._ends[event] - 1) * self.does.decode_s
        self._timer = self.connection.loop.call_at(due_s, self._send, event, due_s)

    def _send(self, event: int, due_s: float) -> None:
        is_last = event == len(self._ends) - 1
        if not self.streamed:
            if is_last:
                self._end(due_s)
                self._reply_whole()
            else:
                self._next(event + 1)
            return
        if not self._is_open:
            self._open()
            if self.chat and self.does.role_chunk == "first_token":
                self._event(self._chunk({"role": "assistant", "content": None}))
        if self.fault in ("cut", "error_event", "error_data") and event >= len(self._ends) // 2:
            self._end(due_s, self.fault)
            self._break()
            return
        before = self._ends[event - 1] if event else 0
        self._event(self._chunk(self._delta(before, self._ends[event]), tokens=self._ends[event]))
        self.served.sent_s.append(self.connection.loop.time())
        if is_last:
            self._end(due_s)
            self._finish()
        else:
            if (event + 1) % self.does.events_per_write == 0:
                self._write()
            self._next(event + 1)

    def _end(self, at_s: float, how: str = "done") -> None:
        self.served.ended = how
        self.connection.server.running -= 1
        self.connection.server.queue.leave(at_s)

    def give_up(self) -> None:
        """The client went away: its slot, or its place in the queue, is free from now on."""
        if self.served.started_s is None:
            self.connection.server.queue.abandon(self._queue_begin)
            self.served.ended = "abandoned"
        elif not self.served.ended:
            if self._timer:
                self._timer.cancel()
            self._end(self.connection.loop.time(), "abandoned")

    # The bytes

    def _open(self) -> None:
        self.connection.send_head(200, "text/event-stream; charset=utf-8", None)
        self._is_open = True

    def _delta(self, before: int, until: int) -> Message:
        """Text of the tokens from `before` to `until`, as a delta: an event has text of one kind."""
        text = "".join(_WORDS[token % len(_WORDS)] for token in range(before, until))
        if self.does.reasoning_field and before < self.does.reasoning_tokens:
            return {self.does.reasoning_field: text, "content": None}
        return {"content": text}

    def _chunk(
        self, delta: Message, finish: str | None = None, tokens: int | None = None, usage: bool = False
    ) -> Message:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        choice: Message = {"index": 0, "finish_reason": finish, "logprobs": None}
        choice |= {"delta": delta} if self.chat else {"text": delta.get("content", "")}
        chunk = self._envelope(kind, [choice])
        if usage:
            chunk["usage"] = self._usage(self.served.tokens)
        elif tokens is not None and self._usage_everywhere:
            chunk["usage"] = self._usage(tokens)
        return chunk

    def _envelope(self, kind: str, choices: list[Message]) -> Message:
        return {
            "id": f"cmpl-{id(self.served)}",
            "object": kind,
            "created": 1,
            "model": self.does.model,
            "choices": choices,
        }

    def _usage(self, tokens: int) -> Message:
        prompt = self.served.prompt_tokens
        usage: Message = {
            "prompt_tokens": prompt,
            "completion_tokens": tokens,
            "total_tokens": prompt + tokens,
            "prompt_tokens_details": {"cached_tokens": self.served.cached_tokens}
            if self.does.caches_prompts
            else None,
        }
        if self.does.reasoning_tokens:
            reasoned = min(tokens, self.does.reasoning_tokens)
            usage["completion_tokens_details"] = {"reasoning_tokens": reasoned}
        return usage

    def _finish(self) -> None:
        reason = "length" if self.served.tokens == _asked(self.served.request) else "stop"
        places = self.does.usage
        self._event(self._chunk({}, reason, usage=places == "last_choice"))
        if self._usage_asked and places in ("no_choices", "null_choices", "absent_choices", "every_chunk"):
            chunk = self._envelope("chat.completion.chunk" if self.chat else "text_completion", [])
            chunk["usage"] = self._usage(self.served.tokens)
            if places == "null_choices":
                chunk["choices"] = None
            elif places == "absent_choices":
                del chunk["choices"]
            self._event(chunk)
        if self.fault == "no_done":
            self._write()
            self.connection.close()
            return
        self._line("data: [DONE]")
        self._write(is_last=True)
        self.connection.answered(streamed=True)

    def _break(self) -> None:
        error = {"message": "EngineCore encountered an issue.", "type": "InternalServerError", "code": 500}
        if self.fault == "cut":
            self._write()
            self.connection.close()
            return
        name = "event: error" + self.does.newline if self.fault == "error_event" else ""
        self._line(f"{name}data: {json.dumps({'error': error})}")
        self._line("data: [DONE]")
        self._write(is_last=True)
        self.connection.answered(streamed=True)

    def _reply_whole(self) -> None:
        text = self._delta(0, self.served.tokens)["content"]
        choice: Message = {"index": 0, "finish_reason": "length"}
        choice |= {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        answer = self._envelope("chat.completion" if self.chat else "text_completion", [choice])
        if self.does.usage != "missing":
            answer["usage"] = self._usage(self.served.tokens)
        self.connection.send_head(200, "application/json", json.dumps(answer).encode())
        self.connection.answered(streamed=False)

    def _event(self, message: Message) -> None:
        if self.does.ping:
            self._line(": ping")
        self._line("data: " + json.dumps(message, ensure_ascii=False))

    def _line(self, text: str) -> None:
        self._unwritten.append((text + 2 * self.does.newline).encode())

    def _write(self, is_last: bool = False) -> None:
        data, self._unwritten = b"".join(self._unwritten), []
        if not data:
            return  # an empty chunk would end the answer
        if self.does.framing == "chunked":
            data = f"{len(data):x}\r\n".encode() + data + b"\r\n" + (b"0\r\n\r\n" if is_last else b"")
        self.connection.write(data)


def _asked(request: Message) -> int:
    return int(request.get("max_tokens") or request.get("max_completion_tokens") or 16)


def _prompt_of(request: Message) -> str:
    prompt = request.get("prompt")
    if prompt is not None:
        return str(prompt)
    return " ".join(str(message["content"]) for message in request["messages"])


def _too_long(tokens: int, context: int) -> Message:
    message = f"the request exceeds the available context size ({context} tokens), try increasing it"
    kind = "exceed_context_size_error"
    return {
        "error": {"code": 400, "message": message, "type": kind, "n_prompt_tokens": tokens, "n_ctx": context}
    }


def _about(does: Behaviour) -> dict[str, Message]:
    """What the addresses that tell of a server answer, by engine."""
    model: Message = {"id": does.model, "object": "model", "created": 1, "owned_by": does.engine}
    found: dict[str, Message] = {}
    match does.engine:
        case "vllm":
            model["max_model_len"] = does.context_tokens
            found["/version"] = {"version": "0.11.0"}
        case "llama.cpp":
            model |= {"owned_by": "llamacpp", "meta": {"n_ctx_train": does.context_tokens, "n_params": 10**9}}
            found["/props"] = {
                "build_info": "b6800-0123456",
                "total_slots": does.slots,
                "model_path": f"/models/{does.model}.gguf",
                "default_generation_settings": {"n_ctx": does.context_tokens},
            }
        case "sglang":
            model |= {"max_model_len": does.context_tokens}
            found["/get_server_info"] = {"version": "0.5.4", "context_length": does.context_tokens}
        case "ollama":
            model["owned_by"] = "library"
            found["/api/version"] = {"version": "0.12.6"}
        case "tgi":
            found["/info"] = {
                "version": "3.3.6",
                "model_id": does.model,
                "max_total_tokens": does.context_tokens,
            }
    return {"/v1/models": {"object": "list", "data": [model]}, **found}


@contextlib.contextmanager
def serving(behaviour: Behaviour, context: ssl.SSLContext | None = None) -> Iterator[ModelServer]:
    """A server in a thread of this process, for tests whose figures are not about milliseconds."""
    server = ModelServer(behaviour)
    loop = asyncio.new_event_loop()
    is_listening = threading.Event()
    end = asyncio.Event()

    async def run_until_the_end() -> None:
        listening = await server.listen(context)
        is_listening.set()
        await end.wait()
        listening.close()
        for transport in list(server.open):
            transport.abort()

    def run() -> None:
        loop.run_until_complete(run_until_the_end())
        loop.run_until_complete(asyncio.sleep(0))  # lets the connections end
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert is_listening.wait(10)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(10)


@contextlib.contextmanager
def serving_process(behaviour: Behaviour) -> Iterator[str]:
    """A server in a separate process, for figures: its address."""
    command = [sys.executable, __file__, json.dumps(asdict(behaviour))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def served_by(url: str) -> list[Served]:
    """What the server at `url` has answered so far, in order of arrival."""
    with urlopen(f"{url}/served", timeout=10) as answer:
        return [Served(**each) for each in json.load(answer)["served"]]


async def _serve(behaviour: Behaviour) -> None:
    server = ModelServer(behaviour)
    listening = await server.listen()
    print(server.port, flush=True)
    await listening.serve_forever()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    asyncio.run(_serve(Behaviour(**{**given, "refuses": tuple(given.get("refuses", ()))})))
