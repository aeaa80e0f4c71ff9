"""Do runs rest, wake, change hands and end correctly, whatever was deployed in between?"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from recorded_drivers import WAYS, Way
from support.kept_runs import (
    Elsewhere,
    LastingStore,
    add,
    answers,
    clerk,
    definition_of,
    ended,
    loaded,
    pay,
    rested,
    skip_replies,
    triggers,
    wipe,
)

from fsm_agent.agents import Agent
from fsm_agent.call import (
    Approved,
    CallFailed,
    CallSuspended,
    Cancelled,
    Denied,
    Injected,
    Limits,
    Modified,
    Outcome,
    Reason,
    Returned,
    RunAgain,
    Stopped,
)
from fsm_agent.errors import JournalError, OutcomeError, RateLimited, ReplayError, UsageError
from fsm_agent.flows import Flow, FlowFailed, FlowSuspended, end, execute, wait
from fsm_agent.flows import ask as asking
from fsm_agent.functions import Function, function
from fsm_agent.messages import Inside, Message, TextDelta
from fsm_agent.prompts import Prompt
from fsm_agent.store import (
    AlreadyAnswered,
    Lease,
    LeaseLost,
    MemoryStore,
    NotAsked,
    RunBusy,
    RunExists,
    Runs,
    RunUnknown,
)
from fsm_agent.testing import Script, function_call

STUCK, MAX_TRIES = "stuck", 5  # claims in a row without an entry
PATIENCE_S = 30.0


@pytest.fixture
def store() -> Any:
    return LastingStore()


def resume(agent: Agent[Any, Any], told: Any = None) -> Any:
    return agent.runs.resume("r1", told, by="ann")


# Rests


def create(agent: Agent[Any, Any]) -> None:
    """Begin a run that has not been driven."""
    header = agent.prepare("Go.", run_id="r1").journal.header
    assert agent.runs.all.store.create("r1", header, agent=agent.name) is True


class Crowded(MemoryStore):
    """A store in which a worker claims due runs as soon as a run is created."""

    def create(self, *args: Any, **options: Any) -> Lease | bool:
        made = super().create(*args, **options)
        self.claim("a worker", for_s=PATIENCE_S)
        return made


def test_no_worker_is_faster_than_who_calls():
    store = Crowded()
    agent = Agent(Script("one", "two", "three"), store=store, name="caller")
    assert agent.call("Go.", run_id="named").output == "one"
    assert agent.call("Go.").output == "two"
    assert agent.conversation("c").call("Go.").output == "three"
    agent.runs.all.fork("named", 1, "copied")
    assert (store.load("copied").run.state, store.load("copied").run.holder) == ("Forked", None)


def test_a_run_rests_with_its_question_and_goes_on_with_the_answer(store: Any):
    agent = rested(store)
    run = loaded(store).run
    (question,) = run.waits
    assert (run.state, run.due_s, run.holder, run.is_ended) == ("ToolInterrupt", None, None, False)
    assert (question.kind, json.loads(question.about)["function"]) == ("approval", "wipe")
    result = resume(agent, {question.key: Approved()})
    assert result.output == 42
    assert loaded(store).run.is_ended
    assert resume(agent).record == result.record
    assert agent.runs.replay("r1").record == result.record


def test_an_answer_has_the_time_of_the_clock_that_drives_the_run(store: Any):
    """Even if another model, with its own clock, is given for now."""
    agent = Agent("openai:m", functions=[wipe], name="clerk", store=store)
    with pytest.raises(CallSuspended):
        agent.call("Wipe.", run_id="r", model=Script(function_call("wipe", path="x")))
    result = agent.runs.resume("r", {"ask:1.0": Approved()}, model=Script("Wiped."))
    assert {step.at_s for step in result.trace} == {1_000_000_000.0}


def test_a_signed_run_is_resumed_with_its_key_alone(store: Any):
    key, other = "k" * 32, "j" * 32
    agent = rested(Runs(store, signing_key=key))
    wrong = clerk(Runs(store, signing_key=other))
    with pytest.raises(JournalError, match="snapshot"):
        resume(wrong)
    agent.runs.all.answer("r1", {STUCK: RunAgain()})
    with pytest.raises(CallSuspended):
        resume(agent)
    assert resume(agent, answers(agent.runs.all, "r1")).output == 42


def test_a_signed_run_that_is_read_without_its_key_says_so_and_is_left_as_it_is(store: Any):
    agent = rested(Runs(store, signing_key="k" * 32))
    waits, keyless = loaded(store).run.waits, clerk(store)
    for wrong in (resume, lambda a: a.runs.replay("r1"), lambda a: a.runs.all.fork("r1", 2, "r2")):
        with pytest.raises(JournalError, match="signing_key"):
            wrong(keyless)
    run = loaded(store).run
    assert (run.waits, run.holder) == (waits, None)
    assert resume(agent, answers(agent.runs.all, "r1")).output == 42
    with pytest.raises(JournalError, match="signed"):
        resume(keyless)


def test_a_backoff_beyond_the_patience_is_a_rest_that_is_due(store: Any):
    agent = clerk(Runs(store, patience_s=1.0))
    with pytest.raises(CallSuspended, match="r1"):
        agent.call("Go.", run_id="r1")
    run = loaded(store).run
    assert run.state == "Backoff"
    assert run.due_s == agent.client.clock.now() + 2.0
    agent.client.clock.advance(1.5)
    with pytest.raises(CallSuspended, match="waits in ToolInterrupt"):
        resume(agent)
    assert agent.client.clock.sleeps == [0.5]


def test_a_deadline_is_a_rest_that_is_due(store: Any):
    agent = rested(store, limits=Limits(deadline_s=60.0))
    assert loaded(store).run.due_s == pytest.approx(agent.client.clock.now() + 58.0)
    agent.client.clock.advance(61.0)
    with pytest.raises(CallFailed, match="expired"):
        resume(agent)
    assert loaded(store).run.is_ended


# Code that was changed


def after(functions: Any, output: Any = int, entries: Any = ("42",)) -> Callable[[Any], Agent[Any, Any]]:
    def make(store: Any) -> Agent[Any, Any]:
        return Agent(Script(*entries), functions=functions, output=output, store=store, name="clerk")

    return make


def broken_off(store: Any) -> None:
    """A holder died halfway, so its entries are not followed by a rest."""
    agent = clerk(store)
    one, _ = agent.runs.all.claims.begin(agent.prepare("Go.", run_id="r1"), definition_of(agent))
    recorder = _
    seen: list[Any] = []

    class Died(BaseException):
        pass

    def listen(event: Any) -> None:
        seen.append(event)
        if len([e for e in seen if type(e).__name__ == "Stepped"]) == 5:
            recorder.lost = LeaseLost("died")
            raise Died

    with pytest.raises(Died):
        WAYS[0](one, agent._own_environment, recorder, listen)
    store._clock = Elsewhere()


def test_a_change_since_the_last_rest_is_a_replay_error_and_the_run_is_stuck_until_somebody_says(store: Any):
    broken_off(store)
    assert loaded(store).snapshot is None
    agent = after([pay, wipe])(store)
    with pytest.raises(ReplayError, match=r"entry \d+ \(key .*the definition has changed from \w+ to \w+") as caught:
        resume(agent)
    run = loaded(store).run
    (question,) = run.waits
    assert (run.state, question.key, question.kind, run.due_s) == ("Stuck", STUCK, "stuck", None)
    assert json.loads(question.about)["problem"] == str(caught.value)
    assert agent.runs.all.claims.claim_due(["clerk"]) is None
    with pytest.raises(ReplayError):
        resume(agent, {STUCK: RunAgain()})
    assert [q.key for q in loaded(store).run.waits] == [STUCK], "it is asked again"
    good = clerk(store)
    skip_replies(good.client, 1)
    with pytest.raises(CallSuspended):
        resume(good, {STUCK: RunAgain()})
    assert loaded(store).signals == ()


def test_a_stuck_run_can_be_given_up(store: Any):
    broken_off(store)
    agent = after([pay, wipe])(store)
    with pytest.raises(ReplayError):
        resume(agent)
    with pytest.raises(ReplayError):
        resume(agent, {STUCK: Cancelled(reason="never mind")})
    run = loaded(store).run
    assert (run.is_ended, run.waits, run.due_s, loaded(store).signals) == (True, (), None, ())


def claimed_in_vain(agent: Agent[Any, Any], store: Any) -> None:
    """So many drivers die in a row without an entry."""
    clock = store._clock = getattr(store, "clock_of_test", None) or Elsewhere(0.0)
    store.clock_of_test = clock
    for _ in range(MAX_TRIES):
        assert agent.runs.all.claims.claim_due(["clerk"]) is not None
        clock.ahead_s += 100.0


def test_a_run_whose_drivers_die_is_a_question_and_tried_again_when_somebody_says_so(store: Any):
    """However many have died since."""
    agent = clerk(store)
    create(agent)
    claimed_in_vain(agent, store)
    with pytest.raises(ReplayError):
        resume(agent)
    assert [q.key for q in loaded(store).run.waits] == [STUCK]
    agent.runs.all.answer("r1", {STUCK: RunAgain()})
    claimed_in_vain(agent, store)
    with pytest.raises(CallSuspended):
        resume(agent)


def test_a_run_that_nobody_advanced_can_be_given_up(store: Any):
    agent = clerk(store)
    create(agent)
    claimed_in_vain(agent, store)
    with pytest.raises(ReplayError):
        resume(agent)
    with pytest.raises(CallFailed, match="never mind"):
        resume(agent, {STUCK: Cancelled(reason="never mind")})
    assert (agent.client.requests, loaded(store).run.is_ended, loaded(store).signals) == ([], True, ())


def test_looking_at_a_waiting_run_again_and_again_does_not_make_it_stuck(store: Any):
    agent = rested(store)
    for _ in range(MAX_TRIES + 3):
        with pytest.raises(CallSuspended, match="ToolInterrupt"):
            resume(agent)
    assert resume(agent, answers(agent.runs.all, "r1")).output == 42


def test_a_resumer_who_is_wrong_leaves_the_run_as_it_is(store: Any):
    agent = rested(store)
    waits = loaded(store).run.waits
    other = Agent(Script(), store=store, name="other")
    with pytest.raises(UsageError, match="'clerk'"):
        resume(other)
    with pytest.raises(UsageError, match="clerk"):
        agent.runs.resume("r1", prompt=wrong_prompt())
    run = loaded(store).run
    assert (run.waits, run.holder) == (waits, None)
    assert resume(agent, answers(agent.runs.all, "r1")).output == 42


def wrong_prompt() -> Any:
    return Prompt("Another {{ task }}", path="another")


# Names


def test_a_run_id_given_twice_is_the_same_run_or_an_error(store: Any):
    agent = ended(store)
    again = agent.call("Go.", run_id="r1")
    assert again.output == 42
    assert len(agent.client.requests) == 5, "nobody was asked again"
    with pytest.raises(RunExists, match="another task"):
        agent.call("Go away.", run_id="r1")
    with pytest.raises(RunExists, match="extra"):
        agent.call("Go.", run_id="r1", extra={"ticket": 17})
    with pytest.raises(RunExists, match="args"):
        agent.call("Go.", run_id="r1", args={"temperature": 0})
    with pytest.raises(RunExists, match=r"agent.*'clerk'"):
        clerk(store, name="other").call("Go.", run_id="r1")
    with pytest.raises(RunUnknown):
        agent.runs.resume("r9")
    with pytest.raises(UsageError, match="run_id"):
        agent.call("Go.", run_id="")


def test_a_run_id_given_again_while_it_waits_waits_again(store: Any):
    agent = rested(store)
    with pytest.raises(CallSuspended):
        agent.call("Go.", run_id="r1")
    changed = after([add, pay, wipe], output=str)(store)
    with pytest.raises(CallSuspended):
        changed.call("Go.", run_id="r1")


def test_what_the_caller_says_of_a_run_is_in_its_header_and_its_record(store: Any):
    agent = clerk(store)
    with pytest.raises(CallSuspended) as caught:
        agent.call("Go.", run_id="r1", extra={"ticket": 17})
    assert caught.value.call.record.extra == {"ticket": 17}
    assert json.loads(loaded(store).header)["extra"] == {"ticket": 17}
    assert resume(agent, answers(agent.runs.all, "r1")).record.extra == {"ticket": 17}


# Redaction


def masked(outcome: Outcome) -> Outcome:
    if isinstance(outcome, Returned):
        return outcome.changed(text=outcome.text.replace("paid", "****"))
    if isinstance(outcome, Denied):
        return outcome.changed(reason=outcome.reason.replace("secret", "****"))
    return outcome


def test_what_is_redacted_reaches_neither_the_store_nor_the_model(store: Any):
    agent = rested(Runs(store, redact=masked))
    run = loaded(store)
    assert "paid" not in "".join(run.lines)
    assert b"paid" not in zlib.decompress(run.snapshot[1])
    assert "paid" not in str(agent.client.requests[-1].messages)
    agent.runs.all.answer("r1", {run.run.waits[0].key: Denied(reason="a secret")})
    assert "secret" not in loaded(store).signals[0].body
    assert resume(agent).output == 42
    whole = agent.runs.replay("r1")
    assert "****" in str(whole.record.dialog)


# Damage in the store


def test_a_store_that_has_lost_the_last_entries_is_noticed(store: Any):
    broken_off(store)
    real = store.load

    def load(run: str, *, after: int | None = 0) -> Any:
        there = real(run, after=after)
        return there.changed(lines=there.lines[:-1])

    agent = clerk(store)
    skip_replies(agent.client, 1)
    store.load = load
    with pytest.raises(JournalError, match="entries"):
        resume(agent)
    del store.load
    assert agent.client.requests == []


def test_a_snapshot_of_another_run_is_refused(store: Any):
    runs = Runs(store, signing_key="k" * 32)
    rested(runs, "r1")
    agent = clerk(runs)
    with pytest.raises(CallSuspended):
        agent.call("Go on.", run_id="r2")
    foreign, real = loaded(store, "r2").snapshot, store.load

    def load(run: str, *, after: int | None = 0) -> Any:
        there = real(run, after=after)
        return there.changed(snapshot=foreign) if run == "r1" else there

    store.load = load
    with pytest.raises(JournalError, match="snapshot"):
        resume(agent)
    del store.load


# Others post while a holder waits


def pending(kind: str, store: Any) -> tuple[Agent[Any, Any], threading.Event, threading.Event]:
    """An agent whose call will wait for something long, which says that it has begun."""
    begun, free = threading.Event(), threading.Event()

    class Slow(Script):
        async def acomplete(self, request: Any, *, timeout_s: float | None = None) -> Any:
            reply = await super().acomplete(request)
            if kind == "a request" and len(self.requests) == 1:
                begun.set()
                while not free.is_set():  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            return reply

        async def astream(self, request: Any, *, timeout_s: float | None = None) -> Any:
            yield await self.acomplete(request)

    async def await_(n: int) -> str:
        """Wait."""
        begun.set()
        while not free.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        return "done"

    def block(n: int) -> str:
        """Wait."""
        begun.set()
        free.wait(PATIENCE_S)
        return "done"

    async def ask(f: Any) -> bool:
        return await await_(0) == "done"

    waits = Function.of(await_ if kind == "a coroutine" else block, name="wait", needs_approval=kind == "an approval")
    first: Any = "first" if kind == "a request" else [function_call("wait", n=1)]
    approve = ask if kind == "an approval" else None
    agent = Agent(Slow(first, "second", "third"), functions=[waits], approve=approve, store=store, name="slow")
    return agent, begun, free


def while_waiting(
    kind: str, way: Way, store: Any, act: Callable[[Runs, Any], None], is_freed: bool
) -> tuple[Any, Agent[Any, Any], list[BaseException]]:
    agent, begun, free = pending(kind, store)
    one, recorder = agent.runs.all.claims.begin(agent.prepare("Go.", run_id="r1"), definition_of(agent))
    failures: list[BaseException] = []

    def drive() -> None:
        try:
            way(one, agent._own_environment, recorder, lambda event: None)
        except BaseException as error:
            failures.append(error)

    driver = threading.Thread(target=drive)
    driver.start()
    try:
        assert begun.wait(10)
        act(Runs(store), one)
        if is_freed:
            free.set()
        driver.join(10)
        assert not driver.is_alive()
    finally:
        free.set()
        driver.join(10)
    return one, agent, failures


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("kind", ["a request", "a coroutine", "a function", "an approval"])
@pytest.mark.parametrize("outcome", [Cancelled(reason="enough"), Stopped(reason="enough")], ids=lambda one: one.kind)
def test_an_end_by_another_reaches_the_driver_before_what_it_waits_for(kind: str, way: Way, outcome: Outcome):
    is_lone = way.__name__ == "by_run" and kind != "a request"  # which runs in the thread of the driver
    store = LastingStore()

    def act(runs: Runs, one: Any) -> None:
        if outcome.kind == "cancelled":
            runs.answer("r1", {"": outcome}, by="bob")
        else:
            one.request_end(outcome.kind, "enough")

    one, agent, failures = while_waiting(kind, way, store, act, is_freed=is_lone)
    assert failures == []
    assert one.record.ending.reason == (Reason.CANCELLED if outcome.kind == "cancelled" else Reason.STOPPED)
    assert one.record.ending.detail == "enough"
    run = loaded(store)
    assert run.run.is_ended
    assert run.signals == ()
    assert agent.runs.replay("r1").record == one.record


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_another_injects_is_seen_by_the_model(way: Way):
    store = LastingStore()
    message = Message.of("user", "Hurry.")
    one, agent, failures = while_waiting(
        "a coroutine", way, store, lambda runs, one: runs.answer("r1", {"": Injected((message,))}), is_freed=True
    )
    assert failures == []
    assert message in one.record.dialog
    assert message in agent.client.requests[-1].messages
    assert loaded(store).signals == ()
    assert agent.runs.replay("r1").record == one.record


WRONG = (
    "nonsense",
    '{"key":"","outcome":{"kind":"approved"}}',
    '{"key":"a/b","outcome":{}}',
    '{"key":"","outcome":' + "[" * 100_000 + "]" * 100_000 + "}",
)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize(("kind", "body"), [("a function", WRONG[1]), *[("a coroutine", body) for body in WRONG]])
def test_a_post_that_is_wrong_is_reported_and_used_up_and_disturbs_nobody(
    kind: str, way: Way, body: str, caplog: pytest.LogCaptureFixture
):
    store = LastingStore()

    def post(runs: Runs, one: Any) -> None:
        store.signal("r1", "", body, by="bob")

    one, _, failures = while_waiting(kind, way, store, post, is_freed=True)
    assert failures == []
    assert one.output == "second"
    assert loaded(store).signals == ()
    assert [r.getMessage() for r in caplog.records if "the signal of bob" in r.getMessage()]


def test_posts_that_come_one_after_the_other_are_noticed_with_each_append():
    """Nobody rings: the store says how many wait when entries are appended."""
    store = LastingStore()

    @function
    def note(n: int) -> str:
        """Note."""
        body = json.dumps({"key": "", "outcome": {"kind": "injected", "messages": [said(n)]}})
        store.signal("r1", "", body, by="bob")
        return "noted"

    def said(n: int) -> Any:
        return {"role": "user", "parts": [{"kind": "text", "text": f"message {n}"}]}

    script = Script(function_call("note", n=1), function_call("note", n=2), function_call("note", n=3), "done")
    result = Agent(script, functions=[note], store=store, name="n").call("Go.", run_id="r1")
    assert [m.text for m in result.dialog if m.role == "user"] == ["Go.", "message 1", "message 2", "message 3"]
    assert loaded(store).signals == ()


def test_an_answer_to_nothing_and_a_second_answer_are_refused(store: Any):
    agent = rested(store)
    (key,) = answers(agent.runs.all, "r1")
    with pytest.raises(NotAsked, match="ask:99"):
        agent.runs.all.answer("r1", {"ask:99": Approved()})
    with pytest.raises(UsageError, match="ask:1"):
        agent.runs.all.answer("r1", {"ask:1": True})
    agent.runs.all.answer("r1", {key: Approved()}, by="ann")
    with pytest.raises(AlreadyAnswered, match="ann"):
        agent.runs.all.answer("r1", {key: Denied()}, by="bob")
    assert resume(agent).output == 42
    with pytest.raises(NotAsked):
        agent.runs.all.cancel("r1")


@pytest.mark.timeout(20)  # nothing polls a store in memory, and its lease lasts an hour
@pytest.mark.parametrize("verb", ["call", "acall"])
def test_a_post_between_the_claim_and_the_drive_is_taken_at_once(verb: str):
    class Posting(MemoryStore):
        def create(self, *args: Any, **options: Any) -> Lease | bool:
            lease = super().create(*args, **options)
            agent.runs.all.cancel("r1", "gone")
            return lease

    @function
    async def stand() -> str:
        "Wait."
        await asyncio.Event().wait()
        return ""

    runs = Runs(Posting(), lease_s=3600.0)
    agent = Agent(Script(function_call("stand")), name="desk", functions=[stand], store=runs)
    with pytest.raises(CallFailed, match="gone"):
        agent.call("Go.", run_id="r1") if verb == "call" else asyncio.run(agent.acall("Go.", run_id="r1"))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("is_heard", [False, True])
def test_a_second_cancellation_is_taken_at_once_while_a_stream_is_being_closed(is_heard: bool):
    """The first comes while the driver waits for the stream, or while a listener handles one of its events."""

    class SlowToClose(Script):
        async def astream(self, request: Any, *, timeout_s: float | None = None) -> Any:
            try:
                if is_heard:
                    yield TextDelta("Dear")
                began.set()
                await asyncio.Event().wait()
            finally:
                closing.set()
                await asyncio.sleep(0.01)

    @asking(Agent(SlowToClose(), name="writer"))
    def writing(text: str) -> str:
        return text

    @execute
    async def stand(text: str) -> str:
        await asyncio.Event().wait()
        return text

    over = end("over")
    rows = [writing.done(over), writing.cancelled(stand), stand.done(over)]
    flow = Flow("late", str, start=writing, rows=rows, store=Runs(MemoryStore(), lease_s=3600.0))
    began, closing = asyncio.Event(), asyncio.Event()

    async def hear() -> None:
        async for event in flow.astream("x", run_id="r1"):
            if isinstance(event, Inside) and isinstance(event.event, TextDelta):
                flow.runs.all.cancel("r1", "go to stand")

    async def main() -> None:
        task = asyncio.create_task(hear())
        if not is_heard:
            await began.wait()
            flow.runs.all.cancel("r1", "go to stand")
        await closing.wait()
        flow.runs.all.cancel("r1", "gone")
        with pytest.raises(FlowFailed, match="gone"):
            await task

    asyncio.run(main())


@dataclass(frozen=True)
class Signed:
    by: str = ""


def test_a_value_that_is_no_outcome_names_those_that_answer_the_question(store: Any):
    """Of a result that a person gives, of an approval, and of a state of a flow."""
    ask_user = Function(name="ask_user", parameters={"type": "object", "properties": {}})
    wiper = Agent(Script(function_call("wipe", path="x")), functions=[wipe], name="w", store=store)
    asker = Agent(Script(function_call("ask_user")), functions=[ask_user], name="asker", store=store)
    for agent, kind, wrong in ((asker, Returned, Approved()), (wiper, Approved, Returned(text="x"))):
        with pytest.raises(CallSuspended):
            agent.call("Go.", run_id=agent.name)
        for answer in ("LH1", None, wrong):
            with pytest.raises(UsageError, match=kind.__name__):
                agent.runs.get(agent.name).answer(answer)

    waiting = wait(Signed, name="waiting")(lambda data: "Sign?")
    flow = Flow("f", Signed, start=waiting, rows=[waiting.done(end("signed"))], store=store)
    with pytest.raises(FlowSuspended):
        flow.call(Signed(), run_id="f")
    with pytest.raises(UsageError, match="Signed"):
        flow.runs.resume("f", Approved())
    [question] = store.get("f").waits
    with pytest.raises(UsageError, match="Returned"):
        flow.runs.all.answer("f", {question.key: Signed()})  # which knows no flow


def test_an_answer_of_the_wrong_kind_is_refused_before_it_is_posted(store: Any):
    agent = rested(store)
    (key,) = answers(agent.runs.all, "r1")
    with pytest.raises(UsageError, match=key):
        resume(agent, {key: Returned(text="wiped")})
    with pytest.raises(UsageError, match=key):
        asyncio.run(agent.runs.aresume("r1", {"": Injected(()), key: Returned(text="wiped")}))
    assert (loaded(store).signals, list(answers(agent.runs.all, "r1"))) == ((), [key])
    assert resume(agent, {key: Approved()}).output == 42


def test_arguments_that_do_not_fit_are_refused_before_they_are_posted(store: Any):
    """Otherwise the model would hear of a person's mistake, and the question would be closed."""

    @function(needs_approval=True)
    def refund(cents: int) -> str:
        """Pay back."""
        return f"{cents} paid back"

    agent = Agent(Script(function_call("refund", cents=1), "Done."), functions=[refund], name="shop", store=store)
    with pytest.raises(CallSuspended):
        agent.call("Pay it back.", run_id="r1")
    for given in ('{"order"', '{"cents": "many"}'):
        with pytest.raises(OutcomeError, match="ask"):
            agent.runs.all.answer("r1", {"ask:1.0": Modified(given)})
        with pytest.raises(OutcomeError, match="ask"):
            asyncio.run(agent.runs.aresume("r1", {"ask:1.0": Modified(given)}))
    assert not loaded(store).signals
    assert agent.runs.resume("r1", {"ask:1.0": Modified('{"cents": 2}')}).function_calls[0].result == "2 paid back"


