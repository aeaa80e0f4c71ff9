"""Do graphs that others have published do here what their authors mean, with the real clock and under both drivers?

Each is a graph of AWS Step Functions, n8n or AutoGen, written anew.  Those that wait for people are in
`test_strangers_waits`, and whole examples, with the clock of a test, in `ports`.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from timed_flows import Stopwatch

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
from fsm_agent.runtime import SystemClock
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


@pytest.mark.system
@pytest.mark.parametrize("is_inside", [False, True])
def test_polling_with_a_limit(is_inside: bool, driven: Driven) -> None:
    nested = subflow("nested", polling, lambda d: d, within_s=60)
    around = Flow("around", Job, start=nested, rows=[nested.done(end("ready"), do=lambda d, a: a)])
    flow: Flow[Any] = around if is_inside else polling
    watch = Stopwatch()
    result = driven(flow, Job(4))
    assert (result.state, result.output.looks) == ("ready", 4)
    assert watch.taken_s >= 3 * 0.03
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


@pytest.mark.system
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
    watch = Stopwatch()
    try:
        result = driven(retrying, Payment(down, error))
    except FlowFailed as failed:
        result = failed.result
    assert (result.state, result.output.tries) == (state, tries)
    assert watch.taken_s >= sum(PAUSES_S[:tries])


@pytest.mark.system
def test_a_deadline_counts_from_the_start_of_all_tries(driven: Driven) -> None:
    watch = Stopwatch()
    with pytest.raises(FlowFailed, match=r"in Expired has failed, .* 0\.4 s are over"):
        driven(retrying_after(0.25, 0.25, 30, deadline_s=0.4), Payment(9))
    assert 0.4 <= watch.taken_s < 10
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


@pytest.mark.system
@pytest.mark.parametrize(
    ("asked", "state", "rounds"),
    [
        (("yes 1", "yes 2", "no"), "agreed", 1),
        (("yes 1", "down yes 2", "down no"), "agreed", 2),
        (("yes 1", "no 2", "no 3"), "refused", 3),
    ],
)
def test_a_quorum(asked: tuple[str, ...], state: str, rounds: int, driven: Driven) -> None:
    watch = Stopwatch()
    result = driven(quorum, Vote(asked))
    assert watch.taken_s >= (rounds - 1) * 0.02
    assert (result.state, result.output.rounds) == (state, rounds)


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
            retrying,
            Payment(),
            {paying: ["paid", Failure("raised", "ConnectionError"), Failure("raised", "ValueError")]},
        ),
        (debate, Debate("tabs"), {speaking: [("a", "x")], judging: [*Verdict]}),
    ],
    ids=["retry", "debate"],
)
def test_every_row_of_theirs_can_be_taken(flow: Flow[Any], data: Any, answers: dict[Any, Any]) -> None:
    assert explore(flow, data, answers, limit=2000).missed == ()
