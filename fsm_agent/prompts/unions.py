"""Handles unions whose members cannot be told apart by their JSON alone.

Such unions are shown with tags, and are never read by guessing.

pydantic takes the first member that fits a document, which may be the wrong one.  For example, a refusal without its
reason is read as an approval, and every document fits a member without fields.  Therefore these rules apply to objects
and lists:

- If the members' documents always differ, the union is shown without tags.  Two members differ if each has a required
  field that the other lacks, or if a field that both have is limited to different constants.
- Otherwise, each member is shown as an object with one field, whose name is the tag: ``{"Approve": {…}}``.
- In both cases, a tagged document is read as the member with that tag.  An untagged document is read as a certain
  member if it has a field or constant that this member allows and all others lack.  Other documents and unknown fields
  are errors.

pydantic handles strings, numbers and other plain values, and unions with their own discriminator.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from enum import Enum
from functools import reduce
from itertools import chain, count
from operator import is_, or_
from typing import TYPE_CHECKING, Any, Literal

from pydantic_core import SchemaValidator

from fsm_agent._internal.structs import NAMED, NESTING, SEVERAL, Value, core_nodes, holds_decimal, type_adapter
from fsm_agent.errors import PromptError
from fsm_agent.functions.arguments import ExactValidator
from fsm_agent.prompts.repairs import UNCLEAR, only_close

_TAGGED = ""  # the choice of a tagged document; errors do not show it
_NONE = ""  # the choice of an untagged document that fits no member
_REST = "other"  # the choice of anything except an object
_LISTS = ("list", "tuple", "set", "frozenset", "generator")
_OPAQUE = ("any", "function-plain", "is-instance", "is-subclass", "custom", "call", "arguments", "missing-sentinel")

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic.json_schema import GenerateJsonSchema

Core = Any  # a core schema of pydantic: nested dicts
Constant = tuple[type, Any]
Purpose = Literal["read", "shown", "all"]


class _Form(Value, frozen=True):
    """One of the shapes that a type's JSON may have."""

    kind: str  # "object", "array" or "plain"
    names: frozenset[str] = frozenset()  # the names of fields
    required: tuple[frozenset[str], ...] = ()  # for each required field, the names that it may have
    constants: Mapping[str, frozenset[Constant]] = {}  # the constants that a field is limited to, by name
    is_open: bool = False  # whether other fields are allowed
    items: tuple[_Form, ...] = ()  # the forms of an array's items

    def always_differs(self, other: _Form) -> bool:
        """Return whether every document in this form differs from all documents in the other form."""
        if self.has_other_constants(other):
            return True
        return not other.is_open and any(all(map(other.lacks, names)) for names in self.required)

    def may_differ(self, other: _Form) -> bool:
        """Return whether some document in this form differs from all documents in the other form."""
        return self.has_other_constants(other) or (not other.is_open and any(map(other.lacks, self.names)))

    def has_other_constants(self, other: _Form) -> bool:
        return any(values.isdisjoint(other.constants.get(name, values)) for name, values in self.constants.items())

    def differs(self, other: _Form, document: Mapping[str, Any]) -> bool:
        """Return whether something in this document fits this form but no document in the other form."""
        return any(
            (not other.is_open and other.lacks(name))
            or (
                _constant(value) in self.constants.get(name, ())
                and _constant(value) not in other.constants.get(name, (_constant(value),))
            )
            for name, value in document.items()
            if name in self.names
        )

    def excludes(self, document: Mapping[str, Any]) -> bool:
        """Return whether a document has a field or constant that this form does not allow."""
        return any(
            not self.is_open
            if name not in self.names
            else _constant(value) not in self.constants.get(name, (_constant(value),))
            for name, value in document.items()
        )

    def lacks(self, name: str) -> bool:
        """Return whether the form has no such field, even allowing for typos in the name."""
        return name not in self.names and only_close(name, self.names) is None


_ANYTHING = (_Form("object", is_open=True), _Form("array"), _Form("plain"))


