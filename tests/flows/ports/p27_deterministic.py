"""OpenAI Agents SDK, examples/agent_patterns/deterministic.py (2025): outline, a gate, the story.

Its authors mean: each agent has one step, the output of one is the input of the next, and code between them stops
when the outline is not good, or is no science fiction.  Their two `exit(0)` are two ends here.
"""

from dataclasses import dataclass, replace

from harness import Day, Port, agent

from fsm_agent.flows import Flow, call, end


@dataclass(frozen=True)
class Verdict:
    is_good: bool
    is_scifi: bool


@dataclass(frozen=True)
class Story:
    wish: str
    outline: str = ""
    text: str = ""


@call(agent("outliner"))
def outlining(s: Story) -> str:
    return s.wish


@call(agent("checker", Verdict))
def checking(s: Story) -> str:
    return s.outline


@call(agent("writer"))
def writing(s: Story) -> str:
    return s.outline


def is_bad(s: Story, v: Verdict) -> bool:
    return not v.is_good


def is_no_scifi(s: Story, v: Verdict) -> bool:
    return not v.is_scifi


FLOW = Flow(
    "deterministic",
    Story,
    start=outlining,
    rows=[
        outlining.done(checking, do=lambda s, text: replace(s, outline=text)),
        checking.done(end("bad_outline"), when=is_bad),
        checking.done(end("no_scifi"), when=is_no_scifi),
        checking.done(writing),
        writing.done(end("written"), do=lambda s, text: replace(s, text=text)),
    ],
)


def outline(request):
    assert request.messages[-1].text == "a robot"
    return "1. It wakes."


def story(request):
    assert request.messages[-1].text == "1. It wakes."
    return "It woke."


def check(s, log):
    assert s.text == "It woke."


PORT = Port(
    FLOW,
    Story("a robot"),
    [
        Day(
            "written",
            models={
                outlining: [outline],
                checking: ['{"is_good": true, "is_scifi": true}'],
                writing: [story],
            },
        )
    ],
    check,
    gives={
        outlining: ["o"],
        checking: [Verdict(a, b) for a in (True, False) for b in (True, False)],
        writing: ["s"],
    },
    holds=lambda state, s: bool(s.text) is (state == "written"),
)
