"""Does a long coding session fit its budget in each wire format, with few summaries, and mostly from provider caches?

The measured bodies are those that an HTTP client passes to its transport.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from conformance.turns import Turn, TurnPart
from support.coding_session import DONE, HARD, SYSTEM, TASK, Model, Session, o200k, session
from support.dialects import AnthropicDialect, ChatDialect, GeminiDialect, ResponsesDialect
from support.http_clients import over_transport

from fsm_agent import Agent, Limits, Reply, Usage, function
from fsm_agent.call import CallResult, Request
from fsm_agent.clients import HttpClient
from fsm_agent.context import Budget, TextTokenizer
from fsm_agent.testing import Script, function_call

WIRES: dict[str, tuple[str, Any]] = {
    "chat": ("openai-chat", ChatDialect()),
    "responses": ("openai", ResponsesDialect()),
    "messages": ("anthropic", AnthropicDialect()),
    "generate_content": ("google", GeminiDialect()),
}
pytestmark = pytest.mark.nightly
STEP = 8  # rounds that are new before the next summary
SHARE = 0.85  # of the requests, at least, begin with all of the one before
LIMITS = Limits(rounds=None, identical_rounds=None)


class Service:
    """The model of a session behind a wire format.

    Attributes:
        bodies: The tokens of each whole body, including its JSON and the requests for summaries.
    """

    def __init__(self, played: Session, dialect: Any, *, tells_usage: bool = True) -> None:
        self.model = Model(played)
        self.bodies: list[int] = []
        self._dialect = dialect
        self._tells_usage = tells_usage

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.bodies.append(o200k()(request.content.decode()))
        said, arguments, tokens = self.model.answer(json.loads(request.content))
        parts = [TurnPart("text", [said])]
        if arguments is not None:
            parts.append(TurnPart("call", [json.dumps(arguments)], "read", f"call_{len(self.bodies):020}"))
        usage = Usage(input_tokens=tokens, output_tokens=50) if self._tells_usage else Usage()
        response = self._dialect.response(Turn(parts, usage))
        return httpx.Response(200, content=response, headers={"content-type": "application/json"})


def agent_of(client: Any, played: Session, budget: Budget) -> Agent:
    results = iter([one.result for one in played.rounds])

    @function
    def read(path: str, line: int) -> str:
        """Read a file of the repository from a line on."""
        return next(results)

    return Agent(client, system=SYSTEM, functions=[read], limits=LIMITS, context=budget)


def over_wire(service: Service, provider: str) -> CallResult[Any]:
    network = over_transport(httpx.MockTransport(service))
    with HttpClient(provider, "m", api_key="k", network=network) as client:
        return agent_of(client, service.model.played, Budget(hard=HARD)).call(TASK)


def check(service: Service, result: CallResult[Any]) -> None:
    model, rounds = service.model, len(service.model.played.rounds)
    assert (result.output, len(model.sizes), len(result.dialog)) == (DONE, rounds + 1, 2 * rounds + 3)
    assert len(service.bodies) == len(model.sizes) + len(model.summary_sizes)
    assert max(service.bodies) <= HARD
    assert 0 < len(model.summary_sizes) <= rounds / STEP
    assert [use.extends for use in result.context] == [False, *model.extending]
    assert sum(model.extending) >= SHARE * rounds


@pytest.mark.timeout(300)
@pytest.mark.parametrize("wire", WIRES)
def test_a_long_session_fits_and_mostly_extends_what_was_sent(wire: str):
    provider, dialect = WIRES[wire]
    service = Service(session(1_000), dialect)
    check(service, over_wire(service, provider))


def test_so_it_does_if_the_provider_does_not_say_how_many_tokens_there_were():
    service = Service(session(50), ChatDialect(), tells_usage=False)
    check(service, over_wire(service, "openai-chat"))


class Coder(Script):
    """The model of a session in this OS process."""

    def __init__(self, played: Session) -> None:
        super().__init__()
        self._session = played
        self._rounds = iter(played.rounds)
        self.summaries = 0

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        if not request.functions:
            self.summaries += 1
            return Reply.of(self._session.summary(self.summaries))
        one = next(self._rounds, None)
        return Reply.of(DONE) if one is None else Reply.of(one.said, function_call("read", **one.arguments))


def in_process(rounds: int, budget: Budget) -> None:
    played = session(rounds)
    client = Coder(played)
    assert agent_of(client, played, budget).call(TASK).output == DONE
    assert client.summaries


class Counting:
    """A tokenizer that counts how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0
        self._exact = TextTokenizer(o200k())

    def count(self, request: Request) -> int:
        self.calls += 1
        return self._exact.count(request)


def test_the_tokenizer_is_asked_in_proportion_to_the_rounds():
    def calls(rounds: int) -> int:
        tokenizer = Counting()
        in_process(rounds, Budget(hard=HARD, tokenizer=tokenizer))
        return tokenizer.calls

    per_round = [calls(rounds) / rounds for rounds in (50, 150)]
    assert max(per_round) <= 1.1 * min(per_round), per_round