class _Member:
    def __init__(self, core: Core, label: str, forms: Sequence[_Form]) -> None:
        self.core, self.label = core, label
        self.objects = [form for form in forms if form.kind == "object"]
        self.is_object_only = len(self.objects) == len(forms)
        self.is_list = any(form.kind == "array" for form in forms)
        self.items = [item for form in forms if form.kind == "array" for item in form.items or _ANYTHING]
        self.is_list_of_objects = any(item.kind != "plain" for item in self.items)
        self.names: frozenset[str] = reduce(or_, [form.names for form in self.objects], frozenset())

    def is_apart(self, other: _Member) -> bool:
        """Return whether no document fits both members."""
        if not all(_are_apart(a, b) for a in self.objects for b in other.objects):
            return False
        if not (self.is_list_of_objects and other.is_list_of_objects):
            return True
        return all(_are_apart(a, b) for a in self.items for b in other.items)

    def is_meant(self, document: Mapping[str, Any], others: Iterable[_Member]) -> bool:
        """Return whether an object can mean only this member."""
        return any(
            all(form.differs(other, document) for member in others for other in member.objects) for form in self.objects
        )

    def excludes(self, document: Mapping[str, Any]) -> bool:
        """Return whether an object cannot belong to this member, even with further fields."""
        return all(form.excludes(document) for form in self.objects)


class _Members:
    """The members of a union, and how to tell them apart.

    ``tags`` maps the indexes of the members that are shown with a tag to these tags.
    """

    def __init__(self, members: Sequence[_Member]) -> None:
        self.members = members
        objects = [index for index, member in enumerate(members) if member.objects]
        lists = [index for index, member in enumerate(members) if member.is_list_of_objects]
        self.objects = objects
        is_mixed = any(
            not members[a].is_apart(members[b]) for some in (objects, lists) for a in some for b in some if a < b
        )
        self.are_lists_tagged = is_mixed and len(lists) > 1
        tagged = sorted({*objects, *(lists if self.are_lists_tagged else ())}) if is_mixed else []
        taken = {_REST, *reduce(or_, [member.names for member in members], frozenset())}
        self.names: list[str] = []
        for member in members:
            self.names.append(_unlike(member.label, {*taken, *self.names}))
        self.tags = {index: self.names[index] for index in tagged}

    @property
    def are_plain(self) -> bool:
        """Whether pydantic reads the union correctly."""
        return len(self.objects) < 2 and not self.tags

    def choice(self, value: Any) -> str | None:
        """Return the member of the tagged union that a value belongs to, or None if that is unclear."""
        if not isinstance(value, dict):
            return None if self.are_lists_tagged and isinstance(value, list) else _REST
        if len([tag for tag in self.tags.values() if tag in value]) == 1:
            return _TAGGED
        meant = [
            index
            for index in self.objects
            if self.members[index].is_meant(value, [self.members[other] for other in self.objects if other != index])
        ]
        if not (meant or self.tags) and all(self.members[index].excludes(value) for index in self.objects):
            return _NONE
        return self.names[meant[0]] if len(meant) == 1 else None

    def rest(self) -> list[Core]:
        """Return the members that have no tag and may be something other than an object."""
        return [
            member.core
            for index, member in enumerate(self.members)
            if not (member.is_object_only or (index in self.tags and not member.objects))
        ]


def adapter_of(kind: Any) -> TypeAdapter[Any] | _Reader:
    """Return an adapter that reads JSON as a value of a type and can describe that JSON.

    Raises:
        Exception: If pydantic cannot represent the type in JSON.
        PromptError: If a class with its own ``__init__`` contains such a union.
    """
    adapter: TypeAdapter[Any] = type_adapter(kind)
    core = adapter.core_schema
    read = _Walk(core, "read").of(core)
    return adapter if read is core and not holds_decimal(core) else _Reader(core, read)


def union_core(cores: Sequence[Core], names: Sequence[str]) -> Core:
    """Return a core schema that reads JSON according to one of several schemas, given the names of their objects.

    If one schema allows anything, for example because it was too large to read, the result does too.
    """
    if any(core["type"] == "any" for core in cores):
        return {"type": "any"}
    choices = [
        {**core, "cls_name": name} if core["type"] == "typed-dict" else core
        for core, name in zip(cores, names, strict=True)
    ]
    union = {"type": "union", "choices": choices}
    return _Walk(union, "read").of(union)


