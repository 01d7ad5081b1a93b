"""Serves a gputui on another machine over stdin and stdout: describes this one, starts runs, sends journals.

A request is a line of JSON on stdin; `do` names it. An answer is one line of JSON, or several, each followed
by as many bytes as its `bytes` says; the last one has no `more`. The agent ends with stdin, and a run it has
started does not. It writes only below one directory.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any  # Any: JSON

from gputui.errors import GputuiError
from gputui.machine.describing import describe_machine
from gputui.machine.identity import host_id
from gputui.model.absent import to_plain
from gputui.model.journal import JOURNAL_NAME, TELEMETRY_NAME, check_line
from gputui.recording.own_directory import NotOurs, clean, entries, verified_name
from gputui.recording.probing import chosen_interpreter, describe_step, probe_interpreter
from gputui.recording.run_directory import (
    RESERVE_BYTES,
    Spec,
    boot_id,
    holds_a_journal,
    is_held,
    read_holder,
    write_spec,
)
from gputui.recording.worker_process import end_left_worker
from gputui.sources.processes import user_name
from gputui.worker.foreign_json import read_json

RUNS = "runs"
STEP_NAME = "step.py"
SUPERVISOR_LOG = "supervisor.log"
ALIVE_EVERY_S = 5.0
"""How often a silent journal is reported as silent, so that the other side can tell it from a dead link."""
_POLL_S = 0.25
_CASE_EVERY_S = 5.0
_PIECE_BYTES = 1 << 18
_LOG_BYTES = 1 << 16
_REQUEST_BYTES = 1 << 24
_CACHES = {
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "CUDA_CACHE_PATH": "cuda",
    "XDG_CACHE_HOME": "xdg",
}
"""Where torch and the driver keep what they compiled; by default in the home directory and in /tmp."""


class _Closed(Exception):
    """The other side is gone."""


def serve(home: Path, archive: Path, descriptor: int, digest: str) -> None:
    """Answer requests until stdin ends. `archive` is the zip that this code is in, open and of this hash."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no answer
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    _write_only_below(home)
    agent = _Agent(home, descriptor, partial(verified_name, descriptor, archive, digest), answers)
    with contextlib.suppress(_Closed, KeyboardInterrupt):
        while True:
            agent.serve_one()


def _write_only_below(home: Path) -> None:
    """Keep temporary files and caches of this process and its children below `home`. Raises OSError."""
    scratch = home / "tmp"
    scratch.mkdir(mode=0o700, exist_ok=True)
    tempfile.tempdir = str(scratch)
    os.environ["TMPDIR"] = str(scratch)
    for name, directory in _CACHES.items():
        os.environ[name] = str(home / "cache" / directory)


def _run_dirs_in(home: Path) -> list[Path]:
    """The directories of runs that were started from elsewhere."""
    with contextlib.suppress(OSError):
        return sorted(entry for entry in (home / RUNS).iterdir() if entry.is_dir())
    return []


