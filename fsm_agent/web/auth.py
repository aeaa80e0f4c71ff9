"""Who may ask: pages of the service itself, the browser that was given its address, programs with its token.

What changes something comes from a page of the service: it brings our Origin.  No page loads anything from elsewhere.
The token in the first address becomes a cookie, and leaves the address.  The Host has to be this machine's name, or
another site could let its own name point here (DNS rebinding).  Other users of the machine do not know the token.
"""

from __future__ import annotations

import hmac
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount
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


NAMES = ("127.0.0.1", "localhost")


def new_token() -> str:
    """Return a token that cannot be guessed."""
    return secrets.token_urlsafe(32)


def derived(token: str, use: str) -> str:
    """Return a token for one use, from which the first one cannot be found out."""
    return hmac.new(token.encode(), use.encode(), "sha256").hexdigest()[:32]


def is_same(given: str, right: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), right.encode())


class Door:
    """Lets in who has the token; for a server on this machine alone.

    Args:
        app: The application behind it.
        token: The token of the first address; a program sends it as ``Authorization: Bearer …``.
        port: The port of the server.
        path: The path of the application: no page at another path or port gets the cookie, save one that knows it.
        command: The command that prints the address.
        names: The names of this machine that are answered to.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        port: int,
        path: str,
        command: str = "inspect",
        names: Collection[str] = NAMES,
    ) -> None:
        self._app, self._token, self._path = app, token, path
        self._cookie, self._value = f"fsm_agent_{port}", derived(token, "cookie")
        self._names, self._hosts = names, {f"{name}:{port}" for name in names} | {*(names if port == 80 else ())}
        self._again = f"open the address that 'fsm-agent {command}' has printed"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await unless_socket(self._app, scope, receive, send)
            return
        await (self._answer(Request(scope)) or self._app)(scope, receive, send)

    def _answer(self, request: Request) -> Response | None:
        """Return what is answered in place of the application; None: nothing."""
        if request.headers.get("host", "").lower() not in self._hosts:
            return PlainTextResponse(f"expected {' or '.join(self._names)} as the host, at this port", 421)
        if request.method in READS and (given := request.query_params.get("token")) is not None:
            if not is_same(given, self._token):
                return PlainTextResponse(f"the token is wrong; {self._again}", 403)
            return self._welcome(request)
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        is_program = scheme.lower() == "bearer" and is_same(bearer, self._token)
        if not is_program and not is_same(request.cookies.get(self._cookie, ""), self._value):
            return PlainTextResponse(f"this page needs its token; {self._again}", 403)
        if request.headers.get("sec-fetch-site", "none") not in OWN_SITE:
            return PlainTextResponse(f"another page must not ask this; {self._again}", 403)
        return None

    def _welcome(self, request: Request) -> Response:
        rest = urlencode([(name, value) for name, value in request.query_params.multi_items() if name != "token"])
        path = request.url.path if request.url.path.startswith(self._path) else self._path
        answer = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
        answer.set_cookie(self._cookie, self._value, path=self._path, httponly=True, samesite="strict")
        return answer


def locked(app: Starlette, *, host: str, port: int, command: str, token: str | None = None) -> tuple[Starlette, str]:
    """Return an application behind a door, and its first address, with the token.

    Args:
        app: The application; its lifespan is that of the whole.
        host: The address of the server, of this machine alone.
        port: The port of the server.
        command: The command that prints the address.
        token: The token, of characters that a URL may have; None: a new one.
    """
    token = token or new_token()
    path, name = f"/{derived(token, 'path')[:12]}", f"[{host}]" if ":" in host else host
    names = tuple(dict.fromkeys((*NAMES, name)))
    door = Middleware(Door, token=token, port=port, path=f"{path}/", command=command, names=names)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with app.router.lifespan_context(app):
            yield

    whole = Starlette(routes=[Mount(path, app)], middleware=[door], lifespan=lifespan)
    return whole, f"http://{name}:{port}{path}/?token={token}"


FORM_HEADERS = page_headers(forms="'self'")


class Headers(Gate):
    """Adds the headers that keep other sites out to each answer, and refuses forms that come from elsewhere.

    Args:
        app: The application behind it.
        origins: The origins of its pages, as ``https://ops.example.com``; empty: that of the Host of the request.
    """

    def __init__(self, app: ASGIApp, origins: Collection[str] = ()) -> None:
        super().__init__(app, FORM_HEADERS)
        self._origins = frozenset(origins)

    def refusal(self, request: Request) -> Response | None:
        is_own = is_own_origin(request, self._origins)
        if request.method in READS or (
            is_own and request.headers.get("sec-fetch-site", "same-origin") == "same-origin"
        ):
            return None
        return PlainTextResponse("expected a form from a page of the inspector, got another", 403)
