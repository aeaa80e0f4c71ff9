"""The values in a flow: the answers that its states return, the data that its actions make, and the JSON form of both.

If a state has several types, a value is written with the name of its type.  A value without a name, for example from a
web form, is read like a model's answer, but its type is never guessed.  A flow whose types differ only in their names
is refused when it is defined.  The result of a whole agent call is written as the call's record and read with the
state's prompt, because JSON cannot hold code.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from itertools import combinations
from types import NoneType
from typing import Annotated, Any, Generic, Literal, Union, cast, get_args, get_origin, get_type_hints

import pydantic
import pydantic_core
from typing_extensions import TypeVar, is_protocol, is_typeddict

from fsm_agent._internal.structs import (
    UNIONS,
    from_json,
    schema_of,
    to_json,
    type_adapter,
    type_words,
    types_of,
    uncached,
    without_notes,
)
from fsm_agent.agents.program import evaluated
from fsm_agent.call.call import AgentCall
from fsm_agent.call.effects import schema_json
from fsm_agent.call.record import CallRecord, State
from fsm_agent.call.result import CallResult
from fsm_agent.call.snapshots import inconsistency
from fsm_agent.errors import FlowError, OutcomeError
from fsm_agent.flows.data_json import DataError, describe_json_error, dumped, kept_adapter
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.prompts.unions import adapter_of, are_alike, has_tags
from fsm_agent.validation import require, safe_repr

S = TypeVar("S", default=Any)  # the data of a flow inside a state
T = TypeVar("T")
_MOST_SHOWN = 500  # characters of a problem


class _AnyCase:
    """The case of a state whose values the table does not distinguish.  Copying a flow does not copy this singleton."""

    def __reduce__(self) -> str:
        return "ANY"


ANY: Any = _AnyCase()


@dataclasses.dataclass(frozen=True)
class Failure(Generic[S]):
    """The reason why a state failed or was ended.  Rows for ``failed``, ``expired`` and ``cancelled`` receive it.

    ``data`` is the last data of the state's inner flow, or None if there are none.  If you keep a `Failure` in a flow's
    data, annotate its type, as in ``Failure[Order | None]``.

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

    reason: str  # the `Reason` of a call, the end of a flow, "raised", "too few", "expired" or "cancelled"
    detail: str = ""  # for people
    where: str = ""  # the name of the state or member
    data: S = dataclasses.field(default=cast("S", None), hash=False)


