"""Is an answer by a function read as any other?"""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel
from support.agent_calls import add, assert_sendable, begun, parse, request, returned, say, texts, tick

from fsm_agent import Agent, Prompt, PromptError, UsageError
from fsm_agent.call import AgentCall, Limits, Reason, State, restore, snapshot
from fsm_agent.messages import FunctionCall
from fsm_agent.prompts import ParserInput, parser
from fsm_agent.testing import Script, function_call

ANSWER = "give_final_answer"


class Person(BaseModel):
    name: str
    age: int


ADA = {"name": "Ada", "age": 36}
TYPED = Prompt("{{ task }}", path="typed", output=Person, mode="function", functions=(add, tick))


def final(**arguments: Any) -> FunctionCall:
    return FunctionCall(name=ANSWER, arguments_json=json.dumps(arguments))


def results(call: AgentCall) -> list[tuple[str, bool]]:
    """Return the results in the exception branch or, after its end, in the dialog."""
    messages = call.record.branch or call.record.dialog
    return [(part.text, part.is_error) for m in messages if m.role == "tool" for part in m.parts]


# What is asked for


@pytest.mark.parametrize("mode", ["native", "function", "prompted", None])
def test_the_mode_of_the_prompt_is_in_each_request(mode):
    call = begun(prompt=TYPED.extend(mode=mode))
    assert (request(call).mode, request(call).output.type) == (mode, Person)
    assert request(call).functions == TYPED.offers, "the function for the answer is none of the prompt's"
    say(call, "who?")
    assert (call.state, request(call).mode) == (State.PARSE_EXCEPTION, mode)


def test_handlers_inherit_the_mode_and_may_have_one_of_their_own():
    prompt = TYPED.extend(on_exception=Prompt("{{ error_message }}", mode="prompted"), on_final=Prompt("Now."))
    call = begun(Limits(rounds=0), prompt)
    assert request(call).mode == "function"
    assert request(say(call, "who?")).mode == "function", "the final request's, as the handler has no form of its own"
    assert request(say(begun(prompt=prompt), "who?")).mode == "prompted"


def test_the_second_stage_is_asked_for_as_the_profile_has_it():
    call = begun(prompt=TYPED.extend(mode="two_stage"))
    assert (request(call).mode, request(call).output.type) == (None, str)
    say(call, "Ada was 36.")
    assert (request(call).mode, request(call).output.type, request(call).functions) == (None, Person, ())


@pytest.mark.parametrize("owner", ["the prompt", "the finalizer"])
@pytest.mark.parametrize("rounds", [1, 5])
def test_a_finalizer_asks_for_the_words_of_the_answer_without_functions(owner: str, rounds: int):
    plea = "As a number: {{ answer }}"
    own = {"finalizer": plea, "parser": parse} if owner == "the prompt" else {"finalizer": Prompt(plea, parser=parse)}
    prompt = Prompt("{{ task }}", path="worded", functions=(tick,), **own)
    call = returned(say(begun(Limits(rounds=rounds), prompt), function_call("tick")), "now")
    say(call, "It is 42, I think.")
    assert (call.state, call.step.trigger) == (State.CALLING, "drafted")
    asked = request(call)
    assert (
        texts(asked.messages)
        == [*texts(call.record.dialog)]
        == [*["You add.", "17 + 25?", "", "now", "It is 42, I think.", "As a number: It is 42, I think."]]
    )
    assert (asked.functions, asked.output.type) == ((), str)
    say(call, "forty-two")
    assert (call.state, request(call).functions) == (State.PARSE_EXCEPTION, ())
    assert texts(request(call).messages)[-2] == "forty-two"
    result = say(call, "42").result()
    assert (result.output, result.iterations, restore(snapshot(call), prompt).output) == (42, 4, 42)


def test_an_unknown_mode_is_refused():
    with pytest.raises(UsageError, match="'tool'"):
        TYPED.extend(mode="tool")


def test_no_function_may_take_its_name():
    def give_final_answer() -> str:
        """Mine."""
        return ""

    with pytest.raises(PromptError, match="give_final_answer"):
        TYPED.extend(functions=(give_final_answer,))
    assert TYPED.extend(functions=(give_final_answer,), output=str).by_name.keys() == {ANSWER}, "words need none"


# What is answered


def test_the_arguments_are_the_answer():
    call = say(begun(prompt=TYPED), final(**ADA))
    assert (call.state, call.step.trigger, call.output) == (State.COMPLETED, "answered", Person(**ADA))
    assert results(call) == [("The answer was taken.", False)]
    assert_sendable(call.record.dialog)
    assert len(call.record.function_calls) == 0


def test_a_text_beside_the_function_is_not_the_answer():
    model = Script(["Here it is: {}", function_call("give_final_answer", **ADA)])
    assert Agent(model).call(Prompt("Who?", output=Person, mode="function")).output == Person(**ADA)


