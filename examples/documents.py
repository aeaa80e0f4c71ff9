"""Questions about documents.

An agent answers questions from a folder of documents and cites the passages that support the answer.

- The agent searches as often as it likes, with queries that it writes. For up to a few thousand passages, you do not
  need a vector index.
- `deps` is the library, so one agent serves many folders.
- `check` rejects sources that do not exist. The model is told about them and tries again.

```sh
python examples/documents.py ~/papers "When does the lease end?" openai:gpt-5-mini
```
"""

import math
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, Field

from fsm_agent import Agent, Client, Context, Limits, Retry, function

MAX_BYTES, SUFFIXES = 2_000_000, (".md", ".txt", ".rst", ".html")


@dataclass(frozen=True)
class Passage:
    source: str  # the file and the number of the passage in it
    text: str


class Library:
    """The passages of the documents in a folder, with a keyword search (BM25)."""

    def __init__(self, folder: Path) -> None:
        files = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())
        self.passages = [
            Passage(f"{path.relative_to(folder)}#{number}", text.strip())
            for path in files
            if path.stat().st_size <= MAX_BYTES
            for number, text in enumerate(re.split(r"\n\s*\n", path.read_text("utf-8", "replace")), 1)
            if text.strip()
        ]
        self._counts = [Counter(words(passage.text)) for passage in self.passages]
        self._in = Counter(word for counts in self._counts for word in counts)
        self._length = sum(counts.total() for counts in self._counts) / max(1, len(self._counts))

    def search(self, query: str, limit: int = 5) -> list[Passage]:
        ranked = sorted(((self._score(words(query), n), n) for n in range(len(self.passages))), reverse=True)
        return [self.passages[n] for score, n in ranked[:limit] if score > 0]

    def _score(self, query: list[str], n: int) -> float:
        counts, total = self._counts[n], len(self.passages)
        length = 1.2 * (0.25 + 0.75 * counts.total() / self._length)
        rare = {word: math.log(1 + (total - self._in[word] + 0.5) / (self._in[word] + 0.5)) for word in query}
        return sum(rare[word] * counts[word] * 2.2 / (counts[word] + length) for word in query if counts[word])


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


class Answer(BaseModel):
    answer: str
    sources: list[str] = Field(description="The sources of the passages that say so; none if the documents do not.")


@function(needs_approval=False)
def search(context: Context[Library], query: str) -> list[dict[str, str]]:
    """Find passages that contain words of a query."""
    return [{"source": found.source, "text": found.text[:2000]} for found in context.deps.search(query)]


def known(answer: Answer, context: Context[Library]) -> Answer:
    """Reject sources that do not exist."""
    if wrong := {*answer.sources} - {passage.source for passage in context.deps.passages}:
        raise Retry(f"unknown source {min(wrong)!r}; name sources as search gives them")
    return answer


def librarian(model: str | Client) -> Agent[Library, Answer]:
    system = "Answer from the documents alone. Search for other words if you find nothing. Say so if they do not tell."
    return Agent[Library, Answer](
        model, system=system, functions=[search], output=Answer, check=known, limits=Limits(rounds=8), name="librarian"
    )


def main(folder: str, question: str, model: str = "openai:gpt-5-mini") -> None:
    found = librarian(model).call(question, deps=Library(Path(folder))).output
    print(found.answer, *found.sources, sep="\n  ")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit('usage: python examples/documents.py FOLDER "When does the lease end?" [provider:model]')
    main(*sys.argv[1:])
