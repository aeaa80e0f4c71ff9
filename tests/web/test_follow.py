"""Does each listener of a run hear the whole, whenever it comes, goes and comes again?"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from served import Letter, desk, letters, refund, sums, weather

from fsm_agent import (
    Agent,
    Approved,
    CallFailed,
    Context,
    MemoryStore,
    Prompt,
    SqliteStore,
    UsageError,
    Worker,
    function,
)
from fsm_agent.call import Returned
from fsm_agent.errors import AuthFailed, ConfigError, FlowError, ReplayError
from fsm_agent.flows import Flow, FlowSuspended, end, execute, pause, wait
from fsm_agent.flows import ask as asking
from fsm_agent.messages import (
    Done,
    Event,
    FunctionEnded,
    FunctionProgress,
    FunctionStarted,
    HistoryChanged,
    Inside,
    Message,
    ReplyCompleted,
    Stepped,
    Suspended,
    TextDelta,
)
from fsm_agent.store import AlreadyAnswered, Conflict, NotAsked, RunExists, Runs, RunUnknown
from fsm_agent.store.following import written_events
from fsm_agent.testing import FakeClock, Pieces, Script, function_call
from fsm_agent.web import ClientRequest, RunFollower

Item: TypeAlias = tuple[int, Event]


def unwrapped(event: Event) -> tuple[str, Any]:
    """The path of an event, and the event itself."""
    path = ""
    while isinstance(event, Inside):
        path, event = f"{path}/{event.path}" if path else event.path, event.event
    return path, event


def is_step(event: Event) -> bool:
    return isinstance(unwrapped(event)[1], Stepped)


LASTING = Stepped | ReplyCompleted | FunctionEnded | HistoryChanged | Suspended | Done


def lasting(items: list[Item]) -> list[Any]:
    """Return what the journal has, too; of a function that ended, what the journal knows."""
    found = []
    for steps, event in items:
        path, inner = unwrapped(event)
        if isinstance(inner, FunctionEnded):
            inner = (inner.id, inner.name, inner.text, inner.is_error)
        elif isinstance(inner, Done):
            inner = inner.result.record
        elif not isinstance(inner, LASTING):
            continue
        found.append((steps, path, inner))
    return found


async def heard(live: RunFollower, run: str, after: int = 0, most: int | None = None) -> list[Item]:
    items = live.follow(run, after=after)
    try:
        found: list[Item] = []
        async for item in items:
            found.append(item)
            if len(found) == most:
                break
        return found
    finally:
        await items.aclose()


def last(items: list[Item]) -> Any:
    return items[-1][1]


TASKS = ["hello", "the weather?", "broken", "copy", "nothing", "translate", "fail"]


@pytest.fixture
def store() -> Any:
    return MemoryStore()


@pytest.fixture(params=["memory", "sqlite"])
def each_store(request: Any, tmp_path: Path) -> Any:
    kept = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "runs.db")
    yield kept
    kept.close()


async def test_a_listener_who_waits_is_woken(store: Any) -> None:
    is_heard = asyncio.Event()

    @function
    async def look() -> str:
        """Look."""
        await is_heard.wait()
        return "seen"

    found = []
    async with RunFollower(
        Agent(Script(function_call("look"), "Seen."), functions=[look], name="desk", store=store)
    ) as live:
        async for _, event in live.follow(await live.begin("Look.")):
            found.append(event)
            if isinstance(event, FunctionStarted):
                is_heard.set()  # all that follows comes to a listener who waits for it
    assert isinstance(found[-1], Done)


async def test_a_listener_may_read_what_its_driver_has_just_written() -> None:
    """The listener finds no driver, and its look at the journal takes until one has written an entry."""

    class Slow(MemoryStore):
        may_go, is_looking, looks_left = threading.Event(), threading.Event(), 0

        def load(self, run: str, **options: Any) -> Any:
            self.looks_left -= 1
            if not self.looks_left:
                self.is_looking.set()
                self.may_go.wait()
            return super().load(run, **options)

    is_heard, slow = asyncio.Event(), Slow()

    @function(needs_approval=True)
    async def refund() -> str:
        """Refund."""
        slow.may_go.set()
        await is_heard.wait()
        return "refunded"

    async def listen() -> list[Item]:
        found: list[Item] = []
        async for item in live.follow(run, to_end=True):
            found.append(item)
            if isinstance(item[1], FunctionStarted):
                is_heard.set()
        return found

    agent = Agent(Script(function_call("refund"), "Done."), functions=[refund], name="desk", store=slow)
    async with RunFollower(agent) as live:
        run = await live.begin("refund")
        await heard(live, run)
        slow.looks_left = 2  # the first is made to begin
        listening = asyncio.create_task(listen())
        await asyncio.to_thread(slow.is_looking.wait)
        await live.answer(run, {"ask:1.0": Approved()})
        found, again = await listening, await heard(live, run)
    assert lasting(found) == lasting(again)


async def test_a_run_begun_with_a_prompt_is_driven_and_followed_with_it_and_others_without(store: Any) -> None:
    count = Prompt("How many {{ things }}?", path="shop/count", output=int)

    agent = Agent(Script("7", "Hi."), name="desk", store=store)
    other = RunFollower(agent, drives=False, prompts=[count])
    async with RunFollower(agent, prompts=[count]) as live, other:
        counted = await live.begin(count(things="kettles"))
        done = [(await heard(each, counted))[-1][1] for each in (live, other)]
        assert [event.result.output for event in done if isinstance(event, Done)] == [7, 7]
        said = (await heard(live, await live.begin("Hello")))[-1][1]
        assert isinstance(said, Done)
        assert said.result.output == "Hi."
        assert (agent.runs.get(counted).state, agent.runs.get(counted).questions) == ("Completed", ())


def test_a_follower_refuses_what_could_drive_no_run() -> None:
    """Not only once somebody has begun a run."""

    @asking("judge", str)
    def judge(d: str) -> str:
        return d

    flow = Flow("f", str, start=judge, rows=[judge.done(end("over"), do=lambda d, found: found)])
    with pytest.raises(FlowError, match="role 'judge'"):
        RunFollower(flow)
    with pytest.raises(ConfigError, match="no provider 'nope'"):
        RunFollower(Agent("nope:small", name="host"))


async def test_a_run_of_another_agent_is_neither_answered_nor_cancelled(store: Any) -> None:
    Agent(Script(), name="other", store=store).runs.submit("Hello", run_id="r")

    async with RunFollower(Agent(Script(), name="desk", store=store)) as live:
        for refused in (live.cancel("r"), live.answer("r", {"": Approved()})):
            with pytest.raises(UsageError, match="'r'"):
                await refused
    assert store.load("r", after=0).signals == ()


async def test_a_client_that_asks_again_retries_no_run_of_another_agent(store: Any) -> None:
    """A client of a flow's chat names the run."""
    other = Agent(Script(AuthFailed("no key")), name="other", store=store)
    with pytest.raises(CallFailed):
        other.call("Hello", run_id="r")
    before = store.load("r", after=0)

    async with RunFollower(sums(store)) as live:
        asked = ClientRequest("r", "", Message.of("user", "7"), {}, is_again=True)
        with pytest.raises(UsageError, match="'r'"):
            await live.take(asked)
    assert store.load("r", after=0) == before


