"""Lists the fields of values in the reference of the site: an extension of griffe, which mkdocs.yml names.

A field of a value has its meaning in a comment, on its line or above it.  A class whose docstring lists its arguments
or attributes keeps that list.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Attribute, Class, Docstring, Extension

_LISTS = re.compile(r"^(Args|Attributes):", re.MULTILINE)
_END = re.compile(r"^(Examples|Raises):", re.MULTILINE)
_SAID = re.compile(r"\s#\s+(?!noqa|type:)(.+)$")
_GOES_ON = {"and", "as", "by", "for", "in", "of", "or", "with", "without"}
_FACTORY, _MADE = re.compile(r"field\(default_factory=(\w+)\)"), r"\1()"


class Fields(Extension):
    """Adds the section ``Attributes`` to classes with fields that have none."""

    def on_class(self, *, cls: Class, **_: Any) -> None:
        text = cls.docstring.value if cls.docstring else ""
        fields = [each for each in cls.members.values() if isinstance(each, Attribute) and _is_field(each)]
        if not fields or _LISTS.search(text) or cls.docstring is None:
            return
        lines = cls.lines_collection[cls.filepath]
        listed = "".join(f"    {each.name} ({each.annotation}): {_meaning(each, lines)}\n" for each in fields)
        found = _END.search(text)
        at = found.start() if found else len(text)
        value = f"{text[:at].rstrip()}\n\nAttributes:\n{listed}\n{text[at:]}".rstrip()
        cls.docstring = Docstring(value, lineno=cls.docstring.lineno, parent=cls)


def _is_field(each: Attribute) -> bool:
    is_of_class = "ClassVar" in str(each.annotation or "ClassVar")
    return each.name[0] != "_" and not is_of_class and "property" not in each.labels


def _meaning(each: Attribute, lines: list[str]) -> str:
    """Return the comment of a field, and its default."""
    first, last = (each.lineno or 1) - 1, each.endlineno or each.lineno or 1
    said = next((found[1] for line in lines[first:last] if (found := _SAID.search(line))), "")
    above: list[str] = []
    while first and not said and lines[first - 1].strip().startswith("#"):
        first -= 1
        above.insert(0, lines[first].strip().lstrip("# "))
    said = said or " ".join(above)
    default = "Required." if each.value is None else f"Default: `{_FACTORY.sub(_MADE, str(each.value))}`."
    begin = said[:1] if said.partition(" ")[0] in _GOES_ON else said[:1].upper()  # "max_tokens: of the answer"
    said = said and f"{begin}{said[1:].rstrip('.')}. "
    return f"{said}{default}"
