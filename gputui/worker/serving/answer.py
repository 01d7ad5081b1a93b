"""What a recorded answer says: its events with their arrival, tokens by the server's count, how it ended.

Parsing happens after the load, so that it delays no arrival. The stream's rules: WHATWG HTML, section 9.2
(server-sent events); RFC 9112, section 7.1 (chunked coding); the API's: OpenAI, "Create chat completion".
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any  # Any: a server's JSON

from ..foreign_json import read_json

OK, REFUSED, REJECTED, FAILED, CUT, EMPTY, UNFINISHED, UNREACHABLE = OUTCOMES = (
    "ok",
    "refused",
    "rejected",
    "failed",
    "cut",
    "empty",
    "unfinished",
    "unreachable",
)
"""How a request ended: answered; refused for overload (429, 503); rejected as wrong (other 4xx); failed in
the server (5xx, or an error inside the stream); cut off before its end; answered without any output; not
ended when the load was; no connection."""

_HEAD_END = b"\r\n\r\n"
_LINE_END = re.compile(rb"\r\n|\n|\r")
_CODE = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_LONGEST_HEAD = 64 * 1024
_STATUS = re.compile(r"[1-5][0-9][0-9]")
_LENGTH = re.compile(r"[0-9]{1,15}")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;[^\r\n]*)?")
_LONGEST_CHUNK_LINE = 4096
_MOST_TOKENS = 2**31


@dataclass(frozen=True)
class Head:
    status: int
    headers: dict[str, str]
    """By lower-case name."""
    size: int
    """Bytes up to the body."""

    @property
    def is_chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "").lower()

    @property
    def content_length(self) -> int | None:
        text = self.headers.get("content-length", "")
        return int(text) if _LENGTH.fullmatch(text) else None

    @property
    def closes(self) -> bool:
        """Whether the server says that it closes the connection after this answer."""
        return "close" in self.headers.get("connection", "").lower()


def head_of(data: bytes) -> Head | None:
    """The head of an answer; None if it is not complete yet. Raises ValueError if it is no HTTP."""
    end = data.find(_HEAD_END)
    if end < 0:
        if not data.startswith(b"HTTP/"[: len(data)]) or len(data) > _LONGEST_HEAD:
            raise ValueError("the answer is not HTTP")
        return None
    first, *lines = data[:end].decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not _STATUS.fullmatch(words[1]):
        raise ValueError("the answer is not HTTP/1.1")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return Head(int(words[1]), headers, end + len(_HEAD_END))


def _chunk_at(data: bytes | bytearray, start: int) -> tuple[int, int] | None:
    """Where the chunk that begins at an offset has its data, and how many bytes; None if it is not there yet.

    Raises ValueError if it is malformed.
    """
    line = data.find(b"\r\n", start, start + _LONGEST_CHUNK_LINE)
    if line < 0 and len(data) - start < _LONGEST_CHUNK_LINE:
        return None
    size = _CHUNK_SIZE.fullmatch(data, start, line) if line >= 0 else None
    if size is None:
        raise ValueError("its chunks are malformed")
    return line + 2, int(size[1], 16)


def chunks_end(data: bytes | bytearray, start: int) -> tuple[int, bool]:
    """Walk whole chunks from an offset where one begins: the offset reached, and whether it is the end.

    Raises ValueError if one is malformed.
    """
    while (chunk := _chunk_at(data, start)) is not None:
        begin, size = chunk
        if size == 0:
            return start, data.find(_HEAD_END, begin - 2) >= 0
        if begin + size + 2 > len(data):
            break
        start = begin + size + 2
    return start, False


@dataclass(frozen=True)
class Usage:
    """Token counts as the server reports them; None for what it does not."""

    prompt: int | None = None
    cached: int | None = None
    output: int | None = None
    """All generated tokens, those of reasoning included."""
    reasoning: int | None = None


@dataclass(frozen=True)
class ServerAnswer:
    outcome: str
    """One of OUTCOMES."""
    reason: str
    """A few words of ours, never text of the server but a code of an error; empty if `ok`."""
    status: int | None = None
    output_ns: tuple[int, ...] = ()
    """Arrivals of the events that carry output, of reasoning too; monotonic, ascending."""
    usage: Usage = Usage()
    finish_reason: str = ""
    text: bytes = field(default=b"", repr=False)
    """All output, to be hashed and forgotten."""
    retry_after: str = ""
    is_streamed: bool = True
    answer_ns: int | None = None
    """Arrival of the first event with output other than reasoning."""

    @property
    def first_ns(self) -> int | None:
        return self.output_ns[0] if self.output_ns else None

    @property
    def last_ns(self) -> int | None:
        return self.output_ns[-1] if self.output_ns else None


def read_answer(
    reads: Sequence[bytes], stamps_ns: Sequence[int], *, was_closed: bool, was_stopped: bool
) -> ServerAnswer:
    """Read a recorded answer: its reads as they came, with the instant of each.

    `was_closed`: the connection ended; `was_stopped`: by us, as the load was over. Raises nothing.
    """
    raw = b"".join(reads)
    ends = list(accumulate(map(len, reads)))
    try:
        head = head_of(raw)
        if head is None:
            return ServerAnswer(*_unended(was_stopped, "closed before any answer"))
        body, pieces = body_of(raw, head)
    except ValueError as error:
        return ServerAnswer(FAILED, str(error))
    if head.status != 200:
        return _refusal(head, body)
    stream = _Stream()
    in_body, in_raw = pieces
    for line, end in _lines(body):
        piece = max(bisect_left(in_body, end) - 1, 0)
        raw_end = in_raw[piece] + end - in_body[piece]
        stream.line(line, stamps_ns[min(bisect_left(ends, raw_end), len(ends) - 1)])
    is_streamed = "event-stream" in head.headers.get("content-type", "") or stream.events > 0
    if not is_streamed:
        return ServerAnswer(FAILED, "it answered without streaming", head.status, is_streamed=False)
    if head.is_chunked:
        is_whole = chunks_end(raw, head.size)[1]
    elif head.content_length is not None:
        is_whole = len(raw) - head.size >= head.content_length
    else:
        is_whole = was_closed
    outcome, reason = stream.end(is_whole=is_whole, was_stopped=was_stopped)
    return ServerAnswer(
        outcome,
        reason,
        head.status,
        tuple(stream.output_ns),
        stream.usage,
        stream.finish_reason,
        "".join(stream.texts).encode("utf-8", "surrogatepass"),
        answer_ns=stream.answer_ns,
    )


def _unended(was_stopped: bool, reason: str) -> tuple[str, str]:
    return (UNFINISHED, "the load was over") if was_stopped else (CUT, reason)


def _refusal(head: Head, body: bytes) -> ServerAnswer:
    outcome = REFUSED if head.status in (429, 503) else REJECTED if head.status < 500 else FAILED
    try:
        code = _error_code(read_json(body))
    except ValueError:
        code = ""
    reason = f"HTTP {head.status}{f' {code}' if code else ''}"
    wait = head.headers.get("retry-after", "")
    return ServerAnswer(outcome, reason, head.status, retry_after=wait if _CODE.fullmatch(wait) else "")


def _error_code(plain: Any) -> str:
    """The type or code of an error. Its message may repeat the prompt or the key, so it is not taken."""
    error = plain.get("error", plain) if isinstance(plain, dict) else None
    named = error if isinstance(error, dict) else {}
    for name in ("type", "code"):
        value = named.get(name)
        if isinstance(value, str) and _CODE.fullmatch(value):
            return value
    return ""


def body_of(raw: bytes, head: Head) -> tuple[bytes, tuple[list[int], list[int]]]:
    """The body without chunk framing, and where its pieces begin in the body and in the raw bytes.

    Raises ValueError if its chunks are malformed.
    """
    if not head.is_chunked:
        return raw[head.size :], ([0], [head.size])
    body, start = bytearray(), head.size
    in_body, in_raw = [0], [start]
    while (chunk := _chunk_at(raw, start)) is not None and chunk[1]:
        begin, size = chunk
        in_body.append(len(body))
        in_raw.append(begin)
        body += raw[begin : begin + size]
        start = begin + size + 2
    return bytes(body), (in_body, in_raw)


def _lines(body: bytes) -> Iterator[tuple[bytes, int]]:
    """The lines of a stream, each with the offset of its end; one without an end counts, too."""
    start = 0
    for match in _LINE_END.finditer(body):
        yield body[start : match.start()], match.end()
        start = match.end()
    if start < len(body):
        yield body[start:], len(body)


class _Stream:
    def __init__(self) -> None:
        self.events = 0
        self.output_ns: list[int] = []
        self.answer_ns: int | None = None
        self.texts: list[str] = []
        self.usage = Usage()
        self.finish_reason = ""
        self._is_done = False
        self._error: str | None = None
        self._kind = ""
        self._data: list[bytes] = []
        self._at_ns = 0

    def line(self, line: bytes, at_ns: int) -> None:
        if not line:
            self._dispatch()
        elif line.startswith(b"data:"):
            self._data.append(line[5:])
            self._at_ns = at_ns
        elif line.startswith(b"event:"):
            self._kind = line[6:].strip().decode("ascii", "replace")

    def _dispatch(self) -> None:
        data, kind = b"\n".join(self._data).strip(), self._kind
        self._data, self._kind = [], ""
        if not data:
            return
        self.events += 1
        if data == b"[DONE]":
            self._is_done = True
            return
        try:
            plain = read_json(data)
        except ValueError:
            plain = None
        if kind == "error" or (isinstance(plain, dict) and plain.get("error")):
            self._error = _error_code(plain) or "no code"
        elif isinstance(plain, dict):
            self._chunk(plain)

    def _chunk(self, plain: dict[str, Any]) -> None:
        usage = plain.get("usage")
        if isinstance(usage, dict):
            self.usage = Usage(
                _count(usage.get("prompt_tokens")),
                _count(_inside(usage, "prompt_tokens_details", "cached_tokens")),
                _count(usage.get("completion_tokens")),
                _count(_inside(usage, "completion_tokens_details", "reasoning_tokens")),
            )
        timings = plain.get("timings")
        if isinstance(timings, dict) and self.usage.output is None:  # llama.cpp without stream_options
            self.usage = Usage(
                _count(timings.get("prompt_n"), timings.get("cache_n")),
                _count(timings.get("cache_n")),
                _count(timings.get("predicted_n")),
            )
        choices = plain.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                self._choice(choice)

    def _choice(self, choice: dict[str, Any]) -> None:
        finish = choice.get("finish_reason")
        if isinstance(finish, str) and finish:
            self.finish_reason = finish if _CODE.fullmatch(finish) else "unknown"
        delta = choice.get("delta")
        if isinstance(delta, dict):
            calls = delta.get("tool_calls")
            answers = _texts(delta.get("content"), json.dumps(calls) if calls else None)
            thoughts = _texts(delta.get("reasoning_content"), delta.get("reasoning"))
        else:
            answers, thoughts = _texts(choice.get("text")), []
        if answers and self.answer_ns is None:
            self.answer_ns = self._at_ns
        if answers or thoughts:
            self.texts += answers + thoughts
            self.output_ns.append(self._at_ns)

    def end(self, *, is_whole: bool, was_stopped: bool) -> tuple[str, str]:
        """Outcome and reason, once all lines are read."""
        if self._data:
            self._dispatch()
        if self._error is not None:
            return FAILED, f"an error inside the stream: {self._error}"
        if not (self._is_done or (is_whole and self.finish_reason)):
            return _unended(was_stopped, "the stream ended before its last event")
        if not self.output_ns:
            return EMPTY, "the answer has no output"
        return OK, ""


def _texts(*values: object) -> list[str]:
    return [value for value in values if isinstance(value, str) and value]


def _inside(usage: dict[str, Any], name: str, key: str) -> object:
    details = usage.get(name)
    return details.get(key) if isinstance(details, dict) else None


def _count(*values: object) -> int | None:
    """The sum of counts; None if the first is none."""
    numbers = [v for v in values if type(v) is int and 0 <= v < _MOST_TOKENS]
    return sum(numbers) if values and values[0] in numbers else None