@pytest.mark.parametrize("task", TASKS)
async def test_a_listener_hears_what_a_stream_has_and_one_that_comes_later_the_journal(
    task: str, each_store: Any
) -> None:
    async with RunFollower(desk(each_store)) as live:
        run = await live.begin(task)
        first = await heard(live, run)
        again = await heard(live, run)
    assert isinstance(last(first), Done)
    assert lasting(first) == lasting(again)
    assert [steps for steps, event in again if is_step(event)] == [*range(1, again[-1][0] + 1)]


def known_without_code(items: list[Item]) -> list[Any]:
    """Return the steps, replies and results of a journal that can be read without the code."""
    found = []
    for steps, event in items:
        path, inner = unwrapped(event)
        if isinstance(inner, FunctionEnded):
            inner = None if inner.name == "translator" else (inner.id, inner.name, inner.is_error)
        elif isinstance(inner, Stepped):
            inner = inner.trigger
        elif not isinstance(inner, ReplyCompleted):
            inner = None
        if inner is not None:
            found.append((steps, path, inner))
    return found


@pytest.mark.parametrize("task", [*TASKS, "refund", "letter", "sums"])
async def test_a_journal_is_told_as_it_was_written_with_the_same_steps(task: str) -> None:
    store = MemoryStore()

    of: Any = {"letter": letters, "sums": sums}.get(task, desk)
    async with RunFollower(of(store)) as live:
        data: dict[str, Any] = {"letter": Letter("x"), "sums": 4}
        run = await live.begin(data.get(task, task))
        await heard(live, run)
        whole = await heard(live, run)
    end = store.get(run).n
    counted = 0
    written = list[Item]()
    for event in written_events(Runs(store), run, 0, end):
        counted += is_step(event)
        written.append((counted, event))
    assert counted > 0
    assert known_without_code(written) == known_without_code(whole)
    for cut in range(end + 1):
        parts = [(0, cut), (cut, end)]
        found = [e for a, b in parts for e in written_events(Runs(store), run, a, b)]
        assert found == [event for _, event in written]


