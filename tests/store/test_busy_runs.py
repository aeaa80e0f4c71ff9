"""Is who answers a run that is being driven told that the answer has been posted?"""

from __future__ import annotations

import pytest

from fsm_agent import Agent, CallSuspended, MemoryStore, function
from fsm_agent.call import Approved
from fsm_agent.store import RunBusy
from fsm_agent.testing import Script, function_call


@function(needs_approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


def test_an_answer_to_a_busy_run_is_posted_and_said_to_be() -> None:
    agent = Agent(Script(function_call("pay"), "Done."), functions=[pay], name="shop", store=MemoryStore())
    with pytest.raises(CallSuspended):
        agent.call("Pay.", run_id="r")
    assert agent.store.claim("another", for_s=60, run="r")
    with pytest.raises(RunBusy) as caught:
        agent.runs.resume("r")
    assert not caught.value.is_answered
    with pytest.raises(RunBusy, match="posted") as caught:
        agent.runs.resume("r", Approved())
    assert caught.value.is_answered
    assert len(agent.store.load("r").signals) == 1
