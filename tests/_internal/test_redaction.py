"""Is all that is secret taken out of a text, in every spelling and in linear time, and nothing else?"""

from __future__ import annotations

import base64
import json
import time
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.time_growth import growth

from fsm_agent._internal.redaction import (
    _PLACEHOLDERS,
    Secrets,
    is_secret_name,
    mask_keys,
    path_tokens,
    secrets_in_headers,
    secrets_in_url,
    shown_url,
)
from fsm_agent.providers import failures
from fsm_agent.providers.catalog import PROVIDERS

SECRET = "the.key.that.nobody.may.see.4711"
KEYS = [
    "sk-abcdefghijkl",
    "sk-ant-api03-abc_def-ghijklmnop",
    "gsk_abcdefghijklmnop",
    "hf_abcdefghijklmnop",
    "ghp_abcdefghijkl",
    "AIzaSyA1234567890abcdefghij",
    "ya29.a0AfH6SMBxyz1234567",
    "AKIAIOSFODNN7EXAMPLE",
    "ASIAIOSFODNN7EXAMPLE",
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
    "AXIAIOSFODNN7EXAMPLE",
]


class TestWhatLooksLikeAKey:
    @pytest.mark.parametrize("key", KEYS)
    @pytest.mark.parametrize("before", ["", " ", '"', "\n", "_", "=", "\u00e9"])
    def test_it_is_taken_out_of_text_and_json(self, key: str, before: str) -> None:
        assert Secrets().mask(f"{before}{key}") == f"{before}***"
        for escaped in (True, False):
            document = json.dumps(f"x{before} {before}{key} y", ensure_ascii=escaped)
            assert json.loads(Secrets().mask(document)) == f"x{before} {before}*** y"

    @pytest.mark.parametrize("word", WORDS)
    def test_words_stay(self, word: str) -> None:
        assert Secrets().mask(f"the {word} here") == f"the {word} here"

    @pytest.mark.parametrize("key", KEYS)
    def test_errors_know_the_same_keys_and_show_whose_they_are(self, key: str) -> None:
        assert mask_keys(f"x {key} y") == f"x {key[:4]}*** y"
        assert failures.reported({"error": {"message": f"x {key} y"}}, {}).message == f"x {key[:4]}*** y"

    @pytest.mark.system
    @pytest.mark.parametrize(
        "part",
        ["-eyJ", "eyJ-", "eyJa.", "eyJabcdefghijk.", "sk-", "-sk-", "Bearer ", "org-a", "-org-A", "\\neyJ", "ya29.",
         "-AIza", "projects/", "projects/1", "\\u0041sk-"],
    )  # fmt: skip
    def test_a_search_is_linear(self, part: str) -> None:
        text = part * (200_000 // len(part))  # looked at from each place to its end, it would take minutes
        started_s = time.process_time()
        Secrets().mask(text)
        assert time.process_time() - started_s < 2


@pytest.mark.parametrize(
    "name",
    ["Authorization", "api-key", "x-goog-api-key", "X-Token", "x-secret", "X-Password", "x-passphrase", "db_pwd",
     "X-Credential", "X-Subscription", "Cookie", "set-cookie", "x-amz-signature", "sig", "X-Session-Id", "x-jwt",
     "OpenAI-Organization", "openai-project", "ACCOUNT"],
)  # fmt: skip
def test_names_under_which_secrets_are_sent(name: str) -> None:
    assert is_secret_name(name)
    assert next(secrets_in_headers([(name, "abc")])) == "abc"


@pytest.mark.parametrize("name", ["content-type", "x-team", "anthropic-beta", "design", "user-agent", "date"])
def test_names_under_which_none_is(name: str) -> None:
    assert not is_secret_name(name)
    assert list(secrets_in_headers([(name, SECRET)])) == []
    assert SECRET in secrets_in_headers([(name, SECRET)], all_names=True)


class TestWhereTheyStand:
    @pytest.mark.parametrize(
        ("name", "value", "secret"),
        [
            ("authorization", "Bearer abc", "abc"),
            ("authorization", f"Basic {SECRET}", SECRET),
            ("x-api-key", "hunter2", "hunter2"),
            ("cookie", f"theme=dark; sid={SECRET}", SECRET),
            ("set-cookie", f"sid={SECRET}; Path=/; HttpOnly", SECRET),
        ],
    )
    def test_in_a_header(self, name: str, value: str, secret: str) -> None:
        assert secret in secrets_in_headers([(name, value)])

    def test_a_header_of_another_name_holds_short_words(self) -> None:
        assert list(secrets_in_headers([("x-mode", "fast")], all_names=True)) == []

    @pytest.mark.parametrize(
        "url",
        [f"https://h/v1?key={SECRET}", f"https://h/v1?k={SECRET}", f"https://h/v1?a=b&code={SECRET}#x",
         f"https://me:{SECRET}@h/v1", f"https://me:{quote(SECRET)}@h", f"https://h?sig={quote_plus(SECRET)}"],
    )  # fmt: skip
    def test_in_a_url(self, url: str) -> None:
        assert SECRET in secrets_in_url(url)
        assert SECRET not in shown_url(url)

    def test_one_behind_a_percent_escape_begins_a_word(self) -> None:
        assert Secrets(["hunter2"]).mask("or%20hunter2%20or%2Fhunter2") == "or%20***%20or%2F***"
        assert Secrets(["hunter2"]).mask("20hunter2") == "20hunter2"
        assert mask_keys("is%20sk-abcdefghijklmnopqrstuvwx%20it") == "is%20sk-a***%20it"

    def test_a_short_one_in_a_query(self) -> None:
        assert list(secrets_in_url("https://h/?key=abc&n=abc")) == ["abc"]
        assert shown_url("https://h/?key=abc&n=abc&api-version=2024-10-21") == (
            "https://h/?key=***&n=***&api-version=2024-10-21"
        )

    def test_a_url_is_shown_without_user_and_fragment(self) -> None:
        assert shown_url("https://me:abc@h:8443/a%20b/c#d") == "https://h:8443/a b/c"

    @pytest.mark.parametrize(
        "token",
        [SECRET, "0123456789abcdef0123456789abcdef", "3f9a8b7c-6d5e-4f3a-8b2c-1d0e9f8a7b6c", "bot123456:ABC-DEF",
         "path-token", "aBcDeFgHiJkLmNoPqRs", "12345678", "a%20b%20c%20d1"],
    )  # fmt: skip
    def test_in_a_path(self, token: str) -> None:
        assert token in path_tokens(f"https://gateway.example/x/{token}/v1")

    def test_a_path_is_shown_as_far_as_it_is_words(self) -> None:
        assert list(path_tokens("https://a1234567890.example/openai/deployments/compatible-mode/v1beta/projects")) == []

    def test_the_addresses_of_known_providers_hold_none(self) -> None:
        for provider in PROVIDERS.values():
            url = provider.base_url or ""
            assert [*secrets_in_url(url), *path_tokens(url)] == []


class TestDeclaredOnes:
    @pytest.mark.parametrize(
        "spelled",
        [
            SECRET,
            quote('p@ss "word" /1+2', safe=""),
            quote('p@ss "word" /1+2'),
            quote_plus('p@ss "word" /1+2'),
            json.dumps('p@ss "word" /1+2')[1:-1],
            json.dumps("schlüssel-4711")[1:-1],
            json.dumps("schlüssel-4711", ensure_ascii=False)[1:-1],
        ],
    )
    def test_every_spelling_counts(self, spelled: str) -> None:
        secrets = Secrets([SECRET, 'p@ss "word" /1+2', "schlüssel-4711"])
        assert secrets.mask(f"It is x{spelled}x, no?") == "It is x***x, no?"

    @pytest.mark.parametrize("spelled", [r"a\/secret+like=base64", r"a/secret\u002Blike=base64"], ids=["PHP", ".NET"])
    def test_the_escapes_of_other_writers_of_json_count(self, spelled: str) -> None:
        assert Secrets(["a/secret+like=base64"]).mask(f'data: {{"key":"{spelled}"}}') == 'data: {"key":"***"}'

    @given(st.binary(max_size=7), st.text(st.characters(max_codepoint=0x2FFF), min_size=8, max_size=20), st.binary())
    def test_base64_counts_wherever_it_is_in_it(self, before: bytes, secret: str, after: bytes) -> None:
        secret = secret.strip()
        assume(len(secret) >= 8 and secret.lower() not in _PLACEHOLDERS)
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            shown = Secrets([secret]).mask(f"<{encode(before + secret.encode() + after).decode()}>")
            assert len(shown) < len(secret.encode()) * 4 / 3 + (len(before) + len(after)) * 4 / 3
            assert "***" in shown

    @pytest.mark.parametrize("text", ["hunter2", "It is hunter2.", '{"key":"hunter2"}', "x\\nhunter2\\n", "k=hunter2&"])
    def test_a_short_one_counts_as_a_word(self, text: str) -> None:
        assert Secrets(["hunter2"]).mask(text) == text.replace("hunter2", "***")

    def test_and_only_so(self) -> None:
        assert Secrets(["key", "hunter2"]).mask("keyboard monkey hunter22") == "keyboard monkey hunter22"

    @pytest.mark.parametrize("placeholder", ["", "a", "no", "none", "None", "EMPTY", "test", "ollama", "lm-studio"])
    def test_placeholders_do_not(self, placeholder: str) -> None:
        assert Secrets([placeholder]).mask("a test of none, no? EMPTY ollama lm-studio") == (
            "a test of none, no? EMPTY ollama lm-studio"
        )

    def test_one_within_another_leaves_nothing(self) -> None:
        assert Secrets(["abcdefgh", "abcdefghijkl"]).mask("abcdefghijkl") == "***"

    @pytest.mark.parametrize("size", [4, 10, len(SECRET) - 1])
    @pytest.mark.parametrize("after", ["", "…", "...", "'", '"}', "...', input_type=str]", "…, no?"])
    def test_the_beginning_of_one_that_was_cut(self, size: int, after: str) -> None:
        assert Secrets([SECRET]).mask(f"The key {SECRET[:size]}{after}") == f"The key ***{after}"
        assert Secrets([SECRET]).mask(f"The key {SECRET[:size]} is") == f"The key {SECRET[:size]} is"

    @pytest.mark.parametrize("size", [4, 10, len(SECRET) - 1])
    @pytest.mark.parametrize("gap", ["…", "..."])
    def test_the_end_of_one_that_was_cut(self, size: int, gap: str) -> None:
        assert Secrets([SECRET]).mask(f"{{'a': {gap}{SECRET[-size:]}', it}}") == f"{{'a': {gap}***', it}}"
        assert Secrets([SECRET]).mask(f"{gap} {SECRET[-size:]}") == f"{gap} {SECRET[-size:]}"

    PARTS = ("the.…", "…4711", "the.", "...", "…the.key.that.nobody.may.see.471")

    @pytest.mark.system
    @pytest.mark.parametrize("part", PARTS)
    def test_pieces_are_looked_for_in_linear_time(self, part: str) -> None:
        assert growth(lambda size: part * (size // len(part)), Secrets([SECRET]).mask, 10_000) < 3

    @pytest.mark.nightly
    @pytest.mark.parametrize("part", PARTS)
    def test_pieces_are_looked_for_in_a_megabyte(self, part: str) -> None:
        text = part * (1_000_000 // len(part))
        started_s = time.process_time()
        Secrets([SECRET]).mask(text)
        assert time.process_time() - started_s < 10

    def test_a_document_stays_one(self) -> None:
        document = {"hunter2": [1234567890, 12345, None, 1e300, "x hunter2\n"], "none": '"hunter2'}
        masked = Secrets(["hunter2", "12345", "1234567890", "null", "none"]).mask_json(json.dumps(document))
        assert json.loads(masked) == {"***": ["***", "***", None, 1e300, "x ***\n"], "none": '"***'}
        assert json.loads(Secrets(["true", "hunter2"]).mask_json('[true, "true hunter2"]')) == [True, "*** ***"]

    @pytest.mark.system
    def test_a_document_takes_linear_time(self) -> None:
        document = json.dumps([["\\" * 40, SECRET, 1] * 10_000, "x" * 1_000_000])
        started_s = time.process_time()
        assert SECRET not in Secrets([SECRET]).mask_json(document)
        assert time.process_time() - started_s < 5

    def test_none_is_shown(self) -> None:
        assert repr(Secrets([SECRET])) == "<1 secrets>"
