"""Is a result of a call that nobody made like one of a call that a model has answered?"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

from fsm_agent import Agent, CallResult, Dialog, UsageError
from fsm_agent.lifecycle.invariants import inconsistency
from fsm_agent.testing import Script


@dataclass(frozen=True)
class Approve:
    by: str


@dataclass(frozen=True)
class Reject:
    by: str
    reason: str = ""


class Mood(Enum):
    GOOD = "good"
    BAD = "bad"


OUTPUTS: list[tuple[Any, ...]] = [
    ("Tea it is.",),
    ("7",),
    (7,),
    (True,),
    (None,),
    (1.5,),
    (Mood.BAD,),
    (Approve("ann"),),
    (Approve("ann"), Approve, Reject),
    (Reject("ann"), Approve, Reject),
    ((Approve("ann"),), tuple[Approve, ...]),
    ("yes", str, int),
    (True, int, bool),
    (1, int, bool),
    (Mood.BAD, int, Mood),
    ({"a": 1}, dict[str, int]),
]


@pytest.mark.parametrize("arguments", OUTPUTS, ids=repr)
def test_it_has_the_output(arguments: tuple[Any, ...]) -> None:
    result = CallResult.of(*arguments)
    assert (type(result.output), result.output) == (type(arguments[0]), arguments[0])
    assert inconsistency(result.record) is None


def test_it_has_all_that_a_result_has() -> None:
    result = CallResult.of("Tea it is.", dialog=Dialog().put("What do you drink?"))
    real = Agent(Script("Tea it is.")).call("What do you drink?")
    assert [(m.role, m.text) for m in result.dialog] == [(m.role, m.text) for m in real.dialog]
    assert [(step.source, step.trigger, step.to) for step in result.trace] == [
        (step.source, step.trigger, step.to) for step in real.trace
    ]
    assert [m.text for m in result.new_messages] == ["Tea it is."]
    message, dialog, function_calls = result
    assert (message.text, len(dialog), function_calls) == ("Tea it is.", 2, ())
    assert result == CallResult.of("Tea it is.", dialog=Dialog().put("What do you drink?"))
    assert result.dialog.put("And then?").messages[-1].role == "user"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (((Approve("ann"),),), "its type beside it, as in CallResult.of((Approve(by='ann'),), tuple[Part, ...])"),
        (("",), "is '': what an answer of a model can be read as (the answer is empty) would be right"),
        ((5, str), "is 5: str, which JSON can hold, would be right"),
        ((5, str, Mood), "is 5: str or Mood, which JSON can hold, would be right"),
        ((object(),), "object, which JSON can hold, would be right"),
        ((float("nan"),), "is nan: what an answer of a model can be read as"),
    ],
)
def test_what_no_model_could_have_given_is_refused(arguments: tuple[Any, ...], problem: str) -> None:
    with pytest.raises(UsageError) as error:
        CallResult.of(*arguments)
    assert str(error.value).startswith("the output of a CallResult is ")
    assert problem in str(error.value)
    assert "\n" not in str(error.value)


def test_a_dialog_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="the dialog of a CallResult is 'Hi': a Dialog, or None, would be right"):
        CallResult.of("x", dialog="Hi")  # type: ignore[arg-type]
