"""Masking of secrets in the logs of the libraries that carry requests.

httpx logs each URL at INFO, with ``?key=…``; httpcore and the MCP client log responses at DEBUG, hpack each header of a
request.  What they log during a request of this package is masked, or dropped where masking cannot work; what they log
for other code in the process is unchanged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

from fsm_agent._internal.redaction import Secrets, shown_url

# Filters of a logger do not see the records of its children.
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
    "client",  # of mcp.client.session
    *[f"vcr.{part}" for part in ("cassette", "request", "stubs.aiohttp_stubs", "stubs.httpx_stubs")],
)
_PLAIN = logging.Formatter()
_current: ContextVar[Callable[[], Secrets] | None] = ContextVar("secrets of the request under way", default=None)


class _Masking(logging.Filter):
    """Masks log records while a request of this package is under way in this context."""

    def filter(self, record: logging.LogRecord) -> bool:
        find_secrets = _current.get()
        if find_secrets is None:
            return True
        secrets = find_secrets()
        if record.name.startswith("hpack."):  # it logs headers in Huffman code too
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
    """Return the declared secrets of the request that is under way in this context."""
    find_secrets = _current.get()
    return Secrets() if find_secrets is None else find_secrets()


@contextmanager
def masked_logs(secrets: Secrets | Callable[[], Iterable[str]]) -> Iterator[None]:
    """Mask what the libraries log inside the block, in this context and in tasks started in it.

    Args:
        secrets: The secrets, or a function that returns them, which is called when something is logged.
    """
    _install()
    token = _current.set((lambda: secrets) if isinstance(secrets, Secrets) else (lambda: Secrets(secrets())))
    try:
        yield
    finally:
        _current.reset(token)
