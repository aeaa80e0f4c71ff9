"""Work that is put in: runs that are submitted, driven by workers, and followed by handles, here and elsewhere."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.postgres import NOT_HERE, PostgresServer, programs

from fsm_agent import (
    Agent,
    Approved,
    CallFailed,
    CallSuspended,
    Done,
    MemoryStore,
    ProviderError,
    Runs,
    SqliteStore,
    Stepped,
    Suspended,
    UsageError,
    Worker,
    function,
)
from fsm_agent.agents import RunHandle
from fsm_agent.errors import OutcomeError, ReplayError
from fsm_agent.lifecycle import Cancelled
from fsm_agent.messages import HistoryChanged, ReplyCompleted
from fsm_agent.runtime import SystemClock
from fsm_agent.store import NotAsked, PostgresStore, QueueFull, RunExists, RunUnknown, Store, watching
from fsm_agent.store.watching import LOOK_S
from fsm_agent.testing import Script, call

PATIENCE_S = 30.0
LATER_S = 3600.0


@function(needs_approval=True)
def erase(path: str) -> str:
    """Erase a file."""
    return f"{path} is gone"


@function
def look(path: str) -> str:
    """Look at a file."""
    return f"{path} is there"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with closing(PostgresServer()) as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.nightly)])  # for other OS processes
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "runs.db")
    if programs() is None:
        pytest.skip(NOT_HERE)
    server: PostgresServer = request.getfixturevalue("server")
    return server.url(f"s{abs(hash(str(tmp_path)))}")


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.system)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store
    if request.param == "memory":
        made = MemoryStore()
    elif request.param == "sqlite":
        made = SqliteStore(tmp_path / "runs.db")
    else:
        if programs() is None:
            pytest.skip(NOT_HERE)
        server: PostgresServer = request.getfixturevalue("server")
        made = PostgresStore(server.url(f"s{abs(hash(str(tmp_path)))}"))
    with closing(made):
        yield made


@pytest.fixture(autouse=True)
def _idles_shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have workers that idle look soon whether they were stopped, as most of these tests end so."""
    monkeypatch.setattr("fsm_agent.agents.worker.IDLE_S", 0.2)


def agent_of(store: Any, *replies: Any, **options: Any) -> Agent[Any, str]:
    return Agent(Script(*replies), name="clerk", functions=[erase, look], store=store, **options)


class Working:
    """A worker in a thread of its own."""

    def __init__(self, agent: Any, threads: int = 1, **options: Any) -> None:
        self.worker = Worker([agent], agent.runs, **options)
        self._thread = threading.Thread(target=self.worker.run, kwargs={"threads": threads}, daemon=True)

    def __enter__(self) -> Worker:
        self._thread.start()
        return self.worker

    def __exit__(self, *_: object) -> None:
        self.worker.stop()
        self._thread.join(PATIENCE_S)


def test_a_run_is_submitted_driven_by_a_worker_and_its_result_awaited(store: Store) -> None:
    agent = agent_of(store, "One.", "Two.", "Three.")
    run = agent.submit("first", run_id="r", extra={"ticket": 7})
    assert (run.run_id, run.state) == ("r", "Seeded")
    with pytest.raises(TimeoutError, match=r"'r' has not ended within 0.05 s; no driver has it: is a worker running\?"):
        run.result(timeout_s=0.05)
    with pytest.raises(TimeoutError):
        asyncio.run(agent.handle("r").aresult(timeout_s=0.0))
    with Working(agent):
        result = run.result(PATIENCE_S)
        assert (result.output, result.extra, run.state) == ("One.", {"ticket": 7}, "Completed")
        second = asyncio.run(agent.asubmit("second"))
        assert asyncio.run(second.aresult(PATIENCE_S)).output == "Two."
        second, third = agent.handle("r"), agent.submit("third")
        assert (second.result().output, third.result(PATIENCE_S).output) == ("One.", "Three.")


