"""Mistakes in flows that type checkers find, each with what mypy and pyright say of its line; never run.

Those that a new user makes are in `planted_flows`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fsm_agent import Agent, Context
from fsm_agent.flows import Flow, any_state, ask, each, end, execute, gather, into, race, subflow, wait


@dataclass(frozen=True)
class Ticket:
    text: str
    asked: int = 0


@dataclass(frozen=True)
class Known:
    facts: str


@dataclass(frozen=True)
class Unclear:
    question: str


bot = Agent("openai:gpt-5-mini")


@ask(bot, Known, Unclear)
def research(t: Ticket) -> str:
    return t.text


@wait(str, within_s=60)
def customer(t: Ticket) -> str:
    return t.text


@execute
def sending(t: Ticket, context: Context) -> int:
    return 1


@ask(bot)
def other(n: int) -> str:
    return "?"


@ask(bot, Known, Unclear, whole=True)
def whole(t: Ticket) -> str:
    return t.text


def chooses(t: Ticket) -> Agent:
    return bot


@ask(chooses, Known, whole=True)
def chosen(t: Ticket) -> str:
    return t.text


@ask(chooses, Known, whole=True)  # mypy: arg-type; pyright: reportArgumentType
def misplaced(n: int) -> str:
    return "?"


@ask("role", Known, whole=True)
def by_role(t: Ticket) -> str:
    return t.text


sent = end("sent")


def may_ask(t: Ticket, a: Unclear) -> bool:
    return t.asked < 3


gather("both", research, other)  # mypy: misc; pyright: reportArgumentType, reportCallIssue
whole.done(sent, do=lambda t, a: replace(t, text=a.outptu))  # mypy: attr-defined; pyright: reportAttributeAccessIssue
whole.done(customer, of=Known, when=may_ask)  # mypy: arg-type; pyright: reportCallIssue, reportArgumentType
whole.done(sent, of=Known, do=lambda t, a: replace(t, asked=a.output))  # mypy: arg-type
whole.done(sent, of=Known, do=lambda t, a: a.output.wish)  # mypy: attr-defined; pyright: reportAttributeAccessIssue
chosen.done(sent, do=lambda t, a: a.output.wish)  # mypy: attr-defined; pyright: reportAttributeAccessIssue
by_role.done(sent, do=lambda t, a: a.output.wish)  # mypy: attr-defined; pyright: reportAttributeAccessIssue
good = Flow("good", Ticket, start=customer, rows=[customer.done(sent)])
good.call("text")  # mypy: arg-type; pyright: reportArgumentType
good.prepare(Ticket("x")).give(customer, 17)  # mypy: misc; pyright: reportArgumentType
Flow("bad", Known, start=customer, rows=[customer.done(sent)])  # mypy: misc; pyright: reportArgumentType
good.call(Ticket(good.call(Ticket("x")).output.txet))  # mypy: attr-defined; pyright: reportAttributeAccessIssue
ask("role")  # mypy: call-overload; pyright: reportArgumentType
ask(chooses, whole=True)  # mypy: call-overload; pyright: reportArgumentType, reportCallIssue
ask(bot, wihtin_s=60)  # mypy: call-overload; pyright: reportCallIssue
wait(str, early="yes")  # mypy: call-overload; pyright: reportArgumentType, reportCallIssue
ask(bot, early=True)  # mypy: call-overload; pyright: reportCallIssue
wait(str, within_s="a day")  # mypy: call-overload; pyright: reportArgumentType, reportCallIssue
execute(wihtin_s=60)  # mypy: call-overload; pyright: reportCallIssue
gather("both", customer, sending, within_s=lambda t: t.due_s)  # mypy: attr-defined; pyright: reportAttributeAccessIssue


def length_of(t: Ticket) -> int:
    return len(t.text)


def tickets(t: Ticket) -> list[Ticket]:
    return [t]


subflow("wrong", good, length_of)  # mypy: arg-type; pyright: reportArgumentType
subflow("by_lambda", good, lambda t: Ticket(t.text))  # only pyright: reportAttributeAccessIssue
each("wrong", customer, length_of)  # mypy: arg-type; pyright: reportArgumentType
each("by_lambda", customer, lambda t: t.tickets)  # only pyright: reportAttributeAccessIssue
each("settled", sending, tickets, settled=True, enough=2)  # mypy: call-overload; pyright: reportArgumentType
race("first", customer, sending, enough=2)  # mypy: call-overload; pyright: reportCallIssue
each("settled", sending, lambda t: [Ticket("x")], setled=True)  # mypy: call-overload; pyright: reportCallIssue


def of_text(text: str) -> bool:
    return True


def by_length(t: Ticket) -> int:
    return len(t.text)


customer.done(sent, when=of_text)  # mypy: arg-type; pyright: reportArgumentType
customer.done(sent, when=by_length)  # mypy: arg-type; pyright: reportArgumentType
sending.failed(sent, when=may_ask)  # mypy: arg-type; pyright: reportArgumentType
any_state(customer, other)  # mypy: misc; pyright: reportArgumentType
any_state(customer, sent)  # mypy: arg-type; pyright: reportArgumentType
shared = any_state(sending, research)
shared.failed(sent, do=lambda t, why: why.detial)  # mypy: attr-defined; pyright: reportAttributeAccessIssue
Flow("starless", Ticket, start=sending, rows=[shared.done(sent)])  # mypy: list-item; pyright: reportArgumentType
customer.done(sent, do=into("text", "more"))  # mypy: call-arg; pyright: reportCallIssue
customer.done(sent, do=into)  # mypy: arg-type; pyright: reportArgumentType
customer.done(sent, when=into("text"))  # mypy: arg-type; pyright: reportArgumentType


def start_of(t: Ticket) -> Ticket:
    return t


within = subflow("within", good, start_of, within_s=60)
within.elapsed(sent, do=lambda t, inner: inner.wish)  # mypy: attr-defined; pyright: reportAttributeAccessIssue
customer.cancelled(sent, do=lambda t, why: why.wish)  # mypy: attr-defined; pyright: reportAttributeAccessIssue
wait(str, until="tomorrow")  # mypy: call-overload; pyright: reportArgumentType, reportCallIssue
