"""LangGraph, how-tos/map-reduce.ipynb (2024, `Send`): subjects for a topic, a joke about each, the best joke.

Its authors mean: as many branches as there are subjects, joined before one is chosen.  Theirs joins with a reducer on
a list of the state; here members give, and one action takes all of it, in the order of the subjects.  An index that
no joke has ends as a failure, which theirs would raise.
"""

from dataclasses import dataclass, replace

from harness import Day, Port, agent

from fsm_agent.flows import Flow, call, each, end, failure


@dataclass(frozen=True)
class Jokes:
    topic: str
    subjects: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    best: str = ""


@call(agent("finder", tuple[str, ...]))
def finding(j: Jokes) -> str:
    return f"Name two to five things that have to do with {j.topic}."


@call(agent("comedian"))
def joking(subject: str) -> str:
    return f"Tell a joke about {subject}"


def subjects(j: Jokes) -> tuple[str, ...]:
    return j.subjects


telling = each("telling", joking, subjects, parallel=2)


@call(agent("jury", int))
def choosing(j: Jokes) -> str:
    return f"Which is the best, counted from 0? {j.told}"


def is_there(j: Jokes, n: int) -> bool:
    return 0 <= n < len(j.told)


FLOW = Flow(
    "map_reduce",
    Jokes,
    start=finding,
    rows=[
        finding.done(telling, do=lambda j, found: replace(j, subjects=found)),
        telling.done(choosing, do=lambda j, told: replace(j, told=told)),
        choosing.done(end("chosen"), when=is_there, do=lambda j, n: replace(j, best=j.told[n])),
        choosing.done(failure("no_such_joke")),
    ],
)


def about(request):
    """Shout the subject, whichever member asks first."""
    return request.messages[-1].text.split()[-1].upper()


def read(request):
    assert request.messages[-1].text.endswith("('CATS', 'DOGS', 'COWS')"), "in the order of the subjects"
    return "2"


def check(j, log):
    assert (j.told, j.best) == (("CATS", "DOGS", "COWS"), "COWS")


PORT = Port(
    FLOW,
    Jokes("animals"),
    [Day("chosen", models={finding: ['["cats", "dogs", "cows"]'], joking: [about] * 3, choosing: [read]})],
    check,
    gives={finding: [("cats", "dogs"), ()], telling: [("meow", "woof"), ()], choosing: [0, 7]},
)
