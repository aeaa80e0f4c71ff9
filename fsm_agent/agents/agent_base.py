"""Classes of agents, and their registry: an agent is built from a configuration by its type."""

from __future__ import annotations

import inspect
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from fsm_agent._internal.values import field_names, from_data
from fsm_agent.agents.agent import Agent
from fsm_agent.errors import ConfigError
from fsm_agent.functions.function import described_errors
from fsm_agent.lifecycle.effects import Settings
from fsm_agent.lifecycle.limits import Limits
from fsm_agent.mistakes import wrong
from fsm_agent.providers.hosted_tools import RUN_BY

if TYPE_CHECKING:
    from fsm_agent.clients.client import Client

Config: TypeAlias = "AgentConfig | Mapping[str, Any] | str | Path"

MAX_FILE_BYTES = 1_000_000
_agents: dict[str, type[AgentBase]] = {}


class SubAgentConfig(BaseModel):
    """One identity of an agent: its model, its system prompt, its limits.  What is unset is the agent's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = Field(default=None, description="'provider:model'")
    system: str = Field(default="", description="the system prompt")
    limits: dict[str, Any] = Field(default_factory=dict, description="see `Limits`")
    settings: dict[str, Any] = Field(default_factory=dict, description="see `Settings`")


class AgentConfig(BaseModel):
    """The configuration of an agent, as data for `build_agent`.  Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    agent_type: str | None = Field(default=None, description="the registered kind")
    name: str | None = Field(default=None, description="for traces and snapshots; the kind's name by default")
    model: str | None = Field(default=None, description="'provider:model' of every sub-agent that names none")
    limits: dict[str, Any] = Field(default_factory=dict, description="of every sub-agent; see `Limits`")
    settings: dict[str, Any] = Field(default_factory=dict, description="of every sub-agent; see `Settings`")
    agent_configs: dict[str, SubAgentConfig] = Field(default_factory=dict, description="by sub-agent")

    @classmethod
    def of(cls, config: Config) -> AgentConfig:
        """Return the configuration, checked.

        Args:
            config: A configuration, a mapping, or the path of a file that ends in ``.toml`` or ``.json``.

        Raises:
            ConfigError: It is not valid, or there is no such file; the error names the file, each field that is
                wrong, and what an unknown key may have meant.
        """
        if isinstance(config, AgentConfig):
            return config
        source = f" in {str(config)!r}" if isinstance(config, str | Path) else ""
        values = _read(Path(config)) if isinstance(config, str | Path) else config
        if not isinstance(values, Mapping):
            raise wrong(f"the agent's configuration{source}", values, "a mapping, or the path of a file,", ConfigError)
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise ConfigError(f"the agent's configuration{source} is not valid:\n{_explained(error)}") from error


def _check_call(cls: type[AgentBase]) -> None:
    """Refuse a ``call`` that nobody would await, or that cannot be awaited."""
    call = cls.__dict__.get("call")
    is_async = any(map(inspect.iscoroutinefunction, (call, inspect.unwrap(call)))) if callable(call) else cls.is_async
    if is_async and not cls.is_async:
        raise ConfigError(
            f"call of {_path(cls)} is a coroutine function: AsyncAgentBase would be right, or a plain def"
        )
    if cls.is_async and not is_async:
        raise ConfigError(f"call of {_path(cls)} is a plain function: AgentBase would be right, or async def")


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
        known = _agents.get(kind)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ConfigError(f"agent_type {kind!r} of {_path(cls)} is taken by {_path(known)}")
        cls.agent_type = kind
        _agents[kind] = cls

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
        self.agents: dict[str, Agent] = {name: self._agent(name, clients.get(name)) for name in group}

    def _agent(self, name: str, client: Client | None) -> Agent:
        config = self.config.agent_configs.get(name, SubAgentConfig())
        model = client or config.model or self.config.model
        if model is None:
            raise ConfigError(f"the sub-agent {name!r} of {self.name!r} has no model: set model='provider:model'")
        return Agent(
            model,
            name=f"{self.name}/{name}" if self.agent_group else name,
            system=config.system,
            limits=_made(Limits, "limits", name, {**self.config.limits, **config.limits}),
            settings=_made(Settings, "settings", name, {**self.config.settings, **config.settings}),
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


def build_agent(config: Config, agent_type: str | Enum | None = None, **options: Any) -> Any:
    """Return an agent of a registered kind.

    Args:
        config: See `AgentConfig.of`.
        agent_type: The kind, instead of ``config["agent_type"]``.
        options: For the class's constructor; ``client`` for all classes.

    Returns:
        An instance of the registered class.

    Raises:
        ConfigError: The kind is unknown or none is given, or the configuration is not valid.
    """
    checked = AgentConfig.of(config)
    kind = agent_type.value if isinstance(agent_type, Enum) else agent_type or checked.agent_type
    if not kind:
        raise ConfigError(f"no agent_type is given; registered: {_listed(_agents)}")
    if kind not in _agents:
        hint = _meant(kind, _agents)
        raise ConfigError(f"no agent_type {kind!r} is registered{hint}; registered: {_listed(_agents)}")
    return _agents[kind](checked, **options)


def _read(file: Path) -> Any:
    """Return what a configuration file says."""
    if file.suffix not in (".toml", ".json"):
        raise ConfigError(
            f"the configuration file {str(file)!r} does not end in '.toml' or '.json'; what another reader makes of it"
            " is taken as well: build_agent(yaml.safe_load(text)), say"
        )
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ConfigError(f"the configuration file {str(file)!r} has more than {MAX_FILE_BYTES} bytes")
        text = content.decode("utf-8-sig")
        return tomllib.loads(text) if file.suffix == ".toml" else from_json(text)
    except OSError as error:
        raise ConfigError(f"the configuration file {str(file)!r} cannot be read: {error.strerror}") from error
    except ConfigError:
        raise
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the configuration file {str(file)!r} is not {file.suffix[1:].upper()}: {error}") from error


def _made(type_: Any, key: str, name: str, values: Mapping[str, Any]) -> Any:
    known = field_names(type_)
    if unknown := sorted(values.keys() - set(known)):
        hints = "; ".join(f"{key}.{word} is unknown{_meant(word, known)}" for word in unknown)
        raise ConfigError(f"{hints} (sub-agent {name!r}); known: {_listed(known)}")
    try:
        return from_data(values, type_)
    except ValueError as error:  # no cause, and nothing that was given: a hosted tool may hold a key
        kinds = f"; kinds of hosted tools: {_listed(RUN_BY)}" if ".kind:" in str(error) else ""
        raise ConfigError(f"{key}.{error}{kinds}") from None


def _explained(error: ValidationError) -> str:
    hints = []
    for item in error.errors(include_url=False):
        if item["type"] == "extra_forbidden":
            fields = AgentConfig.model_fields if len(item["loc"]) == 1 else SubAgentConfig.model_fields
            word = str(item["loc"][-1])
            hints.append(f"{word!r} is unknown{_meant(word, fields)}; known: {_listed(fields)}")
    return "\n".join([described_errors(error), *hints])


def _meant(word: str, known: Iterable[str]) -> str:
    close = get_close_matches(word, [*known], n=1)
    return f": did you mean {close[0]!r}?" if close else ""


def _listed(known: Iterable[str]) -> str:
    return ", ".join(sorted(known)) or "none"


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
