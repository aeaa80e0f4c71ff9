"""`CommandClient`: a client that runs a command for each request, such as ``claude -p`` or ``codex exec``.

A `CommandRun` watches the pipes of a `subprocess.Popen`.  asyncio's own subprocesses are unsuitable: asyncio reaps the
process before its group is killed, so another process may have the same id by then, and in some Python versions
``wait`` also waits for every process that inherited the output.
"""

from __future__ import annotations

import asyncio
import codecs
import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from io import FileIO
from typing import Any, NamedTuple

from fsm_agent._internal.masking import Secrets, is_secret_name, secrets_in_url
from fsm_agent._internal.structs import Value, is_finite
from fsm_agent._internal.text import plain
from fsm_agent.call.effects import Request
from fsm_agent.clients.http_exchange import check_open, warn_of_left_out
from fsm_agent.clients.sync_verbs import SyncVerbs
from fsm_agent.errors import BadReply, ConfigError, Overloaded, ProviderError, TimedOut, UsageError
from fsm_agent.messages.convert import transcript
from fsm_agent.messages.events import Delta, TextDelta, UsageReported
from fsm_agent.messages.message import Document, FunctionResult, Image, Message, Text
from fsm_agent.messages.reply import MOST_TOKENS, UNUSED, Reply
from fsm_agent.providers.codec import LEFT_OUT, Profile, RequestForm, adaptations, check_settings, choose_form, to_json
from fsm_agent.providers.content import in_words, without_hints
from fsm_agent.providers.failures import failure, reported
from fsm_agent.providers.sse import read_json
from fsm_agent.validation import require

_STEP = re.compile(r"([^.\[\]]+)(?:\[([^.\[\]=]+)=([^\[\]]*)\])?")
_PATH = re.compile(rf"{_STEP.pattern}(?:\.{_STEP.pattern})*")
_MOST_USD = 1e6  # a reported cost above this is ignored
_USAGE = ("input_tokens", "output_tokens", "cached_tokens")


class JsonFields(Value, frozen=True, kw_only=True):
    """The paths to the values to read from a command's JSON output.

    A path consists of the keys that lead to a value, joined with dots.  Numbers are list indexes.
    ``item[type=message].text`` matches only if the ``type`` of ``item`` is ``message``.  If each line is a document,
    the text from all lines is joined to form the answer.

    Raises:
        ConfigError: If a path is invalid.

    Examples:
        >>> JsonFields(text="result", error="error.message").text
        'result'
    """

    text: str
    error: str | None = None  # the message of a failure; null, false and "" mean success
    status: str | None = None  # the HTTP status of the failure
    retry_after_s: str | None = None
    input_tokens: str | None = None
    output_tokens: str | None = None
    cached_tokens: str | None = None
    cost_usd: str | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            path = getattr(self, name)
            is_right = path is None and name != "text"
            if isinstance(path, str):
                is_right = _PATH.fullmatch(path) is not None
            require(name, path, is_right, "a path such as 'message.text'", ConfigError)

    def found(self, name: str, document: Any) -> Any:
        """Return the value at the path given by ``name``, or None if there is no such value."""
        path = getattr(self, name)
        if path is None:
            return None
        for key, other, value in _STEP.findall(path):
            if isinstance(document, list) and key.isdecimal() and int(key) < len(document):
                document = document[int(key)]
            elif isinstance(document, dict) and key in document:
                document = document[key]
            else:
                return None
            if other and not (isinstance(document, dict) and str(document.get(other)) == value):
                return None
        return document


class Failure(NamedTuple):
    """A failure that the command reports in its output."""

    message: str
    status: int | None  # of HTTP
    retry_after_s: float | None

    def error(self, mask: Callable[[str], str]) -> ProviderError:
        """Return the error to raise, with a masked message."""
        document = {"error": {"message": mask(self.message), "retry_after": self.retry_after_s}}
        return reported(document, {}) if self.status is None else failure(self.status, {}, to_json(document))


class TextOutput:
    """Reads output that is the answer itself, apart from trailing newlines."""

    usage = UNUSED
    failure = None  # only the exit status reports one

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._held = ""

    def feed(self, data: bytes, *, is_last: bool = False) -> list[str]:
        """Return the pieces of the answer that ``data`` completes.  Raise `BadReply` if the output is not UTF-8."""
        try:
            text = self._held + self._decoder.decode(data, is_last)
        except UnicodeDecodeError:
            raise BadReply("the output of the command: expected text in UTF-8, got other bytes") from None
        shown = text.rstrip("\r\n")
        self._held = text[len(shown) :]
        return [shown] if shown else []


