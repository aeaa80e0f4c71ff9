"""Is a chat completion read as it was meant, whole and in pieces, in every service's variant of the format?"""

from __future__ import annotations

import json
from typing import Any

import pytest
from conformance.streams import mismatch
from hypothesis import given
from hypothesis import strategies as st
from support.chat_bodies import CODEC, completion, sse, stream, streamed, whole
from support.stream_checks import check_mangled

from fsm_agent.errors import BadReply
from fsm_agent.messages import (
    ArgumentsDelta,
    FunctionCall,
    FunctionCallCompleted,
    FunctionCallStarted,
    Opaque,
    Reasoning,
    ReasoningDelta,
    Text,
    TextDelta,
    TokenLogprob,
    Usage,
    UsageReported,
)


def call(name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    """A call, or a piece of one, on the wire."""
    return {**more, "function": {"name": name, "arguments": arguments}}


def called(name: str, arguments: str, id: str | None = None) -> FunctionCall:
    return FunctionCall(name=name, arguments_json=arguments, provider_id=id)


def kept(*details: Any) -> Opaque:
    return Opaque(wire="openai-chat", data={"reasoning_details": list(details)})


HI, HM = Text("hi"), Reasoning(text="hm")
SAID = {"type": "text", "text": "hi"}
SIGNED = {"type": "reasoning.text", "text": "hm", "signature": "s"}
SUMMARY, SECRET = {"type": "reasoning.summary", "summary": "hm"}, {"type": "reasoning.encrypted", "data": "x"}
THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "h"}, {"type": "text", "text": "m"}]}
SUMMARISED = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}

