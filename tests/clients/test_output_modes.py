"""Is a typed answer asked for in the mode of the prompt or of the model's profile, on every wire, and read alike?"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from conformance.streams import framed
from conformance.turns import Turn, TurnPart
from pydantic import BaseModel, Field
from support.dialects import AnthropicDialect, ChatDialect, GeminiDialect, ResponsesDialect, event
from support.fault_server import END_OF_CHUNKS, SSE_HEAD, FaultServer, Seen, Step, chunk, http

from fsm_agent import Agent, Limits, Prompt, Settings
from fsm_agent.call import CallResult
from fsm_agent.clients import HttpClient
from fsm_agent.messages import ArgumentsDelta, Done
from fsm_agent.providers import AnthropicProfile, GeminiProfile, Profile, Provider

WIRES: dict[str, tuple[Any, Profile]] = {
    "chat": (ChatDialect(), Profile()),
    "responses": (ResponsesDialect(), Profile()),
    "anthropic": (AnthropicDialect(), AnthropicProfile()),
    "gemini": (GeminiDialect(), GeminiProfile()),
}
wires = pytest.mark.parametrize("wire", WIRES)
ways = pytest.mark.parametrize("way", ["call", "stream"])

WORDS = """IMPORTANT: Respond with valid JSON matching this schema:

