"""The words of a text, and their stems for comparisons."""

from __future__ import annotations

import re

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
    """Return the stems of the words in a text.

    Connecting words are left out, and names such as ``fetchWeather`` are split.
    """
    words = [stem(word) for word in WORD.findall(spaced(text)) if word not in CONNECTING]
    return frozenset([*words, *_PAIRS.findall(text)])


def spaced(name: str) -> str:
    """Return a name as words in lower case: ``fetch_weather`` and ``fetchWeather`` become "fetch weather"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", re.sub(r"[_\-.]+", " ", name)).lower()


def stem(word: str) -> str:
    """Return a word without its ending, as a rough approximation."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word
