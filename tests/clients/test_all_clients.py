"""Do our clients keep what `ClientConformance` asks of every client?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from conformance.client_conformance import ClientConformance, ScriptedAnswer
from conformance.client_requests import REQUEST
from conformance.streams import framed
from served_clients import OFTEN, OverHttp, scripted, turn_of
from support.dialects import AnthropicDialect, GeminiDialect, ResponsesDialect
from support.http_clients import KEY

from fsm_agent.clients import Cassette, Client, FallbackClient, HttpClient, RateLimit, RateLimitedClient
from fsm_agent.errors import AuthFailed, ProviderError


@pytest.mark.system
class TestChat(OverHttp, ClientConformance): ...


@pytest.mark.system
class TestResponses(OverHttp, ClientConformance):
    provider, dialect = "openai", ResponsesDialect()


@pytest.mark.system
class TestAnthropic(OverHttp, ClientConformance):
    provider, dialect = "anthropic", AnthropicDialect()


@pytest.mark.system
class TestGemini(OverHttp, ClientConformance):
    provider, dialect = "google", GeminiDialect()


@pytest.mark.system
class TestOverHttpx(OverHttp, ClientConformance):
    is_over_httpx = True


@pytest.mark.system
class TestFallback(OverHttp, ClientConformance):
    @contextmanager
    def serving(self, *answers: ScriptedAnswer) -> Iterator[Client]:
        with super().serving(*answers) as client:
            yield FallbackClient([scripted(AuthFailed("not here", status=401)), client])


@pytest.mark.system
class TestRateLimited(OverHttp, ClientConformance):
    @contextmanager
    def serving(self, *answers: ScriptedAnswer) -> Iterator[Client]:
        self.limit = RateLimit(max_concurrent=2)
        with super().serving(*answers) as client:
            yield RateLimitedClient(client, self.limit)

    def under_way(self, client: Client) -> int:
        return super().under_way(client) + self.limit.under_way


@pytest.mark.system
class TestScript(ClientConformance):
    reopens = True

    def serving(self, *answers: ScriptedAnswer) -> Any:
        return nullcontext(scripted(*answers))


@pytest.mark.system
class TestFallbackOfScripts(ClientConformance):
    reopens = True

    def serving(self, *answers: ScriptedAnswer) -> Any:
        return nullcontext(FallbackClient([scripted(AuthFailed("not here", status=401)), scripted(*answers)]))


class TestCassette(OverHttp, ClientConformance):
    """A tape that was recorded of these answers; an endless one was cut off."""

    test_a_request_ends_at_its_timeout = None  # what is recorded is there at once
    test_a_request_of_a_cancelled_task_is_let_go = None
    test_the_event_loop_goes_on = None

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
        body: Any = self.dialect.codec.encode(
            REQUEST, model="m", profile=HttpClient(self.provider, "m")._access.provider.profile, stream=is_stream
        )
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
