"""OpenAI Agents SDK, examples/agent_patterns/llm_as_a_judge.py (2025): write, judge, write again until it passes.

Its authors mean: the writer continues one dialog, in which the judge's feedback is the next message; the judge never
passes the first try, by its prompt; and `while True` ends at a pass.  Here three rounds end it as well.
"""

from dataclasses import dataclass, field, replace
from enum import Enum

from harness import Day, Port, agent

from fsm_agent import Agent, CallResult, Dialog
from fsm_agent.flows import Flow, call, end, failure
from fsm_agent.testing import Script

ROUNDS = 3


class Score(Enum):
    PASS = "pass"
    BETTER = "needs_improvement"
    FAIL = "fail"


@dataclass(frozen=True)
class Feedback:
    score: Score
    text: str


@dataclass(frozen=True)
class Outline:
    message: str  # the next one to the writer
    dialog: Dialog = field(default_factory=Dialog)
    text: str = ""
    rounds: int = 0


@call(agent("writer"), whole=True)
def writing(o: Outline) -> Dialog:
    return o.dialog.put(o.message)


@call(agent("judge", Feedback, system="Never pass the first try."))
def judging(o: Outline) -> str:
    return f"Is this outline good enough? {o.text}"


def keep_outline(o: Outline, r: CallResult[str]) -> Outline:
    return replace(o, dialog=r.dialog, text=r.output, rounds=o.rounds + 1)


def is_passed(o: Outline, f: Feedback) -> bool:
    return f.score is Score.PASS


def may_write(o: Outline, f: Feedback) -> bool:
    return o.rounds < ROUNDS


FLOW = Flow(
    "llm_as_a_judge",
    Outline,
    start=writing,
    rows=[
        writing.done(judging, do=keep_outline),
        judging.done(end("passed"), when=is_passed),
        judging.done(writing, when=may_write, do=lambda o, f: replace(o, message=f"Feedback: {f.text}")),
        judging.done(failure("never_passed")),
    ],
)


def again(request):
    said = [message.text for message in request.messages]
    assert said[-3:] == ["a story", "1. A man.", "Feedback: thin"]
    return "1. A man. 2. A dog."


def check(o, log):
    assert (o.text, o.rounds) == ("1. A man. 2. A dog.", 2)


PORT = Port(
    FLOW,
    Outline("a story"),
    [
        Day(
            "passed",
            models={
                writing: ["1. A man.", again],
                judging: ['{"score": "needs_improvement", "text": "thin"}', '{"score": "pass", "text": "good"}'],
            },
        )
    ],
    check,
    gives={writing: [Agent(Script("text"), name="x").call("x")], judging: [Feedback(score, "f") for score in Score]},
    holds=lambda state, o: o.rounds <= ROUNDS,
)
