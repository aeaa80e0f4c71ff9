"""Is a message in Anthropic's wire format read as it was meant, whole and event by event?"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages_bodies import CODEC, START, STOP, block, end, message, sse, stream, streamed, text, whole
from support.stream_checks import check_mangled

from fsm_agent.messages import (
    ArgumentsDelta,
    Citation,
    Delta,
    FunctionCall,
    FunctionCallCompleted,
    FunctionCallStarted,
    Opaque,
    Reasoning,
    ReasoningDelta,
    Text,
    TextDelta,
    Usage,
    UsageReported,
)


def called(name: str, arguments: str, id: str | None = "t1") -> FunctionCall:
    return FunctionCall(name=name, arguments_json=arguments, provider_id=id)


def kept(**data: Any) -> Opaque:
    return Opaque(wire="anthropic", data=data)


def use(**more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": "t1", "name": "f", **more}


HI, HM = Text("hi"), Reasoning(text="hm")
SAID, THOUGHT = {"type": "text", "text": "hi"}, {"type": "thinking", "thinking": "hm"}
CITED = [{"type": "page_location", "cited_text": "x"}]
FROM = Text("hi", annotations=(Citation(quote="x"),))
SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"title": "x"}], "caller": None}
CODE = {"type": "code_execution_20260120", "tool_id": "s1"}

BLOCKS: dict[str, tuple[dict[str, Any], tuple[Any, ...]]] = {
    "text": (SAID, (HI,)),
    "an empty text": ({"type": "text", "text": ""}, ()),
    "a text without citations": ({**SAID, "citations": None}, (HI,)),
    "a cited text": ({**SAID, "citations": CITED}, (kept(adds_to="text", citations=CITED), FROM)),
    "signed thinking": ({**THOUGHT, "signature": "s"}, (kept(adds_to="thinking", signature="s"), HM)),
    "thinking that is not shown": (
        {"type": "thinking", "thinking": "", "signature": "s"},
        (kept(adds_to="thinking", signature="s"), Reasoning()),
    ),
    "thinking without a signature": (THOUGHT, (kept(adds_to="thinking"), HM)),
    "thinking with an empty signature": ({**THOUGHT, "signature": ""}, (kept(adds_to="thinking"), HM)),
    "no thinking at all": ({"type": "thinking", "thinking": ""}, (Reasoning(),)),
    "redacted thinking": (
        {"type": "redacted_thinking", "data": "x"},
        (kept(type="redacted_thinking", data="x"),),
    ),
    "a call": (use(input={"a": 1}), (called("f", '{"a":1}'),)),
    "a call without an input": (use(), (called("f", "{}"),)),
    "a call without an id": (use(id=None, input={}), (called("f", "{}", None),)),
    "a call with its arguments as a string": (use(input='{"a": 1}'), (called("f", '{"a": 1}'),)),
    "a call of the model itself": (use(input={}, caller={"type": "direct"}), (called("f", "{}"),)),
    "a call of the service's code": (
        use(input={}, caller=CODE),
        (kept(adds_to="tool_use", caller=CODE), called("f", "{}")),
    ),
    "a call that the service ran": (SEARCH, (kept(**SEARCH),)),
    "its result": (FOUND, (kept(**FOUND),)),
    "a block of a new type": ({"type": "hologram", "rays": [1]}, (kept(type="hologram", rays=[1]),)),
    "a block without a type": ({"rays": [1]}, (kept(rays=[1]),)),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_block_is_read_whole_and_at_the_beginning_of_a_stream(name: str) -> None:
    data, parts = BLOCKS[name]
    assert whole(message(data)).message.parts == parts
    assert streamed(stream(*block(0, data)))[0].message.parts == parts


def test_order_of_blocks_is_kept() -> None:
    names = ["signed thinking", "text", "a call that the service ran", "its result", "a cited text", "a call"]
    parts = tuple([part for name in names for part in BLOCKS[name][1]])
    assert whole(message(*[BLOCKS[name][0] for name in names])).message.parts == parts
    events = [event for index, name in enumerate(names) for event in block(index, BLOCKS[name][0])]
    assert streamed(stream(*events))[0].message.parts == parts


def delta(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, **more}


def arguments(piece: str) -> dict[str, Any]:
    return delta("input_json_delta", partial_json=piece)


DONE = FunctionCallCompleted(0)

PIECES: dict[str, tuple[list[Any], tuple[Any, ...], list[Delta]]] = {
    "text": (text("h", "i"), (HI,), [TextDelta("h"), TextDelta("i")]),
    "text that begins at once": (
        block(0, {"type": "text", "text": "h"}, delta("text_delta", text=""), delta("text_delta", text="i")),
        (HI,),
        [TextDelta("h"), TextDelta("i")],
    ),
    "citations": (
        block(
            0,
            {"type": "text", "text": "", "citations": []},
            delta("text_delta", text="hi"),
            *[delta("citations_delta", citation=citation) for citation in CITED],
        ),
        (kept(adds_to="text", citations=CITED), FROM),
        [TextDelta("hi")],
    ),
    "thinking and its signature": (
        block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            delta("thinking_delta", thinking="h"),
            delta("thinking_delta", thinking="m"),
            delta("signature_delta", signature="s"),
        ),
        (kept(adds_to="thinking", signature="s"), HM),
        [ReasoningDelta("h"), ReasoningDelta("m")],
    ),
    "arguments": (
        block(0, use(input={}), arguments(""), arguments('{"a"'), arguments(":1}")),
        (called("f", '{"a":1}'),),
        [FunctionCallStarted(0, "f", "t1"), ArgumentsDelta(0, '{"a"'), ArgumentsDelta(0, ":1}"), DONE],
    ),
    "no arguments": (
        block(0, use(input={}), arguments("")),
        (called("f", "{}"),),
        [FunctionCallStarted(0, "f", "t1"), ArgumentsDelta(0, "{}"), DONE],
    ),
    "arguments that come at once and again in pieces": (
        block(0, use(input={"a": 1}), arguments('{"a": 1}')),
        (called("f", '{"a": 1}'),),
        [FunctionCallStarted(0, "f", "t1"), ArgumentsDelta(0, '{"a": 1}'), DONE],
    ),
    "arguments that are cut": (
        block(0, use(input={}), arguments('{"a": "x')),
        (called("f", '{"a": "x'),),
        [FunctionCallStarted(0, "f", "t1"), ArgumentsDelta(0, '{"a": "x'), DONE],
    ),
    "blocks that are never ended": (
        [*block(0, use())[:1], *block(1, use(id="t2", name="g"), arguments("{}"))[:2]],
        (called("f", "{}"), called("g", "{}", "t2")),
        [
            FunctionCallStarted(0, "f", "t1"),
            FunctionCallStarted(1, "g", "t2"),
            ArgumentsDelta(1, "{}"),
            ArgumentsDelta(0, "{}"),
            DONE,
            FunctionCallCompleted(1),
        ],
    ),
    "blocks that are never begun": (
        [*block(0, None, delta("text_delta", text="hi")), *block(1, None, delta("thinking_delta", thinking="hm"))],
        (HI, kept(adds_to="thinking"), HM),
        [TextDelta("hi"), ReasoningDelta("hm")],
    ),
    "pieces behind the end of their block": (
        [*block(0, use(input={}), arguments("{")), block(0, {}, arguments("}"))[1]],
        (called("f", "{}"),),
        [FunctionCallStarted(0, "f", "t1"), ArgumentsDelta(0, "{"), DONE, ArgumentsDelta(0, "}"), DONE],
    ),
    "no index at all": (
        [
            {"type": "content_block_start", "content_block": use()},
            {"type": "content_block_delta", "delta": arguments('{"a":1}')},
            {"type": "content_block_stop"},
        ],
        (called("f", '{"a":1}'),),
        [FunctionCallStarted(0, "f", "t1"), ArgumentsDelta(0, '{"a":1}'), DONE],
    ),
    "an index that comes again": (
        [*text("h"), *text("i")],
        (Text("h"), Text("i")),
        [TextDelta("h"), TextDelta("i")],
    ),
    "arguments of a call that the service ran": (
        block(0, {**SEARCH, "input": {}}, arguments('{"query": '), arguments('"x"}')),
        (kept(**SEARCH),),
        [],
    ),
    "a summary of the dialog": (
        block(
            0,
            {"type": "compaction", "content": None, "encrypted_content": None},
            delta("compaction_delta", content="sum", encrypted_content=None),
            delta("compaction_delta", content="med", encrypted_content="e"),
        ),
        (kept(type="compaction", content="summed", encrypted_content="e"),),
        [],
    ),
    "a delta of a new type": (
        block(0, {"type": "hologram"}, delta("ray_delta", ray="a", power=1), delta("ray_delta", ray="b", power=2)),
        (kept(type="hologram", ray="ab", power=2),),
        [],
    ),
    "citations that are none": (
        block(0, {**SAID, "citations": 7}, delta("citations_delta", citation=CITED[0])),
        (kept(adds_to="text", citations=7), HI),
        [TextDelta("hi")],
    ),
    "thinking and text in the block of the other": (
        block(
            0,
            {"type": "text", "text": ""},
            delta("thinking_delta", thinking="h"),
            delta("thinking_delta", thinking="m"),
            delta("signature_delta", signature="s"),
            delta("text_delta", text="h"),
            delta("text_delta", text="i"),
        ),
        (kept(adds_to="thinking", signature="s"), HM, HI),
        [ReasoningDelta("h"), ReasoningDelta("m"), TextDelta("h"), TextDelta("i")],
    ),
    "text in the block of a call": (
        block(0, use(), arguments('{"a"'), delta("text_delta", text="hi"), arguments(":1}")),
        (called("f", '{"a":1}'), HI),
        [FunctionCallStarted(0, "f", "t1"), ArgumentsDelta(0, '{"a"'), TextDelta("hi"), ArgumentsDelta(0, ":1}"), DONE],
    ),
    "arguments in the block of a text": (
        [*text("hi"), *block(1, use())[:1], block(0, {}, arguments('{"a":1}'))[1], *block(1, {})[1:]],
        (HI, called("f", '{"a":1}')),
        [TextDelta("hi"), FunctionCallStarted(0, "f", "t1"), ArgumentsDelta(0, '{"a":1}'), DONE],
    ),
    "a signature and then an empty one": (
        block(0, THOUGHT, delta("signature_delta", signature="s"), delta("signature_delta", signature="")),
        (kept(adds_to="thinking", signature="s"), HM),
        [ReasoningDelta("hm")],
    ),
    "what is no delta": (
        [{"type": "message_start", "message": 7}, {"type": "content_block_delta", "index": 0, "delta": 7}, *text("hi")],
        (HI,),
        [TextDelta("hi")],
    ),
    "a delta of nothing": ([{"type": "content_block_delta", "index": 0, "delta": delta("ray_delta")}], (), []),
}


@pytest.mark.parametrize("name", PIECES)
def test_pieces_find_their_block(name: str) -> None:
    events, parts, deltas = PIECES[name]
    reply, told = streamed(stream(*events))
    assert reply.message.parts == parts
    assert told == [UsageReported(Usage(input_tokens=3)), *deltas]


def test_unknown_events_and_keep_alives_are_passed_over() -> None:
    events = [{"type": "ping"}, {"type": "hello", "text": "x"}, *text("hi"), {"type": "ping"}, {}]
    assert streamed(b": x\n\n" + stream(*events))[0].message.parts == (HI,)


def test_whole_message_as_the_only_event_is_read() -> None:
    reply, deltas = streamed(b"data: " + message(SAID, use(input={"a": 1})) + b"\n\n")
    assert reply == whole(message(SAID, use(input={"a": 1})))
    assert deltas == [TextDelta("hi"), FunctionCallStarted(0, "f", "t1"), ArgumentsDelta(0, '{"a":1}'), DONE]


def test_reply_has_what_the_message_says() -> None:
    reply = whole(message(SAID, stop_reason="max_tokens", usage={"input_tokens": 3}), **{"request-id": "q1"})
    assert (reply.finish, reply.finish_raw, reply.model, reply.response_id) == ("length", "max_tokens", "m1", "r1")
    assert (reply.request_id, reply.usage) == ("q1", Usage(input_tokens=3))
    assert streamed(stream(*text("hi"), stop_reason="max_tokens"))[0] == whole(
        message(SAID, stop_reason="max_tokens", usage={"input_tokens": 3})
    )


def test_finish_is_normalised() -> None:
    for word, finish in [
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("pause_turn", "pause"),
        ("refusal", "refusal"),
        ("something_new", None),
        (None, None),
    ]:
        reply = whole(message(SAID, stop_reason=word))
        assert (reply.finish, reply.finish_raw) == (finish, word if isinstance(word, str) else None)


def test_reason_to_stop_is_not_taken_back() -> None:
    assert streamed(sse(START, *text("hi"), end("max_tokens"), end(None), STOP))[0].finish == "length"


def test_refusal_is_told_with_its_explanation() -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "No."}
    reply = whole(message(stop_reason="refusal", stop_details=details))
    assert (reply.refusal, reply.finish, reply.message.parts) == ("No.", "refusal", ())
    last = {"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": details}}
    assert streamed(sse(START, last, STOP))[0].refusal == "No."
    assert whole(message(stop_reason="refusal", stop_details=None)).refusal is None


def test_usage_has_its_meaning() -> None:
    for counts, usage in [
        ({}, Usage()),
        (
            {"input_tokens": 3, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 7},
            Usage(input_tokens=15, cached_tokens=5, cache_write_tokens=7),
        ),
        ({"input_tokens": 3, "cache_read_input_tokens": None}, Usage(input_tokens=3)),
        ({"cache_read_input_tokens": 5}, Usage(cached_tokens=5)),
        (
            {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}},
            Usage(output_tokens=9, reasoning_tokens=4),
        ),
        ({"input_tokens": -1, "output_tokens": "2", "output_tokens_details": 4}, Usage()),
    ]:
        assert whole(message(SAID, usage=counts)).usage == usage


def test_usage_of_a_stream_is_the_newest_of_each_count() -> None:
    first = {"type": "message_start", "message": {"usage": {"input_tokens": 3, "cache_read_input_tokens": 1}}}
    body = sse(first, *text("hi"), end(output_tokens=1), end(input_tokens=9, output_tokens=4, cache=None), STOP)
    assert streamed(body)[0].usage == Usage(input_tokens=10, output_tokens=4, cached_tokens=1)
    kept_counts = sse(first, *text("hi"), end(input_tokens=None, output_tokens=4), STOP)
    assert streamed(kept_counts)[0].usage == Usage(input_tokens=4, output_tokens=4, cached_tokens=1)


def test_model_that_took_over_is_the_one_that_answered() -> None:
    fallback = {"type": "fallback", "from": {"model": "m1"}, "to": {"model": "m2"}}
    reply, _ = streamed(stream(*block(0, fallback), *block(1, SAID)))
    assert (reply.model, reply.message.parts) == ("m2", (kept(**fallback), HI))


def test_container_is_kept_for_the_next_request() -> None:
    container = {"id": "c1", "expires_at": "2026-11-22T00:00:00Z"}
    expected = (HI, kept(adds_to="request", container="c1"))
    assert whole(message(SAID, container=container)).message.parts == expected
    last = {"type": "message_delta", "delta": {"stop_reason": "end_turn", "container": container}}
    assert streamed(sse(START, *text("hi"), last, STOP))[0].message.parts == expected


def test_empty_turn_is_a_reply() -> None:
    assert whole(message()).message.parts == ()
    assert streamed(stream())[0].message.parts == ()


FAILED = {"type": "error", "error": {"type": "overloaded_error", "message": "no"}}
REFUSED = {"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": {"explanation": "No."}}}
EVENTS = [
    *[event for events, _, _ in PIECES.values() for event in events],
    *[event for data, _ in BLOCKS.values() for event in block(0, data)],
    *[START, STOP, end("max_tokens", input_tokens=1, cache_read_input_tokens=1), FAILED, REFUSED],
    {"content": [SAID, CODE, SEARCH], "container": {"id": "c1"}, "usage": {"input_tokens": 1}, "stop_reason": "x"},
]


@given(data=st.data(), is_cut=st.booleans())
def test_anything_is_a_reply_or_a_provider_error_however_it_is_cut(data: st.DataObject, is_cut: bool) -> None:
    check_mangled(CODEC, data, EVENTS, lambda events: sse(*events, *([] if is_cut else [STOP])))
