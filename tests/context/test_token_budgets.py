"""Does a request fit its budget, by the passes that it takes, and is it not sent when it cannot?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.drivers import Driver, anyhow, everywhere, seed
from support.long_dialogs import SYSTEM, TASK, dialogs, rounds, told, torn

from fsm_agent import Agent, CallFailed, Prompt, Reason, UsageError, function
from fsm_agent.context import KeepLastN, SendOnce, TokenBudget, TruncateResults
from fsm_agent.context.view import View
from fsm_agent.context.window import message_tokens
from fsm_agent.errors import ContextTooLong
from fsm_agent.messages import ContextMeasured, Done, RequestStarted
from fsm_agent.testing import Script, call


def words(text: str) -> int:
    return len(text.split())


def nothing(messages):
    return messages


MESSAGES = [SYSTEM, TASK, *rounds("one two three four", "five six", "seven eight")]  # 4 words, and 2, 3 for each call


def sized(messages) -> int:
    return sum(message_tokens(message, words) for message in messages)


def test_a_tokenizer_of_ones_own_counts():
    texts: list[str] = []

    def tokenizer(text: str) -> int:
        texts.append(text)
        return words(text)

    fit = TokenBudget(hard=99, tokenizer=tokenizer).fit(MESSAGES)
    assert fit.measured.before == sized(MESSAGES) == 18
    assert {"Be terse.", "search", "{}", "seven eight"} <= set(texts)
    assert TokenBudget(hard=99).fit(MESSAGES).measured.before == sum(map(message_tokens, MESSAGES)) != 18


@pytest.mark.spec("4.26: passes in order, each once")
def test_passes_are_applied_in_order_each_once_until_it_fits():
    applied: list[str] = []

    def recorded(name, processor):
        def run(messages):
            applied.append(name)
            return processor(messages)

        run.__name__ = name
        return run

    passes = [recorded("none", nothing), recorded("two", KeepLastN(4)), recorded("one", KeepLastN(2))]
    for hard, ran, kept in ((18, [], ()), (17, ["none", "two"], ("two",)), (9, ["none", "two", "one"], ("two", "one"))):
        applied.clear()
        fit = TokenBudget(hard=hard, passes=passes, tokenizer=words).fit(MESSAGES)
        assert (applied, fit.measured.passes, fit.refusal) == (ran, kept, None)
        assert fit.measured.tokens == sized(fit.messages) <= hard
    assert TokenBudget(hard=12, reserve=3, passes=passes, tokenizer=words).fit(MESSAGES).messages == fit.messages


def test_a_pass_that_makes_it_longer_is_not_kept():
    fit = TokenBudget(hard=17, passes=[lambda m: [*m, TASK], KeepLastN(4)], tokenizer=words).fit(MESSAGES)
    assert fit.measured.passes == ("KeepLastN(n=4)",)
    assert TASK not in fit.messages[2:]


@pytest.mark.spec("4.26: the system prompt is never dropped")
def test_the_system_prompt_is_never_dropped_whatever_the_passes_do():
    dropping = [lambda messages: messages[1:], lambda messages: [TASK, SYSTEM], KeepLastN(2)]
    for hard in (17, 9, 1):
        fit = TokenBudget(hard=hard, passes=dropping, tokenizer=words).fit(MESSAGES)
        assert fit.messages[0] is SYSTEM
    assert fit.refusal is not None


@function
def read(words: int) -> str:
    """Read."""
    return "word " * words


PROMPT = Prompt("x", functions=(read,))


@pytest.mark.spec("4.26: soft: it is told")
@everywhere
def test_from_the_soft_limit_on_each_request_is_told_and_nothing_is_shortened(driven: Driver):
    one = seed(PROMPT, view=View(None, (TokenBudget(hard=1000, soft=60, tokenizer=words),)))
    script = Script(call("read", words=10), call("read", words=60), "done")
    events = driven(one, script)
    measured = [e for e in events if isinstance(e, ContextMeasured)]
    assert [(e.before, e.tokens, e.soft, e.passes) for e in measured] == [
        (sized(one.record.dialog[:-1]),) * 2 + (60, ())
    ]
    place = events.index(measured[0])
    following = events[place + 1]
    assert isinstance(following, RequestStarted)
    assert (following.number, following.messages) == (3, 6)
    assert tuple(script.requests[-1].messages) == tuple(one.record.dialog[:-1])


@pytest.mark.spec("4.26: hard: it is enforced", "1.37: a context window says when to compact and forces a fit")
@anyhow
def test_no_request_is_larger_than_the_hard_limit_and_the_dialog_stays_whole(driven: Driver):
    budget = TokenBudget(hard=80, reserve=20, tokenizer=words, passes=[TruncateResults(100), KeepLastN(2)])
    one = seed(PROMPT, view=View(None, (budget,)))
    script = Script(*[call("read", words=n) for n in (40, 41, 42)], "done")
    events = driven(one, script)
    assert [sized(request.messages) <= 60 for request in script.requests] == [True] * 4
    assert len(one.record.dialog) == 2 + 2 * 3 + 1
    assert all("left out" not in m.text for m in one.record.dialog)
    measured = [event for event in events if isinstance(event, ContextMeasured)]
    assert all(event.before > 60 >= event.tokens and event.passes for event in measured)
    assert bool(measured) is bool(events)


@pytest.mark.spec("4.26: what cannot fit fails without a request")
@anyhow
def test_what_cannot_fit_fails_without_a_request(driven: Driver):
    one = seed(PROMPT, view=View(None, (TokenBudget(hard=50, tokenizer=words),)))
    script = Script(call("read", words=300))
    events = driven(one, script)
    assert (len(script.requests), one.record.ending.reason) == (1, Reason.MODEL_FAILED)
    with pytest.raises(
        CallFailed, match=r"the request has \d+ tokens, and TokenBudget\(hard=50, reserve=0\) has"
    ) as failed:
        one.result()
    assert isinstance(failed.value.__cause__, ContextTooLong)
    assert torn(one.record.dialog) == ""
    if events:
        assert [e.number for e in events if isinstance(e, RequestStarted)] == [1], "no request was sent"


def test_an_agent_fails_before_its_first_request():
    events = []
    script = Script()
    agent = Agent(script, processors=[TokenBudget(hard=5)])
    with pytest.raises(CallFailed, match=r"after TruncateResults.*SendOnce.*it was not sent"):
        agent.run(agent.seed("a long question " * 10), events.append)
    assert isinstance(events[-1], Done)
    assert script.requests == []


def test_elsewhere_too_it_is_enforced():
    assert TokenBudget(hard=18, tokenizer=words)(MESSAGES) is MESSAGES
    with pytest.raises(ContextTooLong, match="the request has"):
        TokenBudget(hard=1)([told("1.0", "x" * 10)])


@given(dialogs(), st.integers(1, 200))
def test_it_fits_or_says_that_it_does_not_and_tears_no_round(messages, hard):
    fit = TokenBudget(hard=hard, passes=[TruncateResults(50), SendOnce(), KeepLastN(4), KeepLastN(1)]).fit(messages)
    assert torn(fit.messages) == ""
    assert (fit.refusal is None) is (sum(map(message_tokens, fit.messages)) <= hard)
    assert bool(fit.messages) is bool(messages)


@pytest.mark.parametrize(
    "options",
    [
        {"hard": 0},
        {"hard": 1.5},
        *[{"hard": 9, **wrong} for wrong in ({"reserve": 9}, {"reserve": -1}, {"soft": 9}, {"soft": True})],
        *[{"hard": 9, **wrong} for wrong in ({"passes": KeepLastN(1)}, {"passes": [1]}, {"tokenizer": "gpt"})],
    ],
)
def test_nonsense_is_named(options):
    with pytest.raises(UsageError, match=rf"TokenBudget\({list(options)[-1]}="):
        TokenBudget(**options)
