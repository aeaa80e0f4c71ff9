"""Is nothing lost or done twice when a guard or an action raises at what a person or a function said?"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import Agent, Worker
from fsm_agent.call import Limits, Returned
from fsm_agent.errors import Overloaded
from fsm_agent.flows import (
    Flow,
    FlowError,
    FlowFailed,
    FlowSuspended,
    ask,
    each,
    end,
    execute,
    gather,
    pause,
    subflow,
    wait,
)
from fsm_agent.testing import Script


@dataclass(frozen=True)
class Order:
    text: str = ""
    count: int = 0


@wait(str)
def inquiring(order: Order) -> str:
    return "What?"


def misspelt(order: Order, answer: str) -> Order:
    return replace(order, txet=answer)  # type: ignore[call-arg]


def wrong_type(order: Order, answer: str) -> Order:
    return replace(order, count=answer)  # type: ignore[arg-type]


def right(order: Order, answer: str) -> Order:
    return replace(order, text=answer)


def flow(act: Callable[..., Order], store: Any, when: Any = None) -> Flow[Order]:
    rows = [inquiring.done(end("ok"), do=act, when=when), *([inquiring.done(inquiring)] if when else [])]
    return Flow("order", Order, start=inquiring, rows=rows, store=store)


def guard(raises: Exception | None = None) -> Callable[[Order], bool]:
    def is_fine(order: Order) -> bool:
        if raises is not None:
            raise raises
        return True

    return is_fine


def suspended(made: Flow[Order]) -> None:
    with pytest.raises(FlowSuspended):
        made.call(Order(), run_id="r")


@pytest.mark.parametrize(
    ("act", "when", "error"),
    [(misspelt, None, TypeError), (wrong_type, None, FlowError), (right, guard(KeyError("zz")), KeyError)],
    ids=["action", "type of a field", "guard"],
)
def test_what_a_person_said_is_taken_by_the_code_that_is_mended(
    act: Any, when: Any, error: type[Exception], tmp_path: Path
) -> None:
    store = str(tmp_path / "runs.db")
    broken = flow(act, store, when)
    suspended(broken)
    with pytest.raises(error):
        broken.runs.resume("r", {inquiring: "lamp"})
    with pytest.raises(error):  # it stays until it can be taken
        asyncio.run(broken.runs.aresume("r"))
    assert flow(right, store, when and guard()).runs.resume("r").output == Order("lamp")


def test_a_worker_leaves_it_to_other_code(tmp_path: Path) -> None:
    store = str(tmp_path / "runs.db")
    broken = flow(misspelt, store)
    suspended(broken)
    broken.runs.all.answer("r", {"answer:inquiring#1": Returned(text='"lamp"')})
    Worker([broken], broken.runs.all.store).run(once=True)
    assert flow(right, store).runs.resume("r").output == Order("lamp")


def test_what_raised_says_where() -> None:
    made = flow(misspelt, None)
    with pytest.raises(FlowSuspended) as suspension:
        made.call(Order())
    with pytest.raises(TypeError) as caught:
        suspension.value.run.give(inquiring, "lamp")
    (note,) = caught.value.__notes__
    assert "'order'" in note
    assert "inquiring --done" in note


def asking(order: Any) -> Any:
    raise LookupError("no such order")


@execute
def packing(order: Any) -> str:
    return "packed"


def fine(order: Any) -> str:
    return "?"


def items(order: Order) -> tuple[int, ...]:
    return (1, 2)


inner = Flow("inner", Order, start=packing, rows=[packing.done(end("packed"))])
writer = Agent(Script("hi"), name="w")


@pytest.mark.parametrize(
    "state",
    [
        ask(writer, name="asking")(asking),
        ask(asking, str, name="asking")(fine),
        wait(str)(asking),
        wait(str, name="asking", within_s=asking)(fine),
        wait(str, name="asking", until=asking)(fine),
        pause("asking", asking),
        subflow("asking", inner, asking),
        each("asking", packing, asking),
        gather("both", packing, wait(str)(asking)),
        each("all_of_them", wait(str)(asking), items, parallel=1),
        each("all_of_them", subflow("asking", inner, asking), items),
    ],
    ids=lambda state: repr(state),
)
def test_the_function_of_a_state_that_raised_says_where(state: Any) -> None:
    row = (state.elapsed if "Pause" in repr(state) else state.done)(end("over"))
    made = Flow("shop", Order, start=state, rows=[row])
    for call in (made.call, lambda order: asyncio.run(made.acall(order))):
        with pytest.raises(LookupError) as caught:
            call(Order())
        notes = " ".join(caught.value.__notes__)
        assert "'asking'" in notes
        assert "'shop'" in notes


def test_what_was_done_is_not_done_again(tmp_path: Path) -> None:
    done: Counter[str] = Counter()

    @execute(once=True)
    def pay(order: Order) -> str:
        done["pay"] += 1
        return "paid"

    @execute
    def pack(order: Order) -> str:
        done["pack"] += 1
        return "packed"

    model = Script("asked")

    @ask(Agent(model))
    def asking(order: Order) -> str:
        return "?"

    for number, state in enumerate((pay, pack, asking)):
        store = str(tmp_path / f"{number}.db")
        made = [
            Flow("order", Order, start=state, rows=[state.done(end("ok"), do=act)], store=store)
            for act in (misspelt, misspelt, right)
        ]
        with pytest.raises(TypeError):
            made[0].call(Order(), run_id="r")
        with pytest.raises(TypeError):
            made[1].runs.resume("r")
        assert made[2].runs.resume("r").output.text in ("paid", "packed", "asked")
    assert done == {"pay": 1, "pack": 1}
    assert len(model.requests) == 1


def test_a_failed_flow_has_the_exception_of_its_last_function_as_its_cause() -> None:
    def check(order: Order) -> int:
        raise LookupError("no such order")

    checking = execute(check)
    broken = end("broken", failed="broke")
    at_once = Flow("one", Order, start=checking, rows=[checking.done(end("ok")), checking.failed(broken)])
    mended = ask(Agent(Script(*[Overloaded("busy")] * 2), name="w", limits=Limits(recalls=0)), name="mended")(
        lambda order: "?"
    )
    later = [checking.done(mended), checking.failed(mended), mended.done(end("ok")), mended.failed(broken)]
    for flow_, cause in ((at_once, LookupError), (Flow("two", Order, start=checking, rows=later), type(None))):
        for driven in (flow_.call, lambda order, flow_=flow_: asyncio.run(flow_.acall(order))):
            with pytest.raises(FlowFailed) as caught:
                driven(Order())
            assert type(caught.value.__cause__) is cause
