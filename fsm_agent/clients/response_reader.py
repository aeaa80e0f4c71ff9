"""The body of a response: decompressed, bounded, and read by the codec of the request."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from fsm_agent._internal.lazy_import import deferred
from fsm_agent.clients.exchange import MAX_SHOWN_CHARS, HttpExchange
from fsm_agent.errors import BadReply, ProviderError
from fsm_agent.messages.event import Delta
from fsm_agent.messages.reply import Reply
from fsm_agent.providers.codec import Decoder
from fsm_agent.providers.streams import request_id

if TYPE_CHECKING:
    import zlib

    import httpx
else:
    zlib = deferred("zlib")

E = TypeVar("E", bound=ProviderError)

# Content types beside JSON: those of streams, and those of servers that do not declare one.
READABLE = frozenset({"text/event-stream", "", "text/plain", "application/octet-stream"})


class ResponseReader:
    """Reads the body of one response.

    Args:
        exchange: The request.
        response: The response, whose head has arrived.

    Raises:
        ProviderError: The status or headers rule out a reply, whatever the body.
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
            target = self._shown(self._headers.get("location", "nowhere").partition("?")[0])
            message = (
                f"{self._exchange.shown_url!r} redirects to {target!r}: if that is to be trusted, give it as base_url"
            )
            raise self._error(ProviderError, message, retryable=False)
        media_type = self._headers.get("content-type", "").partition(";")[0].strip().lower()
        if self._succeeded and not (media_type.endswith("json") or media_type in READABLE):
            shown = self._shown(media_type)
            message = f"{self._exchange.shown_url!r} answered with {shown!r}, not JSON: is the base URL right?"
            raise self._error(BadReply, message)

    def _make_inflater(self) -> Any:
        """Return a decompressor whose output can be bounded; None if the body is not compressed."""
        encoding = self._headers.get("content-encoding", "").strip().lower()
        if encoding in ("", "identity"):
            return None
        if encoding in ("gzip", "x-gzip", "deflate"):
            return zlib.decompressobj(zlib.MAX_WBITS | 32)  # of either kind, by its first bytes
        message = f"{self._exchange.shown_url!r} answered in encoding {self._shown(encoding)!r}, which nobody asked for"
        raise self._error(BadReply, message, retryable=False)

    def _shown(self, text: str) -> str:
        return self._exchange.mask(text)[:MAX_SHOWN_CHARS]

    def _error(self, kind: type[E], message: str, *, retryable: bool | None = None) -> E:
        id = request_id(self._headers)
        return kind(message, status=self._status, request_id=id and self._shown(id), retryable=retryable)

    @property
    def is_done(self) -> bool:
        """True after the provider's end of the stream, though the connection may stay open."""
        return self._decoder is not None and self._decoder.is_done

    @property
    def has_failed(self) -> bool:
        """True if the stream is invalid already: `finish` will raise, whatever follows."""
        return self._excess is not None or (self._decoder is not None and self._decoder.has_failed)

    def feed(self, data: bytes) -> list[Delta]:
        """Take the next bytes; return the deltas they complete, [] if the reply is not a stream.

        Raises:
            ProviderError: The deadline has passed, or the reply is damaged or, if not a stream, too long.
        """
        exchange = self._exchange
        if exchange.deadline.is_over and not self.is_done:
            raise exchange.late()
        if self._inflater is not None:
            data = self._inflate(data)
        self._size_bytes += len(data)
        if self._size_bytes > self._max_bytes:
            message = f"the reply of {exchange.shown_url!r} is longer than {self._max_bytes} bytes"
            self._excess = self._error(BadReply, message, retryable=False)
            if self._decoder is None:
                raise self._excess
            data = data[: self._max_bytes - self._size_bytes]
        if self._decoder is None:
            self._pieces.append(data)
            return []
        return self._decoder.feed(data)

    def end(self) -> list[Delta]:
        """Take the end of the bytes; return the last deltas of a stream."""
        return [] if self._decoder is None or self._excess else self._decoder.end()

    def _inflate(self, data: bytes) -> bytes:
        room = self._max_bytes - self._size_bytes
        try:
            inflated = bytes(self._inflater.decompress(data, room + 1))
        except zlib.error as error:
            raise self._damaged(str(error)) from error
        if self._inflater.unused_data:  # unbounded, and copied by zlib with every piece
            raise self._damaged("it goes on behind its end")
        return inflated

    def _damaged(self, reason: str) -> BadReply:
        return self._error(BadReply, f"the compressed reply of {self._exchange.shown_url!r} is damaged: {reason}")

    def finish(self, failure: ProviderError | None) -> Reply:
        """Return the reply, at the end of the bytes.

        Args:
            failure: The failure that cut the bytes off, if any.  It is ignored if the reply is complete.

        Raises:
            ProviderError: The reply is an error, invalid or incomplete.
        """
        exchange = self._exchange
        if self._excess:
            raise self._excess
        try:
            if self._decoder is not None:
                return exchange.completed(self._decoder.finish())
            body = b"".join(self._pieces)
            reply = exchange.codec.decode(self._status, self._headers, body)
            if self._inflater is not None and not self._inflater.eof:
                raise self._damaged("its checksum is missing")
            return exchange.completed(reply)
        except ProviderError as error:
            exchange.mask_in(error)
            if failure is None or not self._succeeded:
                raise
        try:
            raise failure
        finally:
            del failure  # which holds this frame now


def _headers(response: httpx.Response) -> dict[str, str]:
    """Return headers by lower-case name, without ``content-encoding`` if httpx has decoded the body."""
    raw = response.headers.raw
    texts = b"\n".join(chain.from_iterable(raw)).decode("latin-1").split("\n")
    headers = dict(zip(map(str.lower, texts[::2]), texts[1::2], strict=True)) if len(texts) == 2 * len(raw) else {}
    if len(headers) < len(raw):  # a name is repeated
        headers = {}
        for raw_name, raw_value in raw:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if response.is_stream_consumed:
        headers.pop("content-encoding", None)
    return headers
