"""Is it reported when a call continues with another prompt than it began with?"""

from __future__ import annotations

import asyncio
import logging

import pytest

from fsm_agent import Agent, Approved, CallSuspended, MemoryStore, Prompt, UsageError, Worker, function
from fsm_agent.call import restore, snapshot
from fsm_agent.errors import PromptChanged
from fsm_agent.store import Runs
from fsm_agent.testing import Script, function_call


@function(needs_approval=True)
def pay(euros: int) -> str:
    """Pay."""
    return "paid"


OLD = Prompt("Pay {{ n }}.", path="shop/pay", functions=[pay])
NEW = OLD.extend(on_final="Enough.")


@pytest.fixture
def agent():
    """An agent that has a run "r1" of the old prompt, which waits for an approval."""
    agent = Agent(Script(function_call("pay", euros=5), "done", "done"), name="shop", store=Runs(MemoryStore()))
    with pytest.raises(CallSuspended) as caught:
        agent.call(OLD(n=5), run_id="r1")
    vars(agent)["waiting"] = caught.value.call
    return agent


def answers(agent: Agent) -> dict:
    return {agent.runs.all.store.load("r1", after=None).run.waits[0].key: Approved()}


@pytest.mark.parametrize("verb", ["get", "resume", "replay", "at", "fork"])
def test_what_is_no_prompt_is_refused(agent, verb):
    with pytest.raises(UsageError, match="prompt"):
        getattr(agent.runs, verb)("r1", prompt="shop/pay")


class TestResume:
    def test_the_same_prompt_is_no_change(self, agent, caplog):
        result = agent.runs.resume("r1", answers(agent), prompt=OLD, on_change="error")
        assert (result.output, result.prompt_change, caplog.records) == ("done", None, [])

    def test_another_is_reported_and_the_run_goes_on(self, agent, caplog):
        result = asyncio.run(agent.runs.aresume("r1", answers(agent), prompt=NEW))
        assert result.output == "done"
        change = result.prompt_change
        assert (change.path, change.before, change.after) == ("shop/pay", OLD.fingerprint, NEW.fingerprint)
        [record] = [record for record in caplog.records if record.name == "fsm_agent"]
        assert record.levelno == logging.WARNING
        assert "r1" in record.getMessage()
        assert "shop/pay" in record.getMessage()
        assert result.call.prompt_change is change

    def test_that_it_is_an_error_leaves_the_run_as_it_is(self, agent):
        open_questions = answers(agent)
        for _ in range(8):  # more than a run may be claimed in vain
            with pytest.raises(PromptChanged, match="shop/pay"):
                agent.runs.resume("r1", open_questions, prompt=NEW, on_change="error")
        loaded = agent.runs.all.store.load("r1", after=0)
        assert (loaded.signals, loaded.run.holder, str(loaded.run.state)) == ((), None, "ToolInterrupt")
        assert agent.runs.resume("r1", open_questions, prompt=OLD).output == "done"

    def test_a_run_that_goes_on_by_its_name(self, agent, caplog):
        with pytest.raises(CallSuspended) as caught:
            agent.call(NEW(n=5), run_id="r1")
        assert caught.value.call.prompt_change.before == OLD.fingerprint
        assert "shop/pay" in caplog.text

    def test_a_worker_goes_on_with_it(self, agent, caplog):
        agent.runs.all.answer("r1", answers(agent))
        assert Worker([agent], agent.runs.all, prompts=[NEW]).run(once=True) >= 1
        assert agent.runs.all.store.load("r1", after=None).run.is_ended
        assert "shop/pay" in caplog.text


class TestRestore:
    def test_the_same_prompt_is_no_change(self, agent, caplog):
        call = agent.restore(snapshot(agent.waiting), OLD, on_change="error")
        assert (call.prompt_change, caplog.records) == (None, [])

    def test_another_is_reported_and_the_call_goes_on(self, agent, caplog):
        call = agent.restore(snapshot(agent.waiting), NEW)
        assert call.prompt_change.before == OLD.fingerprint
        assert "shop/pay" in caplog.text
        call.advance(call.effects[0].key, Approved())
        assert agent.run(call).prompt_change is call.prompt_change

    def test_it_may_be_an_error(self, agent):
        for attempt in (agent.restore, restore):
            with pytest.raises(PromptChanged, match="shop/pay"):
                attempt(snapshot(agent.waiting), NEW, on_change="error")
        assert restore(snapshot(agent.waiting), NEW).prompt_change.after == NEW.fingerprint
        with pytest.raises(UsageError, match="on_change"):
            restore(snapshot(agent.waiting), NEW, on_change=None)  # type: ignore[arg-type]

    def test_a_function_of_the_agent_that_changed(self, caplog):
        script = Script(function_call("pay", euros=5))
        with pytest.raises(CallSuspended) as caught:
            Agent(script, functions=[pay]).call("Pay 5.")

        @function(needs_approval=True, name="pay")
        def other(euros: int) -> str:
            """Pay at once."""
            return "paid"

        assert Agent(script, functions=[pay]).restore(snapshot(caught.value.call)).prompt_change is None
        assert Agent(script, functions=[other]).restore(snapshot(caught.value.call)).prompt_change is not None
