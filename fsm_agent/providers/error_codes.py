"""The meanings of providers' error codes.

Of OpenAI: the type `ResponseError` of its SDK and https://developers.openai.com/api/docs/guides/error-codes; of
Anthropic: https://platform.claude.com/docs/en/api/errors; of Google: https://cloud.google.com/apis/design/errors (all
2026-11); the rest from recorded replies.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fsm_agent.errors import AuthFailed, BadReply, ContextTooLong, ProviderError, RateLimited


class Meaning(NamedTuple):
    """The status that goes with an error code, and its meaning."""

    status: int
    error: type[ProviderError] | None = None  # None: the rest of the error decides
    retryable: bool | None = None  # None: the type or the status decides


_CALLER = Meaning(400)
_TOO_LONG = Meaning(400, ContextTooLong)
_NO_CREDIT = Meaning(429, RateLimited, retryable=False)
_NOT_ALLOWED = Meaning(401, AuthFailed)
_MISREAD = Meaning(400, BadReply)  # the server could not read its own model: asking again may well help

CODES: dict[str, Meaning] = {
    **dict.fromkeys(
        (
            *("invalid_request_error", "invalid_argument", "failed_precondition", "out_of_range", "content_filter"),
            *("invalid_prompt", "invalid_value", "invalid_type", "unsupported_parameter", "unsupported_value"),
            *("missing_required_parameter", "unknown_parameter", "bad_request", "badrequesterror", "validation_error"),
            *("data_residency_mismatch", "bio_policy", "misalignment_policy_violation"),
            *("invalid_image", "invalid_image_format", "invalid_image_url", "invalid_image_mode", "invalid_base64"),
            *("invalid_base64_image", "image_parse_error", "image_too_large", "image_too_small"),
            *("image_file_too_large", "image_file_not_found", "image_content_policy_violation", "empty_image_file"),
            *("unsupported_image_media_type", "failed_to_download_image"),
        ),
        _CALLER,
    ),
    **dict.fromkeys(
        (
            *("context_length_exceeded", "exceed_context_size_error", "context_window_exceeded"),
            *("model_context_window_exceeded", "tokens_limit_reached"),
        ),
        _TOO_LONG,
    ),
    "request_too_large": Meaning(413, ContextTooLong),
    **dict.fromkeys(("tool_use_failed", "json_validate_failed"), _MISREAD),
    **dict.fromkeys(
        (
            *("insufficient_quota", "insufficient_user_quota", "exceeded_current_quota_error"),
            *("billing_hard_limit_reached", "billing_not_active", "billing_error"),
        ),
        _NO_CREDIT,
    ),
    **dict.fromkeys(("invalid_api_key", "authentication_error", "unauthenticated"), _NOT_ALLOWED),
    **dict.fromkeys(("permission_error", "permission_denied"), Meaning(403, AuthFailed)),
    **dict.fromkeys(("not_found_error", "not_found", "model_not_found"), Meaning(404)),
    **dict.fromkeys(("timeout_error", "vector_store_timeout"), Meaning(408)),
    **dict.fromkeys(("already_exists", "aborted"), Meaning(409)),
    **dict.fromkeys(("rate_limit_error", "rate_limit_exceeded", "resource_exhausted"), Meaning(429)),
    **dict.fromkeys(("server_error", "internal_server_error", "api_error", "internal"), Meaning(500)),
    "unimplemented": Meaning(501),
    "unavailable": Meaning(503),
    "deadline_exceeded": Meaning(504),
    "overloaded_error": Meaning(529),
}


def status_of(codes: Iterable[str]) -> int | None:
    """Return the status that goes with the first known of these codes; None if none is known."""
    return next((CODES[code.lower()].status for code in codes if code.lower() in CODES), None)


def judged(codes: Iterable[str]) -> Meaning | None:
    """Return the meaning of the first of these codes that determines the error; None if none does."""
    meanings = [CODES[code.lower()] for code in codes if code.lower() in CODES]
    return next((meaning for meaning in meanings if meaning.error is not None), None)
