"""Does a call survive its process?"""

from __future__ import annotations

import json

import pytest
from support.agent_calls import PROMPT, asked, seeded, stop_when, waiting
from support.drivers import anyhow

from fsm_agent.call import AgentCall, Approved, Begun, Denied, ModelFailed, Replied, Returned, restore, snapshot
from fsm_agent.errors import ErrorReport, SnapshotError
from fsm_agent.messages import Image, Message, Reply, TokenLogprob
from fsm_agent.prompts import Dialog, Prompt
from fsm_agent.testing import FakeClock, Script, function_call


def test_days_later_another_process_goes_on_with_every_budget_kept():
    document = snapshot(waiting())
    call = restore(document, PROMPT, stop_when=stop_when)
    assert [e.key for e in call.effects] == ["ask:2.1"]
    call.advance("ask:2.1", Denied(reason="no"))
    call.advance("run:2.0", Returned(text="3"))
    call.advance("model:1", Replied(reply=asked(text="3")))
    assert (call.result().output, call.record.id, call.record.usage.input_tokens) == (3, "c1", 10)


def test_one_snapshot_may_be_gone_on_with_in_two_ways():
    document = snapshot(waiting())
    one, other = restore(document, PROMPT), restore(document, PROMPT)
    one.advance("ask:2.1", Approved())
    other.advance("ask:2.1", Denied())
    assert len(one.effects) == 2
    assert len(other.effects) == 1


@anyhow
def test_a_call_restored_after_its_backoff_goes_on_at_once(driven):
    call = seeded()
    call.advance("begin", Begun(at_s=0.0))
    call.advance("model:0", ModelFailed(error=ErrorReport(message="busy", retryable=True), delay_s=4.0, at_s=10.0))
    again, script = restore(snapshot(call), PROMPT), Script("42", clock=FakeClock(start_s=1_000.0))
    driven(again, script)
    assert again.result().output == 42
    assert sum(script.clock.sleeps) == 0


def test_the_output_of_a_restored_call_is_parsed_again():
    call = seeded()
    call.advance("begin", Begun(at_s=0.0))
    call.advance("model:0", Replied(reply=asked(text="42")))
    assert restore(snapshot(call), PROMPT).result().output == 42


def test_what_was_repeated_is_known_after_a_restart():
    call = waiting()
    call.advance("ask:2.1", Denied())
    call.advance("run:2.0", Returned(text="3"))
    call = restore(snapshot(call), PROMPT)
    call.advance("model:1", Replied(reply=asked(function_call("add", b=2, a=1))))
    assert call.record.newest_round[0].is_repeated


def test_images_come_back_as_they_were():
    picture = Image.of(b"\x89PNG\r\n\x1a\n\x00\xff")
    call = AgentCall.seed(Dialog([Message.of("user", "what?", picture)]), PROMPT)
    assert restore(snapshot(call), PROMPT).record == call.record


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda d: "{", "version 1"),
        (lambda d: json.dumps({**d, "version": 2}), "version"),
        (lambda d: json.dumps({**d, "record": {**d["record"], "state": "Nowhere"}}), "record.state"),
        (lambda d: json.dumps({**d, "prompt": "other"}), "'other'.*'walk'"),
    ],
)
def test_a_damaged_snapshot_is_refused_by_name(damage, says):
    with pytest.raises(SnapshotError, match=says):
        restore(damage(json.loads(snapshot(waiting()))), PROMPT)


def test_a_prompt_without_the_function_that_is_waited_for_is_refused():
    with pytest.raises(SnapshotError, match="add or erase"):
        restore(snapshot(waiting()), Prompt("x", path="walk"))


def test_what_json_has_no_number_for_survives():
    reply = Reply(message=Message.of("assistant", "?"), logprobs=(TokenLogprob("?", float("-inf")),))
    call = seeded()
    call.advance("begin", Begun(at_s=0.0))
    call.advance("model:0", Replied(reply=reply))
    assert restore(snapshot(call), PROMPT).record == call.record


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"id": 17}, "id"),
        ({"turn": "two"}, "turn"),
        ({"dialog": [Message(role="human")]}, "role"),
        ({"turn": -1}, "turn: .*-1"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(changes, named):
    call = waiting()
    if "dialog" in changes:
        changes = {"dialog": call.record.dialog.extend(changes["dialog"])}
    call.record = call.record.changed(**changes)
    with pytest.raises(SnapshotError, match=f"[^$]*{named}"):
        snapshot(call)


def test_a_snapshot_keeps_the_fingerprint_of_its_prompt():
    document = snapshot(waiting())
    assert restore(document, PROMPT).prompt_change is None
    changed = restore(
        document, Prompt("Otherwise: {{ task }}", functions=PROMPT.functions, output=PROMPT.output, path=PROMPT.path)
    )
    assert changed.prompt_change is not None


def test_a_snapshot_holds_no_callables_and_no_settings():
    document = snapshot(waiting())
    assert json.loads(document).keys() == {"version", "prompt", "record", "fingerprint"}
    assert "function add" not in document


@pytest.mark.parametrize("text", ["\x00", "half a pair: \ud800", "\u2028", '"}]', "\U0001f600", "{{ task }}"])
def test_what_models_and_functions_say_survives(text):
    call = seeded()
    call.advance("begin", Begun(at_s=0.0))
    call.advance("model:0", Replied(reply=asked(function_call("tick"), text=text)))
    call.advance("run:2.0", Returned(text=text))
    restored = restore(snapshot(call), PROMPT)
    assert restored.record.dialog[3].text == text.replace("\ud800", "\ufffd")
    assert [e.key for e in restored.effects] == ["model:1"]
