"""Can a run be read as it was, and forked from there, without a trace in the run itself?"""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import Agent, Context, MemoryStore, Worker
from fsm_agent.call import Returned
from fsm_agent.diagrams import render
from fsm_agent.errors import IllegalTrigger, ReplayError, UsageError
from fsm_agent.flows import (
    Flow,
    FlowError,
    FlowSuspended,
    ask,
    each,
    end,
    execute,
    flow_diagram,
    renamed,
    run_diagram,
    subflow,
    wait,
)
from fsm_agent.store import MemoryStore as Memory
from fsm_agent.store import RunBusy, RunExists, RunUnknown
from fsm_agent.testing import FakeClock, Script


@dataclass(frozen=True)
class Letter:
    about: str = ""
    text: str = ""
    rounds: int = 0


def is_refused(d: Letter, a: str) -> bool:
    return a != "fine"


def noted(d: Letter) -> str:
    return "x"


sent: list[tuple[str, str]] = []


def send(d: Letter, context: Context[Any]) -> str:
    """Send it."""
    sent.append((context.idempotency_key or "", d.text))
    return "sent"


def letters(store: Any = None, *said: str, **options: Any) -> Flow[Letter]:
    """A clerk writes, a person reviews, and a function sends."""
    clerk = Agent(Script(*(said or ("Dear one", "Dear two", "Dear three"))), name="clerk")

    @ask(clerk, name="writing")
    def writing(d: Letter) -> str:
        return f"Write about {d.about}, round {d.rounds}."

    @wait(str, name="review")
    def review(d: Letter) -> str:
        return d.text

    sending = execute(name="sending", once=True)(send)
    return Flow(
        "letters",
        Letter,
        start=writing,
        rows=[
            writing.done(review, do=lambda d, a: replace(d, text=a)),
            review.done(writing, when=is_refused, do=lambda d, a: replace(d, rounds=d.rounds + 1)),
            review.done(sending),
            sending.done(end("over")),
        ],
        store=store if store is not None else MemoryStore(),
        **options,
    )


def reviewed(store: Any = None, *said: str, **options: Any) -> Flow[Letter]:
    """The flow, with a run "a" that waits for the second review: entries 1 to 4, writing#3 has ended."""
    sent.clear()
    flow = letters(store, *said, **options)
    with suppress(FlowSuspended):
        flow.call(Letter("rain"), run_id="a")
    with suppress(FlowSuspended):
        flow.runs.resume("a", {"answer:review#2": Returned(text='"again"')}, by="ann")
    return flow


def triggers(run: Any) -> list[str]:
    return [step.trigger for step in run.record.trace]


@pytest.fixture
def store() -> Any:
    return MemoryStore()


# To read a run as it was


def test_a_run_is_seen_as_it_was_after_each_step(store: Any) -> None:
    flow = reviewed(store)
    seen = [(run.state, run.data.text, run.data.rounds) for run in (flow.runs.at("a", step) for step in range(5))]
    assert seen == [
        ("Seeded", "", 0),
        ("writing", "", 0),
        ("review", "Dear one", 0),
        ("writing", "Dear one", 1),
        ("review", "Dear two", 1),
    ]
    assert flow.runs.at("a", 4).snapshot() == flow.runs.at("a").snapshot() == flow.runs.replay("a").snapshot()
    assert flow.runs.at("a", 2).result_so_far.output.text == "Dear one"


@pytest.mark.parametrize(
    "step",
    [5, -1, True, 2.0, "review#3", ""],
)
def test_a_step_that_is_not_there_is_refused_by_name(step: Any) -> None:
    flow = reviewed()
    for verb in (flow.runs.at, flow.runs.fork):
        with pytest.raises(UsageError, match=re.escape(repr(step))):
            verb("a", step)


def test_a_run_is_read_while_another_drives_it(tmp_path: Path) -> None:
    """Reading needs no lease, and takes none.  A store in memory is written to when the run rests."""
    flow = letters(tmp_path / "runs.db")
    seen: list[Any] = []

    def peek(question: Any) -> str:
        seen.append([flow.runs.at("a", step).state for step in (0, 1, 2, None)])
        with pytest.raises(RunBusy):
            flow.runs.resume("a")
        return "fine"

    assert replace(flow, answer=peek, store=flow.runs.all).call(Letter("rain"), run_id="a").state == "over"
    assert seen == [["Seeded", "writing", "review", "review"]]
    assert flow.runs.at("a").state == "over"
    assert flow.runs.at("a", "review#2").data.text == "Dear one"


