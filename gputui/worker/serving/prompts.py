"""Prompts of a wanted length that no cache has seen, and requests around them."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

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
NONCE_WORDS = 6
"""At the start of a prompt: about 10^12 of them, so that no two prompts begin alike."""
TOKENS_PER_WORD = 1.2
"""Before the server has counted any."""


@dataclass(frozen=True)
class Body:
    """How a request is written for one server."""

    api: str
    """`chat` or `completions`."""
    model: str
    output_tokens: int
    limit_name: str = "max_tokens"
    """Or `max_completion_tokens`."""
    ignores_eos: bool = True
    """Whether to ask for exactly `output_tokens`."""
    asks_usage: bool = True

    def around(self) -> tuple[bytes, bytes]:
        """What stands before the prompt, and after it. A prompt of letters and spaces needs no escapes."""
        mark = "@"
        plain: dict[str, object] = {"model": self.model}
        if self.api == "chat":
            plain["messages"] = [{"role": "user", "content": mark}]
        else:
            plain["prompt"] = mark
        plain[self.limit_name] = self.output_tokens
        plain["stream"] = True
        if self.asks_usage:
            plain["stream_options"] = {"include_usage": True}
        if self.ignores_eos:
            plain["ignore_eos"] = True
        before, _, after = json.dumps(plain).rpartition(f'"{mark}"')
        return f'{before}"'.encode(), f'"{after}'.encode()


class Prompts:
    """Prompts of about the same number of tokens, each beginning with words that no other has.

    Of a shared prefix, the words are the same in every prompt of the profile, on every box.
    """

    def __init__(self, tokens: int, shared_tokens: int, nonce_seed: bytes, tokens_per_word: float) -> None:
        """`nonce_seed`: of this launch alone, so that a server that stays up has not seen its prompts."""
        self._nonces = random.Random(nonce_seed)
        shared = max(round(shared_tokens / tokens_per_word), 0)
        words = max(round(tokens / tokens_per_word) - NONCE_WORDS - shared, 1)
        same = random.Random(7)
        self._prefix = "".join(f"{same.choice(_WORDS)} " for _ in range(shared))
        self._rest = " ".join(same.choice(_WORDS) for _ in range(words))
        self.words = shared + NONCE_WORDS + words

    def next(self) -> bytes:
        nonce = " ".join(self._nonces.choice(_WORDS) for _ in range(NONCE_WORDS))
        return f"{self._prefix}{nonce} {self._rest}".encode()
