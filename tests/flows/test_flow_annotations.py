"""Are the annotations of a flow's functions compared with what they are given and what they shall return?"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NewType, Protocol, TypeVar

import pytest

from fsm_agent.flows import Failure, Flow, FlowError, each, end, execute, gather, subflow, wait


@dataclass(frozen=True)
class Plan:
    steps: tuple[str, ...]


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
    (int, float),
    (int, Any),
    (int, T),
    (int, Hours),
    (Hours, int),
    (Plan, Named),
    (Plan, Annotated[Plan, "noted"]),
    (Plan, Plan | None),
    (str, Literal["yes", "no"]),
    (Literal["yes", "no"], str),
    (tuple[int, ...], tuple[int | str, ...]),
    (tuple[int, ...], Sequence[int]),
    (tuple[str, ...], tuple),
    (Mapping[str, int], Mapping[str, int]),
    ((int, str), int | str | bytes),
]
MISFIT: list[tuple[Any, Any]] = [
    (int, str | bytes),
    (int, Plan | None),
    (int, Literal["yes"]),
    (Mood, str),
    (tuple[int, ...], tuple[str, ...]),
    (tuple[int, str], tuple[int]),
    (Mapping[str, int], Mapping[str, str]),
    ((int, str), int),
]


def test_an_annotation_that_may_be_right_is_taken() -> None:
    for kind, hint in FIT:
        assert answered(kind, annotated(hint)), hint


@pytest.mark.parametrize(("kind", "hint"), MISFIT)
def test_an_annotation_that_cannot_be_right_is_refused(kind: Any, hint: Any) -> None:
    with pytest.raises(FlowError, match="keep"):
        answered(kind, annotated(hint))


def test_a_time_that_ends_gives_none_and_a_failure_is_one() -> None:
    state: Any = execute(name="acting", within_s=5)(a_number)

    def rows(hint: Any) -> list[Any]:
        return [state.elapsed(end("late"), do=annotated(hint)), state.done(end("over"))]

    assert Flow("f", Data, start=state, rows=rows(str | None))
    with pytest.raises(FlowError, match="keep"):
        Flow("f", Data, start=state, rows=rows(str))
    failing = [state.failed(end("lost"), do=annotated(str | Plan)), state.done(end("over"))]
    with pytest.raises(FlowError, match="keep"):
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


def test_a_guard_returns_true_or_false() -> None:
    for hint in (bool, Any, object, Literal[True], Annotated[bool, "sure"]):
        assert guarded(hint)
    for hint in (None, int, bool | None, bool | int, Plan):
        with pytest.raises(FlowError, match="holds"):
            guarded(hint)


def returning(hint: Any) -> Flow[Data]:
    keep = annotated(int)
    keep.__annotations__ = {"return": hint}
    return answered(int, keep)


def test_an_action_returns_the_data() -> None:
    for hint in (Data, Any, object, T):
        assert returning(hint)
    for hint in (int, None, Data | None, tuple[Data]):
        with pytest.raises(FlowError, match="keep"):
            returning(hint)


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
    with pytest.raises(FlowError, match="of_text"):
        over(each("every", of_text, numbers))  # type: ignore[arg-type]
    inner = Flow("inner", str, start=of_text, rows=[of_text.done(end("over"))])
    with pytest.raises(FlowError, match="same"):
        over(each("every", subflow("nested", inner, same), numbers))  # type: ignore[arg-type]


def same(text: str) -> str:
    return text


def test_members_at_once_are_given_the_data_of_the_flow() -> None:
    with pytest.raises(FlowError, match="of_text"):
        over(gather("both", act, of_text))  # type: ignore[arg-type]


def test_a_flow_inside_begins_with_data_of_its_own() -> None:
    inner = Flow("inner", str, start=of_text, rows=[of_text.done(end("over"))])
    with pytest.raises(FlowError, match="a_number"):
        over(subflow("nested", inner, a_number))  # type: ignore[arg-type]
