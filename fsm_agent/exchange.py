"""What does one request send, until when, and what does it mean when the network fails it?

Threads and asyncio share all of it; `client` moves the bytes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from fsm_agent.deferred import deferred
from fsm_agent.effects import Request
from fsm_agent.endpoint import Endpoint
from fsm_agent.errors import BadReply, ProviderError, TimedOut
from fsm_agent.hosted_tools import secrets_of
from fsm_agent.messages import Opaque
from fsm_agent.pools import Network
from fsm_agent.providers.encoding import Once, as_json
from fsm_agent.redaction import EXTENSION, Secrets
from fsm_agent.replies import Reply
from fsm_agent.sending import RequestHead
from fsm_agent.values import changed

if TYPE_CHECKING:
    import ssl

    import httpx
else:
    httpx, ssl = deferred("httpx"), deferred("ssl")

MAX_SHOWN_CHARS = 200  # of what others said
MIN_TIMEOUT_S = 0.001  # for a socket, 0 means something else


class Deadline:
    """When a request has to be over: ``timeout_s`` from now, or never."""

    __slots__ = ("_at_s", "timeout_s")

    def __init__(self, timeout_s: float | None) -> None:
        self.timeout_s = timeout_s
        self._at_s = None if timeout_s is None else time.monotonic() + timeout_s

    def time_left(self) -> float | None:
        """Seconds; not positive when it is over; None: without end."""
        return None if self._at_s is None else self._at_s - time.monotonic()

    def within(self, timeout_s: float) -> float:
        """``timeout_s`` or, if that is less, the time left."""
        left = self.time_left()
        return timeout_s if left is None else max(MIN_TIMEOUT_S, min(timeout_s, left))

    @property
    def is_over(self) -> bool:
        """Whether no time is left."""
        return self._at_s is not None and self._at_s <= time.monotonic()


class Exchange:
    """One request on its way, and how its failures read.

    Args:
        endpoint: Where it goes.
        request: What is asked.
        network: How it travels.
        deadline: When it has to be over.
        is_stream: Whether the reply shall come in pieces.

    Attributes:
        head: Where it goes, and what it says first.
        content: What it says then.
        timeouts: Seconds for each step, at this moment.
        adapted: What of the request is said otherwise.

    Raises:
        UsageError: The request cannot be said on this wire or to this model.
        TimedOut: It is too late already.
    """

    __slots__ = (
        "_endpoint",
        "_limits",
        "_request",
        "_seen",
        "_was_resent",
        "adapted",
        "codec",
        "content",
        "deadline",
        "head",
        "is_stream",
        "network",
        "timeouts",
    )

    def __init__(
        self, endpoint: Endpoint, request: Request, network: Network, deadline: Deadline, is_stream: bool
    ) -> None:
        provider, profile = endpoint.provider, endpoint.profile
        codec = provider.codec
        body = codec.encode(
            request, model=endpoint.model, profile=profile, stream=is_stream, encoding=Once(provider.name)
        )
        head = endpoint.head(is_stream)
        if more := codec.request_headers(request, profile):
            headers = head.headers.copy()
            for name, value in more.items():
                headers[name] = f"{headers[name]},{value}" if headers.get(name) else value
            head = RequestHead(head.url, headers)
        self._endpoint = endpoint
        self._request = request
        self.network = network
        self.deadline = deadline
        self.is_stream = is_stream
        self.codec = codec
        self.head = head
        self.content = as_json(body)
        self.adapted: tuple[str, ...] = codec.adapted(request, profile)
        self._limits: dict[str, float]
        self.timeouts: dict[str, float]
        self._seen: list[str]  # what the transport has reported of this attempt
        self._was_resent = False
        if deadline.is_over:
            raise self.late()

    @property
    def place(self) -> str:
        """Where the request goes, as messages show it."""
        return self.mask(str(self.head.url.copy_with(query=None)))

    @property
    def secrets(self) -> frozenset[str]:
        """What no message may show."""
        hosted = secrets_of(self._request.settings.hosted_tools)
        return self._endpoint.secrets.union(self.network.secrets, hosted)

    def attempt(self) -> Self:
        """The same, about to be sent once: its timeouts are in force from now on."""
        network = self.network
        self._limits = {
            "connect": network.connect_s,
            "read": network.read_s,
            "write": network.write_s,
            "pool": network.pool_s,
        }
        self.timeouts = self._limits.copy()
        self._seen = []
        self._bound()
        return self

    def request(self, *, is_async: bool) -> httpx.Request:
        """What is sent, for httpx's transports."""
        extensions = {
            "timeout": self.timeouts,
            "trace": self._atrace if is_async else self._trace,
            EXTENSION: self.secrets,
        }
        head = self.head
        return httpx.Request("POST", head.url, headers=head.headers, content=self.content, extensions=extensions)

    def _bound(self) -> None:
        """Set this moment's timeouts: the transport looks at them when a step begins."""
        left_s = self.deadline.time_left()
        if left_s is not None:
            for step, limit_s in self._limits.items():
                self.timeouts[step] = max(MIN_TIMEOUT_S, min(limit_s, left_s))

    def begins(self, step: str) -> None:
        """Take note that a step begins."""
        self._seen.append(step)
        self._bound()

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        self.begins(event.partition(".")[2])

    async def _atrace(self, event: str, info: Mapping[str, Any]) -> None:
        self._trace(event, info)

    def may_resend(self, error: Exception) -> bool:
        """Whether to send the same at once again, after an error before the reply's head was there.

        Once, when a connection that had been used before proved dead: the server had closed it while nobody looked,
        which says nothing about its health.
        """
        if self._was_resent or not isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError):
            return False
        was_sent = "send_request_headers.started" in self._seen
        is_fresh = "connect_tcp.started" in self._seen or "connect_unix_socket.started" in self._seen
        self._was_resent = was_sent and not is_fresh
        return self._was_resent

    def begin_body(self) -> None:
        """The response's head is there: from now on the body's timeouts count."""
        if self.is_stream:
            self._limits["read"] = self.timeouts["read"] = self.network.idle_s
        self._bound()

    def failure(self, error: httpx.TransportError | TimeoutError, *, has_begun: bool) -> ProviderError:
        """What it means that the transport failed before or after the reply had begun."""
        self._mask_behind(error)
        if self.deadline.is_over:
            return self.late()
        match error:
            case httpx.ConnectTimeout():
                return TimedOut(f"no connection to {self.place!r} in {self.timeouts['connect']:g} s")
            case httpx.PoolTimeout():
                return TimedOut(f"no free connection to {self.place!r} in {self.timeouts['pool']:g} s")
            case httpx.WriteTimeout():
                return TimedOut(f"{self.place!r} took no more of the request for {self.timeouts['write']:g} s")
            case httpx.TimeoutException() | TimeoutError():
                what = "sent no more of its reply" if has_begun else "did not reply"
                return TimedOut(f"{self.place!r} {what} for {self.timeouts['read']:g} s")
        reason = str(error)[:MAX_SHOWN_CHARS] or type(error).__name__
        match error:
            case httpx.ConnectError() | httpx.ProxyError():
                # A certificate that is wrong now will be wrong in a minute.
                return TimedOut(f"no connection to {self.place!r}: {reason}", retryable=not _is_distrusted(error))
            case httpx.NetworkError() | httpx.RemoteProtocolError() if has_begun:
                return BadReply(f"the reply of {self.place!r} was cut off: {reason}", status=200)
            case httpx.NetworkError():
                return TimedOut(f"{self.place!r} broke the connection and did not reply: {reason}")
            case httpx.RemoteProtocolError():
                return BadReply(f"{self.place!r} gave no HTTP reply: {reason}")
        return ProviderError(f"no request could be sent to {self.place!r}: {type(error).__name__}", retryable=False)

    def completed(self, reply: Reply) -> Reply:
        """The reply with what only the exchange knows: what was adapted, and whose the opaque parts are."""
        message, provider = reply.message, self._endpoint.provider.name
        if any(isinstance(part, Opaque) for part in message.parts):
            owned = [replace(p, provider=provider) if isinstance(p, Opaque) else p for p in message.parts]
            reply = changed(reply, message=changed(message, parts=tuple(owned)))
        return changed(reply, adapted=(*self.adapted, *reply.adapted)) if self.adapted else reply

    def late(self) -> TimedOut:
        """That the time is up."""
        return TimedOut(f"no whole reply of {self.place!r} in {self.deadline.timeout_s:g} s")

    def mask(self, text: str) -> str:
        """``text`` without secrets."""
        return Secrets(self.secrets).mask(text)

    def _mask_behind(self, error: BaseException | None) -> None:
        """Leave no secret in what a traceback shows behind our error: h11 quotes the lines that it cannot read."""
        while error is not None:
            error.args = tuple([self.mask(item) if isinstance(item, str) else item for item in error.args])
            error = error.__cause__ or error.__context__

    def mask_in(self, error: ProviderError) -> None:
        """Leave no secret in an error: some servers quote the key that they refuse."""
        error.message = self.mask(error.message)
        error.args = (error.message,)
        error.code = error.code and self.mask(error.code)
        error.request_id = error.request_id and self.mask(error.request_id)


def _is_distrusted(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
