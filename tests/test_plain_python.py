"""Do the public classes do what plain Python does: signatures, sources, hints, copies, pickles and subclasses?"""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
import pydoc
import re
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fsm_agent
from fsm_agent import Agent, AgentBase, Limits, Prompt, Settings, UsageError
from fsm_agent.agents import Conversation
from fsm_agent.flows import Flow, FlowSuspended, end, execute, wait
from fsm_agent.flows.orchestrator import Orchestrator
from fsm_agent.store import MemoryStore
from fsm_agent.testing import Script

VERBS = ("call", "acall", "stream", "astream", "map", "amap", "prepare", "run", "arun")
RUNS = ("submit", "asubmit", "get", "aget", "resume", "aresume", "stream", "astream", "replay", "at", "fork")
HELD = (Agent, Conversation, Flow, Orchestrator)
METHODS = [*[(cls, verb) for cls in HELD for verb in VERBS], *[(type(Agent(Script()).runs), verb) for verb in RUNS]]


@execute
def shout(text: str) -> str:
    return text.upper()


def flow() -> Flow[str]:
    return Flow("loud", str, start=shout, rows=[shout.done(end("said"), do=lambda text, loud: loud)])


@pytest.mark.parametrize(("cls", "verb"), METHODS, ids=lambda value: getattr(value, "__name__", value))
def test_each_verb_shows_its_options_in_its_source_its_signature_and_its_hints(cls: Any, verb: str) -> None:
    method = getattr(cls, verb)
    shown = inspect.signature(method).parameters
    assert not hasattr(method, "__wrapped__")
    assert f"def {verb}(" in inspect.getsource(method)
    assert typing.get_type_hints(method).keys() <= {*shown, "return"}
    assert "deps" in shown or verb in ("run", "arun")


FACES = ["fsm_agent.errors", *[one.name for one in pkgutil.iter_modules(fsm_agent.__path__, "fsm_agent.") if one.ispkg]]


def hinted(face: str) -> Iterator[tuple[str, Any]]:
    """Yield the functions, classes and public methods of a face, each with its name."""
    room = importlib.import_module(face)
    for name in getattr(room, "__all__", []):
        public = getattr(room, name)
        yield name, public
        for key, member in dict(vars(public)).items() if inspect.isclass(public) else ():
            if key == "__init__" or not key.startswith("_"):
                yield f"{name}.{key}", getattr(member, "fget", getattr(member, "__func__", member))


@pytest.mark.parametrize("face", FACES)
def test_the_hints_of_every_public_name_are_types(face: str) -> None:
    for name, public in hinted(face):
        if inspect.isclass(public) or inspect.isfunction(public):
            assert isinstance(typing.get_type_hints(public), dict), name


@pytest.mark.parametrize(
    ("verb", "wrong", "meant"),
    [("submit", "delay", "delay_s"), ("submit", "prioriti", "priority"), ("map", "concurency", "concurrency")],
)
def test_the_error_of_an_unknown_option_names_a_near_one_of_the_verb(verb: str, wrong: str, meant: str) -> None:
    agent = Agent(Script(), name="a", store=MemoryStore())
    with pytest.raises(UsageError, match=f"'{wrong}'.*'{meant}'"):
        getattr(agent.runs if verb == "submit" else agent, verb)(["Hello"], **{wrong: 1})


@pytest.mark.parametrize("cls", HELD)
def test_help_is_a_page_of_what_users_do(cls: type) -> None:
    public = {name for name in dir(cls) if not name.startswith("_")}
    assert len(public) <= 40, sorted(public)
    page = pydoc.render_doc(cls, renderer=pydoc.plaintext)
    assert re.search(r"call\([\s|]*self", page)  # since Python 3.13, each parameter is on a line


@pytest.mark.parametrize("cls", [Agent, AgentBase, Conversation, Flow, MemoryStore])
def test_no_verb_hides_its_options(cls: Any) -> None:
    """Values of a prompt, arguments of a function, and members by role have the user's names."""
    verbs = [verb for _, verb in inspect.getmembers(cls, inspect.isroutine) if hasattr(verb, "__qualname__")]
    hidden = {
        (verb.__qualname__, one.name)
        for verb in verbs
        if not verb.__name__.startswith("_")
        for one in inspect.signature(verb).parameters.values()
        if one.kind is one.VAR_KEYWORD and not str(one.annotation).startswith("Unpack[")
    }
    # ``unknown`` is refused; `changed` takes the arguments of the class
    known = {"values", "arguments", "by_role", "unknown"}
    assert {parameter for verb, parameter in hidden if not verb.endswith(".changed")} <= known, hidden


@pytest.mark.parametrize(
    "make",
    [
        lambda: Agent("openai:gpt-5-mini", system="Be terse.", name="desk"),
        flow,
        lambda: Prompt("{{ task }}", output=int),
        lambda: Limits(rounds=3),
        lambda: Settings(temperature=0),
    ],
)
def test_a_copy_is_one_and_a_pickle_comes_back(make: Callable[[], Any]) -> None:
    one = make()
    for made in (copy.copy(one), copy.deepcopy(one)):
        assert type(made) is type(one)
        assert repr(made) == repr(one)
    if not isinstance(one, Flow):  # whose rows have functions without a name
        assert repr(pickle.loads(pickle.dumps(one))) == repr(one)


def test_an_error_of_a_flow_is_copied_with_its_run() -> None:
    @wait(bool)
    def review(text: str) -> str:
        return text

    with pytest.raises(FlowSuspended) as raised:
        Flow("letters", str, start=review, rows=[review.done(end("over"))]).call("Dear Ada")
    copied = copy.copy(raised.value)
    assert str(copied) == str(raised.value)
    assert copied.run is raised.value.run


def test_a_subclass_calls_as_its_class_does() -> None:
    class Desk(Agent[Any, str]):
        def call(self, task: Any, /, **options: Any) -> Any:
            return super().call(f"{task}!", **options)

    desk = Desk(Script("Hi."))
    assert desk.call("Hello", by="ada").dialog[-2].text == "Hello!"
    assert isinstance(desk, Agent)
    assert issubclass(Desk, Agent)
