"""The plan of an agent's context: which passes are applied to its requests, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from fsm_agent._internal.values import Value
from fsm_agent.context.budget import Budget
from fsm_agent.context.passes import AnyPass, check_pass
from fsm_agent.errors import UsageError

ContextOption: TypeAlias = AnyPass | Budget | Sequence[AnyPass | Budget] | None


class ContextPlan(Value, frozen=True):
    """What is done with each request of an agent: its ``context``, checked.

    Attributes:
        passes: Those that are applied to every request.
        budget: What is applied if a request is too long; None: nothing.
        window: The context window of the model in tokens; None: unknown.
        is_off: Nothing is ever left out.
    """

    passes: tuple[AnyPass, ...] = ()
    budget: Budget | None = None
    window: int | None = None
    is_off: bool = False

    @classmethod
    def of(cls, context: Any) -> ContextPlan:
        """Return the plan of an agent's ``context``.

        Raises:
            UsageError: It is neither a pass, a list of passes, a `Budget` nor None.
        """
        if context is None:
            return DEFAULT
        if isinstance(context, Budget):
            return cls(budget=context)
        if not isinstance(context, list | tuple):
            check_pass(context)
            return cls((context,))
        listed = list(context)
        budget = listed.pop() if listed and isinstance(listed[-1], Budget) else None
        for one in listed:
            if isinstance(one, Budget):
                raise UsageError("context has a Budget before other passes: at the end of the list it would be right")
            check_pass(one)
        return cls(tuple(listed), budget, is_off=not context)


DEFAULT = ContextPlan(budget=Budget())
