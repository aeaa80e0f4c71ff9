"""The classes from which users derive their agents."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from copy import copy
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, Self

from typing_extensions import TypeVar

from fsm_agent._internal.hints import nearest
from fsm_agent._internal.registry import path_of
from fsm_agent._internal.spelled_out import spelled_out
from fsm_agent.agents.agent import ARGUMENTS, Agent
from fsm_agent.agents.arguments import TASK
from fsm_agent.agents.classification.classifying import Classifying
from fsm_agent.agents.config.agent_config import AgentConfig, Config
from fsm_agent.agents.config.attributes import arguments_of, check_attributes
from fsm_agent.agents.config.building import SubAgent, placed, prompt_of
from fsm_agent.agents.delegation.program import agent_of
from fsm_agent.agents.many import CONCURRENCY, Progress, TaskResults, amap_tasks, map_tasks
from fsm_agent.agents.options import ConfigOverrides
from fsm_agent.agents.registry import AGENTS
from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.foreign_names import hinting
from fsm_agent.functions.function import Function
from fsm_agent.functions.policy import PYTHONS_OWN, Policy
from fsm_agent.mistakes import Rights, check
from fsm_agent.prompts.prompt import Prompt

if TYPE_CHECKING:
    from os import PathLike
    from typing import Unpack

    from fsm_agent.agents.options import AgentOptions
    from fsm_agent.clients.client import Client
    from fsm_agent.functions.options import AgentPolicy
    from fsm_agent.lifecycle.context.masking import Masking
    from fsm_agent.lifecycle.context.window import Processor
    from fsm_agent.lifecycle.effects import Settings
    from fsm_agent.lifecycle.limits import Limits
    from fsm_agent.lifecycle.prices import Prices
    from fsm_agent.runtime.results.pipeline import ResultPipeline
    from fsm_agent.store.runs import Runs
    from fsm_agent.store.store import Store

Out = TypeVar("Out", default=Any)

MAX_DESCRIPTION_CHARS = 100
_NOTHING: Mapping[str, Any] = MappingProxyType({})
# A class that has one is an agent.
_SAYING = ("agent_type", "expertise", "system", "system_path", "prompt", "functions", "agent_group")
_RIGHTS: Rights = (
    ("expertise", lambda v: isinstance(v, str), "a text"),
    ("capabilities", lambda v: not isinstance(v, str), "a list of texts"),
    (
        "agent_group",
        lambda v: isinstance(v, Collection) and not isinstance(v, str) and len({*v}) == len(v),
        "a list of names, each once,",
    ),
)


def kind_of(cls: type[AgentBase[Any]]) -> str:
    """Return the ``agent_type`` of a class as text."""
    kind = cls.agent_type
    return str(kind.value) if isinstance(kind, Enum) else kind


def _check_call(cls: type[AgentBase[Any]]) -> None:
    """Refuse a ``call`` that nobody would await, or that cannot be awaited."""
    call = cls.__dict__.get("call")
    is_async = any(map(inspect.iscoroutinefunction, (call, inspect.unwrap(call)))) if callable(call) else cls.is_async
    if is_async and not cls.is_async:
        raise ConfigError(
            f"call of {path_of(cls)} is a coroutine function: AsyncAgentBase would be right, or a plain def"
        )
    if cls.is_async and not is_async:
        raise ConfigError(f"call of {path_of(cls)} is a plain function: AgentBase would be right, or async def")


def _has_call(cls: type[AgentBase[Any]]) -> bool:
    return cls.call not in (AgentBase.call, AsyncAgentBase.call)


@hinting
class AgentBase(Classifying, Generic[Out]):
    """The base class of users' agents, of one or more sub-agents each, built by `build_agent`.

    A subclass that sets ``agent_type`` registers itself under that name; ``register=False`` in the class
    statement keeps it out.  One sub-agent needs no more than what the class says of it, and a configuration may say
    that instead; an agent of several has a ``call`` of its own, which asks them in ``self.agents``.

    Args:
        config: Models, system prompts and limits; see `AgentConfig`.
        client: Asks the model for all sub-agents, whatever models the configuration names; or one for each, by
            the sub-agent's name.
        overrides: Keys of the configuration in place of those in ``config``.

    Attributes:
        agent_type: Its kind, in the registry and in configurations.
        agent_group: The names of its sub-agents; or a mapping of these to arguments of an `Agent`.
        expertise: What it can do; the system prompt of an agent without a group.
        description: The same in short, for those who choose among agents; by default the beginning of the expertise.
        capabilities: What it can do, as a list.
        prompt: The prompt of a task, with ``{{ task }}`` in it, or its path.
        functions: What the model may ask for, without a group.
        output: The type of what `call` returns.
    """

    agent_type: ClassVar[str | Enum] = ""
    agent_group: ClassVar[Sequence[str] | Mapping[str, AgentOptions]] = ()
    expertise: ClassVar[str] = ""
    description: ClassVar[str] = ""
    capabilities: ClassVar[Sequence[str]] = ()
    prompt: ClassVar[Prompt[Any] | str | None] = None
    functions: ClassVar[Sequence[Any]] = ()
    output: ClassVar[Any] = str
    is_async: ClassVar[bool] = False

    if TYPE_CHECKING:  # what a class may say besides, and has only if it says so
        name: str
        model: str | Client
        system: Any  # as approve and stop_when: a function that is assigned takes no self, one that is defined does
        system_path: str
        profile: str
        limits: Limits | Mapping[str, Any]
        settings: Settings | Mapping[str, Any]
        stop_when: Any
        approve: Any
        masking: Masking | Mapping[str, Any] | None
        processors: Sequence[Processor]
        results: ResultPipeline | None
        prices: Prices | None
        hooks: Sequence[Any]
        store: Runs | Store | str | PathLike[str] | None
        world: Mapping[str, Any]

    def __init_subclass__(cls, *, register: bool = True, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _check_call(cls)
        check_attributes(cls, AgentBase)
        for name, is_right, right in _RIGHTS:
            value = getattr(cls, name)
            check(f"{name} of {cls.__name__}", value, is_right(value), right, ConfigError)
        if "expertise" in cls.__dict__ and "description" not in cls.__dict__:
            cls.description = cls.expertise[:MAX_DESCRIPTION_CHARS]
        kind = cls.__dict__.get("agent_type")
        if not register or not kind:
            return
        cls.agent_type = kind_of(cls)
        AGENTS.register(kind_of(cls), cls)

    @spelled_out(ConfigOverrides)
    def __init__(
        self,
        config: Config = _NOTHING,
        *,
        client: Client | Mapping[str, Client] | None = None,
        **overrides: Unpack[ConfigOverrides],
    ) -> None:
        for made in ("agents", "_as_agent"):
            vars(self).pop(made, None)  # of the agent that this is a changed copy of
        self.config = AgentConfig.of(config, **overrides)
        self._client = client
        defaults = arguments_of(self)
        self.name = str(self.config.value("name") or defaults.get("name") or kind_of(type(self)) or type(self).__name__)
        group = tuple(self.agent_group) or (self.name,)
        self._check_group(group)
        clients = client if isinstance(client, Mapping) else dict.fromkeys(group, client)
        if unknown := clients.keys() - set(group):
            named = ", ".join(map(repr, sorted(unknown)))
            raise ConfigError(f"client names {named}; sub-agents of {self.name!r}: {', '.join(map(repr, group))}")
        self._made: list[Client] = []
        defaults["prompt"] = self._task_prompt(defaults)
        self.agents: dict[str, Agent[Any, Any]] = {
            name: self._agent(name, clients.get(name), defaults) for name in group
        }

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ARGUMENTS and "agents" in vars(self):
            problem = f"{name} of {self.name!r} cannot be set: its agents are made"
            raise AttributeError(f"{problem}; changed({name}=…) returns one that differs", name=name, obj=self)
        super().__setattr__(name, value)

    def _check_group(self, group: Sequence[str]) -> None:
        """Refuse an agent that could not do anything, and a configuration of sub-agents that it does not have."""
        cls = type(self)
        has_call = _has_call(cls)
        if not has_call and len(group) != 1:
            raise TypeError(f"{path_of(cls)} is abstract: an agent of {len(group)} sub-agents needs a call of its own")
        if not (has_call or cls.output is not str or any(getattr(cls, name, None) for name in _SAYING)):
            raise TypeError(f"{path_of(cls)} is abstract: it has no call, and none of {', '.join(_SAYING)}")
        for name in self.config.agent_configs:
            if name not in group:
                meant = nearest(name, group)
                listed = f"its sub-agents are {', '.join(map(repr, group))}"
                problem = f": it names {name!r}; {listed}{f': did you mean {meant!r}?' if meant else ''}"
                raise self.config.error(("agent_configs", name), problem)

    def _agent(self, name: str, client: Client | None, defaults: Mapping[str, Any]) -> Agent[Any, Any]:
        """Return a sub-agent.

        Args:
            name: Its name in the group.
            client: Asks the model, whatever the configuration says.
            defaults: What the class says.  Of several sub-agents that is for each, but for its prompt and output.
        """
        options = dict(defaults)
        if len(self.agent_group) > 1:
            del options["output"], options["prompt"]
        elif not options.keys() & {"system", "system_path"}:
            options["system"] = self.expertise
        if isinstance(self.agent_group, Mapping):
            options |= self.agent_group[name]
        options["name"] = f"{self.name}/{name}" if self.agent_group else name
        agent = SubAgent(self.config, name, options).agent(self.name, client)
        if not isinstance(agent.model, str) and agent.model not in (client, options.get("model")):
            self._made.append(agent.model)
        return agent

    def _task_prompt(self, defaults: Mapping[str, Any]) -> Prompt[Any]:
        """Return the prompt of tasks that are given in words."""
        prompt = self.config.prompt or defaults["prompt"] or TASK
        if isinstance(prompt, str):
            with placed(self.config, ("prompt",)):
                prompt = prompt_of(self.config, prompt, defaults.get("prompts"))
        if not isinstance(prompt, Prompt):
            raise self.config.error(("prompt",), f": {prompt!r:.80} is no prompt: its path would be right")
        if "task" not in prompt.variables:
            whose = repr(prompt.path or prompt.template)
            raise self.config.error(("prompt",), f": the prompt {whose:.80} must say {{{{ task }}}}")
        return prompt

    def as_agent(self) -> Agent[Any, Any]:
        """Return this agent as an `Agent`, which does what its `call` does, wherever one may stand.

        Without a ``call`` of its own that is its sub-agent.  Otherwise the call stands in the place of a model, which
        is given the task and answers with what the call returns.
        """
        return self._as_agent

    @cached_property
    def _as_agent(self) -> Agent[Any, Any]:
        if _has_call(type(self)):
            return agent_of(self.name, type(self).call, self.call, self.output)
        (agent,) = self.agents.values()
        return agent if agent.name == self.name else agent.changed(name=self.name, model=agent.client)

    @spelled_out(Policy, without=PYTHONS_OWN)
    def as_function(
        self, name: str | None = None, description: str | None = None, **policy: Unpack[AgentPolicy]
    ) -> Function[..., Any, Any]:
        """This agent as a function of another: see `Agent.as_function`.

        Args:
            name: What the model calls it; the agent's name by default.
            description: What it is good at, for the model; by default the class's own.
            policy: As of `Agent.as_function`.

        Raises:
            UsageError: The policy makes no sense for an agent.
        """
        return self.as_agent().as_function(name, description or self.description, **policy)

    def call(self, task: Any, **kwargs: Any) -> Out:
        """Do the task, and return what comes of it: the answer of the sub-agent, if there is but one.

        Args:
            task: Text, or whatever `Agent.call` takes.
            kwargs: The options of `Agent.call`, and further variables of the prompt.
        """
        (agent,) = self.agents.values()
        output: Out = agent.call(task, **kwargs).output
        return output

    def __call__(self, task: Any, **kwargs: Any) -> Out:
        return self.call(task, **kwargs)

    def map(
        self,
        tasks: Iterable[Any],
        *,
        concurrency: int = CONCURRENCY,
        progress: Progress = False,
        fail_fast: bool = False,
        **kwargs: Any,
    ) -> TaskResults[Out]:
        """Do many tasks in threads, and return their ends in the order of the tasks: outputs and errors.

        Args:
            tasks: The tasks; they are taken as there is room for one.
            concurrency: How many are done at a time.
            progress: True shows a bar on stderr; a function is called with how many are done, and of how many.
            fail_fast: Raise the first error, and begin no further task.
            kwargs: For each `call`.
        """
        return map_tasks(lambda task: self.call(task, **kwargs), tasks, concurrency, progress, fail_fast)

    async def amap(
        self,
        tasks: Iterable[Any],
        *,
        concurrency: int = CONCURRENCY,
        progress: Progress = False,
        fail_fast: bool = False,
        **kwargs: Any,
    ) -> TaskResults[Out]:
        """`map` for asyncio."""
        import asyncio

        async def do(task: Any) -> Out:
            return await asyncio.to_thread(self.call, task, **kwargs)

        return await amap_tasks(do, tasks, concurrency, progress, fail_fast)

    @property
    def _classifier(self) -> Agent[Any, str]:
        if len(self.agents) > 1:
            named = ", ".join([f"agents[{name!r}]" for name in self.agents])
            raise UsageError(f"{self.name!r} has {len(self.agents)} sub-agents: one of {named} classifies")
        (agent,) = self.agents.values()
        return agent._classifier

    @spelled_out(ConfigOverrides)
    def changed(
        self, *, client: Client | Mapping[str, Client] | None = None, **overrides: Unpack[ConfigOverrides]
    ) -> Self:
        """Return an agent of this class whose configuration differs in these keys: a copy with sub-agents of its own.

        Both have whatever else a constructor of the class has made.  The client that this agent was given is the
        copy's as well, unless ``client`` or ``model`` is given.

        Args:
            client: Asks the model for all sub-agents of the copy, or one for each; see the class.
            overrides: Keys of the configuration in place of this agent's.

        Raises:
            ConfigError: There is no such key, or a value is not right.
        """
        made = copy(self)
        kept = None if "model" in overrides else self._client
        AgentBase.__init__(made, self.config, client=client or kept, **overrides)
        return made

    def check_available(self) -> None:
        """Refuse to be used where a key, an address or a library is missing; nothing is asked of a model.

        Raises:
            ConfigError: It names what is missing.
        """
        for agent in self.agents.values():
            check = getattr(agent.client, "check_available", None)
            if check is not None:
                check()

    @property
    def is_available(self) -> bool:
        """True if nothing is missing that `check_available` would name."""
        try:
            self.check_available()
        except UsageError:
            return False
        return True

    def close(self) -> None:
        """Close the connections of all sub-agents; a client that was given is its giver's to close."""
        opened: list[Client | Agent[Any, Any]] = [*self._made, *self.agents.values()]
        for one in opened:
            one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class AsyncAgentBase(AgentBase[Coroutine[Any, Any, Out]], Generic[Out]):
    """`AgentBase` whose ``call`` is a coroutine function, for asyncio."""

    is_async: ClassVar[bool] = True

    async def call(self, task: Any, **kwargs: Any) -> Out:
        """Do the task, and return what comes of it: the answer of the sub-agent, if there is but one."""
        (agent,) = self.agents.values()
        output: Out = (await agent.acall(task, **kwargs)).output
        return output

    def map(self, tasks: Iterable[Any], **options: Any) -> NoReturn:
        """Refuse: `amap` does many tasks.

        Raises:
            UsageError: Always.
        """
        raise UsageError(f"map of {self.name!r}, whose call is a coroutine function: await amap(…) would be right")

    async def amap(  # type: ignore[override]  # what comes of the coroutines
        self,
        tasks: Iterable[Any],
        *,
        concurrency: int = CONCURRENCY,
        progress: Progress = False,
        fail_fast: bool = False,
        **kwargs: Any,
    ) -> TaskResults[Out]:
        """Do many tasks at once, and return their ends in the order of the tasks; see `AgentBase.map`."""
        return await amap_tasks(lambda task: self.call(task, **kwargs), tasks, concurrency, progress, fail_fast)

    async def aclose(self) -> None:
        """Close the connections of all sub-agents."""
        opened: list[Client | Agent[Any, Any]] = [*self._made, *self.agents.values()]
        for one in opened:
            await one.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()
