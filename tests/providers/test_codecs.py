"""Do all codecs keep the protocol, on made-up streams and on recorded ones?"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from conformance.codec_conformance import CodecConformance, DecodingConformance
from conformance.strategies import CUTS, FRAMINGS
from conformance.streams import Framing, ServerEvent, events_of, framed, outcome
from conformance.turns import Turn, TurnPart
from hypothesis import given
from hypothesis import strategies as st
from support.dialects import AnthropicDialect, ChatDialect, GeminiDialect, ResponsesDialect
from support.examples import examples
from support.recordings import RECORDED, needs_recorded
from support.stream_checks import check_linear
from support.time_growth import growth
from wire_check import CODECS, body_of, cases

from fsm_agent.call import Request
from fsm_agent.messages import Message, Reply
from fsm_agent.providers import AnthropicProfile, GeminiProfile, Profile

MAX_RECORDED_BYTES = 8_000  # of a stream that is read again and again

USER = Message.of("user", "hi")
codecs = pytest.mark.parametrize("api", CODECS)
some = examples(40)


class TestChat(ChatDialect, CodecConformance): ...


class TestResponses(ResponsesDialect, CodecConformance): ...


@pytest.mark.nightly
class TestResponsesThatCountOn(ResponsesDialect, DecodingConformance):
    runs_on = True


@pytest.mark.nightly
class TestResponsesThatAreNeverWhole(ResponsesDialect, DecodingConformance):
    is_bare = True
    test_a_call_is_complete_before_the_next_one_begins = None  # nothing tells where a call ends


class TestAnthropic(AnthropicDialect, CodecConformance):
    profile = AnthropicProfile()


class TestGemini(GeminiDialect, CodecConformance):
    profile = GeminiProfile()


@cache
def recorded(api: str) -> list[list[ServerEvent]]:
    """The events of recorded streams that are not long."""
    streams = [case for case in cases(RECORDED, api) if case["stream"] and case["response"]["status"] == 200]
    bodies = [body_of(case) for case in streams]
    return [events_of(body) for body in bodies if len(body) <= MAX_RECORDED_BYTES]


@needs_recorded
@codecs
@some
@given(data=st.data(), framing=FRAMINGS, cuts=CUTS)
def test_recorded_streams_come_to_the_same_however_they_are_framed_and_cut(
    api: str, data: st.DataObject, framing: Framing, cuts: list[int]
) -> None:
    events = data.draw(st.sampled_from(recorded(api)))
    found = outcome(CODECS[api], framed(events, framing), cuts)
    if found.error is not None and framing.other is not None:  # the error of a stream without an end quotes the line
        quoted = f": {framing.other.decode()!r}"
        found = replace(found, error=found.error.changed(message=found.error.message.removesuffix(quoted)))
    assert found == outcome(CODECS[api], framed(events))


@needs_recorded
@codecs
@some
@given(data=st.data(), cuts=CUTS)
def test_recorded_streams_that_break_off_tell_the_same_however_they_are_cut(
    api: str, data: st.DataObject, cuts: list[int]
) -> None:
    body = b"".join([b"data: %b\n\n" % text for _, text in data.draw(st.sampled_from(recorded(api)))])
    part = body[: data.draw(st.integers(0, len(body)))]
    assert outcome(CODECS[api], part, cuts) == outcome(CODECS[api], part)


GROWING: dict[str, Callable[[int], list[TurnPart]]] = {
    "text": lambda size: [TurnPart("text", ["word "] * size)],
    "halves of a pair": lambda size: [TurnPart("text", ["\ud83d"] * size)],
    "reasoning": lambda size: [TurnPart("reasoning", ["word "] * size)],
    "arguments": lambda size: [TurnPart("call", ['{"a":"', *["x"] * size, '"}'], "f", "c")],
    "calls": lambda size: [TurnPart("call", ['{"a":"x"}'], "f", f"c{n}") for n in range(size)],
    "calls of one id": lambda size: [TurnPart("call", ['{"a":"x"}'], f"f{n}", "c") for n in range(size)],
    "parts": lambda size: [TurnPart(kind, ["word"]) for _ in range(size) for kind in ("text", "reasoning")],
}


@pytest.mark.nightly
@pytest.mark.parametrize("dialect", [ChatDialect(), ResponsesDialect(), AnthropicDialect(), GeminiDialect()])
@pytest.mark.parametrize("name", GROWING)
def test_streams_take_linear_time(name: str, dialect: Any) -> None:
    def sent_back(reply: Reply) -> None:
        request = Request(messages=(USER, reply.message, USER))
        dialect.codec.encode(request, model="m", profile=Profile(), stream=False)

    check_linear(dialect.codec, lambda size: framed(dialect.events(Turn(GROWING[name](size)))), 200, sent_back)


@pytest.mark.nightly
def test_reports_of_usage_take_linear_time() -> None:
    def reporting(size: int) -> bytes:
        reports = [{"choices": [], "usage": {f"count_{n}_{m}": 1 for m in range(20)}} for n in range(size)]
        return b"".join([b"data: %b\n\n" % json.dumps(report).encode() for report in reports])

    def feed(body: bytes) -> None:
        ChatDialect().codec.decoder({}).feed(body)

    assert growth(reporting, feed, 500) < 3
