"""Are conversations kept intact when several answer at once, and whatever happens to a turn?"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from support.kept_runs import LastingStore
from support.workers import drive_until_stuck

from fsm_agent import (
    Agent,
    Approved,
    CallFailed,
    CallSuspended,
    Dialog,
    Message,
    Prompt,
    Reply,
    Usage,
    UsageError,
    Worker,
    function,
    handoff,
)
from fsm_agent.call import Limits, Price, stop_on
from fsm_agent.context import compress, keep_last, once, shorten
from fsm_agent.errors import JournalError, Overloaded
from fsm_agent.messages import FunctionCall
from fsm_agent.store import Conflict, MemoryStore, RunExists, Runs, RunUnknown, Suspension
from fsm_agent.testing import Script, function_call


@pytest.fixture
def store() -> Any:
    return LastingStore()


@function
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@function(needs_approval=True)
def wipe(path: str) -> str:
    """Wipe."""
    return f"wiped {path}"


def agent_of(store: Any, *replies: Any, system: Any = "Be terse.", **options: Any) -> Agent[Any, Any]:
    limits = Limits(recalls=0, parse_retries=0)
    options = {"name": "clerk", **options}
    return Agent(Script(*replies), system=system, functions=[add, wipe], store=store, limits=limits, **options)


def shown(dialog: Sequence[Message]) -> list[str]:
    return [f"{message.role}: {message.text or message.function_calls[0].name}" for message in dialog]


def is_whole(messages: Sequence[Message]) -> bool:
    """Return whether each call of a function is followed by its result, and each result preceded by its call."""
    calls = [call.id for message in messages for call in message.function_calls]
    results = [part.id for message in messages if message.role == "tool" for part in message.parts]
    return sorted(calls) == sorted(results)


def talk(store: Any, *said: str, **options: Any) -> Agent[Any, Any]:
    """An agent that has answered each of these with its number."""
    agent = agent_of(store, *[f"re {text}" for text in said], **options)
    for text in said:
        agent.conversation("c").call(text)
    return agent


class TestTurns:
    def test_another_os_process_goes_on_where_the_last_one_ended(self, store):
        """As itself and as another agent, sync and under asyncio, with events or without."""
        agent = agent_of(store, "Hello, Ada.", function_call("add", a=1, b=2), "3", "Ada.")
        assert agent.conversation("c").call("I am Ada.").output == "Hello, Ada."
        assert asyncio.run(agent.conversation("c").acall("1 + 2?")).output == "3"
        *_, done = agent.conversation("c").stream("Who am I?")
        assert done.result.output == "Ada."

        async def streamed() -> Any:
            return [event async for event in other.conversation("c").astream("Bye.")][-1]

        other = agent_of(store, "Bye, Ada.", system="Be kind.", name="other")
        assert asyncio.run(streamed()).result.output == "Bye, Ada."
        assert shown(other.client.requests[0].messages) == [
            "system: Be kind.",
            "user: I am Ada.",
            "assistant: Hello, Ada.",
            "user: 1 + 2?",
            "assistant: add",
            "tool: 3",
            "assistant: 3",
            "user: Who am I?",
            "assistant: Ada.",
            "user: Bye.",
        ]
        assert repr(agent.conversation("c")) == "Conversation('clerk', 'c')"
        read = agent.conversation("c").read()
        assert (read, asyncio.run(agent.conversation("c").aread())) == (
            done.result.dialog.__class__(read.messages),
            read,
        )
        assert shown(read)[-1] == "assistant: Bye, Ada."
        assert is_whole(read)
        assert [run.agent for run in agent.conversation("c").turns()] == ["other", "clerk", "clerk", "clerk"]
        assert len(agent.conversation("c").turns(2)) == 2

    def test_one_object_reads_what_is_new_alone(self, store, monkeypatch):
        agent = agent_of(store, *"abcdef")
        conversation = agent.conversation("c")
        loads = list[str]()
        load, here = store.load, threading.get_ident()

        def noted(run: str, **options: Any) -> Any:
            if threading.get_ident() == here:  # the thread of the leases looks for letters as time passes
                loads.append(run)
            return load(run, **options)

        monkeypatch.setattr(store, "load", noted)
        counts = []
        for text in "abcdef":
            loads.clear()
            conversation.call(text)
            counts.append(len(loads))
        assert counts[2:] == counts[2:3] * 4
        assert len(conversation.read()) == 13

    def test_the_event_loop_reads_no_disk(self, store, monkeypatch):
        agent = agent_of(store, *"abc")
        agent.conversation("c").call("1")
        threads = set[bool]()

        def noting(name: str) -> None:
            real = getattr(store, name)

            def noted(*args: Any, **options: Any) -> Any:
                threads.add(threading.current_thread() is threading.main_thread())
                return real(*args, **options)

            monkeypatch.setattr(store, name, noted)

        for name in ("load", "head", "create", "claim", "append"):
            noting(name)

        async def main() -> None:
            await agent.conversation("c").acall("2")
            async for _ in agent.conversation("c").astream("3"):
                pass

        asyncio.run(main())
        assert threads == {False}
        assert len(agent.conversation("c").read()) == 7

    def test_a_turn_that_somebody_gave_up_is_left_out(self, store):
        """It has ended, but its snapshot shows a call that has not."""
        agent = agent_of(store, "one", function_call("add", a=1, b=2), function_call("wipe", path="x"), "three")
        agent.conversation("c").call("First.")
        with pytest.raises(CallSuspended):
            agent.conversation("c").call("Second.")
        run = store.head("c").run
        lease = store.claim("somebody", for_s=60.0, run=run)
        store.append(lease, lease.n, (), Suspension(state="Stuck", is_ended=True))
        assert agent.conversation("c").call("Third.").output == "three"
        assert shown(agent.client.requests[-1].messages)[-3:] == ["user: First.", "assistant: one", "user: Third."]

    def test_names_are_apart(self, store):
        agent = agent_of(store, *"abc")
        for name in ("a", "b/../a", "\u2028é"):
            agent.conversation(name).call(f"for {name}")
        for name in ("a", "b/../a", "\u2028é"):
            assert shown(agent.conversation(name).read())[1] == f"user: for {name}"
        assert len(agent.conversation("new").read()) == 0
        assert agent.conversation("new").turns() == []
        assert agent.conversation("new").usage() == Usage()

    def test_a_prompt_and_a_message_are_turns(self, store):
        agent = agent_of(store, "4", "four", system=Prompt("For {{ name }}"))
        conversation = agent.conversation("c")
        assert conversation.call(Prompt("{{ n }}?", output=int)(n="2 + 2"), system_args={"name": "Ada"}).output == 4
        with pytest.raises(UsageError, match="name"):
            agent.conversation("c").call("hi")
        conversation.call(Message.of("user", "In words?"), system_args={"name": "Bob"})
        assert shown(conversation.read()) == [
            "system: For Bob",
            "user: 2 + 2?",
            "assistant: 4",
            "user: In words?",
            "assistant: four",
        ]

    def test_every_turn_can_be_replayed_and_forked(self, store):
        agent = agent_of(store, "one", function_call("add", a=1, b=2), "3", "again 3")
        for text in ("1", "1 + 2?", "and?"):
            result = agent.conversation("c").call(text)
        for run in agent.conversation("c").turns():
            replayed = agent.runs.replay(run.id)
            assert replayed.record.state == "Completed"
        assert agent.runs.replay(result.record.id).record == result.record
        second = agent.conversation("c").turns()[1].id
        agent.runs.all.fork(second, 3, "copy")
        fork = agent_of(store, "4, say").runs.resume("copy")
        assert shown(fork.dialog)[1:] == [
            *("user: 1", "assistant: one", "user: 1 + 2?", "assistant: add", "tool: 3"),
            "assistant: 4, say",
        ]
        assert "follows" not in json.loads(store.load("copy").header)
        assert len(agent.conversation("c").turns()) == 3

    def test_a_request_that_comes_twice_is_done_once(self, store):
        agent = agent_of(store, "one", "two")
        conversation = agent.conversation("c")
        assert conversation.call("1", run_id="r1", extra={"n": 1}).output == "one"
        assert conversation.call("2", run_id="r2").output == "two"
        for again in (conversation, agent.conversation("c")):
            assert again.call("1", run_id="r1", extra={"n": 1}).output == "one"
        with pytest.raises(RunExists):
            conversation.call("another", run_id="r1")
        with pytest.raises(RunExists):
            agent.conversation("d").call("1", run_id="r1", extra={"n": 1})
        assert len(conversation.turns()) == 2
        assert len(agent.client.requests) == 2

    def test_a_signed_conversation_is_read_with_its_key_alone(self, store):
        talk(Runs(store, signing_key="k" * 32), "1", "2")
        assert len(talk(Runs(store, signing_key="k" * 32)).conversation("c").read()) == 5
        with pytest.raises(JournalError):
            talk(Runs(store, signing_key="j" * 32)).conversation("c").read()

    def test_the_tokens_of_all_turns_are_counted(self, store):
        replies = [
            Reply(message=Message.of("assistant", text), usage=Usage(input_tokens=10 * n, output_tokens=n))
            for n, text in enumerate("abc", 1)
        ]
        agent = agent_of(store, replies[0], Overloaded("busy", status=503), *replies[1:])
        conversation = agent.conversation("c", keep=keep_last(1))
        for text in "1234":
            try:
                conversation.call(text)
            except CallFailed:
                assert text == "2"
        assert agent.conversation("c").usage() == Usage(input_tokens=60, output_tokens=6)
        price = Price(input_micro_usd=1_000_000, output_micro_usd=2_000_000)
        assert price.cost_pico_usd(conversation.usage()) == 72_000_000
        assert conversation.read().overview().splitlines()[-1] == "  4 assistant c"


class TestEnds:
    """What a conversation has come to with a turn that is not like others."""

    @pytest.mark.parametrize("is_first", [True, False])
    def test_a_turn_that_failed_is_left_out_as_a_whole(self, store, is_first):
        agent = agent_of(store, *([] if is_first else ["one"]), Overloaded("busy", status=503), "three")
        conversation = agent.conversation("c")
        said = [] if is_first else ["user: 1", "assistant: one"]
        if not is_first:
            conversation.call("1")
        with pytest.raises(CallFailed):
            conversation.call("2")
        assert shown(conversation.read())[1:] == said
        conversation.call("3")
        assert shown(agent.client.requests[-1].messages) == ["system: Be terse.", *said, "user: 3"]
        failed = agent.conversation("c").turns()[1]
        assert failed.state == "Failed"
        assert json.loads(store.load(failed.id).header)["seed"]["dialog"][-1]["parts"][0]["text"] == "2"

    def test_what_functions_did_in_it_is_not_forgotten(self, store):
        agent = agent_of(store, "one", function_call("add", a=1, b=2), Overloaded("busy", status=503), "three")
        conversation = agent.conversation("c")
        conversation.call("1")
        with pytest.raises(CallFailed):
            conversation.call("1 + 2?")
        assert shown(agent.conversation("c").read())[3:] == [
            "user: 1 + 2?",
            "assistant: add",
            "tool: 3",
            "assistant: (This turn ended without an answer: model failed.)",
        ]
        agent.conversation("c").call("3")
        assert is_whole(agent.client.requests[-1].messages)
        ids = [p.id for m in agent.conversation("c").read() for p in m.parts if isinstance(p, FunctionCall)]
        assert ids == ["4.0"]

    def test_a_turn_that_waits_is_not_there_yet_and_nobody_overtakes_it(self, store):
        agent = agent_of(store, "one", function_call("wipe", path="x"), "done", "four")
        conversation = agent.conversation("c")
        conversation.call("1")
        with pytest.raises(CallSuspended):
            conversation.call("Wipe x.")
        (waiting, _) = conversation.turns()
        for each in (conversation, agent.conversation("c")):
            assert shown(each.read())[1:] == ["user: 1", "assistant: one"]
        with pytest.raises(Conflict, match="ask") as caught:
            agent.conversation("c").call("3")
        assert (caught.value.conversation, caught.value.run) == ("c", waiting.id)
        agent.runs.all.answer(waiting.id, {"ask:4.0": Approved()})
        assert agent_of(store, "done").runs.resume(waiting.id).output == "done"
        said = ["user: 1", "assistant: one", "user: Wipe x.", "assistant: wipe", "tool: wiped x", "assistant: done"]
        assert shown(conversation.read())[1:] == said, "though it was read while the turn waited"
        conversation.call("4")
        assert shown(agent.client.requests[-1].messages)[1:] == [*said, "user: 4"]

    def test_a_turn_that_another_has_begun_meanwhile_is_a_conflict(self, store, monkeypatch):
        """Both read the same head; the model of the one that came late was not asked."""
        agent, other, create = agent_of(store, "one"), agent_of(store, "two"), store.create

        def late(*args: Any, **options: Any) -> Any:
            monkeypatch.undo()
            other.conversation("c").call("Theirs.")
            return create(*args, **options)

        monkeypatch.setattr(store, "create", late)
        with pytest.raises(Conflict):
            agent.conversation("c").call("Mine.")
        assert agent.client.requests == []
        assert agent.conversation("c").call("Mine.").output == "one"
        said = ["user: Theirs.", "assistant: two", "user: Mine.", "assistant: one"]
        assert shown(agent.conversation("c").read())[1:] == said
        assert len(store.list()) == 2

    def test_an_object_that_was_read_when_a_turn_had_failed_has_it_when_it_was_retried(self, store):
        agent = agent_of(store, "one", Overloaded("busy", status=503), "two", "three")
        conversation = agent.conversation("c")
        conversation.call("1")
        with pytest.raises(CallFailed):
            conversation.call("2")
        assert shown(conversation.read())[1:] == ["user: 1", "assistant: one"]
        (failed, _) = conversation.turns()
        agent.runs.all.retry(failed.id)
        assert agent.runs.resume(failed.id).output == "two"
        conversation.call("3")
        said = ["user: 1", "assistant: one", "user: 2", "assistant: two", "user: 3"]
        assert shown(agent.client.requests[-1].messages)[1:] == said

    def test_one_that_is_cancelled_while_it_waits_is_over(self, store):
        agent = agent_of(store, function_call("wipe", path="x"), "two")
        conversation = agent.conversation("c")
        with pytest.raises(CallSuspended):
            conversation.call("Wipe x.")
        (waiting,) = conversation.turns()
        agent.runs.all.cancel(waiting.id)
        with pytest.raises(CallFailed):
            agent.runs.resume(waiting.id)
        assert shown(conversation.read())[-1] == "assistant: (This turn ended without an answer: cancelled.)"
        assert is_whole(conversation.read())
        assert conversation.call("2").output == "two"

    def test_one_that_was_cancelled_and_has_no_driver_gives_way_to_the_next(self, store):
        """Whether it waits or was interrupted, sync and under asyncio; the function does not run, nor is it asked."""

        async def ponder() -> str:
            pondering.cancel()
            await asyncio.Event().wait()
            return "unreached"

        async def interrupted(conversation: Any) -> None:
            nonlocal pondering
            pondering = asyncio.create_task(conversation.acall("Ponder."))
            await asyncio.wait([pondering])

        pondering: asyncio.Task[Any]

        for how in ("waits", "interrupted"):
            for answered in ("call", "acall"):
                name, first = f"{how} {answered}", "wipe" if how == "waits" else "ponder"
                arguments = {"path": "x"} if how == "waits" else {}
                agent = agent_of(store, function_call(first, **arguments), "two", name=name)
                agent = agent.changed(functions=[wipe, ponder])
                conversation = agent.conversation(name)
                if how == "waits":
                    with pytest.raises(CallSuspended):
                        conversation.call("Wipe x.")
                else:
                    asyncio.run(interrupted(conversation))
                with pytest.raises(Conflict) as caught:
                    conversation.call("2")
                agent.runs.all.cancel(caught.value.run)
                ended = conversation.call("2") if answered == "call" else asyncio.run(conversation.acall("2"))
                assert ended.output == "two"
                assert "assistant: (This turn ended without an answer: cancelled.)" in shown(conversation.read())
                assert is_whole(conversation.read())
                assert len(agent.client.requests) == 2

    @pytest.mark.parametrize("whose", ["with a prompt of its own", "of another agent"])
    def test_one_that_others_began_gives_way_when_it_was_cancelled(self, store, whose, caplog):
        """Without a warning, since this agent stands in for the prompt of the other, which has not changed."""
        began = agent = agent_of(store, function_call("wipe", path="x"), "two")
        task: Any = "Wipe x."
        if whose == "of another agent":
            agent = Agent(Script("two"), name="other", store=store)
        else:
            task = Prompt("Wipe {{ path }}.", path="shop/wipe", output=int)(path="x")
        with pytest.raises(CallSuspended):
            began.conversation("c").call(task, run_id="r")
        agent.runs.all.cancel("r", "never mind")
        conversation = agent.conversation("c")
        assert conversation.call("2").output == "two"
        assert "assistant: (This turn ended without an answer: cancelled.)" in shown(conversation.read())
        assert is_whole(conversation.read())
        assert caplog.records == []

    @pytest.mark.parametrize("what", ["handed over", "approved"])
    def test_one_that_only_others_can_continue_gives_way_when_it_was_cancelled(self, store, what):
        began = agent_of(store, function_call("wipe", path="x"))
        if what == "handed over":
            to = handoff(began.changed(name="wiper", store=None))
            began = Agent(Script(function_call(to.name)), name="desk", store=store, functions=[to])
        with pytest.raises(CallSuspended) as waiting:
            began.conversation("c").call("Wipe x.", run_id="r")
        if what == "approved":
            began.runs.all.answer("r", {waiting.value.call.effects[0].key: Approved()})
        began.runs.all.cancel("r")
        agent = Agent(Script("two"), name="other", store=store)
        assert agent.conversation("c").call("2").output == "two"

    def test_one_that_is_stuck_gives_way_when_it_was_cancelled(self, store):
        """Though this agent has not the prompt of its task, without which the turn cannot be driven."""
        agent = agent_of(store, "one")
        conversation = agent.conversation("c")
        stuck = conversation.runs.submit(Prompt("How many {{ things }}?", path="shop/count")(things="kettles"))
        drive_until_stuck(Worker([agent], store), stuck.run_id)
        agent.runs.all.cancel(stuck.run_id)
        assert conversation.call("1").output == "one"

    def test_one_that_was_stopped_is_whole(self, store):
        agent = agent_of(store, function_call("add", a=1, b=2), "two", stop_when=stop_on("add"))
        conversation = agent.conversation("c")
        conversation.call("1")
        assert [line.partition(":")[0] for line in shown(conversation.read())] == [
            "system",
            "user",
            "assistant",
            "tool",
        ]
        conversation.call("2")
        assert is_whole(agent.client.requests[-1].messages)

    def test_one_that_was_stopped_before_a_reply_leaves_no_question_behind(self, store):
        agent = agent_of(store, "one", "three")
        conversation = agent.conversation("c")
        conversation.call("1")
        stopped = conversation.prepare("2")
        stopped.stop("enough")
        assert agent.run(stopped).record.state == "Completed"
        assert shown(agent.conversation("c").read())[1:] == ["user: 1", "assistant: one"]
        conversation.call("3")
        assert shown(agent.client.requests[-1].messages)[1:] == ["user: 1", "assistant: one", "user: 3"]

    def test_the_os_process_that_died_in_it_is_named_and_the_turn_goes_on(self, store):
        agent = agent_of(store, "one")
        conversation = agent.conversation("c")
        call_ = conversation.prepare("1")
        _, recorder = agent.runs.all.claims.begin(call_, agent._definition({}))
        with pytest.raises(Conflict, match=repr(recorder.lease.holder)):
            agent.conversation("c").call("2")
        store.append(recorder.lease, 0, (), Suspension(state="", due_s=0.0))
        with pytest.raises(Conflict, match="c:1-"):
            agent.conversation("c").call("2")
        assert agent.runs.resume(conversation.turns()[0].id).output == "one"
        assert shown(conversation.read())[1:] == ["user: 1", "assistant: one"]

    def test_a_turn_that_was_deleted_is_missed_by_name(self, store):
        agent = talk(store, "1", "2", "3")
        second = agent.conversation("c").turns()[1].id
        store.delete(second)
        with pytest.raises(RunUnknown, match=second):
            agent.conversation("c").call("4")
        fresh = agent_of(store, "4", "5")
        assert fresh.conversation("c").call("4", after=Dialog().put("0")).output == "4"
        fresh.conversation("c").call("5")
        assert shown(fresh.conversation("c").read())[1:] == [
            *("user: 0", "user: 4", "assistant: 4", "user: 5", "assistant: 5"),
        ]


class TestSystem:
    def test_every_turn_is_answered_under_the_agents(self, store):
        agent_of(store, "1", system="old").conversation("c").call("1")
        new = agent_of(store, "2", "3", system="new")
        new.conversation("c").call("2")
        new.conversation("c").call("3", keep_system=True)
        none = agent_of(store, "4", system="")
        none.conversation("c").call("4")
        firsts = [request.messages[0].text for request in (*new.client.requests, *none.client.requests)]
        assert firsts == ["new", "new", "1"]
        calls = [p for m in none.client.requests[0].messages for p in m.parts if isinstance(p, FunctionCall)]
        assert calls == []

    def test_ids_are_right_when_the_system_prompt_comes_and_goes(self, store):
        for n, system in enumerate(["a", "", "b", "", "c"]):
            agent = agent_of(store, function_call("add", a=n, b=n), str(n), system=system)
            result = agent.conversation("c").call(f"{n}?")
            ids = [p.id for m in result.dialog for p in m.parts if isinstance(p, FunctionCall)]
            assert ids == [f"{i}.0" for i, m in enumerate(result.dialog) if m.function_calls]
            assert agent.conversation("c").read() == result.dialog
            assert agent.runs.replay(result.record.id).record == result.record


class TestWindow:
    @pytest.mark.parametrize("is_own", [False, True])
    def test_turns_with_functions_keep_a_window_in_which_nothing_is_torn(self, is_own):
        """Whatever is read, sent or written is bounded, and each function result has its request."""
        store, rng = MemoryStore(), random.Random(1)
        keep = whole_rounds if is_own else [once(), shorten(60), compress(2), keep_last(4)]
        replies: list[Any] = []
        for n in range(40):
            replies += [function_call("add", a=n, b=i) for i in range(rng.randrange(3))]
            replies.append(f"answer {n}")
        agent = agent_of(store, *replies)
        written = list[int]()
        for n in range(40):
            conversation = agent.conversation("c", keep=keep)
            result = conversation.call(f"question {n}")
            assert result.output == f"answer {n}"
            if n % 10 == 0 or n > 37:
                assert conversation.read() == result.dialog
            header, snapshot = (loaded := store.load(result.record.id)).header, loaded.snapshot
            assert snapshot is not None
            written.append(len(header) + sum(map(len, loaded.lines)) + len(snapshot[1]))
        sent = [request.messages for request in agent.client.requests]
        assert all(map(is_whole, sent))
        assert max(map(len, sent)) <= 30
        assert sum(written[25:]) <= 1.1 * sum(written[10:25])

    def test_a_policy_that_tears_is_refused_before_anything_is_sent(self, store):
        agent = agent_of(store, function_call("add", a=1, b=2), "3")
        agent.conversation("c").call("1 + 2?")
        for torn in (lambda messages: messages[-2:], lambda messages: [], lambda messages: messages[:3]):
            with pytest.raises(UsageError, match=r"message|2\.0"):
                agent.conversation("c", keep=torn).call("and?")
        assert len(agent.conversation("c").turns()) == 1
        with pytest.raises(UsageError, match="keep"):
            agent.conversation("c", keep=5)

    def test_what_it_left_out_is_decided_and_in_the_journal(self, store):
        """Another policy, or none, keeps part of the kept dialog.  Nothing comes back, and no code is asked again."""
        agent = agent_of(store, *"12345")
        for n in range(4):
            agent.conversation("c", keep=keep_last(1) if n == 3 else None).call(f"{n}")
        (newest, *_) = agent.conversation("c").turns()
        seed = json.loads(store.load(newest.id).header)["seed"]
        assert (seed.get("is_continued"), seed["earlier"], len(seed["dialog"])) == (None, 2, 4)
        assert shown(agent.conversation("c").read())[1:] == [
            "user: 2",
            "assistant: 3",
            "user: 3",
            "assistant: 4",
        ]
        agent.conversation("c").call("4")
        assert len(agent.client.requests[-1].messages) == 6

    def test_a_turn_writes_as_much_late_as_early(self, store):
        agent = agent_of(store, *[f"answer {n:03}" for n in range(30)])
        conversation = agent.conversation("c")
        sizes = []
        for n in range(30):
            run = conversation.call(f"question {n:03}").record.id
            loaded = store.load(run)
            assert loaded.snapshot is not None
            sizes.append(len(loaded.header) + sum(map(len, loaded.lines)) + len(loaded.snapshot[1]))
        assert len(agent.conversation("c").read()) == 61
        assert max(sizes[10:]) <= 1.05 * min(sizes[10:])


def whole_rounds(messages: Sequence[Message]) -> Sequence[Message]:
    """A policy of a user's, which begins at a user's message."""
    newest = list(messages[-5:])
    while newest and newest[0].role != "user":
        newest.pop(0)
    return [messages[0], *(newest or messages[1:2])]


class TestUpkeep:
    def test_what_a_conversation_is_read_from_is_not_pruned(self, store):
        agent = talk(store, "1", "2", "3")
        agent_of(store, "x").call("alone", run_id="alone")
        assert [run.id for run in agent.runs.all.prune(keep=0)] == ["alone"]
        assert len(agent.conversation("c").read()) == 7

    def test_what_a_window_left_behind_is(self, store):
        agent = talk(store, "1", "2", "3")
        windowed = agent_of(store, "4", "5")
        for text in ("4", "5"):
            windowed.conversation("c", keep=keep_last(1)).call(text)
        before = agent.conversation("c").read()
        assert len(agent.runs.all.prune(keep=0)) == 4
        assert agent.conversation("c").read() == before
        assert len(agent.conversation("c").turns()) == 1


class TestMistakes:
    def test_an_agent_without_a_store_keeps_none(self):
        with pytest.raises(UsageError, match="store"):
            Agent(Script()).conversation("c")

    @pytest.mark.parametrize("name", ["", 5])
    def test_a_name_is_a_text(self, store, name):
        with pytest.raises(UsageError):
            agent_of(store).conversation(name)

    @pytest.mark.parametrize("task", [Dialog().put("hi"), [{"role": "user", "content": "hi"}]])
    def test_its_dialog_is_not_given_again(self, store, task):
        with pytest.raises(UsageError, match="'c'"):
            agent_of(store).conversation("c").call(task)
