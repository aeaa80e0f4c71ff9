"""Do the folds say in the words of each protocol what the events say, and read what its clients send?"""

from __future__ import annotations

import asyncio
import base64
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from served import Letter, desk, letters
from support.examples import examples
from support.time_growth import growth

from fsm_agent import Agent, Approved, Denied, Function, Image, MemoryStore, Modified, UsageError
from fsm_agent.messages import (
    ArgumentsDelta,
    Event,
    FunctionCallStarted,
    FunctionEnded,
    FunctionStarted,
    HistoryChanged,
    Inside,
    Message,
    Reasoning,
    ReasoningDelta,
    Reply,
    ReplyCompleted,
    RequestStarted,
    Text,
    TextDelta,
)
from fsm_agent.store import RunBusy, StoreError
from fsm_agent.testing import Pieces, Script, function_call
from fsm_agent.web import AgUi, AiSdk, BadRequest, EventTranslator, JsonEvents, RunFollower, failing, read_json, sse

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 20).decode()
TASKS = ["hello", "the weather?", "broken", "copy", "nothing", "translate", "fail", "refund", "letter"]
KEY = "sk-abcdefghijklmnopqrstuvwx"
EMPTY = {"id": "m", "role": "user", "content": " ", "parts": [{"type": "text", "text": " "}]}  # for both protocols


def ag_ui() -> AgUi:
    return AgUi("t1", "r1")


def ai_sdk() -> AiSdk:
    return AiSdk("m1-reply")


def folded(fold: EventTranslator, events: list[Event]) -> list[dict[str, Any]]:
    return [*fold.begin(), *[data for event in events for data in fold.take(event)]]


async def events_of(task: str) -> tuple[list[Event], list[Event]]:
    """Return the events that a listener receives, and the events in the journal."""
    async with RunFollower(letters(MemoryStore()) if task == "letter" else desk(MemoryStore())) as live:
        run = await live.begin(Letter("x") if task == "letter" else task)
        first = [event async for _, event in live.follow(run)]
        return first, [event async for _, event in live.follow(run)]


def types(told: list[dict[str, Any]]) -> list[str]:
    return [data["type"] for data in told]


def said(told: list[dict[str, Any]]) -> Any:
    """Return what a page shows in the end: texts, functions with their results, the last event."""
    texts: dict[str, str] = {}
    calls: dict[str, list[Any]] = {}
    for data in told:
        match data["type"]:
            case "TEXT_MESSAGE_CONTENT":
                texts[data["messageId"]] = texts.get(data["messageId"], "") + data["delta"]
            case "text-delta":
                texts[data["id"]] = texts.get(data["id"], "") + data["delta"]
            case "TOOL_CALL_ARGS":
                calls[data["toolCallId"]] = [data["delta"]]
            case "tool-input-available":
                calls[data["toolCallId"]] = [data["input"]]
            case "TOOL_CALL_RESULT":
                calls[data["toolCallId"]].append(data["content"])
            case "tool-output-available" | "tool-output-error":
                calls[data["toolCallId"]].append(data.get("output", data.get("errorText")))
    return [*texts.values()], calls, told[-1]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("fold", [ag_ui, ai_sdk])
def test_a_page_that_comes_later_shows_the_same(fold: Any, task: str) -> None:
    first, past = asyncio.run(events_of(task))
    assert said(folded(fold(), first)) == said(folded(fold(), past))


@pytest.mark.parametrize("task", TASKS)
def test_each_event_of_ag_ui_is_valid_and_what_it_begins_it_ends(task: str) -> None:
    core: Any = pytest.importorskip("ag_ui.core", reason="ag-ui-protocol is not installed")
    is_event = TypeAdapter(core.Event)
    for events in asyncio.run(events_of(task)):
        told = folded(ag_ui(), events)
        for data in [*told, *ag_ui().failed("x", "y")]:
            again = is_event.validate_python(data).model_dump(by_alias=True, exclude_none=True, mode="json")
            assert {key: value for key, value in data.items() if value is not None} == again
    assert told[0]["type"] == "RUN_STARTED"
    assert told[-1]["type"] in ("RUN_FINISHED", "RUN_ERROR")
    for name in ("TEXT_MESSAGE", "TOOL_CALL", "REASONING"):
        assert types(told).count(f"{name}_START") == types(told).count(f"{name}_END")
    for name in ("STEP", "SUBAGENT"):
        assert types(told).count(f"{name}_STARTED") == types(told).count(f"{name}_FINISHED")


