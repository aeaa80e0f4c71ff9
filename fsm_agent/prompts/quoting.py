r"""Quotes text from users so that it cannot be read as one of a frame's tags.

Anything that could be read as such a tag gets the word ``quoted:`` after its first character: ``</query>`` becomes
``<quoted:/query>``.  All other text stays unchanged.  Text that is already quoted is quoted again.

Tags are searched for in a *reading* of the text, in which each character has its plain form: case, accents and
invisible characters are dropped, lookalikes from other scripts become plain letters, and escapes (``&lt;``, ``%3C``,
``\u003C``) are decoded.  Making and searching a reading takes linear time.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from html.entities import html5
from itertools import accumulate, pairwise
from typing import TypeAlias
from urllib.parse import unquote

QUOTED = "quoted:"

_LEVELS = 3  # of nested escapes
_BRACKET, _END_BRACKET = "\u2039", "\u203a"  # stand for all lookalikes of < and >
_NONE, _SEVERAL = "\0", "\1"  # stand for characters with no plain form, and with several
_ODD = re.compile(f"({_NONE}+|{_SEVERAL})")
_UNSEEN = ("Cc", "Cf", "Cn", "Co", "Cs", "Me", "Mn")  # categories: controls, format characters, accents
_BLANK = "\u115f\u1160\u2800\u3164\uffa0"  # letters that look blank
_ESCAPE = re.compile(
    r"(&(?:amp;?)++"
    r"|&(?:[lg]t;?|#0*+[0-9]{1,7};?|#x0*+[0-9a-f]{1,6};?|[a-z][a-z0-9]{1,30};)"
    r"|%(?:25)*(?:[0-7][0-9a-f]|[cd][0-9a-f]%[89ab][0-9a-f]|e[0-9a-f](?:%[89ab][0-9a-f]){2}|f[0-7](?:%[89ab][0-9a-f]){3})"
    r"|(?<!\\)\\++(?:u\{0*+[0-9a-f]{1,6}\}|u0{4}[0-9a-f]{4}|u[0-9a-f]{4}|x[0-9a-f]{2}))"
)
_PERCENT = re.compile(r"^%(?:25)+(?=..)")
_LIKE = {  # lookalikes of letters, brackets, slashes and dashes
    "\u2039": "\u02c2\u1438\u2039\u276e\u276c\u3008\u27e8\u300a\u227a",
    "\u203a": "\u02c3\u1433\u203a\u276f\u276d\u3009\u27e9\u300b\u227b",
    "/": "\u2215\u2044\u29f8\u2571\u27cb",
    "_": "\u02cd",
    "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212",
    "a": "\u0430\u0251\u03b1",
    "b": "\u0432\u0299",
    "c": "\u0441\u03f2",
    "d": "\u0501",
    "e": "\u0435\u04bd\u0454",
    "g": "\u0261\u050d",
    "h": "\u04bb\u043d\u029c",
    "i": "\u0456\u03b9\u0131\u0269",
    "j": "\u0458",
    "k": "\u043a\u03ba",
    "l": "\u04cf",
    "m": "\u043c",
    "n": "\u0578\u0274",
    "o": "\u043e\u03bf\u0585\u03c3",
    "p": "\u0440\u03c1",
    "q": "\u051b",
    "r": "\u0433\u0280",
    "s": "\u0455",
    "t": "\u0442\u03c4",
    "u": "\u057d\u03c5\u028b",
    "v": "\u0475\u03bd",
    "w": "\u051d\u03c9",
    "x": "\u0445\u03c7",
    "y": "\u0443\u04af\u03b3",
    "z": "\u1d22",
}
_PLAIN_OF = {ord(like): plain for plain, likes in _LIKE.items() for like in likes}
EndOf: TypeAlias = Callable[[int], int]  # from a position in a reading to the end of its source


def quoted(text: str, names: tuple[str, ...]) -> str:
    """Quote everything in the text that could be read as a tag with one of these names."""
    return QUOTED.join(_pieces(text, names))


@lru_cache(maxsize=256)
def guard_of(names: tuple[str, ...]) -> Callable[[str], str]:
    """Return the function that quotes tags with these names.  Equal names return the same object."""
    return lambda text: quoted(text, names)


def _pieces(text: str, names: tuple[str, ...]) -> list[str]:
    """Return the text, split after the first character (or its escape) of each tag.

    Each invisible character is read both as nothing and as a space.
    """
    cuts = set[int]()
    for unseen in ("", " ") if any(not _fold_text(char) for char in set(text)) else ("",):
        reading, end_of = _reading(text, unseen)
        cuts.update([end_of(tag.start()) for tag in _tags(names).finditer(reading)])
    return [text[start:end] for start, end in pairwise([0, *sorted(cuts), len(text)])]


@lru_cache(maxsize=256)
def _tags(names: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern for tags in a reading: anything shaped like an end tag, and start tags with a real ``<``."""
    letters = [[re.escape(c) for c in _fold_text(name) if c not in "_.-"] or [re.escape(name)] for name in names]
    loose = "|".join([r"[\s_.-]*+".join(name) for name in letters])
    tight = "|".join([r"[_.-]*+".join(name) for name in letters])
    end = rf"[<{_BRACKET}](?:{QUOTED})*+\s*+[/\\][\s/\\]*+(?:{loose})"
    start = rf"<(?:{QUOTED})*+(?:(?:{tight})(?![^\W_])|\s++(?:{tight})[\s/\\]*+[>{_END_BRACKET}])"
    return re.compile(f"{end}|{start}")


