"""Reflexion.

A model answers, criticizes its own answer, and suggests searches. It then revises the answer with the results, several
times. The final answer has sources, and you decide how many rounds to pay for.

- The answer, its criticism and the queries are one type, `Draft`. If a reply does not fit this type, the call itself
  asks again.
- The searches of a round run at the same time, in an `each`.
- The flow ends after `REVISIONS` revisions, or as soon as there is nothing left to search for.

```console
$ python examples/recipes/reflexion.py
written after 2 revisions: It rains more in Rome.
[rain 2025: 3 pages] [rain 2026: 3 pages] [rain in Rome: 3 pages]
```

**When not to use it.** If a test, a parser or a validator can say what is wrong, use that instead. For example, a
parser repeats the request with the reason, and [the coding agent](coding-agent.md) has a state that runs the tests.
Without new facts, a model that criticizes itself mostly just rephrases its answer.
"""

from dataclasses import dataclass, replace

from fsm_agent import Agent
from fsm_agent.flows import Flow, ask, each, end, execute
from fsm_agent.testing import Script

REVISIONS = 2


@dataclass(frozen=True)
class Draft:
    """An answer, its criticism, and the queries to search for."""

    answer: str
    missing: str
    queries: tuple[str, ...] = ()


@dataclass(frozen=True)
class Essay:
    question: str
    draft: Draft = Draft("", "")
    sources: tuple[str, ...] = ()
    revisions: int = 0


writer = Agent("openai:gpt-5", name="writer", system="Be severe with your own answers.")


@ask(writer, Draft)
def drafting(e: Essay) -> str:
    return f"Answer, say what is missing, and what to search for. {e.question}"


@execute
def search(query: str) -> str:
    """Stands in for a web search."""
    return f"[{query}: 3 pages]"


def queries(e: Essay) -> tuple[str, ...]:
    return e.draft.queries


searching = each("searching", search, queries)


@ask(writer, Draft)
def revising(e: Essay) -> str:
    return f"{e.question} Your answer: {e.draft.answer} It misses: {e.draft.missing} Use these sources: {e.sources}"


def is_settled(e: Essay, draft: Draft) -> bool:
    return e.revisions + 1 >= REVISIONS or not draft.queries


def keep_draft(e: Essay, draft: Draft) -> Essay:
    return replace(e, draft=draft)


def keep_revision(e: Essay, draft: Draft) -> Essay:
    return replace(e, draft=draft, revisions=e.revisions + 1)


reflexion = Flow(
    "reflexion",
    Essay,
    start=drafting,
    rows=[
        drafting.done(searching, do=keep_draft),
        searching.done(revising, do=lambda e, found: replace(e, sources=e.sources + found)),
        revising.done(end("written"), when=is_settled, do=keep_revision),
        revising.done(searching, do=keep_revision),
    ],
)


def main() -> None:
    models = {
        drafting: Script('{"answer": "It rains.", "missing": "how much", "queries": ["rain 2025", "rain 2026"]}'),
        revising: Script(
            '{"answer": "It rains more.", "missing": "where", "queries": ["rain in Rome"]}',
            '{"answer": "It rains more in Rome.", "missing": "nothing"}',
        ),
    }
    result = reflexion.call(Essay("Does it rain more than before?"), clients=models)
    essay = result.output
    print(f"{result.state} after {essay.revisions} revisions: {essay.draft.answer}")
    print(*essay.sources)


if __name__ == "__main__":
    main()
