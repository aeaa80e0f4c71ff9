"""Is each step of a flow a row of the table at its level, in every order, and is any other step noticed?"""

from __future__ import annotations

from contextlib import suppress
from itertools import product
from typing import Any

import pytest
from deep_flow import SECRET, Order, conforms, outcome_for, shop, walk, wanted
from flow_runs import s

from fsm_agent import Agent
from fsm_agent.call import Returned, take_row
from fsm_agent.clients import client_for
from fsm_agent.errors import IllegalTrigger, OutcomeError, SnapshotError
from fsm_agent.flows import Flow, FlowError, FlowFailed, FlowSuspended, ask, end, execute, wait
from fsm_agent.messages import Inside


def steps_of(seed: int) -> tuple[Any, list[Any]]:
    events: list[Any] = []
    run = None
    for run, _ in walk(seed):
        events += run.steps
    return run, events


@pytest.mark.parametrize("seed", range(8))
def test_every_step_is_a_row_of_the_table_at_its_level(seed: int) -> None:
    run, events = steps_of(seed)
    assert conforms(shop, events)
    assert {event.path.count("/") for event in events if isinstance(event, Inside)} == {0, 1, 2, 3, 4}
    assert (run.state, run.data.total) == ("over", 10)


def test_the_record_is_the_same_in_whatever_order_the_effects_are_answered() -> None:
    (first, _), *others = [steps_of(seed) for seed in range(12)]
    trigger = [step.trigger for step in first.record.trace]
    for run, _ in others:
        assert run.record == first.record
        assert [step.trigger for step in run.record.trace] == trigger


def test_the_outcomes_alone_give_the_same_record_and_steps_again() -> None:
    """As JSON by key, as a journal holds them."""
    run = shop.prepare(Order())
    journal: list[tuple[str, str, Any]] = []
    while run.effects:
        effect = wanted(run)[0]
        outcome = outcome_for(effect)
        document = run.encode(effect.key, outcome)
        run.advance(effect.key, outcome)
        journal.append((effect.key, document, run.steps))
    again = shop.prepare(Order())
    for key, document, steps in journal:
        again.advance(key, again.decode(key, document))
        assert again.steps == steps
    assert again.record == run.record
    assert list(again.record.trace) == list(run.record.trace)


class TestMachine:
    """The machine of a flow has the rows of its table, and each of them can be taken."""

    DATA = (
        s.Ticket("x"),
        s.Ticket("x://y", facts=("a",), drafts=("a", "b"), asked=3, changes=2),
        s.Ticket("x", drafts=("a",), changes=1),
    )
    ANSWERS = (s.Sorted("ad", is_spam=True), s.Sorted("x"), s.Known(("f",)), s.Unclear("?"), s.Choice(1), s.Change("x"),
               s.Approve("a"), "text", (s.Draft("a"), s.Draft("b")), None)  # fmt: skip

    def test_it_takes_each_row_of_the_table_and_no_other(self) -> None:
        machine, run = s.support.machine, s.support.prepare(self.DATA[0])
        taken = set()
        for state, data, trigger, answer in product(s.support.state_enum, self.DATA, machine.events, self.ANSWERS):
            record = run.record.changed(state=state, data=data)
            with suppress(
                IllegalTrigger, FlowError, AttributeError, IndexError, TypeError, KeyError
            ):  # guards and actions
                row = take_row(machine, trigger, record, answer, run)
                taken.add((str(state), trigger, str(row.state), row.guard))
        assert taken == {(e.source, e.event, e.to, e.guard) for e in s.support.entries}


def test_nobody_is_told_a_secret() -> None:
    """Neither in snapshots and events, nor in errors, of keys, clients and deps."""
    client = client_for("openai:gpt-5-mini", api_key=SECRET)
    agent = Agent(client, name="bot")
    asking = ask(agent, name="asking")(lambda o: "?")
    person = wait(int, name="person")(lambda o: "?")

    @execute
    def breaks(o: Order, context: Any) -> str:
        raise ValueError(f"no {context.idempotency_key}")

    rows = [breaks.done(asking), breaks.failed(person), asking.done(person), person.done(end("over"))]
    flow = Flow("f", Order, start=breaks, rows=rows)
    told: list[str] = []
    run = flow.prepare(Order(), deps={"key": SECRET}, clients={asking: client})
    told += [repr(event) for event in flow.stream(run)]
    told += [
        run.snapshot(),
        repr(run),
        str(run),
        repr(run.effects),
        repr(flow),
        repr(run.result_so_far),
        str(run.record),
    ]
    for key, answer in [("answer:person#2", '"x"'), ("asking#1/model:0", '"x"')]:
        with pytest.raises(OutcomeError) as refused:
            run.advance(key, Returned(text=answer))
        told.append(str(refused.value))
    with pytest.raises(SnapshotError) as damaged:
        flow.restore(run.snapshot()[:-9], deps={"key": SECRET})
    told.append(str(damaged.value))
    with pytest.raises(FlowSuspended) as waiting:
        run.result()
    run.cancel("enough")
    with pytest.raises(FlowFailed) as failed:
        flow.run(run)
    told += [str(waiting.value), repr(waiting.value), str(failed.value), repr(failed.value), run.snapshot()]
    assert SECRET not in "\n".join(told)
