"""Reflexion: an answer that criticizes itself, looks up what it missed, and is revised, a number of times.

Run it with ``python examples/recipes/reflexion.py``: scripts stand in for the models.
"""

from dataclasses import dataclass, replace

from fsm_agent import Agent
from fsm_agent.flows import Flow, call, each, end, execute
from fsm_agent.testing import Script

REVISIONS = 2


@dataclass(frozen=True)
class Draft:
    """An answer, what is missing in it, and what to search for."""

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


@call(writer, Draft)
def drafting(e: Essay) -> str:
    return f"Answer, say what is missing, and what to search for. {e.question}"


@execute
def search(query: str) -> str:
    """Stands in for a search of the web."""
    return f"[{query}: 3 pages]"


def queries(e: Essay) -> tuple[str, ...]:
    return e.draft.queries


searching = each("searching", search, queries)


@call(writer, Draft)
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
