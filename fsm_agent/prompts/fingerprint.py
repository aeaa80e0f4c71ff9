"""Fingerprints of prompts: short texts that change with what a prompt says, offers and expects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsm_agent._internal.lazy_import import deferred, pydantic_core
from fsm_agent.functions.function import Function
from fsm_agent.prompts.extraction.parsing import Parser

if TYPE_CHECKING:
    import hashlib

    from fsm_agent.prompts.prompt import Prompt
else:
    hashlib = deferred("hashlib")

HANDLERS = ("on_exception", "on_interrupt", "on_final", "on_loop", "on_form")
_DECIDING = ("needs_approval", "repeatable", "version", "max_calls", "max_failures", "depends_on", "once")


def fingerprint_of(prompt: Prompt[Any]) -> str:
    """Return 16 hexadecimal digits over all of a prompt that can be told from outside; of code, its name."""
    data = [
        prompt.path,
        prompt.template,
        prompt.mode,
        prompt.expected.schema,
        prompt.parser.label if isinstance(prompt.parser, Parser) else _name_of(prompt.parser),
        [_told(getattr(prompt, handler)) for handler in HANDLERS],
        [_described(function) for function in prompt.offers],
    ]
    text = pydantic_core.to_json(data, fallback=_name_of, serialize_unknown=True)
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def _told(handler: Any) -> str | None:
    if isinstance(handler, str):
        return handler
    return getattr(handler, "fingerprint", None) or _name_of(handler)


def _described(function: Function) -> list[Any]:
    policy = [value if not callable(value := getattr(function, name)) else _name_of(value) for name in _DECIDING]
    inner = [] if function.delegate is None else [function.delegate.fingerprint]
    return [function.name, function.description, function.parameters, *policy, *inner]


def _name_of(code: Any) -> str | None:
    return None if code is None else getattr(code, "__qualname__", type(code).__qualname__)
