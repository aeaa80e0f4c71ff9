"""A long coding session, equal in each run: results of functions, replies of a model, and how much of it is sent.

Results are slices of this repository's source and pages, JSON, and logs, of 200 to 20,000 characters, with every order
of magnitude equally likely.  Only the standard library is imported, for the benchmarks of other libraries.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HARD = 32_000  # tokens of a request
LEAST, MOST = 200, 20_000  # characters of a result
SYSTEM = (
    "You are a coding agent in a repository. Read before you write, change little at a time, run the tests after each"
    " change, and say in one sentence what you do next."
)
TASK = "Find out why the nightly run is slow, mend it, and keep every test green. Report what you changed."
DONE = "The nightly run is fast again, and every test is green."
_SAID = (
    "I look at {path} from line {line} on.",
    "That is not it. Next I read {path}, where the same names occur.",
    "The time goes elsewhere; {path} has the other caller, near line {line}.",
    "Before I change anything, I check what {path} does with it.",
)
_SUMMARY = (
    "The user wants the nightly run to be fast again with all tests green. So far {count} stretches of work were done;"
    " the last files that were read are {path} and its neighbours, and nothing in them is slow by itself. Decided: the"
    " cache of parsed files is kept, the second scan goes. Done: the scan was moved behind the check at line {line},"
    " and its test was made to count calls. Measured: 41.7 s before, 23.9 s after, on the same machine. Errors seen:"
    " KeyError 'workers' in the log of the third worker, which is older than the change. Open: the two callers that"
    " still scan twice, the report, and a last run of everything."
)


@dataclass(frozen=True, slots=True)
class Round:
    """The replies and function calls of a model in one round, and the results that it gets."""

    said: str
    path: str
    line: int
    result: str

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the call of ``read``."""
        return {"path": self.path, "line": self.line}


@dataclass(frozen=True, slots=True)
class Session:
    """A scripted session.

    Attributes:
        rounds: The rounds, in order.
    """

    rounds: Sequence[Round]

    def summary(self, count: int) -> str:
        """Return what the model answers where a summary is asked for, for the time that is ``count``."""
        at = self.rounds[count * 8 % len(self.rounds)]
        return _SUMMARY.format(count=count, path=at.path, line=at.line)


@lru_cache
def session(rounds: int, seed: int = 1) -> Session:
    """Return a session of this many rounds.  Longer sessions begin with the same rounds."""
    random = Random(seed)
    texts = {suffix: _joined(folders, suffix) for suffix, folders in ((".py", ("fsm_agent",)), (".md", ("docs",)))}
    paths = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "fsm_agent").rglob("*.py"))
    kinds: tuple[Callable[[int], str], ...] = (
        lambda size: _slice(random, texts[".py"], size),
        lambda size: _slice(random, texts[".py"], size),
        lambda size: _slice(random, texts[".md"], size),
        lambda size: _records(random, paths, size),
        lambda size: _log(random, paths, size),
    )
    made = []
    for _ in range(rounds):
        size = int(LEAST * (MOST / LEAST) ** random.random())
        path, line = random.choice(paths), random.randrange(1, 400)
        made.append(Round(random.choice(_SAID).format(path=path, line=line), path, line, random.choice(kinds)(size)))
    return Session(made)


def _joined(folders: Sequence[str], suffix: str) -> str:
    files = chain.from_iterable(sorted((ROOT / folder).rglob(f"*{suffix}")) for folder in folders)
    return "".join([file.read_text(encoding="utf-8") for file in files])


def _slice(random: Random, text: str, size: int) -> str:
    start = random.randrange(len(text) - size)
    return text[start : start + size]


def _records(random: Random, paths: Sequence[str], size: int) -> str:
    rows, length = [], 2
    while length < size:
        row = {
            "id": f"{random.getrandbits(64):016x}",
            "file": random.choice(paths),
            "calls": random.randrange(100_000),
            "seconds": round(random.expovariate(2.0), 6),
            "ok": random.random() < 0.9,
        }
        rows.append(row)
        length += len(json.dumps(row)) + 2
    return json.dumps(rows)[:size]


