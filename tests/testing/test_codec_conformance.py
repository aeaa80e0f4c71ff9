"""Does each check of the suite of codecs catch a codec that is wrong in just that?"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from itertools import count
from typing import Any

import pytest
from hypothesis import Phase, settings
from support.copies import replace
from support.dialects import ChatDialect
from support.examples import NIGHTLY_COUNT

from fsm_agent.errors import BadReply, ProviderError, UsageError
from fsm_agent.lifecycle import Request
from fsm_agent.messages import Delta, FunctionCall, FunctionCallCompleted, Image, Message, Reply
from fsm_agent.providers import OpenAIChat, Profile
from fsm_agent.providers.codec import ChunkDecoder, RequestForm
from fsm_agent.providers.encoding import AFRESH, Encoding
from fsm_agent.providers.openai.chat_reply import ChatReplyInParts
from fsm_agent.testing import CodecConformance

SETTINGS = "_hypothesis_internal_use_settings"  # where hypothesis keeps those of a test


class Faulty(OpenAIChat):
    """A codec that changes requests before they are encoded, or their bodies behind that."""

    def encode(
        self, request: Request, *, model: str, profile: Profile, stream: bool, encoding: Encoding = AFRESH
    ) -> dict[str, Any]:
        request, profile = self.before(request, profile)
        body = super().encode(request, model=model, profile=profile, stream=stream, encoding=encoding)
        return self.behind(body, request, encoding)

    def before(self, request: Request, profile: Profile) -> tuple[Request, Profile]:
        return request, profile

    def behind(self, body: dict[str, Any], request: Request, encoding: Encoding) -> dict[str, Any]:
        return body


def collecting(parts: type[ChatReplyInParts]) -> type[OpenAIChat]:
    """A codec that collects replies like this."""

    class Collecting(OpenAIChat):
        def reply_parts(self, headers: Mapping[str, str]) -> ChatReplyInParts:
            return parts(headers)

    return Collecting


def decoding(decoder: type[ChunkDecoder]) -> type[OpenAIChat]:
    """A codec that decodes streams like this."""

    class Decoding(OpenAIChat):
        def decoder(self, headers: Mapping[str, str]) -> ChunkDecoder:
            return decoder(self, self.reply_parts(headers), headers)

    return Decoding


class LosesACall(ChatReplyInParts):
    def finished(self) -> Reply:
        reply = super().finished()
        kept = [part for part in reply.message.parts if not (isinstance(part, FunctionCall) and part.name == "f1")]
        return reply.changed(message=Message(role="assistant", parts=tuple(kept)))


class LosesUsage(ChatReplyInParts):
    def finished(self) -> Reply:
        return super().finished().changed(usage=self.usage.changed(output_tokens=None))


class CompletesAtTheEnd(ChatReplyInParts):
    def take(self, document: Any, *, is_whole: bool = False) -> list[Delta]:
        deltas = super().take(document, is_whole=is_whole)
        self.__dict__.setdefault("held", []).extend(d for d in deltas if isinstance(d, FunctionCallCompleted))
        return [delta for delta in deltas if not isinstance(delta, FunctionCallCompleted)]

    def end(self, *, is_cut: bool) -> list[Delta]:
        return [*self.__dict__.get("held", ()), *super().end(is_cut=is_cut)]


class ForgetsHalves(ChatReplyInParts):
    def take(self, document: Any, *, is_whole: bool = False) -> list[Delta]:
        return super().take(copy.deepcopy(document), is_whole=is_whole)


class IsAlwaysEnded(ChatReplyInParts):
    is_ended = True  # type: ignore[assignment]


class KnowsNoCR(ChunkDecoder):
    def feed(self, data: bytes) -> list[Delta]:
        return super().feed(data.replace(b"\r", b""))


class ForgetsAtAnError(ChunkDecoder):
    def feed(self, data: bytes) -> list[Delta]:
        deltas = super().feed(data)
        return [] if self.has_failed else deltas


class HoldsBack(ChunkDecoder):
    def feed(self, data: bytes) -> list[Delta]:
        self.__dict__.setdefault("held", []).extend(super().feed(data))
        return []

    def end(self) -> list[Delta]:
        held = [*self.__dict__.get("held", ()), *super().end()]
        self.__dict__["held"] = []
        return held


class ReadsNoStreamWhole(OpenAIChat):
    def decode(self, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        if body.startswith(b"data:"):
            raise BadReply("a stream", status=status)
        return super().decode(status, headers, body)


class EndsOtherwiseWhole(OpenAIChat):
    def decode(self, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        return super().decode(status, headers, body).changed(finish="length")


class RaisesWhatItLikes(OpenAIChat):
    def decode(self, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        json.loads(body)
        return super().decode(status, headers, body)


class SharesItsParts(OpenAIChat):
    def __init__(self) -> None:
        self.parts = ChatReplyInParts({})

    def reply_parts(self, headers: Mapping[str, str]) -> ChatReplyInParts:
        if self.parts.is_ended:
            self.parts = ChatReplyInParts({})
        return self.parts


class KnowsOneError(OpenAIChat):
    def decode(self, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        if status != 200:
            raise ProviderError("no, never", status=status, request_id=headers["x-request-id"], retry_after_s=7.0)
        return super().decode(status, headers, body)


class IgnoresHeaders(OpenAIChat):
    def decode(self, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        return super().decode(status, {}, body)


class GivesUp(OpenAIChat):
    def decode(self, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        try:
            return super().decode(status, headers, body)
        except BadReply as error:
            raise BadReply(error.message, status=status, retryable=False) from None


class HasNoSlash(OpenAIChat):
    def path(self, model: str, *, stream: bool) -> str:
        return "chat/completions"


class HidesItsKey(OpenAIChat):
    def headers(self, api_key: str | None) -> dict[str, str]:
        return {"x-a": api_key} if api_key else {}


class SendsNoKey(OpenAIChat):
    def headers(self, api_key: str | None) -> dict[str, str]:
        return {}


class Counts(Faulty):
    numbers = count()

    def behind(self, body: dict[str, Any], request: Request, encoding: Encoding) -> dict[str, Any]:
        return {**body, "number": next(self.numbers)}


class ChangesItsArgument(Faulty):
    def before(self, request: Request, profile: Profile) -> tuple[Request, Profile]:
        for function in request.functions:
            function.parameters["strict"] = True  # type: ignore[index]
        return request, profile


class ForgetsTheLastResult(Faulty):
    def before(self, request: Request, profile: Profile) -> tuple[Request, Profile]:
        is_last = request.messages[-1].role == "tool"
        return (request.changed(messages=request.messages[:-1]) if is_last else request), profile


class SendsItBackwards(Faulty):
    def behind(self, body: dict[str, Any], request: Request, encoding: Encoding) -> dict[str, Any]:
        return {**body, "messages": body["messages"][::-1]}


class RemembersByLength(Faulty):
    def behind(self, body: dict[str, Any], request: Request, encoding: Encoding) -> dict[str, Any]:
        kept: dict[int, Any] = encoding.__dict__.setdefault("kept", {})
        return body if encoding is AFRESH else kept.setdefault(len(request.messages), body)


class ForgetsReplies(Faulty):
    def before(self, request: Request, profile: Profile) -> tuple[Request, Profile]:
        kept = [message for message in request.messages if message.role != "assistant"]
        return request.changed(messages=kept), profile


class ForgetsDescriptions(Faulty):
    def before(self, request: Request, profile: Profile) -> tuple[Request, Profile]:
        return request.changed(functions=tuple([replace(f, description="") for f in request.functions])), profile


class AlwaysSaysItsChoice(Faulty):
    def behind(self, body: dict[str, Any], request: Request, encoding: Encoding) -> dict[str, Any]:
        return {**body, "tool_choice": request.tool_choice}


class DropsTheChoice(Faulty):
    def behind(self, body: dict[str, Any], request: Request, encoding: Encoding) -> dict[str, Any]:
        return {key: value for key, value in body.items() if key != "tool_choice"}


class TakesAnyChoice(Faulty):
    def before(self, request: Request, profile: Profile) -> tuple[Request, Profile]:
        return request.changed(tool_choice="auto"), profile


class NamesAnyway(Faulty):
    def before(self, request: Request, profile: Profile) -> tuple[Request, Profile]:
        return request, replace(profile, named_tool_choice=True)


class SendsTheSchemaAnyway(Faulty):
    def before(self, request: Request, profile: Profile) -> tuple[Request, Profile]:
        return request, replace(profile, native_schema=True)


class DropsTheSchema(Faulty):
    def behind(self, body: dict[str, Any], request: Request, encoding: Encoding) -> dict[str, Any]:
        return {key: value for key, value in body.items() if key != "response_format"}


class SendsTheFunctionBesideTheSchema(Faulty):
    def before(self, request: Request, profile: Profile) -> tuple[Request, Profile]:
        return request.changed(functions=(*request.functions, request.output.function)), profile


class AsksInWordsSilently(Faulty):
    def request_form(self, request: Request, profile: Profile) -> RequestForm:
        return super().request_form(request.changed(mode="prompted"), profile)


class DropsTheWords(Faulty):
    def behind(self, body: dict[str, Any], request: Request, encoding: Encoding) -> dict[str, Any]:
        return {**body, "messages": [entry for entry in body["messages"] if entry["role"] != "system"]}


class DropsImages(Faulty):
    def before(self, request: Request, profile: Profile) -> tuple[Request, Profile]:
        if not profile.images:
            return request, profile
        messages = [
            message.changed(parts=tuple([part for part in message.parts if not isinstance(part, Image)]))
            for message in request.messages
        ]
        return request.changed(messages=messages), profile


class SendsImagesAnyway(Faulty):
    def before(self, request: Request, profile: Profile) -> tuple[Request, Profile]:
        return request, replace(profile, images=True)


class DropsTheSeed(Faulty):
    def behind(self, body: dict[str, Any], request: Request, encoding: Encoding) -> dict[str, Any]:
        return {key: value for key, value in body.items() if key != "seed"}


class SendsTheTemperatureAnyway(Faulty):
    def before(self, request: Request, profile: Profile) -> tuple[Request, Profile]:
        return request, replace(profile, temperature=True)


class ForgetsTheProfilesExtras(Faulty):
    def before(self, request: Request, profile: Profile) -> tuple[Request, Profile]:
        return request, replace(profile, extra_body={})


class TellsItAll(Faulty):
    def before(self, request: Request, profile: Profile) -> tuple[Request, Profile]:
        for tool in request.settings.hosted_tools:
            raise UsageError(f"the model takes no server like that at {tool.url}")  # type: ignore[union-attr]
        return request, profile


class DropsTools(Faulty):
    def before(self, request: Request, profile: Profile) -> tuple[Request, Profile]:
        return request.changed(settings=replace(request.settings, hosted_tools=())), profile


NATIVE = {"mode": "native", "functions": ()}
FAULTS: list[tuple[str, type[OpenAIChat], dict[str, Any]]] = [
    ("a_turn_is_read_as_it_was_sent", collecting(LosesACall), {}),
    ("a_turn_is_read_as_it_was_sent", collecting(LosesUsage), {}),
    ("a_body_is_read_whole_or_streamed_whatever_was_requested", ReadsNoStreamWhole, {}),
    ("a_body_is_read_whole_or_streamed_whatever_was_requested", EndsOtherwiseWhole, {}),
    ("a_call_is_complete_before_the_next_one_begins", collecting(CompletesAtTheEnd), {}),
    ("halves_of_a_character_are_joined", collecting(ForgetsHalves), {}),
    ("framing_and_cuts_change_nothing", decoding(KnowsNoCR), {}),
    ("an_error_takes_nothing_from_what_came_before", decoding(ForgetsAtAnError), {}),
    ("a_stream_that_breaks_off_is_no_reply_or_all_of_it", collecting(IsAlwaysEnded), {}),
    ("any_bytes_are_a_reply_or_a_provider_error", RaisesWhatItLikes, {}),
    ("decoders_share_nothing", SharesItsParts, {}),
    ("a_refusal_is_an_error_of_its_kind", KnowsOneError, {"status": 401}),
    ("a_refusal_is_an_error_of_its_kind", IgnoresHeaders, {"status": 429}),
    ("a_body_that_is_no_reply_is_a_bad_reply", GivesUp, {"body": b"hello"}),
    ("the_smallest_turn_is_one_reply", decoding(HoldsBack), {}),
    ("it_has_a_name_a_path_and_headers", HasNoSlash, {}),
    ("it_has_a_name_a_path_and_headers", HidesItsKey, {}),
    ("it_has_a_name_a_path_and_headers", SendsNoKey, {}),
    ("encoding_is_pure", Counts, {}),
    ("encoding_is_pure", ChangesItsArgument, {}),
    ("a_dialog_is_sent_whole_and_in_order", ForgetsTheLastResult, {}),
    ("a_dialog_is_sent_whole_and_in_order", SendsItBackwards, {}),
    ("a_dialog_that_grows_or_forks_is_encoded_as_a_new_one", RemembersByLength, {}),
    ("a_reply_can_be_sent_back", ForgetsReplies, {}),
    ("functions_are_sent_as_they_are_described", ForgetsDescriptions, {}),
    ("without_functions_nothing_is_said_about_them", AlwaysSaysItsChoice, {"choice": "none"}),
    ("the_choice_of_functions_is_sent_or_reported", DropsTheChoice, {}),
    ("a_choice_of_no_function_is_refused", TakesAnyChoice, {}),
    ("a_function_that_cannot_be_named_is_offered_alone", NamesAnyway, {}),
    ("the_schema_is_sent_natively_or_in_words", SendsTheSchemaAnyway, {"native": False}),
    ("the_schema_is_sent_natively_or_in_words", DropsTheSchema, {"native": True}),
    ("the_output_is_asked_for_in_the_mode_of_the_request", SendsTheFunctionBesideTheSchema, NATIVE),
    ("the_output_is_asked_for_in_the_mode_of_the_request", AsksInWordsSilently, NATIVE),
    ("the_output_is_asked_for_in_the_mode_of_the_request", DropsTheWords, {**NATIVE, "mode": "prompted"}),
    ("images_are_sent_or_refused", DropsImages, {}),
    ("images_are_sent_or_refused", SendsImagesAnyway, {}),
    ("a_setting_is_sent_refused_or_reported", DropsTheSeed, {"name": "seed"}),
    ("settings_that_the_profile_excludes_are_refused_or_reported", SendsTheTemperatureAnyway, {}),
    ("an_extra_body_is_merged", ForgetsTheProfilesExtras, {}),
    ("no_error_shows_a_secret", TellsItAll, {}),
    ("no_error_shows_a_secret", DropsTools, {}),
]


@pytest.mark.parametrize(("check", "wrong", "case"), FAULTS, ids=[f"{wrong.__name__}-{c}" for c, wrong, _ in FAULTS])
def test_a_wrong_codec_is_caught(
    check: str, wrong: type[OpenAIChat], case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Suite(ChatDialect, CodecConformance):
        codec = wrong()

    test = getattr(CodecConformance, f"test_{check}")
    if kept := getattr(test, SETTINGS, None):
        all_of_them = settings(kept, max_examples=NIGHTLY_COUNT, phases=[Phase.generate])  # the first failure is enough
        monkeypatch.setattr(test, SETTINGS, all_of_them)
    with pytest.raises((AssertionError, pytest.fail.Exception, BadReply, ValueError)):
        test(Suite(), **case)


def test_each_check_has_a_fault_that_it_catches() -> None:
    checks = {name.removeprefix("test_") for name in dir(CodecConformance) if name.startswith("test_")}
    assert checks == {check for check, _, _ in FAULTS}


@pytest.mark.parametrize("hook", ["events", "response", "error_event"])
def test_what_is_missing_is_named(hook: str) -> None:
    class Suite(CodecConformance):
        codec = OpenAIChat()

    with pytest.raises(NotImplementedError, match=f"Suite.{hook} is missing"):
        getattr(Suite(), hook)("x")