class TestAgUi:
    def told(self, task: str) -> list[dict[str, Any]]:
        return folded(ag_ui(), asyncio.run(events_of(task))[0])

    def test_functions_have_one_id_from_their_arguments_to_their_result(self) -> None:
        told = self.told("the weather?")
        start, given, end, result = [data for data in told if data["type"].startswith("TOOL_CALL")]
        assert {data["toolCallId"] for data in (start, given, end, result)} == {"1.0"}
        assert (start["toolCallName"], json.loads(given["delta"])) == ("weather", {"city": "Berlin"})
        assert json.loads(result["content"])["c"] == 11
        assert told[-1] == {
            "type": "RUN_FINISHED",
            "threadId": "t1",
            "runId": "r1",
            "result": 'It is so: {"city": "Berlin", "c": 11}',
            "outcome": {"type": "success"},
        }

    def test_an_agent_inside_is_told_as_such(self) -> None:
        told = self.told("translate")
        (began,) = [data for data in told if data["type"] == "SUBAGENT_STARTED"]
        assert (began["name"], began["parentToolCallId"]) == ("translator", "1.0")
        inner = [data["delta"] for data in told if data.get("subagentRunId") and "delta" in data]
        assert "".join(inner) == "Guten Tag"

    def test_progress_errors_and_what_was_not_run(self) -> None:
        (progress,) = [data for data in self.told("copy") if data["type"] == "CUSTOM"]
        assert progress["value"] == {"toolCallId": "1.0", "data": {"percent": 50}}
        (result,) = [data for data in self.told("broken") if data["type"] == "TOOL_CALL_RESULT"]
        assert "attic" in result["content"]
        assert result["rawEvent"]["outcome"] == "failed"
        (result,) = [data for data in self.told("nothing") if data["type"] == "TOOL_CALL_RESULT"]
        assert (result["content"], result["rawEvent"]["outcome"]) == ("it was not run", "failed")
        end = self.told("fail")[-1]
        assert (end["type"], end["code"], "no key" in end["message"]) == ("RUN_ERROR", "model_failed", True)

    def test_a_question_is_an_interrupt_that_may_edit_the_arguments(self) -> None:
        end = self.told("refund")[-1]
        (asked,) = end["outcome"]["interrupts"]
        assert (asked["id"], asked["toolCallId"], asked["message"]) == ("ask:1.0", "1.0", "refund")
        assert asked["metadata"]["about"]["arguments"] == {"order": "A-17", "euros": 20}
        assert asked["responseSchema"]["properties"]["editedArgs"]["required"] == ["order", "euros"]

    def test_a_flow_tells_its_states_and_ends_them_when_it_waits(self) -> None:
        told = self.told("letter")
        steps = [(data["type"], data["stepName"]) for data in told if data["type"].startswith("STEP")]
        both = [(f"STEP_{kind}", name) for name in ("writing", "review") for kind in ("STARTED", "FINISHED")]
        assert steps == both
        assert told[-1]["outcome"]["interrupts"][0]["reason"] == "answer"

    def test_partial_output_is_a_snapshot(self) -> None:
        agent = Agent(Script(Pieces('{"a": 1', ', "b": 2}')), output=dict[str, int])
        told = folded(ag_ui(), [*agent.stream("?")])
        assert [data["snapshot"] for data in told if data["type"] == "STATE_SNAPSHOT"][-1] == {"a": 1, "b": 2}
        assert told[-1]["result"] == {"a": 1, "b": 2}


@pytest.mark.parametrize("translator", [ag_ui, ai_sdk])
async def test_a_reply_that_begins_as_the_one_before_is_told_whole(translator: Any) -> None:
    """A journal has no pieces, and does not say when a request was sent."""
    model = Script([function_call("look"), "Wait"], "Wait. It is done.")
    agent = Agent(model, name="host", functions=[Function.of(look)], store=MemoryStore())
    await agent.acall("Look.", run_id="r")
    async with RunFollower(agent, drives=False) as follower:
        events = [event async for _, event in follower.follow("r")]
    texts, calls, _ = said(folded(translator(), events))
    assert (texts, len(calls)) == (["Wait", "Wait. It is done."], 1)


