"""A request to a model and the response to it: wire format, content, deadline, body and failures.

`expressed` chooses between the wires of a provider that has two.  `HttpClient` sends and receives the bytes.
"""

from __future__ import annotations

import ssl
import time
import zlib
from collections.abc import Iterator, Sequence
from copy import copy
from operator import is_not
from typing import TYPE_CHECKING, Any, TypeVar

from fsm_agent._internal.masking import Secrets
from fsm_agent._internal.scope import ScopedValue
from fsm_agent.call.effects import Request
from fsm_agent.clients.endpoint import Endpoint
from fsm_agent.clients.network import Network
from fsm_agent.errors import BadReply, ProviderError, TimedOut, UsageError
from fsm_agent.messages.events import Delta, FunctionCallStarted
from fsm_agent.messages.hosted_tools import secrets_of
from fsm_agent.messages.message import FunctionCall, Opaque, Part
from fsm_agent.messages.reply import OutputMode, Reply
from fsm_agent.providers.codec import LEFT_OUT, Codec, Decoder
from fsm_agent.providers.content import without_hints
from fsm_agent.providers.sse import request_id
from fsm_agent.runtime.log import LOG

if TYPE_CHECKING:
    import httpx


class Deadline:
    """The time by which a request must end, ``timeout_s`` from now.  None means that there is no limit.

    ``at_s`` is that time on the monotonic clock.
    """

    __slots__ = ("at_s", "timeout_s")

    def __init__(self, timeout_s: float | None) -> None:
        self.timeout_s = timeout_s
        self.at_s = None if timeout_s is None else time.monotonic() + timeout_s

    def end_within(self, timeout_s: float) -> None:
        """Move the deadline to ``timeout_s`` from now, unless it is already earlier."""
        self.at_s = time.monotonic() + self.within(timeout_s)

    def within(self, timeout_s: float) -> float:
        """Return ``timeout_s``, or the time left if it is shorter."""
        return timeout_s if self.at_s is None else max(0.0, min(timeout_s, self.at_s - time.monotonic()))

    @property
    def is_over(self) -> bool:
        return self.at_s is not None and self.at_s <= time.monotonic()


def expressed(
    endpoint: Endpoint, request: Request, is_stream: bool
) -> tuple[Endpoint, Request, bytes, tuple[str, ...]]:
    """Return `(endpoint, request, body, notes)` for the first way in which a request can be expressed.

    The endpoint's wire is tried first, then the provider's other wire, unless the caller chose the wire.  If both fail,
    hosted tools that the model lacks, other than MCP servers, are left out.

    Raises:
        UsageError: If no wire can express the request, even without hints.
    """
    wires = [endpoint] if endpoint.other is None else [endpoint, endpoint.other]
    is_fixed = endpoint.provider.is_wire_fixed
    notes: tuple[str, ...] = ()
    while True:
        refusals: dict[str, UsageError] = {}
        for wire in wires:
            name = wire.provider.codec.name
            try:
                body = _encode(wire, request, is_stream)
            except UsageError as error:
                refusals[name] = error
                continue
            if wire is endpoint:
                return endpoint, request, body, notes
            (refusal,) = refusals.values()
            if not is_fixed:
                return wire, request, body, (f"the wire {name!r} was chosen: {refusal}", *notes)
            refusals = {"": UsageError(f"{refusal}; use the wire {name!r} of the same provider, which supports it")}
        usable = wires[:1] if is_fixed else wires
        request, notes = without_hints(request, {kind for wire in usable for kind in wire.profile.hosted_tools})
        if not notes:
            break
    first, *others = refusals.values()
    if all(str(other) == str(first) for other in others):
        raise first
    reasons = "; ".join([f"{name!r}: {refusal}" for name, refusal in refusals.items()])
    name = f"{endpoint.provider.name}:{endpoint.model}"
    raise UsageError(f"no wire of {name!r} supports the whole request: {reasons}")


def _encode(endpoint: Endpoint, request: Request, is_stream: bool) -> bytes:
    provider = endpoint.provider
    return provider.codec.encode(
        request, model=endpoint.model, profile=endpoint.profile, stream=is_stream, provider=provider.name
    )


REQUESTS_ALLOWED = ScopedValue("fsm_agent_requests_allowed", True)  # set by `fsm_agent.testing.model_requests`
MAX_SHOWN_CHARS = 200  # how much text from servers and libraries an error shows
_NOTHING_HERE = (404, 405)  # the base URL may be wrong, so errors show it
_LIBRARIES = ("httpx", "httpcore", "h11", "h2")
E = TypeVar("E", bound=ProviderError)

