"""Hosts whose live samples never end, or hold what no gputui would send."""

from __future__ import annotations

DRIPS = """
import re, sys, time, zlib
nonce = re.search(r"gputui ([0-9a-f]{16})", sys.argv[-1])[1]
out, packer = sys.stdout.buffer, zlib.compressobj(0)
out.write(b'gputui %s {"state": "ready"}\\n' % nonce.encode())
out.flush()
sys.stdin.readline()
while True:
    packed = packer.compress(b" ") + packer.flush(zlib.Z_SYNC_FLUSH)
    out.write(b'{"bytes": %d}\\n%b' % (len(packed), packed))
    out.flush()
    time.sleep(0.02)
"""

EVIL = """
import json, os, re, sys, time, zlib
mode = sys.argv[1]
nonce = re.search(r"gputui ([0-9a-f]{16})", sys.argv[-1])[1]
out = sys.stdout.buffer
packer = zlib.compressobj(1)

def say(data):
    out.write(data)
    out.flush()

def send(message):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    packed = packer.compress(data + b"\\n") + packer.flush(zlib.Z_SYNC_FLUSH)
    for at in range(0, len(packed), 2**19):
        piece = packed[at : at + 2**19]
        say(b'{"bytes": %d}\\n%b' % (len(piece), piece))

def whole(**values):
    def device(n, source):
        about = {"source": source, "parent": None, "age_s": 0, "problem": None}
        return {"device": n, **about, "values": {"name": "GPU", **values}}
    gpus = [device(n, "nvml") for n in range(2)]
    return {"host": device(-1, "host"), "gpus": gpus, "absent": {}, "processes": "no", "case": ""}

if mode == "banner":
    while True:
        say(b"motd" * 1000 + b"\\n")
if mode == "deep first":
    say(b"gputui %s %s\\n" % (nonce.encode(), b"[" * 100_000))
    sys.stdin.read()
say(b'gputui %s {"state": "ready"}\\n' % nonce.encode())
sys.stdin.readline()
while True:
    if mode == "line":
        say(b"x" * 65536)
    elif mode == "bomb":
        say(b'{"bytes": %d}\\n%b' % (len(BOMB), BOMB))
    elif mode == "flood":
        send({})
    elif mode == "huge":
        send(whole(power_w=1e308, memory_used_bytes=1e308, sm_busy_pct=1e308, cpu_busy_pct=1e308))
    elif mode == "text":
        send(whole(power_w="x" * 500_000, model="\\x1b[2J" + "y" * 500_000, memory_used_bytes="[red]"))
    elif mode == "bytes":
        say(os.urandom(300))
    time.sleep(0.2 if mode not in ("flood", "line") else 0)
"""

MODES = ("banner", "deep first", "line", "bomb", "flood", "huge", "text", "bytes")
