"""Profiles some steps of the program that this interpreter runs, which itself stays as it is.

Python imports this module before the program. It waits until torch's optimizers are imported, counts their
steps, and records a few with torch.profiler, while a thread samples the line at which the program is. Where
no optimizer makes steps, calls of backward() count as steps; a program without either is recorded for a while
in its main thread. Whatever fails here is written down, and the program goes on.
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
from array import array
from collections.abc import Callable
from functools import wraps
from importlib.abc import MetaPathFinder
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
_MOST_COMPILING = 8
"""Steps in which torch.compile compiles, after which it is taken to go on doing so."""
_MOST_TIMED = 100_000
_UNMARKED_AFTER_S, _UNMARKED_S = 5.0, 2.0
"""Without optimizer steps: how long after its first call backward() counts instead; without that either, when
a window begins after the import of torch, and how long it is."""
_ASKED_EVERY_S, _PREPARED_S = 0.5, 2.0
"""How often the main thread is asked to begin while it imports something, which a profiler could break, or
compiles; and how long after that, since what is compiled next may follow."""
_AT_ITS_IMPORTS, _COMPILING = "importlib._bootstrap", ("_dynamo/convert_frame.py", "_inductor/compile_fx.py")

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


def _is_preparing() -> bool:
    """Whether this thread imports something, or torch.compile compiles in it."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        path = frame.f_code.co_filename
        if _AT_ITS_IMPORTS in path or path.endswith(_COMPILING):
            return True
        frame = frame.f_back
    return False


def _compiled() -> tuple[int, int]:
    """How often torch.compile has compiled code for the first time, and code that it had compiled before."""
    module = sys.modules.get("torch._dynamo.convert_frame")
    counts: dict[Any, int] = getattr(module, "FRAME_COMPILE_COUNTER", {})
    return len(counts), sum(counts.values()) - len(counts)


def _is_library(path: str) -> bool:
    installed = any(folder in path for folder in ("site-packages", "dist-packages", "torchinductor_"))
    return installed or path.startswith(("<", *_LIBRARIES)) or path == __file__


def _cpu_ns(thread: int) -> int:
    """CPU time of a thread that is alive; 0 where the system does not tell."""
    clock = getattr(time, "pthread_getcpuclockid", None)
    return 0 if clock is None else time.clock_gettime_ns(clock(thread))


def _waited_ns(thread: int | None) -> int:
    """How long a thread that is alive has waited for a core; 0 where the system does not tell."""
    try:
        return int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


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
        self._pauses: list[list[int]] = []
        self._pause: tuple[int, int] | None = None
        self._mark_ns = (0, 0)
        self._looks: threading.Thread | None = None
        self._cpu_ns: dict[int, int] = {}
        self._is_over = False

    def begin(self) -> None:
        """Called in the thread, within the window."""
        import gc

        before_ns = time.perf_counter_ns()
        with sys.modules["torch"].profiler.record_function(MARK):
            self._mark_ns = before_ns, time.perf_counter_ns()
        gc.callbacks.append(self._collected)
        self._looks = threading.Thread(target=self._sample, name="gputui lines", daemon=True)
        self._looks.start()

    def end(self) -> int:
        """Returns how long its own looks waited for a core, in ns: the program did not wait for that."""
        import gc

        waited_ns = 0 if self._looks is None else _waited_ns(self._looks.native_id)
        self._is_over = True
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)
        return waited_ns

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
        if place is not None:
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