def look() -> str:
    """Look."""
    return "found"


class TestAiSdk:
    def told(self, task: str) -> list[dict[str, Any]]:
        return folded(ai_sdk(), asyncio.run(events_of(task))[0])

    def test_steps_functions_and_the_end(self) -> None:
        told = self.told("the weather?")
        assert types(told)[:4] == ["start", "start-step", "tool-input-start", "tool-input-available"]
        (result,) = [data for data in told if data["type"] == "tool-output-available"]
        assert result["output"] == {"city": "Berlin", "c": 11}
        assert types(told).count("start-step") == types(told).count("finish-step") == 2
        assert told[-1] == {"type": "finish", "finishReason": "stop"}

    def test_questions(self) -> None:
        asked, *_, end = self.told("refund")[-3:]
        assert asked == {"type": "tool-approval-request", "approvalId": "ask:1.0", "toolCallId": "1.0"}
        assert end["finishReason"] == "tool-calls"
        (question,) = [data["data"] for data in self.told("letter") if data["type"] == "data-question"]
        assert (question["kind"], question["about"]["question"]) == ("answer", "Dear reader")

    def test_agents_inside_and_progress_are_not_kept(self) -> None:
        inner = [data for data in self.told("translate") if data["type"] == "data-inside"]
        assert all(data["transient"] for data in inner)
        assert {data["data"]["name"] for data in inner} == {"translator"}
        assert [data["transient"] for data in self.told("copy") if data["type"] == "data-progress"] == [True]

    def test_only_a_new_message_tells_a_function_again_that_was_asked_in_another(self) -> None:
        events: list[Event] = [FunctionStarted("1.0", "f", '{"n": 1}'), FunctionEnded("1.0", "f", "x", False, 0.0)]
        inputs = [data["input"] for data in folded(AiSdk("m"), events) if data["type"] == "tool-input-available"]
        assert inputs == [{"n": 1}]
        assert types(folded(AiSdk("m", is_continued=True), events)) == ["start", "tool-output-available"]

    def test_failures(self) -> None:
        told = self.told("fail")
        assert types(told)[-3:] == ["error", "finish-step", "finish"] or types(told)[-2:] == ["error", "finish"]
        assert "no key" in next(data["errorText"] for data in told if data["type"] == "error")


def reply(*parts: Any) -> ReplyCompleted:
    return ReplyCompleted(Reply(message=Message.of("assistant", *parts)))


class TestReplies:
    def test_only_the_rest_is_told_of_a_reply_of_which_pieces_were_lost(self) -> None:
        told = folded(ag_ui(), [RequestStarted(1, 1), TextDelta("Hel"), reply("Hello")])
        assert [data["delta"] for data in told if "delta" in data] == ["Hel", "lo"]

    def test_a_reply_that_was_made_anew_is_another_message(self) -> None:
        told = folded(ag_ui(), [TextDelta("Hel"), reply("Good day")])
        assert said([*told, {"type": ""}])[0] == ["Hel", "Good day"]
        again = folded(ag_ui(), [TextDelta("Hel"), RequestStarted(2, 1), TextDelta("Good "), reply("Good day")])
        assert said([*again, {"type": ""}])[0] == ["Hel", "Good day"]

    def test_reasoning_comes_before_the_text(self) -> None:
        events: list[Event] = [ReasoningDelta("Hm."), TextDelta("Yes.")]
        whole = reply(Reasoning(text="Hm."), "Yes.")
        streams: list[list[Event]] = [[*events, whole], [whole]]
        for each in streams:
            kinds = [kind for kind in types(folded(ag_ui(), each)) if kind.endswith("_CONTENT")]
            assert kinds == ["REASONING_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT"]
            assert "reasoning-delta" in types(folded(ai_sdk(), each))

    @examples(100)
    @given(st.text(max_size=30), st.lists(st.integers(0, 30), max_size=5), st.integers(0, 5))
    def test_any_pieces_and_then_the_whole_are_the_text(self, text: str, cuts: list[int], most: int) -> None:
        ends = sorted({0, len(text), *[cut for cut in cuts if cut < len(text)]})
        pieces = [text[a:b] for a, b in pairwise(ends)][:most]
        told = folded(ag_ui(), [*map(TextDelta, pieces), reply(Text(text))])
        assert "".join([data["delta"] for data in told if "delta" in data]) == text


