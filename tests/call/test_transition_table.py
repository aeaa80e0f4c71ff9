"""Is the table sound, and does each rule do what its name says?"""

from __future__ import annotations

from itertools import groupby

import pytest
from support.agent_calls import FINAL, LIVE, PROMPT, assert_sendable, begun, keys, request, returned, say, texts
from support.copies import replace

from fsm_agent.call import (
    AgentCall,
    Begun,
    CallFailed,
    CallRecord,
    Denied,
    FunctionFailed,
    Injected,
    Limits,
    Modified,
    Reason,
    State,
)
from fsm_agent.call import transition_table as table
from fsm_agent.errors import IllegalTrigger
from fsm_agent.functions import Function
from fsm_agent.messages import FunctionCall, Message
from fsm_agent.prompts import Dialog, Prompt
from fsm_agent.testing import function_call

FLAT = [
    (trigger, source, to or source, guard)
    for trigger, sources, to, guard, _ in table.ROWS
    for source in ((sources,) if isinstance(sources, State) else sources)
]


def test_every_state_is_reached_and_every_live_state_can_end():
    reached = {State.SEEDED}
    for _ in State:
        reached |= {to for _, source, to, _ in FLAT if source in reached}
    assert reached == set(State)
    ending = set(FINAL)
    for _ in State:
        ending |= {source for _, source, to, _ in FLAT if to in ending}
    assert ending == set(State)


def test_final_states_have_no_exits_and_live_ones_have():
    assert {source for _, source, _, _ in FLAT} == set(LIVE)


def test_the_last_row_of_each_trigger_and_source_takes_all_that_those_above_it_leave():
    ordered = sorted(FLAT, key=lambda row: (row[0], row[1]))
    for key, rows in groupby(ordered, key=lambda row: row[:2]):
        *guards, last = [guard for *_, guard in rows]
        assert last is None or (last is table.at_round_limit and table.rounds_left in guards), key  # its opposite
        assert None not in guards, key


# The limit of rounds


def at_limit(on_limit: str, rounds: int = 3) -> AgentCall:
    """A model that always asks for functions."""
    call = begun(Limits(rounds=rounds, on_limit=on_limit))
    while call.state is State.CALLING and request(call).functions:
        returned(say(call, f"so far {call.record.rounds}", function_call("tick")), "now")
    return call


def test_at_the_limit_the_model_is_asked_once_more_for_its_answer():
    call = at_limit("final_prompt")
    assert (call.state, call.record.rounds, call.record.turn) == (State.CALLING, 3, 3)
    assert "Call no more functions" in request(call).messages[-1].text
    assert request(call).functions == ()
    result = say(call, "42").result()
    assert (result.output, result.iterations) == (42, 4)


@pytest.mark.parametrize(("on_limit", "state"), [("stop", State.COMPLETED), ("fail", State.FAILED)])
def test_at_the_limit_the_call_ends_with_the_last_reply(on_limit, state):
    call = at_limit(on_limit)
    result = call.result_so_far
    assert (call.state, result.ending.reason, result.ending.count) == (state, Reason.ROUND_LIMIT, 3)
    assert "limits.rounds=3" in result.ending.detail
    assert (result.iterations, result.text, call.output) == (3, "so far 2", None)
    assert call.record.dialog[-1].text == "now", "its functions were run"
    assert_sendable(call.record.dialog)
    assert call.effects == ()


@pytest.mark.parametrize("on_limit", ["stop", "fail"])
@pytest.mark.parametrize("last", ["settled at once", "denied", "returned"])
def test_whatever_closes_the_last_round_is_the_end(on_limit, last):
    call = begun(Limits(rounds=1, on_limit=on_limit))
    if last == "settled at once":
        say(call, function_call("nosuch"), function_call("add", a="x"))
    elif last == "denied":
        say(call, function_call("tick"), function_call("erase", path="x"))
        call.advance("ask:2.1", Denied())
        assert call.state is State.TOOL_INTERRUPT
        returned(call)
    else:
        say(call, function_call("erase", path="x"))
        call.advance("ask:2.0", Denied())
    assert call.state is (State.COMPLETED if on_limit == "stop" else State.FAILED)
    assert_sendable(call.record.dialog)


