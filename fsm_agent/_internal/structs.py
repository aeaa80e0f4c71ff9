"""Values: immutable data, based on `msgspec`, which creates, compares, copies, writes and reads them in C.

The module also has an immutable sequence that is cheap to append to, and an immutable mapping that is cheap to add to.
Pydantic is used for users' types: outputs, function arguments and configuration.
"""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import MISSING, Field, fields
from functools import cache, cached_property, lru_cache
from itertools import islice
from operator import is_
from types import MappingProxyType, NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NewType,
    Self,
    TypeGuard,
    Union,
    get_args,
    get_origin,
    overload,
)

import msgspec
import pydantic
import pydantic_core
from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypeVar

from fsm_agent._internal.system import making

UNIONS = (Union, UnionType)  # the origins of a union, which may be written in two ways
# The keys under which a core schema of pydantic, which is nested dicts, holds others
NESTING = ("schema", "items_schema", "keys_schema", "values_schema", "extras_schema", "json_schema", "python_schema")
SEVERAL = ("lax_schema", "strict_schema", "choices", "steps", "definitions", "fields")
NAMED = ("choices", "fields")  # keys are names if the value is a dict


def types_of(annotation: Any) -> tuple[Any, ...]:
    """Return the types in a union, or the annotation itself if it is not a union."""
    return get_args(annotation) if get_origin(annotation) in UNIONS else (annotation,)


def type_words(annotation: Any) -> str:
    """Return a type as people write it, such as ``list[int] | None``."""
    kind = without_notes(annotation)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in UNIONS:
        return " | ".join(map(type_words, arguments))
    if kind is None or kind is NoneType or kind is ...:
        return "..." if kind is ... else "None"
    name = getattr(kind, "__name__", None) or str(kind)
    inner = map(repr if origin is Literal else type_words, arguments)
    return f"{name}[{', '.join(inner)}]" if arguments else name


def without_notes(kind: Any) -> Any:
    """Return a type without its `Annotated` and `NewType` wrappers."""
    while True:
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        elif isinstance(kind, NewType):
            kind = kind.__supertype__
        else:
            return kind


_LARGEST = 2**63 - 1  # the largest integer that common readers of JSON accept


def is_whole(value: object, least: float = -_LARGEST) -> TypeGuard[int]:
    """Return whether a value is an integer of at least ``least`` that JSON keeps exactly.  Booleans do not count."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _LARGEST


def is_finite(value: object) -> TypeGuard[float]:
    """Return whether a value is a finite number.  Booleans do not count."""
    if type(value) is float:
        return value - value == 0.0
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return -sys.float_info.max <= value <= sys.float_info.max


def is_amount(value: object) -> TypeGuard[float]:
    """Return whether a value is a finite number of at least 0."""
    return is_finite(value) and value >= 0


Out = TypeVar("Out", default=Any, covariant=True)  # the output of an agent call

New = TypeVar("New")  # the output of the prompt that is passed to a function

T = TypeVar("T")


def schema_of(kind: type[T], read: Callable[[str], T], write: Callable[[T], str]) -> CoreSchema:
    """Return the schema for a field whose value ``write`` converts to JSON and ``read`` makes from JSON.

    If either raises a `ValueError`, it becomes a validation error.
    """

    def validated(value: Any) -> T:
        if isinstance(value, kind):
            return value
        return read(pydantic_core.to_json(value, inf_nan_mode="constants").decode())

    def written(value: T) -> Any:
        return pydantic_core.from_json(write(value))

    return core_schema.no_info_plain_validator_function(
        validated, serialization=core_schema.plain_serializer_function_ser_schema(written, when_used="json")
    )


_MOST = 512  # cached types; code may make any number of types


def type_adapter(kind: Any) -> pydantic.TypeAdapter[Any]:
    """Return pydantic's adapter for a type, or raise pydantic's error if the type has no JSON form."""
    try:
        hash(kind)
    except TypeError:  # an annotation may have no hash
        return pydantic.TypeAdapter(kind)
    adapter = _kept(kind, repr(kind))
    return adapter if adapter.pydantic_complete else pydantic.TypeAdapter(kind)  # its names may be known by now


@lru_cache(_MOST)
def _kept(kind: Any, _: str) -> pydantic.TypeAdapter[Any]:
    """Return the cached adapter for a type.  ``repr`` tells apart unions that differ only in their members' order."""
    return pydantic.TypeAdapter(kind)


