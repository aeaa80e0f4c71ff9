"""Do timers, deadlines, cancellations, failures, stores and versions do to a flow what they should?"""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from flow_runs import Driver, begun, by_run, everywhere, s, scripts

from fsm_agent import Agent, Approved, CallSuspended, Context, MemoryStore, Reply, function
from fsm_agent.call import Cancelled, FunctionFailed, Returned, RunAgain, Started, Stopped
from fsm_agent.errors import IllegalTrigger, OutcomeError, Overloaded, SnapshotError
from fsm_agent.flows import (
    AwaitAnswer,
    Failure,
    Flow,
    FlowFailed,
    FlowLimits,
    FlowSuspended,
    ask,
    end,
    execute,
    gather,
    pause,
    subflow,
    wait,
)
from fsm_agent.messages import FunctionCall, Message, Suspended, TokenLogprob
from fsm_agent.store import AlreadyAnswered, NotAsked, RunExists, SqliteStore
from fsm_agent.testing import FakeClock, Script, function_call


@dataclass(frozen=True)
class Word:
    text: str = ""
    n: int = 0


bot = Agent("openai:gpt-5-mini", name="bot")
over, late = end("over"), end("late")


@ask(bot, within_s=60)
def inquiring(d: Word) -> str:
    return "?"


@wait(str, within_s=3600)
def person(d: Word) -> str:
    return f"What now? {d.text}"


def put(d: Word, a: str) -> Word:
    return replace(d, text=a)


asking = Flow(
    "asking",
    Word,
    start=inquiring,
    rows=[inquiring.done(person, do=put), inquiring.elapsed(late), person.done(over, do=put)],
)


class TestTime:
    @everywhere
    def test_a_short_pause_is_waited_for_and_a_long_one_is_a_rest(self, driven: Driver) -> None:
        for delay_s, state in [(30, "over"), (3600, "nap")]:
            nap = pause("nap", delay_s)
            clock = FakeClock()
            flow = Flow("f", Word, start=nap, rows=[nap.elapsed(over)], environment={"clock": clock})
            run = flow.prepare(Word())
            driven(flow, run)
            assert run.state == state
        assert run.deadline is not None
        clock.advance(3600)
        driven(flow, run)
        assert run.state == "over"

    @everywhere
    def test_beyond_patience_it_says_when_it_goes_on_as_the_store_does(self, driven: Driver) -> None:
        clock, store = FakeClock(), MemoryStore()
        nap = pause("nap", 500)
        flow = Flow("f", Word, start=nap, rows=[nap.elapsed(over)], store=store, environment={"clock": clock})
        heard = driven(replace(flow, store=None), replace(flow, store=None).prepare(Word()))
        assert not heard or heard[-1] == Suspended(("sleep:nap#1",), clock.now() + 500)
        with pytest.raises(FlowSuspended) as e:
            flow.call(Word(), run_id="r")
        assert e.value.wake_at_s == clock.now() + 500
        assert store.load("r").run.due_s == e.value.wake_at_s
        clock.advance(500)
        assert flow.runs.resume("r").state == "over"


