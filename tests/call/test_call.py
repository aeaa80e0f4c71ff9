"""What happens in one agent call, outcome by outcome?"""

from __future__ import annotations

import json
import pickle
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel
from support.agent_calls import PROMPT, assert_sendable, begun, fail, keys, parse, request, returned, say, seeded, texts

from fsm_agent.agents import Agent, handoff
from fsm_agent.call import (
    AgentCall,
    Approved,
    Begun,
    CallFailed,
    CallSuspended,
    Cancelled,
    Denied,
    Expired,
    FunctionFailed,
    Injected,
    Limits,
    ModelFailed,
    Modified,
    Reason,
    Replied,
    Returned,
    Sleep,
    Slept,
    Started,
    State,
    Stop,
    Stopped,
    restore,
    snapshot,
)
from fsm_agent.errors import (
    ErrorReport,
    IllegalTrigger,
    OutcomeError,
    ParseError,
    PromptError,
    ProviderError,
    UsageError,
)
from fsm_agent.functions import Function, function
from fsm_agent.messages import FunctionCall, Message, Reply, Settings, Usage, WebSearch
from fsm_agent.prompts import Prompt
from fsm_agent.testing import Script, function_call


def test_text_is_an_answer():
    call = say(begun(), "42")
    result = call.result()
    assert (result.output, result.state, result.text) == (42, State.COMPLETED, "42")
    assert result.ending.reason is Reason.ANSWERED
    assert texts(result.new_messages) == ["42"]
    message, dialog, calls = result
    assert [result[i] for i in range(len(result))] == [message, dialog, calls]
    assert (message.text, len(dialog), calls) == ("42", 3, ())


def test_a_round_of_functions_then_an_answer():
    call = say(begun(), function_call("add", a=1, b=2), function_call("add", a=3, b=4))
    assert keys(call) == ["run:2.0", "run:2.1"]
    call.advance("run:2.1", Returned(text="7"))
    assert keys(call) == ["run:2.0"]
    call.advance("run:2.0", Returned(text="3"))
    assert texts(request(call).messages)[-2:] == ["3", "7"], "in the order asked"
    result = say(call, "10").result()
    assert [(f.name, f.result) for f in result.function_calls] == [("add", "3"), ("add", "7")]
    assert result.iterations == 2


def test_each_step_adds_what_it_stands_for():
    def roles() -> str:
        return " ".join(message.role for message in call.record.dialog)

    call = begun()
    assert roles() == "system user"
    say(call, function_call("tick"), function_call("add", a=1, b=2))
    assert roles() == "system user assistant"
    call.advance("run:2.1", Returned(text="3"))
    assert roles() == "system user assistant"
    call.advance("run:2.0", Returned(text="now"))
    assert roles() == "system user assistant tool tool"
    say(call, "42")
    assert roles() == "system user assistant tool tool assistant"
    assert call.effects == ()


def test_functions_decide_and_not_the_words_beside_them_or_the_finish():
    call = say(begun(), "nonsense", function_call("tick"), finish="stop")
    assert call.state is State.TOOL_INTERRUPT
    call.advance("run:2.0", Returned(text="now"))
    assert call.record.dialog[2].text == "nonsense", "the model's real words are kept"


def test_a_parse_error_opens_a_branch_and_success_prunes_it():
    call = say(say(begun(), "forty"), "forty-two")
    assert call.state is State.PARSE_EXCEPTION
    assert texts(request(call).messages)[2::2] == ["forty", "forty-two"]
    assert "'forty-two' is no number" in texts(request(call).messages)[-1]
    result = say(call, "42").result()
    assert texts(result.new_messages) == ["42"]
    assert [m.text for m in call.record.pruned if m.role == "assistant"] == ["forty", "forty-two"]


def test_parse_retries_are_bounded_and_leave_the_dialog_as_it_was():
    call = begun(Limits(parse_retries=3))
    before = call.record.dialog
    for text in ("one", "two", "three", "forty"):
        say(call, text)
    with pytest.raises(CallFailed, match=r"'forty'.*ParseException"):
        call.result()
    assert call.record.dialog == before
    assert [m.text for m in call.record.pruned if m.role == "assistant"] == ["one", "two", "three", "forty"]


def test_the_branch_is_governed_by_the_exception_handler():
    prompt = PROMPT.extend(on_exception=Prompt("No: {{ error_message }}", functions=(), parser=parse))
    call = say(begun(prompt=prompt), "forty")
    assert request(call).functions == ()
    assert texts(request(call).messages)[-1] == "No: 'forty' is no number"


