"""Checks the values in the data of a flow against their types, wherever an action has put new ones.

New data share all that an action has not changed with the old data, so identical objects are skipped: a step costs what
it changes, however large the data are.  A new value is right if JSON returns it unchanged.  Plain values of the
annotated class always pass that test, and so do objects of a class with its own schema.  All others are converted and
compared.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain, compress, count, repeat
from operator import attrgetter, is_not
from types import NoneType
from typing import Annotated, Any, NewType, get_args, get_origin

from fsm_agent._internal.annotations import UNIONS
from fsm_agent._internal.lazy_import import pydantic
from fsm_agent.flows.definition.answer_types import case_name
from fsm_agent.flows.definition.json_text import Unwritable, dumped
from fsm_agent.flows.definition.kept_json import kept_adapter
from fsm_agent.validation import shown

_PLAIN = (str, int, bool, float, NoneType)
_KEYS = (str, int)
_NEW = object()  # stands for the old value where there is none


class Misfit(Exception):
    """A value that its type forbids; ``path`` leads to it from the outside."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = ""

    def inside(self, step: str) -> Misfit:
        """Return it as seen from one level further out."""
        self.path = f"{step}{self.path}"
        return self

    def words(self, kind: type) -> str:
        """Return the place in data of a type, what was expected there, and what came."""
        return f"{kind.__name__}{self.path}: {self.problem}" if self.path else self.problem


class Leaf:
    """A type whose values are checked as a whole."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    @cached_property
    def _adapter(self) -> pydantic.TypeAdapter[Any]:
        return kept_adapter(self.kind)

    def check(self, value: Any, before: Any = _NEW) -> None:
        """Refuse a value that this type forbids; the value from before is not checked again.

        Raises:
            Misfit: It says which value inside of it.
        """
        try:
            dumped(self._adapter, value, "", case_name(self.kind))
        except Unwritable as error:
            raise Misfit(error.problem) from None


class Anything(Leaf):
    """A type that every value has. Whether JSON can hold the value shows when it is saved."""

    def check(self, value: Any, before: Any = _NEW) -> None:
        pass


class Plain(Leaf):
    """A plain type: JSON holds its values as they are, with a few exceptions."""

    def check(self, value: Any, before: Any = _NEW) -> None:
        kind = self.kind
        if value.__class__ is not kind:
            super().check(value)
        elif kind is str:
            if not value.isascii():  # half a surrogate pair would not be written
                super().check(value)
        elif kind is float and value - value != 0:  # it is not finite
            super().check(value)


class Own(Leaf):
    """A class with its own schema, which is responsible for what its objects contain."""

    def check(self, value: Any, before: Any = _NEW) -> None:
        if value.__class__ is not self.kind:
            super().check(value)


class Choice(Leaf):
    """A union of plain types and at most one other."""

    def __init__(self, kind: Any, shapes: Mapping[type, Leaf]) -> None:
        super().__init__(kind)
        self._shapes = shapes

    def check(self, value: Any, before: Any = _NEW) -> None:
        shape = self._shapes.get(value.__class__)
        if shape is None:
            super().check(value)
        else:
            shape.check(value, before)


class Fields(Leaf):
    """A class with fields, or a tuple with a type for each of its items."""

    def __init__(self, kind: Any, cls: type, hints: Mapping[str, Any], shapes: Shapes) -> None:
        super().__init__(kind)
        self._class: Any = cls
        self._hints = hints
        self._known = shapes
        self._is_model = issubclass(cls, pydantic.BaseModel)
        self._values: Any = None if issubclass(cls, tuple) else attrgetter("__class__", *hints)

    @cached_property
    def _fields(self) -> Sequence[tuple[str, Leaf]]:
        """The fields. They are computed late, because a class may refer to itself."""
        fields = [(name, self._known.of(hint)) for name, hint in self._hints.items()]
        return fields if self._values is None else [("", Plain(type)), *fields]

    def check(self, value: Any, before: Any = _NEW) -> None:
        if value.__class__ is not self._class or (self._values is None and len(value) != len(self._hints)):
            super().check(value)
            return
        if self._is_model and (more := vars(value).keys() - self._hints.keys()):  # of model_copy(update=…)
            fields = f"the fields of {case_name(self.kind)} alone"
            raise Misfit(f"expected {fields}, got {min(more)!r} as well, in {shown(value)}")
        read = self._values
        values: Any = value if read is None else read(value)
        olds: Any = repeat(_NEW)
        if before.__class__ is self._class and (read is not None or len(before) == len(value)):
            olds = before if read is None else read(before)
        for new, old, (name, shape) in zip(values, olds, self._fields, strict=False):
            if new is not old and name:
                try:
                    shape.check(new, old)
                except Misfit as error:
                    raise error.inside(f"[{name}]" if name.isdigit() else f".{name}") from None


class Items(Leaf):
    """A tuple of any length, whose items have one type."""

    def __init__(self, kind: Any, item: Leaf) -> None:
        super().__init__(kind)
        self._item = item

    def check(self, value: Any, before: Any = _NEW) -> None:
        if value.__class__ is not tuple:
            super().check(value)
            return
        olds = before if before.__class__ is tuple else ()
        for index in compress(count(), map(is_not, value, chain(olds, repeat(_NEW)))):
            try:
                self._item.check(value[index], olds[index] if index < len(olds) else _NEW)
            except Misfit as error:
                raise error.inside(f"[{index}]") from None


class Entries(Leaf):
    """A mapping with plain keys."""

    def __init__(self, kind: Any, key: Leaf, item: Leaf) -> None:
        super().__init__(kind)
        self._key = key
        self._item = item

    def check(self, value: Any, before: Any = _NEW) -> None:
        if value.__class__ is not dict:
            super().check(value)
            return
        olds: Any = before if before.__class__ is dict else {}
        for key, item in value.items():
            old = olds.get(key, _NEW)
            if item is not old:
                try:
                    self._key.check(key)
                    self._item.check(item, old)
                except Misfit as error:
                    raise error.inside(f"[{key!r}]") from None


def shape_of(kind: Any) -> Leaf:
    """Return the shape of a type, those of what is inside of it included."""
    return Shapes().of(kind)


class Shapes:
    """The shapes of types, each made once."""

    def __init__(self) -> None:
        self._made: dict[Any, Leaf] = {}

    def of(self, kind: Any) -> Leaf:
        """Return the shape of a type."""
        while isinstance(kind, NewType):
            kind = kind.__supertype__
        try:
            found = self._made.get(kind)
        except TypeError:  # the metadata of an `Annotated` may be unhashable
            return Leaf(kind)
        if found is None:
            found = self._made[kind] = self._shape(kind)
        return found

    def _shape(self, kind: Any) -> Leaf:
        origin, arguments = get_origin(kind), get_args(kind)
        if kind is Any or kind is object:
            return Anything(kind)
        if kind is None or kind in _PLAIN:
            return Plain(NoneType if kind is None else kind)
        if origin in UNIONS:
            return self._choice(kind, arguments)
        if origin is tuple and arguments:
            if arguments[-1] is ...:
                return Items(kind, self.of(arguments[0]))
            return Fields(kind, tuple, {str(n): one for n, one in enumerate(arguments)}, self)
        if origin in _MAPPINGS and arguments[0] in _KEYS:
            return Entries(kind, self.of(arguments[0]), self.of(arguments[1]))
        if isinstance(kind, type) and origin is None:
            if (hints := _hints(kind)) is not None:
                return Fields(kind, kind, hints, self)
            if hasattr(kind, "__get_pydantic_core_schema__") and not _has_fields(kind):
                return Own(kind)
        return Leaf(kind)

    def _choice(self, kind: Any, arguments: Sequence[Any]) -> Leaf:
        shapes = {_class_of(shape): shape for shape in map(self.of, arguments)}
        if None in shapes or len(shapes) < len(arguments) or len([cls for cls in shapes if cls not in _PLAIN]) > 1:
            return Leaf(kind)
        return Choice(kind, {cls: shape for cls, shape in shapes.items() if cls is not None})


_MAPPINGS = (Mapping, dict)


def _class_of(shape: Leaf) -> type | None:
    """Return the class of a shape's values, unless they are checked as a whole."""
    match shape:
        case Fields():
            kind: type = shape._class
            return kind
        case Items():
            return tuple
        case Entries():
            return dict
        case Plain() | Own():
            cls: type = shape.kind
            return cls
    return None