MESSAGES: dict[str, tuple[dict[str, Any], tuple[Any, ...]]] = {
    "text": ({"content": "hi"}, (HI,)),
    "nothing": ({"content": None}, ()),
    "a part without a type": ({"content": [{"text": "h"}, {"type": "text", "text": "i"}]}, (HI,)),
    "bare strings": ({"content": ["h", "", "i"]}, (HI,)),
    "GitHub Copilot's reasoning": ({"content": "hi", "reasoning_text": "hm"}, (HM, HI)),
    "both, the same": ({"content": "hi", "reasoning": "hm", "reasoning_content": "hm"}, (HM, HI)),
    "an empty one and a full one": ({"reasoning_content": "", "reasoning": "hm"}, (HM,)),
    "reasoning that is no text": ({"content": "hi", "reasoning": {"effort": "low"}}, (HI,)),
    "thinking parts": ({"content": [THINKING, {"type": "reference", "ids": [1]}, SAID]}, (HM, HI)),
    "reasoning parts": ({"content": [SUMMARISED, SAID]}, (HM, HI)),
    "empty thinking": ({"content": [{"type": "thinking", "thinking": []}, SAID, 7]}, (HI,)),
    "reasoning_details": ({"content": "hi", "reasoning": "hm", "reasoning_details": [SIGNED]}, (kept(SIGNED), HM, HI)),
    "reasoning_details alone": ({"reasoning_details": [SUMMARY, SECRET, 7]}, (kept(SUMMARY, SECRET), HM)),
    "an object": ({"content": {"a": [1]}}, (Text('{"a":[1]}'),)),
    "a call": (
        {"content": "", "tool_calls": [call("f", '{"a": 1}', id="c1", type="function")]},
        (called("f", '{"a": 1}', "c1"),),
    ),
    "calls without id, type and index": (
        {"tool_calls": [call("f", "{}"), call("f", "{}", id="")]},
        (called("f", "{}"), called("f", "{}")),
    ),
    "calls of one index": (
        {"tool_calls": [call("f", "{", index=0, id="c"), call("f", "}", index=0, id="c")]},
        (called("f", "{", "c"), called("f", "}", "c")),
    ),
    "a call that stands alone": ({"tool_calls": call("f", None, id="c1")}, (called("f", "", "c1"),)),
    "arguments as an object": ({"tool_calls": [call("f", {"a": "é"}, id="c1")]}, (called("f", '{"a":"é"}', "c1"),)),
    "a custom call": (
        {"tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "f", "input": "print(1)"}}]},
        (called("f", "print(1)", "c1"),),
    ),
    "an empty custom call beside a full one": (
        {"tool_calls": [call("f", "{}", id="c1", custom={"name": "", "input": ""})]},
        (called("f", "{}", "c1"),),
    ),
    "the call of the time before tools": (
        {"content": None, "function_call": {"name": "f", "arguments": "{}"}},
        (called("f", "{}"),),
    ),
    "no calls": ({"content": "hi", "tool_calls": [], "function_call": None}, (HI,)),
    "calls that are none": ({"content": "hi", "tool_calls": [None, "x", {}, {"function": 7}]}, (HI,)),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_message_is_read_whole_and_as_the_only_delta(name: str) -> None:
    message, parts = MESSAGES[name]
    assert whole(completion(message)).message.parts == parts
    if name != "calls of one index":  # which are pieces of one call in a stream
        assert streamed(stream(message))[0].message.parts == parts


def test_reply_has_what_the_completion_says() -> None:
    body = completion({"content": "hi"}, usage={"prompt_tokens": 3, "completion_tokens": 2}, finish_reason="length")
    reply = whole(body, **{"x-request-id": "q1"})
    assert (reply.finish, reply.finish_raw, reply.model, reply.response_id) == ("length", "length", "m1", "r1")
    assert reply.request_id == "q1"
    assert reply.usage == Usage(input_tokens=3, output_tokens=2)
    assert whole(b"\xef\xbb\xbf" + body).message == reply.message


def test_finish_is_one_vocabulary() -> None:
    for word, finish in [
        ("stop", "stop"),
        ("length", "length"),
        ("MAX_TOKENS", "length"),
        ("model_context_window_exceeded", "length"),  # z.ai
        ("content_filter: PROHIBITED_CONTENT", "content_filter"),  # Gemini, by OpenAI's API
        ("RECITATION", "content_filter"),
        ("guardrail_intervened", "content_filter"),
        ("time_limit", "error"),  # watsonx
        ("function_call_filter: MALFORMED_FUNCTION_CALL", "error"),
        ("tool_calls", "tool_calls"),
        ("content_filter", "content_filter"),
        ("error", "error"),
        ("", None),
        (None, None),
        ("what", None),
    ]:
        for reply in (
            whole(completion({"content": "hi"}, finish_reason=word)),
            streamed(stream({"content": "hi"}, finish_reason=word))[0],
        ):
            assert (reply.finish, reply.finish_raw) == (finish, word or None)


USAGES = {
    "OpenAI": (
        {
            "prompt_tokens": 9,
            "completion_tokens": 5,
            "total_tokens": 14,
            "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
        Usage(input_tokens=9, output_tokens=5, cached_tokens=4, cache_write_tokens=3, reasoning_tokens=2),
    ),
    "xAI": (
        {"prompt_tokens": 12, "completion_tokens": 1, "total_tokens": 241, "reasoning_tokens": 228},
        Usage(input_tokens=12, output_tokens=229, reasoning_tokens=228),
    ),
    "Gemini behind gateways": (
        {"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 623},
        Usage(input_tokens=20, output_tokens=603),
    ),
    "a cache beside the input": (
        {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 21, "cache_read_input_tokens": 7},
        Usage(input_tokens=9, output_tokens=5, cached_tokens=7),
    ),
    "DeepSeek": (
        {"prompt_tokens": 9, "completion_tokens": 5, "prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 1},
        Usage(input_tokens=9, output_tokens=5, cached_tokens=8),
    ),
    "Mistral": ({"prompt_tokens": 9, "num_cached_tokens": 8}, Usage(input_tokens=9, cached_tokens=8)),
    "Anthropic's names": (
        {"input_tokens": 9, "output_tokens": 5, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 3},
        Usage(input_tokens=9, output_tokens=5, cached_tokens=4, cache_write_tokens=3),
    ),
    "floats": ({"prompt_tokens": 9.0, "completion_tokens": 5.5}, Usage(input_tokens=9)),
    "nothing": (None, Usage()),
    "zeros": ({"prompt_tokens": 0, "completion_tokens": 0}, Usage(input_tokens=0, output_tokens=0)),
    "nonsense": ({"prompt_tokens": "9", "completion_tokens": -1, "prompt_tokens_details": [1]}, Usage()),
}


@pytest.mark.parametrize("name", USAGES)
def test_usage_is_read_in_every_spelling(name: str) -> None:
    raw, usage = USAGES[name]
    assert whole(completion({"content": "hi"}, usage=raw)).usage == usage


def test_usage_is_the_newest_of_the_stream() -> None:
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    newer = {"choices": [], "usage": {"prompt_tokens": 2}}
    assert streamed(sse({**end, "usage": {"prompt_tokens": 1}}, newer, {"usage": None}))[0].usage.input_tokens == 2
    uncounted = sse({**end, "usage": {"prompt_tokens": 1}}, {"choices": [], "usage": {"prompt_tokens": None}})
    assert streamed(uncounted)[0].usage == Usage(input_tokens=1)
    groq = sse({**end, "x_groq": {"usage": {"prompt_tokens": 3}}})
    assert streamed(groq)[0].usage == Usage(input_tokens=3)
    assert streamed(sse({**end, "x_groq": None}))[0].usage == Usage()


def test_usage_is_told_as_it_grows() -> None:
    delta = {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}]}
    counts = [{"prompt_tokens": 7, "completion_tokens": count} for count in (1, 1, 2)]
    _, deltas = streamed(sse(*[{**delta, "usage": usage} for usage in counts]))
    one, two = (Usage(input_tokens=7, output_tokens=count) for count in (1, 2))
    hi = TextDelta("hi")
    assert deltas == [hi, UsageReported(one), hi, hi, UsageReported(two)]


@pytest.mark.parametrize("counts", [None, {"prompt_tokens": 7}])
def test_a_reply_whose_stream_ended_before_its_usage_says_so(counts: Any) -> None:
    end = {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}], "usage": counts}
    reply, _ = streamed(sse(end, done=False))
    assert len(reply.adapted) == (0 if counts else 1)
    assert streamed(sse(end))[0].adapted == whole(completion({"content": "hi"})).adapted == ()


def test_end_without_an_answer_or_a_reason_is_no_reply() -> None:
    for delta in [{"role": "assistant", "content": ""}, {"content": None}, {}]:
        with pytest.raises(BadReply, match="finish reason") as caught:
            streamed(stream(delta, finish_reason=None))
        assert caught.value.retryable
        assert streamed(stream({"content": "hi"}, finish_reason=None))[0].finish is None
        assert streamed(stream({"refusal": "no"}, finish_reason=None))[0].refusal == "no"
        assert streamed(stream(delta))[0].finish == "stop"


def test_logprobs_are_read() -> None:
    top = [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1}, 7]
    tokens = [
        {"token": "a", "logprob": -0.5, "top_logprobs": top},
        {"token": "", "logprob": 0, "bytes": []},
        {"token": "x", "logprob": None},
        {"token": "y", "logprob": 10**400},
        {"token": "z", "logprob": float("nan")},
        {"token": 1, "logprob": 1},
        None,
    ]
    expected = (TokenLogprob("a", -0.5, (("a", -0.5), ("b", -1.0))), TokenLogprob("", 0.0))
    assert whole(completion({"content": "a"}, choice={"logprobs": {"content": tokens}})).logprobs == expected
    chunks = [{"choices": [{"index": 0, "delta": {}, "logprobs": {"content": [token]}}]} for token in tokens]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "logprobs": {"content": None}}]}
    assert streamed(sse(*chunks, end))[0].logprobs == expected


