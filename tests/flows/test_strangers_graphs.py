"""Do graphs that others have published do here what their authors mean, with the real clock and under both drivers?

Each is a graph of LangGraph, AWS Step Functions or XState, written anew.  Those that wait for people are in
`test_strangers_waits`.
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Callable
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
    FlowResult,
    call,
    each,
    end,
    execute,
    failure,
    gather,
    pause,
    subflow,
)
from fsm_agent.runtime.world import SystemClock
from fsm_agent.testing import Script, explore

Driven = Callable[..., FlowResult[Any]]


@pytest.fixture(params=["sync", "asyncio"])
def driven(request: pytest.FixtureRequest) -> Driven:
    """Run a flow on data by the system's clock, which a script would replace."""

    def run(flow: Flow[Any], data: Any, models: Any = None, run_id: str | None = None) -> FlowResult[Any]:
        flow = replace(flow, world={"clock": SystemClock()})
        if request.param == "sync":
            return flow.call(data, clients=models, run_id=run_id)
        return asyncio.run(flow.acall(data, clients=models, run_id=run_id))

    return run


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


def test_plan_and_execute(driven: Driven) -> None:
    models = {
        planning: Script('{"steps": ["find the winner", "find his town"]}'),
        doing: Script("Sinner", "Sexten"),
        replanning: Script('{"steps": ["find his town"]}', '{"response": "Sexten"}'),
    }
    result = driven(plan_and_execute, Task("Where is the winner from?"), models)
    assert (result.state, result.output.response, result.output.past) == ("answered", "Sexten", ("Sinner", "Sexten"))
    with pytest.raises(FlowFailed, match="no_plan"):
        driven(plan_and_execute, Task("?"), {**models, planning: Script('{"steps": []}')})


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


def test_reflexion(driven: Driven) -> None:
    critic, writer = Script("too short", "too long"), Script("one", "two", "three")
    result = driven(reflexion, Essay("rain"), {writing: writer, criticizing: critic})
    assert (result.output.text, result.output.criticism) == ("three", ("too short", "too long"))
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


def test_a_supervisor(driven: Driven) -> None:
    def models(*choices: str) -> dict[Any, Any]:
        return {supervising: Script(*choices), **{state: Script("x", "y", "z", "u") for state in workers.values()}}

    result = driven(supervisor, Team("plot"), models('"researcher"', '"coder"', '"researcher"', '"finish"'))
    assert result.output.said == ("x", "x", "y")
    with pytest.raises(FlowFailed, match="9 states were entered"):
        driven(supervisor, Team("plot"), models(*['"coder"'] * 5))


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
def test_a_saga(bad: str, state: str, log: tuple[str, ...], driven: Driven, tmp_path: Path) -> None:
    result = driven(replace(saga, store=tmp_path / "runs.db"), Trip(bad), run_id="r")
    assert (result.state, result.output.log) == (state, log)


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
def test_polling_with_a_limit(is_inside: bool, driven: Driven) -> None:
    nested = subflow("nested", polling, lambda d: d, within_s=60)
    around = Flow("around", Job, start=nested, rows=[nested.done(end("ready"), do=lambda d, a: a)])
    flow: Flow[Any] = around if is_inside else polling
    began = time.monotonic()
    result = driven(flow, Job(4))
    assert (result.state, result.output.looks) == ("ready", 4)
    assert time.monotonic() - began >= 3 * 0.03
    with pytest.raises(FlowFailed, match="looked five times"):
        driven(flow, Job(9))


# A retry with growing pauses (Step Functions): of some errors alone, and under a deadline


@dataclass(frozen=True)
class Payment:
    down: int = 0
    error: str = "ConnectionError"
    tries: int = 0


@execute
def paying(d: Payment) -> str:
    if d.tries < d.down:
        raise {"ConnectionError": ConnectionError, "ValueError": ValueError}[d.error]("no line")
    return "paid"


def tried(times: int) -> Callable[[Payment, Failure], bool]:
    def guard(d: Payment, why: Failure) -> bool:
        return d.tries == times and why.detail.startswith("ConnectionError")

    guard.__name__ = f"tried_{times}_times"
    return guard


def count(d: Payment, why: Failure) -> Payment:
    return replace(d, tries=d.tries + 1)


