"""Is a dialog written in contents that Gemini accepts, whoever spoke in it?"""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from support.gemini_bodies import CODEC, text

from fsm_agent.call import Request
from fsm_agent.messages import FunctionCall, FunctionResult, Image, Message, Opaque, Reasoning, Text
from fsm_agent.providers import GeminiProfile

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 8
USER = Message.of("user", "hi")
UNSIGNED = base64.b64encode(b"skip_thought_signature_validator").decode()


def contents(*messages: Message) -> list[Any]:
    """What stands for the messages in a dialog that the user has begun."""
    request = Request(messages=[USER, *messages])
    body = json.loads(CODEC.encode(request, model="m1", profile=GeminiProfile(), stream=False))
    said: list[Any] = body["contents"][1:]
    return said


def test_system_messages_stand_apart() -> None:
    own, other = Opaque(wire="gemini", data={"text": "x"}), Opaque(wire="anthropic", data={})
    messages = [Message.of("system", "Be ", "terse.", own, other), USER, Message.of("system", "")]
    body = json.loads(CODEC.encode(Request(messages=messages), model="m1", profile=GeminiProfile(), stream=False))
    assert body == {
        "systemInstruction": {"parts": [{"text": "Be terse."}, {"text": "x"}]},
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
    }


def test_image_that_is_elsewhere_has_the_type_that_its_name_says() -> None:
    for image, media_type in [
        (Image(url="https://x/y.JPG?size=1.png"), {"mimeType": "image/jpeg"}),
        (Image(url="https://x/y.webp#z"), {"mimeType": "image/webp"}),
        (Image(url="https://x/y"), {}),
        (Image(url="https://x.webp"), {}),
        (Image(url="https://x/y", media_type="image/heic"), {"mimeType": "image/heic"}),
    ]:
        (said,) = contents(Message.of("user", image))
        assert said["parts"] == [{"fileData": {"fileUri": image.url, **media_type}}]


DATA = {"mimeType": "image/png", "data": base64.b64encode(PNG).decode()}
PDF = {"inlineData": {"mimeType": "application/pdf", "data": "JVBERg=="}}


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (("",), [{"text": ""}]),
        (("a", "", "b"), [{"text": "a"}, {"text": "b"}]),
        (("a", Image.of(PNG)), [{"text": "a"}, {"inlineData": DATA}]),
        ((Opaque(wire="gemini", data=PDF), Opaque(wire="anthropic", data={})), [PDF]),
    ],
)
def test_user_message_has_its_parts(parts: tuple[Any, ...], said: list[Any]) -> None:
    assert contents(Message.of("user", *parts)) == [{"role": "user", "parts": said}]


CALLS = (
    FunctionCall(id="3.0", name="add", arguments_json='{"a": 1}', provider_id="x7", signature="c2ln"),
    FunctionCall(id="3.1", name="add", arguments_json=""),
    FunctionCall(id="3.2", name="add", arguments_json='{"a": '),
    FunctionCall(id="3.3", name="add", arguments_json='{"a": NaN}', provider_id=""),
)


def test_calls_are_said_with_their_ids_and_signatures() -> None:
    (said,) = contents(Message.of("assistant", "Well.", *CALLS))
    assert said == {
        "role": "model",
        "parts": [
            {"text": "Well."},
            {"functionCall": {"name": "add", "args": {"a": 1}, "id": "x7"}, "thoughtSignature": "c2ln"},
            {"functionCall": {"name": "add", "args": {}}},
            {"functionCall": {"name": "add", "args": {"invalid_arguments": '{"a": '}}},
            {"functionCall": {"name": "add", "args": {"invalid_arguments": '{"a": NaN}'}}},
        ],
    }
    json.dumps(said, allow_nan=False)


def test_first_call_of_a_message_that_has_no_signature_gets_a_placeholder() -> None:
    (said,) = contents(Message.of("assistant", *CALLS[1:]))
    assert [part.get("thoughtSignature") for part in said["parts"]] == [UNSIGNED, None, None]
    (said,) = contents(Message.of("assistant", CALLS[1], CALLS[0]))
    assert [part.get("thoughtSignature") for part in said["parts"]] == [None, "c2ln"]


def test_results_are_one_turn_however_many_messages_they_are() -> None:
    one = FunctionResult(id="3.0", name="add", text="2", provider_id="x7")
    two = FunctionResult(id="3.1", name="add", text="no", is_error=True)
    parts = [
        {"functionResponse": {"name": "add", "response": {"output": "2"}, "id": "x7"}},
        {"functionResponse": {"name": "add", "response": {"error": "no"}}},
    ]
    together, apart = Message.of("tool", one, two), [Message.of("tool", one), Message.of("tool", two)]
    assert contents(USER, together)[1:] == contents(USER, *apart)[1:] == [{"role": "user", "parts": parts}]
    calls = Message.of("assistant", CALLS[0])
    assert len(contents(apart[0], calls, apart[1])) == 3
    assert len(contents(apart[0], USER)) == 2


def test_results_stand_before_what_else_is_said() -> None:
    result = FunctionResult(id="3.0", name="add", text="2")
    (said,) = contents(Message.of("user", "and now?", Image.of(PNG), result))
    assert [key for part in said["parts"] for key in part] == ["functionResponse", "text", "inlineData"]


OPAQUE = {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "eA=="}


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (("hi",), [{"text": "hi"}]),
        ((Text("hi", "c2ln"), Text("")), [text("hi", thoughtSignature="c2ln")]),
        ((Text("", "c2ln"),), [text("", thoughtSignature="c2ln")]),
        ((Reasoning(text="hm", signature="of another wire"), "hi"), [{"text": "hi"}]),
        ((Opaque(wire="gemini", data=OPAQUE), Opaque(wire="anthropic", data={"type": "thinking"})), [OPAQUE]),
        ((Image.of(PNG),), [{"inlineData": DATA}]),
    ],
)
def test_model_message_has_its_parts(parts: tuple[Any, ...], said: list[Any]) -> None:
    assert contents(Message.of("assistant", *parts)) == [{"role": "model", "parts": said}]


def test_model_message_that_says_nothing_is_left_out() -> None:
    for parts in [(), ("",), (Reasoning(text="hm"),), (Opaque(wire="anthropic", data={}),)]:
        assert [said["role"] for said in contents(USER, Message.of("assistant", *parts), USER)] == ["user", "user"]
