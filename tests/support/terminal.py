"""The command in a terminal of its own."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import fsm_agent

ROOT = Path(fsm_agent.__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "TERM": "xterm-256color"}
ENVIRONMENT["PYTHONUNBUFFERED"] = ""  # so that something is still to be written when a pipe breaks
LIMIT_S = 60
LAUNCH = (  # a Ctrl-C arrives even where this test run was started in the background, with SIGINT ignored
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\nfrom fsm_agent.cli import main; main()"
)


class Terminal:
    """A terminal with the command in it, or another program in Python."""

    def __init__(self, *arguments: str, program: str = LAUNCH, **environment: str) -> None:
        import pty

        self._terminal, theirs = pty.openpty()
        launched = [sys.executable, "-c", program, *arguments]
        self.process = subprocess.Popen(
            launched,
            env={**ENVIRONMENT, **environment},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""

    def read_until(self, text: str = "") -> None:
        """Read until ``text`` was seen; without one, until the end."""
        while not text or text not in self.seen:
            assert select.select([self._terminal], [], [], LIMIT_S)[0], f"{text!r} was not seen in {self.seen!r}"
            try:
                piece = os.read(self._terminal, 4096)
            except OSError:  # Linux' word for the end of a terminal
                piece = b""
            if not piece:
                assert not text, f"{text!r} was never seen in {self.seen!r}"
                return
            self.seen += piece.decode(errors="replace")

    def type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._terminal)
