"""What keeps other sites and other machines out of a page that is served here.

The Host has to be a name of this service, or another site could let its own name point here (DNS rebinding).  What
changes something comes from a page of the service: it brings our Origin.  No page loads anything from elsewhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def page_headers(*, forms: str = "'none'") -> dict[str, str]:
    """Return the headers of a page that loads, runs and shows only what its own service sends.

    Args:
        forms: Where its forms may be sent, as the content policy says it.
    """
    return {
        "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        f" connect-src 'self'; form-action {forms}; base-uri 'none'; frame-ancestors 'none'",
        "referrer-policy": "same-origin",  # with no-referrer, browsers send forms with the origin "null"
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "no-store",
    }


HEADERS = page_headers()
READS = frozenset({"GET", "HEAD"})
OWN_SITE = frozenset({"same-origin", "none"})  # "none": an address that was typed or opened from outside


async def unless_socket(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Begin or end the application, and close a web socket: any site may open one, and no page of ours has any."""
    if scope["type"] == "lifespan":
        await app(scope, receive, send)
    else:
        await send({"type": "websocket.close", "code": 1008})


class Gate(ABC):
    """Adds headers to each answer, and refuses some requests.

    Args:
        app: The application behind it.
        headers: The headers of every answer.
    """

    def __init__(self, app: ASGIApp, headers: Mapping[str, str]) -> None:
        self._app, self._headers = app, headers

    @abstractmethod
    def refusal(self, request: Request) -> Response | None:
        """Return what refuses a request; None: it is let in."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await unless_socket(self._app, scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        await (self.refusal(Request(scope)) or self._app)(scope, receive, sent)


def is_own_origin(request: Request, origins: Collection[str] = ()) -> bool:
    """Say whether a request says that a page of this service sends it.

    Args:
        request: The request.
        origins: The origins of the pages, as ``https://ops.example.com``; empty: that of the Host of the request.
    """
    host = request.headers.get("host", "")
    own = origins or [f"{scheme}://{host}" for scheme in ("http", "https") if host]
    return request.headers.get("origin") in own


class Guard(Gate):
    """Adds these headers to each answer, and refuses what another site asks.

    Args:
        app: The application behind it.
        hosts: The names of the service, without a port; None: any, for a service whose proxy checks them.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str] | None = LOOPBACK) -> None:
        super().__init__(app, HEADERS)
        self._hosts = hosts

    def refusal(self, request: Request) -> Response | None:
        if self._hosts is not None and _name_of(request.headers.get("host", "")) not in self._hosts:
            return _refused("this server does not serve that host", 421)
        if request.method in READS:
            return None
        is_own = "origin" not in request.headers or is_own_origin(request)
        if not is_own or request.headers.get("sec-fetch-site", "none") not in OWN_SITE:
            return _refused("another site must not ask this")
        kind = request.headers.get("content-type", "").partition(";")[0].strip()
        return None if kind == "application/json" else _refused("expected application/json")  # no form has it


def _refused(problem: str, status: int = 403) -> Response:
    return JSONResponse({"error": problem, "code": "refused"}, status)


def _name_of(host: str) -> str:
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()
