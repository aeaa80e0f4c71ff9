"""A support ticket as a flow: sorting, research, a question to the customer, two drafts at once, a judge, a review.

Run it with `python examples/support.py`: a person at the terminal is the customer and the reviewer, and the embedded
model does the rest.  Stop it whenever you like, with Ctrl-C or by killing it: the next start goes on where it was.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fsm_agent import Agent, Context
from fsm_agent.flows import (
    AwaitAnswer,
    Flow,
    FlowFailed,
    FlowSuspended,
    call,
    end,
    execute,
    failure,
    gather,
    wait,
)

DAY_S = 24 * 3600.0


# What the flow works on: one frozen value; and what its states may give


@dataclass(frozen=True)
class Ticket:
    text: str
    kind: str = ""
    facts: tuple[str, ...] = ()
    question: str = ""
    asked: int = 0
    drafts: tuple[str, ...] = ()
    reply: str = ""
    wish: str = ""  # what the reviewer wants changed
    changes: int = 0
    receipt: str = ""


@dataclass(frozen=True)
class Sorted:
    kind: str
    is_spam: bool = False


@dataclass(frozen=True)
class Known:
    facts: tuple[str, ...]


@dataclass(frozen=True)
class Unclear:
    question: str


@dataclass(frozen=True)
class Draft:
    text: str


@dataclass(frozen=True)
class Choice:
    best: int


@dataclass(frozen=True)
class Approve:
    by: str


@dataclass(frozen=True)
class Change:
    wish: str


# The states: each says what it waits for, given the data

triager = Agent("local:", system="You sort tickets of customers.", name="triager")
researcher = Agent("local:", system="You collect the facts that an answer needs.", name="researcher")
warm = Agent("local:", system="You write warm replies to customers.", name="warm")
terse = Agent("local:", system="You write terse replies to customers.", name="terse")
judge = Agent("local:", system="You choose the better of two replies.", name="judge")


@call(triager, Sorted)
def triage(t: Ticket) -> str:
    return f"Of which kind is this ticket, and is it spam? {t.text}"


@call(researcher, Known, Unclear)
def research(t: Ticket) -> str:
    return f"What is known that helps to answer {t.text!r}, or what has to be asked? Known: {'; '.join(t.facts)}"


@wait(str, within_s=DAY_S)
def customer(t: Ticket) -> str:
    """The customer's answer, by mail."""
    return t.question


@call(warm, Draft)
def draft_warmly(t: Ticket) -> str:
    return f"Reply to {t.text!r}. Facts: {'; '.join(t.facts)}. {t.wish}"


@call(terse, Draft)
def draft_tersely(t: Ticket) -> str:
    return f"Reply to {t.text!r}. Facts: {'; '.join(t.facts)}. {t.wish}"


drafting = gather("drafting", draft_warmly, draft_tersely)


@call(judge, Choice)
def judging(t: Ticket) -> str:
    return "\n".join(["Which of these is best, 0 or 1?", *t.drafts])


@wait(Approve, Change)
def review(t: Ticket) -> str:
    """Our own review of the reply."""
    return t.reply


@execute(once=True)
def sending(t: Ticket, context: Context[Any]) -> str:
    """The reply goes out once, whatever happens to us meanwhile."""
    with outbox().open("a", encoding="utf-8") as file:
        file.write(f"{context.idempotency_key}\t{t.reply!r}\n")
    return f"sent as {context.idempotency_key}"


sent, closed, dropped = end("sent"), end("closed"), end("dropped")
rejected = failure("rejected", "the reviewer wished for more than two changes")


# Guards and actions: pure, and typed by the row that they stand in


def is_spam(t: Ticket, a: Sorted) -> bool:
    return a.is_spam


def may_ask(t: Ticket, a: Unclear) -> bool:
    return t.asked < 3


def may_change(t: Ticket, a: Change) -> bool:
    return t.changes < 2


def is_there(t: Ticket, a: Choice) -> bool:
    return 0 <= a.best < len(t.drafts)


def keep_drafts(t: Ticket, a: tuple[Draft, Draft]) -> Ticket:
    return replace(t, drafts=(a[0].text, a[1].text))


def keep_change(t: Ticket, a: Change) -> Ticket:
    return replace(t, wish=f"But: {a.wish}", changes=t.changes + 1)


support = Flow(
    "support",
    Ticket,
    start=triage,
    rows=[
        triage.done(dropped, when=is_spam),
        triage.done(research, do=lambda t, a: replace(t, kind=a.kind)),
        research.done(customer, of=Unclear, when=may_ask, do=lambda t, a: replace(t, question=a.question)),
        research.done(drafting, of=Unclear),
        research.done(drafting, of=Known, do=lambda t, a: replace(t, facts=t.facts + a.facts)),
        customer.done(research, do=lambda t, a: replace(t, facts=(*t.facts, a), asked=t.asked + 1)),
        customer.elapsed(closed),
        drafting.done(judging, do=keep_drafts),
        judging.done(review, when=is_there, do=lambda t, a: replace(t, reply=t.drafts[a.best])),
        judging.done(review, do=lambda t, a: replace(t, reply=t.drafts[0])),
        judging.failed(review, do=lambda t, why: replace(t, reply=t.drafts[0])),
        review.done(sending, of=Approve),
        review.done(drafting, of=Change, when=may_change, do=keep_change),
        review.done(rejected, of=Change),
        sending.done(sent, do=lambda t, receipt: replace(t, receipt=receipt)),
    ],
)


def outbox() -> Path:
    return Path("outbox.txt")


def ask(question: AwaitAnswer) -> Any:
    """Ask the person at the terminal; an empty line leaves it for another day."""
    print(f"\n[{question.state.name}] {question.shown}")
    if question.state is review:
        words = input("'ok', or what is to be changed: ").strip()
        return None if not words else Approve("terminal") if words == "ok" else Change(words)
    return input("Answer: ").strip() or None


def main() -> None:
    here = replace(support, store="support.db", answer=ask)
    text = " ".join(sys.argv[1:]) or "I have paid twice for order 17."
    try:
        result = here.call(Ticket(text), run_id=text[:60])
    except FlowSuspended as waiting:
        print(f"{waiting}\nStart it again to go on.")
    except FlowFailed as failed:
        print(failed)
    else:
        print(f"{result.state}: {result.data.receipt or result.data.reply}")


if __name__ == "__main__":
    main()