def test_to_submit_again_is_the_same_run_and_another_task_is_refused(store: Store) -> None:
    agent = agent_of(store, "One.")
    agent.submit("first", run_id="r", priority=3)
    assert agent.submit("first", run_id="r", priority=5, delay_s=LATER_S).run_id == "r"
    with pytest.raises(RunExists, match="another task"):
        agent.submit("second", run_id="r")
    assert [(run.id, run.priority, run.due_s) for run in store.list()] == [("r", 3, 0.0)]
    assert Worker([agent], agent.runs).run(once=True) == 1
    assert agent.submit("first", run_id="r").result().output == "One."
    changed = agent.changed(functions=[look])  # other code makes no other run
    assert changed.submit("first", run_id="r").run_id == "r"


def test_a_run_that_asks_is_told_as_a_call_tells_it_and_answered_by_its_handle(store: Store) -> None:
    agent = agent_of(store, call("erase", path="x"), "Done.")
    run = agent.submit("Erase x.", run_id="r")
    with Working(agent):
        with pytest.raises(CallSuspended, match=r"'ask:1\.0'"):
            run.result(PATIENCE_S)
        with pytest.raises(CallSuspended, match=r"'ask:1\.0'"):
            asyncio.run(run.aresult(PATIENCE_S))
        assert list(run.questions) == ["ask:1.0"]
        *_, last = agent_of(MemoryStore(), call("erase", path="x")).stream("Erase x.")
        assert isinstance(last, Suspended)
        assert ([*run.stream()][-1], last.keys, len(last.questions)) == (last, ("ask:1.0",), 1)
        with pytest.raises(UsageError, match="Cancelled answers no"):
            run.answer({"ask:1.0": Cancelled()})
        run.answer(Approved(), by="ann")
        assert run.result(PATIENCE_S).output == "Done."
    with pytest.raises(NotAsked, match="'r' has ended"):
        run.answer(Approved())
    with pytest.raises(NotAsked, match="'r' has ended"):
        run.cancel()


def test_one_answer_is_enough_where_one_question_is_open(store: Store) -> None:
    agent = agent_of(
        store, call("erase", path="x"), "Done.", [call("erase", path="y"), call("erase", path="z")], "Both."
    )
    with pytest.raises(CallSuspended):
        agent.call("Erase x.", run_id="one")
    assert agent.resume("one", Approved(), by="ann").output == "Done."
    with pytest.raises(CallSuspended):
        agent.call("Erase y and z.", run_id="two")
    with pytest.raises(OutcomeError, match=r"'two' asks 2 questions.*'ask:1.0', 'ask:1.1'"):
        agent.resume("two", Approved())
    with pytest.raises(OutcomeError, match=r"'two' asks 2 questions.*'ask:1.0', 'ask:1.1'"):
        agent.handle("two").answer(Approved())
    answers = {"ask:1.0": Approved(), "ask:1.1": Approved()}
    assert asyncio.run(agent.aresume("two", answers)).output == "Both."
    with pytest.raises(NotAsked, match="'two' has ended"):
        agent.resume("two", Approved())
    agent.submit("later", run_id="three", delay_s=LATER_S)
    with pytest.raises(NotAsked, match="'three' asks nothing now"):
        agent.resume("three", Approved())


def test_a_run_that_fails_raises_as_a_call_does(store: Store) -> None:
    agent = agent_of(store, ProviderError("no such model", status=404))
    run = agent.submit("first")
    with Working(agent), pytest.raises(CallFailed, match="no such model"):
        run.result(PATIENCE_S)
    with pytest.raises(CallFailed, match="no such model"):
        _read(run.stream(), seen := [])
    assert isinstance(seen[-1], Done)


def _read(events: Iterator[Any], seen: list[Any]) -> None:
    for event in events:
        seen.append(event)  # as it comes: the last is followed by an error


