"""TLS contexts of connections, and the protocol negotiated over them."""

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

_HTTP1 = ["http/1.1"]  # all that our own connections speak, by its name in ALPN


@lru_cache(maxsize=16)
def context_for(verify: bool | str, *, http2: bool) -> ssl.SSLContext:
    """Return the context for the certificates of ``verify``; see `Network.verify`.

    There is one for each value of ``http2``, because httpx writes the protocols that it offers into the context.

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
            raise ConfigError(f"verify: expected certificates in PEM, got {verify!r}: {error}") from error
    if not http2:
        context.set_alpn_protocols(_HTTP1)
    return context


def http1_context(verify: bool | str | ssl.SSLContext) -> ssl.SSLContext:
    """Return the context of the package's own pools; it offers HTTP/1.1 only."""
    if not isinstance(verify, ssl.SSLContext):
        return context_for(verify, http2=False)
    verify.set_alpn_protocols(_HTTP1)  # as httpx does with a caller's context
    return verify


def check_protocol(agreed: str | None) -> None:
    """Raise if HTTP/2 was negotiated, which the package's own connections do not support.

    Raises:
        httpx.ConnectError: It was, because another user of the same `ssl.SSLContext` made it offer HTTP/2.
    """
    if agreed == "h2":
        raise httpx.ConnectError("the SSLContext of `verify` offers HTTP/2; give each client a context of its own")
