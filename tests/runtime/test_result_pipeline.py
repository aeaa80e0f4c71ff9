"""Does a result take the steps that it should, in order?"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.agents import Agent
from fsm_agent.call import CallFailed, Returned
from fsm_agent.errors import UsageError
from fsm_agent.functions import function
from fsm_agent.messages import FunctionCall, Image, Message, ResultCached, ResultExtracted, ResultProcessed
from fsm_agent.runtime import ProcessedResult, ResultPipeline, truncate
from fsm_agent.store import MemoryStore
from fsm_agent.testing import Script, function_call

CALL = FunctionCall(name="search", arguments_json="{}", id="2.0")
DIALOG = [Message.of("user", "Old."), Message.of("user", "Where is ", "it?"), Message.of("assistant", CALL)]
STEPS = ("processor", "extractor", "cacher")


def apply(pipeline: ResultPipeline, outcome: Returned) -> Any:
    return asyncio.run(pipeline.aapply(CALL, outcome, DIALOG))


def plain(step):
    return step


def waiting(step):
    """Make a coroutine function of a step, which really waits."""

    async def later(*args):
        await asyncio.sleep(0)
        return step(*args)

    return later


steps = pytest.mark.parametrize("step", [plain, waiting])


def test_the_defaults():
    pipeline = ResultPipeline()
    assert (pipeline.processor, pipeline.extractor, pipeline.cacher) == (None, None, None)
    assert (pipeline.extraction_threshold, pipeline.inline_threshold) == (15_000, 2_000)
    assert "0x" not in repr(ResultPipeline(processor=lambda name, text: None))


@pytest.mark.parametrize("value", [-1])
@pytest.mark.parametrize("name", ["extraction_threshold"])
def test_a_threshold_is_a_number_of_tokens(name, value):
    with pytest.raises(UsageError, match=name):
        ResultPipeline(**{name: value})


class TestSteps:
    @steps
    def test_all_three_in_order(self, step):
        asked, stored = [], {}

        def keep(name, text):
            stored[name] = text
            return "kept"

        pipeline = ResultPipeline(
            processor=step(lambda *args: asked.append(args) or "p" * 100_000),
            extractor=step(lambda *args: asked.append(args) or "e" * 10_000),
            cacher=step(keep),
        )
        image = Image(url="https://example.org/a.png")
        piped = apply(pipeline, Returned(text="raw", attachments=(image,), at_s=7.0))
        assert (piped.outcome, piped.events) == (
            Returned(text="kept", attachments=(image,), at_s=7.0),
            (
                ResultProcessed("2.0", "search", original_tokens=1, processed_tokens=25_000),
                ResultExtracted("2.0", "search", original_tokens=25_000, extracted_tokens=2_500),
                ResultCached("2.0", "search", original_tokens=2_500, summary_tokens=1),
            ),
        )
        assert asked == [("search", "raw"), ("search", "p" * 100_000, "Where is it?")]
        assert stored == {"search": "e" * 10_000}

    @pytest.mark.parametrize(("name", "threshold"), [("extractor", 15_000), ("cacher", 2_000)])
    def test_a_threshold_is_exceeded_by_one_token(self, name, threshold):
        pipeline = ResultPipeline(**{name: lambda *args: "short"})
        at = Returned(text="x" * 4 * threshold)
        assert apply(pipeline, at) == (at, ())
        above = apply(pipeline, Returned(text=at.text + "x"))
        assert above.outcome.text == "short"
        assert [event.original_tokens for event in above.events] == [threshold + 1]

    def test_the_thresholds_are_of_what_the_step_before_left(self):
        refuse = pytest.fail
        pipeline = ResultPipeline(processor=lambda *args: "short", extractor=refuse, cacher=refuse)
        assert apply(pipeline, Returned(text="x" * 100_000)).outcome.text == "short"

    @pytest.mark.parametrize("found", [None, "x" * 100_000])
    def test_what_is_left_as_it_is_makes_no_event(self, found):
        outcome = Returned(text="x" * 100_000)
        pipeline = ResultPipeline(**{name: lambda *args: found for name in STEPS})
        piped = apply(pipeline, outcome)
        assert piped == (outcome, ())
        assert piped.outcome is outcome

    def test_an_error_takes_no_step(self):
        outcome = Returned(text="x" * 100_000, is_error=True)
        assert apply(ResultPipeline(**dict.fromkeys(STEPS, pytest.fail)), outcome) == (outcome, ())

    def test_an_empty_string_is_a_result(self):
        piped = apply(ResultPipeline(processor=lambda name, text: ""), Returned(text="abc"))
        assert piped == (Returned(text=""), (ResultProcessed("2.0", "search", 1, 0),))

    @pytest.mark.parametrize(("counts", "told"), [((), (1, 2)), ((7, 3), (7, 3)), ((None, 0), (1, 0))])
    def test_a_step_may_count_tokens_itself(self, counts, told):
        step = plain(lambda *_: ProcessedResult("changed", *counts))
        piped = apply(ResultPipeline(processor=step), Returned(text="abc"))
        assert piped.outcome.text == "changed"
        assert piped.events == (ResultProcessed("2.0", "search", *told),)

    def test_its_count_is_what_the_next_step_goes_by(self):
        pipeline = ResultPipeline(
            processor=lambda *_: ProcessedResult("changed", processed_tokens=9),
            cacher=lambda *_: "kept",
            inline_threshold=8,
        )
        assert apply(pipeline, Returned(text="abc")).events[1] == ResultCached("2.0", "search", 9, 1)

    @pytest.mark.parametrize("wrong", [(5,), ("x", -1), ("x", None, 1.5), ("x", True)])
    def test_what_is_no_text_or_count_is_refused(self, wrong):
        with pytest.raises(UsageError, match="search"):
            apply(ResultPipeline(processor=lambda *_: ProcessedResult(*wrong)), Returned(text="abc"))

    def test_half_a_character_gets_lost_here(self):
        piped = apply(ResultPipeline(processor=lambda name, text: "a\ud800"), Returned(text="abc"))
        assert piped.outcome.text == "a?"


class TestMistakes:
    @steps
    @pytest.mark.parametrize("name", STEPS)
    def test_what_a_step_raises_is_raised(self, step, name):
        def wrong(*args):
            raise KeyError("mine")

        pipeline = ResultPipeline(**{name: step(wrong)}, extraction_threshold=0, inline_threshold=0)
        with pytest.raises(KeyError, match="mine"):
            apply(pipeline, Returned(text="x"))

    def test_a_stop_iteration_does_not_pass_for_the_end(self):
        def wrong(*args):
            raise StopIteration("wrong")

        with pytest.raises(RuntimeError):
            apply(ResultPipeline(processor=wrong), Returned(text="x"))

    @pytest.mark.parametrize("name", STEPS)
    def test_a_step_returns_a_string(self, name):
        pipeline = ResultPipeline(**{name: lambda *args: b"x"}, extraction_threshold=0, inline_threshold=0)
        with pytest.raises(UsageError, match=name):
            apply(pipeline, Returned(text="x"))


def _quote(*args: str) -> str:
    raise KeyError(args[1])


class TestAStepThatFails:
    """The step may be there to redact, so the model must see neither the failed value nor an exception that quotes
    it.
    """

    SECRET = "iban=AT61 1904"
    TOLD = "The function account was run, but its result could not be prepared"

    def agent(self, script: Script, results: ResultPipeline, ran: list[int], **options) -> Agent:
        @function(on_error=options.pop("on_error", "tell"))
        def account(id: int) -> str:
            """Return an account."""
            ran.append(id)
            return self.SECRET

        return Agent(script, functions=[account], results=results, **options)

    @pytest.mark.parametrize("name", STEPS)
    @steps
    @pytest.mark.parametrize("fail", [_quote, lambda *args: (args[1],), lambda *args: args[1].encode()])
    def test_lets_nothing_through(self, name: str, fail, step, caplog: pytest.LogCaptureFixture):
        results = ResultPipeline(**{name: step(fail)}, extraction_threshold=0, inline_threshold=0)
        script, ran = Script(function_call("account", id=1), "ok"), []
        agent = self.agent(script, results, ran, name="clerk", store=MemoryStore())
        one = agent.prepare("Look.", run_id="r")
        agent.run(one)
        (asked,) = one.result().function_calls
        assert (ran, one.output) == ([1], "ok")
        assert asked.error.startswith(self.TOLD)
        assert script.requests[1].messages[-1].text == asked.error
        assert self.SECRET not in str(one.record)
        assert self.SECRET not in str(agent.runs.all.store.load("r", after=0))
        (line,) = [record for record in caplog.records if "its result could not be prepared" in record.message]
        assert "Error" in line.exc_text
        replayed = agent.runs.replay("r")
        assert replayed.record == one.record

    def test_may_end_the_call(self):
        ran: list[int] = []
        agent = self.agent(
            Script(function_call("account", id=1)), ResultPipeline(processor=_quote), ran, on_error="fail"
        )
        with pytest.raises(CallFailed, match=r"account: .*KeyError") as caught:
            agent.call("Look.")
        assert (ran, type(caught.value.__cause__)) == ([1], KeyError)
        assert self.SECRET not in str(caught.value)

    def test_lets_nothing_through_from_an_agent_inside(self):
        ran: list[int] = []
        script = Script(function_call("account", id=1), "ok")
        inner = self.agent(script, ResultPipeline(processor=_quote), ran, name="clerk")
        assert (
            Agent(Script(function_call("clerk", task="Look."), "done"), functions=[inner]).call("Go.").output == "done"
        )
        assert script.requests[1].messages[-1].text.startswith(self.TOLD)
        assert ran == [1]


class TestTruncated:
    def test_head_and_tail_stay(self):
        text = "a" * 100 + "b" * 100
        assert truncate(100)("search", text) == "a" * 35 + "\n[… 131 characters left out …]\n" + "b" * 34

    @given(st.text(st.characters(categories=["L", "Cs"]), max_size=300), st.integers(50, 120))
    def test_it_is_never_longer_and_counts_right(self, text, max_chars):
        short = truncate(max_chars)("search", text)
        assert (short is None) is (len(text) <= max_chars)
        short = text if short is None else short
        assert len(short) <= max_chars
        if short != text:
            head, _, rest = short.partition("\n[… ")
            count, _, tail = rest.partition(" characters left out …]\n")
            assert text.startswith(head)
            assert text.endswith(tail)
            assert head
            assert tail
            assert len(head) + int(count) + len(tail) == len(text)

    @pytest.mark.parametrize("max_chars", range(100, 104))
    @pytest.mark.parametrize("shift", [0, 1])
    def test_a_character_in_two_halves_is_not_parted(self, shift, max_chars):
        text = "x" * shift + "\ud83d\ude00" * 200
        short = truncate(max_chars)("search", text)
        halves = short.replace("\ud83d\ude00", "")
        assert not any("\ud800" <= c <= "\udfff" for c in halves)

    @pytest.mark.parametrize("value", [49, None])
    def test_nonsense_is_named(self, value):
        with pytest.raises(UsageError, match="max_chars"):
            truncate(value)
