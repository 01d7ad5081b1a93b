"""Reads small system files below a root that tests can replace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gputui.model.absent import Missing

_MAX_BYTES = 2 * 2**20
"""/proc/cpuinfo of 512 threads is below 1 MiB, and Linux refuses to read 4 MiB of a file in /proc/sys."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of the mount table."""

    point: str
    root: str
    """Which part of the file system is mounted; `/` for all of it."""
    kind: str
    """File system type, such as `tmpfs`."""
    options: tuple[str, ...]
    """Of the file system; for cgroup v1 the controllers are among them."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The files and the environment that a description is made from."""

    root: Path
    environ: Mapping[str, str]

    def at(self, path: str) -> Path:
        """The path below the root."""
        return self.root / path.lstrip("/")

    def text(self, path: str) -> str | Missing:
        """Content of a small file, stripped; undecodable bytes are replaced."""
        try:
            with self.at(path).open("rb") as file:
                raw = file.read(_MAX_BYTES)
        except FileNotFoundError:
            return Missing(f"{path} is not there")
        except PermissionError:
            return Missing(f"no permission to read {path}")
        except (OSError, ValueError):
            return Missing(f"{path} cannot be read")
        return raw.decode(errors="replace").strip("\0 \t\r\n")

    def found_text(self, path: str) -> str:
        """Content of a small file; empty if there is none."""
        text = self.text(path)
        return "" if isinstance(text, Missing) else text

    def integer(self, path: str) -> int | Missing:
        """The content of a file with one whole number."""
        text = self.text(path)
        if isinstance(text, Missing):
            return text
        try:
            return int(text)
        except ValueError:
            return Missing(f"{path} holds no number")

    def exists(self, path: str) -> bool:
        """Whether something exists at this path; False if permission is denied."""
        try:
            return self.at(path).exists()
        except OSError:
            return False

    def changed_s(self, path: str) -> float | Missing:
        """When a file's content was last changed, in UTC epoch seconds."""
        try:
            return self.at(path).stat().st_mtime
        except OSError:
            return Missing(f"{path} is not there")

    def mounts(self) -> tuple[Mount, ...]:
        """The mount table of this process, in order; empty if it cannot be read."""
        return tuple(
            mount
            for line in self.found_text("/proc/self/mountinfo").splitlines()
            if (mount := _parse_mount(line)) is not None
        )


def _parse_mount(line: str) -> Mount | None:
    # proc(5): id parent major:minor root point options [optional...] - type source super-options
    head, separator, tail = line.partition(" - ")
    fields, rest = head.split(), tail.split()
    if not separator or len(fields) < 6 or not rest:
        return None
    options = rest[2].split(",") if len(rest) > 2 else []
    return Mount(_unescape(fields[4]), _unescape(fields[3]), rest[0], tuple(options))


def _unescape(text: str) -> str:
    for escaped, plain in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(escaped, plain)
    return text
