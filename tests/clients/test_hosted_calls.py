"""Does what a hosted tool asks of the caller reach a function, an approver or a person, and the answer the model?

The replies are written by hand, as the providers document them: OpenAI's guides "Computer use" and "MCP and
Connectors", Anthropic's "Computer use tool" and Google's "Computer Use", and the types of the SDKs openai 3.54,
anthropic 2.12 and google-genai 3.4 (read in November 2026).
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from support.http_clients import over_transport

from fsm_agent import (
    Agent,
    Approved,
    CallFailed,
    CallSuspended,
    Denied,
    Function,
    Image,
    Limits,
    Modified,
    Prompt,
    PromptError,
    Settings,
    UsageError,
    function,
)
from fsm_agent.call import CallResult, Returned, snapshot
from fsm_agent.clients import client_for
from fsm_agent.messages import ComputerUse, Done, HostedMCP

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
SCREEN = Image.of(PNG)
SHOWN = SCREEN.data_url()
CLICK = {"type": "click", "x": 7, "y": 8, "button": "left"}
CHECK = {"id": "sc_1", "code": "malicious_instructions", "message": "The page tells the model what to do."}
FLAG = {"decision": "require_confirmation", "explanation": "It pays."}
COMPUTER = Settings(hosted_tools=(ComputerUse(),))


def of_responses(*items: dict[str, Any]) -> dict[str, Any]:
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    return {"id": "r", "object": "response", "status": "completed", "model": "m", "output": [*items], "usage": usage}


def of_claude(*blocks: dict[str, Any]) -> dict[str, Any]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m", "usage": usage}
    return {**head, "content": [*blocks], "stop_reason": "tool_use"}


def of_gemini(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": [*parts]}, "finishReason": "STOP"}]}


def click(id: str = "call_1", **more: Any) -> dict[str, Any]:
    item = {"type": "computer_call", "id": f"cu_{id}", "call_id": id, "status": "completed", "actions": [CLICK]}
    return {**item, "pending_safety_checks": [], **more}


def answer(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}


def use(id: str, name: str, **arguments: Any) -> dict[str, Any]:
    block = {"type": "tool_use", "id": id, "name": name, "input": arguments, "toolset_name": "computer"}
    return {**block, "caller": {"type": "direct"}}


def do(name: str, **arguments: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": arguments}}


APPROVAL = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "server_label": "docs",
    "name": "search",
    "arguments": '{"q": "refunds"}',
}
DONE = {
    "openai:gpt-6": of_responses(answer("Done.")),
    "anthropic:claude-opus-5": of_claude({"type": "text", "text": "Done."}),
    "anthropic:claude-opus-4-6": of_claude({"type": "text", "text": "Done."}),
    "google:gemini-3.5-flash": of_gemini({"text": "Done."}),
}
ACTIONS = {
    "openai:gpt-6": (of_responses(click()), {"actions": [CLICK]}),
    "anthropic:claude-opus-5": (
        of_claude(use("tu_1", "left_click", coordinate=[7, 8])),
        {"action": "left_click", "coordinate": [7, 8]},
    ),
    "anthropic:claude-opus-4-6": (
        of_claude({"type": "tool_use", "id": "tu_1", "name": "computer", "input": {"action": "screenshot"}}),
        {"action": "screenshot"},
    ),
    "google:gemini-3.5-flash": (of_gemini(do("click_at", x=7, y=8)), {"action": "click_at", "x": 7, "y": 8}),
}
models = pytest.mark.parametrize("model", ACTIONS)


class Provider:
    """A provider that gives these replies in turn, whole or streamed, and keeps the requests."""

    def __init__(self, *replies: dict[str, Any]) -> None:
        self.replies = iter(replies)
        self.requests: list[Any] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(json.loads(request.content))
        reply = next(self.replies)
        if not (self.requests[-1].get("stream") or "alt=sse" in str(request.url)):
            return httpx.Response(200, json=reply)
        lines = [f"event: {event.get('type', '')}\ndata: {json.dumps(event)}\n\n" for event in events(reply)]
        return httpx.Response(200, content="".join(lines), headers={"content-type": "text/event-stream"})

    def client(self, model: str) -> Any:
        transport = httpx.MockTransport(self)
        return client_for(model, api_key="k", network=over_transport(transport))


def events(reply: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the events of a streamed reply; arguments come in pieces where the wire has pieces."""
    if "output" in reply:
        yield {"type": "response.created", "response": {**reply, "status": "in_progress", "output": []}}
        for index, item in enumerate(reply["output"]):
            begun = {**item, "status": "in_progress"} | ({"content": []} if item["type"] == "message" else {})
            yield {"type": "response.output_item.added", "output_index": index, "item": begun}
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
        yield {"type": "response.completed", "response": reply}
    elif "content" in reply:
        yield {"type": "message_start", "message": {**reply, "content": [], "stop_reason": None}}
        for index, block in enumerate(reply["content"]):
            rest = json.dumps(block.get("input", {}))
            begun = {**block, "input": {}} if "input" in block else block
            yield {"type": "content_block_start", "index": index, "content_block": begun}
            for piece in (rest[:5], rest[5:]) if "input" in block else ():
                delta = {"type": "input_json_delta", "partial_json": piece}
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        yield {"type": "message_delta", "delta": {"stop_reason": reply["stop_reason"]}, "usage": {"output_tokens": 2}}
        yield {"type": "message_stop"}
    else:
        yield reply


