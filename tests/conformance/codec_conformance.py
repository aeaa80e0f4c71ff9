"""The conformance suite of codecs: how they read responses, whole and streamed, and how they write requests."""

from __future__ import annotations

import base64
import copy
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from conformance.strategies import CUT_PIECES, CUTS, FRAMINGS, dialogs, requests, turns
from conformance.streams import Framing, ServerEvent, framed, mismatch, outcome
from conformance.turns import Kind, Turn, TurnPart
from fsm_agent.call import Request
from fsm_agent.errors import AuthFailed, BadReply, Overloaded, ProviderError, RateLimited, UsageError
from fsm_agent.functions import Function
from fsm_agent.messages import (
    FunctionCallCompleted,
    FunctionCallStarted,
    FunctionResult,
    HostedMCP,
    Image,
    Message,
    Reply,
    Settings,
    Text,
)
from fsm_agent.prompts import Output
from fsm_agent.providers import Codec, Profile

# One test of the suite runs for several codecs, on machines that may be busy, under the profile of the user.
drawn = settings(deadline=None, suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow])

_PLAIN = Turn([TurnPart("text", ["h", "i"])])
_NO_REPLIES = (b"", b"hello", b"<html><title>Sign in</title></html>", b'{"a": [', b"\xff\xfe")
_KINDS: dict[int, type[ProviderError]] = {302: ProviderError, 400: ProviderError, 404: ProviderError}
_KINDS |= {401: AuthFailed, 403: AuthFailed, 429: RateLimited, 500: Overloaded, 503: Overloaded, 529: Overloaded}
_OF_KEYS = re.compile("auth|key|token|secret")  # in the name of a header that logs and recordings do not show

SECRET = "tok-4711-that-no-error-may-show"
_USER = Message.of("user", "<task>")
_PICTURE = b"\x89PNG\r\n\x1a\n<picture>"
_SETTINGS: dict[str, Any] = {
    "temperature": 0.375,
    "top_p": 0.625,
    "max_tokens": 2_345,
    "stop": ("<stop>",),
    "seed": 86_420,
    "reasoning_effort": "low",
    "top_logprobs": 3,
}


class _Town(BaseModel):
    """A place."""

    town: str
    country: str


def _search(query: str) -> str:
    """Search the <archive>."""
    return query


def _measure(width: int, height: int) -> int:
    """Measure the <area>."""
    return width * height


TEXT, TOWN = Output(str), Output(_Town)
ANSWER = "give_final_answer"  # the function that takes an answer as its arguments


def _functions() -> tuple[Function, ...]:
    return Function.of(_search, name="search"), Function.of(_measure, name="measure")


SEARCH, MEASURE = _functions()


