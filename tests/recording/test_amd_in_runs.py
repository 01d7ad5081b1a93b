"""Runs whose GPUs are files: what the driver shows while they measure is in their result files."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from amd_trees import Box, mi300x, mi300x_load, radeon_7900xtx, table
from builders import make_case, make_plan, make_spec
from supervised import PATIENCE_S, scripted_worker

from gputui.model.absent import Missing
from gputui.model.journal import CasePlanned, Event, MachineFound
from gputui.model.plan import Plan, PlannedDevice
from gputui.model.telemetry import POWER_CAP
from gputui.services.compare.formats import comparison_text
from gputui.services.compare.session import ask
from gputui.services.runs.process import import_journal
from gputui.store.journal_reader import read_journal, read_telemetry
from gputui.store.reading import open_result

MEASURE = """
import sys
from pathlib import Path
from gputui.sources.amd import AmdGpus
plain = AmdGpus.__init__
AmdGpus.__init__ = lambda self, root=None, **more: plain(self, Path(sys.argv[1]), **more)
from gputui.recording import sampler
from gputui.recording.supervisor import Supervisor
class Broken:
    NAME = "broken"
    def open(self):
        raise RuntimeError("no library at /home/alice/x.so")
sampler.gpu_sources = lambda: (AmdGpus(), Broken())
sys.exit(Supervisor([Path(sys.argv[2])]).run())
"""
"""A supervisor that reads AMD GPUs below another root, and a source that raises; all else is as in a run."""
WORKER = """
warm(0)
for index in range(5):
    begin_ns = time.monotonic_ns()
    time.sleep({block_s})
    say("block", case_id=0, index=index, steps=10, start_ns=begin_ns, wall_ns=int({block_s} * 1e9),
        device_ns=None, cpu_ns=1000)
