"""Live samples of other hosts: what is sent, what is rebuilt from it, and how it is shown."""

from __future__ import annotations

import json
import re
import sys
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from builders import make_machine
from command_line import gputui, wait_until
from hostile_feeds import DRIPS, EVIL, MODES
from key_lists import list_of
from monitor_samples import sample, text_of
from pty_harness import Terminal
from sshd import Servers, needs_sshd
from strangers import stranger

from gputui.analysis.health import Throttling
from gputui.document.spans import Span
from gputui.model.absent import Missing
from gputui.model.telemetry import LiveSample, Value
from gputui.recording.collector import plain_sample
from gputui.services.hosts.host import Host
from gputui.services.hosts.live import HostFeed, HostSample, sample_from
from gputui.services.runs.device_history import DeviceHistory
from gputui.tui.hosts import HOSTS_ACTIONS, HostsModel
from gputui.tui.monitor.model import MonitorModel
from gputui.tui.monitor.settings import MonitorSettings
from gputui.tui.screens.run_panes import _health

SECOND_NS = 10**9


def sent(one: LiveSample, case: str = "") -> bytes:
    return json.dumps(plain_sample(one, case), separators=(",", ":")).encode() + b"\n"


def test_a_followed_host_is_seen_to_the_digits_that_are_shown() -> None:
    there = sample(gpus=8, second=5.0)
    seen, case = sample_from(json.loads(sent(there, "gemm")), 1, there.t_ns)
    assert case == "gemm"
    assert [gpu.label for gpu in seen.gpus] == [gpu.label for gpu in there.gpus]
    for one, other in zip((there.host, *there.gpus), (seen.host, *seen.gpus), strict=True):
        assert one.values.keys() == other.values.keys()
        for key, value in one.values.items():
            if isinstance(value, float):
                assert other.values[key] == pytest.approx(value, rel=0.01), key
            else:
                assert other.values[key] == value
    assert not isinstance(there.processes, Missing)
    assert not isinstance(seen.processes, Missing)
    assert [(one.pid, one.start_ticks, one.command, one.memory_bytes) for one in seen.processes] == [
        (one.pid, one.start_ticks, one.command, one.memory_bytes) for one in there.processes
    ]


def test_eight_gpus_take_less_than_a_kilobyte_a_second() -> None:
    samples = [replace(sample(gpus=8, second=float(second)), processes=Missing("no")) for second in range(61)]
    packer = zlib.compressobj(6)
    sizes = [len(packer.compress(sent(one)) + packer.flush(zlib.Z_SYNC_FLUSH)) for one in samples]
    assert sum(sizes[1:]) / 60 < 1000


def test_a_gpu_that_is_lost_and_one_that_is_old_are_seen_from_afar() -> None:
    there = sample(gpus=2, second=100.0)
    lost = replace(there.gpus[0], problem=Missing("the GPU is lost"))
    old = replace(there.gpus[1], t_ns=there.t_ns - 9 * SECOND_NS)
    there = replace(there, gpus=(lost, old), absent={"amd": Missing("no driver")})
    seen, _ = sample_from(json.loads(sent(there)), 1, 10**12)
    assert [gpu.problem for gpu in seen.gpus] == [Missing("the GPU is lost"), None]
    assert [10**12 - gpu.t_ns for gpu in seen.gpus] == [0, 9 * SECOND_NS]
    assert seen.absent == {"amd": Missing("no driver")}


HOST = {"device": -1, "source": "host", "parent": None, "age_s": 0, "problem": None, "values": {}}
WHOLE = {"host": HOST, "gpus": [], "absent": {}, "processes": "no", "case": ""}


def message(**changed: object) -> bytes:
    return json.dumps({**WHOLE, **changed}).encode()


def sends(place: Path, *messages: bytes) -> HostFeed:
    """The feed of a host that sends these messages, as one compressed stream."""
    packer = zlib.compressobj(6)
    packed = packer.compress(b"\n".join(messages) + b"\n") + packer.flush(zlib.Z_SYNC_FLUSH)
    return HostFeed(stranger(place, {"watch": [[{"more": 1, "bytes": len(packed)}, packed.hex()]]}), 1.0)