# Loops

A, A_TOO, B = ({"x": 1, "y": [2, {"p": 3, "q": 4}]}, {"y": [2, {"q": 4, "p": 3}], "x": 1}, {"x": 2})


def looked(*replies, threshold: int = 3, on_loop: str = "warn", prompt: Prompt | None = None) -> list[int]:
    """The rounds, from 1, at which a loop is seen; each reply is a list of (name, arguments)."""
    note = Function(name="note", parameters={"type": "object"}, repeatable=True, call=print)
    prompt = prompt or Prompt("x", functions=(note, replace(note, name="other")))
    call, seen = begun(Limits(rounds=None, identical_rounds=threshold, on_loop=on_loop), prompt), []
    for number, reply in enumerate(replies, start=1):
        say(call, *[function_call(name, **arguments) for name, arguments in reply])
        if call.record.is_looping:
            seen.append(number)
        while call.state is State.TOOL_INTERRUPT:
            returned(call)
    return seen


@pytest.mark.parametrize(
    ("replies", "expected"),
    [
        ([[("note", A)]] * 3, [3]),
        ([[("note", A)]] * 7, [3, 6]),
        ([[("note", A)]] * 2 + [[("note", B)]] + [[("note", A)]], []),
        ([[("note", A)]] * 2 + [[("note", B)]] + [[("note", A)]] * 3, [6]),
        ([[("note", A)], [("note", A_TOO)], [("note", A)]], [3]),
        ([[("note", {"x": 1})], [("note", {"x": True})], [("note", {"x": 1.0})]], []),
        ([[("note", A)], [("other", A)], [("note", A)]], []),
        ([[("note", A), ("other", B)], [("other", B), ("note", A)], [("note", A), ("other", B)]], [3]),
        ([[("note", A), ("other", B)], [("note", A)], [("note", A)]], []),
        ([[("note", A), ("note", A)], [("note", A)], [("note", A)]], []),
        ([[("nosuch", A)], [("nosuch", A_TOO)], [("nosuch", A)]], [3]),
    ],
    ids=["3", "7", "AABA", "AABAAA", "keys", "types", "names", "order in a reply", "more", "twice", "unknown"],
)
def test_a_loop_is_the_same_round_in_a_row(replies, expected):
    assert looked(*replies) == expected


def test_repetitions_that_are_not_run_are_a_loop_too():
    once = Function(name="note", parameters={"type": "object"}, call=print)
    assert looked(*[[("note", A)]] * 6, prompt=Prompt("x", functions=(once,))) == [3, 6]


def test_what_an_approver_changes_is_still_what_the_model_asked_for():
    call = begun(Limits(identical_rounds=2, on_loop="stop"))
    for path in ("tmp/1", "tmp/2"):
        say(call, function_call("erase", path="/"))
        if call.effects:
            call.advance(call.effects[0].key, Modified(f'{{"path": "{path}"}}'))
            returned(call)
    assert call.record.ending.reason is Reason.LOOPED


def test_what_is_no_json_and_what_is_used_up_make_loops_too():
    once = Function(name="once", parameters={"type": "object"}, call=print, repeatable=True, max_calls=1)
    for again in (FunctionCall(name="tick", arguments_json='{"a": '), function_call("once", b=1, a=2)):
        call = begun(Limits(identical_rounds=3, on_loop="stop"), PROMPT.extend(functions=(*PROMPT.functions, once)))
        while not call.record.ending:
            say(call, again)
            if call.state is State.TOOL_INTERRUPT:
                returned(call)
        assert (call.record.ending.reason, call.record.turn) == (Reason.LOOPED, 3)


def test_arguments_that_are_no_json_are_alike_when_they_read_alike():
    call = begun(Limits(identical_rounds=2, on_loop="stop"))
    for arguments in ('{"a": ', '{"a": 1, ', '{"b": '):
        say(call, FunctionCall(name="add", arguments_json=arguments))
    assert (call.state, call.record.identical_rounds) == (State.CALLING, 1)
    say(call, FunctionCall(name="add", arguments_json='{"b": '))
    assert call.record.ending.reason is Reason.LOOPED


