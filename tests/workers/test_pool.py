"""Are no more runs driven at a time than allowed, and do workers leave well?"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading

import pytest
from support import shop_agent as shop
from support.paths import ROOT
from support.workers import Patient, create, modes, rows, run, settle, wait_until, working

from fsm_agent import Agent, UsageError, function
from fsm_agent.store import Runs
from fsm_agent.testing import Script, function_call
from fsm_agent.workers import Worker


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
        main, asked = threading.current_thread(), {}
        for method in ("claim", "load", "append", "wait"):
            works = getattr(sqlite, method)

            def noted(*args, works=works, method=method, **options):
                asked[method] = threading.current_thread()
                return works(*args, **options)

            setattr(sqlite, method, noted)
        agent = Agent(Script(*["hi"] * 3), name="x")
        create(sqlite, agent, "a", "b", "c")
        assert asyncio.run(Worker([agent], sqlite).arun(tasks=5, once=True)) == 3
        assert {"claim", "load"} <= asked.keys()
        assert "wait" not in asked, "there is nothing to wait for"
        assert main not in asked.values()

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


class TestMistakes:
    def test_what_is_wrong_is_named(self, store):
        for options, name in (
            ({"keep": -1}, "keep"),
            ({"max_age_s": "a day"}, "max_age_s"),
            ({"on_change": "error"}, "on_change"),
        ):
            with pytest.raises(UsageError, match=name):
                Worker([shop.shop()], store, **options)
        with pytest.raises(UsageError, match=r"agents.*shop"):
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


def test_ctrl_c_gives_all_runs_back_at_once(store):
    """It comes in the thread that has called `run`, while it waits for the others."""
    model = Patient(expected=2)
    agent = Agent(model, name="x")
    create(store, agent, "one", "two", "three")
    main = threading.main_thread().ident

    def press():
        assert model.all_asked.wait(30)
        signal.pthread_kill(main, signal.SIGINT)

    pressing = threading.Thread(target=press, daemon=True)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        pressing.start()
        with pytest.raises(KeyboardInterrupt):
            Worker([agent], store).run(threads=2)
    finally:
        signal.signal(signal.SIGINT, before)
        pressing.join(30)
    assert {(row.holder, row.due_s, row.is_ended) for row in rows(store).values()} == {(None, 0.0, False)}
    model.may_answer.set()


class TestStopping:
    def test_functions_that_run_are_all_finished_and_written_and_no_more(self, store):
        begun, may_return = threading.Barrier(3), threading.Event()

        @function
        def work(n: int) -> str:
            """Work."""
            begun.wait(30)
            assert may_return.wait(30)
            return f"worked {n}"

        agent = Agent(
            Script([function_call("work", n=0), function_call("work", n=1)], "done"), functions=[work], name="x"
        )
        create(store, agent, "one", "two")
        worker = Worker([agent], store)
        with working(worker, threads=1):
            begun.wait(30)
            worker.stop()
            may_return.set()
        one = rows(store)["one"]
        assert (one.n, one.state, one.holder, one.due_s) == (4, "Calling", None, 0.0)
        assert rows(store)["two"].n == 0


class TestPruning:
    def test_old_runs_are_deleted_at_the_start_and_each_hour(self, store):
        agent = Agent(Script(*["hi"] * 9), name="x")
        create(store, agent, "one", "two", "three")
        assert Worker([agent], store).run(once=True) == 3
        with working(Worker([agent], store, keep=1), threads=1):
            wait_until(lambda: len(rows(store)) == 1)
            create(store, agent, "four", "five")
            wait_until(lambda: rows(store)["five"].is_ended and rows(store)["four"].is_ended)
            settle()
            assert len(rows(store)) == 3
        with working(Worker([agent], store, max_age_s=0.0), tasks=2):
            wait_until(lambda: not rows(store))

    @modes
    def test_so_does_a_worker_that_leaves_as_soon_as_nothing_is_due(self, store, mode):
        agent = Agent(Script(*["hi"] * 9), name="x")
        create(store, agent, "one", "two", "three")
        assert Worker([agent], store).run(once=True) == 3
        assert run(Worker([agent], store, keep=1), mode, once=True) == 0
        assert len(rows(store)) == 1

    def test_what_has_not_ended_stays_and_a_store_that_fails_is_outlasted(self, store, caplog):
        agent, pruned = shop.shop(), threading.Event()
        create(store, agent, "one")
        Worker([agent], store).run(once=True)
        broken, runs = Runs(store), Runs(store)
        broken.prune = lambda **options: 1 / 0
        with working(Worker([agent], broken, keep=0), threads=1):
            wait_until(lambda: "division by zero" in caplog.text)
        prune = runs.prune
        runs.prune = lambda **options: (prune(**options), pruned.set())[0]
        with working(Worker([agent], runs, keep=0), threads=1):
            assert pruned.wait(30)
        assert list(rows(store)) == ["one"]


OUTLIVES_THE_MAIN_THREAD = """
import asyncio, sys, threading
from fsm_agent import Agent, SqliteStore, UsageError, Worker
from fsm_agent.testing import Script

store = SqliteStore(sys.argv[1])
worker = Worker([Agent(Script(["Hi"]), name="late", store=store)], store)

def work():
    threading.main_thread().join()
    try:
        worker.run() if sys.argv[2] == "run" else asyncio.run(worker.arun())
    except UsageError as error:
        print("main thread" in str(error))

threading.Thread(target=work).start()
"""


@pytest.mark.system
@pytest.mark.parametrize("mode", ["run", "arun"])
def test_a_worker_ends_once_python_starts_no_more_work(tmp_path, mode):
    command = [sys.executable, "-c", OUTLIVES_THE_MAIN_THREAD, str(tmp_path / "runs.db"), mode]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert ended.stdout == "True\n", ended.stderr
