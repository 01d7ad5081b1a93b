"""Profiles some steps of the program that this interpreter runs, which itself stays as it is.

Python imports this module before the program. It waits until torch's optimizers are imported, counts their
steps, and records a few with torch.profiler, while a thread samples the line at which the program is. A
program without optimizer steps is recorded for a while in its main thread. Whatever fails here is written
down, and the program goes on.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

DIRECTORY = "GPUTUI_WHY_DIRECTORY"
STEPS = "GPUTUI_WHY_STEPS"
AFTER = "GPUTUI_WHY_AFTER"
_HERE = Path(__file__).resolve().parent
_OPTIMIZER = "torch.optim.optimizer"
_SETTLED_S = 1.0
"""A program is let run so long before a window, unless it is to begin after a given step."""
_LEAST_BEFORE, _MOST_BEFORE = 3, 50
"""Steps before the window."""
_LEAST_WINDOW_S = 0.5
_LEAST_STEPS, _MOST_STEPS = 3, 100
_UNMARKED_AFTER_S, _UNMARKED_S = 5.0, 2.0
"""Without optimizer steps: when a window begins after the import of torch, and how long it is."""
_ASKED_EVERY_S = 0.5
"""How often the main thread is asked to begin while it imports something, which a profiler could break."""

LINES, MARK = "gputuiLines", "gputui clock"
"""The member of the trace's document that holds the samples, and a range that begins when they know."""
_SAMPLED_EVERY_NS = 5_000_000
_MOST_PAUSES = 200_000
_GC, _OTHER_THREAD = "garbage collection", "another thread"
_LIBRARIES = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))
_LOOKED_NS = 50_000
_LEAST_BUSY = 0.7
"""CPU time of a thread that has the GIL: so much of an interval after which others may ask for it, and of the
CPU time of the one that waits for it."""


def _run_shadowed() -> None:
    """Run the `sitecustomize` that Python would have imported without this one."""
    elsewhere = [entry for entry in sys.path if Path(entry).resolve() != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _is_importing() -> bool:
    frame: FrameType | None = sys._getframe()
    while frame is not None and "importlib._bootstrap" not in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None


def _is_library(path: str) -> bool:
    installed = ("site-packages" in path) or ("dist-packages" in path)
    return installed or path.startswith(("<", *_LIBRARIES)) or path == __file__


def _cpu_ns(thread: int) -> int:
    """CPU time of a thread that is alive; 0 where the system does not tell."""
    clock = getattr(time, "pthread_getcpuclockid", None)
    return 0 if clock is None else time.clock_gettime_ns(clock(thread))


class Lines:
    """Where one thread was, by a look at it every few milliseconds.

    A sample stands for the time since the one before, since a thread that keeps the GIL is seen when it lets
    go. Each pause of the garbage collector is noted exactly.
    """

    def __init__(self, thread: int) -> None:
        self._thread = thread
        self._directory = f"{Path.cwd()}{os.sep}"
        self._places: dict[tuple[str, str, int, str, str], int] = {}
        self._spans: list[list[int]] = []
        """Place, start and end."""
        self._pauses: list[list[int]] = []
        self._pause: tuple[int, int] | None = None
        self._mark_ns = (0, 0)
        self._cpu_ns: dict[int, int] = {}
        self._is_over = False

    def begin(self) -> None:
        """Called in the thread, within the window."""
        import gc

        before_ns = time.perf_counter_ns()
        with sys.modules["torch"].profiler.record_function(MARK):
            self._mark_ns = before_ns, time.perf_counter_ns()
        gc.callbacks.append(self._collected)
        threading.Thread(target=self._sample, name="gputui lines", daemon=True).start()

    def end(self) -> None:
        import gc

        self._is_over = True
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)

    def write(self, trace: Path) -> None:
        """Add the samples to the document of the trace, as its last member."""
        spans = self._spans + self._pauses
        found = {"mark_ns": self._mark_ns, "places": list(self._places), "spans": spans}
        with trace.open("rb+") as file:
            whole = file.seek(0, os.SEEK_END)
            start = file.seek(max(0, whole - 64))
            file.seek(start + file.read().rindex(b"}"))
            file.write(f', "{LINES}": {json.dumps(found)}}}'.encode())

    def _sample(self) -> None:
        before_ns = time.perf_counter_ns()
        while not self._is_over:
            time.sleep(_SAMPLED_EVERY_NS * 1e-9)
            now_ns = time.perf_counter_ns()
            self._look(before_ns, now_ns)
            before_ns = now_ns

    def _look(self, before_ns: int, now_ns: int) -> None:
        frames = sys._current_frames()
        frames.pop(threading.get_ident(), None)
        place = self._held_by(frames, before_ns, now_ns)
        if place is None and self._thread in frames:
            place = self._place(frames[self._thread])
        if place is None:
            return
        last = self._spans[-1] if self._spans else [-1, 0, 0]
        if last[0] == place and last[2] == before_ns:
            last[2] = now_ns
        else:
            self._spans.append([place, before_ns, now_ns])

    def _held_by(self, frames: dict[int, FrameType], before_ns: int, now_ns: int) -> int | None:
        """The place of another thread that needs the GIL and had it: this one got it late, that one worked
        at least as much as the sampled one, and while this one has it, that one stands still."""
        before, self._cpu_ns = self._cpu_ns, {thread: _cpu_ns(thread) for thread in frames}
        took_ns = {thread: ns - before.get(thread, ns) for thread, ns in self._cpu_ns.items()}
        own_ns, interval_ns = took_ns.pop(self._thread, 0), 1e9 * sys.getswitchinterval()
        late_ns = now_ns - before_ns - _SAMPLED_EVERY_NS
        busiest = max(took_ns, key=took_ns.__getitem__, default=None)
        if (
            busiest is None
            or late_ns < _LEAST_BUSY * interval_ns
            or took_ns[busiest] < _LEAST_BUSY * max(own_ns, interval_ns)
        ):
            return None
        start_ns, start_cpu_ns = time.perf_counter_ns(), _cpu_ns(busiest)
        while time.perf_counter_ns() < start_ns + _LOOKED_NS:
            pass
        stands_still = _cpu_ns(busiest) - start_cpu_ns < _LOOKED_NS // 2
        return self._place(frames[busiest], _OTHER_THREAD) if stands_still else None

    def _collected(self, phase: str, _: object) -> None:
        if phase == "start":
            place = self._place(sys._getframe().f_back, _GC)
            self._pause = None if place is None else (place, time.perf_counter_ns())
        elif self._pause is not None and len(self._pauses) < _MOST_PAUSES:
            self._pauses.append([*self._pause, time.perf_counter_ns()])

    def _place(self, frame: FrameType | None, doing: str = "") -> int | None:
        """The number of the innermost line of the program itself."""
        called = ""
        while frame is not None and _is_library(frame.f_code.co_filename):
            called = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
            frame = frame.f_back
        if frame is None:
            return None
        path = frame.f_code.co_filename
        if path.startswith(self._directory):
            path = path[len(self._directory) :]
        key = (doing, path, frame.f_lineno or 0, frame.f_code.co_name, called)
        return self._places.setdefault(key, len(self._places))


