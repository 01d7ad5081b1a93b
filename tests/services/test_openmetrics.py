"""`gputui monitor --openmetrics` and `--textfile`, read by Prometheus's own client."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any  # JSON
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from command_line import WORDS, gputui, wait_until
from nvml.standin import standin_environment
from prometheus_client.openmetrics.parser import text_string_to_metric_families as metrics_in
from prometheus_client.parser import text_string_to_metric_families as metrics_in_older_text

GPUS = "driver gpus 8\n* field 197 5000000000000\n* field 198 9000000000000\n" + "".join(
    f"{gpu} field 186 {300_000 + gpu}\n{gpu} sm_busy_pct {gpu}\n{gpu} temperature_c {40 + gpu}\n"
    f"{gpu} memory_used_mib {1000 + gpu}\n{gpu} process {900_000 + gpu} C 2048 30\n"
    for gpu in range(8)
)
"""Eight that say the same each time, and are in use."""

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def series_in(text: str) -> Series:
    return {
        (sample.name, frozenset(sample.labels.items())): float(sample.value)
        for family in metrics_in(text)
        for sample in family.samples
    }


@contextmanager
def exporting(environment: Mapping[str, str], *words: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """An exporter and its address, ended as a service manager ends it."""
    import os

    command = [*WORDS, "monitor", "--openmetrics", ":0", *words]
    with subprocess.Popen(
        command, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            yield process.stderr.readline().strip(), process
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()


def scraped(address: str) -> str:
    with urlopen(address, timeout=30) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        found: str = answer.read().decode()
        return found


def test_a_scrape_has_each_figure_of_a_snapshot_and_no_other_and_names_nobody(tmp_path: Path) -> None:
    environment = standin_environment(GPUS)
    file = tmp_path / "gputui.prom"
    with exporting(environment, "--textfile", str(file)) as (address, _):
        assert address.startswith("http://127.0.0.1:")
        text = scraped(address)
        done = gputui("snapshot", "--json", env=environment)
        written = file.read_text()
        with pytest.raises(HTTPError, match="404"):
            urlopen(address.removesuffix("/metrics"), timeout=30)
    assert not file.exists()  # else its values would stay in node_exporter
    found, plain = series_in(text), json.loads(done.stdout)
    of_gpus = {key: value for key, value in found.items() if key[0].startswith("gputui_gpu_")}
    assert of_gpus == dict(figures_of(plain["gpus"]))
    assert len(of_gpus) > 8 * 20
    numbers = {key for key, value in plain["host"]["values"].items() if not isinstance(value, str | dict)}
    of_host = {name.removeprefix("gputui_host_") for name, _ in found if name.startswith("gputui_host_")}
    assert of_host == {*numbers, "up", "info"}
    assert "90000" not in text
    assert {family.name for family in metrics_in_older_text(written)} == {
        family.name for family in metrics_in(text)
    }


def figures_of(gpus: list[dict[str, Any]]) -> Iterator[tuple[tuple[str, frozenset[tuple[str, str]]], float]]:
    """What the snapshot of some GPUs is for Prometheus."""
    for gpu in gpus:
        labels = {"gpu": gpu["label"], "source": gpu["source"]}
        texts = {key: value for key, value in gpu["values"].items() if isinstance(value, str)}
        yield ("gputui_gpu_up", frozenset(labels.items())), 1.0
        yield ("gputui_gpu_info", frozenset({**labels, **texts}.items())), 1.0
        for key, value in gpu["values"].items():
            if not isinstance(value, str | dict):
                yield (f"gputui_gpu_{key}", frozenset(labels.items())), float(value)


def test_a_lost_gpu_leaves_no_value_behind() -> None:
    environment = standin_environment(GPUS)
    with exporting(environment) as (address, _):
        assert ("gputui_gpu_power_w", frozenset({("gpu", "3"), ("source", "nvml")})) in series_in(
            scraped(address)
        )
        with Path(environment["GPUTUI_NVML_SCENARIO"]).open("a") as scenario:
            scenario.write("3 error * 15\n")
        found: Series = {}

        def is_lost() -> bool:
            found.clear()
            found.update(series_in(scraped(address)))
            return found["gputui_gpu_up", frozenset({("gpu", "3"), ("source", "nvml")})] == 0

        wait_until(is_lost, "the GPU is lost")
    assert [name for name, labels in found if ("gpu", "3") in labels] == ["gputui_gpu_up"]
    assert len([name for name, labels in found if name == "gputui_gpu_power_w"]) == 7


def test_a_port_that_is_none_is_said(tmp_path: Path) -> None:
    for words, message in (
        (("--openmetrics", "9400x"), "--openmetrics 9400x: names no port"),
        (("--openmetrics", "192.0.2.1:9400"), "cannot listen at 192.0.2.1 port 9400"),
        (("--textfile", str(tmp_path / "no" / "a.prom")), f"there is no directory {tmp_path / 'no'}"),
        (("--textfile", "a.prom", "--via", "env"), "of this box alone"),
    ):
        done = gputui("monitor", *words)
        assert (done.returncode != 0, done.stdout) == (True, "")
        assert message in done.stderr
