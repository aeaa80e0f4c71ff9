"""Is a response read as it was meant, whole and event by event, in every service's variant of the format?"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.response_bodies import (
    CODEC,
    added,
    arguments_delta,
    body,
    called,
    completed,
    done,
    event,
    items,
    response,
    said,
    sse,
    stream,
    streamed,
    text_delta,
    thought,
    whole,
)
from support.stream_checks import check_mangled

from fsm_agent.errors import ProviderError
from fsm_agent.messages import (
    ArgumentsDelta,
    FunctionCall,
    FunctionCallCompleted,
    FunctionCallStarted,
    Opaque,
    Reasoning,
    ReasoningDelta,
    Reply,
    Text,
    TextDelta,
    TokenLogprob,
    Usage,
)

SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}
REFUSED = {"type": "message", "id": "msg_1", "content": [{"type": "refusal", "refusal": "I can't"}]}
CUSTOM = {"type": "custom_tool_call", "id": "ct_1", "call_id": "call_1", "name": "sql", "input": "SELECT 1"}
WORDS = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
BOTH = {**WORDS, "summary": [{"type": "summary_text", "text": "well"}]}

OUTPUTS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "text": ((said("hi"),), (Text("hi"),)),
    "two texts": ((said("h", "i"),), (Text("h"), Text("i"))),
    "a refusal": ((REFUSED,), ()),
    "reasoning in summary": ((thought("h", "m"), said("hi")), (Reasoning(text="h"), Reasoning(text="m"), Text("hi"))),
    "hidden reasoning": ((thought(), said("hi")), (Text("hi"),)),
    "reasoning in words": ((WORDS, said("hi")), (Reasoning(text="hm"), Text("hi"))),
    "reasoning in both": ((BOTH,), (Reasoning(text="well"), Reasoning(text="hm"))),
    "a call": ((called(),), (FunctionCall(name="f", arguments_json="{}", provider_id="call_fc_1"),)),
    "a call without ids": (
        (called(id="", call_id=""), called(id="", call_id=None)),
        (FunctionCall(name="f", arguments_json="{}"), FunctionCall(name="f", arguments_json="{}")),
    ),
    "arguments as an object": (
        (called(arguments={"a": "é"}),),
        (FunctionCall(name="f", arguments_json='{"a":"é"}', provider_id="call_fc_1"),),
    ),
    "no arguments": (
        (called(arguments=None),),
        (FunctionCall(name="f", arguments_json="", provider_id="call_fc_1"),),
    ),
    "a custom call": ((CUSTOM,), (FunctionCall(name="sql", arguments_json="SELECT 1", provider_id="call_1"),)),
    "what the service ran": ((SEARCH, said("hi")), (Text("hi"),)),
    "what is no item": ((7, "x", None, {}, said("hi")), (Text("hi"),)),
    "items of unknown shape": (({"type": ["x"]}, {"type": "message", "content": "?"}, {"type": "message"}), ()),
}


def known(reply: Reply) -> tuple[Any, ...]:
    """Return the parts that every service understands."""
    return tuple([part for part in reply.message.parts if not isinstance(part, Opaque)])


@pytest.mark.parametrize("name", OUTPUTS)
def test_output_is_read_whole_at_the_end_and_item_by_item(name: str) -> None:
    output, parts = OUTPUTS[name]
    reply = whole(body(*output))
    assert known(reply) == parts
    assert streamed(stream(output=output))[0] == reply
    events = [shape(item, index) for index, item in enumerate(output) for shape in (added, done)]
    assert streamed(stream(*events))[0] == reply
    assert streamed(stream(*events, output=output))[0] == reply


def test_server_tools_keep_their_place() -> None:
    parts = whole(body(thought(), SEARCH, said("hi"))).message.parts
    assert [part.data["type"] for part in parts if isinstance(part, Opaque)] == ["reasoning", SEARCH["type"], "message"]
    assert parts[1] == Opaque(wire="openai-responses", data=SEARCH)
    assert parts[3] == Text("hi")


def test_reply_has_what_the_response_says() -> None:
    reply = whole(body(said("hi"), usage={"input_tokens": 3, "output_tokens": 2}), **{"x-request-id": "q1"})
    assert (reply.finish, reply.finish_raw, reply.model, reply.response_id) == ("stop", "completed", "m1", "resp_1")
    assert (reply.request_id, reply.usage) == ("q1", Usage(input_tokens=3, output_tokens=2))
    assert whole(b"\xef\xbb\xbf" + body(said("hi"))).message == reply.message


def test_finish_is_one_vocabulary() -> None:
    for status, reason, finish, raw in [
        ("completed", None, "stop", "completed"),
        ("incomplete", "max_output_tokens", "length", "incomplete:max_output_tokens"),
        ("incomplete", "content_filter", "content_filter", "incomplete:content_filter"),
        ("incomplete", "what", "length", "incomplete:what"),
        ("incomplete", None, "length", "incomplete"),
        ("queued", None, "pending", "queued"),
        ("what", None, None, "what"),
        (None, None, None, None),
    ]:
        details = {"reason": reason} if reason else None
        reply = whole(body(said("hi"), status=status, incomplete_details=details))
        assert (reply.finish, reply.finish_raw) == (finish, raw)
        if raw and raw.startswith("incomplete"):
            ended = event("incomplete", response=response(said("hi"), status=None, incomplete_details=details))
            assert streamed(sse(ended))[0].finish_raw == raw


def test_finish_with_calls() -> None:
    for item, status, finish in [
        (called(), "completed", "tool_calls"),
        (CUSTOM, "completed", "tool_calls"),
        (called(), "incomplete", "length"),
        (SEARCH, "completed", "stop"),
    ]:
        assert whole(body(item, status=status)).finish == finish


USAGES = {
    "OpenAI": (
        {
            "input_tokens": 9,
            "output_tokens": 5,
            "total_tokens": 14,
            "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
            "output_tokens_details": {"reasoning_tokens": 2},
        },
        Usage(input_tokens=9, output_tokens=5, cached_tokens=4, cache_write_tokens=3, reasoning_tokens=2),
    ),
    "the names of chat": ({"prompt_tokens": 9, "completion_tokens": 5}, Usage(input_tokens=9, output_tokens=5)),
    "nothing": (None, Usage()),
    "zeros": ({"input_tokens": 0, "output_tokens": 0}, Usage(input_tokens=0, output_tokens=0)),
    "nonsense": ({"input_tokens": "9", "output_tokens": -1, "input_tokens_details": [1]}, Usage()),
}


@pytest.mark.parametrize("name", USAGES)
def test_usage_is_read(name: str) -> None:
    raw, usage = USAGES[name]
    assert whole(body(said("hi"), usage=raw)).usage == usage


def test_newest_model_id_and_usage_count() -> None:
    heads: list[dict[str, Any]] = [
        event("created", response={"id": "r1", "model": "m1", "usage": {"input_tokens": 1}}),
        event("in_progress", response={"id": "", "model": None, "usage": None}),
        event("completed", response={"id": "r2", "status": "completed", "usage": {"input_tokens": 2}}),
    ]
    reply, _ = streamed(sse(*heads))
    assert (reply.response_id, reply.model, reply.usage.input_tokens) == ("r2", "m1", 2)
    heads[2] = event("completed", response={"status": "completed", "usage": {"input_tokens": None}})
    assert streamed(sse(*heads))[0].usage.input_tokens == 1
    reply, _ = streamed(stream(output=(said("hi"),)).replace(b"m1", b"m0", 1))
    assert reply.model == "m1"


def test_logprobs_are_read_and_not_sent_back() -> None:
    tokens = [{"token": "h", "logprob": -0.5, "top_logprobs": [{"token": "h", "logprob": -0.5}]}, {"token": "i"}]
    item = said("hi")
    item["content"][0]["logprobs"] = tokens
    reply = whole(body(item))
    assert reply.logprobs == (TokenLogprob("h", -0.5, (("h", -0.5),)),)
    assert "logprob" not in repr([part.data for part in reply.message.parts if isinstance(part, Opaque)])


def test_refusal_is_no_text() -> None:
    reply, deltas = streamed(
        stream(added(said()), event("refusal.delta", output_index=0, content_index=0, delta="I "), done(REFUSED))
    )
    assert (reply.refusal, reply.message.text, deltas) == ("I can't", "", [])
    assert whole(body(said("hi"))).refusal is None
    pieces = [event("refusal.delta", output_index=0, delta=text) for text in ("I ", "can't")]
    assert streamed(stream(*pieces))[0].refusal == "I can't"


ITEMS = (thought("hm"), said("hi"), called("f", '{"a":1}'), called("g", "{}", id="fc_2"), SEARCH)
EVENTS = (
    added(thought()),
    event("reasoning_summary_part.added", output_index=0, summary_index=0, part={"type": "summary_text", "text": ""}),
    event("reasoning_summary_text.delta", output_index=0, summary_index=0, delta="h"),
    event("reasoning_summary_text.delta", output_index=0, summary_index=0, delta="m"),
    event("reasoning_summary_text.done", output_index=0, summary_index=0, text="hm"),
    done(thought("hm")),
    added(said(), 1),
    text_delta("h", 1, obfuscation="x1"),
    {"type": "keepalive", "sequence_number": 3},
    text_delta("i", 1),
    event("output_text.done", output_index=1, content_index=0, text="hi"),
    done(said("hi"), 1),
    added(called("f", ""), 2),
    arguments_delta('{"a"', 2),
    added(called("g", "", id="fc_2"), 3),
    arguments_delta(":1}", 2),
    arguments_delta("{}", 3),
    event("function_call_arguments.done", output_index=2, arguments='{"a":1}'),
    done(called("f", '{"a":1}'), 2),
    done(called("g", "{}", id="fc_2"), 3),
    added(SEARCH, 4),
    event("web_search_call.searching", output_index=4),
    done(SEARCH, 4),
)
DELTAS = [
    ReasoningDelta("h"),
    ReasoningDelta("m"),
    TextDelta("h"),
    TextDelta("i"),
    FunctionCallStarted(0, "f", "call_fc_1"),
    ArgumentsDelta(0, '{"a"'),
    FunctionCallStarted(1, "g", "call_fc_2"),
    ArgumentsDelta(0, ":1}"),
    ArgumentsDelta(1, "{}"),
    FunctionCallCompleted(0),
    FunctionCallCompleted(1),
]


def test_deltas_come_as_the_stream_does() -> None:
    reply, deltas = streamed(stream(*EVENTS, output=ITEMS))
    assert deltas == DELTAS
    assert reply == whole(body(*ITEMS))
    for piece in (1, 7):
        assert streamed(stream(*EVENTS, output=ITEMS), piece) == (reply, deltas)


def test_end_may_have_no_items() -> None:
    assert streamed(stream(*EVENTS)) == (whole(body(*ITEMS)), DELTAS)
    assert streamed(stream(done(said("b"), 1), done(said("a"), 0)))[0] == whole(body(said("a"), said("b")))
    ended = sse(*EVENTS, {"type": "response.completed"})
    assert streamed(ended)[0].message == whole(body(*ITEMS)).message


def test_items_may_never_be_whole() -> None:
    pieces = [event for event in EVENTS if not event["type"].endswith(".done")]
    reply, deltas = streamed(stream(*pieces))
    assert deltas == DELTAS
    assert known(reply) == known(whole(body(*ITEMS)))
    custom = event("custom_tool_call_input.delta", output_index=0, delta="SELECT 1")
    assert known(streamed(stream(added({**CUSTOM, "input": ""}), custom))[0]) == known(whole(body(CUSTOM)))


def test_pieces_need_no_items() -> None:
    texts = [event("output_text.delta", content_index=index, delta=text) for index, text in ((1, "b"), (0, "a"))]
    thoughts = [event("reasoning_text.delta", delta="h"), event("reasoning_text.delta", delta="m")]
    reply, _ = streamed(stream(*thoughts, *texts))
    assert known(reply) == (Reasoning(text="hm"), Text("a"), Text("b"))


@pytest.mark.parametrize(
    "events",
    [
        (added(called("f", "")), event("function_call_arguments.done", output_index=0, arguments='{"a":1}')),
        (added(called("f", "")), done(called("f", '{"a":1}'))),
        (done(called("f", '{"a":1}')),),
        (arguments_delta('{"a"'), arguments_delta(":1}"), done(called("f", '{"a":1}'))),
        (added(called("f", "")), arguments_delta('{"a"'), done(called("f", '{"a":1}'))),
        (
            added(called("", "")),
            arguments_delta('{"a"'),
            event("function_call_arguments.done", output_index=0, name="f", arguments='{"a":1}'),
        ),
        (),
    ],
)
def test_arguments_may_come_late(events: tuple[Any, ...]) -> None:
    item = called("f", '{"a":1}')
    reply, deltas = streamed(stream(*events, output=(item,)))
    assert reply == whole(body(item))
    if events:
        assert known(streamed(stream(*events))[0]) == known(reply)
    started, *pieces = deltas
    assert started == FunctionCallStarted(0, "f", started.provider_id)  # type: ignore[union-attr]
    assert "".join([piece.text for piece in pieces if isinstance(piece, ArgumentsDelta)]) == '{"a":1}'


def test_index_is_the_key_and_ids_may_change() -> None:
    events = (
        added(said(id="a")),
        text_delta("h", item_id="b"),
        added(said(id="c"), 1),
        text_delta("x", 1, item_id="b"),
        text_delta("i", item_id="d"),
        done(said("hi", id="e")),
        done(said("x", id="f"), 1),
    )
    output = (said("hi", id="g"), said("x", id="h"))
    reply, deltas = streamed(stream(*events, output=output))
    assert reply == whole(body(*output))
    assert deltas == [TextDelta("h"), TextDelta("x"), TextDelta("i")]


@pytest.mark.parametrize("index", [None, 0])
@pytest.mark.parametrize("has_output", [False, True])
def test_without_indexes_that_tell_items_apart_ids_do_or_the_order(index: Any, has_output: bool) -> None:
    def bare(event: Any) -> Any:
        left = {key: value for key, value in event.items() if key != "output_index"}
        return left if index is None else {**left, "output_index": 0}

    events = [
        added(thought()),
        event("reasoning_summary_text.delta", item_id="rs_1", delta="hm"),
        done(thought("hm")),
        added(said(id="msg_1")),
        text_delta("h", item_id="msg_1"),
        done(said("h", id="msg_1")),
        added(said(id="msg_2")),
        text_delta("i", item_id="msg_2"),
        done(said("i", id="msg_2")),
    ]
    output = (thought("hm"), said("h", id="msg_1"), said("i", id="msg_2"))
    reply, deltas = streamed(stream(*map(bare, events), output=output if has_output else ()))
    assert reply == whole(body(*output))
    assert deltas == [ReasoningDelta("hm"), TextDelta("h"), TextDelta("i")]


@pytest.mark.parametrize("index", [{}, {"output_index": 0}])
def test_pieces_without_an_index_go_by_id(index: dict[str, Any]) -> None:
    def bare(kind: str, **more: Any) -> dict[str, Any]:
        return event(f"function_call_arguments.{kind}", **more)

    calls = (called("f", '{"a":1}'), called("g", "{}", id="fc_2"))
    first = event("output_item.added", item=called("f", ""), **index)
    second = event("output_item.added", item=called("g", "", id="fc_2"), **dict.fromkeys(index, 1))
    pieces = [bare("delta", item_id=id, delta=text) for id, text in (("fc_1", '{"a"'), ("fc_2", "{}"), ("fc_1", ":1}"))]
    reply, deltas = streamed(stream(first, second, *pieces))
    assert known(reply) == known(whole(body(*calls)))
    assert deltas[2:5] == [ArgumentsDelta(0, '{"a"'), ArgumentsDelta(1, "{}"), ArgumentsDelta(0, ":1}")]


def test_items_that_come_only_at_the_end_have_their_place() -> None:
    tools = {"type": "mcp_list_tools", "id": "mcpl_1", "tools": []}
    output = (tools, said("hi"), said("you", id="msg_2"))
    events = (added(said()), text_delta("hi"), done(said("hi")))
    reply, deltas = streamed(stream(*events, output=output))
    assert reply == whole(body(*output))
    assert deltas == [TextDelta("hi"), TextDelta("you")]
    rotated = (tools, said("hi", id="x"), said("you", id="y"))
    assert streamed(stream(*events, output=rotated)) == (whole(body(*rotated)), deltas)


def test_items_of_the_end_find_what_was_told_of_them() -> None:
    late = (said("first", id="msg_0"), said("hi"))  # the id tells that the second was streamed, whatever its index
    reply, deltas = streamed(stream(done(said("hi"), 0), output=late))
    assert (reply, deltas) == (whole(body(*late)), [TextDelta("hi"), TextDelta("first")])
    pair = (said("a", id="x"), said("b", id="y"))  # under new ids the index does
    reply, deltas = streamed(stream(done(said("b", id="p"), 1), done(said("a", id="q"), 0), output=pair))
    assert (reply, deltas) == (whole(body(*pair)), [TextDelta("b"), TextDelta("a")])
    reply, deltas = streamed(stream(done(said("hi"), 7), output=(said("hi", id="x"), SEARCH)))  # or the order
    assert (reply, deltas) == (whole(body(said("hi", id="x"), SEARCH)), [TextDelta("hi")])


def test_end_is_the_truth_and_only_what_is_new_is_told() -> None:
    events = (added(said()), text_delta("hello"), event("output_text.done", output_index=0, text="help"))
    reply, deltas = streamed(stream(*events, output=(said("hi"),)))
    assert (reply.message.text, deltas) == ("hi", [TextDelta("hello")])
    reply, deltas = streamed(stream(added(said()), text_delta("h"), output=(said("hi"),)))
    assert (reply.message.text, deltas) == ("hi", [TextDelta("h"), TextDelta("i")])
    reply, deltas = streamed(stream(done(said("hi")), text_delta("late"), output=(said("hi"),)))
    assert (reply.message.text, deltas) == ("hi", [TextDelta("hi")])


@pytest.mark.parametrize("has_output", [False, True])
def test_what_was_streamed_is_kept_if_the_whole_item_lacks_it(has_output: bool) -> None:
    """As vLLM ends a message with ``content: []``: https://github.com/vllm-project/vllm/pull/36445 (2026)."""
    hollow = (said(), called("f", ""), {"type": "reasoning", "summary": []})
    events = (
        *(added(hollow[0]), text_delta("h"), text_delta("i"), done(hollow[0])),
        *(added(hollow[1], 1), arguments_delta('{"a":1}', 1), done(hollow[1], 1)),
        *(added(hollow[2], 2), event("reasoning_summary_text.delta", output_index=2, delta="hm"), done(hollow[2], 2)),
    )
    reply, deltas = streamed(stream(*events, output=hollow if has_output else ()))
    call = FunctionCall(name="f", arguments_json='{"a":1}', provider_id=reply.message.function_calls[0].provider_id)
    assert known(reply) == (Text("hi"), call, Reasoning(text="hm"))
    assert [delta.text for delta in deltas if isinstance(delta, TextDelta)] == ["h", "i"]
    reply, _ = streamed(stream(added(said()), text_delta("hi"), done(REFUSED)))
    assert (reply.message.text, reply.refusal) == ("", "I can't")


