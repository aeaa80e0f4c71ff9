"""Is an answer of Gemini read as it was meant, whole and in pieces?"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from conformance.streams import mismatch
from hypothesis import given
from hypothesis import strategies as st
from support.gemini_bodies import CODEC, call, chunk, response, sse, streamed, text, whole
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
)


def called(name: str, arguments: str, id: str | None = None, signature: str | None = None) -> FunctionCall:
    return FunctionCall(name=name, arguments_json=arguments, provider_id=id, signature=signature)


def kept(part: Any) -> Opaque:
    return Opaque(wire="gemini", data=part)


CODE = {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "eA=="}
SEARCHED = {"toolCall": {"id": "x", "toolType": "FILE_SEARCH"}}
IMAGE = {"inlineData": {"mimeType": "image/png", "data": "eA=="}}
SIGNED_THOUGHT = {"text": "hm", "thought": True, "thoughtSignature": "c2ln"}

PARTS: dict[str, tuple[list[Any], tuple[Any, ...]]] = {
    "an empty text": ([text("")], ()),
    "a signature on a text": ([text("hi", thoughtSignature="c2ln")], (Text("hi", "c2ln"),)),
    "a signature on an empty text": (
        [text("hi"), text("", thoughtSignature="c2ln")],
        (Text("hi"), Text("", "c2ln")),
    ),
    "a signature on nothing": ([{"thoughtSignature": "c2ln"}], (Text("", "c2ln"),)),
    "a thought": ([text("hm", thought=True), text("hi")], (Reasoning(text="hm"), Text("hi"))),
    "an empty thought": ([text("", thought=True), text("hi")], (Text("hi"),)),
    "a signed thought": ([SIGNED_THOUGHT, text("hi")], (Reasoning(text="hm"), kept(SIGNED_THOUGHT), Text("hi"))),
    "a signature on an empty thought": (
        [{"thought": True, "thoughtSignature": "c2ln"}],
        (kept({"thought": True, "thoughtSignature": "c2ln"}),),
    ),
    "a call": ([call("f", {"a": "é"}, id="x")], (called("f", '{"a":"é"}', "x"),)),
    "a call without id and arguments": ([call("f")], (called("f", "{}"),)),
    "a call with an empty id": ([call("f", {}, id="")], (called("f", "{}"),)),
    "parallel calls": (
        [call("f", {"a": 1}, "c2ln"), call("f", {"a": 2})],
        (called("f", '{"a":1}', signature="c2ln"), called("f", '{"a":2}')),
    ),
    "arguments that are no object": ([call("f", [1])], (called("f", "[1]"),)),
    "parts of tools of the server": ([CODE, SEARCHED, text("hi")], (kept(CODE), kept(SEARCHED), Text("hi"))),
    "an image": ([text("hi"), IMAGE], (Text("hi"), kept(IMAGE))),
    "an unknown part": ([{"hologram": {"a": [1]}}], (kept({"hologram": {"a": [1]}}),)),
    "parts that are none": ([None, "x", 7, {}, text("hi"), {"text": 7}, {"functionCall": {}}], (Text("hi"),)),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_are_read_whole_and_one_by_one(name: str) -> None:
    said, parts = PARTS[name]
    assert whole(*said).message.parts == parts
    assert streamed(sse(response(*said)))[0].message.parts == parts
    assert streamed(sse(*[chunk(part) for part in said], response()))[0].message.parts == parts


def test_texts_of_a_stream_are_joined_and_those_of_a_whole_response_are_not() -> None:
    said = [
        text("h", thought=True),
        text("m", thought=True),
        text("h"),
        text("i"),
        text("!", thoughtSignature="c2ln"),
        text("?"),
    ]
    reply, deltas = streamed(sse(*[chunk(part) for part in said], response()))
    assert reply.message.parts == (Reasoning(text="hm"), Text("hi"), Text("!", "c2ln"), Text("?"))
    assert deltas == [ReasoningDelta("h"), ReasoningDelta("m"), *[TextDelta(piece) for piece in "hi!?"]]
    assert whole(*said).message.parts == (
        Reasoning(text="h"),
        Reasoning(text="m"),
        Text("h"),
        Text("i"),
        Text("!", "c2ln"),
        Text("?"),
    )


@pytest.mark.parametrize("between", [CODE, text("hm", thought=True)])
def test_halves_of_a_pair_in_two_parts_are_no_pair(between: Any) -> None:
    said = [text("a\ud83d"), between, text("\ude00b")]
    reply, deltas = streamed(sse(*[chunk(part) for part in said], response()))
    assert mismatch(reply, deltas) is None
    assert [delta.text for delta in deltas if isinstance(delta, TextDelta)][:2] == ["a", "\ufffd"]
    assert reply.message.text.endswith("\ufffdb")


def test_reply_has_what_the_response_says() -> None:
    body = json.dumps(response(text("hi"), usageMetadata={"promptTokenCount": 3})).encode()
    reply = CODEC.decode(200, {"x-goog-request-id": "q1"}, body)
    assert (reply.finish, reply.finish_raw, reply.model, reply.response_id) == ("stop", "STOP", "m1", "r1")
    assert reply.request_id == "q1"
    assert reply.usage == Usage(input_tokens=3)


def test_finish_is_one_vocabulary() -> None:
    for word, finish in [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "error"),
        ("WHAT", None),
    ]:
        for reply in (whole(text("hi"), finish=word), streamed(sse(response(text("hi"), finish=word)))[0]):
            assert (reply.finish, reply.finish_raw) == (finish, word)


@pytest.mark.nightly
def test_every_reason_that_the_official_sdk_knows_is_known() -> None:
    types = pytest.importorskip("google.genai.types", reason="the SDK is not installed")
    known = {reason.value for reason in types.FinishReason} - {"FINISH_REASON_UNSPECIFIED"}
    assert [word for word in known if whole(text("hi"), finish=word).finish is None] == []


def test_calls_are_the_reason_to_stop() -> None:
    assert whole(call("f", {})).finish == "tool_calls"
    assert whole(call("f", {}), finish="MAX_TOKENS").finish == "length"
    assert whole(text("hi"), finish=None).finish is None


def test_empty_answer_is_a_reply() -> None:
    for candidate in [{}, {"content": {"role": "model"}}, {"content": {"parts": None}}]:
        said = {"candidates": [{**candidate, "finishReason": "SAFETY"}]}
        for reply in (CODEC.decode(200, {}, json.dumps(said).encode()), streamed(sse(said))[0]):
            assert (reply.message.parts, reply.finish, reply.finish_raw) == ((), "content_filter", "SAFETY")


def test_blocked_prompt_is_filtered() -> None:
    said = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 3}}
    for reply in (CODEC.decode(200, {}, json.dumps(said).encode()), streamed(sse(said))[0]):
        assert (reply.message.parts, reply.finish, reply.finish_raw) == ((), "content_filter", "PROHIBITED_CONTENT")
        assert reply.usage.input_tokens == 3


USAGES = {
    "all": (
        {
            "promptTokenCount": 10,
            "toolUsePromptTokenCount": 100,
            "cachedContentTokenCount": 8,
            "candidatesTokenCount": 5,
            "thoughtsTokenCount": 20,
            "totalTokenCount": 135,
        },
        Usage(input_tokens=110, output_tokens=25, cached_tokens=8, reasoning_tokens=20),
    ),
    "no thoughts": ({"promptTokenCount": 10, "candidatesTokenCount": 5}, Usage(input_tokens=10, output_tokens=5)),
    "nothing": (None, Usage()),
    "nonsense": ({"promptTokenCount": "9", "candidatesTokenCount": -1, "thoughtsTokenCount": True}, Usage()),
    "no object": ([1], Usage()),
}


@pytest.mark.parametrize("name", USAGES)
def test_usage_is_all_that_was_read_and_written(name: str) -> None:
    raw, usage = USAGES[name]
    assert whole(text("hi"), usageMetadata=raw).usage == usage


def test_usage_is_the_newest_of_each_count() -> None:
    older, newer, none = {"promptTokenCount": 1, "thoughtsTokenCount": 9}, {"promptTokenCount": 2}, {"trafficType": "X"}
    chunks = [chunk(text("h"), usageMetadata=older), response(usageMetadata=newer), chunk(usageMetadata=none)]
    assert streamed(sse(*chunks))[0].usage == Usage(input_tokens=2, output_tokens=9, reasoning_tokens=9)


def test_logprobs_are_read() -> None:
    likely, other = {"token": "a", "logProbability": -0.5}, {"token": "b", "logProbability": -1}
    said = {
        "chosenCandidates": [likely, other, {"token": "x"}, None, {"token": "y", "logProbability": 10**400}, likely],
        "topCandidates": [{"candidates": [likely, other, 7]}, {"candidates": None}],
    }
    expected = (TokenLogprob("a", -0.5, (("a", -0.5), ("b", -1.0))), TokenLogprob("b", -1.0), TokenLogprob("a", -0.5))
    assert whole(text("ab"), candidate={"logprobsResult": said}).logprobs == expected
    halves = [{"logprobsResult": {"chosenCandidates": [token]}} for token in (likely, other)]
    reply, _ = streamed(sse(chunk(text("a"), candidate=halves[0]), response(text("b"), candidate=halves[1])))
    assert [token.token for token in reply.logprobs] == ["a", "b"]
    assert whole(text("a"), candidate={"logprobsResult": {"topCandidates": 7}}).logprobs == ()


def piece(path: str, said: str, *, more: bool = True) -> dict[str, Any]:
    """The next piece of a call's arguments."""
    partial = {"jsonPath": path, "stringValue": said, **({"willContinue": True} if more else {})}
    return call(partialArgs=[partial], willContinue=True)


