"""Does a record say where a call stands?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.agent_calls import begun, seeded

from fsm_agent.call import CallRecord, Limits, State
from fsm_agent.errors import UsageError
from fsm_agent.messages import FunctionCall, Message


def record(**facts) -> CallRecord:
    return CallRecord.of([Message.of("user", "?")]).changed(**facts)


@given(st.integers(), st.text())
def test_a_change_makes_another_record_and_leaves_this_one(turn, name):
    before = record(id="a")
    after = before.changed(turn=turn, id=name)
    assert (before.turn, before.id) == (0, "a")
    assert (after.turn, after.id, after.dialog) == (turn, name, before.dialog)
    assert after == record(turn=turn, id=name)


def test_it_holds_what_the_call_is_begun_with():
    given = {
        "limits": Limits(rounds=2),
        "depth": 3,
        "extra": {"order": 17},
        "by": "ann",
        "parser_args": {"unit": "m"},
        "governed_by": "billing",
    }
    made = CallRecord.of([Message.of("user", "?")], **given)
    assert {name: getattr(made, name) for name in given} == given
    with pytest.raises(UsageError, match="by: "):
        CallRecord.of([], by=17)


def test_the_order_of_a_trace_does_not_make_another_record():
    call = begun()
    assert call.record == call.record.changed(trace=seeded().record.trace)


def test_what_is_pending():
    asks = FunctionCall(name="f", arguments_json="{}", id="1.0", needs_approval=True)
    done = FunctionCall(name="f", arguments_json="{}", id="1.1", error="no", needs_approval=True)
    assert record(round=(asks, done)).pending == (asks,)


@pytest.mark.parametrize(
    ("limit", "state", "deadline_s"), [(None, State.CALLING, None), (5.0, State.SEEDED, None), (0, State.BACKOFF, 10.0)]
)
def test_the_deadline(limit, state, deadline_s):
    one = record(limits=Limits(deadline_s=limit), state=state, started_at_s=10.0)
    assert (one.deadline_s, one.renewed(60.0).deadline_s) == (deadline_s, deadline_s and 50 + deadline_s)
