"""Does a request show the right part, while the dialog stays whole, and is a pass that breaks the rules named?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from support.agent_calls import assert_sendable
from support.drivers import Driver, anyhow, by_run, everywhere, seed
from support.long_dialogs import asks, torn
from support.views import view

from fsm_agent import Agent, CallFailed, Limits, Message, Prompt, Reply, Usage, UsageError, function
from fsm_agent.call import CallRecord, PhaseDetector, PhaseRule, Reason, snapshot
from fsm_agent.context import Budget, compress, keep_last, mask, once, relevant, shorten
from fsm_agent.errors import ContextTooLong, Overloaded
from fsm_agent.messages import ObservationsMasked, RequestStarted
from fsm_agent.testing import Script, function_call

Messages = Sequence[Message]


@function(repeatable=True)
def read(n: int, size: int = 2004) -> str:
    """Read a page."""
    return str(n) * size


PROMPT = Prompt("x", path="p", functions=(read,))
TOO_LONG = ContextTooLong("too many tokens", status=400)


def started(*passes: Any, prompt: Prompt = PROMPT, **options: Any) -> Any:
    return seed(prompt, limits=Limits(rounds=None), view=view(*passes, **options))


class TestPasses:
    @anyhow
    def test_they_are_applied_to_every_request_from_left_to_right(self, driven: Driver):
        seen: list[int] = []

        def look(messages: Messages) -> Messages:
            seen.append(len(messages))
            return messages

        one = started(look, keep_last(1), look)
        script = Script(*[function_call("read", n=n) for n in (1, 2, 3)], "done")
        driven(one, script)
        assert seen[-2:] == [8, 4]
        assert [len(request.messages) for request in script.requests] == [2, 4, 4, 4]
        assert len(one.record.dialog) == 2 + 2 * 3 + 1
        for request in script.requests:
            assert_sendable(request.messages)

    def test_a_pass_sees_a_copy(self):
        def clearing(messages: Any) -> Messages:
            kept = list(messages)
            messages.clear()
            return kept

        result = Agent(Script(function_call("read", n=1), "done"), functions=[read], context=clearing).call("?")
        assert len(result.dialog) == 4

    @anyhow
    def test_one_that_takes_the_record_chooses_by_it(self, driven: Driver):
        detector = PhaseDetector([PhaseRule("reading", ("read",))], default="planning")
        seen: list[tuple[str, int, int | None]] = []

        def by_phase(messages: Messages, record: CallRecord) -> Messages:
            seen.append((detector.phase(record), record.rounds, record.usage.input_tokens))
            return messages if detector.phase(record) == "planning" else keep_last(1)(messages, record)

        one = started(by_phase)
        asked = [Reply.of(function_call("read", n=n)).changed(usage=Usage(input_tokens=10)) for n in (1, 2)]
        script = Script(*asked, "done")
        driven(one, script)
        assert seen == [("planning", 0, None), ("reading", 1, 10), ("reading", 2, 20)]
        assert [len(request.messages) for request in script.requests] == [2, 4, 4]

    def test_the_two_kinds_are_told_apart(self):
        given: list[Any] = []

        def first(messages: Messages, record: Any = None) -> Messages:
            given.append(record)
            return messages

        def second(messages: Messages, keep: int = 3) -> Messages:
            given.append(keep)
            return messages

        def third(*messages: Any) -> Messages:
            given.append(len(messages))
            return messages[0]

        context = [first, second, third, list.copy, keep_last(1), lambda messages, record: messages]
        assert Agent(Script("done"), context=context).call("?").output == "done"
        record, *rest = given
        assert isinstance(record, CallRecord)
        assert rest == [3, 1]

    def test_what_takes_other_arguments_is_no_pass(self):
        for wrong in (lambda: [], lambda a, b, c: a, lambda *, messages: messages):
            with pytest.raises(UsageError, match=r"\(messages, record\)"):
                Agent(Script(), context=[wrong])

    @anyhow
    def test_the_exception_branch_is_always_shown(self, driven: Driver):
        one = started(mask(keep_rounds=1), keep_last(2), prompt=Prompt("x", functions=(read,), output=int))
        script = Script(*[function_call("read", n=n) for n in range(1, 7)], "no number", "42")
        driven(one, script)
        plain, in_branch = script.requests[-2:]
        assert list(in_branch.messages[:-2]) == list(plain.messages)
        assert [m.role for m in in_branch.messages][-2:] == ["assistant", "user"]
        assert len(one.record.dialog) == 2 + 2 * 6 + 1
        assert one.result().output == 42

    @everywhere
    def test_hooks_see_what_is_sent(self, driven: Driver):
        one, script = started(keep_last(1)), Script(*[function_call("read", n=n) for n in (1, 2)], "done")
        events = driven(one, script)
        asked = [event for event in events if isinstance(event, RequestStarted)]
        assert [event.messages for event in asked] == [2, 4, 4]
        assert [tuple(event.shown) for event in asked] == [tuple(request.messages) for request in script.requests]


def torn_round(messages: Messages) -> Messages:
    return messages[:-1]


def orphan(messages: Messages) -> Messages:
    return [*messages[:2], messages[-1]]


def no_system(messages: Messages) -> Messages:
    return messages[1:]


def moved_system(messages: Messages) -> Messages:
    return [messages[1], messages[0], *messages[2:]]


def no_task(messages: Messages) -> Messages:
    return [messages[0], *messages[2:]]


def nothing(messages: Messages) -> Messages:
    return []


def no_list(messages: Messages) -> Any:
    return None


def generator(messages: Messages) -> Any:
    return (message for message in messages)


def texts(messages: Messages) -> Any:
    return [message.text for message in messages]


def text(messages: Messages) -> Any:
    return "messages"


def raising(messages: Messages) -> Messages:
    raise LookupError("no such page")


def raising_by_record(messages: Messages, record: CallRecord) -> Messages:
    raise KeyError(record.id)


RULES: dict[Callable[..., Any], str] = {  # and what is named
    **{torn_round: "'2.0' of 'read'", orphan: "'2.0' of 'read'", no_system: "system", moved_system: "system"},
    **{no_task: "'What is 17", nothing: "", no_list: "None", generator: "generator", texts: "'You add.'"},
    **{text: "'messages'", raising: "LookupError: no such page", raising_by_record: "KeyError: 'call-1'"},
}


class TestPassesThatBreakTheRules:
    @pytest.mark.parametrize("wrong", RULES, ids=lambda one: one.__name__)
    def test_it_is_named_before_anything_is_sent(self, wrong: Any):
        def later(messages: Messages, record: CallRecord) -> Messages:
            if not record.rounds:
                return messages
            return wrong(messages, record) if wrong is raising_by_record else wrong(messages)

        later.__name__ = wrong.__name__
        script = Script(function_call("read", n=1), "done")
        one = started(later)
        with pytest.raises(UsageError, match=f"^the pass {wrong.__name__} .*{RULES[wrong]}"):
            by_run(one, script)
        assert (len(script.requests), one.record.ending, one.state) == (1, None, "Calling")

    @pytest.mark.parametrize("is_async", [False, True])
    def test_the_call_is_driven_on_by_an_agent_with_another(self, is_async: bool):
        def later(messages: Messages, record: CallRecord) -> Messages:
            return torn_round(messages) if record.rounds else messages

        script = Script(function_call("read", n=1), "done")
        agent = Agent(script, system="Be terse.", functions=[read], context=later, limits=Limits(rounds=None))
        one = agent.prepare("?")
        with pytest.raises(UsageError, match=r"the pass later .*'2\.0'"):
            agent.run(one)
        assert len(script.requests) == 1
        other = agent.changed(context=[keep_last(1)])
        again = other.restore(snapshot(one))
        if is_async:
            asyncio.run(other.arun(again))
        else:
            other.run(again)
        assert again.result().output == "done"
        assert [len(request.messages) for request in script.requests] == [2, 4]

    def test_one_in_a_budget_is_named_too(self):
        script = Script()
        with pytest.raises(UsageError, match="the pass no_list"):
            Agent(script, context=Budget(hard=99, soft=1, passes=[no_list])).call("?")
        assert script.requests == []

    def test_what_was_torn_before_is_not_its_fault(self):
        before = [Message.of("user", "?"), asks("1.0")]
        assert torn(before)
        script = Script("done")
        seen = Agent(script, context=lambda messages: messages)
        with pytest.raises(UsageError) as caught:
            seen.call("!", after=before)
        assert "the pass" not in str(caught.value)


class TestTooLong:
    """A provider refuses a request as too long, despite the count."""

    @anyhow
    def test_it_is_asked_once_more_and_shorter(self, driven: Driver):
        one = started(budget=Budget())
        script = Script(function_call("read", n=1, size=9_000), TOO_LONG, "done")
        driven(one, script)
        r = one.record
        assert one.result().output == "done"
        first, second = script.requests[1:]
        assert len(first.messages[-1].text) == 9_000
        assert len(second.messages[-1].text) <= 4_000
        assert (r.recalls, len(r.failures)) == (1, 1)
        assert [(step.trigger, step.source, step.to) for step in r.trace][-2] == ("too_long", "Calling", "Calling")
        assert r.failures[0].report.kind == "ContextTooLong"
        assert len(r.dialog[3].text) == 9_000

    @anyhow
    def test_a_second_refusal_is_the_error(self, driven: Driver):
        one = started(budget=Budget())
        script = Script(function_call("read", n=1), TOO_LONG, TOO_LONG)
        driven(one, script)
        assert len(script.requests) == 3
        with pytest.raises(CallFailed) as failed:
            one.result()
        assert type(failed.value.__cause__) is ContextTooLong
        assert len(one.record.failures) == 2

    @pytest.mark.parametrize("context", [None, [keep_last(9)], Budget(hard=99_999)], ids=["None", "list", "Budget"])
    def test_each_agent_asks_again(self, context: Any):
        script = Script(function_call("read", n=1, size=9_000), TOO_LONG, "done")
        assert Agent(script, functions=[read], context=context).call("?").output == "done"
        assert len(script.requests) == 3
        if not isinstance(context, list):
            assert len(script.requests[2].messages[-1].text) < 9_000

    def test_but_not_one_that_leaves_nothing_out_or_asks_once(self):
        for options in ({"context": []}, {"limits": Limits(recalls=0)}):
            script = Script(function_call("read", n=1), TOO_LONG)
            with pytest.raises(CallFailed):
                Agent(script, functions=[read], **options).call("?")
            assert len(script.requests) == 2

    def test_later_requests_stay_within_what_was_accepted(self):
        script = Script(
            function_call("read", n=1, size=9_000),
            TOO_LONG,
            *[function_call("read", n=n, size=9_000) for n in range(2, 6)],
            "done",
        )
        agent = Agent(script, functions=[read], limits=Limits(rounds=None))
        assert agent.call("?").output == "done"
        most = max(sum(len(m.text) for m in request.messages) for request in script.requests[2:])
        assert most < 9_000

    def test_each_request_may_be_refused_once(self):
        script = Script(
            function_call("read", n=1, size=9_000),
            TOO_LONG,
            function_call("read", n=2, size=9_000),
            "A summary.",
            TOO_LONG,
            "done",
        )
        result = Agent(script, functions=[read], limits=Limits(recalls=2)).call("?")
        assert (result.output, result.record.recalls) == ("done", 2)

    def test_a_restored_call_knows_that_it_was_refused(self):
        script = Script(function_call("read", n=1, size=9_000), TOO_LONG, Overloaded("busy"), "done")
        agent = Agent(script, functions=[read], limits=Limits(recalls=2))
        one = agent.prepare("?")
        records = []
        for _ in agent.stream(one):
            if not records and one.record.shorten_to is not None:
                records.append(snapshot(one))
        again = agent.changed(model=Script("done")).restore(records[0])
        agent.changed(model=(second := Script("done"))).run(again)
        assert second.requests[0].messages == script.requests[2].messages
        assert again.record.shorten_to == one.record.shorten_to


def test_two_calls_of_an_agent_share_nothing():
    def answered(text: str) -> list[Any]:
        return [function_call("read", n=int(text)), function_call("read", n=int(text) + 1), text]

    agent = Agent(Script(*answered("3"), *answered("5")), functions=[read], context=[mask(keep_rounds=1), shorten(60)])
    first, second = agent.call("3?"), agent.call("5?")
    assert [m.text[:1] for m in first.dialog if m.role == "tool"] == ["3", "4"]
    assert [m.text[:1] for m in second.dialog if m.role == "tool"] == ["5", "6"]
    assert first.record.ending.reason is Reason.ANSWERED


@pytest.mark.parametrize("way", ["fork", "undo"])
@pytest.mark.parametrize(
    "chosen", [compress(1), keep_last(1), mask(1, 5), once(), relevant(1, lambda task, message: 1.0), shorten(50)]
)
def test_a_call_that_went_back_shows_what_came_afterwards(chosen: Any, way: str):
    again = False

    @function(repeatable=True)
    def look(n: int) -> str:
        """Look."""
        return f"{'second' if again else 'first'} look {n} " * 9

    calls = [function_call("look", n=n) for n in (1, 2, 3)]
    script, fresh = Script(*calls, "done", calls[2], "done"), Script(calls[2], "done")
    agent = Agent(script, functions=[look], context=chosen)
    one = agent.prepare("Go.").journaled()
    agent.run(one)
    place = next(i for i, state in enumerate(one.states) if len(state.dialog) == 4)  # before the second result
    if way == "fork":
        one = one.fork(place)
    else:
        while len(one.states) > place + 1:
            one.undo()
    again, other = True, agent.restore(snapshot(one))
    agent.run(one)
    agent.changed(model=fresh).run(other)
    assert [request.messages for request in script.requests[4:]] == [request.messages for request in fresh.requests]


def test_a_fork_says_itself_what_it_masked():
    agent = Agent(Script(*[function_call("read", n=n) for n in (1, 2)], "a", "b"), functions=[read], context=mask(1))
    one = agent.prepare("Go.").journaled()
    list(agent.stream(one))
    forked = one.fork(next(i for i, state in enumerate(one.states) if len(state.dialog) == 5))
    masked = [event.count for event in agent.stream(forked) if isinstance(event, ObservationsMasked)]
    assert masked == [1]