def test_refusal_is_no_text() -> None:
    assert whole(completion({"content": None, "refusal": "I can't"})).refusal == "I can't"
    assert whole(completion({"content": [{"type": "refusal", "refusal": "I can't"}]})).refusal == "I can't"
    reply, deltas = streamed(stream({"refusal": "I "}, {"refusal": "can't"}))
    assert (reply.refusal, reply.message.text, deltas) == ("I can't", "", [])
    assert whole(completion({"content": "hi", "refusal": ""})).refusal is None


def test_deltas_come_as_the_stream_does() -> None:
    body = stream(
        {"role": "assistant", "content": ""},
        {"reasoning": "h"},
        {"reasoning": "m", "role": "assistant"},
        {"content": "h"},
        {"content": "i"},
        {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]},
        {"tool_calls": [{"index": 1, "id": "c2", "function": {"name": "g"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}, {"index": 1, "function": {"arguments": "{}"}}]},
    )
    reply, deltas = streamed(body)
    assert deltas == [
        ReasoningDelta("h"),
        ReasoningDelta("m"),
        TextDelta("h"),
        TextDelta("i"),
        FunctionCallStarted(0, "f", "c1"),
        ArgumentsDelta(0, '{"a"'),
        FunctionCallStarted(1, "g", "c2"),
        ArgumentsDelta(0, ":1}"),
        FunctionCallCompleted(0),
        ArgumentsDelta(1, "{}"),  # some servers send it ahead of the real arguments: told once no more can come
        FunctionCallCompleted(1),
    ]
    assert reply.message.parts == (
        Reasoning(text="hm"),
        Text("hi"),
        FunctionCall(name="f", arguments_json='{"a":1}', provider_id="c1"),
        FunctionCall(name="g", arguments_json="{}", provider_id="c2"),
    )
    for piece in (1, 7):
        assert streamed(body, piece) == (reply, deltas)


