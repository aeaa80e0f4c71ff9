"""Suggestions for error messages about unknown words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, words: Iterable[str], near: float = 0.6) -> str | None:
    """Return the word that was probably meant, or None."""
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=near)
    return close[0] if close else None


def guess(word: str, words: Iterable[str], near: float = 0.6) -> str:
    """Return the end of a message about an unknown word: the word that was probably meant; empty: none is near."""
    meant = nearest(word, words, near)
    return f": did you mean {meant!r}?" if meant else ""


def hint(word: str, words: Iterable[str]) -> str:
    """Return the end of a message about an unknown word: the word that was probably meant, or all of them."""
    words = list(words)
    return guess(word, words) or f"; there are: {', '.join(words) or 'none'}"