def test_transport_failures_back_off_and_are_bounded():
    call = fail(begun(Limits(recalls=2)), delay_s=4.0, at_s=200.0)
    assert call.effects == (Sleep("sleep:1", 204.0),)
    assert call.step.detail == "busy"
    call.advance("sleep:1", Slept())
    assert call.effects[0].attempt == 2
    fail(call)
    call.advance("sleep:2", Slept())
    fail(call)
    with pytest.raises(CallFailed, match="busy") as caught:
        call.result()
    assert isinstance(caught.value.__cause__, ProviderError)
    assert caught.value.__cause__.status == 529
    assert caught.value.reason is Reason.MODEL_FAILED
    assert len(caught.value.trace) == 6


@pytest.mark.parametrize(
    ("failure", "limits"),
    [({"retryable": False}, Limits()), ({"delay_s": 60.1}, Limits()), ({}, Limits(recalls=0))],
    ids=["of no use", "longer than we wait", "no budget"],
)
def test_a_failure_that_waiting_cannot_cure_ends_the_call(failure, limits):
    assert fail(begun(limits), **failure).record.ending.reason is Reason.MODEL_FAILED
    assert fail(begun(), delay_s=60.0).state is State.BACKOFF


def test_a_repeated_call_is_answered_without_running_it():
    call = say(begun(), FunctionCall(name="add", arguments_json='{"a": 1, "b": 2}'))
    call.advance("run:2.0", Returned(text="3"))
    say(call, FunctionCall(name="add", arguments_json='{"b":2,"a":1}'))
    assert call.state is State.CALLING
    first, repeated = call.record.function_calls
    assert repeated.is_repeated
    assert repeated.fingerprint == first.fingerprint
    assert not repeated.succeeded
    assert "already called" in request(call).messages[-1].text


def test_a_failed_call_may_be_tried_again_and_repeatable_ones_always():
    call = say(begun(), function_call("add", a=1, b=2), function_call("tick"))
    call.advance("run:2.0", Returned(text="disk full", is_error=True))
    call.advance("run:2.1", Returned(text="now"))
    say(call, function_call("add", a=1, b=2), function_call("tick"))
    assert keys(call) == ["run:5.0", "run:5.1"]


class TestRepetition:
    """A repeated call counts as useless only if nothing has run that could change its result."""

    A, B = function_call("add", a=1, b=2), function_call("add", a=3, b=4)

    def after(self, *rounds: list[FunctionCall]) -> bool:
        """Run these rounds, with the call that is asked for again at the end, and tell whether that is run."""
        call = begun(Limits(rounds=None))
        for requested in rounds:
            say(call, *requested)
            while keys(call)[0].startswith(("run:", "ask:")):
                key = keys(call)[0]
                call.advance(key, Denied() if key.startswith("ask:") else Returned(text="3"))
        say(call, self.A)
        if keys(call)[0].startswith("run:"):
            return True
        (*_, repeated) = call.record.function_calls
        assert repeated.is_repeated
        return False

    def test_another_call_that_has_run_since_makes_it_worth_a_run(self):
        assert self.after([self.A], [self.B])
        assert self.after([self.A], [function_call("tick")])

    def test_one_that_was_not_run_does_not(self):
        denied, unknown, invalid = (
            function_call("erase", path="x"),
            function_call("nosuch"),
            function_call("add", a="?"),
        )
        assert not self.after([self.A])
        for requested in ([self.A], [denied], [unknown], [invalid], [denied, self.A]):
            assert not self.after([self.A], requested)

    def test_what_ran_beside_it_may_have_changed_what_it_found(self):
        assert self.after([self.A, self.B])
        assert self.after([self.B, self.A])
        assert not self.after([self.B], [self.A, self.A])

    def test_one_whose_result_was_known_has_changed_nothing(self):
        call = say(begun(), self.A)
        call.advance("run:2.0", Returned(text="3"))
        say(call, self.B)
        call.advance("run:4.0", Returned(text="7", is_cached=True))
        say(call, self.A)
        assert call.record.function_calls[-1].is_repeated

    def test_of_two_in_one_reply_the_second_is_told_so(self):
        call = say(begun(), self.A, self.B, self.A)
        assert keys(call) == ["run:2.0", "run:2.1"]
        assert "add" in call.record.round[2].result
        assert call.step.told == call.record.round[2].result

    def test_two_that_take_turns_end_at_the_limit_of_rounds(self):
        call = begun(Limits(rounds=4))
        for index in range(4):
            say(call, (self.A, self.B)[index % 2])
            call.advance(keys(call)[0], Returned(text="3"))
        assert (call.record.runs, request(call).functions) == (4, ())


@pytest.mark.parametrize(("one", "other"), [("1", "1.0"), ("1", "true")])
def test_values_that_python_calls_equal_are_other_arguments(one, other):
    def note(value: object) -> None:
        """Note a value."""

    prompt = Prompt("x", functions=(note,))
    call = say(begun(prompt=prompt), FunctionCall(name="note", arguments_json=f'{{"value": {one}}}'))
    call.advance("run:2.0", Returned(text="ok"))
    say(call, FunctionCall(name="note", arguments_json=f'{{"value": {other}}}'))
    assert call.state is State.TOOL_INTERRUPT


