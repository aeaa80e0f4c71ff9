"""Do graphs that wait for people do what their authors mean, begun in one OS process and gone on with in another?

Each is a graph that others have published (LangGraph, Step Functions, XState, Temporal), written anew, over SQLite and
with the real clock.  Of each run the first leg is done here, the second in another OS process, the third here again.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from timed_flows import Stopwatch

from fsm_agent import Agent, Approved, Context, Denied, Modified, SqliteStore, function
from fsm_agent.errors import OutcomeError
from fsm_agent.flows import (
    Flow,
    FlowFailed,
    FlowLimits,
    FlowSuspended,
    call,
    each,
    end,
    execute,
    failure,
    into,
    pause,
    subflow,
    wait,
)
from fsm_agent.runtime import SystemClock
from fsm_agent.store import AlreadyAnswered, NotAsked, Runs
from fsm_agent.testing import Script, explore
from fsm_agent.testing import call as asks

RUN = "r"


@pytest.fixture(scope="module")
def elsewhere() -> Generator[ProcessPoolExecutor]:
    """Another OS process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        pool.submit(voters, Motion(())).result()  # with what the legs import
        yield pool


@dataclass(frozen=True)
class Leg:
    """What is done in one process: where the run stands afterwards, with which data.

    Attributes:
        says: Answers by the name of a state or by key; None: it begins.
        models: The words of models, by the name of a state.
        patience_s: How long it may wait for a moment; None: no matter how long.
    """

    says: Mapping[str, Any] | None = None
    models: Mapping[str, list[Any]] = field(default_factory=dict)
    patience_s: float | None = None


def drive(name: str, leg: Leg, folder: str, is_async: bool) -> tuple[str, Any]:
    """Do a leg of a run, and return where it stands, and its data."""
    with closing(Runs(SqliteStore(f"{folder}/runs.db"), patience_s=leg.patience_s)) as runs:
        flow = replace(FLOWS[name], store=runs, world={"clock": SystemClock()})
        options: dict[str, Any] = {
            "deps": f"{folder}/log.txt",
            "clients": {flow.states[name]: Script(*words) for name, words in leg.models.items()},
        }
        answers = {flow.states.get(name, name): answer for name, answer in (leg.says or {}).items()}
        try:
            if is_async and leg.says is None:
                result = asyncio.run(flow.acall(STARTS[name], run_id=RUN, **options))
            elif is_async:
                result = asyncio.run(flow.aresume(RUN, answers, **options))
            elif leg.says is None:
                result = flow.call(STARTS[name], run_id=RUN, **options)
            else:
                result = flow.resume(RUN, answers, **options)
        except FlowSuspended as waiting:
            return f"waits in {waiting.run.state}", waiting.run.data
        except FlowFailed as failed:
            return f"failed in {failed.run.state}", failed.run.data
        return result.state, result.output


Legs = Callable[..., list[tuple[str, Any]]]


@pytest.fixture
def legs(elsewhere: ProcessPoolExecutor, tmp_path: Path) -> Legs:
    """Do the legs of a run: the even ones here, the odd ones elsewhere; with threads and with asyncio by turns."""

    def do(name: str, *legs: Leg) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = []
        for number, leg in enumerate(legs):
            args = (name, leg, str(tmp_path), (number + len(legs)) % 2 == 1)
            found.append(elsewhere.submit(drive, *args).result(60) if number % 2 else drive(*args))
        return found

    return do


