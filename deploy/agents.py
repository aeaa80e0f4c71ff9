"""The agents of the example: a desk that looks up orders, and pays back what a person approves."""

from __future__ import annotations

import os

from fsm_agent import Agent, function


@function
def find_order(number: str) -> str:
    """Find out where an order is."""
    return f"Order {number} was sent on Monday."


@function(needs_approval=True, once=True)
def refund(number: str) -> str:
    """Pay a customer back."""
    return f"Order {number} was paid back."


DESK = Agent(os.environ.get("MODEL", "openai:gpt-5-mini"), name="desk", functions=[find_order, refund])