@pytest.mark.parametrize("first", [1, 5])
@pytest.mark.parametrize("has_output", [False, True])
def test_an_index_that_runs_on_across_items_tells_nothing_twice(first: int, has_output: bool) -> None:
    """As vLLM counts ``content_index``: the only text of a message after reasoning has index 1."""
    thoughts = [event("reasoning_text.delta", output_index=0, content_index=0, delta=piece) for piece in ("on", "e")]
    texts = [
        event("output_text.delta", output_index=1, content_index=first + at, delta=piece)
        for at, part in enumerate((["1, ", "2"], [", 3"]))
        for piece in part
    ]
    words = {**WORDS, "content": [{"type": "reasoning_text", "text": "one"}]}
    output = (words, said("1, 2", ", 3"))
    events = [added({**WORDS, "content": []}), *thoughts, done(words), added(said(), 1), *texts, done(output[1], 1)]
    reply, deltas = streamed(stream(*events, output=output if has_output else ()))
    assert reply == whole(body(*output))
    assert "".join([delta.text for delta in deltas if isinstance(delta, TextDelta)]) == "1, 2, 3"
    assert "".join([delta.text for delta in deltas if isinstance(delta, ReasoningDelta)]) == "one"


def test_values_of_the_wrong_type_are_passed_over() -> None:
    for odd in [7, None, {}, "x", True]:
        events = (
            event("output_item.added", output_index=odd, item=odd),
            event("output_text.delta", output_index=0, content_index=odd, delta=None),
            event("output_text.delta", output_index=0, content_index=odd, delta="hi"),
            event("in_progress", response=odd),
            {"type": "codex.rate_limits", "limits": odd},
        )
        assert streamed(stream(*events))[0].message.text == "hi"


