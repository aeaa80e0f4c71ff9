"""Is what Gemini really sent read as it was meant, and what it was sent said as well?"""

from __future__ import annotations

from functools import cache

import pytest
from support.gemini_bodies import CODEC
from support.recorded_gemini_requests import built, meaning
from support.recordings import RECORDED, needs_recorded
from wire_check import Case, cases, decoded, problems

from fsm_agent.errors import ContextTooLong, ProviderError, RateLimited
from fsm_agent.lifecycle import Request
from fsm_agent.messages import FunctionResult, Message, Opaque, Part, Reply
from fsm_agent.providers import OpenAIChat, Profile

pytestmark = needs_recorded


@cache
def recorded() -> list[Case]:
    return list(cases(RECORDED, "gemini"))


def replies() -> list[tuple[Case, Reply]]:
    outcomes = [(case, decoded(CODEC, case)[0]) for case in recorded()]
    return [(case, outcome) for case, outcome in outcomes if isinstance(outcome, Reply)]


@pytest.mark.parametrize("provenance", ["recorded", "reframed", "response_only"])
def test_recorded_responses_are_read_as_expected(provenance: str) -> None:
    chosen = [case for case in recorded() if case["provenance"] == provenance]
    assert chosen
    found = [f"{case['provider']}/{case['id']}: {problem}" for case in chosen for problem in problems(CODEC, case)]
    assert not found


def test_parts_of_whole_responses_stay_apart() -> None:
    compared = 0
    for case, reply in replies():
        if not case["stream"]:
            texts = [part.text for part in reply.message.parts if part.kind == "text" and part.text]
            thoughts = [part.text for part in reply.message.parts if part.kind == "reasoning"]
            assert texts == [text for text in case["expected"]["text_parts"] or () if text], case["id"]
            assert thoughts == (case["expected"]["reasoning_parts"] or []), case["id"]
            compared += 1
    assert compared > 50


def test_recorded_failures_have_their_kind() -> None:
    errors = [outcome for case in recorded() if isinstance(outcome := decoded(CODEC, case)[0], ProviderError)]
    kinds = {type(error): error for error in errors}
    assert kinds.keys() == {ProviderError, RateLimited, ContextTooLong}
    assert kinds[RateLimited].retry_after_s == 34.4


def test_recorded_requests_mean_what_ours_do() -> None:
    compared = 0
    for case in recorded():
        body = (case["request"] or {}).get("json")
        if not body:
            continue
        request, profile = built(body)
        model = case["url"].rpartition("/models/")[2].partition(":")[0]
        ours = CODEC.encode(request, model=model, profile=profile, stream=case["stream"])
        assert meaning(ours) == meaning(body), case["id"]
        compared += 1
    assert compared > 0.9 * len(recorded())


def test_recorded_requests_went_where_ours_go() -> None:
    for case in recorded():
        model = case["url"].rpartition("/models/")[2].partition(":")[0]
        assert case["url"].endswith(CODEC.path(model, stream=case["stream"])), case["id"]


def test_what_was_answered_goes_back_complete() -> None:
    """Every part that the service sent is sent back as it was; only thoughts without a signature are not wanted."""
    for case, reply in replies():
        if case["stream"] or not reply.message.parts:
            continue
        content = case["response"]["json"]["candidates"][0]["content"]
        came = [part for part in content["parts"] if not part.get("thought") or "thoughtSignature" in part]
        for part in came:
            if "functionCall" in part:
                part["functionCall"].setdefault("args", {})
        sent = CODEC.encode(Request(messages=[reply.message]), model="m1", profile=Profile(), stream=False)["contents"]
        signatures = {part.get("thoughtSignature") for part in came}
        unsigned = [
            {key: value for key, value in part.items() if key != "thoughtSignature" or value in signatures}
            for turn in sent
            for part in turn["parts"]
        ]
        assert unsigned == came, case["id"]


def test_what_was_answered_goes_to_another_wire_without_what_is_foreign() -> None:
    chat = OpenAIChat()
    for case, reply in replies():
        asked = [
            Message.of("user", "hi"),
            reply.message,
            Message.of("tool", *[returned(call) for call in reply.message.function_calls]),
        ]
        body = chat.encode(Request(messages=asked), model="m1", profile=Profile(), stream=False)
        _, answer, *results = body["messages"]
        assert answer["content"] == reply.message.text
        assert [call["id"] for call in answer.get("tool_calls", ())] == [entry["tool_call_id"] for entry in results]
        signatures = [part.data.get("thoughtSignature") for part in reply.message.parts if isinstance(part, Opaque)]
        assert not [signature for signature in signatures if signature and signature in str(body)], case["id"]


def returned(part: Part) -> FunctionResult:
    assert part.kind == "function_call"
    return FunctionResult(id=part.id, name=part.name, text="ok", provider_id=part.provider_id)
