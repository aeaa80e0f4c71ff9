"""Is the call of an agent inside of another part of the other's: its events, questions, tokens, limits and journal?"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from support.agent_calls import erase
from support.agent_drivers import StuckScript, Way, both, by_arun, by_astream, by_run, by_run_unheard, by_stream
from support.gates import Meeting

from fsm_agent.agents import Agent, handoff
from fsm_agent.call import AgentCall, Approved, CallFailed, CallSuspended, Denied, Limits, Reason, snapshot
from fsm_agent.errors import SnapshotError
from fsm_agent.functions import Context, Default, Function, function
from fsm_agent.messages import Done, Event, FunctionCall, FunctionEnded, FunctionStarted, Inside, Reply, Stepped, Usage
from fsm_agent.prompts import Prompt
from fsm_agent.store import MemoryStore, Runs
from fsm_agent.testing import Delayed, FakeClock, Script, function_call
from fsm_agent.workers import Worker


def spending(text: str, tokens: int) -> Reply:
    return Reply.of(text).changed(usage=Usage(input_tokens=tokens, output_tokens=1))


def asking(tokens: int, name: str, **arguments: Any) -> Reply:
    return Reply.of(function_call(name, **arguments)).changed(usage=Usage(input_tokens=tokens, output_tokens=1))


def boss(*replies: Any, inner: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(Script(*replies), functions=[inner], name="boss", **options)


def cleaner(*replies: Any, **options: Any) -> Agent[Any, Any]:
    replies = replies or (function_call("erase", path="x"), "It is gone.")
    return Agent(Script(*replies), functions=[erase], name="cleaner", **options)


def chain(*, is_later: bool = False, **options: Any) -> Agent[Any, Any]:
    """Three agents, one inside of another; the innermost asks for approval, or has done so before."""
    skip = 1 if is_later else 0
    inner = cleaner(*[function_call("erase", path="x"), "It is gone."][skip:])
    middle = Agent(Script(*[function_call("cleaner", task="?"), "All gone."][skip:]), functions=[inner], name="middle")
    return boss(*[function_call("middle", task="Tidy up."), "Done."][skip:], inner=middle, **options)


def by_arun_unheard(agent: Agent[Any, Any], one: AgentCall[Any], heard: list[Event]) -> None:
    asyncio.run(agent.arun(one))


WAYS: list[Way] = [by_run, by_stream, by_arun, by_astream, by_run_unheard, by_arun_unheard]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_record_is_the_same_whoever_drives(way: Way):
    def driven(way: Way) -> AgentCall[Any]:
        agent = chain(approve=lambda f: f.name != "nothing")
        one = agent.prepare("Go.")
        way(agent, one, [])
        return one

    one, other = driven(way), driven(by_run)
    assert one.output == "Done."
    assert (one.record.function_calls[0].result, one.record.children) == ("All gone.", {})
    assert [(step.source, step.trigger, step.to, step.key) for step in one.record.trace] == [
        (step.source, step.trigger, step.to, step.key) for step in other.record.trace
    ]


# Questions


def test_what_an_agent_inside_waits_for_suspends_the_call_and_is_answered_under_its_path():
    agent = chain()
    with pytest.raises(CallSuspended, match=r"run:1.0/run:1.0/ask:1.0") as e:
        agent.call("Go.")
    one = e.value.call
    assert [effect.key for effect in one.effects] == ["run:1.0/run:1.0/ask:1.0"]
    one.advance("run:1.0/run:1.0/ask:1.0", Approved())
    assert agent.run(one).output == "Done."


@pytest.mark.parametrize("approves", [True, False])
def test_where_an_agent_inside_has_no_approver_that_of_the_call_decides(approves: bool):
    asked: list[str] = []

    def approve(f: Any) -> bool:
        asked.append(f.name)
        return approves or f.name == "cleaner"

    inner = cleaner(function_call("erase", path="x"), lambda request: request.messages[-1].text)
    result = boss(function_call("cleaner", task="Go."), "ok", inner=inner, approve=approve).call("Go.")
    assert asked == ["cleaner", "erase"]
    assert ("erased x" in (result.function_calls[0].result or "")) == approves


@pytest.mark.parametrize("makes", [Agent.as_function, handoff])
@both
def test_the_approver_of_the_call_around_guards_functions_without_a_policy_too(way: Way, makes: Any):
    ran: list[str] = []
    asked: list[str] = []

    def wipe(path: str) -> str:
        """Wipe a file."""
        ran.append(path)
        return "wiped"

    def approve(f: Any) -> bool:
        asked.append(f.name)
        return f.name != "wipe"

    inner = Agent(Script(function_call("wipe", path="x"), "Sorry."), functions=[wipe], name="cleaner")
    made = makes(inner)
    arguments = {"task": "Go."} if made.name == "cleaner" else {"reason": "dirt"}
    agent = Agent(Script(function_call(made.name, **arguments), "ok"), functions=[made], approve=approve)
    way(agent, agent.prepare("Go."), [])
    assert (asked[-1], ran) == ("wipe", [])


@pytest.mark.parametrize("names", [["boss"], ["middle", "boss"]])
def test_the_approver_of_the_nearest_agent_around_decides(names: list[str]):
    asked: list[str] = []

    def approver(name: str) -> Any:
        return (lambda f: asked.append(f"{name}: {f.name}") or True) if name in names else None

    middle = boss(function_call("cleaner", task="Go."), "ok", inner=cleaner(), approve=approver("middle")).changed(
        name="middle"
    )
    result = boss(function_call("middle", task="Go."), "Done.", inner=middle, approve=approver("boss")).call("Go.")

    assert result.output == "Done."
    assert asked[-1] == f"{names[0]}: erase"


def test_a_snapshot_holds_the_calls_inside_and_their_questions_stay_open():
    agent = chain()
    with pytest.raises(CallSuspended) as e:
        agent.call("Go.")
    document = snapshot(e.value.call)
    again = chain(is_later=True)
    one = again.restore(document)
    assert one.record == e.value.call.record
    one.advance("run:1.0/run:1.0/ask:1.0", Denied("no"))
    assert again.run(one).output == "Done."


def test_a_snapshot_whose_call_inside_belongs_to_no_function_is_refused():
    agent = boss(function_call("cleaner", task="Go."), inner=cleaner())
    with pytest.raises(CallSuspended) as e:
        agent.call("Go.")
    document = snapshot(e.value.call)
    with pytest.raises(SnapshotError, match=r"run:7.0"):
        agent.restore(document.replace('"run:1.0":{', '"run:7.0":{', 1))


def test_a_run_in_a_store_is_answered_and_driven_on_by_somebody_else():
    store = MemoryStore()
    with pytest.raises(CallSuspended, match=r"run:1.0/ask:1.0"):
        boss(function_call("cleaner", task="Go."), inner=cleaner(function_call("erase", path="x")), store=store).call(
            "x", run_id="r1"
        )
    assert [question.key for question in store.load("r1").run.waits] == ["run:1.0/ask:1.0"]
    later = boss("Done.", inner=cleaner("It is gone."), store=store)
    Runs(store).answer("r1", {"run:1.0/ask:1.0": Approved()})
    assert Worker([later], store).run(once=True) == 1
    result = later.runs.resume("r1")
    assert (result.output, result.function_calls[0].result) == ("Done.", "It is gone.")
    assert later.runs.replay("r1").record == result.record


# Events


@both
def test_its_events_are_those_of_the_call_marked_with_their_origin(way: Way):
    agent = chain(approve=lambda f: True)
    heard: list[Event] = []
    way(agent, agent.prepare("Go."), heard)
    inside = [(event.path, type(event.event).__name__) for event in heard if isinstance(event, Inside)]
    assert {path for path, _ in inside} == {"run:1.0", "run:1.0/run:1.0"}
    assert ("run:1.0/run:1.0", FunctionEnded.__name__) in inside
    ends = [event for event in heard if isinstance(event, Inside) and getattr(event.event, "to", "") == "Completed"]
    assert [event.path for event in ends] == ["run:1.0/run:1.0", "run:1.0"]
    assert isinstance(heard[-1], Done)


@both
def test_its_own_hooks_are_told_of_its_own_events(way: Way):
    class Hook:
        def __init__(self) -> None:
            self.told: list[str] = []

        def on_done(self, event: Done[Any]) -> None:
            self.told.append(event.result.output)

        def on_stepped(self, event: Stepped) -> None:
            self.told.append(event.to)

    innermost, own = Hook(), Hook()
    middle = Agent(
        Script(function_call("cleaner", task="Erase x."), "All gone."),
        functions=[cleaner(hooks=[innermost])],
        name="middle",
    )
    agent = boss(function_call("middle", task="Tidy."), "Done.", inner=middle, hooks=[own], approve=lambda f: True)
    way(agent, agent.prepare("Go."), [])
    assert innermost.told == ["Calling", "ToolInterrupt", "ToolInterrupt", "Calling", "Completed", "It is gone."]
    assert own.told[-2:] == ["Completed", "Done."]
    assert len(own.told) == 6


@both
def test_its_beginning_and_end_are_those_of_a_function_around_its_events(way: Way):
    agent = chain(approve=lambda f: True)
    heard: list[Event] = []
    way(agent, agent.prepare("Go."), heard)
    functions = [
        (event.path if isinstance(event, Inside) else "", told.name, getattr(told, "text", None))
        for event in heard
        if isinstance(told := event.event if isinstance(event, Inside) else event, FunctionStarted | FunctionEnded)
    ]
    assert functions == [
        ("", "middle", None),
        ("run:1.0", "cleaner", None),
        ("run:1.0/run:1.0", "erase", None),
        ("run:1.0/run:1.0", "erase", "erased x"),
        ("run:1.0", "cleaner", "It is gone."),
        ("", "middle", "All gone."),
    ]
    places = [i for i, event in enumerate(heard) if isinstance(event, FunctionStarted | FunctionEnded)]
    inside = [i for i, event in enumerate(heard) if isinstance(event, Inside)]
    assert places[0] < min(inside)
    assert max(inside) < places[1]


# Tokens and limits


def test_its_tokens_are_the_call_s_too_while_it_goes_on_and_when_it_has_ended():
    inner = cleaner(asking(10, "erase", path="x"), spending("gone", 20))
    agent = boss(asking(1, "cleaner", task="?"), spending("ok", 2), inner=inner)
    with pytest.raises(CallSuspended) as e:
        agent.call("Go.")
    one = e.value.call
    assert (one.record.usage.input_tokens, one.result_so_far.usage.input_tokens) == (1, 11)
    one.advance("run:1.0/ask:1.0", Approved())
    result = agent.run(one)
    assert (result.usage.input_tokens, result.usage.output_tokens, result.record.usage) == (33, 4, result.usage)
    assert [report.usage.input_tokens for report in result.by_round] == [31, 2]


def test_its_tokens_count_when_the_call_was_cancelled_and_when_it_failed():
    inner = cleaner(asking(10, "erase", path="x"))
    agent = boss(asking(1, "cleaner", task="?"), inner=inner)
    with pytest.raises(CallSuspended) as e:
        agent.call("Go.")
    e.value.call.cancel("enough")
    with pytest.raises(CallFailed, match="cancelled: enough") as failed:
        agent.run(e.value.call)
    assert failed.value.call.result_so_far.usage.input_tokens == 11
    limited = Agent(Script(spending("?", 7)), name="limited", output=int, limits=Limits(parse_retries=0))
    outer = Agent(Script(asking(1, "limited", task="?"), spending("alas", 2)), functions=[limited])
    assert outer.call("Go.").usage.input_tokens == 10


@pytest.mark.parametrize("on_error", ["tell", "fail"])
def test_the_tokens_of_one_that_failed_count_whatever_its_failure_means(on_error: Any):
    limited = Agent(Script(spending("?", 60)), name="limited", output=int, limits=Limits(parse_retries=0))
    made = limited.as_function(on_error=on_error)
    outer = Agent(Script(asking(1, "limited", task="?"), spending("alas", 2)), functions=[made])
    one = outer.prepare("Go.")
    with suppress(CallFailed):
        outer.run(one)
    assert one.result_so_far.usage.input_tokens == (63 if on_error == "tell" else 61)


def test_the_deadline_of_the_call_ends_what_is_inside_first():
    clock = FakeClock()
    inner = cleaner()
    agent = boss(
        function_call("cleaner", task="Go."), inner=inner, limits=Limits(deadline_s=60), environment={"clock": clock}
    )
    with pytest.raises(CallSuspended) as e:
        agent.call("Go.")
    clock.advance(61)
    heard: list[Event] = []
    with pytest.raises(CallFailed) as failed:
        agent.run(e.value.call, heard.append)
    assert failed.value.call.record.ending.reason is Reason.EXPIRED
    steps = [event for event in heard if isinstance(getattr(event, "event", event), Stepped)]
    assert [(getattr(event, "path", ""), getattr(event, "event", event).to) for event in steps[:2]] == [
        ("run:1.0", "Failed"),
        ("", "Failed"),
    ]


@both
def test_what_an_approver_returns_has_the_time_of_the_driver_from_which_a_deadline_inside_counts(way: Way):
    clock = FakeClock()

    def approved(f: FunctionCall) -> Approved:
        clock.advance(3600)
        return Approved()

    async def approved_later(f: FunctionCall) -> Approved:
        return approved(f)

    inner = cleaner("It is clean.", limits=Limits(deadline_s=60), environment={"clock": clock})
    approve: Any = approved if way is by_run else approved_later
    agent = boss(
        function_call("cleaner", task="Go."), "Done.", inner=inner, approve=approve, environment={"clock": clock}
    )
    one = agent.prepare("Go.")
    began_s = clock.now()
    way(agent, one, [])
    assert one.result_so_far.function_calls[0].result == "It is clean."
    assert [step.at_s - began_s for step in one.record.trace if step.trigger == "approved"] == [3600]


@both
@pytest.mark.parametrize("is_handoff", [False, True])
def test_its_deadline_counts_from_the_moment_at_which_a_driver_begins_it_after_an_answer_given_by_hand(
    way: Way, is_handoff: bool
):
    clock, ids = FakeClock(), list[str]()

    @function
    def note(context: Context[Any]) -> str:
        """Note who calls."""
        ids.append(context.agent_call_id)
        return "noted"

    model, limits = Script(function_call("note"), "It is clean."), Limits(deadline_s=60)
    inner = Agent(model, functions=[note], name="cleaner", limits=limits, environment={"clock": clock})
    made = handoff(inner, name="cleaner", needs_approval=True) if is_handoff else inner.as_function(needs_approval=True)
    asked: dict[str, Any] = {"reason": "?"} if is_handoff else {"task": "Go."}
    agent = Agent(
        Script(function_call("cleaner", **asked), "Done."), functions=[made], name="boss", environment={"clock": clock}
    )
    one = agent.prepare("Go.")
    with suppress(CallSuspended):
        agent.run(one)
    clock.advance(3600)
    one.advance("ask:1.0", Approved())
    one = agent.restore(snapshot(one))
    way(agent, one, [])
    assert one.output == ("It is clean." if is_handoff else "Done.")
    if not is_handoff:
        assert one.result_so_far.function_calls[0].result == "It is clean."
    assert ids == [f"{one.record.id}/{'to:cleaner' if is_handoff else 'run:1.0'}"]


@pytest.mark.parametrize(("own_s", "timeout_s"), [(5, None), (500, 5.0), (5, 500.0)])
def test_a_deadline_of_its_own_ends_it_alone_the_shorter_of_two(own_s: float | None, timeout_s: float | None):
    clock = FakeClock()
    made = cleaner(limits=Limits(deadline_s=own_s)).as_function(timeout_s=timeout_s)
    agent = Agent(Script(function_call("cleaner", task="Go."), "Alas."), functions=[made], environment={"clock": clock})
    with pytest.raises(CallSuspended) as e:
        agent.call("Go.")
    clock.advance(6)
    result = agent.run(e.value.call)
    assert result.output == "Alas."
    assert "expired" in (result.function_calls[0].error or "")


@both
def test_a_call_that_is_cancelled_ends_the_request_of_an_agent_inside_at_once(way: Way):
    begun = threading.Event()
    model = StuckScript(begun)
    agent = boss(function_call("stuck", task="?"), inner=Agent(model, name="stuck"))
    one = agent.prepare("Go.")
    canceller = threading.Thread(target=lambda: (begun.wait(), one.cancel("enough")), daemon=True)
    canceller.start()
    with pytest.raises(CallFailed, match="enough"):
        way(agent, one, [])
    assert one.record.ending.reason is Reason.CANCELLED, "though the model does not reply"
    canceller.join()


# Errors and policies


def failing() -> Agent[Any, Any]:
    return Agent(Script("no number"), output=int, limits=Limits(parse_retries=0), name="failing")


def test_a_failure_is_told_or_is_the_call_s_or_has_a_default():
    told = Agent(Script(function_call("failing", task="?"), "Alas."), functions=[failing()]).call("Go.")
    assert "failing" in (told.function_calls[0].error or "")
    with pytest.raises(CallFailed) as e:
        Agent(Script(function_call("failing", task="?")), functions=[failing().as_function(on_error="fail")]).call(
            "Go."
        )
    assert e.value.call.record.ending.function == "failing"
    default = failing().as_function(on_error=Default(7))
    result = Agent(Script(function_call("failing", task="?"), "ok"), functions=[default]).call("Go.")
    assert result.function_calls[0].result == "7"


def test_a_task_that_no_agent_can_be_given_is_told():
    agent = boss([function_call("cleaner", task=" "), function_call("cleaner", task="")], "Alas.", inner=cleaner())
    result = agent.call("Go.")
    assert ["task" in (f.error or "") for f in result.function_calls] == [True, True]


def test_what_it_returns_is_formatted_and_not_shown_if_that_fails():
    inner = Agent(Script(*["[1, 2]"] * 3), output=list[int], name="lister")
    made = inner.as_function(format=lambda value, f: f"{len(value)} of them")
    result = Agent(Script(function_call("lister", task="?"), "ok"), functions=[made]).call("Go.")
    assert result.function_calls[0].result == "2 of them"
    broken = inner.as_function(format=lambda value, f: str(1 / 0), on_error=Default([3]))
    result = Agent(Script(function_call("lister", task="?"), "ok"), functions=[broken]).call("Go.")
    assert "ZeroDivisionError" in (result.function_calls[0].error or "")
    fatal = inner.as_function(format=lambda value, f: str(1 / 0), on_error="fail")
    with pytest.raises(CallFailed, match=r"lister.*ZeroDivisionError"):
        Agent(Script(function_call("lister", task="?")), functions=[fatal]).call("Go.")


@both
def test_agents_that_are_asked_together_work_side_by_side(way: Way):
    meeting = Meeting(2)

    class Waiting(Script):
        async def astream(self, request: Any, *, timeout_s: float | None = None) -> Any:
            await meeting.wait()
            async for item in super().astream(request):
                yield item

    inners = [Agent(Waiting(f"said {n}"), name=f"inner{n}") for n in range(2)]
    agent = Agent(Script([function_call(f"inner{n}", task="?") for n in range(2)], "ok"), functions=inners)
    one = agent.prepare("Go.")
    way(agent, one, [])
    assert [f.result for f in one.record.function_calls] == ["said 0", "said 1"]


def test_it_has_the_deps_of_the_call_that_asks():
    @function
    def who(context: Context[str]) -> str:
        """Who asks?"""
        return f"{context.deps} at {context.depth}"

    inner = Agent(
        Script(function_call("who"), lambda request: request.messages[-1].text), name="inner", functions=[who]
    )
    middle = Agent(
        Script(function_call("inner", task="?"), lambda request: request.messages[-1].text),
        functions=[inner],
        name="middle",
    )
    outer = Agent(Script(function_call("middle", task="?"), "ok"), functions=[middle])
    assert outer.call("Go.", deps="Ada").function_calls[0].result == "Ada at 2"


# An agent that takes the dialog over

OVER = "transfer_to_cleaner"


def test_its_tokens_are_counted_once_and_by_agent():
    helper = Agent(Script(spending("x", 100)), name="helper")
    other = Agent(Script(asking(10, "helper", task="?"), spending("ok", 20)), name="cleaner", functions=[helper])
    result = boss(asking(1, OVER), inner=handoff(other)).call("?")
    assert result.usage.input_tokens == 131
    by_agent = {path: usage.input_tokens for path, usage in result.usage_by_agent.items()}
    assert by_agent == {"": 1, f"to:{OVER}": 30, f"to:{OVER}/run:3.0": 100}


def test_its_rounds_are_rounds_of_the_call():
    """Of this turn, in which another agent is handed the dialog, and of the next, which begins with it."""

    def seen(result: Any) -> list[Any]:
        return [
            (one.number, one.text, one.requests, [f.id for f in one.function_calls], one.usage.input_tokens)
            for one in result.by_round
        ]

    replies = [asking(10, "erase", path="x"), spending("It is gone.", 20), asking(40, "look"), spending("Noon.", 80)]
    other = Agent(Script(*replies), name="cleaner", functions=[erase, Function.of(lambda: "a lamp", name="look")])
    agent = boss(asking(1, "nosuch"), asking(2, OVER), inner=handoff(other))
    with pytest.raises(CallSuspended) as suspended:
        agent.call("Tidy up.")
    before = [(1, "", 1, ["1.0"], 1), (2, "", 1, ["3.0"], 2)]
    assert seen(suspended.value.call.result_so_far) == [*before, (3, "", 1, [], 10)]
    suspended.value.call.advance(suspended.value.call.effects[0].key, Approved())
    first = agent.run(suspended.value.call)
    assert seen(first) == [*before, (3, "", 1, ["5.0"], 10), (4, "It is gone.", 1, [], 20)]
    assert [f.id for one in first.by_round for f in one.function_calls] == [f.id for f in first.function_calls]
    second = agent.call("When?", after=first)
    assert seen(second) == [(1, "", 1, ["9.0"], 40), (2, "Noon.", 1, [], 80)]
    assert [f.id for f in second.function_calls] == ["9.0"]


# Back and forth


def test_a_call_with_agents_inside_is_undone_redone_and_forked_step_by_step():
    agent = chain(approve=lambda f: True)
    one = agent.prepare("Go.").journaled()
    agent.run(one)
    states = one.states
    assert [record.ending is None for record in states] == [True] * (len(states) - 1) + [False]
    assert any(record.children for record in states)
    for record in reversed(states[:-1]):
        one.undo()
        assert one.record == record
        assert [effect.key for effect in one.effects] == [effect.key for effect in agent_call(one, record).effects]
    for record in states[1:]:
        one.redo()
        assert one.record == record
    assert one.output == "Done."
    wanted = [[effect.key for effect in agent_call(one, record).effects] for record in states]
    other = one.fork(wanted.index(["run:1.0/run:1.0/ask:1.0"]))
    assert [effect.key for effect in other.effects] == ["run:1.0/run:1.0/ask:1.0"]


def agent_call(one: AgentCall[Any], record: Any) -> AgentCall[Any]:
    return type(one)(record, one.prompt, has_approver=one.has_approver)


def test_the_fingerprint_of_a_prompt_changes_with_the_agents_inside():
    def fingerprint(**options: Any) -> str:
        return boss(inner=cleaner(**options)).prompt.fingerprint

    assert fingerprint() == fingerprint()
    systems = ["", "Never delete.", "Delete all.", Prompt("Delete {what}."), lambda deps: "Delete all."]
    assert len({fingerprint(output=int), *(fingerprint(system=system) for system in systems)}) == 6


def test_a_call_of_an_agent_that_is_a_function_no_more_is_told():
    agent = boss(function_call("cleaner", task="Go."), inner=cleaner(), store=MemoryStore())
    with pytest.raises(CallSuspended):
        agent.call("Go.", run_id="r1")
    later = replace(agent, model=Script("Pity."), functions=[])
    result = later.runs.resume("r1")
    assert (result.output, result.record.children) == ("Pity.", {})
    assert "cleaner" in (result.function_calls[0].error or "")


@both
def test_the_time_of_an_agent_inside_is_that_of_its_call(way: Way) -> None:
    clock = FakeClock()
    inner = Agent(Script(Delayed(3.0, "found"), clock=clock), name="searcher", environment={"clock": clock})
    outer = boss(function_call("searcher", task="x"), "done", inner=inner, environment={"clock": clock})
    one = outer.prepare("?")
    way(outer, one, [])
    (asked,) = one.record.function_calls
    assert (asked.duration_s, asked.round) == (3, 1)
