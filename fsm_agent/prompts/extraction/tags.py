"""The parser of answers in XML tags, fenced blocks and signals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from fsm_agent._internal.lazy_import import pattern
from fsm_agent.errors import ParseError, UsageError
from fsm_agent.prompts.extraction.first_of import MAX_LENGTH
from fsm_agent.prompts.extraction.parsing import Parser, ParserInput
from fsm_agent.prompts.extraction.scanning import blocks, elements, is_tag, mentioned
from fsm_agent.validation import check

RAW = "raw"
_ATTRIBUTE = pattern(r"""([^\s=/"']++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"']++)))?""")
_NO_ATTRIBUTES: Mapping[str, str] = MappingProxyType({})


class TagContent(str):
    """The content of a tag, trimmed: a text that also knows the tag's attributes.

    Attributes:
        attributes: Texts by name, as they are written; one without a value is empty.

    Examples:
        >>> note = TagContent("Buy a lamp.", {"by": "Ada"})
        >>> note, note.attributes["by"]
        ('Buy a lamp.', 'Ada')
    """

    __slots__ = ("attributes",)
    attributes: Mapping[str, str]

    def __new__(cls, content: str, attributes: Mapping[str, str] = _NO_ATTRIBUTES) -> TagContent:
        made = super().__new__(cls, content)
        made.attributes = attributes
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return TagContent, (str(self), dict(self.attributes))


class TagParser(Parser[dict[str, Any]]):
    """Reads an answer in tags into a dictionary: lists of contents by name, signals as True or False, and ``raw``.

    The outermost elements of a name count, and the case of names does; other text, tags that are not listed and tags
    that are never closed are passed over.  All that is missing is in one error.

    Args:
        xml: Names of ``<name …>content</name>``; contents are `TagContent`s, with the tag's attributes.
        md: Words behind the fences of blocks such as ```` ```python ````, whole: ``py`` is not ``python``.
        signals: Names of tags that are there or not: ``<name>``, ``<name/>``.
        required: Names that must be there; one that is in none of the lists is one of ``xml``.
        max_length: Longer answers are refused.

    Raises:
        UsageError: A name is none, is listed twice, or is ``raw``.

    Examples:
        >>> TagParser(xml=["answer"], signals=["DONE"])("<answer>42</answer> <DONE>")
        {'raw': '<answer>42</answer> <DONE>', 'answer': ['42'], 'DONE': True}
    """

    def __init__(
        self,
        *,
        xml: Iterable[str] = (),
        md: Iterable[str] = (),
        signals: Iterable[str] = (),
        required: Iterable[str] = (),
        max_length: int = MAX_LENGTH,
    ) -> None:
        lists = {"xml": xml, "md": md, "signals": signals, "required": required}
        for name, value in lists.items():
            check(f"{name} of a TagParser", value, not isinstance(value, str), "a list of names, such as ['answer']")
        self.md, self.signals, self.required = tuple(md), tuple(signals), tuple(required)
        xml = tuple(xml)
        self.xml = (*xml, *[name for name in self.required if name not in (*xml, *self.md, *self.signals)])
        self.max_length = max_length
        names = (*self.xml, *self.md, *self.signals)
        if not names:
            raise UsageError("a TagParser: expected names to look for, got none; pass xml, md, signals or required")
        for name in names:
            check("a name of a TagParser", name, isinstance(name, str) and is_tag(name), "a name such as 'answer'")
        if twice := sorted({name for name in names if names.count(name) > 1 or name == RAW}):
            raise UsageError(f"a TagParser: expected each name once, and not 'raw', got {', '.join(twice)} twice")

    @property
    def label(self) -> str:
        return f"TagParser({self.xml}; {self.md}; {self.signals}; {self.required})"

    def read(self, source: ParserInput) -> dict[str, Any]:
        text = source.text
        if len(text) > self.max_length:
            raise ParseError(f"the answer has {len(text)} characters, and at most {self.max_length} are read")
        found: dict[str, Any] = {RAW: text, **{name: [] for name in (*self.xml, *self.md)}}
        for element in elements(text, self.xml):
            written = attributes_of(element.attributes) if element.attributes else {}
            attributes = {name: value or "" for name, value in written.items()}
            found[element.name].append(TagContent(element.content, attributes))
        if self.md:
            for block in blocks(text):
                if block.info in self.md:
                    found[block.info].append(block.content)
        if self.signals:
            signalled = mentioned(text, self.signals)
            found |= {name: name in signalled for name in self.signals}
        if missing := [name for name in self.required if not found[name]]:
            named = mentioned(text, self.xml) if self.xml else set[str]()
            raise ParseError("\n".join([self._problem(name, named) for name in missing]))
        return found

    def _problem(self, name: str, named: Iterable[str]) -> str:
        """Return what the model is told of a name that is not there."""
        if name in self.md:
            return f"No {name} block found, it should be provided as ```{name}\n…\n```"
        if name in self.signals:
            return f"No {name} signal found, it should be provided as <{name}/>"
        why = f"The tag <{name}> is never closed" if name in named else f"No {name} tags found"
        return f"{why}, it should be provided as <{name}>…</{name}>"


def attributes_of(written: str) -> dict[str, str | None]:
    """Return attributes by name, None for one without a value; of one that is given twice, the first."""
    found: dict[str, str | None] = {}
    for attribute in _ATTRIBUTE.finditer(written):
        name, *values = attribute.groups()
        found.setdefault(name, next((value for value in values if value is not None), None))
    return found
