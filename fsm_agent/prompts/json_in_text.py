"""Scanners that find JSON, fenced blocks and elements in text, in linear time.

`fsm_agent.prompts.output` decides in which order they are tried, unless the prompt has a parser of its own.  Broken
JSON is mended in `fsm_agent.prompts.repairs`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import chain

from pydantic_core import from_json

from fsm_agent._internal.structs import Value

_NO_JSON = (ValueError, TypeError)  # the second: half a surrogate pair
_MAX_PIECES = 1000  # that are tried for one answer
_THINK, _THOUGHT = "<think>", "</think>"
_RESTARTS = 8  # how many unclosed openers are skipped: keeps the scan linear
_MAX_SCANNED = 3_000_000  # characters of one answer in all scans together
_MAX_NESTED = 8  # open blocks; keeps the sum of their lengths linear
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});")
_FENCED = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
_FENCE = re.compile(r"^([ \t]*+)(`{3,}+|~{3,}+)([^\n`]*+)$", re.MULTILINE)
_TOKEN = re.compile(r'\\.|"|[{\[]+|[}\]]+', re.DOTALL)
_NEXT_OPENER = re.compile(r"(?:\\.|[^\\{\[]++)*+[{\[]", re.DOTALL)
_OPENER = re.compile(r"\s*[{\[(]")
_BEGUN = re.compile(  # text that begins like this is meant as JSON
    r"""\{\s*(?:["'“/#\\,]|[^\s{}\[\]"',:=]+\s*[:=])|\[\s*(?:[\[{"'“\d.-]|[tT]rue|[fF]alse|null|None)"""
)
_IN_A_ROW = re.compile(r"""[\s,]*[{\["'“]""")


def without_thought(text: str) -> str:
    """Return the text after leading ``<think>`` reasoning, or the whole text if there is none.

    Many servers leave the reasoning in the text, and some omit the start tag, because it is part of the prompt.
    """
    begun = text.lstrip()
    if begun.startswith(_THINK):
        return text.partition(_THOUGHT)[2]
    thought, end, answer = text.partition(_THOUGHT)
    if not end or _THINK in thought or begins_with_opener(begun) or begun.startswith('"'):
        return text
    return text if _is_in_json(text, len(thought)) else answer


def _is_in_json(text: str, position: int) -> bool:
    """Return whether a position is inside a fence or brackets with valid JSON."""
    spans = chain([match.span(1) for match in _FENCED.finditer(text)], _pieces(text))
    return any(end is not None and start < position < end and is_json(text[start:end]) for start, end in spans)


def begins_with_opener(text: str) -> bool:
    """Return whether the beginning of the text looks like JSON."""
    return _OPENER.match(text) is not None


def is_json(document: str) -> bool:
    """Return whether the text is a JSON document."""
    try:
        from_json(document)
    except _NO_JSON:
        return False
    return True


def fenced(text: str) -> list[str]:
    """Return the contents of all code fences."""
    return _FENCED.findall(text)


def documents(text: str) -> Iterator[str]:
    """Yield pieces of text that may be the answer's JSON, with the most likely first."""
    yield from fenced(text)
    yield from bracketed(text)


def bracketed(text: str) -> Iterator[str]:
    """Yield each outermost ``{…}`` and ``[…]``, and stop at JSON that is never closed."""
    for number, (start, end) in enumerate(_pieces(text)):
        if number == _MAX_PIECES:
            return
        if end is not None:
            yield text[start:end]
        elif _BEGUN.match(text, start):
            return  # documents inside it are only parts of an answer


def broken(text: str) -> Iterator[str]:
    """Yield pieces of text that look like JSON but are invalid, with the most likely first."""
    for document in fenced(text):
        if _OPENER.match(document) and not is_json(document):
            yield document
    yield from broken_brackets(text)


def broken_brackets(text: str) -> Iterator[str]:
    """Yield the pieces that begin at a bracket and look like JSON but are invalid."""
    for start, end in _pieces(text):
        if (text[start] == "[" or _BEGUN.match(text, start)) and not is_json(text[start:end]):
            yield text[start:]
            yield text[start:end]


def is_row(text: str) -> bool:
    """Return whether the text begins with a JSON document directly followed by another one or by more fields."""
    if not _OPENER.match(text):
        return False
    start, end = next(_pieces(text), (0, None))
    return end is not None and not text[:start].strip() and _IN_A_ROW.match(text, end) is not None


def has_documents(text: str) -> bool:
    """Return whether the text contains a complete JSON document."""
    return any(
        is_json(text[start:end]) for (start, end), _ in zip(_pieces(text), range(_RESTARTS), strict=False) if end
    )


def _pieces(text: str) -> Iterator[tuple[int, int | None]]:
    """Yield the start and end of each outermost ``{…}`` and ``[…]``, in linear time.

    If a piece is never closed, its end is None, and the pieces inside it follow.
    """
    at = restarts = scanned = 0
    while restarts < _RESTARTS and scanned + len(text) - at <= _MAX_SCANNED:
        if (opener := _NEXT_OPENER.match(text, at)) is None:
            return
        start = opener.end() - 1
        end, _, _ = closing(text, start)
        yield start, end
        if end is None:
            at, restarts, scanned = start + 1, restarts + 1, scanned + len(text) - start
        else:
            at = end


def closing(text: str, start: int = 0, depth: int = 0, is_quoted: bool = False) -> tuple[int | None, int, bool]:
    """Find where the outermost bracket in JSON closes.

    Args:
        text: The text, which must not end between a backslash and the character that it escapes.
        start: The position at which to begin.
        depth: The number of brackets that are open at ``start``.
        is_quoted: Whether a string is open at ``start``.

    Returns:
        `(position, depth, is_quoted)`: the position after the bracket, or None if it is still open, and the depth and
        ``is_quoted`` at that point.
    """
    for match in _TOKEN.finditer(text, start):
        token = match[0]
        if is_quoted:
            is_quoted = token != '"'
        elif token == '"':
            is_quoted = True
        elif token[0] in "{[":
            depth += len(token)
        elif token[0] in "}]":
            if depth <= len(token):
                return match.start() + depth, 0, False
            depth -= len(token)
    return None, depth, is_quoted


class _Fence(Value, frozen=True):
    indent: str
    marks: str
    info: str
    start: int  # of the content


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield `(info, content)` for each fenced block of Markdown, in the order in which they open.  They may be nested.

    ``info`` is the word after the fence.  The content lacks the fence's indentation, and is trimmed on the right.  A
    block that is never closed ends with the text.
    """
    found: list[tuple[int, int, _Fence]] = []
    opened: list[_Fence] = []
    for match in _FENCE.finditer(text):
        indent, marks, rest = match.groups()
        words = rest.split(maxsplit=1)
        if not words and opened and marks.startswith(opened[-1].marks):
            fence = opened.pop()
            found.append((fence.start, match.start(), fence))
        elif (words or not opened) and len(opened) < _MAX_NESTED:
            opened.append(_Fence(indent, marks, words[0] if words else "", match.end() + 1))
    found += [(fence.start, len(text), fence) for fence in opened]
    for start, end, fence in sorted(found):
        yield fence.info, _unindented(text[start:end], len(fence.indent)).rstrip()


def _unindented(content: str, by: int) -> str:
    return "".join([line[min(by, len(line) - len(line.lstrip(" \t"))) :] for line in content.splitlines(keepends=True)])


class Element(Value, frozen=True):
    """An element ``<name attributes>content</name>`` or ``<name attributes/>``."""

    name: str
    attributes: str  # as written
    content: str  # trimmed
    start: int
    end: int
    is_paired: bool  # whether it has an end tag


def is_tag(name: str) -> bool:
    """Return whether this can be the name of an element."""
    return re.fullmatch(r"[^\s<>/\"'=]+", name) is not None


@lru_cache(maxsize=64)
def _tags(names: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern for start and end tags.

    It takes linear time, because each attempt ends where the next could begin.

    A quotation mark counts only after ``=``.  Quoted text may contain ``<``, but not the start of such a tag.
    """
    alternatives = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    quoted = "|".join([f"{q}[^{q}<]*+(?:<(?!/?(?:{alternatives})[\\s/>])[^{q}<]*+)*+{q}" for q in "\"'"])
    attributes = rf"""((?:\s(?:[^<>"'=]|=\s*+(?:{quoted})?|["'])*+)?)"""
    return re.compile(rf"<(/?)({alternatives})(?=[\s/>]){attributes}(/?)>")


def elements(text: str, names: Collection[str]) -> Iterator[Element]:
    """Yield the outermost elements with these names, in order.  Unclosed tags are not counted."""
    opened: dict[str, list[re.Match[str]]] = {name: [] for name in names}
    found: dict[str, list[tuple[re.Match[str], re.Match[str]]]] = {name: [] for name in names}  # start and end tags
    for tag in _tags(tuple(names)).finditer(text):
        is_end, name, attributes, is_empty = tag.groups()
        if is_end:
            if opened[name]:
                begin = opened[name].pop()
                while found[name] and found[name][-1][0].start() > begin.start():
                    found[name].pop()
                found[name].append((begin, tag))
        elif is_empty or attributes.endswith("/"):
            found[name].append((tag, tag))
        else:
            opened[name].append(tag)
    for begin, end in sorted(chain(*found.values()), key=lambda tags: tags[0].start()):
        attributes = begin[3].removesuffix("/").strip()
        content = text[begin.end() : end.start()].strip()
        yield Element(begin[2], attributes, content, begin.start(), end.end(), begin is not end)


def mentioned(text: str, names: Collection[str]) -> set[str]:
    """Return the names that have a start tag in the text, closed or not."""
    return {match[2] for match in _tags(tuple(names)).finditer(text) if not match[1]}


def unescaped(text: str) -> str:
    """Return the text with its entities decoded once.  An entity must end with a semicolon."""
    import html

    return _ENTITY.sub(lambda entity: html.unescape(entity[0]), text) if "&" in text else text
