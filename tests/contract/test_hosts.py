"""Ranks on several hosts, all simulated on this one: they meet at a port, train together, and end
together."""

from __future__ import annotations

import math
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from statistics import mean
from typing import NoReturn

import psutil
import pytest
from command_line import gputui, gputui_here, start_gputui
from test_ddp import TINY, losses_of_one_process, rank_of, tiny

from gputui.worker.contract import Request, Unsupported
from gputui.worker.ranks import Lines, RankGroup, RankLost, _error_in, address_of, call_hosts
from gputui.worker.steps import resolve
from gputui.worker.workloads.ddp import start_ranks


@pytest.fixture
def rendezvous() -> str:
    """An address of this box at which two ports are free."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as found, socket.socket() as after:
            port: int = found.getsockname()[1]
            try:
                after.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return f"127.0.0.1:{port}"


def on_two_hosts(rendezvous: str) -> Request:
    one_per_host = {**TINY, "hosts": 2}
    return Request(one_per_host, "cpu", resolve("fp32", "cpu"), 1, tiny().seed, 600.0, "eager", rendezvous)


def train_forever(ranks: RankGroup) -> NoReturn:
    while True:
        ranks.ask_all(do="time", steps=1)


@contextmanager
def joined(rendezvous: str) -> Iterator[subprocess.Popen[str]]:
    """A second host, ready to join."""
    with start_gputui("join", rendezvous) as guest:
        assert guest.stdout is not None
        assert guest.stdout.readline() == f"waiting for a run at {rendezvous}; Ctrl-C ends\n"
        try:
            yield guest
        finally:
            guest.terminate()


def test_an_address_has_a_host_and_a_port_with_room_for_another() -> None:
    assert address_of("10.0.0.1:29400") == ("10.0.0.1", 29400)
    for wrong in ("", "10.0.0.1", ":29400", "a:b", "a:0", "a:65535", "a:-1", "a:٣"):
        with pytest.raises(ValueError, match=f"^{wrong}$"):
            address_of(wrong)


def test_without_an_address_the_case_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="2 hosts are needed, and no address was given"):
        start_ranks(on_two_hosts(""))


def test_an_address_of_another_box_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    done = gputui("run", "hosts", "--rendezvous", "192.0.2.1:29400", "--db", tmp_path / "a.db")
    assert done.returncode == 2
    assert "--rendezvous 192.0.2.1:29400: this box cannot listen at 192.0.2.1:29400 (" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_port_after_it_must_be_free_too(rendezvous: str, tmp_path: Path) -> None:
    address, port = address_of(rendezvous)
    with socket.create_server((address, port + 1)):
        done = gputui("run", "hosts", "--rendezvous", rendezvous, "--db", tmp_path / "a.db")
    assert done.returncode == 2
    assert f"this box cannot listen at {address}:{port + 1} (Address already in use)" in done.stderr


def test_what_a_rank_died_of_is_found_in_what_torchrun_writes() -> None:
    log = b"W1121 socket.cpp:207] hm\n[rank1]: Traceback (most recent call last):\n[rank1]:   File x\n"
    died = b"[rank1]: RuntimeError: no GPU\nERROR\ntorch.distributed.elastic.ChildFailedError: \n"
    assert _error_in(log + died) == "[rank1]: RuntimeError: no GPU"
    assert _error_in(b"nothing\nof the kind") == "nothing"
    assert _error_in(b"") == "it said nothing"


def test_a_host_whose_command_is_killed_joins_no_more(rendezvous: str) -> None:
    with joined(rendezvous) as guest:
        (helper,) = psutil.Process(guest.pid).children()
        guest.kill()
        assert psutil.wait_procs([helper], timeout=300)[1] == []


def test_hosts_that_do_not_join_are_counted(rendezvous: str) -> None:
    with pytest.raises(RankLost, match="0 of 2 other hosts joined: start gputui join there first"):
        call_hosts(rendezvous, 3, "workloads.ddp", 1, 1, patience_s=0.05)


def test_what_is_no_host_and_what_has_another_torch_is_sent_away_with_the_reason(rendezvous: str) -> None:
    address = address_of(rendezvous)
    heard = []

    def connected() -> socket.socket:
        while True:
            with suppress(ConnectionRefusedError):  # the host does not listen yet
                return socket.create_connection(address)

    def others() -> None:
        with connected() as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert stranger.recv(100) == b""
        with connected() as older:
            lines = Lines(older)
            lines.send({"torch": "1.0"})
            heard.append(lines.take(math.inf))

    thread = threading.Thread(target=others)
    thread.start()
    ours = metadata.version("torch")
    with pytest.raises(Unsupported, match=r"torch 1\.0 is on another host"):
        call_hosts(rendezvous, 2, "workloads.ddp", 1, 1, patience_s=300)
    thread.join()
    assert heard == [{"do": "leave", "why": f"torch {ours} is there, 1.0 here"}]


@pytest.mark.slow
def test_ranks_of_two_hosts_train_as_one_process_does_and_when_a_host_leaves_the_next_case_is_lost_at_once(
    rendezvous: str,
) -> None:
    with joined(rendezvous) as guest:
        ranks = start_ranks(on_two_hosts(rendezvous))
        try:
            found = []
            for _ in range(3):
                ranks.ask_all(do="time", steps=1)
                answers = ranks.ask_all(do="digest")
                assert answers[0]["digest"] == answers[1]["digest"]
                found.append(mean(float(answer["loss"]) for answer in answers))
        finally:
            ranks.close()
        assert found == pytest.approx(losses_of_one_process(3), rel=1e-4)
        assert guest.stdout is not None
        for line in iter(guest.stdout.readline, "the case has ended\n"):
            assert line, "it left"

        ranks = start_ranks(on_two_hosts(rendezvous))
        theirs = psutil.Process(guest.pid).children(recursive=True)
        assert "1" in {rank_of(process) for process in theirs}
        guest.terminate()
        with pytest.raises(RankLost, match=r"another host is gone|rank 1 on another host ended"):
            train_forever(ranks)
        ranks.close()
        assert psutil.wait_procs(theirs, timeout=300)[1] == []
    assert guest.returncode == 128 + signal.SIGTERM


def test_joining_needs_an_address_and_a_torch(tmp_path_factory: pytest.TempPathFactory) -> None:
    wrong = gputui_here("join", "10.0.0.1")
    assert (wrong.returncode, "10.0.0.1: is not ADDRESS:PORT" in wrong.stderr) == (2, True)
    typed = gputui_here("join", "no-such-host.invalid:29400")
    assert (typed.returncode, "no-such-host.invalid:29400: no such host" in typed.stderr) == (2, True)
    venv = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    lacking = gputui_here("join", "10.0.0.1:29400", "--python", venv / "bin" / "python")
    assert lacking.returncode == 3
    assert "name an interpreter that has torch" in lacking.stderr


def test_a_host_that_is_told_to_leave_says_why(rendezvous: str) -> None:
    with socket.create_server(address_of(rendezvous)) as listener:
        guest = start_gputui("join", rendezvous)
        lines = Lines(listener.accept()[0])
        assert lines.take(time.monotonic() + 300) == {"torch": metadata.version("torch")}
        lines.send({"do": "leave", "why": "torch 1.0 is there, 2.0 here"})
        message = guest.communicate(timeout=300)[0]
        lines.socket.close()
    assert guest.returncode == 2
    assert message.endswith("torch 1.0 is there, 2.0 here\n")
