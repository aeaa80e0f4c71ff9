"""What does a turn inherit of those before it, when a summary takes the place of the older ones?"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.long_dialogs import torn

from fsm_agent import Agent, CallFailed, Document, Image, MemoryStore, Message, UsageError, function
from fsm_agent.context import compress, keep_last, relevant, shorten, summarize
from fsm_agent.errors import AuthFailed
from fsm_agent.testing import Script, function_call

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


def test_a_turn_is_not_lost_if_no_summary_can_be_made():
    by = Script(AuthFailed("no key"))
    result, model = talked([summarize(keep=3, step=2, by=by)], turns=6)
    assert result.output == "answer 5"
    assert [failure.report.kind for failure in result.failures] == ["AuthFailed"]
    assert shown(model)[-1][-1] == "question 5"
    assert len(result.dialog) == 13, "the dialog is kept whole, and the next turn tries again"


def test_a_run_of_a_turn_is_rebuilt_with_its_summary():
    by = Script(*[f"summary {n}" for n in range(9)])
    conversation, _ = talked([summarize(keep=3, step=2, by=by)], store=MemoryStore(), turns=9)
    for run in conversation.turns():
        again = conversation.runs.replay(run.id)
        assert again.record.ending is not None


def test_a_summary_takes_its_place_whatever_the_passes_before_it_change():
    @function
    def read(page: int) -> str:
        """Read a page."""
        return f"{page} " * 200

    by = Script(*[f"summary {n}" for n in range(TURNS)])
    model = Script(*[reply for n in range(10) for reply in (function_call("read", page=n), f"page {n}")])
    agent = Agent(model, functions=[read], keep=[shorten(60), summarize(keep=2, step=2, by=by)])
    result = agent.call("page 0?")
    for n in range(1, 10):
        result = agent.call(f"page {n}?", after=result)
    quoted = [line for request in by.requests[1:] for line in request.messages[-1].text.splitlines()]
    assert len(by.requests) <= 9
    assert any("summary" in line for line in quoted), "each is made of the one before"
    assert max(len(request.messages) for request in model.requests) <= 1 + 4 * 4 + 3
    assert not any('"page 0"' in line for line in quoted), "what it stands for is not summarized again"


def by_length(query: str, message: Message) -> float:
    return len(message.text) * 7 % 5


def by_role(query: str, message: Message) -> float:
    return message.role == "tool"


KEPT = st.lists(
    st.one_of(
        st.builds(keep_last, st.integers(1, 6)),
        st.builds(relevant, st.integers(1, 3), st.sampled_from([by_length, by_role])),
        st.builds(compress, st.integers(1, 3)),
        st.just(shorten(60)),
        st.tuples(st.integers(1, 3), st.integers(1, 3)),  # of a summary: keep and step
    ),
    min_size=1,
    max_size=3,
)
FILES = [Document.of(b"hello", name="a.txt"), Image.of("https://example.org/a.png")]


@function(repeatable=True)
def look(n: int) -> str:
    """Look."""
    return f"{n} " * 40 if n % 2 else ""


def separated(messages: Sequence[Message]) -> list[str]:
    """Return the numbers of the questions and answers that stand without each other."""
    asked = {m.text.split()[1] for m in messages if m.role == "user" and m.text.startswith("question ")}
    answered = {m.text.split()[1] for m in messages if m.role == "assistant" and m.text.startswith("answer ")}
    return sorted(asked ^ answered)


@pytest.mark.parametrize("is_async", [False, True])
@given(turns=st.lists(st.integers(0, 3), min_size=2, max_size=9), passes=KEPT)
def test_a_question_is_kept_with_its_answer_and_a_call_with_its_result(is_async: bool, turns: list[int], passes: Any):
    by = Script(*["summary"] * 30)
    keep = [summarize(keep=p[0], step=p[1], by=by) if isinstance(p, tuple) else p for p in passes]
    entries: list[Any] = []
    for n, count in enumerate(turns):
        entries += [function_call("look", n=10 * n + i) for i in range(count)]
        entries.append(f"answer {n}")
    model = Script(*entries)
    agent = Agent(model, functions=[look], keep=keep)
    result = None
    for n in range(len(turns)):
        said = Message.of("user", f"question {n}", *FILES[: n % 3])
        options = {} if result is None else {"after": result}
        result = asyncio.run(agent.acall(said, **options)) if is_async else agent.call(said, **options)
        assert separated(result.dialog) == []
        assert torn(result.dialog) == ""
        assert f"answer {n}" == result.dialog[-1].text
    for request in model.requests:
        newest = [m for m in request.messages if m.text.startswith("question ")][-1]
        assert separated(request.messages) == [newest.text.split()[1]], "it has no answer yet"


def test_what_a_pass_of_ones_own_keeps_is_kept():
    model = Script("a", "b")
    agent = Agent(model, keep=lambda messages: [m for m in messages if m.role == "user"])
    agent.call("two", after=agent.call("one"))
    assert [m.text for m in model.requests[-1].messages] == ["one", "two"]


def test_a_summary_that_is_kept_is_in_no_window_left_out():
    by = Script(*[f"summary {n}" for n in range(TURNS)])
    kept, model = talked([summarize(keep=1, step=2, by=by), keep_last(3)])
    assert kept.dialog[1].text.startswith("<history_summary>\nsummary ")
    for request in shown(model)[8:]:
        assert sum(text.startswith("<history_summary>") for text in request) == 1


@pytest.mark.parametrize("is_stored", [True, False])
def test_what_a_window_behind_a_summary_leaves_out_is_in_the_summary(is_stored: bool):
    """The window is narrower than what the summary leaves: still, nothing is lost."""

    def newest_of(request: Any) -> str:
        said = re.findall(r"answer (\d+)|up to (\d+)", request.messages[-1].text)
        return f"up to {max(int(a or b) for a, b in said)}"

    by = Script(*[newest_of] * TURNS)
    keep = [summarize(keep=12, by=by), keep_last(8), shorten(4_000)]
    _, model = talked(keep, store=MemoryStore() if is_stored else None)
    for number, request in enumerate(shown(model)):
        told = [int(text.split()[3]) for text in request if text.startswith("<history_summary>")]
        answers = [int(text.split()[1]) for text in request if text.startswith("answer")]
        assert answers == list(range(max(told, default=-1) + 1, number))
        assert len(answers) <= 8
    assert 1 < len(by.requests) <= TURNS // 4


class TestMistakes:
    def test_what_is_no_pass_is_named(self):
        with pytest.raises(UsageError, match=r"keep: .*5"):
            Agent(Script(), keep=5)
        with pytest.raises(UsageError, match=r"keep: .*summarize"):
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
