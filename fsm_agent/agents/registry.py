"""The registry of agent classes, from which agents are built by their kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from fsm_agent.agents.config import AgentConfig, Config, listed, meant
from fsm_agent.errors import ConfigError

if TYPE_CHECKING:
    from fsm_agent.agents.agent_base import AgentBase
    from fsm_agent.clients.client import Client

Built = TypeVar("Built", bound="AgentBase")
Options = ParamSpec("Options")

_agents: dict[str, type[AgentBase]] = {}


def register_agent(kind: str, cls: type[AgentBase]) -> None:
    """Add a class to the registry, or put it in the place of an earlier version of itself.

    Raises:
        ConfigError: The kind is another class's.
    """
    known = _agents.get(kind)
    if known is not None and path_of(known) != path_of(cls):
        raise ConfigError(f"agent_type {kind!r} of {path_of(cls)} is taken by {path_of(known)}")
    _agents[kind] = cls


def registered_agents() -> dict[str, type[AgentBase]]:
    """The registered kinds, by ``agent_type``: a copy."""
    return dict(_agents)


@contextmanager
def scoped_registry() -> Iterator[None]:
    """Forget at the end whatever is registered inside; for tests."""
    before = dict(_agents)
    try:
        yield
    finally:
        _agents.clear()
        _agents.update(before)


@overload
def build_agent(
    cls: Callable[Concatenate[AgentConfig, Options], Built],
    config: Config,
    /,
    *args: Options.args,
    **options: Options.kwargs,
) -> Built: ...
@overload
def build_agent(
    config: Config,
    agent_type: str | Enum | None = None,
    *,
    client: Client | Mapping[str, Client] | None = None,
    **options: Any,
) -> AgentBase: ...
def build_agent(  # type: ignore[misc]  # a class whose options had these names would be misunderstood
    config: Any, agent_type: Any = None, *args: Any, **options: Any
) -> AgentBase:
    """Return an agent of a registered kind: ``build_agent(config)``; or of a class: ``build_agent(Weather, config)``.

    Of a class, type checkers know what its agents can do, and which options its constructor has.

    Args:
        config: See `AgentConfig.of`.  After a class, it need not name the kind.
        agent_type: The kind, instead of ``config["agent_type"]``.
        args: For the constructor of the class, after the configuration.
        options: For the same; ``client`` for all classes.

    Raises:
        ConfigError: The kind is unknown, none is given, or it is not that of the class; or the configuration is not
            valid.
    """
    if isinstance(config, type):
        checked = AgentConfig.of(agent_type)
        return _checked_class(config, checked)(checked, *args, **options)
    checked = AgentConfig.of(config)
    kind = agent_type.value if isinstance(agent_type, Enum) else agent_type or checked.agent_type
    if not kind:
        raise ConfigError(f"no agent_type is given; registered: {listed(_agents)}")
    if kind not in _agents:
        hint = meant(kind, _agents)
        raise ConfigError(f"no agent_type {kind!r} is registered{hint}; registered: {listed(_agents)}")
    return _agents[kind](checked, *args, **options)


def _checked_class(cls: type[Any], config: AgentConfig) -> type[AgentBase]:
    """Return ``cls`` if it is a class of agents, and the one that the configuration is for."""
    kind = getattr(cls, "agent_type", None)
    if kind is None:
        raise ConfigError(f"{path_of(cls)} is no class of agents: a subclass of AgentBase would be right")
    kind = kind.value if isinstance(kind, Enum) else kind
    if config.agent_type and config.agent_type != kind:
        raise ConfigError(f"the configuration is for agent_type {config.agent_type!r}, and {path_of(cls)} is {kind!r}")
    return cls


def path_of(cls: type) -> str:
    """Return the place of a class, for messages."""
    return f"{cls.__module__}.{cls.__qualname__}"