ONE, TWO = '{"a":1}', '{"a":2}'
MORE = {"function": {"arguments": "}"}}

PIECES: dict[str, tuple[list[Any], list[FunctionCall]]] = {
    "index, id and name come first": (
        [call("f", "{", index=0, id="x"), {"index": 0, **MORE}],
        [called("f", "{}", "x")],
    ),
    "id and name come with every piece": (
        [call("f", '{"a"', index=0, id="x"), call("f", ":1}", index=0, id="x")],
        [called("f", ONE, "x")],
    ),
    "a piece looks whole but is not": (
        [call("f", piece, index=0) for piece in ('{"a":', "{}", ',"b":', "{}", "}")],
        [called("f", '{"a":{},"b":{}}')],
    ),
    "a first piece in braces is not whole": (
        [call("f", "{{}", index=0), call("f", "{}", index=0)],
        [called("f", "{{}{}")],
    ),
    "no index: by id": (
        [call("f", ONE, id="x"), call("f", ONE, id="y")],
        [called("f", ONE, "x"), called("f", ONE, "y")],
    ),
    "no index and no id: a name begins a call": (
        [call("f", ONE), call("f", ONE)],
        [called("f", ONE), called("f", ONE)],
    ),
    "no index and no id: no name goes on": ([call("f", None), call("", "{"), MORE], [called("f", "{}")]),
    "one index for all: by id": (
        [call("f", ONE, index=0, id="x"), call("f", ONE, index=0, id="y")],
        [called("f", ONE, "x"), called("f", ONE, "y")],
    ),
    "one index for all: by name": (
        [call("f", ONE, index=0, id=""), call("g", TWO, index=0, id="")],
        [called("f", ONE), called("g", TWO)],
    ),
    "one index for all: by id, before the arguments": (
        [call("f", "", index=0, id="x"), call("f", "", index=0, id="y"), {"index": 0, "function": {"arguments": ONE}}],
        [called("f", "", "x"), called("f", ONE, "y")],
    ),
    "one index for all: by whole arguments": (
        [call("f", ONE, index=0, id=""), call("f", TWO, index=0, id="")],
        [called("f", ONE), called("f", TWO)],
    ),
    "no arguments": (
        [call("f", "", index=0, id="x"), call("g", None, index=1)],
        [called("f", "", "x"), called("g", "")],
    ),
    "the arguments have another index than the name": (  # https://github.com/danny-avila/LibreChat/issues/13987
        [
            call("f", "", index=2, id="x"),
            *[{"index": 1, "function": {"arguments": piece}} for piece in ('{"a"', ":1}")],
        ],
        [called("f", ONE, "x")],
    ),
    "the name comes late": ([call("", "{", index=0, id="x"), call("f", "}", index=0)], [called("f", "{}", "x")]),
    "the id comes late": ([call("f", "{", index=0), {"index": 0, "id": "x", **MORE}], [called("f", "{}", "x")]),
    "another id with every piece": (
        [call("f", "{", index=0, id="x"), {"index": 0, "id": "y", **MORE}],
        [called("f", "{}", "x")],
    ),
    "one index for all: pieces by id": (
        [
            *[call("f", "", index=0, id="x"), call("g", "", index=0, id="y")],
            *[call("", ONE, index=0, id="x"), call("", TWO, index=0, id="y")],
        ],
        [called("f", ONE, "x"), called("g", TWO, "y")],
    ),
    "the name comes in pieces": (
        [call("lo", "", index=0, id="x"), call("ok", None, index=0), {"index": 0, "function": {"arguments": ONE}}],
        [called("look", ONE, "x")],
    ),
    "the name comes in pieces, with the id": (
        [*[call(name, "", index=0, id="x") for name in ("lo", "ok")], call("f", TWO, index=1, id="y")],
        [called("look", "", "x"), called("f", TWO, "y")],
    ),
    "the name grows": (
        [call("lo", "", index=0, id="x"), call("look", "", index=0, id="x"), call("look", ONE, index=0, id="x")],
        [called("look", ONE, "x")],
    ),
    "the arguments grow": (
        [call("f", piece, index=0, id="x") for piece in ("", '{"a"', '{"a": ', '{"a": 1}', '{"a": 1}')],
        [called("f", '{"a": 1}', "x")],
    ),
    "an object inside begins as the arguments do": (
        [call("f", piece, index=0, id="x") for piece in ('{"a":', '{"a":1}}')],
        [called("f", '{"a":{"a":1}}', "x")],
    ),
    "an object inside begins as the arguments do, which come again": (
        [call("f", piece, index=0, id="x") for piece in ('{"a":', '{"a":1}}', '{"a":{"a":1}}')],
        [called("f", '{"a":{"a":1}}', "x")],
    ),
    "an index that is none": (
        [call("f", ONE, index={}, id="x"), call("g", TWO, index=[], id="y")],
        [called("f", ONE, "x"), called("g", TWO, "y")],
    ),
}