class DecodingConformance:
    """The tests of how a codec reads responses; see `CodecConformance`."""

    codec: ClassVar[Codec]
    kinds: ClassVar[Collection[Kind]] = ("text", "reasoning", "call")
    interleaves_calls: ClassVar[bool] = False
    cuts_characters: ClassVar[bool] = False

    def events(self, turn: Turn, *, interleaved: bool = False) -> Sequence[ServerEvent]:
        """Return the events of a whole stream of this turn, with everything that the wire format can express.

        Args:
            turn: The turn.
            interleaved: Whether the pieces of its calls alternate, for wire formats that can do that.
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
        """Two halves that make a pair are joined, even if they came in different pieces.  Other halves become
        U+FFFD.
        """
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
        """The deltas before an error in a stream are returned, and no deltas after it."""
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
        """The deltas before it are the beginning of the whole stream's deltas."""
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
        """Two streams that are read alternately give the same results as one after the other."""
        bodies = [framed(self.events(data.draw(self.turns()))) for _ in range(2)]
        decoders, deltas = [self.codec.decoder({}) for _ in bodies], [[], []]  # type: ignore[var-annotated]
        for start in range(0, max(map(len, bodies)), 100):
            for body, decoder, seen in zip(bodies, decoders, deltas, strict=True):
                seen += decoder.feed(body[start : start + 100])
        for body, decoder, seen in zip(bodies, decoders, deltas, strict=True):
            seen += decoder.end()
            alone = outcome(self.codec, body)
            assert (decoder.finish(), seen) == (alone.reply, alone.deltas)

    def test_a_refusal_is_an_error_of_its_kind(self) -> None:
        """The status decides on the kind; the headers say when to come again, and under which id to ask why."""
        headers = {"retry-after": "7", "x-request-id": "r-7", "content-type": "application/json"}
        for status, kind in _KINDS.items():
            with pytest.raises(ProviderError) as caught:
                self.codec.decode(status, headers, self.error_response("no, never"))
            error = caught.value
            assert type(error) is kind, f"a response of status {status} is {error!r}"
            assert "no, never" in error.message
            assert (error.status, error.request_id, error.retry_after_s) == (status, "r-7", 7.0)

    def test_a_body_that_is_no_reply_is_a_bad_reply(self) -> None:
        """A proxy's page in the place of a reply may be gone at the next attempt."""
        for body in _NO_REPLIES:
            errors = [outcome(self.codec, body).error]
            with pytest.raises(BadReply) as caught:
                self.codec.decode(200, {}, body)
            for error in (*errors, caught.value.report()):
                assert error is not None, f"a stream of {body!r} is a reply"
                assert (error.kind, error.status, error.retryable) == ("BadReply", 200, True), body

    def test_the_smallest_turn_is_one_reply(self) -> None:
        """The deltas of a stream come while it arrives, not at its end."""
        decoder, early = self.codec.decoder({}), []
        for event in self.events(_PLAIN):
            early += decoder.feed(framed([event]))
        assert [getattr(delta, "text", None) for delta in early].count("h") == 1, f"{early!r} begins with no 'h'"
        assert decoder.finish().message.text == "hi"