def test_a_loop_is_the_end_before_it_is_run():
    call = begun(Limits(rounds=None, identical_rounds=3, on_loop="stop"))
    for _ in range(3):
        say(call, function_call("tick"))
        if call.effects:
            returned(call)
    ending = call.record.ending
    assert (ending.reason, ending.function, ending.count) == (Reason.LOOPED, "tick", 3)
    assert len(call.record.function_calls) == 2
    assert len(call.record.trace) == 6
    with pytest.raises(CallFailed, match="looped") as caught:
        call.result()
    assert [m.role for m in caught.value.result.dialog] == ["system", "user", *["assistant", "tool"] * 2]


def test_a_loop_behind_the_final_prompt_is_the_limits_end_and_no_loop():
    call = begun(Limits(rounds=3, identical_rounds=2, on_loop="stop"))
    for name in ("tick", "nosuch", "tick"):
        say(call, function_call(name))
        if call.state is State.TOOL_INTERRUPT:
            returned(call)
    say(call, function_call("tick"))
    assert (call.record.ending.reason, call.record.rounds) == (Reason.ROUND_LIMIT, 3)


@pytest.mark.parametrize("role", ["user", "system"])
def test_a_loop_is_told_behind_its_results_at_every_multiple(role):
    call = begun(Limits(rounds=None) if role == "user" else Limits(rounds=None, loop_role=role))
    for _ in range(7):
        returned(say(call, function_call("tick")))
    told = [(i, m.role, m.text) for i, m in enumerate(call.record.dialog) if i >= 2 and m.role in ("user", "system")]
    assert [(i, said_by) for i, said_by, _ in told] == [(8, role), (15, role)]
    assert ["tick" in text and f"{n} times" in text for n, (*_, text) in zip((3, 6), told, strict=True)] == [True] * 2
    assert_sendable(call.record.dialog)


# Verdicts, injections, functions that fail


@pytest.mark.parametrize(("path", "is_repeated"), [("tmp", True), ("/", False)])
def test_what_was_run_is_repeated_and_not_what_was_asked(path, is_repeated):
    call = say(begun(), function_call("erase", path="/"))
    call.advance("ask:2.0", Modified('{"path": "tmp"}'))
    say(returned(call), function_call("erase", path=path))
    assert bool(call.record.function_calls[1:]) is is_repeated
    assert keys(call) == (["model:2"] if is_repeated else ["ask:4.0"])


def test_a_function_whose_failure_is_the_calls_ends_it():
    call = say(begun(), function_call("add", a=1, b=2), function_call("tick"))
    call.advance("run:2.1", FunctionFailed(text="OSError: the disk is full"))
    ending = call.record.ending
    assert (call.state, ending.reason, ending.function) == (State.FAILED, Reason.FUNCTION_FAILED, "tick")
    with pytest.raises(CallFailed, match="tick"):
        call.result()
    assert texts(call.record.dialog)[-1] == "OSError: the disk is full"
    assert_sendable(call.record.dialog)


@pytest.mark.parametrize("state", [s for s in State if s not in (State.CALLING, State.TOOL_INTERRUPT)])
def test_nothing_is_injected_where_no_request_follows_it(state):
    call = AgentCall(CallRecord.of(Dialog().put("?").messages).changed(state=state), PROMPT)
    before = call.record
    with pytest.raises(IllegalTrigger, match=str(state)):
        call.advance("", Injected((Message.of("user", "Hurry."),)))
    assert (call.record, call.state) == (before, state)


@pytest.mark.parametrize("own", [[], [Message.of("system", "Old.")]])
def test_a_system_message_that_comes_with_the_beginning_is_none_of_the_calls_own(own: list[Message]):
    one = AgentCall.seed(Dialog([*own, Message.of("user", "What is 17 + 25?")]), PROMPT)
    one.advance("begin", Begun(at_s=1.0, id="c", system="You add."))
    say(one, "42")
    result = one.result()
    assert [(message.role, message.text) for message in result.dialog][:1] == [("system", "You add.")]
    assert [message.role for message in result.dialog] == ["system", "user", "assistant"]
    assert [message.text for message in result.new_messages] == ["42"]
