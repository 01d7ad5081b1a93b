"""Which Python of a box measures, what it can measure with, and how long a user's steps take.

Also the code that is sent to another Python: the worker's, or the measuring half as one zip.
"""

from __future__ import annotations

import contextlib
import importlib.resources
import io
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any  # Any: the JSON of a probe

from gputui.errors import EXIT_MACHINE_LACKS, GputuiError, MachineLacks
from gputui.machine.gpus import gpu_addresses, join_gpu
from gputui.model.absent import Missing
from gputui.model.machine import Interpreter, Runtime, TorchDevice
from gputui.model.plan import Plan
from gputui.recording.pacing import PROFILED_S
from gputui.recording.worker_process import WorkerProcess, described_launch
from gputui.version import version
from gputui.worker import MIN_BLOCKS
from gputui.worker.accelerator import narrow
from gputui.worker.foreign_json import read_json_file
from gputui.worker.probe import NEEDED_TORCH
from gputui.worker.start import NEEDED_PYTHON, OLDEST_PYTHON

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

PROBE_TIMEOUT_S = 120.0
"""Importing torch from a cold network disk takes up to a minute."""
TRIAL_S = 60.0
"""For the first steps of all cases of a user's workload."""
PROFILED_STEPS = 8
"""So many steps are as long as a profiled pass of three."""
NAMELESS = (
    "CUDA opens this MIG instance by none of its names (tried: MIG- and the UUID that torch tells, its index,"
    " the names that the driver lists)"
)
_NAME_ANOTHER = "name another Python that has torch: --python ~/envs/torch/bin/python"

_OF_TORCH = (
    "torch_version",
    "torch_cuda",
    "torch_hip",
    "cudnn_version",
    "nccl_version",
    "triton_version",
    "cpu_capability",
    "blas",
)


def probe_interpreter(prefix: Sequence[str], timeout_s: float = PROBE_TIMEOUT_S) -> dict[str, Any]:
    """Start a worker with `prefix` and return its answer, plain JSON that may be cached.

    Blocks for the time torch takes to import. Raises MachineLacks if it is too old, GputuiError if `prefix`
    is not a Python, does not answer in `timeout_s` seconds, or dies.
    """
    answer = _answer(prefix, ("probe",), timeout_s)
    for device in answer.get("devices", ()):
        if " MIG " in device["name"] and device["runs_here"]:
            taken = {other["uuid"] for other in answer["devices"] if other is not device}
            _name_instance(device, taken - {""}, prefix, timeout_s)
    return answer


def _name_instance(
    device: dict[str, Any], taken: Collection[str], prefix: Sequence[str], timeout_s: float
) -> None:
    """Give a MIG instance the name by which a worker reaches it: the first that another probe can open.

    torch may tell the UUID of the whole GPU. The driver's own names are `MIG-UUID`, and before R470
    `MIG-GPU-UUID/INSTANCE/INSTANCE` (NVIDIA MIG User Guide, "CUDA_VISIBLE_DEVICES").
    """
    addresses = gpu_addresses()
    gpu = join_gpu(addresses, device["uuid"], device["pci_address"])
    listed = () if isinstance(gpu, Missing) else addresses[gpu].mig_uuids
    for uuid in dict.fromkeys((device["uuid"], "", *listed)):
        if uuid not in taken and _opens(device, uuid or str(device["index"]), prefix, timeout_s):
            device["uuid"] = uuid
            return
    device.update(runs_here=False, why_not=NAMELESS)


def _opens(device: Mapping[str, Any], visible: str, prefix: Sequence[str], timeout_s: float) -> bool:
    """Whether a process that sees only `visible` opens a context on this MIG instance, or on one like it."""
    environment = dict(os.environ)
    narrow(environment, device["torch_device"], visible)
    try:
        seen = _answer(prefix, ("probe",), timeout_s, environment)["devices"]
    except GputuiError:  # CUDA can make a process die
        return False
    same = ("torch_device", "name", "pci_address")
    return any(one["free_bytes"] is not None and all(one[key] == device[key] for key in same) for one in seen)


