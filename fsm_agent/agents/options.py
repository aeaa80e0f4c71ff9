"""The options of agents, of their calls and of configurations, for type checkers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypedDict, TypeVar

from fsm_agent.call.interpret import StopWhen
from fsm_agent.call.limits import Limits
from fsm_agent.call.prices import Prices
from fsm_agent.context.passes import AnyPass
from fsm_agent.context.plan import ContextOption
from fsm_agent.functions.context import GivenDeps
from fsm_agent.functions.toolset import Functions
from fsm_agent.messages.reply import Settings
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.runtime.result_pipeline import ResultPipeline
from fsm_agent.runtime.world import Approve

if TYPE_CHECKING:
    from fsm_agent.agents.classification.calibration import Calibration
    from fsm_agent.agents.classification.classifying import Classifying
    from fsm_agent.agents.run_handle import Before
    from fsm_agent.agents.verbs import After
    from fsm_agent.call.snapshots import OnChange
    from fsm_agent.clients.client import Client
    from fsm_agent.messages.events import Event
    from fsm_agent.store.runs import Runs
    from fsm_agent.store.store import Store

Deps = TypeVar("Deps")
Progress: TypeAlias = bool | Callable[[int, int | None], Any]
CONCURRENCY = 8  # tasks of `map` that are done at a time


class _UnstoredOptions(TypedDict, Generic[Deps], total=False):
    """The options of a call that is in no store."""

    args: Mapping[str, Any] | None
    parser_args: Mapping[str, Any] | None
    deps: GivenDeps[Deps]
    model: str | Client | None


class _SeedOptions(_UnstoredOptions[Deps], total=False):
    """The options of a call, but for ``after``, which `submit` has with a wider type."""

    extra: Mapping[str, Any] | None
    by: str
    run_id: str | None
    system_args: Mapping[str, Any] | None
    keep_system: bool


class CallOptions(_SeedOptions[Deps], total=False):
    """The options of a call, whatever its verb; this list is the only one.

    Attributes:
        args: Settings for this call, over the agent's: ``{"temperature": 0}``.
        parser_args: Keyword arguments for the prompt's parser, or the context of its output's validators: data that
            JSON can hold, kept in the record.
        deps: What functions find in their `Context`: a value, or a function of (agent, extra, user) that makes it.
        model: The model of this call, ``"provider:model"`` or a client, in place of the agent's.
        extra: Data of yours that JSON can hold, such as a ticket's number: ``result.extra``, snapshots and the messages
            that the call adds to the dialog have it.  The model does not see it.
        by: Who asks, by your login: kept in the record, and the ``user`` of a function of ``deps``.
        run_id: The name of its run in the agent's store; None: a new one.  If the store has a run of this name
            with the same task, the call continues that run, or returns its result.
        after: What the task follows: the result of a call, a dialog, or messages.
        system_args: The values for the variables of the agent's system prompt; None: those of the dialog before.
        keep_system: Keep the system message at the start of the dialog, in place of the agent's.
    """

    after: After


CALL_OPTIONS = CallOptions.__optional_keys__


class StartOptions(TypedDict, total=False):
    """The options of `submit` that say when the run starts.

    Attributes:
        delay_s: How many seconds from now it starts, at the earliest.
        priority: From -100 to 100; of the runs that are due, workers take one of the highest priority.  It holds until
            the run has ended.
        service: The name of the `RunFollower` that goes on with the run as with its own; empty: workers do.
    """

    delay_s: float
    priority: int
    service: str


class SubmitOptions(_SeedOptions[Deps], StartOptions, total=False):
    """The options of `submit`: those of `StartOptions`, and those of a call.

    Attributes:
        after: The runs that have to end before, as names or handles; in whatever way they end.  Or what the task
            follows, as of a call: the result of one, a dialog, or messages.
    """

    after: Before | After


class ReadOptions(_UnstoredOptions[Deps], total=False):
    """The options of `replay`, `at` and `fork`: what the call of a run is made with; None: what the run began with.

    Attributes:
        prompt: The prompt of the task, if it had its own.
        on_change: What to do if the prompt has changed since the run began: log it and set the result's
            ``prompt_change`` (``"report"``), or leave the run as it is (``"error"``).
    """

    prompt: Prompt[Any] | None
    on_change: OnChange


RESUME_OPTIONS = ReadOptions.__optional_keys__


class StreamedResumeOptions(ReadOptions[Deps], total=False):
    """The options of a stream that continues a run, beside the answers.

    Attributes:
        by: Who answers, for people.
        post_id: An id of the one answer: given again under it, as after `RunBusy`, it counts once.
    """

    by: str
    post_id: str


class ResumeOptions(StreamedResumeOptions[Deps], total=False):
    """The options of `resume`, beside the answers.

    Attributes:
        sink: Receives every event.
    """

    sink: Callable[[Event], Any] | None


class MapOptions(CallOptions[Deps], total=False):
    """The options of many calls.

    Attributes:
        concurrency: How many calls run at a time; 8 by default.
        progress: True shows a bar on stderr; a function is called with the number of finished tasks and of all tasks.
        fail_fast: Raise the first error, and begin no further task.
    """

    concurrency: int
    progress: Progress
    fail_fast: bool


class ClassifyOptions(CallOptions[Any], total=False):
    """The options of a classification, beside those of its calls."""

    prompt: str | Prompt[Any] | None
    calibration: Calibration | None
    votes: int
    on_missing: Literal["zero", "error"]


class ChoiceOptions(ClassifyOptions, total=False):
    """The options of a classification that may leave it open, or ask another agent."""

    threshold: float
    otherwise: Classifying | None


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
    world: Mapping[str, Any]


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