def answered(agent: Agent[Any], way: str) -> CallResult[Any]:
    if way == "acall":
        return asyncio.run(agent.acall("Go."))
    *_, done = agent.stream("Go.")
    assert isinstance(done, Done)
    return done.result


def computer(performed: list[Any], *screens: Any) -> Function:
    """The agent's computer, which does everything that it is asked to do."""

    def perform(**action: Any) -> Any:
        performed.append(action)
        return screens or SCREEN

    return Function(name="computer", parameters={"type": "object"}, call=perform)


class TestComputers:
    @pytest.mark.parametrize("way", ["acall", "stream"])
    @models
    def test_an_action_is_a_call_of_the_agents_computer(self, model: str, way: str) -> None:
        action, arguments = ACTIONS[model]
        provider, performed = Provider(action, action, DONE[model]), list[Any]()
        agent = Agent(provider.client(model), functions=[computer(performed)], settings=COMPUTER)
        result = answered(agent, way)
        assert result.output == "Done."
        assert performed == [arguments, arguments], "the same action is performed each time that it is asked for"
        assert [call.name for call in result.function_calls] == ["computer", "computer"]
        declared = json.dumps(provider.requests[0]["tools"])
        assert declared.count('"computer"') <= 1, "as the provider's own, and not as a function beside it"

    @models
    def test_without_one_the_call_waits_and_goes_on_in_another_process(self, model: str) -> None:
        action, arguments = ACTIONS[model]
        provider = Provider(action, DONE[model])
        agent, task = Agent(provider.client(model)), Prompt("Go.", hosted_tools=[ComputerUse()])
        with pytest.raises(CallSuspended, match="run:1") as suspended:
            agent.call(task)
        call = agent.restore(snapshot(suspended.value.call), task)
        assert call.record.pending[0].arguments == arguments
        call.advance("run:1.0", Returned(text="", attachments=(SCREEN,)))
        assert agent.run(call).output == "Done."
        assert base64.b64encode(PNG).decode() in json.dumps(provider.requests[1]), "the model sees the new screen"

    def test_the_output_of_an_action_is_the_screen_over_responses(self) -> None:
        provider = Provider(of_responses(click()), DONE["openai:gpt-6"])
        Agent(provider.client("openai:gpt-6"), functions=[computer([])], settings=COMPUTER).call("Go.")
        assert provider.requests[1]["input"][1:] == [
            click(),
            {
                "type": "computer_call_output",
                "call_id": "call_1",
                "output": {"type": "computer_screenshot", "image_url": SHOWN},
            },
        ]

    def test_the_functions_of_the_toolset_keep_their_names_over_anthropic(self) -> None:
        provider = Provider(of_claude(use("t1", "left_click", coordinate=[7, 8])), DONE["anthropic:claude-opus-5"])
        client = provider.client("anthropic:claude-opus-5")
        Agent(client, functions=[computer([])], settings=COMPUTER, limits=Limits(rounds=1)).call("Go.")
        last = provider.requests[1]
        used, shown = last["messages"][1]["content"][0], last["messages"][2]["content"][0]
        assert (used["name"], used["input"], used["toolset_name"]) == ("left_click", {"coordinate": [7, 8]}, "computer")
        assert (shown["tool_use_id"], shown["toolset_name"], shown["content"][0]["type"]) == ("t1", "computer", "image")
        assert last["tools"] == [{"type": "computer_toolset_20260801"}], "it is declared as long as it was used"
        assert last["tool_choice"] == {"type": "none"}

    def test_the_actions_keep_their_names_over_gemini_and_are_answered_with_the_url(self) -> None:
        provider = Provider(of_gemini(do("click_at", x=7, y=8)), DONE["google:gemini-3.5-flash"])
        screens = ({"url": "https://shop.example/cart"}, SCREEN)
        client = provider.client("google:gemini-2.5-computer-use-preview-10-2025")
        Agent(client, functions=[computer([], *screens)], settings=COMPUTER).call("Go.")
        asked, shown = provider.requests[1]["contents"][1:]
        assert asked["parts"][0]["functionCall"] == {"name": "click_at", "args": {"x": 7, "y": 8}}
        response = shown["parts"][0]["functionResponse"]
        assert (response["name"], response["response"]) == ("click_at", {"url": "https://shop.example/cart"})
        assert response["parts"][0]["inlineData"]["mimeType"] == "image/png"

    @pytest.mark.parametrize("model", ["anthropic:claude-opus-5", "google:gemini-3.5-flash"])
    def test_several_actions_are_performed_one_after_another(self, model: str) -> None:
        first, then = ("mouse_move", "left_click") if "claude" in model else ("hover_at", "click_at")
        reply = of_claude(use("a", first), use("b", then)) if "claude" in model else of_gemini(do(first), do(then))
        running, order = list[str](), list[str]()

        def perform(action: str) -> Image:
            running.append(action)
            order.append(action)
            assert running == [action], "two actions at once"
            running.remove(action)
            return SCREEN

        agent = Agent(
            Provider(reply, DONE[model]).client(model),
            functions=[Function.of(perform, name="computer", description="Perform an action.")],
            settings=COMPUTER,
        )
        call = agent.prepare("Go.")
        agent.run(call)
        assert order == [first, then]
        assert [step.key for step in call.record.trace if step.trigger == "returned"] == ["run:1.0", "run:1.1"]

    @pytest.mark.parametrize(
        ("model", "flagged", "acknowledged"),
        [
            (
                "openai:gpt-6",
                of_responses(click(pending_safety_checks=[CHECK])),
                ["input", 2, "acknowledged_safety_checks", [CHECK]],
            ),
            (
                "google:gemini-3.5-flash",
                of_gemini(do("click_at", x=1, y=2, safety_decision=FLAG)),
                ["contents", 2, "parts", 0, "functionResponse", "response", "safety_acknowledgement", "true"],
            ),
        ],
    )
    def test_what_the_provider_wants_confirmed_waits_for_a_person(
        self, model: str, flagged: dict[str, Any], acknowledged: list[Any]
    ) -> None:
        provider, performed = Provider(flagged, DONE[model]), list[Any]()
        agent = Agent(provider.client(model), functions=[computer(performed)], settings=COMPUTER)
        with pytest.raises(CallSuspended, match="ask:1") as suspended:
            agent.call("Go.")
        assert not performed
        call = suspended.value.call
        call.advance("ask:1.0", Approved())
        assert agent.run(call).output == "Done."
        *path, expected = acknowledged
        found = provider.requests[1]
        for step in path:
            found = found[step]
        assert found == expected

    def test_what_is_not_allowed_is_not_acknowledged_and_the_model_is_told(self) -> None:
        provider = Provider(of_responses(click(pending_safety_checks=[CHECK])), DONE["openai:gpt-6"])
        performed = list[Any]()
        client = provider.client("openai:gpt-6")
        Agent(
            client, functions=[computer(performed)], settings=COMPUTER, approve=lambda call: Denied("It is a trap.")
        ).call("Go.")
        output, words = provider.requests[1]["input"][2:]
        assert not performed
        assert (output["type"], output["call_id"]) == ("computer_call_output", "call_1")
        assert output["output"]["image_url"].startswith("data:image/png;base64,"), "a picture is required"
        assert "acknowledged_safety_checks" not in output
        assert "It is a trap." in words["content"][0]["text"]

    def test_a_dialog_with_actions_goes_on_with_another_provider(self) -> None:
        provider = Provider(of_gemini(do("click_at", x=7, y=8)), DONE["google:gemini-3.5-flash"])
        client = provider.client("google:gemini-3.5-flash")
        first = Agent(client, functions=[computer([])], settings=COMPUTER).call("Go.")
        other = Provider(DONE["openai:gpt-6"])
        Agent(other.client("openai:gpt-6")).call("And now?", after=first)
        asked, shown, *_ = other.requests[0]["input"][1:]
        assert (asked["type"], asked["name"]) == ("function_call", "computer")
        assert json.loads(asked["arguments"]) == {"action": "click_at", "x": 7, "y": 8}
        assert (shown["type"], shown["call_id"]) == ("function_call_output", asked["call_id"])

    def test_a_function_that_there_is_not_is_no_action_where_actions_have_marks(self) -> None:
        unknown = {"type": "tool_use", "id": "t1", "name": "fly", "input": {}}
        provider = Provider(of_claude(unknown), DONE["anthropic:claude-opus-5"])
        result = Agent(provider.client("anthropic:claude-opus-5"), settings=COMPUTER).call("Go.")
        (call,) = result.function_calls
        assert call.error is not None
        assert "'fly'" in call.error


