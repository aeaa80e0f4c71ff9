"""Is the table sound, and does each rule do what its name says?"""

from __future__ import annotations

from collections import deque
from itertools import groupby

import pytest
from walking import PROMPT, asked, assert_sendable, function_call, seeded

from fsm_agent import table
from fsm_agent.call import AgentCall
from fsm_agent.effects import AskApproval, Begin, CallModel, Sleep
from fsm_agent.errors import ErrorReport
from fsm_agent.limits import Limits
from fsm_agent.messages import Message
from fsm_agent.outcomes import (
    Approved,
    Begun,
    Cancelled,
    Denied,
    Expired,
    FunctionFailed,
    ModelFailed,
    Modified,
    Replied,
    Returned,
    Slept,
)
from fsm_agent.reading import Spoken
from fsm_agent.record import FINAL, LIVE, CallRecord, Reason, State
from fsm_agent.replies import Reply
from fsm_agent.vector import Vector

FLAT = [
    (trigger, source, to or source, guard)
    for trigger, sources, to, guard, _ in table.ROWS
    for source in ((sources,) if isinstance(sources, State) else sources)
]


def test_every_state_is_reached_and_every_live_state_can_end():
    reached = {State.SEEDED}
    for _ in State:
        reached |= {to for _, source, to, _ in FLAT if source in reached}
    assert reached == set(State)
    ending = set(FINAL)
    for _ in State:
        ending |= {source for _, source, to, _ in FLAT if to in ending}
    assert ending == set(State)


def test_final_states_have_no_exits_and_live_ones_have():
    assert {source for _, source, _, _ in FLAT} == set(LIVE)


def test_the_last_row_of_each_trigger_and_source_has_no_guard_and_the_others_have():
    ordered = sorted(FLAT, key=lambda row: (row[0], row[1]))
    for key, rows in groupby(ordered, key=lambda row: row[:2]):
        *others, last = rows
        assert last[3] is None, key
        assert all(row[3] is not None for row in others), key


def test_rules_are_functions_of_the_table_module_named_once():
    rules = {rule for *_, guard, action in table.ROWS for rule in (guard, action) if rule}
    assert all(getattr(table, rule.__name__) is rule for rule in rules)


def test_rules_need_no_machine():
    r = CallRecord(dialog=Vector([Message.of("user", "?")]), state=State.CALLING)
    wrong = Spoken(Reply.of("forty-two"), problem="no number")
    assert table.may_retry(r, wrong, PROMPT)
    assert not table.may_retry(r.changed(parse_errors=3), wrong, PROMPT)
    fixed = table.ask_to_fix(r, wrong, PROMPT)
    assert [m.role for m in fixed.branch] == ["assistant", "user"]
    assert "no number" in fixed.branch[1].text
    assert fixed.dialog == r.dialog


@pytest.mark.spec("1.27", "3.1")
def test_the_model_is_checked_in_every_configuration_within_small_limits(capsys):
    """Breadth-first over all that can happen with budgets of one, with what happened beyond them merged."""

    def replies(call: AgentCall) -> list[Reply]:
        n = call.record.turn
        return [
            asked(text="42"),
            asked(text="forty-two"),
            asked(text="enough"),
            asked(function_call("add", a=1, b=1)),
            asked(function_call("add", a=n, b=2), function_call("erase", path="x")),
            asked(function_call("nosuch")),
            asked(function_call("fetch"), function_call("login", user="a")),
            Reply(message=Message.of("assistant"), refusal="no"),
        ]

    def moves(call: AgentCall) -> list[tuple[str, object]]:
        found: list[tuple[str, object]] = [("", Expired()), ("", Cancelled())] if call.effects else []
        for effect in call.effects:
            match effect:
                case Begin(key):
                    found.append((key, Begun(at_s=0.0)))
                case CallModel(key):
                    found += [(key, Replied(reply=reply)) for reply in replies(call)]
                    found += [(key, ModelFailed(error=ErrorReport(message="", retryable=r))) for r in (True, False)]
                case Sleep(key):
                    found.append((key, Slept()))
                case AskApproval(key):
                    found += [(key, Approved()), (key, Denied()), (key, Modified('{"path": "y"}'))]
                case _:
                    found += [(effect.key, Returned(text="2")), (effect.key, Returned(text="no", is_error=True))]
                    found.append((effect.key, FunctionFailed(text="no")))
        return found

    def configuration(call: AgentCall) -> object:
        r = call.record
        said = tuple((m.role, tuple(f.name for f in m.function_calls)) for m in r.dialog)
        waiting = tuple((f.id, f.needs_approval, f.is_settled) for f in r.round)
        succeeded = frozenset(f.fingerprint for f in r.function_calls if f.succeeded)
        counted = (r.rounds, r.parse_errors, r.recalls, len(r.branch))
        return r.state, said, waiting, succeeded, counted, r.ending and r.ending.reason

    first = seeded(Limits(rounds=2, parse_retries=1, recalls=1, identical_rounds=2))
    known, waiting, steps = {configuration(first)}, deque([first.record]), 0
    reasons = set()
    while waiting:
        record = waiting.popleft()
        for key, outcome in moves(AgentCall(record, PROMPT, stop_when=first.stop_when)):
            call = AgentCall(record, PROMPT, stop_when=first.stop_when)
            call.advance(key, outcome)
            steps += 1
            if call.record.ending:
                reasons.add(call.record.ending.reason)
                assert_sendable(call.record.dialog)
            if configuration(call) not in known:
                known.add(configuration(call))
                waiting.append(call.record)
    with capsys.disabled():
        print(f"\n{len(known)} configurations of an agent call checked, {steps} steps")
    assert len(known) > 500
    assert reasons == set(Reason) - {Reason.TOO_DEEP}


@pytest.mark.spec("4.30")
@pytest.mark.parametrize("state", LIVE)
def test_a_call_can_be_called_off_in_every_live_state(state):
    call = AgentCall(CallRecord(dialog=Vector([Message.of("user", "?")]), state=state), PROMPT)
    call.advance("", Cancelled(reason="enough"))
    assert call.state is State.FAILED
    assert call.record.ending.reason is Reason.CANCELLED
    assert call.effects == ()
