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
from fsm_agent.call import CallResult
from fsm_agent.clients import HttpClient, client_for
from fsm_agent.messages import CodeExecution, Done, HostedMCP, WebSearch
from fsm_agent.providers import Api, OpenAIChatCodec, OpenAIResponsesCodec, Profile, Provider, register_provider
from fsm_agent.testing import registries

KEY = "the.key.4711"
PATHS = {"openai-chat": "/chat/completions", "openai-responses": "/responses"}
SEARCH = Settings(hosted_tools=(WebSearch(),))
SERVERS = Settings(hosted_tools=(HostedMCP("docs", "https://docs.example/mcp"),))
TURN = Turn([TurnPart("text", ["Ro", "me."])])
ways = pytest.mark.parametrize("way", ["call", "astream"])


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
    spoken = Api(codec=OpenAIChatCodec(), models=(("old-*", {"logprobs": False}),))
    with registries():
        register_provider(Provider(name="acme", codec=OpenAIResponsesCodec(), profile=silent, other_wire=spoken))
        yield


def ran(client: HttpClient, way: str, settings: Settings, *functions: Any) -> CallResult[Any]:
    agent = Agent(client, settings=settings, functions=functions)

    async def last_of_stream() -> Any:
        return [event async for event in agent.astream("Where?")][-1]

    with client:
        match way:
            case "call":
                return agent.call("Where?")
            case _:
                last: Any = asyncio.run(last_of_stream())
    assert isinstance(last, Done)
    return last.result


def over(server: FaultServer, model: str, **options: Any) -> HttpClient:
    return client_for(model, api_key=KEY, base_url=server.base_url, **options)


def details(result: CallResult[Any]) -> str:
    return "; ".join([step.detail for step in result.trace if step.detail])


