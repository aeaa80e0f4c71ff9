"""Handles the journals of agent calls in a store: creates headers from calls, and calls from headers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fsm_agent._internal.structs import Out
from fsm_agent.agents.options import MODEL, READ_OPTIONS, is_model, plan_of_model
from fsm_agent.agents.system_prompt import SystemPrompt
from fsm_agent.call.call import AgentCall
from fsm_agent.call.header import ConversationTurn, call_of, header_of_call, seed_of, turn_snapshot
from fsm_agent.call.journal import Header, Journal
from fsm_agent.call.snapshots import OnChange, check_change, check_on_change
from fsm_agent.context.fitting import View
from fsm_agent.context.passes import AnyPass
from fsm_agent.errors import UsageError, hint
from fsm_agent.functions.context import LATER, deps_for
from fsm_agent.functions.toolset import Toolset
from fsm_agent.messages.message import Message
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.runtime.log import LOG
from fsm_agent.store.claiming import Claimed, ProcessFactory, give_back
from fsm_agent.validation import plain_json, require

if TYPE_CHECKING:
    from fsm_agent.agents.agent import Agent


def attach_journal(
    agent: Agent[Any, Any], call: AgentCall[Any], options: Mapping[str, Any], turn: ConversationTurn | None = None
) -> None:
    """Attach a journal to a new call, so that its run is saved when the call is driven."""
    is_offer_late = call.deps is LATER and decides_per_call(agent)
    header = header_of_call(call, agent.name, options.get("args"), turn, is_offer_late=is_offer_late)
    call.journal = Journal(call.record, run_name(options), header)
    if turn is not None:
        call.journal.earlier = turn.earlier(call.record.dialog) if turn.is_continued else range(0)


def decides_per_call(agent: Agent[Any, Any]) -> bool:
    """Return whether a call's deps may affect which functions an agent offers."""
    return any(isinstance(item, Toolset) and item.decides_per_call for item in agent.functions)


def opening_of(agent: Agent[Any, Any], deps: Any) -> Callable[[], str]:
    """Return a function that makes the system prompt for a call that was submitted without one."""
    return SystemPrompt(agent.system, agent.name, deps=deps).text


def run_name(options: Mapping[str, Any]) -> str:
    """Return the run name from ``run_id``, or "" if a new name is needed."""
    name = options.get("run_id")
    if name is not None and (not isinstance(name, str) or not name):
        raise UsageError(f"run_id: expected a string such as 'order-17', or None for a new one, got {name!r:.80}")
    return name or ""


def warned_of_change(call: AgentCall[Out]) -> AgentCall[Out]:
    """Log a warning if a call's prompt has changed since the call was made, and return the call."""
    if call.prompt_change is not None:
        LOG.warning("%s: %s", call, call.prompt_change)
    return call


def definition_of(
    agent: Agent[Any, Any], options: Mapping[str, Any], keep: Sequence[AnyPass] | None = None
) -> ProcessFactory:
    """Return the definition with which the agent rebuilds the calls of its runs.

    The options in `READ_OPTIONS` override the header.  If ``keep`` is None, the agent's passes apply.
    """
    for name in options:
        if name not in READ_OPTIONS:
            raise UsageError(f"unknown option {name!r} of a stored run{hint(name, READ_OPTIONS)}")
    prompt: Prompt | None = options.get("prompt")
    on_change: OnChange = options.get("on_change", "report")
    check_on_change(on_change)
    require("prompt", prompt, prompt is None or isinstance(prompt, Prompt), "the Prompt of the run's task, or None")

    def make(header: Header, document: str | None, earlier: Sequence[Message] = ()) -> AgentCall[Any]:
        seed = seed_of(header)
        check_prompt(header)
        deps = deps_for(options.get("deps"), agent.name, header.extra, header.by)
        resolved = agent._resolve_prompt(prompt, {**options, "deps": deps})
        parts = agent._call_parts(resolved, options.get("args") or seed.args or None, deps, keep)
        parts["has_approver"] = parts["has_approver"] or seed.is_attended
        call = warned_of_change(call_of(header, seed, document, resolved, earlier, **parts))
        if seed.is_system_own:
            call.system_args = None
        if seed.is_system_late:
            call.opening = opening_of(agent, deps)
        return with_options(agent, call, options)

    def check_prompt(header: Header) -> None:
        path = seed_of(header).prompt
        if path == (prompt or agent.prompt).path:
            return
        actual = "the agent's own" if prompt is None else repr(prompt.path or prompt)
        began = f"{path!r}, with which the run began" if path else "the prompt with which the run began"
        raise UsageError(f"prompt: expected {began}, got {actual}; pass prompt=…, or Worker(prompts=[…]) to a worker")

    def check_change_too(header: Header) -> None:
        check_change(make(header, None), on_change)  # this checks the path first

    environment = agent._environment_with_model(options.get("model"))
    check = check_change_too if on_change == "error" else None
    return ProcessFactory(
        *(agent.name, make, turn_snapshot, environment.new_id),
        clock=environment.clock,
        check=check,
        check_answered=check or check_prompt,
    )


def with_options(agent: Agent[Any, Any], call: AgentCall[Any], options: Mapping[str, Any]) -> AgentCall[Any]:
    """Set new parser arguments or a new model, if given, on a call that has not been driven, and return the call."""
    if parser_args := options.get("parser_args"):
        call.record = call.record.changed(parser_args=plain_json("parser_args", parser_args))
    model = options.get("model")
    return call if model is None else with_model(agent, call, model)


def with_model(agent: Agent[Any, Any], call: AgentCall[Any], model: Any) -> AgentCall[Any]:
    """Return a call that has not been driven, with another model (a name or a client).

    If the agent has a budget in dollars, the model's price must be known.
    """
    require("model of a call", model, is_model(model), MODEL)
    name = model if isinstance(model, str) else model.name
    require("name of the model of a call", name, isinstance(name, str) and bool(name), "a string such as 'house:m1'")
    call.client = agent._client_of(model)
    call.record = call.record.changed(model=name)
    if call.view is not None:
        call.view = View(plan_of_model(call.view.plan, model, agent.name))
    if agent.limits.cost_usd is not None:
        agent._environment_of(call).price_list.check()
    return call


def check_drivable(agent: Agent[Any, Any], claimed: Claimed) -> Claimed:
    """Return a claimed run, or release it and raise an error if it cannot be driven here."""
    call, recorder = claimed
    if recorder is None:
        return claimed
    if call.record.is_checked and call.check is None and call.record.ending is None:
        give_back(claimed)
        raise UsageError(
            f"check of the agent {agent.name!r}: expected one, since the answers of {call} are checked, got none;"
            " pass check=…"
        )
    try:
        agent._environment_of(call)
    except UsageError as error:
        give_back(claimed)
        if not call.record.model:
            raise
        raise UsageError(
            f"the run continues with the model that it began with: {error}; pass model=… to continue with another"
        ) from error
    return claimed
