"""The class attributes of users' agents: which ones are arguments, and which ones are refused.

A silently ignored attribute could be an approver that is never asked.  Therefore, an attribute that looks like an agent
argument must be one; otherwise, the class statement fails.  All other attributes belong to the class.  `AgentBase`
itself fills in defaults, such as a description made from the expertise.
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
from fsm_agent.call.limits import Limits
from fsm_agent.errors import ConfigError
from fsm_agent.foreign_names import WORDS
from fsm_agent.messages.reply import Settings

KNOWN = (*ARGUMENTS, *KEYS_ALONE)
_CHECKED_AS_KEYS = (*KEYS_ALONE, "limits", "settings")
METHODS = ("approve", "check", "stop_when", "system")  # arguments that may be methods, with a self
_CLOSENESS = 0.85  # above it, a name is a misspelling: "aprove" for "approve", but not "score" for "store"
OVERRIDABLE = ("answer", "call", "close", "aclose", "as_function")  # agent methods that a class may override
_MISSING: Any = object()
_ELSEWHERE = {  # attributes that would be ignored in a class, and their right places
    "agents": "agent_group",
    "agent_configs": "agent_group",
    "global": "the attributes of the class themselves",
    "deps": "deps=… of call",
}


def check_attributes(cls: type, base: type) -> None:
    """Reject attributes in a class or its mixins that would have no effect, such as misspelled arguments."""
    known = [*KNOWN, *[name for name in vars(base) if not name.startswith("_") and not callable(getattr(base, name))]]
    mixins = [each for each in cls.__mro__ if not issubclass(each, base) and not issubclass(base, each)]
    for owner in (cls, *mixins):
        for name, value in vars(owner).items():
            if name.startswith("_") or name in known or name in OVERRIDABLE:
                continue
            right = _meant(name, value, owner, known)
            if right is None and hasattr(base, name):
                right = "every agent has this attribute, so rename yours; define answer(self, task) to answer"
            if right is not None:
                raise ConfigError(f"{path_of(cls)}: unknown attribute {name!r}; {right}")
        settings = {name: vars(owner).get(name) for name in _CHECKED_AS_KEYS}
        try:
            AgentConfig.of({name: value for name, value in settings.items() if not isinstance(value, property | None)})
        except ConfigError as error:
            raise ConfigError(f"{path_of(cls)}: {error}") from error


def _meant(name: str, value: Any, owner: type, known: Iterable[str]) -> str | None:
    """Return a hint that names the argument meant by an attribute, or None if the class may have the attribute."""
    word = _argument_for(name)
    near = next(iter(difflib.get_close_matches(name, known, n=1, cutoff=_CLOSENESS)), None)
    # Two swapped letters make short words dissimilar: "chekc" has a similarity of 0.8 to "check".
    near = near or next((each for each in known if name != each and sorted(name) == sorted(each)), None)
    is_gate = near in METHODS or (word or "").partition("=")[0] in METHODS
    if _is_defined(value, name, owner) and not is_gate:
        return None
    if word is not None:
        return f"use {word}"
    return near and f"did you mean {near!r}? (or rename your attribute)"


def _argument_for(name: str) -> str | None:
    """Return the argument to use for a field of `Settings` or `Limits`, or for another library's name."""
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
    """Return whether a function was defined in this class's body or takes a ``self``."""
    is_own = function.__qualname__ == f"{owner.__qualname__}.{name}" and function.__module__ == owner.__module__
    return is_own or next(iter(inspect.signature(function).parameters), "") == "self"


def arguments_of(agent: Any, base: type) -> dict[str, Any]:
    """Return the arguments that an agent's class sets, by name, without the defaults of its base.

    A function that is defined in the class body is a method.  One that is only assigned there, as in
    ``approve = ask_me``, is not.
    """
    found = {name: _taken(agent, base, name) for name in KNOWN}
    return {name: value for name, value in found.items() if value is not _MISSING}


def _taken(agent: Any, base: type, name: str) -> Any:
    value = _static(agent, base, name)
    if hasattr(type(value), "__get__") and name in KEYS_ALONE:
        return _MISSING  # the class defines a property
    if not isinstance(value, FunctionType):
        return value.__get__(agent, type(agent)) if hasattr(type(value), "__get__") else value
    if not any(is_method(value, name, owner) for owner in type(agent).__mro__ if name in vars(owner)):
        return value
    method = value.__get__(agent)
    if name == "system" and not inspect.signature(method).parameters:
        return lambda: method()
    return method


def _static(agent: Any, base: type, name: str) -> Any:
    owners = [owner for owner in type(agent).__mro__ if owner not in base.__mro__]
    return next((vars(owner)[name] for owner in owners if name in vars(owner)), _MISSING)
