"""Is every change of a dialog told, as positions, before the step that makes it, to those who listen alone?"""

from __future__ import annotations

import asyncio
import pickle
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from support.agent_drivers import Way, by_astream, by_run

from fsm_agent import Agent, CallFailed, Limits, Message, Stepped, function, handoff
from fsm_agent.call import Injected, snapshot
from fsm_agent.flows import Flow, end
from fsm_agent.flows import ask as ask
from fsm_agent.messages import (
    Done,
    Event,
    FunctionEnded,
    FunctionStarted,
    HistoryChanged,
    Inside,
    ReplyCompleted,
    RequestStarted,
)
from fsm_agent.testing import Script, function_call

ways = pytest.mark.parametrize("way", [by_run, by_astream], ids=lambda way: way.__name__)
BEGINNING = 1  # the task


@function
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def of_calls(events: list[Event], path: str = "") -> list[Event]:
    """The events of one call among all."""
    return [
        told
        for event in events
        for where, told in [(event.path, event.event) if isinstance(event, Inside) else ("", event)]
        if where == path
    ]


def changes(events: list[Event], path: str = "") -> list[tuple[tuple[int, int], tuple[int, int]]]:
    return [(e.added, e.removed) for e in of_calls(events, path) if isinstance(e, HistoryChanged)]


def assert_told_of_all(events: list[Event], length: int, final: int, path: str = "") -> None:
    """The changes, one after another, lead to what each request shows, and to the dialog at the end."""
    for event in of_calls(events, path):
        if isinstance(event, HistoryChanged):
            assert event.removed[1] == length
            assert event.removed[0] == event.added[0] <= event.added[1]
            length = event.added[1]
        elif isinstance(event, RequestStarted):
            assert event.messages == length
    assert length == final


@ways
def test_a_reply_and_the_results_of_a_round_are_told_before_their_step(way: Way):
    agent = Agent(Script([function_call("add", a=1, b=2), function_call("add", a=3, b=4)], "7"), functions=[add])
    heard: list[Event] = []
    way(agent, one := agent.prepare("3 + 4?"), heard)
    shown = [type(event).__name__ for event in heard]
    wanted = (RequestStarted, ReplyCompleted, HistoryChanged, Stepped, FunctionEnded, Done)
    assert [name for name in shown if name in [kind.__name__ for kind in wanted]] == [
        *["Stepped", "RequestStarted", "ReplyCompleted", "HistoryChanged", "Stepped"],
        *["FunctionEnded", "Stepped", "FunctionEnded", "HistoryChanged", "Stepped"],
        *["RequestStarted", "ReplyCompleted", "HistoryChanged", "Stepped", "Done"],
    ]
    assert changes(heard) == [((1, 2), (1, 1)), ((2, 4), (2, 2)), ((4, 5), (4, 4))]
    assert_told_of_all(heard, BEGINNING, len(one.record.dialog))


@ways
def test_a_refused_answer_is_added_and_removed_again_when_the_branch_is_pruned(way: Way):
    agent = Agent(Script("seven", "no", "7"), output=int)
    heard: list[Event] = []
    way(agent, one := agent.prepare("3 + 4?"), heard)
    assert changes(heard) == [((1, 3), (1, 1)), ((3, 5), (3, 3)), ((1, 2), (1, 5))]
    assert_told_of_all(heard, BEGINNING, len(one.record.dialog))


def test_a_branch_that_ends_with_the_call_is_removed():
    agent = Agent(Script("seven", "no"), output=int, limits=Limits(parse_retries=1))
    heard: list[Event] = []
    with pytest.raises(CallFailed):
        agent.run(agent.prepare("3 + 4?"), heard.append)
    assert changes(heard) == [((1, 3), (1, 1)), ((1, 1), (1, 3))]


def test_a_message_that_a_listener_injects_is_part_of_the_next_change():
    agent = Agent(Script(function_call("add", a=1, b=2), "3"), functions=[add])
    one = agent.prepare("1 + 2?")
    heard: list[Event] = []

    def sink(event: Event) -> None:
        heard.append(event)
        if isinstance(event, FunctionStarted):
            one.advance("", Injected((Message.of("user", "Quick."),)))

    agent.run(one, sink)
    assert changes(heard) == [((1, 2), (1, 1)), ((2, 4), (2, 2)), ((4, 5), (4, 4))]


