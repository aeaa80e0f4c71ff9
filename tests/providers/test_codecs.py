"""Do all codecs keep the protocol, on made-up streams and on recorded ones?"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.codec_conformance import (
    BROKEN,
    CUTS,
    FRAMINGS,
    Dialect,
    Framing,
    Turn,
    check_any_body,
    check_any_stream,
    check_break,
    check_failure,
    check_framing,
    check_halves,
    check_one_by_one,
    check_turn,
    events_of,
    outcome,
    turns,
)
from support.dialects import AnthropicDialect, ChatDialect, GeminiDialect, ResponsesDialect
from support.recordings import RECORDED, needs_recorded
from wire_check import CODECS, body_of, cases

from fsm_agent.providers.codec import ServerEvent

DIALECTS: dict[str, Dialect] = {
    "chat": ChatDialect(),
    "responses": ResponsesDialect(),
    "responses, counted on": ResponsesDialect(runs_on=True),
    "responses, never whole": ResponsesDialect(is_bare=True),
    "anthropic": AnthropicDialect(),
    "gemini": GeminiDialect(),
}
MAX_RECORDED_BYTES = 8_000  # of a stream that is read again and again

dialects = pytest.mark.parametrize("name", DIALECTS)
codecs = pytest.mark.parametrize("api", CODECS)
some = settings(max_examples=60)


@dialects
@some
@given(turn=turns(), mixed=st.booleans())
def test_a_turn_is_read_as_it_was_said(name: str, turn: Turn, mixed: bool) -> None:
    check_turn(DIALECTS[name], turn, mixed=mixed)


@pytest.mark.spec("1.22: the completion of each call")
@pytest.mark.parametrize("name", [name for name in DIALECTS if name != "responses, never whole"])
@some
@given(turn=turns())
def test_a_call_is_complete_before_the_next_one_begins(name: str, turn: Turn) -> None:
    check_one_by_one(DIALECTS[name], turn)


@dialects
@some
@given(kind=st.sampled_from(["text", "reasoning", "call"]), pieces=BROKEN)
def test_halves_of_a_surrogate_pair_find_each_other(name: str, kind: Any, pieces: list[str]) -> None:
    check_halves(DIALECTS[name], kind, pieces)


@dialects
@some
@given(turn=turns(), mixed=st.booleans(), framing=FRAMINGS, cuts=CUTS)
def test_framing_and_cuts_change_nothing(name: str, turn: Turn, mixed: bool, framing: Framing, cuts: list[int]) -> None:
    dialect = DIALECTS[name]
    check_framing(dialect.codec, dialect.turn(turn, mixed=mixed and dialect.can_mix), framing, cuts)


@dialects
@some
@given(turn=turns(), at=st.integers(0, 1000), framing=FRAMINGS, cuts=CUTS)
def test_an_error_takes_nothing_from_what_came_before(
    name: str, turn: Turn, at: int, framing: Framing, cuts: list[int]
) -> None:
    check_failure(DIALECTS[name], turn, at, framing, cuts)


@dialects
@some
@given(turn=turns(), at=st.integers(0, 100_000), cuts=CUTS)
def test_a_stream_that_breaks_off_is_no_reply_or_all_of_it(name: str, turn: Turn, at: int, cuts: list[int]) -> None:
    check_break(DIALECTS[name], turn, at, cuts)


@codecs
@given(body=st.binary(), status=st.sampled_from([200, 400, 500]), cuts=st.lists(st.integers(1, 5)))
def test_any_bytes_are_a_reply_or_a_provider_error(api: str, body: bytes, status: int, cuts: list[int]) -> None:
    check_any_stream(CODECS[api], body, cuts)
    check_any_body(CODECS[api], status, body)


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
    check_framing(CODECS[api], data.draw(st.sampled_from(recorded(api))), framing, cuts)


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
