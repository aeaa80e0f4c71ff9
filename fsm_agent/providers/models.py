"""What is known of models: how the profiles of families differ from their provider's default, and context windows.

By glob patterns of lower-case names; of several that match, later ones win.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache

from fsm_agent.providers.provider import Overrides

# Models that reason refuse sampling settings and take only the newer name of the limit.  GPT-5.1 to 5.4 reason only
# when told to.  https://platform.openai.com/docs/guides/reasoning (November 2026)
_REASONS = {
    "temperature": False,
    "logprobs": False,
    "stop": False,
    "max_tokens_name": "max_completion_tokens",
    "reasoning_name": "encrypted_content",  # over the Responses wire; chat has none
}
_REASONS_ON_REQUEST = {"temperature": True, "logprobs": True, "stop": True}
# Models that know functions, but no schema of an answer.
_BY_FUNCTION = {"native_schema": False, "output_mode": "function"}
OPENAI_MODELS: Overrides = (
    ("gpt-3.5*", {**_BY_FUNCTION, "images": False}),
    ("gpt-4", {**_BY_FUNCTION, "images": False}),
    ("gpt-4-*", _BY_FUNCTION),
    ("gpt-4o-2024-05-13", _BY_FUNCTION),
    ("o[1-9]*", _REASONS),
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

# Types of tools on the wire, by kind, and the models that differ from their maker's newest (November 2026):
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

# Anthropic's documentation of models, pydantic-ai's profiles and public guides to migration (November 2026).
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
    ("claude-sonnet-5-5*", {"reasoning_off": "between_tools"}),
    ("claude-opus-5-5*", {"reasoning_off": None, **_NOT_FORCED}),
    ("claude-fable-*", {"reasoning_off": None}),
    ("claude-fable-5-[1-9]*", _NOT_FORCED),
    ("claude-mythos-*", {"reasoning_off": None}),
    ("claude-mythos-5-[1-9]*", _NOT_FORCED),
    ("claude-mythos-preview*", {**_NOT_FORCED, **_COMPUTER_2025}),
)

# Together with functions: recorded, and https://ai.google.dev/gemini-api/docs/tool-combination (November 2026).
GOOGLE_TOOLS = {"web_search": "googleSearch", "code_execution": "codeExecution", "computer_use": "computerUse"}
GEMINI_TOOLS_BESIDE: Overrides = (("gemini-[12]*", {"hosted_with_functions": None}),)

# Models that think refuse a required call, as others measured: "tool_choice 'required' is incompatible with thinking
# enabled", except by K3 (https://github.com/UKGovernmentBEIS/inspect_ai/pull/5152, August 2026); "Thinking mode does
# not support this tool_choice" (https://github.com/deepseek-ai/DeepSeek-V3/issues/1376, August 2026); "does not
# support being set to required or object in thinking mode" (https://github.com/cloudwego/eino/issues/994, April 2026).
KIMI_MODELS: Overrides = (("kimi-k3*", {"required_tool_choice": True}),)
DEEPSEEK_MODELS: Overrides = (
    ("deepseek-reasoner*", {**_NOT_FORCED, "logprobs": False}),
    ("deepseek-v4-*", _NOT_FORCED),
)
QWEN_MODELS: Overrides = tuple([(family, _NOT_FORCED) for family in ("qwen3.[5-9]*", "*-thinking*", "qwq-*")])

# From recordings; for logprobs, Gemma and schemas together with functions, from public reports (November 2026).
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

# How many tokens a request and its reply may have together: from the data of genai-prices 0.2
# (https://github.com/pydantic/genai-prices, November 2026), which has them from the documentation of the makers.  Of a
# family whose members differ, the smallest is taken.  The package itself is an extra, takes 0.13 s to load, and lacks a
# third of the models of Google and Mistral.
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
# A model that a user serves, as by Ollama, has the window that its server was started with.
_WINDOWS_OF = {"openai-chat": "openai", "vertex": "google", "xai-responses": "xai"}


@lru_cache(maxsize=256)
def window_of(model: str) -> int | None:
    """Return the context window of a model in tokens; None: it is not known.

    Args:
        model: As ``provider:model``.
    """
    provider, _, name = model.partition(":")
    name = name.rpartition("/")[2].lower()
    families = _WINDOWS.get(_WINDOWS_OF.get(provider, provider), ())
    if provider == "openrouter":
        families = tuple([family for families in _WINDOWS.values() for family in families])
    return next((window for pattern, window in reversed(families) if fnmatchcase(name, pattern)), None)
