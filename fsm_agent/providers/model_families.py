"""Which models differ from what is usual for their maker?

Glob patterns of names in lower case, and what differs in the profile; of several that match, later ones win.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Overrides: TypeAlias = tuple[tuple[str, Mapping[str, Any]], ...]

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
OPENAI_MODELS: Overrides = (
    ("gpt-3.5*", {"native_schema": False, "images": False}),
    ("gpt-4", {"native_schema": False, "images": False}),
    ("gpt-4-*", {"native_schema": False}),
    ("gpt-4o-2024-05-13", {"native_schema": False}),
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

# Anthropic's documentation of models, pydantic-ai's profiles and public guides to migration (November 2026).
_BY_BUDGET = {"reasoning": "budget", "temperature": True, "system_in_dialog": False}
_BEFORE_SCHEMAS = {
    **_BY_BUDGET,
    "native_schema": False,
    "strict_functions": False,
    "temperature_with_top_p": True,
}
CLAUDE_MODELS: Overrides = (
    ("claude-3-*", {**_BEFORE_SCHEMAS, "reasoning": None, "default_max_tokens": 4_096}),
    ("claude-3-5-*", {"default_max_tokens": 8_192}),
    ("claude-3-7-*", {"reasoning": "budget", "default_max_tokens": 16_000}),
    ("claude-*-4-0*", _BEFORE_SCHEMAS),
    ("claude-*-4-20250514", _BEFORE_SCHEMAS),
    ("claude-*-4-[15]*", _BY_BUDGET),
    ("claude-*-4-6*", {"temperature": True, "system_in_dialog": False}),
    ("claude-opus-4-7*", {"system_in_dialog": False}),
    ("claude-sonnet-5", {"system_in_dialog": False}),
    ("claude-sonnet-5-5*", {"reasoning_off": "between_tools"}),
    ("claude-opus-5-5*", {"reasoning_off": None, "forced_functions": False}),
    ("claude-fable-*", {"reasoning_off": None}),
    ("claude-fable-5-[1-9]*", {"forced_functions": False}),
    ("claude-mythos-*", {"reasoning_off": None}),
    ("claude-mythos-5-[1-9]*", {"forced_functions": False}),
    ("claude-mythos-preview*", {"forced_functions": False}),
)

# From recordings and, for logprobs, Gemma and schemas beside functions, public reports (November 2026).
GEMINI_MODELS: Overrides = (
    # "function_response.parts is not supported for this model": https://github.com/google-gemini/gemini-cli/issues/19436
    ("gemini-[12]*", {"reasoning": "budget", "schema_with_functions": False, "media_in_results": False}),
    ("gemini-[12].0*", {"reasoning": None}),
    ("gemini-1.5*", {"reasoning": None}),
    ("gemini-2.5*", {"strict_functions": True}),
    ("gemini-2.5-flash*", {"reasoning_off": True}),
    ("gemini-[3-9]*", {"strict_functions": True}),
    ("gemini-*-latest", {"strict_functions": True}),
    ("gemma-*", {"system_role": "user", "native_schema": False, "reasoning": None, "media_in_results": False}),
)
