"""Work that is put in: runs that are submitted, driven by workers, and followed by handles, here and elsewhere."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import (
    Agent,
    Approved,
    CallFailed,
    CallSuspended,
    Done,
    MemoryStore,
    Prompt,
    ProviderError,
    SqliteStore,
    Stepped,
    Suspended,
    UsageError,
    Worker,
    function,
)
from fsm_agent.agents import RunHandle
from fsm_agent.call import Cancelled
from fsm_agent.errors import OutcomeError, ReplayError
from fsm_agent.flows import Flow, end, execute
from fsm_agent.messages import FunctionEnded, HistoryChanged, ReplyCompleted
from fsm_agent.store import NotAsked, RunExists, RunUnknown, Store, watching
from fsm_agent.testing import FakeClock, Script, function_call

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


@pytest.fixture
def store() -> Store:
    return MemoryStore()


@pytest.fixture(autouse=True)
def _waits_shortly(monkeypatch: pytest.MonkeyPatch, store: Store) -> Iterator[None]:
    """Make idle workers and waiting handles look soon.  No thread that waits for a run remains."""
    monkeypatch.setattr("fsm_agent.workers.worker.IDLE_S", 0.01)
    monkeypatch.setattr(watching, "MAX_REST_S", 0.0)
    yield
    for thread in threading.enumerate():
        if thread.name == "fsm_agent run watcher":
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def agent_of(store: Any, *replies: Any, **options: Any) -> Agent[Any, str]:
    return Agent(Script(*replies), name="clerk", functions=[erase, look], store=store, **options)


class Working:
    """A worker in a separate thread."""

    def __init__(self, agent: Any, threads: int = 1, **options: Any) -> None:
        self.worker = Worker([agent], agent.runs.all, **options)
        self._thread = threading.Thread(target=self.worker.run, kwargs={"threads": threads}, daemon=True)

    def __enter__(self) -> Worker:
        self._thread.start()
        return self.worker

    def __exit__(self, *_: object) -> None:
        self.worker.stop()
        self._thread.join(PATIENCE_S)


def test_a_run_is_submitted_driven_by_a_worker_and_its_result_awaited(store: Store) -> None:
    agent = agent_of(store, "One.", "Two.", "Three.")
    run = agent.runs.submit("first", run_id="r", extra={"ticket": 7})
    assert (run.run_id, run.state) == ("r", "Seeded")
    with pytest.raises(TimeoutError, match="'r'"):
        run.result(timeout_s=0.0)
    with pytest.raises(TimeoutError):
        asyncio.run(agent.runs.get("r").aresult(timeout_s=0.0))
    with Working(agent):
        result = run.result(PATIENCE_S)
        assert (result.output, result.extra, run.state) == ("One.", {"ticket": 7}, "Completed")
        second = asyncio.run(agent.runs.asubmit("second"))
        assert asyncio.run(second.aresult(PATIENCE_S)).output == "Two."
        second, third = agent.runs.get("r"), agent.runs.submit("third")
        assert (second.result().output, third.result(PATIENCE_S).output) == ("One.", "Three.")


def test_to_submit_again_is_the_same_run_and_another_task_is_refused(store: Store) -> None:
    agent = agent_of(store, "One.")
    agent.runs.submit("first", run_id="r", priority=3)
    assert agent.runs.submit("first", run_id="r", priority=5, delay_s=LATER_S).run_id == "r"
    with pytest.raises(RunExists, match="another task"):
        agent.runs.submit("second", run_id="r")
    assert [(run.id, run.priority, run.due_s) for run in store.list()] == [("r", 3, 0.0)]
    assert Worker([agent], agent.runs.all).run(once=True) == 1
    assert agent.runs.submit("first", run_id="r").result().output == "One."
    changed = agent.changed(functions=[look])  # other code makes no other run
    assert changed.runs.submit("first", run_id="r").run_id == "r"


def test_a_run_that_asks_is_told_as_a_call_tells_it_and_answered_by_its_handle(store: Store) -> None:
    agent = agent_of(store, function_call("erase", path="x"), "Done.")
    run = agent.runs.submit("Erase x.", run_id="r")
    with Working(agent):
        with pytest.raises(CallSuspended, match="ask"):
            run.result(PATIENCE_S)
        with pytest.raises(CallSuspended, match="ask"):
            asyncio.run(run.aresult(PATIENCE_S))
        *_, last = agent_of(MemoryStore(), function_call("erase", path="x")).stream("Erase x.", run_id="r")
        assert isinstance(last, Suspended)
        assert ([*run.stream()][-1], last.keys, len(last.questions)) == (last, ("ask:1.0",), 1)
        assert run.questions == last.questions == store.get("r").waits, "everywhere in one form"
        with pytest.raises(UsageError, match=r"'ask:1.0'.*Cancelled"):
            run.answer({"ask:1.0": Cancelled()})
        run.answer(Approved(), by="ann")
        assert run.result(PATIENCE_S).output == "Done."
    with pytest.raises(NotAsked, match="'r'"):
        run.answer(Approved())
    with pytest.raises(NotAsked, match="'r'"):
        run.cancel()


def test_one_answer_is_enough_where_one_question_is_open(store: Store) -> None:
    agent = agent_of(
        store,
        function_call("erase", path="x"),
        "Done.",
        [function_call("erase", path="y"), function_call("erase", path="z")],
        "Both.",
    )
    with pytest.raises(CallSuspended):
        agent.call("Erase x.", run_id="one")
    assert agent.runs.resume("one", Approved(), by="ann").output == "Done."
    with pytest.raises(CallSuspended):
        agent.call("Erase y and z.", run_id="two")
    with pytest.raises(OutcomeError, match=r"ask:1\.0.*ask:1\.1"):
        agent.runs.resume("two", Approved())
    with pytest.raises(OutcomeError):
        agent.runs.get("two").answer(Approved())
    answers = {"ask:1.0": Approved(), "ask:1.1": Approved()}
    assert asyncio.run(agent.runs.aresume("two", answers)).output == "Both."
    with pytest.raises(NotAsked, match=r"'two' has ended.*resume\('two'\)"):
        agent.runs.resume("two", Approved())
    for run, name in ((agent.runs.get("two"), "run_id"), (store.get("two"), "id")):
        for verb in (agent.runs.resume, agent.runs.get, agent.runs.at):
            with pytest.raises(UsageError, match=f"{type(run).__name__}; pass its {name}$"):
                verb(run)
    agent.runs.submit("later", run_id="three", delay_s=LATER_S)
    with pytest.raises(NotAsked, match="'three'"):
        agent.runs.resume("three", Approved())


def test_a_run_that_fails_raises_as_a_call_does(store: Store) -> None:
    agent = agent_of(store, ProviderError("no such model", status=404))
    run = agent.runs.submit("first")
    with Working(agent), pytest.raises(CallFailed, match="no such model"):
        run.result(PATIENCE_S)
    with pytest.raises(CallFailed, match="no such model"):
        _read(run.stream(), seen := [])
    assert isinstance(seen[-1], Done)


def _read(events: Iterator[Any], seen: list[Any]) -> None:
    for event in events:
        seen.append(event)  # as it comes: the last is followed by an error


def test_a_handle_follows_the_journal_as_the_live_stream_has_it(store: Store) -> None:
    replies = (function_call("look", path="x"), function_call("look", path="y"), "Done.")
    kept = (Stepped, ReplyCompleted, FunctionEnded, HistoryChanged, Done)
    agent = agent_of(store, *replies, *replies, *replies)
    live = [event for event in agent.stream("Look.", run_id="live") if isinstance(event, kept)]
    runs = [agent.runs.submit("Look.", run_id="followed"), agent.runs.submit("Look.", run_id="async")]
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
        for kind in (FunctionEnded, Stepped | ReplyCompleted | HistoryChanged | Done):
            told = [[_shape(event) for event in events if isinstance(event, kind)] for events in (found[name], live)]
            assert told[0] == told[1]
        assert found[name] == [*agent.runs.get(name).stream()], "read later, it is the same"


def test_a_function_of_a_flow_that_failed_is_followed_as_it_was_heard(store: Store) -> None:
    @execute
    def breaking(n: int) -> str:
        raise OSError("away")

    over = end("over")
    flow = Flow("breaks", int, start=breaking, rows=[breaking.done(over), breaking.failed(over)], store=store)
    live = [event for event in flow.stream(1, run_id="r") if isinstance(event, FunctionEnded)]
    followed = [event for event in flow.runs.get("r").stream() if isinstance(event, FunctionEnded)]
    told = [[(event.id, event.text, event.is_error) for event in events] for events in (live, followed)]
    assert told == [[("breaking#1", "OSError: away", True)]] * 2


def _shape(event: Any) -> Any:
    if isinstance(event, Stepped):
        return event.changed(at_s=0.0)
    if isinstance(event, FunctionEnded):
        return event.changed(duration_s=0.0)  # a journal does not have it
    return event.result.output if isinstance(event, Done) else event


def test_a_run_starts_after_others_in_whatever_way_they_end(store: Store) -> None:
    agent = agent_of(store, ProviderError("gone", status=404), "Last.")
    failing, cancelled = agent.runs.submit("fails"), agent.runs.submit("waits", delay_s=LATER_S)
    deleted = agent.runs.submit("goes", delay_s=LATER_S)
    last = agent.runs.submit("last", after=[failing, cancelled.run_id, deleted])
    assert agent.runs.get(last.run_id).state == "Seeded"
    with pytest.raises(TimeoutError, match=last.run_id):
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
        agent.runs.submit("never", after="nobody")
    assert len(store.list()) == 3


def test_what_a_task_follows_is_no_run_that_has_to_end(store: Store) -> None:
    agent = agent_of(store, "One.", "Two.")
    result = agent.call("first")
    run = agent.runs.submit("second", after=result)
    Worker([agent], agent.runs.all).run(once=True)
    assert [message.text for message in run.result().dialog] == ["first", "One.", "second", "Two."]


def test_the_highest_priority_is_driven_first_and_no_delayed_one(store: Store) -> None:
    agent = agent_of(store, *["Done."] * 4)
    agent.runs.submit("later", delay_s=LATER_S, priority=9)
    for name, priority in (("low", -1), ("plain", 0), ("high", 7), ("second", 0)):
        agent.runs.submit(name, run_id=name, priority=priority)
    script: Any = agent.model
    assert Worker([agent], agent.runs.all).run(once=True) == 4
    order = [request.messages[-1].text for request in script.requests]
    assert order == ["high", "plain", "second", "low"]
    for wrong in ({"priority": 101}, {"delay_s": -1.0}, {"delay_s": float("nan")}, {"delay_s": "1"}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            agent.runs.submit("x", **wrong)


def test_those_who_wait_hear_of_an_end_from_the_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not look again for an hour."""
    agent = agent_of(store, *["Done."] * 5)
    for name in ("FIRST_LOOK_S", "LOOK_S"):
        monkeypatch.setattr(watching, name, LATER_S)

    async def waited(run: RunHandle[Any]) -> Any:
        return await run.aresult(PATIENCE_S)

    runs = [agent.runs.submit(f"task {number}") for number in range(4)]
    with ThreadPoolExecutor(8) as threads:
        waits = [threads.submit(run.result, PATIENCE_S) for run in runs]
        waits += [threads.submit(asyncio.run, waited(run)) for run in runs]
        with Working(agent, threads=2):
            assert {one.result(PATIENCE_S).output for one in waits} == {"Done."}
    agent.call("One more, which the thread that looks hears of before it ends.")