def problem_of(feed: HostFeed) -> str:
    """What its host's line says, once it says more than that it connects."""
    feed.start()
    wait_until(lambda: feed.seen().problem not in ("", "connecting"), "the host has a problem")
    feed.close()
    return feed.seen().problem


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"[]", "it is not an object"),
        (b"[" * 100_000, "it is nested more than 64 deep"),
        (b"{}", "no 'gpus'"),
        (message(host={"device": 0}), "no 'values'"),
        (message(host={**HOST, "values": {"x": []}}), "not a"),
        (
            message(host={**HOST, "values": {"x": "?"}}).replace(b'"?"', b"1e999"),
            "a number that is too large",
        ),
        (message(host={**HOST, "values": {"x": "?"}}).replace(b'"?"', b"NaN"), "JSON has no NaN"),
        (message(processes=[{"pid": "x"}]), "no 'uses'"),
        (message(gpus=[{**HOST, "device": n} for n in range(5000)]), "too many devices"),
        (message(gpus=[HOST, HOST]), "is there twice"),
        (message(host={**HOST, "age_s": 1e290}), "1e+290 is not a number from 0"),
        (message(host={**HOST, "age_s": -1e290}), "-1e+290 is not a number from 0"),
        (message(absent={f"s{n}": "x" for n in range(5000)}), "too many devices"),
        (b'{"case": "\xff"}', "invalid start byte"),
    ],
    ids=lambda value: value[:40] if isinstance(value, bytes) else None,
)
def test_a_message_that_makes_no_sense_is_a_problem_of_its_host(
    tmp_path: Path, said: bytes, why: str
) -> None:
    feed = sends(tmp_path, said)
    problem = problem_of(feed)
    assert problem.startswith(("what it sends makes no sense (", "its answer makes no sense ("))
    assert why in problem
    assert feed.latest().host.problem == Missing(problem)


@pytest.mark.parametrize("value", [1e308, -1e308, -(2**64) + 1, 2**64 - 1])
def test_a_value_out_of_its_range_is_absent_with_the_reason_and_the_others_are_shown(value: float) -> None:
    plain = plain_sample(sample(gpus=2, second=1.0), "")
    for key in ("power_w", "memory_used_bytes", "pcie_rx_bytes_per_s", "cpu_busy_pct"):
        for device in (plain["host"], *plain["gpus"]):
            device["values"][key] = value
    for process in plain["processes"]:
        process.update(cpu_pct=1e308, elapsed_s=1e308)
    rebuilt, _ = sample_from(plain, 1, SECOND_NS)
    power = rebuilt.gpus[0].values["power_w"]
    assert power == Missing(f"the host answered {value:g} W")
    assert isinstance(rebuilt.gpus[0].values["temperature_c"], int | float)
    assert not isinstance(rebuilt.processes, Missing)
    assert {one.cpu_pct for one in rebuilt.processes} == {Missing("the host answered 1e+308 %")}
    seen = HostSample(Host("evil", ()), rebuilt, "", rebuilt.t_ns, "", "", 0)
    hosts, panes = HostsModel(), MonitorModel(MonitorSettings(), title="evil")
    hosts.take([seen])
    panes.add(rebuilt)
    assert "evil" in text_of(hosts.lines(80, 24, SECOND_NS))
    assert "the host answered" in text_of(panes.lines(80, 24, SECOND_NS))


def test_a_feed_that_an_error_ends_which_nobody_foresaw_says_so_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: object) -> LiveSample:
        raise ZeroDivisionError

    monkeypatch.setattr("gputui.services.hosts.live.sample_from", fails)
    assert problem_of(sends(tmp_path, b"{}")) == "this is a bug in gputui: ZeroDivisionError"


