"""Converts providers' errors to exceptions that say whether and when to retry.

The meanings of codes come from `ResponseError` in OpenAI's SDK and
https://developers.openai.com/api/docs/guides/error-codes, from https://platform.claude.com/docs/en/api/errors for
Anthropic, and from https://cloud.google.com/apis/design/errors for Google (all November 2026).  All other meanings come
from recorded replies.

The ``Retry-After`` header is read here into `ProviderError.retry_after_s`, which `fsm_agent.runtime.retry_delay`
applies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pydantic_core

from fsm_agent._internal.masking import mask_keys
from fsm_agent._internal.structs import Value
from fsm_agent.errors import (
    RETRYABLE_STATUS,
    AuthFailed,
    BadReply,
    ContextTooLong,
    Overloaded,
    ProviderError,
    RateLimited,
    TimedOut,
)
from fsm_agent.providers.sse import read_json, request_id

MAX_MESSAGE = 1_000  # characters kept of a provider's message
_MAX_READ = 1_000_000  # bytes read of an error's body
_MAX_DELAY_S = 7 * 24 * 3600.0  # a longer wait is the provider's mistake
_TITLE = re.compile(r"<title[^>]{0,200}>([^<]{1,500})</title>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]{0,500}>")
_SECONDS = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*s?\s*")
_AGAIN_IN = re.compile(
    r"(?:try again|retry) (?:in|after) "
    r"(?:(\d{1,3}) ?h(?:ours?)?(?![a-z]) ?)?"
    r"(?:(\d{1,4}) ?m(?:in(?:ute)?s?)?(?![a-z]) ?)?"
    r"(?:(\d{1,6}(?:\.\d{1,9})?) ?(ms|milliseconds?|s(?:ec(?:ond)?s?)?)(?![a-z]))?",
    re.IGNORECASE,
)


class Meaning(NamedTuple):
    """The meaning of an error code, and the status that goes with it."""

    status: int
    error: type[ProviderError] | None = None  # None if the rest of the error decides
    retryable: bool | None = None  # None if the type or the status decides


_MEANINGS = {
    Meaning(400): """
        invalid_request_error invalid_argument failed_precondition out_of_range content_filter invalid_prompt
        invalid_value invalid_type unsupported_parameter unsupported_value missing_required_parameter unknown_parameter
        bad_request badrequesterror validation_error data_residency_mismatch bio_policy misalignment_policy_violation
        invalid_image invalid_image_format invalid_image_url invalid_image_mode invalid_base64 invalid_base64_image
        image_parse_error image_too_large image_too_small image_file_too_large image_file_not_found
        image_content_policy_violation empty_image_file unsupported_image_media_type failed_to_download_image""",
    Meaning(400, ContextTooLong): """
        context_length_exceeded exceed_context_size_error context_window_exceeded model_context_window_exceeded
        tokens_limit_reached""",
    Meaning(413, ContextTooLong): "request_too_large",
    # The server could not read its own model's output, so a retry may help.
    Meaning(400, BadReply): "tool_use_failed json_validate_failed",
    Meaning(429, RateLimited, retryable=False): """
        insufficient_quota insufficient_user_quota exceeded_current_quota_error billing_hard_limit_reached
        billing_not_active billing_error""",
    Meaning(401, AuthFailed): "invalid_api_key authentication_error unauthenticated",
    Meaning(403, AuthFailed): "permission_error permission_denied",
    Meaning(404): "not_found_error not_found model_not_found",
    Meaning(408): "timeout_error vector_store_timeout",
    Meaning(409): "already_exists aborted",
    Meaning(429): "rate_limit_error rate_limit_exceeded resource_exhausted",
    Meaning(500): "server_error internal_server_error api_error internal",
    Meaning(501): "unimplemented",
    Meaning(503): "unavailable",
    Meaning(504): "deadline_exceeded",
    Meaning(529): "overloaded_error",
}
CODES = {code: meaning for meaning, codes in _MEANINGS.items() for code in codes.split()}


def status_of(codes: Iterable[str]) -> int | None:
    """Return the status that goes with the first known code, or None if no code is known."""
    return next((meaning.status for meaning in _meanings(codes)), None)


def _meanings(codes: Iterable[str]) -> list[Meaning]:
    return [CODES[code.lower()] for code in codes if code.lower() in CODES]


class Rule(NamedTuple):
    """The error to raise for failures with certain statuses or words."""

    error: type[ProviderError]
    retryable: bool | None = None  # None if the server, the class or the status decides
    statuses: frozenset[int] = frozenset()
    words: re.Pattern[str] | None = None  # searched for in the message


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


# Tried in order if no code decides; the first match wins.  The wordings are from recorded
# replies and from the services' public documentation (2026-11).
RULES = (
    # OpenAI and Groq answer 429 or 413 to a request that alone exceeds the limit per minute.
    Rule(ContextTooLong, statuses=frozenset({413}), words=_words("request too large")),
    # The server could not read its own model's output.
    Rule(BadReply, words=_words(r"output that does not match the expected")),
    # llama.cpp answers 500 to mistakes by the caller.
    Rule(ProviderError, retryable=False, words=_words(r"(image|audio) input is not supported|failed to parse tools")),
    Rule(
        RateLimited,
        retryable=False,
        words=_words(r"insufficient (balance|credits)|credit balance is too low"),
    ),
    Rule(
        AuthFailed,
        statuses=frozenset({401, 403}),
        words=_words(r"(incorrect|invalid) api key|api key (is )?(not valid|invalid|expired)"),
    ),
    Rule(RateLimited, statuses=frozenset({429})),
    Rule(
        ContextTooLong,
        words=_words(
            r"maximum (context|prompt|model) length|context length|n_keep [^.]{0,30}n_ctx"
            r"|(context|prompt|input tokens?)[^.]{0,40} exceed"
            r"|exceed[^.]{0,60}(context (window|size|limit)|maximum number of tokens|token limit)"
            r"|(prompt|input|request)( \([^()]{1,40}\))? is too long|reduce the length of (the|your)"
            r"|tokens? \+ .max_new_tokens. must be|.inputs. must have less than|range of input length should be"
        ),
    ),
    Rule(TimedOut, statuses=frozenset({408, 524})),
    Rule(Overloaded, statuses=frozenset({500, 502, 503, 504, 520, 521, 522, 523, 529})),
)


class _Report(Value, frozen=True, kw_only=True):
    message: str = ""
    codes: tuple[str, ...] = ()  # code, type, …: the most specific first
    status: int | None = None
    retry_after_s: float | None = None
    request_id: str | None = None


def failure(status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
    """Return the error for a response with this status.  Header names are lower-case."""
    body = body[:_MAX_READ]
    try:
        report = _read_report(read_json(body))
    except ValueError:
        report = _Report(message=_page_text(body))
    return _error(status, status, headers, report)


def reported(document: Any, headers: Mapping[str, str]) -> ProviderError:
    """Return the error that a response with status 200 reports, given its parsed JSON or its text."""
    report = _read_report(document)
    # Without a status, use the one that goes with the codes
    return _error(200, report.status or status_of(report.codes) or 500, headers, report)


def no_object(document: Any, headers: Mapping[str, str]) -> ProviderError:
    """Return the error for a reply that is not a JSON object.  The reply may be Google's list of errors."""
    if isinstance(document, list) and document and isinstance(document[0], dict) and document[0].get("error"):
        return reported(document, headers)
    return unreadable("expected a JSON object, got another reply", headers, pydantic_core.to_json(document)[:1000])