def _has_fields(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) or issubclass(kind, pydantic.BaseModel | tuple)


def _hints(kind: type) -> Mapping[str, Any] | None:
    """Return the types of the fields of a class that JSON keeps field by field; None: it is checked as a whole."""
    is_model = issubclass(kind, pydantic.BaseModel)
    if is_model or hasattr(kind, "__pydantic_decorators__"):
        return _pydantic_hints(kind, is_model)
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):  # local names, which pydantic has found
        return None
    names = getattr(kind, "_fields", ()) if issubclass(kind, tuple) else ()
    if dataclasses.is_dataclass(kind) and not hasattr(kind, "__get_pydantic_core_schema__"):
        fields = dataclasses.fields(kind)
        names = [field.name for field in fields] if all(field.init for field in fields) else ()
    return {name: hints[name] for name in names} if names and all(name in hints for name in names) else None


def _pydantic_hints(kind: Any, is_model: bool) -> Mapping[str, Any] | None:
    """Do the same for a class of pydantic's, unless it has validators, options or names of its own in JSON."""
    config = kind.model_config if is_model else getattr(kind, "__pydantic_config__", {})
    infos: Mapping[str, Any] = kind.model_fields if is_model else kind.__pydantic_fields__
    decorators = kind.__pydantic_decorators__
    has_own = any(getattr(decorators, field.name) for field in dataclasses.fields(decorators))
    if (
        has_own
        or not {*config} <= {"frozen"}
        or any(info.exclude or info.alias or info.init is False for info in infos.values())
    ):
        return None
    return {
        name: Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
        for name, info in infos.items()
    }
