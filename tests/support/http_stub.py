"""A base for HTTP servers of tests: on `loopback`, in separate threads, while a block runs."""

from __future__ import annotations

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from support.loopback import Listener


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *request: object) -> None:
        if not isinstance(sys.exception(), OSError):  # somebody who hangs up is nobody's error
            super().handle_error(*request)  # type: ignore[arg-type]


class HttpStubServer:
    """Serves a handler.

    Args:
        handler: Answers the requests; it logs nothing.
        port: The TCP port, or 0 for any free port.

    Attributes:
        root: The address, without a path.
    """

    def __init__(self, handler: type[BaseHTTPRequestHandler], port: int = 0) -> None:
        handler.log_message = _say_nothing  # type: ignore[method-assign]
        self._listener = Listener(port)
        self._server = _Server((self._listener.address, 0), handler, bind_and_activate=False)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.root = f"http://{self._listener.address}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._server.server_close()
        self._thread.join(10)

    def _serve(self) -> None:
        while (connection := self._listener.accept()) is not None:
            self._server.process_request(connection, ("127.0.0.1", 0))


def _say_nothing(handler: BaseHTTPRequestHandler, *_: object) -> None:
    """Log no request."""
