"""Is what real services sent in Anthropic's wire read as it was meant, and what they were sent said as well?"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from support.copies import replace
from support.messages_bodies import CODEC, message
from support.recorded_messages import built, meaning
from support.recordings import LOCAL, RECORDED, local_outcome, needs_local, needs_recorded
from support.wire_samples import adapter
from test_anthropic import consumed
from test_anthropic_cache import marks
from wire_check import Case, cases, decoded, problems

from fsm_agent.errors import AuthFailed, ContextTooLong, UsageError
from fsm_agent.lifecycle import Request
from fsm_agent.messages import Message, Reasoning, Reply, Text
from fsm_agent.providers import AnthropicProfile


@cache
def recorded() -> list[Case]:
    return list(cases(RECORDED, "anthropic_messages"))


def requests() -> list[tuple[Case, dict[str, Any]]]:
    """The cases whose request was kept."""
    return [(case, case["request"]["json"]) for case in recorded() if (case["request"] or {}).get("json")]


def replies() -> list[tuple[Case, Reply]]:
    """The cases that are answers."""
    outcomes = [(case, decoded(CODEC, case)[0]) for case in recorded()]
    return [(case, reply) for case, reply in outcomes if isinstance(reply, Reply)]


def sent_back(reply: Reply) -> list[dict[str, Any]]:
    """The blocks in which a reply goes back to its provider."""
    request = Request(messages=[Message.of("user", "hi"), reply.message, Message.of("user", "?")])
    turns = CODEC.encode(request, model="m1", profile=AnthropicProfile(), stream=False)["messages"]
    if len(turns) == 1:
        return []
    content = turns[1]["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


@needs_recorded
@pytest.mark.parametrize("provenance", ["recorded", "reframed", "response_only", "quoted", "constructed"])
def test_recorded_responses_are_read_as_expected(provenance: str) -> None:
    chosen = [case for case in recorded() if case["provenance"].endswith(provenance)]
    assert chosen
    found = [f"{case['provider']}/{case['id']}: {problem}" for case in chosen for problem in problems(CODEC, case)]
    assert not found


@needs_recorded
def test_each_block_of_text_or_thinking_is_a_part() -> None:
    for case, reply in replies():
        for kind, name in ((Text, "text_parts"), (Reasoning, "reasoning_parts")):
            parts = [part.text for part in reply.message.parts if isinstance(part, kind) and part.text]
            assert parts == [text for text in case["expected"][name] if text], case["id"]


@needs_recorded
def test_recorded_requests_mean_what_ours_do() -> None:
    compared = 0
    for case, body in requests():
        request, profile = built(body)
        if not body["messages"]:
            with pytest.raises(UsageError, match="nothing to answer"):  # the service says 400 to it
                CODEC.encode(request, model=body["model"], profile=profile, stream=False)
            continue
        ours = CODEC.encode(request, model=body["model"], profile=profile, stream=bool(body.get("stream")))
        assert meaning(ours) == meaning(body), case["id"]
        compared += 1
    assert compared > 0.75 * len(recorded())


@needs_recorded
def test_recorded_breakpoints_are_where_ours_are() -> None:
    """Where a client set all three of its breakpoints, so do we, when told to, and nowhere else."""
    compared = 0
    for case, body in requests():
        if marks(body.get("tools")) and marks(body.get("system")) and marks(body["messages"]):
            request, profile = built(unmarked(body))
            request = request.changed(settings=replace(request.settings, cache="5m"))
            ours = CODEC.encode(request, model=body["model"], profile=profile, stream=bool(body.get("stream")))
            assert [marks(ours[key]) for key in ("tools", "system", "messages")] == [
                marks(body[key]) for key in ("tools", "system", "messages")
            ], case["id"]
            compared += 1
    assert compared


def unmarked(value: Any) -> Any:
    """Without its breakpoints."""
    if isinstance(value, list):
        return [unmarked(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: unmarked(inner) for key, inner in value.items() if key != "cache_control"}


def without_nothing(block: dict[str, Any]) -> dict[str, Any]:
    """A block without what says nothing: keys of no value, and the usual caller."""
    return {key: value for key, value in block.items() if value is not None and value != {"type": "direct"}}


@needs_recorded
def test_recorded_reply_goes_back_unchanged() -> None:
    compared = 0
    for case, reply in replies():
        content = case["response"].get("json", {}).get("content")
        if content is None:
            continue
        kept = [
            without_nothing(block)
            for block in content
            if block.get("text") != "" and not (block["type"] == "thinking" and not block.get("signature"))
        ]
        assert [without_nothing(block) for block in sent_back(reply)] == kept, case["id"]
        compared += 1
    assert compared > 80


@needs_recorded
def test_recorded_stream_goes_back_as_it_was_read() -> None:
    streams = [(case, reply) for case, reply in replies() if case["stream"]]
    assert len(streams) > 20
    for case, reply in streams:
        blocks = sent_back(reply)
        assert sent_back(CODEC.decode(200, {}, message(*blocks))) == blocks, case["id"]
        signed = [block for block in blocks if block["type"] == "thinking" and block["signature"]]
        redacted = [block for block in blocks if block["type"] == "redacted_thinking"]
        assert len(signed) == case["info"].get("n_signatures", 0), case["id"]
        assert len(redacted) == case["info"].get("n_redacted_thinking", 0), case["id"]


@pytest.mark.nightly  # to read the beta types of the SDK takes two seconds
@needs_recorded
def test_requests_of_recorded_dialogs_are_what_the_official_sdk_takes() -> None:
    params = pytest.importorskip("anthropic.types.beta.message_create_params", reason="the SDK is not installed")
    kind = adapter(params.MessageCreateParamsNonStreaming)  # to stream is one key more
    for case, body in requests():
        if body["messages"]:
            request, profile = built(body)
            ours = CODEC.encode(request, model=body["model"], profile=profile, stream=False)
            # What the SDK does not know would be missing; it knows no sampling settings any more.
            read = consumed(kind.validate_python(ours))
            assert read.keys() == ours.keys() - {"temperature", "top_p", "top_k"}, case["id"]
            assert read["messages"] == ours["messages"], case["id"]
            assert read.get("system") == ours.get("system"), case["id"]
            assert read.get("output_config") == ours.get("output_config"), case["id"]


@needs_local
def test_local_server_is_read() -> None:
    outcomes = {path.stem: local_outcome(CODEC, "/v1/messages", path) for path in sorted(LOCAL.glob("*.txt"))}
    found = {name: outcome for name, outcome in outcomes.items() if outcome is not None}
    assert len(found) > 8
    for name, outcome in found.items():
        if isinstance(outcome, Reply):
            assert outcome.finish in ("stop", "length", "tool_calls"), name
            assert outcome.usage.input_tokens, name
            assert all(json.loads(call.arguments_json) is not None for call in outcome.message.function_calls), name
        else:
            assert isinstance(outcome, ContextTooLong) == ("overflow" in name), name
            assert isinstance(outcome, AuthFailed) == ("auth" in name), name
            assert not outcome.retryable, name
