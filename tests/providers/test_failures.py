"""Does every error body become the right error, and is it known which errors are worth a retry?"""

from __future__ import annotations

import json
import time
from typing import Any, get_args

import pytest
from conformance.streams import read
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.errors import (
    AuthFailed,
    BadReply,
    ContextTooLong,
    Overloaded,
    ProviderError,
    RateLimited,
    TimedOut,
)
from fsm_agent.providers import AnthropicCodec, GeminiCodec, OpenAIChatCodec, OpenAIResponsesCodec

CHAT = OpenAIChatCodec()  # every codec reads errors alike: `CodecConformance`


def failed(status: int, body: Any = b"", headers: dict[str, str] | None = None) -> ProviderError:
    """The error of a response."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(ProviderError) as caught:
        CHAT.decode(status, headers or {}, raw)
    return caught.value


def reported(document: Any) -> ProviderError:
    """The error that an event of a stream reports."""
    with pytest.raises(ProviderError) as caught:
        read(CHAT, b"event: error\ndata: %b\n\n" % json.dumps(document).encode())
    return caught.value


SHAPES = {
    "OpenAI": ({"error": {"message": "no", "type": "t", "param": None, "code": "c"}}, "no", "c"),
    "Anthropic": ({"type": "error", "error": {"type": "t", "message": "no"}, "request_id": "r1"}, "no", "t"),
    "Gemini": ({"error": {"code": 404, "message": "no", "status": "NOT_FOUND"}}, "no", "NOT_FOUND"),
    "a list of one": ([{"error": {"code": 404, "message": "no", "status": "NOT_FOUND"}}], "no", "NOT_FOUND"),
    "flat, as vLLM": ({"object": "error", "message": "no", "type": "T", "param": None, "code": 404}, "no", "T"),
    "detail, a list": ({"detail": [{"loc": ["body"], "msg": "no"}]}, '[{"loc": ["body"], "msg": "no"}]', None),
    "error, a string": ({"code": "c", "error": "no"}, "no", "c"),
    "errors": ({"success": False, "errors": [{"code": 7003, "message": "no"}]}, "no", "7003"),
    "AWS": ({"__type": "t", "Message": "no"}, "no", "t"),
    "JSON in the message": ({"error": {"message": '{"error":{"message":"no","code":"c"}}', "type": "t"}}, "no", "c"),
    "a broken JSON in the message": ({"error": {"message": '{"error":'}}, '{"error":', None),
    "OpenRouter": ({"error": {"message": "oh", "code": 404, "metadata": {"raw": "no"}}}, "oh: no", "404"),
    "OpenRouter with JSON": (
        {"error": {"message": "oh", "code": 404, "metadata": {"raw": '{"error":{"message":"no","code":"c"}}'}}},
        "oh: no",
        "404",
    ),
    "a string": ("no", "no", None),
    "HTML": (b"<html><head><title>404 Not Found</title></head><body>x</body></html>", "404 Not Found", None),
    "HTML without a title": (b"<html><body><h1>no</h1>\n<p>never</p></body></html>", "no never", None),
    "no UTF-8": (b"no \xff", "no \ufffd", None),
    "empty": (b"", "HTTP 404 without a message", None),
    "an empty object": ({}, "{}", None),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_error_body_is_read(shape: str) -> None:
    body, message, code = SHAPES[shape]
    error = failed(404, body)
    assert (error.message, error.code, error.status) == (message, code, 404)
    assert (type(error), error.retryable) == (ProviderError, False)


KINDS: list[tuple[int, dict[str, Any], type[ProviderError], bool]] = [
    (404, {"message": "none"}, ProviderError, False),
    (409, {"message": "conflict"}, ProviderError, True),
    (501, {"message": "no embeddings"}, ProviderError, False),
    (401, {"message": "who?"}, AuthFailed, False),
    (400, {"message": "Incorrect API key provided. You can obtain one"}, AuthFailed, False),
    (400, {"message": "API key not valid. Please pass a valid one.", "status": "INVALID_ARGUMENT"}, AuthFailed, False),
    (408, {"message": "slow"}, TimedOut, True),
    (429, {"message": "slow down"}, RateLimited, True),
    (429, {"message": "You exceeded your current quota", "code": "insufficient_quota"}, RateLimited, False),
    (429, {"message": "You exceeded your current quota", "status": "RESOURCE_EXHAUSTED"}, RateLimited, True),
    (400, {"message": "Your credit balance is too low to access the API"}, RateLimited, False),
    (500, {"message": "oh"}, Overloaded, True),
    (529, {"message": "Overloaded", "type": "overloaded_error"}, Overloaded, True),
    (400, {"message": "too many", "code": "context_length_exceeded"}, ContextTooLong, False),
    (500, {"message": "x", "code": 500, "type": "exceed_context_size_error"}, ContextTooLong, False),
    (413, {"message": "Request too large for model `x`: Limit 6000, Requested 8000"}, ContextTooLong, False),
    (429, {"message": "Request too large for gpt-4 on TPM", "code": "rate_limit_exceeded"}, ContextTooLong, False),
    (400, {"message": "prompt is too long: 3333404 tokens > 200000 maximum"}, ContextTooLong, False),
    (400, {"message": "The input token count (9) exceeds the maximum number of tokens allowed"}, ContextTooLong, False),
    (400, {"message": "This model's maximum context length is 10 tokens. However, you"}, ContextTooLong, False),
    (400, {"message": "input length and `max_tokens` exceed context limit: 9 + 9 > 10"}, ContextTooLong, False),
    (400, {"message": "Input tokens exceed the configured limit of 9 tokens."}, ContextTooLong, False),
    (400, {"message": "The input (9 tokens) is longer than the model's context length (8)"}, ContextTooLong, False),
    (400, {"message": "The decoder prompt (length 9) is longer than the maximum model length"}, ContextTooLong, False),
    (400, {"message": "The prompt (total length 9) is too long to fit into the model"}, ContextTooLong, False),
    (400, {"message": "You passed 9 input tokens, but the context length is only 8"}, ContextTooLong, False),
    (400, {"message": "Cannot truncate prompt with n_keep (9) >= n_ctx (8)"}, ContextTooLong, False),
    (400, {"message": "The number of tokens to keep is greater than the context length."}, ContextTooLong, False),
    (422, {"message": "`inputs` must have less than 8 tokens. Given: 9"}, ContextTooLong, False),
    (400, {"message": "InvalidParameter: Range of input length should be [1, 8]"}, ContextTooLong, False),
    (429, {"message": "You exceeded your daily token limit."}, RateLimited, True),
    (429, {"message": "Prompt tokens per minute exceeded."}, RateLimited, True),
    (400, {"message": "API key expired. Please renew the API key."}, AuthFailed, False),
    (500, {"message": "The model produced output that does not match the expected peg-native format"}, BadReply, True),
    (400, {"message": "Failed to call a function.", "code": "tool_use_failed"}, BadReply, True),
    (500, {"message": "image input is not supported - hint: mmproj", "type": "server_error"}, ProviderError, False),
]  # fmt: skip


def test_failures_have_their_kind() -> None:
    for status, error, kind, retryable in KINDS:
        found = failed(status, {"error": error})
        assert (type(found), found.retryable) == (kind, retryable), error


def test_error_inside_a_reply_is_judged_by_what_it_says() -> None:
    for document, kind, code, retryable in [
        ({"error": {"code": 500, "message": "x", "type": "server_error"}}, Overloaded, "server_error", True),
        ({"error": {"code": 400, "message": "Token limit reached"}}, ProviderError, "400", False),
        ({"error": {"code": "429", "message": "x"}}, RateLimited, "429", True),
        ({"error": {"code": 409, "message": "x"}}, ProviderError, "409", True),
        ({"error": {"message": "x", "type": "insufficient_quota"}}, RateLimited, "insufficient_quota", False),
        ({"error": {"message": "x", "code": "content_filter", "status": 400}}, ProviderError, "content_filter", False),
        ({"error": {"message": "x", "code": "tool_use_failed", "status_code": 400}}, BadReply, "tool_use_failed", True),
        ({"code": 400, "message": "x", "type": "exceed_context_size_error"}, ContextTooLong, None, False),
        ({"error": {"type": "DEADLINE_EXCEEDED", "message": "x"}}, Overloaded, "DEADLINE_EXCEEDED", True),
        ({"error": {"type": "timeout_error", "message": "x"}}, TimedOut, "timeout_error", True),
        ({"error": {"type": "PERMISSION_DENIED", "message": "x"}}, AuthFailed, "PERMISSION_DENIED", False),
        ({"error": {"type": "FAILED_PRECONDITION", "message": "x"}}, ProviderError, "FAILED_PRECONDITION", False),
        ("upstream closed", Overloaded, None, True),
    ]:
        error = reported(document)
        assert (type(error), error.status, error.retryable) == (kind, 200, retryable), document
        assert code is None or error.code == code


def test_headers_say_how_long_to_wait() -> None:
    for headers, seconds in [
        ({"retry-after": "20"}, 20.0),
        ({"retry-after": "1", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "1", "retry-after-ms": "0"}, 1.0),
        ({"retry-after": "Fri, 21 Nov 2026 10:00:30 GMT", "date": "Fri, 21 Nov 2026 10:00:00 GMT"}, 30.0),
        ({"retry-after": "Fri, 21 Nov 2026 10:00:00 GMT", "date": "Fri, 21 Nov 2026 10:00:30 GMT"}, None),
        ({"retry-after": "Fri, 21 Nov 2026 10:00:30 -0000", "date": "Fri, 21 Nov 2026 10:00:00 GMT"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, None),
        ({"retry-after": "0"}, None),
        ({"retry-after": "Fri, 21 Nov 9026 10:00:30 GMT"}, 7 * 24 * 3600.0),
        ({"retry-after": "7, 9"}, 9.0),
        ({"retry-after": "9, soon"}, None),
        ({"retry-after": "soon", "date": "Fri, 21 Nov 2026 10:00:00 GMT"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "9" * 9}, 7 * 24 * 3600.0),
        ({"retry-after": "9" * 500}, None),
        ({"x-ratelimit-reset-tokens": "6m0s"}, None),
    ]:
        assert failed(429, {"error": {"message": "no"}}, headers).retry_after_s == seconds


def test_body_says_how_long_to_wait() -> None:
    for error, seconds in [
        ({"message": "no", "details": [{"@type": "x"}, {"retryDelay": "34.4s"}]}, 34.4),
        ({"message": "no", "details": [{"retryDelay": "0s"}]}, None),
        ({"message": "no", "retry_after": 5}, 5.0),
        ({"message": "Rate limit reached. Please try again in 7.66s. Visit"}, 7.66),
        ({"message": "Please try again in 1m2.5s."}, 62.5),
        ({"message": "Please try again in 20ms."}, 0.02),
        ({"message": "Please try again in 1h2m."}, 3720.0),
        ({"message": "Please retry in 41.5s."}, 41.5),
        ({"message": "Please retry after 6 seconds."}, 6.0),
        ({"message": "Please try again in 2 minutes."}, 120.0),
        ({"message": "Please retry after 1 hour."}, 3600.0),
        ({"message": "Please try again in 250 milliseconds."}, 0.25),
        ({"message": "Please try again in a while."}, None),
        ({"message": "Please retry in 3 steps."}, None),
    ]:
        assert failed(429, {"error": error}).retry_after_s == seconds
        assert failed(429, {"error": error}, {"retry-after": "3"}).retry_after_s == 3.0


def test_request_id_is_found() -> None:
    for headers, body, expected in [
        ({"x-request-id": "a", "cf-ray": "b"}, {}, "a"),
        ({"cf-ray": "b"}, {}, "b"),
        ({}, {"request_id": "c", "error": {"message": "no"}}, "c"),
        ({}, {"request_id": 7, "error": {"message": "no"}}, None),
        ({"x-request-id": "a" * 5000}, {}, "a" * 200),
    ]:
        assert failed(500, body, headers).request_id == expected


def test_server_may_say_whether_to_ask_again() -> None:
    for status, said, retryable in [
        (500, "false", False),
        (404, "true", True),
        (401, "true", False),
        (529, "true", True),
        (404, "yes", False),
    ]:
        assert failed(status, {"error": {"message": "no"}}, {"x-should-retry": said}).retryable is retryable


KEYS = (
    "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789",
    "sk-ant-api03-abcdefghijklmnop",
    "gsk_abcdefghijklmnopqrst",
    "xai-abcdefghijklmnopqrst",
    "AIzaSyA1234567890abcdefghijklmnopq",
    "Bearer abcdefghijklmnop.qrst",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
)


def test_keys_are_masked() -> None:
    for key in KEYS:
        error = failed(401, {"error": {"message": f"Incorrect API key provided: {key}.", "code": key}})
        assert key not in f"{error} {error!r} {error.report()}"
        assert error.message.startswith("Incorrect API key provided: ")
        assert key not in str(failed(200, f"no {key}".encode()))


def test_what_providers_masked_is_left() -> None:
    message = "Incorrect API key provided: sk-abc***xyz; your api key: ****-key is invalid; task-force-of-everybody"
    assert failed(401, {"error": {"message": message}}).message == message


def test_messages_are_bounded() -> None:
    error = failed(400, {"error": {"message": "x" * 100_000, "code": "c" * 1000}})
    assert len(error.message) == 1_000
    assert error.message.endswith("x…")
    assert len(error.code or "") == 100
    assert len(failed(200, b"x" * 100_000).message) < 300


def test_unreadable_shows_how_the_body_begins() -> None:
    error = failed(200, b"<html><title>Sign in</title>", {"x-request-id": "a"})
    assert isinstance(error, BadReply)
    assert "'Sign in' [status=200, request_id=a]" in str(error)
    assert error.retryable


def test_empty_body_is_said_to_be_empty() -> None:
    error = failed(200, b"\n")
    assert isinstance(error, BadReply)
    assert "empty" in error.message


@pytest.mark.parametrize("codec", [OpenAIChatCodec(), OpenAIResponsesCodec(), AnthropicCodec(), GeminiCodec()])
def test_json_that_is_no_reply_is_a_bad_reply(codec: Any) -> None:
    for document in ([], [1], [{"hello": "world"}], "hello", 5, None):
        for body in (json.dumps(document), f"data: {json.dumps(document)}\n\n"):
            with pytest.raises(BadReply):
                read(codec, body.encode())


# The codes of a response that failed, as OpenAI's SDK lists them in `ResponseError`.
OF_RESPONSES: dict[str, tuple[type, bool]] = {
    "server_error": (Overloaded, True),
    "rate_limit_exceeded": (RateLimited, True),
    "vector_store_timeout": (TimedOut, True),
    **dict.fromkeys(
        (
            *("invalid_prompt", "invalid_image", "invalid_image_format", "invalid_base64_image", "invalid_image_url"),
            *("image_too_large", "image_too_small", "image_parse_error", "image_content_policy_violation"),
            *("invalid_image_mode", "image_file_too_large", "unsupported_image_media_type", "empty_image_file"),
            *("failed_to_download_image", "image_file_not_found"),
            *("data_residency_mismatch", "bio_policy", "misalignment_policy_violation"),
        ),
        (ProviderError, False),
    ),
}


@pytest.mark.parametrize("code", ["server_error", "rate_limit_exceeded", "vector_store_timeout", "invalid_prompt"])
def test_a_response_that_failed_is_judged_by_its_code(code: str) -> None:
    response = {"status": "failed", "error": {"code": code, "message": "x"}, "output": []}
    events = [{"type": "response.failed", "response": response}, {"type": "error", "code": code, "message": "x"}]
    errors = []
    for event in events:
        with pytest.raises(ProviderError) as caught:
            read(OpenAIResponsesCodec(), f"data: {json.dumps(event)}\n\n".encode())
        errors.append(caught.value)
    with pytest.raises(ProviderError) as caught:
        OpenAIResponsesCodec().decode(200, {}, json.dumps(response).encode())
    for error in (*errors, caught.value):
        assert (type(error), error.retryable, error.code) == (*OF_RESPONSES[code], code)


def test_codes_of_responses_are_known() -> None:
    for code, expected in OF_RESPONSES.items():
        error = reported({"error": {"code": code, "message": "x"}})
        assert (type(error), error.retryable) == expected, code


@pytest.mark.nightly
def test_all_codes_of_the_sdk_are_known() -> None:
    responses = pytest.importorskip("openai.types.responses.response_error", reason="the SDK is not installed")
    assert set(get_args(responses.ResponseError.model_fields["code"].annotation)) == set(OF_RESPONSES)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "errors", "message", "detail", "code", "status", "type", "metadata", "raw"])
            | st.sampled_from(["details", "retryDelay", "retry_after", "request_id", "param"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(status=st.integers(300, 599), body=st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_body_becomes_an_error(status: int, body: bytes) -> None:
    error = failed(status, body, {"retry-after": body.decode("latin-1")})
    assert error.message
    assert len(str(error)) < 2000


@pytest.mark.nightly
@pytest.mark.parametrize(
    "body",
    [
        b"<" * 400_000,
        b"<title " * 60_000,
        b"exceed " * 60_000,
        b"context " * 60_000,
        b"try again in " * 30_000,
        b"eyJaaaaaaaaaaaa." * 30_000,
        b'{"error":' * 60_000,
        json.dumps({"error": {"message": '{"message":' * 40_000}}).encode(),
    ],
    ids=lambda body: body[:12].decode(),
)
def test_large_bodies_are_read_in_no_time(body: bytes) -> None:
    start = time.thread_time()
    failed(400, body)
    assert time.thread_time() - start < 0.5