def docs(require_approval: Any) -> Settings:
    return Settings(hosted_tools=(HostedMCP("docs", "https://docs.example/mcp", require_approval=require_approval),))


class TestServersThatAskFirst:
    @pytest.mark.parametrize("way", ["acall", "stream"])
    @pytest.mark.parametrize(
        ("verdict", "answer"),
        [
            (True, {"approve": True}),
            (Denied("not today"), {"approve": False, "reason": "not today"}),
        ],
    )
    def test_the_approver_decides_and_the_server_is_told(self, verdict: Any, answer: Any, way: str) -> None:
        provider, asked = Provider(of_responses(APPROVAL), DONE["openai:gpt-6"]), list[Any]()

        def approve(call: Any) -> Any:
            asked.append((call.name, call.arguments))
            return verdict

        agent = Agent(provider.client("openai:gpt-6"), settings=docs("always"), approve=approve)
        assert answered(agent, way).output == "Done."
        assert asked == [("docs", {"name": "search", "arguments": {"q": "refunds"}})]
        asked_for, response = provider.requests[1]["input"][1:]
        assert asked_for == APPROVAL
        assert (response["type"], response["approval_request_id"]) == ("mcp_approval_response", "mcpr_1")
        assert response["approve"] is answer["approve"]
        assert answer.get("reason", "") in response.get("reason", "")

    @pytest.mark.parametrize(
        ("require_approval", "on_the_wire", "waits"),
        [("never", "never", False), ("auto", "always", False), ("manual", "always", True)],
    )
    def test_without_an_approver_it_waits_unless_it_may_decide_itself(
        self, require_approval: str, on_the_wire: str, waits: bool
    ) -> None:
        replies = (
            [DONE["openai:gpt-6"]] if require_approval == "never" else [of_responses(APPROVAL), DONE["openai:gpt-6"]]
        )
        provider = Provider(*replies)
        agent = Agent(provider.client("openai:gpt-6"), settings=docs(require_approval))
        if waits:
            with pytest.raises(CallSuspended, match="ask:1"):
                agent.call("Go.")
        else:
            assert agent.call("Go.").output == "Done."
        assert provider.requests[0]["tools"][0]["require_approval"] == on_the_wire

    def test_what_an_approver_modifies_is_not_run_as_it_was(self) -> None:
        provider = Provider(of_responses(APPROVAL), DONE["openai:gpt-6"])
        changed = Modified('{"name": "search", "arguments": {"q": "nothing"}}')
        Agent(provider.client("openai:gpt-6"), settings=docs("always"), approve=lambda call: changed).call("Go.")
        response = provider.requests[1]["input"][-1]
        assert response["approve"] is False
        assert response["reason"]

    def test_a_function_of_that_name_is_refused(self) -> None:
        @function
        def docs_(q: str) -> str:
            """Search."""
            return q

        client = Provider().client("openai:gpt-6")
        agent = Agent(client, functions=[Function.of(docs_, name="docs")], settings=docs("always"))
        with pytest.raises(PromptError, match="'docs'"):
            agent.call("Go.")

    @pytest.mark.parametrize("require_approval", ["auto", "manual"])
    def test_a_wire_that_cannot_ask_refuses(self, require_approval: str) -> None:
        provider = Provider()
        agent = Agent(provider.client("anthropic:claude-opus-5"), settings=docs(require_approval))
        with pytest.raises(UsageError, match="require_approval"):
            agent.call("Go.")
        assert not provider.requests


@pytest.mark.parametrize("kind", ["local_shell_call", "oauth_consent_request"])
def test_what_cannot_be_answered_is_no_empty_answer(kind: str) -> None:
    provider = Provider(of_responses({"type": kind, "id": "i1", "call_id": "c1"}))
    settings = Settings(extra_body={"tools": [{"type": kind.removesuffix("_call")}]})
    with pytest.raises(CallFailed, match=kind):
        Agent(provider.client("openai:gpt-6"), settings=settings).call("Go.")
    assert len(provider.requests) == 1, "asked once: the next answer would be the same"