class EncodingConformance(DecodingConformance):
    """The tests of how a codec writes requests; see `CodecConformance`."""

    profile: ClassVar[Profile] = Profile()
    model: ClassVar[str] = "m1"

    def encode(
        self, *messages: Message, profile: Mapping[str, Any] | None = None, stream: bool = False, **request: Any
    ) -> dict[str, Any]:
        """Return the body of a request, as JSON gives it back.

        Args:
            messages: The messages, or a short one by default.
            profile: Changes of `profile`.
            stream: Whether the reply is streamed.
            request: Further fields of the `Request`.
        """
        asked = Request(messages=messages or (_USER,), **request)
        decoded: dict[str, Any] = json.loads(self._body(asked, self.profile.changed(**profile or {}), stream=stream))
        return decoded

    def _encoded_or_refused(self, *messages: Message, **request: Any) -> tuple[str, str]:
        """Return the JSON of a request and "", or "" and the error that refuses it."""
        try:
            return json.dumps(self.encode(*messages, **request)), ""
        except UsageError as error:
            return "", f"{error} {error!r}"

    def _body(self, request: Request, profile: Profile, *, stream: bool = False) -> str:
        return self.codec.encode(request, model=self.model, profile=profile, stream=stream).decode()

    def test_it_has_a_name_a_path_and_headers(self) -> None:
        """The key is in a header that is known to hold one, and nowhere else."""
        codec = self.codec
        assert codec.name
        for stream in (False, True):
            assert codec.path(self.model, stream=stream).startswith("/"), "a path behind a base URL begins with a slash"
            assert SECRET not in codec.path(self.model, stream=stream)
        carrying = [name for name, value in codec.headers(SECRET).items() if SECRET in value]
        assert carrying, "no header carries the key"
        assert all(map(_OF_KEYS.search, carrying)), (
            f"{carrying} do not look secret: logs and recordings would show them"
        )
        assert not any(map(_OF_KEYS.search, codec.headers(None))), "a header of a key is sent without one"
        assert all(isinstance(name, str) for name in codec.request_headers(Request(messages=(_USER,)), self.profile))

    @drawn
    @given(request=requests(_functions, TOWN), stream=st.booleans())
    def test_encoding_is_pure(self, request: Request, stream: bool) -> None:
        """An equal request is an equal body, and the caller's values stay as they were."""
        before = _print_request(request, self.profile)
        first = self._body(request, self.profile, stream=stream)
        assert self._body(request, self.profile, stream=stream) == first
        assert _print_request(request, self.profile) == before, "encoding changed a value of the caller's"
        adapted = self.codec.adapted(request, self.profile)
        assert isinstance(adapted, tuple)
        assert adapted == self.codec.adapted(request, self.profile)

    @drawn
    @given(dialog=dialogs())
    def test_a_dialog_is_sent_whole_and_in_order(self, dialog: list[Message]) -> None:
        """No text, name, argument or result is lost; a system message may stand anywhere."""
        texts = [*_strings(self.encode(*dialog, functions=(SEARCH,)))]
        expected = [text for message in dialog for text in _texts(message)]
        places = []
        for text in expected:
            found = [index for index, one in enumerate(texts) if text in one]
            assert found, f"{text!r} of the dialog is not in the request"
            places += found[:1] if text != "<system>" else []
        assert places == sorted(places), "the dialog is sent in another order"

    @drawn
    @given(dialog=dialogs(), data=st.data())
    def test_a_dialog_that_grows_or_forks_is_encoded_as_a_new_one(
        self, dialog: list[Message], data: st.DataObject
    ) -> None:
        """Whatever is kept of one request for the next never shows."""
        beginnings = [dialog[:end] for end in range(1, len(dialog) + 1) if _is_sendable(dialog[:end], dialog[end:])]
        beginning = data.draw(st.sampled_from(beginnings))
        forks = [[*beginning, Message.of("user", "<more>")], [*beginning[:-1], _other(beginning[-1])]]
        for messages in (*beginnings, *forks, dialog, dialog):
            request = Request(messages=messages, functions=(SEARCH,))
            grown = self._body(request, self.profile)
            anew = self._body(request.changed(messages=copy.deepcopy(messages)), self.profile)
            assert grown == anew, f"{messages!r} is encoded otherwise behind its beginnings"

    @drawn
    @given(data=st.data())
    def test_a_reply_can_be_sent_back(self, data: st.DataObject) -> None:
        """The model's own words are in the next request, with the results of the functions that it called."""
        turn = data.draw(self.turns())
        message = self.codec.decode(200, {}, self.response(turn)).message
        results = [
            Message.of("tool", FunctionResult(id=c.id, name=c.name, text=f"<result {n}>", provider_id=c.provider_id))
            for n, c in enumerate(message.function_calls)
        ]
        request = Request(messages=(_USER, message, *results, *([] if results else [_USER])))
        texts = [*_strings(json.loads(self._body(request, self.profile)))]
        texts_sent = [part.text for part in message.parts if isinstance(part, Text) and part.text.strip()]
        for text in (
            *texts_sent,
            *[c.name for c in message.function_calls],
            *[f"<result {n}>" for n in range(len(results))],
        ):
            assert any(text in one for one in texts), f"{text!r} of the reply or behind it is not in the next request"

    def test_functions_are_sent_as_they_are_described(self) -> None:
        """Names, descriptions and the names of parameters."""
        body = self.encode(functions=(SEARCH, MEASURE))
        shown = {*_strings(body), *_names(body)}
        for word in ("search", "measure", "query", "width", "height"):
            assert word in shown, f"{word!r} of a function is not in the request"
        assert "<archive>" in json.dumps(body), "the description of a function is not in the request"
        assert "measure" not in json.dumps(self.encode(functions=(SEARCH,)))

    def test_without_functions_nothing_is_said_about_them(self) -> None:
        """Some services refuse a choice among no functions."""
        settings = Settings(parallel_function_calls=True)
        for choice in ("required", "none", "search"):
            assert self.encode(tool_choice=choice, settings=settings) == self.encode()

    def test_the_choice_of_functions_is_sent_or_reported(self) -> None:
        """'required', 'none' and a name change the request, unless `adapted` says why not."""
        functions = (SEARCH, MEASURE)
        auto = self.encode(functions=functions)
        for choice in ("required", "none", "measure"):
            request = Request(messages=(_USER,), functions=functions, tool_choice=choice)
            is_sent = self.encode(functions=functions, tool_choice=choice) != auto
            assert is_sent or self.codec.adapted(request, self.profile), f"tool_choice={choice!r} is dropped silently"

    def test_a_choice_of_no_function_is_refused(self) -> None:
        """The error names it, and the functions that there are."""
        with pytest.raises(UsageError, match=r"'search'.*'measure'.*'subtract'"):
            self.encode(functions=(SEARCH, MEASURE), tool_choice="subtract")

    def test_a_function_that_cannot_be_named_is_offered_alone(self) -> None:
        """With `named_tool_choice=False` in the profile."""
        body = self.encode(functions=(SEARCH, MEASURE), tool_choice="measure", profile={"named_tool_choice": False})
        assert "measure" in json.dumps(body)
        assert "search" not in json.dumps(body), "a function that was not chosen is offered too"

    def test_the_schema_is_sent_natively_or_in_words(self) -> None:
        """With `native_schema=False` in the profile it goes out in words, and `adapted` says so."""
        for native in (True, False):
            changes: dict[str, Any] = {"native_schema": native}
            body = self.encode(output=TOWN, profile=changes)
            assert all(name in json.dumps(body) for name in ("town", "country")), "the schema is not in the request"
            request, profile = Request(messages=(_USER,), output=TOWN), self.profile.changed(**changes)
            is_in_words = any("town" in text for text in _strings(body, without_keys=("required",)))
            assert is_in_words or native, "the schema is sent natively to a model that takes none"
            assert bool(self.codec.adapted(request, profile)) is is_in_words, (
                "adapted() does not tell how the schema goes out"
            )
            assert "town" not in json.dumps(self.encode(output=TEXT, profile=changes))

    @pytest.mark.parametrize("mode", ["native", "function", "prompted"])
    def test_the_output_is_asked_for_in_the_mode_of_the_request(self, mode: Any) -> None:
        """By a schema, by a function that takes the answer, or in words, but never by two of them."""
        for functions in ((), (SEARCH,)):
            request = Request(messages=(_USER,), functions=functions, output=TOWN, mode=mode)
            asked = self.codec.request_form(request, self.profile)
            texts = [*_strings(self.encode(functions=functions, output=TOWN, mode=mode))]
            assert asked.mode == mode or asked.notes, f"{asked.mode!r} takes the place of {mode!r} silently"
            assert any(ANSWER in text for text in texts) is (asked.mode == "function")
            assert any(asked.words in text for text in texts) if asked.words else asked.mode != "prompted"
            assert asked.notes == () or self.codec.adapted(request, self.profile)[: len(asked.notes)] == asked.notes

    def test_images_are_sent_or_refused(self) -> None:
        """With `images=False` in the profile they are refused; they are never left out."""
        message = Message.of("user", "<look>", Image.of(_PICTURE))
        with pytest.raises(UsageError, match="image"):
            self.encode(message, profile={"images": False})
        body, refusal = self._encoded_or_refused(message)
        assert "image" in refusal or base64.b64encode(_PICTURE).decode() in body, "an image is left out silently"

    def test_a_setting_is_sent_refused_or_reported(self) -> None:
        """A setting that the model does not take is an error, or is named by `adapted`; it is never just dropped."""
        for name, value in _SETTINGS.items():
            settings = Settings(**{name: value})
            request = Request(messages=(_USER,), settings=settings)
            body, refusal = self._encoded_or_refused(settings=settings)
            if refusal:
                assert name in refusal, f"{refusal!r} does not name {name}"
            else:
                notes = self.codec.adapted(request, self.profile)
                is_sent = body != json.dumps(self.encode())
                assert is_sent or any(name in note for note in notes), f"{name} is dropped silently"

    def test_settings_that_the_profile_excludes_are_refused_or_reported(self) -> None:
        """Preferences are reported (`temperature`), needs are refused (`stop`, `top_logprobs`)."""
        settings = Settings(temperature=0.375)
        body = json.dumps(self.encode(settings=settings, profile={"temperature": False}))
        assert "0.375" not in body, "temperature is sent to a model that takes none"
        request = Request(messages=(_USER,), settings=settings)
        notes = self.codec.adapted(request, self.profile.changed(temperature=False))
        assert any("temperature=0.375" in note for note in notes), f"{notes!r} do not say that temperature is left out"
        with pytest.raises(UsageError, match=r"<stop>"):
            self.encode(settings=Settings(stop=("<stop>",)), profile={"stop": False})
        with pytest.raises(UsageError, match=r"top_logprobs: .*3"):
            self.encode(settings=Settings(top_logprobs=3), profile={"logprobs": False})

    def test_an_extra_body_is_merged(self) -> None:
        """The caller's body comes last, after the profile's.  Neither is changed."""
        profile, own = {"x_a": {"one": 1, "two": 2}}, {"x_a": {"two": 3}, "x_b": None}
        body = self.encode(settings=Settings(extra_body=own), profile={"extra_body": profile})
        assert (body["x_a"], body["x_b"]) == ({"one": 1, "two": 3}, None)
        assert (profile, own) == ({"x_a": {"one": 1, "two": 2}}, {"x_a": {"two": 3}, "x_b": None})
        name = next(iter(self.encode()))
        assert self.encode(settings=Settings(extra_body={name: "<mine>"}))[name] == "<mine>"

    def test_no_error_shows_a_secret(self) -> None:
        """A tool of the provider's is sent with its token, or refused without it."""
        tool = HostedMCP("docs", f"https://example.invalid/?key={SECRET}", authorization=SECRET)
        settings = Settings(hosted_tools=(tool,))
        body, refusal = self._encoded_or_refused(settings=settings)
        assert SECRET not in refusal, "an error shows a token"
        assert refusal or SECRET in body, "a tool of the provider's is left out silently"


