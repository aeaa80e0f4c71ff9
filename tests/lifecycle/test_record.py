"""Does a record say where a call stands?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent._internal.vector import Vector
from fsm_agent.lifecycle import CallRecord, Limits, State
from fsm_agent.lifecycle.record import ASKING, FINAL, LIVE
from fsm_agent.messages import FunctionCall, Message


def record(**facts) -> CallRecord:
    return CallRecord(dialog=Vector([Message.of("user", "?")]), **facts)


def settled(*ids: str) -> Vector[FunctionCall]:
    return Vector([FunctionCall(name="f", arguments_json="{}", id=id, result="r") for id in ids])


def test_states_are_live_or_final_and_shown_by_their_names():
    assert {*LIVE, *FINAL} == set(State)
    assert not set(LIVE) & set(FINAL)
    assert set(ASKING) < set(LIVE)
    assert [str(state) for state in FINAL] == ["Completed", "Failed"]


@pytest.mark.spec("4.1: a state is never changed")
@given(st.integers(), st.text())
def test_a_change_makes_another_record_and_leaves_this_one(turn, name):
    before = record(id="a")
    after = before.changed(turn=turn, id=name)
    assert (before.turn, before.id) == (0, "a")
    assert (after.turn, after.id, after.dialog) == (turn, name, before.dialog)
    assert after == CallRecord(dialog=before.dialog, turn=turn, id=name)


def test_what_is_no_field_is_refused():
    with pytest.raises(TypeError, match="`CallRecord` has no field"):
        record().changed(turns=1, speed=2)


def test_the_order_of_a_trace_does_not_make_another_record():
    from fsm_agent.messages import Stepped

    assert record() == record(trace=Vector([Stepped("Seeded", "begun", "Calling", "begin", 0.0)]))


@pytest.mark.parametrize(("ids", "newest"), [((), ()), (("2.0", "12.0", "12.1"), ("12.0", "12.1"))])
def test_the_newest_round(ids, newest):
    assert tuple(f.id for f in record(function_calls=settled(*ids)).newest_round) == newest


def test_what_is_pending():
    asks = FunctionCall(name="f", arguments_json="{}", id="1.0", needs_approval=True)
    done = FunctionCall(name="f", arguments_json="{}", id="1.1", error="no", needs_approval=True)
    assert record(round=(asks, done)).pending == (asks,)


@pytest.mark.parametrize(
    ("limit", "state", "deadline_s"),
    [(None, State.CALLING, None), (0, State.BACKOFF, 10.0)],
)
def test_the_deadline(limit, state, deadline_s):
    assert record(limits=Limits(deadline_s=limit), state=state, started_at_s=10.0).deadline_s == deadline_s
