"""What requests show of a dialog, and how many tokens that is."""

from __future__ import annotations

from typing import Any

from fsm_agent.call import Request
from fsm_agent.context import Budget, ContextPlan
from fsm_agent.context.fitting import View
from fsm_agent.context.tokens import ESTIMATE


def view(*passes: Any, budget: Budget | None = None) -> View:
    return View(ContextPlan(passes, budget=budget))


def estimated(request: Request) -> int:
    """Return the tokens of a request without a tokenizer."""
    return ESTIMATE.count(request)
