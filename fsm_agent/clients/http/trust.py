"""TLS: whom a connection trusts, and that it speaks HTTP/1.1 over it."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

from fsm_agent._internal.lazy_import import deferred
from fsm_agent.errors import ConfigError

if TYPE_CHECKING:
    import ssl

    import httpx
else:
    httpx, ssl = deferred("httpx"), deferred("ssl")

HTTP1 = ["http/1.1"]  # all that our own connections speak, by its name in ALPN


@lru_cache(maxsize=16)
def context_for(verify: bool | str, *, http2: bool) -> ssl.SSLContext:
    """Return the context that trusts whom ``verify`` says; see `Network.verify`.

    One for each value of ``http2``, because httpx writes the protocols it offers into the context that it is given.

    Raises:
        ConfigError: ``verify`` holds no certificates.
    """
    if isinstance(verify, bool):
        context = httpx.create_ssl_context(verify=verify)
    else:
        is_folder = os.path.isdir(verify)
        try:
            context = ssl.create_default_context(
                cafile=None if is_folder else verify, capath=verify if is_folder else None
            )
        except OSError as error:
            raise ConfigError(f"verify is {verify!r}, and holds no certificates in PEM: {error}") from error
    if not http2:
        context.set_alpn_protocols(HTTP1)
    return context


def check_protocol(agreed: str | None) -> None:
    """Raise if the server was offered HTTP/2, which our own connections do not speak, and chose it.

    Raises:
        httpx.ConnectError: It was: by whoever else uses the same `ssl.SSLContext`.
    """
    if agreed == "h2":
        raise httpx.ConnectError("the SSLContext of `verify` offers HTTP/2: give every client a context of its own")
