"""A separate Postgres server for a test run, a pooler in front of it, and a network that can be cut.

Everything is on loopback, in a temporary folder, under an unprivileged user.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from support.ports import free_port

NOT_HERE = "no Postgres server program is installed (Debian: postgresql)"
NO_POOLER = "pgbouncer is not installed (Debian: pgbouncer)"
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset


def programs() -> Path | None:
    """Return the folder of the newest server's programs, or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    there = shutil.which("initdb")
    return found[-1].parent if found else Path(there).parent if there else None


class PostgresServer:
    """A server with separate data, which can be killed and started again.

    Args:
        fsync: Whether a commit waits for the disk, as in production.
    """

    def __init__(self, *, fsync: bool = False) -> None:
        self._fsync = "on" if fsync else "off"
        found = programs()
        assert found is not None, NOT_HERE
        self._programs = found
        self.folder = Path(tempfile.mkdtemp(prefix="fsm-pg-"))
        self._user = None if os.getuid() else "postgres"  # it refuses to run as root
        if self._user is not None:
            owner = pwd.getpwnam(self._user)
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
        self.port = free_port()
        self._run("initdb", "-D", "data", "-U", "fsm", "--auth=trust", "-E", "UTF8", "--locale=C", "--no-sync")
        rules = self.folder / "data" / "pg_hba.conf"
        rules.write_text(f"host all guarded 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        self.start()

    def url(self, schema: str = "fsm_agent", port: int | None = None) -> str:
        return f"postgresql://fsm@127.0.0.1:{port or self.port}/postgres?schema={schema}"

    def pooler(self) -> Pooler:
        """Return a pooler of transactions that has few connections to the server."""
        return Pooler(self)

    def start(self) -> None:
        options = (
            f"-c listen_addresses=127.0.0.1 -c port={self.port} -c unix_socket_directories={self.folder}"
            f" -c fsync={self._fsync} -c max_connections=300"
        )
        self._run("pg_ctl", "-D", "data", "-o", options, "-l", "log", "-w", "start")

    def stop(self, mode: str = "immediate") -> None:
        """Stop it; "immediate" is a crash, as of kill -9 to all of its processes."""
        self._run("pg_ctl", "-D", "data", "-m", mode, "-w", "stop")

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._programs / program), *arguments],
            cwd=self.folder,
            user=self._user,
            group=self._user,
            extra_groups=[] if self._user else None,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=300,
        )


class Pooler:
    """PgBouncer, which gives each transaction a separate connection."""

    def __init__(self, server: PostgresServer, connections: int = 5) -> None:
        self.port = free_port()
        folder = server.folder / f"pooler-{self.port}"
        folder.mkdir()
        (folder / "users").write_text('"fsm" ""\n')
        options = {
            "listen_addr": "127.0.0.1",
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": folder / "users",
            "pool_mode": "transaction",
            "default_pool_size": connections,
            "server_login_retry": 1,
        }
        lines = [f"{name} = {value}" for name, value in options.items()]
        settings = folder / "pgbouncer.ini"
        settings.write_text(
            "\n".join(["[databases]", f"* = host=127.0.0.1 port={server.port}", "[pgbouncer]", *lines, ""])
        )
        self._process = subprocess.Popen(
            [pooler_program() or "pgbouncer", "-q", str(settings)],
            user=server._user,
            group=server._user,
            extra_groups=[] if server._user else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        ends_s = time.monotonic() + 60.0
        while time.monotonic() < ends_s:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), timeout=1.0).close()
                return
            time.sleep(0.05)
        self.close()
        raise AssertionError("pgbouncer does not listen")

    def close(self) -> None:
        self._process.kill()
        self._process.wait(60)


def pooler_program() -> str | None:
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class Network:
    """A way to a port that can be cut: it carries bytes both ways, unless told not to."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._there, self._back = threading.Event(), threading.Event()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self.heal()
        self._start(self._accept)

    def stall(self, *, is_half: bool = False) -> None:
        """Carry nothing, or nothing back, though sent data are acknowledged."""
        self._back.clear()
        if not is_half:
            self._there.clear()

    def heal(self) -> None:
        self._there.set()
        self._back.set()

    def reset(self) -> None:
        """End all connections with a reset; new ones may come."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for one in pair:
                with suppress(OSError):
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    one.shutdown(socket.SHUT_RDWR)  # wakes whoever reads it

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.heal()
        while any(thread.is_alive() for thread in self._threads):
            self.reset()
            time.sleep(0.01)

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(threading.Thread(target=work, args=arguments, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target), timeout=5.0)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            self._pairs.append((client, server))
            ends = threading.Barrier(2)
            self._start(_carry, client, server, self._there, ends)
            self._start(_carry, server, client, self._back, ends)


def _carry(source: socket.socket, target: socket.socket, way: threading.Event, ends: threading.Barrier) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            way.wait()
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
    ends.wait()  # neither is closed, and its number given to another, while it is in use
    source.close()
