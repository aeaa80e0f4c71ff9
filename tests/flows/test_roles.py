"""Do states name agents by role, which are bound at run time, and described by the configuration of an `AgentBase`?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from flow_runs import LOOPS, Driver

from fsm_agent import Agent, AgentBase, AgentConfig, Approved, build_agent, function
from fsm_agent.flows import (
    Flow,
    FlowError,
    FlowFailed,
    FlowResult,
    FlowRun,
    FlowSuspended,
    call,
    call_chosen,
    end,
    gather,
    snapshot,
    subflow,
    wait,
)
from fsm_agent.testing import Script
from fsm_agent.testing import call as asks


@dataclass(frozen=True)
class Report:
    task: str
    forecast: str = ""
    text: str = ""


@dataclass(frozen=True)
class Approve:
    by: str


@call("forecaster", str)
def forecasting(r: Report) -> str:
    return r.task


@call("editor", str)
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


def forecaster(*replies: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(Script(*(replies or ("Rain at first, later sun.",))), name="f", **options)


def editor(*replies: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(Script(*(replies or (lambda request: request.messages[-1].text.upper(),))), name="e", **options)


def here(question: Any) -> Approve:
    return Approve("ann")


@LOOPS
def test_agents_are_bound_to_roles(driven: Driver) -> None:
    bound = replace(weather, answer=here).bound(forecaster=forecaster(), editor=editor())
    run = bound.seed(Report("Berlin?"))
    driven(bound, run)
    assert run.data.text == "SHORTEN: RAIN AT FIRST, LATER SUN."
    assert weather.agents == {}


@pytest.mark.parametrize(
    ("bind", "says"),
    [
        (
            lambda: weather.bound(forecaster=forecaster()),
            r"flow 'weather': the role 'editor' of the state editing has no agent; bound: forecaster:"
            r" bound\(editor=agent\) would be right",
        ),
        (
            lambda: weather.bound(forecaster=forecaster(), editro=editor()),
            r"flow 'weather' has no role 'editro'; its roles are forecaster, editor: did you mean 'editor'\?",
        ),
        (
            lambda: weather.bound(forecaster=forecaster(), editor="e"),  # type: ignore[arg-type]
            r"the role 'editor' of the state editing is 'e': an Agent",
        ),
        (
            lambda: weather.bound(forecaster=forecaster(), editor=editor(output=int)),
            r"editing, by the role 'editor', shall give str, and its agent gives int",
        ),
        (lambda: weather.call(Report("?")), r"the role 'forecaster' of the state forecasting has no agent: bound\("),
        (lambda: weather.as_function(), r"the role 'forecaster' of the state forecasting has no agent"),
        (lambda: replace(weather, agents={"editor": editor()}), r"'forecaster' of .* has no agent; bound: editor"),
        (lambda: call("a b", str)(lambda d: "?"), None),
        (
            lambda: Flow("f", str, start=odd, rows=[odd.done(end("x"))]),
            r"odd has the role 'a b': a name as Python has them",
        ),
    ],
)
def test_what_cannot_be_right_is_refused(bind: Callable[[], Any], says: str | None) -> None:
    if says is None:
        bind()
        return
    with pytest.raises(FlowError, match=says):
        bind()


odd: Any = call("a b", str, name="odd")(lambda d: "?")


def test_roles_inside_members_and_flows_are_bound_from_the_outside_unless_they_have_agents() -> None:
    other = call("other", str, name="other")(lambda r: "?")
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
    with pytest.raises(FlowError, match="the role 'editor' of the state editing has no agent"):
        flow.bound(forecaster=forecaster(), other=forecaster())
    bound = flow.bound(forecaster=forecaster(), other=forecaster(), editor=editor("free"))
    assert bound.call(Report("?")).data == Report("?", "free", "own")
    renamed = flow.bound(forecaster=forecaster(), other=forecaster(), editor=editor("free", system="Be brief."))
    assert isinstance(renamed.fingerprint, str)


def test_the_data_choose_a_role() -> None:
    def choose(r: Report) -> str:
        return r.task

    chosen = call_chosen(choose, str, name="chosen")(lambda r: "?")
    rows = [chosen.done(end("over"), do=lambda r, a: replace(r, text=a))]
    flow = Flow("f", Report, start=chosen, rows=rows).bound({"a": editor("of a"), "b": editor("of b")})
    assert [flow.call(Report(task)).data.text for task in "ab"] == ["of a", "of b"]
    with pytest.raises(FlowError, match="the role 'c' of the state chosen has no agent; bound: a, b"):
        flow.call(Report("c"))


def test_hooks_of_bound_agents_are_told() -> None:
    seen: list[Any] = []

    class Hook:
        def on_done(self, event: Any) -> None:
            seen.append(event.result.output)

    flow = replace(weather, answer=here).bound(forecaster=forecaster(hooks=[Hook()]), editor=editor())
    flow.call(Report("?"))
    assert seen == ["Rain at first, later sun."]


# Sub-agents of an `AgentBase`


class Weather(AgentBase[str], register=False):
    """An agent whose work is a flow of its sub-agents."""

    agent_type = "weather by roles"
    agent_group = ("forecaster", "editor")

    @property
    def flow(self) -> Flow[Report]:
        return weather.bound(self.agents)

    def call(self, task: Any, *, run_id: str | None = None, **kwargs: Any) -> str:
        return replace(self.flow, store=self.config.value("store")).call(Report(task), run_id=run_id).data.text

    def resume(self, run_id: str, answers: dict[Any, Any]) -> str:
        return replace(self.flow, store=self.config.value("store")).resume(run_id, answers).data.text


class Drafting(AgentBase[FlowRun[Report]], register=False):
    """An agent whose call returns the run of a flow, for others to drive."""

    agent_type = "drafting"
    agent_group = ("forecaster", "editor")

    def call(self, task: Any, **kwargs: Any) -> FlowRun[Report]:
        return weather.bound(self.agents).seed(Report(task), **kwargs)


CONFIG = {
    "model": "openai:gpt-5-mini",
    "agent_configs": {"forecaster": {"system": "You forecast."}, "editor": {"system": "You edit."}},
}


def models(*texts: str) -> dict[str, Script]:
    return dict(zip(("forecaster", "editor"), map(Script, texts), strict=False))


@pytest.mark.spec("3.24: sub-agents by name")
def test_the_call_of_an_agent_of_several_drives_a_flow_that_is_suspended_and_resumed(tmp_path: Path) -> None:
    store = str(tmp_path / "runs.db")
    scripts = {"forecaster": Script(lambda request: request.messages[0].text), "editor": Script("Mixed.")}
    agent = build_agent(Weather, {**CONFIG, "store": store}, client=scripts)
    with pytest.raises(FlowSuspended) as e:
        agent("Berlin?", run_id="r1")
    assert e.value.run.data.forecast == "You forecast."
    later = build_agent(Weather, AgentConfig.of({**CONFIG, "store": store}), client=models("", ""))
    assert later.resume("r1", {review: Approve("ann")}) == "Mixed."


def test_a_run_that_a_call_returned_is_what_its_type_says_and_says_who_drives_it(tmp_path: Path) -> None:
    """Nothing drives it behind the back of whoever has it: it is heard, stopped and named like any other run."""
    heard = list[str]()

    class Hears:
        def on_event(self, event: Any) -> None:
            heard.append(type(event).__name__)

    class Kept(Drafting, register=False):
        def call(self, task: Any, **kwargs: Any) -> FlowRun[Report]:
            flow = replace(weather.bound(self.agents), store=str(tmp_path / "runs.db"), hooks=[Hears()])
            return flow.seed(Report(task), **kwargs)

    agent = build_agent(Kept, CONFIG, client=models("Sun.", "Fine."))
    run = agent.call("Berlin?", run_id="r1")
    assert isinstance(run, FlowRun)
    assert repr(run) == "FlowRun('weather', '', Seeded, Report(task='Berlin?', forecast='', text=''))"
    with pytest.raises(FlowSuspended, match=r"has not begun: run.flow.run\(run\), arun or stream drives it"):
        run.result()
    assert (heard, run.data.text) == ([], "")
    with pytest.raises(FlowSuspended, match="'r1' of the flow 'weather' in review waits for"):
        run.flow.run(run)
    assert {"Stepped", "Inside"} <= set(heard)
    assert run.flow.resume("r1", {review: Approve("ann")}).data.text == "Fine."
    stopped = agent.call("Rome?", run_id="r2")
    stopped.cancel("no more")
    with pytest.raises(FlowFailed, match="no more"):
        stopped.flow.run(stopped)
    assert [len(run.record.trace) for run in agent.map(["a", "b"]).outputs] == [0, 0]


@pytest.mark.parametrize("way", ["run", "arun", "stream", "astream"])
def test_a_call_may_return_the_run_of_a_flow_for_others_to_drive(way: str) -> None:
    @function(needs_approval=True)
    def look(place: str) -> str:
        """Look."""
        return "sun"

    agent = build_agent(Drafting, CONFIG, client=models("unused", "Fine."))
    agent.agents["forecaster"] = Agent(Script(asks("look", place="x"), "Sun."), functions=[look], name="f")
    run = agent("Berlin?")
    key = "forecasting#1/ask:1.0"

    def drive() -> FlowResult[Report]:
        if way == "run":
            return run.flow.run(run)
        if way == "arun":
            return asyncio.run(run.flow.arun(run))
        if way == "stream":
            list(run.flow.stream(run))
            return run.result()

        async def main() -> FlowResult[Report]:
            async for _ in run.flow.astream(run):
                pass
            return run.result()

        return asyncio.run(main())

    with pytest.raises(FlowSuspended):
        drive()
    assert [effect.key for effect in run.effects] == [key]
    run = run.flow.restore(snapshot(run))
    run.advance(key, Approved())
    with pytest.raises(FlowSuspended):
        drive()
    run.give(review, Approve("ann"))
    assert drive().data.text == "Fine."


def test_the_fingerprint_knows_roles_and_the_agents_behind_them() -> None:
    one = weather.bound(forecaster=forecaster(), editor=editor())
    assert one.fingerprint == weather.bound(forecaster=forecaster(), editor=editor()).fingerprint
    assert (
        one.fingerprint
        != weather.bound(forecaster=forecaster(output=str), editor=replace(editor(), name="x")).fingerprint
    )
