"""The catalogue of providers: their base URLs, key variables and models' capabilities.  It splits ``provider:model``.

Base URLs and variable names come from the providers' documentation and from pydantic-ai (November 2026).  Quirks come
from recorded traffic, or from the source named next to them.  Prices are in `fsm_agent.call.prices`.  A provider
may have two wires; `fsm_agent.clients.http_exchange` chooses one for each request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeAlias

from fsm_agent._internal.registry import Registry
from fsm_agent._internal.structs import Value
from fsm_agent.errors import ConfigError
from fsm_agent.providers.anthropic import AnthropicCodec, AnthropicProfile
from fsm_agent.providers.codec import Codec, Profile
from fsm_agent.providers.gemini import GeminiCodec, GeminiProfile
from fsm_agent.providers.openai_chat import OpenAIChatCodec
from fsm_agent.providers.openai_responses import OpenAIResponsesCodec
from fsm_agent.validation import require, safe_repr

Overrides: TypeAlias = tuple[tuple[str, Mapping[str, Any]], ...]


class Api(Value, frozen=True, kw_only=True):
    """One of the APIs at a provider's address: the codec for its wire format and its models' profiles.

    Examples:
        >>> from fsm_agent.providers.catalog import PROVIDERS
        >>> Api(codec=PROVIDERS["openai"].codec).profile.native_schema
        True
    """

    codec: Codec
    profile: Profile = Profile()
    models: Overrides = ()


class Provider(Value, frozen=True, kw_only=True):
    """A named provider: its codec, base URL, key variables and models' profiles.

    Examples:
        >>> from fsm_agent.providers.catalog import PROVIDERS
        >>> house = Provider(name="house", codec=PROVIDERS["openai"].codec, base_url="https://models.example.org/v1")
        >>> house.base_url
        'https://models.example.org/v1'
    """

    hidden = ("headers",)

    name: str
    codec: Codec
    base_url: str | None = None  # None if the caller or an environment variable provides it
    base_url_variable: str | None = None
    base_path: str = ""  # appended to a caller's base URL without a path
    base_path_always: bool = False  # appended to every URL that does not end in a version, as the provider's SDK does
    key_variables: tuple[str, ...] = ()  # the first one that is set is used; if empty, only `api_key` is
    key_is_optional: bool = False
    key_header: str | None = None  # the header for the bare key, in place of the codec's header
    headers: Mapping[str, str] = {}
    profile: Profile = Profile()
    models: Overrides = ()  # glob patterns of model names, with the profile fields that differ; later ones win
    other_wire: Api | None = None  # takes the requests that `codec` cannot express
    is_wire_fixed: bool = False  # `codec` takes all requests; the other wire is named in errors only
    closes_after_stream: bool = False  # closes connections unannounced after a stream, so they are not reused
    is_embedded: bool = False  # its server runs in a child process, which is started when needed

    @property
    def other_way_round(self) -> Provider | None:
        """The provider with its two wires swapped, or None if it has only one."""
        if (other := self.other_wire) is None:
            return None
        first = Api(codec=self.codec, profile=self.profile, models=self.models)
        return self.changed(codec=other.codec, profile=other.profile, models=other.models, other_wire=first)

    def over(self, wire: str) -> Provider:
        """Return a copy of the provider that uses the named wire for every request.

        Raises:
            ConfigError: If the provider does not have this wire.
        """
        known = [self, *filter(None, [self.other_way_round])]
        for provider in known:
            if provider.codec.name == wire:
                return provider.changed(is_wire_fixed=True)
        names = " or ".join([repr(provider.codec.name) for provider in known])
        raise ConfigError(f"wire of provider {self.name!r}: expected {names}, got {wire!r:.80}")

    def profile_of(self, model: str) -> Profile:
        """Return the profile for ``model``.

        Patterns are matched against the lower-case name, with and without any prefix that ends in a slash.
        """
        name = model.lower()
        bare = name.rpartition("/")[2]
        changes: dict[str, Any] = {}
        for pattern, differs in self.models:
            if fnmatchcase(name, pattern) or fnmatchcase(bare, pattern):
                changes |= differs
        return self.profile.changed(**changes)


# Reasoning models refuse sampling settings and take only the newer name for the token limit.  GPT-5.1 to 5.4 reason
# only when told to.  https://platform.openai.com/docs/guides/reasoning (November 2026)
_REASONS = {
    "temperature": False,
    "logprobs": False,
    "stop": False,
    "max_tokens_name": "max_completion_tokens",
    "reasoning_name": "encrypted_content",  # over the Responses wire; chat has none
}

_REASONS_ON_REQUEST = {"temperature": True, "logprobs": True, "stop": True, "samples_while_reasoning": False}
# Models that take functions but no schema for the answer.
_BY_FUNCTION = {"native_schema": False, "output_mode": "function"}
OPENAI_MODELS: Overrides = (
    ("gpt-3.5*", {**_BY_FUNCTION, "images": False}),
    ("gpt-4", {**_BY_FUNCTION, "images": False}),
    ("gpt-4-*", _BY_FUNCTION),
    ("gpt-4o-2024-05-13", _BY_FUNCTION),
    ("o[1-9]*", {**_REASONS, "parallel_choice": False}),
    ("o1*", {"stop": True}),
    ("o[13]-mini*", {"images": False}),
    ("o1-preview*", {"images": False, "native_schema": False, "strict_functions": False, "system_role": "user"}),
    ("o1-mini*", {"native_schema": False, "strict_functions": False, "system_role": "user"}),
    ("gpt-[5-9]*", _REASONS),
    ("gpt-5-chat*", {**_REASONS_ON_REQUEST, "reasoning_name": None}),
    ("gpt-5.[1-4]*", _REASONS_ON_REQUEST),
    ("gpt-5.[1-4]-chat*", _REASONS),
    ("gpt-5.[1-4]-pro*", _REASONS),
    ("gpt-5.1-codex*", _REASONS),
)

# "Function tools with reasoning_effort are not supported for gpt-5.4 in /v1/chat/completions.  Please use /v1/responses
# instead."  https://github.com/pipecat-ai/pipecat/issues/4043 (2026-03).  The newest models reason by default:
# https://github.com/can1357/oh-my-pi/issues/11052 (2026-09)
OPENAI_CHAT_MODELS: Overrides = (
    *OPENAI_MODELS,
    ("gpt-5.[45]*", {"functions_at_effort": "unset"}),
    ("gpt-5.[6-9]*", {"functions_at_effort": "none"}),
    ("gpt-[6-9]*", {"functions_at_effort": "none"}),
)

# Tool types on the wire, by kind, and the models that differ from their maker's newest (November 2026):
# https://developers.openai.com/api/docs/guides/tools, https://platform.claude.com/docs/en/agents-and-tools.
OPENAI_TOOLS = {
    "web_search": "web_search",
    "code_execution": "code_interpreter",
    "computer_use": "computer",
    "mcp": "mcp",
}

_SEARCH_MODELS = ("*-search-preview*", "*-search-api*")  # of chat completions only
OPENAI_TOOLS_OF_MODELS: Overrides = (
    ("computer-use-preview*", {"hosted_tools": {"computer_use": "computer_use_preview"}}),
    *[(pattern, {"hosted_tools": {}}) for pattern in _SEARCH_MODELS],
)

OPENAI_SEARCH_MODELS: Overrides = tuple(
    [(pattern, {"hosted_tools": {"web_search": "web_search_options"}}) for pattern in _SEARCH_MODELS]
)

CLAUDE_TOOLS = {
    "web_search": "web_search_20250305",
    "code_execution": "code_execution_20250825",
    "computer_use": "computer_toolset_20260801",
    "mcp": "mcp_toolset",
}

_COMPUTER_2024 = {"hosted_tools": {**CLAUDE_TOOLS, "computer_use": "computer_20250124"}}
_COMPUTER_2025 = {"hosted_tools": {**CLAUDE_TOOLS, "computer_use": "computer_20251124"}}
_NOT_FORCED = {"required_tool_choice": False, "named_tool_choice": False}
_BOUND = {"reasoning_bound": True}

# From Anthropic's model documentation, pydantic-ai's profiles and public migration guides (November 2026).
_BY_BUDGET = {"reasoning": "budget", "temperature": True, "system_in_dialog": False}
_BEFORE_SCHEMAS = {
    **_BY_BUDGET,
    **_BY_FUNCTION,
    "strict_functions": False,
    "temperature_with_top_p": True,
    **_COMPUTER_2024,
}

CLAUDE_MODELS: Overrides = (
    ("claude-3-*", {**_BEFORE_SCHEMAS, "reasoning": None, "default_max_tokens": 4_096}),
    ("claude-3-5-*", {"default_max_tokens": 8_192}),
    ("claude-3-7-*", {"reasoning": "budget", "default_max_tokens": 16_000}),
    ("claude-*-4-0*", _BEFORE_SCHEMAS),
    ("claude-*-4-20250514", _BEFORE_SCHEMAS),
    ("claude-*-4-[15]*", {**_BY_BUDGET, **_COMPUTER_2024}),
    ("claude-opus-4-5*", _COMPUTER_2025),
    ("claude-*-4-6*", {"temperature": True, "system_in_dialog": False, **_COMPUTER_2025}),
    ("claude-opus-4-7*", {"system_in_dialog": False, **_COMPUTER_2025}),
    ("claude-sonnet-5", {"system_in_dialog": False}),
    ("claude-haiku-5-5*", _BOUND),
    ("claude-sonnet-5-5*", {"reasoning_off": "between_tools", **_BOUND}),
    ("claude-opus-5-5*", {"reasoning_off": None, **_NOT_FORCED, **_BOUND}),
    ("claude-fable-*", {"reasoning_off": None}),
    ("claude-fable-5-[1-9]*", {**_NOT_FORCED, **_BOUND}),
    ("claude-mythos-*", {"reasoning_off": None}),
    ("claude-mythos-5-[1-9]*", {**_NOT_FORCED, **_BOUND}),
    ("claude-mythos-preview*", {**_NOT_FORCED, **_COMPUTER_2025}),
)

# Combined with functions: from recordings and https://ai.google.dev/gemini-api/docs/tool-combination (November 2026).
GOOGLE_TOOLS = {"web_search": "googleSearch", "code_execution": "codeExecution", "computer_use": "computerUse"}
GEMINI_TOOLS_BESIDE: Overrides = (("gemini-[12]*", {"hosted_with_functions": None}),)

# Thinking models refuse a required call, according to public reports: "tool_choice 'required' is incompatible with
# thinking enabled", except K3 (https://github.com/UKGovernmentBEIS/inspect_ai/pull/5152, August 2026); "Thinking mode
# does not support this tool_choice" (https://github.com/deepseek-ai/DeepSeek-V3/issues/1376, August 2026); "does not
# support being set to required or object in thinking mode" (https://github.com/cloudwego/eino/issues/994, April 2026).
KIMI_MODELS: Overrides = (("kimi-k3*", {"required_tool_choice": True}),)
DEEPSEEK_MODELS: Overrides = (
    ("deepseek-reasoner*", {**_NOT_FORCED, "logprobs": False}),
    ("deepseek-v4-*", _NOT_FORCED),
)

QWEN_MODELS: Overrides = tuple([(family, _NOT_FORCED) for family in ("qwen3.[5-9]*", "*-thinking*", "qwq-*")])

# From Mistral's chat template, so the rules hold wherever the models are served.  "Tool call id was … but must be a-z,
# A-Z, 0-9, with a length of 9": https://github.com/jundot/omlx/issues/1995, June 2026.  "Unexpected role 'user' after
# role 'tool'": https://github.com/NousResearch/hermes-agent/issues/20154, May 2026.
_MISTRAL_RULES: Mapping[str, Any] = {"call_id_chars": 9, "user_after_results": False}
MISTRAL_MODELS: Overrides = (("*[sx]tral*", _MISTRAL_RULES),)
# "Reasoning input is not enabled for this model": https://github.com/suitenumerique/conversations/issues/402
_DO_NOT_REASON = (
    "mistral-large*",
    "mistral-medium-250*",
    "ministral*",
    "codestral*",
    "devstral*",
    "pixtral*",
    "open-*",
)

# From recordings.  Logprobs, Gemma and schemas together with functions are from public reports (November 2026).
GEMINI_MODELS: Overrides = (
    # "function_response.parts is not supported for this model": https://github.com/google-gemini/gemini-cli/issues/19436
    ("gemini-[12]*", {"reasoning": "budget", "schema_with_functions": False, "media_in_results": False}),
    ("gemini-2.5-computer-use*", {"media_in_results": True}),  # https://ai.google.dev/gemini-api/docs/computer-use
    ("gemini-[12].0*", {"reasoning": None}),
    ("gemini-1.5*", {"reasoning": None}),
    ("gemini-2.5*", {"strict_functions": True}),
    ("gemini-2.5-flash*", {"reasoning_off": True}),
    ("gemini-[3-9]*", {"strict_functions": True}),
    ("gemini-*-latest", {"strict_functions": True}),
    ("gemma-*", {"system_role": "user", "native_schema": False, "reasoning": None, "media_in_results": False}),
)

# Context windows: the tokens of a request and its reply together.  The numbers come from genai-prices 0.2
# (https://github.com/pydantic/genai-prices, November 2026), which collects them from the makers' documentation.  Where
# the members of a family differ, this table has the smallest.  The package itself is not used: it is an extra, takes
# 0.13 s to load, and lacks a third of Google's and Mistral's models.
_WINDOWS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "openai": (
        ("gpt-3.5*", 16_385),
        ("gpt-4", 8_192),
        ("gpt-4-*", 8_192),
        ("gpt-4-turbo*", 128_000),
        ("gpt-4o*", 128_000),
        ("chatgpt-4o*", 128_000),
        ("gpt-4.1*", 1_000_000),
        ("gpt-5*", 400_000),
        ("gpt-5*-chat*", 128_000),
        ("gpt-5.3", 128_000),
        ("gpt-5.[4-9]*", 400_000),
        ("gpt-5.[4-9]", 1_000_000),
        ("gpt-[6-9]*", 1_000_000),
        ("gpt-oss-*", 131_072),
        ("o[1-9]*", 200_000),
        ("o1-mini*", 128_000),
        ("o1-preview*", 128_000),
    ),
    "anthropic": (
        ("claude-*", 200_000),
        ("claude-*-4[.-][6-8]*", 1_000_000),
        ("claude-opus-5*", 1_000_000),
        ("claude-sonnet-5*", 1_000_000),
        ("claude-haiku-5*", 1_000_000),
        ("claude-fable-*", 1_000_000),
        ("claude-mythos-*", 1_000_000),
    ),
    "google": (("gemini-*", 1_000_000), ("gemini-1.0*", 32_768), ("gemini-*-tts*", 8_192), ("gemma-4*", 262_144)),
    "deepseek": (("deepseek-*", 64_000), ("deepseek-v3*", 128_000), ("deepseek-v4*", 1_000_000)),
    "xai": (("grok-[23]*", 32_768), ("grok-3*", 131_072), ("grok-4*", 256_000)),
    "mistral": (("mistral-*", 128_000), ("ministral-*", 128_000), ("codestral-*", 128_000), ("devstral-*", 128_000)),
    "moonshot": (
        ("kimi-k2*", 131_072),
        ("kimi-k3*", 1_000_000),
        ("moonshot-v1-8k*", 8_192),
        ("moonshot-v1-32k*", 32_768),
    ),
}
# Models that users serve themselves, for example with Ollama, have the window that the server was started with.
_WINDOWS_OF = {"openai-chat": "openai", "vertex": "google", "xai-responses": "xai"}


@lru_cache(maxsize=256)
def window_of(model: str) -> int | None:
    """Return a model's context window in tokens, or None if it is unknown.

    Args:
        model: The model, as ``provider:model``.
    """
    provider, _, name = model.partition(":")
    name = name.rpartition("/")[2].lower()
    families = _WINDOWS.get(_WINDOWS_OF.get(provider, provider), ())
    if provider == "openrouter":
        families = tuple([family for families in _WINDOWS.values() for family in families])
    return next((window for pattern, window in reversed(families) if fnmatchcase(name, pattern)), None)


CHAT, RESPONSES, MESSAGES, GENERATE_CONTENT = OpenAIChatCodec(), OpenAIResponsesCodec(), AnthropicCodec(), GeminiCodec()
_NEWER_LIMIT = Profile(max_tokens_name="max_completion_tokens")
_LOOSE = Profile(strict_functions=False)
_THINKS_ALOUD = Profile(strict_functions=False, reasoning_name="reasoning_content")
# With a schema, the model calls no functions; a named function works like "auto".  Measured with llama.cpp b11549.
_LLAMA_CPP = Profile(schema_with_functions=False, strict_functions=False, named_tool_choice=False)


def _chat(name: str, base_url: str | None, *key_variables: str, **facts: Any) -> Provider:
    facts["models"] = (*MISTRAL_MODELS, *facts.get("models", ()))
    return Provider(name=name, codec=CHAT, base_url=base_url, key_variables=key_variables, **facts)


def _server(name: str, base_url: str, key_variable: str, **facts: Any) -> Provider:
    facts |= {"base_path": "/v1", "key_is_optional": True}
    return _chat(name, base_url, key_variable, base_url_variable=f"{name.upper()}_BASE_URL", **facts)


# Over the wire that is named first, unless it cannot express a request.
_OPENAI = Provider(
    name="openai",
    codec=RESPONSES,
    base_url="https://api.openai.com/v1",
    base_url_variable="OPENAI_BASE_URL",
    key_variables=("OPENAI_API_KEY",),
    profile=_NEWER_LIMIT.changed(hosted_tools=OPENAI_TOOLS, least_max_tokens=16),
    models=(*OPENAI_MODELS, *OPENAI_TOOLS_OF_MODELS),
    other_wire=Api(codec=CHAT, profile=_NEWER_LIMIT, models=(*OPENAI_CHAT_MODELS, *OPENAI_SEARCH_MODELS)),
)
_AZURE = Provider(
    name="azure",
    codec=CHAT,
    base_url_variable="AZURE_OPENAI_ENDPOINT",
    base_path="/openai/v1",
    key_variables=("AZURE_OPENAI_API_KEY",),
    key_header="api-key",
    profile=_NEWER_LIMIT,
    # https://github.com/pydantic/pydantic-ai/issues/6593
    models=(*OPENAI_CHAT_MODELS, *MISTRAL_MODELS, ("*istral*", {"max_tokens_name": "max_tokens"})),
    other_wire=Api(
        codec=RESPONSES,
        profile=_NEWER_LIMIT.changed(
            hosted_tools={name: type_ for name, type_ in OPENAI_TOOLS.items() if name != "computer_use"}
        ),
        models=OPENAI_MODELS,
    ),
)
_XAI = Provider(
    name="xai",
    codec=CHAT,
    base_url="https://api.x.ai/v1",
    key_variables=("XAI_API_KEY",),
    # From recordings.  The provider's other tools have different options from OpenAI's.
    other_wire=Api(
        codec=RESPONSES, profile=Profile(reasoning_name="encrypted_content", hosted_tools={"web_search": "web_search"})
    ),
)
_GEMINI = GeminiProfile(strict_functions=False, logprobs=False, hosted_tools=GOOGLE_TOOLS)

_BUILT_IN = (
    _OPENAI,
    _OPENAI.over("openai-chat").changed(name="openai-chat"),
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
    # This address takes an express key.  Otherwise the caller gives the URL of a project and location, and an access
    # token as the key.
    Provider(
        name="vertex",
        codec=GENERATE_CONTENT,
        base_url="https://aiplatform.googleapis.com/v1/publishers/google",
        key_variables=("VERTEX_API_KEY", "GOOGLE_API_KEY"),
        base_url_variable="VERTEX_BASE_URL",
        profile=_GEMINI.changed(logprobs=True, blocked_domains=True, hosted_with_functions="plain"),
        models=(*GEMINI_MODELS, *GEMINI_TOOLS_BESIDE, ("gemini-[3-9]*", {"logprobs": False})),
    ),
    _AZURE,
    _AZURE.over("openai-responses").changed(name="azure-responses"),
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
        profile=_NEWER_LIMIT.changed(schema_with_functions=False, strict_functions=False),
    ),
    _chat(
        "groq",
        "https://api.groq.com/openai/v1",
        "GROQ_API_KEY",
        base_url_variable="GROQ_BASE_URL",
        # https://console.groq.com/docs/structured-outputs and https://console.groq.com/docs/openai (November 2026)
        profile=_NEWER_LIMIT.changed(
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
        profile=Profile(
            stream_usage=False,
            logprobs=False,
            seed_name="random_seed",
            reasoning_name="thinking",
        ).changed(**_MISTRAL_RULES),
        models=tuple([(family, {"reasoning_name": None}) for family in _DO_NOT_REASON]),
    ),
    _XAI,
    _XAI.over("openai-responses").changed(name="xai-responses"),
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
        models=(("smollm2-135m", {"function_calls": "guided"}),),  # clients/local/functions is tuned for it
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

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")


def provider(name: str) -> Provider:
    """Return the provider with this name.

    Raises:
        ConfigError: If the provider is unknown.
    """
    return PROVIDERS.find(name)


def register_provider(new: Provider, *, overwrite: bool = False) -> None:
    """Register a provider under its name in this OS process.

    Raises:
        ConfigError: If the name is taken and ``overwrite`` is False, if it contains characters other than lower-case
            letters, digits, "-", "_" and ".", if ``codec`` is not a `Codec`, or if both wires have the same name.

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
        require(f"the codec of provider {new.name!r}", codec, isinstance(codec, Codec), "a Codec", ConfigError)
    if len({codec.name for codec in codecs}) < len(codecs):
        raise ConfigError(
            f"the wires of provider {new.name!r}: expected two different ones, got {new.codec.name!r} twice"
        )
    check_name("provider", new.name)
    PROVIDERS.register(new.name, new, overwrite=overwrite)


