"""Is every provider's entry useful, and is an unknown name refused with help?"""

from __future__ import annotations

import json
import pickle
import re
from copy import deepcopy
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from support.copies import replace
from support.http_clients import KEY, completion, over_transport
from support.recordings import RECORDED, needs_recorded

from fsm_agent.call import Request
from fsm_agent.clients import client_for
from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.functions import Function
from fsm_agent.messages import Message, Settings
from fsm_agent.providers import OpenAIChatCodec, Profile, Provider, providers, register_provider
from fsm_agent.testing import registries

PROVIDERS = providers()
PROMISED = """
    openai openai-chat azure anthropic google vertex github openrouter cerebras groq deepseek mistral xai moonshot zai
    perplexity together fireworks nvidia huggingface ollama lmstudio vllm llamacpp local openai-compatible
"""


@pytest.mark.parametrize("copied", [deepcopy, lambda entry: pickle.loads(pickle.dumps(entry))])
def test_a_copy_of_an_entry_has_the_same_codec(copied) -> None:
    copy = copied(PROVIDERS["anthropic"])
    assert (copy.name, copy.codec.name, copy.codec.path("m", stream=False)) == ("anthropic", "anthropic", "/messages")


def test_every_entry_is_of_use() -> None:
    assert set(PROVIDERS) >= {*PROMISED.split()}
    for name, entry in PROVIDERS.items():
        assert entry.name == name
        assert entry.codec.path("m", stream=True).startswith("/")
        settings = Settings(temperature=0.5, max_tokens=19, seed=1)
        request = Request(messages=(Message.of("user", "Hello?"),), settings=settings)
        body = json.loads(entry.codec.encode(request, model="m", profile=entry.profile_of("m"), stream=True))
        assert "Hello?" in json.dumps(body)
        assert ": 19" in json.dumps(body), "the limit is said"
        assert entry.codec.adapted(request.changed(settings=Settings()), entry.profile_of("m")) == ()
        if entry.base_url is not None:
            assert re.fullmatch(r"https://[\w.-]+(/[\w./-]*\w)?|http://localhost:\d+/v1", entry.base_url)
        else:
            assert entry.base_url_variable or entry.is_embedded or name == "openai-compatible"
        for variable in (*entry.key_variables, entry.base_url_variable or "A"):
            assert re.fullmatch(r"[A-Z][A-Z0-9_]*", variable)
        for pattern, differs in entry.models:
            assert pattern == pattern.lower(), "names are compared in lower case"
            replace(entry.profile, **differs)


def test_every_model_of_an_override_is_reached() -> None:
    """No pattern is so wide that it hides those before it."""
    for entry in PROVIDERS.values():
        for index, (pattern, differs) in enumerate(entry.models):
            example = re.sub(r"\[(.)[^\]]*\]", r"\1", pattern).replace("*", "")
            later = [name for _, changes in entry.models[index + 1 :] for name in changes]
            profile = entry.profile_of(example)
            for name, value in differs.items():
                assert getattr(profile, name) == value or name in later, (entry.name, pattern, name)


OPENAI = {  # model: takes sampling settings, takes stop, the role of instructions, writes to a schema
    "gpt-3.5-turbo": (True, True, "system", False),
    "gpt-4": (True, True, "system", False),
    "gpt-4-turbo": (True, True, "system", False),
    "gpt-4o": (True, True, "system", True),
    "GPT-5-Mini": (False, False, "system", True),
    "o1": (False, True, "system", True),
    "o1-mini-2024-09-12": (False, True, "user", False),
    "gpt-5-chat-latest": (True, True, "system", True),
    "gpt-5.1-codex-max": (False, False, "system", True),
    "gpt-5.4": (True, True, "system", True),
    "gpt-6-astra": (False, False, "system", True),
    "open-mixtral": (True, True, "system", True),
}


def test_what_openais_models_take() -> None:
    for model in OPENAI:
        for name in ("openai", "openai-chat", "azure"):
            profile = PROVIDERS[name].profile_of(model)
            if name != "azure" or "mixtral" not in model:
                assert profile.max_tokens_name == "max_completion_tokens"
            assert (profile.temperature, profile.stop, profile.system_role, profile.native_schema) == OPENAI[model]
            assert profile.logprobs is profile.temperature


