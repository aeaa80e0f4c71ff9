"""Test helpers for values and registries."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Union

from pydantic import TypeAdapter

from fsm_agent._internal.structs import New, to_json
from fsm_agent.agents.agent_base import AGENTS
from fsm_agent.call.call import AgentCall
from fsm_agent.call.outcomes import Begun, Replied
from fsm_agent.call.record import CallRecord
from fsm_agent.call.result import CallResult
from fsm_agent.call.snapshots import inconsistency
from fsm_agent.clients.client import CLIENTS
from fsm_agent.functions.function import FUNCTIONS
from fsm_agent.messages.reply import Reply
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.prompts.library import PROMPTS
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.prompts.unions import tags_of
from fsm_agent.providers.catalog import PROVIDERS
from fsm_agent.validation import invalid, require, safe_repr

_TASK = "?"
_WHAT = "the output of example_result"


def as_json(value: Any) -> Any:
    """Return one of this package's values as the JSON data that a store keeps.

    Examples:
        >>> as_json(Message.of("user", "Hi"))["role"]
        'user'
    """
    return json.loads(to_json(value))


def check_record(record: CallRecord) -> str | None:
    """Describe a contradiction in a call's record, or return None if there is none.  This takes linear time.

    Examples:
        >>> check_record(Agent(Script("Hi.")).call("Hello").record) is None
        True
    """
    return inconsistency(record)


@contextmanager
def registries() -> Iterator[None]:
    """At the end of the ``with`` block, undo all registrations of agents, clients, functions, prompts and providers.

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


def example_result(output: New, *types: Any, dialog: Dialog | None = None) -> CallResult[New]:
    """Return the whole result of a call that was answered with ``output``, without asking a model.

    Args:
        output: The parsed answer.
        types: The possible types of the call's output, such as those in ``ask(agent, Approve, Reject)``, or a
            parametrized type such as ``tuple[Part, ...]``.  The default is the class of ``output``.
        dialog: The conversation before the answer.  The default is one question.

    Raises:
        UsageError: If the output has none of the types, or cannot be parsed from a model's answer.

    Examples:
        >>> example_result(7).output
        7
    """
    require("the dialog of example_result", dialog, dialog is None or isinstance(dialog, Dialog), "a Dialog, or None")
    kinds = types or (type(output),)
    text = output if kinds == (str,) and isinstance(output, str) else _text(output, kinds)
    seeded = Dialog().put(_TASK) if dialog is None else dialog
    of_all: Any = Union[kinds]  # noqa: UP007  # any number of types
    call: AgentCall[Any] = AgentCall.seed(seeded, Prompt(_TASK, output=of_all))
    call.advance("begin", Begun(at_s=0.0, id="example"))
    (request,) = call.effects
    call.advance(request.key, Replied(reply=Reply.of(text), at_s=0.0))
    if call.record.ending is None:
        problem = str(call.problem).partition("\n")[0]
        raise invalid(_WHAT, output, f"an output that can be read from a model's answer ({problem})")
    if type(call.output) is not type(output) or call.output != output:
        raise invalid(_WHAT, output, f"its type as well, as in example_result({safe_repr(output)}, tuple[Part, ...])")
    return call.result()


def _text(output: Any, kinds: Sequence[Any]) -> str:
    for kind, tag in zip(kinds, tags_of(kinds), strict=True):
        adapter: Any = TypeAdapter(kind)
        try:
            adapter.validate_python(output, strict=True)
            text = str(adapter.dump_json(output), "utf-8")
        except (ValueError, TypeError):
            continue
        return text if tag is None else f'{{"{tag}":{text}}}'
    names = " or ".join([getattr(kind, "__name__", str(kind)) for kind in kinds])
    raise invalid(_WHAT, output, f"{names} that JSON can hold")
