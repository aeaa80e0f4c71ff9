"""A Postgres server of a test run's own: on loopback, in a temporary folder, under an unprivileged user."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

NOT_HERE = "no Postgres server program is installed (Debian: postgresql)"


def programs() -> Path | None:
    """Return the folder of the newest server's programs; None: there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    there = shutil.which("initdb")
    return found[-1].parent if found else Path(there).parent if there else None


class PostgresServer:
    """A server with its own data, which can be killed and started again."""

    def __init__(self) -> None:
        found = programs()
        assert found is not None, NOT_HERE
        self._programs = found
        self.folder = Path(tempfile.mkdtemp(prefix="fsm-pg-"))
        self._user = None if os.getuid() else "postgres"  # it refuses to run as root
        if self._user is not None:
            owner = pwd.getpwnam(self._user)
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._run("initdb", "-D", "data", "-U", "fsm", "--auth=trust", "-E", "UTF8", "--locale=C", "--no-sync")
        rules = self.folder / "data" / "pg_hba.conf"
        rules.write_text(f"host all guarded 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        self.start()

    def url(self, schema: str = "fsm_agent", port: int | None = None) -> str:
        return f"postgresql://fsm@127.0.0.1:{port or self.port}/postgres?schema={schema}"

    def start(self) -> None:
        options = (
            f"-c listen_addresses=127.0.0.1 -c port={self.port} -c unix_socket_directories={self.folder} -c fsync=off"
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
            timeout=60,
        )
