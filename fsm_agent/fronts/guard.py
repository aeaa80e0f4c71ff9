"""What keeps other sites and other machines out of a page that is served here.

The Host has to be a name of this service, or another site could let its own name point here (DNS rebinding).  What
changes something comes from a page of the service: it brings our Origin.  No page loads anything from elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse
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
_READS = frozenset({"GET", "HEAD"})


async def unless_socket(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Begin or end the application, and close a web socket: any site may open one, and no page of ours has any."""
    if scope["type"] == "lifespan":
        await app(scope, receive, send)
    else:
        await send({"type": "websocket.close", "code": 1008})


class Guard:
    """Adds these headers to each answer, and refuses what another site asks.

    Args:
        app: The application behind it.
        hosts: The names of the service, without a port; None: any, for a service whose proxy checks them.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str] | None = LOOPBACK) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await unless_socket(self._app, scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        problem = self._problem(Request(scope))
        refusal = JSONResponse({"error": problem, "code": "refused"}, 421 if problem.startswith("this host") else 403)
        await (refusal if problem else self._app)(scope, receive, sent)

    def _problem(self, request: Request) -> str:
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if self._hosts is not None and _name_of(host) not in self._hosts:
            return "this host is not served here"
        if request.method in _READS:
            return ""
        is_own = origin is None or urlsplit(origin).netloc == host
        if not is_own or request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return "another site may not ask this"
        kind = request.headers.get("content-type", "").partition(";")[0].strip()
        return "" if kind == "application/json" else "only application/json is taken"  # no form of another site has it


def _name_of(host: str) -> str:
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()
