"""One HTTP request: what is sent, where to, and how long each step may take."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

from fsm_agent._internal.lazy_import import deferred
from fsm_agent.runtime.abort import Abort

if TYPE_CHECKING:
    import httpx
else:
    httpx = deferred("httpx")

MIN_TIMEOUT_S = 0.001  # for a socket, 0 means something else

Origin: TypeAlias = tuple[str, str, int]  # scheme, host, port
Headers: TypeAlias = list[tuple[bytes, bytes]]


class Deadline:
    """When a request has to be over: ``timeout_s`` from now, or never."""

    __slots__ = ("_at_s", "timeout_s")

    def __init__(self, timeout_s: float | None) -> None:
        self.timeout_s = timeout_s
        self._at_s = None if timeout_s is None else time.monotonic() + timeout_s

    def time_left(self) -> float | None:
        """Return the seconds left, not positive when it is over; None: without end."""
        return None if self._at_s is None else self._at_s - time.monotonic()

    def within(self, timeout_s: float) -> float:
        """Return ``timeout_s`` or, if that is less, the time left."""
        left = self.time_left()
        return timeout_s if left is None else max(MIN_TIMEOUT_S, min(timeout_s, left))

    @property
    def is_over(self) -> bool:
        """No time is left."""
        return self._at_s is not None and self._at_s <= time.monotonic()


class RequestHead:
    """Target and headers of requests; made once, sent often.

    Args:
        url: Target.
        headers: All but the content's length.
    """

    __slots__ = ("_lines", "headers", "is_last", "origin", "url")

    def __init__(self, url: httpx.URL, headers: httpx.Headers) -> None:
        self.url = url
        self.headers = headers
        port = url.port or (443 if url.scheme == "https" else 80)
        self.origin: Origin = (url.scheme, url.raw_host.decode("ascii"), port)
        self.is_last = headers.get("connection") == "close"  # over their connection
        self._lines = b""

    def before(self, content: bytes) -> bytes:
        """Return the whole request with this content.

        Raises:
            httpx.LocalProtocolError: A header would end before its line does.
        """
        if not self._lines:
            lines = [b"%b: %b\r\n" % header for header in self.headers.raw]
            head = b"POST %b HTTP/1.1\r\n%b" % (self.url.raw_path, b"".join(lines))
            if not head.count(b"\r") == head.count(b"\n") == len(lines) + 1:
                raise httpx.LocalProtocolError("a header of the request holds a line break")
            self._lines = head
        return b"%bcontent-length: %d\r\n\r\n%b" % (self._lines, len(content), content)


class OutgoingRequest(Protocol):
    """What a transport is given: one request, its time limits, and who may end it."""

    @property
    def head(self) -> RequestHead:
        """Target and headers."""

    @property
    def content(self) -> bytes:
        """Body."""

    @property
    def limits(self) -> Mapping[str, float]:
        """Seconds for each piece of the steps connect, read, write and pool; `read` changes with the response."""

    @property
    def deadline(self) -> Deadline:
        """When all of it has to be over; may come closer on the way.

        Transports of threads keep it; under asyncio the caller does.
        """

    @property
    def abort(self) -> Abort | None:
        """Ends it from another thread; for transports of threads."""

    @property
    def secrets(self) -> frozenset[str]:
        """What nobody may write down."""
