"""All that can happen to a call whose agents hand the dialog over, breadth-first, within small limits."""

from __future__ import annotations

from functools import partial
from typing import Any

from model_checker import Explored, explore_from
from support.agent_calls import asked, assert_sendable

from fsm_agent import Agent, Limits, function, handoff
from fsm_agent.call import (
    AgentCall,
    Approved,
    AskApproval,
    Begin,
    Begun,
    CallModel,
    CallRecord,
    Cancelled,
    Denied,
    Expired,
    Injected,
    Replied,
    Returned,
    State,
)
from fsm_agent.call import Stopped as Stop
from fsm_agent.messages import Message
from fsm_agent.testing import Script, check_record, function_call

REPLIES = {
    "answer": asked(text="42"),
    "hand": asked(function_call("hand")),
    "hand, tick": asked(function_call("hand"), function_call("tick")),
    "hand, hand twice": asked(function_call("hand"), function_call("hand", reason="again")),
    "allowed": asked(function_call("allowed"), function_call("hand")),
    "tick": asked(function_call("tick")),
}


@function
def tick() -> str:
    """Tick."""
    return "1"


def team(limits: Limits, *, is_cyclic: bool) -> Agent[Any, Any]:
    """Two agents; the second may hand the dialog back."""
    back = [tick, handoff(lambda: first, name="hand", description="Back.")] if is_cyclic else [tick]
    second = Agent(Script(), name="second", system="Second.", functions=back, limits=limits)
    over = [tick, handoff(second, name="hand"), handoff(second, name="allowed", needs_approval=True)]
    first = Agent(Script(), name="first", system="First.", functions=over, limits=limits)
    return first


def explore_handoffs(limits: Limits, *, is_cyclic: bool, governed_by: str = "") -> Explored:
    """Explore everything that can happen to a call of a team."""
    agent = team(limits, is_cyclic=is_cyclic)
    first = agent.prepare("?").record.changed(governed_by=governed_by)
    return explore_from(first, _configuration, partial(AgentCall, prompt=agent.prompt), _moves, _check)


def _moves(call: AgentCall[Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = [("", Expired()), ("", Cancelled()), ("", Stop())] if call.effects else []
    hurry = Message.of("user", "Hurry.")
    if call.record.state is State.HANDED_OVER and _innermost(call.record).state is State.CALLING:
        found += [("", Injected((hurry,)))] if hurry not in _innermost(call.record).dialog else []
    for effect in call.effects:
        match effect:
            case Begin(key):
                found.append((key, Begun(at_s=1.0, id="x")))
            case CallModel(key):
                assert_sendable(effect.request.messages)
                found += [(key, Replied(reply=reply)) for reply in REPLIES.values()]
            case AskApproval(key):
                found += [(key, Approved()), (key, Denied())]
            case _:
                found.append((effect.key, Returned(text="1")))
    return found


def _innermost(r: CallRecord) -> CallRecord:
    return _innermost(next(iter(r.children.values()))) if r.children else r


def _check(before: CallRecord, key: str, outcome: Any, call: AgentCall[Any]) -> None:
    r = call.record
    assert check_record(r) is None
    assert (r.ending is None) == bool(call.effects)
    assert bool(r.children) == (r.state is State.HANDED_OVER)
    if r.ending is not None:
        assert_sendable(r.dialog)
        systems = [m for m in r.dialog if m.role == "system"]
        assert [m.text for m in systems] == ["First."]
        assert (r.successor is not None) == any(step.trigger == "relayed" for step in r.trace)


def _configuration(r: CallRecord) -> object:
    waiting = tuple((f.name, f.needs_approval, f.is_settled) for f in r.round)
    ended = r.ending and r.ending.reason
    inside = tuple(_configuration(child) for child in r.children.values())
    injected = any(m.text == "Hurry." for m in r.dialog)
    done = frozenset(f.fingerprint for f in r.function_calls if f.succeeded)
    return r.state, r.rounds, r.handoffs, r.governed_by, waiting, injected, done, ended, inside
