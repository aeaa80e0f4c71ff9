"""Self-RAG.

A model grades documents before they are used. It also grades each answer: do the documents support it, and does it
answer the question? If not, "I do not know" is an end state of your flow, not a sentence from a model.

- Each grade is a state that asks a small model with `output=bool`. There is one row for `True` and one for `False`.
- The documents are graded at the same time, in an `each`. The row's action drops those that are not relevant.
- One counter limits all three loops: a new query, an unsupported answer, and a useless answer.

```console
$ python examples/recipes/self_rag.py
answered after 1 new query: A store is the memory of an agent.
```

**When not to use it.** Self-RAG asks a model five times, whereas plain retrieval asks once. First, measure whether
wrong documents are your problem. Better retrieval is cheaper than grading, and a call whose citations are checked by a
parser is shorter.
"""

from dataclasses import dataclass, replace

from fsm_agent import Agent
from fsm_agent.call import Request
from fsm_agent.flows import Flow, ask, each, end, execute, into
from fsm_agent.testing import Script

INDEX = {"memory": ("Agents have short memories.", "Elephants have long ones."), "agent memory": ("A store is one.",)}
TRIES = 3


@dataclass(frozen=True)
class Search:
    question: str
    query: str
    found: tuple[str, ...] = ()
    answer: str = ""
    tries: int = 0


@dataclass(frozen=True)
class Graded:
    question: str
    text: str


grader = Agent("openai:gpt-5-mini", name="grader", output=bool)
writer = Agent("openai:gpt-5", name="writer")


@execute
def retrieving(s: Search) -> tuple[str, ...]:
    return INDEX.get(s.query, ())


@ask(grader)
def relevant(g: Graded) -> str:
    return f"Is this about {g.question!r}? {g.text}"


def documents(s: Search) -> list[Graded]:
    return [Graded(s.question, text) for text in s.found]


grading = each("grading", relevant, documents)


@ask(writer)
def rewriting(s: Search) -> str:
    return f"A search for {s.query!r} found nothing that answers {s.question!r}. Give a better query."


@ask(writer)
def answering(s: Search) -> str:
    return f"{s.question} Use only this: {s.found}"


@ask(grader)
def grounded(s: Search) -> str:
    return f"Is all of {s.answer!r} said here? {s.found}"


@ask(grader)
def useful(s: Search) -> str:
    return f"Does {s.answer!r} answer {s.question!r}?"


def any_relevant(s: Search, grades: tuple[bool, ...]) -> bool:
    return any(grades)


def keep_relevant(s: Search, grades: tuple[bool, ...]) -> Search:
    return replace(s, found=tuple(text for text, is_good in zip(s.found, grades, strict=True) if is_good))


def may_rewrite(s: Search) -> bool:
    return s.tries < TRIES


def count(s: Search, answer: object) -> Search:
    return replace(s, tries=s.tries + 1)


unknown = end("unknown", failed="the index does not say")

self_rag = Flow(
    "self_rag",
    Search,
    start=retrieving,
    rows=[
        retrieving.done(grading, do=into("found")),
        grading.done(answering, when=any_relevant, do=keep_relevant),
        grading.done(rewriting, when=may_rewrite, do=count),
        grading.done(unknown),
        rewriting.done(retrieving, do=into("query")),
        answering.done(grounded, do=into("answer")),
        grounded.done(useful, of=True),
        grounded.done(answering, of=False, when=may_rewrite, do=count),
        grounded.done(unknown, of=False),
        useful.done(end("answered"), of=True),
        useful.done(rewriting, of=False, when=may_rewrite, do=count),
        useful.done(unknown, of=False),
    ],
)


def of_agents(request: Request) -> str:
    """Grade as the grader might, whichever document comes first."""
    return str("gents" in request.messages[-1].text.partition("? ")[2]).lower()


def main() -> None:
    models = {
        relevant: Script(of_agents, of_agents, "true"),
        rewriting: Script("agent memory"),
        answering: Script("Short.", "A store is the memory of an agent."),
        grounded: Script("true", "true"),
        useful: Script("false", "true"),
    }
    result = self_rag.call(Search("What is the memory of an agent?", "memory"), clients=models)
    print(f"{result.state} after {result.output.tries} new query: {result.output.answer}")


if __name__ == "__main__":
    main()
