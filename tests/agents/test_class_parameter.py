"""Is what a class says in brackets, for type checkers, also what its agents do?"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import pytest
from pydantic import BaseModel

from fsm_agent import AgentBase, ConfigError
from fsm_agent.testing import Script

T = TypeVar("T")


class Report(BaseModel):
    title: str


def test_the_parameter_is_the_output() -> None:
    class Reporter(AgentBase[Report], register=False):
        expertise = "You report."

    assert Reporter(client=Script('{"title": "t"}')).call("?").output == Report(title="t")


def test_of_a_program_too() -> None:
    class Reporter(AgentBase[Report], register=False):
        def answer(self, task: str):  # type: ignore[no-untyped-def]
            return Report(title=task)

    assert Reporter(client=Script()).call("t").output == Report(title="t")


def test_another_output_is_an_error_of_the_class_statement() -> None:
    with pytest.raises(ConfigError, match="output"):

        class Reporter(AgentBase[Report], register=False):
            expertise = "You report."
            output = int


def test_a_class_that_leaves_it_open_says_nothing() -> None:
    class Open(AgentBase[T], Generic[T], register=False):
        expertise = "You report."

    class Closed(Open[Report], register=False):
        pass

    class Any_(AgentBase[Any], register=False):
        expertise = "You report."

    assert Closed(client=Script('{"title": "t"}')).call("?").output == Report(title="t")
    assert Any_(client=Script("x")).call("?").output == "x"
