"""The context windows of known models: how many tokens a request and its reply may have together.

From the data of genai-prices 0.2 (https://github.com/pydantic/genai-prices, November 2026), which has them from the
documentation of the makers.  Of a family whose members differ, the smallest is taken.  A model that a user serves, as
by Ollama, has the window that its server was started with, so no such provider is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache

# By maker: glob patterns of lower-case names; of several that match, later ones win.
_OPENAI = (
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
)
_ANTHROPIC = (
    ("claude-*", 200_000),
    ("claude-*-4[.-][6-8]*", 1_000_000),
    ("claude-opus-5*", 1_000_000),
    ("claude-sonnet-5*", 1_000_000),
    ("claude-haiku-5*", 1_000_000),
    ("claude-fable-*", 1_000_000),
    ("claude-mythos-*", 1_000_000),
)
_GOOGLE = (("gemini-*", 1_000_000), ("gemini-1.0*", 32_768), ("gemini-*-tts*", 8_192), ("gemma-4*", 262_144))
_DEEPSEEK = (("deepseek-*", 64_000), ("deepseek-v3*", 128_000), ("deepseek-v4*", 1_000_000))
_XAI = (("grok-[23]*", 32_768), ("grok-3*", 131_072), ("grok-4*", 256_000))
_MISTRAL = (("mistral-*", 128_000), ("ministral-*", 128_000), ("codestral-*", 128_000), ("devstral-*", 128_000))
_MOONSHOT = (("kimi-k2*", 131_072), ("kimi-k3*", 1_000_000), ("moonshot-v1-8k*", 8_192), ("moonshot-v1-32k*", 32_768))

_BY_PROVIDER: Mapping[str, tuple[tuple[str, int], ...]] = {
    "openai": _OPENAI,
    "openai-chat": _OPENAI,
    "anthropic": _ANTHROPIC,
    "google": _GOOGLE,
    "vertex": _GOOGLE,
    "deepseek": _DEEPSEEK,
    "xai": _XAI,
    "xai-responses": _XAI,
    "mistral": _MISTRAL,
    "moonshot": _MOONSHOT,
    "openrouter": (*_OPENAI, *_ANTHROPIC, *_GOOGLE, *_DEEPSEEK, *_XAI, *_MISTRAL, *_MOONSHOT),
}


@lru_cache(maxsize=256)
def window_of(model: str) -> int | None:
    """Return the context window of a model in tokens; None: it is not known.

    Args:
        model: As ``provider:model``.
    """
    provider, _, name = model.partition(":")
    name = name.rpartition("/")[2].lower()
    found: int | None = None
    for pattern, window in _BY_PROVIDER.get(provider, ()):
        if fnmatchcase(name, pattern):
            found = window
    return found
