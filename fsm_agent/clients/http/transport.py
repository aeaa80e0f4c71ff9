"""The interface of a transport: a request in, a response out, whose body is read piece by piece.

There are three: the package's pools for threads and for an event loop, and httpx, sync or async.  Every failure of the
network is an `httpx.TransportError`; a closed transport raises `RuntimeError`.
"""

from __future__ import annotations

from typing import Protocol

from fsm_agent.clients.http.request import Headers, OutgoingRequest


class Response(Protocol):
    """A response whose head has arrived.

    Attributes:
        status: Status code, 200 or more.
        headers: As received.
        is_decoded: True if its ``content-encoding`` has been decoded already.
    """

    status: int
    headers: Headers
    is_decoded: bool

    def read(self) -> bytes:
        """Return the next bytes of the body; b"" at its end.

        Raises:
            httpx.TransportError: They did not arrive, or not in time.
        """

    def close(self) -> None:
        """Stop reading and release the connection; safe to repeat."""


class Transport(Protocol):
    """Sends requests from any number of threads."""

    def send(self, request: OutgoingRequest) -> Response:
        """Send a request; the response must be closed.

        Raises:
            httpx.TransportError: There is no response.
            RuntimeError: The transport is closed.
        """

    def close(self) -> None:
        """Close all connections; requests in flight fail at once."""


class AsyncResponse(Protocol):
    """`Response` for asyncio."""

    status: int
    headers: Headers
    is_decoded: bool

    async def read(self) -> bytes:
        """Return the next bytes of the body; b"" at its end."""

    async def aclose(self) -> None:
        """Stop reading and release the connection; safe to repeat."""


class AsyncTransport(Protocol):
    """Sends the requests of one event loop."""

    async def send(self, request: OutgoingRequest) -> AsyncResponse:
        """Send a request; the response must be closed."""

    async def aclose(self) -> None:
        """Close all connections; requests in flight fail at once."""
