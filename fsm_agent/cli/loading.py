"""Loads the agents, flows, functions and deps that commands name as ``module`` or ``module:name``.

`fsm_agent.named_objects` imports the modules.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fsm_agent.agents.runnable import Runnable
from fsm_agent.cli.errors import option
from fsm_agent.errors import UsageError
from fsm_agent.functions.context import check_deps
from fsm_agent.named_objects import imported, loaded, within
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.validation import safe_repr


def load_object(named: str, kind: str = "object") -> Any:
    """Return the object ``module:name``.  Modules in the working directory are also found."""
    with modules_here():
        return loaded(named, kind)


def load_callable(named: str) -> Any:
    """Return the callable ``module:name``."""
    target = load_object(named, "function")
    if not callable(target):
        raise UsageError(f"{named!r}: expected something that can be called, got {safe_repr(target)}")
    return target


def load_deps(named: str | None, drives: Iterable[Runnable] = ()) -> Any:
    """Return the deps ``module:name``, which are a value or a function that takes ``(agent, extra, user)``, or None."""

    def checked() -> Any:
        deps = None if named is None else load_object(named, "deps")
        check_deps(deps)
        for runnable in drives:
            runnable._check_deps(deps)
        return deps

    return option("--deps", checked)


def load_module(named: str) -> tuple[Any, dict[str, Any]]:
    """Return the module in ``module`` or ``module:name``, and its objects by name, or only the named object."""
    name, colon, path = named.partition(":")
    with modules_here():
        module = imported(name, named)
    return module, {path: within(module, path, named)} if colon else vars(module)


def load_runnables(named: str) -> tuple[list[Runnable], list[Prompt]]:
    """Return the agents, flows and orchestrators of ``module`` or ``module:name``, and the module's prompts.

    Sub-agents are included.
    """
    module, objects = load_module(named)
    found: list[Any] = [*objects.values()]
    if ":" in named:
        [target] = found
        listed = target.values() if isinstance(target, Mapping) else target
        found = [*listed] if isinstance(listed, Iterable) else [listed]
        if wrong := [item for item in found if not isinstance(item, Runnable)]:
            raise UsageError(f"{named!r}: expected an Agent, or a list or dict of Agents, got {safe_repr(wrong[0])}")
    else:
        found = [item for item in found if isinstance(item, Runnable)]
    inner = [getattr(item, "flow", None) for item in found]  # an orchestrator's flow shares its runs
    found = [item for item in found if not any(item is flow for flow in inner)]
    agents = list({id(agent): agent for item in found for agent in item._sub_runnables}.values())
    if not agents:
        raise UsageError(f"expected a module with an Agent, or 'module:name', got {named!r}")
    by_name: dict[str, Runnable] = {}
    for agent in agents:
        if (other := by_name.setdefault(agent.name, agent)) is not agent:
            kinds = f"a runnable of type {type(other).__name__} and one of type {type(agent).__name__}"
            right = "pass name=… to one, by which it finds its runs"
            raise UsageError(f"{named!r}: expected different names, got {kinds}, both named {agent.name!r}; {right}")
    return agents, [value for value in vars(module).values() if isinstance(value, Prompt)]


@contextmanager
def modules_here(*folders: Path) -> Iterator[None]:
    """Inside the ``with`` block, find modules in the working directory and in ``folders`` before installed ones."""
    here = [str(folder) for folder in (Path.cwd(), *folders)]
    sys.path[:0] = here
    try:
        yield
    finally:
        for folder in here:
            sys.path.remove(folder)
            sys.path.append(folder)  # last from now on, so that nothing here hides installed modules
