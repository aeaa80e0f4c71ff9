"""Is the wire taken that can do what a prompt asks for, in every way to ask, and is the choice in the trace?"""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from conformance.streams import framed
from conformance.turns import Turn, TurnPart
from support.dialects import ChatDialect, ResponsesDialect
from support.fault_server import END_OF_CHUNKS, SSE_HEAD, FaultServer, Seen, Step, chunk, http

from fsm_agent import Agent, AgentBase, ConfigError, Prompt, Settings, UsageError, build_agent
from fsm_agent.agents.registry import AGENTS
from fsm_agent.clients import HttpClient, client_for
from fsm_agent.lifecycle import CallResult
from fsm_agent.messages import CodeExecution, ComputerUse, Done, HostedMCP, WebSearch
from fsm_agent.providers import Profile, Provider, Wire, register_provider
from fsm_agent.providers.catalog import CHAT, PROVIDERS, RESPONSES, provider

KEY = "the.key.4711"
PATHS = {"openai-chat": "/chat/completions", "openai-responses": "/responses"}
SEARCH = Settings(hosted_tools=(WebSearch(),))
SERVERS = Settings(hosted_tools=(HostedMCP("docs", "https://docs.example/mcp"),))
TURN = Turn([TurnPart("text", ["Ro", "me."])])
ways = pytest.mark.parametrize("way", ["call", "stream", "acall", "astream"])


def answer(seen: Seen) -> list[Step]:
    dialect: Any = ChatDialect() if seen.path.endswith(PATHS["openai-chat"]) else ResponsesDialect()
    if seen.json.get("stream"):
        return [SSE_HEAD, chunk(framed(dialect.events(TURN))), END_OF_CHUNKS]
    return [http(dialect.response(TURN))]


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer(answer) as running:
        yield running


@pytest.fixture
def registered() -> Iterator[None]:
    """Two wires of "acme": responses without log probabilities, and chat completions with them."""
    silent = Profile(logprobs=False, hosted_tools={"web_search": "search_it"})
    spoken = Wire(codec=CHAT, models=(("old-*", {"logprobs": False}),))
    with PROVIDERS.scoped():
        register_provider(Provider(name="acme", codec=RESPONSES, profile=silent, other_wire=spoken))
        yield


def ran(client: HttpClient, way: str, settings: Settings) -> CallResult[Any]:
    agent = Agent(client, settings=settings)

    async def last_of_stream() -> Any:
        return [event async for event in agent.astream("Where?")][-1]

    with client:
        match way:
            case "call":
                return agent.call("Where?")
            case "acall":
                return asyncio.run(agent.acall("Where?"))
            case "stream":
                last: Any = [*agent.stream("Where?")][-1]
            case _:
                last = asyncio.run(last_of_stream())
    assert isinstance(last, Done)
    return last.result


def over(server: FaultServer, model: str, **options: Any) -> HttpClient:
    return client_for(model, api_key=KEY, base_url=server.base_url, **options)


def details(result: CallResult[Any]) -> str:
    return "; ".join([step.detail for step in result.trace if step.detail])


