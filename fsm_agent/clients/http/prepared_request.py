"""What the pools read from an `httpx.Request`: its bytes, its timeouts, its deadline, and the means to end it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeAlias

from fsm_agent._internal.lazy_import import deferred
from fsm_agent.runtime.abort import Abort

if TYPE_CHECKING:
    import httpx
else:
    httpx = deferred("httpx")

DEADLINE = "fsm_agent.deadline"  # the extension of a request with its `Deadline`
ABORT = "fsm_agent.abort"  # the extension with its `Abort`
MIN_TIMEOUT_S = 0.001  # not 0, which makes a socket non-blocking
MAX_TIMEOUT_S = 2_000_000.0  # 23 days: no selector can wait much longer

Origin: TypeAlias = tuple[str, str, int]  # scheme, host, port
Headers: TypeAlias = list[tuple[bytes, bytes]]


class Deadline:
    """The end of a request: ``timeout_s`` from now, or never.

    Attributes:
        timeout_s: The seconds that it was made with.
        at_s: Its time on the monotonic clock; None: never.
    """

    __slots__ = ("at_s", "timeout_s")

    def __init__(self, timeout_s: float | None) -> None:
        self.timeout_s = timeout_s
        self.at_s = None if timeout_s is None else time.monotonic() + timeout_s

    def copy(self) -> Deadline:
        """Return an independent copy."""
        copy = Deadline(None)
        copy.timeout_s, copy.at_s = self.timeout_s, self.at_s
        return copy

    def end_within(self, timeout_s: float) -> None:
        """Move it to ``timeout_s`` from now, unless it comes earlier."""
        self.at_s = time.monotonic() + self.within(timeout_s)

    def time_left(self) -> float | None:
        """Return the seconds left, not positive once it has passed; None if there is no deadline."""
        return None if self.at_s is None else self.at_s - time.monotonic()

    def within(self, timeout_s: float) -> float:
        """Return ``timeout_s`` or, if that is less, the time left."""
        left = self.time_left()
        return timeout_s if left is None else max(MIN_TIMEOUT_S, min(timeout_s, left))

    @property
    def is_over(self) -> bool:
        """True once no time is left."""
        return self.at_s is not None and self.at_s <= time.monotonic()


_NEVER = Deadline(None)


class PoolRequest:
    """An `httpx.Request` as a pool sends it; its body has been read.

    Attributes:
        method: Its method.
        origin: The server.
        data: All its bytes.
        is_last: True if the connection is to be closed after it.
        deadline: The end of the whole request; it may be moved meanwhile.
        abort: The means to end it from another thread; for threads.

    Raises:
        httpx.LocalProtocolError: A header holds a line break.
    """

    __slots__ = ("_timeouts", "abort", "data", "deadline", "is_last", "method", "origin")

    def __init__(self, request: httpx.Request) -> None:
        url, extensions = request.url, request.extensions
        self.method = request.method
        self.origin: Origin = (
            url.scheme,
            url.raw_host.decode("ascii"),
            url.port or (443 if url.scheme == "https" else 80),
        )
        self.deadline: Deadline = extensions.get(DEADLINE, _NEVER)
        self.abort: Abort | None = extensions.get(ABORT)
        self._timeouts = extensions.get("timeout", {})
        self.is_last = False
        self.data = self._encode(request)

    def _encode(self, request: httpx.Request) -> bytes:
        content = request.content
        has_host, has_body = False, bool(content)
        lines = list[bytes]()
        for name, value in request.headers.raw:
            match name.lower():
                case b"content-length" | b"transfer-encoding":  # replaced: the whole body is known
                    has_body = True
                    continue
                case b"host":
                    has_host = True
                case b"connection":
                    self.is_last = b"close" in value.lower()
            lines.append(b"%b: %b\r\n" % (name, value))
        if not has_host:
            lines.insert(0, b"host: %b\r\n" % request.url.netloc)
        if has_body:
            lines.append(b"content-length: %d\r\n" % len(content))
        head = b"%b %b HTTP/1.1\r\n%b" % (self.method.encode(), request.url.raw_path, b"".join(lines))
        if not head.count(b"\r") == head.count(b"\n") == len(lines) + 1:
            raise httpx.LocalProtocolError("a header of the request holds a line break")
        return b"%b\r\n%b" % (head, content)

    def timeout_s(self, step: str) -> float:
        """Return the seconds for the next piece of a step (connect, read, write or pool), until the deadline at most.

        They are read anew each time: a client may change them when the body begins.
        """
        timeout_s = self._timeouts.get(step)
        return self.deadline.within(MAX_TIMEOUT_S if timeout_s is None else timeout_s)
