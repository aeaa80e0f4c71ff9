"""Endpoints that requests are sent to: URL, model name, key and headers."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from functools import cache, cached_property
from typing import TYPE_CHECKING

from fsm_agent._internal.masking import (
    MIN_ANYWHERE_CHARS,
    Secrets,
    hold_key,
    is_secret_name,
    path_tokens,
    secrets_in_headers,
    secrets_in_url,
    shown_url,
)
from fsm_agent._internal.structs import Value
from fsm_agent.errors import ConfigError
from fsm_agent.providers.catalog import Provider
from fsm_agent.providers.codec import Profile
from fsm_agent.validation import require

if TYPE_CHECKING:
    import httpx

_KEY_HEADERS = ("authorization", "api-key", "x-api-key", "x-goog-api-key")  # with one of these, no key is needed
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2
_OF_THE_CONNECTION = (  # headers of the connection (RFC 9110, section 7.6.1) and of request framing
    *("connection", "keep-alive", "proxy-connection", "te", "upgrade"),
    *("content-length", "expect", "trailer", "transfer-encoding"),
)

_HOST = re.compile(r"[\w.:-]+")
_VERSION = re.compile(r"/v\d+[a-z0-9]*$")
_ENDPOINTS = ("/chat/completions", "/responses", "/messages")  # often copied along with a base URL


class Endpoint(Value, frozen=True, kw_only=True, dict=True):
    """The destination and credentials of one request."""

    hidden = ("base_url", "key", "own_headers")

    provider: Provider
    base_url: httpx.URL  # may hold a token
    model: str
    key: str | None
    own_headers: Mapping[str, str]  # of the provider and the caller

    @cached_property
    def other(self) -> Endpoint | None:
        """The endpoint for the provider's other wire.  It is made on first use, because few calls need it."""
        way = self.provider.other_way_round
        return None if way is None else self.changed(provider=way)

    @cached_property
    def headers(self) -> dict[str, str]:
        """The headers that carry the key and the API version, and those that the provider and the caller add."""
        provider = self.provider
        if provider.key_header is None or self.key is None:
            key_headers = provider.codec.headers(self.key)
        else:
            key_headers = {**provider.codec.headers(None), provider.key_header: self.key}
        return {name.lower(): value for name, value in (*key_headers.items(), *self.own_headers.items())}

    @cached_property
    def secrets(self) -> frozenset[str]:
        """The texts that must not appear in any message."""
        of_url = _secrets_in_base_url(str(self.base_url)) if str(self.base_url) != self.provider.base_url else []
        of_key = [self.key] if self.key else []
        return frozenset([*of_key, *secrets_in_headers(self.own_headers.items()), *of_url]) - {self.model}

    @cached_property
    def echoable(self) -> frozenset[str]:
        """The secrets that are long enough to be distinguished from a word in a name."""
        return frozenset([s for s in self.secrets if len(s) >= MIN_ANYWHERE_CHARS and s not in self.model])

    @cached_property
    def profile(self) -> Profile:
        return self.provider.profile_of(self.model)

    @cached_property
    def _addresses(self) -> dict[bool, tuple[httpx.URL, httpx.Headers]]:
        return {}

    def address(self, stream: bool) -> tuple[httpx.URL, httpx.Headers]:
        """Return `(url, headers)`: the URL, and the headers that all requests share."""
        import httpx

        if (address := self._addresses.get(stream)) is not None:
            return address
        url = self.url(self.provider.codec.path(self.model, stream=stream))
        closes = stream and self.provider.closes_after_stream
        headers = {
            "host": url.netloc.decode("ascii"),
            "user-agent": "fsm-agent",
            "connection": "close" if closes else "keep-alive",
            "content-type": "application/json",
            "accept": "text/event-stream" if stream else "application/json",
            "accept-encoding": "identity" if stream else "gzip",
            **self.headers,
        }
        return self._addresses.setdefault(stream, (url, httpx.Headers(headers)))

    def url(self, path: str) -> httpx.URL:
        import httpx

        own_path, _, own_query = path.partition("?")
        base = str(self.base_url.copy_with(query=None)).rstrip("/")
        query = "&".join(filter(None, [self.base_url.query.decode("ascii"), own_query]))
        return httpx.URL(f"{base}{own_path}?{query}" if query else f"{base}{own_path}")


