"""All that can happen to a call whose agents hand the dialog over, breadth-first, within small limits."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from model_checker import check_that_all_can_end
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
    Reason,
    Replied,
    Returned,
    State,
)
from fsm_agent.call import Stopped as Stop
from fsm_agent.messages import Inside, Message
from fsm_agent.testing import Script, check_record, function_call

REPLIES = {
    "answer": asked(text="42"),
    "hand": asked(function_call("hand")),
    "hand, tick": asked(function_call("hand"), function_call("tick")),
    "hand, hand twice": asked(function_call("hand"), function_call("hand", reason="again")),
    "allowed": asked(function_call("allowed"), function_call("hand")),
    "tick": asked(function_call("tick")),
}


@dataclass
class Found:
    """Rows that were taken by any agent, the reasons of the outermost call, and the configurations."""

    rows: set[tuple[str, str, str, str]] = field(default_factory=set)
    reasons: Counter[Reason] = field(default_factory=Counter)
    configurations: int = 0


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


def explore_handoffs(limits: Limits, *, is_cyclic: bool, governed_by: str = "") -> Found:
    """Take every step from every configuration, and check each."""
    agent, found = team(limits, is_cyclic=is_cyclic), Found()
    first = agent.prepare("?").record.changed(governed_by=governed_by)
    known, waiting = {_configuration(first)}, deque([first])
    ending, before = set[object](), dict[object, set[object]]()
    while waiting:
        record = waiting.popleft()
        for key, outcome in _moves(_call(agent, record)):
            call = _call(agent, record)
            call.advance(key, outcome)
            _check(call)
            for event in call.steps:
                step: Any = event.event if isinstance(event, Inside) else event
                found.rows.add((step.source, step.trigger, step.to, step.guard))
            there = _configuration(call.record)
            if not isinstance(outcome, Expired | Cancelled | Stop):
                before.setdefault(there, set()).add(_configuration(record))
            if there not in known:
                known.add(there)
                waiting.append(call.record)
            if call.record.ending is not None:
                found.reasons[call.record.ending.reason] += 1
                ending.add(there)
    check_that_all_can_end(known, ending, before)
    found.configurations = len(known)
    return found


def _call(agent: Agent[Any, Any], record: CallRecord) -> AgentCall[Any]:
    return type(agent.prepare("?"))(record, agent.prompt)


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


def _check(call: AgentCall[Any]) -> None:
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