def test_what_became_of_a_function_of_a_flow_is_told_in_its_type(store: Any):
    gone = [KeyboardInterrupt]

    @execute(once=True)
    def pay(n: int) -> int:
        raise gone.pop()

    flow = Flow("paying", int, start=pay, rows=[pay.done(end("paid"))], store=store)
    with pytest.raises(KeyboardInterrupt):
        flow.call(1, run_id="r1")
    with pytest.raises(FlowSuspended):
        flow.runs.resume("r1")
    (key,) = answers(flow.runs.all, "r1")
    (question,) = store.get("r1").waits
    assert (question.kind, question.types, question.schema) == ("doubt", ("int",), '{"type":"integer"}')
    for given in ("three", '"three"', "[" * 200_000):
        with pytest.raises(UsageError):
            flow.runs.all.answer("r1", {key: Returned(text=given)})
        assert not loaded(store).signals
    assert flow.runs.resume("r1", {key: Returned(text="3")}).state == "paid"


def test_a_post_of_the_wrong_kind_is_reported_and_the_question_asked_again(
    store: Any, caplog: pytest.LogCaptureFixture
):
    agent = rested(store)
    (key,) = answers(agent.runs.all, "r1")
    body = json.dumps({"key": key, "outcome": {"kind": "returned", "text": "wiped"}})
    store.signal("r1", key, body, by="ann")  # by a program that does not look first
    with caplog.at_level(logging.WARNING), pytest.raises(CallSuspended):
        resume(agent)
    assert "the signal of ann" in caplog.text
    assert list(answers(agent.runs.all, "r1")) == [key]
    assert resume(agent, {key: Approved()}).output == 42