@pytest.mark.parametrize(
    ("asked_for", "told"),
    [
        (function_call("multiply", a=1), "'multiply'"),
        (FunctionCall(name="add", arguments_json='{"a": 1'), "Invalid JSON"),
        (FunctionCall(name="add", arguments_json="[1, 2]"), "should be an object"),
        (function_call("add", a="x", b=1, c=2), "a: Input should be a valid integer"),
    ],
    ids=["unknown", "malformed", "no object", "invalid"],
)
def test_what_cannot_be_run_is_told_and_the_call_goes_on(asked_for, told):
    call = say(begun(), asked_for)
    assert call.state is State.CALLING
    result = request(call).messages[-1].parts[0]
    assert told in result.text
    assert result.is_error
    assert_sendable(request(call).messages)


def test_of_a_reply_that_was_cut_off_the_last_call_alone_is_told_so():
    wrong, cut = function_call("add", a="x", b=1), FunctionCall(name="add", arguments_json='{"a": 1')
    first, last = request(say(begun(), wrong, cut, finish="length")).messages[-2:]
    assert "cut off" not in first.text
    assert "cut off at the token limit" in last.text


@pytest.mark.parametrize("arguments", ["", "{}"])
def test_a_call_that_was_cut_off_before_its_arguments_is_not_run(arguments):
    def delete(pattern: str = "*") -> int: ...
    def look() -> int: ...

    def state(finish, *names):
        calls = [FunctionCall(name=name, arguments_json=arguments) for name in names]
        call = say(begun(Limits(), Prompt("x", functions=[delete, look])), *calls, finish=finish)
        return call.state, [f.error for f in call.record.function_calls]

    state_, (told,) = state("length", "delete")
    assert (state_, "delete" in told) == (State.CALLING, True)
    assert state("length", "look") == state("length", "delete", "look") == (State.TOOL_INTERRUPT, [])
    assert state("tool_calls", "delete") == (State.TOOL_INTERRUPT, [])


@pytest.mark.parametrize(("finish", "problem"), [("error", "broke off"), ("pending", "has not finished its answer")])
def test_an_answer_that_is_not_finished_is_none(finish, problem):
    call = say(begun(Limits(recalls=0)), "The answer is fort", finish=finish)
    assert call.state is State.FAILED
    assert problem in call.record.ending.detail


CUT = "cut off at the token limit"


class Review(BaseModel):
    title: str
    stars: int


@pytest.mark.parametrize(
    ("prompt", "text", "told"),
    [
        (Prompt("x"), "The answer is fort", CUT),
        (Prompt("x", output=Review), '{"title": "Good", "stars": 1', CUT),
        (Prompt("x", parser=parse), "4 and", "'4 and' is no number (The answer was cut off at the token limit.)"),
        (Prompt("x", parser=lambda text: text[9]), "4", "IndexError"),
    ],
    ids=["text", "a type", "a parser", "a parser that fails"],
)
def test_an_answer_that_was_cut_off_is_asked_for_again_and_never_mended(prompt, text, told):
    call = say(begun(Limits(parse_retries=1), prompt), text, finish="length")
    assert call.state is State.PARSE_EXCEPTION
    assert told in texts(request(call).messages)[-1]
    say(call, text, finish="length")
    with pytest.raises(CallFailed, match=r"settings\.max_tokens"):
        call.result()


def test_an_answer_that_was_whole_before_the_cut_is_one():
    call = say(begun(prompt=Prompt("x", output=Review)), '{"title": "a", "stars": 10} I took ten bec', finish="length")
    assert call.result().output == Review(title="a", stars=10)
    assert say(begun(), "42", finish="length").result().output == 42, "a parser decides itself"


def test_plain_words_that_were_cut_off_may_be_wanted():
    limits = Limits(on_cut="accept")
    call = say(begun(limits, Prompt("x")), "The answer is fort", finish="length")
    assert call.result().output == "The answer is fort"
    assert restore(snapshot(call), Prompt("x")).output == "The answer is fort"
    typed = say(begun(limits, Prompt("x", output=Review)), '{"title": "Good", "stars": 1', finish="length")
    assert typed.state is State.PARSE_EXCEPTION, "no number is known to be whole"


def test_tools_of_the_provider_are_withdrawn_with_the_functions():
    call = begun(Limits(rounds=1), settings=Settings(temperature=0, hosted_tools=(WebSearch(),)))
    assert request(call).settings.hosted_tools == (WebSearch(),)
    say(call, function_call("tick"))
    call.advance("run:2.0", Returned(text="now"))
    assert request(call).settings == Settings(temperature=0)