class _Agent:
    """Requests come from stdin, and answers go to another descriptor. For one thread."""

    def __init__(self, home: Path, archive: int, verified: Callable[[], str], answers: int) -> None:
        """`archive` is the open zip, and `verified` the path by which it is run once its hash is checked."""
        self._home = home
        self._archive = archive
        self._verified = verified
        self._answers = answers
        self._pending = b""
        self._does: Mapping[str, Callable[..., None]] = {
            "describe": self._describe,
            "describe_step": self._describe_step,
            "start": self._start,
            "follow": self._follow,
            "read": self._read,
            "stop": self._stop,
            "forget": self._forget,
            "left": self._left,
            "clean": self._clean,
            "watch": self._watch,
        }

    def serve_one(self) -> None:
        """Wait for a request and answer it. Raises _Closed at the end of stdin."""
        request = self._request(None)
        assert request is not None
        try:
            does = self._does[request.pop("do")]
            does(**request)
        except GputuiError as error:
            self._answer(error=error.message, hint=error.hint, code=error.exit_code)
        except NotOurs as error:
            self._answer(error=str(error), hint="name another directory: --dir", code=0)
        except OSError as error:
            self._answer(error=error.strerror or str(error), hint="", code=0, errno=error.errno or 0)
        except (_Closed, KeyboardInterrupt):
            raise
        except Exception as error:  # one request must not end the others
            traceback.print_exc()
            self._answer(error=f"{type(error).__name__}: {error}", hint="", code=0)

    def _request(self, timeout_s: float | None) -> dict[str, Any] | None:
        """The next request; None if there is none in time. Raises _Closed at the end of stdin."""
        while b"\n" not in self._pending:
            readable, _, _ = select.select([0], [], [], timeout_s)
            if not readable:
                return None
            data = os.read(0, 1 << 16)
            if not data or len(self._pending) > _REQUEST_BYTES:
                raise _Closed
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        found: dict[str, Any] = read_json(line)
        return found

    def _answer(self, payload: bytes = b"", **fields: object) -> None:
        """Send one line, and the bytes that belong to it. Raises _Closed if nobody reads them."""
        if payload:
            fields["bytes"] = len(payload)
        data = json.dumps(fields).encode() + b"\n" + payload
        try:
            while data:
                data = data[os.write(self._answers, data) :]
        except OSError as error:
            raise _Closed from error

    def _describe(self, key: str, python: str | None) -> None:
        """What this machine is, and what its Python can measure.

        Blocks while torch is imported. Raises GputuiError if the stated Python cannot measure.
        """
        secret = bytes.fromhex(key)
        chosen = chosen_interpreter(python, os.environ, lambda path: probe_interpreter([path]))
        self._answer(
            machine=to_plain(describe_machine(hash_key=secret)),
            interpreter=to_plain(chosen),
            found_as=chosen.found_as,
            passed_over=list(chosen.passed_over),
            host_id=host_id(secret),
            boot_id=boot_id(),
            utc_us=time.time_ns() // 1000,
            free_bytes=shutil.disk_usage(self._home).free,
            load=os.getloadavg()[0],
            in_progress=[run_dir.name for run_dir in _run_dirs_in(self._home) if is_held(run_dir)],
            others=list(_other_supervisors()),
        )

    def _describe_step(self, python: str, step: str) -> None:
        """What a user's workload declares, as the interpreter that would measure it reads it."""
        with tempfile.TemporaryDirectory(prefix="step-") as scratch:
            path = Path(scratch) / STEP_NAME
            path.write_text(step, encoding="utf-8")
            self._answer(step=describe_step((python,), path))

    def _start(self, run_id: str, spec: dict[str, Any], step: str) -> None:
        """Start a run that goes on by itself; does nothing to one that was started before."""
        run_dir = self._run_dir(run_id)
        if not (run_dir / JOURNAL_NAME).exists():
            run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            if step:
                (run_dir / STEP_NAME).write_text(step, encoding="utf-8")
                spec["plan"]["step_file"] = str(run_dir / STEP_NAME)
            write_spec(run_dir, spec)
            self._supervise(run_dir)
        self._answer(started=True)

    def _supervise(self, run_dir: Path) -> None:
        if shutil.disk_usage(run_dir).free < 4 * RESERVE_BYTES:
            raise GputuiError(f"no space is left in {self._home}", "make some there, or name another: --dir")
        source = self._verified()
        with (run_dir / SUPERVISOR_LOG).open("wb") as log:
            supervisor = subprocess.Popen(
                [sys.executable, "-I", source, str(run_dir)],
                pass_fds=(self._archive,),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=run_dir,
                start_new_session=True,
            )
        while not holds_a_journal(run_dir):
            if supervisor.poll() is not None:
                said = (run_dir / SUPERVISOR_LOG).read_text(errors="replace").strip().split("\n")[0]
                raise GputuiError(f"the run did not begin: {said[:200]}")
            time.sleep(0.02)

    def _follow(self, run_id: str, offset: int) -> None:
        """Send what is new in a journal, from `offset`, until its supervisor is gone or a request arrives."""
        run_dir = self._run_dir(run_id)
        if not (run_dir / JOURNAL_NAME).exists():
            raise GputuiError(f"run {run_id[-8:]} is not there")
        spoken_s = time.monotonic()
        with (run_dir / JOURNAL_NAME).open("rb") as journal:
            journal.seek(offset)
            while True:
                is_over = not is_held(run_dir)
                while piece := journal.read(_PIECE_BYTES):
                    self._send(piece, offset)
                    offset += len(piece)
                    spoken_s = time.monotonic()
                if is_over:
                    end_left_worker(run_dir)
                    self._answer(ended=True, logs=[path.name for path in _logs(run_dir)])
                    return
                if time.monotonic() - spoken_s > ALIVE_EVERY_S:
                    self._answer(more=True)
                    spoken_s = time.monotonic()
                asked = self._request(_POLL_S)
                if asked is not None and asked.get("do") != "stop":
                    raise GputuiError(f"{asked.get('do')}: a run is being followed")
                if asked is not None:
                    _end(run_dir)

    def _watch(self, interval_s: float, processes: bool) -> None:
        """Send live samples as they come, until stdin ends."""
        from gputui.recording.collector import live_collector, plain_sample  # bakeoffs need neither

        packer, came = zlib.compressobj(6), threading.Event()
        collector = live_collector(interval_s, came.set)
        collector.want_processes(processes)
        collector.start()
        spoken_s = looked_s = -math.inf
        case, sent = "", None
        try:
            while True:
                asked = self._request(min(interval_s, ALIVE_EVERY_S))
                if asked is not None and asked.get("do") == "processes":
                    collector.want_processes(bool(asked["wanted"]))
                elif asked is not None and asked.get("do") == "interval":
                    interval_s = float(asked["seconds"])
                    collector.set_interval(interval_s)
                came.wait(_POLL_S)
                came.clear()
                now_s = time.monotonic()
                if now_s - looked_s > _CASE_EVERY_S:
                    case, looked_s = self._case_in_progress(), now_s
                sample = collector.latest()
                if sample is not sent or now_s - spoken_s > ALIVE_EVERY_S:
                    text = json.dumps(plain_sample(sample, case), separators=(",", ":")).encode() + b"\n"
                    self._answer(packer.compress(text) + packer.flush(zlib.Z_SYNC_FLUSH), more=1)
                    sent, spoken_s = sample, now_s
        finally:
            collector.close()

    def _case_in_progress(self) -> str:
        """The cases of the launch in progress, of a run that was started from elsewhere; empty for none."""
        for run_dir in _run_dirs_in(self._home):
            if is_held(run_dir):
                with contextlib.suppress(OSError, GputuiError, ValueError, IndexError, KeyError):
                    starts = [
                        line
                        for line in (run_dir / JOURNAL_NAME).read_bytes().split(b"\n")
                        if b'"LaunchStart"' in line
                    ]
                    cases = Spec.read(run_dir).plan.cases
                    ids = read_json(check_line(starts[-1]) or b"{}")["case_ids"]
                    return ", ".join(cases[case_id].case.name for case_id in ids)
        return ""

    def _read(self, run_id: str, name: str, offset: int) -> None:
        """Send a file of a run; of a log its end."""
        run_dir = self._run_dir(run_id)
        known = {path.name: path for path in (*_logs(run_dir), run_dir / TELEMETRY_NAME)}
        with contextlib.suppress(KeyError, FileNotFoundError), known[name].open("rb") as file:
            if name != TELEMETRY_NAME:
                offset = max(offset, known[name].stat().st_size - _LOG_BYTES)
            file.seek(offset)
            while piece := file.read(_PIECE_BYTES):
                self._send(piece, offset)
                offset += len(piece)
        self._answer(offset=offset)

    def _send(self, piece: bytes, offset: int) -> None:
        packed = zlib.compress(piece, 6)
        self._answer(packed, more=True, offset=offset, unpacked=len(piece))

    def _stop(self, run_id: str) -> None:
        _end(self._run_dir(run_id))
        self._answer(stopped=True)

    def _forget(self, run_id: str) -> None:
        """Remove the directory of a run that was brought home."""
        run_dir = self._run_dir(run_id)
        if not is_held(run_dir):
            shutil.rmtree(run_dir, ignore_errors=True)
        self._answer(forgotten=not run_dir.exists())

    def _left(self) -> None:
        """What gputui has made in the directory."""
        size, made = 0, entries(self._home)
        for path in (path for entry in made for path in (entry, *entry.rglob("*"))):
            with contextlib.suppress(OSError):
                size += path.lstat().st_size if path.is_file() else 0
        runs = [{"run_id": d.name, "in_progress": is_held(d)} for d in _run_dirs_in(self._home)]
        names = [entry.name for entry in made]
        self._answer(path=str(self._home), entries=names, size=size, runs=runs)

    def _clean(self) -> None:
        """Remove what gputui has made in the directory, unless a run is in progress there."""
        held = [run_dir.name for run_dir in _run_dirs_in(self._home) if is_held(run_dir)]
        if held:
            raise GputuiError(f"run {held[0][-8:]} is in progress there", "end it first, or wait")
        others = clean(self._home)
        self._answer(path=str(self._home), others=len(others))

    def _run_dir(self, run_id: str) -> Path:
        if not run_id or not set(run_id) <= set("0123456789abcdef-"):
            raise GputuiError(f"{run_id[:60]!r} is not the id of a run")
        return self._home / RUNS / run_id


def _logs(run_dir: Path) -> list[Path]:
    return [path for path in (run_dir / SUPERVISOR_LOG, *sorted(run_dir.glob("logs/*.log"))) if path.exists()]


def _end(run_dir: Path) -> None:
    """Ask the supervisor to end its run and keep what is finished."""
    holder = read_holder(run_dir)
    if holder is not None and is_held(run_dir) and holder.lives_here():
        with contextlib.suppress(ProcessLookupError):
            os.kill(holder.pid, signal.SIGTERM)


def _other_supervisors() -> Iterator[str]:
    """Who else measures on this machine, as `PID 123 of ann`: started here, from a zip, or by any user."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            owner = entry.stat().st_uid
        except OSError:
            continue
        is_zip = any(
            word.startswith(b"/proc/self/fd/") or word.rpartition(b"/")[2].startswith(b"gputui-")
            for word in words[1:3]
        )
        if b"gputui.recording" in words[1:4] or (is_zip and b"/runs/" in b" ".join(words)):
            yield f"PID {entry.name} of {user_name(owner)}"
