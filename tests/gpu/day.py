"""The first hour with a GPU, in parts that each end within nine minutes: see README.md beside this.

Needs only the standard library; what the parts need is installed from wheels, beside what the box has.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PART_S = 540
"""A part ends by then, whatever it was doing."""
MEASURED_S = 390
"""The budget of a profile: with what follows it, a part."""
AFTER_A_RUN_S = 75
"""What reading its traces and results takes."""
LEAST_S = 15
"""A step that has less time is not begun."""
STOPS_S = 30
"""What a run takes to store what it has, after it was told to end."""
MOST_FOUND = 14 * 2**20
MOST_TRACES = 11 * 2**20
REPORTED_LINES = 150


@dataclass(frozen=True)
class Step:
    """One command of a part."""

    name: str
    command: tuple[str, ...]
    limit_s: int
    needs_gpu: bool = True
    budget_s: int = 0
    """Of a run: it is given `--budget` with this, or less if the time that is left asks for it."""


@dataclass(frozen=True)
class Part:
    """Steps that belong together; they may depend on earlier steps of the same part alone."""

    name: str
    shows: str
    least_s: int
    """Not begun with less time than this."""
    steps: tuple[Step, ...]


def parts_of(work: Path, is_rehearsal: bool) -> tuple[Part, ...]:
    """All parts, by how much they are worth. A rehearsal does the same on the CPU, with less work."""
    python = sys.executable
    gputui = (python, "-m", "gputui")
    device = "cpu" if is_rehearsal else "cuda"
    on_gpu = not is_rehearsal

    def helper(name: str, *words: str) -> tuple[str, ...]:
        return (python, f"tests/gpu/{name}.py", *words)

    def benchmark(name: str, *words: str) -> tuple[str, ...]:
        return (python, f"tests/benchmarks/{name}.py", *words)

    def loaded(*words: str) -> tuple[str, ...]:
        return helper("under_load", "--device", device, "--", *words)

    def measured(profile: str) -> tuple[Step, ...]:
        db = str(work / f"{profile}.db")
        where = (
            ("--device", "cpu", "--launches", "1", "--blocks", "5") if is_rehearsal else ("--device", "gpu")
        )
        command = (*gputui, "run", profile, "--db", db, "--trace", *where, "--yes", "--all", "--verbose")
        return (
            Step("run", command, MEASURED_S + 60, on_gpu, 60 if is_rehearsal else MEASURED_S),
            Step("rows", helper("rows_against_trace", db), 120, on_gpu),
            Step("ranges", helper("ranges", db), 30, on_gpu),
            Step("show", (*gputui, "show", "latest", db, "--all", "--verbose"), 30, on_gpu),
        )

    def same(count: int, budget_s: int) -> Iterator[Step]:
        db = str(work / "same.db")
        where = (
            ("--device", "cpu", "--only", "gemm", "--launches", "1") if is_rehearsal else ("--device", "gpu")
        )
        for number in range(1, count + 1):
            words = ("run", "quick", "--db", db, "--budget", str(budget_s), "--label", f"same-{number}")
            yield Step(f"run-{number}", (*gputui, *words, *where, "--yes"), budget_s + 20, on_gpu)
        yield Step("pairs", helper("same_twice", db), 30, on_gpu)

    def deciding() -> Iterator[Step]:
        """Three runs of quick some minutes apart, and what else decides between them."""
        db, bakeoff = str(work / "apart.db"), str(work / "deciding.db")
        where = ("--device", "cpu", "--only", "gemm") if is_rehearsal else ("--device", "gpu")
        budget_s = 15 if is_rehearsal else 45

        def quick(number: int) -> Step:
            words = ("run", "quick", "--db", db, "--budget", str(budget_s), "--label", f"apart-{number}")
            return Step(f"quick-{number}", (*gputui, *words, *where, "--yes"), budget_s + 20, on_gpu)

        questions = helper("deciding", "--device", device, "graph", "layout", "collective", "mig", "start")
        yield quick(1)
        yield Step("questions", questions, 150, on_gpu)
        yield quick(2)
        words = ("run", "bakeoff", "--db", bakeoff, "--budget", "40" if is_rehearsal else "110")
        yield Step("rows-run", (*gputui, *words, *where, "--yes"), 160, on_gpu)
        yield Step("rows", helper("deciding", "rows", bakeoff), 30, on_gpu)
        yield quick(3)
        yield Step("apart", helper("same_twice", db), 30, on_gpu)

    minutes = "5" if is_rehearsal else "20"
    monitor = ("gputui", "monitor")
    return (
        Part(
            "deciding",
            "device against host time, graphs, layouts, collectives, MIG names, starts, runs minutes apart",
            300,
            tuple(deciding()),
        ),
        Part(
            "box",
            "what this box is, what the driver answers and what asking costs, the monitor under load",
            60,
            (
                Step("environment", ("bash", "-c", _ENVIRONMENT), 60, needs_gpu=False),
                Step("doctor", (*gputui, "doctor", "--all"), 90, needs_gpu=False),
                Step("check", (*gputui, "check"), 90, needs_gpu=False),
                Step("idle", (*gputui, "snapshot"), 40, needs_gpu=False),
                Step("snapshot", loaded(*gputui, "snapshot", "--require-gpu", "--processes", "--json"), 60),
                Step("calls", loaded(*benchmark("nvml_calls", "--real")), 60),
                Step("calls-idle", benchmark("nvml_calls", "--real"), 60),
                Step(
                    "screen",
                    loaded(
                        *helper(
                            "record_screen", str(work / "monitor.cast"), "--seconds", minutes, "--keys", "d"
                        ),
                        "--",
                        python,
                        "-m",
                        *monitor,
                    ),
                    90,
                    on_gpu,
                ),
                Step(
                    "cost",
                    benchmark(
                        "live_view",
                        *("--starts", "1", "--seconds", "5", "--slow-seconds", "5", "--size", "120x40"),
                        *("--", python, "-m", *monitor),
                    ),
                    90,
                    needs_gpu=False,
                ),
            ),
        ),
        Part("bakeoff", "the profile bakeoff, with traces", 200, measured("bakeoff")),
        Part(
            "tests",
            "pytest -m gpu",
            60,
            (
                Step(
                    "pytest",
                    (
                        python,
                        "-m",
                        "pytest",
                        "-m",
                        "gpu",
                        "-v",
                        "--tb=short",
                        "-p",
                        "no:cacheprovider",
                        "--durations=15",
                        *_gpu_tests(),
                    ),
                    530,
                ),
            ),
        ),
        Part(
            "timing",
            "block times beside triton.testing.do_bench and torch.utils.benchmark",
            60,
            tuple(
                Step(f"gemm-{n}", benchmark("gemm_against_timer", "--device", device, *words), 150, on_gpu)
                for n, words in (
                    (("64", ("--rounds", "2", "--blocks", "50", "--n", "64")),)
                    if is_rehearsal
                    else (("4096", ("--n", "4096")), ("1024", ("--n", "1024", "--block-s", "0.05")))
                )
            ),
        ),
        Part("precision", "the profile fp32-vs-amp, with traces", 300, measured("fp32-vs-amp")),
        Part("llm", "the profile llm, with traces", 300, measured("llm")),
        Part("inference", "the profile inference, with traces", 300, measured("inference")),
        Part(
            "same",
            "six runs of quick on one box: what compare calls different",
            100,
            tuple(same(2 if is_rehearsal else 6, 20 if is_rehearsal else 72)),
        ),
    )


_ENVIRONMENT = """
set -x
date -u; uname -a; cat /etc/os-release; nproc; lscpu; free -m; df -h . /tmp
cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/memory.max
nvidia-smi; nvidia-smi topo -m; nvidia-smi -q; nvidia-smi -q -d SUPPORTED_CLOCKS | head -20
ldconfig -p | grep -E 'libnvidia-ml|libcuda\\.'
"$PYTHON" -VV; "$PYTHON" -m pip list
"$PYTHON" -c 'import torch; print(torch.__config__.show())'
true
"""


def _gpu_tests() -> tuple[str, ...]:
    """The files that hold tests for a GPU: the others need packages that a box may lack."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return tuple(str(f.relative_to(ROOT)) for f in files if "mark.gpu" in f.read_text(encoding="utf-8"))


