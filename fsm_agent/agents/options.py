"""The arguments of an agent and of a call that say nothing of the type of its answers, for type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fsm_agent.functions.toolset import Functions
    from fsm_agent.lifecycle.context.masking import Masking
    from fsm_agent.lifecycle.context.window import Processor
    from fsm_agent.lifecycle.effects import Settings
    from fsm_agent.lifecycle.interpret import StopWhen
    from fsm_agent.lifecycle.limits import Limits
    from fsm_agent.prompts.prompt import Prompt
    from fsm_agent.runtime.result_pipeline import ResultPipeline
    from fsm_agent.runtime.world import Approve


class AgentOptions(TypedDict, total=False):
    """The fields of an `Agent` that are given by name, without ``output``."""

    system: str | Prompt
    functions: Functions
    name: str
    limits: Limits
    settings: Settings
    stop_when: StopWhen | None
    approve: Approve | None
    masking: Masking | None
    processors: Sequence[Processor]
    results: ResultPipeline | None
    hooks: Sequence[Any]
    world: Mapping[str, Any]


class CallOptions(TypedDict, total=False):
    """The options of a call; variables of a prompt are none of them."""

    args: Mapping[str, Any] | None
    parser_args: Mapping[str, Any] | None
    deps: Any
