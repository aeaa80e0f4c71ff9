"""Is an adapter made once for each type, and never confused with the adapter of another type?"""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass
from typing import Annotated, Literal, Union

import pytest
from pydantic import Field, PydanticSchemaGenerationError, PydanticUserError

from fsm_agent._internal import structs as type_adapters


@dataclass(frozen=True)
class Point:
    x: int


def test_it_is_made_once() -> None:
    for kind in (Point, tuple[Point, ...], Point | None, Literal["a", "b"], dict[str, Point]):
        assert type_adapters.type_adapter(kind) is type_adapters.type_adapter(kind)


def test_types_that_are_equal_and_written_otherwise_have_their_own() -> None:
    one, other = Union[int, bool], Union[bool, int]  # noqa: UP007  # typing's are equal
    assert one == other
    assert type_adapters.type_adapter(one) is not type_adapters.type_adapter(other)


def test_what_is_annotated_with_something_without_a_hash() -> None:
    kind = Annotated[int, Field(gt=0), []]
    with pytest.raises(TypeError):
        hash(kind)
    assert type_adapters.type_adapter(kind).validate_json("1") == 1


def test_a_name_that_is_defined_later_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Holder:
        later: Later  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(PydanticUserError, match="not fully defined"):
        type_adapters.type_adapter(Holder).validate_json('{"later": {"x": 1}}')
    monkeypatch.setitem(globals(), "Later", Point)
    assert type_adapters.type_adapter(Holder).validate_json('{"later": {"x": 1}}').later == Point(1)


def test_a_type_without_json_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(PydanticSchemaGenerationError):
            type_adapters.type_adapter(type("Plain", (), {}))


def test_types_made_by_code_are_let_go_of() -> None:
    """A program that keeps making types does not keep them in memory."""
    made = dataclass(frozen=True)(type("Made", (), {"__annotations__": {"x": int}}))
    type_adapters.type_adapter(made)
    seen = weakref.ref(made)
    del made
    for n in range(type_adapters._MOST):
        type_adapters.type_adapter(Literal[n])
    gc.collect()
    assert seen() is None