def check_name(kind: str, name: str) -> None:
    """Check a name that stands before the colon of ``name:model``."""
    if not _NAME.fullmatch(name):
        right = "lower-case letters, digits, '-', '_' and '.'"
        raise ConfigError(f"the name of a {kind}: expected {right}, got {name!r:.80}")


def split_model(model: str) -> tuple[Provider, str]:
    """Split ``provider:model`` into the `Provider` and the model's name.

    Raises:
        ConfigError: If the provider or the model's name is missing, or the provider is unknown.
    """
    prefix, colon, name = model.partition(":")
    if not colon:
        if prefix in PROVIDERS:
            raise ConfigError(
                f"the model: expected {prefix + ':…'!r}, got {safe_repr(model)}; add the name of the model"
            )
        if meant := _with_provider(model):
            raise ConfigError(f"the model: expected 'provider:model', got {safe_repr(model)}: did you mean {meant!r}?")
        prefixes = ", ".join(f"{name}:" for name in sorted(PROVIDERS))
        raise ConfigError(
            f"the model: expected 'provider:model', got {safe_repr(model)}; put one of these before it: {prefixes}"
        )
    named = provider(prefix)
    if not name.strip() and not named.is_embedded:
        raise ConfigError(f"the model: expected {prefix + ':…'!r}, got {safe_repr(model)}; add the name of the model")
    return named, name


def _with_provider(model: str) -> str | None:
    """Return a guess at the intended ``provider:model``, or None."""
    maker, slash, name = model.partition("/")
    if slash and maker in PROVIDERS:
        return f"{maker}:{name}"
    return next((f"{of}:{model}" for pattern, of in _MAKERS if fnmatchcase(model.lower(), pattern)), None)


def providers() -> Mapping[str, Provider]:
    """Return a read-only view of all providers by name, including any that are registered later.

    Examples:
        >>> providers()["anthropic"].codec.name
        'anthropic'
    """
    return MappingProxyType(PROVIDERS)
