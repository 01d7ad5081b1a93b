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
from command_line import gputui, wait_until
from monitor_samples import sample, text_of
from pty_harness import Terminal
from sshd import Servers, needs_sshd
from test_strangers import stranger

from gputui.model.absent import Missing
from gputui.model.live import LiveSample
from gputui.recording.live_changes import Changes
from gputui.services.hosts.host import Host
from gputui.services.hosts.live import HostFeed, HostSample
from gputui.services.hosts.replica import Replica
from gputui.tui.monitor.hosts import HOSTS_ACTIONS, HostsModel
from gputui.tui.shell.keymap import table_of
from gputui.tui.terminal.lines import Span

SECOND_NS = 10**9


def followed(samples: list[LiveSample]) -> tuple[list[bytes], LiveSample]:
    """The messages of these samples, and the last sample as it is rebuilt from them."""
    changes, replica = Changes(), Replica()
    messages = [json.dumps(changes.since_last(one)).encode() for one in samples]
    for message in messages:
        rebuilt = replica.apply(json.loads(message), samples[-1].t_ns)
    return messages, rebuilt


def test_a_followed_host_is_rebuilt_to_the_digits_that_are_shown() -> None:
    samples = [sample(gpus=8, second=float(second)) for second in range(5)]
    _, rebuilt = followed(samples)
    last = samples[-1]
    assert [gpu.label for gpu in rebuilt.gpus] == [gpu.label for gpu in last.gpus]
    for one, seen in zip((last.host, *last.gpus), (rebuilt.host, *rebuilt.gpus), strict=True):
        assert one.values.keys() == seen.values.keys()
        for key, value in one.values.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                assert seen.values[key] == pytest.approx(value, rel=0.01), key
            else:
                assert seen.values[key] == value
    assert rebuilt.processes == last.processes


def test_only_changes_are_sent_and_eight_gpus_take_less_than_a_kilobyte_a_second() -> None:
    still = sample(gpus=8, second=1.0)
    messages, _ = followed([still, replace(still, number=still.number + 1)])
    assert messages[1] == b"{}"
    samples = [replace(sample(gpus=8, second=float(second)), processes=Missing("no")) for second in range(61)]
    packer = zlib.compressobj(6)
    sizes = [len(packer.compress(m) + packer.flush(zlib.Z_SYNC_FLUSH)) for m in followed(samples)[0]]
    assert sum(sizes[1:]) / 60 < 1000


def test_a_gpu_that_is_lost_and_a_source_that_goes_are_seen_from_afar() -> None:
    first = sample(gpus=2, second=1.0)
    lost = replace(first.gpus[1], problem=Missing("the GPU is lost"))
    second = replace(first, gpus=(first.gpus[0], lost), absent={"amd": Missing("no driver")})
    _, rebuilt = followed([first, second])
    assert [gpu.problem for gpu in rebuilt.gpus] == [None, Missing("the GPU is lost")]
    assert rebuilt.absent == {"amd": Missing("no driver")}
    _, rebuilt = followed([first, second, replace(first, gpus=first.gpus[:1])])
    assert len(rebuilt.gpus) == 1


@pytest.mark.parametrize(
    "message",
    [
        b"[]",
        b'{"devices": {"host": {"device": 0}}}',
        b'{"devices": {"host": {"device": 0, "source": "host", "parent": null, "values": {"x": []}}}}',
        b'{"devices": {"host": {"device": 0, "source": "host", "parent": null, "values": {"x": 1e999}}}}',
        b'{"order": ["nvml 3"]}',
        b'{"order": [], "processes": [{"pid": "x"}]}',
    ],
)
def test_a_message_that_makes_no_sense_is_a_problem_of_its_host(tmp_path: Path, message: bytes) -> None:
    packer = zlib.compressobj(6)
    packed = packer.compress(message + b"\n") + packer.flush(zlib.Z_SYNC_FLUSH)
    feed = HostFeed(stranger(tmp_path, {"watch": [[{"more": 1, "bytes": len(packed)}, packed.hex()]]}), 1.0)
    feed.start()
    wait_until(lambda: feed.seen().problem not in ("", "connecting"), "the host has a problem")
    feed.close()
    assert feed.seen().problem == "what it sends makes no sense"
    assert feed.latest().host.problem == Missing("what it sends makes no sense")


