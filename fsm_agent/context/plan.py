"""The plan of an agent's context: which passes are applied to its requests, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from fsm_agent._internal.values import Value
from fsm_agent.context.budget import Budget
from fsm_agent.context.passes import AnyPass, Pass, apply_passes, check_pass, window_of
from fsm_agent.context.rounds import whole_turns
from fsm_agent.context.summary import Summarize, summarized
from fsm_agent.errors import UsageError
from fsm_agent.messages.message import Message, renumbered
from fsm_agent.prompts.dialog import Dialog

ContextOption: TypeAlias = AnyPass | Budget | Sequence[AnyPass | Budget] | None


class ContextPlan(Value, frozen=True):
    """What is done with each request of an agent: its ``context``, checked.

    Attributes:
        passes: Those that are applied to every request.
        budget: What is applied if a request is too long; None: nothing.
        window: The context window of the model in tokens; None: unknown.
        is_off: Nothing is ever left out.

    Examples:
        >>> len(ContextPlan.of([keep_last(4), shorten(4_000)]).passes)
        2
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
                raise UsageError(
                    "context: expected a Budget at the end of the list, got one before other passes; move it"
                )
            check_pass(one)
        return cls(tuple(listed), budget, is_off=not context)


def keeping(plan: ContextPlan, keep: Sequence[AnyPass]) -> ContextPlan:
    """Return a plan that also summarizes what earlier turns said, as ``keep`` of a conversation has it."""
    earlier = tuple(
        [
            one.changed(is_of_earlier=True, window=min(filter(None, map(window_of, keep[place:])), default=0))
            for place, one in enumerate(keep)
            if isinstance(one, Summarize)
        ]
    )
    return plan.changed(passes=(*earlier, *plan.passes), is_off=False) if earlier else plan


def kept(keep: Sequence[AnyPass], dialog: Dialog) -> Dialog:
    """Return what later turns inherit of a dialog; the same if it is all of it.

    A summary of its beginning takes the place of what it stands for.  A question and its answer are kept together or
    not at all; what passes of one's own return is taken as it is.

    Raises:
        UsageError: A pass is wrong; see `applied`.
    """
    messages: Sequence[Message] = dialog.messages
    if not keep or not len(messages):
        return dialog
    summaries = [one for one in keep if isinstance(one, Summarize)]
    if summaries and dialog.summary is not None:  # in requests, too, the other passes see it in its place
        messages = summarized(messages, dialog.summary, summaries[0].role)
    for place, one in enumerate(keep):
        is_behind = any(isinstance(before, Summarize) for before in keep[:place])
        if not isinstance(one, Summarize) and not (is_behind and window_of(one)):  # see `Summarize.window`
            shown = apply_passes((one,), messages)
            messages = whole_turns(messages, shown) if isinstance(one, Pass) else shown
    if messages is dialog.messages or tuple(messages) == tuple(dialog):
        return dialog
    return Dialog(renumbered(messages), system_args=dialog.system_args, governed_by=dialog.governed_by)


DEFAULT = ContextPlan(budget=Budget())