def try_steps(plan: Plan, failed: dict[int, tuple[str, str]]) -> tuple[float, float] | None:
    """Seconds that the longest step of a plan takes, and all its passes if every step takes as long.

    Builds each case and takes a few of its steps. `failed` gets the cases that fail: why, and the last line
    of the worker's log, which no file gets. None if that takes longer than TRIAL_S, or a case ends otherwise:
    the run itself will say why. Raises OSError if no worker can be started.
    """
    longest_s, passes_s, ends_s = 0.0, 0.0, time.monotonic() + TRIAL_S
    for launch in plan.launches:
        if launch.replicate:
            continue
        begun_s, block_s, waiting = time.monotonic(), 0.0, set(launch.case_ids)
        with _deployed() as (start, answer):
            described = described_launch(plan, replace(launch, profiled=()), answer.parent, 0.0, TRIAL_S)
            worker = WorkerProcess(plan.interpreter, start, answer.parent, launch, described)
            try:
                while waiting:
                    select.select([worker.channel], [], [], 0.25)
                    for message in worker.messages(worker.channel.read() or b""):
                        kind, case_id = message["kind"], message.get("case_id", -1)
                        if kind == "block" and case_id in waiting:
                            waiting.discard(case_id)
                            block_s += message["wall_ns"] / 1e9
                            longest_s = max(longest_s, message["wall_ns"] / message["steps"] / 1e9)
                        elif kind == "case_end" and message["outcome"] == "failed":
                            waiting.discard(case_id)
                            failed[case_id] = str(message["reason"]), worker.log_tail(1)
                        elif kind in ("case_end", "end"):
                            return None
                    if waiting and (worker.exit_status is not None or time.monotonic() > ends_s):
                        return None
            finally:
                worker.end()
        passes_s += (time.monotonic() - begun_s + MIN_BLOCKS * block_s) * plan.replicates
        passes_s += len(launch.profiled) * max(PROFILED_S, PROFILED_STEPS * longest_s)
    return longest_s, passes_s


def check_torch(prefix: Sequence[str], plain: Mapping[str, Any]) -> None:
    """Raise MachineLacks if the torch of this answer is too old; does nothing if there is no torch."""
    version = plain.get("old_torch_version")
    if version is not None:
        shown = " ".join(prefix)
        raise MachineLacks(
            f"{shown} has torch {version}; {NEEDED_TORCH}",
            f"{shown} -m pip install -U torch; or {_NAME_ANOTHER}",
        )


def old_python(shown: str, version: str) -> MachineLacks:
    """The error for a Python that is too old."""
    return MachineLacks(f"{shown} is Python {version}; {NEEDED_PYTHON}", _NAME_ANOTHER)


def describe_step(prefix: Sequence[str], file: Path) -> dict[str, Any]:
    """What a user's workload declares, read by the interpreter `prefix`; or `error`.

    Raises GputuiError as `probe_interpreter` does, also if the file makes the interpreter die or hang.
    """
    return _answer(prefix, ("describe", str(file)), PROBE_TIMEOUT_S)