def log(context: Context[str], line: str) -> str:
    """Do what must be seen from outside."""
    with open(context.deps, "a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    return line


def logged(folder: Path) -> list[str]:
    return (folder / "log.txt").read_text().splitlines() if (folder / "log.txt").exists() else []


def agent(name: str, output: Any = str, **options: Any) -> Agent[Any, Any]:
    return Agent("openai:gpt-5-mini", name=name, output=output, **options)


# Support with a sensitive function (LangGraph's customer support): the customer's refund is approved by a person


@dataclass(frozen=True)
class Ticket:
    text: str
    reply: str = ""


@function(needs_approval=True, once=True)
def refund(context: Context[str], order: int) -> str:
    """Refund an order."""
    return log(context, f"refunded {order}")


@call(agent("support", functions=[refund]))
def helping(d: Ticket) -> str:
    return d.text


support = Flow(
    "support", Ticket, start=helping, rows=[helping.done(end("helped"), do=lambda d, text: replace(d, reply=text))]
)


@pytest.mark.parametrize(
    ("answer", "done", "told"),
    [
        (Approved(), ["refunded 17"], "refunded 17"),
        (Modified('{"order": 18}'), ["refunded 18"], "refunded 18"),
        (Denied("it is too old"), [], "it is too old"),
    ],
)
def test_support_with_an_approval(answer: Any, done: list[str], told: str, legs: Legs, tmp_path: Path) -> None:
    first, last = legs(
        "support",
        Leg(models={"helping": [asks("refund", order=17)]}),
        Leg({"helping#1/ask:1.0": answer}, {"helping": [said_last]}),
    )
    assert first == ("waits in helping", Ticket("My money, please"))
    assert last[0] == "helped"
    assert told in last[1].reply
    assert logged(tmp_path) == done


def said_last(request: Any) -> str:
    return str(request.messages[-1].text)


# Escalation (Step Functions' callback with a time limit): the clerk has a moment, then the manager an hour


@dataclass(frozen=True)
class Claim:
    amount: int
    by: str = ""


@dataclass(frozen=True)
class Ruling:
    by: str
    is_granted: bool


def is_granted(d: Claim, ruling: Ruling) -> bool:
    return ruling.is_granted


def put_by(d: Claim, ruling: Ruling) -> Claim:
    return replace(d, by=ruling.by)


def escalation_after(moment_s: float) -> Flow[Claim]:
    clerk = wait(Ruling, name="clerk", within_s=moment_s)(lambda d: f"{d.amount}?")
    manager = wait(Ruling, name="manager", within_s=3600)(lambda d: f"The clerk has not ruled on {d.amount}.")
    granted, refused = end("granted"), end("refused")
    return Flow(
        "escalation", Claim, start=clerk, limits=FlowLimits(deadline_s=7200),
        rows=[
            clerk.elapsed(manager),
            manager.elapsed(failure("forgotten")),
            *[state.done(granted, when=is_granted, do=put_by) for state in (clerk, manager)],
            *[state.done(refused, do=put_by) for state in (clerk, manager)],
        ],
    )  # fmt: skip


def test_an_escalation_after_a_moment_that_is_over_in_another_process(legs: Legs) -> None:
    found = legs("escalation soon", Leg(patience_s=0), Leg({}), Leg({"manager": Ruling("max", True)}))
    assert found == [
        ("waits in clerk", Claim(900)),
        ("waits in manager", Claim(900)),
        ("granted", Claim(900, "max")),
    ]


def test_no_escalation_where_the_clerk_rules_in_time(legs: Legs) -> None:
    found = legs("escalation late", Leg(), Leg({}), Leg({"clerk": Ruling("ann", False)}))
    assert [place for place, _ in found] == ["waits in clerk", "waits in clerk", "refused"]


# Reminders (Temporal): a customer who has not paid is reminded twice, and may still pay later


@dataclass(frozen=True)
class Invoice:
    to: str
    reminders: int = 0
    paid: int = 0


SHORT_S = 0.05
paying = wait(int, name="paying", within_s=SHORT_S)(lambda d: f"Please pay, {d.to}")
patient = wait(int, name="patient", within_s=3600)(lambda d: f"Please pay, {d.to}, after {d.reminders} reminders")


@execute(once=True)
def reminding(d: Invoice, context: Context[str]) -> str:
    return log(context, f"reminder {d.reminders + 1} to {d.to}")


def is_patient(d: Invoice, _: str) -> bool:
    return d.reminders == 1


def reminded(d: Invoice, _: str) -> Invoice:
    return replace(d, reminders=d.reminders + 1)


paid = end("paid")
reminders = Flow(
    "reminders", Invoice, start=paying, limits=FlowLimits(deadline_s=7200),
    rows=[
        paying.elapsed(reminding),
        reminding.done(patient, when=is_patient, do=reminded),
        reminding.done(paying, do=reminded),
        patient.elapsed(failure("unpaid")),
        *[state.done(paid, do=lambda d, amount: replace(d, paid=amount)) for state in (paying, patient)],
    ],
)  # fmt: skip


def test_reminders(legs: Legs, tmp_path: Path) -> None:
    watch = Stopwatch()
    first, last = legs("reminders", Leg(), Leg({"patient": 80}))
    assert watch.taken_s >= 2 * SHORT_S
    assert first == ("waits in patient", Invoice("bob", reminders=2))
    assert last == ("paid", Invoice("bob", reminders=2, paid=80))
    assert logged(tmp_path) == ["reminder 1 to bob", "reminder 2 to bob"]


# A draft that a person edits (LangGraph's human in the loop): accepted, edited, or written again with a wish


@dataclass(frozen=True)
class Draft:
    topic: str
    text: str = ""
    wishes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Accept:
    by: str


@dataclass(frozen=True)
class Edit:
    text: str


@dataclass(frozen=True)
class Again:
    wish: str


@call(agent("author"))
def drafting(d: Draft) -> str:
    return f"{d.topic}: {', '.join(d.wishes)}"


@wait(Accept, Edit, Again)
def editing(d: Draft) -> str:
    return d.text


sent = end("sent")
human_edit = Flow(
    "human_edit", Draft, start=drafting,
    rows=[
        drafting.done(editing, do=lambda d, text: replace(d, text=text)),
        editing.done(sent, of=Accept),
        editing.done(sent, of=Edit, do=lambda d, edit: replace(d, text=edit.text)),
        editing.done(drafting, of=Again, do=lambda d, again: replace(d, wishes=(*d.wishes, again.wish))),
    ],
)  # fmt: skip


@pytest.mark.parametrize(("answer", "text"), [(Accept("ann"), "RAIN: SHORTER"), (Edit("It rains."), "It rains.")])
def test_a_draft_that_a_person_edits(answer: Any, text: str, legs: Legs) -> None:
    found = legs(
        "human edit",
        Leg(models={"drafting": ["It has been raining for days"]}),
        Leg({"editing": Again("shorter")}, {"drafting": [shouted]}),
        Leg({"editing": answer}),
    )
    assert found == [
        ("waits in editing", Draft("rain", "It has been raining for days")),
        ("waits in editing", Draft("rain", "RAIN: SHORTER", ("shorter",))),
        ("sent", Draft("rain", text, ("shorter",))),
    ]


def shouted(request: Any) -> str:
    return said_last(request).upper()


# A board (n8n's approvals): three people are asked at once, and answer on different days


@dataclass(frozen=True)
class Motion:
    voters: tuple[str, ...]
    votes: tuple[bool, ...] = ()


@wait(bool)
def voting(name: str) -> str:
    return f"{name}, yes or no?"


def voters(d: Motion) -> tuple[str, ...]:
    return d.voters


def is_carried(d: Motion, votes: tuple[bool, ...]) -> bool:
    return 2 * sum(votes) > len(votes)


def put_votes(d: Motion, votes: tuple[bool, ...]) -> Motion:
    return replace(d, votes=votes)


ballot = each("ballot", voting, voters)
board = Flow(
    "board", Motion, start=ballot,
    rows=[ballot.done(end("carried"), when=is_carried, do=put_votes), ballot.done(end("lost"), do=put_votes)],
)  # fmt: skip


@pytest.mark.parametrize(("last", "state"), [(True, "carried"), (False, "lost")])
def test_a_board_whose_members_vote_on_different_days(last: bool, state: str, legs: Legs) -> None:
    motion = Motion(("ann", "bob", "eve"))
    found = legs(
        "board",
        Leg(),
        Leg({"ballot#1/answer:2": True}),
        Leg({"ballot#1/answer:0": False}),
        Leg({"ballot#1/answer:1": last}),
    )
    assert [place for place, _ in found] == ["waits in ballot"] * 3 + [state]
    assert found[-1][1] == replace(motion, votes=(False, last, True))


# A job that two processes poll in turn (Step Functions), for at most a minute


@dataclass(frozen=True)
class Job:
    looks: int = 0


@execute
def looking(d: Job) -> bool:
    return d.looks == 3


def looked(d: Job, _: bool) -> Job:
    return Job(d.looks + 1)


napping = pause("napping", 2 * SHORT_S)
polling = Flow(
    "polling", Job, start=looking, limits=FlowLimits(deadline_s=60),
    rows=[
        looking.done(end("ready"), of=True, do=looked),
        looking.done(napping, of=False, do=looked),
        napping.elapsed(looking),
    ],
)  # fmt: skip


def test_a_job_is_polled_on_by_the_next_process(legs: Legs) -> None:
    watch = Stopwatch()
    first, last = legs("polling", Leg(patience_s=0), Leg({}))
    assert (first[0], last) == ("waits in napping", ("ready", Job(4)))
    assert watch.taken_s >= 3 * 2 * SHORT_S


# A quorum (AWS Step Functions): processes are polled side by side until two of three are complete, for a while


@dataclass(frozen=True)
class Quorum:
    processes: tuple[str, ...] = ("slow a", "quick b", "dead c", "quick d")
    complete: tuple[str, ...] = ()


@execute
def checking(name: str, context: Context[str]) -> bool:
    log(context, name)
    polls = Path(context.deps).read_text().splitlines().count(name)
    return polls > {"quick": 1, "slow": 2, "dead": 99}[name.split()[0]]


between_polls = pause("between_polls", 2 * SHORT_S)
one_process = Flow(
    "one process", str, start=checking,
    rows=[checking.done(end("complete"), of=True), checking.done(between_polls, of=False),
          between_polls.elapsed(checking)],
)  # fmt: skip
processing = subflow("processing", one_process, lambda name: name)


def processes(d: Quorum) -> tuple[str, ...]:
    return d.processes


def quorum_of(share: float, within_s: float) -> Flow[Quorum]:
    reaching: Any = each("reaching", processing, processes, enough=share, within_s=within_s)
    return Flow(
        "quorum", Quorum, start=reaching,
        rows=[reaching.done(end("reached"), do=into("complete")), reaching.elapsed(end("out_of_time"))],
    )  # fmt: skip


def test_a_quorum_is_reached_by_those_that_are_complete_first(legs: Legs, tmp_path: Path) -> None:
    first, last = legs("quorum", Leg(patience_s=0), Leg({}))
    assert (first[0], last) == ("waits in reaching", ("reached", replace(Quorum(), complete=("quick b", "quick d"))))
    assert logged(tmp_path).count("dead c") < 9


def test_a_quorum_that_needs_the_dead_is_out_of_time(legs: Legs) -> None:
    assert legs("whole quorum", Leg(patience_s=0), Leg({}))[1] == ("out_of_time", Quorum())


# What holds for all of them

FLOWS: dict[str, Flow[Any]] = {
    "support": support,
    "escalation soon": escalation_after(0.5),  # long enough to come to rest before
    "escalation late": escalation_after(3600),
    "reminders": reminders,
    "human edit": human_edit,
    "board": board,
    "polling": polling,
    "quorum": quorum_of(0.5, 60),
    "whole quorum": quorum_of(1.0, 0.6),
}
STARTS: dict[str, Any] = {
    "support": Ticket("My money, please"),
    "escalation soon": Claim(900),
    "escalation late": Claim(900),
    "reminders": Invoice("bob"),
    "human edit": Draft("rain"),
    "board": Motion(("ann", "bob", "eve")),
    "polling": Job(),
    "quorum": Quorum(),
    "whole quorum": Quorum(),
}
ASKED = asks("refund", order=17)


@pytest.mark.parametrize(
    ("name", "before", "after", "question", "answers"),
    [
        ("support", {"helping": [ASKED]}, {"helping": ["x"]}, "helping#1/ask:1.0", (Approved(), Denied("no"))),
        ("human edit", {"drafting": ["x"]}, {}, "editing", (Accept("ann"), Edit("mine"))),
        ("escalation late", {}, {}, "clerk", (Ruling("ann", True), Ruling("bob", False))),
    ],
    ids=["support", "human edit", "escalation"],
)
def test_the_first_answer_counts(
    name: str, before: Any, after: Any, question: str, answers: Any, elsewhere: ProcessPoolExecutor, tmp_path: Path
) -> None:
    first, second = answers
    drive(name, Leg(models=before), str(tmp_path), False)
    place, data = elsewhere.submit(drive, name, Leg({question: first}, after), str(tmp_path), False).result(60)
    with pytest.raises((AlreadyAnswered, NotAsked, OutcomeError)):
        drive(name, Leg({question: second}), str(tmp_path), False)
    assert drive(name, Leg({}), str(tmp_path), False) == (place, data)
    assert place in ("helped", "sent", "granted")


@pytest.mark.parametrize(
    ("name", "answers"),
    [
        ("escalation late", {key: [Ruling("a", True), Ruling("a", False)] for key in ("clerk", "manager")}),
        ("reminders", {"paying": [1], "patient": [2], "reminding": [""]}),
        ("human edit", {"drafting": ["x"], "editing": [Accept("a"), Edit("b"), Again("c")]}),
        ("board", {"ballot": [(True, True, False), (False, False, True)]}),
    ],
    ids=["escalation", "reminders", "human edit", "board"],
)
def test_every_row_can_be_taken(name: str, answers: dict[str, Any]) -> None:
    flow = FLOWS[name]
    given = {flow.states[state]: values for state, values in answers.items()}
    assert explore(flow, STARTS[name], given, limit=500).missed == ()
