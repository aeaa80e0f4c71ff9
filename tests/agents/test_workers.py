"""Do workers advance what is due, all of it and nothing else, and leave well?"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import shop_agent as shop
from support.paths import ROOT

from fsm_agent import Agent, CallSuspended, Prompt, UsageError, function
from fsm_agent.agents import Worker
from fsm_agent.errors import ReplayError
from fsm_agent.flows import Flow, FlowSuspended, end, wait
from fsm_agent.lifecycle import Approved, Cancelled, Returned, RunAgain
from fsm_agent.messages import Question
from fsm_agent.store import Choice, Rest, RunBusy, Runs, RunUnknown, StoreClosed
from fsm_agent.store.memory import MemoryStore
from fsm_agent.store.sqlite import SqliteStore
from fsm_agent.testing import Script, call

ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}", "COLUMNS": "100"}
modes = pytest.mark.parametrize("mode", [{"tasks": 5}, {"threads": 3}], ids=["tasks", "threads"])


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def sqlite(tmp_path):
    store = SqliteStore(tmp_path / "runs.db")
    yield store
    store.close()


@pytest.fixture(autouse=True)
def looks_often(monkeypatch):
    """Have workers that idle look soon whether they were stopped, as most of these tests end so."""
    monkeypatch.setattr("fsm_agent.agents.worker.IDLE_S", 0.02)
    monkeypatch.setattr("fsm_agent.agents.crews.BEAT_S", 0.01)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    """No thread of a worker outlasts what it was begun for."""
    yield
    left = [thread.name for thread in threading.enumerate()]
    assert [name for name in left if name.startswith(("fsm_agent worker", "fsm_agent drain", "fsm_agent prune"))] == []


class Away(MemoryStore):
    """A store whose server is away at first."""

    def __init__(self, failures, method="claim"):
        super().__init__()
        self.failures = failures  # to come
        works = getattr(self, method)

        def fails(*args, **options):
            if self.failures > 0:
                self.failures -= 1
                raise OSError("the server is away")
            return works(*args, **options)

        setattr(self, method, fails)


def rows(store):
    return {row.id: row for row in store.list(limit=1000)}


def wait_until(condition) -> None:
    for _ in range(20_000):
        if condition():
            return
        threading.Event().wait(0.002)
    raise AssertionError("it never did")


def settle() -> None:
    """Let others go on that should not."""
    threading.Event().wait(0.03)


def run(worker, mode, **options) -> int:
    """Have a worker run in a mode."""
    return asyncio.run(worker.arun(**mode, **options)) if "tasks" in mode else worker.run(**mode, **options)


def create(store, agent: Agent, *names: str, **options) -> None:
    """Begin runs that nobody has driven yet."""
    from dataclasses import replace

    kept = replace(agent, store=store)
    for name in names:
        header = kept.seed(options.pop("task", "Refund order A-17."), run_id=name, **options).journal.header
        assert store.create(name, header, agent=agent.name)


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

        agent = Agent(Script(*[call("meet")] * 3, *["done"] * 3), functions=[meet], name="meeting")
        create(store, agent, "one", "two", "three")
        assert run(Worker([agent], store), mode, once=True) == 3
        assert {row.state for row in rows(store).values()} == {"Completed"}

    @modes
    def test_a_function_that_would_exit_ends_no_worker(self, store, mode):
        @function
        def leave() -> str:
            """Call the main function of a command."""
            raise SystemExit(0)

        agent = Agent(Script(*[call("leave")] * 2, *["done"] * 2), functions=[leave], name="leaving")
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
        ("deps", "whose"), [({"x": "Bob"}, "Bob"), (lambda name, extra: f"{extra['tenant']} ({name})", "Ada (x)")]
    )
    def test_deps_are_a_value_or_made_for_the_run(self, store, deps, whose):
        agent = Agent(Script(call("whose"), "ok"), functions=[shop.whose], name="x")
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
        with pytest.raises(UsageError, match=r"of-others.*other.*shop"):
            drive(worker, "of-others")
        lease = store.claim("somebody", for_s=60, run="one")
        with pytest.raises(RunBusy, match="somebody") as busy:
            drive(worker, "one")
        assert busy.value.until_s == lease.until_s

    def test_the_error_of_a_run_is_logged_and_it_is_given_back(self, store, drive, caplog):
        agent = shop.shop()
        create(store, agent, "one")
        assert drive(Worker([agent], store, deps=lambda name, extra: 1 / 0), "one") is True
        assert "division by zero" in caplog.text
        assert (rows(store)["one"].holder, rows(store)["one"].n) == (None, 0)
        assert rows(store)["one"].due_s > 0.0, "it is tried again later"
        assert drive(Worker([agent], store), "one") is True
        assert rows(store)["one"].state == "ToolInterrupt"


class Patient:
    """A model that is asked by many at a time, and answers when it may."""

    name = "patient:model"

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.asked = 0
        self.all_asked, self.may_answer = threading.Event(), threading.Event()

    async def acomplete(self, request, *, timeout_s=None):
        self.asked += 1
        if self.asked == self.expected:
            self.all_asked.set()
        while not self.may_answer.is_set():  # noqa: ASYNC110  # it is set in other threads
            await asyncio.sleep(0.005)
        return Script("Patience.").complete(request)

    def complete(self, request, *, timeout_s=None):
        self.asked += 1
        if self.asked == self.expected:
            self.all_asked.set()
        assert self.may_answer.wait(30)
        return Script("Patience.").complete(request)


@contextmanager
def working(worker, **options):
    """A worker under asyncio in a thread of its own, stopped at the end; gives a list of how it ended."""
    ended = []
    main = worker.arun if "tasks" in options else worker.run

    def work():
        try:
            ended.append(asyncio.run(main(**options)) if "tasks" in options else main(**options))
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield ended
    finally:
        worker.stop()
        thread.join(30)
        assert not thread.is_alive()


class TestUnderAsyncio:
    @pytest.mark.parametrize("tasks", [1, 10, 50])
    def test_so_many_wait_at_a_time_and_no_more(self, store, tasks):
        model = Patient(expected=min(tasks, 15))
        agent = Agent(model, name="x")
        create(store, agent, *[f"r{n}" for n in range(15)])
        worker = Worker([agent], store)
        with working(worker, tasks=tasks) as ended:
            assert model.all_asked.wait(30)
            settle()
            assert (worker.held, model.asked) == (min(tasks, 15), min(tasks, 15))
            assert sum(row.holder is not None for row in rows(store).values()) == min(tasks, 15)
            model.may_answer.set()
            wait_until(lambda: len(store.list(ended=True, limit=200)) == 15)
        assert ended == [15]
        assert {row.n for row in rows(store).values()} == {2}

    def test_the_store_is_asked_in_other_threads_than_that_of_the_loop(self, sqlite):
        main, asked = threading.current_thread(), set()
        for method in ("claim", "load", "append", "wait"):
            works = getattr(sqlite, method)

            def noted(*args, works=works, **options):
                asked.add(threading.current_thread())
                return works(*args, **options)

            setattr(sqlite, method, noted)
        agent = Agent(Script(*["hi"] * 3), name="x")
        create(sqlite, agent, "a", "b", "c")
        assert asyncio.run(Worker([agent], sqlite).arun(tasks=5, once=True)) == 3
        assert asked
        assert main not in asked

    @pytest.mark.parametrize("when", ["idle", "claiming", "asking"])
    def test_a_cancelled_worker_gives_its_runs_back(self, store, when):
        model = Patient(expected=3)
        agent = Agent(model, name="x")
        create(store, agent, *(() if when == "idle" else ("one", "two", "three")))
        worker = Worker([agent], store)

        async def main():
            task = asyncio.get_running_loop().create_task(worker.arun(tasks=9))
            if when == "asking":
                await asyncio.to_thread(model.all_asked.wait, 30)
            elif when == "idle":
                await asyncio.to_thread(settle)
            else:
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        wait_until(lambda: not any(row.holder for row in rows(store).values()))
        assert {(row.due_s, row.is_ended) for row in rows(store).values()} <= {(0.0, False)}
        assert worker.held == 0


def takes_one_more(store, agent: str) -> bool:
    """Return whether there is room for a run of an agent of which one may have a holder."""
    store.create("one more", "{}", agent=agent)
    lease = store.claim("v", for_s=600.0, agents=[agent], now_s=2e9, choice=Choice(limits=((agent, 1),)))
    if lease is not None:
        store.append(lease, lease.n, (), Rest(state="", due_s=3e9))
        if lease.run == "one more":
            store.delete("one more")
    return lease is not None


class TestConcurrency:
    @pytest.mark.parametrize("mode", [{"tasks": 9}, {"threads": 5}])
    def test_so_many_of_an_agent_and_the_others_pass_them(self, store, mode):
        few, many = Patient(expected=2), Patient(expected=3)
        agents = [Agent(few, name="few"), Agent(many, name="many")]
        create(store, agents[0], *[f"few{n}" for n in range(6)])
        create(store, agents[1], *[f"many{n}" for n in range(3)])
        worker = Worker(agents, store, concurrency={"few": 2})
        with working(worker, **mode) as ended:
            assert few.all_asked.wait(30)
            assert many.all_asked.wait(30)
            settle()
            assert worker.held_by_agent() == {"few": 2, "many": 3}
            assert sum(row.holder is not None for row in rows(store).values()) == 5
            few.expected = -1
            few.may_answer.set()
            wait_until(lambda: sum(row.is_ended for row in rows(store).values()) == 6)
            many.may_answer.set()
            wait_until(lambda: all(row.is_ended for row in rows(store).values()))
        assert ended == [9]

    @modes
    def test_room_is_freed_by_runs_that_fail_or_have_ended(self, store, mode):
        agent = shop.shop()
        create(store, agent, "one", "two", "three")
        worker = Worker([agent], store, deps=lambda name, extra: 1 / 0, concurrency={"shop": 1})
        assert run(worker, mode, once=True) == 3
        assert takes_one_more(store, "shop")

    def test_a_cancelled_worker_frees_its_room(self, store):
        model = Patient(expected=1)
        agent = Agent(model, name="x")
        create(store, agent, "one", "two", "three")
        worker = Worker([agent], store, concurrency={"x": 1})

        async def main(turns):
            task = asyncio.get_running_loop().create_task(worker.arun(tasks=9))
            for _ in range(turns):
                await asyncio.sleep(0.002)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        for turns in (0, 1, 5):
            asyncio.run(main(turns))
            wait_until(lambda: takes_one_more(store, "x"))
        assert {row.holder for row in rows(store).values()} == {None}

    @pytest.mark.parametrize("mode", [{"tasks": 9}, {"threads": 5}])
    def test_so_many_with_a_key(self, store, mode):
        """Those without one, and of others, are not counted; and the key is of several agents."""
        models = {name: Patient(expected=4) for name in ("a", "b")}
        agents = {name: Agent(models[name], name=name) for name in models}
        for n in range(4):
            create(store, agents["a"], f"acme{n}", extra={"concurrency_key": "acme"})
            create(store, agents["b"], f"acme-b{n}", extra={"concurrency_key": "acme"})
        create(store, agents["b"], "beta", extra={"concurrency_key": "beta"})
        create(store, agents["b"], "none", "other", extra={"concurrency_key": 7})
        worker = Worker([*agents.values()], store, key_concurrency=2)
        with working(worker, **mode):
            wait_until(lambda: worker.held == 5)
            settle()
            held = sorted(row.id for row in rows(store).values() if row.holder is not None)
            assert len([name for name in held if name.startswith("acme")]) == 2
            assert held[-3:] == ["beta", "none", "other"]
            for model in models.values():
                model.may_answer.set()
            wait_until(lambda: all(row.is_ended for row in rows(store).values()))

    def test_a_stuck_run_needs_room(self, store):
        """One that can be driven again is due, and is claimed when others of its agent have made room."""
        agent, busy = shop.shop(), shop.shop()
        create(store, agent, "stuck", "other")
        lease = store.claim("w", for_s=600.0, run="stuck")
        stuck = Question("stuck", "stuck", '{"problem":"a bad deploy","definition":"another"}', ("run_again",))
        store.append(lease, 0, (), Rest(state="Stuck", questions=(stuck,), heeds="stuck"))
        other = store.claim("w", for_s=600.0, run="other")
        worker = Worker([busy], store, concurrency={"shop": 1})
        assert worker.run(once=True) == 0
        assert (rows(store)["stuck"].due_s, rows(store)["stuck"].holder) == (0.0, None)
        store.append(other, 0, (), Rest(state="Completed", is_ended=True))
        assert worker.run(once=True) == 1
        assert rows(store)["stuck"].state == "ToolInterrupt"

    def test_mistakes(self, store):
        for options, name in (
            ({"key_concurrency": 0}, "key_concurrency"),
            ({"concurrency": {"shpo": 1}}, "shpo"),
            ({"concurrency": {"shop": 0}}, "concurrency of 'shop'"),
            ({"concurrency": 4}, "concurrency"),
            ({"keep": -1}, "keep"),
            ({"max_age_s": "a day"}, "max_age_s"),
            ({"on_change": "error"}, "on_change"),
        ):
            with pytest.raises(UsageError, match=name):
                Worker([shop.shop()], store, **options)
        with pytest.raises(UsageError, match=r"two agents.*shop"):
            Worker([shop.shop(), shop.shop()], store)
        with pytest.raises(UsageError, match="agents"):
            Worker([], store)
        with pytest.raises(UsageError, match="threads"):
            Worker([shop.shop()], store).run(threads=0)
        with pytest.raises(UsageError, match="tasks"):
            asyncio.run(Worker([shop.shop()], store).arun(tasks=0))


@pytest.mark.parametrize("mode", [{"tasks": 2}, {"threads": 2}], ids=["tasks", "threads"])
class TestDraining:
    def test_what_hangs_is_interrupted_and_given_back(self, store, mode):
        """And others may take it at once."""
        model = Patient(expected=2)
        agent = Agent(model, name="x")
        create(store, agent, "one", "two")
        worker = Worker([agent], store, drain_s=0.05)
        with working(worker, **mode) as ended:
            assert model.all_asked.wait(30)
            worker.stop()
        assert ended == [2], "before the model has answered"
        assert {(row.holder, row.due_s, row.is_ended) for row in rows(store).values()} == {(None, 0.0, False)}
        model.may_answer.set()
        again = Worker([agent], store)
        assert again.run(once=True) == 2
        assert {row.state for row in rows(store).values()} == {"Completed"}

    @pytest.mark.parametrize("has_run_before", [False, True])
    def test_what_ends_in_time_is_written(self, store, mode, has_run_before):
        model = Patient(expected=2)
        agent = Agent(model, name="x")
        worker = Worker([agent], store, drain_s=600)
        if has_run_before:
            assert run(worker, mode, once=True) == 0
        create(store, agent, "one", "two", "three")
        with working(worker, **mode) as ended:
            assert model.all_asked.wait(30)
            worker.stop()
            settle()
            model.may_answer.set()
        assert ended == [2]
        assert sorted((row.n, row.holder) for row in rows(store).values()) == [(0, None), (2, None), (2, None)]


def test_ctrl_c_gives_all_runs_back_at_once(store, monkeypatch):
    """It comes in the thread that has called `run`, while it waits for the others."""
    model = Patient(expected=2)
    agent = Agent(model, name="x")
    create(store, agent, "one", "two", "three")
    worker = Worker([agent], store)
    beat = worker.pulse.beat

    def press():
        beat()
        if model.all_asked.is_set():
            raise KeyboardInterrupt

    monkeypatch.setattr(worker.pulse, "beat", press)
    with pytest.raises(KeyboardInterrupt):
        worker.run(threads=2)
    assert {(row.holder, row.due_s, row.is_ended) for row in rows(store).values()} == {(None, 0.0, False)}
    model.may_answer.set()


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

    def test_open_questions_survive_that(self, store):
        agent = shop.shop(store=store)
        with pytest.raises(CallSuspended):
            agent.call("Refund order A-17.", run_id="one")
        before = rows(store)["one"].waits
        assert store.claim("somebody who dies", for_s=0.0, run="one") is not None
        assert Worker([agent], store, deps=lambda name, extra: 1 / 0).run(once=True) == 1
        assert rows(store)["one"].waits == before
        Runs(store).answer("one", {"": Approved()})  # wakes it, and answers nothing
        assert Worker([agent], store, deps=lambda name, extra: 1 / 0).run(once=True) == 1
        assert rows(store)["one"].waits == before

    def test_one_that_was_answered_is_tried_until_it_can_be_driven(self):
        """However long that takes, and whatever the clock of the worker says: its code is not at fault."""
        now_s = [1000.0]  # behind all other clocks
        store = MemoryStore(lambda: now_s[0])
        agent = shop.shop(store=store)
        with pytest.raises(CallSuspended):
            agent.call("Refund order A-17.", run_id="one")
        Runs(store).answer("one", {"ask:3.0": Approved()})
        worker = Worker([agent], store, deps=lambda name, extra: 1 / 0)
        for _ in range(12):  # more often than a run is tried under code that is at fault
            assert worker.run(once=True) == 1
            assert worker.run(once=True) == 0
            now_s[0] += 60
        assert Worker([agent], store).run(once=True) == 1
        assert rows(store)["one"].state == "Completed"

    def test_code_that_decides_otherwise_becomes_a_question(self, store, caplog):
        agent = shop.shop()
        create(store, agent, "one", task=shop.COUNT(things="kettles"))
        assert Worker([agent], store).run(once=True) == 6  # without the prompt; then a person is asked
        (question,) = rows(store)["one"].waits
        assert question.key == "stuck"
        assert "shop/count" in question.about
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


@dataclass(frozen=True)
class Order:
    is_right: bool = False


def orders(store, name="review"):
    """A flow that waits for somebody in a state of this name."""

    def shown(o: Order) -> str:
        return "Is it right?"

    shown.__name__ = name
    review = wait(bool)(shown)
    rows = [review.done(end("over"), do=lambda o, is_right: Order(is_right))]
    return Flow("orders", Order, start=review, rows=rows, store=store)


class TestStuck:
    """A deployment that cannot go on with a run, and one that can."""

    @pytest.fixture
    def stuck(self, store):
        """A run that waits, and was touched by code without the state that it is in; returned as it was before."""
        with pytest.raises(FlowSuspended):
            orders(store).call(Order(), run_id="one")
        before = rows(store)["one"]
        Runs(store).answer("one", {"": Approved()})  # wakes it, and answers nothing
        assert Worker([orders(store, "approval")], store).run(once=True) == 1
        return before

    @pytest.mark.parametrize("is_answered", [False, True])
    def test_the_same_code_leaves_it_alone_and_good_code_takes_it_up(self, store, stuck, is_answered):
        if is_answered:  # meanwhile
            Runs(store).answer("one", {stuck.waits[0].key: Returned(text="true")}, by="ann")
        assert Worker([orders(store, "approval")], store).run(once=True) == 0
        assert Worker([orders(store)], store).run(once=True) == 1
        row = rows(store)["one"]
        if is_answered:
            assert (row.state, row.is_ended) == ("over", True)
            assert orders(store).call(Order(), run_id="one").output == Order(is_right=True)
        else:
            assert (row.state, row.waits, row.due_s) == (stuck.state, stuck.waits, None)

    def test_other_bad_code_tries_it_once(self, store, stuck):
        other = Worker([orders(store, "checking")], store)
        assert other.run(once=True) == 1
        other._looks_at_s = 0.0
        assert other.run(once=True) == 0
        assert [question.key for question in rows(store)["one"].waits] == [stuck.waits[0].key, "stuck"]

    def test_it_is_found_behind_stuck_runs_that_stay_so_and_others_that_ask(self, store, stuck, monkeypatch):
        monkeypatch.setattr("fsm_agent.agents.worker.STUCK_AT_A_TIME", 2)
        for name in ("two", "three", "four", "five"):
            with pytest.raises(FlowSuspended):
                orders(store, "checking").call(Order(), run_id=name)
            Runs(store).answer(name, {"": Approved()})
        assert Worker([orders(store, "approval")], store).run(once=True) == 4
        for name in ("six", "seven", "eight"):
            with pytest.raises(FlowSuspended):
                orders(store).call(Order(), run_id=name)
        assert Worker([orders(store)], store).run(once=True) == 5
        assert rows(store)["one"].state == stuck.state

    def test_it_is_tried_again_when_its_deps_can_be_made_or_it_has_no_holder(self, store, stuck):
        """What hindered the first look has passed."""
        away = [True]

        def deps(name, extra):
            if away:
                raise OSError("the database is away")
            return

        worker = Worker([orders(store)], store, deps=deps)
        assert worker.run(once=True) == 0
        away.clear()
        assert worker.run(once=True) == 0, "each look reads all stuck runs, so the next one is made later"
        worker._looks_at_s = 0.0
        lease = store.claim("another", for_s=60, run="one")
        assert worker.run(once=True) == 0
        worker.runs.give_back(lease, store.load("one"))
        held = store.claim("another", for_s=60, run="one")
        store.append(held, held.n, (), Rest(state="Stuck", questions=store.get("one").waits, heeds="stuck"))
        worker._looks_at_s = 0.0
        assert worker.run(once=True) == 1
        assert rows(store)["one"].state == stuck.state

    @pytest.mark.parametrize("can_be_driven", [True, False])
    def test_one_that_is_cancelled_while_it_is_looked_for_stays_so(self, store, stuck, can_be_driven):
        """Also if it cannot be driven."""
        bad, runs = Worker([orders(store, "approval")], store), Runs(store)
        claim = runs.claim

        def claims(run):
            runs.cancel(run)
            assert bad.run(once=True) == 1
            return claim(run)

        runs.claim = claims
        worker = Worker([orders(store)], runs)
        if can_be_driven:
            assert worker.release_stuck()
        else:
            worker._give_up(worker._claim_stuck(), OSError("the deps are away"))
        row = rows(store)["one"]
        assert (row.is_ended, row.is_failed, row.due_s, row.holder) == (True, True, None, None)

    def test_an_answer_to_the_question_about_it_counts_for_the_same_code(self, store, stuck):
        bad = Worker([orders(store, "approval")], store)
        Runs(store).answer("one", {"stuck": RunAgain()})
        assert bad.run(once=True) == 1
        assert [question.key for question in rows(store)["one"].waits] == [stuck.waits[0].key, "stuck"]
        Runs(store).answer("one", {"stuck": Cancelled(reason="never mind")})
        assert bad.run(once=True) == 1
        assert rows(store)["one"].is_ended
        assert rows(store)["one"].waits == ()


@function
def weigh(item: str) -> float:
    """Weigh an item."""
    return 1.5


def other_shop(functions=(shop.price, shop.refund, weigh), **options) -> Agent:
    """The shop under other code."""
    return Agent(Script(*[shop.turn] * 50), functions=[*functions], name="shop", **options)


def left_before_its_function(store) -> None:
    """Begin a run whose holder dies when the model has just asked for a function."""

    class Dies:
        def on_stepped(self, event):
            if event.trigger == "functions_asked":
                raise LookupError("dies")

    create(store, shop.shop(), "one")
    Worker([shop.shop(hooks=[Dies()])], store).advance()
    assert rows(store)["one"].n == 2


class TestChangedCode:
    """A run that waits for a person, answered when the code is another."""

    @pytest.fixture(autouse=True)
    def waiting(self, store):
        agent = shop.shop()
        create(store, agent, "one")
        Worker([agent], store).run(once=True)
        Runs(store).answer("one", {"ask:3.0": Approved()}, by="ann")

    def test_report_goes_on(self, store, caplog):
        assert Worker([other_shop()], store).run(once=True) == 1
        assert rows(store)["one"].state == "Completed"
        assert "prompt" in caplog.text

    def test_rest_asks_first_and_asks_once(self, store):
        worker = Worker([other_shop()], store, on_change="rest")
        assert worker.run(once=True) == 1
        row = rows(store)["one"]
        assert (row.state, [question.key for question in row.waits]) == ("Stuck", ["stuck"])
        assert worker.run(once=True) == 0
        Runs(store).answer("one", {"stuck": RunAgain()}, by="ann")
        assert worker.run(once=True) == 1
        assert rows(store)["one"].state == "Completed"

    def test_rest_takes_a_run_that_rested_under_the_code_that_a_person_has_accepted(self, store):
        create(store, shop.shop(), "two")
        Worker([shop.shop()], store).run(once=True)  # of it "one" ends
        worker = Worker([other_shop()], store, on_change="rest")
        create(store, shop.shop(), "three")
        assert worker.run(once=True) == 1  # "three", which was begun by other code
        Runs(store).answer("three", {"stuck": RunAgain()})
        assert worker.run(once=True) == 1
        assert rows(store)["three"].state == "ToolInterrupt"
        Runs(store).answer("three", {"ask:3.0": Approved()})
        assert worker.run(once=True) == 1
        assert rows(store)["three"].state == "Completed"

    def test_rest_leaves_it_to_the_code_that_it_had(self, store):
        assert Worker([other_shop()], store, on_change="rest").run(once=True) == 1
        assert Worker([shop.shop()], store, on_change="rest").run(once=True) == 1
        assert rows(store)["one"].state == "Completed"

    @pytest.mark.parametrize("functions", [[shop.price], [shop.price, shop.refund]])
    def test_the_same_code_is_no_change(self, store, functions):
        """And a function that is missing is asked about under each policy."""
        worker = Worker([other_shop(functions)], store, on_change="rest")
        assert worker.run(once=True) == 1
        assert rows(store)["one"].state == ("Completed" if len(functions) == 2 else "Stuck")

    @modes
    def test_stop_ends_the_worker_and_leaves_the_run_to_others(self, store, mode):
        worker = Worker([other_shop([shop.price])], store, on_change="stop")
        with pytest.raises(ReplayError, match="refund"):
            run(worker, mode)
        row = rows(store)["one"]
        assert (row.state, row.holder, row.waits) == ("ToolInterrupt", None, ())
        with pytest.raises(ReplayError):
            worker.drive("one")
        assert Worker([shop.shop()], store).drive("one") is True
        assert rows(store)["one"].state == "Completed"

    def test_stop_at_any_change(self, store):
        with pytest.raises(ReplayError, match="fingerprint"):
            Worker([other_shop()], store, on_change="stop").run(once=True)


class TestVersionsSideBySide:
    """Each takes the runs that were begun by its own code."""

    def test_each_leaves_those_of_the_other_alone(self, store):
        create(store, shop.shop(), "old")
        create(store, other_shop(), "new")
        old = Worker([shop.shop()], store, only_known=True)
        new = Worker([other_shop()], store, only_known=True)
        assert new.run(once=True) == 1
        assert rows(store)["old"].n == 0
        assert new.run(once=True) == 0
        assert asyncio.run(old.arun(tasks=2, once=True)) == 1
        Runs(store).answer("old", {"ask:3.0": Approved()})
        assert (new.run(once=True), old.run(once=True)) == (0, 1)
        Runs(store).answer("new", {"ask:3.0": Approved()})
        assert (old.run(once=True), new.run(once=True)) == (0, 1)
        assert {row.state for row in rows(store).values()} == {"Completed"}

    def test_a_prompt_of_the_task_and_flows_are_known(self, store):
        prompt = Prompt("How many {{ things }}?", path="shop/count", output=int)
        agent = Agent(Script("7", "8"), name="counter")
        create(store, agent, "one", task=prompt(things="kettles"))
        assert Worker([agent], store, only_known=True).run(once=True) == 0
        assert Worker([agent], store, prompts=[prompt], only_known=True).run(once=True) == 1
        with pytest.raises(FlowSuspended):
            orders(store).call(Order(), run_id="flow")
        Runs(store).answer("flow", {"": Approved()})  # wakes it, and answers nothing
        assert Worker([orders(store, "approval")], store, only_known=True).run(once=True) == 0
        assert Worker([orders(store)], store, only_known=True).run(once=True) == 1

    def test_a_stuck_run_of_other_code_is_left_alone(self, store):
        left_before_its_function(store)
        Worker([other_shop([shop.refund])], store).run(once=True)
        assert rows(store)["one"].state == "Stuck"
        assert Worker([other_shop()], store, only_known=True).run(once=True) == 0
        assert Worker([shop.shop()], store, only_known=True).run(once=True) == 1
        assert rows(store)["one"].state == "ToolInterrupt"


class TestMissingCode:
    def test_a_function_that_was_about_to_run_is_named(self, store, caplog):
        left_before_its_function(store)
        without = Worker([other_shop([shop.refund])], store)
        assert without.run(once=True) == 1
        (question,) = rows(store)["one"].waits
        assert "price" in question.about
        assert Worker([shop.shop()], store).run(once=True) == 1
        assert rows(store)["one"].state == "ToolInterrupt"

    def test_a_person_may_go_on_without_it(self, store):
        left_before_its_function(store)
        without = Worker([other_shop([shop.refund])], store)
        without.run(once=True)
        Runs(store).answer("one", {"stuck": RunAgain()})
        assert without.run(once=True) == 1
        assert rows(store)["one"].state == "ToolInterrupt"


class TestPruning:
    def test_old_runs_are_deleted_by_one_worker_in_an_hour(self, store):
        agent = Agent(Script(*["hi"] * 9), name="x")
        create(store, agent, "one", "two", "three")
        assert Worker([agent], store).run(once=True) == 3
        with working(Worker([agent], store, keep=1), threads=1):
            wait_until(lambda: len(rows(store)) == 1)
        create(store, agent, "four", "five")
        with working(Worker([agent], store, max_age_s=0.0), tasks=2):
            wait_until(lambda: rows(store)["five"].is_ended and rows(store)["four"].is_ended)
            settle()
        assert len(rows(store)) == 3

    @modes
    def test_so_does_a_worker_that_leaves_as_soon_as_nothing_is_due(self, store, mode):
        agent = Agent(Script(*["hi"] * 9), name="x")
        create(store, agent, "one", "two", "three")
        assert Worker([agent], store).run(once=True) == 3
        assert run(Worker([agent], store, keep=1), mode, once=True) == 0
        assert len(rows(store)) == 1

    def test_what_has_not_ended_stays_and_a_store_that_fails_is_outlasted(self, store, caplog):
        agent, runs, pruned = shop.shop(), Runs(store), threading.Event()
        create(store, agent, "one")
        Worker([agent], store).run(once=True)
        store.spend = lambda *args, **options: 1 / 0
        with working(Worker([agent], store, keep=0), threads=1):
            wait_until(lambda: "division by zero" in caplog.text)
        del store.spend
        prune = runs.prune
        runs.prune = lambda **options: (prune(**options), pruned.set())[0]
        with working(Worker([agent], runs, keep=0), threads=1):
            assert pruned.wait(30)
        assert list(rows(store)) == ["one"]


class TestStopping:
    def test_functions_that_run_are_all_finished_and_written_and_no_more(self, store):
        begun, may_return = threading.Barrier(3), threading.Event()

        @function
        def work(n: int) -> str:
            """Work."""
            begun.wait(30)
            assert may_return.wait(30)
            return f"worked {n}"

        agent = Agent(Script([call("work", n=0), call("work", n=1)], "done"), functions=[work], name="x")
        create(store, agent, "one", "two")
        worker = Worker([agent], store)
        with working(worker, threads=1):
            begun.wait(30)
            worker.stop()
            may_return.set()
        one = rows(store)["one"]
        assert (one.n, one.state, one.holder, one.due_s) == (4, "Calling", None, 0.0)
        assert rows(store)["two"].n == 0


def fsm_agent(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fsm_agent", *arguments]
    return subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=100, check=False)


BEGIN = """
from contextlib import suppress
from support import shop_agent as shop
from fsm_agent import CallSuspended
with suppress(CallSuspended):
    shop.shop(store="runs.db").call("Refund order A-17.", run_id="order-17")
