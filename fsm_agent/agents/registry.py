"""The registry of agent classes, from which agents are built by their kind."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from fsm_agent._internal.registry import Registry, path_of
from fsm_agent.agents.config import AgentConfig, Config, keys_of, loaded
from fsm_agent.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fsm_agent.agents.agent_base import AgentBase
    from fsm_agent.runtime.environment import Client

Built = TypeVar("Built", bound="AgentBase[Any]")
Options = ParamSpec("Options")

# By ``agent_type``.  A class replaces an earlier version of itself.
AGENTS: Registry[type[AgentBase[Any]]] = Registry(
    "agent_type", ConfigError, replaces=lambda new, known: path_of(new) == path_of(known)
)


def kind_name(agent_type: str | Enum | None) -> str:
    """Return an ``agent_type`` as text; empty: there is none."""
    return str(agent_type.value) if isinstance(agent_type, Enum) else agent_type or ""


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
) -> AgentBase[Any]: ...
def build_agent(  # type: ignore[misc]  # a class whose options had these names would be misunderstood
    config: Any, agent_type: Any = None, *args: Any, **options: Any
) -> AgentBase[Any]:
    """Return an agent of a registered kind: ``build_agent(config)``; or of a class: ``build_agent(Weather, config)``.

    Given a class, type checkers know its methods and the options of its constructor.

    Args:
        config: See `AgentConfig.of`.  After a class, it need not name the kind.
        agent_type: The kind, instead of ``config["agent_type"]``.
        args: For the constructor of the class, after the configuration.
        options: Keys of the configuration, in place of those that it has; and further arguments of the constructor,
            ``client`` for all classes.

    Raises:
        ConfigError: The kind is unknown, none is given, or it is not that of the class; or the configuration is not
            valid.

    Examples:
        >>> class Poet(AgentBase):
        ...     expertise = "You write poems."
        ...     prompt = Prompt("A poem about {{ task }}")
        >>> build_agent(Poet, {"limits": {"rounds": 8}}, client=Script("Roses.")).call("roses").output
        'Roses.'
    """
    if isinstance(config, type):
        cls: Any = config
        if not hasattr(cls, "agent_type"):
            raise ConfigError(f"the class of agents: expected a subclass of AgentBase, got {path_of(cls)}")
        checked = _overridden(agent_type, cls, options)
        kind = kind_name(cls.agent_type)
        if checked.agent_type and ":" not in checked.agent_type and checked.agent_type != kind:
            problem = f": expected {kind!r}, which {path_of(cls)} is, got {checked.agent_type!r}"
            raise checked.error(("agent_type",), problem)
    else:
        checked = AgentConfig.of(config)
        cls = _class_of(checked, kind_name(agent_type or options.get("agent_type")))
        checked = _overridden(checked, cls, options)
    built: AgentBase[Any] = cls(checked, *args, **options)
    return built


def _overridden(config: Config, cls: Any, options: dict[str, Any]) -> AgentConfig:
    """Move options that are keys of a configuration, and not parameters, from the options into it."""
    own = inspect.signature(cls.__init__).parameters
    keys = [name for name in options if name in _KEYS and name not in own]
    return AgentConfig.of(config, **{name: options.pop(name) for name in keys})


def _class_of(config: AgentConfig, agent_type: str) -> Any:
    """Return the class of a kind; the kind is given, or the configuration's."""
    kind = agent_type or config.value("agent_type", "")
    if not kind:
        listed = ", ".join(sorted(AGENTS)) or "none"
        raise config.error(("agent_type",), f": expected one of {listed}, or 'module:Class', got none; add it")
    try:
        if ":" not in kind and kind not in AGENTS:
            raise ConfigError(
                f"{kind!r:.80} is not registered{AGENTS.hint(kind)}; pass 'module:Class' to import a class of agents"
            )
        found = loaded(kind) if ":" in kind else AGENTS[kind]
        if not hasattr(found, "agent_type"):
            raise ConfigError(f"{kind!r:.80}: expected a subclass of AgentBase, got another object")
    except UsageError as error:
        raise error if agent_type else config.error(("agent_type",), f": {error}") from error
    return found


_KEYS = frozenset(keys_of(AgentConfig)) - {"client"}
