"""The limits of one agent call."""

from __future__ import annotations

from inspect import get_annotations
from typing import Literal, TypeAlias, get_args

from fsm_agent._internal.field_checks import is_finite, is_whole
from fsm_agent._internal.values import Value
from fsm_agent.errors import UsageError
from fsm_agent.mistakes import shown

OnLimit: TypeAlias = Literal["final_prompt", "stop", "fail"]
OnCut: TypeAlias = Literal["retry", "accept"]
OnLoop: TypeAlias = Literal["stop", "warn", "tell"]
LoopRole: TypeAlias = Literal["user", "system"]


class Limits(Value, frozen=True, kw_only=True):
    """The budgets of one agent call, not of a round; None: unlimited.

    A call makes at most ``1 + rounds + parse_retries + recalls`` requests to a model, and one more in two stages, or if
    it has a finalizer.  Where its context is summarized, a request for a summary may come before each of them.
    """

    rounds: int | None = 5  # replies whose functions are run
    on_limit: OnLimit = "final_prompt"  # what happens when the rounds are used up
    parse_retries: int | None = 3  # answers that the parser or the check may refuse before the call fails
    identical_problems: int | None = None  # this many answers in a row with the same problem end the call; 2 or more
    # What happens to an answer in plain text that was cut off at the token limit: request it again, or accept it.
    on_cut: OnCut = "retry"
    recalls: int | None = 2  # failed requests to the model after which it is asked again
    depth: int | None = 3  # levels of agent calls inside functions of agent calls; 1: none inside
    handoffs: int | None = 10  # how often agents may hand the dialog over before one of them answers
    tokens: int | None = None  # of all replies together, including those to agents inside of the call
    cost_usd: float | None = None  # of the same replies; the price of each model has to be known, or in ``prices``
    deadline_s: float | None = None  # seconds from the start to the end
    request_s: float | None = None  # seconds for one request to the model; a longer one fails, and may be repeated
    check_s: float | None = None  # seconds for one check of an answer; a longer one makes the call fail
    wait_s: float | None = 60.0  # seconds to wait before a recall; a provider that asks for more ends the call
    identical_rounds: int | None = 3  # this many rounds in a row with the same function calls are a loop; 2 or more
    # What happens at a loop: end the call; report an event at every multiple of `identical_rounds`; or do that and add
    # a message to the model.
    on_loop: OnLoop = "tell"
    # Role of that message.  Many chat templates refuse a system message that is not the first, and some wires move it
    # there (https://github.com/gptme/gptme/issues/3779, 2026-09-09).
    loop_role: LoopRole = "user"
    failures_per_function: int | None = None  # after this many failures, a function is no longer offered
    parallel: int | None = None  # functions of one round that may run at once; 1: one after another

    def __post_init__(self) -> None:
        for name, right in _CHOICES.items():
            choices = get_args(right)
            if (value := getattr(self, name)) not in choices:
                raise UsageError(f"limits.{name} is {value!r}: one of {', '.join(map(repr, choices))} would be right")
        for name, (is_right, number) in _NUMBERS.items():
            if (value := getattr(self, name)) is not None and not (is_right(value) and value >= 0):
                what = f"limits.{name} is {shown(value)}"
                raise UsageError(f"{what}: a {number} from 0 on would be right, or None: unlimited")
        for name, least in _LEAST:
            if (value := getattr(self, name)) is not None and value < least:
                raise UsageError(f"limits.{name} is {value!r}: {least} or more would be right, or None")


_CHECKS = {"int | None": (is_whole, "whole number"), "float | None": (is_finite, "number")}  # by annotation
_NUMBERS = {name: _CHECKS[kind] for name, kind in get_annotations(Limits).items() if kind in _CHECKS}
_LEAST = (("identical_rounds", 2), ("identical_problems", 2), ("failures_per_function", 1), ("parallel", 1))
_CHOICES = {"on_limit": OnLimit, "on_cut": OnCut, "on_loop": OnLoop, "loop_role": LoopRole}


def is_within(used: int, limit: int | None) -> bool:
    """Return whether one more use is within the limit."""
    return limit is None or used < limit
