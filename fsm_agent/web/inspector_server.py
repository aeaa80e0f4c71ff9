"""The inspector as a server on this machine, for ``fsm-agent inspect``."""

from __future__ import annotations

import socket
from typing import Any

import uvicorn

from fsm_agent.errors import ConfigError
from fsm_agent.web.auth import require_token
from fsm_agent.web.inspector import Inspector

HOST = "127.0.0.1"
_CONNECTIONS = 100  # at the same time
_MOST_HEADERS = 64 * 1024  # bytes


class InspectorServer:
    """A server for the inspector.  Its address contains a token, which every request needs.

    Args:
        inspector: The pages.
        port: The port, or 0 for any free port.

    Raises:
        ConfigError: If the port cannot be used.
    """

    def __init__(self, inspector: Inspector, port: int = 0) -> None:
        self.inspector = inspector
        self._socket = _listen(port)
        self.port = int(self._socket.getsockname()[1])
        app, self.url = require_token(inspector.app, host=HOST, port=self.port, command="inspect")
        config = uvicorn.Config(
            app,
            log_level="error",
            lifespan="off",
            server_header=False,
            limit_concurrency=_CONNECTIONS,
            h11_max_incomplete_event_size=_MOST_HEADERS,
            timeout_graceful_shutdown=2,
        )
        self._server = _Server(config, inspector)

    def run(self) -> None:
        """Serve until a signal arrives or `stop` is called."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self.inspector.close()
            self._socket.close()

    def stop(self) -> None:
        """Make `run` return.  This is thread-safe."""
        self.inspector.close()
        self._server.should_exit = True


class _Server(uvicorn.Server):
    """A server that ends its streams before it shuts down, because otherwise it would wait for them."""

    def __init__(self, config: uvicorn.Config, inspector: Inspector) -> None:
        super().__init__(config)
        self._inspector = inspector

    def handle_exit(self, sig: int, frame: Any) -> None:
        self._inspector.close()
        super().handle_exit(sig, frame)


def _listen(port: int) -> socket.socket:
    try:
        listening = socket.create_server((HOST, port))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"port {port} of {HOST} cannot be used: {reason}") from None
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # without this, each response takes 40 ms longer
    return listening
