"""A support ticket as a flow: triage, research, a question to the customer, two drafts at once, a judge, and a review.

Run it with ``python examples/support.py "My parcel has not arrived."``.  You play the customer and the reviewer at the
terminal, and the embedded model does the rest.  An empty line leaves a question for another day.  You can stop the
program at any time, with Ctrl-C or by killing it.  If you start it again with the same words, it continues where it
stopped.

The embedded model is very small, so the table does not rely on it: a ticket is dropped as spam only if it contains a
link, missing facts are asked for, and a reply is drafted even if the facts could not be read.  With a larger model
(``MODEL``), the same table produces better letters.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from fsm_agent import Agent, Context, Settings, Stepped
from fsm_agent.call import Returned, RunAgain
from fsm_agent.flows import (
    AwaitAnswer,
    Flow,
    FlowFailed,
    FlowSuspended,
    ask,
    end,
    execute,
    gather,
    into,
    wait,
)
from fsm_agent.store import RunBusy

DAY_S = 24 * 3600.0
MODEL, SETTINGS = "local:", Settings(temperature=0, seed=1, max_tokens=200)
Line = Annotated[str, Field(max_length=160)]  # with a greatest length, or a small model might never end a text


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
    facts: Annotated[tuple[Line, ...], Field(max_length=2)]


@dataclass(frozen=True)
class Unclear:
    question: Line


@dataclass(frozen=True)
class Draft:
    text: Annotated[str, Field(max_length=300)]


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

triager = Agent(MODEL, system="You sort tickets of customers.", name="triager", settings=SETTINGS)
researcher = Agent(MODEL, system="You collect the facts that an answer needs.", name="researcher", settings=SETTINGS)
warm = Agent(MODEL, system="You write short, warm replies to customers.", name="warm", settings=SETTINGS)
terse = Agent(MODEL, system="You reply to customers in one sentence.", name="terse", settings=SETTINGS)
judge = Agent(MODEL, system="You choose the better of two replies.", name="judge", settings=SETTINGS)


@ask(triager, Sorted)
def triage(t: Ticket) -> str:
    return f"Of which kind is this ticket, and is it spam? {t.text}"


@ask(researcher, Known, Unclear)
def research(t: Ticket) -> str:
    known = "; ".join(t.facts) or "nothing"
    return f"What is known that helps to answer {t.text!r}, or what has to be asked? Known: {known}"


@wait(str, within_s=DAY_S)
def customer(t: Ticket) -> str:
    """The customer's answer, by email."""
    return t.question


def letter(t: Ticket) -> str:
    return f"A customer writes: {t.text!r} We know: {'; '.join(t.facts)}. Write our reply to the customer. {t.wish}"


@ask(warm, Draft)
def draft_warmly(t: Ticket) -> str:
    return letter(t)


@ask(terse, Draft)
def draft_tersely(t: Ticket) -> str:
    return letter(t)


drafting = gather("drafting", draft_warmly, draft_tersely)


@ask(judge, Choice)
def judging(t: Ticket) -> str:
    return "\n".join(["Which of these is best, 0 or 1?", *t.drafts])


@wait(Approve, Change)
def review(t: Ticket) -> str:
    """Our own review of the reply."""
    return t.reply


@execute(once=True)
def sending(t: Ticket, context: Context[Any]) -> str:
    """Send the reply, only once, even after a crash."""
    with outbox().open("a", encoding="utf-8") as file:
        file.write(f"{context.idempotency_key}\t{t.reply!r}\n")
    return f"sent as {context.idempotency_key}"


sent, closed, dropped = end("sent"), end("closed"), end("dropped")
rejected = end("rejected", failed="the reviewer wished for more than two changes")


# Guards and actions: pure, and typed by the row that they stand in


def is_spam(t: Ticket, a: Sorted) -> bool:
    return a.is_spam and "://" in t.text


def is_guess(t: Ticket) -> bool:
    return not t.facts  # none are told yet


