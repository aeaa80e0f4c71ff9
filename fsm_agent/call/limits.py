"""The limits of one agent call."""

from __future__ import annotations

from inspect import get_annotations
from typing import Literal, TypeAlias, get_args

from fsm_agent._internal.field_checks import is_finite, is_whole
from fsm_agent._internal.values import Value
from fsm_agent.errors import UsageError
from fsm_agent.foreign_names import OptionsType
from fsm_agent.validation import shown

OnLimit: TypeAlias = Literal["final_prompt", "stop", "fail"]
OnCut: TypeAlias = Literal["retry", "accept"]
OnLoop: TypeAlias = Literal["stop", "warn", "tell"]
LoopRole: TypeAlias = Literal["user", "system"]


class Limits(Value, frozen=True, kw_only=True, metaclass=OptionsType):
    """The budgets of one agent call, not of a round; None: unlimited.

    A call makes at most ``1 + rounds + parse_retries + recalls`` requests to a model, and one more in two stages, or if
    it has a finalizer.  Where its context is summarized, a request for a summary may come before each of them.

    Args:
        rounds: Replies whose functions are run; 0: no functions.
        on_limit: What happens when the rounds are used up. ``"final_prompt"``: the model is told to finish;
            ``"stop"``: the call is completed without an output; ``"fail"``: it fails.
        parse_retries: Answers that the parser or the check may refuse before the call fails.
        identical_problems: This many answers in a row with the same problem end the call; 2 or more.
        on_cut: What happens to an answer in plain text that was cut off at the token limit: ``"retry"`` requests it
            again, ``"accept"`` takes it.
        recalls: Failed requests to the model after which it is asked again.
        depth: Levels of agent calls inside functions of agent calls; 1: none inside.
        handoffs: How often agents may hand the dialog over before one of them answers.
        tokens: Tokens of all replies together, including those to agents inside of the call.
        cost_usd: Dollars for the same replies; the price of each model has to be known, or in ``prices``.
        deadline_s: Seconds from the start to the end of the call.
        request_s: Seconds for one request to the model; a longer one fails, and may be repeated.
        check_s: Seconds for one check of an answer; a longer one makes the call fail.
        wait_s: Seconds to wait before a recall at most; a provider that asks for more ends the call.
        identical_rounds: This many rounds in a row with the same function calls are a loop; 2 or more.
        on_loop: What happens at a loop. ``"stop"`` ends the call; ``"warn"`` reports it at every multiple of
            `identical_rounds`; ``"tell"`` does that, and tells the model.
        loop_role: The role of the message that tells the model.
        failures_per_function: After this many failures, a function is no longer offered.
        parallel: Functions of one round that may run at once; 1: one after another.

    Examples:
        >>> limits = Limits(rounds=8, tokens=20_000, deadline_s=60)
        >>> result = Agent(Script("Hi."), limits=limits).call("Hello")
        >>> result.ending.reason
        <Reason.ANSWERED: 'answered'>
    """

    rounds: int | None = 5
    on_limit: OnLimit = "final_prompt"
    parse_retries: int | None = 3
    identical_problems: int | None = None
    on_cut: OnCut = "retry"
    recalls: int | None = 2
    depth: int | None = 3
    handoffs: int | None = 10
    tokens: int | None = None
    cost_usd: float | None = None
    deadline_s: float | None = None
    request_s: float | None = None
    check_s: float | None = None
    wait_s: float | None = 60.0
    identical_rounds: int | None = 3
    on_loop: OnLoop = "tell"
    # Many chat templates refuse a system message that is not the first, and some wires move it there
    # (https://github.com/gptme/gptme/issues/3779, 2026-09-09).
    loop_role: LoopRole = "user"
    failures_per_function: int | None = None
    parallel: int | None = None

    def __post_init__(self) -> None:
        for name, kind in _CHOICES.items():
            choices = get_args(kind)
            if (value := getattr(self, name)) not in choices:
                raise UsageError(f"limits.{name}: expected {' or '.join(map(repr, choices))}, got {shown(value)}")
        for name, (is_right, number) in _NUMBERS.items():
            if (value := getattr(self, name)) is not None and not (is_right(value) and value >= 0):
                right = f"a {number} from 0 on, or None for no limit"
                raise UsageError(f"limits.{name}: expected {right}, got {shown(value)}")
        for name, least in _LEAST:
            if (value := getattr(self, name)) is not None and value < least:
                right = f"a whole number from {least} on, or None for no limit"
                raise UsageError(f"limits.{name}: expected {right}, got {shown(value)}")


_CHECKS = {"int | None": (is_whole, "whole number"), "float | None": (is_finite, "number")}  # by annotation
_NUMBERS = {name: _CHECKS[kind] for name, kind in get_annotations(Limits).items() if kind in _CHECKS}
_LEAST = (("identical_rounds", 2), ("identical_problems", 2), ("failures_per_function", 1), ("parallel", 1))
_CHOICES = {"on_limit": OnLimit, "on_cut": OnCut, "on_loop": OnLoop, "loop_role": LoopRole}


def is_within(used: int, limit: int | None) -> bool:
    """Return whether one more use is within the limit."""
    return limit is None or used < limit
