"""The types of what a state gives, and its values as JSON.

If a state gives several types, a value is written together with the name of its type.  A value that comes without a
name, from a web form, say, is read as `adapter_of` reads an answer of a model: it is never guessed.  Types that only
their names could tell apart are refused when the flow is defined.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from enum import Enum
from functools import cached_property
from itertools import combinations
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from typing_extensions import TypeVar, is_protocol, is_typeddict

from fsm_agent._internal.annotations import types_of, without_notes
from fsm_agent._internal.lazy_import import pydantic, pydantic_core
from fsm_agent._internal.type_adapters import type_adapter
from fsm_agent.call.effects import schema_json
from fsm_agent.errors import OutcomeError
from fsm_agent.flows.definition.json_text import describe_json_error, dumped
from fsm_agent.flows.definition.kept_json import kept_adapter
from fsm_agent.flows.errors import FlowError
from fsm_agent.prompts.unions import adapter_of, are_alike, has_tags
from fsm_agent.validation import shown

if TYPE_CHECKING:
    from collections.abc import Callable


S = TypeVar("S", default=Any)  # the data of a flow inside of a state


class _AnyCase:
    """The case of a state whose values the table does not distinguish: a singleton, even when a flow is copied."""

    def __reduce__(self) -> str:
        return "ANY"


ANY: Any = _AnyCase()


@dataclasses.dataclass(frozen=True)
class Failure(Generic[S]):
    """The reason why a state failed, or was ended: the answer of rows of ``failed``, ``expired`` and ``cancelled``.

    ``data`` is the last data of the flow inside of the state; None: none is inside.  In the data of a flow it keeps its
    type if it is annotated, as ``Failure[Order | None]``.

    Examples:
        >>> @execute
        ... def look(n: int) -> int:
        ...     raise ConnectionError("no line")
        >>> def note(n: int, why: Failure) -> int:
        ...     print(why.reason, why.detail)
        ...     return -1
        >>> rows = [look.done(end("found")), look.failed(end("lost"), do=note)]
        >>> Flow("looking", int, start=look, rows=rows).call(1).output
        raised ConnectionError: no line
        -1
    """

    reason: str  # of a call its `Reason`; of a flow its end; "raised"; "too few" items; "expired" or "cancelled"
    detail: str = ""  # for people
    where: str = ""  # the state, or the member of several
    data: S = dataclasses.field(default=cast("S", None), hash=False)


class AnswerTypes:
    """The types of what a state gives.

    Args:
        state: The name of the state, for errors.
        types: The types; none: it gives nothing.
        are_posted: Values come as JSON from outside, and not only as `dump` writes them.
    """

    def __init__(self, state: str, types: Sequence[Any], *, are_posted: bool = False) -> None:
        self.are_posted = are_posted
        self.state = state
        self.types = tuple(types)
        self.names = [case_name(kind) for kind in self.types]

    def __repr__(self) -> str:
        return " | ".join(self.names)

    @property
    def provided(self) -> tuple[Any, ...]:
        """The types of the values, for the states around it."""
        return self.types

    @cached_property
    def cases(self) -> tuple[Any, ...]:
        """The values that rows tell apart: types, the members of an enum, True and False; `ANY` if there is one."""
        if len(self.types) > 1:
            return self.types
        (kind,) = self.types or (ANY,)
        if isinstance(kind, type) and issubclass(kind, Enum):
            return tuple(kind)
        return (True, False) if kind is bool else (ANY,)

    def case_of(self, value: Any) -> Any:
        """Return the case to which a value belongs: its own class before those that it inherits from."""
        for is_case in (_is_exactly, _is_of):
            for case in self.cases:
                if case is ANY or value is case or value == case or is_case(value, case):
                    return case
        raise OutcomeError(f"{self.state}: expected {self!r}, got {shown(value)}")

    @cached_property
    def _adapters(self) -> list[pydantic.TypeAdapter[Any]]:
        return [kept_adapter(kind) for kind in self.types]

    @cached_property
    def _either(self) -> Any:
        return adapter_of(union_of(self.types))

    def dump(self, value: Any) -> str:
        """Return a value as JSON.

        Raises:
            OutcomeError: The value has none of the types, or could not be read again.
        """
        index = self._index(value)
        text = dumped(self._adapters[index], value, self.state, self.names[index])
        return text if len(self.types) == 1 else f"[{pydantic_core.to_json(self.names[index]).decode()},{text}]"

    def _index(self, value: Any) -> int:
        if len(self.types) == 1:
            return 0
        for is_kind in (_is_exactly, _is_of):
            for index, kind in enumerate(self.types):
                if is_kind(value, kind):
                    return index
        raise OutcomeError(f"{self.state}: expected {self!r}, got {shown(value)}")

    def load(self, text: str) -> Any:
        """Return the value that JSON holds: with the name of its type, as `dump` writes it, or without.

        Raises:
            OutcomeError: It is none.
        """
        try:
            if len(self.types) == 1:
                return self._adapters[0].validate_json(text)
            data = pydantic_core.from_json(text)
            if isinstance(data, list) and len(data) == 2 and data[0] in self.names:
                return self._adapters[self.names.index(data[0])].validate_json(pydantic_core.to_json(data[1]))
            return self._either.validate_json(text)
        except (ValueError, TypeError) as error:  # the latter: half a surrogate pair
            problem = f"{self.state}: expected JSON of {self!r}, got {shown(text)}"
            raise OutcomeError(f"{problem}: {describe_json_error(error)}") from None

    @cached_property
    def schema(self) -> str:
        """JSON Schema of the values; of several types, ``anyOf``.  Empty: it has none, or a very large one."""
        try:
            return schema_json(type_adapter(union_of(self.types)).json_schema())
        except pydantic.errors.PydanticUserError:  # only code describes a type
            return ""

    def check(self, where: str) -> None:
        """Refuse types that cannot be found, or that JSON cannot tell apart.

        Raises:
            FlowError: It names them.
        """
        for kind in self.types:
            check_resolved(where, kind)
            if self.are_posted and has_tags(kind):
                right = "add a field kind: Literal[…] to each of its members, and Field(discriminator='kind')"
                what = (
                    f"expected types that JSON can tell apart, got a union without a discriminator in {case_name(kind)}"
                )
                raise FlowError(f"{where}: {what}; {right}")
        self.check_names(where)
        if len(self.types) < 2:
            return
        for kind in self.types:
            if not _is_checkable(kind):
                right = "use a class, such as a frozen dataclass"
                what = f"expected types that values can be checked against, got {case_name(kind)}"
                raise FlowError(f"{where}: {what}; {right}")
        for one, other in combinations(self.types, 2):
            if are_alike(one, other):
                right = f"add a field such as kind: Literal[{case_name(other).lower()!r}] to each"
                if not (_has_fields(one) and _has_fields(other)):
                    right = "put each into a frozen dataclass of its own"
                what = f"expected types that JSON can tell apart, got {case_name(one)} and {case_name(other)}"
                raise FlowError(f"{where}: {what}; {right}")

    def check_names(self, where: str) -> None:
        """Refuse two types of the same name: rows and JSON could not tell them apart.

        Raises:
            FlowError: It names them.
        """
        if twice := [name for name in self.names if self.names.count(name) > 1]:
            raise FlowError(f"{where}: expected types with different names, got two named {twice[0]!r}; rename one")


def check_resolved(where: str, kind: Any) -> None:
    """Refuse a type that names types that cannot be found, or that JSON cannot hold.

    Raises:
        FlowError: It says so.
    """
    try:
        adapter = type_adapter(kind)
        if adapter.pydantic_complete:
            return
        problem = "names types that cannot be found"
    except Exception as error:  # pydantic raises what annotations raise
        problem = f"cannot be written as JSON: {type(error).__name__}: {str(error).splitlines()[0]:.200}"
    right = "a type of a module, with plain fields"
    raise FlowError(f"{where}: expected {right}, got {case_name(kind)}, which {problem}")


def case_name(case: Any) -> str:
    """Return the name of a type, or of a member of an enum, for people and for triggers."""
    if isinstance(case, Enum):
        return str(case.name)
    if (results := _results(case)) is not None:
        return f"CallResult of {results.state}"
    if get_origin(case) is Annotated:
        return case_name(without_notes(case))
    if get_origin(case) is not None:
        return str(case).replace("typing.", "")
    return getattr(case, "__name__", None) or repr(case)


def union_of(types: Sequence[Any]) -> Any:
    """Return the union of types."""
    return Union[tuple(types)]  # noqa: UP007  # of as many as there are


def returned_types(function: Callable[..., Any]) -> tuple[Any, ...]:
    """Return the types that a function returns, by its annotation.

    Raises:
        FlowError: It has no return annotation, or one that names an unknown type.
    """
    name = getattr(function, "__name__", repr(function))
    try:
        hint = get_type_hints(function).get("return", ANY)
    except (NameError, TypeError):  # a type that is local to a function: look where it was written
        hint = _local_hint(function)
    if hint is ANY:
        raise FlowError(f"function {name!r}: expected a return type, got none; add one, such as -> str")
    if isinstance(hint, str):
        what = f"return type of the function {name!r}"
        raise FlowError(f"{what}: expected a type that a module defines, got {hint!r}, which is not found")
    return tuple(NoneType if kind is None else kind for kind in types_of(hint))


def _local_hint(function: Callable[..., Any]) -> Any:
    hint = inspect.signature(function).return_annotation
    if not isinstance(hint, str):
        return ANY if hint is inspect.Signature.empty else hint
    known = inspect.getclosurevars(function)
    names = {**known.globals, **known.nonlocals, **known.builtins}
    builtins = {kind.__name__: kind for kind in (str, int, float, bool, bytes)}
    return {**builtins, **names, "None": NoneType}.get(hint, hint)


def _is_exactly(value: Any, case: Any) -> bool:
    """Return True for a value of this class, and of none that inherits from it."""
    case = without_notes(case)
    return _is_of(value, case) if get_origin(case) is Literal else type(value) is case


def _is_of(value: Any, case: Any) -> bool:
    if (results := _results(case)) is not None:
        return bool(results.takes(value))
    case = without_notes(case)
    if get_origin(case) is Literal:
        return any(type(value) is type(known) and value == known for known in get_args(case))
    case = get_origin(case) or case
    if isinstance(value, bool) and case is not bool:
        return False
    return isinstance(case, type) and isinstance(value, case)


def _results(case: Any) -> Any:
    """Return the `ResultTypes` of whole results of an agent call; None: the case is a type of values."""
    return next((note for note in getattr(case, "__metadata__", ()) if isinstance(note, AnswerTypes)), None)


def _is_checkable(kind: Any) -> bool:
    """Return True if values can be checked against a type."""
    kind = without_notes(kind)
    if get_origin(kind) is Literal:
        return True
    kind = get_origin(kind) or kind
    return isinstance(kind, type) and kind not in (Any, object) and not (is_typeddict(kind) or is_protocol(kind))


def _has_fields(kind: Any) -> bool:
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or issubclass(kind, pydantic.BaseModel))
