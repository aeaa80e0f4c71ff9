"""The conformance suite of codecs, part one: responses, whole and streamed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fsm_agent.errors import AuthFailed, BadReply, Overloaded, ProviderError, RateLimited
from fsm_agent.messages.event import FunctionCallCompleted, FunctionCallStarted
from fsm_agent.messages.reply import Reply
from fsm_agent.providers.codec import Codec
from fsm_agent.providers.streams import ServerEvent
from fsm_agent.testing.strategies import CUT_PIECES, CUTS, FRAMINGS, turns
from fsm_agent.testing.streams import Framing, framed, mismatch, outcome
from fsm_agent.testing.turns import Kind, Turn, TurnPart

# One test of the suite runs for several codecs, on machines that may be busy, under the profile of the user.
drawn = settings(deadline=None, suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow])

_PLAIN = Turn([TurnPart("text", ["h", "i"])])
_NO_REPLIES = (b"", b"hello", b"<html><title>Sign in</title></html>", b'{"a": [', b"\xff\xfe")
_KINDS: dict[int, type[ProviderError]] = {401: AuthFailed, 403: AuthFailed, 429: RateLimited, 500: Overloaded}
_KINDS |= {400: ProviderError, 404: ProviderError, 502: Overloaded, 503: Overloaded, 529: Overloaded}


class DecodingConformance:
    """The tests of how a codec reads responses; see `CodecConformance`."""

    codec: ClassVar[Codec]
    kinds: ClassVar[Collection[Kind]] = ("text", "reasoning", "call")
    interleaves_calls: ClassVar[bool] = False
    cuts_characters: ClassVar[bool] = False

    def events(self, turn: Turn, *, interleaved: bool = False) -> Sequence[ServerEvent]:
        """Return the events of a whole stream of this turn, and all that the wire can tell of it.

        Args:
            turn: The turn.
            interleaved: The pieces of its calls come in turns; only for wires that can do that.
        """
        raise NotImplementedError(f"{type(self).__name__}.events is missing: the events of a stream would be right")

    def response(self, turn: Turn) -> bytes:
        """Return the body of a whole response with this turn."""
        raise NotImplementedError(f"{type(self).__name__}.response is missing: the body of a response would be right")

    def error_event(self, message: str) -> ServerEvent:
        """Return an event that reports an error in a stream."""
        raise NotImplementedError(f"{type(self).__name__}.error_event is missing: an event with an error is right")

    def error_response(self, message: str) -> bytes:
        """Return the body of a refusal; by default it is the data of `error_event`."""
        return self.error_event(message).data

    def turns(self) -> st.SearchStrategy[Turn]:
        """Return the strategy of turns that this wire can tell."""
        return turns(self.kinds, cuts_characters=self.cuts_characters)

    @drawn
    @given(data=st.data())
    def test_a_turn_is_read_as_it_was_sent(self, data: st.DataObject) -> None:
        """The reply contains the turn, and the deltas announce exactly that."""
        turn, interleaved = data.draw(self.turns()), self.interleaves_calls and data.draw(st.booleans())
        events = self.events(turn, interleaved=True) if interleaved else self.events(turn)
        found = outcome(self.codec, framed(events))
        assert found.reply is not None, f"the stream of a whole turn is no reply, but {found.error!r}"
        self._check_reply(found.reply, turn)
        assert mismatch(found.reply, found.deltas) is None

    def _check_reply(self, reply: Reply, turn: Turn) -> None:
        message = reply.message
        assert message.role == "assistant"
        assert (message.text, message.reasoning) == (turn.joined("text"), turn.joined("reasoning"))
        calls = [(call.name, call.provider_id, call.arguments_json) for call in message.function_calls]
        assert calls == [(call.name, call.id, call.text) for call in turn.calls]
        assert reply.usage == turn.usage

    @drawn
    @given(data=st.data())
    def test_a_body_is_read_whole_or_streamed_whatever_was_requested(self, data: st.DataObject) -> None:
        """Some servers stream without being asked to, and some do not stream when asked to."""
        turn = data.draw(self.turns())
        body, stream = self.response(turn), framed(self.events(turn))
        replies = [self.codec.decode(200, {}, body), outcome(self.codec, body).reply]
        for reply in (*replies, self.codec.decode(200, {}, stream)):
            assert reply is not None, "a whole body in the place of a stream is no reply"
            message, streamed = reply.message, outcome(self.codec, stream).reply
            assert streamed is not None
            assert (message.text, message.reasoning) == (turn.joined("text"), turn.joined("reasoning"))
            assert [(call.name, call.provider_id) for call in message.function_calls] == [
                (call.name, call.id) for call in turn.calls
            ]
            assert reply.usage == turn.usage
            assert reply.finish == streamed.finish, "a turn ends for another reason when it is not streamed"

    @drawn
    @given(data=st.data())
    def test_a_call_is_complete_before_the_next_one_begins(self, data: st.DataObject) -> None:
        """A function can be prepared while the next call still arrives."""
        turn = data.draw(self.turns())
        found = outcome(self.codec, framed(self.events(turn)))
        order = [delta for delta in found.deltas if isinstance(delta, FunctionCallStarted | FunctionCallCompleted)]
        assert [(type(delta), delta.index) for delta in order] == [
            (kind, index) for index in range(len(turn.calls)) for kind in (FunctionCallStarted, FunctionCallCompleted)
        ]

    @drawn
    @given(data=st.data())
    def test_halves_of_a_character_are_joined(self, data: st.DataObject) -> None:
        """Halves of one part that make a pair are joined, whatever piece they came in; others are U+FFFD."""
        if not self.cuts_characters:
            pytest.skip("cuts_characters is False: this service cuts no character in half")
        kind, pieces = data.draw(st.sampled_from([*self.kinds])), data.draw(CUT_PIECES)
        arguments = ['{"a":"', *pieces, '"}']
        part = TurnPart("call", arguments, "f", "call_1") if kind == "call" else TurnPart(kind, pieces)
        found = outcome(self.codec, framed(self.events(Turn([part]))))
        assert found.reply is not None, f"the stream of a whole turn is no reply, but {found.error!r}"
        assert set(found.joined().values()) == {part.text}
        assert mismatch(found.reply, found.deltas) is None
        assert type(found.reply.message.text) is str

    @drawn
    @given(data=st.data(), framing=FRAMINGS, cuts=CUTS)
    def test_framing_and_cuts_change_nothing(self, data: st.DataObject, framing: Framing, cuts: list[int]) -> None:
        """Equal events are equal deltas and an equal reply, however they are written and their bytes are cut."""
        events = self.events(data.draw(self.turns()))
        assert outcome(self.codec, framed(events, framing), cuts) == outcome(self.codec, framed(events))

    @drawn
    @given(data=st.data(), framing=FRAMINGS, cuts=CUTS)
    def test_an_error_takes_nothing_from_what_came_before(
        self, data: st.DataObject, framing: Framing, cuts: list[int]
    ) -> None:
        """The deltas before an error in a stream are returned, and none after it."""
        events = self.events(data.draw(self.turns()))
        at = data.draw(st.integers(0, len(events) - 1))
        before = self.codec.decoder({}).feed(framed(events[:at]))
        failed = [*events[:at], self.error_event("no, never"), *events[at:]]
        found = outcome(self.codec, framed(failed, framing), cuts)
        assert found.deltas == before
        assert found.error is not None, "a stream with an error in its midst is a reply"
        assert "no, never" in found.error.message

    @drawn
    @given(data=st.data(), cuts=CUTS)
    def test_a_stream_that_breaks_off_is_no_reply_or_all_of_it(self, data: st.DataObject, cuts: list[int]) -> None:
        """The deltas before it are the beginning of those of the whole stream."""
        body = framed(self.events(data.draw(self.turns())))
        part = body[: data.draw(st.integers(0, len(body) - 1))]
        whole, found = outcome(self.codec, body), outcome(self.codec, part, cuts)
        assert found == outcome(self.codec, part)
        for key, text in found.joined().items():
            assert whole.joined()[key].startswith(text.removesuffix("\ufffd"))
        if found.reply is None:
            assert found.error is not None
            assert found.error.retryable, f"a stream that was cut off may well arrive whole next time: {found.error!r}"
            return
        assert whole.reply is not None
        assert found.reply.message == whole.reply.message
        assert mismatch(found.reply, found.deltas) is None
        assert found.reply.usage == whole.reply.usage or found.reply.adapted

    @drawn
    @given(body=st.binary(max_size=60), status=st.sampled_from([200, 400, 500]), cuts=st.lists(st.integers(1, 5)))
    def test_any_bytes_are_a_reply_or_a_provider_error(self, body: bytes, status: int, cuts: list[int]) -> None:
        """A server may send anything."""
        check_any_stream(self.codec, body, cuts)
        check_any_body(self.codec, status, body)

    @drawn
    @given(data=st.data())
    def test_decoders_share_nothing(self, data: st.DataObject) -> None:
        """Two streams that are read by turns come to the same as one after the other."""
        bodies = [framed(self.events(data.draw(self.turns()))) for _ in range(2)]
        decoders, deltas = [self.codec.decoder({}) for _ in bodies], [[], []]  # type: ignore[var-annotated]
        for start in range(0, max(map(len, bodies)), 100):
            for body, decoder, seen in zip(bodies, decoders, deltas, strict=True):
                seen += decoder.feed(body[start : start + 100])
        for body, decoder, seen in zip(bodies, decoders, deltas, strict=True):
            seen += decoder.end()
            alone = outcome(self.codec, body)
            assert (decoder.finish(), seen) == (alone.reply, alone.deltas)

    @pytest.mark.parametrize("status", [*_KINDS, 302])
    def test_a_refusal_is_an_error_of_its_kind(self, status: int) -> None:
        """The status decides on the kind; the headers say when to come again, and under which id to ask why."""
        headers = {"retry-after": "7", "x-request-id": "r-7", "content-type": "application/json"}
        with pytest.raises(ProviderError) as caught:
            self.codec.decode(status, headers, self.error_response("no, never"))
        error = caught.value
        assert type(error) is _KINDS.get(status, ProviderError)
        assert "no, never" in error.message
        assert (error.status, error.request_id, error.retry_after_s) == (status, "r-7", 7.0)

    @pytest.mark.parametrize("body", _NO_REPLIES, ids=repr)
    def test_a_body_that_is_no_reply_is_a_bad_reply(self, body: bytes) -> None:
        """A proxy's page in the place of a reply may be gone at the next attempt."""
        errors = [outcome(self.codec, body).error]
        with pytest.raises(BadReply) as caught:
            self.codec.decode(200, {}, body)
        for error in (*errors, caught.value.report()):
            assert error is not None, "a stream of anything else is a reply"
            assert (error.kind, error.status, error.retryable) == ("BadReply", 200, True)

    def test_the_smallest_turn_is_one_reply(self) -> None:
        """The deltas of a stream come while it arrives, not at its end."""
        decoder, early = self.codec.decoder({}), []
        for event in self.events(_PLAIN):
            early += decoder.feed(framed([event]))
        assert [getattr(delta, "text", None) for delta in early].count("h") == 1, f"{early!r} begins with no 'h'"
        assert decoder.finish().message.text == "hi"


def check_any_stream(codec: Codec, body: bytes, cuts: Sequence[int]) -> None:
    """Check that any bytes are a reply or a `ProviderError`, the same however they are cut."""
    assert outcome(codec, body, cuts) == outcome(codec, body)


def check_any_body(codec: Codec, status: int, body: bytes) -> None:
    """Check that any whole response is a reply or a `ProviderError` of its status."""
    try:
        found: Reply | int | None = codec.decode(status, {}, body)
    except ProviderError as error:
        found = error.status
    assert found == status or isinstance(found, Reply), f"a response of status {status} is an error of status {found}"
