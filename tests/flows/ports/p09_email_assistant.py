"""Burr, examples/email-assistant/application.py (2024): a reply to a mail, with questions and feedback of its user.

Its authors mean: the model may ask up to three questions before it drafts; without questions it drafts at once; each
feedback makes another draft, which sees the last one, and an empty feedback accepts it.
"""

from dataclasses import dataclass, replace

from harness import Day, Port, agent

from fsm_agent.flows import Flow, call, end, wait


@dataclass(frozen=True)
class Mail:
    incoming: str
    instructions: str
    questions: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    drafts: tuple[str, ...] = ()
    feedback: tuple[str, ...] = ()
    final: str = ""


@call(agent("asker", tuple[str, ...]))
def clarifying(m: Mail) -> str:
    return f"To answer {m.incoming!r} as told, {m.instructions!r}, which questions have you, three at most?"


@wait(tuple[str, ...])
def answering(m: Mail) -> tuple[str, ...]:
    return m.questions


@call(agent("drafter"))
def drafting(m: Mail) -> str:
    known = [f"{q} {a}" for q, a in zip(m.questions, m.answers, strict=False)]
    again = f"Your last draft: {m.drafts[-1]} They say: {m.feedback[-1]}" if m.drafts else ""
    return f"Answer {m.incoming!r}: {m.instructions} {known} {again}"


@wait(str)
def reviewing(m: Mail) -> str:
    return m.drafts[-1]


def has_questions(m: Mail, questions: tuple[str, ...]) -> bool:
    return len(questions) > 0


def has_feedback(m: Mail, text: str) -> bool:
    return text != ""


FLOW = Flow(
    "email_assistant",
    Mail,
    start=clarifying,
    rows=[
        clarifying.done(answering, when=has_questions, do=lambda m, asked: replace(m, questions=asked[:3])),
        clarifying.done(drafting),
        answering.done(drafting, do=lambda m, answers: replace(m, answers=answers)),
        drafting.done(reviewing, do=lambda m, text: replace(m, drafts=(*m.drafts, text))),
        reviewing.done(drafting, when=has_feedback, do=lambda m, text: replace(m, feedback=(*m.feedback, text))),
        reviewing.done(end("final"), do=lambda m, _: replace(m, final=m.drafts[-1])),
    ],
)


def drafted(request):
    assert "['When? on Monday']" in request.messages[-1].text
    return "On Monday."


def drafted_again(request):
    assert "Your last draft: On Monday. They say: warmer" in request.messages[-1].text
    return "On Monday, dear."


def check(m, log):
    assert (m.final, m.drafts) == ("On Monday, dear.", ("On Monday.", "On Monday, dear."))
    assert m.feedback == ("warmer",)


PORT = Port(
    FLOW,
    Mail("May we meet?", "say yes"),
    [
        Day("answering", models={clarifying: ['["When?"]']}),
        Day("reviewing", {answering: ("on Monday",)}, {drafting: [drafted]}),
        Day("reviewing", {reviewing: "warmer"}, {drafting: [drafted_again]}),
        Day("final", {reviewing: ""}),
    ],
    check,
    gives={clarifying: [("q",), ()], answering: [("a",)], drafting: ["d"], reviewing: ["", "more"]},
    limit=100,
)
