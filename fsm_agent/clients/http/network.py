"""`Network`: how requests travel."""

from __future__ import annotations

import os
from dataclasses import field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from fsm_agent._internal.field_checks import is_finite, is_whole
from fsm_agent._internal.lazy_import import deferred
from fsm_agent._internal.redaction import secrets_in_url
from fsm_agent._internal.values import frozen
from fsm_agent.errors import ConfigError
from fsm_agent.mistakes import check

if TYPE_CHECKING:
    import ipaddress
    import ssl

    import httpx
else:
    ipaddress = deferred("ipaddress")


@frozen(kw_only=True)
class Network:
    """How requests travel: how long each step may take, how much may come back, over what.

    Attributes:
        connect_s: Until there is a connection.
        read_s: Until a reply begins, and between the pieces of one that is not streamed.
        write_s: Between the pieces of a request: a slow server may take as long as it likes, as long as it takes some.
        pool_s: Until one of `max_connections` is free; who waits longest is next.
        idle_s: Between the pieces of a stream; comments that keep it alive count.
        linger_s: After a stream said that it is done, for its end: only who reads that can use the connection again.
        max_reply_bytes: Of one reply, decompressed.
        max_connections: At once, of each pool: so many requests can be on their way.
        proxy: The URL of one that all requests go through, ``http://user:password@host:port``; None: those of the
            environment (``HTTPS_PROXY``, ``NO_PROXY`` …), never to this machine.  It is shown nowhere.
        verify: Whom to trust: True (whom certifi or ``SSL_CERT_FILE`` names), the path of a PEM file or of a folder
            of certificates, an `ssl.SSLContext`, or False: anybody, so for tests only.
        http2: Speak HTTP/2 where the server can; needs the extra ``http2``.
        transport: Instead of a pool of ours: one of httpx, which is closed with the client, or ``"httpx"``, which makes
            that library's own, as a proxy or HTTP/2 always does.  Over any of them each HTTP/1.1 request opens a
            connection; see `fsm_agent.clients.http`.
        async_transport: The same for asyncio.

    Raises:
        ConfigError: A part cannot be right, or its extra is not installed.
    """

    connect_s: float = 10.0
    read_s: float = 600.0
    write_s: float = 60.0
    pool_s: float = 600.0
    idle_s: float = 300.0
    linger_s: float = 1.0
    max_reply_bytes: int = 64_000_000
    max_connections: int = 1000
    proxy: str | None = field(default=None, repr=False)
    verify: bool | str | ssl.SSLContext = True
    http2: bool = False
    transport: httpx.BaseTransport | Literal["httpx"] | None = None
    async_transport: httpx.AsyncBaseTransport | Literal["httpx"] | None = None

    def __post_init__(self) -> None:
        for name in ("connect_s", "read_s", "write_s", "pool_s", "idle_s", "linger_s"):
            check(
                name,
                value := getattr(self, name),
                is_finite(value) and value > 0,
                "a number of seconds above 0",
                ConfigError,
            )
        for name in ("max_reply_bytes", "max_connections"):
            check(name, value := getattr(self, name), is_whole(value, 1), "1 or more", ConfigError)
        if self.http2 and not _has("h2"):
            raise ConfigError("http2=True needs h2: pip install 'fsm-agent[http2]'")
        for name in ("transport", "async_transport"):
            wrong = getattr(self, name)
            if isinstance(wrong, str) and wrong != "httpx":
                raise ConfigError(f"{name} is {wrong!r}: a transport, 'httpx' or None would be right")
        if isinstance(self.verify, str) and not os.path.exists(self.verify):
            raise ConfigError(f"verify is {self.verify!r}, and there is no such file or folder of certificates")
        if self.proxy is not None:
            _check_proxy(self.proxy)

    @property
    def secrets(self) -> frozenset[str]:
        """Return what no message may show."""
        return frozenset(() if self.proxy is None else secrets_in_url(self.proxy))


def _has(module: str) -> bool:
    return find_spec(module) is not None


def _check_proxy(url: str) -> None:
    scheme, colon, rest = url.partition("://")
    shown = rest.rpartition("@")[2]
    if not colon or scheme not in ("http", "https", "socks5", "socks5h") or not shown:
        here = f" for {shown!r}" if shown else ""
        raise ConfigError(f"the URL of the proxy{here} is none: one like 'http://host:3128' would be right")
    if scheme.startswith("socks") and not _has("socksio"):
        raise ConfigError(f"the proxy '{scheme}://{shown}' needs socksio: pip install 'httpx[socks]'")


def is_loopback(url: httpx.URL) -> bool:
    """Return whether ``url`` is of this machine, where no proxy can reach it."""
    try:
        return ipaddress.ip_address(url.host).is_loopback
    except ValueError:
        return url.host == "localhost" or url.host.endswith(".localhost")
