"""Records HTTP exchanges with `vcrpy`, masking secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fsm_agent._internal.masking import MIN_ANYWHERE_CHARS, Secrets, secrets_in_headers, secrets_in_url, shown_url
from fsm_agent.clients.endpoint import secrets_under_way

_KEPT_HEADERS = ("content-type", "retry-after", "retry-after-ms", "date")


def vcr_config() -> dict[str, Any]:
    """Return `vcrpy` options that keep secrets out of cassettes, for a fixture named ``vcr_config``.

    Requests match if their method, URL and body are equal, ignoring the order of keys and the whitespace in JSON.
    Keys, and anything that looks like a key or an account, are masked first, as they are in error messages.  Only a few
    harmless headers are kept.

    Examples:
        >>> vcr_config()["match_on"]
        ('method', 'uri', 'body')
    """
    known = set[str]()  # the secrets of all requests so far, which a reply may quote

    def mask_request(request: Any) -> Any:
        known.update(secrets_in_headers(_items(request.headers)), secrets_in_url(request.uri))
        uri = shown_url(_mask(request.uri, known))
        return type(request)(request.method, uri, _masked(request.body_bytes, known), _kept(request.headers))

    def mask_response(response: dict[str, Any]) -> dict[str, Any]:
        long = {value for value in secrets_in_headers(_items(response["headers"])) if len(value) >= MIN_ANYWHERE_CHARS}
        status = {**response["status"], "message": _mask(response["status"]["message"] or "", known)}
        body = _masked(response["body"].get("string"), known | long)
        return {"status": status, "headers": _kept(response["headers"]), "body": {"string": body}}

    return {
        "match_on": ("method", "uri", "body"),
        "before_record_request": mask_request,
        "before_record_response": mask_response,
        "decode_compressed_response": True,
    }


def _items(headers: Mapping[str, Any]) -> list[tuple[str, str]]:
    values = {name: [value] if isinstance(value, str | bytes) else value for name, value in headers.items()}
    return [(name, _text(value)) for name, several in values.items() for value in several]


def _kept(headers: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in headers.items() if name.lower() in _KEPT_HEADERS}


def _masked(body: Any, known: set[str]) -> bytes:
    """Return a body without secrets.  JSON is serialized again first, so that escapes cannot hide a secret."""
    text = _text(body or b"")
    try:
        text, is_json = json.dumps(json.loads(text), ensure_ascii=False), True
    except ValueError:
        is_json = False
    return _mask(text, known, is_json=is_json).encode("utf-8", "surrogateescape")


def _mask(text: str, known: set[str], *, is_json: bool = False) -> str:
    for secrets in (secrets_under_way(), Secrets(known)):
        text = secrets.mask_json(text) if is_json else secrets.mask(text)
    return text


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "surrogateescape")