def test_a_state_that_was_left_in_the_entry_that_entered_it_is_named() -> None:
    note = execute(name="note")(noted)
    none = each("none", execute(name="one")(noted), lambda d: ())
    asked = wait(str, name="asked")(lambda d: "?")
    rows = [note.done(none), none.done(asked), asked.done(end("over"))]
    flow = Flow("empty", Letter, start=note, rows=rows, store=MemoryStore())
    with suppress(FlowSuspended):
        flow.call(Letter(), run_id="a")
    assert flow.runs.at("a", "asked#3").journal.n == 2
    with pytest.raises(UsageError, match="none#2"):
        flow.runs.at("a", "none#2")


def test_notes_of_functions_that_must_not_run_twice_are_no_steps_that_were_entered() -> None:
    flow = reviewed()
    flow.runs.resume("a", {"answer:review#4": Returned(text='"fine"')})
    assert triggers(flow.runs.at("a"))[-3:] == ["done", "started", "done"]
    assert flow.runs.at("a", "sending#5").journal.n == 5
    assert flow.runs.at("a", "over#6").journal.n == 7


# Forks


@pytest.mark.parametrize("drive", ["resume", "aresume", "worker"])
@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_fork_continues_and_its_run_does_not_notice(drive: str, kind: str, tmp_path: Path) -> None:
    flow = reviewed(MemoryStore() if kind == "memory" else tmp_path / "runs.db")
    before = flow.runs.all.store.load("a")
    assert flow.runs.fork("a", "review#2", new_run_id="b", by="bob") == "b"
    assert flow.runs.at("b").record.id == "b"
    fork = flow.runs.all.store.load("b").run
    assert (fork.state, [question.key for question in fork.waits], fork.due_s, fork.holder) == (
        "review",
        ["answer:review#2"],
        None,
        None,
    )
    if drive == "worker":
        flow.runs.all.answer("b", {"answer:review#2": Returned(text='"fine"')})
        assert Worker([flow], flow.runs.all).run(once=True) == 1
        result = flow.runs.resume("b")
    elif drive == "aresume":
        result = asyncio.run(flow.runs.aresume("b", {flow.states["review"]: "fine"}))
    else:
        result = flow.runs.resume("b", {flow.states["review"]: "fine"})
    assert (result.state, result.output) == ("over", Letter("rain", "Dear one"))
    assert sent == [("b/sending#3", "Dear one")]
    assert flow.runs.all.store.load("a") == before
    assert flow.runs.replay("b").snapshot() == flow.runs.at("b").snapshot()


def test_keys_of_functions_never_repeat_those_of_the_run(store: Any) -> None:
    flow = reviewed(store)
    for name in ("b", None):
        name = flow.runs.fork("a", "review#2", new_run_id=name)
        flow.runs.resume(name, {"answer:review#2": Returned(text='"fine"')})
    flow.runs.resume("a", {"answer:review#4": Returned(text='"fine"')})
    run = flow.runs.at("a", "review#2").forked()
    run.give(flow.states["review"], "fine")
    flow.run(run)
    keys = [key for key, _ in sent]
    assert len(set(keys)) == len(keys) == 4
    assert not run.journal


def test_the_ids_of_all_that_is_inside_are_those_of_the_fork(store: Any) -> None:
    inner = letters().bound()
    inside = subflow("inside", replace(inner, store=None), lambda d: d)
    many = each("many", inside, lambda d: (d, d))
    flow = Flow("outer", Letter, start=many, rows=[many.done(end("over"))], store=store)
    with suppress(FlowSuspended):
        flow.call(Letter("a"), run_id="a")  # the name of the run is text in the data, too
    name = flow.runs.fork("a", 1)
    for run in (flow.runs.at(name), flow.runs.replay(name), flow.runs.at("a", 1).forked()):
        ids: list[str] = []

        def note(record: Any, ids: list[str] = ids) -> None:
            ids.append(record.id)
            for child in record.children.values():
                note(child)

        note(run.record)
        assert len(ids) == 6
        assert {id.partition("/")[0] for id in ids} == {run.record.id}
        assert run.record.id != "a"
        assert [child.data.about for child in run.record.children["many#1"].children.values()] == ["a", "a"]