def test_a_model_that_asks_again_after_the_final_prompt_is_not_obeyed():
    call = begun(Limits(rounds=1))
    say(call, function_call("tick"))
    call.advance("run:2.0", Returned(text="now"))
    say(call, "just once more", function_call("tick"))
    assert call.effects == ()
    with pytest.raises(CallFailed, match="tick") as caught:
        call.result()
    assert caught.value.call.record.reply.message.text == "just once more", "nothing is lost"
    assert_sendable(call.record.dialog)


def test_rounds_of_none_are_without_limit_and_of_zero_are_none():
    call = begun(Limits(rounds=None))
    for n in range(12):
        say(call, function_call("add", a=n, b=0))
        call.advance(call.effects[0].key, Returned(text="0"))
    assert request(call).functions
    assert request(begun(Limits(rounds=0))).functions == ()


def test_approvals_come_before_any_function_runs():
    calls = [function_call("add", a=1, b=2), function_call("erase", path="/"), function_call("erase", path="x")]
    call = say(begun(), *calls)
    assert keys(call) == ["ask:2.1", "ask:2.2"]
    asked = call.effects[0].question
    assert (asked.key, asked.kind, asked.answers) == ("ask:2.1", "approval", ("approved", "modified", "denied"))
    assert json.loads(asked.about) == {"function": "erase", "arguments": calls[1].arguments_json}
    assert json.loads(asked.schema)["required"] == ["path"]
    with pytest.raises(OutcomeError, match=r"'ask:2\.1', 'ask:2\.2'"):
        call.advance("run:2.0", Returned(text="3"))
    call.advance("ask:2.1", Denied(reason="never that"))
    call.advance("ask:2.2", Approved())
    assert keys(call) == ["run:2.0", "run:2.2"]
    call.advance("run:2.2", Returned(text="erased x"))
    call.advance("run:2.0", Returned(text="3"))
    assert texts(call.record.dialog)[-3:] == ["3", "The call was not allowed: never that", "erased x"]


def test_an_approver_may_give_other_arguments_and_they_are_checked():
    call = say(begun(), function_call("erase", path="/"), function_call("erase", path="x"))
    call.advance("ask:2.0", Modified('{"path": "tmp"}'))
    call.advance("ask:2.1", Modified('{"file": "tmp"}'))
    (wanted,) = call.effects
    assert (wanted.key, wanted.call.arguments) == ("run:2.0", {"path": "tmp"})
    call.advance("run:2.0", Returned(text="erased tmp"))
    erased, refused = texts(call.record.dialog)[-2:]
    assert erased.startswith("(The arguments were changed before the function ran: ")
    assert erased.endswith("\nerased tmp")
    assert "path: Field required" in refused


@pytest.mark.parametrize("outcome", [Cancelled(reason="no longer needed"), Expired()])
def test_called_off_in_a_round_every_call_still_gets_its_result(outcome):
    call = say(begun(Limits(deadline_s=9.0)), function_call("add", a=1, b=2), function_call("tick"))
    call.advance("run:2.1", Returned(text="now"))
    call.advance("", outcome)
    assert call.state is State.FAILED
    assert_sendable(call.record.dialog)
    assert texts(call.record.dialog)[-1] == "now"
    assert texts(call.record.dialog)[-2].startswith("It may have run, and its outcome is unknown: ")


@pytest.mark.parametrize("outcome", [Cancelled(reason="no longer needed"), Expired(), Stopped()])
def test_called_off_the_model_is_told_which_functions_cannot_have_run(outcome):
    def named(name: str, **policy: Any) -> Function:
        return Function(name=name, parameters={"type": "object"}, call=lambda: "done", **policy)

    functions = [named("plan"), named("edit", depends_on=("plan",)), named("erase", needs_approval=True)]
    prompt = Prompt("x", functions=functions)
    for names, told in (
        (("plan", "edit"), ["It may have run", "Not run: "]),
        (("plan", "erase"), ["Not run: ", "Not run: "]),
    ):
        call = say(begun(Limits(deadline_s=9.0), prompt), *map(function_call, names))
        call.advance("", outcome)
        for text, start in zip(texts(call.record.dialog)[-2:], told, strict=True):
            assert text.startswith(start)


@pytest.mark.parametrize("outcome", [Cancelled(reason="no longer needed"), Expired(), Stopped()])
def test_called_off_while_one_runs_that_must_not_run_twice_it_is_not_said_that_it_did_not_run(outcome):
    paying = [
        Function(name=name, parameters={"type": "object"}, call=lambda: "done", once=True) for name in ("pay", "refund")
    ]
    prompt = Prompt("x", functions=paying)
    call = say(begun(Limits(deadline_s=9.0), prompt), function_call("pay"), function_call("refund"))
    call.advance("start:2.0", Started(at_s=1.0))
    call.advance("", outcome)
    paid, refunded = texts(call.record.dialog)[-2:]
    assert not paid.startswith("Not run: ")
    assert refunded.startswith("Not run: ")
    assert "pay was begun" in call.record.ending.detail


