"""Are the annotations of a flow's functions compared with what they are given and what they shall return?"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NewType, Protocol, TypeVar

import pytest

from fsm_agent import Agent, CallResult
from fsm_agent.flows import Failure, Flow, FlowError, call, each, end, execute, gather, subflow, wait
from fsm_agent.lifecycle import Begun
from fsm_agent.testing import Script


@dataclass(frozen=True)
class Plan:
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Refusal:
    why: str


@dataclass(frozen=True)
class Data:
    text: str = ""


class Mood(enum.Enum):
    GOOD = "good"
    BAD = "bad"


class Named(Protocol):
    name: str


T = TypeVar("T")
Hours = NewType("Hours", int)
agent = Agent("openai:gpt-5-mini", name="bot")


def whole(of: Any, action: Callable[..., Any]) -> Flow[Data]:
    state: Any = call(agent, Plan, Refusal, name="asking", whole=True)(lambda d: "?")
    rest = [state.done(end("other"))] if of is not ... else []
    return Flow(
        "f", Data, start=state, rows=[state.done(end("over"), **({} if of is ... else {"of": of}), do=action), *rest]
    )


def plain(d: Data, a: CallResult) -> Data:  # type: ignore[type-arg]
    return d


def of_plan(d: Data, a: CallResult[Plan]) -> Data:
    return d


def of_both(d: Data, a: CallResult[Plan | Refusal]) -> Data:
    return d


@pytest.mark.parametrize(
    ("of", "action"), [(Plan, plain), (Plan, of_plan), (Plan, of_both), (..., plain), (..., of_both)]
)
def test_an_action_of_a_whole_call_is_given_the_result(of: Any, action: Callable[..., Any]) -> None:
    run = whole(of, action).seed(Data())
    run.advance("begin", Begun(at_s=1.0))
    run.give(run.flow.start, result_of_a_plan())
    assert run.state == "over"


def result_of_a_plan() -> CallResult[Plan]:
    return Agent(Script('{"steps": ["one"]}'), output=Plan).call("?")


def answered(kind: Any, action: Callable[..., Any], of: Any = None) -> Flow[Data]:
    state: Any = (
        wait(*kind, name="asking")(lambda d: "?") if isinstance(kind, tuple) else wait(kind, name="asking")(str)
    )
    rest = [] if of is None else [state.done(end("other"))]
    return Flow(
        "f", Data, start=state, rows=[state.done(end("over"), do=action, **({} if of is None else {"of": of})), *rest]
    )


def annotated(hint: Any) -> Callable[..., Any]:
    def keep(d: Any, a: Any) -> Any:
        return d

    keep.__annotations__ = {"a": hint}
    return keep


FIT: list[tuple[Any, Any]] = [
    (int, int),
    (int, float),
    (int, int | str),
    (int, Any),
    (int, object),
    (int, T),
    (int, Hours),
    (Hours, int),
    (Plan, Named),
    (Plan, Annotated[Plan, "noted"]),
    (Plan, Plan | None),
    (str, Literal["yes", "no"]),
    (Literal["yes", "no"], str),
    (Mood, Mood),
    (tuple[int, ...], tuple[int | str, ...]),
    (tuple[int, ...], Sequence[int]),
    (tuple[str, int], tuple[str, int]),
    (tuple[str, ...], tuple),
    (Mapping[str, int], Mapping[str, int]),
    ((int, str), int | str),
    ((int, str), int | str | bytes),
]
MISFIT: list[tuple[Any, Any, str, str]] = [
    (int, str | bytes, "str | bytes", "int"),
    (int, str, "str", "int"),
    (int, Plan | None, "Plan | None", "int"),
    (int, list[int], "list[int]", "int"),
    (int, Literal["yes"], "Literal['yes']", "int"),
    (Mood, str, "str", "Mood"),
    (tuple[int, ...], tuple[str, ...], "tuple[str, ...]", "tuple[int, ...]"),
    (tuple[int, str], tuple[int], "tuple[int]", "tuple[int, str]"),
    (Mapping[str, int], Mapping[str, str], "Mapping[str, str]", "Mapping[str, int]"),
    ((int, str), int, "int", "int | str"),
    ((int, str), int | bytes, "int | bytes", "int | str"),
]


@pytest.mark.parametrize(("kind", "hint"), FIT)
def test_an_annotation_that_may_be_right_is_taken(kind: Any, hint: Any) -> None:
    assert answered(kind, annotated(hint))


@pytest.mark.parametrize(("kind", "hint", "takes", "given"), MISFIT)
def test_an_annotation_that_cannot_be_right_is_refused(kind: Any, hint: Any, takes: str, given: str) -> None:
    with pytest.raises(FlowError) as error:
        answered(kind, annotated(hint))
    assert f"keep takes {takes}, and its answer is {given}: a: {given} is right" in str(error.value)


def test_a_time_that_ends_gives_none_and_a_failure_is_one() -> None:
    state: Any = execute(name="acting", within_s=5)(a_number)

    def rows(hint: Any) -> list[Any]:
        return [state.elapsed(end("late"), do=annotated(hint)), state.done(end("over"))]

    assert Flow("f", Data, start=state, rows=rows(str | None))
    with pytest.raises(FlowError, match="keep takes str, and its answer is None: a: None is right"):
        Flow("f", Data, start=state, rows=rows(str))
    failing = [state.failed(end("lost"), do=annotated(str | Plan)), state.done(end("over"))]
    with pytest.raises(FlowError, match=r"keep takes str \| Plan, and its answer is Failure: a: Failure is right"):
        Flow("f", Data, start=state, rows=failing)
    assert Flow(
        "f", Data, start=state, rows=[state.failed(end("lost"), do=annotated(Failure)), state.done(end("over"))]
    )


# What is returned


def guarded(hint: Any) -> Flow[Data]:
    def holds(d: Any, a: Any) -> Any:
        return True

    holds.__annotations__ = {"return": hint}
    state: Any = wait(int, name="asking")(lambda d: "?")
    return Flow("f", Data, start=state, rows=[state.done(end("over"), when=holds), state.done(end("other"))])


@pytest.mark.parametrize("hint", [bool, Any, object, Literal[True], Annotated[bool, "sure"]])
def test_a_guard_returns_true_or_false(hint: Any) -> None:
    assert guarded(hint)


@pytest.mark.parametrize(
    ("hint", "named"),
    [
        (None, "None"),
        (int, "int"),
        (str, "str"),
        (bool | None, "bool | None"),
        (bool | int, "bool | int"),
        (Plan, "Plan"),
    ],
)
def test_a_guard_that_returns_something_else_is_refused(hint: Any, named: str) -> None:
    with pytest.raises(FlowError) as error:
        guarded(hint)
    assert f"holds returns {named}, where True or False is expected: -> bool is right" in str(error.value)


def returning(hint: Any) -> Flow[Data]:
    keep = annotated(int)
    keep.__annotations__ = {"return": hint}
    return answered(int, keep)


@pytest.mark.parametrize("hint", [Data, Any, object, T])
def test_an_action_returns_the_data(hint: Any) -> None:
    assert returning(hint)


@pytest.mark.parametrize(
    ("hint", "named"), [(int, "int"), (None, "None"), (Data | None, "Data | None"), (tuple[Data], "tuple[Data]")]
)
def test_an_action_that_returns_something_else_is_refused(hint: Any, named: str) -> None:
    with pytest.raises(FlowError) as error:
        returning(hint)
    problem = f"the action of the row asking --done--> over: keep returns {named}, where the data of the flow"
    assert f"{problem} is expected: -> Data is right" in str(error.value)


@execute
def act(d: Data) -> int:
    return 1


@execute
def of_text(text: str) -> int:
    return len(text)


def numbers(d: Data) -> tuple[int, ...]:
    return (1,)


def words(d: Data) -> list[str]:
    return ["one"]


def a_number(d: Data) -> int:
    return 1


def over(state: Any) -> Flow[Data]:
    return Flow("f", Data, start=state, rows=[state.done(end("over"))])


def test_items_are_what_the_member_takes() -> None:
    assert over(each("every", of_text, words))
    with pytest.raises(FlowError, match="of_text: of_text takes str, and an item of every is int: text: int is right"):
        over(each("every", of_text, numbers))  # type: ignore[arg-type]
    inner = Flow("inner", str, start=of_text, rows=[of_text.done(end("over"))])
    with pytest.raises(FlowError, match="nested: same takes str, and an item of every is int: text: int is right"):
        over(each("every", subflow("nested", inner, same), numbers))  # type: ignore[arg-type]


def same(text: str) -> str:
    return text


def test_members_at_once_are_given_the_data_of_the_flow() -> None:
    with pytest.raises(FlowError, match="of_text: of_text takes str, and the data of the flow is Data: text: Data"):
        over(gather("both", act, of_text))  # type: ignore[arg-type]


def test_a_flow_inside_begins_with_data_of_its_own() -> None:
    inner = Flow("inner", str, start=of_text, rows=[of_text.done(end("over"))])
    with pytest.raises(FlowError, match="a_number returns int, where the data of the flow 'inner' is expected: -> str"):
        over(subflow("nested", inner, a_number))  # type: ignore[arg-type]
