"""What keeps other sites out of the inspector: a form has to come from a page of it.

It brings the token of forms, and our Origin.  What is not known to be right is refused.
"""

from __future__ import annotations

from collections.abc import Collection

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

from fsm_agent.fronts.guard import READS, Gate, is_own_origin, page_headers

HEADERS = page_headers(forms="'self'")


class Headers(Gate):
    """Adds the headers that keep other sites out to each answer, and refuses forms that come from elsewhere.

    Args:
        app: The application behind it.
        origins: The origins of its pages, as ``https://ops.example.com``; empty: that of the Host of the request.
    """

    def __init__(self, app: ASGIApp, origins: Collection[str] = ()) -> None:
        super().__init__(app, HEADERS)
        self._origins = frozenset(origins)

    def refusal(self, request: Request) -> Response | None:
        is_own = is_own_origin(request, self._origins)
        if request.method in READS or (
            is_own and request.headers.get("sec-fetch-site", "same-origin") == "same-origin"
        ):
            return None
        return PlainTextResponse("expected a form from a page of the inspector, got another", 403)