def test_a_fork_is_made_once(store: Any) -> None:
    flow = reviewed(store)
    flow.runs.fork("a", 2, new_run_id="b", by="bob", data=Letter("snow"))
    before = flow.runs.all.store.load("b")
    assert flow.runs.fork("a", "review#2", new_run_id="b", by="bob", data=Letter("snow")) == "b"
    assert flow.runs.all.store.load("b") == before
    others: list[dict[str, Any]] = [{"step": 3}, {"by": "cem"}, {"data": Letter("hail")}, {"data": None}]
    for other in others:
        with pytest.raises(RunExists, match="'b'"):
            flow.runs.fork("a", **{"step": 2, "by": "bob", "data": Letter("snow"), "new_run_id": "b", **other})
    with pytest.raises(RunExists):
        flow.runs.fork("a", 2, new_run_id="a")
    with pytest.raises(RunExists, match="fork"):
        flow.call(Letter("rain"), run_id="b")
    with pytest.raises(RunUnknown):
        flow.runs.fork("nowhere")


def test_the_fork_of_a_fork_has_its_own_beginning(store: Any) -> None:
    flow = reviewed(store)
    flow.runs.fork("a", 4, data=Letter("snow", "Dear snow"), new_run_id="b", by="ann")
    flow.runs.fork("b", 5, data=Letter("hail", "Dear hail"), new_run_id="c", by="bob")
    run = flow.runs.replay("c")
    assert triggers(run)[-2:] == ["edited", "edited"]
    assert [step.detail for step in run.record.trace[-2:]] == ["by ann", "by bob"]
    assert flow.runs.at("c", 5).data == Letter("snow", "Dear snow")
    assert flow.runs.at("c").data == run.data == Letter("hail", "Dear hail")
    assert flow.runs.resume("c", {"answer:review#6": Returned(text='"fine"')}).output.text == "Dear hail"


# Edits


@pytest.mark.parametrize("is_stored", [True, False])
def test_an_edit_enters_the_state_anew_and_says_who_made_it(is_stored: bool, store: Any) -> None:
    flow = reviewed(store)
    if is_stored:
        run = flow.runs.at(flow.runs.fork("a", 4, data=Letter("snow", "Dear snow"), by="ann"))
    else:
        run = flow.runs.at("a", 4).forked(Letter("snow", "Dear snow"), by="ann")
    step = run.record.trace[-1]
    assert (step.source, step.trigger, step.to, step.key, step.detail) == ("review", "edited", "review", "", "by ann")
    assert step.at_s >= run.record.trace[-2].at_s
    assert ([effect.key for effect in run.effects], run.data) == (["answer:review#5"], Letter("snow", "Dear snow"))
    assert flow.runs.at("a", 4).data.text == "Dear two"


def test_an_agent_is_asked_anew_about_other_data(store: Any) -> None:
    flow = reviewed(store, "Dear one", "Dear two", "Dear snow")
    name = flow.runs.fork("a", "writing#1", data=Letter("snow"))
    with pytest.raises(FlowSuspended):
        flow.runs.resume(name)
    script: Any = flow.states["writing"].agent.model
    assert script.requests[-1].messages[-1].text == "Write about snow, round 0."
    assert flow.runs.at(name).data == Letter("snow", "Dear snow")
    assert triggers(flow.runs.at(name)) == ["begun", "edited", "done"]
    assert flow.runs.replay(name).snapshot() == flow.runs.at(name).snapshot()


def test_what_was_used_before_an_edit_was_used(store: Any) -> None:
    flow = reviewed(store)
    past = flow.runs.at("a", 3)
    assert past.forked(Letter("snow")).record.total_usage == past.record.total_usage


