"""Dify, the template "Long story generator" with an Iteration node (2024).

Its authors mean: an outline is turned into a list of chapters, an iteration writes each, two at a time if it is set
to run in parallel, an item that fails is handled as set (stop, leave a null, leave it out), and a template joins the
rest in the order of the list.  Here it is "leave it out", and a second try is a state inside of the member.
"""

from dataclasses import dataclass, replace

from harness import Day, Port, agent

from fsm_agent import ProviderError
from fsm_agent.flows import Failure, Flow, call, each, end, failure, subflow


@dataclass(frozen=True)
class Chapter:
    title: str
    text: str = ""
    summary: str = ""


@dataclass(frozen=True)
class Story:
    about: str
    titles: tuple[str, ...] = ()
    chapters: tuple[Chapter, ...] = ()
    text: str = ""


@call(agent("outliner", tuple[str, ...]))
def outlining(s: Story) -> str:
    return f"The titles of the chapters of a story about {s.about}"


@call(agent("writer"))
def writing(c: Chapter) -> str:
    return f"Write the chapter {c.title}"


@call(agent("editor"))
def shortening(c: Chapter) -> str:
    return f"In one sentence: {c.text}"


CHAPTER = Flow(
    "chapter",
    Chapter,
    start=writing,
    rows=[
        writing.done(shortening, do=lambda c, text: replace(c, text=text)),
        shortening.done(end("written"), do=lambda c, text: replace(c, summary=text)),
    ],
)


def chapters(s: Story) -> list[Chapter]:
    return [Chapter(title) for title in s.titles]


iterating = each("iterating", subflow("chapter", CHAPTER, lambda c: c), chapters, parallel=2, settled=True)


def any_written(s: Story, found: tuple[Chapter | Failure, ...]) -> bool:
    return any(isinstance(chapter, Chapter) for chapter in found)


def join(s: Story, found: tuple[Chapter | Failure, ...]) -> Story:
    written = tuple(chapter for chapter in found if isinstance(chapter, Chapter))
    return replace(s, chapters=written, text="\n".join(f"# {c.title}\n{c.text}" for c in written))


FLOW = Flow(
    "iteration",
    Story,
    start=outlining,
    rows=[
        outlining.done(iterating, do=lambda s, titles: replace(s, titles=titles)),
        iterating.done(end("told"), when=any_written, do=join),
        iterating.done(failure("nothing_told")),
    ],
)


def chapter(request):
    title = request.messages[-1].text.removeprefix("Write the chapter ")
    return ProviderError("no answer") if title == "II" else f"Once {title}."


def summary(request):
    return request.messages[-1].text.removeprefix("In one sentence: ").upper()


def check(s, log):
    assert s.text == "# I\nOnce I.\n# III\nOnce III."
    assert [c.summary for c in s.chapters] == ["ONCE I.", "ONCE III."]


PORT = Port(
    FLOW,
    Story("rain"),
    [
        Day(
            "told",
            models={
                outlining: ['["I", "II", "III"]'],
                writing: [chapter] * 3,
                shortening: [summary] * 2,
            },
        )
    ],
    check,
    gives={outlining: [("a",), ()], iterating: [(Chapter("a", "b", "c"), Failure("x")), (Failure("x"),), ()]},
)
