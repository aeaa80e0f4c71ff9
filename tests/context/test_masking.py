"""Does a request show just the results that are new, short or wrong, and does the dialog stay whole?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.agent_calls import begun, request, returned, say
from support.drivers import Driver, anyhow, environment, everywhere, seed
from support.long_dialogs import SYSTEM, TASK, asks, dialogs, rounds, told, torn
from support.views import view

from fsm_agent import Agent, Context, Limits, Message, Prompt, UsageError, function
from fsm_agent.call import Begun, Cancelled, Injected, Reason, snapshot
from fsm_agent.context import context_release, mask
from fsm_agent.errors import Overloaded
from fsm_agent.messages import FunctionResult, ObservationsMasked, Stepped
from fsm_agent.runtime import adrive, drive
from fsm_agent.testing import Script, function_call

LARGE = "x" * 2004  # 501 tokens
NOTE = "[Masked — {} result from iteration {}, {} tokens. Use result_cache tool if available, or re-invoke tool.]"


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages if message.role == "tool"]


def is_masked(messages: Sequence[Message], **options: int) -> list[bool]:
    return [text.startswith("[Masked — ") for text in texts(mask(**options)(messages))]


def test_a_token_has_four_characters():
    for text, tokens in (("a", 1), ("abcd", 1), ("abcde", 2), ("x" * 13, 4), ("é" * 4, 1), ("x" * 2000, 500)):
        shown = mask(min_tokens=0)([asks("1.0"), told("1.0", text), *rounds("", "", first=2)])
        assert f", {tokens} tokens" in shown[1].text


class TestOptions:
    def test_the_defaults(self):
        assert mask() == mask(keep_rounds=2, min_tokens=500)

    def test_nonsense_is_named(self):
        for name, value in (
            ("keep_rounds", 0),
            *[(n, v) for n in ("keep_rounds", "min_tokens") for v in (-1, True, 2.0)],
        ):
            with pytest.raises(UsageError, match=f"{name} of mask: .*{value!r}"):
                mask(**{name: value})
        assert mask(min_tokens=0)([]) == []


class TestWhatIsMasked:
    def test_so_many_rounds_are_kept(self):
        messages = [SYSTEM, TASK, *rounds(LARGE, LARGE, LARGE, LARGE)]
        before = list(messages)
        assert is_masked(messages) == is_masked(messages, keep_rounds=2) == [True, True, False, False]
        for keep in (1, 3, 4, 9):
            assert is_masked(messages, keep_rounds=keep) == [n < 4 - keep for n in range(4)]
        assert messages == before

    def test_a_result_of_just_the_size_is_kept(self):
        messages = [SYSTEM, TASK, *rounds("x" * 2000, LARGE, "", "")]
        assert is_masked(messages) == [False, True, False, False]

    def test_an_error_is_kept(self):
        messages = [SYSTEM, TASK, asks("2.0"), told("2.0", LARGE, is_error=True), *rounds("", "", first=3)]
        assert not any(is_masked(messages))

    def test_a_round_of_several_calls_is_one(self):
        together = [asks("1.0", "1.1"), told("1.0", LARGE), told("1.1", LARGE)]
        messages = [SYSTEM, TASK, *together, *rounds(LARGE, LARGE, first=2)]
        assert is_masked(messages) == [True, True, False, False]

    def test_several_results_in_one_message_are_masked_one_by_one(self):
        parts = [told(f"1.{i}", text).parts[0] for i, text in enumerate([LARGE, "small", LARGE])]
        messages = [asks("1.0", "1.1", "1.2"), Message.of("tool", *parts), *rounds("", "", first=2)]
        assert [part.text[:5] for part in mask()(messages)[1].parts] == ["[Mask", "small", "[Mask"]

    def test_messages_without_calls_are_no_rounds(self):
        pause = Message.of("assistant", "Let me think.")
        messages = [SYSTEM, TASK, pause, *rounds(LARGE, LARGE), pause, Message.of("user", "Go on."), pause]
        assert is_masked(messages) == [False, False]

    @given(dialogs())
    def test_the_shape_stays(self, messages):
        shown = mask(1, 5)(messages)
        assert torn(shown) == torn(messages) == ""
        for seen, said in zip(shown, messages, strict=True):
            assert seen == said or (seen.role, seen.parts[0].id) == ("tool", said.parts[0].id)


class TestTheNote:
    def test_its_text(self):
        result = FunctionResult(id="2.0", name="read_file", text=LARGE, provider_id="call_7")
        messages = [SYSTEM, TASK, asks("2.0"), Message.of("tool", result), *rounds("", "", first=3)]
        (masked,) = mask()(messages)[3].parts
        assert masked == result.changed(text=NOTE.format("read_file", 1, 501))

    def test_what_was_attached_is_gone_too(self):
        messages = [asks("1.0"), told("1.0", LARGE, images=2), *rounds("", "", first=2)]
        assert mask()(messages)[1].parts[0].attachments == ()
        assert len(messages[1].parts[0].attachments) == 2

    def test_a_name_is_no_template(self):
        messages = [asks("1.0"), told("1.0", LARGE, name="{tokens}"), *rounds("", "", first=2)]
        assert texts(mask()(messages))[0] == NOTE.format("{tokens}", 1, 501)


@function
def read(n: int, size: int = 2004) -> str:
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
    return [text if text.startswith("[") else text[:1] for text in texts(messages)]


def masking(**options: int) -> Any:
    return view(mask(**options))


def started(shown: Any = None) -> Any:
    return seed(PROMPT, limits=Limits(rounds=None), view=shown)


class TestInCalls:
    @anyhow
    def test_old_results_are_masked_in_requests_and_each_is_told_once(self, driven: Driver):
        one = started(masking())
        script = Script(*[function_call("read", n=n) for n in (1, 2, 3, 4)], "done")
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

    @everywhere
    def test_what_is_masked_is_told_before_the_request(self, driven: Driver):
        events = driven(
            started(masking(keep_rounds=1)),
            Script([function_call("read", n=1), function_call("read", n=2)], function_call("read", n=3), "done"),
        )
        place = next(i for i, e in enumerate(events) if isinstance(e, ObservationsMasked))
        assert events[place].count == 2
        before, after = events[place - 1], events[place + 1 :]
        assert isinstance(before, Stepped)
        assert (before.trigger, before.to) == ("returned", "Calling")
        assert [e.trigger for e in after if isinstance(e, Stepped)] == ["answered"]

    def test_what_was_there_before_the_call_is_of_no_round(self):
        script = Script(
            *[function_call("read", n=n) for n in (1, 2)],
            "one",
            *[function_call("read", n=n) for n in (3, 4, 5)],
            "two",
        )
        agent = Agent(script, functions=[read], context=mask(keep_rounds=2), limits=Limits(rounds=None))
        first = agent.call("?")
        agent.call("And?", after=first)
        assert shown(script.requests[-1].messages) == ["1", "2", NOTE.format("read", 1, 501), "4", "5"]

    @anyhow
    def test_what_a_function_releases_is_masked_in_the_next_request(self, driven: Driver):
        one = started(masking(keep_rounds=9))
        script = Script(
            function_call("read", n=1), function_call("read", n=2), function_call("release", rounds=[1]), "done"
        )
        driven(one, script)
        assert shown(script.requests[2].messages) == ["1", "2"]
        assert shown(script.requests[3].messages) == [NOTE.format("read", 1, 501), "2", "r"]
        assert one.record.released == (1,)

    @anyhow
    def test_without_masking_nothing_is_masked_whatever_is_released(self, driven: Driver):
        script = Script(function_call("read", n=1), function_call("release", rounds=[1]), "done")
        driven(started(view()), script)
        assert shown(script.requests[-1].messages) == ["1", "r"]

    def test_a_model_lets_go_of_rounds_itself(self):
        script = Script(function_call("read", n=1), function_call("context_release", rounds=[1]), "done")
        Agent(script, functions=[read, context_release()], context=[mask(keep_rounds=9)]).call("?")
        assert shown(script.requests[1].messages) == ["1"]
        assert shown(script.requests[2].messages) == [NOTE.format("read", 1, 501), "R"]

    def test_a_masked_call_may_be_made_again(self):
        call = begun(Limits(rounds=None), PROMPT, view=masking(keep_rounds=1))
        returned(say(call, function_call("read", n=1)), "1" * 2004)
        say(call, function_call("read", n=1))
        assert call.record.function_calls[-1].is_repeated, "its result stands above"
        say(call, function_call("read", n=1))
        assert [effect.key for effect in call.effects] == ["run:6.0"], "by now only a note stands above"

    @everywhere
    def test_a_request_that_is_made_again_masks_the_same_and_tells_nothing_new(self, driven: Driver):
        script = Script(function_call("read", n=1), function_call("read", n=2), Overloaded("busy"), "done")
        events = driven(started(masking(keep_rounds=1)), script)
        assert [e.count for e in events if isinstance(e, ObservationsMasked)] == [1]
        assert script.requests[2].messages == script.requests[3].messages

    def test_a_restored_call_shows_the_same(self):
        agent = Agent(Script(), functions=[read], context=mask(keep_rounds=1), limits=Limits(rounds=None))
        one = agent.prepare("?")
        one.advance("begin", Begun(at_s=0.0))
        for n in (1, 2):
            returned(say(one, function_call("read", n=n)), str(n) * 2004)
        again = agent.restore(snapshot(one))
        assert request(again).messages == request(one).messages
        assert shown(request(again).messages) == [NOTE.format("read", 1, 501), "2"]

    def test_a_masked_message_is_one_object_in_all_requests(self):
        script = Script(*[function_call("read", n=n) for n in range(5)], "done")
        Agent(script, functions=[read], context=mask(keep_rounds=1), limits=Limits(rounds=None)).call("?")
        masked = [request.messages[2] for request in script.requests[2:]]
        assert masked[0].text.startswith("[Masked")
        assert all(one is masked[0] for one in masked)

    @given(st.lists(st.integers(0, 4), max_size=4))
    def test_a_view_depends_on_the_record_alone(self, lengths):
        """A call that goes back and forth between its records shows at each what a fresh one shows."""
        records = []
        call = begun(Limits(rounds=None), PROMPT, view=view(mask(1, 5)))
        records.append(call.record)
        for n in range(4):
            returned(say(call, function_call("read", n=n)), str(n) * 99)
            records.append(call.record)
        for length in lengths:
            call.record, call._effects = records[length], None
            fresh = begun(Limits(rounds=None), PROMPT, view=view(mask(1, 5)))
            fresh.record, fresh._effects = records[length], None
            assert request(call).messages == request(fresh).messages

    @pytest.mark.parametrize("asynchronous", [True, False])
    @pytest.mark.parametrize("word", [Cancelled(reason="enough"), Injected((Message.of("user", "Hurry."),))])
    def test_a_listener_may_speak_up_when_he_hears_what_is_masked(self, asynchronous: bool, word: Any):
        one = started(masking(keep_rounds=1))
        script = Script(function_call("read", n=1), function_call("read", n=2), "done")

        def listen(event: Any) -> None:
            if isinstance(event, ObservationsMasked):
                one.advance("", word)

        async def main() -> None:
            async for event in adrive(one, environment(script)):
                listen(event)

        if asynchronous:
            asyncio.run(main())
        else:
            for event in drive(one, environment(script)):
                listen(event)
        if isinstance(word, Cancelled):
            assert one.record.ending.reason is Reason.CANCELLED
            assert len(script.requests) == 2, "nobody asks a model for a call that has ended"
        else:
            assert one.result().output == "done"
            assert script.requests[-1].messages[-1].text == "Hurry."


def test_nothing_masked_is_the_dialog_itself():
    messages = [SYSTEM, TASK, *rounds(LARGE)]
    assert all(one is other for one, other in zip(mask()(messages), messages, strict=True))
