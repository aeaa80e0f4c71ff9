"""The options of agents, of their calls and of configurations, for type checkers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Generic, Literal, TypeAlias, TypedDict

from typing_extensions import TypeVar

from fsm_agent._internal.structs import New
from fsm_agent.agents.batch import Progress
from fsm_agent.agents.classification import Calibration
from fsm_agent.agents.run_handle import Before
from fsm_agent.call.budget import Prices
from fsm_agent.call.outcomes import Outcome
from fsm_agent.call.record import Limits
from fsm_agent.call.result import CallResult
from fsm_agent.call.snapshots import OnChange
from fsm_agent.call.stopping import StopWhen
from fsm_agent.context.budget import ContextOption
from fsm_agent.context.passes import AnyPass
from fsm_agent.errors import UsageError
from fsm_agent.foreign_names import WORDS, remedy
from fsm_agent.functions.context import GivenDeps
from fsm_agent.functions.toolset import Functions
from fsm_agent.messages.events import Done, InterimEvent
from fsm_agent.messages.message import ChatDict, Message
from fsm_agent.messages.payload import Payload
from fsm_agent.messages.reply import Settings
from fsm_agent.prompts.prompt import Prompt, Task
from fsm_agent.runtime.environment import Approve, Client
from fsm_agent.runtime.results import ResultPipeline
from fsm_agent.store.runs import Runs
from fsm_agent.store.store import Store

Deps = TypeVar("Deps", default=Any, contravariant=True)
Out = TypeVar("Out", default=str, covariant=True)
Messages: TypeAlias = Sequence[Message | ChatDict]  # as a Dialog is, or dictionaries as OpenAI has them
# What is asked for the agent's own output: words, and prompts of texts.
Asked: TypeAlias = str | Message | Payload | Prompt[str] | Task[str]
Typed: TypeAlias = Prompt[New] | Task[New]  # what is asked for its own
AnyTask: TypeAlias = Asked | Typed[Any] | Messages
RunAnswers: TypeAlias = Mapping[str, Outcome] | Outcome | None
After: TypeAlias = CallResult[Any] | Messages | None
Stream: TypeAlias = Generator[InterimEvent | Done[CallResult[New]]]
AsyncStream: TypeAlias = AsyncGenerator[InterimEvent | Done[CallResult[New]]]


class _UnstoredOptions(TypedDict, Generic[Deps], total=False):
    """The options of a call that is in no store."""

    args: Mapping[str, Any] | None
    parser_args: Mapping[str, Any] | None
    deps: GivenDeps[Deps]
    model: str | Client | None


class _PreparedOptions(_UnstoredOptions[Deps], total=False):
    """The options of a call, but for ``after``, which `submit` has with a wider type."""

    extra: Mapping[str, Any] | None
    by: str
    run_id: str | None
    system_args: Mapping[str, Any] | None
    keep_system: bool


class CallOptions(_PreparedOptions[Deps], total=False):
    """The options of a call, whatever its verb; `Agent.call` says what each does."""

    after: After


CALL_OPTIONS = CallOptions.__optional_keys__


class SubmitOptions(_PreparedOptions[Deps], total=False):
    """The options of `submit`: those of a call, and when the run starts."""

    after: Before | After
    delay_s: float
    priority: int
    service: str


class MapOptions(CallOptions[Deps], total=False):
    """The options of many calls; see `Agent.map`."""

    concurrency: int
    progress: Progress
    fail_fast: bool


class ClassifyOptions(CallOptions[Any], total=False):
    """The options of a classification, beside those of its calls."""

    prompt: str | Prompt[Any] | None
    calibration: Calibration | None
    votes: int
    on_missing: Literal["zero", "error"]


_NOTHING: Mapping[str, Any] = {}
_OF_AGENT = frozenset({"functions", "output", "system", "model", "settings", "limits", "hooks", "store", "approve"})


def call_options(
    task: object,
    args: Mapping[str, Any] | None,
    parser_args: Mapping[str, Any] | None,
    deps: GivenDeps[Any],
    model: str | Client | None,
    extra: Mapping[str, Any] | None,
    by: str,
    run_id: str | None,
    system_args: Mapping[str, Any] | None,
    keep_system: bool,
    after: Any,
    unknown: Mapping[str, Any] = _NOTHING,
) -> dict[str, Any]:
    """Return the options of a call by name.

    Args:
        task: The task, or a list of them; the variables of a prompt are no options.
        args: As of `Agent.call`, as are those that follow.
        parser_args: As of `Agent.call`.
        deps: As of `Agent.call`.
        model: As of `Agent.call`.
        extra: As of `Agent.call`.
        by: As of `Agent.call`.
        run_id: As of `Agent.call`.
        system_args: As of `Agent.call`.
        keep_system: As of `Agent.call`.
        after: As of `Agent.call`.
        unknown: Options that a call does not have.

    Raises:
        UsageError: There is an unknown one; the error says which was probably meant.
    """
    check_known(unknown, task)
    named = {"args": args, "parser_args": parser_args, "deps": deps, "model": model, "extra": extra, "by": by}
    return {**named, "run_id": run_id, "system_args": system_args, "keep_system": keep_system, "after": after}


def check_known(options: Iterable[str], task: object) -> None:
    """Refuse options that a call does not have.

    Raises:
        UsageError: It names the first of them, and what was probably meant.
    """
    name = next((name for name in options if name not in CALL_OPTIONS), None)
    if name is None:
        return
    first = task[0] if isinstance(task, list | tuple) and task else task  # of many tasks
    prompt = first.prompt if isinstance(first, Task) else first
    if isinstance(prompt, Prompt) and name in prompt.variables:
        raise UsageError(f"unknown option {name!r}; pass it as a value of the prompt, call(prompt({name}=…))")
    right = remedy(name, sorted(CALL_OPTIONS))
    is_of_agent = name in WORDS and WORDS[name].partition("=")[0] in _OF_AGENT
    raise UsageError(f"unknown option {name!r}{right}{' of Agent(…), or of agent.changed(…)' * is_of_agent}")


class RestoreOptions(_UnstoredOptions[Deps], total=False):
    """The options of `Agent.restore`."""

    signing_key: str | bytes | None
    on_change: OnChange


class _AgentOptions(TypedDict, Generic[Deps], total=False):
    """The arguments of an `Agent` that any of its variants may have."""

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
    """The arguments of `Agent.changed` beside ``output``, which is a type of its own."""

    name: str


class AgentOptions(_AgentOptions[Any], total=False):
    """The arguments of an `Agent`, for a sub-agent of a class; its configuration overrides them."""

    output: Any


_ConfigOverrides = TypedDict("_ConfigOverrides", {"global": Mapping[str, Any]}, total=False)  # a keyword of Python


class ConfigOverrides(_ConfigOverrides, total=False):
    """The keys of a configuration as arguments."""

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
