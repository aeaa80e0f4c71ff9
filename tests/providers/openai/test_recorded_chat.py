"""Is what real services sent in chat completions read as it was meant, and what they were sent said as well?"""

from __future__ import annotations

from functools import cache

import pytest
from support.chat_bodies import CODEC
from support.recorded_requests import built, meaning, unbuildable
from support.recordings import LOCAL, RECORDED, local_outcome, needs_local, needs_recorded
from wire_check import Case, cases, problems

from fsm_agent.errors import AuthFailed, BadReply, ContextTooLong, ProviderError
from fsm_agent.messages import Reply


@cache
def recorded() -> list[Case]:
    return list(cases(RECORDED, "openai_chat"))


@needs_recorded
@pytest.mark.parametrize("provenance", ["recorded", "reframed", "response_only", "quoted", "constructed"])
def test_recorded_responses_are_read_as_expected(provenance: str) -> None:
    chosen = [case for case in recorded() if case["provenance"].endswith(provenance)]
    assert chosen
    found = [f"{case['provider']}/{case['id']}: {problem}" for case in chosen for problem in problems(CODEC, case)]
    assert not found


@needs_recorded
def test_recorded_requests_mean_what_ours_do() -> None:
    compared, left_out = 0, set()
    for case in recorded():
        body = (case["request"] or {}).get("json")
        if not body or "messages" not in body:
            continue
        if reason := unbuildable(body):
            left_out.add(reason)
            continue
        request, profile = built(body)
        ours = CODEC.encode(request, model=body["model"], profile=profile, stream=bool(body.get("stream")))
        assert meaning(ours) == meaning(body), case["id"]
        compared += 1
    assert compared > 0.9 * len(recorded())
    assert left_out <= {"tools that the server runs", "the functions of the time before tools"}


@needs_local
def test_local_server_is_read() -> None:
    outcomes = {path.stem: local_outcome(CODEC, "/v1/chat/completions", path) for path in sorted(LOCAL.glob("*.txt"))}
    replies = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Reply)}
    errors = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, ProviderError)}
    assert len(replies) > 30
    for reply in replies.values():
        assert reply.finish in ("stop", "length", "tool_calls")
        assert reply.usage.input_tokens or reply.response_id
        for call in reply.message.function_calls:
            assert call.provider_id
            assert call.arguments or reply.finish == "length"
    assert not [name for name, error in errors.items() if isinstance(error, BadReply)]
    assert {name for name, error in errors.items() if error.retryable} == set()
    for name, error in errors.items():
        assert isinstance(error, ContextTooLong) == ("overflow" in name)
        assert isinstance(error, AuthFailed) == ("auth" in name)


@needs_local
@pytest.mark.parametrize(
    ("name", "tokens", "alternatives"), [("07-chat-logprobs", 2, 5), ("09-chat-stream-usage-logprobs", 3, 2)]
)
def test_local_logprobs_are_read(name: str, tokens: int, alternatives: int) -> None:
    reply = local_outcome(CODEC, "/v1/chat/completions", LOCAL / f"{name}.txt")
    assert isinstance(reply, Reply)
    assert [len(token.top) for token in reply.logprobs] == [alternatives] * tokens