def test_the_time_of_a_state_begins_anew_with_an_edit_alone() -> None:
    clock = Script().clock
    asked = wait(str, name="asked", within_s=100.0)(lambda d: "?")
    rows = [asked.done(end("over")), asked.elapsed(end("late"))]
    flow = Flow("timed", Letter, start=asked, rows=rows, store=MemoryStore(), environment={"clock": clock})
    with suppress(FlowSuspended):
        flow.runs.all.claims.patience_s = 0.0
        flow.call(Letter(), run_id="a")
    began_s = flow.runs.at("a").record.entered_at_s
    clock.sleep(60.0)
    same, edited = flow.runs.at(flow.runs.fork("a")), flow.runs.at(flow.runs.fork("a", data=Letter("snow")))
    assert same.deadline.at_s == began_s + 100.0
    assert edited.deadline.at_s == began_s + 160.0
    assert flow.runs.all.store.load(edited.journal.run).run.due_s == began_s + 160.0
    assert flow.runs.at("a").forked().deadline.at_s == began_s + 100.0
    assert flow.runs.at("a").forked(Letter("snow")).deadline.at_s == began_s + 160.0


def test_data_of_another_type_are_refused(store: Any) -> None:
    flow = reviewed(store)
    wrong: Any
    for wrong in ("snow", {"about": "snow"}, Letter(about=3)):  # type: ignore[arg-type]
        with pytest.raises(FlowError, match="letters"):
            flow.runs.fork("a", data=wrong, new_run_id="b")
        with pytest.raises(FlowError, match="letters"):
            flow.runs.at("a").forked(wrong)
    assert [run.id for run in flow.runs.all.store.list()] == ["a"]


def test_only_a_state_can_be_entered_anew(store: Any) -> None:
    flow = reviewed(store)
    flow.runs.resume("a", {"answer:review#4": Returned(text='"fine"')})
    for step in (0, None):
        with pytest.raises(UsageError):
            flow.runs.fork("a", step, data=Letter("snow"))
        with pytest.raises(UsageError):
            flow.runs.at("a", step).forked(Letter("snow"))
    assert flow.runs.resume(flow.runs.fork("a")).output == flow.runs.at("a").data, "a fork of what has ended has ended"
    assert flow.runs.at("a", 0).forked().record.id == ""


def test_an_edit_that_the_state_cannot_take_leaves_no_fork() -> None:
    @wait(str, name="asked")
    def asked(d: Letter) -> Any:
        return d.text or None

    flow = Flow("asking", Letter, start=asked, rows=[asked.done(end("over"))], store=MemoryStore())
    with suppress(FlowSuspended):
        flow.call(Letter(text="?"), run_id="a")
    with pytest.raises(FlowError, match="'asked'"):
        flow.runs.fork("a", data=Letter(), new_run_id="b")
    assert [run.id for run in flow.runs.all.store.list()] == ["a"]


def test_no_live_run_is_edited() -> None:
    flow = reviewed()
    fork = flow.runs.fork("a", data=Letter("snow"))
    entry = json.loads(flow.runs.all.store.load(fork).lines[-1])
    edit: Any = flow.runs.at(fork).decode(entry["key"], json.dumps(entry["outcome"]))
    assert edit.kind == "edited"
    with pytest.raises(UsageError):
        flow.runs.all.answer("a", {"": edit})
    run = flow.prepare(Letter())
    with pytest.raises((IllegalTrigger, FlowError, ValueError)):
        run.advance("", edit)


# Functions that must not run twice


@pytest.mark.parametrize("has_data", [True, False])
def test_a_fork_in_the_midst_of_a_function_that_must_not_run_twice_is_refused(has_data: bool, store: Any) -> None:
    flow = reviewed(store)
    flow.runs.resume("a", {"answer:review#4": Returned(text='"fine"')})
    data = Letter("snow") if has_data else None
    assert triggers(flow.runs.at("a", 6))[-1] == "started"
    words = "run:sending#5"
    with pytest.raises(UsageError, match=words):
        flow.runs.fork("a", 6, data=data)
    with pytest.raises(UsageError, match=words):
        flow.runs.at("a", 6).forked(data)
    assert len(sent) == 1
    name = flow.runs.fork("a", 5)
    flow.runs.resume(name)
    assert sent[1] == (f"{name}/sending#5", "Dear two"), "the start was not common"
    flow.runs.resume(flow.runs.fork("a", 7))
    assert len(sent) == 2, "its end was common"


# What goes wrong


