"""Masking of secrets in the logs of the libraries that carry requests.

httpx logs each URL at INFO, with ``?key=…``; httpcore and the MCP client log responses at DEBUG, hpack each header of a
request.  What they log during a request of this package is masked, or dropped where masking cannot work; what they log
for other code in the process is unchanged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING

from fsm_agent._internal.redaction import EXTENSION, Secrets, shown_url

if TYPE_CHECKING:
    import httpx

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
)
_PLAIN = logging.Formatter()
_current: ContextVar[Secrets | None] = ContextVar("secrets of the request under way", default=None)


class _Masking(logging.Filter):
    """Masks log records while a request of this package is under way in this context."""

    def filter(self, record: logging.LogRecord) -> bool:
        secrets = _current.get()
        if secrets is None:
            return True
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


@contextmanager
def masked_logs(secrets: Secrets | httpx.Request) -> Iterator[None]:
    """Mask what the libraries log inside the block, in this context and in tasks started in it.

    Args:
        secrets: The secrets, or a request whose extension declares them.
    """
    _install()
    hidden = secrets if isinstance(secrets, Secrets) else Secrets(secrets.extensions.get(EXTENSION, ()))
    token = _current.set(hidden)
    try:
        yield
    finally:
        _current.reset(token)