def unreadable(problem: str, headers: Mapping[str, str], body: bytes = b"") -> BadReply:
    """Return the error for a response with status 200 that has no readable reply."""
    shown = _shorten_message(_page_text(body[:_MAX_READ])[: 2 * MAX_MESSAGE])[:200]
    return BadReply(f"{problem}: {shown!r}" if shown else problem, status=200, request_id=request_id(headers))


def _error(status: int, meant: int, headers: Mapping[str, str], report: _Report) -> ProviderError:
    """Return the error, which reports the received ``status`` and whose type depends on ``meant``."""
    message = report.message[: 4 * MAX_MESSAGE]
    meaning = next((meaning for meaning in _meanings(report.codes) if meaning.error is not None), None)
    matching = (rule for rule in RULES if meant in rule.statuses or (rule.words and rule.words.search(message)))
    rule = next(matching, Rule(ProviderError)) if meaning is None else meaning
    kind = rule.error or ProviderError
    retryable = rule.retryable if rule.retryable is not None else kind.retryable_by_nature
    if retryable is None:
        retryable = meant in RETRYABLE_STATUS or headers.get("x-should-retry") == "true"
    retryable = retryable and headers.get("x-should-retry") != "false"
    words = [code for code in report.codes if not code.isdigit()]
    delay_s = _retry_after_s(headers)
    return kind(
        _shorten_message(message) or f"HTTP {status} without a message",
        status=status,
        code=_shorten_message(next(iter(words or report.codes), "")[:100]) or None,
        request_id=request_id(headers) or report.request_id,
        retryable=retryable,
        retry_after_s=delay_s or report.retry_after_s or None,
    )