def _answer(
    prefix: Sequence[str], words: Sequence[str], timeout_s: float, environment: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """The JSON file that a worker writes for this command."""
    shown = " ".join(prefix)
    with _deployed() as (start, answer):
        try:
            status, said = _run([*prefix, str(start), *words, str(answer)], timeout_s, environment)
        except subprocess.TimeoutExpired as error:
            raise GputuiError(
                f"--python {shown}: no answer within {timeout_s:g} s",
                f"run `{shown} -c 'import torch'` to see where it hangs",
            ) from error
        except OSError as error:
            raise GputuiError(
                f"--python {shown}: cannot be started ({error.strerror})",
                "give the path of a Python 3.10 or newer",
            ) from error
        try:
            plain: dict[str, Any] = read_json_file(answer)
        except (OSError, ValueError) as error:
            why = said[:200] or "no message"
            raise GputuiError(
                f"--python {shown}: is not a Python that can measure (exit {status}: {why})",
                "give the path of a Python 3.10 or newer",
            ) from error
    if "old_python_version" in plain:
        raise old_python(shown, plain["old_python_version"])
    return plain


@contextlib.contextmanager
def _deployed() -> Iterator[tuple[Path, Path]]:
    """The worker in a temporary directory, and a path for its answer; in memory if the disk has no room."""
    with contextlib.ExitStack() as stack:
        for place in (None, "/dev/shm"):
            try:
                made = tempfile.TemporaryDirectory(prefix="gputui-probe-", dir=place)
                scratch = Path(stack.enter_context(made))
                start = copy_worker(scratch)
                break
            except OSError as error:
                why = error.strerror
        else:
            raise GputuiError(
                f"no temporary directory can be written ({why})", "set TMPDIR to a directory with 1 MiB"
            )
        yield start, scratch / "answer.json"


def _run(command: Sequence[str], timeout_s: float, environment: Mapping[str, str]) -> tuple[int, str]:
    """Exit status, and the line on stderr that explains it. Ends the processes it started, even at a timeout.

    A Python explains its failure in the last line; a launcher that finds no Python (126, 127) in the first.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**environment, "PYTHONDONTWRITEBYTECODE": "1", "KINETO_LOG_LEVEL": "6"},
        start_new_session=True,
    ) as process:
        try:
            said = process.communicate(timeout=timeout_s)[1]
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    lines = said.decode(errors="replace").strip().split("\n")
    return process.returncode, lines[0 if process.returncode in (126, 127) else -1]


def interpreter_from_plain(plain: dict[str, Any]) -> Interpreter:
    """The meaning of a probe's answer. Raises KeyError or TypeError if it is malformed."""
    missing = plain["torch_missing"]
    why = Missing(f"torch {missing}" if missing else "not in this torch")
    found = {name: plain.get(name) for name in _OF_TORCH}
    values = {name: why if value is None else value for name, value in found.items()}
    runtime = Runtime(
        python_version=plain["python_version"],
        python_implementation=plain["python_implementation"],
        arch_list=tuple(plain.get("arch_list", ())),
        **values,
    )
    devices = tuple(TorchDevice(**device) for device in plain["devices"])
    visible = plain["hidden_by"], plain["amd_gpus"], plain["first_gpu"]
    return Interpreter(plain["executable"], runtime, devices, *visible)


_PROBE = """
import sys
sys.path[:] = [p for p in sys.path if p]
try:
    from importlib.util import find_spec
    has_torch = find_spec("torch") is not None
except ImportError:
    has_torch = False
print("%d.%d.%d %d" % (sys.version_info[:3] + (has_torch,)))
"""
"""Runs in any Python, also 2.7; a directory called torch next to the user does not count."""
_USUAL_PLACES = (
    "/venv/main/bin/python",
    "/opt/conda/bin/python",
    "/opt/venv/bin/python",
    "/usr/local/bin/python3",
    "/usr/bin/python3",
)
"""Pythons in which cloud images install torch."""


def chosen_interpreter(
    stated: str | None, environ: Mapping[str, str], probe: Callable[[str], dict[str, Any]]
) -> Interpreter:
    """The stated interpreter, or the first whose torch can measure; if there is none, this process's own.

    `probe` is `probe_interpreter` of one path, or a cache before it. Raises MachineLacks if the stated one,
    or its torch, is too old, and GputuiError if it cannot measure.
    """
    if stated is not None:
        path = executable_at(stated)
        answer = probe(path)
        check_torch([path], answer)
        return replace(interpreter_from_plain(answer), found_as="--python")
    passed_over: dict[str, str] = {}
    own_error: GputuiError | None = None
    for path, found_as in _candidates(environ):
        if path in passed_over:
            continue
        try:
            if not _has_torch(path):
                continue
            answer = probe(path)
            check_torch([path], answer)
        except GputuiError as error:
            if path == sys.executable and not isinstance(error, MachineLacks):
                own_error = error
            passed_over[path] = error.message
            continue
        interpreter = interpreter_from_plain(answer)
        if not answer["torch_missing"]:
            return replace(interpreter, found_as=found_as, passed_over=tuple(passed_over.values()))
        passed_over[path] = f"{path}: torch {answer['torch_missing']}"
    if own_error is not None:
        raise own_error
    ours = interpreter_from_plain(probe(sys.executable))
    passed_over.pop(sys.executable, None)
    return replace(ours, found_as="this Python", passed_over=tuple(passed_over.values()))


def executable_at(stated: str) -> str:
    """The absolute path of the program that `--python` names; does not execute it.

    Raises GputuiError if there is none.
    """
    try:
        expanded = str(Path(stated).expanduser()) if stated.startswith("~") else stated
    except RuntimeError:  # unknown user
        expanded = stated
    path = shutil.which(expanded)
    if path is None:
        hint = "give the path of a Python, such as ~/envs/torch/bin/python"
        if stated and Path(expanded).is_dir():
            hint = f"give the Python inside it, such as {stated.rstrip('/')}/bin/python"
        raise GputuiError(f"--python {stated}: is not an executable file", hint)
    return str(Path(path).absolute())  # symlinks are not resolved: they identify a venv


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield sys.executable, "this Python"
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if environ.get(variable):
            yield str(Path(environ[variable]) / "bin" / "python"), f"${variable}"
    on_path = shutil.which("python3")
    if on_path:
        yield on_path, "python3 on the path"
    for place in _USUAL_PLACES:
        yield place, place


def _has_torch(path: str) -> bool:
    """Whether it has any torch, without importing it. Raises MachineLacks if only the Python is too old."""
    try:
        done = subprocess.run([path, "-c", _PROBE], capture_output=True, timeout=20, check=False)
        version, has_torch = done.stdout.decode(errors="replace").split()
        is_old = tuple(map(int, version.split("."))) < OLDEST_PYTHON
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return False
    if has_torch == "1" and is_old:
        raise old_python(path, version)
    return has_torch == "1"


WORKER_PACKAGE = "gputui_worker"
MEASURING_HALF = ("model", "sources", "machine", "worker", "recording")
_CODE = (".py", ".csv")
_MAIN = f"""import sys
if sys.version_info < {OLDEST_PYTHON}:
    version = ".".join(map(str, sys.version_info[:3]))
    sys.stderr.write(sys.executable + " is Python " + version + "; {NEEDED_PYTHON}\\n")
    sys.exit({EXIT_MACHINE_LACKS})
from gputui.recording.__main__ import main
sys.exit(main())
"""
"""Valid in every Python, so that one that is too old can say so."""


def copy_worker(target: Path) -> Path:
    """Copy the worker under its own package name into `target`; returns the path of its first file."""
    for name, data in _files(importlib.resources.files("gputui.worker"), ""):
        path = target / ("start.py" if name == "start.py" else f"{WORKER_PACKAGE}/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return target / "start.py"


def measuring_half() -> bytes:
    """A zip that any Python >= 3.10 runs: `python3 FILE.zip RUNDIR`. Includes pynvml if it is installed.

    The same code makes the same bytes, so that a host needs it only once.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in sorted(_measuring_files()):
            entry = zipfile.ZipInfo(name)  # of 1980, whenever it is made
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return buffer.getvalue()


def _measuring_files() -> Iterator[tuple[str, bytes]]:
    yield "__main__.py", _MAIN.encode()
    yield "gputui/built_version.py", f"VERSION = {version()!r}\n".encode()
    package = importlib.resources.files("gputui")
    for name in ("__init__.py", "errors.py", "metrics.py", "version.py"):
        yield f"gputui/{name}", package.joinpath(name).read_bytes()
    for room in MEASURING_HALF:
        for name, data in _files(package.joinpath(room), ""):
            yield f"gputui/{room}/{name}", data
    yield from _pynvml()


def _files(directory: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in directory.iterdir():
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _files(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(_CODE):
            yield prefix + entry.name, entry.read_bytes()


def _pynvml() -> Iterator[tuple[str, bytes]]:
    """The single module of nvidia-ml-py, or nothing."""
    try:
        import pynvml
    except ImportError:
        return
    if pynvml.__file__:
        yield "pynvml.py", Path(pynvml.__file__).read_bytes()
