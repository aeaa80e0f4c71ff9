"""One run of a command: its input, its output as it comes, and the end of everything that it started."""

from __future__ import annotations

import errno
import os
import selectors
import signal
import subprocess
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from fsm_agent._internal.values import Value
from fsm_agent.clients.http.prepared_request import Deadline
from fsm_agent.errors import BadReply, ConfigError, Overloaded, TimedOut, UsageError
from fsm_agent.runtime.abort import Abort, abort_in_force

MAX_ERROR_BYTES = 8_192  # of the standard error output, its end
_PIECE = 65_536
_BUSY = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # other commands that run have them all
_LOOK_S = 0.05  # how often an ended process is looked for where the system has no file for it

T = TypeVar("T")


class Launch(Value, frozen=True, kw_only=True):
    """A command as it is started.  Its arguments and environment may hold secrets."""

    hidden = ("arguments", "env")

    arguments: Sequence[str]
    env: Mapping[str, str] | None
    cwd: str | None
    content: bytes  # for its standard input
    max_output_bytes: int

    @property
    def program(self) -> str:
        """The name of the program, for messages."""
        return os.path.basename(self.arguments[0])


class CommandRun:
    """A process in a session of its own, which ends with everything in its process group.

    Args:
        launch: The command.
        deadline: The end of the run.

    Attributes:
        status: The exit status, once `output` has ended; negative: the number of the signal that ended it.
        errors: The end of its standard error output.
    """

    def __init__(self, launch: Launch, deadline: Deadline) -> None:
        self._launch = launch
        self._deadline = deadline
        self._left = memoryview(launch.content)
        self._taken_bytes = 0
        self.status: int | None = None
        self.errors = b""

    def output(self) -> Generator[bytes]:
        """Yield the pieces of the standard output as they come.  Closing the generator ends the process.

        Raises:
            ConfigError: The program cannot be started.
            UsageError: Its arguments are too long.
            TimedOut: It was not done in time.
            BadReply: Its output is too long.
            Overloaded: This system has no file or process left.
            Aborted: The answer is no longer wanted.
        """
        abort = abort_in_force()
        if abort is not None:
            abort.check()
        if self._deadline.is_over:
            raise self._late()
        with self._open(selectors.DefaultSelector) as selector, self._woken(selector, abort):
            process = self._start()
            try:
                for piece in self._talk(process, selector):
                    yield piece
                    if abort is not None:
                        abort.check()
                if abort is not None:
                    abort.check()
            finally:
                self.status = _end(process)

    @contextmanager
    def _woken(self, selector: selectors.BaseSelector, abort: Abort | None) -> Iterator[None]:
        """Have an abort wake the selector."""
        woken, waker = self._open(os.pipe)

        def wake() -> None:
            with suppress(OSError):
                os.write(waker, b"!")

        try:
            selector.register(woken, selectors.EVENT_READ)
            if abort is not None:
                abort.add(wake)
            yield
        finally:
            if abort is not None:
                abort.discard(wake)
            os.close(woken)
            os.close(waker)

    def _open(self, make: Callable[[], T]) -> T:
        try:
            return make()
        except OSError as error:
            raise self._busy(error) from None

    def _busy(self, error: OSError) -> Overloaded:
        return Overloaded(f"the command {self._launch.program!r} cannot be started now: {error.strerror}")

    def _start(self) -> subprocess.Popen[bytes]:
        launch = self._launch
        try:
            return subprocess.Popen(
                list(launch.arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=None if launch.env is None else dict(launch.env),
                cwd=launch.cwd,
                start_new_session=True,
            )
        except OSError as error:
            if error.errno in _BUSY:
                raise self._busy(error) from None
            if error.errno == errno.E2BIG:
                raise UsageError(
                    f"the arguments of {launch.program!r} are too long for this system; leave out '{{prompt}}', and the"
                    " prompt goes to its standard input"
                ) from None
            folder = f" in {launch.cwd!r}" if launch.cwd else ""
            reason = error.strerror or type(error).__name__
            raise ConfigError(
                f"the command {launch.program!r} cannot be started{folder}: {reason}; pass the path of a program"
                " that is"
                " installed"
            ) from None

    def _talk(self, process: subprocess.Popen[bytes], selector: selectors.BaseSelector) -> Generator[bytes]:
        """Yield what the process writes, until it has ended or closed its output."""
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        out, err, into = process.stdout.fileno(), process.stderr.fileno(), process.stdin.fileno()
        for file in (out, err, into):
            os.set_blocking(file, False)
        selector.register(out, selectors.EVENT_READ)
        selector.register(err, selectors.EVENT_READ)
        selector.register(into, selectors.EVENT_WRITE)
        ended = _file_of_end(process.pid)
        if ended is not None:
            selector.register(ended, selectors.EVENT_READ)
        has_output = True
        try:
            while True:
                ready = self._wait(selector, is_ending=ended is not None)
                if into in ready and not self._write(into):
                    selector.unregister(into)
                    process.stdin.close()
                if err in ready and not self._read_errors(err):
                    selector.unregister(err)
                has_ended = ended in ready or (ended is None and _has_ended(process.pid))
                if out in ready or (has_ended and has_output):
                    has_output = yield from self._drain(out)
                    if not has_output:
                        selector.unregister(out)
                if has_ended:  # a process that inherited the output may still run; do not wait for it
                    self._drain_errors(err)
                    return
        finally:
            _close(ended)

    def _wait(self, selector: selectors.BaseSelector, *, is_ending: bool) -> set[int]:
        """Return the files that are ready, at the latest when the process has to be looked for."""
        if self._deadline.is_over:
            raise self._late()
        left_s = self._deadline.time_left()
        most_s = left_s if is_ending else _LOOK_S if left_s is None else min(left_s, _LOOK_S)
        ready = {key.fd for key, _ in selector.select(most_s)}
        if (abort := abort_in_force()) is not None:
            abort.check()
        return ready

    def _drain(self, out: int) -> Generator[bytes, None, bool]:
        """Yield what can be read at once; return whether more may come."""
        while piece := _read(out):
            self._taken_bytes += len(piece)
            if self._taken_bytes > self._launch.max_output_bytes:
                raise self._too_long()
            yield piece
            if self._deadline.is_over:
                raise self._late()
        return piece is None

    def _write(self, into: int) -> bool:
        """Write the next piece of the input; return False at its end, or if the command closed it."""
        try:
            self._left = self._left[os.write(into, self._left[:_PIECE]) :]
        except BlockingIOError:
            return True
        except OSError:  # it closed its input, and may still answer
            return False
        return bool(self._left)

    def _drain_errors(self, err: int) -> None:
        while self._read_errors(err) and not self._deadline.is_over:
            pass

    def _read_errors(self, err: int) -> bool:
        piece = _read(err)
        self.errors = (self.errors + (piece or b""))[-MAX_ERROR_BYTES:]
        return bool(piece)

    def _too_long(self) -> BadReply:
        most = self._launch.max_output_bytes
        return BadReply(
            f"the command {self._launch.program!r} wrote more than {most:,} bytes; pass max_output_bytes=… to allow"
            " more",
            retryable=False,
        )

    def _late(self) -> TimedOut:
        return TimedOut(f"the command {self._launch.program!r} did not end in {self._deadline.timeout_s or 0:g} s")


def _read(file: int) -> bytes | None:
    """Return what can be read at once; b"": it has ended; None: nothing yet."""
    try:
        return os.read(file, _PIECE)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _file_of_end(pid: int) -> int | None:
    """Return a file that is readable once the process has ended; None where the system has none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _close(file: int | None) -> None:
    if file is not None:
        os.close(file)


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(process: subprocess.Popen[bytes]) -> int:
    """End the process group, and return the status of its leader.

    The leader has not been reaped yet, so the system cannot have given its process id to another.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    return process.wait()
