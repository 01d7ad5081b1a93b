"""What a user reads of a host that cannot be used: one line, with what to do. Real ssh servers."""

from __future__ import annotations

import shutil
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import printed
from probed_hosts import probed
from sshd import SYSTEM_PYTHONS, Servers, may_unshare, needs_sshd, write_script

from gputui.errors import GputuiError
from gputui.services.hosts import link
from gputui.services.hosts.box import Box
from gputui.services.hosts.host import Host, hosts_from
from gputui.services.hosts.link import Link

pytestmark = [needs_sshd, pytest.mark.slow]


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    made = Servers(tmp_path / "servers")
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    yield made
    made.end()


def asked(*names: str, directory: str = "") -> list[Box | GputuiError]:
    return probed(hosts_from(names, (), with_local=False, directory=directory))


def said(found: Box | GputuiError) -> str:
    assert isinstance(found, GputuiError)
    return f"{found.message}: {found.hint}"


def test_each_way_to_fail_before_anything_runs_there_has_its_line(servers: Servers, tmp_path: Path) -> None:
    servers.start("unknown", is_known=False)
    changed = servers.start("changed")
    other = servers.start("forced", options=['ForceCommand echo "backups only"'])
    known = (tmp_path / "servers" / "known_hosts").read_text()
    key = (other.directory / "host_key.pub").read_text().split()[1]
    place = f"[127.0.0.1]:{changed.port} ssh-ed25519 "
    old = known.partition(place)[2].partition("\n")[0]
    (tmp_path / "servers" / "known_hosts").write_text(known.replace(place + old, place + key))
    servers.start("keyless", options=["AuthorizedKeysFile none"])
    gone = servers.start("gone")
    gone.end()
    servers.start("leaves", options=["ForceCommand exit 3"])
    names = ("unknown", "changed", "keyless", "gone", "forced", "leaves", "no-such.invalid")
    answers = dict(zip(names, map(said, asked(*names)), strict=True))
    config = f"-F {tmp_path}/servers/ssh_config"
    assert answers == {
        "unknown": "its host key is not known here yet: "
        f"log in once, and compare the key: ssh {config} unknown",
        "changed": "its host key has changed: if the box was set up anew: "
        f"ssh {config} changed says which key to remove",
        "keyless": "it accepts none of your keys without a question: "
        f"log in once: ssh {config} keyless; then ssh-add, or ssh-copy-id keyless",
        "gone": "no ssh server answers at this address and port: is the box up, and the port right?",
        "forced": 'its login runs another command than gputui\'s; it printed "backups only": '
        "a ForceCommand or a start-up file that exits; gputui needs a plain shell there",
        "leaves": f"its command ended with status 3: try it: ssh {config} leaves",
        "no-such.invalid": "there is no such host: correct the name, or add it to ~/.ssh/config",
    }


@pytest.mark.skipif(not may_unshare(), reason="no mounts of one's own here")
def test_a_login_that_prints_is_fine_and_a_python_or_a_disk_that_will_not_do_is_named(
    servers: Servers, tmp_path: Path
) -> None:
    stub = write_script(tmp_path / "old", "printf 'False\\n3.8.10\\n'")
    nothing = write_script(tmp_path / "nothing", "exit 127")
    pythons = [path for name in SYSTEM_PYTHONS if (path := Path(name)).exists()]
    there = {str(path.resolve()) for path in pythons}
    banner = tmp_path / "banner"
    banner.write_text("Welcome!\n\x1b[31mDo not mine.\x1b[0m\n")
    chatty = [
        'ForceCommand echo "up 9 days"; printf "no line end"; sh -c "$SSH_ORIGINAL_COMMAND"',
        f"Banner {banner}",
    ]
    servers.start("chatty", options=chatty)
    servers.start("old", python="printf 'False\\n3.8.10\\n'", binds=dict.fromkeys(there, stub))
    servers.start("bare", python="exit 127", binds=dict.fromkeys(there, nothing))
    full = servers.start("full", home_options="size=64k")
    locked = servers.start("locked", home_options="ro")
    answers = asked("chatty", "old", "bare", "full", "locked")
    assert isinstance(answers[0], Box)
    old, bare, no_space, read_only = map(said, answers[1:])
    assert old.startswith("there is no Python 3.10 or newer (")
    assert "is 3.8.10" in old
    assert bare == "there is no Python: install python3, or name an interpreter: --python HOST=EXE"
    full_dir, locked_dir = full.home / ".gputui", locked.home / ".gputui"
    assert (
        no_space
        == f'no space is left for "{full_dir}": free some space there, or choose another directory: --dir'
    )
    assert read_only == (
        f'"{locked_dir}" cannot be written ("Read-only file system"):'
        " choose a writable directory: --dir /tmp makes one in /tmp that is yours alone"
    )


def test_any_login_shell_starts_the_measuring_half_and_a_directory_may_have_a_blank(tmp_path: Path) -> None:
    """The command reaches ssh as one text, which the login shell there parses."""
    shells = [shell for shell in ("sh", "dash", "bash", "zsh", "ksh", "tcsh", "fish") if shutil.which(shell)]
    there = tmp_path / "a directory"
    for shell in shells:
        with Link(Host(shell, (shell, "-c"), is_ssh=True, directory=str(there))) as opened:
            assert opened.ask("left")["path"] == str(there), shell


def test_a_login_that_hangs_is_given_up(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    servers.start("slow", options=["ForceCommand echo loading modules; sleep 600"])
    monkeypatch.setattr(link, "LOGIN_TIMEOUT_S", 5.0)
    (found,) = asked("slow")
    assert said(found).startswith('its login gives no shell in time; it printed "loading modules": its shell')


def test_a_command_that_is_no_shell_and_one_that_is_missing_say_so() -> None:
    found = probed([Host("cat", ("cat", "/dev/null")), Host("none", ("no-such-engine", "exec"))])
    assert said(found[0]).startswith('its command ended with status 1 and said "cat: ')
    assert said(found[1]) == "no-such-engine cannot be started (No such file or directory): is it installed?"


def test_a_host_without_torch_says_so_before_anything_is_started(
    servers: Servers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lean = servers.start("lean")
    venv.create(tmp_path / "bare", symlinks=True)
    bare = tmp_path / "bare" / "bin" / "python"
    words = ("bakeoff", "--host", "lean", "--python", f"lean={bare}", "--db", tmp_path / "a.db", "--yes")
    status, out, err = printed(capsys, *words)
    assert (status, out) == (3, "")
    assert err.splitlines()[1:] == [
        (
            f"lean: profile quick needs torch: torch not installed in {bare}: name an interpreter that has"
            " it: --python ~/envs/torch/bin/python; or install it: pip install torch"
        ),
        "gputui: nothing was measured",
        "  gputui doctor on a box says when it can be",
    ]
    assert not (lean.home / ".gputui" / "runs").exists()
