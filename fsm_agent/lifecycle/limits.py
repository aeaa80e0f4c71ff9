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
    """The budgets of one agent call.  They are the call's, not a round's; None: unlimited.

    A call asks a model at most ``1 + rounds + parse_retries + recalls`` times, and once more in two stages.
    """

    rounds: int | None = 5  # replies whose functions are run
    on_limit: OnLimit = "final_prompt"  # when they are used up
    parse_retries: int | None = 3  # answers that may be refused by the parser and tried again
    identical_problems: int | None = None  # so many answers in a row with the same problem end the call; 2 or more
    # Meaning of an answer in plain text that was cut off at the token limit: it is requested again, or it is taken.
    on_cut: OnCut = "retry"
    recalls: int | None = 2  # failures of the model's transport that may be waited out
    depth: int | None = 3  # agent calls inside functions of agent calls; 1: none
    handoffs: int | None = 10  # how often agents may hand the dialog on before one of them answers
    tokens: int | None = None  # of all replies together, those to agents inside of the call included
    cost_usd: float | None = None  # of the same; each model needs a price that is known, or given with ``prices``
    deadline_s: float | None = None  # seconds from the start to the end
    request_s: float | None = None  # seconds for one request to the model; then it has failed, and may be recalled
    wait_s: float | None = 60.0  # the longest wait before a recall; a provider that asks for more ends the call
    identical_rounds: int | None = 3  # so many rounds in a row that ask for just the same are a loop; 2 or more
    # Consequence of a loop: the end; an event at every multiple of `identical_rounds`; or also a message to the model.
    on_loop: OnLoop = "tell"
    # Role of that message.  Many chat templates refuse a system message that is not the first, and some wires move it
    # there (https://github.com/gptme/gptme/issues/3779, 2026-09-09).
    loop_role: LoopRole = "user"
    failures_per_function: int | None = None  # then it is no longer offered
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
    """Return whether one more may be used."""
    return limit is None or used < limit