def test_models_that_reason_on_request_are_not_sampled_while_they_do() -> None:
    """GPT-5.1 to 5.4 refuse these settings at any effort but "none"."""
    sampling = {"temperature", "top_p"}
    for name in ("openai", "openai-chat", "azure", "azure-responses"):
        entry = PROVIDERS[name]
        profile = entry.profile_of("gpt-5.4")
        for effort, kept in ((None, sampling), ("none", sampling), ("low", set())):
            settings = Settings(temperature=0.5, top_p=0.5, reasoning_effort=effort)
            request = Request(messages=[Message.of("user", "hi")], settings=settings)
            body = json.loads(entry.codec.encode(request, model="gpt-5.4", profile=profile, stream=False))
            assert body.keys() & sampling == kept, (name, effort)
            assert len(entry.codec.adapted(request, profile)) == 2 - len(kept), (name, effort)
        asked = Request(messages=request.messages, settings=Settings(top_logprobs=2, reasoning_effort="low"))
        with pytest.raises(UsageError, match="no logprobs while it reasons"):
            entry.codec.encode(asked, model="gpt-5.4", profile=profile, stream=False)


@pytest.mark.parametrize("name", ["openai", "openai-chat", "azure", "azure-responses"])
@pytest.mark.parametrize(("model", "takes"), [("o1", False), ("o3-mini", False), ("o4-mini", False), ("gpt-5", True)])
def test_openais_oldest_reasoning_models_call_one_function_at_a_time_untold(name: str, model: str, takes: bool) -> None:
    """They refuse ``parallel_tool_calls``: https://github.com/run-llama/llama_index/issues/20865 (2026-03)."""

    def add(a: int) -> int:
        return a

    entry, settings = PROVIDERS[name], Settings(parallel_function_calls=False)
    request = Request(messages=[Message.of("user", "hi")], settings=settings, functions=(Function.of(add),))
    profile = entry.profile_of(model)
    body = json.loads(entry.codec.encode(request, model=model, profile=profile, stream=False))
    assert ("parallel_tool_calls" in body) is takes
    assert ("parallel_function_calls=False" in str(entry.codec.adapted(request, profile))) is not takes


def test_a_makers_name_before_the_model_does_not_matter() -> None:
    github = PROVIDERS["github"]
    assert github.profile_of("openai/gpt-5-mini") == replace(github.profile_of("gpt-5-mini"))
    assert not github.profile_of("openai/gpt-5-mini").temperature
    assert github.profile_of("openai/gpt-5-mini").max_tokens_name == "max_completion_tokens"
    assert github.profile_of("openai/gpt-4o").max_tokens_name == "max_tokens"
    assert PROVIDERS["groq"].profile_of("openai/gpt-oss-120b").native_schema
    for name, model in (("openai", "gpt-4-turbo"), ("anthropic", "claude-3-7-sonnet-latest")):
        profile = PROVIDERS[name].profile_of(model)
        assert (profile.native_schema, profile.output_mode) == (False, "function"), model
    assert PROVIDERS["openai"].profile_of("gpt-4.1-nano").output_mode == "native"
    assert not PROVIDERS["groq"].profile_of("llama-3.3-70b-versatile").native_schema
    assert PROVIDERS["xai"].profile_of("grok-4") == Profile()


def test_only_those_of_mistrals_models_that_reason_get_reasoning() -> None:
    of = PROVIDERS["mistral"].profile_of
    silent = ("mistral-large-latest", "ministral-8b-2512", "codestral-latest", "devstral-medium-latest")
    assert {of(name).reasoning_name for name in (*silent, "mistral-medium-2508", "open-mistral-nemo")} == {None}
    reasoning = ("magistral-medium-latest", "mistral-small-latest", "mistral-medium-latest", "mistral-medium-3-5")
    assert {of(name).reasoning_name for name in reasoning} == {"thinking"}


def test_mistrals_models_keep_their_rules_whoever_serves_them() -> None:
    for provider, model, rules in [
        ("openrouter", "mistralai/mistral-large-2512", (9, False)),
        ("nvidia", "mistralai/mistral-small-4-119b-2603", (9, False)),
        ("vllm", "mistralai/Devstral-Small-2507", (9, False)),
        ("openai-compatible", "mixtral-8x7b", (9, False)),
        ("openrouter", "openai/gpt-4o", (None, True)),
    ]:
        profile = PROVIDERS[provider].profile_of(model)
        assert (profile.call_id_chars, profile.user_after_results) == rules, model


