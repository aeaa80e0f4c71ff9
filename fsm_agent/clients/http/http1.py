"""HTTP/1.1 framing for one connection: bytes in, responses out.

One request after the other, no pipelining.  It does no I/O, so asyncio and threads share it.
"""

from __future__ import annotations

from functools import lru_cache
from time import monotonic
from typing import Any, NamedTuple

import h11
import httpx

from fsm_agent.clients.http.prepared_request import Headers, PoolRequest

MAX_HEAD_BYTES = 100_000  # bounds a response's head, and all else outside the body: trailers, chunk extensions
MAX_INTERIM_RESPONSES = 100  # before a response
MAX_UNREAD_BYTES = 256 * 1024  # of an unread body, at which reading pauses; approximate: framing counts
PIECE_BYTES = 65_536  # of a request; the write timeout starts anew with each piece
RESEND_WITHIN_S = 0.2  # longer than a round trip to most servers, shorter than the work of most models

_END = h11.EndOfMessage()


@lru_cache(maxsize=32)
def _known_request(method: str, is_last: bool) -> h11.Request:
    """Return a stand-in for the request, so that h11 can parse its response; the bytes sent are not h11's."""
    headers = [("host", "h"), ("content-length", "0"), *([("connection", "close")] if is_last else [])]
    return h11.Request(method=method, target="/", headers=headers)


class ResponseHead(NamedTuple):
    """The head of a response."""

    status: int
    headers: Headers
    version: bytes
    reason: bytes

    def response(self, body: httpx.SyncByteStream | httpx.AsyncByteStream) -> httpx.Response:
        """Return the response that has this head."""
        extensions = {"http_version": b"HTTP/" + self.version, "reason_phrase": self.reason}
        return httpx.Response(self.status, headers=self.headers, stream=body, extensions=extensions)


class Http1:
    """Framing of one connection, on h11.

    Attributes:
        head: Of the response to the last request; None until it has arrived.
        is_sent: The last request was sent completely; set by the connection.
        is_complete: Its response is complete.
    """

    def __init__(self) -> None:
        self._state = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._begin()

    def _begin(self) -> None:
        self.head: ResponseHead | None = None
        self.is_sent = self.is_complete = False
        self._may_go_on = False
        self._parts: list[bytes] = []
        self._n_unread_bytes = self._n_head_bytes = self._n_interim = 0
        self._sent_at_s = monotonic()

    def begin(self, request: PoolRequest) -> bytes:
        """Return the bytes of the next request.

        Raises:
            httpx.LocalProtocolError: The method is none, or the connection cannot take a request.
        """
        self._begin()
        try:
            for event in (_known_request(request.method, request.is_last), _END):
                self._state.send(event)
        except h11.LocalProtocolError as error:
            raise httpx.LocalProtocolError(str(error)) from error
        return request.data

    def feed(self, data: bytes) -> None:
        """Take the next bytes.

        Raises:
            httpx.RemoteProtocolError: They are not a valid response.
        """
        if self.is_complete:
            self._may_go_on = False  # unsolicited bytes
            return
        if self.head is None:
            self._n_head_bytes += len(data)  # h11 bounds one head, but not how many interim ones there are
        self._n_unread_bytes += len(data)
        try:
            self._state.receive_data(data)
            while not self.is_complete:
                event: Any = self._state.next_event()
                kind = type(event)
                if kind is h11.Data:
                    self._parts.append(bytes(event.data))
                elif kind is h11.EndOfMessage:
                    self._complete()
                elif kind is h11.Response:
                    self.head = ResponseHead(event.status_code, list(event.headers), event.http_version, event.reason)
                elif kind is h11.InformationalResponse:
                    self._n_interim += 1
                else:
                    break
        except h11.RemoteProtocolError as error:
            raise httpx.RemoteProtocolError(str(error)) from error
        if self.head is None and (self._n_head_bytes > MAX_HEAD_BYTES or self._n_interim > MAX_INTERIM_RESPONSES):
            raise httpx.RemoteProtocolError(
                f"no response in {self._n_head_bytes} bytes and {self._n_interim} interim responses"
            )

    def _complete(self) -> None:
        self.is_complete = True
        state = self._state
        if state.our_state is h11.DONE and state.their_state is h11.DONE and not state.trailing_data[0]:
            state.start_next_cycle()
            self._may_go_on = True

    def end(self) -> None:
        """Take the end of the connection.

        Raises:
            httpx.RemoteProtocolError: The response is incomplete.
        """
        if self.head is None:
            raise httpx.RemoteProtocolError("the server disconnected without sending a response")
        self.feed(b"")
        self._may_go_on = False

    @property
    def has_unread(self) -> bool:
        """True if `take` would return some of the body."""
        return bool(self._parts)

    @property
    def is_full(self) -> bool:
        """True if enough of the body is unread that receiving should pause."""
        return self._n_unread_bytes > MAX_UNREAD_BYTES and bool(self._parts)

    def take(self) -> bytes:
        """Return the bytes of the body received since the last call."""
        parts, self._parts = self._parts, []
        self._n_unread_bytes = 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @property
    def refuses_rest(self) -> bool:
        """True after an error response: the server does not want the rest of the request."""
        return self.head is not None and self.head.status >= 300

    @property
    def is_reusable(self) -> bool:
        """True if the connection may take another request: nothing of this one or its response is pending."""
        return self._may_go_on and self.is_sent and not self._parts

    @property
    def was_ignored(self) -> bool:
        """True if no byte has come back in the short time since the request was sent.

        If a reused connection ends in this state, the server had closed it before the request arrived.
        """
        return self.head is None and self._n_head_bytes == 0 and monotonic() - self._sent_at_s < RESEND_WITHIN_S
