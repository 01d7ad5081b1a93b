"""Directories that are not gputui's, and another account that swaps what lies in them. Needs root."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from builders import make_plan, make_spec

from gputui.errors import GputuiError
from gputui.recording.own_directory import MARKER
from gputui.recording.probing import measuring_half
from gputui.services.hosts.host import Host, via_host
from gputui.services.hosts.link import Link
from gputui.services.runs.process import new_run_id

NOBODY = 65534
SHELL = "env A=1"
"""As good as a container for `--via`: it runs a program here."""

_SWAPPING = """
import os, sys
base, evil, names = sys.argv[1], open(sys.argv[2], "rb").read(), ("gputui-0", "home")
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
open(sys.argv[3], "w").close()
while True:
    for top, directories, files in os.walk(base):
        for name in files:
            if name.startswith("gputui-"):
                try:
                    with open(f"{top}/draft", "wb") as file:
                        file.write(evil)
                    os.replace(f"{top}/draft", f"{top}/{name}")
                except OSError:
                    pass
        for name in directories:
            if name.startswith(names):
                try:
                    os.rename(f"{top}/{name}", f"{top}/was-{name}")
                    os.mkdir(f"{top}/{name}", 0o777)
                except OSError:
                    pass
"""


@dataclass(frozen=True)
class Foreign:
    """A directory that gputui did not make."""

    stated: Path
    home: Path | None
    """Where gputui may make its directory; None if it has to refuse."""


@contextmanager
def foreign_directories(base: Path) -> Iterator[dict[str, Foreign]]:
    """Ten, each with somebody's files; `base` is one that every account can enter."""
    child = f"gputui-{os.getuid()}"

    def filled(name: str, mode: int = 0o755) -> Path:
        place = base / name
        for sub in ("runs/old", "cache", "tmp", "checkpoints"):
            (place / sub).mkdir(parents=True)
            (place / sub / "thesis.tex").write_text(f"in {sub}")
        (place / "gputui-0123456789abcdef.zip").write_text("the user's")
        place.chmod(mode)
        return place

    def mounted(name: str, options: str) -> Path:
        place = filled(name)
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)
        return place

    (base / "link").symlink_to(filled("linked"))
    (base / "file").write_text("a file")
    other = filled("other")
    os.chown(other, NOBODY, NOBODY)
    full, read_only = mounted("full", "size=64k"), mounted("read-only", "size=64k")
    try:
        (full / "thesis.tex").write_bytes(bytes(30_000))
        with (full / "rest").open("wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                pass
        (read_only / "thesis.tex").write_text("kept")
        subprocess.run(["mount", "-o", "remount,ro", str(read_only)], check=True)
        home, workspace, sticky = filled("home"), filled("workspace", 0o700), filled("sticky", 0o1777)
        missing = base / "not" / "there"
        yield {
            "a home": Foreign(home, home / child),
            "a workspace": Foreign(workspace, workspace / child),
            "a link": Foreign(base / "link", base / "link" / child),
            "another owner's": Foreign(other, None),
            "mode 0777": Foreign(filled("open", 0o777), None),
            "sticky": Foreign(sticky, sticky / child),
            "a file": Foreign(base / "file", None),
            "below a missing one": Foreign(missing, missing),
            "read-only": Foreign(read_only, None),
            "full": Foreign(full, None),
        }
    finally:
        for place in (full, read_only):
            subprocess.run(["umount", str(place)], check=True)


def files_in(base: Path) -> dict[str, tuple[int, int, bytes]]:
    """Owner, mode and content of all that lies below a directory, by path."""
    return {
        str(path.relative_to(base)): (
            found.st_uid,
            found.st_mode,
            path.read_bytes() if path.is_file() and not path.is_symlink() else b"",
        )
        for path in base.rglob("*")
        for found in [path.lstat()]
    }


def host_at(directory: Path) -> Host:
    return replace(via_host(SHELL), directory=str(directory))


def is_accepted(directory: Path) -> bool:
    """Whether the measuring half starts with this `--dir`."""
    try:
        with Link(host_at(directory)) as link:
            link.ask("left")
    except GputuiError:
        return False
    return True


def evil_archive(evidence: Path) -> bytes:
    """A zip that leaves a line in a file when anything of it runs."""
    text = f"open({str(evidence)!r}, 'a').write('ran\\n'); raise SystemExit"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("__main__.py", text)
        archive.writestr("gputui/__init__.py", text)
    return buffer.getvalue()


KINDS = (
    "his, open to all",
    "missing in his sticky one",
    "a child that he made",
    "a link that he made",
    "a race in a sticky one",
    "ours, open to all",
    "a link of his to ours",
    "his, with our marker",
    "ours in one of his",
    "ours, of a stranger's mode",
)


def swaps(base: Path, tries: int) -> Counter[str]:
    """Start gputui so often in directories in which another account swaps archives and directories meanwhile.

    Counts `started`, `refused`, and `executed`: how often code of the other account ran.
    """
    base.chmod(0o755)
    evidence, evil, ready = base / "evidence", base / "evil.zip", base / "ready"
    field = base / "field"
    field.mkdir()
    evil.write_bytes(evil_archive(evidence))
    for shared in (evidence, ready):
        shared.touch()
        shared.chmod(0o666)
    ready.unlink()
    base.chmod(0o777)
    swapping = subprocess.Popen([sys.executable, "-c", _SWAPPING, str(field), str(evil), str(ready)])
    try:
        while not ready.exists():
            assert swapping.poll() is None
        base.chmod(0o755)
        counts: Counter[str] = Counter()
        for number in range(tries):
            stated = _laid_out(field / str(number), KINDS[number % len(KINDS)], evil)
            (field / str(number)).chmod(0o1777)
            counts["started" if _starts(stated) else "refused"] += 1
            (field / str(number)).chmod(0o700)  # the other account is busy with the next one
        counts["executed"] = evidence.read_text().count("ran")
        return counts
    finally:
        swapping.kill()
        swapping.wait()


def _laid_out(place: Path, kind: str, evil: Path) -> Path:
    """The directory to name with `--dir`."""
    name = f"gputui-{hashlib.sha256(measuring_half()).hexdigest()[:16]}.zip"
    place.mkdir(mode=0o700)

    def made(path: Path, mode: int, user: int) -> Path:
        path.mkdir()
        (path / name).write_bytes(evil.read_bytes() if user else measuring_half())
        os.chown(path / name, user, user)
        os.chown(path, user, user)
        path.chmod(mode)
        return path

    def marked(path: Path) -> Path:
        (path / MARKER).write_text("home of gputui, user 0\n")
        return path

    if kind == "his, open to all":
        return made(place / "his", 0o777, NOBODY)
    if kind == "missing in his sticky one":
        return made(place / "his", 0o1777, NOBODY) / "home"
    if kind == "a child that he made":
        made(place / "gputui-0", 0o755, NOBODY)
        return place
    if kind == "a link that he made":
        (place / "gputui-0").symlink_to(made(place / "his", 0o755, NOBODY))
        os.chown(place / "gputui-0", NOBODY, NOBODY, follow_symlinks=False)
        return place
    if kind == "ours, open to all":
        return marked(made(place / "ours", 0o777, 0))
    if kind == "a link of his to ours":
        (place / "link").symlink_to(marked(made(place / "ours", 0o700, 0)))
        os.chown(place / "link", NOBODY, NOBODY, follow_symlinks=False)
        return place / "link"
    if kind == "his, with our marker":
        return marked(made(place / "his", 0o755, NOBODY))
    if kind == "ours in one of his":
        return marked(made(made(place / "his", 0o755, NOBODY) / "home", 0o700, 0))
    if kind == "ours, of a stranger's mode":
        return marked(made(place / "ours", 0o770, 0))
    return place


def _starts(stated: Path) -> bool:
    """Whether a run is started there, by its supervisor."""
    run_id = new_run_id()
    spec = make_spec(make_plan([0], most_blocks=1), run_id=run_id)
    try:
        with Link(host_at(stated)) as link:
            link.ask("start", run_id=run_id, spec=spec.to_plain(), step="")
            for _ in link.pieces("follow", 300.0, run_id=run_id, offset=0):
                pass
    except GputuiError:
        return False
    return True
