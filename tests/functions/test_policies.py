"""Is a policy that makes no sense refused where it is written?"""

from __future__ import annotations

import functools
import json
import math
from typing import Any

import pytest

from fsm_agent.errors import UsageError
from fsm_agent.functions import Default, Function, Retries, function


async def later(*given: Any) -> Any: ...


class Later:
    async def __call__(self, *given: Any) -> Any: ...


def layer(call: Any, proceed: Any) -> Any:
    return proceed(call)


def count(one: Any, other: Any, numbers: Any) -> Any: ...


@functools.wraps(count)
def counted(one: Any, other: Any) -> Any:
    """Take fewer arguments than the function that it stands for."""


WRONG = {
    "needs_approval": [
        1,
        "always",
        later,
        Later(),
        lambda: True,
        lambda a, b, c: True,
        lambda call, *, why: True,
        bool,
    ],
    "version": [None, 2, "2@3", "1 0", "x" * 41, "2\n"],
    "max_calls": [0, -1, 1.5, True, "3"],
    "max_failures": [0, -1, 1.5, True, "3"],
    "depends_on": ["login", None, ("",), (5,), {"login"}],
    "timeout_s": [0, -1, math.inf, math.nan, True, "10", 10**400],
    "retries": [3, True, {"attempts": 3}],
    "on_error": ["raise", None, "", ["tell"], Default],
    "reconcile": [5, "find_out", lambda: None, lambda context, call: None],
    "middleware": [layer, None, (5,), ("f",), (lambda call: call,)],
    "format": ["{}", 5, later, Later(), lambda value: value, json.dumps],
}
RIGHT = {
    "acall": [None],
    "blocking": [True, False],
    "needs_approval": [None, True, False, lambda call: True, lambda call, context: True],
    "repeatable": [True],
    "version": ["", "2", "1.4.0-rc1+b_2", "x" * 40],
    "deprecated": ["", "use search"],
    "max_calls": [None, 1, 10],
    "max_failures": [None, 1],
    "depends_on": [(), ("login",), ("a", "b")],
    "timeout_s": [None, 0.001, 5],
    "retries": [None, Retries(attempts=1)],
    "on_error": ["tell", "retry", "fail", Default(None)],
    "middleware": [(), (layer, layer), (counted,)],
    "once": [True, False],
    "reconcile": [None],
    "format": [None, lambda value, call: str(value), lambda *values: "", "{}{}".format, counted],
}


@pytest.mark.parametrize("name", WRONG)
def test_what_makes_no_sense_is_refused(name):
    for value in WRONG[name]:
        with pytest.raises(UsageError, match=f"^{name} of function 'buy'"):
            Function(name="buy", **{name: value})
        with pytest.raises(UsageError, match=f"^{name} of function 'len'"):
            Function.of(len, **{name: value})


@pytest.mark.parametrize("name", RIGHT)
def test_what_makes_sense_is_kept(name):
    for value in RIGHT[name]:
        assert getattr(Function(name="buy", **{name: value}), name) == value
        assert getattr(function(**{name: value})(len), name) == value


def test_retries_have_ranges():
    for name, values in {
        "attempts": [0, 2.5, True],
        "delay_s": [-0.1, math.nan, 6],
        "max_delay_s": [math.inf],
        "jitter": [-0.1, 1.1],
        "retry_if": [ValueError("x"), later, lambda: True],
    }.items():
        for value in values:
            with pytest.raises(UsageError, match=f"^{name} of Retries"):
                Retries(**{name: value})
    assert Retries(attempts=1, delay_s=0, jitter=1).attempts == Retries(attempts=1, delay_s=5, jitter=0).attempts == 1


class TestNames:
    def test_an_unknown_one_is_refused_with_what_was_probably_meant(self):
        for name, hint in (
            ("aproval", "'needs_approval'"),
            ("max_call", "'max_calls'"),
            ("zzz", "acall, blocking, needs_approval"),
            ("is_async", "acall, blocking"),
        ):
            for use in (lambda **policy: Function.of(len, **policy), function):
                with pytest.raises(UsageError, match=f"{name!r}.*{hint}"):
                    use(**{name: True})

    def test_what_is_changed_may_be_taken_back(self):
        limited = Function.of(len, max_calls=3, timeout_s=5)
        assert Function.of(limited, max_calls=None).max_calls is None
        assert Function.of(limited, max_calls=None).timeout_s == 5


class TestDeprecation:
    def test_the_model_is_told(self):
        made = Function.of(len, description="Count.", deprecated="use size")
        assert made.description == "Count.\n\nDeprecated: use size"
        assert Function(name="f", deprecated="use g").description == "Deprecated: use g"

    def test_once_however_often_it_is_changed(self):
        made = Function.of(Function.of(len, description="Count.", deprecated="use size"), max_calls=3)
        assert made.description == "Count.\n\nDeprecated: use size"
        assert Function.of(made, deprecated="use count").description == "Count.\n\nDeprecated: use count"
        assert Function.of(made, deprecated="").description == "Count."
        assert Function.of(made, description="Size.").description == "Size.\n\nDeprecated: use size"
