"""Is a word of another library, or a misspelt word, refused by name, with the right word?"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

import fsm_agent
from fsm_agent import Agent, Function, Limits, Prompt, Settings, UsageError
from fsm_agent.call import Price
from fsm_agent.clients import Network
from fsm_agent.context import Budget
from fsm_agent.flows import Flow, FlowLimits, execute
from fsm_agent.foreign_names import IMPORTS, WORDS, remedy
from fsm_agent.runtime import ResultPipeline
from fsm_agent.testing import Script

agent: Agent = Agent(Script(*["ok"] * 3))


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ANSWERS: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "call, an argument of the agent": (
        lambda: agent.call("x", usage_limits=1),
        UsageError,
        ".*'usage_limits'; use limits=Limits.* of Agent",
    ),
    "call, an argument of its own": (
        lambda: agent.call("x", metadata={}),
        UsageError,
        ".*'metadata'; use extra={…} of call$",
    ),
    "call, a picture": (
        lambda: agent.call("x", images=["p.png"]),
        UsageError,
        "unknown option 'images'; use Payload.text('…').with_image(.*as the task$",
    ),
    "call, a file": (
        lambda: agent.call("x", files=["p.pdf"]),
        UsageError,
        "unknown option 'files'; use Payload.text('…').with_document(.*as the task$",
    ),
    "execute": (lambda: execute(timeout=3), TypeError, "execute has no argument 'timeout': did you mean 'timeout_s'?"),
    "Function": (
        lambda: Function.of(add, timeout=3),
        UsageError,
        "unknown policy 'timeout' of a function: did you mean 'timeout_s'?",
    ),
    "call, a setting": (
        lambda: agent.call("x", temperature=0),
        UsageError,
        "unknown option 'temperature'; use args={'temperature': …}, or settings=.* of Agent",
    ),
    "call": (lambda: agent.call("x", history=[]), UsageError, "unknown option 'history'; use .*after="),
    "call of a prompt": (lambda: agent.call(Prompt("x"), context=5), UsageError, ".*'context'; use deps=… of call"),
    "call of another argument": (lambda: agent.call("x", approve=print), UsageError, ".*; use the same argument of"),
    "call, misspelt": (lambda: agent.call(Prompt("x"), dpes=5), UsageError, ".*'dpes'.*did you mean 'deps'?"),
    "args": (lambda: agent.call("x", args={"temprature": 0}), UsageError, "unknown setting 'temprature': did you mean"),
    "Agent": (lambda: Agent(Script(), tools=[]), TypeError, ".*'tools'; use functions=.*$"),
    "Agent, a part of its environment": (
        lambda: Agent(Script(), clock=None),
        TypeError,
        ".*'clock'; use environment={'clock': …}",
    ),
    "Agent without its own": (lambda: Agent(name="a", instructions="x"), TypeError, ".*'instructions'; use system="),
    "Agent, a task as its system": (
        lambda: Agent(Script(), system=Prompt("{{ x }}")(x=1)),
        UsageError,
        "system of an agent: expected .*system_args",
    ),
    "Agent, misspelt": (lambda: Agent(Script(), outptu=int), TypeError, ".*'outptu': did you mean 'output'"),
    "a variant": (lambda: agent.changed(output_type=int), TypeError, ".*'output_type'; use output="),
    "Prompt": (lambda: Prompt("x", response_format=int), TypeError, ".*'response_format'; use output="),
    "Prompt, an argument of the agent": (
        lambda: Prompt("x", instructions="y"),
        TypeError,
        ".*'instructions'; use system=.*of an Agent",
    ),
    "Flow": (lambda: Flow("f", str, start=None, rows=[], checkpointer=1), TypeError, ".*'checkpointer'; use store="),
    "an extended prompt": (lambda: Prompt("x").extend(tools=[]), TypeError, ".*'tools'; use functions="),
    "a result as a state": (lambda: agent.call("x")["messages"], TypeError, "a CallResult has no key 'messages'"),
}


@pytest.mark.parametrize(("make", "kind", "said"), ANSWERS.values(), ids=ANSWERS)
def test_a_word_that_is_not_ours_is_answered(make: Callable[[], object], kind: type[Exception], said: str) -> None:
    pattern = ".*".join(map(re.escape, said.removesuffix("$").split(".*"))) + ("$" if said.endswith("$") else "")
    with pytest.raises(kind, match=f"^{pattern}"):
        make()


@pytest.mark.parametrize("kind", [Agent, Flow, Limits, Price, Budget, Network, ResultPipeline])
def test_a_class_refuses_an_unknown_argument_by_its_name(kind: Any) -> None:
    with pytest.raises(TypeError, match="'max_trns'"):
        kind(max_trns=3)


BESIDE_OPTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {  # have arguments of their own, and options
    "classify": (agent.classify, ("x", ["a", "b"])),
    "binary_classify": (agent.binary_classify, ("x",)),
    "map": (agent.map, (["x"],)),
    "submit": (agent.runs.submit, ("x",)),
}


@pytest.mark.parametrize(("takes", "first"), BESIDE_OPTIONS.values(), ids=BESIDE_OPTIONS)
def test_an_option_that_is_nearly_an_argument_is_answered_with_it(
    takes: Callable[..., Any], first: tuple[Any, ...]
) -> None:
    own = [each.name for each in inspect.signature(takes).parameters.values() if each.kind is each.KEYWORD_ONLY]
    assert own
    for name in own:
        with pytest.raises(UsageError, match=f"did you mean '{name}'"):
            takes(*first, **{f"{name}_": None})


class Terse(Agent):
    def __init__(self, words: int, **options: Any) -> None:
        super().__init__(Script("ok"), system=f"Use at most {words} words.", **options)


class TestConstructors:
    def test_a_subclass_has_arguments_of_its_own(self) -> None:
        assert Terse(words=3, name="terse").call("x").output == "ok"


class TestImports:
    @pytest.mark.parametrize(
        ("name", "right"),
        [("RunContext", "Context"), ("tool", "@function"), ("START", "the argument start of fsm_agent.flows.Flow")],
    )
    def test_a_name_of_another_library_or_place(self, name: str, right: str) -> None:
        with pytest.raises(ImportError, match=f"cannot import name '{name}' from 'fsm_agent'; use .*{right}"):
            exec(f"from fsm_agent import {name}")

    @pytest.mark.parametrize("name", ["trace", "StreamWrapper"])
    def test_a_guess_that_is_far_off_is_not_made(self, name: str) -> None:
        with pytest.raises(ImportError) as refused:
            exec(f"from fsm_agent import {name}")
        assert "did you mean" not in str(refused.value)

    def test_one_that_nobody_knows_is_left_to_python(self) -> None:
        with pytest.raises(ImportError, match="cannot import name 'xyzzy' from 'fsm_agent'"):
            exec("from fsm_agent import xyzzy")
        assert not hasattr(fsm_agent, "xyzzy")


class TestWords:
    def test_an_import_is_none_of_ours(self) -> None:
        assert not IMPORTS.keys() & set(fsm_agent.__all__)

    @pytest.mark.parametrize("word", WORDS)
    def test_what_is_named_is_there(self, word: str) -> None:
        right = WORDS[word]
        for path in re.findall(r"fsm_agent[.\w]+", right) or re.findall(r"\b[A-Z]\w+", right.replace("Shop", "")):
            module, _, name = path.rpartition(".")
            assert hasattr(import_module(module or "fsm_agent"), name), path
        options = {
            name
            for kind in (Agent, Prompt, Settings, Limits, FlowLimits)
            for name in inspect.signature(kind).parameters
        }
        for name in re.findall(r"\b([a-z_]+)=", right):
            assert name in options | {"deps", "extra", "after"}, name

    def test_a_word_comes_before_a_near_one(self) -> None:
        assert remedy("tools", ["tool"]) == "; use functions=[…]"
        assert remedy("xyzzy") == ""
