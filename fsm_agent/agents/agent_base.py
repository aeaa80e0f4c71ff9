"""The classes from which users derive their agents."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Self

from fsm_agent.agents.agent import Agent
from fsm_agent.agents.config import AgentConfig, Config, SubAgentConfig, made
from fsm_agent.agents.registry import path_of, register_agent
from fsm_agent.errors import ConfigError
from fsm_agent.lifecycle.effects import Settings
from fsm_agent.lifecycle.limits import Limits

if TYPE_CHECKING:
    from fsm_agent.clients.client import Client


def _check_call(cls: type[AgentBase]) -> None:
    """Refuse a ``call`` that nobody would await, or that cannot be awaited."""
    call = cls.__dict__.get("call")
    is_async = any(map(inspect.iscoroutinefunction, (call, inspect.unwrap(call)))) if callable(call) else cls.is_async
    if is_async and not cls.is_async:
        raise ConfigError(
            f"call of {path_of(cls)} is a coroutine function: AsyncAgentBase would be right, or a plain def"
        )
    if cls.is_async and not is_async:
        raise ConfigError(f"call of {path_of(cls)} is a plain function: AgentBase would be right, or async def")


class AgentBase(ABC):
    """The base class of users' agents, of one or more sub-agents each, built by `build_agent`.

    A subclass that sets ``agent_type`` registers itself under that name; ``register=False`` in the class
    statement keeps it out.  ``agent_group`` names its sub-agents; each is an `Agent` in ``self.agents``.

    Args:
        config: Models, system prompts and limits; see `AgentConfig`.
        client: Asks the model for all sub-agents, whatever models the configuration names; or one for each, by
            the sub-agent's name.
    """

    agent_type: ClassVar[str | Enum] = ""
    agent_group: ClassVar[Sequence[str]] = ()
    is_async: ClassVar[bool] = False

    def __init_subclass__(cls, *, register: bool = True, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _check_call(cls)
        kind = cls.__dict__.get("agent_type")
        if not register or not kind:
            return
        kind = str(kind.value) if isinstance(kind, Enum) else kind
        if isinstance(cls.agent_group, str):
            raise ConfigError(f"agent_group of {cls.__name__} is {cls.agent_group!r}: a list of names would be right")
        register_agent(kind, cls)
        cls.agent_type = kind

    def __init__(self, config: Config, *, client: Client | Mapping[str, Client] | None = None) -> None:
        self.config = AgentConfig.of(config)
        self.name = self.config.name or str(self.agent_type) or type(self).__name__
        group = tuple(self.agent_group) or (self.name,)
        if unknown := self.config.agent_configs.keys() - set(group):
            raise ConfigError(
                f"agent_configs of {self.name!r} names {', '.join(map(repr, sorted(unknown)))}; "
                f"its sub-agents are {', '.join(map(repr, group))}"
            )
        clients = client if isinstance(client, Mapping) else dict.fromkeys(group, client)
        if unknown := clients.keys() - set(group):
            named = ", ".join(map(repr, sorted(unknown)))
            raise ConfigError(f"client names {named}; sub-agents of {self.name!r}: {', '.join(map(repr, group))}")
        self.agents: dict[str, Agent[Any, str]] = {name: self._agent(name, clients.get(name)) for name in group}

    def _agent(self, name: str, client: Client | None) -> Agent[Any, str]:
        config = self.config.agent_configs.get(name, SubAgentConfig())
        model = client or config.model or self.config.model
        if model is None:
            raise ConfigError(f"the sub-agent {name!r} of {self.name!r} has no model: set model='provider:model'")
        return Agent(
            model,
            name=f"{self.name}/{name}" if self.agent_group else name,
            system=config.system,
            limits=made(Limits, "limits", name, {**self.config.limits, **config.limits}),
            settings=made(Settings, "settings", name, {**self.config.settings, **config.settings}),
        )

    @abstractmethod
    def call(self, task: Any, **kwargs: Any) -> Any:
        """Do the task with the sub-agents, and return what comes of it."""

    def __call__(self, task: Any, **kwargs: Any) -> Any:
        return self.call(task, **kwargs)

    def close(self) -> None:
        """Close the connections of all sub-agents."""
        for agent in self.agents.values():
            agent.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class AsyncAgentBase(AgentBase):
    """`AgentBase` whose ``call`` is a coroutine function, for asyncio."""

    is_async: ClassVar[bool] = True

    @abstractmethod
    async def call(self, task: Any, **kwargs: Any) -> Any:
        """Do the task with the sub-agents, and return what comes of it."""

    async def aclose(self) -> None:
        """Close the connections of all sub-agents."""
        for agent in self.agents.values():
            await agent.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()