async def take_all(items: AsyncGenerator[Item], found: list[Item]) -> None:
    async for item in items:
        found.append(item)


def changed_desk(store: Any, **options: Any) -> Agent[Any, str]:
    """Return the desk by code that does not know the weather any more."""
    return Agent(Script(*["Bye."] * 100), name="desk", functions=[refund], store=store, **options)


def refunding_desk(store: Any) -> Agent[Any, str]:
    """Return a desk that looks at the weather before it refunds."""
    model = Script(function_call("weather", city="Berlin"), function_call("refund", order="A-17", euros=20), "Done.")
    return Agent(model, name="desk", functions=[weather, refund], store=store)


async def test_under_changed_code_a_run_is_told_as_written_up_to_its_rest_and_goes_on_with_the_right_numbers(
    store: Any,
) -> None:
    async with RunFollower(refunding_desk(store)) as live:
        run = await live.begin("A refund in this weather?", run_id="r")
        before = await heard(live, run)
    seen = before[-1][0]
    async with RunFollower(changed_desk(store)) as live:
        again = await heard(live, run)
        assert known_without_code(again) == known_without_code(before)
        assert isinstance(last(again), Suspended)
        assert again[-1][0] == seen
        for after in range(seen + 1):
            behind = [item for item in again if item[0] > after or (item[0] == after and not is_step(item[1]))]
            assert lasting(await heard(live, run, after)) == lasting(behind)
        assert await live.answer(run, Approved()) == seen
        ended = await heard(live, run, after=seen)
        assert isinstance(last(ended), Done)
        assert last(ended).result.output == "Bye."
        steps = [number for number, event in ended if is_step(event)]
        assert steps == [*range(seen + 1, ended[-1][0] + 1)]
        again = await heard(live, run, after=seen)
        assert known_without_code(again) == known_without_code(ended)
        assert last(again).result.record == last(ended).result.record
        whole = await heard(live, run)
        assert [number for number, event in whole if is_step(event)] == [*range(1, ended[-1][0] + 1)]


async def test_an_ended_run_that_the_code_cannot_take_is_told_as_written_with_its_end_if_that_was_kept(
    each_store: Any,
) -> None:
    store = each_store
    has_end = isinstance(store, SqliteStore)  # a store in memory keeps no snapshot of a run that has ended well

    async with RunFollower(desk(store)) as live:
        run = await live.begin("the weather?", run_id="r")
        whole = await heard(live, run)
    async with RunFollower(changed_desk(store)) as live:
        for after in (0, 2):
            found: list[Item] = []
            with nullcontext() if has_end else pytest.raises(ReplayError, match="was taken then"):
                await take_all(live.follow(run, after=after), found)
            assert known_without_code(found) == known_without_code(
                [item for item in whole if item[0] > after or (item[0] == after and not is_step(item[1]))]
            )
            assert isinstance(last(found), Done) is has_end
            assert found[-1][0] == whole[-1][0]
        with pytest.raises(NotAsked if has_end else ReplayError):
            await live.answer(run, Approved())


async def test_a_driver_of_older_code_is_followed_while_it_drives(store: Any) -> None:
    """While servers are replaced, the newer ones tell what the older ones drive."""

    begun, goes_on = asyncio.Event(), asyncio.Event()

    @function(once=True)  # so what came before is written before it runs
    async def weather(city: str) -> str:
        "Tell the weather."
        begun.set()
        await goes_on.wait()
        return "rain"

    older = Agent(
        Script(function_call("weather", city="Berlin"), "Rain."), name="desk", functions=[weather], store=store
    )
    async with RunFollower(older) as driving, RunFollower(changed_desk(store), drives=False) as live:
        run = await driving.begin("the weather?", run_id="r")
        await begun.wait()
        found: list[Item] = []
        items = live.follow(run)
        async for item in items:
            found.append(item)
            if isinstance(item[1], Stepped) and item[1].trigger == "started":
                break
        goes_on.set()
        with nullcontext() if isinstance(store, SqliteStore) else pytest.raises(ReplayError, match="was taken then"):
            await take_all(items, found)
        assert known_without_code(found) == known_without_code(await heard(driving, run))