def test_the_parser_of_the_prompt_reads_the_arguments():
    given = []

    @parser
    def read(reply: ParserInput) -> str:
        given.append(reply)
        return json.loads(reply.text)["name"].upper()

    call = say(begun(prompt=TYPED.extend(parser=read)), final(**ADA), finish="tool_calls")
    assert (call.output, json.loads(given[0].text), given[0].finish) == ("ADA", ADA, "tool_calls")


def test_arguments_that_are_nearly_right_are_repaired_and_that_is_seen():
    nearly = function_call(ANSWER).changed(arguments_json="{'name': 'Ada', 'age': 36,}")
    call = say(begun(prompt=TYPED), nearly)
    assert (call.output, call.record.repairs) == (Person(**ADA), ("the JSON was repaired by json-repair",))


@pytest.mark.parametrize(
    ("arguments", "finish", "problem"),
    [
        ('{"name": "Ada", "age": "old"}', "tool_calls", "age: Input should be a valid integer"),
        ("", "tool_calls", "name: Field required"),
        ('{"name": "A', "length", "the answer was cut off at the token limit"),
    ],
)
def test_arguments_that_cannot_be_used_open_the_branch(arguments, finish, problem):
    wrong = function_call(ANSWER).changed(arguments_json=arguments)
    call = say(begun(prompt=TYPED), wrong, finish=finish)
    assert (call.state, call.step.trigger) == (State.PARSE_EXCEPTION, "parse_failed")
    ((said, is_error),) = results(call)
    assert (problem in said, is_error) == (True, True)
    assert "Please correct this and answer again." in said
    assert_sendable(request(call).messages)
    say(call, final(**ADA))
    assert (call.output, results(call)) == (Person(**ADA), [("The answer was taken.", False)])


def test_calls_in_the_branch_have_ids_of_their_own():
    call = begun(prompt=TYPED)
    for _ in range(3):
        say(call, final(name="Ada"), final(name="Eve"))
    ids = [f.id for m in request(call).messages for f in m.function_calls]
    assert len(ids) == len(set(ids)) == 6
    assert [is_error for _, is_error in results(call)] == [True] * 6
    assert_sendable(request(call).messages)
    say(call, final(**ADA))
    assert_sendable(call.record.dialog)
    assert [f.id for f in call.record.dialog[-2].function_calls] == ["2.0"], "its place in the dialog"


@pytest.mark.parametrize("answer", [ADA])
@pytest.mark.parametrize("is_first", [True, False])
def test_calls_of_other_functions_win(answer, is_first):
    both = [final(**answer), function_call("tick")]
    call = say(begun(prompt=TYPED), *(both if is_first else reversed(both)))
    assert (call.state, call.step.trigger) == (State.TOOL_INTERRUPT, "functions_asked")
    returned(call, "now")
    said = {f.name: (f.result, f.error is None, f.was_run) for f in call.record.function_calls}
    assert said == {ANSWER: (None, False, False), "tick": ("now", True, True)}
    assert (call.record.parse_errors, say(call, final(**ADA)).output) == (0, Person(**ADA))


def test_where_the_output_is_text_there_is_no_such_function():
    call = say(begun(prompt=TYPED.extend(output=str)), final(**ADA))
    assert call.state is State.CALLING
    assert "There is no function 'give_final_answer'" in call.record.function_calls[0].error


def test_in_the_first_of_two_stages_no_answer_is_taken():
    call = say(begun(prompt=TYPED.extend(mode="two_stage")), final(**ADA))
    assert (call.state, call.record.function_calls[0].was_run) == (State.CALLING, False)
    say(say(call, "Ada was 36."), final(**ADA))
    assert call.output == Person(**ADA)


def test_a_stop_comes_before_the_parser():
    call = say(begun(prompt=TYPED, stop_when=lambda context: "enough"), final(name=1))
    assert (call.state, call.record.ending.reason, call.output) == (State.COMPLETED, Reason.STOPPED, None)
    assert_sendable(call.record.dialog)


def test_it_is_read_again_from_a_snapshot():
    call = say(say(begun(prompt=TYPED), final(name=1)), final(**ADA))
    again = restore(snapshot(call), TYPED)
    assert (again.output, again.record) == (Person(**ADA), call.record)
    waiting = say(begun(prompt=TYPED), final(name=1))
    assert say(restore(snapshot(waiting), TYPED), final(**ADA)).output == Person(**ADA)


@pytest.mark.parametrize("arguments", [""])
def test_an_answer_that_was_cut_off_before_its_arguments_is_not_that_of_all_defaults(arguments):
    class Answer(BaseModel):
        text: str = "none"

    def said(finish):
        answer = FunctionCall(name=ANSWER, arguments_json=arguments)
        return say(begun(Limits(), Prompt("x", output=Answer, mode="function")), answer, finish=finish)

    assert said("tool_calls").result().output == Answer()
    call = said("length")
    assert call.state is State.PARSE_EXCEPTION
    assert "cut off at the token limit" in texts(request(call).messages)[-1]