def test_a_refusal_ends_the_call_and_is_not_retried():
    call = say(begun(), "", refusal="I will not.")
    with pytest.raises(CallFailed, match="refused: I will not"):
        call.result()
    assert say(begun(), finish="content_filter").record.ending.reason is Reason.REFUSED


@pytest.mark.parametrize(("content", "told"), [(["Not this."], "Not this."), ([], "finish: filtered")])
def test_the_words_beside_a_filtered_answer_say_why(content, told):
    with pytest.raises(CallFailed, match=f"refused: {told}"):
        say(begun(), *content, finish="content_filter", finish_raw="filtered").result()


@pytest.mark.parametrize(("depth", "limit", "ends"), [(2, 3, False), (3, 3, True), (9, None, False)])
def test_nesting_is_bounded(depth, limit, ends):
    call = seeded(Limits(depth=limit), depth=depth)
    call.advance("begin", Begun(at_s=0.0))
    assert (call.state is State.FAILED) == ends
    if ends:
        ending = call.record.ending
        assert (ending.reason, ending.limit, ending.count) == (Reason.TOO_DEEP, "depth", depth)


def test_a_forced_choice_is_for_the_first_request_only():
    call = begun(settings=Settings(tool_choice="required"))
    assert request(call).tool_choice == "required"
    say(call, function_call("tick"))
    call.advance("run:2.0", Returned(text="now"))
    assert request(call).tool_choice == "auto"
    assert request(begun(settings=Settings(tool_choice="none"))).functions == ()


def test_usage_counts_pruned_replies_too():
    call = say(begun(), "bad", usage=Usage(input_tokens=10, output_tokens=1))
    say(call, "42", usage=Usage(input_tokens=20, output_tokens=2, cached_tokens=4))
    assert call.result().usage == Usage(input_tokens=30, output_tokens=3, cached_tokens=4)


@pytest.mark.parametrize(
    ("key", "outcome", "says"),
    [
        ("model:7", Replied(reply=Reply.of("42")), "'model:7'.*'model:0'"),
        ("model:0", Slept(), "'model:0'.*Slept"),
        ("nonsense", Slept(), "'nonsense'"),
        (17, Slept(), "key: .*17"),
        ("", "stop", "outcome: .*'stop'"),
    ],
)
def test_what_nobody_asked_for_is_refused_and_changes_nothing(key, outcome, says):
    call = begun()
    before = call.record
    with pytest.raises(OutcomeError, match=says):
        call.advance(key, outcome)
    assert call.record is before
    assert call.state is State.CALLING


def test_a_call_that_has_ended_takes_nothing_more():
    call = say(begun(), "42")
    for key, outcome in [("", Cancelled()), ("", Stopped()), ("model:1", Replied(reply=Reply.of("43")))]:
        with pytest.raises((IllegalTrigger, OutcomeError), match="ended"):
            call.advance(key, outcome)
    assert call.result().output == 42


def test_what_is_injected_between_two_steps_stands_behind_the_results():
    call = say(begun(), function_call("tick"))
    before = call.record.dialog
    for word in ("Hurry.", "Please."):
        call.advance("", Injected((Message.of("user", word),)))
    assert (call.record.dialog, keys(call)) == (before, ["run:2.0"]), "it would part the round"
    call = restore(snapshot(call), PROMPT)
    call.advance("run:2.0", Returned(text="now"))
    assert texts(request(call).messages)[-3:] == ["now", "Hurry.", "Please."]
    call.advance("", Injected((Message.of("user", "At last."),)))
    assert texts(request(call).messages)[-2:] == ["Please.", "At last."]
    assert say(call, "42").result().output == 42


def test_what_is_injected_after_a_handoff_takes_no_key():
    hurry, other = Injected((Message.of("user", "Hurry."),)), Agent(Script("Done."), name="other")
    call = Agent(Script(), functions=[handoff(other, name="other")]).prepare("Go.")
    call.advance("begin", Begun(at_s=1.0))
    say(call, function_call("other"))
    for key in ("to:other", "other"):
        with pytest.raises(OutcomeError, match=f"'{key}'"):
            call.advance(key, hurry)
    assert (call.state, call.record.injected) == (State.HANDED_OVER, ())
    call.advance(*keys(call), Begun(at_s=2.0))
    call.advance("", hurry)
    assert texts(request(call).messages)[-1] == "Hurry."


@pytest.mark.parametrize("outcome", [Cancelled(), Expired(), Stopped()])
def test_what_is_injected_into_a_round_that_is_ended_stands_behind_it_all_the_same(outcome):
    call = say(begun(), function_call("tick"))
    call.advance("", Injected((Message.of("user", "Hurry."),)))
    call.advance("", outcome)
    assert texts(call.record.dialog)[-1] == "Hurry."
    assert_sendable(call.record.dialog)


