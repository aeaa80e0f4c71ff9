"""`AgentBase`, the base class of users' agents, and `build_agent`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    ParamSpec,
    Self,
    cast,
    get_args,
    get_origin,
    overload,
)

from typing_extensions import TypeVar, Unpack

from fsm_agent._internal.registry import Registry, path_of
from fsm_agent._internal.text import guess
from fsm_agent.agents.agent import ARGUMENTS, Agent
from fsm_agent.agents.class_attributes import arguments_of, check_attributes
from fsm_agent.agents.config import AgentConfig, Config, SubAgent, keys_of, placed, prompt_of
from fsm_agent.agents.options import TASK, AgentOptions, ConfigOverrides
from fsm_agent.agents.program import LIMITS, Program, check_program, returned_type
from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.functions.function import Function
from fsm_agent.functions.policy import AgentPolicy
from fsm_agent.named_objects import loaded
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.runtime.environment import Client
from fsm_agent.validation import Rules, require, safe_repr

Built = TypeVar("Built", bound="AgentBase[Any]")
Options = ParamSpec("Options")

# By ``agent_type``.  A class replaces its earlier version.
AGENTS: Registry[type[AgentBase[Any]]] = Registry(
    "agent_type",
    ConfigError,
    source=path_of,
    remedy="put register=False into the class statement",
)


def kind_name(agent_type: str | Enum | None) -> str:
    """Return an ``agent_type`` as a string, or "" if the class does not set one."""
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
    """Return an agent of a registered kind (``build_agent(config)``) or class (``build_agent(Weather, config)``).

    With a class, type checkers know the methods and constructor options.

    Args:
        config: See `AgentConfig.of`.  With a class, the configuration need not name the kind.
        agent_type: The kind, instead of ``config["agent_type"]``.
        args: Arguments for the class's constructor, after the configuration.
        options: Configuration keys that replace those in ``config``, and further constructor arguments.  Every class
            accepts ``client``.

    Raises:
        ConfigError: If the kind is missing, is unknown or does not match the class, or if the configuration is invalid.

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
    own = inspect.signature(cls.__init__).parameters
    keys = [name for name in options if name in _KEYS and name not in own]
    return AgentConfig.of(config, **{name: options.pop(name) for name in keys})


def _class_of(config: AgentConfig, agent_type: str) -> Any:
    """Return the class for ``agent_type``, or for the kind in the configuration."""
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

Out = TypeVar("Out", default=Any)

MAX_DESCRIPTION_CHARS = 100

_NOTHING: Mapping[str, Any] = MappingProxyType({})

_SAYING = ("agent_type", "expertise", "system", "system_path", "prompt", "functions", "agent_group")

_RIGHTS: Rules = (
    (
        "agent_type",
        lambda v: isinstance(v, str | Enum) and ":" not in kind_name(v),  # a colon makes it module:Class
        "a name such as 'weather'",
    ),
    ("expertise", lambda v: isinstance(v, str), "a string"),
    ("capabilities", lambda v: not isinstance(v, str), "a list of strings"),
    (
        "agent_group",
        lambda v: isinstance(v, Collection) and not isinstance(v, str) and len({*v}) == len(v),
        "a list of different names",
    ),
)


def _take_program(cls: type[AgentBase[Any]]) -> None:
    """Turn a class's own ``call`` method into its ``answer``, because every agent already has a `call` method.

    Users of other libraries expect to override `call`.  Type checkers reject an override with a different return type.
    """
    own = inspect.getattr_static(cls, "call")
    if own is inspect.getattr_static(Agent, "call"):
        return
    if "answer" in vars(cls):
        raise ConfigError(f"{path_of(cls)}: expected either call or answer, got both; remove one")
    cls.answer = own  # type: ignore[attr-defined]
    if "call" in vars(cls):
        del cls.call
    else:  # the method comes from a base class that is not an agent
        cls.call = Agent.call  # type: ignore[method-assign]


def _take_output(cls: type[AgentBase[Any]]) -> None:
    """Take the output type from ``AgentBase[Report]``, as if the class said ``output = Report``."""
    for base in cls.__dict__.get("__orig_bases__", ()):
        origin, given = get_origin(base), get_args(base)
        if not (isinstance(origin, type) and issubclass(origin, AgentBase) and given):
            continue
        if isinstance(given[0], TypeVar) or given[0] is Any:
            continue
        own = cls.__dict__.get("output", given[0])
        if isinstance(own, type) and own is not given[0]:
            said = f"class {cls.__name__}(AgentBase[{safe_repr(given[0])}])"
            raise ConfigError(f"{said}: expected output = {safe_repr(given[0])}, got output = {safe_repr(own)}")
        cls.output = own