class JsonOutput:
    """Reads JSON output: one document per line if ``is_lines`` is True, otherwise a single document."""

    def __init__(self, fields: JsonFields, *, is_lines: bool) -> None:
        self._fields = fields
        self._is_lines = is_lines
        self._rest: list[bytes] = []
        self.failure: Failure | None = None
        self.usage = UNUSED

    def feed(self, data: bytes, *, is_last: bool = False) -> list[str]:
        """Return the pieces of the answer that ``data`` completes.  Raise `BadReply` if the output is not JSON."""
        self._rest.append(data)
        if not is_last and not (self._is_lines and b"\n" in data):
            return []
        whole = b"".join(self._rest)
        documents = whole.split(b"\n") if self._is_lines else [whole]
        self._rest = [] if is_last else [documents.pop()]
        return [text for document in documents if document.strip() for text in self._taken(document)]

    def _taken(self, line: bytes) -> list[str]:
        try:
            document = read_json(line)
        except ValueError:
            raise BadReply("the output of the command: expected JSON, got other text") from None
        fields = self._fields
        numbers = {name: fields.found(name, document) for name in _USAGE}
        counts = {name: n for name, n in numbers.items() if type(n) is int and 0 <= n <= MOST_TOKENS}
        if counts:  # different lines may report input and output
            self.usage = self.usage.changed(**counts)
        cost = fields.found("cost_usd", document)
        if is_finite(cost) and 0 <= cost <= _MOST_USD:
            self.usage = self.usage.changed(cost_pico_usd=round(cost * 10**12))
        error, text = fields.found("error", document), fields.found("text", document)
        if error not in (None, False, ""):
            message = error if isinstance(error, str) else text if isinstance(text, str) else "the command failed"
            status, delay_s = fields.found("status", document), fields.found("retry_after_s", document)
            self.failure = Failure(
                message, status if type(status) is int else None, delay_s if is_finite(delay_s) else None
            )
            return []
        return [text] if isinstance(text, str) and text else []


MAX_OUTPUT_BYTES = 16 * 1024 * 1024
MAX_SHOWN_CHARS = 500  # how much of the end of stderr an error shows
_PROFILE = Profile(
    native_schema=False, output_mode="prompted", temperature=False, stop=False, images=False, logprobs=False
)

_LEFT_OUT = ("max_tokens", "reasoning_effort", "cache")
_PLACEHOLDER = re.compile(r"\{(prompt|system|model)\}")
_SEVERAL = "This is the conversation so far. Answer with the next message of the assistant, and nothing else."


