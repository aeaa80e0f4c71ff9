"""Does a result say all that happened, also when it or its failure has gone to another process?"""

from __future__ import annotations

import copy
import inspect
import pickle
import threading
from typing import Any

import pytest
from support.agent_calls import add, begun, erase, fail, returned, say

from fsm_agent import (
    Agent,
    AgentCall,
    Approved,
    CallFailed,
    CallResult,
    CallSuspended,
    Function,
    Limits,
    MemoryStore,
    Message,
    Settings,
    UsageError,
)
from fsm_agent.call import Cancelled, Reason, Slept, snapshot
from fsm_agent.errors import Overloaded
from fsm_agent.messages import Usage
from fsm_agent.testing import Script, function_call

USED = Usage(input_tokens=10, output_tokens=2, cached_tokens=4)


def test_as_data_it_is_all_that_happened():
    calls = function_call("add", a=1, b=2), function_call("erase", path="x")
    call = say(begun(), *calls, usage=USED, finish="tool_calls")
    told = call.result_so_far.to_dict()
    assert told == {
        "state": "ToolInterrupt",
        "failed": False,
        "reason": None,
        "detail": None,
        "output": None,
        "text": "",
        "finish": "tool_calls",
        "usage": told["usage"],
        "rounds": 0,
        "states": ["Calling", "ToolInterrupt"],
        "waits_for": ["ask:2.1"],
        "function_calls": [],
    }
    assert {name: n for name, n in told["usage"].items() if n} == {
        "input_tokens": 10,
        "output_tokens": 2,
        "cached_tokens": 4,
    }
    call.advance("", Cancelled(reason="no longer needed"))
    ended = call.result_so_far.to_dict()
    error = "Not run: no longer needed"
    assert ended == {
        **told,
        "state": "Failed",
        "failed": True,
        "reason": "cancelled",
        "detail": "no longer needed",
        "rounds": 1,
        "states": [*told["states"], "Failed"],
        "waits_for": [],
        "function_calls": [
            {"name": "add", "arguments": {"a": 1, "b": 2}, "result": None, "error": error},
            {"name": "erase", "arguments": {"path": "x"}, "result": None, "error": error},
        ],
    }
    assert begun().result_so_far.to_dict()["text"] is None, "there is no reply yet"


def test_each_answered_request_is_in_the_context_that_was_shown():
    call = say(begun(), function_call("tick"), usage=USED)
    fail(returned(call)).advance("sleep:2", Slept())
    used = say(call, "42", usage=Usage(input_tokens=20)).result().context
    assert [(use.key, use.reported, use.cached, use.extends) for use in used] == [
        ("model:0", 10, 4, False),
        ("model:2", 20, None, True),
    ]


def test_it_is_three_things_by_number_and_equal_to_one_of_an_equal_record():
    result = say(begun(), "42").result()
    assert (result == CallResult(result.call), result == result.record) == (True, False)
    with pytest.raises(TypeError, match="output"):
        result["output"]


# In another process


