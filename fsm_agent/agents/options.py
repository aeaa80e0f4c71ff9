"""The options of agents, of their calls and of configurations, for type checkers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar

from fsm_agent.context.masking import Masking
from fsm_agent.context.window import Processor
from fsm_agent.functions.toolset import Functions
from fsm_agent.lifecycle.effects import Settings
from fsm_agent.lifecycle.interpret import StopWhen
from fsm_agent.lifecycle.limits import Limits
from fsm_agent.lifecycle.prices import Prices
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.runtime.results.pipeline import ResultPipeline
from fsm_agent.runtime.world import Approve

if TYPE_CHECKING:
    from fsm_agent.agents.classification.calibration import Calibration
    from fsm_agent.agents.classification.classifying import Classifying
    from fsm_agent.agents.driving import After
    from fsm_agent.clients.client import Client
    from fsm_agent.lifecycle.snapshots import OnChange
    from fsm_agent.store.runs import Runs
    from fsm_agent.store.store import Store

Deps = TypeVar("Deps")


class _Options(TypedDict, Generic[Deps], total=False):
    """The options of a call that are in no record."""

    args: Mapping[str, Any] | None
    parser_args: Mapping[str, Any] | None
    deps: Deps
    model: str | Client | None


class CallOptions(_Options[Deps], total=False):
    """The options of a call; variables of a prompt are none of them."""

    extra: Mapping[str, Any] | None
    run_id: str | None
    after: After
    system_args: Mapping[str, Any] | None
    keep_system: bool


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


class RestoreOptions(_Options[Deps], total=False):
    """The options of `Agent.restore`."""

    signing_key: str | bytes | None
    on_change: OnChange


class _AgentOptions(TypedDict, Generic[Deps], total=False):
    """The arguments of an `Agent` that any of its variants may have."""

    model: str | Client
    system: str | Prompt[Any] | Callable[[Deps], str]
    functions: Functions[Deps]
    prompt: Prompt[Any]
    limits: Limits
    settings: Settings
    stop_when: StopWhen | None
    approve: Approve[Deps] | None
    masking: Masking | None
    processors: Sequence[Processor]
    results: ResultPipeline | None
    prices: Prices | None
    hooks: Sequence[Any]
    store: Runs | Store | str | PathLike[str] | None
    world: Mapping[str, Any]


class AgentChanges(_AgentOptions[Deps], total=False):
    """The arguments of `Agent.changed` beside ``output``, which is a type of its own."""

    name: str


class AgentOptions(_AgentOptions[Any], total=False):
    """The arguments of an `Agent`, for a sub-agent of a class; its configuration is over them."""

    output: Any


_ConfigOverrides = TypedDict("_ConfigOverrides", {"global": Mapping[str, Any]}, total=False)  # a word of Python


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
    masking: Masking | Mapping[str, Any]
    approve: Any
    hooks: Sequence[Any]
    stop_when: Any
    processors: Sequence[Any]
    results: Any
    prices: Any
    store: str
    agent_configs: Mapping[str, Any]
