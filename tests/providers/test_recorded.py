"""Are replies of real services read as they were meant, and are requests to them written like the recorded ones?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from support import recorded_gemini_requests, recorded_inputs, recorded_messages, recorded_requests
from support.copies import replace
from support.messages_bodies import marks, message
from support.recordings import LOCAL, RECORDED, local_outcome, needs_local, needs_recorded
from support.wire_samples import adapter, consumed
from wire_check import CODECS, Case, cases, decoded, problems

from fsm_agent.call import Request
from fsm_agent.errors import AuthFailed, BadReply, ContextTooLong, ProviderError, UsageError
from fsm_agent.messages import FunctionResult, Message, Opaque, Reasoning, Reply, Settings, Text
from fsm_agent.providers import AnthropicProfile, OpenAIChatCodec, Profile

CHAT, RESPONSES, ANTHROPIC, GEMINI = "openai_chat", "openai_responses", "anthropic_messages", "gemini"
REQUESTS: dict[str, Any] = {
    CHAT: recorded_requests,
    RESPONSES: recorded_inputs,
    ANTHROPIC: recorded_messages,
    GEMINI: recorded_gemini_requests,
}
USER = Message.of("user", "hi")
Body = dict[str, Any]


@cache
def recorded(api: str) -> list[Case]:
    return list(cases(RECORDED, api))


def replies(api: str) -> Iterator[tuple[Case, Reply]]:
    """The cases that are answers."""
    for case in recorded(api):
        outcome, _ = decoded(CODECS[api], case)
        if isinstance(outcome, Reply):
            yield case, outcome


def requests(api: str) -> list[tuple[Case, Body]]:
    """The cases whose request was kept, and could be ours."""
    kept = [(case, case["request"]["json"]) for case in recorded(api) if (case["request"] or {}).get("json")]
    return [(case, body) for case, body in kept if api != CHAT or not recorded_requests.unbuildable(body)]


def encoded(api: str, *messages: Message, profile: Profile | None = None, **settings: Any) -> Body:
    request = Request(messages=messages, settings=Settings(**settings))
    return json.loads(CODECS[api].encode(request, model="m1", profile=profile or Profile(), stream=False))


def model_of(case: Case) -> str:
    if case["api"] == GEMINI:
        return case["url"].rpartition("/models/")[2].partition(":")[0]
    return case["request"]["json"]["model"]


@needs_recorded
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("api", CODECS)
def test_recorded_responses_are_read_as_expected(api: str, part: int) -> None:
    chosen = recorded(api)[part::4]
    assert chosen
    found = [f"{case['provider']}/{case['id']}: {text}" for case in chosen for text in problems(CODECS[api], case)]
    assert not found


@needs_recorded
@pytest.mark.parametrize("api", [RESPONSES, ANTHROPIC, GEMINI])
def test_each_text_or_thought_is_a_part(api: str) -> None:
    for case, reply in replies(api):
        if case["stream"] and api == GEMINI:  # which has no ends of parts there
            continue
        for kind, name in ((Text, "text_parts"), (Reasoning, "reasoning_parts")):
            parts = [part.text for part in reply.message.parts if isinstance(part, kind) and part.text]
            assert parts == [text for text in case["expected"][name] or () if text], case["id"]


# Where what we send differs on purpose, and why.
INTENDED = {
    "a message between calls is refused by DeepSeek: texts from elsewhere are one, before the calls": (
        recorded_inputs.without_messages_between_calls
    ),
    "the objects of an output are closed: properties beside its own would be dropped in silence": (
        recorded_inputs.with_closed_objects
    ),
}


@needs_recorded
@pytest.mark.parametrize("api", CODECS)
def test_recorded_requests_mean_what_ours_do(api: str) -> None:
    compared = 0
    meaning = REQUESTS[api].meaning
    for case, body in requests(api):
        request, profile = REQUESTS[api].built(body)
        how = {"model": model_of(case), "profile": profile, "stream": bool(body.get("stream"))}
        if body.get("messages") == []:
            with pytest.raises(UsageError):  # the service says 400 to it
                CODECS[api].encode(request, **how)
            continue
        ours = meaning(json.loads(CODECS[api].encode(request, **how)))
        assert ours == meaning(body) or ours in [meaning(change(body)) for change in INTENDED.values()], case["id"]
        compared += 1
    assert compared > 0.6 * len(recorded(api))


@needs_recorded
def test_recorded_requests_to_gemini_went_where_ours_go() -> None:
    for case in recorded(GEMINI):
        assert case["url"].endswith(CODECS[GEMINI].path(model_of(case), stream=case["stream"])), case["id"]


def unmarked(value: Any) -> Any:
    """Without its breakpoints."""
    if isinstance(value, list):
        return [unmarked(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: unmarked(inner) for key, inner in value.items() if key != "cache_control"}


@needs_recorded
def test_recorded_breakpoints_are_where_ours_are() -> None:
    """Where a client set all three of its breakpoints, so do we, when told to, and nowhere else."""
    compared = 0
    for case, body in requests(ANTHROPIC):
        theirs = [marks(body.get(key)) for key in ("tools", "system", "messages")]
        if all(theirs):
            request, profile = recorded_messages.built(unmarked(body))
            request = request.changed(settings=replace(request.settings, cache="5m"))
            ours = json.loads(CODECS[ANTHROPIC].encode(request, model=body["model"], profile=profile, stream=False))
            assert [marks(ours[key]) for key in ("tools", "system", "messages")] == theirs, case["id"]
            compared += 1
    assert compared


def blocks_of(reply: Reply) -> list[Body]:
    """The blocks in which a reply goes back to Anthropic."""
    turns = encoded(ANTHROPIC, USER, reply.message, USER, profile=AnthropicProfile())["messages"]
    content = turns[1]["content"] if len(turns) > 1 else []
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def without_nothing(block: Body) -> Body:
    """A block without what says nothing: keys of no value, and the usual caller."""
    return {key: value for key, value in block.items() if value is not None and value != {"type": "direct"}}


@needs_recorded
def test_what_anthropic_said_goes_back_unchanged() -> None:
    compared = 0
    for case, reply in replies(ANTHROPIC):
        content = case["response"].get("json", {}).get("content")
        if content is not None:
            kept = [
                without_nothing(block)
                for block in content
                if block.get("text") != "" and not (block["type"] == "thinking" and not block.get("signature"))
            ]
            assert [without_nothing(block) for block in blocks_of(reply)] == kept, case["id"]
            compared += 1
        elif case["stream"]:
            blocks = blocks_of(reply)
            again = CODECS[ANTHROPIC].decode(200, {}, message(*blocks))
            assert blocks_of(again) == blocks, case["id"]
            signed = [block for block in blocks if block["type"] == "thinking" and block["signature"]]
            redacted = [block for block in blocks if block["type"] == "redacted_thinking"]
            assert len(signed) == case["info"].get("n_signatures", 0), case["id"]
            assert len(redacted) == case["info"].get("n_redacted_thinking", 0), case["id"]
            compared += 1
    assert compared > 100


@needs_recorded
def test_what_gemini_said_goes_back_complete() -> None:
    """Every part from the service is sent back unchanged, except thoughts without a signature."""
    for case, reply in replies(GEMINI):
        if case["stream"] or not reply.message.parts:
            continue
        content = case["response"]["json"]["candidates"][0]["content"]
        came = [part for part in content["parts"] if not part.get("thought") or "thoughtSignature" in part]
        for part in came:
            if "functionCall" in part:
                part["functionCall"].setdefault("args", {})
        signatures = {part.get("thoughtSignature") for part in came}
        sent = [
            {key: value for key, value in part.items() if key != "thoughtSignature" or value in signatures}
            for turn in encoded(GEMINI, reply.message)["contents"][1:]  # after the user's turn that opens a dialog
            for part in turn["parts"]
        ]
        assert sent == came, case["id"]


TOLD = ("message", "reasoning", "function_call", "custom_tool_call")  # items that everybody understands
GIVEN_ONLY = {"reasoning": {"status"}, "function_call": {"status"}, "custom_tool_call": {"status"}}
GIVEN_ONLY["image_generation_call"] = {"background", "output_format", "quality", "revised_prompt", "size"}


def output_of(case: Case) -> list[Any]:
    """The items of a response."""
    whole = case["response"].get("json")
    if whole is None:
        lines = [line[6:] for line in case["response"]["sse"].splitlines() if line.startswith("data: {")]
        whole = next(
            event["response"] for line in reversed(lines) if "output" in (event := json.loads(line))["response"]
        )
    return list(whole["output"])


def taken(item: Any) -> Any:
    """Return an item without its read-only fields."""
    left = {key: value for key, value in item.items() if key not in GIVEN_ONLY.get(item["type"], ())}
    if item["type"] == "reasoning" and not item.get("content"):
        left.pop("content", None)
    if item["type"] == "message":
        left["content"] = [{key: part[key] for key in part if key != "logprobs"} for part in item["content"]]
    if item["type"] == "function_call":
        left["arguments"] = json.loads(item["arguments"])
    return left


def items_of(reply: Reply) -> list[Any]:
    """The items in which a reply goes back to the Responses API."""
    *items, _ = encoded(RESPONSES, reply.message, USER, extra_body={"store": True})["input"]
    return items


@needs_recorded
def test_what_a_response_said_goes_back_unchanged() -> None:
    for case, reply in replies(RESPONSES):
        output = [taken(item) for item in output_of(case)]
        while output and output[-1]["type"] == "reasoning":  # refused without what came of it
            output.pop()
        assert [taken(item) for item in items_of(reply)] == output, case["id"]
        kinds = [part.data["type"] for part in reply.message.parts if isinstance(part, Opaque)]
        ran = [call["type"] for call in case["expected"]["server_tool_calls"]]
        assert [kind for kind in kinds if kind not in TOLD] == ran, case["id"]


@needs_recorded
def test_a_conversation_is_told_as_it_was() -> None:
    """Where a recorded request tells what the service said before, with ids, ours tells the same of its reply."""
    by_turn = {(case["conversation"]["id"], case["conversation"]["turn"]): case for case in recorded(RESPONSES)}
    compared, meaning = 0, recorded_inputs.meaning
    for case, reply in replies(RESPONSES):
        key = case["conversation"]["id"], case["conversation"]["turn"] + 1
        later = ((by_turn.get(key) or {}).get("request") or {}).get("json") or {}
        told = {item["id"]: item for item in later.get("input", ()) if isinstance(item, dict) and item.get("id")}
        for item in items_of(reply):
            theirs = told.get(item.get("id"))
            if theirs and theirs.get("call_id") == item.get("call_id") and item["type"] in TOLD:
                (wanted,), (got,) = meaning({"input": [theirs]})["input"], meaning({"input": [item]})["input"]
                assert wanted.keys() - got.keys() <= {"namespace"}, case["id"]  # which that client adds
                assert {**wanted, **{key: got[key] for key in wanted if key in got}} == wanted
                compared += 1
    assert compared > 20


@needs_recorded
@pytest.mark.parametrize("api", [RESPONSES, GEMINI])
def test_another_wire_gets_nothing_that_only_one_understands(api: str) -> None:
    profile = Profile(reasoning_name="reasoning")
    for case, reply in replies(api):
        calls = reply.message.function_calls
        results = [FunctionResult(id=c.id, name=c.name, text="ok", provider_id=c.provider_id) for c in calls]
        body = encoded(CHAT, reply.message, Message.of("tool", *results), profile=profile)
        entry, *answers = body["messages"]
        assert entry.keys() <= {"role", "content", "reasoning", "tool_calls"}
        assert entry["content"] == reply.message.text == (case["expected"]["text"] or "")
        assert [call["id"] for call in entry.get("tool_calls", ())] == [result["tool_call_id"] for result in answers]
        assert len(answers) == len(case["expected"]["tool_calls"] or ())
        data = [part.data for part in reply.message.parts if isinstance(part, Opaque)]
        signatures = [part.get("thoughtSignature") for part in data if isinstance(part, dict)]
        assert not [signature for signature in signatures if signature and signature in str(body)], case["id"]


@pytest.mark.nightly
@needs_recorded
def test_requests_of_recorded_dialogs_are_what_anthropics_sdk_takes() -> None:
    params = pytest.importorskip("anthropic.types.beta.message_create_params", reason="the SDK is not installed")
    kind = adapter(params.MessageCreateParamsNonStreaming)  # to stream is one key more
    for case, body in requests(ANTHROPIC):
        if body["messages"]:
            request, profile = recorded_messages.built(body)
            ours = json.loads(CODECS[ANTHROPIC].encode(request, model=body["model"], profile=profile, stream=False))
            # What the SDK does not know would be missing; it knows no sampling settings any more.
            read = consumed(kind.validate_python(ours))
            assert read.keys() == ours.keys() - {"temperature", "top_p", "top_k"}, case["id"]
            for key in ("messages", "system", "output_config"):
                assert read.get(key) == ours.get(key), case["id"]


@pytest.mark.nightly
@needs_recorded
def test_what_goes_back_is_what_openais_sdk_takes() -> None:
    params = pytest.importorskip("openai.types.responses.response_create_params", reason="the SDK is not installed")
    takes = adapter(params.ResponseCreateParamsNonStreaming)
    for case, reply in replies(RESPONSES):
        if case["provider"] == "xai" and case["expected"]["server_tool_calls"]:  # of which it has a dialect of its own
            continue
        sent = encoded(RESPONSES, reply.message, USER)
        read = takes.validate_python(sent)
        assert [item.get("type") for item in read["input"]] == [item.get("type") for item in sent["input"]], case["id"]


@needs_local
@pytest.mark.parametrize(("api", "address"), [(CHAT, "/v1/chat/completions"), (ANTHROPIC, "/v1/messages")])
def test_local_server_is_read(api: str, address: str) -> None:
    outcomes = {path.stem: local_outcome(CODECS[api], address, path) for path in sorted(LOCAL.glob("*.txt"))}
    found = {name: outcome for name, outcome in outcomes.items() if outcome is not None}
    assert len(found) > 8
    for name, outcome in found.items():
        if isinstance(outcome, Reply):
            assert outcome.finish in ("stop", "length", "tool_calls"), name
            assert outcome.usage.input_tokens or outcome.response_id, name
            for call in outcome.message.function_calls:
                assert call.provider_id, name
                assert call.arguments or outcome.finish == "length", name
        else:
            assert isinstance(outcome, ProviderError)
            assert isinstance(outcome, ContextTooLong) == ("overflow" in name), name
            assert isinstance(outcome, AuthFailed) == ("auth" in name), name
            assert not outcome.retryable, name
            assert not isinstance(outcome, BadReply), name


@needs_local
@pytest.mark.parametrize(
    ("name", "tokens", "alternatives"), [("07-chat-logprobs", 2, 5), ("09-chat-stream-usage-logprobs", 3, 2)]
)
def test_local_logprobs_are_read(name: str, tokens: int, alternatives: int) -> None:
    reply = local_outcome(OpenAIChatCodec(), "/v1/chat/completions", LOCAL / f"{name}.txt")
    assert isinstance(reply, Reply)
    assert [len(token.top) for token in reply.logprobs] == [alternatives] * tokens
