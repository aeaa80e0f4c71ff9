"""Do our clients keep what `ClientConformance` asks of every client?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
from conformance.client_conformance import ClientConformance, Endless, ScriptedAnswer
from conformance.client_requests import WAYS, ask, outcomes
from conformance.streams import mismatch
from served_clients import OverHttp, scripted
from support.dialects import AnthropicDialect, GeminiDialect, ResponsesDialect

from fsm_agent.clients import Client, FallbackClient, RateLimit, RateLimitedClient
from fsm_agent.errors import AuthFailed, TimedOut


class TestChat(OverHttp, ClientConformance): ...


@pytest.mark.parametrize(
    ("provider", "dialect"),
    [("openai", ResponsesDialect()), ("anthropic", AnthropicDialect()), ("google", GeminiDialect())],
    ids=["openai", "anthropic", "google"],
)
class TestOtherWires(OverHttp):
    """The parts that differ by wire format."""

    def test_it_is_one_reply_however_it_is_asked_for(self, provider: str, dialect: Any) -> None:
        self.provider, self.dialect = provider, dialect
        with self.serving("hello there") as client:
            answers = [ask(client, way) for way in WAYS]
        assert {answer[-1].message.text for answer in answers} == {"hello there"}
        assert len({(answer[-1].message, answer[-1].finish, answer[-1].usage) for answer in answers}) == 1
        assert [mismatch(answer[-1], answer[:-1]) for answer in answers if len(answer) > 1] == [None, None]

    def test_a_stream_that_stops_is_late(self, provider: str, dialect: Any) -> None:
        self.provider, self.dialect = provider, dialect
        with self.serving(Endless("hel")) as client:
            assert isinstance(outcomes(client, "astream", 0.05)[0], TimedOut)
            assert self.server.wait_until_all_closed()


class TestOverHttpx(OverHttp, ClientConformance):
    is_over_httpx = True


class TestFallback(OverHttp, ClientConformance):
    @contextmanager
    def serving(self, *answers: ScriptedAnswer) -> Iterator[Client]:
        with super().serving(*answers) as client:
            yield FallbackClient([scripted(AuthFailed("not here", status=401)), client])


class TestRateLimited(OverHttp, ClientConformance):
    @contextmanager
    def serving(self, *answers: ScriptedAnswer) -> Iterator[Client]:
        self.limit = RateLimit(max_concurrent=2)
        with super().serving(*answers) as client:
            yield RateLimitedClient(client, self.limit)

    def under_way(self, client: Client) -> int:
        return super().under_way(client) + self.limit.under_way


class TestScript(ClientConformance):
    reopens = True

    def serving(self, *answers: ScriptedAnswer) -> Any:
        return nullcontext(scripted(*answers))
