"""The interface of a transport: a request in, a response out, whose body is read piece by piece.

There are three: our own pools of threads and of an event loop, and httpx in either colour.  Whatever the network does
is an `httpx.TransportError`; a transport that is closed raises `RuntimeError`.
"""

from __future__ import annotations

from typing import Protocol

from fsm_agent.clients.http.request import Headers, OutgoingRequest


class Response(Protocol):
    """A response whose head is there.

    Attributes:
        status: Status code, 200 or more.
        headers: As they came.
        is_decoded: Somebody has undone its ``content-encoding``.
    """

    status: int
    headers: Headers
    is_decoded: bool

    def read(self) -> bytes:
        """Return the next bytes of the body; b"" at its end.

        Raises:
            httpx.TransportError: They do not come, or not in time.
        """

    def close(self) -> None:
        """Read no more; safe to repeat."""


class Transport(Protocol):
    """Sends requests of any number of threads."""

    def send(self, request: OutgoingRequest) -> Response:
        """Send a request; the response must be closed.

        Raises:
            httpx.TransportError: There is none.
            RuntimeError: The transport is closed.
        """

    def close(self) -> None:
        """Hang up on everybody; requests under way fail at once."""


class AsyncResponse(Protocol):
    """`Response` for asyncio."""

    status: int
    headers: Headers
    is_decoded: bool

    async def read(self) -> bytes:
        """Return the next bytes of the body; b"" at its end."""

    async def aclose(self) -> None:
        """Read no more; safe to repeat."""


class AsyncTransport(Protocol):
    """Sends the requests of one event loop."""

    async def send(self, request: OutgoingRequest) -> AsyncResponse:
        """Send a request; the response must be closed."""

    async def aclose(self) -> None:
        """Hang up on everybody; requests under way fail at once."""
