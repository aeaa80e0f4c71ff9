"""Is an advance of a flow all or nothing, whatever raises an exception, at every level, and for every answer?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from deep_flow import Order, documents, item, over, shop, walk
from flow_runs import Driver, begun, everywhere

from fsm_agent import Agent, Approved, Denied, Modified, ProviderError, Reply, Usage, UsageError
from fsm_agent.call import Begun, Cancelled, FunctionFailed, ModelFailed, Replied, Returned, RunAgain, Slept, Started
from fsm_agent.errors import IllegalTrigger, OutcomeError
from fsm_agent.flows import Failure, Flow, FlowError, ask, each, end, execute, gather, subflow, wait
from fsm_agent.testing import FakeClock, Script

OTHERS: tuple[Any, ...] = (
    Returned(text="no JSON"), Returned(text='{"x": 1}'), Returned(text="null"), Returned(text='"x"', is_error=True),
    FunctionFailed(text="no"), Approved(), Denied("no"), Modified("{}"), RunAgain(), Started(), Slept(), Cancelled(),
    Begun(at_s=0.0, id="x"), Replied(reply=Reply.of("?")),
)  # fmt: skip


def test_what_answers_nothing_is_refused_and_changes_nothing() -> None:
    """At every place of a run: outcomes of other kinds or without a type, under stale, foreign or invented keys."""
    stale: set[str] = set()
    refused = 0
    for run, effect in walk(3):
        record, keys = run.record, [e.key for e in run.effects]
        foreign = {"nonsense", "", "/", "everything#1", "everything#99/answer:x", *stale} - {
            *keys,
            *run.record.children,
        }
        for key in foreign - {""}:
            with pytest.raises((OutcomeError, IllegalTrigger)):
                run.advance(key, Returned(text="1"))
            refused += 1
        for wrong in OTHERS:
            if effect is None or isinstance(wrong, effect.outcomes):
                continue
            with pytest.raises((OutcomeError, IllegalTrigger)):
                run.advance(effect.key, wrong)
            refused += 1
        assert run.record is record
        assert [e.key for e in run.effects] == keys
        stale |= {*keys}
    assert refused > 200


def test_an_answer_of_another_type_is_refused_by_each_question() -> None:
    asked = 0
    for run, effect in walk(5):
        if effect is None or effect.prefix != "answer":
            continue
        asked += 1
        record = run.record
        for text in ("no JSON", '{"x": 1}', "[1, 2]", '["No"]', '["Maybe", {}]', "\ud800", "NaN"):
            with pytest.raises(OutcomeError):
                run.advance(effect.key, Returned(text=text))
        assert run.record is record
    assert asked >= 3


class Broken(Exception):
    pass


def breaks(*_: Any) -> Any:
    raise Broken


def at(level: int, inner: Callable[[], Flow[Any]]) -> Flow[Any]:
    """Return a flow inside this many other flows."""
    flow = inner()
    for depth in range(level):
        nested = subflow(f"nested{depth}", flow, lambda d: d)
        members = gather(f"both{depth}", nested, wait(str, name=f"other{depth}")(lambda d: "?"))
        to = end("over")
        flow = Flow(f"f{depth}", Order, start=members, rows=[members.done(to)], environment={"clock": FakeClock()})
    return flow


start = wait(str, name="start")(lambda o: "?")
bot = Agent("openai:gpt-5-mini", name="bot")


def guarded() -> Flow[Any]:
    return Flow("g", Order, start=start, rows=[start.done(over, when=breaks), start.done(over)])


def acting(action: Any) -> Callable[[], Flow[Any]]:
    return lambda: Flow("a", Order, start=start, rows=[start.done(over, do=action)])


def leading(*states: Any) -> Callable[[], Flow[Any]]:
    (to,) = states
    return lambda: Flow("l", Order, start=start, rows=[start.done(to), to.done(over)])


def number(o: int) -> str:
    return "?"


PLACES: dict[str, tuple[Callable[[], Flow[Any]], type[Exception]]] = {
    "guard": (guarded, Broken),
    "action": (acting(breaks), Broken),
    "action of another type": (acting(lambda o, a: "no order"), FlowError),
    "task": (leading(ask(bot, name="task")(breaks)), Broken),
    "task of another type": (leading(ask(bot, name="task")(lambda o: 17)), UsageError),  # type: ignore[arg-type, return-value]
    "choice": (leading(ask(breaks, str, name="chosen")(lambda o: "?")), Broken),
    "question": (leading(wait(str, name="question")(breaks)), Broken),
    "projection": (leading(subflow("inner", item, breaks)), Broken),
    "projection of another type": (leading(subflow("inner", item, lambda o: "x")), FlowError),  # type: ignore[arg-type, return-value]
    "items": (leading(each("items", wait(str, name="one")(number), breaks)), Broken),
    "items without order": (leading(each("items", wait(str, name="one")(number), lambda o: {1, 2})), FlowError),  # type: ignore[arg-type, return-value]
    "task of a member": (leading(gather("m", ask(bot, name="x")(breaks), ask(bot, name="y")(lambda o: "?"))), Broken),
}


@pytest.mark.parametrize("place", PLACES)
def test_code_that_raises_changes_nothing_at_any_level(place: str) -> None:
    for level in (0, 2):
        changes_nothing(at(level, PLACES[place][0]), PLACES[place][1])


def changes_nothing(flow: Flow[Any], error: type[Exception]) -> None:
    run = begun(flow, Order())
    record, document, keys = run.record, run.snapshot(), [e.key for e in run.effects]
    (key,) = [key for key in keys if "answer:start#1" in key]
    for _ in range(2):
        with pytest.raises(error):
            run.advance(key, Returned(text='"x"'))
        assert run.record is record
        assert [e.key for e in run.effects] == keys
    assert run.snapshot() == document
    others = [key for key in keys if "answer:other" in key]
    for other in others:
        run.advance(other, Returned(text='"y"'))
    assert (run.record is not record) is bool(others), "it goes on with its other effects"


@everywhere
def test_a_driver_leaves_it_where_it_was_when_an_action_raises(driven: Driver) -> None:
    """The answer is not lost: it is asked for again, and a repaired action continues."""
    mended = False

    def keep(o: Order, a: str) -> Order:
        if not mended:
            raise Broken
        return replace(o, words=(a,))

    asking = ask(bot, name="asking")(lambda o: "?")
    flow = Flow("f", Order, start=asking, rows=[asking.done(over, do=keep)])
    run = flow.prepare(Order(), clients={asking: Script("one", "two")})
    with pytest.raises(Broken):
        driven(flow, run)
    assert run.state == "asking"
    mended = True
    driven(flow, run)
    assert (run.state, run.data.words) == ("over", ("two",))


def test_an_operators_word_is_all_or_nothing_also_for_a_function_that_must_not_run_twice() -> None:
    @execute(once=True)
    def send(o: Order) -> str:
        raise AssertionError

    def keep(o: Order, a: str) -> Order:
        raise Broken

    flow = Flow("f", Order, start=send, rows=[send.done(over, do=keep), send.failed(end("lost"))])
    run = begun(flow, Order())
    before = run.record
    with pytest.raises(Broken):
        run.give(send, "x")
    assert run.record is before
    run.give(send, Failure("lost"))
    assert run.state == "lost"


def test_cancelled_at_every_place_it_ends_and_waits_for_nothing() -> None:
    seen = set()
    for document in documents()[:-1]:
        run = shop.restore(document)
        seen.add(run.state)
        was_begun = [step.trigger for step in run.record.trace][-1:] == ["started"]
        run.advance("", Cancelled(reason="enough"))
        assert (run.state, run.effects, run.record.children, run.record.once) == ("Cancelled", (), {}, {})
        assert run.record.ending is not None
        in_doubt = "; sending#6 was begun, and its outcome is unknown"
        assert run.record.ending.detail == "enough" + (in_doubt if was_begun else "")
        with pytest.raises(IllegalTrigger):
            run.advance("", Cancelled())
        assert shop.restore(run.snapshot()).record == run.record
    assert seen == {"Seeded", *[state.name for state in shop.live]}


def test_a_member_alone_is_cancelled_and_its_row_taken() -> None:
    run, _ = next(pair for pair in walk(0) if len(pair[0].effects) >= 3)
    run.advance("everything#1/quoting/prices#1/0/", Cancelled(reason="not this"))
    assert run.state == "late"
    assert "not this" in run.record.trace[-1].detail


def test_a_group_of_members_that_is_cancelled_says_why() -> None:
    """An error as a person's answer to a member is refused, because the person may try again."""
    members = [wait(str, name=name)(lambda o: "?") for name in "ab"]
    both = gather("both", *members)  # type: ignore[call-overload]
    run = begun(Flow("f", Order, start=both, rows=[both.done(over)]), Order())
    before = run.record
    with pytest.raises(OutcomeError, match="str"):
        run.advance("both#1/answer:a", Returned(text='"x"', is_error=True))
    assert run.record is before
    assert run.record != before.changed(usage=Usage(input_tokens=1))
    run.advance("both#1/", Cancelled(reason="called off"))
    assert run.record.trace[-1].detail == "cancelled: called off"