def _log(random: Random, paths: Sequence[str], size: int) -> str:
    lines, length, at = [], 0, 0.0
    while length < size:
        at += random.expovariate(3.0)
        level = random.choice(("DEBUG", "INFO", "INFO", "INFO", "WARNING", "ERROR"))
        where = random.choice(paths).removesuffix(".py").replace("/", ".")
        number = random.randrange(10_000)
        moment = f"2026-11-27T{int(at / 3600) % 24:02}:{int(at / 60) % 60:02}:{at % 60:06.3f}Z"
        line = (
            f"{moment} {level:7} [worker-{number % 8}] {where}:{number % 500} took {number / 7:.3f} ms, {number} kept"
        )
        lines.append(line)
        length += len(line) + 1
    return "\n".join(lines)[:size]


# What is sent


class TokenCount:
    """Counts the tokens of all texts in JSON, including the names of fields.

    A provider counts texts, not the JSON that carries them, in which a line break takes one more token.  In exchange,
    the provider adds marks of roles and the form of calls, which are about as long as the names of the fields.

    Args:
        tokens: Returns the tokens of a text.
    """

    def __init__(self, tokens: Callable[[str], int]) -> None:
        self._tokens = tokens
        self._known: dict[str, int] = {}

    def of(self, value: Any) -> int:
        """Return the tokens of a value that was read from JSON."""
        return sum(map(self._of_text, texts(value)))

    def _of_text(self, text: str) -> int:
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = self._tokens(text)
        return known


def texts(value: Any) -> Iterator[str]:
    """Yield the texts in a value that was read from JSON: of a mapping, its names too; numbers as they are written."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif value is not None:
        yield json.dumps(value)


@lru_cache
def o200k() -> Callable[[str], int]:
    """Return what counts the tokens of a text by the table ``o200k_base``, which ``bpe-openai`` brings along."""
    with warnings.catch_warnings():  # it opens the table in a way that is deprecated
        warnings.simplefilter("ignore", DeprecationWarning)
        import bpe_openai

        encoding = bpe_openai.get_encoding("o200k_base")
    return lambda text: len(encoding.encode_ordinary(text))


def entries_of(body: dict[str, Any]) -> list[Any]:
    """Return what the messages of a request are on its wire, in order; the instructions come first."""
    first = [body[name] for name in ("instructions", "system", "systemInstruction") if name in body]
    listed = next(body[name] for name in ("messages", "input", "contents") if name in body)
    return [first, *listed]


class Model:
    """The model of a session.  It writes a summary if no function is offered, and otherwise takes the next round.

    Args:
        played: The session.

    Attributes:
        sizes: The tokens of each request, without requests for a summary.
        summary_sizes: The tokens of each request for a summary.
        extending: Whether the messages of each request but the first begin with all messages of the previous request.
    """

    def __init__(self, played: Session) -> None:
        self.played = played
        self.sizes: list[int] = []
        self.summary_sizes: list[int] = []
        self.extending: list[bool] = []
        self._count = TokenCount(o200k())
        self._before: list[Any] = []

    def answer(self, body: dict[str, Any]) -> tuple[str, dict[str, Any] | None, int]:
        """Return the reply to a request, the arguments of its call of ``read`` if there is one, and the tokens."""
        tokens = self._count.of(body)
        if not body.get("tools"):
            self.summary_sizes.append(tokens)
            return self.played.summary(len(self.summary_sizes)), None, tokens
        entries, before = entries_of(body), self._before
        if self.sizes:
            self.extending.append(entries[: len(before)] == before)
        self._before = entries
        self.sizes.append(tokens)
        if len(self.sizes) > len(self.played.rounds):
            return DONE, None, tokens
        one = self.played.rounds[len(self.sizes) - 1]
        return one.said, one.arguments, tokens
