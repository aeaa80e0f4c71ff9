"""Do agents, conversations, flows and orchestrators have the same verbs with the same meaning, stored and not?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import (
    Agent,
    AgentBase,
    Approved,
    CallFailed,
    CallSuspended,
    Conversation,
    Denied,
    Done,
    MemoryStore,
    ProviderError,
    UsageError,
    Worker,
    function,
)
from fsm_agent.call import snapshot
from fsm_agent.errors import OutcomeError
from fsm_agent.flows import Flow, FlowFailed, FlowSuspended, end
from fsm_agent.flows import ask as asks
from fsm_agent.flows.orchestrator import Orchestrator, OrchestratorConfig, Step, Strategy
from fsm_agent.store import RunUnknown
from fsm_agent.testing import Script, function_call


@function(needs_approval=True)
def erase(path: str) -> str:
    """Erase a file."""
    return f"{path} is gone"


class Shouter(AgentBase[str], register=False):
    expertise = "You shout."
    functions = (erase,)


class Pair(AgentBase[str], register=False):
    agent_group = ("one", "other")

    def answer(self, task: str) -> str:
        first = self.agents["one"].call(task).output
        return self.agents["other"].call(first).output


class AsyncPair(Pair, register=False):
    async def answer(self, task: str) -> str:  # type: ignore[override]
        first = (await self.agents["one"].acall(task)).output
        return (await self.agents["other"].acall(first)).output


@dataclass(frozen=True)
class Data:
    text: str = "hi"


def flow_of(model: Any, **options: Any) -> Flow[Data]:
    @asks(Agent(model, name="clerk", functions=[erase]))
    def asking(d: Data) -> str:
        return d.text

    rows = [
        asking.done(end("done"), do=lambda d, text: Data(text)),
        asking.failed(end("broken", failed="the clerk could not")),
    ]
    return Flow("asking", Data, start=asking, rows=rows, **options)


def orchestrator_of(model: Any, **options: Any) -> Orchestrator:
    worker = Agent(model, name="worker", functions=[erase])
    plan = Strategy("goal", (Step("a", "shout", "{{ task }}"),))
    config = OrchestratorConfig(max_step_remediations=1)
    planner = Agent(Script(), name="planner")
    return Orchestrator([worker], strategy=plan, config=config, planner=planner, **options)


def with_store(cls: Any, model: Any, **options: Any) -> Any:
    """Return an agent of a class; its store is an attribute, as a configuration names only files."""
    return type(cls.__name__, (cls,), options, register=False)(client=model, name="shout")


@dataclass(frozen=True)
class Kind:
    make: Callable[..., Any]
    task: Any
    output: Callable[[str], Any]  # what a reply comes to
    error: type[Exception]
    suspended: type[Exception]


AGENT = {"task": "hi", "output": str, "error": CallFailed, "suspended": CallSuspended}
KINDS = {
    "Agent": Kind(lambda model, **o: Agent(model, name="shout", functions=[erase], **o), **AGENT),
    "AgentBase": Kind(lambda model, **o: with_store(Shouter, model, **o), **AGENT),
    "AgentBase that answers": Kind(lambda model, **o: with_store(Pair, model, **o), **AGENT),
    "AgentBase that answers async": Kind(lambda model, **o: with_store(AsyncPair, model, **o), **AGENT),
    "Conversation": Kind(
        lambda model, store=None: Agent(
            model, name="shout", functions=[erase], store=store or MemoryStore()
        ).conversation("c"),
        **AGENT,
    ),
    "Flow": Kind(flow_of, Data(), Data, FlowFailed, FlowSuspended),
    "Orchestrator": Kind(orchestrator_of, "hi", str, FlowFailed, FlowSuspended),
}


def streamed(one: Any, task: Any, **options: Any) -> Any:
    *_, last = one.stream(task, **options)
    assert isinstance(last, Done)
    return last.result


async def astreamed(one: Any, task: Any, **options: Any) -> Any:
    events = [event async for event in one.astream(task, **options)]
    assert isinstance(events[-1], Done)
    return events[-1].result


VERBS: dict[str, Callable[..., Any]] = {
    "call": lambda one, task, **o: one.call(task, **o),
    "acall": lambda one, task, **o: asyncio.run(one.acall(task, **o)),
    "run": lambda one, task, **o: one.run(one.prepare(task, **o)),
    "arun": lambda one, task, **o: asyncio.run(one.arun(one.prepare(task, **o))),
    "stream": streamed,
    "astream": lambda one, task, **o: asyncio.run(astreamed(one, task, **o)),
    "stream of a seed": lambda one, task, **o: streamed(one, one.prepare(task, **o)),
    "astream of a seed": lambda one, task, **o: asyncio.run(astreamed(one, one.prepare(task, **o))),
    "map": lambda one, task, **o: one.map([task], **o)[0].result,
    "amap": lambda one, task, **o: asyncio.run(one.amap([task], **o))[0].result,
}


@pytest.fixture(params=["Agent", "AgentBase that answers", "Conversation", "Flow", "Orchestrator"])
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


def model_for(kind: Kind, *replies: Any) -> Script:
    """Return a model whose last reply comes as often as the kind asks."""
    asks_twice = kind in (KINDS["AgentBase that answers"], KINDS["AgentBase that answers async"])
    return Script(*replies, *([replies[-1]] if asks_twice else []))


@pytest.mark.parametrize(
    ("name", "verb"),
    [
        *[(name, "call") for name in KINDS],
        *[(name, verb) for name in ("Agent", "Flow") for verb in [*VERBS][1:]],
        *[("AgentBase that answers async", "acall"), ("Conversation", "astream"), ("Orchestrator", "amap")],
    ],
)
def test_each_verb_of_each_kind_gives_a_result(name: str, verb: str, tmp_path: Path) -> None:
    """Every other one with a store."""
    kind = KINDS[name]
    is_stored = ([*KINDS].index(name) + [*VERBS].index(verb)) % 2 == 1
    stored = {"store": str(tmp_path / "runs.db")} if is_stored else {}
    one = kind.make(model_for(kind, "HI"), **stored)
    result = VERBS[verb](one, kind.task, extra={"ticket": 7})
    assert result.output == kind.output("HI")
    assert result.state in ("Completed", "done", "completed")
    assert result.ending is not None
    assert result.extra == {"ticket": 7}
    assert result.usage == result.record.total_usage
    assert result.trace[0].source == "Seeded"


@pytest.mark.parametrize("verb", ["call", "acall", "map"])
def test_without_an_output_each_verb_raises_and_the_error_has_the_result(kind: Kind, verb: str) -> None:
    gone = ProviderError("no such model", status=404)
    one = kind.make(Script(gone))
    if "map" in verb:
        result = VERBS[verb](one, kind.task)
    else:
        with pytest.raises(kind.error) as failed:
            VERBS[verb](one, kind.task)
        result = failed.value.result  # type: ignore[attr-defined]
    assert result.ending is not None
    assert result.state in ("Failed", "broken", "step_spent")


SUSPENDING = ("Agent", "Conversation", "Flow", "Orchestrator")  # an answer cannot wait for a person: test_roles
suspending = pytest.mark.parametrize("name", SUSPENDING)


@pytest.mark.parametrize(
    ("name", "resumes"),
    [*[(name, "resume") for name in SUSPENDING], ("Agent", "aresume"), ("Flow", "aresume"), ("Flow", "worker")],
)
def test_a_run_that_waits_is_resumed_and_replayed(name: str, resumes: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    one = kind.make(Script(function_call("erase", path="x"), "HI"), store=str(tmp_path / "runs.db"))
    with pytest.raises(kind.suspended) as caught:
        one.call(kind.task)
    run = caught.value.run_id  # type: ignore[attr-defined]
    (question,) = one.runs.all.store.load(run).run.waits
    answers = {question.key: Approved()}
    if resumes == "worker":
        one.runs.all.answer(run, answers)
        runnable = one.agent if isinstance(one, Conversation) else one
        assert Worker([runnable], one.runs.all).run(once=True) == 1
        result = one.runs.resume(run)
    elif resumes == "aresume":
        result = asyncio.run(one.runs.aresume(run, answers, by="ann"))
    else:
        result = one.runs.resume(run, answers, by="ann")
    assert result.output == kind.output("HI")
    assert one.runs.replay(run).record == result.record
    with pytest.raises(TypeError, match="'dps'"):
        one.runs.resume(run, dps=3)


@pytest.mark.parametrize("is_async", [False, True], ids=["submit", "asubmit"])
def test_each_kind_is_submitted_driven_by_a_worker_and_followed(kind: Kind, is_async: bool, tmp_path: Path) -> None:
    one = kind.make(model_for(kind, "HI"), store=str(tmp_path / "runs.db"))
    runnable = one.agent if isinstance(one, Conversation) else one
    options: dict[str, Any] = {"run_id": "r", "extra": {"ticket": 7}, "priority": 3}
    run = asyncio.run(one.runs.asubmit(kind.task, **options)) if is_async else one.runs.submit(kind.task, **options)
    assert one.runs.submit(kind.task, **options).run_id == run.run_id == "r"
    assert run.state == "Seeded"
    assert Worker([runnable], one.runs.all).run(once=True) == 1
    result = asyncio.run(run.aresult(1.0)) if is_async else run.result(1.0)
    assert (result.output, result.extra) == (kind.output("HI"), {"ticket": 7})
    assert result.record == one.runs.resume("r").record == one.runs.get("r").result().record
    *_, last = one.runs.get("r").stream()
    assert isinstance(last, Done)
    assert last.result.output == result.output
    for option in ({"delay_s": -1}, {"priority": 1000}, {"after": 7}, {"dps": 3}):
        with pytest.raises((UsageError, TypeError)):
            one.runs.submit(kind.task, **option)
    with pytest.raises(RunUnknown):
        one.runs.get("nowhere")
    with pytest.raises(TypeError, match="'dps'"):
        one.runs.get("r", dps=3)


@suspending
def test_a_submitted_run_that_waits_is_answered_by_one_answer(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    one = kind.make(Script(function_call("erase", path="x"), "HI"), store=str(tmp_path / "runs.db"))
    runnable = one.agent if isinstance(one, Conversation) else one
    run = one.runs.submit(kind.task, run_id="r")
    Worker([runnable], one.runs.all).run(once=True)
    for wait in (run.result, lambda: asyncio.run(run.aresult())):
        with pytest.raises(kind.suspended):
            wait()
    run.answer(Approved(), by="ann")
    Worker([runnable], one.runs.all).run(once=True)
    assert run.result(1.0).output == kind.output("HI")


@suspending
def test_a_run_of_each_kind_is_read_as_it_was_and_forked(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    one = kind.make(Script(function_call("erase", path="x"), "HI", "HO"), store=str(tmp_path / "runs.db"))
    with pytest.raises(kind.suspended):
        one.call(kind.task, run_id="r")
    (question,) = one.runs.all.store.load("r").run.waits
    before = one.runs.all.store.load("r")
    past = one.runs.at("r", before.run.n - 1)
    assert not [effect for effect in past.effects if effect.key == question.key]
    waiting = one.runs.at("r")
    assert [effect.key for effect in waiting.effects] == [question.key]
    with pytest.raises(UsageError, match="read"):
        one.run(waiting)
    with pytest.raises(UsageError, match="read"):
        waiting.advance(question.key, Approved())
    assert one.runs.fork("r", new_run_id="f", by="bob") == "f"
    assert one.runs.fork("r", before.run.n, new_run_id="f", by="bob") == "f"
    assert one.runs.all.store.load("r") == before
    assert [asked.key for asked in one.runs.all.store.load("f").run.waits] == [question.key]
    forked = one.runs.resume("f", {question.key: Denied("not here")}, by="bob")
    assert (forked.output, forked.record.id) == (kind.output("HI"), "f")
    assert one.runs.replay("f").record == one.runs.at("f").record == forked.record
    result = one.runs.resume("r", {question.key: Approved()})
    assert (result.output, result.record.id) == (kind.output("HO"), "r")
    for verb in (one.runs.at, one.runs.fork):
        with pytest.raises(TypeError, match="'dps'"):
            verb("r", dps=3)
        with pytest.raises(RunUnknown):
            verb("nowhere")


@pytest.mark.parametrize(
    ("name", "verb", "option"),
    [("Agent", "map", "dps"), ("Flow", "amap", "concurency"), ("Orchestrator", "map", "run_id")],
)
def test_many_tasks_with_a_wrong_option_are_refused_before_the_first(name: str, verb: str, option: str) -> None:
    kind, model = KINDS[name], Script()
    begun = list[Any]()

    def tasks() -> Iterator[Any]:
        begun.append(kind.task)
        yield kind.task

    one = kind.make(model)
    with pytest.raises((UsageError, TypeError), match=option):
        one.map(tasks(), **{option: 3}) if verb == "map" else asyncio.run(one.amap(tasks(), **{option: 3}))
    assert not begun
    assert not model.requests


def test_options_beside_a_process_are_refused_and_so_is_another_kind_s(kind: Kind) -> None:
    one = kind.make(Script())
    with pytest.raises(UsageError, match="extra"):
        list(one.stream(one.prepare(kind.task), extra={}))
    other = KINDS["Agent" if isinstance(one, Flow | Orchestrator) else "Flow"]
    stranger = other.make(Script()).prepare(other.task)
    with pytest.raises(UsageError, match=r"AgentCall|FlowRun"):
        one.run(stranger)


RESTORED = [name for name in KINDS if name != "Conversation"]


@pytest.mark.parametrize("name", RESTORED)
def test_it_is_restored_and_changed(name: str) -> None:
    kind = KINDS[name]
    one = kind.make(Script(*["HI"] * 2))
    process = one.prepare(kind.task)
    again = one.restore(snapshot(process) if name not in ("Flow", "Orchestrator") else process.snapshot())
    assert again.record == process.record
    if name == "Flow":
        assert replace(one, name="other").name == "other"
    else:
        assert one.changed(name="other").name == "other"


async def ignored(event: Any) -> None:
    raise NotImplementedError("no one awaits it")


@pytest.mark.parametrize("verb", ["run", "arun", "resume", "aresume"])
def test_a_sink_that_cannot_be_called_is_refused_before_anything_is_asked(kind: Kind, verb: str) -> None:
    for sink in (5, ignored):
        one = kind.make(Script(), store=MemoryStore())
        given = one.prepare(kind.task) if "run" in verb else "r"
        do = getattr(one if "run" in verb else one.runs, verb)
        with pytest.raises(UsageError, match="sink"):
            asyncio.run(do(given, sink=sink)) if verb.startswith("a") else do(given, sink=sink)


def test_a_reason_of_a_cancellation_is_a_text_before_the_driver_takes_it(kind: Kind) -> None:
    prepared = kind.make(Script()).prepare(kind.task)
    with pytest.raises(OutcomeError, match=r"Cancelled\.reason: .*5"):
        prepared.cancel(5)
    assert prepared.end_request is None