NO = {"code": "server_error", "message": "no"}
DOCUMENTS = [
    *EVENTS,
    *[completed(*output, usage=USAGES["OpenAI"][0]) for output, _ in OUTPUTS.values()],
    *[response(*output, status="incomplete", incomplete_details={"reason": "x"}) for output, _ in OUTPUTS.values()],
    *[shape(item, 1) for output, _ in OUTPUTS.values() for item in output for shape in (added, done)],
    event("failed", response=response(status="failed", error=NO)),
    event("refusal.delta", output_index=0, content_index=0, delta="I "),
    event("refusal.done", output_index=0, content_index=0, refusal="I "),
    event("custom_tool_call_input.delta", output_index=0, delta="SELECT 1"),
    {"type": "error", "error": NO},
]


@given(data=st.data(), is_ended=st.booleans())
def test_anything_is_a_reply_or_a_provider_error_however_it_is_cut(data: st.DataObject, is_ended: bool) -> None:
    end = [completed()] if is_ended else []
    for document in check_mangled(CODEC, data, DOCUMENTS, lambda events: sse(*events, *end), is_told=False):
        with suppress(ProviderError):
            check_sent_back(whole(json.dumps(document).encode()))


def check_sent_back(reply: Reply) -> None:
    sent = items(reply.message)
    assert json.dumps(json.loads(json.dumps(sent))) == json.dumps(sent)  # as texts: NaN is not equal to itself
    calls = [item for item in sent if item.get("type") in ("function_call", "custom_tool_call")]
    assert [item["name"] for item in calls] == [call.name for call in reply.message.function_calls]
