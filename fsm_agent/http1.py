"""Who writes the bytes of HTTP/1.1 requests, and reads those of the responses?

Two wires that behave the same, one on h11, one on the parser of Node.js (llhttp, by `httptools`), which costs a tenth.
A wire serves one connection: one request after the other, no pipelining.  It waits for nothing and knows no socket.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import h11
import httpx

from fsm_agent.sending import RequestHead

MAX_HEAD_BYTES = 100_000  # of a response's head, and of anything else that is no body: trailers, chunk extensions

Headers: TypeAlias = list[tuple[bytes, bytes]]


def _too_long() -> httpx.RemoteProtocolError:
    return httpx.RemoteProtocolError(f"more than {MAX_HEAD_BYTES} bytes that belong to no body")


class Wire(Protocol):
    """Attributes: what has come of the response to the last request.

    `head` is None until it is there; `parts` is the body's, to be taken away by the reader.  Once a response
    `is_complete`, the connection may serve the next request if it `is_reusable`.
    """

    head: tuple[int, Headers] | None
    parts: list[bytes]
    is_complete: bool
    is_reusable: bool

    def begin(self, head: RequestHead, content: bytes) -> bytes:
        """The bytes of a request; raises `httpx.LocalProtocolError`."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes; raises `httpx.RemoteProtocolError`."""

    def end(self) -> None:
        """Take the end of all bytes; raises `httpx.RemoteProtocolError` when the response is not whole."""

    def close(self) -> None:
        """Let go of the parser: nothing is fed any more."""


# What h11 has to know of a request to read its response: the bytes are ours.
_NOT_LAST = h11.Request(method="POST", target="/", headers=[("host", "h"), ("content-length", "0")])
_LAST = h11.Request(method="POST", target="/", headers=[*_NOT_LAST.headers, ("connection", "close")])
_END = h11.EndOfMessage()


class H11Wire:
    """The wire on h11, which is always there."""

    def __init__(self) -> None:
        self._state = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._begin()

    def _begin(self) -> None:
        self.head: tuple[int, Headers] | None = None
        self.parts: list[bytes] = []
        self.is_complete = self.is_reusable = False
        self._head_bytes = 0

    def begin(self, head: RequestHead, content: bytes) -> bytes:
        self._begin()
        try:
            for event in (_LAST if head.is_last else _NOT_LAST, _END):
                self._state.send(event)
        except h11.LocalProtocolError as error:
            raise httpx.LocalProtocolError(str(error)) from error
        return head.before(content)

    def feed(self, data: bytes) -> None:
        if self.is_complete:
            self.is_reusable = False  # nobody asked for more
            return
        if self.head is None:
            self._head_bytes += len(data)  # h11 bounds one head, but not how many interim ones there are
        try:
            self._state.receive_data(data)
            while not self.is_complete:
                event: Any = self._state.next_event()
                kind = type(event)
                if kind is h11.Data:
                    self.parts.append(bytes(event.data))
                elif kind is h11.EndOfMessage:
                    self._complete()
                elif kind is h11.Response:
                    self.head = (event.status_code, list(event.headers))
                elif kind is not h11.InformationalResponse:
                    break
        except h11.RemoteProtocolError as error:
            raise httpx.RemoteProtocolError(str(error)) from error
        if self.head is None and self._head_bytes > MAX_HEAD_BYTES:
            raise _too_long()

    def _complete(self) -> None:
        self.is_complete = True
        state = self._state
        if state.our_state is h11.DONE and state.their_state is h11.DONE and not state.trailing_data[0]:
            state.start_next_cycle()
            self.is_reusable = True

    def end(self) -> None:
        self.feed(b"")
        self.is_reusable = False

    def close(self) -> None:
        pass  # it holds nothing that holds it


class HttptoolsWire:
    """The wire on httptools."""

    def __init__(self) -> None:
        import httptools

        self._tools = httptools
        self._parser: Any = httptools.HttpResponseParser(self)
        self._begin()

    def _begin(self) -> None:
        self.head: tuple[int, Headers] | None = None
        self.parts: list[bytes] = []
        self.is_complete = self.is_reusable = False
        self._headers: Headers = []
        self._head_bytes = 0

    def begin(self, head: RequestHead, content: bytes) -> bytes:
        self._begin()
        self._is_last = head.is_last
        return head.before(content)

    def feed(self, data: bytes) -> None:
        if self.is_complete:
            self.is_reusable = False
            return
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (self._tools.HttpParserError, self._tools.HttpParserUpgrade) as error:
            raise httpx.RemoteProtocolError(str(error)[:200] or type(error).__name__) from error
        if self._head_bytes > MAX_HEAD_BYTES:
            raise _too_long()

    def end(self) -> None:
        if self.head is None or not (self.is_complete or _ends_with_connection(self.head[1])):
            raise httpx.RemoteProtocolError("peer closed connection without sending complete message body")
        self.is_complete = True

    def close(self) -> None:
        self._parser = None  # they hold each other

    # What the parser calls

    def on_message_begin(self) -> None:
        if self.is_complete:
            self.is_reusable = False  # nobody asked for another one

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head is None:  # otherwise it is a trailer
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self.head is None and status >= 200:
            self.head = (status, self._headers)
            self._head_bytes = 0
        elif self.head is None:
            self._headers = []  # an interim response

    def on_body(self, data: bytes) -> None:
        self.parts.append(data)
        self._head_bytes = 0

    def on_message_complete(self) -> None:
        if self.head is not None and not self.is_complete:
            self.is_complete = True
            self.is_reusable = not self._is_last and self._parser.should_keep_alive()


def _ends_with_connection(headers: Headers) -> bool:
    """Whether nothing else says where the body of a response ends."""
    said = [(name.lower(), value.lower()) for name, value in headers]
    return not any(
        name == b"content-length" or (name == b"transfer-encoding" and value.endswith(b"chunked"))
        for name, value in said
    )
