"""Is a record that no call can have come to refused, and does every other pass?"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from support.agent_calls import PROMPT, asked, seeded, waiting

from fsm_agent.call import (
    AgentCall,
    Approved,
    Begun,
    Denied,
    ModelFailed,
    Modified,
    Replied,
    Returned,
    restore,
    snapshot,
)
from fsm_agent.errors import ErrorReport, SnapshotError
from fsm_agent.functions import Function
from fsm_agent.messages import Message, Reply
from fsm_agent.prompts import Dialog, Prompt
from fsm_agent.testing import check_record, function_call

DIALOG = Dialog([Message.of("user", "?")])


def ended() -> AgentCall:
    one = waiting()
    one.advance("ask:2.1", Denied())
    one.advance("run:2.0", Returned(text="3"))
    one.advance("model:1", Replied(reply=asked(text="3")))
    return one


def edited(one: AgentCall, path: str, value: Any) -> str:
    """The snapshot with another value at a path such as ``round.0.id``; ``+`` appends."""
    document = json.loads(snapshot(one))
    *steps, last = ["record", *path.split(".")]
    item = document
    for step in steps:
        item = item[int(step) if isinstance(item, list) else step]
    if last == "+":
        item.append(value)
    else:
        item[int(last) if isinstance(item, list) else last] = value
    return json.dumps(document)


def recalled() -> AgentCall:
    one = seeded()
    one.advance("begin", Begun(at_s=0.0))
    one.advance("model:0", ModelFailed(error=ErrorReport(message="busy", retryable=True)))
    return one


FAILURE = json.loads(snapshot(recalled()))["record"]["failures"][0]
STEP = {"source": "ToolInterrupt", "trigger": "approved", "to": "ToolInterrupt", "key": "", "at_s": 0.0}
ASSISTANT = {"role": "assistant", "parts": []}
PENDING = json.loads(snapshot(waiting()))["record"]["round"][1]


@pytest.mark.parametrize(
    ("make", "path", "value", "says"),
    [
        (waiting, "trace.0.trigger", "teleported", "step 1 of the trace .*'teleported'"),
        (waiting, "trace.1.to", "Nowhere", "step 2 of the trace .*'Nowhere'"),
        (waiting, "trace.1.source", "Backoff", "step 2 of the trace begins in 'Backoff'"),
        (waiting, "trace.1.key", "begin", "step 2 of the trace answers 'begin', which was answered before"),
        (waiting, "trace", [], "the state is 'ToolInterrupt'"),
        (waiting, "state", "Calling", "the state is 'Calling'"),
        (ended, "ending", None, "the state is 'Completed'"),
        (waiting, "ending", {"reason": "answered"}, "the state is 'ToolInterrupt'"),
        (ended, "reply", None, "the state is 'Completed'"),
        (waiting, "round", [], r"the state is 'ToolInterrupt'"),
        (ended, "round", [PENDING], r"the state is 'Completed'"),
        (ended, "round", [PENDING | {"result": "x"}], "the state is 'Completed'"),
        (waiting, "branch", [ASSISTANT], r"the exception branch has 1 message\(s\)"),
        (waiting, "turn", -1, "turn: .*got -1"),
        (waiting, "turn", 10**300, "turn: .*got 10+…"),
        *[(waiting, name, -1, f"{name}: .*got -1") for name in ("rounds", "parse_errors", "recalls", "depth")],
        *[(waiting, name, 3, f"{name}: .*got 3") for name in ("rounds", "recalls", "identical_rounds")],
        *[(waiting, "attempt", n, f"attempt: .*1 to 3, got {n}") for n in (0, 4)],
        (waiting, "seeded_with", -5, "seeded_with: .*got -5"),
        (waiting, "seeded_with", 4, "seeded_with: .*0 to 3, got 4"),
        *[
            (waiting, "summary", {"covers": 0, name: n}, rf"summary\.{name}: .*got {n}")
            for name, n in [("covers", -1), ("covers", 4), ("made_at", -2), ("made_at", 4), ("failed_at", 4)]
        ],
        (waiting, "tallies", {"add": {"successes": -1}}, r"tallies\['add'\]: .*got -1"),
        (ended, "tallies", {"add": {"failures": 9}}, r"tallies\['add'\]: .*got 9"),
        *[(waiting, "released", [3, n], f"round {n} is released") for n in (-2, 0)],
        (ended, "function_calls.1.id", "2.0", "function call '2.0' is settled"),
        (ended, "function_calls.1.id", "9.7", "function call '9.7' is settled"),
        (ended, "function_calls.0.result", None, "function call '2.0' is among the settled ones"),
        (waiting, "round.1.id", "2.0", r"the round has the function calls \['2.0', '2.0'\]"),
        (waiting, "round.+", PENDING, r"the round has the function calls \['2.0', '2.1', '2.1'\]"),
        (waiting, "round.0.name", "erase", "function call '2.0' is of 'erase'"),
        (waiting, "round.1.arguments_json", '{"path":"/"}', "function call '2.1' is not what the model asked for"),
        (waiting, "round.1.fingerprint", "other", "function call '2.1' is not what the model asked for, and was"),
        (waiting, "failures", [FAILURE], "1 failures are reported"),
        (recalled, "failures.0.key", "model:7", "the failure of 'model:7' is reported"),
        (recalled, "failures.0.delay_s", None, "the failure of 'model:0' is followed by no delay, and by 'Backoff'"),
        *[(recalled, "failures.0.attempt", n, f"the failure of 'model:0' is of attempt {n} in") for n in (0, 3)],
        (recalled, "failures.0.round", 2, "the failure of 'model:0' is of attempt 1 in round 2"),
        (ended, "injected", [ASSISTANT], r"'Completed'"),
        (waiting, "surprise", 1, "record: object contains unknown field surprise"),
        (waiting, "round.0.surprise", 1, r"record\.round\[0\]: object contains unknown field surprise"),
    ],
)
def test_what_contradicts_itself_is_refused_by_name(make, path, value, says):
    with pytest.raises(SnapshotError, match=says):
        restore(edited(make(), path, value), PROMPT)


def test_an_approved_call_that_waits_for_approval_again_is_refused():
    one = waiting()
    one.advance("ask:2.1", Approved())
    with pytest.raises(SnapshotError, match=r"'2\.1' waits for approval"):
        restore(edited(one, "round.1.needs_approval", True), PROMPT)


def test_a_field_beside_the_record_is_refused():
    document = json.loads(snapshot(waiting())) | {"surprise": 1}
    with pytest.raises(SnapshotError, match="surprise"):
        restore(json.dumps(document), PROMPT)


def test_arguments_that_an_approver_changed_are_no_contradiction():
    one = waiting()
    one.advance("ask:2.1", Modified('{"path": "tmp"}'))
    assert restore(snapshot(one), PROMPT).record == one.record


@pytest.mark.parametrize("make", [seeded, waiting, ended, recalled])
def test_what_really_happened_is_consistent(make):
    assert check_record(make().record) is None


@pytest.mark.nightly
def test_a_long_record_is_looked_at_in_linear_time():
    count = 10_000
    prompt = Prompt("x", path="p", functions=[Function(name="f", needs_approval=True)])
    one = AgentCall.seed(DIALOG, prompt)
    one.advance("begin", Begun(at_s=0.0))
    one.advance("model:0", Replied(reply=Reply.of(*[function_call("f", n=n) for n in range(count)])))
    began_s = time.perf_counter()
    assert check_record(one.record) is None
    assert len(restore(snapshot(one), prompt).effects) == count
    assert time.perf_counter() - began_s < 10  # a comparison of each with each would take minutes


# What an edited snapshot may not do: let a function run that nobody approved

ERASE_IN_DISGUISE = {"name": "erase", "arguments_json": '{"path":"/"}', "fingerprint": 'erase{"path":"/"}'}


def rewritten(one: AgentCall, index: int, changes: dict[str, Any]) -> str:
    """The snapshot with a pending call changed in the round and in the message alike."""
    document = json.loads(snapshot(one))
    record = document["record"]
    calls = [part for part in record["dialog"][-1]["parts"] if part["kind"] == "function_call"]
    for item in (record["round"][index], calls[index]):
        item |= changes
    return json.dumps(document)


@pytest.mark.parametrize(
    ("index", "changes", "waits_for"),
    [
        (1, {"needs_approval": False}, ["ask:2.1"]),
        (0, {**ERASE_IN_DISGUISE, "arguments_json": "{}"}, ["ask:2.0", "ask:2.1"]),
        (1, {"needs_approval": True}, ["ask:2.1"]),
    ],
)
def test_an_edited_snapshot_takes_no_approval_away(index, changes, waits_for):
    call = restore(rewritten(waiting(), index, changes), PROMPT)
    assert [effect.key for effect in call.effects] == waits_for


def test_a_verdict_without_the_step_that_it_was_given_in_is_none():
    one = waiting()
    one.advance("ask:2.1", Approved())
    document = json.loads(snapshot(one))
    document["record"]["trace"].pop()
    assert [effect.key for effect in restore(json.dumps(document), PROMPT).effects] == ["ask:2.1"]
    document["record"]["trace"].append(STEP | {"key": "ask:2.0"})  # it was given for another
    assert [effect.key for effect in restore(json.dumps(document), PROMPT).effects] == ["ask:2.1"]


def test_an_approval_that_was_given_is_kept():
    one = waiting()
    one.advance("ask:2.1", Approved())
    again = restore(snapshot(one), PROMPT)
    assert again.record == one.record
    assert [effect.key for effect in again.effects] == ["run:2.0", "run:2.1"]


@pytest.mark.parametrize(("policy", "waits_for"), [(True, "ask:1.0"), (lambda f: True, "ask:1.0"), (None, "run:1.0")])
def test_what_waits_is_decided_anew_by_the_functions_of_today(policy, waits_for):
    def prompt(needs_approval: Any) -> Prompt:
        return Prompt("x", path="p", functions=[Function(name="f", needs_approval=needs_approval)])

    one = AgentCall.seed(DIALOG, prompt(False))
    one.advance("begin", Begun(at_s=0.0))
    one.advance("model:0", Replied(reply=asked(function_call("f"))))
    assert [effect.key for effect in one.effects] == ["run:1.0"]
    assert [effect.key for effect in restore(snapshot(one), prompt(policy)).effects] == [waits_for]


def test_a_predicate_is_not_asked_about_arguments_that_the_function_does_not_take():
    def prompt(parameters: dict[str, Any]) -> Prompt:
        policy = {"needs_approval": lambda f: f.arguments["path"] == "/"}
        schema = {"type": "object", "properties": parameters, "required": list(parameters)}
        return Prompt("x", path="p", functions=[Function(name="f", parameters=schema, **policy)])

    one = AgentCall.seed(DIALOG, prompt({"path": {"type": "string"}}))
    one.advance("begin", Begun(at_s=0.0))
    one.advance("model:0", Replied(reply=asked(function_call("f", path="x"))))
    call = restore(snapshot(one), prompt({"file": {"type": "string"}, "path": {"type": "integer"}}))
    assert [effect.key for effect in call.effects] == ["ask:1.0"]