def has_tags(kind: Any) -> bool:
    """Return whether a union in a type is shown with tags."""
    core = type_adapter(kind).core_schema
    walk = _Walk(core)
    walk.of(core)
    return walk.has_tags


def are_alike(one: Any, other: Any) -> bool:
    """Return whether only a tag could distinguish objects or lists of two types."""
    a, b = map(_member, (one, other))
    return (a.is_list and b.is_list) or any(
        not (x.may_differ(y) or y.may_differ(x)) for x in a.objects for y in b.objects
    )


def tags_of(kinds: Sequence[Any]) -> Sequence[str | None]:
    """Return each union member's tag, or None for a member that is shown without one."""
    members = _Members(list(map(_member, kinds)))
    return [members.tags.get(index) for index in range(len(kinds))]


def _member(kind: Any) -> _Member:
    core = type_adapter(kind).core_schema
    return _Walk(core).member(core)


class _Reader:
    """Reads JSON as a value of a type, like a `pydantic.TypeAdapter`."""

    def __init__(self, core: Core, read: Core) -> None:
        self._core = core
        # Without the flag, the prebuilt validators of classes would replace those in the schema.
        validator = SchemaValidator(read, _use_prebuilt=False)
        self._validator = ExactValidator(validator) if holds_decimal(core) else validator

    def validate_json(self, document: str, *, context: Any = None) -> Any:
        return self._validator.validate_json(document, context=context)

    def json_schema(self, *, schema_generator: type[GenerateJsonSchema]) -> dict[str, Any]:
        return self._described("shown", schema_generator)

    def all_json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema for everything that is read: members with and without their tags."""
        from pydantic.json_schema import GenerateJsonSchema

        return self._described("all", GenerateJsonSchema)

    def _described(self, purpose: Purpose, schema_generator: type[GenerateJsonSchema]) -> dict[str, Any]:
        core = _Walk(self._core, purpose).of(self._core)
        generated: dict[str, Any] = schema_generator().generate(core, "validation")
        return generated


class _Walk:
    """Rewrites a core schema so that the members of its unions are told apart.

    The result serves to read values, to describe them, or to describe everything that is read.  A schema that serves to
    read refuses numbers that JSON does not have, such as NaN, unless the type allows them explicitly.
    """

    def __init__(self, root: Core, purpose: Purpose = "shown") -> None:
        self.purpose = purpose
        self.has_tags = False
        self._told_apart = 0  # unions so far
        self._is_finite = purpose == "read"  # floats are finite
        self._definitions: dict[str, Core] = {}
        for node in core_nodes(root):
            if "ref" in node:
                self._definitions.setdefault(node["ref"], node)

    def of(self, core: Core) -> Core:
        """Return a schema in which the members of unions are told apart, or the same object if nothing changes."""
        if isinstance(core, list | tuple):
            items = [self.of(item) for item in core]
            return core if all(map(is_, items, core)) else type(core)(items)
        if not isinstance(core, dict):
            return core
        if core.get("type") == "float" and self._is_finite:
            return {"allow_inf_nan": False, **core}
        told_apart, is_finite = self._told_apart, self._is_finite
        self._is_finite = is_finite and not (core.get("config") or {}).get("allow_inf_nan")
        changed: dict[str, Any] = {}
        for key in (*NESTING, *SEVERAL):
            old = core.get(key)
            if key in NAMED and isinstance(old, dict):
                inner = {name: self.of(part) for name, part in old.items()}
                new: Any = old if all(map(is_, inner.values(), old.values())) else inner
            else:
                new = self.of(old)
            if new is not old:
                changed[key] = new
        self._is_finite = is_finite
        if self._told_apart > told_apart and core.get("custom_init"):
            name = core["cls"].__name__
            what = "expected unions that JSON can tell apart in a class with an __init__ of its own, got others"
            raise PromptError(f"{name}: {what}; add Field(discriminator=…), or remove the __init__")
        core = {**core, **changed} if changed else core
        return self._union(core) if core.get("type") == "union" else core

    def _union(self, core: Core) -> Core:
        choices = _choices(core)
        members = _Members(list(map(self.member, choices)))
        if members.are_plain:
            return core
        self._told_apart += 1
        self.has_tags = self.has_tags or bool(members.tags)
        closed = {index: self.closed(choices[index]) for index in {*members.objects, *members.tags}}
        kept = {key: core[key] for key in ("ref", "metadata", "serialization") if key in core}
        if self.purpose != "read":
            bare = [closed[index] for index in members.tags if self.purpose == "all" and index in members.objects]
            shown = [
                _tagged({members.tags[index]: closed[index]}, is_required=True)
                if index in members.tags
                else closed.get(index, choice)
                for index, choice in enumerate(choices)
            ]
            return {**kept, "type": "union", "choices": [*shown, *bare]}
        readers: dict[str, Core] = {members.names[index]: closed[index] for index in members.objects}
        if members.tags:
            wrapped = _tagged({tag: closed[index] for index, tag in members.tags.items()}, is_required=False)
            readers[_TAGGED] = {
                "type": "function-after",
                "function": {"type": "no-info", "function": _only},
                "schema": wrapped,
            }
            forms = [f'{{"{tag}": …}}' for tag in members.tags.values()]
            right = f"it does not say which it is; give {' or '.join(forms)}"
        else:
            names = [members.names[index] for index in members.objects]
            readers[_NONE] = {"type": "union", "choices": [*readers.values()]}
            right = f"it does not say which it is; give the fields of {' or of '.join(names)} alone"
        if rest := members.rest():
            mode = {"mode": core["mode"]} if "mode" in core else {}
            readers[_REST] = rest[0] if len(rest) == 1 else {"type": "union", "choices": rest, **mode}
        return {
            **kept,
            "type": "tagged-union",
            "choices": readers,
            "discriminator": members.choice,
            "custom_error_type": UNCLEAR,
            "custom_error_message": right,
        }

    def member(self, core: Core) -> _Member:
        return _Member(core, self.label(core), self.forms(core))

    def closed(self, core: Core) -> Core:
        """Return an object's schema with other fields forbidden, unless it allows them explicitly."""
        kind = core["type"]
        if kind == "definition-ref":
            return self.closed(self._definitions[core["schema_ref"]])
        core = {key: value for key, value in core.items() if key != "ref"}  # references mean the open schema
        if kind in ("model-fields", "typed-dict", "dataclass-args"):
            return core if _is_open(core, {}) else {**core, "extra_behavior": "forbid"}
        if kind in ("model", "dataclass") and _is_open(core, core.get("config") or {}):
            return core
        inner = core.get("schema")
        return {**core, "schema": self.closed(inner)} if isinstance(inner, dict) else core

    def forms(
        self, core: Core, config: Mapping[str, Any] | None = None, seen: frozenset[str] = frozenset()
    ) -> list[_Form]:
        """Return the forms that JSON for a schema may have."""
        config = {**(config or {}), **(core.get("config") or {})}
        kind = core["type"]
        if kind == "definition-ref":
            name = core["schema_ref"]
            is_new = name in self._definitions and name not in seen
            return self.forms(self._definitions[name], config, seen | {name}) if is_new else [*_ANYTHING]
        if kind in ("model-fields", "typed-dict", "dataclass-args"):
            return [self._object(core, config)]
        if kind == "dict":
            return [_Form("object", is_open=True)]
        if kind in _LISTS:
            items = core.get("items_schema") or []
            several = items if isinstance(items, list) else [items]
            return [_Form("array", items=tuple([form for item in several for form in self.forms(item, None, seen)]))]
        if kind in _OPAQUE:
            return [*_ANYTHING]
        if kind in ("union", "tagged-union"):
            return [form for choice in _choices(core) for form in self.forms(choice, config, seen)]
        inner = _inner(core)
        forms = [] if inner is None else self.forms(inner, config, seen)
        return forms if inner is not None and kind != "nullable" else [*forms, _Form("plain")]

    def _object(self, core: Core, config: Mapping[str, Any]) -> _Form:
        names: set[str] = set()
        required: list[frozenset[str]] = []
        constants: dict[str, frozenset[Constant]] = {}
        for name, field in _fields(core):
            own = _names(name, field, config)
            names |= own
            is_required = field["schema"]["type"] != "default" and not (
                core["type"] == "typed-dict" and not field.get("required", core.get("total", True))
            )
            required += [own] if is_required else []
            if values := self._constants(field["schema"]):
                constants |= dict.fromkeys(own, values)
        return _Form("object", frozenset(names), tuple(required), constants, _is_open(core, config))

    def _constants(self, core: Core) -> frozenset[Constant]:
        """Return the constants to which a field is limited, or an empty set if it is not limited."""
        if core["type"] in ("literal", "enum"):
            values = core["expected"] if core["type"] == "literal" else core["members"]
            return frozenset(map(_constant, values))
        if core["type"] == "definition-ref":
            target = self._definitions.get(core["schema_ref"], {})
            return self._constants(target) if target.get("type") == "enum" else frozenset()
        return self._constants(core["schema"]) if core["type"] == "default" else frozenset()

    def label(self, core: Core) -> str:
        """Return a member's name, made up of letters, digits and underscores."""
        while "cls" not in core and "cls_name" not in core:
            if core["type"] in ("union", "tagged-union"):
                return "_or_".join(map(self.label, _choices(core)))[:64]
            core = self._definitions.get(core.get("schema_ref", "")) or core.get("schema") or {"cls_name": core["type"]}
        name = core.get("cls_name") or core["cls"].__name__
        return re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")[:64] or "value"