def test_a_child_goes_on_after_the_row_for_its_end_has_failed() -> None:
    """It is unchanged, with its listeners and its environment, whatever happened first."""
    failures = iter([LookupError("not now")])

    def keep(o: Order, answer: str) -> Order:
        for failure in failures:
            raise failure
        return o

    agent = Agent(Script("unused"))
    asked = ask(agent, name="asked")(lambda o: "?")
    run = begun(Flow("f", Order, start=asked, rows=[asked.done(over, do=keep)]), Order())
    key, before = run.effects[0].key, run.owner(run.effects[0].key)
    with pytest.raises(LookupError):
        run.advance(key, Replied(reply=Reply.of("yes"), at_s=1.0))
    assert run.owner(key).environments == before.environments
    error = ProviderError("busy", retryable=True).report()
    run.advance(key, ModelFailed(error=error, delay_s=1.0, at_s=2.0))
    (nap,) = run.effects
    assert nap.key == "asked#1/sleep:1"
    assert run.owner(nap.key).environments == before.environments
    assert run.inners["asked#1"].process is run.owner(nap.key).process
    run.advance(nap.key, Slept(at_s=3.0))
    run.advance(run.effects[0].key, Replied(reply=Reply.of("yes"), at_s=4.0))
    assert run.state == "over"


def test_a_run_that_has_begun_a_function_is_not_equal_to_one_that_has_not() -> None:
    @execute(once=True)
    def pay(o: Order) -> str:
        return "paid"

    run = begun(Flow("f", Order, start=pay, rows=[pay.done(over)]), Order())
    before = run.record
    run.advance("start:pay#1", Started())
    assert run.record != before
    again = run.record.changed(trace=before.trace)
    assert again == run.record
    assert not again != run.record  # noqa: SIM202


def test_an_operators_word_runs_the_code_of_its_row_once() -> None:
    @wait(str)
    def asking(o: Order) -> str:
        return "?"

    def keep(o: Order, a: str) -> Order:
        kept.append(a)
        return o

    kept = list[str]()
    run = begun(Flow("f", Order, start=asking, rows=[asking.done(over, do=keep)]), Order())
    run.give(asking, "x")
    assert (run.state, kept) == ("over", ["x"])