def test_who_waits_looks_less_and_less_often(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """For many who wait for one run, there is one look."""
    agent = agent_of(store)
    run = agent.runs.submit("task").run_id
    pauses_s, looks, is_enough = list[float](), list[str](), threading.Event()
    get = store.get

    def wait_for_rest(seen: int, timeout_s: float) -> int:
        pauses_s.append(timeout_s)
        if len(pauses_s) == 30:
            is_enough.set()
        threading.Event().wait(0.001)
        return seen

    def noted(run: str) -> Any:
        looks.append(run)
        return get(run)

    monkeypatch.setattr(store, "wait_for_rest", wait_for_rest)
    monkeypatch.setattr(store, "get", noted)
    futures = [agent.runs.all.watcher.watch(run, lambda _: False) for _ in range(20)]
    assert is_enough.wait(PATIENCE_S)
    for future in futures:
        future.cancel()
    assert max(pauses_s) > watching.LOOK_S / 2
    assert len(looks) <= len(pauses_s) + 1


def test_a_stream_under_changed_code_ends_as_the_result_does(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """The events before the last rest that the code cannot make are left out."""
    agent = agent_of(store, function_call("look", path="a"), function_call("erase", path="a"))
    with pytest.raises(CallSuspended):
        agent.call("tidy up", run_id="r")
    changed = Agent(Script("Done."), name="clerk", functions=[erase], store=store)
    run = changed.runs.get("r")
    assert isinstance([*run.stream()][-1], Suspended)
    assert "before entry" in caplog.text
    run.answer(Approved())
    assert Worker([changed], store).run(once=True) == 1
    events = [*run.stream()]
    assert isinstance(events[-1], Done)
    assert run.result().output == "Done."
    assert asyncio.run(_all_of(run.astream())) == events


async def _all_of(events: Any) -> list[Any]:
    return [event async for event in events]


class Loads(MemoryStore):
    """Notes which runs are loaded in an event loop, which would stand still if they were on a disk."""

    def __init__(self) -> None:
        super().__init__()
        self.in_loops: list[str] = []

    def load(self, run: str, *, after: int | None = 0) -> Any:
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            self.in_loops.append(run)
        return super().load(run, after=after)


async def test_a_stream_under_changed_code_reads_nothing_in_the_event_loop() -> None:
    store = Loads()
    agent = agent_of(store, function_call("look", path="a"), function_call("erase", path="a"))
    with pytest.raises(CallSuspended):
        await agent.acall("tidy up", run_id="r")
    run = await agent.changed(functions=[erase]).runs.aget("r")
    store.in_loops.clear()
    events = await _all_of(run.astream())
    assert isinstance(events[-1], Suspended)
    assert store.in_loops == []


def test_a_run_that_goes_away_is_told_to_those_who_wait(store: Store) -> None:
    agent = agent_of(store)
    run = agent.runs.submit("later", run_id="r", delay_s=LATER_S)
    with ThreadPoolExecutor(2) as threads:
        waits = [threads.submit(run.result, PATIENCE_S), threads.submit(lambda: [*run.stream()])]
        store.delete("r")
        for wait in waits:
            with pytest.raises(RunUnknown, match="'r'"):
                wait.result(PATIENCE_S)
    for verb in (lambda: run.state, run.result, run.cancel, lambda: agent.runs.get("r")):
        with pytest.raises(RunUnknown, match="'r'"):
            verb()


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_the_delay_of_a_test_is_of_its_clock(kind: str, tmp_path: Path) -> None:
    clock = FakeClock()
    timed = MemoryStore(clock=clock.now) if kind == "memory" else SqliteStore(tmp_path / "runs.db", clock=clock.now)
    with closing(timed):
        agent = Agent(Script("Done.", clock=clock), name="host", store=timed)
        agent.runs.submit("later", run_id="r", delay_s=LATER_S)
        ended = []
        for _ in range(2):
            Worker([agent], timed).run(once=True)
            ended.append(timed.get("r").is_ended)
            clock.advance(LATER_S)
        assert ended == [False, True]


def test_a_handle_is_one_of_this_agent(store: Store) -> None:
    agent_of(store).runs.submit("first", run_id="r")
    other = Agent(Script(), name="other", store=store)
    with pytest.raises(UsageError, match="'clerk'"):
        other.runs.get("r")


def test_a_stuck_run_says_so(store: Store) -> None:
    agent = agent_of(store, function_call("erase", path="x"))
    run = agent.runs.submit("Erase x.", run_id="r")
    Worker([agent], agent.runs.all).run(once=True)
    run.answer(Approved())
    without = agent.changed(functions=[look])  # it cannot act on the approval
    Worker([without], without.runs.all).run(once=True)
    assert run.state == "Stuck"
    for verb in (run.result, lambda: [*run.stream()]):
        with pytest.raises(ReplayError, match="'stuck'"):
            verb()


def test_a_run_that_was_retried_is_followed_through_both_attempts(store: Store) -> None:
    agent = agent_of(store, ProviderError("gone", status=404), "Done.")
    run = agent.runs.submit("x", run_id="r")
    Worker([agent], agent.runs.all).run(once=True)
    with pytest.raises(CallFailed):
        run.result()
    agent.runs.all.retry("r", by="ann")
    Worker([agent], agent.runs.all).run(once=True)
    assert run.result().output == "Done."
    events = [*run.stream()]
    assert [str(event.to) for event in events if isinstance(event, Stepped)] == ["Calling", "Failed", "Completed"]
    assert isinstance(events[-1], Done)
    followed = events[-1].result.call
    assert [str(record.state) for record in followed.states] == ["Seeded", "Calling", "Failed", "Calling", "Completed"]
    assert followed.journal.n == store.get("r").n


def test_what_no_store_keeps_is_refused(store: Store) -> None:
    agent = agent_of(store)
    with pytest.raises(UsageError, match="model"):
        agent.runs.submit("x", model=Script())  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="'delay'"):
        agent.runs.submit("x", delay=3)  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="store"):
        Agent(Script(), name="none").runs.submit("x")
    assert store.list() == []


