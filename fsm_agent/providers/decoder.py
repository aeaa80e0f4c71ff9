"""The base class of decoders, which read one response."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from fsm_agent.errors import BadReply, ProviderError
from fsm_agent.messages.events import Delta, UsageReported
from fsm_agent.messages.message import Message, Part
from fsm_agent.messages.reply import UNUSED, Finish, Reply, Usage
from fsm_agent.providers.failures import no_object, reported, unreadable
from fsm_agent.providers.sse import EventStream, ServerEvent, read_json, request_id, with_halves


class Decoder(ABC):
    """Decodes one response with status 200: a complete body with `read`, or a stream with `feed`, `end` and `finish`.

    The result does not depend on how the bytes of a stream are split.

    A subclass defines `take` and `reply`, and sets `is_ended`.  It raises `reported_error` if the service reports an
    error, and `bad_reply` for anything that it cannot read.  It overrides `take_whole`, `take_other` and `close`, and
    sets `is_over`, where its wire format needs that.

    Args:
        headers: Headers of the response, with lower-case names.

    Attributes:
        usage: The usage reported so far.
        model: The model's name, as reported.
        response_id: The provider's id for the response.
        is_ended: True once the provider has reported that the reply is complete.  Only the usage may still be missing.
        is_over: True once nothing can follow, even if the connection stays open.

    Examples:
        >>> from fsm_agent.providers.catalog import PROVIDERS
        >>> PROVIDERS["openai-chat"].codec.decoder({}).is_done
        False
    """

    usage: Usage = UNUSED
    model: str | None = None
    response_id: str | None = None
    is_ended: bool = False
    is_over: bool = False

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.headers = headers
        self._events = EventStream()
        self._told = self.usage  # the usage reported last
        self._counts: Mapping[str, Any] = {}  # as the service names them
        self._is_done = False
        self._has_no_more = False
        self._has_halves = False
        self._error: ProviderError | None = None
        self._whole: Reply | None = None  # from a body that is no stream

    @abstractmethod
    def take(self, chunk: dict[str, Any]) -> list[Delta]:
        """Read the JSON of one event and return its deltas.

        Raises:
            ProviderError: If the JSON reports an error, or is not an event.
        """

    def take_whole(self, document: dict[str, Any]) -> None:
        """Read the JSON of a complete response.

        Raises:
            ProviderError: If the JSON reports an error, or is not a response.
        """
        self.take(document)

    def take_other(self, document: Any) -> None:
        """Read the JSON of a complete response that is not an object.

        Raises:
            ProviderError: If the JSON reports an error, or the wire format has no such responses.
        """
        raise no_object(document, self.headers)

    def close(self, *, is_cut: bool) -> list[Delta]:
        """End the response and return the deltas that were held back.

        Args:
            is_cut: True if the stream ended without its end marker, although the reply `is_ended`.
        """
        return []

    @abstractmethod
    def reply(self) -> Reply:
        """Return the reply.  Subclasses make it with `reply_of`.

        Raises:
            BadReply: If no reply has arrived.
        """

    def reply_of(self, parts: Iterable[Part], finish: Finish | None, **fields: Any) -> Reply:
        """Return a reply with these parts and this finish reason, and with the reported usage, model and ids."""
        return Reply(
            message=Message(role="assistant", parts=tuple(parts)),
            usage=self.usage,
            finish=finish,
            model=self.model,
            response_id=self.response_id,
            request_id=request_id(self.headers),
            **fields,
        )

    def reported_error(self, document: Any) -> ProviderError:
        """Return the error that the service reports in an event or a response, whether JSON or text."""
        return reported(document, self.headers)

    def bad_reply(self, problem: str, body: bytes = b"") -> BadReply:
        """Return the error for a response that has no readable reply.  The error shows how ``body`` begins."""
        return unreadable(problem, self.headers, body)

    def take_usage(self, counts: Any, usage_of: Callable[[Mapping[str, Any]], Usage]) -> None:
        """Read the service's newest counts, if there are any, and make the `usage` of all counts so far.

        A later report may lack a count, or repeat it as 0.
        """
        if type(counts) is dict and counts:
            self._counts = _newest(self._counts, counts)
            if (usage := usage_of(self._counts)) != self.usage:
                self.usage = usage

    @property
    def is_done(self) -> bool:
        """True after the last event of the stream or its end marker, even if the connection stays open."""
        return self._is_done

    @property
    def has_failed(self) -> bool:
        """True if the stream reported an error or is not a stream.

        The rest is then ignored, and `finish` raises an error.
        """
        return self._error is not None

    def read(self, body: bytes) -> Reply:
        """Return the reply in a complete body, which may also be a stream.

        Raises:
            ProviderError: If the body is an error, or not a reply.
        """
        try:
            document = read_json(body)
        except ValueError:
            if body.lstrip().startswith((b"data:", b"event:", b": ")):
                self.feed(body)
                return self.finish()
            raise self.bad_reply("expected JSON, got another reply", body) from None
        if isinstance(document, dict):
            self.take_whole(document)
        else:
            self.take_other(document)
        self.close(is_cut=False)
        return self.reply()

    def feed(self, data: bytes) -> list[Delta]:
        """Read the next bytes and return the deltas that they complete."""
        return self._take_events(self._events.feed(data))

    def end(self) -> list[Delta]:
        """Return the last deltas, once all bytes are read."""
        if self._has_no_more:
            return []
        self._has_no_more = True
        deltas = self._take_events(self._events.finish(), is_cut=True)
        if self._error is None and self.is_ended and not self._is_done:
            deltas += self.close(is_cut=True)
        return deltas

    def finish(self) -> Reply:
        """Return the whole reply, once all bytes are read.

        Raises:
            ProviderError: If the stream reported an error, was cut off or was empty.
        """
        self.end()
        if self._error:
            raise self._error
        if (document := self._events.document) is not None:  # no event was taken
            self._whole = self._whole or self.read(document)
            return self._whole
        if not self._is_done and not self.is_ended:
            problem = "the stream was cut off before the end of the reply"
            raise self.bad_reply(problem, self._events.stray)
        reply = self.reply()
        return deepcopy(reply) if self._has_halves else reply  # copying turns each `CutText` into a plain string

    def _take_events(self, events: Sequence[ServerEvent], *, is_cut: bool = False) -> list[Delta]:
        deltas: list[Delta] = []
        try:
            for event, data in events:
                if self._is_done or self._error:
                    break
                self._take_event(event, data, deltas, is_cut)
        except ProviderError as error:
            self._error = error
        self._error = self._error or self._events.error
        return deltas

    def _take_event(self, event: str, data: bytes, deltas: list[Delta], is_cut: bool) -> None:
        if not data.startswith(b"{"):
            bare = data.strip()
            if bare == b"[DONE]":
                self._is_done = True
                deltas += self.close(is_cut=False)
            if self._is_done or not bare:
                return
        if event == "error":
            raise self.reported_error(_json_or_text(data))
        try:
            chunk = read_json(data, self._keep_halves)
        except ValueError:
            if is_cut:  # the last event was cut off; the reply may be complete without it
                return
            raise self.bad_reply("expected JSON in a chunk of the stream, got other text", data) from None
        if type(chunk) is not dict:
            raise no_object(chunk, self.headers)
        deltas += self.take(chunk)
        if self.is_over:
            self._is_done = True
            deltas += self.close(is_cut=False)
        if (usage := self.usage) is not self._told:
            self._told = usage
            deltas.append(UsageReported(usage))

    def _keep_halves(self, value: Any) -> Any:
        self._has_halves = True
        return with_halves(value)


def _newest(before: Mapping[str, Any], counts: Mapping[str, Any]) -> Mapping[str, Any]:
    merged = {**before}
    for key, value in counts.items():
        known = before.get(key)
        newest = _newest(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
        if newest or not known:
            merged[key] = newest
    return merged


def _json_or_text(data: bytes) -> Any:
    try:
        return read_json(data)
    except ValueError:
        return data.decode("utf-8", "replace")