def may_ask(t: Ticket) -> bool:
    return t.asked < 3


def may_change(t: Ticket) -> bool:
    return t.changes < 2


def is_there(t: Ticket, a: Choice) -> bool:
    return 0 <= a.best < len(t.drafts)


def keep_drafts(t: Ticket, a: tuple[Draft, Draft]) -> Ticket:
    return replace(t, drafts=(a[0].text, a[1].text))


def keep_change(t: Ticket, a: Change) -> Ticket:
    return replace(t, wish=f"The reviewer wishes: {a.wish}", changes=t.changes + 1)


support = Flow(
    "support",
    Ticket,
    start=triage,
    rows=[
        triage.done(dropped, when=is_spam),
        triage.done(research, do=lambda t, a: replace(t, kind=a.kind)),
        research.done(customer, of=Unclear, when=may_ask, do=lambda t, a: replace(t, question=a.question)),
        research.done(drafting, of=Unclear),
        research.done(
            customer, of=Known, when=is_guess, do=lambda t, a: replace(t, question="Which order is it about?")
        ),
        research.done(drafting, of=Known, do=lambda t, a: replace(t, facts=t.facts + a.facts)),
        research.failed(drafting),
        customer.done(research, do=lambda t, a: replace(t, facts=(*t.facts, a), asked=t.asked + 1)),
        customer.elapsed(closed),
        drafting.done(judging, do=keep_drafts),
        judging.done(review, when=is_there, do=lambda t, a: replace(t, reply=t.drafts[a.best])),
        judging.done(review, do=lambda t, a: replace(t, reply=t.drafts[0])),
        judging.failed(review, do=lambda t, why: replace(t, reply=t.drafts[0])),
        review.done(sending, of=Approve),
        review.done(drafting, of=Change, when=may_change, do=keep_change),
        review.done(rejected, of=Change),
        sending.done(sent, do=into("receipt")),
    ],
)


def outbox() -> Path:
    return Path("outbox.txt")


class Progress:
    """A hook of the flow: prints each of its steps."""

    def on_stepped(self, step: Stepped) -> None:
        print(f"  {step.source} --{step.trigger}--> {step.to}")


def asking(question: AwaitAnswer) -> Any:
    """Ask the person at the terminal; an empty line leaves the question for another day."""
    print(f"\n[{question.state.name}] {question.shown}")
    if question.state is review:
        words = typed("'ok', or what is to be changed: ")
        return None if not words else Approve("terminal") if words.lower() == "ok" else Change(words)
    return typed("Answer: ") or None


def typed(prompt: str) -> str:
    try:
        return input(prompt).strip()
    except EOFError:
        print()
        return ""


def run(text: str) -> None:
    """Start or continue a ticket, until it ends or has to wait for another day."""
    here, run_id = replace(support, store="support.db", answer=asking, hooks=[Progress()]), text[:60]
    answers: dict[str, Any] = {}
    while True:
        try:
            result = here.runs.resume(run_id, answers) if answers else here.call(Ticket(text), run_id=run_id)
        except FlowSuspended as waiting:
            doubts = [effect.key for effect in waiting.run.effects if effect.key.startswith("reconcile:")]
            words = typed(f"Stopped while it was sent. Is the reply in {outbox()}? yes or no: ") if doubts else ""
            if not words:
                print(f"It waits in {waiting.run.state}. Start it again to continue.")
                return
            is_sent = words.lower().startswith("y")
            answers = {doubts[0]: Returned(text='"sent before it stopped"') if is_sent else RunAgain()}
        else:
            print(f"{result.state}: {result.output.receipt or result.output.reply}")
            return


def main() -> None:
    try:
        run(" ".join(sys.argv[1:]) or "I have paid twice for order 17.")
    except (FlowFailed, RunBusy) as error:
        print(error)
    except KeyboardInterrupt:
        print("\nStopped. Start it again to continue.")


if __name__ == "__main__":
    main()