# The extension of an httpx response with a function that returns True once its whole body has arrived.
HAS_ARRIVED = "fsm_agent_has_arrived"

# Accepted content types besides JSON, for streams and for servers that declare no type.
READABLE = frozenset({"text/event-stream", "", "text/plain", "application/octet-stream"})

_IDENTIFIERS: dict[type, tuple[str, ...]] = {  # texts of a reply that the server chooses, not the model
    Reply: ("model", "response_id", "request_id", "finish_raw"),
    FunctionCall: ("name", "provider_id"),
    FunctionCallStarted: ("name", "provider_id"),
}


class HttpExchange:
    """An HTTP request to a model.  It also makes the errors for its failures.

    It uses the provider's first wire that can express the request.

    Attributes:
        adapted: Notes on the parts of the request that were expressed differently for this model.
        output_mode: How the request asks for a typed answer.
        limits: Time limits, in seconds, for the steps "connect", "read", "write" and "pool".
        deadline: A copy of the given deadline, which `linger` may shorten.

    Raises:
        UsageError: If the request cannot be expressed in this format or for this model.
        TimedOut: If the deadline has passed already.
    """

    def __init__(
        self, endpoint: Endpoint, request: Request, network: Network, deadline: Deadline, is_stream: bool
    ) -> None:
        self.network = network
        self.deadline = copy(deadline)
        self.is_stream = is_stream
        self.limits = {
            "connect": network.connect_s,
            "read": network.read_s,
            "write": network.write_s,
            "pool": network.pool_s,
        }
        self._lingers = False
        endpoint, request, self.content, choice = expressed(endpoint, request, is_stream)
        codec, profile = endpoint.provider.codec, endpoint.profile
        self.url, self.headers = endpoint.address(is_stream)
        if more := codec.request_headers(request, profile):
            self.headers = self.headers.copy()
            for name, value in more.items():
                self.headers[name] = f"{self.headers[name]},{value}" if self.headers.get(name) else value
        self._endpoint = endpoint
        self._request = request
        self.codec: Codec = codec
        self.adapted = choice + codec.adapted(request, profile)
        self.output_mode: OutputMode | None = (
            None if request.output.is_text else codec.request_form(request, profile).mode
        )
        if self.deadline.is_over:
            raise self.late()

    @property
    def shown_url(self) -> str:
        """The URL without its query and secrets, for messages."""
        return self.mask(str(self.url.copy_with(query=None)))

    def find_secrets(self) -> frozenset[str]:
        """Return the texts that must not appear in any message."""
        hosted = secrets_of(self._request.settings.hosted_tools)
        return self._endpoint.secrets.union(self.network.secrets, hosted)

    def begin_body(self) -> None:
        """Switch to the read timeout that applies to bodies.  Call this when the response's headers have arrived."""
        if self.is_stream:
            self.limits["read"] = self.network.idle_s

    def linger(self) -> None:
        """Wait at most `Network.linger_s`, counted from the first call, for a complete stream to close."""
        if not self._lingers:
            self._lingers = True
            self.deadline.end_within(self.network.linger_s)

    def failure(self, error: httpx.TransportError | httpx.DecodingError, *, has_begun: bool) -> ProviderError:
        """Return the error for a transport failure before or during the reply."""
        import httpx

        self._mask_causes(error)
        if self.deadline.is_over:
            return self.late()
        if isinstance(error, httpx.TimeoutException):
            return self._timeout_error(error, has_begun=has_begun)
        reason = str(error)[:MAX_SHOWN_CHARS] or type(error).__name__
        match error:
            case httpx.ConnectError() | httpx.ProxyError():
                # Retrying does not help against an untrusted certificate.
                is_distrusted = any(isinstance(one, ssl.SSLCertVerificationError) for one in causes(error))
                return TimedOut(f"no connection to {self.shown_url!r}: {reason}", retryable=not is_distrusted)
            case httpx.NetworkError() | httpx.RemoteProtocolError() if has_begun:
                return BadReply(f"the reply of {self.shown_url!r} was cut off: {reason}", status=200)
            case httpx.NetworkError():
                return TimedOut(f"{self.shown_url!r} broke the connection and did not reply: {reason}")
            case httpx.RemoteProtocolError():
                return BadReply(f"{self.shown_url!r} did not send an HTTP reply: {reason}")
            case httpx.DecodingError():
                return BadReply(f"the compressed reply of {self.shown_url!r} is damaged: {reason}")
        return ProviderError(f"no request could be sent to {self.shown_url!r}: {type(error).__name__}", retryable=False)

    def _timeout_error(self, error: httpx.TimeoutException, *, has_begun: bool) -> TimedOut:
        import httpx

        match error:
            case httpx.ConnectTimeout():
                return TimedOut(f"no connection to {self.shown_url!r} in {self.limits['connect']:g} s")
            case httpx.PoolTimeout():
                return TimedOut(f"no free connection to {self.shown_url!r} in {self.limits['pool']:g} s")
            case httpx.WriteTimeout():
                return TimedOut(f"{self.shown_url!r} stopped reading the request for {self.limits['write']:g} s")
        silence = "sent no more of its reply" if has_begun else "did not reply"
        return TimedOut(f"{self.shown_url!r} {silence} for {self.limits['read']:g} s")

    def completed(self, reply: Reply) -> Reply:
        """Return the reply with notes on the request's adaptations, and the provider's name on its opaque parts."""
        settings = self._request.settings
        if settings.hosted_tools or settings.extra_body:
            reply = self.codec.attributed(reply, self._request)
        reply = self.without_echo(reply)
        message, provider = reply.message, self._endpoint.provider.name
        parts = [p.changed(provider=provider) if isinstance(p, Opaque) else self.without_echo(p) for p in message.parts]
        if any(map(is_not, parts, message.parts)):
            reply = reply.changed(message=message.changed(parts=tuple(parts)))
        if self.adapted or self.output_mode is not None:
            return reply.changed(adapted=(*self.adapted, *reply.adapted), output_mode=self.output_mode)
        return reply

    def without_echo(self, item: Part | Delta | Reply) -> Any:
        """Return an item from the reply with secrets masked in its ids, which some servers make from the key."""
        echoes = {}
        for name in _IDENTIFIERS.get(type(item), ()):
            text = getattr(item, name)
            if text and any(secret in text for secret in self._endpoint.echoable):
                echoes[name] = self.mask(text)
        return item.changed(**echoes) if echoes else item

    def late(self) -> TimedOut:
        return TimedOut(f"no complete reply from {self.shown_url!r} in {self.deadline.timeout_s:g} s")

    def mask(self, text: str) -> str:
        return Secrets(self.find_secrets()).mask(text)

    def _mask_causes(self, error: BaseException) -> None:
        """Mask secrets in the error's causes, because libraries quote lines that they cannot parse."""
        for one in causes(error):
            if type(one).__module__.partition(".")[0] in _LIBRARIES:
                one.args = tuple([self.mask(item) if isinstance(item, str) else item for item in one.args])

    def mask_in(self, error: ProviderError) -> None:
        """Mask secrets in an error, because some servers quote a key that they refuse."""
        error.message = self.mask(error.message)
        error.args = (error.message,)
        error.code = error.code and self.mask(error.code)
        error.request_id = error.request_id and self.mask(error.request_id)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, each once, because errors may cause each other."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


