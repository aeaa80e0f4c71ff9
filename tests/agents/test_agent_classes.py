"""Is an agent what its class says, without an explicit call of the constructor?"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from fsm_agent import (
    Agent,
    AgentBase,
    CallFailed,
    CallSuspended,
    ConfigError,
    Context,
    Limits,
    Prompt,
    ProviderError,
    UsageError,
    function,
)
from fsm_agent.agents import AsyncAgentBase
from fsm_agent.call import Reason
from fsm_agent.clients import FallbackClient, RateLimit, RateLimitedClient
from fsm_agent.messages import Reply, Usage
from fsm_agent.store import MemoryStore
from fsm_agent.testing import Script, function_call, registries


@pytest.fixture(autouse=True)
def _forget():
    with registries():
        yield


class Report(BaseModel):
    text: str
    degrees: float = Field(ge=-90, le=60)


@function
def measure(context: Context[float], city: str) -> float:
    """Measure the temperature of a city."""
    return context.deps + len(city)


class Teller(AgentBase[Report], register=False):
    agent_type = "teller"
    expertise = "You tell the weather of cities, as it is now and will be tomorrow, with what the function measures."
    capabilities = ("weather", "forecasts")
    prompt = Prompt("The weather in {{ task }}, in {{ unit }}?", path="teller/task")
    functions = (measure,)
    output = Report


class AsyncTeller(AsyncAgentBase[Report], register=False):
    agent_type = "teller"
    expertise = Teller.expertise
    prompt = Teller.prompt
    functions = (measure,)
    output = Report


class Steps:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str]] = []

    def on_stepped(self, event: Any) -> None:
        self.seen.append((event.trigger, event.source, event.to))


REPLIES = (
    function_call("measure", city="Berlin"),
    '{"text": "Hot.", "degrees": 99}',
    '{"text": "Mild.", "degrees": 11}',
)


def test_without_a_call_it_asks_its_sub_agent_sync_and_async_alike():
    scripts, traces, answers = [Script(*REPLIES), Script(*REPLIES)], [], []
    for index, kind in enumerate((Teller, AsyncTeller)):
        steps = Steps()
        agent = kind(client=scripts[index], hooks=[steps])
        task = agent.prompt(task="Berlin", unit="°C")
        answers.append(agent(task, deps=5.0) if index == 0 else asyncio.run(agent.acall(task, deps=5.0)).output)
        traces.append(steps.seen)
    assert answers == [Report(text="Mild.", degrees=11)] * 2
    assert traces[0] == traces[1]
    assert [trigger for trigger, *_ in traces[0]] == [
        "begun",
        "functions_asked",
        "returned",
        "parse_failed",
        "answered",
    ]
    assert [r.messages for r in scripts[0].requests] == [r.messages for r in scripts[1].requests]
    first, second = scripts[0].requests[0], scripts[0].requests[1]
    assert [message.text for message in first.messages] == [Teller.expertise, "The weather in Berlin, in °C?"]
    assert second.messages[-1].parts[0].text == "11.0"


def test_it_says_what_it_is():
    assert Teller.description == Teller.expertise[:100]
    assert Teller.capabilities == ("weather", "forecasts")
    assert Teller(client=Script()).name == "teller"

    class Short(Teller, register=False):
        description = "Weather."

    class Shorter(Short, register=False):
        expertise = "You tell it in a word."

    assert (Short.description, Shorter.description) == ("Weather.", "You tell it in a word.")


def test_its_client_is_that_of_the_configuration_or_the_one_that_is_given():
    assert Teller(model="openai:m").agents["teller"].client.name == "openai:m"
    script = Script()
    assert Teller(client=script, model="openai:m").agents["teller"].client is script


def test_a_script_takes_the_place_of_its_model_as_in_any_agent():
    script, teller = Script("Mild."), Teller(model="openai:m", limits={"rounds": 1})
    changed = teller.changed(model=script)
    assert (type(changed), changed.client, changed.limits.rounds) == (Teller, script, 1)
    assert changed.changed(limits={"rounds": 2}).client is script
    with pytest.raises(UsageError, match=r"client.*model"):
        teller.changed(model=script, client=Script())


def test_availability_is_a_matter_of_keys_and_addresses(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    teller = Teller(model="openai:m")
    assert not teller.is_available
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        teller.check_available()
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    assert teller.is_available
    assert Teller(client=Script()).is_available
    assert not Teller(model="nobody:m").is_available
    assert not Teller(model="local:/no/such.gguf").is_available


def test_a_client_of_others_is_available_if_one_of_them_is(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    limited = RateLimitedClient("anthropic:m", RateLimit(requests_per_minute=1))
    both = Teller(client=FallbackClient(["openai:m", limited]))
    assert not Teller(client=limited).is_available
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        both.check_available()
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-none")
    assert Teller(client=limited).is_available
    assert both.is_available


def test_sub_agents_take_in_code_everything_that_an_agent_takes():
    asked: list[str] = []

    class Paper(AgentBase, register=False):
        agent_group = {  # noqa: RUF012
            "author": {"functions": [measure], "approve": lambda call: asked.append(call.name) or True},
            "editor": {"output": Report, "limits": Limits(rounds=1, recalls=0), "system": "You edit."},
        }

        def call(self, task: str, **kwargs: Any) -> Report:
            draft = self.agents["author"].call(task, deps=1.0).output
            return self.agents["editor"].call(draft).output

    script = Script(function_call("measure", city="Rome"), "Warm.", '{"text": "Warm.", "degrees": 20}')
    paper = Paper({"limits": {"recalls": 5}, "agent_configs": {"editor": {"system": "You shorten."}}}, client=script)
    assert paper("Rome?").text == "Warm."
    assert asked == ["measure"]
    assert paper.agents["editor"].limits == Limits(rounds=1, recalls=5)
    assert script.requests[-1].messages[0].text == "You shorten."


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({}, "Empty.*answer"),
        ({"agent_group": ("a", "b")}, "2 sub-agents.*answer"),
    ],
)
def test_what_could_do_nothing_is_abstract(attributes, says):
    with pytest.raises(TypeError, match=says):
        type("Empty", (AgentBase,), attributes)(client=Script())


@pytest.mark.parametrize(
    "prompt",
    [Prompt("Hello {{ name }}", path="x/y"), "no/such", "nosuch", 3],
    ids=["no task", "path", "name", "int"],
)
def test_a_prompt_that_cannot_be_used_is_refused(prompt):
    kind = type("Wrong", (AgentBase,), {"prompt": prompt})
    with pytest.raises(ConfigError, match="prompt"):
        kind(client=Script())


def echo(request: Any) -> str:
    task: str = request.messages[-1].text
    if task == "3":
        raise ProviderError("no such model", status=404)
    return task * 2


class Echo(AgentBase[str], register=False):
    expertise = "You repeat."


class AsyncEcho(AsyncAgentBase[str], register=False):
    expertise = "You repeat."


TASKS = [str(index) for index in range(9)]


def results_of(kind: Any, **options: Any) -> Any:
    agent = kind(client=Script(*[echo] * len(TASKS)))
    if kind is AsyncEcho or options.pop("under_asyncio", False):
        return asyncio.run(agent.amap(TASKS, **options))
    return agent.map(TASKS, **options)


WAYS = [(Echo, {}), (Echo, {"under_asyncio": True}), (AsyncEcho, {})]


class TestMany:
    @pytest.mark.parametrize(
        ("kind", "way", "concurrency"),
        [(Echo, {}, 1), (Echo, {}, 50), (Echo, {"under_asyncio": True}, 3), (AsyncEcho, {}, 3)],
    )
    def test_results_are_in_order_and_one_failure_loses_nothing(self, kind, way, concurrency):
        told: list[Any] = []
        results = results_of(kind, **way, concurrency=concurrency, progress=lambda *done: told.append(done))
        assert [item.output for item in results] == ["00", "11", "22", None, "44", "55", "66", "77", "88"]
        (failed,) = results.failed
        assert (failed.index, failed.task, type(failed.error)) == (3, "3", CallFailed)
        assert [item.index for item in results.done] == [0, 1, 2, *range(4, 9)]
        assert told == [(count, 9) for count in range(1, 10)]
        with pytest.raises(ExceptionGroup) as caught:
            _ = results.outputs
        assert caught.value.exceptions == (failed.error,)
        assert "3" in failed.error.__notes__[0]
        assert results[4:].outputs == ["44", "55", "66", "77", "88"]

    @pytest.mark.parametrize(("kind", "way"), WAYS)
    def test_the_first_failure_ends_them_when_asked(self, kind, way):
        script = Script(*[echo] * 4)
        agent = kind(client=script)
        options: Any = {"concurrency": 1, "fail_fast": True}

        def do() -> Any:
            is_async = kind is AsyncEcho or way
            return asyncio.run(agent.amap(TASKS, **options)) if is_async else agent.map(TASKS, **options)

        with pytest.raises(CallFailed):
            do()
        assert len(script.requests) == 4

    @pytest.mark.parametrize("is_async", [False, True])
    def test_the_first_failure_interrupts_the_others_which_may_go_on(self, is_async: bool):
        begun, ended, store = threading.Event(), list[str](), MemoryStore()

        class Model(Script):
            async def astream(self, request: Any, *, timeout_s: float | None = None) -> Any:
                yield await self.acomplete(request)

            async def acomplete(self, request: Any, *, timeout_s: float | None = None) -> Reply:
                if request.messages[-1].text == "bad":
                    await asyncio.to_thread(begun.wait, 20)
                    raise KeyError("a fault of the client")
                begun.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.append(request.messages[-1].text)
                raise AssertionError

        agent = Agent(Model(), name="a", store=store)
        options: Any = {"concurrency": 2, "fail_fast": True}
        with pytest.raises(KeyError):
            asyncio.run(agent.amap(["bad", "long"], **options)) if is_async else agent.map(["bad", "long"], **options)
        assert ended == ["long"]
        assert [(run.is_ended, run.holder, run.due_s is None) for run in store.list()] == [(False, None, False)] * 2

    def test_so_many_are_done_at_a_time_and_no_more(self):
        running, most, meeting, lock = 0, 0, threading.Barrier(3, timeout=20), threading.Lock()

        class Meeting(AgentBase[int], register=False):
            agent_type = "meeting"

            def answer(self, task: str) -> int:
                nonlocal running, most
                with lock:
                    running += 1
                    most = max(most, running)
                meeting.wait()
                with lock:
                    running -= 1
                return int(task)

        assert Meeting(client=Script()).map(TASKS, concurrency=3).outputs == [*range(9)]
        assert most == 3

    def test_tasks_are_taken_as_there_is_room(self):
        taken: list[int] = []

        class Once(AsyncAgentBase[int], register=False):
            agent_type = "once"

            async def answer(self, task: str) -> int:
                assert len(taken) <= int(task) + 2
                return int(task)

        def tasks():
            for index in range(20):
                taken.append(index)
                yield str(index)

        told: list[Any] = []
        results = asyncio.run(
            Once(client=Script()).amap(tasks(), concurrency=2, progress=lambda *done: told.append(done))
        )
        assert results.outputs == [*range(20)]
        assert told[-1] == (20, None)

    def test_progress_that_must_be_awaited_is_refused(self):
        async def awaited(done: int, total: int | None) -> None: ...

        for way in ({}, {"under_asyncio": True}):
            with pytest.raises(UsageError, match="progress"):
                results_of(Echo, **way, progress=awaited)

    @pytest.mark.parametrize("way", [{}, {"under_asyncio": True}])
    def test_a_bar_is_shown_on_stderr(self, capsys, way):
        assert len(results_of(Echo, **way, progress=True)) == 9
        printed = capsys.readouterr()
        assert "9/9" in printed.err
        assert not printed.out

    def test_cancelling_it_cancels_the_tasks(self):
        cancelled: list[int] = []

        class Waiting(AsyncAgentBase[int], register=False):
            agent_type = "waiting"

            async def answer(self, task: str) -> int:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    cancelled.append(int(task))
                    raise
                return int(task)

        async def main() -> None:
            everything = asyncio.ensure_future(Waiting(client=Script()).amap(TASKS[:5], concurrency=2))
            for _ in range(50):
                await asyncio.sleep(0)
            everything.cancel()
            with pytest.raises(asyncio.CancelledError):
                await everything

        asyncio.run(main())
        assert cancelled == [0, 1]

    @pytest.mark.parametrize(
        ("tasks", "options", "name"),
        [
            ("a text", {}, "tasks"),
            (["x"], {"concurrency": 0}, "concurrency"),
            (["x"], {"progress": 5}, "progress"),
            (["x"], {"run_id": "r"}, "run_id"),
        ],
    )
    def test_wrong_arguments_are_named(self, tasks, options, name):
        with pytest.raises(UsageError, match=name):
            Echo(client=Script()).map(tasks, **options)

    def test_the_tokens_of_all_tasks_are_counted_also_of_those_that_failed(self):
        replies = [Reply.of(text).changed(usage=Usage(input_tokens=7, output_tokens=2)) for text in ("1", "x")]
        model = Script(by={"one": replies[0], "other": replies[1]})
        results = Agent(model, output=int, limits=Limits(parse_retries=0)).map(["one", "other"])
        assert len(results.failed) == 1
        assert (results.usage.input_tokens, results.usage.output_tokens) == (14, 4)

    def test_no_task_is_no_result(self):
        assert Echo(client=Script()).map([]).outputs == []


class Spent(AgentBase[str], register=False):
    agent_type = "spent"
    agent_group = ("one",)

    def answer(self, task: str) -> str:
        self.agents["one"].call(task)
        raise LookupError("no such letter")


class AsyncSpent(Spent, register=False):
    async def answer(self, task: str) -> str:  # type: ignore[override]
        await self.agents["one"].acall(task)
        raise LookupError("no such letter")


class WronglySpent(Spent, register=False):
    def answer(self, task: str) -> str:
        self.agents["one"].call(task)
        return 17  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("kind", "verb", "is_stored"),
    [(Spent, "call", False), (Spent, "acall", True), (AsyncSpent, "acall", False), (WronglySpent, "call", True)],
)
def test_what_an_answer_used_before_it_raised_is_counted(
    kind: type[Spent], verb: str, is_stored: bool, tmp_path: Path
) -> None:
    reply = Reply.of("Hi.").changed(usage=Usage(input_tokens=7, output_tokens=2))
    store = {"store": str(tmp_path / "runs.db")} if is_stored else {}
    agent = kind(client=Script(reply), name="spent", **store)
    with pytest.raises(CallFailed) as failed:
        agent.call("?") if verb == "call" else asyncio.run(agent.acall("?"))
    error = failed.value
    assert "'spent'" in str(error)
    assert error.reason is Reason.FUNCTION_FAILED  # no provider is at fault
    assert error.function == "spent"
    assert "model failed" not in str(error)
    assert (error.result.usage.input_tokens, error.result.usage.output_tokens) == (7, 2)
    assert error.result.usage_by_agent[""] == error.result.usage
    if kind is not WronglySpent:
        assert isinstance(error.__cause__, LookupError)
    if is_stored:
        (run,) = agent.runs.all.store.list(agent="spent")
        assert agent.runs.replay(run.id).record.usage == error.result.usage


class Found(BaseModel):
    number: str


class Nothing(BaseModel):
    """Nothing was found."""


@pytest.mark.parametrize("group", [("writer",), ("writer", "critic"), {"writer": {}}])
def test_the_output_and_the_prompt_of_a_class_with_an_answer_are_not_for_its_sub_agents(group: Any):
    class Retold(AgentBase[int], register=False):
        agent_group = group
        prompt = Prompt("Tell {{ task }}")

        def answer(self, task: str) -> int:
            return len(self.agents["writer"].call(f"Write: {task}").output)

    model = Script("four")
    assert Retold(client=model).call("me").output == 4
    assert model.requests[0].messages[-1].text == "Write: me"


class Stocked(BaseModel):
    lamps: int
    left: int = Field(default=0, exclude=True)


class Finds(AgentBase[Any], register=False):
    agent_type = "finds"
    agent_group = ("helper",)

    def answer(self, task: str) -> Found | Nothing:
        return Nothing()


class Wraps(AgentBase[Any], register=False):
    agent_type = "wraps"
    agent_group = ("helper",)

    def answer(self, task):
        return {"value": 5}


class Counts(AgentBase[Any], register=False):
    agent_type = "counts"
    agent_group = ("helper",)

    def answer(self, task: str) -> Stocked:
        return Stocked(lamps=1, left=5)


@pytest.mark.parametrize(("kind", "output"), [(Finds, Nothing()), (Wraps, {"value": 5})])
def test_what_answer_returns_is_the_output_whatever_it_looks_like(kind: type[AgentBase[Any]], output: Any):
    assert kind(client=Script()).call("?").output == output


def test_answer_may_return_a_type_of_the_function_around_its_class():
    class Weight(BaseModel):
        kilos: int

    class Weighs(AgentBase[Any], register=False):
        agent_type = "weighs"
        agent_group = ("helper",)

        def answer(self, task: str) -> Weight:
            return Weight(kilos=3)

    assert Weighs(client=Script()).call("?").output == Weight(kilos=3)


def test_what_json_would_lose_of_an_answer_is_an_error_that_says_so():
    with pytest.raises(CallFailed, match="Stocked"):
        Counts(client=Script()).call("?")


def no_order(*_: Any, **__: Any) -> Any:
    raise KeyError("order")


def no_file(*_: Any, **__: Any) -> Any:
    raise FileNotFoundError("orders.json")  # an OSError, as of a connection that is lost


@function(on_error="fail")
def look() -> str:
    """Look."""
    return str(no_order())


class Careless(AgentBase[str], register=False):
    agent_type = "careless"
    agent_group = ("one",)
    raises: Any = no_order

    def answer(self, task: str) -> str:
        return str(type(self).raises())


class Unlucky(Careless, register=False):
    raises = no_file


@function(needs_approval=True)
def erase() -> str:
    """Erase it."""
    raise NotImplementedError("it is not approved")


class Asking(AgentBase[str], register=False):
    agent_type = "asking"

    def answer(self, task: str) -> str:
        return str(Agent(Script(function_call("erase")), functions=[erase], name="eraser").call(task))


ONCE = Limits(parse_retries=0)
OWN_CODE: dict[str, tuple[Callable[[Any], Any], str, bool]] = {  # what is made, what is named, whether its line is
    "an answer": (lambda store: Careless(client=Script(), name="clerk", store=store), "KeyError", True),
    "an answer, of a file": (lambda store: Unlucky(client=Script(), name="clerk", store=store), "FileNotFound", True),
    "a check": (lambda store: Agent(Script("x"), name="clerk", check=no_file, store=store), "FileNotFound", True),
    "a parser": (
        lambda store: Agent(
            Script("x"), name="clerk", prompt=Prompt("{{ task }}", parser=no_order), limits=ONCE, store=store
        ),
        "KeyError",
        True,
    ),
    "a function": (
        lambda store: Agent(Script(function_call("look")), name="clerk", functions=[look], store=store),
        "KeyError",
        False,
    ),
}


@pytest.mark.parametrize("verb", ["call", "acall"])
@pytest.mark.parametrize("whose", OWN_CODE)
def test_an_exception_of_own_code_is_no_failure_of_a_model(whose, verb, tmp_path, caplog):
    make, kind, has_place = OWN_CODE[whose]
    agent = make(str(tmp_path / "runs.db"))
    with pytest.raises(CallFailed) as failed:
        agent.call("?", run_id="r") if verb == "call" else asyncio.run(agent.acall("?", run_id="r"))
    error = failed.value
    assert error.reason is not Reason.MODEL_FAILED
    assert kind in type(error.__cause__).__name__
    newest = json.loads([*agent.runs.all.export("r")][-1])
    for told in (str(error), caplog.text, f"{newest['steps']} {newest['why']}"):
        assert kind in told
        assert "model_failed" not in told
        assert "model failed" not in told
        assert not has_place or re.search(r"test_agent_classes\.py:\d+", told)


def test_code_in_place_of_a_model_that_meets_a_question_is_told_what_can_wait():
    agent = Asking(client=Script(), name="clerk")
    with pytest.raises(CallFailed) as failed:
        agent.call("?")
    assert "'clerk'" in str(failed.value)
    assert "approve=" in str(failed.value)
    assert "advance" not in str(failed.value)
    assert isinstance(failed.value.__cause__, CallSuspended)


def test_an_agent_around_is_told_whose_exception_it_was():
    inner = Careless(client=Script(), name="clerk")
    outer = Agent(Script(function_call("ask", task="?"), "It is down."), functions=[inner.as_function("ask", "Asks.")])
    (asked,) = outer.call("?").function_calls
    assert "KeyError" in (asked.error or "")
    assert "model failed" not in (asked.error or "")
