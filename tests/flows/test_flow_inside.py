"""Do members and inner flows have the depth, the approvers, the policies and the usage of the outer run?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from fsm_agent import Agent, Context, Denied, Function, MemoryStore, Reply, Usage
from fsm_agent.call import Begun, Cancelled, FunctionFailed, Replied, Returned, Slept
from fsm_agent.call import snapshot as snapshot_of_call
from fsm_agent.flows import Failure, Flow, FlowFailed, FlowRun, ask, each, end, execute, gather, race, subflow, wait
from fsm_agent.testing import Script, function_call


@dataclass(frozen=True)
class Order:
    n: int = 0


over = end("over")


def flow_of(state: Any, **options: Any) -> Flow[Order]:
    return Flow("f", Order, start=state, rows=[state.done(over)], **options)


def begun(flow: Flow[Any], depth: int = 0) -> FlowRun[Any]:
    run = FlowRun(flow, flow.record_of(Order(), depth))
    run.advance("begin", Begun(at_s=0.0, id="r"))
    return run


def ones(d: Order) -> tuple[Order, ...]:
    return (d, d)


def ways(state: Any) -> list[tuple[str, Flow[Order]]]:
    nested = subflow("nested", flow_of(state), lambda d: Order())
    other = wait(int, name="other")(lambda d: "?")
    return [
        (f"{state.name}#1", flow_of(state)),
        (f"nested#1/{state.name}#1", flow_of(nested)),
        (f"both#1/{state.name}", flow_of(gather("both", state, other))),
        (f"both#1/nested/{state.name}#1", flow_of(gather("both", other, nested))),
    ]


def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def paying(model: Script | None = None, **options: Any) -> Any:
    payment = Function.of(pay, **options)
    return ask(
        Agent(model or Script(function_call("pay", amount=5), "done"), name="bot", functions=[payment]), name="asking"
    )(lambda d: "go")


@pytest.mark.parametrize("way", range(4))
def test_agents_inside_are_as_deep_as_what_is_around_them(way: int) -> None:
    path, flow = ways(paying())[way]
    run: Any = begun(flow, depth=1)
    record = run.record
    for name in path.split("/"):
        record = record.children[name]
    assert record.depth == 1


@pytest.mark.parametrize("way", range(4))
def test_a_run_that_is_restored_asks_by_the_policy_of_now(way: int) -> None:
    path, flow = ways(paying())[way]
    run = begun(flow)
    run.advance(f"{path}/model:0", Replied(reply=Reply.of(function_call("pay", amount=5)), at_s=1.0))
    assert f"{path}/run:1.0" in [effect.key for effect in run.effects]
    _, stricter = ways(paying(needs_approval=True))[way]
    again = stricter.restore(run.snapshot())
    keys = [effect.key for effect in again.effects]
    assert f"{path}/ask:1.0" in keys
    assert f"{path}/run:1.0" not in keys


@pytest.mark.parametrize("way", range(2))
def test_the_approver_of_an_agent_is_asked_before_that_of_the_flow(way: int) -> None:
    asked: list[str] = []

    def own(question: Any) -> Denied:
        asked.append("own")
        return Denied("no")

    def of_flow(question: Any) -> Denied:
        asked.append("flow")
        return Denied("no")

    def flow_with(approve: Any) -> Flow[Order]:
        payment = Function.of(pay, needs_approval=True)
        model = Script(function_call("pay", amount=5), "done")
        agent = Agent(model, name="bot", functions=[payment], approve=approve)
        _, flow = ways(ask(agent, name="asking")(lambda d: "go"))[way]
        return replace(flow, approve=of_flow)

    flow_with(own).call(Order())
    assert asked == ["own"]
    flow_with(None).call(Order())
    assert asked == ["own", "flow"]


def test_tokens_of_what_is_let_go_of_are_on_the_bill() -> None:
    agent = Agent(Script("x"), name="bot")
    one, two = [ask(agent, name=name)(lambda d: "go") for name in ("one", "two")]
    late = gather("both", one, two, within_s=5)
    both: Any = Flow("f", Order, start=late, rows=[late.done(over), late.elapsed(over)])
    ends: list[Any] = [("", Cancelled(at_s=2.0)), ("sleep:both#1", Slept(at_s=5.0))]
    for key, outcome in ends:
        run = begun(both)
        reply = replace_usage(Reply.of("x"))
        run.advance("both#1/one/model:0", Replied(reply=reply, at_s=1.0))
        run.advance(key, outcome)
        assert run.record.ending is not None
        assert run.record.total_usage.total_tokens == 10


def replace_usage(reply: Reply) -> Reply:
    return reply.changed(usage=Usage(input_tokens=7, output_tokens=3))


@pytest.mark.parametrize("why", ["enough is enough", True])
def test_a_call_that_is_stopped_without_an_output_has_failed(why: Any) -> None:
    agent = Agent(Script(function_call("pay", amount=5)), name="bot", functions=[pay], stop_when=lambda context: why)
    state = ask(agent, name="asking")(lambda d: "go")
    lost = end("lost")
    flow = Flow("f", Order, start=state, rows=[state.done(over), state.failed(lost)])
    result = flow.call(Order())
    assert result.state == "lost"
    reason, _, detail = result.trace[-1].detail.partition(": ")
    assert reason == "stopped"
    assert detail


def test_an_answer_may_be_none() -> None:
    agent = Agent(Script("null"), name="bot", output=int | None)
    state: Any = ask(agent, name="asking")(lambda d: "How many?")
    none = end("none")
    flow = Flow("f", Order, start=state, rows=[state.done(over, of=int), state.done(none, of=None), state.failed(over)])
    assert flow.call(Order()).state == "none"


@execute
def left(d: Order) -> int:
    return 1


@execute
def right(d: Order) -> int:
    return 2


@pytest.mark.parametrize("order", [(left, right), (right, left)])
def test_a_race_that_is_lost_by_all_names_the_first_as_written(order: tuple[Any, Any]) -> None:
    run = begun(flow_of(race("first", left, right)))
    for state in order:
        run.give(state, Failure(f"{state.name} fell", "down"))
    with pytest.raises(FlowFailed, match="left fell: down"):
        run.result()


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_flow_that_a_function_calls_is_one_deeper_than_the_agent_of_the_function(is_kept: bool) -> None:
    seen: list[int] = []

    def look(context: Context[Any]) -> str:
        """Look."""
        seen.append(context.depth)
        return "nothing"

    inner = Agent(Script(function_call("look"), "done"), name="inner", functions=[look])
    flow = flow_of(ask(inner, name="asking")(lambda d: "go"), store=MemoryStore() if is_kept else None)

    def run_it() -> str:
        """Run the flow."""
        return flow.call(Order(), run_id="r" if is_kept else None).state

    Agent(Script(function_call("look"), function_call("run_it"), "over"), name="outer", functions=[look, run_it]).call(
        "go"
    )
    assert seen == [0, 1]
    if is_kept:
        assert flow.runs.replay("r").record.depth == 1


def test_a_flow_inside_asks_its_own_approver_also_at_a_state_that_the_outer_one_has() -> None:
    asked: list[str] = []

    def approver(name: str) -> Any:
        def approve(question: Any) -> Denied:
            asked.append(name)
            return Denied("no")

        return approve

    payment = Function.of(pay, needs_approval=True)
    model = Script(*[function_call("pay", amount=5), "done"] * 3)
    state = ask(Agent(model, name="bot", functions=[payment]), name="asking")(lambda d: "go")
    nested = subflow("nested", replace(flow_of(state), approve=approver("inner")), lambda d: d)
    again = subflow("again", flow_of(state), lambda d: d)
    rows = [state.done(nested), nested.done(again), again.done(over)]
    Flow("f", Order, start=state, rows=rows, approve=approver("outer")).call(Order())
    assert asked == ["outer", "inner", "outer"]


def test_an_agent_call_that_is_restored_asks_by_the_policy_of_now_in_a_flow_inside() -> None:
    def agent_with(**options: Any) -> Any:
        function = flow_of(paying(**options)).as_function("f")
        return Agent("openai:gpt-5-mini", name="outer", functions=[function])

    one = agent_with().prepare("go")
    one.advance("begin", Begun(at_s=0.0, id="r"))
    one.advance("model:0", Replied(reply=Reply.of(function_call("f", n=1)), at_s=1.0))
    (model,) = [effect.key for effect in one.effects]
    one.advance(model, Replied(reply=Reply.of(function_call("pay", amount=5)), at_s=2.0))
    path = model.rpartition("/")[0]
    assert [effect.key for effect in one.effects] == [f"{path}/run:1.0"]
    again = agent_with(needs_approval=True).restore(snapshot_of_call(one))
    assert [effect.key for effect in again.effects] == [f"{path}/ask:1.0"]


@pytest.mark.parametrize(("failing", "first"), [(0, 0), (0, 1)])
def test_a_failure_is_among_the_results_whichever_member_ends_last(failing: int, first: int) -> None:
    state = each("every", left, ones, settled=True)
    flow = Flow("f", Order, start=state, rows=[state.done(over, do=lambda d, a: Order(sum(x == 7 for x in a)))])
    run = begun(flow)
    for number in (first, 1 - first):
        outcome: Any = FunctionFailed(text="no") if number == failing else Returned(text="7")
        run.advance(f"every#1/run:{number}", outcome)
    assert (run.state, run.data) == ("over", Order(1))