class Access(Value, frozen=True, kw_only=True, dict=True):
    """The caller's settings for reaching a model.  Everything else is looked up for each request.

    Raises:
        ConfigError: If a setting is invalid.
    """

    hidden = ("api_key", "base_url", "headers")

    provider: Provider
    model: str
    api_key: str | None = None
    base_url: str | None = None
    headers: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        require(
            "base_url",
            self.base_url,
            isinstance(self.base_url, str | None),
            "a URL such as 'https://host/v1'",
            ConfigError,
        )
        if not isinstance(self.api_key, str | None):
            raise ConfigError(f"api_key: expected a string, got a value of type {type(self.api_key).__name__}")
        if self.base_url is not None:
            _base_url(self.base_url, "base_url", self.provider)
        if self.api_key is not None:
            _check_key(self.api_key, "api_key")
        for name, value in {**self.provider.headers, **self.headers}.items():
            _check_header(name, value)

    @cached_property
    def _last(self) -> list[tuple[object, Endpoint]]:
        return []

    @property
    def secret_argument(self) -> str | None:
        """The name of an argument that may hold a secret, or None."""
        if self.api_key is not None:
            return "api_key"
        if any(map(is_secret_name, (*self.headers, *self.provider.headers))):
            return "headers"
        url = self.base_url or ""
        return "base_url" if "?" in url or any(path_tokens(url)) else None

    @property
    def starts_server(self) -> bool:
        """True if `locate` may have to start a server, which takes time."""
        return self.provider.is_embedded and self.base_url is None

    def locate(self) -> Endpoint:
        """Return the endpoint.  This reads the environment and, for an embedded model, starts its server if needed.

        Raises:
            ConfigError: If the key or the base URL is missing or invalid.
            ProviderError: If the embedded server does not start.
        """
        import httpx

        if self.starts_server:
            from fsm_agent.clients.local.server import local_server

            server = local_server(self.model or None)
            return self._endpoint(httpx.URL(server.base_url), server.model, server.api_key)
        settings = (*self._find_base_url(), self._find_key())
        for cached, endpoint in self._last[:]:
            if cached == settings:  # the environment rarely changes between two requests
                return endpoint
        text, source, key = settings
        endpoint = self._endpoint(_base_url(text, source, self.provider), self.model, key)
        self._last[:] = [(settings, endpoint)]
        return endpoint

    def check(self) -> None:
        """Check the same settings as `locate`, without starting a server.

        Raises:
            ConfigError: If the key, the base URL or the engine for embedded models is missing or invalid.
        """
        if self.starts_server:
            from fsm_agent.clients.local.model import find_model
            from fsm_agent.clients.local.server import check_engine

            check_engine()
            find_model(self.model or None)
        else:
            self.locate()

    def _endpoint(self, base_url: httpx.URL, model: str, key: str | None) -> Endpoint:
        if key:
            hold_key(key)
        headers = {**self.provider.headers, **self.headers}
        return Endpoint(provider=self.provider, base_url=base_url, model=model, key=key, own_headers=headers)

    def _find_base_url(self) -> tuple[str, str]:
        provider = self.provider
        if self.base_url is not None:
            return self.base_url, "base_url"
        variable = provider.base_url_variable
        if variable and (text := os.environ.get(variable, "").strip()):
            return text, variable
        if provider.base_url is None:
            hint = f", or set {variable}" if variable else ""
            raise ConfigError(f"provider {provider.name!r} has no base URL; pass base_url='https://…/v1'{hint}")
        return provider.base_url, "base_url"

    def _find_key(self) -> str | None:
        if self.api_key is not None:
            return self.api_key.strip()
        variables = self.provider.key_variables
        for variable in variables:
            if key := os.environ.get(variable, "").strip():
                _check_key(key, variable)
                return key
        has_key_header = any(name.lower() in _KEY_HEADERS for name in (*self.headers, *self.provider.headers))
        if variables and not (self.provider.key_is_optional or has_key_header):
            name, wanted = self.provider.name, " or ".join(variables)
            raise ConfigError(f"provider {name!r} needs a key; set {wanted}, or give api_key")
        return None


