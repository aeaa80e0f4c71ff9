"""Runs a command once: sends its input, yields its output as it arrives, and ends all of its processes.

The code watches the pipes of a `subprocess.Popen`.  asyncio's own subprocesses are unsuitable: asyncio reaps the
process before its group is killed, so another process may have the same id by then, and in some Python versions
``wait`` also waits for every process that inherited the output.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import suppress
from io import FileIO

from fsm_agent.errors import BadReply, ConfigError, Overloaded, TimedOut, UsageError

MAX_ERROR_BYTES = 8_192  # how much of the end of stderr is kept
_PIECE = 65_536
_MOST_HELD = 16 * _PIECE  # the capacity of a pipe: see `man 7 pipe`
_BUSY = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # other commands may free these resources
_LOOK_S = 0.05  # how often to poll where the system has no pidfd


class CommandRun:
    """A command that runs in a new session.  When it ends, so does everything in its process group.

    Attributes:
        status: The exit status once `output` has ended; negative if a signal ended the process.
        errors: The last part of its standard error output.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        content: bytes,
        timeout_s: float,
        *,
        env: Mapping[str, str] | None,
        cwd: str | None,
        max_output_bytes: int,
    ) -> None:
        self._arguments, self._env, self._cwd = list(arguments), env, cwd
        self._program = os.path.basename(arguments[0])
        self._max_output_bytes = max_output_bytes
        self._timeout_s = timeout_s
        self._end_s = time.monotonic() + timeout_s
        self._left = memoryview(content)  # for stdin
        self._taken_bytes = 0
        self.status: int | None = None
        self.errors = b""

    async def output(self) -> AsyncGenerator[bytes]:
        """Yield the pieces of standard output as they arrive.  Closing the generator ends the process.

        Raises:
            ConfigError: If the program cannot be started.
            UsageError: If its arguments are too long.
            TimedOut: If the command exceeds its time limit.
            BadReply: If its output is too long.
            Overloaded: If the system has run out of file descriptors or processes.
        """
        self._check_time()
        process, end = self._start(), None
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        out, err, into = process.stdout.fileno(), process.stderr.fileno(), process.stdin.fileno()
        try:
            for file in (out, err, into):
                os.set_blocking(file, False)
            end = _file_of_end(process.pid)
            reads, writes, has_ended = {out, err} if end is None else {out, err, end}, {into}, False
            while not has_ended:  # do not wait for processes that inherited the output
                self._check_time()
                left_s = self._end_s - time.monotonic()
                ready = await _ready(reads, writes, left_s if end is not None else min(left_s, _LOOK_S))
                has_ended = _has_ended(process.pid) if end is None else end in ready
                if writes and not self._write(into):
                    writes.clear()
                    process.stdin.close()
                for piece in _taken(err, reads, is_last=has_ended):
                    self.errors = (self.errors + piece)[-MAX_ERROR_BYTES:]
                for piece in _taken(out, reads, is_last=has_ended):
                    self._count(piece)
                    yield piece
                    self._check_time()
        finally:
            if end is not None:
                os.close(end)
            self.status = await _end(process)

    def _start(self) -> subprocess.Popen[bytes]:
        ends: list[int] = []  # Popen of Python 3.11.2 leaks pipes if descriptors run out halfway
        try:
            for _ in range(3):
                ends += os.pipe()
            their_in, our_in, our_out, their_out, our_err, their_err = ends
            process = subprocess.Popen(
                self._arguments,
                stdin=their_in,
                stdout=their_out,
                stderr=their_err,
                env=self._env,
                cwd=self._cwd,
                start_new_session=True,
            )
        except OSError as error:
            for end in ends:
                os.close(end)
            if error.errno in _BUSY:
                raise Overloaded(f"the command {self._program!r} cannot be started now: {error.strerror}") from None
            if error.errno == errno.E2BIG:
                raise UsageError(
                    f"the arguments of {self._program!r} are too long for this system; leave out '{{prompt}}', and the"
                    " prompt goes to its standard input"
                ) from None
            folder = f" in {self._cwd!r}" if self._cwd else ""
            reason = error.strerror or type(error).__name__
            raise ConfigError(
                f"the command {self._program!r} cannot be started{folder}: {reason}; pass the path of a program"
                " that is installed"
            ) from None
        for end in (their_in, their_out, their_err):
            os.close(end)
        process.stdin = FileIO(our_in, "wb")
        process.stdout, process.stderr = FileIO(our_out), FileIO(our_err)
        return process

    def _write(self, into: int) -> bool:
        try:
            self._left = self._left[os.write(into, self._left[:_PIECE]) :]
        except BlockingIOError:
            return True
        except OSError:  # the command closed its input, but may still answer
            return False
        return bool(self._left)

    def _check_time(self) -> None:
        if time.monotonic() >= self._end_s:
            raise TimedOut(f"the command {self._program!r} did not end in {self._timeout_s:g} s")

    def _count(self, piece: bytes) -> None:
        self._taken_bytes += len(piece)
        if self._taken_bytes > (most := self._max_output_bytes):
            raise BadReply(
                f"the command {self._program!r} wrote more than {most:,} bytes; pass max_output_bytes=… to allow more",
                retryable=False,
            )


async def _ready(reads: set[int], writes: set[int], most_s: float) -> set[int]:
    """Wait until some of these descriptors are readable or writable, and return them."""
    loop, ready = asyncio.get_running_loop(), set[int]()
    woken = loop.create_future()

    def wake(file: int) -> None:
        ready.add(file)
        if not woken.done():
            woken.set_result(None)

    try:
        for file in reads:
            loop.add_reader(file, wake, file)
        for file in writes:
            loop.add_writer(file, wake, file)
        await asyncio.wait([woken], timeout=most_s)
    finally:
        for file in reads:
            loop.remove_reader(file)
        for file in writes:
            loop.remove_writer(file)
    return ready


def _taken(file: int, reads: set[int], *, is_last: bool) -> Iterator[bytes]:
    """Yield one piece if one can be read at once, or everything that is left if this is the last read.

    A descriptor that has reached its end is removed from ``reads``.
    """
    for _ in range(_MOST_HELD // _PIECE if is_last else 1):
        try:
            piece = os.read(file, _PIECE) if file in reads else b""
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            reads.discard(file)
            return
        yield piece


def _file_of_end(pid: int) -> int | None:
    """Return a descriptor that becomes readable when the process ends, or None if the system offers none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


async def _end(process: subprocess.Popen[bytes]) -> int:
    """Kill the process group, and return its leader's exit status.

    The leader has not been reaped yet, so no other process can have its id.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    status = process.poll()
    return await asyncio.to_thread(process.wait) if status is None else status