def heard(name: str, gpus: int = 8, case: str = "") -> HostSample:
    whole = sample(gpus=gpus, second=1.0)
    return HostSample(Host(name, ()), whole, case, whole.t_ns, "", "", 0)


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
    model.take(
        [
            heard("gpu-a", case="gemm base gpu fp32"),
            heard("laptop", gpus=0),
            silent,
            never,
        ]
    )
    lines = text_of(model.lines(100, 12, now_ns)).splitlines()
    assert lines[0].startswith("gputui  2 of 4 hosts · ")
    assert "GPUs busy" in lines[0]
    assert lines[2].startswith("▸ gpu-a ")
    selected = [
        span.text.strip()
        for line in model.lines(100, 12, now_ns)
        for span in line
        if span.style == "selected"
    ]
    assert selected == ["gpu-a"]
    assert " kW · " in lines[0]
    assert Span("3 with a fault", "alarm") in model.lines(100, 12, now_ns)[0]
    assert "/8 GPU" in lines[2]
    assert "gemm base gpu fp32" in lines[2]
    assert "% CPU" in lines[3]
    assert "silent for 90 s: it does not answer (is the box up?)"[:40] in lines[4]
    assert "there is no such host (correct it)" in lines[5]
    assert all(len(line) <= 100 for line in lines)
    assert lines[-2].rstrip() == "gpu-a: GPU 6 ECC 2, GPU 3 POWER-CAPPED at 700 W, GPU 5 PCIe x4 of x16"
    model.press("last")
    assert model.selected == "typo"
    assert text_of(model.lines(100, 12, now_ns)).splitlines()[-2].startswith("typo: there is no such host")
    model.press("sort")
    assert text_of(model.lines(100, 12, now_ns)).splitlines()[2].strip("▸ ").split()[0] != "laptop"


def test_at_eighty_columns_what_ails_a_host_has_room_beside_long_names() -> None:
    now_ns = sample(gpus=8, second=1.0).t_ns
    model = HostsModel()
    model.take([heard("gpu-b.eu-north.example.net"), heard("gpu-c.eu-north.example.net")])
    lines = text_of(model.lines(80, 24, now_ns)).splitlines()
    assert lines[1].rstrip().endswith("MEMORY  HEALTH, CASE")
    assert lines[2].rstrip().endswith("51 %  GPU 6 ECC 2 +2")
    wide = text_of(model.lines(100, 24, now_ns)).splitlines()
    assert "gpu-b.eu-north.example.…" in wide[2]
    assert "GiB" in wide[2]


def test_hosts_below_the_screen_are_counted_and_come_into_sight() -> None:
    now_ns = sample(gpus=1, second=1.0).t_ns
    model = HostsModel(ascii_only=True)
    model.take([heard(f"box-{n:02}", gpus=1) for n in range(50)])
    text = text_of(model.lines(80, 24, now_ns))
    assert "29 more below" in text
    assert text.isascii()
    model.press("last")
    assert "box-49" in text_of(model.lines(80, 24, now_ns))


def test_an_absent_figure_does_not_look_like_a_minus_sign() -> None:
    now_ns = sample(gpus=8, second=1.0).t_ns
    model = HostsModel(ascii_only=True)
    model.take([heard("laptop", gpus=0)])
    assert re.search(r"  -  \d+(\.\d)? GiB", text_of(model.lines(120, 40, now_ns)))


def test_the_keys_of_the_hosts_are_in_the_docs() -> None:
    assert table_of(HOSTS_ACTIONS) in (Path(__file__).parents[3] / "docs" / "hosts.md").read_text()


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
    done = gputui("snapshot", "--host", "one", "--host", "two", "--json", env=servers.environment)
    hosts = json.loads(done.stdout)["hosts"]
    assert done.returncode == 1
    assert hosts["one"]["host"]["values"]["memory_total_bytes"] > 0
    assert hosts["two"]["problem"].startswith("no ssh server answers at this address and port")
    done = gputui("doctor", "--host", "one", env=servers.environment)
    assert done.returncode == 0, done.stdout
    assert "left there: " in done.stdout
    done = gputui("bakeoff", "--clean", "--yes", "--host", "one", env=servers.environment)
    assert (done.returncode, done.stdout.startswith("one: ")) == (0, True)