def _read_report(document: Any, depth: int = 0) -> _Report:
    """Return what an error's JSON says.  If its shape is unknown, the JSON itself becomes the message."""
    if isinstance(document, list) and document and depth < 4:
        return _read_report(document[0], depth + 1)
    if not isinstance(document, dict):
        return _Report(message=document if isinstance(document, str) else _json(document))
    inner = document.get("error") or document.get("errors")
    if isinstance(inner, list) and inner:
        inner = inner[0]
    error = inner if isinstance(inner, dict) else document
    value = inner if isinstance(inner, str) else _message(error)
    message, nested = (value, _read_nested(value, depth)) if isinstance(value, str) else (_json(value), None)
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if isinstance(raw, str) and raw:
        upstream = _read_nested(raw, depth)
        message = f"{message}: {upstream.message if upstream else raw}"
    elif nested:
        message = nested.message
    numbers = [str(error.get(name))[:4] for name in ("code", "status_code", "status", "http_code")]
    id = document.get("request_id")
    return _Report(
        message=message or _json(document),
        codes=(*(nested.codes if nested else ()), *_codes(error)),
        status=next((int(number) for number in numbers if re.fullmatch("[45][0-9][0-9]", number)), None),
        retry_after_s=_delay_of(error, message),
        request_id=id[:200] if isinstance(id, str) and id else None,
    )


def _message(error: Mapping[str, Any]) -> Any:
    names = ("message", "Message", "detail", "msg", "error_description", "title")
    return next((error[name] for name in names if error.get(name)), "")


def _codes(error: Mapping[str, Any]) -> tuple[str, ...]:
    codes = (error.get(name) for name in ("code", "type", "status", "__type"))
    return tuple([str(code) for code in codes if isinstance(code, str | int) and not isinstance(code, bool) and code])


def _read_nested(text: str, depth: int) -> _Report | None:
    """Return the error inside a message that is itself JSON, as some proxies send it."""
    if not text.startswith("{") or depth >= 4:
        return None
    try:
        return _read_report(read_json(text.encode("utf-8", "replace")), depth + 1)
    except ValueError:
        return None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the delay that the headers ask for, in seconds, or None if they ask for none.

    Zero and dates in the past count as none, so that the caller's own backoff applies.  Otherwise, all attempts would
    be used up at once.

    The `x-ratelimit-reset-*` headers are not read.  They say when the full quota is available again, which may be hours
    after the next request would succeed.
    """
    if milliseconds := _seconds(headers.get("retry-after-ms")):
        return milliseconds / 1000
    text = headers.get("retry-after", "")
    parts = text.split(",")  # of several headers: a proxy may have added its own
    delays_s = [delay_s for part in parts if (delay_s := _seconds(part.strip())) is not None]
    if len(delays_s) == len(parts):
        return max(delays_s) or None
    from email.utils import localtime, parsedate_to_datetime

    try:
        moment, date = parsedate_to_datetime(text), headers.get("date")
        now = parsedate_to_datetime(date) if date else localtime()
        left_s = (moment - now).total_seconds()
    except (ValueError, TypeError, OverflowError):  # not a date, or only one of the two has a time zone
        return None
    return min(left_s, _MAX_DELAY_S) if left_s > 0 else None


def _delay_of(error: Mapping[str, Any], message: str) -> float | None:
    """Return an error's delay in seconds, from Google's RetryInfo, a number, or words such as "try again in 1m2.5s"."""
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and (delay_s := _seconds(detail.get("retryDelay"))) is not None:
            return delay_s
    if (delay_s := _seconds(error.get("retry_after"))) is not None:
        return delay_s
    match = _AGAIN_IN.search(message[:MAX_MESSAGE])
    if match is None or not any(match.groups()):
        return None
    hours, minutes, seconds, unit = match.groups()
    last = float(seconds or 0) / (1000 if unit and unit[0] in "mM" else 1)
    return int(hours or 0) * 3600 + int(minutes or 0) * 60 + last


def _seconds(value: Any) -> float | None:
    match = _SECONDS.fullmatch(str(value)[:40])
    return min(float(match[1]), _MAX_DELAY_S) if match else None


def _page_text(body: bytes) -> str:
    text = body.decode("utf-8", "replace").strip()
    if not text.startswith("<"):
        return text
    title = _TITLE.search(text[:10_000])
    return title[1].strip() if title else " ".join(_TAG.sub(" ", text[:10_000]).split())


def _shorten_message(text: str) -> str:
    text = mask_keys(text).strip()
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


def picture_alone(headers: Mapping[str, str]) -> BadReply:
    """Return the error for a reply that is an image without text.

    The request is not retried, because that would cost another image.
    """
    problem = "expected text, got only an image; use a model that answers with text"
    return BadReply(problem, status=200, request_id=request_id(headers), retryable=False)
