"""Is an answer that comes before it is waited for kept, and taken once, in its order, when the state is entered?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import islice, permutations
from random import Random
from typing import Any

import pytest
from flow_runs import Driver, begun, everywhere
from support.time_growth import calls_made

from fsm_agent import Agent, CallSuspended, Context, MemoryStore, Worker
from fsm_agent.call import Cancelled, FunctionFailed, Returned, Slept, Started
from fsm_agent.errors import IllegalTrigger, OutcomeError, SnapshotError, UsageError
from fsm_agent.flows import (
    Flow,
    FlowError,
    FlowFailed,
    FlowLimits,
    FlowSuspended,
    each,
    end,
    execute,
    gather,
    into,
    pause,
    renamed,
    subflow,
    wait,
)
from fsm_agent.messages import Stepped
from fsm_agent.testing import Script, function_call


@dataclass(frozen=True)
class Data:
    got: tuple[int, ...] = ()
    text: str = ""


over, late = end("over"), end("late")


def add(d: Data, n: int) -> Data:
    return replace(d, got=(*d.got, n))


def signal(number: int, **options: Any) -> Any:
    return wait(int, name=f"signal{number}", early=True, **options)(lambda d: f"signal {number}?")


@execute
def prepare(d: Data) -> str:
    return "ready"


@execute
def proceed(d: Data) -> str:
    return "on"


one, two, three = map(signal, (1, 2, 3))
signals = Flow(
    "signals", Data, start=prepare,
    rows=[
        prepare.done(one, do=into("text")),
        one.done(proceed, do=add),
        proceed.done(two),
        two.done(three, do=add),
        three.done(over, do=add),
    ],
)  # fmt: skip


@wait(int, early=True)
def more(d: Data) -> str:
    return "More? 0 ends it."


more_of_them = wait(int, name="ask")(lambda n: f"More than {n}?")


def is_over(d: Data, n: int) -> bool:
    return n == 0


def loop_of(**options: Any) -> Flow[Data]:
    return Flow(
        "loop", Data, start=prepare, rows=[prepare.done(more), more.done(over, when=is_over), more.done(more, do=add)],
        **options,
    )  # fmt: skip


def work(run: Any) -> None:
    """Do the work, if there is any."""
    for effect in run.effects:
        if effect.prefix == "run":
            run.advance(effect.key, Returned(text='"ready"'))


# What comes early is taken as if it had come in time


@pytest.mark.parametrize("is_restored", [False, True])
def test_signals_in_any_order_before_and_while_they_are_waited_for(is_restored: bool) -> None:
    """Await signals (Temporal): three signals come in any order, and are processed in one."""
    stored = replace(signals, store=MemoryStore())
    for order in permutations(["work", "work again", one, two, three]):
        run = begun(signals if is_restored else stored, Data())
        for what in order:
            if is_restored:
                run = signals.restore(run.snapshot())
            if isinstance(what, str):
                work(run)
            else:
                run.give(what, int(what.name[-1]), at_s=7.0)
        work(run)
        work(run)
        assert (run.state, run.data.got) == ("over", (1, 2, 3)), order
        assert not run.record.inbox
        if not is_restored:
            again = signals.prepare(Data())
            for entry in run.journal.entries:
                again.advance(entry.key, again.decode(entry.key, entry.outcome))
            assert again.record == run.record
            assert list(again.record.trace) == list(run.record.trace)


def test_each_entry_of_a_state_takes_one_the_oldest_first() -> None:
    run = begun(loop_of(), Data())
    for n in (1, 2, 3):
        run.give(more, n)
    assert {name: [answer.text for answer in answers] for name, answers in run.record.inbox.items()} == {
        "more": ["1", "2", "3"]
    }
    work(run)
    assert (run.state, run.data.got, run.record.inbox) == ("more", (1, 2, 3), {})
    run.give(more, 4)
    assert run.data.got == (1, 2, 3, 4)
    assert [effect.key for effect in run.effects] == ["answer:more#6"]


def test_the_trace_shows_an_early_answer_when_it_comes_and_when_it_is_taken() -> None:
    run = begun(loop_of(), Data())
    run.give(more, 0, at_s=5.0)
    (kept,) = run.steps
    assert kept == Stepped("prepare", "kept", "prepare", "inbox:more", 5.0, "", "")
    run.advance("run:prepare#1", Returned(text='"x"', at_s=6.0))
    steps = [(step.source, step.trigger, step.to, step.key, step.at_s) for step in run.steps]
    assert steps == [("prepare", "done", "more", "run:prepare#1", 6.0), ("more", "done", "over", "answer:more#2", 6.0)]


def test_what_is_taken_at_once_is_bounded_by_the_states_of_a_run() -> None:
    run = begun(loop_of(limits=FlowLimits(steps=5)), Data())
    for n in range(1, 10):
        run.give(more, n)
    work(run)
    assert (run.state, run.data.got) == ("Failed", (1, 2, 3, 4))
    assert len(run.record.inbox["more"]) == 5
    with pytest.raises(FlowFailed, match="5 states were entered"):
        run.result()


def test_an_early_answer_is_there_before_the_time_of_its_state_begins() -> None:
    nap, timed = pause("nap", 50), signal(1, within_s=10)
    flow = Flow("f", Data, start=nap, rows=[nap.elapsed(timed), timed.done(over, do=add), timed.elapsed(late)])
    run = begun(flow, Data())
    run.give(timed, 7, at_s=1.0)
    run.advance("sleep:nap#1", Slept(at_s=50.0))
    assert (run.state, run.data.got) == ("over", (7,))
    other = begun(flow, Data())
    other.advance("sleep:nap#1", Slept(at_s=50.0))
    other.advance("sleep:signal1#2", Slept(at_s=60.0))
    assert other.state == "late"


# What is refused


plain: Any = wait(int, name="plain")(lambda d: "?")
mixed = Flow("mixed", Data, start=prepare, rows=[prepare.done(plain), plain.done(one), one.done(over)])


@pytest.mark.parametrize(
    ("key", "outcome"),
    [
        ("inbox:plain", Returned(text="1")),
        ("inbox:nowhere", Returned(text="1")),
        ("answer:signal1", Returned(text="1")),
        ("inbox:signal1", Returned(text='"one"')),
        ("inbox:signal1", Returned(text="1", is_error=True)),
        ("inbox:signal1", FunctionFailed(text="no")),
        ("inbox:signal1", Cancelled()),
    ],
)
def test_what_no_state_will_take_is_refused_when_it_comes(key: str, outcome: Any) -> None:
    run = begun(mixed, Data())
    record = run.record
    with pytest.raises(OutcomeError, match=key.partition(":")[2]):
        run.advance(key, outcome)
    with pytest.raises(OutcomeError, match="plain"):
        run.give(plain, 1)
    assert run.record is record


def test_an_inbox_that_is_full_takes_no_more_until_there_is_room() -> None:
    run = begun(loop_of(limits=FlowLimits(inbox=2)), Data())
    run.give(more, 1)
    run.give(more, 2)
    record = run.record
    with pytest.raises(OutcomeError, match=r"limits\.inbox"):
        run.give(more, 3)
    assert run.record is record
    work(run)
    run.give(more, 3)
    assert run.data.got == (1, 2, 3)
    other = begun(replace(signals, limits=FlowLimits(inbox=1)), Data())
    other.give(three, 3)
    work(other)
    other.advance("inbox:signal1", Returned(text="1"))  # it is waited for, so it needs no room
    assert (other.state, other.data.got) == ("proceed", (1,))
    for wrong in (0, True, 1.5):
        with pytest.raises(UsageError, match=r"limits\.inbox"):
            FlowLimits(inbox=wrong)  # type: ignore[arg-type]


def test_before_a_run_begins_and_after_it_has_ended_nothing_is_kept() -> None:
    run = signals.prepare(Data())
    with pytest.raises(OutcomeError, match="inbox:signal1"):
        run.advance("inbox:signal1", Returned(text="1"))
    run = begun(signals, Data())
    run.advance("", Cancelled())
    with pytest.raises(IllegalTrigger, match="ended"):
        run.advance("inbox:signal1", Returned(text="1"))
    with pytest.raises(OutcomeError, match="signal1"):
        run.give(one, 1)


def test_a_member_keeps_no_early_answers() -> None:
    both = gather("both", one, two)
    with pytest.raises(FlowError, match="signal1"):
        Flow("f", Data, start=both, rows=[both.done(over)])


# Flows inside, and upgrades


def test_a_flow_inside_has_an_inbox_while_it_runs() -> None:
    inside = subflow("inside", signals, lambda d: d)
    flow = Flow("outer", Data, start=plain, rows=[plain.done(inside), inside.done(over, do=lambda d, a: a)])
    run = begun(flow, Data())
    with pytest.raises(OutcomeError, match="signal1"):
        run.give(one, 1)
    run.give(plain, 1)
    run.give(one, 1)
    run.advance("inside#2/inbox:signal2", Returned(text="2"))
    assert run.steps[0].path == "inside#2"
    run.give(three, 3)
    run = flow.restore(run.snapshot())
    for _ in range(2):
        (effect,) = run.effects
        run.advance(effect.key, Returned(text='"x"'))
    assert (run.state, run.data.got) == ("over", (1, 2, 3))


def test_two_flows_inside_have_an_inbox_each() -> None:
    inside = subflow("inside", signals, lambda n: Data((n,)))
    all_of_them = each("all_of_them", inside, lambda d: (10, 20))
    flow = Flow("outer", Data, start=all_of_them, rows=[
        all_of_them.done(over, do=lambda d, found: Data(tuple(n for one in found for n in one.got)))
    ])  # fmt: skip
    run = begun(flow, Data())
    with pytest.raises(OutcomeError, match="signal1"):
        run.give(one, 1)
    for number in (0, 1):
        for n in (3, 2, 1):
            run.advance(f"all_of_them#1/{number}/inbox:signal{n}", Returned(text=str(n)))
    while run.effects:
        run.advance(run.effects[-1].key, Returned(text='"x"'))
    assert run.data.got == (10, 1, 2, 3, 20, 1, 2, 3)


@pytest.mark.parametrize(("asked", "words"), [(one, "signal1"), (more_of_them, "ask")])
def test_an_answer_by_state_is_for_one_of_them(asked: Any, words: str) -> None:
    """Which of several is meant would be a guess."""
    inside = subflow("inside", signals, lambda n: Data((n,))) if asked is one else asked
    all_of_them = each("all_of_them", inside, lambda d: (10, 20))
    flow = Flow("outer", Data, start=all_of_them, rows=[all_of_them.done(over)], store=MemoryStore())
    with pytest.raises(FlowSuspended):
        flow.call(Data(), run_id="r")
    with pytest.raises(OutcomeError, match=words) as refused:
        flow.runs.resume("r", {asked: 1})
    assert "all_of_them#1/" in str(refused.value)


def flow_named(name: str, early: bool = True, kind: type = int, **options: Any) -> Flow[Data]:
    state: Any = wait(kind, name=name, early=early)(lambda d: "?")
    done = state.done(over, do=(add if kind is int else None))
    return Flow("f", Data, start=prepare, rows=[prepare.done(state), done], **options)


def test_what_was_kept_survives_a_renamed_state() -> None:
    run = begun(flow_named("person"), Data())
    run.advance("inbox:person", Returned(text="7", at_s=3.0))
    newer = flow_named("customer", version=2, upgrades={1: renamed(person="customer")})
    again = newer.restore(run.snapshot())
    assert again.record.inbox == {"customer": (Returned(text="7", at_s=3.0),)}
    work(again)
    assert (again.state, again.data.got) == ("over", (7,))


@pytest.mark.parametrize(
    "newer",
    [
        flow_named("customer"),
        flow_named("person", early=False),
        flow_named("person", kind=bool),
    ],
    ids=["no such state", "not early", "another type"],
)
def test_what_was_kept_and_cannot_be_taken_any_more_is_refused_by_name(newer: Flow[Data]) -> None:
    run = begun(flow_named("person"), Data())
    run.advance("inbox:person", Returned(text="7"))
    with pytest.raises(SnapshotError, match="person"):
        newer.restore(run.snapshot())


def test_a_record_without_an_inbox_is_written_as_before() -> None:
    run = begun(signals, Data())
    assert "inbox" not in run.snapshot()
    work(run)
    run.record = run.record.changed(inbox={"signal1": (Returned(text="1"),)})
    with pytest.raises(SnapshotError, match="signal1"):
        signals.restore(run.snapshot())


# Drivers and stores


@everywhere
def test_an_answer_that_a_listener_gives_while_a_function_runs_is_taken(driven: Driver) -> None:
    """The function that runs is not disturbed."""
    ran: list[str] = []
    run: Any = None

    @execute
    async def slow(d: Data) -> str:
        ran.append("slow")
        run.give(one, 1)
        await asyncio.sleep(0)
        return "x"

    flow = Flow("f", Data, start=slow, rows=[slow.done(one), one.done(over, do=add)])
    run = flow.prepare(Data())
    driven(flow, run)
    assert (run.state, run.data.got, ran) == ("over", (1,), ["slow"])


asking_at_once = Flow("f", Data, start=more, rows=[more.done(over, when=is_over), more.done(more, do=add)])


class Twice(MemoryStore):
    """A store that delivers each post twice, as after a broken connection."""

    def load(self, run: str, *, after: int | None = 0) -> Any:
        loaded = super().load(run, after=after)
        return loaded.changed(signals=loaded.signals * 2)


def test_a_post_that_is_delivered_twice_counts_once() -> None:
    flow = replace(asking_at_once, store=Twice())
    with pytest.raises(FlowSuspended):
        flow.call(Data(), run_id="r")
    for n in (1, 2):
        flow.runs.all.answer("r", {"inbox:more": Returned(text=str(n))})
    with pytest.raises(FlowSuspended) as waiting:
        flow.runs.resume("r")
    assert waiting.value.run.data.got == (1, 2)


def test_two_answers_by_state_are_both_taken_whatever_is_asked_by_then() -> None:
    """A question that is open would take one, and refuse the other."""
    flow = replace(asking_at_once, store=MemoryStore())
    with pytest.raises(FlowSuspended):
        flow.call(Data(), run_id="r")
    definition = flow._definition({})
    for n in (1, 2):
        flow.runs.all.answer("r", flow._outcomes("r", {more: n}, definition))
    assert flow.runs.resume("r", {more: 0}).output.got == (1, 2)


def test_an_answer_by_state_that_cannot_be_kept_is_refused_before_it_is_posted() -> None:
    rows = [plain.done(more), *asking_at_once.rows]
    flow = Flow("f", Data, start=plain, rows=rows, limits=FlowLimits(inbox=1), store=MemoryStore())
    with pytest.raises(FlowSuspended):
        flow.call(Data(), run_id="r")
    with pytest.raises(OutcomeError, match="more"):
        flow.runs.resume("r", {more: "x"})
    with pytest.raises(OutcomeError, match="more"):
        flow.runs.resume("r", {"inbox:more": Returned(text='"x"')})
    with pytest.raises(OutcomeError, match="inbox:plain"):
        flow.runs.resume("r", {"inbox:plain": 1})
    with pytest.raises(FlowSuspended):
        flow.runs.resume("r", {more: 1})
    with pytest.raises(OutcomeError, match=r"limits\.inbox"):
        flow.runs.resume("r", {more: 2})
    assert not flow.runs.all.store.load("r").signals
    with pytest.raises(FlowSuspended) as waiting:
        flow.runs.resume("r", {plain: 1})
    assert waiting.value.run.data.got == (1,)


def full(**options: Any) -> tuple[Flow[Data], Any]:
    """Return a flow that waits for an answer before those to `more`, and the post of an early answer."""
    rows = [plain.done(more), *asking_at_once.rows]
    flow = Flow("f", Data, start=plain, rows=rows, limits=FlowLimits(inbox=1), store=MemoryStore(), **options)
    flow.runs.submit(Data(), run_id="r")

    def post(n: int) -> None:
        flow.runs.all.answer("r", {"inbox:more": Returned(text=str(n))})

    return flow, post


@pytest.mark.parametrize("is_driven", [False, True], ids=["unread", "read one by one"])
def test_a_post_that_finds_the_inbox_full_is_taken_once_there_is_room(is_driven: bool) -> None:
    flow, post = full()
    worker = Worker([flow], flow.store)
    for n in (1, 2, 3, 0):
        post(n)
        if is_driven:
            worker.run(once=True)
    worker.run(once=True)
    assert flow.runs.resume("r", {plain: 7}).output.got == (1, 2, 3)
    assert not flow.runs.all.store.load("r").signals


def test_a_post_for_which_there_is_no_room_makes_no_run_due() -> None:
    flow, post = full()
    for n in range(9):
        post(n)
    assert Worker([flow], flow.store).run(once=True) == 1
    row = flow.runs.all.store.get("r")
    assert row.due_s is None
    assert [question.key for question in row.waits] == ["answer:plain#1"]
    post(9)
    assert flow.runs.all.store.get("r").due_s == 0.0


@pytest.mark.parametrize(
    "outcome", [Returned(text="five"), Returned(text="5", is_error=True), FunctionFailed(text="no")]
)
def test_a_post_that_can_be_no_value_is_refused_when_it_is_posted(outcome: Any) -> None:
    flow, _ = full()
    with pytest.raises(UsageError, match="inbox:more"):
        flow.runs.all.answer("r", {"inbox:more": outcome})
    assert not flow.runs.all.store.load("r").signals


def test_a_post_that_no_state_takes_stays_for_code_that_has_the_state() -> None:
    """A service may know the new name of a state before the workers do."""
    flow, post = full()
    worker = Worker([flow], flow.store)
    flow.runs.all.answer("r", {"inbox:more": Returned(text='"five"')})
    flow.runs.all.answer("r", {"inbox:most": Returned(text="5")})
    assert worker.run(once=True) == 1
    assert flow.runs.all.store.get("r").due_s is None
    post(1)
    worker.run(once=True)
    assert [signal.id for signal in flow.runs.all.store.load("r").signals] == [1, 2]

    @wait(int, early=True)
    def most(d: Data) -> str:
        return "?"

    rows = [plain.done(more), more.done(most, do=add), most.done(over, do=add)]
    newer = replace(flow, rows=rows)
    assert newer.runs.resume("r", {plain: 7}).output.got == (1, 5)


def test_each_flow_inside_has_room_of_its_own() -> None:
    inner = Flow("inner", Data, start=plain, rows=[plain.done(more), *asking_at_once.rows], limits=FlowLimits(inbox=1))
    inside = subflow("inside", inner, lambda n: Data())
    both = each("both", inside, lambda d: (1, 2))
    outer = Flow("outer", Data, start=both, store=MemoryStore(), rows=[
        both.done(over, do=lambda d, found: Data(tuple(n for one in found for n in one.got)))
    ])  # fmt: skip
    outer.runs.submit(Data(), run_id="r")
    for number, n in [(0, 1), (0, 2), (0, 0), (1, 3), (1, 0)]:
        outer.runs.all.answer("r", {f"both#1/{number}/inbox:more": Returned(text=str(n))})
    Worker([outer], outer.store).run(once=True)
    asked = {f"both#1/{number}/answer:plain#1": 7 for number in (0, 1)}
    assert outer.runs.resume("r", asked).output.got == (1, 2, 3)


def empty() -> Data:
    """Return nothing yet."""
    return Data()


def test_a_flow_that_is_a_function_of_an_agent_has_an_inbox_too() -> None:
    inner = Flow("asking", Data, start=plain, rows=[plain.done(one), one.done(over, do=add)])
    function = inner.as_function("ask", "Ask.", start=empty, returns=lambda d: str(d.got))
    agent = Agent(Script(function_call("ask"), "fine"), name="a", functions=[function], store=MemoryStore())
    with pytest.raises(CallSuspended) as waiting:
        agent.call("go", run_id="r")
    path = waiting.value.call.effects[0].key.rpartition("/")[0]
    with pytest.raises(CallSuspended):
        agent.runs.resume("r", {f"{path}/inbox:signal1": Returned(text="7")})
    result = agent.runs.resume("r", {f"{path}/answer:plain#1": Returned(text="1")})
    assert result.output == "fine"
    assert "(7,)" in str(result.dialog)


def test_it_waits_for_room_in_a_flow_that_is_a_function_of_an_agent() -> None:
    rows = [plain.done(one), one.done(two, do=add), two.done(over, do=add)]
    inner = Flow("asking", Data, start=plain, rows=rows, limits=FlowLimits(inbox=1))
    function = inner.as_function("ask", "Ask.", start=empty, returns=lambda d: str(d.got))
    agent = Agent(Script(function_call("ask"), "fine"), name="a", functions=[function], store=MemoryStore())
    with pytest.raises(CallSuspended):
        agent.call("go", run_id="r")
    for n in (2, 1):
        agent.runs.all.answer("r", {f"run:1.0/inbox:signal{n}": Returned(text=str(n))})
    result = agent.runs.resume("r", {"run:1.0/answer:plain#1": Returned(text="1")})
    assert "(1, 2)" in str(result.dialog)


class Fall(BaseException):
    """The process dies."""


@dataclass
class Outside:
    """What is done while the function of `fallen` runs."""

    do: Callable[[], None] = lambda: None


@pytest.fixture
def outside() -> Outside:
    return Outside()


@pytest.fixture
def fallen(outside: Outside) -> Flow[Data]:
    """Return a flow whose function runs another flow, in which it is unknown whether a payment was made."""
    is_to_fall = True

    @execute(once=True)
    def paying(d: Data) -> str:
        if is_to_fall:
            raise Fall
        return "paid"

    rows = [paying.done(more), more.done(over, when=is_over), more.done(more, do=add)]
    inner = Flow("inner", Data, start=paying, rows=rows, limits=FlowLimits(inbox=1))

    @execute
    def calling(d: Data, context: Context) -> Data:
        outside.do()
        return context.call(inner, d).output  # type: ignore[no-any-return]

    rows = [calling.done(over, do=lambda d, found: found)]
    outer = Flow("outer", Data, start=calling, rows=rows, store=MemoryStore())
    with pytest.raises(Fall):
        outer.call(Data(), run_id="r")
    is_to_fall = False
    with pytest.raises(FlowSuspended):
        outer.runs.resume("r")
    return outer


INSIDE = "run:calling#1/1/"


def post_inside(outer: Flow[Data], n: int) -> None:
    outer.runs.all.answer("r", {f"{INSIDE}inbox:more": Returned(text=str(n))})


@pytest.mark.parametrize("is_driven", [False, True], ids=["unread", "read one by one"])
def test_a_post_waits_for_room_in_a_run_that_a_function_has_begun(fallen: Flow[Data], is_driven: bool) -> None:
    worker = Worker([fallen], fallen.store)
    for n in (1, 2, 3, 0):
        post_inside(fallen, n)
        if is_driven:
            worker.run(once=True)
    worker.run(once=True)
    assert fallen.runs.all.store.get("r").due_s is None
    asked = {f"{INSIDE}reconcile:paying#1": Returned(text='"paid"')}
    assert fallen.runs.resume("r", asked).output.got == (1, 2, 3)
    assert not fallen.runs.all.store.load("r").signals


def test_a_post_to_a_run_inside_is_taken_although_its_function_runs(fallen: Flow[Data], outside: Outside) -> None:
    def post_once() -> None:
        outside.do = lambda: None
        post_inside(fallen, 0)

    outside.do = post_once
    with pytest.raises(FlowSuspended):
        fallen.runs.resume("r")
    asked = {f"{INSIDE}reconcile:paying#1": Returned(text='"paid"')}
    assert fallen.runs.resume("r", asked).state == "over"


def test_a_post_that_the_outer_run_passes_on_again_counts_once(
    fallen: Flow[Data], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run inside has taken it, and the outer run died before it removed it."""
    store = fallen.runs.all.store
    append, lost = store.append, list[Any]()

    def lose_first(lease: Any, n: int, lines: Any, suspension: Any = None, *, took: Any = (), **options: Any) -> int:
        if lease.run == "r" and took and not lost:
            lost.extend(took)
            took = ()
        return append(lease, n, lines, suspension, took=took, **options)

    monkeypatch.setattr(store, "append", lose_first)
    worker = Worker([fallen], store)
    for n in (1, 2, 0):
        post_inside(fallen, n)
        worker.run(once=True)
    asked = {f"{INSIDE}reconcile:paying#1": Returned(text='"paid"')}
    assert fallen.runs.resume("r", asked).output.got == (1, 2)
    assert lost


