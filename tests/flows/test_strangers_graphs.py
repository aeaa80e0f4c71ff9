"""Do graphs that others have published do here what their authors mean: with the real clock, and over two processes?

Each is a graph of LangGraph, AWS Step Functions or XState, written anew.  What waits is begun in one OS process and
goes on in another, over SQLite.
"""

from __future__ import annotations

import enum
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import Agent
from fsm_agent.flows import (
    Failure,
    Flow,
    FlowFailed,
    FlowLimits,
    FlowSuspended,
    call,
    each_settled,
    end,
    execute,
    failure,
    pause,
    subflow,
    wait,
)
from fsm_agent.testing import Script, explore

HERE = Path(__file__).parent


def agent(name: str, output: Any = str) -> Agent[Any, Any]:
    return Agent("openai:gpt-5-mini", name=name, output=output)


# Plan and execute (LangGraph): plan, do the first step, plan again, until there is an answer


@dataclass(frozen=True)
class Plan:
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    response: str


@dataclass(frozen=True)
class Task:
    question: str
    steps: tuple[str, ...] = ()
    past: tuple[str, ...] = ()
    response: str = ""


@call(agent("planner", Plan))
def planning(d: Task) -> str:
    return f"Plan: {d.question}"


@call(agent("doer"))
def doing(d: Task) -> str:
    return f"Do: {d.steps[0]}"


@call(agent("replanner"), Plan, Answer)
def replanning(d: Task) -> str:
    return f"{d.question}: done {d.past}, planned {d.steps}"


def has_steps(d: Task, plan: Plan) -> bool:
    return bool(plan.steps)


def take_plan(d: Task, plan: Plan) -> Task:
    return replace(d, steps=plan.steps)


answered, lost = end("answered"), failure("no_plan")
plan_and_execute = Flow(
    "plan_and_execute", Task, start=planning, limits=FlowLimits(steps=20),
    rows=[
        planning.done(doing, when=has_steps, do=take_plan),
        planning.done(lost),
        doing.done(replanning, do=lambda d, text: replace(d, steps=d.steps[1:], past=(*d.past, text))),
        replanning.done(answered, of=Answer, do=lambda d, a: replace(d, response=a.response)),
        replanning.done(doing, of=Plan, when=has_steps, do=take_plan),
        replanning.done(lost, of=Plan),
    ],
)  # fmt: skip


def test_plan_and_execute() -> None:
    models = {
        planning: Script('{"steps": ["find the winner", "find his town"]}'),
        doing: Script("Sinner", "Sexten"),
        replanning: Script('{"steps": ["find his town"]}', '{"response": "Sexten"}'),
    }
    result = plan_and_execute.call(Task("Where is the winner from?"), clients=models)
    assert (result.state, result.data.response, result.data.past) == ("answered", "Sexten", ("Sinner", "Sexten"))
    with pytest.raises(FlowFailed, match="no_plan"):
        plan_and_execute.call(Task("?"), clients={**models, planning: Script('{"steps": []}')})


# Reflexion (LangGraph): write, criticize, write again, a number of times


@dataclass(frozen=True)
class Essay:
    about: str
    text: str = ""
    criticism: tuple[str, ...] = ()


@call(agent("writer"))
def writing(d: Essay) -> str:
    return f"{d.about}; {d.text}; {d.criticism}"


@call(agent("critic"))
def criticizing(d: Essay) -> str:
    return d.text


def is_thrice(d: Essay, text: str) -> bool:
    return len(d.criticism) == 2


def take_text(d: Essay, text: str) -> Essay:
    return replace(d, text=text)


reflexion = Flow(
    "reflexion", Essay, start=writing,
    rows=[
        writing.done(end("written"), when=is_thrice, do=take_text),
        writing.done(criticizing, do=take_text),
        criticizing.done(writing, do=lambda d, text: replace(d, criticism=(*d.criticism, text))),
    ],
)  # fmt: skip


def test_reflexion() -> None:
    critic, writer = Script("too short", "too long"), Script("one", "two", "three")
    result = reflexion.call(Essay("rain"), clients={writing: writer, criticizing: critic})
    assert (result.data.text, result.data.criticism) == ("three", ("too short", "too long"))
    assert "too short" in writer.requests[1].messages[-1].text
    assert [step.to for step in result.trace].count("writing") == 3


# A supervisor (LangGraph): who works next is said by a model; each worker returns to it


class Next(enum.Enum):
    RESEARCHER = "researcher"
    CODER = "coder"
    FINISH = "finish"


@dataclass(frozen=True)
class Team:
    task: str
    said: tuple[str, ...] = ()


@call(agent("supervisor", Next))
def supervising(d: Team) -> str:
    return f"{d.task}: {d.said}"


def worker(name: str) -> Any:
    return call(agent(name), name=name)(lambda d: f"{d.task}: {d.said}")


