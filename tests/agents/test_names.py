"""Does a store want a name?  Runs are found by those of their agents: two without one would share theirs."""

from __future__ import annotations

from typing import Any

import pytest

from fsm_agent import Agent, AgentBase, MemoryStore, UsageError, Worker
from fsm_agent.store import RunExists
from fsm_agent.testing import Script


@pytest.mark.parametrize(
    "make",
    [lambda **options: Agent(Script(), **options), lambda **options: Agent(Script()).changed(**options)],
)
def test_an_agent_with_a_store_and_without_a_name_is_refused(make):
    with pytest.raises(UsageError, match="name"):
        make(store=MemoryStore())
    assert make(store=MemoryStore(), name="billing").name == "billing"


def test_a_worker_finds_no_runs_of_one_without():
    with pytest.raises(UsageError, match="name"):
        Worker([Agent(Script())], MemoryStore())


def test_of_a_class_it_is_the_kind_or_the_class():
    class Billing(AgentBase, register=False):
        agent_type = "billing"

    class Legal(AgentBase, register=False):
        expertise = "You know the law."

    kept = MemoryStore()
    for kind in (Billing, Legal):
        answering: Any = type(kind.__name__, (kind,), {"store": kept})
        assert answering(client=Script("Yes."))("?", run_id=kind.__name__) == "Yes."
    assert {run.agent for run in kept.list()} == {"billing", "Legal"}


def test_runs_of_another_agent_are_not_taken_for_its_own():
    kept = MemoryStore()
    Agent(Script("from billing"), name="billing", store=kept).call("Summarize the case.", run_id="case-1")
    with pytest.raises(RunExists):
        Agent(Script("from legal"), name="legal", store=kept).call("Summarize the case.", run_id="case-1")
