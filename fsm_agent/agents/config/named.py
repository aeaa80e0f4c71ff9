"""Objects that a configuration names: ``module:name``, or the name of a registered function."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fsm_agent._internal.hints import nearest
from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.functions.function import Function
from fsm_agent.functions.registered import FUNCTIONS


def loaded(named: str, kind: str = "object") -> Any:
    """Return the object that ``module:name`` names; its module is imported.

    Args:
        named: The name.
        kind: The word for what it names, in messages.

    Raises:
        UsageError: The name has another form.
        ConfigError: There is no such module or name, or the module cannot be imported.
    """
    module, colon, path = named.partition(":")
    if not (colon and module and path):
        raise UsageError(f"{named!r} names no {kind}: 'module:name' would")
    return within(imported(module, named), path, named)


def named_function(named: str) -> Function:
    """Return a registered function, or the one that ``module:name`` names.

    Raises:
        UsageError: There is none.
    """
    return Function.of(loaded(named)) if ":" in named else FUNCTIONS.find(named)


def imported(module: str, named: str) -> Any:
    """Return the module for an object that is called ``named``.

    Raises:
        ConfigError: There is none, or it cannot be imported.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise ConfigError(f"there is no module {error.name!r} for {named!r}, here or installed") from None
        raise ConfigError(f"the module of {named!r} cannot be imported: {error}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"the module of {named!r} cannot be imported: {type(error).__name__}: {error}") from error


def within(target: Any, path: str, named: str) -> Any:
    """Return the object that another has under a path of names.

    Raises:
        ConfigError: There is none.
    """
    for name in path.split("."):
        if not hasattr(target, name):
            meant = nearest(name, dir(target))
            raise ConfigError(f"there is no {name!r} in {named!r}" + (f": did you mean {meant!r}?" if meant else ""))
        target = getattr(target, name)
    return target
