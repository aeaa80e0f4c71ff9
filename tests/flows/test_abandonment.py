"""Is a function that must not run twice never abandoned silently, wherever in a flow an agent calls it?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from flow_runs import begun

from fsm_agent import Agent, CallFailed, Limits, Reply, Toolset, function, handoff
from fsm_agent.call import Begun, Cancelled, Expired, FunctionFailed, Replied, Returned, Slept, Started, Stopped
from fsm_agent.flows import Flow, FlowError, FlowLimits, ask, each, end, execute, gather, race, subflow, wait
from fsm_agent.flows.orchestrator import Orchestrator, OrchestratorConfig
from fsm_agent.messages import Message
from fsm_agent.testing import function_call

over, late = end("over"), end("late")


@dataclass(frozen=True)
class Data:
    text: str = ""


@function(once=True)
def pay() -> str:
    """Pay."""
    return "paid"


@execute(once=True)
def paying(d: Data) -> str:
    return "paid"


class Source:
    """A source of functions, which is asked for each call."""

    @property
    def functions(self) -> list[Any]:
        return [pay]


model = "openai:gpt-5-mini"
clerk = Agent(model, name="clerk", functions=[pay])
boss = Agent(model, name="boss", functions=[clerk])
passing = Agent(model, name="passing", functions=[handoff(clerk)])
later = Agent(model, name="later", functions=[handoff(lambda: clerk, name="clerk")])
errand = Flow("errand", Data, start=paying, rows=[paying.done(over)])
sending = Agent(model, name="sending", functions=[errand])
kit = Agent(model, name="kit", functions=[Toolset([pay], name="kit")])
dynamic = Agent(model, name="dynamic", functions=[Source()])
other = wait(str, name="other")(lambda d: "?")


def around(how: str, state: Any) -> Any:
    """Return a state that may be abandoned, around another state."""
    inner = Flow("inner", Data, start=state, rows=[state.done(over)])
    made: dict[str, Callable[[], Any]] = {
        "race": lambda: race("state", state, other),
        "gather within": lambda: gather("state", state, other, within_s=5),
        "each within": lambda: each("state", state, lambda d: (Data(), Data()), within_s=5),
        "subflow within": lambda: subflow("state", inner, lambda d: d, within_s=5),
        "race of flows": lambda: race("state", subflow("sub", inner, lambda d: d), other),
        "gather in a race": lambda: race("state", gather("both", state, other), other),
    }
    return made[how]()


HOWS = ["race", "gather within", "each within", "subflow within", "race of flows", "gather in a race"]


def flow_of(state: Any, **options: Any) -> Flow[Data]:
    return Flow("f", Data, start=state, rows=[state.done(over), state.failed(late)], **options)


class TestDefinition:
    @pytest.mark.parametrize(
        ("agent", "how"), [*[(clerk, how) for how in HOWS], (boss, "race"), (passing, "race"), (kit, "race")]
    )
    def test_an_agent_whose_time_is_short_has_none(self, agent: Agent, how: str) -> None:
        asking = ask(agent, name="asking")(lambda d: "?")
        with pytest.raises(FlowError, match=f"state.*pay.*{agent.name}"):
            flow_of(around(how, asking))

    @pytest.mark.parametrize(("agent", "name"), [(clerk, "pay"), (boss, "pay"), (sending, "paying")])
    def test_nor_has_one_that_has_a_time_itself(self, agent: Agent, name: str) -> None:
        asking = ask(agent, name="asking", within_s=5)(lambda d: "?")
        with pytest.raises(FlowError, match=f"asking.*{name}.*{agent.name}"):
            flow_of(asking)

    def test_a_role_is_looked_at_when_it_is_bound(self) -> None:
        asking = ask("who", str, name="asking", within_s=5)(lambda d: "?")
        inner = subflow("inner", flow_of(asking), lambda d: d)
        for flow in (flow_of(asking), flow_of(inner)):
            with pytest.raises(FlowError, match=r"asking.*pay.*clerk"):
                flow.bound(who=clerk)
            assert flow.bound(who=Agent(model)).agents

    def test_so_it_is_with_a_team_whose_steps_have_a_time(self) -> None:
        teams: list[Agent[Any, Any]] = [Agent(model, name="writer"), clerk]
        with pytest.raises(FlowError, match=r"clerk.*pay"):
            Orchestrator(teams, config=OrchestratorConfig(step_timeout_s=5))
        assert Orchestrator(teams[:1], config=OrchestratorConfig(step_timeout_s=5))
        assert Orchestrator(teams)

    def test_an_agent_without_one_and_a_state_without_a_time_are_taken(self) -> None:
        bot = Agent(model, name="bot")
        flow_of(ask(bot, name="asking", within_s=5)(lambda d: "?"))
        flow_of(ask(clerk, name="asking")(lambda d: "?"))
        flow_of(gather("both", ask(clerk, name="asking")(lambda d: "?"), other))


class TestRun:
    """What is not known before it runs is refused in the step that would begin it, and nothing has changed."""

    @pytest.mark.parametrize(
        ("agent", "how"), [*[(clerk, how) for how in (*HOWS, "within")], (later, "race"), (dynamic, "race")]
    )
    def test_an_agent_that_is_chosen_is_refused_when_it_would_begin(self, agent: Agent, how: str) -> None:
        within_s = 5 if how == "within" else None
        asking = ask(lambda d: agent, str, name="asking", within_s=within_s)(lambda d: "?")
        run = flow_of(asking if how == "within" else around(how, asking)).prepare(Data())
        before = run.record
        with pytest.raises(FlowError, match=r"asking.*pay"):
            run.advance("begin", Begun(at_s=0.0, id="r"))
        assert run.record is before


def paid_for(run: Any, path: str) -> None:
    """Have the agent at a path begin its function that must not run twice."""
    run.advance(
        f"{path}/model:0", Replied(reply=Reply(message=Message(role="assistant", parts=(function_call("pay"),))))
    )
    run.advance(f"{path}/start:1.0", Started())


class TestEnds:
    """Where an end cannot be refused, its words name the functions that were begun."""

    asking = ask(clerk, name="asking")(lambda d: "?")

    @pytest.mark.parametrize("outcome", [Cancelled(reason="enough"), Expired(at_s=9.0)])
    def test_of_the_flow(self, outcome: Any) -> None:
        run = begun(flow_of(self.asking, limits=FlowLimits(deadline_s=9)), Data())
        paid_for(run, "asking#1")
        run.advance("", outcome)
        assert run.record.ending.detail.rpartition("; ")[2].startswith("asking#1/pay ")

    @pytest.mark.parametrize("outcome", [Cancelled(reason="enough"), Expired(at_s=9.0)])
    def test_of_the_call_alone(self, outcome: Any) -> None:
        hurried = ask(replace(clerk, limits=Limits(deadline_s=9)), name="asking")(lambda d: "?")
        rows = [hurried.done(over), hurried.failed(late, do=lambda d, why: Data(why.detail))]
        run = begun(Flow("f", Data, start=hurried, rows=rows), Data())
        paid_for(run, "asking#1")
        run.advance("asking#1/", outcome)
        assert run.state == "late"
        assert "; pay " in run.data.text

    def test_of_a_member_beside_it(self) -> None:
        failing = execute(name="failing")(_nothing)
        both = gather("both", self.asking, failing)
        rows = [both.done(over), both.failed(late, do=lambda d, why: Data(why.detail))]
        run = begun(Flow("f", Data, start=both, rows=rows), Data())
        paid_for(run, "both#1/asking")
        run.advance("both#1/run:failing", FunctionFailed(text="no"))
        assert run.data.text.startswith("no; asking/pay ")

    def test_of_what_is_further_inside(self) -> None:
        asking = ask(boss, name="asking")(lambda d: "?")
        run = begun(flow_of(asking), Data())
        message = Message(role="assistant", parts=(function_call("clerk", task="Pay."),))
        run.advance("asking#1/model:0", Replied(reply=Reply(message=message)))
        paid_for(run, "asking#1/run:1.0")
        run.advance("", Cancelled(reason="enough"))
        assert run.record.ending.detail.startswith("enough; asking#1/run:1.0/pay ")

    def test_of_a_state_whose_time_is_over_if_nobody_could_know(self) -> None:
        chosen = ask(lambda d: clerk, str, name="chosen")(lambda d: "?")
        inner = Flow("inner", Data, start=chosen, rows=[chosen.done(over)])
        asking = ask(Agent(model, functions=[inner]), name="asking", within_s=5)(lambda d: "?")
        run = begun(Flow("f", Data, start=asking, rows=[asking.done(over)]), Data())
        message = Message(role="assistant", parts=(function_call("inner"),))
        run.advance("asking#1/model:0", Replied(reply=Reply(message=message)))
        paid_for(run, "asking#1/run:1.0/chosen#1")
        run.advance("sleep:asking#1", Slept(at_s=5.0))
        assert "; asking#1/run:1.0/chosen#1/pay " in run.record.ending.detail

    def test_one_that_has_ended_is_not_named(self) -> None:
        run = begun(flow_of(self.asking), Data())
        paid_for(run, "asking#1")
        run.advance("asking#1/run:1.0", Returned(text="paid"))
        run.advance("", Cancelled(reason="enough"))
        assert run.record.ending.detail == "enough"


def _nothing(d: Data) -> str:
    return ""


@pytest.mark.parametrize("kind", ["cancelled", "stopped", "expired"])
def test_the_record_of_a_call_does_not_say_that_it_was_not_run(kind: str) -> None:
    @function
    def look() -> str:
        return ""

    agent = Agent(model, functions=[pay, look], limits=Limits(deadline_s=9))
    one = begun(agent, "Pay.")
    message = Message(role="assistant", parts=(function_call("pay"), function_call("look")))
    one.advance("model:0", Replied(reply=Reply(message=message)))
    one.advance("start:1.0", Started())
    outcome = {
        "cancelled": Cancelled(reason="enough"),
        "stopped": Stopped(reason="enough"),
        "expired": Expired(at_s=9.0),
    }
    one.advance("", outcome[kind])
    assert one.record.ending is not None
    assert "; pay " in one.record.ending.detail
    errors = [f.error for f in one.record.function_calls]
    assert errors[0] not in errors[1:], "only of the first it is not said that it was not run"
    if kind != "stopped":
        with pytest.raises(CallFailed, match="; pay "):
            one.result()