end_case(0, blocks=5)
end()
"""
"""Its blocks take what they say, since telemetry is read meanwhile, and it computes nothing."""


def plan(interpreter: Sequence[str], device: PlannedDevice) -> Plan:
    case = replace(make_case(), variant=replace(make_case().variant, device_class="gpu"))
    made = make_plan([0], [0], [0], cases=[case], most_blocks=5, interpreter=interpreter)
    return replace(made, launches=tuple(replace(one, device=device) for one in made.launches))


@contextmanager
def measuring(box: Box, name: str, table_at: Callable[[int], bytes], block_s: float) -> Iterator[Path]:
    """The directory of a run that has ended well when the block is left.

    `table_at` returns the GPU's table by milliseconds since its driver was loaded.
    """
    (metrics,) = box.root.glob("sys/devices/pci*/*/*/gpu_metrics")
    home = box.root.parent
    device = PlannedDevice("gpu", "cpu", name, "0", f"0000{metrics.parent.name}")  # a CPU does its work
    worker = scripted_worker(home / "worker.py", WORKER.format(block_s=block_s))
    run_dir = home / "run"
    run_dir.mkdir()
    make_spec(plan(worker, device), run_id=f"0194b5a0-0000-7000-8000-00000000000{home.name}").write(run_dir)
    over = threading.Event()

    def count() -> None:
        begin_ns = time.monotonic_ns()
        while not over.wait(0.02):
            draft = metrics.with_name("draft")
            draft.write_bytes(table_at(55_000_000 + (time.monotonic_ns() - begin_ns) // 1_000_000))
            draft.replace(metrics)

    firmware = threading.Thread(target=count)
    firmware.start()
    with subprocess.Popen(
        [sys.executable, "-c", MEASURE, str(box.root), str(run_dir)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as run:
        yield run_dir
        output = run.communicate(timeout=PATIENCE_S)[0]
    over.set()
    firmware.join()
    assert (output, run.returncode) == ("", 0)


def at_full_clock(counter: int) -> bytes:
    return mi300x_load(counter=counter, throttled=0, hot_c=58, power_w=520, clocks_mhz=[2100] * 8)


def at_its_power_limit(counter: int) -> bytes:
    throttled = int(counter * 0.867)
    return mi300x_load(counter=counter, throttled=throttled, hot_c=68, power_w=707, clocks_mhz=[1400] * 8)


def hot(counter: int) -> bytes:
    values = {"temperature_hotspot": 108, "average_socket_power": 301, "current_gfxclk": 2100}
    return table((1, 3, 120), {**values, "indep_throttle_status": 1 << 36})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """An MI300X at full clock, one whose power limit takes a third of the clock, and an RX 7900 XTX that is
    slowed by heat."""
    home = tmp_path_factory.mktemp("amd")
    whole, capped = (mi300x(home / letter / "root") for letter in "ab")
    for box in (whole, capped):
        box.compute_process(4711, {19794: 2**30}, queues=[19794])
    radeon = radeon_7900xtx(home / "c" / "root")
    mi300x_name = "AMD Instinct MI300X"
    with (
        measuring(whole, mi300x_name, at_full_clock, 0.2) as a,
        measuring(capped, mi300x_name, at_its_power_limit, 0.3) as b,
        measuring(radeon, "AMD Radeon RX 7900 XTX", hot, 0.2) as c,
    ):
        return a, b, c


def test_the_machine_has_the_gpu_and_what_it_read_of_it_is_in_the_telemetry_of_the_case(
    runs: tuple[Path, Path, Path],
) -> None:
    journal = read_journal(runs[0])
    (gpu,) = journal.of(MachineFound)[0].machine.gpus
    assert (gpu.name, gpu.vendor, gpu.index) == ("AMD Instinct MI300X", "amd", 0)
    assert (gpu.power_limit_w, gpu.memory_bytes) == (750.0, 206141652992)
    assert gpu.gpu_id
    assert isinstance(gpu.mig_enabled, Missing)
    assert journal.of(CasePlanned)[0].device_index == 0, "joined by its PCI address"
    broken = "broken: this is a bug in gputui: RuntimeError: no library at x.so"
    assert [(event.level, event.message) for event in journal.of(Event)] == [("warning", broken)]
    of_gpu = [one.values for one in read_telemetry(runs[1]) if one.device == 0]
    assert len(of_gpu) > 10
    expected = {"power_w": 707, "sm_clock_mhz": 1400, "temperature_c": 42, "compute_process_count": 1}
    for key, value in expected.items():
        assert {values[key] for values in of_gpu if key in values} == {value}, key
    assert of_gpu[-1]["energy_mj"] > of_gpu[0]["energy_mj"]
    capped = [int(values["throttle_bits"]) for values in of_gpu if "throttle_bits" in values]
    assert set(capped) == {0, POWER_CAP}
    assert 0.7 < sum(map(bool, capped)) / len(capped) < 0.95


def test_compare_flags_a_power_limit_and_heat_and_explains_a_difference_by_the_clock(
    runs: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    for name, run_dir in zip("abc", runs, strict=True):
        import_journal(run_dir, tmp_path / f"{name}.db")
    asked = ask([str(tmp_path / "a.db"), str(tmp_path / "b.db")])
    text = comparison_text(asked, asked.compared(), "text", width=100, is_verbose=True)
    assert "explained by clock: 1.40 GHz on b, 2.10 GHz on a" in text, text
    assert "power-capped" in text, text
    with open_result(tmp_path / "c.db") as file:
        (seen,) = file.conditions(file.summaries()[0].run_id).values()
    assert (seen.slowed_share, seen.power_capped_share) == (1.0, 0.0)
    assert seen.clock_median_mhz == 5.0, "of the sensor, which goes before the table"
    asked = ask([str(tmp_path / "a.db"), str(tmp_path / "c.db")])
    assert "slowed by heat" in comparison_text(asked, asked.compared(), "text", width=100, is_verbose=True)
