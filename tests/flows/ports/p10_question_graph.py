"""pydantic-graph, pydantic_ai_examples/question_graph.py (2025): ask, let a person answer, evaluate, ask again.

Its authors mean: the two agents have a history each, so that no question comes twice; a wrong answer is met with a
comment and another question, a right one ends it; and with a file the next process continues.
"""

from dataclasses import dataclass, field, replace

from harness import Day, Port, agent

from fsm_agent import Agent, CallResult, Dialog
from fsm_agent.flows import Flow, call, end, wait
from fsm_agent.testing import Script


@dataclass(frozen=True)
class Verdict:
    is_right: bool
    comment: str


@dataclass(frozen=True)
class Quiz:
    question: str = ""
    answer: str = ""
    comments: tuple[str, ...] = ()
    asked: Dialog = field(default_factory=Dialog)
    evaluated: Dialog = field(default_factory=Dialog)


@call(agent("asker"), whole=True)
def asking(q: Quiz) -> Dialog:
    return q.asked.put("Ask a simple question that has one right answer.")


@wait(str)
def answering(q: Quiz) -> str:
    return q.question


@call(agent("evaluator", Verdict, system="You judge answers."), whole=True)
def evaluating(q: Quiz) -> Dialog:
    return q.evaluated.put(f"question: {q.question}\nanswer: {q.answer}")


def is_right(q: Quiz, r: CallResult[Verdict]) -> bool:
    return r.output.is_right


def keep_verdict(q: Quiz, r: CallResult[Verdict]) -> Quiz:
    return replace(q, evaluated=r.dialog, comments=(*q.comments, r.output.comment))


FLOW = Flow(
    "question_graph",
    Quiz,
    start=asking,
    rows=[
        asking.done(answering, do=lambda q, r: replace(q, question=r.output, asked=r.dialog)),
        answering.done(evaluating, do=lambda q, text: replace(q, answer=text)),
        evaluating.done(end("congratulated"), when=is_right, do=keep_verdict),
        evaluating.done(asking, do=keep_verdict),
    ],
)


def another(request):
    said = [message.text for message in request.messages]
    assert "The capital of France?" in said, "it sees its own questions"
    assert not any("Vichy" in text for text in said), "and not the dialog of the other"
    return "2 + 2?"


def right(request):
    assert any("Vichy" in message.text for message in request.messages)
    return '{"is_right": true, "comment": "Well done."}'


def check(q, log):
    assert q.comments == ("No longer.", "Well done.")
    assert (q.question, q.answer) == ("2 + 2?", "4")


def whole(text, output=str):
    return Agent(Script(text), name="x", output=output).call("x")


PORT = Port(
    FLOW,
    Quiz(),
    [
        Day("answering", models={asking: ["The capital of France?"]}),
        Day(
            "answering",
            {answering: "Vichy"},
            {evaluating: ['{"is_right": false, "comment": "No longer."}'], asking: [another]},
        ),
        Day("congratulated", {answering: "4"}, {evaluating: [right]}),
    ],
    check,
    gives={
        asking: [whole("Who?")],
        answering: ["you"],
        evaluating: [
            whole('{"is_right": true, "comment": "c"}', Verdict),
            whole('{"is_right": false, "comment": "c"}', Verdict),
        ],
    },
    limit=40,
)