def test_an_answer_that_redact_fails_on_is_reported_and_the_question_asked_again(
    store: Any, caplog: pytest.LogCaptureFixture
):
    agent = rested(store)
    (key,) = answers(agent.runs.all, "r1")
    agent.runs.all.answer("r1", {key: Approved()}, by="ann")
    with pytest.raises(CallSuspended):
        resume(clerk(Runs(store, redact=too_short)))
    assert "the signal of ann" in caplog.text
    assert (list(answers(agent.runs.all, "r1")), loaded(store).signals) == ([key], ())
    assert resume(agent, {key: Approved()}).output == 42


@pytest.mark.parametrize("wrong", ["no such key", "what redact fails on"])
def test_if_one_of_several_answers_is_refused_none_is_posted(store: Any, wrong: str):
    agent = rested(store)
    (key,) = answers(agent.runs.all, "r1")
    before = loaded(store)
    if wrong == "no such key":
        with pytest.raises(NotAsked, match="ask:9"):
            agent.runs.all.answer("r1", {key: Approved(), "ask:9.9": Approved()})
    else:
        with pytest.raises(LookupError):
            Runs(store, redact=too_short).answer("r1", {"": Cancelled(), key: Approved()})
    assert loaded(store) == before


def too_short(outcome: Outcome) -> Outcome:
    if isinstance(outcome, Approved):
        raise LookupError("it has no text")
    return outcome


