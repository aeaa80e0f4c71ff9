"""Is every provider's entry of use, and is a name that is none refused with help?"""

from __future__ import annotations

import json
import pickle
import re
from copy import deepcopy
from urllib.parse import urlsplit

import pytest
from support.copies import replace
from support.paths import SHARED

from fsm_agent.errors import ConfigError
from fsm_agent.lifecycle import Request, Settings
from fsm_agent.messages import Message
from fsm_agent.providers import OpenAIChat, Profile, Provider, register_provider
from fsm_agent.providers.catalog import PROVIDERS, provider, split_model

WIRE = SHARED / "wire"
PROMISED = {
    *(
        "openai",
        "openai-chat",
        "azure",
        "anthropic",
        "google",
        "vertex",
        "github",
        "openrouter",
        "cerebras",
        "groq",
        "deepseek",
        "mistral",
        "xai",
    ),
    *("moonshot", "zai", "perplexity", "together", "fireworks", "nvidia", "huggingface"),
    *("ollama", "lmstudio", "vllm", "llamacpp", "local", "openai-compatible"),
}


@pytest.mark.parametrize("copied", [deepcopy, lambda entry: pickle.loads(pickle.dumps(entry))])
def test_a_copy_of_an_entry_has_the_same_codec(copied) -> None:
    copy = copied(PROVIDERS["anthropic"])
    assert (copy.name, copy.codec.name, copy.codec.path("m", stream=False)) == ("anthropic", "anthropic", "/messages")


def test_all_that_were_promised_are_there() -> None:
    assert set(PROVIDERS) >= PROMISED


@pytest.mark.parametrize("name", PROVIDERS)
def test_an_entry_is_of_use(name: str) -> None:
    entry = PROVIDERS[name]
    assert entry.name == name
    assert provider(name) is entry
    assert entry.codec.path("m", stream=True).startswith("/")
    settings = Settings(temperature=0.5, max_tokens=19, seed=1)
    request = Request(messages=(Message.of("user", "Hello?"),), settings=settings)
    body = entry.codec.encode(request, model="m", profile=entry.profile_of("m"), stream=True)
    assert "Hello?" in json.dumps(body)
    assert ": 19" in json.dumps(body), "the limit is said"
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
    "gpt-4o-2024-05-13": (True, True, "system", False),
    "gpt-4.1-nano": (True, True, "system", True),
    "GPT-5-Mini": (False, False, "system", True),
    "o1": (False, True, "system", True),
    "o1-mini-2024-09-12": (False, True, "user", False),
    "o3-mini": (False, False, "system", True),
    "o4-mini": (False, False, "system", True),
    "gpt-5": (False, False, "system", True),
    "gpt-5-mini": (False, False, "system", True),
    "gpt-5-chat-latest": (True, True, "system", True),
    "gpt-5.1": (True, True, "system", True),
    "gpt-5.1-codex-max": (False, False, "system", True),
    "gpt-5.2-pro": (False, False, "system", True),
    "gpt-5.3-chat-latest": (False, False, "system", True),
    "gpt-5.4": (True, True, "system", True),
    "gpt-5.6-sol": (False, False, "system", True),
    "gpt-6-astra": (False, False, "system", True),
    "open-mixtral": (True, True, "system", True),
}


@pytest.mark.parametrize("model", OPENAI)
def test_what_openais_models_take(model: str) -> None:
    for name in ("openai", "openai-chat", "azure"):
        profile = provider(name).profile_of(model)
        if name != "azure" or "mixtral" not in model:
            assert profile.max_tokens_name == "max_completion_tokens"
        assert (profile.temperature, profile.stop, profile.system_role, profile.native_schema) == OPENAI[model]
        assert profile.logprobs is profile.temperature


def test_a_makers_name_before_the_model_does_not_matter() -> None:
    github = provider("github")
    assert github.profile_of("openai/gpt-5-mini") == replace(github.profile_of("gpt-5-mini"))
    assert not github.profile_of("openai/gpt-5-mini").temperature
    assert github.profile_of("openai/gpt-5-mini").max_tokens_name == "max_completion_tokens"
    assert github.profile_of("openai/gpt-4o").max_tokens_name == "max_tokens"
    assert provider("groq").profile_of("openai/gpt-oss-120b").native_schema
    for name, model in (("openai", "gpt-4-turbo"), ("anthropic", "claude-3-7-sonnet-latest")):
        profile = provider(name).profile_of(model)
        assert (profile.native_schema, profile.output_mode) == (False, "function"), model
    assert provider("openai").profile_of("gpt-4.1-nano").output_mode == "native"
    assert not provider("groq").profile_of("llama-3.3-70b-versatile").native_schema


def test_the_profile_without_overrides_is_the_providers() -> None:
    assert provider("xai").profile_of("grok-4") == Profile()


