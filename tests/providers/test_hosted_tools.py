"""Are the tools that providers run said as each wire wants them, or refused, and is nothing secret shown?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import vcr
from conformance.client_requests import shown_by
from support.copies import replace
from support.fault_server import FaultServer, http
from support.http_clients import KEY, over_transport
from support.wire_samples import adapter, consumed

from fsm_agent.call import Request
from fsm_agent.clients import HttpClient, client_for
from fsm_agent.errors import ProviderError, UsageError
from fsm_agent.functions import Function
from fsm_agent.messages import CodeExecution, ComputerUse, HostedMCP, Message, Settings, UserLocation, WebSearch
from fsm_agent.providers import OpenAIResponsesCodec, Profile, providers
from fsm_agent.testing import vcr_config

HostedTool = WebSearch | CodeExecution | ComputerUse | HostedMCP
TOKEN = "the.token.that.nobody.may.see.0815"
ADD = Function(name="add")
VIENNA = {"country": "AT", "region": "Wien", "city": "Wien", "timezone": "Europe/Vienna"}
PLACE = UserLocation(**VIENNA)
SEARCH = WebSearch(allowed_domains=("example.com", "example.org/news"), user_location=PLACE)
SERVER = HostedMCP("files", "https://host/mcp", allowed_tools=("read", "list"), authorization=TOKEN)


def encoded(model: str, *tools: HostedTool, functions: tuple[Function, ...] = (), **request: Any) -> dict[str, Any]:
    """What is sent to ``provider:model``."""
    provider, _, name = model.partition(":")
    entry = providers()[provider]
    asked = Request(
        messages=(Message.of("user", "Hello?"),),
        functions=functions,
        settings=Settings(hosted_tools=tools, **request),
    )
    return json.loads(entry.codec.encode(asked, model=name, profile=entry.profile_of(name), stream=False))


def tools(model: str, *hosted: HostedTool) -> Any:
    return encoded(model, *hosted)["tools"]


def betas(model: str, *hosted: HostedTool) -> dict[str, str]:
    provider, _, name = model.partition(":")
    asked = Request(messages=(), settings=Settings(hosted_tools=hosted))
    return providers()[provider].codec.request_headers(asked, providers()[provider].profile_of(name))


class Server:
    """A server in memory that gives one answer to every request."""

    def __init__(self, answer: Any, status: int = 200) -> None:
        self.requests: list[httpx.Request] = []
        self._answer, self._status = answer, status

    def answered(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return httpx.Response(self._status, json=self._answer)

    def client(self, model: str, **options: Any) -> HttpClient:
        network = over_transport(httpx.MockTransport(self.answered))
        return client_for(model, api_key=KEY, **{"network": network, **options})


class TestResponses:
    def test_all_are_said(self) -> None:
        hosted = (SEARCH.changed(context_size="low"), CodeExecution(), ComputerUse(), SERVER)
        assert tools("openai:gpt-6", *hosted) == [
            {
                "type": "web_search",
                "filters": {"allowed_domains": ["example.com", "example.org/news"]},
                "search_context_size": "low",
                "user_location": {"type": "approximate", **VIENNA},
            },
            {"type": "code_interpreter", "container": {"type": "auto"}},
            {"type": "computer"},
            {
                "type": "mcp",
                "server_label": "files",
                "server_url": "https://host/mcp",
                "require_approval": "never",
                "allowed_tools": ["read", "list"],
                "authorization": TOKEN,
            },
        ]
        assert tools("openai:gpt-6", WebSearch()) == [{"type": "web_search"}]
        assert betas("openai:gpt-6", *hosted) == {}

    def test_the_older_model_for_computers_is_told_their_size(self) -> None:
        assert tools("openai:computer-use-preview", ComputerUse(width=800, environment="ubuntu")) == [
            {"type": "computer_use_preview", "display_width": 800, "display_height": 800, "environment": "ubuntu"}
        ]
        with pytest.raises(UsageError, match="'mobile'"):
            tools("openai:computer-use-preview", ComputerUse(environment="mobile"))

    def test_they_stand_behind_functions_and_share_their_choice(self) -> None:
        body = encoded("openai:gpt-6", WebSearch(), functions=(ADD,))
        assert [tool["type"] for tool in body["tools"]] == ["function", "web_search"]
        assert body["tool_choice"] == "auto"

    @pytest.mark.nightly
    @pytest.mark.parametrize("model", ["gpt-6", "computer-use-preview"])
    def test_the_official_sdk_takes_them(self, model: str) -> None:
        params = pytest.importorskip("openai.types.responses.response_create_params", reason="the SDK is not installed")
        computer = [ComputerUse(environment="mac") if "preview" in model else ComputerUse()]
        headers = HostedMCP("b", "https://host/b", headers={"X-Team": "blue"}, require_approval="always")
        others = [] if "preview" in model else [SEARCH.changed(context_size="high"), CodeExecution(), SERVER, headers]
        body = encoded(f"openai:{model}", *computer, *others, functions=(ADD,))
        assert consumed(adapter(params.ResponseCreateParamsNonStreaming).validate_python(body)) == body


class TestAnthropic:
    def test_all_are_said(self) -> None:
        hosted = (SEARCH.changed(max_uses=3), CodeExecution(), ComputerUse(), SERVER)
        body = encoded("anthropic:claude-opus-6", *hosted, functions=(ADD,))
        assert body["tools"][1:] == [
            {
                "type": "web_search_20250305",
                "name": "web_search",
                "allowed_domains": ["example.com", "example.org/news"],
                "max_uses": 3,
                "user_location": {"type": "approximate", **VIENNA},
            },
            {"type": "code_execution_20250825", "name": "code_execution"},
            {"type": "computer_toolset_20260801"},
            {
                "type": "mcp_toolset",
                "mcp_server_name": "files",
                "default_config": {"enabled": False},
                "configs": {"read": {"enabled": True}, "list": {"enabled": True}},
            },
        ]
        server = {"type": "url", "url": "https://host/mcp", "name": "files", "authorization_token": TOKEN}
        assert body["mcp_servers"] == [server]
        assert betas("anthropic:claude-opus-6", *hosted) == {
            "anthropic-beta": "code-execution-2025-08-25,mcp-client-2025-11-20"
        }

    def test_older_models_have_an_older_computer(self) -> None:
        for model, type_, beta in [
            ("claude-3-7-sonnet-latest", "computer_20250124", "computer-use-2025-01-24"),
            ("claude-haiku-4-5-20251001", "computer_20250124", "computer-use-2025-01-24"),
            ("claude-opus-4-5-20251101", "computer_20251124", "computer-use-2025-11-24"),
            ("claude-opus-4-7", "computer_20251124", "computer-use-2025-11-24"),
        ]:
            said = {"type": type_, "name": "computer", "display_width_px": 1280, "display_height_px": 900}
            computer = ComputerUse(height=900)
            assert tools(f"anthropic:{model}", computer) == [said]
            assert betas(f"anthropic:{model}", computer) == {"anthropic-beta": beta}

    @pytest.mark.nightly  # to read the beta types of the SDK takes two seconds
    @pytest.mark.parametrize("model", ["claude-3-7-sonnet-latest", "claude-sonnet-4-6", "claude-opus-5-5"])
    def test_the_official_sdk_takes_them(self, model: str) -> None:
        params = pytest.importorskip("anthropic.types.beta.message_create_params", reason="the SDK is not installed")
        hosted = (
            WebSearch(blocked_domains=("a.b",), user_location=PLACE),
            CodeExecution(),
            ComputerUse(),
            SERVER,
            HostedMCP("all", "https://host/all"),
        )
        body = encoded(f"anthropic:{model}", *hosted)
        assert consumed(adapter(params.MessageCreateParamsNonStreaming).validate_python(body)) == body
        known = pytest.importorskip("anthropic.types.anthropic_beta_param").AnthropicBetaParam
        named = [*known.__args__[1].__args__, "code-execution-2025-08-25"]  # which the SDK does not need any more
        assert set(betas(f"anthropic:{model}", *hosted)["anthropic-beta"].split(",")) <= set(named)

    def test_a_server_must_be_reached_safely(self) -> None:
        with pytest.raises(UsageError, match="the url of MCP server 'a'"):
            tools("anthropic:claude-opus-6", HostedMCP("a", "http://h"))

    def test_betas_are_joined_with_those_of_the_caller(self) -> None:
        answer = {"type": "message", "content": [{"type": "text", "text": "x"}], "stop_reason": "end_turn"}
        asked = Request(messages=(Message.of("user", "Hello?"),), settings=Settings(hosted_tools=(CodeExecution(),)))
        server = Server(answer)
        for headers in ({"Anthropic-Beta": "mine"}, {}):
            with server.client("anthropic:m", headers=headers) as client:
                client.complete(asked)
        said = [request.headers["anthropic-beta"] for request in server.requests]
        assert said == ["mine,code-execution-2025-08-25", "code-execution-2025-08-25"]


class TestGemini:
    def test_all_are_said(self) -> None:
        hosted = (WebSearch(), CodeExecution(), ComputerUse(environment="desktop"))
        assert tools("google:gemini-3-pro", *hosted) == [
            {"googleSearch": {}},
            {"codeExecution": {}},
            {"computerUse": {"environment": "ENVIRONMENT_DESKTOP"}},
        ]
        assert "toolConfig" not in encoded("google:gemini-3-pro", *hosted)

    def test_beside_functions_they_are_announced_where_that_is_known(self) -> None:
        body = encoded("google:gemini-3-pro", WebSearch(), functions=(ADD,))
        assert [*body["tools"][0], *body["tools"][1]] == ["functionDeclarations", "googleSearch"]
        assert body["toolConfig"]["includeServerSideToolInvocations"] is True
        body = encoded("vertex:gemini-3-pro", WebSearch(), functions=(ADD,))
        assert body["toolConfig"].keys() == {"functionCallingConfig"}
        body = encoded("google:gemini-2.5-pro", ComputerUse(), functions=(ADD,))
        assert len(body["tools"]) == 2
        with pytest.raises(UsageError, match=r"'gemini-2\.5-pro'"):
            encoded("google:gemini-2.5-pro", WebSearch(), functions=(ADD,))

    def test_vertex_can_leave_domains_out(self) -> None:
        blocking = WebSearch(blocked_domains=("a.b",))
        assert tools("vertex:gemini-3-pro", blocking) == [{"googleSearch": {"excludeDomains": ["a.b"]}}]
        with pytest.raises(UsageError, match="blocked_domains"):
            tools("google:gemini-3-pro", blocking)

    def test_it_knows_few_environments(self) -> None:
        with pytest.raises(UsageError, match="'mac'"):
            tools("google:gemini-3-pro", ComputerUse(environment="mac"))

    @pytest.mark.nightly
    def test_the_official_sdk_takes_them(self) -> None:
        types = pytest.importorskip("google.genai.types", reason="the SDK is not installed")
        body = encoded("google:gemini-3-pro", WebSearch(), CodeExecution(), ComputerUse(), functions=(ADD,))
        blocking = tools("vertex:gemini-3-pro", WebSearch(blocked_domains=("a.b",)))
        for tool in [*body["tools"], *blocking]:
            read = types.Tool.model_validate(tool)
            assert json.loads(read.model_dump_json(by_alias=True, exclude_none=True)) == tool
        read = types.ToolConfig.model_validate(body["toolConfig"])
        assert json.loads(read.model_dump_json(by_alias=True, exclude_none=True)) == body["toolConfig"]


class TestChat:
    def test_only_models_that_search_do(self) -> None:
        body = encoded("openai-chat:gpt-4o-search-preview", WebSearch(context_size="low", user_location=PLACE))
        assert body["web_search_options"] == {
            "search_context_size": "low",
            "user_location": {"type": "approximate", "approximate": VIENNA},
        }
        assert "tools" not in body
        assert encoded("openai-chat:gpt-5-search-api", WebSearch())["web_search_options"] == {}

    @pytest.mark.nightly
    def test_the_official_sdk_takes_it(self) -> None:
        params = pytest.importorskip("openai.types.chat.completion_create_params", reason="the SDK is not installed")
        body = encoded("openai-chat:gpt-5-search-api", WebSearch(context_size="low", user_location=PLACE))
        assert consumed(adapter(params.CompletionCreateParamsNonStreaming).validate_python(body)) == body


class TestRefusals:
    @pytest.mark.parametrize("tool", [WebSearch(), CodeExecution(), ComputerUse(), SERVER], ids=lambda tool: tool.kind)
    def test_who_has_no_such_tool_names_those_who_have(self, tool: HostedTool) -> None:
        having = {name for name, entry in providers().items() if tool.kind in entry.profile.hosted_tools}
        partly = {
            name
            for name, entry in providers().items()
            if any(tool.kind in differs.get("hosted_tools", ()) for _, differs in entry.models)
        }
        with pytest.raises(UsageError, match=r"'gpt-5'.*'openai-chat'") as caught:
            encoded("openai-chat:gpt-5", tool)
        named = str(caught.value).rpartition(": ")[2].split(", ")
        assert {name.partition(" ")[0] for name in named} == having | partly
        assert TOKEN not in str(caught.value)

    @pytest.mark.parametrize(
        ("model", "tool", "option"),
        [
            ("openai:gpt-6", WebSearch(blocked_domains=("a.b",)), "blocked_domains"),
            ("openai:gpt-6", ComputerUse(width=10), "width=10"),
            ("openai-chat:gpt-5-search-api", WebSearch(allowed_domains=("a.b",)), "allowed_domains"),
            ("anthropic:claude-opus-6", WebSearch(context_size="low"), "context_size='low'"),
            ("anthropic:claude-opus-4-7", ComputerUse(environment="mac"), "environment='mac'"),
            ("anthropic:claude-opus-6", HostedMCP("a", "https://h", headers={"X": TOKEN}), "headers"),
            ("anthropic:claude-opus-6", HostedMCP("a", "https://h", require_approval="always"), "require_approval"),
            ("google:gemini-3-pro", WebSearch(allowed_domains=("a.b",)), "allowed_domains"),
            ("google:gemini-3-pro", ComputerUse(width=10), "width=10"),
        ],
    )
    def test_an_option_that_a_wire_lacks_is_not_dropped(self, model: str, tool: HostedTool, option: str) -> None:
        with pytest.raises(UsageError, match=option) as caught:
            encoded(model, tool)
        assert TOKEN not in str(caught.value)

    def test_a_profile_that_promises_what_its_wire_lacks_is_wrong(self) -> None:
        entry = replace(providers()["openai-chat"], profile=Profile(hosted_tools={"code_execution": "x"}))
        asked = Request(messages=(), settings=Settings(hosted_tools=(CodeExecution(),)))
        with pytest.raises(UsageError, match="CodeExecution"):
            entry.codec.encode(asked, model="m", profile=entry.profile, stream=False)


ADDRESS = f"https://h/{TOKEN}0?k={TOKEN}1"
SECRETIVE = HostedMCP("files", ADDRESS, authorization=f"{TOKEN}2", headers={"X-A": f"Basic {TOKEN}3"})
ASKED = Request(messages=(Message.of("user", "Hello?"),), settings=Settings(hosted_tools=(SECRETIVE,)))


class TestSecrets:
    def test_a_server_that_quotes_them_is_not_quoted(self) -> None:
        said = {"error": {"message": f"MCP {TOKEN}2 at {TOKEN}1 with Basic {TOKEN}3", "code": f"{TOKEN}2"}}
        server = Server(said, status=424)
        with (
            server.client("openai:gpt-6") as client,
            pytest.raises(ProviderError, match=r"MCP \*\*\* at \*\*\*") as caught,
        ):
            client.complete(ASKED)
        assert TOKEN in server.requests[0].content.decode()
        assert TOKEN not in shown_by(caught.value)

    @pytest.mark.system
    def test_no_cassette_keeps_them(self, tmp_path: Path) -> None:
        item = {"type": "message", "content": [{"type": "output_text", "text": f"I saw {TOKEN}2."}]}
        reply = {"object": "response", "status": "completed", "output": [item]}
        path = tmp_path / "tape.yaml"
        tape = vcr.VCR(**vcr_config()).use_cassette(str(path))
        with FaultServer([http(reply)]) as server, tape:
            address = server.base_url
            with client_for("openai:gpt-6", api_key=KEY, base_url=address) as client:
                client.complete(ASKED)
        assert TOKEN not in path.read_text()
        other = SECRETIVE.changed(url="https://h/m?k=another.secret", authorization="another.secret", headers={})
        again = ASKED.changed(settings=Settings(hosted_tools=(other.changed(headers={"X-A": "Basic another.secret"}),)))
        with tape, client_for("openai:gpt-6", api_key=KEY, base_url=address) as client:
            assert client.complete(again).message.text == "I saw ***."


def test_what_a_provider_ran_is_sent_back_to_it() -> None:
    codec = OpenAIResponsesCodec()
    item = {
        "type": "mcp_call",
        "id": "mcp_1",
        "server_label": "files",
        "name": "read",
        "arguments": "{}",
        "output": "x",
    }
    body = json.dumps({"status": "completed", "output": [item]}).encode()
    message = codec.decode(200, {}, body).message
    sent = json.loads(codec.encode(Request(messages=[message]), model="m", profile=Profile(), stream=False))
    assert sent["input"] == [item]
