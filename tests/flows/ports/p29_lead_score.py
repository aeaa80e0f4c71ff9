"""CrewAI, crewAI-examples/lead-score-flow (2024): candidates are scored, a person looks at the best, all get a mail.

Its authors mean: all candidates are scored at once; the three best are shown to a person, who quits, has them scored
again with feedback, or proceeds; then each gets a mail, an invitation for the three and a refusal for the rest.
Their router of three strings, read from `input()`, is three types of answer, which may come on another day.
"""

from dataclasses import dataclass, replace
from typing import Literal

from harness import Day, Port, agent, log

from fsm_agent import Context
from fsm_agent.flows import Flow, call, each, end, execute, subflow, wait

BEST = 3


@dataclass(frozen=True)
class Candidate:
    name: str
    feedback: str = ""
    score: int = 0
    is_invited: bool = False
    mail: str = ""


@dataclass(frozen=True)
class Leads:
    candidates: tuple[Candidate, ...]
    feedback: str = ""


@dataclass(frozen=True)
class Quit:
    kind: Literal["quit"] = "quit"


@dataclass(frozen=True)
class Again:
    feedback: str


@dataclass(frozen=True)
class Proceed:
    kind: Literal["proceed"] = "proceed"


@call(agent("scorer", int))
def score(c: Candidate) -> str:
    return f"Score {c.name}, of 100. {c.feedback}"


def candidates(d: Leads) -> list[Candidate]:
    return [replace(c, feedback=d.feedback) for c in d.candidates]


scoring = each("scoring", score, candidates)


@wait(Quit, Again, Proceed)
def reviewing(d: Leads) -> list[str]:
    return [f"{c.name}: {c.score}" for c in d.candidates[:BEST]]


@call(agent("writer"))
def writing(c: Candidate) -> str:
    return f"{'Invite' if c.is_invited else 'Thank'} {c.name}"


@execute
def saving(c: Candidate, context: Context[str]) -> None:
    log(context, f"{c.name}.txt: {c.mail}")


MAIL = Flow(
    "mail",
    Candidate,
    start=writing,
    rows=[writing.done(saving, do=lambda c, text: replace(c, mail=text)), saving.done(end("saved"))],
)


def to_write(d: Leads) -> list[Candidate]:
    return [replace(c, is_invited=n < BEST) for n, c in enumerate(d.candidates)]


mailing = each("mailing", subflow("mail", MAIL, lambda c: c), to_write)


def rank(d: Leads, scores: tuple[int, ...]) -> Leads:
    scored = [replace(c, score=n) for c, n in zip(d.candidates, scores, strict=True)]
    return replace(d, candidates=tuple(sorted(scored, key=lambda c: -c.score)))


FLOW = Flow(
    "lead_score",
    Leads,
    start=scoring,
    rows=[
        scoring.done(reviewing, do=rank),
        reviewing.done(end("stopped"), of=Quit),
        reviewing.done(scoring, of=Again, do=lambda d, a: replace(d, feedback=a.feedback)),
        reviewing.done(mailing, of=Proceed),
        mailing.done(end("mailed"), do=lambda d, written: replace(d, candidates=written)),
    ],
)


def scored(request):
    text = request.messages[-1].text
    known = {"Ann": 90, "Bob": 20, "Eve": 60, "Max": 40}
    return str(known[text.split()[1].rstrip(",")] + (50 if "Bob" in text and "experience" in text else 0))


def written(request):
    return request.messages[-1].text + "."


def check(d, log):
    assert [(c.name, c.score) for c in d.candidates] == [("Ann", 90), ("Bob", 70), ("Eve", 60), ("Max", 40)]
    assert [c.mail for c in d.candidates] == ["Invite Ann.", "Invite Bob.", "Invite Eve.", "Thank Max."]
    assert sorted(log) == [f"{c.name}.txt: {c.mail}" for c in d.candidates]


PORT = Port(
    FLOW,
    Leads(tuple(Candidate(name) for name in ("Ann", "Bob", "Eve", "Max"))),
    [
        Day("reviewing", models={score: [scored] * 4}),
        Day("reviewing", {reviewing: Again("mind the experience")}, {score: [scored] * 4}),
        Day("mailed", {reviewing: Proceed()}, {writing: [written] * 4}),
    ],
    check,
    gives={scoring: [(1, 2, 3, 4)], reviewing: [Quit(), Again("f"), Proceed()], mailing: [()]},
)