class AnswerTypes:
    """The types of the values that a state returns."""

    def __init__(self, state: str, types: Sequence[Any], *, are_posted: bool = False) -> None:
        self.are_posted = are_posted
        self.state = state
        self.types = tuple(types)
        self.names = [case_name(kind) for kind in self.types]

    __getstate__ = uncached

    def __repr__(self) -> str:
        return " | ".join(self.names)

    @property
    def provided(self) -> tuple[Any, ...]:
        """The types of the values, as outer states see them."""
        return self.types

    @cached_property
    def cases(self) -> tuple[Any, ...]:
        """The cases that rows distinguish: types, enum members, True and False, or `ANY` for a single type."""
        if len(self.types) > 1:
            return self.types
        (kind,) = self.types or (ANY,)
        if isinstance(kind, type) and issubclass(kind, Enum):
            return tuple(kind)
        return (True, False) if kind is bool else (ANY,)

    def case_of(self, value: Any) -> Any:
        """Return the case to which a value belongs."""
        if self.cases is self.types:
            return self.types[self._index(value)]
        for case in self.cases:  # a single case, or the values of an enum or a bool
            if case is ANY or value is case or value == case:
                return case
        raise OutcomeError(f"{self.state}: expected {self!r}, got {safe_repr(value)}")

    @cached_property
    def _adapters(self) -> list[pydantic.TypeAdapter[Any]]:
        return [kept_adapter(kind) for kind in self.types]

    @cached_property
    def _either(self) -> Any:
        return adapter_of(union_of(self.types))

    def dump(self, value: Any) -> str:
        """Return a value as JSON."""
        index = self._index(value)
        text = dumped(self._adapters[index], value, self.state, self.names[index])
        return text if len(self.types) == 1 else f"[{pydantic_core.to_json(self.names[index]).decode()},{text}]"

    def _index(self, value: Any) -> int:
        """Return the index of a value's type.  Its exact class takes precedence over base classes."""
        if len(self.types) == 1:
            return 0
        for is_kind in (_is_exactly, _is_of):
            for index, kind in enumerate(self.types):
                if is_kind(value, kind):
                    return index
        raise OutcomeError(f"{self.state}: expected {self!r}, got {safe_repr(value)}")

    def load(self, text: str) -> Any:
        """Return the value in some JSON, which may name the value's type."""
        try:
            if len(self.types) == 1:
                return self._adapters[0].validate_json(text)
            data = pydantic_core.from_json(text)
            if isinstance(data, list) and len(data) == 2 and data[0] in self.names:
                return self._adapters[self.names.index(data[0])].validate_json(pydantic_core.to_json(data[1]))
            return self._either.validate_json(text)
        except (ValueError, TypeError) as error:  # TypeError: a lone surrogate
            right = f"JSON of {self!r}{', with strings in double quotes' if str in self.types else ''}"
            problem = f"{self.state}: expected {right}, got {safe_repr(text)}"
            raise OutcomeError(f"{problem}: {describe_json_error(error)}") from None

    @cached_property
    def schema(self) -> str:
        """The JSON Schema of the values (``anyOf`` for several types), or "" if there is none or it is very large."""
        try:
            return schema_json(type_adapter(union_of(self.types)).json_schema())
        except pydantic.errors.PydanticUserError:  # only code describes the type
            return ""

    def check(self, where: str) -> None:
        """Refuse types whose names cannot be resolved, or that look the same in JSON."""
        for kind in self.types:
            check_resolved(where, kind)
            if self.are_posted and has_tags(kind):
                right = "add a field kind: Literal[…] to each of its members, and Field(discriminator='kind')"
                what = (
                    f"expected types that JSON can tell apart, got a union without a discriminator in {case_name(kind)}"
                )
                raise FlowError(f"{where}: {what}; {right}")
        self.check_values(where)
        for one, other in combinations(self.types, 2):
            if are_alike(one, other):
                right = f"add a field such as kind: Literal[{case_name(other).lower()!r}] to each"
                if not (_has_fields(one) and _has_fields(other)):
                    right = "put each into a frozen dataclass of its own"
                what = f"expected types that JSON can tell apart, got {case_name(one)} and {case_name(other)}"
                raise FlowError(f"{where}: {what}; {right}")

    def check_values(self, where: str) -> None:
        """Refuse types that rows could not tell apart: types without a class, or with the same name or class."""
        if twice := [name for name in self.names if self.names.count(name) > 1]:
            raise FlowError(f"{where}: expected types with different names, got two named {twice[0]!r}; rename one")
        if len(self.types) < 2:
            return
        for kind in self.types:
            if not _is_checkable(kind):
                right = "use a class, such as a frozen dataclass"
                what = f"expected types that values can be checked against, got {case_name(kind)}"
                raise FlowError(f"{where}: {what}; {right}")
        for one, other in combinations(self.types, 2):
            if _classes(one) & _classes(other):
                what = f"expected types of different classes, got {case_name(one)} and {case_name(other)}"
                raise FlowError(f"{where}: {what}; put each into a frozen dataclass of its own")


class ResultTypes(AnswerTypes):
    """The types of a state that returns the whole result of a call.  Rows distinguish results by their outputs."""

    def __init__(self, state: str, types: Sequence[Any], prompt: Callable[[], Prompt[Any]]) -> None:
        super().__init__(state, types)
        self._prompt = prompt

    def __repr__(self) -> str:
        return f"CallResult[{super().__repr__()}]"

    @cached_property
    def provided(self) -> tuple[Any, ...]:
        return (Annotated[CallResult[Any], self],)

    def case_of(self, value: Any) -> Any:
        return super().case_of(self._output(value))

    def takes(self, value: Any) -> bool:
        """Return whether a value can be the result of this state."""
        try:
            self.dump(value)
        except OutcomeError:
            return False
        return True

    def dump(self, value: Any) -> str:
        super().dump(self._output(value))  # or the output has another type
        try:
            text = to_json(value.record)
        except ValueError as error:
            raise self._refused(value, error) from None
        self.load(text)
        return text

    def load(self, text: str) -> CallResult[Any]:
        try:
            record: CallRecord = from_json(text, CallRecord)
            if problem := inconsistency(record):
                raise ValueError(problem)
            prompt = self._prompt()
            result = CallResult(AgentCall(record, prompt))
            super().dump(self._output(result))
        except ValueError as error:
            raise self._refused(text, error) from None
        return result

    def _output(self, value: Any) -> Any:
        if not isinstance(value, CallResult):
            raise OutcomeError(f"{self.state}: expected {self!r}, got {safe_repr(value)}")
        if value.state is not State.COMPLETED:
            raise OutcomeError(f"{self.state}: expected the result of an answered call, got one in {value.state}")
        return value.call.output

    def _refused(self, value: object, error: Exception) -> OutcomeError:
        problem = f"{self.state}: expected JSON of {self!r}, got {safe_repr(value)}"
        return OutcomeError(f"{problem}: {str(error)[:_MOST_SHOWN]}")

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> pydantic_core.CoreSchema:
        """Return the schema of a result, for the values of outer states."""
        return schema_of(CallResult, self.load, self.dump)