workers = {case: worker(case.value) for case in (Next.RESEARCHER, Next.CODER)}
supervisor = Flow(
    "supervisor", Team, start=supervising, limits=FlowLimits(steps=9),
    rows=[
        *[supervising.done(state, of=case) for case, state in workers.items()],
        supervising.done(end("finished"), of=Next.FINISH),
        *[state.done(supervising, do=lambda d, text: replace(d, said=(*d.said, text))) for state in workers.values()],
    ],
)  # fmt: skip


def test_a_supervisor() -> None:
    def models(*choices: str) -> dict[Any, Any]:
        return {supervising: Script(*choices), **{state: Script("x", "y", "z", "u") for state in workers.values()}}

    result = supervisor.call(Team("plot"), clients=models('"researcher"', '"coder"', '"researcher"', '"finish"'))
    assert result.data.said == ("x", "x", "y")
    with pytest.raises(FlowFailed, match="9 states were entered"):
        supervisor.call(Team("plot"), clients=models(*['"coder"'] * 5))


# A saga (Step Functions): three bookings, each undone in the opposite order when a later one fails


@dataclass(frozen=True)
class Trip:
    bad: str = ""
    log: tuple[str, ...] = ()


def booking(name: str) -> Any:
    def book(d: Trip) -> str:
        if d.bad == name:
            raise RuntimeError(f"no {name}")
        return name

    return execute(name=f"book_{name}", once=True)(book)


def undoing(name: str) -> Any:
    def undo(d: Trip) -> str:
        return f"undo {name}"

    return execute(name=f"undo_{name}", once=True)(undo)


def note(d: Trip, text: str) -> Trip:
    return replace(d, log=(*d.log, text))


flight, hotel, car = map(booking, ("flight", "hotel", "car"))
no_flight, no_hotel = map(undoing, ("flight", "hotel"))
not_booked = end("not_booked")
saga = Flow(
    "saga", Trip, start=flight,
    rows=[
        flight.done(hotel, do=note), flight.failed(not_booked),
        hotel.done(car, do=note), hotel.failed(no_flight),
        car.done(end("booked"), do=note), car.failed(no_hotel),
        no_hotel.done(no_flight, do=note), no_flight.done(not_booked, do=note),
    ],
)  # fmt: skip


@pytest.mark.parametrize(
    ("bad", "state", "log"),
    [
        ("", "booked", ("flight", "hotel", "car")),
        ("flight", "not_booked", ()),
        ("hotel", "not_booked", ("flight", "undo flight")),
        ("car", "not_booked", ("flight", "hotel", "undo hotel", "undo flight")),
    ],
)
def test_a_saga(bad: str, state: str, log: tuple[str, ...], tmp_path: Path) -> None:
    result = replace(saga, store=tmp_path / "runs.db").call(Trip(bad), run_id="r")
    assert (result.state, result.data.log) == (state, log)


# Polling with a limit (Step Functions): a job is looked at every now and then, under a deadline


@dataclass(frozen=True)
class Job:
    ready_after: int
    looks: int = 0


@execute
def looking(d: Job) -> bool:
    return d.looks + 1 >= d.ready_after


def may_look(d: Job, a: bool) -> bool:
    return d.looks < 4


def looked(d: Job, a: Any) -> Job:
    return replace(d, looks=d.looks + 1)


napping = pause("napping", 0.03)
polling = Flow(
    "polling", Job, start=looking, limits=FlowLimits(deadline_s=60),
    rows=[
        looking.done(end("ready"), of=True, do=looked),
        looking.done(napping, of=False, when=may_look, do=looked),
        looking.done(failure("given_up", "looked five times"), of=False),
        napping.elapsed(looking),
    ],
)  # fmt: skip


@pytest.mark.parametrize("is_inside", [False, True])
def test_polling_with_a_limit(is_inside: bool) -> None:
    nested = subflow("nested", polling, lambda d: d, within_s=60)
    flow = Flow("around", Job, start=nested, rows=[nested.done(end("ready"), do=lambda d, a: a)])
    began = time.monotonic()
    result = (flow if is_inside else polling).call(Job(4))
    assert (result.state, result.data.looks) == ("ready", 4)
    assert time.monotonic() - began >= 3 * 0.03
    with pytest.raises(FlowFailed, match="looked five times"):
        (flow if is_inside else polling).call(Job(9))


# A quorum (Step Functions): replicas are asked until enough of them agree


@dataclass(frozen=True)
class Vote:
    names: tuple[str, ...]
    yes: int = 0
    rounds: int = 0


@execute
def asking(name: str) -> bool:
    if name.startswith("down"):
        raise ConnectionError(name)
    return name.startswith("yes")


def names(d: Vote) -> tuple[str, ...]:
    return d.names