class Capture:
    """Counts the steps of one optimizer, and records a window of them."""

    def __init__(self, directory: Path, steps: int, after: int) -> None:
        self._directory = directory
        self._steps = steps
        """0: as many as a window needs."""
        self._after = after
        """0: when the program has settled."""
        self._optimizer: int | None = None
        self._seen = 0
        self._ends_s: list[float] = []
        """Of the steps before the window."""
        self._window_s = 0.0
        self._is_last = False
        self._profiler: Any = None
        self._unmarked: Any = None
        self._lines: Lines | None = None
        self._kept: list[object] = []
        self._is_over = False
        self._told: dict[str, Any] = {"python": sys.version.split()[0]}

    def watch(self, optimizers: ModuleType) -> None:
        """Called once torch's optimizers are imported."""
        optimizers.register_optimizer_step_post_hook(self._stepped)
        torch = sys.modules["torch"]
        self._tell(torch=str(getattr(torch, "__version__", "")))
        threading.Thread(target=self._record_unmarked, name="gputui why", daemon=True).start()

    def _stepped(self, optimizer: object, *_: object) -> None:
        if self._optimizer is None:
            self._optimizer = id(optimizer)
        if id(optimizer) == self._optimizer:
            self._seen += 1
            if not self._is_over:
                self._guarded(self._go_on, time.perf_counter())

    def _go_on(self, now_s: float) -> None:
        if self._profiler is not None:
            self._profiler.step()
            if self._lines is None and not self._is_over:
                self._sample_lines()
            return
        self._ends_s.append(now_s)
        if self._unmarked is None and self._begins(now_s):
            ends_s = self._ends_s
            apart_s = sorted(ends_s[n] - ends_s[n - 1] for n in range(1, len(ends_s))) or [0.0]
            self._tell(first_step=self._seen + 2, before_s=apart_s[len(apart_s) // 2])
            profiler = sys.modules["torch"].profiler
            self._profiler = profiler.profile(
                schedule=self._action, on_trace_ready=self._store, record_shapes=True
            )
            self._profiler.start()

    def _sample_lines(self) -> None:
        self._lines = Lines(threading.get_ident())
        self._lines.begin()

    def _begins(self, now_s: float) -> bool:
        if self._after:
            return self._seen >= self._after
        has_settled = self._seen >= _LEAST_BEFORE and now_s - self._ends_s[0] >= _SETTLED_S
        return has_settled or self._seen >= _MOST_BEFORE

    def _action(self, step: int) -> Any:
        """What the profiler does in its step: the first warms it up, the last is stored after it."""
        action = sys.modules["torch"].profiler.ProfilerAction
        if step == 0:
            return action.WARMUP
        if self._is_last:
            return action.NONE
        now_s = time.perf_counter()
        if step == 1:
            self._window_s = now_s
        if self._steps:
            self._is_last = step == self._steps
        else:
            is_enough = step >= _LEAST_STEPS and now_s - self._window_s >= _LEAST_WINDOW_S
            self._is_last = is_enough or step == _MOST_STEPS
        return action.RECORD_AND_SAVE if self._is_last else action.RECORD

    def _store(self, profiler: Any) -> None:
        self._is_over = True
        self._export(profiler, "trace")

    def _export(self, profiler: Any, kind: str) -> None:
        lines, self._lines = self._lines, None
        if lines is not None:
            lines.end()
        begun_s = time.perf_counter()
        name = f"{kind}-{os.environ.get('RANK', '0')}-{os.getpid()}.json"
        profiler.export_chrome_trace(str(self._directory / name))
        self._tell(trace=name, has_steps=kind == "trace", export_s=time.perf_counter() - begun_s)
        if lines is not None:
            lines.write(self._directory / name)

    def _record_unmarked(self) -> None:
        """Where no optimizer makes a step: let the main thread record a while; steps count more."""
        time.sleep(_UNMARKED_AFTER_S)
        while not (self._seen or self._unmarked or self._is_over):
            self._in_main_thread(self._start_unmarked)
            time.sleep(_ASKED_EVERY_S)
        if self._unmarked:
            time.sleep(_UNMARKED_S)
            self._in_main_thread(self._stop_unmarked)

    def _in_main_thread(self, call: Callable[[], None]) -> None:
        """Wait until the main thread has called this, between two instructions of Python."""
        import ctypes

        is_done = threading.Event()

        def pending(_: object) -> int:
            self._guarded(call)
            is_done.set()
            return 0

        asked = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(pending)
        self._kept.append(asked)  # the interpreter holds only its address
        ctypes.pythonapi.Py_AddPendingCall(asked, None)
        is_done.wait()

    def _start_unmarked(self) -> None:
        if not (self._seen or self._is_over or _is_importing()):
            profiler = sys.modules["torch"].profiler.profile(record_shapes=True)
            profiler.start()
            self._unmarked = profiler
            self._sample_lines()

    def _stop_unmarked(self) -> None:
        profiler, self._unmarked = self._unmarked, None
        if profiler is not None:
            profiler.stop()
            self._export(profiler, "unmarked")

    def _guarded(self, call: Callable[..., None], *arguments: object) -> None:
        try:
            call(*arguments)
        except Exception as error:
            self._is_over = True
            self._tell(failed=f"{type(error).__name__}: {error}")

    def end(self) -> None:
        """Called when the program ends, which may be within a window."""
        if self._unmarked is not None:
            self._guarded(self._stop_unmarked)
        if self._profiler is not None and not self._is_over:
            self._guarded(self._profiler.stop)
        self._tell(seen=self._seen)

    def _tell(self, **what: object) -> None:
        self._told.update(what)
        path = self._directory / f"told-{os.environ.get('RANK', '0')}-{os.getpid()}.json"
        try:
            path.write_text(json.dumps(self._told), encoding="utf-8")
        except OSError:
            self._is_over = True  # there is nowhere to write a trace to either


class _WhenImported(MetaPathFinder):
    """Calls `on_import` with a module once it has been imported."""

    def __init__(self, name: str, on_import: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._on_import = on_import

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> Any:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Notifying(spec.loader, self._on_import)
        return spec


class _Notifying(Loader):
    def __init__(self, loader: Any, on_import: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._on_import = on_import

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._on_import(module)


def _install() -> None:
    import atexit

    if str(_HERE) in sys.path:
        sys.path.remove(str(_HERE))
    directory = os.environ.get(DIRECTORY)
    if not directory or "--multiprocessing-fork" in sys.argv:
        return
    capture = Capture(Path(directory), int(os.environ.get(STEPS, "0")), int(os.environ.get(AFTER, "0")))
    sys.meta_path.insert(0, _WhenImported(_OPTIMIZER, capture.watch))
    atexit.register(capture.end)


_run_shadowed()
_install()