### Schema for `Review`
{
  "quality_score": "number", // Overall quality score from 0 to 100
  "issues": "string[]"
}"""
ANSWER = "give_final_answer"
RIGHT, WRONG = {"quality_score": 85, "issues": ["long"]}, {"quality_score": "high", "issues": []}


class Review(BaseModel):
    quality_score: int = Field(description="Overall quality score from 0 to 100")
    issues: list[str]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def says(text: Any) -> TurnPart:
    return TurnPart("text", [text if isinstance(text, str) else json.dumps(text)])


def calls(name: str, id: str = "call_1", **arguments: Any) -> TurnPart:
    whole = json.dumps(arguments)
    return TurnPart("call", [whole[:5], whole[5:]], name, id)


ADD = calls("add", a=17, b=25)


class Model:
    """A model behind a server that speaks one wire format.

    Args:
        wire: The name of the wire format.
        turns: The parts of each turn.
        profile: Changes of the profile.
    """

    def __init__(self, wire: str, *turns: list[TurnPart], **profile: Any) -> None:
        self.dialect, known = WIRES[wire]
        self.wire, self.profile = wire, known.changed(**profile)
        self._turns = iter([Turn(parts) for parts in turns])
        self._server = FaultServer(self._answer)

    def _answer(self, seen: Seen) -> list[Step]:
        turn = next(self._turns)
        if seen.json.get("stream") or "stream" in seen.path:
            is_gemini = self.wire == "gemini"  # whose own API does not cut the arguments of calls
            events = [event(json.loads(self.dialect.response(turn)))] if is_gemini else self.dialect.events(turn)
            return [SSE_HEAD, chunk(framed(events)), END_OF_CHUNKS]
        return [http(self.dialect.response(turn))]

    def __enter__(self) -> Model:
        self._server.__enter__()
        provider = Provider(name="p", codec=self.dialect.codec, base_url=self._server.base_url, profile=self.profile)
        self._client = HttpClient(provider, "m", api_key="k")
        return self

    def __exit__(self, *exc: Any) -> None:
        self._client.close()
        self._server.__exit__(*exc)

    def agent(self, **options: Any) -> Agent:
        return Agent(self._client, **{"system": "Review code.", **options})

    @property
    def asked(self) -> list[Captured]:
        """The requests that came."""
        return [captured(self.wire, seen.json) for seen in self._server.requests]


class Captured(NamedTuple):
    """The description of the output in a request, in every wire format."""

    schema: Any  # in the wire's own field
    functions: tuple[str, ...]
    choice: str | None
    system: str
    body: str


def captured(wire: str, body: Any) -> Captured:
    tools, whole = body.get("tools", []), json.dumps(body)
    match wire:
        case "chat":
            schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
            names, choice = [tool["function"]["name"] for tool in tools], body.get("tool_choice")
            system = body["messages"][0]["content"]
        case "responses":
            schema = body.get("text", {}).get("format", {}).get("schema")
            names, choice = [tool["name"] for tool in tools], body.get("tool_choice")
            system = body["input"][0]["content"]
        case "anthropic":
            schema = body.get("output_config", {}).get("format", {}).get("schema")
            names, kind = [tool["name"] for tool in tools], body.get("tool_choice", {}).get("type")
            choice, system = "required" if kind == "any" else kind, body["system"]
        case _:
            schema = body.get("generationConfig", {}).get("responseJsonSchema")
            names = [f["name"] for tool in tools for f in tool["functionDeclarations"]]
            mode = body.get("toolConfig", {}).get("functionCallingConfig", {}).get("mode")
            choice = {"ANY": "required", "VALIDATED": "auto", "NONE": "none"}.get(mode, mode)
            (part,) = body["systemInstruction"]["parts"]
            system = part["text"]
    return Captured(schema, tuple(names), choice, system, whole)


def ran(agent: Agent, way: str, task: Any = "Review it.", **options: Any) -> CallResult[Any]:
    if way == "call":
        return agent.call(task, **options)
    *_, last = agent.stream(task, **options)
    assert isinstance(last, Done)
    return last.result


def typed(mode: Any = None, **options: Any) -> Prompt[Review]:
    return Prompt("Review it.", output=Review, mode=mode, **options)


def answers(mode: str) -> list[TurnPart]:
    return [calls(ANSWER, **RIGHT)] if mode == "function" else [says(RIGHT)]


def details(result: CallResult[Any]) -> str:
    return "".join([step.detail for step in result.trace])


@wires
@ways
@pytest.mark.parametrize("mode", ["native", "function", "prompted"])
def test_each_mode_without_functions(wire: str, way: str, mode: str) -> None:
    with Model(wire, answers(mode)) as model:
        result = ran(model.agent(), way, typed(mode))
        (asked,) = model.asked
    assert result.output == Review(**RIGHT)
    assert (result.output_mode, details(result)) == (mode, "")
    assert asked.functions == ((ANSWER,) if mode == "function" else ())
    assert asked.choice == ("required" if mode == "function" else None)
    assert asked.system == (f"Review code.\n\n{WORDS}" if mode == "prompted" else "Review code.")
    assert (asked.schema is not None) is (mode == "native")
    assert asked.body.count("Overall quality score") == 1, "the schema goes out once"


@wires
@pytest.mark.parametrize("mode", ["native", "function", "prompted"])
def test_each_mode_beside_functions(wire: str, mode: str) -> None:
    with Model(wire, [ADD], answers(mode)) as model:
        result = ran(model.agent(functions=[add]), "stream", typed(mode))
        asked = model.asked
    assert result.output == Review(**RIGHT)
    assert [call.name for call in result.function_calls] == ["add"]
    for request in asked:
        assert request.functions == (("add", ANSWER) if mode == "function" else ("add",))
        assert request.choice == ("required" if mode == "function" else "auto")
        assert (request.schema is not None) is (mode == "native")
        words = f"{WORDS}\n\nCall functions first, as long as you need them."
        assert request.system == (f"Review code.\n\n{words}" if mode == "prompted" else "Review code.")


@wires
def test_two_stages(wire: str) -> None:
    with Model(wire, [ADD], [says("It is fine: 85.")], [says(RIGHT)]) as model:
        result = ran(model.agent(functions=[add]), "stream", typed("two_stage"))
        *first, last = model.asked
    assert result.output == Review(**RIGHT)
    assert result.output_mode == "native"
    for request in first:
        assert request.functions == ("add",)
        assert "quality_score" not in request.body
    assert last.schema is not None
    assert last.choice in (None, "none"), "no function may be called"
    assert "It is fine: 85." in last.body
    assert result.text == json.dumps(RIGHT)


def test_the_second_stage_is_in_words_where_the_model_takes_no_schema() -> None:
    with Model("chat", [says("It is fine: 85.")], [says(RIGHT)], native_schema=False) as model:
        result = ran(model.agent(functions=[add]), "call", typed("two_stage"))
        first, last = model.asked
    assert (first.system, last.system) == ("Review code.", f"Review code.\n\n{WORDS}")
    assert result.output_mode == "prompted"


@pytest.mark.parametrize(
    ("profile", "wanted", "used", "is_told"),
    [
        ({}, None, "native", False),
        ({"output_mode": "function"}, None, "function", False),
        ({"output_mode": "prompted"}, "native", "native", False),
        ({"output_mode": "function"}, "prompted", "prompted", False),
        ({"native_schema": False}, None, "prompted", True),
        ({"native_schema": False}, "function", "function", False),
        ({"native_schema": False, "output_mode": "function"}, None, "function", False),
        ({"native_schema": False, "output_mode": "function"}, "native", "prompted", True),
    ],
)
def test_the_profile_chooses_and_the_prompt_overrides(
    profile: dict[str, Any], wanted: Any, used: str, is_told: bool
) -> None:
    with Model("chat", answers(used), **profile) as model:
        result = model.agent().call(typed(wanted))
        (asked,) = model.asked
    assert result.output == Review(**RIGHT)
    assert result.output_mode == used
    assert (asked.schema is not None, ANSWER in asked.functions, WORDS in asked.system) == (
        used == "native",
        used == "function",
        used == "prompted",
    )
    assert bool(details(result)) is is_told, "what is not as it was wanted is in the trace, and nothing else"


def test_the_agents_own_output_is_asked_for_as_the_profile_has_it() -> None:
    with Model("chat", [calls(ANSWER, **RIGHT)], output_mode="function") as model:
        assert model.agent(output=Review).call("Review it.").output == Review(**RIGHT)


def test_a_schema_that_goes_only_without_functions_is_told_beside_them() -> None:
    with Model("chat", [ADD], [says(RIGHT)], schema_with_functions=False) as model:
        result = model.agent(functions=[add]).call(typed())
        assert [request.schema for request in model.asked] == [None, None]
    assert result.output_mode == "prompted"
    assert details(result)


@pytest.mark.parametrize("profile", [{}, {"native_schema": False}])
def test_text_is_left_alone(profile: dict[str, Any]) -> None:
    with Model("chat", [says("Looks *good*.")], **profile) as model:
        result = model.agent().call(Prompt("Review it.", mode="prompted"))
        (asked,) = model.asked
    assert (result.output, result.output_mode) == ("Looks *good*.", None)
    assert (asked.schema, asked.functions, asked.system) == (None, (), "Review code.")


# The function that takes the answer


@wires
def test_an_answer_by_the_function_is_checked_and_asked_for_again(wire: str) -> None:
    with Model(wire, [calls(ANSWER, **WRONG)], [calls(ANSWER, "call_2", **RIGHT)]) as model:
        agent = model.agent()
        result = ran(agent, "stream", typed("function"))
        _, again = model.asked
    assert result.output == Review(**RIGHT)
    assert "quality_score: Input should be a valid integer" in again.body
    assert [message.role for message in result.dialog] == ["system", "user", "assistant", "tool"]
    assert [call.arguments for call in result.dialog[2].function_calls] == [RIGHT]
    assert result.function_calls == ()


def test_a_dialog_that_ends_with_such_an_answer_goes_on() -> None:
    with Model("chat", [calls(ANSWER, **RIGHT)], [says("Thanks.")], [calls(ANSWER, **RIGHT)]) as model:
        agent = model.agent()
        first = agent.call(typed("function"))
        second = agent.call(first.dialog.put(Prompt("Say thanks.")))
        third = agent.call(second.dialog.put(typed("function")))
        _, asked, last = model.asked
    assert (second.output, third.output) == ("Thanks.", Review(**RIGHT))
    assert "The answer was taken." in asked.body
    assert (asked.schema, asked.choice in (None, "none")) == (None, True)
    ids = [call.id for message in third.dialog for call in message.function_calls]
    assert len(ids) == len(set(ids)) == 2
    assert last.functions == (ANSWER,)


def test_calls_of_other_functions_come_first() -> None:
    turns = [calls(ANSWER, "call_0", **WRONG), ADD], [calls(ANSWER, "call_2", **RIGHT)]
    with Model("chat", *turns) as model:
        result = ran(model.agent(functions=[add]), "stream", typed("function"))
        _, after = model.asked
    assert result.output == Review(**RIGHT)
    assert "parse_failed" not in [step.trigger for step in result.trace]
    early, added = result.function_calls
    assert (early.name, early.was_run, added.name, added.result) == (ANSWER, False, "add", "42")
    assert "This answer was not accepted" in after.body
    assert "Input should be a valid integer" not in after.body


def test_an_answer_in_words_is_read_as_well() -> None:
    with Model("chat", [says(RIGHT)]) as model:
        assert model.agent().call(typed("function")).output == Review(**RIGHT)


def test_of_two_answers_the_first_is_read_and_each_has_its_result() -> None:
    other = {"quality_score": 1, "issues": []}
    with Model("chat", [calls(ANSWER, "call_1", **RIGHT), calls(ANSWER, "call_2", **other)]) as model:
        result = model.agent().call(typed("function"))
    assert result.output == Review(**RIGHT)
    assert [message.role for message in result.dialog][-3:] == ["assistant", "tool", "tool"]


def test_functions_that_are_withdrawn_leave_the_answers_own() -> None:
    with Model("chat", [ADD], [calls(ANSWER, **RIGHT)]) as model:
        result = model.agent(functions=[add], limits=Limits(rounds=1)).call(typed("function"))
        first, last = model.asked
    assert result.output == Review(**RIGHT)
    assert (first.functions, last.functions) == (("add", ANSWER), (ANSWER,))


def test_a_function_that_the_model_must_call_first_comes_first() -> None:
    with Model("chat", [ADD], [calls(ANSWER, **RIGHT)]) as model:
        agent = model.agent(functions=[add], settings=Settings(tool_choice="required"))
        assert agent.call(typed("function")).output == Review(**RIGHT)
        first, second = model.asked
    assert (first.functions, first.choice) == (("add",), "required")
    assert (second.functions, second.choice) == (("add", ANSWER), "required")


def test_functions_that_may_not_be_called_are_not_called() -> None:
    with Model("chat", [calls(ANSWER, **RIGHT)]) as model:
        agent = model.agent(functions=[add], settings=Settings(tool_choice="none"))
        assert agent.call(typed("function")).output == Review(**RIGHT)
        (asked,) = model.asked
    assert (asked.functions, asked.choice) == ((ANSWER,), "required")


def test_a_model_that_cannot_be_made_to_call_is_left_free_and_that_is_seen() -> None:
    with Model("chat", [calls(ANSWER, **RIGHT)], required_tool_choice=False) as model:
        result = model.agent().call(typed("function"))
        (asked,) = model.asked
    assert (asked.functions, asked.choice) == ((ANSWER,), "auto")
    assert "tool_choice='required' became 'auto'" in details(result)


def test_a_model_that_reasons_by_budget_is_left_free_and_that_is_seen() -> None:
    with Model("anthropic", [calls(ANSWER, **RIGHT)], reasoning="budget") as model:
        result = model.agent(settings=Settings(reasoning_effort="low")).call(typed("function"))
        (asked,) = model.asked
    assert (asked.functions, asked.choice) == ((ANSWER,), "auto")
    assert "tool_choice='required' became 'auto'" in details(result)


def test_the_arguments_of_the_answer_arrive_as_they_are_written() -> None:
    with Model("chat", [calls(ANSWER, **RIGHT)]) as model:
        events = [*model.agent().stream(typed("function"))]
    assert json.loads("".join([e.text for e in events if isinstance(e, ArgumentsDelta)])) == RIGHT


def test_a_value_that_is_no_object_is_wrapped_for_the_function() -> None:
    with Model("chat", [calls(ANSWER, value=[1, 2])]) as model:
        assert model.agent().call(Prompt("Count.", output=list[int], mode="function")).output == [1, 2]