def retrying_after(*pauses_s: float, deadline_s: float = 60.0) -> Flow[Payment]:
    breaks = [pause(f"break_{n}", delay_s) for n, delay_s in enumerate(pauses_s)]
    rows = [
        paying.done(end("paid")),
        *[paying.failed(rest, when=tried(times), do=count) for times, rest in enumerate(breaks)],
        paying.failed(failure("unpaid")),
        *[rest.elapsed(paying) for rest in breaks],
    ]
    return Flow("retrying", Payment, start=paying, rows=rows, limits=FlowLimits(deadline_s=deadline_s))


PAUSES_S = (0.02, 0.04, 0.08)
retrying = retrying_after(*PAUSES_S)


@pytest.mark.parametrize(
    ("down", "error", "state", "tries"),
    [
        (0, "", "paid", 0),
        (2, "ConnectionError", "paid", 2),
        (3, "ValueError", "unpaid", 0),
        (9, "ConnectionError", "unpaid", 3),
    ],
)
def test_a_retry_with_growing_pauses(down: int, error: str, state: str, tries: int, driven: Driven) -> None:
    began = time.monotonic()
    try:
        result = driven(retrying, Payment(down, error))
    except FlowFailed as failed:
        result = failed.result
    assert (result.state, result.output.tries) == (state, tries)
    assert time.monotonic() - began >= sum(PAUSES_S[:tries])


def test_a_deadline_counts_from_the_start_of_all_tries(driven: Driven) -> None:
    began = time.monotonic()
    with pytest.raises(FlowFailed, match=r"in Expired has failed, .* 0\.4 s are over"):
        driven(retrying_after(0.25, 0.25, 30, deadline_s=0.4), Payment(9))
    assert 0.4 <= time.monotonic() - began < 10
    with pytest.raises(FlowFailed, match="in Expired has failed"):
        driven(retrying_after(0.2, 0.2, 0.2, deadline_s=0.4), Payment(9))


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


votes, resting = each("votes", asking, names, settled=True), pause("resting", 0.02)
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
def test_a_quorum(asked: tuple[str, ...], state: str, rounds: int, driven: Driven) -> None:
    began = time.monotonic()
    result = driven(quorum, Vote(asked))
    assert time.monotonic() - began >= (rounds - 1) * 0.02
    assert (result.state, result.output.rounds) == (state, rounds)


# Map and reduce (LangGraph): subjects, a joke about each, the best of them


@dataclass(frozen=True)
class Jokes:
    topic: str
    found: tuple[str, ...] = ()
    best: str = ""


@call(agent("finder", tuple[str, ...]))
def finding(d: Jokes) -> str:
    return f"Subjects: {d.topic}"


@call(agent("comedian"))
def joking(subject: str) -> str:
    return f"A joke about {subject}"


@call(agent("jury", int))
def choosing(d: Jokes) -> str:
    return f"The best of {d.found}"


def subjects(d: Jokes) -> tuple[str, ...]:
    return d.found


def is_there(d: Jokes, n: int) -> bool:
    return 0 <= n < len(d.found)


jokes = each("jokes", joking, subjects, parallel=2)
map_reduce = Flow(
    "map_reduce", Jokes, start=finding,
    rows=[
        finding.done(jokes, do=lambda d, found: replace(d, found=found)),
        jokes.done(choosing, do=lambda d, told: replace(d, found=told)),
        choosing.done(end("chosen"), when=is_there, do=lambda d, n: replace(d, best=d.found[n])),
        choosing.done(failure("no_such_joke")),
    ],
)  # fmt: skip


def told(request: Any) -> str:
    """Return the subject in capitals; which member asks first is not settled."""
    return str(request.messages[-1].text).rpartition(" ")[2].upper()


def test_map_and_reduce(driven: Driven) -> None:
    def models(choice: str) -> dict[Any, Any]:
        return {
            finding: Script('["cats", "dogs", "cows", "bees"]'),
            joking: Script(*[told] * 4),
            choosing: Script(choice),
        }

    asked = models("2")
    result = driven(map_reduce, Jokes("animals"), asked)
    assert (result.output.found, result.output.best) == (("CATS", "DOGS", "COWS", "BEES"), "COWS")
    assert asked[choosing].requests[0].messages[-1].text == "The best of ('CATS', 'DOGS', 'COWS', 'BEES')"
    with pytest.raises(FlowFailed, match="no_such_joke"):
        driven(map_reduce, Jokes("animals"), models("4"))


# Routing (Anthropic, n8n): a classifier, a handler for each class, one of them a flow of its own


class Kind(enum.Enum):
    BILLING = "billing"
    OUTAGE = "outage"
    OTHER = "other"