def streamed_arguments(*pieces: dict[str, Any]) -> Any:
    """What pieces of a call's arguments come to."""
    parts = [call("f", willContinue=True), *[call(partialArgs=[said], willContinue=True) for said in pieces]]
    body = sse(*[chunk(part) for part in parts], response({"functionCall": {}}))
    (read,) = streamed(body)[0].message.function_calls
    return json.loads(read.arguments_json)


def to(path: Any, text: str | None = None, *, more: bool = False, **value: Any) -> dict[str, Any]:
    said = {"jsonPath": path, **value}
    return {**said, **({} if text is None else {"stringValue": text}), **({"willContinue": True} if more else {})}


ARGUMENTS: dict[str, tuple[list[dict[str, Any]], Any]] = {
    "nothing": ([], {}),
    "a string in pieces": ([to("$.a", "Bos", more=True), to("$.a", "ton", more=True), to("$.a", "")], {"a": "Boston"}),
    "a string that is said again": ([to("$.a", "Rome"), to("$.a", "Paris")], {"a": "Paris"}),
    "two strings in turns": (
        [to("$.a", "x", more=True), to("$.b", "1", more=True), to("$.a", "y"), to("$.b", "2")],
        {"a": "xy", "b": "12"},
    ),
    "numbers and the like": (
        [
            to("$.i", numberValue=5),
            to("$.f", numberValue=0.5),
            to("$.b", boolValue=False),
            to("$.n", nullValue="NULL_VALUE"),
        ],
        {"i": 5, "f": 0.5, "b": False, "n": None},
    ),
    "objects and arrays": (
        [
            to("$.a.b[0].c", "x", more=True),
            to("$.a.b[0].c", "y"),
            to("$.a.b[1]", numberValue=2),
            to("$.a.d", boolValue=True),
        ],
        {"a": {"b": [{"c": "xy"}, 2], "d": True}},
    ),
    "arrays in arrays": (
        [to("$.a[0][0]", "x"), to("$.a[0][1]", "y"), to("$.a[1][0]", "z")],
        {"a": [["x", "y"], ["z"]]},
    ),
    "quoted names": (
        [to("$['a b']", "x"), to('$["c.d"][0]', "y"), to(r"$['it\'s']", "z"), to("$['']", "")],
        {"a b": "x", "c.d": ["y"], "it's": "z", "": ""},
    ),
    "names of any language": ([to("$.größe", "x"), to("$.1", "y")], {"größe": "x", "1": "y"}),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_pieces_of_arguments_come_together(name: str) -> None:
    pieces, arguments = ARGUMENTS[name]
    assert streamed_arguments(*pieces) == arguments


def test_pieces_add_to_arguments_that_came_at_once() -> None:
    begun = call("f", {"a": {"b": [1]}}, willContinue=True)
    body = sse(chunk(begun), chunk(call(partialArgs=[to("$.a.b[1]", "x")])), response({"functionCall": {}}))
    assert streamed(body)[0].message.function_calls[0].arguments_json == '{"a":{"b":[1,"x"]}}'


def test_path_that_leads_nowhere_is_no_place() -> None:
    for path in [
        *(None, 7, "", "$", "a", "$a", "$.", "$..a", "$.a[", "$.a[x]", "$.a[-1]", "$.*", "$[0]", "$.a[5]", "$.s.t"),
        *("$.s[0]", "$.l.a", "$.o[0]", "$.s.t.u", "$.l.a.b", "$.a[9999999]", "$.a[99999999999]", "$" + ".a" * 65),
    ]:
        begun = [to("$.s", "text"), to("$.l[0]", "x"), to("$.o.x", "x")]
        assert streamed_arguments(*begun)
        with pytest.raises(BadReply):
            streamed_arguments(*begun, to(path, "x"))


def test_depth_is_bounded() -> None:
    assert streamed_arguments(to("$" + ".a" * 64, "x"))


PATHS = st.sampled_from(["$.a", "$.b[0]", "$.b[1]", "$.c.d", "$.c['e']", '$["f"][0].g', "$.a.x", "$.b.c"])


@given(
    st.lists(
        st.fixed_dictionaries(
            {"jsonPath": PATHS},
            optional={
                "stringValue": st.text(max_size=3) | st.none(),
                "numberValue": st.integers() | st.text(max_size=2),
                "boolValue": st.booleans(),
                "willContinue": st.booleans() | st.none(),
            },
        ),
        max_size=8,
    )
)
def test_any_pieces_are_json(pieces: list[dict[str, Any]]) -> None:
    with suppress(BadReply):  # a path where something else stands
        assert isinstance(streamed_arguments(*pieces), dict)


def test_arguments_that_are_streamed_come_together() -> None:
    parts = [
        call("f", None, "c2ln", willContinue=True),
        piece("$.city", "Bos"),
        piece("$.city", "ton", more=False),
        {"functionCall": {}},
        call("g"),
        call("f", None, id="x", willContinue=True),
        piece("$.city", "Rome", more=False),
        {"functionCall": {}},
    ]
    body = sse(*[chunk(part) for part in parts], response(text("")))
    reply, deltas = streamed(body)
    assert reply.message.parts == (
        called("f", '{"city":"Boston"}', signature="c2ln"),
        called("g", "{}"),
        called("f", '{"city":"Rome"}', "x"),
    )
    assert reply.finish == "tool_calls"
    assert deltas == [
        FunctionCallStarted(0, "f"),
        ArgumentsDelta(0, '{"city":"Boston"}'),
        FunctionCallCompleted(0),
        FunctionCallStarted(1, "g"),
        ArgumentsDelta(1, "{}"),
        FunctionCallCompleted(1),
        FunctionCallStarted(2, "f", "x"),
        ArgumentsDelta(2, '{"city":"Rome"}'),
        FunctionCallCompleted(2),
    ]
    for size in (1, 7):
        assert streamed(body, size) == (reply, deltas)


@pytest.mark.parametrize(
    ("last", "arguments"),
    [
        (response(finish="STOP"), '{"city":"Bos"}'),
        (response(finish="MAX_TOKENS"), '{"city":"Bos"'),
        (response({"functionCall": {}}, finish="MAX_TOKENS"), '{"city":"Bos"}'),
        (response(call("g", {}), finish="STOP"), '{"city":"Bos"}'),
    ],
)
def test_arguments_that_are_cut_are_no_json(last: Any, arguments: str) -> None:
    body = sse(chunk(call("f", willContinue=True)), chunk(piece("$.city", "Bos")), last)
    reply, deltas = streamed(body)
    assert reply.message.function_calls[0].arguments_json == arguments
    assert ArgumentsDelta(0, arguments) in deltas


def test_arguments_after_the_end_are_cut() -> None:
    reply, _ = streamed(sse(response(call("g", {})), chunk(call("f", willContinue=True)), chunk(piece("$.a", "x"))))
    assert [said.arguments_json for said in reply.message.function_calls] == ["{}", '{"a":"x"']


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ([call("f", willContinue=True), piece("nowhere", "x")], "nowhere"),
        ([call("f", willContinue=True), call(partialArgs=[7])], "'7'"),
    ],
)
def test_call_that_makes_no_sense_is_no_reply(parts: list[Any], problem: str) -> None:
    with pytest.raises(BadReply, match=problem) as caught:
        streamed(sse(*[chunk(part) for part in parts], response()))
    assert caught.value.retryable