@ways
def test_calls_inside_have_changes_of_their_own(way: Way):
    inner = Agent(Script(function_call("add", a=1, b=2), "3"), functions=[add], name="inner")
    agent = Agent(Script(function_call("inner", task="1 + 2?"), "It is 3."), functions=[inner])
    heard: list[Event] = []
    way(agent, one := agent.prepare("Go."), heard)
    assert changes(heard, "run:1.0") == [((1, 2), (1, 1)), ((2, 3), (2, 2)), ((3, 4), (3, 3))]
    assert changes(heard) == [((1, 2), (1, 1)), ((2, 3), (2, 2)), ((3, 4), (3, 3))]
    assert_told_of_all(heard, BEGINNING, len(one.record.dialog))
    own = [type(event).__name__ for event in of_calls(heard)]
    at = own.index("FunctionEnded")
    assert own[at : at + 3] == ["FunctionEnded", "HistoryChanged", "Stepped"]


@ways
def test_a_handoff_is_told_and_so_is_what_comes_back(way: Way):
    other = Agent(Script(function_call("add", a=1, b=2), "3"), functions=[add], name="adder")
    agent = Agent(Script(function_call("transfer_to_adder", reason="sums")), functions=[handoff(other)])
    heard: list[Event] = []
    way(agent, one := agent.prepare("1 + 2?"), heard)
    assert changes(heard) == [((1, 3), (1, 1)), ((3, 6), (3, 3))]
    assert changes(heard, "to:transfer_to_adder") == [((3, 4), (3, 3)), ((4, 5), (4, 4)), ((5, 6), (5, 5))]
    assert len(one.record.dialog) == 6


@dataclass(frozen=True)
class Sum:
    text: str = ""


def sums(*replies: Any, **options: Any) -> Flow[Sum]:
    adder = Agent(Script(*replies), functions=[add], name="adder", **options)

    @ask(adder)
    def one(d: Sum) -> str:
        return "1 + 2?"

    return Flow("sums", Sum, start=one, rows=[one.done(end("over"))])


class Notes:
    def __init__(self) -> None:
        self.told: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.told.append(event)


@pytest.mark.parametrize("is_async", [False, True])
def test_calls_in_flows_are_told_to_their_hooks_before_they_are_done(is_async: bool):
    notes = Notes()
    flow = sums(function_call("add", a=1, b=2), "3", hooks=[notes])
    if is_async:
        asyncio.run(flow.acall(Sum()))
    else:
        flow.call(Sum())
    assert changes(notes.told) == [((1, 2), (1, 1)), ((2, 3), (2, 2)), ((3, 4), (3, 3))]
    assert [type(event).__name__ for event in notes.told[-3:]] == ["HistoryChanged", "Stepped", "Done"]


@pytest.mark.parametrize("is_pickled", [False, True])
def test_a_flow_inside_of_a_call_is_told_of_from_where_its_snapshot_stands(is_pickled: bool):
    """A pickled call holds the run only as text, until its process is made."""

    def boss(*replies: Any, inner: Any) -> Agent[Any, Any]:
        return Agent(Script(*replies), functions=[sums(*inner).as_function(returns=lambda d: "fine")], name="boss")

    agent = boss(function_call("sums", text="x"), inner=(function_call("add", a=1, b=2),))
    one = agent.prepare("Go.")
    path = ""
    for event in agent.stream(one):
        if isinstance(event, Inside) and isinstance(event.event, FunctionStarted):
            path = event.path
            break
    later = boss("Done.", inner=("3",))
    heard: list[Event] = []
    for request in [None, "off"]:
        again: Any = later.restore(snapshot(one))
        if is_pickled:
            again.forget_children()
            again.return_to(pickle.loads(pickle.dumps(again.record)))
            assert again.record.children["run:1.0"].is_outline
        if request:
            again.cancel(request)
        heard.clear()
        later_run(later, again, heard)
        dialog_grows = [((2, 3), (2, 2))] if request else [((2, 3), (2, 2)), ((3, 4), (3, 3))]
        assert changes(heard, path) == dialog_grows


def later_run(agent: Agent[Any, Any], one: Any, heard: list[Event]) -> None:
    with suppress(CallFailed):
        agent.run(one, heard.append)