def check_resolved(where: str, kind: Any) -> None:
    """Refuse a type that names unknown types, or that JSON cannot hold."""
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
    """Return the name of a type or an enum member, for people and for triggers."""
    if isinstance(case, Enum):
        return str(case.name)
    if (results := _results(case)) is not None:
        return f"CallResult of {results.state}"
    return type_words(case)  # without modules: JSON holds the name, and a module run as a script is __main__


def union_of(types: Sequence[Any]) -> Any:
    """Return the union of types."""
    return Union[tuple(types)]  # noqa: UP007  # any number of them


def returned_types(function: Callable[..., Any]) -> tuple[Any, ...]:
    """Return the types that a function returns, according to its annotation."""
    name = getattr(function, "__name__", repr(function))
    annotation = inspect.signature(function).return_annotation
    if annotation is inspect.Signature.empty:
        raise FlowError(f"function {name!r}: expected a return type, got none; add one, such as -> str")
    try:
        hint = evaluated(annotation, function)
    except (NameError, TypeError):  # a type that is local to another function
        what = f"expected a type that a module defines, got {annotation!r}, which is not found"
        raise FlowError(f"return type of the function {name!r}: {what}") from None
    return tuple(NoneType if kind is None else kind for kind in types_of(hint))


def _is_exactly(value: Any, case: Any) -> bool:
    return any(_is_of(value, one) if get_origin(one) is Literal else type(value) is one for one in _members(case))


def _is_of(value: Any, case: Any) -> bool:
    return any(_is_of_member(value, one) for one in _members(case))


def _is_of_member(value: Any, kind: Any) -> bool:
    if (results := _results(kind)) is not None:
        return bool(results.takes(value))
    if get_origin(kind) is Literal:
        return any(type(value) is type(known) and value == known for known in get_args(kind))
    kind = get_origin(kind) or kind
    if isinstance(value, bool) and kind is not bool:
        return False
    if kind is float and isinstance(value, int):  # as for type checkers
        return True
    return isinstance(kind, type) and isinstance(value, kind)


def _members(kind: Any) -> list[Any]:
    """Return the members of a union without their notes, or the type itself.  The results of calls keep theirs."""
    plain = kind if _results(kind) is not None else without_notes(kind)
    if get_origin(plain) not in UNIONS:
        return [plain]
    return [member for one in get_args(plain) for member in _members(one)]


def _results(case: Any) -> Any:
    """Return the `ResultTypes` of a case, or None for plain values."""
    return next((note for note in getattr(case, "__metadata__", ()) if isinstance(note, AnswerTypes)), None)


def _classes(kind: Any) -> frozenset[Any]:
    """Return the classes of a type's values, without those that values are recognized by more than class."""
    origins = {get_origin(one) or one for one in _members(kind)}
    return frozenset(origins - {Literal, Annotated})


def _is_checkable(kind: Any) -> bool:
    return all(
        isinstance(one, type) and one not in (Any, object) and not (is_typeddict(one) or is_protocol(one))
        for one in _classes(kind)
    )


def _has_fields(kind: Any) -> bool:
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or issubclass(kind, pydantic.BaseModel))


# The data