class Unfinished(Memory):
    """A store in which the maker of a fork dies just after it was created."""

    is_dying = False

    def append(self, *args: Any, **options: Any) -> int:
        if self.is_dying:
            raise KeyboardInterrupt
        return super().append(*args, **options)


@pytest.mark.parametrize("data", [None, Letter("snow", "Dear snow")])
def test_a_fork_whose_maker_died_has_its_entries_and_its_edit(data: Letter | None) -> None:
    clock = FakeClock()
    store = Unfinished(clock.now)
    flow = reviewed(store)
    store.is_dying = True
    with pytest.raises(KeyboardInterrupt):
        flow.runs.fork("a", 4, data=data, new_run_id="b", by="ann")
    store.is_dying = False
    assert flow.runs.at("b").data == (data or Letter("rain", "Dear two", 1))
    clock.advance(60.0)  # beyond the lease of the maker
    for _ in "12":
        with pytest.raises(FlowSuspended):
            flow.runs.resume("b")
        assert flow.runs.at("b").data == (data or Letter("rain", "Dear two", 1))
        assert triggers(flow.runs.at("b")).count("edited") == (data is not None)


def test_the_run_of_another_flow_is_named() -> None:
    flow = reviewed()
    other = Flow("others", Letter, start=flow.start, rows=flow.rows, store=flow.runs.all)
    for verb in (other.runs.at, other.runs.fork):
        with pytest.raises(UsageError, match="letters"):
            verb("a", 2)


def test_a_run_of_an_older_version_is_read_from_its_last_rest_on(store: Any) -> None:
    @wait(str, name="person")
    def person(d: Letter) -> str:
        return "What is it about?"

    @wait(str, name="customer")
    def customer(d: Letter) -> str:
        return "What is it about?"

    old = Flow("notes", Letter, start=person, rows=[person.done(end("over"))], store=store)
    with suppress(FlowSuspended):
        old.call(Letter("rain"), run_id="a")
    new = Flow(
        "notes",
        Letter,
        start=customer,
        rows=[customer.done(end("over"), do=lambda d, a: Letter(a))],
        version=2,
        upgrades={1: renamed(person="customer")},
        store=old.runs.all,
    )
    assert (new.runs.at("a").state, new.runs.at("a", 1).state, new.runs.at("a", "customer#1").state) == (
        "customer",
    ) * 3
    name = new.runs.fork("a", data=Letter("snow"), by="ann")
    assert new.runs.resume(name, {customer: "hail"}).output == Letter("hail")
    assert old.runs.at("a").state == "person"
    assert triggers(new.runs.at(name)) == ["begun", "edited", "done"]


def test_steps_that_the_present_code_takes_otherwise_are_refused_with_what_can_be_read(store: Any) -> None:
    flow = reviewed(store)
    writing, sending = flow.states["writing"], flow.states["sending"]
    review: Any = flow.states["review"]
    rows = [writing.done(sending), review.done(end("over")), sending.done(review)]  # type: ignore[attr-defined]
    changed = Flow("letters", Letter, start=flow.start, rows=rows, store=flow.runs.all)
    assert changed.runs.at("a").state == "review"
    with pytest.raises(ReplayError, match="step 4"):
        changed.runs.at("a", 3)
    name = changed.runs.fork("a", data=Letter("snow", "Dear snow"))
    assert changed.runs.resume(name, {review: "fine"}).state == "over"


# What is seen of it


def test_who_answered_is_in_the_journal(store: Any) -> None:
    flow = reviewed(store)
    lines = [json.loads(line) for line in flow.runs.all.store.load("a").lines]
    assert [line.get("by") for line in lines] == [None, None, "ann", None]
    name = flow.runs.fork("a", 4)
    copied = [json.loads(line) for line in flow.runs.all.store.load(name).lines]
    assert [line.get("by") for line in copied] == [None, None, "ann", None]
    assert flow.runs.replay("a").snapshot() == flow.runs.at("a").snapshot()


def test_pictures_show_an_edit() -> None:
    flow = reviewed()
    run = flow.runs.at("a").forked(Letter("snow"), by="ann")
    assert "edited" in render(run_diagram(run), "mermaid")
    assert "edited" not in render(run_diagram(flow.runs.at("a")), "mermaid")
    assert "edited" not in render(flow_diagram(flow), "mermaid")