# Two holders


def test_an_answer_to_a_busy_run_is_posted_and_said_to_be(store: Any):
    agent = rested(store)
    assert store.claim("another", for_s=60, run="r1")
    with pytest.raises(RunBusy) as caught:
        resume(agent)
    assert not caught.value.is_answered
    with pytest.raises(RunBusy, match="posted") as caught:
        resume(agent, answers(agent.runs.all, "r1"))
    assert caught.value.is_answered
    assert len(loaded(store).signals) == 1


def test_a_run_that_is_driven_is_busy_and_takes_answers_all_the_same():
    store = LastingStore()

    def act(runs: Runs, one: Any) -> None:
        other = pending("a request", runs)[0]
        with pytest.raises(RunBusy, match="'r1'"):
            other.runs.resume("r1")
        with pytest.raises((RunBusy, CallFailed)):  # if it is not ended by then
            other.runs.resume("r1", {"": Cancelled(reason="enough")})

    one, _, failures = while_waiting("a request", WAYS[1], store, act, is_freed=False)
    assert failures == []
    assert one.record.ending.reason is Reason.CANCELLED


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("kind", ["a request", "a coroutine", "a function"])
def test_a_holder_that_has_lost_its_lease_writes_nothing_more_and_fences_never_fall(kind: str, way: Way):
    store, results = LastingStore(), []

    def act(runs: Runs, one: Any) -> None:
        store._clock = Elsewhere()
        other, _, free = pending(kind, runs)
        free.set()
        results.append(other.runs.resume("r1"))

    _, agent, failures = while_waiting(kind, way, store, act, is_freed=True)
    assert [type(error) for error in failures] == [LeaseLost]
    run = loaded(store)
    fences = [json.loads(line)["fence"] for line in run.lines]
    assert fences == sorted(fences)
    assert set(fences) == {1, 2}
    assert run.run.is_ended
    assert triggers(results[0]).count("answered") == 1
    assert agent.runs.replay("r1").record == results[0].record


