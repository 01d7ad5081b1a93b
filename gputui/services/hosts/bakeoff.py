"""A bakeoff: the same profile on several hosts at once, each run by itself there and brought home here."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec

from gputui.errors import GputuiError, NotStored, bug_text, clean_text
from gputui.model.journal import (
    JOURNAL_NAME,
    NOTHING_MEASURED,
    STORED_NAME,
    TELEMETRY_NAME,
    CaseEnd,
    LaunchEnd,
    RunEnd,
    RunStart,
)
from gputui.recording.run_directory import Spec, held_if_free
from gputui.recording.supervisor import HARD_STOP
from gputui.services.hosts.host import Host
from gputui.services.hosts.link import AT_ONCE, FilePart, HostFailed, Link, LinkLost
from gputui.services.results.labels import machine_words
from gputui.services.runs.process import mark_stored
from gputui.services.runs.progress import ProgressTracker
from gputui.services.support.paths import state_directory
from gputui.store.journal_reader import JournalTail, read_journal, read_telemetry
from gputui.store.writing import store_run
from gputui.worker.foreign_json import read_json_file

GIVES_UP_AFTER_S = 300.0
FILE_TIMEOUT_S = 600.0
START_S = 900.0
"""Besides the budget: torch from a cold disk, and one launch that ends late."""
LARGEST_JOURNAL = 128 * 2**20
LARGEST_TELEMETRY = 128 * 2**20
LARGEST_LOG = 2**17
MOST_LOGS = 64
_LOG_NAME = re.compile(r"launch-\d{3,6}\.log|supervisor\.log")
_NOTE = "bakeoff.json"
_RECENT_S = 86_400.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0

WAITING, STARTING, RUNNING, LOST, FETCHING, DONE, STOPPED, FAILED = (
    "waiting",
    "starting",
    "running",
    "link lost",
    "bringing home",
    "done",
    "stopped",
    "failed",
)
"""Of a host. DONE: measured to the end and stored; STOPPED: stored, but ended early."""
STYLES = {DONE: "good", RUNNING: "accent", LOST: "warn", STOPPED: "warn", FAILED: "alarm"}


def bakeoffs_directory() -> Path:
    """Contains one directory per bakeoff, with one per run in it."""
    return state_directory() / "bakeoffs"


@dataclass(frozen=True, slots=True)
class HostStatus:
    """One host of a bakeoff at one moment."""

    name: str
    state: str
    why: str
    device: str = ""
    """Its GPUs or processor; empty before its journal has it."""
    case: str = ""
    rate: str = ""
    share_done: float | None = None
    left_s: float | None = None
    health: str = ""
    silent_s: float = 0.0


class HostRun:
    """One host's part of a bakeoff. Its thread changes it; `status` may be called from any."""

    def __init__(self, host: Host, spec: Spec, run_dir: Path, step: str = "") -> None:
        self.host = host
        self.spec = spec
        self.run_dir = run_dir
        self.target = Path(spec.target)
        self.step = step
        """The text of a user's workload; empty without one."""
        self.state = WAITING
        self.why = ""
        self._lock = threading.Lock()
        self._tracker = ProgressTracker([spec.plan])
        self._tail = JournalTail(run_dir)
        self._heard_s = time.monotonic()
        self._has_failures = False
        self._has_results = False
        self._is_what_came_stored = False
        self._end: RunEnd | None = None
        self._link: Link | None = None
        self._is_stopped = threading.Event()
        self._read_journal()
        if (run_dir / STORED_NAME).exists():
            self._set(*self._how_stored())

    @property
    def run_id(self) -> str:
        return self.run_dir.name

    @property
    def short_id(self) -> str:
        return self.run_id[-8:]

    @property
    def is_over(self) -> bool:
        return self.state in (DONE, STOPPED, FAILED)

    @property
    def is_stored(self) -> bool:
        """Whether what it measured is in the result file, to its end or not."""
        return self.state in (DONE, STOPPED) or self._is_what_came_stored

    @property
    def is_whole(self) -> bool:
        """Whether it was measured to its end and stored."""
        return self.state == DONE

    @property
    def has_measured(self) -> bool:
        """Whether what is stored of it has a result."""
        return self.is_stored and self._has_results

    @property
    def has_begun(self) -> bool:
        """Whether anything of its journal is here."""
        return self._journal_bytes() > 0

    def status(self) -> HostStatus:
        """What to show of it now."""
        silent_s = time.monotonic() - self._heard_s
        with self._lock:
            picture = self._tracker.picture()
        case = next((case for case in picture.cases if case.is_now), None)
        warnings = [event.message for event in picture.events if event.level in ("warning", "error")]
        is_running = self.state == RUNNING
        return HostStatus(
            name=self.host.name,
            state=self.state,
            why=self.why,
            device="" if picture.machine is None else clean_text(machine_words(picture.machine)),
            case="" if case is None or self.is_over else case.short_name,
            rate="" if case is None or self.is_over else " ".join(filter(None, (case.rate, case.spread))),
            share_done=1.0 if self.is_whole else picture.share_done if is_running else None,
            left_s=picture.left_s if is_running else None,
            health=warnings[-1] if warnings else "",
            silent_s=silent_s,
        )

    def fail(self, error: Exception) -> None:
        """End it for an error that nobody foresaw."""
        self._set(FAILED, f"{bug_text(error)}; --resume goes on")

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
                        FAILED, f"{error.message}; its results are kept there: --resume brings them home"
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
                raise HostFailed("it was stopped before it started")
            if self.state != LOST:
                self._set(STARTING)
            link = Link(self.host)
        with link:
            self._link = link
            try:
                if not self.has_begun:
                    with gate:
                        link.ask("start", run_id=self.run_id, spec=self.spec.to_plain(), step=self.step)
                self._set(RUNNING)
                if self._is_stopped.is_set():
                    link.ask("stop", run_id=self.run_id)
                logs = self._bring_journal(link)
                self._set(FETCHING)
                self._bring_file(link, TELEMETRY_NAME, self.run_dir / TELEMETRY_NAME, LARGEST_TELEMETRY)
                for name in logs if self._has_failures or self._end is None else ():
                    self._bring_log(link, name)
                self._store()
                with suppress(HostFailed):  # `--clean` removes what is left
                    link.ask("forget", run_id=self.run_id)
            finally:
                self._link = None

    def _bring_journal(self, link: Link) -> Sequence[str]:
        """Append what is new to the journal here until the run has ended; returns the names of its logs."""
        path = self.run_dir / JOURNAL_NAME
        offset = self._journal_bytes()
        # After so long it has ended, or its supervisor never ends it.
        longest_s = 2 * (START_S + HARD_STOP * self.spec.plan.budget_s)
        with path.open("ab") as journal:
            for piece in link.pieces("follow", longest_s, run_id=self.run_id, offset=offset):
                self._heard_s = time.monotonic()
                if isinstance(piece, FilePart):
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
            for piece in link.pieces("read", FILE_TIMEOUT_S, run_id=self.run_id, name=name, offset=0):
                self._heard_s = time.monotonic()
                if isinstance(piece, FilePart):
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
                if isinstance(line, LaunchEnd) and line.outcome == "ok":
                    self._has_results = True
                if isinstance(line, RunEnd):
                    self._end = line

    def _store_what_came(self) -> None:
        if self.has_begun:
            why = self.why
            with suppress(GputuiError, OSError):
                self._store()
                self._is_what_came_stored = True
                self._set(FAILED, f"{why}; what came is stored as {self.short_id}")

    def _store(self) -> None:
        """Store the run. Raises GputuiError if the journal is not of this run."""
        contents = read_journal(self.run_dir)
        self._check(contents.start)
        if self.host.clock_ahead_s:
            began_us = contents.start.started_utc_us - round(1e6 * self.host.clock_ahead_s)
            contents = replace(contents, start=replace(contents.start, started_utc_us=began_us))
        with _STORING:
            stored = store_run(self.target, contents, read_telemetry(self.run_dir))
        mark_stored(self.run_dir, self.target)
        state, why = self._how_stored()
        if stored.left_out and not why:
            why = f"left out: {clean_text(stored.left_out[0])}"
        self._set(state, why)

    def _how_stored(self) -> tuple[str, str]:
        """The state of a run that is stored, and why it did not come to its end."""
        if self._end is not None and self._end.status == "finished":
            return DONE, ""
        why = "its supervisor was killed"
        if self._end is not None:
            why = clean_text(self._end.reason) or self._end.status
        return STOPPED, why if why == NOTHING_MEASURED else f"{why}: what was finished is stored"

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
    ) -> None:
        self.directory = directory
        self.runs = tuple(runs)
        self.groups = groups
        self.gives_up_after_s = gives_up_after_s
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
                    f"another gputui is already bringing bakeoff {self.name} home",
                    "wait for it, or end it with Ctrl-\\",
                )
            yield

    @property
    def target(self) -> Path:
        return self.runs[0].target

    @staticmethod
    def create(
        name: str,
        parts: Sequence[tuple[Host, Spec]],
        groups: Sequence[Sequence[int]],
        step: str = "",
        gives_up_after_s: float = GIVES_UP_AFTER_S,
    ) -> Bakeoff:
        """Write down what is to be done, before anything begins. Raises NotStored.

        `groups` are indices of `parts`; the hosts of one group are measured one after the other.
        """
        directory = bakeoffs_directory() / name
        try:
            directory.mkdir(parents=True, mode=0o700)
            note = {
                "hosts": [{**asdict(host), "run_id": spec.run_id} for host, spec in parts],
                "groups": [list(group) for group in groups],
                "step": step,
            }
            (directory / _NOTE).write_text(json.dumps(note, indent=1), encoding="utf-8")
            for _, spec in parts:
                run_dir = directory / spec.run_id
                run_dir.mkdir(mode=0o700)
                spec.write(run_dir)
        except OSError as error:
            raise NotStored(
                f"{directory}: cannot be created ({error.strerror})",
                "set GPUTUI_STATE to a directory you can write to",
            ) from error
        return Bakeoff.read(directory, gives_up_after_s)

    @staticmethod
    def read(directory: Path, gives_up_after_s: float = GIVES_UP_AFTER_S) -> Bakeoff:
        """Read what `create` wrote. Raises GputuiError."""
        try:
            note = read_json_file(directory / _NOTE)
            runs = []
            for plain in note["hosts"]:
                run_dir = directory / plain.pop("run_id")
                host = msgspec.convert(plain, Host)
                runs.append(HostRun(host, Spec.read(run_dir), run_dir, note["step"]))
            return Bakeoff(directory, runs, note["groups"], gives_up_after_s)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise GputuiError(
                f"{directory}: is not a bakeoff ({error})", "gputui bakeoff --host A --host B"
            ) from error

    def start(self) -> None:
        """Start and follow all runs in threads; returns at once."""
        self._threads = [
            threading.Thread(target=self._bring_group, args=(group,), name=f"host {group[0]}", daemon=True)
            for group in self.groups
        ]
        for thread in self._threads:
            thread.start()

    def _bring_group(self, group: Sequence[int]) -> None:
        for index in group:
            run = self.runs[index]
            try:
                run.bring_home(self._gate, self.gives_up_after_s)
            except Exception as error:  # the others go on
                run.fail(error)

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
    kept = sorted(note.parent for note in bakeoffs_directory().glob(f"*/{_NOTE}"))
    found = [directory for directory in kept if directory.name.startswith(name)]
    if not found:
        what = f"there is no bakeoff {name!r} here" if name else "there is no bakeoff to resume here"
        raise GputuiError(what, "gputui bakeoff --host A --host B starts one")
    return Bakeoff.read(found[-1], gives_up_after_s)


def bakeoffs_in_progress() -> list[Bakeoff]:
    """The bakeoffs of today that are not over, newest first."""
    found = []
    for note in sorted(bakeoffs_directory().glob(f"*/{_NOTE}"), reverse=True):
        with suppress(GputuiError, OSError):
            if time.time() - note.stat().st_mtime < _RECENT_S:
                bakeoff = Bakeoff.read(note.parent)
                found += [] if bakeoff.is_over else [bakeoff]
    return found


def bakeoff_in_progress(name: str) -> Bakeoff | None:
    """The bakeoff of exactly this name; with "", the newest one in progress."""
    if not name:
        return next(iter(bakeoffs_in_progress()), None)
    try:
        found = find_bakeoff(name)
    except GputuiError:
        return None
    return found if found.name == name else None
