"""Is it known in every wire format where an answer ends, and what is a failure, in every shape?"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from support import chat_bodies as chat
from support import gemini_bodies as gemini
from support import messages_bodies as messages
from support import response_bodies as responses

from fsm_agent.errors import BadReply, Overloaded, ProviderError, RateLimited
from fsm_agent.messages import Delta, Reply
from fsm_agent.providers import Codec

READ: dict[str, Callable[[bytes, int], tuple[Reply, list[Delta]]]] = {
    "chat": chat.streamed,
    "responses": responses.streamed,
    "anthropic": messages.streamed,
    "gemini": gemini.streamed,
}
CODECS: dict[str, Codec] = {
    "chat": chat.CODEC,
    "responses": responses.CODEC,
    "anthropic": messages.CODEC,
    "gemini": gemini.CODEC,
}
wires = pytest.mark.parametrize("wire", READ)


def as_json(*documents: Any) -> list[bytes]:
    return [json.dumps(document).encode() for document in documents]


def choices(**choice: Any) -> bytes:
    return chat.sse({"choices": [{"index": 0, **choice}]}, done=False)


CHAT = chat.stream({"content": "hi"}, done=False)
ITEMS = (responses.added(responses.said()), responses.text_delta("hi"), responses.done(responses.said("hi")))
END = responses.completed(responses.said("hi"))
RESPONSE = responses.sse(*ITEMS, END)
HI = messages.text("hi")
MESSAGE = messages.stream(*HI)

COMPLETE: dict[str, list[bytes]] = {
    "chat": [
        *[CHAT[:-2], CHAT + b'data: {"choices": [], "usa', CHAT + b"data: [DO"],
        chat.stream({"content": "hi"}, finish_reason=None),
        chat.stream({"content": "hi"}) + b'data: {"error": {"message": "after the end"}}\n\n',
        choices(message={"content": "hi"}, finish_reason="stop"),
        choices(delta={"content": "hi"}, message={"content": "hi"}, finish_reason="stop"),
    ],
    "responses": [
        *[responses.stream(*ITEMS)[:-2], RESPONSE + b"data: [DONE]\n\n", RESPONSE + b'data: {"type": "respon'],
        RESPONSE + responses.sse(responses.text_delta("after", 7), responses.done(responses.said("after"), 8)),
        responses.sse(*ITEMS, responses.event("done", response=responses.response(responses.said("hi")))),
        responses.sse(END),
        responses.sse(*ITEMS, responses.response(responses.said("hi"))),
        re.sub(rb"event: .*\n", b"", RESPONSE),
        responses.body(responses.said("hi"), message="ok"),
    ],
    "anthropic": [
        *[MESSAGE[:-2], MESSAGE + b'data: {"type": "error"}\n\n', MESSAGE + b"event: x\ndata: {"],
        re.sub(rb"event: .*\n", b"", MESSAGE),
    ],
    "gemini": [
        gemini.sse(gemini.chunk(gemini.text("h")), gemini.response(gemini.text("i"))),
        *as_json([gemini.chunk(gemini.text("h")), gemini.response(gemini.text("i"))]),
    ],
}


@wires
def test_an_answer_is_complete(wire: str) -> None:
    for body in COMPLETE[wire]:
        reply, _ = READ[wire](body, 0)
        assert reply.message.text == "hi", body
        assert READ[wire](body, 1)[0] == reply, body
        is_stream = not body.startswith((b"{", b"["))
        for before in (b"", b": ping\n\n", b"event: x\n") if is_stream else (b"",):  # nobody asked for a stream
            assert CODECS[wire].decode(200, {}, before + body).message == reply.message


BEGUN = {
    "chat": choices(delta={"content": "hi"}, finish_reason=None),
    "responses": responses.sse(*ITEMS),
    "anthropic": messages.sse(messages.START, *HI),
    "gemini": gemini.sse(gemini.chunk(gemini.text("hi"))),
}
LOST = gemini.call(partialArgs=[{"jsonPath": "$.a", "stringValue": "x"}])
NONE: dict[str, dict[str, list[bytes]]] = {  # by what is said of it
    "chat": {
        "no answer": [b"data: [DONE]\n\n", *as_json({}, {"choices": []}, {"choices": [7]}, {"choices": {}})],
        "'error'": [chat.stream(finish_reason="error")],
        "no name": [chat.completion({"tool_calls": [{"id": "x", "function": {"name": "", "arguments": "{}"}}]})],
    },
    "responses": {
        "cut off": [
            BEGUN["responses"] + b"data: [DONE]\n\n",
            responses.sse(responses.event("queued", response=responses.response(status="queued"))),
        ],
        "no name": [responses.body(responses.called("")), responses.stream(responses.arguments_delta("{}"))],
        "no answer": [b"data: [DONE]\n\n", *as_json({"output": None}, {"status": "ok"}, {"choices": [{}]})],
    },
    "anthropic": {
        "cut off": [
            messages.sse(messages.START, *HI) + b"data: [DONE]\n\n",
            MESSAGE[: MESSAGE.index(b"message_delta")],
        ],
        "no name": [
            messages.message({"type": "tool_use", "id": "t1", "input": {}}),
            messages.stream(*messages.block(0, None, {"type": "input_json_delta", "partial_json": "{}"})),
        ],
        "no answer": [messages.sse(messages.STOP), *as_json({}, {"content": "hi"})],
    },
    "gemini": {
        "cut off": [
            *as_json([], [gemini.chunk(gemini.text("h"))]),
            BEGUN["gemini"] + gemini.sse({"usageMetadata": {"promptTokenCount": 1}}),
            gemini.sse(gemini.response(gemini.text("hi"), finish="FINISH_REASON_UNSPECIFIED")),
            gemini.sse(gemini.chunk(gemini.text("hi"), promptFeedback={"safetyRatings": []})),
        ],
        "no name": [
            gemini.sse(gemini.chunk(gemini.call(None, {"a": 1})), gemini.response()),
            gemini.sse(gemini.chunk(gemini.call("f", {})), gemini.chunk(LOST), gemini.response()),
        ],
        "no answer": as_json({}, {"candidates": []}, {"candidates": [7], "promptFeedback": {}}),
    },
}


@wires
def test_what_is_cut_or_empty_is_no_reply(wire: str) -> None:
    begun = BEGUN[wire]
    everywhere = {
        "cut off": [begun, b"", begun + b'data: {"x'],
        "cut off.*: 'upstream timed out'": [b": ping\n\nupstream timed out\nfor good\n\n"],  # what came is shown
        "no answer.*'.*busy": [b'{"code": 500, "msg": "busy"}'],
        "a JSON object": [b"[7]", begun + b"data: 7\n\n"],
        "JSON.*: 'what'": [begun + b"data: what\n\n" + COMPLETE[wire][0]],
        "JSON.*: '502 Bad Gateway'": [b"<html><title>502 Bad Gateway</title></html>"],
        "expected JSON": [b'["h", '],
    }
    rows = [(problem, body) for table in (everywhere, NONE[wire]) for problem in table for body in table[problem]]
    for problem, body in rows:
        for piece in (0, 1):
            with pytest.raises(BadReply, match=problem) as caught:
                READ[wire](body, piece)
            assert caught.value.retryable


ERROR = {"message": "no", "code": 502}
OVERLOADED = {"type": "overloaded_error", "message": "no"}
SAID = {"type": "error", "error": OVERLOADED, "request_id": "q1"}
OF_RESPONSES = {"message": "no", "code": "server_error"}
FAILED = responses.response(status="failed", error=OF_RESPONSES)
UNAVAILABLE = {"error": {"code": 503, "message": "no", "status": "UNAVAILABLE"}}

# Documents that come alone, or as an event behind others; and further bytes behind others.
FAILURES: dict[str, tuple[list[Any], list[bytes]]] = {
    "chat": (
        [{"error": ERROR}, {"object": "error", **ERROR}, [{"error": ERROR}]],
        [
            b'event: error\ndata: {"error": {"message": "no", "code": 502}}\n\n',
            b'error: {"error": {"message": "no", "code": 502}}',
            choices(delta={"content": ""}, error=ERROR, finish_reason="error"),
            chat.sse({"error": ERROR, "choices": [{"delta": {"content": ""}, "finish_reason": "error"}]}),
        ],
    ),
    "responses": (
        [{"object": "error", **OF_RESPONSES}, [{"error": OF_RESPONSES}]],
        [
            responses.sse({"type": "error", **OF_RESPONSES}),
            responses.sse(responses.event("error", error=OF_RESPONSES)),
            responses.sse(responses.event("failed", response=FAILED)),
            responses.sse(responses.event("completed", response=FAILED)),
            responses.sse({"type": "server_error", "message": "no"}),
        ],
    ),
    "anthropic": (
        [SAID, {"code": 529, **OVERLOADED}, {"detail": "no"}, [SAID]],
        [messages.sse(SAID)[:-2], b"event: error\ndata: " + as_json({"code": 529, **OVERLOADED})[0] + b"\n\n"],
    ),
    "gemini": ([[UNAVAILABLE], UNAVAILABLE, {"code": 503, "message": "no"}], []),
}


@wires
def test_every_shape_of_failure_is_raised(wire: str) -> None:
    documents, others = FAILURES[wire]
    alone = as_json(*documents, {"detail": "no"})
    behind = [b"data: %b\n\n" % document for document in as_json(*documents)]
    behind += [b"event: error\ndata: no\n\n" + COMPLETE[wire][0], b"error: no\n\n", behind[0][:-2], *others]
    for body in (*alone, *[BEGUN[wire] + event for event in behind]):
        for piece in (0, 1):
            with pytest.raises(Overloaded, match=r"^no\b") as caught:
                READ[wire](body, piece)
            assert (caught.value.status, caught.value.retryable) == (200, True)


UNCLOSED = {  # each has its finish reason, but not its end marker
    "chat": choices(delta={"content": "hi"}, finish_reason="stop"),
    "anthropic": MESSAGE[: MESSAGE.index(b"event: message_stop")],
    "gemini": gemini.sse(gemini.response(gemini.text("hi"))),
}


@pytest.mark.parametrize("wire", UNCLOSED)
def test_only_an_end_marker_closes_an_answer_to_errors(wire: str) -> None:
    assert READ[wire](UNCLOSED[wire], 0)[0].message.text == "hi"
    for failure in FAILURES[wire][0]:
        with pytest.raises(Overloaded):
            READ[wire](UNCLOSED[wire] + b"data: %b\n\n" % as_json(failure)[0], 0)


def test_a_failed_response_has_its_code_and_is_one_even_when_nothing_is_said() -> None:
    full = {"type": "insufficient_quota", "code": "insufficient_quota", "message": "no"}
    with pytest.raises(RateLimited) as caught:
        responses.streamed(BEGUN["responses"] + responses.sse({"type": "error", "error": full}))
    assert (caught.value.code, caught.value.retryable) == ("insufficient_quota", False)
    for status in ("failed", "cancelled"):
        for body in (
            responses.body(status=status),
            BEGUN["responses"] + responses.sse({"type": f"response.{status}"}),
            *as_json(responses.response(status=status)),
        ):
            with pytest.raises(ProviderError, match=f"'{status}'"):
                responses.streamed(body)
