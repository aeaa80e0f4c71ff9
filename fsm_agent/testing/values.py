"""What tests ask of values and registries: JSON data, the consistency of a record, and registrations that end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from fsm_agent._internal.values import to_json
from fsm_agent.agents.registry import AGENTS
from fsm_agent.call.invariants import inconsistency
from fsm_agent.call.record import CallRecord
from fsm_agent.clients.registered import CLIENTS
from fsm_agent.functions.function import FUNCTIONS
from fsm_agent.prompts.library import PROMPTS
from fsm_agent.providers.catalog import PROVIDERS


def as_json(value: Any) -> Any:
    """Return any value of this package as JSON data, as it is stored.

    Examples:
        >>> as_json(Message.of("user", "Hi"))["role"]
        'user'
    """
    return json.loads(to_json(value))


def check_record(record: CallRecord) -> str | None:
    """Return a contradiction within the record of a call, or None; takes linear time.

    Examples:
        >>> check_record(Agent(Script("Hi.")).call("Hello").record) is None
        True
    """
    return inconsistency(record)


@contextmanager
def registries() -> Iterator[None]:
    """Undo, at the end of the block, what it registered: agents, clients, functions, prompts and providers.

    Examples:
        >>> with registries():
        ...     class Poet(AgentBase):
        ...         agent_type = "poet"
        ...         expertise = "You write poems."
        >>> try:
        ...     build_agent({"agent_type": "poet"})
        ... except ConfigError:
        ...     print("no class has this agent_type")
        no class has this agent_type
    """
    with ExitStack() as stack:
        for registry in (AGENTS, CLIENTS, FUNCTIONS, PROMPTS, PROVIDERS):
            stack.enter_context(registry.scoped())
        yield
