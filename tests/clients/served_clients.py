"""Clients for `ClientConformance`: over HTTP to a server that speaks a wire, and doubles."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from conformance.client_conformance import Endless, ScriptedAnswer
from conformance.streams import framed
from conformance.turns import Turn, TurnPart
from support.dialects import ChatDialect
from support.fault_server import END_OF_CHUNKS, SSE_HEAD, STALL, FaultServer, Seen, Step, chunk, head, http
from support.http_clients import KEY, over_httpx

from fsm_agent.clients import Client, HttpClient, Network
from fsm_agent.errors import ProviderError
from fsm_agent.messages import TextDelta
from fsm_agent.testing import Delayed, Script

OFTEN = 30  # requests of one test


class OverHttp:
    """Clients of a server.

    Attributes:
        provider: The provider of the client.
        dialect: The dialect of the server.
        options: The options of the client's `Network`.
        is_over_httpx: Whether to send over a user's clients of httpx.
    """

    secret = KEY
    provider = "openai-chat"
    dialect: Any = ChatDialect()
    options: ClassVar[dict[str, Any]] = {}
    is_over_httpx = False

    @contextmanager
    def serving(self, *answers: ScriptedAnswer) -> Iterator[Client]:
        def script(answer: ScriptedAnswer) -> Any:
            return lambda seen: self.steps(answer, is_stream=is_streamed(seen))

        with FaultServer(*map(script, answers)) as self.server:
            network = Network(**self.options)
            network = over_httpx(network, self.server.base_url) if self.is_over_httpx else network
            client = HttpClient(self.provider, "m", api_key=KEY, base_url=self.server.base_url, network=network)
            with client:
                yield client

    def under_way(self, client: Client) -> int:
        return self.server.n_under_way

    def begins(self, client: Client) -> object:
        return self.server.wait_for_requests(1)

    def steps(self, answer: ScriptedAnswer, *, is_stream: bool) -> list[Step]:
        if isinstance(answer, ProviderError):
            after = {} if answer.retry_after_s is None else {"retry_after": str(answer.retry_after_s)}
            return [http(self.dialect.error_event(answer.message).data, status=answer.status or 500, **after)]
        turn = turn_of(answer)
        if isinstance(answer, str) and is_stream:
            return [SSE_HEAD, chunk(framed(self.dialect.events(turn))), END_OF_CHUNKS]
        if isinstance(answer, str):
            return [http(self.dialect.response(turn))]
        if is_stream:
            return [SSE_HEAD, chunk(framed(self.beginning(turn))), STALL]
        return [head(content_type="application/json", content_length="1000"), b"{", STALL]

    def beginning(self, turn: Turn) -> Sequence[Any]:
        """The events up to the first piece of text."""
        events, decoder = self.dialect.events(turn), self.dialect.codec.decoder({})
        for number, event in enumerate(events, 1):
            if any(isinstance(delta, TextDelta) for delta in decoder.feed(framed([event]))):
                return events[:number]
        raise AssertionError(f"{turn!r} has no text")


def turn_of(answer: str | Endless) -> Turn:
    """A turn in two pieces.  An endless answer has only the first."""
    if isinstance(answer, Endless):
        return Turn([TurnPart("text", [answer.text, "never"])])
    return Turn([TurnPart("text", [answer[:3], answer[3:]])])


def is_streamed(seen: Seen) -> bool:
    return json.loads(seen.body).get("stream", False) or "streamGenerateContent" in seen.path


def scripted(*answers: ScriptedAnswer, name: str = "script") -> Script:
    """A double that gives these answers."""
    entries: list[Any] = [Delayed(5, one.text) if isinstance(one, Endless) else one for one in answers]
    return Script(*entries, *entries[-1:] * OFTEN, name=name)
