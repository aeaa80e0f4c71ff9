"""Do workers advance all due runs and no others, and survive failures?"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import threading

import pytest
from support import shop_agent as shop
from support.workers import Away, create, drive_until_stuck, modes, rows, run, wait_until, working

from fsm_agent import Agent, CallSuspended, Prompt, UsageError, function
from fsm_agent.call import Approved
from fsm_agent.flows import Flow, ask, end
from fsm_agent.store import MemoryStore, RunBusy, Runs, RunUnknown, StoreClosed
from fsm_agent.testing import FakeClock, Script, function_call
from fsm_agent.workers import Worker


class TestAdvancing:
    @modes
    @pytest.mark.parametrize("kind", ["store", "sqlite"])
    def test_all_that_is_due_and_then_it_leaves(self, request, kind, mode):
        store, agent = request.getfixturevalue(kind), shop.shop()
        create(store, agent, *"abcdefg")
        worker = Worker([agent], store)
        assert run(worker, mode, once=True) == 7
        assert {row.state for row in rows(store).values()} == {"ToolInterrupt"}
        Runs(store).answer("b", {"ask:3.0": Approved()}, by="ann")
        assert run(worker, mode, once=True) == 1
        assert [row.id for row in store.list(ended=True)] == ["b"]
        assert worker.held == 0

    def test_runs_of_others_are_left_alone(self, store):
        create(store, shop.shop(), "one")
        assert Worker([shop.OTHER], store).run(once=True) == 0
        assert (rows(store)["one"].n, rows(store)["one"].holder) == (0, None)

    @modes
    def test_several_at_a_time(self, store, mode):
        together = threading.Barrier(3)

        @function
        def meet() -> str:
            """Wait for the others."""
            together.wait(30)
            return "met"

        agent = Agent(Script(*[function_call("meet")] * 3, *["done"] * 3), functions=[meet], name="meeting")
        create(store, agent, "one", "two", "three")
        assert run(Worker([agent], store), mode, once=True) == 3
        assert {row.state for row in rows(store).values()} == {"Completed"}

    @modes
    def test_a_function_that_would_exit_ends_no_worker(self, store, mode):
        @function
        def leave() -> str:
            """Call the main function of a command."""
            raise SystemExit(0)

        agent = Agent(Script(*[function_call("leave")] * 2, *["done"] * 2), functions=[leave], name="leaving")
        create(store, agent, "one", "two")
        assert run(Worker([agent], store), mode, once=True) == 2
        assert {row.state for row in rows(store).values()} == {"Completed"}

    def test_a_long_backoff_rests_and_is_due_later(self, store):
        agent = shop.busy()
        create(store, agent, "one")
        assert Worker([agent], store).run(once=True) == 1
        row = rows(store)["one"]
        assert (row.state, row.holder) == ("Backoff", None)
        assert row.due_s > row.updated_s + 40

    @pytest.mark.parametrize(
        ("deps", "whose"), [("Bob", "Bob"), (lambda name, extra, user: f"{extra['tenant']} ({name})", "Ada (x)")]
    )
    def test_deps_are_a_value_or_made_for_the_run(self, store, deps, whose):
        agent = Agent(Script(function_call("whose"), "ok"), functions=[shop.whose], name="x")
        create(store, agent, "one", deps="?", extra={"tenant": "Ada"})
        assert Worker([agent], store, deps=deps).run(once=True) == 1
        assert json.loads(store.load("one").lines[-2])["outcome"]["text"] == f"the shop of {whose}"

    def test_a_prompt_of_the_task_is_found_by_its_path(self, store):
        prompt = Prompt("How many {{ things }}?", path="shop/count", output=int)
        agent = Agent(Script("7"), name="counter")
        create(store, agent, "one", task=prompt(things="kettles"))
        assert Worker([agent], store, prompts=[prompt]).run(once=True) == 1
        assert rows(store)["one"].state == "Completed"


def sync(worker, run_id):
    return worker.drive(run_id)


def under_asyncio(worker, run_id):
    return asyncio.run(worker.adrive(run_id))


@pytest.mark.parametrize("drive", [sync, under_asyncio])
class TestByName:
    """What an engine needs that says itself which run is due."""

    def test_one_run_goes_as_far_as_it_can_and_the_others_stay(self, store, drive):
        agent = shop.shop()
        create(store, agent, "one", "two")
        worker = Worker([agent], store)
        assert drive(worker, "two") is True
        assert (rows(store)["two"].state, rows(store)["one"].n) == ("ToolInterrupt", 0)
        assert drive(worker, "two") is False  # it waits for a person
        Runs(store).answer("two", {"ask:3.0": Approved()}, by="ann")
        assert drive(worker, "two") is True
        assert (rows(store)["two"].state, rows(store)["two"].holder) == ("Completed", None)
        assert drive(worker, "two") is False  # it has ended

    def test_a_hint_that_comes_early_is_heeded(self, store, drive):
        agent = shop.busy()
        create(store, agent, "one")
        worker = Worker([agent], store)
        assert drive(worker, "one") is True
        due_s = rows(store)["one"].due_s
        assert drive(worker, "one") is True  # the clock of the engine may be fast; the run says when it is due
        assert (rows(store)["one"].due_s, rows(store)["one"].state) == (due_s, "Backoff")

    def test_hooks_are_told_that_a_run_waits_and_then_that_it_has_ended(self, store, drive):
        class Ends:
            def __init__(self):
                self.told = []

            def on_suspended(self, event):
                self.told.append(event.keys)

            def on_done(self, event):
                self.told.append(event.result.output)

        agent = shop.shop(hooks=[ends := Ends()])
        create(store, agent, "one")
        drive(Worker([agent], store), "one")
        Runs(store).answer("one", {"ask:3.0": Approved()}, by="ann")
        drive(Worker([agent], store), "one")
        assert ends.told == [("ask:3.0",), "Done: 19.50 EUR for A-17 are on their way"]

    def test_hooks_are_told_of_the_end_of_a_run_whose_last_step_was_awaited_when_the_worker_was_stopped(
        self, store, drive
    ):
        class Stops:
            def __init__(self):
                self.told = []

            def on_reply_completed(self, event):
                worker.stop()

            def on_done(self, event):
                self.told.append(event.result.output)

        agent = Agent(Script("hi"), name="x", hooks=[stops := Stops()])
        create(store, agent, "one")
        worker = Worker([agent], store)
        drive(worker, "one")
        assert (rows(store)["one"].state, stops.told) == ("Completed", ["hi"])

    def test_what_cannot_be_driven_is_said(self, store, drive):
        agent = shop.shop()
        create(store, agent, "one")
        create(store, shop.OTHER, "of-others")
        worker = Worker([agent], store)
        with pytest.raises(RunUnknown, match="'none'"):
            drive(worker, "none")
        with pytest.raises(UsageError, match=r"of-others.*shop.*other"):
            drive(worker, "of-others")
        lease = store.claim("somebody", for_s=60, run="one")
        with pytest.raises(RunBusy, match="somebody") as busy:
            drive(worker, "one")
        assert busy.value.until_s == lease.until_s

    def test_the_error_of_a_run_is_logged_and_it_is_given_back(self, store, drive, caplog):
        agent = shop.shop()
        create(store, agent, "one")
        assert drive(Worker([agent], store, deps=lambda name, extra, user: 1 / 0), "one") is True
        assert "division by zero" in caplog.text
        assert (rows(store)["one"].holder, rows(store)["one"].n) == (None, 0)
        assert rows(store)["one"].due_s > 0.0, "it is tried again later"
        assert drive(Worker([agent], store), "one") is True
        assert rows(store)["one"].state == "ToolInterrupt"


def named(name, function):
    """Return a function with a name, for a state."""

    def made(text: str) -> str:
        return function(text)

    made.__name__ = made.__qualname__ = name
    return made


class TestFailing:
    @modes
    def test_a_run_that_raises_is_logged_and_given_back_and_the_others_go_on(self, store, caplog, mode):
        class Broken:
            def on_stepped(self, event):
                raise LookupError("broken hook")

        broken = Agent(Script(*["hi"] * 9), name="broken", hooks=[Broken()])
        agent = shop.shop()
        create(store, broken, "bad")
        create(store, agent, "good")
        with caplog.at_level(logging.WARNING, "fsm_agent"):
            run(Worker([broken, agent], store), mode, once=True)
        assert rows(store)["good"].state == "ToolInterrupt"
        assert rows(store)["bad"].holder is None
        (record, *_) = [r for r in caplog.records if "'broken'" in r.message]
        assert record.levelno == logging.WARNING
        assert "broken hook" in caplog.text
        assert "Traceback" in caplog.text

    @modes
    @pytest.mark.parametrize("raises", ["the task of a state", "an action", "a stop condition"])
    def test_what_raises_is_tried_later_and_later_until_the_run_is_stuck_and_names_it(self, mode, raises):
        clock, calls = FakeClock(), []
        store = MemoryStore(clock.now)

        def wrong(*given: object) -> str:
            calls.append(clock.now())
            raise LookupError("no such letter")

        if raises == "a stop condition":
            of = Agent(Script(*["hi"] * 9), name="clerk", stop_when=wrong, store=store)
        else:
            task, action = (wrong, None) if raises == "the task of a state" else (lambda text: text, wrong)
            writing = ask(Agent(Script(*["hi"] * 9), name="writer"))(named("writing", task))
            of = Flow("letters", str, start=writing, rows=[writing.done(end("over"), do=action)], store=store)
        of.runs.submit("Dear Ada", run_id="one")
        worker = Worker([of], store)
        while not store.get("one").waits:
            assert run(worker, mode, once=True) == 1
            assert run(worker, mode, once=True) == 0, "it is not due at once"
            clock.advance(max(0.0, (store.get("one").due_s or 0.0) - clock.now()))
        delays = [after - before for before, after in itertools.pairwise(calls)]
        assert len(delays) >= 4
        assert sorted(delays) == delays
        assert delays[-1] > 2 * delays[0] > 0.0
        problem = json.loads(store.get("one").waits[0].about)["problem"]
        assert "LookupError" in problem
        assert ("'one'" in problem) == (of.name == "letters"), "a flow says which step has raised"

    @modes
    @pytest.mark.parametrize("drives", [1, 5])  # after one more, it would be stuck
    def test_a_run_that_was_put_off_is_cancelled_before_it_is_stuck(self, mode, drives):
        """Though the reply, which the store keeps, fails in the next step again."""
        clock = FakeClock()

        def wrong(*given: object) -> bool:
            raise LookupError("no such letter")

        store = MemoryStore(clock.now)
        agent = Agent(Script("hi"), name="clerk", stop_when=wrong, store=store)
        agent.runs.submit("Dear Ada", run_id="one")
        worker = Worker([agent], store)
        for _ in range(drives):
            clock.advance(max(0.0, store.get("one").due_s - clock.now()))
            run(worker, mode, once=True)
        assert store.get("one").waits == ()
        agent.runs.all.cancel("one", "never mind")
        assert run(worker, mode, once=True) == 1, "it is due at once"
        clock.advance(4.0)
        run(worker, mode, once=True)
        assert (store.get("one").state, store.get("one").is_ended) == ("Failed", True)

    def test_the_log_says_when_a_run_is_tried_again_or_that_it_is_stuck(self, caplog):
        """By the clock of the store."""

        def wrong(*given: object) -> bool:
            raise LookupError("no such letter")

        store = MemoryStore(FakeClock().now)
        agent = Agent(Script(*["hi"] * 9), name="clerk", stop_when=wrong, store=store)
        agent.runs.submit("Dear Ada", run_id="one")
        worker = Worker([agent], store)
        worker.run(once=True)
        assert caplog.records[-1].args == ("one", 4.0)
        drive_until_stuck(worker, "one")
        assert caplog.records[-1].args == ("one", "stuck")

    @modes
    def test_the_delay_begins_when_the_drive_ends(self, mode):
        clock = FakeClock()

        def slow(*given: object) -> bool:
            clock.advance(10.0)  # longer than the delay, and shorter than the lease
            raise LookupError("no such letter")

        store = MemoryStore(clock.now)
        agent = Agent(Script(*["hi"] * 9, clock=clock), name="clerk", stop_when=slow, store=store)
        agent.runs.submit("Dear Ada", run_id="one")
        assert run(Worker([agent], store), mode, once=True) == 1
        assert store.get("one").due_s > clock.now()

    def test_the_delay_does_not_grow_with_each_driver_that_died(self):
        clock = FakeClock()
        store = MemoryStore(clock.now)
        create(store, shop.shop(), "one")
        for _ in range(30):
            assert store.claim("somebody who dies", for_s=0.0, run="one") is not None
        assert Worker([shop.shop()], store, deps=lambda name, extra, user: 1 / 0).drive("one")
        assert 0.0 < store.get("one").due_s - clock.now() <= 64.0

    def test_open_questions_survive_that(self, store):
        agent = shop.shop(store=store)
        with pytest.raises(CallSuspended):
            agent.call("Refund order A-17.", run_id="one")
        before = rows(store)["one"].waits
        assert store.claim("somebody who dies", for_s=0.0, run="one") is not None
        assert Worker([agent], store, deps=lambda name, extra, user: 1 / 0).run(once=True) == 1
        assert rows(store)["one"].waits == before
        Runs(store).answer("one", {"": Approved()})  # wakes it, and answers nothing
        assert Worker([agent], store, deps=lambda name, extra, user: 1 / 0).run(once=True) == 1
        assert rows(store)["one"].waits == before

    def test_one_that_was_answered_is_tried_until_it_can_be_driven(self):
        """However long that takes, whatever the clock of the worker says, because its code is not at fault."""
        now_s = [1000.0]  # behind all other clocks
        store = MemoryStore(lambda: now_s[0])
        agent = shop.shop(store=store)
        with pytest.raises(CallSuspended):
            agent.call("Refund order A-17.", run_id="one")
        Runs(store).answer("one", {"ask:3.0": Approved()})
        worker = Worker([agent], store, deps=lambda name, extra, user: 1 / 0)
        for _ in range(12):  # more often than a run is tried under code that is at fault
            assert worker.run(once=True) == 1
            assert worker.run(once=True) == 0
            now_s[0] += 60
        assert Worker([agent], store).run(once=True) == 1
        assert rows(store)["one"].state == "Completed"

    def test_code_that_decides_otherwise_becomes_a_question(self, store, caplog):
        agent = shop.shop()
        create(store, agent, "one", task=shop.COUNT(things="kettles"))
        drive_until_stuck(Worker([agent], store), "one")  # without the prompt
        (question,) = rows(store)["one"].waits
        assert question.key == "stuck"
        assert "'shop/count'" in question.about
        assert "Worker(prompts=" in question.about
        assert "shop/count" in caplog.text
        assert Worker([agent], store).run(once=True) == 0
        Runs(store).answer("one", {"": Approved()})  # no answer to the question: it does not keep workers busy
        assert Worker([agent], store).run(once=True) == 0
        assert rows(store)["one"].waits == (question,)
        Runs(store).cancel("one")  # which needs no code that could drive the run
        assert Worker([agent], store).run(once=True) == 1
        assert rows(store)["one"].is_ended

    @modes
    def test_a_store_that_fails_for_too_long_ends_the_worker(self, caplog, mode):
        with pytest.raises(OSError, match="away"):
            run(Worker([shop.shop()], Away(10**9), store_patience_s=0.0), mode)
        assert "away" in caplog.text

    def test_a_store_that_fails_for_one_thread_alone_ends_the_others_too(self):
        store, first = Away(0), threading.Lock()

        def claim(*args, **options):
            if first.acquire(blocking=False):
                raise OSError("the server is away")
            return MemoryStore.claim(store, *args, **options)

        store.claim = claim
        with pytest.raises(OSError, match="away"):
            Worker([shop.shop()], store, store_patience_s=0.0).run(threads=2)

    @pytest.mark.parametrize(
        ("mode", "method"),
        [
            *[({"threads": 1}, method) for method in ("claim", "append", "wait")],
            pytest.param({"threads": 1}, "load", marks=pytest.mark.system),
            pytest.param({"tasks": 3}, "claim", marks=pytest.mark.system),
        ],
    )
    def test_a_store_that_fails_for_a_while_is_waited_for(self, mode, method, caplog):
        store, agent = Away(1, method), shop.shop()
        create(store, agent, "one")
        with working(Worker([agent], Runs(store, lease_s=0.05)), **mode):
            wait_until(lambda: rows(store)["one"].state == "ToolInterrupt" and not store.failures)
        assert "away" in caplog.text

    def test_a_worker_that_waits_for_its_store_is_stopped_at_once(self):
        with working(Worker([shop.shop()], Away(10**9), store_patience_s=3600), threads=1):
            pass

    @modes
    def test_a_store_that_was_closed_ends_the_worker_at_once(self, sqlite, mode, caplog):
        """It is closed for good: nothing is worth waiting for."""
        sqlite.close()
        with pytest.raises(StoreClosed):
            run(Worker([shop.shop()], sqlite), mode)
        assert "tried again" not in caplog.text
