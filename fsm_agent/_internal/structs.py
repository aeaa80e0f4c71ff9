"""Values: immutable data on `msgspec`, which makes, compares, copies, writes and reads them in C.

Pydantic is used for types of users: outputs, arguments of functions, configuration.
"""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache, lru_cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NewType, Self, Union, get_args, get_origin

import msgspec
import pydantic
import pydantic_core
from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypeVar

from fsm_agent._internal.system import making
from fsm_agent._internal.vector import GrowingMap, Vector

UNIONS = (Union, UnionType)  # the origins of a union, which may be written in two ways


def types_of(annotation: Any) -> tuple[Any, ...]:
    """Return the types of a union; of any other annotation itself alone."""
    return get_args(annotation) if get_origin(annotation) in UNIONS else (annotation,)


def type_words(annotation: Any) -> str:
    """Return a type as people write it: ``list[int] | None``."""
    kind = without_notes(annotation)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in UNIONS:
        return " | ".join(map(type_words, arguments))
    name = "None" if kind in (None, NoneType) else getattr(kind, "__name__", None) or str(kind)
    inner = map(repr if origin is Literal else type_words, arguments)
    return f"{name}[{', '.join(inner)}]" if arguments else name


def without_notes(kind: Any) -> Any:
    """Return a type without what `Annotated` and `NewType` add to it."""
    while True:
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        elif isinstance(kind, NewType):
            kind = kind.__supertype__
        else:
            return kind


_LARGEST = 2**63 - 1  # the largest integer that common readers of JSON accept


def is_whole(value: object, least: float = -_LARGEST) -> bool:
    """Return whether ``value`` is an integer from ``least`` on that survives JSON; False for booleans."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _LARGEST


def is_finite(value: object) -> bool:
    """Return whether ``value`` is a finite number; False for booleans."""
    if type(value) is float:
        return value - value == 0.0
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return -sys.float_info.max <= value <= sys.float_info.max


def is_amount(value: object) -> bool:
    """Return whether ``value`` is a finite number from 0 on."""
    return is_finite(value) and value >= 0  # type: ignore[operator]


Out = TypeVar("Out", default=Any, covariant=True)  # the output of an agent call

New = TypeVar("New")  # that of the prompt that a function is given

T = TypeVar("T")


def schema_of(kind: type[T], read: Callable[[str], T], write: Callable[[T], str]) -> CoreSchema:
    """Return the schema of a field that holds an object: ``write`` returns its JSON, and ``read`` takes it.

    A ValueError of either is a validation error.
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


_MOST = 512  # types; of those made by code there may be any number


def type_adapter(kind: Any) -> pydantic.TypeAdapter[Any]:
    """Return the adapter of a type.

    Raises:
        Exception: Raised by pydantic: it has no JSON.
    """
    try:
        hash(kind)
    except TypeError:  # what is annotated may have no hash
        return pydantic.TypeAdapter(kind)
    adapter = _kept(kind, repr(kind))
    return adapter if adapter.pydantic_complete else pydantic.TypeAdapter(kind)  # its names may be known by now


@lru_cache(_MOST)
def _kept(kind: Any, _: str) -> pydantic.TypeAdapter[Any]:
    """Return the adapter of a type; unions of other orders are equal, but not in writing."""
    return pydantic.TypeAdapter(kind)


_URL_SAFE = str.maketrans("-_", "+/")


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An immutable value; two are equal if their class and their fields are equal.

    JSON leaves out fields with default values, so to change a default takes a new version of the documents.
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
        """Return the same fields for rich, to which msgspec would show all."""
        return [(name, value) for name, value in differing(self).items() if name not in self.hidden]


class Tagged(Value, frozen=True, tag_field="kind"):
    """A value of one of several kinds, with the kind as the field ``kind`` in JSON."""

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
    """Return the names of the arguments of a value or a dataclass."""
    names: tuple[str, ...] | None = getattr(cls, "__struct_fields__", None)
    return names or tuple([item.name for item in fields(cls) if item.init])


@cache
def defaults_of(cls: type[msgspec.Struct]) -> Mapping[str, Any]:
    """Return the defaults of the fields that have one."""
    names, defaults = cls.__struct_fields__, cls.__struct_defaults__
    found = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    made = {name: item.factory() if hasattr(item, "factory") else item for name, item in found.items()}
    return {name: item for name, item in made.items() if item is not msgspec.NODEFAULT}


def fields_alone(instance: Any) -> dict[str, Any]:
    """Return the fields of a dataclass for pickle and copies, without cached properties."""
    return {item.name: getattr(instance, item.name) for item in fields(instance)}


