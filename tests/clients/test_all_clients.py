"""Do our clients keep what `ClientConformance` asks of every client?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from conformance.client_conformance import ClientConformance, Endless, ScriptedAnswer
from conformance.client_requests import REQUEST, WAYS, ask, outcomes
from conformance.streams import framed, mismatch
from served_clients import OFTEN, OverHttp, scripted, turn_of
from support.dialects import AnthropicDialect, GeminiDialect, ResponsesDialect
from support.http_clients import KEY

from fsm_agent.clients import Cassette, Client, FallbackClient, HttpClient, RateLimit, RateLimitedClient
from fsm_agent.errors import AuthFailed, ProviderError, TimedOut
from fsm_agent.providers import Profile


class TestChat(OverHttp, ClientConformance): ...


@pytest.mark.parametrize(
    ("provider", "dialect"),
    [("openai", ResponsesDialect()), ("anthropic", AnthropicDialect()), ("google", GeminiDialect())],
    ids=["openai", "anthropic", "google"],
)
class TestOtherWires(OverHttp):
    """What of it is the wire's own."""

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


class TestFallbackOfScripts(ClientConformance):
    reopens = True

    def serving(self, *answers: ScriptedAnswer) -> Any:
        return nullcontext(FallbackClient([scripted(AuthFailed("not here", status=401)), scripted(*answers)]))


class TestCassette(OverHttp, ClientConformance):
    """A tape that was recorded of these answers; an endless one was cut off."""

    test_a_request_ends_at_its_timeout = None  # what is recorded is there at once
    test_a_request_of_a_cancelled_task_is_let_go = None

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "tape.json"

    @contextmanager
    def serving(self, *answers: ScriptedAnswer) -> Iterator[Client]:
        repeated = [*answers, *answers[-1:] * OFTEN]
        exchanges = [self.exchange(one, is_stream=is_stream) for one in repeated for is_stream in (False, True)]
        self.path.write_text(json.dumps({"version": 1, "exchanges": exchanges}))
        network = Cassette(self.path, "replay").network()
        with HttpClient(self.provider, "m", api_key=KEY, base_url="http://127.0.0.1:9/v1", network=network) as client:
            yield client

    def under_way(self, client: Client) -> int:
        return 0

    def exchange(self, answer: ScriptedAnswer, *, is_stream: bool) -> dict[str, Any]:
        body: Any = json.loads(self.dialect.codec.encode(REQUEST, model="m", profile=Profile(), stream=is_stream))
        request = {"method": "POST", "url": "http://127.0.0.1:9/v1/chat/completions", "json": body}
        return {"request": request, "response": self.response(answer, is_stream=is_stream)}

    def response(self, answer: ScriptedAnswer, *, is_stream: bool) -> dict[str, Any]:
        headers = {"content-type": "application/json"}
        if isinstance(answer, ProviderError):
            after = {} if answer.retry_after_s is None else {"retry-after": str(answer.retry_after_s)}
            document = json.loads(self.dialect.error_event(answer.message).data)
            return {"status": answer.status, "headers": {**headers, **after}, "json": document}
        if not is_stream:
            return {"status": 200, "headers": headers, "json": json.loads(self.dialect.response(turn_of(answer)))}
        events = self.dialect.events(turn_of(answer)) if isinstance(answer, str) else self.beginning(turn_of(answer))
        pieces = [framed([event]).decode() for event in events]
        return {"status": 200, "headers": {"content-type": "text/event-stream"}, "sse": pieces}
