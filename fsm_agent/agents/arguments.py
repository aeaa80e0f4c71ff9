"""Checks of the arguments of agents and of calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fsm_agent._internal.lazy_import import deferred
from fsm_agent._internal.structs import field_names
from fsm_agent.call.record import Limits
from fsm_agent.context.budget import DEFAULT, ContextPlan
from fsm_agent.errors import UsageError, hint
from fsm_agent.messages.reply import Settings
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.providers.catalog import window_of
from fsm_agent.runtime.environment import Environment
from fsm_agent.runtime.results import ResultPipeline
from fsm_agent.validation import Rights, check, check_fields

if TYPE_CHECKING:
    from fsm_agent.runtime import environment as price_lists
else:
    price_lists = deferred("fsm_agent.runtime.environment")

MODEL = "'provider:model' such as 'openai:gpt-5-mini', or a client"
UNNAMED = "agent"  # the name of an agent that was given none
TASK = Prompt("{{ task }}")  # the prompt of tasks in words, if an agent is given no other


def check_agent(agent: Any) -> None:
    """Refuse arguments with which an agent could make no call.

    Raises:
        UsageError: It names the argument, its value, and what was expected.
    """
    check_fields(agent, "an agent", _RIGHTS)
    if agent.store is not None and agent.name == UNNAMED:
        raise UsageError(
            "name: expected a name of the agent's own, by which its store finds its runs, got none;"
            " pass one, such as name='support'"
        )
    _check_environment(agent.environment)
    if isinstance(agent.model, str) and ":" not in agent.model:
        from fsm_agent.providers.catalog import split_model  # with all codecs, and only to say what is wrong

        split_model(agent.model)


def check_prices(agent: Any) -> None:
    """Refuse values that are not prices, and a budget in dollars for a model without a known price.

    Raises:
        UsageError: It names the model.
    """
    models = (agent.model,) if isinstance(agent.model, str) else price_lists.models_of(agent.model)
    prices = price_lists.PriceList(agent.prices, models)
    if agent.limits.cost_usd is not None:
        prices.check()


def _check_environment(environment: Any) -> None:
    check("environment of an agent", environment, isinstance(environment, Mapping), "a mapping such as {'threads': 4}")
    known = [
        name for name in field_names(Environment) if name not in ("client", "approve", "results", "prices", "name")
    ]
    for name in environment:
        if name not in known:
            raise UsageError(f"environment of an agent: unknown key {name!r}{hint(name, known)}")


def context_window(model: Any) -> int | None:
    """Return the most tokens that a model reads and writes together; None: it is not known.

    Args:
        model: ``"provider:model"``, or a client; of one with several models, each has room for so many.
    """
    if isinstance(model, str):
        return window_of(model)
    if type(window := getattr(model, "context_window", None)) is int:
        return window
    windows = [window_of(name) for name in price_lists.models_of(model)]
    known = [window for window in windows if window is not None]
    return min(known, default=None) if len(known) == len(windows) else None


def plan_of_model(plan: ContextPlan, model: Any, agent: str) -> ContextPlan:
    """Return what is done with the requests to a model, by its context window.

    Args:
        plan: The plan, of this or another model.
        model: ``"provider:model"``, or a client.
        agent: The name of the agent, for the error.

    Raises:
        UsageError: A `Budget` takes its limit from the window, and the window is not known.
    """
    window, budget = context_window(model), plan.budget
    if window is None and budget is not None and budget.hard is None and budget is not DEFAULT.budget:
        name = model if isinstance(model, str) else model.name
        raise UsageError(
            f"context of the agent {agent!r}: expected a Budget with hard=…, since the context window of {name!r} is"
            " unknown; pass a limit, such as Budget(hard=32_000)"
        )
    return plan.changed(window=window)


def is_model(value: Any) -> bool:
    """Return True for a name or a client."""
    is_client = not isinstance(value, type) and hasattr(value, "acomplete") and hasattr(value, "name")
    return is_client or isinstance(value, str)


_RIGHTS: Rights = (
    (
        "model",
        is_model,
        MODEL,
    ),
    ("system", lambda v: isinstance(v, str | Prompt) or callable(v), "a string or a Prompt, or a function of the deps"),
    ("name", lambda v: isinstance(v, str) and bool(v), "a string such as 'shop'"),
    (
        "prompt",
        lambda v: isinstance(v, Prompt) and "task" in v.variables,
        "a Prompt with {{ task }} (system=… takes the system prompt)",
    ),
    ("limits", lambda v: isinstance(v, Limits), "Limits such as Limits(rounds=3)"),
    ("settings", lambda v: isinstance(v, Settings), "Settings such as Settings(temperature=0)"),
    ("stop_when", lambda v: v is None or callable(v), "a function of a StopContext, or None"),
    ("results", lambda v: v is None or isinstance(v, ResultPipeline), "a ResultPipeline, or None"),
)
