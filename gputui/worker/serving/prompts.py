"""What prompts say: words at random, or the lines of a file."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any  # Any: JSON of a file

from ..foreign_json import read_json

_NOUNS = (
    "time year people way day man thing woman life child world school state family student group"
    " country problem hand part place case week company system program question work government number"
    " night point home water room mother area money story fact month lot right study book eye job word"
    " business issue side kind head house service friend father power hour game line end member law"
    " car city community name president team minute idea body information back parent face others"
    " level office door health person art war history party result change morning reason research girl"
    " guy moment air teacher force"
)
"""Frequent English nouns: one token each in most vocabularies."""
_WORDS = _NOUNS.split()
TOKENS_PER_WORD = 1.2
"""Before the server has counted any."""
LENGTHS = 0.25
"""Prompts are up to so much shorter or longer than the mean, each length as likely."""


class Prompts:
    """Prompts of words that are drawn anew for each, so that no two have a sentence in common.

    Of a shared prefix, the words are the same in every prompt of the profile, on every box.
    """

    def __init__(
        self,
        tokens: int,
        shared_tokens: int,
        words_seed: bytes,
        tokens_per_word: float,
        lengths_seed: str = "",
    ) -> None:
        """`words_seed`: of this launch alone, so that a server that stays up has not seen its prompts;
        `lengths_seed`: of this launch on every box."""
        self._draw = random.Random(words_seed)
        self._lengths = random.Random(lengths_seed)
        shared = max(round(shared_tokens / tokens_per_word), 0)
        self._prefix = "".join(f"{word} " for word in random.Random(7).choices(_WORDS, k=shared))
        self._words = max(round(tokens / tokens_per_word) - shared, 1)
        self.words = shared + self._words

    def usual(self) -> bytes:
        """One of the mean length."""
        return self._of(self._words)

    def next(self) -> bytes:
        return self._of(round(self._words * self._lengths.uniform(1 - LENGTHS, 1 + LENGTHS)))

    def _of(self, words: int) -> bytes:
        return f"{self._prefix}{' '.join(self._draw.choices(_WORDS, k=max(words, 1)))}".encode()


MOST_FILE_BYTES, MOST_LINE_BYTES = 64 * 2**20, 2**20
_WANTED = 'a line is {"text": "..."} or {"messages": [{"role": "user", "content": "..."}]}'


class FilePrompts:
    """The prompts of a file in an order that a seed decides, again from the first after the last."""

    words = 1

    def __init__(self, prompts: list[bytes], order_seed: str) -> None:
        self._prompts = random.Random(order_seed).sample(prompts, len(prompts))
        self._sent = 0

    def usual(self) -> bytes:
        """The longest."""
        return max(self._prompts, key=len)

    def next(self) -> bytes:
        self._sent += 1
        return self._prompts[(self._sent - 1) % len(self._prompts)]


def prompts_in(path: Path, api: str) -> tuple[list[bytes], str]:
    """The prompts of a JSONL file as requests have them, and a hash of all.

    Of chat each is a JSON value of `messages`, else a text within quotes. Raises OSError, and ValueError that
    names the line and repeats none of it.
    """
    if not path.is_file():
        raise ValueError("it is not a file")
    with path.open("rb") as file:
        data = file.read(MOST_FILE_BYTES + 1)
    if len(data) > MOST_FILE_BYTES:
        raise ValueError(f"it has more than {MOST_FILE_BYTES >> 20} MiB")
    found = []
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            try:
                found.append(_prompt(line, api))
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
    if not found:
        raise ValueError(f"it has no prompt: {_WANTED}")
    return found, hashlib.sha256(data).hexdigest()[:16]


def _prompt(line: bytes, api: str) -> bytes:
    try:
        plain = read_json(line, MOST_LINE_BYTES)
    except json.JSONDecodeError:
        raise ValueError(f"it is not JSON: {_WANTED}") from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    if not isinstance(plain, dict):
        raise ValueError(_WANTED)
    text, messages = plain.get("text"), plain.get("messages")
    if isinstance(text, str) and text.strip() and messages is None:
        if api == "chat":
            return json.dumps([{"role": "user", "content": text}]).encode()
        return json.dumps(text)[1:-1].encode()
    if text is not None or not _are_messages(messages):
        raise ValueError(_WANTED)
    if api != "chat":
        raise ValueError("messages need --api chat")
    return json.dumps(messages).encode()


def _are_messages(plain: Any) -> bool:
    return (
        isinstance(plain, list)
        and len(plain) > 0
        and all(isinstance(one, dict) for one in plain)
        and all(isinstance(one.get(key), str) for one in plain for key in ("role", "content"))
    )