@ways
@pytest.mark.parametrize(
    ("model", "settings", "wire", "note", "sent"),
    [
        ("openai:gpt-4o", SEARCH, "openai-responses", "", ("tools", [{"type": "web_search"}])),
        ("openai:gpt-4o", Settings(stop=("x",)), "openai-chat", "stop", ("stop", ["x"])),
        ("openai:gpt-4o-search-preview", SEARCH, "openai-chat", "WebSearch()", ("web_search_options", {})),
        ("azure:gpt-4o", Settings(), "openai-chat", "", ("model", "gpt-4o")),
        ("azure:gpt-4o", SEARCH, "openai-responses", "WebSearch()", ("tools", [{"type": "web_search"}])),
        ("acme:m", Settings(top_logprobs=2), "openai-chat", "logprobs", ("top_logprobs", 2)),
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
        assert repr(wire) in told
        assert note in told
        assert told in details(result)
    else:
        assert (adapted, details(result)) == ((), "")


def look() -> str:
    """Look."""
    return "nothing"


@pytest.mark.parametrize(
    ("model", "effort", "wire"),
    [
        ("azure:gpt-6-astra", None, "openai-responses"),
        ("azure:gpt-6-astra", "none", "openai-chat"),
        ("azure:gpt-5.6-terra", None, "openai-responses"),
        ("azure:gpt-5.4", None, "openai-chat"),
        ("azure:gpt-5.4", "low", "openai-responses"),
        ("azure:gpt-5.1", "low", "openai-chat"),
    ],
)
def test_functions_go_over_the_wire_on_which_the_model_may_reason(
    server: FaultServer, model: str, effort: str | None, wire: str
) -> None:
    """Chat completions refuse functions of the newest models unless these do not reason."""
    ran(over(server, model), "call", Settings(reasoning_effort=effort), look)
    ran(over(server, model), "call", Settings(reasoning_effort=effort))
    assert [seen.path for seen in server.requests] == [f"/v1{PATHS[wire]}", f"/v1{PATHS['openai-chat']}"]
    if wire != "openai-chat":
        chosen = over(server, model, wire="openai-chat")
        with pytest.raises(UsageError, match="use the wire 'openai-responses'"):
            ran(chosen, "call", Settings(reasoning_effort=effort), look)


def test_the_key_goes_where_the_other_wire_has_it(server: FaultServer) -> None:
    ran(over(server, "azure:gpt-4o"), "call", SEARCH)
    (seen,) = server.requests
    assert seen.headers["api-key"] == KEY
    assert "authorization" not in seen.headers


@pytest.mark.parametrize(
    ("model", "options", "settings", "message"),
    [
        ("openai:gpt-4o", {"wire": "openai-responses"}, Settings(stop=("x",)), "'openai-chat'"),
        ("openai-chat:gpt-4o", {}, SERVERS, "'openai-responses'"),
        ("azure-responses:gpt-4o", {}, Settings(stop=("x",)), "'openai-chat'"),
    ],
)
def test_an_explicit_wire_wins(
    server: FaultServer, registered: None, model: str, options: dict[str, Any], settings: Settings, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        ran(over(server, model, **options), "call", settings)
    assert server.requests == []
    assert ran(over(server, model, **options), "call", Settings()).output == "Rome."
    wire = options.get("wire", {"openai-chat:gpt-4o": "openai-chat"}.get(model, "openai-responses"))
    assert server.requests[0].path == f"/v1{PATHS[wire]}"


@ways
def test_what_no_wire_can_do_is_named_with_the_reason_of_each(server: FaultServer, way: str) -> None:
    settings = Settings(stop=("x",), hosted_tools=(CodeExecution(),))
    with pytest.raises(UsageError) as caught:
        ran(over(server, "openai:gpt-4o"), way, settings)
    for named in (
        "'openai:gpt-4o'",
        "'openai-responses': stop: ",
        "'openai-chat': ",
        "CodeExecution()",
    ):
        assert named in str(caught.value)
    assert server.requests == []


@ways
@pytest.mark.parametrize("model", ["openai-chat:gpt-4o", "acme:m"])
def test_a_hint_that_a_model_lacks_is_left_out_with_a_warning(
    server: FaultServer, registered: None, caplog: Any, model: str, way: str
) -> None:
    tools, left_out = (CodeExecution(), WebSearch()), ["CodeExecution()"]
    if model != "acme:m":
        left_out.append("WebSearch()")
    client = over(server, model)
    name = client.name
    with caplog.at_level(logging.WARNING, "fsm_agent"):
        result = ran(client, way, Settings(hosted_tools=tools))
    assert result.output == "Rome."
    reply = result.record.reply
    assert reply is not None
    assert [[tool for tool in left_out if tool in note] for note in reply.adapted if "left out" in note] == [
        [tool] for tool in left_out
    ]
    assert [record.levelname for record in caplog.records] == ["WARNING"] * len(left_out)
    assert all(name in record.getMessage() for record in caplog.records)
    kinds = [tool["type"] for tool in server.requests[0].json.get("tools", ())]
    assert kinds == ["search_it" for tool in tools if repr(tool) not in left_out]


def test_what_neither_takes_alike_is_told_once(server: FaultServer, registered: None) -> None:
    with pytest.raises(UsageError) as caught:
        ran(over(server, "acme:old-1"), "call", Settings(top_logprobs=1))
    assert str(caught.value).count("top_logprobs") == 1
    assert "'old-1'" in str(caught.value)


def test_one_need_that_neither_has_is_told_with_both_reasons(server: FaultServer, registered: None) -> None:
    secret = HostedMCP("docs", "https://mcp.example.org/v1", authorization="a-secret-token")
    with pytest.raises(UsageError, match=r"'openai-responses': .*; 'openai-chat': ") as caught:
        ran(over(server, "acme:m"), "call", Settings(hosted_tools=(secret,)))
    assert "a-secret-token" not in str(caught.value)


def test_a_dialog_goes_on_over_the_other_wire(server: FaultServer) -> None:
    with over(server, "openai:gpt-4o") as client:
        first = Agent(client).call("Where?")
        second = Agent(client, settings=Settings(stop=("x",))).call("And then?", after=first)
        Agent(client).call("And now?", after=second)
    one, two, three = [seen.json for seen in server.requests]
    assert [entry["content"] for entry in two["messages"]] == ["Where?", "Rome.", "And then?"]
    assert len(one["input"]) < len(three["input"])
    assert "And then?" in str(three["input"])


def test_the_choice_is_kept_by_pickles_and_configurations(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_for("openai:gpt-4o", wire="openai-chat")
    assert pickle.loads(pickle.dumps(client)).name == client.name == "openai:gpt-4o"
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    with registries():

        class Guide(AgentBase):
            agent_type = "guide"
            prompt = Prompt("{{ task }}")

        config = {"agent_type": "guide", "model": "openai:gpt-4o", "client": {"wire": "openai-chat"}}
        with build_agent(config) as agent:
            assert agent("Where?") == "Rome."
    assert server.requests[0].path == f"/v1{PATHS['openai-chat']}"


def test_a_wire_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'openai-responses'.*'openai-chat'.*'grpc'"):
        client_for("openai:gpt-4o", wire="grpc")
    with pytest.raises(ConfigError, match=r"'groq'.*'openai-responses'"):
        client_for("groq:m", wire="openai-responses")
    with pytest.raises(ConfigError, match="'twice'"):
        register_provider(Provider(name="twice", codec=OpenAIChatCodec(), other_wire=Api(codec=OpenAIChatCodec())))
    none: Any = object()
    with pytest.raises(ConfigError, match="'odd'"):
        register_provider(Provider(name="odd", codec=OpenAIChatCodec(), other_wire=Api(codec=none)))
