"""The options of agents, calls and configurations, and their checks.

`fsm_agent.agents.config` decides which value wins if a configuration sets an option in several places.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Generic, TypeAlias, TypedDict

from typing_extensions import TypeVar

from fsm_agent._internal.structs import New, field_names, is_whole
from fsm_agent.agents.batch import Progress
from fsm_agent.agents.run_handle import Before
from fsm_agent.call.limits import Limits
from fsm_agent.call.outcomes import Outcome
from fsm_agent.call.prices import PriceList, Prices
from fsm_agent.call.result import CallResult
from fsm_agent.call.snapshots import OnChange
from fsm_agent.call.stop_conditions import StopWhen
from fsm_agent.context.fitting import DEFAULT, ContextOption, ContextPlan
from fsm_agent.context.passes import AnyPass
from fsm_agent.errors import UsageError, hint
from fsm_agent.foreign_names import WORDS, remedy
from fsm_agent.functions.context import GivenDeps
from fsm_agent.functions.policy import is_plain, takes
from fsm_agent.functions.toolset import Functions
from fsm_agent.messages.events import Done, InterimEvent
from fsm_agent.messages.message import ChatDict, Message, Payload
from fsm_agent.messages.reply import Settings
from fsm_agent.prompts.prompt import Prompt, Task
from fsm_agent.providers.catalog import window_of
from fsm_agent.runtime.environment import Approve, Client, Environment, models_of
from fsm_agent.runtime.result_pipeline import ResultPipeline
from fsm_agent.store.runs import Runs
from fsm_agent.store.store import Store
from fsm_agent.validation import Rules, require, require_fields

MODEL = "'provider:model' such as 'openai:gpt-5-mini', or a client"
UNNAMED = "agent"  # the name of an agent without a name
_RESOURCES: Rules = (
    (
        "clock",
        lambda value: all(callable(getattr(value, name, None)) for name in ("now", "sleep", "asleep")),
        "a clock with now, sleep and asleep",
    ),
    ("backoff", lambda value: value is None or is_plain(value), "None or a wait of tenacity, such as wait_fixed(5)"),
    ("threads", lambda value: is_whole(value, 0), "a whole number of at least 0"),
    ("new_id", is_plain, "a function that returns a string"),
    ("random", is_plain, "a function that returns a number from 0 to 1"),
)
TASK = Prompt("{{ task }}")  # the default prompt for tasks in plain text


def check_agent(agent: Any) -> None:
    """Reject arguments that would make every call of the agent fail."""
    require_fields(agent, "an agent", _RIGHTS)
    if agent.store is not None and agent.name == UNNAMED:
        raise UsageError(
            "name: expected a name for the agent, by which its store finds its runs, got none;"
            " pass one, such as name='support'"
        )
    check_environment("an agent", agent.environment)
    if isinstance(agent.model, str) and ":" not in agent.model:
        from fsm_agent.providers.catalog import split_model  # imports all codecs, only for an error message

        split_model(agent.model)


def check_prices(agent: Any) -> None:
    """Reject values that are not prices, and refuse a budget in dollars if the model's price is unknown."""
    models = (agent.model,) if isinstance(agent.model, str) else models_of(agent.model)
    prices = PriceList(agent.prices, models)
    if agent.limits.cost_usd is not None:
        prices.check()


def check_environment(owner: str, environment: Any, kind: type[UsageError] = UsageError) -> None:
    """Reject environment options that are unknown or that the agent or flow passes itself."""
    what, right = f"environment of {owner}", "a mapping such as {'threads': 4}"
    require(what, environment, isinstance(environment, Mapping), right, kind)
    known = [
        name for name in field_names(Environment) if name not in ("client", "approve", "results", "prices", "name")
    ]
    for name in environment:
        if name not in known:
            raise kind(f"{what}: unknown key {name!r}{hint(name, known)}")
    for name, is_right, expected in _RESOURCES:
        if name in environment:
            require(f"{name} in the {what}", environment[name], is_right(environment[name]), expected, kind)


def context_window(model: Any) -> int | None:
    """Return the maximum number of tokens that a model reads and writes together, or None if it is unknown.

    For a client with several models, return the smallest of their windows.
    """
    if isinstance(model, str):
        return window_of(model)
    if type(window := getattr(model, "context_window", None)) is int:
        return window
    windows = [window_of(name) for name in models_of(model)]
    known = [window for window in windows if window is not None]
    return min(known, default=None) if len(known) == len(windows) else None


def plan_of_model(plan: ContextPlan, model: Any, agent: str) -> ContextPlan:
    """Return a context plan that allows for the context window of a model.

    Refuse a `Budget` without its own limit if the context window is unknown.
    """
    window, budget = context_window(model), plan.budget
    if window is None and budget is not None and budget.hard is None and budget is not DEFAULT.budget:
        name = model if isinstance(model, str) else model.name
        raise UsageError(
            f"context of the agent {agent!r}: expected a Budget with hard=…, since the context window of {name!r} is"
            " unknown; pass a limit, such as Budget(hard=32_000)"
        )
    return plan.changed(window=window)


def is_model(value: Any) -> bool:
    """Return whether a value is a model name or a client."""
    is_client = not isinstance(value, type) and hasattr(value, "acomplete") and hasattr(value, "name")
    return is_client or isinstance(value, str)


