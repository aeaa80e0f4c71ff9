"""Is what real services sent over the Responses API read as it was meant, and what they were sent said as well?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from support.recorded_inputs import Body, built, meaning, without_messages_between_calls
from support.recordings import RECORDED, needs_recorded
from support.response_bodies import CODEC
from support.wire_samples import adapter
from wire_check import Case, cases, decoded, problems

from fsm_agent.lifecycle import Request, Settings
from fsm_agent.messages import Message, Opaque, Reasoning, Reply, Text
from fsm_agent.providers import OpenAIChat, Profile

TOLD = ("message", "reasoning", "function_call", "custom_tool_call")  # items that everybody understands


@cache
def recorded() -> list[Case]:
    return list(cases(RECORDED, "openai_responses"))


def replies() -> Iterator[tuple[Case, Reply]]:
    for case in recorded():
        outcome, _ = decoded(CODEC, case)
        if isinstance(outcome, Reply):
            yield case, outcome


@needs_recorded
@pytest.mark.parametrize("provenance", ["recorded", "response_only", "constructed"])
def test_recorded_responses_are_read_as_expected(provenance: str) -> None:
    chosen = [case for case in recorded() if case["provenance"].endswith(provenance)]
    assert chosen
    found = [f"{case['provider']}/{case['id']}: {problem}" for case in chosen for problem in problems(CODEC, case)]
    assert not found


@needs_recorded
def test_every_text_and_thought_is_a_part() -> None:
    for case, reply in replies():
        texts = [part.text for part in reply.message.parts if isinstance(part, Text)]
        assert texts == [text for text in case["expected"]["text_parts"] if text], case["id"]
        thoughts = [part.text for part in reply.message.parts if isinstance(part, Reasoning)]
        assert thoughts == case["expected"]["reasoning_parts"], case["id"]


@needs_recorded
def test_what_the_service_ran_is_kept() -> None:
    for case, reply in replies():
        kinds = [part.data["type"] for part in reply.message.parts if isinstance(part, Opaque)]
        ran = [call["type"] for call in case["expected"]["server_tool_calls"]]
        assert [kind for kind in kinds if kind not in TOLD] == ran, case["id"]


# Where what we send differs on purpose, and why.
INTENDED = {
    "a message between calls is refused by DeepSeek: texts from elsewhere are one, before the calls": (
        without_messages_between_calls
    ),
}


@needs_recorded
def test_recorded_requests_mean_what_ours_do() -> None:
    compared, used = 0, set()
    for case in recorded():
        body = (case["request"] or {}).get("json")
        if not body:
            continue
        request, profile = built(body)
        ours = meaning(CODEC.encode(request, model=body["model"], profile=profile, stream=bool(body.get("stream"))))
        compared += 1
        if ours != meaning(body):
            reasons = [reason for reason, change in INTENDED.items() if ours == meaning(change(body))]
            assert reasons, (case["id"], ours, meaning(body))
            used |= set(reasons)
    assert compared == len([case for case in recorded() if (case["request"] or {}).get("json")]) > 100
    assert used == set(INTENDED)


def output_of(case: Case) -> list[Any]:
    """The items of a response."""
    whole = case["response"].get("json")
    if whole is None:
        lines = [line[6:] for line in case["response"]["sse"].splitlines() if line.startswith("data: {")]
        whole = next(
            event["response"] for line in reversed(lines) if "output" in (event := json.loads(line))["response"]
        )
    return list(whole["output"])


GIVEN_ONLY = {"reasoning": {"status"}, "function_call": {"status"}, "custom_tool_call": {"status"}}
GIVEN_ONLY["image_generation_call"] = {"background", "output_format", "quality", "revised_prompt", "size"}


def without_what_is_only_given(item: Any) -> Any:
    left = {key: value for key, value in item.items() if key not in GIVEN_ONLY.get(item["type"], ())}
    if item["type"] == "reasoning" and not item.get("content"):
        left.pop("content", None)
    if item["type"] == "message":
        left["content"] = [{key: part[key] for key in part if key != "logprobs"} for part in item["content"]]
    if item["type"] == "function_call":
        left["arguments"] = json.loads(item["arguments"])
    return left


def sent_back(message: Message, *, is_stored: bool = True) -> Body:
    settings = Settings(extra_body={"store": is_stored})
    request = Request(messages=[message, Message.of("user", "Go on.")], settings=settings)
    return CODEC.encode(request, model="m1", profile=Profile(), stream=False)


@needs_recorded
def test_what_a_service_said_goes_back_unchanged() -> None:
    for case, reply in replies():
        output = [without_what_is_only_given(item) for item in output_of(case)]
        while output and output[-1]["type"] == "reasoning":  # refused without what came of it
            output.pop()
        *back, _ = sent_back(reply.message)["input"]
        assert [without_what_is_only_given(item) for item in back] == output, case["id"]


@pytest.mark.nightly
@needs_recorded
def test_what_goes_back_is_what_the_official_sdk_takes() -> None:
    params = pytest.importorskip("openai.types.responses.response_create_params", reason="the SDK is not installed")
    takes = adapter(params.ResponseCreateParamsNonStreaming)
    for case, reply in replies():
        if case["provider"] == "xai" and case["expected"]["server_tool_calls"]:  # of which it has a dialect of its own
            continue
        sent = sent_back(reply.message, is_stored=False)
        taken = takes.validate_python(sent)
        assert [item.get("type") for item in taken["input"]] == [item.get("type") for item in sent["input"]], case["id"]


@needs_recorded
def test_another_wire_gets_nothing_that_only_this_one_understands() -> None:
    for case, reply in replies():
        request = Request(messages=[reply.message])
        body = OpenAIChat().encode(request, model="m1", profile=Profile(reasoning_name="reasoning"), stream=False)
        (entry,) = body["messages"]
        assert entry.keys() <= {"role", "content", "reasoning", "tool_calls"}
        assert entry["content"] == (case["expected"]["text"] or "")
        assert len(entry.get("tool_calls", ())) == len(case["expected"]["tool_calls"])


@needs_recorded
def test_a_conversation_is_told_as_it_was() -> None:
    """Where a recorded request tells what the service said before, with ids, ours tells the same of its reply."""
    by_turn = {(case["conversation"]["id"], case["conversation"]["turn"]): case for case in recorded()}
    compared = 0
    for case, reply in replies():
        key = case["conversation"]["id"], case["conversation"]["turn"] + 1
        later = ((by_turn.get(key) or {}).get("request") or {}).get("json") or {}
        told = {item["id"]: item for item in later.get("input", ()) if isinstance(item, dict) and item.get("id")}
        *ours, _ = sent_back(reply.message)["input"]
        for item in ours:
            theirs = told.get(item.get("id"))
            if theirs and theirs.get("call_id") == item.get("call_id") and item["type"] in TOLD:
                (wanted,), (got,) = meaning({"input": [theirs]})["input"], meaning({"input": [item]})["input"]
                assert wanted.keys() - got.keys() <= {"namespace"}, case["id"]  # which that client adds
                assert {**wanted, **{key: got[key] for key in wanted if key in got}} == wanted
                compared += 1
    assert compared > 20