@pytest.mark.parametrize("name", PIECES)
def test_pieces_of_calls_find_their_call(name: str) -> None:
    pieces, calls = PIECES[name]
    reply, deltas = streamed(stream(*[{"tool_calls": [piece]} for piece in pieces]))
    assert list(reply.message.function_calls) == calls
    assert mismatch(reply, deltas) is None


def test_name_that_comes_in_pieces_beside_the_arguments_is_joined() -> None:
    pieces = [call("lo", '{"a"', index=0, id="x"), call("ok", ":1}", index=0, id="x")]
    reply, _ = streamed(stream(*[{"tool_calls": [piece]} for piece in pieces]))
    assert list(reply.message.function_calls) == [called("look", ONE, "x")]


def test_call_that_goes_on_behind_the_next_is_completed_again() -> None:
    pieces = [call("f", "{}", index=0, id="x"), call("g", "{", index=1, id="y"), {"index": 0, **MORE}]
    body = stream(*[{"tool_calls": [piece]} for piece in pieces])
    assert streamed(body)[1] == [
        *[FunctionCallStarted(0, "f", "x"), ArgumentsDelta(0, "{}"), FunctionCallCompleted(0)],
        *[FunctionCallStarted(1, "g", "y"), ArgumentsDelta(1, "{"), ArgumentsDelta(0, "}")],
        *[FunctionCallCompleted(0), FunctionCallCompleted(1)],
    ]


def test_reasoning_details_of_a_stream_are_joined() -> None:
    def thought(**detail: Any) -> dict[str, Any]:
        return {"reasoning_details": [{"type": "reasoning.text", "index": 0, **detail}]}

    body = stream(
        thought(text="h", format="f", signature=None),
        thought(text="m"),
        thought(text="", signature="s"),
        {"reasoning_details": [{"type": "reasoning.encrypted", "index": 1, "data": "x"}]},
        {"content": "hi"},
    )
    reply, _ = streamed(body)
    assert reply.message.reasoning == "hm"
    assert reply.message.parts[0] == Opaque(
        wire="openai-chat",
        data={
            "reasoning_details": [
                {"type": "reasoning.text", "index": 0, "text": "hm", "format": "f", "signature": "s"},
                {"type": "reasoning.encrypted", "index": 1, "data": "x"},
            ]
        },
    )


def test_halves_of_a_pair_are_joined_in_all_that_comes_in_pieces() -> None:
    def told(piece: str) -> list[dict[str, Any]]:
        detail = {"type": "reasoning.text", "index": 0, "text": piece}
        thinking = {"type": "thinking", "thinking": [{"type": "text", "text": piece}]}
        return [{"refusal": piece, "reasoning_details": [detail]}, {"content": [thinking]}]

    first, second = ["a\ud83d", "\ude00b\ud83d"], "😀b\ufffd"
    reply, deltas = streamed(stream(*[delta for piece in first for delta in told(piece)]))
    assert reply.refusal == f"a{second}"
    assert reply.message.parts[0] == kept({"type": "reasoning.text", "index": 0, "text": f"a{second}"})
    assert mismatch(reply, deltas) is None
    details, parts = ([told(piece)[at] for piece in first] for at in (0, 1))
    assert streamed(stream(*details))[0].message.reasoning == f"a{second}"
    assert streamed(stream(*parts))[0].message.reasoning == f"a{second}"
    json.dumps(reply.message.parts[0].data, ensure_ascii=False).encode()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("opened", "closed", "thought"), [("<think>", "", True), ("<think>hm</think>", "", False), ("<thi", "nk>", True)]
)
def test_halves_of_a_pair_are_joined_beside_think_tags(opened: str, closed: str, thought: bool) -> None:
    reply, deltas = streamed(stream(*[{"content": piece} for piece in (opened, f"{closed}a\ud83d", "\ude00b\ud83d")]))
    assert (reply.message.reasoning if thought else reply.message.text) == "a😀b\ufffd"
    assert mismatch(reply, deltas) is None


