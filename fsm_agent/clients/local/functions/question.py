"""The parts of a question that code can read: its numbers, its phrases, and its words with their stems."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from functools import cached_property
from typing import NamedTuple

UNSPACED = r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]"  # scripts without blanks
WORD = re.compile(r"[^\W_]+")
CONNECTING = frozenset(  # English words that carry no meaning of their own
    [
        *("a", "an", "the", "of", "for", "to", "in", "on", "at", "and", "or", "is", "are", "was", "were", "with", "by"),
        *("from", "what", "how", "who", "which", "when", "where", "me", "my", "i", "you"),
        *("can", "could", "would", "will", "tell", "find", "get", "give", "please", "calculate", "return"),
        *("that", "this", "it", "be", "do", "does", "did", "if", "as", "need", "want"),
    ]
)
_ENDINGS = ("ations", "ation", "ings", "ing", "ies", "es", "s", "ed", "al", "or", "er", "e")
_PAIRS = re.compile(f"(?=({UNSPACED}{{2}}))")


def stems(text: str) -> frozenset[str]:
    """Return the stems of the words in some text.

    Connecting words are left out, and names such as ``fetchWeather`` are split.
    """
    words = [stem(word) for word in WORD.findall(spaced(text)) if word not in CONNECTING]
    return frozenset([*words, *_PAIRS.findall(text)])


def spaced(name: str) -> str:
    """Return a name as words in lower case: ``fetch_weather`` and ``fetchWeather`` become "fetch weather"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", re.sub(r"[_\-.]+", " ", name)).lower()


def stem(word: str) -> str:
    """Return a rough approximation of a word's stem: the word without its ending."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


MAX_CHARS = 4_000  # how much of a question is read
MAX_DIGITS, MAX_NUMBER = 30, 1e100

_SMALL = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS_WORDS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_TENS = {word: 10 * number for number, word in enumerate(_TENS_WORDS, 2)}
_WORDS = {word: number for number, word in enumerate(_SMALL)} | _TENS
_SCALES = {"hundred": 100, "thousand": 1000, "k": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SCALE = re.compile(rf"\s?({'|'.join(_SCALES)})\b", re.I)
_NUMERAL = re.compile(r"(?<![A-Za-z\d.])(?:(?<![\w)])[-\u2212])?\d[\d,]*(?:\.\d+)?(?:[eE]-?\d+(?![A-Za-z]))?")
_IDENTIFIER = re.compile(r"[A-Za-z]+[-_#]$")
_NUMBER_WORD = re.compile(
    rf"\b(?:(?P<tens>{'|'.join(_TENS)})[- ])?(?P<word>{'|'.join(sorted(_WORDS, key=len, reverse=True))})\b", re.I
)
_PRONOUN = re.compile(r" (?:of|whi|tha)", re.I)  # behind "one"
_NO_COUNT = re.compile(r"\b(the|which|this|that|any|no|every|each|another)\s+$", re.I)

_CONTENT = re.compile(r"[^\W_]|[^\x00-\x7f]")
_BREAKS = (
    "a|an|the|of|for|in|on|at|to|from|by|with|and|or|is|are|was|were|be|do|does|did|can|could|would|will|what|who|when|"
    "where|which|how|me|my|i|you|your|please|that|this|it|its|has|have|whose|between|about|near|into|than|then|if|so|"
    "using|as"
)
_BREAK = re.compile(rf"(?<!\w)(?:{_BREAKS})(?![\w'\u2019-])|[|?!;\n]|\.(?=\s|$)|['\u2019]s\b", re.I)
_BREAK_AT_COMMAS = re.compile(rf"{_BREAK.pattern}|,\s+(?-i:(?=[a-z]))", re.I)
_ORDER = re.compile(
    r"^(?:please |can you |could you |i (?:want|need|would like) to )?(?:find|get|give|show|tell|calculate|compute|"
    r"convert|translate|book|play|set|send|search|list|look up|retrieve|provide|fetch|check|create|make|add|order|buy|"
    r"remind|turn|switch|delete|open|help|determine|estimate)\b",
    re.I,
)
_QUOTED = re.compile(
    r"""(?<!\w)(?:'([^'\n]{1,400})'|"([^"\n]{1,2000})"|\u201c([^\u201d\n]{1,2000})\u201d|«([^»\n]{1,2000})»)(?!\w)"""
)


class Number(NamedTuple):
    """A number in a question: its position, and its value as JSON."""

    start: int
    end: int
    value: str


