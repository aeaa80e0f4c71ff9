"""XState, examples/mongodb-credit-check-api and credit-check-api (2023): credentials, three bureaus at once, rates.

Its authors mean: in each of three parallel regions a report is looked up, or else fetched, and saved; a bureau that
fails does not stop the others; of the scores the middle one counts.  Their three copies of the region are one flow,
which `each(…, settled=True)` runs for every bureau.
"""

from dataclasses import dataclass, replace

from harness import Day, Port, log

from fsm_agent import Context
from fsm_agent.flows import Failure, Flow, each, end, execute, gather, subflow, wait


@dataclass(frozen=True)
class Person:
    ssn: str
    last_name: str


@dataclass(frozen=True)
class Report:
    ssn: str
    bureau: str
    score: int = 0


@execute
def looking_up(r: Report) -> int:
    return 700 if r.bureau == "EquiGavin" else 0


@execute
def fetching(r: Report) -> int:
    if r.bureau == "Gavperian":
        raise ConnectionError("no answer")
    return 650


@execute
def saving(r: Report, context: Context[str]) -> None:
    log(context, f"{r.bureau} {r.score}")


def is_found(r: Report, score: int) -> bool:
    return score > 0


def keep_score(r: Report, score: int) -> Report:
    return replace(r, score=score)


BUREAU = Flow(
    "bureau",
    Report,
    start=looking_up,
    rows=[
        looking_up.done(saving, when=is_found, do=keep_score),
        looking_up.done(fetching),
        fetching.done(saving, do=keep_score),
        saving.done(end("complete")),
    ],
)


@dataclass(frozen=True)
class Profile:
    person: Person = Person("", "")
    scores: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()
    error: str = ""


@wait(Person)
def entering(p: Profile) -> str:
    return p.error or "SSN and name, please"


@execute
def verifying(p: Profile) -> bool:
    if p.person.ssn == "0":
        raise ValueError("no such SSN")
    return p.person.ssn != "1"


def reports(p: Profile) -> list[Report]:
    return [Report(p.person.ssn, bureau) for bureau in ("EquiGavin", "GavUnion", "Gavperian")]


checking = each("checking", subflow("bureau", BUREAU, lambda report: report), reports, settled=True)


@execute
def rating(p: Profile) -> tuple[float, ...]:
    return (sorted(p.scores)[len(p.scores) // 2] / 100,)


@execute
def telling_user(p: Profile, context: Context[str]) -> None:
    log(context, f"to {p.person.last_name}: {p.rates}")


@execute
def telling_sales(p: Profile, context: Context[str]) -> None:
    log(context, f"to sales: {p.rates}")


telling = gather("telling", telling_user, telling_sales)


def scores(found: tuple[Report | Failure, ...]) -> tuple[int, ...]:
    return tuple(r.score for r in found if isinstance(r, Report))


def has_score(p: Profile, found: tuple[Report | Failure, ...]) -> bool:
    return bool(scores(found))


FLOW = Flow(
    "credit_check",
    Profile,
    start=entering,
    rows=[
        entering.done(verifying, do=lambda p, person: replace(p, person=person)),
        verifying.done(checking, of=True),
        verifying.done(entering, of=False, do=lambda p, _: replace(p, error="refused")),
        verifying.failed(entering, do=lambda p, why: replace(p, error=why.detail)),
        checking.done(rating, when=has_score, do=lambda p, found: replace(p, scores=scores(found))),
        checking.done(end("no_scores", failed=True)),
        rating.done(telling, do=lambda p, rates: replace(p, rates=rates)),
        telling.done(end("rated")),
    ],
)


def check(p, log):
    assert (p.scores, p.rates) == ((700, 650), (7.0,))
    assert sorted(log[:2]) == ["EquiGavin 700", "GavUnion 650"], "both are saved, the third is not"
    assert sorted(log[2:]) == ["to Doe: (7.0,)", "to sales: (7.0,)"]


PORT = Port(
    FLOW,
    Profile(),
    [
        Day("entering", shows="SSN and name, please"),
        Day("entering", {entering: Person("0", "Doe")}, shows="ValueError: no such SSN"),
        Day("entering", {entering: Person("1", "Doe")}, shows="refused"),
        Day("rated", {entering: Person("2", "Doe")}),
    ],
    check,
    gives={
        entering: [Person("2", "x")],
        verifying: [True, False],
        checking: [(Report("2", "a", 5),), (Failure("x"),)],
        rating: [(1.0,)],
        telling: [(None, None)],
    },
)