def test_the_last_word_of_the_limit_comes_behind_what_is_injected():
    call = say(begun(Limits(rounds=1)), function_call("tick"))
    call.advance("", Injected((Message.of("user", "Hurry."),)))
    call.advance("run:2.0", Returned(text="now"))
    result, hurry, final = texts(request(call).messages)[-3:]
    assert (result, hurry, final[:16]) == ("now", "Hurry.", "You have reached")


class TestStoppedFromOutside:
    def test_before_any_reply_there_is_no_output(self):
        for call in (seeded(), begun()):
            call.advance("", Stopped(reason="enough"))
            result = call.result()
            assert (result.state, result.output, result.text) == (State.COMPLETED, None, "")
            assert (result.ending.reason, result.ending.detail) == (Reason.STOPPED, "enough")
            assert restore(snapshot(call), PROMPT).record == call.record

    def test_in_a_round_every_call_still_gets_its_result(self):
        call = say(begun(), "Let me see.", function_call("add", a=1, b=2), function_call("tick"))
        call.advance("run:2.1", Returned(text="now"))
        call.advance("", Stopped(reason="enough"))
        result = call.result()
        assert (result.output, result.text) == (None, "Let me see.")
        assert texts(result.dialog)[-2:] == ["It may have run, and its outcome is unknown: the call was stopped", "now"]
        assert_sendable(result.dialog)

    def test_in_the_branch_it_is_pruned(self):
        call = say(begun(), "forty-two")
        before = call.record.dialog
        call.advance("", Stopped(reason="enough"))
        assert (call.record.dialog, call.record.branch, len(call.record.pruned)) == (before, (), 2)
        assert call.result().output is None


def failed(call: AgentCall, status: int, *, delay_s: float = 2.0, at_s: float = 0.0, **facts: Any) -> AgentCall:
    report = ErrorReport(message="busy", status=status, retryable=status >= 429, **facts)
    call.advance(call.effects[0].key, ModelFailed(error=report, delay_s=delay_s, at_s=at_s))
    return call


def test_reports_of_failed_requests_are_kept_after_a_success():
    call = failed(begun(), 429, at_s=5.0, request_id="r1", model="openai:x")
    call.advance(call.effects[0].key, Slept())
    call = failed(call, 529, at_s=8.0, delay_s=4.0)
    call.advance(call.effects[0].key, Slept())
    result = say(call, "42").result()
    slow, busy = result.failures
    assert (slow.key, slow.attempt, slow.round, slow.at_s, slow.delay_s) == ("model:0", 1, 1, 5.0, 2.0)
    assert (slow.report.status, slow.report.request_id, slow.report.model) == (429, "r1", "openai:x")
    assert (busy.key, busy.attempt, busy.at_s, busy.delay_s, busy.report.status) == ("model:1", 2, 8.0, 4.0, 529)
    assert restore(snapshot(call), PROMPT).record.failures == call.record.failures


def test_the_failure_that_ends_a_call_is_reported_without_a_delay():
    call = say(begun(), function_call("tick"))
    call = failed(returned(call), 400)
    with pytest.raises(CallFailed) as caught:
        call.result()
    (failure,) = caught.value.result.failures
    assert (failure.delay_s, failure.round, failure.report.status) == (None, 2, 400)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert copy.result.failures == (failure,)


def test_an_error_has_state_round_and_function_as_data():
    call = say(begun(), function_call("tick"))
    call = say(returned(call), function_call("tick"))
    call.advance(call.effects[0].key, FunctionFailed(text="OSError: the disk is full"))
    with pytest.raises(CallFailed) as caught:
        call.result()
    assert (caught.value.state, caught.value.round, caught.value.function) == (State.TOOL_INTERRUPT, 2, "tick")
    with pytest.raises(CallFailed) as caught:
        failed(begun(), 400).result()
    assert (caught.value.state, caught.value.round, caught.value.function) == (State.CALLING, 1, "")


class Odd(Exception):
    """A user's exception that cannot even be formatted."""

    def __str__(self) -> str:
        raise LookupError


def raiser(error: BaseException | type[BaseException]):
    def parser(text: str) -> None:
        raise error

    return parser


def endless(text: str) -> str:
    return endless(text)


def halved(value: int) -> float:
    return value / 0


