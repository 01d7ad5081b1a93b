"""llama.cpp's HTTP server with a model of random weights: a real engine, without anything to download.

Needs the packages `xllamacpp` and `gguf` of the extra `llama`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

needs_llama = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None or importlib.util.find_spec("gguf") is None,
    reason="there is no xllamacpp, or no gguf: pip install -e '.[llama]'",
)
_CHAT = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
_SYLLABLES = ("ti", "me", "ye", "ar", "wa", "li", "fe", "wo", "rk", "da", "po", "st", "na", "ro", "ke", "su")


def write_model(path: Path, layers: int = 4, width: int = 256) -> None:
    """Write a Llama with random weights and 515 tokens: bytes, and words of two syllables."""
    import gguf
    import numpy as np

    draw = np.random.default_rng(22)
    words = [f"▁{first}{second}" for first in _SYLLABLES for second in _SYLLABLES]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    kinds = [
        gguf.TokenType.UNKNOWN,
        gguf.TokenType.CONTROL,
        gguf.TokenType.CONTROL,
        *[gguf.TokenType.BYTE] * 256,
        *[gguf.TokenType.NORMAL] * len(words),
    ]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(8192)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(2 * width)
    writer.add_head_count(width // 64)
    writer.add_head_count_kv(width // 64)
    writer.add_rope_dimension_count(64)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(_CHAT)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name, draw.normal(0, 0.05, shape).astype(np.float32))

    def add_norm(name: str) -> None:
        writer.add_tensor(name, np.ones(width, np.float32))

    add("token_embd.weight", len(tokens), width)
    add("output.weight", len(tokens), width)
    add_norm("output_norm.weight")
    for layer in range(layers):
        for norm in ("attn_norm", "ffn_norm"):
            add_norm(f"blk.{layer}.{norm}.weight")
        for square in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{layer}.{square}.weight", width, width)
        for wide in ("ffn_gate", "ffn_up"):
            add(f"blk.{layer}.{wide}.weight", 2 * width, width)
        add(f"blk.{layer}.ffn_down.weight", width, 2 * width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@contextlib.contextmanager
def llama_serving(model: Path, slots: int = 4, threads: int = 1, log: Path | None = None) -> Iterator[str]:
    """A server of a model in a separate process: its address. `log` gets what it prints."""
    given = {"model": str(model), "slots": slots, "threads": threads}
    with contextlib.ExitStack() as files:
        errors = files.enter_context(log.open("wb")) if log else subprocess.DEVNULL
        process = files.enter_context(
            subprocess.Popen(
                [sys.executable, __file__, json.dumps(given)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        )
        assert process.stdout is not None
        try:
            address = next((line for line in process.stdout if line.startswith("http")), "")
            assert address, f"llama.cpp's server does not start; see {log or 'its log'}"
            yield address.strip()
        finally:
            process.kill()


def _serve(model: str, slots: int, threads: int) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {"random-3m"}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_parallel = slots
    params.n_ctx = 4096 * slots
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.endpoint_metrics = True
    params.endpoint_props = True
    params.warmup = False
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()  # until the starter ends
    del server


if __name__ == "__main__":
    _serve(**json.loads(sys.argv[1]))
