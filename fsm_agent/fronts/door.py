"""Who may ask a server on this machine: the browser that was given its address, and programs with its token.

The token in the first address becomes a cookie, and leaves the address.  The Host has to be this machine's name, or
another site could let its own name point here (DNS rebinding).  Other users of the machine do not know the token.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from fsm_agent.fronts.guard import OWN_SITE, READS, unless_socket

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
