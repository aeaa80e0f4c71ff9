"""XState, examples/book-lending-workflow/main.ts (2023; of the Serverless Workflow specification): a book is lent.

Its authors mean: a book on loan is reported to the lender, who holds it or declines; a hold sleeps two weeks, and the
status is looked up again; an available one is checked out, and then the lender is told (a state with states inside);
a status that is neither ends it.
"""

from dataclasses import dataclass, replace
from enum import Enum

from harness import DAY_S, Day, Port, log

from fsm_agent import Context
from fsm_agent.flows import Flow, end, execute, pause, subflow, wait


class Status(Enum):
    ON_LOAN = "onloan"
    AVAILABLE = "available"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Request:
    book: str
    lender: str


class Answer(Enum):
    HOLD = "holdBook"
    DECLINE = "declineBookhold"


@dataclass(frozen=True)
class Lending:
    request: Request = Request("", "")
    status: Status = Status.UNKNOWN


@wait(Request)
def requesting(d: Lending) -> str:
    return "Which book, for whom?"


@execute
def looking_up(d: Lending) -> Status:
    return Status.AVAILABLE if d.status is Status.ON_LOAN else Status.ON_LOAN  # it is back two weeks later


@execute
def reporting(d: Lending, context: Context[str]) -> None:
    log(context, f"{d.request.lender}: {d.request.book} is on loan")


@wait(Answer)
def lender(d: Lending) -> str:
    return f"{d.request.book} is on loan. Hold it?"


@execute
def holding(d: Lending, context: Context[str]) -> None:
    log(context, f"held for {d.request.lender}")


@execute
def cancelling(d: Lending, context: Context[str]) -> None:
    log(context, "cancelled")


sleeping = pause("sleeping", 14 * DAY_S)


@execute
def checking_out(r: Request, context: Context[str]) -> None:
    log(context, f"{r.book} out")


@execute
def notifying(r: Request, context: Context[str]) -> None:
    log(context, f"{r.lender}: it is yours")


CHECK_OUT = Flow(
    "check_out",
    Request,
    start=checking_out,
    rows=[checking_out.done(notifying), notifying.done(end("checked_out"))],
)


def request_of(d: Lending) -> Request:
    return d.request


lending_out = subflow("lending_out", CHECK_OUT, request_of)
lent, not_lent = end("lent"), end("not_lent")


def keep_status(d: Lending, status: Status) -> Lending:
    return replace(d, status=status)


FLOW = Flow(
    "book_lending",
    Lending,
    start=requesting,
    rows=[
        requesting.done(looking_up, do=lambda d, request: replace(d, request=request)),
        looking_up.done(reporting, of=Status.ON_LOAN, do=keep_status),
        looking_up.done(lending_out, of=Status.AVAILABLE, do=keep_status),
        looking_up.done(not_lent, of=Status.UNKNOWN, do=keep_status),
        reporting.done(lender),
        lender.done(holding, of=Answer.HOLD),
        lender.done(cancelling, of=Answer.DECLINE),
        holding.done(sleeping),
        sleeping.elapsed(looking_up),
        cancelling.done(not_lent),
        lending_out.done(lent),
    ],
)


def check(d, log):
    assert d.status is Status.AVAILABLE
    assert log == ["John: Hitchhiker is on loan", "held for John", "Hitchhiker out", "John: it is yours"]


PORT = Port(
    FLOW,
    Lending(),
    [
        Day("requesting"),
        Day("lender", {requesting: Request("Hitchhiker", "John")}),
        Day("sleeping", {lender: Answer.HOLD}, after_s=DAY_S),
        Day("sleeping", after_s=14 * DAY_S),
        Day("lent", after_s=15 * DAY_S),
    ],
    check,
    gives={
        requesting: [Request("b", "l")],
        looking_up: [*Status],
        reporting: [None],
        lender: [*Answer],
        holding: [None],
        cancelling: [None],
        lending_out: [Request("b", "l")],
    },
)
