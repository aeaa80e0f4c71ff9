"""Whole results of agent calls for tests, made by the same machine without a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

from fsm_agent._internal.lazy_import import pydantic
from fsm_agent.call.call import AgentCall
from fsm_agent.call.outcomes import Begun, Replied
from fsm_agent.call.result import CallResult
from fsm_agent.messages.reply import Reply
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.prompts.unions import tags_of
from fsm_agent.validation import check, shown, wrong

TASK = "?"
WHAT = "the output of a CallResult"


def example_result(output: Any, types: Sequence[Any], dialog: Dialog | None) -> CallResult[Any]:
    """Return the result of a call that was answered with an output; see `CallResult.of`.

    Raises:
        UsageError: The output has none of the types, or a model could not have given it.
    """
    check("the dialog of a CallResult", dialog, dialog is None or isinstance(dialog, Dialog), "a Dialog, or None")
    kinds = tuple(types) or (type(output),)
    text = output if kinds == (str,) and isinstance(output, str) else _text(output, kinds)
    seeded = Dialog().put(TASK) if dialog is None else dialog
    of_all: Any = Union[kinds]  # noqa: UP007  # of as many as there are
    call: AgentCall[Any] = AgentCall.seed(seeded, Prompt(TASK, output=of_all))
    call.advance("begin", Begun(at_s=0.0, id="example"))
    (request,) = call.effects
    call.advance(request.key, Replied(reply=Reply.of(text), at_s=0.0))
    if call.record.ending is None:
        problem = str(call.problem).partition("\n")[0]
        raise wrong(WHAT, output, f"an output that can be read from a model's answer ({problem})")
    if type(call.output) is not type(output) or call.output != output:
        raise wrong(WHAT, output, f"its type as well, as in CallResult.of({shown(output)}, tuple[Part, ...])")
    return call.result()


def _text(output: Any, kinds: Sequence[Any]) -> str:
    """Return the answer of a model that is read as an output."""
    for kind, tag in zip(kinds, tags_of(kinds), strict=True):
        adapter: Any = pydantic.TypeAdapter(kind)
        try:
            adapter.validate_python(output, strict=True)
            text = str(adapter.dump_json(output), "utf-8")
        except (ValueError, TypeError):
            continue
        return text if tag is None else f'{{"{tag}":{text}}}'
    names = " or ".join([getattr(kind, "__name__", str(kind)) for kind in kinds])
    raise wrong(WHAT, output, f"{names} that JSON can hold")
