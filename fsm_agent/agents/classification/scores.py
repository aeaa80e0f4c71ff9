"""Computes the probabilities of classes from the log probabilities of tokens.

An answer is read token by token.  A token with which only one class can begin counts for that class, in any spelling:
" True", "true".  If several classes can begin with it, the next token decides, if its alternatives were reported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from fsm_agent._internal.lazy_import import pattern
from fsm_agent._internal.values import Value
from fsm_agent.messages.reply import TokenLogprob

_BEFORE = " \t\r\n\"'`*_([{\u201c\u2018\u00ab\u2581\u0120"  # what may stand before a class
_AFTER = _BEFORE + ".,;:!?)]}\u201d\u2019\u00bb"
_END = pattern("<[|/\uff5c].*>|<eos>|<end_of_turn>")  # how some wires write the end of an answer
_LEAST = 1e-9  # of a reported probability


class Scores(Value, frozen=True, kw_only=True):
    """The probability of each class, by its name. Other answers make the sum less than 1."""

    masses: Mapping[str, float]
    floor: float = 0.0  # an upper bound for missing classes
    shared: Mapping[str, float] = {}  # beginnings that several classes have in common, and how likely they are
    is_measured: bool = True  # by log probabilities

    @property
    def coverage(self) -> float:
        """The probability that the answer is one of the classes."""
        return min(1.0, math.fsum(self.masses.values()))

    @property
    def missing(self) -> tuple[str, ...]:
        """The classes without a report."""
        return tuple([name for name, mass in self.masses.items() if not mass])

    @classmethod
    def of_votes(cls, names: Sequence[str], votes: Sequence[str]) -> Scores:
        """Return the shares of the classes in votes."""
        shares = {name: votes.count(name) / len(votes) for name in names}
        return cls(masses=shares, floor=0.5 / (len(votes) + 1), is_measured=False)


class ClassNames:
    """The names of classes, to be found in a model's answer.

    Args:
        names: The names.  Their case matters only where it tells two of them apart.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._folds = len({name.casefold() for name in names}) == len(names)
        self._keys = {name: self._key(name) or name for name in names}

    def named(self, text: str) -> str | None:
        """Return the class that a text names, apart from quotes, stops and case."""
        wanted = self._key(text)
        found = [name for name, key in self._keys.items() if key in (wanted, wanted.rstrip(_AFTER), text.strip())]
        return found[0] if found else None

    def beginning_with(self, text: str) -> tuple[str, ...]:
        """Return the classes that an answer with this beginning may name; all for an empty one."""
        begun = self._key(text)
        if not begun:
            same = [name for name, key in self._keys.items() if text.strip() and key == text.strip()]
            return tuple(same) or self.names
        return tuple([name for name, key in self._keys.items() if key.startswith(begun) or _is_whole(key, begun)])

    def longest_shared(self) -> int:
        """Return the length of the longest beginning that two classes share."""
        keys = sorted(self._keys.values())
        return max([_shared(*pair) for pair in pairwise(keys)], default=0)

    def scores(self, tokens: Sequence[TokenLogprob]) -> Scores:
        """Return how likely each class is as the answer.

        Args:
            tokens: Those of the answer, each with the alternatives to it.
        """
        masses, shared = dict.fromkeys(self.names, 0.0), dict[str, float]()
        floor, before, reach = 1.0, "", 1.0
        for index, token in enumerate(tokens):
            alternatives = {**dict(token.top), token.token: token.logprob}
            goes_on = 0.0
            for text, logprob in alternatives.items():
                mass = reach * max(_LEAST, math.exp(min(0.0, logprob)))
                floor = min(floor, mass) if index == 0 else floor
                classes = self._after(before, text)
                if len(classes) == 1:
                    masses[classes[0]] += mass
                elif classes and text == token.token and index + 1 < len(tokens):
                    goes_on = mass
                elif classes:
                    ends = index + 1 == len(tokens) and text == token.token
                    exact = self.named(before + text) if ends else None
                    if exact is not None:
                        masses[exact] += mass
                    elif len(classes) < len(self.names):  # otherwise it tells nothing
                        shared[before + text] = shared.get(before + text, 0.0) + mass
            if not goes_on:
                break
            before, reach = before + token.token, goes_on
        return Scores(masses=masses, floor=floor, shared=shared)

    def _after(self, before: str, text: str) -> tuple[str, ...]:
        """Return the classes that an answer with this continuation may name."""
        if before and (not text or _END.fullmatch(text)):
            ended = self.named(before)
            return () if ended is None else (ended,)
        return () if _END.fullmatch(text) or not text else self.beginning_with(before + text)

    def _key(self, text: str) -> str:
        plain = re.sub(r"\s+", " ", text.lstrip(_BEFORE))
        return plain.casefold() if self._folds else plain


def _is_whole(key: str, begun: str) -> bool:
    """Return whether a text begins with a class as a whole word."""
    return begun.startswith(key) and not (begun[len(key)].isalnum() and key[-1].isalnum())


def _shared(one: str, other: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