@dataclass(frozen=True)
class Letter:
    text: str
    answer: str = ""


@call(agent("router", Kind))
def routing(d: Letter) -> str:
    return d.text


@execute
def refunding(d: Letter) -> str:
    return f"refunded: {d.text}"


@call(agent("clerk"))
def explaining(d: Letter) -> str:
    return f"Explain {d.text}"


def put_answer(d: Letter, text: str) -> Letter:
    return replace(d, answer=text)


explained = Flow("explained", Letter, start=explaining, rows=[explaining.done(end("said"), do=put_answer)])
outage = subflow("outage", explained, lambda d: d)
handled = end("handled")
routed = Flow(
    "routed", Letter, start=routing,
    rows=[
        routing.done(refunding, of=Kind.BILLING),
        routing.done(outage, of=Kind.OUTAGE),
        routing.done(end("declined"), of=Kind.OTHER),
        refunding.done(handled, do=put_answer),
        outage.done(handled, do=lambda d, inner: inner),
    ],
)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "state", "answer"),
    [("billing", "handled", "refunded: help"), ("outage", "handled", "a cable"), ("other", "declined", "")],
)
def test_routing(kind: str, state: str, answer: str, driven: Driven) -> None:
    models = {routing: Script(f'"{kind}"'), explaining: Script(*["a cable"] * (kind == "outage"))}
    result = driven(routed, Letter("help"), models)
    assert (result.state, result.output.answer) == (state, answer)


# A debate (AutoGen): both sides speak at once, and read what both have said before; a judge decides, or they go on


class Verdict(enum.Enum):
    PRO = "pro"
    CON = "con"
    OPEN = "open"


@dataclass(frozen=True)
class Debate:
    question: str
    rounds: tuple[tuple[str, str], ...] = ()


def side(name: str) -> Any:
    return call(agent(name), name=name)(lambda d: f"{name} of {d.question}, after {d.rounds}")


pro, con = side("pro"), side("con")
speaking = gather("speaking", pro, con)


@call(agent("judge", Verdict))
def judging(d: Debate) -> str:
    return f"{d.rounds}"


def may_go_on(d: Debate, verdict: Verdict) -> bool:
    return len(d.rounds) < 3


debate = Flow(
    "debate", Debate, start=speaking,
    rows=[
        speaking.done(judging, do=lambda d, both: replace(d, rounds=(*d.rounds, both))),
        judging.done(end("pro_wins"), of=Verdict.PRO),
        judging.done(end("con_wins"), of=Verdict.CON),
        judging.done(speaking, of=Verdict.OPEN, when=may_go_on),
        judging.done(end("undecided"), of=Verdict.OPEN),
    ],
)  # fmt: skip


@pytest.mark.parametrize(
    ("verdicts", "state"), [("con", "con_wins"), ("open pro", "pro_wins"), ("open open open", "undecided")]
)
def test_a_debate(verdicts: str, state: str, driven: Driven) -> None:
    words = [f'"{verdict}"' for verdict in verdicts.split()]
    models = {pro: Script(*"abc"[: len(words)]), con: Script(*"xyz"[: len(words)]), judging: Script(*words)}
    result = driven(debate, Debate("tabs"), models)
    assert (result.state, result.output.rounds) == (state, tuple(zip("abc", "xyz", strict=True))[: len(words)])
    if len(words) > 1:
        assert models[con].requests[1].messages[-1].text == "con of tabs, after (('a', 'x'),)"


@pytest.mark.parametrize(
    ("flow", "data", "answers"),
    [
        (
            *(plan_and_execute, Task("?")),
            {planning: [Plan(("a",)), Plan(())], doing: ["x"], replanning: [Plan(("b",)), Plan(()), Answer("y")]},
        ),
        (saga, Trip(), {state: [state.name] for state in (flight, hotel, car, no_flight, no_hotel)}),
        (
            retrying,
            Payment(),
            {paying: ["paid", Failure("raised", "ConnectionError"), Failure("raised", "ValueError")]},
        ),
        (debate, Debate("tabs"), {speaking: [("a", "x")], judging: [*Verdict]}),
    ],
    ids=["plan and execute", "saga", "retry", "debate"],
)
def test_every_row_of_theirs_can_be_taken(flow: Flow[Any], data: Any, answers: dict[Any, Any]) -> None:
    assert explore(flow, data, answers, limit=2000).missed == ()