class CommandClient(SyncVerbs):
    """A client that runs a command for each request, without a shell.

    The prompt is sent to the command's standard input or replaces ``{prompt}`` in an argument.  ``{system}`` and
    ``{model}`` stand for the system prompt and the model.  Several messages become a transcript.  A request whose text
    could be mistaken for an option is refused, unless an argument ``--`` precedes the text.

    For a typed answer, the prompt describes the type in words.  Functions are refused.  The command runs in a new
    session, and all processes in its group are killed when the command ends or times out, or when the request is
    cancelled.

    Args:
        command: The program and its arguments.
        model: The text for ``{model}``.
        name: The client's name, shown as ``name:model``; by default, the program's name.
        json: Where to find the answer in JSON output.  By default, the output is text.
        is_lines: Whether each line of JSON output is a separate document.  By default, the whole output is one
            document.
        env: The command's entire environment; by default, that of this process.
        cwd: The command's working directory.
        timeout_s: The time limit for a run, in seconds.  A request may have a shorter one.
        max_output_bytes: The largest output, in bytes.

    Raises:
        ConfigError: If an argument is invalid.

    Examples:
        >>> import sys
        >>> client = CommandClient([sys.executable, "-c", "print(input().upper())"])
        >>> Agent(client).call("hello").output
        'HELLO'
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        model: str = "",
        name: str | None = None,
        json: JsonFields | None = None,
        is_lines: bool = True,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        timeout_s: float = 600.0,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
    ) -> None:
        if os.name != "posix":
            raise ConfigError("CommandClient needs process groups; use a POSIX system, such as Linux")
        are_texts = isinstance(command, Sequence) and not isinstance(command, str) and len(command) > 0
        are_texts = are_texts and all(isinstance(word, str) and "\0" not in word for word in command)
        require("command", command, are_texts and command[0] != "", "a list such as ['claude', '-p']", ConfigError)
        require("command[0]", command[0], not _PLACEHOLDER.search(command[0]), "a fixed program", ConfigError)
        require("model", model, isinstance(model, str), "a string", ConfigError)
        require("name", name, isinstance(name, str | None), "a string, or None", ConfigError)
        if not isinstance(env, Mapping | None):  # its values may be secret
            raise ConfigError(f"env: expected a mapping of strings, got a value of type {type(env).__name__}")
        require("cwd", cwd, isinstance(cwd, str | os.PathLike | None), "a path", ConfigError)
        require(
            "json",
            json,
            isinstance(json, JsonFields | None),
            "JsonFields such as JsonFields(text='result')",
            ConfigError,
        )
        require("timeout_s", timeout_s, is_finite(timeout_s) and timeout_s > 0, "a number of seconds", ConfigError)
        is_size = isinstance(max_output_bytes, int) and max_output_bytes > 0
        require("max_output_bytes", max_output_bytes, is_size, "a number of bytes", ConfigError)
        self._command = tuple(command)
        self._model = model
        self._name = name or os.path.basename(command[0])
        self._json, self._is_lines = json, is_lines
        self._env = None if env is None else dict(env)
        self._cwd = None if cwd is None else os.fspath(cwd)
        self._timeout_s, self._max_output_bytes = timeout_s, max_output_bytes
        self._warned = set[str]()  # ignored options that have been logged
        self._is_closed = False

    @property
    def takes_images(self) -> bool:
        """False, because a command accepts only text.  Images in a payload are left out."""
        return False

    @property
    def name(self) -> str:
        """The client's name: ``name:model``, or ``name`` if there is no model."""
        return f"{self._name}:{self._model}" if self._model else self._name

    @property
    def models(self) -> tuple[str, ...]:
        """The models whose prices are needed, or none if the command's output gives its cost."""
        return () if self._json is not None and self._json.cost_usd is not None else (self.name,)

    def __repr__(self) -> str:
        return f"<CommandClient {self.name!r}{' closed' if self._is_closed else ''}>"

    def __reduce__(self) -> tuple[Any, ...]:
        raise UsageError(
            f"the client of {self.name!r} cannot be pickled: its environment and arguments may hold secrets; make one"
            " where it is needed"
        )

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """Return the reply to ``request``.

        Raises:
            ConfigError: If the program cannot be started.
            UsageError: If the request cannot be expressed as text, or the client is closed.
            ProviderError: If the command failed, timed out, or gave no answer.
        """
        async with aclosing(self.astream(request, timeout_s=timeout_s)) as items:
            return [item async for item in items if isinstance(item, Reply)][-1]

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Delta | Reply]:
        """Yield the reply as it arrives: deltas, then exactly one `Reply`.

        Closing the generator ends the command.  Raises the same errors as `acomplete`.
        """
        check_open(self.name, is_closed=self._is_closed)
        decided = choose_form(request, _PROFILE)
        notes = self._list_adaptations(decided)
        run = self._run(decided, self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s))
        output = TextOutput() if self._json is None else JsonOutput(self._json, is_lines=self._is_lines)
        pieces = list[str]()
        async with aclosing(run.output()) as data:
            async for piece in data:
                for text in output.feed(piece):
                    pieces.append(text)
                    yield TextDelta(text)
        errors = self._mask(run.errors.decode("utf-8", "replace")) if run.errors else ""
        self._check_end(run.status, output, errors)
        for text in output.feed(b"", is_last=True):
            pieces.append(text)
            yield TextDelta(text)
        self._check_failure(output)
        if not pieces:
            program = os.path.basename(self._command[0])
            raise BadReply(f"the command {program!r} ended without an answer{_last_words(errors)}")
        if output.usage != UNUSED:
            yield UsageReported(output.usage)
        yield Reply(
            message=Message.of("assistant", "".join(pieces)),
            usage=output.usage,
            finish="stop",
            adapted=notes,
            output_mode=decided.mode,
        )

    def close(self) -> None:
        """Reject further requests."""
        self._is_closed = True

    def _list_adaptations(self, decided: RequestForm) -> tuple[str, ...]:
        """Return notes on the options that are ignored.  Raise `UsageError` for content that a command cannot take."""
        request, settings = decided.request, decided.request.settings
        check_settings(settings, self.name, _PROFILE)
        if request.functions:
            names = ", ".join([repr(function.name) for function in request.functions[:5]])
            raise UsageError(
                f"the model {self.name!r}: expected no functions, since it is a command and cannot call any, got"
                f" {names}; use the client of a provider, or an agent without functions"
            )
        rest, hints = without_hints(request, ())
        if servers := rest.settings.hosted_tools:
            raise UsageError(f"hosted_tools: expected none, since the model {self.name!r} is a command, got {servers}")
        for part in [part for message in request.messages for part in message.parts]:
            if isinstance(part, Image) or (isinstance(part, Document) and in_words(part) is None):
                raise UsageError(f"the model {self.name!r}: expected only text, since it is a command, got {part!r}")
        left_out = [name for name in _LEFT_OUT if getattr(settings, name) is not None]
        more = [f"{name}={getattr(settings, name)!r} {LEFT_OUT}" for name in left_out]
        notes = (*adaptations(decided, _PROFILE, taken_settings=()), *more, *hints)
        warn_of_left_out(notes, self.name, self._warned)
        return notes

    def _run(self, decided: RequestForm, timeout_s: float) -> CommandRun:
        messages = decided.request.messages
        systems = [_text(message) for message in messages if message.role == "system"]
        system = "\n\n".join(filter(None, [*systems, decided.words or ""]))
        others = [message for message in messages if message.role != "system"]
        is_single = len(others) == 1 and others[0].role == "user"
        prompt = _text(others[0]) if is_single else f"{_SEVERAL}\n\n{transcript(others)}"
        template = " ".join(self._command)
        if system and "{system}" not in template:
            prompt = f"{system}\n\n{prompt}"
        texts = {"prompt": _sayable(prompt), "system": _sayable(system), "model": self._model}
        arguments = [self._command[0]]
        for word in self._command[1:]:
            filled = _PLACEHOLDER.sub(lambda placeholder: texts[placeholder[1]], word)
            self._check_argument(word, filled, is_behind="--" in arguments)
            arguments.append(filled)
        content = b"" if "{prompt}" in template else prompt.encode("utf-8", "replace")
        return CommandRun(arguments, content, timeout_s, self._max_output_bytes, self._env, self._cwd)

    def _check_argument(self, word: str, filled: str, *, is_behind: bool) -> None:
        if "\0" in filled:
            raise UsageError(f"the text for {word!r}: expected one without NUL characters, which no argument can hold")
        if _PLACEHOLDER.match(word) and filled.startswith("-") and not is_behind:
            raise UsageError(
                f"the text for {word!r} of {self.name!r} begins with '-', so it would be read as an option; put an"
                " argument '--' before it, or pass the prompt on standard input"
            )

    def _check_end(self, status: int, output: TextOutput | JsonOutput, errors: str) -> None:
        if status == 0:
            return
        with suppress(BadReply):
            output.feed(b"", is_last=True)
        self._check_failure(output)
        how = f"exit status {status}" if status > 0 else _signal(-status)
        known = failure(500, {}, errors.encode())
        raise type(known)(
            f"the command {self._name!r} failed with {how}{_last_words(errors)}",
            code=f"exit {status}" if status > 0 else how,
            retryable=known.retryable,
            model=self.name,
        )

    def _check_failure(self, output: TextOutput | JsonOutput) -> None:
        if output.failure is not None:
            error = output.failure.error(self._mask)
            error.model = self.name
            raise error

    def _mask(self, text: str) -> str:
        env = os.environ if self._env is None else self._env
        secrets = [value for name, value in env.items() if is_secret_name(name)]
        in_urls = [secret for value in env.values() if "://" in value for secret in secrets_in_url(value)]
        return plain(Secrets([*secrets, *in_urls]).mask(text))