def test_any_cut_of_any_stream_and_what_follows_is_the_whole() -> None:
    async def cut_and_follow(task: str, cut: int, is_at_once: bool) -> None:
        kept = MemoryStore()
        of: Any = {"letter": letters, "sums": sums}.get(task, desk)(kept)
        async with RunFollower(of) as live:
            data: dict[str, Any] = {"letter": Letter("x"), "sums": 4}
            run = await live.begin(data.get(task, task))
            before = await heard(live, run, most=cut)
            if not is_at_once:
                await heard(live, run)
            seen = before[-1][0]
            behind = await heard(live, run, after=seen)
            whole = await heard(live, run)
        steps = max([0, *[number for number, (_, event) in enumerate(before, 1) if is_step(event)]])
        kept_before = before[:steps]  # a client drops the pieces behind the last step
        assert lasting([*kept_before, *behind]) == lasting(whole)
        assert all(steps >= seen for steps, _ in behind)

    @settings(max_examples=25, deadline=None)
    @given(st.sampled_from([*TASKS, "letter", "sums", "refund"]), st.integers(1, 40), st.booleans())
    def check(task: str, cut: int, is_at_once: bool) -> None:
        asyncio.run(cut_and_follow(task, cut, is_at_once))

    check()


class Gate:
    """A function that runs until it is released."""

    def __init__(self) -> None:
        self.began, self.go = asyncio.Event(), asyncio.Event()
        self.is_cancelled = False

        @function
        async def stand() -> str:
            "Wait."
            self.began.set()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.is_cancelled = True
                raise
            return "went on"

        self.function = stand

    def agent(self, store: Any, *replies: Any) -> Agent[Any, str]:
        model = Script(*(replies or (function_call("stand"), Pieces("Do", "ne."))))
        return Agent(model, name="desk", functions=[self.function], store=store)


async def until(claim: Callable[[], bool]) -> None:
    """Wait for what other tasks and threads bring about; the test's own limit ends it."""
    while not claim():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


async def test_a_double_post_is_one_run_and_another_task_is_refused() -> None:
    gate = Gate()
    async with RunFollower(gate.agent(MemoryStore())) as live:
        names = await asyncio.gather(*[live.begin("Stand.", run_id="r1") for _ in range(20)])
        assert {*names} == {"r1"}
        with pytest.raises(RunExists):
            await live.begin("Sit.", run_id="r1")
        gate.go.set()
        ways = await asyncio.gather(*[heard(live, "r1") for _ in range(20)])
    assert all(lasting(way) == lasting(ways[0]) for way in ways)
    assert len([event for _, event in ways[0] if isinstance(event, FunctionEnded)]) == 1


async def test_one_that_comes_in_the_middle_of_a_reply_hears_it_from_its_beginning() -> None:
    gate = Gate()
    async with RunFollower(gate.agent(MemoryStore())) as live:
        run = await live.begin("Stand.")
        await gate.began.wait()
        items = live.follow(run)
        early = [await anext(items)]
        gate.go.set()
        early += [item async for item in items]
    text = [event.text for _, event in early if isinstance(event, TextDelta)]
    assert text == ["Do", "ne."]


@pytest.mark.parametrize("has_store", [False, True])
async def test_a_run_goes_on_when_its_last_listener_has_left(has_store: bool) -> None:
    gate = Gate()
    async with RunFollower(gate.agent(MemoryStore() if has_store else None)) as live:
        run = await live.begin("Stand.")
        items = live.follow(run)
        await anext(items)
        await gate.began.wait()
        await items.aclose()
        gate.go.set()
        assert last(await heard(live, run)).result.output == "Done."


async def test_questions_are_answered_once_and_listeners_go_on(store: Any) -> None:
    async with RunFollower(desk(store)) as live:
        run = await live.begin("refund it")
        asked = last(await heard(live, run))
        assert isinstance(asked, Suspended)
        assert [question.key for question in asked.questions] == ["ask:1.0"]
        told: list[Item] = []
        tab = asyncio.create_task(take_all(live.follow(run, to_end=True), told))
        await until(lambda: bool(told) and isinstance(last(told), Suspended))
        steps = await live.answer(run, {"ask:1.0": Approved()}, by="ann")
        with pytest.raises((AlreadyAnswered, NotAsked)):
            await live.answer(run, {"ask:1.0": Approved()}, by="bob")
        rest = await heard(live, run, after=steps)
        assert [event.text for _, event in rest if isinstance(event, FunctionEnded)] == ["refunded 20 for A-17"]
        await tab
        assert [type(event) for _, event in told if isinstance(event, Suspended | Done)] == [Suspended, Done]
        assert lasting(await heard(live, run))[-1] == lasting(rest)[-1]


