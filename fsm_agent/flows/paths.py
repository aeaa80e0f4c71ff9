"""Finds the states of a flow by the paths and keys in its runs, for listeners and for answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fsm_agent.agents.agent import Agent
from fsm_agent.agents.hooks import make_listener
from fsm_agent.call.outcomes import Outcome, Returned
from fsm_agent.call.process import INBOX, SEPARATOR, prefix_of
from fsm_agent.errors import OutcomeError, UsageError
from fsm_agent.flows.checks import Agents
from fsm_agent.flows.definition import FlowDefinition
from fsm_agent.flows.process import name_in, outcome_of
from fsm_agent.flows.run import FlowRun
from fsm_agent.flows.states import (
    CallState,
    FunctionState,
    LiveState,
    ParallelState,
    State,
    SubflowState,
    WaitState,
    states_inside,
)
from fsm_agent.functions.function import Function
from fsm_agent.messages.events import Event
from fsm_agent.validation import require, safe_repr


def state_at(flow: FlowDefinition[Any], path: str) -> tuple[State[Any] | None, str]:
    """Return the state at a path of names, or None, and the rest of the path beyond it."""
    name, _, rest = path.partition(SEPARATOR)
    state = flow.states.get(name_in(name).partition("#")[0])
    while rest and isinstance(state, ParallelState):
        name, _, rest = rest.partition(SEPARATOR)
        known = {member.name: member for member in state.members}
        state = known.get(name_in(name), state.members[0])
    if rest and isinstance(state, SubflowState):
        return state_at(state.flow, rest)
    return state, rest


def agents_of(flow: FlowDefinition[Any]) -> list[Agent[Any, Any]]:
    """Return the agents of a flow, including its inner flows and members."""
    return [agent for state, agents in _calls(flow) if (agent := state.agent_in(agents)) is not None]


def functions_of(flow: FlowDefinition[Any]) -> list[Function]:
    """Return the functions that are states of a flow, including its inner flows and members."""
    return [state.function for state, _ in states_inside(flow.live) if isinstance(state, FunctionState)]


def _calls(flow: FlowDefinition[Any]) -> list[tuple[CallState[Any, Any], Agents]]:
    """Return the states that ask agents, here and inside, with the agents bound there."""
    return [found for found in states_inside(flow.live, flow.agents) if isinstance(found[0], CallState)]


def _flows_inside(flow: FlowDefinition[Any]) -> list[FlowDefinition[Any]]:
    return [state.flow for state, _ in states_inside(flow.live) if isinstance(state, SubflowState)]


def check_clients(flow: FlowDefinition[Any], clients: Mapping[Any, Any]) -> None:
    """Refuse models for states that ask no agent.  Otherwise the tests would silently use the real models."""
    asking = [state for state, _ in _calls(flow)]
    known = [known_key for state in asking for known_key in state.client_keys]
    for key, client in clients.items():
        is_client = hasattr(client, "acomplete") and not isinstance(client, type)
        require(f"clients[{safe_repr(key)}]", client, is_client, "a client, such as Script('…') in tests")
        if not any(key is known_key for known_key in known):
            names = ", ".join([state.name for state in asking]) or "none"
            right = f"states of the flow {flow.name!r} that ask an agent ({names})"
            raise UsageError(f"clients: expected {right}, got {safe_repr(key)}")


def has_listener(flow: FlowDefinition[Any]) -> bool:
    """Return whether the flow, or an inner agent or flow, has hooks.

    An agent that the data choose is assumed to have hooks.
    """
    if any(one.hooks for one in (flow, *_flows_inside(flow))):
        return True
    asked = [state.agent_in(agents) for state, agents in _calls(flow)]
    return any(
        agent is None
        or agent.hooks
        or any(f.delegate.has_listener for f in agent.prompt.offers if f.delegate is not None)
        for agent in asked
    )


def listener_of(flow: FlowDefinition[Any], run: FlowRun[Any]) -> Callable[[Event], None] | None:
    """Return the listener that passes events to the hooks of a flow and its parts, or None if there are no hooks."""
    if not has_listener(flow):
        return None
    run.run_context.has_listener = True
    return make_listener(flow.hooks, run, flow.name)


def outcomes_of(
    flow: FlowDefinition[Any],
    answers: Mapping[Any, Any],
    asked: Iterable[str],
    made: Callable[[], FlowRun[Any]],
) -> dict[str, Outcome]:
    """Return the answers as outcomes by key.

    ``answers`` are values or outcomes, by state or by key.  ``asked`` are the keys of the open questions.  ``made``
    returns the run, upgraded to the present version of the flow.
    """
    keys = {key: key for key in asked}  # the keys as they are asked, by their present names
    if any(one.upgrades for one in (flow, *_flows_inside(flow))):
        run = made()
        keys = {run.present_key(key): key for key in keys}
    found: dict[str, Outcome] = {}
    for whom, value in answers.items():
        whom = _named(flow, whom, keys)
        if _may_come_early(whom):
            key, outcome = _for_inbox(flow, made(), whom, value)
            found[key] = outcome
            continue
        if isinstance(whom, State):
            own = [key for key in keys if state_at(flow, key)[0] is whom]
            if len(own) != 1:
                asked_now = ", ".join(map(repr, own or keys)) or "nothing"
                what = f"several; answer by key: {asked_now}" if own else f"none (asked now: {asked_now})"
                raise OutcomeError(f"the state {whom.name!r}: expected one open question, got {what}")
            key = own[0]
        else:
            key = next((now for now, before in keys.items() if before == whom), whom)
        state, rest = state_at(flow, key) if isinstance(key, str) else (None, "")
        if not isinstance(value, Outcome):
            value = _outcome(key, state, value)
        elif (
            isinstance(value, Returned)
            and key in keys
            and isinstance(state, LiveState)
            and not (rest or value.is_error)
        ):
            state.answer_types.load(value.text)  # or the driver would refuse it, and the sender would not know
        found[keys.get(key, key)] = value
    return found


def _may_come_early(whom: Any) -> bool:
    if isinstance(whom, WaitState):
        return whom.is_early
    return isinstance(whom, str) and prefix_of(whom) == INBOX


def _for_inbox(flow: FlowDefinition[Any], run: FlowRun[Any], whom: Any, value: Any) -> tuple[str, Outcome]:
    """Return the key of an inbox, and an answer for it as an outcome."""
    keys = [whom] if isinstance(whom, str) else run.inboxes_of(whom)
    if len(keys) != 1:
        what = f"several; answer by key: {', '.join(keys)}" if keys else "none (a flow inside has one while it runs)"
        raise OutcomeError(f"{whom!r}: expected one inbox in {run}, got {what}")
    key: str = keys[0]
    outcome = value if isinstance(value, Outcome) else _outcome(key, state_at(flow, key)[0], value)
    process: Any = run.owner(key).process
    process.check_unasked(key.rpartition(SEPARATOR)[2], outcome)
    return key, outcome


def _named(flow: FlowDefinition[Any], whom: Any, keys: Mapping[str, str]) -> Any:
    """Return the asking state with this name, or the argument itself if no asking state has the name."""
    if not (isinstance(whom, str) and whom.isidentifier()):
        return whom
    return next((state for key in keys if (state := state_at(flow, key)[0]) is not None and state.name == whom), whom)


def _outcome(key: Any, state: State[Any] | None, value: Any) -> Outcome:
    if not isinstance(state, LiveState):
        raise OutcomeError(f"answer {safe_repr(value)}: expected the key of a state that asks, got {safe_repr(key)}")
    return outcome_of(state, value)
