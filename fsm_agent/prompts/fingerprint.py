"""Fingerprints of prompts: short strings that change when a prompt's text, functions or output change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from fsm_agent._internal.redaction import path_tokens, shown_url
from fsm_agent._internal.structs import Value
from fsm_agent.functions.function import Function
from fsm_agent.messages.hosted_tools import HostedMCP, HostedTool
from fsm_agent.prompts.output import Parser

if TYPE_CHECKING:
    from fsm_agent.prompts.prompt import Prompt

HANDLERS = ("on_exception", "on_interrupt", "on_final", "on_loop", "on_form")
_DECIDING = ("needs_approval", "repeatable", "version", "max_calls", "max_failures", "depends_on", "once")


class PromptChange(Value, frozen=True):
    """A change in a prompt's fingerprint."""

    path: str
    before: str  # the fingerprint
    after: str

    def __str__(self) -> str:
        return f"the prompt {self.path!r} has changed since: its fingerprint was {self.before} and is now {self.after}"


def change_of(prompt: Prompt[Any], before: str) -> PromptChange | None:
    """Return how the prompt has changed since it had this fingerprint.

    Return None if the prompt has not changed, or if either fingerprint is unknown.
    """
    after = prompt.fingerprint
    return None if before in ("", after) or not after else PromptChange(prompt.path, before, after)


def fingerprint_of(prompt: Prompt[Any]) -> str:
    """Return 16 hexadecimal digits that identify a prompt.  Python functions in it are identified only by name."""
    data = [
        prompt.path,
        prompt.template,
        prompt.mode == "two_stage",
        prompt.expected.schema,
        prompt.parser.label if isinstance(prompt.parser, Parser) else _name_of(prompt.parser),
        [_handler_source(getattr(prompt, handler)) for handler in HANDLERS],
        [_described(function) for function in prompt.offers],
    ]
    if prompt.mode not in (None, "two_stage"):
        data.append(prompt.mode)
    if not prompt.is_fixed:
        data.append([_source(item) for item in prompt.functions])
    if prompt.hosted_tools or prompt.settings:
        data.append([[_hosted(tool) for tool in prompt.hosted_tools], dict(prompt.settings)])
    if prompt.finalizer is not None:
        data.append(_handler_source(prompt.finalizer))
    if parts := getattr(prompt.template, "parts", None):
        data.append(parts)
    return _digest(to_json(data, fallback=_name_of, serialize_unknown=True))


def fingerprint_under(prompt: Prompt[Any], system: Any) -> str:
    """Return one fingerprint for a prompt and its agent's system prompt."""
    if system == "":
        return prompt.fingerprint
    shown = system if isinstance(system, str) else getattr(system, "fingerprint", None) or _name_of(system)
    return _digest(to_json([prompt.fingerprint, shown]))


def _digest(data: bytes) -> str:
    from hashlib import blake2b

    return blake2b(data, digest_size=8).hexdigest()


def _handler_source(handler: Any) -> Any:
    if isinstance(handler, str):
        parts = getattr(handler, "parts", None)  # of a file that includes others
        return [handler, parts] if parts else handler
    return getattr(handler, "fingerprint", None) or _name_of(handler)


def _described(function: Function) -> list[Any]:
    policy = [value if not callable(value := getattr(function, name)) else _name_of(value) for name in _DECIDING]
    inner = [] if function.delegate is None else [function.delegate.fingerprint]
    return [function.name, function.description, function.parameters, *policy, *inner]


def _source(item: Any) -> Any:
    return None if isinstance(item, Function) else [_name_of(item), getattr(item, "name", "")]


def _hosted(tool: HostedTool) -> list[str]:
    """Return what identifies a tool, without its secrets, which may be rotated at any time."""
    if not isinstance(tool, HostedMCP):
        return [repr(tool)]
    address = shown_url(tool.url)
    for token in path_tokens(tool.url):
        address = address.replace(token, "")
    return [repr(tool), address]


def _name_of(code: Any) -> str | None:
    return None if code is None else getattr(code, "__qualname__", type(code).__qualname__)
