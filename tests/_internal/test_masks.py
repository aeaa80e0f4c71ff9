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

from fsm_agent._internal import masking
from fsm_agent.providers import providers

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


# What a search would look at from each place to its end.
PARTS = (
    *("-eyJ", "eyJ-", "eyJa.", "eyJabcdefghijk.", "sk-", "-sk-", "Bearer ", "org-a", "-org-A", "\\neyJ", "ya29."),
    *("-AIza",),
    *("projects/", "projects/1", "\\u0041sk-", "the.…", "…4711", "the.", "...", "…the.key.that.nobody.may.see.471"),
)


class TestWhatLooksLikeAKey:
    def test_it_is_taken_out_of_text_and_json(self) -> None:
        for key in KEYS:
            for before in ("", " ", '"', "\n", "_", "=", "\u00e9"):
                assert masking.Secrets().mask(f"{before}{key}") == f"{before}***"
                for escaped in (True, False):
                    document = json.dumps(f"x{before} {before}{key} y", ensure_ascii=escaped)
                    assert json.loads(masking.Secrets().mask(document)) == f"x{before} {before}*** y"

    def test_words_stay(self) -> None:
        for word in WORDS:
            assert masking.Secrets().mask(f"the {word} here") == f"the {word} here"

    def test_errors_know_the_same_keys_and_show_whose_they_are(self) -> None:
        for key in KEYS:
            assert masking.mask_keys(f"x {key} y") == f"x {key[:4]}*** y"

    def test_parts_of_keys_are_read(self) -> None:
        for part in PARTS:
            assert masking.Secrets([SECRET]).mask(part * (2000 // len(part)))

    @pytest.mark.nightly
    @pytest.mark.parametrize("part", PARTS)
    def test_a_search_is_linear(self, part: str) -> None:
        assert growth(lambda size: part * (size // len(part)), masking.Secrets([SECRET]).mask, 10_000) < 3
        text = part * (1_000_000 // len(part))
        started_s = time.process_time()
        masking.Secrets([SECRET]).mask(text)
        assert time.process_time() - started_s < 10


def test_names_under_which_secrets_are_sent() -> None:
    for name in (
        *("Authorization", "api-key", "x-goog-api-key", "X-Token", "x-secret", "X-Password", "x-passphrase", "db_pwd"),
        *("X-Credential", "X-Subscription", "Cookie", "set-cookie", "x-amz-signature", "sig", "X-Session-Id", "x-jwt"),
        *("OpenAI-Organization", "openai-project", "ACCOUNT"),
    ):
        assert masking.is_secret_name(name)
        assert next(masking.secrets_in_headers([(name, "abc")])) == "abc"


def test_names_under_which_none_is() -> None:
    for name in ("content-type", "x-team", "anthropic-beta", "design", "user-agent", "date"):
        assert not masking.is_secret_name(name)
        assert list(masking.secrets_in_headers([(name, SECRET)])) == []
        assert SECRET in masking.secrets_in_headers([(name, SECRET)], all_names=True)


class TestWhereTheyStand:
    def test_in_a_header(self) -> None:
        for name, value, secret in (
            ("authorization", "Bearer abc", "abc"),
            ("authorization", f"Basic {SECRET}", SECRET),
            ("x-api-key", "hunter2", "hunter2"),
            ("cookie", f"theme=dark; sid={SECRET}", SECRET),
            ("set-cookie", f"sid={SECRET}; Path=/; HttpOnly", SECRET),
        ):
            assert secret in masking.secrets_in_headers([("accept", "text/plain"), (name, value)])

    def test_a_header_of_another_name_holds_short_words(self) -> None:
        assert list(masking.secrets_in_headers([("x-mode", "fast")], all_names=True)) == []

    def test_in_a_url(self) -> None:
        for url in (
            *(f"https://h/v1?key={SECRET}", f"https://h/v1?k={SECRET}", f"https://h/v1?a=b&code={SECRET}#x"),
            *(f"https://me:{SECRET}@h/v1", f"https://me:{quote(SECRET)}@h", f"https://h?sig={quote_plus(SECRET)}"),
        ):
            assert SECRET in masking.secrets_in_url(url)
            assert SECRET not in masking.shown_url(url)

    def test_one_behind_a_percent_escape_begins_a_word(self) -> None:
        assert masking.Secrets(["hunter2"]).mask("or%20hunter2%20or%2Fhunter2") == "or%20***%20or%2F***"
        assert masking.Secrets(["hunter2"]).mask("20hunter2") == "20hunter2"
        assert masking.mask_keys("is%20sk-abcdefghijklmnopqrstuvwx%20it") == "is%20sk-a***%20it"

    def test_a_short_one_in_a_query(self) -> None:
        assert list(masking.secrets_in_url("https://h/?key=abc&n=abc")) == ["abc"]
        assert masking.shown_url("https://h/?key=abc&n=abc&api-version=2024-10-21") == (
            "https://h/?key=***&n=***&api-version=2024-10-21"
        )

    def test_a_url_is_shown_without_user_and_fragment(self) -> None:
        assert masking.shown_url("https://me:abc@h:8443/a%20b/c#d") == "https://h:8443/a b/c"

    def test_in_a_path(self) -> None:
        for token in (
            *(SECRET, "0123456789abcdef0123456789abcdef", "3f9a8b7c-6d5e-4f3a-8b2c-1d0e9f8a7b6c", "bot123456:ABC-DEF"),
            *("path-token", "aBcDeFgHiJkLmNoPqRs", "12345678", "a%20b%20c%20d1"),
        ):
            assert token in masking.path_tokens(f"https://gateway.example/x/{token}/v1")

    def test_a_path_is_shown_as_far_as_it_is_words(self) -> None:
        url = "https://a1234567890.example/openai/deployments/compatible-mode/v1beta/projects"
        assert list(masking.path_tokens(url)) == []

    def test_the_addresses_of_known_providers_hold_none(self) -> None:
        for provider in providers().values():
            url = provider.base_url or ""
            assert [*masking.secrets_in_url(url), *masking.path_tokens(url)] == []


class TestDeclaredOnes:
    def test_every_spelling_counts(self) -> None:
        password, word = 'p@ss "word" /1+2', "schlüssel-4711"
        secrets = masking.Secrets([SECRET, password, word])
        for spelled in (
            *(SECRET, quote(password, safe=""), quote(password), quote_plus(password), json.dumps(password)[1:-1]),
            *(json.dumps(word)[1:-1], json.dumps(word, ensure_ascii=False)[1:-1]),
        ):
            assert secrets.mask(f"It is x{spelled}x, no?") == "It is x***x, no?"

    def test_the_escapes_of_other_writers_of_json_count(self) -> None:
        for spelled in (r"a\/secret+like=base64", r"a/secret\u002Blike=base64"):
            masked = masking.Secrets(["a/secret+like=base64"]).mask(f'data: {{"key":"{spelled}"}}')
            assert masked == 'data: {"key":"***"}'

    @given(st.binary(max_size=7), st.text(st.characters(max_codepoint=0x2FFF), min_size=8, max_size=20), st.binary())
    def test_base64_counts_wherever_it_is_in_it(self, before: bytes, secret: str, after: bytes) -> None:
        secret = secret.strip()
        assume(len(secret) >= 8 and secret.lower() not in ("lm-studio", "not-needed"))
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            shown = masking.Secrets([secret]).mask(f"<{encode(before + secret.encode() + after).decode()}>")
            assert len(shown) < len(secret.encode()) * 4 / 3 + (len(before) + len(after)) * 4 / 3
            assert "***" in shown

    def test_a_short_one_counts_as_a_word(self) -> None:
        for text in ("hunter2", "It is hunter2.", '{"key":"hunter2"}', "x\\nhunter2\\n", "k=hunter2&"):
            assert masking.Secrets(["hunter2"]).mask(text) == text.replace("hunter2", "***")

    def test_and_only_so(self) -> None:
        assert masking.Secrets(["key", "hunter2"]).mask("keyboard monkey hunter22") == "keyboard monkey hunter22"

    def test_placeholders_do_not(self) -> None:
        text = "a test of none, no? EMPTY ollama lm-studio"
        for placeholder in ("", "a", "no", "none", "None", "EMPTY", "test", "ollama", "lm-studio"):
            assert masking.Secrets([placeholder]).mask(text) == text

    def test_one_within_another_leaves_nothing(self) -> None:
        assert masking.Secrets(["abcdefgh", "abcdefghijkl"]).mask("abcdefghijkl") == "***"

    def test_one_that_was_cut(self) -> None:
        mask = masking.Secrets([SECRET]).mask
        for size in (4, 10, len(SECRET) - 1):
            begins, ends = SECRET[:size], SECRET[-size:]
            for after in ("", "…", "...", "'", '"}', "...', input_type=str]", "…, no?"):
                assert mask(f"The key {begins}{after}") == f"The key ***{after}"
            assert mask(f"The key {begins} is") == f"The key {begins} is"
            for gap in ("…", "..."):
                assert mask(f"{{'a': {gap}{ends}', it}}") == f"{{'a': {gap}***', it}}"
                assert mask(f"{gap} {ends}") == f"{gap} {ends}"

    def test_a_document_stays_one(self) -> None:
        document = {"hunter2": [1234567890, 12345, None, 1e300, "x hunter2\n"], "none": '"hunter2'}
        masked = masking.Secrets(["hunter2", "12345", "1234567890", "null", "none"]).mask_json(json.dumps(document))
        assert json.loads(masked) == {"***": ["***", "***", None, 1e300, "x ***\n"], "none": '"***'}
        assert json.loads(masking.Secrets(["true", "hunter2"]).mask_json('[true, "true hunter2"]')) == [True, "*** ***"]

    @pytest.mark.nightly
    def test_a_document_takes_linear_time(self) -> None:
        document = json.dumps([["\\" * 40, SECRET, 1] * 10_000, "x" * 1_000_000])
        started_s = time.process_time()
        assert SECRET not in masking.Secrets([SECRET]).mask_json(document)
        assert time.process_time() - started_s < 5

    def test_none_is_shown(self) -> None:
        assert repr(masking.Secrets([SECRET])) == "<1 secrets>"


def test_the_proxies_of_the_environment_hold_some(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("https_proxy", f"http://me:{SECRET}@proxy:3128")
    assert {*masking.secrets_in_proxies()} == {f"me:{SECRET}", SECRET}


class TestArguments:
    def test_they_are_masked_by_their_names_and_their_looks(self) -> None:
        given = '{"user": "ann", "password": "x", "note": "sk-abcdefghijkl", "n": 1, "api_key": "cut'
        masked = '{"user": "ann", "password": "***", "note": "sk-a***", "n": 1, "api_key": "***"'
        assert masking.masked_arguments(given) == masked

    @pytest.mark.nightly
    @pytest.mark.parametrize(
        "part", ['\\"', '"', '\\\\"', '"a', '"a" ', "\\", '"a": ', '"a": "', "[", '"password": "x", ']
    )
    def test_time_is_linear_in_the_text(self, part: str) -> None:
        def text(size: int) -> str:
            return f'["{part * (size // len(part))}", "'

        assert growth(text, masking.masked_arguments, 2_000) < 3

    def test_what_was_not_edited_is_what_it_was(self) -> None:
        original = {"user": "ann", "password": "x", "keys": ["a", "b"], "more": {"pin": "1"}, "n": 1}
        shown = {**original, "password": "***", "keys": ["***", "***"], "more": {"pin": "***"}}
        assert masking.unmasked(shown, shown, original) == original
        edited = {
            **shown,
            "user": "bob",
            "keys": ["c", "***"],
            "more": {"pin": "***", "new": "***"},
            "n": 2,
            "x": "***",
        }
        assert masking.unmasked(edited, shown, original) == {
            **original,
            **{"user": "bob", "keys": ["c", "b"], "more": {"pin": "1", "new": "***"}, "n": 2, "x": "***"},
        }
        longer = {**shown, "keys": ["***", "***", "d"]}
        assert masking.unmasked(longer, shown, original)["keys"] == ["***", "***", "d"]


def test_the_newest_keys_of_clients_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "_held", {})
    keys = [f"opensesames-{number:04}" for number in range(masking.MAX_HELD + 1)]
    short = "k" * (masking.MIN_HELD_CHARS - 1)
    for key in (*keys, keys[-1], short):
        masking.hold_key(key)
    assert masking.mask_keys(f"{keys[0]} {keys[1]} {keys[-1]} {short}") == f"{keys[0]} open*** open*** {short}"