class DataCheck:
    """Checks that pydantic can write the data that an action has made and read it back unchanged.

    A field that still holds the same object is not checked again, so the cost of a step depends on what it changes.
    Values of type `Any` are checked only when they are saved.
    """

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    @cached_property
    def _fields(self) -> Mapping[str, Any]:
        """The types of the fields that can be checked one by one, or none if the class defines how it is read."""
        kind = self._kind
        hooks = ("__get_pydantic_core_schema__", "__pydantic_config__", "__pydantic_decorators__")
        if any(hasattr(kind, name) for name in hooks):
            return {}
        fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
        if any(not field.init or isinstance(field.default, pydantic.fields.FieldInfo) for field in fields):
            return {}
        hints = hints_of(kind, include_extras=True)
        return {field.name: hints[field.name] for field in fields if hints}

    @cached_property
    def _adapters(self) -> Mapping[str, pydantic.TypeAdapter[Any]]:
        return {name: kept_adapter(hint) for name, hint in self._fields.items()}

    def check(self, data: Any, before: Any = None) -> None:
        """Refuse data that has another type, or that contains a value that a field's type forbids."""
        kind = self._kind
        if not isinstance(data, kind):
            raise DataError("", f"expected {kind.__name__}, got {safe_repr(data)}")
        if data is before:
            return
        if type(data) is not kind or not self._fields:
            dumped(kept_adapter(kind), data, "", case_name(kind), is_any_free=True)
            return
        is_next = type(before) is kind
        for field, adapter in self._adapters.items():
            value = getattr(data, field)
            if not (is_next and getattr(before, field) is value):
                dumped(adapter, value, f"{kind.__name__}.{field}", case_name(self._fields[field]), is_any_free=True)


@dataclasses.dataclass(frozen=True, repr=False)
class IntoField:
    """An action that puts the answer into a field."""

    field: str

    def __repr__(self) -> str:
        return f"into({self.field!r})"

    @property
    def __name__(self) -> str:
        """The action's name in errors and diagrams."""
        return f"into {self.field}"

    def __call__(self, data: T, answer: Any, /) -> T:
        """Return the data with the answer in the field."""
        changed: Any = data
        if dataclasses.is_dataclass(changed):
            return dataclasses.replace(changed, **{self.field: answer})  # type: ignore[return-value, type-var]
        if isinstance(changed, tuple):
            return changed._replace(**{self.field: answer})  # type: ignore[attr-defined, no-any-return]
        return changed.model_copy(update={self.field: answer})  # type: ignore[no-any-return]


def into(field: str, /) -> IntoField:
    """Return an action that puts the answer or the `Failure` into a field of the data.

        judging.done(review, do=into("best"))

    The flow is refused if the data has no such field or the answer has another type.

    Args:
        field: The name of the field.

    Raises:
        FlowError: If ``field`` is not a string.

    Examples:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Letter:
        ...     about: str
        ...     text: str = ""
        >>> @execute
        ... def write(d: Letter) -> str:
        ...     return f"Dear Ada: {d.about}"
        >>> letters = Flow("letters", Letter, start=write, rows=[write.done(end("over"), do=into("text"))])
        >>> letters.call(Letter("a lamp")).output.text
        'Dear Ada: a lamp'
    """
    require("field of into", field, isinstance(field, str), "the name of a field of the data", FlowError)
    return IntoField(field)


def hints_of(kind: Any, *, include_extras: bool = False) -> dict[str, Any]:
    """Return the types of a class's fields, or none if one is local to a function, where only pydantic can find it."""
    try:
        return get_type_hints(kind, include_extras=include_extras)
    except (NameError, TypeError):
        return {}


def fields_of(data: Any) -> dict[str, Any]:
    """Return the types of the fields that an action can set by field name, with `Any` for an unknown type."""
    hints = hints_of(data)
    if dataclasses.is_dataclass(data):
        names = [field.name for field in dataclasses.fields(data) if field.init]
    elif issubclass(data, pydantic.BaseModel):
        names = [*data.model_fields]
        hints = {name: info.annotation for name, info in data.model_fields.items()}
    else:
        names = [*getattr(data, "_fields", ())]
    return {name: hints.get(name, Any) for name in names}


def may_hold(hint: Any, kind: Any) -> bool:
    """Return whether a field of one type might hold a value of another."""
    return all(any(_may_be(one, other) for one in _members(hint)) for other in _members(kind))


def _may_be(hint: Any, kind: Any) -> bool:
    there, came = [NoneType if one is None else get_origin(one) or one for one in map(without_notes, (hint, kind))]
    if not (isinstance(there, type) and isinstance(came, type)) or there is object:
        return True
    if there is came is tuple and ... not in (args := (*get_args(hint), *get_args(kind))) and args:
        ours, theirs = get_args(hint), get_args(kind)
        return len(ours) == len(theirs) and all(map(may_hold, ours, theirs))
    return issubclass(came, there) or issubclass(there, came) or (there is float and issubclass(came, int))
