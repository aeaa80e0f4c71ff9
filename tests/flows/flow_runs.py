"""The support flow of the examples, with scripts for its models, and the ways to drive the run of a flow."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from support.paths import ROOT

from fsm_agent.call import Begun
from fsm_agent.flows import AwaitAnswer, Flow, FlowRun
from fsm_agent.runtime import adrive, arun, drive, run
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
        asks = {"client": model, "own_environment": state.agent._environment_with(model)}
        for name, made in asks.items():
            monkeypatch.setitem(state.agent.__dict__, name, made)


def people() -> Callable[[AwaitAnswer], Any]:
    """Return the answers of the customer and the reviewer, one after the other."""
    said = {"customer": ["order 17"], "review": [s.Change("say sorry"), s.Approve("ann")]}
    return lambda question: said[question.state.name].pop(0)


def by_run(flow: Flow[Any], one: FlowRun[Any]) -> list[Any]:
    events: list[Any] = []
    run(one, one.run_context.own_environment.changed(threads=0), events.append)
    return events


def by_threads(flow: Flow[Any], one: FlowRun[Any]) -> list[Any]:
    events: list[Any] = []
    run(one, one.run_context.own_environment, events.append)
    return events


def by_run_unheard(flow: Flow[Any], one: FlowRun[Any]) -> list[Any]:
    run(one, one.run_context.own_environment)
    return []


def by_drive(flow: Flow[Any], one: FlowRun[Any]) -> list[Any]:
    return list(drive(one, one.run_context.own_environment))


def by_arun(flow: Flow[Any], one: FlowRun[Any]) -> list[Any]:
    events: list[Any] = []
    asyncio.run(arun(one, one.run_context.own_environment, events.append))
    return events


def by_adrive(flow: Flow[Any], one: FlowRun[Any]) -> list[Any]:
    async def main() -> list[Any]:
        return [event async for event in adrive(one, one.run_context.own_environment)]

    return asyncio.run(main())


DRIVERS = [by_run, by_threads, by_run_unheard, by_drive, by_arun, by_adrive]  # for the test that they do the same
Driver = Callable[[Flow[Any], FlowRun[Any]], list[Any]]
everywhere = pytest.mark.parametrize("driven", [by_run, by_arun])  # all else: one driver a world
in_both_worlds = pytest.mark.parametrize("driven", [by_threads, by_arun])  # where functions run in threads


def begun(flow: Any, data: Any, at_s: float = 0.0, **options: Any) -> Any:
    """Return a run that has entered its first state, to take its steps by hand."""
    run = flow.prepare(data, **options)
    run.advance("begin", Begun(at_s=at_s, id="r"))
    return run


def steps_of(one: FlowRun[Any]) -> list[tuple[str, str, str]]:
    return [(step.source, step.trigger, step.to) for step in one.record.trace]