@pytest.mark.system
@pytest.mark.spec("3.36: the wire that can do what a prompt asks for", "3.36: the choice is in the trace")
@ways
@pytest.mark.parametrize(
    ("model", "settings", "wire", "note", "sent"),
    [
        ("openai:gpt-4o", SEARCH, "openai-responses", "", ("tools", [{"type": "web_search"}])),
        ("openai:gpt-4o", Settings(stop=("x",)), "openai-chat", "takes no stop sequences", ("stop", ["x"])),
        ("openai:gpt-4o-search-preview", SEARCH, "openai-chat", "runs no WebSearch()", ("web_search_options", {})),
        ("openai:gpt-4o", Settings(top_logprobs=2), "openai-responses", "", ("top_logprobs", 2)),
        ("azure:gpt-4o", Settings(), "openai-chat", "", ("model", "gpt-4o")),
        ("azure:gpt-4o", SEARCH, "openai-responses", "runs no WebSearch()", ("tools", [{"type": "web_search"}])),
        ("xai:grok-4", SEARCH, "openai-responses", "runs no WebSearch()", ("tools", [{"type": "web_search"}])),
        ("xai:grok-4", Settings(top_logprobs=2), "openai-chat", "", ("logprobs", True)),
        ("acme:m", SEARCH, "openai-responses", "", ("tools", [{"type": "search_it"}])),
        ("acme:m", Settings(top_logprobs=2), "openai-chat", "reports no logprobs", ("top_logprobs", 2)),
        ("acme:m", Settings(), "openai-responses", "", ("store", False)),
    ],
)
def test_the_wire_that_can_do_it_is_taken(
    server: FaultServer,
    registered: None,
    way: str,
    model: str,
    settings: Settings,
    wire: str,
    note: str,
    sent: tuple[str, Any],
) -> None:
    result = ran(over(server, model), way, settings)
    (seen,) = server.requests
    assert result.output == "Rome."
    assert seen.path == f"/v1{PATHS[wire]}"
    key, value = sent
    assert seen.json[key] == value
    assert seen.json.get("stream", False) is ("stream" in way)
    adapted = result.record.reply.adapted if result.record.reply else ()
    if note:
        (told,) = adapted
        assert told.startswith(f"the wire {wire!r} was chosen: ")
        assert note in told
        assert told in details(result)
    else:
        assert (adapted, details(result)) == ((), "")


@pytest.mark.system
@ways
def test_the_key_goes_where_the_other_wire_has_it(server: FaultServer, way: str) -> None:
    ran(over(server, "azure:gpt-4o"), way, SEARCH)
    (seen,) = server.requests
    assert seen.headers["api-key"] == KEY
    assert "authorization" not in seen.headers