def test_a_handle_follows_the_journal_as_the_live_stream_has_it(store: Store) -> None:
    replies = (call("look", path="x"), call("look", path="y"), "Done.")
    kept = (Stepped, ReplyCompleted, HistoryChanged, Done)
    agent = agent_of(store, *replies, *replies, *replies)
    live = [event for event in agent.stream("Look.", run_id="live") if isinstance(event, kept)]
    runs = [agent.submit("Look.", run_id="followed"), agent.submit("Look.", run_id="async")]
    found: dict[str, list[Any]] = {}

    async def follow() -> None:
        found["async"] = [event async for event in runs[1].astream()]

    threads = [
        threading.Thread(target=lambda: found.update(followed=[*runs[0].stream()])),
        threading.Thread(target=lambda: asyncio.run(follow())),
    ]
    for thread in threads:
        thread.start()
    with Working(agent):
        for thread in threads:
            thread.join(PATIENCE_S)
    for name in ("followed", "async"):
        assert [_shape(event) for event in found[name]] == [_shape(event) for event in live]
        assert found[name] == [*agent.handle(name).stream()], "read later, it is the same"


def _shape(event: Any) -> Any:
    if isinstance(event, Stepped):
        return event.changed(at_s=0.0)
    return event.result.output if isinstance(event, Done) else event


def test_a_run_starts_after_others_in_whatever_way_they_end(store: Store) -> None:
    agent = agent_of(store, ProviderError("gone", status=404), "Last.")
    failing, cancelled = agent.submit("fails"), agent.submit("waits", delay_s=LATER_S)
    deleted = agent.submit("goes", delay_s=LATER_S)
    last = agent.submit("last", after=[failing, cancelled.run_id, deleted])
    assert agent.handle(last.run_id).state == "Seeded"
    with pytest.raises(TimeoutError, match="it is not due yet"):
        last.result(timeout_s=0.0)
    with Working(agent):
        with pytest.raises(CallFailed):
            failing.result(PATIENCE_S)
        cancelled.cancel("not needed", by="ann")
        with pytest.raises(CallFailed, match="cancelled: not needed"):
            cancelled.result(PATIENCE_S)
        assert store.load(last.run_id).run.due_s is None
        store.delete(deleted.run_id)
        assert last.result(PATIENCE_S).output == "Last."
    with pytest.raises(RunUnknown, match="'nobody'"):
        agent.submit("never", after="nobody")
    assert len(store.list()) == 3


def test_what_a_task_follows_is_no_run_that_has_to_end(store: Store) -> None:
    agent = agent_of(store, "One.", "Two.")
    result = agent.call("first")
    run = agent.submit("second", after=result)
    Worker([agent], agent.runs).run(once=True)
    assert [message.text for message in run.result().dialog] == ["first", "One.", "second", "Two."]


@pytest.mark.system
def test_a_delay_is_kept_by_the_real_clock_and_no_message_shortens_it(store: Store) -> None:
    agent = agent_of(store, "One.")
    began_s = time.time()
    run = agent.submit("later", delay_s=0.5)
    agent.runs.store.post(run.run_id, "", "{}")
    with Working(agent):
        run.result(PATIENCE_S)
    assert time.time() - began_s >= 0.5
    for delay_s in (-1.0, float("nan"), "1"):
        with pytest.raises(UsageError, match="delay_s"):
            agent.submit("x", delay_s=delay_s)  # type: ignore[arg-type]


def test_the_highest_priority_is_driven_first(store: Store) -> None:
    agent = agent_of(store, *["Done."] * 4)
    for name, priority in (("low", -1), ("plain", 0), ("high", 7), ("second", 0)):
        agent.submit(name, run_id=name, priority=priority)
    order: list[str] = []
    script: Any = agent.model
    assert Worker([agent], agent.runs).run(once=True) == 4
    order = [request.messages[-1].text for request in script.requests]
    assert order == ["high", "plain", "second", "low"]
    with pytest.raises(UsageError, match="priority is 101: a whole number from -100 to 100"):
        agent.submit("x", priority=101)


