"""Does a request fit its budget, by the passes that it takes, and is it not sent when it cannot?"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.drivers import Driver, anyhow, everywhere, seed
from support.long_dialogs import SYSTEM, TASK, dialogs, rounds, told, torn
from support.views import View, estimated, view

from fsm_agent import (
    Agent,
    CallFailed,
    Dialog,
    Document,
    FallbackClient,
    Image,
    Limits,
    Message,
    Prompt,
    Reply,
    Settings,
    Usage,
    UsageError,
    function,
)
from fsm_agent.call import CallRecord, Reason, Request, snapshot
from fsm_agent.clients import RateLimit, RateLimitedClient
from fsm_agent.context import (
    Budget,
    ContextPlan,
    TextTokenizer,
    compress,
    default_passes,
    keep_last,
    once,
    shorten,
    summarize,
    tiktoken_of,
)
from fsm_agent.errors import BudgetExceeded, ConfigError, ContextTooLong
from fsm_agent.messages import ContextShortened, FunctionResult, RequestStarted, WebSearch
from fsm_agent.prompts import Output
from fsm_agent.testing import Script, function_call

WORDS = TextTokenizer(lambda text: len(text.split()))
MESSAGES = [SYSTEM, TASK, *rounds("one two three four", "five six", "seven eight")]


@function(repeatable=True)
def read(words: int) -> str:
    """Read."""
    return "word " * words


PROMPT = Prompt("x", functions=(read,))


def budgeted(**options: Any) -> Any:
    return view(budget=Budget(**options))


def known(window: int, *entries: Any) -> Script:
    """A model with a context window."""
    script = Script(*entries)
    script.context_window = window  # type: ignore[attr-defined]
    return script


def size(request: Request) -> int:
    return WORDS.count(request)


def with_files(*files: Any) -> FunctionResult:
    return FunctionResult(id="1.0", name="search", text="", attachments=files)


def fitted(messages: Sequence[Message], budget: Budget) -> Any:
    """What a request would show of these messages."""
    return view(budget=budget).show(CallRecord.of(Dialog(messages).messages), Request(messages=()))


class TestOptions:
    def test_its_defaults(self):
        assert default_passes() == (shorten(4_000), summarize(keep=8), keep_last(4), keep_last(1))
        assert ContextPlan.of(None).budget == Budget() == Budget(hard=None, soft=None, reserve=None, passes=None)

    def test_nonsense_is_named(self):
        for options in (
            *({"hard": 0}, {"hard": 1.5}, {"soft": -1}),
            *[{"hard": 9, **wrong} for wrong in ({"reserve": 9}, {"reserve": -1}, {"soft": 9}, {"soft": True})],
            *[{"hard": 9, **wrong} for wrong in ({"passes": keep_last(1)}, {"passes": [1]}, {"tokenizer": "gpt"})],
        ):
            with pytest.raises(UsageError, match=f"{list(options)[-1]} of Budget"):
                Budget(**options)

    def test_one_without_a_limit_needs_a_known_window(self):
        with pytest.raises(UsageError, match="'script'"):
            Agent(Script(), context=Budget())
        assert Agent(known(1_000), context=Budget()).context == Budget()

    def test_it_stands_at_the_end(self):
        with pytest.raises(UsageError, match="Budget"):
            Agent(Script(), context=[Budget(hard=9), keep_last(1)])
        assert ContextPlan.of([keep_last(1), Budget(hard=9)]) == ContextPlan((keep_last(1),), Budget(hard=9))


class TestFit:
    def test_passes_are_applied_in_order_each_once_until_it_is_short(self):
        applied: list[str] = []

        def recorded(name, one):
            def run(messages):
                applied.append(name)
                return one(messages)

            run.__name__ = name
            return run

        passes = [
            recorded("none", lambda m: m),
            recorded("two", keep_last(2)),
            recorded("one", keep_last(1)),
            recorded("never", keep_last(1)),
        ]
        whole = size(Request(messages=MESSAGES))
        two, one = (size(Request(messages=keep_last(n)(MESSAGES))) for n in (2, 1))
        assert whole > two > one
        for soft, ran, kept, tokens in (
            (whole, [], (), whole),
            (whole - 1, ["none", "two"], ("two",), two),
            (two - 1, ["none", "two", "one"], ("two", "one"), one),
        ):
            applied.clear()
            shown = fitted(MESSAGES, Budget(hard=999, soft=soft, passes=passes, tokenizer=WORDS))
            assert (applied, shown.use.passes, shown.refusal) == (ran, kept, None)
            assert (shown.use.before, shown.use.estimated) == (whole, tokens)
            assert size(shown.request) == tokens

    def test_a_pass_that_makes_it_longer_is_not_kept(self):
        longer = lambda messages: [*messages, TASK]  # noqa: E731
        shown = fitted(MESSAGES, Budget(hard=99, soft=20, passes=[longer, keep_last(1)], tokenizer=WORDS))
        assert shown.use.passes == ("keep_last(1)",)
        assert TASK not in shown.request.messages[2:]

    def test_passes_before_it_are_applied_to_every_request(self):
        script = Script(function_call("read", words=200), function_call("read", words=1), "done")
        context = [shorten(100), Budget(hard=9_999, passes=[keep_last(1)], tokenizer=WORDS)]
        record = Agent(script, functions=[read], context=context).call("?").record
        assert [use.passes for use in record.requests] == [(), ("shorten(100)",), ("shorten(100)",)]
        assert 90 < len(script.requests[-1].messages[2].text) <= 100

    @given(dialogs(), st.integers(1, 400))
    def test_it_fits_or_says_that_it_does_not_and_tears_no_round(self, messages, hard):
        passes = [shorten(50), once(), compress(2), keep_last(2), keep_last(1)]
        shown = fitted(messages, Budget(hard=hard, reserve=0, passes=passes))
        assert torn(shown.request.messages) == ""
        assert (shown.refusal is None) is (estimated(shown.request) <= hard)
        assert bool(shown.request.messages) is bool(messages)

    def test_a_pass_that_drops_the_system_prompt_is_refused(self):
        def dropping(messages):
            return messages[1:]

        with pytest.raises(UsageError, match="the pass dropping"):
            fitted(MESSAGES, Budget(hard=9, soft=1, passes=[dropping], tokenizer=WORDS))


class TestWhatIsCounted:
    def tokens(self, request: Request, tail: Sequence[Message] = ()) -> int:
        shown = budgeted(hard=99_999, tokenizer=WORDS).show(CallRecord.of(Dialog([TASK]).messages), request, tail)
        return shown.use.estimated

    def test_all_that_is_sent(self):
        bare = self.tokens(Request(messages=()))
        assert bare == size(Request(messages=(TASK,)))
        assert self.tokens(Request(messages=(), functions=(read,))) >= bare + 3
        assert self.tokens(Request(messages=(), output=Output(list[int]))) > bare
        hosted = Settings(hosted_tools=(WebSearch(),))
        assert self.tokens(Request(messages=(), settings=hosted)) == bare + 300
        assert self.tokens(Request(messages=()), [Message.of("user", "one two three")]) == bare + 3 + 4

    @anyhow
    def test_the_exception_branch_and_what_is_injected(self, driven: Driver):
        one = seed(Prompt("x", output=int), view=budgeted(hard=9_999, tokenizer=WORDS))
        script = Script("no number at all", "42")
        driven(one, script)
        counted = [use.counted for use in one.record.requests]
        assert counted == [size(request) for request in script.requests]
        assert counted[1] > counted[0] + 8

    def test_a_file_counts_by_what_it_costs(self):
        """A text by its words, a PDF by its pages, a picture as one; neither by its bytes, nor as nothing."""
        text = Document.of(b"one two three", name="a.txt")
        pdf = Document.of(
            b"%PDF-1.4" + b"<< /Type /Pages >><< /Type /Page >>" + b"<</Type/Page/Parent 1 0 R>>" + b"x" * 9_999
        )
        picture = Image.of(b"\x89PNG\r\n\x1a\n" + b"x" * 99_999)
        empty = Document(data=b"", media_type="text/plain")
        page = self.tokens(Request(messages=()), [Message.of("user", picture)]) - self.tokens(
            Request(messages=()), [Message.of("user", "")]
        )
        assert 500 < page < 3_000
        for file, cost in ((text, 3), (pdf, 2 * page), (picture, page), (empty, 0)):
            for one in (Message.of("user", file), told("1.0", "").changed(parts=(with_files(file),))):
                assert size(Request(messages=(one,))) - size(Request(messages=(Message.of("user", ""),))) == cost

    @pytest.mark.parametrize("where", ["question", "result"])
    def test_a_long_text_file_is_counted_by_default(self, where):
        """Otherwise a request to a model with a known window would be sent at any length."""
        file = Document.of(b"word " * 20_000, name="a.txt")

        @function
        def read() -> tuple[str, Any]:
            """Read."""
            return "see", file

        if where == "question":
            script = known(8_192)
            with pytest.raises(CallFailed) as failed:
                Agent(script).call(Message.of("user", "See", file))
            assert isinstance(failed.value.__cause__, BudgetExceeded)
        else:
            script = known(8_192, function_call("read"), "done")
            assert Agent(script, functions=[read]).call("Read.").output == "done"
            (shown,) = script.requests[-1].messages[-1].parts
            assert len(shown.attachments[0].text) <= 4_000
            assert "characters left out" in shown.attachments[0].text

    def test_each_message_is_counted_once(self):
        count = 100

        class Counting:
            calls = messages = 0

            def count(self, request: Request) -> int:
                self.calls += 1
                self.messages += len(request.messages)
                return estimated(request)

        tokenizer = Counting()
        script = Script(*[function_call("read", words=n) for n in range(count)], "done")
        agent = Agent(
            script,
            functions=[read],
            context=Budget(hard=500_000, tokenizer=tokenizer, passes=[shorten(50)]),
            limits=Limits(rounds=None),
        )
        agent.call("?")
        assert tokenizer.messages <= 2 * count + 2
        assert tokenizer.calls <= 2 * count + 10

    @pytest.mark.parametrize("wrong", [ValueError("no table"), -1, 2.5, True])
    def test_a_tokenizer_that_fails_is_replaced_by_the_estimate_with_one_warning(self, wrong, caplog):
        class Broken:
            def count(self, request: Request) -> Any:
                if isinstance(wrong, Exception):
                    raise wrong
                return wrong

        script = Script(*[function_call("read", words=n) for n in range(3)], "done")
        with caplog.at_level(logging.WARNING, "fsm_agent"):
            record = Agent(script, functions=[read], context=Budget(hard=9_999, tokenizer=Broken())).call("?").record
        assert [use.counted for use in record.requests] == [estimated(request) for request in script.requests]
        assert [r.levelname for r in caplog.records] == ["WARNING"]

    def test_the_estimate_is_corrected_by_what_the_provider_reported(self):
        def replied(entry: Any, tokens: int) -> Reply:
            return Reply.of(entry).changed(usage=Usage(input_tokens=tokens))

        script = Script(
            replied(function_call("read", words=50), 50), replied(function_call("read", words=60), 200), "done"
        )
        record = Agent(script, functions=[read], context=Budget(hard=99_999)).call("?").record
        first, second, third = record.requests
        assert (first.estimated, first.reported) == (first.counted, 50)
        assert second.estimated == pytest.approx(second.counted * 50 / first.counted, abs=1)
        assert third.estimated == pytest.approx(third.counted * 200 / second.counted, abs=1)
        assert [use.counted for use in record.requests] == [estimated(request) for request in script.requests]

    def test_numbers_are_whole_whatever_the_correction(self):
        """What is refused needs more tokens than there are, if only by a part of one."""

        def called(reported: int, hard: int) -> tuple[Any, list[Request]]:
            reply = Reply.of(function_call("read", words=50)).changed(usage=Usage(input_tokens=reported))
            script = Script(reply, "done")
            agent = Agent(script, functions=[read], context=Budget(hard=hard, reserve=0, passes=[]))
            return agent.call("?").context, script.requests

        for reported in range(50, 90):
            uses, requests = called(reported, 99_999)
            assert [use.counted for use in uses] == list(map(estimated, requests))
            needed = uses[1].counted * reported / uses[0].counted
            assert 0 <= uses[1].estimated - needed < 1
            if needed > int(needed):
                with pytest.raises(CallFailed) as failed:
                    called(reported, int(needed))
                error = failed.value.__cause__
                assert (error.required, error.hard) == (int(needed) + 1, int(needed))

    def test_a_tokenizer_of_ones_own_is_not_corrected(self):
        script = Script(Reply.of(function_call("read", words=50)).changed(usage=Usage(input_tokens=900)), "done")
        context = Budget(hard=99_999, tokenizer=WORDS)
        record = Agent(script, functions=[read], context=context).call("?").record
        assert record.requests[1].estimated == size(script.requests[1])

    def test_the_estimate_is_seldom_too_low(self):
        for text in ("The quick brown fox jumps over the lazy dog. " * 20, "def f(x):\n    return x\n" * 30):
            bare, whole = (estimated(Request(messages=(Message.of("user", said),))) for said in ("", text))
            assert len(text) / 5 < whole - bare < len(text) / 2

    def test_without_tiktoken_the_extra_is_named(self, monkeypatch):
        tiktoken_of.cache_clear()
        monkeypatch.setitem(sys.modules, "tiktoken", None)
        with pytest.raises(ConfigError, match=r"pip install 'fsm-agent\[tiktoken\]'"):
            tiktoken_of("gpt-5-mini")


class TestSoft:
    @everywhere
    def test_from_the_soft_limit_on_each_request_is_shortened_and_told(self, driven: Driver):
        one = seed(PROMPT, view=budgeted(hard=1000, soft=80, tokenizer=WORDS, passes=[shorten(60)]))
        script = Script(function_call("read", words=10), function_call("read", words=90), "done")
        events = driven(one, script)
        (told,) = [e for e in events if isinstance(e, ContextShortened)]
        assert told.before == size(script.requests[-1].changed(messages=tuple(one.record.dialog[:-1])))
        assert (told.after, told.passes) == (size(script.requests[-1]), ("shorten(60)",))
        following = events[events.index(told) + 1]
        assert isinstance(following, RequestStarted)
        assert (following.number, following.messages) == (3, 6)


class TestHard:
    @anyhow
    def test_no_request_is_larger_than_the_hard_limit_and_the_dialog_stays_whole(self, driven: Driver):
        passes = [shorten(100), keep_last(1)]
        one = seed(PROMPT, view=budgeted(hard=110, reserve=20, tokenizer=WORDS, passes=passes))
        script = Script(*[function_call("read", words=n) for n in (70, 71, 72)], "done")
        events = driven(one, script)
        assert [size(request) <= 90 for request in script.requests] == [True] * 4
        assert len(one.record.dialog) == 2 + 2 * 3 + 1
        assert all("left out" not in m.text for m in one.record.dialog)
        told = [event for event in events if isinstance(event, ContextShortened)]
        assert all(event.before > 82 >= event.after and event.passes for event in told)
        assert bool(told) is bool(events)

    @anyhow
    def test_what_cannot_fit_fails_without_a_request(self, driven: Driver):
        passes = [shorten(2_000), keep_last(1)]
        one = seed(PROMPT, view=budgeted(hard=200, reserve=50, tokenizer=WORDS, passes=passes))
        script = Script(function_call("read", words=300))
        events = driven(one, script)
        assert (len(script.requests), one.record.ending.reason) == (1, Reason.MODEL_FAILED)
        with pytest.raises(CallFailed, match=r"150 of hard=200 .* reserve=50") as failed:
            one.result()
        error = failed.value.__cause__
        assert isinstance(error, BudgetExceeded)
        assert isinstance(error, ContextTooLong)
        assert (error.hard, error.tried) == (200, ("shorten(2000)", "keep_last(1)"))
        assert error.required > 300
        assert torn(one.record.dialog) == ""
        (failure,) = one.record.failures
        assert failure.report.kind == "BudgetExceeded"
        if events:
            assert [e.number for e in events if isinstance(e, RequestStarted)] == [1], "no request was sent"

    @anyhow
    def test_the_cause_is_the_budget_whatever_was_wrong_with_an_answer_before(self, driven: Driver):
        one = seed(Prompt("x", output=int), view=budgeted(hard=60, reserve=0, tokenizer=WORDS, passes=[]))
        driven(one, script := Script("no number " * 50))
        with pytest.raises(CallFailed, match=r"after 1 request\(s\)") as failed:
            one.result()
        assert type(failed.value.__cause__) is BudgetExceeded
        assert len(script.requests) == 1

    @given(st.integers(1, 300), st.integers(1, 120), st.integers(0, 60))
    def test_its_numbers_are_those_of_the_request_in_its_shortest_form(self, words, hard, reserve):
        """Tokens, of the tokenizer that the budget has."""
        messages = [SYSTEM, TASK, *rounds("word " * words, "word " * words)]
        budget = Budget(hard=hard, reserve=min(reserve, hard - 1), passes=[shorten(200), keep_last(1)], tokenizer=WORDS)
        shown = fitted(messages, budget)
        shortest = size(Request(messages=tuple(keep_last(1)(shorten(200)(messages)))))
        room = hard - min(reserve, hard - 1)
        if shown.refusal is None:
            assert size(shown.request) == shown.use.estimated <= room
        else:
            assert (shown.refusal.required, shown.refusal.hard) == (shortest, hard)
            assert shortest > room
            assert shown.refusal.tried == ("shorten(200)", "keep_last(1)")

    def test_a_request_that_was_not_sent_is_not_counted(self):
        for script, sent in ((Script(), 0), (Script(function_call("read", words=900)), 1)):
            agent = Agent(script, functions=[read], context=Budget(hard=400 * sent or 20, passes=[]))
            with pytest.raises(CallFailed, match=rf"after {sent} request\(s\)"):
                agent.call("word " * 50)
            assert len(script.requests) == sent

    def test_a_restored_call_fails_in_the_same_way(self):
        agent = Agent(Script(), context=Budget(hard=60))
        one = agent.prepare("a long question " * 100)
        with pytest.raises(CallFailed):
            agent.run(one).result()
        again = agent.restore(snapshot(one))
        with pytest.raises(CallFailed) as failed:
            again.result()
        error = failed.value.__cause__
        assert isinstance(error, BudgetExceeded)
        assert (error.required > 300, error.hard) == (True, 60)

    def test_the_reserve_is_that_of_the_settings(self):
        for settings, left in ((Settings(), 3_000), (Settings(max_tokens=100), 3_900)):
            agent = Agent(Script(), context=Budget(hard=4_000, passes=[]), settings=settings)
            with pytest.raises(CallFailed, match=rf"{left} of hard=4000 .* reserve={4_000 - left}"):
                agent.call("word " * 5_000)


class TestByDefault:
    """An agent that says nothing of its context, with a model whose window is known."""

    def test_a_call_that_outgrows_the_window_goes_on(self):
        entries = iter([*[function_call("read", words=2_000 + n) for n in range(12)], "done"])

        def answer(request: Request) -> Any:
            return next(entries) if request.functions else "They read."

        script = known(4_000, *[answer] * 30)
        agent = Agent(script, functions=[read], limits=Limits(rounds=None))
        result = agent.call("?")
        assert result.output == "done"
        assert all(estimated(request) <= 3_000 for request in script.requests)
        assert max(use.before for use in result.record.requests if use.before) > 3_000
        assert len(result.dialog) == 2 * 12 + 2

    @anyhow
    @pytest.mark.parametrize("limit", ["window", "hard"])
    def test_a_round_of_many_results_has_as_much_of_each_as_fits(self, driven: Driver, limit: str):
        """No pass can leave out part of a round, so results are shortened, but no more than necessary."""
        script = Script([function_call("read", words=900 + n) for n in range(12)], "done")
        plan = ContextPlan(budget=Budget(hard=8_192)) if limit == "hard" else ContextPlan(budget=Budget(), window=8_192)
        one = seed(PROMPT, view=View(plan))
        driven(one, script)
        assert one.result().output == "done"
        sizes = [len(m.text) for m in script.requests[-1].messages if m.role == "tool"]
        assert len(sizes) == 12
        assert len(set(sizes)) == 1
        room = 8_192 - 8_192 // 4 if 8_192 // 4 < 2_000 else 8_192 - 2_000
        assert room - 2 * 12 < estimated(script.requests[-1]) <= room
        (use,) = one.result().context[-1:]
        assert use.passes[-1] == f"shorten({sizes[0]})"
        assert use.estimated == estimated(script.requests[-1])

    @anyhow
    @pytest.mark.parametrize("hard", [8_192, 20_000])
    def test_long_refused_answers_do_not_end_the_call(self, driven: Driver, hard: int):
        """They are in the exception branch while the model is asked again.  The model sees the whole mistake."""
        answers = [f"{n} " + "word " * (hard // 4) for n in range(3)]
        script = Script(*answers, "42")
        prompt = Prompt("x", output=int, on_exception="{{ error_message }} " + "Mind this. " * (hard // 20))
        one = seed(prompt, view=budgeted(hard=hard), limits=Limits(parse_retries=3))
        driven(one, script)
        assert one.result().output == 42
        last = script.requests[-1].messages
        told = [m.text for m in last if m.role == "user"]
        shown = [m.text for m in last if m.role == "assistant"]
        assert [text[:2] for text in shown] == ["0 ", "1 ", "2 "]
        assert all(text.count("characters left out") == 1 for text in shown)
        assert told == [m.text for m in (*one.record.dialog, *one.record.pruned) if m.role == "user"]
        assert [m.text for m in one.record.pruned if m.role == "assistant"] == answers, "the record has them whole"

    def test_the_first_request_that_is_counted_extends_those_that_were_not(self):
        model = known(8_000, *[function_call("read", words=100 + n) for n in range(30)], "done")
        result = Agent(model, functions=[read], limits=Limits(rounds=None)).call("Go.")
        sent = [request.messages for request in model.requests]
        extends = [tuple(new[: len(old)]) == tuple(old) for old, new in pairwise(sent)]
        assert [use.extends for use in result.context] == [False, *extends]
        assert {use.messages is None for use in result.context} == {True, False}

    def test_a_model_of_one_call_whose_window_is_not_known_is_refused(self):
        agent = Agent(known(8_000), context=Budget())
        other = Script("never")
        with pytest.raises(UsageError, match="'script'"):
            agent.call("Hello", model=other)
        assert other.requests == []
        assert Agent(known(8_000)).call("Hello", model=Script("Hi.")).output == "Hi.", "by default there is no budget"

    def test_an_unknown_window_or_an_empty_list_means_everything(self):
        for script, context in (
            (Script(function_call("read", words=9_000), "done"), None),
            (known(100, function_call("read", words=9_000), "done"), []),
        ):
            result = Agent(script, functions=[read], context=context).call("?")
            assert len(script.requests[-1].messages[-1].text) == 45_000
            assert all(use.estimated is None for use in result.record.requests)

    def test_the_smallest_window_counts_where_one_of_several_models_may_reply(self):
        """A longer request would end the call at that model, exactly when the fallback is needed."""

        def named(*names: str) -> Any:
            clients = [Script(function_call("read", words=9_000), "done", name=name) for name in names]
            return clients[0], RateLimitedClient(FallbackClient(clients), RateLimit(max_concurrent=1))

        script, client = named("openai:gpt-5", "openai:gpt-4")
        assert Agent(client, context=Budget()).call("Hello", model=Script("Hi.", name="openai:gpt-4")).output == "Hi."
        assert Agent(client, functions=[read]).call("?").output == "done"
        assert len(script.requests[-1].messages[-1].text) < 20_000
        script, client = named("openai:gpt-4", "house")
        assert Agent(client, functions=[read]).call("?").output == "done"
        assert len(script.requests[-1].messages[-1].text) == 45_000, "one of the windows is not known"
