"""What goes to another process, what stays here, and what says so?"""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from enum import Enum
from functools import partial
from typing import Any

import pytest

from fsm_agent import (
    Agent,
    AgentCall,
    CallFailed,
    CallResult,
    CallSuspended,
    Dialog,
    Function,
    Limits,
    Message,
    Prompt,
    Toolset,
    UsageError,
    function,
)
from fsm_agent.call import Reason
from fsm_agent.clients import HttpClient, Network
from fsm_agent.errors import Overloaded
from fsm_agent.flows import Flow, FlowSuspended, ask, each, end, execute, gather, wait
from fsm_agent.testing import Script, function_call


class Unit(Enum):
    METRE = "m"
    FOOT = "ft"


@function
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@function(needs_approval=True)
def erase(path: str) -> str:
    """Erase a file."""
    return f"erased {path}"


@execute
def lengthen(length: int) -> int:
    return length + 1


@ask(Agent("openai:gpt-5-mini", name="judge"))
def judging(length: int) -> str:
    return f"Is {length} long?"


@wait(bool)
def review(length: int) -> str:
    return f"Is {length} right?"


def lengths(length: int) -> list[int]:
    return [length]


both, many = gather("both", lengthen, judging), each("many", lengthen, lengths)
rows = [both.done(many), many.done(review), review.done(lengthen, of=True), review.done(end("over"), of=False)]
measuring = Flow("measuring", int, start=both, rows=[*rows, lengthen.done(end("measured"))])


def spoken_length(length: int) -> str:
    return f"{length} long"


def questioned(length: int) -> str:
    return f"Is {length} right?"


def convert(length: float, to: Unit) -> str:
    return f"{length} {to.name}"


def spoken(length: Any, to: Any) -> str:
    return f"{to.name.lower()}: {length}"


@function
def measure(to: Unit) -> str:
    return to.name


class Tools:
    @function
    @staticmethod
    def halve(n: int) -> int:
        return n // 2


CHECKED = Function.of(add, needs_approval=True, name="plus")
CONVERT = Function.of(convert)
AGENT = Agent("openai:gpt-5-mini", functions=[add], system="Be terse.", limits=Limits(rounds=2), output=int)


