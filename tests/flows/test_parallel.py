"""Do members go on at once, give their results in order, and end each other when they should?"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, replace
from typing import Any

import pytest
from flow_runs import Driver, begun, by_arun, by_run, by_threads, everywhere

from fsm_agent import Agent, Approved, TextDelta, function
from fsm_agent.call import Begun, Expired, Returned
from fsm_agent.errors import Overloaded
from fsm_agent.flows import Failure, Flow, FlowLimits, ask, each, end, execute, gather, race, subflow, wait
from fsm_agent.messages import Inside
from fsm_agent.testing import FakeClock, Script, function_call


@dataclass(frozen=True)
class Batch:
    items: tuple[int, ...] = ()
    results: tuple[int, ...] = ()
    failed: tuple[str, ...] = ()
    word: str = ""


over = end("over")
bot = Agent("openai:gpt-5-mini", name="bot")


@execute
def double(n: int) -> int:
    if n < 0:
        raise ValueError(f"{n} is below 0")
    return 2 * n


@ask(bot)
def left(d: Batch) -> str:
    return "left?"


@ask(bot)
def right(d: Batch) -> str:
    return "right?"


def items(d: Batch) -> tuple[int, ...]:
    return d.items


def keep(d: Batch, a: tuple[int, ...]) -> Batch:
    return replace(d, results=a)


def keep_settled(d: Batch, a: tuple[int | Failure, ...]) -> Batch:
    failed = tuple([x.detail for x in a if isinstance(x, Failure)])
    return replace(d, results=tuple([x for x in a if not isinstance(x, Failure)]), failed=failed)


doubled = each("doubled", double, items, parallel=3)


@everywhere
@pytest.mark.parametrize("name", ["begin", "answer", "run", "model", "ask", "sleep", "inbox", "members"])
def test_a_member_may_have_the_name_of_a_word_in_keys(driven: Driver, name: str) -> None:
    called = ask(Agent(Script("first"), name="first"), str, name=name)(lambda d: "?")
    asked = wait(str, name="other")(lambda d: "?")
    inner = gather("inner", ask(Agent(Script("second"), name="second"), str, name=name)(lambda d: "?"), asked)
    both = gather("both", called, inner)
    flow = Flow("named", Batch, start=both, rows=[both.done(over, do=lambda d, a: replace(d, word=repr(a)))])
    run = replace(flow, answer=lambda question: "third").prepare(Batch())
    driven(flow, run)
    assert run.data.word == "('first', ('second', 'third'))"


doubling = Flow("doubling", Batch, start=doubled, rows=[doubled.done(over, do=keep)])
settled = each("settled", double, items, settled=True)
settling = Flow("settling", Batch, start=settled, rows=[settled.done(over, do=keep_settled)])


@everywhere
@pytest.mark.parametrize("count", [0, 30])
def test_each_item_that_is_there_at_run_time(driven: Driver, count: int) -> None:
    run = doubling.prepare(Batch(tuple(range(count))))
    driven(doubling, run)
    assert run.state == "over"
    assert run.data.results == tuple(2 * n for n in range(count))


@pytest.mark.parametrize("driven", [by_run, by_arun])
@pytest.mark.parametrize("once", [False, True])
def test_functions_of_members_begin_in_their_order(driven: Driver, once: bool) -> None:
    began: list[int] = []

    @execute(once=once, blocking=False)
    def begin(n: int) -> int:
        began.append(n)
        return n

    all_of_them = each("all_of_them", begin, items)
    flow = Flow("beginning", Batch, start=all_of_them, rows=[all_of_them.done(over, do=keep)])
    driven(flow, flow.prepare(Batch((1, 2, 3, 4))))
    assert began == [1, 2, 3, 4]


def test_one_that_fails_is_not_the_last_while_others_have_not_begun() -> None:
    by_turns = each("by_turns", double, items, parallel=1, settled=True)
    flow = Flow("by_turns", Batch, start=by_turns, rows=[by_turns.done(over, do=keep_settled)])
    run = flow.prepare(Batch((-1, 2, -3, 4)))
    by_run(flow, run)
    assert (run.state, run.data.results, len(run.data.failed)) == ("over", (4, 8), 2)


@wait(str)
def one(d: Batch) -> str:
    return "one?"


@wait(str)
def other(d: Batch) -> str:
    return "other?"


@wait(str)
def about(n: int) -> str:
    return f"{n}?"


@pytest.mark.parametrize("answered", [0, 1])
@pytest.mark.parametrize(
    "members",
    [
        gather("members", one, other),
        race("members", one, other),
        each("members", about, items),
        each("members", about, items, settled=True),
    ],
    ids=["gather", "race", "each", "each, settled"],
)
def test_the_deadline_of_the_flow_ends_what_its_members_wait_for(members: Any, answered: int) -> None:
    """Before the first answer, and afterwards; also with an outer deadline for an inner flow without one."""
    inner = Flow("inner", Batch, start=members, rows=[members.done(over)])
    limited = replace(inner, limits=FlowLimits(deadline_s=5))
    around = subflow("around", inner, lambda d: d)
    for flow in (
        limited,
        Flow("outer", Batch, start=around, rows=[around.done(over)], limits=FlowLimits(deadline_s=5)),
    ):
        run = begun(flow, Batch((1, 2)))
        asked = [effect.key for effect in run.effects]
        assert len(asked) == 2
        if answered and not members.is_race:
            run.advance(asked[0], Returned(text='"a"', at_s=1.0))
        run.advance("", Expired(at_s=5.0))
        assert (run.state, run.effects) == ("Expired", ())


def test_parallel_is_the_machines() -> None:
    run = doubling.prepare(Batch(tuple(range(10))))
    run.advance("begin", doubling_begun())
    assert [e.key for e in run.effects] == ["doubled#1/run:0", "doubled#1/run:1", "doubled#1/run:2"]
    run.advance("doubled#1/run:1", Returned(text="2"))
    assert [e.key for e in run.effects] == ["doubled#1/run:0", "doubled#1/run:2", "doubled#1/run:3"]
    again = doubling.restore(run.snapshot())
    assert again.record == run.record
    assert [e.key for e in again.effects] == [e.key for e in run.effects]
    by_run(doubling, again)
    assert again.data.results == tuple(2 * n for n in range(10))


def doubling_begun() -> Any:
    return Begun(at_s=0.0, id="r1")


@everywhere
def test_the_first_failure_ends_the_others_or_is_collected(driven: Driver) -> None:
    run = doubling.prepare(Batch((1, -2, 3, 4)))
    driven(doubling, run)
    assert run.state == "Failed"
    assert "ValueError: -2 is below 0" in run.record.ending.detail  # type: ignore[union-attr]
    other = settling.prepare(Batch((1, -2, 3)))
    driven(settling, other)
    assert (other.data.results, other.data.failed) == ((2, 6), ("ValueError: -2 is below 0",))


def test_members_run_side_by_side_in_threads_and_tasks() -> None:
    barrier, gate = threading.Barrier(3, timeout=20), []

    @execute
    def meet(n: int) -> int:
        barrier.wait()
        return n

    @execute
    async def meet_async(n: int) -> int:
        gate.append(n)
        while len(gate) < 3:  # noqa: ASYNC110  # the others are tasks beside it
            await asyncio.sleep(0)
        return n

    for state, driven in [(meet, by_threads), (meet_async, by_arun)]:
        together = each("together", state, items)
        flow = Flow("f", Batch, start=together, rows=[together.done(over, do=keep)])
        run = flow.prepare(Batch((1, 2, 3)))
        driven(flow, run)
        assert run.data.results == (1, 2, 3)


@everywhere
def test_the_first_wins_a_race(driven: Driver) -> None:
    first = race("first", left, right)
    flow = Flow("f", Batch, start=first, rows=[first.done(over, do=lambda d, a: replace(d, word=a))])
    clients: Any = {left: Script(Overloaded("no", retryable=False)), right: Script("r")}
    run = flow.prepare(Batch(), clients=clients)
    driven(flow, run)
    assert (run.state, run.data.word) == ("over", "r")
    lost = flow.prepare(Batch(), clients={s: Script(Overloaded("no", retryable=False)) for s in (left, right)})
    driven(flow, lost)
    assert lost.state == "Failed"


def test_two_models_stream_side_by_side() -> None:
    both = gather("both", left, right)
    flow = Flow("f", Batch, start=both, rows=[both.done(over, do=lambda d, a: replace(d, word=" ".join(a)))])
    run = flow.prepare(Batch(), clients={left: Script("a b"), right: Script("c d")})
    events = list(flow.stream(run))
    told = [(e.path, e.event.text) for e in events if isinstance(e, Inside) and isinstance(e.event, TextDelta)]
    assert [text for path, text in told if path == "both#1/left"] == ["a", " b"]
    assert [text for path, text in told if path == "both#1/right"] == ["c", " d"]
    assert run.data.word == "a b c d"


@function(needs_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


teller = Agent("openai:gpt-5-mini", name="teller", functions=[pay])


@ask(teller)
def paying(d: Batch) -> str:
    return "Pay 17."


@wait(str)
def someone(d: Batch) -> str:
    return "?"


def test_approvals_and_answers_in_any_order_through_json() -> None:
    both = gather("both", paying, someone)
    flow = Flow(
        "f", Batch, start=both, rows=[both.done(over, do=lambda d, a: replace(d, word=", ".join(a)))],
        environment={"clock": FakeClock()},
    )  # fmt: skip
    for order in ([0, 1], [1, 0]):
        client = Script(function_call("pay", amount=17), "It is paid.")
        run = flow.prepare(Batch(), clients={paying: client})
        by_run(flow, run)
        assert [e.key for e in run.effects] == ["both#1/answer:someone", "both#1/paying/ask:1.0"]
        answers = [("both#1/answer:someone", Returned(text='"me"')), ("both#1/paying/ask:1.0", Approved())]
        for index in order:
            run = flow.restore(run.snapshot(), clients={paying: client})
            run.advance(*answers[index])
        by_run(flow, run)
        assert run.data.word == "It is paid., me"
        assert run.record.usage == run.record.total_usage
