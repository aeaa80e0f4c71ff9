"""What does a turn inherit of those before it, when a summary takes the place of the older ones?"""

from __future__ import annotations

from typing import Any

import pytest

from fsm_agent import Agent, CallFailed, MemoryStore, Message, Reply, Usage, UsageError, function
from fsm_agent.context import shorten, summarize
from fsm_agent.errors import AuthFailed
from fsm_agent.testing import Script, call

TURNS = 20


def talked(keep: Any, *, store: Any = None, by: Script | None = None, turns: int = TURNS) -> tuple[Any, Script]:
    """Return the last result of a conversation, and the model that answered it."""
    model = Script(*[f"answer {n}" for n in range(turns)])
    agent = Agent(model, system="Be terse.", name="talker", store=store)
    if store is not None:
        conversation = agent.conversation("c", keep=keep)
        for n in range(turns):
            result = conversation.call(f"question {n}")
        return conversation, model
    agent = agent.changed(keep=keep)
    result = None
    for n in range(turns):
        result = agent.call(f"question {n}") if result is None else agent.call(f"question {n}", after=result)
    return result, model


def shown(model: Script) -> list[list[str]]:
    return [[message.text for message in request.messages] for request in model.requests]


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_summary_takes_the_place_of_older_turns_and_what_is_kept_is_bounded(is_stored: bool):
    by = Script(*[f"summary {n}" for n in range(TURNS)])
    kept, model = talked([summarize(keep=3, step=2, by=by)], store=MemoryStore() if is_stored else None)
    requests = shown(model)
    assert max(map(len, requests)) <= 1 + 1 + 2 * (3 + 2) + 1, "system, summary, rounds, task"
    assert len(by.requests) <= TURNS // 2
    newest = requests[-1]
    assert newest[0] == "Be terse."
    assert newest[1].startswith("<history_summary>\nsummary ")
    assert newest[2:] == [text for n in range(16, 19) for text in (f"question {n}", f"answer {n}")] + ["question 19"]
    dialog = kept.read() if is_stored else kept.dialog
    assert len(dialog) <= 14, "and so is what later turns inherit"
    assert dialog[0] == Message.of("system", "Be terse.")


def test_the_next_summary_is_made_of_the_one_before_and_of_what_is_new():
    by = Script(*[f"summary {n}" for n in range(TURNS)])
    talked([summarize(keep=3, step=2, by=by)], turns=12)
    last = by.requests[-1].messages[-1].text
    assert "summary" in last
    assert "question 0" not in last, "it is in the summary"


def test_what_a_summary_takes_counts_in_the_turn_that_makes_it():
    by = Script(*[Reply.of(f"summary {n}").changed(usage=Usage(input_tokens=7)) for n in range(9)])
    result, _ = talked([summarize(keep=3, step=2, by=by)], turns=6)
    assert result.usage_by_agent["summary"] == Usage(input_tokens=7)
    assert result.usage.input_tokens == 7


def test_a_turn_is_not_lost_if_no_summary_can_be_made():
    by = Script(AuthFailed("no key"))
    result, model = talked([summarize(keep=3, step=2, by=by)], turns=6)
    assert result.output == "answer 5"
    assert [failure.report.kind for failure in result.failures] == ["AuthFailed"]
    assert shown(model)[-1][-1] == "question 5"
    assert len(result.dialog) == 13, "the dialog is kept whole, and the next turn tries again"


def test_a_summary_of_a_call_is_taken_along_by_the_next_turn_and_not_made_again():
    by = Script(*[f"summary {n}" for n in range(TURNS)])
    model = Script(*[f"answer {n}" for n in range(TURNS)])
    agent = Agent(model, context=[summarize(keep=3, step=2, by=by)])
    result = agent.call("question 0")
    for n in range(1, TURNS):
        result = agent.call(f"question {n}", after=result)
    assert len(result.dialog) == 2 * TURNS, "the dialog is whole"
    assert len(by.requests) < TURNS // 2
    assert shown(model)[-1][0].startswith("<history_summary>")


def test_a_run_of_a_turn_is_rebuilt_with_its_summary():
    by = Script(*[f"summary {n}" for n in range(9)])
    conversation, _ = talked([summarize(keep=3, step=2, by=by)], store=MemoryStore(), turns=9)
    for run in conversation.turns():
        again = conversation.replay(run.id)
        assert again.record.ending is not None


def test_a_summary_takes_its_place_whatever_the_passes_before_it_change():
    @function
    def read(page: int) -> str:
        """Read a page."""
        return f"{page} " * 200

    by = Script(*[f"summary {n}" for n in range(TURNS)])
    model = Script(*[reply for n in range(10) for reply in (call("read", page=n), f"page {n}")])
    agent = Agent(model, functions=[read], keep=[shorten(60), summarize(keep=2, step=2, by=by)])
    result = agent.call("page 0?")
    for n in range(1, 10):
        result = agent.call(f"page {n}?", after=result)
    quoted = [line for request in by.requests[1:] for line in request.messages[-1].text.splitlines()]
    assert len(by.requests) <= 9
    assert any("summary" in line for line in quoted), "each is made of the one before"
    assert max(len(request.messages) for request in model.requests) <= 1 + 4 * 4 + 3
    assert not any('"page 0"' in line for line in quoted), "what it stands for is not summarized again"


class TestMistakes:
    def test_what_is_no_pass_is_named(self):
        with pytest.raises(UsageError, match="keep has 5"):
            Agent(Script(), keep=5)
        with pytest.raises(UsageError, match="keep has summarize"):
            Agent(Script(), keep=[summarize])

    def test_a_pass_that_raises_is_named_before_anything_is_sent(self):
        def broken(messages: Any) -> Any:
            raise LookupError("no such page")

        model = Script("a", "b")
        agent = Agent(model, keep=[broken])
        first = agent.call("one")
        with pytest.raises(UsageError, match="the pass broken"):
            agent.call("two", after=first)
        assert len(model.requests) == 1

    def test_a_failed_turn_hands_on_what_it_has(self):
        agent = Agent(Script(AuthFailed("no key"), "fine"), keep=[summarize(keep=3, step=2)])
        with pytest.raises(CallFailed) as failed:
            agent.call("one")
        assert agent.call("two", after=failed.value.result).output == "fine"
