"""Who may ask: the browser that was given the address, and no page of another site.

The token in the first address becomes a cookie, and leaves the address.  The Host has to be this machine's name, or
another site could let its own name point here (DNS rebinding).  A form has to come from a page of the inspector: it
brings the token of forms, and our Origin.  What is not known to be right is refused.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection
from urllib.parse import urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fsm_agent.fronts.guard import page_headers, unless_socket

HEADERS = page_headers(forms="'self'")
_READS = frozenset({"GET", "HEAD"})
_OWN_SITE = frozenset({"same-origin", "none"})  # "none": an address that was typed or opened from outside
_AGAIN = "open the address that 'fsm-agent inspect' has printed"


def new_token() -> str:
    """Return a token that cannot be guessed."""
    return secrets.token_urlsafe(32)


def derived(token: str, use: str) -> str:
    """Return a token for one use, from which the first one cannot be found out."""
    return hmac.new(token.encode(), use.encode(), "sha256").hexdigest()[:32]


def is_same(given: str, right: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), right.encode())


class Headers:
    """Adds the headers that keep other sites out to each answer, and refuses forms that come from elsewhere.

    Args:
        app: The application behind it.
        origins: The origins of its pages, as ``https://ops.example.com``; empty: that of the Host of the request.
    """

    def __init__(self, app: ASGIApp, origins: Collection[str] = ()) -> None:
        self._app, self._origins = app, frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await unless_socket(self._app, scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        request = Request(scope)
        is_refused = request.method not in _READS and not self._is_own_form(request)
        refusal = PlainTextResponse("this form does not come from a page of the inspector", 403)
        await (refusal if is_refused else self._app)(scope, receive, sent)

    def _is_own_form(self, request: Request) -> bool:
        origin, host = request.headers.get("origin", ""), request.headers.get("host", "")
        is_ours = origin in (self._origins or {f"{scheme}://{host}" for scheme in ("http", "https") if host})
        return is_ours and request.headers.get("sec-fetch-site", "same-origin") == "same-origin"


class Door:
    """Lets in who has the token; for a server on this machine alone.

    Args:
        app: The application behind it.
        token: The token of the first address.
        port: The port of the server.
        path: The path of the application: no page at another path or port gets the cookie, save one that knows it.
    """

    def __init__(self, app: ASGIApp, *, token: str, port: int, path: str) -> None:
        self._app, self._token, self._path = app, token, path
        self._cookie, self._value = f"fsm_agent_{port}", derived(token, "cookie")
        self._hosts = frozenset({f"{name}:{port}" for name in ("127.0.0.1", "localhost")})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await unless_socket(self._app, scope, receive, send)
            return
        await (self._answer(Request(scope)) or self._app)(scope, receive, send)

    def _answer(self, request: Request) -> Response | None:
        """Return what is answered in place of the application; None: nothing."""
        if request.headers.get("host", "").lower() not in self._hosts:
            return PlainTextResponse("the inspector answers to 127.0.0.1 and localhost alone", 421)
        if request.method in _READS and (given := request.query_params.get("token")) is not None:
            if not is_same(given, self._token):
                return PlainTextResponse(f"the token is wrong: {_AGAIN}", 403)
            return self._welcome(request)
        if not is_same(request.cookies.get(self._cookie, ""), self._value):
            return PlainTextResponse(f"nothing is shown without its token: {_AGAIN}", 403)
        if request.headers.get("sec-fetch-site", "none") not in _OWN_SITE:
            return PlainTextResponse(f"another page may not ask this: {_AGAIN}", 403)
        return None

    def _welcome(self, request: Request) -> Response:
        rest = urlencode([(name, value) for name, value in request.query_params.multi_items() if name != "token"])
        path = request.url.path if request.url.path.startswith(self._path) else self._path
        answer = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
        answer.set_cookie(self._cookie, self._value, path=self._path, httponly=True, samesite="strict")
        return answer