def test_a_full_queue_refuses_by_name(store: Store) -> None:
    agent = agent_of(Runs(store, queue_limit=2), "One.")
    agent.submit("first", run_id="1")
    agent.submit("second", run_id="2", delay_s=LATER_S)
    with pytest.raises(QueueFull, match="the queue of 'clerk' is full: 2 runs wait to be begun, and the limit is 2"):
        agent.submit("third")
    assert agent.submit("first", run_id="1").run_id == "1"
    assert Worker([agent], agent.runs).run(once=True) == 1
    agent.submit("third")
    with pytest.raises(UsageError, match="queue_limit is 0"):
        Runs(store, queue_limit=0)


@pytest.mark.system
def test_many_threads_and_tasks_wait_for_many_runs(store: Store) -> None:
    agent = agent_of(store, *["Done."] * 8)
    runs = [agent.submit(f"task {number}") for number in range(8)]
    meeting = threading.Barrier(17)

    def wait(run: RunHandle[Any]) -> Any:
        meeting.wait(PATIENCE_S)
        return run.result(PATIENCE_S).output

    async def wait_for_all() -> list[Any]:
        return await asyncio.gather(*[run.aresult(PATIENCE_S) for run in runs])

    with ThreadPoolExecutor(17) as threads:
        waits = [threads.submit(wait, run) for run in (*runs, *runs)]
        tasks = threads.submit(asyncio.run, wait_for_all())
        meeting.wait(PATIENCE_S)
        with Working(agent, threads=4):
            assert {one.result(PATIENCE_S) for one in waits} == {"Done."}
            assert {result.output for result in tasks.result(PATIENCE_S)} == {"Done."}


