"""Is each outcome read into the one trigger that it is?"""

from __future__ import annotations

import json

import pytest
from support.agent_calls import PROMPT, asked, function_call, seeded

from fsm_agent.errors import ErrorReport, UsageError
from fsm_agent.lifecycle import Approved, Begun, Cancelled, Denied, Expired, ModelFailed, Returned, Slept, Stop
from fsm_agent.lifecycle.interpret import fingerprint, read, read_reply
from fsm_agent.messages import FunctionCall, Message, Reasoning, Reply, Text

CALL = FunctionCall(name="add", arguments_json='{"a": 1, "b": 2}', id="2.0", needs_approval=True)
RECORD = seeded().record


@pytest.mark.spec(
    "0.9: calls are detected by their presence, whatever the finish reason",
    "1.5: it can stop at what the text says",
    "1.39: a refusal fails and is not retried",
)
@pytest.mark.parametrize(
    ("reply", "trigger"),
    [
        (asked(text="42"), "answered"),
        (asked(text="?"), "parse_failed"),
        (asked(function_call("tick"), text="42"), "functions_asked"),
        (asked(function_call("tick"), text="enough"), "stopped"),
        (Reply(message=Message.of("assistant", "42"), refusal="no"), "refused"),
        (Reply(message=Message.of("assistant", "42"), finish="content_filter"), "refused"),
        (Reply(message=Message.of("assistant"), finish="length"), "parse_failed"),
        (Reply(message=Message.of("assistant", "…"), finish="pause"), "paused"),
        (Reply(message=Message.of("assistant", "…"), finish="error"), "model_failed"),
    ],
)
def test_a_reply_is_one_trigger(reply, trigger):
    stop = None if trigger != "stopped" else lambda context: "enough" in context.reply.message.text
    assert read_reply(RECORD, reply, PROMPT, stop, set())[0] == trigger


@pytest.mark.spec("1.7: continue", "1.7: stop", "1.7: stop with a reason")
@pytest.mark.parametrize(
    ("verdict", "stopped"),
    [
        (None, None),
        (False, None),
        ("", None),
        (True, ("", None)),
        ("why", ("why", None)),
        (Stop(), ("", None)),
        (Stop("why", "[1]"), ("why", "[1]")),
    ],
)
def test_what_stop_when_may_say(verdict, stopped):
    trigger, answer = read_reply(RECORD, asked(text="42"), PROMPT, lambda context: verdict, set())
    assert trigger == ("answered" if stopped is None else "stopped")
    assert stopped is None or (answer.reason, answer.output_json) == stopped


@pytest.mark.parametrize("verdict", [1, [], Stop(5), Stop("why", {"found": True}), Stop("why", 1)])
def test_what_stop_when_may_not_say(verdict):
    with pytest.raises(UsageError, match="True, False, None, a reason or a Stop is right"):
        read_reply(RECORD, asked(text="42"), PROMPT, lambda context: verdict, set())


@pytest.mark.parametrize(
    ("outcome", "trigger"),
    [
        (Begun(at_s=0.0), "begun"),
        (ModelFailed(error=ErrorReport(message="x")), "model_failed"),
        (Slept(), "slept"),
        (Expired(), "expired"),
        (Cancelled(), "cancelled"),
    ],
)
def test_other_outcomes_are_their_own_triggers(outcome, trigger):
    assert read(RECORD, None, outcome, PROMPT) == (trigger, outcome)


@pytest.mark.parametrize(
    ("outcome", "trigger", "facts"),
    [
        (Approved(), "approved", (False, None, None)),
        (Denied(), "denied", (True, None, "The call was not allowed: no reason was given")),
        (Returned(text="3"), "returned", (True, "3", None)),
        (Returned(text="no", is_error=True), "returned", (True, None, "no")),
        (Returned(text=""), "returned", (True, "", None)),
    ],
)
def test_what_is_said_of_a_call_becomes_a_part_of_it(outcome, trigger, facts):
    name, call = read(RECORD, CALL, outcome, PROMPT)
    assert name == trigger
    assert (call.needs_approval, call.result, call.error) == facts


def test_calls_get_our_ids_and_everything_else_of_the_message_stays():
    parts = (Reasoning(text="hm", signature="s"), Text("so"), function_call("tick"), Text("and"), function_call("tick"))
    _, answer = read_reply(RECORD, Reply(message=Message(role="assistant", parts=parts)), PROMPT, None, set())
    assert [part.id for part in answer.message.parts if isinstance(part, FunctionCall)] == ["2.0", "2.1"]
    assert answer.message.parts[:2] == parts[:2]
    assert answer.message.parts[3] == parts[3]
    assert [f.id for f in answer.calls] == ["2.0", "2.1"]


@pytest.mark.spec(
    "1.8: the order of keys does not matter",
    "3.18: the order of keys does not matter",
    "3.18: values that only Python calls equal differ",
)
@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ('{"a": 1, "b": [1, {"x": 2, "y": 3}]}', '{"b":[1,{"y":3,"x":2}],"a":1}', True),
        ('{"a": "é"}', '{"a": "\\u00e9"}', True),
        ('{"a": [1, 2]}', '{"a": [2, 1]}', False),
        ('{"a": 1}', '{"a": 1.0}', False),
        ('{"a": null}', "{}", False),
        ("", "{}", True),
    ],
)
def test_fingerprints_are_of_what_is_meant(one, other, equal):
    prints = [fingerprint(FunctionCall(name="f", arguments_json=text)) for text in (one, other)]
    assert (prints[0] == prints[1]) is equal
    assert fingerprint(FunctionCall(name="g", arguments_json=one)) != prints[0]


def test_fingerprints_are_short_whatever_the_arguments():
    one, other = [FunctionCall(name="f", arguments_json=json.dumps({"x": "y" * 1000 + end})) for end in "ab"]
    assert fingerprint(one) != fingerprint(other)
    assert len(fingerprint(one)) <= 64