def _last_words(errors: str) -> str:
    shown = " ".join(errors.split())[-MAX_SHOWN_CHARS:]
    return f": {shown}" if shown else ""


def _text(message: Message) -> str:
    parts = [in_words(part) if isinstance(part, Document) else part for part in message.parts]
    texts = [part.text if isinstance(part, Text | FunctionResult) else part for part in parts]
    return "\n".join([text for text in texts if isinstance(text, str)])


def _sayable(text: str) -> str:
    """Return the text with "?" in place of characters that arguments cannot hold here, such as lone surrogates."""
    return os.fsdecode(text.encode(sys.getfilesystemencoding(), "replace"))


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


MAX_ERROR_BYTES = 8_192  # how much of the end of stderr is kept
_PIECE = 65_536
_MOST_HELD = 16 * _PIECE  # the capacity of a pipe: see `man 7 pipe`
_BUSY = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # other commands may free these resources
_LOOK_S = 0.05  # how often to poll where the system has no pidfd


@dataclass(eq=False, repr=False)  # what it holds may be secret
class CommandRun:
    """A command that runs in a new session.  When it ends, so does everything in its process group.

    Attributes:
        status: The exit status once `output` has ended; negative if a signal ended the process.
        errors: The last part of its standard error output.
    """

    arguments: list[str]
    content: bytes  # for its standard input
    timeout_s: float
    max_output_bytes: int
    env: Mapping[str, str] | None
    cwd: str | None
    status: int = 0
    errors: bytes = b""

    def __post_init__(self) -> None:
        self._program = os.path.basename(self.arguments[0])
        self._end_s = time.monotonic() + self.timeout_s
        self._left = memoryview(self.content)
        self._taken_bytes = 0

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
                self.arguments,
                stdin=their_in,
                stdout=their_out,
                stderr=their_err,
                env=self.env,
                cwd=self.cwd,
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
            folder = f" in {self.cwd!r}" if self.cwd else ""
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
            raise TimedOut(f"the command {self._program!r} did not end in {self.timeout_s:g} s")

    def _count(self, piece: bytes) -> None:
        self._taken_bytes += len(piece)
        if self._taken_bytes > (most := self.max_output_bytes):
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