def test_servers_that_close_after_a_stream_are_known() -> None:
    assert {name for name, entry in PROVIDERS.items() if entry.closes_after_stream} == {"llamacpp", "local"}


@pytest.mark.parametrize(
    ("model", "host", "name"),
    [
        ("openai-chat:ft:gpt-4o:me::x1", "api.openai.com", "ft:gpt-4o:me::x1"),
        ("openrouter:google/gemini-2.0-flash-exp:free", "openrouter.ai", "google/gemini-2.0-flash-exp:free"),
    ],
)
def test_a_models_name_is_split_at_the_first_colon(model: str, host: str, name: str) -> None:
    asked: list[Any] = []

    def answered(request: httpx.Request) -> httpx.Response:
        asked.append((request.url.host, json.loads(request.content)["model"]))
        return httpx.Response(200, json=completion())

    with client_for(model, api_key=KEY, network=over_transport(httpx.MockTransport(answered))) as client:
        client.complete(Request(messages=(Message.of("user", "Hello?"),)))
    assert (client.name, asked) == (model, [(host, name)])


def test_what_is_no_models_name_is_refused_with_what_was_meant() -> None:
    for wrong, meant in [
        ("opnai:gpt-5", "'openai'"),
        ("OpenAI:gpt-5", "'openai'"),
        (" groq :x", "'groq'"),
        ("zzzzzz:x", "alibaba"),
        (":gpt", "alibaba"),
        ("llama", "alibaba:"),
        ("gpt-5-mini", "'openai:gpt-5-mini'"),
        ("openai/gpt-5", "'openai:gpt-5'"),
        ("Claude-Sonnet-5", "'anthropic:Claude-Sonnet-5'"),
        ("sk-abcdefghijklmnop", "'sk-a***'"),
        ("openai: ", "'openai: '"),
        ("local", "'local:…'"),
        ("", "''"),
    ]:
        with pytest.raises(ConfigError) as caught:
            client_for(wrong)
        assert meant in str(caught.value)
        assert "abcdefgh" not in str(caught.value)


def test_ones_own_provider() -> None:
    mine = Provider(name="mine-1.of_test", codec=OpenAIChatCodec(), base_url="https://example.invalid/v1")
    other = replace(mine, base_url="https://other.invalid/v1")
    with registries():
        register_provider(mine)
        register_provider(mine)
        assert client_for("mine-1.of_test:m", api_key=KEY).name == "mine-1.of_test:m"
        assert PROVIDERS["mine-1.of_test"] is mine
        with pytest.raises(ConfigError, match=r"'mine-1\.of_test'"):
            register_provider(other)
        assert PROVIDERS["mine-1.of_test"] is mine
        register_provider(other, overwrite=True)
        assert PROVIDERS["mine-1.of_test"] is other


def test_a_name_that_cannot_stand_before_a_colon_is_refused() -> None:
    for name in ["", "Mine", "my:own", "-x", "a b", "ä"]:
        with pytest.raises(ConfigError, match=repr(name)):
            register_provider(Provider(name=name, codec=OpenAIChatCodec()))


def test_the_table_cannot_be_changed_by_the_way() -> None:
    with pytest.raises(TypeError):
        PROVIDERS["mine"] = PROVIDERS["openai"]  # type: ignore[index]


def test_headers_are_not_shown() -> None:
    assert "4711" not in repr(Provider(name="mine", codec=OpenAIChatCodec(), headers={"x-key": "secret-4711"}))


@needs_recorded
def test_recorded_requests_went_where_the_table_says() -> None:
    """Where a recording is of the public service; a server of one's own has an address of one's own."""
    compared = 0
    for name, entry in PROVIDERS.items():
        seen = set()
        for file in sorted((RECORDED / name).glob("*.json")):
            case = json.loads(file.read_text("utf-8"))
            if case["api"].replace("_", "-") in (entry.codec.name, f"{entry.codec.name}-messages"):
                seen.add(urlsplit(case["url"]))
        if entry.base_url is None or name in ("huggingface", "vertex"):  # whose paths name another service, a project
            continue
        base = urlsplit(entry.base_url)
        paths = {re.sub(r"/models/[^/]*:", "/models/m:", url.path) for url in seen if url.netloc == base.netloc}
        assert not paths or base.path + entry.codec.path("m", stream=False) in paths, name
        compared += bool(paths)
    assert compared > 8