def to_json(value: Any) -> str:
    """Return values as JSON, after a check that it can be read again.

    Half a surrogate pair, which JSON cannot hold, becomes U+FFFD.  Numbers that are not finite become NaN and Infinity,
    as in Python's `json`.

    Raises:
        ValueError: If a value could not be read again.
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
    """Return a value as JSON without the check of `to_json`, for fields of the declared types and finite numbers.

    Raises:
        ValueError: If a value could not be read again.
    """
    try:
        return _encoder.encode(value).decode()
    except (TypeError, OverflowError, ValueError):
        return to_json(value)


def without_halves(value: Any) -> Any:
    """Return a value as `from_json` reads it from its JSON, if it holds half a surrogate pair, which JSON cannot."""
    try:
        _encoder.encode(value)
    except UnicodeEncodeError:
        return from_json(to_json(value), type(value))
    except (TypeError, OverflowError, ValueError):  # something else is wrong with it, and is told where it is written
        pass
    return value


def from_json(document: str | bytes, kind: Any) -> Any:
    """Read values that `to_json` wrote.

    Raises:
        ValueError: If the document is damaged; the text says where.
    """
    try:
        return decoder_of(kind).decode(document)
    except (msgspec.DecodeError, RecursionError) as error:
        try:  # it may hold NaN or Infinity, or be of an older version
            return _with_raws(_modern(json.loads(document)), kind)
        except (ValueError, RecursionError):
            raise ValueError(_words(error)) from None


def from_data(data: Any, kind: Any) -> Any:
    """Make values from dictionaries, lists and plain values.

    Raises:
        ValueError: If the data does not fit; the text says where and why.
    """
    try:
        return _converted(data, kind)
    except msgspec.ValidationError as error:
        raise ValueError(_words(error)) from None


def _with_raws(data: Any, kind: Any) -> Any:
    """Make a value with fields of raw JSON, as `from_data` does; msgspec takes such fields only from text."""
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
    """Return the fields of a value that hold raw JSON, by name, and whether each is a mapping of raw JSON."""
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return {}
    kinds = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return {name: kind is not msgspec.Raw for name, kind in kinds.items() if msgspec.Raw in (kind, *get_args(kind))}


def _words(error: Exception) -> str:
    """Return the text of an error: "record.turn: expected int, got str"."""
    problem, *paths = str(error).replace("`", "").split(" - at $")
    path = "".join(reversed(paths)).lstrip(".")  # the inner one comes first
    begins = problem if problem.startswith("JSON") else f"{problem[:1].lower()}{problem[1:]}"
    return f"{path or 'the document'}: {begins}"


_encoder = msgspec.json.Encoder(enc_hook=lambda value: _to_builtin(value))


@cache
def decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return the decoder of JSON for a type; all decoders of the package are made here."""
    # msgspec stores what it knows about a type on the type, where other threads see it before it is complete, since
    # annotations are evaluated in Python meanwhile.  A decoder that meets such a type crashes, and a fork in between
    # would make that permanent in the child.  Hence the lock.
    with making:
        return msgspec.json.Decoder(kind, dec_hook=_restored)


def _converted(data: Any, kind: Any) -> Any:
    decoder_of(kind)  # under its lock, msgspec learns the type
    return msgspec.convert(data, kind, dec_hook=_restored)


class Written(ABC):
    """A base for classes that write their own JSON."""

    __slots__ = ()

    @property
    @abstractmethod
    def document(self) -> str:
        """The JSON."""


class Read(ABC):
    """A base for types of fields that read their own JSON."""

    __slots__ = ()

    @classmethod
    @abstractmethod
    def read(cls, data: Any) -> Any:
        """Make an object from the dictionaries, lists and plain values of the JSON.

        Raises:
            ValueError: If the data does not fit.
        """


def _to_builtin(value: Any) -> Any:
    if isinstance(value, Vector):
        return list(value)
    if isinstance(value, GrowingMap):
        return dict(value)
    if isinstance(value, msgspec.Raw):  # JSON in JSON; the encoder takes it as it is, `msgspec.to_builtins` does not
        return json.loads(bytes(value))
    if isinstance(value, Written):
        return from_json(value.document, Any)
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


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


def _modern(data: Any) -> Any:
    """Return a document with its bytes in the alphabet of RFC 4648, section 4: older ones have that of section 5."""
    if isinstance(data, list):
        return [_modern(item) for item in data]
    if not isinstance(data, dict):
        return data
    items = {name: _modern(item) for name, item in data.items()}
    if items.get("kind") in ("image", "document") and isinstance(items.get("data"), str):
        items["data"] = items["data"].translate(_URL_SAFE)
    return items
