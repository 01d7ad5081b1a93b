"""Real ssh servers on loopback, each like a machine: a home, interpreters, and where allowed an identity."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import wait_until

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
SYSTEM_PYTHONS = (
    "/usr/bin/python3",
    "/usr/local/bin/python3",
    "/opt/conda/bin/python",
    "/venv/main/bin/python",
)
needs_sshd = pytest.mark.skipif(
    SSHD is None or shutil.which("ssh") is None, reason="there is no sshd: apt-get install openssh-server"
)


@functools.cache
def may_unshare() -> bool:
    """Whether a server can have mounts, and with them an identity, of its own."""
    tried = subprocess.run(
        ["unshare", "-m", "sh", "-c", "mount --bind /dev/null /etc/hostname"],
        capture_output=True,
        check=False,
    )
    return tried.returncode == 0


@dataclass
class Server:
    """One sshd and the directory of what it shows: `home`, `bin`, keys and config."""

    name: str
    directory: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def home(self) -> Path:
        return self.directory / "home"

    def end(self) -> None:
        """End the server, and the connections of it; what they started goes on."""
        _end_children(self.process.pid)
        self.process.kill()
        self.process.wait()

    def cut(self) -> None:
        """Cut the connections without a word, as a dead link does; the server takes new ones."""
        _end_children(self.process.pid)


def _end_children(pid: int) -> None:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for child in map(int, children):
        os.kill(child, signal.SIGKILL)


class Servers:
    """Servers of one test; `environment` makes gputui reach them by their names."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._config = directory / "ssh_config"
        self._servers: list[Server] = []
        self._key = directory / "key"
        directory.mkdir()
        _make_key(self._key)
        self._config.write_text(
            f"Host *\n IdentityFile {self._key}\n IdentitiesOnly yes\n"
            f" UserKnownHostsFile {directory / 'known_hosts'}\n StrictHostKeyChecking yes\n"
        )

    @property
    def environment(self) -> dict[str, str]:
        state = self._directory / "state"
        return {"GPUTUI_SSH": f"ssh -F {self._config}", "GPUTUI_STATE": str(state)}

    def start(
        self,
        name: str,
        *,
        python: str | None = "",
        options: Sequence[str] = (),
        core: int | None = None,
        environ: Mapping[str, str] | None = None,
        binds: Mapping[str, Path] | None = None,
        home_options: str = "",
        is_known: bool = True,
    ) -> Server:
        """Start a server. `python` is the text of `python3` there, by default this interpreter.

        `binds` are files of the system that are replaced there, and with `home_options` its home is a
        file system in memory; both need `may_unshare`.
        """
        directory = self._directory / name
        for sub in ("home", "bin"):
            (directory / sub).mkdir(parents=True)
        key = directory / "host_key"
        _make_key(key)
        if python is not None:
            write_script(directory / "bin" / "python3", python or f'exec {sys.executable} "$@"')
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        set_env = {
            "HOME": str(directory / "home"),
            "PATH": f"{directory / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin",
            **(environ or {}),
        }
        config = directory / "sshd_config"
        config.write_text(
            "".join(f"{option}\n" for option in options)  # of each option the first counts
            + f"Port {port}\nListenAddress 127.0.0.1\nHostKey {key}\nAuthorizedKeysFile {self._key}.pub\n"
            "StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\nPasswordAuthentication no\n"
            "KbdInteractiveAuthentication no\nMaxStartups 100:30:200\nPrintMotd no\n"
            f"SetEnv {' '.join(f'{name}={value}' for name, value in set_env.items())}\n"
        )
        Path("/run/sshd").mkdir(exist_ok=True)
        assert SSHD is not None
        command = [SSHD, "-D", "-e", "-f", str(config)]
        if core is not None:
            command = ["taskset", "-c", str(core), *command]
        if may_unshare():
            identity = {
                "/etc/machine-id": uuid.uuid4().hex,
                "/proc/sys/kernel/random/boot_id": str(uuid.uuid4()),
            }
            bound = dict(binds or {})
            for path, text in identity.items():
                bound[path] = directory / path.replace("/", "_")
                bound[path].write_text(text + "\n")
            mounts = " && ".join(f"mount --bind {source} {path}" for path, source in bound.items())
            if home_options:
                mounts += f" && mount -t tmpfs -o {home_options} tmpfs {directory / 'home'}"
            command = ["unshare", "-m", "sh", "-c", f'{mounts} && exec "$@"', "sh", *command]
        log = (directory / "log").open("wb")
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        server = Server(name, directory, port, process)
        self._servers.append(server)
        with self._config.open("a") as file:
            file.write(f"Host {name}\n HostName 127.0.0.1\n Port {port}\n")
        if is_known:
            self.know(server)
        wait_until(lambda: _listens(port) or process.poll() is not None, f"sshd of {name}")
        assert process.poll() is None, (directory / "log").read_text()
        return server

    def know(self, server: Server) -> None:
        """Accept its host key, in place of one it had."""
        known = self._directory / "known_hosts"
        kind, key, *_ = (server.directory / "host_key.pub").read_text().split()
        place = f"[127.0.0.1]:{server.port}"
        lines = known.read_text().splitlines() if known.exists() else []
        lines = [line for line in lines if not line.startswith(f"{place} ")]
        known.write_text("\n".join([*lines, f"{place} {kind} {key}"]) + "\n")

    def end(self) -> None:
        for server in self._servers:
            if server.process.poll() is None:
                server.end()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _make_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def write_script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path