def test_a_turn_of_a_conversation_is_submitted(store: Store) -> None:
    agent = agent_of(store, "Hello, Ann.", "Ann.")
    talk = agent.conversation("c")
    with Working(agent):
        assert talk.runs.submit("I am Ann.").result(PATIENCE_S).output == "Hello, Ann."
        run = talk.runs.submit("Who am I?")
        assert run.result(PATIENCE_S).output == "Ann."
    assert [_shape(event) for event in run.stream()][-1] == "Ann."
    assert len(talk.read()) == 4


# Another OS process

CODE = """
import sys
from fsm_agent import Agent, Worker, function
from fsm_agent.store import Runs
from fsm_agent.store import NotAsked, RunExists, RunUnknown, Store, watching
from fsm_agent.testing import Script, function_call

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
WORKS = CODE + "Worker([agent], agent.runs.all).run()\n"


def other(code: str, address: str, replies: str = "()") -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code, address, replies], stdout=subprocess.PIPE, text=True)


@pytest.mark.system
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_another_os_process_drives_and_this_one_waits_and_follows(kind: str, tmp_path: Path, request: Any) -> None:
    address = str(tmp_path / "runs.db") if kind == "sqlite" else request.getfixturevalue("postgres").url("submitted")
    agent = Agent(Script(), name="clerk", functions=[erase, look], store=address)
    run = agent.runs.submit("Look, then erase.", run_id="r")
    with closing(agent.runs.all):
        worker = other(WORKS, address, "(function_call('look', path='x'), function_call('erase', path='x'), 'Done.')")
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


@pytest.mark.parametrize("verb", ["resume", "get", "at", "fork", "replay"])
def test_a_run_of_another_agent_is_refused_by_name_and_stays_as_it_is(store: Store, verb: str) -> None:
    """Even an answer to its question is not posted."""

    @function(needs_approval=True)
    def wipe() -> str:
        """Wipe."""
        return "wiped"

    ours = Agent(Script(function_call("wipe")), functions=[wipe], name="ours", store=store)
    theirs = Agent(Script(), functions=[wipe], name="theirs", store=store)
    with pytest.raises(CallSuspended):
        ours.call("Wipe.", run_id="r")
    before = store.load("r", after=0)
    arguments = [{"ask:1.0": Approved()}] if verb == "resume" else []
    with pytest.raises(UsageError, match="'r'") as caught:
        getattr(theirs.runs, verb)("r", *arguments)
    assert "'ours'" in str(caught.value)
    assert store.load("r", after=0) == before


def test_an_answer_without_the_prompt_of_the_run_is_not_posted(store: Store) -> None:
    @function(needs_approval=True)
    def wipe() -> str:
        """Wipe."""
        return "wiped"

    tidy = Prompt("Tidy {{ place }}.", path="house/tidy", functions=[wipe])
    agent = Agent(Script(function_call("wipe"), "Done."), name="ours", store=store)
    with pytest.raises(CallSuspended):
        agent.call(tidy(place="it"), run_id="r")
    before = store.load("r", after=0)
    with pytest.raises(UsageError, match="house/tidy"):
        agent.runs.resume("r", {"ask:1.0": Approved()})
    assert store.load("r", after=0) == before
    assert agent.runs.resume("r", {"ask:1.0": Approved()}, prompt=tidy).output == "Done."


def test_a_run_that_is_resumed_without_its_prompt_again_and_again_asks_a_person(store: Store) -> None:
    """As a service without the prompt would resume it."""
    agent = Agent(Script(), name="ours", store=store)
    agent.runs.submit(Prompt("Tidy {{ place }}.", path="house/tidy")(place="it"), run_id="r")
    for _ in range(6):
        with pytest.raises((UsageError, ReplayError)):
            agent.runs.resume("r")
    assert [question.key for question in store.get("r").waits] == ["stuck"]