def sent(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def test_a_decorated_function_is_the_one_of_its_module():
    assert sent(add) is add
    assert sent([add, Tools.halve]) == [add, Tools.halve]


@pytest.mark.parametrize(
    ("made", "arguments", "returned"),
    [
        (CHECKED, '{"a": 1, "b": 2}', 3),
        (Function.of(measure, name="gauge"), '{"to": "ft"}', "FOOT"),
        (CONVERT, '{"length": 2, "to": "ft"}', "2.0 FOOT"),
        (Function(name="pay", parameters={"type": "object", "properties": {"n": {"type": "integer"}}}), None, None),
        (Function(name="add").link(partial(add, 1, 2)), "{}", 3),
        (CONVERT.link(spoken, acall=spoken), '{"length": 1, "to": "m"}', "metre: 1.0"),
    ],
    ids=["derived", "derived from types", "plain", "external", "partial", "linked"],
)
def test_what_is_made_of_a_function_of_a_module_is_made_again(made, arguments, returned):
    same = sent(made)
    for name in ("name", "description", "parameters", "needs_approval", "is_async", "takes_context", "positional"):
        assert getattr(same, name) == getattr(made, name)
    if arguments:
        assert same.run(arguments) == returned
    assert same.refusal('{"n": "x"}') == made.refusal('{"n": "x"}')


made_by_hand = [
    execute(name="gauging")(spoken_length),
    wait(bool, name="asked")(questioned),
    ask(Agent("openai:gpt-5-mini", name="judge"), name="judged")(questioned),
    ask(Agent("openai:gpt-5-mini", name="judge"), name="judged_whole", whole=True)(questioned),
]


@pytest.mark.parametrize("state", made_by_hand, ids=lambda state: state.name)
def test_a_state_that_was_made_without_a_decorator_is_made_again_with_its_flow(state):
    flow = Flow("lengths", int, start=state, rows=[state.done(end("over"))])
    assert flow.fingerprint == sent(flow).fingerprint  # some parts are made when they are first used
    assert sent(flow).states[state.name].answer_types.names == state.answer_types.names
    if state.name == "gauging":
        assert sent(flow).call(3).state == "over"


def test_what_no_module_holds_is_refused_by_name():
    @function
    def nested(x: int) -> int:
        return x

    plain = Function.of(lambda x: x, name="double")
    for made in (
        nested,
        plain,
        Agent(Script(), functions=[nested]),
        Dialog(top_prompt=Prompt("hi", functions=[plain])),
    ):
        with pytest.raises(UsageError, match=r"cannot be pickled.*top of a module"):
            pickle.dumps(made)


def test_a_copy_needs_no_module():
    class Counter:
        def __init__(self) -> None:
            self.seen: list[int] = []

        def count(self, n: int) -> int:
            self.seen.append(n)
            return len(self.seen)

    counter = Counter()
    made = Function.of(counter.count)
    deep = copy.deepcopy(made)
    assert (copy.copy(made).run('{"n": 1}'), made.run('{"n": 1}')) == (1, 2)
    assert deep.run('{"n": 1}') == 1
    assert counter.seen == [1, 1]


@pytest.mark.parametrize("again", [copy.deepcopy, lambda flow: pickle.loads(pickle.dumps(flow))])
def test_a_flow_has_the_states_of_its_module(again):
    made = again(measuring)
    with pytest.raises(FlowSuspended) as waiting:
        made.call(1, clients={judging: Script("yes")})
    run = waiting.value.run
    run.give(review, True)
    assert made.run(run).state == "measured"


def test_an_agent_is_what_it_was_made_of():
    with Script("3", function_call("add", a=1, b=2), "3") as script:
        agent = Agent(script, functions=[add], system="Be terse.", limits=Limits(rounds=2), output=int)
        assert agent.call("1 + 2?").output == 3  # with a client, an environment and prompts kept beside the fields
        assert [f.name for f in copy.deepcopy(agent).functions] == ["add"]
        assert agent.call("1 + 2?").output == 3
    same = sent(AGENT)
    assert (same.functions, same.limits, same.system) == ((add,), Limits(rounds=2), "Be terse.")
    assert same.prompt.by_name == {"add": add}
    assert same.prompt.expected.type is int


def test_what_an_agent_lent_to_a_dialog_for_one_call_stays_lent():
    def may(item: Function, deps: Any) -> bool:
        return item is add or deps == "admin"

    tools = Toolset([add, erase]).filtered(may)
    script = Script("one", "two")
    agent = Agent(script, functions=tools)
    dialog = agent.call(agent.init_dialog().put(Prompt("hi")), deps="admin").dialog
    agent.call(sent(dialog).append(Message.of("user", "again")), deps="guest")
    assert [[f.name for f in r.functions] for r in script.requests] == [["add", "erase"], ["add"]]


class TestClient:
    def test_it_is_its_configuration(self, monkeypatch):
        client = HttpClient(
            "openai", "gpt-5", base_url="https://host/v1", headers={"x-team": "a"}, network=Network(read_s=5)
        )
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-other-process")
        data = pickle.dumps(client)
        assert b"sk-of" not in data
        same = pickle.loads(data)
        assert same.name == "openai:gpt-5"
        endpoint = same._access.locate()
        assert str(endpoint.base_url) == "https://host/v1"
        assert endpoint.headers["x-team"] == "a"
        assert endpoint.headers["authorization"] == "Bearer sk-of-the-other-process"
        assert same._network == Network(read_s=5)

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"api_key": "sk-hunter2hunter2"}, "api_key"),
            ({"headers": {"X-Api-Key": "hunter2"}}, "headers"),
            ({"base_url": "https://host/v1?key=hunter2"}, "base_url"),
            ({"network": Network(proxy="http://u:hunter2@host:1")}, "network.proxy"),
        ],
    )
    def test_a_secret_stays_here(self, options, said):
        client = HttpClient("openai", "gpt-5", **options)
        with pytest.raises(UsageError, match=f"{said} .*OPENAI_API_KEY") as caught:
            pickle.dumps(Agent(client))
        assert "hunter2" not in str(caught.value)


def ask(dialog: Dialog, *entries: Any) -> CallResult:
    """Work of another process."""
    functions = [add, erase]
    return Agent(Script(*entries), functions=functions, limits=Limits(recalls=0)).call(dialog)


def test_all_of_it_through_other_processes():
    dialog = Agent(Script("yes"), functions=[add]).call("Can you add?").dialog.put("1 + 2?")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        result = pool.submit(ask, dialog, function_call("add", a=1, b=2), "3").result()
        assert (result.text, result.function_calls[0].result) == ("3", "3")
        assert result.dialog.top_prompt is not None
        assert result.dialog.top_prompt.by_name == {"add": add, "erase": erase}
        with pytest.raises(CallFailed, match="too busy") as caught:
            pool.submit(ask, dialog, Overloaded("too busy", status=529)).result()
        assert caught.value.reason is Reason.MODEL_FAILED
        with pytest.raises(CallSuspended) as waits:
            pool.submit(ask, dialog, function_call("erase", path="n")).result()
        assert isinstance(waits.value.call, AgentCall)
        assert waits.value.call.effects[0].key.startswith("ask:")
