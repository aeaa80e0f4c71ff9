"""The command in a separate terminal, and what a person sees: the screen as text, equal each time.

Times, paths and ports are replaced by texts of nearly always the same length, before the terminal breaks its lines.
"""

from __future__ import annotations

import codecs
import os
import re
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyte

import fsm_agent

ROOT = Path(fsm_agent.__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "TERM": "xterm-256color"}
ENVIRONMENT["PYTHONUNBUFFERED"] = ""  # so that something is still to be written when a pipe breaks
LIMIT_S = 240  # the demo of a real model took 128 s on a machine with thirty other processes
ROWS = 1000  # of a terminal with a width: its screen holds everything
LEFT_IN_DISORDER = "the terminal is left in another mode"
LAUNCH = (  # a Ctrl-C arrives even where this test run was started in the background, with SIGINT ignored
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\nfrom fsm_agent.cli import main; main()"
)


_SHELL = f"""  # as a shell does: the terminal's Ctrl-C is for the command, whose end is waited for
import fcntl, os, signal, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
modes = termios.tcgetattr(0)
modes[3] = (modes[3] | termios.NOFLSH) & ~termios.ECHOCTL  # all output is kept, and none but that of the command
termios.tcsetattr(0, termios.TCSANOW, modes)
signal.signal(signal.SIGINT, signal.SIG_IGN)
if child := os.fork():
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if termios.tcgetattr(0) != modes:
        os.write(1, b"{LEFT_IN_DISORDER}")
    os._exit(status if status >= 0 else 128 - status)
signal.signal(signal.SIGINT, signal.default_int_handler)
del child, fcntl, modes, os, signal, termios
"""


class Terminal:
    """A terminal with the command in it, or another program in Python.

    Args:
        arguments: The arguments of the command.
        program: A program that runs instead of the command.
        columns: The width of the terminal, or None for ``COLUMNS``.
        folder: The working directory, or None for the tests' directory.
        environment: The variables.
        changes: Changes to the variables.
    """

    def __init__(
        self,
        *arguments: str,
        program: str = LAUNCH,
        columns: int | None = None,
        folder: Path | None = None,
        environment: Mapping[str, str] = ENVIRONMENT,
        **changes: str,
    ) -> None:
        import fcntl
        import pty
        import termios

        self._terminal, theirs = pty.openpty()
        known = {**environment, **changes}
        if columns is not None:
            known.pop("COLUMNS", None)
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", ROWS, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SHELL + program, *arguments],
            env=known,
            cwd=folder,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode  # a piece may end in a character
        self._found = 0  # the characters up to the end of the last text that was read

    def read_until(self, text: str = "") -> None:
        """Read until ``text`` was seen after all earlier texts, or to the end without one."""
        while not text or (at := self.seen.find(text, self._found)) < 0:
            assert select.select([self._terminal], [], [], LIMIT_S)[0], f"{text!r} was not seen in {self.seen!r}"
            try:
                piece = os.read(self._terminal, 4096)
            except OSError:  # Linux' word for the end of a terminal
                piece = b""
            if not piece:
                assert not text, f"{text!r} was never seen in {self.seen!r}"
                return
            self.seen += self._decode(piece).replace("\x03", "")  # the echo of Ctrl-C
        self._found = at + len(text)

    def type(self, keys: str) -> None:
        """Type keys; Ctrl-C when the command waits, since CPython forgets one that comes just before `input` waits."""
        waited, ends_s = 0 if keys == "\x03" else 5, time.monotonic() + LIMIT_S / 8
        while waited < 5 and time.monotonic() < ends_s:
            waited = waited + 1 if self._waits() else 0
            time.sleep(0.01)
        os.write(self._terminal, keys.encode())

    def interrupt(self) -> None:
        """Type Ctrl-C."""
        self.type("\x03")

    def _waits(self) -> bool:
        """Return False if the kernel says that the command is at work."""
        shell = self.process.pid
        try:
            command = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()[0]
            return Path(f"/proc/{command}/stat").read_text().rpartition(")")[2].split()[0] == "S"
        except (OSError, IndexError):  # no Linux, or it has ended
            return True

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._terminal)


_ALIKE: Sequence[tuple[re.Pattern[str], str]] = [  # what is found, and the text that is written over it
    (re.compile(r"(?<=127\.0\.0\.1:)\d{4,5}"), "54321"),
    (re.compile(r"/tmp/fsm-[a-z0-9_]{8}(?=/)"), "/tmp/fsm-xxxxxxxx"),
    (re.compile(r"(?<=fsm-agent-demo-)[a-z0-9_]{8}(?=\.svg)"), "xxxxxxxx"),
    (re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])"), "f" * 64),  # fingerprints
    (re.compile(r"(?<=chat-)[0-9a-f]{8}(?![0-9a-f])"), "12345678"),  # the runs of a chat
    (re.compile(r"(?<=run )[0-9a-f]{8}(?= in )"), "12345678"),
    (re.compile(r"(?<= )(?: \d|\d\d)\.\d(?= s\b)"), " 0.0"),  # in a column
    (re.compile(r"(?<=[ (])\d+\.\d(?= s\b)"), "0.0"),
    (re.compile(r"(?<=[ (])\d+(?= (?:s|ms) ago)"), "0"),
    (re.compile(r"\d{4}-\d\d-\d\d(?=[ T]\d\d:\d\d)"), "2026-11-23"),
    (re.compile(r"(?<=2026-11-23.)\d\d:\d\d:\d\d"), "10:00:00"),
    (re.compile(r"(?<=2026-11-23.)\d\d:\d\d(?!:)"), "10:00"),
    (re.compile(r"(?<=process )\d+"), "12345"),
    (re.compile(r"(?<=worker )\d+"), "12345"),
    (re.compile(r"(?<=fsm-agent )\d+\.\d+\S*"), "1.0"),
]


def alike(text: str) -> str:
    """Return ``text`` with the same times, paths, ports, names and versions whenever it was written."""
    for pattern, instead in _ALIKE:
        text = pattern.sub(instead, text)
    return text


def screen_of(written: str, columns: int) -> str:
    """Return the screen of a terminal after this output, followed by the remains of hidden cursors."""
    screen = replayed_screen(written, columns)
    shown = "\n".join([line.rstrip() for line in screen.display]).strip("\n")
    return f"{shown}\nTHE CURSOR IS HIDDEN" if screen.cursor.hidden else shown


class _DimScreen(pyte.Screen):
    """A screen that shows dim text in grey."""

    def select_graphic_rendition(self, *attributes: int) -> None:
        super().select_graphic_rendition(*attributes)
        if 2 in attributes:
            self.cursor.attrs = self.cursor.attrs._replace(fg="brightblack")


def replayed_screen(written: str, columns: int) -> Any:
    screen = _DimScreen(columns, ROWS)
    pyte.Stream(screen).feed(alike(written))
    return screen
