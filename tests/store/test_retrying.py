"""Does a failed run go on from before its failure, with nothing done twice, and does its journal tell?"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from support.kept_runs import LastingStore

from fsm_agent import Agent, Approved, CallFailed, CallSuspended, Limits, ProviderError, function
from fsm_agent.call import Reason, Returned
from fsm_agent.errors import JournalError, UsageError
from fsm_agent.flows import Flow, FlowFailed, FlowSuspended, ask, each, end, execute, pause, wait
from fsm_agent.messages import Reply, Usage
from fsm_agent.store import MemoryStore, RunBusy, Runs, RunUnknown, SqliteStore, Store, Suspension
from fsm_agent.testing import FakeClock, Script, function_call
from fsm_agent.workers import Worker

KEY = "0123456789abcdef" * 4


@pytest.fixture
def store() -> Store:
    return LastingStore()


@dataclass
class World:
    """What functions did."""

    done: list[str] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)

    def act(self, name: str) -> str:
        if name in self.broken:
            raise RuntimeError(f"{name} is broken")
        self.done.append(name)
        return f"{name} done"


def agent_of(store: Any, world: World, *replies: Any, once: bool = False, **options: Any) -> Agent[Any, Any]:
    @function(on_error="fail")
    def look(what: str) -> str:
        """Look."""
        return world.act(f"look {what}")

    @function(on_error="fail", once=once)
    def pay(amount: int) -> str:
        """Pay."""
        return world.act("pay")

    return Agent(Script(*replies), functions=[look, pay], name="shop", store=store, **options)


def retried_by(store: Store) -> list[str]:
    entries = map(json.loads, store.load("r").lines)
    return [entry["by"] for entry in entries if entry["outcome"]["kind"] == "retried"]


def failed(agent: Agent[Any, Any], run: str = "r") -> None:
    with pytest.raises(CallFailed):
        agent.call("Go.", run_id=run)


def test_a_function_that_failed_is_run_again_and_nothing_else_is(store: Store):
    world = World(broken={"pay"})
    failed(agent_of(store, world, function_call("look", what="a"), function_call("pay", amount=3)))
    row = store.get("r")
    assert (row.is_failed, row.state, world.done) == (True, "Failed", ["look a"])
    world.broken.clear()
    again = agent_of(store, world, "All paid.")
    assert again.runs.all.retry("r", by="ann", at_s=5.0) == row.n - 1
    row = store.get("r")
    assert (row.is_failed, row.is_ended, row.due_s, row.state) == (False, False, 0.0, "ToolInterrupt")
    assert again.runs.resume("r").output == "All paid."
    assert world.done == ["look a", "pay"]
    assert retried_by(store) == ["ann"]
    assert str(again.runs.replay("r").state) == "Completed"


def test_a_request_begins_anew_with_all_its_attempts(store: Store):
    limits = Limits(recalls=2)
    busy = [_overloaded() for _ in range(3)]
    agent = agent_of(store, World(), *busy, limits=limits)
    failed(agent)
    n = store.get("r").n
    agent = agent_of(store, World(), *[_overloaded() for _ in range(2)], "Here.", limits=limits)
    assert agent.runs.all.retry("r") == 1
    assert agent.runs.resume("r").output == "Here."
    assert store.get("r").n > n + 1
    assert str(agent.runs.replay("r").state) == "Completed"


def counting(store: Store, *texts: str, **limits: Any) -> Agent[Any, Any]:
    """Return an agent whose replies have 11 tokens each, and that fails if one is not a number."""
    replies = [Reply.of(text).changed(usage=Usage(input_tokens=10, output_tokens=1)) for text in texts]
    limit = Limits(parse_retries=0, **limits)
    return Agent(Script(*replies), output=int, limits=limit, name="clerk", store=store)


@pytest.mark.parametrize("of", ["an agent", "a flow"])
def test_the_tokens_of_what_is_undone_count_in_the_result(store: Store, of: str):
    agent: Any = counting(store, "none", "none", "7")

    @ask(agent)
    def count(task: str) -> str:
        return task

    runs: Any = agent
    if of == "a flow":
        runs = Flow("counts", str, start=count, rows=[count.done(end("over"))], store=store)
    with pytest.raises((CallFailed, FlowFailed)):
        runs.call("Go.", run_id="r")
    runs.runs.all.retry("r")
    with pytest.raises((CallFailed, FlowFailed)):
        runs.runs.resume("r")
    runs.runs.all.retry("r")
    result = runs.runs.resume("r")
    assert result.usage == Usage(input_tokens=30, output_tokens=3)
    if of == "an agent":
        assert result.usage_by_agent == {"": result.usage}


def test_the_tokens_of_what_is_undone_count_in_the_budget(store: Store):
    agent = counting(store, "none", "7", tokens=15)
    failed(agent)
    agent.runs.all.retry("r")
    with pytest.raises(CallFailed) as caught:
        agent.runs.resume("r")
    assert caught.value.reason is Reason.OVER_BUDGET


def test_a_run_over_its_budget_sends_no_request_when_it_is_retried(store: Store):
    agent = counting(store, "7", tokens=5)
    failed(agent)
    for _ in range(2):
        agent.runs.all.retry("r")
        with pytest.raises(CallFailed) as caught:
            agent.runs.resume("r")
        assert caught.value.reason is Reason.OVER_BUDGET
    assert len(agent.model.requests) == 1
    assert agent.runs.replay("r").record.ending == caught.value.call.record.ending


BEFORE_THEY_COUNTED = """\
{"version":1,"agent":"a","fingerprint":"86c495a7fad57b67","seed":{"prompt":"a","dialog":[{"role":"user","parts":[{"kin\
d":"text","text":"n?"}]}],"limits":{"parse_retries":0,"tokens":100}}}
{"n":1,"key":"begin","outcome":{"kind":"begun","at_s":1796019866.2355578,"id":"r"},"steps":[["","begun"]],"to":["Calli\
ng"],"fence":1,"digest":"9d45e3a07ce3f762961e128d7d237627"}
{"n":2,"key":"model:0","outcome":{"kind":"replied","at_s":1796019866.2400842,"reply":{"message":{"role":"assistant","p\
arts":[{"kind":"text","text":"x"}]},"usage":{"input_tokens":40,"output_tokens":20}}},"steps":[["","parse_failed"]],"to\
":["Failed"],"why":"the answer has no int in JSON","fence":1,"digest":"983094ed057576bdddc340813adb6451"}
{"n":3,"key":"","outcome":{"kind":"retried","step":1,"at_s":1796019866.2445939},"steps":[],"fence":2,"digest":"75b73c1\
146db4f3baf709969e5f9bd4e"}
{"n":4,"key":"model:0","outcome":{"kind":"replied","at_s":1796019866.2466679,"reply":{"message":{"role":"assistant","p\
arts":[{"kind":"text","text":"7"}]},"usage":{"input_tokens":40,"output_tokens":20}}},"steps":[["","answered"]],"to":["\
Completed"],"fence":3,"digest":"b8e230baaed244ebebb25b917f805711"}"""  # the limit is 100, and each reply has 60


def test_a_journal_from_before_they_counted_is_read_as_it_was_written(store: Store):
    header, *lines = BEFORE_THEY_COUNTED.splitlines()
    store.create("r", header, agent="a", holder="h", for_s=0.0, lines=lines)
    call = Agent(Script(), output=int, name="a", store=store).runs.replay("r")
    assert (call.output, call.record.total_usage.total_tokens) == (7, 60)


def _overloaded() -> Exception:
    return ProviderError("overloaded", status=529, retryable=True)


def test_what_must_not_run_twice_and_had_begun_is_asked_about(store: Store):
    world = World(broken={"pay"})
    failed(agent_of(store, world, function_call("pay", amount=3), once=True))
    world.broken.clear()
    agent = agent_of(store, world, "Paid, then.", once=True)
    agent.runs.all.retry("r")
    with pytest.raises(CallSuspended):
        agent.runs.resume("r")
    (question,) = store.get("r").waits
    assert (question.kind, world.done) == ("doubt", [])
    assert agent.runs.resume("r", {question.key: Returned(text="it was paid by hand")}).output == "Paid, then."
    assert world.done == []


def test_it_may_fail_and_be_retried_again(store: Store):
    world = World(broken={"pay"})
    failed(agent_of(store, world, function_call("look", what="a"), function_call("pay", amount=3)))
    steps = []
    for _ in range(3):
        agent = agent_of(store, world, "Paid.")
        steps.append(agent.runs.all.retry("r", by="ann"))
        with pytest.raises(CallFailed):
            agent.runs.resume("r")
    world.broken.clear()
    agent = agent_of(store, world, "Paid.")
    steps.append(agent.runs.all.retry("r", by="bob"))
    assert agent.runs.resume("r").output == "Paid."
    assert world.done == ["look a", "pay"]
    assert str(agent.runs.replay("r").state) == "Completed"
    assert retried_by(store) == ["ann"] * 3 + ["bob"]
    past = agent.runs.at("r", steps[0])
    assert str(past.state) == "ToolInterrupt"
    name = agent.runs.fork("r", steps[-1])
    world.done.clear()
    forked = replace(agent, model=Script("Paid again."))
    assert forked.runs.resume(name).output == "Paid again."
    assert world.done == ["pay"]


def test_a_cancelled_run_goes_on(store: Store):
    @function(needs_approval=True)
    def pay(amount: int) -> str:
        return "paid"

    def agent(*replies: Any) -> Agent[Any, Any]:
        return Agent(Script(*replies), functions=[pay], name="shop", store=store)

    with pytest.raises(CallSuspended):
        agent(function_call("pay", amount=3)).call("Go.", run_id="r")
    key = store.get("r").waits[0].key
    runs = Runs(store)
    runs.cancel("r", "by mistake", by="bob")
    with suppress(CallFailed):
        agent().runs.resume("r")
    assert store.get("r").is_failed
    runs.retry("r", by="ann")
    with pytest.raises(CallSuspended):
        agent().runs.resume("r")
    assert [question.key for question in store.get("r").waits] == [key]
    assert agent("Paid.").runs.resume("r", {key: Approved()}).output == "Paid."


def test_its_deadline_counts_anew(store: Store):
    world = World(broken={"pay"})
    script = Script(function_call("pay", amount=3), "Paid.")
    agent = replace(agent_of(store, world), model=script, limits=Limits(deadline_s=60.0))
    failed(agent)
    script.clock.advance(3600.0)
    world.broken.clear()
    agent.runs.all.retry("r", at_s=script.clock.now())
    assert agent.runs.resume("r").output == "Paid."
    assert str(agent.runs.replay("r").state) == "Completed"


def test_an_agent_inside_goes_on(store: Store):
    world = World(broken={"pay"})

    def boss(*replies: Any, inner: tuple[Any, ...]) -> Agent[Any, Any]:
        worker = replace(agent_of(None, world, *inner), name="payer", store=None)
        return Agent(
            Script(*replies),
            functions=[worker.as_function("payer", "Pays.", on_error="fail")],
            name="boss",
            store=store,
        )

    failing = boss(
        function_call("payer", task="Pay."), inner=(function_call("look", what="a"), function_call("pay", amount=1))
    )
    failed(failing)
    world.broken.clear()
    agent = boss("All is well.", inner=("Paid.",))
    agent.runs.all.retry("r")
    assert agent.runs.resume("r").output == "All is well."
    assert world.done == ["look a", "pay"]
    assert str(agent.runs.replay("r").state) == "Completed"


# Flows


@dataclass(frozen=True)
class Order:
    items: tuple[str, ...] = ("a", "b", "c")
    note: str = ""


def flow_of(store: Any, world: World, **options: Any) -> Flow[Order]:
    @execute
    def first(order: Order) -> str:
        return world.act("first")

    @execute
    def item(name: str) -> str:
        return world.act(f"item {name}")

    @execute(once=True)
    def charging(order: Order) -> str:
        return world.act("charge")

    @wait(str)
    def review(order: Order) -> str:
        return "Is it right?"

    many = each("many", item, lambda order: order.items, parallel=1)
    refused = end("refused", failed="by a person")
    return Flow(
        "orders",
        Order,
        start=first,
        store=store,
        rows=[
            first.done(many),
            many.done(charging),
            charging.done(review),
            review.done(refused, when=is_no, do=lambda order, text: replace(order, note=text)),
            review.done(end("sent"), do=lambda order, text: replace(order, note=text)),
        ],
        **options,
    )


def is_no(order: Order, text: str) -> bool:
    return text == "no"


def test_a_flow_goes_on_in_its_state(store: Store):
    world = World(broken={"item b"})
    with pytest.raises(FlowFailed):
        flow_of(store, world).call(Order(), run_id="f")
    before = list(world.done)
    assert before[0] == "first"
    world.broken.clear()
    flow = flow_of(store, world)
    flow.runs.all.retry("f", by="ann")
    assert store.get("f").state == "many"
    with pytest.raises(FlowSuspended):
        flow.runs.resume("f")
    assert sorted(world.done) == ["charge", "first", "item a", "item b", "item c"]
    assert flow.runs.resume("f", {store.get("f").waits[0].key: Returned(text='"yes"')}).state == "sent"
    assert flow.runs.replay("f").state == "sent"
    assert flow.runs.at("f", "review#4").state == "review"


def test_a_success_that_a_row_made_a_failure_is_not_repeated(store: Store):
    world = World()
    flow = flow_of(store, world)
    with pytest.raises(FlowSuspended):
        flow.call(Order(), run_id="f")
    with pytest.raises(FlowFailed):
        flow.runs.resume("f", {store.get("f").waits[0].key: Returned(text='"no"')})
    before = store.load("f")
    assert before.run.is_failed
    with pytest.raises(UsageError, match="fork"):
        flow.runs.all.retry("f")
    assert store.load("f").lines == before.lines
    assert store.get("f").changed(updated_s=0.0) == before.run.changed(updated_s=0.0)


@pytest.fixture
def timed() -> Timed:
    clock = FakeClock()
    return Timed(Runs(MemoryStore(clock.now), patience_s=0.0), clock)


class Timed:
    """Runs of a flow by a clock that the test moves on: a person looks at drafts, and may want another."""

    def __init__(self, runs: Runs, clock: FakeClock) -> None:
        self.runs, self.clock, self.world = runs, clock, World()

    def flow(self, row: Any = None, **time: Any) -> Flow[Order]:
        @wait(str, **time)
        def review(order: Order) -> str:
            return "Is it right?"

        @execute
        def draft(order: Order) -> str:
            return self.world.act("draft")

        rows = [review.done(draft, when=is_no), review.done(end("sent")), draft.done(review)]
        if row is not None:
            rows.append(review.elapsed(row))
        return Flow("timed", Order, start=review, rows=rows, store=self.runs, environment={"clock": self.clock})

    def fail_at(self, flow: Flow[Order], *, expired_s: float = 0.0) -> None:
        """Begin a run that fails: after this number of seconds, or because the wanted draft has failed."""
        with pytest.raises(FlowSuspended):
            flow.call(Order(), run_id="f")
        self.clock.advance(expired_s)
        self.world.broken = {"draft"}
        with pytest.raises(FlowFailed):
            flow.runs.resume("f", None if expired_s else self.answer("no"))
        self.world.broken = set()

    def retry(self, flow: Flow[Order], *, later_s: float = 3600.0) -> float:
        """Retry the run and return the time of the retry."""
        self.clock.advance(later_s)
        flow.runs.all.retry("f", at_s=self.clock.now())
        return float(self.clock.now())

    def answer(self, text: str) -> dict[str, Any]:
        return {self.runs.store.get("f").waits[0].key: Returned(text=json.dumps(text))}


def test_the_time_of_a_state_that_is_entered_again_counts_anew_too(timed: Timed):
    flow = timed.flow(within_s=100.0, restart=False)
    timed.fail_at(flow)
    retried_s = timed.retry(flow)
    with pytest.raises(FlowSuspended) as waits:
        flow.runs.resume("f")
    assert waits.value.wake_at_s == retried_s + 100.0
    timed.clock.advance(40.0)
    with pytest.raises(FlowSuspended) as waits:
        flow.runs.resume("f", timed.answer("no"))
    assert waits.value.wake_at_s == retried_s + 100.0, "from when it was entered first"
    assert flow.runs.resume("f", timed.answer("yes")).state == "sent"
    assert flow.runs.replay("f").state == "sent"


def test_a_state_that_a_run_is_retried_in_keeps_the_time_that_it_gets_there(timed: Timed):
    flow = timed.flow(within_s=100.0, restart=False)
    timed.fail_at(flow, expired_s=101.0)
    retried_s = timed.retry(flow)
    with pytest.raises(FlowSuspended) as waits:
        flow.runs.resume("f")
    timed.clock.advance(40.0)
    with pytest.raises(FlowSuspended) as waits:
        flow.runs.resume("f", timed.answer("no"))
    assert waits.value.wake_at_s == retried_s + 100.0
    timed.clock.advance(61.0)
    with pytest.raises(FlowFailed, match="review"):
        flow.runs.resume("f")


def test_a_moment_that_has_passed_fails_no_run_that_is_retried(timed: Timed):
    flow = timed.flow(until=timed.clock.now() + 100.0)
    timed.fail_at(flow, expired_s=101.0)
    timed.retry(flow)
    with pytest.raises(FlowSuspended) as waits:
        flow.runs.resume("f")
    assert waits.value.wake_at_s is None
    assert flow.runs.resume("f", timed.answer("yes")).state == "sent"
    assert flow.runs.replay("f").state == "sent"


def test_a_moment_whose_end_a_row_takes_is_over_for_a_retried_run_too(timed: Timed):
    flow = timed.flow(end("late"), until=timed.clock.now() + 100.0)
    with pytest.raises(FlowSuspended):
        flow.call(Order(), run_id="f")
    flow.runs.all.cancel("f", "by mistake")
    with pytest.raises(FlowFailed):
        flow.runs.resume("f")
    timed.retry(flow)
    assert flow.runs.resume("f").state == "late"


def test_a_flow_inside_a_call_goes_on_with_its_whole_time(timed: Timed):
    """Of its record, the call knows no more than an outline, until it makes the flow again."""

    def boss(*replies: Any) -> Agent[Any, Any]:
        asked = replace(timed.flow(within_s=100.0), store=None).as_function("ask", "Asks.")
        agent = agent_of(timed.runs, timed.world, *replies, limits=Limits(deadline_s=500.0))
        return agent.changed(functions=[*agent.functions, asked], environment={"clock": timed.clock})

    timed.world.broken = {"pay"}
    failed(boss([function_call("ask"), function_call("pay", amount=3)]), "f")
    timed.world.broken = set()
    timed.clock.advance(3600.0)
    agent = boss("All is well.")
    agent.runs.all.retry("f", at_s=timed.clock.now())
    with pytest.raises(CallSuspended):
        agent.runs.resume("f")
    assert timed.world.done == ["pay"]
    assert agent.runs.at("f").deadline.at_s == timed.clock.now() + 100.0
    assert agent.runs.replay("f").deadline.at_s == timed.clock.now() + 100.0
    assert agent.runs.resume("f", timed.answer("yes")).output == "All is well."


def test_a_cancellation_that_came_too_late_for_the_failed_run_does_not_end_the_retried_one(store: Store):
    """It was posted, and not read, when the run failed."""

    class Late:
        def on_function_started(self, event: Any) -> None:
            store.signal("r", "", '{"key":"","outcome":{"kind":"cancelled","reason":"too late"}}', by="bob")

    world = World(broken={"pay"})
    failed(agent_of(store, world, function_call("pay", amount=3), hooks=[Late()]))
    world.broken.clear()
    agent = agent_of(store, world, "Paid.")
    agent.runs.all.retry("r")
    assert agent.runs.resume("r").output == "Paid."


# What is refused


def test_what_has_not_failed_is_refused(store: Store):
    agent = agent_of(store, World(), "Well.")
    agent.call("Go.", run_id="r")
    with pytest.raises(UsageError, match="Completed"):
        agent.runs.all.retry("r")
    store.create("open", store.load("r").header, agent="shop")
    with pytest.raises(UsageError, match="'open'"):
        agent.runs.all.retry("open")
    with pytest.raises(UsageError, match="Completed"):
        agent.runs.all.requeue("r")
    with pytest.raises(RunUnknown):
        agent.runs.all.retry("nobody")


def test_one_of_two_retries_wins(store: Store):
    world = World(broken={"pay"})
    agent = agent_of(store, world, function_call("pay", amount=3))
    failed(agent)
    agent.runs.all.retry("r")
    with pytest.raises(UsageError, match="'r'"):
        agent.runs.all.retry("r")
    lease = store.claim("w", for_s=60.0, run="r")
    assert lease is not None
    with pytest.raises(RunBusy):
        agent.runs.all.requeue("r")


def test_an_earlier_turn_is_not_retried_behind_a_later_one(store: Store):
    world = World(broken={"pay"})
    agent = agent_of(store, world, function_call("pay", amount=3), "Hello again.")
    with pytest.raises(CallFailed):
        agent.conversation("c").call("Pay.")
    turn = store.head("c").run
    agent.conversation("c").call("Hello?")
    with pytest.raises(UsageError, match="'c'"):
        agent.runs.all.retry(turn)
    world.broken.clear()


def test_a_signed_run_is_retried_with_its_key_alone(store: Store):
    world = World(broken={"pay"})
    failed(agent_of(Runs(store, signing_key=KEY), world, function_call("pay", amount=3)))
    with pytest.raises(JournalError):
        Runs(store).retry("r")
    assert (store.get("r").is_failed, store.get("r").holder) == (True, None)
    world.broken.clear()
    runs = Runs(store, signing_key=KEY)
    runs.retry("r")
    agent = agent_of(runs, world, "Paid.")
    assert agent.runs.resume("r").output == "Paid."
    assert str(agent.runs.replay("r").state) == "Completed"


def test_a_forged_step_is_refused(tmp_path: Path):
    world = World(broken={"pay"})
    store = SqliteStore(tmp_path / "runs.db")
    agent = agent_of(store, world, function_call("look", what="a"), function_call("pay", amount=3))
    failed(agent)
    agent.runs.all.retry("r")
    with store._connections.one() as connection:
        [line] = connection.execute("SELECT line FROM journal ORDER BY place DESC LIMIT 1").fetchone()
        changed = json.dumps({**json.loads(line), "outcome": {"kind": "retried", "step": 1, "at_s": 1.0}})
        connection.execute("UPDATE journal SET line = ? WHERE line = ?", (changed, line))
    with pytest.raises(JournalError):
        agent.runs.resume("r")
    store.close()


# Stuck and resting runs


def test_a_stuck_run_is_tried_again(store: Store):
    agent = agent_of(store, World(), "Well.")
    store.create("r", agent.prepare("Go.", run_id="r").journal.header, agent="shop")
    for _ in range(6):
        lease = store.claim("w", for_s=0.0, run="r")
        assert lease is not None
    with suppress(Exception):
        agent.runs.resume("r")
    assert [question.kind for question in store.get("r").waits] == ["stuck"]
    assert [run.id for run in store.list(waiting_for="stuck")] == ["r"]
    assert agent.runs.all.requeue("r", by="ann") is True
    assert store.get("r").due_s == 0.0
    assert agent.runs.resume("r").output == "Well."


def test_a_resting_run_is_made_due(store: Store):
    flow = Flow("later", Order, start=(later := pause("later", 3600.0)), rows=[later.elapsed(end("over"))], store=store)
    with pytest.raises(FlowSuspended):
        flow.call(Order(), run_id="f")
    assert store.get("f").due_s not in (None, 0.0)
    waits = store.get("f").waits
    assert flow.runs.all.requeue("f") is True
    row = store.get("f")
    assert (row.due_s, row.waits, row.state) == (0.0, waits, "later")
    assert flow.runs.all.requeue("f") is False, "it is due already"
    Worker([flow], store).run(once=True)
    for _ in range(9):  # no try to drive it
        flow.runs.all.requeue("f")
        lease = store.claim("w", for_s=0.0, run="f")
        assert lease is not None
        assert lease.tries == 1
        store.append(lease, lease.n, (), Suspension(state="later", due_s=row.due_s + 1e9))
    flow.runs.all.requeue("f")
    Worker([flow], store).run(once=True)
    assert store.get("f").due_s not in (None, 0.0), "its time has not come"
    assert store.get("f").state == "later"
