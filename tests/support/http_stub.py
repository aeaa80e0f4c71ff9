"""A base for HTTP servers of tests: on loopback, in threads of their own, for as long as a block lasts."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class HttpStubServer:
    """Serves a handler.

    Args:
        handler: Answers the requests; it logs nothing.
        port: Its TCP port; 0: any that is free.

    Attributes:
        root: The address, without a path.
    """

    def __init__(self, handler: type[BaseHTTPRequestHandler], port: int = 0) -> None:
        handler.log_message = _say_nothing  # type: ignore[method-assign]
        self._server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.root = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


def _say_nothing(handler: BaseHTTPRequestHandler, *_: object) -> None:
    """Log no request."""
