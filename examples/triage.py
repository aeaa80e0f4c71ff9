"""Triage: an agent that hands the dialog over to the agent that can help: python examples/triage.py [provider:model]

If you name no model, scripts stand in for it, so this needs neither a key nor a network.  The agents hand the dialog to
one another, and the agent that has it answers the next turn.
"""

import sys

from fsm_agent import Agent, Client, function, handoff
from fsm_agent.testing import Script, function_call


@function
def find_order(number: int) -> str:
    """Return what was ordered, and whether it has been paid."""
    return {17: "a kettle, 30 EUR, paid"}.get(number, "there is no such order")


@function
def restart(device: str) -> str:
    """Restart one of the customer's devices remotely."""
    return f"the {device} is running again"


def support(triage: str | Client, billing: str | Client, repairs: str | Client) -> Agent:
    """Return the agent that customers talk to; all three agents have their own model, system prompt and functions."""
    back = handoff(lambda: first, name="transfer_to_triage", description="For any question that is not yours.")
    accounts = Agent(billing, name="billing", system="You do refunds.", functions=[find_order, back])
    workshop = Agent(repairs, name="repairs", system="You repair devices.", functions=[restart, back])
    first = Agent(
        triage,
        name="triage",
        system="You find out who can help, and answer only what no other agent can.",
        functions=[
            handoff(accounts, description="For money and orders."),
            handoff(workshop, description="For what is broken."),
        ],
    )
    return first


def scripted() -> Agent:
    return support(
        Script(
            function_call("transfer_to_billing", reason="a refund"),
            function_call("transfer_to_repairs", reason="a broken router"),
        ),
        Script(
            "Which order?",
            function_call("find_order", number=17),
            "Your 30 EUR are on their way.",
            function_call("transfer_to_triage"),
        ),
        Script(function_call("restart", device="router"), "Your router is running again."),
    )


def main(model: str = "") -> None:
    agent = support(model, model, model) if model else scripted()
    result = None
    for task in ("I want my money back.", "Order 17.", "And my router is dead."):
        result = agent.call(task, after=result)
        who = result.record.governed_by.rpartition("transfer_to_")[2] or "triage"
        print(f"> {task}\n{who}: {result.output}")


if __name__ == "__main__":
    main(*sys.argv[1:])
