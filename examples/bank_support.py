"""A bank's support agent: python examples/bank_support.py "I just lost my card!" [provider:model]

This example shows typed deps, a system prompt with a value from the deps, a function that reads them, and an answer
with validated fields. If you name no model, a script stands in for it, so this needs neither a key nor a network.
"""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, Field

from fsm_agent import Agent, Client, Context, Dialog, Prompt, function
from fsm_agent.testing import Script, function_call


@dataclass
class Bank:
    """The bank's data; in production, this would be a database."""

    names: dict[int, str] = field(default_factory=lambda: {123: "Maria"})
    balances_eur: dict[int, float] = field(default_factory=lambda: {123: 100.0})
    pending_eur: dict[int, float] = field(default_factory=lambda: {123: 23.45})


@dataclass
class SupportDeps:
    """The customer whom a call is about, and the bank's data."""

    customer_id: int
    bank: Bank


class SupportOutput(BaseModel):
    """The answer to a customer."""

    advice: str = Field(min_length=1, description="Advice for the customer")
    block_card: bool = Field(description="Whether to block the customer's card")
    risk: int = Field(ge=0, le=10, description="Risk of the query, from 0 to 10")


@function
def customer_balance(context: Context[SupportDeps], include_pending: bool) -> str:
    """Return the balance of the customer's account.

    Args:
        include_pending: Whether to include transactions that are not booked yet.
    """
    bank, customer_id = context.deps.bank, context.deps.customer_id
    pending_eur = bank.pending_eur[customer_id] if include_pending else 0.0
    return f"{bank.balances_eur[customer_id] + pending_eur:.2f} EUR"


SYSTEM = Prompt(
    "You are a support agent of our bank: advise the customer, and judge the risk of the query. "
    "The customer's name is {{ name }}; use it in your answer.",
    path="bank/support",
)


def support(model: str | Client, hooks: Sequence[Any] = ()) -> Agent[SupportDeps, SupportOutput]:
    return Agent[SupportDeps, SupportOutput](
        model, system=SYSTEM, functions=[customer_balance], output=SupportOutput, name="support", hooks=hooks
    )


def dialog_with(agent: Agent[SupportDeps, SupportOutput], query: str, deps: SupportDeps) -> Dialog:
    return agent.init_dialog(name=deps.bank.names[deps.customer_id]).put(query)


def ask(agent: Agent[SupportDeps, SupportOutput], query: str, deps: SupportDeps) -> SupportOutput:
    output: SupportOutput = agent.call(dialog_with(agent, query, deps), deps=deps).output
    return output


async def ask_async(agent: Agent[SupportDeps, SupportOutput], query: str, deps: SupportDeps) -> SupportOutput:
    output: SupportOutput = (await agent.acall(dialog_with(agent, query, deps), deps=deps)).output
    return output


def rehearsed() -> Script:
    """Return a script whose first answer exceeds the risk scale, so that the model is asked again."""
    return Script(
        function_call("customer_balance", include_pending=True),
        '{"advice": "Maria, your balance is 123.45 EUR.", "block_card": false, "risk": 11}',
        '{"advice": "Maria, your balance is 123.45 EUR.", "block_card": false, "risk": 1}',
    )


def main(query: str = "What is my balance?", model: str | None = None) -> None:
    deps = SupportDeps(customer_id=123, bank=Bank())
    with support(model or rehearsed()) as agent:
        print(ask(agent, query, deps))
    if model is None:
        print(asyncio.run(ask_async(support(rehearsed()), query, deps)))


if __name__ == "__main__":
    main(*sys.argv[1:])