@pytest.mark.nightly
@pytest.mark.parametrize("translator", [ag_ui, ai_sdk])
@pytest.mark.parametrize("piece", [TextDelta("x" * 200), ReasoningDelta("x" * 200), ArgumentsDelta(0, "x" * 200)])
def test_time_is_linear_in_the_pieces_of_a_reply(translator: Any, piece: Event) -> None:
    def told(events: list[Event]) -> None:
        assert folded(translator(), [FunctionCallStarted(0, "1.0", "look"), *events])

    assert growth(lambda size: [piece] * size, told, 1000) < 3


class TestSecrets:
    def test_arguments_and_results_are_masked(self) -> None:
        asked = function_call("log_in", user="ann", password="swordfish")
        events: list[Event] = [
            reply(asked),
            HistoryChanged((1, 2), (1, 1)),
            FunctionEnded("1.0", "log_in", f"the key is {KEY}", False, 0.0),
            Inside("run:1.0", FunctionEnded("9.0", "x", "y", False, 0.0)),
        ]
        for fold in (ag_ui(), ai_sdk()):
            told = json.dumps(folded(fold, events))
            assert "ann" in told
            assert "swordfish" not in told
            assert KEY not in told


class TestBodies:
    def test_of_ag_ui(self) -> None:
        body: dict[str, Any] = {"threadId": "t", "runId": "r", "state": {}, "tools": []}
        content = [
            {"type": "text", "text": "Look:"},
            {"type": "image", "source": {"type": "data", "value": PNG, "mimeType": "image/png"}},
        ]
        asked = AgUi.read({**body, "messages": [{"role": "user", "id": "1", "content": content}]})
        assert (asked.conversation, asked.run, asked.answers) == ("t", "r", {})
        assert asked.message is not None
        assert isinstance(asked.message.parts[1], Image)
        entries = [
            {"interruptId": "a", "status": "resolved", "payload": {"approved": True}},
            {"interruptId": "b", "status": "resolved", "payload": {"approved": True, "editedArgs": {"n": 1}}},
            {"interruptId": "c", "status": "resolved", "payload": {"approved": False, "reason": "no"}},
            {"interruptId": "d", "status": "cancelled"},
            {"interruptId": "e", "status": "resolved", "payload": "fine"},
        ]
        answers = AgUi.read({**body, "messages": [], "resume": entries}).answers
        assert answers == {
            "a": Approved(),
            "b": Modified('{"n": 1}'),
            "c": Denied("no"),
            "d": Denied("cancelled"),
            "e": "fine",
        }

    def test_of_the_ai_sdk(self) -> None:
        parts = [
            {"type": "text", "text": "Look:"},
            {"type": "file", "mediaType": "image/png", "url": f"data:image/png;base64,{PNG}"},
        ]
        asked = AiSdk.read({"id": "c", "messages": [{"id": "m", "role": "user", "parts": parts}]})
        assert (asked.conversation, asked.run) == ("c", "m")
        assert asked.message is not None
        assert isinstance(asked.message.parts[1], Image)
        responded = {
            "type": "dynamic-tool",
            "state": "approval-responded",
            "approval": {"id": "ask:1.0", "approved": True},
        }
        before = {"type": "dynamic-tool", "state": "output-available", "approval": {"id": "ask:0.0", "approved": True}}
        spoken = [{"type": "text", "text": "May I?"}, before, responded]
        answered = AiSdk.read({"id": "c", "messages": [{"id": "m", "role": "assistant", "parts": spoken}]})
        assert answered.answers == {"ask:1.0": Approved()}
        data = [
            {"type": "data-answer", "data": {"key": "a", "approved": True, "arguments": {"n": 1}}},
            {"type": "data-answer", "data": {"key": "b", "value": "fine"}},
        ]
        answered = AiSdk.read({"id": "c", "messages": [{"id": "m", "role": "user", "parts": data}]})
        assert answered.answers == {"a": Modified('{"n": 1}'), "b": "fine"}

    @pytest.mark.parametrize("read", [AgUi.read, AiSdk.read])
    @pytest.mark.parametrize(
        ("body", "code"),
        [
            ([], "bad_body"),
            ({"by": "the boss"}, "claimed_user"),
            ({"threadId": 7, "id": 7}, "bad_body"),
            ({"threadId": "t", "runId": "r", "id": "c"}, "no_message"),
            ({"threadId": "\0", "runId": "r", "id": "x" * 201}, "bad_name"),
            ({"threadId": "t", "runId": "r", "id": "c", "messages": [{"role": "tool"}]}, "no_message"),
            ({"threadId": "t", "runId": "r", "id": "c", "messages": [EMPTY]}, "no_message"),
        ],
    )
    def test_that_are_wrong_are_named(self, read: Any, body: Any, code: str) -> None:
        with pytest.raises(BadRequest) as caught:
            read(body)
        assert caught.value.code == code

    def test_json_is_bounded(self) -> None:
        for body, code in (
            (b"x" * 5_000_001, "too_large"),
            (b"{", "bad_json"),
            (b"\xff", "bad_json"),
            (b"[" * 100_000, "bad_json"),
        ):
            with pytest.raises(BadRequest) as caught:
                read_json(body)
            assert caught.value.code == code


