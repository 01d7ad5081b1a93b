"""What a run's telemetry file shows while it grows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from gputui.metrics import CURRENT
from gputui.model.absent import Missing
from gputui.model.journal import TELEMETRY_NAME
from gputui.model.telemetry import HOST, Reading
from gputui.services.runs.device_history import MOST_BINS, READING_HOLDS_S, DeviceHistory, HistoryReader
from gputui.store.journal_reader import TelemetryTail

SECOND = 10**9


def write(run_dir: Path, readings: Sequence[Reading], *, anew: bool = False) -> None:
    """Append rows, below a header in a new file."""
    path = run_dir / TELEMETRY_NAME
    rows = b"".join(map(CURRENT.encode, readings))
    if anew:
        draft = path.with_suffix(".thinned")
        draft.write_bytes(CURRENT.header() + rows)
        draft.replace(path)
        return
    with path.open("ab") as file:
        file.write(rows if file.tell() else CURRENT.header() + rows)


def polled(reader: HistoryReader, at_s: float) -> dict[int, DeviceHistory]:
    found = reader.poll(round(at_s * SECOND))
    assert not isinstance(found, Missing)
    return {one.device: one for one in found}


def gpu(at_s: float, **values: float) -> Reading:
    return Reading(0, round(at_s * SECOND), values)


def test_the_newest_value_of_each_metric_is_that_of_now_until_it_is_too_old(tmp_path: Path) -> None:
    reader = HistoryReader(TelemetryTail(tmp_path).poll)
    assert reader.poll(0) == ()
    write(tmp_path, [gpu(1, power_w=100.0, temperature_c=60.0), gpu(2, power_w=200.0)])
    assert polled(reader, 3)[0].now == {"power_w": 200.0, "temperature_c": 60.0}
    assert polled(reader, 1.5 + READING_HOLDS_S)[0].now == {"power_w": 200.0}
    assert polled(reader, 60)[0].now == {}


def test_bins_are_means_since_sampling_began_and_a_gap_is_none(tmp_path: Path) -> None:
    reader = HistoryReader(TelemetryTail(tmp_path).poll)
    write(tmp_path, [Reading(HOST, 10 * SECOND, {"load_1min": 1.0})])
    write(tmp_path, [gpu(11, power_w=100.0), gpu(11.5, power_w=300.0), gpu(13, power_w=50.0)])
    shown = polled(reader, 13)
    assert list(shown) == [HOST, 0]
    assert (shown[0].bin_s, shown[0].bins["power_w"]) == (1.0, (None, 200.0, None, 50.0))
    write(tmp_path, [gpu(13.2, power_w=150.0)])
    assert polled(reader, 14)[0].bins["power_w"] == (None, 200.0, None, 100.0)


def test_a_long_run_gets_longer_bins_not_more(tmp_path: Path) -> None:
    reader = HistoryReader(TelemetryTail(tmp_path).poll)
    seconds = 3 * MOST_BINS
    write(tmp_path, [gpu(second, power_w=float(second)) for second in range(seconds)])
    shown = polled(reader, seconds)[0]
    assert shown.bin_s == 4.0
    assert shown.bins["power_w"] == tuple(4 * place + 1.5 for place in range(seconds // 4))


def test_throttling_is_a_share_of_the_sampled_time_whatever_the_rate_of_sampling(tmp_path: Path) -> None:
    reader = HistoryReader(TelemetryTail(tmp_path).poll)
    slow = [Reading(0, second * SECOND, {"throttle_bits": 0}) for second in range(11)]
    fast = [Reading(0, 10 * SECOND + n * SECOND // 10, {"throttle_bits": 4}) for n in range(1, 101)]
    write(tmp_path, [*slow, *fast])
    shown = polled(reader, 20)[0]
    assert shown.slowed.since_s == {"power": 0.0}
    assert shown.slowed.shares["power"] == pytest.approx(0.5)


def test_a_file_that_the_sampler_thinned_is_followed_without_counting_anything_twice(tmp_path: Path) -> None:
    reader = HistoryReader(TelemetryTail(tmp_path).poll)
    readings = [gpu(second, power_w=100.0 + second) for second in range(20)]
    write(tmp_path, readings)
    before = polled(reader, 20)[0].bins["power_w"]
    write(tmp_path, readings[::2], anew=True)
    assert polled(reader, 20)[0].bins["power_w"] == before
    write(tmp_path, [gpu(20, power_w=500.0)])
    assert polled(reader, 21)[0].bins["power_w"] == (*before, 500.0)


def test_a_row_that_is_still_being_written_waits_for_the_next_look(tmp_path: Path) -> None:
    reader = HistoryReader(TelemetryTail(tmp_path).poll)
    row = CURRENT.encode(gpu(2, power_w=7.0))
    write(tmp_path, [gpu(1, power_w=5.0)])
    path = tmp_path / TELEMETRY_NAME
    with path.open("ab") as file:
        file.write(row[:20])
    assert polled(reader, 2)[0].now == {"power_w": 5.0}
    with path.open("ab") as file:
        file.write(row[20:])
    assert polled(reader, 2)[0].now == {"power_w": 7.0}
