"""Options of a request to a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from fsm_agent._internal.field_checks import is_finite, is_whole
from fsm_agent._internal.values import Value
from fsm_agent.errors import UsageError
from fsm_agent.foreign_names import remedy
from fsm_agent.messages.hosted_tool import HostedTool, check_hosted_tools
from fsm_agent.validation import Rights, wrong


class Settings(Value, frozen=True, kw_only=True):
    """Options of a request to the model.  None: the provider's default.

    ``cache`` is how long Anthropic caches the prefix of a request for the next one; without it, nothing is cached.
    OpenAI and Gemini cache by themselves and have no such option.  OpenAI's own options belong in ``extra_body``:
    ``prompt_cache_key``, and for GPT-5.6 and later ``prompt_cache_options``, with lifetimes of 30 minutes or 12 hours
    (the types of its SDK, November 2026).

    Examples:
        >>> agent = Agent(Script("Hi."), settings=Settings(temperature=0, max_tokens=100))
        >>> agent.call("Hello").output
        'Hi.'
        >>> agent.settings.top_p is None      # the provider's default
        True
    """

    temperature: float | None = None  # 0: always the likeliest token
    top_p: float | None = None
    max_tokens: int | None = None  # of the answer
    stop: tuple[str, ...] = ()  # sequences that end the answer
    seed: int | None = None
    tool_choice: str = "auto"  # or "required" (the first request of a call only), "none", or a function's name
    parallel_function_calls: bool | None = None
    reasoning_effort: str | None = None
    top_logprobs: int | None = None  # how many alternatives to report for each token; 0: only the token's own
    cache: Literal["5m", "1h"] | None = None
    hosted_tools: tuple[HostedTool, ...] = ()  # run by the provider itself
    extra_body: Mapping[str, Any] = {}  # merged into the request, objects key by key

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            raise UsageError(
                f"settings.stop: expected a tuple of texts, got {self.stop!r:.80}; pass ({self.stop!r:.80},)"
            )
        for name, is_right, right in _RIGHTS:
            value = getattr(self, name)
            if not (is_right(value) or (value is None and name not in _NEVER_NONE)):
                raise wrong(f"settings.{name}", value, right if name in _NEVER_NONE else f"{right}, or None")
        check_hosted_tools(self.hosted_tools)

    def override(self, changes: Mapping[str, Any]) -> Settings:
        """Return these settings with ``changes``.

        Raises:
            UsageError: There is no such setting.
        """
        if not changes:
            return self
        names = self.__struct_fields__
        for name in changes:
            if name not in names:
                raise UsageError(f"unknown setting {name!r}{remedy(name, names)}")
        return self.changed(**changes)


def _are_texts(value: Any) -> bool:
    return isinstance(value, Sequence) and all(isinstance(item, str) for item in value)


_RIGHTS: Rights = (  # types only: the provider decides which numbers are valid
    ("temperature", is_finite, "a number"),
    ("top_p", is_finite, "a number"),
    ("max_tokens", is_whole, "a whole number"),
    ("stop", _are_texts, "a tuple of strings"),
    ("seed", is_whole, "a whole number"),
    ("tool_choice", lambda value: isinstance(value, str), "'auto', 'required', 'none' or the name of a function"),
    ("parallel_function_calls", lambda value: isinstance(value, bool), "True or False"),
    ("reasoning_effort", lambda value: isinstance(value, str), "a string such as 'low'"),
    ("top_logprobs", is_whole, "a whole number"),
    ("cache", lambda value: value in ("5m", "1h"), "'5m' or '1h'"),
    ("extra_body", lambda value: isinstance(value, Mapping), "a mapping"),
)
_NEVER_NONE = frozenset({"stop", "tool_choice", "extra_body"})