class TestServerEvents:
    async def test_what_a_client_can_mend_is_told(self) -> None:
        *_, told = [line async for line in sse(failing(BadRequest(f"no: {KEY}", "bad_name")), ag_ui(), end="")]
        assert json.loads(told[6:]) == {"type": "RUN_ERROR", "message": "no: sk-a***", "code": "bad_name"}

    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (ZeroDivisionError("/srv/runs.db"), "InternalError"),
            (StoreError("/srv/runs.db cannot be opened"), "StoreError"),
            (RunBusy("r1", "/srv/runs.db", since_s=0.0, until_s=1.0), "RunBusy"),
            (UsageError("deps=: expected a Shop of /srv/runs.db, got None"), "UsageError"),
        ],
    )
    async def test_what_no_client_can_mend_is_told_by_its_place_in_the_log(
        self, error: Exception, code: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        *_, told = [line async for line in sse(failing(error), ag_ui())]
        assert json.loads(told[6:])["code"] == code
        assert "/srv" not in told
        (record,) = caplog.records
        assert record.exc_info is not None
        assert record.exc_info[1] is error
        assert record.args[0] in told

    async def test_a_quiet_connection_is_kept_alive_and_closed_with_its_client(self) -> None:
        closed = []

        async def quiet() -> Any:
            try:
                yield 1, TextDelta("a")
                await asyncio.Event().wait()
            finally:
                closed.append(True)

        lines = sse(quiet(), ag_ui(), alive_s=0.001)
        found = [await anext(lines) for _ in range(5)]
        await lines.aclose()
        assert (found[1].partition("\n")[0], found[-1], closed) == ("id: 1", ": alive\n\n", [True])


@pytest.mark.parametrize("translator", [ag_ui, ai_sdk, JsonEvents])
async def test_what_was_refused_has_no_start(translator: Any) -> None:
    """A client would take a run for begun, and forget what its user has typed."""
    lines = [line async for line in sse(failing(BadRequest("no name", "bad_name")), translator())]
    expected = [f"data: {json.dumps(data)}\n\n" for data in translator().failed("no name", "bad_name")]
    assert lines == expected


async def test_events_of_ones_own_front_end_are_json_with_the_path_of_what_is_inside() -> None:
    """They are the events of the run, in order.  A stream that fails ends with an error."""
    events, _ = await events_of("translate")
    told = json.loads(json.dumps(folded(JsonEvents(), events)))
    assert len(told) == len(events)
    assert told[-1]["type"] == "result"
    inside = [data for data in told if data.get("path") == "run:1.0"]
    assert [data["text"] for data in inside if data["type"] == "reply_completed"] == ["Guten Tag"]
    piece = Inside("run:1.0", TextDelta("Guten"))  # a listener who comes late gets no pieces
    assert folded(JsonEvents(), [piece]) == [{"type": "text_delta", "text": "Guten", "path": "run:1.0"}]
    (failed,) = [line async for line in sse(failing(BadRequest("no name", "bad_name")), JsonEvents())]
    assert json.loads(failed.partition("data: ")[2]) == {"type": "error", "message": "no name", "code": "bad_name"}