def test_servers_that_close_after_a_stream_are_known() -> None:
    assert {name for name, entry in PROVIDERS.items() if entry.closes_after_stream} == {"llamacpp", "local"}


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [("opnai", "did you mean 'openai'?"), ("OpenAI", "did you mean 'openai'?"), (" groq ", "did you mean 'groq'?"),
     ("mistal", "did you mean 'mistral'?"), ("zzzzzz", "known are alibaba, "), ("", "known are alibaba, ")],
)  # fmt: skip
def test_an_unknown_one_is_refused_with_help(wrong: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        provider(wrong)
    assert repr(wrong) in str(caught.value)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("model", "name", "rest"),
    [("openai:gpt-5-mini", "openai", "gpt-5-mini"), ("ollama:gpt-oss:20b", "ollama", "gpt-oss:20b"),
     ("openai:ft:gpt-4o:me::x1", "openai", "ft:gpt-4o:me::x1"), ("local:", "local", ""),
     ("local:/a b/c.gguf", "local", "/a b/c.gguf"), ("local:C:\\m.gguf", "local", "C:\\m.gguf"),
     ("openrouter:google/gemini-2.0-flash-exp:free", "openrouter", "google/gemini-2.0-flash-exp:free")],
)  # fmt: skip
def test_a_models_name_is_split_at_the_first_colon(model: str, name: str, rest: str) -> None:
    assert split_model(model) == (provider(name), rest)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [("llama", "names no provider; put one of these before it: alibaba:, "), ("openai:", "names no model"),
     ("gpt-5-mini", "did you mean 'openai:gpt-5-mini'?"), ("openai/gpt-5", "did you mean 'openai:gpt-5'?"),
     ("Claude-Sonnet-5", "did you mean 'anthropic:Claude-Sonnet-5'?"), ("o3-mini", "did you mean 'openai:o3-mini'?"),
     ("sk-abcdefghijklmnop", "'sk-a***' names no provider"),
     ("openai: ", "names no model"), ("openai", "names no model: 'openai:…' would"), ("local", "'local:…' would"),
     ("", "names no provider"), (":gpt", "known are"), ("opnai:gpt-5", "did you mean 'openai'?")],
)  # fmt: skip
def test_what_is_no_models_name_is_refused_with_help(wrong: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        split_model(wrong)
    assert says in str(caught.value)


@pytest.mark.spec(
    "2.35: a provider of one's own has a name",
    "4.4: a provider of one's own is registered",
    "4.17: a provider of one's own",
)
def test_ones_own_provider() -> None:
    mine = Provider(name="mine-1.of_test", codec=OpenAIChat(), base_url="https://example.invalid/v1")
    register_provider(mine)
    assert split_model("mine-1.of_test:m") == (mine, "m")
    assert PROVIDERS["mine-1.of_test"] is mine
    register_provider(mine)
    other = replace(mine, base_url="https://other.invalid/v1")
    with pytest.raises(ConfigError, match=r"'mine-1\.of_test' already"):
        register_provider(other)
    assert provider("mine-1.of_test") is mine
    register_provider(other, overwrite=True)
    assert provider("mine-1.of_test") is other


@pytest.mark.parametrize("name", ["", "Mine", "my:own", "-x", "a b", "ä"])
def test_a_name_that_cannot_stand_before_a_colon_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="no name for a provider"):
        register_provider(Provider(name=name, codec=OpenAIChat()))


def test_the_table_cannot_be_changed_by_the_way() -> None:
    with pytest.raises(TypeError):
        PROVIDERS["mine"] = PROVIDERS["openai"]  # type: ignore[index]


def test_headers_are_not_shown() -> None:
    assert "4711" not in repr(Provider(name="mine", codec=OpenAIChat(), headers={"x-key": "secret-4711"}))


@pytest.mark.skipif(not WIRE.is_dir(), reason="../shared/wire is absent")
@pytest.mark.parametrize("name", [name for name in PROVIDERS if (WIRE / name).is_dir()])
def test_recorded_requests_went_where_the_table_says(name: str) -> None:
    """Where a recording is of the public service; a server of one's own has an address of one's own."""
    entry = PROVIDERS[name]
    seen = set()
    for file in sorted((WIRE / name).glob("*.json")):
        case = json.loads(file.read_text("utf-8"))
        if case["api"].replace("_", "-") in (entry.codec.name, f"{entry.codec.name}-messages"):
            seen.add(case["url"])
    hosts = {urlsplit(url).netloc for url in seen}
    if entry.base_url is None or urlsplit(entry.base_url).netloc not in hosts:
        pytest.skip(f"recorded elsewhere: {hosts}")
    paths = {urlsplit(url).path for url in seen if urlsplit(url).netloc == urlsplit(entry.base_url).netloc}
    expected = urlsplit(entry.base_url).path + entry.codec.path("m", stream=False)
    if name not in ("huggingface", "vertex"):  # their paths name the service behind, and the caller's project
        assert {re.sub(r"/models/[^/]*:", "/models/m:", path) for path in paths} >= {expected}