@pytest.mark.system
def test_to_wait_costs_a_few_looks_a_second_however_many_wait(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = agent_of(store)
    runs = [agent.submit(f"task {number}") for number in range(3)]
    looks = 0
    get = store.get

    def counted(run: str) -> Any:
        nonlocal looks
        looks += threading.current_thread().name == "fsm_agent run watcher"
        return get(run)

    monkeypatch.setattr(store, "get", counted)
    watcher = agent.runs.watcher
    began_s = time.monotonic()
    futures = [watcher.watch(run.run_id, lambda _: False) for run in runs * 20]
    time.sleep(1.0)
    seen, took_s = looks, time.monotonic() - began_s
    for future in futures:
        future.cancel()
    assert 3 <= seen <= 3 * (took_s / LOOK_S + 8)  # the first looks come after 20, 30, 45 … ms
    ends_s = time.monotonic() + PATIENCE_S
    while watcher._thread is not None and time.monotonic() < ends_s:
        time.sleep(0.01)
    assert watcher._thread is None, "the thread goes on although nobody waits"


def test_a_result_is_there_when_the_run_has_ended(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store says so; those who wait do not look again for an hour."""
    agent = agent_of(store, *["Done."] * 8)
    for name in ("FIRST_LOOK_S", "LOOK_S"):
        monkeypatch.setattr(watching, name, LATER_S)
    with Working(agent):
        for number in range(8):
            run = agent.submit("x")
            waits = [agent.handle(run.run_id) for _ in range(3)]
            with ThreadPoolExecutor(3) as threads:
                found = [threads.submit(wait.result, PATIENCE_S) for wait in waits]
                assert [one.result(PATIENCE_S).output for one in found] == ["Done."] * 3, number


def test_a_stream_under_changed_code_ends_as_the_result_does(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """The events before the last rest that the code cannot make are left out."""
    agent = agent_of(store, call("look", path="a"), call("erase", path="a"))
    with pytest.raises(CallSuspended):
        agent.call("tidy up", run_id="r")
    changed = Agent(Script("Done."), name="clerk", functions=[erase], store=store)
    run = changed.handle("r")
    assert isinstance([*run.stream()][-1], Suspended)
    assert "its events before entry" in caplog.text
    run.answer(Approved())
    assert Worker([changed], store).run(once=True) == 1
    events = [*run.stream()]
    assert isinstance(events[-1], Done)
    assert run.result().output == "Done."
    assert asyncio.run(_all_of(run.astream())) == events


async def _all_of(events: Any) -> list[Any]:
    return [event async for event in events]


def test_who_gives_up_waiting_leaves_nothing_behind(store: Store) -> None:
    agent = agent_of(store)
    run = agent.submit("x")
    with pytest.raises(TimeoutError):
        run.result(timeout_s=0.05)
    with pytest.raises(TimeoutError):
        asyncio.run(run.aresult(timeout_s=0.05))
    ends_s = time.monotonic() + PATIENCE_S
    while agent.runs.watcher._thread is not None and time.monotonic() < ends_s:
        time.sleep(0.01)
    assert agent.runs.watcher._thread is None


@pytest.mark.system
def test_a_run_that_goes_away_is_told_to_those_who_wait(store: Store) -> None:
    agent = agent_of(store)
    run = agent.submit("later", run_id="r", delay_s=LATER_S)
    with ThreadPoolExecutor(2) as threads:
        waits = [threads.submit(run.result, PATIENCE_S), threads.submit(lambda: [*run.stream()])]
        time.sleep(0.1)
        store.delete("r")
        for wait in waits:
            with pytest.raises(RunUnknown, match="'r'"):
                wait.result(PATIENCE_S)
    for verb in (lambda: run.state, run.result, run.cancel, lambda: agent.handle("r")):
        with pytest.raises(RunUnknown, match="'r'"):
            verb()


def test_a_handle_is_one_of_this_agent(store: Store) -> None:
    agent_of(store).submit("first", run_id="r")
    other = Agent(Script(), name="other", store=store)
    with pytest.raises(UsageError, match="the run 'r' is one of 'clerk', and this is 'other'"):
        other.handle("r")


def test_a_stuck_run_says_so(store: Store) -> None:
    agent = agent_of(store, call("erase", path="x"))
    run = agent.submit("Erase x.", run_id="r")
    Worker([agent], agent.runs).run(once=True)
    run.answer(Approved())
    without = agent.changed(functions=[look])  # it cannot act on the approval
    Worker([without], without.runs).run(once=True)
    assert run.state == "Stuck"
    for verb in (run.result, lambda: [*run.stream()]):
        with pytest.raises(ReplayError, match="the run 'r' is stuck until 'stuck' is answered"):
            verb()


def test_a_run_that_was_retried_is_followed_through_both_attempts(store: Store) -> None:
    agent = agent_of(store, ProviderError("gone", status=404), "Done.")
    run = agent.submit("x", run_id="r")
    Worker([agent], agent.runs).run(once=True)
    with pytest.raises(CallFailed):
        run.result()
    agent.runs.retry("r", by="ann")
    Worker([agent], agent.runs).run(once=True)
    assert run.result().output == "Done."
    events = [*run.stream()]
    assert [str(event.to) for event in events if isinstance(event, Stepped)] == ["Calling", "Failed", "Completed"]
    assert isinstance(events[-1], Done)
    followed = events[-1].result.call
    assert [str(record.state) for record in followed.states] == ["Seeded", "Calling", "Failed", "Calling", "Completed"]
    assert followed.journal.n == store.get("r").n


def test_what_no_store_keeps_is_refused(store: Store) -> None:
    agent = agent_of(store)
    for option, value in (("deps", object()), ("model", Script())):
        with pytest.raises(UsageError, match=f"{option} is .*which no store keeps"):
            agent.submit("x", **{option: value})
    with pytest.raises(UsageError, match=r"there is no option 'delay': did you mean 'delay_s'\?"):
        agent.submit("x", delay=3)  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="has no store"):
        Agent(Script(), name="none").submit("x")
    assert store.list() == []


def test_a_turn_of_a_conversation_is_submitted(store: Store) -> None:
    agent = agent_of(store, "Hello, Ann.", "Ann.")
    talk = agent.conversation("c")
    with Working(agent):
        assert talk.submit("I am Ann.").result(PATIENCE_S).output == "Hello, Ann."
        run = talk.submit("Who am I?")
        assert run.result(PATIENCE_S).output == "Ann."
    assert [_shape(event) for event in run.stream()][-1] == "Ann."
    assert len(talk.read()) == 4


def test_a_pause_before_the_next_attempt_is_waited_for(store: Store) -> None:
    agent = agent_of(store, ProviderError("busy", status=503), "Done.", world={"clock": SystemClock()})
    run = agent.submit("x")
    with Working(agent, patience_s=0.0):
        assert run.result(PATIENCE_S).output == "Done."


# Another OS process

CODE = """
import sys
from fsm_agent import Agent, Worker, function, Runs
from fsm_agent.testing import Script, call

@function(needs_approval=True)
def erase(path: str) -> str:
    "Erase a file."
    return f"{path} is gone"

@function
def look(path: str) -> str:
    "Look at a file."
    return f"{path} is there"

agent = Agent(Script(*eval(sys.argv[2])), name="clerk", functions=[erase, look], store=sys.argv[1])
"""
WORKS = CODE + "Worker([agent], agent.runs).run()\n"
WAITS = CODE + "print(agent.handle('r').result(30).output, len([*agent.handle('r').stream()]))\n"


def other(code: str, address: str, replies: str = "()") -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code, address, replies], stdout=subprocess.PIPE, text=True)


@pytest.mark.system
def test_another_os_process_drives_and_this_one_waits_and_follows(address: str) -> None:
    agent = Agent(Script(), name="clerk", functions=[erase, look], store=address)
    run = agent.submit("Look, then erase.", run_id="r")
    with closing(agent.runs):
        worker = other(WORKS, address, "(call('look', path='x'), call('erase', path='x'), 'Done.')")
        try:
            events = run.stream()
            assert isinstance(next(events), Stepped)
            rest = [*events]
            last = rest[-1]
            assert isinstance(last, Suspended)
            assert (last.keys, [question.key for question in last.questions]) == (("ask:3.0",), ["ask:3.0"])
            with pytest.raises(CallSuspended):
                run.result(PATIENCE_S)
            run.answer(Approved(), by="ann")
            assert run.result(PATIENCE_S).output == "Done."
            assert asyncio.run(run.aresult()).output == "Done."
        finally:
            worker.kill()
            worker.communicate()


@pytest.mark.system
def test_this_os_process_drives_and_another_one_waits(address: str) -> None:
    agent = Agent(Script("Done."), name="clerk", functions=[erase, look], store=address)
    agent.submit("x", run_id="r")
    with closing(agent.runs):
        waiting = other(WAITS, address)
        time.sleep(0.5)
        Worker([agent], agent.runs).run(once=True)
        printed, _ = waiting.communicate(timeout=PATIENCE_S)
        assert printed.split()[0] == "Done."


@pytest.mark.system
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks are those of POSIX")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_both_sides_of_a_fork_wait(address: str) -> None:
    agent = Agent(Script("Done."), name="clerk", functions=[erase, look], store=address)
    run = agent.submit("x", run_id="r")
    with closing(agent.runs), ThreadPoolExecutor(1) as threads:
        waits = threads.submit(run.result, PATIENCE_S)
        time.sleep(0.1)  # the thread that looks is there, and the child has none
        pid = os.fork()
        if pid == 0:
            try:
                os._exit(0 if run.result(PATIENCE_S).output == "Done." else 2)
            except BaseException:
                os._exit(1)
        time.sleep(0.5)
        Worker([agent], agent.runs).run(once=True)
        assert waits.result(PATIENCE_S).output == "Done."
        assert os.waitpid(pid, 0)[1] == 0
