"""What waits under sync verbs runs in one loop; the steps, and all plain code of the user, run outside of any."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel

from fsm_agent import Agent, Context, Worker, function
from fsm_agent.flows import Flow, end, execute
from fsm_agent.functions import Function
from fsm_agent.messages import FunctionCall, PartialOutput, Reply
from fsm_agent.runtime import ResultPipeline
from fsm_agent.store import MemoryStore
from fsm_agent.testing import Script, function_call

Make = Callable[..., Agent[Any, Any]]


def two(name: str) -> Reply:
    return Reply.of(*[FunctionCall(name=name, arguments_json=f'{{"n": {n}}}') for n in (1, 2)])


def by_call(make: Make) -> None:
    make().call("Go.")


def by_stream(make: Make) -> None:
    list(make().stream("Go."))


def by_map(make: Make) -> None:
    make().map(["Go."])


def by_worker(make: Make) -> None:
    store = MemoryStore()
    agent = make(name="worker", store=store)
    agent.runs.submit("Go.", run_id="r")
    Worker([agent], store).run(threads=2, once=True)
    assert store.get("r").is_ended


def in_a_function(make: Make) -> None:
    def ask(n: int) -> str:
        """Ask."""
        return str(make(name=f"inner{n}").call("Go.").output)

    Agent(Script(two("ask"), "Done."), functions=[ask]).call("Go.")


def with_the_context(make: Make) -> None:
    def ask(context: Context) -> str:
        """Ask."""
        return str(context.call(make(name="inner"), "Go.").output)

    Agent(Script(function_call("ask"), "Done."), functions=[ask]).call("Go.")


def as_a_function(make: Make) -> None:
    Agent(Script(function_call("inner", task="Go."), "Done."), functions=[make(name="inner").as_function()]).call("Go.")


def in_a_flow(make: Make) -> None:
    @execute
    def ask(data: str) -> str:
        return str(make(name="inner").call("Go.").output)

    Flow("f", str, start=ask, rows=[ask.done(end("e"), do=lambda data, answer: answer)]).call("")


def within_a_loop(make: Make) -> None:
    thread = threading.Thread(target=lambda: by_call(make))  # `asyncio.run` of a notebook holds its own thread alone

    async def main() -> None:
        thread.start()
        await asyncio.to_thread(thread.join)

    asyncio.run(main())


everyway = pytest.mark.parametrize(
    "way",
    [by_call, by_stream, by_map, by_worker, in_a_function, with_the_context, as_a_function, in_a_flow, within_a_loop],
    ids=lambda way: way.__name__,
)


@everyway
def test_coroutine_functions_share_what_belongs_to_a_loop(way: Callable[[Make], None]) -> None:
    lock, loops, errors = asyncio.Lock(), list[Any](), list[Any]()

    async def use(n: int) -> str:
        """Use what only one may use at a time, such as a connection."""
        loops.append(asyncio.get_running_loop())
        try:
            async with lock:
                await asyncio.sleep(0)
        except Exception as error:
            errors.append(error)
        return "used"

    for _ in range(2):
        way(lambda **options: Agent(Script(two("use"), two("use"), "Done."), functions=[use], **options))
    assert errors == []
    assert len(loops) >= 8
    assert len(set(loops)) == 1


@everyway
def test_plain_code_of_the_user_runs_where_no_loop_runs(way: Callable[[Make], None]) -> None:
    """As a database that blocks demands, such as the models of Django."""
    seen, wrong = set[str](), set[str]()

    def at(what: str) -> None:
        seen.add(what)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        wrong.add(what)

    def noting(what: str, value: Any = None) -> Callable[..., Any]:
        def note(given: Any, *_: Any) -> Any:
            at(what)
            return given if value is None else value

        return note

    class Answer(BaseModel):
        n: Annotated[int, AfterValidator(noting("validator"))]

    class Hook:
        def on_stepped(self, event: Any) -> None:
            at("hook")

    @function(needs_approval=noting("predicate", True), format=noting("format"))
    def one(n: Annotated[int, AfterValidator(noting("argument"))]) -> str:
        """Work."""
        at("function")
        return "1"

    def quick(n: int) -> str:
        """Work."""
        at("quick function")
        return "1"

    async def later() -> str:
        """Work."""
        return "1"

    async def check(answer: Any) -> Any:
        await asyncio.sleep(0)
        return answer.model_copy(update={"n": 2})

    def make(**options: Any) -> Agent[Any, Any]:
        return Agent(
            Script(function_call("one", n=1), two("one"), two("quick"), function_call("later"), '{"n": 1}'),
            output=Answer,
            functions=[one, Function.of(quick, blocking=False), later],
            check=check,
            hooks=[Hook()],
            approve=noting("approver", True),
            results=ResultPipeline(processor=noting("pipeline")),
            **options,
        )

    way(make)
    assert wrong == set()
    names = {"validator", "hook", "predicate", "format", "argument", "function", "quick function", "approver"}
    assert seen == names | {"pipeline"}


def test_a_part_of_an_output_is_validated_where_no_loop_runs() -> None:
    homes: list[bool] = []

    def note(value: int) -> int:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            homes.append(True)
        else:
            homes.append(False)
        return value

    class Answer(BaseModel):
        numbers: list[Annotated[int, AfterValidator(note)]]

    events = list(Agent(Script('{"numbers": [1, 2, 3]}'), output=Answer).stream("Go."))
    assert sum(isinstance(event, PartialOutput) for event in events) >= 2
    assert len(homes) > 3
    assert all(homes)


def look() -> str:
    """Look."""
    return "seen"


@pytest.mark.parametrize("way", [by_call, by_stream])
def test_an_agent_call_may_be_made_at_any_line_of_another(way: Callable[[Make], None]) -> None:
    """As by a handler of a signal, or a destructor."""
    seen = set[tuple[object, int]]()
    answers = set[str]()

    def at_line(frame: FrameType, event: str, _: object) -> Any:
        if "runtime" not in Path(frame.f_code.co_filename).parts:
            return None
        if event == "line" and (frame.f_code, frame.f_lineno) not in seen:
            seen.add((frame.f_code, frame.f_lineno))
            answers.add(Agent(Script("Beside.")).call("Go.").output)
        return at_line

    before = sys.gettrace()
    sys.settrace(at_line)
    try:
        way(lambda: Agent(Script(function_call("look"), "Done."), functions=[look]))
    finally:
        sys.settrace(before)
    assert answers == {"Beside."}
    assert len(seen) > 100
