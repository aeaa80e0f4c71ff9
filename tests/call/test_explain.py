"""Does a process say which row a step took, or an outcome would take, and why?"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from support.agent_calls import begun, say

from fsm_agent import Agent, CallSuspended, function, handoff
from fsm_agent.call import Approved, Cancelled, Denied, Injected, Limits, explain, explain_step
from fsm_agent.errors import IllegalTrigger, OutcomeError, UsageError
from fsm_agent.messages import Inside, Message, Stepped
from fsm_agent.testing import Script, function_call


def is_dark(record: Any, event: int, owner: Any) -> bool:
    return event > 20


def is_broken(record: Any, event: int, owner: Any) -> bool:
    raise LookupError("no switch")


def keep(record: Any, event: Any, owner: Any) -> Any:
    raise AssertionError("no action is called")


LAMP = SimpleNamespace(state="off")
ROWS: Any = [
    ("turned", ("off", "on"), "on", is_dark, keep),
    ("turned", "off", None, None, keep),
    ("turned", "off", "on", is_broken, keep),
    ("broke", "on", "off", None, keep),
    ("fell", "off", "on", is_broken, keep),
    ("fell", "off", "on", None, keep),
    ("shone", "off", "on", is_dark, keep),
]


def verdicts(explanation: Any) -> list[tuple[str, bool | None, bool]]:
    return [(row.guard, row.said, row.is_taken) for row in explanation.rows]


@pytest.mark.parametrize(
    ("trigger", "event", "expected", "to"),
    [
        ("turned", 21, [("is_dark", True, True), ("", None, False), ("is_broken", None, False)], "on"),
        ("turned", 20, [("is_dark", False, False), ("", None, True), ("is_broken", None, False)], "off"),
        ("fell", 1, [("is_broken", None, False), ("", None, False)], None),
        ("shone", 1, [("is_dark", False, False)], None),
        ("broke", 1, [], None),
        ("exploded", 1, [], None),
    ],
)
def test_the_guards_are_asked_from_the_top_until_one_holds(trigger, event, expected, to):
    explanation = explain(ROWS, trigger, LAMP, event, None)
    assert verdicts(explanation) == expected
    assert (explanation.taken and explanation.taken.to) == to
    assert bool(explanation.refusal) == (to is None)
    assert explanation.possible == ("fell", "shone", "turned")


def test_the_text_names_each_row_and_what_its_guard_said():
    text = str(explain(ROWS, "turned", LAMP, 20, None))
    assert [line.split()[0] for line in text.splitlines()[1:]] == ["refused", "taken", "not"]
    assert "LookupError: no switch" in str(explain(ROWS, "fell", LAMP, 1, None))


def test_a_step_tells_by_itself_which_guards_refused():
    step = Stepped("off", "turned", "off", "", 0.0)
    assert explain_step(ROWS, step) == explain(ROWS, "turned", LAMP, 20, None)


@pytest.mark.parametrize(
    "step",
    [
        Stepped("off", "turned", "blue", "", 0.0),
        Stepped("off", "turned", "on", "", 0.0, "is_light"),
        Stepped("blue", "turned", "on", "", 0.0, "is_dark"),
    ],
)
def test_a_step_of_another_table_is_refused(step):
    with pytest.raises(UsageError, match="turned"):
        explain_step(ROWS, step)


def test_a_step_that_two_rows_may_have_taken_is_not_guessed():
    with pytest.raises(UsageError, match="is_dark"):
        explain_step([*ROWS, ROWS[0]], Stepped("off", "turned", "on", "", 0.0, "is_dark"))


def test_a_call_explains_what_an_outcome_would_do_and_stays_as_it_is():
    call = say(begun(Limits(rounds=1, on_limit="fail")), function_call("erase", path="a"))
    before, effects = call.record, call.effects
    approval = call.explain(Approved(), key=effects[0].key)
    denial = call.explain(Denied("no"), key=effects[0].key)
    assert approval.taken.trigger == "approved"
    assert [row.guard for row in denial.rows if row.said is False] == [
        "others_pending",
        "rounds_left",
        "stops_at_limit",
    ]
    assert denial.taken.guard == "fails_at_limit"
    assert (call.record, call.effects) == (before, effects)
    call.advance(effects[0].key, Denied("no"))
    assert call.explain(call.step) == denial


def test_an_outcome_that_is_not_possible_is_explained_and_one_that_nothing_asks_for_is_refused():
    call = Agent(Script("Hi.")).prepare("Hello")
    explanation = call.explain(Injected((Message.of("user", "Hurry."),)))
    assert (explanation.taken, explanation.rows) == (None, ())
    assert "begun" in explanation.possible
    with pytest.raises(IllegalTrigger) as failed:
        call.advance("", Injected((Message.of("user", "Hurry."),)))
    assert str(failed.value) == explanation.refusal
    with pytest.raises(OutcomeError, match=r"ask:2\.0"):
        call.explain(Approved(), key="ask:2.0")


def test_an_ended_call_has_no_possible_trigger():
    call = Agent(Script("Hi.")).call("Hello").call
    assert call.explain(Cancelled()).possible == ()


def asks_a_colleague(*, hands_over: bool) -> Any:
    @function(needs_approval=True)
    def drop() -> str:
        """Drop it."""
        return "dropped"

    colleague = Agent(Script(function_call("drop"), "Done."), functions=[drop], name="colleague")
    inner = handoff(colleague) if hands_over else colleague.as_function()
    return Agent(
        Script(function_call(inner.name, **({} if hands_over else {"task": "Drop it."})), "Over."), functions=[inner]
    )


@pytest.mark.parametrize("hands_over", [False, True])
def test_steps_and_outcomes_of_a_call_inside_are_explained_by_it(hands_over):
    with pytest.raises(CallSuspended) as suspended:
        asks_a_colleague(hands_over=hands_over).call("Go.")
    call = suspended.value.call
    (effect,) = call.effects
    assert call.explain(Approved(), key=effect.key).taken.trigger == "approved"
    call.advance(effect.key, Approved())
    (step,) = [event for event in call.steps if isinstance(event, Inside)]
    assert call.explain(step).taken.trigger == "approved"


def test_what_ends_a_call_whose_dialog_was_handed_over_ends_the_one_that_has_it():
    with pytest.raises(CallSuspended) as suspended:
        asks_a_colleague(hands_over=True).call("Go.")
    call = suspended.value.call
    assert call.explain(Cancelled()).taken.to == "Failed"
    call.advance("", Cancelled())
    assert call.explain(call.step).taken.trigger == "relayed"