def test_a_call_that_was_driven_on_elsewhere_cannot_be_driven_here(store: Any):
    agent = clerk(store)
    with pytest.raises(CallSuspended) as caught:
        agent.call("Go.", run_id="r1")
    left = caught.value.call
    other = clerk(store)
    skip_replies(other.client, 4)
    assert resume(other, answers(agent.runs.all, "r1")).output == 42
    with pytest.raises(Exception, match="13 entries"):
        agent.run(left)
    assert (loaded(store).run.is_ended, loaded(store).run.due_s) == (True, None)
    assert agent.runs.get("r1").result(timeout_s=PATIENCE_S).output == 42


def test_a_call_that_lost_its_run_cannot_be_driven_though_the_other_holder_came_just_as_far(store: Any):
    returned = ["the first", "the second"]

    @function
    def note() -> str:
        """Note."""
        text = returned.pop()
        if returned:
            store._clock = Elsewhere()
            with pytest.raises(KeyboardInterrupt):
                Agent(Script(leaving), functions=[note], store=store, name="n").runs.resume("r1")
        return text

    def leaving(request: Any) -> Any:
        raise KeyboardInterrupt

    agent = Agent(Script(function_call("note"), "done"), functions=[note], store=store, name="n")
    lost = agent.prepare("Go.", run_id="r1")
    with pytest.raises(LeaseLost):
        agent.run(lost)
    with pytest.raises(Exception, match="entry 3"):
        agent.run(lost)
    assert resume(agent).output == "done"
    agent.runs.replay("r1")


