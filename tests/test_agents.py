"""Does an agent do what its user expects?"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import gc
from contextlib import suppress
from typing import Literal

import pytest
from pydantic import BaseModel, Field
from walking import add, erase, parse

from fsm_agent import (
    Agent,
    Approved,
    CallFailed,
    CallSuspended,
    Dialog,
    Limits,
    Message,
    ParseError,
    Prompt,
    Reason,
    Settings,
    State,
    UsageError,
    function,
    snapshot,
)
from fsm_agent.events import Done, Suspended, TextDelta
from fsm_agent.testing import Script, ScriptError, call


def test_a_task_in_words(script):
    agent = Agent(script("42"), system="You are terse.")
    result = agent.call("What is 17 + 25?")
    assert result.output == "42"
    assert [(m.role, m.text) for m in result.dialog] == [
        ("system", "You are terse."),
        ("user", "What is 17 + 25?"),
        ("assistant", "42"),
    ]


@pytest.mark.spec("3.4")
@pytest.mark.parametrize("text", ["{", "{{ task }}", "{% raw %}", '{"a": 1}', "{{ 7 * 7 }}"])
def test_a_users_text_is_data_and_never_a_template(script, text):
    one = script("ok")
    Agent(one).call(text)
    assert one.requests[0].messages[-1].text == text


def test_a_prompt_with_variables(script):
    one = script("42")
    result = Agent(one).call(Prompt("What is {{ a }} + {{ b }}?", parser=parse), a=17, b="{{ b }}")
    assert (result.output, one.requests[0].messages[-1].text) == (42, "What is 17 + {{ b }}?")


def test_a_dialog_goes_on(script):
    agent = Agent(script("42", "43"))
    dialog = agent.call("17 + 25?").dialog
    result = agent.call(dialog.put("And one more?"))
    assert [m.text for m in result.dialog] == ["17 + 25?", "42", "And one more?", "43"]
    assert len(dialog) == 2


@pytest.mark.spec("3.4")
def test_a_dialogs_own_prompt_governs(script):
    agent = Agent(script("x", "42"))
    dialog = agent.init_dialog().put(Prompt("Number?", parser=parse, on_exception="Number! {{ error_message }}"))
    assert agent.call(dialog).output == 42


def test_a_message_with_parts_is_a_task(script):
    one = script("42")
    Agent(one, system="s").call(Message.of("user", "a", "b"))
    assert [m.role for m in one.requests[0].messages] == ["system", "user"]


def test_functions_of_the_agent_are_the_prompts_unless_it_has_its_own(script):
    one = script("ok", "ok", "ok")
    agent = Agent(one, functions=[add])
    agent.call("hi")
    agent.call(Prompt("hi"))
    agent.call(Prompt("hi", functions=[erase]))
    assert [[f.name for f in r.functions] for r in one.requests] == [["add"], ["add"], ["erase"]]


@pytest.mark.spec("4.5")
def test_a_plain_callable_is_a_function(script):
    def shout(text: str) -> str:
        """Say it loud.

        Args:
            text: what to say
        """
        return text.upper()

    one = script(call("shout", text="hi"), "HI it is")
    result = Agent(one, functions=[shout]).call("Shout hi")
    assert result.function_calls[0].result == "HI"
    (offered,) = one.requests[0].functions
    assert offered.description == "Say it loud."
    assert offered.parameters["properties"]["text"]["description"] == "what to say"


class Person(BaseModel):
    name: str
    age: int = Field(ge=0, le=150)


class Mood(enum.Enum):
    GOOD = "good"
    BAD = "bad"


@pytest.mark.spec("0.3")
@pytest.mark.parametrize(
    ("output", "said", "expected"),
    [
        (Person, '{"name": "Ada", "age": 36}', Person(name="Ada", age=36)),
        (Person, 'Here it is:\n```json\n{"name": "Ada", "age": 36}\n```', Person(name="Ada", age=36)),
        (Mood, "good", Mood.GOOD),
        (Mood, '{"value": "bad"}', Mood.BAD),
        (list[int], '{"value": [1, 2]}', [1, 2]),
        (int | Literal["none"], "none", "none"),
        (bool, "true", True),
        (str, "as it is", "as it is"),
    ],
)
def test_typed_output(script, output, said, expected):
    if output == int | Literal["none"]:
        said = f'"{said}"'
    one = script(said)
    assert Agent(one, output=output).call("?").output == expected
    assert one.requests[0].output.type == output


@pytest.mark.spec("0.3", "3.9")
def test_what_is_wrong_with_an_output_is_what_the_model_is_told(script):
    one = script('{"name": "Ada", "age": 200}', '{"name": "Ada", "age": 36}')
    result = Agent(one, output=Person).call("Who?")
    assert result.output.age == 36
    assert "age: Input should be less than or equal to 150 (given: 200)" in one.requests[1].messages[-1].text
    assert len(result.dialog) == 2


@pytest.mark.spec("0.5", "3.2")
def test_settings_of_the_agent_and_of_one_call(script):
    one = script("a", "b")
    agent = Agent(one, settings=Settings(temperature=0, seed=1))
    agent.call("?", args={"max_tokens": 9})
    agent.call("?")
    assert [r.settings for r in one.requests] == [
        Settings(temperature=0, seed=1, max_tokens=9),
        Settings(temperature=0, seed=1),
    ]
    with pytest.raises(UsageError, match="there is no setting 'temprature'"):
        agent.call("?", args={"temprature": 1})


@pytest.mark.spec("3.2")
def test_parser_args_reach_the_parser(script):
    def split(text: str, separator: str = ",") -> list[str]:
        return text.split(separator)

    agent = Agent(script("a;b"))
    assert agent.call(Prompt("?", parser=split), parser_args={"separator": ";"}).output == ["a", "b"]
    with pytest.raises(UsageError, match="need a prompt with a parser"):
        agent.call("?", parser_args={"separator": ";"})


@pytest.mark.parametrize(
    ("task", "values", "says"),
    [
        (Dialog(), {}, "the dialog is empty"),
        (Dialog([Message.of("assistant", call("add", a=1, b=2))]), {}, "asks for functions that have no results"),
        (None, {}, "the task is None: text, a Prompt, a Message or a Dialog"),
        ("hi", {"name": "Ada"}, "the variables name are for a Prompt"),
        (Prompt("{{ name }}"), {}, "needs the variable\\(s\\) name; given: none"),
        (Prompt("{{ name }}"), {"nam": 1}, "needs the variable\\(s\\) name; given: nam"),
    ],
)
def test_mistakes_of_the_caller_are_named_before_anything_is_sent(script, task, values, says):
    one = script()
    with pytest.raises(UsageError, match=says):
        Agent(one).call(task, **values)
    assert one.requests == []


@pytest.mark.spec("0.10")
def test_when_all_functions_are_used_up_the_model_has_to_answer(script):
    once = [
        function(lambda name=name: name, name=name, description="Once.", max_calls=1) for name in ("first", "second")
    ]
    one = script(call("first"), call("second"), "done")
    assert Agent(one, functions=once).call("go").output == "done"
    assert [[f.name for f in r.functions] for r in one.requests] == [["first", "second"], ["second"], []]
    assert "give your final answer" in one.requests[2].messages[-1].text


@pytest.mark.spec("4.25", "4.37")
def test_what_depends_on_a_plan_is_not_run_before_there_is_one(script):
    edited = []

    def plan(steps: str) -> str:
        """Say what you will do."""
        return steps

    @function(depends_on=("plan",))
    def edit(path: str) -> str:
        """Edit a file."""
        edited.append(path)
        return f"edited {path}"

    one = script(call("edit", path="a"), [call("edit", path="b"), call("plan", steps="all")], "done")
    result = Agent(one, functions=[plan, edit]).call("go")
    assert edited == ["b"]
    assert [f.error or f.result for f in result.function_calls] == [
        "edit requires plan to have succeeded first.",
        "edited b",
        "all",
    ]


class States:
    """A hook that notes where the call stands at each step."""

    def __init__(self):
        self.call = None
        self.seen = []

    def on_stepped(self, event):
        assert event.to == self.call.state == self.call.record.state
        self.seen.append((str(event.to), self.call.record.ending is None))


@pytest.mark.spec("0.7")
@pytest.mark.parametrize(("said", "end"), [("42", "Completed"), ("none", "Failed")])
def test_the_state_says_idle_busy_done_or_failed(script, said, end):
    hook = States()
    agent = Agent(script(call("add", a=1, b=2), "none", said), hooks=[hook], limits=Limits(parse_retries=1))
    hook.call = agent.seed(Prompt("Number?", parser=parse, functions=[add]))
    assert hook.call.state is State.SEEDED
    with suppress(CallFailed):
        agent.run(hook.call)
    busy = ["Calling", "ToolInterrupt", "Calling", "ParseException"]
    assert hook.seen == [*[(state, True) for state in busy], (end, False)]


@pytest.mark.spec("4.20")
def test_a_failure_is_raised_once_with_everything_in_it(script):
    agent = Agent(script("a", "b"), limits=Limits(parse_retries=1))
    with pytest.raises(CallFailed, match="unparseable") as caught:
        agent.call(Prompt("Number?", parser=parse))
    assert caught.value.reason is Reason.UNPARSEABLE
    assert len(caught.value.call.record.trace) == 3


def collect(stream, events):
    """Into a list that keeps what came before an error."""
    for event in stream:
        events.append(event)


@pytest.mark.spec("1.24")
def test_a_stream_ends_with_done_and_then_says_what_failed(script):
    agent = Agent(script("a"), limits=Limits(parse_retries=0))
    events = []
    with pytest.raises(CallFailed):
        collect(agent.stream(Prompt("Number?", parser=parse)), events)
    assert isinstance(events[-1], Done)
    with pytest.raises(CallFailed):
        _ = events[-1].result.output


def test_sync_async_and_streams_agree(script):
    async def both(agent: Agent) -> tuple[object, list[object]]:
        result = await agent.acall("?")
        return result.output, [e async for e in agent.astream("?") if isinstance(e, TextDelta)]

    agent = Agent(script("one two", "one two", "one two", "one two"))
    assert agent.call("?").output == "one two"
    deltas = [e for e in agent.stream("?") if isinstance(e, TextDelta)]
    assert asyncio.run(both(agent)) == ("one two", deltas)


@pytest.mark.spec("4.23")
def test_a_suspended_call_is_approved_in_another_process_and_ends(script):
    one = script(call("erase", path="x"), "done")
    with pytest.raises(CallSuspended) as caught:
        Agent(one, functions=[erase], name="cleaner").call("Erase x")
    document = snapshot(caught.value.call)
    elsewhere = Agent(one, functions=[erase], name="cleaner")
    restored = elsewhere.restore(document)
    restored.advance(restored.effects[0].key, Approved())
    assert elsewhere.run(restored).output == "done"


def test_an_approver_decides_here(script):
    agent = Agent(script(call("erase", path="x"), "done"), functions=[erase], approve=lambda f: f.name == "erase")
    assert agent.call("Erase x").function_calls[0].result == "erased x"


@pytest.mark.spec("1.21")
def test_agents_inside_functions_of_agents_are_bounded(script):
    inner_script = script()

    @function
    def delegate(task: str) -> str:
        """Ask another agent."""
        return str(Agent(inner_script, functions=[delegate], limits=Limits(depth=2)).call(task).output)

    inner_script._entries = [call("delegate", task="deeper")] * 2 + ["gave up", "outer gave up"]
    outer = Agent(inner_script, functions=[delegate], limits=Limits(depth=2))
    result = outer.call("go")
    assert result.output == "outer gave up"
    assert "gave up" in result.function_calls[0].result


@pytest.mark.spec("3.9")
def test_a_parse_error_of_the_users_own_parser_needs_no_special_class(script):
    def even(text: str) -> int:
        if int(text) % 2:
            raise ParseError("odd")
        return int(text)

    one = script("three", "3", "4")
    assert Agent(one).call(Prompt("Even?", parser=even)).output == 4
    assert "invalid literal" in one.requests[1].messages[-1].text


@pytest.mark.spec("3.3")
def test_a_system_prompt_with_variables(script):
    one = script("ok")
    agent = Agent(one, system=Prompt("You are {{ who }}.", path="root"))
    dialog = agent.init_dialog(who="terse")
    assert (dialog.system, dialog.top_prompt.path) == ("You are terse.", "root")
    agent.call(dialog)
    assert one.requests[0].messages[0].text == "You are terse."


class Noted(Script):
    """A client that notes when it is closed."""

    closed = 0

    def close(self):
        self.closed += 1

    async def aclose(self):
        self.closed += 1


def test_a_client_that_an_agent_was_given_is_its_givers_to_close():
    client = Noted("ok")
    with Agent(client) as agent:
        agent.call("hi")
    asyncio.run(agent.aclose())
    assert client.closed == 0


def test_an_agent_closes_the_client_that_it_made():
    with Agent("openai-compatible:x") as agent:
        assert agent.client.name == "openai-compatible:x"
    with pytest.raises(UsageError, match="is closed"):
        agent.call("hi")

    async def main() -> None:
        async with Agent("openai-compatible:x") as agent:
            assert agent.client
        with pytest.raises(UsageError, match="is closed"):
            await agent.acall("hi")

    asyncio.run(main())


def test_a_client_that_was_never_made_needs_no_closing():
    with Agent("openai:gpt-5-mini"):
        pass
    asyncio.run(Agent("openai:gpt-5-mini").aclose())


@pytest.mark.spec("2.29")
def test_a_client_is_made_of_the_models_name_on_first_use():
    agent = Agent("openai-compatible:some-model")
    assert agent.client.name == "openai-compatible:some-model"
    assert agent.client is agent.client


def test_a_suspended_stream_ends_without_an_error(script):
    agent = Agent(script(call("erase", path="x")), functions=[erase])
    assert isinstance(list(agent.stream("go"))[-1], Suspended)

    async def main() -> list[object]:
        other = Agent(script(call("erase", path="x")), functions=[erase])
        return [event async for event in other.astream("go")]

    assert isinstance(asyncio.run(main())[-1], Suspended)


def test_prompts_of_the_past_are_forgotten(script):
    agent = Agent(script(*["ok"] * 5), functions=[add])
    for n in range(5):
        agent.call(Prompt(f"task {n}"))
    gc.collect()
    assert len(agent._governing) == 0


def test_a_restored_call_has_the_settings_that_it_was_made_with(script):
    one = script(call("erase", path="x"), "1;2")
    agent = Agent(one, functions=[erase])

    def split(text: str, separator: str = ",") -> list[str]:
        return text.split(separator)

    prompt, made_with = Prompt("?", parser=split), {"args": {"temperature": 0}, "parser_args": {"separator": ";"}}
    with pytest.raises(CallSuspended) as caught:
        agent.call(prompt, **made_with)
    restored = agent.restore(snapshot(caught.value.call), prompt, **made_with)
    restored.advance(restored.effects[0].key, Approved())
    assert agent.run(restored).output == ["1", "2"]
    assert one.requests[1].settings.temperature == 0


def test_a_failure_still_shows_what_came_of_it(script):
    with pytest.raises(CallFailed) as caught:
        Agent(script("a", "b"), limits=Limits(parse_retries=1)).call(Prompt("Number?", parser=parse))
    assert caught.value.result.text == "b"
    assert caught.value.result.dialog.tail.text == "Number?"


def test_an_agent_is_what_it_was_made(script):
    with pytest.raises(dataclasses.FrozenInstanceError):
        Agent(script()).approve = print


def test_a_script_that_lacks_a_reply_is_loud_even_inside_a_function_of_an_agent():
    inner = Script()

    def delegate() -> str:
        """Ask another agent."""
        return str(Agent(inner).call("hi").output)

    Agent(Script(call("delegate"), "so be it"), functions=[delegate]).call("go")
    with pytest.raises(ScriptError, match="request 1 has no reply"):
        inner.assert_exhausted()
