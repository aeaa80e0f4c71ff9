"""A server that keeps no promise.

`FaultServer` listens on `loopback` and answers its n-th request with its n-th script, and all later requests with the
last one.  A script is a list of steps: bytes to send, one of the faults below, or a function of the connection.  It may
also be a function of the request that returns a list of steps.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, TypeAlias

from support.loopback import Listener, end_by_reset

LIMIT_S = 10.0  # nothing here waits longer


class Fault(Enum):
    """What a server can do instead of sending bytes."""

    CLOSE = auto()  # the connection, in order
    RESET = auto()  # the connection, by RST
    STALL = auto()  # until the client goes away
    HOLD = auto()  # until the server ends, and read nothing
    BARRIER = auto()  # until as many requests as `together` have come


@dataclass(frozen=True)
class Repeat:
    """The same bytes again and again, until the client goes away."""

    data: bytes
    every_s: float


Step: TypeAlias = bytes | Fault | Repeat | Callable[[socket.socket], object]
CLOSE, RESET, STALL, HOLD, BARRIER = Fault
DRIP = Repeat(b" ", 0.01)
FLOOD = Repeat(b" " * 65536, 0)


@dataclass(frozen=True)
class Seen:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes
    connection: int  # counted from 0

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Script: TypeAlias = Sequence[Step] | Callable[[Seen], Sequence[Step]]


def http(body: bytes | str | dict[str, Any], *, status: int = 200, **headers: str) -> bytes:
    """A whole response with a content length; of JSON unless ``content_type`` says otherwise."""
    data = json.dumps(body).encode() if isinstance(body, dict) else body.encode() if isinstance(body, str) else body
    return head(status, **{"content_type": "application/json", "content_length": str(len(data)), **headers}) + data


def head(status: int = 200, **headers: str) -> bytes:
    """The head of a response; underscores become hyphens."""
    lines = [f"HTTP/1.1 {status} Whatever", *[f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]]
    return "\r\n".join([*lines, "", ""]).encode()


def events(*data: str | dict[str, Any], done: bool = True) -> bytes:
    """Server-sent events."""
    said = [item if isinstance(item, str) else json.dumps(item) for item in data] + (["[DONE]"] if done else [])
    return "".join([f"data: {item}\n\n" for item in said]).encode()


SSE_HEAD = head(content_type="text/event-stream", transfer_encoding="chunked")
END_OF_CHUNKS = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


class FaultServer:
    """A server on loopback that follows scripts while its block runs."""

    def __init__(
        self, *scripts: Script, together: int = 1, tls: ssl.SSLContext | None = None, is_early: bool = False
    ) -> None:
        self._is_early = is_early  # it answers when it has the head of a request, and leaves the body unread
        self.scripts = [script if callable(script) else list(script) for script in scripts]
        self.requests: list[Seen] = []
        self.protocols: list[str | None] = []  # agreed upon with TLS, by connection
        self.n_connections = 0
        self.n_open = 0
        self.n_under_way = 0  # requests that it is answering
        self._barrier = threading.Barrier(together)
        self._changed = threading.Condition()
        self._is_ending = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = Listener()
        if is_early:
            self._listener.set_buffer(65536)
        self._tls = tls
        self.base_url = f"http{'s' if tls else ''}://{self._listener.address}/v1"

    def __enter__(self) -> FaultServer:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending.set()
        self._barrier.abort()
        self._listener.close()
        with self._changed:
            for connection in self._sockets:
                with suppress(OSError):  # gone
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(LIMIT_S)
            assert not thread.is_alive(), "a thread of the fault server hangs"

    def wait_until_all_closed(self) -> bool:
        """Whether every connection ends, soon."""
        with self._changed:
            return self._changed.wait_for(lambda: self.n_open == 0, LIMIT_S / 2)

    def wait_for_requests(self, number: int) -> bool:
        """Return whether this many requests come soon."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.requests) >= number, LIMIT_S / 2)

    def _start(self, function: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while (connection := self._listener.accept()) is not None:
            connection.settimeout(LIMIT_S)
            with self._changed:
                number, self.n_connections = self.n_connections, self.n_connections + 1
                self.n_open += 1
                self._sockets.append(connection)
            self._start(self._serve, connection, number)

    def _serve(self, connection: socket.socket, number: int) -> None:
        if self._tls is not None:
            try:
                connection = self._tls.wrap_socket(connection, server_side=True)
            except OSError:
                self._end(connection)
                return
            self.protocols.append(connection.selected_alpn_protocol())
        try:
            with connection.makefile("rb", buffering=8192) as reader:  # a body that is left unread is not here
                while (seen := _read_request(reader, number, is_early=self._is_early)) is not None:
                    with self._changed:
                        script = self.scripts[min(len(self.requests), len(self.scripts) - 1)]
                        self.requests.append(seen)
                        self.n_under_way += 1
                        self._changed.notify_all()
                    try:
                        if not self._perform(script(seen) if callable(script) else script, connection):
                            break
                    finally:
                        with self._changed:
                            self.n_under_way -= 1
        except (OSError, threading.BrokenBarrierError):
            pass
        finally:
            self._end(connection)  # the reader is closed: what holds the socket would keep it open

    def _end(self, connection: socket.socket) -> None:
        with self._changed:
            connection.close()
            self.n_open -= 1
            self._changed.notify_all()

    def _perform(self, script: Sequence[Step], connection: socket.socket) -> bool:
        """Whether the connection is still of use."""
        for step in script:
            match step:
                case bytes():
                    connection.sendall(step)
                case Fault.CLOSE | Fault.RESET:
                    if step is RESET:
                        end_by_reset(connection)
                    return False
                case Fault.STALL:
                    return bool(connection.recv(1)) and False
                case Fault.HOLD:
                    return self._is_ending.wait(LIMIT_S) and False
                case Fault.BARRIER:
                    self._barrier.wait(LIMIT_S / 2)
                case Repeat():
                    while not self._is_ending.wait(step.every_s):
                        connection.sendall(step.data)
                case _:
                    step(connection)
        return True


def _read_request(reader: Any, connection: int, *, is_early: bool) -> Seen | None:
    if not reader.peek(1)[:1].isupper():  # no request, or one of TLS
        return None
    first = reader.readline()
    if first.startswith(b"PRI "):  # of HTTP/2
        return None
    headers = {}
    while (line := reader.readline().strip()) != b"":  # as at the end of what a cancelled client has sent
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    is_empty = is_early or first.startswith(b"GET ")
    length = 0 if is_empty else int(headers.get("content-length", -1))
    body = reader.read(max(length, 0))
    if len(body) != length:  # a client that was cancelled has sent a part of its request
        return None
    return Seen(first.split()[1].decode(), headers, body, connection)
