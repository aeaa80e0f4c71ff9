"""What of an exchange with a provider must nobody see?

Patterns say what keys and accounts look like; those that the request at hand carries are known exactly.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from fsm_agent.clients.http.request import SECRETS
from fsm_agent.key_patterns import KEY_LIKE

if TYPE_CHECKING:
    import httpx

SCRUBBED = "***"

_SECRET_HEADERS = re.compile(r"auth|key|token|secret|cookie|organi[sz]ation|project|account", re.IGNORECASE)
_SECRET_QUERY = re.compile(r"key|token|sig|secret|auth|credential|password", re.IGNORECASE)
_MIN_SECRET_CHARS = 8  # shorter ones are placeholders, and words of any text


def secrets_of(request: httpx.Request) -> list[str]:
    """The keys and accounts that ``request`` names, as they are and as JSON writes them, the longest first."""
    queried = [value for name, value in request.url.params.multi_items() if _SECRET_QUERY.search(name)]
    return secret_words(*_named(request.headers), *queried, *request.extensions.get(SECRETS, ()))


def secrets_between(request: httpx.Request, response: httpx.Response) -> list[str]:
    """Those of ``request`` and those that the answer adds: a cookie, the account's own name."""
    return secret_words(*secrets_of(request), *_named(response.headers))


def _named(headers: httpx.Headers) -> list[str]:
    return [value for name, value in headers.multi_items() if _SECRET_HEADERS.search(name)]


def secret_words(*values: str) -> list[str]:
    """What of these values must not be seen, as it is and as JSON writes it, the longest first; placeholders may."""
    words = {word for value in values for word in (value, *value.split()) if len(word) >= _MIN_SECRET_CHARS}
    return sorted(words | {json.dumps(word)[1:-1] for word in words}, key=len, reverse=True)


def scrubbed_url(url: httpx.URL, secrets: list[str]) -> str:
    """``url`` without secrets, user and password; its query is decoded."""
    named = url.params.multi_items()
    query = "&".join([f"{name}={SCRUBBED if _SECRET_QUERY.search(name) else value}" for name, value in named])
    bare = f"{url.scheme}://{url.netloc.decode('ascii')}{url.path}"
    return scrubbed(f"{bare}?{query}" if query else bare, secrets)


def scrubbed(text: str, secrets: list[str]) -> str:
    """``text`` without ``secrets``, and without what looks like a key or an account."""
    for secret in secrets:
        text = text.replace(secret, SCRUBBED)
    return KEY_LIKE.sub(SCRUBBED, text)