async def test_two_tabs_that_answer_one_question_at_the_same_time(store: Any) -> None:
    async with RunFollower(desk(store)) as live:
        run = await live.begin("refund it")
        await heard(live, run)
        tries = [live.answer(run, {"ask:1.0": Approved()}, by=f"tab {n}") for n in range(8)]
        came = await asyncio.gather(*tries, return_exceptions=True)
        assert len([steps for steps in came if isinstance(steps, int)]) == 1
        assert all(isinstance(one, int | AlreadyAnswered | NotAsked) for one in came)
        end = last(await heard(live, run))
        assert len(end.result.function_calls) == 1


async def test_a_flow_is_answered_with_a_value(store: Any) -> None:
    async with RunFollower(letters(store)) as live:
        run = await live.begin(Letter("the delay"))
        assert last(await heard(live, run)).questions[0].kind == "answer"
        steps = await live.answer(run, "fine", by="ann")
        end = last(await heard(live, run, after=steps))
        assert end.result.output == Letter("the delay", "Dear reader", "fine")


async def test_a_closed_service_gives_its_runs_back_and_the_next_one_takes_them_up(tmp_path: Path) -> None:
    gate = Gate()
    first = RunFollower(gate.agent(str(tmp_path / "runs.db")))
    run = await first.begin("Stand.")
    listening = asyncio.create_task(heard(first, run))
    await gate.began.wait()
    await first.close()
    assert not any(isinstance(event, Done | Suspended) for _, event in await listening)
    with pytest.raises(UsageError, match="is closed"):
        await first.begin("Stand.")
    later = Gate()
    later.go.set()
    async with RunFollower(later.agent(str(tmp_path / "runs.db"), Pieces("Do", "ne."))) as second:
        await until(lambda: second.runs.store.get(run).is_ended)  # nobody follows it
        assert last(await heard(second, run)).result.output == "Done."


async def test_runs_that_workers_drive_are_followed_in_their_journal(tmp_path: Path) -> None:
    async with RunFollower(desk(str(tmp_path / "runs.db")), drives=False) as live:
        run = await live.begin("the weather?")
        listening = asyncio.create_task(heard(live, run))
        worker = Worker([other := desk(str(tmp_path / "runs.db"))], other.runs.all)
        await asyncio.to_thread(worker.run, once=True)
        found = await listening
        assert last(found).result.output.startswith("It is so:")
        assert not any(isinstance(event, TextDelta) for _, event in found)
        assert lasting(found) == lasting(await heard(live, run))


async def test_another_server_follows_what_the_first_drives(tmp_path: Path) -> None:
    gate = Gate()
    async with RunFollower(gate.agent(str(tmp_path / "runs.db"))) as one:
        run = await one.begin("Stand.")
        await gate.began.wait()
        async with RunFollower(Gate().agent(str(tmp_path / "runs.db"))) as other:
            there = asyncio.create_task(heard(other, run))
            here = asyncio.create_task(heard(one, run))
            gate.go.set()
            assert lasting(await there) == lasting(await here)


async def test_turns_of_a_conversation_come_one_after_another(store: Any) -> None:
    async with RunFollower(desk(store)) as live:
        for _ in range(2):
            run = await live.begin("hello", conversation="c1")
            end = last(await heard(live, run))
        assert len(end.result.dialog.messages) == 4
        await heard(live, await live.begin("refund", conversation="c1"))
        with pytest.raises(Conflict):
            await live.begin("hello", conversation="c1")
    async with RunFollower(letters(store)) as flows:
        with pytest.raises(UsageError, match="conversations"):
            await flows.begin(Letter("x"), conversation="c2")


async def test_a_cancelled_run_ends_though_nobody_listens(store: Any) -> None:
    async with RunFollower(desk(store)) as live:
        run = await live.begin("refund")
        assert isinstance(last(await heard(live, run)), Suspended)
        await live.cancel(run)
        await asyncio.wrap_future(live.runs.watcher.watch(run, lambda row: row.is_ended))