def _tagged(members: Mapping[str, Core], *, is_required: bool) -> Core:
    fields = {
        tag: {"type": "typed-dict-field", "schema": core, "required": is_required} for tag, core in members.items()
    }
    return {"type": "typed-dict", "fields": fields, "extra_behavior": "forbid"}


def _only(tagged: dict[str, Any]) -> Any:
    (value,) = tagged.values()
    return value


def _unlike(name: str, taken: Container[str]) -> str:
    names = chain([name], (f"{name}_{number}" for number in count(2)))
    return next(one for one in names if one not in taken)


def _inner(core: Core) -> Core | None:
    """Return the schema that a wrapper schema's JSON must fit, or None."""
    if core["type"] == "json":  # a string that contains JSON
        return None
    alternatives = (core.get("json_schema"), core.get("strict_schema"), core.get("schema"), *core.get("steps", ()))
    return next((inner for inner in alternatives if isinstance(inner, dict)), None)


def _choices(core: Core) -> list[Core]:
    choices = core["choices"]
    found = choices.values() if isinstance(choices, dict) else choices
    return [choice[0] if isinstance(choice, tuple) else choice for choice in found]


def _fields(core: Core) -> Iterable[tuple[str, Core]]:
    fields = core["fields"]
    return fields.items() if isinstance(fields, dict) else [(field["name"], field) for field in fields]


def _names(name: str, field: Core, config: Mapping[str, Any]) -> frozenset[str]:
    alias = field.get("validation_alias")
    if alias is None:
        return frozenset([name])
    paths = [alias] if isinstance(alias, str) else alias if isinstance(alias[0], list) else [alias]
    names = {path if isinstance(path, str) else str(path[0]) for path in paths}
    is_by_name = config.get("validate_by_name") or config.get("populate_by_name")
    return frozenset({*names, name} if is_by_name else names)


def _is_open(core: Core, config: Mapping[str, Any]) -> bool:
    return (core.get("extra_behavior") or config.get("extra_fields_behavior")) == "allow"


def _constant(value: Any) -> Constant:
    value = value.value if isinstance(value, Enum) else value
    return type(value), value if isinstance(value, str | int | float | None) else None


def _are_apart(a: _Form, b: _Form) -> bool:
    if a.kind != b.kind or a.kind == "plain":
        return True
    return a.kind == "object" and a.always_differs(b) and b.always_differs(a)