class Day:
    """What was done, in `out` for whoever reads it, and in `work` for the next call."""

    def __init__(self, out: Path, work: Path, is_rehearsal: bool, deadline_s: float) -> None:
        self.out, self.work, self.deadline_s = out, work, deadline_s
        out.mkdir(parents=True, exist_ok=True)
        if not work.exists() and (out / "found.tar.gz").exists():
            work.mkdir(parents=True)
            with tarfile.open(out / "found.tar.gz") as found:
                found.extractall(work, filter="data")
        work.mkdir(parents=True, exist_ok=True)
        self.is_rehearsal = is_rehearsal
        self.log = work / "steps.json"
        self.steps: dict[str, dict[str, object]] = (
            json.loads(self.log.read_text()) if self.log.exists() else {}
        )
        self.no_gpu = _why_no_gpu()
        self.notes: list[str] = []
        self.left_out: dict[str, str] = {}
        """By archive: what was too large for it."""

    def do(self, part: Part, again: bool) -> None:
        """The steps of a part that are not done yet."""
        ends_s = min(time.monotonic() + PART_S, self.deadline_s)
        for step in part.steps:
            key = f"{part.name}/{step.name}"
            if self.steps.get(key, {}).get("status") == 0 and not again:
                print(f"{key}: done before")
                continue
            if step.needs_gpu and self.no_gpu:
                self._note(key, None, 0.0, f"skipped: {self.no_gpu}")
                continue
            left_s = ends_s - time.monotonic() - STOPS_S
            if left_s < LEAST_S:
                self._note(key, None, 0.0, "not begun: no time was left")
                continue
            command = step.command
            if step.budget_s:
                budget_s = min(step.budget_s, left_s - AFTER_A_RUN_S)
                if budget_s < 4 * LEAST_S:
                    self._note(key, None, 0.0, "not begun: no time was left")
                    continue
                command += ("--budget", f"{budget_s:.0f}")
            self._run(part, step, command, key, min(step.limit_s, left_s))

    def _run(self, part: Part, step: Step, command: Sequence[str], key: str, limit_s: float) -> None:
        print(f"{key} ...", end=" ", flush=True)
        output = self.work / part.name / f"{step.name}.txt"
        output.parent.mkdir(exist_ok=True)
        begun_s = time.monotonic()
        with output.open("w") as written:
            process = subprocess.Popen(
                command, cwd=ROOT, env=self._environment(), stdin=subprocess.DEVNULL, stdout=written,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            why = ""
            try:
                status = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                why = f"stopped after {limit_s:.0f} s"
                status = _stopped(process)
            except BaseException:
                _stopped(process)
                raise
        self._note(key, status, time.monotonic() - begun_s, why)

    def _environment(self) -> dict[str, str]:
        path = [str(self.work / "site"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        return {
            **os.environ,
            "PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "PYTHONUNBUFFERED": "1",
            "GPUTUI_STATE": str(self.work / "state"),
            "GPUTUI_DB": str(self.work / "results.db"),
            "XDG_CACHE_HOME": str(self.work / "cache"),
            "COLUMNS": "120",
        }

    def _note(self, key: str, status: int | None, took_s: float, why: str) -> None:
        self.steps[key] = {"status": status, "seconds": round(took_s, 1), "why": why}
        self.log.write_text(json.dumps(self.steps, indent=1))
        print(_line(key, self.steps[key]) if status is None else _line("", self.steps[key]), flush=True)
        self.pack()
        self.report()

    def report(self) -> None:
        """One page: how each step ended, and the end of what it printed."""
        lines = [
            f"{' '.join(sys.argv)}, {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}",
            *self.notes,
            *self.left_out.values(),
            "",
        ]
        lines += [_line(key, found) for key, found in self.steps.items()]
        for key in self.steps:
            output = self.work / f"{key}.txt"
            if output.exists():
                text = output.read_text(errors="replace").splitlines()
                cut = [f"[{len(text) - REPORTED_LINES} lines before: found.tar.gz]"] * (
                    len(text) > REPORTED_LINES
                )
                lines += ["", f"== {key}", *cut, *text[-REPORTED_LINES:]]
        (self.out / "report.txt").write_text("\n".join(lines) + "\n")

    def pack(self) -> None:
        """All that was written, small enough to be carried away: texts and results, and traces by profile."""
        apart = ("site", "state", "cache")
        texts = [
            path
            for path in sorted(self.work.rglob("*"))
            if path.is_file()
            and path.relative_to(self.work).parts[0] not in apart
            and not path.parent.name.endswith("-traces")
        ]
        self._pack(texts, self.out / "found.tar.gz", MOST_FOUND)
        for place in sorted(self.work.glob("*-traces")):
            self._pack(sorted(place.iterdir()), self.out / f"traces-{place.name[:-7]}.tar.gz", MOST_TRACES)

    def _pack(self, files: Sequence[Path], target: Path, most_bytes: int) -> None:
        """The largest files stay behind if they are too large together."""
        kept, left_out = sorted(files, key=lambda path: path.stat().st_size), []
        while True:
            draft = self.work / "cache" / target.name
            draft.parent.mkdir(exist_ok=True)
            with tarfile.open(draft, "w:gz", compresslevel=3) as packed:
                for path in kept:
                    packed.add(path, str(path.relative_to(self.work)))
            if draft.stat().st_size <= most_bytes or not kept:
                break
            left_out.append(kept.pop().name)
        target.write_bytes(draft.read_bytes())
        if left_out:
            self.left_out[target.name] = f"{target.name} lacks {', '.join(left_out)}: too large"


def _line(key: str, found: dict[str, object]) -> str:
    status = found["status"]
    how = str(found["why"]) or ("done" if status == 0 else f"ended with status {status}")
    took = f", {found['seconds']} s" if status is not None else ""
    return f"{key}{': ' if key else ''}{how}{took}"


def _stopped(process: subprocess.Popen[bytes]) -> int:
    """Ends it and what it started; a run gets time to store what it has."""
    for number, patience_s in ((signal.SIGTERM, STOPS_S - 5), (signal.SIGKILL, 5)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(patience_s)
    return -signal.SIGKILL


def _why_no_gpu() -> str:
    """Empty if torch can use one."""
    ask = (
        "import torch\n"
        "if torch.version.cuda is None and torch.version.hip is None:\n"
        "    print(f'torch {torch.__version__} is built for CPUs alone')\n"
        "elif not torch.cuda.is_available():\n"
        "    try:\n        torch.cuda.init()\n"
        "    except Exception as error:\n        print(str(error).splitlines()[0])\n"
        "    else:\n        print('torch sees no GPU')\n"
    )
    asked = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or (asked.stderr.strip().splitlines() or [""])[-1]


def _wanted() -> dict[str, str]:
    """Version by distribution."""
    lines = (HERE / "wheels.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def _missing() -> list[str]:
    """Distributions that this interpreter lacks. Of textual only the very version will do."""
    missing = []
    for name, version in _wanted().items():
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
            continue
        if name == "textual" and found != version:
            missing.append(name)
    return missing


def how_to_make_wheels(version: str, machine: str) -> str:
    """Commands for another machine, which has a network."""
    platforms = " ".join(
        f"--platform {name}_{machine}"
        for name in ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014", "manylinux1")
    )
    return (
        "  python3 -m pip download --no-deps --only-binary=:all: --implementation cp"
        f" --python-version {version} \\\n    {platforms} \\\n    -d wheels -r tests/gpu/wheels.txt"
    )


def _install(wheels: Path | None, work: Path) -> list[str]:
    """What is missing comes from the wheels, into a directory of its own; returns what to tell."""
    missing = _missing()
    if missing and wheels is not None:
        normal = {name.replace("-", "_").lower() for name in missing}
        files = [
            str(path)
            for path in sorted(wheels.glob("*.whl"))
            if path.name.split("-")[0].replace(".", "_").lower() in normal
        ]
        words = ["install", "-q", "--no-index", "--no-deps", "--upgrade", "--target", str(work / "site")]
        if files:
            subprocess.run([sys.executable, "-m", "pip", *words, *files], check=False)
        sys.path.insert(0, str(work / "site"))
        missing = _missing()
    others = [name for name in ("torch", "numpy", "pandas") if not _has(name)]
    told = []
    if missing:
        version, machine = ".".join(map(str, sys.version_info[:2])), os.uname().machine
        told.append(
            f"{sys.executable} lacks {', '.join(missing)}: name a folder of wheels with --wheels."
            f" Where there is a network, make one with\n{how_to_make_wheels(version, machine)}"
        )
    if others:
        told.append(
            f"{sys.executable} lacks {', '.join(others)}: take an interpreter that has them with PYTHON="
        )
    return told


def _has(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def main() -> int:
    example = how_to_make_wheels("3.12", "x86_64")
    parser = argparse.ArgumentParser(
        prog="tests/gpu/day.sh",
        description=__doc__,
        epilog=f"Wheels for a box with Python 3.12 and without a network:\n{example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    work = Path(os.environ.get("TMPDIR", "/tmp")) / "gputui-day"
    names = ", ".join(part.name for part in parts_of(work, is_rehearsal=False))
    parser.add_argument("out", type=Path, metavar="OUT", help="what was found: at most 8 files, 60 MB")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"in this order; all of them: {names}")
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="what is missing is installed from here")
    parser.add_argument("--work", type=Path, metavar="DIR", help=f"what the next call goes on from  [{work}]")
    parser.add_argument("--minutes", type=float, metavar="M", help="end by then")
    parser.add_argument("--again", action="store_true", help="also what was done before")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, with little work")
    options = parser.parse_intermixed_args()
    begun_s = time.monotonic()
    deadline_s = begun_s + 60 * options.minutes if options.minutes else float("inf")
    work = (options.work or (Path(f"{work}-rehearsal") if options.rehearse else work)).resolve()
    known = {part.name: part for part in parts_of(work, options.rehearse)}
    unknown = [name for name in options.parts if name not in known]
    if unknown:
        parser.error(f"no part {unknown[0]}: {', '.join(known)}")
    day = Day(options.out.resolve(), work, options.rehearse, deadline_s)
    day.notes = _install(options.wheels, day.work)
    if day.no_gpu:
        day.notes.append(f"no GPU: {day.no_gpu}; --rehearse does the same on the CPU")
    print("\n".join(day.notes))
    for name in options.parts or known:
        if deadline_s - time.monotonic() < known[name].least_s:
            print(f"{name}: not begun, {deadline_s - time.monotonic():.0f} s are left")
            continue
        day.do(known[name], options.again)
    day.pack()
    day.report()
    files = ", ".join(sorted(path.name for path in day.out.iterdir()))
    print(f"{time.monotonic() - begun_s:.0f} s; {day.out}: {files}")
    return 1 if any(found["status"] not in (0, None) for found in day.steps.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