def _reading(text: str, unseen: str) -> tuple[str, EndOf]:
    """Return a text's reading, and a function that maps positions in the reading to positions in the text.

    Invisible characters are replaced by ``unseen``.
    """
    reading, end_of = _in_plain_characters(text, unseen)
    for _ in range(_LEVELS):
        decoded, end_of_escape = _replaced(_ESCAPE, reading, lambda escape, _: _decoded(escape))
        if decoded == reading:
            break
        reading, end_of_character = _in_plain_characters(decoded, unseen)
        end_of = _composed(end_of, _composed(end_of_escape, end_of_character))
    return reading, end_of


def _composed(outer: EndOf, inner: EndOf) -> EndOf:
    return lambda index: outer(inner(index) - 1)


def _in_plain_characters(text: str, unseen: str) -> tuple[str, EndOf]:
    plain = {ord(char): _fold_text(char) or unseen for char in set(text)}
    marks = {code: form if len(form) == 1 else _SEVERAL if form else _NONE for code, form in plain.items()}
    return _replaced(_ODD, text.translate(marks), lambda unit, start: plain[ord(text[start])])


def _replaced(units: re.Pattern[str], text: str, form: Callable[[str, int], str]) -> tuple[str, EndOf]:
    """Return the text with each unit replaced by ``form(unit, position)``, and a function that maps positions back."""
    pieces = units.split(text)  # every second one is a unit
    if len(pieces) == 1:
        return text, lambda index: index + 1
    ends = [*accumulate(map(len, pieces))]
    forms = [*pieces]
    forms[1::2] = map(form, pieces[1::2], ends[::2])
    ends_in_reading = [*accumulate(map(len, forms))]

    def end_of(index: int) -> int:
        number = bisect_right(ends_in_reading, index)
        return ends[number] - (0 if number % 2 else ends_in_reading[number] - index - 1)

    return "".join(forms), end_of


@lru_cache(maxsize=4096)
def _fold_text(text: str) -> str:
    """Return the plain form of a character or name, without invisible characters."""
    if text.isascii() and text.isprintable():
        return text.lower()
    seen = [char for char in unicodedata.normalize("NFKD", text) if char.isspace() or _is_seen(char)]
    folded = "".join([" " if char.isspace() else char for char in seen]).casefold()
    return folded.translate(_PLAIN_OF)


def _is_seen(char: str) -> bool:
    return unicodedata.category(char) not in _UNSEEN and char not in _BLANK


@lru_cache(maxsize=4096)
def _decoded(escape: str) -> str:
    try:
        if escape[0] == "%":
            return unquote(_PERCENT.sub("%", escape), errors="strict")
        if escape[0] == "\\":
            return chr(int(escape.lstrip("\\")[1:].strip("{}"), 16))
        name = escape[1:].rstrip(";").rpartition(";")[2]  # after a chain of amp; the last name
        if name.startswith("#x"):
            return chr(int(name[2:], 16))
        return chr(int(name[1:])) if name.startswith("#") else _entities().get(name, escape)
    except (ValueError, OverflowError):
        return escape


@cache
def _entities() -> Mapping[str, str]:
    named = {name.rstrip(";"): meaning for name, meaning in html5.items()}
    return {name.casefold(): meaning for name, meaning in named.items()} | {
        name: meaning for name, meaning in named.items() if name.islower()
    }


def is_name(name: str) -> bool:
    """Return whether this can be the name of a frame's tag."""
    return re.fullmatch(r"[^\W\d][\w.-]*", name) is not None