class TestEnds:
    @everywhere
    def test_a_failed_call_takes_its_row_or_the_default(self, driven: Driver) -> None:
        down = {inquiring: Script(Overloaded("down", retryable=False))}
        run = asking.prepare(Word(), clients=down)
        driven(asking, run)
        assert run.state == "Failed"
        with pytest.raises(FlowFailed, match="down"):
            run.result()

        def is_model(d: Word, why: Failure) -> bool:
            return why.reason == "model failed" and why.where == "inquiring"

        rows = [*asking.rows[:3], inquiring.failed(late, when=is_model)]
        flow = replace(asking, rows=rows)
        run = flow.prepare(Word(), clients={inquiring: Script(Overloaded("down", retryable=False))})
        driven(flow, run)
        assert run.state == "late"

    @everywhere
    def test_cancelled_from_a_thread_while_a_function_runs(self, driven: Driver) -> None:
        begun = threading.Event()

        @execute
        async def hang(d: Word, context: Context[Any]) -> str:
            begun.set()
            await asyncio.Event().wait()
            return ""

        flow = Flow("f", Word, start=hang, rows=[hang.done(over)])
        run = flow.prepare(Word())

        def cancel() -> None:
            begun.wait(20)
            run.cancel("enough")

        thread = threading.Thread(target=cancel)
        thread.start()
        driven(flow, run)
        thread.join()
        assert run.state == "Cancelled"
        assert run.record.ending.detail == "enough"  # type: ignore[union-attr]

    def test_cancelled_by_hand_before_the_start_and_inside(self) -> None:
        run = asking.prepare(Word())
        run.advance("", Cancelled(reason="no"))
        assert (run.state, run.effects) == ("Cancelled", ())
        run = begun(asking, Word())
        run.advance("inquiring#1/", Cancelled(reason="of the child alone"))
        assert run.state == "Failed"
        assert run.record.ending.detail == "cancelled: of the child alone"  # type: ignore[union-attr]
        with pytest.raises(IllegalTrigger, match="has ended"):
            run.advance("", Cancelled())

    def test_a_flow_is_not_stopped(self) -> None:
        run = begun(asking, Word())
        before = run.record
        with pytest.raises(IllegalTrigger):
            run.advance("", Stopped())
        assert run.record is before
        assert [e.key for e in run.effects] == ["sleep:inquiring#1", "inquiring#1/model:0"]

    def test_a_loop_ends_at_the_limit(self) -> None:
        @execute
        def again(d: int) -> int:
            ran.append(d)
            return d + 1

        ran: list[int] = []

        def is_small(d: int, a: int) -> bool:
            return a < 10**6

        rows = [again.done(again, when=is_small, do=lambda d, a: a), again.done(over)]
        flow = Flow("f", int, start=again, rows=rows, limits=FlowLimits(steps=25))
        with pytest.raises(FlowFailed, match="25"):
            flow.call(0)
        assert len(ran) == 25


class TestFunctions:
    def test_the_context_has_deps_and_a_key(self) -> None:
        seen: list[Any] = []

        @execute
        def look(d: Word, context: Context[Any]) -> str:
            seen.append((context.deps, context.idempotency_key))
            return ""

        flow = Flow("f", Word, start=look, rows=[look.done(over)], environment={"new_id": lambda: "r7"})
        flow.call(Word(), deps={"db": 1})
        assert seen == [({"db": 1}, "r7/look#1")]

    def test_a_result_that_is_no_json_of_its_type_is_a_failure_too(self) -> None:
        @execute
        def counts(d: Word) -> int:
            return 1

        run = begun(Flow("f", Word, start=counts, rows=[counts.done(over), counts.failed(late)]), Word())
        run.advance(run.effects[0].key, Returned(text='"many"'))
        assert run.state == "late"
        assert "counts" in run.record.trace[-1].detail

    def test_once_in_doubt_asks_somebody_and_goes_on(self) -> None:
        sent: list[str] = []

        @execute(once=True)
        def send(d: Word, context: Context[Any]) -> str:
            sent.append(context.idempotency_key)
            return "ok"

        flow = Flow("f", Word, start=send, rows=[send.done(over, do=put), send.failed(late)])
        for answer, state in [
            (RunAgain(), "over"),
            (Returned(text='"by hand"'), "over"),
            (FunctionFailed(text="no"), "late"),
        ]:
            sent.clear()
            run = begun(flow, Word())
            run.advance("start:send#1", Started())
            run = flow.restore(run.snapshot())  # its driver is gone
            by_run(flow, run)
            (doubt,) = run.effects
            assert (doubt.key, doubt.idempotency_key) == ("reconcile:send#1", "r/send#1")
            run.advance("reconcile:send#1", answer)
            by_run(flow, run)
            assert run.state == state
            assert sent == (["r/send#1"] if isinstance(answer, RunAgain) else [])

    def test_reconcile_finds_out(self) -> None:
        @execute(once=True, reconcile=lambda context: Returned(text='"found"'))
        def send(d: Word) -> str:
            raise AssertionError("not twice")

        flow = Flow("f", Word, start=send, rows=[send.done(over, do=put)])
        run = begun(flow, Word())
        run.advance("start:send#1", Started())
        by_run(flow, run)
        assert run.data.text == "found"


