"""Does an advance report its changes correctly, and does a driver notice outside changes?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest
from flow_runs import Driver, everywhere

from fsm_agent import Agent, Approved, Denied, Limits, Message, Reply, function
from fsm_agent.call import (
    Begun,
    Cancelled,
    Expired,
    FunctionFailed,
    Interrupted,
    Outcome,
    Replied,
    Returned,
    RunAgain,
    Slept,
    Started,
)
from fsm_agent.errors import OutcomeError
from fsm_agent.flows import Flow, FlowRun, ask, each, end, execute, gather, race, subflow, wait
from fsm_agent.messages import FunctionCall
from fsm_agent.runtime import Environment
from fsm_agent.testing import FakeClock, Script


@dataclass(frozen=True)
class Batch:
    count: int = 0
    results: tuple[Any, ...] = ()


def numbers(d: Batch) -> range:
    return range(d.count)


@function(needs_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@function
def look_up(word: str) -> str:
    """Look up."""
    return word


@execute(once=True)
def transfer(n: int) -> str:
    return str(n)


@execute
def double(n: int) -> str:
    return str(2 * n)


@wait(str)
def someone(n: int) -> str:
    return "?"


over = end("over")
patient = Agent("openai:gpt-5-mini", name="patient", functions=[pay, look_up], limits=Limits(deadline_s=1000.0))
hasty = Agent("openai:gpt-5-mini", name="hasty", functions=[pay, look_up], limits=Limits(deadline_s=100.0))
asking = ask(patient, name="asking")(lambda n: f"Pay {n}.")
hurrying = ask(hasty, name="hurrying")(lambda n: f"Pay {n}.")
first = race("first", asking, someone, double)
inner = Flow("inner", int, start=first, rows=[first.done(over)])
all_of = gather("all_of", hurrying, transfer, subflow("inner_flow", inner, lambda n: n))
deep = Flow("deep", int, start=all_of, rows=[all_of.done(over)])
doubling = each("doubling", double, range)
doubled = Flow("doubled", int, start=doubling, rows=[doubling.done(over)])
MEMBERS = {
    "functions": double,
    "functions that must not run twice": transfer,
    "calls": asking,
    "flows that may end where they begin": subflow("each_of", doubled, lambda n: n % 3),
    "flows with members": subflow("nested", deep, lambda n: n),
}


def flow_of(member: Any, parallel: int | None) -> Flow[Batch]:
    many = each("many", member, numbers, parallel=parallel, settled=True)
    return Flow("many of them", Batch, start=many, rows=[many.done(over, do=lambda d, a: replace(d, results=a))])


def reply(random: Random, number: int) -> Reply:
    if random.random() < 0.4:
        return Reply(message=Message.of("assistant", "done"))
    calls = [
        FunctionCall(id=f"c{number}.{i}", name=name, arguments_json=arguments)
        for i, (name, arguments) in enumerate([("pay", '{"amount": 1}'), ("look_up", '{"word": "a"}')])
    ]
    return Reply(message=Message(role="assistant", parts=tuple(calls)))


def an_outcome(random: Random, key: str, number: int, at_s: float) -> Outcome:
    match key.rpartition("/")[2].partition(":")[0]:
        case "begin":
            return Begun(id="r", at_s=at_s)
        case "model":
            return Replied(reply=reply(random, number), at_s=at_s)
        case "ask":
            return random.choice([Approved(at_s=at_s), Denied(at_s=at_s)])
        case "start":
            return Started(at_s=at_s)
        case "reconcile":
            return random.choice([Returned(text='"x"', at_s=at_s), RunAgain(at_s=at_s)])
        case "sleep":
            return Slept(at_s=at_s)
        case "answer":
            return Returned(text='"x"', at_s=at_s)
    if "transfer" in key and random.random() < 0.3:
        return Interrupted(at_s=at_s)
    return Returned(text='"x"', at_s=at_s) if random.random() < 0.8 else FunctionFailed(text="broken", at_s=at_s)


WALKS = 2


def keys(run: FlowRun[Any]) -> set[str]:
    return {effect.key for effect in run.effects}


@pytest.mark.parametrize("parallel", [2, None])
@pytest.mark.parametrize("name", MEMBERS)
def test_what_has_changed_is_what_a_new_look_sees(name: str, parallel: int | None) -> None:
    told = 0
    for seed in range(WALKS):
        random, flow = Random(seed), flow_of(MEMBERS[name], parallel)
        run = flow.prepare(Batch(8))
        for number in range(300):
            before = keys(run)
            if not before:
                break
            assert run.deadline == FlowRun(flow, run.record, run.run_context).deadline
            key = random.choice(sorted(before))
            outcome = an_outcome(random, key, number, at_s=1.0 + number)
            if random.random() < 0.02 and key.count("/") > 1:  # a process inside is ended
                key, outcome = f"{key.rpartition('/')[0]}/", Cancelled(at_s=1.0 + number)
            elif random.random() < 0.02 and run.deadline is not None:
                key, outcome = run.deadline.key, Expired(at_s=1.0 + number)
            if random.random() < 0.1:
                with pytest.raises(OutcomeError):
                    run.advance(f"{key}?", outcome)
            record, deadline = run.record, run.deadline
            run.advance(key, outcome)
            assert run.record is not record
            anew = FlowRun(flow, run.record, run.run_context)
            change, after = run.change, keys(run)
            assert run.effects == anew.effects
            if change is None:
                continue
            told += 1
            assert before - after - {key} == set(change.gone)
            assert [effect.key for effect in change.new] == [e.key for e in run.effects if e.key not in before]
            assert key not in after
            assert all(effect in anew.effects for effect in change.new)
            assert change.has_moved_deadline or run.deadline == deadline
        assert run.record.ending is not None
    assert told > 4 * WALKS  # most steps tell


@pytest.mark.parametrize("has_listener", [True, False])
def test_the_deadline_of_a_member_holds_from_its_own_start(has_listener: bool) -> None:
    clock = FakeClock()

    class Slow(Script):
        async def acomplete(self, request: Any, *, timeout_s: float | None = None) -> Reply:
            n = int(request.messages[-1].text.strip("Pay ."))
            clock.advance(80)  # of 100 seconds
            return Reply(message=Message.of("assistant", f"paid {n}"))

        async def astream(self, request: Any, *, timeout_s: float | None = None) -> Any:
            yield await self.acomplete(request)

    flow = replace(flow_of(hurrying, 1), environment={"clock": clock})
    client: Any = Slow()
    run = flow.prepare(Batch(3), clients={hurrying: Environment.of(client, clock=clock).client})
    flow.run(run, (lambda _: None) if has_listener else None)
    assert run.data.results == ("paid 0", "paid 1", "paid 2")


@pytest.mark.parametrize("parallel", [2, None])
@everywhere
def test_members_that_must_not_run_twice_run_once(driven: Driver, parallel: int | None) -> None:
    flow = flow_of(transfer, parallel)
    run = flow.prepare(Batch(5))
    driven(flow, run)
    assert run.data.results == ("0", "1", "2", "3", "4")