def core_nodes(core: Any) -> Iterator[dict[str, Any]]:
    """Yield a core schema of pydantic and all schemas in it."""
    waiting = [core]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list | tuple):
            waiting += node
        elif isinstance(node, dict):
            yield node
            for key in (*NESTING, *SEVERAL):
                part = node.get(key)
                waiting += part.values() if key in NAMED and isinstance(part, dict) else [part]


def holds_decimal(core: Any) -> bool:
    """Return whether a core schema of pydantic takes a `Decimal` somewhere."""
    return any(node.get("type") == "decimal" for node in core_nodes(core))


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An immutable value.  Two values are equal if their classes and their fields are equal.

    JSON leaves out fields with default values, so a changed default requires a new version of the documents.
    """

    hidden: ClassVar[tuple[str, ...]] = ()  # fields that the repr does not show

    if TYPE_CHECKING:

        def changed(self, **changes: Any) -> Self:
            """Return a copy that differs in these fields.

            Raises:
                TypeError: If the value has no such field.
            """
    else:
        changed = msgspec.Struct.__replace__

    def __repr__(self) -> str:
        """Return the class with the fields that differ from their defaults and are not hidden."""
        return f"{type(self).__qualname__}({', '.join([f'{name}={value!r}' for name, value in self.__rich_repr__()])})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return the fields that rich shows, because it would otherwise show all of them."""
        return [(name, value) for name, value in differing(self).items() if name not in self.hidden]


class Tagged(Value, frozen=True, tag_field="kind"):
    """A base for values of several kinds.  In JSON, the field ``kind`` names the kind."""

    @property
    def kind(self) -> str:
        """The kind's name."""
        tag: Any = self.__struct_config__.tag
        return str(tag)


