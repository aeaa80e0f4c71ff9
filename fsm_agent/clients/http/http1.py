"""Who writes the bytes of HTTP/1.1 requests, and reads those of the responses?

A wire serves one connection: one request after the other, no pipelining.  It waits for nothing and knows no socket.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import h11
import httpx

from fsm_agent.clients.http.request import RequestHead

MAX_HEAD_BYTES = 100_000  # of a response's head, and of anything else that is no body: trailers, chunk extensions

Headers: TypeAlias = list[tuple[bytes, bytes]]


def _too_long() -> httpx.RemoteProtocolError:
    return httpx.RemoteProtocolError(f"more than {MAX_HEAD_BYTES} bytes that belong to no body")


# What h11 has to know of a request to read its response: the bytes are ours.
_NOT_LAST = h11.Request(method="POST", target="/", headers=[("host", "h"), ("content-length", "0")])
_LAST = h11.Request(method="POST", target="/", headers=[*_NOT_LAST.headers, ("connection", "close")])
_END = h11.EndOfMessage()


class Wire:
    """Attributes: what has come of the response to the last request.

    `head` is None until it is there; `parts` is the body's, to be taken away by the reader.  Once a response
    `is_complete`, the connection may serve the next request if it `is_reusable`.
    """

    def __init__(self) -> None:
        self._state = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._begin()

    def _begin(self) -> None:
        self.head: tuple[int, Headers] | None = None
        self.parts: list[bytes] = []
        self.is_complete = self.is_reusable = False
        self._head_bytes = 0

    def begin(self, head: RequestHead, content: bytes) -> bytes:
        """The bytes of a request; raises `httpx.LocalProtocolError`."""
        self._begin()
        try:
            for event in (_LAST if head.is_last else _NOT_LAST, _END):
                self._state.send(event)
        except h11.LocalProtocolError as error:
            raise httpx.LocalProtocolError(str(error)) from error
        return head.before(content)

    def feed(self, data: bytes) -> None:
        """Take the next bytes; raises `httpx.RemoteProtocolError`."""
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
        """Take the end of all bytes; raises `httpx.RemoteProtocolError` when the response is not whole."""
        self.feed(b"")
        self.is_reusable = False