class Question:
    """A question's text, and what code can read from it.

    Attributes:
        text: The first `MAX_CHARS` of the text.
        notes: A note if the text was cut; see `Reply.adapted`.
    """

    def __init__(self, text: str) -> None:
        self.text = text[:MAX_CHARS]
        is_cut = len(text) > MAX_CHARS
        self.notes = (f"only the first {MAX_CHARS:,} of {len(text):,} characters were read",) if is_cut else ()

    @cached_property
    def numbers(self) -> tuple[Number, ...]:
        """The numbers in order, in digits or in English words."""
        text, found = self.text, list[Number]()
        for match in _NUMERAL.finditer(text):
            if _IDENTIFIER.search(text[: match.start()]):
                continue
            digits = match.group().replace("\u2212", "-")
            groups = [digits.replace(",", "")] if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", digits) else None
            at = match.start()
            for part in groups or digits.split(","):
                if 0 < len(part) <= MAX_DIGITS:
                    value = int(part) if part.lstrip("-").isdecimal() else float(part)
                    if abs(value) < MAX_NUMBER:
                        found.append(self._scaled(at, at + len(part if groups is None else digits), value))
                at += len(part) + 1
        taken = [(number.start, number.end) for number in found]
        for match in _NUMBER_WORD.finditer(text):
            word = match["word"].lower()
            count = _WORDS[word] + (_TENS[match["tens"].lower()] if match["tens"] else 0)
            if word == "one" and (_NO_COUNT.search(text[: match.start()]) or _PRONOUN.match(text, match.end())):
                continue
            if any(start <= match.start() < end for start, end in taken):
                continue
            found.append(self._scaled(match.start(), match.end(), count))
            taken.append((found[-1].start, found[-1].end))
        return tuple(sorted(found))

    def _scaled(self, start: int, end: int, value: float) -> Number:
        if scale := _SCALE.match(self.text, end):
            return Number(start, scale.end(), as_json(value * _SCALES[scale[1].lower()]))
        return Number(start, end, as_json(value))

    @cached_property
    def runs(self) -> tuple[tuple[Number, ...], ...]:
        """The lists of adjacent numbers and, for each list with an "and", also the parts before and after the "and"."""
        runs, last_end = list[list[list[Number]]](), -1
        for number in self.numbers:
            between = self.text[last_end : number.start] if runs else "."
            if re.fullmatch(r"\s*[,;]\s*|\s+", between):
                runs[-1][-1].append(number)
            elif re.fullmatch(r"\s*,?\s*(?:and|&)\s*", between):
                runs[-1].append([number])
            else:
                runs.append([[number]])
            last_end = number.end
        found = list[tuple[Number, ...]]()
        for parts in runs:
            whole = [number for part in parts for number in part]
            if len(parts) > 1 and all(len(part) > 1 for part in parts):
                found += [tuple(part) for part in parts]
            if len(whole) > 1:
                found.append(tuple(whole))
        return tuple(found)

    @cached_property
    def quoted(self) -> tuple[str, ...]:
        return tuple(["".join(filter(None, match.groups())) for match in _QUOTED.finditer(self.text)])

    @cached_property
    def phrases(self) -> tuple[str, ...]:
        """The pieces of text between the connecting words.  Each quotation is one piece."""
        body = _QUOTED.sub(" | ", _ORDER.sub("", self.text))
        breaks = _BREAK if self.text[1:].islower() else _BREAK_AT_COMMAS
        pieces = [piece.strip(" ,:()") for piece in breaks.split(body)]
        return tuple(dict.fromkeys([text for text in (*self.quoted, *pieces) if _CONTENT.search(text)]))

    @cached_property
    def stems(self) -> frozenset[str]:
        return stems(self.text)

    @cached_property
    def _words(self) -> list[tuple[int, str]]:
        return [(match.start(), match.group()) for match in WORD.finditer(self.text)]

    def position_of(self, value: object) -> int | None:
        """Return where the question mentions a value's words or their stems, or None if it does not."""
        if isinstance(value, int | float) and not isinstance(value, bool):
            return next((number.start for number in self.numbers if as_json(value) == number.value), None)
        words = WORD.findall(spaced(str(value)))
        if not words:
            return None
        if len(words) == len(words[0]) == 1 and words[0].isascii():  # a letter: "a" is not A
            return next((position for position, word in self._words if word == str(value) != "I"), None)
        asked = [word.lower() for _, word in self._words]
        for index in range(len(asked)):
            if asked[index : index + len(words)] == words:
                return self._words[index][0]
        if not self.text.isascii() and (at := self.text.lower().find(str(value).lower())) >= 0:
            return at  # scripts without blanks
        return self.position_of_stems({stem(word) for word in words} - CONNECTING)

    def position_of_stems(self, wanted: Set[str]) -> int | None:
        """Return the position at which the first of these stems occurs, or None if the question lacks any of them."""
        positions = {stem(word.lower()): position for position, word in reversed(self._words)}
        return min([positions[name] for name in wanted]) if wanted and wanted <= positions.keys() else None

    def mentioned(self, values: Iterable[object]) -> list[object]:
        """Return the values that the question mentions, in the order in which it mentions them."""
        positions = [
            (position, index, value)
            for index, value in enumerate(values)
            if (position := self.position_of(value)) is not None
        ]
        return [value for _, _, value in sorted(positions, key=lambda entry: entry[:2])]


def as_json(value: float) -> str:
    """Return a number as JSON.  Whole numbers have no decimal point."""
    return str(int(value)) if isinstance(value, int) or (abs(value) < 1e15 and value == int(value)) else repr(value)


def without(phrases: Sequence[str], used: Iterable[str]) -> list[str]:
    """Return the phrases with the used texts removed, split where these texts were."""
    pieces = list(phrases)
    for text in used:
        pieces = [piece for phrase in pieces for piece in (phrase.split(text) if text else [phrase])]
    return [piece.strip() for piece in pieces if _CONTENT.search(piece)]
