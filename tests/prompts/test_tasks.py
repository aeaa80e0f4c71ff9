"""Do values go with their prompt, under any name, and with pictures?"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from fsm_agent import Agent, Dialog, Image, Payload, Prompt, PromptError
from fsm_agent.messages import Text
from fsm_agent.prompts import Task
from fsm_agent.testing import Script

PNG = b"\x89PNG\r\n\x1a\n" + bytes(24)
PICTURE = Image(data=PNG, media_type="image/png")
ORDER = Prompt("Which goods does {{ letter }} order?", output=int)


def test_a_task_is_a_prompt_and_its_values() -> None:
    task = ORDER(letter="A-17")
    assert (task.prompt, task.values) == (ORDER, {"letter": "A-17"})
    assert task == Task(ORDER, {"letter": "A-17"})
    assert task.render().text == "Which goods does A-17 order?"


def test_an_unknown_name_is_an_error_where_it_is_written() -> None:
    with pytest.raises(PromptError, match="'letter'"):
        ORDER(leter="A-17")


def test_a_missing_one_is_an_error_when_the_task_is_rendered() -> None:
    task = ORDER()
    with pytest.raises(PromptError, match="letter"):
        task.render()
    script = Script()
    with pytest.raises(PromptError, match="letter"):
        Agent(script).call(task)
    assert script.requests == []


def test_a_variable_may_have_any_name() -> None:
    for name in ("model", "after", "deps", "values", "prompt", "run_id", "args"):
        script = Script("1", "2")
        prompt = Prompt("Say {{ " + name + " }}", output=int)
        assert Agent(script).call(prompt(**{name: "x"})).output == 1
        assert Agent(script).map([prompt(**{name: "x"})]).outputs == [2]
        assert [request.messages[-1].text for request in script.requests] == ["Say x", "Say x"]


def test_a_payload_among_the_values_has_its_text_in_place_and_its_pictures_behind() -> None:
    payload = Payload.text("this").with_image_data(PNG)
    parts = ORDER(letter=payload).render().parts
    assert parts[0] == Text("Which goods does this order?")
    assert [type(part) for part in parts[1:]] == [Image]
    put = Dialog().put(ORDER(letter=payload), Text("!"))
    assert put.tail is not None
    assert [type(part) for part in put.tail.parts] == [Text, Image, Text]
    assert put.top_prompt is ORDER


@dataclass
class Sheet:
    title: str
    scan: Image


@dataclass
class Odd:
    """Its annotations are for type checkers alone."""

    later: Unknown  # type: ignore[name-defined]  # noqa: F821

    def __str__(self) -> str:
        return "odd"


CIRCLE: list[object] = ["a", PICTURE]
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (["a", PICTURE], '["a"]'),
        ({"pic": PICTURE, "count": 1}, '{"count": 1}'),
        ({"pics": [PICTURE]}, "{}"),
        (Sheet("a", PICTURE), "title: a"),
        ([Sheet("a", PICTURE)], "- title: a"),
        ([Payload.text("x").with_image_data(PNG)], '["x"]'),
    ],
)
def test_a_picture_inside_a_value_follows_the_text_as_well(value: object, said: str) -> None:
    assert ORDER(letter=value).render().parts == (Text(f"Which goods does {said} order?"), PICTURE)


def test_a_value_whose_fields_cannot_be_read_has_its_own_text() -> None:
    assert ORDER(letter=Odd(1)).render().text == "Which goods does odd order?"


def test_a_value_that_contains_itself_is_refused() -> None:
    with pytest.raises(PromptError, match="itself"):
        ORDER(letter=CIRCLE).render()


@pytest.mark.parametrize("pictures", [PICTURE, [PICTURE], (PICTURE, PICTURE)])
def test_pictures_among_the_values_follow_the_text(pictures: object) -> None:
    text, *rest = ORDER(letter=pictures).render().parts
    assert (text, rest) == (Text("Which goods does  order?"), [PICTURE] * len([*rest]))
    assert len(rest) == (len(pictures) if isinstance(pictures, list | tuple) else 1)


def test_the_prompt_of_an_agent_takes_its_values_with_the_task_in_words() -> None:
    script = Script("Mild.")
    agent = Agent(script, prompt=Prompt("The weather in {{ task }}, in {{ unit }}?"))
    assert agent.call(agent.prompt(task="Berlin", unit="°C")).output == "Mild."
    assert script.requests[0].messages[-1].text == "The weather in Berlin, in °C?"
    with pytest.raises(PromptError, match="unit; given: task"):
        agent.call("Berlin")
