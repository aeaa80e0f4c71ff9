"""The sixteen mistakes that are planted in a flow, one in each function, with what type checkers say of its line.

`MISTAKES` says who finds each before anything runs: mypy, pyright, or the definition, with its message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from fsm_agent import Agent
from fsm_agent.flows import Flow, ask, end, wait


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


@wait(str)
def customer(t: Ticket) -> str:
    return t.text


@ask(bot)
def elsewhere(n: int) -> str:
    return "?"


sent = end("sent")


def may_ask(t: Ticket, a: Unclear) -> bool:
    return t.asked < 3


def flow(*rows: Any) -> Flow[Ticket]:
    asked = [research.done(customer, of=Unclear), customer.done(research)]
    return Flow("support", Ticket, start=research, rows=[*rows, *asked])


def misspelt_target() -> object:
    return flow(research.done(snet, of=Known))  # noqa: F821


def misspelt_trigger() -> object:
    return flow(research.dome(sent, of=Known))


def row_out_of_an_end() -> object:
    return flow(research.done(sent, of=Known), sent.done(customer))


def trigger_that_never_happens() -> object:
    return flow(research.done(sent, of=Known), customer.failed(sent))


def guard_of_another_answer() -> object:
    return flow(research.done(customer, of=Known, when=may_ask), research.done(sent, of=Known))


def field_that_no_answer_has() -> object:
    return flow(research.done(sent, of=Known, do=lambda t, a: replace(t, text=a.wish)))


def action_that_returns_nothing() -> object:
    return flow(research.done(sent, of=Known, do=lambda t, a: print(a.facts)))


def field_that_the_data_have_not() -> object:
    return flow(research.done(sent, of=Known, do=lambda t, a: replace(t, txet=a.facts)))


def field_of_another_type() -> object:
    return flow(research.done(sent, of=Known, do=lambda t, a: replace(t, asked=a.facts)))


def state_of_other_data() -> object:
    return flow(research.done(elsewhere, of=Known), elsewhere.done(sent))


def flow_of_other_data() -> object:
    return Flow("support", Known, start=customer, rows=[customer.done(sent)])


def type_without_a_row() -> object:
    return Flow("support", Ticket, start=research, rows=[research.done(sent, of=Known)])


def guards_alone() -> object:
    rows = [research.done(sent, of=Known), research.done(sent, of=Unclear, when=may_ask)]
    return Flow("support", Ticket, start=research, rows=rows)


def state_that_nothing_leads_to() -> object:
    return Flow("support", Ticket, start=research, rows=[research.done(sent), customer.done(sent)])


def loop_without_a_way_out() -> object:
    return flow(research.done(customer, of=Known))


def time_that_is_never_over() -> object:
    return flow(research.done(sent, of=Known), customer.elapsed(sent))


# The mistake, who finds it, and what the definition says; "": it has nothing to say.
MISTAKES: list[tuple[Callable[[], object], str, str]] = [
    (misspelt_target, "mypy pyright definition", "name 'snet' is not defined"),
    (misspelt_trigger, "mypy pyright definition", "CallState.*'dome'"),
    (row_out_of_an_end, "mypy pyright definition", "End.*'done'"),
    (trigger_that_never_happens, "mypy pyright definition", "WaitState.*'failed'"),
    (guard_of_another_answer, "mypy pyright", ""),
    (field_that_no_answer_has, "mypy pyright", ""),
    (action_that_returns_nothing, "mypy pyright", ""),
    (field_that_the_data_have_not, "mypy", ""),
    (field_of_another_type, "mypy", ""),
    (state_of_other_data, "mypy pyright", ""),
    (flow_of_other_data, "mypy pyright", ""),
    (type_without_a_row, "definition", r"research.*'done Unclear'.*research.done\(…, of=Unclear\)"),
    (guards_alone, "definition", r"research.*research --done Unclear \[may_ask\]--> sent"),
    (state_that_nothing_leads_to, "definition", "customer"),
    (loop_without_a_way_out, "definition", "research"),
    (time_that_is_never_over, "definition", "customer --elapsed--> sent.*within_s"),
]