def test_a_host_that_never_ends_its_first_message_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputui.services.hosts.live.SILENCE_S", 0.5)
    (tmp_path / "drips.py").write_text(DRIPS)
    feed = HostFeed(Host("drips", (sys.executable, str(tmp_path / "drips.py"))), 1.0)
    assert problem_of(feed) == "its answer does not come, or does not end"


def heard(name: str, gpus: int = 8, case: str = "") -> HostSample:
    whole = sample(gpus=gpus, second=1.0)
    return HostSample(Host(name, ()), whole, case, whole.t_ns, "", "", 0)


@pytest.mark.parametrize(
    ("changes", "word", "style"),
    [
        ({"throttle_bits": 0x20, "temperature_c": 60.0}, "THERMAL", "alarm"),
        ({"throttle_bits": 0x4, "power_w": 690.0}, "POWER-CAPPED at 700 W", "warn"),
        ({"throttle_bits": 0x4, "power_w": 400.0}, "POWER-CAPPED at 700 W", "dim"),
    ],
)
def test_the_list_of_hosts_the_panes_and_the_run_screen_judge_alike(
    changes: dict[str, Value], word: str, style: str
) -> None:
    hosts, panes, run = HostsModel(), MonitorModel(MonitorSettings(), title="gpu-a"), Throttling()
    for second in range(6):
        now = sample(gpus=1, second=float(second), changes={0: changes})
        hosts.take([HostSample(Host("gpu-a", ()), now, "", now.t_ns, "", "", 0)])
        panes.add(now)
        run.add(now.t_ns, now.gpus[0].values)
    (row,) = [line for line in hosts.lines(120, 12, now.t_ns) if "gpu-a" in "".join(s.text for s in line)]
    of_hosts = next(span for span in row if word.split()[0] in span.text)
    of_panes = next(span for line in panes.lines(120, 30, now.t_ns) for span in line if word in span.text)
    figures = {key: value for key, value in now.gpus[0].values.items() if isinstance(value, int | float)}
    history = DeviceHistory(0, figures, 1.0, {}, run.slowed)
    (of_run, *_) = _health(history, make_machine("NVIDIA H200"))
    assert [one.style for one in (of_hosts, of_panes, of_run)] == [style] * 3
    assert of_run.text.startswith(word.split(" ")[0])


def test_each_host_has_its_line_and_the_one_that_is_silent_says_since_when_and_why() -> None:
    now_ns = sample(gpus=8, second=1.0).t_ns
    model = HostsModel()
    silent = replace(
        heard("gpu-b"),
        heard_ns=now_ns - 90 * SECOND_NS,
        problem="it does not answer",
        hint="is the box up?",
    )
    never = HostSample(Host("typo", ()), None, "", 0, "there is no such host", "correct it", 0)
    model.take([heard("gpu-a", case="gemm base gpu fp32"), heard("laptop", gpus=0), silent, never])
    shown = model.lines(100, 12, now_ns)
    lines = text_of(shown).splitlines()
    assert lines[0].startswith("gputui  2 of 4 hosts · ")
    assert "GPUs busy" in lines[0]
    assert lines[2].startswith("▸ gpu-a ")
    assert [span.text.strip() for line in shown for span in line if span.style == "selected"] == ["gpu-a"]
    assert " kW · " in lines[0]
    assert Span("3 with a fault", "alarm") in shown[0]
    assert "/8 GPU" in lines[2]
    assert "gemm base gpu fp32" in lines[2]
    assert "% CPU" in lines[3]
    assert "silent for 90 s: it does not answer (is the box up?)"[:36] in lines[4]
    assert "there is no such host (correct it)" in lines[5]
    assert all(len(line) <= 100 for line in lines)
    assert lines[-2].rstrip() == "gpu-a: GPU 6 ECC 2, GPU 3 POWER-CAPPED at 700 W, GPU 5 PCIe x4 of x16"
    model.press("last")
    assert model.selected == "typo"
    assert text_of(model.lines(100, 12, now_ns)).splitlines()[-2].startswith("typo: there is no such host")
    model.press("sort")
    assert text_of(model.lines(100, 12, now_ns)).splitlines()[2].strip("▸ ").split()[0] != "laptop"


