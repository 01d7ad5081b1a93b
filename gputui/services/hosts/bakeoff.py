"""A bakeoff: the same profile on several hosts at once, each run by itself there and brought home here."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from gputui.errors import GputuiError, NotStored
from gputui.model.journal import (
    JOURNAL_NAME,
    STORED_NAME,
    TELEMETRY_NAME,
    CaseEnd,
    LaunchEnd,
    RunEnd,
    RunStart,
)
from gputui.recording.lock import held_if_free
from gputui.recording.spec import Spec
from gputui.services.hosts.box import Box, describe, step_profile
from gputui.services.hosts.host import Host
from gputui.services.hosts.link import HostFailed, Link, LinkLost, Piece
from gputui.services.profiles.loader import Profile
from gputui.services.runs.process import mark_stored
from gputui.services.runs.progress import ProgressTracker
from gputui.services.support.paths import state_directory
from gputui.store.journal_reader import JournalTail, read_journal, read_telemetry
from gputui.store.text import clean_text
from gputui.store.writing import store_run

T = TypeVar("T")

AT_ONCE = 32
"""Hosts that are probed, sent to or started at the same time."""
GIVES_UP_AFTER_S = 300.0
"""How long a host that was lost is looked for."""
LARGEST_JOURNAL = 128 * 2**20
LARGEST_TELEMETRY = 128 * 2**20
LARGEST_LOG = 2**17
MOST_LOGS = 64
_LOG_NAME = re.compile(r"launch-\d{3,6}\.log|supervisor\.log")
_NOTE = "bakeoff.json"
_RECENT_S = 86_400.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0

WAITING, STARTING, RUNNING, LOST, FETCHING, DONE, FAILED = (
    "waiting",
    "starting",
    "running",
    "link lost",
    "bringing home",
    "done",
    "failed",
)


def bakeoffs_directory() -> Path:
    """Contains one directory per bakeoff, with one per run in it."""
    return state_directory() / "bakeoffs"


def on_all(hosts: Sequence[Host], do: Callable[[Host], T]) -> list[T | GputuiError]:
    """The result of `do` for each host, or its error; for many hosts at the same time."""

    def one(host: Host) -> T | GputuiError:
        try:
            return do(host)
        except GputuiError as error:
            return error

    with ThreadPoolExecutor(min(len(hosts), AT_ONCE)) as pool:
        return list(pool.map(one, hosts))


@dataclass(frozen=True, slots=True)
class HostStatus:
    """One host of a bakeoff at one moment."""

    name: str
    state: str
    why: str
    """What went wrong and what to do; empty while all is well."""
    case: str
    rate: str
    share_done: float | None
    left_s: float | None
    health: str
    silent_s: float
    """Since the host was heard last."""


class HostRun:
    """One host's part of a bakeoff. Its thread changes it; `status` may be called from any."""

    def __init__(self, host: Host, spec: Spec, run_dir: Path, step: str = "") -> None:
        self.host = host
        self.spec = spec
        self.run_dir = run_dir
        self.step = step
        """The text of a user's workload; empty without one."""
        self.state = DONE if (run_dir / STORED_NAME).exists() else WAITING
        self.why = ""
        self._lock = threading.Lock()
        self._tracker = ProgressTracker([spec.plan])
        self._tail = JournalTail(run_dir)
        self._heard_s = time.monotonic()
        self._has_failures = False
        self._end: RunEnd | None = None
        self._link: Link | None = None
        self._is_stopped = threading.Event()
        self._read_journal()

    @property
    def short_id(self) -> str:
        return self.spec.run_id[-8:]

    @property
    def is_over(self) -> bool:
        return self.state in (DONE, FAILED)

    @property
    def is_whole(self) -> bool:
        """Whether it was measured to its end and stored."""
        return self.state == DONE and self._end is not None and self._end.status == "finished"

    @property
    def has_begun(self) -> bool:
        """Whether anything of its journal is here."""
        return self._journal_bytes() > 0

    def status(self) -> HostStatus:
        """What to show of it now."""
        with self._lock:
            picture = self._tracker.picture()
        case = next((case for case in picture.cases if case.is_now), None)
        warnings = [event.message for event in picture.events if event.level in ("warning", "error")]
        is_running = self.state == RUNNING
        return HostStatus(
            name=self.host.name,
            state=self.state,
            why=self.why,
            case="" if case is None or self.is_over else case.short_name,
            rate="" if case is None or self.is_over else " ".join(filter(None, (case.rate, case.spread))),
            share_done=1.0 if self.state == DONE else picture.share_done if is_running else None,
            left_s=picture.left_s if is_running else None,
            health=warnings[-1] if warnings else "",
            silent_s=time.monotonic() - self._heard_s,
        )

    def end(self) -> None:
        """Its thread ends: what is not over by now was left by an error that nobody foresaw."""
        if not self.is_over:
            self._set(FAILED, "this is a bug in gputui; --resume goes on")

    def stop(self) -> None:
        """Ask the host to end its run and keep what is finished; one that has not begun never does."""
        self._is_stopped.set()
        link = self._link
        if link is not None and self.state == RUNNING:
            with suppress(GputuiError, OSError, ValueError):
                link.send("stop")

    def bring_home(self, gate: threading.Semaphore, gives_up_after_s: float) -> None:
        """Start the run unless it has begun, follow it to its end, and store it. Never raises GputuiError.

        Blocks until it is stored or given up. `gate` is held while the host is logged in to and started.
        """
        pause_s = _FIRST_PAUSE_S
        self._heard_s = time.monotonic()
        while not self.is_over:
            try:
                self._follow(gate)
                return
            except LinkLost as error:
                self._set(LOST, f"{error.message}: {error.hint}")
                if self._is_stopped.is_set() or time.monotonic() - self._heard_s > gives_up_after_s:
                    self._set(
                        FAILED, f"{error.message}; what it measures is kept there: --resume brings it home"
                    )
                    return
            except NotStored as error:
                self._set(FAILED, f"{error.message}: gputui import {self.run_dir} --db FILE")
                return
            except (GputuiError, OSError) as error:
                hint = f": {error.hint}" if isinstance(error, GputuiError) and error.hint else ""
                self._set(FAILED, f"{error}{hint}")
                self._store_what_came()
                return
            if not self._is_stopped.wait(pause_s):
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _set(self, state: str, why: str = "") -> None:
        self.state, self.why = state, why

    def _follow(self, gate: threading.Semaphore) -> None:
        with gate:
            if self._is_stopped.is_set() and not self.has_begun:
                raise HostFailed("it was stopped before it began")
            if self.state != LOST:
                self._set(STARTING)
            link = Link(self.host)
        with link:
            self._link = link
            try:
                if not self.has_begun:
                    with gate:
                        link.ask("start", run_id=self.spec.run_id, spec=self.spec.to_plain(), step=self.step)
                self._set(RUNNING)
                if self._is_stopped.is_set():
                    link.ask("stop", run_id=self.spec.run_id)
                logs = self._bring_journal(link)
                self._set(FETCHING)
                self._bring_file(link, TELEMETRY_NAME, self.run_dir / TELEMETRY_NAME, LARGEST_TELEMETRY)
                for name in logs if self._has_failures or self._end is None else ():
                    self._bring_log(link, name)
                self._store()
                with suppress(HostFailed):  # `--clean` removes what is left, `doctor --host` lists it
                    link.ask("forget", run_id=self.spec.run_id)
            finally:
                self._link = None

    def _bring_journal(self, link: Link) -> Sequence[str]:
        """Append what is new to the journal here until the run has ended; returns the names of its logs."""
        path = self.run_dir / JOURNAL_NAME
        offset = self._journal_bytes()
        with path.open("ab") as journal:
            for piece in link.pieces("follow", run_id=self.spec.run_id, offset=offset):
                self._heard_s = time.monotonic()
                if isinstance(piece, Piece):
                    if piece.data:
                        if piece.offset != offset:
                            raise HostFailed(f"it sent byte {piece.offset} of its journal for byte {offset}")
                        offset += len(piece.data)
                        if offset > LARGEST_JOURNAL:
                            raise HostFailed(f"its journal is larger than {LARGEST_JOURNAL >> 20} MiB")
                        journal.write(piece.data)
                        journal.flush()
                        self._read_journal()
                else:
                    logs = piece.get("logs")
                    return [name for name in logs if isinstance(name, str)] if isinstance(logs, list) else []
        raise LinkLost("the link broke", "")

    def _bring_file(self, link: Link, name: str, path: Path, largest: int) -> None:
        size = 0
        draft = path.with_suffix(".part")
        with draft.open("wb") as file:
            for piece in link.pieces("read", run_id=self.spec.run_id, name=name, offset=0):
                self._heard_s = time.monotonic()
                if isinstance(piece, Piece):
                    size += len(piece.data)
                    if size > largest:
                        raise HostFailed(f"its {name} is larger than {largest >> 10} KiB")
                    file.write(piece.data)
        if size:
            draft.replace(path)
        else:
            draft.unlink()

    def _bring_log(self, link: Link, name: str) -> None:
        directory = self.run_dir / "logs"
        directory.mkdir(exist_ok=True)
        if _LOG_NAME.fullmatch(name) and sum(1 for _ in directory.iterdir()) < MOST_LOGS:
            self._bring_file(link, name, directory / name, LARGEST_LOG)

    def _journal_bytes(self) -> int:
        try:
            return (self.run_dir / JOURNAL_NAME).stat().st_size
        except OSError:
            return 0

    def _read_journal(self) -> None:
        with self._lock:
            for line in self._tail.poll():
                self._tracker.hear(0, line)
                if isinstance(line, LaunchEnd | CaseEnd) and line.outcome == "failed":
                    self._has_failures = True
                if isinstance(line, RunEnd):
                    self._end = line

    def _store_what_came(self) -> None:
        if self.has_begun:
            why = self.why
            with suppress(GputuiError, OSError):
                self._store()
                self._set(FAILED, f"{why}; what came is stored as {self.short_id}")

    def _store(self) -> None:
        """Store the run. Raises GputuiError if the journal is not of this run."""
        contents = read_journal(self.run_dir)
        self._check(contents.start)
        with _STORING:
            stored = store_run(Path(self.spec.target), contents, read_telemetry(self.run_dir))
        mark_stored(self.run_dir, Path(self.spec.target))
        why = "" if self._end is not None else "its supervisor was killed: what was finished is stored"
        if self._end is not None and self._end.status != "finished":
            why = f"{self._end.status}: {clean_text(self._end.reason)}"
        elif stored.left_out:
            why = f"left out: {clean_text(stored.left_out[0])}"
        self._set(DONE, why)

    def _check(self, start: RunStart) -> None:
        """A journal may only be of the run that was sent: it could replace another one in the file."""
        expected = self.spec.start_now()
        for name in ("run_id", "profile", "profile_version", "seed", "replicates", "label", "price"):
            if getattr(start, name) != getattr(expected, name):
                raise HostFailed(f"its journal is of another run than the one that was sent: {name}")