def sent(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def test_a_result_is_read_in_another_process():
    agent = Agent(Script(function_call("add", a=1, b=2), "3"), functions=[add], output=int)
    result = agent.call("1 + 2?", deps=threading.Lock())  # of no use to a call that has ended
    same = sent(result)
    assert isinstance(same, CallResult)
    assert (same.output, same.text, same.dialog, same.usage) == (3, "3", result.dialog, result.usage)
    assert same.function_calls == result.function_calls
    assert same.trace == result.trace


def failed(*entries: Any, **options: Any) -> CallFailed:
    with pytest.raises(CallFailed) as caught:
        Agent(Script(*entries), limits=Limits(recalls=0, parse_retries=0), **options).call("hi")
    return caught.value


def suspended(functions: list[Any], deps: Any = None) -> CallSuspended:
    agent = Agent(Script(function_call("erase", path="n.txt")), functions=functions, settings=Settings(temperature=0.5))
    with pytest.raises(CallSuspended) as caught:
        agent.call("hi", deps=deps)
    return caught.value


@pytest.mark.parametrize("copied", [sent, copy.copy, copy.deepcopy])
def test_a_failure_keeps_the_name_of_its_run(copied):
    failure = failed(Overloaded("too busy", status=529), name="kept", store=(store := MemoryStore()))
    assert copied(failure).run_id == failure.run_id == store.list()[0].id
    assert failed(Overloaded("too busy", status=529)).run_id == "", "without a store"


@pytest.mark.parametrize("copied", [sent, copy.copy, copy.deepcopy])
def test_a_failure_keeps_its_type_its_reason_and_its_call(copied):
    error = failed(Overloaded("too busy", status=529), functions=[add])
    same = copied(error)
    assert type(same) is CallFailed
    assert (str(same), same.reason, same.trace) == (str(error), Reason.MODEL_FAILED, error.trace)
    assert same.call.record == error.call.record
    assert same.call.prompt.by_name == {"add": add}
    assert same.result.dialog == error.result.dialog
    assert (type(same.__cause__), same.__cause__.status) == (Overloaded, 529)


@pytest.mark.parametrize("function", [add, Function.of(add, format=lambda value, _: str(value))])
def test_a_sent_failure_knows_that_the_system_message_is_the_callers(function):
    """Also if its prompt cannot be sent."""
    task = [Message.of("system", "Be kind."), Message.of("user", "hi")]
    agent = Agent(Script(Overloaded("too busy", status=529)), limits=Limits(recalls=0), functions=[function])
    with pytest.raises(CallFailed) as caught:
        agent.call(task)
    script = Script("b")
    Agent(script).call("again", after=sent(caught.value).result.dialog)
    assert [m.text for m in script.requests[0].messages if m.role == "system"] == ["Be kind."]


def test_a_suspended_call_goes_on_elsewhere():
    same = sent(suspended([erase], deps={"user": "ada"}))
    assert type(same) is CallSuspended
    assert (same.call.deps, same.call.settings) == ({"user": "ada"}, Settings(temperature=0.5))
    assert inspect.signature(AgentCall).parameters.keys() <= vars(same.call).keys() | {"record"}
    (effect,) = same.call.effects
    same.call.advance(effect.key, Approved())
    with Script("done") as script:
        assert Agent(script, functions=[erase]).run(same.call).text == "done"
    assert "erased n.txt" in script.requests[0].messages[-1].text


def test_a_suspended_call_has_questions():
    """Also in another OS process, and as in the event of a stream."""
    error = suspended([Function(name="erase", parameters={"type": "object"})])
    (question,) = error.questions
    assert (question.key, question.kind, question.text) == ("run:1.0", "result", 'erase({"path": "n.txt"})')
    assert pickle.loads(pickle.dumps(error)).questions == error.questions


@pytest.mark.parametrize("why", ["prompt", "deps"])
def test_what_cannot_be_sent_is_missed_when_it_is_needed(why):
    local = Function.of(erase, format=lambda value, _: str(value))
    error = suspended([local]) if why == "prompt" else suspended([erase], deps=threading.Lock())
    same = sent(error)
    assert (type(same), str(same), same.call.record) == (CallSuspended, str(error), error.call.record)
    (effect,) = same.call.effects
    assert (effect.key, effect.call.name) == ("ask:1.0", "erase")
    with pytest.raises(UsageError, match=r"without its prompt 'agent' \(.+\)"):
        same.call.advance(effect.key, Approved())
    assert same.call.record == error.call.record
    agent = Agent(Script("done"), functions=[erase])
    restored = agent.restore(snapshot(same.call))
    restored.advance(effect.key, Approved())
    assert agent.run(restored).text == "done"


def test_the_dialog_of_a_failure_can_always_be_sent_again():
    error = sent(failed("x", output=int, stop_when=None, functions=[Function.of(erase, format=lambda v, _: str(v))]))
    assert error.result.dialog.top_prompt is None
    assert Agent(Script("ok")).call(error.result.dialog.append(Message.of("user", "Again?"))).text == "ok"
