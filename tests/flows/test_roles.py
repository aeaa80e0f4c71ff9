"""Do states name agents by role, which are bound at run time, and described by the configuration of an `AgentBase`?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from flow_runs import Driver, everywhere

from fsm_agent import Agent, AgentBase, AgentConfig, Approved, CallFailed, build_agent, function
from fsm_agent.flows import Flow, FlowError, FlowResult, FlowSuspended, ask, end, gather, subflow, wait
from fsm_agent.testing import Script, function_call


@dataclass(frozen=True)
class Report:
    task: str
    forecast: str = ""
    text: str = ""


@dataclass(frozen=True)
class Approve:
    by: str


@ask("forecaster", str)
def forecasting(r: Report) -> str:
    return r.task


@ask("editor", str)
def editing(r: Report) -> str:
    return f"Shorten: {r.forecast}"


@wait(Approve)
def review(r: Report) -> str:
    return r.text


weather = Flow(
    "weather",
    Report,
    start=forecasting,
    rows=[
        forecasting.done(editing, do=lambda r, a: replace(r, forecast=a)),
        editing.done(review, do=lambda r, a: replace(r, text=a)),
        review.done(end("told")),
    ],
)


def named_step(role: str) -> Any:
    return ask(role, str, name="step")(lambda r: r.task)


def forecaster(*replies: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(Script(*(replies or ("Rain at first, later sun.",))), name="f", **options)


def editor(*replies: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(Script(*(replies or (lambda request: request.messages[-1].text.upper(),))), name="e", **options)


def here(question: Any) -> Approve:
    return Approve("ann")


@everywhere
def test_agents_are_bound_to_roles(driven: Driver) -> None:
    bound = replace(weather, answer=here).bound(forecaster=forecaster(), editor=editor())
    run = bound.prepare(Report("Berlin?"))
    driven(bound, run)
    assert run.data.text == "SHORTEN: RAIN AT FIRST, LATER SUN."
    assert weather.agents == {}


@pytest.mark.parametrize(
    ("bind", "name"),
    [
        (lambda: weather.bound(forecaster=forecaster()), "'editor'"),
        (lambda: weather.bound(forecaster=forecaster(), editro=editor()), "'editro'"),
        (lambda: weather.bound(forecaster=forecaster(), editor="e"), "'editor'"),  # type: ignore[arg-type]
        (lambda: weather.bound(forecaster=forecaster(), editor=editor(output=int)), "'editor'"),
        (lambda: weather.call(Report("?")), "'forecaster'"),
        (lambda: weather.as_function(), "'forecaster'"),
        (lambda: Flow("f", str, start=odd, rows=[odd.done(end("x"))]), "'a b'"),
    ],
)
def test_what_cannot_be_right_is_refused(bind: Callable[[], Any], name: str) -> None:
    with pytest.raises(FlowError, match=name):
        bind()


odd: Any = ask("a b", str, name="odd")(lambda d: "?")


def test_roles_inside_members_and_flows_are_bound_from_the_outside_unless_they_have_agents() -> None:
    other = ask("other", str, name="other")(lambda r: "?")
    both = gather("both", forecasting, other)
    inner = Flow("inner", Report, start=editing, rows=[editing.done(end("ok"), do=lambda r, a: replace(r, text=a))])
    free = subflow("free", inner, lambda r: r)
    own = subflow("own", inner.bound(editor=editor("own")), lambda r: r)
    rows = [
        both.done(free),
        free.done(own, do=lambda r, a: replace(r, forecast=a.text)),
        own.done(end("over"), do=lambda r, a: replace(r, text=a.text)),
    ]
    flow = Flow("f", Report, start=both, rows=rows)
    with pytest.raises(FlowError, match="'editor'"):
        flow.bound(forecaster=forecaster(), other=forecaster())
    bound = flow.bound(forecaster=forecaster(), other=forecaster(), editor=editor("free"))
    assert bound.call(Report("?")).output == Report("?", "free", "own")


def test_the_data_choose_a_role() -> None:
    def choose(r: Report) -> str:
        return r.task

    chosen = ask(choose, str, name="chosen")(lambda r: "?")
    rows = [chosen.done(end("over"), do=lambda r, a: replace(r, text=a))]
    flow = Flow("f", Report, start=chosen, rows=rows).bound({"a": editor("of a"), "b": editor("of b")})
    assert [flow.call(Report(task)).output.text for task in "ab"] == ["of a", "of b"]
    with pytest.raises(FlowError, match="'c'"):
        flow.call(Report("c"))


def test_the_fingerprint_knows_roles() -> None:
    one = weather.bound(forecaster=forecaster(), editor=editor())
    assert one.fingerprint == weather.bound(forecaster=forecaster(), editor=editor()).fingerprint
    others = [editor(system="Be brief."), editor(system="Be long."), editor(system=lambda deps: "Be odd.")]
    assert len({one.fingerprint, *(weather.bound(forecaster=forecaster(), editor=e).fingerprint for e in others)}) == 4


def test_the_fingerprint_knows_flows_inside_their_places_and_their_roles() -> None:
    def around(first: Any, second: Any, **agents: Any) -> str:
        one, two = (subflow(name, flow, lambda r: r) for name, flow in (("one", first), ("two", second)))
        rows = [one.done(two), two.done(end("over"))]
        return Flow("around", Report, start=one, rows=rows).bound(**agents).fingerprint

    bound = weather.bound(forecaster=forecaster(), editor=editor())
    brief = weather.bound(forecaster=forecaster(), editor=editor(system="Be brief."))
    roles = {"forecaster": forecaster(), "editor": editor()}
    found = [around(bound, brief), around(brief, bound), around(bound, bound), around(weather, bound, **roles)]
    found.append(around(weather, bound, **{**roles, "editor": editor(system="Be brief.")}))
    assert len(set(found)) == len(found)

    left, right = (
        Flow("inner", Report, start=s, rows=[s.done(end("over"))]) for s in map(named_step, ("left", "right"))
    )
    agents = [editor(system="Be brief."), editor(system="Be long.")]
    found = [around(left, right, left=one, right=other) for one in agents for other in agents]
    assert len(set(found)) == len(found)  # although the steps of both flows have one name


# Sub-agents of an `AgentBase`


class Weather(AgentBase[str], register=False):
    """An agent whose work is a flow of its sub-agents."""

    agent_type = "weather by roles"
    agent_group = ("forecaster", "editor")

    @property
    def flow(self) -> Flow[Report]:
        return weather.bound(self.agents)

    def answer(self, task: str) -> str:
        return self.flow.call(Report(task)).output.text


CONFIG = {
    "model": "openai:gpt-5-mini",
    "agent_configs": {"forecaster": {"system": "You forecast."}, "editor": {"system": "You edit."}},
}


def models(*texts: str) -> dict[str, Script]:
    return dict(zip(("forecaster", "editor"), map(Script, texts), strict=False))


def test_the_flow_of_sub_agents_is_suspended_and_resumed_and_an_answer_cannot_wait(tmp_path: Path) -> None:
    store = str(tmp_path / "runs.db")
    scripts = {"forecaster": Script(lambda request: request.messages[0].text, "Sun."), "editor": Script("Mixed.", "?")}
    agent = build_agent(Weather, CONFIG, client=scripts)
    with pytest.raises(FlowSuspended) as e:
        replace(agent.flow, store=store).call(Report("Berlin?"), run_id="r1")
    assert e.value.run.data.forecast == "You forecast."
    with pytest.raises(CallFailed, match="wait") as failed:
        agent("Berlin?")
    assert isinstance(failed.value.__cause__, FlowSuspended)
    later = replace(build_agent(Weather, AgentConfig.of(CONFIG), client=models("", "")).flow, store=store)
    assert later.runs.resume("r1", {review: Approve("ann")}).output.text == "Mixed."


@pytest.mark.parametrize("is_async", [False, True])
def test_a_run_of_sub_agents_waits_for_functions_and_people(is_async: bool) -> None:
    @function(needs_approval=True)
    def look(place: str) -> str:
        """Look."""
        return "sun"

    agent = build_agent(Weather, CONFIG, client=models("unused", "Fine."))
    agent.agents["forecaster"] = Agent(Script(function_call("look", place="x"), "Sun."), functions=[look], name="f")
    run = agent.flow.prepare(Report("Berlin?"))
    key = "forecasting#1/ask:1.0"

    def drive() -> FlowResult[Report]:
        return asyncio.run(run.flow.arun(run)) if is_async else run.flow.run(run)

    with pytest.raises(FlowSuspended):
        drive()
    assert [effect.key for effect in run.effects] == [key]
    run = run.flow.restore(run.snapshot())
    run.advance(key, Approved())
    with pytest.raises(FlowSuspended):
        drive()
    run.give(review, Approve("ann"))
    assert drive().output.text == "Fine."
