"""Are the arguments of an agent and of a call right?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fsm_agent._internal.lazy_import import deferred
from fsm_agent._internal.values import field_names
from fsm_agent.errors import UsageError, hint
from fsm_agent.foreign_names import WORDS, remedy
from fsm_agent.lifecycle.call import AgentCall
from fsm_agent.lifecycle.context.masking import Masking
from fsm_agent.lifecycle.effects import Settings
from fsm_agent.lifecycle.limits import Limits
from fsm_agent.mistakes import Rights, check, check_fields, shown
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.prompts.template import check_used
from fsm_agent.runtime.results.pipeline import ResultPipeline
from fsm_agent.runtime.world import World

if TYPE_CHECKING:
    from fsm_agent.messages import payload as payloads
    from fsm_agent.runtime.costs import price_list as price_lists
else:
    payloads = deferred("fsm_agent.messages.payload")
    price_lists = deferred("fsm_agent.runtime.costs.price_list")

MODEL = "'provider:model', as 'openai:gpt-5-mini' is, or a client"
UNNAMED = "agent"  # the name of an agent that was given none
TASK = Prompt("{{ task }}")  # the prompt of tasks in words, if an agent is given no other
CALL_OPTIONS = (  # of a call, beside the variables of its prompt
    *("args", "parser_args", "deps", "model", "extra", "run_id", "after", "system_args", "keep_system"),
)


def check_agent(agent: Any) -> None:
    """Refuse an agent that no call could be made with.

    Raises:
        UsageError: It names the argument, its value, and what would be right.
    """
    check_fields(agent, "an agent", _RIGHTS)
    if agent.store is not None and agent.name == UNNAMED:
        raise UsageError(
            "the agent has a store, in which runs are found by the name of their agent, and no name of its own:"
            " name='support', say, would be right"
        )
    _check_world(agent.world)
    if isinstance(agent.model, str) and ":" not in agent.model:
        from fsm_agent.providers.catalog import split_model  # with all codecs, and only to say what is wrong

        split_model(agent.model)


def check_prices(agent: Any) -> None:
    """Refuse prices that are none, and a budget in dollars for a model whose price nobody knows.

    Raises:
        UsageError: It names the model.
    """
    models = (agent.model,) if isinstance(agent.model, str) else price_lists.models_of(agent.model)
    prices = price_lists.PriceList(agent.prices, models)
    if agent.limits.cost_usd is not None:
        prices.check()


def check_deps(deps: object, prompt: Prompt) -> None:
    """Refuse a call without ``deps`` whose functions cannot do without, or with their class instead of an object.

    Raises:
        UsageError: It names the first of these functions.
    """
    if deps is None:
        if (needy := prompt.needs_deps) is not None:
            kind = needy.deps_type
            raise UsageError(
                f"deps is None, and function {needy.name!r} takes Context[{kind}]: deps=… of call gives it one;"
                f" one that can do without takes Context[{kind} | None]"
            )
    elif isinstance(deps, type) and (needy := prompt.needs_deps) is not None and needy.deps_type == deps.__name__:
        raise UsageError(
            f"deps is {shown(deps)}, a class, and function {needy.name!r} takes Context[{needy.deps_type}]: an object"
            f" of it, {needy.deps_type}(…), would be right"
        )


def check_call(call: object, method: str, right: str) -> None:
    """Refuse to drive what is no agent call.

    Raises:
        UsageError: It names the method that would be right.
    """
    if not isinstance(call, AgentCall):
        raise UsageError(
            f"{method} drives an AgentCall, and {shown(call)} is none: {right}({shown(call)}) would be right"
        )


def _check_world(world: Any) -> None:
    check("world of an agent", world, isinstance(world, Mapping), "a mapping such as {'threads': 4}")
    known = [name for name in field_names(World) if name not in ("client", "approve", "results", "prices")]
    for name in world:
        if name not in known:
            raise UsageError(f"world of an agent has no {name!r}{hint(name, known)}")


def check_values(task: object, values: Mapping[str, Any], words: Prompt) -> None:
    """Refuse what is neither an option of a call nor a variable of the task.

    Args:
        task: The task.
        values: What was given with it.
        words: The agent's prompt of tasks that are given in words.

    Raises:
        UsageError: It names the first, and what was probably meant.
    """
    if isinstance(task, str | payloads.Payload) and words.template != TASK.template:
        task, values = words, {"task": "", **values}
    used = task.variables if isinstance(task, Prompt) else frozenset[str]()
    for word in values:
        if word not in used and word in WORDS:
            raise UsageError(f"a call has no option {word!r}{remedy(word)}")
    if isinstance(task, Prompt):
        check_used(task.template, values, CALL_OPTIONS)
        return
    named = ", ".join(sorted(values))
    meant = next(filter(lambda text: text.startswith(":"), [hint(word, CALL_OPTIONS) for word in values]), "")
    raise UsageError(f"the variables {named} are for a Prompt, not for {task!r:.60}{meant}")


def is_model(value: Any) -> bool:
    """Return True for a name or a client."""
    is_client = not isinstance(value, type) and hasattr(value, "complete") and hasattr(value, "name")
    return is_client or isinstance(value, str)


def _are_callables(value: Any) -> bool:
    """Return whether a value is a list of functions; a class such as `KeepLastN` would be called with the messages."""
    return isinstance(value, Sequence) and all(callable(one) and not isinstance(one, type) for one in value)


_RIGHTS: Rights = (
    (
        "model",
        is_model,
        MODEL,
    ),
    ("system", lambda v: isinstance(v, str | Prompt) or callable(v), "a text or a Prompt, or a function of the deps,"),
    ("name", lambda v: isinstance(v, str) and bool(v), "a text such as 'shop'"),
    (
        "prompt",
        lambda v: isinstance(v, Prompt) and "task" in v.variables,
        "a Prompt with {{ task }} in it (system=… is the system prompt)",
    ),
    ("limits", lambda v: isinstance(v, Limits), "Limits(rounds=3), say,"),
    ("settings", lambda v: isinstance(v, Settings), "Settings(temperature=0), say,"),
    ("stop_when", lambda v: v is None or callable(v), "a function of a StopContext, or None,"),
    ("masking", lambda v: v is None or isinstance(v, Masking), "Masking(), or None,"),
    ("processors", _are_callables, "a list of functions of messages, [KeepLastN(20)], say,"),
    ("results", lambda v: v is None or isinstance(v, ResultPipeline), "a ResultPipeline, or None,"),
)
