"""Do copies of runs go on by themselves, and do doubles repeat what a run's model said?"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support import agent_calls as walks
from support.kept_runs import OWN_CLOCK, answers, clerk, definition_of, ended, loaded, rested, skip_replies

from fsm_agent.agents import Agent
from fsm_agent.call import AgentCall, Approved, CallFailed, CallSuspended, Denied, Replied, Returned
from fsm_agent.errors import JournalError, ProviderError, RateLimited, UsageError
from fsm_agent.functions import function
from fsm_agent.messages import Reply
from fsm_agent.prompts import Dialog
from fsm_agent.store import MemoryStore, RunExists, Runs, RunUnknown, SqliteStore, Suspension
from fsm_agent.testing import FakeClock, Script, as_json, function_call

WALKS = 40


@function
def look(at: int) -> str:
    """Look."""
    return f"seen {at}"


# Doubles


def test_a_script_of_a_run_repeats_its_replies_and_failures_to_the_same_result():
    first = ended(MemoryStore())
    run = loaded(first.runs.all.store)
    script = Script.of(run.lines)
    again = clerk(MemoryStore())
    double = Agent(script, functions=again.functions, output=int, store=MemoryStore(), name="clerk")
    with pytest.raises(CallSuspended, match="wipe"):
        double.call("Go.", run_id="r1")
    result = double.runs.resume("r1", answers(double.runs.all, "r1"), by="ann")
    was = first.runs.replay("r1").result()
    assert (result.output, result.dialog) == (was.output, was.dialog)
    assert [step.trigger for step in result.trace] == [step.trigger for step in was.trace]
    assert [failure.report.status for failure in result.failures] == [429]
    script.assert_exhausted()


def test_a_script_of_a_journal_in_memory_is_that_of_its_lines():
    agent = Agent(Script(RateLimited("slow down", retry_after_s=0.5), "fine"))
    one = agent.prepare("Go.").journaled()
    agent.run(one)
    with Script.of(one.journal, name="double") as double:
        assert double.name == "double"
        assert Agent(double).call("Go.").output == "fine"
        assert double.clock.sleeps == [0.5]


def test_what_the_model_of_a_process_inside_said_is_repeated_too():
    """Keys have a path there.  Other effects are left out, whatever their paths are called."""

    def entry(key: str, text: str) -> str:
        outcome = {"kind": "replied", "reply": as_json(Reply.of(text))}
        return json.dumps({"n": 1, "key": key, "outcome": outcome, "digest": "0"})

    lines = [entry("drafting/warm/model:0", "one"), entry("model:/run:1.0", "none"), entry("model:2", "two")]
    assert [reply.message.text for reply in Script.of(lines)._entries] == ["one", "two"]


def test_a_damaged_entry_is_named():
    with pytest.raises(JournalError, match="entry"):
        Script.of(["{}"])


def test_a_call_is_the_same_in_memory_in_a_file_and_in_no_store(tmp_path: Path):
    results, journals = [], []
    for store in (None, MemoryStore(), SqliteStore(tmp_path / "runs.db", OWN_CLOCK)):
        script = Script([function_call("look", at=1)], RateLimited("slow down", retry_after_s=0.5), "done")
        agent = Agent(script, functions=[look], store=store, name="a")
        results.append(agent.call("Go.", **({"run_id": "r1"} if store is not None else {})))
        if store is not None:
            journals.append(agent.runs.all.store.load("r1").lines)
            assert agent.runs.replay("r1").record == results[-1].record
            agent.runs.all.close()
    assert {(result.output, len(result.trace)) for result in results} == {("done", 6)}
    assert len({tuple(result.dialog) for result in results}) == 1
    assert len(set(journals)) == 1
    assert len(journals[0]) == 6


# Copies of runs


@pytest.mark.parametrize("at", [0, 2, 4, 9, 11, 12])
def test_a_copy_goes_on_from_its_entry_whatever_becomes_of_the_run(at: int, tmp_path: Any):
    store = SqliteStore(tmp_path / "runs.db", OWN_CLOCK)
    agent = ended(store)
    before = agent.runs.all.store.load("r1")
    agent.runs.all.fork("r1", at, "r2")
    copy = agent.runs.all.store.load("r2")
    assert (copy.run.n, copy.run.due_s, copy.run.state, copy.run.holder) == (at, None, "Forked", None)
    assert json.loads(copy.header) == {**json.loads(before.header), "forked": ["r1", at]}
    replies = sum('"kind":"replied"' in line or '"kind":"model_failed"' in line for line in copy.lines)
    other = clerk(agent.runs.all)
    skip_replies(other.client, replies)
    told: dict[str, Any] = {}
    for _ in range(3):
        with suppress(CallSuspended):
            result = other.runs.resume("r2", told, by="bob")
            break
        asked = [question.key for question in other.runs.all.store.load("r2").run.waits]
        told = {key: Returned(text="paid 3") if key.startswith("reconcile:") else Denied("not here") for key in asked}
    assert (at < 11) == ("not here" in result.transcript()), "the run's answer counts for its copy, once it is copied"
    assert (result.output, result.record.id) == (42, "r2")
    assert other.runs.replay("r2").record == result.record
    assert agent.runs.all.store.load("r1") == before, "the run was changed by its copy"
    agent.runs.all.close()


def test_a_copy_can_be_answered_otherwise_than_its_run():
    agent = rested(MemoryStore())
    agent.runs.all.fork("r1", len(loaded(agent.runs.all.store).lines), "r2")
    agent.runs.resume("r1", answers(agent.runs.all, "r1"), by="ann")
    other = clerk(agent.runs.all)
    skip_replies(other.client, 4)
    try:
        other.runs.resume("r2")
    except CallSuspended:
        denied = other.runs.resume("r2", answers(other.runs.all, "r2", Denied("not this one")), by="bob")
    assert "not this one" in denied.transcript()
    assert "not this one" not in "".join(loaded(agent.runs.all.store).lines)


def test_a_copy_of_a_signed_run_is_signed():
    key = b"k" * 32
    agent = rested(Runs(MemoryStore(), signing_key=key))
    agent.runs.all.fork("r1", 2, "r2")
    copy = loaded(agent.runs.all.store, "r2")
    assert [len(json.loads(line)["digest"]) for line in copy.lines] == [64, 64]
    assert len(agent.runs.replay("r2").record.trace) == 2
    with pytest.raises(JournalError):
        Runs(agent.runs.all.store).replay("r2", definition_of(agent))


@pytest.mark.parametrize("at", [-1, 99])
def test_a_copy_from_an_entry_that_is_not_there_is_refused(at: int):
    agent = rested(MemoryStore())
    with pytest.raises(UsageError, match=str(at)):
        agent.runs.all.fork("r1", at, "r2")
    assert [run.id for run in agent.runs.all.store.list()] == ["r1"]


def test_a_copy_needs_a_run_and_a_name_that_is_free():
    agent = rested(MemoryStore())
    with pytest.raises(RunUnknown, match="'r0'"):
        agent.runs.all.fork("r0", 0, "r2")
    with pytest.raises(RunExists):
        agent.runs.all.fork("r1", 1, "r1")
    agent.runs.all.fork("r1", 1, "r2")
    before = loaded(agent.runs.all.store, "r2")
    agent.runs.all.fork("r1", 1, "r2")  # the same fork is made once
    assert loaded(agent.runs.all.store, "r2") == before
    with pytest.raises(RunExists):
        agent.runs.all.fork("r1", 2, "r2")


# Calls that go back


def looked() -> AgentCall[str]:
    """A call that has looked at 1, and answered."""
    agent = Agent(Script(function_call("look", at=1), "done"), functions=[look])
    one = agent.prepare("Look.").journaled()
    agent.run(one)
    return one


def test_a_copy_of_a_call_goes_on_by_itself():
    one = looked()
    record, states = one.record, one.states
    copies = [one.fork(at) for at in range(len(states))]
    for at, copy in enumerate(copies):
        assert copy.record is states[at]
        assert copy.states == [states[at]], "it begins where it was forked"
        if not copy.effects:
            continue
        said = Script(*[function_call("look", at=2)][: at < 2], "other")
        assert Agent(said, functions=[look]).run(copy).output == "other"
        copy.undo()
        assert copy.state != "Completed"
    assert one.record is record
    assert one.fork(-1).record is record
    with pytest.raises(UsageError, match="9"):
        one.fork(9)


def test_the_output_is_that_of_the_state():
    one = looked()
    assert one.output == "done"
    one.undo()
    assert one.output is None
    with pytest.raises(Exception, match="Calling"):
        one.result()
    one.advance(one.effects[0].key, Replied(reply=Reply.of("another")))
    assert one.result().output == "another"


def test_a_call_that_went_back_and_forth_is_like_one_that_did_not():
    """Random walks: after each step some are undone, and some of those redone."""
    backs = 0
    for seed in range(WALKS):
        rng = Random(seed)
        limits = walks.limits(rng)
        one = walks.seeded(limits).journaled()
        for _ in range(40):
            if not one.effects:
                break
            effect = rng.choice(one.effects)
            one.advance(*walks.outcome(rng, effect, one.record.state))
            if rng.random() < 0.3:
                for _ in range(back := rng.randint(1, min(3, len(one.states) - 1))):
                    one.undo()
                backs += back
                for _ in range(rng.randint(0, back)):
                    one.redo()
        bare = walks.seeded(limits)
        for entry in one.journal.entries:
            bare.advance(entry.key, bare.decode(entry.key, entry.outcome))
        assert bare.record == one.record, seed
        assert bare.record.trace == one.record.trace, seed
        assert bare.effects == one.effects, seed
        if not one.effects and one.state == "Completed":
            assert one.output == bare.output
    assert backs > WALKS


def test_nothing_is_undone_that_a_store_has():
    agent = Agent(Script("fine"), name="clerk", store=MemoryStore())
    one = agent.prepare(Dialog().put("Go."), run_id="r1")
    agent.run(one)
    for back in (one.undo, one.redo):
        with pytest.raises(UsageError, match="store"):
            back()
    copy = one.fork(1)
    assert copy.states[0].state == "Calling"
    copy.advance("model:0", Replied(reply=Reply.of("other")))
    copy.undo()
    assert [step.trigger for step in agent.runs.resume("r1").trace] == ["begun", "answered"]


# Copies that somebody else finds first


class Unfinished(MemoryStore):
    """A store whose process dies just after a copy was created.  The lease is over."""

    is_dying = False

    def append(self, *args: Any, **options: Any) -> int:
        if self.is_dying:
            raise KeyboardInterrupt
        return super().append(*args, **options)


def test_a_copy_that_a_worker_finds_first_goes_on_from_where_it_was_copied():
    paid: list[int] = []

    @function(once=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    clock = FakeClock()
    store = Unfinished(clock.now)
    agent = Agent(
        Script(function_call("pay", amount=3), "Done.", "Done again."), functions=[pay], store=store, name="payer"
    )
    assert agent.call("Go.", run_id="one").output == "Done."
    store.is_dying = True
    with pytest.raises(KeyboardInterrupt):
        agent.runs.all.fork("one", 4, "two")
    store.is_dying = False
    clock.advance(60.0)
    assert (len(loaded(store, "two").lines), paid) == (4, [3])
    result = agent.runs.resume("two")
    assert (result.output, result.record.id, paid) == ("Done again.", "two", [3])
    agent.runs.replay("two")


@pytest.mark.parametrize("signing_key", [None, "k" * 32])
def test_the_journal_of_another_run_is_refused_though_its_header_is_the_same(signing_key: str | None):
    store = MemoryStore()
    agent = Agent(Script("first", "second"), name="clerk", store=Runs(store, signing_key=signing_key))
    agent.call("Go.", run_id="one")
    one = loaded(store, "one")
    lease = store.create("two", one.header, agent="clerk", holder="w", for_s=9.0)
    store.append(lease, 0, one.lines, Suspension(state="Failed", due_s=0.0))
    with pytest.raises(JournalError, match="'two'"):
        agent.runs.resume("two")


def test_a_redacted_export_of_a_fork_has_its_edit_redacted():
    agent = rested(MemoryStore())
    header = json.loads(loaded(agent.runs.all.store).header)
    header["seed"]["summary"] = {"covers": 2, "text": "Ada asked for a refund"}
    header |= {"forked": ["r1", 0], "edit": {"kind": "returned", "text": "Ada lives in Rome"}}
    agent.runs.all.store.create("fork", json.dumps(header), agent="clerk")

    def hide(outcome: Any) -> Any:
        return outcome.changed(text="hidden") if isinstance(outcome, Returned) else outcome

    assert "Ada" in "".join(agent.runs.all.export("fork"))
    (text,) = agent.runs.all.export("fork", hide)
    assert "Ada" not in text
    assert "hidden" in text


@pytest.mark.parametrize("verb", ["fork", "answer", "cancel", "retry", "requeue"])
@pytest.mark.parametrize("by", [None, "a\ud800"])
def test_each_verb_refuses_a_person_who_is_no_name_and_changes_nothing(verb: str, by: Any) -> None:
    store = MemoryStore()
    agent = Agent(Script(ProviderError("no", status=400)), name="clerk", store=store)
    with pytest.raises(CallFailed):
        agent.call("Go.", run_id="r")
    before, arguments = store.load("r", after=0), {"fork": (None, "copy"), "answer": ({"": Approved()},)}
    with pytest.raises(UsageError, match=r"^by:"):
        getattr(agent.runs.all, verb)("r", *arguments.get(verb, ()), by=by)
    assert store.load("r", after=0) == before
    assert [row.id for row in store.list(limit=9)] == ["r"]


@pytest.mark.parametrize("name", [5, "", "a\ud800"])
def test_a_fork_refuses_what_is_no_name_of_a_run(name: Any) -> None:
    agent = Agent(Script("Hi."), name="clerk", store=MemoryStore())
    agent.call("Go.", run_id="r")
    with pytest.raises(UsageError, match="name of a run"):
        agent.runs.fork("r", new_run_id=name)
