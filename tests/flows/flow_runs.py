"""The support flow of the examples, with scripts for its models, and the ways to drive the run of a flow."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from support.paths import ROOT

from fsm_agent.flows import AwaitAnswer, Flow, FlowRun
from fsm_agent.flows.activities import RunWithData
from fsm_agent.flows.process.effects import RunOnData, Timer
from fsm_agent.lifecycle import (
    Begin,
    Begun,
    CallModel,
    FunctionFailed,
    Replied,
    Returned,
    RunFunction,
    Started,
    StartFunction,
)
from fsm_agent.runtime import adrive, arun, drive, run
from fsm_agent.runtime.run_function import FunctionExecution, run_function
from fsm_agent.testing import Script


def _example() -> Any:
    spec = importlib.util.spec_from_file_location("support_flow_example", ROOT / "examples" / "support.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its types are looked up
    spec.loader.exec_module(module)
    return module


s = _example()


def scripts() -> dict[Any, Script]:
    """Two rounds: the customer is asked once, and the reviewer wishes for one change."""
    return {
        s.triage: Script('{"kind": "billing"}'),
        s.research: Script('{"question": "Which order?"}', '{"facts": ["paid twice"]}'),
        s.draft_warmly: Script('{"text": "Dear friend"}', '{"text": "Dearest friend"}'),
        s.draft_tersely: Script('{"text": "Refunded."}', '{"text": "Refunded. Sorry."}'),
        s.judging: Script('{"best": 1}', '{"best": 1}'),
    }


def given_to_agents(models: Mapping[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the agents of states ask these models for the time of a test."""
    for state, model in models.items():
        asks = {"client": model, "own_world": state.agent.world_with(model)}
        for name, made in asks.items():
            monkeypatch.setitem(state.agent.__dict__, name, made)


def people() -> Callable[[AwaitAnswer], Any]:
    """Return the answers of the customer and the reviewer, one after the other."""
    said = {"customer": ["order 17"], "review": [s.Change("say sorry"), s.Approve("ann")]}
    return lambda question: said[question.state.name].pop(0)


def by_run(flow: Flow[Any], one: FlowRun[Any]) -> list[Any]:
    events: list[Any] = []
    run(one, one.run_context.own_world.changed(threads=0), events.append)
    return events


def by_threads(flow: Flow[Any], one: FlowRun[Any]) -> list[Any]:
    events: list[Any] = []
    run(one, one.run_context.own_world, events.append)
    return events


def by_run_unheard(flow: Flow[Any], one: FlowRun[Any]) -> list[Any]:
    run(one, one.run_context.own_world)
    return []


def by_drive(flow: Flow[Any], one: FlowRun[Any]) -> list[Any]:
    return list(drive(one, one.run_context.own_world))


def by_arun(flow: Flow[Any], one: FlowRun[Any]) -> list[Any]:
    events: list[Any] = []
    asyncio.run(arun(one, one.run_context.own_world, events.append))
    return events


def by_adrive(flow: Flow[Any], one: FlowRun[Any]) -> list[Any]:
    async def main() -> list[Any]:
        return [event async for event in adrive(one, one.run_context.own_world)]

    return asyncio.run(main())


def by_hand(flow: Flow[Any], one: FlowRun[Any]) -> list[Any]:
    """Perform one effect at a time, in another order than the drivers, through JSON before each.  Keeps the run."""
    around = one.run_context
    world = around.own_world
    while one.effects:
        one.record = flow.restore(one.snapshot()).record
        one._effects, one._ahead = None, one.record
        effects = [e for e in one.effects if not isinstance(e, Timer | AwaitAnswer)]
        people = [e for e in one.effects if isinstance(e, AwaitAnswer) and around.answer]
        if not effects and not people:
            break
        effect: Any = (effects or people)[-1]
        one.advance(effect.key, _performed(effect, one, world))
    return []


def _performed(effect: Any, one: FlowRun[Any], world: Any) -> Any:
    owner = one.owner(effect.key)
    world = owner.worlds[0] if owner.worlds else world
    match effect:
        case Begin():
            return Begun(at_s=world.clock.now(), id=world.new_id())
        case CallModel():
            return Replied(reply=world.client.complete(effect.request), at_s=world.clock.now())
        case StartFunction():
            return Started(at_s=world.clock.now())
        case AwaitAnswer():
            return Returned(text=effect.state.answer_types.dump(one.run_context.answer(effect)), at_s=world.clock.now())
        case RunFunction():
            run_class = RunWithData if isinstance(effect, RunOnData) else FunctionExecution
            outcome = run_function(run_class(effect, owner.process, world))  # type: ignore[arg-type]
            assert isinstance(outcome, Returned | FunctionFailed), effect.function
            return outcome
    raise AssertionError(effect)


DRIVERS = [by_run, by_threads, by_run_unheard, by_drive, by_arun, by_adrive, by_hand]
Driver = Callable[[Flow[Any], FlowRun[Any]], list[Any]]
everywhere = pytest.mark.parametrize("driven", DRIVERS)
# For what the drivers have no part in, but threads or asyncio may have
in_both_worlds = pytest.mark.parametrize("driven", [by_threads, by_adrive])
LOOPS = pytest.mark.parametrize("driven", DRIVERS[:-1])


def steps_of(one: FlowRun[Any]) -> list[tuple[str, str, str]]:
    return [(step.source, step.trigger, step.to) for step in one.record.trace]


def mapped(answers: Mapping[Any, Any]) -> dict[Any, Script]:
    """A script with one reply for each state."""
    return {state: Script(text) for state, text in answers.items()}
