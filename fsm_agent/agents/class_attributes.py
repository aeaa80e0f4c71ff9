"""The attributes of a class of agents: which are arguments of its agents, and which are refused.

An ignored attribute may be an approver that is never asked.  So an attribute that looks like an argument of an agent is
one, or an error at the class statement.  All others belong to the class.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable
from functools import cached_property
from types import FunctionType
from typing import Any

from fsm_agent._internal.registry import path_of
from fsm_agent._internal.structs import field_names
from fsm_agent.agents.agent import ARGUMENTS
from fsm_agent.agents.config import KEYS_ALONE, AgentConfig
from fsm_agent.call.record import Limits
from fsm_agent.errors import ConfigError
from fsm_agent.foreign_names import WORDS
from fsm_agent.messages.reply import Settings

KNOWN = (*ARGUMENTS, *KEYS_ALONE)
_CHECKED_AS_KEYS = (*KEYS_ALONE, "limits", "settings")
METHODS = ("approve", "check", "stop_when", "system")  # what may be defined in the body of a class, with a self
_CLOSENESS = 0.85  # the similarity from which a name counts as a misspelling: "aprove", and not "score" for "store"
OVERRIDABLE = ("answer", "call", "close", "aclose", "as_function")  # methods of an agent that a class may have
_MISSING: Any = object()
_ELSEWHERE = {  # what would be ignored in a class, and has another place
    "agents": "agent_group",
    "agent_configs": "agent_group",
    "global": "the attributes of the class themselves",
    "deps": "deps=… of call",
}


def check_attributes(cls: type, base: type) -> None:
    """Refuse attributes of a class that would have no effect: misspellings, and words of other libraries.

    Args:
        cls: A class of agents; its mixins are checked with it.
        base: `AgentBase`.

    Raises:
        ConfigError: It names the first such attribute, and what was probably meant.
    """
    known = [*KNOWN, *[name for name in vars(base) if not name.startswith("_") and not callable(getattr(base, name))]]
    mixins = [each for each in cls.__mro__ if not issubclass(each, base) and not issubclass(base, each)]
    for owner in (cls, *mixins):
        for name, value in vars(owner).items():
            if name.startswith("_") or name in known or name in OVERRIDABLE:
                continue
            right = _meant(name, value, owner, known)
            if right is None and hasattr(base, name):
                right = "every agent has it, so rename your own; define answer(self, task) to answer"
            if right is not None:
                raise ConfigError(f"{path_of(cls)}: unknown attribute {name!r}; {right}")
        settings = {name: vars(owner).get(name) for name in _CHECKED_AS_KEYS}
        try:
            AgentConfig.of({name: value for name, value in settings.items() if not isinstance(value, property | None)})
        except ConfigError as error:
            raise ConfigError(f"{path_of(cls)}: {error}") from error


def _meant(name: str, value: Any, owner: type, known: Iterable[str]) -> str | None:
    """Return what is right in the place of an attribute; None: it is the class's own."""
    word = _argument_for(name)
    near = next(iter(difflib.get_close_matches(name, known, n=1, cutoff=_CLOSENESS)), None)
    is_gate = near in METHODS or (word or "").partition("=")[0] in METHODS
    if _is_defined(value, name, owner) and not is_gate:
        return None
    if word is not None:
        return f"use {word}"
    return near and f"did you mean {near!r}? (give your own another name)"


def _argument_for(name: str) -> str | None:
    """Return the argument of an agent that a name stands for: a part of one, or another library's word for it."""
    for part in (Settings, Limits):
        if name in field_names(part):
            return f"{part.__name__.lower()}={part.__name__}({name}=…)"
    right = WORDS.get(name, "")
    return right if right.partition("=")[0] in KNOWN else _ELSEWHERE.get(name)


def _is_defined(value: Any, name: str, owner: type) -> bool:
    """Return whether an attribute is a method or property defined in the body of a class."""
    if isinstance(value, FunctionType):
        return is_method(value, name, owner)
    is_written_there = getattr(value, "__qualname__", "") == f"{owner.__qualname__}.{name}"
    return is_written_there or isinstance(value, staticmethod | classmethod | property | cached_property)


def is_method(function: FunctionType, name: str, owner: type) -> bool:
    """Return whether a function was defined in the body of a class, and not elsewhere: then it takes a ``self``."""
    is_own = function.__qualname__ == f"{owner.__qualname__}.{name}" and function.__module__ == owner.__module__
    return is_own or next(iter(inspect.signature(function).parameters), "") == "self"


def arguments_of(agent: Any, base: type) -> dict[str, Any]:
    """Return the arguments that the class of an agent sets, by name, without the defaults of its base.

    Each is taken as it is: ``approve = ask_me`` is the function, though Python would make a method of it.  A function
    that is defined in the body of the class is a method.
    """
    found = {name: _taken(agent, base, name) for name in KNOWN}
    return {name: value for name, value in found.items() if value is not _MISSING}


def _taken(agent: Any, base: type, name: str) -> Any:
    value = _static(agent, base, name)
    if hasattr(type(value), "__get__") and name in KEYS_ALONE:
        return _MISSING  # a property of the class's own
    if not isinstance(value, FunctionType):
        return value.__get__(agent, type(agent)) if hasattr(type(value), "__get__") else value
    if not any(is_method(value, name, owner) for owner in type(agent).__mro__ if name in vars(owner)):
        return value
    method = value.__get__(agent)
    if name == "system" and not inspect.signature(method).parameters:
        return lambda: method()
    return method


def _static(agent: Any, base: type, name: str) -> Any:
    """Return an attribute as it stands in the classes of an agent, without the base."""
    owners = [owner for owner in type(agent).__mro__ if owner not in base.__mro__]
    return next((vars(owner)[name] for owner in owners if name in vars(owner)), _MISSING)