def test_reasoning_behind_an_answer_ends_the_reply() -> None:
    reply, _ = streamed(stream({"content": "hi"}, {"reasoning": "hm"}))
    assert reply.message.parts == (Text("hi"), Reasoning(text="hm"))


def test_details_of_reasoning_stay_apart() -> None:
    details = [{"type": "reasoning.encrypted", "data": data, "index": 0, "id": id} for data, id in ("xa", "yb")]
    assert streamed(stream({"reasoning_details": details}))[0].message.parts[0] == kept(*details)
    pieces = [{"reasoning_details": [piece]} for piece in (details[0], {**details[0], "data": "z", "id": None})]
    assert streamed(stream(*pieces))[0].message.parts[0] == kept({**details[0], "data": "xz"})
    alike = [{"type": "reasoning.text", "text": text, "signature": text} for text in "xy"]
    assert whole(completion({"reasoning_details": alike})).message.parts[0] == kept(*alike)


def test_of_several_choices_the_first_is_read() -> None:
    choices = [{"index": i, "message": {"content": text}, "finish_reason": "stop"} for i, text in enumerate("ab")]
    assert whole(json.dumps({"choices": choices}).encode()).message.text == "a"
    chunks = [
        {"choices": [{"index": i, "delta": {"content": text}, "finish_reason": end}]}
        for i, text, end in [(0, "a", None), (1, "x", None), (0, "b", "stop"), (1, "y", "length")]
    ]
    reply, deltas = streamed(sse(*chunks))
    assert (reply.message.text, reply.finish, deltas) == ("ab", "stop", [TextDelta("a"), TextDelta("b")])


@pytest.mark.parametrize("indices", [(0, None, None), (None, 0, None), (None, None, None)])
def test_chunks_that_do_not_number_their_choice_belong_to_the_one_that_is_read(indices: Any) -> None:
    choices: list[dict[str, Any]] = [{"delta": {"content": text}} for text in "abc"]
    choices[-1]["finish_reason"] = "stop"
    for choice, index in zip(choices, indices, strict=True):
        choice |= {} if index is None else {"index": index}
    other = {"choices": [{"index": 1, "delta": {"content": "x"}}]}
    chunks = [{"choices": [choice]} for choice in choices]
    reply, _ = streamed(sse(*chunks[:2], *([other] if 0 in indices else []), chunks[2]))
    assert (reply.message.text, reply.finish) == ("abc", "stop")


def test_first_model_and_id_that_say_something_count() -> None:
    chunks: list[dict[str, Any]] = [
        {"choices": [], "id": "", "model": ""},
        {"choices": [{"index": 0, "delta": {"content": "hi"}}], "id": "r1", "model": "m1"},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "id": "r2", "model": "m2"},
    ]
    reply, _ = streamed(sse(*chunks))
    assert (reply.response_id, reply.model) == ("r1", "m1")


def test_filtered_choice_without_a_message_is_a_reply() -> None:
    reply = whole(b'{"choices": [{"index": 0, "finish_reason": "content_filter"}]}')
    assert (reply.message.parts, reply.finish) == ((), "content_filter")


LIKELY = {"token": "a", "logprob": -0.5, "top_logprobs": [{"token": "a", "logprob": -0.5}]}
FAILED = {"message": "no", "code": 502, "metadata": {"raw": "no"}}
CHUNKS = [
    *[{"choices": [{"index": 0, "delta": message, "finish_reason": None}]} for message, _ in MESSAGES.values()],
    *[{"choices": [{"delta": {"tool_calls": pieces}, "finish_reason": "stop"}]} for pieces, _ in PIECES.values()],
    *[{"choices": [], "usage": usage, "x_groq": {"usage": usage}} for usage, _ in USAGES.values()],
    {"choices": [{"message": {"content": "hi", "refusal": "no", "annotations": [{"url": "u"}]}, "error": FAILED}]},
    {"error": FAILED, "id": "r1", "model": "m1", "choices": [{"index": 1, "logprobs": {"content": [LIKELY]}}]},
]


@given(data=st.data(), done=st.booleans())
def test_anything_is_a_reply_or_a_provider_error_however_it_is_cut(data: st.DataObject, done: bool) -> None:
    check_mangled(CODEC, data, CHUNKS, lambda chunks: sse(*chunks, done=done))