class Steps:
    """The steps that one kind of mark ends."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.seen = self.recorded = 0
        self.first_s = 0.0
        self._last_s = 0.0
        self._took_s, self._compiling_s = array("d"), array("d")
        """Of those that were not recorded; apart, those in which torch.compile compiled."""
        self._compiled = (0, 0)
        self._compiling = 0
        """Steps in which torch.compile compiled."""
        self._since_compiling = 0

    def end(self, now_s: float, *, is_recorded: bool) -> None:
        self.seen += 1
        self.recorded += is_recorded
        self.first_s = self.first_s or now_s
        before, self._compiled = self._compiled, _compiled()
        compiles = self._compiled != before
        took_s = self._compiling_s if compiles else self._took_s
        if self._last_s and not is_recorded and len(took_s) < _MOST_TIMED:
            took_s.append(now_s - self._last_s)
        self._last_s = 0.0 if is_recorded else now_s
        self._compiling += compiles
        self._since_compiling = 0 if compiles else self._since_compiling + 1

    def have_settled(self) -> bool:
        """Whether a window may begin: what is done once at the beginning is over."""
        compiles = self._since_compiling < _LEAST_BEFORE and self._compiling < _MOST_COMPILING
        are_enough = self.seen >= _LEAST_BEFORE and self._last_s - self.first_s >= _SETTLED_S
        return not compiles and (are_enough or self.seen >= _MOST_BEFORE)

    def times(self, *, compiles: bool) -> dict[str, float]:
        """Median and mean of the steps that were not recorded, as far as there are any.

        Those in which torch.compile compiled count if recorded ones do so too.
        """
        took_s = sorted([*self._took_s, *(self._compiling_s if compiles else ())])
        if not took_s:
            return {"step_s": 0.0, "mean_step_s": 0.0}
        return {"step_s": took_s[len(took_s) // 2], "mean_step_s": sum(took_s) / len(took_s)}


class Capture:
    """Counts the steps of one optimizer, or calls of backward(), and records a window of them."""

    def __init__(self, directory: Path, steps: int, after: int) -> None:
        self._directory = directory
        self._steps = steps
        """0: as many as a window needs."""
        self._after = after
        """0: when the program has settled."""
        self._optimizer: int | None = None
        self._by_optimizer = Steps("optimizer")
        self._by_backward = Steps("backward")
        self._recorded: Steps | None = None
        """Those that the window is of, once it has begun."""
        self._backward_thread = 0
        """The thread that calls it; autograd's own may call it within a call of that one."""
        self._backward_depth = 0
        self._window_s = 0.0
        self._compiled_before = (0, 0)
        self._is_last = False
        self._profiler: Any = None
        self._unmarked: Any = None
        self._prepares_until_s = 0.0
        self._lines: Lines | None = None
        self._kept: list[object] = []
        self._is_over = False
        self._told: dict[str, Any] = {"python": sys.version.split()[0]}

    def watch(self, optimizers: ModuleType) -> None:
        """Called once torch's optimizers are imported."""
        optimizers.register_optimizer_step_post_hook(self._stepped)
        torch = sys.modules["torch"]
        torch.autograd.backward = self._counting(torch.autograd.backward)
        self._tell(torch=str(getattr(torch, "__version__", "")))
        threading.Thread(target=self._record_unmarked, name="gputui why", daemon=True).start()

    def _stepped(self, optimizer: object, *_: object) -> None:
        if self._optimizer is None:
            self._optimizer = id(optimizer)
        if id(optimizer) == self._optimizer:
            self._ended(self._by_optimizer)

    def _counting(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        """torch.autograd.backward, whose outermost calls are counted: Tensor.backward() calls it too."""

        @wraps(backward)
        def counted(*arguments: Any, **named: Any) -> Any:
            self._backward_thread = self._backward_thread or threading.get_ident()
            if self._backward_thread != threading.get_ident():
                return backward(*arguments, **named)
            self._backward_depth += 1
            try:
                return backward(*arguments, **named)
            finally:
                self._backward_depth -= 1
                if not self._backward_depth:
                    self._ended(self._by_backward)

        return counted

    def _ended(self, steps: Steps) -> None:
        now_s = time.perf_counter()
        is_recorded = not self._is_over and self._profiler is not None
        steps.end(now_s, is_recorded=is_recorded or self._unmarked is not None)
        if not self._is_over:
            self._guarded(self._go_on, steps, now_s)

    def _go_on(self, steps: Steps, now_s: float) -> None:
        if self._recorded is not None:
            if steps is self._recorded:
                self._profiler.step()
                if self._lines is None and not self._is_over:
                    self._sample_lines()
        elif self._unmarked is None and self._begins(steps, now_s):
            self._recorded = steps
            self._tell(first_step=steps.seen + 2, marks=steps.mark, **steps.times(compiles=True))
            profiler = sys.modules["torch"].profiler
            self._profiler = profiler.profile(
                schedule=self._action, on_trace_ready=self._store, record_shapes=True
            )
            self._profiler.start()

    def _sample_lines(self) -> None:
        self._compiled_before = _compiled()
        self._lines = Lines(threading.get_ident())
        self._lines.begin()

    def _begins(self, steps: Steps, now_s: float) -> bool:
        if steps is self._by_backward:
            has_optimizer = self._optimizer is not None or now_s - steps.first_s < _UNMARKED_AFTER_S
            if has_optimizer or steps.seen < _LEAST_BEFORE:
                return False
        return steps.seen >= self._after if self._after else steps.have_settled()

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
        steps = (self._recorded or self._by_backward).recorded
        self._tell(backward_calls=self._by_backward.recorded / max(steps, 1))
        self._export(profiler, "trace")

    def _export(self, profiler: Any, kind: str) -> None:
        lines, self._lines = self._lines, None
        if lines is not None:
            self._tell(looks_waited_ns=lines.end())
        name = f"{kind}-{os.environ.get('RANK', '0')}-{os.getpid()}.json"
        profiler.export_chrome_trace(str(self._directory / name))
        compiled = [now - before for now, before in zip(_compiled(), self._compiled_before, strict=True)]
        self._tell(trace=name, has_steps=kind == "trace", compiled=compiled)
        if lines is not None:
            lines.write(self._directory / name)

    def _record_unmarked(self) -> None:
        """Where nothing marks a step: let the main thread record a while; steps count more."""
        time.sleep(_UNMARKED_AFTER_S)
        while not (self._has_marks() or self._unmarked or self._is_over):
            self._in_main_thread(self._start_unmarked)
            time.sleep(_ASKED_EVERY_S)
        if self._unmarked:
            time.sleep(_UNMARKED_S)
            self._in_main_thread(self._stop_unmarked)

    def _has_marks(self) -> bool:
        return bool(self._by_optimizer.seen or self._by_backward.seen or self._backward_depth)

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
        now_s = time.perf_counter()
        if _is_preparing():
            self._prepares_until_s = now_s + _PREPARED_S
        if not (self._has_marks() or self._is_over or now_s < self._prepares_until_s):
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
        steps = self._recorded or (self._by_optimizer if self._by_optimizer.seen else self._by_backward)
        times = steps.times(compiles=any(self._told.get("compiled", ())))
        self._tell(seen=steps.seen, marks=steps.mark, **times)

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
        loader: Any = None if spec is None else spec.loader
        if loader is not None:
            load = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                self._on_import(module)

            loader.exec_module = exec_module
        return spec


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