class CodecConformance(EncodingConformance):
    """The tests that every `Codec` passes.

    A test class derives from it, with the codec and three ways to write what its service would send::

        class TestAcme(CodecConformance):
            codec = Acme()

            def events(self, turn, *, interleaved=False): ...   # the `ServerEvent`s of a stream of this turn
            def response(self, turn): ...                       # the bytes of a whole response with this turn
            def error_event(self, message): ...                 # a `ServerEvent` that reports an error

    The cases are drawn by hypothesis, which has to be installed, and nothing is sent anywhere.

    Attributes:
        codec: The codec.
        profile: The model's capabilities; all that it claims is checked.
        model: The model's name.
        kinds: The kinds of parts that the wire can tell.
        interleaves_calls: The pieces of parallel calls may come in turns; `events` is then asked for that too.
        cuts_characters: The service may cut a text between the halves of a surrogate pair, as those do that count in
            UTF-16 units.

    Examples:
        >>> class TestMyCodec(CodecConformance):                     # doctest: +SKIP
        ...     ...
    """


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


def _strings(value: Any, without_keys: Sequence[str] = ()) -> Iterator[str]:
    """Yield every text in a JSON value, in order, without keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if key not in without_keys:
                yield from _strings(inner, without_keys)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner, without_keys)


def _names(value: Any) -> Iterator[str]:
    """Yield every key in a JSON value."""
    if isinstance(value, Mapping):
        yield from value
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _names(inner)


def _is_sendable(messages: Sequence[Message], following: Sequence[Message]) -> bool:
    """Return whether a request could end with these messages: after a user's message, or after all results of a
    round.
    """
    role = messages[-1].role
    return role == "user" or (role == "tool" and not (following and following[0].role == "tool"))


def _other(message: Message) -> Message:
    """Return a message that could be in the place of a user's or a result, with another text."""
    parts = [
        part.changed(text="<other>") if isinstance(part, Text | FunctionResult) else part for part in message.parts
    ]
    return message.changed(parts=tuple(parts))


def _texts(message: Message) -> list[str]:
    """Return the texts of a message that a request has to contain."""
    calls = [json.loads(call.arguments_json)["query"] for call in message.function_calls]
    results = [part.text for part in message.parts if isinstance(part, FunctionResult)]
    return [text for text in (message.text, *calls, *results) if text]


def _print_request(request: Request, profile: Profile) -> str:
    """Return all that can be seen of a request, functions and schema included."""
    schemas = [function.parameters for function in request.functions]
    return repr((request, schemas, request.output.schema, profile))