@pytest.mark.parametrize("kind", ["sync", "asyncio"])
def test_a_failure_of_the_client_gives_the_run_back_at_once(store: Any, kind: str):
    def broken(request: Any) -> Any:
        raise ZeroDivisionError

    agent = Agent(Script(broken), store=store, name="b")
    with pytest.raises(ZeroDivisionError):
        asyncio.run(agent.acall("Go.", run_id="r1")) if kind == "asyncio" else agent.call("Go.", run_id="r1")
    run = loaded(store).run
    assert (run.holder, run.due_s, run.state) == (None, 0.0, "Calling")
    assert Agent(Script("fine"), store=store, name="b").runs.resume("r1").output == "fine"


def test_no_error_shows_the_password_of_a_store():
    with pytest.raises(UsageError) as caught:
        Runs("mysql://anna:secret@host/runs")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda _: Runs(True),
        lambda _: Runs(LastingStore),
        lambda _: Runs(LastingStore(), lease_s=0),
        lambda _: Runs(LastingStore(), patience_s="5"),
        lambda store: resume(clerk(store), [Approved()]),
        lambda store: resume(clerk(store), {7: Approved()}),
        lambda store: clerk(store).runs.resume(7),
    ],
)
def test_mistakes_with_stores_and_answers_are_refused(wrong: Callable[[Any], Any], store: Any):
    rested(store)
    with pytest.raises(UsageError):
        wrong(store)


def test_a_rate_limit_is_in_the_journal_and_its_report_after_a_resume(store: Any):
    agent = ended(store)
    (failure,) = agent.runs.resume("r1").record.failures
    assert failure.report.status == RateLimited("x", status=429).status


@pytest.mark.parametrize("signing_key", [None, "k" * 32])
def test_a_damaged_snapshot_is_refused(signing_key: str | None):
    store = LastingStore()
    agent = rested(Runs(store, signing_key=signing_key))
    _, packed = loaded(store).snapshot
    lease = store.claim("w", for_s=9.0, run="r1")
    for at in range(0, len(packed), 5):
        mutated = packed[:at] + bytes([packed[at] ^ 16]) + packed[at + 1 :]
        with suppress(zlib.error):
            if zlib.decompress(mutated) == zlib.decompress(packed):
                continue  # bits that fill up a byte
        store.append(lease, lease.n, (), snapshot=mutated)
        with pytest.raises(JournalError):
            agent.runs.all.look_at("r1", definition_of(agent))