@pytest.mark.system
@pytest.mark.spec("3.36: the wire that can do what a prompt asks for")
@pytest.mark.parametrize(
    ("model", "options", "settings", "message"),
    [
        ("openai:gpt-4o", {"wire": "openai-responses"}, Settings(stop=("x",)), "wire 'openai-chat' of the same"),
        ("openai-chat:gpt-4o", {}, SERVERS, "wire 'openai-responses' of the same provider takes it"),
        ("azure-responses:gpt-4o", {}, Settings(stop=("x",)), "wire 'openai-chat' of the same provider takes it"),
    ],
)
def test_an_explicit_wire_wins(
    server: FaultServer, registered: None, model: str, options: dict[str, Any], settings: Settings, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        ran(over(server, model, **options), "call", settings)
    assert server.requests == []
    assert ran(over(server, model, **options), "call", Settings()).output == "Rome."
    wire = options.get("wire", provider(model.partition(":")[0]).codec.name)
    assert server.requests[0].path == f"/v1{PATHS[wire]}"


@pytest.mark.system
@ways
@pytest.mark.parametrize(
    ("model", "settings", "parts"),
    [
        (
            "openai:gpt-4o",
            Settings(stop=("x",), hosted_tools=(CodeExecution(),)),
            ["only 'openai-responses' takes CodeExecution()", "only 'openai-chat' takes stop=('x',)"],
        ),
        (
            "acme:m",
            Settings(top_logprobs=1, hosted_tools=(WebSearch(), CodeExecution())),
            ["only 'openai-responses' takes WebSearch()", "only 'openai-chat' takes top_logprobs=1"],
        ),
    ],
)
def test_what_no_wire_can_do_is_named_with_who_can(
    server: FaultServer, registered: None, way: str, model: str, settings: Settings, parts: list[str]
) -> None:
    with pytest.raises(UsageError, match=r"no wire of .* takes all that is asked for") as caught:
        ran(over(server, model), way, settings)
    assert str(caught.value) == f"no wire of {model!r} takes all that is asked for: {'; '.join(parts)}"
    assert server.requests == []


@pytest.mark.system
@pytest.mark.spec("3.20: a hint that a model lacks is left out with a warning")
@ways
@pytest.mark.parametrize(
    ("model", "tools", "left_out"),
    [
        ("openai-chat:gpt-4o", (WebSearch(),), ["WebSearch()"]),
        (
            "mistral:m",
            (WebSearch(), ComputerUse(), CodeExecution()),
            ["WebSearch()", "ComputerUse()", "CodeExecution()"],
        ),
        ("acme:m", (CodeExecution(),), ["CodeExecution()"]),
        ("acme:m", (CodeExecution(), WebSearch()), ["CodeExecution()"]),
    ],
)
def test_a_hint_that_a_model_lacks_is_left_out_with_a_warning(
    server: FaultServer,
    registered: None,
    caplog: Any,
    model: str,
    tools: tuple[Any, ...],
    left_out: list[str],
    way: str,
) -> None:
    client = over(server, model)
    name = client.name
    with caplog.at_level(logging.WARNING, "fsm_agent"):
        result = ran(client, way, Settings(hosted_tools=tools))
    assert result.output == "Rome."
    notes = [f"{tool} was left out: the model does not take it here" for tool in left_out]
    reply = result.record.reply
    assert reply is not None
    assert [note for note in reply.adapted if "left out" in note] == notes
    assert [record.getMessage() for record in caplog.records] == [f"{name}: {note}" for note in notes]
    kinds = [tool["type"] for tool in server.requests[0].json.get("tools", ())]
    assert kinds == ["search_it" for tool in tools if repr(tool) not in left_out]


@pytest.mark.system
def test_what_neither_takes_alike_is_told_once(server: FaultServer, registered: None) -> None:
    with pytest.raises(UsageError) as caught:
        ran(over(server, "acme:old-1"), "call", Settings(top_logprobs=1))
    assert str(caught.value) == "the model 'old-1' reports no logprobs, and top_logprobs is 1"


@pytest.mark.system
def test_one_need_that_neither_has_is_told_with_both_reasons(server: FaultServer, registered: None) -> None:
    secret = HostedMCP("docs", "https://mcp.example.org/v1", authorization="a-secret-token")
    with pytest.raises(UsageError, match=r"'openai-responses': .*; 'openai-chat': ") as caught:
        ran(over(server, "acme:m"), "call", Settings(hosted_tools=(secret,)))
    assert "a-secret-token" not in str(caught.value)


@pytest.mark.system
def test_a_dialog_goes_on_over_the_other_wire(server: FaultServer) -> None:
    with over(server, "openai:gpt-4o") as client:
        first = Agent(client).call("Where?")
        second = Agent(client, settings=Settings(stop=("x",))).call("And then?", after=first)
        Agent(client).call("And now?", after=second)
    one, two, three = [seen.json for seen in server.requests]
    assert [entry["content"] for entry in two["messages"]] == ["Where?", "Rome.", "And then?"]
    assert len(one["input"]) < len(three["input"])
    assert "And then?" in str(three["input"])


@pytest.mark.system
def test_the_choice_is_kept_by_pickles_and_configurations(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_for("openai:gpt-4o", wire="openai-chat")
    assert pickle.loads(pickle.dumps(client)).name == client.name == "openai:gpt-4o"
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    with AGENTS.scoped():

        class Guide(AgentBase):
            agent_type = "guide"
            prompt = Prompt("{{ task }}")

        config = {"agent_type": "guide", "model": "openai:gpt-4o", "client": {"wire": "openai-chat"}}
        with build_agent(config) as agent:
            assert agent("Where?") == "Rome."
    assert server.requests[0].path == f"/v1{PATHS['openai-chat']}"


def test_a_wire_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="'openai' has no wire 'grpc': it has 'openai-responses' and 'openai-chat'"):
        client_for("openai:gpt-4o", wire="grpc")
    with pytest.raises(ConfigError, match="'groq' has no wire 'openai-responses': it has 'openai-chat'"):
        client_for("groq:m", wire="openai-responses")
    with pytest.raises(ConfigError, match="both wires of provider 'twice' are 'openai-chat'"):
        register_provider(Provider(name="twice", codec=CHAT, other_wire=Wire(codec=CHAT)))
    none: Any = object()
    with pytest.raises(ConfigError, match="codec of provider 'odd'"):
        register_provider(Provider(name="odd", codec=CHAT, other_wire=Wire(codec=none)))