class AgentBase(Agent[Any, Out], Generic[Out]):
    """An `Agent` whose arguments are class attributes.  This is the base class for your own agents.

    A subclass that sets ``agent_type`` is registered under that name, unless the class statement says
    ``register=False``.  Every argument of an `Agent` may be a class attribute, and a configuration may override it.
    Values come from the class, ``global``, the configuration, ``agent_configs`` and the arguments; later ones win.

    An agent with several sub-agents has an ``answer`` method, plain or ``async``::

        class Weather(AgentBase):
            agent_type = "weather"
            agent_group = ["forecaster", "editor"]

            def answer(self, task: str) -> str:
                forecast = self.agents["forecaster"].call(task).output
                return self.agents["editor"].call(f"Shorten: {forecast}").output

    The method may also take the call's `Context`: ``answer(self, task, context)``.  It returns the output, whose type
    is its return annotation.  An exception makes the call fail.  The call's usage includes the sub-agents' tokens.  The
    method is plain Python, so it starts from the beginning after a crash, and cannot wait for a person.  If it must
    survive a crash or wait for a person, write a flow with the same agents instead: ``flow.bound(team.agents)``.  A
    ``call`` method, as required by other libraries, also works and becomes ``answer``.

    Args:
        config: Models, system prompts and limits; see `AgentConfig`.
        client: A client for all sub-agents, or a mapping from their names to clients.  It replaces the configured
            models.
        overrides: Configuration keys that replace those in ``config``.

    Attributes:
        agent_type: The name of the class in the registry and in configurations.
        agent_group: The names of the sub-agents, or a mapping from these names to arguments for an `Agent`.  The class
            attributes apply to each of them, except ``output``, ``check`` and ``prompt``.
        expertise: What the agent can do.  It serves as the system prompt if no other is given.  If there is only one
            sub-agent, the expertise also applies to it.
        description: A short form of the expertise, for choosing among agents; by default, the beginning of the
            expertise.
        capabilities: What the agent can do, as a list.
        agents: The sub-agents by name or, if there is no group, the agent itself.

    Examples:
        >>> class Teller(AgentBase):
        ...     expertise = "You tell the weather."
        ...     prompt = Prompt("The weather in {{ task }}?")
        >>> teller = Teller(client=Script("Sunny.", "Foggy."))
        >>> teller.call("Rome").output, teller("Oslo")
        ('Sunny.', 'Foggy.')
    """

    agent_type: ClassVar[str | Enum] = ""
    agent_group: ClassVar[Sequence[str] | Mapping[str, AgentOptions]] = ()
    expertise: ClassVar[str] = ""
    description: ClassVar[str] = ""
    capabilities: ClassVar[Sequence[str]] = ()

    if TYPE_CHECKING:  # the attributes of a class may have other types than an `Agent`'s arguments
        model: Any
        prompt: Any
        functions: Any
        output: Any
        system: Any  # like approve, check and stop_when: only a function defined in the class takes a self
        system_path: str
        profile: str
        limits: Any
        settings: Any
        stop_when: Any
        check: Any
        approve: Any
        name: Any

    agents: dict[str, Agent[Any, Any]]
    config: AgentConfig

    def __init_subclass__(cls, *, register: bool = True, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_attributes(cls, AgentBase)
        _take_output(cls)
        _take_program(cls)
        for name, is_right, right in _RIGHTS:
            value = getattr(cls, name)
            require(f"{name} of {cls.__name__}", value, is_right(value), right, ConfigError)
        if "expertise" in cls.__dict__ and "description" not in cls.__dict__:
            cls.description = cls.expertise[:MAX_DESCRIPTION_CHARS]
        kind = cls.__dict__.get("agent_type")
        if not register or not kind:
            return
        cls.agent_type = kind_name(kind)
        AGENTS.register(cls.agent_type, cls)

    def __init__(
        self,
        config: Config = _NOTHING,
        *,
        client: Client | Mapping[str, Client] | None = None,
        **overrides: Unpack[ConfigOverrides],
    ) -> None:
        self.config = AgentConfig.of(config, **overrides)
        self._client = client
        of_class = arguments_of(self, AgentBase)
        name = str(
            self.config.value("name") or of_class.get("name") or kind_name(self.agent_type) or type(self).__name__
        )
        group = tuple(self.agent_group) or (name,)
        self._check_group(name, group)
        clients = client if isinstance(client, Mapping) else dict.fromkeys(group, client)
        if unknown := clients.keys() - set(group):
            named = ", ".join(map(repr, sorted(unknown)))
            raise ConfigError(
                f"client: expected sub-agents of {name!r} ({', '.join(map(repr, group))}) as keys, got {named}"
            )
        of_class["prompt"] = self._task_prompt(of_class)
        self._configured: list[Any] = []  # clients made from the configuration, which this agent closes
        arguments = {each: self._arguments(each, name, clients.get(each), of_class) for each in group}
        answer = getattr(self, "answer", None)
        if answer is None:
            ((each, own),) = arguments.items()
            with placed(self.config, ("agent_configs", each)):
                super().__init__(**{**own, "name": name})
            self.agents = {each: self}
        else:
            agents = dict[str, Agent[Any, Any]]()
            for each, options in arguments.items():
                with placed(self.config, ("agent_configs", each)):
                    agents[each] = Agent(**options)
            super().__init__(**_program_arguments(name, answer, of_class, next(iter(arguments.values()))))
            self.agents = agents

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _CACHED}

    def _check_group(self, name: str, group: Sequence[str]) -> None:
        """Reject an agent with several sub-agents but no `answer`, and a configuration for unknown sub-agents."""
        cls = type(self)
        answer = getattr(self, "answer", None)
        if answer is not None:
            check_program(name, answer)
        elif len(group) != 1:
            raise TypeError(
                f"{path_of(cls)} is abstract: expected a method that asks its {len(group)} sub-agents, got none;"
                " define answer(self, task)"
            )
        elif cls.output is str and not any(_says(cls, each) for each in _SAYING):
            raise TypeError(
                f"{path_of(cls)} is abstract: expected a method answer, or one of {', '.join(_SAYING)}, got neither"
            )
        for each in self.config.agent_configs:
            if each not in group:
                problem = f": expected one of {', '.join(map(repr, group))}, got {each!r}{guess(each, group)}"
                raise self.config.error(("agent_configs", each), problem)

    def _arguments(self, each: str, owner: str, client: Client | None, of_class: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments for the sub-agent ``each``.

        If the class has an `answer` method, the class's prompt, output and check do not apply to sub-agents.
        """
        options = dict(of_class)
        answers = hasattr(self, "answer")
        if answers:
            options.pop("check", None)  # it checks the whole agent's answer, not a sub-agent's
        if answers and self.agent_group:
            options.pop("output", None)
            del options["prompt"]
        if len(self.agent_group) <= 1 and not options.keys() & {"system", "system_path"}:
            options["system"] = self.expertise
        if isinstance(self.agent_group, Mapping):
            options |= self.agent_group[each]
        is_part = bool(self.agent_group) or answers
        options["name"] = f"{owner}/{each}" if is_part else each
        arguments = SubAgent(self.config, each, options).arguments(owner, client)
        model = arguments["model"]
        if not isinstance(model, str) and model not in (client, options.get("model")):
            self._configured.append(model)
        return arguments

    def _task_prompt(self, defaults: Mapping[str, Any]) -> Prompt[Any]:
        prompt = self.config.prompt or defaults.get("prompt") or TASK
        if isinstance(prompt, str):
            with placed(self.config, ("prompt",)):
                prompt = prompt_of(self.config, prompt, defaults.get("prompts"))
        if not isinstance(prompt, Prompt):
            raise self.config.error(("prompt",), f": expected the path of a prompt, got {prompt!r:.80}")
        if "task" not in prompt.variables:
            whose = repr(prompt.path or prompt.template)
            raise self.config.error(("prompt",), f": expected {{{{ task }}}} in the prompt {whose:.80}; add it")
        return prompt

    @property
    def _sub_runnables(self) -> Sequence[Agent[Any, Any]]:
        return (self, *[agent for agent in self.agents.values() if agent is not self])

    def as_function(
        self, name: str | None = None, description: str | None = None, **policy: Unpack[AgentPolicy]
    ) -> Function[..., Any, Any]:
        """Return this agent as a function for another agent; see `Agent.as_function`.

        Args:
            name: The function's name for the model; by default, the agent's name.
            description: What the agent is good at, as the model reads it; by default, the class's description.
            policy: See `Agent.as_function`.

        Raises:
            UsageError: If an option does not apply to an agent.
        """
        return super().as_function(name, description or self.description, **policy)

    def __call__(self, task: Any, **options: Any) -> Out:
        """Perform the task with these `CallOptions`, and return only the output."""
        output: Out = self.call(task, **options).output
        return output

    @cached_property
    def _classifier(self) -> Agent[Any, str]:
        if not isinstance(self.model, Program):
            return super()._classifier
        if len(self.agents) > 1:
            named = ", ".join([f"agents[{name!r}]" for name in self.agents])
            raise UsageError(
                f"{self.name!r}: expected one agent that classifies, got {len(self.agents)} sub-agents; ask one of"
                f" {named}"
            )
        (agent,) = self.agents.values()
        return agent._classifier

    def changed(  # type: ignore[override]  # takes the keys of a configuration
        self, *, client: Client | Mapping[str, Client] | None = None, **overrides: Unpack[ConfigOverrides]
    ) -> Self:
        """Return a copy with some configuration keys changed and with its own sub-agents.

        The copy shares everything else that the class's constructor created.  It keeps this agent's client unless
        ``client`` or ``model`` is given.

        Args:
            client: A client for all of the copy's sub-agents, or a mapping with one for each; see the class.  A client
                may also be passed as ``model=``, as for any agent.
            overrides: Configuration keys that replace this agent's.

        Raises:
            ConfigError: If a key is unknown, or a value is wrong.
        """
        made = object.__new__(type(self))
        derived = {*ARGUMENTS, "agents", *_CACHED}
        vars(made).update({name: value for name, value in vars(self).items() if name not in derived})
        if hasattr(overrides.get("model"), "acomplete"):  # a client, as for any agent
            if client is not None:
                raise UsageError("expected client=… or model=…, got a client as both; leave one out")
            client = cast("Any", overrides).pop("model")
        kept = None if "model" in overrides else self._client
        AgentBase.__init__(made, self.config, client=client or kept, **overrides)
        return made

    def check_available(self) -> None:
        """Check, without calling a model, that no key, address or library is missing.

        Raises:
            ConfigError: If something is missing.  The error names it.
        """
        for agent in self.agents.values():
            check = getattr(agent.client, "check_available", None)
            if check is not None:
                check()

    @property
    def is_available(self) -> bool:
        """Whether `check_available` succeeds."""
        try:
            self.check_available()
        except UsageError:
            return False
        return True

    def close(self) -> None:
        """Close the connections of all sub-agents.  A client that was passed in stays open."""
        super().close()
        for one in (*self._configured, *self._sub_runnables[1:]):
            one.close()

    async def aclose(self) -> None:
        """The async version of `close`."""
        await super().aclose()
        for one in (*self._configured, *self._sub_runnables[1:]):
            await one.aclose()


AsyncAgentBase = AgentBase  # an alias for agents written for another library

"""Another name for `AgentBase`, for older programs.

Examples:
    >>> AsyncAgentBase is AgentBase
    True
"""

_CACHED = frozenset(
    [name for owner in AgentBase.__mro__ for name, item in vars(owner).items() if isinstance(item, cached_property)]
)


def _says(cls: type[AgentBase[Any]], name: str) -> bool:
    return any(vars(owner).get(name) for owner in cls.__mro__ if owner not in AgentBase.__mro__)


def _program_arguments(
    name: str, answer: Any, of_class: Mapping[str, Any], of_agent: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments for an agent whose model is its `answer` method.

    The class's functions, models, budgets and hooks go to its sub-agents, whereas the output, check, store, environment
    and deadline belong to the agent as a whole.
    """
    output = returned_type(answer, Any) if "output" not in of_class else of_class["output"]
    checked = {"check": of_class["check"]} if "check" in of_class else {}
    deadline = {"deadline_s": of_agent["limits"].deadline_s, "depth": of_agent["limits"].depth}
    kept = {each: of_agent[each] for each in ("store", "environment") if each in of_agent}
    return {
        "model": Program(name, answer, output),
        "name": name,
        "output": output,
        "limits": LIMITS.changed(**deadline),
        **checked,
        **kept,
    }
