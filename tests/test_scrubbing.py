"""Is all that is secret taken out, and nothing else?"""

from __future__ import annotations

import json
import time

import httpx
import pytest

from fsm_agent.scrubbing import scrubbed, scrubbed_url, secrets_between, secrets_of

KEYS = [
    "sk-abcdefghijkl",
    "sk-ant-api03-abc_def-ghijklmnop",
    "gsk_abcdefghijklmnop",
    "hf_abcdefghijklmnop",
    "AIzaSyA1234567890abcdefghij",
    "ya29.a0AfH6SMBxyz1234567",
    "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc-_1",
    "Bearer abcdefghijkl0123",
    "org-Ab3dEfGhIjKlMnOp",
    "proj_Ab3dEfGhIjKlMnOp",
    "accounts/0123456789abcdef0123456789abcdef",
    "projects/123456789012",
]
WORDS = [
    "task-management-and-so-on",
    "asks",
    "sk-",
    "organisation-wide",
    "org-chart",
    "projects/mine",
    "eyJ",
    "Bearer of",
]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("before", ["", " ", '"', "\n", "_", "=", "\u00e9"])
def test_what_looks_like_a_key_is_taken_out_of_text_and_json(key: str, before: str) -> None:
    assert scrubbed(f"{before}{key}", []) == f"{before}***"
    for escaped in (True, False):
        document = json.dumps(f"x{before} {before}{key} y", ensure_ascii=escaped)
        assert json.loads(scrubbed(document, [])) == f"x{before} {before}*** y"


@pytest.mark.parametrize("word", WORDS)
def test_words_stay(word: str) -> None:
    assert scrubbed(f"the {word} here", []) == f"the {word} here"


def test_what_a_request_carries_is_known_exactly() -> None:
    headers = {"Authorization": "Basic very:secret", "X-Api-Key": 'a "quoted" key', "OpenAI-Project": "my-project-1"}
    url = "https://user:password@api.example.com/v1?sig=signed%2Fso&api-version=2&n=short"
    request = httpx.Request("POST", url, headers={**headers, "content-type": "application/json", "x-token": "short"})
    secrets = secrets_of(request)
    assert scrubbed("very:secret, Basic very:secret, my-project-1, signed/so, short", secrets) == (
        "***, ***, ***, ***, short"
    )
    assert scrubbed(json.dumps('my a "quoted" key'), secrets) == '"my ***"'
    assert scrubbed_url(request.url, secrets) == "https://api.example.com/v1?sig=***&api-version=2&n=short"


def test_what_a_response_names_is_taken_out_too() -> None:
    request = httpx.Request("POST", "https://api.example.com/v1", headers={"x-api-key": "the-key-4711"})
    response = httpx.Response(200, headers=[("set-cookie", "cookie-one"), ("set-cookie", "cookie-two")])
    assert scrubbed("the-key-4711 cookie-one cookie-two", secrets_between(request, response)) == "*** *** ***"


def test_a_key_within_a_key_leaves_nothing() -> None:
    request = httpx.Request("POST", "https://a.b/", headers={"x-key": "abcdefgh", "y-key": "abcdefghijkl"})
    assert scrubbed("abcdefghijkl", secrets_of(request)) == "***"


@pytest.mark.parametrize("piece", ["eyJ-", "sk-", "eyJabcdefghijk.", "Bearer ", "org-A", "\\u0041sk-", "projects/1"])
def test_it_takes_linear_time(piece: str) -> None:
    started_s = time.process_time()
    scrubbed(piece * (1_000_000 // len(piece)), [])
    assert time.process_time() - started_s < 2
