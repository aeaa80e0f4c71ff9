"""How does the JSON of a response, whole or in the events of a stream, become one reply?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from fsm_agent.errors import ProviderError
from fsm_agent.events import Delta
from fsm_agent.providers.failures import failure, reported, unreadable
from fsm_agent.providers.wire import Codec, EventStream, ServerEvent, read_json
from fsm_agent.replies import Reply


class ReplyParts(Protocol):
    """A reply while it arrives."""

    @property
    def is_ended(self) -> bool:
        """Whether what has come says that nothing is missing."""

    def take(self, chunk: Any) -> list[Delta]:
        """What a chunk adds; raises `ProviderError` when it reports one or is none."""

    def take_whole(self, document: Any) -> None:
        """Take a whole response; raises `ProviderError` when it reports one or is none."""

    def finished(self) -> Reply:
        """The reply that has come; raises `BadReply` when none has."""


def whole_reply(codec: Codec, reply: ReplyParts, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
    """The reply in a whole response.

    Args:
        codec: Reads the body when it is a stream, though nobody asked for one.
        reply: Collects what the response says.
        status: Of the response.
        headers: Of the response, their names in lower case.
        body: Of the response.

    Raises:
        ProviderError: It is an error, or no reply.
    """
    if not 200 <= status < 300:
        raise failure(status, headers, body)
    try:
        document = read_json(body)
    except ValueError:
        if body.lstrip().startswith((b"data:", b"event:", b": ")):
            decoder = codec.decoder(headers)
            decoder.feed(body)
            return decoder.finish()
        raise unreadable("the reply is no JSON", headers, body) from None
    reply.take_whole(document)
    return reply.finished()


class ChunkDecoder:
    """Decodes a stream whose events are JSON chunks; see `Decoder`.

    Args:
        codec: Reads the body when it is no stream after all.
        reply: Collects what the chunks say.
        headers: Of the response, their names in lower case.
    """

    def __init__(self, codec: Codec, reply: ReplyParts, headers: Mapping[str, str]) -> None:
        self._codec = codec
        self._reply = reply
        self._headers = headers
        self._events = EventStream()
        self._is_done = False
        self._error: ProviderError | None = None

    @property
    def is_done(self) -> bool:
        """Whether the stream said that nothing more comes."""
        return self._is_done

    def feed(self, data: bytes) -> list[Delta]:
        """What the next bytes add to the reply.

        Raises:
            ProviderError: The stream reports one, or is not what it should be.
        """
        return self._taken(self._events.feed(data))

    def finish(self) -> Reply:
        """The whole reply.

        Raises:
            ProviderError: The stream reported one, was cut off, or was empty.
        """
        self._taken(self._events.finish(), is_cut=True)
        if self._error:
            raise self._error
        if (document := self._events.document) is not None:
            return self._codec.decode(200, self._headers, document)
        if not self._is_done and not self._reply.is_ended:
            raise unreadable("the stream was cut off before the end of the reply", self._headers)
        return self._reply.finished()

    def _taken(self, events: Sequence[ServerEvent], *, is_cut: bool = False) -> list[Delta]:
        deltas: list[Delta] = []
        take = self._reply.take
        try:
            for event, data in events:
                if self._is_done:
                    break
                if not data.startswith(b"{"):
                    bare = data.strip()
                    self._is_done = bare == b"[DONE]"
                    if self._is_done or not bare:
                        continue
                if event == "error":
                    raise reported(_json_or_text(data), self._headers)
                try:
                    chunk = read_json(data)
                except ValueError:
                    if is_cut:  # half an event at the end of the bytes: what came before may be complete
                        continue
                    raise unreadable("a chunk of the stream is no JSON", self._headers, data) from None
                deltas += take(chunk)
        except ProviderError as error:
            self._error = error
            raise
        return deltas


def _json_or_text(data: bytes) -> Any:
    try:
        return read_json(data)
    except ValueError:
        return data.decode("utf-8", "replace")
