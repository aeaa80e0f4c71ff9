"""Dify, the workflow template "Question Classifier + Knowledge + Chatbot" (2024).

Its authors mean: a question is put into one of several classes; two of them have a knowledge base each, from which
the answer is written, the rest has a set sentence.  Their branches end in three Answer nodes, which is one end here.
"""

from dataclasses import dataclass, replace
from enum import Enum

from harness import Day, Port, agent

from fsm_agent.flows import Flow, call, end, execute

KNOWLEDGE = {"after sales": ("Parcels may come back within 14 days.",), "use": ("Press the red button.",)}


class Topic(Enum):
    AFTER_SALES = "after sales"
    USE = "how to use a product"
    OTHER = "other questions"


@dataclass(frozen=True)
class Question:
    text: str
    knowledge: tuple[str, ...] = ()
    answer: str = ""


@call(agent("classifier", Topic))
def classifying(q: Question) -> str:
    return f"What is this question about? {q.text}"


@execute
def searching_after_sales(q: Question) -> tuple[str, ...]:
    return KNOWLEDGE["after sales"]


@execute
def searching_use(q: Question) -> tuple[str, ...]:
    return KNOWLEDGE["use"]


@call(agent("answerer"))
def answering(q: Question) -> str:
    return f"Use this only: {q.knowledge}. {q.text}"


def keep_knowledge(q: Question, found: tuple[str, ...]) -> Question:
    return replace(q, knowledge=found)


def decline(q: Question, topic: Topic) -> Question:
    return replace(q, answer="Sorry, I can't help you with these questions.")


answered = end("answered")
FLOW = Flow(
    "question_classifier",
    Question,
    start=classifying,
    rows=[
        classifying.done(searching_after_sales, of=Topic.AFTER_SALES),
        classifying.done(searching_use, of=Topic.USE),
        classifying.done(answered, of=Topic.OTHER, do=decline),
        searching_after_sales.done(answering, do=keep_knowledge),
        searching_use.done(answering, do=keep_knowledge),
        answering.done(answered, do=lambda q, text: replace(q, answer=text)),
    ],
)


def from_knowledge(request):
    text = request.messages[-1].text
    assert "within 14 days" in text
    assert "red button" not in text
    return "Within 14 days."


def check(q, log):
    assert q.answer == "Within 14 days."


PORT = Port(
    FLOW,
    Question("May I send it back?"),
    [Day("answered", models={classifying: ['"after sales"'], answering: [from_knowledge]})],
    check,
    gives={classifying: [*Topic], searching_after_sales: [("a",)], searching_use: [("b",)], answering: ["c"]},
    holds=lambda state, q: state != "answering" or q.knowledge in (("a",), ("b",)),
)