def _check_header(name: str, value: str) -> None:
    if not (isinstance(name, str) and isinstance(value, str)):
        raise ConfigError(f"the header {name!r:.80}: expected strings, got a value of type {type(value).__name__}")
    if not _TOKEN.fullmatch(name):
        raise ConfigError(f"the name of a header: expected letters, digits and dashes, got {name!r:.80}")
    if name.lower() in _OF_THE_CONNECTION:
        raise ConfigError(f"the header {name!r} cannot be set, since the connection sets it itself; leave it out")
    if not (value.isascii() and value.isprintable()):
        raise ConfigError(f"the value of header {name!r}: expected printable ASCII, got other characters")
    if value != value.strip():
        raise ConfigError(f"the value of header {name!r}: expected no space at its ends, got one; strip it")


def _check_key(key: str, source: str) -> None:
    key = key.strip()
    if not (key and key.isascii() and key.isprintable()):
        given = "other characters" if key else "an empty text"
        raise ConfigError(f"the key in {source}: expected printable ASCII, got {given}; copy the whole key")


def _secrets_in_base_url(text: str) -> list[str]:
    return [*secrets_in_url(text), *path_tokens(text)]


def _base_url(text: str, source: str, provider: Provider) -> httpx.URL:
    import httpx

    try:
        url = httpx.URL(text.strip())
        url.host.encode("idna")  # fails here rather than later, in the DNS lookup
        is_web = url.scheme in ("http", "https") and _HOST.fullmatch(url.host) is not None
    except (httpx.InvalidURL, UnicodeError):
        is_web = False
    shown = Secrets(_secrets_in_base_url(text)).mask(re.sub(r"//[^/]*@", "//***@", text.partition("?")[0]))
    if not is_web:
        raise ConfigError(f"{source}: expected a URL like 'https://host/v1', got {shown!r}")
    if url.userinfo:
        raise ConfigError(f"{source} {shown!r} contains a user name or password; pass it as api_key or in headers")
    path = url.path.rstrip("/")
    for endpoint in _ENDPOINTS:
        path = path.removesuffix(endpoint)
    if not path or (provider.base_path_always and not _VERSION.search(path)):
        path += provider.base_path
    return url.copy_with(path=path or "/", fragment=None)


# A logger's filters do not see the records of its children, so each is listed.
_CORE = ("connection", "http11", "http2", "proxy", "socks")
LOGGERS = (
    "httpx",
    "httpx2",
    *[f"{library}.{part}" for library in ("httpcore", "httpcore2") for part in _CORE],
    "hpack.hpack",
    "hpack.table",
    "mcp.client.client",
    "mcp.client.sse",
    "mcp.client.stdio",
    "mcp.client.streamable_http",
    "mcp.shared.jsonrpc_dispatcher",
    "client",  # mcp.client.session uses this name
    *[f"vcr.{part}" for part in ("cassette", "request", "stubs.aiohttp_stubs", "stubs.httpx_stubs")],
)

_PLAIN = logging.Formatter()
_current: ContextVar[Secrets | Callable[[], Iterable[str]] | None] = ContextVar(
    "secrets of the request under way", default=None
)


class _Masking(logging.Filter):
    """Masks log records while one of this package's requests is in progress in this context."""

    def filter(self, record: logging.LogRecord) -> bool:
        if _current.get() is None:
            return True
        secrets = secrets_under_way()
        if record.name.startswith("hpack."):  # hpack also logs Huffman-coded headers, which cannot be masked
            return False
        if isinstance(record.args, tuple):
            record.args = tuple([shown_url(str(arg)) if type(arg).__name__ == "URL" else arg for arg in record.args])
        record.msg, record.args = secrets.mask(record.getMessage()), ()
        if record.exc_info:
            record.exc_text, record.exc_info = secrets.mask(_PLAIN.formatException(record.exc_info)), None
        return True


@cache
def _install() -> None:
    masking = _Masking()
    for name in LOGGERS:
        logging.getLogger(name).addFilter(masking)


def secrets_under_way() -> Secrets:
    """Return the secrets of the request that is in progress in this context."""
    found = _current.get()
    return found if isinstance(found, Secrets) else Secrets(found() if found else ())


class masked_logs:  # noqa: N801  # a context manager, named like those of contextlib
    """Masks secrets in the libraries' log records inside the block, and in the tasks that it starts.

    ``secrets`` may be a function, which is called when something is logged.
    """

    __slots__ = ("_find", "_token")

    def __init__(self, secrets: Secrets | Callable[[], Iterable[str]]) -> None:
        self._find = secrets

    def __enter__(self) -> None:
        _install()
        self._token = _current.set(self._find)

    def __exit__(self, *raised: object) -> None:
        _current.reset(self._token)
