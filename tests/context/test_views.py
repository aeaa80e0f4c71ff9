"""Is a request shown what it should be, while the dialog stays whole?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from fsm_agent.context.masking import context_release
from fsm_agent.context.window import Processor
from support.agent_calls import assert_sendable, begun, function_call, request, returned, say
from support.drivers import Driver, anyhow, everywhere, seed, world

from fsm_agent import Agent, Limits, Reply, Usage, function, snapshot
from fsm_agent.context import ByRecord, KeepLastN, Masking
from fsm_agent.context.view import View
from fsm_agent.errors import Overloaded, UsageError
from fsm_agent.functions.context import Context
from fsm_agent.lifecycle import PhaseDetector, PhaseRule
from fsm_agent.lifecycle.outcomes import Begun, Cancelled, Injected
from fsm_agent.lifecycle.record import CallRecord, Reason
from fsm_agent.messages.event import ObservationsMasked, Stepped
from fsm_agent.messages.message import Message
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.runtime.drivers import adrive, drive
from fsm_agent.testing import Script, call

NOTE = "[Masked — {} result from iteration {}, {} tokens. Use result_cache tool if available, or re-invoke tool.]"
LARGE = 4 * 501


@function
def read(n: int, size: int = LARGE) -> str:
    """Read a page."""
    return str(n) * size


@function
def release(context: Context, rounds: list[int]) -> str:
    """Let go of rounds."""
    context.release(rounds)
    return "released"


PROMPT = Prompt("x", path="p", functions=(read, release))


def shown(messages: Sequence[Message]) -> list[str]:
    """What is shown of each result: its first character, or the whole note."""
    return [m.text if m.text.startswith("[") else m.text[:1] for m in messages if m.role == "tool"]


def masking(**options: int) -> View:
    return View(Masking(**options))


@pytest.mark.spec(
    "1.17: results of older rounds are masked",
    "1.17: the dialog stays complete",
    "1.17: it is applied to every request",
    "1.18: the exact text, with function, round and tokens",
    "1.19: count and tokens of what a pass masked",
    "1.19: a second pass does not count it again",
    "4.28: old calls are compressed",
)
@anyhow
def test_old_results_are_masked_in_requests_and_each_is_told_once(driven: Driver):
    one = seed(PROMPT, limits=Limits(rounds=None), view=masking())
    script = Script(*[call("read", n=n) for n in (1, 2, 3, 4)], "done")
    events = driven(one, script)
    notes = [NOTE.format("read", n, 501) for n in (1, 2)]
    assert [shown(r.messages) for r in script.requests] == [
        [],
        ["1"],
        ["1", "2"],
        [notes[0], "2", "3"],
        [*notes, "3", "4"],
    ]
    assert shown(one.record.dialog) == ["1", "2", "3", "4"]
    saved = 501 - -(-len(notes[0]) // 4)
    masked = [e for e in events if isinstance(e, ObservationsMasked)]
    assert masked == ([ObservationsMasked(1, saved)] * 2 if events else [])


@pytest.mark.spec("1.19: it is told before the request", "1.23: observations masked")
@everywhere
def test_what_is_masked_is_told_before_the_request(driven: Driver):
    one = seed(PROMPT, limits=Limits(rounds=None), view=masking(keep_rounds=1))
    events = driven(one, Script([call("read", n=1), call("read", n=2)], call("read", n=3), "done"))
    place = next(i for i, e in enumerate(events) if isinstance(e, ObservationsMasked))
    assert events[place].count == 2
    before, after = events[place - 1], events[place + 1 :]
    assert isinstance(before, Stepped)
    assert (before.trigger, before.to) == ("returned", "Calling")
    assert [e.trigger for e in after if isinstance(e, Stepped)] == ["answered"]


@pytest.mark.spec("1.17: only results larger than the least size", "1.17: errors are never masked")
@anyhow
def test_errors_and_short_results_are_shown(driven: Driver):
    one = seed(PROMPT, limits=Limits(rounds=None), view=masking(keep_rounds=1, min_tokens=500))
    script = Script(
        [call("read", n=1, size=2000), call("read", n=2, size=2001), call("read", n="x" * 2000)],
        call("read", n=4),
        "ok",
    )
    driven(one, script)
    first, second, third, _ = [m.text for m in script.requests[-1].messages if m.role == "tool"]
    assert (first, second) == ("1" * 2000, NOTE.format("read", 1, 501))
    assert third.startswith("The arguments of read are not valid")


@pytest.mark.spec("1.20: a function releases rounds", "1.20: a released round is masked whatever its age")
@anyhow
def test_what_a_function_releases_is_masked_in_the_next_request(driven: Driver):
    one = seed(PROMPT, limits=Limits(rounds=None), view=masking(keep_rounds=9))
    script = Script(call("read", n=1), call("read", n=2), call("release", rounds=[1]), "done")
    driven(one, script)
    assert shown(script.requests[2].messages) == ["1", "2"]
    assert shown(script.requests[3].messages) == [NOTE.format("read", 1, 501), "2", "r"]
    assert one.record.released == (1,)


@pytest.mark.spec("1.20: without masking nothing is masked")
@anyhow
def test_without_masking_nothing_is_masked_whatever_is_released(driven: Driver):
    one = seed(PROMPT, limits=Limits(rounds=None), view=View(None))
    script = Script(call("read", n=1), call("release", rounds=[1]), "done")
    driven(one, script)
    assert shown(script.requests[-1].messages) == ["1", "r"]


@pytest.mark.spec("1.20: a ready function for the model releases them")
def test_a_model_lets_go_of_rounds_itself():
    script = Script(call("read", n=1), call("context_release", rounds=[1]), "done")
    Agent(script, functions=[read, context_release()], masking=Masking(keep_rounds=9)).call("?")
    assert shown(script.requests[1].messages) == ["1"]
    assert shown(script.requests[2].messages) == [NOTE.format("read", 1, 501), "R"]


def test_a_masked_call_may_be_made_again():
    call = begun(Limits(rounds=None), PROMPT, view=masking(keep_rounds=1))
    returned(say(call, function_call("read", n=1)), "1" * LARGE)
    say(call, function_call("read", n=1))
    assert call.record.function_calls[-1].is_repeated, "its result stands above"
    say(call, function_call("read", n=1))
    assert [effect.key for effect in call.effects] == ["run:6.0"], "by now only a note stands above"


@everywhere
def test_a_request_that_is_made_again_masks_the_same_and_tells_nothing_new(driven: Driver):
    one = seed(PROMPT, limits=Limits(rounds=None), view=masking(keep_rounds=1))
    script = Script(call("read", n=1), call("read", n=2), Overloaded("busy"), "done")
    events = driven(one, script)
    assert [e.count for e in events if isinstance(e, ObservationsMasked)] == [1]
    assert script.requests[2].messages == script.requests[3].messages


def test_a_restored_call_shows_the_same():
    agent = Agent(Script(), functions=[read], masking=Masking(keep_rounds=1), limits=Limits(rounds=None))
    one = agent.seed("?")
    one.advance("begin", Begun(at_s=0.0))
    for n in (1, 2):
        returned(say(one, function_call("read", n=n)), str(n) * LARGE)
    again = agent.restore(snapshot(one))
    assert request(again).messages == request(one).messages
    assert shown(request(again).messages) == [NOTE.format("read", 1, 501), "2"]


@pytest.mark.spec(
    "0.11: at most n messages are sent",
    "0.11: the dialog keeps them all",
    "3.31: a view for every request",
    "3.31: the dialog is never changed",
    "4.7: processors are applied in order",
    "4.7: the dialog is untouched",
    "4.17: a processor of one's own",
)
@anyhow
def test_processors_choose_behind_the_masking_one_after_another(driven: Driver):
    seen: list[list[str]] = []

    def look(messages: Sequence[Message]) -> Sequence[Message]:
        seen.append(shown(messages))
        return messages

    view = View(Masking(keep_rounds=1), (look, KeepLastN(4), look))
    one = seed(PROMPT, limits=Limits(rounds=None), view=view)
    script = Script(*[call("read", n=n) for n in (1, 2, 3)], "done")
    driven(one, script)
    note = NOTE.format("read", 2, 501)
    assert seen[-2:] == [[NOTE.format("read", 1, 501), note, "3"], [note, "3"]]
    assert [m.role for m in script.requests[-1].messages] == ["system", "user", *["assistant", "tool"] * 2]
    assert len(one.record.dialog) == 2 + 2 * 3 + 1
    for one_request in script.requests:
        assert_sendable(one_request.messages)


@anyhow
def test_the_exception_branch_is_always_shown(driven: Driver):
    one = seed(Prompt("x", functions=(read,), output=int), view=View(None, (KeepLastN(1),)))
    script = Script("no number", "42")
    driven(one, script)
    assert [m.role for m in script.requests[1].messages][-2:] == ["assistant", "user"]
    assert one.result().output == 42


@pytest.mark.spec("1.17: it is applied in the exception branch too")
@anyhow
def test_the_dialog_is_masked_and_windowed_in_the_exception_branch_too(driven: Driver):
    view = View(Masking(keep_rounds=1), (KeepLastN(5),))
    one = seed(Prompt("x", functions=(read,), output=int), limits=Limits(rounds=None), view=view)
    script = Script(*[call("read", n=n) for n in range(1, 7)], "no number", "42")
    driven(one, script)
    plain, in_branch = script.requests[-2:]
    assert in_branch.messages[:-2] == plain.messages
    assert shown(in_branch.messages) == [NOTE.format("read", 5, 501), "6"]
    assert len(one.record.dialog) == 2 + 2 * 6 + 1


@anyhow
def test_a_processor_that_parts_a_round_is_the_callers_mistake(driven: Driver):
    one = seed(PROMPT, view=View(None, (lambda messages: messages[-1:],)))
    with pytest.raises(UsageError, match=r"left the result '2\.0' of 'read' without the message that asks for it"):
        driven(one, Script(call("read", n=1)))


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("word", [Cancelled(reason="enough"), Injected((Message.of("user", "Hurry."),))])
def test_a_listener_may_speak_up_when_he_hears_what_is_masked(streaming: bool, asynchronous: bool, word: Any):
    one = seed(PROMPT, limits=Limits(rounds=None), view=masking(keep_rounds=1))
    script = Script(call("read", n=1), call("read", n=2), "done")

    def listen(event: Any) -> None:
        if isinstance(event, ObservationsMasked):
            one.advance("", word)

    async def main() -> None:
        async for event in adrive(one, world(script), streaming=streaming):
            listen(event)

    if asynchronous:
        asyncio.run(main())
    else:
        for event in drive(one, world(script), streaming=streaming):
            listen(event)
    if isinstance(word, Cancelled):
        assert one.record.ending.reason is Reason.CANCELLED
        assert len(script.requests) == 2, "nobody asks a model for a call that has ended"
    else:
        assert one.result().output == "done"
        assert script.requests[-1].messages[-1].text == "Hurry."


@pytest.mark.spec("1.17: the dialog stays complete", "1.20: a function releases rounds")
def test_an_agent_masks_and_windows_as_it_is_told():
    script = Script(call("read", n=1), call("read", n=2), call("release", rounds=[2]), "done")
    agent = Agent(
        script,
        functions=[read, release],
        masking=Masking(keep_rounds=2),
        processors=[lambda messages: messages],
        limits=Limits(rounds=None),
    )
    result = agent.call("?")
    assert shown(script.requests[-1].messages) == [NOTE.format("read", n, 501) for n in (1, 2)] + ["r"]
    assert [f.result[:1] for f in result.function_calls] == ["1", "2", "r"]
    assert shown(result.dialog.messages) == ["1", "2", "r"]


class TestProcessorsThatAreChosen:
    @pytest.mark.spec(
        "4.7: they see the state",
        "4.27: processors are chosen for each call",
        "4.27: they see state, usage and phase",
        "4.3: a phase is found first",
    )
    @anyhow
    def test_for_each_request_by_the_record_of_the_call(self, driven: Driver):
        detector = PhaseDetector([PhaseRule("reading", ("read",))], default="planning")
        seen: list[tuple[str, int, int | None]] = []

        def choose(r: CallRecord) -> list[Processor]:
            seen.append((detector.phase(r), r.rounds, r.usage.input_tokens))
            return [] if detector.phase(r) == "planning" else [KeepLastN(2), lambda messages: marked(messages, r.state)]

        def marked(messages: Sequence[Message], state: str) -> Sequence[Message]:
            return [*messages, Message.of("system", f"in {state}, round {len(seen)}")]

        one = seed(PROMPT, limits=Limits(rounds=None), view=View(None, (ByRecord(choose), KeepLastN(9))))
        asked = [Reply.of(call("read", n=n)).changed(usage=Usage(input_tokens=10)) for n in (1, 2)]
        script = Script(*asked, "done")
        driven(one, script)
        assert seen == [("planning", 0, None), ("reading", 1, 10), ("reading", 2, 20)]
        assert [len(request.messages) for request in script.requests] == [2, 2 + 2 + 1, 2 + 2 + 1]
        assert script.requests[-1].messages[-1].text == "in Calling, round 3"
        assert len(one.record.dialog) == 2 + 2 * 2 + 1

    def test_an_agent_chooses_among_others(self):
        script = Script(*[call("read", n=n) for n in (1, 2)], "done")
        Agent(script, functions=[read], processors=[ByRecord(lambda r: [KeepLastN(2)] if r.rounds > 1 else [])]).call(
            "?"
        )
        assert [len(request.messages) for request in script.requests] == [1, 3, 3]

    def test_what_is_no_list_of_processors_is_named(self):
        for chosen in (KeepLastN(2), None, [1], "ab"):
            with pytest.raises(UsageError, match=r"<function .* of ByRecord returned .*: a list of processors"):
                Agent(Script("no"), processors=[ByRecord(lambda r, chosen=chosen: chosen)]).call("?")
        with pytest.raises(UsageError, match=r"ByRecord\(5\): a function of a CallRecord"):
            ByRecord(5)
        with pytest.raises(UsageError, match=r"there is no record of a call here"):
            ByRecord(lambda r: [])([Message.of("user", "?")])


@pytest.mark.spec("4.7: an error ends it")
@anyhow
def test_what_a_processor_raises_ends_the_driver_before_the_request_and_the_call_can_be_driven_on(driven: Driver):
    is_broken = True

    def breaking(messages: Sequence[Message]) -> Sequence[Message]:
        if len(messages) > 2 and is_broken:
            raise LookupError("no such page")
        return messages

    one = seed(PROMPT, view=View(None, (breaking,)))
    script = Script(call("read", n=1), "done")
    with pytest.raises(LookupError, match="no such page"):
        driven(one, script)
    assert (len(script.requests), one.record.ending, one.state) == (1, None, "Calling")
    is_broken = False
    driven(one, script)
    assert one.result().text == "done"