def agree(d: Vote, votes: tuple[bool | Failure, ...]) -> bool:
    return 2 * sum(vote is True for vote in votes) > len(votes)


def may_ask(d: Vote, votes: tuple[bool | Failure, ...]) -> bool:
    return d.rounds < 2


def counted(d: Vote, votes: tuple[bool | Failure, ...]) -> Vote:
    """The ones that are down come back with the next round."""
    up = tuple([name.removeprefix("down ") for name in d.names])
    return replace(d, names=up, yes=sum(vote is True for vote in votes), rounds=d.rounds + 1)


votes, resting = each_settled("votes", asking, names), pause("resting", 0.02)
quorum = Flow(
    "quorum", Vote, start=votes, limits=FlowLimits(deadline_s=60),
    rows=[
        votes.done(end("agreed"), when=agree, do=counted),
        votes.done(resting, when=may_ask, do=counted),
        votes.done(end("refused"), do=counted),
        resting.elapsed(votes),
    ],
)  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "state", "rounds"),
    [
        (("yes 1", "yes 2", "no"), "agreed", 1),
        (("yes 1", "down yes 2", "down no"), "agreed", 2),
        (("yes 1", "no 2", "no 3"), "refused", 3),
    ],
)
def test_a_quorum(asked: tuple[str, ...], state: str, rounds: int) -> None:
    result = quorum.call(Vote(asked))
    assert (result.state, result.data.rounds) == (state, rounds)


# A credit check (XState): three bureaus at once, of which some may fail; then a person decides


@dataclass(frozen=True)
class Report:
    bureau: str
    score: int = 0


@dataclass(frozen=True)
class Credit:
    who: str
    bureaus: tuple[str, ...] = ("a", "b", "down")
    scores: tuple[int, ...] = ()
    decided: bool = False


@execute
def scoring(d: Report) -> int:
    if d.bureau == "down":
        raise ConnectionError("no line")
    return 600 + ord(d.bureau) - ord("a")


bureau = Flow("bureau", Report, start=scoring, rows=[scoring.done(end("scored"), do=lambda d, n: replace(d, score=n))])
of_bureau = subflow("of_bureau", bureau, lambda name: Report(name))


def bureaus(d: Credit) -> tuple[str, ...]:
    return d.bureaus


reports = each_settled("reports", of_bureau, bureaus)


@wait(bool)
def deciding(d: Credit) -> str:
    return f"{d.who}: {d.scores}"


def has_any(d: Credit, found: tuple[Report | Failure, ...]) -> bool:
    return any(isinstance(report, Report) for report in found)


def take_scores(d: Credit, found: tuple[Report | Failure, ...]) -> Credit:
    return replace(d, scores=tuple(report.score for report in found if isinstance(report, Report)))


credit = Flow(
    "credit", Credit, start=reports,
    rows=[
        reports.done(deciding, when=has_any, do=take_scores),
        reports.done(failure("unknown", "no bureau answers")),
        deciding.done(end("granted"), of=True, do=lambda d, a: replace(d, decided=True)),
        deciding.done(end("denied"), of=False, do=lambda d, a: replace(d, decided=True)),
    ],
)  # fmt: skip


def test_a_credit_check_that_another_process_decides(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    assert in_another_process("begin", store) == "deciding (600, 601)"
    assert in_another_process("decide", store) == "granted (600, 601)"
    with pytest.raises(FlowFailed, match="no bureau answers"):
        credit.call(Credit("ann", bureaus=("down", "down")))


def day(what: str, store: str) -> str:
    """Do what is due on a day, in a process of its own."""
    flow = replace(credit, store=store)
    try:
        result = flow.call(Credit("ann"), run_id="r") if what == "begin" else flow.resume("r", {deciding: True})
    except FlowSuspended as waiting:
        return f"{waiting.run.state} {waiting.run.data.scores}"
    return f"{result.state} {result.data.scores}"


def in_another_process(what: str, store: Path) -> str:
    code = f"import test_strangers_graphs as t; print(t.day({what!r}, {str(store)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("flow", "data", "answers"),
    [
        (
            *(plan_and_execute, Task("?")),
            {planning: [Plan(("a",)), Plan(())], doing: ["x"], replanning: [Plan(("b",)), Plan(()), Answer("y")]},
        ),
        (saga, Trip(), {state: [state.name] for state in (flight, hotel, car, no_flight, no_hotel)}),
        (credit, Credit("ann"), {reports: [(Report("a", 1), Failure("x")), (Failure("x"),)], deciding: [True, False]}),
    ],
    ids=["plan and execute", "saga", "credit check"],
)
def test_every_row_of_theirs_can_be_taken(flow: Flow[Any], data: Any, answers: dict[Any, Any]) -> None:
    assert explore(flow, data, answers, limit=2000).missed == ()
