"""Executes steps with NvmlGpus in a separate process, and prints their results."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any  # JSON

from gputui.model.absent import Missing
from gputui.sources.nvml import NvmlGpu, NvmlGpus

_DEADLINE_S = 300.0


def plain(value: Any) -> Any:
    """As JSON values; a Missing becomes {"missing": reason}."""
    if isinstance(value, Missing):
        return {"missing": value.reason}
    if is_dataclass(value) and not isinstance(value, type):
        # asdict would take a Missing apart
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(each) for each in value]
    return value


class Child:
    """The source under test, with a manual clock."""

    def __init__(self) -> None:
        self.now_ns = 10**9
        self.root = Path(os.environ["ROOT"])
        self.source = NvmlGpus(clock=lambda: self.now_ns, root=self.root)
        self.scenario = Path(os.environ.get("GPUTUI_NVML_SCENARIO", ""))
        self.gpus: tuple[NvmlGpu, ...] = ()
        self.threads: list[threading.Thread] = []

    def open(self) -> Any:
        """None if there are GPUs, else why not."""
        found = self.source.open()
        self.gpus = () if isinstance(found, Missing) else found
        return found if isinstance(found, Missing) else None

    def devices(self) -> Any:
        return [gpu.number for gpu in self.gpus]

    def sample(self, device: int) -> Any:
        return self.gpus[device].sample()

    def processes(self, device: int) -> Any:
        return self.gpus[device].processes()

    def read(self, device: int, full: bool) -> Any:
        return self.gpus[device].read(full=full)

    def append(self, text: str) -> None:
        """Change the scenario."""
        with self.scenario.open("a") as file:
            file.write(f"\n{text}\n")

    def later(self, seconds: float) -> None:
        """Advance the source's clock, which stands still otherwise."""
        self.now_ns += round(seconds * 1e9)

    def calls(self, function: str | None = None) -> int:
        """Number of calls of the library so far."""
        import pynvml

        count = pynvml.nvmlLib.standin_calls
        count.restype = int
        return int(count(None if function is None else function.encode()))

    def begin(self, device: int) -> None:
        """Sample a device in a separate thread."""
        self.threads.append(threading.Thread(target=self.gpus[device].sample, daemon=True))
        self.threads[-1].start()

    def is_running(self) -> bool:
        """Whether that thread still runs."""
        return self.threads[-1].is_alive()

    def wait_for_calls(self, function: str, count: int) -> None:
        """Wait until the library was called this often."""
        deadline = time.monotonic() + _DEADLINE_S
        while self.calls(function) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(function)
            time.sleep(0.005)

    def wait_for_pcie(self, device: int) -> Any:
        """The first sample with a PCIe rate."""
        deadline = time.monotonic() + _DEADLINE_S
        while True:
            samples = self.gpus[device].sample()
            if not isinstance(samples[0].values["pcie_tx_bytes_per_s"], Missing):
                return samples
            if time.monotonic() > deadline:
                raise TimeoutError(samples)
            time.sleep(0.005)


def main(steps: list[list[Any]]) -> None:
    child = Child()
    print(json.dumps([plain(getattr(child, name)(*given)) for name, *given in steps]))