class ResponseReader:
    """Reads the body of one response, whose headers have arrived.

    Raises:
        ProviderError: If the status or the headers rule out a reply.
    """

    def __init__(self, exchange: HttpExchange, response: httpx.Response) -> None:
        exchange.begin_body()
        self._exchange = exchange
        self._status = status = response.status_code
        self._headers = headers = _headers(response)
        self._size_bytes = 0
        self._max_bytes = exchange.network.max_reply_bytes
        self._pieces: list[bytes] = []
        self._excess: BadReply | None = None
        self._succeeded = 200 <= status < 300
        self._check_head()
        self._inflater = self._make_inflater()
        self._decoder: Decoder | None = None
        if exchange.is_stream and self._succeeded:
            self._decoder = exchange.codec.decoder(headers)

    def _check_head(self) -> None:
        if 300 <= self._status < 400:
            target = self._mask_text(self._headers.get("location", "nowhere").partition("?")[0])
            message = f"{self._exchange.shown_url!r} redirects to {target!r}; if you trust that, pass it as base_url"
            raise self._error(ProviderError, message, retryable=False)
        media_type = self._headers.get("content-type", "").partition(";")[0].strip().lower()
        if self._succeeded and not (media_type.endswith("json") or media_type in READABLE):
            shown = self._mask_text(media_type)
            message = f"{self._exchange.shown_url!r}: expected JSON, got {shown!r}; check the base URL"
            raise self._error(BadReply, message)

    def _make_inflater(self) -> Any:
        """Return a decompressor whose output is limited, or None if the body is not compressed."""
        encoding = self._headers.get("content-encoding", "").strip().lower()
        if encoding in ("", "identity"):
            return None
        if encoding in ("gzip", "x-gzip", "deflate"):
            return zlib.decompressobj(zlib.MAX_WBITS | 32)  # detects gzip and zlib by the first bytes
        shown = self._mask_text(encoding)
        message = f"{self._exchange.shown_url!r}: expected an encoding that the request accepts, got {shown!r}"
        raise self._error(BadReply, message, retryable=False)

    def _mask_text(self, text: str) -> str:
        return self._exchange.mask(text)[:MAX_SHOWN_CHARS]

    def _error(self, kind: type[E], message: str, *, retryable: bool | None = None) -> E:
        id = request_id(self._headers)
        return kind(message, status=self._status, request_id=id and self._mask_text(id), retryable=retryable)

    @property
    def is_done(self) -> bool:
        """True once the provider has ended the stream, even if the connection stays open."""
        return self._decoder is not None and self._decoder.is_done

    @property
    def has_failed(self) -> bool:
        """True if the stream is invalid, so that `finish` will raise an error."""
        return self._excess is not None or (self._decoder is not None and self._decoder.has_failed)

    def feed(self, data: bytes) -> list[Delta]:
        """Take the next bytes, and return the deltas that they complete.

        The list is empty unless the reply is a stream.

        Raises:
            ProviderError: If the deadline has passed, the reply is damaged, or a reply that is not a stream is too
                long.
        """
        exchange = self._exchange
        if exchange.deadline.is_over and not self.is_done:
            raise exchange.late()
        if self._inflater is not None:
            data = self._inflate(data)
        self._size_bytes += len(data)
        if self._size_bytes > self._max_bytes:
            message = f"the reply of {exchange.shown_url!r}: expected at most {self._max_bytes} bytes, got more"
            self._excess = self._error(BadReply, message, retryable=False)
            if self._decoder is None:
                raise self._excess
            data = data[: self._max_bytes - self._size_bytes]
        if self._decoder is None:
            self._pieces.append(data)
            return []
        return [exchange.without_echo(delta) for delta in self._decoder.feed(data)]

    def end(self) -> list[Delta]:
        """Return the last deltas of a stream, after the last bytes."""
        if self._decoder is None or self._excess:
            return []
        return [self._exchange.without_echo(delta) for delta in self._decoder.end()]

    def _inflate(self, data: bytes) -> bytes:
        room = self._max_bytes - self._size_bytes
        try:
            inflated = bytes(self._inflater.decompress(data, room + 1))
        except zlib.error as error:
            raise self._damage_error(str(error)) from error
        if self._inflater.unused_data:  # zlib would collect it without limit, and copy it with every piece
            raise self._damage_error("more bytes follow its end")
        return inflated

    def _damage_error(self, reason: str) -> BadReply:
        return self._error(BadReply, f"the compressed reply of {self._exchange.shown_url!r} is damaged: {reason}")

    def finish(self, failure: ProviderError | None) -> Reply:
        """Return the reply, after the last bytes.

        ``failure`` is the error that cut off the bytes, if any, and is ignored if the reply is complete.

        Raises:
            ProviderError: If the reply is an error, invalid or incomplete.
        """
        exchange = self._exchange
        if self._excess and not self.is_done:
            raise self._excess
        try:
            if self._decoder is not None:
                return exchange.completed(self._decoder.finish())
            body = b"".join(self._pieces)
            reply = exchange.codec.decode(self._status, self._headers, body)
            if self._inflater is not None and not self._inflater.eof:
                raise self._damage_error("its checksum is missing")
            return exchange.completed(reply)
        except ProviderError as error:
            if self._status in _NOTHING_HERE:
                error.message += f" (at {exchange.shown_url!r})"
            exchange.mask_in(error)
            if failure is None or not self._succeeded:
                raise
        try:
            raise failure
        finally:
            del failure  # breaks a cycle: its traceback references this frame


def _headers(response: httpx.Response) -> dict[str, str]:
    """Return the headers by lower-case name, leaving out ``content-encoding`` if httpx has decoded the body."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in response.headers.raw:  # `items` first tries encodings on all of them
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if response.is_stream_consumed:
        headers.pop("content-encoding", None)
    return headers


def check_open(name: str, *, is_closed: bool) -> None:
    """Reject a request if the client is closed or requests are not allowed."""
    if is_closed:
        raise UsageError(f"the client of {name!r} is closed; make a new one")
    if not REQUESTS_ALLOWED.get():
        raise UsageError(f"the client: expected no request to a real model here, got one to {name!r}")


def warn_of_left_out(adapted: Sequence[str], name: str, warned: set[str]) -> None:
    """Log a warning for each ignored option in ``adapted``, once per client.

    ``warned`` holds the options that have already been logged.
    """
    for note in adapted:
        option = note.partition("=")[0].partition(" ")[0]
        if note.endswith(LEFT_OUT) and option not in warned:
            warned.add(option)
            LOG.warning("%s: %s", name, note)
