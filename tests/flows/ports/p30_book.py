"""CrewAI, crewAI-examples/write_a_book_with_flows (2024): an outline, all chapters at once, one book.

Its authors mean: a crew researches and outlines, another crew writes each chapter, side by side, each with the whole
outline before it; the chapters are joined in the order of the outline and saved.  A crew of two agents is a flow of
two states.
"""

from dataclasses import dataclass, replace

from harness import Day, Port, agent, log

from fsm_agent import Context
from fsm_agent.flows import Flow, call, each, end, execute, subflow


@dataclass(frozen=True)
class Chapter:
    title: str
    outline: tuple[str, ...] = ()
    research: str = ""
    text: str = ""


@dataclass(frozen=True)
class Book:
    topic: str
    research: str = ""
    outline: tuple[str, ...] = ()
    text: str = ""


@call(agent("researcher"))
def researching(b: Book) -> str:
    return f"What is there about {b.topic}?"


@call(agent("outliner", tuple[str, ...]))
def outlining(b: Book) -> str:
    return f"Titles of chapters about {b.topic}, from {b.research}"


@call(agent("chapter researcher"))
def looking_up(c: Chapter) -> str:
    return f"What is there for {c.title}?"


@call(agent("chapter writer"))
def writing(c: Chapter) -> str:
    return f"Write {c.title} of {list(c.outline)}. Known: {c.research}"


CHAPTER = Flow(
    "chapter",
    Chapter,
    start=looking_up,
    rows=[
        looking_up.done(writing, do=lambda c, text: replace(c, research=text)),
        writing.done(end("written"), do=lambda c, text: replace(c, text=text)),
    ],
)


def chapters(b: Book) -> list[Chapter]:
    return [Chapter(title, b.outline) for title in b.outline]


writing_all = each("writing_all", subflow("chapter", CHAPTER, lambda c: c), chapters)


@execute
def saving(b: Book, context: Context[str]) -> None:
    log(context, b.text.replace("\n", "|"))


def join(b: Book, written: tuple[Chapter, ...]) -> Book:
    return replace(b, text="\n".join(f"# {c.title}\n{c.text}" for c in written))


FLOW = Flow(
    "book",
    Book,
    start=researching,
    rows=[
        researching.done(outlining, do=lambda b, text: replace(b, research=text)),
        outlining.done(writing_all, do=lambda b, titles: replace(b, outline=titles)),
        writing_all.done(saving, do=join),
        saving.done(end("saved")),
    ],
)


def outlined(request):
    assert request.messages[-1].text.endswith("from much")
    return '["Past", "Future"]'


def looked_up(request):
    return request.messages[-1].text.removeprefix("What is there for ").rstrip("?") + " facts"


def chapter(request):
    text = request.messages[-1].text
    assert "['Past', 'Future']" in text, "each sees the whole outline"
    title = text.split()[1]
    assert text.endswith(f"Known: {title} facts"), "and its own research"
    return f"The {title.lower()}."


def check(b, log):
    assert log == ["# Past|The past.|# Future|The future."]


PORT = Port(
    FLOW,
    Book("agents"),
    [
        Day(
            "saved",
            models={
                researching: ["much"],
                outlining: [outlined],
                looking_up: [looked_up] * 2,
                writing: [chapter] * 2,
            },
        )
    ],
    check,
    gives={researching: ["r"], outlining: [("a",), ()], writing_all: [(Chapter("a"),), ()], saving: [None]},
)
