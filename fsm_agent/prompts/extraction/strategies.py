"""Strategies that find an answer in a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from fsm_agent.errors import ParseError, UsageError
from fsm_agent.prompts.extraction.first_of import MAX_LENGTH, ParsingStrategy, first_of
from fsm_agent.prompts.extraction.scanning import Block, blocks, bracketed, broken_brackets, elements, is_tag
from fsm_agent.validation import check


class _Tagged(ParsingStrategy[str]):
    """The content of an element."""

    def __init__(self, tag: str) -> None:
        check("the tag of tagged", tag, isinstance(tag, str) and is_tag(tag), "a name such as 'answer'")
        self.tag, self.name = tag, f"<{tag}>"
        self.opening = rf"<{re.escape(tag)}(?:\s[^<>]*+)?>"

    def candidates(self, text: str) -> Iterable[str]:
        return [element.content for element in elements(text, (self.tag,))]


class _Code(ParsingStrategy[str]):
    """The content of a fenced block."""

    def __init__(self, language: str | None, *, is_json: bool = False) -> None:
        right = language is None or (isinstance(language, str) and language != "" and not language.split()[1:])
        check("the language of code", language, right, "the word after the fence, such as 'python', or None")
        self.language, self.is_json = language, is_json
        words = "(?:|json|jsonc|json5)" if is_json else re.escape(language or "")
        self.opening = rf"\n[ \t]*+(?:`{{3,}}+|~{{3,}}+)[ \t]*+(?i:{words})(?:[ \t][^\n`]*+)?\n"
        self.name = "a block of JSON" if is_json else "a block of code" if language is None else f"a {language} block"

    def candidates(self, text: str) -> Iterable[str]:
        return (block.content for block in blocks(text) if self._is_right(block))

    def _is_right(self, block: Block) -> bool:
        if self.is_json:
            return block.info.casefold() in ("", "json", "jsonc", "json5")
        return self.language is None or block.info.casefold() == self.language.casefold()


class _Brackets(ParsingStrategy[Any]):
    """JSON objects and arrays, wherever they stand."""

    name, is_json, opening = "JSON anywhere", True, ""

    def candidates(self, text: str) -> Iterable[str]:
        return bracketed(text)

    def broken(self, text: str) -> Iterable[str]:
        return broken_brackets(text)


class _Keyword(ParsingStrategy[str]):
    """The first of some words that is in the text."""

    def __init__(self, words: tuple[str, ...]) -> None:
        right = bool(words) and all(isinstance(word, str) and word for word in words)
        check("the words of keyword", words, right, "one or more strings")
        self.words, self.name = words, f"one of {', '.join(map(repr, words))}"

    def candidates(self, text: str) -> Iterable[str]:
        folded = text.casefold()
        return (word for word in self.words if word.casefold() in folded)


class _Regex(ParsingStrategy[str]):
    """The match of a pattern."""

    def __init__(self, regex: str | re.Pattern[str], max_length: int) -> None:
        try:
            self.regex = re.compile(regex)
        except (re.error, TypeError, RecursionError, OverflowError) as error:  # the third: brackets within brackets
            raise UsageError(
                f"the pattern of regex: expected a regular expression, got {regex!r:.200}: {error}"
            ) from error
        self.max_length, self.name = max_length, f"the pattern {self.regex.pattern!r}"

    def candidates(self, text: str) -> Iterator[str]:
        if len(text) > self.max_length:
            limit = f"regex(…, max_length={self.max_length})"
            raise ParseError(f"the answer has {len(text)} characters, and {limit} looks at no more: give a shorter one")
        for match in self.regex.finditer(text):
            yield match[1] if self.regex.groups and match[1] is not None else match[0]


class _Verbatim(ParsingStrategy[str]):
    """The text as it is."""

    name = "the whole text"

    def candidates(self, text: str) -> Iterable[str]:
        return (text,)


class _WholeJson(_Verbatim):
    """The text as JSON."""

    name, is_json = "the whole text", True


def tagged(tag: str) -> ParsingStrategy[str]:
    """Return the strategy of what stands in ``<tag>…</tag>``, trimmed; the case counts, attributes are ignored.

    Examples:
        >>> first_of(tagged("answer"))("I think <answer>42</answer>.")
        '42'
    """
    return _Tagged(tag)


def code(language: str | None = None) -> ParsingStrategy[str]:
    """Return the strategy of fenced blocks of Markdown.

    Args:
        language: The whole word behind the fence, in any case: ``py`` is not ``python``; None: any, and none.

    Examples:
        >>> reply = '''Here it is:
        ... ```sql
        ... SELECT 1
        ... ```'''
        >>> first_of(code("sql"))(reply)
        'SELECT 1'
    """
    return _Code(language)


def keyword(*words: str) -> ParsingStrategy[str]:
    """Return the strategy of the first word that is in the text, in any case and also inside others; as given here.

    Examples:
        >>> first_of(keyword("yes", "no"))("Yes, of course.")
        'yes'
    """
    return _Keyword(words)


def regex(pattern: str | re.Pattern[str], *, max_length: int = 10_000) -> ParsingStrategy[str]:
    """Return the strategy of a pattern's matches: the first group if it has one, else all.

    Args:
        pattern: Regular expression.  It is yours, and the answer is not: one that backtracks, as ``(a+)+$`` does, may
            take for ever, and no deadline ends it.
        max_length: So many characters it is given at most; a longer answer is refused.

    Examples:
        >>> first_of(regex("order ([0-9]+)"))("It is order 17.")
        '17'
    """
    return _Regex(pattern, max_length)


json_block: ParsingStrategy[Any] = _Code(None, is_json=True)
"""The strategy of JSON in a fenced block.

Examples:
    >>> reply = '''```json
    ... {"count": 2}
    ... ```'''
    >>> first_of(json_block, expect=dict)(reply)
    {'count': 2}
"""
json_anywhere: ParsingStrategy[Any] = _Brackets()
"""The strategy of JSON objects and arrays, wherever they are.

Examples:
    >>> first_of(json_anywhere, expect=dict)('So: {"count": 2}.')
    {'count': 2}
"""
verbatim: ParsingStrategy[str] = _Verbatim()
"""The strategy of the text as it is.

Examples:
    >>> first_of(verbatim)("  as it is ")
    '  as it is '
"""
_ANSWER = (_WholeJson(), _Tagged("answer"), json_block, json_anywhere)


def extract_json(text: str, expect: Any = Any, *, max_length: int = MAX_LENGTH) -> Any:
    """Return the first JSON document in ``text`` that fits.

    It may be the whole text, or stand in ``<answer>…</answer>``, in a code fence, or in prose, and is looked for in
    this order: of ``see [1]: {"k": 1}`` it is ``[1]``, and with ``expect=dict`` the object.  Nothing is repaired, and
    documents inside a document are not tried alone.

    Args:
        text: A model's answer.
        expect: The type that the document must have: ``dict``, ``list``, or any other that pydantic validates, of which
            an instance is returned.
        max_length: Longer texts are refused.

    Raises:
        ParseError: There is none; the error lists what was found in each place.
        UsageError: ``expect`` is not a type that pydantic can validate.

    Examples:
        >>> extract_json('Here: {"count": 2}. Good luck!')
        {'count': 2}
    """
    return first_of(*_ANSWER, expect=expect, repairs=(), max_length=max_length)(text)
