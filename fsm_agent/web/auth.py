"""Access checks that decide which requests from browsers and programs are accepted.

They do not distinguish users: `fsm_agent.web.chat_page` decides whose conversations a request may see.

Requests that change something must come from the service's own pages, which send its Origin.  The Host must be a name
of this machine; otherwise, another site could point its own name here (DNS rebinding).  The token in the first address,
which other users of the machine do not know, is moved from the address into a cookie.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import AsyncIterator, Collection
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
READS = frozenset({"GET", "HEAD"})
OWN_SITE = frozenset({"same-origin", "none"})  # "none": an address that was typed, or opened from another program


def page_headers(*, forms: bool = False) -> dict[str, str]:
    """Return headers that let pages load, run and show only content from their own service.

    Args:
        forms: Whether the pages have forms, which they may send only to their own service.
    """
    targets = "'self'" if forms else "'none'"
    return {
        "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        f" connect-src 'self'; form-action {targets}; base-uri 'none'; frame-ancestors 'none'",
        "referrer-policy": "same-origin",  # with no-referrer, browsers send forms with the origin "null"
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "no-store",
    }


async def reject_websocket(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Run the application's lifespan, or close a web socket.

    Web sockets are refused because any site may open one and our pages use none.
    """
    if scope["type"] == "lifespan":
        await app(scope, receive, send)
    else:
        await send({"type": "websocket.close", "code": 1008})


class OriginCheck:
    """Refuses requests from other sites, and adds security headers to each response.

    Args:
        app: The application to protect.
        hosts: The service's host names, without a port, or None to allow any name if a proxy checks it.
        origins: The origins of the pages, such as ``https://ops.example.com``.  If empty, the Host of each request
            determines its origin.
        forms: Whether the pages send forms.  If so, every request that changes something must have our Origin, because
            any site can send a form.  If not, such requests must be JSON, and programs may omit the Origin.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str] | None = None,
        origins: Collection[str] = (),
        forms: bool = False,
    ) -> None:
        self._app, self._hosts, self._origins, self._forms = app, hosts, frozenset(origins), forms
        self._headers = page_headers(forms=forms)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await reject_websocket(self._app, scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        await (self._refusal(Request(scope)) or self._app)(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """Return the response that refuses a request, or None to accept it."""
        headers = request.headers
        host = headers.get("host", "")
        if self._hosts is not None and _without_port(host) not in self._hosts:
            return self._refused("this server does not serve that host", 421)
        if request.method in READS:
            return None
        own = self._origins or [f"{scheme}://{host}" for scheme in ("http", "https") if host]
        is_own = headers.get("origin") in own or ("origin" not in headers and not self._forms)
        if not is_own or headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return self._refused("requests from other sites are refused")
        is_json = headers.get("content-type", "").partition(";")[0].strip() == "application/json"
        return None if is_json or self._forms else self._refused("expected application/json")

    def _refused(self, problem: str, status: int = 403) -> Response:
        if self._forms:
            return PlainTextResponse(problem, status)
        return JSONResponse({"error": problem, "code": "refused"}, status)


def _without_port(host: str) -> str:
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()


NAMES = ("127.0.0.1", "localhost")


def new_token() -> str:
    """Return a random token."""
    return secrets.token_urlsafe(32)


def derive_token(token: str, use: str) -> str:
    """Return a token for one purpose that does not reveal the original token."""
    return hmac.new(token.encode(), use.encode(), "sha256").hexdigest()[:32]


def is_same(given: str, right: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), right.encode())


class TokenAuth:
    """Accepts only requests that have the token, for a server that can be reached only from this machine.

    Args:
        app: The application to protect.
        token: The token in the first address.  Programs send it in the header ``Authorization: Bearer …``.
        port: The port of the server.
        path: The path of the application.  The cookie is sent only to this path.
        command: The command that prints the address.
        names: The names of this machine that are accepted as a request's Host.
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
        self._cookie, self._value = f"fsm_agent_{port}", derive_token(token, "cookie")
        self._names, self._hosts = names, {f"{name}:{port}" for name in names} | {*(names if port == 80 else ())}
        self._again = f"open the address that 'fsm-agent {command}' printed"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await reject_websocket(self._app, scope, receive, send)
            return
        await (self._refusal(Request(scope)) or self._app)(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        """Return the response that refuses a request, or None to accept it."""
        if request.headers.get("host", "").lower() not in self._hosts:
            return PlainTextResponse(f"expected {' or '.join(self._names)} as the host, at this port", 421)
        if request.method in READS and (given := request.query_params.get("token")) is not None:
            if not is_same(given, self._token):
                return PlainTextResponse(f"the token is wrong; {self._again}", 403)
            return self._welcome(request)
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        is_program = scheme.lower() == "bearer" and is_same(bearer, self._token)
        if not is_program and not is_same(request.cookies.get(self._cookie, ""), self._value):
            return PlainTextResponse(f"this page requires a token; {self._again}", 403)
        if request.headers.get("sec-fetch-site", "none") not in OWN_SITE:
            return PlainTextResponse(f"requests from other sites are refused; {self._again}", 403)
        return None

    def _welcome(self, request: Request) -> Response:
        rest = urlencode([(name, value) for name, value in request.query_params.multi_items() if name != "token"])
        path = request.url.path if request.url.path.startswith(self._path) else self._path
        answer = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
        answer.set_cookie(self._cookie, self._value, path=self._path, httponly=True, samesite="strict")
        return answer


def require_token(
    app: Starlette, *, host: str, port: int, command: str, token: str | None = None
) -> tuple[Starlette, str]:
    """Return `(app, address)`: the application, which now requires a token, and its first address, which contains it.

    Args:
        app: The application to protect.
        host: The address of the server.  It must be on this machine.
        port: The port of the server.
        command: The command that prints the address.
        token: The token, made of characters that are valid in a URL.  By default, a new token is made.
    """
    token = token or new_token()
    path, name = f"/{derive_token(token, 'path')[:12]}", f"[{host}]" if ":" in host else host
    names = tuple(dict.fromkeys((*NAMES, name)))
    auth = Middleware(TokenAuth, token=token, port=port, path=f"{path}/", command=command, names=names)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with app.router.lifespan_context(app):
            yield

    whole = Starlette(routes=[Mount(path, app)], middleware=[auth], lifespan=lifespan)
    return whole, f"http://{name}:{port}{path}/?token={token}"