"""


class TestProcesses:
    @pytest.mark.system
    def test_one_begins_another_answers_and_a_third_finishes(self, tmp_path):
        subprocess.run([sys.executable, "-c", BEGIN], cwd=tmp_path, env=ENVIRONMENT, timeout=60, check=True)
        answered = fsm_agent(
            *("runs", "answer", "order-17", "ask:3.0", "--approve", "--by", "ann", "--store", "runs.db"), cwd=tmp_path
        )
        assert answered.returncode == 0, answered.stderr
        done = fsm_agent("worker", "--store", "runs.db", "--agents", "support.shop_agent", "--once", cwd=tmp_path)
        assert (done.returncode, "it advanced runs 1 time" in done.stderr) == (0, True), done.stderr
        runs = Runs(tmp_path / "runs.db")
        loaded = runs.store.load("order-17")
        runs.close()
        assert loaded.run.state == "Completed"
        assert "Done: 19.50 EUR for A-17 are on their way" in loaded.lines[-1]
        fences = [json.loads(line)["fence"] for line in loaded.lines]
        assert fences == sorted(fences)
        assert len(set(fences)) == 2

    @pytest.mark.system
    @pytest.mark.skipif(os.name == "nt", reason="signals are POSIX")
    def test_ctrl_c_ends_it_well(self, tmp_path):
        command = [sys.executable, "-m", "fsm_agent", "worker", "--store", "runs.db", "--agents", "support.shop_agent"]
        command.append("--create")
        with subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert "Ctrl-C ends it" in process.stderr.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
            assert "it advanced runs 0 times" in process.stderr.read()
