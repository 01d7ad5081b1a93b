"""A run whose GPU is an MI300X of files: what the driver shows while it measures is in its result file."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from amd_trees import mi300x, mi300x_load
from builders import make_case, make_plan, make_spec
from supervised import PATIENCE_S, scripted_worker

from gputui.model.absent import Missing
from gputui.model.journal import CasePlanned, MachineFound
from gputui.model.plan import Plan, PlannedDevice
from gputui.model.telemetry import POWER_CAP
from gputui.services.compare.session import ask
from gputui.services.compare.text import comparison_as_text
from gputui.services.runs.recovery import import_journal
from gputui.store.journal_reader import read_journal, read_telemetry

MEASURE = """
import sys
from pathlib import Path
from gputui.sources.amd import AmdGpus
plain = AmdGpus.__init__
AmdGpus.__init__ = lambda self, root=None: plain(self, Path(sys.argv[1]))
from gputui.recording.supervisor import Supervisor
sys.exit(Supervisor([Path(sys.argv[2])]).run())
"""
"""A supervisor that reads AMD GPUs below another root; all else is as in `gputui run`."""
ON_MI300X = PlannedDevice("gpu", "cpu", "AMD Instinct MI300X", "0", "00000000:01:00.0")
"""A CPU that does the work under the name and address of the GPU."""
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


def plan(interpreter: Sequence[str]) -> Plan:
    case = replace(make_case(), variant=replace(make_case().variant, device_class="gpu"))
    made = make_plan([0], [0], [0], cases=[case], most_blocks=5, interpreter=interpreter)
    return replace(made, launches=tuple(replace(one, device=ON_MI300X) for one in made.launches))


@contextmanager
def firmware(root: Path, *, slowed: float, power_w: int, clock_mhz: int) -> Iterator[None]:
    """Counts as an MI300X does, a thousand times a second, until the block is left."""
    place = root / "sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0"
    over = threading.Event()

    def count() -> None:
        counter = 55_000_000
        while not over.wait(0.02):
            counter += 20
            (place / "draft").write_bytes(
                mi300x_load(
                    counter=counter,
                    throttled=int(counter * slowed),
                    hot_c=68,
                    power_w=power_w,
                    clocks_mhz=[clock_mhz] * 8,
                )
            )
            (place / "draft").replace(place / "gpu_metrics")

    thread = threading.Thread(target=count)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def measuring(home: Path, *, slowed: float, power_w: int, clock_mhz: int, block_s: float) -> Iterator[Path]:
    """The directory of a run that has ended well when the block is left."""
    home.mkdir()
    box = mi300x(home / "root")
    box.compute_process(4711, {19794: 2**30}, queues=[19794])
    run_dir = home / "run"
    run_dir.mkdir()
    worker = scripted_worker(home / "worker.py", WORKER.format(block_s=block_s))
    make_spec(plan(worker), run_id=f"0194b5a0-0000-7000-8000-00000000{clock_mhz:04x}").write(run_dir)
    with (
        firmware(home / "root", slowed=slowed, power_w=power_w, clock_mhz=clock_mhz),
        subprocess.Popen(
            [sys.executable, "-c", MEASURE, str(home / "root"), str(run_dir)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as run,
    ):
        yield run_dir
        assert (run.communicate(timeout=PATIENCE_S)[0], run.returncode) == ("", 0)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One at full clock, and one whose power limit takes a third of the clock."""
    home = tmp_path_factory.mktemp("amd")
    with (
        measuring(home / "a", slowed=0.0, power_w=520, clock_mhz=2100, block_s=0.2) as a,
        measuring(home / "b", slowed=0.867, power_w=707, clock_mhz=1400, block_s=0.3) as b,
    ):
        return a, b


def test_the_machine_has_the_gpu_and_the_case_is_joined_to_it_by_its_pci_address(
    runs: tuple[Path, Path],
) -> None:
    journal = read_journal(runs[0])
    (gpu,) = journal.of(MachineFound)[0].machine.gpus
    assert (gpu.name, gpu.vendor, gpu.index) == ("AMD Instinct MI300X", "amd", 0)
    assert (gpu.power_limit_w, gpu.memory_bytes) == (750.0, 206141652992)
    assert gpu.gpu_id
    assert isinstance(gpu.mig_enabled, Missing)
    assert journal.of(CasePlanned)[0].device_index == 0


def test_power_energy_clock_heat_and_throttling_are_in_the_telemetry(runs: tuple[Path, Path]) -> None:
    of_gpu = [one.values for one in read_telemetry(runs[1]) if one.device == 0]
    assert len(of_gpu) > 10
    assert {values["power_w"] for values in of_gpu} == {707.0}
    assert {values["sm_clock_mhz"] for values in of_gpu} == {1400.0}
    assert {values["temperature_c"] for values in of_gpu if "temperature_c" in values} == {42.0}
    assert {values["compute_process_count"] for values in of_gpu if "compute_process_count" in values} == {
        1.0
    }
    assert of_gpu[-1]["energy_mj"] > of_gpu[0]["energy_mj"]
    capped = [int(values["throttle_bits"]) for values in of_gpu if "throttle_bits" in values]
    assert set(capped) == {0, POWER_CAP}
    assert 0.7 < sum(map(bool, capped)) / len(capped) < 0.95


def test_compare_flags_the_capped_side_and_explains_the_difference_by_the_clock(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    for name, run_dir in zip("ab", runs, strict=True):
        import_journal(run_dir, tmp_path / f"{name}.db")
    asked = ask([str(tmp_path / "a.db"), str(tmp_path / "b.db")])
    text = comparison_as_text(asked, asked.compared(), width=100, is_verbose=True)
    assert "explained by clock: 1.40 GHz on b, 2.10 GHz on a" in text, text
    assert "power-capped" in text, text