class Halved(BaseModel):
    n: Annotated[int, AfterValidator(halved)]


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        (Prompt("x", parser=lambda text: 1 / int(text)), "ZeroDivisionError: division by zero"),
        (Prompt("x", output=Halved), "ZeroDivisionError: division by zero"),
        (Prompt("x", parser=raiser(StopIteration(5))), "StopIteration: 5"),
        (Prompt("x", parser=endless), "RecursionError"),
        (Prompt("x", parser=raiser(PromptError("no template"))), "no template"),
        (Prompt("x", parser=raiser(Odd())), "Odd"),
        (Prompt("x", parser=raiser(ValueError("too short"))), "too short"),
        (Prompt("x", parser=raiser(ValueError())), "ValueError"),
        (Prompt("x", parser=raiser(ExceptionGroup("of tasks", [KeyError("a"), Odd()]))), "KeyError: 'a'; Odd"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_whatever_a_parser_raises_is_told_to_the_model(prompt, told):
    call = say(begun(prompt=prompt), '{"n": 0}' if prompt.output is Halved else "0")
    assert call.state is State.PARSE_EXCEPTION
    assert told in texts(request(call).messages)[-1]
    assert told in call.step.detail


@pytest.mark.parametrize("error", [KeyboardInterrupt])
def test_what_ends_the_program_goes_through_a_parser_and_changes_nothing(error):
    call = begun(prompt=Prompt("x", parser=raiser(error)))
    before = call.record
    with pytest.raises(error):
        say(call, "42")
    assert (call.record, call.state) == (before, State.CALLING)
    assert call.record is before
    assert keys(call) == ["model:0"]


def test_the_parsers_exception_is_the_cause_of_the_end_and_the_record_keeps_its_type_and_text():
    error = OSError("disk full")
    prompt = Prompt("x", path="p", parser=raiser(error))
    call = say(begun(Limits(parse_retries=0), prompt), "42")
    with pytest.raises(CallFailed, match="disk full") as caught:
        call.result()
    assert caught.value.__cause__ is error
    report = call.record.ending.error
    assert (report.kind, report.message) == ("OSError", "disk full")
    elsewhere = restore(snapshot(call), prompt)
    assert elsewhere.record == call.record
    with pytest.raises(CallFailed) as caught:
        elsewhere.result()
    assert repr(caught.value.__cause__) == repr(ParseError("OSError: disk full"))


def test_a_bug_in_a_handler_goes_through_and_changes_nothing():
    def broken(**values: object) -> str:
        raise ZeroDivisionError

    call = begun(prompt=PROMPT.extend(on_exception=broken))
    before = call.record
    with pytest.raises(ZeroDivisionError):
        say(call, "bad")
    assert (call.record, call.state) == (before, State.CALLING)


def test_handlers_are_told_the_attempt_and_the_results():
    @function
    def half(n: int) -> int:
        return n // 2

    prompt = Prompt(
        "x",
        functions=(half,),
        parser=parse,
        on_exception=lambda error_message, attempt: f"{attempt}: {error_message}",
        on_interrupt="{{ name }}({{ arguments }}) = {{ call_results }}",
        on_final="after {{ rounds }} round(s), an answer",
    )
    call = say(begun(Limits(rounds=1), prompt), function_call("half", n=8))
    call.advance("run:2.0", Returned(text="4"))
    assert texts(request(call).messages)[-2:] == ['half({"n": 8}) = 4', "after 1 round(s), an answer"]
    say(say(call, "a"), "b")
    assert texts(request(call).messages)[-1] == "2: 'b' is no number"


@pytest.mark.parametrize("is_error", [False, True])
def test_an_empty_result_is_told_as_an_empty_one(is_error):
    for prompt, told in ((PROMPT, ""), (PROMPT.extend(on_interrupt="<{{ call_results }}>"), "<>")):
        call = say(begun(prompt=prompt), function_call("tick"))
        returned(call, "", is_error=is_error)
        assert texts(request(call).messages)[-1] == told


def test_a_step_says_what_was_adapted_beside_what_was_wrong():
    call = say(begun(), "forty", adapted=("temperature: left out", "seed: left out"))
    assert call.step.detail == "'forty' is no number; temperature: left out; seed: left out"
    assert say(call, "42", adapted=("seed: left out",)).step.detail == "seed: left out"


def test_a_call_that_waits_is_no_result():
    call = say(begun(), function_call("erase", path="x"))
    with pytest.raises(CallSuspended, match=r"'ask:2\.0'") as caught:
        call.result()
    assert caught.value.call is call


def test_a_model_that_pauses_is_sent_what_it_said_and_goes_on():
    call = say(begun(Limits(rounds=2)), "let me search", finish="pause")
    assert call.state is State.CALLING
    assert request(call).messages[-1] == Message.of("assistant", "let me search")
    say(call, "42")
    assert [m.text for m in call.result().new_messages] == ["let me search", "42"]
    call = begun(Limits(rounds=2))
    for _ in range(3):
        say(call, "…", finish="pause")
    assert call.record.ending.reason is Reason.ROUND_LIMIT, "pauses are rounds"


def test_a_reply_that_broke_off_is_asked_for_again():
    call = say(begun(), "print(", finish="error", finish_raw="MALFORMED_FUNCTION_CALL")
    assert call.state is State.BACKOFF
    assert "MALFORMED_FUNCTION_CALL" in call.record.trace[-1].detail
    call.advance("sleep:1", Slept())
    assert say(call, "42").result().output == 42


@pytest.mark.parametrize("verdict", [1, [], Stop(5), Stop("why", {"found": True}), Stop("why", 1)], ids=repr)
def test_a_stop_when_that_says_something_else_is_a_mistake(verdict):
    with pytest.raises(UsageError, match="stop_when"):
        say(begun(stop_when=lambda context: verdict), "42")


def test_a_parser_that_makes_nothing_of_it_runs_once():
    ran = []
    call = say(begun(prompt=Prompt("x", parser=ran.append)), "42")
    assert (call.output, call.output, call.result().output) == (None, None, None)
    assert ran == ["42"]


def test_interrupted_behind_the_commit_a_call_goes_on_from_the_new_record():
    class Interrupted(AgentCall):
        """Interrupted as soon as it has its new record."""

        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "record" and value.state is State.BACKOFF:
                raise KeyboardInterrupt

    call = Interrupted(begun().record, PROMPT)
    with pytest.raises(KeyboardInterrupt):
        fail(call)
    assert call.state is call.record.state is State.BACKOFF
    assert keys(call) == ["sleep:1"]


def test_the_last_request_is_governed_by_the_final_handler():
    prompt = PROMPT.extend(on_final=Prompt("Only the number, after {{ rounds }}.", output=float))
    call = begun(Limits(rounds=1), prompt)
    assert request(call).output.type is str
    say(call, function_call("tick"))
    call.advance("run:2.0", Returned(text="now"))
    assert (request(call).functions, request(call).output.type) == ((), float)
    assert say(AgentCall(call.record, prompt), "4.5").result().output == 4.5
    assert texts(request(call).messages)[-1] == "Only the number, after 1."
    say(call, "none")
    assert (call.state, request(call).functions) == (State.PARSE_EXCEPTION, ())
    assert request(call).output.type is float, "in the branch, too"
    assert say(call, "4.5").result().output == 4.5
    assert restore(snapshot(call), prompt).output == 4.5


MEND = "{{ error_message }}"


@pytest.mark.parametrize(
    ("task", "handler", "kind", "answer", "output"),
    [
        ({"output": int}, Prompt(MEND, output=float), float, "4.5", 4.5),
        ({"parser": parse}, Prompt(MEND, output=float), float, "4.5", 4.5),
        ({"output": int}, Prompt(MEND, parser=str.upper), int, "a", "A"),
        ({"output": int}, Prompt(MEND), int, "4", 4),
        ({"parser": parse}, Prompt(MEND), str, "4", 4),
        ({"output": int}, MEND, int, "4", 4),
        ({"output": int}, lambda **values: "again", int, "4", 4),
    ],
    ids=["type", "type for parser", "parser", "neither", "the task's parser", "template", "function"],
)
def test_an_answer_is_parsed_by_the_prompt_that_asked_for_it(task, handler, kind, answer, output):
    prompt = Prompt("x", on_exception=handler, **task)
    call = say(begun(prompt=prompt), "none")
    assert request(call).output.type is kind
    assert say(call, answer).result().output == output
    assert restore(snapshot(call), prompt).output == output


def test_in_two_stages_functions_come_without_the_form_and_the_form_without_functions():
    prompt = Prompt("{{ task }}", path="t", functions=PROMPT.functions, output=int, mode="two_stage")
    call = begun(prompt=prompt)
    assert (request(call).output.type, len(request(call).functions)) == (str, len(prompt.offers))
    say(call, function_call("add", a=17, b=25))
    call.advance("run:2.0", Returned(text="42"))
    assert request(call).output.type is str
    say(call, "It is forty-two.")
    assert (request(call).output.type, request(call).functions) == (int, ())
    assert texts(request(call).messages)[-2:] == [
        "It is forty-two.",
        "Now give your final answer in the form that is asked for.",
    ]
    say(call, "forty-two")
    assert (call.state, request(call).output.type, request(call).functions) == (State.PARSE_EXCEPTION, int, ())
    say(call, "42")
    assert call.result().output == 42
    assert texts(call.record.dialog)[-1] == "42"


def test_the_second_stage_is_one_request_more_with_all_results():
    prompt = PROMPT.extend(output=int, parser=None, mode="two_stage", on_form="Sum it up.")
    call = begun(prompt=prompt)
    for a in (1, 2):
        call.advance(say(call, function_call("add", a=a, b=a)).effects[0].key, Returned(text=str(a + a)))
    assert say(call, "Two and four.").record.replies == 3
    assert [m.text for m in request(call).messages if m.role == "tool"] == ["2", "4"]
    assert request(call).messages[-1].text == "Sum it up."
    call = say(call, "6")
    assert (call.result().output, call.record.replies, call.effects) == (6, 4, ())


def test_functions_asked_for_in_the_second_stage_end_the_call():
    prompt = Prompt("{{ task }}", path="t", functions=PROMPT.functions, output=int, mode="two_stage")
    call = say(say(begun(prompt=prompt), "It is forty-two."), function_call("tick"))
    assert call.record.ending.reason is Reason.ROUND_LIMIT