async def test_a_run_whose_drive_raises_is_put_off() -> None:
    clock = FakeClock()
    store = MemoryStore(clock.now)

    async with RunFollower(Agent(Script(ZeroDivisionError()), name="desk", store=store)) as live:
        run = await live.begin("Hello")
        with pytest.raises(ZeroDivisionError):
            await heard(live, run)
    due_s = store.get(run).due_s
    assert due_s is not None
    assert due_s > clock.now()


async def test_one_that_comes_after_a_drive_has_raised_hears_of_it_before_the_next_drive() -> None:
    drives, has_raised = 0, asyncio.Event()

    def broken(agent: str, extra: Any, user: str) -> Any:
        nonlocal drives
        drives += 1
        raise ZeroDivisionError

    class Warned(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            has_raised.set()

    log, warned = logging.getLogger("fsm_agent"), Warned(logging.WARNING)
    log.addHandler(warned)
    try:
        async with RunFollower(desk(), deps=broken) as live:
            run = await live.begin("Hello")
            await has_raised.wait()
            with pytest.raises(ZeroDivisionError):
                await heard(live, run)
    finally:
        log.removeHandler(warned)
    assert drives == 1


async def test_unknown_runs_and_objects_are_named() -> None:
    async with RunFollower(desk()) as live:
        with pytest.raises(RunUnknown):
            await heard(live, "nowhere")
        with pytest.raises(RunUnknown):
            await live.answer("nowhere", Approved())
        run = await live.begin("hello")
        await heard(live, run)
        with pytest.raises(NotAsked):
            await live.answer(run, Approved())
        with pytest.raises(NotAsked):
            await live.cancel(run)
    with pytest.raises(UsageError, match="object object"):
        RunFollower(object())  # type: ignore[arg-type]


async def test_a_bug_in_what_drives_a_run_reaches_its_listeners_and_the_log(caplog: pytest.LogCaptureFixture) -> None:
    bugs = iter(["a bug"])  # of the first drive; the run is driven again, which waits

    class Buggy(Script):
        async def acomplete(self, request: Any, timeout_s: float | None = None) -> Any:
            for bug in bugs:
                raise ZeroDivisionError(bug)
            await asyncio.Event().wait()

        async def astream(self, request: Any, timeout_s: float | None = None) -> AsyncGenerator[Any]:
            yield await self.acomplete(request)

    client: Any = Buggy()
    async with RunFollower(Agent(client, name="desk", store=MemoryStore())) as live:
        run = await live.begin("x")
        with pytest.raises(ZeroDivisionError):
            await heard(live, run)
    assert [record.args for record in caplog.records if record.levelno > logging.DEBUG] == [(run,)]


async def test_a_store_that_cannot_list_its_runs_is_told_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    class Away(MemoryStore):
        def list(self, *args: Any, **options: Any) -> Any:
            is_asked.set()
            raise ConnectionError("no route")

    is_asked = threading.Event()

    async with RunFollower(Agent(Script("Done."), name="desk", store=Away())) as live:
        await asyncio.to_thread(is_asked.wait, 20)
        assert isinstance(last(await heard(live, await live.begin("x"))), Done)
    (record,) = [record for record in caplog.records if record.levelno > logging.DEBUG]
    assert "desk" in record.getMessage()


async def test_a_stuck_run_is_told_as_an_error_and_not_as_a_rest(store: Any) -> None:
    @wait(bool)
    def ok(n: int) -> str:
        return "Well?"

    @execute
    def book(n: int) -> int:
        return n

    asked = Flow("asked", int, start=ok, rows=[ok.done(end("over"))], store=store)
    with pytest.raises(FlowSuspended):
        asked.call(1, run_id="r")
    Runs(store).answer("r", {"": Returned(text="true")})
    changed = Flow("asked", int, start=book, rows=[book.done(end("over"))], store=store)
    Worker([changed], store).run(once=True)

    async with RunFollower(asked) as live:
        with pytest.raises(ReplayError, match="'r'"):
            await heard(live, "r")


def hurry(within_s: float, store: Any) -> Flow[int]:
    """Return a flow that asks a person who has little time."""

    @wait(bool, within_s=within_s)
    def soon(n: int) -> str:
        return "Now?"

    return Flow("hurry", int, start=soon, rows=[soon.done(end("answered")), soon.elapsed(end("late"))], store=store)


napping = pause("napping", 0.05)
naps = Flow("naps", int, start=napping, rows=[napping.elapsed(end("awake"))])


async def test_a_question_with_little_time_is_told_before_its_time_is_over(store: Any) -> None:
    little_s = 20.0  # a driver would wait so long before it gives the run back

    async with RunFollower(hurry(little_s, store)) as live:
        found = await heard(live, await live.begin(1))
    asked = last(found)
    assert isinstance(asked, Suspended)
    assert [question.kind for question in asked.questions] == ["answer"]


@pytest.mark.system
async def test_a_question_whose_time_is_over_needs_no_listener(store: Any) -> None:
    async with RunFollower(hurry(0.1, store)) as live:
        run = await live.begin(1)
        await asyncio.wrap_future(live.runs.watcher.watch(run, lambda row: row.is_ended))
        assert isinstance(last(await heard(live, run)), Done)
    assert store.get(run).state == "late"


@pytest.mark.system
async def test_a_run_that_waits_for_a_time_alone_is_followed_to_its_end(store: Any) -> None:
    async with RunFollower(replace(naps, store=Runs(store, patience_s=0))) as live:
        runs = [await live.begin(number, run_id=f"r{number}") for number in range(20)]
        ways = await asyncio.gather(*[heard(live, run) for run in runs])
    for items in ways:
        assert [event.to for _, event in items if isinstance(event, Stepped)] == ["napping", "awake"]
        assert [type(event) for _, event in items].count(Done) == 1
        assert isinstance(last(items), Done)


async def test_functions_at_once_end_with_their_own_results_in_any_order(store: Any) -> None:
    quick_ended = asyncio.Event()

    @function
    async def slow(word: str) -> str:
        "End last."
        await quick_ended.wait()
        return f"slow {word}"

    @function
    async def quick(word: str) -> str:
        "End first."
        quick_ended.set()
        return f"quick {word}"

    asked = [function_call("slow", word="a"), function_call("quick", word="b"), function_call("slow", word="c")]
    ended = {("1.0", "slow", "slow a"), ("1.1", "quick", "quick b"), ("1.2", "slow", "slow c")}

    async with RunFollower(Agent(Script(asked, "Done."), name="desk", functions=[slow, quick], store=store)) as live:
        run = await live.begin("Do it.")
        for items in (await heard(live, run), await heard(live, run)):
            found = [event for _, event in items if isinstance(event, FunctionEnded)]
            assert found[0].name == "quick"
            assert len(found) == 3
            assert {(event.id, event.name, event.text) for event in found} == ended
        written = written_events(live.runs, run, 0, live.runs.store.get(run).n)
        told = [event for event in written if isinstance(event, FunctionEnded)]
        assert told == [event.changed(duration_s=0.0) for event in found]


async def test_a_run_that_was_left_behind_is_found_behind_runs_of_others(store: Any) -> None:
    agent = Agent(Script("Done."), name="desk", store=store)
    for name in ("left", *map(str, range(120))):
        agent.runs.submit("Go.", run_id=name, service="live")
        if name != "left":
            store.claim("another", for_s=600, run=name)

    async with RunFollower(agent) as live:
        await asyncio.wrap_future(live.runs.watcher.watch("left", lambda row: row.is_ended))


class TestTheQueueOfWorkers:
    """A service continues the runs that it has begun, and no others."""

    async def test_it_takes_up_what_it_has_left_behind_alone(self, each_store: Any) -> None:
        agent = Agent(Script(*["Done."] * 9), name="desk", store=each_store)
        for name, service in {"job": "", "left": "live", "other": "api"}.items():
            agent.runs.submit("Go.", run_id=name, service=service)

        async with RunFollower(agent) as live:
            await asyncio.wrap_future(live.runs.watcher.watch("left", lambda row: row.is_ended))
            await heard(live, await live.begin("Go.", run_id="own"))
        assert {run.id: run.is_ended for run in each_store.list()} == {
            "job": False,
            "other": False,
            "left": True,
            "own": True,
        }
        assert {run.id: (run.service, run.n) for run in each_store.list(ended=False)} == {
            "job": ("", 0),
            "other": ("api", 0),
        }

    async def test_what_is_followed_is_not_driven(self, each_store: Any) -> None:
        agent = Agent(Script(*["Done."] * 9), name="desk", store=each_store)
        agent.runs.submit("Go.", run_id="job")

        async with RunFollower(agent) as live:
            listener = asyncio.ensure_future(heard(live, "job"))
            await heard(live, await live.begin("Go.", run_id="own"))
            assert each_store.get("job").n == 0
            await asyncio.to_thread(Worker([agent], live.runs).run, once=True)
            assert isinstance(last(await listener), Done)

    async def test_its_deps_are_not_those_of_others(self, each_store: Any) -> None:
        @function
        def whose(context: Context[Any]) -> str:
            "Tell whose it is."
            return str(context.deps)

        model = Script(
            by={"chat": Script(function_call("whose"), "Done."), "job": Script(function_call("whose"), "Done.")}
        )
        agent = Agent(model, functions=[whose], name="desk", store=each_store)
        agent.runs.submit("job", run_id="job", extra={"tenant": "ann"})

        async with RunFollower(agent, deps="the chat's") as live:
            await heard(live, await live.begin("chat", run_id="chat"))
            worker = Worker([agent], live.runs, deps=lambda name, extra, user: extra["tenant"])
            await asyncio.to_thread(worker.run, once=True)
        told = {run: agent.runs.resume(run).function_calls[0].result for run in ("chat", "job")}
        assert told == {"chat": "the chat's", "job": "ann"}


class TestMemory:
    """Without a store, memory is bounded: the conversations that have rested longest are forgotten."""

    @pytest.mark.parametrize(("limit", "most"), [("kept_runs", 6), ("kept_bytes", 20_000)])
    async def test_runs_and_turns(self, limit: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(RunFollower, limit, most)

        async with RunFollower(Agent(Script(*["Done."] * 99), name="desk")) as live:
            for n in range(30):
                await heard(live, await live.begin("x" * 3_000, conversation=f"c{n // 2}"))
            kept = [run.id for run in live.runs.store.list()]
            assert 1 < len(kept) <= 6
            assert live.runs.store.head("c14").run in kept
            assert live.runs.store.head("c0").version == 0
            assert isinstance(last(await heard(live, await live.begin("Again.", conversation="c0"))), Done)

    async def test_a_conversation_stays_while_its_turn_is_driven(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(RunFollower, "kept_runs", 2)

        may_go = asyncio.Event()

        @function
        async def look() -> str:
            """Look."""
            await may_go.wait()
            return "seen"

        model = Script(by={"Look.": Script(function_call("look"), "Seen."), "Go.": Script(*["Done."] * 9)})
        async with RunFollower(Agent(model, functions=[look], name="desk")) as live:
            long = await live.begin("Look.", conversation="c")
            for n in range(5):
                await heard(live, await live.begin("Go.", conversation=f"c{n}"))
            assert live.runs.store.head("c").run == long
            may_go.set()
            assert isinstance(last(await heard(live, long)), Done)

    async def test_questions_that_were_not_answered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(RunFollower, "kept_runs", 3)

        async with RunFollower(desk()) as live:
            runs: list[str] = []
            for n in range(8):
                runs.append(await live.begin("refund", conversation=f"d{n}"))
                assert isinstance(last(await heard(live, runs[-1])), Suspended)
            assert len(live.runs.store.list()) <= 3
            with pytest.raises(RunUnknown):
                await live.answer(runs[0], {"ask:1.0": Approved()})


class TestASlowListener:
    """What a listener has missed is bounded: pieces are dropped, steps and replies never."""

    async def rest_of(self, live: RunFollower, run: str) -> list[Item]:
        """What a listener hears that reads its second event when the run has ended."""
        items = live.follow(run)
        first = await anext(items)
        await heard(live, run)
        return [first, *[item async for item in items]]

    async def test_gets_long_replies_in_one_piece(self) -> None:
        def long(request: Any) -> Pieces:
            return Pieces(*["x"] * 5_000)

        writer = Agent(Script(*[long] * 2), name="writer")

        model = Script(function_call("writer", task="a"), function_call("writer", task="b"), "Done.")
        async with RunFollower(Agent(model, name="desk", functions=[writer], store=MemoryStore())) as live:
            found = await self.rest_of(live, await live.begin("Go."))
        inner = [unwrapped(event)[1] for _, event in found]
        replies = [event.reply.message.text for event in inner if isinstance(event, ReplyCompleted)]
        assert replies.count("x" * 5_000) == 2
        assert len([event for event in inner if isinstance(event, TextDelta)]) < 9_000

    async def test_gets_only_the_latest_of_progress(self) -> None:
        @function
        def work(context: Context[Any]) -> str:
            "Work."
            for n in range(500):
                context.emit(n)
            return "done"

        agent = Agent(Script(function_call("work"), "Done."), name="desk", functions=[work], store=MemoryStore())
        async with RunFollower(agent) as live:
            found = await self.rest_of(live, await live.begin("Go."))
        told = [event.data for _, event in found if isinstance(event, FunctionProgress)]
        assert told[-1] == 499
        assert len(told) < 200
