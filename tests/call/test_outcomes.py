"""Is an outcome that no record could keep refused where it is made?"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.agent_calls import PROMPT, seeded, stop_when, waiting
from support.drivers import anyhow, seed

from fsm_agent.call import (
    AgentCall,
    Approved,
    Begun,
    Cancelled,
    Denied,
    Expired,
    FunctionFailed,
    Injected,
    ModelFailed,
    Modified,
    Replied,
    Returned,
    Slept,
    restore,
    snapshot,
)
from fsm_agent.errors import ErrorReport, OutcomeError, SnapshotError
from fsm_agent.messages import FunctionResult, Message, Reply, Text, Usage
from fsm_agent.testing import Script, function_call

MESSAGE = Message.of("user", "Hurry.")
REPORT = ErrorReport(message="busy")


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Modified({"path": "y"}), "Modified.arguments_json"),
        (lambda: Injected("text"), "Injected.messages"),
        (lambda: Injected(("Hurry.",)), "Injected.messages"),
        (lambda: Injected([MESSAGE]), "Injected.messages"),
        (lambda: Injected((Message(role="boss", parts=(Text("Hurry."),)),)), "Injected.*role"),
        (lambda: Injected((Message(role="tool", parts=(FunctionResult(id="9.0", name="look", text="x"),)),)), "look"),
        (lambda: Cancelled(reason=5), "Cancelled.reason"),
        (lambda: Begun(at_s=0.0, id=17), "Begun.id"),
        (lambda: Begun(at_s=True), "Begun.at_s"),
        (lambda: Slept(at_s=math.nan), "Slept.at_s"),
        (lambda: Expired(at_s=10**5000), "Expired.at_s"),
        (lambda: Replied(reply="hi"), "Replied.reply"),
        (lambda: ModelFailed(error="busy"), "ModelFailed.error"),
        (lambda: Returned(text="x", usage=Usage(input_tokens=-1)), "Returned.usage"),
        (lambda: Returned(text="x", releases=(0,)), "Returned.releases"),
        (lambda: Returned(text="x", attachments=("y",)), "Returned.attachments"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_is_named(make, named):
    with pytest.raises(OutcomeError, match=named):
        make()
    assert Begun(at_s=5).at_s == 5, "whole numbers are times, too"


@pytest.mark.parametrize("document", ["", "{", "[]", '{"kind":"agreed"}', b"\xff"])
def test_a_document_that_is_no_outcome_is_refused_with_its_key(document):
    with pytest.raises(OutcomeError, match=r"'ask:2\.1'"):
        waiting().decode("ask:2.1", document)


@anyhow
def test_an_id_that_is_no_text_is_refused_before_the_call_begins(driven):
    one = seed()
    with pytest.raises(OutcomeError, match=r"Begun\.id"):
        driven(one, Script("42"), new_id=lambda: 17)
    assert one.state == "Seeded"


TEXTS = st.text(max_size=5)
ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(10**400),
    st.floats(),
    TEXTS,
    st.binary(max_size=3),
    st.lists(TEXTS, max_size=2),
    st.lists(TEXTS, max_size=2).map(tuple),
    st.tuples(st.integers(-1, 3)),
    st.dictionaries(TEXTS, TEXTS, max_size=2),
    st.sampled_from([Reply.of("42"), Reply.of(function_call("tick")), REPORT, MESSAGE, (MESSAGE,)]),
    st.builds(lambda anything: Reply(message=Message.of("assistant", "42"), usage=Usage(input_tokens=anything)), TEXTS),
    st.builds(lambda anything: (Message(role=anything),), TEXTS),
    st.builds(lambda anything: ErrorReport(message=anything), st.integers()),
)


def _suspended() -> AgentCall:
    return waiting()


def _running() -> AgentCall:
    one = waiting()
    one.advance("ask:2.1", Approved())
    return one


def _calling() -> AgentCall:
    one = seeded()
    one.advance("begin", Begun(at_s=1.0))
    return one


def _backing_off() -> AgentCall:
    one = _calling()
    one.advance("model:0", ModelFailed(error=ErrorReport(message="busy", retryable=True), delay_s=1.0))
    return one


PLACES: list[tuple[Callable[[], AgentCall], str, type, list[str]]] = [
    (seeded, "begin", Begun, ["at_s", "id"]),
    (_calling, "model:0", Replied, ["reply", "at_s"]),
    (_calling, "model:0", ModelFailed, ["error", "delay_s", "at_s"]),
    (_calling, "", Injected, ["messages", "at_s"]),
    (_calling, "", Cancelled, ["reason", "at_s"]),
    (_calling, "", Expired, ["at_s"]),
    (_backing_off, "sleep:1", Slept, ["at_s"]),
    (_suspended, "ask:2.1", Approved, ["at_s"]),
    (_suspended, "ask:2.1", Modified, ["arguments_json", "at_s"]),
    (_suspended, "ask:2.1", Denied, ["reason", "at_s"]),
    (_running, "run:2.0", Returned, ["text", "is_error", "attachments", "is_cached", "releases", "at_s"]),
    (_running, "run:2.0", FunctionFailed, ["text", "at_s"]),
]
REQUIRED = {
    Begun: {"at_s": 1.0},
    Replied: {"reply": Reply.of("42")},
    ModelFailed: {"error": REPORT},
    Injected: {"messages": (MESSAGE,)},
    Modified: {"arguments_json": '{"path": "y"}'},
    Returned: {"text": "3"},
    FunctionFailed: {"text": "full"},
}


@given(st.data())
def test_whatever_is_given_is_refused_or_can_be_written_and_read_again(data):
    make, key, kind, names = data.draw(st.sampled_from(PLACES))
    fields = {
        **REQUIRED.get(kind, {}),
        **{name: data.draw(ANYTHING) for name in data.draw(st.sets(st.sampled_from(names)))},
    }
    one = make()
    before = one.record
    try:
        one.advance(key, kind(**fields))
    except OutcomeError:
        assert one.record is before
        return
    try:
        document = snapshot(one)
    except SnapshotError:  # a value deep inside
        return
    again = restore(document, PROMPT, stop_when=stop_when)
    assert again.record == one.record
    assert again.record.trace == one.record.trace
