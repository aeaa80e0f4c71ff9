"""How do the libraries below us write no secret of ours into their logs?

httpx logs each URL at INFO, with ``?key=…``; httpcore and the MCP client log what a server answers at DEBUG, hpack each
header of a request.  What they log while they serve us is masked, or left out where masking cannot work; what they log
for anybody else in the process stays as it is.
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

# Filters of a logger see its own records only, not those of the loggers below it.
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
_present: ContextVar[Secrets | None] = ContextVar("secrets of the request under way", default=None)


class _Masking(logging.Filter):
    """Masks what is logged while a request of ours is under way in this context."""

    def filter(self, record: logging.LogRecord) -> bool:
        secrets = _present.get()
        if secrets is None:
            return True
        if record.name.startswith("hpack."):  # it shows headers also in Huffman's code
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
    """Mask what the libraries log inside, in this context and in tasks that begin in it.

    Args:
        secrets: What nobody may see, or a request with the extension that says it.
    """
    _install()
    hidden = secrets if isinstance(secrets, Secrets) else Secrets(secrets.extensions.get(EXTENSION, ()))
    token = _present.set(hidden)
    try:
        yield
    finally:
        _present.reset(token)
