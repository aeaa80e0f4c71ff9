"""One HTTP request: its head, content, timeouts and deadline."""

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
    """The end of a request: ``timeout_s`` from now, or never."""

    __slots__ = ("_at_s", "timeout_s")

    def __init__(self, timeout_s: float | None) -> None:
        self.timeout_s = timeout_s
        self._at_s = None if timeout_s is None else time.monotonic() + timeout_s

    def time_left(self) -> float | None:
        """Return the seconds left, not positive once it has passed; None if there is no deadline."""
        return None if self._at_s is None else self._at_s - time.monotonic()

    def within(self, timeout_s: float) -> float:
        """Return ``timeout_s`` or, if that is less, the time left."""
        left = self.time_left()
        return timeout_s if left is None else max(MIN_TIMEOUT_S, min(timeout_s, left))

    @property
    def is_over(self) -> bool:
        """True once no time is left."""
        return self._at_s is not None and self._at_s <= time.monotonic()


class RequestHead:
    """URL and headers of requests; made once, sent often.

    Args:
        url: The URL.
        headers: All headers but ``content-length``.
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
        """Return the bytes of the whole request with this content.

        Raises:
            httpx.LocalProtocolError: A header contains a line break.
        """
        if not self._lines:
            lines = [b"%b: %b\r\n" % header for header in self.headers.raw]
            head = b"POST %b HTTP/1.1\r\n%b" % (self.url.raw_path, b"".join(lines))
            if not head.count(b"\r") == head.count(b"\n") == len(lines) + 1:
                raise httpx.LocalProtocolError("a header of the request holds a line break")
            self._lines = head
        return b"%bcontent-length: %d\r\n\r\n%b" % (self._lines, len(content), content)


class OutgoingRequest(Protocol):
    """The argument of a transport: one request, its timeouts, and the means to abort it."""

    @property
    def head(self) -> RequestHead:
        """URL and headers."""

    @property
    def content(self) -> bytes:
        """The body."""

    @property
    def limits(self) -> Mapping[str, float]:
        """Seconds for each piece of the steps connect, read, write and pool; `read` changes when the body begins."""

    @property
    def deadline(self) -> Deadline:
        """The end of the whole request; it may be moved forward meanwhile.

        Sync transports enforce it; under asyncio the caller does.
        """

    @property
    def abort(self) -> Abort | None:
        """The means to end it from another thread; for sync transports."""

    @property
    def secrets(self) -> frozenset[str]:
        """Texts that must not be logged."""