_RIGHTS: Rules = (
    ("model", is_model, MODEL),
    (
        "system",
        lambda v: isinstance(v, str | Prompt) or callable(v),
        "a string, a Prompt (system_args=… of call has its values), or a function of the deps",
    ),
    ("name", lambda v: isinstance(v, str) and bool(v), "a string such as 'shop'"),
    (
        "prompt",
        lambda v: isinstance(v, Prompt) and "task" in v.variables,
        "a Prompt with {{ task }} (system=… takes the system prompt)",
    ),
    ("limits", lambda v: isinstance(v, Limits), "Limits such as Limits(rounds=3)"),
    ("settings", lambda v: isinstance(v, Settings), "Settings such as Settings(temperature=0)"),
    ("stop_when", lambda v: v is None or (is_plain(v) and takes(v, 1)), "a plain function of a StopContext, or None"),
    ("results", lambda v: v is None or isinstance(v, ResultPipeline), "a ResultPipeline, or None"),
)

Deps = TypeVar("Deps", default=Any, contravariant=True)

Out = TypeVar("Out", default=str, covariant=True)

Messages: TypeAlias = Sequence[Message | ChatDict]  # a Dialog is one; dictionaries have OpenAI's format

Asked: TypeAlias = str | Message | Payload | Prompt[str] | Task[str]

Typed: TypeAlias = Prompt[New] | Task[New]  # asks for its own output type

AnyTask: TypeAlias = Asked | Typed[Any] | Messages

RunAnswers: TypeAlias = Mapping[str, Outcome] | Outcome | None

After: TypeAlias = CallResult[Any] | Messages | None

Stream: TypeAlias = Generator[InterimEvent | Done[CallResult[New]]]

AsyncStream: TypeAlias = AsyncGenerator[InterimEvent | Done[CallResult[New]]]


class _UnstoredOptions(TypedDict, Generic[Deps], total=False):
    """The options for a call that is not in a store."""

    args: Mapping[str, Any] | None
    parser_args: Mapping[str, Any] | None
    deps: GivenDeps[Deps]
    model: str | Client | None


class _PreparedOptions(_UnstoredOptions[Deps], total=False):
    """The options for a call except ``after``, for which `submit` accepts more types."""

    extra: Mapping[str, Any] | None
    by: str
    run_id: str | None
    system_args: Mapping[str, Any] | None
    keep_system: bool


class CallOptions(_PreparedOptions[Deps], total=False):
    """The options that every kind of call takes; see `Agent.call`."""

    after: After


CALL_OPTIONS = CallOptions.__optional_keys__


class SubmitOptions(_PreparedOptions[Deps], total=False):
    """The options of `submit`: those for a call, and those that determine when and where the run starts."""

    after: Before | After
    delay_s: float
    priority: int
    service: str


class MapOptions(CallOptions[Deps], total=False):
    """The options for many calls; see `Agent.map`."""

    concurrency: int
    progress: Progress
    fail_fast: bool


_OF_AGENT = frozenset({"functions", "output", "system", "model", "settings", "limits", "hooks", "store", "approve"})


def check_known(options: Iterable[str], task: object, known: Iterable[str] = CALL_OPTIONS) -> None:
    """Reject options that a call does not take, and suggest the right names."""
    name = next((name for name in options if name not in CALL_OPTIONS), None)
    if name is None:
        return
    first = task[0] if isinstance(task, list | tuple) and task else task  # the first of several tasks
    prompt = first.prompt if isinstance(first, Task) else first
    if isinstance(prompt, Prompt) and name in prompt.variables:
        raise UsageError(f"unknown option {name!r}; pass it as a value of the prompt, call(prompt({name}=…))")
    if WORDS.get(name, "").startswith("settings=") or name == "settings":
        args = f"args={{{name!r}: …}}" if name in Settings.__struct_fields__ else "args={'temperature': …}"
        raise UsageError(f"unknown option {name!r}; use {args}, or settings=Settings(…) of Agent(…)")
    right = remedy(name, sorted(known))
    is_of_agent = name in WORDS and WORDS[name].partition("=")[0] in _OF_AGENT
    raise UsageError(f"unknown option {name!r}{right}{' of Agent(…), or of agent.changed(…)' * is_of_agent}")


class RestoreOptions(_UnstoredOptions[Deps], total=False):
    """The options of `Agent.restore`."""

    signing_key: str | bytes | None
    on_change: OnChange


class _AgentOptions(TypedDict, Generic[Deps], total=False):
    """The arguments that an `Agent` and any of its variants may have."""

    model: str | Client
    system: str | Prompt[Any] | Callable[[Deps], str] | Callable[[], str]
    functions: Functions[Deps]
    finalizer: str | Prompt[Any] | None
    prompt: Prompt[Any]
    limits: Limits
    settings: Settings
    stop_when: StopWhen | None
    check: Callable[..., Any] | None
    approve: Approve[Deps] | None
    context: ContextOption
    keep: AnyPass | Sequence[AnyPass]
    results: ResultPipeline | None
    prices: Prices | None
    hooks: Sequence[Any]
    store: Runs | Store | str | PathLike[str] | None
    environment: Mapping[str, Any]


class AgentChanges(_AgentOptions[Deps], total=False):
    """The arguments of `Agent.changed` except ``output``, which has a type of its own."""

    name: str


class AgentOptions(_AgentOptions[Any], total=False):
    """The `Agent` arguments that a class sets for a sub-agent.  The configuration overrides them."""

    output: Any


_ConfigOverrides = TypedDict("_ConfigOverrides", {"global": Mapping[str, Any]}, total=False)  # a Python keyword


class ConfigOverrides(_ConfigOverrides, total=False):
    """Configuration keys as arguments."""

    agent_type: str
    name: str
    model: str
    system: str
    system_path: str
    prompt: str | Prompt[Any]
    prompts: str
    functions: Sequence[Any]
    output: Any
    profile: str
    settings: Settings | Mapping[str, Any]
    limits: Limits | Mapping[str, Any]
    approve: Any
    hooks: Sequence[Any]
    stop_when: Any
    check: Any
    context: Any
    keep: Any
    results: Any
    prices: Any
    store: str
    agent_configs: Mapping[str, Any]