@function(needs_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


class TestInside:
    @everywhere
    def test_a_flow_in_a_flow_and_an_answer_in_it(self, driven: Driver) -> None:
        nested = subflow("nested", asking, lambda d: Word(d.text))
        outer = Flow("outer", Word, start=nested, rows=[nested.done(over, do=lambda d, a: a), nested.failed(late)])
        clients = {inquiring: Script("hello")}
        run = outer.prepare(Word("x"), clients=clients)
        driven(outer, run)
        assert [e.key for e in run.effects] == ["nested#1/answer:person#2", "nested#1/sleep:person#2"]
        again = outer.restore(run.snapshot(), clients=clients)
        assert again.record == run.record
        again.give(person, "bye")
        assert (again.state, again.data) == ("over", Word("bye"))
        run.advance("nested#1/", Cancelled())
        assert run.state == "late"

    @pytest.mark.parametrize("whose", ["outer", "inner", "both", "nobody"])
    def test_a_flow_inside_has_people_of_its_own_or_those_around_it(self, whose: str) -> None:
        asked = list[str]()

        def people(name: str) -> dict[str, Any]:
            def approve(f: Any) -> bool:
                asked.append(f"{name} may {f.name}")
                return True

            def answer(question: AwaitAnswer) -> str:
                asked.append(f"{name} knows {question.state.name}")
                return name

            return {"approve": approve, "answer": answer} if whose in (name, "both") else {}

        @function
        def look() -> str:
            return "x"

        looking = ask(Agent(bot.model, functions=[look]), name="looking")(lambda d: "?")
        person = wait(str, name="person")(lambda d: "?")
        rows = [looking.done(person), person.done(over, do=put)]
        inner = Flow("inner", Word, start=looking, rows=rows, **people("inner"))
        nested = subflow("nested", inner, lambda d: d)
        outer = Flow("outer", Word, start=nested, rows=[nested.done(over, do=lambda d, a: a)], **people("outer"))
        run = outer.prepare(Word(), clients={looking: Script(function_call("look"), "seen")})
        if whose == "nobody":
            with pytest.raises(FlowSuspended, match="nested#1/answer:person#2"):
                outer.run(run)
            assert not asked
            return
        name = "outer" if whose == "outer" else "inner"
        assert outer.run(run).output.text == name
        assert asked == [f"{name} may look", f"{name} knows person"]

    def test_an_agent_is_chosen_by_the_data(self) -> None:
        one, two = Agent(Script("one"), name="one"), Agent(Script("two"), name="two")

        def choose(d: Word) -> Agent[Any, Any]:
            return two if d.n else one

        chosen = ask(choose, str, name="chosen")(lambda d: "?")
        flow = Flow("f", Word, start=chosen, rows=[chosen.done(over, do=put)])
        assert flow.call(Word(n=1)).output.text == "two"
        assert flow.call(Word(n=0)).output.text == "one"

    @pytest.mark.parametrize("is_async", [False, True])
    def test_hooks_of_the_flow_and_of_its_agents(self, is_async: bool, tmp_path: Path) -> None:
        """They hear of processes that have ended before the events are written, too."""

        class Hook:
            def __init__(self) -> None:
                self.seen: list[str] = []

            def on_stepped(self, event: Any) -> None:
                self.seen.append(event.trigger)

            def on_done(self, event: Any) -> None:
                self.seen.append(repr(event.result))

        hooks = {name: Hook() for name in ("flow", "one", "other")}
        calls = [
            ask(Agent(Script("hi"), name=name, hooks=[hooks[name]]), name=name)(lambda d: "?")
            for name in ("one", "other")
        ]
        both: Any = gather("both", *calls)
        rows = [both.done(over, do=lambda d, a: put(d, a[0]))]
        flow = Flow("f", Word, start=both, rows=rows, hooks=[hooks["flow"]], store=tmp_path / "runs.db")
        asyncio.run(flow.acall(Word(), run_id="r")) if is_async else flow.call(Word(), run_id="r")
        assert hooks["flow"].seen == ["begun", "done", "FlowResult(over, Word(text='hi', n=0))"]
        for name in ("one", "other"):
            assert hooks[name].seen == ["begun", "answered", "CallResult(Completed, 'hi', 0 function call(s))"]

    @everywhere
    def test_people_who_are_here_may_be_asked_by_a_coroutine_or_not_know(self, driven: Driver) -> None:
        async def here(question: Any) -> str:
            return f"answer to {question.shown}"

        for answer, state in [(here, "over"), (lambda question: None, "person")]:
            flow = replace(asking, answer=answer, environment={"clock": FakeClock()})
            run = flow.prepare(Word(), clients={inquiring: Script("x")})
            driven(flow, run)
            assert run.state == state


class TestStores:
    def test_a_run_survives_its_process_at_each_rest(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        clock, clients = FakeClock(), scripts()
        flow = replace(s.support, store=SqliteStore(tmp_path / "runs.db", clock.now), environment={"clock": clock})
        with pytest.raises(FlowSuspended, match="answer:customer#3"):
            flow.call(s.Ticket("x"), run_id="t1", clients=clients, extra={"ticket": 17})
        (waits,) = flow.runs.all.store.load("t1").run.waits
        asked = {"question": "Which order?", "types": ["str"], "until_s": waits.until_s}
        assert json.loads(waits.about) == asked
        assert flow.runs.all.store.load("t1").run.due_s is not None
        with pytest.raises(NotAsked):
            flow.runs.resume("t1", {"answer:customer#1": Returned(text='"?"')}, clients=clients)
        with pytest.raises(OutcomeError):
            flow.runs.resume("t1", {s.review: s.Approve("eve")}, clients=clients)
        with pytest.raises(FlowSuspended, match="answer:review#7"):
            flow.runs.resume("t1", {s.customer: "order 17"}, clients=clients, by="the customer")
        with pytest.raises(FlowSuspended, match="answer:review#10"):
            asyncio.run(flow.runs.aresume("t1", {s.review: s.Change("say sorry")}, clients=clients))
        result = flow.runs.resume("t1", {"answer:review#10": s.Approve("ann")}, clients=clients)
        assert (result.state, result.extra) == ("sent", {"ticket": 17})
        assert result.output.receipt == "sent as t1/sending#11"
        assert flow.runs.resume("t1").record == result.record
        assert flow.runs.replay("t1").record == result.record
        assert (tmp_path / "outbox.txt").read_text().count("\n") == 1
        with pytest.raises((NotAsked, AlreadyAnswered, OutcomeError)):
            flow.runs.resume("t1", {s.review: s.Approve("late")})

    def test_the_same_name_goes_on_with_the_same_run(self) -> None:
        flow = replace(asking, store=MemoryStore())
        client = Script("hello")
        for _ in range(2):
            with pytest.raises(FlowSuspended):
                flow.call(Word("a"), run_id="w", clients={inquiring: client})
        assert len(client.requests) == 1
        with pytest.raises(RunExists):
            flow.call(Word("b"), run_id="w", clients={inquiring: client})


@wait(datetime)
def meeting(d: Word) -> str:
    return "When?"


@pytest.mark.parametrize(
    "post",
    [
        lambda runs, answers: runs.resume("r", answers),
        lambda runs, answers: asyncio.run(runs.aresume("r", answers)),
        lambda runs, answers: [*runs.stream("r", answers)],
        lambda runs, answers: runs.get("r").answer(answers),
    ],
    ids=["resume", "aresume", "stream", "answer"],
)
def test_json_that_a_state_cannot_read_is_refused_when_it_is_posted(post: Callable[[Any, Any], Any]) -> None:
    """The schema of a time takes every text; its driver would refuse this one, and only the log would say so."""
    flow = Flow("meetings", Word, start=meeting, rows=[meeting.done(over)], store=MemoryStore())
    with pytest.raises(FlowSuspended):
        flow.call(Word(), run_id="r")
    key = "answer:meeting#1"
    for whom in (key, meeting):
        with pytest.raises(OutcomeError, match="meeting"):
            post(flow.runs, {whom: Returned(text='"some day"')})
    flow.runs.get("r").answer({key: Returned(text='"2026-11-29T18:00:00Z"')})
    assert flow.runs.resume("r").state == "over"


class TestVersions:
    def waiting(self, **changes: Any) -> str:
        flow = replace(asking, **changes)
        run = flow.prepare(Word("a"), clients={inquiring: Script("x")})
        by_run(flow, run)
        return run.snapshot()

    def test_a_waiting_run_goes_on_under_a_changed_table(self) -> None:
        changed = replace(asking, rows=[*asking.rows[:2], person.done(late, do=put)])
        run = changed.restore(self.waiting())
        run.give(person, "z")
        assert run.state == "late"

    def test_another_flow_is_refused(self) -> None:
        with pytest.raises(SnapshotError, match="other"):
            replace(asking, name="other").restore(self.waiting())

    def test_a_signed_document_is_taken_only_as_it_is(self) -> None:
        key = "k" * 32
        run = asking.prepare(Word("a"))
        document = run.snapshot(signing_key=key)
        assert asking.restore(document, signing_key=key).record == run.record
        with pytest.raises(SnapshotError):
            asking.restore(document.replace('"text":"a"', '"text":"b"'), signing_key=key)


@pytest.mark.parametrize("kind", ["a state", "a flow as a function"])
def test_a_run_rests_with_a_probability_of_zero_inside(tmp_path: Path, kind: str) -> None:
    """Its logarithm is minus infinity, in JSON that is part of other JSON."""

    @function(needs_approval=True)
    def pay(amount: int) -> str:
        return f"paid {amount}"

    wanted = FunctionCall(id="1", name="pay", arguments_json='{"amount": 3}')
    reply = Reply(message=Message(role="assistant", parts=(wanted,)), logprobs=(TokenLogprob("pay", -math.inf),))

    @ask(Agent(Script(reply, "Paid."), name="clerk", functions=[pay]))
    def paying(text: str) -> str:
        return text

    flow = Flow("payments", str, start=paying, rows=[paying.done(end("paid"), do=lambda text, answer: answer)])
    script = Script(function_call("payments", data="Pay."), "It is paid.")
    boss = Agent(script, name="boss", functions=[flow], store=tmp_path / "runs.db")
    there: Any = replace(flow, store=tmp_path / "runs.db") if kind == "a state" else boss
    with pytest.raises((FlowSuspended, CallSuspended)):
        there.call("Pay.", run_id="r")
    (question,) = there.runs.all.store.load("r").run.waits
    result = there.runs.resume("r", {question.key: Approved()})
    assert result.output == ("Paid." if kind == "a state" else "It is paid.")
    assert "-Infinity" in "".join(there.runs.all.export("r"))


def test_an_answer_to_a_run_that_has_ended_is_told_so_by_the_state_too() -> None:
    asked = wait(str, name="asked")(lambda data: "?")
    flow = Flow("f", str, start=asked, rows=[asked.done(end("over"))], store=MemoryStore())
    with pytest.raises(FlowSuspended):
        flow.call("x", run_id="r")
    flow.runs.resume("r", {asked: "yes"})
    for answers in ({asked: "yes"}, {"answer:asked#1": "yes"}, {"answer:asked#1": Returned(text='"yes"')}, "yes"):
        with pytest.raises(NotAsked, match="'r'"):
            flow.runs.resume("r", answers)
    assert flow.runs.resume("r").state == flow.runs.resume("r", {}).state == "over", (
        "without an answer, it is the result again"
    )


def test_a_function_of_a_flow_knows_the_name_of_its_run() -> None:
    @execute
    def work(data: str, context: Context) -> str:
        return context.agent_call_id

    flow = Flow("f", str, start=work, rows=[work.done(end("over"), do=lambda data, name: name)], store=MemoryStore())
    assert flow.call("x", run_id="a/run").output == "a/run"