_STORING = threading.Lock()
"""Result files are written by one thread at a time."""


class Bakeoff:
    """All hosts of a bakeoff, kept in a directory so that another process can go on with it."""

    def __init__(
        self,
        directory: Path,
        runs: Sequence[HostRun],
        groups: Sequence[Sequence[int]],
        gives_up_after_s: float = GIVES_UP_AFTER_S,
        words: Sequence[str] = (),
    ) -> None:
        self.words = tuple(words)
        """Of the command line that began it, without the program; empty if unknown."""
        self.directory = directory
        self.runs = tuple(runs)
        self._groups = groups
        self._gives_up_after_s = gives_up_after_s
        self._gate = threading.Semaphore(AT_ONCE)
        self._threads: list[threading.Thread] = []

    @property
    def name(self) -> str:
        """On the command line."""
        return self.directory.name

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to bring home."""
        return all(run.is_over for run in self.runs)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold it for this process. Raises GputuiError if another one brings it home."""
        with held_if_free(self.directory) as is_free:
            if not is_free:
                raise GputuiError(
                    f"another gputui brings bakeoff {self.name} home", "wait for it, or end it with Ctrl-\\"
                )
            yield

    @property
    def target(self) -> Path:
        return Path(self.runs[0].spec.target)

    @staticmethod
    def create(
        name: str,
        parts: Sequence[tuple[Host, Spec]],
        groups: Sequence[Sequence[int]],
        step: str = "",
        words: Sequence[str] = (),
        gives_up_after_s: float = GIVES_UP_AFTER_S,
    ) -> Bakeoff:
        """Write down what is to be done, before anything begins. Raises NotStored.

        `groups` are indices of `parts`; the hosts of one group are measured one after the other. `words` are
        those of the command line.
        """
        directory = bakeoffs_directory() / name
        try:
            directory.mkdir(parents=True, mode=0o700)
            note = {
                "hosts": [{**asdict(host), "run_id": spec.run_id} for host, spec in parts],
                "groups": [list(group) for group in groups],
                "step": step,
                "words": list(words),
            }
            (directory / _NOTE).write_text(json.dumps(note, indent=1), encoding="utf-8")
            for _, spec in parts:
                (directory / spec.run_id).mkdir(mode=0o700)
                spec.write(directory / spec.run_id)
        except OSError as error:
            raise NotStored(
                f"{directory}: cannot be made ({error.strerror})",
                "set GPUTUI_STATE to a directory you may write",
            ) from error
        runs = [HostRun(host, spec, directory / spec.run_id, step) for host, spec in parts]
        return Bakeoff(directory, runs, groups, gives_up_after_s, words)

    @staticmethod
    def read(directory: Path, gives_up_after_s: float = GIVES_UP_AFTER_S) -> Bakeoff:
        """Read what `create` wrote. Raises GputuiError."""
        try:
            note = json.loads((directory / _NOTE).read_text(encoding="utf-8"))
            runs = []
            for plain in note["hosts"]:
                run_dir = directory / plain.pop("run_id")
                host = Host(**{**plain, "prefix": tuple(plain["prefix"])})
                runs.append(HostRun(host, Spec.read(run_dir), run_dir, note["step"]))
            return Bakeoff(directory, runs, note["groups"], gives_up_after_s, note["words"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise GputuiError(
                f"{directory}: is not a bakeoff ({error})", "gputui bakeoff --host A --host B"
            ) from error

    def start(self) -> None:
        """Start and follow all runs in threads; returns at once."""
        self._threads = [
            threading.Thread(target=self._bring_group, args=(group,), name=f"host {group[0]}", daemon=True)
            for group in self._groups
        ]
        for thread in self._threads:
            thread.start()

    def _bring_group(self, group: Sequence[int]) -> None:
        for index in group:
            run = self.runs[index]
            try:
                run.bring_home(self._gate, self._gives_up_after_s)
            finally:
                run.end()

    def stop(self) -> None:
        """Have all hosts end their runs and keep what is finished; returns at once."""
        for run in self.runs:
            run.stop()

    def wait(self, timeout_s: float) -> bool:
        """Wait until all threads have ended, or for so long; returns whether they have."""
        deadline_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)


def find_bakeoff(name: str, gives_up_after_s: float = GIVES_UP_AFTER_S) -> Bakeoff:
    """The bakeoff of this name, or the beginning of one; with "", the newest. Raises GputuiError."""
    try:
        found = sorted(
            d for d in bakeoffs_directory().iterdir() if (d / _NOTE).exists() and d.name.startswith(name)
        )
    except OSError:
        found = []
    if not found:
        what = f"there is no bakeoff {name!r} here" if name else "there is no bakeoff to go on with here"
        raise GputuiError(what, "gputui bakeoff --host A --host B starts one")
    return Bakeoff.read(found[-1], gives_up_after_s)


def bakeoff_in_progress(name: str) -> Bakeoff | None:
    """The bakeoff of exactly this name; with "", the newest if it is of today and not over."""
    try:
        found = find_bakeoff(name)
    except GputuiError:
        return None
    if name:
        return found if found.name == name else None
    is_recent = time.time() - (found.directory / _NOTE).stat().st_mtime < _RECENT_S
    return found if is_recent and not found.is_over else None


def probed(key: bytes) -> Callable[[Host], Box]:
    """A function that asks a host what it is."""

    def one(host: Host) -> Box:
        with Link(host) as link:
            return describe(link, key)

    return one


def probed_with_step(key: bytes, path: Path, step: str) -> Callable[[Host], tuple[Box, Profile]]:
    """A function that asks a host what it is, and what a user's workload declares there."""

    def one(host: Host) -> tuple[Box, Profile]:
        with Link(host) as link:
            box = describe(link, key)
            return box, step_profile(link, box, path, step)

    return one


def cleaned(host: Host) -> str:
    """Remove what gputui left on a host; returns the directory. Raises HostFailed."""
    with Link(host) as link:
        return clean_text(str(link.ask("clean").get("path", "")))[:200]