def test_of_several_candidates_the_first_is_read() -> None:
    candidates = [
        {"index": i, "content": {"parts": [text(said)]}, "finishReason": "STOP"} for i, said in enumerate("ab")
    ]
    assert CODEC.decode(200, {}, json.dumps({"candidates": candidates}).encode()).message.text == "a"
    chunks = [
        {"candidates": [{**({"index": i} if i else {}), "content": {"parts": [text(said)]}, **end}]}
        for i, said, end in [(0, "a", {}), (1, "x", {}), (0, "b", {"finishReason": "STOP"}), (1, "y", {})]
    ]
    reply, deltas = streamed(sse(*chunks))
    assert (reply.message.text, deltas) == ("ab", [TextDelta("a"), TextDelta("b")])
    mixed = sse(chunk(text("a"), candidate={"index": 0}), response(text("b")))
    assert streamed(mixed)[0].message.text == "ab"


ERROR = {"error": {"code": 503, "message": "no", "status": "UNAVAILABLE"}}


GROUNDED = {"groundingMetadata": {"groundingChunks": [{"web": {"uri": "u"}}]}}
LIKELY = {"token": "a", "logProbability": -0.5}
LOGPROBS = {"logprobsResult": {"chosenCandidates": [LIKELY], "topCandidates": [{"candidates": [LIKELY]}]}}
CHUNKS = [
    *[response(*parts, usageMetadata=USAGES["all"][0]) for parts, _ in PARTS.values()],
    *[chunk(call(None, partialArgs=pieces, willContinue=True)) for pieces, _ in ARGUMENTS.values()],
    *[chunk(call("f", willContinue=True)), chunk({"functionCall": {}}), ERROR],
    *[chunk(text("hi"), candidate={"index": 1, **LOGPROBS, **GROUNDED}), {"promptFeedback": {"blockReason": "OTHER"}}],
]


@given(data=st.data(), is_ended=st.booleans())
def test_anything_is_a_reply_or_a_provider_error_however_it_is_cut(data: st.DataObject, is_ended: bool) -> None:
    check_mangled(CODEC, data, CHUNKS, lambda chunks: sse(*chunks, *([response()] if is_ended else [])))
