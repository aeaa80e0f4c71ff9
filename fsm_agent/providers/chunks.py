"""Decoding of streams whose events are JSON chunks into one reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Protocol

from fsm_agent.errors import ProviderError
from fsm_agent.messages.event import Delta, UsageReported
from fsm_agent.messages.reply import Reply, Usage
from fsm_agent.providers.arriving_text import with_halves
from fsm_agent.providers.codec import Codec, EventStream, ServerEvent, read_json
from fsm_agent.providers.failures import reported, unreadable


class ReplyParts(Protocol):
    """A reply that is still arriving."""

    usage: Usage  # as far as it has been reported

    @property
    def is_ended(self) -> bool:
        """True once the received part says that the reply is complete."""

    def take(self, chunk: Any) -> list[Delta]:
        """Take a chunk and return its deltas; raise `ProviderError` if it reports an error or is not a chunk."""

    def take_whole(self, document: Any) -> None:
        """Take a whole response; raise `ProviderError` if it reports an error or is not a response."""

    def end(self, *, is_cut: bool) -> list[Delta]:
        """Take the end of the response, and return the deltas held back.

        Args:
            is_cut: True if the stream ended without its end marker, though the reply is complete by `is_ended`.
        """

    def finished(self) -> Reply:
        """Return the reply; raise `BadReply` if none has arrived."""


class ChunkDecoder:
    """Decodes a stream whose events are JSON chunks; see `Decoder`.

    Args:
        codec: Decodes the body if it is not a stream after all.
        reply: Collects the chunks.
        headers: Headers of the response, with lower-case names.
    """

    def __init__(self, codec: Codec, reply: ReplyParts, headers: Mapping[str, str]) -> None:
        self._codec = codec
        self._reply = reply
        self._headers = headers
        self._events = EventStream()
        self._usage = reply.usage  # as reported last
        self._is_done = False
        self._is_over = False
        self._has_halves = False
        self._error: ProviderError | None = None

    @property
    def is_done(self) -> bool:
        """True after the end marker of the stream."""
        return self._is_done

    @property
    def has_failed(self) -> bool:
        """True if `finish` will raise, whatever follows."""
        return self._error is not None

    def feed(self, data: bytes) -> list[Delta]:
        """Take the next bytes; return the deltas that they complete."""
        return self._fed(self._events.feed(data))

    def end(self) -> list[Delta]:
        """Take the end of the bytes; return the last deltas."""
        if self._is_over:
            return []
        self._is_over = True
        deltas = self._fed(self._events.finish(), is_cut=True)
        if self._error is None and self._reply.is_ended and not self._is_done:
            deltas += self._reply.end(is_cut=True)
        return deltas

    def finish(self) -> Reply:
        """Return the whole reply.

        Raises:
            ProviderError: The stream reported an error, was cut off, or was empty.
        """
        self.end()
        if self._error:
            raise self._error
        if (document := self._events.document) is not None:
            return self._codec.decode(200, self._headers, document)
        if not self._is_done and not self._reply.is_ended:
            problem = "the stream was cut off before the end of the reply"
            raise unreadable(problem, self._headers, self._events.stray)
        reply = self._reply.finished()
        return deepcopy(reply) if self._has_halves else reply  # without a `CutText`

    def _fed(self, events: Sequence[ServerEvent], *, is_cut: bool = False) -> list[Delta]:
        deltas: list[Delta] = []
        try:
            for event, data in events:
                if self._is_done or self._error:
                    break
                self._take(event, data, deltas, is_cut)
        except ProviderError as error:
            self._error = error
        self._error = self._error or self._events.error
        return deltas

    def _take(self, event: str, data: bytes, deltas: list[Delta], is_cut: bool) -> None:
        if not data.startswith(b"{"):
            bare = data.strip()
            if bare == b"[DONE]":
                self._is_done = True
                deltas += self._reply.end(is_cut=False)
            if self._is_done or not bare:
                return
        if event == "error":
            raise reported(_json_or_text(data), self._headers)
        try:
            chunk = read_json(data, self._keep_halves)
        except ValueError:
            if is_cut:  # half an event at the end of the bytes: the part before it may be complete
                return
            raise unreadable("a chunk of the stream is no JSON", self._headers, data) from None
        deltas += self._reply.take(chunk)
        if (usage := self._reply.usage) is not self._usage:
            self._usage = usage
            deltas.append(UsageReported(usage))

    def _keep_halves(self, value: Any) -> Any:
        self._has_halves = True
        return with_halves(value)


def _json_or_text(data: bytes) -> Any:
    try:
        return read_json(data)
    except ValueError:
        return data.decode("utf-8", "replace")
