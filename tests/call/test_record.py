"""Does a record say where a call stands?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.agent_calls import begun, seeded

from fsm_agent.call import CallRecord, Limits, State
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


def test_the_order_of_a_trace_does_not_make_another_record():
    call = begun()
    assert call.record == call.record.changed(trace=seeded().record.trace)


def test_what_is_pending():
    asks = FunctionCall(name="f", arguments_json="{}", id="1.0", needs_approval=True)
    done = FunctionCall(name="f", arguments_json="{}", id="1.1", error="no", needs_approval=True)
    assert record(round=(asks, done)).pending == (asks,)


@pytest.mark.parametrize(
    ("limit", "state", "deadline_s"),
    [(None, State.CALLING, None), (5.0, State.SEEDED, None), (0, State.BACKOFF, 10.0)],
)
def test_the_deadline(limit, state, deadline_s):
    assert record(limits=Limits(deadline_s=limit), state=state, started_at_s=10.0).deadline_s == deadline_s