def test_posts_to_the_outer_run_do_not_hide_those_to_the_run_inside(
    fallen: Flow[Data], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run inside is posted to while its driver gives it back, and leaves posts of the outer run unread."""
    store = fallen.runs.all.store
    append = store.append

    def post_first(lease: Any, n: int, lines: Any, suspension: Any = None, **options: Any) -> int:
        if suspension is not None and lease.run == "r/calling#1/1":
            fallen.runs.all.answer(lease.run, {"inbox:more": Returned(text="4")})
        return append(lease, n, lines, suspension, **options)

    for n in (1, 2, 3):
        post_inside(fallen, n)
    monkeypatch.setattr(store, "append", post_first)
    Worker([fallen], store).run(once=True)
    assert store.get("r/calling#1/1").due_s == 0.0


# Random flows


class RandomInboxes:
    """A flow of functions and of waits with an inbox, with the answers during each function, and the expected result.

    Odd answers let a wait be entered again, and an even answer leaves it.  The remaining answers stay in the inbox.
    """

    def __init__(self, seed: int) -> None:
        chance = Random(seed)
        kinds = ["work", *chance.choices(["work", "wait"], k=chance.randint(1, 5)), "wait"]
        self.states: list[Any] = [self.state(kind, f"{kind}{n}") for n, kind in enumerate(kinds)]
        rows: list[Any] = []
        self.plans: dict[str, list[tuple[Any, int]]] = {state.name: [] for state in self.states}
        self.pieces = 1
        self.got, self.left = list[int](), dict[str, list[str]]()
        for n, (kind, state) in enumerate(zip(kinds, self.states, strict=True)):
            to = self.states[n + 1] if n + 1 < len(kinds) else over
            rows += [state.done(state, when=is_odd, do=add)] * (kind == "wait")
            rows.append(state.done(to, do=add if kind == "wait" else None))
            if kind == "wait":
                self.plan(chance, n)
        self.flow = Flow("random", Data, start=self.states[0], rows=rows)

    def state(self, kind: str, name: str) -> Any:
        if kind == "wait":
            return wait(int, name=name, early=True)(lambda d: "?")
        return execute(name=name, blocking=False)(prepare.function.call)  # type: ignore[arg-type]

    def plan(self, chance: Random, n: int) -> None:
        answers = [chance.randrange(1, 99, 2) for _ in range(chance.randint(0, 3))] + [2 * chance.randint(1, 9)]
        names = [state.name for state in self.states[:n]]
        places = sorted(chance.choices(names, k=len(answers)), key=names.index)
        if chance.random() < 0.3:  # all of them, and more, before any is waited for
            more = [chance.randint(1, 99) for _ in range(2)]
            self.left[self.states[n].name] = list(map(str, more))
            self.plans[names[0]] += [(self.states[n], answer) for answer in [*answers, *more]]
        else:
            for place, answer in zip(places, answers, strict=True):
                self.plans[place].append((self.states[n], answer))
        self.got += answers

    def give_due(self, run: Any) -> None:
        """Give what the states that were entered bring, once each."""
        for state in [step.to for step in run.record.trace]:
            while run.effects and (due := self.plans.get(str(state), [])):
                run.give(*due.pop(0))


def is_odd(d: Data, n: int) -> bool:
    return n % 2 == 1


def through_sync(made: RandomInboxes, run: Any) -> Any:
    with suppress(FlowSuspended):
        made.flow.run(run, lambda _: made.give_due(run))
    return run


def through_asyncio(made: RandomInboxes, run: Any) -> Any:
    with suppress(FlowSuspended):
        asyncio.run(made.flow.arun(run, lambda _: made.give_due(run)))
    return run


def through_stream(made: RandomInboxes, run: Any) -> Any:
    for _ in made.flow.stream(run):
        made.give_due(run)
    return run


def through_astream(made: RandomInboxes, run: Any) -> Any:
    async def drive() -> None:
        async for _ in made.flow.astream(run):
            made.give_due(run)

    asyncio.run(drive())
    return run


def through_pieces(made: RandomInboxes, run: Any) -> Any:
    with closing(made.flow.stream(run)) as events:
        for _ in islice(events, made.pieces):
            made.give_due(run)
    made.pieces += 1
    return made.flow.restore(run.snapshot()) if run.journal is None else run


WAYS = [through_sync, through_asyncio, through_stream, through_astream, through_pieces]


@pytest.mark.parametrize("way", WAYS)
def test_random_flows_come_to_what_their_model_says(way: Callable[..., Any]) -> None:
    """Each flow through one of the ways, every other one with a store."""
    for seed in range(WAYS.index(way), 40, len(WAYS)):
        made, is_stored = RandomInboxes(seed), seed // len(WAYS) % 2 == 1
        if is_stored:
            made.flow = replace(made.flow, store=MemoryStore())
        run = made.flow.prepare(Data(), run_id="r" if is_stored else None)
        for _ in range(200):
            if run.record.ending is not None:
                break
            run = way(made, run)
            if run.record.ending is None:
                made.give_due(run)
        left = {name: [answer.text for answer in answers] for name, answers in run.record.inbox.items()}
        assert (run.state, run.data.got, left) == ("over", tuple(made.got), made.left), seed
        if is_stored:
            made.flow.run(run)  # what was given after it had come to rest is not written yet
            assert made.flow.runs.replay("r").record == run.record


def test_an_early_answer_is_taken_when_a_cancellation_had_to_wait_for_a_result() -> None:
    """The row of the cancellation leads to the state in the step in which the result becomes known."""

    @execute(once=True)
    def paying(d: Data) -> str:
        return "paid"

    confirming = signal(1)
    rows = [paying.done(prepare), paying.cancelled(confirming), prepare.done(late), prepare.cancelled(confirming)]
    run = begun(Flow("paying", Data, start=paying, rows=[*rows, confirming.done(over, do=add)]), Data())
    (start,) = [effect.key for effect in run.effects if effect.key.startswith("start:")]
    run.advance(start, Started())
    run.advance("inbox:signal1", Returned(text="7"))
    run.advance("", Cancelled())
    assert (run.state, run.record.inbox) == ("paying", {"signal1": (Returned(text="7"),)})
    (key,) = [effect.key for effect in run.effects if effect.key.startswith("run:")]
    run.advance(key, Returned(text='"paid"'))
    assert (run.state, run.data.got, dict(run.record.inbox)) == ("over", (7,), {})


def test_posts_that_wait_for_room_cost_the_same_however_many_they_are() -> None:
    @execute(blocking=False)
    def working(d: Data) -> str:
        return "worked"

    def cost(n: int) -> float:
        limits, store = FlowLimits(inbox=1), MemoryStore()
        rows = [plain.done(more), more.done(over, when=is_over), more.done(working, do=add), working.done(more)]
        flow = Flow("f", Data, start=plain, rows=rows, limits=limits, store=store)
        with pytest.raises(FlowSuspended):
            flow.call(Data(), run_id="r")
        for number in [*range(n, 0, -1), 0]:
            flow.runs.all.answer("r", {"inbox:more": Returned(text=str(number))})
        got = Data()

        def resume() -> None:
            nonlocal got
            got = flow.runs.resume("r", {plain: 7}).output

        made = calls_made(resume)
        assert got.got == tuple(range(n, 0, -1))
        return made / n

    assert cost(200) < 1.2 * cost(50)
