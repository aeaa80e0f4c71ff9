"""Does a function in a thread keep its hands to itself?"""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import subprocess
import sys
import threading

import pytest

from fsm_agent.runtime.thread_task import ThreadTask, run_coroutine

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


def test_a_result_and_an_exception_reach_the_future():
    assert ThreadTask(lambda child: 42).start().future.result(20) == 42
    with pytest.raises(SystemExit):
        ThreadTask(lambda child: exit(3)).start().future.result(20)


def test_the_context_is_copied_there_and_not_back():
    variable.set("mine")

    def work(child):
        seen = variable.get()
        variable.set("theirs")
        return seen

    assert ThreadTask(work).start().future.result(20) == "mine"
    assert variable.get() == "mine"


@pytest.mark.system
def test_a_thread_that_hangs_does_not_keep_the_process_from_ending():
    code = """if True:
        import threading, time
        from fsm_agent.runtime.thread_task import ThreadTask
        began = threading.Event()
        child = ThreadTask(lambda child: (began.set(), time.sleep(300))).start()
        assert began.wait(20)
        child.cancel()
        print(child.future.cancelled())"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=40, check=True)
    assert ended.stdout == "True\n"


@pytest.mark.system
def test_a_coroutine_is_cancelled_with_its_child():
    began, ended = threading.Event(), threading.Event()

    async def stuck() -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    child = ThreadTask(lambda child: child.run_coroutine(stuck())).start()
    assert began.wait(20)
    child.cancel()
    assert ended.wait(20)


def test_a_coroutine_of_a_child_cancelled_before_it_began_does_not_run():
    begun, go, ended, ran = threading.Event(), threading.Event(), threading.Event(), []

    async def late() -> None:
        ran.append(1)

    def wait_and_run(child):
        begun.set()
        go.wait(20)
        try:
            child.run_coroutine(late())
        finally:
            ended.set()

    child = ThreadTask(wait_and_run).start()
    assert begun.wait(20)
    child.cancel()
    go.set()
    assert ended.wait(20)
    assert ran == []


def test_a_coroutine_runs_from_sync_code_inside_a_loop():
    async def inner() -> int:
        return 42

    async def outer() -> int:
        return run_coroutine(inner())

    assert asyncio.run(outer()) == 42


@pytest.mark.system
def test_an_interrupt_while_a_coroutine_is_waited_for_cancels_it():
    ended = threading.Event()

    async def stuck() -> None:
        await asyncio.sleep(0.05)  # CPython may miss a signal in the moment between giving up its lock and waiting
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    with pytest.raises(KeyboardInterrupt):
        run_coroutine(stuck())
    assert ended.wait(20)


@pytest.mark.system
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_after_a_fork_the_child_has_threads_of_its_own():
    """Those of its parent, though idle, are not there."""
    code = """if True:
        import os
        from fsm_agent.runtime import thread_task
        from fsm_agent.runtime.thread_task import ThreadTask
        ThreadTask(lambda child: None).start().join(20)
        while not thread_task._idle:
            pass
        if not (child := os.fork()):
            os._exit(ThreadTask(lambda child: 42).start().future.result(20))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=40, check=True
    )
    assert ended.stdout == "42\n"


@pytest.mark.system
def test_a_job_for_a_thread_that_is_about_to_end_is_done():
    """Again and again, a thread is taken from the idle ones as its patience ends."""
    code = """if True:
        import sys, time
        from fsm_agent.runtime import thread_task
        from fsm_agent.runtime.thread_task import ThreadTask
        thread_task.IDLE_S = 0.001
        sys.setswitchinterval(1e-6)
        until_s, done = time.monotonic() + 0.7, 0
        while time.monotonic() < until_s or done <= 20:
            assert ThreadTask(lambda child: 42).start().future.result(20) == 42
            done += 1
            time.sleep(0.001 * (done % 7) / 6)
        print("done")"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=40, check=True)
    assert ended.stdout == "done\n"
