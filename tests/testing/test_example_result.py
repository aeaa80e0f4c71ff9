"""Is a handmade result like the result of a call that a model has answered?"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

from fsm_agent import Agent, Dialog, UsageError
from fsm_agent.testing import Script, check_record, example_result


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
    ("7",),
    (7,),
    (True,),
    (None,),
    (Mood.BAD,),
    (Approve("ann"),),
    (Reject("ann"), Approve, Reject),
    ((Approve("ann"),), tuple[Approve, ...]),
    ("yes", str, int),
    (True, int, bool),
    ({"a": 1}, dict[str, int]),
]


@pytest.mark.parametrize("arguments", OUTPUTS, ids=repr)
def test_it_has_the_output(arguments: tuple[Any, ...]) -> None:
    result = example_result(*arguments)
    assert (type(result.output), result.output) == (type(arguments[0]), arguments[0])
    assert check_record(result.record) is None


def test_it_has_all_that_a_result_has() -> None:
    result = example_result("Tea it is.", dialog=Dialog().put("What do you drink?"))
    real = Agent(Script("Tea it is.")).call("What do you drink?")
    assert [(m.role, m.text) for m in result.dialog] == [(m.role, m.text) for m in real.dialog]
    assert [(step.source, step.trigger, step.to) for step in result.trace] == [
        (step.source, step.trigger, step.to) for step in real.trace
    ]
    assert [m.text for m in result.new_messages] == ["Tea it is."]
    message, dialog, function_calls = result
    assert (message.text, len(dialog), function_calls) == ("Tea it is.", 2, ())
    assert result == example_result("Tea it is.", dialog=Dialog().put("What do you drink?"))
    assert result.dialog.put("And then?").messages[-1].role == "user"


@pytest.mark.parametrize(
    "arguments", [((Approve("ann"),),), ("",), (5, str), (5, str, Mood), (object(),), (float("nan"),)]
)
def test_what_no_model_could_have_given_is_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(UsageError, match="example_result") as error:
        example_result(*arguments)
    assert "\n" not in str(error.value)
