"""First code on another machine: takes the measuring half over stdin, keeps it by its hash, and serves.

Sent as text to `python -c`, so it imports only the standard library; arguments: a nonce, the hash (SHA-256)
and length of the zip, and the one directory that may be written, empty for `~/.gputui`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path


def _say(nonce: str, **fields: object) -> None:
    os.write(1, b"gputui %s %s\n" % (nonce.encode(), json.dumps(fields).encode()))


def _taken(archive: Path, digest: str, length: int) -> None:
    """Read the zip from stdin and keep it. Raises OSError, and ValueError if it is not the announced one."""
    pieces, left = [], length
    while left:
        piece = os.read(0, min(left, 1 << 16))
        if not piece:
            raise ValueError("the link was cut while the measuring half was sent")
        pieces.append(piece)
        left -= len(piece)
    data = b"".join(pieces)
    if hashlib.sha256(data).hexdigest() != digest:
        raise ValueError("the measuring half arrived damaged")
    draft = archive.with_suffix(f".{os.getpid()}")
    try:
        draft.write_bytes(data)
        draft.replace(archive)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def _is_whole(archive: Path, digest: str) -> bool:
    try:
        return hashlib.sha256(archive.read_bytes()).hexdigest() == digest
    except OSError:
        return False


def main(nonce: str, digest: str, length: str, directory: str) -> None:
    """Serve requests until stdin ends."""
    home = Path(directory or "~/.gputui")
    try:
        home = home.expanduser().absolute()
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        archive = home / f"gputui-{digest[:16]}.zip"
        if not _is_whole(archive, digest):
            _say(nonce, state="needs")
            _taken(archive, digest, int(length))
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        _say(nonce, state="failed", reason=reason, code=getattr(error, "errno", None) or 0, path=str(home))
        return
    _say(nonce, state="ready")
    sys.path.insert(0, str(archive))
    from gputui.recording.agent import serve

    serve(home, archive)


if __name__ == "__main__":
    main(*sys.argv[1:5])