def test_hosts_below_the_screen_are_counted_and_come_into_sight() -> None:
    now_ns = sample(gpus=1, second=1.0).t_ns
    model = HostsModel(ascii_only=True)
    model.take([heard(f"box-{n:02}", gpus=1) for n in range(50)])
    text = text_of(model.lines(80, 24, now_ns))
    assert "29 more below" in text
    assert text.isascii()
    model.press("last")
    assert "box-49" in text_of(model.lines(80, 24, now_ns))
    model.take([heard("laptop", gpus=0)])
    assert re.search(r"  -  \d+(\.\d)? GiB", text_of(model.lines(120, 40, now_ns))), "no minus sign"
    assert list_of(HOSTS_ACTIONS) in (Path(__file__).parents[3] / "docs" / "hosts.md").read_text()


def test_at_eighty_columns_what_ails_a_host_has_room_beside_long_names() -> None:
    model = HostsModel()
    model.take([heard("gpu-b.eu-north.example.net"), heard("gpu-c.eu-north.example.net")])
    narrow, wide = (
        text_of(model.lines(columns, 24, sample(gpus=8, second=1.0).t_ns)).splitlines()
        for columns in (80, 100)
    )
    assert narrow[1].rstrip().endswith("MEMORY  HEALTH, CASE")
    assert narrow[2].rstrip().endswith("51 %  GPU 6 ECC 2 +2")
    assert "gpu-b.eu-north.example.…" in wide[2]
    assert "GiB" in wide[2]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    made = Servers(tmp_path / "servers")
    yield made
    made.end()


@needs_sshd
@pytest.mark.slow
def test_hosts_are_watched_in_one_view_and_opened_over_ssh(servers: Servers) -> None:
    servers.start("one")
    two = servers.start("two")
    words = [sys.executable, "-m", "gputui", "monitor", "--host", "one", "--host", "two"]
    with Terminal(words, 100, 24, environment=servers.environment) as terminal:
        terminal.wait_for("2 of 2 hosts")
        two.end()
        terminal.wait_for("1 of 2 hosts")
        terminal.wait_for("no ssh server answers")
        terminal.type(b"\r")
        terminal.wait_for("processes")
        terminal.type(b"\x1b")
        terminal.wait_for("1 of 2 hosts")
        terminal.type(b"q")
        assert terminal.ended() == 0
    done = gputui("bakeoff", "--clean", "--yes", "--host", "one", env=servers.environment)
    assert (done.returncode, done.stdout.startswith("one: ")) == (0, True)


@pytest.mark.slow
def test_a_live_view_survives_hostile_hosts_and_shows_the_good_one(tmp_path: Path) -> None:
    bomb = zlib.compress(bytes(2**26), 9)
    evil = tmp_path / "evil.py"
    evil.write_text(f"BOMB = {bomb!r}\n" + EVIL)
    vias = [word for mode in MODES for word in ("--via", f"{sys.executable} {evil} '{mode}'")]
    words = [sys.executable, "-m", "gputui", "monitor", "--via", "env GOOD=1", *vias]
    with Terminal(words, 200, 50) as terminal:
        terminal.wait_for("of 9 hosts")
        terminal.wait_for(lambda: "connecting" not in "\n".join(terminal.screen.display))
        for _ in MODES:
            terminal.type(b"j\r")
            terminal.wait_for(lambda: "of 9 hosts" not in "\n".join(terminal.screen.display))
            terminal.type(b"\x1b")
            terminal.wait_for("of 9 hosts")
        good = next(line for line in terminal.text.splitlines() if "env GOOD=1" in line)
        assert "GiB" in good
        assert "bug" not in terminal.text
        assert "nested more than 64 deep" in terminal.text
        terminal.type(b"q")
        assert terminal.ended() == 0
