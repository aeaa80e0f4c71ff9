"""What is there to send for a request, and who is told how far it is?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

from fsm_agent.deferred import deferred

if TYPE_CHECKING:
    import httpx
else:
    httpx = deferred("httpx")

Origin: TypeAlias = tuple[str, bytes, int | None]


class RequestHead:
    """Where requests go, and what all of them say first; made once, sent often.

    Args:
        url: Where they go.
        headers: All but their length.
    """

    __slots__ = ("_lines", "headers", "is_last", "origin", "url")

    def __init__(self, url: httpx.URL, headers: httpx.Headers) -> None:
        self.url = url
        self.headers = headers
        self.origin: Origin = (url.scheme, url.raw_host, url.port)
        self.is_last = headers.get("connection") == "close"  # over their connection
        self._lines = b""

    def before(self, content: bytes) -> bytes:
        """The request with this content; raises `httpx.LocalProtocolError`."""
        if not self._lines:
            lines = [b"%b: %b\r\n" % header for header in self.headers.raw]
            head = b"POST %b HTTP/1.1\r\n%b" % (self.url.raw_path, b"".join(lines))
            if not head.count(b"\r") == head.count(b"\n") == len(lines) + 1:
                raise httpx.LocalProtocolError("a header of the request holds a line break")
            self._lines = head
        return b"%bcontent-length: %d\r\n\r\n%b" % (self._lines, len(content), content)


class Sending(Protocol):
    """A request on its way."""

    @property
    def head(self) -> RequestHead:
        """Where it goes, and what it says first."""

    @property
    def content(self) -> bytes:
        """What it says then."""

    @property
    def timeouts(self) -> Mapping[str, float]:
        """Seconds for each of the steps connect, read, write and pool; they change while it goes on."""

    def begins(self, step: str) -> None:
        """Is told when a step begins, under httpcore's name for it."""

    def request(self, *, is_async: bool) -> httpx.Request:
        """The same for httpx's transports, which are told by it whom to tell."""
