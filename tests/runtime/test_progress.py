"""What does every driver do behind a step?"""

from __future__ import annotations

import gc
import logging
import weakref

import pytest
from support.drivers import Driver, anyhow, seed

from fsm_agent.errors import CallFailed, ParseError
from fsm_agent.lifecycle import Limits
from fsm_agent.prompts import Prompt
from fsm_agent.testing import Script


def halve(text: str) -> float:
    try:
        return int(text) / 0
    except ValueError as error:
        raise ParseError(f"{text!r} is no number") from error


@anyhow
def test_a_parser_that_fails_is_logged_with_its_traceback(driven: Driver, caplog: pytest.LogCaptureFixture):
    one = seed(Prompt("x", path="p", parser=halve), limits=Limits(parse_retries=1))
    with caplog.at_level(logging.INFO, logger="fsm_agent"):
        driven(one, Script("no number", "42"))
    failed, entry = caplog.records
    assert failed.getMessage().startswith("call call-1: ParseException -> Failed: parse_failed")
    assert (entry.name, entry.levelname) == ("fsm_agent", "WARNING")
    assert entry.getMessage() == "call call-1: the parser of prompt 'p' raised ZeroDivisionError"
    assert "in halve\n    return int(text) / 0" in caplog.text


@anyhow
def test_an_answer_that_a_parser_refuses_is_for_those_who_debug(driven: Driver, caplog: pytest.LogCaptureFixture):
    one = seed(Prompt("x", path="p", parser=halve), limits=Limits(parse_retries=0))
    with caplog.at_level(logging.DEBUG, logger="fsm_agent"):
        driven(one, Script("no number"))
    (entry,) = [entry for entry in caplog.records if "parser" in entry.getMessage()]
    assert entry.levelname == "DEBUG"
    assert "ParseError: 'no number' is no number" in caplog.text


@pytest.mark.parametrize("answer", ["42"])
@anyhow
def test_a_call_whose_parser_failed_leaves_nothing_for_the_collector(driven: Driver, answer: str, caplog):
    caplog.set_level(logging.DEBUG, logger="fsm_agent")

    class Deps:
        pass

    def once() -> weakref.ref[Deps]:
        deps = Deps()
        one = seed(Prompt("x", parser=halve), limits=Limits(parse_retries=1), deps=deps)
        driven(one, Script("0", answer))
        with pytest.raises(CallFailed):
            one.result()
        return weakref.ref(deps)

    once()
    gc.collect()
    gc.disable()
    try:
        assert once()() is None
    finally:
        gc.enable()
