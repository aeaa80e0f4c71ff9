"""Agents whose answers are checked."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from fsm_agent import Agent, CallFailed, Retry
from fsm_agent.testing import Script
from support.agent_drivers import Way, by_astream, by_run

everywhere = pytest.mark.parametrize("way", [by_run, by_astream])


@dataclass
class Shop:
    stock: int


def plain(output: int) -> int:
    return judged(output, 12)


def judged(lamps: int, stock: int) -> int:
    if lamps > stock:
        raise Retry(f"only {stock} are left")
    return lamps


def checked(check: Any, *replies: Any, **options: Any) -> Agent[Any, Any]:
    script = replies[0] if replies and isinstance(replies[0], Script) else Script(*replies)
    return Agent(script, **{"output": int, "check": check, **options})


def driven(way: Way, agent: Agent[Any, Any], **options: Any) -> tuple[Any, list[Any]]:
    one, heard = agent.prepare("How many?", **options), list[Any]()
    with suppress(CallFailed):
        way(agent, one, heard)
    return one, heard
