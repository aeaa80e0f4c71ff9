"""Are forks of calls independent, at every step, including everything inside them?"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import Agent, Approved, CallSuspended, Context, MemoryStore, function, handoff
from fsm_agent.call import Returned, snapshot
from fsm_agent.flows import Flow, end, into, wait
from fsm_agent.testing import Script, function_call

keys: list[str] = []


@function(needs_approval=True)
def erase(context: Context[Any], path: str) -> str:
    """Erase a file."""
    keys.append(context.idempotency_key or "")
    return f"{path} is gone"


@dataclass(frozen=True)
class Order:
    id: str
    answer: str = ""


@wait(str, name="person")
def person(d: Order) -> str:
    return "Fine?"


orders = Flow("orders", Order, start=person, rows=[person.done(end("over"), do=into("answer"))])


def inside() -> dict[str, Any]:
    """An agent inside, which asks for approval."""
    inner = Agent(Script(function_call("erase", path="x"), *["It is gone."] * 9), name="inner", functions=[erase])
    return {
        "functions": [inner.as_function("delegate")],
        "model": Script(function_call("delegate", task="x"), *["Done."] * 9),
    }


def handed() -> dict[str, Any]:
    """A handoff to an agent that asks for approval."""
    inner = Agent(Script(function_call("erase", path="x"), *["It is gone."] * 9), name="inner", functions=[erase])
    return {"functions": [handoff(inner)], "model": Script(function_call("transfer_to_inner"), *["Done."] * 9)}


def flow_inside() -> dict[str, Any]:
    """A flow inside, which asks a person; its data name the run."""
    return {"functions": [orders], "model": Script(function_call("orders", id="a"), *["Done."] * 9)}


def ids_of(record: Any) -> list[str]:
    children = [getattr(child, "record", child) for child in record.children.values()]
    if getattr(record, "successor", None) is not None:
        children.append(record.successor)
    return [record.id, *[id for child in children for id in ids_of(child)]]


@pytest.mark.parametrize("kind", [inside, handed, flow_inside])
def test_a_call_with_others_inside_is_forked_at_every_step(kind: Any) -> None:
    keys.clear()
    agent = Agent(name="outer", store=MemoryStore(), **kind())
    with suppress(CallSuspended):
        agent.call("Go.", run_id="a")
    (question,) = agent.runs.all.store.load("a").run.waits
    value: Any = '"fine"'
    answer = Returned(text=value) if kind is flow_inside else Approved()
    whole = agent.runs.resume("a", {question.key: answer})
    deepest = 0
    for step in range(agent.runs.all.store.load("a").run.n + 1):
        name = agent.runs.fork("a", step)
        past, fork = agent.runs.at("a", step), agent.runs.at(name)
        assert snapshot(fork) == snapshot(agent.runs.replay(name))
        assert [effect.key for effect in fork.effects] == [effect.key for effect in past.effects]
        ids = ids_of(fork.record)
        assert {id.partition("/")[0] for id in ids} == {name if step else ""}
        assert [id.removeprefix(name) for id in ids] == [id.removeprefix("a") for id in ids_of(past.record)]
        deepest = max(deepest, len(ids))
        if [effect.key for effect in past.effects] == [question.key]:
            keys.clear()
            assert agent.runs.resume(name, {question.key: answer}).output == whole.output
            assert all(key.startswith(f"{name}/") for key in keys)
    assert deepest > 1


def test_a_turn_of_a_conversation_is_forked_with_all_that_was_said() -> None:
    model = Script("One.", "Two.", "Three.", "Other.")
    agent = Agent(model, name="clerk", store=MemoryStore())
    talk = agent.conversation("c")
    talk.call("First?")
    talk.call("Second?", run_id="second")
    for step in range(3):
        name = agent.runs.fork("second", step, by="ann")
        said = [message.text for message in agent.runs.at("second", step).record.dialog]
        assert [message.text for message in agent.runs.at(name).record.dialog] == said
        assert said[:3] == ["First?", "One.", "Second?"]
        assert snapshot(agent.runs.at(name)) == snapshot(agent.runs.replay(name))
    name = agent.runs.fork("second", 1)
    assert agent.runs.resume(name).output == "Three."
    assert [message.text for message in model.requests[-1].messages][-3:] == ["First?", "One.", "Second?"]
    assert [message.text for message in talk.read()][-1] == "Two.", "the fork is outside of the conversation"


def test_a_fork_is_continued_by_another_agent_of_the_name(tmp_path: Path) -> None:
    store = str(tmp_path / "runs.db")
    agent = Agent(Script(function_call("erase", path="x"), "Done."), name="clerk", functions=[erase], store=store)
    with suppress(CallSuspended):
        agent.call("Go.", run_id="a")
    other = Agent(Script("I do nothing."), name="clerk", functions=[erase], store=store)
    assert other.runs.resume(other.runs.fork("a", 1)).output == "I do nothing."
    assert agent.runs.at("a").state == "ToolInterrupt"
