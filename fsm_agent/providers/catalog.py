"""The catalogue of providers: their base URLs, key variables, and the capabilities of their models.

Data only; callers can override any entry, and add to them by `register_provider`.  Base URLs and names of variables are
those of the providers' documentation and of pydantic-ai's providers (read in November 2026); quirks are from recorded
traffic where there is some, otherwise from the source named next to them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from fsm_agent._internal.registry import Registry
from fsm_agent.errors import ConfigError
from fsm_agent.providers.anthropic import Anthropic, AnthropicProfile
from fsm_agent.providers.codec import Profile
from fsm_agent.providers.gemini import Gemini, GeminiProfile
from fsm_agent.providers.models import (
    CLAUDE_MODELS,
    CLAUDE_TOOLS,
    DEEPSEEK_MODELS,
    GEMINI_MODELS,
    GEMINI_TOOLS_BESIDE,
    GOOGLE_TOOLS,
    KIMI_MODELS,
    OPENAI_MODELS,
    OPENAI_SEARCH_MODELS,
    OPENAI_TOOLS,
    OPENAI_TOOLS_OF_MODELS,
    QWEN_MODELS,
)
from fsm_agent.providers.openai_chat import OpenAIChat
from fsm_agent.providers.openai_responses import OpenAIResponses
from fsm_agent.providers.provider import Provider as Provider
from fsm_agent.providers.provider import Wire
from fsm_agent.validation import shown, wrong

CHAT, RESPONSES, MESSAGES, GENERATE_CONTENT = OpenAIChat(), OpenAIResponses(), Anthropic(), Gemini()

_OPENAI = Profile(max_tokens_name="max_completion_tokens")
_LOOSE = Profile(strict_functions=False)
_THINKS_ALOUD = Profile(strict_functions=False, reasoning_name="reasoning_content")
# A schema silences the functions, a named function means no more than "auto": measured, llama.cpp b11549.
_LLAMA_CPP = Profile(schema_with_functions=False, strict_functions=False, named_tool_choice=False)


def _chat(name: str, base_url: str | None, *key_variables: str, **facts: Any) -> Provider:
    return Provider(name=name, codec=CHAT, base_url=base_url, key_variables=key_variables, **facts)


def _server(name: str, base_url: str, key_variable: str, **facts: Any) -> Provider:
    """Return a provider that people run themselves, mostly without a key."""
    facts |= {"base_path": "/v1", "key_is_optional": True}
    return _chat(name, base_url, key_variable, base_url_variable=f"{name.upper()}_BASE_URL", **facts)


_RESPONSES_OF_OPENAI = Wire(
    codec=RESPONSES,
    profile=_OPENAI.changed(hosted_tools=OPENAI_TOOLS, least_max_tokens=16),
    models=(*OPENAI_MODELS, *OPENAI_TOOLS_OF_MODELS),
)
_CHAT_OF_OPENAI = Wire(codec=CHAT, profile=_OPENAI, models=(*OPENAI_MODELS, *OPENAI_SEARCH_MODELS))
_RESPONSES_OF_AZURE = Wire(
    codec=RESPONSES,
    profile=_OPENAI.changed(
        hosted_tools={name: type_ for name, type_ in OPENAI_TOOLS.items() if name != "computer_use"}
    ),
    models=OPENAI_MODELS,
)
# https://github.com/pydantic/pydantic-ai/issues/6593
_CHAT_OF_AZURE = Wire(
    codec=CHAT, profile=_OPENAI, models=(*OPENAI_MODELS, ("*istral*", {"max_tokens_name": "max_tokens"}))
)
# Recorded there; its other tools have other options than OpenAI's.
_RESPONSES_OF_XAI = Wire(
    codec=RESPONSES, profile=Profile(reasoning_name="encrypted_content", hosted_tools={"web_search": "web_search"})
)
_GEMINI = GeminiProfile(strict_functions=False, logprobs=False, hosted_tools=GOOGLE_TOOLS)


def _two_wires(name: str, first: Wire, second: Wire, *key_variables: str, **facts: Any) -> Provider:
    """Return a provider that takes the second wire for what the first does not express."""
    return Provider(
        name=name,
        codec=first.codec,
        profile=first.profile,
        models=first.models,
        other_wire=second,
        key_variables=key_variables,
        **facts,
    )


def _openai(name: str, first: Wire, second: Wire, **facts: Any) -> Provider:
    address = {"base_url": "https://api.openai.com/v1", "base_url_variable": "OPENAI_BASE_URL"}
    return _two_wires(name, first, second, "OPENAI_API_KEY", **address, **facts)


def _azure(name: str, first: Wire, second: Wire, **facts: Any) -> Provider:
    address = {"base_url_variable": "AZURE_OPENAI_ENDPOINT", "base_path": "/openai/v1", "key_header": "api-key"}
    return _two_wires(name, first, second, "AZURE_OPENAI_API_KEY", **address, **facts)


def _xai(name: str, first: Wire, second: Wire, **facts: Any) -> Provider:
    return _two_wires(name, first, second, "XAI_API_KEY", base_url="https://api.x.ai/v1", **facts)


_BUILT_IN = (
    _openai("openai", _RESPONSES_OF_OPENAI, _CHAT_OF_OPENAI),
    _openai("openai-chat", _CHAT_OF_OPENAI, _RESPONSES_OF_OPENAI, is_wire_fixed=True),
    Provider(
        name="anthropic",
        codec=MESSAGES,
        base_url="https://api.anthropic.com/v1",
        key_variables=("ANTHROPIC_API_KEY",),
        base_url_variable="ANTHROPIC_BASE_URL",
        base_path="/v1",
        base_path_always=True,
        profile=AnthropicProfile(  # of the newest models
            logprobs=False, temperature=False, system_in_dialog=True, hosted_tools=CLAUDE_TOOLS
        ),
        models=CLAUDE_MODELS,
    ),
    Provider(
        name="google",
        codec=GENERATE_CONTENT,
        base_url="https://generativelanguage.googleapis.com/v1beta",
        key_variables=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        base_url_variable="GOOGLE_BASE_URL",
        base_path="/v1beta",
        base_path_always=True,
        profile=_GEMINI.changed(hosted_with_functions="announced"),
        models=(*GEMINI_MODELS, *GEMINI_TOOLS_BESIDE),
    ),
    # With an express key; else the caller's address of a project and place, and an access token as the key.
    Provider(
        name="vertex",
        codec=GENERATE_CONTENT,
        base_url="https://aiplatform.googleapis.com/v1/publishers/google",
        key_variables=("VERTEX_API_KEY", "GOOGLE_API_KEY"),
        base_url_variable="VERTEX_BASE_URL",
        profile=_GEMINI.changed(logprobs=True, blocked_domains=True, hosted_with_functions="plain"),
        models=(*GEMINI_MODELS, *GEMINI_TOOLS_BESIDE, ("gemini-[3-9]*", {"logprobs": False})),
    ),
    _azure("azure", _CHAT_OF_AZURE, _RESPONSES_OF_AZURE),
    _azure("azure-responses", _RESPONSES_OF_AZURE, _CHAT_OF_AZURE, is_wire_fixed=True),
    _chat("github", "https://models.github.ai/inference", "GITHUB_API_KEY", "GITHUB_TOKEN", models=OPENAI_MODELS),
    _chat(
        "openrouter",
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        profile=Profile(reasoning_name="reasoning_details"),
    ),
    _chat("vercel", "https://ai-gateway.vercel.sh/v1", "AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN"),
    _chat(
        "cerebras",
        "https://api.cerebras.ai/v1",
        "CEREBRAS_API_KEY",
        # '"tools" is incompatible with "response_format"': https://github.com/BerriAI/litellm/pull/31445; 422 where
        # only some functions are strict: https://github.com/RooCodeInc/Roo-Code/issues/10334
        profile=_OPENAI.changed(schema_with_functions=False, strict_functions=False),
    ),
    _chat(
        "groq",
        "https://api.groq.com/openai/v1",
        "GROQ_API_KEY",
        base_url_variable="GROQ_BASE_URL",
        # https://console.groq.com/docs/structured-outputs and https://console.groq.com/docs/openai (November 2026)
        profile=_OPENAI.changed(
            native_schema=False, schema_with_functions=False, strict_functions=False, logprobs=False
        ),
        models=tuple([(family, {"native_schema": True}) for family in ("gpt-oss-*", "llama-4-*", "kimi-k2*")]),
    ),
    _chat(
        "deepseek",
        "https://api.deepseek.com",
        "DEEPSEEK_API_KEY",
        # "This response_format type is unavailable now"; `strict` at its beta address only.
        profile=_THINKS_ALOUD.changed(native_schema=False, images=False),
        models=DEEPSEEK_MODELS,
    ),
    _chat(
        "mistral",
        "https://api.mistral.ai/v1",
        "MISTRAL_API_KEY",
        # 422 for unknown fields; usage is always sent: https://github.com/dnakov/anon-kode/issues/53
        # "Tool call id was … but must be a-z, A-Z, 0-9, with a length of 9": https://github.com/karthink/gptel/issues/1203
        # "Unexpected role 'user' after role 'tool'": https://github.com/zed-industries/zed/pull/31736, read 2026-11-22
        profile=Profile(
            stream_usage=False,
            logprobs=False,
            seed_name="random_seed",
            reasoning_name="thinking",
            call_id_chars=9,
            user_after_results=False,
        ),
    ),
    _xai("xai", Wire(codec=CHAT), _RESPONSES_OF_XAI),
    _xai("xai-responses", _RESPONSES_OF_XAI, Wire(codec=CHAT), is_wire_fixed=True),
    *[
        _chat(
            name,
            "https://api.moonshot.ai/v1",
            "MOONSHOT_API_KEY",
            "MOONSHOTAI_API_KEY",
            profile=_THINKS_ALOUD.changed(required_tool_choice=False, named_tool_choice=False),
            models=KIMI_MODELS,
        )
        for name in ("moonshot", "moonshotai")
    ],
    _chat(
        "zai",
        "https://api.z.ai/api/paas/v4",
        "ZAI_API_KEY",
        # tool_choice is "auto" or nothing: https://docs.z.ai/api-reference/llm/chat-completion (November 2026)
        profile=_THINKS_ALOUD.changed(
            native_schema=False, named_tool_choice=False, required_tool_choice=False, logprobs=False
        ),
    ),
    _chat(
        "alibaba",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "DASHSCOPE_API_KEY",
        "ALIBABA_API_KEY",
        base_url_variable="DASHSCOPE_BASE_URL",
        profile=_LOOSE,
        models=QWEN_MODELS,
    ),
    _chat(
        "perplexity",
        "https://api.perplexity.ai",
        "PERPLEXITY_API_KEY",
        "PPLX_API_KEY",
        profile=_LOOSE.changed(named_tool_choice=False, logprobs=False),
    ),
    _chat("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY", profile=_LOOSE),
    _chat("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY", profile=_LOOSE),
    _chat("nvidia", "https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY", profile=_LOOSE),
    _chat("huggingface", "https://router.huggingface.co/v1", "HF_TOKEN", "HUGGINGFACE_API_KEY", profile=_LOOSE),
    _chat("sambanova", "https://api.sambanova.ai/v1", "SAMBANOVA_API_KEY", profile=_LOOSE),
    # `strict`: https://github.com/pydantic/pydantic-ai/issues/4116
    _server(
        "ollama",
        "http://localhost:11434/v1",
        "OLLAMA_API_KEY",
        profile=_LOOSE.changed(named_tool_choice=False, reasoning_name="reasoning"),
    ),
    # 400 for a named function: https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/670
    _server(
        "lmstudio", "http://localhost:1234/v1", "LMSTUDIO_API_KEY", profile=_LOOSE.changed(named_tool_choice=False)
    ),
    _server("vllm", "http://localhost:8000/v1", "VLLM_API_KEY", profile=Profile(reasoning_name="reasoning")),
    _server("llamacpp", "http://localhost:8080/v1", "LLAMA_API_KEY", profile=_LLAMA_CPP, closes_after_stream=True),
    _chat(
        "local",
        None,
        profile=_LLAMA_CPP.changed(images=False),
        models=(("smollm2-135m", {"function_calls": "guided"}),),  # and what is tuned for it: clients/local/functions
        closes_after_stream=True,
        is_embedded=True,
    ),
    _chat("openai-compatible", None, profile=_LOOSE),
)

PROVIDERS: Registry[Provider] = Registry("provider", ConfigError, {entry.name: entry for entry in _BUILT_IN})

_MAKERS = (
    *((family, "openai") for family in ("gpt-*", "o[1-9]*", "chatgpt-*")),
    ("claude-*", "anthropic"),
    ("gemini-*", "google"),
    ("deepseek-*", "deepseek"),
    ("grok-*", "xai"),
    ("mistral-*", "mistral"),
)
_CODEC = ("path", "headers", "encode", "adapted", "request_headers", "decode", "decoder")
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")


def provider(name: str) -> Provider:
    """Return the provider of this name.

    Raises:
        ConfigError: There is no such provider.
    """
    return PROVIDERS.find(name)


def register_provider(new: Provider, *, overwrite: bool = False) -> None:
    """Register a provider under its name, in this process.

    Raises:
        ConfigError: The name is taken and ``overwrite`` is False, or the name cannot precede a colon, or the codec is
            not one, or both wires have the same name.

    Examples:
        >>> from fsm_agent.clients import client_for
        >>> from fsm_agent.providers.catalog import PROVIDERS
        >>> house = Provider(name="house", codec=PROVIDERS["openai"].codec, base_url="https://models.example.org/v1")
        >>> register_provider(house, overwrite=True)
        >>> client_for("house:small", api_key="sk-example").name
        'house:small'
    """
    codecs = [new.codec] if new.other_wire is None else [new.codec, new.other_wire.codec]
    for codec in codecs:
        if not all(callable(getattr(codec, name, None)) for name in _CODEC):
            raise wrong(
                f"the codec of provider {new.name!r}", codec, f"an object with {', '.join(_CODEC)}", ConfigError
            )
    if len({codec.name for codec in codecs}) < len(codecs):
        raise ConfigError(
            f"the wires of provider {new.name!r}: expected two different ones, got {new.codec.name!r} twice"
        )
    if not _NAME.fullmatch(new.name):
        raise ConfigError(
            f"the name of a provider: expected lower-case letters, digits, '-', '_' and '.', got {new.name!r:.80}"
        )
    PROVIDERS.register(new.name, new, overwrite=overwrite)


def split_model(model: str) -> tuple[Provider, str]:
    """Return the provider and the model's own name in ``provider:model``.

    Raises:
        ConfigError: A part is missing, or there is no such provider.
    """
    prefix, colon, name = model.partition(":")
    if not colon:
        if prefix in PROVIDERS:
            raise ConfigError(f"the model: expected {prefix + ':…'!r}, got {shown(model)}; add the name of the model")
        if meant := _with_provider(model):
            raise ConfigError(f"the model: expected 'provider:model', got {shown(model)}: did you mean {meant!r}?")
        prefixes = ", ".join(f"{name}:" for name in sorted(PROVIDERS))
        raise ConfigError(
            f"the model: expected 'provider:model', got {shown(model)}; put one of these before it: {prefixes}"
        )
    named = provider(prefix)
    if not name.strip() and not named.is_embedded:
        raise ConfigError(f"the model: expected {prefix + ':…'!r}, got {shown(model)}; add the name of the model")
    return named, name


def _with_provider(model: str) -> str | None:
    """Return the model with the provider that was probably meant."""
    maker, slash, name = model.partition("/")
    if slash and maker in PROVIDERS:
        return f"{maker}:{name}"
    return next((f"{of}:{model}" for pattern, of in _MAKERS if fnmatchcase(model.lower(), pattern)), None)


def providers() -> Mapping[str, Provider]:
    """Return all providers that are known, by name; the mapping is read-only, and shows later ones as well.

    Examples:
        >>> providers()["anthropic"].codec.name
        'anthropic'
    """
    return MappingProxyType(PROVIDERS)
