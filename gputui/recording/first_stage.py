"""First code on another machine: finds gputui's directory, takes the measuring half over stdin, and serves.

Sent as text to `python -c`, behind `own_directory`; arguments: a nonce, the hash (SHA-256) and length of the
zip, the directory that the user named in base64, empty for `~/.gputui`, and `makes` to make what is missing.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path

from gputui.recording.own_directory import (
    DEFAULT_NAME,
    NotOurs,
    find_home,
    open_verified,
    verified_name,
    write_whole,
)


def _say(nonce: str, **fields: object) -> None:
    os.write(1, b"gputui %s %s\n" % (nonce.encode(), json.dumps(fields).encode()))


def _take(archive: Path, length: int) -> None:
    """Read the zip from stdin and keep it. Raises OSError, and ValueError if the link is cut."""
    pieces, left = [], length
    while left:
        piece = os.read(0, min(left, 1 << 16))
        if not piece:
            raise ValueError("the link was cut while the measuring half was sent")
        pieces.append(piece)
        left -= len(piece)
    write_whole(archive, b"".join(pieces))


def main(nonce: str, digest: str, length: str, directory: str, makes: str) -> None:
    """Serve requests until stdin ends."""
    stated = Path(base64.b64decode(directory).decode() or f"~/{DEFAULT_NAME}")
    try:
        stated = stated.expanduser().absolute()
        home = find_home(stated, makes=makes == "makes")
        if home is None:
            _say(nonce, state="absent", path=str(stated))
            return
        archive = home / f"gputui-{digest[:16]}.zip"
        try:
            descriptor = open_verified(archive, digest)
        except (OSError, NotOurs):
            _say(nonce, state="needs")
            _take(archive, int(length))
            descriptor = open_verified(archive, digest)
    except NotOurs as error:
        _say(nonce, state="refused", reason=str(error))
        return
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        _say(nonce, state="failed", reason=reason, code=getattr(error, "errno", None) or 0, path=str(stated))
        return
    _say(nonce, state="ready")
    sys.path.insert(0, verified_name(descriptor, archive, digest))
    from gputui.recording.agent import serve

    serve(home, archive, descriptor, digest)


if __name__ == "__main__":
    main(*sys.argv[1:6])
