"""Is a run that a person approved of never gone on with by code that cannot act on the approval?"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from fsm_agent.agents import Agent
from fsm_agent.call import Approved, CallSuspended, Denied, Modified, Outcome, snapshot
from fsm_agent.errors import OutcomeError, ReplayError, SnapshotError
from fsm_agent.flows import Flow, FlowSuspended, ask, end
from fsm_agent.functions import function
from fsm_agent.store import MemoryStore
from fsm_agent.testing import Script, function_call
from fsm_agent.workers import Worker

STUCK = "stuck"
CENTS = '{"cents": 5}'
done: list[int] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()


@function(needs_approval=True)
def refund(cents: int) -> str:
    """Pay back."""
    done.append(cents)
    return f"{cents} paid back"


@function(needs_approval=True)
def refund_order(order: str) -> str:
    """Pay back an order."""
    return order


@function(name="refund", needs_approval=True)
def refund_of_order(order: str) -> str:
    """Pay back an order."""
    return order


@function(needs_approval=True)
def note(text: str) -> str:
    """Take a note."""
    return text


GONE, OTHER = (refund_order, note), (refund_of_order, note)  # the function, and its signature

Make = Callable[..., Any]  # of a store, functions, and what the clerk's model says; of a process of the OS each


def plain(store: Any, functions: tuple[Any, ...], *said: Any) -> Any:
    return Agent(Script(*said), functions=functions, store=store, name="clerk")


def outer(store: Any, functions: tuple[Any, ...], *said: Any) -> Any:
    """The clerk inside of another agent."""
    inner = Agent(Script(*said), functions=functions, name="clerk")
    begins = said[-1:] != ("Done.",)
    return Agent(
        Script(function_call("clerk", task="?") if begins else "Done."), functions=[inner], store=store, name="desk"
    )


def flow(store: Any, functions: tuple[Any, ...], *said: Any) -> Any:
    """The clerk in a state of a flow."""
    work = ask(Agent(Script(*said), functions=functions, name="clerk"), name="work")(lambda d: "Pay it back.")
    over = end("over")
    return Flow("desk", str, start=work, rows=[work.done(over), work.failed(over)], store=store)


PATHS = {plain: "", outer: "run:1.0/", flow: "work#1/"}
MAKES = pytest.mark.parametrize("make", PATHS, ids=lambda make: make.__name__)
CODES = pytest.mark.parametrize("code", [GONE, OTHER], ids=["gone", "other arguments"])


def begun(make: Make, store: Any, *requested: Any) -> str:
    """Begin a run that waits for approvals, and return the path of their questions."""
    first = make(store, (refund, note), list(requested) or function_call("refund", cents=5))
    with pytest.raises((CallSuspended, FlowSuspended)):
        first.call("Pay it back.", run_id="r")
    return PATHS[make]


def question(store: Any) -> tuple[str, str]:
    """Return the key and the words of the only question of the run."""
    (waits,) = store.load("r").run.waits
    return waits.key, json.loads(waits.about)["problem"]


def by_resume(one: Any, posted: dict[str, Outcome]) -> None:
    with pytest.raises(ReplayError, match="'refund'"):
        one.runs.resume("r", posted)


def by_aresume(one: Any, posted: dict[str, Outcome]) -> None:
    with pytest.raises(ReplayError, match="'refund'"):
        asyncio.run(one.runs.aresume("r", posted))


def by_worker(one: Any, posted: dict[str, Outcome]) -> None:
    one.runs.all.answer("r", posted)
    Worker([one], one.runs.all).advance()


@pytest.mark.parametrize(
    ("make", "code", "verdict", "way"),
    [
        (plain, GONE, Approved(), by_resume),
        (plain, OTHER, Modified(CENTS), by_aresume),
        (plain, OTHER, Approved(), by_worker),
        (outer, GONE, Modified(CENTS), by_worker),
        (outer, OTHER, Approved(), by_resume),
        (flow, GONE, Approved(), by_aresume),
        (flow, OTHER, Modified(CENTS), by_worker),
    ],
)
def test_it_asks_and_names_what_has_changed_and_goes_on_with_the_code_of_before(
    make: Make, code: Any, verdict: Outcome, way: Callable[..., None]
):
    store = MemoryStore()
    path = begun(make, store)
    after = make(store, code, "Done.")
    way(after, {f"{path}ask:1.0": verdict})
    assert store.load("r").run.state == "Stuck"
    key, problem = question(store)
    assert (key, done) == (STUCK, [])
    assert "'refund'" in problem
    make(store, (refund, note), "Done.").runs.resume("r")
    assert (done, store.load("r").run.is_ended) == ([5], True)


@MAKES
def test_an_approval_that_the_journal_has_already_is_kept_as_well(make: Make):
    """The first of two approvals is on record when the code changes, and the second comes then."""
    store = MemoryStore()
    path = begun(make, store, function_call("refund", cents=5), function_call("note", text="x"))
    before = make(store, (refund, note), "Done.")
    with pytest.raises((CallSuspended, FlowSuspended)):
        before.runs.resume("r", {f"{path}ask:1.0": Approved()})
    by_resume(make(store, GONE), {f"{path}ask:1.1": Approved()})
    assert "'refund'" in question(store)[1]
    make(store, (refund, note), "Done.").runs.resume("r")
    assert done == [5]


@pytest.mark.parametrize(("make", "code"), [(plain, GONE), (plain, OTHER), (outer, GONE), (flow, OTHER)])
def test_nobody_approves_of_what_the_code_cannot_run(make: Make, code: Any):
    """Until it can, the run keeps asking.  A refusal is accepted."""
    store = MemoryStore()
    path = begun(make, store)
    with pytest.raises((CallSuspended, FlowSuspended)):
        make(store, code, "Done.").runs.resume("r")
    assert [waits.key for waits in store.load("r").run.waits] == [f"{path}ask:1.0"]
    make(store, code, "Done.").runs.resume("r", {f"{path}ask:1.0": Denied("no")})
    assert (done, store.load("r").run.is_ended) == ([], True)


@CODES
def test_an_approver_is_not_asked_about_what_the_code_cannot_run(code: Any):
    store, asked = MemoryStore(), []
    begun(plain, store)
    with pytest.raises(CallSuspended, match=r"ask:1\.0"):
        plain(store, code).changed(approve=lambda f: asked.append(f.name) or True).runs.resume("r")
    assert asked == []


def test_an_approval_that_comes_while_the_run_is_driven_is_kept():
    """It waits for two, is driven by the new code as one is denied, and the other is approved meanwhile."""
    store = MemoryStore()
    begun(plain, store, function_call("refund", cents=5), function_call("note", text="x"))
    after = plain(store, GONE)
    after.runs.all.answer("r", {"ask:1.1": Denied("no")})

    def approve(event: Any) -> None:
        if not posted:
            posted.append(event)
            after.runs.all.answer("r", {"ask:1.0": Approved()})

    posted: list[Any] = []
    with pytest.raises(CallSuspended):
        after.runs.resume("r", sink=approve)
    by_resume(after, {})
    assert question(store)[0] == STUCK
    plain(store, (refund, note), "Done.").runs.resume("r")
    assert done == [5]


def test_arguments_that_were_never_right_are_an_answer_of_the_person_and_not_of_the_code():
    store = MemoryStore()
    begun(plain, store)
    agent = plain(store, (refund, note), "Done.").changed(approve=lambda call: Modified('{"cents": "many"}'))
    result = agent.runs.resume("r")
    assert "cents" in result.function_calls[0].error


class TestWithoutAStore:
    def suspended(self, make: Make, *requested: Any) -> Any:
        first = make(None, (refund, note), list(requested))
        with pytest.raises((CallSuspended, FlowSuspended)) as caught:
            first.call("Pay it back.")
        return caught.value.run if make is flow else caught.value.call

    @MAKES
    def test_a_snapshot_with_the_approval_is_refused(self, make: Make):
        one = self.suspended(make, function_call("refund", cents=5), function_call("note", text="x"))
        one.advance(f"{PATHS[make]}ask:1.0", Approved())
        document = one.snapshot() if make is flow else snapshot(one)
        with pytest.raises(SnapshotError, match="refund"):
            make(None, GONE).restore(document)
        again = make(None, (refund, note), "Done.")
        restored = again.restore(document)
        restored.advance(f"{PATHS[make]}ask:1.1", Approved())
        again.run(restored)
        assert done == [5]

    def test_what_waits_for_approval_cannot_be_approved(self):
        one = self.suspended(plain, function_call("refund", cents=5))
        restored = plain(None, OTHER).restore(snapshot(one))
        with pytest.raises(OutcomeError, match="'refund'"):
            restored.advance("ask:1.0", Approved())
        assert [effect.key for effect in restored.effects] == ["ask:1.0"]