def differing(value: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of a value that differ from their defaults, by name."""
    defaults = defaults_of(type(value))
    fields = {name: getattr(value, name) for name in value.__struct_fields__}
    return {name: item for name, item in fields.items() if name not in defaults or item != defaults[name]}


def field_names(cls: Any) -> tuple[str, ...]:
    """Return the names of the fields that the constructor of a value or dataclass takes."""
    names: tuple[str, ...] | None = getattr(cls, "__struct_fields__", None)
    return names or tuple([item.name for item in fields(cls) if item.init])


@cache
def defaults_of(cls: type[msgspec.Struct]) -> Mapping[str, Any]:
    """Return the default values of fields, by name."""
    names, defaults = cls.__struct_fields__, cls.__struct_defaults__
    found = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    made = {name: item.factory() if hasattr(item, "factory") else item for name, item in found.items()}
    return {name: item for name, item in made.items() if item is not msgspec.NODEFAULT}


def fields_alone(instance: Any) -> dict[str, Any]:
    """Return a dataclass's fields without its cached properties, for pickling and copying."""
    return {item.name: getattr(instance, item.name) for item in fields(instance)}


def changed_repr(instance: Any) -> str:
    """Return a dataclass's repr with only the fields that differ from their defaults."""
    shown = [item.name for item in fields(instance) if item.repr and getattr(instance, item.name) != _default_of(item)]
    return f"{type(instance).__qualname__}({', '.join([f'{name}={getattr(instance, name)!r}' for name in shown])})"


def _default_of(item: Field[Any]) -> Any:
    return item.default if item.default_factory is MISSING else item.default_factory()


def uncached(instance: Any) -> dict[str, Any]:
    """Return an object's attributes without its cached properties, for pickling and copying."""
    kind = type(instance)
    return {
        name: value
        for name, value in vars(instance).items()
        if not isinstance(getattr(kind, name, None), cached_property)
    }


def to_json(value: Any) -> str:
    """Return values as JSON, after checking that the JSON can be read back.

    Half a surrogate pair, which JSON cannot hold, becomes U+FFFD.  Numbers that are not finite become NaN or Infinity,
    as in Python's `json`.

    Raises:
        ValueError: If a value cannot be read back.
    """
    kind = type(value)
    try:
        text = _encoder.encode(value).decode()
        if from_json(text, kind) == value:
            return text
    except (TypeError, OverflowError, ValueError, RecursionError):
        pass
    try:
        data = msgspec.to_builtins(value, enc_hook=_to_builtin)
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    from_json(text, kind)
    return text


def quick_json(value: Any) -> str:
    """Return a value as JSON without the check that `to_json` makes.

    Use this only if the fields have the declared types and all numbers are finite.
    """
    try:
        return _encoder.encode(value).decode()
    except (TypeError, OverflowError, ValueError):
        return to_json(value)


def without_halves(value: Any) -> Any:
    """Return a value without halves of surrogate pairs, as it would be after being written and read back."""
    try:
        _encoder.encode(value)
    except UnicodeEncodeError:
        return from_json(to_json(value), type(value))
    except (TypeError, OverflowError, ValueError):  # another problem, which is reported when the value is written
        pass
    return value


# True while values are read that an earlier release may have written; a value may then be one that is refused today.
IS_OLD: ContextVar[bool] = ContextVar("fsm_agent_is_old", default=False)


def from_json(document: str | bytes, kind: Any) -> Any:
    """Read values that `to_json` wrote.

    Raises:
        ValueError: If the document is damaged.  The message says where.
    """
    try:
        return decoder_of(kind).decode(document)
    except (msgspec.DecodeError, RecursionError) as error:
        token = IS_OLD.set(True)
        try:  # it may hold NaN or Infinity, or values that an earlier release accepted
            return _with_raws(json.loads(document), kind)
        except (ValueError, RecursionError):
            raise ValueError(_words(error)) from None
        finally:
            IS_OLD.reset(token)


def from_data(data: Any, kind: Any) -> Any:
    """Make values from dictionaries, lists and plain values.

    Raises:
        ValueError: If the data does not fit.  The message says where and why.
    """
    try:
        return _converted(data, kind)
    except msgspec.ValidationError as error:
        raise ValueError(_words(error)) from None


def _with_raws(data: Any, kind: Any) -> Any:
    """Make a value with raw JSON fields from data, which msgspec can only read from text."""
    raws = _raws(kind) if isinstance(data, dict) else {}
    kept = {name: data[name] for name in raws if name in data}
    if not kept:
        return from_data(data, kind)
    bare: dict[str, Any] = {name: {} if raws[name] else None for name in kept}
    value = decoder_of(kind).decode(json.dumps({**data, **bare}))
    return value.changed(**{name: _raw(item, raws[name]) for name, item in kept.items()})


def _raw(data: Any, is_mapping: bool) -> Any:
    if is_mapping:
        return {name: _raw(item, False) for name, item in from_data(data, dict[str, Any]).items()}
    return msgspec.Raw(json.dumps(data).encode())


@cache
def _raws(kind: Any) -> Mapping[str, bool]:
    """Return a class's raw JSON fields by name, each with whether it is a mapping of raw JSON."""
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return {}
    kinds = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return {name: kind is not msgspec.Raw for name, kind in kinds.items() if msgspec.Raw in (kind, *get_args(kind))}


def _words(error: Exception) -> str:
    problem, *paths = str(error).replace("`", "").split(" - at $")
    path = "".join(reversed(paths)).lstrip(".")  # the inner one comes first
    begins = problem if problem.startswith("JSON") else f"{problem[:1].lower()}{problem[1:]}"
    return f"{path or 'the document'}: {begins}"


@cache
def decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return the JSON decoder for a type.  All of the package's decoders must be made here."""
    # msgspec stores its information about a type on the type.  It evaluates annotations in Python meanwhile, so other
    # threads may see incomplete information, with which a decoder crashes.  A fork at that time would make this
    # permanent in the child.  Hence the lock.
    with making:
        return msgspec.json.Decoder(kind, dec_hook=_restored)


def _converted(data: Any, kind: Any) -> Any:
    decoder_of(kind)  # under its lock, msgspec learns the type
    return msgspec.convert(data, kind, dec_hook=_restored)


class Written(ABC):
    """A base for classes that write themselves as JSON."""

    __slots__ = ()

    @property
    @abstractmethod
    def document(self) -> str:
        """The JSON."""


class Read(ABC):
    """A base for field types that read themselves from JSON."""

    __slots__ = ()

    @classmethod
    @abstractmethod
    def read(cls, data: Any) -> Any:
        """Make an object from JSON data."""


def _to_builtin(value: Any) -> Any:
    if isinstance(value, Vector):
        return value._items[: value._length]
    if isinstance(value, GrowingMap):
        return dict(value)
    if isinstance(value, msgspec.Raw):  # the encoder accepts it, but `msgspec.to_builtins` does not
        return json.loads(bytes(value))
    if isinstance(value, Written):
        return from_json(value.document, Any)
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


_encoder = msgspec.json.Encoder(enc_hook=_to_builtin)


def _restored(kind: Any, data: Any) -> Any:
    if (made := get_origin(kind)) in (Vector, GrowingMap):
        plain: Any = list[get_args(kind)] if made is Vector else dict[str, *get_args(kind)]  # type: ignore[misc]
        try:
            return made(_converted(data, plain))
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from None  # a ValueError is given the path to this vector
    if isinstance(kind, type) and issubclass(kind, Read):
        return kind.read(data)
    raise TypeError(f"a {kind} cannot be read from JSON")


_new = object.__new__

# A journal keeps the record after each step.  With tuples, a stored call of 2,000 rounds would take three times as long
# and 350 MB.  With pyrsistent's vectors, it would take two and a half times as long.


class Vector(Sequence[T]):
    """A persistent vector: appending returns a new vector in constant time, and leaves the old one unchanged.

    Versions share one list of items, and differ in how much of it they use.  The first append to the end of the list
    extends it in place, whereas an append to an older version copies the list.  Both are thread-safe, because the loser
    of a race sees another item in its slot and copies the list too.  An empty vector never shares its list, so it can
    be used as a default.
    """

    __slots__ = ("_items", "_length")

    _items: list[T]
    _length: int

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items = list(items)
        self._length = len(self._items)

    def extend(self, items: Sequence[T]) -> Vector[T]:
        """Return this vector with all of ``items`` at its end."""
        if len(items) == 1:
            return self.push(items[0])
        shared, start = self._items, self._length
        if not start or len(shared) != start:
            shared = shared[:start]
        shared.extend(items)
        if not all(map(is_, shared[start : start + len(items)], items)):  # another thread was first
            shared = [*shared[:start], *items]
        view: Vector[T] = _new(Vector)
        view._items, view._length = shared, start + len(items)
        return view

    def push(self, item: T) -> Vector[T]:
        """Return this vector with one more item.  This is faster than `extend`."""
        shared, start = self._items, self._length
        if not start or len(shared) != start:
            shared = shared[:start]
        shared.append(item)
        if shared[start] is not item:
            shared = [*shared[:start], item]
        view: Vector[T] = _new(Vector)
        view._items, view._length = shared, start + 1
        return view

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._length)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple([self._items[i] for i in range(*index.indices(self._length))])
        if not -self._length <= index < self._length:
            raise IndexError(f"index {index} of a vector of {self._length}")
        return self._items[index % self._length]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vector):
            return NotImplemented
        return self._length == other._length and (self._items is other._items or tuple(self) == tuple(other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Vector({list(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (list(self),)  # without the items of newer versions


_NO_ITEMS: Mapping[str, Any] = MappingProxyType({})

# With plain dictionaries, a journal of 5,000 members, 8 at once, would keep 370 MB instead of 60.  pyrsistent's map has
# no order.


class GrowingMap(Mapping[str, T]):
    """A persistent mapping: adding an item returns a new mapping in constant time, and leaves the old one unchanged.

    Versions share a `Vector` with the items, and a dict that maps names to indexes.  A version that needs another index
    for a name gets its own dict.  An empty mapping never shares its dict, so it can be used as a default.
    """

    __slots__ = ("_indexes", "_items")

    _indexes: dict[str, int]
    _items: Vector[tuple[str, T]]

    def __init__(self, items: Mapping[str, T] = _NO_ITEMS) -> None:
        self._items = Vector(items.items())
        self._indexes = {name: index for index, name in enumerate(items)}

    def added(self, name: str, value: T) -> GrowingMap[T]:
        """Return this mapping with one more item, under a new name."""
        last, items = self._items._length, self._items.push((name, value))  # `len` would cost two more calls
        indexes = self._indexes if last else {}
        if indexes.setdefault(name, last) != last:
            indexes = {known: index for index, (known, _) in enumerate(items)}
        made: GrowingMap[T] = _new(GrowingMap)
        made._indexes, made._items = indexes, items
        return made

    def __getitem__(self, name: str) -> T:
        index = self._indexes.get(name, len(self._items))
        if index < len(self._items):
            known, value = self._items[index]
            if known == name:
                return value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._items)

    def __len__(self) -> int:
        return self._items._length

    def __repr__(self) -> str:
        return f"GrowingMap({dict(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)  # without the items of newer versions
